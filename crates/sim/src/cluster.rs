//! One run: a controller, its nodes and its fronts, and the checks that need more than one of them.

mod check;
mod door;
mod tree;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use base::{JobId, NodeId, ProcId, Time, Topology};
use dvm::{
    Controller, ControllerInput, ControllerOutput, DaemonConfig, ServiceConfig,
    proto::{FromFront, FrontId, Refusal, ToController, ToDaemon, ToFront, ToPreload},
    spec::{HoldAt, HoldPlan, JobSpec, NodeResources},
};

use self::door::Door;
use crate::{
    carrier::Carrier,
    files::{Disk, FilesPlan, Source},
    front::Front,
    kernel::OWNER,
    ledger::{Ledger, host},
    names::NAME,
    node::{FRONT_PID, Node},
    record::{Played, Recorded, Report},
    rng::Rng,
    scenario::{Fault, Scenario, Visit},
    verdict::Verdicts,
    world::{Carried, Event, Link, Links, World},
};

/// PMIx port of the daemon on node 0. Node *n* listens on `PORT` + *n*.
const PORT: u16 = 4_000;
/// Number of cores on each simulated node.
const CORES: u32 = 64;
/// Virtual time, 5,000 s, after which an unfinished run counts as a hang.
const HORIZON: Time = Time::from_nanos(5_000_000_000_000);
/// The same with a tree, which is never quiet.
const TREE_HORIZON: Time = Time::from_nanos(1_000_000_000_000);
/// Number of events after which a run counts as an endless loop.
const EVENTS_MAX: u64 = 3_000_000;
/// The same with a tree, in which each message has many hops.
const TREE_EVENTS_MAX: u64 = 12_000_000;

pub(crate) struct Cluster {
    world: World,
    controller: Controller,
    /// True once the scenario has removed the controller. It then gets no further input.
    headless: bool,
    nodes: BTreeMap<NodeId, Node>,
    fronts: BTreeMap<FrontId, FrontSide>,
    verdicts: Verdicts,
    /// Jobs for which the controller has sent `End` or `Kill` to a daemon.
    told_to_end: BTreeSet<JobId>,
    faults: Vec<(Duration, Fault)>,
    visits: Vec<(Duration, Visit)>,
    files: FilesPlan,
    source: Source,
    tick_for: Option<Time>,
    finished: Option<Time>,
    /// Number of daemons that have joined through the tree and said hello.
    hellos: usize,
    /// Number of faults that have happened.
    struck: u32,
    /// Time after which no fault happens or lasts.
    calm_at: Time,
    /// True once a run with a tree only waits for its end. No fault happens then.
    is_ending: bool,
    /// `None` if the controller's host is node 0.
    door: Option<Door>,
    /// Time until which the process of the controller is stopped, if it has a door.
    stopped_until: Time,
}

/// A front, and what the controller has sent to it.
pub(crate) struct FrontSide {
    front: Front,
    submits_at: Duration,
    /// Job that the front will submit; `None` once submitted.
    submission: Option<Box<JobSpec>>,
    hold: HoldPlan,
    said_last: bool,
    /// True once the controller has returned [`ControllerOutput::Finished`] for this front.
    is_finished: bool,
}

/// Runs a scenario to its end.
pub(crate) fn run(scenario: Scenario, rng: Rng, recorded: Recorded) -> Played {
    let mut cluster = Cluster::new(scenario, rng, recorded);
    let report = cluster.run();
    cluster.world.into_played(report)
}

