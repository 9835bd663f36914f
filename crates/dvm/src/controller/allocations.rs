//! Allocations that procs request, or that a spawn request needs: who has them, what runs in them, and when they are over.
//!
//! The queue grants an allocation ([`crate::machine`]). A launcher without a queue asks Slurm if it runs inside a job of Slurm
//! ([`slurm`]); otherwise it has nothing to grant. The table is about the queue's allocations.
//!
//! | state | granted | not granted | released | has to end | its owner is gone | last job in it is over |
//! |---|---|---|---|---|---|---|
//! | waits, for a proc | the proc is answered → held | the proc is answered, over | over | – | over | – |
//! | waits, for a spawn | the job is added → held, and the job owns it | the spawner is answered, over | over | – | over | – |
//! | held, empty | – | – | over | over | over | – |
//! | held, jobs run in it | – | – | refused | its jobs are ended → ending | → left | held |
//! | ending or left | – | – | refused | its jobs are ended | – | over |
//!
//! Its owner is the job whose proc has requested it, until all ranks of that job have ended. All jobs that belong to the same job of a
//! front may use it; others do not find it.

pub(super) mod slurm;
mod spawns;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::{CStr, CString},
    sync::Arc,
    time::Duration,
};

use base::{HostList, JobId, NodeId, ProcId, Time};
use pmix::{
    allocation::{Granted, Wish},
    message::Answer,
    value::{AllocDirective, Info, Status},
};

use super::{Controller, Job, Phase, asks::Asker, spawned::Spawn};
use crate::{
    machine::{
        AllocationEnd, AllocationWish, COMMAND_MAX, Grant, Machine, NotChanged, NotDone,
        NotGranted, Rest, Room,
    },
    proto::{Cause, EndReason, Note, ToFront},
    queue::{NotExtended, Refusal},
};

/// Allocations that the job of a front and the jobs that it has spawned may have or wait for at the same time.
pub(super) const ALLOCATIONS_MAX: usize = 256;

/// All allocations, by their numbers in the queue.
#[derive(Debug, Default)]
pub(super) struct Allocations(BTreeMap<JobId, Allocation>);

#[derive(Debug)]
struct Allocation {
    /// The job with which it ends.
    owner: JobId,
    /// The job of a front to which its owner belongs.
    root: JobId,
    /// The name that the caller has given the request.
    request: Option<CString>,
    state: State,
}

#[derive(Debug)]
enum State {
    Waits(Purpose),
    Held {
        grant: Arc<Grant>,
        /// The jobs that run in it.
        inside: BTreeSet<JobId>,
        /// Why it has to end.
        end: Option<EndReason>,
    },
}

/// What happens when an allocation is granted.
#[derive(Debug)]
enum Purpose {
    /// The proc gets an answer.
    Answer(Asker, ProcId),
    /// The job is added.
    Spawn(Box<Spawn>),
}

impl Purpose {
    const fn by(&self) -> ProcId {
        match self {
            Self::Answer(_, by) => *by,
            Self::Spawn(spawn) => spawn.by,
        }
    }
}

/// What a proc wants of an allocation that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Extend,
    Release,
    Reacquire,
}

impl Change {
    /// Returns what a directive does to an allocation; `None` if it requests a new one.
    const fn of(directive: AllocDirective) -> Result<Option<Self>, Status> {
        match directive {
            AllocDirective::NEW => Ok(None),
            AllocDirective::EXTEND => Ok(Some(Self::Extend)),
            AllocDirective::RELEASE => Ok(Some(Self::Release)),
            AllocDirective::REACQUIRE => Ok(Some(Self::Reacquire)),
            _ => Err(Status::NOT_SUPPORTED),
        }
    }
}

impl Allocations {
    /// Returns the allocation in which a job runs.
    pub(super) fn of(&self, job: JobId) -> Option<JobId> {
        let has = |allocation: &Allocation| match &allocation.state {
            State::Held { inside, .. } => inside.contains(&job),
            State::Waits(_) => false,
        };
        let mut all = self.0.iter();
        all.find(|(_, allocation)| has(allocation))
            .map(|(id, _)| *id)
    }

    fn state(&self, id: JobId) -> Option<&State> {
        self.0.get(&id).map(|allocation| &allocation.state)
    }

    fn state_mut(&mut self, id: JobId) -> Option<&mut State> {
        self.0.get_mut(&id).map(|allocation| &mut allocation.state)
    }

