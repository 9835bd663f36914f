//! The outline of a tree for people. Frames without a branch are one segment. If there are too many stacks, only those with
//! the most threads are shown. Stacks of first threads come before others, and large subtrees before small ones.

use std::{cmp::Reverse, collections::BTreeMap};

use base::RankSet;

use crate::{
    stack::{FrameId, Frames},
    tree::{Ending, NodeId, Threads, Tree},
};

/// The segments of a tree. A parent comes before its children. The first segment is the root, which has no frames.
#[derive(Clone, Debug)]
pub(super) struct Outline {
    pub(super) segments: Vec<Segment>,
    /// Every rank in the tree.
    pub(super) ranks: RankSet,
    /// Indices of odd segments: few ranks are in them, while most ranks are together elsewhere. Empty if there are more than
    /// [`MAX_ODD`].
    pub(super) odd: Vec<usize>,
}

/// Adjacent frames that the same threads have, outermost first.
#[derive(Clone, Debug, Default)]
pub(super) struct Segment {
    pub(super) frames: Vec<FrameId>,
    pub(super) threads: Threads,
    pub(super) ranks: RankSet,
    /// The threads whose stacks end here.
    pub(super) ends: Vec<(Ending, Threads)>,
    pub(super) children: Vec<usize>,
    pub(super) folded: Option<Folded>,
    /// Whether it has first threads of processes.
    pub(super) first: bool,
}

/// Stacks in or below a segment that are not shown.
#[derive(Clone, Debug, Default)]
pub(super) struct Folded {
    pub(super) classes: usize,
    pub(super) ranks: RankSet,
}

/// Limit of the number of odd ranks, as a divisor of all ranks.
pub(super) const ODD_RANKS_DIVISOR: usize = 20;
/// Maximum number of odd segments. If there are more, none is marked.
pub(super) const MAX_ODD: usize = 8;

/// Returns the threads whose stacks end at a node, by how they end. First threads and other threads are merged.
fn ends_of(tree: &Tree, at: NodeId) -> Vec<(Ending, Threads)> {
    let mut ends: Vec<(Ending, Threads)> = Vec::new();
    for (ending, threads) in tree.ends(at) {
        let mut known = ends.iter_mut();
        let known = known.find(|(it, _)| (it.activity, &it.end) == (ending.activity, &ending.end));
        match known {
            Some((_, all)) => all.merge(threads),
            None => ends.push((ending.clone(), threads.clone())),
        }
    }
    ends
}

/// A tree, and the choice of the stacks to show.
struct Chosen<'a> {
    tree: &'a Tree,
    passing: Vec<Threads>,
    first_threads: Vec<bool>,
    /// The callees of each node: those with first threads first, then those with the most ranks.
    below: BTreeMap<NodeId, Vec<(FrameId, NodeId)>>,
    /// For each node, whether a shown stack ends in it.
    own: Vec<bool>,
    /// For each node, whether a shown stack ends in it or below it.
    shown: Vec<bool>,
    /// For each node, the number of hidden stacks that end in it or below it.
    hidden: Vec<usize>,
}

impl<'a> Chosen<'a> {
    /// Chooses at most `limit` stacks: those with the most threads.
    fn of(tree: &'a Tree, frames: &Frames, limit: usize) -> Self {
        let passing = tree.passing();
        let size = |node: NodeId| passing[node.index()].ranks().len();
        let first_threads = tree.with_first_threads();
        // Depth first. Callees with equally many ranks stay in the order of their names.
        let mut order = Vec::with_capacity(tree.len());
        let mut below = BTreeMap::new();
        let mut open = vec![Tree::ROOT];
        while let Some(at) = open.pop() {
            let mut children = tree.children(at, frames);
            children.sort_by_cached_key(|&(_, child)| {
                Reverse((first_threads[child.index()], size(child)))
            });
            open.extend(children.iter().rev().map(|&(_, child)| child));
            order.push(at);
            below.insert(at, children);
        }
        let ends = order.iter().copied();
        let mut ends: Vec<NodeId> = ends.filter(|&node| ending(tree, node) > 0).collect();
        ends.sort_by_cached_key(|&node| Reverse(ending(tree, node)));
        let (kept, rest) = ends.split_at(ends.len().min(limit));
        let mut shown = vec![false; tree.len()];
        kept.iter().for_each(|node| shown[node.index()] = true);
        let own = shown.clone();
        let mut hidden = vec![0_usize; tree.len()];
        rest.iter().for_each(|node| hidden[node.index()] = 1);
        // Callees come after their callers in `order`. So each node is complete before its caller adds it.
        for at in order.iter().rev() {
            for (_, child) in &below[at] {
                shown[at.index()] |= shown[child.index()];
                hidden[at.index()] += hidden[child.index()];
            }
        }
        Self {
            tree,
            passing,
            first_threads,
            below,
            own,
            shown,
            hidden,
        }
    }

