//! Jobs that are spawned into allocations of Slurm.
//!
//! The first of them has the daemons of all nodes of the allocation started, as further nodes of this session, by an `srun` of Slurm's
//! job. They stay until the allocation is given back. The numbers of these nodes follow those of the job in which we run, which places
//! nothing there. Where Slurm shares nodes, an allocation may have nodes of that job, or of other allocations: such a node has a daemon, a
//! number and the same name for each, so that names count only within one allocation.
//!
//! | daemons | a job is spawned there | all have joined | one does not start | one is lost | the allocation is given back |
//! |---|---|---|---|---|---|
//! | none | they are started, and it waits → starting | – | – | – | – |
//! | starting | it waits | jobs that wait are added → there | jobs that wait are refused, the others leave → none | the rest counts; after the last one, jobs that wait are refused → none | they leave → none |
//! | there | it is added, in what others there have left | – | – | its jobs end as after every loss; the rest is used; → none after the last one | they leave → none |

use std::collections::BTreeSet;

use base::{JobId, NodeId, Time};
use pmix::{
    allocation::Wish,
    value::{Info, Status},
};

use super::{New, OfSlurm, Requested};
use crate::{
    alloc::{AllocatedNode, Slots},
    bootstrap::NotJoined,
    controller::{
        Controller, ControllerOutput,
        allocations::{ALLOCATIONS_MAX, spawns::ask_for_procs},
        spawned::Spawn,
    },
    machine::Grant,
    proto::{Note, ToDaemon, ToFront},
    queue::Sharing,
};

impl OfSlurm {
    /// Returns the allocation in which a job runs.
    fn of(&self, job: JobId) -> Option<u32> {
        let mut all = self.all.iter();
        all.find(|(_, one)| one.inside.contains(&job))
            .map(|(id, _)| *id)
    }
}

impl Requested {
    fn grant(&self) -> Grant {
        Grant {
            gpus: std::collections::BTreeMap::new(),
            slots: self.nodes.clone(),
            sharing: Sharing::Shared,
        }
    }
}

impl Controller {
    /// Adds a spawned job: in the allocation that the request names, in a new one that it asks for, or where its spawner runs.
    pub(in crate::controller::allocations) fn spawn_in_slurm(
        &mut self,
        now: Time,
        spawn: Spawn,
        infos: &[Info],
    ) -> Result<(), Status> {
        let mut wish = Wish::read(infos)?;
        let (by, root) = (spawn.by, spawn.root);
        if wish.asks_for_resources() {
            if wish.allocation.is_some() {
                // It names an allocation, and asks for another one.
                return Err(Status::BAD_PARAM);
            }
            ask_for_procs(&mut wish, &spawn);
            return self.request_of_slurm(now, by, root, &wish, New::Job(Box::new(spawn)));
        }
        let inside = match &wish.allocation {
            Some(name) => Some(self.of_slurm.named(root, name).ok_or(Status::NOT_FOUND)?),
            None => self.of_slurm.of(self.beside(by, infos)),
        };
        let Some(id) = inside else {
            return self.spawn_inside(now, spawn, None);
        };
        let one = self.of_slurm.all.get_mut(&id).ok_or(Status::NOT_FOUND)?;
        if one.held.is_ending() {
            return Err(Status::NOT_AVAILABLE);
        }
        if one.has.is_none() {
            return Err(Status::OPERATION_IN_PROGRESS);
        }
        if one.spawns.len() >= ALLOCATIONS_MAX {
            return Err(Status::OUT_OF_RESOURCE);
        }
        one.spawns.push(spawn);
        self.start_daemons(id);
        Ok(())
    }

    /// Starts the daemons of an allocation, if jobs are to be spawned there and there are none.
    pub(super) fn start_daemons(&mut self, id: u32) {
        let Some(one) = self.of_slurm.all.get(&id) else {
            return;
        };
        let (Some(has), Some(job)) = (&one.has, one.held.job()) else {
            return;
        };
        if one.spawns.is_empty() || !one.nodes.is_empty() {
            return;
        }
        let slots = has.slots.clone();
        let next = u32::try_from(self.allocation.nodes.len()).unwrap_or(u32::MAX);
        let numbered = (next..).map(NodeId).zip(slots);
        let node = |(node, (name, slots)): (NodeId, (String, u32))| {
            let said = AllocatedNode {
                name,
                slots: Slots::Explicit(slots),
                max_slots: None,
                granted: None,
            };
            (node, slots, said)
        };
        let nodes: Vec<_> = numbered.map(node).collect();
        if let Some(one) = self.of_slurm.all.get_mut(&id) {
            one.nodes = nodes
                .iter()
                .map(|(node, slots, _)| (*node, *slots))
                .collect();
        }
        let nodes = nodes.into_iter().map(|(node, _, said)| (node, said));
        self.add_nodes(nodes.collect(), Vec::new(), Some(job));
    }

    /// Returns true for a node of an allocation that procs have requested.
    pub(in crate::controller) fn is_of_allocation(&self, node: NodeId) -> bool {
        self.is_in_slurm() && self.door != Some(node) && node.0 as usize >= self.of_slurm.own_nodes
    }

