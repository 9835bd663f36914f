//! A large, busy machine with a long queue, whose passes somebody else times: nothing here reads a clock.

use std::collections::{BTreeMap, BTreeSet};

use base::{JobId, NodeId, Time};
use dvm::queue::{Amounts, Limits, Outcome, Output, Queue, Request, TaskId};

use super::workload::Workload;

/// Slots of a node.
const SLOTS: u32 = 64;
/// Slots of the largest jobs.
const LARGEST: u32 = 1_024;

/// The machine. Its jobs have the statistics of public traces; each job that ends is replaced by a new one at the end of the queue.
#[derive(Debug)]
pub struct Load {
    queue: Queue,
    workload: Workload,
    now: Time,
    last: u32,
    ends: BTreeSet<(Time, TaskId)>,
    runs_for: BTreeMap<JobId, std::time::Duration>,
}

/// What a pass has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passed {
    pub started: usize,
    pub running: usize,
    pub waiting: usize,
}

impl Load {
    /// Creates a machine with so many nodes, all of them free, and so many jobs in the queue.
    #[must_use]
    pub fn new(jobs: u32, nodes: u32) -> Self {
        let mut queue = Queue::new(Limits::default());
        for id in (0..nodes).map(NodeId) {
            queue.add_node(id, Amounts::slots(SLOTS));
        }
        let slots = LARGEST.min(nodes * SLOTS);
        let mut load = Self {
            queue,
            workload: Workload::new(1, slots),
            now: Time::ZERO,
            last: 0,
            ends: BTreeSet::new(),
            runs_for: BTreeMap::new(),
        };
        for _ in 0..jobs {
            load.submit();
        }
        load
    }

    fn submit(&mut self) {
        self.last += 1;
        let job = self.workload.next_job();
        let request = Request {
            time_limit: Some(job.limit),
            ..Request::slots(job.slots)
        };
        let id = JobId(self.last);
        if self.queue.submit(id, request).is_ok() {
            self.runs_for.insert(id, job.runs_for);
        }
    }

    /// Lets the time pass until the next task ends, and replaces its job.
    pub fn advance(&mut self) {
        if let Some((at, task)) = self.ends.pop_first() {
            self.now = at;
            self.queue.ended(task, Outcome::Succeeded);
            self.submit();
        }
    }

    /// Schedules, which is what is to be timed.
    pub fn pass(&mut self) {
        self.queue.schedule(self.now);
    }

    /// Starts what the last pass wants to start.
    pub fn carry_out(&mut self) -> Passed {
        let mut started = 0;
        while let Some(output) = self.queue.poll() {
            if let Output::Start { task, .. } = output
                && let Some(runs_for) = self.runs_for.remove(&task.job)
            {
                started += 1;
                self.ends.insert((self.now + runs_for, task));
            }
        }
        Passed {
            started,
            running: self.queue.running(),
            waiting: self.runs_for.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_busy_and_the_queue_keeps_its_length() {
        let mut load = Load::new(2_000, 20);
        load.pass();
        let first = load.carry_out();
        assert!(first.started > 10, "{first:?}");
        for _ in 0..500 {
            load.advance();
            load.pass();
            let passed = load.carry_out();
            assert_eq!(passed.running + passed.waiting, 2_000);
            assert!(passed.running > 10, "{passed:?}");
        }
    }
}
