//! The ranks of a node and their states. The table of states is in the documentation of [`crate::pmi`].

use std::collections::{BTreeMap, BTreeSet};

use base::Rank;

use crate::pmi::{Dialect, spawn::Gathering, wire::Framer};

/// State of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Connected,
    Greeted,
    Initialized,
    InBarrier,
    Finalized,
    Aborted,
    Left,
    Lost,
}

impl State {
    pub(super) const COUNT: usize = 8;

    /// States of ranks that have not entered the barrier yet or never will.
    pub(super) const MISSING: [Self; 5] = [
        Self::Connected,
        Self::Greeted,
        Self::Initialized,
        Self::Aborted,
        Self::Lost,
    ];

    /// Returns what a rank may do in this state, for an error message.
    pub(super) const fn expected(self) -> &'static str {
        match self {
            Self::Connected => "init first",
            Self::Greeted => "fullinit after init",
            Self::Initialized => "no other init",
            Self::InBarrier => "neither finalize nor another barrier before barrier_out",
            Self::Finalized => "nothing after finalize",
            Self::Aborted | Self::Left | Self::Lost => "nothing after the end",
        }
    }

    /// Returns true if the barrier of all ranks includes ranks in this state.
    pub(super) const fn takes_part(self) -> bool {
        !matches!(self, Self::Finalized | Self::Left)
    }
}

#[derive(Debug)]
pub(super) struct Client {
    pub(super) appnum: u32,
    pub(super) dialect: Dialect,
    pub(super) state: State,
    pub(super) framer: Framer,
    /// Bytes of answers in the output queue.
    pub(super) queued: usize,
    /// The thread id that entered the barrier of all ranks; `None` if the request named none, or the rank is not in it.
    pub(super) in_barrier: Option<String>,
    pub(super) spawn: Gathering,
    /// Number of unanswered requests, the barrier of all ranks excepted.
    pub(super) waiting: usize,
}

impl Client {
    pub(super) fn new(appnum: u32) -> Self {
        Self {
            appnum,
            dialect: Dialect::One,
            state: State::Connected,
            framer: Framer::default(),
            queued: 0,
            in_barrier: None,
            spawn: Gathering::default(),
            waiting: 0,
        }
    }
}

/// The clients, with a count per state. Every input checks whether the barrier is complete; scanning all clients each time would
/// be quadratic in their number.
#[derive(Debug)]
pub(super) struct Clients {
    pub(super) of: BTreeMap<Rank, Client>,
    /// Number of clients by state.
    pub(super) counts: [usize; State::COUNT],
    /// The ranks in [`State::InBarrier`].
    pub(super) waiting: BTreeSet<Rank>,
}

impl Clients {
    /// Creates the table; every client must be in the state [`State::Connected`].
    pub(super) fn new(of: BTreeMap<Rank, Client>) -> Self {
        let mut counts = [0; State::COUNT];
        counts[State::Connected as usize] = of.len();
        Self {
            of,
            counts,
            waiting: BTreeSet::new(),
        }
    }

    pub(super) fn get_mut(&mut self, rank: Rank) -> Option<&mut Client> {
        self.of.get_mut(&rank)
    }

    /// Changes the state of a rank. Every change goes through here, to keep the counts right.
    pub(super) fn enter(&mut self, rank: Rank, state: State) {
        let Some(client) = self.of.get_mut(&rank) else {
            return;
        };
        let old = std::mem::replace(&mut client.state, state);
        self.counts[old as usize] -= 1;
        self.counts[state as usize] += 1;
        if old == State::InBarrier {
            self.waiting.remove(&rank);
        }
        if state == State::InBarrier {
            self.waiting.insert(rank);
        }
    }

    pub(super) fn count(&self, states: &[State]) -> usize {
        states
            .iter()
            .map(|state| self.counts[*state as usize])
            .sum()
    }

    /// Returns the ranks in these states. Scans all clients: too slow for every input.
    pub(super) fn among(&self, states: &'static [State]) -> impl Iterator<Item = Rank> {
        self.of
            .iter()
            .filter(|(_, client)| states.contains(&client.state))
            .map(|(rank, _)| *rank)
    }
}
