//! Requests for allocations that are passed to Slurm, in whose job we run: who has asked, and who gets the answer.
//!
//! What happens to one of them decides [`crate::slurm`]. An allocation ends with the job whose proc has requested it, or with the last
//! job that was spawned there; the job of the front waits for it, so that its front is told if it cannot be given back.

mod spawns;

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::{CStr, CString},
};

use base::{JobId, NodeId, ProcId, Time};
use pmix::{
    allocation::{Granted, Wish},
    message::Answer,
    value::{AllocDirective, Info, Status},
};

use super::{ALLOCATIONS_MAX, Change, done, has_left};
use crate::{
    controller::{
        Controller, ControllerOutput, Job,
        asks::Asker,
        spawned::{Spawn, cospawn::Partner},
    },
    proto::{AllocationRefusal, Note, ToFront},
    slurm::{
        CommandNumber, Described, Held, Input, News, Output, Refused, Setup, Urgency, Wanted,
        job_name,
    },
};

/// What our names of Slurm's jobs begin with, as in the commands about them.
const PREFIX: &str = "slurm:";

/// Allocations of Slurm, and the commands that run for them.
#[derive(Debug, Default)]
pub(in crate::controller) struct OfSlurm {
    /// `None` if we do not run inside Slurm.
    setup: Option<Setup>,
    /// Number of nodes of the job in which we run. Those of its allocations follow.
    pub(in crate::controller) own_nodes: usize,
    all: BTreeMap<u32, Requested>,
    next: u32,
    /// The allocations of the commands that run and are heard.
    commands: BTreeMap<CommandNumber, u32>,
    next_command: CommandNumber,
}

/// An allocation that a proc has requested.
#[derive(Debug)]
struct Requested {
    purpose: Purpose,
    /// The job whose proc has requested it.
    owner: JobId,
    /// The job of a front to which its owner belongs.
    root: JobId,
    /// The name that the caller has given the request.
    request: Option<CString>,
    held: Held,
    command: Option<CommandNumber>,
    /// The proc that waits for an answer, and what it has asked for.
    waits: Option<Waits>,
    /// `None` until it is granted.
    has: Option<Described>,
    /// Its nodes, with the slots of each. Empty while nothing was spawned there.
    nodes: BTreeMap<NodeId, u32>,
    /// Jobs that are to be spawned there, and wait for the allocation or for daemons.
    spawns: Vec<Spawn>,
    /// The jobs that run there.
    inside: BTreeSet<JobId>,
}

/// What an allocation was requested for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// The proc uses it, until its job is over.
    Proc,
    /// The job that needs it is spawned there. Nobody else knows of it.
    Spawn,
}

/// What is requested of Slurm.
#[derive(Debug)]
enum New {
    Allocation(Asker),
    /// An allocation for this job.
    Job(Box<Spawn>),
}

#[derive(Clone, Copy, Debug)]
struct Waits {
    asker: Asker,
    by: ProcId,
    what: What,
}

/// What the end of a wait means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// The proc gets a description.
    Description,
    /// The proc learns that the allocation is over.
    Release,
}

impl OfSlurm {
    /// Returns an allocation by the name that Slurm or the caller has given it.
    fn named(&self, root: JobId, name: &CStr) -> Option<u32> {
        let text = name.to_str().ok();
        let number = text.and_then(|text| text.strip_prefix(PREFIX).unwrap_or(text).parse().ok());
        let is_meant = |one: &Requested| {
            let by_number = number.is_some() && one.held.job() == number;
            one.root == root && (by_number || one.request.as_deref() == Some(name))
        };
        let mut all = self.all.iter();
        all.find(|(_, one)| is_meant(one)).map(|(id, _)| *id)
    }

    /// Returns true if a job of a front has allocations that are not given back yet.
    pub(in crate::controller) fn has_of(&self, root: JobId) -> bool {
        self.all.values().any(|one| one.root == root)
    }

