//! The queue of a machine: which job starts when, and where.
//!
//! Jobs are ordered by priority, then by their number. The first one that has to wait for running tasks is the *head*: it gets a reservation, and
//! later jobs start before it only if they do not delay it (EASY backfill). The reservation assumes that every running task needs
//! its whole time limit. If the head waits for a task without a limit, its nodes are reserved without a time, so that it starts
//! when that task ends.
//!
//! The first job of a user that has to wait has a part of the user's limits reserved for it. While it waits for such a limit, no later
//! job of that user starts, and no nodes are reserved for it. Small jobs of a user thus do not keep a large one from starting.
//!
//! A job is a *task*, or an array of tasks that start one by one. A job has one of these states:
//!
//! | state | hold | release | last dependency met | pass | end of a task | cancel |
//! |---|---|---|---|---|---|---|
//! | held | – | blocked or ready | – | – | (array) a requeued task is held too | tasks that run: ending; none: over |
//! | blocked by dependencies | held | – | ready | – | – | over |
//! | ready | held | – | – | a task starts: running, or still ready if it has more | (array) a requeued task is ready again | tasks that run: ending; none: over |
//! | running: no task waits | a requeued task will be held | – | – | – | requeued: ready; the last one: over | ending |
//! | ending: canceled, and tasks run | – | – | – | – | the last one: over | – |
//!
//! A task of an array that is canceled by itself counts as failed. An array that is held while tasks run is held, and its running tasks are not touched. A job that is over is forgotten, and
//! jobs that depend on it are ready, or canceled if it should have succeeded. Such a cancellation counts as a start and an end too.
//!
//! **Bounds:** [`JOBS_MAX`] jobs, [`TASKS_MAX`] tasks of an array, [`DEPENDENCIES_MAX`] dependencies of a job,
//! [`REQUEUES_MAX`] requeues of a job.

mod amounts;
mod change;
mod demand;
mod explain;
mod job;
mod nodes;
mod pass;
mod plan;
pub mod planted;
mod running;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt,
    sync::Arc,
    time::Duration,
};

use base::{JobId, NodeId, Time};
use serde::{Deserialize, Serialize};

pub use self::{
    amounts::{Amounts, Resources},
    change::{More, NotExtended},
    demand::{Array, Demand, Dependency, DependencyKind, Hold, Request, Requeue, Sharing, Spread},
    explain::{AHEAD_MAX, Estimate, Explanation, Hint, Why},
    job::Past,
    nodes::{NodeState, Units},
};
use self::{
    job::{Job, Order, Ready, ShapeId, Shapes, Users},
    nodes::Nodes,
    plan::Plan,
    planted::Bug,
    running::{Mark, Running},
};

/// Jobs in a queue.
pub const JOBS_MAX: usize = 1 << 20;
/// Tasks of an array.
pub const TASKS_MAX: usize = 1 << 20;
/// Dependencies of a job.
pub const DEPENDENCIES_MAX: usize = 1 << 10;
/// How often a task that loses nodes is requeued. Then its job is held.
pub const REQUEUES_MAX: u32 = 5;

/// A task: a whole job, or one of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TaskId {
    pub job: JobId,
    /// Index in the array; `None` if the job is no array.
    pub index: Option<u32>,
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.index {
            Some(index) => write!(f, "{}[{index}]", self.job),
            None => write!(f, "{}", self.job),
        }
    }
}

/// What one user may use, and what one job may ask for. `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Jobs of a user in the queue, running or not.
    pub user_jobs: Option<u32>,
    /// Tasks of a user that run at the same time.
    pub user_running: Option<u32>,
    /// Slots that the running tasks of a user have asked for; whole nodes count no more.
    pub user_slots: Option<u64>,
    /// Slots of a task.
    pub task_slots: Option<u64>,
    /// Time limit of a task. A job without a time limit gets this one.
    pub task_time: Option<Duration>,
    /// Tasks of all users that run at the same time.
    pub running: Option<u32>,
}

/// A limit that keeps a job from starting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LimitHit {
    /// So many tasks of its user run.
    UserRunning(u32),
    /// So many slots are in use by its user.
    UserSlots(u64),
    /// So many tasks of the array run.
    ArrayRunning(u32),
    /// So many tasks run on the machine.
    Running(u32),
}

impl Limits {
    /// Returns true if it matters what a user runs.
    const fn are_of_users(&self) -> bool {
        self.user_running.is_some() || self.user_slots.is_some()
    }
}

