//! One job on as many nodes as wanted: how the tree, the messages and the memory grow with the number of nodes.
//!
//! All processes are the code that ships: a controller, an overlay process and a daemon for each node, joined by encrypted
//! connections. Ranks are numbers: they start at once, write nothing, and exit when all of them run. Nothing fails here;
//! faults are the subject of the families.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use base::{ExitStatus, JobId, NodeId, ProcId, Rank, Time, Topology};
use bytes::Bytes;
use dvm::{
    Controller, ControllerInput, ControllerOutput, Daemon, DaemonConfig, Input, Output,
    alloc::{AllocatedNode, Allocation, Slots},
    bootstrap::PARALLEL,
    place::{AppRequest, Request},
    proto::{FromFront, FrontId, Launch, ToController, ToDaemon, ToFront},
    spec::{
        App, Destination, EndPolicy, HoldPlan, JobSpec, MapFor, NodeResources, Recorder,
        ResourceLimits, ResourceNeeds, StdinTarget, StdioPlan, Tracers,
    },
};
use overlay::{Address, DEFAULT_RADIX, lanes::Lane, node, wire};

use crate::{
    net::{Net, Traffic},
    rng::Rng,
    tree::parents,
};

/// Maximum number of nodes. Each has an address of its own in `Net`, and there are numbers for ten ranks of each.
pub const NODES_MAX: u32 = 1_000_000;
/// Maximum delay of the network.
const DELAY_MAX: Duration = Duration::from_micros(50);
/// So long that no sign of life and no report of what was received is counted.
const TIMING: node::Timing = node::Timing {
    lease: Duration::from_secs(24 * 3_600),
    window: Duration::from_secs(2),
};
/// Virtual time after which a run counts as a hang.
const HORIZON: Time = Time::from_nanos(3_600_000_000_000);
/// The only front.
const FRONT: FrontId = FrontId(1);

/// What a run has shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    pub nodes: u32,
    pub ranks: u32,
    /// Number of links between the root and the farthest process.
    pub depth: u32,
    /// The most children of one process.
    pub children_max: u32,
    /// Number of topologies that the controller has got from all daemons.
    pub topologies: u32,
    /// The most sends of one process for one cast to all.
    pub sends_max: u64,
    /// Number of sends of all processes for that cast.
    pub sends: u64,
    /// Length of the encoded launch, and of the map in it.
    pub launch_bytes: usize,
    pub map_bytes: usize,
    /// Number of casts that carried the launch.
    pub launch_casts: u32,
    /// Bytes that the root has sent to launch the job.
    pub root_bytes: u64,
    /// Number of messages that the controller received from the submission to the end of the job, and their bytes.
    pub answers: u64,
    pub answer_bytes: u64,
    /// Number of classes in the outcome that the front gets.
    pub classes: usize,
    /// Number of events of the network.
    pub events: u64,
}

/// Runs one job.
///
/// # Errors
///
/// Returns a description of what went wrong.
pub fn measure(nodes: u32, ranks_per_node: u32) -> Result<Measured, String> {
    let mut run = Run::new(nodes, ranks_per_node);
    run.join()?;
    run.cast()?;
    run.job()?;
    Ok(run.measured)
}

struct Run {
    nodes: u32,
    each: u32,
    net: Net,
    controller: Controller,
    daemons: BTreeMap<Address, Box<Daemon>>,
    /// When a daemon wants to be woken.
    wakes: BTreeMap<Address, Time>,
    /// The same, in the order of time.
    agenda: BTreeSet<(Time, Address)>,
    joined: u32,
    started: u32,
    hellos: u32,
    received: u64,
    /// The last message that was decoded: all daemons get the same launch, and here they share it.
    decoded: Option<(Bytes, ToDaemon)>,
    /// A message of the controller for these daemons that is not sent yet, as in `runtime::daemons`.
    pending: Option<(BTreeSet<Address>, ToDaemon)>,
    /// Number of daemons whose ranks all run.
    launched: u32,
    is_finished: bool,
    measured: Measured,
}

const fn address(node: NodeId) -> Address {
    Address(node.0 + 1)
}

const fn node(address: Address) -> NodeId {
    NodeId(address.0 - 1)
}

/// Merges messages on their way, as in `runtime::daemons`.
fn merge(bodies: &[Bytes]) -> Option<Bytes> {
    let messages = bodies.iter().map(|body| wire::decode(body).ok());
    let messages: Option<Vec<ToController>> = messages.collect();
    wire::encode(&ToController::merge(messages?)?).ok()
}

fn host(number: u32) -> String {
    format!("n{number:06}")
}

