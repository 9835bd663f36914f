//! What a job needs of the nodes.

use std::{collections::BTreeSet, time::Duration};

use base::NodeId;
use serde::{Deserialize, Serialize};

use super::{
    Amounts,
    planted::{self, Bug},
};

/// What a job needs: a number of equal units, each of them on one node.
///
/// `-n 64` is 64 units of a slot. `--nodes 4 -n 64` is 4 units of 16 slots on 4 nodes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Demand {
    /// At least 1.
    pub units: u32,
    /// Has at least one slot.
    pub unit: Amounts,
    /// Of counted resources, in addition, once on each node where the job has a unit.
    pub per_node: Amounts,
    pub spread: Spread,
    pub sharing: Sharing,
    /// Resources that no node has, for example licenses, for the whole job.
    pub shared: Amounts,
    /// Nodes that the job may use; `None` means all.
    pub only: Option<BTreeSet<NodeId>>,
}

/// How the units of a job are distributed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Spread {
    /// On few nodes.
    Pack,
    /// Each on a node of its own.
    Scatter,
}

/// Whether other jobs may use the same nodes at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Sharing {
    Shared,
    /// The job gets whole nodes.
    Exclusive,
}

impl Demand {
    /// Returns a demand for slots on any nodes.
    #[must_use]
    pub const fn slots(slots: u32) -> Self {
        Self {
            units: slots,
            unit: Amounts::slots(1),
            per_node: Amounts::slots(0),
            spread: Spread::Pack,
            sharing: Sharing::Shared,
            shared: Amounts::slots(0),
            only: None,
        }
    }

    /// Returns true if the job needs something beside slots.
    pub(crate) fn is_counted(&self) -> bool {
        let parts = [&self.unit, &self.per_node, &self.shared];
        parts.into_iter().any(Amounts::is_counted)
    }

    /// Returns the number of slots that the job needs at least.
    pub(super) fn slots_needed(&self) -> u64 {
        u64::from(self.units) * u64::from(self.unit.slots)
    }

    /// Returns true if the job may use this node.
    pub(super) fn admits(&self, node: NodeId) -> bool {
        self.only.as_ref().is_none_or(|only| only.contains(&node))
    }

    /// Returns how many units fit on a node of this capacity of which this much is available.
    pub(super) fn units_on(&self, capacity: &Amounts, available: &Amounts) -> u32 {
        if self.sharing == Sharing::Exclusive && available != capacity {
            return 0;
        }
        let units = available.units_beside(&self.per_node, &self.unit);
        let units = units.min(self.units);
        match self.spread {
            Spread::Pack => units,
            Spread::Scatter => units.min(1),
        }
    }

    /// Returns what the job takes of a node of this capacity for so many units.
    pub(super) fn taken(&self, capacity: &Amounts, units: u32) -> Amounts {
        if self.sharing == Sharing::Exclusive && !planted::is(Bug::ExclusiveShares) {
            return capacity.clone();
        }
        let mut taken = self.unit.times(units);
        if units > 0 && !planted::is(Bug::NodePartNotCounted) {
            taken.add(&self.per_node);
        }
        taken
    }
}

/// What a user submits for scheduling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Number of the user; limits count per user.
    pub user: u32,
    pub demand: Demand,
    /// Jobs of higher priority come first, then those that were submitted earlier.
    pub priority: i32,
    /// Time after which a task is ended; `None` for no limit.
    pub time_limit: Option<Duration>,
    pub after: Vec<Dependency>,
    /// `None` for a job of one task.
    pub array: Option<Array>,
    pub hold: Hold,
    pub on_node_loss: Requeue,
}

impl Request {
    /// Returns a request for slots, with no other wish.
    #[must_use]
    pub const fn slots(slots: u32) -> Self {
        Self {
            user: 0,
            demand: Demand::slots(slots),
            priority: 0,
            time_limit: None,
            after: Vec::new(),
            array: None,
            hold: Hold::No,
            on_node_loss: Requeue::Never,
        }
    }
}

/// The tasks of an array.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Array {
    /// Their indexes; not empty.
    pub indexes: base::RankSet,
    /// Most tasks that run at the same time; `None` for no limit.
    pub running_max: Option<u32>,
}

/// Whether a job waits for its release by the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Hold {
    No,
    ByUser,
    /// A task was requeued [`super::REQUEUES_MAX`] times.
    ByRequeues,
}

/// Whether a task that loses a node runs again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Requeue {
    Never,
    OnNodeLoss,
}

/// A condition for the start of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Dependency {
    pub on: base::JobId,
    pub kind: DependencyKind,
}

/// What the other job must have done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum DependencyKind {
    /// It has started (of an array, at least one task), or was canceled.
    Started,
    /// It has ended, however; of an array, all tasks have.
    Ended,
    /// It has ended with success. Otherwise the dependent job is canceled.
    Succeeded,
}
