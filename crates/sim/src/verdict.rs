//! The expected end of each job. It is computed from the messages that the controller receives and the launches that it
//! sends, by a second, simpler implementation of the controller's rules.

mod control;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use base::{ExitStatus, JobId, NodeId, Rank, RankSet, Signal, Time};
use dvm::{
    ControllerInput,
    proto::{
        Cause, EndReason, FromFront, FromServer, FrontId, JobRef, Launch, PmiState, StartFailure,
        ToController,
    },
    spec::{EndPolicy, OnFailure},
};

use self::control::{Consequence, ControlVerdict};
use crate::{ledger::child_of, scenario::Then};

/// The expected state of one job at the controller.
#[derive(Debug)]
pub(crate) struct Verdict {
    on_failure: OnFailure,
    on_node_loss: OnFailure,
    limit: Option<Duration>,
    limit_at: Option<Time>,
    /// Front that submitted the job or, for a spawned job, the ancestor that no process spawned.
    pub(crate) front: FrontId,
    /// Job whose process spawned this job; `None` for a job that a front submitted. What a tool spawns belongs to the job of the front.
    parent: Option<JobId>,
    /// The tool that has spawned it, and what becomes of it when that is gone.
    tool: Option<(JobId, Then)>,
    pub(crate) cause: Option<Cause>,
    /// True once the end of the job was requested or has become necessary.
    pub(crate) ending: bool,
    /// Ranks of the job on each node to which the controller has sent the launch.
    pub(crate) ranks: BTreeMap<NodeId, RankSet>,
    /// Nodes whose daemon has reported the job as clean, or was lost.
    clean: BTreeSet<NodeId>,
    pub(crate) ended: BTreeMap<Rank, ExitStatus>,
    pub(crate) not_started: RankSet,
    pub(crate) by_us: RankSet,
    /// Held ranks that the front released by name. A release of all held ranks is not recorded.
    pub(crate) released: RankSet,
    pub(crate) failures: BTreeMap<StartFailure, RankSet>,
}

impl Verdict {
    fn new(now: Time, end: &EndPolicy, front: FrontId, parent: Option<JobId>) -> Self {
        Self {
            on_failure: end.on_failure,
            on_node_loss: end.on_node_loss,
            limit: end.time_limit,
            limit_at: end.time_limit.map(|limit| now + limit),
            front,
            parent,
            tool: None,
            cause: None,
            ending: false,
            ranks: BTreeMap::new(),
            clean: BTreeSet::new(),
            ended: BTreeMap::new(),
            not_started: RankSet::new(),
            by_us: RankSet::new(),
            released: RankSet::new(),
            failures: BTreeMap::new(),
        }
    }

    /// Returns the ranks that have ended or will never start, as far as the controller knows.
    pub(crate) fn gone(&self) -> RankSet {
        let ended: RankSet = self.ended.keys().copied().collect();
        ended.union(&self.not_started)
    }

    /// Returns true if the job was launched and each of its nodes is clean or lost. Later messages then change nothing.
    pub(crate) fn is_over(&self) -> bool {
        !self.ranks.is_empty() && self.ranks.keys().all(|node| self.clean.contains(node))
    }

    /// Records the exit statuses of ranks. Returns the cause for which the job must now end, if any. With
    /// [`OnFailure::Continue`], a failure becomes the cause of the job but does not end it.
    fn on_ended(&mut self, classes: &[(ExitStatus, RankSet)]) -> Option<Cause> {
        let cause = self.record(classes);
        match self.on_failure {
            OnFailure::EndJob => cause,
            OnFailure::Continue => {
                self.cause = self.cause.take().or(cause);
                None
            }
        }
    }

    /// Records the exit statuses of ranks. Returns the first failure among them.
    fn record(&mut self, classes: &[(ExitStatus, RankSet)]) -> Option<Cause> {
        let mut cause = None;
        for (status, ranks) in classes {
            for rank in ranks.iter() {
                self.ended.insert(rank, *status);
                if self.ending {
                    self.by_us.insert(rank);
                }
                if !status.is_success() {
                    let status = *status;
                    cause.get_or_insert(Cause::Failed { rank, status });
                }
            }
        }
        cause
    }

