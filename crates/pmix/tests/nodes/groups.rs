//! Groups over several nodes.

use pmix::{
    keys,
    message::{Answer, GroupAnswer, Request},
    server::{Event, MAX_SENT_BYTES},
    value::{Info, PmixRank, Proc, Range, Status, Value},
};

use crate::{
    cluster::{Cluster, RankConn, ToNode},
    world::{KILLED, V6, all, fence, flag, get, info, nspace, proc, text, values_of},
};

pub(crate) fn construct(procs: &[Proc], infos: Vec<Info>) -> Request {
    Request::GroupConstruct {
        group: text("group"),
        procs: procs.to_vec(),
        infos,
    }
}

pub(crate) fn destruct() -> Request {
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

/// Sends the same construct from these ranks and returns their answers.
fn made(cluster: &mut Cluster, ranks: &[RankConn], request: &Request) -> Vec<GroupAnswer> {
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

/// All members get the same members and the same context id, which no other group has.
#[test]
pub(crate) fn a_number_for_all() {
    let (mut cluster, ranks) = Cluster::of(3, &[2, 0, 1, 0]);
    let mut numbers = Vec::new();
    for who in [&[0, 1, 2, 3][..], &[0, 2], &[1, 3], &[0, 1]] {
        let members: Vec<Proc> = who.iter().map(|rank| proc("a", *rank)).collect();
        let conns: Vec<RankConn> = who.iter().map(|rank| ranks[*rank as usize]).collect();
        let request = construct(&members, vec![flag(keys::GROUP_ASSIGN_CONTEXT_ID)]);
        let answers = made(&mut cluster, &conns, &request);
        for answer in &answers {
            assert_eq!(answer.status, Status::SUCCESS);
            assert_eq!(answer.members, members);
            assert_eq!(answer.context, answers[0].context);
        }
        numbers.push(answers[0].context.unwrap());
        // The next group with this name has other members.
        let told = cluster.together(&conns, &destruct());
        assert_eq!(told.last(), Some(&Some(Status::SUCCESS)));
    }
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 4);
    cluster.assert_no_state_left(&["a"]);
}

/// All members get the context id that only one asks for, and the data that only one provides.
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
    cluster.assert_no_state_left(&["a"]);
}

/// The order of members that one rank requests applies to all.
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
    cluster.assert_no_state_left(&["a"]);
}

/// An optional member that has died is not in the group, and the answers on all nodes agree.
#[test]
fn without_those_that_have_gone() {
    // The rank that dies is alone on its node, or with another one.
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
        cluster.assert_no_state_left(&["a"]);
    }
}

/// A member dies after its node has sent the share for all its ranks. It had called, so that every node still counts it as a
/// member.
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
    // The destruct completes without the dead member.
    cluster.send(conns[0], &destruct());
    assert_eq!(cluster.status_of(conns[2], &destruct()), Status::SUCCESS);
    cluster.assert_no_state_left(&["a"]);
}

/// Shares that wait for other nodes are limited in bytes. A group over the limit fails on all nodes.
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
    // The third group fails even after the other two have completed. A second attempt succeeds.
    for (rank, expected) in (0..).zip([Status::SUCCESS, Status::SUCCESS, Status::OUT_OF_RESOURCE]) {
        assert_eq!(cluster.status_of(ranks[3], &group(rank, 0)), expected);
        let rank = rank as usize;
        assert_eq!(cluster.status(ranks[rank], tags[rank]), Some(expected));
    }
    let tag = cluster.send(ranks[2], &group(2, large));
    assert_eq!(cluster.status_of(ranks[3], &group(2, 0)), Status::SUCCESS);
    assert_eq!(cluster.status(ranks[2], tag), Some(Status::SUCCESS));
    cluster.assert_no_state_left(&["a"]);
}

/// Members leave, on one node or on all nodes but one: the remaining members destruct the group without them.
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
        // One member calls destruct before the others leave.
        let tag = cluster.send(conns[0], &destruct());
        for rank in leaving {
            assert_eq!(cluster.status_of(conns[*rank], &leave()), Status::SUCCESS);
        }
        for rank in (1..ranks.len()).filter(|rank| !leaving.contains(rank)) {
            assert_eq!(cluster.status_of(conns[rank], &destruct()), Status::SUCCESS);
        }
        let told = cluster.status(conns[0], tag);
        assert_eq!(told, Some(Status::SUCCESS), "{ranks:?}, {leaving:?}");
        cluster.assert_no_state_left(&["a"]);
    }
    // All others have left before the first call of destruct.
    let (mut cluster, conns) = Cluster::of(2, &[0, 1, 1]);
    cluster.together(&conns, &construct(&[all("a")], Vec::new()));
    for rank in [1, 2] {
        assert_eq!(cluster.status_of(conns[rank], &leave()), Status::SUCCESS);
    }
    assert_eq!(cluster.status_of(conns[0], &destruct()), Status::SUCCESS);
    cluster.assert_no_state_left(&["a"]);
}

/// A member gets events when another one leaves or fails.
#[test]
fn members_hear_of_each_other() {
    let (mut cluster, ranks) = Cluster::of(2, &[0, 1, 1]);
    let codes = [Status::GROUP_LEFT, Status::GROUP_MEMBER_FAILED];
    for (node, conn) in &ranks {
        cluster.nodes[*node].register(*conn, &codes);
    }
    let watched = construct(&[all("a")], vec![flag(keys::GROUP_NOTIFY_TERMINATION)]);
    cluster.together(&ranks, &watched);
    cluster.status_of(ranks[2], &leave());
    let (node, conn) = ranks[0];
    assert_eq!(cluster.nodes[node].codes(conn), [Status::GROUP_LEFT]);
    cluster.end(ranks[1], "a", 1, KILLED);
    let heard = cluster.nodes[node].codes(conn);
    assert_eq!(heard, [Status::GROUP_MEMBER_FAILED]);
    cluster.assert_no_state_left(&["a"]);
}

/// Only a member itself can leave, and only its own server can report that.
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
    // A client reports another member as leaving, and each node gets such a report about its own rank.
    let says = Request::Notify {
        status: Status::GROUP_LEFT,
        range: Range::GLOBAL,
        infos: infos(1),
    };
    assert_eq!(cluster.status_of(ranks[2], &says), Status::SUCCESS);
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
    // All ranks are still members on every node, and wait for each other.
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
    assert_eq!(cluster.status_of(ranks[2], &destruct()), Status::SUCCESS);
    cluster.assert_no_state_left(&["a"]);
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
    assert_eq!(cluster.status_of(ranks[0], &request), Status::SUCCESS);
    // A fence can name the group.
    let group = Proc {
        nspace: nspace("group"),
        rank: PmixRank::WILDCARD,
    };
    let told = cluster.together(&ranks, &fence(&[group]));
    assert_eq!(told[1], Some(Status::SUCCESS));
    let told = cluster.together(&ranks, &destruct());
    assert_eq!(told[1], Some(Status::SUCCESS));
    cluster.assert_no_state_left(&["a"]);
}

/// Each client gets the layout of the answer that its library expects.
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
    cluster.assert_no_state_left(&["a"]);
}