    /// Returns an allocation by the name that the machine or the caller has given it.
    fn named(&self, root: JobId, name: &CStr) -> Option<JobId> {
        let number = name.to_str().ok().and_then(|text| text.parse().ok());
        let of_root = |id: &JobId| self.0.get(id).is_some_and(|one| one.root == root);
        let by_number = number.map(JobId).filter(of_root);
        let by_request = || {
            let mut all = self.0.iter();
            let is_meant =
                |one: &Allocation| one.root == root && one.request.as_deref() == Some(name);
            all.find(|(_, one)| is_meant(one)).map(|(id, _)| *id)
        };
        by_number.or_else(by_request)
    }
}

impl Controller {
    /// Handles a proc's request about an allocation.
    pub(super) fn on_allocate(
        &mut self,
        now: Time,
        asker: Asker,
        by: ProcId,
        directive: AllocDirective,
        infos: &[Info],
    ) {
        if self.machine.is_none() {
            let passed = match self.is_in_slurm() {
                true => self.ask_slurm(now, asker, by, directive, infos),
                false => {
                    self.tell_of_no_scheduler(by);
                    Err(Status::NOT_SUPPORTED)
                }
            };
            if let Err(status) = passed {
                self.answer(asker, &Answer::Status(status));
            }
            return;
        }
        let answer = Change::of(directive).and_then(|change| match change {
            None => self
                .request_allocation(now, asker, by, infos)
                .map(|()| None),
            Some(change) => self.change_allocation(now, by, change, infos).map(Some),
        });
        match answer {
            Ok(None) => {}
            Ok(Some(answer)) => self.answer(asker, &answer),
            Err(status) => self.answer(asker, &Answer::Status(status)),
        }
    }

    /// Tells the front of a job, once, that no queue grants allocations.
    fn tell_of_no_scheduler(&mut self, by: ProcId) {
        let root = self.jobs.get(&by.job).map(|job| job.root);
        let root = root.and_then(|root| self.jobs.get_mut(&root));
        if let Some(root) = root
            && root.tells_of_no_scheduler()
        {
            let front = root.front;
            self.tell(front, ToFront::Note(Note::NoScheduler { by }));
        }
    }

    fn request_allocation(
        &mut self,
        now: Time,
        asker: Asker,
        by: ProcId,
        infos: &[Info],
    ) -> Result<(), Status> {
        let (root, wish) = self.allocation_asker(by, infos)?;
        let purpose = Purpose::Answer(asker, by);
        self.new_allocation(now, root, &wish, purpose)
    }

    /// Returns the job of the front to which the caller belongs, and what it wants.
    fn allocation_asker(&self, by: ProcId, infos: &[Info]) -> Result<(JobId, Wish), Status> {
        let host = self.machine.as_ref().ok_or(Status::NOT_SUPPORTED)?;
        let wish = Wish::read(infos)?;
        let queue = wish.queue.as_ref().map(|queue| queue.as_bytes());
        if queue.is_some_and(|queue| queue != host.machine.name().as_bytes()) {
            return Err(Status::NOT_FOUND);
        }
        Ok((self.asking_root(by)?, wish))
    }

    /// Returns the job of the front to which a proc belongs that may get something. A tool belongs to none.
    fn asking_root(&self, by: ProcId) -> Result<JobId, Status> {
        if self.tools.contains(by.job) {
            return Ok(by.job);
        }
        let job = self.jobs.get(&by.job).filter(|job| !job.is_ending());
        let job = job.filter(|_| !self.has_ended(by));
        job.map(|job| job.root).ok_or(Status::NOT_AVAILABLE)
    }

    /// Puts a request for an allocation into the queue.
    fn new_allocation(
        &mut self,
        now: Time,
        root: JobId,
        wish: &Wish,
        purpose: Purpose,
    ) -> Result<(), Status> {
        let of_root = self.allocations.0.values().filter(|one| one.root == root);
        if of_root.count() >= ALLOCATIONS_MAX {
            return Err(Status::OUT_OF_RESOURCE);
        }
        // Before version 4 of the Standard, callers named their requests by the other attribute.
        let request = wish.request.clone().or_else(|| wish.allocation.clone());
        let is_taken = |name: &CString| self.allocations.named(root, name).is_some();
        if request.as_ref().is_some_and(is_taken) {
            return Err(Status::EXISTS);
        }
        let name = request
            .as_ref()
            .map_or_else(|| "allocation".into(), |name| name.to_string_lossy());
        let asked = AllocationWish {
            by: root,
            name: name.chars().take(COMMAND_MAX).collect(),
            room: room_of(wish),
            time_limit: wish.time,
            patience: wish.timeout,
        };
        let id =
            self.of_machine(|machine| machine.allocate(now, asked).map_err(|why| refused(&why)))?;
        let allocation = Allocation {
            owner: purpose.by().job,
            root,
            request,
            state: State::Waits(purpose),
        };
        self.allocations.0.insert(id, allocation);
        Ok(())
    }

