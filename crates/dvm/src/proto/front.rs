//! Messages between a front and the controller.

use std::{ffi::OsString, fmt, net::SocketAddr};

use base::{HostList, JobId, NodeId, ProcId, Rank, RankSet, Signal};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{
    beside::{NoTarget, OnePer},
    limits::Unenforced,
    outcome::{Cause, EndReason, Outcome},
    output::{Chunk, Stream},
    preload::{NotPreloaded, PreloadProgress},
    prompt::{Asked, Prompt, PromptId, Secret},
};
use crate::{
    bootstrap::NotJoined,
    machine::{Ask, NotDone, Reply},
    place::{JobMap, Topologies},
    slurm,
    spec::{GpuShare, HoldAt, JobSpec, WindowSize},
};

/// Number that the controller's host assigns to a front. A front is one connection with at most one job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FrontId(pub u32);

impl fmt::Display for FrontId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Reference to a job in a front's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobRef {
    /// The job that the front has submitted itself.
    Own,
    Number(JobId),
    /// The job that the front with this pid has submitted.
    OfFront(u32),
}

/// Message from a front to the controller. A message without a job refers to the job that the front has submitted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum FromFront {
    /// Submits a job; a front may send this once. The controller answers with [`ToFront::Accepted`] or
    /// [`ToFront::Refused`].
    Submit(Box<JobSpec>),
    /// Bytes for the ranks in `JobSpec::stdin`; never more than the credit given.
    Stdin(Bytes),
    /// The front's standard input has reached EOF.
    StdinEof,
    /// The front has printed or discarded output.
    OutputCredit(OutputCredit),
    /// Sends a signal to every rank of the job and of its descendants, the jobs that it has spawned.
    Signal(Signal),
    /// Ends the job and its descendants: SIGTERM, grace, SIGKILL. The reason becomes the cause of their end.
    End(EndReason),
    /// Ends the job and its descendants with SIGKILL immediately. The reason becomes the cause of their end.
    Kill(EndReason),
    /// Releases held ranks, and cancels the hold of ranks that have not yet reached their holding point. `None` means
    /// all ranks. The controller answers with [`ToFront::Released`] or [`ToFront::NotReleased`].
    Release { job: JobRef, ranks: Option<RankSet> },
    /// New size of the terminals of ranks.
    Resize(WindowSize),
    /// Asks which jobs hold ranks, or will hold some. The controller answers with [`ToFront::Holding`].
    Holds,
    /// A start command asks the user. A process that it has started sends this, and the controller's process answers with
    /// [`ToFront::Answer`].
    Prompt(Asked),
    /// The user's answer to [`ToFront::Prompt`]; `None`: there is none.
    Answer(PromptId, Option<Secret>),
    /// Asks which nodes were lost. The controller answers with [`ToFront::Lost`].
    LostNodes,
    /// Submits a job of a tool. It uses no slots, and does not wait in the queue of a machine. Otherwise like
    /// [`Self::Submit`].
    SubmitBeside(Box<JobSpec>),
    /// Question or order for the machine. The controller answers with [`ToFront::Reply`].
    Ask(Box<Ask>),
    /// Starts processes of a tool beside the ranks of a job. For a front without a job, the tool becomes its job, as with
    /// [`Self::Submit`]. A front with a job gets [`ToFront::Tool`], and the output of the tool.
    StartTool(Box<ToolRequest>),
}

/// Credit for output that a front has printed or discarded: one stream of a job's ranks on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputCredit {
    pub job: JobId,
    pub node: NodeId,
    pub stream: Stream,
    /// Amount of output, counted by [`crate::stdio::cost`].
    pub bytes: u64,
}

/// Request to start processes of a tool beside the ranks of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolRequest {
    pub target: JobRef,
    pub one_per: OnePer,
    /// One app: the tool. The controller takes its environment, directories and places from the target; variables of the app
    /// replace those of the target with the same name.
    pub spec: Box<JobSpec>,
}