    /// Adds the jobs that have waited for daemons. Part of every input.
    pub(in crate::controller) fn spawn_waiting(&mut self, now: Time) {
        let is_known = |node: &NodeId| {
            let node = self.nodes.get(node);
            node.is_some_and(|node| self.topologies.get(node.topology).is_some())
        };
        let is_there = |one: &Requested| {
            !one.spawns.is_empty() && !one.nodes.is_empty() && one.nodes.keys().all(is_known)
        };
        let all = self.of_slurm.all.iter();
        let ready = all.filter(|(_, one)| is_there(one));
        for id in ready.map(|(id, _)| *id).collect::<Vec<_>>() {
            let one = self.of_slurm.all.get_mut(&id);
            let spawns = one.map(|one| std::mem::take(&mut one.spawns));
            for spawn in spawns.into_iter().flatten() {
                let (asker, partner) = (spawn.asker, spawn.partner());
                if let Err(status) = self.enter(now, id, spawn) {
                    self.spawn_failed(asker, partner, status);
                }
            }
        }
    }

    /// Adds a job to those that run in an allocation.
    fn enter(&mut self, now: Time, id: u32, spawn: Spawn) -> Result<(), Status> {
        let one = self.of_slurm.all.get(&id).ok_or(Status::NOT_FOUND)?;
        let grant = self.left_for(&one.grant(), &one.inside, &spawn.spec)?;
        let next = JobId(self.next_job);
        if let Some(one) = self.of_slurm.all.get_mut(&id) {
            one.inside.insert(next);
        }
        self.add_spawned(now, spawn, Some(grant));
        Ok(())
    }

    /// Answers procs that have no use for what they wanted to spawn.
    pub(super) fn refuse_orphans(&mut self) {
        for id in self.of_slurm.all.keys().copied().collect::<Vec<_>>() {
            let one = self.of_slurm.all.get_mut(&id);
            let spawns = one.map_or_else(Vec::new, |one| std::mem::take(&mut one.spawns));
            let (kept, orphans): (Vec<Spawn>, Vec<Spawn>) = spawns
                .into_iter()
                .partition(|spawn| self.may_spawn(spawn.by, spawn.root));
            if let Some(one) = self.of_slurm.all.get_mut(&id) {
                one.spawns = kept;
            }
            for orphan in orphans {
                self.spawn_failed(orphan.asker, orphan.partner(), Status::NOT_AVAILABLE);
            }
        }
    }

    /// Refuses all jobs that wait for an allocation or its daemons.
    pub(super) fn refuse_spawns(&mut self, id: u32, status: Status) {
        let one = self.of_slurm.all.get_mut(&id);
        let spawns = one.map(|one| std::mem::take(&mut one.spawns));
        for spawn in spawns.into_iter().flatten() {
            self.spawn_failed(spawn.asker, spawn.partner(), status);
        }
    }

    /// Returns true if a job runs in an allocation, or is to be spawned there.
    pub(super) fn is_in_use(&self, id: u32) -> bool {
        let one = self.of_slurm.all.get(&id);
        one.is_some_and(|one| !one.inside.is_empty() || !one.spawns.is_empty())
    }

    /// Lets the daemons of an allocation end.
    pub(super) fn leave_nodes(&mut self, id: u32) {
        let one = self.of_slurm.all.get_mut(&id);
        let nodes = one.map(|one| std::mem::take(&mut one.nodes));
        for node in nodes.into_iter().flatten().map(|(node, _)| node) {
            if self.nodes.contains_key(&node) {
                let leave = ControllerOutput::Daemon(node, ToDaemon::Leave);
                self.outputs.push_back(leave);
            }
            self.forget_node(node);
        }
    }

    /// Handles that daemons of allocations have not started. Returns false if daemons of the job in which we run have not.
    pub(in crate::controller) fn allocation_without(&mut self, failed: &NotJoined) -> bool {
        let hosts = failed.classes.iter();
        let nodes = hosts.flat_map(|class| self.nodes_named(&class.hosts));
        let nodes: BTreeSet<NodeId> = nodes.collect();
        if nodes.is_empty() || !nodes.iter().all(|node| self.is_of_allocation(*node)) {
            return false;
        }
        let all = self.of_slurm.all.iter();
        let has = |one: &Requested| one.nodes.keys().any(|node| nodes.contains(node));
        let without: Vec<u32> = all.filter(|(_, one)| has(one)).map(|(id, _)| *id).collect();
        for id in without {
            self.tell_not_started(id, failed);
            self.leave_nodes(id);
            self.refuse_spawns(id, Status::JOB_FAILED_TO_LAUNCH);
        }
        true
    }

    /// Tells the front of the first job that waits for the daemons of an allocation why there are none.
    fn tell_not_started(&mut self, id: u32, failed: &NotJoined) {
        let one = self.of_slurm.all.get(&id);
        let Some(by) = one.and_then(|one| Some(one.spawns.first()?.by)) else {
            return;
        };
        if let Some(spawner) = self.jobs.get_mut(&by.job)
            && spawner.tells_of_refused_spawn()
        {
            let (front, failed) = (spawner.front, failed.clone());
            self.tell(front, ToFront::Note(Note::SpawnNotStarted { by, failed }));
        }
    }

    /// Handles the loss of a daemon, if its node is of an allocation.
    pub(in crate::controller) fn allocation_node_lost(&mut self, node: NodeId) {
        if !self.is_of_allocation(node) {
            return;
        }
        let mut without = Vec::new();
        for (id, one) in &mut self.of_slurm.all {
            let had = one.nodes.remove(&node).is_some();
            if had && one.nodes.is_empty() {
                without.push(*id);
            }
        }
        self.forget_node(node);
        for id in without {
            self.refuse_spawns(id, Status::JOB_FAILED_TO_LAUNCH);
        }
    }
}
