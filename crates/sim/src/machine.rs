//! A machine with its queue, driven by simulated fronts, a simulated store and a simulated controller.
//!
//! Jobs of all kinds are submitted, attached, canceled, held and waited for by fronts that may disappear. Runs end in every way, or
//! are refused, or lose nodes. The store is slow, full, or cannot be read. The machine is killed, at any moment and several times: then the
//! next one goes on with what is stored. In some runs, jobs request allocations, change them, and give them back. A model (`model`) that knows only what goes in, and what is stored when, says what may come out.
//!
//! At the end nothing fails any more, all holds end, and everything that can run has to be over.

mod allocations;
mod check;
mod disk;
mod fronts;
mod model;
mod needs;
mod nodes;
mod owners;
mod questions;
mod runs;
mod shape;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use base::{JobId, NodeId, Time};
use dvm::{
    alloc::Slots,
    machine::{Ask, Declared, Down, Key, Machine, MachineOutput, Setup, Wall},
    proto::FrontId,
    spec::{GpuKind, NodeGpus, NodeResources},
};

use self::{
    allocations::Allocations,
    disk::Disk,
    model::{Known, Model, Standing},
    owners::Owners,
    questions::{Asked, Front},
    runs::Runs,
};
use crate::{
    agenda::Agenda,
    record::{Played, Record, Recorded, Report},
    rng::Rng,
};

/// Events after which a run counts as an endless loop.
const EVENTS_MAX: u64 = 200_000;
/// Deaths of the machine in a run.
const DEATHS_MAX: u32 = 6;

#[derive(Clone, Debug)]
enum Event {
    NodeUp(NodeId),
    NodeLost(NodeId),
    /// A daemon that was told to end has ended.
    NodeGone(NodeId),
    /// A front does something, or another one.
    Act,
    FrontLost(FrontId),
    /// A front ends the machine.
    EndAll,
    /// A front wants the machine to end with it.
    Own,
    /// Somebody asks why jobs with dependencies wait.
    Explain,
    /// The store answers its oldest order.
    Answer,
    /// The order to launch with this number is carried out.
    Launched(u64),
    Ended(JobId, runs::End),
    /// A proc of this run requests an allocation; `None`: a tool does.
    Request(Option<JobId>),
    /// Whoever has this allocation does something with it.
    Change(JobId),
    /// Nobody needs this allocation any more, and nothing runs in it.
    AllocationOver(JobId),
    Killed,
    Restart,
    Tick,
    Full,
    Free,
    Calm,
    Nurse,
}

/// What was called last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Asked(FrontId),
    Attached(FrontId),
    /// The store was read for this front.
    Read(FrontId, bool),
    Stored(bool),
    Other,
}

/// What a node has.
#[derive(Clone, Copy, Debug)]
struct Capacity {
    slots: u32,
    is_implicit: bool,
    gpus: u32,
}

struct World {
    /// `None` between two machines.
    machine: Option<Machine>,
    /// Counts the machines.
    life: u32,
    model: Model,
    nodes: BTreeMap<NodeId, Known>,
    capacity: Vec<Capacity>,
    disk: Disk,
    runs: Runs,
    allocations: Allocations,
    owners: Owners,
    fronts: BTreeMap<FrontId, Front>,
    last_front: u32,
    agenda: Agenda<(Option<u32>, Event)>,
    record: Record,
    rng: Rng,
    events: u64,
    faults: u32,
    deaths: u32,
    is_calm: bool,
    /// Numbers that a front was told as submitted.
    told: BTreeSet<JobId>,
}

pub(crate) fn run(rng: &mut Rng, recorded: Recorded) -> Played {
    let mut world = World {
        machine: None,
        life: 0,
        model: Model::new(),
        nodes: BTreeMap::new(),
        capacity: Vec::new(),
        disk: Disk::default(),
        runs: Runs::default(),
        allocations: Allocations::new(rng),
        owners: Owners::new(rng),
        fronts: BTreeMap::new(),
        last_front: 0,
        agenda: Agenda::new(),
        record: Record::new(recorded),
        rng: rng.clone(),
        events: 0,
        faults: 0,
        deaths: 0,
        is_calm: false,
        told: BTreeSet::new(),
    };
    world.plan();
    world.play();
    world.finish();
    let report = Report {
        events: world.events,
        faults: world.faults,
        finished: world.agenda.now,
    };
    world.record.into_played(report)
}

