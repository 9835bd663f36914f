//! Groups over several nodes.

use pmix::{
    keys,
    message::{Answer, GroupAnswer, Request},
    server::{Event, MAX_SENT_BYTES},
    value::{Info, PmixRank, Proc, Range, Status, Value},
};

use crate::{
    cluster::{Cluster, Rank, ToNode},
    world::{KILLED, V6, all, fence, flag, get, info, nspace, proc, text, values_of},
};

fn construct(procs: &[Proc], infos: Vec<Info>) -> Request {
    Request::GroupConstruct {
        group: text("group"),
        procs: procs.to_vec(),
        infos,
    }
}

fn destruct() -> Request {
    Request::GroupDestruct {
        group: text("group"),
        procs: None,
        infos: Vec::new(),
    }
}

fn leave() -> Request {
    Request::GroupLeave {
        group: text("group"),
        infos: Vec::new(),
    }
}

/// All construct; what each is told.
fn made(cluster: &mut Cluster, ranks: &[Rank], request: &Request) -> Vec<GroupAnswer> {
    let tags: Vec<u32> = ranks
        .iter()
        .map(|rank| cluster.send(*rank, request))
        .collect();
    let both = ranks.iter().zip(tags);
    both.map(|(rank, tag)| match cluster.answer(*rank, tag) {
        Some(Answer::Group(answer)) => answer,
        other => panic!("{other:?} is no group"),
    })
    .collect()
}

/// Everybody knows the same members and the same number, which no other group has.
#[test]
pub(crate) fn a_number_for_all() {
    let (mut cluster, ranks) = Cluster::of(3, &[2, 0, 1, 0]);
    let mut numbers = Vec::new();
    for who in [&[0, 1, 2, 3][..], &[0, 2], &[1, 3], &[0, 1]] {
        let members: Vec<Proc> = who.iter().map(|rank| proc("a", *rank)).collect();
        let conns: Vec<Rank> = who.iter().map(|rank| ranks[*rank as usize]).collect();
        let request = construct(&members, vec![flag(keys::GROUP_ASSIGN_CONTEXT_ID)]);
        let answers = made(&mut cluster, &conns, &request);
        for answer in &answers {
            assert_eq!(answer.status, Status::SUCCESS);
            assert_eq!(answer.members, members);
            assert_eq!(answer.context, answers[0].context);
        }
        numbers.push(answers[0].context.unwrap());
        // The next group of this name has other members.
        let told = cluster.together(&conns, &destruct());
        assert_eq!(told.last(), Some(&Some(Status::SUCCESS)));
    }
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 4);
    cluster.leave_nothing(&["a"]);
}

/// A number that only one of them asks for, and data that only one hands in.
#[test]
fn what_one_says_all_know() {
    let (mut cluster, ranks) = Cluster::of(2, &[0, 1]);
    let handed = info(
        keys::GROUP_INFO,
        Value::infos(vec![info(c"port", Value::Uint32(99))]),
    );
    let says = construct(
        &[all("a")],
        vec![flag(keys::GROUP_ASSIGN_CONTEXT_ID), handed],
    );
    let first = cluster.send(ranks[0], &construct(&[all("a")], Vec::new()));
    let Answer::Group(second) = cluster.ask(ranks[1], &says) else {
        panic!("no group");
    };
    let Some(Answer::Group(first)) = cluster.answer(ranks[0], first) else {
        panic!("no group");
    };
    assert!(first.context.is_some());
    assert_eq!(first.context, second.context);
    let mut qualifier = info(keys::GROUP_CONTEXT_ID, Value::Size(first.context.unwrap()));
    qualifier.flags = pmix::value::InfoFlags::QUALIFIER;
    let answer = cluster.ask(ranks[0], &get(&proc("a", 1), "port", vec![qualifier]));
    let format = cluster.nodes[0].format(ranks[0].1);
    assert_eq!(answer.status(), Status::SUCCESS);
    let values = values_of(format, &answer, &proc("a", 1));
    assert!(values.contains_key(keys::QUALIFIED_VALUE.to_str().unwrap()));
    cluster.leave_nothing(&["a"]);
}

