//! A report as text for a terminal: the verdicts, and the tree of stacks, no wider than the terminal.
//!
//! ```text
//! 1024 [0-1023] main (solver.c:120) > run (solver.c:99)
//! ├─ 1023 [0-36,38-1023] solve (solver.c:88) > MPI_Allreduce · polling
//! └─    1 [37] load (io.c:12) > read_block (io.c:41) · in disk wait ◀ 1 of 1024
//! ```

mod names;
mod tree;

use std::fmt::Write as _;

use base::RankSet;
use serde::{Deserialize, Serialize};

use super::{
    Children, Report, SeenClass, bracketed, clean, confidence_word, counted, loop_lines,
    motion_word, reasons,
};
use crate::{recorded::overview::Overview, samples::Motion, tree::Threads};

/// The layout of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Columns of the terminal.
    pub width: usize,
    /// How much to show.
    pub detail: Detail,
    /// Whether to use colors.
    pub colour: Colour,
    /// The characters of guide lines.
    pub guides: Guides,
}

/// How much of a report to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Detail {
    /// As much as fits. Long names are shortened, repetitions are counted, and of many stacks only the largest are shown.
    Folded,
    /// Everything. Each frame is on its own line, with its program or library, and nothing is shortened.
    Full,
}

/// Whether a text has colors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    /// No colors.
    Never,
    /// Escape sequences of ANSI terminals.
    Ansi,
}

/// The characters with which guide lines are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guides {
    /// Box-drawing characters.
    Unicode,
    /// ASCII characters, which every terminal has.
    Ascii,
}

/// Maximum number of stacks and classes to show.
const MAX_STACKS: usize = 20;
/// Smallest width in columns. Narrower terminals wrap our lines.
const MIN_WIDTH: usize = 30;
/// Number of columns kept for text, however deep the indentation.
const MIN_ROOM: usize = 24;
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    Plain,
    Strong,
    Ranks,
    Place,
    State,
    Odd,
}

impl Style {
    /// Returns the parameters of the escape sequence that turns the style on.
    const fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Strong => "1",
            Self::Ranks => "36",
            Self::Place => "2",
            Self::State => "33",
            Self::Odd => "1;31",
        }
    }
}

/// A word, which is never split between lines: pieces of text without spaces between them.
type Word = Vec<(Style, String)>;

/// Formats a report as text.
#[must_use]
pub fn text(report: &Report, look: &Layout) -> String {
    let mut page = Page::new(*look);
    page.line(&heading(report));
    for doubt in &report.doubts {
        page.flow("unsure: ", Style::State, &clean(doubt));
    }
    for verdict in &report.verdicts {
        let confidence = format!("{}: ", confidence_word(verdict.confidence));
        page.flow(&confidence, Style::Odd, &clean(&verdict.sentence));
    }
    if report.verdicts.is_empty() && report.samples.len() > 1 {
        page.flow("", Style::Plain, &clean(&report.no_verdict()));
    }
    if report.samples.len() > 1 && !report.classes.is_empty() {
        page.out.push('\n');
        page.classes(report);
    }
    if let Some(sample) = report.samples.last() {
        page.out.push('\n');
        page.tree(report, &sample.tree);
        for (kind, threads) in &sample.helpers {
            page.helpers(kind, threads);
        }
        if !report.recorded.is_empty() {
            page.out.push('\n');
            page.recorded(&report.recorded);
        }
        if !report.call_sites.is_empty() {
            page.out.push('\n');
            page.calls(
                report
                    .call_sites
                    .iter()
                    .map(|(ranks, call)| (ranks, &**call)),
            );
        }
        for (name, children) in &sample.children {
            page.out.push('\n');
            page.children(report, name, children);
        }
    }
    for (missing, why) in reasons(report.missing.iter().map(|it| (&it.why, &it.ranks))) {
        let count = missing.len().to_string();
        let ranks = page.ranks(&missing);
        let words = [
            vec![(Style::Odd, "missing:".to_owned())],
            vec![(Style::Strong, count)],
            vec![(Style::Ranks, ranks)],
        ];
        let mut words = words.to_vec();
        words.extend(plain(&why));
        page.words(("", "  "), &words);
    }
    page.out
}

/// Returns the title and the extent of the report, and gives the number of ranks only once.
fn heading(report: &Report) -> String {
    let (title, extent) = (clean(&report.title), report.extent());
    let ranks = counted(report.ranks().len() as u64, "rank");
    let title_words: Vec<&str> = title.split(' ').collect();
    let told = title_words.windows(2).any(|words| words.join(" ") == ranks);
    match extent.strip_prefix(&ranks).filter(|_| told) {
        Some(rest) => [title.as_str(), rest].concat(),
        None => [title.as_str(), ": ", &extent].concat(),
    }
}

