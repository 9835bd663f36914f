//! A scheduling pass: it starts what fits, reserves nodes for the head, and backfills.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use base::{JobId, Time};

use super::{
    Demand, DependencyKind, LimitHit, Output, Queue, TaskId,
    job::{Job, Order, Quota, Ready, ShapeId},
    nodes::{NoLimit, Units},
    plan::Plan,
    planted::{self, Bug},
    running::{End, Mark, Part},
};

/// What a pass has found out. Resources only become fewer during a pass, so what did not fit does not fit later.
#[derive(Debug, Default)]
struct Findings {
    /// Demands that do not fit, even if the head is delayed.
    too_large: BTreeSet<ShapeId>,
    /// Demands that do not fit beside the head's reservation.
    in_the_way: BTreeSet<ShapeId>,
    /// Demands that would not fit if nothing ran: nodes are closed.
    impossible: BTreeSet<ShapeId>,
    /// What the first waiting job of each user leaves of the user's limits. So small jobs do not keep a large one from starting.
    quotas: BTreeMap<u32, Quota>,
}

impl Findings {
    fn leaves_quota(&self, job: &Job) -> bool {
        let quota = self.quotas.get(&job.request.user);
        planted::is(Bug::QuotaNotReserved) || quota.is_none_or(|quota| quota.covers(&job.demand))
    }
}

impl Queue {
    pub(super) fn pass(&mut self, now: Time) {
        self.plan = None;
        let mut findings = Findings::default();
        // Taken out, so that the rest of the queue can change while we go through it.
        let ready = std::mem::take(&mut self.ready);
        let mut touched: Vec<(Order, JobId, bool)> = Vec::new();
        for (order, entry) in &ready {
            if self.plan.is_some() && self.nodes.free_slots() == 0 {
                break;
            }
            if self.is_full() {
                break;
            }
            let (_, id) = *order;
            if self.plan.is_some() && entry.slots > self.nodes.free_slots() {
                self.reserve_quota(id, entry.shape, &mut findings);
                continue;
            }
            let was_started = self.jobs.get(&id).is_some_and(Job::has_started);
            if self.start_tasks(now, id, *entry, &mut findings) {
                touched.push((*order, id, was_started));
            }
        }
        self.ready = ready;
        for (order, id, was_started) in touched {
            let ready = self.jobs.get(&id).and_then(Job::ready);
            if ready.is_none() {
                self.ready.remove(&order);
            }
            if !was_started {
                self.met(id, DependencyKind::Started);
            }
        }
    }

    /// Starts as many tasks of a job as the rules allow. Returns true if one has started.
    fn start_tasks(&mut self, now: Time, id: JobId, entry: Ready, findings: &mut Findings) -> bool {
        let Ready { shape, .. } = entry;
        let mut has_started = false;
        while let Some(job) = self.jobs.get(&id)
            && let Some(index) = job.next()
            && self.limit_hit(job).is_none()
            && findings.leaves_quota(job)
        {
            let demand = Arc::clone(&job.demand);
            let user = job.request.user;
            let end = End::new(now, job.request.time_limit);
            let Some(units) = self.find(now, id, shape, &demand, end, findings) else {
                break;
            };
            if let Some(quota) = findings.quotas.get_mut(&user) {
                quota.take(&demand);
            }
            self.nodes.take(&demand, &units);
            self.users.start(user, demand.slots_needed());
            let task = TaskId { job: id, index };
            let part = Part {
                mark: Mark::Nothing,
                demand,
                units: units.clone(),
                end,
            };
            self.running.insert(task, part);
            if let Some(job) = self.jobs.get_mut(&id) {
                job.start();
            }
            self.outputs.push_back(Output::Start { task, units });
            has_started = true;
        }
        self.reserve_quota(id, shape, findings);
        has_started
    }