/// News of the tool that a front has requested for its own job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToolNews {
    /// All its processes run.
    Started(JobId),
    /// None was started.
    Refused(Refusal),
    /// It is over: the last news of it.
    Ended { job: JobId, cause: Cause },
}

/// Message from the controller to a front.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToFront {
    /// Number of the job that the front has submitted. This is the first message about the job.
    Accepted(JobId),
    /// The job cannot run, and nothing was started. This is the last message about it.
    Refused(Refusal),
    /// Every proc was forked or could not be started. The table has a row for each live proc, sorted by rank. `name` is
    /// the name of the job in PMIx.
    Launched {
        job: JobId,
        name: String,
        table: Vec<TableRow>,
    },
    /// Every rank is either stopped at its holding point or dead. Sent at most once.
    AllHeld {
        held: RankSet,
        dead: RankSet,
    },
    /// `ranks` were released; the ranks in `held` are still held, or will be. Sent to the front that asked, and to the
    /// front that submitted the job.
    Released {
        job: JobId,
        ranks: RankSet,
        held: RankSet,
    },
    /// Error answer to [`FromFront::Release`].
    NotReleased(NotReleased),
    /// Answer to [`FromFront::Holds`].
    Holding(Vec<HoldingJob>),
    /// The controller has begun to end the job, which did not end by itself. Sent at most once.
    Ending(Cause),
    Output {
        node: NodeId,
        chunk: Chunk,
    },
    /// Number of further bytes of stdin that the front may send.
    StdinCredit(u64),
    /// No rank reads stdin any more. The front can discard the input that it still has.
    StdinClosed,
    Note(Note),
    /// Result of the job. This is the last message about it.
    Ended(Outcome),
    /// The controller's process cannot continue, for this reason. This is the last message.
    Failed(CannotRun),
    /// Text that reports a broken invariant of our own code. The job continues.
    Internal(String),
    /// The files that the job needs on its nodes are being copied.
    Preloading(PreloadProgress),
    /// Where the ranks of the job run, if [`JobSpec::map`] says that the front gets it. This is the last message about a job
    /// that is not launched.
    Placed {
        map: Box<JobMap>,
        topologies: Box<Topologies>,
    },
    /// A start command asks the user. The next prompt is sent when this one is answered or withdrawn.
    Prompt(Prompt),
    /// The start command does not wait for the answer to this prompt any more.
    PromptWithdrawn(PromptId),
    /// Answer to [`FromFront::Prompt`]. This is the last message. `None`: the user does not answer.
    Answer(Option<Secret>),
    /// Answer to [`FromFront::LostNodes`]: the names of the lost nodes, as in the proc tables.
    Lost(Vec<String>),
    /// Answer to [`FromFront::Ask`].
    Reply(Box<Reply>),
    /// The job that the front has submitted waits in the queue of the machine, under this number. It is
    /// [`Self::Accepted`] when it starts.
    Queued(JobId),
    /// News of the tool that the front has requested for its own job.
    Tool(Box<ToolNews>),
    /// The job that the front has submitted has this number in the queue of the machine, and starts. [`Self::Accepted`] follows.
    Numbered(JobId),
}

/// Reason why the controller's process cannot start or continue. `Display` is the whole message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CannotRun {
    /// The machine of this name runs already.
    MachineRuns(String),
    /// The directory or the store of a machine cannot be used.
    NoMachine(String),
    /// The system has refused something.
    System(String),
    /// The file by which tools are to find the launcher cannot be written.
    ToolFile(String),
}

impl fmt::Display for CannotRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MachineRuns(name) => write!(f, "the machine `{name}` runs already"),
            Self::NoMachine(why) | Self::System(why) | Self::ToolFile(why) => f.write_str(why),
        }
    }
}

/// Reason why no rank was released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NotReleased {
    /// No such job exists, or it is being ended.
    NoSuchJob,
    /// None of the ranks is held or will be.
    NothingHeld,
}

