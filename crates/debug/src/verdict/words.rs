//! The sentences of verdicts.

use std::{collections::BTreeMap, time::Duration};

use base::{Rank, RankSet};

use super::{
    Cite,
    below::{self, Below},
    roles::Role,
};
use crate::{
    samples::{Observation, Spot, Track},
    stack::Frames,
};

/// Places that are named one by one; more of them are counted.
pub(super) const PLACES: usize = 3;

/// Ranks that did the same at the same place.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) ranks: RankSet,
    pub(super) role: Role,
}

/// Puts ranks together that did the same at the same place, the largest group first.
pub(super) fn groups(
    frames: &Frames,
    all: &Observation,
    ranks: impl Iterator<Item = (Rank, Role)>,
) -> Vec<Group> {
    let mut groups: BTreeMap<(Role, Option<Spot>), RankSet> = BTreeMap::new();
    for (rank, role) in ranks {
        let main = all.ranks.get(&rank).and_then(|track| track.main.as_ref());
        let spot = main.and_then(|main| Some(main.seen.last()?.0.place(frames)));
        groups.entry((role, spot)).or_default().insert(rank);
    }
    let mut groups: Vec<Group> = groups
        .into_iter()
        .map(|((role, _), ranks)| Group { ranks, role })
        .collect();
    groups.sort_by_key(|group| (std::cmp::Reverse(group.ranks.len()), group.ranks.first()));
    groups
}

/// `ranks 0-2 wait in MPI_Allreduce (solver.c:88)`, and so on for each group.
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

/// `1 more place`, `2 more places`.
pub(super) fn more_places(count: usize) -> String {
    format!("{count} more place{}", if count == 1 { "" } else { "s" })
}

fn part(frames: &Frames, all: &Observation, group: &Group) -> String {
    let who = who(&group.ranks);
    let one = group.ranks.len() == 1;
    let is = if one { "is" } else { "are" };
    let main = group
        .ranks
        .first()
        .and_then(|rank| all.ranks.get(&rank)?.main.as_ref());
    let looks = format!("in {0} of {0} samples", all.looks);
    let Some(main) = main else {
        return match group.role {
            Role::Dead if one => format!("{who} has ended"),
            Role::Dead => format!("{who} have ended"),
            Role::Traced => format!("{who} {is} held by another debugger {looks}"),
            Role::Disk => format!("{who} {is} in disk wait {looks}"),
            _ => format!("{who} could not be looked at"),
        };
    };
    let at = place(frames, main);
    match group.role {
        Role::Stopped => format!("{who} {is} in {at}, stopped by a signal {looks}"),
        Role::Frozen => format!("{who} {is} in {at}, frozen by the control group {looks}"),
        Role::Traced => format!("{who} {is} in {at}, held by a debugger {looks}"),
        Role::Disk => format!("{who} {is} in {at}, in disk wait {looks}"),
        Role::Looping if one => format!("{who} runs in {at} {looks}"),
        Role::Looping => format!("{who} run in {at} {looks}"),
        Role::Alive | Role::Call => match (main.wait(), below::of_group(frames, all, group)) {
            (Some(_), Some(below)) if below.is_awaited() => {
                waits(frames, Who::Ranks(&group.ranks), main) + &below.said
            }
            (Some(wait), below) => {
                let caller = caller(frames, main);
                format!("{who} {is} in {}{caller}{}", wait.name, said(below))
            }
            (None, _) => format!("{who} {is} in {at}"),
        },
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

/// Whom a sentence speaks of.
#[derive(Clone, Copy, Debug)]
pub(super) enum Who<'a> {
    /// So many threads of a rank.
    Threads(usize),
    /// Ranks, at least one.
    Ranks(&'a RankSet),
}

/// `rank 3 waits in MPI_Recv (ring.c:20)`.
pub(super) fn waits(frames: &Frames, who: Who<'_>, track: &Track) -> String {
    let (who, verb) = match who {
        Who::Threads(1) => ("a thread".to_owned(), "waits"),
        Who::Threads(count) => (format!("{count} threads"), "wait"),
        Who::Ranks(ranks) if ranks.len() == 1 => (self::who(ranks), "waits"),
        Who::Ranks(ranks) => (self::who(ranks), "wait"),
    };
    match track.wait() {
        Some(wait) => {
            let caller = caller(frames, track);
            format!("{who} {verb} in {}{caller}", wait.name)
        }
        None => format!("{who} {verb} in {}", place(frames, track)),
    }
}

/// ` (solver.c:88)`: from where the user's code has called what a thread is in, where that is known.
pub(super) fn caller(frames: &Frames, track: &Track) -> String {
    let caller = track.seen.last().and_then(|(cut, _)| cut.cited(frames));
    let Some(caller) = caller.map(|caller| frames.get(caller)) else {
        return String::new();
    };
    match (&caller.source, &caller.function) {
        (Some(source), _) if source.line > 0 => format!(" ({source})"),
        (_, Some(function)) => format!(", called by {function}"),
        _ => String::new(),
    }
}

/// The innermost frame that the user has written, or what there is.
pub(super) fn place(frames: &Frames, track: &Track) -> String {
    let Some((cut, _)) = track.seen.last() else {
        return "an unknown place".to_owned();
    };
    match cut.cited(frames).or_else(|| cut.frames.last().copied()) {
        Some(frame) => frames.get(frame).to_string(),
        None => "an unknown place".to_owned(),
    }
}

/// Whether these groups are a single rank.
pub(super) fn is_one(groups: &[Group]) -> bool {
    matches!(groups, [group] if group.ranks.len() == 1)
}

/// `rank 3` or `ranks 0-2`.
pub(super) fn who(ranks: &RankSet) -> String {
    if ranks.len() == 1 {
        format!("rank {ranks}")
    } else {
        format!("ranks {ranks}")
    }
}

/// In whole seconds, downward.
pub(super) fn since(span: Duration) -> String {
    format!("for at least {} s", span.as_secs())
}

/// What a sentence about these groups is founded on: of those that it names also the processes below them.
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
                samples: (0..all.looks).collect(),
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

/// The looks at one thread, those that found the same together.
pub(super) fn of_track(ranks: &RankSet, track: &Track) -> Vec<Cite> {
    let mut cites: Vec<Cite> = Vec::new();
    for (look, (cut, activity)) in track.seen.iter().enumerate() {
        let same = cites
            .iter_mut()
            .find(|cite| cite.frames == cut.frames && cite.activity == Some(*activity));
        match same {
            Some(cite) => cite.samples.push(look),
            None => cites.push(Cite {
                ranks: ranks.clone(),
                processes: Vec::new(),
                samples: vec![look],
                frames: cut.frames.clone(),
                activity: Some(*activity),
            }),
        }
    }
    cites
}
