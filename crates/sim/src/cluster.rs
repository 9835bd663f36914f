//! One run: a controller, its nodes and its front, and the checks that need all of them.

mod check;

use std::collections::{BTreeMap, BTreeSet};

use base::{JobId, NodeId, ProcId, Time, Topology};
use dvm::{
    Controller, ControllerInput, ControllerOutput, DaemonConfig, FIRST_JOB, ServiceConfig,
    proto::{FromFront, ToDaemon, ToFront},
    spec::{HoldAt, HoldPlan},
};

use crate::{
    front::Front,
    kernel::OWNER,
    ledger::{Ledger, NAME, host},
    node::{FRONT_PID, Node},
    rng::Rng,
    scenario::{Fault, Scenario},
    verdict::{Verdict, Verdicts},
    world::{Carried, Event, Link, Links, Recorded, World},
};

/// Where the first node's daemon listens for PMIx.
const PORT: u16 = 4_000;
/// Cores of a simulated node.
const CORES: u32 = 64;
/// A run that is not over by then never will be.
const HORIZON: Time = Time::from_nanos(5_000_000_000_000);
/// A run with more events than this goes round in circles.
const EVENTS_MAX: u64 = 3_000_000;

/// The numbers of a run that was in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Events that happened.
    pub events: u64,
    /// Virtual time at which the job was over.
    pub finished: Time,
}

pub(crate) struct Cluster {
    world: World,
    controller: Controller,
    /// The controller is gone.
    headless: bool,
    nodes: BTreeMap<NodeId, Node>,
    front: Front,
    verdicts: Verdicts,
    /// Jobs that nodes were told to end.
    told_to_end: BTreeSet<JobId>,
    faults: Vec<(std::time::Duration, Fault)>,
    hold: HoldPlan,
    tick_for: Option<Time>,
    finished: Option<Time>,
    said_last: bool,
}

/// Runs a scenario to its end: gives its numbers, or the first fault and the record.
pub(crate) fn run(
    scenario: Scenario,
    rng: Rng,
    recorded: Recorded,
) -> Result<Report, (String, Vec<String>)> {
    let mut cluster = Cluster::new(scenario, rng, recorded);
    let report = cluster.run();
    cluster.world.into_fault().map_or(Ok(report), Err)
}

impl Cluster {
    fn new(scenario: Scenario, rng: Rng, recorded: Recorded) -> Self {
        let ids: Vec<NodeId> = (0..)
            .map(NodeId)
            .take(scenario.allocation.nodes.len())
            .collect();
        let links = Links {
            up: ids.iter().map(|id| (*id, Link::new())).collect(),
            down: ids.iter().map(|id| (*id, Link::new())).collect(),
            to_front: Link::new(),
            from_front: Link::new(),
        };
        let latency = scenario.latency;
        let slack = 4 * (latency.link_max + latency.io_max + latency.tick_late_max);
        let ledger = Ledger::new(scenario.input.content.clone(), slack);
        let mut world = World::new(rng, scenario.latency, links, ledger, recorded);
        world.note(|| "spec".to_owned(), || format!("{:?}", scenario.spec.end));
        for (rank, script) in &scenario.scripts {
            world.note(|| format!("r{rank}"), || format!("{script:?}"));
        }
        let programs = scenario.programs();
        let node = |id: &NodeId| {
            let config = DaemonConfig {
                node: *id,
                host: host(*id),
                topology: Topology::flat(CORES),
                descriptors: u64::MAX,
                service: Some(service(*id)),
            };
            (*id, Node::new(config, programs.clone()))
        };
        let nodes: BTreeMap<NodeId, Node> = ids.iter().map(node).collect();
        let front = Front::new(
            scenario.input,
            scenario.print,
            scenario.acts,
            scenario.release_after,
            nodes.len(),
        );
        front.begin(&mut world);
        for (index, (when, _)) in scenario.faults.iter().enumerate() {
            world.after(*when, Event::Fault { index });
        }
        let verdicts = Verdicts::new(&scenario.spec);
        let hold = scenario.spec.hold.clone();
        world.hear_front(Carried::Message(FromFront::Submit(Box::new(scenario.spec))));
        let mut cluster = Self {
            world,
            controller: Controller::new(scenario.allocation, FRONT_PID, NAME.to_owned()),
            headless: false,
            nodes,
            front,
            verdicts,
            told_to_end: BTreeSet::new(),
            faults: scenario.faults,
            hold,
            tick_for: None,
            finished: None,
            said_last: false,
        };
        for node in cluster.nodes.values_mut() {
            node.say_hello(&mut cluster.world);
        }
        cluster
    }