/// Why a job is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    #[error("it asks for no slots")]
    NoSlots,
    #[error("it is an array without tasks")]
    NoTasks,
    #[error("the queue has {JOBS_MAX} jobs")]
    QueueFull,
    #[error("an array may have at most {TASKS_MAX} tasks")]
    ArrayTooLong,
    #[error("a job may depend on at most {DEPENDENCIES_MAX} others")]
    TooManyDependencies,
    #[error("the user has {0} jobs in the queue, which is the limit")]
    UserJobs(u32),
    #[error("a job may have at most {0} slots")]
    TaskSlots(u64),
    #[error("the time limit of a job may be at most {0:?}")]
    TaskTime(Duration),
    #[error("it depends on job {0}, which is not in the queue")]
    UnknownDependency(JobId),
    /// If all nodes were free and open.
    #[error("the machine has room for {room} of the {units} units of the job")]
    NeverFits { units: u32, room: u64 },
    #[error("the machine has fewer of the resources that belong to no node")]
    TooFewShared,
}

/// How a task has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Succeeded,
    Failed,
    /// It has lost a node.
    NodeLost,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Start a task on these nodes. From now on it counts as running.
    Start { task: TaskId, units: Units },
    /// End a running task, and report its end: it was canceled, or one of its nodes was removed.
    End { task: TaskId },
    /// A task that lost a node waits again.
    Requeued { task: TaskId },
    /// The job has lost nodes too often, and is held.
    Held { job: JobId },
    /// The job is over, and forgotten.
    Over { job: JobId, why: Over },
}

/// How a job has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Over {
    Succeeded,
    /// At least one task has failed.
    Failed,
    Canceled,
    /// It could not start: this job, on which it depends, has not succeeded.
    DependencyFailed(JobId),
}

/// The state of a job for listings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobState {
    Held,
    Blocked,
    Ready,
    Running,
    Ending,
}

/// The queue. See the module documentation.
#[derive(Clone, Debug, Default)]
pub struct Queue {
    limits: Limits,
    nodes: Nodes,
    jobs: BTreeMap<JobId, Job>,
    /// The jobs with tasks that may start, in their order.
    ready: BTreeMap<Order, Ready>,
    running: Running,
    users: Users,
    shapes: Shapes,
    /// Jobs that depend on a job.
    dependents: BTreeMap<JobId, BTreeSet<JobId>>,
    /// The reservation of the last pass.
    plan: Option<Plan>,
    /// Something has happened since the last pass that may let a job start.
    is_changed: bool,
    outputs: VecDeque<Output>,
}