    pub(in crate::controller) fn deadline(&self) -> Option<Time> {
        let deadlines = self.all.values();
        deadlines.filter_map(|one| one.held.deadline()).min()
    }
}

impl Controller {
    pub(in crate::controller) const fn run_in_slurm(&mut self, setup: Setup) {
        self.of_slurm.setup = Some(setup);
        self.of_slurm.own_nodes = self.allocation.nodes.len();
    }

    /// Returns true if requests are passed to Slurm.
    pub(in crate::controller) const fn is_in_slurm(&self) -> bool {
        self.of_slurm.setup.is_some()
    }

    /// Handles a proc's request about an allocation. Returns the answer if there is one already.
    pub(super) fn ask_slurm(
        &mut self,
        now: Time,
        asker: Asker,
        by: ProcId,
        directive: AllocDirective,
        infos: &[Info],
    ) -> Result<(), Status> {
        let change = Change::of(directive)?;
        let wish = Wish::read(infos)?;
        let root = self.asking_root(by)?;
        let Some(change) = change else {
            return self.request_of_slurm(now, by, root, &wish, New::Allocation(asker));
        };
        let name = wish.allocation.as_ref().or(wish.request.as_ref());
        let name = name.ok_or(Status::BAD_PARAM)?;
        let id = self.of_slurm.named(root, name).ok_or(Status::NOT_FOUND)?;
        let input = match change {
            Change::Reacquire => Input::Describe,
            Change::Release if has_part(&wish) => {
                self.tell_refused(by, AllocationRefusal::Part);
                return Err(Status::NOT_SUPPORTED);
            }
            Change::Release if self.is_in_use(id) => return Err(Status::RESOURCE_BUSY),
            Change::Release => Input::Cancel,
            Change::Extend if has_part(&wish) => {
                self.tell_refused(by, AllocationRefusal::MoreNodes);
                return Err(Status::NOT_SUPPORTED);
            }
            Change::Extend => Input::Extend(wish.time.ok_or(Status::BAD_PARAM)?),
        };
        self.change_of_slurm(now, id, Waits::of(asker, by, change), input)
    }

    /// Requests a new allocation of Slurm.
    fn request_of_slurm(
        &mut self,
        now: Time,
        by: ProcId,
        root: JobId,
        wish: &Wish,
        new: New,
    ) -> Result<(), Status> {
        let setup = self.of_slurm.setup.ok_or(Status::NOT_SUPPORTED)?;
        let of_root = self.of_slurm.all.values().filter(|one| one.root == root);
        if of_root.count() >= ALLOCATIONS_MAX {
            return Err(Status::OUT_OF_RESOURCE);
        }
        // Before version 4 of the Standard, callers named their requests by the other attribute.
        let request = wish.request.clone().or_else(|| wish.allocation.clone());
        let is_taken = |name: &CString| self.of_slurm.named(root, name).is_some();
        if request.as_ref().is_some_and(is_taken) {
            return Err(Status::EXISTS);
        }
        let text = |text: &CString| text.to_string_lossy().into_owned();
        let wanted = Wanted {
            owner: setup.job,
            name: job_name(&self.name),
            request: request.as_ref().map(text),
            nodes: wish.nodes,
            cpus: wish.cpus,
            hosts: wish.hosts.clone(),
            time: wish.time,
            partition: wish.queue.as_ref().map(text),
        };
        let held = Held::new(now, &wanted, wish.timeout, setup.patience);
        let id = self.of_slurm.next;
        self.of_slurm.next += 1;
        let (purpose, waits, spawns) = match new {
            New::Allocation(asker) => {
                let what = What::Description;
                (Purpose::Proc, Some(Waits { asker, by, what }), Vec::new())
            }
            New::Job(spawn) => (Purpose::Spawn, None, vec![*spawn]),
        };
        let requested = Requested {
            purpose,
            owner: by.job,
            root,
            request,
            held,
            command: None,
            waits,
            has: None,
            nodes: BTreeMap::new(),
            spawns,
            inside: BTreeSet::new(),
        };
        self.of_slurm.all.insert(id, requested);
        self.pump_of_slurm(id);
        Ok(())
    }