/// An order that one wishes is that of all.
#[test]
fn the_final_order() {
    let (mut cluster, ranks) = Cluster::of(2, &[0, 1, 0]);
    let order = [2, 0, 1].map(|rank| proc("a", rank));
    let wish = info(keys::GROUP_FINAL_ORDER, Value::procs(order.to_vec()));
    let plain = construct(&[all("a")], Vec::new());
    let first = cluster.send(ranks[0], &plain);
    cluster.send(ranks[2], &plain);
    let Answer::Group(last) = cluster.ask(ranks[1], &construct(&[all("a")], vec![wish])) else {
        panic!("no group");
    };
    let Some(Answer::Group(first)) = cluster.answer(ranks[0], first) else {
        panic!("no group");
    };
    assert_eq!(first.members, order);
    assert_eq!(last.members, order);
    cluster.leave_nothing(&["a"]);
}

/// Whoever of those that may be absent has gone is no member, and the others know the same of it.
#[test]
fn without_those_that_have_gone() {
    // The rank that goes is alone on its node, or not.
    for ranks in [&[0, 0, 1][..], &[0, 1, 1]] {
        let (mut cluster, conns) = Cluster::of(2, ranks);
        let request = construct(&[all("a")], vec![flag(keys::GROUP_OPTIONAL)]);
        let first = cluster.send(conns[0], &request);
        cluster.end(conns[2], "a", 2, KILLED);
        let Answer::Group(second) = cluster.ask(conns[1], &request) else {
            panic!("no group");
        };
        let Some(Answer::Group(first)) = cluster.answer(conns[0], first) else {
            panic!("no group");
        };
        let left = [proc("a", 0), proc("a", 1)];
        assert_eq!(first.members, left, "{ranks:?}");
        assert_eq!(second.members, left, "{ranks:?}");
        cluster.leave_nothing(&["a"]);
    }
}

/// A member may also go once its node has said that everybody there has called. It was one when it called, and is one on
/// every node.
#[test]
fn one_that_goes_after_its_share() {
    let (mut cluster, conns) = Cluster::of(2, &[0, 0, 1]);
    let request = construct(&[all("a")], vec![flag(keys::GROUP_OPTIONAL)]);
    let first = cluster.send(conns[0], &request);
    cluster.send(conns[1], &request);
    cluster.end(conns[1], "a", 1, KILLED);
    let Answer::Group(last) = cluster.ask(conns[2], &request) else {
        panic!("no group");
    };
    let Some(Answer::Group(first)) = cluster.answer(conns[0], first) else {
        panic!("no group");
    };
    assert_eq!(first.members, [all("a")]);
    assert_eq!(last.members, [all("a")]);
    // It is ended without it.
    cluster.send(conns[0], &destruct());
    assert_eq!(cluster.told(conns[2], &destruct()), Status::SUCCESS);
    cluster.leave_nothing(&["a"]);
}

/// What waits for other nodes has room for so many bytes. A group beyond that is not made, and all of its members are
/// told, on every node.
#[test]
fn bytes_that_wait_for_other_nodes() {
    let (mut cluster, ranks) = Cluster::of(2, &[0, 0, 0, 1]);
    let group = |rank: u32, bytes: usize| {
        let large = Value::ByteObject(vec![0; bytes].into());
        Request::GroupConstruct {
            group: text(&format!("group {rank}")),
            procs: vec![proc("a", rank), proc("a", 3)],
            infos: vec![info(keys::GROUP_INFO, large)],
        }
    };
    let large = MAX_SENT_BYTES / 5 * 2;
    let tags: Vec<u32> = (0..3)
        .map(|rank| cluster.send(ranks[rank as usize], &group(rank, large)))
        .collect();
    // There is no room left for the third, also when the others are done; it can be made again.
    for (rank, expected) in (0..).zip([Status::SUCCESS, Status::SUCCESS, Status::OUT_OF_RESOURCE]) {
        assert_eq!(cluster.told(ranks[3], &group(rank, 0)), expected);
        let rank = rank as usize;
        assert_eq!(cluster.status(ranks[rank], tags[rank]), Some(expected));
    }
    let tag = cluster.send(ranks[2], &group(2, large));
    assert_eq!(cluster.told(ranks[3], &group(2, large)), Status::SUCCESS);
    assert_eq!(cluster.status(ranks[2], tag), Some(Status::SUCCESS));
    cluster.leave_nothing(&["a"]);
}

