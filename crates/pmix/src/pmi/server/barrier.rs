//! Barriers of the whole job, and of groups of its ranks.

use std::collections::{BTreeMap, BTreeSet};

use base::Rank;

use super::{Event, FenceId, Output, Server, State, To};
use crate::pmi::{Answer, Error, Group, Kind, Members};

const FAILED: &str = "fence_failed";

/// How the current fence of all stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fence {
    /// Some local ranks have yet to come. The number is that of the lost ranks the host has been told about.
    Gathering { told_lost: usize },
    /// All local ranks are in, and the host has been told.
    WithHost,
    /// The host has given up.
    Failed,
}

#[derive(Debug)]
pub(super) struct Barriers {
    pub(super) fence: Fence,
    pub(super) next_fence: FenceId,
    /// Those in which somebody waits. Bounded by what each client may wait for.
    groups: BTreeMap<Group, GroupBarrier>,
}

#[derive(Debug, Default)]
struct GroupBarrier {
    /// Members on this node that are in.
    waiting: BTreeSet<Rank>,
    /// All members of this node are in, and the host has been told.
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
    /// Who waits in a group, once for each.
    pub(super) fn in_groups(&self) -> impl Iterator<Item = Rank> {
        self.groups
            .values()
            .flat_map(|group| &group.waiting)
            .copied()
    }
}

impl Server {
    /// A rank has come to the barrier of all.
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
        // An answer to another fence than the current one is late: the host had given up in between.
        if self.barriers.fence != Fence::WithHost || id != self.barriers.next_fence {
            return;
        }
        self.barriers.next_fence.0 += 1;
        self.barriers.fence = Fence::Gathering { told_lost: 0 };
        match self.keep(puts) {
            Ok(()) => self.release(&Answer::Barrier { tag: 0 }),
            // Some rank would miss what another one has put, so nobody may go on as if all were well.
            Err(error) => {
                self.barriers.fence = Fence::Failed;
                self.release(&Answer::refused(Kind::Barrier, error.word()));
            }
        }
    }

    /// Lets those go on who wait in the barrier of all, with this answer.
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

    /// Tells the host when the barrier of all is complete on this node, or when it cannot become so.
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

    /// A rank takes part in nothing any more: groups may be complete without it, or never be.
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

    /// The members on this node that have not finalized.
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

    /// A member of this node will never come.
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

    /// Whether no member can be on another node.
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
        // Ranks outside of the group get what was put with the next fence of all.
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

    /// Ends the barriers that have lost a member, here or, for what is known, on another node.
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
