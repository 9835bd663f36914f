//! The state of all ranks at one moment.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use base::{Rank, RankSet};
use serde::{Deserialize, Serialize};

use crate::{
    call_site::CallSite,
    peers::Peers,
    planted::{self, Bug},
    recorded::RankCalls,
    stack::{FrameId, Frames, Seen, Thread},
};

/// All ranks at one moment, as far as they could be read.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Snapshot {
    /// The threads of each rank of the target, or the reason why they are missing.
    pub procs: BTreeMap<Rank, Seen>,
    /// The peers of the ranks. Empty if only one sample is taken: it takes two to see which processes use CPU time.
    #[serde(default, rename = "company")]
    pub peers: Peers,
    /// The descendants of each rank, by ascending pid.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub children: BTreeMap<Rank, Vec<Child>>,
    /// The recorded calls of MPI of ranks that have a recorder.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub calls: BTreeMap<Rank, RankCalls>,
    /// Ranks whose recorded calls cannot be read: something has overwritten, cut or replaced them.
    #[serde(default, skip_serializing_if = "RankSet::is_empty")]
    pub unreadable: RankSet,
    /// The calls of MPI of ranks without a recorder, as far as the code tells.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub call_sites: BTreeMap<Rank, CallSite>,
}

impl Snapshot {
    /// Iterates over the results for all processes: the ranks, then their descendants.
    pub fn all_seen(&self) -> impl Iterator<Item = &Seen> {
        let children = self.children.values().flatten();
        self.procs.values().chain(children.map(|child| &child.seen))
    }

    /// Returns true if the snapshot has neither ranks nor other processes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.procs.is_empty() && self.peers.0.is_empty() && self.children.is_empty()
    }

    /// Returns the snapshot with its frames moved from its own table `own` to the table `frames`.
    #[must_use]
    pub fn with_frames_in(mut self, own: Frames, frames: &mut Frames) -> Self {
        if frames.is_empty() {
            *frames = own;
            return self;
        }
        let translation = frames.absorb(&own);
        let mut numbers = translation.iter().enumerate();
        let is_other = numbers.any(|(old, new)| old != new.index());
        if is_other && !planted::is(Bug::SampleNotTranslated) {
            renumber(&mut self, |frame| translation.get(frame.index()).copied());
        }
        self
    }

    /// Moves the frames of this snapshot from a larger table to a new one, which has only these frames, and returns the new
    /// table.
    pub(crate) fn cut(&mut self, frames: &Frames) -> Frames {
        let mut own = Frames::new();
        let mut known: Vec<Option<FrameId>> = vec![None; frames.len()];
        renumber(self, |frame| {
            let new = known.get_mut(frame.index())?;
            Some(*new.get_or_insert_with(|| own.adopt(frames, frame)))
        });
        own
    }

    /// Returns true if the table has every frame of every stack.
    #[must_use]
    pub fn is_within(&self, frames: &Frames) -> bool {
        self.all_seen().all(|seen| match seen {
            Seen::Threads(threads) => {
                let mut stacks = threads.iter().flat_map(|thread| &*thread.stack.frames);
                stacks.all(|id| id.index() < frames.len())
            }
            Seen::Missing(_) => true,
        })
    }
}

/// A descendant of a rank.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Child {
    /// Pid of the process.
    pub pid: i32,
    /// Pid of its parent: the rank, or another descendant of it.
    pub parent: i32,
    /// Name of the command, at most 15 bytes. Processes with the same name share it.
    pub name: Arc<str>,
    /// The threads of the process, or the reason why they are missing.
    pub seen: Seen,
}

