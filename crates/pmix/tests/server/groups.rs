//! Groups: the ways to construct them, their names and context ids, and the data that members exchange.

use std::time::Duration;

use base::ExitStatus;
use pmix::{
    codec::Format,
    keys,
    message::{Answer, GroupAnswer, Push, Request},
    server::{Conn, LOST_DELAY},
    value::{Info, InfoFlags, Proc, Query, Range, Status, Value},
};

use crate::world::{
    KILLED, V3, V5, V6, V42, World, all, fence, flag, get, info, key, proc, seconds, text,
    values_of,
};

fn construct(name: &str, procs: &[Proc], infos: Vec<Info>) -> Request {
    Request::GroupConstruct {
        group: text(name),
        procs: procs.to_vec(),
        infos,
    }
}

fn destruct(name: &str, procs: Option<Vec<Proc>>) -> Request {
    Request::GroupDestruct {
        group: text(name),
        procs,
        infos: Vec::new(),
    }
}

fn group(answer: Option<Answer>) -> GroupAnswer {
    match answer {
        Some(Answer::Group(answer)) => answer,
        other => panic!("no group: {other:?}"),
    }
}

/// Sends all requests and returns the answers, which must have arrived by then.
fn together(world: &mut World, requests: &[(Conn, Request)]) -> Vec<Answer> {
    let tags: Vec<u32> = requests
        .iter()
        .map(|(conn, request)| world.send(*conn, request))
        .collect();
    requests
        .iter()
        .zip(tags)
        .map(|((conn, _), tag)| world.answer(*conn, tag).unwrap())
        .collect()
}

fn with_context() -> Vec<Info> {
    vec![flag(keys::GROUP_ASSIGN_CONTEXT_ID)]
}

#[test]
fn each_library_is_told_in_its_own_way() {
    let mut world = World::new(&[("a", 5)]);
    let conns = [
        world.connect_as("a", 0, V3),
        world.connect_as("a", 1, V42),
        world.connect_as("a", 2, V5),
        world.connect_as("a", 3, V6),
    ];
    let procs: Vec<Proc> = (0..4).map(|rank| proc("a", rank)).collect();
    let requests: Vec<(Conn, Request)> = conns
        .iter()
        // One member asks for a context id, and all get it.
        .map(|conn| {
            let infos = if *conn == conns[2] {
                with_context()
            } else {
                Vec::new()
            };
            (*conn, construct("group", &procs, infos))
        })
        .collect();
    for answer in together(&mut world, &requests) {
        let answer = group(Some(answer));
        assert_eq!(answer.context, Some(1));
        // The oldest libraries do not get the members.
        if !answer.members.is_empty() {
            assert_eq!(answer.members, procs);
        }
    }
    for conn in &conns[..3] {
        world.send(*conn, &destruct("group", Some(procs.clone())));
    }
    assert_eq!(
        world.status_of(conns[3], &destruct("group", None)),
        Status::SUCCESS
    );
    world.assert_no_state_left();
}

#[test]
fn numbers_are_given_once() {
    let (mut world, conns) = World::of(1);
    let me = [proc("a", 0)];
    let mut contexts = Vec::new();
    for round in 0..5 {
        let name = format!("group {round}");
        let tag = world.send(conns[0], &construct(&name, &me, with_context()));
        contexts.push(group(world.answer(conns[0], tag)).context.unwrap());
        if round % 2 == 0 {
            assert_eq!(
                world.status_of(conns[0], &destruct(&name, None)),
                Status::SUCCESS
            );
        }
    }
    assert_eq!(contexts, [1, 2, 3, 4, 5]);
    // A group without a request for a context id gets none.
    let tag = world.send(conns[0], &construct("last", &me, Vec::new()));
    assert_eq!(group(world.answer(conns[0], tag)).context, None);
    world.assert_no_state_left();
}

