//! The runs of tasks, from the order of the queue to their ends.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
};

use base::{HostList, JobId, NodeId, Rank, RankSet, Time, Usage};

use super::{
    AllocationEnd, Down, Effect, INDEX_VARIABLE, JOB_VARIABLE, Machine, MachineOutput, Run, Stage,
    Work,
    planted::{self, Bug},
    record::{Failure, OutputFiles, Tasks},
    resources::GPU,
};
use crate::{
    messages,
    proto::{Cause, EndReason, Outcome, Refusal},
    queue::{self, Amounts, Requeue, TaskId, Units},
    spec::{JobSpec, NodeGpus},
};

/// How far a task was that waits again because the machine ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TakenBack {
    Unlaunched,
    /// It goes on with its output files.
    Ran,
}

impl Machine {
    pub(super) fn start(&mut self, now: Time, task: TaskId, units: Units) {
        let wall = self.wall(now);
        let names = units.iter().filter_map(|(id, _)| self.nodes.get(id));
        let hosts: HostList = names.map(|node| node.name.as_str()).collect();
        let Some(entry) = self.jobs.get_mut(&task.job) else {
            return;
        };
        entry.record.started.get_or_insert(wall);
        entry.record.hosts = hosts;
        entry
            .record
            .put(task.index.unwrap_or(0), |tasks| &mut tasks.running);
        self.books.touch(task.job);
        if matches!(entry.work, Work::Allocation(_)) {
            return self.grant(now, task.job, &units);
        }
        if entry.front.is_some() || planted::is(Bug::LaunchedBeforeStored) {
            // It ends with its front, and is never started again.
            return self.launch(task, &units);
        }
        entry.runs.insert(task.index, Stage::Storing(units));
        self.books.after(Effect::Launch(task));
    }

    pub(super) fn launch(&mut self, task: TaskId, units: &Units) {
        let Some(entry) = self.jobs.get_mut(&task.job) else {
            return;
        };
        let Work::Programs(spec) = &entry.work else {
            return;
        };
        let spec = named(spec.open(), task);
        entry.runs.insert(task.index, Stage::Ordered);
        let (sharing, unit) = (entry.sharing, entry.unit);
        let mut grant = self.granted(units, sharing, unit);
        grant.gpus = self.take_gpus(task);
        let Some(entry) = self.jobs.get(&task.job) else {
            return;
        };
        let run = Run {
            task,
            spec,
            front: entry.front,
            grant,
            output: entry.record.output.as_ref().map(|files| files.of(task)),
            truncates: entry.record.begins_files(task.index.unwrap_or(0)),
        };
        self.outputs.push_back(MachineOutput::Launch(Box::new(run)));
    }

    /// Gives a task that starts the GPUs that the queue has counted for it. Returns them by the daemons of their nodes.
    fn take_gpus(&mut self, task: TaskId) -> BTreeMap<NodeId, NodeGpus> {
        if !self.has_gpus(task.job) {
            return BTreeMap::new();
        }
        let parts: Vec<(NodeId, Amounts)> = self.queue.parts(task).collect();
        let taken = parts.into_iter().filter_map(|(id, part)| {
            let count = self.counted.named(&part).get(GPU).copied()?;
            let node = self.nodes.get_mut(&id)?;
            let gpus = node.gpus.as_mut()?.take(task, count);
            Some((node.daemon?, gpus))
        });
        taken.collect()
    }

    /// Returns true if a job asks for GPUs.
    fn has_gpus(&self, job: JobId) -> bool {
        let entry = self.jobs.get(&job);
        let needs = entry.and_then(|entry| entry.record.needs.as_ref());
        needs.is_some_and(|needs| needs.gpus.is_some())
    }

