//! Measurements: what running jobs use, asked of all their nodes.
//!
//! | a measurement | a node answers | a node is lost | the front is lost |
//! |---|---|---|---|
//! | waits for several nodes | its procs are added | waits for the others | is dropped |
//! | waits for one node | the front is told | the front is told | is dropped |

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use base::{JobId, NodeId, Signal};

use super::Controller;
use crate::{
    machine::{RankUsage, Reply, USAGE_RANKS_MAX, UsageReport},
    proto::{FrontId, ProcUsage, ToDaemon, ToFront},
};

/// Measurements whose answers are not complete.
#[derive(Debug, Default)]
pub(super) struct Measurements {
    last: u64,
    /// By number. A front has one at most, as it waits for the answer.
    open: BTreeMap<u64, Measurement>,
}

#[derive(Debug)]
struct Measurement {
    front: FrontId,
    /// The task of each job that is measured.
    tasks: BTreeMap<JobId, u32>,
    waits_for: BTreeSet<(NodeId, JobId)>,
    report: UsageReport,
}

impl Measurement {
    fn add(&mut self, job: JobId, host: &str, procs: Vec<ProcUsage>) {
        let task = self.tasks.get(&job).copied().unwrap_or(0);
        let report = &mut self.report;
        for proc in procs {
            report.total.add(&proc.used);
            report.resident = report.resident.saturating_add(proc.resident);
            report.procs += 1;
            report.processes += u64::from(proc.processes);
            if report.ranks.len() < USAGE_RANKS_MAX {
                report.ranks.push(RankUsage {
                    task,
                    run: job,
                    rank: proc.rank,
                    host: host.to_owned(),
                    pid: proc.pid,
                    processes: proc.processes,
                    resident: proc.resident,
                    used: proc.used,
                });
            }
        }
    }
}

impl Controller {
    /// Asks all nodes of these runs, and of the jobs that they have spawned.
    pub(super) fn measure(&mut self, front: FrontId, runs: &[(u32, JobId)]) {
        let mut measurement = Measurement {
            front,
            tasks: BTreeMap::new(),
            waits_for: BTreeSet::new(),
            report: UsageReport::default(),
        };
        self.measurements.open.retain(|_, one| one.front != front);
        self.measurements.last += 1;
        let number = self.measurements.last;
        let runs: BTreeMap<JobId, u32> = runs.iter().map(|(task, run)| (*run, *task)).collect();
        let mut asked = Vec::new();
        for job in self.jobs.values() {
            let Some(task) = runs.get(&job.root) else {
                continue;
            };
            measurement.tasks.insert(job.id, *task);
            let nodes = job.shares.iter().filter(|(_, share)| !share.clean);
            asked.extend(nodes.map(|(node, _)| (*node, job.id)));
        }
        for (node, job) in &asked {
            let message = ToDaemon::Measure { job: *job, number };
            self.outputs
                .push_back(super::ControllerOutput::Daemon(*node, message));
        }
        measurement.waits_for.extend(asked);
        self.measurements.open.insert(number, measurement);
        self.answer_measured(number);
    }

    pub(super) fn on_measured(
        &mut self,
        node: NodeId,
        job: JobId,
        number: u64,
        procs: Vec<ProcUsage>,
    ) {
        let host = self.name_of(node).to_owned();
        let Some(measurement) = self.measurements.open.get_mut(&number) else {
            return;
        };
        if measurement.waits_for.remove(&(node, job)) {
            measurement.add(job, &host, procs);
        }
        self.answer_measured(number);
    }

    /// Waits no longer for a lost node.
    pub(super) fn measured_without(&mut self, lost: NodeId) {
        let numbers: Vec<u64> = self.measurements.open.keys().copied().collect();
        for number in numbers {
            if let Some(measurement) = self.measurements.open.get_mut(&number) {
                measurement.waits_for.retain(|(node, _)| *node != lost);
            }
            self.answer_measured(number);
        }
    }

    /// Drops the measurement of a front that is gone.
    pub(super) fn measured_for_nobody(&mut self, front: FrontId) {
        self.measurements.open.retain(|_, one| one.front != front);
    }

    /// Answers if no node has still to answer.
    fn answer_measured(&mut self, number: u64) {
        let open = &mut self.measurements.open;
        if !open
            .get(&number)
            .is_some_and(|one| one.waits_for.is_empty())
        {
            return;
        }
        let Some(mut done) = open.remove(&number) else {
            return;
        };
        done.report
            .ranks
            .sort_by_key(|one| (one.task, one.run, one.rank));
        let reply = Reply::Usage(Box::new(done.report));
        self.tell(done.front, ToFront::Reply(Box::new(reply)));
    }

    /// Sends a signal to a run, and to the jobs that it has spawned.
    pub(super) fn signal_run(&mut self, run: JobId, signal: Signal) {
        let jobs = self.jobs.values().filter(|job| job.root == run);
        let jobs: Vec<JobId> = jobs.map(|job| job.id).collect();
        for job in jobs {
            self.with(job, |job| job.signal(signal));
        }
    }
}
