//! Later searches for a job that is already known, as a watch makes them.
//!
//! A node that does not answer once says nothing about the processes that are known on it. A process that was found before and is not
//! found now has exited, or its node did not answer: who samples it learns which.

use std::collections::BTreeSet;

use base::HostList;

use super::{Doubt, NotFound, Proc, Target, Whereabouts, search::found::numbering};

/// Returns the target after a later search, given the one before it.
///
/// # Errors
/// All nodes that may have ranks of the job have answered, and it is not found any more.
pub fn later(found: Result<Target, NotFound>, earlier: &Target) -> Result<Target, NotFound> {
    let silent = silent(&found);
    let is_silent = |proc: &Proc| proc.host().is_some_and(|host| silent.contains(host));
    let may_be_there = |proc: &Proc| {
        is_silent(proc) || (proc.place == Whereabouts::NotFound && !silent.is_empty())
    };
    match found {
        // A node that was never reached and need not have a rank does not keep a watch alive.
        Err(_) if earlier.procs.values().any(may_be_there) => Ok(earlier.clone()),
        Err(why) => Err(why),
        Ok(target) if numbering(&target.how) != numbering(&earlier.how) => Ok(target),
        Ok(mut target) if numbering(&target.how).is_some() => {
            for (&rank, proc) in &earlier.procs {
                if proc.place == Whereabouts::NotFound {
                    continue;
                }
                match target.procs.get_mut(&rank) {
                    Some(new) if new.place == Whereabouts::NotFound => new.clone_from(proc),
                    None if is_silent(proc) => drop(target.procs.insert(rank, proc.clone())),
                    Some(_) | None => {}
                }
            }
            Ok(target)
        }
        // Our own numbers would shift.
        Ok(_) if earlier.procs.values().any(is_silent) => Ok(earlier.clone()),
        Ok(target) => Ok(target),
    }
}

/// Returns the nodes that a search did not reach.
fn silent(found: &Result<Target, NotFound>) -> BTreeSet<String> {
    let doubts = match found {
        Ok(target) => &target.doubts,
        Err(NotFound::Nodes { doubts, .. }) => doubts,
        Err(_) => return BTreeSet::new(),
    };
    let nodes = doubts.iter().filter_map(|doubt| match doubt {
        Doubt::NotSearched { nodes, .. } => Some(nodes),
        _ => None,
    });
    nodes.flat_map(HostList::iter).map(str::to_owned).collect()
}
