//! A controller on a host that is no node of the jobs: the daemon there, the tools that come to it, and the process that both share.

use std::{collections::BTreeSet, time::Duration};

use base::{JobId, NodeId, Time};
use dvm::{
    Control, ControllerInput,
    proto::{FrontId, Launch, Refusal, Relation, Stream, ToController, ToDaemon},
    spec::{HoldAt, HoldPlan},
};

use super::Cluster;
use crate::{
    scenario::{ControlPlan, DoorPlan, GuestPlan, Stop},
    world::Event,
};

/// Time in which a job starts that was released, in addition to the delays of the run: all nodes have joined, or do that soon.
const START_MAX: Duration = Duration::from_millis(60);

/// The door of a run.
#[derive(Debug)]
pub(super) struct Door {
    pub(super) node: NodeId,
    guests: Vec<GuestPlan>,
    control: ControlPlan,
    /// True once its daemon has said hello.
    has_joined: bool,
    /// Jobs that were launched, and those of which it was told.
    launched: BTreeSet<JobId>,
    told: BTreeSet<JobId>,
}

impl Door {
    pub(super) fn new(node: NodeId, plan: DoorPlan) -> Self {
        Self {
            node,
            guests: plan.guests,
            control: plan.control,
            has_joined: false,
            launched: BTreeSet::new(),
            told: BTreeSet::new(),
        }
    }
}

impl Cluster {
    /// Tells the controller that its daemon is a door, before everything else.
    pub(super) fn open_door(&mut self) {
        if self.door.is_some() {
            self.tell(ControllerInput::Door);
        }
    }

    /// Lets the launcher wait for a tool, if it is to wait.
    pub(super) fn summon(&mut self) {
        let Some(Door { node, control, .. }) = &self.door else {
            return;
        };
        let control = match control {
            ControlPlan::Nobody => return,
            ControlPlan::Pause => Some(Control::Pause),
            ControlPlan::Started(plan) => {
                if plan.goes_on {
                    self.verdicts.control.goes_on();
                }
                if plan.stop == Stop::Exec
                    && let Some(side) = self.fronts.get_mut(&FrontId(0))
                    && side.hold.at == HoldAt::Nowhere
                {
                    self.world.ledger.directives_hold = true;
                    side.hold = HoldPlan {
                        at: HoldAt::Exec,
                        ranks: None,
                    };
                }
                let node = self.nodes.get_mut(node);
                let directives = node.and_then(|node| node.summon(&mut self.world, plan));
                directives.map(|directives| Control::Started { directives })
            }
        };
        match control {
            Some(control) => self.tell(ControllerInput::Controlled(control)),
            None => self
                .world
                .fault("the launcher and its tool do not find each other".to_owned()),
        }
    }

    /// The tool that has started the launcher has closed its pipe.
    pub(super) fn keepalive_closes(&mut self) {
        if self.finished.is_none() {
            self.tell(ControllerInput::ControllingToolDied);
        }
    }

    /// Checks that the job of a front may start that waits for a tool.
    fn check_released(&mut self, launch: &Launch) {
        let front = self.verdicts.front_of(launch.job);
        let is_first = front.and_then(|front| self.verdicts.job_of(front)) == Some(launch.job);
        let Some(front) = front.filter(|_| is_first) else {
            return;
        };
        let may_start = self.verdicts.control.lets_start(front);
        self.world.require(may_start, || {
            format!("job {} starts without its tool", launch.job)
        });
        let is_controlled = launch.parent.is_some();
        let is_released = self.world.ledger.released_at.is_some();
        self.world.require(is_released || !is_controlled, || {
            format!("job {} starts, and nobody has released it", launch.job)
        });
    }

    /// Checks that a job neither waits for a dead tool nor for one that has released it.
    pub(super) fn check_wait(&mut self) {
        let control = &self.verdicts.control;
        let Some(front) = control.front() else {
            return;
        };
        let verdict = self.verdicts.of_front(front);
        let waits = verdict.is_some_and(|verdict| verdict.ranks.is_empty() && !verdict.ending);
        let is_told = self.fronts.get(&front).is_none_or(|side| side.said_last);
        if !waits || is_told {
            return;
        }
        let patience = self.world.ledger.slack + START_MAX;
        let is_late = |since: Time| self.world.now > since + patience;
        if control.is_gone() {
            self.world.fault("a job waits for a dead tool".to_owned());
        } else if let Some(since) = control.released().filter(|since| is_late(*since)) {
            self.world.fault(format!(
                "a job does not start, although it was released at {since}"
            ));
        }
    }

    /// Checks that a job is refused because its tool is gone.
    pub(super) fn check_refusal(&mut self, why: &Refusal) {
        let is_gone = self.world.ledger.is_starter_gone && self.verdicts.control.is_gone();
        let is_right = *why != Refusal::ToolEnded || is_gone;
        self.world
            .require(is_right, || "its tool is there".to_owned());
    }