/// Text about what sampling has cost.
impl super::Timing {
    /// Returns `312 threads were stopped for 0.05 ms at the median, 0.11 ms at most; 48 ms in all`.
    #[must_use]
    pub fn sentence(&self) -> String {
        let ms = |time: std::time::Duration| time.as_secs_f64() * 1e3;
        let (threads, were) = (
            counted(self.stops, "thread"),
            if self.stops == 1 { "was" } else { "were" },
        );
        format!(
            "{threads} {were} stopped for {:.2} ms at the median, {:.2} ms at most; {:.0} ms in all",
            ms(self.stopped_median),
            ms(self.stopped_longest),
            ms(self.total)
        )
    }
}

/// The text so far, and its layout.
struct Page {
    look: Layout,
    out: String,
}

impl Page {
    fn new(look: Layout) -> Self {
        let width = look.width.max(MIN_WIDTH);
        Self {
            look: Layout { width, ..look },
            out: String::new(),
        }
    }

    fn line(&mut self, text: &str) {
        self.words(("", "  "), &plain(text));
    }

    fn flow(&mut self, label: &str, style: Style, text: &str) {
        let mut words = Vec::new();
        if !label.is_empty() {
            words.push(vec![(style, label.trim_end().to_owned())]);
        }
        words.extend(plain(text));
        self.words(("", "  "), &words);
    }

    /// Fills lines with words. The first line begins with the prefix `first`, the others begin with `rest`.
    fn words(&mut self, (first, rest): (&str, &str), words: &[Word]) {
        let mut column = self.begin(first);
        let mut begun = false;
        for word in words {
            let width = width_of(word);
            if begun && column + 1 + width > self.look.width && self.look.detail == Detail::Folded {
                self.end();
                column = self.begin(rest);
                begun = false;
            }
            if begun {
                self.out.push(' ');
                column += 1;
            }
            word.iter().for_each(|(style, text)| self.put(*style, text));
            column += width;
            begun = true;
        }
        self.end();
    }

    fn begin(&mut self, prefix: &str) -> usize {
        self.put(Style::Place, prefix);
        prefix.chars().count()
    }

    fn end(&mut self) {
        let end = self.out.trim_end_matches(' ').len();
        self.out.truncate(end);
        self.out.push('\n');
    }

    fn put(&mut self, style: Style, text: &str) {
        match (self.look.colour, style.code()) {
            (Colour::Ansi, code) if !code.is_empty() && !text.trim().is_empty() => {
                let _ = write!(self.out, "\u{1b}[{code}m{text}\u{1b}[0m");
            }
            _ => self.out.push_str(text),
        }
    }

