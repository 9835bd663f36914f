//! The pids of a job's ranks on all nodes, for the front and for processes that query the process table.

use std::collections::BTreeMap;

use base::{ExitStatus, Rank};
use pmix::value::ProcState;

use super::Job;
use crate::{
    planted::{self, Bug},
    proto::{Started, TableRow},
};

/// Ranks that have been started, with their pids, by host and program. A rank stays in it after its end.
#[derive(Debug, Default)]
pub(in crate::controller) struct Table {
    groups: Vec<(String, Started)>,
}

impl Table {
    pub(super) fn add(&mut self, host: &str, group: Started) {
        self.groups.push((host.to_owned(), group));
    }

    /// Returns the table for a front, in the order of the ranks.
    pub(in crate::controller) fn rows(&self) -> Vec<TableRow> {
        let rows = self.groups.iter().flat_map(|(host, group)| {
            group.pids.iter().map(|(rank, pid)| TableRow {
                rank: *rank,
                host: host.clone(),
                executable: group.executable.clone(),
                pid: *pid,
            })
        });
        // The number of rows is known, and each has another rank: neither spare room nor a second copy is needed.
        let count = self.groups.iter().map(|(_, group)| group.pids.len()).sum();
        let mut sorted = Vec::with_capacity(count);
        sorted.extend(rows);
        sorted.sort_unstable_by_key(|row: &TableRow| row.rank);
        sorted
    }

    fn pids(&self) -> BTreeMap<Rank, u32> {
        let pids = self.groups.iter().flat_map(|(_, group)| &group.pids);
        pids.filter_map(|(rank, pid)| Some((*rank, u32::try_from(*pid).ok()?)))
            .collect()
    }
}

impl Job {
    /// Returns every rank with its pid and its state in the process table. The pid is 0 if the rank has not started. The
    /// controller does not know in which phase of PMIx a rank is or was.
    pub(in crate::controller) fn procs(&self) -> impl Iterator<Item = (Rank, u32, ProcState)> {
        let pids = self.table.pids();
        let is_shown = |rank: &Rank| {
            !planted::is(Bug::EndedNotInTable)
                || !self.ended.values().any(|ranks| ranks.contains(*rank))
        };
        (0..self.size).map(Rank).filter(is_shown).map(move |rank| {
            let pid = pids.get(&rank).copied().unwrap_or(0);
            (rank, pid, self.state_of(rank))
        })
    }

    fn state_of(&self, rank: Rank) -> ProcState {
        let ended = self.ended.iter().find(|(_, ranks)| ranks.contains(rank));
        match ended {
            Some((ExitStatus::Exited(_), _)) => ProcState::TERMINATED,
            Some((ExitStatus::Signaled { .. } | ExitStatus::OutOfMemory { .. }, _)) => {
                ProcState::ABORTED_BY_SIG
            }
            None if self.started.contains(rank) => ProcState::RUNNING,
            None if self.settled.contains(rank) => ProcState::FAILED_TO_START,
            None => ProcState::PREPPED,
        }
    }
}
