//! Who takes part in PMI, and who has ended without having ever begun.
//!
//! A rank that ends well without a word to PMI is no failure: it may be no MPI program. But where others have begun, they wait
//! for it: all ranks are in `MPI_COMM_WORLD`. Most libraries wait in a fence, and that is failed. MPICH 5 waits in memory that
//! ranks share, where nobody can tell it. So the job is ended when this has lasted for [`ABSENCE_DELAY`].

use std::{collections::BTreeSet, time::Duration};

use base::{Rank, RankSet, Time};

/// How long ranks may be inside of PMI when another one has ended outside: long enough for libraries to fail by
/// themselves, who know more about it.
pub(super) const ABSENCE_DELAY: Duration = Duration::from_secs(3);

#[derive(Debug, Default)]
pub(super) struct Attendance {
    /// Who has begun at some time.
    came: BTreeSet<Rank>,
    /// Who has begun and has not finished.
    inside: BTreeSet<Rank>,
    /// Who has ended without having begun.
    absent: RankSet,
    /// When others have waited for them for too long.
    until: Option<Time>,
}

impl Attendance {
    pub(super) fn on_begun(&mut self, now: Time, rank: Rank) {
        self.came.insert(rank);
        self.inside.insert(rank);
        self.reconsider(now);
    }

    /// A rank has finished, or its connection is gone.
    pub(super) fn on_left(&mut self, now: Time, rank: Rank) {
        self.inside.remove(&rank);
        self.reconsider(now);
    }

    /// A rank has ended with code 0.
    pub(super) fn on_ended_well(&mut self, now: Time, rank: Rank) {
        if !self.came.contains(&rank) {
            self.absent.insert(rank);
        }
        self.reconsider(now);
    }

    fn reconsider(&mut self, now: Time) {
        if self.inside.is_empty() || self.absent.is_empty() {
            self.until = None;
        } else if self.until.is_none() {
            self.until = Some(now + ABSENCE_DELAY);
        }
    }

    /// When [`Self::overdue`] is to be asked.
    pub(super) const fn deadline(&self) -> Option<Time> {
        self.until
    }

    /// For whom others have waited too long. Said once.
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

    fn overdue(attendance: &mut Attendance) -> Option<RankSet> {
        let almost = ZERO + (ABSENCE_DELAY - Duration::from_nanos(1));
        assert_eq!(attendance.overdue(almost), None);
        attendance.overdue(ZERO + ABSENCE_DELAY)
    }

    #[test]
    fn who_ended_outside_is_missed_by_those_inside() {
        let mut attendance = Attendance::default();
        attendance.on_ended_well(ZERO, Rank(1));
        assert_eq!(attendance.deadline(), None);
        attendance.on_begun(ZERO, Rank(0));
        assert_eq!(attendance.deadline(), Some(ZERO + ABSENCE_DELAY));
        assert_eq!(overdue(&mut attendance), Some(RankSet::single(Rank(1))));
        // Once.
        assert_eq!(attendance.overdue(ZERO + 2 * ABSENCE_DELAY), None);
    }

    #[test]
    fn nobody_is_missed_where_all_came_or_none_waits() {
        let mut attendance = Attendance::default();
        for rank in [Rank(0), Rank(1)] {
            attendance.on_begun(ZERO, rank);
        }
        // It came; that it left is no matter of this.
        attendance.on_left(ZERO, Rank(1));
        attendance.on_ended_well(ZERO, Rank(1));
        assert_eq!(overdue(&mut attendance), None);
        // The last one leaves in time.
        attendance.on_ended_well(ZERO, Rank(2));
        attendance.on_left(ZERO, Rank(0));
        assert_eq!(overdue(&mut attendance), None);
    }
}
