//! Gets for processes on other nodes.

use std::time::Duration;

use pmix::{
    keys,
    message::{Answer, Request},
    server::{
        Input, MAX_QUESTION, MAX_QUESTIONS, MAX_QUESTIONS_ABOUT, MISSING_KEY_DELAY, Output,
        RankFacts,
    },
    value::{Status, Value},
};

use crate::{
    cluster::{Cluster, RankConn, ToNode, job_on},
    world::{KILLED, all, flag, get, key, nspace, proc, seconds, values_of},
};

fn ask(cluster: &mut Cluster, rank: RankConn, of: u32, key: &str) -> u32 {
    cluster.send(rank, &get(&proc("a", of), key, Vec::new()))
}

#[test]
fn what_is_there_is_told_and_kept() {
    let (mut cluster, ranks) = Cluster::of(2, &[0, 1, 0]);
    cluster.put(ranks[1], &[("key", 1), ("other", 2)]);
    assert_eq!(cluster.value(ranks[0], 1, "key"), Ok(1));
    let said = cluster.said;
    // The first answer contained this value too, and serves all ranks of the node.
    assert_eq!(cluster.value(ranks[0], 1, "other"), Ok(2));
    assert_eq!(cluster.value(ranks[2], 1, "key"), Ok(1));
    assert_eq!(cluster.said, said);
    // A value that was put since must be requested.
    cluster.put(ranks[1], &[("new", 3)]);
    assert_eq!(cluster.value(ranks[2], 1, "new"), Ok(3));
    cluster.assert_no_state_left(&["a"]);
}

#[test]
fn what_is_not_there_yet_is_waited_for() {
    let (mut cluster, ranks) = Cluster::of(2, &[0, 1]);
    let tag = ask(&mut cluster, ranks[0], 1, "key");
    cluster.pass(Duration::from_mins(1));
    assert_eq!(cluster.answer(ranks[0], tag), None);
    cluster.put(ranks[1], &[("key", 1)]);
    cluster.settle();
    assert_eq!(cluster.status(ranks[0], tag), Some(Status::SUCCESS));
    cluster.assert_no_state_left(&["a"]);
}

/// Several gets for the same value share one request.
#[test]
fn one_question_for_all() {
    let (mut cluster, ranks) = Cluster::of(2, &[0, 0, 0, 1]);
    let request = get(&proc("a", 3), "key", Vec::new());
    let tags: Vec<u32> = ranks[..3]
        .iter()
        .map(|rank| cluster.send_only(*rank, &request))
        .collect();
    assert_eq!(cluster.nodes[0].away.len(), 1);
    cluster.settle();
    cluster.put(ranks[3], &[("key", 1)]);
    cluster.settle();
    for (rank, tag) in ranks.iter().zip(tags) {
        assert_eq!(cluster.status(*rank, tag), Some(Status::SUCCESS));
    }
    cluster.assert_no_state_left(&["a"]);
}

#[test]
fn a_key_that_never_comes() {
    let (mut cluster, ranks) = Cluster::of(2, &[0, 1]);
    cluster.put(ranks[1], &[("key", 1)]);
    let tag = ask(&mut cluster, ranks[0], 1, "never");
    assert_eq!(cluster.answer(ranks[0], tag), None);
    cluster.pass(MISSING_KEY_DELAY);
    assert_eq!(cluster.status(ranks[0], tag), Some(Status::NOT_FOUND));
    // A get with `IMMEDIATE` or for a reserved key sends no request to the other node.
    let said = cluster.said;
    let immediate = get(&proc("a", 1), "never", vec![flag(keys::IMMEDIATE)]);
    assert_eq!(cluster.status_of(ranks[0], &immediate), Status::NOT_FOUND);
    let reserved = get(&proc("a", 1), "pmix.nonsense", Vec::new());
    assert_eq!(cluster.status_of(ranks[0], &reserved), Status::NOT_FOUND);
    assert_eq!(cluster.said, said);
    cluster.assert_no_state_left(&["a"]);
}

/// A rank that joins an earlier request still waits its own full time.
#[test]
fn a_question_that_others_have_asked() {
    let (mut cluster, ranks) = Cluster::of(2, &[0, 0, 1]);
    cluster.put(ranks[2], &[("key", 1)]);
    let first = ask(&mut cluster, ranks[0], 2, "later");
    cluster.pass(MISSING_KEY_DELAY - Duration::from_millis(100));
    let second = ask(&mut cluster, ranks[1], 2, "later");
    cluster.pass(Duration::from_millis(100));
    assert_eq!(cluster.status(ranks[0], first), Some(Status::NOT_FOUND));
    assert_eq!(cluster.answer(ranks[1], second), None);
    cluster.put(ranks[2], &[("later", 2)]);
    cluster.settle();
    assert_eq!(cluster.status(ranks[1], second), Some(Status::SUCCESS));
    cluster.assert_no_state_left(&["a"]);
}