impl Run {
    fn new(nodes: u32, each: u32) -> Self {
        let mut net = Net::new(Rng::new(1), DELAY_MAX, TIMING, merge);
        net.start_root(parents(nodes, DEFAULT_RADIX.get()));
        let allocation = Allocation {
            nodes: (0..nodes)
                .map(|number| AllocatedNode {
                    name: host(number),
                    slots: Slots::Explicit(each),
                    max_slots: None,
                    granted: None,
                })
                .collect(),
        };
        Self {
            nodes,
            each,
            net,
            controller: Controller::new(allocation, "sim".to_owned()),
            daemons: BTreeMap::new(),
            wakes: BTreeMap::new(),
            agenda: BTreeSet::new(),
            joined: 0,
            started: 0,
            hellos: 0,
            received: 0,
            decoded: None,
            pending: None,
            launched: 0,
            is_finished: false,
            measured: Measured {
                nodes,
                ranks: nodes * each,
                ..Measured::default()
            },
        }
    }

    /// Runs until a condition holds.
    fn until(&mut self, holds: impl Fn(&Self) -> bool) -> Result<(), String> {
        while !holds(self) {
            self.step()?;
        }
        Ok(())
    }

    fn step(&mut self) -> Result<(), String> {
        self.flush()?;
        let wake = self.agenda.first().copied();
        let controller = self.controller.deadline();
        let net = self.net.next_at();
        let due = wake.map(|wake| wake.0).into_iter().chain(controller).min();
        match (net, due) {
            (Some(net), Some(due)) if due < net => self.wake(due, wake)?,
            (Some(_), _) => {
                self.measured.events += 1;
                self.net.step();
            }
            (None, Some(due)) => self.wake(due, wake)?,
            (None, None) => return Err("nothing will ever happen again".to_owned()),
        }
        if self.net.now > HORIZON {
            return Err("the job does not end".to_owned());
        }
        if let Some(fault) = self.net.take_fault() {
            return Err(fault);
        }
        while let Some((who, news)) = self.net.news() {
            self.on_news(who, news)?;
        }
        Ok(())
    }

    fn wake(&mut self, due: Time, wake: Option<(Time, Address)>) -> Result<(), String> {
        self.net.now = self.net.now.max(due);
        match wake {
            Some((at, who)) if at == due => {
                self.sleep(who, None);
                self.tell_daemon(who, Input::Tick)
            }
            _ => self.tell(ControllerInput::Tick),
        }
    }

    fn on_news(&mut self, who: Address, news: node::Output) -> Result<(), String> {
        match news {
            node::Output::Joined(_) => {
                self.joined += 1;
                self.start_next();
                Ok(())
            }
            node::Output::Ready => {
                self.add_daemon(who);
                self.pump(who)
            }
            node::Output::Received { from, body, .. } if who == Address::ROOT => {
                self.measured.answers += 1;
                self.measured.answer_bytes += body.len() as u64;
                let message = wire::decode::<ToController>(&body).map_err(|why| why.to_string())?;
                self.hellos += u32::from(matches!(message, ToController::Hello { .. }));
                self.measured.topologies += u32::from(matches!(message, ToController::Topology(_)));
                self.launched += u32::from(matches!(message, ToController::Launched { .. }));
                self.tell(ControllerInput::Daemon(node(from), message))
            }
            node::Output::Merged { of, body, .. } => {
                self.measured.answers += 1;
                self.measured.answer_bytes += body.len() as u64;
                let message = wire::decode::<ToController>(&body).map_err(|why| why.to_string())?;
                let nodes: BTreeSet<NodeId> = of.into_iter().map(node).collect();
                if matches!(message, ToController::Launched { .. }) {
                    self.launched += u32::try_from(nodes.len()).unwrap_or(u32::MAX);
                }
                self.tell(ControllerInput::Daemons(nodes, message))
            }
            node::Output::Received { body, .. } => {
                self.received += 1;
                if body.is_empty() {
                    return Ok(());
                }
                let message = self.decode(body)?;
                self.tell_daemon(who, Input::Message(message))
            }
            other => Err(format!("{who}: {other:?}")),
        }
    }

    fn decode(&mut self, body: Bytes) -> Result<ToDaemon, String> {
        if let Some((bytes, message)) = &self.decoded
            && *bytes == body
        {
            return Ok(message.clone());
        }
        let message = wire::decode::<ToDaemon>(&body).map_err(|why| why.to_string())?;
        self.decoded = Some((body, message.clone()));
        Ok(message)
    }

    fn start_next(&mut self) {
        if self.started < self.nodes {
            self.started += 1;
            self.net.start(Address(self.started));
        }
    }

    fn add_daemon(&mut self, who: Address) {
        let number = who.0 - 1;
        let daemon = Daemon::new(DaemonConfig {
            node: NodeId(number),
            host: host(number),
            topology: Topology::flat(self.each),
            resources: NodeResources::default(),
            descriptors: u64::MAX,
            service: None,
        });
        self.daemons.insert(who, Box::new(daemon));
    }

