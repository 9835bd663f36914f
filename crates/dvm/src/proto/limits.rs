//! Limits of jobs that are not enforced on a node, and counts of its cgroup.

use std::{collections::BTreeSet, time::Duration};

use base::Usage;
use serde::{Deserialize, Serialize};

use crate::spec::LimitedResource;

/// Limits that are not enforced on a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Unenforced {
    pub why: NotEnforced,
    pub limits: BTreeSet<LimitedResource>,
}

/// Reason why a node does not enforce a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum NotEnforced {
    /// The node has no cgroups of version 2, or does not show us our own one.
    NoCgroups,
    /// We may not make cgroups below our own one.
    NotPermitted,
    /// The cgroups that we make do not get the controller of this limit.
    NoController,
    /// Processes that are not ours are in our cgroup.
    Shared,
    /// The kernel has refused with this error number.
    Refused(i32),
}

/// What the processes of a job on one node have used, as their cgroup counts it: also those that have left their rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    pub user: Duration,
    pub system: Duration,
    /// The most memory that all of them have used together, in bytes; `None` if it is not counted.
    pub peak: Option<u64>,
    /// Bytes read from and written to storage; `None` if they are not counted.
    pub storage: Option<(u64, u64)>,
}

impl Counted {
    /// Returns the usage of the job on the node. What the cgroup does not count is taken from `procs`, the sum over the procs.
    #[must_use]
    pub fn or(self, procs: &Usage) -> Usage {
        let (read, written) = self.storage.unwrap_or((procs.read, procs.written));
        Usage {
            user: self.user,
            system: self.system,
            peak: self.peak.unwrap_or(procs.peak),
            read,
            written,
        }
    }
}