#[test]
fn a_name_stands_for_the_members() {
    let (mut world, conns) = World::of(4);
    let members = [proc("a", 0), proc("a", 2), proc("a", 3)];
    let at = [0, 2, 3];
    let requests: Vec<_> = at
        .iter()
        .map(|at| (conns[*at], construct("odd one out", &members, Vec::new())))
        .collect();
    together(&mut world, &requests);
    // The name stands for all members.
    let by_name = fence(&[all("odd one out")]);
    let tags = [
        world.send(conns[0], &by_name),
        world.send(conns[2], &by_name),
    ];
    assert_eq!(world.status_of(conns[3], &by_name), Status::SUCCESS);
    assert_eq!(world.status(conns[0], tags[0]), Some(Status::SUCCESS));
    assert_eq!(world.status(conns[2], tags[1]), Some(Status::SUCCESS));
    // The name is equivalent to the list of its members.
    let tags = [
        world.send(conns[0], &by_name),
        world.send(conns[2], &fence(&members)),
    ];
    assert_eq!(world.status_of(conns[3], &by_name), Status::SUCCESS);
    assert_eq!(world.status(conns[0], tags[0]), Some(Status::SUCCESS));
    assert_eq!(world.status(conns[2], tags[1]), Some(Status::SUCCESS));
    // The name and a number stand for one member.
    world.put(conns[3], &[("where", 33)]);
    let answer = world.ask(conns[0], &get(&proc("odd one out", 2), "where", Vec::new()));
    assert_eq!(
        values_of(Format::V4, &answer, &proc("a", 3))["where"],
        Value::Uint32(33)
    );
    for (rank, status) in [(3, Status::NOT_FOUND), (u32::MAX - 1, Status::BAD_PARAM)] {
        let request = get(&proc("odd one out", rank), "where", Vec::new());
        assert_eq!(world.status_of(conns[0], &request), status);
    }
    // A process outside the group cannot use its name.
    assert_eq!(world.status_of(conns[1], &by_name), Status::BAD_PARAM);
    // The group ends.
    let end = destruct("odd one out", None);
    let answers = together(&mut world, &at.map(|at| (conns[at], end.clone())));
    assert!(
        answers
            .iter()
            .all(|answer| answer.status() == Status::SUCCESS)
    );
    assert_eq!(world.status_of(conns[0], &by_name), Status::NOT_FOUND);
    assert_eq!(world.status_of(conns[0], &end), Status::NOT_FOUND);
    world.assert_no_state_left();
}

#[test]
fn parts_have_the_same_name() {
    let (mut world, conns) = World::of(4);
    let part = |first: u32| [proc("a", first), proc("a", first + 1)];
    let requests: Vec<_> = (0..4)
        .map(|at| {
            let request = construct("half", &part(at / 2 * 2), with_context());
            (conns[at as usize], request)
        })
        .collect();
    let answers = together(&mut world, &requests);
    let contexts: Vec<_> = answers
        .into_iter()
        .map(|answer| group(Some(answer)).context.unwrap())
        .collect();
    assert_eq!(contexts, [1, 1, 2, 2]);
    // In each half the name refers to that half.
    let by_name = fence(&[all("half")]);
    for first in [2, 0] {
        let tag = world.send(conns[first], &by_name);
        assert_eq!(world.status_of(conns[first + 1], &by_name), Status::SUCCESS);
        assert_eq!(world.status(conns[first], tag), Some(Status::SUCCESS));
    }
    let end = destruct("half", None);
    for first in [0, 2] {
        let tag = world.send(conns[first], &end);
        assert_eq!(world.status_of(conns[first + 1], &end), Status::SUCCESS);
        assert_eq!(world.status(conns[first], tag), Some(Status::SUCCESS));
    }
    assert_eq!(world.status_of(conns[0], &end), Status::NOT_FOUND);
    world.assert_no_state_left();
}

