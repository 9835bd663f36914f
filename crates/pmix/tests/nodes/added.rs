//! Groups over several nodes whose members do not all name each other: added members and bootstrap.

use std::time::Duration;

use pmix::{
    keys,
    message::{Answer, GroupAnswer, Request},
    value::{Info, PmixRank, Proc, Status, Value},
};

use crate::{
    cluster::{Cluster, RankConn},
    groups::{construct, destruct},
    world::{KILLED, all, flag, info, nspace, proc, seconds},
};

fn adds(ranks: &[u32]) -> Info {
    let procs = ranks.iter().map(|rank| proc("a", *rank)).collect();
    info(keys::GROUP_ADD_MEMBERS, Value::procs(procs))
}

fn leads(leaders: u64) -> Info {
    info(keys::GROUP_BOOTSTRAP, Value::Size(leaders))
}

fn names(ranks: &[u32]) -> Vec<Proc> {
    ranks.iter().map(|rank| proc("a", *rank)).collect()
}

/// The call of a member that names no members.
fn follows() -> Request {
    construct(&[], Vec::new())
}

/// All orders of some numbers.
fn orders(numbers: &[usize]) -> Vec<Vec<usize>> {
    if numbers.is_empty() {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for (at, first) in numbers.iter().enumerate() {
        let mut rest = numbers.to_vec();
        rest.remove(at);
        for mut order in orders(&rest) {
            order.insert(0, *first);
            all.push(order);
        }
    }
    all
}

/// Sends the requests in an order. Returns the answers in the order of the requests.
fn answers(cluster: &mut Cluster, calls: &[(RankConn, Request)], order: &[usize]) -> Vec<Answer> {
    let mut tags = vec![0; calls.len()];
    for at in order {
        let (rank, request) = &calls[*at];
        tags[*at] = cluster.send(*rank, request);
    }
    let both = calls.iter().zip(tags);
    both.map(|((rank, _), tag)| {
        let answer = cluster.answer(*rank, tag);
        answer.unwrap_or_else(|| panic!("{rank:?} is not answered, {order:?}"))
    })
    .collect()
}

fn group(answer: Answer) -> GroupAnswer {
    match answer {
        Answer::Group(answer) => answer,
        other => panic!("no group: {other:?}"),
    }
}

/// Where the ranks of the tests are: everywhere, with and without some on the coordinator.
const PLACES: [[u32; 4]; 6] = [
    [0, 0, 1, 1],
    [0, 1, 0, 1],
    [1, 1, 0, 2],
    [1, 2, 2, 1],
    [1, 1, 1, 1],
    [2, 0, 1, 2],
];

/// Calls of ranks 0 to 3 that construct one group of all of them, and the ranks that another call names.
fn ways() -> Vec<([Request; 4], &'static [u32])> {
    let plain = |ranks: &[u32]| construct(&names(ranks), Vec::new());
    vec![
        // One of two named members adds the others.
        (
            [
                construct(
                    &names(&[0, 1]),
                    vec![adds(&[2, 3]), flag(keys::GROUP_ASSIGN_CONTEXT_ID)],
                ),
                plain(&[0, 1]),
                follows(),
                follows(),
            ],
            &[0, 1, 2, 3],
        ),
        // Both of them add one.
        (
            [
                construct(
                    &names(&[0, 1]),
                    vec![adds(&[3]), flag(keys::GROUP_ASSIGN_CONTEXT_ID)],
                ),
                construct(&names(&[0, 1]), vec![adds(&[2])]),
                follows(),
                follows(),
            ],
            &[0, 1, 2, 3],
        ),
        // A member that names only itself adds all others.
        (
            [
                construct(
                    &names(&[0]),
                    vec![adds(&[1, 2, 3]), flag(keys::GROUP_ASSIGN_CONTEXT_ID)],
                ),
                follows(),
                follows(),
                follows(),
            ],
            &[1, 2, 3],
        ),
        // Two leaders name one follower each.
        (
            [
                construct(
                    &names(&[0, 2]),
                    vec![leads(2), flag(keys::GROUP_ASSIGN_CONTEXT_ID)],
                ),
                construct(&names(&[1, 3]), vec![leads(2)]),
                follows(),
                follows(),
            ],
            &[2, 3],
        ),
        // Each is a leader.
        (
            [
                construct(
                    &names(&[0]),
                    vec![leads(4), flag(keys::GROUP_ASSIGN_CONTEXT_ID)],
                ),
                construct(&names(&[1]), vec![leads(4)]),
                construct(&names(&[2]), vec![leads(4)]),
                construct(&names(&[3]), vec![leads(4)]),
            ],
            &[],
        ),
    ]
}

/// Whatever the order of the calls and the places of the ranks, all get the same members and the same context id, and the
/// group can be used and destructed.
#[test]
pub(crate) fn all_get_the_same_group() {
    for places in PLACES {
        for (requests, _) in ways() {
            for order in orders(&[0, 1, 2, 3]) {
                let (mut cluster, ranks) = Cluster::of(3, &places);
                let calls: Vec<(RankConn, Request)> =
                    ranks.iter().copied().zip(requests.clone()).collect();
                let got = answers(&mut cluster, &calls, &order);
                let got: Vec<GroupAnswer> = got.into_iter().map(group).collect();
                for answer in &got {
                    assert_eq!(answer.status, Status::SUCCESS);
                    assert_eq!(answer.members, names(&[0, 1, 2, 3]), "{places:?} {order:?}");
                    assert_eq!(answer.context, got[0].context);
                    assert!(answer.context.is_some());
                }
                let members = Proc {
                    nspace: nspace("group"),
                    rank: PmixRank::WILDCARD,
                };
                let told = cluster.together(&ranks, &crate::world::fence(&[members]));
                assert_eq!(told.last(), Some(&Some(Status::SUCCESS)));
                let told = cluster.together(&ranks, &destruct());
                assert_eq!(told.last(), Some(&Some(Status::SUCCESS)));
                cluster.assert_no_state_left(&["a"]);
            }
        }
    }
}

/// A rank ends instead of calling, before or after the others have called: nobody waits for ever, and an optional group is
/// made without it.
#[test]
pub(crate) fn a_rank_ends_instead_of_calling() {
    for places in PLACES {
        for (requests, named) in ways() {
            for victim in 0..4_u32 {
                for early in [true, false] {
                    let (mut cluster, ranks) = Cluster::of(3, &places);
                    let kill = |cluster: &mut Cluster| {
                        cluster.end(ranks[victim as usize], "a", victim, KILLED);
                    };
                    if early {
                        kill(&mut cluster);
                    }
                    let callers = (0..4).filter(|rank| *rank != victim as usize);
                    let tags: Vec<(RankConn, u32)> = callers
                        .map(|rank| (ranks[rank], cluster.send(ranks[rank], &requests[rank])))
                        .collect();
                    if !early {
                        kill(&mut cluster);
                    }
                    // Where no call names the victim, the others wait until their job is over, as on one node.
                    let mut answered = 0;
                    for (rank, tag) in &tags {
                        if let Some(status) = cluster.status(*rank, *tag) {
                            assert_eq!(status, Status::LOST_CONNECTION);
                            answered += 1;
                        }
                    }
                    assert_eq!(
                        answered > 0,
                        named.contains(&victim),
                        "{places:?}, {victim}, {early}"
                    );
                    cluster.assert_no_state_left(&["a"]);
                }
            }
        }
    }
}

/// A member dies after it has called: all others get LOST_CONNECTION, because no answer may name it.
#[test]
fn a_caller_ends() {
    for places in PLACES {
        let (mut cluster, ranks) = Cluster::of(3, &places);
        let leader = construct(&names(&[0]), vec![adds(&[1, 2, 3])]);
        let tags = [
            cluster.send(ranks[0], &leader),
            cluster.send(ranks[1], &follows()),
        ];
        cluster.end(ranks[1], "a", 1, KILLED);
        assert_eq!(
            cluster.status(ranks[0], tags[0]),
            Some(Status::LOST_CONNECTION)
        );
        cluster.assert_no_state_left(&["a"]);
    }
}

/// An optional group is made without a member that is lost.
#[test]
fn an_optional_group_is_made_without_the_lost() {
    for places in PLACES {
        let (mut cluster, ranks) = Cluster::of(3, &places);
        let leader = construct(
            &names(&[0]),
            vec![adds(&[1, 2, 3]), flag(keys::GROUP_OPTIONAL)],
        );
        let calls = [(0, leader), (1, follows()), (2, follows())];
        let tags = calls.map(|(rank, request)| (rank, cluster.send(ranks[rank], &request)));
        cluster.end(ranks[3], "a", 3, KILLED);
        for (rank, tag) in tags {
            let answer = group(cluster.answer(ranks[rank], tag).unwrap());
            assert_eq!(answer.members, names(&[0, 1, 2]), "{places:?}");
        }
        cluster.assert_no_state_left(&["a"]);
    }
}

/// A time-out of one caller ends the construction for all.
#[test]
fn a_time_out_ends_it_for_all() {
    for places in PLACES {
        let (mut cluster, ranks) = Cluster::of(3, &places);
        let leader = construct(&names(&[0]), vec![adds(&[1, 2]), seconds(2)]);
        let first = cluster.send(ranks[0], &leader);
        let second = cluster.send(ranks[1], &follows());
        cluster.pass(Duration::from_secs(5));
        assert_eq!(cluster.status(ranks[0], first), Some(Status::TIMEOUT));
        assert_eq!(cluster.status(ranks[1], second), Some(Status::TIMEOUT));
        cluster.assert_no_state_left(&["a"]);
    }
}

/// A node is lost while others wait for its members, or with the coordinator on it.
#[test]
fn a_node_is_lost() {
    for lost in [0, 2] {
        let (mut cluster, ranks) = Cluster::of(3, &[1, 1, 2, 0]);
        let leader = construct(&names(&[0]), vec![adds(&[1, 2, 3])]);
        let first = cluster.send(ranks[0], &leader);
        let second = cluster.send(ranks[1], &follows());
        cluster.lose(lost);
        for (rank, tag) in [(0, first), (1, second)] {
            let told = cluster.status(ranks[rank], tag);
            assert_eq!(told, Some(Status::LOST_CONNECTION), "{lost}");
        }
        let told = cluster.status_of(ranks[0], &construct(&[proc("a", 0)], Vec::new()));
        assert_eq!(told, Status::SUCCESS);
        cluster.assert_no_state_left(&["a"]);
    }
}

/// A connection closes while its call waits: the call is withdrawn, and can be made again.
#[test]
fn a_call_is_withdrawn() {
    let (mut cluster, ranks) = Cluster::of(2, &[1, 1]);
    cluster.send(ranks[1], &follows());
    cluster.nodes[1].close(ranks[1].1);
    cluster.settle();
    let again = (1, cluster.nodes[1].connect("a", 1));
    let leader = construct(&names(&[0]), vec![adds(&[1])]);
    let first = cluster.send(ranks[0], &leader);
    assert_eq!(cluster.status(ranks[0], first), None);
    assert_eq!(cluster.status_of(again, &follows()), Status::SUCCESS);
    assert_eq!(cluster.status(ranks[0], first), Some(Status::SUCCESS));
    cluster.assert_no_state_left(&["a"]);
}

/// Two groups of one name are made one after the other, and their calls do not mix.
#[test]
fn the_next_group_of_the_name() {
    let (mut cluster, ranks) = Cluster::of(2, &[0, 1, 1]);
    let named = names(&[0, 1]);
    for round in 0..3 {
        let tags = [
            cluster.send(ranks[2], &follows()),
            cluster.send(ranks[1], &construct(&named, vec![adds(&[2])])),
            cluster.send(ranks[0], &construct(&named, Vec::new())),
        ];
        for (rank, tag) in [2, 1, 0].into_iter().zip(tags) {
            let told = cluster.status(ranks[rank], tag);
            assert_eq!(told, Some(Status::SUCCESS), "{round}");
        }
    }
    // A group without added members needs no coordinator.
    let told = cluster.together(&ranks, &construct(&[all("a")], Vec::new()));
    assert_eq!(told.last(), Some(&Some(Status::SUCCESS)));
    cluster.assert_no_state_left(&["a"]);
}
