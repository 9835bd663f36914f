//! What processes other than ranks did over several samples: whether they may still end a wait of a rank.

use std::{collections::BTreeSet, time::Duration};

use base::{NodeId, Rank};

use super::Sample;
use crate::peers::{LocalPeers, PeerGroup};

/// Limit of the CPU time of idle processes, as a divisor of the span of the samples.
const IDLE_CPU_DIVISOR: u32 = 100;
/// CPU time that does not count as work. The kernel counts in ticks, and each of two samples may be wrong by one tick.
const TICKS: Duration = Duration::from_millis(20);

/// What processes other than ranks did over all samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Work {
    /// There are no such processes, or all of them wait.
    #[default]
    Idle,
    /// They used CPU time, or some of them started or exited.
    AtWork,
}

impl Work {
    /// Returns what the descendants of a rank did.
    pub(super) fn below(samples: &[Sample], rank: Rank, span: Duration) -> Self {
        let groups = samples.iter().map(|it| it.snapshot.peers.below(rank));
        Self::of(groups, span)
    }

    /// Returns what the processes beside the ranks did.
    pub(super) fn beside(samples: &[Sample], span: Duration) -> Self {
        Self::of_nodes(samples, span, |peers| &peers.beside)
    }

    /// Returns what the neighbors did.
    pub(super) fn of_neighbors(samples: &[Sample], span: Duration) -> Self {
        Self::of_nodes(samples, span, |peers| &peers.neighbors)
    }

    /// Returns what one group did, over all nodes: `AtWork` if it worked on any node.
    fn of_nodes(samples: &[Sample], span: Duration, which: fn(&LocalPeers) -> &PeerGroup) -> Self {
        let nodes = samples.iter().flat_map(|it| it.snapshot.peers.0.keys());
        let nodes: BTreeSet<NodeId> = nodes.copied().collect();
        let work = nodes.into_iter().map(|node| {
            let groups = samples.iter();
            let groups = groups.map(|it| it.snapshot.peers.0.get(&node).map(which));
            Self::of(groups, span)
        });
        work.max().unwrap_or_default()
    }

    /// Returns what one group on one node did, given the group in each sample.
    fn of<'a>(mut groups: impl Iterator<Item = Option<&'a PeerGroup>>, span: Duration) -> Self {
        let Some(first) = groups.next() else {
            return Self::Idle;
        };
        let time = |group: Option<&PeerGroup>| group.map_or(Duration::ZERO, |it| it.cpu);
        let pids =
            |group: Option<&'a PeerGroup>| group.map(|it| &it.pids).filter(|it| !it.is_empty());
        let limit = time(first).saturating_add(span / IDLE_CPU_DIVISOR + TICKS);
        if groups.all(|group| pids(group) == pids(first) && time(group) <= limit) {
            Self::Idle
        } else {
            Self::AtWork
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_work_that_use_cpu_time_or_start_or_exit() {
        let group = |pids: &[i32], ms| PeerGroup {
            pids: pids.iter().copied().collect(),
            cpu: Duration::from_millis(ms),
        };
        let work = |groups: &[PeerGroup]| {
            let groups = groups.iter().map(Some);
            Work::of(groups, Duration::from_secs(2))
        };
        assert_eq!(work(&[group(&[7], 10), group(&[7], 40)]), Work::Idle);
        assert_eq!(work(&[group(&[7], 10), group(&[7], 90)]), Work::AtWork);
        assert_eq!(work(&[group(&[7], 10), group(&[8], 10)]), Work::AtWork);
        assert_eq!(work(&[group(&[], 0), group(&[], 0)]), Work::Idle);
    }
}
