//! The expected end of a job, from the messages that have arrived at the controller: a second, simpler implementation.

use std::collections::{BTreeMap, BTreeSet};

use base::{ExitStatus, JobId, NodeId, Rank, RankSet, Signal, Time};
use dvm::{
    ControllerInput,
    proto::{Cause, EndReason, FromFront, FrontId, JobRef, Launch, StartFailure, ToController},
    spec::{EndPolicy, OnFailure},
};

/// The expectation for one job.
#[derive(Debug)]
pub(crate) struct Verdict {
    on_failure: OnFailure,
    limit_at: Option<Time>,
    /// The front that submitted it or its ancestor.
    front: FrontId,
    /// The job whose process has spawned it.
    parent: Option<JobId>,
    pub(crate) cause: Option<Cause>,
    /// True once its end was requested or has become necessary.
    pub(crate) ending: bool,
    /// The ranks of each node, by its launch.
    pub(crate) ranks: BTreeMap<NodeId, RankSet>,
    /// The nodes on which it is clean.
    clean: BTreeSet<NodeId>,
    pub(crate) ended: BTreeMap<Rank, ExitStatus>,
    pub(crate) not_started: RankSet,
    pub(crate) by_us: RankSet,
    /// Ranks that were released.
    pub(crate) released: RankSet,
    pub(crate) failures: BTreeMap<StartFailure, RankSet>,
}

