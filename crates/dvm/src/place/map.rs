//! Map of a job: the node of each rank, and the PUs that it is bound to.
//!
//! A map is a list of blocks. A block is a run of nodes with the same number of ranks in the same pattern:
//!
//! ```text
//! rank(i, j) = first_rank + i * node_step + j * rank_step      node  i of `nodes`, proc j of `per_node`
//! ```
//!
//! Mapping by slot on equal nodes gives one block (`node_step` = ranks per node, `rank_step` = 1). Mapping by node
//! gives one block too (`node_step` = 1, `rank_step` = number of nodes). An irregular map gives many small blocks: the
//! size of a map depends on its irregularity, and not on its number of ranks. The bindings of a block's procs are a
//! *layout*, which all blocks with the same bindings share.

use std::{collections::BTreeMap, ops::Range};

use base::{CpuSet, NodeId, Rank, RankSet};
use pmix::pmi::Run;
use serde::{Deserialize, Serialize};

use super::{
    error::Note,
    policy::{BindTo, MapBy, RankBy},
};

/// Proc with its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placed {
    pub rank: Rank,
    /// Position of the app on the command line.
    pub app: u32,
    /// Position of the proc in its app.
    pub app_rank: u32,
    /// Position of the proc, by rank, among the procs of the job on its node.
    pub local_rank: u32,
    /// PUs that the proc is bound to; `None` if it is unbound.
    pub cpus: Option<CpuSet>,
}

/// Policies of an app with all defaults filled in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppPolicy {
    pub map_by: MapBy,
    pub rank_by: RankBy,
    pub bind_to: BindTo,
}

/// App in a map. It has the ranks from `first` to `first + count - 1`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppRanks {
    pub first: Rank,
    pub count: u32,
    pub policy: AppPolicy,
}

/// Block of ranks, as described in the documentation of this module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Block {
    pub(super) first_node: u32,
    pub(super) nodes: u32,
    pub(super) first_rank: u32,
    pub(super) node_step: u32,
    pub(super) rank_step: u32,
    pub(super) per_node: u32,
    /// Index of the layout, and the position in the layout at which this block begins.
    pub(super) layout: u32,
    pub(super) offset: u32,
}

/// Bindings of a node's procs, in the order of a block.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum Layout {
    Unbound,
    /// Indices into the map's bindings; `None` for an unbound proc.
    Bound(Vec<Option<u32>>),
}

/// Map of ranks to nodes and PUs.
///
/// The size in memory and on the wire depends on the irregularity of the map. A million ranks in a regular pattern are
/// one block of 32 bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Wire", into = "Wire")]
pub struct JobMap {
    apps: Vec<AppRanks>,
    /// Blocks in the order of their first rank.
    blocks: Vec<Block>,
    layouts: Vec<Layout>,
    bindings: Vec<CpuSet>,
    notes: Vec<Note>,
    index: Index,
}

#[derive(Clone, Serialize, Deserialize)]
struct Wire {
    apps: Vec<AppRanks>,
    blocks: Vec<Block>,
    layouts: Vec<Layout>,
    bindings: Vec<CpuSet>,
    notes: Vec<Note>,
}

/// Tables for fast look-ups, derived from the blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Index {
    /// For each block, the highest rank in it and in the blocks before it.
    reach: Vec<u32>,
    /// Blocks in the order of their first node.
    by_node: Vec<u32>,
    /// For each entry of `by_node`, the highest node in it and in the entries before it.
    node_reach: Vec<u32>,
}

impl Block {
    pub(super) const fn last_node(&self) -> u32 {
        self.first_node.saturating_add(self.nodes.saturating_sub(1))
    }

    const fn rank(&self, node: u32, proc: u32) -> u32 {
        self.first_rank
            .saturating_add(node.saturating_mul(self.node_step))
            .saturating_add(proc.saturating_mul(self.rank_step))
    }

    const fn last_rank(&self) -> u32 {
        self.rank(
            self.nodes.saturating_sub(1),
            self.per_node.saturating_sub(1),
        )
    }

    /// Returns true if the ranks of this block fill its nodes one after another.
    const fn is_by_node(&self) -> bool {
        (self.rank_step == 1 || self.per_node == 1)
            && (self.node_step == self.per_node || self.nodes == 1)
    }

    /// Returns true if the ranks of this block are all ranks from its first to its last, in an order that [`Self::runs`] knows.
    const fn is_dense(&self) -> bool {
        let is_by_round = self.node_step == 1 && self.rank_step == self.nodes;
        self.is_by_node() || is_by_round
    }

