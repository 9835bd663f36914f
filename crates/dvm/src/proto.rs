//! The private messages between front, controller and daemon.
//!
//! The direction is in the name. In one process they are passed as values; between processes they are encoded as
//! `docs/formats/front-link.md` says.

mod fence;
mod launch;
mod servers;

use std::{ffi::OsString, sync::Arc};

use base::{ExitStatus, JobId, NodeId, ProcId, Rank, RankSet, Signal, Topology};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

pub use self::{
    fence::{Broken, FenceId, FenceNews, Shares},
    launch::{Launch, LaunchNode, LaunchNodes, NodeLoad, Parent, Universe},
    servers::{FromServer, ToServer},
};
use crate::spec::{GpuShare, HoldAt, JobSpec, WindowSize};

/// The version of the protocol between controller and daemons. Whatever changes the meaning or the encoding of a message
/// changes it: daemons of another version are refused.
pub const VERSION: u32 = 1;

/// One of a proc's two output streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    pub const BOTH: [Self; 2] = [Self::Stdout, Self::Stderr];
}

/// How the bytes of a [`Chunk`] end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChunkEnd {
    /// With a line feed: what follows is the start of a line.
    Line,
    /// In the middle of a line: it was a prompt, or longer than a line may be, or the stream ended without a line feed.
    Partial,
}

/// Output of one rank: whole lines where that is possible.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chunk {
    pub job: JobId,
    pub rank: Rank,
    pub stream: Stream,
    pub bytes: Bytes,
    pub end: ChunkEnd,
}

/// From the front to the controller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum FromFront {
    Submit(Box<JobSpec>),
    /// Bytes for the ranks that `JobSpec::stdin` names; never more than the credit given.
    Stdin(Bytes),
    /// The front's standard input has ended.
    StdinEof,
    /// The front wrote output that counted so much by [`crate::stdio::cost`], or threw it away.
    OutputCredit {
        stream: Stream,
        bytes: u64,
    },
    /// Pass a signal on to every rank.
    Signal(Signal),
    /// SIGTERM, grace, SIGKILL. `reason` becomes the cause of the job's end.
    End(EndReason),
    /// SIGKILL at once.
    Kill(EndReason),
    /// Let held ranks run on, and do not hold those that have not come to their holding point. `None`: all.
    Release(Option<RankSet>),
    /// The terminal of the rank with a pty has a new size.
    Resize(WindowSize),
}

/// Why a front or a controller ended a job that had not failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EndReason {
    /// The front got this signal.
    Signal(Signal),
    /// Nobody reads the job's output any more.
    OutputLost,
    /// The time limit of the job has passed.
    TimeLimit,
    /// The first proc has ended, and the others have had the time that they were given then.
    Waited,
    /// The front is gone.
    FrontLost,
    /// The job whose proc had spawned it ended.
    SpawnerEnded,
    /// The debugger for which its procs were held is gone.
    DebuggerLost,
    /// The job's input cannot be read, for this error of the system: its end would say that nothing is missing.
    InputLost(i32),
    /// The front's terminal has hung up.
    TerminalLost,
}

/// From the controller to the front.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToFront {
    /// The job cannot be run at all; nothing was started.
    Refused(Refusal),
    /// Every proc was forked or has failed to be; the table has a row for each that lives, by rank. `name` is the job's
    /// in PMIx.
    Launched {
        job: JobId,
        name: String,
        table: Vec<TableRow>,
    },
    /// Every rank that is not dead stands still at its holding point. Said once.
    AllHeld {
        held: RankSet,
        dead: RankSet,
    },
    /// Ranks were let go; these are still held, or will be.
    Released {
        held: RankSet,
    },
    /// From now on the job is being ended; it did not come to its end by itself. Said at most once.
    Ending(Cause),
    Output(Chunk),
    /// The front may send so many bytes of stdin more.
    StdinCredit(u64),
    /// No rank reads stdin any more: what the front still has can be thrown away.
    StdinClosed,
    Note(Note),
    /// The last message.
    Ended(Outcome),
    /// The controller's process cannot go on, and why. The last message.
    Failed(String),
    /// A rule that our own code keeps was broken, which ended nothing.
    Internal(String),
}

/// One proc in the proc table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableRow {
    pub rank: Rank,
    pub host: String,
    pub executable: OsString,
    pub pid: i32,
}

/// Why a job was refused before anything was started.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Refusal {
    Placement(crate::place::Error),
    /// A file name pattern of the output plan is wrong.
    Pattern(String),
    /// A node has fewer GPUs than its procs are to have.
    TooFewGpus {
        needed: u64,
        available: u32,
        procs: u32,
        share: GpuShare,
    },
    /// A daemon speaks another version of [`VERSION`].
    OtherVersion {
        host: String,
        ours: u32,
        theirs: u32,
    },
    /// A rank that the user named, of a job that has fewer.
    NoSuchRank {
        what: RankChoice,
        rank: Rank,
        size: u32,
    },
}

