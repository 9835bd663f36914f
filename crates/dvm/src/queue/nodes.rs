//! The nodes of a machine, what of them is free, and where a job fits.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use base::NodeId;

use super::{
    Amounts, Demand, Sharing, Spread,
    planted::{self, Bug},
};

/// Whether jobs may start on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeState {
    Up,
    /// Its jobs run on, and no other starts: the user has drained it, or it has failed.
    Closed,
}

#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) capacity: Amounts,
    pub(super) free: Amounts,
    pub(super) state: NodeState,
}

impl Node {
    /// Returns true if tasks may start on it.
    fn is_used(&self) -> bool {
        self.state == NodeState::Up || planted::is(Bug::ClosedNodesUsed)
    }
}

/// Units of a job on each node.
pub type Units = Vec<(NodeId, u32)>;

/// The nodes, indexed by what is free.
#[derive(Clone, Debug, Default)]
pub(super) struct Nodes {
    all: BTreeMap<NodeId, Node>,
    /// Nodes that are up and have free slots, by their number.
    by_free: BTreeMap<u32, BTreeSet<NodeId>>,
    /// Nodes that are up and have no job.
    idle: BTreeSet<NodeId>,
    /// Free slots of the nodes that are up.
    free_slots: u64,
    /// All slots of the nodes that are up.
    up_slots: u64,
    /// Resources that no node has.
    pub(super) shared: Amounts,
    pub(super) shared_free: Amounts,
}

/// What jobs may take now. With a plan, less than is free.
pub(super) trait Limit {
    /// Returns what is available of a node, of which `free` is free.
    fn available(&self, node: NodeId, free: &Amounts) -> Amounts;
    /// Returns what is available of the resources that no node has.
    fn shared(&self, free: &Amounts) -> Amounts;
}

/// All that is free may be taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct NoLimit;

impl Limit for NoLimit {
    fn available(&self, _: NodeId, free: &Amounts) -> Amounts {
        free.clone()
    }

    fn shared(&self, free: &Amounts) -> Amounts {
        free.clone()
    }
}

impl Nodes {
    pub(super) const fn free_slots(&self) -> u64 {
        self.free_slots
    }

    pub(super) fn get(&self, node: NodeId) -> Option<&Node> {
        self.all.get(&node)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        self.all.iter().map(|(id, node)| (*id, node))
    }

    pub(super) fn add(&mut self, id: NodeId, capacity: Amounts) {
        assert!(!self.all.contains_key(&id), "node {id} is added twice");
        let node = Node {
            free: capacity.clone(),
            capacity,
            state: NodeState::Up,
        };
        self.all.insert(id, node);
        self.index(id);
    }

    /// Removes a node. The parts of it that tasks still have are not given back.
    pub(super) fn remove(&mut self, id: NodeId) {
        self.unindex(id);
        self.all.remove(&id);
    }

    /// Returns false if there is no such node.
    pub(super) fn set_state(&mut self, id: NodeId, state: NodeState) -> bool {
        self.unindex(id);
        let node = self.all.get_mut(&id);
        let is_there = node.map(|node| node.state = state).is_some();
        self.index(id);
        is_there
    }

    /// Takes a job's part of its nodes.
    pub(super) fn take(&mut self, demand: &Demand, units: &Units) {
        for (id, count) in units {
            self.unindex(*id);
            if let Some(node) = self.all.get_mut(id) {
                let taken = demand.taken(&node.capacity, *count);
                node.free.take(&taken);
            }
            self.index(*id);
        }
        if !planted::is(Bug::SharedNotCounted) {
            self.shared_free.take(&demand.shared);
        }
    }

    /// Gives a job's part of its nodes back. Nodes that were removed meanwhile are left out.
    pub(super) fn give(&mut self, demand: &Demand, units: &Units) {
        for (id, count) in units {
            self.unindex(*id);
            if let Some(node) = self.all.get_mut(id) {
                let taken = demand.taken(&node.capacity, *count);
                node.free.add(&taken);
            }
            self.index(*id);
        }
        if !planted::is(Bug::SharedNotCounted) {
            self.shared_free.add(&demand.shared);
        }
    }

    fn unindex(&mut self, id: NodeId) {
        let Some(node) = self.all.get(&id).filter(|node| node.is_used()) else {
            return;
        };
        let free = node.free.slots;
        self.free_slots -= u64::from(free);
        self.up_slots -= u64::from(node.capacity.slots);
        if let Some(nodes) = self.by_free.get_mut(&free) {
            nodes.remove(&id);
            if nodes.is_empty() {
                self.by_free.remove(&free);
            }
        }
        self.idle.remove(&id);
    }

    fn index(&mut self, id: NodeId) {
        let Some(node) = self.all.get(&id).filter(|node| node.is_used()) else {
            return;
        };
        let free = node.free.slots;
        self.free_slots += u64::from(free);
        self.up_slots += u64::from(node.capacity.slots);
        if free > 0 {
            self.by_free.entry(free).or_default().insert(id);
        }
        if node.free == node.capacity {
            self.idle.insert(id);
        }
    }

