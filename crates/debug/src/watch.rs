//! Watches a job until it ends: decides when to search for its processes, take a sample, report, and stop.
//!
//! | state | input | next |
//! |---|---|---|
//! | `Waiting` | the next sample is due, or a process has exited | `Finding` |
//! | `Finding` | the job was found, and the next sample is due | `Sampling` |
//! | `Finding` | the job was found, and the next sample is not due | `Waiting` |
//! | `Finding` | no process of the job is alive, or no job was ever found | `Over` |
//! | `Sampling` | a sample | `Waiting`, after a report if the job hangs ([`HangDetector`]) or its time limit is near |
//! | `Sampling` | a sample without ranks that an earlier one did not have either | `Waiting`, after [`Output::Unseen`] |
//! | `Sampling` | the second sample in a row for which we may not access any rank | `Over` |
//! | any | a signal | `Over` |
//!
//! A sample is due when a twelfth of the idle time ([`WatchOptions::idle`]) has passed since the end of the last one. Shortly
//! before the time limit of the job, the watch takes `LAST_SAMPLES` samples and then reports, whether the job hangs or not.
//! The host carries out each sample and each search in one step, and returns the result before it waits again. So a signal
//! ends a watch only between two samples, when no thread is stopped.

mod hang;

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use base::{Rank, RankSet, Time};

use crate::{
    samples::{Recording, Sample},
    snapshot::Snapshot,
    stack::{Frames, Missing, Seen},
};

use self::hang::Observed;
pub use self::hang::{Cause, HangDetector, PARTS, Progress};

/// Time before the job's time limit at which the last samples begin, or half of the limit if that is shorter.
const LEAD: Duration = Duration::from_secs(5);
/// Number of samples before the time limit. Fewer samples cannot show what is stuck.
const LAST_SAMPLES: u32 = 3;
/// Maximum number of reports on one job. A job that hangs, moves a little and hangs again must not fill the disk.
pub const MAX_REPORTS: u32 = 10;
/// Maximum number of frames to keep. Above it the watch drops its samples and begins again.
const MAX_FRAMES: usize = 200_000;
/// Maximum number of [`Output::Unseen`] for one job. Each has a new reason.
const MAX_WARNINGS: u32 = 10;
/// Number of samples in a row without access to any rank, after which the watch ends. One such sample is tolerated, because
/// an exiting process looks the same for a moment.
const MAX_REFUSALS: u32 = 2;

/// The user's options for a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchOptions {
    /// Idle time: a job hangs if nothing has moved for this long.
    pub idle: Duration,
    /// The time limit of the job, from the beginning of the watch; `None` if there is none.
    pub limit: Option<Duration>,
    /// The process that the user named; `None` if the user identified the job in another way.
    pub pid: Option<i32>,
}

/// Events, and the answers of the host.
#[derive(Debug)]
pub enum Input {
    /// [`Watch::deadline`] has passed.
    Tick,
    /// The process of the last [`Output::WatchExit`] has exited.
    Exited,
    /// A signal with this number asks the watch to end. It comes from the user or the system.
    Signal(u8),
    /// The answer to [`Output::Find`].
    Found {
        /// Whether the job was found; always [`Job::NotFound`] in answers to [`Search::Ranks`], which checks only
        /// processes.
        job: Job,
        /// Pid of a live process of the most recently found job; `None` if none of its processes is alive.
        living: Option<i32>,
    },
    /// The answer to [`Output::Sample`].
    Sampled {
        /// When the sample began.
        began: Time,
        /// The table of the frames in `snapshot`.
        frames: Frames,
        /// The state of each rank.
        snapshot: Box<Snapshot>,
        /// Progress that the stacks do not show, by rank.
        progress: BTreeMap<Rank, Progress>,
    },
}

/// Whether a search has found a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Job {
    /// The search has found a job, which replaces the previous one.
    Found,
    /// The search has found no job.
    NotFound,
}

/// The next action of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Search for the job, and answer with [`Input::Found`].
    Find(Search),
    /// Send [`Input::Exited`] when this process exits, unless the host already waits for the exit of another process.
    WatchExit(i32),
    /// Take a sample of the most recently found job, and answer with [`Input::Sampled`].
    Sample,
    /// Write a report on the samples that [`Watch::recording`] returns.
    Report {
        /// The reason for the report.
        occasion: Occasion,
        /// The number of the report, from 1.
        number: u32,
    },
    /// Warn that these ranks were not seen in two samples in a row. They may make progress, so only a verdict can show a hang.
    Unseen(BTreeMap<Missing, RankSet>),
    /// The watch is over.
    End(End),
}

/// The processes to search for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Search {
    /// Find the job that the user named. Ranks start and exit, so this happens before each sample.
    Job,
    /// Check which processes of the most recently found job are alive. The process that the user named has exited, and its
    /// pid may be reused.
    Ranks,
}

