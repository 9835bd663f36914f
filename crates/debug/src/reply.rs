//! The answers of agents, and how they merge.
//!
//! A partial answer is about a set of ranks. Partial answers about different ranks merge into one. The result does not depend
//! on the order or on the tree of agents, and loses no rank. A partial answer has its own table of frames, so it can be read
//! without any other message. The caller of `merge` makes sure that no rank is in both parts. If a rank is in both of two
//! samples, the first sample wins.

mod wire;

use std::collections::{BTreeMap, BTreeSet, btree_map::Entry};

use base::{NodeId, Rank, RankSet};
use serde::{Deserialize, Serialize};

use crate::{
    call_site::CallSite,
    planted::{self, Bug},
    recorded::RankCalls,
    report::{Command, Merged},
    snapshot::Snapshot,
    stack::{Frames, Missing, Seen},
    tree::{self, Threads},
    unwind::Build,
};

pub use self::wire::{MAX_COPIES, MAX_FRAMES, MAX_NAME, Malformed};

/// Maximum number of threads of one process to sample. With more, the first thread would have moved on before the last is
/// sampled.
pub const MAX_THREADS: usize = 1 << 14;
/// Maximum number of builds of programs in a description.
pub const MAX_BUILDS: usize = 64;
/// Maximum number of descendants to sample, for all ranks of a node together.
pub const MAX_ALL_CHILDREN: usize = 1024;
/// Maximum number of ranks of a node whose command lines are read.
pub const MAX_COMMANDS: usize = 64;
/// Maximum length of a command line in characters; the rest is cut off.
pub const MAX_COMMAND: usize = 1_000;

/// The answer of one agent to a command, or the merged answers of several.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Partial {
    /// The answer to [`crate::proto::Action::Sample`].
    Sample(PartialSample),
    /// The answer to [`crate::proto::Action::Stacks`].
    Stacks(PartialStacks),
    /// The answer to [`crate::proto::Action::Describe`].
    Description(Description),
}

/// Every thread of some ranks at one moment.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(try_from = "wire::WireSample", into = "wire::WireSample")]
pub struct PartialSample {
    /// The frames of the snapshot.
    pub frames: Frames,
    /// The threads of each rank, or the reason why it is missing.
    pub snapshot: Snapshot,
}

/// The merged stacks of some ranks at one moment.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(try_from = "wire::WireStacks", into = "wire::WireStacks")]
pub struct PartialStacks {
    /// The frames of the stacks.
    pub frames: Frames,
    /// The merged stacks.
    pub merged: Merged,
    /// Ranks that are missing, by the reason.
    pub missing: BTreeMap<Missing, RankSet>,
}

/// Facts about some ranks besides their stacks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// The ranks that the description is about.
    pub ranks: RankSet,
    /// The names of the hosts of the nodes. The session adds them to the answers of agents.
    pub hosts: BTreeMap<NodeId, String>,
    /// Processes with more threads than an agent samples, with the largest number of threads found.
    pub many_threads: BTreeMap<(NodeId, i32), ManyThreads>,
    /// For each node, the largest number of descendants of ranks that one sample left out.
    pub left_out: BTreeMap<NodeId, u64>,
    /// The builds of programs and of MPI libraries.
    pub builds: BTreeSet<Build>,
    /// The command lines of the first ranks of each node.
    pub commands: Vec<Command>,
    /// The CPU that each rank last ran on. Ranks without a known CPU are absent.
    pub processors: BTreeMap<Rank, u32>,
}

/// A process with more threads than an agent samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ManyThreads {
    /// The number of threads of the process.
    pub threads: u64,
    /// The number of threads that were sampled.
    pub sampled: u64,
}

/// A violation of the protocol by an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// An answer to a command that the session never sent.
    UnknownCommand,
    /// An answer about ranks that the agent was not asked for.
    OtherRanks,
    /// An answer about another node.
    OtherNode,
    /// An answer of a different kind than the command asked for.
    OtherAnswer,
    /// More threads, processes, ranks, builds or command lines than a correct agent ever reports.
    TooMuch,
    /// A rank that occurs in one set of threads with two different counts.
    CountedTwice,
}

/// The error of merging two answers of different kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OtherKind;

