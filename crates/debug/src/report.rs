//! What was found, as people and programs get it: text for a terminal, JSON, folded stacks, and a page.
//!
//! All of them are functions from a [`Report`] to a string: nothing here looks at a process, a clock or a terminal. What
//! comes from the debugged programs (names of functions, of files, of programs) may be anything: it is made harmless
//! for each output ([`clean`] for text).

mod children;
mod folded;
mod html;
mod json;
mod making;
mod merged;
mod outline;
mod text;
mod view;

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
    time::Duration,
};

use base::{Rank, RankSet};
use serde::{Deserialize, Serialize};

use crate::{
    known::{self, Owner, Position},
    samples::{Boundary, Motion, Observation, Recording},
    stack::{Activity, Frame, FrameId, FrameKind, Frames, Missing, Seen},
    verdict::{self, Confidence, Outlook, Verdict, Wanted},
};

pub use self::{
    children::{ChildPlace, Children},
    folded::folded,
    html::html,
    json::{BadReport, VERSION, from_json, json},
    making::Origin,
    merged::{Merged, Shown},
    text::{Colour, Detail, Guides, Layout, text},
};

/// Everything that is known of a target, seen once or several times.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// What was looked at, in a few words: `mpirun ./solver (pid 4711)`.
    pub title: String,
    /// How its ranks were found, step by step.
    pub found: Vec<String>,
    /// What is not sure about that.
    pub doubts: Vec<String>,
    /// The host that we looked from.
    pub host: String,
    /// When, as people of that place write it.
    pub date: String,
    /// What took part: our version, the kernel, and which builds of programs and of MPI.
    pub versions: Vec<Part>,
    /// What ranks were started with, the first ranks first.
    pub commands: Vec<Command>,
    /// Where each rank is.
    pub placement: BTreeMap<Rank, Place>,
    /// Every frame that is meant below.
    pub frames: Frames,
    /// The samples, the first one first.
    pub samples: Vec<Merged>,
    /// Ranks of which the same was seen in all samples, the largest class first.
    pub classes: Vec<SeenClass>,
    /// Ranks of which nothing was seen in the last sample.
    pub missing: Vec<Absent>,
    /// What may be wrong, the surest first.
    pub verdicts: Vec<Verdict>,
    /// What there is to say where that is nothing, and there were several samples; otherwise empty.
    pub undecided: String,
    /// What looking has cost.
    pub timing: Timing,
}

/// A part with its version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// `dbgr`, `Linux`, or the name of a file.
    pub of: String,
    /// A version or a build id.
    pub version: String,
}

/// A command line, and the ranks that have it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    /// Who.
    pub ranks: RankSet,
    /// The arguments, the program first, with spaces between them.
    pub line: String,
}

/// Where a rank runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The name of its host.
    pub host: String,
    /// Its process there.
    pub pid: i32,
    /// The processor that it last ran on, where that is known.
    pub cpu: Option<u32>,
}

/// Ranks of which the same was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenClass {
    /// Who.
    pub ranks: RankSet,
    /// Where they were at the last sample, outermost first.
    pub frames: Vec<FrameId>,
    /// What they did then.
    pub activity: Activity,
    /// What they did over time.
    pub motion: Motion,
    /// The processor time that all of them have used between the first sample and the last.
    pub cpu: Duration,
    /// Lines of the user's innermost function on which they were seen, ascending.
    pub lines: Vec<u32>,
}

/// Who waits and uses the processor for it.
const POLLING: &str = "polling";

/// What ranks did over time, in a word; none where it is not known.
const fn motion_word(motion: Motion) -> Option<&'static str> {
    match motion {
        Motion::Unknown => None,
        Motion::Stuck => Some("stuck"),
        Motion::Spinning => Some(POLLING),
        Motion::Looping => Some("looping"),
        Motion::Moving => Some("moving"),
    }
}

