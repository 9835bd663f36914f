//! Comparison of our maps with those of `prterun`. `testdata/placement/README.md` describes how they were recorded.

use base::{CoreKind, CpuSet, Level, Pu};

use super::*;

const GOLDENS: &str = include_str!("../../../../../testdata/placement/prterun.txt");

/// Returns the topology that hwloc creates from `pack:2 numa:1 l3:1 l2:4 l1:1 core:1 pu:2`: the arity of each level,
/// widest first.
fn synthetic(text: &str) -> Topology {
    let arity = |name: &str| {
        let mut levels = text.split(' ').filter_map(|level| level.split_once(':'));
        let found = levels.find(|(known, _)| *known == name).unwrap();
        found.1.parse::<u32>().unwrap()
    };
    let [pack, numa, l3, l2, l1, core, pu] =
        ["pack", "numa", "l3", "l2", "l1", "core", "pu"].map(arity);
    let total = pack * numa * l3 * l2 * l1 * core * pu;
    let one = |os_index: u32| {
        let core_index = os_index / pu;
        let l1_index = core_index / core;
        let l2_index = l1_index / l1;
        let l3_index = l2_index / l2;
        let numa_index = l3_index / l3;
        Pu {
            os_index,
            core: core_index,
            package: numa_index / numa,
            numa: Some(numa_index),
            l3: Some(l3_index),
            l2: Some(l2_index),
            l1: Some(l1_index),
            kind: CoreKind::Performance,
        }
    };
    Topology::from_pus((0..total).map(one).collect(), (0..total).collect())
}

/// Returns the PUs of `core:0-3` or `hwt:0-7`, numbered in logical order; `None` for `-`, which is unbound.
fn bound(text: &str, topology: &Topology) -> Option<CpuSet> {
    let (kind, list) = text.split_once(':')?;
    let units = topology.objects(if kind == "core" {
        Level::Core
    } else {
        Level::Pu
    });
    let list = list.parse::<CpuSet>().unwrap();
    Some(
        list.iter()
            .fold(CpuSet::new(), |set, unit| set.union(&units[unit as usize])),
    )
}

fn read(args: &str) -> Request {
    let mut request = request(None, "", "", "");
    let mut words = args.split_whitespace();
    while let Some(option) = words.next() {
        let value = words.next().unwrap();
        match option {
            "-n" => request.apps[0].count = Some(value.parse().unwrap()),
            "--map-by" => request.map_by = Some(map_by(value).unwrap()),
            "--rank-by" => request.rank_by = Some(rank_by(value).unwrap()),
            "--bind-to" => request.bind_to = Some(bind_to(value).unwrap()),
            other => panic!("{other}"),
        }
    }
    request
}

#[test]
fn the_same_maps_as_prterun() {
    let mut topology = Topology::default();
    let mut allocation = Allocation::default();
    let mut compared = 0;
    let mut differ = Vec::new();
    let mut lines = GOLDENS.lines().peekable();
    while let Some(line) = lines.next() {
        if let Some(text) = line.strip_prefix("node ") {
            topology = synthetic(text);
        } else if let Some(text) = line.strip_prefix("hosts ") {
            let host = |text: &str| {
                let (name, slots) = text.split_once(':').unwrap();
                let slots = Slots::Explicit(slots.parse().unwrap());
                AllocatedNode {
                    name: name.to_owned(),
                    slots,
                    max_slots: None,
                    granted: Some(u32::MAX),
                }
            };
            allocation.nodes = text.split(',').map(host).collect();
        } else if let Some(args) = line.strip_prefix("run ") {
            let mut theirs = Vec::new();
            while let Some(node) = lines.next_if(|line| line.starts_with("  ")) {
                let mut words = node.split_whitespace();
                let name = words.next().unwrap();
                for word in words {
                    let (rank, cpus) = word.split_once('=').unwrap();
                    theirs.push((
                        rank.parse::<u32>().unwrap(),
                        name.to_owned(),
                        bound(cpus, &topology),
                    ));
                }
            }
            theirs.sort();
            let ours = place(
                &read(args),
                &allocation,
                &Topologies::uniform(topology.clone()),
            );
            let ours = ours.map(|map| {
                let name = |rank| {
                    allocation.nodes[map.node_of(Rank(rank)).unwrap().0 as usize]
                        .name
                        .clone()
                };
                (0..map.ranks())
                    .map(|rank| (rank, name(rank), map.cpus_of(Rank(rank)).cloned()))
                    .collect::<Vec<_>>()
            });
            compared += 1;
            if ours.as_ref() != Ok(&theirs) {
                differ.push(format!(
                    "{} nodes: {args}\n  prterun {theirs:?}\n  ours    {ours:?}",
                    allocation.nodes.len()
                ));
            }
        }
    }
    assert!(
        differ.is_empty(),
        "{} of {compared} maps differ:\n{}",
        differ.len(),
        differ.join("\n")
    );
    assert!(compared > 500, "only {compared} maps were compared");
}
