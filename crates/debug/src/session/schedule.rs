//! How often to take a sample, and when.

use std::time::Duration;

use base::Time;

use crate::{
    samples::{Boundary, Sample, observe},
    stack::Frames,
    verdict,
};

/// Samples that are taken at most: all of them are kept.
pub const MAX_SAMPLES: u32 = 1000;
/// The time from one sample to the next, where nothing else is said or wanted.
const EVERY: Duration = Duration::from_secs(1);
/// Samples that are taken where a verdict is wanted, even if one is enough for it: they also tell what moves.
const LEAST: usize = 3;
/// The shortest time between samples that we choose: two that are closer find a program that polls at the same place too
/// often.
pub const LEAST_BETWEEN: Duration = Duration::from_millis(250);
/// What is added to it, so that many samples do not end just before the time that they need.
const MARGIN: Duration = Duration::from_millis(5);

/// How often to take a sample, and how far apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// How often.
    pub samples: Samples,
    /// From the beginning of one to that of the next; nothing where that is left to us.
    pub every: Option<Duration>,
}

/// How often to take a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Samples {
    /// So often.
    Exactly(u32),
    /// As often as a verdict needs, for so long at most, and no more often than [`MAX_SAMPLES`].
    AsNeeded(Duration),
}

impl Samples {
    /// How many, where that is known beforehand.
    #[must_use]
    pub const fn number(self) -> Option<u32> {
        match self {
            Self::Exactly(number) => Some(number),
            Self::AsNeeded(_) => None,
        }
    }
}

impl Plan {
    /// The time to the next sample, after those that there are; nothing where they are enough.
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
        if all.span >= limit || (samples.len() >= LEAST && !verdict::judge(frames, &all).is_empty())
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

    /// Whether one sample is all.
    #[must_use]
    pub const fn is_single(self) -> bool {
        matches!(self.samples, Samples::Exactly(1))
    }
}

/// The times of some samples, as they are taken.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    plan: Plan,
    /// When the time of the samples began; nothing before the first was taken.
    zero: Option<Time>,
    /// When the sample began that is being taken or was taken last.
    began: Time,
}

impl Schedule {
    /// The first sample begins now.
    #[must_use]
    pub const fn new(plan: Plan, now: Time) -> Self {
        Self {
            plan,
            zero: None,
            began: now,
        }
    }

    /// A further sample begins now.
    pub const fn begin(&mut self, now: Time) {
        self.began = now;
    }

    /// The sample was taken: its time, from that of the first one. The first one reads files, and its last rank is seen late:
    /// with its end the time begins.
    pub fn end(&mut self, now: Time) -> Duration {
        match self.zero {
            Some(zero) => self.began.since(zero),
            None => {
                self.zero = Some(now);
                Duration::ZERO
            }
        }
    }

    /// When to begin the next sample; nothing where those that were taken are enough. The last of them ended at `ended`.
    #[must_use]
    pub fn next(&self, frames: &Frames, samples: &[Sample], ended: Time) -> Option<Time> {
        let every = self.plan.next(frames, samples)?;
        let is_first = samples.len() <= 1;
        // A sample that takes long would be followed by the next at once, in which nothing has had the time to move.
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
        // The first one ends where the time begins, and the second comes after its end.
        let mut taken = vec![sample(schedule.end(ms(1_040)))];
        assert_eq!(taken[0].at, Duration::ZERO);
        let next = schedule.next(&frames, &taken, ms(1_040));
        assert_eq!(next, Some(ms(1_140)));
        for (began, ended, next) in [
            (1_140, 1_150, 1_240),
            // The half of the time is over: the next is as far from its end.
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
