//! The picture: a box for each frame, as wide as the number of its ranks.

mod below;

use std::fmt::Write as _;

use self::below::Below;
use super::{MIDDLE, SHORT, colour, ended, escaped};
use crate::{
    report::{
        Report, bracketed, counted, name,
        outline::{Outline, Segment},
        view::View,
    },
    stack::{Frame, Frames},
};

/// Maximum number of stacks in the picture.
const MAX_DRAWN: usize = 60;

/// Minimum width of a stack, as a divisor of the width of the picture.
const MIN_PART: usize = 90;

/// Width below which a box is too narrow for its text, as a divisor of the width of the row. On a phone that is 70 pixels.
const NARROW: usize = 6;
/// Maximum number of boxes that get a number and a line below the picture: the narrowest box has room for one digit.
const MAX_LABELS: usize = 9;
/// Maximum number of frames in such a line.
const LABEL_FRAMES: usize = 4;

/// Maximum number of frames of a segment to draw, at its outer end and at its inner end.
const DRAWN: (usize, usize) = (4, 9);

pub(in crate::report::html) fn picture(report: &Report, page: &mut String) {
    let Some(sample) = report.samples.last() else {
        return;
    };
    let view = View::of(&sample.tree, &report.frames);
    let outline = Outline::of(&view.tree, &view.frames, MAX_DRAWN);
    let samples = if report.samples.len() > 1 {
        " in the last sample"
    } else {
        ""
    };
    let _ = writeln!(
        page,
        "<section><h2>Where they are{samples} <small>callers above, callees below; as wide as their ranks are many, \
         but few are drawn wider than they are</small></h2>\n<div class=pic id=picture>"
    );
    let weights = weights(&outline);
    let helpers = Below::of(sample, &outline);
    let root = &outline.segments[0];
    let is_first = |&&at: &&usize| outline.segments[at].first;
    let (first, others): (Vec<usize>, Vec<usize>) =
        root.children.iter().partition(|at| is_first(at));
    let mut drawing = Drawing {
        report,
        frames: &view.frames,
        outline: &outline,
        weights: &weights,
        narrow: narrow(&outline, &weights),
        labels: Vec::new(),
        helpers: &helpers,
        whose: "",
    };
    drawing.row(&first, Some(root), page);
    if !others.is_empty() {
        page.push_str("\n<p class=note>other threads of these processes</p>");
        drawing.row(&others, None, page);
    }
    if !helpers.of_others.is_empty() {
        page.push_str("\n<p class=note>processes that other ranks have started</p>");
        below::draw(report, &helpers.of_others, page);
    }
    let labels = drawing.labels;
    page.push_str("</div>\n");
    if !labels.is_empty() {
        page.push_str("<ol class=labels>");
        for (number, &at) in labels.iter().enumerate() {
            label(&view.frames, &outline.segments[at], number + 1, page);
            page.push_str(&helpers.sentence(at));
        }
        page.push_str("</ol>\n");
    }
    page.push_str(
        "<p class=panel id=panel>Point at a box for its ranks; click to keep it.</p>\n\
         <p class=\"note key\"><i class=r></i>running<i class=w></i>waiting<i class=d></i>in disk wait<i class=t></i>stopped",
    );
    if helpers.are_drawn() {
        page.push_str(" · dotted: processes that the ranks above them have started");
    }
    if helpers.hidden > 0 {
        let hidden = counted(helpers.hidden as u64, "process");
        let _ = write!(page, " · not drawn: {hidden} below ranks");
    }
    for (kind, threads) in &sample.helpers {
        let _ = write!(
            page,
            " · not drawn: {} ({}) in {}",
            counted(threads.count(), "thread"),
            escaped(kind),
            counted(threads.ranks().len() as u64, "rank"),
        );
    }
    page.push_str("</p></section>\n");
}