    fn end(&mut self, cause: Cause) {
        if !self.ending {
            self.ending = true;
            self.cause = Some(cause);
        }
    }

    /// Returns true if a tool has spawned the job. Its output and the reports about it are not for the front.
    pub(crate) const fn is_of_tool(&self) -> bool {
        self.tool.is_some()
    }

    /// Returns the cause that the front must get for a failed spawned job; `None` if the job succeeded or was ended.
    pub(crate) fn failure(&self) -> Option<Cause> {
        match self.expected_cause() {
            Cause::Success | Cause::Ended(_) => None,
            cause => Some(cause),
        }
    }

    /// Returns the exit code that the event for the job's end must contain.
    pub(crate) fn code(&self) -> u64 {
        match self.expected_cause() {
            Cause::Success => 0,
            Cause::Failed { status, .. } => status.code().into(),
            Cause::Aborted { code, .. } => code.into(),
            _ => 1,
        }
    }

    /// Returns the cause that the outcome of the job must have.
    pub(crate) fn expected_cause(&self) -> Cause {
        match self.cause.clone().unwrap_or(Cause::Success) {
            Cause::NotStarted(_) => Cause::NotStarted(self.failures.clone().into_iter().collect()),
            cause => cause,
        }
    }
}

/// The state of one front at the controller.
#[derive(Debug, Default)]
struct FrontState {
    end: EndPolicy,
    job: Option<JobId>,
    is_lost: bool,
}

/// The expected states of all jobs, and the fronts that submitted them.
#[derive(Debug, Default)]
pub(crate) struct Verdicts {
    fronts: BTreeMap<FrontId, FrontState>,
    jobs: BTreeMap<JobId, Verdict>,
    /// Ranks that daemons have reported because ranks on other nodes may wait for them.
    exited_early: BTreeMap<(JobId, PmiState), RankSet>,
    pub(crate) control: ControlVerdict,
    /// What becomes of the jobs that tools spawn when these are gone, by the index of the child.
    orders: BTreeMap<usize, Then>,
}

impl Verdicts {
    pub(crate) fn new(orders: BTreeMap<usize, Then>) -> Self {
        Self {
            orders,
            ..Self::default()
        }
    }

    /// Creates the state of a job that the controller has accepted from a front.
    pub(crate) fn on_accepted(&mut self, now: Time, front: FrontId, job: JobId) {
        let state = self.fronts.entry(front).or_default();
        state.job = Some(job);
        let mut verdict = Verdict::new(now, &state.end, front, None);
        if self.control.waits() && self.control.front() == Some(front) {
            verdict.limit_at = None;
        }
        self.jobs.insert(job, verdict);
    }

    /// Returns the expected state of the job that a front submitted; `None` before the controller accepts it.
    pub(crate) fn of_front(&self, front: FrontId) -> Option<&Verdict> {
        self.of(self.fronts.get(&front)?.job?)
    }

    /// Returns the job that a front has submitted.
    pub(crate) fn job_of(&self, front: FrontId) -> Option<JobId> {
        self.fronts.get(&front)?.job
    }

    pub(crate) fn is_lost(&self, front: FrontId) -> bool {
        self.fronts.get(&front).is_some_and(|front| front.is_lost)
    }

    /// Returns the front that gets the messages of a job.
    pub(crate) fn front_of(&self, job: JobId) -> Option<FrontId> {
        Some(self.of(job)?.front)
    }

    pub(crate) fn of(&self, job: JobId) -> Option<&Verdict> {
        self.jobs.get(&job)
    }

