//! The private messages between front, controller and daemon.
//!
//! The name of each type says the direction. Within one process, messages are passed as values. Between processes, they
//! are encoded as `docs/formats/front-link.md` defines; those of daemons travel as bodies of `docs/formats/node-link.md`.

mod beside;
mod fence;
mod front;
mod launch;
mod limits;
mod merged;
mod outcome;
mod output;
mod preload;
pub(crate) mod prompt;
mod servers;
mod starter;

use std::{ffi::OsString, net::SocketAddr, sync::Arc};

use base::{ExitStatus, JobId, NodeId, ProcId, Rank, RankSet, Signal, Topology, Usage};
use bytes::Bytes;
use pmix::value::Status;
use serde::{Deserialize, Serialize};

pub use self::{
    beside::{Beside, NoTarget, OnePer},
    fence::{Broken, FenceId, FenceNews, Shares},
    front::{
        AllocationRefusal, CannotRun, FromFront, FrontId, HoldingJob, JobNews, JobRef, LastCall,
        Missing, NotReleased, Note, OutputCredit, RankChoice, Refusal, Refused, Rest, TableRow,
        ToFront, ToolNews, ToolRequest,
    },
    launch::{
        Dropped, Keeping, Launch, LaunchNode, LaunchNodes, NodeLoad, Parent, Relation, Universe,
    },
    limits::{Counted, NotEnforced, Unenforced},
    outcome::{Cause, EndReason, Outcome, StartFailure, StartStep},
    output::{Chunk, ChunkEnd, Stream},
    preload::{
        Content, Manifest, NotPreloaded, PreloadFailure, PreloadNews, PreloadProgress, StoredFile,
        ToPreload,
    },
    servers::{Door, FromServer, ToServer, ToolName, Visitor},
    starter::{FromStarter, ToStarter},
};
use crate::{
    place::TopologyDigest,
    spec::{NodeResources, SetName, WindowSize},
    syslog::SyslogLine,
};

/// Version of the protocol between controller and daemons. Any change to the meaning or the encoding of a message
/// changes this number. The controller refuses daemons of other versions.
pub const VERSION: u32 = 16;

/// Message from the controller to a daemon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToDaemon {
    /// Starts a job's procs on the node. All nodes of the job get the same value.
    Launch(Arc<Launch>),
    /// Announces a job that has no procs on the node. Procs of other jobs on the node may connect to it by PMIx.
    LaunchedElsewhere(Arc<Launch>),
    Stdin {
        job: JobId,
        bytes: Bytes,
    },
    StdinEof {
        job: JobId,
    },
    OutputCredit {
        job: JobId,
        stream: Stream,
        bytes: u64,
    },
    Signal {
        job: JobId,
        signal: Signal,
    },
    /// Asks what the procs of the job use. Answered with [`ToController::Measured`], also by a node without such procs.
    Measure {
        job: JobId,
        number: u64,
    },
    /// Asks for the memory of the daemon. Answered with [`ToController::DaemonMeasured`].
    MeasureDaemon {
        number: u64,
    },
    /// Stdin data that a process pushes to these ranks by PMIx ([`ToController::Push`]). The daemon answers once with
    /// [`ToController::Pushed`], unless the job is over on its node.
    Push {
        job: JobId,
        number: u64,
        ranks: RankSet,
        bytes: Bytes,
        /// True if no more input follows for these ranks.
        is_last: bool,
    },
    /// Signal that a process on another node sends to these ranks ([`ToController::SignalRanks`]).
    SignalRanks {
        job: JobId,
        ranks: RankSet,
        signal: Signal,
    },
    /// Ends the job: SIGTERM, then SIGKILL after the grace. When the ranks are gone, the daemon ends the processes that they
    /// have left behind: SIGTERM, and SIGKILL at most 1 s later.
    End {
        job: JobId,
        grace: std::time::Duration,
    },
    Kill {
        job: JobId,
    },
    Release {
        job: JobId,
        ranks: RankSet,
    },
    Resize {
        job: JobId,
        size: WindowSize,
    },
    /// Event for PMIx clients, encoded as `docs/formats/pmix.md` defines.
    Event {
        event: Bytes,
    },
    /// Answer to [`ToController::Ask`] or [`ToController::Push`], encoded as `docs/formats/pmix.md` defines.
    Answer {
        ticket: AskId,
        answer: Bytes,
    },
    /// About the files that a job needs before its launch.
    Preload {
        job: JobId,
        what: ToPreload,
    },
    /// Message for the PMIx server of the node.
    Server(Box<ToServer>),
    /// Answer to [`FenceNews::Share`].
    Fenced {
        job: JobId,
        number: u32,
        shares: Result<Shares, Broken>,
    },
    /// At least one rank on another node has exited with code 0 in this state; sent once per state. See
    /// [`ToController::ExitedEarly`].
    ExitedElsewhere {
        job: JobId,
        state: PmiState,
    },
    /// Tells a daemon that other nodes wait in a fence for ranks on its node. If no rank there will enter the fence,
    /// the daemon answers with [`FenceNews::Declined`].
    FenceAwaited {
        id: FenceId,
        /// Number of the gather that the controller runs for this fence. The daemon's answer repeats it.
        gather: u64,
    },
    /// Asks for the topology of the node, because the controller knows none with the digest in the daemon's
    /// [`ToController::Hello`]. The daemon answers with [`ToController::Topology`].
    SendTopology,
    /// For the process of the daemon, which runs start commands. The daemon itself does not get it.
    Starter(ToStarter),
    /// For the process of the daemon, which is to end: no job of the machine uses its node any more.
    Leave,
}

