//! Random actions of fronts, stalls of their output, faults and time limits.

use std::time::Duration;

use base::{NodeId, Signal};
use dvm::{proto::EndReason, spec::EndPolicy};

use super::{Act, Family, Fault, PrintPlan, make::Maker};

impl Maker<'_> {
    pub(super) fn print(&mut self) -> PrintPlan {
        let mut plan = PrintPlan::default();
        if self.family == Family::Flood || self.rng.chance(10) {
            plan.pause_max = self.rng.pick([
                Duration::ZERO,
                Duration::from_micros(300),
                Duration::from_millis(20),
            ]);
            for _ in 0..self.rng.below(3) {
                let from = self.rng.millis(0, 3_000);
                plan.stalls.push((from, from + self.rng.millis(100, 5_000)));
            }
            if self.rng.chance(30) {
                plan.stalls
                    .push((Duration::ZERO, self.rng.millis(2_000, 6_000)));
                if self.rng.chance(40) {
                    let when = self.rng.millis(0, 2_000);
                    self.acts.push((when, Act::Vanish));
                }
            }
        }
        plan
    }

    pub(super) fn reason(&mut self) -> EndReason {
        self.rng.pick([
            EndReason::Signal(Signal::INT),
            EndReason::OutputLost,
            EndReason::TimeLimit,
        ])
    }

    pub(super) fn front_acts(&mut self) {
        if self.is_pmix() {
            if self.rng.chance(10) {
                let (when, reason) = (self.rng.millis(0, 1_000), self.reason());
                self.acts.push((when, Act::End(reason)));
            }
            return;
        }
        let chance = match self.family {
            Family::Front => 100,
            Family::Mix | Family::Flood => 25,
            Family::Start | Family::Life | Family::Input => 10,
            _ => 0,
        };
        if !self.rng.chance(chance) {
            return;
        }
        for _ in 0..self.rng.between(1, 4) {
            let early = self.rng.chance(30);
            let when = if early {
                self.rng.millis(0, 20)
            } else {
                self.rng.millis(0, 3_000)
            };
            let act = match self.rng.below(10) {
                0 | 1 => Act::End(self.reason()),
                2 => Act::Kill(self.reason()),
                3 => Act::Vanish,
                4 => Act::Release,
                _ => Act::Signal(self.rng.pick([
                    Signal::INT,
                    Signal::TERM,
                    Signal::USR1,
                    Signal::TSTP,
                    Signal::STOP,
                    Signal::CONT,
                    Signal::WINCH,
                ])),
            };
            // A job that a signal has stopped may stay stopped.
            self.needs_end |= matches!(act, Act::Signal(_));
            self.acts.push((when, act));
        }
    }

    pub(super) fn hold_acts(&mut self, release_after: Option<Duration>) {
        if self.rng.chance(30) {
            self.acts.push((self.rng.millis(0, 60), Act::Release));
        } else {
            if self.rng.chance(30) {
                let (when, count) = (self.rng.millis(0, 60), self.rng.pick([1, 2, 3, 5]));
                self.acts.push((when, Act::ReleaseSome(count)));
            }
            self.needs_end |= release_after.is_none();
        }
        if self.rng.chance(25) {
            let (when, reason) = (self.rng.millis(0, 100), self.reason());
            self.acts.push((
                when,
                if self.rng.chance(60) {
                    Act::End(reason)
                } else {
                    Act::Kill(reason)
                },
            ));
        }
        if self.rng.chance(15) {
            let when = self.rng.millis(0, 100);
            let rank = self.any_rank();
            self.faults.push((when, Fault::KillRank(rank)));
        }
    }

    pub(super) fn faults(&mut self) {
        if let Some(tree) = &self.tree {
            return self.troubles(tree.timing);
        }
        let chance = match self.family {
            Family::Loss => 100,
            Family::Mix | Family::Nodes => 60,
            Family::Pmix | Family::Spawn => 15,
            _ => 0,
        };
        if !self.rng.chance(chance) {
            return;
        }
        let many = match self.family {
            Family::Pmix | Family::Spawn => 1,
            _ => self.rng.between(3, 5),
        };
        // Nothing fails after the loss of the controller, so it comes last.
        let headless = self.rng.chance(if many > 1 { 25 } else { 40 });
        let first = match self.rng.below(10) {
            0..4 => self.rng.millis(0, 30),
            4..8 => self.rng.millis(0, 300),
            _ => self.rng.millis(0, 2_500),
        };
        let mut last = Duration::ZERO;
        for number in 0..many {
            // Most jobs are short, or end with the first fault, so the others follow soon.
            let when = first + self.rng.micros(0, if number > 0 { 20_000 } else { 0 });
            if headless && number + 1 == many {
                self.faults.push((when.max(last), Fault::LoseController));
                break;
            }
            last = last.max(when);
            let fault = match self.rng.below(6) {
                0 | 1 => Fault::KillRank(self.any_rank()),
                _ if self.nodes < 2 && many > 1 => Fault::KillRank(self.any_rank()),
                _ => Fault::LoseNode(NodeId(self.rng.number(0, self.nodes - 1))),
            };
            self.faults.push((when, fault));
        }
    }

    /// Makes sure that a job ends: by itself, by a request of its front, or by a time limit.
    pub(super) fn make_it_end(&mut self, end: &mut EndPolicy) {
        if self.rng.chance(8) {
            end.time_limit = Some(self.rng.millis(1, 3_000));
        }
        if !self.needs_end || end.time_limit.is_some() {
            return;
        }
        let when = self.rng.millis(500, 4_000);
        if self.rng.chance(30) {
            end.time_limit = Some(when);
            return;
        }
        let reason = self.reason();
        self.acts.push((when, Act::End(reason)));
        if self.rng.chance(20) {
            let later = when + self.rng.millis(0, 400);
            let kill = Act::Kill(self.reason());
            self.acts.push((
                later,
                if self.rng.chance(70) {
                    kill
                } else {
                    Act::Vanish
                },
            ));
        }
    }
}
