//! Processes that have connected: as long as they are, the others care for the end of each.

use std::collections::BTreeSet;

use super::{Server, member::Member};
use crate::value::Proc;

/// ConnectedSets of connected processes at once.
pub const MAX_CONNECTED_SETS: usize = 16_384;

/// Members that have connected and not disconnected.
#[derive(Debug, Default)]
pub(super) struct ConnectedSets {
    all: Vec<Box<[Member]>>,
}

impl ConnectedSets {
    /// Whether there is no room for one more.
    pub(super) const fn is_full(&self) -> bool {
        self.all.len() >= MAX_CONNECTED_SETS
    }

    pub(super) fn forget_job(&mut self, job: u32) {
        self.all
            .retain(|members| members.iter().all(|member| member.job != job));
    }
}

impl Server {
    /// Whether there was room for one more.
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

    /// Every member of a connected set that includes a process.
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