impl Cluster {
    fn new(scenario: Scenario, rng: Rng, recorded: Recorded) -> Self {
        let ids: Vec<NodeId> = (0..)
            .map(NodeId)
            .take(scenario.allocation.nodes.len() + usize::from(scenario.door.is_some()))
            .collect();
        let last = ids.last().copied().unwrap_or(NodeId(0));
        let door = scenario.door.as_ref();
        let door = door.map(|plan| Door::new(last, plan.clone()));
        let numbers = (0..).map(FrontId).take(scenario.fronts.len());
        let links = Links {
            up: ids.iter().map(|id| (*id, Link::new())).collect(),
            down: ids.iter().map(|id| (*id, Link::new())).collect(),
            to_front: numbers.clone().map(|id| (id, Link::new())).collect(),
            from_front: numbers.map(|id| (id, Link::new())).collect(),
        };
        let latency = scenario.latency;
        let slack = 4 * (latency.link_max + latency.io_max + latency.tick_late_max);
        let slack = slack + scenario.tree_slack() + scenario.stops();
        let mut ledger = Ledger::new(slack);
        ledger.has_troubled_files = scenario.files.is_troubled();
        ledger.has_door = door.is_some();
        let mut world = World::new(rng, scenario.latency, links, ledger, recorded);
        for front in &scenario.fronts {
            world.note(|| "spec".to_owned(), || format!("{:?}", front.spec.end));
            for (rank, script) in &front.scripts {
                world.note(|| format!("r{rank}"), || format!("{script:?}"));
            }
        }
        let programs = scenario.programs();
        let orders = scenario.orders();
        let at_door = door.as_ref().map(|door| door.node);
        let node = |id: &NodeId| {
            let config = DaemonConfig {
                node: *id,
                host: host(*id),
                topology: Topology::flat(CORES),
                resources: NodeResources::default(),
                descriptors: u64::MAX,
                service: Some(service(*id, at_door)),
            };
            let disk = Disk::new(&scenario.files, id.0);
            (*id, Node::new(config, programs.clone(), disk))
        };
        let nodes: BTreeMap<NodeId, Node> = ids.iter().map(node).collect();
        let mut fronts = BTreeMap::new();
        for (id, plan) in (0..).map(FrontId).zip(scenario.fronts) {
            let front = Front::new(
                id,
                plan.input,
                plan.print,
                plan.acts,
                plan.release_after,
                nodes.len(),
            );
            let side = FrontSide {
                front,
                submits_at: plan.submits_at,
                hold: plan.spec.hold.clone(),
                submission: Some(Box::new(plan.spec)),
                said_last: false,
                is_finished: false,
            };
            fronts.insert(id, side);
        }
        let mut cluster = Self {
            world,
            controller: Controller::new(scenario.allocation, NAME.to_owned()),
            headless: false,
            nodes,
            fronts,
            verdicts: Verdicts::new(orders),
            told_to_end: BTreeSet::new(),
            faults: scenario.faults,
            visits: scenario.visits,
            source: Source::new(Arc::clone(&scenario.files.files)),
            files: scenario.files,
            tick_for: None,
            finished: None,
            hellos: 0,
            struck: 0,
            calm_at: Time::ZERO,
            is_ending: false,
            door,
            stopped_until: Time::ZERO,
        };
        cluster.open_door();
        cluster.summon();
        if let Some(plan) = scenario.tree {
            cluster.world.beside_root = at_door;
            let count = ids.len() - usize::from(at_door.is_some());
            let count = u32::try_from(count).unwrap_or(u32::MAX);
            let rng = cluster.world.rng.clone();
            cluster.world.carrier = Some(Box::new(Carrier::new(plan, count, rng)));
            cluster.join();
        } else {
            for node in cluster.nodes.values_mut() {
                node.say_hello(&mut cluster.world);
            }
        }
        cluster.schedule();
        cluster
    }

    /// Schedules what the scenario plans, from now on.
    fn schedule(&mut self) {
        self.invite();
        for (when, visit) in &self.visits {
            let visit = *visit;
            self.world.after(*when, Event::Visit { visit });
        }
        for (id, side) in &self.fronts {
            let front = *id;
            self.world
                .after(side.submits_at, Event::FrontSubmits { front });
        }
        let now = self.world.now;
        self.calm_at = now;
        for (index, (when, fault)) in self.faults.iter().enumerate() {
            let lasts = match fault {
                Fault::Trouble(trouble) => trouble.lasts(),
                _ => Duration::ZERO,
            };
            self.calm_at = self.calm_at.max(now + *when + lasts);
            self.world.after(*when, Event::Fault { index });
        }
    }