impl Partial {
    /// Returns the ranks that the answer is about.
    #[must_use]
    pub fn ranks(&self) -> RankSet {
        match self {
            Self::Sample(part) => part.ranks(),
            Self::Stacks(part) => part.ranks(),
            Self::Description(part) => part.ranks.clone(),
        }
    }

    /// Adds the names of the hosts to an answer about these nodes. Agents do not send the names, because the session knows them.
    pub fn name_hosts(&mut self, hosts: BTreeMap<NodeId, String>) {
        match self {
            Self::Sample(part) => {
                for (node, peers) in &mut part.snapshot.peers.0 {
                    if let Some(host) = hosts.get(node) {
                        peers.host.clone_from(host);
                    }
                }
            }
            Self::Description(part) => part.hosts = hosts,
            Self::Stacks(_) => {}
        }
    }

    /// Adds the answer of other agents.
    ///
    /// # Errors
    /// The other answer is of a different kind. Nothing of it is added.
    pub fn merge(&mut self, other: Self) -> Result<(), OtherKind> {
        match (self, other) {
            (Self::Sample(part), Self::Sample(other)) => part.merge(other),
            (Self::Stacks(part), Self::Stacks(other)) => part.merge(other),
            (Self::Description(part), Self::Description(other)) => part.merge(other),
            (Self::Sample(_) | Self::Stacks(_) | Self::Description(_), _) => return Err(OtherKind),
        }
        Ok(())
    }

    /// Checks that the merged answer of some agents is about their nodes and the ranks that they were asked for. Also checks
    /// that it is no longer than such an answer can be. Lengths are checked first, because they bound the time of the other
    /// checks.
    ///
    /// # Errors
    /// Returns the first fault found.
    pub fn check(&self, nodes: &BTreeSet<NodeId>, asked: &RankSet) -> Result<(), Fault> {
        match self {
            Self::Sample(part) => part.check(nodes, asked),
            Self::Stacks(part) => part.check(nodes.len(), asked),
            Self::Description(part) => part.check(nodes, asked),
        }
    }

    /// Adds ranks without an answer, with the reason.
    pub fn miss(&mut self, ranks: &RankSet, why: &Missing) {
        match self {
            Self::Sample(part) => {
                for rank in ranks.iter() {
                    let procs = part.snapshot.procs.entry(rank);
                    procs.or_insert_with(|| Seen::Missing(why.clone()));
                }
            }
            Self::Stacks(part) if !ranks.is_empty() => {
                let missing = part.missing.entry(why.clone()).or_default();
                *missing = missing.union(ranks);
            }
            // A description has no entry for a missing rank.
            Self::Stacks(_) | Self::Description(_) => {}
        }
    }
}

/// Returns true if all of `ranks` were asked for. The sets are compared last, because that takes time in proportion to their
/// members.
fn are_asked(ranks: &RankSet, asked: &RankSet) -> bool {
    ranks.len() <= asked.len() && ranks.last() <= asked.last() && ranks.is_subset(asked)
}

/// Checks that sets of threads have at most `most` threads in total, and only ranks that were asked for.
fn check_threads(all: &[&Threads], most: usize, asked: &RankSet) -> Result<(), Fault> {
    let sets = || all.iter().flat_map(|threads| threads.by_count());
    if sets().any(|(_, ranks)| ranks.last() > asked.last()) {
        return Err(Fault::OtherRanks);
    }
    let threads = all.iter().map(|threads| threads.count());
    if threads.fold(0, u64::saturating_add) > most as u64 {
        return Err(Fault::TooMuch);
    }
    if !sets().all(|(_, ranks)| are_asked(ranks, asked)) {
        return Err(Fault::OtherRanks);
    }
    if !all.iter().all(|threads| threads.are_disjoint()) {
        return Err(Fault::CountedTwice);
    }
    Ok(())
}

impl PartialSample {
    /// Returns all ranks of the sample, including the missing ones.
    #[must_use]
    pub fn ranks(&self) -> RankSet {
        self.snapshot.procs.keys().copied().collect()
    }

