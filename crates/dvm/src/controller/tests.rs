//! Helpers for the tests of the controller's submodules: a controller of three nodes.

use std::time::Duration;

use base::{JobId, NodeId, Time, Topology};

use super::{Controller, ControllerInput, ControllerOutput, spawned::tests::job};
use crate::{
    alloc::{AllocatedNode, Allocation, Slots},
    place::TopologyDigest,
    proto::{FromFront, FrontId, ToController, ToDaemon, VERSION},
    spec::OnFailure,
};

pub(super) const NODES: u32 = 3;
/// The front that has submitted [`JOB`].
pub(super) const FRONT: FrontId = FrontId(0);
/// The job of the world.
pub(super) const JOB: JobId = JobId(1);

/// A controller with one job, which has a rank on each node.
pub(super) struct World {
    pub(super) controller: Controller,
    now: Time,
}

impl World {
    /// Creates a world whose daemons have connected, so that the job is launched.
    pub(super) fn new() -> Self {
        let mut world = Self::waiting();
        for node in 0..NODES {
            world.says(node, hello(node));
        }
        world
    }

    /// Creates a world whose job still waits for the daemons.
    pub(super) fn waiting() -> Self {
        Self::after(None)
    }

    /// The same, after this input.
    pub(super) fn after(first: Option<ControllerInput>) -> Self {
        Self::limited(first, None)
    }

    /// Creates a world without a job, after this input.
    pub(super) fn empty(first: Option<ControllerInput>) -> Self {
        let node = |number: u32| AllocatedNode {
            name: format!("n{number}"),
            slots: Slots::Explicit(1),
            max_slots: None,
            granted: None,
        };
        let allocation = Allocation {
            nodes: (0..NODES).map(node).collect(),
        };
        let mut world = Self {
            controller: Controller::new(allocation, "test".to_owned()),
            now: Time::ZERO,
        };
        if let Some(first) = first {
            world.handle(first);
        }
        world
    }

    /// Creates a world whose job, which has this time limit, still waits for the daemons, after this input.
    pub(super) fn limited(first: Option<ControllerInput>, limit: Option<Duration>) -> Self {
        let mut world = Self::empty(first);
        let mut spec = job(OnFailure::Continue);
        spec.placement.apps[0].count = Some(NODES);
        spec.end.time_limit = limit;
        world.connects(FRONT, 77);
        world.hears(FRONT, FromFront::Submit(Box::new(spec)));
        world
    }

    /// Handles an event, and returns the outputs. Daemons answer questions for their topology at once.
    pub(super) fn handle(&mut self, input: ControllerInput) -> Vec<ControllerOutput> {
        self.controller.handle(self.now, input);
        let mut outputs = Vec::new();
        while let Some(output) = self.controller.poll() {
            if let ControllerOutput::Daemon(node, ToDaemon::SendTopology) = output {
                let topology = ToController::Topology(Box::new(Topology::flat(1)));
                let answer = ControllerInput::Daemon(node, topology);
                self.controller.handle(self.now, answer);
            } else {
                outputs.push(output);
            }
        }
        outputs
    }

    /// Lets the time come.
    pub(super) fn at(&mut self, now: Time) {
        self.now = now;
    }

    /// Connects a front.
    pub(super) fn connects(&mut self, front: FrontId, pid: u32) -> Vec<ControllerOutput> {
        self.handle(ControllerInput::FrontConnected { front, pid })
    }

    /// Handles a message from a front, and returns the outputs.
    pub(super) fn hears(&mut self, front: FrontId, message: FromFront) -> Vec<ControllerOutput> {
        self.handle(ControllerInput::Front(front, message))
    }

    /// Handles a message from a daemon, and returns the outputs.
    pub(super) fn says(&mut self, node: u32, message: ToController) -> Vec<ControllerOutput> {
        self.handle(ControllerInput::Daemon(NodeId(node), message))
    }

    pub(super) fn lose(&mut self, node: u32) -> Vec<ControllerOutput> {
        self.handle(ControllerInput::DaemonLost(
            NodeId(node),
            "its connection was closed".to_owned(),
        ))
    }
}

pub(super) fn hello(node: u32) -> ToController {
    ToController::Hello {
        resources: Default::default(),
        version: VERSION,
        node: NodeId(node),
        host: format!("n{node}"),
        topology: TopologyDigest::of(&Topology::flat(1)),
    }
}

/// Formats the messages to daemons, one per line.
pub(super) fn to_daemons(
    outputs: Vec<ControllerOutput>,
    words: impl Fn(ToDaemon) -> Option<String>,
) -> String {
    let told = outputs.into_iter().filter_map(|output| match output {
        ControllerOutput::Daemon(node, message) => Some(format!("{node}: {}", words(message)?)),
        _ => None,
    });
    told.collect::<Vec<_>>().join("\n")
}
