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
    let (name, slots) = match name_and_count(item) {
        (name, None) => (name, Slots::Implicit),
        (name, Some(count)) => (name, Slots::Explicit(self::count(count)?)),
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

/// Splits names from the number of slots behind them. An IPv6 address with a number is in brackets: `[fd00::1]:2`.
fn name_and_count(item: &str) -> (&str, Option<&str>) {
    if base::ipv6(item).is_some() {
        return (item, None);
    }
    let address = item.find(']').map(|end| item.split_at(end + 1));
    match address.and_then(|(name, rest)| Some((name, rest.strip_prefix(':')?))) {
        Some((name, count)) if base::ipv6(name).is_some() => (name, Some(count)),
        _ => match item.split_once(':') {
            Some((name, count)) => (name, Some(count)),
            None => (item, None),
        },
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