    fn run(&mut self) -> Report {
        let mut events = 0;
        while !self.world.is_faulty() {
            if self.finished.is_some() && self.world.carrier.is_some() {
                self.end_tree(&mut events);
                break;
            }
            if !self.step() {
                if self.finished.is_none() && !self.headless_and_clean() {
                    self.world
                        .fault("hang: nothing will ever happen again".to_owned());
                }
                break;
            }
            if self.world.now > self.horizon() {
                if self.finished.is_none() && !self.headless_and_clean() {
                    self.world.fault("hang: the job does not end".to_owned());
                }
                break;
            }
            events += 1;
            let most = match self.world.carrier {
                Some(_) => TREE_EVENTS_MAX,
                None => EVENTS_MAX,
            };
            self.world.require(events < most, || {
                "hang: the run goes round in circles".to_owned()
            });
            if self.headless && self.finished.is_none() && self.headless_and_clean() {
                self.finished = Some(self.world.now);
                self.check_end();
            }
        }
        if !self.world.is_faulty() && !self.headless {
            self.check_told();
            self.check_guests();
        }
        Report {
            events,
            faults: self.struck,
            finished: self.finished.unwrap_or(Time::ZERO),
        }
    }

    fn horizon(&self) -> Time {
        if self.world.carrier.is_some() {
            TREE_HORIZON
        } else {
            HORIZON
        }
    }

