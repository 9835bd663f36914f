//! Processes of a tool beside the ranks of a running job.
//!
//! They are procs of a job of their own, whose daemons start them where the ranks are. The ranks' job lends its environment, working
//! directories and nodes. To the application and to MPI, this job does not exist.

use base::{JobId, RankSet};
use serde::{Deserialize, Serialize};

/// What has one process of a tool each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnePer {
    /// Each node of the target.
    Node,
    /// Each rank of the target.
    Rank,
}

/// The ranks beside which the procs of a job are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beside {
    pub target: JobId,
    /// Name of the target in PMIx.
    pub nspace: String,
    pub one_per: OnePer,
    /// The ranks that had not ended when the tool was requested.
    pub ranks: RankSet,
}

/// Why no processes are started beside a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NoTarget {
    /// There is no such job, or it is being ended.
    NoSuchJob,
    /// It has not started yet.
    NotStarted,
    /// It is itself a tool beside another job.
    IsTool,
    /// It would take more processes than a map can have.
    TooMany,
}
