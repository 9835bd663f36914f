//! The encoding of partial answers, and the checks on those that arrive.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use base::{Rank, RankSet};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{PartialSample, PartialStacks};
use crate::{
    call_site::CallSite,
    peers::Peers,
    recorded::RankCalls,
    report::Merged,
    snapshot::{Child, Snapshot},
    stack::{Activity, Frame, Frames, Missing, Seen, Stack, Thread},
    tree::Tree,
};

/// Maximum number of frames in one table.
pub const MAX_FRAMES: usize = 1 << 20;
/// Maximum length in bytes of the name of a function, file or module.
pub const MAX_NAME: usize = 64 << 10;
/// Maximum number of frames of all threads of a sample, with the bytes of their names.
pub const MAX_COPIES: usize = 1 << 26;

/// The reason why bytes are not a valid answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Malformed {
    /// More frames than [`MAX_FRAMES`].
    #[error("a table has more than {MAX_FRAMES} frames")]
    Frames,
    /// A name longer than [`MAX_NAME`].
    #[error("a name has more than {MAX_NAME} bytes")]
    Name,
    /// A duplicate frame in the table, which would shift the ids of the frames after it.
    #[error("a table has the same frame twice")]
    Twice,
    /// A stack with a frame, or a thread with a stack or a name, that is not in the table.
    #[error("a stack has a frame, or a thread a stack or a name, that no table has")]
    Unknown,
    /// Threads refer to so long stacks and names so often that it takes too long to go through all of them: [`MAX_COPIES`].
    #[error("the threads of a sample have more than {MAX_COPIES} frames")]
    Copies,
}

fn table(list: Vec<Frame>) -> Result<Frames, Malformed> {
    if list.len() > MAX_FRAMES {
        return Err(Malformed::Frames);
    }
    let is_long = |name: Option<&str>| name.is_some_and(|name| name.len() > MAX_NAME);
    let too_long = |frame: &Frame| {
        let file = frame.source.as_ref().map(|source| &*source.file);
        is_long(frame.function.as_deref()) || is_long(frame.module.as_deref()) || is_long(file)
    };
    if list.iter().any(too_long) {
        return Err(Malformed::Name);
    }
    let number = list.len();
    let frames = Frames::from(list);
    if frames.len() < number {
        return Err(Malformed::Twice);
    }
    Ok(frames)
}

/// The fields of a [`PartialSample`]. All of them are always encoded, whereas the text form of a snapshot omits empty fields.
///
/// Most threads of a job are at the same place. So each stack and each name is there once, and a thread costs a few bytes.
#[derive(Serialize, Deserialize)]
pub(super) struct WireSample {
    frames: Vec<Frame>,
    stacks: Vec<Stack>,
    names: Vec<Arc<str>>,
    procs: BTreeMap<Rank, WireSeen>,
    children: BTreeMap<Rank, Vec<WireChild>>,
    calls: BTreeMap<Rank, RankCalls>,
    unreadable: RankSet,
    call_sites: BTreeMap<Rank, CallSite>,
    peers: Peers,
}

#[derive(Serialize, Deserialize)]
enum WireSeen {
    Threads(Vec<WireThread>),
    Missing(Missing),
}

/// A thread, with the indexes of its name and its stack.
#[derive(Serialize, Deserialize)]
struct WireThread {
    tid: i32,
    name: u32,
    stack: u32,
    activity: Activity,
    cpu: Duration,
    stopped: Duration,
}

#[derive(Serialize, Deserialize)]
struct WireChild {
    pid: i32,
    parent: i32,
    name: u32,
    seen: WireSeen,
}

/// A table in which each value is once, while it is made.
struct Unique<T>(BTreeMap<T, u32>);

impl<T: Ord> Unique<T> {
    const fn new() -> Self {
        Self(BTreeMap::new())
    }

    fn index(&mut self, value: T) -> u32 {
        let next = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        *self.0.entry(value).or_insert(next)
    }

    fn list(self) -> Vec<T> {
        let mut list: Vec<(T, u32)> = self.0.into_iter().collect();
        list.sort_by_key(|(_, index)| *index);
        list.into_iter().map(|(value, _)| value).collect()
    }
}

struct Packer {
    stacks: Unique<Stack>,
    names: Unique<Arc<str>>,
}

impl Packer {
    fn seen(&mut self, seen: Seen) -> WireSeen {
        let thread = |thread: Thread| WireThread {
            tid: thread.tid,
            name: self.names.index(thread.name),
            stack: self.stacks.index(thread.stack),
            activity: thread.activity,
            cpu: thread.cpu,
            stopped: thread.stopped,
        };
        match seen {
            Seen::Threads(threads) => WireSeen::Threads(threads.into_iter().map(thread).collect()),
            Seen::Missing(why) => WireSeen::Missing(why),
        }
    }