    fn run(&mut self) -> Report {
        let mut events = 0;
        while !self.world.is_faulty() {
            let Some(event) = self.world.next() else {
                if self.finished.is_none() && !self.headless_and_clean() {
                    self.world
                        .fault("hang: nothing will ever happen again".to_owned());
                }
                break;
            };
            if self.world.now > HORIZON {
                if self.finished.is_none() && !self.headless_and_clean() {
                    self.world.fault("hang: the job does not end".to_owned());
                }
                break;
            }
            events += 1;
            self.world.require(events < EVENTS_MAX, || {
                "hang: the run goes round in circles".to_owned()
            });
            self.on_event(event);
            if self.headless && self.finished.is_none() && self.headless_and_clean() {
                self.finished = Some(self.world.now);
                self.check_end();
            }
        }
        if !self.world.is_faulty() && !self.headless {
            self.check_told();
        }
        Report {
            events,
            finished: self.finished.unwrap_or(Time::ZERO),
        }
    }

    fn headless_and_clean(&self) -> bool {
        self.headless && self.nodes.values().all(Node::is_clean)
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::ToController { node } => {
                match self.world.links.up.get_mut(&node).and_then(Link::receive) {
                    Some(Carried::Message(message)) => {
                        self.tell(ControllerInput::Daemon(node, message))
                    }
                    Some(Carried::Lost) => self.tell(ControllerInput::DaemonLost(node)),
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
            Event::ToFront => {
                if let Some(Carried::Message(message)) = self.world.links.to_front.receive() {
                    self.front.on_message(&mut self.world, message);
                }
            }
            Event::FromFront => match self.world.links.from_front.receive() {
                Some(Carried::Message(message)) => self.tell(ControllerInput::Front(message)),
                Some(Carried::Lost) => self.tell(ControllerInput::FrontLost),
                None => {}
            },
            Event::FrontActs { index } => self.front.act(&mut self.world, index),
            Event::FrontReads => self.front.read(&mut self.world),
            Event::FrontReleases => self.front.release(&mut self.world),
            Event::Printed { stream, cost } => self.front.on_printed(&mut self.world, stream, cost),
            Event::Fault { index } => self.break_something(index),
            Event::ControllerTick { due } => {
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
                    // One process, one timer: the daemon beside it is woken too.
                    if let Some(node) = self.nodes.get_mut(&NodeId(0)).filter(|node| node.is_on()) {
                        node.tick(&mut self.world);
                    }
                }
            }
            Event::Step { node, .. }
            | Event::Readable { node, .. }
            | Event::FeedStdin { node, .. }
            | Event::Reap { node, .. }
            | Event::Trap { node, .. }
            | Event::Spawn { node, .. }
            | Event::Swept { node, .. }
            | Event::PmiToDaemon { node, .. }
            | Event::PmiClosed { node, .. }
            | Event::PmiToRank { node, .. }
            | Event::ClientUp { node, .. }
            | Event::ClientDown { node, .. }
            | Event::DaemonTick { node, .. } => {
                if let Some(node) = self.nodes.get_mut(&node) {
                    node.on_event(&mut self.world, event);
                }
            }
        }
    }

