//! The picture: a box for each frame, as wide as the ranks in it.

use std::fmt::Write as _;

use super::{MIDDLE, SHORT, colour, ended, escaped};
use crate::{
    report::{
        Report, bracketed, counted, name,
        outline::{Outline, Segment},
        view::View,
    },
    stack::{Frame, Frames},
};

/// Stacks in the picture.
const MAX_DRAWN: usize = 60;

/// The smallest part of the picture's width that a stack gets, as one of so many.
const MIN_PART: usize = 90;

/// Frames of a segment that are drawn at its outer end and at its inner one.
const DRAWN: (usize, usize) = (4, 9);

pub(in crate::report::html) fn picture(report: &Report, page: &mut String) {
    let Some(sample) = report.samples.last() else {
        return;
    };
    let view = View::of(&sample.tree, &report.frames);
    let outline = Outline::of(&view.tree, &view.frames, MAX_DRAWN);
    let looks = if report.samples.len() > 1 {
        " in the last look"
    } else {
        ""
    };
    let _ = writeln!(
        page,
        "<section><h2>Where they are{looks} <small>callers above, callees below; as wide as their ranks are many, \
         but few are drawn wider than they are</small></h2>\n<div class=pic id=picture>"
    );
    // A parent stands before its children.
    let least = (outline.ranks.len() / MIN_PART).max(1);
    let mut weights = vec![0; outline.segments.len()];
    for (at, segment) in outline.segments.iter().enumerate().rev() {
        let below: usize = segment.children.iter().map(|&child| weights[child]).sum();
        weights[at] = below + ends_weight(segment, least) + folded_weight(segment, least);
    }
    let mut open = vec![Piece::Open(0)];
    while let Some(piece) = open.pop() {
        let at = match piece {
            Piece::Open(at) => at,
            Piece::Close => {
                page.push_str("</div>");
                continue;
            }
        };
        let segment = &outline.segments[at];
        if at > 0 {
            open_segment(&view.frames, &outline, at, weights[at], page);
            open.push(Piece::Close);
        }
        if !segment.children.is_empty() || segment.folded.is_some() && at == 0 {
            page.push_str("<div class=k>");
            open.push(Piece::Close);
            let rest = weights[at]
                - segment
                    .children
                    .iter()
                    .map(|&child| weights[child])
                    .sum::<usize>();
            if rest > 0 {
                let _ = write!(page, "<div class=s style=\"flex:{rest} 1 0;order:1\">");
                remainder(segment, page);
                page.push_str("</div>");
            }
            open.extend(
                segment
                    .children
                    .iter()
                    .rev()
                    .map(|&child| Piece::Open(child)),
            );
        }
    }
    page.push_str(
        "</div>\n<p class=panel id=panel>Point at a box for its ranks; click to keep it.</p>\n\
         <p class=\"note key\"><i class=r></i>running<i class=w></i>waiting<i class=d></i>in disk wait<i class=t></i>stopped",
    );
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

/// What stands beside the callees of a segment: stacks that end in it, and those that are not drawn.
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

fn open_segment(frames: &Frames, outline: &Outline, at: usize, weight: usize, page: &mut String) {
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
        "\n<div class=\"{class}\" style=\"flex:{weight} 1 0\" title=\"{} of {} {}",
        counted(segment.ranks.len() as u64, "rank"),
        outline.ranks.len(),
        bracketed(&segment.ranks, MIDDLE, "…"),
    );
    for (ending, _) in &segment.ends {
        let _ = write!(page, ", {}", ended(ending));
    }
    page.push_str("\">");
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