#[test]
fn members_tell_each_other() {
    let mut world = World::new(&[("a", 2)]);
    let conns = [world.connect_as("a", 0, V5), world.connect_as("a", 1, V6)];
    let requests: Vec<_> = (0..2)
        .map(|rank| {
            let mut handed = vec![
                info(keys::GROUP_LOCAL_CID, Value::Size(100 + rank)),
                info(c"endpoint", Value::text("here")),
            ];
            if rank == 1 {
                // libpmix 6 names itself in its data.
                let me = Value::Proc(Box::new(proc("a", 1)));
                handed.insert(0, info(keys::PROC_ID, me));
            }
            let mut infos = with_context();
            infos.push(info(keys::GROUP_INFO, Value::infos(handed)));
            let rank = usize::try_from(rank).unwrap();
            (conns[rank], construct("group", &[all("a")], infos))
        })
        .collect();
    let answers = together(&mut world, &requests);
    // libpmix 6 gets the data in the answer, with the name of each provider.
    let told = group(Some(answers[1].clone())).infos;
    let whose: Vec<_> = told
        .iter()
        .map(|info| {
            assert_eq!(info.key, key("pmix.grp.info"));
            let infos = info.value.as_infos().unwrap();
            assert_eq!(infos.len(), 3);
            infos[0].clone()
        })
        .collect();
    let id = |rank| info(keys::PROC_ID, Value::Proc(Box::new(proc("a", rank))));
    assert_eq!(whose, [id(0), id(1)]);
    // Other versions get it with the context id as qualifier, before and after the group has ended.
    let by_context = |context: u64| {
        let mut qualifier = info(keys::GROUP_CONTEXT_ID, Value::Uint64(context));
        qualifier.flags = InfoFlags::QUALIFIER;
        vec![qualifier, flag(keys::IMMEDIATE)]
    };
    for round in 0..2 {
        for wanted in ["pmix.grp.lclid", "endpoint"] {
            let answer = world.ask(conns[0], &get(&proc("a", 1), wanted, by_context(1)));
            let values = values_of(Format::V4, &answer, &proc("a", 1));
            assert!(values.contains_key("pmix.qual.val"), "{wanted}: {values:?}");
            let other = get(&proc("a", 1), wanted, by_context(2));
            assert_eq!(
                world.status_of(conns[0], &other),
                Status::NOT_FOUND,
                "{wanted}"
            );
        }
        if round == 0 {
            let end = destruct("group", None);
            together(&mut world, &conns.map(|conn| (conn, end.clone())));
        }
    }
    world.assert_no_state_left();
}

#[test]
fn what_was_handed_in_is_bounded() {
    let (mut world, conns) = World::of(1);
    let large = Value::text(&"x".repeat(100_000));
    for _ in 0..20 {
        let mut infos = with_context();
        infos.push(info(
            keys::GROUP_INFO,
            Value::infos(vec![info(c"large", large.clone())]),
        ));
        world.send(conns[0], &construct("group", &[proc("a", 0)], infos));
    }
    let by = |context: u64| {
        let mut qualifier = info(keys::GROUP_CONTEXT_ID, Value::Size(context));
        qualifier.flags = InfoFlags::QUALIFIER;
        get(
            &proc("a", 0),
            "large",
            vec![qualifier, flag(keys::IMMEDIATE)],
        )
    };
    // The data of the oldest groups is dropped, that of the latest is kept.
    assert_eq!(world.status_of(conns[0], &by(1)), Status::NOT_FOUND);
    assert_eq!(world.status_of(conns[0], &by(20)), Status::SUCCESS);
    world.assert_no_state_left();
}

/// Leaders and followers may call in any order.
#[test]
fn bootstrap() {
    let orders = [
        [0, 1, 2, 3],
        [3, 2, 1, 0],
        [2, 0, 3, 1],
        [1, 3, 0, 2],
        [2, 3, 0, 1],
    ];
    for order in orders {
        let mut world = World::new(&[("a", 5)]);
        let conns: Vec<Conn> = (0..5).map(|rank| world.connect_as("a", rank, V6)).collect();
        let leader = |rank: u32, adds: u32| {
            let mut infos = with_context();
            infos.push(info(keys::GROUP_BOOTSTRAP, Value::Size(2)));
            infos.push(info(
                keys::GROUP_ADD_MEMBERS,
                Value::procs(vec![proc("a", adds)]),
            ));
            construct("group", &[proc("a", rank)], infos)
        };
        let requests = [
            leader(0, 2),
            leader(1, 3),
            construct("group", &[], Vec::new()),
            construct("group", &[], Vec::new()),
        ];
        for (count, at) in order.into_iter().enumerate() {
            world.send(conns[at], &requests[at]);
            let waiting = conns
                .iter()
                .filter(|conn| !world.unanswered(**conn).is_empty())
                .count();
            // All wait until the last one has called.
            assert_eq!(waiting, (count + 1) % 4, "{order:?}");
        }
        for conn in &conns[..4] {
            let (_, answer) = world.answers(*conn).pop_first().unwrap();
            let answer = group(Some(answer));
            assert_eq!(answer.context, Some(1));
            let members: Vec<Proc> = (0..4).map(|rank| proc("a", rank)).collect();
            assert_eq!(answer.members, members, "{order:?}");
        }
        let by_name = fence(&[all("group")]);
        assert_eq!(world.status_of(conns[4], &by_name), Status::BAD_PARAM);
        world.assert_no_state_left();
    }
}

