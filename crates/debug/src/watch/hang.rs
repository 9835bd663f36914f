//! Detects from samples that a job hangs, and whether the hang is new.
//!
//! | state | the samples of the idle time show a hang | the samples of the idle time show no hang |
//! |---|---|---|
//! | `Quiet` | `Reported`; the detector returns the cause | `Quiet` |
//! | `Reported` | `Reported` | `Quiet` |
//!
//! A job hangs if nothing has moved over the whole idle time. Then every thread of every rank sleeps or polls at one place,
//! and no rank has written anything. No thread or rank has started or exited, and no descendant of a rank has worked. A job
//! also hangs if the samples lead to a verdict ([`crate::verdict`]).
//!
//! A rank that polls for messages in a loop of its own (`MPI_Test`) looks like one that computes. If its calls of MPI are recorded, it
//! counts as one that stands while its polls find nothing, and most samples find it in them.
//!
//! The idle time starts again while a signal has stopped all ranks, or a debugger has attached to one. A rank that only
//! repeats the same call on the same line cannot be distinguished from one that hangs, unless its calls of MPI are recorded.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use base::Rank;

use crate::{
    known::Kind,
    samples::{
        Boundary, Cut, Motion, Observation, RankTrack, Recording, Sample, ThreadSet, Work, observe,
    },
    stack::{Activity, Frames, Missing},
    verdict,
};

#[cfg(test)]
mod tests;

/// Number of samples in one idle time. Some rules need ten samples of ranks that poll, and late samples reduce the number.
pub const PARTS: u32 = 12;
/// Maximum number of samples to keep, in case they come faster than planned.
const MAX_SAMPLES: usize = 64;

/// The state and the progress of all ranks at one moment.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The stacks, with the time since the watch began.
    pub sample: Sample,
    /// The progress of each rank that its stacks do not show.
    pub progress: BTreeMap<Rank, Progress>,
}

/// Progress of a rank and its descendants since the rank started. It is known only for ranks on the node of the watch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes written to files, pipes and terminals.
    pub written: u64,
}

/// The reason why a job seems to hang.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Nothing has moved in the idle time.
    Idle,
    /// Something moves, but the samples show which ranks block the job.
    Verdict,
}

/// Detects hangs of one job.
#[derive(Debug)]
pub struct HangDetector {
    idle: Duration,
    samples: VecDeque<Observed>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The job does not hang, or has not yet hung for the idle time.
    Quiet,
    /// The job hangs, and [`HangDetector::see`] has returned the cause.
    Reported,
}

impl HangDetector {
    /// Returns a detector without samples. A job hangs if nothing has moved for the time `idle`.
    #[must_use]
    pub const fn new(idle: Duration) -> Self {
        Self {
            idle,
            samples: VecDeque::new(),
            state: State::Quiet,
        }
    }

    /// Returns the time from one sample to the next.
    #[must_use]
    pub fn every(&self) -> Duration {
        self.idle / PARTS
    }

    /// Adds a sample. Returns the cause if the job hangs now, and did not before this sample.
    pub fn see(&mut self, frames: &Frames, observed: Observed) -> Option<Cause> {
        let now = observed.sample.at;
        if is_paused(&observe(
            frames,
            std::slice::from_ref(&observed.sample),
            Boundary::Known,
        )) {
            self.samples.clear();
            return None;
        }
        self.samples.push_back(observed);
        // Keep the newest sample that is at least as old as the idle time, and all samples after it.
        let is_old = |observed: &Observed| now.saturating_sub(observed.sample.at) >= self.idle;
        while self.samples.get(1).is_some_and(is_old) || self.samples.len() > MAX_SAMPLES {
            self.samples.pop_front();
        }
        let begin = self.samples.front().map_or(now, |it| it.sample.at);
        if now.saturating_sub(begin) < self.idle {
            return None;
        }
        let cause = self.cause(frames);
        let state = if cause.is_some() {
            State::Reported
        } else {
            State::Quiet
        };
        let before = std::mem::replace(&mut self.state, state);
        cause.filter(|_| before == State::Quiet)
    }

