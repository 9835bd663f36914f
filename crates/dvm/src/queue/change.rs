//! Changes of what a running task has: more time, more units, or fewer.
//!
//! More is given under the rule of backfill, immediately or not at all: the head of the queue must not start later than it would.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use base::{JobId, NodeId, Time};

use super::{
    Amounts, Demand, JobState, Queue, Sharing, Spread, TaskId,
    job::Order,
    nodes::{NoLimit, Units},
    plan::Plan,
    planted::{self, Bug},
    running::{End, Mark, Part},
};

/// What a running task gets in addition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct More {
    /// Beyond its time limit. A task without a limit has all the time.
    pub time: Option<Duration>,
    /// Units like those that it has.
    pub units: u32,
    /// Nodes for these units; `None` means all.
    pub only: Option<BTreeSet<NodeId>>,
}

/// Why a running task does not get more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotExtended {
    #[error("it does not run")]
    NotRunning,
    #[error("it is beyond a limit of its user")]
    Limit,
    #[error("job {0} would start later")]
    Delays(JobId),
    #[error("there is no room now")]
    NoRoom,
}

impl Queue {
    /// Gives a running task more time and units. All that it has ends at the same time.
    ///
    /// # Errors
    ///
    /// Returns why it gets nothing.
    pub fn extend(&mut self, now: Time, task: TaskId, more: &More) -> Result<(), NotExtended> {
        let part = self.running.get(task);
        let part = part.filter(|part| part.mark == Mark::Nothing);
        let part = part.ok_or(NotExtended::NotRunning)?;
        let job = self.jobs.get(&task.job);
        let job = job.filter(|job| job.state() != JobState::Ending);
        let user = job.ok_or(NotExtended::NotRunning)?.request.user;
        let end = match (part.end, more.time) {
            (End::At(end), Some(time)) => End::new(end, Some(time)),
            (end, _) => end,
        };
        let wanted = Demand {
            units: more.units,
            only: self.other_nodes(part, more.only.as_ref()),
            // It has those already: they are for the whole task.
            shared: Amounts::slots(0),
            ..(*part.demand).clone()
        };
        self.check_limits(user, part, more.time, &wanted)?;
        let later = Part {
            end,
            ..part.clone()
        };
        let plan = self.plan_beside(now, task, &later)?;
        let units = match &plan {
            _ if more.units == 0 => Some(Units::new()),
            Some(plan) if !plan.is_over_before(end) => self.nodes.fit(&wanted, plan),
            _ => self.nodes.fit(&wanted, &NoLimit),
        };
        let units = units.ok_or(NotExtended::NoRoom)?;
        self.nodes.take(&wanted, &units);
        self.users.resize(user, 0, wanted.slots_needed());
        let all = later.demand.units.saturating_add(more.units);
        let extended = Part {
            demand: Arc::new(Demand {
                units: all,
                ..(*later.demand).clone()
            }),
            units: merged(&later.units, &units),
            ..later
        };
        self.running.replace(task, extended);
        self.is_changed = true;
        Ok(())
    }

    /// Takes units away from a running task, which must keep some. Returns false, and changes nothing, if it does not have all of them, or
    /// would keep units on a node that is its own, or of which it has a part for all of them.
    pub fn give_back(&mut self, task: TaskId, units: &Units) -> bool {
        let Some(part) = self.running.get(task) else {
            return false;
        };
        let Some(kept) = without(&part.units, units).filter(|kept| !kept.is_empty()) else {
            return false;
        };
        let is_kept = |(id, _): &(NodeId, u32)| kept.iter().any(|(node, _)| node == id);
        let is_whole =
            part.demand.sharing == Sharing::Exclusive || !part.demand.per_node.is_nothing();
        if is_whole && units.iter().any(is_kept) {
            return false;
        }
        let count = kept.iter().map(|(_, count)| *count);
        let kept_demand = Demand {
            units: count.fold(0, u32::saturating_add),
            ..(*part.demand).clone()
        };
        let (before, after) = (part.demand.slots_needed(), kept_demand.slots_needed());
        let given = Demand {
            shared: Amounts::slots(0),
            ..(*part.demand).clone()
        };
        let part = Part {
            demand: Arc::new(kept_demand),
            units: kept,
            ..part.clone()
        };
        self.nodes.give(&given, units);
        if let Some(job) = self.jobs.get(&task.job) {
            self.users.resize(job.request.user, before - after, 0);
        }
        self.running.replace(task, part);
        self.is_changed = true;
        true
    }

