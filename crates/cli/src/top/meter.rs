//! What running jobs use. Those that the screen shows are measured one after another, in rounds, over a connection of their own: a measurement waits
//! for all nodes of its job, and nothing else on the screen is to wait for them too.
//!
//! A measurement reads `/proc` on those nodes. So the pause after a round grows with the time that the round took, as that between two looks does.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use base::{JobId, Rank, Time};
use dvm::{
    machine::{Reply, UsageReport},
    messages::size,
};

use crate::machine::{Said, pause_after};

/// From the beginning of a round to that of the next one, at least.
const ROUND_MIN: Duration = Duration::from_secs(2);
/// After this time a measurement says nothing about the present. It is neither shown nor compared with the next one.
const MEASURED_MAX: Duration = Duration::from_secs(30);

/// What is known of running jobs, and which one is measured next.
#[derive(Debug, Default)]
pub(super) struct Meter {
    measured: BTreeMap<JobId, Measured>,
    /// The job whose measurement has not come.
    asked: Option<JobId>,
    /// Jobs of this round that were not asked for.
    left: VecDeque<JobId>,
    /// When this round has begun, and when the next one may.
    begun: Time,
    due: Time,
}

/// The last measurement of a job.
#[derive(Debug)]
struct Measured {
    at: Time,
    /// CPU time of all procs, and of each.
    all: Duration,
    procs: BTreeMap<(JobId, Rank), Duration>,
    resident: u64,
    /// Tenths of a core that were in use since the measurement before this one.
    cores: Option<u128>,
}

impl Meter {
    /// Returns the job to measure now. These are shown and run.
    pub(super) fn wish(
        &mut self,
        now: Time,
        shown: impl IntoIterator<Item = JobId>,
    ) -> Option<JobId> {
        self.measured
            .retain(|_, measured| now.since(measured.at) < MEASURED_MAX);
        if self.asked.is_some() {
            return None;
        }
        if self.left.is_empty() && now >= self.due {
            self.left = shown.into_iter().collect();
            self.begun = now;
        }
        self.asked = self.left.pop_front();
        self.asked
    }

    /// Takes the answer about the job that was asked for.
    pub(super) fn said(&mut self, now: Time, said: Said) {
        let Some(job) = self.asked.take() else {
            return;
        };
        let before = self.measured.remove(&job);
        // A job that is over is refused.
        if let Ok(Reply::Usage(report)) = said {
            let measured = Measured::new(now, before.as_ref(), &report);
            self.measured.insert(job, measured);
        }
        if self.left.is_empty() {
            let pause = pause_after(now.since(self.begun));
            self.due = (now + pause).max(self.begun + ROUND_MIN);
        }
    }

    /// Returns how many cores a job uses; `None` if that is not known.
    pub(super) fn cores(&self, job: JobId) -> Option<String> {
        let tenths = self.measured.get(&job)?.cores?;
        Some(format!("{}.{}", tenths / 10, tenths % 10))
    }

    /// Returns the memory of a job that is resident; `None` if that is not known.
    pub(super) fn memory(&self, job: JobId) -> Option<String> {
        self.measured
            .get(&job)
            .map(|measured| size(measured.resident))
    }
}

impl Measured {
    fn new(at: Time, before: Option<&Self>, report: &UsageReport) -> Self {
        let of_procs = report.ranks.iter();
        let mut measured = Self {
            at,
            all: report.total.cpu(),
            procs: of_procs
                .map(|one| ((one.run, one.rank), one.used.cpu()))
                .collect(),
            resident: report.resident,
            cores: None,
        };
        measured.cores = before.and_then(|before| measured.cores_since(before));
        measured
    }

    /// Returns the tenths of a core that were in use in the meantime.
    fn cores_since(&self, before: &Self) -> Option<u128> {
        // What the sum has lost with procs that have ended, such as those of a task, the other procs have not lost. But it also counts processes
        // that no proc counts any more, and procs that have started. Neither way counts too much.
        let common = self.procs.iter().filter_map(|(proc, used)| {
            let before = before.procs.get(proc)?;
            Some(used.saturating_sub(*before))
        });
        let used = common
            .sum::<Duration>()
            .max(self.all.saturating_sub(before.all));
        let took = self.at.since(before.at).as_nanos();
        (used.as_nanos() * 10 + took / 2).checked_div(took)
    }
}

#[cfg(test)]
mod tests {
    use base::Usage;
    use dvm::machine::{NotDone, RankUsage};

    use super::*;

    const JOB: JobId = JobId(7);

    fn at(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(millis)
    }

