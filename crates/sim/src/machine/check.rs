//! Compares what the machine tells, stores and starts with the model. Each function returns a description of an error.

use std::collections::{BTreeMap, BTreeSet};

use base::{JobId, NodeId, Rank, RankSet};
use bytes::Bytes;
use dvm::{
    machine::{Down, Failure, Grant, Key, Record, Run, State, Tasks, Way},
    queue::{DependencyKind, Hold, Sharing, Spread},
};

use super::model::{Job, Known, Model, Needs, Standing, Task};

/// Who reads a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum For {
    Front,
    /// It is stored.
    NextMachine,
}

/// What is stored.
pub(super) type Stored = BTreeMap<Key, Bytes>;

impl Model {
    /// Checks a record that is told now.
    pub(super) fn check(&self, record: &Record) -> Option<String> {
        self.check_as(record, For::Front)
    }

    fn check_as(&self, record: &Record, whom: For) -> Option<String> {
        let id = record.id;
        let job = self.job(id).or_else(|| self.forgotten.get(&id));
        let Some(job) = job else {
            return Some(format!("there is no job {id}: {record:?}"));
        };
        let wrong = |what: &str| Some(format!("{what} of job {id} is wrong: {record:?}, {job:?}"));
        let way = match &job.front {
            Some(_) => Way::Attached,
            None if job.is_allocation() => Way::Allocation,
            None => Way::Detached,
        };
        if record.way != way {
            return wrong("the way");
        }
        if record.time_limit != job.time_limit {
            return wrong("the time limit");
        }
        if record.wishes.hold != job.wishes.hold && job.over.is_empty() {
            return wrong("the hold");
        }
        if record.wishes.priority != job.wishes.priority
            || record.wishes.on_node_loss != job.wishes.on_node_loss
            || record.wishes.array != job.wishes.array
        {
            return wrong("a wish");
        }
        let is_amount = |needs: &Needs| record.slots == needs.slots();
        if !job.all_needs().any(is_amount) {
            return wrong("the number of slots");
        }
        if !record.paused.difference(&record.tasks.running).is_empty() {
            return wrong("a pause");
        }
        if let Some(what) = tally(&record.tasks, job, whom) {
            return wrong(what);
        }
        let is_right = match (&record.ended, job.over.as_slice()) {
            (None, []) => true,
            (Some((_, why)), over) => over.contains(why),
            (None, _) => false,
        };
        if !is_right {
            return wrong("the end");
        }
        let failure = record.failure.as_ref();
        let failure = failure.map(|(index, why)| (*index, **why == Failure::MachineLost));
        if failure != job.failed {
            return wrong("the failure");
        }
        if whom == For::NextMachine {
            // A start that was not seen may have been canceled, so those of tasks that are over do not matter.
            let lives = |index: &u32| {
                let task = job.tasks.get(index);
                matches!(task, Some(Task::Waiting | Task::Running))
            };
            let told = record.requeues.iter().filter(|(index, _)| lives(index));
            let known = job.requeues.iter().filter(|(index, _)| lives(index));
            let is_right = told.eq(known);
            return if is_right {
                None
            } else {
                wrong("the number of requeues")
            };
        }
        let state = match record.state() {
            State::Succeeded => job.has_succeeded(),
            State::Failed | State::Canceled => !job.over.is_empty() && !job.has_succeeded(),
            State::Running | State::Paused => {
                job.over.is_empty() && !record.tasks.running.is_empty()
            }
            State::Held => job.over.is_empty() && job.wishes.hold != Hold::No,
            State::Waiting => job.over.is_empty() && job.count(Task::Running) == 0,
        };
        if state { None } else { wrong("the state") }
    }

    /// Checks what the store will contain if a batch is stored, and notes which tasks run according to it.
    pub(super) fn check_batch(&mut self, before: u64, stored: &Stored) -> Option<String> {
        let mut rest: BTreeSet<Key> = stored.keys().copied().collect();
        rest.remove(&Key::Next);
        for (id, job) in &self.jobs {
            let Some(value) = stored.get(&Key::Job(*id)) else {
                return Some(format!("job {id} is not stored: {job:?}"));
            };
            rest.remove(&Key::Job(*id));
            if rest.remove(&Key::Spec(*id)) != job.is_detached() {
                return Some(format!("what job {id} runs is stored, or is not"));
            }
            if let Some(wrong) = self.check_value(*id, value) {
                return Some(wrong);
            }
        }
        for id in self.past.keys() {
            let Some(value) = stored.get(&Key::Past(*id)) else {
                return Some(format!("job {id} is over, and not in the history"));
            };
            rest.remove(&Key::Past(*id));
            if let Some(wrong) = self.check_value(*id, value) {
                return Some(wrong);
            }
        }
        if !rest.is_empty() {
            return Some(format!("{rest:?} are stored without need"));
        }
        for (id, job) in &mut self.jobs {
            let value = stored.get(&Key::Job(*id));
            let Some(Ok(record)) = value.map(Record::from_stored) else {
                continue;
            };
            let running: BTreeSet<u32> = record.tasks.running.iter().map(|rank| rank.0).collect();
            for index in running.difference(&job.recorded) {
                let after = job.start_after.entry(*index).or_default();
                *after = before.max(*after);
            }
            job.recorded = running;
        }
        None
    }

