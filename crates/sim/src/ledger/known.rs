//! What the controller and the servers of the nodes have been told about jobs, and when. Process tables show that, and not what
//! is true: a rank runs before the controller hears of it.

use std::collections::{BTreeMap, BTreeSet};

use base::{ExitStatus, JobId, NodeId, ProcId, Rank, Signal, Time};
use dvm::{
    ControllerInput,
    proto::{ToController, ToDaemon, ToServer},
};
use pmix::value::ProcState;

use super::facts::Facts;

/// The pid and the state of a rank in a process table, from a time on. The pid is 0 if it is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) since: Time,
    pub(super) pid: u32,
    pub(super) state: ProcState,
}

/// The time from which the server of a node knows a job, and that at which it forgets it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) since: Time,
    pub(super) until: Option<Time>,
}

impl Span {
    /// Returns true if the job was known at a time between these two.
    pub(super) fn meets(self, from: Time, to: Time) -> bool {
        self.since <= to && self.until.is_none_or(|until| until >= from)
    }

    /// Returns true if the job was known all the time between these two.
    pub(super) fn covers(self, from: Time, to: Time) -> bool {
        self.since < from && self.until.is_none_or(|until| until > to)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Known {
    /// What the controller knows of each rank of which it has heard, one item for each change.
    ranks: BTreeMap<ProcId, Vec<Shown>>,
    /// Ranks of which the controller awaits nothing any more.
    settled: BTreeSet<ProcId>,
    jobs: BTreeMap<(NodeId, JobId), Span>,
    /// Nodes that know of ranks on other nodes. The others forget a job when it is over on them.
    joined: BTreeSet<NodeId>,
    /// True once the controller is gone, which answers nothing any more.
    pub(crate) is_headless: bool,
}

impl Known {
    /// Records what the controller is about to hear.
    pub(crate) fn on_input(&mut self, now: Time, input: &ControllerInput, facts: &Facts) {
        match input {
            ControllerInput::Daemon(node, message) => self.on_said(now, *node, message, facts),
            ControllerInput::DaemonLost(node, _) => {
                let status = ExitStatus::Signaled {
                    signal: Signal::KILL,
                    core_dumped: false,
                };
                for proc in facts.all_on(*node) {
                    self.ended(now, proc, status);
                }
            }
            _ => {}
        }
    }

    fn on_said(&mut self, now: Time, node: NodeId, message: &ToController, facts: &Facts) {
        match message {
            ToController::Launched { job, started, .. } => {
                let pids = started.iter().flat_map(|group| &group.pids);
                let pids: BTreeMap<Rank, i32> = pids.copied().collect();
                let all = facts.all_on(node).into_iter();
                for proc in all.filter(|proc| proc.job == *job) {
                    let pid = pids.get(&proc.rank);
                    let pid = pid.map(|pid| u32::try_from(*pid).unwrap_or(0));
                    let Some(pid) = pid else {
                        self.settled.insert(proc);
                        self.show(now, proc, 0, ProcState::FAILED_TO_START);
                        continue;
                    };
                    // A rank may end before the others of its node have started, and is reported with these.
                    let before = self.ranks.get(&proc).and_then(|all| all.last());
                    let state = before.map_or(ProcState::RUNNING, |shown| shown.state);
                    self.show(now, proc, pid, state);
                }
            }
            ToController::Ended { job, classes } => {
                for class in classes {
                    for rank in class.ranks.iter() {
                        self.ended(now, ProcId { job: *job, rank }, class.status);
                    }
                }
            }
            ToController::Unkillable { job, ranks } => {
                let job = *job;
                let procs = ranks.iter().map(|rank| ProcId { job, rank });
                self.settled.extend(procs);
            }
            _ => {}
        }
    }

    fn ended(&mut self, now: Time, proc: ProcId, status: ExitStatus) {
        if !self.settled.insert(proc) {
            return;
        }
        let before = self.ranks.get(&proc).and_then(|all| all.last());
        let pid = before.map_or(0, |shown| shown.pid);
        let state = match status {
            ExitStatus::Exited(_) => ProcState::TERMINATED,
            ExitStatus::Signaled { .. } | ExitStatus::OutOfMemory { .. } => {
                ProcState::ABORTED_BY_SIG
            }
        };
        self.show(now, proc, pid, state);
    }

    fn show(&mut self, since: Time, proc: ProcId, pid: u32, state: ProcState) {
        let shown = Shown { since, pid, state };
        self.ranks.entry(proc).or_default().push(shown);
    }

    /// Returns true if the controller knows whether a rank has been started.
    pub(super) fn has_heard_of(&self, proc: ProcId) -> bool {
        self.ranks.contains_key(&proc)
    }

    /// Returns what the controller knew of a rank, one after the other.
    pub(super) fn of_rank(&self, proc: ProcId) -> Vec<Shown> {
        let first = Shown {
            since: Time::ZERO,
            pid: 0,
            state: ProcState::PREPPED,
        };
        let later = self.ranks.get(&proc).into_iter().flatten();
        [first].into_iter().chain(later.copied()).collect()
    }

    /// Records a message that a node gets.
    pub(crate) fn on_told(&mut self, now: Time, node: NodeId, message: &ToDaemon) {
        let launch = match message {
            ToDaemon::Launch(launch) => {
                if launch.map.nodes().count() > 1 {
                    self.joined.insert(node);
                }
                launch
            }
            ToDaemon::LaunchedElsewhere(launch) => {
                self.joined.insert(node);
                launch
            }
            ToDaemon::Server(message) => {
                if let ToServer::Over { job } = **message {
                    self.forgets(now, node, job);
                }
                return;
            }
            _ => return,
        };
        let span = Span {
            since: now,
            until: None,
        };
        self.jobs.entry((node, launch.job)).or_insert(span);
    }

    /// Records that a job is over on a node.
    pub(crate) fn on_forgot(&mut self, now: Time, node: NodeId, job: JobId) {
        if !self.joined.contains(&node) {
            self.forgets(now, node, job);
        }
    }

    fn forgets(&mut self, now: Time, node: NodeId, job: JobId) {
        if let Some(span) = self.jobs.get_mut(&(node, job)) {
            span.until.get_or_insert(now);
        }
    }

    /// Returns when the server of a node knew a job; `None` if it never did.
    pub(super) fn of_job(&self, node: NodeId, job: JobId) -> Option<Span> {
        self.jobs.get(&(node, job)).copied()
    }

    /// Returns the jobs that the server of a node has ever known.
    pub(super) fn jobs_of(&self, node: NodeId) -> impl Iterator<Item = (JobId, Span)> {
        let all = self.jobs.iter().filter(move |((of, _), _)| *of == node);
        all.map(|((_, job), span)| (*job, *span))
    }
}
