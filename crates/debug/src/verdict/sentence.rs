//! The sentences of verdicts.

use base::RankSet;

use super::{
    Cite,
    below::{self, Below},
    roles::Role,
    words::{Group, PLACES, Who, caller, more_places, of_track, place, waits, who},
};
use crate::{samples::Observation, stack::Frames};

/// Describes each group: `ranks 0-2 wait in MPI_Allreduce (solver.c:88)`. Groups beyond [`PLACES`] are only counted.
pub(super) fn sentence(frames: &Frames, all: &Observation, groups: &[Group]) -> String {
    let mut parts: Vec<String> = groups
        .iter()
        .take(PLACES)
        .map(|group| part(frames, all, group))
        .collect();
    let rest = groups.get(PLACES..).unwrap_or_default();
    if !rest.is_empty() {
        let ranks = rest
            .iter()
            .fold(RankSet::new(), |all, group| all.union(&group.ranks));
        parts.push(format!("{} at {}", who(&ranks), more_places(rest.len())));
    }
    parts.join("; ")
}

fn part(frames: &Frames, all: &Observation, group: &Group) -> String {
    let who = who(&group.ranks);
    let one = group.ranks.len() == 1;
    let is = if one { "is" } else { "are" };
    let main = group
        .ranks
        .first()
        .and_then(|rank| all.ranks.get(&rank)?.main.as_ref());
    let samples = format!("in {0} of {0} samples", all.samples);
    let Some(main) = main else {
        return match group.role {
            Role::Dead if one => format!("{who} has ended"),
            Role::Dead => format!("{who} have ended"),
            Role::Traced => format!("{who} {is} held by another debugger {samples}"),
            Role::Disk => format!("{who} {is} in disk wait {samples}"),
            _ => format!("{who} could not be looked at"),
        };
    };
    let at = place(frames, main);
    match group.role {
        Role::Stopped => format!("{who} {is} in {at}, stopped by a signal {samples}"),
        Role::Frozen => format!("{who} {is} in {at}, frozen by the control group {samples}"),
        Role::Traced => format!("{who} {is} in {at}, held by a debugger {samples}"),
        Role::Disk => format!("{who} {is} in {at}, in disk wait {samples}"),
        Role::Unseen => format!("{who} could not be looked at in all samples"),
        Role::Looping if one => format!("{who} runs in {at} {samples}"),
        Role::Looping => format!("{who} run in {at} {samples}"),
        Role::Alive | Role::UnknownMpi => {
            match (main.wait(), below::of_group(frames, all, group)) {
                (Some(_), Some(below)) if below.is_awaited() => {
                    waits(frames, Who::Ranks(&group.ranks), main) + &below.said
                }
                (Some(wait), below) => {
                    let caller = caller(frames, main);
                    format!("{who} {is} in {}{caller}{}", wait.name, said(below))
                }
                (None, _) => format!("{who} {is} in {at}"),
            }
        }
        _ => {
            let below = below::of_group(frames, all, group);
            waits(frames, Who::Ranks(&group.ranks), main) + &said(below)
        }
    }
}

fn said(below: Option<Below>) -> String {
    match below {
        Some(below) => below.said,
        None => String::new(),
    }
}

/// Returns the evidence for a sentence about these groups, including the descendants that the sentence mentions.
pub(super) fn cites(frames: &Frames, all: &Observation, groups: &[Group]) -> Vec<Cite> {
    let mut cites = Vec::new();
    for (at, group) in groups.iter().enumerate() {
        let main = group
            .ranks
            .first()
            .and_then(|rank| all.ranks.get(&rank)?.main.as_ref());
        match main {
            Some(main) => cites.extend(of_track(&group.ranks, main)),
            None => cites.push(Cite {
                ranks: group.ranks.clone(),
                processes: Vec::new(),
                samples: (0..all.samples).collect(),
                frames: Vec::new(),
                activity: None,
            }),
        }
        if at < PLACES {
            let below = below::of_group(frames, all, group).into_iter();
            cites.extend(below.flat_map(|below| below.cites(all)));
        }
    }
    cites
}
