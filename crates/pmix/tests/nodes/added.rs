//! Groups over several nodes whose members do not all name each other: added members and bootstrap.

use std::{collections::BTreeSet, time::Duration};

use pmix::{
    keys,
    message::{Answer, GroupAnswer, Request},
    server::{Input, MAX_SENT_BYTES},
    value::{Info, PmixRank, Proc, Status, Value},
};

use crate::{
    cluster::{Cluster, RankConn, with},
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

/// One of two callers on a node withdraws its call while the answer is in flight: the other gets the group.
#[test]
fn the_first_of_two_callers_closes_while_the_answer_travels() {
    for withdrawn_first in [true, false] {
        let (mut cluster, ranks) = Cluster::of(2, &[0, 1, 1]);
        let first = cluster.send(ranks[1], &follows());
        let second = cluster.send(ranks[2], &follows());
        assert_eq!(cluster.status(ranks[1], first), None);
        let leader = construct(&names(&[0]), vec![adds(&[1, 2])]);
        let led = cluster.send_only(ranks[0], &leader);
        assert_eq!(cluster.status(ranks[0], led), Some(Status::SUCCESS));
        if withdrawn_first {
            // NoLongerAsked reaches the controller before the answers.
            cluster.nodes[1].close(ranks[1].1);
            while cluster.carry(1) {}
        } else {
            // The answers have passed the controller, and wait in the inbox.
            while cluster.carry(0) {}
            cluster.nodes[1].close(ranks[1].1);
        }
        cluster.settle();
        assert_eq!(
            cluster.status(ranks[2], second),
            Some(Status::SUCCESS),
            "withdrawn first: {withdrawn_first}"
        );
        cluster.assert_no_state_left(&["a"]);
    }
}

/// A destructed group is gone on the coordinator too, where it has no members.
#[test]
fn the_coordinator_forgets_a_destructed_group() {
    // Rank 2 is on the coordinator, and no member.
    let (mut cluster, ranks) = Cluster::of(3, &[1, 2, 0]);
    let leader = construct(&names(&[0]), vec![adds(&[1])]);
    let calls = [(ranks[0], leader), (ranks[1], follows())];
    answers(&mut cluster, &calls, &[0, 1]);
    let told = cluster.together(&ranks[..2], &destruct());
    assert_eq!(told.last(), Some(&Some(Status::SUCCESS)));
    for rank in [0, 2] {
        let fence = crate::world::fence(&[Proc {
            nspace: nspace("group"),
            rank: PmixRank::WILDCARD,
        }]);
        // A name that no group has.
        assert_eq!(
            cluster.status_of(ranks[rank], &fence),
            Status::NOT_FOUND,
            "{rank}"
        );
    }
    cluster.assert_no_state_left(&["a"]);
}

/// What happens to one rank while the group is constructed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    Nothing,
    Death,
    ClosedConnection,
    LostNode,
}

/// Numbers that follow from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % bound
    }
}

/// What a rank got: the status and the context id; `None` without an answer.
type Got = Option<(Status, Option<u64>)>;

/// Constructs a group with messages in a random order and trouble at a random time. Returns what the other ranks got, each
/// different answer once.
fn constructed_in_disorder(seed: u64) -> (Trouble, BTreeSet<Got>) {
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let places = PLACES[random.below(PLACES.len())];
    let (mut requests, _) = ways().swap_remove(random.below(5));
    if random.below(3) == 0 {
        requests = requests.map(|request| with(&request, flag(keys::GROUP_OPTIONAL)));
    }
    let troubles = [
        Trouble::Nothing,
        Trouble::Death,
        Trouble::ClosedConnection,
        Trouble::LostNode,
    ];
    let trouble = troubles[random.below(4)];
    let (victim, when) = (random.below(4), random.below(30));
    let (mut cluster, ranks) = Cluster::of(3, &places);
    let mut callers = vec![0, 1, 2, 3];
    let mut tags = [None; 4];
    let mut is_out = [false; 4];
    for step in 0.. {
        if step == when {
            meet(&mut cluster, &ranks, trouble, victim, &mut is_out);
        }
        match random.below(7) {
            6 if !callers.is_empty() => {
                let rank = callers.remove(random.below(callers.len()));
                if !is_out[rank] {
                    tags[rank] = Some(cluster.send_only(ranks[rank], &requests[rank]));
                }
            }
            6 => {}
            node @ 0..3 => drop(cluster.carry(node)),
            node => drop(cluster.deliver(node - 3)),
        }
        if callers.is_empty() && step > 60 {
            break;
        }
    }
    cluster.settle();
    cluster.pass(Duration::from_secs(3));
    let others = (0..4).filter(|rank| !is_out[*rank]);
    let answers: Vec<Option<Answer>> = others
        .filter_map(|rank| Some((rank, tags[rank]?)))
        .map(|(rank, tag)| cluster.answer(ranks[rank], tag))
        .collect();
    let told = answers.into_iter().map(|answer| {
        Some(match answer? {
            Answer::Group(group) => (group.status, group.context),
            other => (other.status(), None),
        })
    });
    let told = told.collect();
    for (node, conn) in ranks {
        if cluster.nodes[node].is_open(conn) {
            cluster.nodes[node].close(conn);
        }
    }
    cluster.settle();
    cluster.pass(Duration::from_secs(10));
    // Even without the end of the job no state remains, except on a node that is lost.
    let over: &[&str] = match trouble {
        Trouble::LostNode => &["a"],
        _ => &[],
    };
    cluster.assert_no_state_left(over);
    (trouble, told)
}