impl World {
    fn plan(&mut self) {
        let is_implicit = self.rng.chance(30);
        for _ in 0..self.rng.length(1, 4) {
            self.capacity.push(Capacity {
                slots: self.rng.number(1, 6),
                is_implicit,
                gpus: if self.rng.chance(50) {
                    self.rng.number(1, 4)
                } else {
                    0
                },
            });
        }
        self.disk.plan(&mut self.rng);
        let span = self.rng.between(5, 120);
        let scatter = |world: &mut Self, count, event: Event| {
            for _ in 0..count {
                let when = Time::ZERO + world.rng.micros(0, span * 1_000_000);
                world.agenda.at(when, (None, event.clone()));
            }
        };
        let acts = self.rng.length(5, 60);
        scatter(self, acts, Event::Act);
        let kills = match self.rng.below(3) {
            0 => 0,
            1 => self.rng.length(1, 2),
            _ => self.rng.length(2, 5),
        };
        scatter(self, kills, Event::Killed);
        let full = match self.rng.below(3) {
            0 => self.rng.length(1, 3),
            _ => 0,
        };
        for _ in 0..full {
            let from = Time::ZERO + self.rng.micros(0, span * 1_000_000);
            let length = self.rng.millis(1, 8_000);
            self.agenda.at(from, (None, Event::Full));
            self.agenda.at(from + length, (None, Event::Free));
        }
        self.plan_tools(span);
        self.plan_owners(span);
        let end = Time::ZERO + Duration::from_secs(span + 1);
        self.agenda.at(end, (None, Event::Calm));
        self.agenda.at(Time::ZERO, (None, Event::Restart));
    }

    fn play(&mut self) {
        while let Some((life, event)) = self.agenda.next() {
            if life.is_some_and(|life| life != self.life) {
                continue;
            }
            self.events += 1;
            self.act(event);
            if self.record.is_faulty() {
                return;
            }
            if self.events > EVENTS_MAX {
                return self.fault(Some("it does not end".to_owned()));
            }
        }
    }

    fn fault(&mut self, wrong: Option<String>) {
        if let Some(wrong) = wrong {
            self.record.fault(self.agenda.now, wrong);
        }
    }

    fn note(&mut self, what: impl FnOnce() -> String) {
        self.record.note(self.agenda.now, what);
    }

    /// Plans an event of this machine.
    fn later(&mut self, wait: Duration, event: Event) {
        let when = self.agenda.now + wait;
        self.agenda.at(when, (Some(self.life), event));
    }

    fn act(&mut self, event: Event) {
        match event {
            Event::Restart => self.restart(),
            Event::Killed => self.kill(),
            Event::Full => {
                self.faults += 1;
                self.note(|| "the disk is full".to_owned());
                self.disk.is_full = !self.is_calm;
            }
            Event::Free => {
                self.note(|| "the disk is free".to_owned());
                self.disk.is_full = false;
            }
            Event::Calm => self.calm(),
            Event::Act => {
                if self.machine.is_some() {
                    self.act_as_front();
                }
            }
            Event::EndAll => {
                let front = self.new_front();
                self.ask(front, Ask::Down(Down::Now), None);
            }
            Event::Own => self.own(),
            Event::Explain => self.explain_all(),
            Event::NodeUp(id) => self.node_up(id),
            Event::NodeLost(id) => self.node_lost(id),
            Event::NodeGone(id) => self.node_gone(id),
            Event::FrontLost(front) => self.lose_front(front),
            Event::Answer => self.answer_order(),
            Event::Launched(order) => self.launched(order),
            Event::Ended(run, end) => self.run_ended(run, end),
            Event::Request(run) => self.request(run),
            Event::Change(id) => self.change(id),
            Event::AllocationOver(id) => self.allocation_over(id),
            Event::Tick => {
                let now = self.agenda.now;
                self.call(Call::Other, |machine| machine.tick(now));
                let late = self.machine.as_ref().and_then(Machine::deadline);
                let is_late = late.is_some_and(|due| due <= now);
                self.fault(is_late.then(|| "it wants to be woken up again at once".to_owned()));
            }
            Event::Nurse => self.nurse(),
        }
    }

