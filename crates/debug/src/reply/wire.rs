//! The encoding of partial answers, and the checks on those that arrive.

use std::collections::BTreeMap;

use base::{Rank, RankSet};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{PartialSample, PartialStacks};
use crate::{
    peers::Peers,
    report::Merged,
    snapshot::{Child, Snapshot},
    stack::{Frame, Frames, Missing, Seen},
    tree::Tree,
};

/// Maximum number of frames in one table.
pub const MAX_FRAMES: usize = 1 << 20;
/// Maximum length in bytes of the name of a function, file or module.
pub const MAX_NAME: usize = 64 << 10;

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
    /// A stack with a frame that is not in the table.
    #[error("a stack has a frame that no table has")]
    Unknown,
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
#[derive(Serialize, Deserialize)]
pub(super) struct WireSample {
    frames: Vec<Frame>,
    procs: BTreeMap<Rank, Seen>,
    children: BTreeMap<Rank, Vec<Child>>,
    peers: Peers,
}

impl From<PartialSample> for WireSample {
    fn from(part: PartialSample) -> Self {
        let Snapshot {
            procs,
            peers,
            children,
        } = part.snapshot;
        Self {
            frames: part.frames.into(),
            procs,
            children,
            peers,
        }
    }
}

impl TryFrom<WireSample> for PartialSample {
    type Error = Malformed;

    fn try_from(wire: WireSample) -> Result<Self, Malformed> {
        let part = Self {
            frames: table(wire.frames)?,
            snapshot: Snapshot {
                procs: wire.procs,
                peers: wire.peers,
                children: wire.children,
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