/// Job with ranks that are held, or will be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldingJob {
    pub job: JobId,
    /// Pid of the front that submitted the job; `None` if a proc spawned the job.
    pub front: Option<u32>,
}

/// Row of the proc table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableRow {
    pub rank: Rank,
    pub host: String,
    pub executable: OsString,
    pub pid: i32,
}

/// Reason why a job was refused before anything was started.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Refusal {
    Placement(crate::place::Error),
    /// Error in a file name pattern of the output plan.
    Pattern(String),
    /// A node has fewer GPUs than its procs need.
    TooFewGpus {
        host: String,
        needed: u64,
        available: u32,
        procs: u32,
        share: GpuShare,
    },
    /// The job asks for resources by name, and only a machine counts them.
    NothingCounted,
    /// A daemon has a different [`super::VERSION`].
    OtherVersion {
        host: String,
        ours: u32,
        theirs: u32,
    },
    /// The user named a rank that does not exist: the job has fewer ranks.
    NoSuchRank {
        what: RankChoice,
        rank: Rank,
        size: u32,
    },
    /// The controller already has the maximum number of jobs.
    TooManyJobs {
        most: usize,
    },
    /// A node of the allocation was lost before the job was launched.
    NodeLost {
        host: String,
    },
    /// The daemons of some nodes did not start, or did not join the tree.
    NotJoined(NotJoined),
    /// The files that the job needs on its nodes could not be copied.
    NotPreloaded(NotPreloaded),
    /// The machine does not take the job.
    Machine(NotDone),
    /// The tool that has started the launcher has ended before it has released it.
    ToolEnded,
    /// The tool requires a directive that is not understood, or one has a value that makes no sense: its key.
    Directive(String),
    /// Processes of a tool cannot be started beside the ranks.
    NoTarget(NoTarget),
}

/// Purpose for which the user named a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RankChoice {
    Input,
    /// The rank whose output alone is shown.
    Output,
    Terminal,
    Held,
}

/// Condition that a user should know about and that does not end the job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Note {
    Placement(crate::place::Note),
    /// The job waits for a tool, because the environment of the launcher says so.
    WaitsForTool,
    /// These ranks have exited, but another process still held their output open after [`crate::life::LEAK_DELAY`].
    Leaky(RankSet),
    /// This many processes that ranks had left behind were ended.
    LeftBehind {
        node: NodeId,
        count: u32,
    },
    /// The debugger for which these ranks were held is gone. They keep running.
    DebuggerLost {
        job: JobId,
        ranks: RankSet,
    },
    /// These ranks did not reach their holding point within [`crate::HOLD_PATIENCE`]. `held` are the ranks that did; it
    /// may be empty.
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
    /// A job that a proc wanted to spawn is not started, because its files cannot be copied.
    SpawnRefused {
        by: ProcId,
        why: NotPreloaded,
    },
    /// These processes did not exit within the time allowed, not even after SIGKILL.
    Stuck {
        node: NodeId,
        pids: Vec<i32>,
    },
    /// These processes could not be ended because they belong to another user.
    NotPermitted {
        node: NodeId,
        pids: Vec<i32>,
    },
    /// These ranks exited with code 0 between `MPI_Init` and `MPI_Finalize`.
    Unfinished {
        ranks: RankSet,
        rest: Rest,
    },
    /// Connections to the PMIx port of a node were closed because of their peer or because of the data received.
    Refused(Refused),
    /// A resource or service that the job has to run without.
    Missing {
        /// `None`: the launcher's host, which is no node of the job.
        node: Option<NodeId>,
        what: Missing,
        /// Error text of the system.
        why: String,
    },
    /// The daemon of a node is gone, and with it all procs there.
    NodeLost {
        node: NodeId,
        why: String,
    },
    /// A connection to the port for other nodes was refused. `node` is the node of the port; `None` if the port is the
    /// controller's.
    Stranger {
        node: Option<NodeId>,
        from: SocketAddr,
        why: String,
    },
    /// Trouble at the controller's port for other nodes.
    Port(String),
    /// A job that a proc wanted to spawn is not started: it cannot be placed without the lost nodes.
    SpawnNotPlaced {
        by: ProcId,
        why: Box<Refusal>,
        lost: HostList,
    },
    /// A proc cannot spawn a job, because these daemons of its allocation did not start or did not join.
    SpawnNotStarted {
        by: ProcId,
        failed: NotJoined,
    },
    /// Some nodes of the machine cannot be used: their daemons did not start or did not join.
    NotJoined(NotJoined),
    /// These nodes do not enforce some limits of the job.
    NotLimited {
        hosts: HostList,
        unenforced: Unenforced,
    },
    /// A proc has asked for an allocation, and there is no queue that could grant it.
    NoScheduler {
        by: ProcId,
    },
    /// A request of a proc about an allocation of Slurm is refused.
    AllocationRefused {
        by: ProcId,
        why: AllocationRefusal,
    },
    /// An allocation that a proc has requested of Slurm could not be given back. `job` is the job of Slurm.
    AllocationLeft {
        job: u32,
        why: slurm::NotDone,
    },
    /// The start or the end of a spawned job, whose spawner wants it to be logged.
    Logged {
        job: JobId,
        news: JobNews,
        /// Seconds since 1970, in UTC; `None` if the time of day is not known.
        at: Option<u64>,
    },
    /// What a recorded rank has called last that has failed by itself.
    LastCall {
        rank: Rank,
        last: LastCall,
    },
}