impl Queue {
    /// Creates a queue for a machine without nodes.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            ..Self::default()
        }
    }

    /// Adds a node, which is open.
    ///
    /// # Panics
    ///
    /// Panics if there is one with this number. A number may be used again when no task has part of the removed node
    /// ([`Self::tasks_on`]).
    pub fn add_node(&mut self, id: NodeId, capacity: Amounts) {
        self.nodes.add(id, capacity);
        self.is_changed = true;
    }

    /// Opens or closes a node. Returns false if there is no such node.
    pub fn set_node(&mut self, id: NodeId, state: NodeState) -> bool {
        self.is_changed = true;
        self.nodes.set_state(id, state)
    }

    /// Removes a node. The tasks that have part of it are to be ended, and count as having lost it unless they succeed.
    pub fn remove_node(&mut self, id: NodeId) {
        for task in self.running.on(id) {
            self.evict(task);
        }
        self.nodes.remove(id);
        self.is_changed = true;
    }

    /// Ends a task, which counts as having lost a node unless it succeeds.
    pub fn evict(&mut self, task: TaskId) {
        if self.running.mark(task, Mark::Lost) {
            self.outputs.push_back(Output::End { task });
        }
    }

    /// Returns the running tasks that have part of a node.
    #[must_use]
    pub fn tasks_on(&self, id: NodeId) -> Vec<TaskId> {
        self.running.on(id)
    }

    #[must_use]
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Returns how much there is of the resources that no node has.
    #[must_use]
    pub const fn shared(&self) -> &Amounts {
        &self.nodes.shared
    }

    /// Returns how much of that is free.
    #[must_use]
    pub const fn shared_free(&self) -> &Amounts {
        &self.nodes.shared_free
    }

    /// Sets how much there is of the resources that no node has. Returns false, and changes nothing, if running tasks have some.
    pub fn set_shared(&mut self, shared: Amounts) -> bool {
        if self.nodes.shared != self.nodes.shared_free {
            return false;
        }
        self.nodes.shared_free = shared.clone();
        self.nodes.shared = shared;
        self.is_changed = true;
        true
    }

    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
        self.is_changed = true;
    }

    /// Adds a job.
    ///
    /// # Errors
    ///
    /// Returns why the job cannot be accepted. A dependency on a job that is over is refused; only the caller knows how it ended.
    ///
    /// # Panics
    ///
    /// Panics if the number is not greater than that of every job before: jobs of equal priority start in this order.
    pub fn submit(&mut self, id: JobId, mut request: Request) -> Result<(), Refusal> {
        let last = self.jobs.last_key_value();
        assert!(last.is_none_or(|(last, _)| *last < id), "job {id} is old");
        request.time_limit = request.time_limit.or(self.limits.task_time);
        self.check(&request)?;
        for dependency in &request.after {
            self.dependents.entry(dependency.on).or_default().insert(id);
        }
        let unmet = self.unmet(&request);
        self.users.add_job(request.user);
        let shape = self.shapes.get(&request.demand);
        self.jobs.insert(id, Job::new(request, shape, unmet));
        self.refresh(id);
        Ok(())
    }

    /// Returns the dependencies that are not met, of those on jobs in the queue.
    fn unmet(&self, request: &Request) -> BTreeSet<Dependency> {
        let after = request.after.iter().copied();
        let unmet = after.filter(|dependency| {
            let on = self.jobs.get(&dependency.on);
            !(dependency.kind == DependencyKind::Started && on.is_some_and(Job::has_started))
        });
        unmet.collect()
    }

    /// Adds a job that an earlier queue has accepted, and that may have run. It waits until it fits.
    ///
    /// # Panics
    ///
    /// Those of [`Self::submit`].
    pub fn restore(&mut self, id: JobId, request: Request, past: Past) {
        let last = self.jobs.last_key_value();
        assert!(last.is_none_or(|(last, _)| *last < id), "job {id} is old");
        for dependency in &request.after {
            self.dependents.entry(dependency.on).or_default().insert(id);
        }
        let unmet = self.unmet(&request);
        self.users.add_job(request.user);
        let shape = self.shapes.get(&request.demand);
        self.jobs
            .insert(id, Job::restored(request, shape, unmet, past));
        self.refresh(id);
    }

    fn check(&self, request: &Request) -> Result<(), Refusal> {
        let Request { demand, array, .. } = request;
        if demand.units == 0 || demand.unit.slots == 0 {
            return Err(Refusal::NoSlots);
        }
        if let Some(array) = array {
            if array.indexes.is_empty() || array.running_max == Some(0) {
                return Err(Refusal::NoTasks);
            }
            if array.indexes.len() > TASKS_MAX {
                return Err(Refusal::ArrayTooLong);
            }
        }
        if self.jobs.len() >= JOBS_MAX {
            return Err(Refusal::QueueFull);
        }
        if request.after.len() > DEPENDENCIES_MAX {
            return Err(Refusal::TooManyDependencies);
        }
        if let Some(most) = self.limits.user_jobs
            && self.users.jobs(request.user) >= most
        {
            return Err(Refusal::UserJobs(most));
        }
        let slots = self.limits.task_slots.into_iter();
        let slots = slots.chain(self.limits.user_slots).min();
        if let Some(most) = slots.filter(|most| demand.slots_needed() > *most) {
            return Err(Refusal::TaskSlots(most));
        }
        if let (Some(most), Some(limit)) = (self.limits.task_time, request.time_limit)
            && limit > most
        {
            return Err(Refusal::TaskTime(most));
        }
        let unknown = request
            .after
            .iter()
            .find(|after| !self.jobs.contains_key(&after.on));
        if let Some(unknown) = unknown {
            return Err(Refusal::UnknownDependency(unknown.on));
        }
        let room = self.nodes.room(demand, |_, _| true);
        if room < u64::from(demand.units) {
            let units = demand.units;
            return Err(Refusal::NeverFits { units, room });
        }
        if !self.nodes.shared.covers(&demand.shared) {
            return Err(Refusal::TooFewShared);
        }
        Ok(())
    }

    /// Holds a job: none of its tasks starts. Returns false if there is no such job.
    pub fn hold(&mut self, id: JobId) -> bool {
        self.set(id, |job| job.request.hold = Hold::ByUser)
    }

    /// Ends a hold, whatever its cause. Returns false if there is no such job.
    pub fn release(&mut self, id: JobId) -> bool {
        self.set(id, Job::release)
    }

    /// Sets the priority of a job. Returns false if there is no such job.
    pub fn set_priority(&mut self, id: JobId, priority: i32) -> bool {
        self.set(id, |job| job.request.priority = priority)
    }

    /// Returns the jobs of which tasks wait, and that need more than these nodes have.
    #[must_use]
    pub fn too_large(&self, is_meant: impl Fn(NodeId) -> bool) -> Vec<JobId> {
        let mut known: BTreeMap<ShapeId, bool> = BTreeMap::new();
        let waiting = self.jobs.iter().filter(|(_, job)| job.next().is_some());
        let too_large = waiting.filter(|(_, job)| {
            *known.entry(job.shape).or_insert_with(|| {
                let room = self.nodes.room(&job.demand, |id, _| is_meant(id));
                room < u64::from(job.demand.units)
            })
        });
        too_large.map(|(id, _)| *id).collect()
    }

    /// Changes what the tasks of a job need that wait. Returns false if there is no such job.
    pub fn set_demand(&mut self, id: JobId, demand: Demand) -> bool {
        let Some(job) = self.jobs.get(&id) else {
            return false;
        };
        self.shapes.put(&job.request.demand);
        let shape = self.shapes.get(&demand);
        self.set(id, |job| job.set_demand(demand, shape))
    }

    fn set(&mut self, id: JobId, change: impl FnOnce(&mut Job)) -> bool {
        let Some(job) = self.jobs.get_mut(&id) else {
            return false;
        };
        self.ready.remove(&job.order(id));
        change(job);
        self.is_changed = true;
        self.refresh(id);
        true
    }

    /// Cancels a job. Returns false if there is no such job.
    pub fn cancel(&mut self, id: JobId) -> bool {
        let Some(job) = self.jobs.get_mut(&id) else {
            return false;
        };
        self.ready.remove(&job.order(id));
        job.cancel();
        self.is_changed = true;
        let running = self.running.of(id);
        let ends = running.map(|task| Output::End { task });
        self.outputs.extend(ends);
        self.met(id, DependencyKind::Started);
        self.close_if_over(id);
        true
    }

    /// Cancels one task of an array. Returns false if there is no such task, or it is over.
    pub fn cancel_task(&mut self, task: TaskId) -> bool {
        let Some(index) = task.index else {
            return self.cancel(task.job);
        };
        let Some(job) = self.jobs.get_mut(&task.job) else {
            return false;
        };
        if job.withdraw(index) {
            self.refresh(task.job);
            self.close_if_over(task.job);
        } else if self.running.mark(task, Mark::Canceled) {
            self.outputs.push_back(Output::End { task });
        } else {
            return false;
        }
        true
    }

    /// Notes the end of a task. Ends of tasks that do not run are ignored.
    pub fn ended(&mut self, task: TaskId, outcome: Outcome) {
        let Some(part) = self.running.remove(task) else {
            return;
        };
        self.nodes.give(&part.demand, &part.units);
        self.is_changed = true;
        let Some(job) = self.jobs.get_mut(&task.job) else {
            return;
        };
        self.users.end(job.request.user, part.demand.slots_needed());
        match job.ended(task, outcome, part.mark) {
            job::Next::Over => {}
            job::Next::Again => self.outputs.push_back(Output::Requeued { task }),
            job::Next::Held => {
                let (id, requeued) = (task.job, Output::Requeued { task });
                self.outputs.extend([requeued, Output::Held { job: id }]);
            }
        }
        self.refresh(task.job);
        self.close_if_over(task.job);
    }

    /// Takes a start back that was not carried out: the task waits again. It must not have been canceled.
    pub fn take_back(&mut self, task: TaskId) {
        let Some(part) = self.running.remove(task) else {
            return;
        };
        self.nodes.give(&part.demand, &part.units);
        self.is_changed = true;
        if let Some(job) = self.jobs.get_mut(&task.job) {
            self.users.end(job.request.user, part.demand.slots_needed());
            job.take_back(task);
        }
        self.refresh(task.job);
    }

    /// Puts a job where its state says: among those with tasks that may start, or not.
    fn refresh(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(&id) else {
            return;
        };
        let order = job.order(id);
        match job.ready() {
            Some(ready) => {
                self.ready.insert(order, ready);
                self.is_changed = true;
            }
            None => {
                self.is_changed |= self.ready.remove(&order).is_some();
            }
        }
    }

    /// Forgets a job that is over, and what it stands for.
    fn close_if_over(&mut self, id: JobId) {
        let mut over: Vec<(JobId, Over)> = Vec::new();
        let own = self.jobs.get(&id).and_then(Job::over);
        over.extend(own.map(|why| (id, why)));
        // Canceled dependents have dependents too.
        while let Some((id, why)) = over.pop() {
            let Some(job) = self.jobs.remove(&id) else {
                continue;
            };
            self.is_changed |= self.ready.remove(&job.order(id)).is_some();
            self.users.remove_job(job.request.user);
            self.shapes.put(&job.request.demand);
            for dependency in &job.request.after {
                let others = self.dependents.get_mut(&dependency.on);
                others.map(|others| others.remove(&id));
            }
            self.outputs.push_back(Output::Over { job: id, why });
            self.met(id, DependencyKind::Started);
            self.met(id, DependencyKind::Ended);
            if why == Over::Succeeded || planted::is(Bug::FailureSatisfies) {
                self.met(id, DependencyKind::Succeeded);
            }
            let failed = self.dependents.remove(&id).unwrap_or_default();
            let failed = failed.into_iter().filter(|one| {
                let job = self.jobs.get(one);
                job.is_some_and(|job| job.waits_for(id))
            });
            over.extend(failed.map(|one| (one, Over::DependencyFailed(id))));
        }
    }

    /// Notes that what jobs may wait for has happened to a job.
    fn met(&mut self, on: JobId, kind: DependencyKind) {
        let dependents = self.dependents.get(&on).cloned().unwrap_or_default();
        for id in dependents {
            let job = self.jobs.get_mut(&id);
            if job.is_some_and(|job| job.met(Dependency { on, kind })) {
                self.refresh(id);
            }
        }
    }

    /// Starts what can start, if anything has changed. Call it after the inputs of one moment, then [`Self::poll`].
    pub fn schedule(&mut self, now: Time) {
        // A pass may start a job for whose start others wait.
        while std::mem::take(&mut self.is_changed) {
            self.pass(now);
        }
    }

    /// Returns the next thing to do.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Returns the jobs in the order of their numbers, with their states.
    pub fn jobs(&self) -> impl Iterator<Item = (JobId, &Request, JobState)> {
        let jobs = self.jobs.iter();
        jobs.map(|(id, job)| (*id, &job.request, job.state()))
    }

    /// Returns the head of the queue as the last [`Self::schedule`] has found it: the first job that has to wait for running tasks,
    /// and when it starts at the latest, if all of them have time limits.
    #[must_use]
    pub fn head(&self) -> Option<(JobId, Option<Time>)> {
        self.plan.as_ref().map(|plan| (plan.job, plan.at))
    }

    /// Returns how often tasks of a job were requeued that are not over, by their index. A job that is no array has a task 0.
    #[must_use]
    pub fn requeues(&self, id: JobId) -> BTreeMap<u32, u32> {
        self.jobs.get(&id).map(Job::requeues).unwrap_or_default()
    }

    /// Returns the number of running tasks.
    #[must_use]
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Returns the nodes of a running task; `None` if it does not run.
    #[must_use]
    pub fn units(&self, task: TaskId) -> Option<&Units> {
        Some(&self.running.get(task)?.units)
    }

    /// Returns what a running task has of each of its nodes. Nodes that were removed meanwhile are left out.
    pub fn parts(&self, task: TaskId) -> impl Iterator<Item = (NodeId, Amounts)> {
        let part = self.running.get(task).into_iter();
        part.flat_map(|part| {
            part.units.iter().filter_map(|(id, units)| {
                let node = self.nodes.get(*id)?;
                Some((*id, part.demand.taken(&node.capacity, *units)))
            })
        })
    }

    /// Returns what a node has, and what of it is free; `None` if there is no such node.
    #[must_use]
    pub fn node(&self, id: NodeId) -> Option<(&Amounts, &Amounts, NodeState)> {
        let node = self.nodes.get(id)?;
        Some((&node.capacity, &node.free, node.state))
    }
}

/// The demand of a job, shared by its tasks.
type Shared = Arc<Demand>;
