//! Running tasks that get more, or give something back.

use super::*;

fn longer(time: u64) -> More {
    More {
        time: seconds(time),
        ..More::default()
    }
}

fn wider(units: u32) -> More {
    More {
        units,
        ..More::default()
    }
}

impl Machine {
    fn extend(&mut self, job: u32, more: &More) -> Result<(), NotExtended> {
        self.queue.extend(at(self.now), whole(job), more)
    }

    fn free(&self, node: u32) -> u32 {
        self.queue.node(NodeId(node)).unwrap().1.slots
    }
}

#[test]
fn a_task_gets_what_is_free() {
    let mut machine = Machine::new(&[2, 4]);
    let first = machine.submit(job(2, 10));
    machine.starts();
    assert_eq!(machine.units(first), [(0, 2)]);
    assert_eq!(machine.extend(first, &wider(5)), Err(NotExtended::NoRoom));
    assert_eq!(machine.extend(first, &wider(3)), Ok(()));
    assert_eq!(machine.units(first), [(0, 2), (1, 3)]);
    assert_eq!(machine.extend(first, &wider(1)), Ok(()));
    assert_eq!(machine.units(first), [(0, 2), (1, 4)]);
    // All of it is free again at its end.
    machine.end(5, whole(first));
    assert_eq!((machine.free(0), machine.free(1)), (2, 4));
    assert_eq!(
        machine.extend(first, &wider(1)),
        Err(NotExtended::NotRunning)
    );
}

#[test]
fn more_nodes_are_others() {
    let mut machine = Machine::new(&[2, 2, 2]);
    let demand = Demand {
        spread: Spread::Scatter,
        sharing: Sharing::Exclusive,
        ..Demand::slots(1)
    };
    let whole_node = machine.submit(Request {
        demand: demand.clone(),
        ..job(1, 10)
    });
    let scattered = machine.submit(Request {
        demand: Demand {
            sharing: Sharing::Shared,
            ..demand
        },
        ..job(1, 10)
    });
    machine.starts();
    assert_eq!(machine.units(scattered), [(1, 1)]);
    let named = |node| More {
        only: Some([NodeId(node)].into()),
        ..wider(1)
    };
    // It is there already, or the node is that of another job.
    assert_eq!(
        machine.extend(scattered, &named(1)),
        Err(NotExtended::NoRoom)
    );
    assert_eq!(
        machine.extend(scattered, &named(0)),
        Err(NotExtended::NoRoom)
    );
    assert_eq!(machine.extend(scattered, &named(2)), Ok(()));
    assert_eq!(machine.units(scattered), [(1, 1), (2, 1)]);
    assert_eq!(
        machine.extend(whole_node, &wider(1)),
        Err(NotExtended::NoRoom)
    );
}

#[test]
fn an_extension_does_not_delay_the_head() {
    // Four slots: the first task has two until 10, the second one until 5, and the head needs three.
    let world = || {
        let mut machine = Machine::new(&[4]);
        let [long, short, head] =
            [job(2, 10), job(1, 5), job(3, 10)].map(|one| machine.submit(one));
        machine.starts();
        assert_eq!(machine.queue.head(), Some((JobId(head), Some(at(10)))));
        (machine, long, short, JobId(head))
    };
    let (mut machine, long, short, head) = world();
    assert_eq!(
        machine.extend(long, &longer(1)),
        Err(NotExtended::Delays(head))
    );
    assert_eq!(
        machine.extend(short, &longer(5)),
        Ok(()),
        "it ends with the other one"
    );
    assert_eq!(
        machine.extend(short, &longer(100)),
        Ok(()),
        "the head does not need its slot"
    );
    machine.starts();
    assert_eq!(machine.queue.head(), Some((head, Some(at(10)))));
    // The free slot may be used until the head starts; the one beside the head is taken.
    assert_eq!(machine.extend(short, &wider(1)), Err(NotExtended::NoRoom));
    assert_eq!(
        machine.extend(long, &wider(1)),
        Ok(()),
        "it ends before the head starts"
    );
    machine.end(10, whole(long));
    assert_eq!(machine.units(head.0), [(0, 3)]);
}

#[test]
fn a_head_without_a_time_keeps_the_nodes_for_which_it_waits() {
    let mut machine = Machine::new(&[1, 1, 1]);
    let [unlimited, limited, _] =
        [Request::slots(1), job(1, 10), job(1, 10)].map(|one| machine.submit(one));
    let head = machine.submit(job(2, 10));
    machine.starts();
    // It waits for two tasks with a limit.
    assert_eq!(machine.queue.head(), Some((JobId(head), Some(at(10)))));
    assert_eq!(
        machine.extend(limited, &longer(1)),
        Err(NotExtended::Delays(JobId(head)))
    );
    assert_eq!(
        machine.extend(unlimited, &longer(1)),
        Ok(()),
        "it has all the time"
    );
    let mut machine = Machine::new(&[1, 1]);
    let [_, limited] = [Request::slots(1), job(1, 10)].map(|one| machine.submit(one));
    let head = machine.submit(Request::slots(2));
    machine.starts();
    assert_eq!(machine.queue.head(), Some((JobId(head), None)));
    assert_eq!(
        machine.extend(limited, &longer(1)),
        Err(NotExtended::Delays(JobId(head)))
    );
}

