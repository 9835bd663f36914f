//! Copying files to the nodes of a job before it starts.
//!
//! `Source` is the side of the controller, `Store` the side of a daemon. The source reads each file twice: first for
//! its digest, so that a content is sent once however many names it has, and a second time to send it. The daemons of the
//! job get the same chunks as casts down the tree. They write them in order, and compare the digest of what they have
//! written.
//!
//! No side buffers a file. The source reads the next chunk when the slowest node has written all but [`WINDOW`] bytes, so
//! the chunks in flight, in any process of the tree, are at most that.

mod source;
mod store;
#[cfg(test)]
mod tests;
mod wanted;

pub(crate) use self::{
    source::{Source, SourceOutput},
    store::{Store, StoreOutput},
};
pub use self::{
    store::FileAct,
    wanted::{FoundFile, NotFound, WantedFile, copy_name},
};

/// Length of a chunk in bytes. The last one of a content is shorter.
pub const CHUNK: usize = 256 * 1024;
/// Maximum number of bytes that were sent and that the slowest node has not written.
pub const WINDOW: u64 = 8 * 1024 * 1024;
/// Bytes that a daemon writes between two reports.
const REPORT: u64 = WINDOW / 4;
/// Maximum number of hosts that a refusal names.
pub const MAX_FAILED_HOSTS: usize = 1024;
