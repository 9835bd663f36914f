//! Every command in every state of a connection.

use std::time::Duration;

use base::ExitStatus;
use bytes::Bytes;
use pmix::{
    codec::Format,
    handshake::{ConnectorKind, Owner},
    keys,
    message::{Answer, Command, Request, Shape},
    server::{Conn, Input, MISSING_KEY_DELAY, PeerOwner, Refusal},
    value::{AllocDirective, App, IofChannels, Query, Range, Scope, Status, Value},
};

use crate::world::{
    DESCRIBED, Tongue, UID, V3, V5, V6, V42, World, all, commit, hello, info, key, nspace, proc,
    text,
};

const TONGUES: [Tongue; 5] = [V3, V42, V5, V6, DESCRIBED];

/// Returns a request of each command, from the only rank of job `a`.
#[expect(clippy::too_many_lines, reason = "a table of requests")]
fn samples(format: Format) -> Vec<Request> {
    let me = vec![proc("a", 0)];
    let infos = Vec::new;
    let opaque = |command| Request::Opaque {
        command,
        payload: Bytes::new(),
    };
    vec![
        Request::JobInfo,
        Request::Abort {
            status: Status(7),
            message: text("why"),
            procs: Vec::new(),
        },
        commit(format, Scope::GLOBAL, &[("key", 1)]),
        Request::Fence {
            procs: me.clone(),
            infos: infos(),
        },
        Request::Get {
            nspace: nspace("a"),
            rank: pmix::value::PmixRank(0),
            infos: infos(),
            key: Some(key("another key")),
        },
        Request::Publish {
            uid: UID,
            infos: vec![info(c"name", Value::Uint32(1))],
        },
        Request::Lookup {
            uid: UID,
            keys: vec![key("name")],
            infos: infos(),
        },
        Request::Unpublish {
            uid: UID,
            keys: vec![key("name")],
            infos: infos(),
        },
        Request::Spawn {
            infos: infos(),
            apps: vec![App {
                command: text("program"),
                maxprocs: 1,
                ..App::default()
            }],
        },
        Request::Connect {
            procs: me.clone(),
            infos: infos(),
            data: Vec::new(),
        },
        Request::Disconnect {
            procs: me.clone(),
            infos: infos(),
        },
        Request::Notify {
            status: Status(-3000),
            range: Range::NAMESPACE,
            infos: infos(),
        },
        Request::Register {
            codes: vec![Status(-3000)],
            infos: infos(),
        },
        Request::Deregister {
            codes: vec![Status(-3000)],
        },
        Request::Query {
            queries: vec![Query {
                keys: vec![text("pmix.qry.ns")],
                qualifiers: Vec::new(),
            }],
        },
        Request::Log {
            time: 1,
            data: vec![info(keys::LOG_STDERR, Value::text("text"))],
            directives: infos(),
        },
        Request::Allocate {
            directive: AllocDirective::NEW,
            infos: infos(),
        },
        Request::JobControl {
            targets: Vec::new(),
            infos: infos(),
        },
        Request::Monitor {
            monitor: info(keys::MONITOR_HEARTBEAT, Value::Bool(true)),
            error: Status::SUCCESS,
            infos: vec![info(keys::MONITOR_HEARTBEAT_TIME, Value::Uint32(1))],
        },
        Request::GetCredential { infos: infos() },
        Request::ValidateCredential {
            credential: Bytes::from_static(b"none"),
            infos: infos(),
        },
        Request::IofPull {
            procs: vec![all("a")],
            infos: infos(),
            channels: IofChannels(2),
            id: 5,
        },
        Request::IofPush {
            procs: me.clone(),
            infos: infos(),
            bytes: Some(Bytes::from_static(b"input")),
        },
        Request::IofDeregister {
            infos: infos(),
            id: 0,
        },
        Request::GroupConstruct {
            group: text("group"),
            procs: me.clone(),
            infos: infos(),
        },
        Request::GroupLeave {
            group: text("group"),
            infos: infos(),
        },
        Request::GroupDestruct {
            group: text("group"),
            procs: Some(me),
            infos: infos(),
        },
        Request::FabricRegister { infos: infos() },
        Request::FabricUpdate { index: 1 },
        Request::RefreshCache {
            nspace: nspace("a"),
            rank: pmix::value::PmixRank(0),
        },
        Request::SessionControl {
            session: 1,
            infos: infos(),
        },
        Request::ResolvePeers {
            node: None,
            nspace: text("a"),
        },
        Request::ResolveNode { nspace: text("a") },
        opaque(Command::GroupJoin),
        opaque(Command::GroupInvite),
        opaque(Command::DeviceDistances),
        opaque(Command::ResourceBlock),
        opaque(Command::SystemInfo),
        Request::Finalize,
    ]
}