impl ToDaemon {
    /// Returns true if another daemon gets the same message, so that both can travel as one. A launch is not compared in
    /// depth: the controller shares it among all daemons of the job.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Launch(one), Self::Launch(other))
            | (Self::LaunchedElsewhere(one), Self::LaunchedElsewhere(other)) => {
                Arc::ptr_eq(one, other)
            }
            (Self::Launch(_) | Self::LaunchedElsewhere(_), _) => false,
            // Chunks with the same number have the same bytes.
            (
                Self::Preload {
                    job: one,
                    what: ToPreload::Chunk { number: first, .. },
                },
                Self::Preload {
                    job: other,
                    what: ToPreload::Chunk { number: second, .. },
                },
            ) => one == other && first == second,
            _ => self == other,
        }
    }

    /// Returns true if a message may wait for others, and others need not wait for it. All others keep their order: no message
    /// may overtake the launch of its job. Preloaded files come before the launch, which waits until all nodes have them; they
    /// must not hold up the messages of other jobs.
    #[must_use]
    pub const fn is_bulk(&self) -> bool {
        matches!(self, Self::Preload { .. })
    }
}

/// State in PMI or PMIx of a proc that exited while other procs may still wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum PmiState {
    /// The proc never initialized PMI or PMIx.
    NotInitialized,
    /// The proc initialized PMI or PMIx, and did not finalize.
    NotFinalized,
}

/// Identifies the request that an answer belongs to: the protocol that the proc used, and the request's number in that
/// protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum AskId {
    Pmix(u64),
    Pmi { job: JobId, number: u64 },
}

