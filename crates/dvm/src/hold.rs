//! The stop engine: which ranks are held for a debugger, and the one moment when all of them are.
//!
//! | state | a rank is held | a rank is gone | some are released | all are released | all are launched |
//! |---|---|---|---|---|---|
//! | `Off` | – | – | – | – | – |
//! | `Launching` | count | count | count | → `Released` | → `Gathering`, and what that does |
//! | `Gathering` | count; all accounted for → `AllHeld`, said once | as left | as left | → `Released` | – |
//! | `AllHeld` | – | count | count | → `Released` | – |
//! | `Released` | – | – | – | – | – |
//!
//! It says only *all held*; each interface tells its own tool in the form that the tool expects. A rank is accounted for
//! when it is held, dead or released: one that dies before it is held is dead, so that a debugger never waits for it. The
//! engine ignores ranks that are not to be held.

use base::RankSet;

use crate::planted::{self, Bug};

/// Where a job stands with its debugger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nobody asked for ranks to be held.
    Off,
    /// Not every proc was started: nobody knows the table of processes, and nothing is said.
    Launching,
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
    /// The ranks that are to be held.
    expected: RankSet,
    held: RankSet,
    dead: RankSet,
    /// Let go, before they were held or later.
    released: RankSet,
}

impl Hold {
    /// An engine that holds nothing.
    #[must_use]
    pub const fn off() -> Self {
        Self {
            state: State::Off,
            expected: RankSet::new(),
            held: RankSet::new(),
            dead: RankSet::new(),
            released: RankSet::new(),
        }
    }

    /// An engine that waits for these ranks; for none it is off.
    #[must_use]
    pub fn gathering(expected: RankSet) -> Self {
        if expected.is_empty() {
            return Self::off();
        }
        Self {
            state: State::Launching,
            expected,
            ..Self::off()
        }
    }

    #[must_use]
    pub const fn state(&self) -> State {
        self.state
    }

    /// The ranks that stand still, as far as we know: a debugger may have let some of them run.
    #[must_use]
    pub const fn held(&self) -> &RankSet {
        &self.held
    }

    /// The ranks that are held or will be.
    #[must_use]
    pub fn left(&self) -> RankSet {
        match self.state {
            State::Off | State::Released => RankSet::new(),
            State::Launching | State::Gathering | State::AllHeld => {
                let gone = self.dead.union(&self.released);
                self.expected.difference(&gone)
            }
        }
    }

    /// Every proc was started, or never will be, and the table of processes was told.
    pub fn on_launched(&mut self) -> Option<Announcement> {
        if self.state != State::Launching {
            return None;
        }
        self.state = State::Gathering;
        self.announce()
    }

    /// These ranks stand still.
    pub fn on_held(&mut self, ranks: &RankSet) -> Option<Announcement> {
        if !matches!(self.state, State::Launching | State::Gathering) {
            return None;
        }
        self.held = self.held.union(&ranks.intersection(&self.left()));
        self.announce()
    }

    /// These ranks have ended or were never started.
    pub fn on_gone(&mut self, ranks: &RankSet) -> Option<Announcement> {
        let gone = self.left().intersection(ranks);
        if gone.is_empty() {
            return None;
        }
        if planted::is(Bug::HoldCountsDeadAsHeld) {
            self.held.append(&gone);
            return self.announce();
        }
        self.dead.append(&gone);
        self.held = self.held.difference(&gone);
        self.announce()
    }

    /// Lets some ranks go, or all; gives those of them that were held or would have been, `None` when there is nobody to
    /// let go (again).
    pub fn release(&mut self, ranks: Option<&RankSet>) -> (Option<RankSet>, Option<Announcement>) {
        let left = self.left();
        let freed = match ranks {
            None => left,
            Some(ranks) => left.intersection(ranks),
        };
        if freed.is_empty() {
            return (None, None);
        }
        self.released = self.released.union(&freed);
        self.held = self.held.difference(&freed);
        if self.left().is_empty() {
            self.state = State::Released;
        }
        (Some(freed), self.announce())
    }

