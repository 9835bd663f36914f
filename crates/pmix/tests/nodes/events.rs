//! Events for processes on other nodes.

use base::ExitStatus;
use pmix::{
    keys,
    message::Request,
    server::{Event, Input},
    value::{Info, Proc, Range, Status, Value},
};

use crate::{
    cluster::{Cluster, RankConn, job_on},
    world::{KILLED, all, info, proc},
};

const CODE: Status = Status(-3000);

fn notify(range: Range, infos: Vec<Info>) -> Request {
    Request::Notify {
        status: CODE,
        range,
        infos,
    }
}

/// An event of `a:0` reaches the right ranks, and takes the expected number of messages. `a:0` and `a:1` are on this node, `a:2`
/// and `b:0` on the next, `b:1` on the last.
#[test]
fn ranges() {
    let to = |procs: Vec<Proc>| vec![info(keys::EVENT_CUSTOM_RANGE, Value::procs(procs))];
    let nobody = [false; 5];
    let others = [false, true, true, true, true];
    let cases: [(Range, Vec<Info>, [bool; 5], usize); 10] = [
        (Range::UNDEF, Vec::new(), others, 1),
        (Range::RM, Vec::new(), nobody, 0),
        (
            Range::LOCAL,
            Vec::new(),
            [false, true, false, false, false],
            0,
        ),
        (
            Range::NAMESPACE,
            Vec::new(),
            [false, true, true, false, false],
            1,
        ),
        (Range::SESSION, Vec::new(), others, 1),
        (Range::GLOBAL, Vec::new(), others, 1),
        (Range::PROC_LOCAL, Vec::new(), nobody, 0),
        (
            Range::CUSTOM,
            to(vec![proc("a", 1)]),
            [false, true, false, false, false],
            0,
        ),
        (
            Range::CUSTOM,
            to(vec![proc("a", 2), all("b")]),
            [false, false, true, true, true],
            1,
        ),
        (
            Range::CUSTOM,
            to(vec![proc("b", 1)]),
            [false, false, false, false, true],
            1,
        ),
    ];
    for (range, infos, expected, messages) in cases {
        let jobs: [(&str, &[u32]); 2] = [("a", &[0, 0, 1]), ("b", &[1, 2])];
        let mut cluster = Cluster::new(3, &jobs);
        let ranks: Vec<RankConn> = [
            cluster.connect_all("a", &[0, 0, 1]),
            cluster.connect_all("b", &[1, 2]),
        ]
        .concat();
        for (node, conn) in &ranks {
            cluster.nodes[*node].register(*conn, &[CODE]);
        }
        let told = cluster.status_of(ranks[0], &notify(range, infos));
        assert_eq!(told, Status::SUCCESS);
        for ((node, conn), expected) in ranks.iter().zip(expected) {
            let heard = cluster.nodes[*node].codes(*conn);
            let expected: &[Status] = if expected { &[CODE] } else { &[] };
            assert_eq!(heard, expected, "{range:?}: {conn:?} of {node}");
        }
        // The event is sent to the controller at most once, and no other node sends it on.
        assert_eq!(cluster.said, messages, "{range:?}");
        cluster.assert_no_state_left(&["a", "b"]);
    }
}

/// A handler registered later still gets an event from another node.
#[test]
fn an_event_is_kept_on_every_node() {
    let (mut cluster, ranks) = Cluster::of(2, &[0, 1]);
    cluster.status_of(ranks[0], &notify(Range::NAMESPACE, Vec::new()));
    let (node, conn) = ranks[1];
    cluster.nodes[node].register(conn, &[CODE]);
    assert_eq!(cluster.nodes[node].codes(conn), [CODE]);
    cluster.assert_no_state_left(&["a"]);
}

