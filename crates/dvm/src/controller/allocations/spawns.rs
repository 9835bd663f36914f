//! Jobs that are spawned into an allocation, and spawn requests that ask for one.

use std::{collections::BTreeSet, sync::Arc};

use base::{JobId, NodeId, Time};
use pmix::{
    allocation::Wish,
    value::{Info, InfoFlags, Status},
};

use super::{Purpose, State, room_of};
use crate::{
    controller::{Controller, Job, Phase, spawned::Spawn, tools::target_of},
    machine::{Grant, Room},
    place::Oversubscribe,
    spec::JobSpec,
};

impl Controller {
    /// Adds a spawned job: in the allocation that the request names, in a new one that it asks for, or where its spawner runs.
    pub(in crate::controller) fn spawn_where(
        &mut self,
        now: Time,
        spawn: Spawn,
        infos: &[Info],
    ) -> Result<(), Status> {
        if self.is_in_slurm() {
            return self.spawn_in_slurm(now, spawn, infos);
        }
        if self.machine.is_none() {
            // Nobody looks at what is not required.
            if infos.iter().any(is_required) {
                self.tell_of_no_scheduler(spawn.by);
                return Err(Status::NOT_SUPPORTED);
            }
            return self.spawn_inside(now, spawn, None);
        }
        let mut wish = Wish::read(infos)?;
        let root = spawn.root;
        // A tool has no slots. Daemons of a debugger share those of their target.
        let is_of_tool = self.tools.contains(spawn.by.job) && target_of(infos).is_none();
        let needs_its_own = is_of_tool && wish.allocation.is_none();
        if !wish.asks_for_resources() && !needs_its_own {
            let inside = match &wish.allocation {
                Some(_) => Some(self.find_allocation(root, &wish)?),
                None => self.allocations.of(self.beside(spawn.by, infos)),
            };
            self.check_enterable(inside)?;
            return self.spawn_inside(now, spawn, inside);
        }
        if wish.allocation.is_some() {
            // It names an allocation, and asks for another one.
            return Err(Status::BAD_PARAM);
        }
        self.allocation_asker(spawn.by, infos)?;
        ask_for_procs(&mut wish, &spawn);
        self.new_allocation(now, root, &wish, Purpose::Spawn(Box::new(spawn)))
    }

    /// Checks that a job may start in an allocation.
    fn check_enterable(&self, id: Option<JobId>) -> Result<(), Status> {
        let allocation = id.and_then(|id| self.allocations.0.get(&id));
        match allocation.map(|allocation| &allocation.state) {
            Some(State::Waits(_)) => Err(Status::OPERATION_IN_PROGRESS),
            Some(State::Held { end: Some(_), .. }) => Err(Status::NOT_AVAILABLE),
            Some(State::Held { end: None, .. }) | None => Ok(()),
        }
    }

    /// Notes that the next job runs in an allocation, and returns what it may use there: what other jobs there have left. `None` if the
    /// allocation is not held.
    ///
    /// # Errors
    ///
    /// [`Status::OUT_OF_RESOURCE`] if too few slots are left, and its procs do not want to share some.
    pub(in crate::controller) fn enter_allocation(
        &mut self,
        id: JobId,
        spec: &JobSpec,
    ) -> Result<Option<Arc<Grant>>, Status> {
        let Some(State::Held { grant, inside, .. }) = self.allocations.state(id) else {
            return Ok(None);
        };
        let left = self.left_for(grant, inside, spec)?;
        let next = JobId(self.next_job);
        if let Some(State::Held { inside, .. }) = self.allocations.state_mut(id) {
            inside.insert(next);
        }
        Ok(Some(left))
    }

    /// Returns what a job may use of an allocation: what others that run there have left.
    ///
    /// # Errors
    ///
    /// [`Status::OUT_OF_RESOURCE`] if too few slots are left, and its procs do not want to share some.
    pub(super) fn left_for(
        &self,
        grant: &Grant,
        inside: &BTreeSet<JobId>,
        spec: &JobSpec,
    ) -> Result<Arc<Grant>, Status> {
        let is_there = |node: &NodeId| self.nodes.contains_key(node);
        let mut rest = grant.clone();
        // If some of its nodes are lost, the others can be used. If all are, the placement says so.
        if rest.slots.keys().any(is_there) {
            rest.slots.retain(|node, _| is_there(node));
        }
        let mut left = rest.clone();
        for job in inside.iter().filter_map(|job| self.jobs.get(job)) {
            take_from(&mut left, job);
        }
        left.slots.retain(|_, slots| *slots > 0);
        let is_enough = slots_of(spec) <= sum(&left);
        if !is_enough && !shares_slots(spec) {
            return Err(Status::OUT_OF_RESOURCE);
        }
        Ok(Arc::new(if is_enough { left } else { rest }))
    }
}

/// Lets a request that names no resources ask for what its procs need.
pub(super) fn ask_for_procs(wish: &mut Wish, spawn: &Spawn) {
    if room_of(wish) == Room::default() {
        let procs = spawn.spec.placement.apps.iter();
        let procs = procs.map(|app| app.count.unwrap_or(1));
        wish.cpus = Some(procs.fold(0, u32::saturating_add));
    }
}

/// Returns the slots that a job needs.
fn slots_of(spec: &JobSpec) -> u32 {
    let counts = spec.placement.apps.iter().map(|app| app.count.unwrap_or(1));
    let procs = counts.fold(0, u32::saturating_add);
    procs.saturating_mul(spec.placement.cpus_per_proc())
}

/// Returns true if the request says that procs may share slots. Outside of allocations, those of spawned jobs always may.
fn shares_slots(spec: &JobSpec) -> bool {
    let map = spec.placement.map_of_all();
    map.and_then(|map| map.oversubscribe) == Some(Oversubscribe::Allow)
}

fn sum(grant: &Grant) -> u32 {
    grant.slots.values().copied().fold(0, u32::saturating_add)
}

/// Takes what a job has of a grant. What is not placed yet counts for the first nodes that have room.
fn take_from(grant: &mut Grant, job: &Job) {
    let each = job.spec.placement.cpus_per_proc();
    if job.phase == Phase::Waiting {
        let mut wanted = slots_of(&job.spec);
        for slots in grant.slots.values_mut() {
            let taken = wanted.min(*slots);
            *slots -= taken;
            wanted -= taken;
        }
        return;
    }
    for (node, share) in job.shares.iter().filter(|(_, share)| !share.clean) {
        if let Some(slots) = grant.slots.get_mut(node) {
            let procs = u32::try_from(share.ranks.len()).unwrap_or(u32::MAX);
            *slots = slots.saturating_sub(procs.saturating_mul(each));
        }
    }
}

/// Returns true if the caller insists on an attribute about allocations.
fn is_required(info: &Info) -> bool {
    let is_processed = info.flags.has(InfoFlags::REQUIRED_PROCESSED);
    info.flags.has(InfoFlags::REQUIRED)
        && !is_processed
        && Wish::KEYS.iter().any(|key| info.key == **key)
}
