//! The reservation of the head of the queue.

use std::collections::{BTreeMap, BTreeSet};

use base::{JobId, NodeId, Time};

use super::{
    Amounts, Demand, NodeState, TaskId,
    nodes::{self, Nodes, Units},
    planted::{self, Bug},
    running::{End, Part, Running},
};

/// Where the head of the queue is to run, and when at the latest, if every running task needs its whole time limit.
///
/// Other jobs may take what the head does not need. They may also take what it needs if they end before.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) job: JobId,
    /// `None` if it waits for a task without a time limit.
    pub(super) at: Option<Time>,
    /// The tasks on the nodes that it will get, which have to end before.
    pub(super) waits_for: BTreeSet<TaskId>,
    /// What others may keep beyond `at`, of the nodes that the head needs.
    spare: BTreeMap<NodeId, Amounts>,
    shared_spare: Amounts,
}

impl nodes::Limit for Plan {
    fn available(&self, node: NodeId, free: &Amounts) -> Amounts {
        let spare = self.spare.get(&node);
        spare.map_or_else(|| free.clone(), |spare| free.at_most(spare))
    }

    fn shared(&self, free: &Amounts) -> Amounts {
        free.at_most(&self.shared_spare)
    }
}

impl Plan {
    /// Lets the tasks end in the order of their time limits until the job fits. Returns `None` if it does not fit even then: nodes
    /// are closed or missing.
    pub(super) fn new(
        now: Time,
        job: JobId,
        demand: &Demand,
        nodes: &Nodes,
        running: &Running,
    ) -> Option<Self> {
        if !nodes.could_fit(demand) {
            return None;
        }
        let mut later = Later::new(demand, nodes);
        let mut released: Vec<(TaskId, &Part)> = Vec::new();
        let mut at = Some(now);
        for (end, task, part) in running.by_end() {
            let end = match end {
                End::At(time) => Some(time.max(now)),
                End::Unknown(_) if planted::is(Bug::UnlimitedEndsNow) => Some(now),
                End::Unknown(_) => None,
            };
            // Tasks that end at the same time are there for the others.
            let is_enough = later.is_enough(demand);
            if is_enough && (at.is_none() || end != at) {
                break;
            }
            later.release(demand, nodes, part);
            if !is_enough {
                released.push((task, part));
            }
            at = end;
        }
        let units = nodes.choose(demand, &later.available)?;
        let has_some = |part: &Part| {
            let is_there = |(id, _): &(NodeId, u32)| units.iter().any(|(node, _)| node == id);
            let has_shared = !part.demand.shared.is_nothing() && !demand.shared.is_nothing();
            has_shared || part.units.iter().any(is_there)
        };
        released.retain(|(_, part)| has_some(part));
        let waits_for = released.into_iter().map(|(task, _)| task).collect();
        let mut spare = BTreeMap::new();
        for (id, count) in units {
            let node = nodes.get(id)?;
            let mut rest = later
                .available
                .remove(&id)
                .unwrap_or_else(|| node.free.clone());
            rest.take(&demand.taken(&node.capacity, count));
            spare.insert(id, rest);
        }
        let mut shared_spare = later.shared;
        shared_spare.take(&demand.shared);
        Some(Self {
            job,
            at,
            waits_for,
            spare,
            shared_spare,
        })
    }

    /// Notes that a task has started which may run beyond the start of the head.
    pub(super) fn take(&mut self, demand: &Demand, nodes: &Nodes, units: &Units) {
        if planted::is(Bug::SpareNotTaken) {
            return;
        }
        for (id, count) in units {
            if let (Some(spare), Some(node)) = (self.spare.get_mut(id), nodes.get(*id)) {
                spare.take(&demand.taken(&node.capacity, *count));
            }
        }
        self.shared_spare.take(&demand.shared);
    }
}

/// What is available after some of the running tasks have ended.
struct Later {
    /// Nodes where more is available than now.
    available: BTreeMap<NodeId, Amounts>,
    shared: Amounts,
    /// Units of the job that fit.
    units: u64,
}

impl Later {
    fn new(demand: &Demand, nodes: &Nodes) -> Self {
        let now = nodes.iter().filter(|(id, node)| {
            // Most nodes of a busy machine have nothing free.
            node.free.slots > 0 && node.state == NodeState::Up && demand.admits(*id)
        });
        let units = now.map(|(_, node)| u64::from(demand.units_on(&node.capacity, &node.free)));
        Self {
            available: BTreeMap::new(),
            shared: nodes.shared_free.clone(),
            units: units.sum(),
        }
    }

    fn is_enough(&self, demand: &Demand) -> bool {
        self.units >= u64::from(demand.units) && self.shared.covers(&demand.shared)
    }

    /// Adds what a task has.
    fn release(&mut self, demand: &Demand, nodes: &Nodes, part: &Part) {
        self.shared.add(&part.demand.shared);
        for (id, count) in &part.units {
            let node = nodes.get(*id);
            let node = node.filter(|node| node.state == NodeState::Up && demand.admits(*id));
            let Some(node) = node else {
                continue;
            };
            let available = self.available.entry(*id);
            let available = available.or_insert_with(|| node.free.clone());
            let before = demand.units_on(&node.capacity, available);
            available.add(&part.demand.taken(&node.capacity, *count));
            let after = demand.units_on(&node.capacity, available);
            self.units += u64::from(after) - u64::from(before);
        }
    }
}
