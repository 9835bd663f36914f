//! The sections of the page, in the order in which they appear.

mod picture;
mod recorded;

use std::{cmp::Reverse, collections::BTreeMap, fmt::Write as _};

use base::RankSet;

use super::{
    super::{
        Report, SeenClass, bracketed, children::NUMBERED, confidence_word, counted, doing,
        loop_lines, motion_word, outline, reasons,
    },
    escaped,
};
use crate::{
    samples::Motion,
    stack::{Activity, End, FrameId, Frames},
    tree::{Ending, Which},
    verdict::Cite,
};

pub(super) use self::{
    picture::picture,
    recorded::{calls, calls_from_code, communicators, locks},
};

/// Maximum number of rows in a table.
const MAX_ROWS: usize = 250;
/// Number of rows in the table of classes that are visible without a click.
const FIRST_ROWS: usize = 16;
/// Maximum number of functions in a row.
const CALLERS: usize = 3;
/// Maximum number of characters of a rank set: in a row, on a box, and in full.
const SHORT: usize = 30;
const MIDDLE: usize = 200;
const LONG: usize = 1_500;
/// Maximum number of pieces in the bar of a sample.
const MAX_PIECES: usize = 60;

pub(super) fn verdicts(report: &Report, page: &mut String) {
    if report.verdicts.is_empty() {
        let _ = writeln!(
            page,
            "<p class=verdict>{}</p>",
            escaped(&report.no_verdict())
        );
        return;
    }
    for verdict in &report.verdicts {
        let _ = write!(
            page,
            "<div class=\"verdict yes\"><p><em>{}</em> <strong>{}</strong></p>\n<ul class=cites>",
            confidence_word(verdict.confidence),
            escaped(&verdict.sentence)
        );
        for cite in &verdict.cites {
            let samples: Vec<_> = cite.samples.iter().map(|at| (at + 1).to_string()).collect();
            let _ = write!(
                page,
                "<li>{} in {} {}: <code>{}</code>",
                cited(cite),
                if samples.len() == 1 {
                    "sample"
                } else {
                    "samples"
                },
                samples.join(", "),
                escaped(&report.place(&cite.frames))
            );
        }
        page.push_str("</ul></div>\n");
    }
}

/// Describes the ranks or processes of some evidence: `3 ranks [0-2]`, or `process 4711 below 1 rank [3]`.
fn cited(cite: &Cite) -> String {
    let ranks = bracketed(&cite.ranks, MIDDLE, "…");
    let ranks = format!("{} {ranks}", counted(cite.ranks.len() as u64, "rank"));
    let numbers: Vec<String> = cite.processes.iter().map(i32::to_string).collect();
    match numbers.len() {
        0 => ranks,
        1 => format!("process {} below {ranks}", numbers[0]),
        count if count <= NUMBERED => format!("processes {} below {ranks}", numbers.join(", ")),
        count => format!("{} below {ranks}", counted(count as u64, "process")),
    }
}

/// Writes command lines and pids at the top of the page, for people who want to look at the processes themselves.
pub(super) fn processes(report: &Report, page: &mut String) {
    for command in report.commands.iter().take(MAX_COMMANDS) {
        let _ = writeln!(
            page,
            "<p class=meta>{} <code>{}</code></p>",
            bracketed(&command.ranks, SHORT, "…"),
            escaped(&command.line)
        );
    }
    if let Some(more @ 1..) = report.commands.len().checked_sub(MAX_COMMANDS) {
        let more = counted(more as u64, "more command line");
        let _ = writeln!(page, "<p class=meta>… {more}: see the JSON</p>");
    }
    let runs = runs(report);
    if runs.is_empty() {
        return;
    }
    let shown = runs.iter().take(MAX_PIDS).map(|run| {
        format!(
            "[{}] {}",
            range(run.ranks.0.into(), run.ranks.1.into()),
            range(run.pids.0.into(), run.pids.1.into())
        )
    });
    let mut said: Vec<String> = shown.collect();
    said.extend((runs.len() > MAX_PIDS).then(|| "…".to_owned()));
    let _ = writeln!(page, "<p class=meta>pids {}</p>", said.join(" · "));
}

/// Maximum numbers of command lines and of runs of pids at the top of the page. The section on placement lists more pids.
const MAX_COMMANDS: usize = 4;
const MAX_PIDS: usize = 8;