/// The reason for a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occasion {
    /// Nothing has moved for this time.
    Idle(Duration),
    /// Some ranks still move, but the samples of this period lead to a verdict.
    Verdict(Duration),
    /// The time limit will end the job after this time.
    Limit(Duration),
}

/// The reason why a watch ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// No process of the job is alive.
    Gone,
    /// No job was ever found.
    NotFound,
    /// A signal with this number came.
    Signal(u8),
    /// In `MAX_REFUSALS` samples in a row, we had no access to any rank.
    NoAccess {
        /// The ranks that are not seen, by the reason.
        unseen: BTreeMap<Missing, RankSet>,
    },
}

/// A watch of one job.
#[derive(Debug)]
pub struct Watch {
    options: WatchOptions,
    begin: Time,
    /// Time at which the last samples before the time limit begin; `None` once they have begun, or without a limit.
    last_samples: Option<Time>,
    phase: Phase,
    search: Search,
    /// Whether any search has found the job.
    job: Job,
    detector: HangDetector,
    /// The frames of the samples in `detector`.
    frames: Frames,
    refusals: u32,
    reports: u32,
    /// Why ranks were not seen in the last sample.
    unseen: BTreeSet<Missing>,
    /// The reasons that were warned of.
    warned: BTreeSet<Missing>,
    warnings: u32,
    state: State,
    outputs: VecDeque<Output>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting {
        /// When the next sample is due.
        until: Time,
    },
    Finding {
        /// When the next sample is due.
        until: Time,
    },
    Sampling,
    Over,
}

/// The purpose of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// To detect a hang.
    Regular,
    /// For the report before the time limit.
    BeforeLimit {
        /// Number of samples still to take.
        left: u32,
        /// The time from the end of one sample to the next.
        every: Duration,
    },
}

impl Watch {
    /// Returns a watch whose first sample is due immediately.
    #[must_use]
    pub fn new(options: WatchOptions, now: Time) -> Self {
        let lead = |limit: Duration| now + limit.saturating_sub(LEAD.min(limit / 2));
        Self {
            options,
            begin: now,
            last_samples: options.limit.map(lead),
            phase: Phase::Regular,
            search: Search::Job,
            job: Job::NotFound,
            detector: HangDetector::new(options.idle),
            frames: Frames::new(),
            refusals: 0,
            reports: 0,
            unseen: BTreeSet::new(),
            warned: BTreeSet::new(),
            warnings: 0,
            state: State::Waiting { until: now },
            outputs: VecDeque::new(),
        }
    }

    /// Returns the next action for the host.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Returns when to send [`Input::Tick`]; `None` while the host carries out a step, and when the watch is over.
    #[must_use]
    pub const fn deadline(&self) -> Option<Time> {
        match self.state {
            State::Waiting { until } => Some(until),
            State::Finding { .. } | State::Sampling | State::Over => None,
        }
    }

    /// Returns the samples of the last idle time, the first one at time 0.
    #[must_use]
    pub fn recording(&self) -> Recording {
        self.detector.recording(&self.frames)
    }

    /// Handles an event or an answer of the host.
    pub fn handle(&mut self, now: Time, input: Input) {
        match (self.state, input) {
            (State::Over, _) => {}
            (_, Input::Signal(number)) => self.end(End::Signal(number)),
            (State::Waiting { until }, Input::Exited) => self.find(until),
            (State::Waiting { until }, Input::Tick) if until <= now => self.find(until),
            (State::Finding { until }, Input::Found { job, living }) => {
                self.found(now, until, job, living);
            }
            (
                State::Sampling,
                Input::Sampled {
                    began,
                    frames,
                    snapshot,
                    progress,
                },
            ) => {
                if self.frames.len() > MAX_FRAMES {
                    self.frames = Frames::new();
                    self.detector.forget();
                }
                let snapshot = snapshot.with_frames_in(frames, &mut self.frames);
                let at = began.since(self.begin);
                let sample = Sample { at, snapshot };
                self.sampled(now, Observed { sample, progress });
            }
            // The clock ticked too early, or the host saw an exit twice.
            (_, Input::Tick | Input::Exited) => {}
            (state, input @ (Input::Found { .. } | Input::Sampled { .. })) => {
                debug_assert!(false, "{input:?} is no answer in {state:?}");
            }
        }
    }

    fn find(&mut self, until: Time) {
        self.outputs.push_back(Output::Find(self.search));
        self.state = State::Finding { until };
    }

