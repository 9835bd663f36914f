//! The merged stacks of all ranks at one moment.

use std::{collections::BTreeMap, time::Duration};

use base::RankSet;
use serde::{Deserialize, Serialize};

use super::{
    Absent, Children, Detail,
    children::{self, ThreadOwner},
};
use crate::{
    known,
    samples::Boundary,
    snapshot::Snapshot,
    stack::{Activity, Frame, FrameId, Frames, Missing, Seen, Thread},
    tree::{self, Ending, Threads, Tree, Which},
};

/// The merged stacks of all ranks at one moment, with the threads and processes beside them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Merged {
    /// Time since the first sample.
    pub at: Duration,
    /// The stacks of the program's own threads.
    pub tree: Tree,
    /// Threads that are only counted, by description: helper threads of libraries, and exited threads.
    pub helpers: BTreeMap<String, Threads>,
    /// Descendants of ranks, by the name of their command.
    pub children: BTreeMap<String, Children>,
}

/// Description of exited threads. Only the first thread of a process is seen after its exit.
const ENDED: &str = "the first one, which has ended";

/// The part of the stacks that is shown, for some samples.
#[derive(Clone, Debug)]
pub struct Shown {
    detail: Detail,
    /// Maps each innermost frame of a running thread to the same frame without its line. A running thread is on another line
    /// in each sample, and on other lines than its neighbors. Frames of threads in a known wait function are absent.
    without_line: BTreeMap<FrameId, FrameId>,
}

impl Shown {
    /// Decides what to show of these snapshots, whose frames are in `frames`.
    #[must_use]
    pub fn of<'a>(
        detail: Detail,
        snapshots: impl Iterator<Item = &'a Snapshot>,
        frames: &mut Frames,
    ) -> Self {
        let mut without_line = BTreeMap::new();
        for seen in snapshots.flat_map(|it| it.procs.values()) {
            let Seen::Threads(threads) = seen else {
                continue;
            };
            for thread in threads {
                let Some(&inner) = thread.stack.frames.last() else {
                    continue;
                };
                let waits = || {
                    Boundary::Known
                        .cut(frames, &thread.stack.frames)
                        .wait
                        .is_some()
                };
                if thread.activity != Activity::Running
                    || without_line.contains_key(&inner)
                    || waits()
                {
                    continue;
                }
                let frame = Frame {
                    source: None,
                    ..frames.get(inner).clone()
                };
                without_line.insert(inner, frames.intern(frame));
            }
        }
        Self {
            detail,
            without_line,
        }
    }

    /// Merges one of the snapshots, and returns the missing ranks with it.
    #[must_use]
    pub fn merged(&self, frames: &Frames, snapshot: &Snapshot) -> (Merged, Vec<Absent>) {
        let owner = |thread: &Thread| self.owner(frames, thread);
        Merged::of(snapshot, owner, |thread| self.stack(frames, thread))
    }

    fn owner(&self, frames: &Frames, thread: &Thread) -> ThreadOwner {
        let stack = thread.stack.frames.iter().map(|&id| frames.get(id));
        match (self.detail, known::helper(&thread.name, stack)) {
            (Detail::Folded, Some(kind)) => ThreadOwner::Library(kind.to_owned()),
            _ => ThreadOwner::Program,
        }
    }

    fn stack(&self, frames: &Frames, thread: &Thread) -> Vec<FrameId> {
        if self.detail == Detail::Full {
            return thread.stack.frames.to_vec();
        }
        let mut stack = Boundary::Known.cut(frames, &thread.stack.frames).frames;
        if let Some(inner) = stack.last_mut()
            && thread.activity == Activity::Running
            && let Some(without_line) = self.without_line.get(inner)
        {
            *inner = *without_line;
        }
        stack
    }
}

impl Merged {
    /// Merges a snapshot, and returns the missing ranks with it. `owner` returns the owner of a thread, and is not called for
    /// the first thread of a process. `shown` returns the frames of a thread to show.
    fn of(
        snapshot: &Snapshot,
        mut owner: impl FnMut(&Thread) -> ThreadOwner,
        mut shown: impl FnMut(&Thread) -> Vec<FrameId>,
    ) -> (Self, Vec<Absent>) {
        let mut sample = Self::default();
        let mut missing = BTreeMap::<Missing, RankSet>::new();
        for (&rank, seen) in &snapshot.procs {
            let threads = match seen {
                Seen::Threads(threads) => threads,
                Seen::Missing(why) => {
                    missing.entry(why.clone()).or_default().insert(rank);
                    continue;
                }
            };
            let ended = |thread: &&Thread| thread.activity == Activity::Ended;
            for _ in threads.iter().filter(ended) {
                let ended = sample.helpers.entry(ENDED.to_owned());
                ended.or_default().insert(rank);
            }
            let living = threads.iter().filter(|thread| !ended(thread));
            for (index, thread) in living.enumerate() {
                if index > 0
                    && let ThreadOwner::Library(kind) = owner(thread)
                {
                    sample.helpers.entry(kind).or_default().insert(rank);
                    continue;
                }
                let ending = Ending {
                    thread: Which::nth(index),
                    activity: thread.activity,
                    end: thread.stack.end.clone(),
                };
                sample.tree.insert(&shown(thread), ending, rank);
            }
        }
        sample.children = children::of(&snapshot.children, owner, shown);
        let missing = missing.into_iter();
        let missing = missing.map(|(why, ranks)| Absent { ranks, why }).collect();
        (sample, missing)
    }

    /// Returns every rank that was seen.
    pub(crate) fn ranks(&self) -> RankSet {
        let all = self.threads().into_iter();
        tree::union(all.map(Threads::ranks).collect())
    }

    /// Returns every set of threads of ranks, including those without stacks.
    pub(crate) fn threads(&self) -> Vec<&Threads> {
        let shown = self.tree.threads();
        shown.chain(self.helpers.values()).collect()
    }

    /// Adds other ranks. `translation` maps their frame ids to ours ([`Frames::absorb`]).
    pub fn merge(&mut self, other: &Self, translation: &[FrameId]) {
        self.tree.merge(&other.tree, translation);
        for (kind, threads) in &other.helpers {
            self.helpers.entry(kind.clone()).or_default().merge(threads);
        }
        for (name, children) in &other.children {
            let own = self.children.entry(name.clone()).or_default();
            own.merge(children, translation);
        }
    }
}