    fn change_of_slurm(
        &mut self,
        now: Time,
        id: u32,
        waits: Waits,
        input: Input,
    ) -> Result<(), Status> {
        let one = self.of_slurm.all.get_mut(&id).ok_or(Status::NOT_FOUND)?;
        if one.held.is_ending() {
            return Err(Status::NOT_AVAILABLE);
        }
        if waits.what == What::Description && !one.held.is_held() {
            return Err(Status::OPERATION_IN_PROGRESS);
        }
        let before = one.waits.replace(waits);
        one.held.handle(now, input);
        if let Some(before) = before {
            self.answer(before.asker, &Answer::Status(Status::JOB_CANCELED));
        }
        self.pump_of_slurm(id);
        Ok(())
    }

    /// Handles news of a command.
    pub(in crate::controller) fn on_command_news(
        &mut self,
        now: Time,
        number: CommandNumber,
        news: News,
    ) {
        let Some(id) = self.of_slurm.commands.get(&number).copied() else {
            return;
        };
        let input = match news {
            News::Printed(bytes) => Input::Printed(bytes),
            News::Ended(status) => Input::Ended(status),
            News::NotRun(why) => Input::NotRun(why),
        };
        if !matches!(input, Input::Printed(_)) {
            self.of_slurm.commands.remove(&number);
        }
        if let Some(one) = self.of_slurm.all.get_mut(&id) {
            one.held.handle(now, input);
            self.pump_of_slurm(id);
        }
    }

    pub(in crate::controller) fn tick_of_slurm(&mut self, now: Time) {
        for id in self.of_slurm.all.keys().copied().collect::<Vec<_>>() {
            if let Some(one) = self.of_slurm.all.get_mut(&id) {
                one.held.handle(now, Input::Tick);
                self.pump_of_slurm(id);
            }
        }
    }

    /// Gives back the allocations that nobody needs any more. Part of every input, because the ends of jobs decide it.
    pub(in crate::controller) fn reap_of_slurm(&mut self, now: Time) {
        if self.of_slurm.all.is_empty() {
            return;
        }
        let jobs = &self.jobs;
        for one in self.of_slurm.all.values_mut() {
            // Those that are complete are about to be finished.
            let is_left = |job: &Job| !job.is_settled();
            one.inside.retain(|job| jobs.get(job).is_some_and(is_left));
        }
        self.refuse_orphans();
        let is_gone = |owner: &JobId| self.jobs.get(owner).is_none_or(has_left);
        let is_needed = |one: &Requested| {
            let by_owner = one.purpose == Purpose::Proc && !is_gone(&one.owner);
            by_owner || !one.spawns.is_empty() || !one.inside.is_empty()
        };
        let all = self.of_slurm.all.iter();
        let over = all.filter(|(_, one)| !one.held.is_ending() && !is_needed(one));
        for id in over.map(|(id, _)| *id).collect::<Vec<_>>() {
            let Some(one) = self.of_slurm.all.get_mut(&id) else {
                continue;
            };
            let waits = one.waits.take();
            one.held.handle(now, Input::Cancel);
            if let Some(waits) = waits {
                self.answer(waits.asker, &Answer::Status(Status::JOB_CANCELED));
            }
            self.pump_of_slurm(id);
        }
    }