/// What a thread did whose stack, as it is shown, ends in this frame: who runs in a wait polls.
fn doing(frames: &Frames, inner: Option<FrameId>, activity: Activity) -> String {
    let waits = || {
        let known = known::known(frames.get(inner?), Position::Outer);
        known.filter(|known| known.kind.is_polled())
    };
    match activity {
        Activity::Running if waits().is_some() => POLLING.to_owned(),
        _ => activity.to_string(),
    }
}

/// Lines of a loop that are named one by one.
const LINES: usize = 6;

/// On which lines a class runs in circles; nothing of one that does not.
fn loop_lines(class: &SeenClass, ellipsis: &str) -> Option<String> {
    if class.motion != Motion::Looping || class.lines.len() < 2 {
        return None;
    }
    let shown = class.lines.iter().take(LINES).map(u32::to_string);
    let more = (class.lines.len() > LINES).then(|| ellipsis.to_owned());
    let lines: Vec<String> = shown.chain(more).collect();
    Some(format!("on lines {}", lines.join(", ")))
}

/// How sure a verdict is, in a word.
const fn confidence_word(confidence: Confidence) -> &'static str {
    match confidence {
        Confidence::Certain => "certain",
        Confidence::Likely => "likely",
        Confidence::Possible => "possible",
    }
}

/// What is said of samples in which nobody waits for others.
const NOTHING_TOLD: &str = "nothing that was seen tells a program that hangs from a slow one";

/// Why there is no verdict, and what more samples could tell.
fn undecided(outlook: &Outlook, all: &Observation) -> String {
    let mut said = outlook
        .odd
        .clone()
        .unwrap_or_else(|| NOTHING_TOLD.to_owned());
    if let Some(wanted) = outlook.wanted {
        let _ = write!(said, "; {}", more_looks(wanted, all));
    }
    said
}

/// What to ask for next time. Where the samples were enough and only their time was not, no fewer are asked for than were
/// taken, as far as they can be a second apart.
fn more_looks(wanted: Wanted, all: &Observation) -> String {
    let seconds = wanted.span.as_secs();
    let most = usize::try_from(seconds).map_or(usize::MAX, |most| most.saturating_add(1));
    let samples = wanted.samples.max(all.samples.min(most));
    let gaps = u64::try_from(samples.saturating_sub(1)).unwrap_or(1).max(1);
    let every = seconds.div_ceil(gaps).max(1);
    let what = if wanted.samples > all.samples {
        format!("{} over {seconds} s", counted(samples as u64, "sample"))
    } else {
        let span = all.span.as_secs_f64();
        format!("samples over {seconds} s, instead of {span:.1} s,")
    };
    format!("{what} can tell more (--samples {samples} --every {every}s)")
}

/// Ranks of which nothing was seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Absent {
    /// Who.
    pub ranks: RankSet,
    /// Why.
    pub why: Missing,
}

/// What looking has cost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    /// From the start to the report.
    pub total: Duration,
    /// How many threads were stopped for a moment, over all samples.
    pub stops: u64,
    /// How long at the median.
    pub stopped_median: Duration,
    /// And the longest of them.
    pub stopped_longest: Duration,
    /// Where the time went; nothing of a report that was not made at once.
    pub phases: Option<Phases>,
}

/// Where the time of a report went, without that from one sample to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Phases {
    /// Finding the ranks.
    pub finding: Duration,
    /// Reading what they have mapped, and the files of that.
    pub reading: Duration,
    /// The samples at all threads, with the names of where they are.
    pub looking: Duration,
    /// Merging that, and making a text of it.
    pub merging: Duration,
}

impl fmt::Display for Phases {
    /// `finding the ranks took 3.1 ms, reading their programs 12.0 ms, looking 20.4 ms, merging and drawing 2.2 ms`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        write!(
            f,
            "finding the ranks took {:.1} ms, reading their programs {:.1} ms, looking {:.1} ms, merging and drawing {:.1} ms",
            ms(self.finding),
            ms(self.reading),
            ms(self.looking),
            ms(self.merging)
        )
    }
}

