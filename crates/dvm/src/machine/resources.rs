//! The counted resources of a machine: GPUs and memory, which daemons find, and those that the user names.
//!
//! The queue counts them ([`Amounts`]). This module knows their names, and which GPUs a task has.

use std::collections::BTreeMap;

use base::HostList;
use serde::{Deserialize, Serialize};

use super::planted::{self, Bug};
use crate::{
    queue::{Amounts, Resources, TaskId},
    spec::{GpuKind, GpuShare, JobSpec, NodeGpus, NodeResources},
};

/// Name of the GPUs of a node.
pub const GPU: &str = "gpu";
/// Name of the memory of a node, in bytes.
pub const MEMORY: &str = "memory";
/// The memory of a node that does not know it.
pub(super) const UNKNOWN: u64 = u64::MAX;
/// Kinds of resources that a user may declare.
pub const DECLARED_MAX: usize = 64;

/// The resources that the user has declared for a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Declared {
    /// Those that no node has, for example licenses.
    pub shared: BTreeMap<String, u64>,
    /// Those that nodes have. A later one replaces an earlier one of the same name.
    pub of_nodes: Vec<NodeShare>,
}

/// A resource that nodes have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeShare {
    pub name: String,
    pub count: u64,
    /// `None`: all nodes.
    pub hosts: Option<HostList>,
}

/// Why a machine cannot give a job the resources that it needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NoResource {
    /// There is none of this name. There are those.
    Unknown {
        name: String,
        there: Vec<String>,
    },
    /// Nodes have this resource, and the job asks for it as a whole.
    OfNodes(String),
    /// The machine has this resource, and no node has.
    OfMachine(String),
    TooMuch(TooMuch),
}

/// A job needs more of a resource, on a node or for all of it, than there is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TooMuch {
    pub name: String,
    pub needed: u64,
    pub most: u64,
    pub of: ResourceOf,
}

/// Where a resource is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ResourceOf {
    Node,
    Machine,
}

/// The names of the counted resources, and what was declared of them.
#[derive(Debug)]
pub(super) struct Counted {
    declared: Declared,
    resources: Resources,
}

/// What a job takes beside slots.
#[derive(Clone, Debug, Default)]
pub(super) struct Extras {
    /// For each proc.
    pub(super) proc: BTreeMap<String, u64>,
    /// For each node where it has a proc.
    pub(super) node: BTreeMap<String, u64>,
    /// For the whole job.
    pub(super) job: BTreeMap<String, u64>,
}

impl Extras {
    /// Returns what a job needs beside slots.
    pub(super) fn of(spec: &JobSpec) -> Self {
        let mut extras = Self {
            proc: spec.needs.proc.clone(),
            node: BTreeMap::new(),
            job: spec.needs.job.clone(),
        };
        match spec.gpus.as_ref().map(|plan| plan.share) {
            Some(GpuShare::Each(count)) => {
                extras.proc.insert(GPU.to_owned(), count.into());
            }
            Some(GpuShare::Together(count)) => {
                extras.node.insert(GPU.to_owned(), count.into());
            }
            None => {}
        }
        if let Some(memory) = spec.limits.memory {
            extras.node.insert(MEMORY.to_owned(), memory);
        }
        extras
    }
}

impl Counted {
    pub(super) fn new(declared: Declared) -> Self {
        Self {
            declared,
            resources: Resources::default(),
        }
    }

    /// Returns these amounts.
    pub(super) fn amounts(&mut self, slots: u32, counted: &BTreeMap<String, u64>) -> Amounts {
        self.resources.amounts(slots, counted)
    }

    /// Returns the names and counts of counted resources.
    pub(super) fn named(&self, amounts: &Amounts) -> BTreeMap<String, u64> {
        self.resources.named(amounts)
    }

    /// Returns what no node has.
    pub(super) fn shared(&mut self) -> Amounts {
        self.resources.amounts(0, &self.declared.shared)
    }

    /// Returns what a node has.
    pub(super) fn of_node(&mut self, name: &str, slots: u32, found: &NodeResources) -> Amounts {
        let declared = self.declared.of_nodes.iter();
        let here = declared.filter(|share| {
            let hosts = share.hosts.as_ref();
            hosts.is_none_or(|hosts| hosts.contains(name))
        });
        let mut has: BTreeMap<String, u64> = here
            .map(|share| (share.name.clone(), share.count))
            .collect();
        // Nobody can declare what daemons find.
        let gpus = found
            .gpus
            .as_ref()
            .map_or(0, |gpus| gpus.names.len() as u64);
        has.insert(GPU.to_owned(), gpus);
        // A node that does not know its memory takes what comes.
        let memory = if found.memory > 0 {
            found.memory
        } else {
            UNKNOWN
        };
        has.insert(MEMORY.to_owned(), memory);
        self.resources.amounts(slots, &has)
    }

    /// Checks that the machine has the resources that a job names.
    pub(super) fn check(&self, spec: &JobSpec) -> Result<(), NoResource> {
        let declared = &self.declared;
        let has_nodes = |name: &str| declared.of_nodes.iter().any(|one| one.name == name);
        let has_shared = |name: &str| declared.shared.contains_key(name);
        let of_job = spec.needs.job.keys();
        let of_job = of_job.filter(|name| !has_shared(name));
        let of_job = of_job.map(|name| (name, has_nodes(name)));
        let of_proc = spec.needs.proc.keys();
        let of_proc = of_proc.filter(|name| !has_nodes(name));
        let of_proc = of_proc.map(|name| (name, has_shared(name)));
        let Some((name, is_other)) = of_job.chain(of_proc).next() else {
            return Ok(());
        };
        if is_other {
            let name = name.clone();
            return Err(if has_nodes(&name) {
                NoResource::OfNodes(name)
            } else {
                NoResource::OfMachine(name)
            });
        }
        let there = declared.shared.keys();
        let there = there.chain(declared.of_nodes.iter().map(|one| &one.name));
        let mut there: Vec<String> = there.cloned().collect();
        there.sort_unstable();
        there.dedup();
        Err(NoResource::Unknown {
            name: name.clone(),
            there,
        })
    }
}

/// The GPUs of a node, and which task has them.
#[derive(Clone, Debug)]
pub(super) struct GpuTable {
    kind: GpuKind,
    gpus: Vec<(String, Option<TaskId>)>,
}

impl GpuTable {
    pub(super) fn new(found: NodeGpus) -> Self {
        Self {
            kind: found.kind,
            gpus: found.names.into_iter().map(|name| (name, None)).collect(),
        }
    }

    /// Returns true if these are the GPUs that a daemon has found.
    pub(super) fn is(&self, found: &NodeGpus) -> bool {
        let names = self.gpus.iter().map(|(name, _)| name);
        self.kind == found.kind && names.eq(&found.names)
    }

    /// Gives GPUs to a task: the first free ones.
    pub(super) fn take(&mut self, task: TaskId, count: u64) -> NodeGpus {
        let free = self
            .gpus
            .iter_mut()
            .filter(|(_, has)| has.is_none() || planted::is(Bug::GpusGivenTwice));
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let taken = free.take(count).map(|(name, has)| {
            *has = Some(task);
            name.clone()
        });
        NodeGpus {
            kind: self.kind,
            names: taken.collect(),
        }
    }

    /// Takes back what a task has.
    pub(super) fn give_back(&mut self, task: TaskId) {
        for (_, has) in &mut self.gpus {
            has.take_if(|one| *one == task);
        }
    }
}
