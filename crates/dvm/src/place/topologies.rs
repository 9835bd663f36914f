//! Topologies of an allocation: many nodes, few kinds.

use std::collections::BTreeMap;

use base::{NodeId, Topology};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// Digest of a topology. Nodes whose digests are equal have equal topologies, so one of them needs to send its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TopologyDigest([u8; 32]);

impl TopologyDigest {
    #[must_use]
    pub fn of(topology: &Topology) -> Self {
        // A value in memory always encodes.
        let bytes = postcard::to_stdvec(topology).unwrap_or_default();
        Self(Sha256::digest(bytes).into())
    }
}

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

    /// Returns the topologies of nodes, given in the order of [`NodeId`]s with the digests of their topologies. `None` if the
    /// topology of a digest is not known.
    pub fn by_digest<'a>(
        nodes: impl IntoIterator<Item = (NodeId, TopologyDigest)>,
        known: impl Fn(TopologyDigest) -> Option<&'a Topology>,
    ) -> Option<Self> {
        let mut topologies = Self::default();
        let mut kinds = BTreeMap::new();
        for (node, digest) in nodes {
            let kind = match kinds.get(&digest) {
                Some(kind) => *kind,
                None => {
                    topologies.kinds.push(known(digest)?.clone());
                    let kind = topologies.kinds.len() - 1;
                    kinds.insert(digest, kind);
                    kind
                }
            };
            topologies.push_kind(node, kind);
        }
        Some(topologies)
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
        self.push_kind(node, kind);
    }

    fn push_kind(&mut self, node: NodeId, kind: usize) {
        let kind = u32::try_from(kind).unwrap_or(u32::MAX);
        let before = self.runs.partition_point(|(first, _)| *first < node.0);
        self.runs.truncate(before);
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
