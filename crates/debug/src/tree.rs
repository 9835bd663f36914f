//! The stacks of many threads as a prefix tree, which says which ranks have each stack.
//!
//! A tree is a set of stacks, each with the threads that have it. It keeps nothing else. So the same threads give the same
//! tree, whatever the order and the tree of agents over which they are merged. The size of a tree depends on the number of
//! different stacks, and hardly on the number of ranks. A node stores only the threads whose stacks end in it. The threads
//! that pass through a node are those that end in it or below it.

mod wire;

use std::collections::BTreeMap;

use base::{Rank, RankSet};
use serde::{Deserialize, Serialize};

use crate::{
    planted::{self, Bug},
    stack::{Activity, End, Frame, FrameId, Frames},
};

pub use self::wire::{MAX_COUNTS, MAX_NODES, Malformed};

/// A prefix tree of stacks, outermost frames first.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "Vec<wire::WireNode>", into = "Vec<wire::WireNode>")]
pub struct Tree {
    nodes: Vec<Node>,
}

#[derive(Clone, Debug, Default)]
struct Node {
    /// The callees, sorted by frame id for binary search.
    children: Vec<(FrameId, NodeId)>,
    ends: BTreeMap<Ending, Threads>,
}

/// A node of one [`Tree`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeId(u32);

/// The end of a stack: the state of the thread, and whether the unwinder reached the outermost frame.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Ending {
    /// Which thread of its process has the stack.
    pub thread: Which,
    /// The activity of the thread.
    pub activity: Activity,
    /// Whether the outer frames are complete.
    pub end: End,
}

/// The place of a thread in its process.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Which {
    /// The main thread, or the first living thread if the main thread has exited.
    #[default]
    First,
    /// Any other thread.
    Other,
}

impl Which {
    /// Returns the value for the thread at this index among the living threads of its process.
    #[must_use]
    pub const fn nth(place: usize) -> Self {
        match place {
            0 => Self::First,
            _ => Self::Other,
        }
    }
}

/// A multiset of threads: the ranks by their number of threads. For example, ranks `0-1022` have one thread and rank `1023`
/// has three.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "Vec<(u32, RankSet)>", into = "Vec<(u32, RankSet)>")]
pub struct Threads {
    /// The ranks by their number of threads. No set is empty, and no rank is in two sets.
    by_count: BTreeMap<u32, RankSet>,
}

impl Threads {
    /// Returns one thread of one rank.
    #[must_use]
    pub fn one(rank: Rank) -> Self {
        Self {
            by_count: BTreeMap::from([(1, RankSet::single(rank))]),
        }
    }

    /// Adds one thread of a rank.
    pub fn insert(&mut self, rank: Rank) {
        let count = self
            .by_count
            .iter()
            .find_map(|(count, ranks)| ranks.contains(rank).then_some(*count));
        let Some(count) = count else {
            self.by_count.entry(1).or_default().insert(rank);
            return;
        };
        if let Some(ranks) = self.by_count.get_mut(&count) {
            *ranks = ranks.difference(&RankSet::single(rank));
            if ranks.is_empty() {
                self.by_count.remove(&count);
            }
        }
        let more = count.saturating_add(1);
        self.by_count.entry(more).or_default().insert(rank);
    }

    /// Adds the threads of another multiset.
    pub fn merge(&mut self, other: &Self) {
        for (&count, ranks) in &other.by_count {
            self.add(count, ranks);
        }
    }

    /// Adds `count` threads of each of some ranks.
    pub fn add(&mut self, count: u32, ranks: &RankSet) {
        // Nearly always the ranks are new, and often they come in ascending order. Then no set has to be split.
        let last = self.by_count.values().filter_map(RankSet::last).max();
        if last < ranks.first() {
            self.by_count.entry(count).or_default().append(ranks);
            return;
        }
        let mut new = ranks.clone();
        let mut raised = BTreeMap::<u32, RankSet>::new();
        self.by_count.retain(|&own, set| {
            let both = set.intersection(&new);
            if !both.is_empty() {
                *set = set.difference(&both);
                new = new.difference(&both);
                raised.insert(own.saturating_add(count), both);
            }
            !set.is_empty()
        });
        if !new.is_empty() {
            raised.entry(count).or_default().append(&new);
        }
        for (count, ranks) in raised {
            self.by_count.entry(count).or_default().append(&ranks);
        }
    }

