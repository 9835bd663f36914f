//! Files that are copied to the nodes of a job before it starts.

use std::{ffi::OsString, sync::Arc};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Message to the daemon of a node about the files of a job. It comes before the launch of the job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToPreload {
    /// The first message. The daemon makes the job's directory, and answers with [`PreloadNews::Ready`].
    Begin(Arc<Manifest>),
    /// Bytes of the contents of the manifest, in its order. No chunk has bytes of two contents. The first number is 0.
    Chunk { number: u64, bytes: Bytes },
    /// The job is not launched: the daemon removes what it has.
    Drop,
}

/// Answer of a daemon to [`ToPreload`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PreloadNews {
    /// The directory exists, and has room for the files.
    Ready,
    /// Number of bytes that were written so far. This is the credit of the sender.
    Taken { bytes: u64 },
    /// All files are complete, and each content has the digest that the manifest says.
    Stored,
    /// The files cannot be stored. The daemon has removed what it had; it ignores the chunks that follow.
    Failed(PreloadFailure),
}

/// The files of a job, by content: files with the same content are sent and stored once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Directory in which the job's directory is made; `None` lets the daemon choose.
    pub place: Option<OsString>,
    pub contents: Vec<Content>,
}

impl Manifest {
    /// Returns the number of bytes that are sent.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let sizes = self.contents.iter().map(|content| content.size);
        sizes.fold(0, u64::saturating_add)
    }
}

/// Content of one or more files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    /// SHA-256.
    pub digest: [u8; 32],
    pub size: u64,
    pub files: Vec<StoredFile>,
}

/// File in the job's directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct StoredFile {
    /// Path in the directory.
    pub name: OsString,
    /// Permission bits.
    pub mode: u32,
}

/// Why files could not be copied.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum PreloadFailure {
    /// The launcher cannot read a file any more.
    Unreadable { path: OsString, why: String },
    /// A file has changed while it was copied.
    Changed { name: OsString },
    /// No directory has enough room. This one has most.
    NoRoom {
        directory: OsString,
        needed: u64,
        free: u64,
    },
    /// No directory can be used: each with the reason.
    NoPlace(Vec<(OsString, String)>),
    /// A file of the job's directory cannot be written.
    Unwritable { path: OsString, why: String },
}

/// Files that could not be copied to these hosts; to none of the nodes if there are no hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotPreloaded {
    /// Hosts that have failed. `failure` is that of the first.
    pub hosts: Vec<String>,
    /// Number of hosts that have not failed.
    pub others: usize,
    pub failure: PreloadFailure,
}

/// How far the copy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreloadProgress {
    /// Number of bytes that every node has.
    pub done: u64,
    pub total: u64,
    pub nodes: usize,
}
