//! Answers that no correct agent sends.

use std::time::Duration;

use super::*;
use crate::{
    call_site,
    peers::{LocalPeers, PeerGroup, Peers},
    report::{self, Detail, Report},
    samples::{Boundary, Recording},
    stack::{Activity, End, Stack, Thread},
    tree::{Ending, Tree, Which},
    wire,
};

const NODE: NodeId = NodeId(3);

fn thread(tid: i32, name: &str, time: Duration) -> Thread {
    Thread {
        tid,
        name: name.into(),
        stack: Stack {
            frames: [].into(),
            end: End::Start,
        },
        activity: Activity::Running,
        cpu: time,
        stopped: time,
    }
}

/// Builds a sample in which every duration is `time`, the longest that an agent can send.
fn long(time: Duration) -> PartialSample {
    let group = PeerGroup {
        pids: [20].into(),
        cpu: time,
    };
    let mut sample = PartialSample::default();
    let snapshot = &mut sample.snapshot;
    for rank in [Rank(0), Rank(1)] {
        let threads = (10..14).map(|tid| {
            let name = if tid == 10 { "a.out" } else { "cuda-EvtHandlr" };
            thread(tid, name, time)
        });
        snapshot
            .procs
            .insert(rank, Seen::Threads(threads.collect()));
    }
    let peers = LocalPeers {
        below: [(Rank(0), group.clone())].into(),
        beside: group.clone(),
        neighbors: group,
        ..LocalPeers::default()
    };
    snapshot.peers = Peers::of(NODE, peers);
    sample
}

#[test]
fn the_longest_times_overflow_nothing() {
    for times in [
        [Duration::ZERO, Duration::MAX],
        [Duration::MAX, Duration::ZERO],
        [Duration::MAX, Duration::MAX],
    ] {
        let mut recording = Recording::default();
        for (at, time) in (0..).zip(times) {
            let sent = wire::encode(&crate::proto::FromAgent::Done {
                id: crate::proto::CommandId(1),
                part: Partial::Sample(long(time)),
            });
            let got = wire::decode(&sent.unwrap()).unwrap();
            let crate::proto::FromAgent::Done {
                part: Partial::Sample(sample),
                ..
            } = got
            else {
                panic!("{got:?}");
            };
            recording.push(Duration::from_secs(at), sample.frames, sample.snapshot);
        }
        let all = recording.observe(Boundary::Known);
        assert_eq!(all.ranks[&Rank(0)].helpers.values().sum::<u32>(), 3);
        let _ = all.classes(&recording.frames);
        let report = Report::of(recording, Detail::Folded);
        assert!(!report::json(&report).is_empty());
    }
}

#[test]
fn calls_that_are_read_from_code_are_checked_like_the_rest() {
    let site = |place: &str, number: u32| -> CallSite {
        let unknown: Option<u32> = None;
        let fields = (unknown, unknown, unknown, unknown, unknown, unknown);
        let fields = (number, fields, unknown, Some(place), 0_u32);
        postcard::from_bytes(&postcard::to_stdvec(&fields).unwrap()).unwrap()
    };
    let last = u32::try_from(calls::COUNT).unwrap() - 1;
    let endless = "x".repeat(call_site::PLACE_MAX + 1);
    for (rank, site, expected) in [
        (0, site("a.c:1", last), Ok(())),
        (0, site("a.c:1", last + 1), Err(Fault::TooMuch)),
        (0, site(&endless, last), Err(Fault::TooMuch)),
        (2, site("a.c:1", last), Err(Fault::OtherRanks)),
    ] {
        let mut sample = long(Duration::ZERO);
        sample.snapshot.call_sites.insert(Rank(rank), site);
        assert_eq!(sample.check(&[NODE].into(), &set("0-1")), expected);
        // Of a rank that the answer does not have, a merged answer has no call.
        let mut merged = PartialSample::default();
        merged.merge(sample);
        let of_rank = merged.snapshot.call_sites.contains_key(&Rank(rank));
        assert_eq!(of_rank, rank < 2);
    }
}

/// Builds a tree with one node, as a faulty agent may send it: nothing else in our code makes overlapping sets.
fn tree(threads: &[(u32, RankSet)]) -> Tree {
    let ending = Ending {
        thread: Which::First,
        activity: Activity::Running,
        end: End::Start,
    };
    let nodes = vec![(0_u32, 0_u32, vec![(ending, threads)])];
    postcard::from_bytes(&postcard::to_stdvec(&nodes).unwrap()).unwrap()
}

fn set(text: &str) -> RankSet {
    text.parse().unwrap()
}

#[test]
fn sets_of_an_agent_are_compared_with_the_ranks_that_it_was_asked_for() {
    let most = u32::try_from(MAX_THREADS).unwrap();
    // The union of these sets would have millions of runs.
    let hostile = |stride: u32| {
        let last = stride.saturating_mul(1 << 20);
        (stride, set(&format!("0-{last}/{stride}")))
    };
    let hostile: Vec<(u32, RankSet)> = (2..2000).map(hostile).collect();
    let far = vec![(1, set("1048576-2097151/7")); 1];
    for (threads, expected) in [
        (vec![(1, set("0-3"))], Ok(())),
        (vec![(1, set("0-1,3")), (7, set("2"))], Ok(())),
        (vec![(1, set("4"))], Err(Fault::OtherRanks)),
        (far, Err(Fault::OtherRanks)),
        (hostile, Err(Fault::OtherRanks)),
        (
            vec![(1, set("0-2")), (2, set("2"))],
            Err(Fault::CountedTwice),
        ),
        (vec![(most, set("0-3"))], Ok(())),
        (vec![(most + 1, set("0-3"))], Err(Fault::TooMuch)),
    ] {
        let mut own = PartialStacks::default();
        own.merged.tree = tree(&threads);
        let mut below = PartialStacks::default();
        let children = report::Children {
            tree: tree(&threads),
            ..report::Children::default()
        };
        below.merged.children.insert("sh".to_owned(), children);
        assert_eq!(own.check(1, &set("0-3")), expected, "{:?}", threads[0]);
        // The limit for the descendants of ranks is higher.
        let expected = expected.or_else(|fault| match fault {
            Fault::TooMuch => Ok(()),
            fault => Err(fault),
        });
        assert_eq!(below.check(1, &set("0-3")), expected, "{:?}", threads[0]);
    }
    let missing = |number: i32, ranks: &str| {
        let missing = (0..number).map(|pid| (Missing::TracedBy(pid), set(ranks)));
        PartialStacks {
            missing: missing.collect(),
            ..PartialStacks::default()
        }
    };
    let asked = set("0-3");
    assert_eq!(missing(1, "0-3").check(1, &asked), Ok(()));
    assert_eq!(missing(2, "0-3").check(1, &asked), Err(Fault::TooMuch));
    assert_eq!(missing(1, "0-2,4").check(1, &asked), Err(Fault::OtherRanks));
}
