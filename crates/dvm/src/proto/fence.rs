//! Messages between daemons and controller about PMI fences over several nodes.
//!
//! A daemon sends its share when all participants on its node have entered the fence. It then gets the shares of all
//! nodes. The messages of one node stay in order, so the k-th share of a node belongs to the k-th fence with that id.

use std::sync::Arc;

use base::{JobId, NodeId};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Identifies a fence, in the same way on every node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FenceId {
    pub job: JobId,
    /// Name of the group whose fence this is. `None` for a fence of all ranks of the job.
    pub group: Option<String>,
}

/// A daemon's message about a fence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FenceNews {
    /// All participants on the node have entered the fence. The controller answers once, with
    /// [`super::ToDaemon::Fenced`].
    Share {
        /// Number of the share on this node. The answer and a withdrawal refer to it.
        number: u32,
        /// Nodes that have participants. `None` stands for all nodes of the job.
        nodes: Option<Vec<NodeId>>,
        share: Bytes,
    },
    /// The daemon withdraws its share. The controller does not answer the share any more.
    Withdrawn { number: u32 },
    /// Answer to [`super::ToDaemon::FenceAwaited`]: no rank on the node will enter the fence.
    Declined { gather: u64 },
}

/// Marks a fence that can never complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Broken;

/// Shares of all nodes, each with the number of its node.
pub type Shares = Arc<[(u32, Bytes)]>;
