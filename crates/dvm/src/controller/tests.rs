//! A controller of three nodes, for the tests of its modules.

use base::{JobId, NodeId, Time, Topology};

use super::{Controller, ControllerInput, ControllerOutput, spawned::tests::job};
use crate::{
    alloc::{AllocatedNode, Allocation, Slots},
    proto::{FromFront, FrontId, ToController, ToDaemon, VERSION},
    spec::OnFailure,
};

pub(super) const NODES: u32 = 3;
/// The front that has submitted the job.
pub(super) const FRONT: FrontId = FrontId(0);
/// The job.
pub(super) const JOB: JobId = JobId(1);

/// It has one job, with a rank on each node.
pub(super) struct World {
    pub(super) controller: Controller,
}

impl World {
    /// The daemons are there, and the job is launched.
    pub(super) fn new() -> Self {
        let mut world = Self::waiting();
        for node in 0..NODES {
            world.says(node, hello(node));
        }
        world
    }

    /// The job waits for the daemons.
    pub(super) fn waiting() -> Self {
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
        };
        let mut spec = job(OnFailure::Continue);
        spec.placement.apps[0].count = Some(NODES);
        world.connects(FRONT, 77);
        world.hears(FRONT, FromFront::Submit(Box::new(spec)));
        world
    }

    pub(super) fn handle(&mut self, input: ControllerInput) -> Vec<ControllerOutput> {
        self.controller.handle(Time::ZERO, input);
        std::iter::from_fn(|| self.controller.poll()).collect()
    }

    /// A front connects.
    pub(super) fn connects(&mut self, front: FrontId, pid: u32) -> Vec<ControllerOutput> {
        self.handle(ControllerInput::FrontConnected { front, pid })
    }

    /// A front says something; what comes of it.
    pub(super) fn hears(&mut self, front: FrontId, message: FromFront) -> Vec<ControllerOutput> {
        self.handle(ControllerInput::Front(front, message))
    }

    /// A daemon says something; what comes of it.
    pub(super) fn says(&mut self, node: u32, message: ToController) -> Vec<ControllerOutput> {
        self.handle(ControllerInput::Daemon(NodeId(node), message))
    }

    pub(super) fn lose(&mut self, node: u32) -> Vec<ControllerOutput> {
        self.handle(ControllerInput::DaemonLost(NodeId(node)))
    }
}

pub(super) fn hello(node: u32) -> ToController {
    ToController::Hello {
        version: VERSION,
        node: NodeId(node),
        host: format!("n{node}"),
        topology: Box::new(Topology::flat(1)),
    }
}

/// What daemons are told, in words.
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
