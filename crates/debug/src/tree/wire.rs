//! The encoding of trees, and the checks on a tree that arrives.
//!
//! A tree is encoded as the list of its nodes: the root first, and every other node after its parent. A set of threads is a
//! list of counts with their ranks. The decoder makes only checks that take time in proportion to the bytes of the message.
//! The receiver of the whole message knows which ranks it asked for, and checks those ([`crate::reply::Partial::check`]).

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{Ending, Node, NodeId, Threads, Tree};
use crate::stack::FrameId;
use base::RankSet;

/// Maximum number of nodes of one tree.
pub const MAX_NODES: usize = 1 << 22;
/// Maximum number of different counts in one set of threads.
pub const MAX_COUNTS: usize = 1 << 14;

/// The reason why bytes are not a valid tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Malformed {
    /// The tree has more than [`MAX_NODES`] nodes.
    #[error("a tree has more than {MAX_NODES} nodes")]
    Nodes,
    /// A set of threads has more than [`MAX_COUNTS`] counts.
    #[error("a set of threads has more than {MAX_COUNTS} counts")]
    Counts,
    /// A node comes before its parent.
    #[error("a node of a tree stands before its parent")]
    Order,
    /// A node has the same callee twice, or a stack that ends in the same way twice.
    #[error("a node of a tree has the same callee twice")]
    Twice,
    /// A node has no threads in it or below it.
    #[error("a node of a tree has no threads")]
    Bare,
    /// A set of threads has a zero count, a count without ranks, or the same count twice.
    #[error("a set of threads has an empty part")]
    Empty,
}

/// A node: the index of its parent, its frame, and the threads whose stacks end in it. For the root, `parent` and `frame` are
/// ignored.
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
        // Sorting once at the end is faster than inserting each callee at its place, which would move all callees after it.
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
