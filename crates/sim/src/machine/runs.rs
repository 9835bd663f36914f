//! The controller: it launches tasks, and reports how their runs end.

use std::collections::{BTreeMap, BTreeSet};

use base::{ExitStatus, JobId, NodeId, Rank, RankSet, Usage};
use dvm::{
    machine::{Down, Grant, Run},
    place,
    proto::{Cause, EndReason, FrontId, Outcome, Refusal},
    queue::{Sharing, TaskId},
    spec::GpuShare,
};

use super::{
    Call, Event, World,
    model::{How, Standing},
};

/// How a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Succeeded,
    Failed,
    Aborted,
    TimeLimit,
    FrontLost,
    Canceled,
    NodeLost,
    /// It is refused: it cannot be placed.
    Refused,
    /// It is refused: a node was lost.
    RefusedNode,
}

#[derive(Debug)]
struct Going {
    task: TaskId,
    front: Option<FrontId>,
    grant: Grant,
    /// The machine has ordered its end.
    is_ended: bool,
    /// It does not end by itself.
    is_endless: bool,
}

#[derive(Debug, Default)]
pub(super) struct Runs {
    /// Launches that were ordered.
    ordered: BTreeMap<u64, Run>,
    last_order: u64,
    going: BTreeMap<JobId, Going>,
    last_run: u32,
    /// What allocations have, by their numbers in the queue.
    pub(super) held: BTreeMap<JobId, Grant>,
}

impl Runs {
    /// Returns true if this run goes on.
    pub(super) fn has(&self, run: JobId) -> bool {
        self.going.contains_key(&run)
    }

    /// Returns what a run has of the nodes.
    pub(super) fn grant(&self, run: JobId) -> Option<&Grant> {
        self.going.get(&run).map(|run| &run.grant)
    }

    /// Returns the tasks that run on a node, or are about to, and the allocations there.
    pub(super) fn on(&self, node: NodeId) -> Vec<TaskId> {
        let ordered = self.ordered.values().map(|run| (run.task, &run.grant));
        let going = self.going.values().map(|run| (run.task, &run.grant));
        let held = self.held.iter().map(|(job, grant)| (whole(*job), grant));
        let all = ordered.chain(going).chain(held);
        let found = all.filter(|(_, grant)| grant.slots.contains_key(&node));
        found.map(|(task, _)| task).collect()
    }

    /// Checks that a run has as many GPUs as it asks for, and none that another one has. Returns a description of an error.
    fn check_gpus(&self, run: &Run) -> Option<String> {
        let share = run.spec.gpus.as_ref().map(|plan| plan.share);
        let Some(GpuShare::Each(each)) = share else {
            return None;
        };
        let wrong = |what: &str| Some(format!("{} {what}: {:?}", run.task, run.grant));
        let ordered = self.ordered.values().map(|run| &run.grant);
        let others: Vec<&Grant> = ordered
            .chain(self.going.values().map(|run| &run.grant))
            .collect();
        let mut count = 0;
        for (node, gpus) in &run.grant.gpus {
            count += gpus.names.len();
            let theirs = others.iter().filter_map(|grant| grant.gpus.get(node));
            let mut theirs = theirs.flat_map(|gpus| &gpus.names);
            if theirs.any(|name| gpus.names.contains(name)) {
                return wrong("gets a GPU that another task has");
            }
        }
        let procs = run.spec.placement.apps[0].count.unwrap_or(1);
        if run.grant.sharing == Sharing::Shared && count < (procs * each) as usize {
            return wrong("gets too few GPUs");
        }
        None
    }

    /// Returns what runs have of each node: slots, and how many runs have the whole node.
    pub(super) fn granted(&self) -> BTreeMap<NodeId, (u32, u32)> {
        let mut granted: BTreeMap<NodeId, (u32, u32)> = BTreeMap::new();
        let ordered = self.ordered.values().map(|run| &run.grant);
        let going = self.going.values().map(|run| &run.grant);
        for grant in ordered.chain(going).chain(self.held.values()) {
            for (id, slots) in &grant.slots {
                let entry = granted.entry(*id).or_default();
                entry.0 += slots;
                entry.1 += u32::from(grant.sharing == Sharing::Exclusive);
            }
        }
        granted
    }
}

/// Returns the only task of an allocation.
const fn whole(job: JobId) -> TaskId {
    TaskId { job, index: None }
}