    /// Calls the machine, and carries out what it wants.
    fn call(&mut self, call: Call, act: impl FnOnce(&mut Machine)) {
        if let Some(machine) = &mut self.machine {
            act(machine);
            self.pump(call);
        }
    }

    /// Starts a machine with what is stored.
    fn restart(&mut self) {
        self.life += 1;
        self.note(|| "a machine starts".to_owned());
        let live = self.disk.stored.iter();
        let live = live.filter(|(key, _)| !matches!(key, Key::Past(_)));
        let last = self.disk.stored.last_key_value();
        let last = last.filter(|(key, _)| matches!(key, Key::Past(_)));
        let live = live.chain(last);
        let setup = Setup {
            limits: Default::default(),
            name: "main".to_owned(),
            epoch: Wall(1_000_000),
            nodes: (0..self.capacity.len())
                .map(|id| format!("n{id}"))
                .collect(),
            local: None,
            stored: live.map(|(key, value)| (*key, value.clone())).collect(),
            model: None,
            declared: Declared::default(),
        };
        self.machine = Some(Machine::new(&setup));
        self.disk.start();
        self.model = self.disk.committed.after_death();
        self.nodes.clear();
        for id in (0..).map(NodeId).take(self.capacity.len()) {
            let known = Known {
                slots: 0,
                gpus: 0,
                is_implicit: true,
                standing: Standing::Starting,
                closed_since: None,
                is_drained: false,
                is_dropped: false,
                is_told: false,
                daemon: id,
            };
            self.nodes.insert(id, known);
            self.start_node(id);
            if self.rng.chance(12) && !self.is_calm {
                let wait = self.rng.millis(800, 60_000);
                self.later(wait, Event::NodeLost(id));
            }
        }
        self.later(Duration::from_secs(1), Event::Explain);
        if self.is_calm {
            self.later(Duration::from_secs(2), Event::Nurse);
        }
        self.pump(Call::Other);
    }

    /// The machine dies, and all that runs with it.
    fn kill(&mut self) {
        if self.is_calm || self.machine.is_none() || self.deaths == DEATHS_MAX {
            return;
        }
        self.faults += 1;
        self.deaths += 1;
        let is_stored = self.rng.chance(50);
        self.note(|| format!("the machine is killed; its batch is stored: {is_stored}"));
        if is_stored {
            self.disk.commit();
        }
        self.die();
    }

    /// Forgets what was in memory.
    fn die(&mut self) {
        self.machine = None;
        self.life += 1;
        self.disk.die();
        self.runs = Runs::default();
        self.allocations.clear();
        self.owners.clear();
        self.fronts.clear();
        self.disk.committed.call = self.model.call + 1;
        let committed = &self.disk.committed;
        let is_known =
            |id: &JobId| committed.job(*id).is_some() || committed.forgotten.contains_key(id);
        let lost = self.told.iter().find(|id| !is_known(id));
        let wrong = lost.map(|id| format!("job {id} was told, and is forgotten"));
        self.fault(wrong);
        if self.rng.chance(8) {
            self.disk.skip_numbers(&mut self.rng);
        }
        let wait = self.rng.millis(1, 500);
        let when = self.agenda.now + wait;
        self.agenda.at(when, (None, Event::Restart));
    }

    fn node_up(&mut self, id: NodeId) {
        let Some(Capacity {
            slots,
            is_implicit,
            gpus,
        }) = self.capacity.get(id.0 as usize).copied()
        else {
            return;
        };
        let node = self.nodes.get_mut(&id);
        let Some(node) = node.filter(|node| node.standing == Standing::Starting) else {
            return;
        };
        let daemon = node.daemon;
        node.slots = slots;
        node.gpus = gpus;
        node.is_implicit = is_implicit;
        node.standing = Standing::Up;
        self.note(|| format!("node {id} joins with {slots} slots, {gpus} GPUs"));
        let now = self.agenda.now;
        let said = if is_implicit {
            Slots::Implicit
        } else {
            Slots::Explicit(slots)
        };
        let resources = NodeResources {
            gpus: (gpus > 0).then(|| NodeGpus {
                kind: GpuKind::Nvidia,
                names: (0..gpus).map(|gpu| gpu.to_string()).collect(),
            }),
            memory: 0,
        };
        self.model.call += 1;
        self.model.fit_to_nodes(&self.nodes);
        self.call(Call::Other, |machine| {
            machine.node_up(now, daemon, (slots, said), &resources);
        });
    }

