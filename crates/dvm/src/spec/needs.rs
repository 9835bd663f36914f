//! Counted resources: what a node has of them, and what a job needs of a machine.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::NodeGpus;

/// What a daemon finds on its node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeResources {
    /// `None`: no GPU was found.
    pub gpus: Option<NodeGpus>,
    /// Memory in bytes that processes there may use; 0 if unknown.
    pub memory: u64,
}

/// Resources that a job needs by name, beside slots, GPUs and memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceNeeds {
    /// For the whole job, of those that no node has, for example licenses.
    pub job: BTreeMap<String, u64>,
    /// For each proc, of those of its node.
    pub proc: BTreeMap<String, u64>,
}

impl ResourceNeeds {
    /// Returns true if the job needs none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.job.is_empty() && self.proc.is_empty()
    }
}
