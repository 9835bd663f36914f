//! What a host says of a job before any of its processes starts.

use std::ffi::CString;

use base::RankSet;

use crate::value::{IofChannels, Kval, Nspace, Proc, Text};

/// What is known of a job when it starts (docs/formats/pmix.md, section 6.3).
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    pub nspace: Nspace,
    pub session: u32,
    /// Slots that the session has, the standard's universe.
    pub universe: u32,
    /// The number of the first rank among all ranks of the session.
    pub offset: u32,
    pub apps: Vec<AppFacts>,
    pub nodes: Vec<NodeFacts>,
    /// By rank.
    pub ranks: Vec<RankFacts>,
    /// The node that this server is on: an index into `nodes`, or beyond them where it is on none of them.
    pub here: u32,
    /// Who has spawned it.
    pub parent: Option<Proc>,
    /// Who gets its output from the beginning, without having asked for it by a request of its own, and which.
    pub forward: Option<(Proc, IofChannels)>,
    pub map_by: Text,
    pub rank_by: Text,
    pub bind_to: Text,
    /// A directory for the session's files, and one in it for the job's.
    pub session_dir: Text,
    pub job_dir: Text,
    /// Which of its processes wait on their way to be released, and where.
    pub stop: Option<Stop>,
    /// Facts that only some jobs have. Their keys must be in the standard that the
    /// oldest library among its peers knows: libpmix 4.2 refuses others.
    pub extra: Vec<Kval>,
}

/// Processes that wait on their way until a debugger has them (section 8 of `docs/formats/pmix.md`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop {
    pub place: StopIn,
    /// The others are not told.
    pub ranks: RankSet,
}

/// Where a process stops by itself when it is told to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StopIn {
    /// In PMIx_Init. Every libpmix does it, from version 4 on with a word that it waits.
    Init,
    /// Where the program or its MPI library looks for it, as Open MPI does at the end of MPI_Init.
    App,
}

/// One program of a job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AppFacts {
    /// Its command line in one string.
    pub argv: Text,
    pub wdir: Text,
    pub size: u32,
    /// Its first rank.
    pub leader: u32,
}

/// One node of a job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeFacts {
    pub name: CString,
    pub id: u32,
    /// Processes of all jobs there, with this one's.
    pub procs: u32,
    /// More processes run there than it has slots: libraries then let others run while they wait.
    pub oversubscribed: bool,
}

/// One rank of a job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RankFacts {
    pub app: u32,
    pub app_rank: u32,
    /// An index into the job's nodes.
    pub node: u32,
    pub local_rank: u16,
    /// Its number among the processes of all jobs on the node.
    pub node_rank: u16,
    /// The CPUs it is bound to, as a list; absent when it is not bound.
    pub cpuset: Text,
    /// Where these are, in hwloc's notation.
    pub locality: Text,
}