    fn check(&self, nodes: &BTreeSet<NodeId>, asked: &RankSet) -> Result<(), Fault> {
        let is_asked = |rank: &Rank| asked.contains(*rank);
        let snapshot = &self.snapshot;
        // Checked first, because it leaves at most one set of ranks for each node to compare.
        if !snapshot.peers.0.keys().all(|of| nodes.contains(of)) {
            return Err(Fault::OtherNode);
        }
        let children: usize = snapshot.children.values().map(Vec::len).sum();
        let is_long = |seen: &Seen| match seen {
            Seen::Threads(threads) => threads.len() > MAX_THREADS,
            Seen::Missing(_) => false,
        };
        if children > MAX_ALL_CHILDREN.saturating_mul(nodes.len())
            || snapshot.all_seen().any(is_long)
        {
            return Err(Fault::TooMuch);
        }
        let peers = snapshot.peers.0.values();
        if !peers.clone().all(|peers| are_asked(&peers.ranks, asked)) {
            return Err(Fault::OtherRanks);
        }
        let below = peers.flat_map(|peers| peers.below.keys());
        if !snapshot.calls.values().all(RankCalls::is_bounded)
            || !snapshot.call_sites.values().all(CallSite::is_bounded)
        {
            return Err(Fault::TooMuch);
        }
        let ranks = snapshot.procs.keys().chain(snapshot.children.keys());
        let ranks = ranks.chain(snapshot.calls.keys());
        let ranks = ranks.chain(snapshot.call_sites.keys());
        if !ranks.chain(below).all(is_asked) || !are_asked(&snapshot.unreadable, asked) {
            return Err(Fault::OtherRanks);
        }
        Ok(())
    }

    /// Adds the sample of other ranks.
    pub fn merge(&mut self, other: Self) {
        if self.snapshot.is_empty() && self.frames.is_empty() {
            *self = other;
            let Snapshot {
                procs,
                children,
                calls,
                unreadable,
                call_sites,
                ..
            } = &mut self.snapshot;
            children.retain(|rank, _| procs.contains_key(rank));
            calls.retain(|rank, _| procs.contains_key(rank));
            *unreadable = (unreadable.iter())
                .filter(|rank| procs.contains_key(rank))
                .collect();
            call_sites.retain(|rank, _| procs.contains_key(rank));
            return;
        }
        let mut other = other
            .snapshot
            .with_frames_in(other.frames, &mut self.frames);
        for (rank, seen) in other.procs {
            if let Entry::Vacant(vacant) = self.snapshot.procs.entry(rank) {
                vacant.insert(seen);
                if let Some(children) = other.children.remove(&rank) {
                    self.snapshot.children.insert(rank, children);
                }
                if let Some(calls) = other.calls.remove(&rank) {
                    self.snapshot.calls.insert(rank, calls);
                }
                if other.unreadable.contains(rank) {
                    self.snapshot.unreadable.insert(rank);
                }
                if let Some(site) = other.call_sites.remove(&rank) {
                    self.snapshot.call_sites.insert(rank, site);
                }
            }
        }
        self.snapshot.peers.merge(other.peers);
    }

    /// Returns a sample from a snapshot whose frames are in a larger table. The new table has only the frames of the
    /// snapshot.
    #[must_use]
    pub fn cut(frames: &Frames, mut snapshot: Snapshot) -> Self {
        let frames = snapshot.cut(frames);
        Self { frames, snapshot }
    }
}

impl PartialStacks {
    /// Returns all ranks of the stacks, including the missing ones.
    #[must_use]
    pub fn ranks(&self) -> RankSet {
        let missing = self.missing.values().cloned();
        tree::union(missing.chain([self.merged.ranks()]).collect())
    }

    fn check(&self, nodes: usize, asked: &RankSet) -> Result<(), Fault> {
        let most_children = MAX_ALL_CHILDREN.saturating_mul(nodes);
        let most = asked.len().saturating_mul(MAX_THREADS);
        check_threads(&self.merged.threads(), most, asked)?;
        let children = self.merged.children.values();
        let procs = children.clone().flat_map(|it| &it.procs);
        if procs.clone().count() > most_children {
            return Err(Fault::TooMuch);
        }
        if !{ procs }.all(|child| asked.contains(child.rank)) {
            return Err(Fault::OtherRanks);
        }
        let below: Vec<&Threads> = children.flat_map(|it| it.tree.threads()).collect();
        let most = most_children.saturating_mul(MAX_THREADS);
        check_threads(&below, most, asked)?;
        let missing = self.missing.values();
        let ranks = missing.clone().map(RankSet::len);
        if ranks.fold(0, usize::saturating_add) > asked.len() {
            return Err(Fault::TooMuch);
        }
        if !{ missing }.all(|ranks| are_asked(ranks, asked)) {
            return Err(Fault::OtherRanks);
        }
        Ok(())
    }

