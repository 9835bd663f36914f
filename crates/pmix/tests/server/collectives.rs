//! Fences and other collectives: the answers when all participants call, when one does not, and when one dies.

use std::time::Duration;

use base::ExitStatus;
use pmix::{
    codec::Format,
    keys,
    message::{Answer, Facts, Request},
    server::{Conn, Input, LOST_DELAY},
    value::{Nspace, Proc, Status, Value},
};

use crate::world::{
    KILLED, V3, V5, V6, V42, World, all, fence, flag, info, nspace, proc, seconds, text,
};

/// Returns a request of each collective, over these processes.
fn kinds(procs: &[Proc]) -> [(&'static str, Request); 5] {
    let procs = procs.to_vec();
    [
        ("fence", fence(&procs)),
        (
            "connect",
            Request::Connect {
                procs: procs.clone(),
                infos: Vec::new(),
                data: Vec::new(),
            },
        ),
        (
            "disconnect",
            Request::Disconnect {
                procs: procs.clone(),
                infos: Vec::new(),
            },
        ),
        (
            "construct",
            Request::GroupConstruct {
                group: text("group"),
                procs: procs.clone(),
                infos: Vec::new(),
            },
        ),
        (
            "destruct",
            Request::GroupDestruct {
                group: text("group"),
                procs: Some(procs),
                infos: Vec::new(),
            },
        ),
    ]
}

/// Sends the same request on all connections and returns the status of each answer; `None` without an answer.
fn everybody(world: &mut World, conns: &[Conn], request: &Request) -> Vec<Option<Status>> {
    let tags: Vec<u32> = conns
        .iter()
        .map(|conn| world.send(*conn, request))
        .collect();
    conns
        .iter()
        .zip(tags)
        .map(|(conn, tag)| world.status(*conn, tag))
        .collect()
}

#[test]
fn all_come() {
    let (mut world, conns) = World::of(4);
    for (kind, request) in kinds(&[all("a")]) {
        for last in 0..4 {
            let order: Vec<Conn> = (0..4).map(|i| conns[(last + 1 + i) % 4]).collect();
            let tags: Vec<u32> = order[..3]
                .iter()
                .map(|conn| world.send(*conn, &request))
                .collect();
            for (conn, tag) in order.iter().zip(&tags) {
                assert_eq!(world.answer(*conn, *tag), None, "{kind}");
            }
            assert_eq!(
                world.status_of(order[3], &request),
                Status::SUCCESS,
                "{kind}"
            );
            for (conn, tag) in order.iter().zip(tags) {
                assert_eq!(world.status(*conn, tag), Some(Status::SUCCESS), "{kind}");
            }
        }
    }
    world.assert_no_state_left();
}

/// Calls with invalid participants, and their immediate answers.
#[test]
fn wrong_members() {
    let cases: [(&str, Vec<Proc>, Status); 5] = [
        ("not itself", vec![proc("a", 1)], Status::BAD_PARAM),
        ("nobody", Vec::new(), Status::BAD_PARAM),
        (
            "a rank that there is not",
            vec![proc("a", 0), proc("a", 7)],
            Status::BAD_PARAM,
        ),
        (
            "a job that there is not",
            vec![proc("a", 0), proc("x", 0)],
            Status::NOT_FOUND,
        ),
        ("all of such a job", vec![all("x")], Status::NOT_FOUND),
    ];
    for (what, procs, status) in cases {
        for (kind, request) in kinds(&procs) {
            // A construct without members waits for a process that names the caller, and a destruct of an unknown group has no
            // members.
            if procs.is_empty() && matches!(kind, "construct" | "destruct") {
                continue;
            }
            let (mut world, conns) = World::of(2);
            assert_eq!(
                world.status_of(conns[0], &request),
                status,
                "{kind}: {what}"
            );
            world.assert_no_state_left();
        }
    }
}

/// A participant is lost while others wait: answers to earlier and to later calls.
#[test]
fn a_member_is_lost() {
    type Loss = fn(&mut World, Conn);
    let losses: [(&str, Loss); 4] = [
        ("killed", |world, conn| {
            world.end("a", 3, KILLED);
            world.close(conn);
        }),
        ("exits", |world, conn| {
            world.close(conn);
            world.end("a", 3, ExitStatus::SUCCESS);
        }),
        ("finalizes and exits", |world, conn| {
            world.finalize(conn);
            world.end("a", 3, ExitStatus::SUCCESS);
        }),
        ("closes", |world, conn| {
            world.close(conn);
            world.pass(LOST_DELAY);
        }),
    ];
    for (how, lose) in losses {
        for (kind, request) in kinds(&[all("a")]) {
            let (mut world, conns) = World::of(4);
            let waits = [
                world.send(conns[0], &request),
                world.send(conns[1], &request),
            ];
            lose(&mut world, conns[3]);
            let expected = if kind == "destruct" {
                // The destruct completes without the dead member.
                assert_eq!(
                    world.status_of(conns[2], &request),
                    Status::SUCCESS,
                    "{how}"
                );
                Status::SUCCESS
            } else {
                // A later call fails immediately.
                let late = world.status_of(conns[2], &request);
                assert_eq!(late, Status::LOST_CONNECTION, "{kind}: {how}");
                Status::LOST_CONNECTION
            };
            for (conn, tag) in conns.iter().zip(waits) {
                let status = world.status(*conn, tag);
                assert_eq!(status, Some(expected), "{kind}: {how}");
            }
            // The survivors can continue without it.
            let living = [proc("a", 0), proc("a", 1), proc("a", 2)];
            let after = everybody(&mut world, &conns[..3], &fence(&living));
            assert_eq!(after, [Some(Status::SUCCESS); 3], "{kind}: {how}");
            world.assert_no_state_left();
        }
    }
}

#[test]
fn a_member_that_waits_is_lost() {
    for (kind, request) in kinds(&[all("a")]) {
        let (mut world, conns) = World::of(3);
        let waits = world.send(conns[0], &request);
        world.send(conns[2], &request);
        world.close(conns[2]);
        world.end("a", 2, KILLED);
        let last = world.send(conns[1], &request);
        // It had called the fence before it died. But a group or connection cannot include a dead process.
        let expected = match kind {
            "connect" | "construct" => Status::LOST_CONNECTION,
            _ => Status::SUCCESS,
        };
        assert_eq!(world.status(conns[0], waits), Some(expected), "{kind}");
        assert_eq!(world.status(conns[1], last), Some(expected), "{kind}");
        world.assert_no_state_left();
    }
}

#[test]
fn a_member_comes_back_in_time() {
    let (mut world, conns) = World::of(2);
    let request = fence(&[all("a")]);
    let tag = world.send(conns[0], &request);
    world.close(conns[1]);
    world.pass(LOST_DELAY / 2);
    let again = world.connect("a", 1);
    assert_eq!(world.status_of(again, &request), Status::SUCCESS);
    assert_eq!(world.status(conns[0], tag), Some(Status::SUCCESS));
    world.assert_no_state_left();
}

#[test]
fn everybody_who_waits_is_lost() {
    // All callers are gone, and no state remains.
    for (_, request) in kinds(&[all("a")]) {
        let (mut world, conns) = World::of(3);
        for conn in &conns[..2] {
            world.send(*conn, &request);
            world.close(*conn);
        }
        world.pass(LOST_DELAY);
        world.assert_no_state_left();
    }
}

#[test]
fn the_whole_job_ends() {
    for (kind, request) in kinds(&[all("a"), proc("b", 0)]) {
        let mut world = World::new(&[("a", 2), ("b", 1)]);
        let (first, other) = (world.connect("a", 0), world.connect("b", 0));
        let tags = [world.send(first, &request), world.send(other, &request)];
        world.handle(Input::Deregister(nspace("a")));
        let expected = Some(Status::LOST_CONNECTION);
        assert_eq!(world.status(other, tags[1]), expected, "{kind}");
        assert_eq!(world.status(first, tags[0]), expected, "{kind}");
        world.assert_no_state_left();
    }
}

#[test]
fn a_time_out_ends_it_for_all() {
    for (kind, request) in kinds(&[all("a")]) {
        let (mut world, conns) = World::of(4);
        let with = |request: &Request, timeout: i32| {
            let mut request = request.clone();
            match &mut request {
                Request::Fence { infos, .. }
                | Request::Connect { infos, .. }
                | Request::Disconnect { infos, .. }
                | Request::GroupConstruct { infos, .. }
                | Request::GroupDestruct { infos, .. } => infos.push(seconds(timeout)),
                _ => unreachable!(),
            }
            request
        };
        // A time-out of 0 means none, and the shortest one counts.
        let tags: Vec<u32> = conns
            .iter()
            .zip([0, 3, 5])
            .map(|(conn, timeout)| world.send(*conn, &with(&request, timeout)))
            .collect();
        world.pass(Duration::from_millis(2999));
        assert_eq!(world.answer(conns[0], tags[0]), None, "{kind}");
        world.pass(Duration::from_millis(1));
        for (conn, tag) in conns.iter().zip(tags) {
            assert_eq!(world.status(*conn, tag), Some(Status::TIMEOUT), "{kind}");
        }
        // The next collective is a new one.
        let after = everybody(&mut world, &conns, &request);
        assert_eq!(after[3], Some(Status::SUCCESS), "{kind}");
        world.assert_no_state_left();
    }
}

#[test]
fn several_are_in_flight() {
    let (mut world, conns) = World::of(3);
    let request = fence(&[all("a")]);
    // Ranks 0 and 1 are two rounds ahead.
    let ahead: Vec<(Conn, u32)> = (0..3)
        .flat_map(|_| [conns[0], conns[1]])
        .map(|conn| (conn, world.send(conn, &request)))
        .collect();
    for round in 0..3 {
        assert_eq!(world.status_of(conns[2], &request), Status::SUCCESS);
        for (at, (conn, tag)) in ahead.iter().enumerate() {
            let status = world.status(*conn, *tag);
            let expected = (at / 2 == round).then_some(Status::SUCCESS);
            assert_eq!(status, expected, "round {round}, request {at}");
        }
    }
    world.assert_no_state_left();
}

#[test]
fn different_sets_do_not_meet() {
    let (mut world, conns) = World::of(3);
    let pair = |a, b| fence(&[proc("a", a), proc("a", b)]);
    let waits = [
        world.send(conns[0], &pair(0, 1)),
        world.send(conns[0], &pair(0, 2)),
        world.send(conns[1], &fence(&[all("a")])),
    ];
    // The order of the participants is irrelevant, and so are repetitions.
    let twice = fence(&[proc("a", 2), proc("a", 0), proc("a", 2)]);
    assert_eq!(world.status_of(conns[2], &twice), Status::SUCCESS);
    assert_eq!(world.status(conns[0], waits[1]), Some(Status::SUCCESS));
    assert_eq!(world.answer(conns[0], waits[0]), None);
    assert_eq!(world.status_of(conns[1], &pair(1, 0)), Status::SUCCESS);
    assert_eq!(world.status(conns[0], waits[0]), Some(Status::SUCCESS));
    assert_eq!(world.answer(conns[1], waits[2]), None);
    world.assert_no_state_left();
}

#[test]
fn they_must_agree_about_data() {
    let (mut world, conns) = World::of(2);
    let with = |collect: bool| Request::Fence {
        procs: vec![all("a")],
        infos: vec![info(keys::COLLECT_DATA, Value::Bool(collect))],
    };
    for (one, other, expected) in [
        (true, true, Status::SUCCESS),
        (false, false, Status::SUCCESS),
        (true, false, Status::INVALID_ARG),
        (false, true, Status::INVALID_ARG),
    ] {
        let tag = world.send(conns[0], &with(one));
        assert_eq!(world.status_of(conns[1], &with(other)), expected);
        assert_eq!(world.status(conns[0], tag), Some(expected));
    }
    world.assert_no_state_left();
}

#[test]
fn who_connects_is_told_about_the_jobs_of_the_others() {
    let mut world = World::new(&[("a", 1), ("b", 1), ("c", 1)]);
    let conns = [
        world.connect_as("a", 0, V3),
        world.connect_as("b", 0, V5),
        world.connect_as("c", 0, V6),
    ];
    let request = Request::Connect {
        procs: vec![all("a"), proc("b", 0), all("c")],
        infos: vec![flag(c"no.such.directive")],
        data: Vec::new(),
    };
    let tags: Vec<u32> = conns
        .iter()
        .map(|conn| world.send(*conn, &request))
        .collect();
    for (at, (conn, tag)) in conns.iter().zip(tags).enumerate() {
        let Some(Answer::Buffers { status, buffers }) = world.answer(*conn, tag) else {
            panic!("rank of job {at} has no buffers");
        };
        assert_eq!(status, Status::SUCCESS);
        let format = world.format(*conn);
        let told: Vec<String> = buffers
            .iter()
            .map(|buffer| {
                let facts = Facts::<Nspace>::decode(format, buffer).unwrap();
                let size = facts
                    .facts
                    .iter()
                    .find(|fact| fact.key == *keys::JOB_SIZE)
                    .unwrap();
                assert_eq!(size.value, Value::Uint32(1));
                facts.owner.to_string()
            })
            .collect();
        let others: Vec<&str> = ["a", "b", "c"]
            .into_iter()
            .enumerate()
            .filter(|(other, _)| *other != at)
            .map(|(_, name)| name)
            .collect();
        assert_eq!(told, others);
    }
    world.assert_no_state_left();
}

#[test]
fn a_fence_over_jobs_and_libraries() {
    let mut world = World::new(&[("a", 2), ("b", 2)]);
    let conns = [
        world.connect_as("a", 0, V3),
        world.connect_as("a", 1, V42),
        world.connect_as("b", 0, V5),
        world.connect_as("b", 1, V6),
    ];
    let request = fence(&[all("b"), all("a")]);
    let tags: Vec<u32> = conns
        .iter()
        .map(|conn| world.send(*conn, &request))
        .collect();
    for (conn, tag) in conns.iter().zip(tags) {
        assert_eq!(world.status(*conn, tag), Some(Status::SUCCESS));
    }
    assert_eq!(world.format(conns[2]), Format::V4);
    world.assert_no_state_left();
}