/// Returns the width of each segment, in ranks.
fn weights(outline: &Outline) -> Vec<usize> {
    // A parent comes before its children.
    let least = (outline.ranks.len() / MIN_PART).max(1);
    let mut weights = vec![0; outline.segments.len()];
    for (at, segment) in outline.segments.iter().enumerate().rev() {
        let below: usize = segment.children.iter().map(|&child| weights[child]).sum();
        weights[at] = below + ends_weight(segment, least) + folded_weight(segment, least);
    }
    weights
}

fn ends_weight(segment: &Segment, least: usize) -> usize {
    let ends = segment
        .ends
        .iter()
        .map(|(_, threads)| threads.ranks().len());
    let ranks: usize = ends.sum();
    if ranks == 0 { 0 } else { ranks.max(least) }
}

fn folded_weight(segment: &Segment, least: usize) -> usize {
    segment
        .folded
        .as_ref()
        .map_or(0, |folded| folded.ranks.len().max(least))
}

/// Writes the note on hidden stacks in or below a segment.
fn remainder(segment: &Segment, page: &mut String) {
    if let Some(folded) = &segment.folded {
        let _ = write!(
            page,
            "<b title=\"{} {}\">… {}</b>",
            counted(folded.ranks.len() as u64, "rank"),
            bracketed(&folded.ranks, SHORT, "…"),
            counted(folded.classes as u64, "more class"),
        );
    }
}

/// The state of drawing a picture.
struct Drawing<'a> {
    report: &'a Report,
    frames: &'a Frames,
    outline: &'a Outline,
    weights: &'a [usize],
    /// Segments that are too narrow for their text, and will get a number.
    narrow: Vec<usize>,
    /// Segments that have a number, which is the index plus 1.
    labels: Vec<usize>,
    helpers: &'a Below,
    /// The text before a number of ranks: `below ` if the stacks are those of descendants of the ranks.
    whose: &'a str,
}

impl Drawing<'_> {
    /// Writes a row of boxes with everything below them. If `parent` has hidden stacks, a box for them is beside these.
    fn row(&mut self, children: &[usize], parent: Option<&Segment>, page: &mut String) {
        page.push_str("<div class=k>");
        if let Some(parent) = parent.filter(|it| it.folded.is_some()) {
            let all = self.weights[0];
            let below: usize = self.outline.segments[0]
                .children
                .iter()
                .map(|&it| self.weights[it])
                .sum();
            let rest = all.saturating_sub(below);
            rest_of(parent, rest, page);
            if rest > 0 {
                page.push_str("</div>");
            }
        }
        let mut open: Vec<Piece> = children.iter().rev().map(|&it| Piece::Open(it)).collect();
        while let Some(piece) = open.pop() {
            let Piece::Open(at) = piece else {
                page.push_str("</div>");
                continue;
            };
            let segment = &self.outline.segments[at];
            let number = self.narrow.contains(&at).then(|| {
                self.labels.push(at);
                self.labels.len()
            });
            self.open_segment(at, number, page);
            open.push(Piece::Close);
            let helpers = self.helpers.of_segment.get(&at);
            if segment.children.is_empty() {
                if let Some(helpers) = helpers {
                    below::draw(self.report, helpers, page);
                }
                continue;
            }
            page.push_str("<div class=k>");
            open.push(Piece::Close);
            let below: usize = segment.children.iter().map(|&it| self.weights[it]).sum();
            let rest = self.weights[at] - below;
            rest_of(segment, rest, page);
            if rest > 0 {
                if let Some(helpers) = helpers {
                    below::draw(self.report, helpers, page);
                }
                page.push_str("</div>");
            }
            open.extend(segment.children.iter().rev().map(|&it| Piece::Open(it)));
        }
        page.push_str("</div>");
    }

    /// Opens the box of a segment. The caller closes it.
    fn open_segment(&self, at: usize, number: Option<usize>, page: &mut String) {
        let (frames, outline) = (self.frames, self.outline);
        let segment = &outline.segments[at];
        let mut class = "s".to_owned();
        if let (Some((ending, _)), true) = (segment.ends.first(), segment.children.is_empty()) {
            class = format!("{class} {}", colour(ending.activity));
        }
        if outline.odd.contains(&at) {
            class.push_str(" o");
        }
        let _ = write!(
            page,
            "\n<div class=\"{class}\" style=\"flex:{} 1 0\" title=\"{}{} of {} {}",
            self.weights[at],
            self.whose,
            counted(segment.ranks.len() as u64, "rank"),
            outline.ranks.len(),
            bracketed(&segment.ranks, MIDDLE, "…"),
        );
        for (ending, _) in &segment.ends {
            let _ = write!(
                page,
                ", {}",
                ended(frames, segment.frames.last().copied(), ending)
            );
        }
        page.push_str("\">");
        if let Some(number) = number {
            let _ = write!(page, "<b class=l>{number}</b>");
        }
        let all = segment.frames.len();
        let (outer, inner) = DRAWN;
        for (index, &id) in segment.frames.iter().enumerate() {
            if all > outer + inner + 1 && index >= outer && index < all - inner {
                if index == outer {
                    let _ = write!(page, "<b>… {} frames</b>", all - outer - inner);
                }
                continue;
            }
            frame(frames.get(id), page);
        }
        if segment.children.is_empty() {
            remainder(segment, page);
        }
    }
}

