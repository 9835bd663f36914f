//! Questions of programs that act as tools.

use std::ffi::CStr;

use base::{NodeId, Rank};
use pmix::keys;

/// The job that a question is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum About {
    Own,
    /// The child with this number, which the process has spawned.
    Child(usize),
    /// The job of the process that has spawned its own job.
    Parent,
    /// A job that does not exist.
    Nobody,
}

/// A question about a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Question {
    /// The processes of the job on all nodes.
    Table,
    /// Those on the node of the process that asks.
    OwnNode,
    /// Those on this node.
    Node(NodeId),
    /// The process number of this rank, which may not exist.
    Pid(Rank),
    /// The values of [`OF_JOBS`].
    Facts,
    /// The names of all jobs.
    Jobs,
}

/// Whether a program waits for the answers to its questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    Waits,
    /// It goes on, and may be gone when they come.
    GoesOn,
}

/// A key that no server knows. The other keys of its query are answered.
pub(crate) const UNKNOWN: &CStr = c"sim.unknown";

/// What [`Question::Facts`] asks for, in this order.
pub(crate) const OF_JOBS: [&CStr; 4] =
    [keys::JOB_SIZE, UNKNOWN, keys::JOB_NUM_APPS, keys::NUM_NODES];
