//! What the queue knows of a job.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use base::{JobId, Rank, RankSet};

use super::{
    Demand, Dependency, DependencyKind, Hold, JobState, Limits, Outcome, Over, REQUEUES_MAX,
    Request, Requeue, Shared, TaskId,
    planted::{self, Bug},
    running::Mark,
};

/// Place of a job in the queue.
pub(super) type Order = (Reverse<i32>, JobId);

/// What a pass needs of each job that may start, together in memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ready {
    pub(super) shape: ShapeId,
    /// Slots of a task, at least.
    pub(super) slots: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) request: Request,
    pub(super) demand: Shared,
    pub(super) shape: ShapeId,
    unmet: BTreeSet<Dependency>,
    waiting: Waiting,
    pub(super) running: u32,
    has_started: bool,
    has_failed: bool,
    /// A task was canceled by itself.
    has_withdrawn: bool,
    is_canceled: bool,
    /// How often each task was requeued.
    requeues: BTreeMap<Option<u32>, u32>,
}

/// The tasks that have not started.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Waiting {
    None,
    /// The job is no array.
    Whole,
    Indexes(RankSet),
}

/// What has happened to a job in an earlier queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Past {
    /// Indexes of the tasks that wait, not empty; `None` if the job is no array.
    pub waiting: Option<RankSet>,
    pub has_started: bool,
    pub has_failed: bool,
    /// A task was canceled by itself.
    pub has_withdrawn: bool,
    /// How often tasks were requeued: see [`super::Queue::requeues`].
    pub requeues: BTreeMap<u32, u32>,
}

/// What follows the end of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Over,
    Again,
    Held,
}

impl Job {
    pub(super) fn new(
        request: Request,
        (shape, demand): (ShapeId, Shared),
        unmet: BTreeSet<Dependency>,
    ) -> Self {
        let waiting = match &request.array {
            Some(array) => Waiting::Indexes(array.indexes.clone()),
            None => Waiting::Whole,
        };
        Self {
            request,
            demand,
            shape,
            unmet,
            waiting,
            running: 0,
            has_started: false,
            has_failed: false,
            has_withdrawn: false,
            is_canceled: false,
            requeues: BTreeMap::new(),
        }
    }

    /// Continues a job of an earlier queue.
    pub(super) fn restored(
        request: Request,
        shape: (ShapeId, Shared),
        unmet: BTreeSet<Dependency>,
        past: Past,
    ) -> Self {
        let new = Self::new(request, shape, unmet);
        let is_array = past.waiting.is_some();
        let requeues = past.requeues.into_iter();
        let requeues = requeues.map(|(index, count)| (is_array.then_some(index), count));
        Self {
            waiting: past.waiting.map_or(Waiting::Whole, Waiting::Indexes),
            has_started: past.has_started,
            has_failed: past.has_failed,
            has_withdrawn: past.has_withdrawn,
            requeues: requeues.collect(),
            ..new
        }
    }

    /// Replaces what its tasks need that have not started.
    pub(super) fn set_demand(&mut self, demand: Demand, (shape, shared): (ShapeId, Shared)) {
        self.request.demand = demand;
        self.shape = shape;
        self.demand = shared;
    }

    pub(super) fn order(&self, id: JobId) -> Order {
        let priority = match self.request.priority {
            _ if planted::is(Bug::PriorityIgnored) => 0,
            priority => priority,
        };
        (Reverse(priority), id)
    }

    pub(super) fn state(&self) -> JobState {
        if self.is_canceled {
            JobState::Ending
        } else if self.waiting == Waiting::None {
            JobState::Running
        } else if self.request.hold != Hold::No && !planted::is(Bug::HoldIgnored) {
            JobState::Held
        } else if !self.unmet.is_empty() {
            JobState::Blocked
        } else {
            JobState::Ready
        }
    }

    pub(super) fn ready(&self) -> Option<Ready> {
        (self.state() == JobState::Ready).then(|| Ready {
            shape: self.shape,
            slots: self.demand.slots_needed(),
        })
    }

    pub(super) fn requeues(&self) -> BTreeMap<u32, u32> {
        let requeues = self.requeues.iter();
        requeues
            .map(|(index, count)| (index.unwrap_or(0), *count))
            .collect()
    }