impl Verdict {
    fn new(now: Time, end: &EndPolicy, front: FrontId, parent: Option<JobId>) -> Self {
        Self {
            on_failure: end.on_failure,
            limit_at: end.time_limit.map(|limit| now + limit),
            front,
            parent,
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

    /// Ranks that have ended or will never start, as far as the controller knows.
    pub(crate) fn gone(&self) -> RankSet {
        let ended: RankSet = self.ended.keys().copied().collect();
        ended.union(&self.not_started)
    }

    /// Returns true if nothing of it is left, so that later messages change nothing.
    pub(crate) fn is_over(&self) -> bool {
        !self.ranks.is_empty() && self.ranks.keys().all(|node| self.clean.contains(node))
    }

    /// Handles the ends of ranks. Returns the cause that they are, if any.
    fn on_ended(&mut self, classes: &[(ExitStatus, RankSet)]) -> Option<Cause> {
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
        match self.on_failure {
            OnFailure::EndJob => cause,
            OnFailure::Continue => {
                self.cause = self.cause.take().or(cause);
                None
            }
        }
    }

    fn end(&mut self, cause: Cause) {
        if !self.ending {
            self.ending = true;
            self.cause = Some(cause);
        }
    }

    /// Returns the cause that the front must get for a spawned job.
    pub(crate) fn failure(&self) -> Option<Cause> {
        match self.expected_cause() {
            Cause::Success | Cause::Ended(_) => None,
            cause => Some(cause),
        }
    }

    /// Returns the result of the job as a number.
    pub(crate) fn code(&self) -> u64 {
        match self.expected_cause() {
            Cause::Success => 0,
            Cause::Failed { status, .. } => status.code().into(),
            Cause::Aborted { code, .. } => code.into(),
            _ => 1,
        }
    }

    /// Returns the cause that the front must get.
    pub(crate) fn expected_cause(&self) -> Cause {
        match self.cause.clone().unwrap_or(Cause::Success) {
            Cause::NotStarted(_) => Cause::NotStarted(self.failures.clone().into_iter().collect()),
            cause => cause,
        }
    }
}

/// The state of a front.
#[derive(Debug, Default)]
struct FrontState {
    end: EndPolicy,
    job: Option<JobId>,
    is_lost: bool,
}

/// The expectations for all jobs.
#[derive(Debug, Default)]
pub(crate) struct Verdicts {
    fronts: BTreeMap<FrontId, FrontState>,
    jobs: BTreeMap<JobId, Verdict>,
}

impl Verdicts {
    /// Records the number of a front's job.
    pub(crate) fn on_accepted(&mut self, now: Time, front: FrontId, job: JobId) {
        let state = self.fronts.entry(front).or_default();
        state.job = Some(job);
        let verdict = Verdict::new(now, &state.end, front, None);
        self.jobs.insert(job, verdict);
    }

    /// Returns the expectation for the job that a front has submitted.
    pub(crate) fn of_front(&self, front: FrontId) -> Option<&Verdict> {
        self.of(self.fronts.get(&front)?.job?)
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

    /// Returns the spawned jobs.
    pub(crate) fn spawned(&self) -> impl Iterator<Item = (JobId, &Verdict)> {
        self.all().filter(|(_, verdict)| verdict.parent.is_some())
    }

    /// Returns the jobs that are being ended.
    pub(crate) fn ending(&self) -> impl Iterator<Item = JobId> {
        let ending = self.all().filter(|(_, verdict)| verdict.ending);
        ending.map(|(job, _)| job)
    }

    /// Records a launch that a node gets.
    pub(crate) fn on_launch(&mut self, now: Time, node: NodeId, launch: &Launch) {
        let ranks = launch.map.ranks_on(node);
        if let Some(verdict) = self.of_mut(launch.job) {
            verdict.ranks.insert(node, ranks);
            return;
        }
        let parent = launch.parent.as_ref().map(|parent| parent.proc.job);
        let Some(front) = parent.and_then(|parent| self.front_of(parent)) else {
            return;
        };
        let mut verdict = Verdict::new(now, &launch.end, front, parent);
        // The time limit is that of the spawner's job.
        verdict.limit_at = None;
        verdict.ranks.insert(node, ranks);
        self.jobs.insert(launch.job, verdict);
    }

    /// Handles a message before the controller gets it.
    pub(crate) fn on_input(&mut self, now: Time, input: &ControllerInput) {
        match input {
            ControllerInput::Front(front, message) => self.on_front(*front, message),
            ControllerInput::FrontConnected { .. } => {}
            ControllerInput::FrontLost(front) => {
                let state = self.fronts.entry(*front).or_default();
                state.is_lost = true;
                if let Some(job) = state.job {
                    self.end(job, Cause::Ended(EndReason::FrontLost));
                }
            }
            ControllerInput::Daemon(node, message) => self.on_daemon(*node, message),
            ControllerInput::DaemonLost(node) => {
                for job in self.jobs.keys().copied().collect::<Vec<_>>() {
                    self.on_lost(job, *node);
                }
            }
            ControllerInput::Tick => {
                // A job without live ranks lasts as long as the jobs that it has spawned.
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
            FromFront::Submit(spec) => state.end = spec.end,
            FromFront::End(reason) | FromFront::Kill(reason) => {
                if let Some(job) = state.job {
                    self.end(job, Cause::Ended(*reason));
                }
            }
            FromFront::Release {
                job: JobRef::Own,
                ranks: Some(ranks),
            } => {
                if let Some(verdict) = state.job.and_then(|job| self.jobs.get_mut(&job)) {
                    verdict.released = verdict.released.union(ranks);
                }
            }
            _ => {}
        }
    }

    fn on_lost(&mut self, job: JobId, node: NodeId) {
        let Some(verdict) = self.of_mut(job) else {
            return;
        };
        verdict.clean.insert(node);
        let ranks = verdict.ranks.get(&node).cloned().unwrap_or_default();
        let lost = ranks.difference(&verdict.gone());
        let status = ExitStatus::Signaled {
            signal: Signal::KILL,
            core_dumped: false,
        };
        self.on_ended(job, &[(status, lost)]);
    }

    fn on_daemon(&mut self, node: NodeId, message: &ToController) {
        match message {
            ToController::Launched {
                job,
                started,
                failures,
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
            ToController::Absent { job, ranks } => self.end(*job, Cause::Absent(ranks.clone())),
            ToController::Unfinished { job, ranks } => {
                self.end(*job, Cause::Unfinished(ranks.clone()));
            }
            ToController::Clean { job } => {
                if let Some(verdict) = self.of_mut(*job) {
                    verdict.clean.insert(node);
                }
            }
            _ => {}
        }
    }

    fn on_ended(&mut self, job: JobId, classes: &[(ExitStatus, RankSet)]) {
        let verdict = self.of_mut(job);
        if let Some(cause) = verdict.and_then(|verdict| verdict.on_ended(classes)) {
            self.end(job, cause);
        }
    }

    /// Ends a job, and the jobs that its processes have spawned.
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

    /// Whether a job was spawned by another one, or by one that lives and was spawned by that. All come from the front's.
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
