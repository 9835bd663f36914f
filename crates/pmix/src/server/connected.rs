//! Sets of connected processes (PMIx_Connect): while connected, each member gets an event about the end of another.

use std::collections::BTreeSet;

use super::{Server, member::Member};
use crate::value::Proc;

/// Sets of connected processes that a server keeps.
pub const MAX_CONNECTED_SETS: usize = 16_384;

/// Sets of members that have connected and not yet disconnected.
#[derive(Debug, Default)]
pub(super) struct ConnectedSets {
    all: Vec<Box<[Member]>>,
}

impl ConnectedSets {
    /// Returns true if no further set can be added.
    pub(super) const fn is_full(&self) -> bool {
        self.all.len() >= MAX_CONNECTED_SETS
    }

    pub(super) fn forget_job(&mut self, job: u32) {
        self.all
            .retain(|members| members.iter().all(|member| member.job != job));
    }
}

impl Server {
    /// Adds a set. Returns false if there is no room for it.
    pub(super) fn connect(&mut self, members: &[Member]) -> bool {
        let room = !self.connected_sets.is_full();
        if room {
            self.connected_sets.all.push(members.into());
        }
        room
    }

    pub(super) fn disconnect(&mut self, members: &[Member]) {
        let all = &mut self.connected_sets.all;
        if let Some(at) = all.iter().rposition(|one| **one == *members) {
            all.swap_remove(at);
        }
    }

    /// Returns the members of all connected sets that include a process.
    pub(super) fn connected_with(&self, proc: &Proc) -> Vec<Proc> {
        let Some(one) = self.member_of(proc) else {
            return Vec::new();
        };
        let all = Member::all_of(one.job);
        let members: BTreeSet<Member> = self
            .connected_sets
            .all
            .iter()
            .filter(|members| members.contains(&one) || members.contains(&all))
            .flatten()
            .copied()
            .collect();
        self.procs(&members)
    }
}
