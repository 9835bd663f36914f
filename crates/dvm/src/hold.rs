//! The stop engine: which ranks are held for a debugger, and the one moment when all of them are.
//!
//! | state | a rank is held | a rank is gone | release |
//! |---|---|---|---|
//! | `Off` | bug | – | – |
//! | `Gathering` | count; all accounted for → `AllHeld`, said once | as left | → `Released` |
//! | `AllHeld` | bug | count | → `Released` |
//! | `Released` | – | – | – |
//!
//! It says only *all held*; each door tells its own tool in that tool's language. A rank that dies before it is held is
//! accounted for as dead, so that a debugger never waits for it.

use base::{Rank, RankSet};

use crate::planted::{self, Bug};

/// Where a job stands with its debugger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nobody asked for ranks to be held.
    Off,
    Gathering,
    AllHeld,
    Released,
}

/// What a step of the engine tells its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Announcement {
    /// Every rank that is not dead is held. Given once in the life of an engine.
    AllHeld { held: RankSet, dead: RankSet },
}

/// The stop engine of one job.
#[derive(Clone, Debug)]
pub struct Hold {
    state: State,
    expected: usize,
    held: RankSet,
    dead: RankSet,
}

impl Hold {
    /// An engine that holds nothing.
    #[must_use]
    pub const fn off() -> Self {
        Self {
            state: State::Off,
            expected: 0,
            held: RankSet::new(),
            dead: RankSet::new(),
        }
    }

    /// An engine that waits for `expected` ranks.
    #[must_use]
    pub const fn gathering(expected: usize) -> Self {
        Self {
            state: State::Gathering,
            expected,
            held: RankSet::new(),
            dead: RankSet::new(),
        }
    }

    #[must_use]
    pub const fn state(&self) -> State {
        self.state
    }

    /// The ranks that were held, dead ones excluded.
    #[must_use]
    pub const fn held(&self) -> &RankSet {
        &self.held
    }

    /// These ranks stand still.
    pub fn on_held(&mut self, ranks: &RankSet) -> Option<Announcement> {
        if self.state != State::Gathering {
            return None;
        }
        self.held = self.held.union(&ranks.difference(&self.dead));
        self.announce()
    }

    /// This rank has ended or was never started.
    pub fn on_gone(&mut self, rank: Rank) -> Option<Announcement> {
        if !matches!(self.state, State::Gathering | State::AllHeld) || self.dead.contains(rank) {
            return None;
        }
        if planted::is(Bug::HoldCountsDeadAsHeld) {
            self.held.insert(rank);
            return self.announce();
        }
        self.dead.insert(rank);
        self.held = self.held.difference(&RankSet::single(rank));
        self.announce()
    }

    /// Lets go; gives the ranks that were held, `None` when there is nothing to let go (again).
    pub fn release(&mut self) -> Option<RankSet> {
        match self.state {
            State::Off | State::Released => None,
            State::Gathering | State::AllHeld => {
                self.state = State::Released;
                Some(std::mem::take(&mut self.held))
            }
        }
    }

    fn announce(&mut self) -> Option<Announcement> {
        (self.state == State::Gathering && self.held.len() + self.dead.len() == self.expected).then(
            || {
                self.state = State::AllHeld;
                Announcement::AllHeld {
                    held: self.held.clone(),
                    dead: self.dead.clone(),
                }
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever the order of holds and deaths, *all held* is said exactly once, when the last rank is accounted for.
        #[test]
        fn all_held_is_said_exactly_once(order in Just((0u32..20).collect::<Vec<_>>()).prop_shuffle(), dying in 0u32..20) {
            let mut hold = Hold::gathering(20);
            let mut said = Vec::new();
            for (step, rank) in order.iter().enumerate() {
                let news = if *rank < dying { hold.on_gone(Rank(*rank)) } else { hold.on_held(&RankSet::single(Rank(*rank))) };
                said.extend(news.map(|news| (step, news)));
            }
            prop_assert_eq!(said.len(), 1);
            let (step, Announcement::AllHeld { held, dead }) = said.remove(0);
            prop_assert_eq!(step, 19);
            prop_assert_eq!((held.len(), dead.len()), (20 - dying as usize, dying as usize));
            prop_assert_eq!(hold.on_gone(Rank(19)), None);
            prop_assert!(hold.release().is_some());
            prop_assert_eq!(hold.release(), None);
        }
    }

    #[test]
    fn a_rank_held_and_then_dead_is_dead() {
        let mut hold = Hold::gathering(2);
        assert_eq!(hold.on_held(&RankSet::single(Rank(0))), None);
        assert_eq!(hold.on_gone(Rank(0)), None);
        let news = hold.on_held(&RankSet::single(Rank(1)));
        assert_eq!(
            news,
            Some(Announcement::AllHeld {
                held: RankSet::single(Rank(1)),
                dead: RankSet::single(Rank(0))
            })
        );
    }
}