    /// Reserves a part of its user's limits for the next task of a job, if it is the first of its user that has to wait. A job that
    /// waits for its own array or for closed nodes, or that needs more than the limits allow at all, reserves nothing.
    fn reserve_quota(&self, id: JobId, shape: ShapeId, findings: &mut Findings) {
        if !self.limits.are_of_users() || findings.impossible.contains(&shape) {
            return;
        }
        let Some(job) = self.jobs.get(&id) else {
            return;
        };
        let user = job.request.user;
        if findings.quotas.contains_key(&user) || !self.reserves_quota(job) {
            return;
        }
        let quota = Quota::beside(job, self.users.of(user), &self.limits);
        findings.quotas.insert(user, quota);
    }

    /// Returns true if a waiting job may start as soon as there is room, and its user is within the limits.
    pub(super) fn reserves_quota(&self, job: &Job) -> bool {
        let slots = job.demand.slots_needed();
        let is_allowed = self.limits.user_slots.is_none_or(|most| slots <= most);
        let has_room = !matches!(self.limit_hit(job), Some(LimitHit::ArrayRunning(_)));
        job.ready().is_some() && is_allowed && has_room && self.nodes.could_fit(&job.demand)
    }

    /// Returns where a task can start now; `None` if it has to wait. The first one that has to becomes the head.
    fn find(
        &mut self,
        now: Time,
        id: JobId,
        shape: ShapeId,
        demand: &Demand,
        end: End,
        findings: &mut Findings,
    ) -> Option<Units> {
        if findings.too_large.contains(&shape) {
            return None;
        }
        let Some(plan) = &mut self.plan else {
            let units = self.nodes.fit(demand, &NoLimit);
            if units.is_none() && !findings.impossible.contains(&shape) {
                if planted::is(Bug::NobodyIsHead) {
                    return None;
                }
                self.plan = Plan::new(now, id, demand, &self.nodes, &self.running);
                if self.plan.is_none() {
                    findings.impossible.insert(shape);
                }
                findings.too_large.insert(shape);
            }
            return units;
        };
        if plan.is_over_before(end) {
            let units = self.nodes.fit(demand, &NoLimit);
            if units.is_none() {
                findings.too_large.insert(shape);
            }
            return units;
        }
        if findings.in_the_way.contains(&shape) {
            return None;
        }
        let units = self.nodes.fit(demand, plan);
        match &units {
            Some(units) => plan.take(demand, &self.nodes, units),
            None => drop(findings.in_the_way.insert(shape)),
        }
        units
    }

    /// Returns true if no task may start, whoever has submitted it.
    fn is_full(&self) -> bool {
        let most = self.limits.running;
        most.is_some_and(|most| self.running.len() >= most as usize)
    }

    /// Returns the limit that keeps the next task of a job from starting, if one does.
    pub(super) fn limit_hit(&self, job: &Job) -> Option<LimitHit> {
        if self.is_full() {
            return self.limits.running.map(LimitHit::Running);
        }
        let used = self.users.of(job.request.user);
        let array = job.request.array.as_ref();
        let array_max = array.and_then(|array| array.running_max);
        let array_max = array_max.filter(|_| !planted::is(Bug::ArrayWithoutLimit));
        if let Some(most) = array_max.filter(|most| job.running >= *most) {
            return Some(LimitHit::ArrayRunning(most));
        }
        let user_max = self.limits.user_running;
        if let Some(most) = user_max.filter(|most| used.running >= *most) {
            return Some(LimitHit::UserRunning(most));
        }
        if planted::is(Bug::UserSlotsIgnored) {
            return None;
        }
        let slots = used.slots + job.demand.slots_needed();
        let slots_max = self.limits.user_slots.filter(|most| slots > *most);
        slots_max.map(LimitHit::UserSlots)
    }
}

impl Plan {
    /// Returns true if a task that ends then does not delay the head.
    pub(super) fn is_over_before(&self, end: End) -> bool {
        match (end, self.at) {
            (End::At(_), _) if planted::is(Bug::BackfillDelays) => true,
            (End::At(end), Some(at)) => end <= at,
            _ => false,
        }
    }
}
