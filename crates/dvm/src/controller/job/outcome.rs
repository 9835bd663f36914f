//! The end of a job: when it is complete, and its outcome.

use base::RankSet;

use super::{Job, Phase};
use crate::proto::{Cause, Note, Outcome, ToFront};

impl Job {
    /// Returns true if the job is complete: all its ranks are settled and all its nodes are clean. No further message about
    /// it will come.
    pub(in crate::controller) fn is_settled(&self) -> bool {
        match self.phase {
            Phase::Waiting | Phase::Over => false,
            // Ended before it was launched, so there are no processes to wait for.
            Phase::Ending if self.shares.is_empty() => true,
            Phase::Launching | Phase::Running | Phase::Ending => {
                self.unclean == 0 && self.has_no_rank_left()
            }
        }
    }

    /// Returns true if every rank has ended, was never started, or cannot be ended.
    pub(in crate::controller) fn has_no_rank_left(&self) -> bool {
        // All ranks are one run. To count the members of many runs after each report would take time in their square.
        self.settled.runs() <= 1 && self.settled.len() == self.size as usize
    }

    /// Marks the job as over, and returns its outcome.
    pub(in crate::controller) fn finish(&mut self) -> Outcome {
        self.phase = Phase::Over;
        let leaky = std::mem::take(&mut self.leaky);
        if !leaky.is_empty() {
            self.tell(ToFront::Note(Note::Leaky(leaky)));
        }
        let cause = match self.cause.take() {
            Some(Cause::NotStarted(_)) => {
                Cause::NotStarted(std::mem::take(&mut self.failures).into_iter().collect())
            }
            Some(cause) => cause,
            None => Cause::Success,
        };
        Outcome {
            cause,
            size: self.size,
            not_started: RankSet::range(0..self.size).difference(&self.started),
            failed_on: std::mem::take(&mut self.failed_on).into_iter().collect(),
            ended: std::mem::take(&mut self.ended).into_iter().collect(),
            ended_by_us: std::mem::take(&mut self.ended_by_us),
            left: std::mem::take(&mut self.left),
        }
    }
}
