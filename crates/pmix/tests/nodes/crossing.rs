//! Messages that cross in flight, in every order.

use std::time::Duration;

use pmix::{keys, message::Request, server::Input, value::Status};
use proptest::prelude::*;

use crate::{
    cluster::{Cluster, RankConn, with},
    world::{KILLED, all, fence, flag, get, nspace, proc, seconds},
};

/// The last share is in flight when the fence times out on another node. Both nodes must agree on the outcome.
#[test]
fn a_share_and_a_time_out_cross() {
    for share_first in [true, false] {
        let (mut cluster, ranks) = Cluster::of(2, &[0, 1]);
        let request = fence(&[all("a")]);
        let waits = cluster.send(ranks[0], &with(&request, seconds(1)));
        let last = cluster.send_only(ranks[1], &request);
        cluster.nodes[0].pass(Duration::from_secs(1));
        assert_eq!(cluster.status(ranks[0], waits), Some(Status::TIMEOUT));
        let order = if share_first { [1, 0] } else { [0, 1] };
        for node in order {
            cluster.carry(node);
        }
        cluster.settle();
        let told = cluster.status(ranks[1], last);
        // If the time-out came first, this share belongs to the next fence.
        let expected = share_first.then_some(Status::SUCCESS);
        assert_eq!(told, expected);
        if told.is_none() {
            assert_eq!(cluster.status_of(ranks[0], &request), Status::SUCCESS);
            assert_eq!(cluster.status(ranks[1], last), Some(Status::SUCCESS));
        }
        cluster.assert_no_state_left(&["a"]);
    }
}

/// A node sends its share while the news that a member has died is in flight.
#[test]
fn a_share_and_a_loss_cross() {
    for share_first in [true, false] {
        let (mut cluster, ranks) = Cluster::of(2, &[0, 1]);
        let waits = cluster.send_only(ranks[0], &fence(&[all("a")]));
        cluster.nodes[1].close(ranks[1].1);
        cluster.nodes[1].end("a", 1, KILLED);
        let order = if share_first { [0, 1] } else { [1, 0] };
        for node in order {
            while cluster.carry(node) {}
        }
        cluster.settle();
        let told = cluster.status(ranks[0], waits);
        assert_eq!(told, Some(Status::LOST_CONNECTION));
        cluster.assert_no_state_left(&["a"]);
    }
}

/// Step of the test.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// A rank sends the next call of its script.
    Call(usize),
    /// The next message of a node is delivered to the controller.
    Carry(usize),
    /// The next message of the controller is delivered to a node.
    Deliver(usize),
    /// A rank is killed.
    Kill(usize),
    /// The connection of a rank breaks, and its process reconnects.
    Return(usize),
    Pass(u64),
}

const RANKS: [u32; 5] = [0, 0, 1, 1, 2];

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (0..RANKS.len()).prop_map(Step::Call),
        8 => (0..3_usize).prop_map(Step::Carry),
        8 => (0..3_usize).prop_map(Step::Deliver),
        1 => (0..RANKS.len()).prop_map(Step::Kill),
        1 => (0..RANKS.len()).prop_map(Step::Return),
        1 => (100..1500_u64).prop_map(Step::Pass),
    ];
    proptest::collection::vec(step, 0..300)
}

/// Returns the n-th call of a rank. It is the same for all ranks, so that they take part in the same collectives.
fn call(rank: usize, number: usize) -> Request {
    let everybody = [all("a")];
    match number % 6 {
        0 => fence(&everybody),
        1 => with(&fence(&everybody), flag(keys::COLLECT_DATA)),
        2 => get(
            &proc("a", u32::try_from((rank + number) % RANKS.len()).unwrap()),
            "key",
            Vec::new(),
        ),
        3 => with(&fence(&everybody), seconds(1)),
        4 => Request::GroupConstruct {
            group: crate::world::text("group"),
            procs: everybody.to_vec(),
            infos: vec![flag(keys::GROUP_OPTIONAL)],
        },
        _ => Request::GroupDestruct {
            group: crate::world::text("group"),
            procs: Some(everybody.to_vec()),
            infos: Vec::new(),
        },
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Ranks call, die and reconnect in any order. Finally all but one die. After a wait, every request of the survivor is
    /// answered, no request is answered twice, and no state remains.
    #[test]
    fn nobody_waits_for_ever(steps in steps()) {
        let (mut cluster, mut ranks) = Cluster::of(3, &RANKS);
        let mut alive = [true; RANKS.len()];
        let mut calls = [0; RANKS.len()];
        for rank in &ranks {
            cluster.put(*rank, &[("key", 1)]);
        }
        for step in steps {
            match step {
                Step::Call(rank) if alive[rank] => {
                    cluster.send_only(ranks[rank], &call(rank, calls[rank]));
                    calls[rank] += 1;
                }
                Step::Call(_) => {}
                Step::Carry(node) => {
                    cluster.carry(node);
                }
                Step::Deliver(node) => {
                    cluster.deliver(node);
                }
                Step::Kill(rank) if alive[rank] => {
                    alive[rank] = false;
                    kill(&mut cluster, ranks[rank], rank);
                }
                Step::Kill(_) => {}
                Step::Return(rank) if alive[rank] => {
                    let (node, conn) = ranks[rank];
                    cluster.nodes[node].close(conn);
                    let number = u32::try_from(rank).unwrap();
                    ranks[rank] = (node, cluster.nodes[node].connect("a", number));
                }
                Step::Return(_) => {}
                Step::Pass(millis) => {
                    for node in &mut cluster.nodes {
                        node.pass(Duration::from_millis(millis));
                    }
                }
            }
        }
        // All ranks but one die: every outstanding request of the survivor must be answered.
        let last = alive.iter().position(|alive| *alive);
        for (rank, conn) in ranks.iter().enumerate() {
            if alive[rank] && Some(rank) != last {
                kill(&mut cluster, *conn, rank);
            }
        }
        cluster.pass(Duration::from_secs(10));
        if let Some((node, conn)) = last.map(|rank| ranks[rank]) {
            let waits = cluster.nodes[node].unanswered(conn);
            prop_assert!(waits.is_empty(), "{:?}", waits);
        }
        for node in &mut cluster.nodes {
            node.handle(Input::Deregister(nspace("a")));
        }
        cluster.settle();
        cluster.assert_no_state_left(&[]);
    }
}

fn kill(cluster: &mut Cluster, (node, conn): RankConn, rank: usize) {
    cluster.nodes[node].close(conn);
    let number = u32::try_from(rank).unwrap();
    cluster.nodes[node].end("a", number, KILLED);
}
