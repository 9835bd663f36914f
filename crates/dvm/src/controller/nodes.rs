//! The nodes of a machine: what the machine has to know of them, and those that come and go while it runs.
//!
//! A node that is added gets the next number of the allocation, also if it was there before: a daemon that was lost may still run, and
//! messages about it must not be taken for those about the next one. The old numbers stay in the allocation, *retired*: nothing is
//! placed there, and nothing waits for them.

use std::{borrow::Cow, ffi::OsString, sync::Arc};

use base::{HostList, NodeId, Time};

use super::{Controller, ControllerOutput, Job};
use crate::{
    alloc::{AllocatedNode, Allocation, Slots},
    bootstrap::{Addition, NotJoined},
    place::{self, CpuUnit, Request},
    planted::{self, Bug},
    proto::{Note, Refusal, ToDaemon, ToFront},
};

impl Controller {
    pub(super) fn machine_node_lost(&mut self, now: Time, node: NodeId, why: &str) {
        if let Some(host) = &mut self.machine {
            host.known.remove(&node);
            host.machine.node_lost(now, node, why);
        }
    }

    /// Notes that some nodes did not join. Returns false if there is no machine: then no job can be launched.
    pub(super) fn machine_without(&mut self, now: Time, failed: &NotJoined) -> bool {
        if self.machine.is_none() {
            return false;
        }
        if let Some(front) = self.anyone() {
            self.tell(front, ToFront::Note(Note::NotJoined(failed.clone())));
        }
        self.with_machine(|machine| machine.not_joined(failed));
        for class in &failed.classes {
            let why = class.why();
            for node in self.nodes_named(&class.hosts) {
                // Jobs that use no slots do without it too.
                let host = self.name_of(node).to_owned();
                self.lost.insert(node, host);
                self.machine_node_lost(now, node, &why);
            }
        }
        true
    }

    /// Returns the nodes of these names that are being started. A node that was lost and has another daemon is in the allocation
    /// again.
    pub(super) fn nodes_named(&self, hosts: &HostList) -> Vec<NodeId> {
        let nodes = (0..).map(NodeId).zip(&self.allocation.nodes);
        let named = nodes.filter(|(_, node)| hosts.contains(&node.name));
        let starting = named.filter(|(id, _)| {
            let is_known = self.nodes.contains_key(id) || self.lost.contains_key(id);
            !is_known && !self.retired.contains_key(id)
        });
        starting.map(|(id, _)| id).collect()
    }

    /// Tells the machine of nodes whose daemon and topology are known.
    pub(super) fn announce_nodes(&mut self, now: Time) {
        let Some(host) = &mut self.machine else {
            return;
        };
        // Those that are known are among those that have said hello.
        if host.known.len() == self.nodes.len() {
            return;
        }
        for (id, node) in &self.nodes {
            if host.known.contains(id) {
                continue;
            }
            let Some(topology) = self.topologies.get(node.topology) else {
                continue;
            };
            let Some(said) = self.allocation.nodes.get(id.0 as usize) else {
                continue;
            };
            let slots = place::slots(said.slots, Some(topology), CpuUnit::default());
            host.machine
                .node_up(now, *id, (slots, said.slots), &node.resources);
            host.known.insert(*id);
        }
    }

    /// Orders the start of daemons on further nodes.
    pub(super) fn add_nodes(
        &mut self,
        nodes: Vec<(NodeId, AllocatedNode)>,
        environment: Vec<OsString>,
        slurm_job: Option<u32>,
    ) {
        let mut named = Vec::with_capacity(nodes.len());
        for (id, node) in nodes {
            named.push((id, node.name.clone()));
            debug_assert_eq!(self.allocation.nodes.len(), id.0 as usize);
            self.allocation.nodes.push(node);
        }
        self.outputs.push_back(ControllerOutput::AddNodes(Addition {
            nodes: named,
            environment,
            slurm_job,
        }));
    }

    /// Takes the node of the controller into use again.
    pub(super) fn reopen_node(&mut self, now: Time, id: NodeId, said: AllocatedNode) {
        if let Some(node) = self.allocation.nodes.get_mut(id.0 as usize) {
            node.slots = said.slots;
            node.max_slots = said.max_slots;
        }
        if let Some(host) = &mut self.machine {
            host.known.remove(&id);
        }
        self.announce_nodes(now);
    }

