//! What a machine has to know: its jobs and their tasks, told by those who ask and by those who run them.
//!
//! A copy of the model is made whenever a batch is to be stored. After a death, the model goes on from the copy that belongs to the last
//! stored batch.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use base::{JobId, NodeId, RankSet};
use dvm::{
    machine::{Down, HISTORY_MAX, Wishes},
    proto::FrontId,
    queue::{Dependency, DependencyKind, Hold, Over, REQUEUES_MAX, Requeue},
};

pub(super) use super::needs::{Known, Needs, Shape, Standing};

/// How a task stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    Waiting,
    /// Its launch was ordered.
    Running,
    Succeeded,
    Failed,
    Canceled,
}

/// How a run has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    Succeeded,
    Failed,
    Canceled,
    /// It has lost a node, or a node was lost before it was started.
    NodeLost,
}

#[derive(Clone, Debug)]
pub(super) struct Job {
    /// The call that has added it.
    pub(super) since: u64,
    /// `None` if it is detached, or an allocation.
    pub(super) front: Option<FrontId>,
    /// `None` if it is an allocation.
    pub(super) shape: Option<Shape>,
    /// Of an allocation. The others have none.
    pub(super) time_limit: Option<Duration>,
    /// As they are now.
    pub(super) wishes: Wishes,
    pub(super) needs: Needs,
    /// What it needed before nodes were lost.
    pub(super) needed: Vec<Needs>,
    pub(super) tasks: BTreeMap<u32, Task>,
    pub(super) is_canceled: bool,
    /// Tasks that are to end.
    pub(super) to_end: BTreeSet<u32>,
    /// Tasks that are to end, and to run elsewhere: one of their nodes is dropped.
    pub(super) evicted: BTreeSet<u32>,
    pub(super) has_started: bool,
    /// A task has succeeded after it was canceled.
    succeeded_late: bool,
    /// The first task that has failed, and whether it was lost with its machine.
    pub(super) failed: Option<(u32, bool)>,
    pub(super) requeues: BTreeMap<u32, u32>,
    /// Since which call it is held.
    pub(super) held_since: Option<u64>,
    /// Since which call a task may start, at the earliest: it waits since then, or was seen waiting in a batch.
    pub(super) start_after: BTreeMap<u32, u64>,
    /// Tasks that run according to the last batch.
    pub(super) recorded: BTreeSet<u32>,
    /// Why it is over: one of these. Empty while it is not.
    pub(super) over: Vec<Over>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    pub(super) jobs: BTreeMap<JobId, Job>,
    /// Jobs that are over.
    pub(super) past: BTreeMap<JobId, Job>,
    /// Those that are too old for the history.
    pub(super) forgotten: BTreeMap<JobId, Job>,
    /// The number of the next job.
    pub(super) next: u32,
    pub(super) down: Option<Down>,
    /// The call that has ended all starts.
    pub(super) down_since: Option<u64>,
    /// Counts the calls of the machine.
    pub(super) call: u64,
}

impl Job {
    pub(super) fn new(
        call: u64,
        front: Option<FrontId>,
        wishes: Wishes,
        shape: Option<Shape>,
        needs: Needs,
    ) -> Self {
        let indexes = wishes.array.as_ref().map(|array| array.indexes.clone());
        let indexes = indexes.unwrap_or_else(|| RankSet::single(base::Rank(0)));
        let held_since = (wishes.hold != Hold::No).then_some(call);
        Self {
            since: call,
            front,
            shape,
            time_limit: None,
            needs,
            needed: Vec::new(),
            tasks: indexes
                .iter()
                .map(|index| (index.0, Task::Waiting))
                .collect(),
            is_canceled: false,
            to_end: BTreeSet::new(),
            evicted: BTreeSet::new(),
            has_started: false,
            succeeded_late: false,
            failed: None,
            requeues: BTreeMap::new(),
            held_since,
            start_after: indexes.iter().map(|index| (index.0, call)).collect(),
            recorded: BTreeSet::new(),
            over: Vec::new(),
            wishes,
        }
    }

    pub(super) const fn is_allocation(&self) -> bool {
        self.shape.is_none()
    }

    /// Returns true if it does not end with somebody.
    pub(super) const fn is_detached(&self) -> bool {
        self.front.is_none() && !self.is_allocation()
    }

    pub(super) fn count(&self, wanted: Task) -> usize {
        self.tasks.values().filter(|task| **task == wanted).count()
    }

