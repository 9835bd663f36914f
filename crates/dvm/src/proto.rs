//! The private messages between front, controller and daemon.
//!
//! The direction is in the name. In one process they are passed as values; between processes they are encoded as
//! `docs/formats/front-link.md` says.

mod fence;
mod front;
mod launch;
mod outcome;
mod output;
mod servers;

use std::{ffi::OsString, sync::Arc};

use base::{ExitStatus, JobId, NodeId, ProcId, Rank, RankSet, Signal, Topology};
use bytes::Bytes;
use pmix::value::Status;
use serde::{Deserialize, Serialize};

pub use self::{
    fence::{Broken, FenceId, FenceNews, Shares},
    front::{
        FromFront, FrontId, HoldingJob, JobRef, Missing, NotReleased, Note, OutputCredit,
        RankChoice, Refusal, Refused, Rest, TableRow, ToFront,
    },
    launch::{Launch, LaunchNode, LaunchNodes, NodeLoad, Parent, Universe},
    outcome::{Cause, EndReason, Outcome, StartFailure, StartStep},
    output::{Chunk, ChunkEnd, Stream},
    servers::{FromServer, ToServer},
};
use crate::spec::WindowSize;

/// The version of the protocol between controller and daemons. Whatever changes the meaning or the encoding of a message
/// changes it: daemons of another version are refused.
pub const VERSION: u32 = 2;
/// From the controller to a daemon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToDaemon {
    /// The same value for all nodes of the job.
    Launch(Arc<Launch>),
    /// A job that has no procs on the node: others there may connect with it by PMIx.
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
    /// Input that a process pushes to these ranks ([`ToController::Push`]). Answered once by [`ToController::Pushed`], unless the
    /// job is over here.
    Push {
        job: JobId,
        number: u64,
        ranks: RankSet,
        bytes: Bytes,
        /// No more input follows for these ranks.
        is_last: bool,
    },
    /// A process on another node signals these ranks ([`ToController::SignalRanks`]).
    SignalRanks {
        job: JobId,
        ranks: RankSet,
        signal: Signal,
    },
    /// SIGTERM, then SIGKILL after the grace; also for what ranks have left behind.
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
    /// Something has happened that PMIx clients may want to hear of, as `docs/formats/pmix.md` has it.
    Event {
        event: Bytes,
    },
    /// Answers [`ToController::Ask`]: a PMIx answer, as `docs/formats/pmix.md` has it.
    Answer {
        ticket: AskId,
        answer: Bytes,
    },
    /// For the PMIx server of the node.
    Server(Box<ToServer>),
    /// Answers [`FenceNews::Share`].
    Fenced {
        job: JobId,
        number: u32,
        shares: Result<Shares, Broken>,
    },
    /// Other nodes wait in a fence for ranks here. Answered by [`FenceNews::Declined`] when nobody will come.
    FenceAwaited {
        id: FenceId,
        gather: u64,
    },
}

/// Which of its questions a daemon gets an answer to: by which protocol a proc has asked, and the number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum AskId {
    Pmix(u64),
    Pmi { job: JobId, number: u64 },
}

/// From a daemon to the controller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToController {
    /// The daemon is ready. The first message, and the only one whose beginning is the same in every version.
    Hello {
        /// [`VERSION`] as the daemon has it.
        version: u32,
        node: NodeId,
        /// The name of the node, as procs are told.
        host: String,
        topology: Box<Topology>,
    },
    /// Every proc of the launch was forked or has failed to be.
    Launched {
        job: JobId,
        started: Vec<Started>,
        failures: Vec<(StartFailure, RankSet)>,
    },
    /// These ranks stand still at their holding point.
    Held {
        job: JobId,
        ranks: RankSet,
    },
    /// A tool has let these ranks go by PMIx.
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
    /// No rank of this node reads stdin any more.
    StdinClosed {
        job: JobId,
    },
    /// These procs run on: they have become another user, and we may not end them. Nothing more is said of them.
    Left {
        job: JobId,
        ranks: RankSet,
    },
    /// Procs have ended; said once of each. The classes are in the order in which their first ones became known.
    Ended {
        job: JobId,
        classes: Vec<EndClass>,
    },
    /// Of the PMIx server of the node, for those of others.
    Server(Box<FromServer>),
    /// Something about a fence of PMI over several nodes.
    Fence {
        id: FenceId,
        news: FenceNews,
    },
    /// Ranks of the job here come to no fence any more. From now on the daemon is asked about those that wait for it.
    FencesLeft {
        job: JobId,
    },
    /// Input that a process on this node pushes to ranks of a job that has ranks elsewhere. Answered once by
    /// [`ToDaemon::Answer`] with a status.
    Push {
        ticket: AskId,
        job: JobId,
        ranks: RankSet,
        bytes: Bytes,
        is_last: bool,
    },
    /// Answers [`ToDaemon::Push`].
    Pushed {
        job: JobId,
        number: u64,
        result: PushResult,
    },
    /// A process of the job signals these ranks of it, which are on other nodes.
    SignalRanks {
        job: JobId,
        ranks: RankSet,
        signal: Signal,
    },
    /// A PMIx request of a proc that concerns more than its node, as `docs/formats/pmix.md` has it. Answered once by
    /// [`ToDaemon::Answer`].
    Ask {
        proc: ProcId,
        ticket: AskId,
        request: Bytes,
    },
    Abort {
        job: JobId,
        rank: Rank,
        code: u8,
        message: String,
    },
    Protocol {
        job: JobId,
        rank: Rank,
        what: String,
    },
    /// These have ended without having begun with PMI, and others have waited for them there for some time.
    Absent {
        job: JobId,
        ranks: RankSet,
    },
    /// These have ended without having finished with PMI or PMIx, and others are there for some time more.
    Unfinished {
        job: JobId,
        ranks: RankSet,
    },
    /// These have ended so, and that has not ended the job, which is over on this node.
    LeftEarly {
        job: JobId,
        ranks: RankSet,
    },
    Note {
        job: JobId,
        note: Note,
    },
    /// The debugger that had these ranks when they were released is gone without having let go of them.
    DebuggerLost {
        job: JobId,
        ranks: RankSet,
    },
    /// No process of the job is left on the node. The last message about the job.
    Clean {
        job: JobId,
    },
}

/// What became of pushed input. The order matters: of the results of several nodes the greatest is the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum PushResult {
    /// No rank reads its input any more.
    Unread,
    /// Too many pushes wait for room.
    Full,
    /// At least one rank gets it.
    Taken,
}

impl PushResult {
    /// The answer of PMIx.
    pub(crate) const fn status(self) -> Status {
        match self {
            // The sender's library stops at this.
            Self::Unread => Status::IOF_COMPLETE,
            Self::Full => Status::OUT_OF_RESOURCE,
            Self::Taken => Status::SUCCESS,
        }
    }
}

/// Procs of a node that run the same program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// The path that was found.
    pub executable: OsString,
    /// Ranks with their pids, in the order of their starts.
    pub pids: Vec<(Rank, i32)>,
}

/// Procs that have ended alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndClass {
    pub status: ExitStatus,
    /// Leaky: their output was still held open by something else.
    pub drained: Drained,
    pub ranks: RankSet,
}

/// Whether all output of a proc that has exited was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Drained {
    Whole,
    Leaky,
}