/// Members leave, on one node or on all but one: the others end the group without them.
#[test]
fn members_leave() {
    for (ranks, leaving) in [
        (&[0, 1][..], &[1][..]),
        (&[0, 1, 1], &[1]),
        (&[0, 1, 1], &[1, 2]),
        (&[0, 0, 1], &[1, 2]),
        (&[0, 1, 2], &[1, 2]),
    ] {
        let (mut cluster, conns) = Cluster::of(3, ranks);
        let told = cluster.together(&conns, &construct(&[all("a")], Vec::new()));
        assert_eq!(told.last(), Some(&Some(Status::SUCCESS)));
        // One has begun to end it before the others leave.
        let tag = cluster.send(conns[0], &destruct());
        for rank in leaving {
            assert_eq!(cluster.told(conns[*rank], &leave()), Status::SUCCESS);
        }
        for rank in (1..ranks.len()).filter(|rank| !leaving.contains(rank)) {
            assert_eq!(cluster.told(conns[rank], &destruct()), Status::SUCCESS);
        }
        let told = cluster.status(conns[0], tag);
        assert_eq!(told, Some(Status::SUCCESS), "{ranks:?}, {leaving:?}");
        cluster.leave_nothing(&["a"]);
    }
    // Nobody has begun to end it.
    let (mut cluster, conns) = Cluster::of(2, &[0, 1, 1]);
    cluster.together(&conns, &construct(&[all("a")], Vec::new()));
    for rank in [1, 2] {
        assert_eq!(cluster.told(conns[rank], &leave()), Status::SUCCESS);
    }
    assert_eq!(cluster.told(conns[0], &destruct()), Status::SUCCESS);
    cluster.leave_nothing(&["a"]);
}

/// Who is told that a member has left, or has failed.
#[test]
fn members_hear_of_each_other() {
    let (mut cluster, ranks) = Cluster::of(2, &[0, 1, 1]);
    let codes = [Status::GROUP_LEFT, Status::GROUP_MEMBER_FAILED];
    for (node, conn) in &ranks {
        cluster.nodes[*node].register(*conn, &codes);
    }
    let watched = construct(&[all("a")], vec![flag(keys::GROUP_NOTIFY_TERMINATION)]);
    cluster.together(&ranks, &watched);
    cluster.told(ranks[2], &leave());
    let (node, conn) = ranks[0];
    assert_eq!(cluster.nodes[node].codes(conn), [Status::GROUP_LEFT]);
    cluster.end(ranks[1], "a", 1, KILLED);
    let heard = cluster.nodes[node].codes(conn);
    assert_eq!(heard, [Status::GROUP_MEMBER_FAILED]);
    cluster.leave_nothing(&["a"]);
}

/// Only a member itself can leave, and its own node is told of that by nobody else.
#[test]
fn nobody_leaves_for_another() {
    let (mut cluster, ranks) = Cluster::of(3, &[0, 1, 2]);
    cluster.together(&ranks, &construct(&[all("a")], Vec::new()));
    let infos = |rank: u32| {
        vec![
            info(
                keys::EVENT_AFFECTED_PROC,
                Value::Proc(Box::new(proc("a", rank))),
            ),
            info(keys::GROUP_ID, Value::text("group")),
        ]
    };
    // A client says it of another one, and a node of a process that is not there.
    let says = Request::Notify {
        status: Status::GROUP_LEFT,
        range: Range::GLOBAL,
        infos: infos(1),
    };
    assert_eq!(cluster.told(ranks[2], &says), Status::SUCCESS);
    for node in [0, 1, 2] {
        let event = Event {
            status: Status::GROUP_LEFT,
            source: proc("a", u32::try_from(node).unwrap()),
            range: Range::GLOBAL,
            infos: infos(u32::try_from(node).unwrap()),
        };
        cluster.inboxes[node].push_back(ToNode::Event(Box::new(event)));
    }
    cluster.settle();
    // All are members everywhere, and each waits for all of the others.
    let group = Proc {
        nspace: nspace("group"),
        rank: PmixRank::WILDCARD,
    };
    let told = cluster.together(&ranks, &fence(&[group]));
    assert_eq!(told[2], Some(Status::SUCCESS));
    let waits = [0, 1].map(|rank| cluster.send(ranks[rank], &destruct()));
    for (rank, tag) in ranks.iter().zip(waits) {
        assert_eq!(cluster.answer(*rank, tag), None);
    }
    assert_eq!(cluster.told(ranks[2], &destruct()), Status::SUCCESS);
    cluster.leave_nothing(&["a"]);
}