    /// Forgets a node whose daemon has ended or was lost, or that has another number now.
    pub(super) fn forget_node(&mut self, node: NodeId) {
        let host = self.lost.remove(&node);
        let host = host.unwrap_or_else(|| self.name_of(node).to_owned());
        self.retired.insert(node, host);
    }

    /// Returns the names of the nodes that were forgotten while jobs go on without them.
    pub(super) fn retired_of_jobs(&self) -> impl Iterator<Item = String> {
        let has_part = |id: &NodeId| self.jobs.values().any(|job| job.shares.contains_key(id));
        let retired = self.retired.iter().filter(move |(id, _)| has_part(id));
        retired.map(|(_, host)| host.clone())
    }

    /// Adds a node without a name, on which nothing can be placed.
    pub(super) fn open_door(&mut self) {
        let door = NodeId(u32::try_from(self.allocation.nodes.len()).unwrap_or(u32::MAX));
        self.allocation.nodes.push(AllocatedNode {
            name: String::new(),
            slots: Slots::Explicit(0),
            max_slots: Some(0),
            granted: None,
        });
        self.door = Some(door);
        self.with_machine(|machine| machine.keep_number(door));
    }

    /// Returns true for a node that does not count for jobs without an allocation of their own.
    pub(super) fn is_apart(&self, node: NodeId) -> bool {
        self.door == Some(node) || self.is_of_allocation(node)
    }

    /// Returns the number of nodes of whoever has started us: those without a number of an allocation that procs have requested. They are
    /// the first ones.
    pub(super) fn own_nodes(&self) -> usize {
        let all = self.allocation.nodes.len();
        let door = self.door.filter(|_| !planted::is(Bug::DoorAwaited));
        let door = door.map_or(all, |door| door.0 as usize);
        let others = self.is_in_slurm().then_some(self.of_slurm.own_nodes);
        all.min(door).min(others.unwrap_or(all))
    }

    /// Returns these nodes.
    pub(super) fn own_allocation(&self) -> Cow<'_, Allocation> {
        let (nodes, own) = (&self.allocation.nodes, self.own_nodes());
        if own == nodes.len() {
            return Cow::Borrowed(&self.allocation);
        }
        Cow::Owned(Allocation {
            nodes: nodes.iter().take(own).cloned().collect(),
        })
    }

    /// Tells a daemon that has joined late of the jobs that run.
    pub(super) fn tell_running_jobs(&mut self, node: NodeId) {
        let launches = self.jobs.values().filter(|job| job.beside.is_none());
        let launches = launches.filter_map(|job| job.launch.as_ref());
        let told = launches.map(|launch| {
            let launch = ToDaemon::LaunchedElsewhere(Arc::clone(launch));
            ControllerOutput::Daemon(node, launch)
        });
        self.outputs.extend(told);
    }

    /// Returns the allocation in which nodes without a daemon have no name by which a job could be placed there.
    pub(super) fn living_allocation(&self) -> Allocation {
        let mut allocation = self.allocation.clone();
        for (id, node) in (0..).map(NodeId).zip(&mut allocation.nodes) {
            if !self.nodes.contains_key(&id) {
                node.name.clear();
            }
        }
        allocation
    }

    /// Returns what the placement of a job has to respect that uses no slots of the machine: it may use the nodes that have joined.
    /// `None` while there are none.
    pub(super) fn among_joined<'a>(
        &self,
        job: &'a Job,
    ) -> Result<Option<(Cow<'a, Request>, Allocation)>, Refusal> {
        let joined = self.nodes.keys().filter(|id| self.door != Some(**id));
        let joined: HostList = joined.map(|id| self.name_of(*id)).collect();
        if joined.is_empty() {
            return Ok(None);
        }
        let lost = self.names_of_lost();
        let mut request = job.spec.placement.clone();
        for app in &mut request.apps {
            match &app.hosts {
                Some(hosts) => {
                    if let Some(host) = hosts.iter().find(|host| lost.contains(host)) {
                        let host = host.to_owned();
                        return Err(Refusal::NodeLost { host });
                    }
                }
                None => app.hosts = Some(joined.clone()),
            }
        }
        Ok(Some((Cow::Owned(request), self.living_allocation())))
    }
}
