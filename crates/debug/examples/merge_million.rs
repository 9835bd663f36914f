//! Merges the stacks of a million simulated ranks in a thousand classes and prints how long it took.
//!
//! ```text
//! cargo run --release -p debug --example merge_million
//! ```
#![expect(
    clippy::print_stdout,
    reason = "the numbers are what this program is for"
)]
#![expect(
    clippy::disallowed_methods,
    reason = "measuring needs the clock; the code that is measured never reads it"
)]

use std::time::{Duration, Instant};

use base::Rank;
use debug::{
    stack::{Activity, End, Frame, FrameKind, Frames, Source, Wait},
    tree::{Ending, Tree, Which},
};

const RANKS: u32 = 1_000_000;
const CLASSES: u32 = 1_000;
const RANKS_OF_NODE: u32 = 64;
/// Children of an agent in the tree of agents.
const FAN_OUT: usize = 32;
/// Frames that all classes have in common, and those that each has alone.
const SHARED: u32 = 12;
const OWN: u32 = 6;

/// Which rank is in which class.
#[derive(Clone, Copy, Debug)]
enum Classes {
    /// The first thousand ranks are of the first class, and so on.
    Blocks,
    /// Every thousandth rank is of one class.
    Turns,
    /// Without any order, so that a set of ranks is as long as it can be.
    Scattered,
}

impl Classes {
    const fn of(self, rank: u32) -> u32 {
        match self {
            Self::Blocks => rank / (RANKS / CLASSES),
            Self::Turns => rank % CLASSES,
            Self::Scattered => {
                let mixed = (rank ^ 0x9e37_79b9).wrapping_mul(2_654_435_761);
                (mixed ^ (mixed >> 15)).wrapping_mul(2_246_822_519) % CLASSES
            }
        }
    }
}

fn frame(class: u32, depth: u32) -> Frame {
    let name = if depth < SHARED {
        format!("solver::level_{depth}")
    } else {
        format!("solver::Kernel<{class}>::step_{depth}")
    };
    Frame {
        function: Some(name.into()),
        module: Some("solver".into()),
        source: Some(Source {
            file: "/home/user/solver/src/kernel.cpp".into(),
            line: depth,
        }),
        kind: FrameKind::Native,
    }
}

/// What the agent of one node sends.
fn node(first: u32, classes: Classes) -> (Tree, Frames) {
    let (mut tree, mut frames) = (Tree::new(), Frames::new());
    for rank in first..(first + RANKS_OF_NODE).min(RANKS) {
        let class = classes.of(rank);
        let stack: Vec<_> = (0..SHARED + OWN)
            .map(|depth| frames.intern(frame(class, depth)))
            .collect();
        let ending = Ending {
            thread: Which::First,
            activity: Activity::Waiting(Wait::Futex),
            end: End::Start,
        };
        tree.insert(&stack, ending, Rank(rank));
    }
    (tree, frames)
}

fn merged(parts: &[(Tree, Frames)]) -> (Tree, Frames) {
    let (mut tree, mut frames) = (Tree::new(), Frames::new());
    for (part, of_part) in parts {
        let translation = frames.absorb(of_part);
        tree.merge(part, &translation);
    }
    (tree, frames)
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let made = work();
    (made, start.elapsed())
}

fn main() {
    println!(
        "{RANKS} ranks, {CLASSES} classes of {} frames, {RANKS_OF_NODE} ranks a node; one core",
        SHARED + OWN
    );
    for classes in [Classes::Blocks, Classes::Turns, Classes::Scattered] {
        let nodes: Vec<_> = (0..RANKS)
            .step_by(RANKS_OF_NODE as usize)
            .map(|first| node(first, classes))
            .collect();
        let ((flat, flat_frames), at_once) = timed(|| merged(&nodes));
        let ((tree, frames), by_level) = timed(|| {
            let mut level: Vec<_> = nodes.chunks(FAN_OUT).map(merged).collect();
            while level.len() > 1 {
                level = level.chunks(FAN_OUT).map(merged).collect();
            }
            level.remove(0)
        });
        let ((), counted) = timed(|| {
            let all = &tree.passing()[Tree::ROOT.index()];
            assert_eq!(all.count(), u64::from(RANKS), "no rank is lost");
        });
        assert_eq!(tree.stacks(&frames), flat.stacks(&flat_frames));
        let shape = format!("{classes:?}");
        println!(
            "{shape:<10} all at one place {at_once:>9.1?}   over a tree of {FAN_OUT} (all its levels) {by_level:>9.1?}   \
             counted {counted:>9.1?}   {} nodes",
            tree.len()
        );
    }
}
