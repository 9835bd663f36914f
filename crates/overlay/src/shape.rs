//! The shape of the tree: parents, children, and the next hop to a node. It is pure arithmetic; only two numbers are
//! stored.
//!
//! The nodes are numbered in preorder: a node comes before its subtree, and a subtree is one run of consecutive numbers.
//! The numbers below a node are cut into at most `radix` parts of nearly equal length. The first node of each part is a
//! child.
//!
//! The other common numbering, level by level, finds a parent with one division, but there a subtree is a separate run on
//! each level. Here the nodes of a subtree are neighbours in the allocation, and so mostly on the network. A set of nodes,
//! or of ranks placed by node, is a short text on every link. The depth is the same in both, `ceil(log_radix)`; finding a
//! node takes that many steps.

use std::num::NonZeroU32;

use base::NodeId;

/// Default maximum number of children of a node. Three levels reach 1,057 nodes, four reach 33,825.
pub const DEFAULT_RADIX: NonZeroU32 = NonZeroU32::new(32).unwrap();

/// A tree over the nodes `0..nodes`. Node 0 is the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    nodes: u32,
    radix: NonZeroU32,
}

impl Shape {
    /// Makes a tree over `nodes` nodes, each with at most `radix` children.
    #[must_use]
    pub const fn new(nodes: u32, radix: NonZeroU32) -> Self {
        Self { nodes, radix }
    }

    /// Returns the number of nodes.
    #[must_use]
    pub const fn nodes(&self) -> u32 {
        self.nodes
    }

    /// Returns the position of a node, or `None` if the tree has no such node.
    #[must_use]
    pub fn position(&self, node: NodeId) -> Option<Position> {
        if node.0 >= self.nodes {
            return None;
        }
        let mut at = Position {
            parent: None,
            depth: 0,
            subtree: Span {
                first: NodeId(0),
                count: self.nodes,
            },
            radix: self.radix,
        };
        while at.node() != node {
            at = at.child_toward(node)?;
        }
        Some(at)
    }

    /// Returns the number of links between the root and the farthest node; 0 for a tree of one node or none.
    #[must_use]
    pub fn height(&self) -> u32 {
        let mut height = 0;
        let mut count = self.nodes;
        while count > 1 {
            // The first child's subtree is never smaller than another child's.
            count = (count - 1).div_ceil(self.radix.get());
            height += 1;
        }
        height
    }
}

/// The position of one node in a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    parent: Option<NodeId>,
    depth: u32,
    subtree: Span,
    radix: NonZeroU32,
}

impl Position {
    /// Returns the node.
    #[must_use]
    pub const fn node(&self) -> NodeId {
        self.subtree.first
    }

    /// Returns its parent; `None` for the root.
    #[must_use]
    pub const fn parent(&self) -> Option<NodeId> {
        self.parent
    }

    /// Returns the number of links up to the root.
    #[must_use]
    pub const fn depth(&self) -> u32 {
        self.depth
    }

    /// Returns the node and all nodes below it.
    #[must_use]
    pub const fn subtree(&self) -> Span {
        self.subtree
    }

    /// Returns its children in ascending order, each with its own subtree.
    pub fn children(&self) -> impl ExactSizeIterator<Item = Span> + use<> {
        let this = *self;
        let count = usize::try_from(this.below().min(this.radix.get())).unwrap_or(usize::MAX);
        (0..count).map(move |index| this.part(u32::try_from(index).unwrap_or(u32::MAX)))
    }

    /// Returns the next hop towards a node; `None` at the root if the tree has no such node.
    #[must_use]
    pub fn toward(&self, to: NodeId) -> Option<Hop> {
        if to == self.node() {
            Some(Hop::Here)
        } else if let Some(child) = self.child_toward(to) {
            Some(Hop::Child(child.node()))
        } else {
            self.parent.map(Hop::Parent)
        }
    }

    /// Returns the number of nodes below this one.
    const fn below(&self) -> u32 {
        self.subtree.count.saturating_sub(1)
    }

    /// Returns the subtree of the child with this index. The first `below % radix` children have one node more than the
    /// others.
    const fn part(&self, index: u32) -> Span {
        let (each, longer) = (
            self.below() / self.radix.get(),
            self.below() % self.radix.get(),
        );
        let more = if index < longer { index } else { longer };
        Span {
            first: NodeId(self.subtree.first.0 + 1 + index * each + more),
            count: each + (index < longer) as u32,
        }
    }

    /// Returns the position of the child whose subtree contains `to`, if there is one.
    fn child_toward(&self, to: NodeId) -> Option<Self> {
        if !self.subtree.contains(to) || to == self.node() {
            return None;
        }
        let offset = to.0 - self.subtree.first.0 - 1;
        let (each, longer) = (
            self.below() / self.radix.get(),
            self.below() % self.radix.get(),
        );
        let in_longer = longer * (each + 1);
        let index = if offset < in_longer {
            offset / (each + 1)
        } else {
            longer + (offset - in_longer) / each
        };
        Some(Self {
            parent: Some(self.node()),
            depth: self.depth + 1,
            subtree: self.part(index),
            radix: self.radix,
        })
    }
}

/// A run of consecutive nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first node; for a subtree, its root.
    pub first: NodeId,
    /// The number of nodes.
    pub count: u32,
}

impl Span {
    /// Returns true if the run contains the node.
    #[must_use]
    pub const fn contains(&self, node: NodeId) -> bool {
        node.0 >= self.first.0 && node.0 - self.first.0 < self.count
    }

