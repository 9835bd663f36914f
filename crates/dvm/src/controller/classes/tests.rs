use base::{NodeId, Topology};

use crate::{
    alloc::{AllocatedNode, Allocation, Slots},
    controller::{
        Controller, ControllerInput, ControllerOutput,
        spawned::tests::job,
        tests::{FRONT, hello},
    },
    place::TopologyDigest,
    proto::{FromFront, ToController, ToDaemon, ToFront, VERSION},
    spec::OnFailure,
};

/// A controller with a job on this many nodes, of 1 rank each.
struct World {
    controller: Controller,
    nodes: u32,
    launched: u32,
    /// Nodes that were asked for their topology, and what else matters.
    heard: Vec<String>,
}

impl World {
    fn new(nodes: u32) -> Self {
        let mut world = Self::idle(nodes);
        world.submits();
        world
    }

    /// A controller without a job.
    fn idle(nodes: u32) -> Self {
        let node = |number: u32| AllocatedNode {
            name: format!("n{number}"),
            slots: Slots::Implicit,
            max_slots: None,
            granted: None,
        };
        let allocation = Allocation {
            nodes: (0..nodes).map(node).collect(),
        };
        Self {
            controller: Controller::new(allocation, "test".to_owned()),
            nodes,
            launched: 0,
            heard: Vec::new(),
        }
    }

    fn submits(&mut self) {
        let mut spec = job(OnFailure::Continue);
        spec.placement.apps[0].count = None;
        let (front, pid) = (FRONT, 77);
        self.handle(ControllerInput::FrontConnected { front, pid });
        let submit = FromFront::Submit(Box::new(spec));
        self.handle(ControllerInput::Front(FRONT, submit));
    }

    fn handle(&mut self, input: ControllerInput) {
        self.controller.handle(base::Time::ZERO, input);
        while let Some(output) = self.controller.poll() {
            match output {
                ControllerOutput::Daemon(node, ToDaemon::SendTopology) => {
                    self.heard.push(format!("{node} is asked"));
                }
                ControllerOutput::Daemon(_, ToDaemon::Launch(launch)) => {
                    assert_eq!(launch.nodes.len(), self.nodes as usize);
                    self.launched = launch.size();
                }
                ControllerOutput::Front(_, ToFront::Refused(refusal)) => {
                    self.heard.push(format!("{refusal:?}"));
                }
                ControllerOutput::Log(text) => self.heard.push(text),
                _ => {}
            }
        }
    }

    fn says(&mut self, node: u32, message: ToController) {
        self.handle(ControllerInput::Daemon(NodeId(node), message));
    }

    fn connects(&mut self, node: u32, topology: &Topology) {
        let hello = ToController::Hello {
            resources: Default::default(),
            version: VERSION,
            node: NodeId(node),
            host: format!("n{node}"),
            topology: TopologyDigest::of(topology),
        };
        self.says(node, hello);
    }

    fn answers(&mut self, node: u32, topology: &Topology) {
        self.says(node, ToController::Topology(Box::new(topology.clone())));
    }
}

/// The topology arrives while others are still being started, or behind all of them.
#[test]
fn equal_nodes_send_one_topology() {
    for answers_after in [1, 40, 64] {
        let mut world = World::new(64);
        let flat = Topology::flat(2);
        for node in 0..64 {
            world.connects(node, &flat);
            if node + 1 == answers_after {
                world.answers(0, &flat);
            }
        }
        assert_eq!(world.heard, ["0 is asked"]);
        assert_eq!(world.launched, 128);
    }
}

#[test]
fn each_class_is_asked_once() {
    let mut world = World::new(6);
    let kinds = [Topology::flat(1), Topology::flat(2), Topology::flat(4)];
    for (node, kind) in [(5, 2), (0, 0), (1, 1), (2, 0), (3, 1), (4, 2)] {
        world.connects(node, &kinds[kind]);
    }
    assert_eq!(world.heard, ["5 is asked", "0 is asked", "1 is asked"]);
    for (node, kind) in [(1, 1), (5, 2), (0, 0)] {
        assert_eq!(world.launched, 0);
        world.answers(node, &kinds[kind]);
    }
    assert_eq!(world.launched, 1 + 2 + 1 + 2 + 4 + 4);
}

/// A session may be over when its daemons connect.
#[test]
fn nobody_is_asked_before_there_is_a_job() {
    let mut world = World::idle(2);
    let flat = Topology::flat(2);
    world.connects(0, &flat);
    world.connects(1, &flat);
    assert_eq!(world.heard, [""; 0]);
    world.submits();
    assert_eq!(world.heard, ["0 is asked"]);
    world.answers(0, &flat);
    assert_eq!(world.launched, 4);
}

/// Nobody else is asked: the job cannot be placed without the lost node.
#[test]
fn a_job_does_not_wait_for_the_topology_of_a_lost_node() {
    let mut world = World::new(2);
    let flat = Topology::flat(2);
    world.connects(0, &flat);
    world.connects(1, &flat);
    world.handle(ControllerInput::DaemonLost(NodeId(0), "gone".to_owned()));
    insta::assert_snapshot!(world.heard.join("\n"), @r#"
    0 is asked
    NodeLost { host: "n0" }
    "#);
}

#[test]
fn a_daemon_that_breaks_the_rules_is_logged_and_keeps_no_job_waiting() {
    let mut world = World::new(1);
    world.answers(0, &Topology::flat(2));
    world.says(0, hello(0));
    world.answers(0, &Topology::flat(3));
    insta::assert_snapshot!(world.heard.join("\n"), @"
    the daemon on node 0 sends a topology before its hello: ignored
    0 is asked
    the daemon on node 0 sends another topology than its digest says
    ");
    assert_eq!(world.launched, 3);
}