#[test]
fn its_own_time_is_over() {
    let (mut cluster, ranks) = Cluster::of(2, &[0, 1]);
    let request = get(&proc("a", 1), "key", vec![seconds(3)]);
    let impatient = cluster.send(ranks[0], &request);
    let patient = ask(&mut cluster, ranks[0], 1, "key");
    cluster.pass(Duration::from_secs(3));
    assert_eq!(cluster.status(ranks[0], impatient), Some(Status::TIMEOUT));
    cluster.put(ranks[1], &[("key", 1)]);
    cluster.settle();
    assert_eq!(cluster.status(ranks[0], patient), Some(Status::SUCCESS));
    cluster.assert_no_state_left(&["a"]);
}

/// The process dies after a get and before another.
#[test]
pub(crate) fn the_target_dies() {
    let (mut cluster, ranks) = Cluster::of(2, &[0, 1, 1]);
    let tag = ask(&mut cluster, ranks[0], 1, "key");
    cluster.end(ranks[1], "a", 1, KILLED);
    assert_eq!(cluster.status(ranks[0], tag), Some(Status::NOT_FOUND));
    let late = ask(&mut cluster, ranks[0], 1, "key");
    assert_eq!(cluster.status(ranks[0], late), Some(Status::NOT_FOUND));
    // Values that it put before its death remain available.
    cluster.put(ranks[2], &[("key", 2)]);
    cluster.end(ranks[2], "a", 2, KILLED);
    assert_eq!(cluster.value(ranks[0], 2, "key"), Ok(2));
    cluster.assert_no_state_left(&["a"]);
}

/// A get times out, or the connection of its rank ends. The other node then drops the request, unless another rank shares it.
#[test]
fn nobody_waits_any_more() {
    let ends: [fn(&mut Cluster, RankConn); 2] = [
        |cluster, rank| cluster.end(rank, "a", 0, KILLED),
        |cluster, _| cluster.pass(Duration::from_secs(3)),
    ];
    for end in ends {
        let (mut cluster, ranks) = Cluster::of(2, &[0, 0, 1]);
        let brief = get(&proc("a", 2), "key", vec![seconds(3)]);
        cluster.send(ranks[0], &brief);
        let shared = cluster.send(ranks[0], &get(&proc("a", 2), "shared", vec![seconds(3)]));
        let waits = ask(&mut cluster, ranks[1], 2, "shared");
        end(&mut cluster, ranks[0]);
        // The number of answers shows which of the two requests was dropped.
        let said = cluster.said;
        cluster.put(ranks[2], &[("key", 1)]);
        cluster.settle();
        assert_eq!(cluster.said, said, "a question is answered that is over");
        cluster.put(ranks[2], &[("shared", 1)]);
        cluster.settle();
        assert_eq!(cluster.said, said + 1);
        assert_eq!(cluster.status(ranks[1], waits), Some(Status::SUCCESS));
        assert_ne!(cluster.status(ranks[0], shared), Some(Status::SUCCESS));
        cluster.assert_no_state_left(&["a"]);
    }
}

/// A rank that requested a refresh dies before the answer arrives.
#[test]
fn who_wants_it_anew_goes() {
    let (mut cluster, ranks) = Cluster::of(2, &[0, 1]);
    cluster.put(ranks[1], &[("key", 1)]);
    let refresh = Request::RefreshCache {
        nspace: nspace("a"),
        rank: proc("a", 1).rank,
    };
    cluster.send_only(ranks[0], &refresh);
    cluster.end(ranks[0], "a", 0, KILLED);
    cluster.assert_no_state_left(&["a"]);
}

/// The answer is in flight when the last waiting rank disconnects.
#[test]
fn an_answer_and_the_end_of_its_question_cross() {
    let (mut cluster, ranks) = Cluster::of(2, &[0, 1]);
    ask(&mut cluster, ranks[0], 1, "key");
    cluster.put(ranks[1], &[("key", 1)]);
    cluster.nodes[0].close(ranks[0].1);
    cluster.carry(1);
    cluster.settle();
    cluster.assert_no_state_left(&["a"]);
}

/// The job ends on the node that was asked, or on the one that asks.
#[test]
fn the_job_ends() {
    for node in [0, 1] {
        let (mut cluster, ranks) = Cluster::of(2, &[0, 1]);
        let tag = ask(&mut cluster, ranks[0], 1, "key");
        cluster.nodes[node].handle(Input::Deregister(nspace("a")));
        cluster.settle();
        assert_eq!(cluster.status(ranks[0], tag), Some(Status::NOT_FOUND));
        cluster.assert_no_state_left(&["a"]);
    }
}