impl End {
    const fn how(self) -> How {
        match self {
            Self::Succeeded => How::Succeeded,
            Self::Canceled => How::Canceled,
            Self::NodeLost | Self::RefusedNode => How::NodeLost,
            Self::Failed | Self::Aborted | Self::TimeLimit | Self::FrontLost | Self::Refused => {
                How::Failed
            }
        }
    }

    fn cause(self) -> Result<Cause, Refusal> {
        let rank = Rank(0);
        Ok(match self {
            Self::Succeeded => Cause::Success,
            Self::Failed => Cause::Failed {
                rank,
                status: ExitStatus::Exited(3),
            },
            Self::Aborted => Cause::Aborted {
                rank,
                code: 1,
                message: String::new(),
            },
            Self::TimeLimit => Cause::Ended(EndReason::TimeLimit),
            Self::FrontLost => Cause::Ended(EndReason::FrontLost),
            Self::Canceled => Cause::Ended(EndReason::Canceled),
            Self::NodeLost => Cause::NodeLost {
                node: NodeId(0),
                why: "no answer".to_owned(),
            },
            Self::Refused => return Err(Refusal::Placement(place::Error::NoApps)),
            Self::RefusedNode => {
                return Err(Refusal::NodeLost {
                    host: "n0".to_owned(),
                });
            }
        })
    }
}

impl World {
    pub(super) fn on_launch(&mut self, mut run: Run) {
        run.grant = self.by_name(run.grant);
        let granted = self.runs.granted();
        let stored = &self.disk.stored;
        let wrong = self.model.check_launch(&run, stored, &self.nodes, &granted);
        self.fault(wrong);
        let wrong = self.runs.check_gpus(&run);
        self.fault(wrong);
        let task = run.task;
        self.model.launch(task.job, task.index.unwrap_or(0));
        let front = run.front.and_then(|front| self.fronts.get_mut(&front));
        if let Some(front) = front {
            front.waits = false;
        }
        self.runs.last_order += 1;
        let order = self.runs.last_order;
        self.runs.ordered.insert(order, run);
        let wait = match self.rng.below(3) {
            0 => self.rng.millis(0, 2_000),
            _ => self.rng.micros(0, 100),
        };
        self.later(wait, Event::Launched(order));
    }

    pub(super) fn launched(&mut self, order: u64) {
        let Some(run) = self.runs.ordered.remove(&order) else {
            return;
        };
        self.runs.last_run += 1;
        let (id, task) = (JobId(self.runs.last_run), run.task);
        let is_lost = |node: &NodeId| {
            let node = self.nodes.get(node);
            node.is_none_or(|node| node.standing == Standing::Lost)
        };
        let is_refused = run.grant.slots.keys().any(is_lost);
        let front = run.front.map(|front| self.fronts.get(&front));
        let has_no_front = front.is_some_and(|front| front.is_none_or(|front| front.is_gone));
        let (wait, end) = if is_refused {
            (self.rng.micros(0, 10), Some(End::RefusedNode))
        } else if has_no_front {
            (self.rng.millis(0, 100), Some(End::FrontLost))
        } else {
            self.fate()
        };
        let going = Going {
            task,
            front: run.front,
            grant: run.grant,
            is_ended: false,
            is_endless: end.is_none(),
        };
        self.note(|| format!("run {id} of {task} starts: {end:?} after {wait:?}"));
        self.runs.going.insert(id, going);
        if let Some(end) = end {
            self.later(wait, Event::Ended(id, end));
        }
        self.plan_requests(id);
        self.model.call += 1;
        let now = self.agenda.now;
        self.call(Call::Other, |machine| machine.launched(now, task, id));
    }

    /// Chooses how and when a run ends; `None` if it does not end by itself.
    fn fate(&mut self) -> (std::time::Duration, Option<End>) {
        let wait = match self.rng.below(4) {
            0 => self.rng.micros(0, 1_000),
            1..3 => self.rng.millis(0, 3_000),
            _ => self.rng.millis(0, 30_000),
        };
        let end = match self.rng.below(24) {
            0..3 => End::Failed,
            3 => End::Aborted,
            4 => End::TimeLimit,
            5 => End::Refused,
            6 if !self.is_calm => End::NodeLost,
            7 if !self.is_calm => End::RefusedNode,
            8..10 if !self.is_calm => return (wait, None),
            _ => End::Succeeded,
        };
        (wait, Some(end))
    }

