//! Numbering of placed procs: node by node, or in rounds over nodes or objects.
//!
//! The input is a list of nodes with their placements; nodes that look alike share one. The output is at most one block
//! per node and round. [`super::map::Builder`] merges blocks that continue a pattern.

use base::NodeId;

use super::{
    map::{Block, Builder},
    node::Proc,
    policy::RankBy,
};

/// Procs of one app on nodes that look alike, in the order of their ranks on a node.
pub(super) struct Look {
    pub(super) layout: u32,
    pub(super) procs: u32,
    /// Number of procs in each round, for a numbering in rounds.
    pub(super) rounds: Vec<u32>,
}

/// Sorts procs by their order of ranks on the node.
pub(super) fn order(procs: &mut [Proc], rank_by: RankBy) {
    match rank_by {
        RankBy::Slot | RankBy::Node => {}
        RankBy::Fill => procs.sort_by_key(|proc| proc.object),
        RankBy::Span | RankBy::Object(_) => procs.sort_by_key(|proc| (proc.turn, proc.object)),
    }
}

/// Returns how many of the sorted procs belong to each round over the nodes. Empty if ranks are numbered node by node.
pub(super) fn rounds(procs: &[Proc], rank_by: RankBy) -> Vec<u32> {
    match rank_by {
        RankBy::Slot | RankBy::Fill | RankBy::Node | RankBy::Object(_) => Vec::new(),
        RankBy::Span => {
            let mut rounds = Vec::new();
            for proc in procs {
                let round = proc.turn as usize;
                if rounds.len() <= round {
                    rounds.resize(round + 1, 0);
                }
                if let Some(count) = rounds.get_mut(round) {
                    *count += 1;
                }
            }
            rounds
        }
    }
}

/// Assigns ranks to the procs of one app, from `first` on. `nodes` has each node with the index of its look, in order.
pub(super) fn number(
    builder: &mut Builder,
    looks: &[Look],
    nodes: &[(NodeId, u32)],
    rank_by: RankBy,
    first: u32,
) {
    let look = |index: u32| looks.get(index as usize);
    match rank_by {
        RankBy::Slot | RankBy::Fill | RankBy::Object(_) => {
            let mut rank = first;
            for (node, index) in nodes {
                let Some(look) = look(*index) else { continue };
                builder.push(block(*node, rank, 1, look.procs, look.layout, 0));
                rank += look.procs;
            }
        }
        RankBy::Node => by_node(builder, looks, nodes, first),
        RankBy::Span => {
            let longest = looks
                .iter()
                .map(|look| look.rounds.len())
                .max()
                .unwrap_or(0);
            let mut rank = first;
            let mut offsets = vec![0; looks.len()];
            for round in 0..longest {
                let in_round = |look: &Look| look.rounds.get(round).copied().unwrap_or(0);
                for (node, index) in nodes {
                    let (Some(look), Some(offset)) = (look(*index), offsets.get(*index as usize))
                    else {
                        continue;
                    };
                    let procs = in_round(look);
                    builder.push(block(*node, rank, 1, procs, look.layout, *offset));
                    rank += procs;
                }
                for (offset, look) in offsets.iter_mut().zip(looks) {
                    *offset += in_round(look);
                }
            }
        }
    }
}

/// Numbers one proc per node, round-robin. As long as the same nodes take part, successive ranks on a node differ by
/// the number of these nodes.
fn by_node(builder: &mut Builder, looks: &[Look], nodes: &[(NodeId, u32)], first: u32) {
    let procs = |index: u32| looks.get(index as usize).map_or(0, |look| look.procs);
    let mut rank = first;
    let mut from = 0;
    let mut active = nodes.to_vec();
    loop {
        active.retain(|(_, index)| procs(*index) > from);
        let Some(until) = active.iter().map(|(_, index)| procs(*index)).min() else {
            return;
        };
        let step = u32::try_from(active.len()).unwrap_or(u32::MAX);
        let rank_step = if until - from == 1 { 1 } else { step };
        for (place, (node, index)) in (0..).zip(&active) {
            let Some(look) = looks.get(*index as usize) else {
                continue;
            };
            builder.push(block(
                *node,
                rank + place,
                rank_step,
                until - from,
                look.layout,
                from,
            ));
        }
        rank += step * (until - from);
        from = until;
    }
}

fn block(
    node: NodeId,
    first_rank: u32,
    rank_step: u32,
    per_node: u32,
    layout: u32,
    offset: u32,
) -> Block {
    Block {
        first_node: node.0,
        nodes: 1,
        first_rank,
        node_step: 0,
        rank_step,
        per_node,
        layout,
        offset,
    }
}