#[test]
fn the_node_is_lost() {
    let (mut cluster, ranks) = Cluster::of(2, &[0, 1]);
    cluster.lose(1);
    let tag = ask(&mut cluster, ranks[0], 1, "key");
    assert_eq!(cluster.status(ranks[0], tag), Some(Status::LOST_CONNECTION));
}

/// A refresh returns the current value and not the cached one.
#[test]
fn anew() {
    let (mut cluster, ranks) = Cluster::of(2, &[0, 1]);
    let refresh = Request::RefreshCache {
        nspace: nspace("a"),
        rank: proc("a", 1).rank,
    };
    assert_eq!(cluster.status_of(ranks[0], &refresh), Status::NOT_FOUND);
    cluster.put(ranks[1], &[("key", 1)]);
    assert_eq!(cluster.value(ranks[0], 1, "key"), Ok(1));
    cluster.put(ranks[1], &[("key", 2)]);
    assert_eq!(cluster.value(ranks[0], 1, "key"), Ok(1));
    let Answer::Refreshed { status, facts } = cluster.ask(ranks[0], &refresh) else {
        panic!("it has no facts");
    };
    assert_eq!(status, Status::SUCCESS);
    assert_eq!(facts[0].value, Value::Uint32(2));
    assert_eq!(cluster.value(ranks[0], 1, "key"), Ok(2));
    cluster.assert_no_state_left(&["a"]);
}

/// Data from a fence answers an outstanding get.
#[test]
fn a_fence_is_faster() {
    let (mut cluster, ranks) = Cluster::of(2, &[0, 1]);
    let tag = ask(&mut cluster, ranks[0], 1, "key");
    // The test delays the answer to the get.
    cluster.put(ranks[1], &[("key", 1)]);
    let output = cluster.nodes[1].away.pop_front().unwrap();
    let fence = Request::Fence {
        procs: vec![all("a")],
        infos: vec![flag(keys::COLLECT_DATA)],
    };
    cluster.together(&ranks, &fence);
    assert_eq!(cluster.status(ranks[0], tag), Some(Status::SUCCESS));
    cluster.nodes[1].away.push_back(output);
    cluster.settle();
    cluster.assert_no_state_left(&["a"]);
}

/// A get for a key of any rank is answered when a fence brings the key from another node.
#[test]
fn whoever_has_put_it() {
    let (mut cluster, ranks) = Cluster::of(2, &[0, 1]);
    let anybody = pmix::value::Proc {
        nspace: nspace("a"),
        rank: pmix::value::PmixRank::UNDEF,
    };
    let tag = cluster.send(ranks[0], &get(&anybody, "key", Vec::new()));
    cluster.put(ranks[1], &[("key", 5)]);
    let fence = Request::Fence {
        procs: vec![all("a")],
        infos: vec![flag(keys::COLLECT_DATA)],
    };
    cluster.together(&ranks, &fence);
    let answer = cluster.answer(ranks[0], tag).unwrap();
    let format = cluster.nodes[0].format(ranks[0].1);
    let values = values_of(format, &answer, &proc("a", 1));
    assert_eq!(values["key"], Value::Uint32(5));
    cluster.assert_no_state_left(&["a"]);
}

/// The facts of all ranks are available on every node.
#[test]
fn facts_of_ranks_of_other_nodes() {
    let nodes = [1, 0, 1, 0];
    let (mut cluster, ranks) = Cluster::of(2, &nodes);
    for rank in &ranks {
        let format = cluster.nodes[rank.0].format(rank.1);
        for (of, node) in (0..).zip(nodes) {
            let local = RankFacts::clone(&job_on("a", &nodes, 0, 2).ranks[of as usize]).local_rank;
            for (name, expected) in [
                ("pmix.nodeid", Value::Uint32(node)),
                ("pmix.lrank", Value::Uint16(local)),
                ("pmix.hname", Value::text(&format!("node{node}"))),
            ] {
                let answer = cluster.ask(*rank, &get(&proc("a", of), name, Vec::new()));
                let values = values_of(format, &answer, &proc("a", of));
                assert_eq!(values[name], expected, "{name} of {of}");
            }
        }
    }
    cluster.assert_no_state_left(&["a"]);
}