/// What a rank was named for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RankChoice {
    Input,
    /// The only one whose output is shown.
    Output,
    Terminal,
    Held,
}

/// Something a user should know that ends nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Note {
    Placement(crate::place::Note),
    /// These ranks have exited, but something still held their output open after [`crate::life::LEAK_DELAY`].
    Leaky(RankSet),
    /// So many processes that ranks had left behind were ended.
    LeftBehind {
        node: NodeId,
        count: u32,
    },
    /// The debugger for which these ranks were held is gone, and they run on.
    DebuggerLost {
        job: JobId,
        ranks: RankSet,
    },
    /// These ranks have not come to their holding point within [`crate::HOLD_PATIENCE`]; others have, or none.
    NotHeldYet {
        at: HoldAt,
        ranks: RankSet,
        held: RankSet,
    },
    /// A job that a proc had spawned has failed.
    SpawnedFailed {
        job: JobId,
        cause: Box<Cause>,
    },
    /// These could not be ended even by SIGKILL within the time allowed.
    Stuck {
        node: NodeId,
        pids: Vec<i32>,
    },
    /// These could not be ended because they belong to another user.
    NotPermitted {
        node: NodeId,
        pids: Vec<i32>,
    },
    /// These ranks have ended with code 0 between `MPI_Init` and `MPI_Finalize`.
    Unfinished {
        ranks: RankSet,
        rest: Rest,
    },
    /// Connections to the PMIx port of a node were closed because of who made them or of what came over them.
    Refused(Refused),
    /// Something that the job does without.
    Missing {
        node: NodeId,
        what: Missing,
        /// What the system says.
        why: String,
    },
}

/// How a job ended apart from some of its ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Rest {
    Well,
    /// Ranks failed or were ended, and the exit code says so.
    Badly,
}

/// Connections to a PMIx port that were closed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    pub node: NodeId,
    /// The ranks whose connections they were; absent for those of nobody in the job.
    pub ranks: Option<RankSet>,
    /// How many.
    pub count: u64,
    /// The first reasons, each with how many were closed for it.
    pub reasons: Vec<(String, u64)>,
}

/// What a job does without when the system refuses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Missing {
    /// Room for more connections of PMIx: clients wait until another one ends.
    Room,
    /// A connection of PMIx that could not be taken.
    Client,
    /// The place at which `rally release` finds the job.
    Control,
    /// The usual directory for what `rally` must find again: another one is used.
    Place,
    /// Any such directory.
    Record,
    /// A directory that ranks are told of.
    Directory,
    /// The rest of a rank's output.
    Output(Rank),
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    pub cause: Cause,
    pub size: u32,
    /// How the procs that ran ended, merged: each rank stands in exactly one class here or in `not_started` or in `left`.
    pub ended: Vec<(ExitStatus, RankSet)>,
    pub not_started: RankSet,
    /// Of `ended`: the ranks that ended only after we had begun to end the job.
    pub ended_by_us: RankSet,
    /// The ranks that run on because we may not end them.
    pub left: RankSet,
}

/// What decided a job's end: the first thing that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Cause {
    /// Every proc ended with code 0.
    Success,
    /// The first proc that failed; under [`crate::spec::OnFailure::Continue`] others may have run on.
    Failed {
        rank: Rank,
        status: ExitStatus,
    },
    /// A proc asked for the end of the job (MPI_Abort).
    Aborted {
        rank: Rank,
        code: u8,
        message: String,
    },
    /// Procs could not be started; the classes are merged over ranks.
    NotStarted(Vec<(StartFailure, RankSet)>),
    /// A proc broke the rules of the process management interface.
    Protocol {
        rank: Rank,
        what: String,
    },
    /// Procs ended well without having begun with the process management interface, and others waited for them there.
    Absent(RankSet),
    /// Procs ended well without having finished with the process management interface, and others were still there.
    Unfinished(RankSet),
    Ended(EndReason),
    /// A job that a proc had spawned by PMI ended so: the two are one MPI program.
    Spawned {
        job: JobId,
        cause: Box<Self>,
    },
}

/// Why a proc could not be started.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct StartFailure {
    pub step: StartStep,
    pub errno: i32,
    /// The path or name that the step was about, if any.
    pub subject: Option<OsString>,
}

/// The step of starting a proc that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum StartStep {
    /// Every proc of the node must have room at once.
    Room,
    /// The program was looked for in the search path.
    Find,
    /// Pipes, a pty or a socket for the proc.
    Channels,
    /// The file for stdout or stderr.
    OutputFile,
    Fork,
    ProcessGroup,
    ParentDeath,
    Affinity,
    Limits,
    Umask,
    Directory,
    Descriptors,
    Terminal,
    Signals,
    Trace,
    Exec,
}

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
