//! Places a million ranks on 100,000 nodes and prints how long it took and what the map costs.
//!
//! ```text
//! cargo run --release -p dvm --example place_million
//! ```
#![expect(
    clippy::print_stdout,
    reason = "the numbers are what this program is for"
)]
#![expect(
    clippy::disallowed_methods,
    reason = "measuring needs the clock; the code that is measured never reads it"
)]

use std::time::Instant;

use base::{NodeId, Rank, Topology};
use dvm::{
    alloc::{AllocatedNode, Allocation, Slots},
    place::{AppRequest, Request, Topologies, map_by, place},
};

const NODES: u32 = 100_000;
const RANKS: u32 = 1_000_000;

/// Nodes with 10 slots, or with 8, 10 or 12 in an irregular order.
#[derive(Clone, Copy)]
enum Nodes {
    Equal,
    Irregular,
}

fn allocation(nodes: Nodes) -> Allocation {
    let slots = |node: u32| match nodes {
        Nodes::Equal => 10,
        Nodes::Irregular => 8 + node.wrapping_mul(2_654_435_761) % 3 * 2,
    };
    let node = |node: u32| AllocatedNode {
        name: format!("n{node:05}"),
        slots: Slots::Explicit(slots(node)),
        max_slots: None,
        granted: Some(u32::MAX),
    };
    Allocation {
        nodes: (0..NODES + NODES / 100).map(node).collect(),
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let topologies = Topologies::uniform(Topology::flat(16));
    println!("{RANKS} ranks, {NODES} nodes");
    for (name, nodes) in [
        ("equal nodes", Nodes::Equal),
        ("irregular nodes", Nodes::Irregular),
    ] {
        let allocation = allocation(nodes);
        for policy in ["core", "node", "slot", "core:SPAN", "ppr:8:node"] {
            let count = if policy.starts_with("ppr") {
                8 * NODES
            } else {
                RANKS
            };
            let request = Request {
                apps: vec![AppRequest {
                    count: Some(count),
                    ..AppRequest::default()
                }],
                map_by: Some(map_by(policy)?),
                ..Request::default()
            };
            let start = Instant::now();
            let map = place(&request, &allocation, &topologies)?;
            let placed = start.elapsed();
            let start = Instant::now();
            let mut found = 0_u64;
            for rank in (0..map.ranks()).step_by(97) {
                found += u64::from(map.node_of(Rank(rank)).unwrap_or(NodeId(0)).0);
            }
            let looked_up = start.elapsed() / (map.ranks() / 97);
            let wire = postcard::to_stdvec(&map)?.len();
            println!(
                "{name:<16} {policy:<10}  placed in {placed:>9.1?}  map {:>10} bytes in memory, {wire:>9} on the wire  \
                 node_of {looked_up:>8.1?}  (check {found})",
                map.memory(),
            );
        }
    }
    // Peak memory of the process. Linux only, for information.
    if let Ok(status) = std::fs::read_to_string("/proc/self/status") {
        for line in status.lines().filter(|line| line.starts_with("VmHWM")) {
            println!(
                "peak memory of this process: {}",
                line.trim_start_matches("VmHWM:").trim()
            );
        }
    }
    Ok(())
}