/// Returns the boxes that get a number because their text does not fit. If there are too many, odd ranks come first, then
/// large boxes.
fn narrow(outline: &Outline, weights: &[usize]) -> Vec<usize> {
    // Every row has the full width of the picture. The row of first threads is used as the measure for all rows.
    let row = outline.segments[0].children.iter();
    let row = row.filter(|&&at| outline.segments[at].first);
    let whole: usize = row.map(|&at| weights[at]).sum();
    let is_narrow = |&at: &usize| {
        let is_leaf = at > 0 && outline.segments[at].children.is_empty();
        is_leaf && weights[at] * NARROW < whole
    };
    let mut narrow: Vec<usize> = (0..outline.segments.len()).filter(is_narrow).collect();
    narrow.sort_by_key(|at| {
        let ranks = outline.segments[*at].ranks.len();
        (!outline.odd.contains(at), std::cmp::Reverse(ranks))
    });
    narrow.truncate(MAX_LABELS);
    narrow
}

/// Opens a box beside the callees of a segment for the remaining stacks, if there are any. Then the caller closes it.
fn rest_of(segment: &Segment, weight: usize, page: &mut String) {
    if weight > 0 {
        let _ = write!(page, "<div class=s style=\"flex:{weight} 1 0;order:1\">");
        remainder(segment, page);
    }
}

/// Writes the line below the picture for a box that is too narrow for its text.
fn label(frames: &Frames, segment: &Segment, number: usize, page: &mut String) {
    let skipped = segment.frames.len().saturating_sub(LABEL_FRAMES);
    let places = segment.frames[skipped..].iter();
    let places: Vec<String> = places
        .map(|&id| escaped(&frames.get(id).to_string()))
        .collect();
    let mut doing: Vec<String> = segment
        .ends
        .iter()
        .map(|(it, _)| ended(frames, segment.frames.last().copied(), it))
        .collect();
    doing.dedup();
    let _ = write!(
        page,
        "<li value={number}>{} {}: <code>{}</code> · {}",
        counted(segment.ranks.len() as u64, "rank"),
        bracketed(&segment.ranks, SHORT, "…"),
        places.join(" &gt; "),
        doing.join(", ")
    );
}

fn frame(frame: &Frame, page: &mut String) {
    let said = escaped(&name(frame));
    match &frame.source {
        Some(source) if source.line > 0 => {
            let _ = write!(
                page,
                "<b>{said} <i>{}</i></b>",
                escaped(&source.to_string())
            );
        }
        _ => {
            let _ = write!(page, "<b>{said}</b>");
        }
    }
}

enum Piece {
    Open(usize),
    Close,
}
