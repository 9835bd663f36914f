//! `rally wait`, and what it has seen of each job.
//!
//! Slurm forgets a job some time after its end, and each task of an array by itself, while others wait or run. So every end is
//! remembered as soon as it is seen, until all jobs of the command are over.

use std::{collections::BTreeMap, time::Duration};

use base::{JobId, RankSet, Time};
use os::Clock;

use super::{
    Slurm, messages,
    parse::{Job, Part},
    show,
    state::Phase,
};
use crate::{
    args::MessageFormat,
    exit::{self, ExitCode},
    machine::Failure,
    print, say,
};

/// How long `rally wait` waits for a controller that does not answer.
const SILENCE_MAX: Duration = Duration::from_secs(600);
/// The pauses between two questions of `rally wait`: at first, and at most. The controller has many users.
const WAIT_PAUSE: Duration = Duration::from_millis(500);
const WAIT_PAUSE_MAX: Duration = Duration::from_secs(10);

impl Slurm<'_> {
    /// Waits for jobs. The exit code is that of the first one in the order of the command line that has not succeeded.
    pub(super) fn wait(&self, order: &[JobId]) -> Result<u8, Failure> {
        let ends = self.ends(order)?;
        let mut code = exit::SUCCESS;
        for (position, id) in order.iter().enumerate() {
            let is_repeated = order.iter().take(position).any(|before| before == id);
            let Some(end) = ends.get(id).filter(|_| !is_repeated) else {
                continue;
            };
            let this = self.tell_end(end);
            if code == exit::SUCCESS {
                code = this;
            }
        }
        Ok(code)
    }

    /// Says how a job has ended, and returns its exit code.
    fn tell_end(&self, end: &Result<End, Failure>) -> u8 {
        let end = match end {
            Ok(end) => end,
            Err((message, code)) => {
                say(message, self.format);
                return code.code();
            }
        };
        if self.format == MessageFormat::Json {
            print(&show::details(&end.job, self.format), self.format);
        } else if end.job.phase() != Phase::Succeeded {
            say(&messages::not_succeeded(&end.job), self.format);
        }
        if !end.lost.is_empty() {
            say(
                &messages::tasks_vanished(end.job.id, &end.lost).0,
                self.format,
            );
        }
        end.exit_code()
    }

    /// Waits until all these jobs are over, and returns how each has ended. All of them are looked at again and again: Slurm forgets
    /// one that has ended while another one runs.
    fn ends(&self, order: &[JobId]) -> Result<BTreeMap<JobId, Result<End, Failure>>, Failure> {
        let watches = order.iter().map(|id| (*id, Watch::default()));
        let mut watches: BTreeMap<JobId, Watch> = watches.collect();
        let mut ends = BTreeMap::new();
        let mut pause = WAIT_PAUSE;
        let mut silent_since: Option<Time> = None;
        loop {
            match self.look(&mut watches, &mut ends) {
                Ok(()) => silent_since = None,
                Err(silent) => {
                    let has_seen = !ends.is_empty() || watches.values().any(Watch::has_seen);
                    let now = Clock::now();
                    match silent_since {
                        _ if !has_seen => return Err(silent),
                        None => {
                            say(&messages::patient(&silent.0), self.format);
                            silent_since = Some(now);
                        }
                        Some(since) if now.since(since) > SILENCE_MAX => return Err(silent),
                        Some(_) => {}
                    }
                }
            }
            if watches.is_empty() {
                return Ok(ends);
            }
            os::sleep(pause);
            pause = (pause * 5 / 4).min(WAIT_PAUSE_MAX);
        }
    }

    /// Looks at each job once, and moves those that are over.
    ///
    /// # Errors
    ///
    /// Slurm gives no answer. The other jobs are not looked at then.
    fn look(
        &self,
        watches: &mut BTreeMap<JobId, Watch>,
        ends: &mut BTreeMap<JobId, Result<End, Failure>>,
    ) -> Result<(), Failure> {
        let all: Vec<JobId> = watches.keys().copied().collect();
        for id in all {
            let Some(watch) = watches.get_mut(&id) else {
                continue;
            };
            let end = match self.job(id) {
                Ok(job) => watch.see(job).map(Ok),
                Err(silent @ (_, ExitCode::Resources)) => return Err(silent),
                Err((_, ExitCode::Usage)) if watch.has_seen() => {
                    Some(watch.end().ok_or_else(|| messages::vanished(id)))
                }
                Err(failure) => Some(Err(failure)),
            };
            if let Some(end) = end {
                watches.remove(&id);
                ends.insert(id, end);
            }
        }
        Ok(())
    }
}

