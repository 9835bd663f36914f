//! Allocations: the nodes and slots that we may use, read from the text of a user or a batch system.
//!
//! All functions here turn text into values. Each text comes with the name of its source, for messages. `localhost` and
//! the host name of this node mean the same node, see [`LocalNames`].

mod error;
mod hostfile;
mod hosts;
mod lsf;
mod relative;
mod slurm;
#[cfg(test)]
mod tests;

use base::HostList;
use serde::{Deserialize, Serialize};

pub use self::{
    error::{AllocError, Problem},
    hostfile::{MAX_HOSTFILE, hostfile, sequence},
    hosts::hosts,
    lsf::{lsf_hosts, lsf_pairs},
    relative::Base,
    slurm::{COMPONENTS_MAX, SlurmTexts, Text, slurm, slurm_components, slurm_het_size},
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
    /// Name that a resource manager gives to this node.
    alias: Option<String>,
}

impl LocalNames {
    /// Creates the names from the host name that the kernel reports. Its first label is a name of this node too.
    #[must_use]
    pub fn new(host: impl Into<String>) -> Self {
        Self {
            host: host.into(),
            alias: None,
        }
    }

    /// Adds the name that a resource manager gives to this node, if any.
    #[must_use]
    pub fn with_alias(self, alias: Option<impl Into<String>>) -> Self {
        Self {
            alias: alias.map(Into::into),
            ..self
        }
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
            || self.alias.as_deref() == Some(name)
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

    /// Returns the wanted nodes in the order of this allocation. What the wanted nodes do not say (slots, maximum), this
    /// allocation says. `None` if a wanted node is not part of this allocation.
    #[must_use]
    pub fn narrowed(&self, wanted: &Self) -> Option<Self> {
        let mut by_name: std::collections::BTreeMap<&str, &AllocatedNode> = wanted
            .nodes
            .iter()
            .map(|node| (node.name.as_str(), node))
            .collect();
        let narrow = |node: &AllocatedNode| {
            let wanted = by_name.remove(node.name.as_str())?;
            Some(AllocatedNode {
                name: node.name.clone(),
                slots: match wanted.slots {
                    Slots::Implicit => node.slots,
                    Slots::Explicit(slots) => Slots::Explicit(slots),
                },
                max_slots: wanted.max_slots.or(node.max_slots),
                granted: node.granted,
            })
        };
        let nodes = self.nodes.iter().filter_map(narrow).collect();
        by_name.is_empty().then_some(Self { nodes })
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
