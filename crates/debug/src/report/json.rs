//! A report as JSON: docs/formats/stacks.md.

use std::{collections::BTreeMap, time::Duration};

use base::{Rank, RankSet};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{
    Absent, ChildPlace, Children, Command, Merged, Part, Place, Report, SeenClass, Timing,
};
use crate::{
    recorded::overview::{Inexact, Locked, Overview, Progress, Standing},
    samples::Motion,
    stack::{Activity, End, Frame, FrameId, Frames},
    tree::{Ending, Threads, Tree, Which},
    verdict::{Cite, Confidence, RuleId, Verdict},
};

/// The version of the format.
pub const VERSION: u32 = 1;
const FORMAT: &str = "dbgr.stacks";

/// The reason why a text is not a report.
#[derive(Debug, Error)]
pub enum BadReport {
    /// The text is not JSON, or not of this form.
    #[error("not a report: {0}")]
    Form(#[from] serde_json::Error),
    /// The document is of another format or version.
    #[error(
        "a report of format `{format}`, version {version}: this program reads `{FORMAT}`, version {VERSION}"
    )]
    Part {
        /// The name of the format in the document.
        format: String,
        /// The version in the document.
        version: u32,
    },
    /// The document refers to a frame that it does not have.
    #[error("there is no frame {0}")]
    Frame(usize),
}

#[derive(Debug, Serialize, Deserialize)]
struct Document {
    format: String,
    version: u32,
    title: String,
    found: Vec<String>,
    doubts: Vec<String>,
    host: String,
    date: String,
    versions: Vec<Part>,
    #[serde(default)]
    commands: Vec<Command>,
    placement: Vec<Placed>,
    frames: Vec<Frame>,
    samples: Vec<Looked>,
    classes: Vec<Classed>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    calls: Vec<Standing>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    communicators: Vec<Progress>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    locks: Vec<Locked>,
    #[serde(default, skip_serializing_if = "RankSet::is_empty")]
    calls_unreadable: RankSet,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    calls_inexact: Vec<Inexact>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    calls_from_code: Vec<Calling>,
    missing: Vec<Absent>,
    verdicts: Vec<Judged>,
    #[serde(default)]
    undecided: String,
    timing: Cost,
}

#[derive(Debug, Serialize, Deserialize)]
struct Placed {
    rank: Rank,
    #[serde(flatten)]
    place: Place,
}