    /// The machine orders the end of a run.
    pub(super) fn on_end(&mut self, id: JobId) {
        let Some(run) = self.runs.going.get_mut(&id) else {
            return self.fault(Some(format!("run {id} is to end, and does not run")));
        };
        run.is_ended = true;
        let task = run.task;
        let index = task.index.unwrap_or(0);
        let is_right = self.model.down == Some(Down::Now)
            || self
                .model
                .jobs
                .get(&task.job)
                .is_some_and(|job| job.is_canceled || job.has_to_end(index));
        self.fault((!is_right).then(|| format!("run {id} of {task} is ended without need")));
        let end = match self.rng.below(8) {
            0 => End::Succeeded,
            1 => End::Failed,
            2 if !self.is_calm => End::NodeLost,
            _ => End::Canceled,
        };
        let wait = self.rng.millis(0, 1_000);
        self.later(wait, Event::Ended(id, end));
    }

    pub(super) fn run_ended(&mut self, id: JobId, end: End) {
        self.ranks_ended(id);
        let Some(run) = self.runs.going.remove(&id) else {
            return;
        };
        let task = run.task;
        self.note(|| format!("run {id} of {task} ends: {end:?}"));
        self.model.call += 1;
        self.model.end(task.job, task.index.unwrap_or(0), end.how());
        self.model.fit_to_nodes(&self.nodes);
        let now = self.agenda.now;
        match end.cause() {
            Ok(cause) => {
                let outcome = Outcome {
                    cause,
                    size: 1,
                    ended: Vec::new(),
                    not_started: RankSet::new(),
                    failed_on: Vec::new(),
                    ended_by_us: RankSet::new(),
                    left: RankSet::new(),
                };
                self.call(Call::Other, |machine| {
                    machine.run_ended(now, id, &outcome, &Usage::default())
                });
            }
            Err(refusal) => {
                self.call(Call::Other, |machine| {
                    machine.run_refused(now, id, &refusal)
                });
            }
        }
        self.owner_ended(id);
    }

    /// Ends the runs on a node that is lost.
    pub(super) fn end_on(&mut self, node: NodeId) {
        let runs = self.runs.going.iter();
        let runs = runs.filter(|(_, run)| run.grant.slots.contains_key(&node));
        let runs: Vec<JobId> = runs.map(|(id, _)| *id).collect();
        for id in runs {
            let wait = self.rng.millis(0, 50);
            self.later(wait, Event::Ended(id, End::NodeLost));
        }
    }

    /// Ends the run of a front that is lost.
    pub(super) fn end_of(&mut self, front: FrontId) {
        let runs = self.runs.going.iter();
        let runs = runs.filter(|(_, run)| run.front == Some(front));
        let runs: Vec<JobId> = runs.map(|(id, _)| *id).collect();
        for id in runs {
            let wait = self.rng.millis(0, 500);
            self.later(wait, Event::Ended(id, End::FrontLost));
        }
    }

    /// Ends the runs that do not end by themselves.
    pub(super) fn end_endless(&mut self) {
        let runs = self.runs.going.iter();
        let runs = runs.filter(|(_, run)| run.is_endless);
        let runs: Vec<JobId> = runs.map(|(id, _)| *id).collect();
        for id in runs {
            let wait = self.rng.millis(0, 500);
            self.later(wait, Event::Ended(id, End::Succeeded));
        }
    }

    /// Checks that the end of each run was ordered that has to end. Returns a description of an error.
    pub(super) fn check_ends(&self) -> Option<String> {
        let running: BTreeSet<TaskId> = self.runs.going.values().map(|run| run.task).collect();
        if running.len() != self.runs.going.len() {
            return Some("a task has two runs".to_owned());
        }
        let kept = self.runs.going.iter().find(|(_, run)| {
            let index = run.task.index.unwrap_or(0);
            let job = self.model.jobs.get(&run.task.job);
            let is_to_end = job.is_some_and(|job| job.has_to_end(index));
            !run.is_ended && (is_to_end || self.model.down == Some(Down::Now))
        });
        kept.map(|(id, run)| format!("run {id} of {} is to end, and runs on", run.task))
    }
}
