//! Fences and other collectives over several nodes.

use std::time::Duration;

use base::ExitStatus;
use pmix::{
    keys,
    message::{Answer, Request},
    server::{Conn, Input, LOST_DELAY},
    value::{Kval, PmixRank, Proc, Scope, Status, Value},
};

use crate::{
    cluster::{Cluster, with},
    world::{KILLED, all, commit, commit_of, fence, flag, key, nspace, proc, seconds, text},
};

/// Returns a request of each collective that can span nodes, over these processes.
pub(crate) fn kinds(procs: &[Proc]) -> [(&'static str, Request); 5] {
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

fn collecting(procs: &[Proc]) -> Request {
    with(&fence(procs), flag(keys::COLLECT_DATA))
}

/// Whichever rank calls last, no rank is answered before it, and all are answered then.
#[test]
pub(crate) fn all_come() {
    let (mut cluster, ranks) = Cluster::of(3, &[0, 0, 1, 1, 2]);
    for (kind, request) in kinds(&[all("a")]) {
        for last in 0..ranks.len() {
            let order: Vec<_> = (0..ranks.len())
                .map(|at| ranks[(last + 1 + at) % ranks.len()])
                .collect();
            let (final_one, others) = order.split_last().unwrap();
            let tags: Vec<u32> = others
                .iter()
                .map(|rank| cluster.send(*rank, &request))
                .collect();
            for (rank, tag) in others.iter().zip(&tags) {
                assert_eq!(cluster.answer(*rank, *tag), None, "{kind}");
            }
            assert_eq!(
                cluster.status_of(*final_one, &request),
                Status::SUCCESS,
                "{kind}"
            );
            for (rank, tag) in others.iter().zip(tags) {
                assert_eq!(cluster.status(*rank, tag), Some(Status::SUCCESS), "{kind}");
            }
        }
    }
    cluster.assert_no_state_left(&["a"]);
}

/// A fence of ranks on one node sends nothing to other nodes.
#[test]
fn what_is_on_one_node_does_not_leave_it() {
    let (mut cluster, ranks) = Cluster::of(2, &[0, 0, 1]);
    for (kind, request) in kinds(&[proc("a", 0), proc("a", 1)]) {
        let told = cluster.together(&ranks[..2], &request);
        assert_eq!(told, [Some(Status::SUCCESS); 2], "{kind}");
    }
    let peers = Proc {
        nspace: nspace("a"),
        rank: PmixRank::LOCAL_PEERS,
    };
    cluster.together(&ranks[..2], &fence(&[peers]));
    assert_eq!(cluster.said, 0);
    cluster.assert_no_state_left(&["a"]);
}

#[test]
fn who_is_meant_must_be_the_same_everywhere() {
    let (mut cluster, ranks) = Cluster::of(2, &[0, 0, 1]);
    let peers = Proc {
        nspace: nspace("a"),
        rank: PmixRank::LOCAL_PEERS,
    };
    // The local peers of ranks 0 and 1 are these ranks, on every node.
    let relative = cluster.send(ranks[0], &fence(&[peers.clone(), proc("a", 2)]));
    let named = fence(&[proc("a", 0), proc("a", 1), proc("a", 2)]);
    let second = cluster.send(ranks[1], &named);
    assert_eq!(cluster.status_of(ranks[2], &named), Status::SUCCESS);
    for (rank, tag) in [(ranks[0], relative), (ranks[1], second)] {
        assert_eq!(cluster.status(rank, tag), Some(Status::SUCCESS));
    }
    assert_eq!(
        cluster.status_of(ranks[2], &fence(&[peers])),
        Status::SUCCESS
    );
    let beyond = fence(&[proc("a", 0), proc("a", 3)]);
    assert_eq!(cluster.status_of(ranks[0], &beyond), Status::BAD_PARAM);
    cluster.assert_no_state_left(&["a"]);
}

/// After the fence every node has the values that each rank put, without asking for them.
#[test]
fn data_goes_both_ways() {
    let (mut cluster, ranks) = Cluster::of(2, &[0, 1, 0, 1]);
    for (number, rank) in (0..).zip(&ranks) {
        cluster.put(*rank, &[("key", 100 + number)]);
    }
    let told = cluster.together(&ranks, &collecting(&[all("a")]));
    assert_eq!(told.last(), Some(&Some(Status::SUCCESS)));
    let said = cluster.said;
    for rank in &ranks {
        for of in 0..4 {
            assert_eq!(cluster.value(*rank, of, "key"), Ok(100 + of));
        }
    }
    assert_eq!(cluster.said, said, "somebody asked another node");
    cluster.assert_no_state_left(&["a"]);
}

/// Local data stays on the node, and remote data is hidden from ranks on the same node.
#[test]
pub(crate) fn scopes() {
    let (mut cluster, ranks) = Cluster::of(2, &[0, 0, 1]);
    let (node, conn) = ranks[0];
    let format = cluster.nodes[node].format(conn);
    for (scope, key) in [
        (Scope::LOCAL, "local"),
        (Scope::REMOTE, "remote"),
        (Scope::GLOBAL, "global"),
    ] {
        let request = commit(format, scope, &[(key, 7)]);
        assert_eq!(
            cluster.nodes[node].status_of(conn, &request),
            Status::SUCCESS
        );
    }
    cluster.together(&ranks, &collecting(&[all("a")]));
    let cases = [
        // The missing values come first: later gets may ask the other node, and its answer would hide a mistake of the fence.
        (ranks[2], "local", None),
        (ranks[1], "remote", None),
        (ranks[1], "local", Some(Ok(7))),
        (ranks[1], "global", Some(Ok(7))),
        (ranks[2], "remote", Some(Ok(7))),
        (ranks[2], "global", Some(Ok(7))),
    ];
    for (rank, key, expected) in cases {
        match expected {
            Some(value) => assert_eq!(cluster.value(rank, 0, key), value, "{key}"),
            None => {
                let request = crate::world::get(&proc("a", 0), key, Vec::new());
                let tag = cluster.send(rank, &request);
                assert_eq!(cluster.answer(rank, tag), None, "{key}");
                cluster.pass(pmix::server::MISSING_KEY_DELAY);
                assert_eq!(cluster.status(rank, tag), Some(Status::NOT_FOUND), "{key}");
            }
        }
    }
    cluster.assert_no_state_left(&["a"]);
}

/// Later data replaces earlier data.
#[test]
fn data_of_the_second_fence() {
    let (mut cluster, ranks) = Cluster::of(2, &[0, 1]);
    for round in 0..3 {
        cluster.put(ranks[0], &[("key", round)]);
        cluster.together(&ranks, &collecting(&[all("a")]));
        assert_eq!(cluster.value(ranks[1], 0, "key"), Ok(round));
    }
    cluster.assert_no_state_left(&["a"]);
}

#[test]
fn some_want_data_and_others_do_not() {
    let (mut cluster, ranks) = Cluster::of(2, &[0, 1]);
    let tag = cluster.send(ranks[0], &collecting(&[all("a")]));
    let last = cluster.status_of(ranks[1], &fence(&[all("a")]));
    assert_eq!(last, Status::INVALID_ARG);
    assert_eq!(cluster.status(ranks[0], tag), Some(Status::INVALID_ARG));
    // It is enough if the ranks of one node disagree.
    let (mut cluster, ranks) = Cluster::of(2, &[0, 1, 1]);
    let tags = [
        cluster.send(ranks[0], &fence(&[all("a")])),
        cluster.send(ranks[1], &collecting(&[all("a")])),
        cluster.send(ranks[2], &fence(&[all("a")])),
    ];
    for (rank, tag) in ranks.iter().zip(tags) {
        assert_eq!(cluster.status(*rank, tag), Some(Status::INVALID_ARG));
    }
    cluster.assert_no_state_left(&["a"]);
}

/// A rank may call the next fence before others have called the first.
#[test]
fn two_fences_over_the_same_members() {
    let (mut cluster, ranks) = Cluster::of(2, &[0, 1]);
    let request = fence(&[all("a")]);
    let early = [
        cluster.send(ranks[0], &request),
        cluster.send(ranks[0], &request),
    ];
    assert_eq!(cluster.status_of(ranks[1], &request), Status::SUCCESS);
    assert_eq!(cluster.status(ranks[0], early[0]), Some(Status::SUCCESS));
    assert_eq!(cluster.answer(ranks[0], early[1]), None);
    assert_eq!(cluster.status_of(ranks[1], &request), Status::SUCCESS);
    assert_eq!(cluster.status(ranks[0], early[1]), Some(Status::SUCCESS));
    cluster.assert_no_state_left(&["a"]);
}

/// A rank on another node is lost without having called, in several ways, before and after others have called.
#[test]
pub(crate) fn a_member_that_has_not_called_is_lost() {
    type Loss = fn(&mut Cluster, (usize, Conn));
    let losses: [(&str, Loss); 3] = [
        ("killed", |cluster, rank| cluster.end(rank, "a", 2, KILLED)),
        ("finalizes and exits", |cluster, rank| {
            cluster.nodes[rank.0].finalize(rank.1);
            cluster.end(rank, "a", 2, ExitStatus::SUCCESS);
        }),
        ("closes", |cluster, (node, conn)| {
            cluster.nodes[node].close(conn);
            cluster.pass(LOST_DELAY);
        }),
    ];
    for (how, lose) in losses {
        for (kind, request) in kinds(&[all("a")]) {
            // The lost rank is alone on its node, or with a rank that called before the loss, or calls after it.
            for (ranks, early) in [
                (&[0, 0, 1][..], &[0, 1][..]),
                (&[0, 1, 1], &[0, 1]),
                (&[0, 1, 1], &[0]),
                (&[0, 1, 1], &[1]),
            ] {
                let (mut cluster, conns) = Cluster::of(2, ranks);
                let waits: Vec<(usize, u32)> = early
                    .iter()
                    .map(|rank| (*rank, cluster.send(conns[*rank], &request)))
                    .collect();
                lose(&mut cluster, conns[2]);
                let expected = match kind {
                    "destruct" => Status::SUCCESS,
                    _ => Status::LOST_CONNECTION,
                };
                for rank in [0, 1].iter().filter(|rank| !early.contains(rank)) {
                    let told = cluster.status_of(conns[*rank], &request);
                    assert_eq!(told, expected, "{kind}, {how}, {ranks:?}, {early:?}");
                }
                for (rank, tag) in waits {
                    let told = cluster.status(conns[rank], tag);
                    assert_eq!(told, Some(expected), "{kind}, {how}, {ranks:?}, {early:?}");
                }
                // The survivors can continue without it.
                let living = [proc("a", 0), proc("a", 1)];
                let told = cluster.together(&conns[..2], &fence(&living));
                assert_eq!(told[1], Some(Status::SUCCESS), "{kind}, {how}");
                cluster.assert_no_state_left(&["a"]);
            }
        }
    }
}

#[test]
fn a_member_that_waits_is_lost() {
    for (kind, request) in kinds(&[all("a")]) {
        let (mut cluster, ranks) = Cluster::of(3, &[0, 1, 2]);
        let waits = cluster.send(ranks[0], &request);
        cluster.send(ranks[1], &request);
        cluster.end(ranks[1], "a", 1, KILLED);
        let last = cluster.send(ranks[2], &request);
        // It had called the fence before it died. But a group or connection cannot include a dead process.
        let expected = match kind {
            "connect" | "construct" => Status::LOST_CONNECTION,
            _ => Status::SUCCESS,
        };
        assert_eq!(cluster.status(ranks[0], waits), Some(expected), "{kind}");
        assert_eq!(cluster.status(ranks[2], last), Some(expected), "{kind}");
        cluster.assert_no_state_left(&["a"]);
    }
}

/// One rank has called twice, and the other has died after its first call: the first fence completes, the second fails.
#[test]
fn the_second_fence_has_a_dead_member() {
    let (mut cluster, ranks) = Cluster::of(2, &[0, 1]);
    let request = fence(&[all("a")]);
    let tags = [
        cluster.send(ranks[0], &request),
        cluster.send(ranks[0], &request),
    ];
    cluster.send(ranks[1], &request);
    cluster.end(ranks[1], "a", 1, KILLED);
    assert_eq!(cluster.status(ranks[0], tags[0]), Some(Status::SUCCESS));
    assert_eq!(
        cluster.status(ranks[0], tags[1]),
        Some(Status::LOST_CONNECTION)
    );
    cluster.assert_no_state_left(&["a"]);
}

/// A time-out answers the ranks that wait with the one that timed out, and the next fence is a new one.
#[test]
fn timeouts() {
    // A rank that calls with a time-out, and one that calls without; the other ranks do not call.
    for (ranks, impatient, patient) in [
        (&[0, 1][..], 0, None),
        (&[0, 1, 2], 0, Some(1)),
        (&[0, 0, 1, 1], 0, Some(2)),
        (&[0, 0, 1], 0, Some(2)),
    ] {
        for (kind, request) in kinds(&[all("a")]) {
            let (mut cluster, conns) = Cluster::of(3, ranks);
            let waits = patient.map(|rank| (rank, cluster.send(conns[rank], &request)));
            let tag = cluster.send(conns[impatient], &with(&request, seconds(3)));
            cluster.pass(Duration::from_millis(2900));
            assert_eq!(cluster.answer(conns[impatient], tag), None, "{kind}");
            cluster.pass(Duration::from_millis(200));
            let told = cluster.status(conns[impatient], tag);
            assert_eq!(told, Some(Status::TIMEOUT), "{kind}, {ranks:?}");
            // The other rank is also answered if its node has sent its share, or if it waits for the share of the rank's own
            // node.
            if let Some((rank, tag)) = waits
                && ranks != [0, 0, 1, 1]
            {
                let told = cluster.status(conns[rank], tag);
                assert_eq!(told, Some(Status::TIMEOUT), "{kind}, {ranks:?}");
            }
            if patient.is_none() {
                let told = cluster.together(&conns, &fence(&[all("a")]));
                assert_eq!(told.last(), Some(&Some(Status::SUCCESS)), "{kind}");
            }
            cluster.assert_no_state_left(&["a"]);
        }
    }
}

#[test]
fn a_node_is_lost() {
    for ((kind, request), has_called) in kinds(&[all("a")])
        .into_iter()
        .flat_map(|kind| [(kind.clone(), false), (kind, true)])
    {
        let (mut cluster, ranks) = Cluster::of(3, &[0, 1, 2]);
        let waits = cluster.send(ranks[0], &request);
        if has_called {
            cluster.send(ranks[2], &request);
        }
        cluster.lose(2);
        // It had called and its share had arrived. But a group or connection cannot include a dead process.
        let expected = match kind {
            "fence" | "disconnect" | "destruct" if has_called => Status::SUCCESS,
            _ => Status::LOST_CONNECTION,
        };
        let late = cluster.status_of(ranks[1], &request);
        assert_eq!(late, expected, "{kind}");
        let told = cluster.status(ranks[0], waits);
        assert_eq!(told, Some(expected), "{kind}");
        let again = cluster.status_of(ranks[1], &request);
        assert_eq!(again, Status::LOST_CONNECTION, "{kind}");
        let others = [proc("a", 0), proc("a", 1)];
        let told = cluster.together(&ranks[..2], &fence(&others));
        assert_eq!(told[1], Some(Status::SUCCESS), "{kind}");
    }
}

/// Ranks that wait for others on their own node also get an error immediately.
#[test]
fn who_waits_for_its_own_node_is_told() {
    for (kind, request) in kinds(&[all("a")]) {
        for loss in ["death before", "death after", "node before", "node after"] {
            let (mut cluster, ranks) = Cluster::of(2, &[0, 0, 1]);
            let lose = |cluster: &mut Cluster| {
                if loss.starts_with("node") {
                    cluster.lose(1);
                } else {
                    cluster.end(ranks[2], "a", 2, KILLED);
                }
            };
            let is_before = loss.ends_with("before");
            if is_before {
                lose(&mut cluster);
            }
            let waits = cluster.send(ranks[0], &request);
            if !is_before {
                assert_eq!(cluster.answer(ranks[0], waits), None);
                lose(&mut cluster);
            }
            let told = cluster.status(ranks[0], waits);
            let expected = match (kind, loss) {
                // A destruct completes without the dead member and waits for the living ones.
                ("destruct", "death before" | "death after") => None,
                _ => Some(Status::LOST_CONNECTION),
            };
            assert_eq!(told, expected, "{kind}, {loss}");
            if told.is_none() {
                assert_eq!(cluster.status_of(ranks[1], &request), Status::SUCCESS);
            }
            cluster.assert_no_state_left(&["a"]);
        }
    }
}

/// A rank that waits and disconnects is not waited for, and the outcome still reaches its node.
#[test]
fn who_waits_for_its_own_node_goes_away() {
    let (mut cluster, ranks) = Cluster::of(2, &[0, 0, 1, 1]);
    cluster.end(ranks[3], "a", 3, KILLED);
    let living = [proc("a", 0), proc("a", 1), proc("a", 2)];
    cluster.send(ranks[0], &fence(&living));
    cluster.nodes[0].close(ranks[0].1);
    cluster.settle();
    let back = (0, cluster.nodes[0].connect("a", 0));
    let told = cluster.together(&[back, ranks[1], ranks[2]], &fence(&living));
    assert_eq!(told, [Some(Status::SUCCESS); 3]);
    cluster.assert_no_state_left(&["a"]);
}

/// The job ends on one node while its ranks on another node wait.
#[test]
fn a_job_ends_on_one_node() {
    for (kind, request) in kinds(&[all("a")]) {
        let (mut cluster, ranks) = Cluster::of(2, &[0, 0, 1]);
        let tags = [
            cluster.send(ranks[0], &request),
            cluster.send(ranks[2], &request),
        ];
        cluster.nodes[0].handle(Input::Deregister(nspace("a")));
        cluster.settle();
        for (rank, tag) in [ranks[0], ranks[2]].iter().zip(tags) {
            let told = cluster.status(*rank, tag);
            assert_eq!(told, Some(Status::LOST_CONNECTION), "{kind}");
        }
        let late = cluster.status_of(ranks[2], &request);
        let expected = match kind {
            "destruct" => Status::SUCCESS,
            _ => Status::LOST_CONNECTION,
        };
        assert_eq!(late, expected, "{kind}");
        cluster.assert_no_state_left(&["a"]);
    }
}

/// Jobs on different nodes connect, get each other's facts and data, and disconnect.
#[test]
fn jobs_of_two_nodes_connect() {
    let jobs: [(&str, &[u32]); 2] = [("a", &[0, 0]), ("b", &[1, 1])];
    let mut cluster = Cluster::new(2, &jobs);
    let ranks = [
        cluster.connect_all("a", &[0, 0]),
        cluster.connect_all("b", &[1, 1]),
    ]
    .concat();
    let [_, (_, connect), (_, disconnect), ..] = kinds(&[all("a"), all("b")]);
    let tags: Vec<u32> = ranks
        .iter()
        .map(|rank| cluster.send(*rank, &connect))
        .collect();
    for (rank, tag) in ranks.iter().zip(tags) {
        let Some(Answer::Buffers { status, buffers }) = cluster.answer(*rank, tag) else {
            panic!("no facts");
        };
        assert_eq!(status, Status::SUCCESS);
        // The facts of the other job.
        assert_eq!(buffers.len(), 1);
    }
    let told = cluster.together(&ranks, &disconnect);
    assert_eq!(told.last(), Some(&Some(Status::SUCCESS)));
    cluster.assert_no_state_left(&["a", "b"]);
}

/// A share remains after its caller has disconnected, and is dropped with the job at the latest.
#[test]
fn a_share_outlives_its_callers() {
    let (mut cluster, ranks) = Cluster::of(2, &[0, 1]);
    let request = fence(&[all("a")]);
    cluster.send(ranks[0], &request);
    cluster.nodes[0].close(ranks[0].1);
    cluster.settle();
    // The reconnected rank counts as having called.
    let back = (0, cluster.nodes[0].connect("a", 0));
    assert_eq!(cluster.status_of(ranks[1], &request), Status::SUCCESS);
    let told = cluster.together(&[back, ranks[1]], &request);
    assert_eq!(told[1], Some(Status::SUCCESS));
    cluster.assert_no_state_left(&["a"]);
}

#[test]
fn too_many_wait_for_other_nodes() {
    let (mut cluster, ranks) = Cluster::of(2, &[0, 1]);
    let (node, mut conn) = ranks[0];
    let request = fence(&[all("a")]);
    for number in 0..pmix::server::MAX_SENT {
        // A connection can have only this many requests outstanding.
        if number % 4000 == 3999 {
            cluster.nodes[node].close(conn);
            conn = cluster.nodes[node].connect("a", 0);
        }
        cluster.send((node, conn), &request);
    }
    let one_more = cluster.status_of((node, conn), &request);
    assert_eq!(one_more, Status::OUT_OF_RESOURCE);
    cluster.assert_no_state_left(&["a"]);
}

/// Data that exceeds the room of a fence is requested when a rank wants it.
#[test]
fn data_without_room() {
    let (mut cluster, ranks) = Cluster::of(2, &[0, 0, 0, 0, 1]);
    let large = vec![7; pmix::server::MAX_SENT_BYTES * 2 / 7];
    for (node, conn) in &ranks[..4] {
        let kval = Kval {
            key: key("key"),
            value: Value::ByteObject(large.clone().into()),
        };
        let format = cluster.nodes[*node].format(*conn);
        let request = commit_of(format, Scope::GLOBAL, &[kval]);
        assert_eq!(
            cluster.nodes[*node].status_of(*conn, &request),
            Status::SUCCESS
        );
    }
    // Each fence has one of the first four ranks and the rank on the other node. Three fit, and the fourth transmits no data.
    let request = |rank: u32| collecting(&[proc("a", rank), proc("a", 4)]);
    for rank in 0..4 {
        cluster.send(ranks[rank as usize], &request(rank));
    }
    for rank in 0..4 {
        assert_eq!(cluster.status_of(ranks[4], &request(rank)), Status::SUCCESS);
    }
    let said = cluster.said;
    for (rank, asks) in [(0, false), (1, false), (2, false), (3, true)] {
        let get = crate::world::get(&proc("a", rank), "key", Vec::new());
        assert_eq!(cluster.status_of(ranks[4], &get), Status::SUCCESS);
        assert_eq!(cluster.said > said, asks, "{rank}");
    }
    cluster.assert_no_state_left(&["a"]);
}
