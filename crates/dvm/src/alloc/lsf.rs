//! Allocation of an LSF job, from the environment: `LSB_MCPU_HOSTS` has pairs of host and number, `LSB_HOSTS` repeats a host
//! for each slot.

use base::HostList;

use super::{
    Allocation, Collector, LocalNames, Problem, Slots, Text, error::AllocError, hosts::count,
};

/// Reads pairs of a host and its number of slots: `n1 8 n2 8`.
///
/// # Errors
///
/// [`AllocError`] with the name of the variable.
pub fn lsf_pairs(text: &Text<'_>, names: &LocalNames) -> Result<Allocation, AllocError> {
    let mut words = text.text.split_ascii_whitespace();
    let pairs = std::iter::from_fn(|| Some((words.next()?, words.next().unwrap_or_default())));
    collect(text, names, pairs.map(|(name, slots)| (name, Some(slots))))
}

/// Reads one host for each slot: `n1 n1 n2`.
///
/// # Errors
///
/// [`AllocError`] with the name of the variable.
pub fn lsf_hosts(text: &Text<'_>, names: &LocalNames) -> Result<Allocation, AllocError> {
    let words = text.text.split_ascii_whitespace();
    collect(text, names, words.map(|name| (name, None)))
}

fn collect<'a>(
    text: &Text<'_>,
    names: &LocalNames,
    mentions: impl Iterator<Item = (&'a str, Option<&'a str>)>,
) -> Result<Allocation, AllocError> {
    let mut collector = Collector::new(names);
    for (name, slots) in mentions {
        let at = |problem: Problem| problem.at(text.origin, None);
        let hosts = name.parse::<HostList>();
        let hosts = hosts.map_err(|error| at(Problem::HostList(error)))?;
        let slots = slots.map_or(Ok(1), count).map_err(at)?;
        for name in hosts.iter() {
            collector.add(name, Slots::Explicit(slots), None);
        }
        if collector.nodes.len() > base::MAX_HOSTS {
            return Err(at(Problem::TooManyNodes));
        }
    }
    if collector.nodes.is_empty() {
        return Err(Problem::Empty.at(text.origin, None));
    }
    let mut allocation = collector.finish();
    for node in &mut allocation.nodes {
        if let Slots::Explicit(slots) = node.slots {
            node.granted = Some(slots);
        }
    }
    Ok(allocation)
}