impl Report {
    /// What was seen in some samples, and what it amounts to. Who the target is and where, the caller adds.
    #[must_use]
    pub fn of(recording: Recording, detail: Detail) -> Self {
        let all = recording.observe(Boundary::Known);
        let mut frames = recording.frames;
        let snapshots = recording.samples.iter().map(|it| &it.snapshot);
        let shown = Shown::of(detail, snapshots, &mut frames);
        let classes = all.classes(&frames).into_iter();
        let classes = classes
            .filter_map(|class| {
                Some(SeenClass {
                    activity: class.activity.ok()?,
                    ranks: class.ranks,
                    frames: class.frames,
                    motion: class.motion,
                    cpu: class.cpu,
                    lines: class.lines,
                })
            })
            .collect();
        let verdicts = verdict::judge(&frames, &all);
        let undecided = if verdicts.is_empty() && recording.samples.len() > 1 {
            undecided(&verdict::outlook(&frames, &all), &all)
        } else {
            String::new()
        };
        let mut report = Self {
            classes,
            verdicts,
            undecided,
            ..Self::default()
        };
        let mut stops = Vec::new();
        for sample in &recording.samples {
            let (mut merged, missing) = shown.merged(&frames, &sample.snapshot);
            merged.at = sample.at;
            report.samples.push(merged);
            report.missing = missing;
            for seen in sample.snapshot.all_seen() {
                if let Seen::Threads(threads) = seen {
                    stops.extend(threads.iter().map(|thread| thread.stopped));
                }
            }
        }
        stops.retain(|time| !time.is_zero());
        stops.sort_unstable();
        report.timing.stops = stops.len() as u64;
        report.timing.stopped_median = stops.get(stops.len() / 2).copied().unwrap_or_default();
        report.timing.stopped_longest = stops.last().copied().unwrap_or_default();
        report.frames = frames;
        report
    }

    /// Every rank of the target, seen or not.
    #[must_use]
    pub fn ranks(&self) -> RankSet {
        let mut all: RankSet = self.placement.keys().copied().collect();
        for sample in &self.samples {
            all.append(&sample.ranks());
        }
        for absent in &self.missing {
            all.append(&absent.ranks);
        }
        all
    }

    /// From the first sample to the last.
    #[must_use]
    pub fn span(&self) -> Duration {
        self.samples
            .last()
            .map_or(Duration::ZERO, |sample| sample.at)
    }

    /// `1024 ranks on 16 hosts, 3 samples in 2.0 s`.
    fn extent(&self) -> String {
        let hosts: std::collections::BTreeSet<_> =
            self.placement.values().map(|place| &place.host).collect();
        let mut said = counted(self.ranks().len() as u64, "rank");
        if hosts.len() > 1 {
            let _ = write!(said, " on {}", counted(hosts.len() as u64, "host"));
        }
        if self.samples.len() > 1 {
            let samples = counted(self.samples.len() as u64, "sample");
            let _ = write!(said, ", {samples} in {:.1} s", self.span().as_secs_f64());
        }
        said
    }

    /// What is said where there is no verdict.
    #[must_use]
    pub fn no_verdict(&self) -> String {
        let why = if self.samples.len() < 2 {
            "one sample does not tell what moves (--samples 3)"
        } else if self.undecided.is_empty() {
            NOTHING_TOLD
        } else {
            &self.undecided
        };
        format!("no verdict: {why}")
    }

    /// Processor time as a part of one processor for each rank of a class.
    fn load(&self, class: &SeenClass) -> Option<u64> {
        let time = self.span().as_secs_f64() * class.ranks.len().max(1) as f64;
        let part = class.cpu.as_secs_f64() / time * 100.0;
        // What is no number was measured over no time.
        part.is_finite().then(|| percent(part))
    }

    /// Where a class is: its innermost function, and the nearest place that the user has written.
    fn place(&self, frames: &[FrameId]) -> String {
        self.places(frames, 2)
    }

