//! Topologies of the nodes, one for each class of equal nodes.
//!
//! Every daemon says the digest of its topology when it connects. The controller asks the first node of each class for the
//! topology itself when there is a job. So a thousand equal nodes send one topology, while the others are still being started.
//!
//! | state of a class | event | response | next state |
//! |---|---|---|---|
//! | – | a node says its digest | ask the node | `Asked` |
//! | – | the same, but there is no job | – : ask when a job is submitted | – |
//! | `Asked`, `Known` | a further node says it | – | as before |
//! | `Asked` | the topology | place the jobs that wait | `Known` |
//! | `Asked` | the asked node is lost | a machine asks another node of the class, if there is one; without a machine – : the controller refuses all jobs that wait | `Asked`; – without another |

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, btree_map::Entry};

use base::{NodeId, Topology};

use super::{Controller, ControllerOutput, Node};
use crate::{
    place::{Topologies, TopologyDigest},
    proto::ToDaemon,
};

/// The classes of the nodes that are or were connected.
#[derive(Debug, Default)]
pub(super) struct Classes(BTreeMap<TopologyDigest, Class>);

#[derive(Debug)]
enum Class {
    Asked(NodeId),
    Known(Topology),
}

impl Classes {
    pub(super) fn get(&self, digest: TopologyDigest) -> Option<&Topology> {
        match self.0.get(&digest)? {
            Class::Asked(_) => None,
            Class::Known(topology) => Some(topology),
        }
    }

    /// Returns the topologies of all nodes; `None` while one is not known.
    pub(super) fn of(&self, nodes: &BTreeMap<NodeId, Node>) -> Option<Topologies> {
        let nodes = nodes.iter().map(|(id, node)| (*id, node.topology));
        Topologies::by_digest(nodes, |digest| self.get(digest))
    }
}

impl Controller {
    /// Asks a node for its topology if it is the first of its class and a job waits.
    pub(super) fn classify(&mut self, node: NodeId, digest: TopologyDigest) {
        // Without a job, the session may be over.
        if self.jobs.is_empty() && self.machine.is_none() {
            return;
        }
        if let Entry::Vacant(class) = self.topologies.0.entry(digest) {
            class.insert(Class::Asked(node));
            let question = ControllerOutput::Daemon(node, ToDaemon::SendTopology);
            self.outputs.push_back(question);
        }
    }

    /// Asks for the topologies that nobody has asked for, because there was no job.
    pub(super) fn classify_all(&mut self) {
        let all = self.nodes.iter();
        let all: Vec<_> = all.map(|(id, node)| (*id, node.topology)).collect();
        for (node, digest) in all {
            self.classify(node, digest);
        }
    }

    /// Handles the loss of a node that may have been asked for the topology of its class.
    pub(super) fn ask_other_for_topology(&mut self, lost: NodeId) {
        // A job that runs for itself needs all its nodes, and is refused.
        if self.machine.is_none() && !self.is_of_allocation(lost) {
            return;
        }
        let classes = &mut self.topologies.0;
        let before = classes.len();
        classes.retain(|_, class| !matches!(class, Class::Asked(node) if *node == lost));
        if classes.len() < before {
            self.classify_all();
        }
    }

    /// Handles the topology of a node, which is that of its class.
    pub(super) fn on_topology(&mut self, node: NodeId, topology: Topology) {
        let Some(digest) = self.nodes.get(&node).map(|node| node.topology) else {
            return self.log(format!(
                "the daemon on node {node} sends a topology before its hello: ignored"
            ));
        };
        if TopologyDigest::of(&topology) != digest {
            // It is used nevertheless: no other node may have this digest, and then the job would wait for ever.
            self.log(format!(
                "the daemon on node {node} sends another topology than its digest says"
            ));
        }
        self.topologies.0.insert(digest, Class::Known(topology));
        for job in self.living() {
            self.launch_if_ready(job);
        }
    }
}