#[test]
fn time_beyond_all_times_is_no_limit() {
    let mut machine = Machine::new(&[2]);
    let first = machine.submit(job(1, 10));
    machine.starts();
    let forever = More {
        time: Some(Duration::MAX),
        ..More::default()
    };
    assert_eq!(machine.extend(first, &forever), Ok(()));
    let head = machine.submit(job(2, 10));
    machine.starts();
    assert_eq!(machine.queue.head(), Some((JobId(head), None)));
}

#[test]
fn what_is_given_back_is_free() {
    let mut machine = Machine::new(&[2, 2]);
    let first = machine.submit(job(4, 10));
    machine.starts();
    let give = |machine: &mut Machine, units: &[(u32, u32)]| {
        let units = units.iter().map(|(node, count)| (NodeId(*node), *count));
        machine.queue.give_back(whole(first), &units.collect())
    };
    for wrong in [&[(0, 3)][..], &[(2, 1)], &[(0, 2), (1, 2)]] {
        assert!(!give(&mut machine, wrong), "{wrong:?}");
    }
    let other = machine.submit(job(2, 10));
    assert_eq!(machine.starts(), none());
    assert!(give(&mut machine, &[(1, 2)]));
    assert_eq!(machine.units(first), [(0, 2)]);
    assert_eq!(machine.starts(), [other.to_string()]);
    machine.end(5, whole(first));
    assert_eq!((machine.free(0), machine.free(1)), (2, 0));
}

#[test]
fn whole_nodes_are_given_back_whole() {
    let mut machine = Machine::new(&[4, 4]);
    let demand = Demand {
        sharing: Sharing::Exclusive,
        ..Demand::slots(6)
    };
    let first = machine.submit(Request {
        demand,
        ..job(1, 10)
    });
    machine.starts();
    assert_eq!(machine.units(first), [(0, 4), (1, 2)]);
    let give = |machine: &mut Machine, count| {
        let units = vec![(NodeId(1), count)];
        machine.queue.give_back(whole(first), &units)
    };
    assert!(!give(&mut machine, 1));
    assert!(give(&mut machine, 2));
    assert_eq!((machine.free(0), machine.free(1)), (0, 4));
}

#[test]
fn what_belongs_to_no_node_is_not_taken_twice() {
    let mut machine = Machine::new(&[4]);
    assert!(machine.queue.set_shared(Amounts::slots(1)));
    let licensed = |slots| Demand {
        shared: Amounts::slots(1),
        ..Demand::slots(slots)
    };
    let [first, second] = [1, 1].map(|slots| {
        machine.submit(Request {
            demand: licensed(slots),
            ..job(1, 10)
        })
    });
    assert_eq!(machine.starts(), [first.to_string()]);
    assert_eq!(machine.extend(first, &wider(2)), Ok(()));
    assert!(machine.queue.give_back(whole(first), &vec![(NodeId(0), 2)]));
    assert_eq!(machine.starts(), none(), "there is one license");
    assert_eq!(machine.end(5, whole(first)), [second.to_string()]);
}

#[test]
fn a_task_that_is_ended_gets_nothing() {
    let mut machine = Machine::new(&[4]);
    let first = machine.submit(job(1, 10));
    machine.starts();
    machine.queue.cancel(JobId(first));
    assert_eq!(
        machine.extend(first, &wider(1)),
        Err(NotExtended::NotRunning)
    );
}

#[test]
fn limits_of_users_hold_for_extensions() {
    let limits = Limits {
        user_slots: Some(3),
        ..Limits::default()
    };
    let mut machine = Machine::with(&[8], limits);
    let first = machine.submit(job(2, 10));
    machine.starts();
    assert_eq!(machine.extend(first, &wider(2)), Err(NotExtended::Limit));
    assert_eq!(machine.extend(first, &wider(1)), Ok(()));
    // A job that waits for the limit has what it leaves.
    assert!(machine.queue.give_back(whole(first), &vec![(NodeId(0), 1)]));
    let waits = machine.submit(job(2, 10));
    assert_eq!(machine.starts(), none());
    assert_eq!(machine.extend(first, &wider(1)), Err(NotExtended::Limit));
    machine.queue.cancel(JobId(waits));
    assert_eq!(machine.extend(first, &wider(1)), Ok(()));
    assert!(machine.queue.give_back(whole(first), &vec![(NodeId(0), 2)]));
    machine.outputs();
    let second = machine.submit(job(2, 10));
    assert_eq!(machine.starts(), [second.to_string()]);
    assert_eq!(machine.extend(first, &wider(1)), Err(NotExtended::Limit));
}

#[test]
fn who_waits_beside_its_own_task_waits_for_others_only() {
    let mut machine = Machine::new(&[4, 4]);
    let first = machine.submit(job(6, 10));
    machine.starts();
    let room = |demand: &Demand| machine.queue.room_beside(demand, whole(first));
    assert_eq!(room(&Demand::slots(8)), 2);
    let node = Demand {
        spread: Spread::Scatter,
        sharing: Sharing::Exclusive,
        ..Demand::slots(1)
    };
    assert_eq!(room(&node), 0, "both nodes are in use");
    assert_eq!(
        machine.queue.room_beside(&node, whole(99)),
        2,
        "it does not run"
    );
}
