mod change;
mod explained;

use base::RankSet;

use super::*;

/// A queue and its time, in seconds.
struct Machine {
    queue: Queue,
    now: u64,
    last: u32,
}

fn at(seconds: u64) -> Time {
    Time::ZERO + Duration::from_secs(seconds)
}

fn seconds(seconds: u64) -> Option<Duration> {
    Some(Duration::from_secs(seconds))
}

/// A request for slots for a time.
fn job(slots: u32, limit: u64) -> Request {
    Request {
        time_limit: seconds(limit),
        ..Request::slots(slots)
    }
}

const fn whole(job: u32) -> TaskId {
    TaskId {
        job: JobId(job),
        index: None,
    }
}

impl Machine {
    /// A machine with nodes of so many slots.
    fn new(slots: &[u32]) -> Self {
        Self::with(slots, Limits::default())
    }

    fn with(slots: &[u32], limits: Limits) -> Self {
        let mut queue = Queue::new(limits);
        for (id, slots) in (0..).zip(slots) {
            queue.add_node(NodeId(id), Amounts::slots(*slots));
        }
        Self {
            queue,
            now: 0,
            last: 0,
        }
    }

    fn submit(&mut self, request: Request) -> u32 {
        self.last += 1;
        self.queue.submit(JobId(self.last), request).unwrap();
        self.last
    }

    fn refused(&mut self, request: Request) -> Refusal {
        let next = JobId(self.last + 1);
        self.queue.submit(next, request).unwrap_err()
    }

    fn outputs(&mut self) -> Vec<Output> {
        self.queue.schedule(at(self.now));
        std::iter::from_fn(|| self.queue.poll()).collect()
    }

    /// Returns the tasks that start now; nothing else may happen.
    fn starts(&mut self) -> Vec<String> {
        let outputs = self.outputs().into_iter();
        let starts = outputs.map(|output| match output {
            Output::Start { task, .. } => task.to_string(),
            other => panic!("{other:?}"),
        });
        starts.collect()
    }

    /// Ends a task at a time, and returns what starts then. The job is over.
    fn end(&mut self, now: u64, task: TaskId) -> Vec<String> {
        self.now = now;
        self.queue.ended(task, Outcome::Succeeded);
        let outputs = self.outputs().into_iter();
        let starts = outputs.filter_map(|output| match output {
            Output::Start { task, .. } => Some(task.to_string()),
            _ => None,
        });
        starts.collect()
    }

    fn explain(&self, job: u32) -> Explanation {
        self.queue.explain(at(self.now), JobId(job)).unwrap()
    }

    fn units(&self, job: u32) -> Vec<(u32, u32)> {
        let units = self.queue.units(whole(job)).unwrap();
        units.iter().map(|(node, units)| (node.0, *units)).collect()
    }
}

fn none() -> Vec<String> {
    Vec::new()
}

#[test]
fn jobs_start_in_their_order() {
    let mut machine = Machine::new(&[4]);
    for slots in [2, 4, 2] {
        machine.submit(job(slots, 10));
    }
    // Job 3 would not delay job 2: both jobs that run end at 10.
    assert_eq!(machine.starts(), ["1", "3"]);
    assert_eq!(machine.end(5, whole(3)), none());
    assert_eq!(machine.end(7, whole(1)), ["2"]);
}

#[test]
fn priority_comes_first() {
    let mut machine = Machine::new(&[1]);
    machine.submit(job(1, 10));
    machine.submit(job(1, 10));
    let important = machine.submit(Request {
        priority: 1,
        ..job(1, 10)
    });
    assert_eq!(machine.starts(), ["3"]);
    assert!(machine.queue.set_priority(JobId(2), 5));
    assert_eq!(machine.end(1, whole(important)), ["2"]);
}

/// `-` runs, `=` is the reservation of job 2, and job 3 is too long.
#[test]
fn backfill_does_not_delay_the_head() {
    let mut machine = Machine::new(&[4]);
    machine.submit(job(3, 10));
    machine.submit(job(4, 10));
    machine.submit(job(1, 11));
    machine.submit(job(1, 10));
    assert_eq!(machine.starts(), ["1", "4"]);
    assert_eq!(machine.end(9, whole(4)), none());
    assert_eq!(machine.end(10, whole(1)), ["2"]);
}

#[test]
fn backfill_may_take_what_the_head_does_not_need() {
    let mut machine = Machine::new(&[4, 4]);
    machine.submit(job(6, 10));
    machine.submit(job(6, 10));
    machine.submit(job(2, 1000));
    machine.submit(job(1, 1000));
    // At 10, job 2 leaves 2 slots.
    assert_eq!(machine.starts(), ["1", "3"]);
    assert_eq!(machine.end(10, whole(1)), ["2"]);
}