pub(super) fn missing(report: &Report, page: &mut String) {
    for (missing, why) in reasons(report.missing.iter().map(|it| (&it.why, &it.ranks))) {
        let _ = writeln!(
            page,
            "<p class=verdict>{} not seen: {} <span class=set>{}</span></p>",
            counted(missing.len() as u64, "rank"),
            escaped(&why),
            bracketed(&missing, MIDDLE, "…")
        );
    }
}

/// Returns the CSS class that colors a stack by activity.
const fn colour(activity: Activity) -> &'static str {
    match activity {
        Activity::Running => "r",
        Activity::Waiting(_) => "w",
        Activity::Disk => "d",
        Activity::Stopped | Activity::Frozen | Activity::Traced | Activity::Ended => "t",
    }
}

fn ended(frames: &Frames, inner: Option<FrameId>, ending: &Ending) -> String {
    let incomplete = match ending.end {
        End::Start => "",
        End::Lost | End::Bound => " (incomplete)",
    };
    format!("{}{incomplete}", doing(frames, inner, ending.activity))
}

/// A row of the table of classes.
struct Row {
    ranks: RankSet,
    frames: Vec<FrameId>,
    activity: String,
    motion: String,
    load: Option<u64>,
    /// Which thread of their processes the row is about.
    thread: Which,
}

/// Describes what a class did over all samples, with its lines if it looped.
fn motion(class: &SeenClass) -> String {
    let word = motion_word(class.motion).filter(|_| class.motion != Motion::Spinning);
    let word = word.unwrap_or("–");
    let lines = loop_lines(class, "…");
    [Some(word.to_owned()), lines]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join(" ")
}

/// Returns a row for each class. Without classes, which need samples that were compared, returns a row for each stack of the
/// last sample.
fn rows(report: &Report) -> Vec<Row> {
    let mut rows: Vec<Row> = report
        .classes
        .iter()
        .map(|class| Row {
            ranks: class.ranks.clone(),
            frames: class.frames.clone(),
            activity: match class.motion {
                Motion::Spinning => "polling".to_owned(),
                _ => class.activity.to_string(),
            },
            motion: motion(class),
            load: report.load(class),
            thread: Which::First,
        })
        .collect();
    if rows.is_empty()
        && let Some(sample) = report.samples.last()
    {
        sample.tree.each(|stack, ending, threads| {
            rows.push(Row {
                ranks: threads.ranks(),
                frames: stack.to_vec(),
                activity: ended(&report.frames, stack.last().copied(), ending),
                motion: "–".to_owned(),
                load: None,
                thread: ending.thread,
            });
        });
    }
    rows.sort_by_cached_key(|row| (row.thread, Reverse(row.ranks.len()), row.ranks.first()));
    rows
}

pub(super) fn classes(report: &Report, page: &mut String) {
    let rows = rows(report);
    if rows.is_empty() {
        return;
    }
    let _ = writeln!(
        page,
        "<section><h2>Classes <small>{}, the largest first</small></h2>",
        rows.len()
    );
    let all = report.ranks().len();
    let is_odd = |row: &Row| {
        row.ranks.len() * outline::ODD_RANKS_DIVISOR <= all || row.ranks.len() == 1 && all > 2
    };
    let mark = rows.iter().filter(|row| is_odd(row)).count() <= outline::MAX_ODD;
    let (first, more) = rows.split_at(rows.len().min(FIRST_ROWS));
    let odd = |row: &Row| if mark && is_odd(row) { " class=o" } else { "" };
    table(report, first, odd, page);
    if !more.is_empty() {
        let ranks: usize = more.iter().map(|row| row.ranks.len()).sum();
        let _ = writeln!(
            page,
            "<details><summary>{} of {}</summary>",
            counted(more.len() as u64, "more class"),
            counted(ranks as u64, "rank")
        );
        table(report, &more[..more.len().min(MAX_ROWS)], odd, page);
        rest(more.len(), "class", page);
        page.push_str("</details>\n");
    }
    page.push_str("</section>\n");
}