    fn node_lost(&mut self, id: NodeId) {
        if self.is_calm
            && self
                .nodes
                .get(&id)
                .is_some_and(|node| node.standing == Standing::Up)
        {
            return;
        }
        // What leaves with its tasks keeps part of the queue's node, which the model does not know.
        let node = self.nodes.get(&id);
        if node
            .is_some_and(|node| node.is_dropped && node.standing == Standing::Up && !node.is_told)
        {
            return;
        }
        self.faults += 1;
        self.lose_node(id);
    }

    /// Collects what the machine wants, and does it.
    fn pump(&mut self, call: Call) {
        let Some(machine) = &mut self.machine else {
            return;
        };
        let outputs: Vec<MachineOutput> = std::iter::from_fn(|| machine.poll()).collect();
        self.note_acceptance(call, &outputs);
        for output in outputs {
            self.note(|| format!("-> {}", shown(&output)));
            match output {
                MachineOutput::Reply(front, reply) => self.on_reply(call, front, &reply),
                MachineOutput::Launch(run) => self.on_launch(*run),
                MachineOutput::End(run) => self.on_end(run),
                MachineOutput::Signal(run, signal) => {
                    let is_right = self.runs.has(run);
                    let wrong = format!("run {run} gets {signal}, and does not run");
                    self.fault((!is_right).then_some(wrong));
                }
                // Nobody asks what they use.
                MachineOutput::Measure { .. } => {}
                MachineOutput::Withdrawn(front, why) => self.on_withdrawn(front, &why),
                MachineOutput::Queued(front, id) => {
                    let known = self.fronts.get(&front);
                    let is_right = known.is_some_and(|front| front.job == Some(id) && front.waits);
                    let wrong = format!("{front:?} is told that its job is {id}");
                    self.fault((!is_right).then_some(wrong));
                }
                // No simulated front asks for it.
                MachineOutput::ShowRun(..) => {}
                MachineOutput::Store(batch) => self.on_store(batch),
                MachineOutput::Fetch { before, most } => self.on_fetch(call, before, most),
                MachineOutput::AddNodes { nodes, .. } => self.start_nodes(&nodes),
                MachineOutput::Leave(daemon) => self.leave(daemon),
                // Nobody speaks of it any more, and the model does not either.
                MachineOutput::Forget(_) => {}
                MachineOutput::Granted(id, grant) => self.on_granted(id, grant),
                MachineOutput::NotGranted(id, why) => self.on_not_granted(id, why),
                MachineOutput::EndAllocation(id, why) => self.on_end_allocation(id, why),
                MachineOutput::Reopen(..) => {
                    self.fault(Some(
                        "no daemon is in the process of the machine".to_owned(),
                    ));
                }
            }
            if self.record.is_faulty() {
                return;
            }
        }
        self.at_rest();
    }

    /// Checks what has to be true after each call.
    fn at_rest(&mut self) {
        let Some(machine) = &self.machine else {
            return;
        };
        let (deadline, is_over) = (machine.deadline(), machine.is_over());
        self.agenda
            .tick_at(deadline, (Some(self.life), Event::Tick));
        let wrong = self.check_ends().or_else(|| self.check_fronts());
        self.fault(wrong.or_else(|| self.check_allocations()));
        if !is_over {
            return;
        }
        let wrong = if self.model.down.is_none() {
            Some("the machine is over, and was not told to")
        } else if self.model.running() > 0 {
            Some("the machine is over, and jobs run")
        } else if self.disk.hangs(self.agenda.now) {
            // The machine does not wait any longer.
            None
        } else if self.disk.is_writing() {
            Some("the machine is over, and a batch is being written")
        } else if !self.disk.has_failed && self.disk.committed.jobs.len() != self.model.jobs.len() {
            Some("the machine is over, and has not stored everything")
        } else {
            None
        };
        self.fault(wrong.map(str::to_owned));
        self.note(|| "the machine is over".to_owned());
        self.die();
    }