/// Nodes of the head are kept free although nobody knows when it starts.
#[test]
fn the_head_does_not_starve_without_time_limits() {
    let mut machine = Machine::new(&[2, 2]);
    for slots in [1, 3, 4] {
        machine.submit(Request::slots(slots));
    }
    assert_eq!(machine.starts(), ["1", "2"]);
    for _ in 0..3 {
        machine.submit(Request::slots(1));
        machine.submit(job(1, 1));
    }
    assert_eq!(machine.end(100, whole(2)), none());
    assert_eq!(machine.end(200, whole(1)), ["3"]);
}

#[test]
fn a_task_over_its_limit_delays_the_head_and_nobody_else_does() {
    let mut machine = Machine::new(&[2]);
    machine.submit(job(1, 10));
    machine.submit(job(2, 10));
    assert_eq!(machine.starts(), ["1"]);
    machine.now = 20;
    machine.submit(job(1, 1));
    assert_eq!(machine.starts(), none());
    assert_eq!(machine.end(30, whole(1)), ["2"]);
}

#[test]
fn jobs_share_nodes_unless_they_want_whole_ones() {
    let exclusive = |slots| {
        let mut request = job(slots, 10);
        request.demand.sharing = Sharing::Exclusive;
        request
    };
    let mut machine = Machine::new(&[4, 4, 4]);
    machine.submit(job(1, 10));
    machine.submit(exclusive(5));
    machine.submit(exclusive(1));
    machine.submit(job(3, 10));
    assert_eq!(machine.starts(), ["1", "2", "4"]);
    assert_eq!(machine.units(1), [(0, 1)]);
    assert_eq!(machine.units(2), [(1, 4), (2, 1)]);
    assert_eq!(machine.units(4), [(0, 3)]);
    assert_eq!(machine.end(1, whole(1)), none());
    assert_eq!(machine.end(2, whole(4)), ["3"]);
}

#[test]
fn units_are_packed_or_scattered() {
    let mut machine = Machine::new(&[8, 2, 4, 4]);
    // The fullest node that has room for all.
    machine.submit(job(2, 10));
    machine.submit(job(3, 10));
    // As few nodes as possible.
    machine.submit(job(10, 10));
    let mut scattered = job(2, 10);
    scattered.demand.spread = Spread::Scatter;
    machine.submit(scattered);
    assert_eq!(machine.starts(), ["1", "2", "3", "4"]);
    assert_eq!(machine.units(1), [(1, 2)]);
    assert_eq!(machine.units(2), [(2, 3)]);
    assert_eq!(machine.units(3), [(0, 8), (3, 2)]);
    assert_eq!(machine.units(4), [(2, 1), (3, 1)]);
}

#[test]
fn counted_resources_are_counted() {
    let mut resources = Resources::default();
    let mut with = |slots, gpus| {
        let counted = BTreeMap::from([("gpu".to_owned(), gpus)]);
        resources.amounts(slots, &counted)
    };
    let mut machine = Machine::new(&[8]);
    machine.queue.add_node(NodeId(1), with(4, 2));
    let mut gpus = job(1, 10);
    gpus.demand.unit = with(1, 1);
    gpus.demand.units = 2;
    machine.submit(gpus.clone());
    machine.submit(gpus.clone());
    machine.submit(job(10, 10));
    assert_eq!(machine.starts(), ["1", "3"]);
    assert_eq!(machine.units(1), [(1, 2)]);
    gpus.demand.units = 3;
    let refusal = Refusal::NeverFits { units: 3, room: 2 };
    assert_eq!(machine.refused(gpus), refusal);
}

#[test]
fn resources_without_a_node_are_counted() {
    let mut machine = Machine::new(&[8]);
    assert!(machine.queue.set_shared(Amounts::slots(3)));
    let mut licensed = job(1, 10);
    licensed.demand.shared = Amounts::slots(2);
    machine.submit(licensed.clone());
    machine.submit(licensed.clone());
    machine.submit(job(1, 100));
    assert_eq!(machine.starts(), ["1", "3"]);
    assert_eq!(machine.end(1, whole(1)), ["2"]);
    licensed.demand.shared = Amounts::slots(4);
    assert_eq!(machine.refused(licensed), Refusal::TooFewShared);
}