    /// Carries out what an allocation wants.
    fn pump_of_slurm(&mut self, id: u32) {
        while let Some(one) = self.of_slurm.all.get_mut(&id)
            && let Some(output) = one.held.poll()
        {
            match output {
                Output::Run(words) => {
                    if one.held.is_ending() {
                        self.leave_nodes(id);
                    }
                    self.run_for(id, words);
                }
                Output::End(urgency) => {
                    let Some(number) = one.command else {
                        continue;
                    };
                    if urgency == Urgency::Kill {
                        self.of_slurm.commands.remove(&number);
                    }
                    self.outputs
                        .push_back(ControllerOutput::EndCommand(number, urgency));
                }
                Output::Granted(described) => {
                    let answer = one.described(&described);
                    one.has = Some(described);
                    if let Some(waits) = one.waits.take() {
                        self.answer(waits.asker, &answer);
                    }
                    self.start_daemons(id);
                }
                Output::Refused(why) => {
                    let asked = one.waits.take().map(|waits| (waits.asker, waits.by));
                    // Without the allocation, there is nothing to spawn into.
                    let spawns = match one.has {
                        None => std::mem::take(&mut one.spawns),
                        Some(_) => Vec::new(),
                    };
                    let asked = asked.map(|(asker, by)| (asker, by, Partner::Nothing));
                    let spawns = spawns.iter();
                    let spawns = spawns.map(|spawn| (spawn.asker, spawn.by, spawn.partner()));
                    for (asker, by, partner) in asked.into_iter().chain(spawns) {
                        self.spawn_failed(asker, partner, why.status());
                        if let Refused::BySlurm(why) = &why {
                            self.tell_refused(by, AllocationRefusal::BySlurm(why.clone()));
                        }
                    }
                }
                Output::Left(why) => {
                    let (root, job) = (one.root, one.held.job());
                    if let Some(waits) = one.waits.take() {
                        self.answer(waits.asker, &Answer::Status(why.status()));
                    }
                    let front = self.jobs.get(&root).map(|root| root.front);
                    if let (Some(front), Some(job)) = (front, job) {
                        self.tell(front, ToFront::Note(Note::AllocationLeft { job, why }));
                    }
                }
                Output::Over => {
                    self.leave_nodes(id);
                    self.refuse_spawns(id, Status::NOT_AVAILABLE);
                    if let Some(one) = self.of_slurm.all.remove(&id)
                        && let Some(waits) = one.waits
                    {
                        self.answer(waits.asker, &done());
                    }
                }
            }
        }
    }

    fn run_for(&mut self, id: u32, words: Vec<String>) {
        let number = self.of_slurm.next_command;
        self.of_slurm.next_command += 1;
        if let Some(one) = self.of_slurm.all.get_mut(&id) {
            one.command = Some(number);
        }
        self.of_slurm.commands.insert(number, id);
        self.outputs
            .push_back(ControllerOutput::RunCommand { number, words });
    }

    /// Tells the front of a job why a request is refused, unless it was told of so many before.
    pub(super) fn tell_refused(&mut self, by: ProcId, why: AllocationRefusal) {
        let root = self.jobs.get(&by.job).map(|job| job.root);
        let root = root.and_then(|root| self.jobs.get_mut(&root));
        if let Some(root) = root
            && root.tells_of_refused_allocation()
        {
            let front = root.front;
            self.tell(front, ToFront::Note(Note::AllocationRefused { by, why }));
        }
    }
}

impl Waits {
    const fn of(asker: Asker, by: ProcId, change: Change) -> Self {
        let what = match change {
            Change::Extend | Change::Reacquire => What::Description,
            Change::Release => What::Release,
        };
        Self { asker, by, what }
    }
}

impl Requested {
    /// Returns the answer that describes it.
    fn described(&self, described: &Described) -> Answer {
        let job = self.held.job().unwrap_or_default();
        let granted = Granted {
            allocation: CString::new(format!("{PREFIX}{job}")).unwrap_or_default(),
            request: self.request.clone(),
            hosts: described.hosts.clone(),
            cpus: described.cpus,
            time: described.time,
        };
        Answer::Infos {
            status: Status::SUCCESS,
            infos: granted.infos(),
        }
    }
}

/// Returns true if a change is about nodes or CPUs.
const fn has_part(wish: &Wish) -> bool {
    wish.nodes.is_some() || wish.cpus.is_some() || wish.hosts.is_some()
}
