//! Barriers of all ranks of a job, and of groups of ranks.

use std::collections::{BTreeMap, BTreeSet};

use base::Rank;

use super::{Event, FenceId, Output, Server, State, To};
use crate::pmi::{Answer, Error, Group, Kind, Members};

const FAILED: &str = "fence_failed";

/// State of the current fence of all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fence {
    /// Some local ranks have not entered. `told_lost` is the number of lost ranks already reported to the host.
    Gathering { told_lost: usize },
    /// All local ranks are in the fence, and the host was informed.
    WithHost,
    /// The host has answered `FenceFailed`, or its values could not be stored.
    Failed,
}

#[derive(Debug)]
pub(super) struct Barriers {
    pub(super) fence: Fence,
    pub(super) next_fence: FenceId,
    /// Group barriers with at least one waiting rank. Bounded by `MAX_WAITING` per client.
    groups: BTreeMap<Group, GroupBarrier>,
}

#[derive(Debug, Default)]
struct GroupBarrier {
    /// Members on this node that have entered.
    waiting: BTreeSet<Rank>,
    /// Flag that all members on this node have entered and the host was informed.
    with_host: bool,
}

impl Default for Barriers {
    fn default() -> Self {
        Self {
            fence: Fence::Gathering { told_lost: 0 },
            next_fence: FenceId(0),
            groups: BTreeMap::new(),
        }
    }
}

impl Barriers {
    /// Returns the ranks that wait in group barriers, once for each barrier.
    pub(super) fn in_groups(&self) -> impl Iterator<Item = Rank> {
        self.groups
            .values()
            .flat_map(|group| &group.waiting)
            .copied()
    }
}

impl Server {
    /// Handles a rank that has entered the barrier of all ranks: if the fence has failed, the rank gets an error.
    pub(super) fn arrived(&mut self) {
        if self.barriers.fence == Fence::Failed {
            self.release(&Answer::refused(Kind::Barrier, FAILED));
        }
    }

    pub(super) fn fence_failed(&mut self) {
        self.barriers.fence = Fence::Failed;
        self.release(&Answer::refused(Kind::Barrier, FAILED));
        self.fail_groups();
    }

    pub(super) fn fence_done(&mut self, id: FenceId, puts: Vec<(String, String)>) {
        // An answer for another fence is late: the host gave up in the meantime.
        if self.barriers.fence != Fence::WithHost || id != self.barriers.next_fence {
            return;
        }
        self.barriers.next_fence.0 += 1;
        self.barriers.fence = Fence::Gathering { told_lost: 0 };
        match self.keep(puts) {
            Ok(()) => self.release(&Answer::Barrier { tag: 0 }),
            // Some rank would miss a value that another one has put, so every rank gets an error.
            Err(error) => {
                self.barriers.fence = Fence::Failed;
                self.release(&Answer::refused(Kind::Barrier, error.word()));
            }
        }
    }

    /// Answers all ranks that wait in the barrier of all ranks.
    fn release(&mut self, answer: &Answer) {
        for client in self.waiting().collect::<Vec<_>>() {
            let thread = self
                .clients
                .get_mut(client)
                .and_then(|client| client.in_barrier.take());
            self.clients.enter(client, State::Initialized);
            if let Err(why) = self.answer(To { client, thread }, answer) {
                self.close(client, why);
            }
        }
    }

    /// Informs the host when the barrier of all ranks is complete on this node, or when a lost rank blocks a barrier.
    pub(super) fn advance_fence(&mut self) {
        let Fence::Gathering { told_lost } = self.barriers.fence else {
            return;
        };
        let waiting = self.clients.count(&[State::InBarrier]) > 0;
        if !waiting && self.barriers.groups.is_empty() {
            return;
        }
        let count = self.clients.count(&[State::Lost]);
        if count > told_lost && (waiting || self.broken_groups().next().is_some()) {
            self.barriers.fence = Fence::Gathering { told_lost: count };
            let lost = self.clients.among(&[State::Lost]).collect();
            let waiting: BTreeSet<Rank> = self.waiting().chain(self.barriers.in_groups()).collect();
            self.outputs.push_back(Output::Event(Event::FenceBroken {
                lost,
                waiting: waiting.into_iter().collect(),
            }));
        } else if waiting && self.clients.count(&State::MISSING) == 0 {
            self.barriers.fence = Fence::WithHost;
            let puts = self.stored.take_puts();
            self.outputs.push_back(Output::Event(Event::Fence {
                id: self.barriers.next_fence,
                puts,
            }));
        }
    }