#[test]
fn a_job_runs_only_where_it_may() {
    let mut machine = Machine::new(&[1, 4]);
    let mut bound = job(1, 10);
    bound.demand.only = Some([NodeId(1)].into());
    machine.submit(bound.clone());
    bound.demand.units = 4;
    machine.submit(bound);
    machine.submit(job(1, 100));
    assert_eq!(machine.starts(), ["1", "3"]);
    assert_eq!(machine.units(1), [(1, 1)]);
    assert_eq!(machine.units(3), [(0, 1)]);
    assert_eq!(machine.end(1, whole(1)), ["2"]);
}

#[test]
fn tasks_of_an_array_start_one_by_one() {
    let mut machine = Machine::new(&[4]);
    let array = machine.submit(Request {
        array: Some(Array {
            indexes: RankSet::range(1..6),
            running_max: Some(2),
        }),
        ..job(1, 10)
    });
    machine.submit(job(1, 10));
    assert_eq!(machine.starts(), ["1[1]", "1[2]", "2"]);
    let task = |index| TaskId {
        job: JobId(array),
        index: Some(index),
    };
    assert_eq!(machine.end(1, task(2)), ["1[3]"]);
    assert!(machine.queue.cancel_task(task(4)));
    assert!(!machine.queue.cancel_task(task(4)));
    assert!(machine.queue.cancel_task(task(3)));
    assert_eq!(machine.outputs(), [Output::End { task: task(3) }]);
    machine.queue.ended(task(3), Outcome::Failed);
    assert_eq!(machine.starts(), ["1[5]"]);
    assert_eq!(machine.end(2, task(1)), none());
    machine.queue.ended(task(5), Outcome::Succeeded);
    let over = Output::Over {
        job: JobId(array),
        why: Over::Failed,
    };
    assert_eq!(machine.outputs(), [over]);
}

#[test]
fn a_job_waits_for_others() {
    for (kind, outcome, after_start, after_end) in [
        (DependencyKind::Started, Outcome::Failed, true, false),
        (DependencyKind::Ended, Outcome::Failed, false, true),
        (DependencyKind::Ended, Outcome::Succeeded, false, true),
        (DependencyKind::Succeeded, Outcome::Succeeded, false, true),
        (DependencyKind::Succeeded, Outcome::Failed, false, false),
    ] {
        let mut machine = Machine::new(&[8]);
        let on = JobId(machine.submit(job(1, 10)));
        let after = vec![Dependency { on, kind }];
        let second = machine.submit(Request {
            after: after.clone(),
            ..job(1, 10)
        });
        let third = machine.submit(Request {
            after: vec![Dependency {
                on: JobId(second),
                kind: DependencyKind::Succeeded,
            }],
            ..job(1, 10)
        });
        let expected: &[&str] = if after_start { &["1", "2"] } else { &["1"] };
        assert_eq!(machine.starts(), expected, "{kind:?}");
        machine.queue.ended(whole(1), outcome);
        let outputs = machine.outputs();
        let starts = |output: &Output| matches!(output, Output::Start { .. });
        assert_eq!(
            outputs.iter().any(starts),
            after_end,
            "{kind:?} {outcome:?}"
        );
        if !after_start && !after_end {
            let over = |job, on| Output::Over {
                job: JobId(job),
                why: Over::DependencyFailed(JobId(on)),
            };
            assert_eq!(outputs[1..], [over(second, 1), over(third, second)]);
        }
        let late = machine.refused(Request {
            after,
            ..job(1, 10)
        });
        assert_eq!(late, Refusal::UnknownDependency(on));
    }
}

#[test]
fn a_held_job_waits_for_its_release() {
    let mut machine = Machine::new(&[1]);
    machine.submit(Request {
        hold: Hold::ByUser,
        ..job(1, 10)
    });
    machine.submit(job(1, 10));
    assert!(machine.queue.hold(JobId(2)));
    assert_eq!(machine.starts(), none());
    assert!(machine.queue.release(JobId(1)));
    assert_eq!(machine.starts(), ["1"]);
    assert!(machine.queue.release(JobId(2)));
    assert_eq!(machine.end(1, whole(1)), ["2"]);
    assert!(!machine.queue.hold(JobId(9)));
}

#[test]
fn a_canceled_job_ends() {
    let mut machine = Machine::new(&[1]);
    for _ in 0..2 {
        machine.submit(job(1, 10));
    }
    assert_eq!(machine.starts(), ["1"]);
    let canceled = |job| Output::Over {
        job: JobId(job),
        why: Over::Canceled,
    };
    assert!(machine.queue.cancel(JobId(2)));
    assert_eq!(machine.outputs(), [canceled(2)]);
    assert!(machine.queue.cancel(JobId(1)));
    assert_eq!(machine.outputs(), [Output::End { task: whole(1) }]);
    machine.queue.ended(whole(1), Outcome::Failed);
    assert_eq!(machine.outputs(), [canceled(1)]);
    assert!(!machine.queue.cancel(JobId(1)));
}