#[test]
fn there_is_a_sample_of_every_command() {
    let mut numbers: Vec<u8> = samples(Format::V4)
        .iter()
        .map(|request| request.command().number())
        .collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..39).collect::<Vec<_>>());
}

/// Answers all requests to the host, all but input with a refusal, then lets time pass until every wait with a time limit has
/// ended.
fn settle(world: &mut World) {
    for ask in std::mem::take(&mut world.asks) {
        let answer = Answer::Status(Status::NOT_SUPPORTED);
        let ticket = ask.ticket;
        world.handle(Input::Answer { ticket, answer });
    }
    for (ticket, ..) in std::mem::take(&mut world.stdin) {
        let answer = Answer::Status(Status::SUCCESS);
        world.handle(Input::Answer { ticket, answer });
    }
    world.pass(MISSING_KEY_DELAY);
}

#[test]
fn every_command_is_answered_in_every_tongue() {
    for tongue in TONGUES {
        let mut world = World::new(&[("a", 1)]);
        let conn = world.connect_as("a", 0, tongue);
        for request in samples(world.format(conn)) {
            world.send(conn, &request);
            settle(&mut world);
            assert!(world.unanswered(conn).is_empty(), "{request:?}");
            assert!(world.is_open(conn), "{request:?}");
        }
        world.assert_no_state_left();
    }
}

#[test]
fn who_has_finalized_is_told_so() {
    for request in samples(Format::V4) {
        let (mut world, conns) = World::of(1);
        assert_eq!(
            world.status_of(conns[0], &Request::Finalize),
            Status::SUCCESS
        );
        // A second finalize is answered too: a client that has lost its state may wait for the answer.
        let tag = world.send(conns[0], &Request::Finalize);
        assert_eq!(world.status(conns[0], tag), Some(Status::INIT));
        match request.command() {
            // A status cannot answer a request for job info, and a deregistration has no answer.
            Command::JobInfo => assert_eq!(
                world.ask(conns[0], &request),
                Answer::JobInfo {
                    nspace: nspace(""),
                    facts: Vec::new()
                }
            ),
            Command::Deregister => {
                world.send(conns[0], &request);
            }
            _ => assert_eq!(
                world.status_of(conns[0], &request),
                Status::INIT,
                "{request:?}"
            ),
        }
        assert!(world.asks.is_empty() && world.events.is_empty());
        world.assert_no_state_left();
    }
}

#[test]
fn whoever_says_something_before_the_handshake_is_closed() {
    for request in samples(Format::V4) {
        let mut world = World::new(&[("a", 1)]);
        let stranger = world.accept(PeerOwner::Uid(UID));
        let bytes = world.message(stranger, &request);
        world.bytes(stranger, &bytes);
        assert!(!world.is_open(stranger), "{request:?}");
        assert_eq!(world.refusals.len(), 1);
        assert!(world.asks.is_empty() && world.events.is_empty());
        world.assert_no_state_left();
    }
}

#[test]
fn a_job_that_is_over_does_not_confuse_its_processes() {
    for request in samples(Format::V4) {
        let (mut world, conns) = World::of(1);
        world.handle(Input::Deregister(nspace("a")));
        world.send(conns[0], &request);
        settle(&mut world);
        assert!(world.unanswered(conns[0]).is_empty(), "{request:?}");
        world.assert_no_state_left();
    }
}

