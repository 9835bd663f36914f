//! Allocations: the nodes and slots that we may use, read from the text of a user or a batch system.
//!
//! All functions here turn text into values. Each text comes with the name of its source, for messages. `localhost` and
//! the host name of this node mean the same node, see [`LocalNames`].

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

/// Nodes and slots that a job may use. The index of a node in the list is its `NodeId`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allocation {
    pub nodes: Vec<AllocatedNode>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocatedNode {
    /// Host name to display. For this node, it is the name given to [`LocalNames`].
    pub name: String,
    pub slots: Slots,
    /// Maximum number of procs, even with oversubscription; `None` for no maximum.
    pub max_slots: Option<u32>,
    /// Number of PUs of this node that a resource manager has granted to us; `None` if unknown.
    pub granted: Option<u32>,
}

/// Number of procs that fill a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Slots {
    /// No count was given. The node has as many slots as cores, and may get more procs.
    Implicit,
    /// Count given by the user or a resource manager.
    Explicit(u32),
}

/// Names of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalNames {
    host: String,
}

impl LocalNames {
    /// Creates the names from the host name that the kernel reports. Its first label is a name of this node too.
    #[must_use]
    pub fn new(host: impl Into<String>) -> Self {
        Self { host: host.into() }
    }

    /// Returns the name under which this node is displayed.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns true if `name` is a name of this node.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        let label = |name: &str| name.split('.').next().map(str::to_owned);
        matches!(name, "localhost" | "localhost.localdomain" | "127.0.0.1" | "::1")
            || name == self.host
            // A short name matches a long one with the same first label.
            || (!name.contains('.') && label(&self.host).as_deref() == Some(name))
            || (!self.host.contains('.') && label(name).as_deref() == Some(&self.host) && !name.starts_with(|c: char| c.is_ascii_digit()))
    }

    /// Returns the name under which a node is known: our host name for this node, else the name itself.
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
    /// Returns an allocation of this node alone, with as many slots as it has cores.
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

    /// Returns the names of the nodes.
    #[must_use]
    pub fn names(&self) -> HostList {
        self.nodes.iter().map(|node| node.name.as_str()).collect()
    }

    /// Refuses nodes other than this node.
    ///
    /// # Errors
    ///
    /// [`RemoteNodes`] with all the other nodes: daemons cannot be started on other nodes yet.
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

/// Collects nodes in the order of their first mention. Slots of repeated mentions add up.
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

    /// Adds a mention of a node, with or without a number of slots.
    ///
    /// Numbers add up. In repeated mentions, a name without a number counts as one slot. So a file with one line per
    /// slot means the same as a file with numbers, and they can be mixed.
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