#[test]
fn a_bootstrapped_group_has_all_members() {
    let mut world = World::new(&[("a", 3)]);
    let conns: Vec<Conn> = (0..3).map(|rank| world.connect_as("a", rank, V6)).collect();
    let infos = vec![
        info(keys::GROUP_BOOTSTRAP, Value::Int(1)),
        info(
            keys::GROUP_ADD_MEMBERS,
            Value::procs(vec![proc("a", 2), proc("a", 0)]),
        ),
    ];
    let follower = construct("group", &[], Vec::new());
    let requests = [
        (conns[0], follower.clone()),
        (conns[1], construct("group", &[proc("a", 1)], infos)),
        (conns[2], follower),
    ];
    for answer in together(&mut world, &requests) {
        let answer = group(Some(answer));
        assert_eq!(answer.members, [proc("a", 0), proc("a", 1), proc("a", 2)]);
    }
    world.assert_no_state_left();
}

/// A member adds all processes of a job, and the processes call in any order.
#[test]
fn all_of_a_job_is_added() {
    let adds = || {
        vec![info(
            keys::GROUP_ADD_MEMBERS,
            Value::procs(vec![all("b"), proc("b", 1)]),
        )]
    };
    let leads = || {
        let mut infos = adds();
        infos.push(info(keys::GROUP_BOOTSTRAP, Value::Size(1)));
        infos
    };
    for infos in [adds(), leads()] {
        for order in [
            [0, 1, 2, 3],
            [1, 2, 3, 0],
            [2, 0, 3, 1],
            [3, 1, 0, 2],
            [2, 3, 0, 1],
        ] {
            let mut world = World::new(&[("a", 1), ("b", 3)]);
            let conns = [
                world.connect_as("a", 0, V6),
                world.connect_as("b", 0, V6),
                world.connect_as("b", 1, V6),
                world.connect_as("b", 2, V6),
            ];
            let follower = construct("group", &[], Vec::new());
            let requests = [
                construct("group", &[proc("a", 0)], infos.clone()),
                follower.clone(),
                follower.clone(),
                follower,
            ];
            for (count, at) in order.into_iter().enumerate() {
                world.send(conns[at], &requests[at]);
                let waiting = conns
                    .iter()
                    .filter(|conn| !world.unanswered(**conn).is_empty())
                    .count();
                assert_eq!(waiting, (count + 1) % 4, "{order:?}");
            }
            for conn in &conns {
                let (_, answer) = world.answers(*conn).pop_first().unwrap();
                let members = group(Some(answer)).members;
                assert_eq!(members, [proc("a", 0), all("b")], "{order:?}");
            }
            // All are members: the name of the group includes them.
            let by_name = fence(&[all("group")]);
            for conn in &conns[1..] {
                world.send(*conn, &by_name);
            }
            assert_eq!(world.status_of(conns[0], &by_name), Status::SUCCESS);
            world.assert_no_state_left();
        }
    }
}

#[test]
fn leaders_must_agree_how_many_they_are() {
    let (mut world, conns) = World::of(2);
    let leader = |rank: u32, of: u64| {
        let infos = vec![info(keys::GROUP_BOOTSTRAP, Value::Size(of))];
        construct("group", &[proc("a", rank)], infos)
    };
    assert_eq!(world.status_of(conns[0], &leader(0, 0)), Status::BAD_PARAM);
    world.send(conns[0], &leader(0, 2));
    assert_eq!(world.status_of(conns[1], &leader(1, 3)), Status::BAD_PARAM);
    world.assert_no_state_left();
}

#[test]
fn a_member_adds_others() {
    let (mut world, conns) = World::of(3);
    let named = [proc("a", 0), proc("a", 1)];
    let adds = vec![info(
        keys::GROUP_ADD_MEMBERS,
        Value::procs(vec![proc("a", 2)]),
    )];
    let tags = [
        world.send(conns[0], &construct("group", &named, Vec::new())),
        world.send(conns[1], &construct("group", &named, adds)),
    ];
    assert_eq!(world.answer(conns[0], tags[0]), None);
    let tag = world.send(conns[2], &construct("group", &[], Vec::new()));
    let members = group(world.answer(conns[2], tag)).members;
    assert_eq!(members, [proc("a", 0), proc("a", 1), proc("a", 2)]);
    world.assert_no_state_left();
}

