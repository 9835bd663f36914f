//! Events: their receivers, the events that are kept, and the events that the server itself sends.

use base::ExitStatus;
use pmix::{
    keys,
    message::{Push, Request},
    server::{Event, Input, MAX_CACHED_BYTES, MAX_CACHED_EVENTS, MAX_CODES},
    value::{Info, Proc, Range, Status, Value},
};

use crate::world::{KILLED, V3, V6, World, all, flag, info, job, nspace, proc};

const CODE: Status = Status(-3000);

fn notify(status: Status, range: Range, infos: Vec<Info>) -> Request {
    Request::Notify {
        status,
        range,
        infos,
    }
}

fn register(codes: &[Status], infos: Vec<Info>) -> Request {
    Request::Register {
        codes: codes.to_vec(),
        infos,
    }
}

fn about(proc: Proc) -> Info {
    info(keys::EVENT_AFFECTED_PROC, Value::Proc(Box::new(proc)))
}

/// An event of `a:0` reaches the right ones of three registered processes: `a:0`, `a:1`, `b:0`.
#[test]
fn ranges() {
    let to = |procs: Vec<Proc>| vec![info(keys::EVENT_CUSTOM_RANGE, Value::procs(procs))];
    let one = |proc: Proc| vec![info(keys::EVENT_CUSTOM_RANGE, Value::Proc(Box::new(proc)))];
    let cases = [
        (Range::UNDEF, Vec::new(), [false, true, true]),
        (Range::RM, Vec::new(), [false, false, false]),
        (Range::LOCAL, Vec::new(), [false, true, true]),
        (Range::NAMESPACE, Vec::new(), [false, true, false]),
        (Range::SESSION, Vec::new(), [false, true, true]),
        (Range::GLOBAL, Vec::new(), [false, true, true]),
        (Range::PROC_LOCAL, Vec::new(), [false, false, false]),
        (Range::CUSTOM, Vec::new(), [false, false, false]),
        (Range::CUSTOM, to(vec![proc("b", 0)]), [false, false, true]),
        (
            Range::CUSTOM,
            to(vec![all("a"), proc("b", 0)]),
            [false, true, true],
        ),
        (Range::CUSTOM, one(all("b")), [false, false, true]),
        // A list of receivers overrides the range.
        (Range::NAMESPACE, one(proc("b", 0)), [false, false, true]),
    ];
    for (range, infos, expected) in cases {
        let mut world = World::new(&[("a", 2), ("b", 1)]);
        let conns = [
            world.connect("a", 0),
            world.connect_as("a", 1, V3),
            world.connect_as("b", 0, V6),
        ];
        for conn in conns {
            world.register(conn, &[CODE]);
        }
        let request = notify(CODE, range, infos);
        assert_eq!(world.status_of(conns[0], &request), Status::SUCCESS);
        let heard = conns.map(|conn| world.codes(conn) == [CODE]);
        assert_eq!(heard, expected, "{range:?}");
        // The host gets all of them.
        assert_eq!(world.events.len(), 1);
        world.assert_no_state_left();
    }
}

