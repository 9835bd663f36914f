//! Checks of the jobs that tools spawn or control: the answers to spawn requests, and what becomes of held ranks when a tool is gone.

use std::time::Duration;

use base::{JobId, ProcId, Time};
use pmix::{client::Done, value::Status};

use super::Ledger;
use crate::names::called;

/// Time in which a rank goes on or ends that a tool has held which is gone, in addition to the delays of the run: its job may have to be ended,
/// which takes its grace.
const FREED_MAX: Duration = Duration::from_secs(10);

impl Ledger {
    /// Notes whether the controller has a job to which what a tool spawns can belong.
    pub(crate) fn set_can_spawn(&mut self, now: Time, can_spawn: bool) {
        self.can_spawn_since = can_spawn.then(|| self.can_spawn_since.unwrap_or(now));
    }

    /// Checks the answer to a tool that has asked at this time to spawn a job. Returns a description of an error.
    pub(crate) fn on_tool_spawn_answered(
        &self,
        tool: ProcId,
        child: usize,
        asked: Time,
        result: &Result<Done, Status>,
    ) -> Option<String> {
        let could = self.can_spawn_since.is_some_and(|since| since <= asked);
        let is_unlaunched = self.facts.job_of_child(child).is_none();
        match result {
            // The job of the front has not been there all the time.
            Err(Status::NOT_AVAILABLE | Status::JOB_CANCELED) if !could && is_unlaunched => None,
            Err(Status::JOB_FAILED_TO_MAP) if !self.lost_nodes.is_empty() => None,
            result => self.on_spawn_answered(tool, child, result),
        }
    }

    /// Returns the tool that has spawned a job, or that controls it.
    pub(crate) fn tool_of(&self, job: JobId) -> Option<JobId> {
        let spawner = self.facts.parent_of(job).filter(|by| self.is_tool(*by));
        spawner.or_else(|| self.facts.controller_of(job))
    }

    /// Returns the tool that has to release the ranks of a job: the one that has spawned it, or the one whose directives hold them.
    fn tool_of_held(&self, job: JobId) -> Option<JobId> {
        let is_of_user = self.facts.controller_of(job).is_some() && !self.directives_hold;
        let is_held = self.facts.is_held(job) && !is_of_user;
        self.tool_of(job).filter(|_| is_held)
    }

    /// Returns a rank that has stayed held although its tool was gone.
    pub(crate) fn held_for_nobody(&self) -> Option<String> {
        let held = self.spawned_at.iter().filter_map(|(proc, at)| {
            let gone = self.tools_left.get(&self.tool_of_held(proc.job)?)?;
            let at = self.trapped.get(proc).unwrap_or(at);
            Some((*proc, *gone.max(at)))
        });
        let mut held = held.filter(|(proc, _)| !self.lost.contains(proc));
        held.find_map(|(proc, since)| {
            let freed = [self.continued.get(&proc), self.died.get(&proc)];
            let freed = freed.into_iter().flatten().min();
            let is_late = freed.is_none_or(|freed| *freed > since + self.slack + FREED_MAX);
            is_late.then(|| {
                format!(
                    "{} was held until {freed:?}, and its tool is gone since {since}",
                    called(proc)
                )
            })
        })
    }
}