/// What was seen of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Watch {
    /// The job as Slurm showed it last, with the tasks that have not ended. `None` before the first look.
    last: Option<Job>,
    /// The tasks that have ended, in one part for each way to end.
    ends: Vec<Part>,
    /// All tasks of an array that were ever there.
    tasks: RankSet,
}

/// How a job has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
struct End {
    job: Job,
    /// Tasks that Slurm has forgotten before their end was seen.
    lost: RankSet,
}

impl Watch {
    /// Returns true if Slurm has shown the job at least once.
    const fn has_seen(&self) -> bool {
        self.last.is_some()
    }

    /// Notes what Slurm shows of the job. Returns its end if it is over.
    fn see(&mut self, mut job: Job) -> Option<End> {
        for part in &job.parts {
            // A task that was requeued has not ended.
            self.forget_ends(part.indexes.as_ref());
            if let Some(indexes) = &part.indexes {
                self.tasks.append(indexes);
            }
            if part.phase().is_over() {
                self.note(part.clone());
            }
        }
        job.parts.retain(|part| !part.phase().is_over());
        let is_over = job.parts.is_empty();
        self.last = Some(job);
        if is_over { self.end() } else { None }
    }

    /// Returns the end of a job that Slurm does not show any more. `None` if no end of it was seen.
    fn end(&self) -> Option<End> {
        let last = self.last.as_ref().filter(|_| !self.ends.is_empty())?;
        let mut lost = self.tasks.clone();
        for indexes in self.ends.iter().filter_map(|part| part.indexes.as_ref()) {
            lost = lost.difference(indexes);
        }
        let mut parts = self.ends.clone();
        parts.sort_by_key(Part::first_index);
        let job = Job {
            parts,
            ..last.clone()
        };
        Some(End { job, lost })
    }

    fn forget_ends(&mut self, indexes: Option<&RankSet>) {
        match indexes {
            None => self.ends.clear(),
            Some(indexes) => {
                for ours in self.ends.iter_mut().filter_map(|end| end.indexes.as_mut()) {
                    *ours = ours.difference(indexes);
                }
                let is_empty = |end: &Part| end.indexes.as_ref().is_some_and(RankSet::is_empty);
                self.ends.retain(|end| !is_empty(end));
            }
        }
    }

    /// Adds an end to those of the same kind. The first task stands for all.
    fn note(&mut self, mut part: Part) {
        let way = |part: &Part| {
            let Part { state, reason, .. } = part;
            (state.clone(), reason.clone(), part.exit, part.signal)
        };
        let same = self.ends.iter_mut().find(|end| way(end) == way(&part));
        let Some(same) = same else {
            self.ends.push(part);
            return;
        };
        if let (Some(ours), Some(more)) = (&mut same.indexes, &mut part.indexes) {
            let is_first = more.first() < ours.first();
            ours.append(more);
            if is_first {
                *more = ours.clone();
                *same = part;
            }
        }
    }
}

