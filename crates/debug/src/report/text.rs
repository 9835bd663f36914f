//! For a terminal: what may be wrong, and the tree of stacks, no wider than it is.
//!
//! ```text
//! 1024 [0-1023] main (solver.c:120) > run (solver.c:99)
//! ├─ 1023 [0-36,38-1023] solve (solver.c:88) > MPI_Allreduce · running
//! └─    1 [37] load (io.c:12) > read_block (io.c:41) · in disk wait ◀ 1 of 1024
//! ```

use std::fmt::Write as _;

use base::RankSet;

use super::{
    Class, Report, bracketed, clean, counted, loop_lines, motion_word, name,
    outline::{self, Outline, Segment},
    reason, sureness_word,
};
use crate::{
    stack::{End, Frame, FrameId, FrameKind, Frames},
    tree::Threads,
};

/// How a text looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Columns of the terminal.
    pub width: usize,
    /// How much is shown.
    pub detail: Detail,
    /// Whether there are colours.
    pub colour: Colour,
    /// What lines are drawn with.
    pub guides: Guides,
}

/// How much is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// What fits and is needed: names are cut, repetitions counted, of many stacks only the largest shown.
    Folded,
    /// Each frame on a line of its own, with its program or library; nothing is cut.
    Full,
}

/// Whether there are colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    /// None.
    Never,
    /// Those of ANSI terminals.
    Ansi,
}

/// What lines are drawn with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guides {
    /// Characters for that.
    Unicode,
    /// Those of every terminal.
    Ascii,
}

/// Stacks that are shown of very many.
const MAX_STACKS: usize = 20;
/// The narrowest terminal that is filled; a narrower one breaks our lines.
const MIN_WIDTH: usize = 30;
/// Columns that are left for what is said, however deep it stands.
const MIN_ROOM: usize = 24;
/// Frames that may repeat as a group.
const MAX_PERIOD: usize = 4;
/// Times that a group of frames stands there before it is counted.
const MIN_REPEATS: usize = 3;

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
    /// What turns it on in a terminal.
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

/// What stands on one line: pieces without a space between them.
type Word = Vec<(Style, String)>;

/// A report as text.
#[must_use]
pub fn text(report: &Report, look: &Look) -> String {
    let mut page = Page::new(*look);
    page.line(&heading(report));
    for doubt in &report.doubts {
        page.flow("unsure: ", Style::State, &clean(doubt));
    }
    for verdict in &report.verdicts {
        let sureness = format!("{}: ", sureness_word(verdict.sureness));
        page.flow(&sureness, Style::Odd, &clean(&verdict.sentence));
    }
    if report.verdicts.is_empty() && report.samples.len() > 1 {
        page.flow("", Style::Plain, report.no_verdict());
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
    }
    for absent in &report.missing {
        let count = absent.ranks.len().to_string();
        let ranks = page.ranks(&absent.ranks);
        let words = [
            vec![(Style::Odd, "missing:".to_owned())],
            vec![(Style::Strong, count)],
            vec![(Style::Ranks, ranks)],
        ];
        let mut words = words.to_vec();
        words.extend(plain(&reason(&absent.why)));
        page.words(("", "  "), &words);
    }
    page.out
}

/// What was looked at, and how much of it there is; the number of ranks once.
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

