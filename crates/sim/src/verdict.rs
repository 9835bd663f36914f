//! What the end of a job must be, by what has arrived at the controller: a second, simpler opinion.

use std::collections::BTreeMap;

use base::{ExitStatus, NodeId, Rank, RankSet, Signal, Time};
use dvm::{
    ControllerInput,
    proto::{Cause, EndReason, FromFront, StartFailure, ToController},
    spec::{JobSpec, OnFailure},
};

/// The opinion.
#[derive(Debug)]
pub(crate) struct Verdict {
    on_failure: OnFailure,
    limit_at: Option<Time>,
    pub(crate) cause: Option<Cause>,
    /// Somebody has asked for the end, or something has made it necessary.
    pub(crate) ending: bool,
    pub(crate) front_lost: bool,
    /// What a node's ranks are, by its launch.
    pub(crate) ranks: BTreeMap<NodeId, RankSet>,
    pub(crate) ended: BTreeMap<Rank, ExitStatus>,
    pub(crate) not_started: RankSet,
    pub(crate) by_us: RankSet,
    /// Let go, some at a time.
    pub(crate) released: RankSet,
    pub(crate) failures: BTreeMap<StartFailure, RankSet>,
}

impl Verdict {
    pub(crate) fn new(spec: &JobSpec) -> Self {
        Self {
            on_failure: spec.end.on_failure,
            limit_at: spec.end.time_limit.map(|limit| Time::ZERO + limit),
            cause: None,
            ending: false,
            front_lost: false,
            ranks: BTreeMap::new(),
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

    /// The controller is about to be told this.
    pub(crate) fn on_input(&mut self, now: Time, input: &ControllerInput) {
        match input {
            ControllerInput::Front(FromFront::End(reason) | FromFront::Kill(reason)) => {
                self.end(Cause::Ended(*reason));
            }
            ControllerInput::Front(FromFront::Release(Some(ranks))) => {
                self.released = self.released.union(ranks);
            }
            // Others of the user ask only in tests of the whole.
            ControllerInput::Front(_) | ControllerInput::Asked { .. } => {}
            ControllerInput::FrontLost => {
                self.front_lost = true;
                self.end(Cause::Ended(EndReason::FrontLost));
            }
            ControllerInput::Daemon(node, message) => self.on_daemon(*node, message),
            ControllerInput::DaemonLost(node) => {
                let status = ExitStatus::Signaled {
                    signal: Signal::KILL,
                    core_dumped: false,
                };
                let lost = self
                    .ranks
                    .get(node)
                    .cloned()
                    .unwrap_or_default()
                    .difference(&self.gone());
                for rank in lost.iter() {
                    self.on_ended(rank, status);
                }
            }
            ControllerInput::Tick => {
                if self.limit_at.is_some_and(|at| at <= now) {
                    self.end(Cause::Ended(EndReason::TimeLimit));
                }
            }
        }
    }

    fn on_daemon(&mut self, node: NodeId, message: &ToController) {
        match message {
            ToController::Launched {
                table, failures, ..
            } => {
                let started: RankSet = table.iter().map(|row| row.rank).collect();
                let ranks = self.ranks.get(&node).cloned().unwrap_or_default();
                self.not_started = self.not_started.union(&ranks.difference(&started));
                for (failure, ranks) in failures {
                    let merged = self.failures.entry(failure.clone()).or_default();
                    *merged = merged.union(ranks);
                }
                if !failures.is_empty() {
                    self.end(Cause::NotStarted(Vec::new()));
                }
            }
            ToController::Ended { rank, status, .. } => self.on_ended(*rank, *status),
            ToController::Abort {
                rank,
                code,
                message,
                ..
            } => {
                self.end(Cause::Aborted {
                    rank: *rank,
                    code: *code,
                    message: message.clone(),
                });
            }
            ToController::Protocol { rank, what, .. } => {
                self.end(Cause::Protocol {
                    rank: *rank,
                    what: what.clone(),
                });
            }
            ToController::Absent { ranks, .. } => self.end(Cause::Absent(ranks.clone())),
            ToController::Unfinished { ranks, .. } => self.end(Cause::Unfinished(ranks.clone())),
            _ => {}
        }
    }

    fn on_ended(&mut self, rank: Rank, status: ExitStatus) {
        self.ended.insert(rank, status);
        if self.ending {
            self.by_us.insert(rank);
        }
        if status.is_success() {
            return;
        }
        let cause = Cause::Failed { rank, status };
        match self.on_failure {
            OnFailure::EndJob => self.end(cause),
            OnFailure::Continue => {
                if self.cause.is_none() {
                    self.cause = Some(cause);
                }
            }
        }
    }

    fn end(&mut self, cause: Cause) {
        if !self.ending {
            self.ending = true;
            self.cause = Some(cause);
        }
    }

    /// The cause that the front must be told.
    pub(crate) fn expected_cause(&self) -> Cause {
        match self.cause.clone().unwrap_or(Cause::Success) {
            Cause::NotStarted(_) => Cause::NotStarted(self.failures.clone().into_iter().collect()),
            cause => cause,
        }
    }
}