#[test]
fn a_process_that_has_ended_may_still_be_heard() {
    // The end of a process and the end of its connection may come in either order.
    for request in samples(Format::V4) {
        let (mut world, conns) = World::of(1);
        world.end("a", 0, ExitStatus::SUCCESS);
        world.send(conns[0], &request);
        settle(&mut world);
        assert!(world.unanswered(conns[0]).is_empty(), "{request:?}");
        world.assert_no_state_left();
    }
}

/// Accepted and refused connectors.
#[test]
fn admission() {
    type Change = fn(&mut pmix::handshake::Hello);
    let tool = |hello: &mut pmix::handshake::Hello, kind| {
        hello.kind = kind;
        hello.owner = Some(Owner { uid: UID, gid: UID });
    };
    let cases: [(&str, PeerOwner, Change, bool); 12] = [
        ("as it should be", PeerOwner::Uid(UID), |_| {}, true),
        ("another user", PeerOwner::Uid(UID + 1), |_| {}, false),
        ("root is another user too", PeerOwner::Uid(0), |_| {}, false),
        ("nobody knows", PeerOwner::Unknown, |_| {}, false),
        (
            "a rank that there is not",
            PeerOwner::Uid(UID),
            |hello| hello.proc = Some(proc("a", 1)),
            false,
        ),
        (
            "a job that there is not",
            PeerOwner::Uid(UID),
            |hello| hello.proc = Some(proc("b", 0)),
            false,
        ),
        (
            "all ranks at once",
            PeerOwner::Uid(UID),
            |hello| hello.proc = Some(all("a")),
            false,
        ),
        (
            "munge",
            PeerOwner::Uid(UID),
            |hello| hello.security = c"munge".to_owned(),
            false,
        ),
        (
            "shared memory",
            PeerOwner::Uid(UID),
            |hello| hello.store = c"shmem2".to_owned(),
            false,
        ),
        (
            "a codec of the past",
            PeerOwner::Uid(UID),
            |hello| hello.codec = c"v20".to_owned(),
            false,
        ),
        (
            "a codec of the future",
            PeerOwner::Uid(UID),
            |hello| hello.codec = c"v99".to_owned(),
            false,
        ),
        (
            "no credential",
            PeerOwner::Uid(UID),
            |hello| hello.security = c"none".to_owned(),
            true,
        ),
    ];
    for (what, owner, change, welcome) in cases {
        let mut world = World::new(&[("a", 1)]);
        let mut hello = hello("a", 0, V5);
        change(&mut hello);
        let conn = world.accept(owner);
        if world.is_open(conn) {
            world.hello(conn, &hello);
        }
        assert_eq!(world.is_open(conn), welcome, "{what}");
        assert_eq!(world.refusals.is_empty(), welcome, "{what}");
        world.assert_no_state_left();
    }
    // A rank may connect as a tool. Other tools are not supported yet.
    for (kind, welcome) in [
        (ConnectorKind::ClientTool, true),
        (ConnectorKind::ClientLauncher, true),
        (ConnectorKind::NamedTool, false),
        (ConnectorKind::Tool, false),
        (ConnectorKind::Scheduler, false),
    ] {
        let mut world = World::new(&[("a", 1)]);
        let mut hello = hello("a", 0, V5);
        tool(&mut hello, kind);
        if kind == ConnectorKind::Tool {
            hello.proc = None;
        }
        let conn = world.accept(PeerOwner::Uid(UID));
        world.hello(conn, &hello);
        assert_eq!(world.is_open(conn), welcome, "{kind:?}");
        if !welcome {
            assert_eq!(world.refusals, [Refusal::Tool]);
        }
        world.assert_no_state_left();
    }
}