    /// Returns the nodes of the ranks of a dense block.
    fn runs(&self) -> impl Iterator<Item = Run> + use<> {
        let (first, nodes) = (NodeId(self.first_node), self.nodes);
        let (rounds, ranks) = if self.is_by_node() {
            (1, self.per_node)
        } else {
            (self.per_node, 1)
        };
        (0..rounds).map(move |_| Run {
            first,
            nodes,
            ranks,
        })
    }

    /// Returns the position of `rank` in the block: the index of the node, and the index of the proc on it.
    fn find(&self, rank: u32) -> Option<(u32, u32)> {
        let distance = rank.checked_sub(self.first_rank)?;
        // Divide by the larger step first: it is at least as long as the span of the smaller one.
        let (node, proc) = if self.node_step >= self.rank_step {
            let node = distance
                .checked_div(self.node_step)
                .unwrap_or(0)
                .min(self.nodes.saturating_sub(1));
            let rest = distance - node * self.node_step;
            (node, rest.checked_div(self.rank_step).unwrap_or(0))
        } else {
            let proc = distance
                .checked_div(self.rank_step)
                .unwrap_or(0)
                .min(self.per_node.saturating_sub(1));
            let rest = distance - proc * self.rank_step;
            (rest.checked_div(self.node_step).unwrap_or(0), proc)
        };
        (node < self.nodes && proc < self.per_node && self.rank(node, proc) == rank)
            .then_some((node, proc))
    }
}

impl From<Wire> for JobMap {
    fn from(wire: Wire) -> Self {
        let Wire {
            apps,
            blocks,
            layouts,
            bindings,
            notes,
        } = wire;
        Self::from_parts(apps, blocks, layouts, bindings, notes)
    }
}

impl From<JobMap> for Wire {
    fn from(map: JobMap) -> Self {
        let JobMap {
            apps,
            blocks,
            layouts,
            bindings,
            notes,
            index: _,
        } = map;
        Self {
            apps,
            blocks,
            layouts,
            bindings,
            notes,
        }
    }
}

impl JobMap {
    fn from_parts(
        apps: Vec<AppRanks>,
        mut blocks: Vec<Block>,
        layouts: Vec<Layout>,
        bindings: Vec<CpuSet>,
        notes: Vec<Note>,
    ) -> Self {
        blocks.retain(|block| block.nodes > 0 && block.per_node > 0);
        blocks.sort_by_key(|block| (block.first_rank, block.first_node));
        let mut by_node = (0_u32..)
            .zip(&blocks)
            .map(|(index, _)| index)
            .collect::<Vec<_>>();
        let block = |index: &u32| blocks.get(*index as usize);
        by_node.sort_by_key(|index| block(index).map(|block| (block.first_node, block.first_rank)));
        let highest = |reach: &mut u32, value: u32| {
            *reach = value.max(*reach);
            Some(*reach)
        };
        let reach = blocks
            .iter()
            .map(Block::last_rank)
            .scan(0, highest)
            .collect();
        let node_reach = by_node
            .iter()
            .filter_map(block)
            .map(Block::last_node)
            .scan(0, highest)
            .collect();
        Self {
            apps,
            blocks,
            layouts,
            bindings,
            notes,
            index: Index {
                reach,
                by_node,
                node_reach,
            },
        }
    }

    /// Returns the number of ranks.
    #[must_use]
    pub fn ranks(&self) -> u32 {
        self.apps
            .iter()
            .map(|app| app.count)
            .fold(0, u32::saturating_add)
    }

    /// Returns the apps in the order of the command line.
    #[must_use]
    pub fn apps(&self) -> &[AppRanks] {
        &self.apps
    }