/// The last call of MPI of a rank that has failed, as its recorder has written it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastCall {
    /// The function with its arguments, at most [`LastCall::BYTES_MAX`]: text of the rank, with communicators as it has named them.
    pub call: String,
    /// Number of the call among those of its thread, from 1.
    pub number: u64,
    /// Whether it had not returned.
    pub in_progress: bool,
}

impl LastCall {
    /// Longest description of a call.
    pub const BYTES_MAX: usize = 512;
}

/// The start or the end of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum JobNews {
    Started {
        ranks: u32,
    },
    Ended {
        /// Exit code of the job, as PMIx events have it.
        code: i32,
        cause: Box<Cause>,
    },
}

/// Why a request about an allocation of Slurm is refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AllocationRefusal {
    BySlurm(slurm::NotDone),
    /// A running job of Slurm cannot get nodes.
    MoreNodes,
    /// An allocation of Slurm is given back as a whole.
    Part,
}

/// Outcome of the job's other ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Rest {
    Well,
    /// Some ranks failed or were ended, and the exit code reports that.
    Badly,
}

impl Note {
    /// Returns true if the note is about connections of processes that are no ranks. The last job on a node brings it, whoever has started
    /// that.
    pub(crate) const fn is_about_strangers(&self) -> bool {
        matches!(self, Self::Refused(Refused { ranks: None, .. }))
    }
}

/// Connections to a PMIx port that were closed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    pub node: NodeId,
    /// Ranks whose connections were closed. `None` if the peers were no ranks of the job.
    pub ranks: Option<RankSet>,
    /// Number of connections closed.
    pub count: u64,
    /// The first reasons that occurred, each with the number of connections closed for it.
    pub reasons: Vec<(String, u64)>,
}

/// Resource or service that the system refused and that the job runs without.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Missing {
    /// Room for more PMIx connections. New clients wait until another connection ends.
    Room,
    /// A PMIx connection that could not be accepted.
    Client,
    /// The socket at which `rally release` finds the job.
    Control,
    /// The usual directory for the job's record, in which `rally` finds the job again. The record is in another
    /// directory.
    Place,
    /// The job's record: no directory for it is usable.
    Record,
    /// A directory for files of ranks, or a file for a tool. They get its path.
    Directory,
    /// The rest of this rank's output.
    Output(Rank),
    /// The recording of a node, or the rest of it.
    Recording,
    /// The removal of preloaded files.
    Removal,
    /// The recorder of calls of MPI.
    Recorder,
}
