//! Output from other processes, and input to them.

use bytes::Bytes;
use pmix::{
    keys,
    message::{Answer, Push, Request},
    server::{Conn, Input, MAX_SUBSCRIPTION_PROCS, MAX_SUBSCRIPTIONS, Ticket},
    value::{IofChannels, Proc, Status},
};

use crate::world::{V3, World, all, flag, job, nspace, proc};

const OUT: IofChannels = IofChannels(2);
const ERR: IofChannels = IofChannels(4);
const BOTH: IofChannels = IofChannels(6);
const NONE: IofChannels = IofChannels(0);

fn pull(procs: Vec<Proc>, channels: IofChannels, id: u64) -> Request {
    Request::IofPull {
        procs,
        infos: Vec::new(),
        channels,
        id,
    }
}

fn number(answer: Answer) -> u64 {
    match answer {
        Answer::Number { status, number } => {
            assert_eq!(status, Status::SUCCESS);
            number
        }
        other => panic!("{other:?} is no number"),
    }
}

fn output(world: &mut World, of: Proc, channels: IofChannels, bytes: &'static [u8]) {
    world.handle(Input::Output {
        proc: of,
        channels,
        bytes: Bytes::from_static(bytes),
    });
}

/// Returns the output that a connection got: source, number, bytes.
fn got(world: &mut World, conn: Conn) -> Vec<(Proc, u64, Bytes)> {
    let pushes = world.pushes(conn).into_iter();
    pushes
        .map(|push| match push {
            Push::Output {
                source, id, bytes, ..
            } => (source, id, bytes),
            other => panic!("{other:?} is no output"),
        })
        .collect()
}

#[test]
fn output_goes_to_whoever_wants_it() {
    let mut world = World::new(&[("a", 3), ("b", 1)]);
    let conns = [
        world.connect("a", 0),
        world.connect_as("a", 1, V3),
        world.connect("b", 0),
    ];
    let first = number(world.ask(conns[0], &pull(vec![proc("a", 1)], OUT, 7)));
    assert_eq!(world.wanted, [(nspace("a"), OUT)]);
    number(world.ask(conns[1], &pull(vec![all("a")], BOTH, 8)));
    assert_eq!(world.wanted[1..], [(nspace("a"), BOTH)]);
    number(world.ask(conns[2], &pull(vec![all("a")], ERR, 0)));
    assert_eq!(world.wanted.len(), 2, "nothing new");

    output(&mut world, proc("a", 1), OUT, b"out");
    output(&mut world, proc("a", 2), ERR, b"err");
    output(&mut world, proc("b", 0), BOTH, b"of nobody's interest");
    // The end of a stream.
    output(&mut world, proc("a", 1), OUT, b"");
    assert_eq!(
        got(&mut world, conns[0]),
        [
            (proc("a", 1), 7, Bytes::from_static(b"out")),
            (proc("a", 1), 7, Bytes::new())
        ]
    );
    // A process does not get its own output.
    assert_eq!(
        got(&mut world, conns[1]),
        [(proc("a", 2), 8, Bytes::from_static(b"err"))]
    );
    assert_eq!(
        got(&mut world, conns[2]),
        [(proc("a", 2), 0, Bytes::from_static(b"err"))]
    );

    // Only the client that made a request for output can stop it.
    let stop = |id| Request::IofDeregister {
        infos: Vec::new(),
        id,
    };
    assert_eq!(world.status_of(conns[1], &stop(first)), Status::NOT_FOUND);
    assert_eq!(world.status_of(conns[0], &stop(first)), Status::SUCCESS);
    assert_eq!(world.status_of(conns[0], &stop(first)), Status::NOT_FOUND);
    output(&mut world, proc("a", 1), OUT, b"out");
    assert_eq!(got(&mut world, conns[0]), []);
    // A client that finalizes needs no output.
    world.wanted.clear();
    world.finalize(conns[1]);
    assert_eq!(world.wanted, [(nspace("a"), ERR)]);
    world.close(conns[2]);
    assert_eq!(world.wanted[1..], [(nspace("a"), NONE)]);
    world.assert_no_state_left();
}