    /// Returns the notes for the user about this map.
    #[must_use]
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// Returns the nodes that have at least one rank, ascending.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.node_runs().flatten().map(NodeId)
    }

    /// Returns the nodes that have at least one rank, as ranges in ascending order.
    fn node_runs(&self) -> impl Iterator<Item = Range<u32>> + '_ {
        let mut next = 0;
        self.index
            .by_node
            .iter()
            .filter_map(|index| self.blocks.get(*index as usize))
            .filter_map(move |block| {
                let from = block.first_node.max(next);
                let end = block.last_node().saturating_add(1);
                next = end.max(next);
                (from < end).then_some(from..end)
            })
    }

    /// Returns the number of nodes that have at least one rank.
    #[must_use]
    pub fn node_count(&self) -> u32 {
        let runs = self.node_runs();
        runs.map(|run| run.end - run.start)
            .fold(0, u32::saturating_add)
    }

    /// Returns the position of a node in [`Self::nodes`]; `None` if it has no rank.
    #[must_use]
    pub fn node_index(&self, node: NodeId) -> Option<u32> {
        let mut before = 0_u32;
        for run in self.node_runs() {
            if run.contains(&node.0) {
                return Some(before.saturating_add(node.0 - run.start));
            }
            before = before.saturating_add(run.end - run.start);
        }
        None
    }

    /// Returns the procs of a node, sorted by rank.
    #[must_use]
    pub fn on_node(&self, node: NodeId) -> Vec<Placed> {
        let mut procs = Vec::new();
        for block in self.blocks_on(node) {
            for proc in 0..block.per_node {
                procs.push((
                    block.rank(node.0 - block.first_node, proc),
                    self.binding(block, proc),
                ));
            }
        }
        procs.sort_unstable_by_key(|(rank, _)| *rank);
        (0..)
            .zip(procs)
            .map(|(local_rank, (rank, cpus))| {
                let (app, app_rank) = self.app_of(Rank(rank)).unwrap_or((0, rank));
                Placed {
                    rank: Rank(rank),
                    app,
                    app_rank,
                    local_rank,
                    cpus: cpus.cloned(),
                }
            })
            .collect()
    }

    /// Returns the ranks on a node.
    #[must_use]
    pub fn ranks_on(&self, node: NodeId) -> RankSet {
        let mut ranks = RankSet::new();
        for block in self.blocks_on(node) {
            let first = block.rank(node.0 - block.first_node, 0);
            let procs = (0..block.per_node)
                .map(|proc| Rank(first.saturating_add(proc.saturating_mul(block.rank_step))));
            ranks = if ranks.is_empty() {
                procs.collect()
            } else {
                ranks.union(&procs.collect())
            };
        }
        ranks
    }

    /// Returns the node of a rank; `None` if the rank does not exist.
    ///
    /// Takes O(log blocks) if ranks are numbered node by node. If ranks go round-robin over irregular nodes, blocks
    /// overlap, and the search may visit many of them (50 µs on 100,000 nodes). [`JobMap::runs`] returns the
    /// nodes of all ranks.
    #[must_use]
    pub fn node_of(&self, rank: Rank) -> Option<NodeId> {
        self.find(rank)
            .map(|(block, node, _)| NodeId(block.first_node + node))
    }

    /// Returns the nodes of all ranks, in the order of the ranks. A regular map has few runs, however many ranks it has. If
    /// the ranks of blocks are interleaved, there may be a run for each rank.
    #[must_use]
    pub fn runs(&self) -> Box<dyn Iterator<Item = Run> + '_> {
        let mut next = 0;
        let is_dense = self.blocks.iter().all(|block| {
            let is_next = block.first_rank == next && block.is_dense();
            next = block.last_rank().saturating_add(1);
            is_next
        });
        if is_dense {
            Box::new(self.blocks.iter().flat_map(|block| block.runs()))
        } else {
            Box::new(self.nodes_by_rank().into_iter().map(Run::of))
        }
    }

    /// Returns the nodes of all ranks, indexed by rank, in one pass over the blocks.
    fn nodes_by_rank(&self) -> Vec<NodeId> {
        let mut nodes = vec![NodeId(0); self.ranks() as usize];
        for block in &self.blocks {
            for node in 0..block.nodes {
                for proc in 0..block.per_node {
                    if let Some(entry) = nodes.get_mut(block.rank(node, proc) as usize) {
                        *entry = NodeId(block.first_node.saturating_add(node));
                    }
                }
            }
        }
        nodes
    }

    /// Returns the PUs that a rank is bound to; `None` if the rank is unbound or does not exist.
    #[cfg(test)]
    pub(super) fn cpus_of(&self, rank: Rank) -> Option<&CpuSet> {
        self.find(rank)
            .and_then(|(block, _, proc)| self.binding(block, proc))
    }

    /// Returns the app of a rank, and the rank's position in the app.
    #[must_use]
    pub fn app_of(&self, rank: Rank) -> Option<(u32, u32)> {
        let after = self.apps.partition_point(|app| app.first <= rank);
        let app = after.checked_sub(1)?;
        let ranks = self.apps.get(app)?;
        let app_rank = rank.0 - ranks.first.0;
        (app_rank < ranks.count).then_some((u32::try_from(app).ok()?, app_rank))
    }

    /// Returns the size of this map in bytes, without the overhead of the allocator.
    #[must_use]
    pub fn memory(&self) -> usize {
        let layouts = self.layouts.iter().map(|layout| match layout {
            Layout::Unbound => size_of::<Layout>(),
            Layout::Bound(procs) => size_of::<Layout>() + procs.len() * size_of::<Option<u32>>(),
        });
        let bindings = self
            .bindings
            .iter()
            .map(|set| size_of::<CpuSet>() + size_of_val(set.words()));
        size_of::<Self>()
            + self.apps.len() * size_of::<AppRanks>()
            + self.blocks.len() * (size_of::<Block>() + 3 * size_of::<u32>())
            + layouts.sum::<usize>()
            + bindings.sum::<usize>()
    }

    fn binding(&self, block: &Block, proc: u32) -> Option<&CpuSet> {
        match self.layouts.get(block.layout as usize)? {
            Layout::Unbound => None,
            Layout::Bound(procs) => {
                let index = (*procs.get(block.offset as usize + proc as usize)?)?;
                self.bindings.get(index as usize)
            }
        }
    }

    /// Searches backward from the last block that begins at or before the rank, as long as an earlier block may contain
    /// the rank.
    fn find(&self, rank: Rank) -> Option<(&Block, u32, u32)> {
        let mut at = self
            .blocks
            .partition_point(|block| block.first_rank <= rank.0);
        while at > 0
            && self
                .index
                .reach
                .get(at - 1)
                .is_some_and(|reach| *reach >= rank.0)
        {
            at -= 1;
            let block = self.blocks.get(at)?;
            if let Some((node, proc)) = block.find(rank.0) {
                return Some((block, node, proc));
            }
        }
        None
    }

    fn blocks_on(&self, node: NodeId) -> impl Iterator<Item = &Block> {
        let first = |index: &u32| {
            self.blocks
                .get(*index as usize)
                .map_or(0, |block| block.first_node)
        };
        let end = self
            .index
            .by_node
            .partition_point(|index| first(index) <= node.0);
        let start = self
            .index
            .node_reach
            .partition_point(|reach| *reach < node.0);
        self.index
            .by_node
            .get(start.min(end)..end)
            .unwrap_or_default()
            .iter()
            .filter_map(|index| self.blocks.get(*index as usize))
            .filter(move |block| block.last_node() >= node.0)
    }
}