    fn check_value(&self, id: JobId, value: &Bytes) -> Option<String> {
        match Record::from_stored(value) {
            Ok(record) if record.id == id => self.check_as(&record, For::NextMachine),
            other => Some(format!("what is stored of {id} is wrong: {other:?}")),
        }
    }

    /// Checks the launch of a task.
    pub(super) fn check_launch(
        &self,
        run: &Run,
        stored: &Stored,
        nodes: &BTreeMap<NodeId, Known>,
        granted: &BTreeMap<NodeId, (u32, u32)>,
    ) -> Option<String> {
        let task = run.task;
        let index = task.index.unwrap_or(0);
        let Some(job) = self.jobs.get(&task.job) else {
            return Some(format!(
                "{task} is launched, and its job is not in the queue"
            ));
        };
        if job.tasks.get(&index) != Some(&Task::Waiting)
            || job.wishes.array.is_some() != task.index.is_some()
        {
            return Some(format!("{task} is launched, and does not wait: {job:?}"));
        }
        let Some(shape) = &job.shape else {
            return Some(format!("{task} is launched, and an allocation"));
        };
        if run.spec.limits != shape.limits() {
            return Some(format!("{task} is launched with {:?}", run.spec.limits));
        }
        if run.front != job.front {
            return Some(format!("{task} is launched for {:?}", run.front));
        }
        let is_array_full = job.wishes.array.as_ref().is_some_and(|array| {
            let most = array.running_max.map(|most| most as usize);
            most.is_some_and(|most| job.count(Task::Running) >= most)
        });
        if is_array_full {
            return Some(format!("{task} is launched, and the array is at its limit"));
        }
        let value = stored.get(&Key::Job(task.job));
        let record = value.and_then(|value| Record::from_stored(value).ok());
        let is_stored = |record: &Record| record.tasks.running.contains(Rank(index));
        if job.front.is_none() && !record.as_ref().is_some_and(is_stored) {
            return Some(format!("{task} is launched, and its start is not stored"));
        }
        let after = match job.front {
            Some(_) => self.call,
            None => job.start_after.get(&index).copied().unwrap_or_default(),
        };
        if job.held_since.is_some_and(|since| since <= after) {
            return Some(format!("{task} is launched, and held"));
        }
        if self.down == Some(Down::Now) || self.down_since.is_some_and(|since| since <= after) {
            return Some(format!("{task} is launched, and the machine ends"));
        }
        let unmet = job.wishes.after.iter().find(|dependency| {
            let has_started = || {
                let value = stored.get(&Key::Job(dependency.on));
                let on = value.and_then(|value| Record::from_stored(value).ok());
                on.is_some_and(|on| on.started.is_some())
            };
            let is_met = self.is_met(**dependency)
                || dependency.kind == DependencyKind::Started && has_started();
            !is_met
        });
        if let Some(unmet) = unmet {
            return Some(format!("{task} is launched, and waits for {unmet:?}"));
        }
        if let Some(closed) = closed_among(&run.grant, nodes, after) {
            return Some(format!(
                "{task} is launched on node {closed}, which is closed"
            ));
        }
        self.check_grant(run, job, nodes, granted)
    }

    /// Checks that an allocation may be granted.
    pub(super) fn check_granted(
        &self,
        id: JobId,
        grant: &Grant,
        nodes: &BTreeMap<NodeId, Known>,
        granted: &BTreeMap<NodeId, (u32, u32)>,
    ) -> Option<String> {
        let wrong = |what: &str| Some(format!("allocation {id} is granted, {what}"));
        let Some(job) = self.jobs.get(&id).filter(|job| job.is_allocation()) else {
            return wrong("and is none");
        };
        if job.count(Task::Waiting) == 0 {
            return wrong("and does not wait");
        }
        if job.held_since.is_some() {
            return wrong("and held by its user");
        }
        if self.down.is_some() {
            return wrong("and the machine ends");
        }
        if let Some(closed) = closed_among(grant, nodes, self.call) {
            return wrong(&format!("and node {closed} is closed"));
        }
        let wrong = job.needs.check(grant, nodes, granted);
        wrong.map(|wrong| format!("allocation {id} {wrong}"))
    }

