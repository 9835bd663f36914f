use std::collections::BTreeMap;

use base::{Rank, RankSet};
use proptest::{collection::vec, prelude::*, sample::Index};

use super::*;
use crate::stack::{FrameKind, Source, Wait};

/// One thread of a test case: its rank, its activity, and one letter for each frame.
#[derive(Clone, Debug)]
struct Said {
    rank: u32,
    frames: Vec<u8>,
    ending: Ending,
}

/// The expected content of a tree: for each stack and ending, the number of threads of each rank.
type Model = BTreeMap<(Vec<Frame>, Ending), BTreeMap<u32, u32>>;

fn frame(letter: u8) -> Frame {
    Frame {
        function: Some(format!("f{}", letter % 4).into()),
        module: None,
        source: Some(Source {
            file: "a.c".into(),
            line: u32::from(letter),
        }),
        kind: FrameKind::Native,
    }
}

fn model(all: &[Said]) -> Model {
    let mut model = Model::new();
    for said in all {
        let frames = said.frames.iter().copied().map(frame).collect();
        let ranks = model.entry((frames, said.ending.clone())).or_default();
        *ranks.entry(said.rank).or_default() += 1;
    }
    model
}

fn read(tree: &Tree, frames: &Frames) -> Model {
    let mut model = Model::new();
    for (stack, ending, threads) in tree.stacks(frames) {
        let mut counts = BTreeMap::new();
        for (count, ranks) in threads.by_count() {
            for rank in ranks.iter() {
                assert_eq!(counts.insert(rank.0, count), None, "a rank is counted once");
            }
        }
        let stack = stack.into_iter().cloned().collect();
        assert_eq!(
            model.insert((stack, ending), counts),
            None,
            "a stack stands once"
        );
    }
    model
}

/// Builds a tree with its own table of frames, as each agent does.
fn grown(all: &[Said]) -> (Tree, Frames) {
    let (mut tree, mut frames) = (Tree::new(), Frames::new());
    for said in all {
        let stack: Vec<_> = said
            .frames
            .iter()
            .map(|&letter| frames.intern(frame(letter)))
            .collect();
        tree.insert(&stack, said.ending.clone(), Rank(said.rank));
    }
    (tree, frames)
}

fn joined(mut left: (Tree, Frames), right: &(Tree, Frames)) -> (Tree, Frames) {
    let translation = left.1.absorb(&right.1);
    left.0.merge(&right.0, &translation);
    left
}

fn said() -> impl Strategy<Value = Said> {
    let activity = prop_oneof![
        Just(Activity::Running),
        Just(Activity::Disk),
        Just(Activity::Waiting(Wait::Futex)),
    ];
    let end = prop_oneof![4 => Just(End::Start), 1 => Just(End::Lost)];
    (0_u32..24, vec(0_u8..6, 0..6), activity, end).prop_map(|(rank, frames, activity, end)| Said {
        rank,
        frames,
        ending: Ending {
            thread: Which::First,
            activity,
            end,
        },
    })
}