/// Builds a map from blocks, layouts and bindings. Equal layouts and equal bindings are stored once.
#[derive(Default)]
pub(super) struct Builder {
    blocks: Vec<Block>,
    layouts: BTreeMap<Layout, u32>,
    bindings: BTreeMap<CpuSet, u32>,
}

fn number<K: Ord>(table: &mut BTreeMap<K, u32>, key: K) -> u32 {
    let next = u32::try_from(table.len()).unwrap_or(u32::MAX);
    *table.entry(key).or_insert(next)
}

fn in_order<K>(table: BTreeMap<K, u32>) -> Vec<K> {
    let mut entries = table.into_iter().collect::<Vec<_>>();
    entries.sort_unstable_by_key(|(_, number)| *number);
    entries.into_iter().map(|(key, _)| key).collect()
}

impl Builder {
    /// Returns the number of the layout with these bindings.
    pub(super) fn layout(&mut self, procs: &[Option<&CpuSet>]) -> u32 {
        let layout = if procs.iter().all(Option::is_none) {
            Layout::Unbound
        } else {
            let bindings = &mut self.bindings;
            let bind = |cpus: &Option<&CpuSet>| {
                cpus.map(|cpus| {
                    bindings
                        .get(cpus)
                        .copied()
                        .unwrap_or_else(|| number(bindings, cpus.clone()))
                })
            };
            Layout::Bound(procs.iter().map(bind).collect())
        };
        number(&mut self.layouts, layout)
    }

    /// Adds a block of one node. The block is merged with the last one if it continues that block's pattern.
    pub(super) fn push(&mut self, block: Block) {
        if block.per_node == 0 {
            return;
        }
        if let Some(last) = self.blocks.last_mut() {
            let alike = block.first_node == last.last_node().wrapping_add(1)
                && block.layout == last.layout
                && block.offset == last.offset
                && block.per_node == last.per_node
                && block.rank_step == last.rank_step;
            let step = block.first_rank.wrapping_sub(last.rank(last.nodes - 1, 0));
            // A pattern can be searched only if one step covers the whole span of the other: rows of ranks, or rows of
            // nodes.
            let rows = step >= last.per_node.saturating_mul(last.rank_step);
            let columns = step > 0
                && u64::from(step) * (u64::from(last.nodes) + 1) <= u64::from(last.rank_step)
                && last.per_node > 1;
            let fits = if last.nodes == 1 {
                rows || columns
            } else {
                step == last.node_step && (rows || columns)
            };
            if alike && block.first_rank > last.first_rank && fits {
                last.node_step = step;
                last.nodes += 1;
                return;
            }
        }
        self.blocks.push(Block {
            nodes: 1,
            node_step: 0,
            ..block
        });
    }

    pub(super) fn finish(self, apps: Vec<AppRanks>, notes: Vec<Note>) -> JobMap {
        JobMap::from_parts(
            apps,
            self.blocks,
            in_order(self.layouts),
            in_order(self.bindings),
            notes,
        )
    }
}