#[test]
fn a_follower_that_nobody_names_gives_up() {
    let (mut world, conns) = World::of(1);
    let tag = world.send(conns[0], &construct("group", &[], vec![seconds(1)]));
    world.pass(Duration::from_secs(1));
    assert_eq!(world.status(conns[0], tag), Some(Status::TIMEOUT));
    // A follower whose connection ends is also dropped.
    world.send(conns[0], &construct("group", &[], Vec::new()));
    world.assert_no_state_left();
}

#[test]
fn they_choose_their_order() {
    let (mut world, conns) = World::of(3);
    let order = |procs: Vec<Proc>| vec![info(keys::GROUP_FINAL_ORDER, Value::procs(procs))];
    let cases = [
        (
            vec![proc("a", 2), proc("a", 0), proc("a", 1)],
            Some([2, 0, 1]),
        ),
        // All of the job that are not listed before.
        (vec![proc("a", 1), all("a")], Some([1, 0, 2])),
        // The order does not list every member.
        (vec![proc("a", 2), proc("a", 0)], None),
    ];
    let named: Vec<Proc> = (0..3).map(|rank| proc("a", rank)).collect();
    for (wanted, expected) in cases {
        let requests: Vec<_> = conns
            .iter()
            .map(|conn| (*conn, construct("group", &named, order(wanted.clone()))))
            .collect();
        for answer in together(&mut world, &requests) {
            match expected {
                Some(ranks) => {
                    let members = group(Some(answer)).members;
                    assert_eq!(members, ranks.map(|rank| proc("a", rank)));
                }
                None => assert_eq!(answer.status(), Status::BAD_PARAM),
            }
        }
    }
    world.assert_no_state_left();
}

#[test]
fn who_need_not_come_is_left_out() {
    let (mut world, conns) = World::of(4);
    world.close(conns[3]);
    world.end("a", 3, KILLED);
    let optional = construct("group", &[all("a")], vec![flag(keys::GROUP_OPTIONAL)]);
    // One is dead before the construct, one dies after its call, and one is lost without a call.
    let tag = world.send(conns[0], &optional);
    world.send(conns[1], &optional);
    world.close(conns[1]);
    world.end("a", 1, KILLED);
    assert_eq!(world.answer(conns[0], tag), None);
    world.close(conns[2]);
    world.pass(LOST_DELAY);
    let members = group(world.answer(conns[0], tag)).members;
    assert_eq!(members, [proc("a", 0)]);
    world.assert_no_state_left();
}

#[test]
fn a_group_by_invitation_is_known_from_its_event() {
    for says_members in [false, true] {
        let (mut world, conns) = World::of(4);
        for conn in &conns {
            world.register(*conn, &[Status::GROUP_CONSTRUCT_COMPLETE]);
        }
        let members = vec![proc("a", 0), proc("a", 1), proc("a", 3)];
        let mut infos = vec![
            info(keys::EVENT_CUSTOM_RANGE, Value::procs(members.clone())),
            flag(keys::EVENT_NON_DEFAULT),
            info(keys::GROUP_ID, Value::text("guests")),
        ];
        if says_members {
            infos.push(info(keys::GROUP_MEMBERSHIP, Value::procs(members.clone())));
        }
        let request = Request::Notify {
            status: Status::GROUP_CONSTRUCT_COMPLETE,
            range: Range::CUSTOM,
            infos,
        };
        assert_eq!(world.status_of(conns[0], &request), Status::SUCCESS);
        // The invited members get the event, with the list of members.
        for (rank, invited) in [(0, false), (1, true), (2, false), (3, true)] {
            let pushes = world.pushes(conns[rank]);
            assert_eq!(pushes.len(), usize::from(invited), "{rank}");
            for push in pushes {
                let Push::Event { infos, .. } = push else {
                    panic!("{push:?} is no event");
                };
                let told = infos
                    .iter()
                    .find(|info| info.key == *keys::GROUP_MEMBERSHIP);
                let told = told.unwrap().value.as_procs().unwrap();
                assert!(told.into_iter().eq(&members));
            }
        }
        let by_name = fence(&[all("guests")]);
        world.send(conns[1], &by_name);
        world.send(conns[3], &by_name);
        assert_eq!(world.status_of(conns[0], &by_name), Status::SUCCESS);
        let end = destruct("guests", None);
        world.send(conns[1], &end);
        world.send(conns[3], &end);
        assert_eq!(world.status_of(conns[0], &end), Status::SUCCESS);
        world.assert_no_state_left();
    }
}

