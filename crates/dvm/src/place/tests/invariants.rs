//! Invariants that hold on every recorded topology, for every policy and every number of procs.

use base::{CpuSet, Level, RankSet};

use super::*;

macro_rules! recorded {
    ($($test:ident: $name:literal,)*) => {
        const RECORDED: &[(&str, &str)] = &[
            $(($name, include_str!(concat!("../../../../../testdata/topologies/", $name, ".json")))),*
        ];

        /// One test for each node, so that the tests run in parallel.
        mod every_policy_on {
            $(#[test]
            fn $test() {
                super::every_policy_on($name);
            })*
        }
    };
}

recorded! {
    altra_80c: "altra-80c",
    cpuset_halves: "cpuset-halves",
    epyc_1s32c_nps4: "epyc-1s32c-nps4",
    epyc_2s64c_nps1: "epyc-2s64c-nps1",
    grace_72c_memory_only: "grace-72c-memory-only",
    hybrid_6p8e: "hybrid-6p8e",
    hybrid_6p8e2lp: "hybrid-6p8e2lp",
    laptop_4c8t: "laptop-4c8t",
    offline_holes: "offline-holes",
    power9_2s16c_smt4: "power9-2s16c-smt4",
    quota_2500: "quota-2500",
    quota_500_2c: "quota-500-2c",
    single_core: "single-core",
    vm_2v_no_numa: "vm-2v-no-numa",
    xeon_1s8c_cxl: "xeon-1s8c-cxl",
    xeon_2s12c_alternating: "xeon-2s12c-alternating",
    xeon_2s16c_smt: "xeon-2s16c-smt",
    xeon_2s20c_snc2: "xeon-2s20c-snc2",
    xeon_4s10c_smt: "xeon-4s10c-smt",
    xeonmax_2s56c_hbm: "xeonmax-2s56c-hbm",
}

fn recorded() -> impl Iterator<Item = (&'static str, Topology)> {
    RECORDED
        .iter()
        .map(|(name, text)| (*name, serde_json::from_str(text).unwrap()))
}

const MAPS: [&str; 22] = [
    "",
    "slot",
    "node",
    "core",
    "hwthread",
    "l1cache",
    "l2cache",
    "l3cache",
    "numa",
    "package",
    "core:SPAN",
    "numa:SPAN",
    "package:SPAN",
    "slot:HWTCPUS",
    "package:HWTCPUS",
    "slot:PE=2",
    "package:PE=2",
    "numa:PE=3:SPAN",
    "ppr:1:node",
    "ppr:2:package",
    "ppr:1:l3cache",
    "seq",
];
const RANKS: [&str; 4] = ["slot", "node", "fill", "span"];
const BINDS: [&str; 7] = ["", "none", "core", "hwthread", "l3cache", "numa", "package"];

/// Placed job with the input of its placement.
struct Case<'a> {
    name: String,
    request: &'a Request,
    allocation: &'a Allocation,
    topology: &'a Topology,
    topologies: &'a Topologies,
    objects: &'a BTreeMap<Level, Vec<CpuSet>>,
    map: JobMap,
}

impl Case<'_> {
    fn objects(&self, level: Level) -> &[CpuSet] {
        &self.objects[&level]
    }
}

/// Returns every mapping with every ranking, and every mapping with every binding.
fn policies() -> Vec<(&'static str, &'static str, &'static str)> {
    let mut policies = Vec::new();
    for map in MAPS {
        policies.extend(BINDS.map(|bind| (map, "", bind)));
        policies.extend(RANKS.map(|rank| (map, rank, "")));
    }
    policies
}

fn every_policy_on(machine: &str) {
    let mut placed = 0;
    for (_, topology) in recorded().filter(|(name, _)| *name == machine) {
        let cores = u32::try_from(topology.cores().len()).unwrap();
        let topologies = Topologies::uniform(topology.clone());
        let levels = [
            Level::Package,
            Level::Numa,
            Level::L3,
            Level::L2,
            Level::L1,
            Level::Core,
            Level::Pu,
        ];
        let objects = levels
            .map(|level| (level, topology.objects(level)))
            .into_iter()
            .collect();
        let sites = [
            nodes(&[Slots::Implicit]),
            nodes(&[Slots::Explicit(cores); 3]),
            nodes(&[Slots::Explicit(3), Slots::Explicit(1), Slots::Implicit]),
        ];
        for ((site, allocation), (map, rank, bind)) in sites
            .iter()
            .enumerate()
            .flat_map(|site| policies().into_iter().map(move |policy| (site, policy)))
        {
            // On the largest nodes, jobs with more procs than cores take long to check and show nothing new.
            let most = if cores <= 40 { 2 * cores + 1 } else { 3 };
            for count in [None, Some(2), Some(most)] {
                let request = &request(count, map, rank, bind);
                let name = format!(
                    "{machine}, site {site}: -n {count:?} map {map} rank {rank} bind {bind}"
                );
                match place(request, allocation, &topologies) {
                    Ok(map) => {
                        placed += 1;
                        check(&Case {
                            name,
                            request,
                            allocation,
                            topology: &topology,
                            topologies: &topologies,
                            objects: &objects,
                            map,
                        });
                    }
                    Err(error) => check_refusal(&name, request, allocation, &topology, &error),
                }
            }
        }
    }
    assert!(placed > 1_200, "only {placed} jobs were placed");
}