    pub(super) fn is_door(&self, node: NodeId) -> bool {
        self.door.as_ref().is_some_and(|door| door.node == node)
    }

    /// Returns the node whose daemon shares a process with the controller.
    pub(super) fn beside_controller(&self) -> NodeId {
        self.door.as_ref().map_or(NodeId(0), |door| door.node)
    }

    /// Notes what the controller has heard of the door.
    pub(super) fn hear_door(&mut self, input: &ControllerInput) {
        if let ControllerInput::Daemon(node, ToController::Hello { .. }) = input
            && let Some(door) = self.door.as_mut().filter(|door| door.node == *node)
        {
            door.has_joined = true;
        }
    }

    /// Notes what the door is told.
    pub(super) fn tell_door(&mut self, node: NodeId, message: &ToDaemon) {
        let Some(door) = self.door.as_mut().filter(|door| door.node == node) else {
            return;
        };
        if let ToDaemon::LaunchedElsewhere(launch) = message {
            door.told.insert(launch.job);
        }
        self.verdicts.control.on_told(message);
        self.world.ledger.starter = self.verdicts.control.tool();
    }

    /// Checks that the door is told of each job as soon as it is launched.
    pub(super) fn check_door_told(&mut self) {
        let door = self.door.as_ref().filter(|door| door.has_joined);
        let untold = door.and_then(|door| door.launched.difference(&door.told).next().copied());
        if let Some(job) = untold {
            self.world
                .fault(format!("the door is not told of job {job}"));
        }
    }

    /// Schedules the visits of all tools.
    pub(super) fn invite(&mut self) {
        let guests = self.door.iter().flat_map(|door| &door.guests);
        for (number, guest) in guests.enumerate() {
            self.world.after(guest.comes, Event::GuestComes { number });
        }
    }

    pub(super) fn guest_comes(&mut self, number: usize) {
        let Some(door) = &self.door else {
            return;
        };
        let plan = door.guests.get(number).cloned();
        // The process ends with the last job.
        let node = self.nodes.get_mut(&door.node);
        if let (Some(node), Some(plan), None) = (node, plan, self.finished) {
            node.receive(&mut self.world, number, plan);
        }
    }

    /// Stops the process of the controller for a while.
    pub(super) fn stop_controller(&mut self, time: Duration) {
        let now = self.world.now;
        let until = self.stopped_until.max(now + time);
        self.stopped_until = until;
        self.world.ledger.stops += time;
        self.world.ledger.busy(until);
    }

    /// Returns the time until which the process of the controller is stopped, if an event concerns it.
    pub(super) fn stopped_with_controller(&self, event: &Event) -> Option<Time> {
        let concerns = match event {
            Event::ToController { .. }
            | Event::ControllerTick { .. }
            | Event::FromFront { .. }
            | Event::FilesFound { .. }
            | Event::FileRead { .. } => true,
            event => self.is_at_door(event),
        };
        (concerns && self.world.now < self.stopped_until).then_some(self.stopped_until)
    }

    /// Returns true if an event is one of the daemon in the process of the controller, or of what comes to that process alone.
    pub(super) fn is_at_door(&self, event: &Event) -> bool {
        match event {
            Event::KeepaliveCloses => true,
            Event::ToController { node }
            | Event::ToDaemon { node }
            | Event::ClientUp { node, .. }
            | Event::DaemonTick { node, .. } => self.is_door(*node),
            _ => false,
        }
    }

    /// Checks that no job notices the door.
    pub(super) fn check_place(&mut self, launch: &Launch) {
        self.check_released(launch);
        let Some(door) = &mut self.door else {
            return;
        };
        let is_first = door.launched.insert(launch.job);
        if let Some(parent) = launch.parent.as_ref().filter(|_| is_first) {
            let copies = &mut self.world.ledger.copies;
            if parent.relation == Relation::Controller {
                let forward = parent.forward.iter();
                copies
                    .forwarded
                    .extend(forward.map(|stream| (launch.job, *stream)));
            }
            if let Some(keeping) = parent.keep {
                copies.on_kept(launch.job, &Stream::BOTH, keeping, None);
            }
        }
        let node = launch.map.nodes().find(|node| self.is_door(*node));
        self.world.require(node.is_none(), || {
            format!("job {} is to run at the door", launch.job)
        });
        let is_tool = self.world.ledger.is_tool(launch.job);
        self.world
            .require(!is_tool, || format!("a tool is number {}", launch.job));
    }

    /// Checks what the tools have heard, once nothing happens any more.
    pub(super) fn check_guests(&mut self) {
        let Some(finished) = self.finished else {
            return;
        };
        let door = self.door.as_ref();
        let node = door.and_then(|door| self.nodes.get(&door.node));
        let missed = node.and_then(|node| node.unheard_by_guests(&self.world, finished));
        if let Some(missed) = missed {
            self.world.fault(missed);
        }
    }
}
