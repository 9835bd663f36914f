//! A report in its forms for people and programs: text for a terminal, JSON, folded stacks, and an HTML page.
//!
//! Each form is a function from a [`Report`] to a string: nothing here reads a process, a clock or a terminal. Names of
//! functions, files and programs come from the debugged programs and can contain anything. Each form escapes or replaces what
//! would be harmful in it ([`clean`] for text).

mod children;
mod folded;
mod html;
mod json;
mod making;
mod merged;
mod outline;
mod reasons;
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
    call_site,
    known::{self, Owner, Position},
    recorded::overview::Overview,
    samples::{Boundary, Motion, Observation, Recording},
    stack::{Activity, Frame, FrameId, FrameKind, Frames, Missing, Seen},
    verdict::{self, Confidence, MoreSamples, Outlook, Verdict},
};

pub use self::{
    children::{ChildPlace, Children},
    folded::folded,
    html::html,
    json::{BadReport, VERSION, from_json, json},
    making::Origin,
    merged::{Merged, Shown},
    reasons::reasons,
    text::{Colour, Detail, Guides, Layout, text},
};

/// All that is known of a target, from one or several samples.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The target in a few words: `mpirun ./solver (pid 4711)`.
    pub title: String,
    /// The steps by which the ranks were found.
    pub found: Vec<String>,
    /// Doubts about the ranks and the samples.
    pub doubts: Vec<String>,
    /// The host on which `dbgr` ran.
    pub host: String,
    /// The date and time of the report, in the local form.
    pub date: String,
    /// Versions of what took part: `dbgr`, the kernel, and the builds of the programs and of MPI.
    pub versions: Vec<Part>,
    /// Command lines of the ranks, those of the first ranks first.
    pub commands: Vec<Command>,
    /// Host, process and CPU of each rank. Ranks whose process is unknown or was gone are absent.
    pub placement: BTreeMap<Rank, Place>,
    /// Every frame to which the other fields refer.
    pub frames: Frames,
    /// The samples, oldest first.
    pub samples: Vec<Merged>,
    /// Classes of ranks that did the same in all samples, the largest class first.
    pub classes: Vec<SeenClass>,
    /// What the recorded calls of MPI of the last sample show.
    pub recorded: Overview,
    /// Ranks without a recorder that are in the same call of MPI in the last sample, with the call as the code tells it.
    pub call_sites: Vec<(RankSet, String)>,
    /// Ranks that are missing in the last sample.
    pub missing: Vec<Absent>,
    /// Verdicts on what may be wrong, the one with the highest confidence first.
    pub verdicts: Vec<Verdict>,
    /// A note for several samples without a verdict; otherwise empty.
    pub undecided: String,
    /// What sampling has cost.
    pub timing: Timing,
}

/// A program, library or kernel with its version.
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
    /// The ranks with this command line.
    pub ranks: RankSet,
    /// The program and its arguments, separated by spaces.
    pub line: String,
}

/// The process of a rank, and its location.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The name of its host.
    pub host: String,
    /// Pid of the process on that host.
    pub pid: i32,
    /// The CPU on which the rank last ran; `None` if unknown.
    pub cpu: Option<u32>,
}

/// Ranks that did the same in all samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenClass {
    /// The ranks.
    pub ranks: RankSet,
    /// The stack of the ranks in the last sample, outermost frame first.
    pub frames: Vec<FrameId>,
    /// The activity of the ranks in the last sample.
    pub activity: Activity,
    /// What the ranks did over all samples.
    pub motion: Motion,
    /// Total CPU time of these ranks between the first sample and the last.
    pub cpu: Duration,
    /// Lines of the user's innermost function on which the ranks were seen, in ascending order.
    pub lines: Vec<u32>,
}

/// State of threads that use CPU time while they wait.
const POLLING: &str = "polling";

/// Returns a word for what ranks did over all samples; `None` if that is unknown.
const fn motion_word(motion: Motion) -> Option<&'static str> {
    match motion {
        Motion::Unknown => None,
        Motion::Stuck => Some("stuck"),
        Motion::Spinning => Some(POLLING),
        Motion::Looping => Some("looping"),
        Motion::Moving => Some("moving"),
    }
}

/// Describes the state of a thread. `inner` is the last frame that is shown of its stack: a thread that runs in a known wait
/// function polls.
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

/// Maximum number of lines of a loop to list.
const LINES: usize = 6;

/// Returns the lines on which a class loops; `None` if it does not loop, or was seen on fewer than two lines.
fn loop_lines(class: &SeenClass, ellipsis: &str) -> Option<String> {
    if class.motion != Motion::Looping || class.lines.len() < 2 {
        return None;
    }
    let shown = class.lines.iter().take(LINES).map(u32::to_string);
    let more = (class.lines.len() > LINES).then(|| ellipsis.to_owned());
    let lines: Vec<String> = shown.chain(more).collect();
    Some(format!("on lines {}", lines.join(", ")))
}

/// Returns a word for the confidence of a verdict.
const fn confidence_word(confidence: Confidence) -> &'static str {
    match confidence {
        Confidence::Proved => "proved",
        Confidence::Certain => "certain",
        Confidence::Likely => "likely",
        Confidence::Possible => "possible",
    }
}

/// The note on samples in which no rank waits for others.
const NOTHING_TOLD: &str = "the samples do not distinguish a program that hangs from a slow one";

/// Says why there is no verdict, and what more samples could show.
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

/// Suggests options for the next run. If the samples were enough but too close together, it suggests no fewer than before. But it
/// never suggests samples less than a second apart.
fn more_looks(wanted: MoreSamples, all: &Observation) -> String {
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
    format!("{what} can show more (--samples {samples} --every {every}s)")
}

