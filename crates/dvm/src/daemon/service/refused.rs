//! Counts of connections to the PMIx port that we refused. A client may connect a thousand times a second, and a user
//! should not get a line for each refusal.
//!
//! | the refused client is | when it is reported |
//! |---|---|
//! | not a rank of a job on this node | once, when the node's last job is over |
//! | a rank | [`RANK_DELAY`] after the first refusal, together with other ranks of the job; later refusals when the job is over |

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use base::{JobId, NodeId, Rank, RankSet, Time};
use pmix::server::Refusal;

use crate::{
    planted::{self, Bug},
    proto::{Note, Refused},
};

/// How long the first refusal of a job's rank waits for those of other ranks, which often fail in the same way.
const RANK_DELAY: Duration = Duration::from_secs(1);
/// Maximum number of distinct reasons in a report. Refusals for further reasons are only counted.
const REASONS_MAX: usize = 4;

/// Refused connections that are still to be reported.
#[derive(Debug, Default)]
struct Tally {
    ranks: BTreeSet<Rank>,
    count: u64,
    reasons: Vec<(String, u64)>,
}

/// All refused connections of a node.
#[derive(Debug, Default)]
pub(super) struct RefusedConnections {
    strangers: Tally,
    by_job: BTreeMap<JobId, Tally>,
    /// When to report the job's entry in `by_job`; no entry if there is no refusal or it was already reported.
    due: BTreeMap<JobId, Time>,
    /// Jobs that have had a report before their end.
    told: BTreeSet<JobId>,
}

impl Tally {
    fn add(&mut self, rank: Option<Rank>, why: &Refusal) {
        self.count += 1;
        self.ranks.extend(rank);
        let why = why.to_string();
        if let Some((_, count)) = self.reasons.iter_mut().find(|(reason, _)| *reason == why) {
            *count += 1;
        } else if self.reasons.len() < REASONS_MAX {
            self.reasons.push((why, 1));
        }
    }

    fn note(self, node: NodeId) -> Option<Note> {
        let ranks: RankSet = self.ranks.into_iter().collect();
        (self.count > 0).then_some(Note::Refused(Refused {
            node,
            ranks: (!ranks.is_empty()).then_some(ranks),
            count: self.count,
            reasons: self.reasons,
        }))
    }
}

impl RefusedConnections {
    pub(super) fn stranger(&mut self, why: &Refusal) {
        if planted::is(Bug::RefusedNotCounted) && *why == Refusal::Tool {
            return;
        }
        self.strangers.add(None, why);
    }

    pub(super) fn rank(&mut self, now: Time, job: JobId, rank: Rank, why: &Refusal) {
        self.by_job.entry(job).or_default().add(Some(rank), why);
        if !self.told.contains(&job) {
            self.due.entry(job).or_insert(now + RANK_DELAY);
        }
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        self.due.values().min().copied()
    }

    /// Returns the reports that are due.
    pub(super) fn due(&mut self, now: Time, node: NodeId) -> Vec<(JobId, Note)> {
        let due = self.due.extract_if(.., |_, at| *at <= now);
        let jobs: Vec<JobId> = due.map(|(job, _)| job).collect();
        self.told.extend(&jobs);
        let tallies = jobs
            .into_iter()
            .filter_map(|job| Some((job, self.by_job.remove(&job)?)));
        tallies
            .filter_map(|(job, tally)| Some((job, tally.note(node)?)))
            .collect()
    }

    /// Returns the final report about a job that is over; `None` if there is nothing to report.
    pub(super) fn of_job(&mut self, job: JobId, node: NodeId) -> Option<Note> {
        self.due.remove(&job);
        self.told.remove(&job);
        self.by_job.remove(&job)?.note(node)
    }

    /// Returns the report about clients that are no ranks, for the time when the node's last job is over.
    pub(super) fn of_strangers(&mut self, node: NodeId) -> Option<Note> {
        std::mem::take(&mut self.strangers).note(node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId(0);
    const JOB: JobId = JobId(1);

    fn foreign(user: u32) -> Refusal {
        Refusal::WrongOwner {
            expected: 1000,
            actual: user,
        }
    }

    fn report(note: Option<Note>) -> Refused {
        match note {
            Some(Note::Refused(refused)) => refused,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn strangers_are_counted_and_told_once() {
        let mut refused = RefusedConnections::default();
        assert_eq!(refused.of_strangers(NODE), None);
        for user in 0..100_000 {
            refused.stranger(&foreign(user % 10));
        }
        assert_eq!(refused.deadline(), None);
        let told = report(refused.of_strangers(NODE));
        assert_eq!((told.count, told.ranks), (100_000, None));
        assert_eq!(told.reasons.len(), REASONS_MAX);
        assert!(told.reasons.iter().all(|(_, count)| *count == 10_000));
        assert_eq!(refused.of_strangers(NODE), None);
    }

    #[test]
    fn ranks_that_fail_alike_are_told_together_and_later_ones_at_the_end() {
        let mut refused = RefusedConnections::default();
        let at = |seconds| Time::ZERO + Duration::from_secs(seconds);
        for rank in 0..3 {
            refused.rank(at(5), JOB, Rank(rank), &Refusal::Tool);
        }
        assert_eq!(refused.deadline(), Some(at(6)));
        assert_eq!(refused.due(at(5), NODE), []);
        let mut due = refused.due(at(6), NODE);
        let told = report(due.pop().map(|(_, note)| note));
        assert_eq!((told.count, told.ranks), (3, Some(RankSet::range(0..3))));
        for _ in 0..50 {
            refused.rank(at(7), JOB, Rank(1), &Refusal::Tool);
        }
        assert_eq!(refused.deadline(), None);
        assert_eq!(report(refused.of_job(JOB, NODE)).count, 50);
        assert_eq!(refused.of_job(JOB, NODE), None);
    }
}
