//! Calls of MPI: what each set of ranks waits for, and the communicators with the ranks that are behind.

use std::fmt::Write as _;

use super::{MAX_ROWS, counted, escaped, rest, set};
use crate::{
    recorded::overview::{Progress, State},
    report::Report,
};

/// Differences within a communicator that are shown.
const BEHIND: usize = 4;

pub(in crate::report::html) fn calls(report: &Report, page: &mut String) {
    let all = &report.recorded.calls;
    if report.recorded.is_empty() {
        return;
    }
    page.push_str("<section><h2>Calls of MPI <small>recorded, in the last sample</small></h2>\n");
    let unreadable = &report.recorded.unreadable;
    if !unreadable.is_empty() {
        let number = counted(unreadable.len() as u64, "rank");
        let _ = writeln!(
            page,
            "<p>What the recorder has written in {number} is not readable: {}</p>",
            set(unreadable)
        );
    }
    for it in &report.recorded.inexact {
        let number = counted(it.ranks.len() as u64, "rank");
        let _ = writeln!(
            page,
            "<p>Not exact in {number}, so that nothing is proved with them: {} {}</p>",
            it.why.words(),
            set(&it.ranks)
        );
    }
    if all.is_empty() {
        page.push_str("</section>\n");
        return;
    }
    let _ = write!(
        page,
        "<div class=wide><table><tr><th class=n>ranks<th>function<th>on<th class=n>peer<th class=n>tag<th class=n>root<th class=n>operation<th>line<th>who"
    );
    for it in all.iter().take(MAX_ROWS) {
        let number =
            |number: Option<i64>| number.map_or_else(|| "–".to_owned(), |it| it.to_string());
        let text = |text: Option<&String>| text.map_or_else(|| "–".to_owned(), |it| escaped(it));
        let ended = match it.state {
            State::In => "",
            State::EndedIn => " (ended in it)",
            State::EndedAfter => " (ended after it)",
        };
        let _ = write!(
            page,
            "\n<tr title=\"{}\"><td class=n>{}<td class=f>{}{ended}<td>{}<td class=n>{}<td class=n>{}<td class=n>{}<td class=n>{}<td>{}<td class=set>{}",
            escaped(&it.call),
            it.ranks.len(),
            escaped(&it.function),
            text(it.communicator.as_ref()),
            number(it.peer.map(i64::from)),
            number(it.tag.map(i64::from)),
            number(it.root.map(i64::from)),
            it.operation
                .map_or_else(|| "–".to_owned(), |it| it.to_string()),
            text(it.place.as_ref()),
            set(&it.ranks)
        );
    }
    page.push_str("</table></div>\n");
    rest(all.len(), "call", page);
    page.push_str("</section>\n");
}

/// The calls of ranks without a recorder.
pub(in crate::report::html) fn calls_from_code(report: &Report, page: &mut String) {
    let all = &report.call_sites;
    if all.is_empty() {
        return;
    }
    page.push_str(
        "<section><h2>Calls of MPI <small>without a recorder, in the last sample</small></h2>\n\
         <div class=wide><table><tr><th class=n>ranks<th>call<th>who",
    );
    for (ranks, call) in all.iter().take(MAX_ROWS) {
        let _ = write!(
            page,
            "\n<tr><td class=n>{}<td>{}<td class=set>{}",
            ranks.len(),
            escaped(call),
            set(ranks)
        );
    }
    page.push_str("</table></div>\n");
    rest(all.len(), "call", page);
    page.push_str("</section>\n");
}

pub(in crate::report::html) fn communicators(report: &Report, page: &mut String) {
    let all = &report.recorded.communicators;
    if all.is_empty() {
        return;
    }
    let _ = write!(
        page,
        "<section><h2>Communicators <small>collective operations that were begun</small></h2>\n\
         <div class=wide><table><tr><th>name<th class=n>members<th class=n>operations<th>behind"
    );
    for it in all.iter().take(MAX_ROWS) {
        let odd = if it.behind().is_empty() {
            ""
        } else {
            " class=o"
        };
        let furthest = it.begun.first().map_or(0, |it| it.operations);
        let _ = write!(
            page,
            "\n<tr{odd}><td>{}<td class=n>{}<td class=n>{furthest}<td class=set>{}",
            escaped(&it.name),
            it.members,
            behind(it)
        );
    }
    page.push_str("</table></div>\n");
    rest(all.len(), "communicator", page);
    page.push_str("</section>\n");
}

pub(in crate::report::html) fn locks(report: &Report, page: &mut String) {
    let all = &report.recorded.locks;
    if all.is_empty() {
        return;
    }
    page.push_str(
        "<section><h2>Locks of windows <small>not unlocked</small></h2>\n\
         <div class=wide><table><tr><th>window<th>part of<th>locked by",
    );
    for it in all.iter().take(MAX_ROWS) {
        let target = it
            .target
            .map_or_else(|| "all ranks".to_owned(), |target| format!("rank {target}"));
        let _ = write!(
            page,
            "\n<tr><td>{}<td>{target}<td class=set>{}",
            escaped(&it.window),
            set(&it.ranks)
        );
    }
    page.push_str("</table></div>\n");
    rest(all.len(), "lock", page);
    page.push_str("</section>\n");
}

fn behind(on: &Progress) -> String {
    let all = on.behind();
    let mut said: Vec<String> = all
        .iter()
        .take(BEHIND)
        .map(|it| format!("{}: {}", it.operations, set(&it.ranks)))
        .collect();
    if let Some(more @ 1..) = all.len().checked_sub(BEHIND) {
        said.push(format!("… {}", counted(more as u64, "more number")));
    }
    if said.is_empty() {
        "–".to_owned()
    } else {
        said.join(" · ")
    }
}
