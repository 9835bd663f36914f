//! The stacks of many threads as one prefix tree, with the ranks on its edges.
//!
//! A tree is a set of stacks, each with the threads that have it: nothing else is kept, so that the same threads give
//! the same tree in whatever order and over whatever shape of a tree of agents they are merged. Its size follows the
//! number of different answers, not of ranks. Ranks stand only where a stack ends; what passes through a node is what
//! ends below it.

mod wire;

use std::collections::BTreeMap;

use base::{Rank, RankSet};
use serde::{Deserialize, Serialize};

use crate::stack::{Activity, End, Frame, FrameId, Frames};

pub use self::wire::{MAX_COUNTS, MAX_NODES, Malformed};

/// A prefix tree of stacks, outermost frames first.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "Vec<wire::WireNode>", into = "Vec<wire::WireNode>")]
pub struct Tree {
    nodes: Vec<Node>,
}

#[derive(Clone, Debug, Default)]
struct Node {
    /// Ordered by number, so that one is found quickly.
    children: Vec<(FrameId, NodeId)>,
    ends: BTreeMap<Ending, Threads>,
}

/// A node of one [`Tree`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeId(u32);

/// How a stack ends on its inner side, and whether its outer one is known.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Ending {
    /// Which thread of its process it is.
    pub thread: Which,
    /// What the thread did.
    pub activity: Activity,
    /// Whether its outer frames are all there.
    pub end: End,
}

/// Which thread of its process one is.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Which {
    /// The first, or where that has ended the first that lives.
    #[default]
    First,
    /// Another.
    Other,
}

impl Which {
    /// The thread at this place among those of its process that live.
    #[must_use]
    pub const fn nth(place: usize) -> Self {
        match place {
            0 => Self::First,
            _ => Self::Other,
        }
    }
}

/// Threads, as ranks with the number that each has: `0-1022` with one, `1023` with three.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "Vec<(u32, RankSet)>", into = "Vec<(u32, RankSet)>")]
pub struct Threads {
    /// No set is empty, and no rank is in two of them.
    by_count: BTreeMap<u32, RankSet>,
}

impl Threads {
    /// One thread of one rank.
    #[must_use]
    pub fn one(rank: Rank) -> Self {
        Self {
            by_count: BTreeMap::from([(1, RankSet::single(rank))]),
        }
    }

    /// Adds a thread of a rank. In ascending order of ranks this takes constant time.
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

    /// Adds the threads of another.
    pub fn merge(&mut self, other: &Self) {
        for (&count, ranks) in &other.by_count {
            self.add(count, ranks);
        }
    }

    /// Adds `count` threads of each of some ranks.
    pub fn add(&mut self, count: u32, ranks: &RankSet) {
        // Nearly always the ranks are new, and often they come in order: then nothing is taken apart.
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

    /// All of many, two by two: a long set is then walked as often as the logarithm of their number says.
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

    /// The ranks.
    #[must_use]
    pub fn ranks(&self) -> RankSet {
        union(self.by_count.values().cloned().collect())
    }

    /// Returns true if no rank has two counts. Threads that came from an agent may break this rule until they are checked.
    pub(crate) fn are_disjoint(&self) -> bool {
        let members: usize = self.by_count.values().map(RankSet::len).sum();
        self.ranks().len() == members
    }

    /// The threads.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.by_count
            .iter()
            .map(|(&count, ranks)| u64::from(count) * ranks.len() as u64)
            .sum()
    }

    /// The ranks by the number of their threads, fewest first.
    pub fn by_count(&self) -> impl Iterator<Item = (u32, &RankSet)> {
        self.by_count.iter().map(|(&count, ranks)| (count, ranks))
    }

    /// Whether there are none.
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
    /// Where every stack begins: it has no frame.
    pub const ROOT: NodeId = NodeId(0);

    /// No stacks.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a thread of a rank with its frames, outermost first.
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

    /// Adds threads that have one stack, outermost frame first.
    pub fn add(&mut self, frames: &[FrameId], ending: Ending, threads: &Threads) {
        let at = frames
            .iter()
            .fold(Self::ROOT, |at, &frame| self.child(at, frame));
        let ends = &mut self.node_mut(at).ends;
        ends.entry(ending).or_default().merge(threads);
    }

    /// Adds the stacks of another, whose frames have here the numbers in `translation` ([`Frames::absorb`]).
    pub fn merge(&mut self, other: &Self, translation: &[FrameId]) {
        let mut open = vec![(Self::ROOT, Self::ROOT)];
        while let Some((ours, theirs)) = open.pop() {
            for (ending, threads) in &other.node(theirs).ends {
                let own = &mut self.node_mut(ours).ends;
                own.entry(ending.clone()).or_default().merge(threads);
            }
            for &(frame, child) in &other.node(theirs).children {
                // A frame that is not in the table belongs to no stack that the table was made for.
                if let Some(&frame) = translation.get(frame.index()) {
                    open.push((self.child(ours, frame), child));
                }
            }
        }
    }

    /// The stacks that a rule makes of these: `map` gives the new frames of a stack, outermost first.
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

    /// Calls `each` for every different stack.
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

    /// The callees of a node, in the order of what their frames say and not of their numbers.
    #[must_use]
    pub fn children(&self, at: NodeId, frames: &Frames) -> Vec<(FrameId, NodeId)> {
        let mut children = self.node(at).children.clone();
        children.sort_by_key(|&(frame, _)| frames.get(frame));
        children
    }

    /// The threads whose stack ends at a node, by how it ends.
    pub fn ends(&self, at: NodeId) -> impl Iterator<Item = (&Ending, &Threads)> {
        self.node(at).ends.iter()
    }

    /// The threads of every different stack, in no particular order.
    pub(crate) fn threads(&self) -> impl Iterator<Item = &Threads> {
        self.nodes.iter().flat_map(|node| node.ends.values())
    }

    /// For each node the threads that are in it or below it.
    #[must_use]
    pub fn passing(&self) -> Vec<Threads> {
        let mut passing = vec![Threads::default(); self.nodes.len()];
        // A child is always made after its parent.
        for at in (0..self.nodes.len()).rev() {
            let ends = self.nodes[at].ends.values();
            let below = self.nodes[at].children.iter();
            let below = below.map(|(_, child)| &passing[child.index()]);
            let all = Threads::sum(ends.chain(below).cloned().collect());
            passing[at] = all;
        }
        passing
    }

    /// For each node whether first threads of processes are in it or below it.
    #[must_use]
    pub fn with_first_threads(&self) -> Vec<bool> {
        let mut with = vec![false; self.nodes.len()];
        // A child is always made after its parent.
        for at in (0..self.nodes.len()).rev() {
            let mut ends = self.nodes[at].ends.keys();
            let mut below = self.nodes[at].children.iter();
            with[at] = ends.any(|ending| ending.thread == Which::First)
                || below.any(|(_, child)| with[child.index()]);
        }
        with
    }

    /// Every stack with its threads, in an order that depends on nothing but what they say.
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

    /// Whether every frame is in this table.
    #[must_use]
    pub fn is_within(&self, frames: &Frames) -> bool {
        let mut children = self.nodes.iter().flat_map(|node| &node.children);
        children.all(|(frame, _)| frame.index() < frames.len())
    }

    /// How many nodes there are, the root included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is no stack.
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

/// The union of many sets. Sets are united in pairs, so that each member is copied as often as the logarithm of their number.
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
    /// Its place in what [`Tree::passing`] gives.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

#[cfg(test)]
mod tests;
