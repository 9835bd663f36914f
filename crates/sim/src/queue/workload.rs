//! Jobs with the statistics of public traces.
//!
//! Sizes and run times are those of the model of Lublin and Feitelson ("The workload on parallel supercomputers: modeling the
//! characteristics of rigid jobs", JPDC 63, 2003), which was fitted to traces of the Parallel Workloads Archive. Time limits follow
//! Tsafrir, Etsion and Feitelson ("Modeling user runtime estimates", JSSPP 2005): few round values, and mostly far too long.

use std::time::Duration;

use crate::rng::Rng;

/// Share of jobs with one proc, in percent.
const SERIAL: u64 = 24;
/// Share of the other jobs whose size is a power of two, in percent.
const POWERS: u64 = 75;
/// Logarithms to base 2 of the sizes: the lowest, and where the first of two uniform stages ends, as the distance from the
/// highest. The first stage has 86 % of the jobs.
const LOW: f64 = 0.8;
const MIDDLE: f64 = 2.5;
const FIRST_STAGE: u64 = 86;
/// Shapes and scales of the two gamma distributions of the natural logarithm of run times in seconds.
const SHORT: (f64, f64) = (4.2, 0.94);
const LONG: (f64, f64) = (312.0, 0.03);
/// Chance that a run time is of the first one: `SLOPE * size + OFFSET`.
const SLOPE: f64 = -0.0054;
const OFFSET: f64 = 0.78;
/// Time limits that users choose, in seconds.
const LIMITS: [u64; 12] = [
    300, 600, 900, 1_800, 3_600, 7_200, 14_400, 28_800, 43_200, 64_800, 86_400, 172_800,
];
/// Longest run time, in seconds.
const LONGEST: f64 = 172_800.0;

/// A job of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TraceJob {
    pub(super) slots: u32,
    pub(super) runs_for: Duration,
    pub(super) limit: Duration,
}

/// A source of jobs for a machine of some size.
#[derive(Debug)]
pub(super) struct Workload {
    rng: Rng,
    slots: u32,
}

impl Workload {
    /// Creates a source from a seed.
    #[must_use]
    pub(super) const fn new(seed: u64, slots: u32) -> Self {
        Self {
            rng: Rng::new(seed),
            slots,
        }
    }

    /// Returns the next job. It has at most the slots of the machine.
    pub(super) fn next_job(&mut self) -> TraceJob {
        let slots = self.size();
        let seconds = self.run_time(slots);
        let limit = self.limit(seconds);
        TraceJob {
            slots,
            runs_for: Duration::from_secs(seconds),
            limit: Duration::from_secs(limit),
        }
    }

    /// Returns the time to the next job: exponential with this mean.
    pub(super) fn pause(&mut self, mean: Duration) -> Duration {
        mean.mul_f64(self.exponential())
    }

    /// Returns a number from 0 to less than 1.
    fn uniform(&mut self) -> f64 {
        /// More would not fit in the mantissa.
        const STEPS: u32 = 1 << 31;
        let step = u32::try_from(self.rng.below(u64::from(STEPS))).unwrap_or(0);
        f64::from(step) / f64::from(STEPS)
    }

    fn exponential(&mut self) -> f64 {
        -(1.0 - self.uniform()).ln()
    }

    /// Returns a number of the normal distribution, by the sum of twelve uniform ones.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
    }

    /// Returns a number of the gamma distribution, by the cube of a normal one (Wilson and Hilferty).
    fn gamma(&mut self, (shape, scale): (f64, f64)) -> f64 {
        let width = (9.0 * shape).sqrt().recip();
        let root = self.normal().mul_add(width, 1.0 - width * width);
        shape * scale * root.max(0.0).powi(3)
    }

    fn size(&mut self) -> u32 {
        if self.rng.chance(SERIAL) {
            return 1;
        }
        let high = f64::from(self.slots).log2().max(LOW + 0.1);
        let middle = (high - MIDDLE).max(LOW);
        let (from, to) = if self.rng.chance(FIRST_STAGE) {
            (LOW, middle)
        } else {
            (middle, high)
        };
        let exponent = self.uniform().mul_add(to - from, from);
        let exponent = if self.rng.chance(POWERS) {
            exponent.round()
        } else {
            exponent
        };
        whole(exponent.exp2()).clamp(1, self.slots)
    }

    fn run_time(&mut self, slots: u32) -> u64 {
        let chance = SLOPE.mul_add(f64::from(slots), OFFSET).max(0.0);
        let gamma = if self.uniform() < chance { SHORT } else { LONG };
        let seconds = self.gamma(gamma).exp().clamp(1.0, LONGEST);
        u64::from(whole(seconds))
    }

    /// Returns a time limit of at least the run time. One job in eight needs all of it.
    fn limit(&mut self, seconds: u64) -> u64 {
        if self.rng.chance(12) {
            return seconds;
        }
        let long_enough = LIMITS.iter().filter(|limit| **limit >= seconds);
        let count = long_enough.clone().count();
        let chosen = self.rng.length(0, count.saturating_sub(1));
        long_enough.copied().nth(chosen).unwrap_or(seconds)
    }
}

/// Returns the whole number nearest to a positive one, which has to be small.
fn whole(number: f64) -> u32 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the conversion saturates, and callers clamp"
    )]
    let whole = number.round() as u32;
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_have_the_statistics_of_the_model() {
        let mut workload = Workload::new(1, 128);
        let jobs: Vec<TraceJob> = (0..10_000).map(|_| workload.next_job()).collect();
        let percent = |is: &dyn Fn(&TraceJob) -> bool| {
            jobs.iter().filter(|job| is(job)).count() * 100 / jobs.len()
        };
        let under_an_hour = |job: &TraceJob| job.runs_for < Duration::from_secs(3_600);
        let shares = [
            percent(&|job| job.slots == 1),
            percent(&|job| job.slots.is_power_of_two()),
            percent(&|job| job.slots > 32),
            percent(&under_an_hour),
        ];
        assert_eq!(shares, [24, 85, 7, 69]);
        assert!(jobs.iter().all(|job| job.runs_for <= job.limit));
        assert!((10..=16).contains(&percent(&|job| job.runs_for == job.limit)));
    }
}