fn meet(
    cluster: &mut Cluster,
    ranks: &[RankConn],
    trouble: Trouble,
    victim: usize,
    is_out: &mut [bool; 4],
) {
    let (node, conn) = ranks[victim];
    match trouble {
        Trouble::Nothing => {}
        Trouble::Death | Trouble::ClosedConnection => {
            is_out[victim] = true;
            cluster.nodes[node].close(conn);
            if trouble == Trouble::Death {
                let rank = u32::try_from(victim).unwrap();
                cluster.nodes[node].end("a", rank, KILLED);
            }
        }
        Trouble::LostNode => {
            for (out, (of, _)) in is_out.iter_mut().zip(ranks) {
                *out |= *of == node;
            }
            cluster.lose_only(node);
        }
    }
}

/// In whatever order messages arrive and whatever happens meanwhile, all ranks get the same answer.
#[test]
fn all_get_the_same_answer() {
    for seed in 1..3000 {
        let (trouble, mut told) = constructed_in_disorder(seed);
        if trouble != Trouble::Nothing {
            // Ranks that no call names wait until their job is over, as on one node.
            told.remove(&None);
        }
        assert!(told.len() <= 1, "seed {seed}, {trouble:?}: {told:?}");
        for (status, _) in told.into_iter().flatten() {
            let is_expected = match trouble {
                Trouble::Nothing => status == Status::SUCCESS,
                _ => matches!(status, Status::SUCCESS | Status::LOST_CONNECTION),
            };
            assert!(is_expected, "seed {seed}, {trouble:?}: {status}");
        }
    }
}

/// The calls of a node exceed a bound: all callers get OUT_OF_RESOURCE, and none waits for them.
#[test]
fn a_call_that_finds_no_room() {
    // All on the coordinator first: there it works.
    for places in [[0, 0, 0, 0], [1, 1, 1, 0]] {
        let (mut cluster, ranks) = Cluster::of(2, &places);
        let large = || {
            info(
                keys::GROUP_INFO,
                Value::ByteObject(vec![0; MAX_SENT_BYTES / 5 * 3].into()),
            )
        };
        let first = construct(&names(&[0, 1]), vec![adds(&[2]), large()]);
        let second = construct(&names(&[0, 1]), vec![adds(&[2]), large()]);
        let tags = [
            cluster.send(ranks[0], &first),
            cluster.send(ranks[1], &second),
            cluster.send(ranks[2], &follows()),
        ];
        cluster.pass(Duration::from_secs(60));
        let told: Vec<_> = (0..3)
            .map(|rank| cluster.status(ranks[rank], tags[rank]))
            .collect();
        assert!(told.iter().all(Option::is_some), "{places:?}: {told:?}");
        cluster.assert_no_state_left(&["a"]);
    }
}

/// The same after a gather, on a node where another call takes the room.
#[test]
fn many_bytes_after_a_gather() {
    let (mut cluster, ranks) = Cluster::of(2, &[0, 1, 1, 1]);
    let large = || {
        info(
            keys::GROUP_INFO,
            Value::ByteObject(vec![0; MAX_SENT_BYTES / 5 * 2].into()),
        )
    };
    // A call of another group that waits on node 1.
    let other = Request::GroupConstruct {
        group: crate::world::text("other"),
        procs: Vec::new(),
        infos: vec![large(), large()],
    };
    let (node, conn) = ranks[3];
    let _ = cluster.nodes[node].send(conn, &other);
    cluster.settle();
    let tags = [
        cluster.send(ranks[0], &construct(&names(&[0, 1]), vec![adds(&[2])])),
        cluster.send(
            ranks[1],
            &construct(&names(&[0, 1]), vec![adds(&[2]), large()]),
        ),
        cluster.send(ranks[2], &follows()),
    ];
    cluster.pass(Duration::from_secs(60));
    let told: Vec<_> = (0..3)
        .map(|rank| cluster.status(ranks[rank], tags[rank]))
        .collect();
    assert!(told.iter().all(Option::is_some), "{told:?}");
    cluster.assert_no_state_left(&["a"]);
}

/// Calls of two jobs travel as one. One of the jobs ends on all nodes before the coordinator has answered: the caller of the
/// other job gets an answer.
#[test]
fn one_of_two_jobs_with_one_call_ends() {
    let mut cluster = Cluster::new(2, &[("a", &[1]), ("b", &[1]), ("c", &[0])]);
    let ranks = ["a", "b"].map(|name| (1, cluster.nodes[1].connect(name, 0)));
    let named = [proc("a", 0), proc("b", 0)];
    let request = construct(
        &named,
        vec![info(
            keys::GROUP_ADD_MEMBERS,
            Value::procs(vec![proc("c", 0)]),
        )],
    );
    let tags = ranks.map(|rank| cluster.send(rank, &request));
    assert_eq!(cluster.status(ranks[1], tags[1]), None);
    cluster.nodes[1].close(ranks[0].1);
    cluster.nodes[1].end("a", 0, KILLED);
    // The end of the job overtakes the answer of the coordinator.
    cluster.nodes[1].handle(Input::Deregister(nspace("a")));
    cluster.settle();
    let told = cluster.status(ranks[1], tags[1]);
    assert_eq!(told, Some(Status::LOST_CONNECTION));
    cluster.assert_no_state_left(&["a", "b", "c"]);
}
