//! Where a run is placed.

use base::Topology;

use super::*;
use crate::{
    alloc::AllocatedNode,
    controller::{ControllerInput, tests::hello},
    place::{AppRequest, Request, TopologyDigest},
    proto::ToController,
};

/// Creates a controller of two nodes with so many cores, whose daemons have connected.
fn controller(cores: u32) -> Controller {
    let nodes = ["n0", "n1"].map(|name| AllocatedNode {
        name: name.to_owned(),
        slots: Slots::Explicit(8),
        max_slots: None,
        granted: None,
    });
    let allocation = Allocation {
        nodes: nodes.into(),
    };
    let mut controller = Controller::new(allocation, "test".to_owned());
    for node in 0..2 {
        let ToController::Hello {
            version,
            node,
            host,
            ..
        } = hello(node)
        else {
            panic!()
        };
        let said = ToController::Hello {
            version,
            node,
            host,
            topology: TopologyDigest::of(&Topology::flat(cores)),
        };
        controller.handle(Time::ZERO, ControllerInput::Daemon(node, said));
        let topology = ToController::Topology(Box::new(Topology::flat(cores)));
        controller.handle(Time::ZERO, ControllerInput::Daemon(node, topology));
    }
    controller
}

/// Returns how many ranks of a job are on each node, if it is granted these slots.
fn placed(cores: u32, request: &Request, slots: [u32; 2], sharing: Sharing) -> String {
    let controller = controller(cores);
    let slots = (0..).map(NodeId).zip(slots);
    let grant = Grant {
        slots: slots.filter(|(_, slots)| *slots > 0).collect(),
        sharing,
    };
    let (request, allocation) = controller.within(request, &grant).unwrap();
    let topologies = controller.topologies.of(&controller.nodes).unwrap();
    let map = match place::place(&request, &allocation, &topologies) {
        Ok(map) => map,
        Err(error) => return format!("{error:?}"),
    };
    let nodes = map.nodes().map(|node| {
        let ranks = map.ranks_on(node).len();
        format!("{ranks}@n{node}")
    });
    nodes.collect::<Vec<_>>().join("+")
}

fn request(count: u32, map: &str) -> Request {
    Request {
        apps: vec![AppRequest {
            count: Some(count),
            ..AppRequest::default()
        }],
        map_by: Some(place::map_by(map).unwrap()),
        ..Request::default()
    }
}

#[test]
fn procs_with_several_cpus_use_the_slots_that_were_granted() {
    let job = request(4, "slot:PE=2");
    let cases = [
        // Half of each node is that of other jobs.
        (8, [4, 4], Sharing::Shared, "2@n0+2@n1"),
        (8, [8, 0], Sharing::Shared, "4@n0"),
        (8, [2, 6], Sharing::Shared, "1@n0+3@n1"),
        // The user has said that there are more slots than cores. Nobody is bound.
        (4, [8, 0], Sharing::Shared, "4@n0"),
        (4, [2, 6], Sharing::Shared, "1@n0+3@n1"),
        // Whole nodes are used as without a machine.
        (8, [8, 8], Sharing::Exclusive, "4@n0"),
        (4, [8, 8], Sharing::Exclusive, "2@n0+2@n1"),
    ];
    for (cores, slots, sharing, expected) in cases {
        let shown = placed(cores, &job, slots, sharing);
        assert_eq!(shown, expected, "{cores} cores, {slots:?}, {sharing:?}");
    }
    let by_node = request(4, "node:PE=2");
    assert_eq!(placed(8, &by_node, [2, 6], Sharing::Shared), "1@n0+3@n1");
    let per_node = request(4, "ppr:2:node:PE=2");
    assert_eq!(placed(8, &per_node, [4, 4], Sharing::Shared), "2@n0+2@n1");
    // Who asks for a binding needs the cores.
    let mut bound = request(4, "slot");
    bound.bind_to = Some(place::bind_to("core:2").unwrap());
    assert_eq!(placed(8, &bound, [4, 4], Sharing::Shared), "2@n0+2@n1");
    let refused = placed(4, &bound, [8, 0], Sharing::Shared);
    assert!(refused.starts_with("NotEnough"), "{refused}");
}