    /// Checks the slots of a run. `granted` has what others have of each node: slots, and how many of them have the whole node.
    fn check_grant(
        &self,
        run: &Run,
        job: &Job,
        nodes: &BTreeMap<NodeId, Known>,
        granted: &BTreeMap<NodeId, (u32, u32)>,
    ) -> Option<String> {
        // The start may have been stored before a node was lost.
        let wrong = |needs: &Needs| needs.check(&run.grant, nodes, granted);
        let mut all = job.all_needs().map(wrong);
        let first = all.next().flatten();
        let wrong = first.filter(|_| all.all(|wrong| wrong.is_some()));
        wrong.map(|wrong| format!("{} {wrong}", run.task))
    }

    /// Checks a listing.
    pub(super) fn check_list(&self, records: &[Record], most: u32) -> Option<String> {
        let mut told = BTreeSet::new();
        let mut over = 0_usize;
        for record in records {
            if !told.insert(record.id) {
                return Some(format!("job {} is listed twice", record.id));
            }
            over += usize::from(record.ended.is_some());
            if let Some(wrong) = self.check(record) {
                return Some(wrong);
            }
        }
        if let Some(missing) = self.jobs.keys().find(|id| !told.contains(id)) {
            return Some(format!("job {missing} is in the queue, and not listed"));
        }
        let expected = self.past.len().min(most as usize);
        let is_right = over == expected || (!self.forgotten.is_empty() && over >= expected);
        (!is_right).then(|| format!("{over} jobs that are over are listed, and not {expected}"))
    }
}

/// Compares the tally of a record with the tasks of a job. Returns what is wrong.
fn tally(tasks: &Tasks, job: &Job, whom: For) -> Option<&'static str> {
    let mut all = RankSet::new();
    let sets = [
        (&tasks.waiting, Task::Waiting),
        (&tasks.running, Task::Running),
        (&tasks.succeeded, Task::Succeeded),
        (&tasks.failed, Task::Failed),
        (&tasks.canceled, Task::Canceled),
    ];
    for (set, place) in sets {
        if !set.is_disjoint(&all) {
            return Some("a task that is in two sets");
        }
        all = all.union(set);
        for index in set.iter() {
            let Some(task) = job.tasks.get(&index.0) else {
                return Some("a task that does not exist");
            };
            let expected = match *task {
                // It is not to run again.
                Task::Running if whom == For::NextMachine && job.to_end.contains(&index.0) => {
                    Task::Canceled
                }
                other => other,
            };
            // Its start is being stored.
            let starts = place == Task::Running && expected == Task::Waiting && job.is_detached();
            if expected != place && !starts {
                return Some("the place of a task");
            }
        }
    }
    (all.len() != job.tasks.len()).then_some("the number of tasks")
}

/// Returns a node of a grant on which nothing may start. What may start was decided after this call.
pub(super) fn closed_among(
    grant: &Grant,
    nodes: &BTreeMap<NodeId, Known>,
    after: u64,
) -> Option<NodeId> {
    let is_closed = |id: &NodeId| {
        nodes.get(id).is_none_or(|node| {
            // A task whose start was being stored when the node got another daemon is refused there.
            node.standing == Standing::Starting && node.daemon == *id
                || node.closed_since.is_some_and(|since| since <= after)
        })
    };
    grant.slots.keys().copied().find(is_closed)
}

impl Needs {
    /// Checks slots that a job gets. `granted` has what others have of each node: slots, and how many of them have the whole node. Returns what is
    /// wrong.
    pub(super) fn check(
        &self,
        grant: &Grant,
        nodes: &BTreeMap<NodeId, Known>,
        granted: &BTreeMap<NodeId, (u32, u32)>,
    ) -> Option<String> {
        let wrong = |what: &str| Some(format!("gets {grant:?}, {what}: {self:?}"));
        if grant.sharing != self.sharing {
            return wrong("which is the other way to share");
        }
        let mut units = 0;
        for (id, slots) in &grant.slots {
            let has = nodes.get(id).map_or(0, |node| node.slots);
            let (used, whole) = granted.get(id).copied().unwrap_or_default();
            if used + slots > has || whole > 0 {
                return wrong("which others have");
            }
            if self.sharing == Sharing::Exclusive && (used > 0 || *slots != has) {
                return wrong("and no whole node");
            }
            if !self.admits(*id) {
                return wrong("where it does not want to run");
            }
            units += match self.spread {
                Spread::Pack => slots / self.unit,
                Spread::Scatter => (slots / self.unit).min(1),
            };
        }
        let is_enough = match self.sharing {
            Sharing::Shared => {
                let all: u32 = grant.slots.values().sum();
                all == self.slots() && units == self.units
            }
            Sharing::Exclusive => units >= self.units,
        };
        if is_enough {
            None
        } else {
            wrong("which is too little or too much")
        }
    }
}