/// A node does not send an event from its host back to the host.
#[test]
pub(crate) fn no_echo() {
    let (mut cluster, ranks) = Cluster::of(2, &[0, 1]);
    let (node, conn) = ranks[1];
    cluster.nodes[node].register(conn, &[CODE]);
    let event = Event {
        status: CODE,
        source: proc("a", 0),
        range: Range::SESSION,
        infos: Vec::new(),
    };
    cluster.nodes[1].handle(Input::Event(Box::new(event)));
    cluster.settle();
    assert_eq!(cluster.said, 0);
    assert_eq!(cluster.nodes[node].codes(conn), [CODE]);
    cluster.assert_no_state_left(&["a"]);
}

/// The end of a process is reported on the nodes of its job, of its spawner's job, and of connected jobs.
#[test]
fn ends() {
    let jobs: [(&str, &[u32]); 2] = [("a", &[0, 1]), ("b", &[2])];
    for connected in [false, true] {
        let mut cluster = Cluster::new(3, &jobs);
        let ranks = [
            cluster.connect_all("a", &[0, 1]),
            cluster.connect_all("b", &[2]),
        ]
        .concat();
        let codes = [Status::PROC_ABORTED_BY_SIG, Status::PROC_TERM_WO_SYNC];
        for (node, conn) in &ranks {
            cluster.nodes[*node].register(*conn, &codes);
        }
        if connected {
            let connect = Request::Connect {
                procs: vec![all("a"), all("b")],
                infos: Vec::new(),
                data: Vec::new(),
            };
            cluster.together(&ranks, &connect);
        }
        cluster.end(ranks[0], "a", 0, KILLED);
        let heard: Vec<Vec<Status>> = ranks[1..]
            .iter()
            .map(|(node, conn)| cluster.nodes[*node].codes(*conn))
            .collect();
        assert!(heard[0].contains(&Status::PROC_ABORTED_BY_SIG));
        assert_eq!(heard[1].contains(&Status::PROC_TERM_WO_SYNC), connected);
        cluster.assert_no_state_left(&["a", "b"]);
    }
}

/// A regular end takes a message to other nodes only after a process there has registered for it.
#[test]
fn regular_ends() {
    let code = Status::EVENT_PROC_TERMINATED;
    for wanted in [false, true] {
        let mut cluster = Cluster::new(3, &[("a", &[0, 1, 2])]);
        let ranks: [RankConn; 2] = [1, 2].map(|rank: u32| {
            let node = rank as usize;
            (node, cluster.nodes[node].connect("a", rank))
        });
        if wanted {
            let (node, conn) = ranks[0];
            cluster.nodes[node].register(conn, &[code]);
            cluster.settle();
        }
        let before = cluster.said;
        cluster.nodes[0].end("a", 0, ExitStatus::SUCCESS);
        cluster.settle();
        let heard = ranks
            .iter()
            .map(|(node, conn)| cluster.nodes[*node].codes(*conn));
        let heard: Vec<Vec<Status>> = heard.collect();
        let expected = if wanted { vec![code] } else { Vec::new() };
        assert_eq!(heard, [expected, Vec::new()]);
        // The other message says that a member is gone.
        assert_eq!(cluster.said - before, 1 + usize::from(wanted));
        cluster.assert_no_state_left(&["a"]);
    }
}

/// A job that comes later has the other nodes.
#[test]
fn ends_are_wanted_before_there_are_other_nodes() {
    let code = Status::EVENT_PROC_TERMINATED;
    let mut cluster = Cluster::new(2, &[("a", &[0])]);
    let (node, conn) = cluster.connect_all("a", &[0])[0];
    cluster.nodes[node].register(conn, &[code]);
    cluster.settle();
    assert_eq!(cluster.said, 0);
    for here in [0, 1] {
        let mut job = job_on("b", &[0, 1], here, 2);
        job.parent = Some(proc("a", 0));
        cluster.nodes[here as usize].handle(Input::Register(Box::new(job)));
    }
    cluster.settle();
    cluster.nodes[1].end("b", 1, ExitStatus::SUCCESS);
    cluster.settle();
    assert_eq!(cluster.nodes[node].codes(conn), [code]);
}