    fn headless_and_clean(&self) -> bool {
        self.headless && self.nodes.values().all(Node::is_clean)
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::ToController { node } => {
                match self.world.links.up.get_mut(&node).and_then(Link::receive) {
                    Some(Carried::Message(message)) => self.hear_daemon(node, message),
                    // A job that is refused for its files does not wait for a lost node, and the session ends with it.
                    Some(Carried::Lost) if self.finished.is_some() => {}
                    Some(Carried::Lost) => {
                        self.tell(ControllerInput::DaemonLost(node, "it is gone".to_owned()))
                    }
                    None => {}
                }
            }
            Event::ToDaemon { node } => {
                let carried = self.world.links.down.get_mut(&node).and_then(Link::receive);
                let Some(node) = self.nodes.get_mut(&node) else {
                    return;
                };
                match carried {
                    Some(Carried::Message(message)) => node.on_message(&mut self.world, message),
                    Some(Carried::Lost) => node.lose_controller(&mut self.world),
                    None => {}
                }
            }
            Event::ToFront { front } => {
                let link = self.world.links.to_front.get_mut(&front);
                if let Some(Carried::Message(message)) = link.and_then(Link::receive) {
                    self.with_front(front, |front, world| front.on_message(world, message));
                }
            }
            Event::FromFront { front } => self.on_from_front(front),
            Event::FrontSubmits { front } => self.submit(front),
            Event::FrontActs { front, index } => {
                self.with_front(front, |front, world| front.act(world, index));
            }
            Event::FrontReads { front } => {
                self.with_front(front, |front, world| front.read(world));
            }
            Event::FrontReleases { front } => {
                self.with_front(front, |front, world| front.release(world));
            }
            Event::Printed { front, credit } => {
                self.with_front(front, |front, world| front.on_printed(world, credit));
            }
            Event::Visit { visit } => {
                if let Some(node) = self.nodes.get_mut(&visit.node) {
                    node.visit(&mut self.world, visit);
                }
            }
            // The process of the controller ends with its last job, and its connections with it.
            Event::GuestActs { .. } | Event::GuestTick { .. } if self.finished.is_some() => {}
            Event::GuestComes { number } => self.guest_comes(number),
            Event::KeepaliveCloses => self.keepalive_closes(),
            Event::Fault { index } => self.break_something(index),
            Event::Mend { index } => {
                if let Some((_, Fault::Trouble(trouble))) = self.faults.get(index).cloned() {
                    self.mend(&trouble);
                }
            }
            Event::FilesFound { job, result } => {
                let now = self.world.now;
                self.world.ledger.busy(now);
                self.tell(ControllerInput::FilesFound { job, result });
            }
            Event::FileRead { job, result } => {
                let now = self.world.now;
                self.world.ledger.busy(now);
                self.tell(ControllerInput::FileRead { job, result });
            }
            Event::ControllerTick { due } => self.tick(due),
            Event::Step { node, .. }
            | Event::Readable { node, .. }
            | Event::FeedStdin { node, .. }
            | Event::Reap { node, .. }
            | Event::Trap { node, .. }
            | Event::Spawn { node, .. }
            | Event::Swept { node, .. }
            | Event::FilesActed { node, .. }
            | Event::PmiToDaemon { node, .. }
            | Event::PmiClosed { node, .. }
            | Event::PmiToRank { node, .. }
            | Event::ClientUp { node, .. }
            | Event::ClientDown { node, .. }
            | Event::VisitorTick { node, .. }
            | Event::GuestActs { node, .. }
            | Event::GuestTick { node, .. }
            | Event::DaemonTick { node, .. } => {
                if let Some(node) = self.nodes.get_mut(&node) {
                    node.on_event(&mut self.world, event);
                }
            }
        }
    }

    /// Wakes the controller, if it still wants that.
    fn tick(&mut self, due: Time) {
        if self.tick_for == Some(due) && !self.headless {
            self.tick_for = None;
            self.tell(ControllerInput::Tick);
            let again = self
                .controller
                .deadline()
                .is_some_and(|due| due <= self.world.now);
            self.world.require(!again, || {
                "the controller wants to be woken again at once".to_owned()
            });
            // The controller shares a process and its timer with a daemon, which is woken too.
            let beside = self.beside_controller();
            if let Some(node) = self.nodes.get_mut(&beside).filter(|node| node.is_on()) {
                node.tick(&mut self.world);
            }
        }
    }

    /// Tells the controller a message of a daemon, merged with those of other daemons that are next on their links and of the
    /// same class.
    fn hear_daemon(&mut self, node: NodeId, message: ToController) {
        // The process of the controller ends with its last job.
        if self.finished.is_some() && self.is_door(node) {
            return;
        }
        let mut said = vec![(node, message)];
        if let Some(class) = said[0].1.class() {
            for (other, link) in &mut self.world.links.up {
                let same = link.receive_if(|next| next.class() == Some(class));
                said.extend(same.map(|message| (*other, message)));
            }
        }
        if let [_] = said[..] {
            return said
                .into_iter()
                .for_each(|(node, message)| self.tell(ControllerInput::Daemon(node, message)));
        }
        let nodes = said.iter().map(|one| one.0).collect();
        let merged = ToController::merge(said.iter().map(|one| one.1.clone()));
        match merged {
            Some(merged) => self.tell_merged(ControllerInput::Daemons(nodes, merged), &said),
            None => self
                .world
                .fault("messages of one class cannot be merged".to_owned()),
        }
    }

    fn with_front(&mut self, id: FrontId, act: impl FnOnce(&mut Front, &mut World)) {
        if let Some(side) = self.fronts.get_mut(&id) {
            act(&mut side.front, &mut self.world);
        }
    }

    fn submit(&mut self, id: FrontId) {
        let Some(side) = self.fronts.get_mut(&id) else {
            return;
        };
        if self.headless {
            return;
        }
        if let Some(spec) = side.submission.take() {
            side.front.begin(&mut self.world);
            let message = Carried::Message(FromFront::Submit(spec));
            self.world.hear_front(id, message);
        }
    }

    fn on_from_front(&mut self, front: FrontId) {
        let link = self.world.links.from_front.get_mut(&front);
        match link.and_then(Link::receive) {
            Some(Carried::Message(message)) => {
                if let FromFront::Submit(_) = message {
                    let pid = FRONT_PID + front.0;
                    self.tell(ControllerInput::FrontConnected { front, pid });
                }
                self.tell(ControllerInput::Front(front, message));
            }
            Some(Carried::Lost) => self.tell(ControllerInput::FrontLost(front)),
            None => {}
        }
    }

    fn break_something(&mut self, index: usize) {
        let Some((_, fault)) = self.faults.get(index).cloned() else {
            return;
        };
        let is_over = match fault {
            // The tree remains until the session is over.
            Fault::Trouble(_) => self.is_ending,
            _ => self.finished.is_some() || self.headless,
        };
        if is_over {
            return;
        }
        self.world
            .note(|| "fault".to_owned(), || format!("{fault:?}"));
        match fault {
            Fault::Trouble(trouble) => {
                self.struck += 1;
                self.strike(index, &trouble);
            }
            Fault::KillFront(front) => {
                self.struck += 1;
                self.with_front(front, |front, world| front.vanish(world));
            }
            Fault::LoseNode(id) => {
                // Only nodes with a launch or with files are lost. An earlier loss concerns the start of daemons, which is not
                // simulated.
                let mut verdicts = self.verdicts.all();
                let launched = verdicts.any(|(_, verdict)| verdict.ranks.contains_key(&id));
                if let Some(node) = self
                    .nodes
                    .get_mut(&id)
                    .filter(|node| node.is_on() && (launched || !node.disk.is_empty()))
                {
                    self.struck += 1;
                    node.power_off(&mut self.world);
                    if let Some(link) = self.world.links.down.get_mut(&id) {
                        link.cut();
                    }
                    self.world.send_up(id, Carried::Lost);
                }
            }
            Fault::StopController(time) => {
                self.struck += 1;
                self.stop_controller(time);
            }
            Fault::KillRank(rank) => {
                // Tools are numbered too.
                let first = self.verdicts.all().next();
                let job = first.map_or(JobId(1), |(job, _)| job);
                for node in self.nodes.values_mut() {
                    let is_hit = node.kill_rank(&mut self.world, ProcId { job, rank });
                    self.struck += u32::from(is_hit);
                }
            }
            Fault::LoseController => {
                self.struck += 1;
                self.headless = true;
                self.world.ledger.known.is_headless = true;
                for side in self.fronts.values_mut() {
                    side.front.gone = true;
                }
                let links = &mut self.world.links;
                links.to_front.values_mut().for_each(Link::cut);
                links.from_front.values_mut().for_each(Link::cut);
                let now = self.world.now;
                self.world.ledger.busy(now);
                let door = self.door.as_ref().map(|door| door.node);
                if let Some(node) = door.and_then(|door| self.nodes.get_mut(&door)) {
                    node.power_off(&mut self.world);
                }
                // The daemons notice it by themselves.
                if let Some(carrier) = &mut self.world.carrier {
                    return carrier.kill_root(now);
                }
                for id in self.nodes.keys().copied().collect::<Vec<_>>() {
                    self.world.send_down(id, Carried::Lost);
                    if let Some(link) = self.world.links.up.get_mut(&id) {
                        link.cut();
                    }
                }
            }
        }
    }

    fn tell(&mut self, input: ControllerInput) {
        self.tell_merged(input, &[]);
    }

    /// Tells the controller something. The verdicts hear the messages before they were merged.
    fn tell_merged(&mut self, input: ControllerInput, said: &[(NodeId, ToController)]) {
        if self.headless {
            return;
        }
        self.world
            .note(|| "ctl".to_owned(), || format!("<- {input:?}"));
        self.take_note(&input);
        self.hear_door(&input);
        for (node, message) in said {
            self.take_note(&ControllerInput::Daemon(*node, message.clone()));
        }
        if self.verdicts.control.waits() {
            let now = self.world.now;
            self.world.ledger.busy(now);
        }
        self.world.ledger.ending.extend(self.verdicts.ending());
        for (job, verdict) in self.verdicts.all().filter(|(_, one)| one.is_over()) {
            let now = self.world.now;
            self.world.ledger.on_job_over(now, job, verdict.code());
        }
        self.controller.handle(self.world.now, input);
        while let Some(output) = self.controller.poll() {
            self.carry_out(output);
        }
        let takes_orders = self.verdicts.takes_orders();
        self.world
            .ledger
            .set_can_spawn(self.world.now, takes_orders);
        self.check_children();
        self.check_door_told();
        self.check_wait();
        self.check_finished();
        let due = self.controller.deadline();
        if due != self.tick_for {
            self.tick_for = due;
            if let Some(due) = due {
                self.world.at(due, Event::ControllerTick { due });
            }
        }
    }

    /// Tells those who know what is expected what the controller is about to hear.
    fn take_note(&mut self, input: &ControllerInput) {
        self.verdicts.on_input(self.world.now, input);
        let (now, ledger) = (self.world.now, &mut self.world.ledger);
        ledger.known.on_input(now, input, &ledger.facts);
        ledger.copies.on_input(now, input, &ledger.facts);
    }

    fn carry_out(&mut self, output: ControllerOutput) {
        self.world
            .note(|| "ctl".to_owned(), || format!("-> {output:?}"));
        self.world.require(self.finished.is_none(), || {
            "the controller goes on after it has finished".to_owned()
        });
        match output {
            ControllerOutput::Front(front, message) => self.send_front(front, message),
            ControllerOutput::Store(_)
            | ControllerOutput::Fetch { .. }
            | ControllerOutput::CaptureStart(..)
            | ControllerOutput::CaptureEnd(_)
            | ControllerOutput::Watch(_)
            | ControllerOutput::WatchEnd(_)
            | ControllerOutput::AddNodes(_)
            | ControllerOutput::RunCommand { .. }
            | ControllerOutput::EndCommand(..)
            | ControllerOutput::Capture { .. } => {
                self.world
                    .fault("the controller is no machine, and not in Slurm".to_owned());
            }
            ControllerOutput::Daemon(node, message) => {
                self.tell_door(node, &message);
                match &message {
                    ToDaemon::Launch(launch) => {
                        self.check_place(launch);
                        self.verdicts.on_launch(self.world.now, node, launch);
                        self.world.ledger.facts.on_launch(node, launch);
                    }
                    ToDaemon::End { job, .. } | ToDaemon::Kill { job } => {
                        self.told_to_end.insert(*job);
                        let verdict = self.verdicts.of(*job);
                        let ending = verdict.is_some_and(|verdict| verdict.ending);
                        self.world
                            .require(ending, || format!("job {job} is ended without a reason"));
                    }
                    ToDaemon::Preload {
                        job,
                        what: ToPreload::Chunk { bytes, .. },
                    } => {
                        let node = self.nodes.get_mut(&node);
                        let length = bytes.len() as u64;
                        let wrong = node.and_then(|node| node.disk.on_sent(*job, length));
                        if let Some(wrong) = wrong {
                            self.world.fault(wrong);
                        }
                    }
                    _ => {}
                }
                self.world.send_down(node, Carried::Message(message));
            }
            ControllerOutput::ReadFile {
                job,
                path,
                offset,
                length,
            } => {
                let result = self.source.read(job, &path, offset, length);
                let delay = self.world.delay(self.world.latency.io_max);
                self.world.after(delay, Event::FileRead { job, result });
            }
            ControllerOutput::FindFiles { job, wanted } => {
                let result = self.source.find(&wanted);
                let delay = self.world.delay(self.world.latency.io_max);
                self.world.after(delay, Event::FilesFound { job, result });
            }
            ControllerOutput::Finished(front) => {
                let side = self.fronts.get_mut(&front);
                let again = side.is_none_or(|side| std::mem::replace(&mut side.is_finished, true));
                self.world
                    .require(!again, || format!("front {front} is finished twice"));
            }
            ControllerOutput::Log(what) => self.world.fault(format!("the controller logs: {what}")),
            ControllerOutput::Syslog { .. } => {
                self.world.fault("no scripted program logs".to_owned());
            }
        }
    }

    /// Marks the run as finished and checks its final state, once the controller has no job and all fronts are done. A front
    /// is done if it has submitted its job and is either finished or lost.
    fn check_finished(&mut self) {
        let is_over = |(id, side): (&FrontId, &FrontSide)| {
            side.submission.is_none() && (side.is_finished || self.verdicts.is_lost(*id))
        };
        if self.finished.is_none() && self.controller.is_idle() && self.fronts.iter().all(is_over) {
            self.finished = Some(self.world.now);
            self.check_end();
        }
    }

    fn send_front(&mut self, id: FrontId, message: ToFront) {
        self.world.require(!self.verdicts.is_lost(id), || {
            "a front that is gone is told something".to_owned()
        });
        if let ToFront::Accepted(job) = message {
            self.verdicts.on_accepted(self.world.now, id, job);
        }
        let Some(side) = self.fronts.get_mut(&id) else {
            return;
        };
        let after = side.said_last;
        self.world
            .require(!after, || format!("after its end the job says {message:?}"));
        match &message {
            ToFront::AllHeld { held, dead } => {
                let Some(verdict) = self.verdicts.of_front(id) else {
                    return;
                };
                let size: u32 = verdict
                    .ranks
                    .values()
                    .map(|ranks| u32::try_from(ranks.len()).unwrap_or(0))
                    .sum();
                let (all, gone) = (side.hold.among(size), verdict.gone());
                let released = verdict.released.clone();
                let gone = gone.intersection(&all);
                let whole = all
                    .difference(&held.union(dead).union(&released))
                    .is_empty()
                    && held.is_disjoint(&dead.union(&released))
                    && dead.difference(&gone).is_empty()
                    && gone.difference(&dead.union(&released)).is_empty();
                self.world.require(whole, || {
                    format!(
                        "held {held}, dead {dead}; of {all} are gone {gone}, released {released}"
                    )
                });
                let asked = side.hold.at == HoldAt::Exec;
                self.world
                    .require(asked, || "`all held`, but nobody asked".to_owned());
            }
            ToFront::Output { chunk, .. } => {
                let of = self.verdicts.of(chunk.job);
                let of = of.filter(|verdict| !verdict.is_of_tool());
                let is_right = of.is_some_and(|verdict| verdict.front == id);
                self.world.require(is_right, || {
                    format!("front {id} gets output of job {}", chunk.job)
                });
            }
            ToFront::Refused(why) => {
                side.said_last = true;
                self.verdicts.on_refused(id);
                self.check_refusal(why);
                let is_justified =
                    self.files.is_troubled() || !matches!(why, Refusal::NotPreloaded(_));
                self.world
                    .require(is_justified, || format!("for no reason: {why:?}"));
            }
            ToFront::Ended(outcome) => {
                side.said_last = true;
                self.check_outcome(id, outcome);
            }
            _ => {}
        }
        self.world.tell_front(id, message);
    }
}

/// Returns the configuration of the PMIx server of a node.
fn service(node: NodeId, door: Option<NodeId>) -> ServiceConfig {
    ServiceConfig {
        port: PORT + u16::try_from(node.0).unwrap_or(0),
        uid: OWNER.uid,
        gid: OWNER.gid,
        name: format!("{NAME}-{node}"),
        session_dir: Some("/session".into()),
        tools: match door {
            Some(door) if door == node => dvm::Tools::Admitted,
            Some(_) | None => dvm::Tools::Refused,
        },
    }
}
