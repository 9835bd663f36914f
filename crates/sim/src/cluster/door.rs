//! A controller on a host that is no node of the jobs: the daemon there, the tools that come to it, and the process that both share.

use std::{collections::BTreeSet, time::Duration};

use base::{JobId, NodeId, Time};
use dvm::{
    ControllerInput,
    proto::{Launch, ToController, ToDaemon},
};

use super::Cluster;
use crate::{
    scenario::{DoorPlan, GuestPlan},
    world::Event,
};

/// The door of a run.
#[derive(Debug)]
pub(super) struct Door {
    pub(super) node: NodeId,
    guests: Vec<GuestPlan>,
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
        if let ToDaemon::LaunchedElsewhere(launch) = message
            && let Some(door) = self.door.as_mut().filter(|door| door.node == node)
        {
            door.told.insert(launch.job);
        }
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
            Event::ToDaemon { node }
            | Event::ClientUp { node, .. }
            | Event::DaemonTick { node, .. } => self.is_door(*node),
            _ => false,
        };
        (concerns && self.world.now < self.stopped_until).then_some(self.stopped_until)
    }

    /// Checks that no job notices the door.
    pub(super) fn check_place(&mut self, launch: &Launch) {
        if let Some(door) = &mut self.door {
            door.launched.insert(launch.job);
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
