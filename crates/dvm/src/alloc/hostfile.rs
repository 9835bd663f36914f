//! Host files, in the syntaxes of other launchers.
//!
//! ```text
//! n01 slots=4 max_slots=8      Open MPI
//! n02:4                        MPICH; what follows (`binding=`) is for its own binding and is left out
//! n[03-08] slots=2             Slurm's lists, in either syntax
//! n09                          slots not counted, or one slot per line if the name comes again
//! +n0 slots=2                  relative names, within an allocation
//! # comments, and blank lines
//! ```

use base::HostList;

use super::{
    Allocation, Base, Collector, LocalNames, Problem, Slots,
    error::AllocError,
    hosts::{count, host_and_slots},
    relative::Who,
};

/// Maximum size of a host file, in bytes.
pub const MAX_HOSTFILE: usize = 64 << 20;

/// Content of one line.
struct Line {
    who: Who,
    slots: Slots,
    max_slots: Option<u32>,
}

/// Reads a host file. `origin` is the file's name for messages. Relative names (`+n1`) refer to the nodes of `base`.
///
/// # Errors
///
/// [`AllocError`] with the number of the line.
pub fn hostfile(
    text: &str,
    origin: &str,
    names: &LocalNames,
    base: Base<'_>,
) -> Result<Allocation, AllocError> {
    let mut collector = Collector::new(names);
    each_line(text, origin, |line| {
        let listed = line.who.names(base, Some(&collector))?;
        for name in listed.iter() {
            collector.add(name, line.slots, line.max_slots);
        }
        if collector.nodes.len() > base::MAX_HOSTS {
            Err(Problem::TooManyNodes)
        } else {
            Ok(())
        }
    })?;
    Ok(collector.finish())
}

/// Reads a host file as a sequence for `--map-by seq`: one name per proc, in the order of the lines. A number of slots
/// repeats the name that many times.
///
/// # Errors
///
/// [`AllocError`] with the number of the line.
pub fn sequence(
    text: &str,
    origin: &str,
    names: &LocalNames,
    base: Base<'_>,
) -> Result<HostList, AllocError> {
    let mut list = HostList::new();
    each_line(text, origin, |line| {
        let times = match line.slots {
            Slots::Implicit => 1,
            Slots::Explicit(count) => count,
        };
        for name in line.who.names(base, None)?.iter() {
            for _ in 0..times {
                if list.len() >= base::MAX_HOSTS {
                    return Err(Problem::TooManyNodes);
                }
                list.push(names.canonical(name));
            }
        }
        Ok(())
    })?;
    Ok(list)
}

fn each_line(
    text: &str,
    origin: &str,
    mut each: impl FnMut(Line) -> Result<(), Problem>,
) -> Result<(), AllocError> {
    if text.len() > MAX_HOSTFILE {
        return Err(Problem::TooLong { length: text.len() }.at(origin, None));
    }
    let mut lines = 0_u32;
    for (number, line) in (1_u32..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        lines += 1;
        read(line)
            .and_then(&mut each)
            .map_err(|problem| problem.at(origin, Some(number)))?;
    }
    if lines == 0 {
        Err(Problem::Empty.at(origin, None))
    } else {
        Ok(())
    }
}

const KEYS: [&str; 6] = [
    "slots",
    "max_slots",
    "max-slots",
    "binding",
    "user",
    "ifname",
];

fn read(line: &str) -> Result<Line, Problem> {
    let mut words = line.split_ascii_whitespace();
    let (who, slots) = host_and_slots(words.next().unwrap_or_default())?;
    let mut line = Line {
        who,
        slots,
        max_slots: None,
    };
    // Files with spaces around the sign occur too: `slots = 4`.
    let rest = words
        .collect::<Vec<_>>()
        .join(" ")
        .replace(" =", "=")
        .replace("= ", "=");
    for word in rest.split(' ').filter(|word| !word.is_empty()) {
        let Some((key, value)) = word.split_once('=') else {
            return Err(Problem::NotKeyValue {
                word: word.to_owned(),
            });
        };
        match key {
            "slots" if line.slots != Slots::Implicit => {
                return Err(Problem::Twice { key: "slots" });
            }
            "slots" => line.slots = Slots::Explicit(count(value)?),
            "max_slots" | "max-slots" if line.max_slots.is_some() => {
                return Err(Problem::Twice { key: "max_slots" });
            }
            "max_slots" | "max-slots" => line.max_slots = Some(count(value)?),
            // Options of other launchers for this node. They have no effect here.
            "binding" | "user" | "ifname" => {}
            _ => {
                return Err(Problem::UnknownKey {
                    key: key.to_owned(),
                    nearest: message::nearest(key, KEYS.into_iter()),
                });
            }
        }
    }
    match (line.slots, line.max_slots) {
        (Slots::Explicit(slots), Some(max)) if max < slots => {
            Err(Problem::MaxBelowSlots { max, slots })
        }
        _ => Ok(line),
    }
}