/// A node answers only about its own processes, and answers every request, even a malformed one.
#[test]
fn questions_that_make_no_sense() {
    let (mut cluster, ranks) = Cluster::of(2, &[0, 1]);
    // The last one is a construction without callers.
    let questions: [(&[u8], Status); 4] = [
        (b"", Status::UNPACK_FAILURE),
        (b"nonsense", Status::UNPACK_FAILURE),
        (&[0xff; 40], Status::UNPACK_FAILURE),
        (b"\x02\x01\x02\x02\0\x02\0\x02\0\x82\0\0", Status::BAD_PARAM),
    ];
    for (question, status) in questions {
        cluster.nodes[1].handle(Input::Question {
            node: 0,
            ticket: pmix::server::QuestionTicket(7),
            question,
        });
        let output = cluster.nodes[1].away.pop_front().unwrap();
        let Output::QuestionAnswered { result, .. } = output else {
            panic!("{output:?}");
        };
        assert_eq!(result, Err(status));
    }
    // An answer to an unknown request.
    cluster.inboxes[0].push_back(ToNode::QuestionAnswered(
        pmix::server::QuestionTicket(7),
        Err(Status::NOT_FOUND),
    ));
    cluster.settle();
    // Malformed data.
    let tag = ask(&mut cluster, ranks[0], 1, "key");
    let ticket = pmix::server::QuestionTicket(0);
    cluster.nodes[0].handle(Input::QuestionAnswered {
        ticket,
        result: Ok(&[0xff; 10]),
    });
    assert_eq!(cluster.status(ranks[0], tag), Some(Status::UNPACK_FAILURE));
    cluster.assert_no_state_left(&["a"]);
}

/// Limits on the requests about all processes of other nodes, and about one of them. Requests of closed connections do not count.
#[test]
fn too_many_questions() {
    const ASKERS: usize = 5;
    let targets = MAX_QUESTIONS / MAX_QUESTIONS_ABOUT + 2;
    let nodes = [vec![0; ASKERS], vec![1; targets]].concat();
    let (mut cluster, ranks) = Cluster::of(2, &nodes);
    let about = |target: usize| proc("a", u32::try_from(ASKERS + target).unwrap());
    let question = |number: usize| {
        let target = about(number / MAX_QUESTIONS_ABOUT);
        get(&target, &format!("key {number}"), Vec::new())
    };
    for number in 0..MAX_QUESTIONS_ABOUT {
        cluster.send_only(ranks[number / 4000], &question(number));
    }
    let more = get(&about(0), "more", Vec::new());
    assert_eq!(
        cluster.status_of(ranks[ASKERS - 1], &more),
        Status::OUT_OF_RESOURCE
    );
    for number in MAX_QUESTIONS_ABOUT..MAX_QUESTIONS {
        cluster.send_only(ranks[number / 4000], &question(number));
    }
    let more = get(&about(targets - 1), "more", Vec::new());
    assert_eq!(
        cluster.status_of(ranks[ASKERS - 1], &more),
        Status::OUT_OF_RESOURCE
    );
    let (node, conn) = ranks[0];
    cluster.nodes[node].close(conn);
    for more in [more, get(&about(0), "more", Vec::new())] {
        let tag = cluster.send(ranks[ASKERS - 1], &more);
        assert_eq!(cluster.answer(ranks[ASKERS - 1], tag), None);
    }
    cluster.assert_no_state_left(&["a"]);
}

#[test]
fn a_question_that_is_too_long() {
    let (mut cluster, ranks) = Cluster::of(2, &[0, 1]);
    let long = Value::ByteObject(vec![0; MAX_QUESTION].into());
    let mut qualifier = crate::world::info(c"color", long);
    qualifier.flags = pmix::value::InfoFlags::QUALIFIER;
    let request = get(&proc("a", 1), "key", vec![qualifier]);
    assert_eq!(
        cluster.status_of(ranks[0], &request),
        Status::OUT_OF_RESOURCE
    );
    assert_eq!(cluster.said, 0);
    cluster.assert_no_state_left(&["a"]);
}

/// A value with qualifiers is also found on another node.
#[test]
fn qualified_values() {
    let (mut cluster, ranks) = Cluster::of(2, &[0, 1]);
    let mut qualifier = crate::world::info(c"color", Value::Uint32(3));
    qualifier.flags = pmix::value::InfoFlags::QUALIFIER;
    let value = crate::world::info(c"shape", Value::Uint32(9));
    let kval = pmix::value::Kval {
        key: key(keys::QUALIFIED_VALUE.to_str().unwrap()),
        value: Value::infos(vec![value, qualifier.clone()]),
    };
    let format = cluster.nodes[1].format(ranks[1].1);
    let request = crate::world::commit_of(format, pmix::value::Scope::GLOBAL, &[kval]);
    let (node, conn) = ranks[1];
    assert_eq!(
        cluster.nodes[node].status_of(conn, &request),
        Status::SUCCESS
    );
    let request = get(&proc("a", 1), "shape", vec![qualifier]);
    assert_eq!(cluster.status_of(ranks[0], &request), Status::SUCCESS);
    cluster.assert_no_state_left(&["a"]);
}
