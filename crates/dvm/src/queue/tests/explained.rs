use super::*;

#[test]
fn the_head_knows_for_whom_it_waits() {
    let mut machine = Machine::new(&[2, 2]);
    machine.submit(job(2, 10));
    machine.submit(job(1, 50));
    machine.submit(job(3, 10));
    machine.submit(job(4, 10));
    machine.starts();
    let head = machine.explain(3);
    let waits_for = vec![whole(1)];
    assert_eq!(head.why, Why::Head { waits_for });
    assert_eq!(head.start, Estimate::At(at(10)));
    assert_eq!((head.ahead, head.ahead_count), (vec![], 0));
    assert_eq!(head.sooner, [Hint::Units(1)]);
    let next = machine.explain(4);
    assert_eq!(next.why, Why::NoRoom);
    assert_eq!(next.ahead, [JobId(3)]);
    assert_eq!(next.start, Estimate::At(at(50)));
}

#[test]
fn a_job_that_would_delay_the_head_may_be_shorter_or_smaller() {
    let mut machine = Machine::new(&[4]);
    machine.submit(job(2, 10));
    machine.submit(job(3, 10));
    machine.submit(job(2, 100));
    machine.starts();
    let explanation = machine.explain(3);
    let why = Why::WouldDelay {
        head: JobId(2),
        at: Some(at(10)),
    };
    assert_eq!(explanation.why, why);
    let hints = [Hint::TimeLimit(Duration::from_secs(10)), Hint::Units(1)];
    assert_eq!(explanation.sooner, hints);
    assert_eq!(explanation.start, Estimate::At(at(20)));
    // The hints are true.
    machine.submit(job(2, 10));
    assert_eq!(machine.starts(), ["4"]);
}

#[test]
fn whole_nodes_may_be_the_obstacle() {
    let mut machine = Machine::new(&[4]);
    machine.submit(job(2, 10));
    let mut exclusive = job(2, 10);
    exclusive.demand.sharing = Sharing::Exclusive;
    machine.submit(exclusive);
    machine.starts();
    assert_eq!(machine.explain(2).sooner, [Hint::Shared]);
}

#[test]
fn without_a_limit_there_is_no_time() {
    let mut machine = Machine::new(&[4]);
    machine.submit(Request::slots(1));
    machine.submit(job(1, 10));
    machine.submit(job(4, 10));
    machine.starts();
    let start = machine.explain(3).start;
    assert_eq!(start, Estimate::AfterUnlimited(whole(1)));
}

#[test]
fn who_waits_for_the_user_is_told_so() {
    let mut machine = Machine::new(&[4, 4]);
    machine.submit(Request {
        hold: Hold::ByUser,
        ..job(1, 10)
    });
    let dependency = Dependency {
        on: JobId(1),
        kind: DependencyKind::Ended,
    };
    machine.submit(Request {
        after: vec![dependency],
        ..job(1, 10)
    });
    machine.submit(job(5, 10));
    machine.queue.set_node(NodeId(1), NodeState::Closed);
    machine.starts();
    let held = machine.explain(1);
    assert_eq!(held.why, Why::Held(Hold::ByUser));
    assert_eq!(
        (held.start, held.sooner),
        (Estimate::Unknown, vec![Hint::Release])
    );
    let blocked = machine.explain(2);
    assert_eq!(blocked.why, Why::Blocked(vec![dependency]));
    assert_eq!((blocked.start, blocked.sooner), (Estimate::Unknown, vec![]));
    let closed = machine.explain(3);
    let why = Why::NodesClosed {
        room: 4,
        closed: vec![NodeId(1)],
    };
    assert_eq!((closed.why, closed.start), (why, Estimate::Unknown));
    assert_eq!(closed.sooner, [Hint::Units(4)]);
    assert!(machine.queue.explain(at(0), JobId(9)).is_none());
}

/// An estimate follows dependencies and arrays.
#[test]
fn an_estimate_lets_time_pass() {
    let mut machine = Machine::new(&[2]);
    machine.submit(Request {
        array: Some(Array {
            indexes: RankSet::range(0..5),
            running_max: None,
        }),
        ..job(1, 10)
    });
    machine.submit(Request {
        after: vec![Dependency {
            on: JobId(1),
            kind: DependencyKind::Succeeded,
        }],
        ..job(2, 10)
    });
    machine.starts();
    assert_eq!(machine.explain(1).start, Estimate::At(at(10)));
    assert_eq!(machine.explain(2).start, Estimate::At(at(30)));
    assert_eq!(
        machine.explain(1).why,
        Why::Head {
            waits_for: vec![TaskId {
                job: JobId(1),
                index: Some(0)
            }],
        }
    );
}

/// Tasks on nodes that the head will not get do not matter to it.
#[test]
fn the_head_waits_only_for_those_on_its_nodes() {
    let mut machine = Machine::new(&[2, 2]);
    machine.submit(Request::slots(2));
    machine.submit(Request::slots(2));
    let mut bound = Request::slots(1);
    bound.demand.only = Some([NodeId(1)].into());
    machine.submit(bound);
    machine.starts();
    let explanation = machine.explain(3);
    let waits_for = vec![whole(2)];
    assert_eq!(explanation.why, Why::Head { waits_for });
    assert_eq!(explanation.start, Estimate::AfterUnlimited(whole(2)));
    let running = machine.explain(1);
    assert_eq!(
        (running.why, running.start),
        (Why::NothingWaits, Estimate::Unknown)
    );
}

/// A smaller head would start at once: its own reservation is no obstacle.
#[test]
fn the_head_may_be_smaller() {
    let mut machine = Machine::new(&[4]);
    machine.submit(job(2, 10));
    machine.submit(job(4, 100));
    machine.starts();
    assert_eq!(machine.explain(2).sooner, [Hint::Units(2)]);
}