fn table(report: &Report, rows: &[Row], odd: impl Fn(&Row) -> &'static str, page: &mut String) {
    page.push_str(
        "<div class=wide><table class=c><tr><th class=n>ranks<th>where<th>doing<th class=n>cpu<th>motion<th>who",
    );
    for row in rows {
        let load = row
            .load
            .map_or_else(|| "–".to_owned(), |load| format!("{load}%"));
        let _ = write!(
            page,
            "\n<tr{}><td class=n>{}<td class=f>{}<td class=a>{}<td class=n>{load}<td>{}<td class=set>{}",
            odd(row),
            row.ranks.len(),
            escaped(&callers(report, &row.frames)),
            row.activity,
            row.motion,
            set(&row.ranks)
        );
    }
    page.push_str("</table></div>\n");
}

/// Returns the innermost function of a stack, and its callers in the user's own code, innermost first.
fn callers(report: &Report, frames: &[FrameId]) -> String {
    report.places(frames, CALLERS)
}

fn rest(rows: usize, what: &str, page: &mut String) {
    if let Some(more @ 1..) = rows.checked_sub(MAX_ROWS) {
        let more = counted(more as u64, &format!("more {what}"));
        let _ = writeln!(page, "<p class=note>… {more}: see the JSON</p>");
    }
}

/// Formats a set of ranks. A long set opens with a click.
fn set(ranks: &RankSet) -> String {
    let short = bracketed(ranks, SHORT, "…");
    let long = bracketed(ranks, LONG, "… see the JSON");
    if short == long {
        short
    } else {
        format!("<details><summary>{short}</summary>{long}</details>")
    }
}

pub(super) fn recording(report: &Report, page: &mut String) {
    if report.samples.len() < 2 {
        return;
    }
    page.push_str(
        "<section><h2>Samples <small>the width of a stack is its number of ranks; hatched: ranks that were elsewhere in the previous sample</small></h2>\n",
    );
    let mut before: Option<BTreeMap<Vec<FrameId>, RankSet>> = None;
    for sample in &report.samples {
        let mut now = BTreeMap::<Vec<FrameId>, (RankSet, Activity)>::new();
        sample.tree.each(|stack, ending, threads| {
            // What other threads do says nothing about the rank, because most of them belong to libraries.
            if ending.thread == Which::Other {
                return;
            }
            let (ranks, _) = now
                .entry(stack.to_vec())
                .or_insert_with(|| (RankSet::new(), ending.activity));
            ranks.append(&threads.ranks());
        });
        let mut moved = RankSet::new();
        let mut pieces = Vec::new();
        for (stack, (ranks, activity)) in &now {
            let came = match &before {
                None => RankSet::new(),
                Some(before) => match before.get(stack) {
                    Some(were) => ranks.difference(were),
                    None => ranks.clone(),
                },
            };
            moved.append(&came);
            let stayed = ranks.len() - came.len();
            pieces.push((ranks.len(), stayed, came.len(), *activity, stack));
        }
        pieces.sort_by_key(|&(ranks, ..)| Reverse(ranks));
        let _ = write!(
            page,
            "<div class=look><span class=note>{:.1} s</span><div class=bar>",
            sample.at.as_secs_f64()
        );
        let least = (report.ranks().len() / 600).max(1);
        for (ranks, stayed, came, activity, stack) in pieces.iter().take(MAX_PIECES) {
            let title = format!(
                "{}: {}",
                counted(*ranks as u64, "rank"),
                report.place(stack)
            );
            for (count, hatched) in [(*stayed, ""), (*came, " m")] {
                if count > 0 {
                    let _ = write!(
                        page,
                        "<div class=\"p {}{hatched}\" style=\"flex:{}\" title=\"{}\"></div>",
                        colour(*activity),
                        count.max(least),
                        escaped(&title)
                    );
                }
            }
        }
        let hidden = pieces
            .iter()
            .skip(MAX_PIECES)
            .map(|(ranks, ..)| ranks)
            .sum::<usize>();
        if hidden > 0 {
            let _ = write!(
                page,
                "<div class=p style=\"flex:{hidden};background:var(--box)\" title=\"{} in smaller classes\"></div>",
                counted(hidden as u64, "rank")
            );
        }
        page.push_str("</div>");
        if before.is_some() {
            let said = if moved.is_empty() {
                "no rank moved".to_owned()
            } else {
                format!(
                    "{} moved {}",
                    counted(moved.len() as u64, "rank"),
                    bracketed(&moved, MIDDLE / 2, "…")
                )
            };
            let _ = write!(page, "<span class=note>{said}</span>");
        }
        page.push_str("</div>\n");
        before = Some(
            now.into_iter()
                .map(|(stack, (ranks, _))| (stack, ranks))
                .collect(),
        );
    }
    page.push_str("</section>\n");
}

