//! Follows a job until it ends: when to find its processes, when to take a sample, when to report, and when to stop.
//!
//! | state | input | next |
//! |---|---|---|
//! | `Waiting` | the next sample is due, or a process has exited | `Finding` |
//! | `Finding` | the job is there, and the next sample is due | `Sampling` |
//! | `Finding` | the job is there, and the next sample is not due | `Waiting` |
//! | `Finding` | no process of the job is alive, or there never was a job | `Over` |
//! | `Sampling` | a sample | `Waiting`; a report goes out if the job hangs ([`HangDetector`]), or before the time limit |
//! | `Sampling` | the second sample in a row in which no rank may be looked at | `Over` |
//! | any | a signal | `Over` |
//!
//! A sample is due when a twelfth of the idle time has passed since the last one. Shortly before the time limit of the job the
//! watch takes `LAST_SAMPLES` samples, and then reports, whether the job hangs or not. Each sample and each search is one step
//! of the host, which gives the result before it waits again. So a signal ends a watch between two samples, when no thread is
//! stopped.

mod hang;

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, VecDeque},
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

/// How long before the time limit the last samples begin. If half of the limit is shorter, they begin then.
const LEAD: Duration = Duration::from_secs(5);
/// Samples before the time limit. Fewer samples cannot show what is stuck.
const LAST_SAMPLES: u32 = 3;
/// Reports of one job. A job that hangs, moves a little and hangs again must not fill the disk.
pub const MAX_REPORTS: u32 = 10;
/// Frames to keep. Beyond that the watch forgets its samples and begins again.
const MAX_FRAMES: usize = 200_000;
/// Samples in a row without access to any rank, after which the watch ends. A process that is exiting looks the same for a
/// moment.
const MAX_REFUSALS: u32 = 2;

/// What the user wants of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// A job hangs if nothing has moved for this time.
    pub idle: Duration,
    /// The time limit of the job, from the beginning of the watch; `None` if there is none.
    pub limit: Option<Duration>,
    /// The process that the user named; `None` if the job was named by anything else.
    pub pid: Option<i32>,
}

/// What happened.
#[derive(Debug)]
pub enum Input {
    /// The time of [`Watch::deadline`] has come.
    Tick,
    /// The process of the last [`Output::WatchExit`] has exited.
    Exited,
    /// The user, or the system, wants the watch to end; the number of the signal.
    Signal(u8),
    /// The answer to [`Output::Find`].
    Found {
        /// Whether the job was found. To [`Search::Ranks`] the answer is [`Job::NotFound`].
        job: Job,
        /// A living process of the job that was found last; `None` if none of its processes is alive.
        living: Option<i32>,
    },
    /// The answer to [`Output::Sample`].
    Sampled {
        /// When the sample began.
        began: Time,
        /// The table of the frames in `snapshot`.
        frames: Frames,
        /// What was seen of each rank.
        snapshot: Snapshot,
        /// What each rank has done that its stacks do not show.
        progress: BTreeMap<Rank, Progress>,
    },
}

/// Whether a search has found a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Job {
    /// The search has found a job, which replaces the one before.
    Found,
    /// The search has found no job.
    NotFound,
}

/// What the host does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Search for the job, and answer with [`Input::Found`].
    Find(Search),
    /// Give [`Input::Exited`] when this process exits, unless the host waits for the exit of another one already.
    WatchExit(i32),
    /// Take a sample of the job that was found last, and answer with [`Input::Sampled`].
    Sample,
    /// Report what [`Watch::recording`] returns.
    Report {
        /// Why there is a report.
        occasion: Occasion,
        /// The number of the report, from 1.
        number: u32,
    },
    /// The watch is over.
    End(End),
}

/// Where to search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Search {
    /// Find what the user has named. Ranks come and go, so this happens before each sample.
    Job,
    /// See which processes of the job that was found last are alive. What the user has named has exited, and its pid may be
    /// that of another process.
    Ranks,
}

/// Why there is a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occasion {
    /// Nothing has moved for this time.
    Idle(Duration),
    /// Something moves, but samples over this time give a verdict.
    Verdict(Duration),
    /// The time limit ends the job after this time.
    Limit(Duration),
}