    /// Returns the Unicode character or its ASCII substitute.
    const fn sign(&self, unicode: &'static str, ascii: &'static str) -> &'static str {
        match self.look.guides {
            Guides::Unicode => unicode,
            Guides::Ascii => ascii,
        }
    }

    fn ranks(&self, ranks: &RankSet) -> String {
        let width = match self.look.detail {
            Detail::Folded => (self.look.width / 3).max(14),
            Detail::Full => usize::MAX,
        };
        bracketed(ranks, width, self.sign("…", "..."))
    }

    /// Recorded calls of MPI in which ranks are, and who is behind.
    fn recorded(&mut self, all: &Overview) {
        self.calls(all.calls.iter().map(|it| (&it.ranks, &*it.call)));
        let locks = all.locks.iter().map(|it| {
            let of = match it.target {
                Some(target) => format!("rank {target}"),
                None => "all ranks".to_owned(),
            };
            (&it.ranks, format!("{of} on {}", it.window))
        });
        self.groups("locked:", &locks.collect::<Vec<_>>());
        let behind = all.communicators.iter().flat_map(|on| {
            let furthest = on.begun.first().map_or(0, |it| it.operations);
            let each = on.behind().iter();
            each.map(move |it| {
                let (begun, name) = (it.operations, &on.name);
                let words = format!("on {name}: {begun} of {furthest} collective operations");
                (&it.ranks, words)
            })
        });
        self.groups("behind:", &behind.collect::<Vec<_>>());
        let inexact = all.inexact.iter();
        let inexact = inexact.map(|it| (&it.ranks, format!("{}: no proof", it.why.words())));
        self.groups("not exact:", &inexact.collect::<Vec<_>>());
        if !all.unreadable.is_empty() {
            let what = "what the recorder has written there".to_owned();
            self.groups("not readable:", &[(&all.unreadable, what)]);
        }
    }

    /// Lines about sets of ranks, and how many more there are.
    fn groups(&mut self, what: &str, all: &[(&RankSet, String)]) {
        let limit = self.limit();
        for (ranks, words) in all.iter().take(limit) {
            self.group(what, ranks, words);
        }
        let more = all.len().saturating_sub(limit);
        if more > 0 {
            self.line(&format!("{what} {more} more groups of ranks"));
        }
    }

    fn limit(&self) -> usize {
        match self.look.detail {
            Detail::Folded => MAX_STACKS,
            Detail::Full => usize::MAX,
        }
    }

    /// Calls of MPI in which ranks are.
    fn calls<'c>(&mut self, calls: impl ExactSizeIterator<Item = (&'c RankSet, &'c str)>) {
        let limit = self.limit();
        let more = calls.len().saturating_sub(limit);
        for (ranks, call) in calls.take(limit) {
            self.group("in:", ranks, call);
        }
        if more > 0 {
            self.line(&format!("in: {more} more calls"));
        }
    }

    /// A line about some ranks.
    fn group(&mut self, what: &str, ranks: &RankSet, said: &str) {
        let shown = self.ranks(ranks);
        let mut words = vec![
            vec![(Style::Odd, what.to_owned())],
            vec![(Style::Strong, ranks.len().to_string())],
            vec![(Style::Ranks, shown)],
        ];
        words.extend(plain(&clean(said)));
        self.words(("", "  "), &words);
    }

    fn classes(&mut self, report: &Report) {
        let limit = self.limit();
        let shown = &report.classes[..report.classes.len().min(limit)];
        let digits = shown.iter().map(|class| class.ranks.len()).max();
        let digits = digits.map_or(0, |most| most.to_string().len());
        for class in shown {
            let count = format!("{:>digits$}", class.ranks.len());
            let mut words = vec![
                vec![(Style::Strong, count)],
                vec![(Style::Ranks, self.ranks(&class.ranks))],
            ];
            let state = state(report, class, self.sign("…", "...")).into_iter();
            words.extend(state.map(|word| vec![(Style::State, word)]));
            let place = report.place(&class.frames);
            words.extend(place.split(" < ").enumerate().map(|(at, part)| {
                let part = self.shortened(part, self.look.width - digits - 3);
                let sign = if at > 0 { "< " } else { "" };
                vec![(Style::Plain, format!("{sign}{part}"))]
            }));
            self.words(("", &" ".repeat(digits + 1)), &words);
        }
        if shown.len() < report.classes.len() {
            let rest = &report.classes[shown.len()..];
            let ranks = rest.iter().map(|class| class.ranks.len()).sum();
            self.rest("", rest.len(), ranks);
        }
    }

    fn rest(&mut self, prefix: &str, classes: usize, ranks: usize) {
        let sign = self.sign("…", "...");
        let (classes, ranks) = (
            counted(classes as u64, "more class"),
            counted(ranks as u64, "rank"),
        );
        let text = format!("{sign} {classes}, {ranks}: --full");
        let rest = " ".repeat(prefix.chars().count() + 2);
        self.words((prefix, &rest), &plain(&text));
    }

    fn children(&mut self, report: &Report, name: &str, children: &Children) {
        let ranks = children.ranks();
        let mut words = vec![
            vec![(Style::Strong, ranks.len().to_string())],
            vec![(Style::Ranks, self.ranks(&ranks))],
        ];
        words.extend(plain(&clean(&children.sentence(name))));
        self.words(("", "  "), &words);
        self.tree(report, &children.tree);
    }

    fn helpers(&mut self, kind: &str, threads: &Threads) {
        let each: Vec<_> = threads.by_count().collect();
        let ranks = self.ranks(&threads.ranks());
        let many = match each[..] {
            [(count, _)] => counted(u64::from(count), "thread"),
            _ => format!("{} in all", counted(threads.count(), "thread")),
        };
        let words = [
            vec![(Style::Strong, threads.ranks().len().to_string())],
            vec![(Style::Ranks, ranks)],
            vec![(Style::Plain, format!("{many}: {}", clean(kind)))],
        ];
        self.words(("", "  "), &words);
    }
}

/// Returns activity, motion and load of a class: `looping,` or `polling,` `98% cpu:`.
fn state(report: &Report, class: &SeenClass, ellipsis: &str) -> Vec<String> {
    // A polling thread runs in some samples and sleeps in others, so its activity in one sample means nothing.
    let activity = (class.motion != Motion::Spinning).then(|| class.activity.to_string());
    let mut words: Vec<String> = activity.into_iter().collect();
    words.extend(
        motion_word(class.motion).map(|word| match loop_lines(class, ellipsis) {
            Some(lines) => format!("{word} {lines}"),
            None => word.to_owned(),
        }),
    );
    words.extend(report.load(class).map(|load| format!("{load}% cpu")));
    let last = words.len() - 1;
    for (index, word) in words.iter_mut().enumerate() {
        word.push(if index == last { ':' } else { ',' });
    }
    words
}

fn plain(text: &str) -> Vec<Word> {
    let words = text.split(' ').filter(|word| !word.is_empty());
    words
        .map(|word| vec![(Style::Plain, word.to_owned())])
        .collect()
}

fn width_of(word: &Word) -> usize {
    word.iter().map(|(_, text)| text.chars().count()).sum()
}