    pub(super) const fn has_started(&self) -> bool {
        self.has_started
    }

    pub(super) const fn unmet(&self) -> &BTreeSet<Dependency> {
        &self.unmet
    }

    /// Returns true if it has a condition on this job that is not met.
    pub(super) fn waits_for(&self, on: JobId) -> bool {
        self.unmet.iter().any(|dependency| dependency.on == on)
    }

    /// Returns true if it had this condition, and has no other.
    pub(super) fn met(&mut self, dependency: Dependency) -> bool {
        self.unmet.remove(&dependency) && self.unmet.is_empty()
    }

    /// Returns the next task to start.
    pub(super) fn next(&self) -> Option<Option<u32>> {
        match &self.waiting {
            Waiting::None => None,
            Waiting::Whole => Some(None),
            Waiting::Indexes(indexes) => Some(indexes.first().map(|index| index.0)),
        }
    }

    /// Notes that the next task has started.
    pub(super) fn start(&mut self) {
        self.running += 1;
        self.has_started = true;
        match self.next().flatten() {
            Some(index) => drop(self.leave(index)),
            None => self.waiting = Waiting::None,
        }
    }

    /// Cancels a task that waits. Returns false if it does not wait.
    pub(super) fn withdraw(&mut self, index: u32) -> bool {
        let is_there = self.leave(index);
        self.has_withdrawn |= is_there;
        is_there
    }

    /// Takes a task from those that wait. Returns false if it does not wait.
    fn leave(&mut self, index: u32) -> bool {
        let Waiting::Indexes(indexes) = &mut self.waiting else {
            return false;
        };
        let is_there = indexes.contains(Rank(index));
        if is_there {
            *indexes = indexes.difference(&RankSet::single(Rank(index)));
        }
        if indexes.is_empty() {
            self.waiting = Waiting::None;
        }
        is_there
    }

    pub(super) fn cancel(&mut self) {
        self.is_canceled = true;
        self.waiting = Waiting::None;
    }

    /// Ends a hold, and forgets earlier requeues.
    pub(super) fn release(&mut self) {
        self.request.hold = Hold::No;
        self.requeues.clear();
    }

    pub(super) fn ended(&mut self, task: TaskId, outcome: Outcome, mark: Mark) -> Next {
        self.running -= 1;
        // What has succeeded meanwhile does not run twice.
        let is_lost =
            outcome == Outcome::NodeLost || mark == Mark::Lost && outcome != Outcome::Succeeded;
        let goes_again = is_lost
            && mark != Mark::Canceled
            && self.request.on_node_loss == Requeue::OnNodeLoss
            && !self.is_canceled
            && !planted::is(Bug::NeverRequeued);
        if goes_again {
            self.wait_again(task);
        } else {
            self.requeues.remove(&task.index);
            let has_succeeded = outcome == Outcome::Succeeded && mark != Mark::Canceled;
            let is_first = planted::is(Bug::LastTaskCounts);
            self.has_failed = (self.has_failed && !is_first) || !has_succeeded;
            return Next::Over;
        }
        let requeues = self.requeues.entry(task.index).or_default();
        *requeues += 1;
        if *requeues < REQUEUES_MAX || self.request.hold != Hold::No {
            return Next::Again;
        }
        self.request.hold = Hold::ByRequeues;
        Next::Held
    }

    /// Notes that a task was not started after all.
    pub(super) fn take_back(&mut self, task: TaskId) {
        self.running -= 1;
        self.wait_again(task);
    }

    fn wait_again(&mut self, task: TaskId) {
        match (task.index, &mut self.waiting) {
            (None, waiting) => *waiting = Waiting::Whole,
            (Some(index), Waiting::Indexes(indexes)) => indexes.insert(Rank(index)),
            (Some(index), waiting) => *waiting = Waiting::Indexes(RankSet::single(Rank(index))),
        }
    }