#[test]
fn a_task_that_loses_a_node_runs_again_if_it_is_to() {
    let mut machine = Machine::new(&[1, 1]);
    machine.submit(Request {
        on_node_loss: Requeue::OnNodeLoss,
        ..job(1, 10)
    });
    machine.submit(job(1, 10));
    machine.submit(job(1, 10));
    assert_eq!(machine.starts(), ["1", "2"]);
    assert!(machine.queue.set_node(NodeId(0), NodeState::Closed));
    machine.queue.ended(whole(1), Outcome::NodeLost);
    assert_eq!(machine.outputs(), [Output::Requeued { task: whole(1) }]);
    // It comes before job 3.
    assert_eq!(machine.end(1, whole(2)), ["1"]);
    assert_eq!(machine.units(1), [(1, 1)]);
    machine.queue.remove_node(NodeId(1));
    assert_eq!(machine.outputs(), [Output::End { task: whole(1) }]);
    machine.queue.ended(whole(1), Outcome::Failed);
    assert_eq!(machine.outputs(), [Output::Requeued { task: whole(1) }]);
    assert!(machine.queue.set_node(NodeId(0), NodeState::Up));
    assert_eq!(machine.starts(), ["1"]);
    for _ in 2..REQUEUES_MAX - 1 {
        machine.queue.ended(whole(1), Outcome::NodeLost);
        assert!(matches!(
            machine.outputs()[..],
            [Output::Requeued { .. }, Output::Start { .. }]
        ));
    }
    machine.queue.ended(whole(1), Outcome::NodeLost);
    assert!(matches!(
        machine.outputs()[..],
        [
            Output::Requeued { .. },
            Output::Held { job: JobId(1) },
            Output::Start { .. }
        ]
    ));
}

#[test]
fn limits_of_users_and_jobs() {
    let limits = Limits {
        user_jobs: Some(3),
        user_running: Some(2),
        user_slots: Some(3),
        task_slots: Some(5),
        task_time: seconds(100),
        running: None,
    };
    let mut machine = Machine::with(&[8], limits);
    assert_eq!(machine.refused(job(4, 10)), Refusal::TaskSlots(3));
    let long = Refusal::TaskTime(Duration::from_secs(100));
    assert_eq!(machine.refused(job(1, 101)), long);
    for slots in [2, 2, 1] {
        machine.submit(Request::slots(slots));
    }
    assert_eq!(machine.refused(job(1, 10)), Refusal::UserJobs(3));
    // Job 2 would use 4 slots, and job 3 has to leave it 2.
    assert_eq!(machine.starts(), ["1"]);
    assert_eq!(machine.explain(2).why, Why::Limit(LimitHit::UserSlots(3)));
    assert_eq!(machine.explain(3).why, Why::BehindLimit(JobId(2)));
    machine.submit(Request {
        user: 1,
        ..job(3, 10)
    });
    assert_eq!(machine.starts(), ["4"]);
    assert_eq!(machine.end(1, whole(1)), ["2", "3"]);
    machine.submit(Request::slots(1));
    assert_eq!(machine.starts(), none());
    let why = Why::Limit(LimitHit::UserRunning(2));
    assert_eq!(machine.explain(5).why, why);
}

#[test]
fn requests_that_mean_nothing_are_refused() {
    let mut machine = Machine::new(&[8]);
    assert_eq!(machine.refused(Request::slots(0)), Refusal::NoSlots);
    let array = |indexes, running_max| Request {
        array: Some(Array {
            indexes,
            running_max,
        }),
        ..job(1, 10)
    };
    let empty = array(RankSet::empty(), None);
    assert_eq!(machine.refused(empty), Refusal::NoTasks);
    let never = array(RankSet::range(0..2), Some(0));
    assert_eq!(machine.refused(never), Refusal::NoTasks);
    let most = u32::try_from(TASKS_MAX).unwrap();
    let long = array(RankSet::range(0..most + 1), None);
    assert_eq!(machine.refused(long), Refusal::ArrayTooLong);
    let dependency = Dependency {
        on: JobId(1),
        kind: DependencyKind::Ended,
    };
    let depends = Request {
        after: vec![dependency; DEPENDENCIES_MAX + 1],
        ..job(1, 10)
    };
    assert_eq!(machine.refused(depends), Refusal::TooManyDependencies);
}