    pub(super) fn enter_group(&mut self, to: To, group: Group) -> Result<(), Error> {
        let rank = to.client;
        let refused = |reason: &str| Answer::refused(Kind::Barrier, reason);
        if let Members::Ranks(ranks) = &group.members {
            if ranks.last().is_some_and(|last| last.0 >= self.size) {
                return self.answer(to, &refused("no_such_rank"));
            }
            if ranks.binary_search(&rank).is_err() {
                return self.answer(to, &refused("not_a_member"));
            }
        }
        let waiting = self.barriers.groups.get(&group);
        if waiting.is_some_and(|barrier| barrier.waiting.contains(&rank)) {
            return self.answer(to, &refused("already_in_barrier"));
        }
        if self.barriers.fence == Fence::Failed && self.is_broken(&group) {
            return self.answer(to, &refused(FAILED));
        }
        if let Err(error) = self.begin_wait(rank) {
            return self.refuse(to, Kind::Barrier, &error);
        }
        let barrier = self.barriers.groups.entry(group.clone()).or_default();
        barrier.waiting.insert(rank);
        self.advance_group(&group);
        Ok(())
    }

    /// Removes a rank that takes no further part. Group barriers may become complete without it, or become broken.
    pub(super) fn gone_from_groups(&mut self, rank: Rank) {
        if self.barriers.groups.is_empty() {
            return;
        }
        for barrier in self.barriers.groups.values_mut() {
            barrier.waiting.remove(&rank);
        }
        self.barriers
            .groups
            .retain(|_, barrier| !barrier.waiting.is_empty());
        if self.barriers.fence == Fence::Failed {
            self.fail_groups();
        }
        let groups: Vec<Group> = self.barriers.groups.keys().cloned().collect();
        for group in groups {
            self.advance_group(&group);
        }
    }

    pub(super) fn group_done(&mut self, group: &Group, puts: Vec<(String, String)>) {
        let with_host = |barrier: &GroupBarrier| barrier.with_host;
        if !self.barriers.groups.get(group).is_some_and(with_host) {
            return;
        }
        let answer = match self.keep(puts) {
            Ok(()) => Answer::Barrier { tag: group.tag },
            Err(error) => Answer::refused(Kind::Barrier, error.word()),
        };
        self.release_group(group, &answer);
    }

    fn keep(&mut self, puts: Vec<(String, String)>) -> Result<(), Error> {
        puts.iter()
            .try_for_each(|(key, value)| self.stored.keep(key, value))
    }

    /// Returns the members on this node that take part, with their states.
    fn members<'a>(&'a self, group: &'a Group) -> impl Iterator<Item = (Rank, State)> + 'a {
        let named = move |rank: &Rank| match &group.members {
            Members::World | Members::Node => true,
            Members::Ranks(ranks) => ranks.binary_search(rank).is_ok(),
        };
        self.clients
            .of
            .iter()
            .map(|(rank, client)| (*rank, client.state))
            .filter(move |(rank, state)| named(rank) && state.takes_part())
    }

    /// Returns true if a member on this node will never enter.
    fn is_broken(&self, group: &Group) -> bool {
        self.members(group)
            .any(|(_, state)| matches!(state, State::Lost | State::Aborted))
    }

    fn broken_groups(&self) -> impl Iterator<Item = &Group> {
        self.barriers
            .groups
            .keys()
            .filter(|group| self.is_broken(group))
    }

    /// Returns true if all members are on this node.
    fn is_local(&self, group: &Group) -> bool {
        match &group.members {
            Members::Node => true,
            Members::World => usize::try_from(self.size) == Ok(self.clients.of.len()),
            Members::Ranks(ranks) => ranks.iter().all(|rank| self.clients.of.contains_key(rank)),
        }
    }

    fn advance_group(&mut self, group: &Group) {
        let Some(barrier) = self.barriers.groups.get(group) else {
            return;
        };
        if barrier.with_host
            || !self
                .members(group)
                .all(|(rank, _)| barrier.waiting.contains(&rank))
        {
            return;
        }
        if self.is_local(group) {
            self.release_group(group, &Answer::Barrier { tag: group.tag });
            return;
        }
        // The values stay stored: ranks outside the group get them with the next fence of all ranks.
        let puts = self.stored.puts();
        self.outputs.push_back(Output::Event(Event::Group {
            group: group.clone(),
            puts,
        }));
        if let Some(barrier) = self.barriers.groups.get_mut(group) {
            barrier.with_host = true;
        }
    }

    fn release_group(&mut self, group: &Group, answer: &Answer) {
        let barrier = self.barriers.groups.remove(group);
        for client in barrier.map(|barrier| barrier.waiting).unwrap_or_default() {
            let thread = None;
            self.answer_late(To { client, thread }, answer);
        }
    }

    /// Fails the group barriers that have a lost member here, and those with members on other nodes, which may be lost.
    fn fail_groups(&mut self) {
        let failed: Vec<Group> = self
            .barriers
            .groups
            .keys()
            .filter(|group| !self.is_local(group) || self.is_broken(group))
            .cloned()
            .collect();
        for group in failed {
            self.release_group(&group, &Answer::refused(Kind::Barrier, FAILED));
        }
    }
}