/// Consecutive ranks on one host that have consecutive pids.
struct Run<'a> {
    host: &'a str,
    ranks: (u32, u32),
    pids: (i32, i32),
    cpus: RankSet,
}

fn runs(report: &Report) -> Vec<Run<'_>> {
    let mut runs = Vec::<Run<'_>>::new();
    for (rank, place) in &report.placement {
        let cpu = place.cpu.map(base::Rank);
        match runs.last_mut() {
            Some(run)
                if run.host == place.host
                    && run.ranks.1.checked_add(1) == Some(rank.0)
                    && run.pids.1.checked_add(1) == Some(place.pid) =>
            {
                run.ranks.1 = rank.0;
                run.pids.1 = place.pid;
                run.cpus.extend(cpu);
            }
            _ => runs.push(Run {
                host: &place.host,
                ranks: (rank.0, rank.0),
                pids: (place.pid, place.pid),
                cpus: cpu.into_iter().collect(),
            }),
        }
    }
    runs
}

/// Returns `4711-4714`, or a single number.
fn range(first: i64, last: i64) -> String {
    if first == last {
        first.to_string()
    } else {
        format!("{first}-{last}")
    }
}

pub(super) fn placement(report: &Report, page: &mut String) {
    let runs = runs(report);
    if runs.is_empty() {
        return;
    }
    page.push_str("<details><summary>Placement</summary>\n<div class=wide><table><tr><th>host<th>ranks<th>pids<th>processors");
    for run in runs.iter().take(MAX_ROWS) {
        let _ = write!(
            page,
            "\n<tr><td>{}<td class=set>{}<td class=set>{}<td class=set>{}",
            escaped(run.host),
            range(run.ranks.0.into(), run.ranks.1.into()),
            range(run.pids.0.into(), run.pids.1.into()),
            if run.cpus.is_empty() {
                "–".to_owned()
            } else {
                run.cpus.to_string()
            }
        );
    }
    page.push_str("</table></div>\n");
    rest(runs.len(), "row", page);
    page.push_str("</details>\n");
}

pub(super) fn circumstances(report: &Report, page: &mut String) {
    page.push_str("<section><h2>How it was found</h2>\n");
    for said in &report.found {
        let _ = writeln!(page, "<p>{}</p>", escaped(said));
    }
    for said in &report.doubts {
        let _ = writeln!(page, "<p>not sure: {}</p>", escaped(said));
    }
    let _ = writeln!(
        page,
        "<p class=note>{}</p>",
        escaped(&report.timing.sentence())
    );
    if !report.versions.is_empty() {
        let versions: Vec<_> = report
            .versions
            .iter()
            .map(|it| format!("{} {}", escaped(&it.of), escaped(&it.version)))
            .collect();
        let _ = writeln!(page, "<p class=note>{}</p>", versions.join(" · "));
    }
    page.push_str("</section>\n");
}

#[cfg(test)]
mod tests {
    use base::Rank;

    use super::*;
    use crate::report::Command;

    #[test]
    fn a_cut_list_of_command_lines_says_so() {
        let page = |count: u32| {
            let command = |rank| Command {
                ranks: RankSet::single(Rank(rank)),
                line: format!("./part-{rank}"),
            };
            let report = Report {
                commands: (0..count).map(command).collect(),
                ..Report::default()
            };
            let mut page = String::new();
            processes(&report, &mut page);
            page
        };
        assert!(page(4).ends_with("<p class=meta>[3] <code>./part-3</code></p>\n"));
        let cut = |page: &str| page.lines().last().unwrap_or_default().to_owned();
        assert_eq!(
            cut(&page(5)),
            "<p class=meta>… 1 more command line: see the JSON</p>"
        );
        assert_eq!(
            cut(&page(7)),
            "<p class=meta>… 3 more command lines: see the JSON</p>"
        );
    }
}
