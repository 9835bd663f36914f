//! Ranks that use PMI, and ranks that have exited without ever initializing it.
//!
//! A rank that exits with code 0 without using PMI has not failed: it may not be an MPI program. But ranks that have
//! initialized PMI wait for it, because all ranks are in `MPI_COMM_WORLD`. Most libraries wait in a fence, which we
//! fail. MPICH 5 waits in shared memory, where we cannot notify it. We therefore end the job once this situation has
//! lasted for [`ABSENCE_DELAY`].

use std::{collections::BTreeSet, time::Duration};

use base::{Rank, RankSet, Time};

/// How long ranks may be inside PMI after another rank has exited outside. Long enough for libraries to fail by
/// themselves, with more precise errors.
pub(super) const ABSENCE_DELAY: Duration = Duration::from_secs(3);

#[derive(Debug, Default)]
pub(super) struct PmiParticipation {
    /// Ranks that have ever initialized PMI.
    came: BTreeSet<Rank>,
    /// Ranks that have initialized PMI and neither finalized it nor lost their connection.
    inside: BTreeSet<Rank>,
    /// Ranks that have exited with code 0 without initializing PMI.
    absent: RankSet,
    /// True if ranks on other nodes have exited in this way.
    is_absent_elsewhere: bool,
    /// Time at which others will have waited too long for the absent ranks; `None` if no rank waits.
    until: Option<Time>,
}

impl PmiParticipation {
    pub(super) fn on_begun(&mut self, now: Time, rank: Rank) {
        self.came.insert(rank);
        self.inside.insert(rank);
        self.reconsider(now);
    }

    /// Records that a rank has finalized, or that its connection is gone.
    pub(super) fn on_left(&mut self, now: Time, rank: Rank) {
        self.inside.remove(&rank);
        self.reconsider(now);
    }

    /// Records that a rank has exited with code 0. Returns true if it has never initialized PMI.
    pub(super) fn on_ended_well(&mut self, now: Time, rank: Rank) -> bool {
        let is_absent = !self.came.contains(&rank);
        if is_absent {
            self.absent.insert(rank);
        }
        self.reconsider(now);
        is_absent
    }

    /// Records that ranks on other nodes have exited with code 0 without initializing PMI.
    pub(super) fn on_absent_elsewhere(&mut self, now: Time) {
        self.is_absent_elsewhere = true;
        self.reconsider(now);
    }

    fn reconsider(&mut self, now: Time) {
        let is_absent = self.is_absent_elsewhere || !self.absent.is_empty();
        if self.inside.is_empty() || !is_absent {
            self.until = None;
        } else if self.until.is_none() {
            self.until = Some(now + ABSENCE_DELAY);
        }
    }

    /// Returns the time at which [`Self::overdue`] is due.
    pub(super) const fn deadline(&self) -> Option<Time> {
        self.until
    }

    /// Returns the ranks of this node for which others have waited too long; at most once for each wait. They are none if
    /// all such ranks are on other nodes.
    pub(super) fn overdue(&mut self, now: Time) -> Option<RankSet> {
        self.until.take_if(|until| *until <= now)?;
        self.inside.clear();
        Some(self.absent.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZERO: Time = Time::ZERO;

    fn overdue(participation: &mut PmiParticipation) -> Option<RankSet> {
        let almost = ZERO + (ABSENCE_DELAY - Duration::from_nanos(1));
        assert_eq!(participation.overdue(almost), None);
        participation.overdue(ZERO + ABSENCE_DELAY)
    }

    #[test]
    fn who_ended_outside_is_missed_by_those_inside() {
        let mut participation = PmiParticipation::default();
        participation.on_ended_well(ZERO, Rank(1));
        assert_eq!(participation.deadline(), None);
        participation.on_begun(ZERO, Rank(0));
        assert_eq!(participation.deadline(), Some(ZERO + ABSENCE_DELAY));
        assert_eq!(overdue(&mut participation), Some(RankSet::single(Rank(1))));
        // The absent ranks are returned only once.
        assert_eq!(participation.overdue(ZERO + 2 * ABSENCE_DELAY), None);
    }

    #[test]
    fn nobody_is_missed_where_all_came_or_none_waits() {
        let mut participation = PmiParticipation::default();
        for rank in [Rank(0), Rank(1)] {
            participation.on_begun(ZERO, rank);
        }
        // Rank 1 did initialize PMI; its finalizing does not matter here.
        participation.on_left(ZERO, Rank(1));
        participation.on_ended_well(ZERO, Rank(1));
        assert_eq!(overdue(&mut participation), None);
        // The last rank inside PMI finalizes before the deadline.
        participation.on_ended_well(ZERO, Rank(2));
        participation.on_left(ZERO, Rank(0));
        assert_eq!(overdue(&mut participation), None);
    }
}