proptest! {
    #[test]
    fn a_tree_says_what_was_put_into_it(all in vec(said(), 0..60)) {
        let (tree, frames) = grown(&all);
        prop_assert_eq!(read(&tree, &frames), model(&all));
        prop_assert_eq!(tree.is_empty(), all.is_empty());
        let passing = tree.passing();
        prop_assert_eq!(passing[Tree::ROOT.index()].count(), all.len() as u64);
        let ranks: RankSet = all.iter().map(|said| Rank(said.rank)).collect();
        prop_assert_eq!(passing[Tree::ROOT.index()].ranks(), ranks);
        for (node, threads) in passing.iter().enumerate() {
            prop_assert!(!threads.is_empty() || node == 0, "no node is without threads");
        }
    }

    /// Merges the threads in any order, split into any parts, over any tree of agents.
    #[test]
    fn every_order_and_every_shape_gives_the_same(
        (all, shuffled) in vec(said(), 1..60).prop_flat_map(|all| (Just(all.clone()), Just(all).prop_shuffle())),
        cuts in vec(any::<Index>(), 0..8),
        pairs in vec((any::<Index>(), any::<Index>()), 16),
    ) {
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(shuffled.len())).collect();
        cuts.extend([0, shuffled.len()]);
        cuts.sort_unstable();
        let mut parts: Vec<_> = cuts.windows(2).map(|cut| grown(&shuffled[cut[0]..cut[1]])).collect();
        for (left, right) in pairs {
            if parts.len() > 1 {
                let right = parts.swap_remove(right.index(parts.len()));
                let left = parts.swap_remove(left.index(parts.len()));
                parts.push(joined(left, &right));
            }
        }
        let (tree, frames) = parts.iter().skip(1).fold(parts[0].clone(), joined);
        prop_assert_eq!(read(&tree, &frames), model(&all));
        let (same, frames_of_same) = grown(&all);
        prop_assert_eq!(tree.stacks(&frames), same.stacks(&frames_of_same));
    }

    #[test]
    fn merging_is_associative_and_commutative(
        a in vec(said(), 0..30), b in vec(said(), 0..30), c in vec(said(), 0..30),
    ) {
        let (a, b, c) = (grown(&a), grown(&b), grown(&c));
        let (left, left_frames) = joined(joined(a.clone(), &b), &c);
        let (right, right_frames) = joined(a.clone(), &joined(b.clone(), &c));
        let (turned, turned_frames) = joined(c, &joined(b, &a));
        prop_assert_eq!(left.stacks(&left_frames), right.stacks(&right_frames));
        prop_assert_eq!(left.stacks(&left_frames), turned.stacks(&turned_frames));
        let (empty, no_frames) = joined((Tree::new(), Frames::new()), &a);
        prop_assert_eq!(empty.stacks(&no_frames), a.0.stacks(&a.1));
    }

    /// The size of a tree depends on the number of different stacks, whatever the number of ranks that have them.
    #[test]
    fn its_size_follows_the_different_stacks(all in vec(said(), 1..40), times in 1_u32..40) {
        let (once, _) = grown(&all);
        let many: Vec<_> = (0..times)
            .flat_map(|time| all.iter().map(move |said| Said { rank: said.rank + time * 24, ..said.clone() }))
            .collect();
        let (tree, frames) = grown(&many);
        prop_assert_eq!(tree.len(), once.len());
        let frames_in_all: usize = tree.stacks(&frames).iter().map(|(stack, ..)| stack.len()).sum();
        prop_assert!(tree.len() <= frames_in_all + 1);
    }

    #[test]
    fn a_rule_merges_what_it_makes_equal(all in vec(said(), 0..40), depth in 0_usize..4) {
        let (tree, frames) = grown(&all);
        let cut = tree.mapped(|stack| stack[..stack.len().min(depth)].to_vec());
        let expected: Vec<_> = all
            .iter()
            .map(|said| Said { frames: said.frames[..said.frames.len().min(depth)].to_vec(), ..said.clone() })
            .collect();
        prop_assert_eq!(read(&cut, &frames), model(&expected));
    }

    #[test]
    fn threads_are_counted_as_a_list_of_them(a in vec(0_u32..12, 0..40), b in vec(0_u32..12, 0..40)) {
        let counted = |list: &[u32]| {
            let mut threads = Threads::default();
            list.iter().for_each(|&rank| threads.insert(Rank(rank)));
            threads
        };
        let (mut both, right) = (counted(&a), counted(&b));
        both.merge(&right);
        prop_assert_eq!(&both, &counted(&[a.clone(), b.clone()].concat()));
        let mut turned = right;
        turned.merge(&counted(&a));
        prop_assert_eq!(&both, &turned);
        prop_assert_eq!(both.count(), (a.len() + b.len()) as u64);
        prop_assert_eq!(both.ranks(), a.iter().chain(&b).copied().map(Rank).collect());
    }
}

#[test]
fn frames_that_no_table_has_are_left_out() {
    let one = grown(&[Said {
        rank: 0,
        frames: vec![1],
        ending: Ending {
            thread: Which::First,
            activity: Activity::Running,
            end: End::Start,
        },
    }]);
    let mut tree = Tree::new();
    tree.merge(&one.0, &[]);
    assert!(tree.is_empty());
}

#[test]
fn a_wide_tree_is_decoded_in_one_pass() {
    // In descending order of frames, inserting each callee at its place would move all others.
    let callees = 1_u32 << 19;
    let node = |parent, frame, ends| wire::WireNode {
        parent,
        frame,
        ends,
    };
    let ending = || Ending {
        thread: Which::First,
        activity: Activity::Running,
        end: End::Start,
    };
    let ends = || vec![(ending(), Threads::one(Rank(0)))];
    let root = [node(0, FrameId::default(), Vec::new())];
    let callees = (0..callees)
        .rev()
        .map(|frame| node(0, frame_id(frame), ends()));
    let nodes: Vec<wire::WireNode> = root.into_iter().chain(callees).collect();
    let number = nodes.len();
    let tree = Tree::try_from(nodes).unwrap();
    assert_eq!(tree.len(), number);
    let children = &tree.node(Tree::ROOT).children;
    assert!(children.is_sorted_by_key(|&(frame, _)| frame));
}

fn frame_id(number: u32) -> FrameId {
    serde_json::from_value(number.into()).unwrap()
}