    /// Calls the machine, without which nothing can be done.
    fn of_machine<T>(
        &mut self,
        act: impl FnOnce(&mut Machine) -> Result<T, Status>,
    ) -> Result<T, Status> {
        match &mut self.machine {
            Some(host) => act(&mut host.machine),
            None => Err(Status::NOT_SUPPORTED),
        }
    }

    fn change_allocation(
        &mut self,
        now: Time,
        by: ProcId,
        change: Change,
        infos: &[Info],
    ) -> Result<Answer, Status> {
        let (root, wish) = self.allocation_asker(by, infos)?;
        let id = self.find_allocation(root, &wish)?;
        let allocation = self.allocations.0.get(&id).ok_or(Status::NOT_FOUND)?;
        match (&allocation.state, change) {
            (State::Waits(_), Change::Release) => {
                self.end_wait(id, Status::JOB_CANCELED);
                self.forget_allocation(now, id);
                return Ok(done());
            }
            (State::Waits(_), Change::Extend | Change::Reacquire) => {
                return Err(Status::OPERATION_IN_PROGRESS);
            }
            (State::Held { end: Some(_), .. }, _) => return Err(Status::NOT_AVAILABLE),
            (State::Held { end: None, .. }, _) => {}
        }
        let room = room_of(&wish);
        match change {
            Change::Reacquire => {}
            Change::Extend => {
                let grant = self.of_machine(|machine| {
                    let extended = machine.extend_allocation(now, id, &room, wish.time);
                    extended.map_err(|why| unchanged(&why))
                })?;
                self.set_grant(id, grant);
            }
            Change::Release => {
                if self.release_allocation(now, id, &room)? == Rest::Nothing {
                    return Ok(done());
                }
            }
        }
        let granted = self.granted_infos(id).ok_or(Status::NOT_FOUND)?;
        Ok(granted)
    }

    fn find_allocation(&self, root: JobId, wish: &Wish) -> Result<JobId, Status> {
        let name = wish.allocation.as_ref().or(wish.request.as_ref());
        let name = name.ok_or(Status::BAD_PARAM)?;
        self.allocations.named(root, name).ok_or(Status::NOT_FOUND)
    }

    /// Gives an allocation back, or a part of it. Nothing may run there.
    fn release_allocation(&mut self, now: Time, id: JobId, room: &Room) -> Result<Rest, Status> {
        let busy = self.busy_nodes(id)?;
        let rest = if *room == Room::default() {
            let is_free = busy.is_empty();
            is_free
                .then_some(Rest::Nothing)
                .ok_or(Status::RESOURCE_BUSY)?
        } else {
            self.of_machine(|machine| {
                let shrunk = machine.shrink_allocation(now, id, room, &busy);
                shrunk.map_err(|why| unchanged(&why))
            })?
        };
        match &rest {
            Rest::Nothing => self.forget_allocation(now, id),
            Rest::Some(grant) => self.set_grant(id, grant.clone()),
        }
        Ok(rest)
    }

    /// Returns the nodes on which jobs of an allocation run.
    fn busy_nodes(&self, id: JobId) -> Result<BTreeSet<NodeId>, Status> {
        let inside = match self.allocations.0.get(&id).map(|one| &one.state) {
            Some(State::Held { inside, .. }) => inside,
            Some(State::Waits(_)) | None => return Err(Status::NOT_FOUND),
        };
        let jobs = inside.iter().filter_map(|job| self.jobs.get(job));
        let mut busy = BTreeSet::new();
        for job in jobs {
            if job.phase == Phase::Waiting {
                // It may be placed anywhere.
                return Err(Status::RESOURCE_BUSY);
            }
            let shares = job.shares.iter().filter(|(_, share)| !share.clean);
            busy.extend(shares.map(|(node, _)| *node));
        }
        Ok(busy)
    }

    fn set_grant(&mut self, id: JobId, new: Grant) {
        if let Some(allocation) = self.allocations.0.get_mut(&id)
            && let State::Held { grant, .. } = &mut allocation.state
        {
            *grant = Arc::new(new);
        }
    }