#[test]
fn a_job_that_is_over_is_not_fed() {
    let mut world = World::new(&[("a", 1), ("b", 1)]);
    let conn = world.connect("a", 0);
    number(world.ask(conn, &pull(vec![all("b"), all("a")], OUT, 1)));
    world.wanted.clear();
    world.handle(Input::Deregister(nspace("b")));
    assert_eq!(world.wanted, []);
    let again = number(world.ask(conn, &pull(vec![all("a")], OUT, 2)));
    assert_eq!(again, 1);
    assert_eq!(world.wanted, []);
    world.assert_no_state_left();
}

#[test]
fn who_spawns_gets_output_from_the_beginning() {
    let (mut world, conns) = World::of(1);
    let mut child = job("child", 1);
    child.forward = Some((proc("a", 0), BOTH));
    world.handle(Input::Register(Box::new(child)));
    assert_eq!(world.wanted, [(nspace("child"), BOTH)]);
    output(&mut world, proc("child", 0), OUT, b"hello");
    assert_eq!(
        got(&mut world, conns[0]),
        [(proc("child", 0), 0, Bytes::from_static(b"hello"))]
    );
    // The receiver of another job's output does not exist.
    let mut orphan = job("orphan", 1);
    orphan.forward = Some((proc("nobody", 0), BOTH));
    world.handle(Input::Register(Box::new(orphan)));
    assert_eq!(world.wanted.len(), 1);
    world.assert_no_state_left();
}

#[test]
fn requests_for_output_are_bounded() {
    let (mut world, conns) = World::of(1);
    assert_eq!(
        world.status_of(conns[0], &pull(Vec::new(), OUT, 1)),
        Status::BAD_PARAM
    );
    let many = (0..=MAX_SUBSCRIPTION_PROCS).map(|rank| proc("a", u32::try_from(rank).unwrap()));
    let many = pull(many.collect(), OUT, 1);
    assert_eq!(world.status_of(conns[0], &many), Status::BAD_PARAM);
    let one = pull(vec![all("a")], OUT, 1);
    for _ in 0..MAX_SUBSCRIPTIONS {
        assert_eq!(world.status_of(conns[0], &one), Status::SUCCESS);
    }
    assert_eq!(world.status_of(conns[0], &one), Status::OUT_OF_RESOURCE);
    world.assert_no_state_left();
}

#[test]
fn input_is_taken_by_the_host() {
    let (mut world, conns) = World::of(1);
    let push = |bytes: Option<&'static [u8]>, infos| Request::IofPush {
        procs: vec![all("a")],
        infos,
        bytes: bytes.map(Bytes::from_static),
    };
    let cases = [
        (push(Some(b"text"), Vec::new()), &b"text"[..], false),
        (
            push(Some(b"last"), vec![flag(keys::IOF_COMPLETE)]),
            b"last",
            true,
        ),
        (push(Some(b""), Vec::new()), b"", true),
        (push(None, Vec::new()), b"", true),
        (push(None, vec![flag(keys::IOF_COMPLETE)]), b"", true),
    ];
    for (request, bytes, is_last) in cases {
        let tag = world.send(conns[0], &request);
        let (ticket, to, got, last): (Ticket, _, _, _) = world.stdin.pop().unwrap();
        assert_eq!((to, &got[..], last), (vec![all("a")], bytes, is_last));
        // The answer comes when there is room for more.
        assert_eq!(world.answer(conns[0], tag), None);
        let answer = Answer::Status(Status::SUCCESS);
        world.handle(Input::Answer { ticket, answer });
        assert_eq!(world.status(conns[0], tag), Some(Status::SUCCESS));
    }
    world.assert_no_state_left();
}
