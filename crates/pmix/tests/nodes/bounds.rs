//! What is too long for one message between nodes: the caller gets an error, and the rest goes on.

use pmix::{
    keys,
    message::Request,
    server::{Elsewhere, MAX_CARRIED, Output},
    value::{Kval, Range, Scope, Status, Value},
};

use crate::{
    cluster::{Cluster, RankConn},
    world::{all, commit_of, fence, flag, get, info, key, proc, text},
};

fn bytes(count: usize) -> Value {
    Value::ByteObject(vec![7; count].into())
}

fn commit(cluster: &mut Cluster, (node, conn): RankConn, count: usize) {
    let kval = Kval {
        key: key("key"),
        value: bytes(count),
    };
    let format = cluster.nodes[node].format(conn);
    let request = commit_of(format, Scope::REMOTE, &[kval]);
    assert_eq!(
        cluster.nodes[node].status_of(conn, &request),
        Status::SUCCESS
    );
}

/// Returns the bytes of all shares of the gathers in the queues to the controller.
fn shares(cluster: &Cluster) -> usize {
    let away = cluster.nodes.iter().flat_map(|node| &node.away);
    away.map(|output| match output {
        Output::Gather { share, .. } => share.len(),
        _ => 0,
    })
    .sum()
}

/// All nodes have as much data as fits into a share alone. What does not fit is fetched by gets.
#[test]
fn a_fence_with_data_of_many_nodes() {
    const NODES: u32 = 4;
    let places: Vec<u32> = (0..NODES).flat_map(|node| [node, node]).collect();
    let (mut cluster, ranks) = Cluster::of(NODES, &places);
    for rank in &ranks {
        commit(&mut cluster, *rank, MAX_CARRIED / NODES as usize * 3 / 5);
    }
    let mut request = fence(&[all("a")]);
    if let Request::Fence { infos, .. } = &mut request {
        infos.push(flag(keys::COLLECT_DATA));
    }
    let tags: Vec<u32> = ranks
        .iter()
        .map(|rank| cluster.send_only(*rank, &request))
        .collect();
    let sum = shares(&cluster);
    assert!((MAX_CARRIED / 2..=MAX_CARRIED).contains(&sum), "{sum}");
    cluster.settle();
    for (rank, tag) in ranks.iter().zip(tags) {
        assert_eq!(cluster.status(*rank, tag), Some(Status::SUCCESS));
    }
    for rank in 1..2 * NODES {
        let wanted = get(&proc("a", rank), "key", Vec::new());
        let expected = if rank == 1 {
            // The ranks of one node have put nothing for each other.
            Status::NOT_FOUND
        } else {
            Status::SUCCESS
        };
        let tag = cluster.send(ranks[0], &wanted);
        cluster.pass(pmix::server::MISSING_KEY_DELAY);
        assert_eq!(cluster.status(ranks[0], tag), Some(expected), "{rank}");
    }
    cluster.assert_no_state_left(&["a"]);
}

/// Shares that cannot be shortened: none is too long alone, but all together are. The collective fails on all nodes.
#[test]
fn shares_that_are_too_long_together() {
    let (mut cluster, ranks) = Cluster::of(3, &[0, 1, 2]);
    let request = |count: usize| Request::GroupConstruct {
        group: text("group"),
        procs: vec![all("a")],
        infos: vec![info(keys::GROUP_INFO, bytes(count))],
    };
    let told = cluster.together(&ranks, &request(MAX_CARRIED / 2));
    assert_eq!(told.last(), Some(&Some(Status::OUT_OF_RESOURCE)));
    let tags: Vec<u32> = ranks
        .iter()
        .map(|rank| cluster.send_only(*rank, &request(MAX_CARRIED / 4)))
        .collect();
    cluster.settle();
    for (rank, tag) in ranks.iter().zip(tags) {
        assert_eq!(cluster.status(*rank, tag), Some(Status::SUCCESS));
    }
    cluster.assert_no_state_left(&["a"]);
}

/// The data of one process is too long for an answer to another node. Processes of its own node get it.
#[test]
fn data_that_no_answer_holds() {
    let (mut cluster, ranks) = Cluster::of(2, &[0, 1]);
    commit(&mut cluster, ranks[1], MAX_CARRIED);
    let wanted = get(&proc("a", 1), "key", Vec::new());
    assert_eq!(
        cluster.status_of(ranks[0], &wanted),
        Status::OUT_OF_RESOURCE
    );
    cluster.assert_no_state_left(&["a"]);
}

/// An event is refused if it concerns other nodes.
#[test]
fn an_event_that_is_too_long() {
    let (mut cluster, ranks) = Cluster::of(2, &[0, 1]);
    for (range, expected) in [
        (Range::SESSION, Status::OUT_OF_RESOURCE),
        (Range::NAMESPACE, Status::OUT_OF_RESOURCE),
        (Range::LOCAL, Status::SUCCESS),
    ] {
        let request = Request::Notify {
            status: Status(-3000),
            range,
            infos: vec![info(c"some.data", bytes(MAX_CARRIED))],
        };
        let told = cluster.status_of(ranks[0], &request);
        assert_eq!(told, expected, "{range:?}");
        let is_event = |output: &Output| matches!(output, Output::Event { elsewhere, .. } if *elsewhere != Elsewhere::Nowhere);
        assert!(!cluster.nodes[0].away.iter().any(is_event));
    }
    cluster.assert_no_state_left(&["a"]);
}
