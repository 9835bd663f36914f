//! What a front asks a machine, and what the machine answers.

use std::{collections::BTreeMap, ffi::OsString, time::Duration};

use base::{HostList, JobId, NodeId, Rank, RankSet, Signal, Usage};
use serde::{Deserialize, Serialize};

use super::{
    Wall,
    record::{Record, Submission},
    resources::{NoResource, TooMuch},
};
use crate::{
    alloc::AllocatedNode,
    bootstrap::NotJoined,
    queue::{Dependency, Hold, LimitHit, Refusal, TaskId},
};

/// Question or order of a front for the machine. Each is answered with one [`Reply`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Ask {
    /// What machine this is.
    Status,
    /// Answered like [`Self::Status`], once no node is being started. If the front gives up before, the machine ends.
    Ready,
    /// Adds a job. The answer comes when the job is stored.
    Submit(Box<Submission>),
    /// The jobs in the queue, and the last ones of those that are over, at most so many. Only jobs before this one.
    Jobs {
        over: u32,
        before: Option<JobId>,
    },
    Nodes,
    Explain(JobId),
    /// How a job stands, or how it has ended.
    Job(JobId),
    /// Where a task runs, and by which name tools find its procs.
    Run(TaskId),
    Hold(JobId),
    Release(JobId),
    Cancel(JobId, Option<RankSet>),
    /// Sends a signal to the procs of a job, or of some of its tasks. SIGSTOP pauses them: they keep their slots, until SIGCONT.
    Signal(JobId, Option<RankSet>, Signal),
    /// What the procs of a job, or of some of its tasks, use now. Answered with [`Reply::Usage`].
    Usage(JobId, Option<RankSet>),
    Prioritize(JobId, i32),
    /// Answered when these jobs are over.
    Wait(Vec<JobId>),
    /// No more jobs start on these nodes.
    Drain(HostList),
    /// Jobs start again on these nodes.
    Resume(HostList),
    Down(Down),
    /// Answered when the daemons of these nodes have joined or failed.
    Add(Box<Additions>),
    /// No more jobs start on these nodes. Answered when they are gone.
    Drop(HostList, Down),
    /// The machine ends, with all that runs, when the last front is gone that has asked for this.
    EndWithFront,
}

/// Nodes for a machine that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Additions {
    pub nodes: Vec<AllocatedNode>,
    /// Variables of the commands that start the daemons, `NAME=value`, in place of those of the machine with the same names: the agent
    /// of the login that has started the machine may be gone.
    pub environment: Vec<OsString>,
}

/// What happens to running jobs when the machine is to end, or nodes of it are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Down {
    /// Nothing happens if any job runs.
    IfIdle,
    /// No further job starts, and the end comes when the running ones have ended.
    WhenIdle,
    /// They are ended.
    Now,
}

/// Answer to an [`Ask`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    Status(Status),
    Submitted(JobId),
    /// Jobs in the order of their numbers, the last ones of those that were asked for. The others are before this one; `None` if
    /// there are none.
    Jobs {
        records: Vec<Record>,
        before: Option<JobId>,
    },
    Nodes(Vec<NodeLine>),
    Explained(Box<Explained>),
    Job(Box<Record>),
    /// `None`: the task does not run.
    Run(Option<RunLine>),
    /// The order was carried out.
    Done,
    /// These jobs are over.
    Over(Vec<Record>),
    Usage(Box<UsageReport>),
    Refused(NotDone),
    Added(Box<Added>),
}

/// What became of nodes that were added.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Added {
    pub joined: HostList,
    /// Nodes that were there before.
    pub there: HostList,
    pub failed: NotJoined,
}

/// Why a machine does not do what it was asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum NotDone {
    /// The process that was asked runs one job, and is no machine.
    NoMachine,
    NoSuchJob(JobId),
    /// The job is over.
    IsOver(JobId),
    /// No task of the job that is meant runs.
    NotRunning(JobId),
    /// The job is an allocation: its procs belong to the jobs that run in it.
    IsAllocation(JobId),
    NoSuchNode(String),
    NotAccepted(Refusal),
    NoResource(NoResource),
    /// The job depends on one that has failed.
    DependencyFailed(JobId),
    /// The store of the machine cannot be written, for the reason given.
    NotStored(String),
    /// The store cannot be read.
    NotRead(String),
    /// The machine ends, and takes no further jobs.
    GoingDown,
    /// So many jobs run.
    Busy(usize),
    /// So many tasks run on nodes that were to be dropped.
    NodesBusy(usize),
    /// The node is about to leave the machine. It can still be resumed.
    NodeLeaves(String),
    /// The daemon of the node was told to end.
    NodeEnds(String),
    /// The node has no daemon, so that it can be neither opened nor closed.
    NodeBad(String),
    /// The node was to be dropped, and was resumed.
    NodeStays(String),
    /// The machine has started so many daemons, and can start no further ones.
    TooManyStarts(u32),
}

