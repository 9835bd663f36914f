//! When a job that is looked at from time to time hangs, and when that is news.
//!
//! | state | it hangs, as far as the looks of the idle time tell | it does not |
//! |---|---|---|
//! | `Quiet` | → `Told`, and the cause is given | – |
//! | `Told` | – | → `Quiet` |
//!
//! It hangs when over the whole idle time every thread of every rank stands, sleeping or polling, no rank has written
//! anything, none has come or gone, and what ranks have started has not worked; or when what was seen is enough for a
//! verdict ([`crate::verdict`]). While all ranks are stopped by a signal, or a debugger has one of them, somebody has
//! stopped the clock, which begins anew. What a look does not tell from a hang is a rank that makes the same call on the
//! same line all the time, and nothing else.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use base::Rank;

use crate::{
    samples::{Boundary, Crew, Motion, Observation, RankTrack, Recording, Sample, observe},
    stack::{Activity, Frames, Missing},
    verdict,
};

#[cfg(test)]
mod tests;

/// Parts of the idle time, at the end of each of which is looked. Some rules need ten looks at ranks that poll; looks that
/// come late make the window hold fewer.
pub const PARTS: u32 = 12;
/// Looks that are kept at most, where they come faster than they should.
const MAX_SAMPLES: usize = 64;

/// What was seen at one moment.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The stacks; its time is that since the watch began.
    pub sample: Sample,
    /// What each rank has done that its stacks do not show.
    pub progress: BTreeMap<Rank, Progress>,
}

/// What a rank has done since it began, with the processes below it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes written, to files, pipes and terminals.
    pub written: u64,
    /// The processor time of the processes below it, which are no ranks: a rank that waits for them does not hang while they
    /// work.
    pub below: Duration,
}

/// Processes below a rank that use less than one part in so many of a processor wait as well.
const LITTLE: u32 = 100;

/// Why there is something to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Nothing has moved in the idle time.
    Idle,
    /// Something moves, and yet what was seen tells who keeps the others waiting.
    Verdict,
}

/// Follows a job.
#[derive(Debug)]
pub struct HangDetector {
    idle: Duration,
    looks: VecDeque<Observed>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It does not hang, or not for long enough to know.
    Quiet,
    /// It hangs, which was said.
    Told,
}

impl HangDetector {
    /// Has seen nothing. A job hangs that has stood for the time `idle`.
    #[must_use]
    pub const fn new(idle: Duration) -> Self {
        Self {
            idle,
            looks: VecDeque::new(),
            state: State::Quiet,
        }
    }

    /// The time from one look to the next.
    #[must_use]
    pub fn every(&self) -> Duration {
        self.idle / PARTS
    }

    /// Takes in a look; the cause, where there is something new to be told.
    pub fn see(&mut self, frames: &Frames, look: Observed) -> Option<Cause> {
        let now = look.sample.at;
        if is_paused(&observe(
            frames,
            std::slice::from_ref(&look.sample),
            Boundary::Known,
        )) {
            self.looks.clear();
            return None;
        }
        self.looks.push_back(look);
        // The oldest one that is kept is as old as the idle time, or nearly.
        let is_old = |look: &Observed| now.saturating_sub(look.sample.at) >= self.idle;
        while self.looks.get(1).is_some_and(is_old) || self.looks.len() > MAX_SAMPLES {
            self.looks.pop_front();
        }
        let begin = self.looks.front().map_or(now, |it| it.sample.at);
        if now.saturating_sub(begin) < self.idle {
            return None;
        }
        let cause = self.cause(frames);
        let state = if cause.is_some() {
            State::Told
        } else {
            State::Quiet
        };
        let before = std::mem::replace(&mut self.state, state);
        cause.filter(|_| before == State::Quiet)
    }

    /// The looks of the idle time, the first of them at the time 0.
    #[must_use]
    pub fn recording(&self, frames: &Frames) -> Recording {
        let begin = self.looks.front().map_or(Duration::ZERO, |it| it.sample.at);
        let samples = self.looks.iter().map(|look| Sample {
            at: look.sample.at.saturating_sub(begin),
            snapshot: look.sample.snapshot.clone(),
        });
        Recording {
            frames: frames.clone(),
            samples: samples.collect(),
        }
    }

    /// Forgets what was seen, but not whether it was told.
    pub fn forget(&mut self) {
        self.looks.clear();
    }

    /// Whether nobody has done anything that the stacks do not show.
    fn is_silent(&self) -> bool {
        let pairs = self.looks.iter().zip(self.looks.iter().skip(1));
        pairs.into_iter().all(|(before, after)| {
            let time = after.sample.at.saturating_sub(before.sample.at);
            before.progress.len() == after.progress.len()
                && before.progress.iter().all(|(rank, &progress)| {
                    let after = after.progress.get(rank);
                    after.is_some_and(|&after| is_alike(progress, after, time))
                })
        })
    }

    fn cause(&self, frames: &Frames) -> Option<Cause> {
        let recording = self.recording(frames);
        let all = recording.observe(Boundary::Known);
        if self.is_silent() && stands(&all) {
            return Some(Cause::Idle);
        }
        let verdicts = verdict::judge(frames, &all);
        (!verdicts.is_empty()).then_some(Cause::Verdict)
    }
}

/// Whether two looks may differ so in what a rank has done while it stands for this time.
fn is_alike(before: Progress, after: Progress, time: Duration) -> bool {
    let below = after.below.saturating_sub(before.below);
    // Where one of them has ended, its time is gone from the sum.
    before.written == after.written && before.below <= after.below && below <= time / LITTLE
}

/// Whether somebody has stopped all of it, or is debugging it.
fn is_paused(all: &Observation) -> bool {
    let debugged = |why: &Option<Missing>| matches!(why, Some(Missing::TracedBy(_)));
    let stopped = |track: &RankTrack| {
        let activity = track.main.as_ref().and_then(|main| main.seen.last());
        activity.is_none_or(|(_, it)| {
            matches!(it, Activity::Stopped | Activity::Frozen | Activity::Traced)
        })
    };
    let mut ranks = all.ranks.values();
    // Where nobody was seen, nobody has stopped anything.
    let somebody = ranks.clone().any(|track| track.main.is_some());
    ranks
        .clone()
        .any(|track| track.missing.iter().any(debugged))
        || (somebody && ranks.all(stopped))
}

/// Whether nobody moves of all that were seen, and somebody was.
fn stands(all: &Observation) -> bool {
    all.ranks.values().any(|track| track.main.is_some()) && all.ranks.values().all(is_standing)
}

/// Whether it stands, or is dead. Of who could not be looked at nobody knows.
fn is_standing(track: &RankTrack) -> bool {
    let known = |why: &Option<Missing>| {
        matches!(
            why,
            None | Some(Missing::Gone | Missing::Zombie | Missing::Unreachable)
        )
    };
    let mut threads = track.main.iter().chain(&track.others);
    let first = track.missing.first();
    track.threads == Crew::Same
        && track.missing.iter().all(known)
        && track.missing.iter().all(|why| Some(why) == first)
        && threads.all(|thread| matches!(thread.motion, Motion::Stuck | Motion::Spinning))
}