    fn tell_daemon(&mut self, who: Address, input: Input<'_>) -> Result<(), String> {
        if let Some(daemon) = self.daemons.get_mut(&who) {
            daemon.handle(self.net.now, input);
        }
        self.pump(who)
    }

    fn pump(&mut self, who: Address) -> Result<(), String> {
        let now = self.net.now;
        let Some(daemon) = self.daemons.get_mut(&who) else {
            return Ok(());
        };
        let mut messages = Vec::new();
        while let Some(output) = daemon.poll() {
            match output {
                Output::Send(message) => messages.push(message),
                Output::Spawn(order) => {
                    let proc = order.proc;
                    let pid = i32::try_from(1_000 + proc.rank.0 % self.each).unwrap_or(1);
                    let executable = "/bin/a".into();
                    let spawned = Input::Spawned {
                        proc,
                        pid,
                        executable,
                    };
                    daemon.handle(now, spawned);
                }
                Output::Sweep { job, .. } => {
                    let swept = Input::Swept {
                        counted: None,
                        job,
                        left: Vec::new(),
                        not_permitted: BTreeSet::new(),
                    };
                    daemon.handle(now, swept);
                }
                Output::Log(what) => return Err(format!("daemon {who} logs: {what}")),
                _ => {}
            }
        }
        let due = daemon.deadline();
        self.sleep(who, due);
        for message in messages {
            let body = wire::encode(&message).map_err(|why| why.to_string())?;
            // As in `runtime::daemons`.
            let lane = match message {
                ToController::FencesAbandoned { .. } => Lane::Control,
                _ => Lane::Bulk,
            };
            self.net.with(who, |node, now| match message.class() {
                Some(class) => node.send_mergeable(now, lane, node::Class(class), body),
                None => node.send(lane, body),
            });
        }
        Ok(())
    }

    /// Notes when a daemon wants to be woken.
    fn sleep(&mut self, who: Address, due: Option<Time>) {
        if let Some(before) = self.wakes.remove(&who) {
            self.agenda.remove(&(before, who));
        }
        if let Some(due) = due {
            self.wakes.insert(who, due);
            self.agenda.insert((due, who));
        }
    }

    fn tell(&mut self, input: ControllerInput) -> Result<(), String> {
        self.controller.handle(self.net.now, input);
        while let Some(output) = self.controller.poll() {
            match output {
                ControllerOutput::Daemon(node, message) => self.send(node, message)?,
                ControllerOutput::Front(_, ToFront::Ended(outcome)) => {
                    self.measured.classes = outcome.ended.len();
                }
                ControllerOutput::Front(_, ToFront::Refused(why)) => {
                    return Err(format!("the job is refused: {why:?}"));
                }
                ControllerOutput::Finished(_) => self.is_finished = true,
                ControllerOutput::Log(what) => return Err(format!("the controller logs: {what}")),
                ControllerOutput::Front(..)
                | ControllerOutput::ReadFile { .. }
                | ControllerOutput::FindFiles { .. }
                | ControllerOutput::Syslog { .. }
                | ControllerOutput::Store(_)
                | ControllerOutput::Fetch { .. }
                | ControllerOutput::CaptureStart(..)
                | ControllerOutput::CaptureEnd(_)
                | ControllerOutput::Watch(_)
                | ControllerOutput::WatchEnd(_)
                | ControllerOutput::AddNodes(_)
                | ControllerOutput::RunCommand { .. }
                | ControllerOutput::EndCommand(..)
                | ControllerOutput::Capture { .. } => {}
            }
        }
        Ok(())
    }

    /// Sends a message to a daemon. Equal messages in succession travel as one.
    fn send(&mut self, node: NodeId, message: ToDaemon) -> Result<(), String> {
        if let Some((to, pending)) = &mut self.pending
            && pending.is_same(&message)
            && to.insert(address(node))
        {
            return Ok(());
        }
        self.flush()?;
        self.pending = Some(([address(node)].into(), message));
        Ok(())
    }

    fn flush(&mut self) -> Result<(), String> {
        let Some((to, message)) = self.pending.take() else {
            return Ok(());
        };
        let body = wire::encode(&message).map_err(|why| why.to_string())?;
        if let ToDaemon::Launch(launch) = &message {
            self.measured.launch_casts += 1;
            self.measured.launch_bytes = body.len();
            self.measured.map_bytes = map_bytes(launch)?;
        }
        self.net.with(Address::ROOT, |root, now| {
            root.cast(now, &to, Lane::Control, &body);
        });
        Ok(())
    }

