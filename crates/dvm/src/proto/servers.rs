//! What the PMIx servers of different nodes say to each other, by way of the controller.
//!
//! What the bytes mean is the matter of `pmix::server`; a status is its number. The controller looks at nothing but who
//! waits for whom.

use std::sync::Arc;

use base::{JobId, NodeId, ProcId};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::Stream;

/// From the server of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum FromServer {
    /// All members of a collective on the node have called; it has members on all of these nodes. Answered once by
    /// [`ToServer::Gathered`].
    Gather {
        ticket: u64,
        id: Bytes,
        nodes: Vec<NodeId>,
        share: Bytes,
    },
    /// Members on the node are waited for. Answered by [`ToServer::Gathered`] when others do not come.
    Waits {
        ticket: u64,
        id: Bytes,
        nodes: Vec<NodeId>,
    },
    /// Nobody waits there any more.
    Forgotten { ticket: u64, id: Bytes },
    /// Members on the node do not come to the oldest gather of this name that waits for it.
    Absent { id: Bytes, status: i32 },
    /// The node takes its share back, or waits no longer: the gather is over for all.
    Withdrawn { ticket: u64, id: Bytes, status: i32 },
    /// Members on the node have gone, for whom others may wait: it is asked by [`ToServer::Awaited`] from now on.
    MembersGone,
    /// Answers [`ToServer::Awaited`].
    Declined {
        id: Bytes,
        number: u64,
        result: Result<Bytes, i32>,
    },
    /// A question to the server of another node. Answered once by [`ToServer::Told`].
    Ask {
        ticket: u64,
        node: NodeId,
        question: Bytes,
    },
    /// Nobody waits for the answer any more: none is needed.
    NoLongerAsks { ticket: u64, node: NodeId },
    /// Answers [`ToServer::Asked`].
    Told {
        node: NodeId,
        ticket: u64,
        result: Result<Bytes, i32>,
    },
    /// An event, as `docs/formats/pmix.md` has it, for clients on these nodes, or on all others.
    Event {
        event: Bytes,
        nodes: Option<Vec<NodeId>>,
    },
    /// From now on processes on the node want these streams of a job that has ranks elsewhere, and no others. Answered by
    /// [`ToServer::Output`], any number of times.
    Wanted { job: JobId, streams: Vec<Stream> },
}

/// To the server of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToServer {
    /// A job is over on all nodes.
    Over { job: JobId },
    /// The shares of all nodes, in their order.
    Gathered {
        ticket: u64,
        result: Result<Arc<[(NodeId, Bytes)]>, i32>,
    },
    /// Members of some jobs have gone on other nodes.
    Watch,
    /// Other nodes wait for members on this one.
    Awaited { id: Bytes, number: u64 },
    /// A question of another node about a process on this one. Answered once by [`FromServer::Told`].
    Asked {
        node: NodeId,
        ticket: u64,
        question: Bytes,
    },
    /// Nobody on the other node waits for the answer any more.
    NoLongerAsked { node: NodeId, ticket: u64 },
    /// Answers [`FromServer::Ask`].
    Told {
        ticket: u64,
        result: Result<Bytes, i32>,
    },
    /// An event of another node.
    Event { event: Bytes },
    /// Output of a process on another node, or, without bytes, the end of its stream.
    Output {
        proc: ProcId,
        stream: Stream,
        bytes: Bytes,
    },
}