/// What looking has cost, as one line.
impl super::Timing {
    /// `312 threads were stopped for 0.05 ms at the median, 0.11 ms at most; 48 ms in all`.
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

/// Lines as they are filled.
struct Page {
    look: Look,
    out: String,
}

impl Page {
    fn new(look: Look) -> Self {
        let width = look.width.max(MIN_WIDTH);
        Self {
            look: Look { width, ..look },
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

    /// Fills lines with words: the first begins with the one, the others with the other.
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

    /// The character for Unicode, or what stands for it.
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

    fn classes(&mut self, report: &Report) {
        let limit = match self.look.detail {
            Detail::Folded => MAX_STACKS,
            Detail::Full => usize::MAX,
        };
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

    fn tree(&mut self, report: &Report, tree: &crate::tree::Tree) {
        let frames = &report.frames;
        let outline = match self.look.detail {
            Detail::Folded => {
                Outline::of(&outline::without_startup(tree, frames), frames, MAX_STACKS)
            }
            Detail::Full => Outline::of(tree, frames, usize::MAX),
        };
        let mut open = vec![Step::Segment(0, Prefixes::default(), 1)];
        while let Some(step) = open.pop() {
            let (at, prefixes, digits) = match step {
                Step::Segment(at, prefixes, digits) => (at, prefixes, digits),
                Step::Rest(prefix, classes, ranks) => {
                    self.rest(&prefix, classes, ranks);
                    continue;
                }
            };
            let segment = &outline.segments[at];
            if at > 0 {
                self.segment(&outline, at, frames, &prefixes, digits);
            }
            let below = prefixes.below;
            if let Some(folded) = &segment.folded {
                let corner = self.corner(at, &below, Last::Yes);
                open.push(Step::Rest(corner, folded.classes, folded.ranks.len()));
            }
            let sizes = segment.children.iter();
            let sizes = sizes.map(|&child| outline.segments[child].ranks.len());
            let digits = sizes.max().unwrap_or(0).to_string().len();
            for (index, &child) in segment.children.iter().enumerate().rev() {
                let last = if index + 1 == segment.children.len() && segment.folded.is_none() {
                    Last::Yes
                } else {
                    Last::No
                };
                let line = match (at, last) {
                    (0, _) => String::new(),
                    (_, Last::Yes) => format!("{below}   "),
                    (_, Last::No) => format!("{below}{}", self.sign("│  ", "|  ")),
                };
                let prefixes = Prefixes {
                    own: self.corner(at, &below, last),
                    below: self.clamped(line),
                };
                open.push(Step::Segment(child, prefixes, digits));
            }
        }
    }

    /// What a child's first line begins with.
    fn corner(&self, parent: usize, below: &str, last: Last) -> String {
        match (parent, last) {
            (0, _) => String::new(),
            (_, Last::Yes) => self.clamped(format!("{below}{}", self.sign("└─ ", "`- "))),
            (_, Last::No) => self.clamped(format!("{below}{}", self.sign("├─ ", "|- "))),
        }
    }

    /// Its inner end, where it would leave no room for what is said.
    fn clamped(&self, prefix: String) -> String {
        let room = self.look.width.saturating_sub(MIN_ROOM);
        let length = prefix.chars().count();
        if self.look.detail == Detail::Full || length <= room {
            return prefix;
        }
        // Whole steps of three, so that the lines of one depth stay below each other.
        let over = (length - room).div_ceil(3) * 3;
        prefix.chars().skip(over).collect()
    }

    fn segment(
        &mut self,
        outline: &Outline,
        at: usize,
        frames: &Frames,
        prefixes: &Prefixes,
        digits: usize,
    ) {
        let segment = &outline.segments[at];
        let (own, below) = (prefixes.own.as_str(), prefixes.below.as_str());
        let count = format!("{:>digits$}", segment.ranks.len());
        let mut head = vec![
            vec![(Style::Strong, count)],
            vec![(Style::Ranks, self.ranks(&segment.ranks))],
        ];
        if segment.threads.count() != segment.ranks.len() as u64 {
            let each: Vec<_> = segment.threads.by_count().collect();
            head.push(vec![(
                Style::Plain,
                match each[..] {
                    [(count, _)] => format!("({count} threads each)"),
                    _ => format!("({} threads)", segment.threads.count()),
                },
            )]);
        }
        let line = if segment.children.is_empty() && segment.folded.is_none() {
            ""
        } else {
            self.sign("│", "|")
        };
        let rest = format!("{below}{line:<4}");
        let mut tail = self.ends(segment);
        if outline.odd.contains(&at) {
            let of = format!("{} of {}", segment.ranks.len(), outline.ranks.len());
            let sign = self.sign("◀", "<-");
            tail.push(vec![(Style::Odd, format!("{sign} {of}"))]);
        }
        let indent = rest.chars().count();
        match self.look.detail {
            Detail::Folded => {
                let room = self.look.width.saturating_sub(indent + 2);
                head.extend(self.chain(&segment.frames, frames, room));
                head.extend(tail);
                self.words((own, &rest), &head);
            }
            Detail::Full => {
                let mut lines = segment.frames.iter().map(|&id| {
                    let frame = frames.get(id);
                    let mut word = self.frame(frame, usize::MAX);
                    if let (Some(module), Some(_)) = (&frame.module, &frame.function) {
                        word.push((Style::Place, format!(" in {}", clean(module))));
                    }
                    word
                });
                head.extend(lines.next());
                let lines: Vec<Word> = lines.collect();
                let mut prefix = own;
                for line in lines {
                    self.words((prefix, ""), &head);
                    head = vec![line];
                    prefix = &rest;
                }
                head.extend(tail);
                self.words((prefix, ""), &head);
            }
        }
    }

    /// What the threads do whose stacks end here.
    fn ends(&self, segment: &Segment) -> Vec<Word> {
        let mut words = Vec::new();
        let alone = segment.ends.len() == 1 && segment.children.is_empty();
        for (index, (ending, threads)) in segment.ends.iter().enumerate() {
            let mut said = ending.activity.to_string();
            match ending.end {
                End::Start => {}
                End::Lost => said.push_str(" (incomplete)"),
                End::Bound => said.push_str(" (incomplete: too deep)"),
            }
            let mark = if index == 0 { self.sign("·", "-") } else { "" };
            let mut word = vec![(Style::Place, mark.to_owned())];
            if index == 0 {
                word.push((Style::Plain, " ".to_owned()));
            }
            word.push((Style::State, said));
            if !alone || segment.folded.is_some() {
                let ranks = self.ranks(&threads.ranks());
                word.push((Style::Plain, format!(" {} ", threads.count())));
                word.push((Style::Ranks, ranks));
                if index + 1 < segment.ends.len() {
                    word.push((Style::Plain, ",".to_owned()));
                }
            }
            words.push(word);
        }
        words
    }

    /// Frames in a row, with what repeats counted.
    fn chain(&self, ids: &[FrameId], frames: &Frames, room: usize) -> Vec<Word> {
        let mut words: Vec<Word> = Vec::new();
        let mut at = 0;
        while at < ids.len() {
            let (period, times) = repeats(&ids[at..]);
            for (index, &id) in ids[at..at + period].iter().enumerate() {
                let mut word = Word::new();
                if !words.is_empty() {
                    word.push((Style::Place, "> ".to_owned()));
                }
                if times > 1 && period > 1 && index == 0 {
                    word.push((Style::Place, "(".to_owned()));
                }
                word.extend(self.frame(frames.get(id), room));
                if times > 1 && index + 1 == period {
                    let end = if period > 1 { ")" } else { "" };
                    let sign = self.sign("×", "x");
                    word.push((Style::State, format!("{end} {sign}{times}")));
                }
                words.push(word);
            }
            at += period * times;
        }
        words
    }

    /// A frame in at most `room` columns, where a name can be cut so that it fits.
    fn frame(&self, frame: &Frame, room: usize) -> Word {
        let place = match &frame.source {
            Some(source) if source.line > 0 => clean(&source.to_string()),
            _ => String::new(),
        };
        let inlined = frame.kind == FrameKind::Inlined;
        let place = match (place.is_empty(), inlined) {
            (true, false) => String::new(),
            (true, true) => " (inlined)".to_owned(),
            (false, false) => format!(" ({place})"),
            (false, true) => format!(" ({place}, inlined)"),
        };
        let room = room.saturating_sub(place.chars().count()).max(MIN_ROOM / 2);
        let name = self.shortened(&name(frame), room);
        vec![(Style::Plain, name), (Style::Place, place)]
    }

    /// A name in at most `room` characters: first the arguments of templates go, the innermost first, then the middle.
    fn shortened(&self, name: &str, room: usize) -> String {
        if self.look.detail == Detail::Full || name.chars().count() <= room {
            return name.to_owned();
        }
        let ellipsis = self.sign("…", "...");
        let mut short = name.to_owned();
        for depth in (1..=nesting(name)).rev() {
            short = without_arguments(name, depth, ellipsis);
            if short.chars().count() <= room {
                return short;
            }
        }
        let letters: Vec<char> = short.chars().collect();
        let keep = room.saturating_sub(ellipsis.chars().count());
        // Of a name the end says more than the beginning.
        let head = keep / 3;
        let tail = letters.len().saturating_sub(keep - head);
        let (head, tail) = (&letters[..head], &letters[tail..]);
        format!(
            "{}{ellipsis}{}",
            head.iter().collect::<String>(),
            tail.iter().collect::<String>()
        )
    }
}

/// Whether it is the last of its siblings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Last {
    Yes,
    No,
}

/// What is to be written next.
enum Step {
    /// A segment, and the digits of the largest count among its siblings.
    Segment(usize, Prefixes, usize),
    /// So many stacks of so many ranks that are not shown.
    Rest(String, usize, usize),
}

/// What the lines of a segment begin with.
#[derive(Clone, Debug, Default)]
struct Prefixes {
    /// Its first.
    own: String,
    /// The others, and those of what is below it.
    below: String,
}

/// Activity, motion and load of a class: `running,` `spinning,` `98% cpu:`.
fn state(report: &Report, class: &Class, ellipsis: &str) -> Vec<String> {
    let mut words = vec![class.activity.to_string()];
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

/// How many frames a row begins with that repeat as a group, and how often.
fn repeats(ids: &[FrameId]) -> (usize, usize) {
    (1..=MAX_PERIOD.min(ids.len()))
        .map(|period| {
            let group = &ids[..period];
            let times = ids.chunks(period).take_while(|it| *it == group).count();
            (period, times)
        })
        .find(|&(_, times)| times >= MIN_REPEATS)
        .unwrap_or((1, 1))
}

/// How deep the angle brackets of a name are nested.
fn nesting(name: &str) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    for letter in name.chars() {
        match letter {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

/// A name without what stands in angle brackets at this depth or deeper.
fn without_arguments(name: &str, from: usize, ellipsis: &str) -> String {
    let (mut depth, mut short) = (0_usize, String::new());
    for letter in name.chars() {
        if letter == '<' {
            depth += 1;
            if depth == from {
                short.push('<');
                short.push_str(ellipsis);
            }
        }
        if letter == '>' && depth > 0 {
            depth -= 1;
            if depth + 1 == from {
                short.push('>');
                continue;
            }
        }
        if depth < from {
            short.push(letter);
        }
    }
    short
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
