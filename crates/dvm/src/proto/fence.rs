//! Fences of PMI over several nodes, as daemons and controller speak of them.
//!
//! A daemon sends its share when its ranks are in the fence, and gets the shares of all. Messages of one node keep their
//! order, so the k-th share of a node belongs to the k-th fence of that name.

use std::sync::Arc;

use base::{JobId, NodeId};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Names a fence, in the same way on every node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FenceId {
    pub job: JobId,
    /// The name of the group whose fence it is; absent for that of all.
    pub group: Option<String>,
}

/// What a daemon says about a fence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FenceNews {
    /// All ranks here that are in it have come. Answered once, by [`super::ToDaemon::Fenced`].
    Share {
        number: u32,
        /// The nodes that have members; absent: all of the job.
        nodes: Option<Vec<NodeId>>,
        share: Bytes,
    },
    /// The share is taken back. It is answered no more.
    Withdrawn { number: u32 },
    /// Answers [`super::ToDaemon::FenceAwaited`]: nobody here will come.
    Declined { gather: u64 },
}

/// A fence that can never complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Broken;

/// The shares of all nodes, by their numbers.
pub type Shares = Arc<[(u32, Bytes)]>;