/// The members of a group by invitation are known on every node.
#[test]
fn by_invitation() {
    let (mut cluster, ranks) = Cluster::of(2, &[0, 1]);
    let members = vec![proc("a", 0), proc("a", 1)];
    let request = Request::Notify {
        status: Status::GROUP_CONSTRUCT_COMPLETE,
        range: Range::CUSTOM,
        infos: vec![
            info(keys::EVENT_CUSTOM_RANGE, Value::procs(members)),
            info(keys::GROUP_ID, Value::text("group")),
        ],
    };
    assert_eq!(cluster.told(ranks[0], &request), Status::SUCCESS);
    // It can be named in a fence.
    let group = Proc {
        nspace: nspace("group"),
        rank: PmixRank::WILDCARD,
    };
    let told = cluster.together(&ranks, &fence(&[group]));
    assert_eq!(told[1], Some(Status::SUCCESS));
    let told = cluster.together(&ranks, &destruct());
    assert_eq!(told[1], Some(Status::SUCCESS));
    cluster.leave_nothing(&["a"]);
}

/// Where not everybody names all members, they must be on one node.
#[test]
fn what_must_be_on_one_node() {
    let (mut cluster, ranks) = Cluster::of(2, &[0, 0, 1]);
    let added = info(keys::GROUP_ADD_MEMBERS, Value::procs(vec![proc("a", 2)]));
    let cases = [
        construct(&[proc("a", 0), proc("a", 1)], vec![added]),
        construct(
            &[all("a")],
            vec![info(
                keys::GROUP_ADD_MEMBERS,
                Value::procs(vec![proc("a", 1)]),
            )],
        ),
        construct(
            &[proc("a", 0), proc("a", 2)],
            vec![info(keys::GROUP_BOOTSTRAP, Value::Size(1))],
        ),
    ];
    for request in cases {
        assert_eq!(cluster.told(ranks[0], &request), Status::NOT_SUPPORTED);
    }
    // On one node they may be.
    let leader = construct(
        &[proc("a", 0), proc("a", 1)],
        vec![info(keys::GROUP_BOOTSTRAP, Value::Size(1))],
    );
    let tag = cluster.send(ranks[0], &leader);
    let follower = construct(&[], Vec::new());
    assert_eq!(cluster.told(ranks[1], &follower), Status::SUCCESS);
    assert_eq!(cluster.status(ranks[0], tag), Some(Status::SUCCESS));
    assert_eq!(cluster.said, 0);
    cluster.leave_nothing(&["a"]);
}

/// The form of the answer is that of each client's library.
#[test]
fn libraries_of_different_age() {
    let mut cluster = Cluster::new(2, &[("a", &[0, 1])]);
    let ranks = [
        (0, cluster.nodes[0].connect("a", 0)),
        (1, cluster.nodes[1].connect_as("a", 1, V6)),
    ];
    let request = construct(&[all("a")], vec![flag(keys::GROUP_ASSIGN_CONTEXT_ID)]);
    let answers = made(&mut cluster, &ranks, &request);
    assert_eq!(answers[0].context, answers[1].context);
    assert_eq!(answers[0].members, answers[1].members);
    cluster.leave_nothing(&["a"]);
}
