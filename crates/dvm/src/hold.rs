//! The stop engine: it tracks which ranks are held for a debugger, and detects the moment when all of them are.
//!
//! | state | a rank is held | a rank is gone | some ranks are released | all ranks are released | all ranks are launched |
//! |---|---|---|---|---|---|
//! | `Off` | – | – | – | – | – |
//! | `Launching` | count it | count it | count them | → `Released` | → `Gathering`, then check |
//! | `Gathering` | count it, then check | count it, then check | count them, then check | → `Released` | – |
//! | `AllHeld` | – | count it | count them | → `Released` | – |
//! | `Released` | – | – | – | – | – |
//!
//! *Check*: if every rank is accounted for, → `AllHeld`.
//!
//! The engine announces only *all held*, once, on entering `AllHeld`. Each interface reports that to its tool in the
//! form that the tool expects. A rank is accounted for when it is held, dead or released. A rank that dies before it is
//! held counts as dead, so a debugger never waits for it. The engine ignores ranks that are not to be held.

use base::RankSet;

use crate::planted::{self, Bug};

/// The progress of a job towards *all held*, and beyond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// No ranks are to be held.
    Off,
    /// Some procs are still to be started, so the proc table is incomplete and nothing is announced.
    Launching,
    Gathering,
    AllHeld,
    Released,
}

/// A fact that the engine announces to its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Announcement {
    /// Every rank that is neither dead nor released is held. Announced at most once per engine.
    AllHeld { held: RankSet, dead: RankSet },
}

/// The stop engine of one job.
#[derive(Clone, Debug)]
pub struct Hold {
    state: State,
    /// Ranks that are to be held.
    expected: RankSet,
    held: RankSet,
    dead: RankSet,
    /// Ranks that were released, before or after they were held.
    released: RankSet,
}

impl Hold {
    /// Creates an engine that holds no ranks.
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

    /// Creates an engine that waits for these ranks; it is off if the set is empty.
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

    /// Returns the ranks that are stopped as far as we know. A debugger may have continued some of them.
    #[must_use]
    pub const fn held(&self) -> &RankSet {
        &self.held
    }

    /// Returns the ranks that are held or are still to be held.
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

    /// Records that every proc has been started or has failed to start, and that the proc table was sent.
    pub fn on_launched(&mut self) -> Option<Announcement> {
        if self.state != State::Launching {
            return None;
        }
        self.state = State::Gathering;
        self.announce()
    }

    /// Records that these ranks are stopped.
    pub fn on_held(&mut self, ranks: &RankSet) -> Option<Announcement> {
        if !matches!(self.state, State::Launching | State::Gathering) {
            return None;
        }
        self.held.append(&ranks.intersection(&self.left()));
        self.announce()
    }

    /// Records that these ranks have ended or will never be started.
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

    /// Releases the given ranks, or all if `None`. Returns those of them that were held or were still to be held;
    /// `None` if there were no such ranks.
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
        /// In whatever order ranks are held and die, *all held* is announced exactly once, when the last rank is
        /// accounted for.
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

    /// The first ranks of a large job are held before the last one is started.
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