    fn announce(&mut self) -> Option<Announcement> {
        if self.state != State::Gathering || self.held.len() != self.left().len() {
            return None;
        }
        self.state = State::AllHeld;
        Some(Announcement::AllHeld {
            held: self.held.clone(),
            dead: self.dead.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use base::Rank;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever the order of holds and deaths, *all held* is said exactly once, when the last rank is accounted for.
        #[test]
        fn all_held_is_said_exactly_once(
            order in Just((0u32..20).collect::<Vec<_>>()).prop_shuffle(), dying in 0u32..20, released in 0u32..10,
            launched in 0usize..20,
        ) {
            let mut hold = Hold::gathering(RankSet::range(0..20));
            let mut said = Vec::new();
            let last = order.iter().filter(|rank| **rank >= dying + released).count();
            for (step, rank) in order.iter().enumerate() {
                if step == launched {
                    prop_assert_eq!(hold.on_launched(), None);
                }
                let single = RankSet::single(Rank(*rank));
                let news = if *rank < dying {
                    hold.on_gone(&RankSet::single(Rank(*rank)))
                } else if *rank < dying + released {
                    let (freed, news) = hold.release(Some(&single));
                    prop_assert_eq!(freed, Some(single.clone()));
                    prop_assert_eq!(hold.on_held(&single), None, "it is let go before it is held");
                    news
                } else {
                    hold.on_held(&single)
                };
                said.extend(news.map(|news| (step, news)));
            }
            if last > 0 {
                prop_assert_eq!(said.len(), 1);
                let (step, Announcement::AllHeld { held, dead }) = said.remove(0);
                prop_assert_eq!(step, 19);
                prop_assert_eq!((held.len(), dead.len()), (last, dying as usize));
                prop_assert!(hold.release(None).0.is_some());
            }
            prop_assert_eq!(hold.on_gone(&RankSet::single(Rank(19))), None);
            prop_assert_eq!(hold.release(None), (None, None));
        }
    }

    #[test]
    fn a_rank_held_and_then_dead_is_dead() {
        let mut hold = Hold::gathering(RankSet::range(0..2));
        assert_eq!(hold.on_launched(), None);
        assert_eq!(hold.on_held(&RankSet::single(Rank(0))), None);
        assert_eq!(hold.on_gone(&RankSet::single(Rank(0))), None);
        let news = hold.on_held(&RankSet::single(Rank(1)));
        assert_eq!(
            news,
            Some(Announcement::AllHeld {
                held: RankSet::single(Rank(1)),
                dead: RankSet::single(Rank(0))
            })
        );
    }

    #[test]
    fn ranks_that_are_not_to_be_held_do_not_count() {
        let mut hold = Hold::gathering([Rank(1), Rank(3)].into_iter().collect());
        assert_eq!(hold.on_launched(), None);
        assert_eq!(hold.on_held(&RankSet::single(Rank(0))), None);
        assert_eq!(hold.on_gone(&RankSet::single(Rank(2))), None);
        assert_eq!(hold.on_held(&RankSet::single(Rank(3))), None);
        let (freed, news) = hold.release(Some(&RankSet::range(0..2)));
        assert_eq!(freed, Some(RankSet::single(Rank(1))));
        assert_eq!(
            news,
            Some(Announcement::AllHeld {
                held: RankSet::single(Rank(3)),
                dead: RankSet::new()
            })
        );
        assert_eq!(hold.left(), RankSet::single(Rank(3)));
        assert_eq!(hold.release(None).0, Some(RankSet::single(Rank(3))));
        assert_eq!(hold.state(), State::Released);
    }

    /// The first of a large job stand before the last is started.
    #[test]
    fn nothing_is_said_before_all_are_launched() {
        let mut hold = Hold::gathering(RankSet::range(0..2));
        assert_eq!(hold.on_held(&RankSet::range(0..2)), None);
        assert_eq!(
            hold.on_launched(),
            Some(Announcement::AllHeld {
                held: RankSet::range(0..2),
                dead: RankSet::new()
            })
        );
        assert_eq!(hold.on_launched(), None);
    }

    #[test]
    fn nobody_to_hold_is_off() {
        assert_eq!(Hold::gathering(RankSet::new()).state(), State::Off);
    }
}
