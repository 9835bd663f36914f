//! Measurements: what running jobs use, asked of all their nodes, for a front or for a process that asks by PMIx.
//!
//! | a measurement | a node answers | a node is lost | the front, or the node of the process, is lost |
//! |---|---|---|---|
//! | waits for several nodes | its procs, or its daemon, are added | waits for the others | is dropped |
//! | waits for one node | the asker is told | the asker is told | is dropped |

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use base::{JobId, NodeId, Rank, Signal, Usage};
use pmix::value::Info;

use super::{Controller, Job, asks::Asker, job::Kind};
use crate::{
    machine::{RankUsage, Reply, USAGE_RANKS_MAX, UsageReport},
    proto::{Counted, FrontId, ProcUsage, ToDaemon, ToFront},
};

/// Queries that may wait for measurements at the same time. Others get no measurement.
pub(super) const MEASURED_QUERIES_MAX: usize = 256;

/// Measurements whose answers are not complete.
#[derive(Debug, Default)]
pub(super) struct Measurements {
    last: u64,
    /// By number. A front has one at most, as it waits for the answer.
    open: BTreeMap<u64, Measurement>,
}

#[derive(Debug)]
struct Measurement {
    asker: MeasuredFor,
    /// The task of each job that is measured.
    tasks: BTreeMap<JobId, u32>,
    waits_for: BTreeSet<(NodeId, Subject)>,
    /// All but the procs, of which there are [`USAGE_RANKS_MAX`] at most.
    report: UsageReport,
    /// By task and rank.
    procs: BTreeMap<(u32, JobId, Rank), RankUsage>,
    /// The memory of daemons, in bytes.
    daemons: BTreeMap<NodeId, u64>,
}

/// What of a node is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    Job(JobId),
    Daemon,
}

/// Who wants to know.
#[derive(Debug)]
pub(super) enum MeasuredFor {
    Front(FrontId),
    /// A process, whose query is answered with it.
    Query(Box<Measuring>),
}

/// A query that waits for the measurement of jobs.
#[derive(Debug)]
pub(super) struct Measuring {
    pub(super) asker: Asker,
    /// The results without the measurement.
    pub(super) infos: Vec<Info>,
    pub(super) wishes: Vec<MemoryWish>,
}

/// What a query wants to know of the memory that jobs use.
#[derive(Debug)]
pub(super) struct MemoryWish {
    /// `None`: of all that are measured.
    pub(super) job: Option<JobId>,
    pub(super) rank: Option<Rank>,
    /// Only what is on this node.
    pub(super) node: Option<NodeId>,
    pub(super) average: Report,
    pub(super) extremes: Report,
    /// The nodes whose daemons are reported too.
    pub(super) daemons: BTreeSet<NodeId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Report {
    Wanted,
    Unwanted,
}

impl MeasuredFor {
    fn is_front(&self, front: FrontId) -> bool {
        matches!(self, Self::Front(one) if *one == front)
    }

    fn is_on(&self, node: NodeId) -> bool {
        matches!(self, Self::Query(query) if query.asker.node == node)
    }
}

impl Measurements {
    /// Returns true if one more query can wait for a measurement.
    pub(super) fn has_room(&self) -> bool {
        let open = self.open.values();
        let for_queries = open.filter(|one| matches!(one.asker, MeasuredFor::Query(_)));
        for_queries.count() < MEASURED_QUERIES_MAX
    }
}

impl Measurement {
    fn add(&mut self, job: JobId, host: &str, procs: Vec<ProcUsage>, counted: Option<Counted>) {
        let task = self.tasks.get(&job).copied().unwrap_or(0);
        let report = &mut self.report;
        let mut used = Usage::default();
        procs.iter().for_each(|proc| used.add(&proc.used));
        // The cgroup also counts processes that have ended, or are no descendants of a rank any more.
        report
            .total
            .add(&counted.map_or(used, |counted| counted.or(&used)));
        for proc in procs {
            report.resident = report.resident.saturating_add(proc.resident);
            report.procs += 1;
            report.processes += u64::from(proc.processes);
            let usage = RankUsage {
                task,
                run: job,
                rank: proc.rank,
                host: host.to_owned(),
                pid: proc.pid,
                processes: proc.processes,
                resident: proc.resident,
                used: proc.used,
            };
            self.procs.insert((task, job, proc.rank), usage);
            if self.procs.len() > USAGE_RANKS_MAX {
                self.procs.pop_last();
            }
        }
    }
}

impl Controller {
    /// Asks all nodes of these runs, and of the jobs that they have spawned.
    pub(super) fn measure(&mut self, front: FrontId, runs: &[(u32, JobId)]) {
        self.measured_for_nobody(front);
        let runs: BTreeMap<JobId, u32> = runs.iter().map(|(task, run)| (*run, *task)).collect();
        let is_program = |job: &&Job| job.beside.is_none() && job.kind() == Kind::Program;
        let jobs = self.jobs.values().filter(is_program);
        let tasks = jobs.filter_map(|job| Some((job.id, *runs.get(&job.root)?)));
        self.measure_for(MeasuredFor::Front(front), tasks.collect(), &BTreeSet::new());
    }