    /// Returns the sum of many multisets. They are added in pairs, so that a long set is copied only a logarithmic number of
    /// times.
    fn sum(mut all: Vec<Self>) -> Self {
        while all.len() > 1 {
            let mut pairs = all.into_iter();
            let mut halves = Vec::with_capacity(pairs.len().div_ceil(2));
            while let Some(mut one) = pairs.next() {
                if let Some(other) = pairs.next() {
                    one.merge(&other);
                }
                halves.push(one);
            }
            all = halves;
        }
        all.pop().unwrap_or_default()
    }

    /// Returns the ranks that have threads.
    #[must_use]
    pub fn ranks(&self) -> RankSet {
        union(self.by_count.values().cloned().collect())
    }

    /// Returns true if no rank has two counts. The encoding of an agent may violate this until it is checked.
    pub(crate) fn are_disjoint(&self) -> bool {
        let members: usize = self.by_count.values().map(RankSet::len).sum();
        self.ranks().len() == members
    }

    /// Returns the number of threads.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.by_count
            .iter()
            .map(|(&count, ranks)| u64::from(count) * ranks.len() as u64)
            .sum()
    }

    /// Returns the ranks by their number of threads, in ascending order of that number.
    pub fn by_count(&self) -> impl Iterator<Item = (u32, &RankSet)> {
        self.by_count.iter().map(|(&count, ranks)| (count, ranks))
    }

    /// Returns true if there are no threads.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_count.is_empty()
    }
}

impl Default for Tree {
    fn default() -> Self {
        Self {
            nodes: vec![Node::default()],
        }
    }
}

impl Tree {
    /// The root, at which every stack begins. It has no frame.
    pub const ROOT: NodeId = NodeId(0);

    /// Returns a tree without stacks.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a thread of a rank, given its frames, outermost first.
    pub fn insert(&mut self, frames: &[FrameId], ending: Ending, rank: Rank) {
        let mut at = Self::ROOT;
        for &frame in frames {
            at = self.child(at, frame);
        }
        self.node_mut(at)
            .ends
            .entry(ending)
            .or_default()
            .insert(rank);
    }

    /// Adds threads that have the same stack, outermost frame first.
    pub fn add(&mut self, frames: &[FrameId], ending: Ending, threads: &Threads) {
        let at = frames
            .iter()
            .fold(Self::ROOT, |at, &frame| self.child(at, frame));
        let ends = &mut self.node_mut(at).ends;
        ends.entry(ending).or_default().merge(threads);
    }

    /// Adds the stacks of another tree. `translation` maps its frame ids to those of this tree ([`Frames::absorb`]).
    pub fn merge(&mut self, other: &Self, translation: &[FrameId]) {
        let mut open = vec![(Self::ROOT, Self::ROOT)];
        while let Some((ours, theirs)) = open.pop() {
            for (ending, threads) in &other.node(theirs).ends {
                let own = &mut self.node_mut(ours).ends;
                if planted::is(Bug::ClassOverwritten) {
                    own.remove(ending);
                }
                own.entry(ending.clone()).or_default().merge(threads);
            }
            for &(frame, child) in &other.node(theirs).children {
                if planted::is(Bug::FramesNotTranslated) {
                    open.push((self.child(ours, frame), child));
                    continue;
                }
                // A frame without a translation is in no table. Its stacks are dropped.
                if let Some(&frame) = translation.get(frame.index()) {
                    open.push((self.child(ours, frame), child));
                }
            }
        }
    }

    /// Returns the tree in which each stack is replaced by the result of `map`. Stacks are given with the outermost frame
    /// first.
    #[must_use]
    pub fn mapped(&self, mut map: impl FnMut(&[FrameId]) -> Vec<FrameId>) -> Self {
        let mut new = Self::new();
        self.each(|frames, ending, threads| {
            let mut at = Self::ROOT;
            for frame in map(frames) {
                at = new.child(at, frame);
            }
            let ends = &mut new.node_mut(at).ends;
            ends.entry(ending.clone()).or_default().merge(threads);
        });
        new
    }

    /// Calls `each` once for each different stack.
    pub fn each(&self, mut each: impl FnMut(&[FrameId], &Ending, &Threads)) {
        let mut path = Vec::new();
        let mut open = vec![(0, None, Self::ROOT)];
        while let Some((depth, frame, at)) = open.pop() {
            path.truncate(depth);
            path.extend(frame);
            let node = self.node(at);
            for (ending, threads) in &node.ends {
                each(&path, ending, threads);
            }
            for &(frame, child) in node.children.iter().rev() {
                open.push((path.len(), Some(frame), child));
            }
        }
    }