#[test]
fn an_unknown_command_is_refused_and_the_connection_lives() {
    let (mut world, conns) = World::of(1);
    let conn = conns[0];
    for number in 39..=255_u8 {
        let mut bytes = pmix::frame::start(0);
        bytes.extend_from_slice(&[2, number]);
        let tag = 1000 + u32::from(number);
        world.expect_answer(conn, tag, Command::Fence);
        world.bytes(
            conn,
            &pmix::frame::finish(bytes, pmix::frame::Tag::Request(tag)),
        );
        assert_eq!(world.status(conn, tag), Some(Status::NOT_SUPPORTED));
    }
    world.assert_no_state_left();
}

#[test]
fn a_rank_comes_and_goes_and_comes_again() {
    let (mut world, conns) = World::of(2);
    for round in 0..3 {
        world.put(conns[1], &[("round", round)]);
        let conn = world.connect("a", 0);
        world.put(conn, &[("mine", round)]);
        world.finalize(conn);
    }
    // The values that it put are still there.
    let answer = world.ask(
        conns[1],
        &crate::world::get(&proc("a", 0), "mine", Vec::new()),
    );
    let values = crate::world::values_of(Format::V4, &answer, &proc("a", 0));
    assert_eq!(values["mine"], Value::Uint32(2));
    world.assert_no_state_left();
}

#[test]
fn a_connection_that_breaks_is_waited_for() {
    let (mut world, conns) = World::of(2);
    world.close(conns[1]);
    assert_eq!(world.lost, []);
    // It reconnects in time.
    let again = world.connect("a", 1);
    world.pass(Duration::from_secs(5));
    assert_eq!(world.lost, []);
    // A process that does not reconnect is lost.
    world.close(again);
    world.pass(Duration::from_secs(5));
    assert_eq!(world.lost, [proc("a", 1)]);
    world.assert_no_state_left();
}

#[test]
fn a_fork_is_another_connection_of_the_same_process() {
    let (mut world, conns) = World::of(2);
    let child = world.connect("a", 1);
    world.close(conns[1]);
    world.pass(Duration::from_secs(5));
    assert_eq!(world.lost, [], "its child is there");
    world.close(child);
    world.pass(Duration::from_secs(5));
    assert_eq!(world.lost, [proc("a", 1)]);
    world.assert_no_state_left();
}

#[test]
fn a_tag_that_waits_cannot_be_used_again() {
    let (mut world, conns) = World::of(2);
    let conn: Conn = conns[0];
    let tag = world.send(conn, &crate::world::fence(&[all("a")]));
    let mut bytes = pmix::frame::start(0);
    bytes.extend_from_slice(&[2, 0]);
    world.bytes(
        conn,
        &pmix::frame::finish(bytes, pmix::frame::Tag::Request(tag)),
    );
    assert!(!world.is_open(conn));
    world.assert_no_state_left();
}

#[test]
fn messages_that_are_not_for_servers_close_the_connection() {
    // Tags of events, of output, and unknown ones.
    for tag in [0, 2, 3, 99, u32::MAX] {
        let (mut world, conns) = World::of(1);
        let mut bytes = pmix::frame::start(0);
        bytes.extend_from_slice(&[2, 0]);
        let mut message = pmix::frame::finish(bytes, pmix::frame::Tag::Event);
        message[4..8].copy_from_slice(&tag.to_be_bytes());
        world.bytes(conns[0], &message);
        assert!(!world.is_open(conns[0]), "{tag}");
        world.assert_no_state_left();
    }
}

#[test]
fn a_heartbeat_has_no_answer() {
    let (mut world, conns) = World::of(1);
    let bytes = pmix::frame::finish(pmix::frame::start(0), pmix::frame::Tag::Heartbeat);
    world.bytes(conns[0], &bytes);
    assert!(world.is_open(conns[0]));
    assert!(world.answers(conns[0]).is_empty());
    assert_eq!(
        Shape::of(Command::Deregister, pmix::message::GroupForm::Members),
        Shape::Nothing
    );
    world.assert_no_state_left();
}
