//! Consistency of all look-ups in a map, on many irregular nodes.

use std::collections::BTreeMap;

use base::RankSet;
use proptest::prelude::*;

use super::*;

/// Generates runs of nodes with equal slots, so that some blocks are merged and some are not.
fn irregular() -> impl Strategy<Value = Allocation> {
    let run = (1_u32..6, 1_usize..9);
    proptest::collection::vec(run, 1..8).prop_map(|runs| {
        let slots = runs
            .into_iter()
            .flat_map(|(slots, times)| vec![slots; times]);
        let node = |(number, slots)| AllocatedNode {
            name: format!("n{number}"),
            slots: Slots::Explicit(slots),
            max_slots: None,
            granted: Some(u32::MAX),
        };
        Allocation {
            nodes: (0..).zip(slots).map(node).collect::<Vec<_>>(),
        }
    })
}

fn policy() -> impl Strategy<Value = (&'static str, &'static str)> {
    let map = prop::sample::select(vec![
        "",
        "slot",
        "node",
        "core",
        "package",
        "package:SPAN",
        "core:SPAN",
    ]);
    let rank = prop::sample::select(vec!["", "slot", "node", "fill", "span"]);
    (map, rank)
}

proptest! {
    #[test]
    fn every_question_has_one_answer(
        allocation in irregular(),
        policy in policy(),
        filled in 1_u32..=100,
        first in 0_u32..=100,
        pattern in any::<u64>(),
    ) {
        let slots = |node: &AllocatedNode| match node.slots {
            Slots::Explicit(slots) => slots,
            Slots::Implicit => 0,
        };
        let total = allocation.nodes.iter().map(slots).sum::<u32>();
        let ranks = (total * filled / 100).max(1);
        let one = (ranks * first / 100).clamp(1, ranks);
        let mut request = request(Some(one), policy.0, policy.1, "");
        if one < ranks {
            request.apps.push(AppRequest { count: Some(ranks - one), ..AppRequest::default() });
        }
        // Two kinds of node, so that nodes with equal slots differ.
        let kinds = [Topology::flat(5), Topology::flat(6)];
        let topologies = (0..allocation.nodes.len()).map(|node| kinds[usize::from(pattern >> (node % 64) & 1 == 1)].clone());
        let map = place(&request, &allocation, &topologies.collect()).unwrap();

        prop_assert_eq!(map.ranks(), ranks);
        let mut seen = BTreeMap::new();
        for node in map.nodes() {
            let procs = map.on_node(node);
            prop_assert!(procs.len() <= slots(&allocation.nodes[node.0 as usize]) as usize);
            prop_assert_eq!(map.ranks_on(node), procs.iter().map(|proc| proc.rank).collect::<RankSet>());
            for proc in procs {
                prop_assert_eq!(map.app_of(proc.rank), Some((proc.app, proc.app_rank)));
                prop_assert_eq!(proc.app, u32::from(proc.rank.0 >= one));
                prop_assert_eq!(map.cpus_of(proc.rank), proc.cpus.as_ref());
                prop_assert_eq!(seen.insert(proc.rank, node), None);
            }
        }
        prop_assert_eq!(seen.len(), ranks as usize);
        for rank in (0..=ranks).map(Rank) {
            prop_assert_eq!(map.node_of(rank), seen.get(&rank).copied());
        }
        let runs = map.runs().flat_map(|run| {
            let nodes = run.first.0..run.first.0 + run.nodes;
            nodes.flat_map(move |node| (0..run.ranks).map(move |_| NodeId(node)))
        });
        prop_assert_eq!(runs.collect::<Vec<_>>(), seen.values().copied().collect::<Vec<_>>());
        for (index, node) in (0..).zip(map.nodes()) {
            prop_assert_eq!(map.node_index(node), Some(index));
        }
        prop_assert_eq!(map.app_of(Rank(ranks)), None);
        for node in (0..=u32::try_from(allocation.nodes.len()).unwrap()).map(NodeId) {
            prop_assert_eq!(map.on_node(node).is_empty(), !map.nodes().any(|used| used == node));
        }
    }
}
