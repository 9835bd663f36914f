//! The processes of a node when a sample begins: which of them are peers of the ranks, and which are sampled.

use std::collections::{BTreeMap, BTreeSet};

use base::Rank;

use super::kernel::Process;
use crate::{peers::LocalPeers, proto::Proc, reply::MAX_ALL_CHILDREN};

/// Maximum number of descendants of one rank that are sampled.
pub const MAX_CHILDREN: usize = 64;
/// The live processes of a node.
#[derive(Debug)]
pub(super) struct Around {
    /// Every process that was listed. A pid that is looked up again later may belong to another process.
    processes: BTreeMap<i32, Process>,
    /// The ranks that are alive. An exited rank has no peers, because its pid may be that of another process.
    ranks: BTreeMap<Rank, i32>,
    /// The peers of these ranks; the neighbors come with the owners.
    peers: LocalPeers,
    /// Descendants of other launchers, which are neighbors if the user of a rank owns them.
    of_others: BTreeSet<i32>,
}

impl Around {
    /// Classifies all processes of a node. `own` is the pid of the agent.
    pub(super) fn new(all: Vec<Process>, procs: &BTreeMap<Rank, Proc>, own: i32) -> Self {
        let living = all.into_iter();
        let living = living.filter(|process| !matches!(process.state, 'Z' | 'X'));
        let processes: BTreeMap<i32, Process> =
            living.map(|process| (process.pid, process)).collect();
        let is_there = |proc: &Proc| {
            let process = processes.get(&proc.pid);
            process.is_some_and(|process| process.started == proc.started)
        };
        let ranks = procs.iter();
        let ranks = ranks.filter(|(_, proc)| is_there(proc));
        let ranks = ranks.map(|(&rank, proc)| (rank, proc.pid)).collect();
        let (peers, of_others) = LocalPeers::of(&processes, &ranks, own);
        Self {
            processes,
            ranks,
            peers,
            of_others,
        }
    }

    /// Returns the pids of the processes whose owners decide who is a neighbor. They are few: each costs a step of the host.
    pub(super) fn owners_to_read(&self) -> Vec<i32> {
        if self.of_others.is_empty() {
            return Vec::new();
        }
        let ranks = self.ranks.values();
        let pids: BTreeSet<i32> = self.of_others.iter().chain(ranks).copied().collect();
        pids.into_iter().collect()
    }

    /// Adds the neighbors, from the owners of the processes that [`Self::owners_to_read`] returned.
    pub(super) fn add_neighbors(&mut self, owners: &BTreeMap<i32, u32>) {
        let users = self.ranks.values().filter_map(|pid| owners.get(pid));
        let users: BTreeSet<u32> = users.copied().collect();
        for pid in &self.of_others {
            let is_neighbor = owners.get(pid).is_some_and(|user| users.contains(user));
            if let Some(process) = self.processes.get(pid).filter(|_| is_neighbor) {
                self.peers.neighbors.add(process);
            }
        }
    }

    /// Returns the descendants of ranks to sample, and the number of those left out.
    pub(super) fn children(&self) -> (Vec<(Rank, Process)>, usize) {
        let below = self.peers.below.iter();
        let all: usize = below.clone().map(|(_, group)| group.pids.len()).sum();
        let below = below.flat_map(|(&rank, group)| {
            let pids = group.pids.iter().take(MAX_CHILDREN);
            pids.map(move |pid| (rank, pid))
        });
        let found = below.filter_map(|(rank, pid)| Some((rank, self.processes.get(pid)?.clone())));
        let found: Vec<_> = found.take(MAX_ALL_CHILDREN).collect();
        let left_out = all.saturating_sub(found.len());
        (found, left_out)
    }

    /// Returns the peers of the ranks.
    pub(super) fn into_peers(self) -> LocalPeers {
        self.peers
    }
}