    /// Returns the nodes in ascending order.
    pub fn nodes(self) -> impl Iterator<Item = NodeId> {
        (0..self.count).map(move |offset| NodeId(self.first.0 + offset))
    }
}

/// The next hop of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hop {
    /// It has arrived.
    Here,
    /// Up, to this parent.
    Parent(NodeId),
    /// Down, to this child.
    Child(NodeId),
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn shape(nodes: u32, radix: u32) -> Shape {
        Shape::new(nodes, NonZeroU32::new(radix).unwrap())
    }

    fn draw(shape: Shape) -> String {
        let mut text = String::new();
        for node in 0..shape.nodes() {
            let at = shape.position(NodeId(node)).unwrap();
            let indent = usize::try_from(at.depth()).unwrap() * 2;
            text.push_str(&format!("{:indent$}{node}\n", ""));
        }
        text
    }

    #[test]
    fn a_small_tree() {
        insta::assert_snapshot!(draw(shape(10, 3)), @r"
        0
          1
            2
            3
          4
            5
            6
          7
            8
            9
        ");
    }

    #[test]
    fn edges() {
        assert_eq!(shape(0, 2).position(NodeId(0)), None);
        assert_eq!(shape(0, 2).height(), 0);
        let one = shape(1, 2).position(NodeId(0)).unwrap();
        assert_eq!(
            (one.parent(), one.depth(), one.children().len()),
            (None, 0, 0)
        );
        assert_eq!(one.toward(NodeId(0)), Some(Hop::Here));
        assert_eq!(one.toward(NodeId(1)), None);
        let all = shape(u32::MAX, 32);
        assert_eq!(all.height(), 7);
        let last = all.position(NodeId(u32::MAX - 1)).unwrap();
        assert_eq!(
            last.subtree(),
            Span {
                first: NodeId(u32::MAX - 1),
                count: 1
            }
        );
        let wide = Shape::new(u32::MAX, NonZeroU32::MAX)
            .position(NodeId(0))
            .unwrap();
        assert_eq!(wide.children().len(), u32::MAX as usize - 1);
        let chain = shape(5, 1);
        assert_eq!(
            (chain.height(), chain.position(NodeId(4)).unwrap().parent()),
            (4, Some(NodeId(3)))
        );
        // Numbers given in the documentation of the default.
        assert_eq!(Shape::new(1057, DEFAULT_RADIX).height(), 2);
        assert_eq!(Shape::new(1058, DEFAULT_RADIX).height(), 3);
        assert_eq!(Shape::new(33_825, DEFAULT_RADIX).height(), 3);
        assert_eq!(Shape::new(33_826, DEFAULT_RADIX).height(), 4);
    }

    proptest! {
        #[test]
        fn every_node_is_reached_exactly_once(nodes in 1_u32..3000, radix in 1_u32..40) {
            let shape = shape(nodes, radix.max(if nodes > 500 { 2 } else { 1 }));
            let mut reached = BTreeSet::new();
            let mut deepest = 0;
            let mut queue = vec![NodeId(0)];
            while let Some(node) = queue.pop() {
                prop_assert!(reached.insert(node));
                let at = shape.position(node).unwrap();
                deepest = deepest.max(at.depth());
                let mut below = 1;
                prop_assert!(at.children().len() <= shape.radix.get() as usize);
                for child in at.children() {
                    let there = shape.position(child.first).unwrap();
                    prop_assert_eq!(there.parent(), Some(node));
                    prop_assert_eq!(there.depth(), at.depth() + 1);
                    prop_assert_eq!(there.subtree(), child);
                    prop_assert!(child.nodes().all(|node| at.subtree().contains(node)));
                    below += child.count;
                    queue.push(child.first);
                }
                prop_assert_eq!(below, at.subtree().count);
            }
            prop_assert_eq!(reached, (0..nodes).map(NodeId).collect());
            prop_assert_eq!(deepest, shape.height());
        }

        #[test]
        fn every_way_ends_and_is_the_shortest(
            (nodes, a, b) in (1_u32..100_000).prop_flat_map(|nodes| (Just(nodes), 0..nodes, 0..nodes)),
            radix in 2_u32..40,
        ) {
            let shape = shape(nodes, radix);
            let ancestors = |node: u32| {
                std::iter::successors(Some(NodeId(node)), |node| shape.position(*node).unwrap().parent())
                    .collect::<Vec<_>>()
            };
            let (up, down) = (ancestors(a), ancestors(b));
            let shared = up.iter().filter(|node| down.contains(node)).count();
            let shortest = up.len() + down.len() - 2 * shared;

            let mut at = NodeId(a);
            let mut steps = 0;
            loop {
                match shape.position(at).unwrap().toward(NodeId(b)).unwrap() {
                    Hop::Here => break,
                    Hop::Parent(next) | Hop::Child(next) => at = next,
                }
                steps += 1;
                prop_assert!(steps <= shortest);
            }
            prop_assert_eq!(at, NodeId(b));
            prop_assert_eq!(steps, shortest);
        }

        #[test]
        fn a_node_that_is_not_there_is_refused_at_the_root(nodes in 1_u32..1000, radix in 2_u32..40) {
            let shape = shape(nodes, radix);
            prop_assert_eq!(shape.position(NodeId(nodes)), None);
            prop_assert_eq!(shape.position(NodeId(0)).unwrap().toward(NodeId(nodes)), None);
        }
    }
}
