//! What a correct queue may do, computed anew each time and without its data structures.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use base::{JobId, NodeId, Time};
use dvm::queue::{
    DependencyKind, Hold, Limits, NodeState, Outcome, Over, REQUEUES_MAX, Request, Requeue,
    Sharing, Spread, TaskId, Units,
};

/// Slots and GPUs, or licenses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Have {
    pub(super) slots: u64,
    pub(super) gpus: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) has: Have,
    pub(super) state: NodeState,
}

/// What is submitted.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) request: Request,
    /// Of each unit.
    pub(super) needs: Have,
    /// GPUs on each node where it has a unit, in addition.
    pub(super) once: u64,
    pub(super) licenses: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) request: Request,
    /// Of each unit.
    pub(super) needs: Have,
    /// GPUs on each node where it has a unit, in addition.
    pub(super) once: u64,
    /// Licenses of each task.
    pub(super) licenses: u64,
    /// The tasks that have not started; a job without an array has the task `None`.
    pub(super) waiting: BTreeSet<Option<u32>>,
    pub(super) running: BTreeMap<Option<u32>, Units>,
    /// The jobs for which it waited when it was submitted.
    unmet: BTreeSet<(JobId, DependencyKind)>,
    /// Its last condition was met during the pass that is going on, which does not know it yet.
    is_fresh: bool,
    has_started: bool,
    has_failed: bool,
    has_withdrawn: bool,
    is_canceled: bool,
    /// Running tasks of which a node was removed, and those that were canceled.
    lost: BTreeSet<Option<u32>>,
    canceled: BTreeSet<Option<u32>>,
    /// A job on which it depends has not succeeded.
    failed: Option<JobId>,
    requeues: BTreeMap<Option<u32>, u32>,
}

/// Whether a pass knows jobs whose last condition was met since it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fresh {
    Known,
    Unknown,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    pub(super) nodes: BTreeMap<NodeId, Node>,
    pub(super) licenses: u64,
    pub(super) limits: Limits,
    pub(super) jobs: BTreeMap<JobId, Job>,
    /// The head, and the time that it was promised.
    promise: Option<(JobId, Time)>,
}

impl Job {
    fn count(&self) -> u32 {
        u32::try_from(self.running.len()).unwrap_or(u32::MAX)
    }

    fn slots(&self) -> u64 {
        u64::from(self.request.demand.units) * self.needs.slots
    }

    fn slots_in_use(&self) -> u64 {
        let units = self.running.values().flatten();
        let units: u64 = units.map(|(_, count)| u64::from(*count)).sum();
        units * self.needs.slots
    }

    fn is_ready(&self) -> bool {
        !self.waiting.is_empty()
            && !self.is_canceled
            && self.request.hold == Hold::No
            && self.unmet.is_empty()
    }
}

