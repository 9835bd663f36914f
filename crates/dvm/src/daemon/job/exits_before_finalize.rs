//! Ranks that exit with code 0 between `MPI_Init` and `MPI_Finalize`, as seen through PMI or PMIx.
//!
//! Their exit code indicates success, and nothing contradicts it. But the remaining ranks cannot complete collective
//! operations, and some wait for ever in shared memory ([0014](../../../../../docs/decisions/0014-no-finalize.md)).
//!
//! | other ranks that have initialized and not finalized | response |
//! |---|---|
//! | some, and still some [`NO_FINALIZE_DELAY`] after the last exit of this kind | the job ends, with these ranks as the cause |
//! | none, or the user's policy is to continue | a warning when the job is over |

use std::{collections::BTreeSet, time::Duration};

use base::{ExitStatus, Rank, RankSet, Time};

/// How long other ranks may remain inside after the last exit of this kind. A program in which all ranks exit this way should not
/// be ended before its last rank has exited, and many ranks may need long on a busy node.
pub(super) const NO_FINALIZE_DELAY: Duration = Duration::from_secs(3);

#[derive(Debug, Default)]
pub(super) struct ExitsBeforeFinalize {
    /// Ranks that have initialized, and have neither finalized nor exited.
    inside: BTreeSet<Rank>,
    /// Ranks that have exited from inside with code 0 and were not yet reported.
    left: RankSet,
    /// True if ranks on other nodes have exited in this way.
    has_left_elsewhere: bool,
    until: Option<Time>,
}

impl ExitsBeforeFinalize {
    pub(super) fn on_begun(&mut self, now: Time, rank: Rank) {
        self.inside.insert(rank);
        self.reconsider(now);
    }

    pub(super) fn on_finished(&mut self, now: Time, rank: Rank) {
        self.inside.remove(&rank);
        self.reconsider(now);
    }

    /// Records the end of a rank. Returns true if it has exited from inside with code 0.
    pub(super) fn on_ended(&mut self, now: Time, rank: Rank, status: ExitStatus) -> bool {
        let has_left = self.inside.remove(&rank) && status.is_success();
        if has_left {
            self.left.insert(rank);
            self.until = None;
        }
        self.reconsider(now);
        has_left
    }

    /// Records that ranks on other nodes have exited from inside with code 0.
    pub(super) fn on_left_elsewhere(&mut self, now: Time) {
        self.has_left_elsewhere = true;
        self.until = None;
        self.reconsider(now);
    }

    /// Stops tracking, because the job is being ended: from now on, how ranks exit means nothing.
    pub(super) fn on_ending(&mut self) {
        self.inside.clear();
        self.until = None;
    }

    fn reconsider(&mut self, now: Time) {
        let has_left = self.has_left_elsewhere || !self.left.is_empty();
        if self.inside.is_empty() || !has_left {
            self.until = None;
        } else if self.until.is_none() {
            self.until = Some(now + NO_FINALIZE_DELAY);
        }
    }

    /// Returns the time at which [`Self::overdue`] is due.
    pub(super) const fn deadline(&self) -> Option<Time> {
        self.until
    }

    /// Returns true, once, when other ranks have been inside for too long after these ranks exited.
    pub(super) fn overdue(&mut self, now: Time) -> bool {
        self.until.take_if(|until| *until <= now).is_some()
    }

    /// Returns the ranks that exited from inside and were not yet reported.
    pub(super) fn take(&mut self) -> Option<RankSet> {
        let left = std::mem::take(&mut self.left);
        (!left.is_empty()).then_some(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WELL: ExitStatus = ExitStatus::Exited(0);

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    fn inside(ranks: u32) -> ExitsBeforeFinalize {
        let mut exits = ExitsBeforeFinalize::default();
        for rank in 0..ranks {
            exits.on_begun(at(0), Rank(rank));
        }
        exits
    }

    #[test]
    fn who_leaves_others_alone_ends_the_job_after_some_time() {
        let mut exits = inside(3);
        exits.on_ended(at(1), Rank(1), WELL);
        assert_eq!(exits.deadline(), Some(at(4)));
        assert!(!exits.overdue(at(3)));
        assert!(exits.overdue(at(4)));
        assert!(!exits.overdue(at(5)));
        assert_eq!(exits.take(), Some(RankSet::single(Rank(1))));
        assert_eq!(exits.take(), None);
    }

    #[test]
    fn ranks_that_leave_one_after_another_have_time() {
        let mut exits = inside(4);
        exits.on_ended(at(1), Rank(1), WELL);
        exits.on_ended(at(3), Rank(2), WELL);
        assert_eq!(exits.deadline(), Some(at(6)));
        exits.on_left_elsewhere(at(5));
        assert_eq!(exits.deadline(), Some(at(8)));
        // Others do not extend it.
        exits.on_ended(at(7), Rank(3), ExitStatus::Exited(1));
        exits.on_finished(at(7), Rank(3));
        assert!(exits.overdue(at(8)));
    }

    #[test]
    fn where_all_leave_so_it_is_told_and_nothing_ends() {
        let mut exits = inside(2);
        exits.on_ended(at(1), Rank(0), WELL);
        exits.on_ended(at(2), Rank(1), WELL);
        assert_eq!(exits.deadline(), None);
        assert_eq!(exits.take(), Some(RankSet::range(0..2)));
    }

    #[test]
    fn who_finishes_fails_or_is_ended_is_no_case_of_it() {
        let mut exits = inside(4);
        exits.on_finished(at(1), Rank(0));
        exits.on_ended(at(1), Rank(0), WELL);
        exits.on_ended(at(1), Rank(1), ExitStatus::Exited(1));
        exits.on_ending();
        exits.on_ended(at(1), Rank(2), WELL);
        exits.on_ended(at(1), Rank(7), WELL);
        assert_eq!(exits.deadline(), None);
        assert_eq!(exits.take(), None);
    }
}