    /// Where a class is: its innermost function, and those that the user has written, the innermost first, as many as
    /// `most` says in all.
    fn places(&self, frames: &[FrameId], most: usize) -> String {
        let stack: Vec<&Frame> = frames.iter().map(|&id| self.frames.get(id)).collect();
        let Some((inner, outer)) = stack.split_last() else {
            return "??".to_owned();
        };
        let has_line = |frame: &Frame| frame.source.as_ref().is_some_and(|it| it.line > 0);
        let owner = outer.iter().map(|frame| known::owner(frame)).max();
        let is_own = |frame: &&&Frame| match owner {
            Some(owner) if owner > Owner::System => known::owner(frame) == owner,
            // Where nothing is anybody's, what has a line says most.
            _ => has_line(frame),
        };
        let inner_is_told = has_line(inner) && known::owner(inner) > Owner::System;
        let cited = known::own(outer.iter().copied()).unwrap_or(outer.len());
        let callers = outer
            .iter()
            .enumerate()
            .rev()
            .filter(|&(at, frame)| at <= cited && is_own(&frame))
            .map(|(_, frame)| frame);
        // One place is enough where that is the user's own line.
        let callers = callers.take(match (inner_is_told, most) {
            (true, 2) => 0,
            _ => most - 1,
        });
        let said = std::iter::once(inner).chain(callers);
        let said: Vec<String> = said.map(|frame| clean(&frame.to_string())).collect();
        said.join(" < ")
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share of time, rounded, and bounded by its type"
)]
fn percent(part: f64) -> u64 {
    part.round() as u64
}

/// `1 rank`, `2 ranks`.
fn counted(count: u64, what: &str) -> String {
    let plural = match (count, what.strip_suffix("ss")) {
        (1, _) => "",
        (_, Some(_)) => "es",
        (_, None) => "s",
    };
    format!("{count} {what}{plural}")
}

/// A set of ranks in brackets, of at most `width` characters where that is possible: `[0-7,9,11,…]`. The number of
/// ranks stands beside it.
#[must_use]
pub fn bracketed(ranks: &RankSet, width: usize, ellipsis: &str) -> String {
    let whole = ranks.to_string();
    if whole.len() + 2 <= width {
        return format!("[{whole}]");
    }
    let room = width.saturating_sub(3 + ellipsis.chars().count());
    // One item at least, however narrow it is.
    let end = whole
        .match_indices(',')
        .map(|(at, _)| at)
        .take_while(|&at| at <= room)
        .last()
        .or_else(|| whole.find(','));
    match end {
        Some(end) => format!("[{},{ellipsis}]", &whole[..end]),
        None => format!("[{whole}]"),
    }
}

/// A text without what would move the cursor of a terminal, change its colours, or turn the direction of writing.
#[must_use]
pub fn clean(text: &str) -> String {
    let harmless = |letter: char| {
        let turns = matches!(letter, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if letter.is_control() || turns {
            '\u{fffd}'
        } else {
            letter
        }
    };
    text.chars().map(harmless).collect()
}

/// Why nothing was seen, after the names of the ranks.
fn reason(why: &Missing) -> String {
    match why {
        Missing::Gone => "ended".to_owned(),
        Missing::Zombie => "ended, and its parent has not taken note".to_owned(),
        Missing::TracedBy(pid) => format!("process {pid} debugs it"),
        Missing::NotPermitted => "we may not look at it".to_owned(),
        Missing::Unproved => "nothing shows which process it is".to_owned(),
        Missing::Changed => "became another program while we looked".to_owned(),
        Missing::Elsewhere(host) => format!("on host {}, which we do not reach", clean(host)),
        Missing::Unreachable => "did not stop in time".to_owned(),
        Missing::AgentLost(host) => format!("the agent on host {} was lost", clean(host)),
        Missing::AgentSilent(host) => {
            format!("the agent on host {} did not answer in time", clean(host))
        }
        Missing::AgentRefused(host) => {
            format!("the agent on host {} refused to look at it", clean(host))
        }
    }
}

/// What a frame is called without its place.
fn name(frame: &Frame) -> String {
    match (&frame.function, &frame.module, frame.kind) {
        (Some(function), ..) => clean(function),
        (None, _, FrameKind::Signal) => "<signal>".to_owned(),
        (None, Some(module), _) => format!("?? in {}", clean(module)),
        (None, None, _) => "??".to_owned(),
    }
}