    /// Returns the callees of a node, sorted by the content of their frames, which does not depend on frame ids.
    #[must_use]
    pub fn children(&self, at: NodeId, frames: &Frames) -> Vec<(FrameId, NodeId)> {
        let mut children = self.node(at).children.clone();
        children.sort_by_key(|&(frame, _)| frames.get(frame));
        children
    }

    /// Iterates over the threads whose stacks end at a node, by how they end.
    pub fn ends(&self, at: NodeId) -> impl Iterator<Item = (&Ending, &Threads)> {
        self.node(at).ends.iter()
    }

    /// Iterates over the threads of each different stack, in no particular order.
    pub(crate) fn threads(&self) -> impl Iterator<Item = &Threads> {
        self.nodes.iter().flat_map(|node| node.ends.values())
    }

    /// Returns for each node the threads whose stacks end in it or below it.
    #[must_use]
    pub fn passing(&self) -> Vec<Threads> {
        let mut passing = vec![Threads::default(); self.nodes.len()];
        // A child always has a higher index than its parent.
        for at in (0..self.nodes.len()).rev() {
            let ends = self.nodes[at].ends.values();
            let below = self.nodes[at].children.iter();
            let below = below.map(|(_, child)| &passing[child.index()]);
            let all = Threads::sum(ends.chain(below).cloned().collect());
            passing[at] = all;
        }
        passing
    }

    /// Returns for each node whether the stack of a first thread ends in it or below it.
    #[must_use]
    pub fn with_first_threads(&self) -> Vec<bool> {
        let mut with = vec![false; self.nodes.len()];
        // A child always has a higher index than its parent.
        for at in (0..self.nodes.len()).rev() {
            let mut ends = self.nodes[at].ends.keys();
            let mut below = self.nodes[at].children.iter();
            with[at] = ends.any(|ending| ending.thread == Which::First)
                || below.any(|(_, child)| with[child.index()]);
        }
        with
    }

    /// Returns every stack with its threads. The order depends only on the content of the stacks.
    #[must_use]
    pub fn stacks<'a>(&self, frames: &'a Frames) -> Vec<(Vec<&'a Frame>, Ending, Threads)> {
        let mut all = Vec::new();
        self.each(|stack, ending, threads| {
            let stack = stack.iter().map(|&frame| frames.get(frame)).collect();
            all.push((stack, ending.clone(), threads.clone()));
        });
        all.sort();
        all
    }

    /// Returns true if the table has every frame of the tree.
    #[must_use]
    pub fn is_within(&self, frames: &Frames) -> bool {
        let mut children = self.nodes.iter().flat_map(|node| &node.children);
        children.all(|(frame, _)| frame.index() < frames.len())
    }

    /// Returns the number of nodes, including the root.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns true if there are no stacks.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.len() == 1 && self.nodes[0].ends.is_empty()
    }

    fn child(&mut self, at: NodeId, frame: FrameId) -> NodeId {
        let children = &self.node(at).children;
        match children.binary_search_by_key(&frame, |&(own, _)| own) {
            Ok(place) => children[place].1,
            Err(place) => {
                let new = NodeId(u32::try_from(self.nodes.len()).unwrap_or(u32::MAX));
                self.nodes.push(Node::default());
                self.node_mut(at).children.insert(place, (frame, new));
                new
            }
        }
    }

    fn node(&self, at: NodeId) -> &Node {
        &self.nodes[at.index()]
    }

    fn node_mut(&mut self, at: NodeId) -> &mut Node {
        &mut self.nodes[at.index()]
    }
}

/// Returns the union of many sets. They are united in pairs, so that each member is copied only a logarithmic number of
/// times.
pub(crate) fn union(mut sets: Vec<RankSet>) -> RankSet {
    while sets.len() > 1 {
        sets = sets
            .chunks(2)
            .map(|pair| match pair {
                [one, other] => one.union(other),
                pair => pair.first().cloned().unwrap_or_default(),
            })
            .collect();
    }
    sets.pop().unwrap_or_default()
}

impl NodeId {
    /// Returns the index of the node in the results of [`Tree::passing`] and [`Tree::with_first_threads`].
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

#[cfg(test)]
mod tests;