#[test]
fn codes_and_defaults() {
    // The registered codes and restrictions; the code and infos of the event; whether the process gets it.
    type Case = (&'static [Status], Vec<Info>, Status, Vec<Info>, bool);
    const OTHER: Status = Status(-3001);
    let cases: [Case; 8] = [
        (&[CODE], Vec::new(), CODE, Vec::new(), true),
        (&[CODE], Vec::new(), OTHER, Vec::new(), false),
        (&[CODE, OTHER], Vec::new(), OTHER, Vec::new(), true),
        // Without codes, the handler is a default handler.
        (&[], Vec::new(), CODE, Vec::new(), true),
        (
            &[],
            Vec::new(),
            CODE,
            vec![flag(keys::EVENT_NON_DEFAULT)],
            false,
        ),
        (
            &[CODE],
            Vec::new(),
            CODE,
            vec![flag(keys::EVENT_NON_DEFAULT)],
            true,
        ),
        // Events about one process only.
        (
            &[CODE],
            vec![about(proc("a", 0))],
            CODE,
            vec![about(proc("a", 1))],
            false,
        ),
        (
            &[CODE],
            vec![about(all("a"))],
            CODE,
            vec![about(proc("a", 1))],
            true,
        ),
    ];
    for (codes, limits, status, infos, expected) in cases {
        let (mut world, conns) = World::of(2);
        let request = register(codes, limits);
        assert_eq!(world.status_of(conns[1], &request), Status::SUCCESS);
        world.status_of(conns[0], &notify(status, Range::NAMESPACE, infos));
        assert_eq!(!world.codes(conns[1]).is_empty(), expected, "{codes:?}");
        world.assert_no_state_left();
    }
}

#[test]
fn what_is_registered_twice_is_wanted_by_either() {
    let (mut world, conns) = World::of(3);
    let about_one = |rank| vec![about(proc("a", rank))];
    for infos in [about_one(0), about_one(1)] {
        world.status_of(conns[2], &register(&[CODE], infos));
    }
    for (rank, heard) in [(0, 1), (1, 1), (2, 0)] {
        world.status_of(conns[0], &notify(CODE, Range::NAMESPACE, about_one(rank)));
        assert_eq!(world.codes(conns[2]).len(), heard, "{rank}");
    }
    world.status_of(conns[2], &register(&[CODE], Vec::new()));
    world.pushes(conns[2]);
    world.status_of(conns[0], &notify(CODE, Range::NAMESPACE, about_one(2)));
    assert_eq!(world.codes(conns[2]), [CODE]);
    world.assert_no_state_left();
}

#[test]
fn who_deregisters_hears_nothing() {
    let (mut world, conns) = World::of(2);
    world.register(conns[1], &[CODE]);
    world.register(conns[1], &[]);
    let codes = |codes: &[Status]| Request::Deregister {
        codes: codes.to_vec(),
    };
    for (gone, heard) in [
        (vec![], 1),
        // Now the default handler gets it.
        (vec![CODE], 1),
        (vec![Status::DEFAULT_HANDLER], 0),
        (vec![CODE], 0),
    ] {
        world.send(conns[1], &codes(&gone));
        world.status_of(conns[0], &notify(CODE, Range::NAMESPACE, Vec::new()));
        assert_eq!(world.codes(conns[1]).len(), heard, "{gone:?}");
    }
    world.assert_no_state_left();
}

#[test]
fn who_comes_later_is_told_what_was() {
    let (mut world, conns) = World::of(3);
    let not_kept = vec![flag(keys::EVENT_DO_NOT_CACHE)];
    world.status_of(conns[0], &notify(CODE, Range::NAMESPACE, Vec::new()));
    world.status_of(conns[0], &notify(CODE, Range::NAMESPACE, not_kept));
    world.status_of(
        conns[0],
        &notify(Status(-3001), Range::NAMESPACE, Vec::new()),
    );
    let to_two = vec![info(
        keys::EVENT_CUSTOM_RANGE,
        Value::procs(vec![proc("a", 2)]),
    )];
    world.status_of(conns[0], &notify(CODE, Range::CUSTOM, to_two));
    world.register(conns[1], &[CODE]);
    assert_eq!(world.codes(conns[1]), [CODE]);
    world.register(conns[2], &[CODE]);
    let pushes = world.pushes(conns[2]);
    assert_eq!(pushes.len(), 2);
    // Without the range, as other servers send it.
    assert!(
        pushes
            .iter()
            .all(|push| matches!(push, Push::Event { range: None, .. }))
    );
    world.assert_no_state_left();
}

#[test]
fn what_is_kept_is_bounded() {
    // By number.
    let (mut world, conns) = World::of(2);
    for at in 0..MAX_CACHED_EVENTS + 10 {
        let number = info(c"number", Value::Size(at as u64));
        world.status_of(conns[0], &notify(CODE, Range::NAMESPACE, vec![number]));
    }
    world.register(conns[1], &[CODE]);
    let pushes = world.pushes(conns[1]);
    assert_eq!(pushes.len(), MAX_CACHED_EVENTS);
    let Push::Event { infos, .. } = &pushes[0] else {
        panic!("no event");
    };
    assert_eq!(infos[0].value, Value::Size(10), "the oldest were forgotten");
    world.assert_no_state_left();
    // By bytes.
    let (mut world, conns) = World::of(2);
    let large = Value::ByteObject(vec![0; MAX_CACHED_BYTES / 3].into());
    for _ in 0..10 {
        let large = info(c"large", large.clone());
        world.status_of(conns[0], &notify(CODE, Range::NAMESPACE, vec![large]));
    }
    let larger = Value::ByteObject(vec![0; MAX_CACHED_BYTES].into());
    world.status_of(
        conns[0],
        &notify(CODE, Range::NAMESPACE, vec![info(c"larger", larger)]),
    );
    world.register(conns[1], &[CODE]);
    assert_eq!(world.pushes(conns[1]).len(), 2);
    world.assert_no_state_left();
}

#[test]
fn registrations_are_bounded() {
    let (mut world, conns) = World::of(1);
    let codes: Vec<Status> = (0..=MAX_CODES)
        .map(|code| Status(-3000 - i32::try_from(code).unwrap()))
        .collect();
    let too_many = register(&codes, Vec::new());
    assert_eq!(
        world.status_of(conns[0], &too_many),
        Status::OUT_OF_RESOURCE
    );
    let as_many = register(&codes[1..], Vec::new());
    assert_eq!(world.status_of(conns[0], &as_many), Status::SUCCESS);
    // Registering the same codes again does not count.
    assert_eq!(world.status_of(conns[0], &as_many), Status::SUCCESS);
    let one_more = register(&codes[..1], Vec::new());
    assert_eq!(
        world.status_of(conns[0], &one_more),
        Status::OUT_OF_RESOURCE
    );
    world.assert_no_state_left();
}

#[test]
fn the_host_has_events_too() {
    let (mut world, conns) = World::of(2);
    world.register(conns[0], &[Status::EVENT_JOB_END]);
    let event = Event {
        status: Status::EVENT_JOB_END,
        source: proc("b", 0),
        range: Range::SESSION,
        infos: vec![flag(keys::EVENT_NON_DEFAULT)],
    };
    world.handle(Input::Event(Box::new(event)));
    assert_eq!(world.codes(conns[0]), [Status::EVENT_JOB_END]);
    // The host itself informs the other nodes.
    assert!(world.events.is_empty());
    world.assert_no_state_left();
}

#[test]
fn a_notification_of_a_server_is_not_spread() {
    let (mut world, conns) = World::of(2);
    world.register(conns[1], &[CODE]);
    let infos = vec![flag(keys::SERVER_INTERNAL_NOTIFY)];
    world.status_of(conns[0], &notify(CODE, Range::NAMESPACE, infos));
    assert_eq!(world.codes(conns[1]), []);
    assert!(world.events.is_empty());
    world.assert_no_state_left();
}

/// Events for each way in which a process can end.
#[test]
fn terminations() {
    #[derive(Clone, Copy, Debug)]
    enum Before {
        Never,
        Connected,
        Finalized,
        Aborted,
    }
    let cases = [
        (
            Before::Never,
            ExitStatus::SUCCESS,
            Status::EVENT_PROC_TERMINATED,
        ),
        (
            Before::Never,
            ExitStatus::Exited(3),
            Status::EXIT_NONZERO_TERM,
        ),
        (Before::Never, KILLED, Status::PROC_ABORTED_BY_SIG),
        (
            Before::Connected,
            ExitStatus::SUCCESS,
            Status::PROC_TERM_WO_SYNC,
        ),
        (
            Before::Connected,
            ExitStatus::Exited(3),
            Status::PROC_TERM_WO_SYNC,
        ),
        (Before::Connected, KILLED, Status::PROC_ABORTED_BY_SIG),
        (
            Before::Finalized,
            ExitStatus::SUCCESS,
            Status::EVENT_PROC_TERMINATED,
        ),
        (
            Before::Finalized,
            ExitStatus::Exited(3),
            Status::EXIT_NONZERO_TERM,
        ),
        (Before::Finalized, KILLED, Status::PROC_ABORTED_BY_SIG),
        (Before::Aborted, KILLED, Status::PROC_REQUESTED_ABORT),
        (
            Before::Aborted,
            ExitStatus::Exited(1),
            Status::PROC_REQUESTED_ABORT,
        ),
    ];
    for (before, status, expected) in cases {
        let mut world = World::new(&[("a", 2), ("b", 1)]);
        let (watcher, other) = (world.connect("a", 0), world.connect("b", 0));
        let codes = [
            Status::EVENT_PROC_TERMINATED,
            Status::EXIT_NONZERO_TERM,
            Status::PROC_ABORTED_BY_SIG,
            Status::PROC_TERM_WO_SYNC,
            Status::PROC_REQUESTED_ABORT,
        ];
        world.register(watcher, &codes);
        world.register(other, &codes);
        match before {
            Before::Never => {}
            Before::Connected => {
                world.connect("a", 1);
            }
            Before::Finalized => {
                let conn = world.connect("a", 1);
                world.finalize(conn);
            }
            Before::Aborted => {
                let conn = world.connect("a", 1);
                world.send(
                    conn,
                    &Request::Abort {
                        status: Status(1),
                        message: None,
                        procs: Vec::new(),
                    },
                );
            }
        }
        world.end("a", 1, status);
        world.end("a", 1, status);
        let pushes = world.pushes(watcher);
        let [Push::Event { status, infos, .. }] = pushes.as_slice() else {
            panic!("{before:?}: {pushes:?}");
        };
        assert_eq!(*status, expected, "{before:?}");
        assert!(infos.contains(&about(proc("a", 1))));
        assert_eq!(world.codes(other), [], "it is of another job");
        world.assert_no_state_left();
    }
}

/// Libraries register for the old code when they construct a group by invitation, and cannot handle it while they finalize.
/// Therefore it is not sent for a normal end.
#[test]
fn the_code_of_old_is_for_ends_that_are_not_as_they_should_be() {
    for (status, expected) in [
        (ExitStatus::SUCCESS, vec![]),
        (ExitStatus::Exited(1), vec![Status::PROC_TERMINATED]),
        (KILLED, vec![Status::PROC_TERMINATED]),
    ] {
        let (mut world, conns) = World::of(2);
        world.register(conns[0], &[Status::PROC_TERMINATED]);
        world.finalize(conns[1]);
        world.end("a", 1, status);
        assert_eq!(world.codes(conns[0]), expected, "{status:?}");
        world.assert_no_state_left();
    }
}

#[test]
fn an_end_that_the_host_brings_is_no_news() {
    let (mut world, conns) = World::of(3);
    world.register(conns[0], &[Status::PROC_ABORTED_BY_SIG]);
    world.end("a", 1, KILLED);
    assert_eq!(world.codes(conns[0]), [Status::PROC_ABORTED_BY_SIG]);
    world.handle(Input::Ending(nspace("a")));
    world.end("a", 2, KILLED);
    assert_eq!(world.codes(conns[0]), []);
    world.assert_no_state_left();
}

#[test]
fn a_death_is_told_later_and_an_end_is_not() {
    let (mut world, conns) = World::of(3);
    let codes = [Status::PROC_ABORTED_BY_SIG, Status::EVENT_PROC_TERMINATED];
    world.end("a", 1, KILLED);
    world.finalize(conns[2]);
    world.end("a", 2, ExitStatus::SUCCESS);
    world.register(conns[0], &codes);
    assert_eq!(world.codes(conns[0]), [Status::PROC_ABORTED_BY_SIG]);
    world.assert_no_state_left();
}

#[test]
fn parents_and_those_who_have_connected_are_told() {
    let mut world = World::new(&[("parent", 1), ("stranger", 1)]);
    let mut child = job("child", 2);
    child.parent = Some(proc("parent", 0));
    world.handle(Input::Register(Box::new(child)));
    let conns = [
        world.connect("parent", 0),
        world.connect("stranger", 0),
        world.connect("child", 0),
        world.connect("child", 1),
    ];
    for conn in conns {
        world.register(
            conn,
            &[Status::EXIT_NONZERO_TERM, Status::PROC_TERM_WO_SYNC],
        );
    }
    let together = |disconnect| {
        let procs = vec![proc("stranger", 0), proc("child", 0)];
        let infos = Vec::new();
        match disconnect {
            true => Request::Disconnect { procs, infos },
            false => Request::Connect {
                procs,
                infos,
                data: Vec::new(),
            },
        }
    };
    world.send(conns[1], &together(false));
    assert_eq!(world.status_of(conns[2], &together(false)), Status::SUCCESS);
    // It exits non-zero after its finalize, and without disconnecting.
    world.finalize(conns[2]);
    world.end("child", 0, ExitStatus::Exited(3));
    assert_eq!(world.codes(conns[0]), [Status::EXIT_NONZERO_TERM]);
    assert_eq!(world.codes(conns[1]), [Status::PROC_TERM_WO_SYNC]);
    assert_eq!(world.codes(conns[3]), [Status::EXIT_NONZERO_TERM]);
    // The other process was never connected with the stranger.
    world.finalize(conns[3]);
    world.end("child", 1, ExitStatus::Exited(3));
    assert_eq!(world.codes(conns[1]), []);
    world.assert_no_state_left();
}