#[test]
fn a_member_leaves() {
    let (mut world, conns) = World::of(3);
    let requests: Vec<_> = conns
        .iter()
        .map(|conn| (*conn, construct("group", &[all("a")], Vec::new())))
        .collect();
    together(&mut world, &requests);
    world.register(conns[0], &[Status::GROUP_LEFT]);
    let leave = Request::GroupLeave {
        group: text("group"),
        infos: Vec::new(),
    };
    // Another member waits for it in a destruct.
    let end = destruct("group", None);
    let tag = world.send(conns[0], &end);
    assert_eq!(world.status_of(conns[2], &leave), Status::SUCCESS);
    assert_eq!(world.codes(conns[0]), [Status::GROUP_LEFT]);
    assert_eq!(world.status_of(conns[2], &leave), Status::NOT_FOUND);
    assert_eq!(world.answer(conns[0], tag), None);
    assert_eq!(world.status_of(conns[1], &end), Status::SUCCESS);
    assert_eq!(world.status(conns[0], tag), Some(Status::SUCCESS));
    world.assert_no_state_left();
}

#[test]
fn a_watched_member_ends() {
    for (watched, status) in [(true, KILLED), (true, ExitStatus::SUCCESS), (false, KILLED)] {
        let (mut world, conns) = World::of(3);
        let infos = match watched {
            true => vec![flag(keys::GROUP_NOTIFY_TERMINATION)],
            false => Vec::new(),
        };
        let members = [proc("a", 0), proc("a", 2)];
        let request = construct("group", &members, infos);
        together(
            &mut world,
            &[(conns[0], request.clone()), (conns[2], request)],
        );
        for conn in &conns {
            world.register(*conn, &[Status::GROUP_MEMBER_FAILED]);
        }
        world.end("a", 2, status);
        let expected: &[Status] = match watched {
            true => &[Status::GROUP_MEMBER_FAILED],
            false => &[],
        };
        assert_eq!(world.codes(conns[0]), expected);
        assert_eq!(world.codes(conns[1]), []);
        world.assert_no_state_left();
    }
}

#[test]
fn names_are_bounded() {
    let (mut world, conns) = World::of(1);
    let me = [proc("a", 0)];
    for (name, status) in [
        (text(""), Status::BAD_PARAM),
        (None, Status::BAD_PARAM),
        (text(&"x".repeat(256)), Status::BAD_PARAM),
        (text(&"x".repeat(255)), Status::SUCCESS),
    ] {
        let request = Request::GroupConstruct {
            group: name.clone(),
            procs: me.to_vec(),
            infos: Vec::new(),
        };
        assert_eq!(world.status_of(conns[0], &request), status, "{name:?}");
    }
    world.assert_no_state_left();
}

#[test]
fn groups_can_be_asked_for() {
    let (mut world, conns) = World::of(2);
    let request = construct("group", &[all("a")], Vec::new());
    together(
        &mut world,
        &conns
            .clone()
            .into_iter()
            .map(|conn| (conn, request.clone()))
            .collect::<Vec<_>>(),
    );
    let ask = |key: &str, qualifiers| Request::Query {
        queries: vec![Query {
            keys: vec![text(key)],
            qualifiers,
        }],
    };
    let Answer::Infos { infos, .. } = world.ask(conns[0], &ask("pmix.qry.pgrp", Vec::new())) else {
        panic!("no infos");
    };
    let names = Value::array(pmix::value::DataType::STRING, vec![Value::text("group")]);
    assert_eq!(infos[0].value, names);
    let of = vec![info(keys::GROUP_ID, Value::text("group"))];
    let Answer::Infos { infos, .. } = world.ask(conns[0], &ask("pmix.qry.pgrpmems", of)) else {
        panic!("no infos");
    };
    assert_eq!(infos[0].value, Value::procs(vec![all("a")]));
    world.assert_no_state_left();
}
