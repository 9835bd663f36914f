//! Checks of the answers to spawn requests.

use base::{ProcId, Rank};
use pmix::{client::Done, value::Status};

use super::super::{Ledger, facts};
use crate::names::nspace;

impl Ledger {
    /// Returns true if a job with files may be refused with this status, or canceled before its launch.
    pub(super) fn explains_files(&self, spawner: ProcId, status: Status) -> bool {
        match status {
            Status::NOT_FOUND | Status::JOB_SYS_OP_FAILED | Status::JOB_INSUFFICIENT_RESOURCES => {
                self.has_troubled_files
            }
            Status::JOB_CANCELED => self.ending.contains(&spawner.job),
            _ => false,
        }
    }

    /// Checks the answer to a spawn request. Returns a description of an error.
    pub(in crate::ledger) fn on_spawn_answered(
        &self,
        proc: ProcId,
        child: usize,
        result: &Result<Done, Status>,
    ) -> Option<String> {
        let job = self.facts.job_of_child(child);
        match result {
            Ok(Done::Spawned(name)) => {
                let Some(job) = job.filter(|job| name.to_string() == nspace(*job)) else {
                    return Some(format!("is told that child {child} is {name}: {job:?}"));
                };
                let size = self.facts.size(job);
                let proc = |rank| ProcId {
                    job,
                    rank: Rank(rank),
                };
                // A rank whose node was lost counts as killed.
                let is_there =
                    |proc: ProcId| self.spawned.contains_key(&proc) || self.is_on_lost_node(proc);
                let missing = (0..size).find(|rank| !is_there(proc(*rank)));
                missing.map(|rank| {
                    format!("is told that child {child} runs, and its rank {rank} does not")
                })
            }
            Err(status) => {
                let failed = job.and_then(|job| {
                    let of_job = |(proc, _): &(&ProcId, _)| proc.job == job;
                    self.failed.iter().find(of_job)
                });
                let expected = failed.map(|(_, failure)| facts::status_of(failure));
                let parent_ends =
                    *status == Status::NOT_AVAILABLE && self.ending.contains(&proc.job);
                let is_canceled = *status == Status::JOB_CANCELED
                    && failed.is_none()
                    && job.is_some_and(|job| self.ending.contains(&job));
                (expected != Some(*status) && !parent_ends && !is_canceled)
                    .then(|| format!("is told that child {child} cannot run: {status}, {failed:?}"))
            }
            result => Some(format!("spawns and is answered {result:?}")),
        }
    }
}
