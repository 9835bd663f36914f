//! Host lists of options: `--host a:2,b` and `-hosts a,b:2`.

use base::HostList;

use super::{
    Allocation, Base, Collector, LocalNames, Problem, Slots, error::AllocError, relative::Who,
};

/// Reads a list of names, each optionally followed by a colon and a number of slots. `origin` is the option's name.
///
/// A name without a number is a node with an implicit slot count; unlike in Open MPI, it does not mean one slot. A name
/// given several times is a count: `a,a` means two slots. Relative names (`+n1`, `+e:2`) refer to the nodes of `base`.
///
/// # Errors
///
/// [`AllocError`] with the problem. Positions are those in the text.
pub fn hosts(
    text: &str,
    origin: &str,
    names: &LocalNames,
    base: Base<'_>,
) -> Result<Allocation, AllocError> {
    let mut collector = Collector::new(names);
    for item in split(text) {
        let at = |problem: Problem| problem.at(origin, None);
        let (who, slots) = host_and_slots(item).map_err(at)?;
        let list = who.names(base, Some(&collector)).map_err(at)?;
        for name in list.iter() {
            collector.add(name, slots, None);
        }
        if collector.nodes.len() > base::MAX_HOSTS {
            return Err(Problem::TooManyNodes.at(origin, None));
        }
    }
    if collector.nodes.is_empty() {
        return Err(Problem::Empty.at(origin, None));
    }
    Ok(collector.finish())
}

/// Splits at commas that are not inside brackets.
fn split(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_u32;
    text.split(move |c: char| {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    })
}

/// Reads names with the number of slots of each: `n[1-4]:2`.
pub(super) fn host_and_slots(item: &str) -> Result<(Who, Slots), Problem> {
    let item = item.trim();
    // This is the only supported name with colons.
    if item == "::1" {
        let names = ["localhost"].into_iter().collect();
        return Ok((Who::Named(names), Slots::Implicit));
    }
    let (name, slots) = match item.split_once(':') {
        None => (item, Slots::Implicit),
        Some((name, count)) => (name, Slots::Explicit(self::count(count)?)),
    };
    if let Some(who) = Who::relative(name) {
        return Ok(match (who?, slots) {
            // `+e:2` are two nodes.
            (Who::Unused(None), Slots::Explicit(count)) => {
                let count = usize::try_from(count).unwrap_or(usize::MAX);
                (Who::Unused(Some(count)), Slots::Implicit)
            }
            other => other,
        });
    }
    let list = name.parse::<HostList>().map_err(Problem::HostList)?;
    if list.is_empty() {
        Err(Problem::Empty)
    } else {
        Ok((Who::Named(list), slots))
    }
}

/// Reads a number of slots, which is at least one.
pub(super) fn count(word: &str) -> Result<u32, Problem> {
    match word.parse::<u32>() {
        Ok(0) => Err(Problem::ZeroSlots {
            word: word.to_owned(),
        }),
        Ok(count) if word.bytes().all(|byte| byte.is_ascii_digit()) => Ok(count),
        Ok(_) | Err(_) => Err(Problem::BadCount {
            word: word.to_owned(),
        }),
    }
}