    /// Returns how the job has ended; `None` if it has not.
    pub(super) fn over(&self) -> Option<Over> {
        let is_over = self.running == 0 && self.waiting == Waiting::None;
        is_over.then_some(
            if self.is_canceled || self.has_withdrawn && !self.has_started {
                Over::Canceled
            } else if self.has_failed || self.has_withdrawn {
                Over::Failed
            } else {
                Over::Succeeded
            },
        )
    }
}

/// Number of a demand; equal demands have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ShapeId(u64);

/// The different demands of the jobs in the queue: what one pass finds out about a demand counts for all jobs that have it.
#[derive(Clone, Debug, Default)]
pub(super) struct Shapes {
    ids: BTreeMap<Shared, (ShapeId, usize)>,
    last: u64,
}

impl Shapes {
    pub(super) fn get(&mut self, demand: &Demand) -> (ShapeId, Shared) {
        let demand = match self.ids.get_key_value(demand) {
            Some((demand, _)) => Arc::clone(demand),
            None => Arc::new(demand.clone()),
        };
        let last = &mut self.last;
        let (id, users) = self.ids.entry(Arc::clone(&demand)).or_insert_with(|| {
            *last += 1;
            (ShapeId(*last), 0)
        });
        *users += 1;
        (*id, demand)
    }

    pub(super) fn put(&mut self, demand: &Demand) {
        if let Some((_, users)) = self.ids.get_mut(demand) {
            *users -= 1;
            if *users == 0 {
                self.ids.remove(demand);
            }
        }
    }
}

/// What each user has in the queue.
#[derive(Clone, Debug, Default)]
pub(super) struct Users(BTreeMap<u32, Use>);

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Use {
    jobs: u32,
    pub(super) running: u32,
    pub(super) slots: u64,
}

impl Users {
    pub(super) fn add_job(&mut self, user: u32) {
        self.0.entry(user).or_default().jobs += 1;
    }

    pub(super) fn remove_job(&mut self, user: u32) {
        if let Some(used) = self.0.get_mut(&user) {
            used.jobs -= 1;
            if used.jobs == 0 {
                self.0.remove(&user);
            }
        }
    }

    pub(super) fn jobs(&self, user: u32) -> u32 {
        self.0.get(&user).map_or(0, |used| used.jobs)
    }

    pub(super) fn of(&self, user: u32) -> Use {
        self.0.get(&user).copied().unwrap_or_default()
    }

    pub(super) fn start(&mut self, user: u32, slots: u64) {
        let used = self.0.entry(user).or_default();
        used.running += 1;
        used.slots += slots;
    }

    /// Notes that a running task has fewer slots, and more.
    pub(super) fn resize(&mut self, user: u32, fewer: u64, more: u64) {
        if let Some(used) = self.0.get_mut(&user) {
            used.slots = used.slots - fewer + more;
        }
    }

    pub(super) fn end(&mut self, user: u32, slots: u64) {
        if let Some(used) = self.0.get_mut(&user) {
            used.running -= 1;
            used.slots -= slots;
        }
    }
}

impl DependencyKind {
    /// All kinds, for tests and messages.
    pub const ALL: [Self; 3] = [Self::Started, Self::Ended, Self::Succeeded];
}

/// What is left of a user's limits for others if this job is to stay within them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quota {
    tasks: u32,
    slots: u64,
}

impl Quota {
    /// Returns what the limits leave of a user beside what is used and what a task of the job needs. A job that waits for a limit leaves
    /// nothing.
    pub(super) fn beside(job: &Job, used: Use, limits: &Limits) -> Self {
        let tasks = used.running + 1;
        let slots = used.slots + job.demand.slots_needed();
        let (tasks_max, slots_max) = (limits.user_running, limits.user_slots);
        Self {
            tasks: tasks_max.map_or(u32::MAX, |most| most.saturating_sub(tasks)),
            slots: slots_max.map_or(u64::MAX, |most| most.saturating_sub(slots)),
        }
    }

    pub(super) fn covers(self, demand: &Demand) -> bool {
        self.tasks > 0 && self.slots >= demand.slots_needed()
    }

    pub(super) fn take(&mut self, demand: &Demand) {
        self.tasks = self.tasks.saturating_sub(1);
        self.slots = self.slots.saturating_sub(demand.slots_needed());
    }
}