    fn of_mut(&mut self, job: JobId) -> Option<&mut Verdict> {
        self.jobs.get_mut(&job)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (JobId, &Verdict)> {
        self.jobs.iter().map(|(job, verdict)| (*job, verdict))
    }

    /// Returns true if what a tool spawns can belong to the job of the first front.
    pub(crate) fn takes_orders(&self) -> bool {
        let root = self.of_front(FrontId(0));
        root.is_some_and(|root| !root.ending && !root.is_over())
    }

    /// Returns the expected states of all spawned jobs.
    pub(crate) fn spawned(&self) -> impl Iterator<Item = (JobId, &Verdict)> {
        self.all().filter(|(_, verdict)| verdict.parent.is_some())
    }

    /// Returns the jobs whose end was requested or has become necessary.
    pub(crate) fn ending(&self) -> impl Iterator<Item = JobId> {
        let ending = self.all().filter(|(_, verdict)| verdict.ending);
        ending.map(|(job, _)| job)
    }

    /// Records a launch that the controller sends to a node. The first launch of a spawned job creates its state.
    pub(crate) fn on_launch(&mut self, now: Time, node: NodeId, launch: &Launch) {
        let ranks = launch.map.ranks_on(node);
        if let Some(verdict) = self.of_mut(launch.job) {
            verdict.ranks.insert(node, ranks);
            return;
        }
        let by = launch.parent.as_ref().map(|parent| parent.proc.job);
        let order = child_of(launch).and_then(|child| self.orders.get(&child));
        let tool = by.and_then(|by| Some((by, *order?)));
        let parent = match tool {
            Some(_) => self.job_of(FrontId(0)),
            None => by,
        };
        let Some(front) = parent.and_then(|parent| self.front_of(parent)) else {
            return;
        };
        let mut verdict = Verdict::new(now, &launch.end, front, parent);
        verdict.tool = tool;
        // A spawned job has no time limit of its own: it ends with the jobs that it descends from.
        verdict.limit_at = None;
        verdict.ranks.insert(node, ranks);
        self.jobs.insert(launch.job, verdict);
    }

    /// Notes that the job of a front is refused. What tools have spawned for it ends.
    pub(crate) fn on_refused(&mut self, front: FrontId) {
        if let Some(job) = self.job_of(front) {
            self.end(job, Cause::Ended(EndReason::SpawnerEnded));
        }
    }

    /// Updates the expectations for an input that the controller is about to handle.
    pub(crate) fn on_input(&mut self, now: Time, input: &ControllerInput) {
        let consequence = self.control.on_input(now, input);
        let controlled = self
            .control
            .front()
            .and_then(|front| self.fronts.get(&front)?.job);
        if let Some(job) = controlled {
            match consequence {
                Consequence::Nothing => {}
                Consequence::Begins => {
                    if let Some(verdict) = self.of_mut(job) {
                        verdict.limit_at = verdict.limit.map(|limit| now + limit);
                    }
                }
                Consequence::Ends => self.end(job, Cause::Ended(EndReason::ToolEnded)),
            }
        }
        match input {
            ControllerInput::Front(front, message) => self.on_front(*front, message),
            // All daemons of the simulated cluster start, and nobody else connects to them. What files do to a job is checked
            // elsewhere.
            ControllerInput::FrontConnected { .. }
            | ControllerInput::NotJoined(_)
            | ControllerInput::Stranger { .. }
            | ControllerInput::FilesFound { .. }
            | ControllerInput::FileRead { .. } => {}
            // Looked at above.
            ControllerInput::Controlled(_) | ControllerInput::ControllingToolDied => {}
            // None is a machine, or in Slurm.
            ControllerInput::Slurm(_) | ControllerInput::Command(..) => {}
            ControllerInput::Machine(_)
            | ControllerInput::Door
            | ControllerInput::Stored(_)
            | ControllerInput::Fetched(_)
            | ControllerInput::Captured(..)
            | ControllerInput::NotWatched(..)
            | ControllerInput::Epoch(_)
            | ControllerInput::Terminate => {}
            // No scripted program logs.
            ControllerInput::Syslogged { .. } => {}
            // It is told what was merged.
            ControllerInput::Daemons(..) => {}
            ControllerInput::FrontLost(front) => {
                let state = self.fronts.entry(*front).or_default();
                state.is_lost = true;
                if let Some(job) = state.job {
                    self.end(job, Cause::Ended(EndReason::FrontLost));
                }
            }
            ControllerInput::Daemon(node, message) => self.on_daemon(*node, message),
            ControllerInput::DaemonLost(node, why) => {
                for job in self.jobs.keys().copied().collect::<Vec<_>>() {
                    self.on_lost(job, *node, why);
                }
            }
            ControllerInput::Tick => {
                // The limit also applies to a job without live ranks: it lasts until the jobs that it spawned have ended.
                let over = self
                    .all()
                    .filter(|(_, verdict)| verdict.limit_at.is_some_and(|at| at <= now));
                for job in over.map(|(job, _)| job).collect::<Vec<_>>() {
                    self.end(job, Cause::Ended(EndReason::TimeLimit));
                }
            }
        }
    }

    fn on_front(&mut self, front: FrontId, message: &FromFront) {
        let state = self.fronts.entry(front).or_default();
        match message {
            FromFront::Submit(spec) => {
                state.end = spec.end;
                self.control.on_submit(front);
            }
            FromFront::End(reason) | FromFront::Kill(reason) => {
                if let Some(job) = state.job {
                    self.end(job, Cause::Ended(*reason));
                }
            }
            // Before the launch, a request to end has no ranks that could handle it.
            FromFront::Signal(signal)
                if [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT].contains(signal) =>
            {
                let job = state.job;
                let is_waiting = |verdict: &Verdict| verdict.ranks.is_empty();
                if let Some(job) = job.filter(|job| self.of(*job).is_some_and(is_waiting)) {
                    self.end(job, Cause::Ended(EndReason::Signal(*signal)));
                }
            }
            FromFront::Release {
                job: JobRef::Own,
                ranks: Some(ranks),
            } => {
                let verdict = state.job.and_then(|job| self.jobs.get_mut(&job));
                // Before the launch, the controller refuses to release ranks.
                if let Some(verdict) = verdict.filter(|verdict| !verdict.ranks.is_empty()) {
                    verdict.released = verdict.released.union(ranks);
                }
            }
            _ => {}
        }
    }

    fn on_lost(&mut self, job: JobId, node: NodeId, why: &str) {
        let Some(verdict) = self.of_mut(job) else {
            return;
        };
        verdict.clean.insert(node);
        let ranks = verdict.ranks.get(&node).cloned().unwrap_or_default();
        let lost = ranks.difference(&verdict.gone());
        if !lost.is_empty() {
            let why = why.to_owned();
            let cause = Cause::NodeLost { node, why };
            match verdict.on_node_loss {
                OnFailure::EndJob => self.end(job, cause),
                OnFailure::Continue => {
                    verdict.cause.get_or_insert(cause);
                }
            }
        }
        let status = ExitStatus::Signaled {
            signal: Signal::KILL,
            core_dumped: false,
        };
        if let Some(verdict) = self.of_mut(job) {
            verdict.record(&[(status, lost)]);
        }
    }

    fn on_daemon(&mut self, node: NodeId, message: &ToController) {
        match message {
            ToController::Launched {
                job,
                started,
                failures,
                ..
            } => {
                let started = started.iter().flat_map(|group| &group.pids);
                let started: RankSet = started.map(|(rank, _)| *rank).collect();
                let Some(verdict) = self.of_mut(*job) else {
                    return;
                };
                let ranks = verdict.ranks.get(&node).cloned().unwrap_or_default();
                verdict.not_started = verdict.not_started.union(&ranks.difference(&started));
                for (failure, ranks) in failures {
                    let merged = verdict.failures.entry(failure.clone()).or_default();
                    *merged = merged.union(ranks);
                }
                if !failures.is_empty() {
                    self.end(*job, Cause::NotStarted(Vec::new()));
                }
            }
            ToController::Ended { job, classes } => {
                let classes = classes.iter();
                let classes = classes.map(|class| (class.status, class.ranks.clone()));
                self.on_ended(*job, &classes.collect::<Vec<_>>());
            }
            ToController::Abort {
                job,
                rank,
                code,
                message,
            } => {
                let cause = Cause::Aborted {
                    rank: *rank,
                    code: *code,
                    message: message.clone(),
                };
                self.end(*job, cause);
            }
            ToController::Protocol { job, rank, what } => {
                let cause = Cause::Protocol {
                    rank: *rank,
                    what: what.clone(),
                };
                self.end(*job, cause);
            }
            ToController::ExitedEarly { job, state, ranks } => {
                let known = self.exited_early.entry((*job, *state)).or_default();
                known.append(ranks);
            }
            ToController::Absent { job, ranks } => {
                let ranks = self.exited_early(*job, PmiState::NotInitialized, ranks);
                self.end(*job, Cause::Absent(ranks));
            }
            ToController::Unfinished { job, ranks } => {
                let ranks = self.exited_early(*job, PmiState::NotFinalized, ranks);
                self.end(*job, Cause::Unfinished(ranks));
            }
            ToController::Clean { job, .. } => {
                if let Some(verdict) = self.of_mut(*job) {
                    verdict.clean.insert(node);
                }
            }
            ToController::Released { job, ranks } => {
                if let Some(verdict) = self.of_mut(*job) {
                    verdict.released = verdict.released.union(ranks);
                }
            }
            ToController::Server(message) => {
                if let FromServer::ToolLeft { tool } = **message {
                    self.tool_left(tool);
                }
            }
            _ => {}
        }
    }

    /// Ends what a tool has spawned that is not to outlive it.
    fn tool_left(&mut self, tool: JobId) {
        let ends = |verdict: &Verdict| verdict.tool == Some((tool, Then::Ends));
        let ends = self
            .all()
            .filter(|(_, verdict)| ends(verdict) && !verdict.is_over());
        for job in ends.map(|(job, _)| job).collect::<Vec<_>>() {
            self.end(job, Cause::Ended(EndReason::SpawnerEnded));
        }
    }

    /// Returns these ranks, and those on all nodes that have exited with code 0 in the same state.
    fn exited_early(&self, job: JobId, state: PmiState, ranks: &RankSet) -> RankSet {
        let known = self.exited_early.get(&(job, state));
        known.map_or_else(|| ranks.clone(), |known| ranks.union(known))
    }

    fn on_ended(&mut self, job: JobId, classes: &[(ExitStatus, RankSet)]) {
        let verdict = self.of_mut(job);
        if let Some(cause) = verdict.and_then(|verdict| verdict.on_ended(classes)) {
            self.end(job, cause);
        }
    }

    /// Marks a job and its live descendants as ending.
    fn end(&mut self, job: JobId, cause: Cause) {
        for child in self.jobs.keys().copied().collect::<Vec<_>>() {
            let is_meant = self.descends(child, job);
            if let Some(verdict) = self.of_mut(child).filter(|verdict| !verdict.is_over())
                && is_meant
            {
                verdict.end(Cause::Ended(EndReason::SpawnerEnded));
            }
        }
        if let Some(verdict) = self.of_mut(job) {
            verdict.end(cause);
        }
    }

    /// Returns true if `job` is a descendant of `ancestor` that ends with it. If a front submitted `ancestor`, that holds for
    /// every descendant. Otherwise all jobs between the two must still be live.
    fn descends(&self, job: JobId, ancestor: JobId) -> bool {
        let is_root = self.of(ancestor).is_some_and(|one| one.parent.is_none());
        let mut next = self.of(job).and_then(|verdict| verdict.parent);
        while let Some(one) = next {
            if one == ancestor {
                return true;
            }
            let lives = |verdict: &&Verdict| is_root || !verdict.is_over();
            let between = self.of(one).filter(lives);
            next = between.and_then(|verdict| verdict.parent);
        }
        false
    }
}
