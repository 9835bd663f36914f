//! Queries about processes on other nodes, which the host answers.

use pmix::{
    keys,
    message::{Answer, Request},
    server::{Ask, Input, Ticket},
    value::{DataType, Elements, Info, ProcInfo, ProcState, Query, Status, Value},
};

use crate::{
    cluster::{Cluster, RankConn},
    world::{info, proc, text},
};

fn query(key: &std::ffi::CStr, qualifiers: Vec<Info>) -> Request {
    Request::Query {
        queries: vec![Query {
            keys: vec![Some(key.to_owned())],
            qualifiers,
        }],
    }
}

/// Returns what a node asks its host.
fn asked(cluster: &mut Cluster, node: usize) -> (Ticket, Request) {
    let Ask {
        ticket, request, ..
    } = cluster.nodes[node].asks.pop().unwrap();
    (ticket, request)
}

/// Answers as a controller does: with pids and states of all ranks, without hosts and programs.
fn answer(cluster: &mut Cluster, node: usize, ticket: Ticket, rows: &[(u32, u32, ProcState)]) {
    let rows = rows.iter().map(|(rank, pid, state)| {
        Value::ProcInfo(Box::new(ProcInfo {
            proc: proc("a", *rank),
            hostname: None,
            executable: None,
            pid: *pid,
            state: *state,
        }))
    });
    let rows = Value::array(DataType::PROC_INFO, rows.collect());
    let answer = Answer::Infos {
        status: Status::SUCCESS,
        infos: vec![info(keys::QUERY_PROC_TABLE, rows)],
    };
    cluster.nodes[node].handle(Input::Answer { ticket, answer });
}

/// Formats the rows of a process table.
fn table(cluster: &mut Cluster, rank: RankConn, tag: u32) -> String {
    let Some(Answer::Infos { infos, .. }) = cluster.answer(rank, tag) else {
        panic!("no infos");
    };
    let Value::Array(array) = &infos[0].value else {
        panic!("no array");
    };
    let Elements::Values(rows) = &array.elements else {
        panic!("no values");
    };
    let row = |row: &Value| {
        let Value::ProcInfo(row) = row else {
            panic!("no row");
        };
        let host = row.hostname.as_ref().map(|host| host.to_str().unwrap());
        let ProcInfo {
            proc, pid, state, ..
        } = &**row;
        format!("{proc} on {}: {pid}, {state:?}", host.unwrap())
    };
    rows.iter().map(row).collect::<Vec<_>>().join("\n")
}

const THREE: [(u32, u32, ProcState); 3] = [
    (0, 1, ProcState::RUNNING),
    (1, 20, ProcState::RUNNING),
    (2, 30, ProcState::TERMINATED),
];

