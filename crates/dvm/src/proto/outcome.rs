//! How a job ends, and why.

use std::ffi::OsString;

use base::{ExitStatus, JobId, Rank, RankSet, Signal};
use serde::{Deserialize, Serialize};

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