    /// Returns how many units of a job fit beside a running task that does not end before it, if nothing else runs.
    #[must_use]
    pub fn room_beside(&self, demand: &Demand, task: TaskId) -> u64 {
        let part = self.running.get(task);
        self.nodes.room_beside(demand, |id| {
            let part = part?;
            let (_, count) = part.units.iter().find(|(node, _)| *node == id)?;
            let node = self.nodes.get(id)?;
            Some(part.demand.taken(&node.capacity, *count))
        })
    }

    /// Returns the nodes for further units; a task with units on nodes of their own, or with a part for all units on a node, gets none where
    /// it has one.
    fn other_nodes(
        &self,
        part: &Part,
        only: Option<&BTreeSet<NodeId>>,
    ) -> Option<BTreeSet<NodeId>> {
        if part.demand.spread == Spread::Pack && part.demand.per_node.is_nothing() {
            return only.cloned();
        }
        let mut nodes = match only {
            Some(only) => only.clone(),
            None => self.nodes.iter().map(|(id, _)| id).collect(),
        };
        for (id, _) in &part.units {
            nodes.remove(id);
        }
        Some(nodes)
    }

    fn check_limits(
        &self,
        user: u32,
        part: &Part,
        time: Option<Duration>,
        wanted: &Demand,
    ) -> Result<(), NotExtended> {
        let more = wanted.slots_needed();
        let of_task = part.demand.slots_needed() + more;
        let of_user = self.users.of(user).slots + more;
        let is_within = |most: Option<u64>, slots| most.is_none_or(|most| slots <= most);
        // The first one of the user that waits has a part of the limits reserved for it.
        let waits = |(_, id): &Order| {
            self.jobs
                .get(id)
                .is_some_and(|job| job.request.user == user)
        };
        let leaves_quota = || !self.limits.are_of_users() || !self.ready.keys().any(waits);
        if time.is_some() && self.limits.task_time.is_some() {
            return Err(NotExtended::Limit);
        }
        let is_allowed = more == 0
            || leaves_quota()
                && is_within(self.limits.task_slots, of_task)
                && is_within(self.limits.user_slots, of_user);
        is_allowed.then_some(()).ok_or(NotExtended::Limit)
    }

    /// Returns the reservation of the head if a task has this part; `None` if no job has one.
    fn plan_beside(
        &self,
        now: Time,
        task: TaskId,
        later: &Part,
    ) -> Result<Option<Plan>, NotExtended> {
        let Some((head, job)) = self
            .plan
            .as_ref()
            .and_then(|plan| Some((plan.job, self.jobs.get(&plan.job)?)))
        else {
            return Ok(None);
        };
        let plan = |running| Plan::new(now, head, &job.demand, &self.nodes, running);
        let before = plan(&self.running);
        let mut running = self.running.clone();
        running.replace(task, later.clone());
        let after = plan(&running);
        let (Some(before), Some(after)) = (before, after) else {
            // Its nodes are closed: nothing is promised to it.
            return Ok(None);
        };
        let is_delayed = match (before.at, after.at) {
            (Some(before), Some(after)) => after > before,
            (Some(_), None) => true,
            // Without a time it has the nodes of those for which it waits.
            (None, _) => {
                let is_longer = self
                    .running
                    .get(task)
                    .is_some_and(|part| part.end != later.end);
                is_longer && (before.waits_for.contains(&task) || after.waits_for.contains(&task))
            }
        };
        if is_delayed && !planted::is(Bug::ExtensionDelays) {
            return Err(NotExtended::Delays(head));
        }
        Ok(Some(after))
    }
}

/// Returns the units of both.
fn merged(one: &Units, other: &Units) -> Units {
    let mut all = one.clone();
    for (id, count) in other {
        match all.iter_mut().find(|(node, _)| node == id) {
            Some((_, has)) => *has = has.saturating_add(*count),
            None => all.push((*id, *count)),
        }
    }
    all.sort_unstable();
    all
}

/// Returns the units without some of them; `None` if they have fewer on a node.
fn without(all: &Units, less: &Units) -> Option<Units> {
    let mut rest = all.clone();
    for (id, count) in less {
        let (_, has) = rest.iter_mut().find(|(node, _)| node == id)?;
        *has = has.checked_sub(*count)?;
    }
    rest.retain(|(_, count)| *count > 0);
    Some(rest)
}
