//! Orders about running jobs: signals, pauses, and the question what they use.
//!
//! A pause stops the procs (SIGSTOP). They keep their slots, and their time limit goes on: the queue has promised their slots to others
//! for the time after it. A task that is ended while it is paused goes on, so that it can handle SIGTERM.

use base::{JobId, Rank, RankSet, Signal};

use super::{
    Machine, MachineOutput, Stage, Way,
    talk::{NotDone, Reply},
};
use crate::proto::FrontId;

impl Machine {
    /// Sends a signal to what runs of these tasks.
    pub(super) fn signal(
        &mut self,
        id: JobId,
        tasks: Option<&RankSet>,
        signal: Signal,
    ) -> Result<Reply, NotDone> {
        let runs = self.running(id, tasks)?;
        for (index, run) in runs {
            self.note_pause(id, index, signal);
            self.outputs.push_back(MachineOutput::Signal(run, signal));
        }
        Ok(Reply::Done)
    }

    /// Notes that a task is stopped by this signal, or goes on.
    fn note_pause(&mut self, id: JobId, index: u32, signal: Signal) {
        let Some(entry) = self.jobs.get_mut(&id) else {
            return;
        };
        let paused = &mut entry.record.paused;
        match signal {
            Signal::STOP => paused.insert(Rank(index)),
            Signal::CONT => *paused = paused.difference(&RankSet::single(Rank(index))),
            _ => return,
        }
        self.books.touch(id);
    }

    /// Asks what these tasks use. The controller answers.
    pub(super) fn measure(
        &mut self,
        front: FrontId,
        id: JobId,
        tasks: Option<&RankSet>,
    ) -> Result<Option<Reply>, NotDone> {
        let runs = self.running(id, tasks)?;
        self.outputs
            .push_back(MachineOutput::Measure { front, runs });
        Ok(None)
    }

    /// Returns the runs of these tasks, with their indexes.
    fn running(&self, id: JobId, tasks: Option<&RankSet>) -> Result<Vec<(u32, JobId)>, NotDone> {
        let entry = self.jobs.get(&id).ok_or_else(|| self.missing(id))?;
        if entry.record.way == Way::Allocation {
            return Err(NotDone::IsAllocation(id));
        }
        let runs = entry.runs.iter().filter_map(|(index, stage)| match stage {
            Stage::Runs(run) => Some((index.unwrap_or(0), *run)),
            Stage::Storing(_) | Stage::Ordered | Stage::Revoked | Stage::Held => None,
        });
        let is_meant = |index| tasks.is_none_or(|tasks| tasks.contains(Rank(index)));
        let runs: Vec<_> = runs.filter(|(index, _)| is_meant(*index)).collect();
        if runs.is_empty() {
            return Err(NotDone::NotRunning(id));
        }
        Ok(runs)
    }
}
