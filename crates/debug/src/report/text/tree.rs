//! Formats the tree of stacks, with one line per segment if that fits.

use super::{Detail, MAX_STACKS, MIN_ROOM, Page, Style, Word};
use crate::{
    report::{
        Report, clean, doing,
        outline::{Outline, Segment},
        view::View,
    },
    stack::{End, FrameId, Frames},
};

/// Maximum length of a group of frames whose repetitions are counted.
const MAX_PERIOD: usize = 4;

/// Minimum number of repetitions that are counted. Fewer are written out.
const MIN_REPEATS: usize = 3;

impl Page {
    pub(super) fn tree(&mut self, report: &Report, tree: &crate::tree::Tree) {
        let view;
        let (frames, outline) = match self.look.detail {
            Detail::Folded => {
                view = View::of(tree, &report.frames);
                (
                    &view.frames,
                    Outline::of(&view.tree, &view.frames, MAX_STACKS),
                )
            }
            Detail::Full => {
                let frames = &report.frames;
                (frames, Outline::of(tree, frames, usize::MAX))
            }
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

    /// Returns the prefix of a child's first line.
    fn corner(&self, parent: usize, below: &str, last: Last) -> String {
        match (parent, last) {
            (0, _) => String::new(),
            (_, Last::Yes) => self.clamped(format!("{below}{}", self.sign("└─ ", "`- "))),
            (_, Last::No) => self.clamped(format!("{below}{}", self.sign("├─ ", "|- "))),
        }
    }

    /// Removes the outer end of a prefix that would leave too little room for text.
    fn clamped(&self, prefix: String) -> String {
        let room = self.look.width.saturating_sub(MIN_ROOM);
        let length = prefix.chars().count();
        if self.look.detail == Detail::Full || length <= room {
            return prefix;
        }
        // A level of indentation has three columns. Removing whole levels keeps lines of the same depth aligned.
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
        let mut tail = self.ends(segment, frames);
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

    /// Describes the state of the threads whose stacks end here.
    fn ends(&self, segment: &Segment, frames: &Frames) -> Vec<Word> {
        let mut words = Vec::new();
        let alone = segment.ends.len() == 1 && segment.children.is_empty();
        for (index, (ending, threads)) in segment.ends.iter().enumerate() {
            let mut said = doing(frames, segment.frames.last().copied(), ending.activity);
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

    /// Formats a row of frames, with repetitions counted.
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
}

/// Whether a child is the last of its siblings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Last {
    Yes,
    No,
}

/// The next piece of the tree to write.
enum Step {
    /// A segment, its prefixes, and the number of digits of the largest count among its siblings.
    Segment(usize, Prefixes, usize),
    /// A line on hidden stacks: its prefix, and the numbers of these stacks and of their ranks.
    Rest(String, usize, usize),
}

/// The prefixes of the lines of a segment.
#[derive(Clone, Debug, Default)]
struct Prefixes {
    /// Prefix of the first line.
    own: String,
    /// Prefix of the other lines, and of the lines of its children.
    below: String,
}

/// Returns the length of the group of frames that repeats at the beginning of a row, and the number of repetitions. Without
/// repetitions both are 1.
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
