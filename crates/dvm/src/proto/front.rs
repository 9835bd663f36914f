//! The messages between a front and the controller.

use std::{ffi::OsString, fmt};

use base::{JobId, NodeId, Rank, RankSet, Signal};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{
    outcome::{Cause, EndReason, Outcome},
    output::{Chunk, Stream},
};
use crate::spec::{GpuShare, HoldAt, JobSpec, WindowSize};

/// The number that a controller has given to a front: a connection, with at most one job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FrontId(pub u32);

impl fmt::Display for FrontId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A job that a front means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobRef {
    /// The one that it has submitted.
    Own,
    Number(JobId),
    /// The one that the front with this pid has submitted.
    OfFront(u32),
}

/// From a front to the controller. What names no job is about the one that the front has submitted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum FromFront {
    /// Once. Answered by [`ToFront::Accepted`] or [`ToFront::Refused`].
    Submit(Box<JobSpec>),
    /// Bytes for the ranks that `JobSpec::stdin` names; never more than the credit given.
    Stdin(Bytes),
    /// The front's standard input has ended.
    StdinEof,
    /// The front wrote output that counted so much by [`crate::stdio::cost`], or threw it away.
    OutputCredit(OutputCredit),
    /// Pass a signal on to every rank of the job and of those that it has spawned.
    Signal(Signal),
    /// SIGTERM, grace, SIGKILL, also for what it has spawned. The reason becomes the cause of the job's end.
    End(EndReason),
    /// SIGKILL immediately.
    Kill(EndReason),
    /// Let held ranks run on, and do not hold those that have not come to their holding point. `None`: all. Answered by
    /// [`ToFront::Released`] or [`ToFront::NotReleased`].
    Release { job: JobRef, ranks: Option<RankSet> },
    /// The terminal of the rank with a pty has a new size.
    Resize(WindowSize),
    /// Which jobs hold ranks, or will. Answered by [`ToFront::Holding`].
    Holds,
}

/// Output of one stream of a job's ranks on a node that a front no longer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputCredit {
    pub job: JobId,
    pub node: NodeId,
    pub stream: Stream,
    pub bytes: u64,
}

/// From the controller to the front.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToFront {
    /// The number of the job that the front has submitted. The first message about it.
    Accepted(JobId),
    /// The job cannot be run at all; nothing was started. The last message about it.
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
    /// Ranks were let go; these are still held, or will be. For the front that has asked for it, and for the one whose job
    /// it is.
    Released {
        job: JobId,
        ranks: RankSet,
        held: RankSet,
    },
    /// Answers [`FromFront::Release`].
    NotReleased(NotReleased),
    /// Answers [`FromFront::Holds`].
    Holding(Vec<HoldingJob>),
    /// From now on the job is being ended; it did not come to its end by itself. Said at most once.
    Ending(Cause),
    Output {
        node: NodeId,
        chunk: Chunk,
    },
    /// The front may send so many bytes of stdin more.
    StdinCredit(u64),
    /// No rank reads stdin any more: what the front still has can be thrown away.
    StdinClosed,
    Note(Note),
    /// The last message about the job.
    Ended(Outcome),
    /// The controller's process cannot go on, and why. The last message.
    Failed(String),
    /// A rule that our own code keeps was broken, which ended nothing.
    Internal(String),
}

/// Why no rank was released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NotReleased {
    /// There is no such job, or it is being ended.
    NoSuchJob,
    /// None of the ranks is held or was to be.
    NothingHeld,
}

/// A job with ranks that are held, or will be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldingJob {
    pub job: JobId,
    /// The pid of the front that has submitted the job; `None` if a proc has spawned it.
    pub front: Option<u32>,
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
    /// A daemon speaks another version of [`super::VERSION`].
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
    /// The controller has so many jobs already.
    TooManyJobs {
        most: usize,
    },
    /// A node of the allocation was lost before the job was launched.
    NodeLost {
        host: String,
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
