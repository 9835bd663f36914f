//! The state of all ranks at one moment.

use std::collections::BTreeMap;

use base::Rank;
use serde::{Deserialize, Serialize};

use crate::{
    peers::Peers,
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
        if numbers.any(|(old, new)| old != new.index()) {
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
                let mut stacks = threads.iter().flat_map(|thread| &thread.stack.frames);
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
    /// Name of the command, at most 15 bytes.
    pub name: String,
    /// The threads of the process, or the reason why they are missing.
    pub seen: Seen,
}

/// Gives every frame of a snapshot a new id. A frame for which `number` returns `None` is removed from its stack.
fn renumber(snapshot: &mut Snapshot, mut number: impl FnMut(FrameId) -> Option<FrameId>) {
    let children = snapshot.children.values_mut().flatten();
    let children = children.map(|child| &mut child.seen);
    for seen in snapshot.procs.values_mut().chain(children) {
        let Seen::Threads(threads) = seen else {
            continue;
        };
        for Thread { stack, .. } in threads {
            stack.frames.retain_mut(|frame| match number(*frame) {
                Some(new) => {
                    *frame = new;
                    true
                }
                None => false,
            });
        }
    }
}