fn check(case: &Case<'_>) {
    let Case {
        name,
        request,
        allocation,
        topologies,
        map,
        ..
    } = case;
    let mut seen = RankSet::new();
    let mut counts = Vec::new();
    // Check each group of equal nodes only once.
    let mut before = Vec::new();
    for node in map.nodes() {
        let procs = map.on_node(node);
        let ranks = map.ranks_on(node);
        assert!(!procs.is_empty(), "{name}: {node} is used and has no proc");
        assert!(ranks.is_disjoint(&seen), "{name}: a rank twice");
        seen = seen.union(&ranks);
        assert!(
            procs.iter().map(|proc| proc.rank).eq(ranks.iter()),
            "{name}: on_node and ranks_on differ"
        );
        for (local_rank, proc) in (0..).zip(&procs) {
            assert_eq!(proc.local_rank, local_rank, "{name}: local ranks have gaps");
            assert_eq!(
                map.node_of(proc.rank),
                Some(node),
                "{name}: node_of({})",
                proc.rank
            );
            assert_eq!(
                map.cpus_of(proc.rank),
                proc.cpus.as_ref(),
                "{name}: cpus_of({})",
                proc.rank
            );
            assert_eq!(
                map.app_of(proc.rank),
                Some((proc.app, proc.app_rank)),
                "{name}"
            );
        }
        let bindings = procs
            .iter()
            .map(|proc| proc.cpus.clone())
            .collect::<Vec<_>>();
        if bindings != before {
            check_bindings(case, &procs);
            before = bindings;
        }
        if let Slots::Explicit(slots) = allocation.nodes[node.0 as usize].slots {
            assert!(
                procs.len() <= slots as usize,
                "{name}: more procs than slots"
            );
        }
        counts.push((node, u32::try_from(procs.len()).unwrap()));
    }
    assert_eq!(
        seen,
        RankSet::range(0..map.ranks()),
        "{name}: ranks have gaps"
    );
    if let Some(count) = request.apps[0].count {
        assert_eq!(map.ranks(), count, "{name}: not the number asked for");
    }
    assert!(map.notes().len() <= 1, "{name}: more than one note");
    if request.apps[0].count.is_none() {
        let again = place(request, allocation, topologies);
        assert_eq!(again.as_ref(), Ok(map), "{name}: not the same again");
    }
    check_spread(case, &counts);
}

fn check_bindings(case: &Case<'_>, procs: &[Placed]) {
    let Case {
        name,
        topology,
        map,
        ..
    } = case;
    let AppPolicy {
        map_by, bind_to, ..
    } = &map.apps()[0].policy;
    let BindTarget::Object(level) = bind_to.target else {
        assert!(
            procs.iter().all(|proc| proc.cpus.is_none()),
            "{name}: bound against the user's will"
        );
        return;
    };
    let unit = if map_by.unit == Some(CpuUnit::Pu) {
        Level::Pu
    } else {
        Level::Core
    };
    let units = case.objects(unit);
    let each = map_by.cpus_per_proc.unwrap_or(1) as usize;
    let unbound = procs.iter().filter(|proc| proc.cpus.is_none()).count();
    let noted = map
        .notes()
        .iter()
        .any(|note| matches!(note, Note::Unbound { .. }));
    assert!(
        unbound == 0 || unbound == procs.len(),
        "{name}: some procs of a node are bound and some are not"
    );
    assert!(unbound == 0 || noted, "{name}: unbound without a note");
    if each == 1 {
        assert_eq!(
            unbound == 0,
            procs.len() <= units.len(),
            "{name}: {} procs, {} units",
            procs.len(),
            units.len()
        );
    }
    let mut taken = CpuSet::new();
    let objects = case.objects(level);
    let complete = objects.iter().map(CpuSet::len).sum::<u32>() == topology.allowed().len();
    for cpus in procs.iter().filter_map(|proc| proc.cpus.as_ref()) {
        assert!(
            !cpus.is_empty() && cpus.is_subset(topology.allowed()),
            "{name}: bound to {cpus}"
        );
        if each > 1 {
            let inside = units.iter().filter(|unit| unit.is_subset(cpus)).count();
            assert_eq!(
                inside, each,
                "{name}: bound to {cpus}, which is not {each} units"
            );
        } else if complete {
            assert!(
                objects.contains(cpus),
                "{name}: bound to {cpus}, which is no object"
            );
        }
        if each > 1 || level == unit {
            assert!(taken.is_disjoint(cpus), "{name}: {cpus} is taken twice");
            taken = taken.union(cpus);
        }
    }
}

