//! Trees as they travel, and what is checked of one that comes.
//!
//! A tree is the list of its nodes, the root first and every other one after its parent; a set of threads is a list of counts
//! with their ranks. Whether the ranks and the frames are those that were asked for, only the receiver of the whole message
//! can tell ([`crate::wire`]).

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{Ending, NodeId, Threads, Tree};
use crate::stack::FrameId;
use base::RankSet;

/// Nodes of one tree.
pub const MAX_NODES: usize = 1 << 22;
/// Different counts of threads in one set of them.
pub const MAX_COUNTS: usize = 1 << 14;

/// Why something is no tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Malformed {
    /// It has more nodes than [`MAX_NODES`].
    #[error("a tree has more than {MAX_NODES} nodes")]
    Nodes,
    /// It has more counts than [`MAX_COUNTS`].
    #[error("a set of threads has more than {MAX_COUNTS} counts")]
    Counts,
    /// A node stands before its parent.
    #[error("a node of a tree stands before its parent")]
    Order,
    /// Two callees of one node are the same.
    #[error("a node of a tree has the same callee twice")]
    Twice,
    /// A node without threads in it or below it.
    #[error("a node of a tree has no threads")]
    Bare,
    /// No threads, or no ranks that have them.
    #[error("a set of threads has an empty part")]
    Empty,
    /// A rank with two counts of threads.
    #[error("a rank is counted twice in a set of threads")]
    Overlap,
}

/// A node: the place of its parent, its frame, and what ends in it. Of the root the first two mean nothing.
#[derive(Serialize, Deserialize)]
pub(super) struct WireNode {
    parent: u32,
    frame: FrameId,
    ends: Vec<(Ending, Threads)>,
}

impl From<Tree> for Vec<WireNode> {
    fn from(mut tree: Tree) -> Self {
        let mut parents = vec![(0, FrameId::default()); tree.nodes.len()];
        for (at, node) in tree.nodes.iter().enumerate() {
            for &(frame, child) in &node.children {
                let at = u32::try_from(at).unwrap_or(u32::MAX);
                parents[child.index()] = (at, frame);
            }
        }
        let nodes = tree.nodes.iter_mut().zip(parents);
        let node = nodes.map(|(node, (parent, frame))| WireNode {
            parent,
            frame,
            ends: std::mem::take(&mut node.ends).into_iter().collect(),
        });
        node.collect()
    }
}

impl TryFrom<Vec<WireNode>> for Tree {
    type Error = Malformed;

    fn try_from(nodes: Vec<WireNode>) -> Result<Self, Malformed> {
        if nodes.len() > MAX_NODES {
            return Err(Malformed::Nodes);
        }
        let mut tree = Self::new();
        let mut is_used = vec![false; nodes.len()];
        let mut parents = Vec::with_capacity(nodes.len());
        for (at, node) in nodes.into_iter().enumerate() {
            let parent = node.parent as usize;
            let own = if at == 0 {
                Self::ROOT
            } else {
                if parent >= at {
                    return Err(Malformed::Order);
                }
                let known = tree.len();
                let parent = NodeId(node.parent);
                let own = tree.child(parent, node.frame);
                if tree.len() == known {
                    return Err(Malformed::Twice);
                }
                own
            };
            parents.push(parent);
            is_used[at] = !node.ends.is_empty();
            for (ending, threads) in node.ends {
                if threads.is_empty() {
                    return Err(Malformed::Empty);
                }
                let ends = &mut tree.node_mut(own).ends;
                if ends.insert(ending, threads).is_some() {
                    return Err(Malformed::Twice);
                }
            }
        }
        for at in (1..is_used.len()).rev() {
            if !is_used[at] {
                return Err(Malformed::Bare);
            }
            is_used[parents[at]] = true;
        }
        Ok(tree)
    }
}

impl From<Threads> for Vec<(u32, RankSet)> {
    fn from(threads: Threads) -> Self {
        threads.by_count.into_iter().collect()
    }
}

impl TryFrom<Vec<(u32, RankSet)>> for Threads {
    type Error = Malformed;

    fn try_from(parts: Vec<(u32, RankSet)>) -> Result<Self, Malformed> {
        if parts.len() > MAX_COUNTS {
            return Err(Malformed::Counts);
        }
        let mut threads = Self::default();
        for (count, ranks) in parts {
            if count == 0 || ranks.is_empty() || threads.by_count.contains_key(&count) {
                return Err(Malformed::Empty);
            }
            threads.by_count.insert(count, ranks);
        }
        let members: usize = threads.by_count.values().map(RankSet::len).sum();
        let all = threads.by_count.values().cloned().collect();
        if RankSet::len(&union(all)) < members {
            return Err(Malformed::Overlap);
        }
        Ok(threads)
    }
}

/// All of many sets, two by two: none is walked more often than the logarithm of their number says.
fn union(mut sets: Vec<RankSet>) -> RankSet {
    while sets.len() > 1 {
        let pairs = sets.chunks(2);
        sets = pairs
            .map(|pair| pair.iter().fold(RankSet::new(), |all, set| all.union(set)))
            .collect();
    }
    sets.pop().unwrap_or_default()
}