    /// Returns what it needs, and what it needed before.
    pub(super) fn all_needs(&self) -> impl Iterator<Item = &Needs> {
        std::iter::once(&self.needs).chain(self.needed.iter().rev())
    }

    /// Returns true if the end of a run of this task is ordered.
    pub(super) fn has_to_end(&self, index: u32) -> bool {
        self.to_end.contains(&index) || self.evicted.contains(&index)
    }

    fn cancel_waiting(&mut self) {
        for task in self.tasks.values_mut() {
            if *task == Task::Waiting {
                *task = Task::Canceled;
            }
        }
    }

    /// Returns how it may have ended; nothing if it has not.
    fn ends(&self) -> Vec<Over> {
        if self.count(Task::Waiting) + self.count(Task::Running) > 0 {
            Vec::new()
        } else if self.is_canceled {
            vec![Over::Canceled]
        } else if self.count(Task::Failed) > 0 || self.succeeded_late {
            vec![Over::Failed]
        } else if self.count(Task::Canceled) == 0 {
            vec![Over::Succeeded]
        } else if self.has_started {
            vec![Over::Failed]
        } else {
            // A start that is not stored yet counts, and cannot be seen from outside.
            vec![Over::Failed, Over::Canceled]
        }
    }

    pub(super) fn has_succeeded(&self) -> bool {
        self.over == [Over::Succeeded]
    }

    fn fail(&mut self, index: u32, with_machine: bool) {
        self.tasks.insert(index, Task::Failed);
        self.failed.get_or_insert((index, with_machine));
    }

    /// Notes what has become of a job whose machine has died.
    fn survive(&mut self) {
        self.succeeded_late = false;
        self.recorded.clear();
        self.evicted.clear();
        let may_run_again = self.is_detached() && self.wishes.on_node_loss == Requeue::OnNodeLoss;
        let ran: Vec<u32> = self
            .tasks
            .iter()
            .filter_map(|(index, task)| (*task == Task::Running).then_some(*index))
            .collect();
        for index in ran {
            if self.to_end.remove(&index) {
                self.tasks.insert(index, Task::Canceled);
            } else if may_run_again {
                self.tasks.insert(index, Task::Waiting);
                let requeues = self.requeues.entry(index).or_default();
                *requeues += 1;
                if *requeues >= REQUEUES_MAX && self.wishes.hold == Hold::No {
                    self.wishes.hold = Hold::ByRequeues;
                }
            } else {
                self.fail(index, true);
            }
        }
        if !self.is_detached() {
            self.cancel_waiting();
        }
        self.held_since = (self.wishes.hold != Hold::No).then_some(0);
        let tasks = &self.tasks;
        self.requeues
            .retain(|index, _| tasks.get(index) == Some(&Task::Waiting));
    }
}

impl Model {
    pub(super) fn new() -> Self {
        Self {
            next: 1,
            ..Self::default()
        }
    }

    /// Adds a job, and returns its number.
    pub(super) fn accept(
        &mut self,
        front: Option<FrontId>,
        wishes: Wishes,
        shape: Shape,
        needs: Needs,
    ) -> JobId {
        let id = JobId(self.next);
        self.next += 1;
        let job = Job::new(self.call, front, wishes, Some(shape), needs);
        self.jobs.insert(id, job);
        id
    }

    /// Adds an allocation, and returns its number.
    pub(super) fn accept_allocation(
        &mut self,
        needs: Needs,
        time_limit: Option<Duration>,
    ) -> JobId {
        let id = JobId(self.next);
        self.next += 1;
        let job = Job {
            time_limit,
            ..Job::new(self.call, None, Wishes::default(), None, needs)
        };
        self.jobs.insert(id, job);
        id
    }