/// Gives every frame of a snapshot a new id. A frame for which `number` returns `None` is removed from its stack. Afterwards,
/// equal stacks and equal names share memory.
fn renumber(snapshot: &mut Snapshot, mut number: impl FnMut(FrameId) -> Option<FrameId>) {
    let mut stacks: BTreeMap<Arc<[FrameId]>, Arc<[FrameId]>> = BTreeMap::new();
    let mut names: BTreeSet<Arc<str>> = BTreeSet::new();
    let mut share = |name: &mut Arc<str>| match names.get(name) {
        Some(known) => *name = Arc::clone(known),
        None => {
            names.insert(Arc::clone(name));
        }
    };
    let mut seen: Vec<&mut Seen> = snapshot.procs.values_mut().collect();
    for child in snapshot.children.values_mut().flatten() {
        share(&mut child.name);
        seen.push(&mut child.seen);
    }
    for seen in seen {
        let Seen::Threads(threads) = seen else {
            continue;
        };
        for Thread { stack, name, .. } in threads {
            share(name);
            if let Some(new) = stacks.get(&stack.frames) {
                stack.frames = Arc::clone(new);
                continue;
            }
            let new = stack.frames.iter().filter_map(|frame| number(*frame));
            let new: Arc<[FrameId]> = new.collect();
            let old = std::mem::replace(&mut stack.frames, Arc::clone(&new));
            stacks.insert(old, new);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        proto::Answers,
        reply::{Partial, PartialSample},
        stack::{Activity, End, Frame, FrameKind, Stack},
        wire,
    };

    fn frame(name: &str) -> Frame {
        Frame {
            function: Some(name.into()),
            module: None,
            source: None,
            kind: FrameKind::Native,
        }
    }

    /// Returns ranks with two threads each and a child, whose stacks are equal.
    fn alike(frames: &[FrameId]) -> Snapshot {
        let thread = |tid| Thread {
            tid,
            name: "solver".into(),
            stack: Stack {
                frames: frames.into(),
                end: End::Start,
            },
            activity: Activity::Running,
            cpu: std::time::Duration::ZERO,
            stopped: std::time::Duration::ZERO,
        };
        let mut snapshot = Snapshot::default();
        for rank in (0..3).map(Rank) {
            let threads = vec![thread(1), thread(2)];
            snapshot.procs.insert(rank, Seen::Threads(threads.clone()));
            let child = Child {
                pid: 7,
                parent: 1,
                name: "solver".into(),
                seen: Seen::Threads(threads),
            };
            snapshot.children.insert(rank, vec![child]);
        }
        snapshot
    }

    /// Returns how many different lists of frames, and how many names, are in memory.
    fn lists_and_names(snapshot: &Snapshot) -> (usize, usize) {
        let threads = snapshot.all_seen().flat_map(|seen| match seen {
            Seen::Threads(threads) => threads.as_slice(),
            Seen::Missing(_) => &[],
        });
        let threads: Vec<&Thread> = threads.collect();
        let children = snapshot.children.values().flatten();
        let children = children.map(|child| child.name.as_ptr());
        let names = threads.iter().map(|it| it.name.as_ptr()).chain(children);
        let names: BTreeSet<*const u8> = names.collect();
        let lists = threads.iter().map(|it| it.stack.frames.as_ptr());
        let lists: BTreeSet<*const FrameId> = lists.collect();
        (lists.len(), names.len())
    }

    #[test]
    fn equal_stacks_and_names_are_in_memory_once() {
        let mut frames = Frames::new();
        let stack = ["unused", "main", "wait"].map(|name| frames.intern(frame(name)));
        let snapshot = alike(&stack[1..]);
        assert_eq!(lists_and_names(&snapshot), (6, 9));
        // At the agent that took them.
        let part = PartialSample::cut(&frames, snapshot);
        assert_eq!(lists_and_names(&part.snapshot), (1, 1));
        // In the process that decodes them.
        let part = Some(Partial::Sample(part));
        let refused = BTreeSet::new();
        let bytes = wire::encode(&Answers { part, refused }).unwrap();
        let Answers { part, .. } = wire::decode(&bytes).unwrap();
        let Some(Partial::Sample(part)) = part else {
            panic!("{part:?}");
        };
        assert_eq!(lists_and_names(&part.snapshot), (1, 1));
        // In a recording, whose table has other ids.
        let snapshot = part.snapshot.with_frames_in(part.frames, &mut frames);
        assert_eq!(lists_and_names(&snapshot), (1, 1));
        let Seen::Threads(threads) = &snapshot.procs[&Rank(2)] else {
            panic!("{snapshot:?}");
        };
        assert_eq!(*threads[1].stack.frames, stack[1..]);
    }
}