    fn child(&mut self, child: Child) -> WireChild {
        WireChild {
            pid: child.pid,
            parent: child.parent,
            name: self.names.index(child.name),
            seen: self.seen(child.seen),
        }
    }
}

struct Unpacker {
    stacks: Vec<Stack>,
    names: Vec<Arc<str>>,
    /// Number of bytes and frames that further threads may have. Threads share them in memory, but each thread is read.
    room: usize,
}

impl Unpacker {
    fn name(&mut self, index: u32) -> Result<Arc<str>, Malformed> {
        let name = self.names.get(index as usize).ok_or(Malformed::Unknown)?;
        let left = self.room.checked_sub(name.len());
        self.room = left.ok_or(Malformed::Copies)?;
        Ok(Arc::clone(name))
    }

    fn seen(&mut self, seen: WireSeen) -> Result<Seen, Malformed> {
        let threads = match seen {
            WireSeen::Threads(threads) => threads,
            WireSeen::Missing(why) => return Ok(Seen::Missing(why)),
        };
        let thread = |thread: WireThread| {
            let name = self.name(thread.name)?;
            let stack = self.stacks.get(thread.stack as usize);
            let stack = stack.ok_or(Malformed::Unknown)?;
            let left = self.room.checked_sub(stack.frames.len());
            self.room = left.ok_or(Malformed::Copies)?;
            Ok(Thread {
                tid: thread.tid,
                name,
                stack: stack.clone(),
                activity: thread.activity,
                cpu: thread.cpu,
                stopped: thread.stopped,
            })
        };
        let threads: Result<_, _> = threads.into_iter().map(thread).collect();
        Ok(Seen::Threads(threads?))
    }

    fn child(&mut self, child: WireChild) -> Result<Child, Malformed> {
        Ok(Child {
            pid: child.pid,
            parent: child.parent,
            name: self.name(child.name)?,
            seen: self.seen(child.seen)?,
        })
    }
}

impl From<PartialSample> for WireSample {
    fn from(part: PartialSample) -> Self {
        let Snapshot {
            procs,
            peers,
            children,
            calls,
            unreadable,
            call_sites,
        } = part.snapshot;
        let mut packer = Packer {
            stacks: Unique::new(),
            names: Unique::new(),
        };
        let procs = procs.into_iter();
        let procs = procs.map(|(rank, seen)| (rank, packer.seen(seen)));
        let procs = procs.collect();
        let children = children.into_iter();
        let children = children.map(|(rank, children)| {
            let children = children.into_iter().map(|child| packer.child(child));
            (rank, children.collect())
        });
        let children = children.collect();
        Self {
            frames: part.frames.into(),
            stacks: packer.stacks.list(),
            names: packer.names.list(),
            procs,
            children,
            calls,
            unreadable,
            call_sites,
            peers,
        }
    }
}

impl TryFrom<WireSample> for PartialSample {
    type Error = Malformed;

    fn try_from(wire: WireSample) -> Result<Self, Malformed> {
        let mut unpacker = Unpacker {
            stacks: wire.stacks,
            names: wire.names,
            room: MAX_COPIES,
        };
        let mut procs = BTreeMap::new();
        for (rank, seen) in wire.procs {
            procs.insert(rank, unpacker.seen(seen)?);
        }
        let mut all_children = BTreeMap::new();
        for (rank, children) in wire.children {
            let children = children.into_iter().map(|child| unpacker.child(child));
            let children: Result<Vec<Child>, Malformed> = children.collect();
            all_children.insert(rank, children?);
        }
        let part = Self {
            frames: table(wire.frames)?,
            snapshot: Snapshot {
                procs,
                peers: wire.peers,
                children: all_children,
                calls: wire.calls,
                unreadable: wire.unreadable,
                call_sites: wire.call_sites,
            },
        };
        if part.snapshot.is_within(&part.frames) {
            Ok(part)
        } else {
            Err(Malformed::Unknown)
        }
    }
}

/// The fields of a [`PartialStacks`].
#[derive(Serialize, Deserialize)]
pub(super) struct WireStacks {
    frames: Vec<Frame>,
    merged: Merged,
    missing: BTreeMap<Missing, RankSet>,
}

impl From<PartialStacks> for WireStacks {
    fn from(part: PartialStacks) -> Self {
        Self {
            frames: part.frames.into(),
            merged: part.merged,
            missing: part.missing,
        }
    }
}

impl TryFrom<WireStacks> for PartialStacks {
    type Error = Malformed;

    fn try_from(wire: WireStacks) -> Result<Self, Malformed> {
        let frames = table(wire.frames)?;
        let children = wire.merged.children.values();
        let trees = children.map(|children| &children.tree);
        let mut trees = std::iter::once(&wire.merged.tree).chain(trees);
        if !trees.all(|tree: &Tree| tree.is_within(&frames)) {
            return Err(Malformed::Unknown);
        }
        Ok(Self {
            frames,
            merged: wire.merged,
            missing: wire.missing,
        })
    }
}