#[test]
fn a_closed_node_gets_no_job_and_blocks_only_who_needs_it() {
    let mut machine = Machine::new(&[4, 4]);
    assert!(machine.queue.set_node(NodeId(1), NodeState::Closed));
    machine.submit(job(8, 10));
    machine.submit(job(3, 1000));
    machine.submit(job(2, 10));
    machine.submit(job(1, 1000));
    // Job 3 is the head.
    assert_eq!(machine.starts(), ["2", "4"]);
    assert!(machine.queue.set_node(NodeId(1), NodeState::Up));
    assert_eq!(machine.starts(), ["3"]);
    assert!(!machine.queue.set_node(NodeId(7), NodeState::Up));
}

fn array(indexes: std::ops::Range<u32>, request: Request) -> Request {
    Request {
        array: Some(Array {
            indexes: RankSet::range(indexes),
            running_max: None,
        }),
        ..request
    }
}

const fn task(job: u32, index: u32) -> TaskId {
    TaskId {
        job: JobId(job),
        index: Some(index),
    }
}

#[test]
fn an_array_of_which_nothing_has_run_has_not_succeeded() {
    let mut machine = Machine::new(&[4]);
    machine.submit(Request {
        hold: Hold::ByUser,
        ..array(0..2, job(1, 10))
    });
    for index in 0..2 {
        assert!(machine.queue.cancel_task(task(1, index)));
    }
    let canceled = Output::Over {
        job: JobId(1),
        why: Over::Canceled,
    };
    assert_eq!(machine.outputs(), [canceled]);
}

#[test]
fn a_canceled_task_does_not_run_again() {
    let mut machine = Machine::new(&[4]);
    machine.submit(Request {
        on_node_loss: Requeue::OnNodeLoss,
        ..array(0..2, job(1, 10))
    });
    machine.starts();
    assert!(machine.queue.cancel_task(task(1, 0)));
    assert_eq!(machine.outputs(), [Output::End { task: task(1, 0) }]);
    machine.queue.ended(task(1, 0), Outcome::NodeLost);
    machine.queue.ended(task(1, 1), Outcome::Succeeded);
    let failed = Output::Over {
        job: JobId(1),
        why: Over::Failed,
    };
    assert_eq!(machine.outputs(), [failed]);
}

/// Many tasks on one node are no reason to hold their job.
#[test]
fn the_loss_of_one_node_holds_no_array() {
    let mut machine = Machine::new(&[8, 8]);
    machine.submit(Request {
        on_node_loss: Requeue::OnNodeLoss,
        ..array(0..8, job(1, 10))
    });
    assert_eq!(machine.starts().len(), 8);
    machine.queue.set_node(NodeId(0), NodeState::Closed);
    for index in 0..8 {
        machine.queue.ended(task(1, index), Outcome::NodeLost);
    }
    let outputs = machine.outputs();
    let held = Output::Held { job: JobId(1) };
    assert!(!outputs.contains(&held), "{outputs:?}");
}

/// What was submitted before the limits were lowered does not block its user.
#[test]
fn a_job_beyond_the_limits_blocks_nobody() {
    let mut machine = Machine::new(&[8]);
    machine.submit(Request {
        hold: Hold::ByUser,
        ..job(8, 10)
    });
    machine.queue.set_limits(Limits {
        user_slots: Some(4),
        ..Limits::default()
    });
    machine.queue.release(JobId(1));
    machine.submit(job(1, 10));
    assert_eq!(machine.starts(), ["2"]);
}

#[test]
fn a_limit_beyond_all_times_is_none() {
    let mut machine = Machine::new(&[2]);
    let endless = |slots| Request {
        time_limit: Some(Duration::MAX),
        ..Request::slots(slots)
    };
    machine.submit(endless(1));
    machine.submit(job(2, 10));
    machine.submit(endless(1));
    assert_eq!(machine.starts(), ["1"]);
    assert_eq!(machine.queue.head(), Some((JobId(2), None)));
}

#[test]
fn resources_in_use_stay_as_they_are() {
    let mut machine = Machine::new(&[2]);
    assert!(machine.queue.set_shared(Amounts::slots(2)));
    let mut licensed = job(1, 10);
    licensed.demand.shared = Amounts::slots(1);
    machine.submit(licensed);
    machine.starts();
    assert!(!machine.queue.set_shared(Amounts::slots(1)));
    machine.end(1, whole(1));
    assert!(machine.queue.set_shared(Amounts::slots(1)));
}
