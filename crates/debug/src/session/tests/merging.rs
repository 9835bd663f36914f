//! Merging gives the same result for every order of answers and every tree of agents.

use proptest::prelude::*;

use super::*;
use crate::{peers::Peers, report::Command as CommandLine, unwind::Build};

/// Makes the answers of one agent for its ranks from random numbers. Two agents never have the same rank.
fn partial(agent: u32, picks: &[(u32, u8)]) -> (PartialSample, Description) {
    let mut frames = crate::stack::Frames::new();
    let mut snapshot = crate::snapshot::Snapshot::default();
    let mut description = Description::default();
    for &(rank, pick) in picks {
        let rank = Rank(agent * 100 + rank);
        let frame = |number: u8| crate::stack::Frame {
            function: Some(format!("f{number}").into()),
            module: None,
            source: None,
            kind: crate::stack::FrameKind::Native,
        };
        let stack = (0..pick % 5).map(|at| frames.intern(frame(pick.wrapping_mul(at) % 7)));
        let thread = crate::stack::Thread {
            tid: 1,
            name: "".into(),
            stack: crate::stack::Stack {
                frames: stack.collect(),
                end: crate::stack::End::Start,
            },
            activity: crate::stack::Activity::Running,
            cpu: Duration::ZERO,
            stopped: Duration::ZERO,
        };
        let seen = match pick % 6 {
            0 => Seen::Missing(Missing::Gone),
            _ => Seen::Threads(vec![thread]),
        };
        snapshot.procs.insert(rank, seen);
        description.ranks.insert(rank);
        description.merge(Description {
            commands: vec![CommandLine {
                ranks: RankSet::single(rank),
                line: format!("./a{}", pick % 3),
            }],
            builds: [Build {
                file: format!("a{}", pick % 3).into(),
                build_id: None,
            }]
            .into(),
            processors: [(rank, u32::from(pick))].into(),
            left_out: [(NodeId(agent), u64::from(pick))].into(),
            ..Description::default()
        });
    }
    snapshot.peers = Peers::of(NodeId(agent), crate::peers::LocalPeers::default());
    (PartialSample { frames, snapshot }, description)
}

fn as_stacks(sample: &PartialSample) -> PartialStacks {
    let mut frames = sample.frames.clone();
    let snapshots = std::iter::once(&sample.snapshot);
    let shown = crate::report::Shown::of(Detail::Full, snapshots, &mut frames);
    let (merged, missing) = shown.merged(&frames, &sample.snapshot);
    let missing = missing.into_iter();
    PartialStacks {
        frames,
        merged,
        missing: missing.map(|it| (it.why, it.ranks)).collect(),
    }
}

/// Returns the content of a sample as text, without frame ids.
fn told(sample: &PartialSample) -> String {
    let procs = sample.snapshot.procs.iter();
    let told = procs.map(|(rank, seen)| match seen {
        Seen::Missing(why) => format!("{rank} {why:?}"),
        Seen::Threads(threads) => {
            let frames = threads.iter().flat_map(|it| &*it.stack.frames);
            let names = frames.map(|&id| sample.frames.get(id).to_string());
            format!("{rank} {}", names.collect::<Vec<_>>().join(">"))
        }
    });
    let told: Vec<String> = told.collect();
    format!("{} {:?}", told.join("\n"), sample.snapshot.peers)
}

fn stacks_told(part: &PartialStacks) -> String {
    let stacks = part.merged.tree.stacks(&part.frames);
    format!("{stacks:?} {:?} {:?}", part.merged.helpers, part.missing)
}

proptest! {
    /// Merging in any order, and over any tree of agents, gives the same result.
    #[test]
    fn merging_is_associative_and_commutative_and_loses_no_rank(
        agents in prop::collection::vec(prop::collection::btree_map(0_u32..20, any::<u8>(), 0..8), 1..6),
        pairs in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 8),
    ) {
        let parts: Vec<_> = (0..).zip(&agents)
            .map(|(agent, picks)| {
                let picks: Vec<(u32, u8)> = picks.iter().map(|(&rank, &pick)| (rank, pick)).collect();
                let (sample, description) = partial(agent, &picks);
                [
                    Partial::Stacks(as_stacks(&sample)),
                    Partial::Sample(sample),
                    Partial::Description(description),
                ]
            })
            .collect();
        let ranks: RankSet = (0..).zip(&agents)
            .flat_map(|(agent, picks)| picks.keys().map(move |rank| Rank(agent * 100 + rank)))
            .collect();
        for kind in 0..3 {
            let list: Vec<Partial> = parts.iter().map(|part| part[kind].clone()).collect();
            let merge = |mut left: Partial, right: Partial| {
                left.merge(right).unwrap();
                left
            };
            let in_order = list.iter().cloned().reduce(merge).unwrap();
            let mut open = list;
            for (left, right) in &pairs {
                if open.len() > 1 {
                    let right = open.swap_remove(right.index(open.len()));
                    let left = open.swap_remove(left.index(open.len()));
                    open.push(merge(left, right));
                }
            }
            let in_a_tree = open.into_iter().rev().reduce(merge).unwrap();
            prop_assert_eq!(in_order.ranks(), ranks.clone());
            prop_assert_eq!(in_a_tree.ranks(), ranks.clone());
            match (&in_order, &in_a_tree) {
                (Partial::Sample(a), Partial::Sample(b)) => prop_assert_eq!(told(a), told(b)),
                (Partial::Stacks(a), Partial::Stacks(b)) => prop_assert_eq!(stacks_told(a), stacks_told(b)),
                (Partial::Description(a), Partial::Description(b)) => prop_assert_eq!(a, b),
                _ => prop_assert!(false, "the kinds stay"),
            }
        }
    }
}
