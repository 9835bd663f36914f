//! JSON, as docs/formats/stacks.md says.

use std::{collections::BTreeMap, time::Duration};

use base::{Rank, RankSet};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{
    Absent, ChildPlace, Children, Command, Merged, Part, Place, Report, SeenClass, Timing,
};
use crate::{
    samples::Motion,
    stack::{Activity, End, Frame, FrameId, Frames},
    tree::{Ending, Threads, Tree, Which},
    verdict::{Cite, Confidence, RuleId, Verdict},
};

/// The version of the format.
pub const VERSION: u32 = 1;
const FORMAT: &str = "dbgr.stacks";

/// Why a text is no report.
#[derive(Debug, Error)]
pub enum BadReport {
    /// It is not JSON of this form.
    #[error("not a report: {0}")]
    Form(#[from] serde_json::Error),
    /// It is of another program or of another version.
    #[error(
        "a report of format `{format}`, version {version}: this program reads `{FORMAT}`, version {VERSION}"
    )]
    Part {
        /// What it calls itself.
        format: String,
        /// Its version.
        version: u32,
    },
    /// It means a frame that it does not have.
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
    /// Reports of earlier builds have none.
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

/// A report as one line of JSON.
#[must_use]
#[expect(
    clippy::too_many_lines,
    reason = "one field of the format after the other"
)]
pub fn json(report: &Report) -> String {
    // By what they say, so that their numbers do not depend on who was asked first.
    let mut used = BTreeMap::<&Frame, usize>::new();
    let mut take = |ids: &[FrameId]| {
        for &id in ids {
            used.insert(report.frames.get(id), 0);
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
    for (place, number) in used.values_mut().enumerate() {
        *number = place;
    }
    let number = |frame: &Frame| used.get(frame).copied().unwrap_or_default();
    let numbers = |ids: &[FrameId]| -> Vec<usize> {
        ids.iter()
            .map(|&id| number(report.frames.get(id)))
            .collect()
    };
    let stacks = |tree: &Tree| -> Vec<Stacked> {
        let stacks = tree.stacks(&report.frames).into_iter();
        let stacked = stacks.map(|(stack, ending, threads)| Stacked {
            frames: stack.into_iter().map(number).collect(),
            thread: ending.thread,
            activity: ending.activity,
            end: ending.end,
            threads: counts(&threads),
        });
        stacked.collect()
    };
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
        placement: report
            .placement
            .iter()
            .map(|(&rank, place)| Placed {
                rank,
                place: place.clone(),
            })
            .collect(),
        frames: used.keys().map(|&frame| frame.clone()).collect(),
        samples: report
            .samples
            .iter()
            .map(|sample| Looked {
                at_us: micros(sample.at),
                stacks: stacks(&sample.tree),
                helpers: sample
                    .helpers
                    .iter()
                    .map(|(kind, threads)| Helpers {
                        kind: kind.clone(),
                        threads: counts(threads),
                    })
                    .collect(),
                children: sample
                    .children
                    .iter()
                    .map(|(name, children)| Below {
                        name: name.clone(),
                        processes: children.procs.clone(),
                        unseen: children.unseen,
                        stacks: stacks(&children.tree),
                    })
                    .collect(),
            })
            .collect(),
        classes: report
            .classes
            .iter()
            .map(|class| Classed {
                ranks: class.ranks.clone(),
                frames: numbers(&class.frames),
                activity: class.activity,
                motion: class.motion,
                cpu_us: micros(class.cpu),
                lines: class.lines.clone(),
            })
            .collect(),
        missing: report.missing.clone(),
        verdicts: report
            .verdicts
            .iter()
            .map(|verdict| Judged {
                rule: verdict.rule,
                sentence: verdict.sentence.clone(),
                confidence: verdict.confidence,
                cites: verdict
                    .cites
                    .iter()
                    .map(|cite| Cited {
                        ranks: cite.ranks.clone(),
                        processes: cite.processes.clone(),
                        samples: cite.samples.clone(),
                        frames: numbers(&cite.frames),
                        activity: cite.activity,
                    })
                    .collect(),
            })
            .collect(),
        undecided: report.undecided.clone(),
        timing: Cost {
            total_us: micros(report.timing.total),
            stops: report.timing.stops,
            stopped_median_us: micros(report.timing.stopped_median),
            stopped_longest_us: micros(report.timing.stopped_longest),
        },
    };
    // Every key is text and every number is whole: there is nothing that JSON could not say.
    let mut text = serde_json::to_string(&document).unwrap_or_default();
    text.push('\n');
    text
}

/// The report that [`json`] has written. `dbgr` itself reads none back: this is how tests know that the format says all that
/// there is, and for other programs that have a report of one version and want it in another form.
///
/// # Errors
/// It is none, or one of another version.
#[expect(
    clippy::too_many_lines,
    reason = "one field of the format after the other"
)]
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
    let ids: Vec<FrameId> = document
        .frames
        .into_iter()
        .map(|frame| frames.intern(frame))
        .collect();
    let named = |numbers: &[usize]| -> Result<Vec<FrameId>, BadReport> {
        let ids = numbers.iter().map(|&number| {
            let id = ids.get(number).copied();
            id.ok_or(BadReport::Frame(number))
        });
        ids.collect()
    };
    let mut samples = Vec::new();
    for looked in document.samples {
        let mut sample = Merged {
            at: Duration::from_micros(looked.at_us),
            ..Merged::default()
        };
        let add = |tree: &mut Tree, stacks: Vec<Stacked>| -> Result<(), BadReport> {
            for stacked in stacks {
                let ending = Ending {
                    thread: stacked.thread,
                    activity: stacked.activity,
                    end: stacked.end,
                };
                let threads = threads(&stacked.threads);
                tree.add(&named(&stacked.frames)?, ending, &threads);
            }
            Ok(())
        };
        add(&mut sample.tree, looked.stacks)?;
        for below in looked.children {
            let mut children = Children {
                procs: below.processes,
                unseen: below.unseen,
                tree: Tree::default(),
            };
            add(&mut children.tree, below.stacks)?;
            sample.children.insert(below.name, children);
        }
        for helpers in looked.helpers {
            let threads = threads(&helpers.threads);
            sample
                .helpers
                .entry(helpers.kind)
                .or_default()
                .merge(&threads);
        }
        samples.push(sample);
    }
    let mut classes = Vec::new();
    for class in document.classes {
        classes.push(SeenClass {
            ranks: class.ranks,
            frames: named(&class.frames)?,
            activity: class.activity,
            motion: class.motion,
            cpu: Duration::from_micros(class.cpu_us),
            lines: class.lines,
        });
    }
    let mut verdicts = Vec::new();
    for judged in document.verdicts {
        let mut cites = Vec::new();
        for cited in judged.cites {
            cites.push(Cite {
                ranks: cited.ranks,
                processes: cited.processes,
                samples: cited.samples,
                frames: named(&cited.frames)?,
                activity: cited.activity,
            });
        }
        verdicts.push(Verdict {
            rule: judged.rule,
            sentence: judged.sentence,
            confidence: judged.confidence,
            cites,
        });
    }
    Ok(Report {
        title: document.title,
        commands: document.commands,
        found: document.found,
        doubts: document.doubts,
        host: document.host,
        date: document.date,
        versions: document.versions,
        placement: document
            .placement
            .into_iter()
            .map(|placed| (placed.rank, placed.place))
            .collect(),
        samples,
        classes,
        missing: document.missing,
        verdicts,
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
