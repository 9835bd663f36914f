//! Allocations: the nodes and slots that we may use, read from what a user or a batch system wrote.
//!
//! Everything here is text in, values out. Texts come with the name of their source for messages. The names of this
//! node (`localhost`, its host name) all mean one node, see [`LocalNames`].

mod error;
mod hostfile;
mod hosts;
mod slurm;
#[cfg(test)]
mod tests;

use base::HostList;
use serde::{Deserialize, Serialize};

pub use self::{
    error::{AllocError, Problem, RemoteNodes},
    hostfile::{MAX_HOSTFILE, hostfile, sequence},
    hosts::hosts,
    slurm::{SlurmTexts, Text, slurm},
};

/// The nodes and slots that a job may use. A node's place in the list is its `NodeId`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allocation {
    pub nodes: Vec<AllocatedNode>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocatedNode {
    /// The host name as it is shown; for this node, the name that [`LocalNames`] was given.
    pub name: String,
    pub slots: Slots,
    /// A number of procs that not even oversubscription passes.
    pub max_slots: Option<u32>,
    /// PUs of this node that a resource manager has given to us; absent where none says so.
    pub granted: Option<u32>,
}

/// How many procs a node takes before it is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Slots {
    /// Nobody said: as many as it has cores, and more without complaint.
    Implicit,
    /// Somebody said.
    Explicit(u32),
}

/// The names that mean this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalNames {
    host: String,
}

impl LocalNames {
    /// `host` is the host name as the kernel knows it; its first label means this node too.
    #[must_use]
    pub fn new(host: impl Into<String>) -> Self {
        Self { host: host.into() }
    }

    /// The name that this node is shown under.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Whether a name means this node.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        let label = |name: &str| name.split('.').next().map(str::to_owned);
        matches!(name, "localhost" | "localhost.localdomain" | "127.0.0.1" | "::1")
            || name == self.host
            // A short name is the long one's when there is nothing after its first label to contradict.
            || (!name.contains('.') && label(&self.host).as_deref() == Some(name))
            || (!self.host.contains('.') && label(name).as_deref() == Some(&self.host) && !name.starts_with(|c: char| c.is_ascii_digit()))
    }

    /// The name that a node is known under.
    #[must_use]
    pub fn canonical<'a>(&'a self, name: &'a str) -> &'a str {
        if self.contains(name) {
            &self.host
        } else {
            name
        }
    }
}

impl Allocation {
    /// This node alone, with as many slots as it has cores.
    #[must_use]
    pub fn local(names: &LocalNames) -> Self {
        Self {
            nodes: vec![AllocatedNode {
                name: names.host().to_owned(),
                slots: Slots::Implicit,
                max_slots: None,
                granted: None,
            }],
        }
    }

    /// The names of the nodes.
    #[must_use]
    pub fn names(&self) -> HostList {
        self.nodes.iter().map(|node| node.name.as_str()).collect()
    }

    /// Refuses nodes other than this node.
    ///
    /// # Errors
    ///
    /// [`RemoteNodes`] with all of them: daemons are not started on other nodes yet.
    pub fn refuse_remote(&self, names: &LocalNames) -> Result<(), RemoteNodes> {
        let remote = self
            .nodes
            .iter()
            .map(|node| node.name.as_str())
            .filter(|name| !names.contains(name));
        let nodes = remote.collect::<HostList>();
        if nodes.is_empty() {
            Ok(())
        } else {
            Err(RemoteNodes { nodes })
        }
    }
}

/// Collects nodes in the order of first sight; what is said about one node again adds up.
struct Collector<'a> {
    names: &'a LocalNames,
    nodes: Vec<AllocatedNode>,
    places: std::collections::BTreeMap<String, usize>,
}

impl<'a> Collector<'a> {
    const fn new(names: &'a LocalNames) -> Self {
        Self {
            names,
            nodes: Vec::new(),
            places: std::collections::BTreeMap::new(),
        }
    }

    /// A node is named, with or without a number of slots.
    ///
    /// Numbers add up. A name alone is one slot if the node is named again, so that a file with one line per slot and a
    /// file with numbers mean the same, and any mixture of them has a meaning.
    fn add(&mut self, name: &str, slots: Slots, max_slots: Option<u32>) {
        let name = self.names.canonical(name);
        if let Some(node) = self
            .places
            .get(name)
            .and_then(|place| self.nodes.get_mut(*place))
        {
            let count = |slots| match slots {
                Slots::Implicit => 1,
                Slots::Explicit(count) => count,
            };
            node.slots = Slots::Explicit(count(node.slots).saturating_add(count(slots)));
            node.max_slots = match (node.max_slots, max_slots) {
                (Some(a), Some(b)) => Some(a.saturating_add(b)),
                (one, other) => one.or(other),
            };
            return;
        }
        self.places.insert(name.to_owned(), self.nodes.len());
        self.nodes.push(AllocatedNode {
            name: name.to_owned(),
            slots,
            max_slots,
            granted: None,
        });
    }

    fn finish(self) -> Allocation {
        Allocation { nodes: self.nodes }
    }
}