    /// Returns the samples of the idle time, the first one at time 0.
    #[must_use]
    pub fn recording(&self, frames: &Frames) -> Recording {
        let begin = self
            .samples
            .front()
            .map_or(Duration::ZERO, |it| it.sample.at);
        let samples = self.samples.iter().map(|observed| Sample {
            at: observed.sample.at.saturating_sub(begin),
            snapshot: observed.sample.snapshot.clone(),
        });
        Recording {
            frames: frames.clone(),
            samples: samples.collect(),
        }
    }

    /// Drops the samples, but remembers whether a hang was reported.
    pub fn forget(&mut self) {
        self.samples.clear();
    }

    /// Returns true if no rank made progress that its stacks do not show.
    fn is_silent(&self) -> bool {
        let pairs = self.samples.iter().zip(self.samples.iter().skip(1));
        pairs
            .into_iter()
            .all(|(before, after)| before.progress == after.progress)
    }

    fn cause(&self, frames: &Frames) -> Option<Cause> {
        let recording = self.recording(frames);
        let all = recording.observe(Boundary::Known);
        let communicates = !verdict::advanced(&recording.samples).is_empty();
        if self.is_silent() && stands(&all, &recording.samples) && !communicates {
            return Some(Cause::Idle);
        }
        let verdicts = verdict::judge(frames, &recording.samples, &all);
        (!verdicts.is_empty()).then_some(Cause::Verdict)
    }
}

/// Returns true if all ranks are stopped, or a debugger has attached to one.
fn is_paused(all: &Observation) -> bool {
    let debugged = |why: &Option<Missing>| matches!(why, Some(Missing::TracedBy(_)));
    let stopped = |track: &RankTrack| {
        let activity = track.main.as_ref().and_then(|main| main.seen.last());
        activity.is_none_or(|(_, it)| {
            matches!(it, Activity::Stopped | Activity::Frozen | Activity::Traced)
        })
    };
    let mut ranks = all.ranks.values();
    // Ranks that are missing are not stopped.
    let somebody = ranks.clone().any(|track| track.main.is_some());
    ranks
        .clone()
        .any(|track| track.missing.iter().any(debugged))
        || (somebody && ranks.all(stopped))
}

/// Returns true if some rank was seen, and no rank moves.
fn stands(all: &Observation, samples: &[Sample]) -> bool {
    let mut ranks = all.ranks.iter();
    all.ranks.values().any(|track| track.main.is_some())
        && ranks.all(|(rank, track)| is_standing(track, polls(*rank, track, samples)))
}

/// Of this many samples, all but one have to find a rank in a poll: one that works between its polls is rarely seen in them.
const POLLED_OF: usize = 4;

/// What the main thread of a rank does in its own loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loop {
    /// It polls for messages, and finds none.
    Polls,
    /// It may work.
    Works,
}

fn polls(rank: Rank, track: &RankTrack, samples: &[Sample]) -> Loop {
    let Some(main) = track.main.as_ref() else {
        return Loop::Works;
    };
    let is_poll = |cut: &Cut| cut.wait.as_ref().is_some_and(|it| it.kind == Kind::Test);
    let polled = main.seen.iter().filter(|(cut, _)| is_poll(cut)).count();
    let in_vain = samples.windows(2).all(|pair| {
        let [before, after] = [&pair[0], &pair[1]].map(|it| it.snapshot.calls.get(&rank));
        before
            .zip(after)
            .is_some_and(|(before, after)| after.has_polled_in_vain(before))
    });
    let mostly = polled * POLLED_OF >= main.seen.len() * (POLLED_OF - 1);
    if main.motion == Motion::Looping && mostly && in_vain {
        Loop::Polls
    } else {
        Loop::Works
    }
}

/// Returns true if a rank makes no progress, or has exited. A rank that could not be sampled may make progress. So may one that
/// waits for descendants that work, on whichever node.
fn is_standing(track: &RankTrack, main: Loop) -> bool {
    let known = |why: &Option<Missing>| {
        matches!(
            why,
            None | Some(Missing::Gone | Missing::Zombie | Missing::Unreachable)
        )
    };
    let main = track.main.iter().filter(|_| main == Loop::Works);
    let mut threads = main.chain(&track.others);
    let first = track.missing.first();
    track.threads == ThreadSet::Same
        && track.below == Work::Idle
        && track.missing.iter().all(known)
        && track.missing.iter().all(|why| Some(why) == first)
        && threads.all(|thread| matches!(thread.motion, Motion::Stuck | Motion::Spinning))
}
