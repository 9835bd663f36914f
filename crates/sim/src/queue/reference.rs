//! The queue against an independent EASY scheduler.
//!
//! The machine is one node, so that only numbers of slots count. The reference follows the definition (Lifka, "The ANL/IBM SP
//! scheduling system", JSSPP 1995) in the simplest way: at each end and each submission it starts jobs in their order; for
//! the first that does not fit it computes when it will (the *shadow time*) and how many slots it leaves (the *extra* slots);
//! a later job starts if it fits, and either ends by then or needs no more than the extra slots.

use std::{collections::BTreeMap, time::Duration};

use base::{JobId, NodeId, Time};
use dvm::queue::{Amounts, Demand, Estimate, Limits, Outcome, Output, Queue, Request, TaskId};

use super::workload::{TraceJob, Workload};
use crate::{
    agenda::Agenda,
    record::{Played, Record, Recorded, Report},
    rng::Rng,
};

#[derive(Clone, Copy, Debug)]
struct Job {
    arrives: Time,
    job: TraceJob,
}

/// Whether tasks end before their time limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    Early,
    /// All jobs are there from the start, and need their whole time. So each estimate has to be exact.
    Late,
}

pub(super) fn run(rng: &mut Rng, recorded: Recorded) -> Played {
    let slots = rng.pick([1, 4, 10, 64, 128]);
    let mut workload = Workload::new(rng.next(), slots);
    let ends = rng.pick([Ends::Early, Ends::Early, Ends::Late]);
    let count = match ends {
        Ends::Early => rng.length(10, 200),
        Ends::Late => rng.length(5, 25),
    };
    // Between an idle machine and a queue that only grows.
    let mean = Duration::from_secs(rng.between(10, 3_000));
    let mut arrives = Time::ZERO;
    let mut jobs = BTreeMap::new();
    for id in (1..).take(count) {
        let mut job = workload.next_job();
        match ends {
            Ends::Early => arrives = arrives + workload.pause(mean),
            Ends::Late => job.limit = job.runs_for,
        }
        jobs.insert(JobId(id), Job { arrives, job });
    }
    let mut record = Record::new(recorded);
    let (expected, events) = expected(slots, &jobs);
    let finished = compare(slots, &jobs, &expected, ends, &mut record);
    record.into_played(Report {
        events,
        faults: 0,
        finished,
    })
}

/// Returns when the reference starts each job.
fn expected(slots: u32, jobs: &BTreeMap<JobId, Job>) -> (BTreeMap<JobId, Time>, u64) {
    let mut starts = BTreeMap::new();
    let mut queue: Vec<JobId> = Vec::new();
    let mut running: Vec<JobId> = Vec::new();
    let mut arriving: Vec<JobId> = jobs.keys().rev().copied().collect();
    let mut events = 0;
    while starts.len() < jobs.len() {
        let arrival = arriving.last().map(|id| jobs[id].arrives);
        let end = running
            .iter()
            .map(|id| starts[id] + jobs[id].job.runs_for)
            .min();
        let Some(now) = arrival.into_iter().chain(end).min() else {
            break;
        };
        events += 1;
        running.retain(|id| starts[id] + jobs[id].job.runs_for > now);
        while arriving.last().is_some_and(|id| jobs[id].arrives <= now) {
            queue.extend(arriving.pop());
        }
        let used: u32 = running.iter().map(|id| jobs[id].job.slots).sum();
        let mut free = slots - used;
        let mut shadow: Option<(Time, u32)> = None;
        for id in std::mem::take(&mut queue) {
            let TraceJob {
                slots: needs,
                limit,
                ..
            } = jobs[&id].job;
            let is_allowed = match &mut shadow {
                None => needs <= free,
                Some((at, extra)) => {
                    let ends_before = now + limit <= *at;
                    let is_allowed = needs <= free && (ends_before || needs <= *extra);
                    if is_allowed && !ends_before {
                        *extra -= needs;
                    }
                    is_allowed
                }
            };
            if is_allowed {
                free -= needs;
                starts.insert(id, now);
                running.push(id);
                continue;
            }
            queue.push(id);
            if shadow.is_none() {
                let mut ends: Vec<(Time, u32)> = running
                    .iter()
                    .map(|id| (starts[id] + jobs[id].job.limit, jobs[id].job.slots))
                    .collect();
                ends.sort_unstable();
                let mut later = free;
                let enough = ends.iter().find(|(_, slots)| {
                    later += slots;
                    later >= needs
                });
                shadow = enough.map(|(at, _)| {
                    let by_then = ends.iter().filter(|(end, _)| end <= at);
                    let by_then: u32 = by_then.map(|(_, slots)| slots).sum();
                    (*at, free + by_then - needs)
                });
            }
        }
    }
    (starts, events)
}

/// Plays the jobs through the queue, and requires the expected starts.
fn compare(
    slots: u32,
    jobs: &BTreeMap<JobId, Job>,
    expected: &BTreeMap<JobId, Time>,
    ends: Ends,
    record: &mut Record,
) -> Time {
    let mut queue = Queue::new(Limits::default());
    queue.add_node(NodeId(0), Amounts::slots(slots));
    let mut agenda: Agenda<Option<TaskId>> = Agenda::new();
    for job in jobs.values() {
        agenda.at(job.arrives, None);
    }
    let mut arriving = jobs.iter();
    let mut estimates: BTreeMap<JobId, Estimate> = BTreeMap::new();
    while let Some(event) = agenda.next() {
        let now = agenda.now;
        let mut next = Some(event);
        // The reference sees everything that happens at one time together.
        while let Some(event) = next {
            match event {
                Some(task) => queue.ended(task, Outcome::Succeeded),
                None => {
                    if let Some((id, Job { job, .. })) = arriving.next() {
                        let request = Request {
                            demand: Demand::slots(job.slots),
                            time_limit: Some(job.limit),
                            ..Request::slots(job.slots)
                        };
                        let result = queue.submit(*id, request);
                        record.require(now, result.is_ok(), || format!("{id}: {result:?}"));
                    }
                }
            }
            next = agenda
                .next_at()
                .filter(|at| *at <= now)
                .and_then(|_| agenda.next());
        }
        if ends == Ends::Late && estimates.is_empty() {
            let explained = jobs
                .keys()
                .filter_map(|id| Some((*id, queue.explain(now, *id)?.start)));
            estimates = explained.collect();
        }
        queue.schedule(now);
        while let Some(output) = queue.poll() {
            let Output::Start { task, .. } = output else {
                continue;
            };
            record.note(now, || format!("{task} starts"));
            let due = expected.get(&task.job);
            record.require(now, due == Some(&now), || {
                format!("job {task} starts, and the reference starts it at {due:?}")
            });
            let estimate = estimates.get(&task.job);
            let is_exact = estimate.is_none_or(|estimate| *estimate == Estimate::At(now));
            record.require(now, is_exact, || {
                format!("{task} was to start at {estimate:?}")
            });
            if let Some(Job { job, .. }) = jobs.get(&task.job) {
                agenda.at(now + job.runs_for, Some(task));
            }
        }
        if record.is_faulty() {
            return now;
        }
    }
    let left = queue.jobs().count();
    record.require(agenda.now, left == 0, || format!("{left} jobs are left"));
    agenda.now
}