    /// Returns the state of an allocation, which its owner has named, in a word; `None` if there is none.
    pub(super) fn allocation_status(&self, by: ProcId, name: &CStr) -> Option<&'static str> {
        let root = self.asking_root(by).ok()?;
        let id = self.allocations.named(root, name)?;
        Some(match self.allocations.state(id)? {
            State::Waits(_) => "waits",
            State::Held { end: None, .. } => "granted",
            State::Held { end: Some(_), .. } => "ends",
        })
    }

    /// Returns how long a job may still run: until the end of its allocation, or its own time limit, or that of the job of the front to which
    /// it belongs. `None` if it has no limit.
    pub(super) fn time_left(&self, now: Time, job: &Job) -> Option<Duration> {
        let machine = self.machine.as_ref().map(|host| &host.machine);
        let allocation = self.allocations.of(job.id);
        let of_allocation = allocation
            .zip(machine)
            .and_then(|(id, machine)| machine.allocation_ends_at(id));
        let root = self.jobs.get(&job.root);
        let of_jobs = [Some(job), root].into_iter().flatten();
        let ends = of_jobs.filter_map(Job::ends_at).chain(of_allocation);
        ends.min().map(|at| at.since(now))
    }

    /// Returns the answer that describes a held allocation.
    fn granted_infos(&self, id: JobId) -> Option<Answer> {
        let allocation = self.allocations.0.get(&id)?;
        let State::Held { grant, .. } = &allocation.state else {
            return None;
        };
        let slots = grant.slots.values().copied();
        let hosts: HostList = grant.slots.keys().map(|node| self.name_of(*node)).collect();
        let granted = Granted {
            allocation: CString::new(id.to_string()).ok()?,
            request: allocation.request.clone(),
            hosts,
            cpus: slots.fold(0, u32::saturating_add),
            time: None,
        };
        Some(Answer::Infos {
            status: Status::SUCCESS,
            infos: granted.infos(),
        })
    }

    /// Forgets an allocation in which nothing runs.
    fn forget_allocation(&mut self, now: Time, id: JobId) {
        self.allocations.0.remove(&id);
        self.with_machine(|machine| machine.allocation_over(now, id));
    }

    /// Answers the proc that has waited for an allocation, or adds the job that needs it.
    pub(super) fn granted(&mut self, now: Time, id: JobId, grant: Grant) {
        let held = State::Held {
            grant: Arc::new(grant),
            inside: BTreeSet::new(),
            end: None,
        };
        let Some(allocation) = self.allocations.0.get_mut(&id) else {
            return self.forget_allocation(now, id);
        };
        let State::Waits(purpose) = std::mem::replace(&mut allocation.state, held) else {
            return;
        };
        let root = allocation.root;
        if !self.may_spawn(purpose.by(), root) {
            self.tell_not_granted(purpose, Status::NOT_AVAILABLE);
            return self.forget_allocation(now, id);
        }
        match purpose {
            Purpose::Answer(asker, _) => {
                if let Some(answer) = self.granted_infos(id) {
                    self.answer(asker, &answer);
                }
            }
            Purpose::Spawn(spawn) => {
                if let Some(allocation) = self.allocations.0.get_mut(&id) {
                    allocation.owner = JobId(self.next_job);
                }
                let (asker, partner) = (spawn.asker, spawn.partner());
                if let Err(status) = self.spawn_inside(now, *spawn, Some(id)) {
                    self.spawn_failed(asker, partner, status);
                }
                // If it was refused, the allocation is over too.
                self.reap_allocations(now);
            }
        }
    }

    /// Returns false if nobody would learn of what this proc has spawned, or end it. What a tool spawns ends with its `root`:
    /// the job of a front, or on a machine the tool.
    fn may_spawn(&self, by: ProcId, root: JobId) -> bool {
        if self.tools.contains(by.job) {
            let job = self.jobs.get(&root);
            return root == by.job || job.is_some_and(|job| !job.is_ending());
        }
        let ends = self.jobs.get(&by.job).is_none_or(Job::is_ending);
        !ends && !self.has_ended(by)
    }

    /// Answers a proc that does not get an allocation.
    pub(super) fn not_granted(&mut self, id: JobId, why: NotGranted) {
        let status = match why {
            NotGranted::TimedOut => Status::TIMEOUT,
            NotGranted::Canceled => Status::JOB_CANCELED,
        };
        self.end_wait(id, status);
    }

    /// Forgets an allocation that is not granted, and answers whoever waits for it.
    fn end_wait(&mut self, id: JobId, status: Status) {
        let waits = |one: &mut Allocation| matches!(one.state, State::Waits(_));
        let removed = self.allocations.0.extract_if(id..=id, |_, one| waits(one));
        let removed: Vec<_> = removed.collect();
        for (_, allocation) in removed {
            if let State::Waits(purpose) = allocation.state {
                self.tell_not_granted(purpose, status);
            }
        }
    }

    fn tell_not_granted(&mut self, purpose: Purpose, status: Status) {
        match purpose {
            Purpose::Answer(asker, _) => self.answer(asker, &Answer::Status(status)),
            Purpose::Spawn(spawn) => self.spawn_failed(spawn.asker, spawn.partner(), status),
        }
    }

    /// Ends what runs in an allocation, and then the allocation.
    pub(super) fn end_allocation(&mut self, now: Time, id: JobId, why: AllocationEnd) {
        let reason = match why {
            AllocationEnd::TimeLimit => EndReason::TimeLimit,
            AllocationEnd::Canceled => EndReason::Canceled,
        };
        let Some(allocation) = self.allocations.0.get_mut(&id) else {
            return self.forget_allocation(now, id);
        };
        let State::Held { inside, end, .. } = &mut allocation.state else {
            return;
        };
        end.get_or_insert(reason);
        for job in inside.clone() {
            self.end(job, Cause::Ended(reason));
        }
        self.reap_allocations(now);
    }

    /// Gives back the allocations that nobody needs any more. Part of every input, because the ends of jobs decide it.
    pub(super) fn reap_allocations(&mut self, now: Time) {
        if self.allocations.0.is_empty() {
            return;
        }
        let jobs = &self.jobs;
        let tools = &self.tools;
        let is_gone =
            |owner: &JobId| jobs.get(owner).is_none_or(has_left) && !tools.contains(*owner);
        let mut over = Vec::new();
        let waits = self.allocations.0.iter();
        let waits = waits.filter_map(|(id, allocation)| match &allocation.state {
            State::Waits(purpose) => Some((*id, purpose.by())),
            State::Held { .. } => None,
        });
        let for_nobody = waits.filter(|(_, by)| self.has_ended(*by));
        let for_nobody: BTreeSet<JobId> = for_nobody.map(|(id, _)| id).collect();
        for (id, allocation) in &mut self.allocations.0 {
            let is_over = match &mut allocation.state {
                State::Waits(_) => is_gone(&allocation.owner) || for_nobody.contains(id),
                State::Held { inside, end, .. } => {
                    inside.retain(|job| jobs.contains_key(job));
                    inside.is_empty() && (end.is_some() || is_gone(&allocation.owner))
                }
            };
            over.extend(is_over.then_some(*id));
        }
        for id in over {
            self.end_wait(id, Status::JOB_CANCELED);
            self.forget_allocation(now, id);
        }
    }
}