    /// Asks all nodes of these jobs, each of which has the number of its task, and these daemons.
    pub(super) fn measure_for(
        &mut self,
        asker: MeasuredFor,
        tasks: BTreeMap<JobId, u32>,
        daemons: &BTreeSet<NodeId>,
    ) {
        let mut measurement = Measurement {
            asker,
            tasks,
            waits_for: BTreeSet::new(),
            report: UsageReport::default(),
            procs: BTreeMap::new(),
            daemons: BTreeMap::new(),
        };
        self.measurements.last += 1;
        let number = self.measurements.last;
        let mut asked = Vec::new();
        let jobs = measurement.tasks.keys().filter_map(|id| self.jobs.get(id));
        for job in jobs {
            let nodes = job.shares.iter().filter(|(_, share)| !share.clean);
            asked.extend(nodes.map(|(node, _)| (*node, Subject::Job(job.id))));
        }
        asked.extend(daemons.iter().map(|node| (*node, Subject::Daemon)));
        for (node, subject) in &asked {
            let message = match subject {
                Subject::Job(job) => ToDaemon::Measure { job: *job, number },
                Subject::Daemon => ToDaemon::MeasureDaemon { number },
            };
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
        counted: Option<Counted>,
    ) {
        let host = self.name_of(node).to_owned();
        let Some(measurement) = self.measurements.open.get_mut(&number) else {
            return;
        };
        if measurement.waits_for.remove(&(node, Subject::Job(job))) {
            measurement.add(job, &host, procs, counted);
        }
        self.answer_measured(number);
    }

    pub(super) fn on_daemon_measured(&mut self, node: NodeId, number: u64, memory: Option<u64>) {
        let Some(measurement) = self.measurements.open.get_mut(&number) else {
            return;
        };
        if measurement.waits_for.remove(&(node, Subject::Daemon)) {
            measurement
                .daemons
                .extend(memory.map(|memory| (node, memory)));
        }
        self.answer_measured(number);
    }

    /// Waits no longer for a lost node, nor answers it.
    pub(super) fn measured_without(&mut self, lost: NodeId) {
        self.measurements
            .open
            .retain(|_, one| !one.asker.is_on(lost));
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
        let open = &mut self.measurements.open;
        open.retain(|_, one| !one.asker.is_front(front));
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
        done.report.ranks = done.procs.into_values().collect();
        match done.asker {
            MeasuredFor::Front(front) => {
                let reply = Reply::Usage(Box::new(done.report));
                self.tell(front, ToFront::Reply(Box::new(reply)));
            }
            MeasuredFor::Query(query) => {
                self.answer_measuring(*query, &done.report, &done.daemons);
            }
        }
    }

    /// Sends a signal to a run, and to the jobs that it has spawned.
    pub(super) fn signal_run(&mut self, run: JobId, signal: Signal) {
        let jobs = self.jobs.values();
        let jobs = jobs.filter(|job| job.root == run && job.beside.is_none());
        let jobs: Vec<JobId> = jobs.map(|job| job.id).collect();
        for job in jobs {
            self.with(job, |job| job.signal(signal));
        }
    }
}
