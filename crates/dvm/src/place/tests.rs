//! Guarantees of placement, checked on recorded topologies and against the maps of `prterun`.

mod cases;
mod goldens;
mod invariants;
mod lookup;

use base::{NodeId, Topology};

use super::*;
use crate::alloc::AllocatedNode;

/// Returns nodes named `a`, `b`, … with these slots.
fn nodes(slots: &[Slots]) -> Allocation {
    let node = |(name, slots): (char, &Slots)| AllocatedNode {
        name: name.to_string(),
        slots: *slots,
        max_slots: None,
        granted: Some(u32::MAX),
    };
    Allocation {
        nodes: ('a'..='z').zip(slots).map(node).collect(),
    }
}

/// Returns a request for one app.
fn request(count: Option<u32>, map: &str, rank: &str, bind: &str) -> Request {
    let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    Request {
        apps: vec![AppRequest {
            count,
            ..AppRequest::default()
        }],
        map_by: some(map).map(|text| map_by(&text).unwrap()),
        rank_by: some(rank).map(|text| rank_by(&text).unwrap()),
        bind_to: some(bind).map(|text| bind_to(&text).unwrap()),
        ..Request::default()
    }
}

/// Returns the ranks of each node with their bindings: `a 0:0-1 2:4 | b 1:-`.
fn shown(map: &JobMap, allocation: &Allocation) -> String {
    let node = |node: NodeId| {
        let procs = map.on_node(node).into_iter().map(|proc| match proc.cpus {
            Some(cpus) => format!("{}:{cpus}", proc.rank),
            None => format!("{}:-", proc.rank),
        });
        format!(
            "{} {}",
            allocation.nodes[node.0 as usize].name,
            procs.collect::<Vec<_>>().join(" ")
        )
    };
    map.nodes().map(node).collect::<Vec<_>>().join(" | ")
}

#[test]
fn defaults() {
    let local = nodes(&[Slots::Implicit]);
    let four = Topologies::uniform(Topology::flat(4));
    let place = |request: &Request| place(request, &local, &four).unwrap();
    insta::assert_snapshot!(shown(&place(&request(None, "", "", "")), &local), @"a 0:0 1:1 2:2 3:3");
    insta::assert_snapshot!(shown(&place(&request(Some(2), "", "", "")), &local), @"a 0:0 1:1");
    let many = place(&request(Some(6), "", "", ""));
    insta::assert_snapshot!(shown(&many, &local), @"a 0:- 1:- 2:- 3:- 4:- 5:-");
    insta::assert_snapshot!(many.notes()[0], @"6 procs share 4 cores on `a` and are not bound");
}