    /// From now on nothing fails.
    fn calm(&mut self) {
        self.note(|| "nothing fails from now on".to_owned());
        self.is_calm = true;
        self.disk.calm();
        self.end_endless();
        for seconds in [0, 30, 60] {
            let when = self.agenda.now + Duration::from_secs(seconds);
            self.agenda.at(when, (None, Event::Nurse));
        }
    }

    /// Lets everything run that can.
    fn nurse(&mut self) {
        if self.machine.is_none() {
            return;
        }
        let held = self.model.jobs.iter();
        let held = held.filter(|(_, job)| job.held_since.is_some());
        let held: Vec<JobId> = held.map(|(id, _)| *id).collect();
        for id in held {
            let front = self.new_front();
            self.ask(front, Ask::Release(id), None);
        }
        let front = self.new_front();
        let nodes = self.nodes.iter();
        let can_be =
            nodes.filter(|(_, it)| matches!(it.standing, Standing::Up | Standing::Starting));
        let can_be = can_be.filter(|(_, node)| !node.is_told);
        let all: Vec<String> = can_be.map(|(id, _)| format!("n{id}")).collect();
        self.resume(front, &all);
    }

    /// Checks that everything is over that can be, and ends the machine. The next one has to find the same.
    fn finish(&mut self) {
        for stage in 0..3 {
            if self.record.is_faulty() {
                return;
            }
            self.check_down();
            self.check_end();
            let front = self.new_front();
            self.ask(
                front,
                Ask::Jobs {
                    over: 200_000,
                    before: None,
                },
                Some(Asked::List(200_000)),
            );
            self.play();
            if stage < 2 && !self.record.is_faulty() {
                let life = self.life;
                let front = self.new_front();
                self.ask(front, Ask::Down(Down::WhenIdle), None);
                self.play();
                let has_ended = self.life > life;
                self.fault((!has_ended).then(|| "the machine does not end".to_owned()));
            }
        }
    }

    /// Checks that a machine on which nothing runs has ended, if it is to end.
    fn check_down(&mut self) {
        let is_idle = self.machine.is_some() && self.model.running() == 0;
        let stays = is_idle && self.model.down.is_some();
        self.fault(stays.then(|| "the machine is to end, and does not".to_owned()));
    }

    fn check_end(&mut self) {
        let up = || {
            let nodes = self.nodes.iter().map(|(id, node)| (*id, node));
            nodes.filter(|(_, node)| node.standing == Standing::Up && !node.is_drained)
        };
        let stuck = self.model.jobs.iter().find(|(_, job)| {
            let mut after = job.wishes.after.iter();
            (job.is_allocation() || job.needs.fit(up()))
                && after.all(|after| self.model.is_met(*after))
        });
        let mut wrong = stuck.map(|(id, job)| format!("job {id} is never over: {job:?}"));
        let unanswered = self.fronts.iter().find(|(_, front)| {
            let lives = |id: &JobId| self.model.jobs.contains_key(id);
            match &front.asked {
                Some(Asked::Wait(jobs)) => !jobs.iter().any(lives),
                Some(_) => !front.is_gone,
                None => front.waits && !front.job.iter().any(lives),
            }
        });
        let unanswered = unanswered.map(|(id, front)| format!("{id:?} waits for ever: {front:?}"));
        wrong = wrong.or(unanswered);
        if self.machine.is_none() {
            wrong = Some("there is no machine".to_owned());
        }
        self.fault(wrong);
        let front = self.new_front();
        self.ask(front, Ask::Status, Some(Asked::Quiet));
    }
}

/// Returns an output in few words.
fn shown(output: &MachineOutput) -> String {
    match output {
        MachineOutput::Launch(run) => {
            format!("Launch {} {:?} {:?}", run.task, run.front, run.grant)
        }
        MachineOutput::Store(batch) => {
            let keys = batch.0.iter().map(|write| {
                let kind = if write.value.is_some() { "" } else { "-" };
                format!("{kind}{:?}", write.key)
            });
            format!("Store {}", keys.collect::<Vec<_>>().join(" "))
        }
        other => format!("{other:?}"),
    }
}