    /// Starts all processes, and waits until the controller knows all daemons.
    fn join(&mut self) -> Result<(), String> {
        for _ in 0..PARALLEL.get() {
            self.start_next();
        }
        self.until(|run| run.joined == run.nodes && run.hellos == run.nodes)?;
        let mut depths = BTreeMap::from([(Address::ROOT, 0)]);
        let mut children: BTreeMap<Address, u32> = BTreeMap::new();
        for who in (1..=self.nodes).map(Address) {
            let parent = self.net.node(who).and_then(node::Node::parent);
            let parent = parent.ok_or_else(|| format!("{who} has no parent"))?;
            // Parents have smaller numbers.
            let depth = depths.get(&parent).map_or(0, |depth| depth + 1);
            depths.insert(who, depth);
            *children.entry(parent).or_default() += 1;
        }
        self.measured.depth = depths.into_values().max().unwrap_or(0);
        self.measured.children_max = children.into_values().max().unwrap_or(0);
        Ok(())
    }

    /// Sends an empty message to all.
    fn cast(&mut self) -> Result<(), String> {
        self.net.forget_traffic();
        let (all, before) = ((1..=self.nodes).map(Address).collect(), self.received);
        self.net.with(Address::ROOT, |root, now| {
            root.cast(now, &all, Lane::Control, &Bytes::new());
        });
        let nodes = u64::from(self.nodes);
        self.until(|run| run.received - before == nodes)?;
        let sends = (0..=self.nodes).map(|who| self.net.traffic(Address(who)).writes);
        self.measured.sends_max = sends.clone().max().unwrap_or(0);
        self.measured.sends = sends.sum();
        Ok(())
    }

    /// Runs a job on all nodes.
    fn job(&mut self) -> Result<(), String> {
        (self.measured.answers, self.measured.answer_bytes) = (0, 0);
        self.net.forget_traffic();
        let spec = Box::new(spec(self.measured.ranks));
        self.tell(ControllerInput::FrontConnected {
            front: FRONT,
            pid: 77,
        })?;
        self.tell(ControllerInput::Front(FRONT, FromFront::Submit(spec)))?;
        self.until(|run| run.launched == run.nodes)?;
        let Traffic { bytes, .. } = self.net.traffic(Address::ROOT);
        self.measured.root_bytes = bytes;
        for who in (1..=self.nodes).map(Address) {
            for local in 0..self.each {
                let rank = Rank((who.0 - 1) * self.each + local);
                let job = JobId(1);
                let proc = ProcId { job, rank };
                let status = ExitStatus::Exited(0);
                if let Some(daemon) = self.daemons.get_mut(&who) {
                    daemon.handle(
                        self.net.now,
                        Input::Exited {
                            proc,
                            end: status.into(),
                        },
                    );
                }
            }
            self.pump(who)?;
        }
        self.until(|run| run.is_finished)?;
        Ok(())
    }
}

fn map_bytes(launch: &Launch) -> Result<usize, String> {
    let bytes = wire::encode(&launch.map).map_err(|why| why.to_string())?;
    Ok(bytes.len())
}

fn spec(ranks: u32) -> JobSpec {
    let discard = || Destination::Discard;
    JobSpec {
        limits: ResourceLimits::default(),
        apps: vec![App {
            program: "a".into(),
            args: Vec::new(),
            env: dvm::spec::Environment::default(),
            directory: "/".into(),
            search: "/bin".into(),
            elsewhere: std::sync::Arc::default(),
            umask: 0o022,
            tracers: Tracers::default(),
        }],
        placement: Request {
            apps: vec![AppRequest {
                count: Some(ranks),
                ..AppRequest::default()
            }],
            ..Request::default()
        },
        universe: None,
        stdin: StdinTarget::None,
        stdio: StdioPlan {
            stdout: discard(),
            stderr: discard(),
            ..StdioPlan::default()
        },
        end: EndPolicy::default(),
        hold: HoldPlan::NOWHERE,
        variables: BTreeSet::new(),
        gpus: None,
        preload: None,
        map: MapFor::Launch,
        watch: None,
        needs: ResourceNeeds::default(),
        sets: Default::default(),
        recorder: Recorder::Off,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cast_costs_each_process_no_more_sends_than_it_has_children() {
        let measured = measure(100, 10).unwrap();
        assert_eq!((measured.depth, measured.children_max), (2, 32));
        assert_eq!((measured.sends_max, measured.sends), (32, 100));
        assert_eq!((measured.launch_casts, measured.classes), (1, 1));
    }

    #[test]
    fn equal_nodes_send_one_topology_to_the_root() {
        for nodes in [1, 64] {
            assert_eq!(measure(nodes, 4).unwrap().topologies, 1, "{nodes} nodes");
        }
    }
}
