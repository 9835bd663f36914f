//! What the processes below a rank did in all samples.

use std::{collections::BTreeMap, time::Duration};

use base::Rank;

use super::{Boundary, Sample, ThreadSet, Track};
use crate::{
    snapshot::Child,
    stack::{Frames, Seen},
};

/// What was seen of a process below a rank.
#[derive(Clone, Debug)]
pub struct ChildTrack {
    /// The name of its command.
    pub name: String,
    /// Who has started it.
    pub parent: i32,
    /// Its first thread; nothing of one that could not be seen in all samples.
    pub main: Option<Track>,
    /// Its other threads, without those that libraries keep for themselves.
    pub others: Vec<Track>,
    /// Whether threads have come or gone.
    pub threads: ThreadSet,
}

/// Of how many of the processes below a rank it is known what they did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Followed {
    /// Of each of them, in all samples.
    All,
    /// Some were not looked at, because there are too many, or not in all samples; or could not be seen.
    #[default]
    Some,
}

/// Follows each process below a rank that was there in all samples.
pub(super) fn follow(
    frames: &Frames,
    samples: &[Sample],
    rank: Rank,
    span: Duration,
    boundary: Boundary,
) -> BTreeMap<i32, ChildTrack> {
    let mut by_pid: BTreeMap<i32, Vec<&Child>> = BTreeMap::new();
    for sample in samples {
        for child in sample.snapshot.children.get(&rank).into_iter().flatten() {
            by_pid.entry(child.pid).or_default().push(child);
        }
    }
    let all = by_pid
        .into_iter()
        .filter(|(_, seen)| seen.len() == samples.len());
    let tracks = all.filter_map(|(pid, children)| {
        let last = children.last()?;
        let seen: Vec<Option<&Seen>> = children.iter().map(|child| Some(&child.seen)).collect();
        let track = super::follow(frames, &seen, span, boundary);
        // Samples in which it could not be seen may be those in which it went on.
        let seen_always = track.missing.iter().all(Option::is_none);
        let track = ChildTrack {
            name: last.name.clone(),
            parent: last.parent,
            main: track.main.filter(|_| seen_always),
            others: track.others,
            threads: track.threads,
        };
        Some((pid, track))
    });
    tracks.collect()
}

/// Whether every process that has stood below a rank in any look is among these, and was seen in all of them.
pub(super) fn followed(
    samples: &[Sample],
    rank: Rank,
    children: &BTreeMap<i32, ChildTrack>,
) -> Followed {
    let groups = samples
        .iter()
        .filter_map(|sample| sample.snapshot.peers.below(rank));
    let mut pids = groups.flat_map(|group| &group.pids);
    let is_seen = |pid| children.get(pid).is_some_and(|child| child.main.is_some());
    if pids.all(is_seen) && children.keys().all(is_seen) {
        Followed::All
    } else {
        Followed::Some
    }
}
