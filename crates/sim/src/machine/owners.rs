//! Fronts that have the machine for themselves: it ends with the last of them, and not before.

use std::{collections::BTreeSet, time::Duration};

use base::Time;
use dvm::{
    machine::{Ask, Down},
    proto::FrontId,
};

use super::{Event, World};
use crate::rng::Rng;

/// Maximum number of such fronts in a run.
const OWNERS_MAX: usize = 5;
/// Chance that an owner leaves, in percent. Others stay until the machine ends for another reason.
const LEAVES_PERCENT: u64 = 85;

/// The fronts that own the machine.
#[derive(Debug)]
pub(super) struct Owners {
    /// Those that have asked this machine.
    fronts: BTreeSet<FrontId>,
    dice: Rng,
}

impl Owners {
    /// What they do has a sequence of its own, so that the other events of a seed stay as they are.
    pub(super) fn new(rng: &Rng) -> Self {
        Self {
            fronts: BTreeSet::new(),
            dice: Rng::new(!rng.clone().next()),
        }
    }

    pub(super) fn has(&self, front: FrontId) -> bool {
        self.fronts.contains(&front)
    }

    /// Forgets the fronts of a machine that is gone.
    pub(super) fn clear(&mut self) {
        self.fronts.clear();
    }
}

impl World {
    pub(super) fn plan_owners(&mut self, span: u64) {
        let dice = &mut self.owners.dice;
        if !dice.chance(30) {
            return;
        }
        for _ in 0..dice.length(1, OWNERS_MAX) {
            let when = Time::ZERO + dice.micros(0, span * 1_000_000);
            self.agenda.at(when, (None, Event::Own));
        }
    }

    /// Lets a new front own the machine.
    pub(super) fn own(&mut self) {
        if self.machine.is_none() {
            return;
        }
        let front = self.new_front();
        self.owners.fronts.insert(front);
        if self.owners.dice.chance(LEAVES_PERCENT) {
            let wait = match self.owners.dice.below(3) {
                0 => Duration::ZERO,
                1 => self.owners.dice.millis(0, 500),
                _ => self.owners.dice.millis(0, 20_000),
            };
            self.later(wait, Event::FrontLost(front));
        }
        self.ask(front, Ask::EndWithFront, None);
    }

    /// Notes that a front is gone. With the last owner, the machine has to end.
    pub(super) fn disown(&mut self, front: FrontId) {
        if self.owners.fronts.remove(&front) && self.owners.fronts.is_empty() {
            self.model.go_down(Down::Now);
        }
    }
}