    /// Lets nobody wait for an allocation any more.
    pub(super) fn refuse_allocations(&mut self) {
        let waits = |job: &Job| job.is_allocation() && job.count(Task::Waiting) > 0;
        let waiting = self.jobs.iter().filter(|(_, job)| waits(job));
        for id in waiting.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.cancel(id);
        }
    }

    pub(super) fn job(&self, id: JobId) -> Option<&Job> {
        self.jobs.get(&id).or_else(|| self.past.get(&id))
    }

    /// Returns a job that is over, however long ago.
    pub(super) fn over(&self, id: JobId) -> Option<&Job> {
        self.past.get(&id).or_else(|| self.forgotten.get(&id))
    }

    pub(super) fn running(&self) -> usize {
        self.jobs.values().map(|job| job.count(Task::Running)).sum()
    }

    /// Returns true if this condition is met.
    pub(super) fn is_met(&self, dependency: Dependency) -> bool {
        let Dependency { on, kind } = dependency;
        if let Some(job) = self.jobs.get(&on) {
            return kind == DependencyKind::Started && (job.has_started || job.is_canceled);
        }
        let over = self.over(on);
        over.is_some_and(|job| kind != DependencyKind::Succeeded || job.has_succeeded())
    }

    /// Moves a job to the history if it is over, and those that depend on it.
    pub(super) fn close_if_over(&mut self, id: JobId) {
        let ends = self.jobs.get(&id).map(Job::ends).unwrap_or_default();
        if !ends.is_empty() {
            self.close(id, ends);
        }
    }

    fn close(&mut self, id: JobId, over: Vec<Over>) {
        let mut failed = vec![id];
        let mut broken = Vec::new();
        self.bury(id, over);
        while let Some(on) = failed.pop() {
            if self.over(on).is_none_or(Job::has_succeeded) {
                continue;
            }
            let kind = DependencyKind::Succeeded;
            let needs = Dependency { on, kind };
            let jobs = self.jobs.iter();
            let depend: Vec<JobId> = jobs
                .filter(|(_, job)| job.wishes.after.contains(&needs))
                .map(|(id, _)| *id)
                .collect();
            for one in &depend {
                self.bury(*one, vec![Over::DependencyFailed(on)]);
            }
            failed.extend(&depend);
            broken.extend(depend);
        }
        // Several jobs on which one depends may have failed at this moment.
        for one in broken {
            let after = self.past.get(&one).map(|job| job.wishes.after.clone());
            let after = after.unwrap_or_default().into_iter();
            let broken = after.filter(|after| {
                let on = self.over(after.on);
                after.kind == DependencyKind::Succeeded && on.is_some_and(|on| !on.has_succeeded())
            });
            let over = broken.map(|after| Over::DependencyFailed(after.on));
            let over: Vec<Over> = over.collect();
            if let Some(job) = self.past.get_mut(&one) {
                job.over = over;
            }
        }
    }

    /// Moves a job to the history.
    fn bury(&mut self, id: JobId, over: Vec<Over>) {
        let Some(mut job) = self.jobs.remove(&id) else {
            return;
        };
        job.cancel_waiting();
        job.over = over;
        self.past.insert(id, job);
        if let Some(old) = id.0.checked_sub(HISTORY_MAX).map(JobId)
            && let Some(job) = self.past.remove(&old)
        {
            self.forgotten.insert(old, job);
        }
    }

    pub(super) fn cancel(&mut self, id: JobId) {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.is_canceled = true;
            job.cancel_waiting();
            let runs = job.tasks.iter();
            let runs = runs.filter(|(_, task)| **task == Task::Running);
            let runs: BTreeSet<u32> = runs.map(|(index, _)| *index).collect();
            job.to_end.extend(runs);
        }
        self.close_if_over(id);
    }

    pub(super) fn cancel_tasks(&mut self, id: JobId, tasks: &RankSet) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        if job.wishes.array.is_none() {
            if tasks.contains(base::Rank(0)) {
                self.cancel(id);
            }
            return;
        }
        for (index, task) in &mut job.tasks {
            if !tasks.contains(base::Rank(*index)) {
                continue;
            }
            match task {
                Task::Waiting => *task = Task::Canceled,
                Task::Running => drop(job.to_end.insert(*index)),
                Task::Succeeded | Task::Failed | Task::Canceled => {}
            }
        }
        self.close_if_over(id);
    }

    /// Ends a task whose node is dropped. It waits again if it may, and is canceled otherwise.
    pub(super) fn drive_out(&mut self, id: JobId, index: u32) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        if job.wishes.on_node_loss == Requeue::OnNodeLoss {
            job.evicted.insert(index);
        } else {
            self.cancel_tasks(id, &RankSet::single(base::Rank(index)));
        }
    }

    pub(super) fn hold(&mut self, id: JobId) {
        let call = self.call;
        if let Some(job) = self.jobs.get_mut(&id) {
            job.wishes.hold = Hold::ByUser;
            job.held_since.get_or_insert(call);
        }
    }

    pub(super) fn release(&mut self, id: JobId) {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.wishes.hold = Hold::No;
            job.held_since = None;
            job.requeues.clear();
        }
    }

    pub(super) fn launch(&mut self, id: JobId, index: u32) {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.tasks.insert(index, Task::Running);
            job.has_started = true;
        }
    }

    /// Notes the end of a run.
    pub(super) fn end(&mut self, id: JobId, index: u32, how: How) {
        let call = self.call;
        let is_down = self.down == Some(Down::Now);
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        // The next machine runs it again.
        let is_kept = is_down && job.wishes.on_node_loss == Requeue::OnNodeLoss;
        let was_canceled = job.to_end.remove(&index) || job.is_canceled;
        let was_evicted = job.evicted.remove(&index);
        let is_lost = how == How::NodeLost || was_evicted && how != How::Succeeded;
        let again = is_lost && job.wishes.on_node_loss == Requeue::OnNodeLoss && !was_canceled;
        match how {
            How::Succeeded => {
                job.tasks.insert(index, Task::Succeeded);
                job.succeeded_late |= was_canceled;
            }
            How::Canceled if is_kept && !was_canceled => {
                job.tasks.insert(index, Task::Waiting);
                job.start_after.insert(index, call);
                job.recorded.remove(&index);
            }
            How::Failed | How::Canceled | How::NodeLost if again => {
                job.tasks.insert(index, Task::Waiting);
                job.start_after.insert(index, call);
                job.recorded.remove(&index);
                let requeues = job.requeues.entry(index).or_default();
                *requeues += 1;
                if *requeues >= REQUEUES_MAX && job.wishes.hold == Hold::No {
                    job.wishes.hold = Hold::ByRequeues;
                    job.held_since = Some(call);
                }
            }
            How::Canceled => drop(job.tasks.insert(index, Task::Canceled)),
            How::Failed | How::NodeLost => job.fail(index, false),
        }
        if !again && job.tasks.get(&index) != Some(&Task::Waiting) {
            job.requeues.remove(&index);
        }
        self.close_if_over(id);
    }

    /// Lets jobs ask for what the nodes have that are not lost, if they ask for all that there is and wait for more. Nothing
    /// changes while a node is being started.
    pub(super) fn fit_to_nodes(&mut self, nodes: &BTreeMap<NodeId, Known>) {
        if nodes
            .values()
            .any(|node| node.standing == Standing::Starting)
        {
            return;
        }
        let usable = || {
            let nodes = nodes.iter().map(|(id, node)| (*id, node));
            nodes.filter(|(_, node)| node.standing == Standing::Up)
        };
        for job in self.jobs.values_mut() {
            let Some(shape) = &job.shape else {
                continue;
            };
            let is_possible = usable().any(|(id, _)| job.needs.admits(id));
            if job.count(Task::Waiting) == 0 || !is_possible || job.needs.fit(usable()) {
                continue;
            }
            let needs = shape.needs(nodes);
            if needs != job.needs {
                let before = std::mem::replace(&mut job.needs, needs);
                job.needed.push(before);
            }
        }
    }

    /// Takes the starts in the last batch for carried out, as the next machine has to.
    pub(super) fn start_recorded(&mut self) {
        for job in self.jobs.values_mut() {
            for index in &job.recorded {
                job.has_started = true;
                if job.tasks.get(index) == Some(&Task::Waiting) {
                    job.tasks.insert(*index, Task::Running);
                }
            }
        }
    }

    /// Returns the model of the next machine, if this is what the last one has stored.
    pub(super) fn after_death(&self) -> Self {
        let mut next = Self {
            past: self.past.clone(),
            forgotten: self.forgotten.clone(),
            next: self.next,
            call: self.call,
            ..Self::default()
        };
        for (id, job) in &self.jobs {
            let mut job = job.clone();
            job.survive();
            for after in job.start_after.values_mut() {
                *after = self.call;
            }
            let broken = job.wishes.after.iter().find(|dependency| {
                let on = next.over(dependency.on);
                dependency.kind == DependencyKind::Succeeded
                    && on.is_some_and(|on| !on.has_succeeded())
            });
            let broken = broken.map(|dependency| Over::DependencyFailed(dependency.on));
            let mut over: Vec<Over> = job.ends();
            if !over.is_empty() && over != [Over::Succeeded] {
                // Who has canceled what is not stored.
                over = if job.count(Task::Failed) > 0 && !job.is_canceled {
                    vec![Over::Failed]
                } else {
                    vec![Over::Failed, Over::Canceled]
                };
            }
            if let Some(broken) = broken {
                over = vec![broken];
            }
            next.jobs.insert(*id, job);
            if !over.is_empty() {
                next.close(*id, over);
            }
        }
        next
    }
}
