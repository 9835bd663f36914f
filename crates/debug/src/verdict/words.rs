//! The phrases of verdict sentences: who waits, where, and in which call.

use std::{collections::BTreeMap, time::Duration};

use base::{Rank, RankSet};

use super::{Cite, roles::Role};
use crate::{
    samples::{Location, Observation, Track},
    stack::Frames,
};

/// Maximum number of places to name. Further places are counted.
pub(super) const PLACES: usize = 3;

/// Ranks that did the same at the same place.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) ranks: RankSet,
    pub(super) role: Role,
}

/// Groups ranks that did the same at the same place, the largest group first.
pub(super) fn groups(
    frames: &Frames,
    all: &Observation,
    ranks: impl Iterator<Item = (Rank, Role)>,
) -> Vec<Group> {
    let mut groups: BTreeMap<(Role, Option<Location>), RankSet> = BTreeMap::new();
    for (rank, role) in ranks {
        let main = all.ranks.get(&rank).and_then(|track| track.main.as_ref());
        let location = main.and_then(|main| Some(main.seen.last()?.0.place(frames)));
        groups.entry((role, location)).or_default().insert(rank);
    }
    let mut groups: Vec<Group> = groups
        .into_iter()
        .map(|((role, _), ranks)| Group { ranks, role })
        .collect();
    groups.sort_by_key(|group| (std::cmp::Reverse(group.ranks.len()), group.ranks.first()));
    groups
}

/// Returns `1 more place`, `2 more places`.
pub(super) fn more_places(count: usize) -> String {
    format!("{count} more place{}", if count == 1 { "" } else { "s" })
}

/// The subject of a sentence.
#[derive(Clone, Copy, Debug)]
pub(super) enum Who<'a> {
    /// This number of threads of a rank.
    Threads(usize),
    /// These ranks, at least one.
    Ranks(&'a RankSet),
}

/// Returns `rank 3 waits in MPI_Recv (ring.c:20)`.
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

/// Returns ` (solver.c:88)`, the line of the user's code that called the wait function. Without a line it returns the caller,
/// as in `, called by main`. If the caller is unknown too, the result is empty.
pub(super) fn caller(frames: &Frames, track: &Track) -> String {
    let caller = track
        .seen
        .last()
        .and_then(|(cut, _)| cut.cited_frame(frames));
    let Some(caller) = caller.map(|caller| frames.get(caller)) else {
        return String::new();
    };
    match (&caller.source, &caller.function) {
        (Some(source), _) if source.line > 0 => format!(" ({source})"),
        (_, Some(function)) => format!(", called by {function}"),
        _ => String::new(),
    }
}

/// Returns the innermost frame of the user's code, or else the innermost frame.
pub(super) fn place(frames: &Frames, track: &Track) -> String {
    let Some((cut, _)) = track.seen.last() else {
        return "an unknown place".to_owned();
    };
    match cut
        .cited_frame(frames)
        .or_else(|| cut.frames.last().copied())
    {
        Some(frame) => frames.get(frame).to_string(),
        None => "an unknown place".to_owned(),
    }
}

/// Returns true if these groups are a single rank.
pub(super) fn is_one(groups: &[Group]) -> bool {
    matches!(groups, [group] if group.ranks.len() == 1)
}

/// Returns `rank 3` or `ranks 0-2`.
pub(super) fn who(ranks: &RankSet) -> String {
    if ranks.len() == 1 {
        format!("rank {ranks}")
    } else {
        format!("ranks {ranks}")
    }
}

/// Returns a phrase with the time in whole seconds, rounded down.
pub(super) fn since(span: Duration) -> String {
    format!("for at least {} s", span.as_secs())
}

/// Returns the evidence of one thread. Samples with the same stack and activity share a [`Cite`].
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
