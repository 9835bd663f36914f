//! Output of ranks on its way to a front.

use base::{JobId, Rank};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Output stream of a proc.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    pub const BOTH: [Self; 2] = [Self::Stdout, Self::Stderr];
}

/// End of the bytes of a [`Chunk`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChunkEnd {
    /// The bytes end with a line feed; the next chunk starts a line.
    Line,
    /// The bytes end in the middle of a line: a prompt, a line longer than the maximum, or a stream that ended without
    /// a line feed.
    Partial,
}

/// Output of one rank: whole lines where possible.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chunk {
    pub job: JobId,
    pub rank: Rank,
    pub stream: Stream,
    pub bytes: Bytes,
    pub end: ChunkEnd,
}
