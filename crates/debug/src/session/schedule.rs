//! The number of samples, and their times.

use std::time::Duration;

use base::Time;

use crate::{
    samples::{Boundary, Sample, observe},
    stack::Frames,
    verdict,
};

/// Maximum number of samples. All of them are kept in memory.
pub const MAX_SAMPLES: u32 = 1000;
/// Default time between samples, for a fixed number of samples.
const EVERY: Duration = Duration::from_secs(1);
/// Minimum number of samples when a verdict is wanted, even if the verdict needs fewer: they also show what moves.
const LEAST: usize = 3;
/// Shortest time between samples that we choose ourselves. With a shorter time, too many samples would find a polling program
/// at the same place.
pub const LEAST_BETWEEN: Duration = Duration::from_millis(250);
/// Time added to the interval that we choose, so that the last sample does not come just before the span that a verdict
/// needs.
const MARGIN: Duration = Duration::from_millis(5);

/// How many samples to take, and the time between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Number of samples.
    pub samples: Samples,
    /// Time from the beginning of one sample to the beginning of the next; `None` to let the schedule choose.
    pub every: Option<Duration>,
}

/// Number of samples to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Samples {
    /// This number of samples.
    Exactly(u32),
    /// As many as a verdict needs, over at most this time. There are never more than [`MAX_SAMPLES`].
    AsNeeded(Duration),
}

impl Samples {
    /// Returns the number of samples if it is known beforehand.
    #[must_use]
    pub const fn number(self) -> Option<u32> {
        match self {
            Self::Exactly(number) => Some(number),
            Self::AsNeeded(_) => None,
        }
    }
}

impl Plan {
    /// Returns the time until the next sample; `None` if the samples taken so far are enough.
    fn next(self, frames: &Frames, samples: &[Sample]) -> Option<Duration> {
        let taken = u32::try_from(samples.len()).unwrap_or(u32::MAX);
        let limit = match self.samples {
            Samples::Exactly(number) => {
                return (taken < number).then(|| self.every.unwrap_or(EVERY));
            }
            Samples::AsNeeded(_) if taken >= MAX_SAMPLES => return None,
            Samples::AsNeeded(limit) => limit,
        };
        let all = observe(frames, samples, Boundary::Known);
        if all.span >= limit
            || (samples.len() >= LEAST && !verdict::judge(frames, samples, &all).is_empty())
        {
            return None;
        }
        let wanted = verdict::outlook(frames, &all).wanted;
        let wanted = wanted.filter(|wanted| wanted.span <= limit)?;
        let more = wanted.samples.saturating_sub(samples.len()).max(1);
        let time = wanted.span.saturating_sub(all.span);
        let every = time / u32::try_from(more).unwrap_or(u32::MAX) + MARGIN;
        Some(self.every.unwrap_or_else(|| every.max(LEAST_BETWEEN)))
    }

    /// Returns true if only one sample is to be taken.
    #[must_use]
    pub const fn is_single(self) -> bool {
        matches!(self.samples, Samples::Exactly(1))
    }
}

/// The times at which samples are taken.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    plan: Plan,
    /// End of the first sample, which is time zero of all samples; `None` before that.
    zero: Option<Time>,
    /// Beginning of the current or last sample.
    began: Time,
}

impl Schedule {
    /// Returns a schedule whose first sample begins now.
    #[must_use]
    pub const fn new(plan: Plan, now: Time) -> Self {
        Self {
            plan,
            zero: None,
            began: now,
        }
    }

    /// Begins a further sample now.
    pub const fn begin(&mut self, now: Time) {
        self.began = now;
    }

    /// Ends the current sample, and returns its time since the end of the first sample. The first sample takes longer than
    /// others because it reads files, and its last rank is sampled late. So time zero is at its end.
    pub fn end(&mut self, now: Time) -> Duration {
        match self.zero {
            Some(zero) => self.began.since(zero),
            None => {
                self.zero = Some(now);
                Duration::ZERO
            }
        }
    }

    /// Returns when to begin the next sample; `None` if the samples taken so far are enough. The last of them ended at
    /// `ended`.
    #[must_use]
    pub fn next(&self, frames: &Frames, samples: &[Sample], ended: Time) -> Option<Time> {
        let every = self.plan.next(frames, samples)?;
        let is_first = samples.len() <= 1;
        // If a sample takes long, nothing would have had time to move before the next one. So the interval begins at its end.
        let took = ended.since(self.began);
        let from = if is_first || took > every / 2 {
            ended
        } else {
            self.began
        };
        Some(from + every)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::Snapshot;

    #[test]
    fn no_plan_is_without_an_end() {
        let moment = |at| Sample {
            at: Duration::from_millis(at),
            snapshot: Snapshot::default(),
        };
        let every = Some(Duration::from_millis(1));
        let most = u64::from(MAX_SAMPLES);
        for (samples, taken, more) in [
            (Samples::AsNeeded(Duration::from_secs(15)), 2, true),
            (Samples::AsNeeded(Duration::from_secs(15)), most - 1, true),
            (Samples::AsNeeded(Duration::from_secs(15)), most, false),
            (Samples::Exactly(MAX_SAMPLES), most - 1, true),
            (Samples::Exactly(MAX_SAMPLES), most, false),
        ] {
            let plan = Plan { samples, every };
            let all: Vec<Sample> = (0..taken).map(moment).collect();
            let next = plan.next(&Frames::new(), &all);
            assert_eq!(next.is_some(), more, "{samples:?}, {} samples", all.len());
        }
    }

    #[test]
    fn samples_are_apart_from_their_beginnings_unless_one_takes_long() {
        let ms = |ms: u64| Time::from_nanos(ms * 1_000_000);
        let plan = Plan {
            samples: Samples::Exactly(10),
            every: Some(Duration::from_millis(100)),
        };
        let frames = Frames::new();
        let sample = |at| Sample {
            at,
            snapshot: Snapshot::default(),
        };
        let mut schedule = Schedule::new(plan, ms(1_000));
        // Time zero is the end of the first sample, and the second sample follows one interval after it.
        let mut taken = vec![sample(schedule.end(ms(1_040)))];
        assert_eq!(taken[0].at, Duration::ZERO);
        let next = schedule.next(&frames, &taken, ms(1_040));
        assert_eq!(next, Some(ms(1_140)));
        for (began, ended, next) in [
            (1_140, 1_150, 1_240),
            // This sample took more than half of the interval, so the next one follows one interval after its end.
            (1_240, 1_295, 1_395),
        ] {
            schedule.begin(ms(began));
            taken.push(sample(schedule.end(ms(ended))));
            let at = taken.last().map(|sample| sample.at);
            assert_eq!(at, Some(Duration::from_millis(began - 1_040)));
            let found = schedule.next(&frames, &taken, ms(ended));
            assert_eq!(found, Some(ms(next)), "{began}");
        }
    }
}
