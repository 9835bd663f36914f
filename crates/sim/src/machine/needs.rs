//! What jobs ask for, and what they need of the nodes.

use std::collections::{BTreeMap, BTreeSet};

use base::NodeId;
use dvm::queue::{Sharing, Spread};

/// What each task needs of the nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Needs {
    pub(super) units: u32,
    /// Slots of a unit, which is on one node.
    pub(super) unit: u32,
    /// GPUs of a unit.
    pub(super) gpus: u32,
    pub(super) spread: Spread,
    pub(super) sharing: Sharing,
    pub(super) only: Option<BTreeSet<NodeId>>,
}

/// A node as the machine knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) slots: u32,
    pub(super) gpus: u32,
    pub(super) is_implicit: bool,
    pub(super) standing: Standing,
    /// The call since which nothing may start there.
    pub(super) closed_since: Option<u64>,
    pub(super) is_drained: bool,
    /// It is to leave.
    pub(super) is_dropped: bool,
    /// Its daemon was told to end.
    pub(super) is_told: bool,
    /// Its daemon, by whose number the machine speaks of it.
    pub(super) daemon: NodeId,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Starting,
    Up,
    Lost,
    /// It was dropped, and is not listed.
    Gone,
}

impl Needs {
    pub(super) fn admits(&self, node: NodeId) -> bool {
        self.only.as_ref().is_none_or(|only| only.contains(&node))
    }

    /// Returns true if the nodes have room if nothing runs.
    pub(super) fn fit<'a>(&self, nodes: impl Iterator<Item = (NodeId, &'a Known)>) -> bool {
        let admitted = nodes.filter(|(id, _)| self.admits(*id));
        let units = admitted.map(|(_, node)| {
            let by_gpus = node.gpus.checked_div(self.gpus);
            let units = (node.slots / self.unit).min(by_gpus.unwrap_or(u32::MAX));
            match self.spread {
                Spread::Pack => units,
                Spread::Scatter => units.min(1),
            }
        });
        units.sum::<u32>() >= self.units
    }

    pub(super) const fn slots(&self) -> u32 {
        self.units * self.unit
    }
}

/// What a job asks for.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    /// `None` for all slots.
    pub(super) procs: Option<u32>,
    pub(super) map: Map,
    /// GPUs of each proc.
    pub(super) gpus: u32,
    pub(super) only: Option<BTreeSet<NodeId>>,
    pub(super) sharing: Sharing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Map {
    Slots,
    /// Each proc needs so many slots.
    Cpus(u32),
    /// So many procs on each node.
    PerNode(u32),
    /// The placement chooses among whole nodes.
    Whole,
}

impl Shape {
    /// Returns what the job needs of the nodes that have joined, and were not lost.
    pub(super) fn needs(&self, nodes: &BTreeMap<NodeId, Known>) -> Needs {
        // A name that no node has stands for nothing.
        let only = self.only.as_ref();
        let is_meant = |id: &NodeId| only.is_none_or(|only| only.contains(id));
        let meant = nodes.iter().filter(|(id, _)| is_meant(id));
        let meant = meant
            .map(|(_, node)| *node)
            .filter(|node| node.gpus >= self.gpus);
        let mut usable: Vec<Known> = meant
            .clone()
            .filter(|node| node.standing == Standing::Up)
            .collect();
        if usable.is_empty() {
            // It waits for what its lost nodes had.
            usable = meant.filter(|node| node.slots > 0).collect();
        }
        let all: u32 = usable.iter().map(|node| node.slots).sum();
        let count = u32::try_from(usable.len()).unwrap_or(u32::MAX);
        let (units, unit, procs, spread) = match self.map {
            Map::Slots => (self.procs.unwrap_or(all), 1, 1, Spread::Pack),
            Map::Cpus(each) => (self.procs.unwrap_or(all / each), each, 1, Spread::Pack),
            Map::PerNode(each) => {
                let units = self.procs.map_or(count, |procs| procs.div_ceil(each));
                let most = self.procs.map_or(each, |procs| procs.min(each));
                (units, each, most, Spread::Scatter)
            }
            Map::Whole => (count, 1, 1, Spread::Scatter),
        };
        let wanted = units.max(1);
        let is_shareable = all > 0 && usable.iter().all(|node| node.is_implicit);
        let may_share = is_shareable && self.map != Map::Whole;
        let units = if may_share {
            wanted.min((all / unit).max(1))
        } else {
            wanted
        };
        Needs {
            units,
            unit,
            // Procs that share slots do not share GPUs.
            gpus: self.gpus * (procs * wanted).div_ceil(units),
            spread,
            sharing: if self.map == Map::Whole {
                Sharing::Exclusive
            } else {
                self.sharing
            },
            only: self.only.clone(),
        }
    }
}