/// The host knows the processes of other nodes. The server itself knows its own better.
#[test]
fn the_table_has_the_processes_of_all_nodes() {
    let (mut cluster, ranks) = Cluster::of(3, &[0, 1, 2]);
    let tag = cluster.send_only(ranks[0], &query(keys::QUERY_PROC_TABLE, Vec::new()));
    assert_eq!(cluster.answer(ranks[0], tag), None);
    let (ticket, request) = asked(&mut cluster, 0);
    let of = vec![info(keys::NSPACE, Value::String(text("a")))];
    assert_eq!(request, query(keys::QUERY_PROC_TABLE, of));
    answer(&mut cluster, 0, ticket, &THREE);
    insta::assert_snapshot!(table(&mut cluster, ranks[0], tag), @"
    a:0 on node0: 0, CONNECTED
    a:1 on node1: 20, RUNNING
    a:2 on node2: 30, TERMINATED
    ");
    cluster.assert_no_state_left(&["a"]);
}

/// The table of a node is asked for only if it is another node.
#[test]
fn the_table_of_a_node() {
    let (mut cluster, ranks) = Cluster::of(3, &[0, 1, 2]);
    let tag = cluster.send(ranks[1], &query(keys::QUERY_LOCAL_PROC_TABLE, Vec::new()));
    insta::assert_snapshot!(table(&mut cluster, ranks[1], tag), @"a:1 on node1: 0, CONNECTED");
    let there = vec![info(keys::HOSTNAME, Value::String(text("node2")))];
    let tag = cluster.send_only(ranks[1], &query(keys::QUERY_LOCAL_PROC_TABLE, there));
    let (ticket, _) = asked(&mut cluster, 1);
    answer(&mut cluster, 1, ticket, &THREE);
    insta::assert_snapshot!(table(&mut cluster, ranks[1], tag), @"a:2 on node2: 30, TERMINATED");
    cluster.assert_no_state_left(&["a"]);
}

#[test]
fn the_pid_of_a_process_on_another_node() {
    let (mut cluster, ranks) = Cluster::of(2, &[0, 1, 1]);
    for (rank, expected) in [(1, Status::SUCCESS), (2, Status::NOT_FOUND)] {
        let of = vec![info(keys::PROC_ID, Value::Proc(Box::new(proc("a", rank))))];
        let tag = cluster.send_only(ranks[0], &query(keys::PROC_PID, of));
        let (ticket, _) = asked(&mut cluster, 0);
        let rows = [(1, 20, ProcState::RUNNING), (2, 0, ProcState::PREPPED)];
        answer(&mut cluster, 0, ticket, &rows);
        let answer = cluster.answer(ranks[0], tag).unwrap();
        assert_eq!(answer.status(), expected);
        if let Answer::Infos { infos, .. } = answer {
            let found = infos.into_iter().map(|info| info.value);
            let pid = (rank == 1).then_some(Value::Pid(20));
            assert_eq!(found.collect::<Vec<_>>(), Vec::from_iter(pid));
        }
    }
    cluster.assert_no_state_left(&["a"]);
}

/// Without an answer of the host, the table has the local processes.
#[test]
fn a_host_that_knows_nothing() {
    let (mut cluster, ranks) = Cluster::of(2, &[0, 1]);
    let tag = cluster.send_only(ranks[0], &query(keys::QUERY_PROC_TABLE, Vec::new()));
    let (ticket, _) = asked(&mut cluster, 0);
    let answer = Answer::Status(Status::NOT_FOUND);
    cluster.nodes[0].handle(Input::Answer { ticket, answer });
    insta::assert_snapshot!(table(&mut cluster, ranks[0], tag), @"a:0 on node0: 0, CONNECTED");
    cluster.assert_no_state_left(&["a"]);
}

/// A client that leaves gets no answer, and the host may still answer.
#[test]
fn a_client_that_leaves() {
    let (mut cluster, ranks) = Cluster::of(2, &[0, 1]);
    cluster.send_only(ranks[0], &query(keys::QUERY_PROC_TABLE, Vec::new()));
    let (ticket, _) = asked(&mut cluster, 0);
    let (node, conn) = ranks[0];
    cluster.nodes[node].close(conn);
    answer(&mut cluster, 0, ticket, &THREE);
    cluster.assert_no_state_left(&["a"]);
}

/// A query about a node of the job returns facts of that node.
#[test]
fn facts_of_another_node() {
    let (mut cluster, ranks) = Cluster::of(2, &[0, 1, 1]);
    let size = |node: &str| {
        let there = vec![info(keys::HOSTNAME, Value::String(text(node)))];
        query(keys::LOCAL_SIZE, there)
    };
    for (node, expected) in [("node0", Some(1)), ("node1", Some(2)), ("node2", None)] {
        let found = match cluster.ask(ranks[0], &size(node)) {
            Answer::Infos { infos, .. } => infos.into_iter().next().map(|info| info.value),
            _ => None,
        };
        assert_eq!(found, expected.map(Value::Uint32), "{node}");
    }
    cluster.assert_no_state_left(&["a"]);
}