impl Model {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            ..Self::default()
        }
    }

    pub(super) fn submit(&mut self, id: JobId, wanted: Wanted) {
        let Wanted {
            mut request,
            needs,
            once,
            licenses,
        } = wanted;
        request.time_limit = request.time_limit.or(self.limits.task_time);
        let waiting = match &request.array {
            Some(array) => array.indexes.iter().map(|index| Some(index.0)).collect(),
            None => BTreeSet::from([None]),
        };
        let unmet = request.after.iter().filter(|after| {
            let started = self.jobs.get(&after.on).is_some_and(|job| job.has_started);
            !(after.kind == DependencyKind::Started && started)
        });
        let unmet = unmet.map(|after| (after.on, after.kind)).collect();
        let job = Job {
            request,
            needs,
            once,
            licenses,
            waiting,
            running: BTreeMap::new(),
            unmet,
            is_fresh: false,
            has_started: false,
            has_failed: false,
            has_withdrawn: false,
            is_canceled: false,
            lost: BTreeSet::new(),
            canceled: BTreeSet::new(),
            failed: None,
            requeues: BTreeMap::new(),
        };
        self.jobs.insert(id, job);
    }

    /// Returns what is used of a node.
    fn used(&self, node: NodeId) -> Have {
        let mut used = Have::default();
        for job in self.jobs.values() {
            for units in job.running.values() {
                for (_, count) in units.iter().filter(|(id, _)| *id == node) {
                    used.slots += job.needs.slots * u64::from(*count);
                    used.gpus += job.needs.gpus * u64::from(*count) + job.once;
                }
            }
        }
        used
    }

    /// Returns true if a task has the whole node, or any task has a part of it.
    fn is_taken(&self, node: NodeId, sharing: Sharing) -> bool {
        self.jobs.values().any(|job| {
            let mut units = job.running.values().flatten();
            let is_there = units.any(|(id, _)| *id == node);
            is_there
                && (sharing == Sharing::Exclusive
                    || job.request.demand.sharing == Sharing::Exclusive)
        })
    }

    /// Returns how many units of a job a node has room for.
    fn room_on(&self, id: NodeId, job: &Job) -> u64 {
        let demand = &job.request.demand;
        let Some(node) = self.nodes.get(&id) else {
            return 0;
        };
        let is_barred = demand.only.as_ref().is_some_and(|only| !only.contains(&id));
        if is_barred || node.state != NodeState::Up || self.is_taken(id, demand.sharing) {
            return 0;
        }
        let used = self.used(id);
        let by_slots = (node.has.slots - used.slots) / job.needs.slots;
        let Some(gpus) = (node.has.gpus - used.gpus).checked_sub(job.once) else {
            return 0;
        };
        let by_gpus = gpus.checked_div(job.needs.gpus);
        let units = by_slots.min(by_gpus.unwrap_or(u64::MAX));
        match demand.spread {
            Spread::Pack => units,
            Spread::Scatter => units.min(1),
        }
    }

    fn fits(&self, job: &Job) -> bool {
        let room: u64 = self.nodes.keys().map(|id| self.room_on(*id, job)).sum();
        room >= u64::from(job.request.demand.units)
            && self.licenses_used() + job.licenses <= self.licenses
    }

    fn licenses_used(&self) -> u64 {
        let tasks = |job: &Job| u64::try_from(job.running.len()).unwrap_or(u64::MAX);
        self.jobs
            .values()
            .map(|job| job.licenses * tasks(job))
            .sum()
    }

    /// Returns true if the next task of a job may start as far as the user and the limits are concerned.
    fn may_start(&self, id: JobId, job: &Job) -> bool {
        job.is_ready() && self.is_within_limits(id, job)
    }

    /// Returns the first waiting job of a job's user, if it comes before the job: the job has to leave room for it. Whether the pass
    /// knows those that are fresh cannot be seen from outside.
    fn first_of_user(&self, id: JobId, job: &Job, fresh: Fresh) -> Option<&Job> {
        let place = |id: JobId, job: &Job| (Reverse(job.request.priority), id);
        let before = self.jobs.iter().filter(|(other, entry)| {
            entry.request.user == job.request.user
                && entry.is_ready()
                && (!entry.is_fresh || fresh == Fresh::Known)
                && place(**other, entry) < place(id, job)
                && self.is_within_array(entry)
                && self.has_room(**other)
        });
        let first = before.min_by_key(|(other, entry)| place(**other, entry));
        first.map(|(_, first)| first)
    }

    /// Returns true if no limit keeps the job from starting.
    fn is_within_limits(&self, id: JobId, job: &Job) -> bool {
        let is_within = |fresh| {
            let first = self.first_of_user(id, job, fresh);
            let (slots, tasks) = first.map_or((0, 0), |first| (first.slots(), 1));
            self.is_within_user(job, slots, tasks)
        };
        self.is_within_array(job) && [Fresh::Known, Fresh::Unknown].into_iter().any(is_within)
    }

    fn is_within_array(&self, job: &Job) -> bool {
        let array = job.request.array.as_ref();
        let most = array.and_then(|array| array.running_max);
        most.is_none_or(|most| job.count() < most)
    }

    /// Returns true if its user may run the job, and besides so many tasks with so many slots.
    fn is_within_user(&self, job: &Job, slots: u64, tasks: u32) -> bool {
        let of_user = || {
            let others = self.jobs.values();
            others.filter(|other| other.request.user == job.request.user)
        };
        let used: u64 = of_user().map(Job::slots_in_use).sum();
        let running: u32 = of_user().map(Job::count).sum();
        let Limits {
            user_running,
            user_slots,
            ..
        } = self.limits;
        user_running.is_none_or(|most| running + tasks < most)
            && user_slots.is_none_or(|most| used + slots + job.slots() <= most)
    }

    /// Notes and checks the start of a task. Returns a description of an error.
    pub(super) fn on_start(&mut self, now: Time, task: TaskId, units: &Units) -> Option<String> {
        let Some(job) = self.jobs.get(&task.job) else {
            return Some(format!("{task} starts, and there is no such job"));
        };
        if !job.waiting.contains(&task.index) {
            return Some(format!("{task} starts, and does not wait"));
        }
        if !self.may_start(task.job, job) {
            return Some(format!("{task} starts, and may not: {job:?}"));
        }
        let mut count = 0;
        for (node, units) in units {
            if u64::from(*units) > self.room_on(*node, job) {
                return Some(format!(
                    "{task} gets {units} units on node {node}, which has no room"
                ));
            }
            count += units;
        }
        if count != job.request.demand.units {
            return Some(format!("{task} gets {count} units"));
        }
        if self.licenses_used() + job.licenses > self.licenses {
            return Some(format!("{task} gets licenses that others have"));
        }
        if let Some((head, at)) = self.promise.take_if(|(head, _)| *head == task.job)
            && now > at
        {
            return Some(format!("{head} starts, and was promised {at}"));
        }
        let place = |id: JobId| Some((Reverse(self.jobs.get(&id)?.request.priority), id));
        if let Some((head, _)) = self.promise
            && place(task.job) < place(head)
        {
            // It had reached a limit when the promise was made.
            self.promise = None;
        }
        let job = self.jobs.get_mut(&task.job)?;
        job.waiting.remove(&task.index);
        job.running.insert(task.index, units.clone());
        job.has_started = true;
        self.met(task.job, DependencyKind::Started);
        None
    }

    /// Notes that a running task has other units now, so many. Returns a description of an error.
    pub(super) fn on_changed(&mut self, task: TaskId, units: &Units, count: u32) -> Option<String> {
        let job = self.jobs.get_mut(&task.job)?;
        let has: u32 = units.iter().map(|(_, count)| *count).sum();
        if has != count {
            return Some(format!(
                "{task} has {units:?}, and should have {count} units"
            ));
        }
        let is_scattered = job.request.demand.spread == Spread::Scatter;
        if is_scattered && units.iter().any(|(_, count)| *count > 1) {
            return Some(format!(
                "{task} has {units:?}, and wants a node for each unit"
            ));
        }
        let sharing = job.request.demand.sharing;
        job.running.insert(task.index, Units::new());
        let alone = units.iter().find(|(id, _)| self.is_taken(*id, sharing));
        if let Some((id, _)) = alone {
            return Some(format!("{task} gets node {id}, which others have"));
        }
        let job = self.jobs.get_mut(&task.job)?;
        job.running.insert(task.index, units.clone());
        let is_full = |(id, node): &(&NodeId, &Node)| {
            let used = self.used(**id);
            used.slots > node.has.slots || used.gpus > node.has.gpus
        };
        let full = self.nodes.iter().find(is_full);
        full.map(|(id, _)| format!("{task} gets more of node {id} than there is"))
    }

    /// Notes the end of a task. Returns true if it waits again.
    pub(super) fn on_end(&mut self, task: TaskId, outcome: Outcome) -> bool {
        let Some(job) = self.jobs.get_mut(&task.job) else {
            return false;
        };
        job.running.remove(&task.index);
        let was_lost = job.lost.remove(&task.index) && outcome != Outcome::Succeeded;
        let was_canceled = job.canceled.remove(&task.index);
        let again = (outcome == Outcome::NodeLost || was_lost)
            && job.request.on_node_loss == Requeue::OnNodeLoss
            && !was_canceled
            && !job.is_canceled;
        if again {
            job.waiting.insert(task.index);
            let requeues = job.requeues.entry(task.index).or_default();
            *requeues += 1;
            if *requeues >= REQUEUES_MAX && job.request.hold == Hold::No {
                job.request.hold = Hold::ByRequeues;
            }
        } else {
            job.requeues.remove(&task.index);
            job.has_failed |= outcome != Outcome::Succeeded || was_lost || was_canceled;
        }
        again
    }

    /// Cancels a task of an array. Returns false if it neither waits nor runs.
    pub(super) fn on_cancel_task(&mut self, task: TaskId) -> bool {
        let Some(job) = self.jobs.get_mut(&task.job) else {
            return false;
        };
        let waits = job.waiting.remove(&task.index);
        let runs = job.running.contains_key(&task.index);
        job.has_withdrawn |= waits;
        job.canceled.extend(runs.then_some(task.index));
        waits || runs
    }

    /// Removes a node. Returns the tasks that have part of it.
    pub(super) fn on_removed(&mut self, id: NodeId) -> BTreeSet<TaskId> {
        self.nodes.remove(&id);
        let mut tasks = BTreeSet::new();
        for (job, entry) in &mut self.jobs {
            let running = entry.running.iter();
            let lost = running.filter(|(_, units)| units.iter().any(|(node, _)| *node == id));
            for (index, _) in lost {
                entry.lost.insert(*index);
                tasks.insert(TaskId {
                    job: *job,
                    index: *index,
                });
            }
        }
        tasks
    }

    pub(super) fn on_release(&mut self, id: JobId) {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.request.hold = Hold::No;
            job.requeues.clear();
        }
    }

    pub(super) fn on_cancel(&mut self, id: JobId) {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.is_canceled = true;
            job.waiting.clear();
        }
        self.met(id, DependencyKind::Started);
    }

    fn met(&mut self, on: JobId, kind: DependencyKind) {
        for job in self.jobs.values_mut() {
            let was_last = job.unmet.remove(&(on, kind)) && job.unmet.is_empty();
            job.is_fresh |= was_last;
        }
    }

    /// Notes and checks the end of a job. Returns a description of an error.
    pub(super) fn on_over(&mut self, id: JobId, why: Over) -> Option<String> {
        let Some(job) = self.jobs.get(&id) else {
            return Some(format!("{id} is over, and there is no such job"));
        };
        let expected = match job.failed {
            Some(on) => Over::DependencyFailed(on),
            None if !job.waiting.is_empty() || !job.running.is_empty() => {
                return Some(format!("{id} is over ({why:?}), and has tasks"));
            }
            None if job.is_canceled || job.has_withdrawn && !job.has_started => Over::Canceled,
            None if job.has_failed || job.has_withdrawn => Over::Failed,
            None => Over::Succeeded,
        };
        if why != expected {
            return Some(format!(
                "{id} is over because of {why:?}, and not of {expected:?}"
            ));
        }
        self.jobs.remove(&id);
        self.met(id, DependencyKind::Started);
        self.met(id, DependencyKind::Ended);
        if why == Over::Succeeded {
            self.met(id, DependencyKind::Succeeded);
        }
        for job in self.jobs.values_mut() {
            if job.unmet.iter().any(|(on, _)| *on == id) {
                job.failed = Some(id);
            }
        }
        None
    }

    /// Returns true if a job would fit on the idle machine.
    pub(super) fn has_room(&self, id: JobId) -> bool {
        let idle = self.when_idle();
        idle.jobs.get(&id).is_some_and(|job| idle.fits(job))
    }

    /// Returns true if no other job with waiting tasks comes before this one, whether it may start or not.
    pub(super) fn is_first(&self, id: JobId) -> bool {
        let place = |id: JobId| Some((Reverse(self.jobs.get(&id)?.request.priority), id));
        let mut others = self.jobs.iter().filter(|(other, _)| **other != id);
        others.all(|(other, job)| job.waiting.is_empty() || place(*other) > place(id))
    }

    /// Forgets the promise: what was promised no longer holds.
    pub(super) const fn excuse(&mut self) {
        self.promise = None;
    }

    /// Checks a queue that has done all it can. `head` is whom it calls its head. Returns a description of an error.
    pub(super) fn on_rest(
        &mut self,
        now: Time,
        head: Option<(JobId, Option<Time>)>,
    ) -> Option<String> {
        for job in self.jobs.values_mut() {
            job.is_fresh = false;
        }
        let over = self.jobs.iter().find(|(_, job)| {
            job.failed.is_some() || (job.waiting.is_empty() && job.running.is_empty())
        });
        if let Some((id, _)) = over {
            return Some(format!("{id} should be over"));
        }
        let mut order: Vec<(i64, JobId)> = self
            .jobs
            .iter()
            .filter(|(_, job)| job.is_ready())
            .map(|(id, job)| (-i64::from(job.request.priority), *id))
            .collect();
        order.sort_unstable();
        let head_at = order
            .iter()
            .position(|(_, id)| Some(*id) == head.map(|(id, _)| id));
        let before = order.get(..head_at.map_or(order.len(), |at| at + 1));
        let idle = before.unwrap_or_default().iter().find(|(_, id)| {
            let job = self.jobs.get(id);
            job.is_some_and(|job| self.is_within_limits(*id, job) && self.fits(job))
        });
        if let Some((_, id)) = idle {
            return Some(format!("{id} could start, and nobody comes before it"));
        }
        // Who would fit on an idle machine and is before the head should be the head.
        let idle = self.when_idle();
        let skipped = before.unwrap_or_default().iter().find(|(_, id)| {
            let job = self.jobs.get(id);
            Some(*id) != head.map(|(id, _)| id)
                && job.is_some_and(|job| self.is_within_limits(*id, job) && idle.fits(job))
        });
        if let Some((_, id)) = skipped {
            return Some(format!("{id} should be the head, and {head:?} is"));
        }
        let after = head_at.and_then(|at| order.get(at + 1..));
        let in_time = |job: &Job| {
            let end = job.request.time_limit.map(|limit| now + limit);
            end.zip(head.and_then(|(_, at)| at))
                .is_some_and(|(end, at)| end <= at)
        };
        let missed = after.unwrap_or_default().iter().find(|(_, id)| {
            let job = self.jobs.get(id);
            job.is_some_and(|job| in_time(job) && self.is_within_limits(*id, job) && self.fits(job))
        });
        if let Some((_, id)) = missed {
            return Some(format!("{id} could start without delay for {head:?}"));
        }
        if head.is_some() && head_at.is_none() {
            return Some(format!("{head:?} is the head, and may not start"));
        }
        self.on_head(head, &order)
    }

    /// Checks that the head is not delayed.
    fn on_head(
        &mut self,
        head: Option<(JobId, Option<Time>)>,
        order: &[(i64, JobId)],
    ) -> Option<String> {
        if let Some((before, promised)) = self.promise
            && let Some(place) = order.iter().position(|(_, id)| *id == before)
            // Otherwise a job that comes before it waits for a limit.
            && let Some(job) = self.jobs.get(&before)
            && self.is_within_limits(before, job)
        {
            match head {
                Some((id, at)) if id == before => {
                    if at.is_none_or(|at| at > promised) {
                        return Some(format!("{id} was promised {promised}, and now {at:?}"));
                    }
                }
                _ => {
                    let other =
                        head.and_then(|(head, _)| order.iter().position(|(_, id)| *id == head));
                    if other.is_none_or(|other| other > place) {
                        return Some(format!(
                            "{before} was promised {promised}, and {head:?} is the head"
                        ));
                    }
                }
            }
        }
        self.promise = head.and_then(|(id, at)| Some((id, at?)));
        None
    }

    /// Returns this machine without running tasks.
    fn when_idle(&self) -> Self {
        let mut idle = self.clone();
        for job in idle.jobs.values_mut() {
            job.running.clear();
        }
        idle
    }
}
