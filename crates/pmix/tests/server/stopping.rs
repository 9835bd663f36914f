//! Processes that stop during their start and wait for a debugger.

use base::{Rank, RankSet};
use pmix::{
    keys,
    message::{Answer, Push, Request},
    server::{Conn, Input, Stop, StopIn},
    value::{Range, Status, Value},
};

use crate::world::{V3, World, job, nspace, proc};

fn ranks(ranks: &[u32]) -> RankSet {
    ranks.iter().copied().map(Rank).collect()
}

/// Creates a job `s` of three, some of which stop.
fn stopping(place: StopIn, which: &[u32]) -> World {
    let mut world = World::new(&[]);
    let mut job = job("s", 3);
    job.stop = Some(Stop {
        place,
        ranks: ranks(which),
    });
    world.handle(Input::Register(Box::new(job)));
    world
}

/// Returns the facts about stopping in the job info of a process.
fn stop_facts(world: &mut World, conn: Conn) -> Vec<(bool, Value)> {
    let Answer::JobInfo { facts, .. } = world.ask(conn, &Request::JobInfo) else {
        panic!("no facts");
    };
    let about = |fact: pmix::value::Kval| {
        let init = fact.key == *keys::STOP_IN_INIT;
        (init || fact.key == *keys::STOP_IN_APP).then_some((init, fact.value))
    };
    facts.into_iter().filter_map(about).collect()
}

fn ready(world: &mut World, conn: Conn) {
    let request = Request::Notify {
        status: Status::READY_FOR_DEBUG,
        // libpmix 5 and 6 send this range, with a process that has no meaning.
        range: Range::CUSTOM,
        infos: vec![pmix::value::Info::new(
            pmix::value::Key::new(keys::EVENT_CUSTOM_RANGE).unwrap(),
            Value::procs(vec![proc("", 0)]),
        )],
    };
    assert_eq!(world.status_of(conn, &request), Status::SUCCESS);
}

fn release(world: &mut World, which: &[u32]) {
    world.handle(Input::Release {
        nspace: nspace("s"),
        ranks: ranks(which),
    });
}

#[test]
fn those_who_are_to_stop_are_told_and_no_others() {
    for (place, init) in [(StopIn::Init, true), (StopIn::App, false)] {
        let mut world = stopping(place, &[0, 2]);
        let conns: Vec<Conn> = (0..3).map(|rank| world.connect("s", rank)).collect();
        let stop = vec![(init, Value::Bool(true))];
        assert_eq!(stop_facts(&mut world, conns[0]), stop);
        assert_eq!(stop_facts(&mut world, conns[1]), []);
        assert_eq!(stop_facts(&mut world, conns[2]), stop);
        release(&mut world, &[2]);
        assert_eq!(stop_facts(&mut world, conns[0]), stop);
        assert_eq!(
            stop_facts(&mut world, conns[2]),
            [],
            "it need not stop again"
        );
        world.assert_no_state_left();
    }
}

#[test]
fn who_waits_is_said_to_the_host_and_to_nobody_else() {
    let mut world = stopping(StopIn::Init, &[0, 1, 2]);
    let conns: Vec<Conn> = (0..3).map(|rank| world.connect("s", rank)).collect();
    world.register(conns[1], &[Status::READY_FOR_DEBUG]);
    world.register(conns[0], &[Status::DEBUGGER_RELEASE]);
    ready(&mut world, conns[0]);
    assert_eq!(world.ready, [proc("s", 0)]);
    assert_eq!(world.codes(conns[1]), []);
    assert!(world.events.is_empty());
    release(&mut world, &[0, 1, 2]);
    let pushes = world.pushes(conns[0]);
    let [Push::Event { status, source, .. }] = pushes.as_slice() else {
        panic!("{pushes:?}");
    };
    assert_eq!(*status, Status::DEBUGGER_RELEASE);
    assert_eq!(*source, proc("server", 0));
    world.assert_no_state_left();
}

#[test]
fn who_comes_after_the_release_does_not_wait() {
    let mut world = stopping(StopIn::Init, &[0, 1]);
    let conns: Vec<Conn> = (0..2).map(|rank| world.connect("s", rank)).collect();
    // Both were told to stop; only one of them is released.
    assert_eq!(stop_facts(&mut world, conns[0]).len(), 1);
    release(&mut world, &[1]);
    for (conn, expected) in [
        (conns[0], vec![]),
        (conns[1], vec![Status::DEBUGGER_RELEASE]),
    ] {
        world.register(conn, &[Status::DEBUGGER_RELEASE]);
        assert_eq!(world.codes(conn), expected);
    }
    world.assert_no_state_left();
}

/// The host knows which processes are held. It gets the request of a tool, and releases the processes.
#[test]
fn a_tool_lets_go_by_way_of_the_host() {
    let mut world = stopping(StopIn::Init, &[0]);
    let conns: Vec<Conn> = (0..3).map(|rank| world.connect("s", rank)).collect();
    world.register(conns[0], &[Status::DEBUGGER_RELEASE]);
    world.register(conns[1], &[Status::DEBUGGER_RELEASE]);
    let request = Request::Notify {
        status: Status::DEBUGGER_RELEASE,
        range: Range::NAMESPACE,
        infos: Vec::new(),
    };
    assert_eq!(world.status_of(conns[2], &request), Status::SUCCESS);
    assert_eq!(world.events.len(), 1);
    assert_eq!(world.codes(conns[0]), []);
    release(&mut world, &[0]);
    assert_eq!(world.codes(conns[0]), [Status::DEBUGGER_RELEASE]);
    // Once no process is held, the event is an ordinary one.
    assert_eq!(world.status_of(conns[2], &request), Status::SUCCESS);
    assert_eq!(world.codes(conns[1]), [Status::DEBUGGER_RELEASE]);
    world.assert_no_state_left();
}

/// Version 3 registers for its release, and sends no event that it waits.
#[test]
fn version_3_waits_without_a_word() {
    let mut world = stopping(StopIn::Init, &[0]);
    let conns = [
        world.connect_as("s", 0, V3),
        world.connect_as("s", 1, V3),
        world.connect("s", 2),
    ];
    for conn in conns {
        world.register(conn, &[Status::DEBUGGER_RELEASE]);
    }
    assert_eq!(world.ready, [proc("s", 0)]);
    world.assert_no_state_left();
}
