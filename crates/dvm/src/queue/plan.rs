//! The reservation of the head of the queue.

use std::collections::{BTreeMap, BTreeSet};

use base::{JobId, NodeId, Time};

use super::{
    Amounts, Demand, Limits, NodeState, TaskId,
    job::Use,
    nodes::{self, Nodes, Units},
    planted::{self, Bug},
    running::{End, Running},
};

/// Where the head of the queue is to run, and when at the latest, if every running task needs its whole time limit.
///
/// Other jobs may take what the head does not need. They may also take what it needs if they end before.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) job: JobId,
    /// `None` if it waits for a task without a time limit.
    pub(super) at: Option<Time>,
    /// The tasks that have to end before.
    pub(super) waits_for: BTreeSet<TaskId>,
    /// What others may keep beyond `at`, of the nodes that the head needs.
    spare: BTreeMap<NodeId, Amounts>,
    shared_spare: Amounts,
    /// What other jobs of its user may take, so that it does not meet a limit.
    quota: Quota,
}

/// What is left of the limits of a user.
#[derive(Clone, Copy, Debug)]
struct Quota {
    user: u32,
    tasks: u32,
    slots: u64,
}

/// The job for which a plan is made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head<'a> {
    pub(super) job: JobId,
    pub(super) user: u32,
    pub(super) demand: &'a Demand,
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
        head: Head<'_>,
        nodes: &Nodes,
        running: &Running,
        (used, limits): (Use, &Limits),
    ) -> Option<Self> {
        let Head { job, demand, .. } = head;
        let is_up = |state| state == NodeState::Up;
        if demand.slots_needed() > nodes.up_slots()
            || nodes.room(demand, is_up) < u64::from(demand.units)
            || !nodes.shared.covers(&demand.shared)
        {
            return None;
        }
        let mut later = Later::new(demand, nodes);
        let mut waits_for = BTreeSet::new();
        let mut at = Some(now);
        for (end, task, part) in running.by_end() {
            let end = match end {
                End::At(time) => Some(time.max(now)),
                End::Unknown(_) if planted::is(Bug::UnlimitedEndsNow) => Some(now),
                End::Unknown(_) => None,
            };
            // Tasks that end at the same time are there for the others.
            if later.is_enough(demand) && (at.is_none() || end != at) {
                break;
            }
            if later.release(demand, nodes, &part.demand, &part.units) {
                waits_for.insert(task);
            }
            at = end;
        }
        let units = nodes.choose(demand, &later.available)?;
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
        let quota = Quota::new(head, used, limits);
        Some(Self {
            job,
            at,
            waits_for,
            spare,
            shared_spare,
            quota,
        })
    }

    /// Returns true if the head stays within its user's limits if this task of some user starts.
    pub(super) fn leaves_quota(&self, user: u32, demand: &Demand) -> bool {
        let Quota { tasks, slots, .. } = self.quota;
        user != self.quota.user || (tasks > 0 && slots >= demand.slots_needed())
    }

    /// Notes that a task of some user has started.
    pub(super) fn started(&mut self, user: u32, demand: &Demand) {
        if user == self.quota.user {
            self.quota.tasks = self.quota.tasks.saturating_sub(1);
            self.quota.slots = self.quota.slots.saturating_sub(demand.slots_needed());
        }
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

impl Quota {
    fn new(head: Head<'_>, used: Use, limits: &Limits) -> Self {
        let tasks = used.running + 1;
        let slots = used.slots + head.demand.slots_needed();
        let (tasks_max, slots_max) = (limits.user_running, limits.user_slots);
        Self {
            user: head.user,
            tasks: tasks_max.map_or(u32::MAX, |most| most.saturating_sub(tasks)),
            slots: slots_max.map_or(u64::MAX, |most| most.saturating_sub(slots)),
        }
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

    /// Adds what a task has. Returns false if nothing of it is of use to the job.
    fn release(&mut self, demand: &Demand, nodes: &Nodes, other: &Demand, units: &Units) -> bool {
        let mut is_of_use = !other.shared.is_nothing() && !demand.shared.is_nothing();
        self.shared.add(&other.shared);
        for (id, count) in units {
            let node = nodes.get(*id);
            let Some(node) = node.filter(|node| node.state == NodeState::Up && demand.admits(*id))
            else {
                continue;
            };
            let available = self.available.entry(*id);
            let available = available.or_insert_with(|| node.free.clone());
            let before = demand.units_on(&node.capacity, available);
            available.add(&other.taken(&node.capacity, *count));
            let after = demand.units_on(&node.capacity, available);
            self.units += u64::from(after) - u64::from(before);
            is_of_use = true;
        }
        is_of_use
    }
}
