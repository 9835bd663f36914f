//! Facts about a job that the host registers before any of the job's processes starts.

use std::ffi::CString;

use base::RankSet;

use super::Keeping;
use crate::value::{IofChannels, Kval, Nspace, Proc, Text};

/// A job as it is registered (job info: docs/formats/pmix.md, section 6.3).
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    pub nspace: Nspace,
    pub session: u32,
    /// Slots of the session (the Standard's universe size).
    pub universe: u32,
    /// Global rank of rank 0: its number among all ranks of the session.
    pub offset: u32,
    pub apps: Vec<AppFacts>,
    pub nodes: Vec<NodeFacts>,
    /// Facts about each rank, indexed by rank.
    pub ranks: Vec<RankFacts>,
    /// Index of this server's node in `nodes`; an index past their end if the job does not use this node.
    pub here: u32,
    /// The process that spawned the job; `None` if a user launched it.
    pub parent: Option<Proc>,
    /// The process that receives the job's output on these channels from the start, without a request of its own;
    /// `None` if there is none.
    pub forward: Option<(Proc, IofChannels)>,
    /// How much of the job's output is kept for tools that ask for it later; `None` if nothing is. Only a server that admits tools keeps
    /// it.
    pub keep: Option<Keeping>,
    pub map_by: Text,
    pub rank_by: Text,
    pub bind_to: Text,
    /// Paths of the session's directory, and of the job's directory inside it.
    pub session_dir: Text,
    pub job_dir: Text,
    /// The processes that stop for a debugger, and where; `None` if no process stops.
    pub stop: Option<Stop>,
    /// Facts that only some jobs have. Each key must be defined in the version of the Standard that the oldest library
    /// in the job implements: libpmix 4.2 rejects others.
    pub extra: Vec<Kval>,
}

/// Processes that wait for a debugger during their start (docs/formats/pmix.md, section 8).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop {
    pub place: StopIn,
    /// The ranks that stop; the job info of the other ranks does not mention it.
    pub ranks: RankSet,
}

/// The place where a process stops by itself because its job info says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StopIn {
    /// In PMIx_Init. Every version of libpmix stops there; from version 4 on, it also reports that it waits.
    Init,
    /// Where the program or its MPI library checks for the request: Open MPI does so at the end of MPI_Init.
    App,
}

/// One app of a job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AppFacts {
    /// The command line as one string, words separated by spaces.
    pub argv: Text,
    pub wdir: Text,
    pub size: u32,
    /// The app's lowest rank.
    pub leader: u32,
    /// Name of the process set to which its processes belong; `None` if they belong to none.
    pub set: Text,
}

/// One node of a job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeFacts {
    pub name: CString,
    pub id: u32,
    /// Number of processes of all jobs on the node, including those of this job.
    pub procs: u32,
    /// True if the node has more processes than slots. MPI libraries then yield the CPU while they wait.
    pub oversubscribed: bool,
}

/// One rank of a job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RankFacts {
    pub app: u32,
    pub app_rank: u32,
    /// Index of the rank's node in [`Job::nodes`].
    pub node: u32,
    pub local_rank: u16,
    /// Number of the process among those of all jobs on its node.
    pub node_rank: u16,
    /// The CPUs that the process is bound to, as a list; `None` if it is not bound.
    pub cpuset: Text,
    /// The location of these CPUs in the topology, as a locality string of hwloc; `None` if it is not known.
    pub locality: Text,
    /// Number of the process among those of its job on the same package; `None` if its CPUs are in several
    /// packages, or on a node of another server.
    pub package_rank: Option<u16>,
}