/// Checks the number of procs on each node.
fn check_spread(case: &Case<'_>, counts: &[(NodeId, u32)]) {
    let Case {
        name,
        request,
        allocation,
        topology,
        map,
        ..
    } = case;
    let equal = allocation
        .nodes
        .windows(2)
        .all(|pair| pair[0].slots == pair[1].slots);
    let policy = &map.apps()[0].policy;
    let nodes = u32::try_from(allocation.nodes.len()).unwrap();
    match &policy.map_by.to {
        Some(MapTo::Node | MapTo::Sequence(_)) if equal => {
            for (node, count) in counts {
                let expected = (map.ranks() - node.0).div_ceil(nodes);
                assert_eq!(*count, expected, "{name}: node {node}");
            }
            if policy.rank_by == RankBy::Node {
                for rank in 0..map.ranks() {
                    assert_eq!(
                        map.node_of(Rank(rank)),
                        Some(NodeId(rank % nodes)),
                        "{name}: rank {rank}"
                    );
                }
            }
        }
        Some(MapTo::Ppr { count, per }) if request.apps[0].count.is_none() => {
            let objects = match per {
                Per::Node => vec![topology.allowed().clone()],
                Per::Object(Level::L3) if topology.objects(Level::L3).is_empty() => {
                    topology.numa_nodes()
                }
                Per::Object(level) => case.objects(*level).to_vec(),
            };
            // Cores of a low-power island without the cache count as an object of their own.
            let objects = u32::try_from(objects.len()).unwrap().max(1);
            for (node, procs) in counts {
                let island = name.starts_with("hybrid-6p8e2lp") && *per == Per::Object(Level::L3);
                assert_eq!(
                    *procs,
                    count * (objects + u32::from(island)),
                    "{name}: node {node}"
                );
            }
        }
        _ => {}
    }
    if matches!(policy.rank_by, RankBy::Slot | RankBy::Fill)
        && !matches!(policy.map_by.to, Some(MapTo::Sequence(_)))
    {
        for (node, _) in counts {
            assert_eq!(
                map.ranks_on(*node).runs(),
                1,
                "{name}: ranks of node {node} are not in a row"
            );
        }
    }
}

/// Checks that a refusal has a reason in the user's request.
fn check_refusal(
    name: &str,
    request: &Request,
    allocation: &Allocation,
    topology: &Topology,
    error: &Error,
) {
    let explicit = allocation
        .nodes
        .iter()
        .any(|node| matches!(node.slots, Slots::Explicit(_)));
    let map = request.map_by.as_ref();
    match error {
        Error::NotEnoughSlots { asked, slots, .. } => {
            assert!(
                explicit && asked > slots
                    || map.is_some_and(|map| matches!(map.to, Some(MapTo::Ppr { .. }))),
                "{name}: {error}"
            );
        }
        Error::NotEnoughCpus {
            procs,
            each,
            available,
            ..
        } => assert!(explicit && procs * each > *available, "{name}: {error}"),
        Error::NotEnoughRoom { procs, room, .. } => {
            assert!(explicit && procs > room, "{name}: {error}")
        }
        Error::NotEnoughPlaces { asked, places, .. } => assert!(asked > places, "{name}: {error}"),
        Error::ObjectTooSmall { each, largest, .. } => {
            assert!(
                each > largest && *largest <= topology.allowed().len(),
                "{name}: {error}"
            );
        }
        other => panic!("{name}: {other}"),
    }
}

#[test]
fn maps_survive_the_wire() {
    for (name, topology) in recorded() {
        let allocation = nodes(&[Slots::Implicit; 3]);
        let topologies = Topologies::uniform(topology);
        for map in ["", "node", "package:SPAN", "ppr:2:package"] {
            let request = request(None, map, "", "");
            let placed = place(&request, &allocation, &topologies).unwrap();
            let bytes = postcard::to_stdvec(&placed).unwrap();
            assert_eq!(
                postcard::from_bytes::<JobMap>(&bytes).unwrap(),
                placed,
                "{name}"
            );
            let json = serde_json::to_string(&placed).unwrap();
            assert_eq!(
                serde_json::from_str::<JobMap>(&json).unwrap(),
                placed,
                "{name}"
            );
            let bytes = postcard::to_stdvec(&(&request, &topologies)).unwrap();
            assert_eq!(
                postcard::from_bytes::<(Request, Topologies)>(&bytes).unwrap(),
                (request, topologies.clone())
            );
        }
    }
}
