//! Result of a job, and its cause.

use std::ffi::OsString;

use base::{ExitStatus, JobId, NodeId, Rank, RankSet, Signal};
use serde::{Deserialize, Serialize};

/// Reason why a front or the controller ended a job that had not failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EndReason {
    /// The front received this signal.
    Signal(Signal),
    /// The reader of the job's output is gone.
    OutputLost,
    /// The time limit of the job has expired.
    TimeLimit,
    /// The first proc has exited, and the time that the other procs get after that has expired.
    Waited,
    /// The connection to the front was lost.
    FrontLost,
    /// The job that spawned this job has ended.
    SpawnerEnded,
    /// The debugger for which the job's procs were held is gone.
    DebuggerLost,
    /// Reading the job's input failed with this errno. An EOF would hide from the ranks that input is missing.
    InputLost(i32),
    /// The front's terminal has hung up.
    TerminalLost,
    /// A user has canceled the job, or ended the machine.
    Canceled,
    /// The tool that has started the launcher is dead.
    ToolEnded,
    /// The job for whose ranks the tool was started has ended.
    TargetEnded,
}

/// Result of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    pub cause: Cause,
    /// Number of ranks of the job.
    pub size: u32,
    /// Exit statuses of the procs that ran, merged into classes. Each rank is in exactly one class, or in
    /// `not_started`, or in `left`.
    pub ended: Vec<(ExitStatus, RankSet)>,
    /// Ranks that were never started.
    pub not_started: RankSet,
    /// The nodes on which the start of ranks has failed, and these ranks. The proc table lacks them.
    pub failed_on: Vec<(NodeId, RankSet)>,
    /// Ranks in `ended` that exited only after we had begun to end the job.
    pub ended_by_us: RankSet,
    /// Ranks that keep running because we cannot end them.
    pub left: RankSet,
}

/// Cause of a job's end: the first event that decided it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Cause {
    /// Every proc exited with code 0.
    Success,
    /// First proc that failed. Under [`crate::spec::OnFailure::Continue`], the other procs may have run on.
    Failed {
        rank: Rank,
        status: ExitStatus,
    },
    /// A proc asked for the end of the job (`MPI_Abort`).
    Aborted {
        rank: Rank,
        code: u8,
        message: String,
    },
    /// Procs could not be started. Ranks with the same failure share one class.
    NotStarted(Vec<(StartFailure, RankSet)>),
    /// A proc violated the protocol of the process management interface (PMI or PMIx).
    Protocol {
        rank: Rank,
        what: String,
    },
    /// Procs exited with code 0 without initializing the process management interface, and other procs waited there for
    /// them.
    Absent(RankSet),
    /// Procs exited with code 0 without finalizing the process management interface, and other procs had not finalized
    /// yet.
    Unfinished(RankSet),
    /// The daemon of a node was lost, and with it the ranks there.
    NodeLost {
        node: NodeId,
        why: String,
    },
    Ended(EndReason),
    /// A job that a proc had spawned by PMI ended with this cause. The two jobs are one MPI program.
    Spawned {
        job: JobId,
        cause: Box<Self>,
    },
}

/// Reason why a proc could not be started.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct StartFailure {
    pub step: StartStep,
    /// Error number of the system call that failed.
    pub errno: i32,
    /// Path or name that the failed step used, if any.
    pub subject: Option<OsString>,
}

/// Step of starting a proc.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum StartStep {
    /// The file descriptors for all procs of the node. They must all be available before any proc starts.
    Room,
    /// The search for the program in the search path.
    Find,
    /// The pipes, pty or socket of the proc.
    Channels,
    /// The file for stdout or stderr.
    OutputFile,
    Fork,
    ProcessGroup,
    /// The signal that the proc gets when its parent dies (`PR_SET_PDEATHSIG`).
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
    /// The cgroup in which the limits of the job are enforced.
    Cgroup,
}