    fn give_gpus_back(&mut self, task: TaskId) {
        if !self.has_gpus(task.job) {
            return;
        }
        let parts: Vec<NodeId> = self.queue.parts(task).map(|(id, _)| id).collect();
        for id in parts {
            let node = self.nodes.get_mut(&id);
            if let Some(gpus) = node.and_then(|node| node.gpus.as_mut()) {
                gpus.give_back(task);
            }
        }
    }

    /// Notes the number of the run of a task.
    pub fn launched(&mut self, now: Time, task: TaskId, run: JobId) {
        let Some(entry) = self.jobs.get_mut(&task.job) else {
            return;
        };
        self.runs.insert(run, task);
        let before = entry.runs.insert(task.index, Stage::Runs(run));
        if before == Some(Stage::Revoked) && !planted::is(Bug::RevokedRunsOn) {
            self.outputs.push_back(MachineOutput::End(run));
        }
        self.settle(now);
    }

    /// Ends the run of a task: it is canceled, or its node is dropped.
    pub(super) fn revoke(&mut self, task: TaskId) {
        let Some(entry) = self.jobs.get_mut(&task.job) else {
            return;
        };
        let is_canceled = entry.ending.contains(Rank(task.index.unwrap_or(0)));
        match entry.runs.get_mut(&task.index) {
            Some(Stage::Runs(run)) => self.outputs.push_back(MachineOutput::End(*run)),
            Some(stage @ Stage::Ordered) => *stage = Stage::Revoked,
            Some(Stage::Revoked) | None => {}
            Some(Stage::Storing(_)) if !is_canceled => {
                self.take_back(task, TakenBack::Unlaunched);
            }
            Some(Stage::Held) => self.end_allocation(task.job, AllocationEnd::Canceled),
            Some(Stage::Storing(_)) => {
                entry.runs.remove(&task.index);
                self.ended(task, queue::Outcome::Failed, |tasks| &mut tasks.canceled);
            }
        }
    }

    /// Handles the end of a run.
    pub fn run_ended(&mut self, now: Time, run: JobId, outcome: &Outcome, spent: &Usage) {
        let Some(task) = self.runs.remove(&run) else {
            return;
        };
        if let Some(entry) = self.jobs.get_mut(&task.job) {
            entry.record.spent.add(spent);
        }
        let lost = matches!(outcome.cause, Cause::NodeLost { .. });
        let is_silenced = self.silenced.remove(&run);
        match &outcome.cause {
            Cause::Success if !is_silenced => {
                self.ended(task, queue::Outcome::Succeeded, |tasks| {
                    &mut tasks.succeeded
                });
            }
            Cause::Ended(EndReason::Canceled) if self.goes_on_later(task) => {
                self.take_back(task, TakenBack::Ran);
            }
            Cause::Ended(EndReason::Canceled) => {
                self.ended(task, queue::Outcome::Failed, |tasks| &mut tasks.canceled);
            }
            _ => {
                self.note_failure(task, Failure::Ended(outcome.clone()));
                let outcome = if lost {
                    queue::Outcome::NodeLost
                } else {
                    queue::Outcome::Failed
                };
                self.ended(task, outcome, |tasks| &mut tasks.failed);
            }
        }
        self.settle(now);
    }

    /// Returns true if the machine has ended a task that the next machine may run again: its user has not canceled it.
    fn goes_on_later(&self, task: TaskId) -> bool {
        let entry = self.jobs.get(&task.job);
        let may_run_again = entry.is_some_and(|entry| {
            let is_canceled = entry.ending.contains(Rank(task.index.unwrap_or(0)));
            entry.record.wishes.on_node_loss == Requeue::OnNodeLoss && !is_canceled
        });
        self.down == Some(Down::Now) && may_run_again && !planted::is(Bug::EndedForGood)
    }