impl End {
    /// Returns the exit code: that of the first task that has not succeeded, or whose end was not seen.
    fn exit_code(&self) -> u8 {
        let parts = self.job.parts.iter();
        let failed = parts.filter(|part| part.phase() != Phase::Succeeded);
        let first = failed.filter_map(Part::first_index).min();
        match self.lost.first() {
            Some(lost) if first.is_none_or(|first| lost.0 < first) => exit::INTERNAL,
            _ => self.job.exit_code(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns an array whose tasks are in these states, or a job without an array.
    fn job(parts: &[(&str, &str, u8)]) -> Job {
        let part = |(indexes, state, exit): &(&str, &str, u8)| Part {
            job: 17,
            indexes: (!indexes.is_empty()).then(|| indexes.parse().unwrap()),
            state: (*state).to_owned(),
            exit: *exit,
            ..Part::default()
        };
        Job {
            id: JobId(17),
            task: None,
            parts: parts.iter().map(part).collect(),
        }
    }

    /// Shows these looks to a watch, and then that the job is forgotten. Returns the exit code, the failed tasks and the lost ones.
    fn ended(looks: &[&[(&str, &str, u8)]]) -> Option<(u8, String, String)> {
        let mut watch = Watch::default();
        assert!(!watch.has_seen());
        let mut end = None;
        for look in looks {
            assert_eq!(end, None, "the job is over already");
            end = watch.see(job(look));
            assert!(watch.has_seen());
        }
        let end = end.or_else(|| watch.end())?;
        let failed = end.job.failed_indexes().to_string();
        Some((end.exit_code(), failed, end.lost.to_string()))
    }

    #[test]
    fn ends_are_remembered() {
        let (run, done, fail) = ("RUNNING", "COMPLETED", "FAILED");
        let end = |code, failed: &str, lost: &str| Some((code, failed.into(), lost.into()));
        assert_eq!(ended(&[&[("", run, 0)]]), None);
        assert_eq!(ended(&[&[("", run, 0)], &[("", fail, 3)]]), end(3, "", ""));
        // A task that has failed is forgotten while others run.
        let looks: [&[_]; 3] = [
            &[("1", fail, 4), ("2", run, 0), ("3-5", "PENDING", 0)],
            &[("2", done, 0), ("3", run, 0), ("4-5", "PENDING", 0)],
            &[("3", done, 0), ("4", done, 0), ("5", fail, 6)],
        ];
        assert_eq!(ended(&looks), end(4, "1,5", ""));
        // All at once, after all ends were seen.
        let looks: [&[_]; 2] = [
            &[("1", run, 0), ("2", fail, 5)],
            &[("1", done, 0), ("3", run, 0)],
        ];
        assert_eq!(ended(&looks), end(5, "2", "3"));
        // A task that runs again has not failed.
        let looks: [&[_]; 3] = [
            &[("1", fail, 5), ("2", run, 0)],
            &[("1", run, 0), ("2", done, 0)],
            &[("1", done, 0)],
        ];
        assert_eq!(ended(&looks), end(0, "", ""));
        let looks: [&[_]; 2] = [&[("", "NODE_FAIL", 0)], &[("", done, 0)]];
        let mut watch = Watch::default();
        assert!(watch.see(job(looks[0])).is_some());
        assert_eq!(watch.see(job(looks[1])).unwrap().exit_code(), 0);
    }

    #[test]
    fn an_end_that_was_not_seen_counts_as_a_failure() {
        let lost_first: [&[_]; 2] = [
            &[("1", "RUNNING", 0), ("2", "RUNNING", 0)],
            &[("2", "FAILED", 3)],
        ];
        let lost = Some((125, "2".to_owned(), "1".to_owned()));
        assert_eq!(ended(&lost_first), lost);
        let failed_first: [&[_]; 2] = [
            &[("1", "RUNNING", 0), ("2", "RUNNING", 0)],
            &[("1", "FAILED", 3)],
        ];
        let failed = Some((3, "1".to_owned(), "2".to_owned()));
        assert_eq!(ended(&failed_first), failed);
        let only_lost: [&[_]; 2] = [
            &[("1", "RUNNING", 0), ("2", "RUNNING", 0)],
            &[("1", "COMPLETED", 0)],
        ];
        let lost = Some((125, String::new(), "2".to_owned()));
        assert_eq!(ended(&only_lost), lost);
    }

    #[test]
    fn many_ends_of_one_kind_are_one_part() {
        let mut watch = Watch::default();
        for index in (0..1000).rev() {
            let text = index.to_string();
            let (state, exit) = if index % 100 == 7 {
                ("FAILED", 9)
            } else {
                ("COMPLETED", 0)
            };
            watch.see(job(&[(&text, state, exit), ("1000", "RUNNING", 0)]));
        }
        assert_eq!(watch.ends.len(), 2);
        let end = watch.see(job(&[("1000", "COMPLETED", 0)])).unwrap();
        assert_eq!((end.exit_code(), end.lost.len()), (9, 0));
        assert_eq!(end.job.failed_indexes().to_string(), "7-907/100");
    }
}