/// Message from a daemon to the controller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToController {
    /// The daemon is ready. This is its first message, and the only one whose beginning is the same in every version.
    Hello {
        /// The daemon's [`VERSION`].
        version: u32,
        node: NodeId,
        /// Name of the node, as its procs see it.
        host: String,
        /// Equal nodes have the same, and the controller asks one of them for its topology.
        topology: TopologyDigest,
        resources: NodeResources,
    },
    /// Answer to [`ToDaemon::SendTopology`].
    Topology(Box<Topology>),
    /// Every proc of the job on this node was started, has failed to start, or was cancelled because the job ends. Cancelled
    /// procs are in neither list.
    Launched {
        job: JobId,
        started: Vec<Started>,
        failures: Vec<(StartFailure, RankSet)>,
        /// Limits of the job that the node does not enforce.
        unenforced: Vec<Unenforced>,
    },
    /// Answer to [`ToDaemon::Preload`].
    Preload {
        job: JobId,
        news: PreloadNews,
    },
    /// These ranks are stopped at their holding point.
    Held {
        job: JobId,
        ranks: RankSet,
    },
    /// A tool has released these ranks by PMIx.
    Released {
        job: JobId,
        ranks: RankSet,
    },
    Output {
        job: JobId,
        chunk: Chunk,
    },
    StdinCredit {
        job: JobId,
        bytes: u64,
    },
    /// No rank on this node reads stdin any more.
    StdinClosed {
        job: JobId,
    },
    /// These procs keep running because we cannot end them: they run as another user, or are blocked in the kernel. The
    /// daemon reports nothing more about them.
    Unkillable {
        job: JobId,
        ranks: RankSet,
    },
    /// These procs have ended. Each proc is reported once. The classes are in the order of the first end in each.
    Ended {
        job: JobId,
        classes: Vec<EndClass>,
    },
    /// Message from the PMIx server of the node for the servers of other nodes.
    Server(Box<FromServer>),
    /// Event of a PMI fence over several nodes.
    Fence {
        id: FenceId,
        news: FenceNews,
    },
    /// Some ranks of the job on this node will enter no more fences. From now on, the controller sends
    /// [`ToDaemon::FenceAwaited`] when other nodes wait in a fence for this node.
    FencesAbandoned {
        job: JobId,
    },
    /// Stdin data that a process on this node pushes to ranks of a job with ranks on other nodes. The controller answers
    /// once, with a status in [`ToDaemon::Answer`].
    Push {
        ticket: AskId,
        job: JobId,
        ranks: RankSet,
        bytes: Bytes,
        is_last: bool,
    },
    /// Answer to [`ToDaemon::Push`].
    Pushed {
        job: JobId,
        number: u64,
        result: PushResult,
    },
    /// Answer to [`ToDaemon::Measure`]: the procs that run.
    Measured {
        job: JobId,
        number: u64,
        procs: Vec<ProcUsage>,
        /// What all processes have used since the start of the job; `None` without a cgroup.
        counted: Option<Counted>,
    },
    /// Answer to [`ToDaemon::MeasureDaemon`].
    DaemonMeasured {
        number: u64,
        /// In bytes; `None` if it is not known.
        memory: Option<u64>,
    },
    /// A process of the job sends a signal to these ranks of the same job, which are on other nodes.
    SignalRanks {
        job: JobId,
        ranks: RankSet,
        signal: Signal,
    },
    /// A proc's PMIx request that concerns more than its own node, encoded as `docs/formats/pmix.md` defines. The
    /// controller answers once with [`ToDaemon::Answer`].
    Ask {
        proc: ProcId,
        ticket: AskId,
        request: Bytes,
    },
    /// A process set that a process defines. The controller answers once, with a status in [`ToDaemon::Answer`]; before, it tells all
    /// servers of the set ([`ToServer::SetDefined`]).
    DefineSet {
        ticket: AskId,
        job: JobId,
        name: SetName,
        ranks: RankSet,
    },
    /// A line that a process wants to have in the syslog of the controller's host. The controller answers once, with a status in
    /// [`ToDaemon::Answer`].
    Syslog {
        ticket: AskId,
        line: SyslogLine,
    },
    Abort {
        job: JobId,
        rank: Rank,
        code: u8,
        message: String,
    },
    /// A rank broke the rules of PMI.
    Protocol {
        job: JobId,
        rank: Rank,
        what: String,
    },
    /// These ranks have exited with code 0 in this state, and ranks on other nodes may wait for them for ever. A daemon
    /// sends this only if its job has several nodes.
    ExitedEarly {
        job: JobId,
        state: PmiState,
        ranks: RankSet,
    },
    /// These ranks exited without initializing PMI, and other ranks have waited for them in PMI for too long.
    Absent {
        job: JobId,
        ranks: RankSet,
    },
    /// These ranks exited without finalizing PMI or PMIx, and some time later other ranks still had not finalized.
    Unfinished {
        job: JobId,
        ranks: RankSet,
    },
    /// These ranks exited without finalizing PMI or PMIx. The job did not end because of them; now it is over on this
    /// node.
    ExitedUnfinalized {
        job: JobId,
        ranks: RankSet,
    },
    Note {
        job: JobId,
        note: Note,
    },
    /// The debugger that traced these ranks when they were released is gone and did not detach from them.
    DebuggerLost {
        job: JobId,
        ranks: RankSet,
    },
    /// No process of the job remains on the node, except those that were reported as unkillable. This is the last message
    /// about the job.
    Clean {
        job: JobId,
        /// What its procs on the node have used.
        spent: Usage,
    },
    /// Resource that the system has denied to the daemon, and the reason.
    Missing {
        what: Missing,
        why: String,
    },
    /// The daemon has refused a connection to its port for other nodes.
    Stranger {
        from: SocketAddr,
        why: String,
    },
    /// A violation of the protocol that the daemon has noticed: a bug of ours.
    Bug(String),
    /// From the process of the daemon, which runs start commands. The controller itself does not get it.
    Starter(FromStarter),
}

/// Result of pushed input. The order matters: if several nodes report results, the answer is the greatest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum PushResult {
    /// No rank reads its input any more.
    Unread,
    /// The daemon's queue of pushed input is full.
    Full,
    /// At least one rank gets the input.
    Taken,
}

impl PushResult {
    /// Returns the PMIx status that reports this result.
    pub(crate) const fn status(self) -> Status {
        match self {
            // This status makes the sender's library stop sending.
            Self::Unread => Status::IOF_COMPLETE,
            Self::Full => Status::OUT_OF_RESOURCE,
            Self::Taken => Status::SUCCESS,
        }
    }
}

/// What a running proc and the processes that it has started use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcUsage {
    pub rank: Rank,
    pub pid: i32,
    /// Number of the processes, with the proc.
    pub processes: u32,
    /// Memory that is resident now, in bytes. Pages that several of the processes share count for each.
    pub resident: u64,
    /// Since their starts, with the children that they have waited for.
    pub used: Usage,
}

/// Procs on one node that run the same program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// Path at which the program was found.
    pub executable: OsString,
    /// Ranks with their pids, in the order in which they were started.
    pub pids: Vec<(Rank, i32)>,
}

/// Procs that ended with the same status and drain state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndClass {
    pub status: ExitStatus,
    /// Whether all output was read. `Leaky` if another process still held a pipe open.
    pub drained: Drained,
    pub ranks: RankSet,
}

/// Whether all output of an exited proc was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Drained {
    Whole,
    Leaky,
}
