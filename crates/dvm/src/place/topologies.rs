//! Topologies of an allocation: many nodes, few kinds.

use base::{NodeId, Topology};
use serde::{Deserialize, Serialize};

/// Topology of each node. Equal topologies are stored once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topologies {
    kinds: Vec<Topology>,
    /// Runs of nodes of one kind, ascending: first node of the run, and kind.
    runs: Vec<(u32, u32)>,
}

impl Topologies {
    /// Returns topologies in which every node has this one.
    #[must_use]
    pub fn uniform(topology: Topology) -> Self {
        Self {
            kinds: vec![topology],
            runs: vec![(0, 0)],
        }
    }

    /// Adds the topology of the next node, in the order of [`NodeId`]s.
    pub fn push(&mut self, node: NodeId, topology: &Topology) {
        let kind = self
            .kinds
            .iter()
            .position(|known| known == topology)
            .unwrap_or_else(|| {
                self.kinds.push(topology.clone());
                self.kinds.len() - 1
            });
        let kind = u32::try_from(kind).unwrap_or(u32::MAX);
        self.runs.retain(|(first, _)| *first < node.0);
        if self.runs.last().is_none_or(|(_, last)| *last != kind) {
            self.runs.push((node.0, kind));
        }
    }

    /// Returns the number of the node's kind. Nodes of one kind have equal topologies.
    #[must_use]
    pub fn kind(&self, node: NodeId) -> u32 {
        let after = self.runs.partition_point(|(first, _)| *first <= node.0);
        after
            .checked_sub(1)
            .and_then(|index| self.runs.get(index))
            .map_or(0, |(_, kind)| *kind)
    }

    /// Returns the topology of a node. A node without an entry has the topology of the last node before it.
    #[must_use]
    pub fn get(&self, node: NodeId) -> Option<&Topology> {
        self.kinds.get(self.kind(node) as usize)
    }

    #[must_use]
    pub fn kinds(&self) -> &[Topology] {
        &self.kinds
    }
}

impl FromIterator<Topology> for Topologies {
    /// Collects one topology per node, in the order of [`NodeId`]s.
    fn from_iter<I: IntoIterator<Item = Topology>>(iter: I) -> Self {
        let mut topologies = Self::default();
        for (node, topology) in (0..).zip(iter) {
            topologies.push(NodeId(node), &topology);
        }
        topologies
    }
}
