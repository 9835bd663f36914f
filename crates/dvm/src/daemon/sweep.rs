//! Ending what procs have left behind: processes that put themselves into other groups and sessions, or whose parents
//! have ended. They are found because the daemon's process adopts every orphan below it.
//!
//! | stage | swept: none | swept: some | a stray exited | deadline |
//! |---|---|---|---|---|
//! | `Idle` | – | – | – | – |
//! | `Counting` | `Clean` | said; TERM → `Asking` (or KILL → `Killing`) | count again | – |
//! | `Asking` | `Clean` | – | count again | KILL → `Killing` |
//! | `Killing` | `Clean` | – | KILL again (there may be new ones) | *stuck*, said → `Clean` |
//! | `Clean` | – | – | – | – |

use std::time::Duration;

use base::{Signal, Time};

use crate::planted::{self, Bug};

/// What is left behind gets this long after SIGTERM at the most, for its rank has gone already.
pub(super) const ASK_MAX: Duration = Duration::from_secs(1);

/// A process that SIGKILL has not ended after this time sleeps in the kernel; it is named, and we go.
pub(super) const KILL_MAX: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Idle,
    Counting,
    Asking { until: Time },
    Killing { until: Time },
    Clean,
}

/// What a step asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Nothing,
    Sweep(Option<Signal>),
    /// Say that so many were left behind, and sweep.
    Report {
        count: u32,
        signal: Signal,
    },
    /// Say that these cannot be ended.
    GiveUp(Vec<i32>),
}

/// How hard the sweep begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    Ask { grace: Duration },
    Kill,
}

#[derive(Debug)]
pub(super) struct Sweep {
    stage: Stage,
    manner: Manner,
    left: Vec<i32>,
}

impl Sweep {
    pub(super) const fn new() -> Self {
        Self {
            stage: Stage::Idle,
            manner: Manner::Kill,
            left: Vec::new(),
        }
    }

    pub(super) const fn is_idle(&self) -> bool {
        matches!(self.stage, Stage::Idle)
    }

    pub(super) const fn is_clean(&self) -> bool {
        matches!(self.stage, Stage::Clean)
    }

    pub(super) fn begin(&mut self, manner: Manner) -> Action {
        self.manner = manner;
        if planted::is(Bug::StraysNotSwept) {
            self.stage = Stage::Clean;
            return Action::Nothing;
        }
        self.stage = Stage::Counting;
        Action::Sweep(None)
    }

    pub(super) fn on_swept(&mut self, now: Time, left: &[i32]) -> Action {
        if matches!(self.stage, Stage::Idle | Stage::Clean) {
            return Action::Nothing;
        }
        left.clone_into(&mut self.left);
        if left.is_empty() || planted::is(Bug::SweepGivesUpAtFirstCount) {
            self.stage = Stage::Clean;
            return Action::Nothing;
        }
        if self.stage != Stage::Counting {
            return Action::Nothing;
        }
        let count = u32::try_from(left.len()).unwrap_or(u32::MAX);
        match self.manner {
            Manner::Ask { grace } => {
                self.stage = Stage::Asking {
                    until: now + grace.min(ASK_MAX),
                };
                Action::Report {
                    count,
                    signal: Signal::TERM,
                }
            }
            Manner::Kill => {
                self.stage = Stage::Killing {
                    until: now + KILL_MAX,
                };
                Action::Report {
                    count,
                    signal: Signal::KILL,
                }
            }
        }
    }

    pub(super) const fn on_stray_exited(&self) -> Action {
        match self.stage {
            Stage::Counting | Stage::Asking { .. } => Action::Sweep(None),
            Stage::Killing { .. } => Action::Sweep(Some(Signal::KILL)),
            Stage::Idle | Stage::Clean => Action::Nothing,
        }
    }

    /// Kill at once what is being asked politely.
    pub(super) fn harden(&mut self, now: Time) -> Action {
        self.manner = Manner::Kill;
        match self.stage {
            Stage::Asking { .. } => {
                self.stage = Stage::Killing {
                    until: now + KILL_MAX,
                };
                Action::Sweep(Some(Signal::KILL))
            }
            _ => Action::Nothing,
        }
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        match self.stage {
            Stage::Killing { .. } if planted::is(Bug::StuckNeverGivenUp) => None,
            Stage::Asking { until } | Stage::Killing { until } => Some(until),
            Stage::Idle | Stage::Counting | Stage::Clean => None,
        }
    }

    pub(super) fn on_tick(&mut self, now: Time) -> Action {
        match self.stage {
            Stage::Asking { until } if until <= now => self.harden(now),
            Stage::Killing { until } if until <= now => {
                self.stage = Stage::Clean;
                Action::GiveUp(std::mem::take(&mut self.left))
            }
            _ => Action::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn nothing_left_is_clean_at_once() {
        let mut sweep = Sweep::new();
        assert_eq!(sweep.begin(Manner::Kill), Action::Sweep(None));
        assert_eq!(sweep.on_swept(at(0), &[]), Action::Nothing);
        assert!(sweep.is_clean());
    }

    #[test]
    fn strays_are_asked_then_killed_then_named() {
        let mut sweep = Sweep::new();
        sweep.begin(Manner::Ask {
            grace: Duration::from_secs(9),
        });
        assert_eq!(
            sweep.on_swept(at(0), &[7, 8]),
            Action::Report {
                count: 2,
                signal: Signal::TERM
            }
        );
        assert_eq!(sweep.on_swept(at(0), &[7, 8]), Action::Nothing);
        assert_eq!(sweep.on_stray_exited(), Action::Sweep(None));
        assert_eq!(sweep.on_swept(at(1), &[8]), Action::Nothing);
        assert_eq!(sweep.deadline(), Some(at(1_000)));
        assert_eq!(sweep.on_tick(at(999)), Action::Nothing);
        assert_eq!(sweep.on_tick(at(1_000)), Action::Sweep(Some(Signal::KILL)));
        assert_eq!(sweep.on_stray_exited(), Action::Sweep(Some(Signal::KILL)));
        assert_eq!(sweep.on_tick(at(3_000)), Action::GiveUp(vec![8]));
        assert!(sweep.is_clean());
    }

    #[test]
    fn a_kill_makes_asking_killing() {
        let mut sweep = Sweep::new();
        sweep.begin(Manner::Ask {
            grace: Duration::from_secs(1),
        });
        sweep.on_swept(at(0), &[7]);
        assert_eq!(sweep.harden(at(1)), Action::Sweep(Some(Signal::KILL)));
        assert_eq!(sweep.harden(at(1)), Action::Nothing);
    }
}
