//! The ranks of a node, and where each of them is. The table of states is in the documentation of the module above.

use std::collections::{BTreeMap, BTreeSet};

use base::Rank;

use crate::pmi::{Dialect, spawn::Gathering, wire::Framer};

/// Where a rank is.
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

    /// A rank in such a state has yet to come to the barrier, or never will.
    pub(super) const MISSING: [Self; 5] = [
        Self::Connected,
        Self::Greeted,
        Self::Initialized,
        Self::Aborted,
        Self::Lost,
    ];

    /// What would have been right instead.
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

    /// It may come to a barrier, or is in it.
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
    /// The thread that is in the barrier, as it names itself.
    pub(super) in_barrier: Option<String>,
    pub(super) spawn: Gathering,
    /// Requests that somebody else is to answer.
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

/// The clients, and how many are in which state. Every input asks whether the barrier is complete: to go through all of
/// them each time would cost the square of their number.
#[derive(Debug)]
pub(super) struct Clients {
    pub(super) of: BTreeMap<Rank, Client>,
    /// By state.
    pub(super) counts: [usize; State::COUNT],
    /// Those in [`State::InBarrier`].
    pub(super) waiting: BTreeSet<Rank>,
}

impl Clients {
    /// All of them are in the first state.
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

    /// The one way into a state.
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

    /// Goes through all clients: not for every input.
    pub(super) fn among(&self, states: &'static [State]) -> impl Iterator<Item = Rank> {
        self.of
            .iter()
            .filter(|(_, client)| states.contains(&client.state))
            .map(|(rank, _)| *rank)
    }
}
