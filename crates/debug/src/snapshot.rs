//! What was seen of all ranks at one moment.

use std::collections::BTreeMap;

use base::Rank;
use serde::{Deserialize, Serialize};

use crate::{
    peers::Peers,
    stack::{FrameId, Frames, Seen, Thread},
};

/// All ranks at one moment, as far as they could be seen.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Snapshot {
    /// What each rank of the target gave.
    pub procs: BTreeMap<Rank, Seen>,
    /// Who else was there; nobody in a snapshot that stands alone, for it takes two to tell who works.
    #[serde(default, rename = "company")]
    pub peers: Peers,
    /// What each rank has started, and what that has: in the order of their numbers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub children: BTreeMap<Rank, Vec<Child>>,
}

impl Snapshot {
    /// What was seen of each process: of ranks, and of processes below them.
    pub fn all_seen(&self) -> impl Iterator<Item = &Seen> {
        let children = self.children.values().flatten();
        self.procs.values().chain(children.map(|child| &child.seen))
    }

    /// Returns true if the snapshot has neither ranks nor other processes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.procs.is_empty() && self.peers.0.is_empty() && self.children.is_empty()
    }

    /// The snapshot, with its frames in another table than their own.
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

    /// Gives the frames of this snapshot, which are in a larger table, a table of their own.
    pub(crate) fn cut(&mut self, frames: &Frames) -> Frames {
        let mut own = Frames::new();
        let mut known: Vec<Option<FrameId>> = vec![None; frames.len()];
        renumber(self, |frame| {
            let new = known.get_mut(frame.index())?;
            Some(*new.get_or_insert_with(|| own.adopt(frames, frame)))
        });
        own
    }

    /// Whether every frame that a stack means is in this table.
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

/// A process below a rank.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Child {
    /// Its number.
    pub pid: i32,
    /// Who has started it: the rank, or another one below it.
    pub parent: i32,
    /// The name of its command, at most 15 bytes.
    pub name: String,
    /// What was seen of it.
    pub seen: Seen,
}

/// Gives every frame of a snapshot a new number; one without leaves its stack.
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