/// Why a watch is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// No process of the job is alive.
    Gone,
    /// There was no job to begin with.
    NotFound,
    /// A signal, by its number.
    Signal(u8),
    /// No rank may be looked at.
    NoAccess {
        /// Ranks whose processes are known, but which the kernel does not let us trace.
        forbidden: RankSet,
    },
}

/// A watch of one job.
#[derive(Debug)]
pub struct Watch {
    wanted: Wanted,
    begin: Time,
    /// When the samples before the time limit begin; `None` once they have begun, or without a limit.
    last_samples: Option<Time>,
    phase: Phase,
    search: Search,
    /// Whether a search has ever found the job.
    job: Job,
    detector: HangDetector,
    /// The frames of the samples in `detector`.
    frames: Frames,
    refusals: u32,
    reports: u32,
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

/// What samples are taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// To detect a hang.
    Regular,
    /// For the report before the time limit.
    BeforeLimit {
        /// Samples that are still to be taken.
        left: u32,
        /// The time from the end of one sample to the next.
        every: Duration,
    },
}

impl Watch {
    /// A watch whose first sample is due immediately.
    #[must_use]
    pub fn new(wanted: Wanted, now: Time) -> Self {
        let lead = |limit: Duration| now + limit.saturating_sub(LEAD.min(limit / 2));
        Self {
            wanted,
            begin: now,
            last_samples: wanted.limit.map(lead),
            phase: Phase::Regular,
            search: Search::Job,
            job: Job::NotFound,
            detector: HangDetector::new(wanted.idle),
            frames: Frames::new(),
            refusals: 0,
            reports: 0,
            state: State::Waiting { until: now },
            outputs: VecDeque::new(),
        }
    }

    /// The next step for the host.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When to give [`Input::Tick`]; `None` while the host carries out a step.
    #[must_use]
    pub const fn deadline(&self) -> Option<Time> {
        match self.state {
            State::Waiting { until } => Some(until),
            State::Finding { .. } | State::Sampling | State::Over => None,
        }
    }

    /// The samples of the idle time, the first one at time 0.
    #[must_use]
    pub fn recording(&self) -> Recording {
        self.detector.recording(&self.frames)
    }

    /// Takes in what happened.
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
            // A clock that is early; an exit that the host saw twice.
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
        let watched = match (self.search, self.wanted.pid) {
            (Search::Ranks, _) if living.is_none() => return self.end(End::Gone),
            // A launcher may stay when its ranks have exited, and start others.
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
        let access = access(snapshot);
        let cause = self.detector.see(&self.frames, observed);
        let idle = self.wanted.idle;
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
            Ok(()) => self.refusals = 0,
            Err(forbidden) => {
                self.refusals += 1;
                if self.refusals >= MAX_REFUSALS {
                    return self.end(End::NoAccess { forbidden });
                }
            }
        }
        let next = now + self.detector.every();
        let until = self.last_samples.map_or(next, |last| last.min(next));
        self.state = State::Waiting { until };
    }

    fn limit(&self) -> Option<Time> {
        self.wanted.limit.map(|limit| self.begin + limit)
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

    fn end(&mut self, end: End) {
        self.outputs.push_back(Output::End(end));
        self.state = State::Over;
    }
}

/// Whether some rank of a snapshot may be looked at. The error has the ranks whose processes are known.
fn access(snapshot: &Snapshot) -> Result<(), RankSet> {
    let is_refused = |seen: &Seen| {
        matches!(
            seen,
            Seen::Missing(Missing::NotPermitted | Missing::Unproved)
        )
    };
    if snapshot.procs.is_empty() || !snapshot.procs.values().all(is_refused) {
        return Ok(());
    }
    let is_forbidden = |seen: &Seen| matches!(seen, Seen::Missing(Missing::NotPermitted));
    let forbidden = snapshot.procs.iter();
    let forbidden = forbidden.filter(|(_, seen)| is_forbidden(seen));
    Err(forbidden.map(|(&rank, _)| rank).collect())
}