    fn break_something(&mut self, index: usize) {
        let Some((_, fault)) = self.faults.get(index).copied() else {
            return;
        };
        if self.finished.is_some() || self.headless {
            return;
        }
        self.world
            .note(|| "fault".to_owned(), || format!("{fault:?}"));
        match fault {
            Fault::LoseNode(id) => {
                // A daemon that is lost before the launch is a matter of starting daemons, which is not built yet.
                let launched = self.first().ranks.contains_key(&id);
                if let Some(node) = self
                    .nodes
                    .get_mut(&id)
                    .filter(|node| node.is_on() && launched)
                {
                    node.power_off(&mut self.world);
                    if let Some(link) = self.world.links.down.get_mut(&id) {
                        link.cut();
                    }
                    self.world.send_up(id, Carried::Lost);
                }
            }
            Fault::KillRank(rank) => {
                let job = FIRST_JOB;
                for node in self.nodes.values_mut() {
                    node.kill_rank(&mut self.world, ProcId { job, rank });
                }
            }
            Fault::LoseController => {
                self.headless = true;
                self.front.gone = true;
                self.world.links.to_front.cut();
                self.world.links.from_front.cut();
                let now = self.world.now;
                self.world.ledger.busy(now);
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
        if self.headless {
            return;
        }
        self.world
            .note(|| "ctl".to_owned(), || format!("<- {input:?}"));
        self.verdicts.on_input(self.world.now, &input);
        self.world.ledger.ending.extend(self.verdicts.ending());
        for (job, verdict) in self.verdicts.spawned().filter(|(_, one)| one.is_over()) {
            self.world.ledger.on_job_over(job, verdict.code());
        }
        self.controller.handle(self.world.now, input);
        while let Some(output) = self.controller.poll() {
            self.carry_out(output);
        }
        self.check_children();
        let due = self.controller.deadline();
        if due != self.tick_for {
            self.tick_for = due;
            if let Some(due) = due {
                self.world.at(due, Event::ControllerTick { due });
            }
        }
    }

    /// The opinion about the front's job.
    const fn first(&self) -> &Verdict {
        self.verdicts.first()
    }

    fn carry_out(&mut self, output: ControllerOutput) {
        self.world
            .note(|| "ctl".to_owned(), || format!("-> {output:?}"));
        self.world.require(self.finished.is_none(), || {
            "the controller goes on after it has finished".to_owned()
        });
        match output {
            ControllerOutput::Front(message) => self.send_front(message),
            ControllerOutput::Daemon(node, message) => {
                match &message {
                    ToDaemon::Launch(launch) => {
                        self.verdicts.on_launch(node, launch);
                        self.world.ledger.facts.on_launch(node, launch);
                    }
                    ToDaemon::End { job, .. } | ToDaemon::Kill { job } => {
                        self.told_to_end.insert(*job);
                        let verdict = self.verdicts.of(*job);
                        let ending = verdict.is_some_and(|verdict| verdict.ending);
                        self.world
                            .require(ending, || format!("job {job} is ended without a reason"));
                    }
                    _ => {}
                }
                self.world.send_down(node, Carried::Message(message));
            }
            ControllerOutput::Answer { .. } => {}
            ControllerOutput::Finished => {
                self.finished = Some(self.world.now);
                self.check_end();
            }
            ControllerOutput::Log(what) => self.world.fault(format!("the controller logs: {what}")),
        }
    }

    fn send_front(&mut self, message: ToFront) {
        self.world.require(!self.verdicts.front_lost, || {
            "a front that is gone is told something".to_owned()
        });
        let after = self.said_last;
        self.world
            .require(!after, || format!("after its end the job says {message:?}"));
        match &message {
            ToFront::AllHeld { held, dead } => {
                let size: u32 = self
                    .first()
                    .ranks
                    .values()
                    .map(|ranks| u32::try_from(ranks.len()).unwrap_or(0))
                    .sum();
                let (all, gone) = (self.hold.among(size), self.first().gone());
                let released = self.first().released.clone();
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
                let asked = self.hold.at == HoldAt::Exec;
                self.world
                    .require(asked, || "`all held`, but nobody asked".to_owned());
            }
            ToFront::Refused(_) => self.said_last = true,
            ToFront::Ended(outcome) => {
                self.said_last = true;
                self.check_outcome(outcome);
            }
            _ => {}
        }
        self.world.tell_front(message);
    }
}

/// How PMIx is served on a node.
fn service(node: NodeId) -> ServiceConfig {
    ServiceConfig {
        port: PORT + u16::try_from(node.0).unwrap_or(0),
        uid: OWNER.uid,
        gid: OWNER.gid,
        name: format!("{NAME}-{node}"),
        session_dir: Some("/session".into()),
    }
}