/// Ranks in a [`UsageReport`] at most.
pub const USAGE_RANKS_MAX: usize = 10_000;

/// What the running procs of a job use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageReport {
    /// All procs, also those beyond [`USAGE_RANKS_MAX`].
    pub total: Usage,
    /// Memory that is resident now, in bytes, of all processes. Pages that processes share count for each.
    pub resident: u64,
    /// Number of procs.
    pub procs: u64,
    /// Number of processes: the procs, and what they have started.
    pub processes: u64,
    /// The procs by task and rank, the first [`USAGE_RANKS_MAX`].
    pub ranks: Vec<RankUsage>,
}

/// What a proc and the processes that it has started use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankUsage {
    /// Index of the task in its array.
    pub task: u32,
    /// The run: `rank` is a rank of this job of the controller.
    pub run: JobId,
    pub rank: Rank,
    pub host: String,
    pub pid: i32,
    pub processes: u32,
    /// Memory that is resident now, in bytes.
    pub resident: u64,
    /// Since their starts.
    pub used: Usage,
}

/// A machine in a few words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    pub name: String,
    pub since: Wall,
    pub nodes: u32,
    /// Nodes on which jobs may start.
    pub usable: u32,
    pub slots: u64,
    pub free: u64,
    /// Counted resources that no node has: all, and what is free.
    pub resources: BTreeMap<String, (u64, u64)>,
    pub waiting: u32,
    pub running: u32,
    /// Why the store cannot be written; `None` if it can.
    pub trouble: Option<String>,
    pub is_going_down: bool,
    /// What it has found in its store when it started.
    pub restored: Restored,
}

/// A node for listings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeLine {
    pub name: String,
    /// The number by which messages about jobs name it.
    pub number: NodeId,
    pub state: NodeStanding,
    pub slots: u32,
    pub free: u32,
    /// Counted resources by their names: all, and what is free. Memory is in bytes.
    pub resources: BTreeMap<String, (u64, u64)>,
    /// Numbers of the jobs that run there.
    pub jobs: Vec<JobId>,
}

/// A running task, for tools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunLine {
    /// The PMIx nspace of its procs, which they have in PMIX_NAMESPACE.
    pub nspace: String,
    /// The nodes that have procs of it.
    pub hosts: HostList,
}

/// Whether jobs start on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeStanding {
    Up,
    Drained,
    /// Its daemon is being started.
    Starting,
    /// Its daemon was lost or did not start, for the reason given.
    Bad(String),
    /// It is dropped, and its last jobs run, or its daemon ends.
    Leaving,
}

/// Why a job waits ([`crate::queue::Explanation`]), with times that a user can read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Explained {
    pub record: Record,
    pub why: Reason,
    /// The first jobs that come before it.
    pub ahead: Vec<JobId>,
    /// Number of all of them.
    pub ahead_count: usize,
    pub start: Start,
    pub sooner: Vec<Sooner>,
}

/// Why a job does not start now. See [`crate::queue::Why`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reason {
    NothingWaits,
    Held(Hold),
    Blocked(Vec<Dependency>),
    Limit(LimitHit),
    BehindLimit(JobId),
    TooLarge {
        room: u64,
    },
    /// Some of these nodes may be lost, and do not come back.
    NodesClosed {
        room: u64,
        closed: HostList,
        lost: HostList,
    },
    Head {
        waits_for: Vec<TaskId>,
    },
    NoRoom,
    /// The machine does not have what it needs, for example because it was started with less.
    TooMuch(TooMuch),
    WouldDelay {
        head: JobId,
        at: Option<Wall>,
    },
}

/// When a job starts at the latest, if all time limits are used up. See [`crate::queue::Estimate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Start {
    At(Wall),
    AfterUnlimited(TaskId),
    Unknown,
}

/// What would let a job start sooner. See [`crate::queue::Hint`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Sooner {
    Release,
    TimeLimit(Duration),
    Units(u32),
    Shared,
}

/// What a machine has found in its store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restored {
    /// Jobs in the queue.
    pub waiting: usize,
    /// Jobs that ran when the machine ended, and are lost.
    pub lost: Vec<JobId>,
    /// Jobs that ran when the machine ended, and wait again.
    pub requeued: Vec<JobId>,
    /// What cannot be read.
    pub damaged: Vec<Damage>,
}

/// A stored value that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Damage {
    #[error("the record of job {0} cannot be read")]
    Record(JobId),
    #[error("what job {0} runs cannot be read")]
    Spec(JobId),
    #[error("the number of the next job cannot be read")]
    Next,
    #[error("a newer version of rally has written it (format {0})")]
    Newer(u8),
}