#[derive(Debug, Serialize, Deserialize)]
struct Looked {
    at_us: u64,
    stacks: Vec<Stacked>,
    helpers: Vec<Helpers>,
    #[serde(default)]
    children: Vec<Below>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Below {
    name: String,
    processes: Vec<ChildPlace>,
    unseen: usize,
    stacks: Vec<Stacked>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Stacked {
    frames: Vec<usize>,
    #[serde(default)]
    thread: Which,
    activity: Activity,
    end: End,
    threads: Vec<Counted>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Helpers {
    kind: String,
    threads: Vec<Counted>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Counted {
    each: u32,
    ranks: RankSet,
}

#[derive(Debug, Serialize, Deserialize)]
struct Calling {
    ranks: RankSet,
    call: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct Classed {
    ranks: RankSet,
    frames: Vec<usize>,
    activity: Activity,
    motion: Motion,
    cpu_us: u64,
    #[serde(default)]
    lines: Vec<u32>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Judged {
    rule: RuleId,
    sentence: String,
    #[serde(rename = "sureness")]
    confidence: Confidence,
    cites: Vec<Cited>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Cited {
    ranks: RankSet,
    /// Reports of earlier versions have no pids.
    #[serde(default)]
    processes: Vec<i32>,
    samples: Vec<usize>,
    frames: Vec<usize>,
    activity: Option<Activity>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Cost {
    total_us: u64,
    stops: u64,
    stopped_median_us: u64,
    stopped_longest_us: u64,
}

/// Numbers for the frames of a report, in the order of their content. So the numbers do not depend on the order in which
/// ranks were sampled.
struct Numbering<'a> {
    report: &'a Report,
    numbers: BTreeMap<&'a Frame, usize>,
}

impl<'a> Numbering<'a> {
    fn new(report: &'a Report) -> Self {
        let mut numbers = BTreeMap::<&Frame, usize>::new();
        let mut take = |ids: &[FrameId]| {
            for &id in ids {
                numbers.insert(report.frames.get(id), 0);
            }
        };
        for sample in &report.samples {
            sample.tree.each(|stack, _, _| take(stack));
            for children in sample.children.values() {
                children.tree.each(|stack, _, _| take(stack));
            }
        }
        report.classes.iter().for_each(|class| take(&class.frames));
        for cite in report.verdicts.iter().flat_map(|verdict| &verdict.cites) {
            take(&cite.frames);
        }
        for (place, number) in numbers.values_mut().enumerate() {
            *number = place;
        }
        Self { report, numbers }
    }

    fn number(&self, frame: &Frame) -> usize {
        self.numbers.get(frame).copied().unwrap_or_default()
    }

    fn numbers(&self, ids: &[FrameId]) -> Vec<usize> {
        let frames = ids.iter().map(|&id| self.report.frames.get(id));
        frames.map(|frame| self.number(frame)).collect()
    }

    fn stacks(&self, tree: &Tree) -> Vec<Stacked> {
        let stacks = tree.stacks(&self.report.frames).into_iter();
        let stacked = stacks.map(|(stack, ending, threads)| Stacked {
            frames: stack.into_iter().map(|it| self.number(it)).collect(),
            thread: ending.thread,
            activity: ending.activity,
            end: ending.end,
            threads: counts(&threads),
        });
        stacked.collect()
    }

    fn sample(&self, sample: &Merged) -> Looked {
        let helpers = sample.helpers.iter();
        let children = sample.children.iter();
        Looked {
            at_us: micros(sample.at),
            stacks: self.stacks(&sample.tree),
            helpers: helpers
                .map(|(kind, threads)| Helpers {
                    kind: kind.clone(),
                    threads: counts(threads),
                })
                .collect(),
            children: children
                .map(|(name, children)| Below {
                    name: name.clone(),
                    processes: children.procs.clone(),
                    unseen: children.unseen,
                    stacks: self.stacks(&children.tree),
                })
                .collect(),
        }
    }

    fn class(&self, class: &SeenClass) -> Classed {
        Classed {
            ranks: class.ranks.clone(),
            frames: self.numbers(&class.frames),
            activity: class.activity,
            motion: class.motion,
            cpu_us: micros(class.cpu),
            lines: class.lines.clone(),
        }
    }

    fn verdict(&self, verdict: &Verdict) -> Judged {
        let cites = verdict.cites.iter().map(|cite| Cited {
            ranks: cite.ranks.clone(),
            processes: cite.processes.clone(),
            samples: cite.samples.clone(),
            frames: self.numbers(&cite.frames),
            activity: cite.activity,
        });
        Judged {
            rule: verdict.rule,
            sentence: verdict.sentence.clone(),
            confidence: verdict.confidence,
            cites: cites.collect(),
        }
    }
}

/// Formats a report as one line of JSON.
#[must_use]
pub fn json(report: &Report) -> String {
    let numbering = Numbering::new(report);
    let placement = report.placement.iter();
    let placement = placement.map(|(&rank, place)| Placed {
        rank,
        place: place.clone(),
    });
    let frames = numbering.numbers.keys().map(|&frame| frame.clone());
    let samples = report.samples.iter().map(|it| numbering.sample(it));
    let classes = report.classes.iter().map(|it| numbering.class(it));
    let verdicts = report.verdicts.iter().map(|it| numbering.verdict(it));
    let document = Document {
        format: FORMAT.to_owned(),
        version: VERSION,
        title: report.title.clone(),
        commands: report.commands.clone(),
        found: report.found.clone(),
        doubts: report.doubts.clone(),
        host: report.host.clone(),
        date: report.date.clone(),
        versions: report.versions.clone(),
        placement: placement.collect(),
        frames: frames.collect(),
        samples: samples.collect(),
        classes: classes.collect(),
        calls: report.recorded.calls.clone(),
        communicators: report.recorded.communicators.clone(),
        locks: report.recorded.locks.clone(),
        calls_unreadable: report.recorded.unreadable.clone(),
        calls_inexact: report.recorded.inexact.clone(),
        calls_from_code: calling(&report.call_sites),
        missing: report.missing.clone(),
        verdicts: verdicts.collect(),
        undecided: report.undecided.clone(),
        timing: Cost {
            total_us: micros(report.timing.total),
            stops: report.timing.stops,
            stopped_median_us: micros(report.timing.stopped_median),
            stopped_longest_us: micros(report.timing.stopped_longest),
        },
    };
    // Every key is a string and every number is an integer, so encoding cannot fail.
    let mut text = serde_json::to_string(&document).unwrap_or_default();
    text.push('\n');
    text
}

/// The frames of a document, by their number in it.
struct Named(Vec<FrameId>);

impl Named {
    fn frames(&self, numbers: &[usize]) -> Result<Vec<FrameId>, BadReport> {
        let ids = numbers.iter().map(|&number| {
            let id = self.0.get(number).copied();
            id.ok_or(BadReport::Frame(number))
        });
        ids.collect()
    }

    fn add(&self, tree: &mut Tree, stacks: Vec<Stacked>) -> Result<(), BadReport> {
        for stacked in stacks {
            let ending = Ending {
                thread: stacked.thread,
                activity: stacked.activity,
                end: stacked.end,
            };
            let threads = threads(&stacked.threads);
            tree.add(&self.frames(&stacked.frames)?, ending, &threads);
        }
        Ok(())
    }

    fn sample(&self, looked: Looked) -> Result<Merged, BadReport> {
        let mut sample = Merged {
            at: Duration::from_micros(looked.at_us),
            ..Merged::default()
        };
        self.add(&mut sample.tree, looked.stacks)?;
        for below in looked.children {
            let mut children = Children {
                procs: below.processes,
                unseen: below.unseen,
                tree: Tree::default(),
            };
            self.add(&mut children.tree, below.stacks)?;
            sample.children.insert(below.name, children);
        }
        for helpers in looked.helpers {
            let threads = threads(&helpers.threads);
            let own = sample.helpers.entry(helpers.kind).or_default();
            own.merge(&threads);
        }
        Ok(sample)
    }

    fn class(&self, class: Classed) -> Result<SeenClass, BadReport> {
        Ok(SeenClass {
            ranks: class.ranks,
            frames: self.frames(&class.frames)?,
            activity: class.activity,
            motion: class.motion,
            cpu: Duration::from_micros(class.cpu_us),
            lines: class.lines,
        })
    }

    fn verdict(&self, judged: Judged) -> Result<Verdict, BadReport> {
        let cites = judged.cites.into_iter().map(|cited| {
            Ok(Cite {
                ranks: cited.ranks,
                processes: cited.processes,
                samples: cited.samples,
                frames: self.frames(&cited.frames)?,
                activity: cited.activity,
            })
        });
        Ok(Verdict {
            rule: judged.rule,
            sentence: judged.sentence,
            confidence: judged.confidence,
            cites: cites.collect::<Result<_, BadReport>>()?,
        })
    }
}

/// Reads back a report that [`json`] has written. `dbgr` itself never reads reports. Tests use this function to show that the
/// format is complete. Other programs can use it to convert a report to another form.
///
/// # Errors
/// The text is not a report, or it is a report of another version.
pub fn from_json(text: &str) -> Result<Report, BadReport> {
    #[derive(Deserialize)]
    struct Head {
        format: String,
        version: u32,
    }
    let Head { format, version } = serde_json::from_str(text)?;
    if format != FORMAT || version != VERSION {
        return Err(BadReport::Part { format, version });
    }
    let document: Document = serde_json::from_str(text)?;
    let mut frames = Frames::new();
    let ids = document.frames.into_iter();
    let named = Named(ids.map(|frame| frames.intern(frame)).collect());
    let samples = document.samples.into_iter().map(|it| named.sample(it));
    let classes = document.classes.into_iter().map(|it| named.class(it));
    let verdicts = document.verdicts.into_iter().map(|it| named.verdict(it));
    let placement = document.placement.into_iter();
    Ok(Report {
        title: document.title,
        commands: document.commands,
        found: document.found,
        doubts: document.doubts,
        host: document.host,
        date: document.date,
        versions: document.versions,
        placement: placement.map(|it| (it.rank, it.place)).collect(),
        samples: samples.collect::<Result<_, _>>()?,
        classes: classes.collect::<Result<_, _>>()?,
        recorded: Overview {
            calls: document.calls,
            communicators: document.communicators,
            locks: document.locks,
            unreadable: document.calls_unreadable,
            inexact: document.calls_inexact,
        },
        call_sites: called(document.calls_from_code),
        missing: document.missing,
        verdicts: verdicts.collect::<Result<_, _>>()?,
        undecided: document.undecided,
        timing: Timing {
            total: Duration::from_micros(document.timing.total_us),
            stops: document.timing.stops,
            stopped_median: Duration::from_micros(document.timing.stopped_median_us),
            stopped_longest: Duration::from_micros(document.timing.stopped_longest_us),
            phases: None,
        },
        frames,
    })
}

fn calling(calls: &[(RankSet, String)]) -> Vec<Calling> {
    let calls = calls.iter().cloned();
    calls.map(|(ranks, call)| Calling { ranks, call }).collect()
}

fn called(calls: Vec<Calling>) -> Vec<(RankSet, String)> {
    let calls = calls.into_iter();
    calls.map(|it| (it.ranks, it.call)).collect()
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn counts(threads: &Threads) -> Vec<Counted> {
    let counts = threads.by_count().map(|(each, ranks)| Counted {
        each,
        ranks: ranks.clone(),
    });
    counts.collect()
}

fn threads(counts: &[Counted]) -> Threads {
    let mut threads = Threads::default();
    for counted in counts.iter().filter(|counted| counted.each > 0) {
        threads.add(counted.each, &counted.ranks);
    }
    threads
}
