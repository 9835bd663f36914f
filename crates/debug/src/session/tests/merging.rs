//! Merging gives the same result for every order of answers and every tree of agents.

use proptest::prelude::*;

use super::*;
use crate::{
    gathered,
    peers::{LocalPeers, PeerGroup, Peers},
    report::Command as CommandLine,
    snapshot::Child,
    unwind::Build,
    wire,
};

/// Makes the answers of one agent for its ranks from random numbers. Two agents never have the same rank.
fn partial(agent: u32, picks: &[(u32, u8)]) -> (PartialSample, Description) {
    let mut frames = crate::stack::Frames::new();
    let mut snapshot = crate::snapshot::Snapshot::default();
    let mut description = Description::default();
    let mut below = BTreeMap::new();
    for &(rank, pick) in picks {
        let rank = Rank(agent * 100 + rank);
        let frame = |number: u8| crate::stack::Frame {
            function: Some(format!("f{number}").into()),
            module: None,
            source: None,
            kind: crate::stack::FrameKind::Native,
        };
        // The threads differ in their stacks, and some of them are of a library.
        let mut thread = |tid: u8| crate::stack::Thread {
            tid: i32::from(tid),
            name: ["a.out", "cuda-EvtHandlr", "worker"][usize::from(tid % 3)].into(),
            stack: crate::stack::Stack {
                frames: (0..pick.wrapping_add(tid) % 5)
                    .map(|at| frames.intern(frame(pick.wrapping_mul(at) % 7)))
                    .collect(),
                end: crate::stack::End::Start,
            },
            activity: crate::stack::Activity::Running,
            cpu: Duration::from_millis(u64::from(pick)),
            stopped: Duration::ZERO,
        };
        let mut seen = |salt: u8| match pick.wrapping_add(salt) % 6 {
            0 => Seen::Missing(Missing::Gone),
            _ => Seen::Threads(
                (0..=(pick.wrapping_add(salt) % 4))
                    .map(&mut thread)
                    .collect(),
            ),
        };
        let children: Vec<Child> = (0..pick % 3)
            .map(|number| Child {
                pid: i32::from(number) + 100,
                parent: 1,
                name: ["sh", "python3"][usize::from(pick.wrapping_add(number) % 2)].into(),
                seen: seen(number + 1),
            })
            .collect();
        let seen = seen(0);
        if !children.is_empty() {
            snapshot.children.insert(rank, children);
            below.insert(rank, PeerGroup::default());
        }
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
    let peers = LocalPeers {
        ranks: picks
            .iter()
            .map(|(rank, _)| Rank(agent * 100 + rank))
            .collect(),
        below,
        ..LocalPeers::default()
    };
    snapshot.peers = Peers::of(NodeId(agent), peers);
    (PartialSample { frames, snapshot }, description)
}

fn as_stacks(sample: &PartialSample) -> PartialStacks {
    let mut frames = sample.frames.clone();
    let snapshots = std::iter::once(&sample.snapshot);
    let shown = crate::report::Shown::of(Detail::Folded, snapshots, &mut frames);
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
    let of = |seen: &Seen| match seen {
        Seen::Missing(why) => format!("{why:?}"),
        Seen::Threads(threads) => {
            let thread = |thread: &crate::stack::Thread| {
                let frames = thread.stack.frames.iter();
                let names = frames.map(|&id| sample.frames.get(id).to_string());
                let names: Vec<String> = names.collect();
                format!(
                    "{} {} {:?} {}",
                    thread.tid,
                    thread.name,
                    thread.cpu,
                    names.join(">")
                )
            };
            let threads: Vec<String> = threads.iter().map(thread).collect();
            threads.join(", ")
        }
    };
    let procs = sample.snapshot.procs.iter();
    let mut told: Vec<String> = procs
        .map(|(rank, seen)| format!("{rank}: {}", of(seen)))
        .collect();
    for (rank, children) in &sample.snapshot.children {
        for Child {
            pid, name, seen, ..
        } in children
        {
            told.push(format!("{rank}, {pid} {name}: {}", of(seen)));
        }
    }
    format!("{} {:?}", told.join("\n"), sample.snapshot.peers)
}

fn stacks_told(part: &PartialStacks) -> String {
    let stacks = part.merged.tree.stacks(&part.frames);
    let mut told = format!("{stacks:?} {:?} {:?}", part.merged.helpers, part.missing);
    for (name, children) in &part.merged.children {
        let stacks = children.tree.stacks(&part.frames);
        let (procs, unseen) = (&children.procs, children.unseen);
        told.push_str(&format!(" {name}: {procs:?} {unseen} {stacks:?}"));
    }
    told
}

fn all_told(part: &Partial) -> String {
    match part {
        Partial::Sample(sample) => told(sample),
        Partial::Stacks(stacks) => stacks_told(stacks),
        Partial::Description(description) => format!("{description:?}"),
    }
}

/// Merges answers as agents do on the way to the session.
fn gathered(parts: &[Partial]) -> Partial {
    let encoded = |part: &Partial| {
        let (part, refused) = (Some(part.clone()), BTreeSet::new());
        wire::encode(&Answers { part, refused }).unwrap().into()
    };
    let bodies: Vec<_> = parts.iter().map(encoded).collect();
    let answers: Answers = wire::decode(&gathered::merge(&bodies).unwrap()).unwrap();
    answers.part.unwrap()
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
            let on_the_way = gathered(&list);
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
            prop_assert_eq!(all_told(&in_order), all_told(&in_a_tree));
            prop_assert_eq!(all_told(&in_order), all_told(&on_the_way));
        }
    }
}