/// Returns true if no rank of a job is left that could use an allocation.
fn has_left(job: &Job) -> bool {
    job.phase != Phase::Waiting && job.has_no_rank_left()
}

/// Returns the answer to a release. libpmix expects infos after a success, even if there are none.
const fn done() -> Answer {
    Answer::Infos {
        status: Status::SUCCESS,
        infos: Vec::new(),
    }
}

fn room_of(wish: &Wish) -> Room {
    Room {
        nodes: wish.nodes,
        slots: wish.cpus,
        hosts: wish.hosts.clone(),
    }
}

/// Maps the reason why a request can never be granted to a status.
const fn refused(why: &NotDone) -> Status {
    match why {
        NotDone::GoingDown => Status::NOT_AVAILABLE,
        NotDone::NoSuchNode(_) => Status::NOT_FOUND,
        NotDone::NotAccepted(Refusal::NoSlots) => Status::BAD_PARAM,
        _ => Status::OUT_OF_RESOURCE,
    }
}

/// Maps the reason why an allocation stays as it is to a status.
const fn unchanged(why: &NotChanged) -> Status {
    match why {
        NotChanged::Mismatch => Status::BAD_PARAM,
        NotChanged::NoSuchNode(_) | NotChanged::NotHeld => Status::NOT_FOUND,
        NotChanged::NotExtended(NotExtended::NotRunning) => Status::NOT_AVAILABLE,
        NotChanged::NotExtended(NotExtended::Limit) => Status::OUT_OF_RESOURCE,
        NotChanged::NotExtended(NotExtended::Delays(_) | NotExtended::NoRoom)
        | NotChanged::Busy => Status::RESOURCE_BUSY,
    }
}