    /// A measurement of procs by run and rank, each with its milliseconds of CPU time.
    fn report(procs: &[(u32, u32, u64)]) -> Said {
        let mut report = UsageReport {
            resident: 3 << 20,
            ..UsageReport::default()
        };
        for (run, rank, millis) in procs {
            let used = Usage {
                user: Duration::from_millis(*millis),
                ..Usage::default()
            };
            report.total.add(&used);
            report.ranks.push(RankUsage {
                task: 0,
                run: JobId(*run),
                rank: Rank(*rank),
                host: "n1".to_owned(),
                pid: 4000,
                processes: 1,
                resident: 0,
                used,
            });
        }
        Ok(Reply::Usage(Box::new(report)))
    }

    #[test]
    fn cores_are_those_of_the_time_between_two_measurements() {
        for (first, second, cores) in [
            (&[(1, 0, 500)][..], &[(1, 0, 2500)][..], "1.0"),
            (
                &[(1, 0, 0), (1, 1, 0)],
                &[(1, 0, 2000), (1, 1, 1000)],
                "1.5",
            ),
            // Rounded, and idle.
            (&[(1, 0, 0)], &[(1, 0, 99)], "0.0"),
            (&[(1, 0, 0)], &[(1, 0, 101)], "0.1"),
            (&[(1, 0, 9000)], &[(1, 0, 9000)], "0.0"),
            // A task has ended, and another one has started.
            (
                &[(1, 0, 90_000), (2, 0, 1000)],
                &[(2, 0, 3000), (3, 0, 500)],
                "1.0",
            ),
            (&[(2, 0, 1000)], &[(2, 0, 3000), (3, 0, 500)], "1.3"),
            // All have ended, and others run.
            (&[(1, 0, 90_000)], &[(2, 0, 100)], "0.0"),
        ] {
            let mut meter = Meter::default();
            assert_eq!(meter.wish(at(0), [JOB]), Some(JOB));
            meter.said(at(100), report(first));
            assert_eq!(meter.cores(JOB), None);
            assert_eq!(meter.memory(JOB).as_deref(), Some("3072 KiB"));
            assert_eq!(meter.wish(at(2000), [JOB]), Some(JOB));
            meter.said(at(2100), report(second));
            assert_eq!(meter.cores(JOB).as_deref(), Some(cores), "{second:?}");
        }
    }

    #[test]
    fn jobs_are_measured_one_after_another_in_rounds() {
        let mut meter = Meter::default();
        let shown = || (1..=3).map(JobId);
        assert_eq!(meter.wish(at(0), []), None);
        for (millis, job) in [(10, 1), (20, 2), (30, 3)] {
            assert_eq!(meter.wish(at(millis), shown()), Some(JobId(job)));
            // Only one waits at a time.
            assert_eq!(meter.wish(at(millis + 5), shown()), None);
            meter.said(at(millis + 10), report(&[]));
        }
        assert_eq!(meter.wish(at(2009), shown()), None);
        assert_eq!(meter.wish(at(2010), shown()), Some(JobId(1)));
        // The nodes are slow: the pause is longer.
        meter.said(at(3000), report(&[]));
        assert_eq!(meter.wish(at(3000), shown()), Some(JobId(2)));
        meter.said(at(3000), report(&[]));
        assert_eq!(meter.wish(at(3000), shown()), Some(JobId(3)));
        meter.said(at(3000), report(&[]));
        assert_eq!(meter.wish(at(7999), shown()), None);
        assert_eq!(meter.wish(at(8000), shown()), Some(JobId(1)));
    }

    #[test]
    fn nothing_old_is_shown() {
        let mut meter = Meter::default();
        meter.wish(at(0), [JOB]);
        meter.said(at(0), report(&[(1, 0, 0)]));
        assert!(meter.memory(JOB).is_some());
        // The job is over.
        meter.wish(at(2000), [JOB]);
        meter.said(at(2000), Err(NotDone::NotRunning(JOB)));
        assert_eq!(meter.memory(JOB), None);
        // A node does not answer.
        meter.wish(at(4000), [JOB]);
        meter.said(at(4000), report(&[(1, 0, 0)]));
        assert_eq!(meter.wish(at(6000), [JOB]), Some(JOB));
        meter.wish(at(33_999), [JOB]);
        assert!(meter.memory(JOB).is_some());
        meter.wish(at(34_000), [JOB]);
        assert_eq!(meter.memory(JOB), None);
        meter.said(at(35_000), report(&[(1, 0, 30_000)]));
        assert_eq!(meter.cores(JOB), None);
        // An answer without a question.
        meter.said(at(35_001), report(&[(1, 0, 0)]));
        assert!(meter.memory(JOB).is_some());
    }
}