/// Ranks that are missing, and the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Absent {
    /// The ranks.
    pub ranks: RankSet,
    /// The reason.
    pub why: Missing,
}

/// What sampling has cost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    /// Time from the start of `dbgr` to the report.
    pub total: Duration,
    /// Number of times that a thread was stopped, over all samples.
    pub stops: u64,
    /// Median time for which a thread was stopped.
    pub stopped_median: Duration,
    /// Longest time for which a thread was stopped.
    pub stopped_longest: Duration,
    /// The times of the phases; `None` if they were not measured, as in a report read back from JSON.
    pub phases: Option<Phases>,
}

/// Time spent in each phase of a report, without the time between samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Phases {
    /// Finding the ranks.
    pub finding: Duration,
    /// Reading the mappings of the processes, and the mapped files.
    pub reading: Duration,
    /// Taking all samples, and resolving their functions and lines.
    pub sampling: Duration,
    /// Merging the samples, and formatting the report.
    pub merging: Duration,
}

impl fmt::Display for Phases {
    /// Writes `finding the ranks took 3.1 ms, reading their programs 12.0 ms, sampling 20.4 ms, merging and drawing 2.2 ms`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        write!(
            f,
            "finding the ranks took {:.1} ms, reading their programs {:.1} ms, sampling {:.1} ms, merging and drawing {:.1} ms",
            ms(self.finding),
            ms(self.reading),
            ms(self.sampling),
            ms(self.merging)
        )
    }
}

impl Report {
    /// Makes a report from samples. The caller adds the title, the placement and the other facts about the target.
    #[must_use]
    pub fn of(recording: Recording, detail: Detail) -> Self {
        let all = recording.observe(Boundary::Known);
        let verdicts = verdict::judge(&recording.frames, &recording.samples, &all);
        let (recorded, call_sites) = match recording.samples.last() {
            Some(last) => (
                Overview {
                    unreadable: last.snapshot.unreadable.clone(),
                    ..Overview::of(&last.snapshot.calls)
                },
                call_site::sentences(&last.snapshot.call_sites),
            ),
            None => (Overview::default(), Vec::new()),
        };
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
        let undecided = if verdicts.is_empty() && recording.samples.len() > 1 {
            undecided(&verdict::outlook(&frames, &all), &all)
        } else {
            String::new()
        };
        let mut report = Self {
            classes,
            recorded,
            call_sites,
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

    /// Returns every rank of the target, including missing ones.
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

    /// Returns the time from the first sample to the last.
    #[must_use]
    pub fn span(&self) -> Duration {
        self.samples
            .last()
            .map_or(Duration::ZERO, |sample| sample.at)
    }

    /// Returns `1024 ranks on 16 hosts, 3 samples in 2.0 s`.
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

    /// Says why there is no verdict.
    #[must_use]
    pub fn no_verdict(&self) -> String {
        let why = if self.samples.len() < 2 {
            "one sample does not show what moves (--samples 3)"
        } else if self.undecided.is_empty() {
            NOTHING_TOLD
        } else {
            &self.undecided
        };
        format!("no verdict: {why}")
    }

    /// Returns the average CPU usage of the ranks of a class, in percent of one CPU; `None` without a time span.
    fn load(&self, class: &SeenClass) -> Option<u64> {
        let time = self.span().as_secs_f64() * class.ranks.len().max(1) as f64;
        let part = class.cpu.as_secs_f64() / time * 100.0;
        // Over no time, the quotient is infinite or not a number.
        part.is_finite().then(|| percent(part))
    }

    /// Describes where a class is: its innermost function, and the nearest caller in the user's own code.
    fn place(&self, frames: &[FrameId]) -> String {
        self.places(frames, 2)
    }

    /// Describes where a class is: its innermost function, then callers in the user's own code, innermost first. It has at
    /// most `most` functions in total.
    fn places(&self, frames: &[FrameId], most: usize) -> String {
        let stack: Vec<&Frame> = frames.iter().map(|&id| self.frames.get(id)).collect();
        let Some((inner, outer)) = stack.split_last() else {
            return "??".to_owned();
        };
        let has_line = |frame: &Frame| frame.source.as_ref().is_some_and(|it| it.line > 0);
        let owner = outer.iter().map(|frame| known::owner(frame)).max();
        let is_own = |frame: &&&Frame| match owner {
            Some(owner) if owner > Owner::System => known::owner(frame) == owner,
            // If no frame belongs to a user or a package, frames with lines are the most useful ones.
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
        // One function is enough if it is in the user's code and has a line.
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

/// Returns `1 rank`, `2 ranks`.
fn counted(count: u64, what: &str) -> String {
    let plural = match (count, what.strip_suffix("ss")) {
        (1, _) => "",
        (_, Some(_)) => "es",
        (_, None) => "s",
    };
    format!("{count} {what}{plural}")
}

/// Returns a set of ranks in brackets, shortened to at most `width` characters if possible: `[0-7,9,11,…]`. Callers print the
/// number of ranks next to it.
#[must_use]
pub fn bracketed(ranks: &RankSet, width: usize, ellipsis: &str) -> String {
    let whole = ranks.to_string();
    if whole.len() + 2 <= width {
        return format!("[{whole}]");
    }
    let room = width.saturating_sub(3 + ellipsis.chars().count());
    // Keep at least one item, even if it is too wide.
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

/// Replaces characters that would move the cursor of a terminal, change its colors, or reverse the direction of writing.
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

/// Returns the name of a frame without its source line.
fn name(frame: &Frame) -> String {
    match (&frame.function, &frame.module, frame.kind) {
        (Some(function), ..) => clean(function),
        (None, _, FrameKind::Signal) => "<signal>".to_owned(),
        (None, Some(module), _) => format!("?? in {}", clean(module)),
        (None, None, _) => "??".to_owned(),
    }
}