    /// Returns the hidden stacks that end in a node or below its hidden callees.
    fn folded(&self, at: NodeId) -> Option<Folded> {
        let mut folded = Folded::default();
        if !self.own[at.index()] && ending(self.tree, at) > 0 {
            folded.classes += 1;
            let ends = self.tree.ends(at);
            ends.for_each(|(_, threads)| folded.ranks.append(&threads.ranks()));
        }
        let children = self.below[&at].iter().map(|(_, child)| child.index());
        for child in children.filter(|&child| !self.shown[child]) {
            folded.classes += self.hidden[child];
            folded.ranks.append(&self.passing[child].ranks());
        }
        (folded.classes > 0).then_some(folded)
    }

    /// Returns the segment that begins with a node, and its last node: one in which threads end, or that branches.
    fn segment(&self, first: Option<FrameId>, mut at: NodeId) -> (Segment, NodeId) {
        let mut segment = Segment {
            frames: first.into_iter().collect(),
            threads: self.passing[at.index()].clone(),
            ranks: self.passing[at.index()].ranks(),
            first: self.first_threads[at.index()],
            ..Segment::default()
        };
        loop {
            segment.folded = self.folded(at);
            let is_passed = segment.folded.is_none() && ending(self.tree, at) == 0;
            let [(frame, child)] = self.below[&at][..] else {
                break;
            };
            if !is_passed || at == Tree::ROOT {
                break;
            }
            segment.frames.push(frame);
            at = child;
        }
        if self.own[at.index()] {
            segment.ends = ends_of(self.tree, at);
        }
        (segment, at)
    }
}

/// Counts the threads whose stacks end in a node.
fn ending(tree: &Tree, node: NodeId) -> u64 {
    let threads = tree.ends(node).map(|(_, it)| it.count());
    threads.fold(0, u64::saturating_add)
}

impl Outline {
    /// Returns the outline of at most `limit` stacks: those with the most threads.
    pub(super) fn of(tree: &Tree, frames: &Frames, limit: usize) -> Self {
        let chosen = Chosen::of(tree, frames, limit);
        let mut outline = Self {
            segments: vec![Segment::default()],
            ranks: chosen.passing[Tree::ROOT.index()].ranks(),
            odd: Vec::new(),
        };
        let mut open = vec![(0, None, Tree::ROOT)];
        while let Some((parent, first, at)) = open.pop() {
            let (segment, at) = chosen.segment(first, at);
            let place = if at == Tree::ROOT {
                outline.segments[0] = segment;
                0
            } else {
                outline.segments.push(segment);
                let place = outline.segments.len() - 1;
                outline.segments[parent].children.push(place);
                place
            };
            let children = chosen.below[&at].iter().rev();
            let children = children.filter(|(_, child)| chosen.shown[child.index()]);
            open.extend(children.map(|&(frame, child)| (place, Some(frame), child)));
        }
        let places = 0..outline.segments.len();
        outline.odd = places
            .filter(|&place| outline.is_odd(&outline.segments[place]))
            .collect();
        if outline.odd.len() > MAX_ODD {
            outline.odd.clear();
        }
        outline
    }

    /// Returns true if few ranks end in a segment, while most ranks are together elsewhere.
    fn is_odd(&self, segment: &Segment) -> bool {
        let ends = !segment.ends.is_empty() && segment.children.is_empty();
        let (few, all) = (segment.ranks.len(), self.ranks.len());
        let most = self.segments.iter().filter(|it| !it.ends.is_empty());
        let most = most.map(|it| it.ranks.len()).max().unwrap_or(0);
        ends && most * 2 > all && (few * ODD_RANKS_DIVISOR <= all || few == 1 && all > 2)
    }
}
