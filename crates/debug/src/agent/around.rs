//! The processes beside the ranks, at one moment: who of them matters, and who is looked at.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
};

use base::Rank;

use super::kernel::Process;
use crate::{
    peers::{self, LocalPeers},
    proto::Proc,
};

/// Processes below one rank that are looked at.
pub const MAX_CHILDREN: usize = 64;
/// Processes below all ranks of a node that are looked at.
pub const MAX_ALL_CHILDREN: usize = 1024;

/// Who lives at one moment.
#[derive(Debug)]
pub(super) struct Around {
    /// All of them: who has one of their numbers later may be another.
    processes: BTreeMap<i32, Process>,
    listed: Vec<peers::Process>,
    /// The ranks that are there. Those that have ended have no peers: their numbers were used again.
    ranks: BTreeMap<Rank, i32>,
    /// The agent's own process.
    own: i32,
}

impl Around {
    /// Of all processes those that live, and of the ranks those that are among them.
    pub(super) fn new(all: Vec<Process>, procs: &BTreeMap<Rank, Proc>, own: i32) -> Self {
        let living = all.into_iter();
        let living = living.filter(|process| !matches!(process.state, 'Z' | 'X'));
        let processes: BTreeMap<i32, Process> =
            living.map(|process| (process.pid, process)).collect();
        let listed = processes.values();
        let listed = listed.map(|process| peers::Process {
            pid: process.pid,
            parent: process.parent,
            name: process.name.clone(),
            cpu: process.cpu,
        });
        let listed = listed.collect();
        let is_there = |proc: &Proc| {
            let process = processes.get(&proc.pid);
            process.is_some_and(|process| process.started == proc.started)
        };
        let ranks = procs.iter();
        let ranks = ranks.filter(|(_, proc)| is_there(proc));
        let ranks = ranks.map(|(&rank, proc)| (rank, proc.pid)).collect();
        Self {
            processes,
            listed,
            ranks,
            own,
        }
    }

    /// Processes whose users must be known to tell who matters. They are few: each costs a step of the host.
    pub(super) fn unowned(&self) -> Vec<i32> {
        let asked = RefCell::new(BTreeSet::new());
        // Only where a process has an owner, those of the ranks are asked for.
        let owner = |pid| {
            asked.borrow_mut().insert(pid);
            Some(0)
        };
        let _ = LocalPeers::of(&self.listed, &self.ranks, self.own, owner);
        asked.into_inner().into_iter().collect()
    }

    /// Who matters.
    pub(super) fn peers(&self, owners: &BTreeMap<i32, u32>) -> LocalPeers {
        let owner = |pid| owners.get(&pid).copied();
        LocalPeers::of(&self.listed, &self.ranks, self.own, owner)
    }

    /// The processes below ranks, as far as they are looked at, and how many more there are.
    pub(super) fn children(&self, peers: &LocalPeers) -> (Vec<(Rank, Process)>, usize) {
        let all: usize = peers.below.values().map(|group| group.pids.len()).sum();
        let below = peers.below.iter();
        let below = below.flat_map(|(&rank, group)| {
            let pids = group.pids.iter().take(MAX_CHILDREN);
            pids.map(move |pid| (rank, pid))
        });
        let found = below.filter_map(|(rank, pid)| Some((rank, self.processes.get(pid)?.clone())));
        let found: Vec<_> = found.take(MAX_ALL_CHILDREN).collect();
        let left_out = all.saturating_sub(found.len());
        (found, left_out)
    }
}
