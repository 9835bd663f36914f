//! Messages between the PMIx servers of different nodes, which the controller forwards.
//!
//! `pmix::server` defines the content of the bytes; a status is sent as its number. The controller looks only at which
//! server waits for which nodes.
//!
//! A `ticket` is a number that the sending server chooses. The answer repeats it.

use std::sync::Arc;

use base::{JobId, NodeId, ProcId, RankSet};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::Stream;
use crate::spec::SetName;

/// Message from the PMIx server of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum FromServer {
    /// All members of a collective on this node have called. The collective has members on all of `nodes`. The
    /// controller answers once, with [`ToServer::Gathered`].
    Gather {
        ticket: u64,
        id: Bytes,
        nodes: Vec<NodeId>,
        share: Bytes,
    },
    /// A collective over these nodes still waits for members on this node. Sent only after [`ToServer::Watch`]. The share
    /// follows later as [`FromServer::Gather`] with the same ticket, unless the gather ends first. If it fails, the
    /// controller answers with an error in [`ToServer::Gathered`].
    Waits {
        ticket: u64,
        id: Bytes,
        nodes: Vec<NodeId>,
    },
    /// No process on this node waits any more in the collective that [`FromServer::Waits`] reported.
    Forgotten { ticket: u64, id: Bytes },
    /// Members on this node will not call: the oldest gather with this id that lacks this node's share fails.
    Absent { id: Bytes, status: i32 },
    /// This node withdraws its share, or its [`FromServer::Waits`]: the gather fails on all nodes.
    Withdrawn { ticket: u64, id: Bytes, status: i32 },
    /// Members on this node are gone, and other nodes may wait for them. From now on, the controller asks this node by
    /// [`ToServer::Awaited`].
    MembersGone,
    /// Answer to [`ToServer::Awaited`] if no member on this node will call. Other nodes continue with this share, or fail
    /// with this status.
    Declined {
        id: Bytes,
        number: u64,
        result: Result<Bytes, i32>,
    },
    /// Question to the server of another node. It is answered once, by [`ToServer::Told`].
    Ask {
        ticket: u64,
        node: NodeId,
        question: Bytes,
    },
    /// The asking server does not need the answer any more.
    NoLongerAsks { ticket: u64, node: NodeId },
    /// Answer to [`ToServer::Asked`].
    Told {
        node: NodeId,
        ticket: u64,
        result: Result<Bytes, i32>,
    },
    /// Event for clients on these nodes, encoded as `docs/formats/pmix.md` defines. `None` stands for all other nodes.
    Event {
        event: Bytes,
        nodes: Option<Vec<NodeId>>,
    },
    /// Set of streams, of a job with ranks elsewhere, that processes on this node subscribe to. It replaces the
    /// previous set. The controller answers with [`ToServer::Output`], any number of times.
    Wanted { job: JobId, streams: Vec<Stream> },
    /// The ranks of a job, for each stream, whose output tools on this node get in place of the front. Replaces the previous ones.
    Redirected {
        job: JobId,
        stdout: RankSet,
        stderr: RankSet,
    },
    /// A tool wants to connect, by a connection with this number. The controller answers once, with [`ToServer::ToolAdmitted`].
    ToolConnects { conn: u64, visitor: Visitor },
    /// The connection of a tool that was admitted has ended.
    ToolLeft { tool: JobId },
    /// A tool lets the launcher go on, which waits for it.
    LauncherReleased { by: ProcId },
}

/// A tool that wants to connect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Visitor {
    /// The PMIx name (nspace and rank) that it has; `None` if it wants one.
    pub name: Option<(String, u32)>,
    /// The process and the command line that it says it has.
    pub pid: Option<u32>,
    pub command: Option<String>,
    pub door: Door,
}

/// Who has opened the connection to a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Door {
    /// The tool.
    Ours,
    /// The launcher, because the tool has started it.
    Theirs,
}

/// A tool that is admitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolName {
    /// Its number, which no job has.
    pub tool: JobId,
    pub nspace: String,
    pub rank: u32,
}

/// Message to the PMIx server of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToServer {
    /// A job is over on all nodes.
    Over { job: JobId },
    /// Shares of all nodes, in the order of the nodes, or the status with which the gather failed.
    Gathered {
        ticket: u64,
        result: Result<Arc<[(NodeId, Bytes)]>, i32>,
    },
    /// Some members on other nodes may never call. From now on, the server reports its incomplete collectives by
    /// [`FromServer::Waits`].
    Watch,
    /// Other nodes wait for members on this node. The server answers with [`FromServer::Declined`] if they will not call.
    Awaited { id: Bytes, number: u64 },
    /// Question from another node about a process on this node. The server answers once, with [`FromServer::Told`].
    Asked {
        node: NodeId,
        ticket: u64,
        question: Bytes,
    },
    /// The asking node does not need the answer any more.
    NoLongerAsked { node: NodeId, ticket: u64 },
    /// Answer to [`FromServer::Ask`].
    Told {
        ticket: u64,
        result: Result<Bytes, i32>,
    },
    /// Event from another node.
    Event { event: Bytes },
    /// Output of a process on another node. Empty `bytes` mark the end of the stream.
    Output {
        proc: ProcId,
        stream: Stream,
        bytes: Bytes,
    },
    /// A process set of these ranks of a job, besides those of its apps.
    SetDefined {
        job: JobId,
        name: SetName,
        ranks: RankSet,
    },
    /// Answer to [`FromServer::ToolConnects`]: the status is why it is refused.
    ToolAdmitted {
        conn: u64,
        result: Result<ToolName, i32>,
    },
}