    fn found(&mut self, now: Time, until: Time, job: Job, living: Option<i32>) {
        match (job, self.job) {
            (Job::Found, _) => self.job = Job::Found,
            (Job::NotFound, Job::Found) => self.search = Search::Ranks,
            (Job::NotFound, Job::NotFound) => return self.end(End::NotFound),
        }
        let watched = match (self.search, self.options.pid) {
            (Search::Ranks, _) if living.is_none() => return self.end(End::Gone),
            // A launcher may outlive its ranks, and start others.
            (Search::Job, Some(pid)) => Some(pid),
            (Search::Job | Search::Ranks, _) => living,
        };
        self.outputs.extend(watched.map(Output::WatchExit));
        if now < until {
            self.state = State::Waiting { until };
            return;
        }
        if let Some(limit) = self.limit()
            && self.last_samples.is_some_and(|last| last <= now)
        {
            self.last_samples = None;
            self.phase = Phase::BeforeLimit {
                left: LAST_SAMPLES,
                every: limit.since(now) / 4,
            };
        }
        self.outputs.push_back(Output::Sample);
        self.state = State::Sampling;
    }

    fn sampled(&mut self, now: Time, observed: Observed) {
        let snapshot = &observed.sample.snapshot;
        let (unseen, access) = (unseen(snapshot), access(snapshot));
        let cause = self.detector.see(&self.frames, observed);
        let idle = self.options.idle;
        match self.phase {
            Phase::Regular => match cause {
                Some(Cause::Idle) => self.report(Occasion::Idle(idle)),
                Some(Cause::Verdict) => self.report(Occasion::Verdict(idle)),
                None => {}
            },
            Phase::BeforeLimit { left, every } if left > 1 => {
                let left = left - 1;
                self.phase = Phase::BeforeLimit { left, every };
                self.state = State::Waiting { until: now + every };
                return;
            }
            Phase::BeforeLimit { .. } => {
                self.phase = Phase::Regular;
                let left = self
                    .limit()
                    .map_or(Duration::ZERO, |limit| limit.since(now));
                self.report(Occasion::Limit(left));
            }
        }
        match access {
            Access::Some => self.refusals = 0,
            Access::None => {
                self.refusals += 1;
                if self.refusals >= MAX_REFUSALS {
                    return self.end(End::NoAccess { unseen });
                }
            }
        }
        self.warn(unseen);
        let next = now + self.detector.every();
        let until = self.last_samples.map_or(next, |last| last.min(next));
        self.state = State::Waiting { until };
    }

    fn limit(&self) -> Option<Time> {
        self.options.limit.map(|limit| self.begin + limit)
    }

    fn report(&mut self, occasion: Occasion) {
        let is_last = matches!(occasion, Occasion::Limit(_));
        if self.reports >= MAX_REPORTS && !is_last {
            return;
        }
        self.reports += 1;
        let number = self.reports;
        self.outputs.push_back(Output::Report { occasion, number });
    }

    /// Warns of ranks that were not seen in this sample and the last one, unless it has warned of the reason.
    fn warn(&mut self, mut unseen: BTreeMap<Missing, RankSet>) {
        let reasons = unseen.keys().cloned().collect();
        let before = std::mem::replace(&mut self.unseen, reasons);
        unseen.retain(|why, _| before.contains(why) && !self.warned.contains(why));
        if !unseen.is_empty() && self.warnings < MAX_WARNINGS {
            self.warnings += 1;
            self.warned.extend(unseen.keys().cloned());
            self.outputs.push_back(Output::Unseen(unseen));
        }
    }

    fn end(&mut self, end: End) {
        self.outputs.push_back(Output::End(end));
        self.state = State::Over;
    }
}

/// Whether a sample has shown any rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    /// It has ranks that were seen or that have exited, or none at all.
    Some,
    /// Every rank that has not exited is one that we cannot see.
    None,
}

fn access(snapshot: &Snapshot) -> Access {
    let mut refused = 0;
    for seen in snapshot.procs.values() {
        match seen {
            // An agent that is only slow may answer the next time.
            Seen::Threads(_)
            | Seen::Missing(
                Missing::TracedBy(_)
                | Missing::Changed
                | Missing::Unreachable
                | Missing::AgentSilent(_)
                | Missing::AgentRefused(_),
            ) => return Access::Some,
            Seen::Missing(Missing::NotFound(silent)) if !silent.is_empty() => refused += 1,
            Seen::Missing(Missing::Gone | Missing::Zombie | Missing::NotFound(_)) => {}
            Seen::Missing(
                Missing::NotPermitted
                | Missing::Unproved
                | Missing::Elsewhere(_)
                | Missing::NotStarted { .. }
                | Missing::AgentLost(_),
            ) => refused += 1,
        }
    }
    if refused > 0 {
        Access::None
    } else {
        Access::Some
    }
}

/// Returns the ranks that are not seen and may make progress, by the reason.
fn unseen(snapshot: &Snapshot) -> BTreeMap<Missing, RankSet> {
    let mut unseen: BTreeMap<Missing, RankSet> = BTreeMap::new();
    for (&rank, seen) in &snapshot.procs {
        if let Seen::Missing(why) = seen
            && (why.is_out_of_view() || matches!(why, Missing::NotPermitted | Missing::Unproved))
        {
            unseen.entry(why.clone()).or_default().insert(rank);
        }
    }
    unseen
}