    /// Lets a task wait again, for the next machine.
    pub(super) fn take_back(&mut self, task: TaskId, how_far: TakenBack) {
        if let Some(entry) = self.jobs.get_mut(&task.job) {
            entry.runs.remove(&task.index);
            let index = task.index.unwrap_or(0);
            if how_far == TakenBack::Ran {
                entry.record.requeued.insert(Rank(index));
                // It has not failed after all.
                let failure = &mut entry.record.failure;
                failure.take_if(|(failed, _)| *failed == index);
            }
            entry.record.put(index, |tasks| &mut tasks.waiting);
        }
        self.books.touch(task.job);
        self.give_gpus_back(task);
        self.queue.take_back(task);
    }

    /// Handles that a run could not be placed or started.
    pub fn run_refused(&mut self, now: Time, run: JobId, refusal: &Refusal) {
        let Some(task) = self.runs.remove(&run) else {
            return;
        };
        let outcome = match refusal {
            Refusal::NodeLost { .. } => queue::Outcome::NodeLost,
            _ => queue::Outcome::Failed,
        };
        let why = messages::refused(refusal).headline;
        self.note_failure(task, Failure::Refused(why));
        self.ended(task, outcome, |tasks| &mut tasks.failed);
        self.settle(now);
    }

    /// Notes that output of a run is lost. The task has failed, however it ends.
    pub fn output_lost(&mut self, run: JobId, why: String) {
        if let Some(task) = self.runs.get(&run).copied() {
            self.note_failure(task, Failure::OutputLost(why));
            self.silenced.insert(run);
        }
    }

    pub(super) fn note_failure(&mut self, task: TaskId, failure: Failure) {
        if let Some(entry) = self.jobs.get_mut(&task.job) {
            let index = task.index.unwrap_or(0);
            let failure = || (index, Box::new(failure));
            entry.record.failure.get_or_insert_with(failure);
        }
    }

    pub(super) fn ended(
        &mut self,
        task: TaskId,
        outcome: queue::Outcome,
        place: impl FnOnce(&mut Tasks) -> &mut RankSet,
    ) {
        if let Some(entry) = self.jobs.get_mut(&task.job) {
            entry.runs.remove(&task.index);
            let index = task.index.unwrap_or(0);
            entry.record.put(index, place);
            let one = RankSet::single(Rank(index));
            entry.ending = entry.ending.difference(&one);
        }
        self.books.touch(task.job);
        self.give_gpus_back(task);
        // If the task is requeued, or the job is over, the queue says so: see [`Self::settle`].
        self.queue.ended(task, outcome);
    }
}

/// Returns the job of a task, whose procs find its numbers in their environment.
fn named(spec: JobSpec, task: TaskId) -> Box<JobSpec> {
    let mut spec = Box::new(spec);
    let job = (JOB_VARIABLE, task.job.to_string());
    let index = task.index.map(|index| (INDEX_VARIABLE, index.to_string()));
    for (name, value) in std::iter::once(job).chain(index) {
        for app in &mut spec.apps {
            app.env.set(name, &value);
        }
    }
    spec
}

impl OutputFiles {
    /// Returns the files of one task.
    fn of(&self, task: TaskId) -> Self {
        let filled = |pattern: &OsString| fill(pattern, task);
        Self {
            stdout: filled(&self.stdout),
            stderr: self.stderr.as_ref().map(filled),
        }
    }
}

/// Returns the name of a file of a task: replaces `%j`, `%i` and `%%`. What else follows a percent sign stays as it is.
#[must_use]
pub fn fill(pattern: &OsStr, task: TaskId) -> OsString {
    let mut filled: Vec<u8> = Vec::with_capacity(pattern.len());
    let mut bytes = pattern.as_bytes().iter().copied();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            filled.push(byte);
            continue;
        }
        match bytes.next() {
            Some(b'j') => filled.extend(task.job.to_string().bytes()),
            Some(b'i') => filled.extend(task.index.unwrap_or(0).to_string().bytes()),
            Some(b'%') | None => filled.push(b'%'),
            Some(other) => filled.extend([b'%', other]),
        }
    }
    OsString::from_vec(filled)
}
