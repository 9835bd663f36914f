//! Draws the descendants of ranks below the boxes of these ranks.

use std::{collections::BTreeMap, fmt::Write as _};

use base::RankSet;

use super::{Drawing, escaped, weights};
use crate::{
    report::{Children, Merged, Report, counted, outline::Outline, view::View},
    tree::{Threads, Tree},
};

/// Maximum number of boxes in the picture. Each has the descendants of one name below one box of ranks.
const MAX_BOXES: usize = 40;
/// Maximum number of stacks in one such box.
const MAX_STACKS: usize = 6;

/// Descendants with the same name, of the ranks of one box.
pub(super) type Named = (String, Children);

/// The places of descendants in the picture.
#[derive(Default)]
pub(super) struct Below {
    /// Descendants drawn below the box of a segment, by the index of the segment.
    pub(super) of_segment: BTreeMap<usize, Vec<Named>>,
    /// Descendants of ranks that have no box.
    pub(super) of_others: Vec<Named>,
    /// Number of descendants that are not drawn.
    pub(super) hidden: usize,
}

impl Below {
    /// Assigns the descendants of a sample to the segments of its outline.
    pub(super) fn of(sample: &Merged, outline: &Outline) -> Self {
        let mut all = Self::default();
        let mut boxes = 0;
        for (name, children) in &sample.children {
            let mut left = children.ranks();
            let mut place = |children: Children| {
                if boxes == MAX_BOXES {
                    all.hidden += children.procs.len();
                    return None;
                }
                boxes += 1;
                Some((name.clone(), children))
            };
            // The root has no box. So the descendants of ranks whose stacks end in it go to `of_others`.
            for (at, segment) in outline.segments.iter().enumerate().skip(1) {
                let here = ranks_at(outline, at).intersection(&left);
                if here.is_empty() || !segment.first {
                    continue;
                }
                left = left.difference(&here);
                if let Some(placed) = place(only(children, &here)) {
                    all.of_segment.entry(at).or_default().push(placed);
                }
            }
            if !left.is_empty() {
                all.of_others.extend(place(only(children, &left)));
            }
        }
        all
    }

    /// Returns true if any descendants are drawn.
    pub(super) fn are_drawn(&self) -> bool {
        !self.of_segment.is_empty() || !self.of_others.is_empty()
    }

    /// Returns the text about descendants to append to the label of a segment.
    pub(super) fn sentence(&self, at: usize) -> String {
        let named = self.of_segment.get(&at).into_iter().flatten();
        named
            .map(|(name, children)| format!("; {}", escaped(&children.sentence(name))))
            .collect()
    }
}

/// Returns the ranks whose stacks end in a segment.
fn ranks_at(outline: &Outline, at: usize) -> RankSet {
    let ends = outline.segments[at].ends.iter();
    ends.fold(RankSet::new(), |all, (_, threads)| {
        all.union(&threads.ranks())
    })
}

/// Returns the part of the descendants that belongs to these ranks.
fn only(children: &Children, ranks: &RankSet) -> Children {
    let mut tree = Tree::new();
    children.tree.each(|stack, ending, threads| {
        let mut here = Threads::default();
        for (each, of) in threads.by_count() {
            let both = of.intersection(ranks);
            if !both.is_empty() {
                here.add(each, &both);
            }
        }
        if !here.is_empty() {
            tree.add(stack, ending.clone(), &here);
        }
    });
    let procs = children.procs.iter().copied();
    let procs: Vec<_> = procs.filter(|it| ranks.contains(it.rank)).collect();
    // If only some of the processes are here, it is unknown how many of these could not be sampled.
    let is_whole = procs.len() == children.procs.len();
    Children {
        unseen: if is_whole { children.unseen } else { 0 },
        procs,
        tree,
    }
}

/// Draws a box for the descendants of each name, with their stacks in it.
pub(super) fn draw(report: &Report, named: &[Named], page: &mut String) {
    page.push_str("<div class=\"k hs\">");
    for (name, children) in named {
        let said = match children.procs[..] {
            [only] => format!("{name} ({})", only.pid),
            _ => format!(
                "{} of {name}",
                counted(children.procs.len() as u64, "process")
            ),
        };
        let _ = write!(
            page,
            "\n<div class=\"s h\" style=\"flex:{} 1 0\" title=\"{}\"><b>{}</b>",
            children.procs.len(),
            escaped(&children.sentence(name)),
            escaped(&said)
        );
        let view = View::of(&children.tree, &report.frames);
        let outline = Outline::of(&view.tree, &view.frames, MAX_STACKS);
        let root = &outline.segments[0];
        let mut drawing = Drawing {
            report,
            frames: &view.frames,
            outline: &outline,
            weights: &weights(&outline),
            narrow: Vec::new(),
            labels: Vec::new(),
            helpers: &Below::default(),
            whose: "below ",
        };
        drawing.row(&root.children, Some(root), page);
        page.push_str("</div>");
    }
    page.push_str("</div>");
}