    /// Returns where a job fits within `limit`; `None` if it does not.
    ///
    /// A packed job gets the fullest node that has room for all of it, and otherwise as few nodes as possible. A scattered job
    /// gets the fullest nodes, so that large jobs find empty ones.
    pub(super) fn fit(&self, demand: &Demand, limit: &impl Limit) -> Option<Units> {
        if !limit.shared(&self.shared_free).covers(&demand.shared) {
            return None;
        }
        if demand.slots_needed() > self.free_slots {
            return None;
        }
        if demand.sharing == Sharing::Exclusive {
            return self.first(demand, limit, self.idle.iter().copied());
        }
        let unit = demand.unit.slots.max(1);
        // An upper bound on the units that fit, without a look at each node.
        let mut most = 0_u64;
        for (free, nodes) in self.by_free.range(unit..).rev() {
            let each = match demand.spread {
                Spread::Pack => free / unit,
                Spread::Scatter => 1,
            };
            let nodes = u64::try_from(nodes.len()).unwrap_or(u64::MAX);
            most = most.saturating_add(u64::from(each).saturating_mul(nodes));
            if most >= u64::from(demand.units) {
                break;
            }
        }
        if most < u64::from(demand.units) {
            return None;
        }
        let fullest_first = |slots: u32| {
            let levels = self.by_free.range(slots..);
            levels.flat_map(|(_, nodes)| nodes).copied()
        };
        if demand.spread == Spread::Scatter {
            return self.first(demand, limit, fullest_first(unit));
        }
        let all = u32::try_from(demand.slots_needed()).unwrap_or(u32::MAX);
        let has_all = |id: &NodeId| self.units_at(*id, demand, limit) >= demand.units;
        if let Some(one) = fullest_first(all).find(has_all) {
            return Some(vec![(one, demand.units)]);
        }
        let emptiest_first = self.by_free.range(unit..).rev();
        let emptiest_first = emptiest_first.flat_map(|(_, nodes)| nodes).copied();
        self.first(demand, limit, emptiest_first)
    }

    fn units_at(&self, id: NodeId, demand: &Demand, limit: &impl Limit) -> u32 {
        let Some(node) = self.all.get(&id).filter(|_| demand.admits(id)) else {
            return 0;
        };
        let available = limit.available(id, &node.free);
        demand.units_on(&node.capacity, &available)
    }

    /// Places units on the nodes in this order.
    fn first(
        &self,
        demand: &Demand,
        limit: &impl Limit,
        nodes: impl Iterator<Item = NodeId>,
    ) -> Option<Units> {
        let mut units = Units::new();
        let mut missing = demand.units;
        for id in nodes {
            let count = self.units_at(id, demand, limit).min(missing);
            if count > 0 {
                units.push((id, count));
                missing -= count;
            }
            if missing == 0 {
                units.sort_unstable();
                return Some(units);
            }
        }
        None
    }

    /// Returns how many units would fit on these nodes if nothing ran.
    pub(super) fn room(
        &self,
        demand: &Demand,
        is_meant: impl Fn(NodeId, NodeState) -> bool,
    ) -> u64 {
        let nodes = self.all.iter().filter(|(id, _)| demand.admits(**id));
        let meant = nodes.filter(|(id, node)| is_meant(**id, node.state));
        meant
            .map(|(_, node)| u64::from(demand.units_on(&node.capacity, &node.capacity)))
            .sum()
    }

    /// Returns how many units would fit if nothing else ran than what has this part of each node.
    pub(super) fn room_beside(
        &self,
        demand: &Demand,
        part: impl Fn(NodeId) -> Option<Amounts>,
    ) -> u64 {
        let nodes = self.all.iter().filter(|(id, _)| demand.admits(**id));
        let units = nodes.map(|(id, node)| {
            let mut available = node.capacity.clone();
            // A node that was removed and added again may have less than what a task has of it.
            if let Some(part) = part(*id).filter(|part| available.covers(part)) {
                available.take(&part);
            }
            u64::from(demand.units_on(&node.capacity, &available))
        });
        units.sum()
    }

    /// Returns true if a job would fit if nothing ran.
    pub(super) fn could_fit(&self, demand: &Demand) -> bool {
        let is_up = |_, state| state == NodeState::Up;
        demand.slots_needed() <= self.up_slots
            && self.shared.covers(&demand.shared)
            && self.room(demand, is_up) >= u64::from(demand.units)
    }

    /// Chooses nodes for a job out of what is available at some time. Takes as little as possible of what is free now, so that other
    /// jobs can use it beyond that time.
    pub(super) fn choose(
        &self,
        demand: &Demand,
        available: &BTreeMap<NodeId, Amounts>,
    ) -> Option<Units> {
        /// A node with the units that fit at that time. Orders first by the units that fit now, then by the free slots.
        type Candidate = (u32, u32, NodeId, u32);
        let mut candidates: Vec<Candidate> = Vec::new();
        for (id, node) in &self.all {
            if node.state != NodeState::Up || !demand.admits(*id) {
                continue;
            }
            let available = available.get(id).unwrap_or(&node.free);
            let units = demand.units_on(&node.capacity, available);
            if units > 0 {
                let now = demand.units_on(&node.capacity, &node.free);
                candidates.push((now, available.slots, *id, units));
            }
        }
        candidates.sort_unstable();
        if demand.spread == Spread::Pack && demand.sharing == Sharing::Shared {
            let mut all = candidates.iter();
            if let Some((_, _, id, _)) = all.find(|(_, _, _, units)| *units >= demand.units) {
                return Some(vec![(*id, demand.units)]);
            }
            candidates.sort_unstable_by_key(|(now, slots, id, _)| (*now, Reverse(*slots), *id));
        }
        let mut units = Units::new();
        let mut missing = demand.units;
        for (_, _, id, count) in candidates {
            let count = count.min(missing);
            units.push((id, count));
            missing -= count;
            if missing == 0 {
                units.sort_unstable();
                return Some(units);
            }
        }
        None
    }
}
