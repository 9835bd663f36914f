//! The wire form of trees, and the checks on a tree that arrives.
//!
//! A tree is the list of its nodes, the root first and every other node after its parent. A set of threads is a list of counts
//! with their ranks. The decoder checks what costs no more time than the bytes of the message. The receiver of the whole message
//! knows which ranks it has asked for, and checks the ranks ([`crate::reply::Partial::check`]).

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{Ending, Node, NodeId, Threads, Tree};
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
}

/// A node: the place of its parent, its frame, and what ends in it. Of the root the first two mean nothing.
#[derive(Serialize, Deserialize)]
pub(super) struct WireNode {
    pub(super) parent: u32,
    pub(super) frame: FrameId,
    pub(super) ends: Vec<(Ending, Threads)>,
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
        let mut tree = Self {
            nodes: vec![Node::default(); nodes.len().max(1)],
        };
        let mut is_used = vec![false; nodes.len()];
        let mut parents = Vec::with_capacity(nodes.len());
        for (at, node) in nodes.into_iter().enumerate() {
            let parent = node.parent as usize;
            if at > 0 {
                if parent >= at {
                    return Err(Malformed::Order);
                }
                let own = NodeId(u32::try_from(at).unwrap_or(u32::MAX));
                tree.nodes[parent].children.push((node.frame, own));
            }
            parents.push(parent);
            is_used[at] = !node.ends.is_empty();
            for (ending, threads) in node.ends {
                if threads.is_empty() {
                    return Err(Malformed::Empty);
                }
                if tree.nodes[at].ends.insert(ending, threads).is_some() {
                    return Err(Malformed::Twice);
                }
            }
        }
        // Sorted once: a callee that was inserted in its place would move all callees behind it.
        for node in &mut tree.nodes {
            node.children.sort_unstable();
            let mut pairs = node.children.windows(2);
            if pairs.any(|pair| matches!(pair, [one, other] if one.0 == other.0)) {
                return Err(Malformed::Twice);
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
        Ok(threads)
    }
}
