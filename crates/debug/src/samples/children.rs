//! What the descendants of a rank did in all samples.

use std::{collections::BTreeMap, time::Duration};

use base::Rank;

use super::{Boundary, Sample, ThreadSet, Track};
use crate::{
    snapshot::Child,
    stack::{Frames, Seen},
};

/// One descendant of a rank over all samples.
#[derive(Clone, Debug)]
pub struct ChildTrack {
    /// Name of the command.
    pub name: String,
    /// Pid of its parent in the last sample.
    pub parent: i32,
    /// The main thread. `None` if the process could not be read in every sample.
    pub main: Option<Track>,
    /// The other threads, except the helper threads of libraries.
    pub others: Vec<Track>,
    /// Whether threads started or exited between samples.
    pub threads: ThreadSet,
}

/// Whether all descendants of a rank were observed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Followed {
    /// Every descendant was read in every sample.
    All,
    /// Some were not sampled because there are too many, were not there in every sample, or could not be read.
    #[default]
    Some,
}

/// Follows each descendant of a rank that is in all samples.
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
        // The process may have made progress during the samples in which it could not be read.
        let seen_always = track.missing.iter().all(Option::is_none);
        let track = ChildTrack {
            name: last.name.to_string(),
            parent: last.parent,
            main: track.main.filter(|_| seen_always),
            others: track.others,
            threads: track.threads,
        };
        Some((pid, track))
    });
    tracks.collect()
}

/// Returns [`Followed::All`] if every process that was below a rank in any sample is in `children`, and was read in all
/// samples.
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