    /// Adds the stacks of other ranks.
    pub fn merge(&mut self, other: Self) {
        let translation = self.frames.absorb(&other.frames);
        self.merged.merge(&other.merged, &translation);
        for (why, ranks) in other.missing {
            let missing = self.missing.entry(why).or_default();
            if planted::is(Bug::MissingOverwritten) {
                *missing = RankSet::new();
            }
            *missing = missing.union(&ranks);
        }
    }
}

impl Description {
    fn check(&self, nodes: &BTreeSet<NodeId>, asked: &RankSet) -> Result<(), Fault> {
        let is_long = |command: &Command| command.line.chars().count() > MAX_COMMAND;
        let most = |of_one: usize| of_one.saturating_mul(nodes.len());
        if self.commands.len() > most(MAX_COMMANDS)
            || self.commands.iter().any(is_long)
            || self.builds.len() > most(MAX_BUILDS)
            || self.many_threads.len() > asked.len().saturating_add(most(MAX_ALL_CHILDREN))
        {
            return Err(Fault::TooMuch);
        }
        let many_threads = self.many_threads.keys().map(|(of, _)| of);
        if !many_threads
            .chain(self.left_out.keys())
            .all(|of| nodes.contains(of))
        {
            return Err(Fault::OtherNode);
        }
        let commands = self.commands.iter().map(|command| &command.ranks);
        let mut described = commands.chain([&self.ranks]);
        let is_asked = |rank: &Rank| asked.contains(*rank);
        if !described.all(|ranks| are_asked(ranks, asked)) || !self.processors.keys().all(is_asked)
        {
            return Err(Fault::OtherRanks);
        }
        Ok(())
    }

    /// Adds the description of other ranks.
    pub fn merge(&mut self, other: Self) {
        self.ranks = self.ranks.union(&other.ranks);
        self.hosts.extend(other.hosts);
        for (process, threads) in other.many_threads {
            let most = self.many_threads.entry(process).or_default();
            *most = threads.max(*most);
        }
        for (node, processes) in other.left_out {
            let most = self.left_out.entry(node).or_default();
            *most = processes.max(*most);
        }
        self.builds.extend(other.builds);
        for command in other.commands {
            let known = self.commands.iter_mut();
            match { known }.find(|known| known.line == command.line) {
                Some(known) => known.ranks = known.ranks.union(&command.ranks),
                None => self.commands.push(command),
            }
        }
        // The order must not depend on which agent answered first.
        let first = |command: &Command| (command.ranks.first(), command.line.clone());
        self.commands.sort_by_cached_key(first);
        for (rank, processor) in other.processors {
            self.processors.entry(rank).or_insert(processor);
        }
    }

    /// Returns the doubts about the samples, as sentences.
    pub fn doubts(&self) -> impl Iterator<Item = String> {
        let many_threads = self.many_threads.iter().map(|((node, pid), many_threads)| {
            let ManyThreads { threads, sampled } = many_threads;
            // On a single node the pid alone identifies the process.
            let host = self.hosts.get(node).filter(|_| self.hosts.len() > 1);
            let host = host.map_or_else(String::new, |host| format!(" on host {host}"));
            format!(
                "process {pid}{host} has {threads} threads; only {sampled} of them were looked at"
            )
        });
        let left_out = self.left_out.values().copied();
        let left_out = left_out.fold(0, u64::saturating_add);
        let left_out = (left_out > 0).then(|| {
            let were = if left_out == 1 { "was" } else { "were" };
            format!("{left_out} of the processes that ranks have started {were} not looked at")
        });
        many_threads.chain(left_out)
    }
}

#[cfg(test)]
mod tests;
