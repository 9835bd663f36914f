//! Output of ranks on its way to a front.

use base::{JobId, Rank};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// One of a proc's two output streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    pub const BOTH: [Self; 2] = [Self::Stdout, Self::Stderr];
}

/// How the bytes of a [`Chunk`] end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChunkEnd {
    /// With a line feed: what follows is the start of a line.
    Line,
    /// In the middle of a line: it was a prompt, or longer than a line may be, or the stream ended without a line feed.
    Partial,
}

/// Output of one rank: whole lines where that is possible.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chunk {
    pub job: JobId,
    pub rank: Rank,
    pub stream: Stream,
    pub bytes: Bytes,
    pub end: ChunkEnd,
}
