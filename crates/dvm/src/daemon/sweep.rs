//! Ending the processes that procs have left behind: processes that moved to another process group or session, or whose
//! parents have exited. We can find them because the daemon's process is a subreaper, which adopts every orphaned
//! descendant.
//!
//! | stage | sweep found none | sweep found some | a stray exited | deadline |
//! |---|---|---|---|---|
//! | `Idle` | – | – | – | – |
//! | `Counting` | → `Clean` | SIGTERM → `Asking` (or SIGKILL → `Killing`) | count again | – |
//! | `Asking` | report → `Clean` | – | count again | SIGKILL → `Killing` |
//! | `Killing` | report → `Clean` | – | SIGKILL again (there may be new ones) | report, including the survivors → `Clean` |
//! | `Clean` | – | – | – | – |

use std::{collections::BTreeSet, time::Duration};

use base::{Signal, Time};

use crate::planted::{self, Bug};

/// Maximum grace of a process that was left behind. It is short because the rank that started it has already ended.
pub(super) const ASK_MAX: Duration = Duration::from_secs(1);

/// Maximum time to wait for a process to exit after SIGKILL. If it still lives, it is blocked in the kernel or we may
/// not signal it: we report its pid and abandon it.
pub(super) const KILL_MAX: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Idle,
    Counting,
    Asking { until: Time },
    Killing { until: Time },
    Clean,
}

/// An action that a step of the sweep requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Nothing,
    Sweep(Option<Signal>),
    /// Report the sweep: `ended` processes were left behind and have been ended. Those in `stuck` survived SIGKILL, and
    /// those in `not_permitted` we may not signal.
    Report {
        ended: u32,
        stuck: Vec<i32>,
        not_permitted: Vec<i32>,
    },
}

/// The signal with which the sweep begins: SIGTERM for `Ask`, SIGKILL for `Kill`.
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
    /// The pids in `left` that we may not signal.
    not_permitted: BTreeSet<i32>,
    /// Number of processes that were found when the sweep began to signal them.
    found: usize,
}

impl Sweep {
    pub(super) const fn new() -> Self {
        Self {
            stage: Stage::Idle,
            manner: Manner::Kill,
            left: Vec::new(),
            not_permitted: BTreeSet::new(),
            found: 0,
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

    pub(super) fn on_swept(
        &mut self,
        now: Time,
        left: &[i32],
        not_permitted: BTreeSet<i32>,
    ) -> Action {
        if matches!(self.stage, Stage::Idle | Stage::Clean) {
            return Action::Nothing;
        }
        left.clone_into(&mut self.left);
        self.not_permitted = not_permitted;
        if left.is_empty() || planted::is(Bug::SweepGivesUpAtFirstCount) {
            self.left.clear();
            return self.report();
        }
        if self.stage != Stage::Counting {
            return Action::Nothing;
        }
        self.found = left.len();
        match self.manner {
            Manner::Ask { grace } => {
                self.stage = Stage::Asking {
                    until: now + grace.min(ASK_MAX),
                };
                Action::Sweep(Some(Signal::TERM))
            }
            Manner::Kill => {
                self.stage = Stage::Killing {
                    until: now + KILL_MAX,
                };
                Action::Sweep(Some(Signal::KILL))
            }
        }
    }

    /// Completes the sweep, and returns the report unless no processes were found.
    fn report(&mut self) -> Action {
        self.stage = Stage::Clean;
        if self.found == 0 {
            return Action::Nothing;
        }
        let left = std::mem::take(&mut self.left);
        let ended = self.found.saturating_sub(left.len());
        let (not_permitted, stuck) = left
            .into_iter()
            .partition(|pid| self.not_permitted.contains(pid));
        Action::Report {
            ended: u32::try_from(ended).unwrap_or(u32::MAX),
            stuck,
            not_permitted,
        }
    }

    pub(super) const fn on_stray_exited(&self) -> Action {
        match self.stage {
            Stage::Counting | Stage::Asking { .. } => Action::Sweep(None),
            Stage::Killing { .. } => Action::Sweep(Some(Signal::KILL)),
            Stage::Idle | Stage::Clean => Action::Nothing,
        }
    }

    /// Escalates: kills the processes that are still in their grace.
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
            Stage::Killing { until } if until <= now => self.report(),
            _ => Action::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: BTreeSet<i32> = BTreeSet::new();

    fn at(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn nothing_left_is_clean_at_once() {
        let mut sweep = Sweep::new();
        assert_eq!(sweep.begin(Manner::Kill), Action::Sweep(None));
        assert_eq!(sweep.on_swept(at(0), &[], NONE), Action::Nothing);
        assert!(sweep.is_clean());
    }

    #[test]
    fn strays_are_asked_then_killed_then_named() {
        let mut sweep = Sweep::new();
        sweep.begin(Manner::Ask {
            grace: Duration::from_secs(9),
        });
        assert_eq!(
            sweep.on_swept(at(0), &[7, 8, 9], NONE),
            Action::Sweep(Some(Signal::TERM))
        );
        assert_eq!(sweep.on_swept(at(0), &[7, 8, 9], NONE), Action::Nothing);
        assert_eq!(sweep.on_stray_exited(), Action::Sweep(None));
        assert_eq!(sweep.on_swept(at(1), &[8, 9], NONE), Action::Nothing);
        assert_eq!(sweep.deadline(), Some(at(1_000)));
        assert_eq!(sweep.on_tick(at(999)), Action::Nothing);
        assert_eq!(sweep.on_tick(at(1_000)), Action::Sweep(Some(Signal::KILL)));
        assert_eq!(sweep.on_stray_exited(), Action::Sweep(Some(Signal::KILL)));
        assert_eq!(sweep.on_swept(at(2), &[8, 9], [9].into()), Action::Nothing);
        assert_eq!(
            sweep.on_tick(at(3_000)),
            Action::Report {
                ended: 1,
                stuck: vec![8],
                not_permitted: vec![9],
            }
        );
        assert!(sweep.is_clean());
    }

    #[test]
    fn a_kill_makes_asking_killing() {
        let mut sweep = Sweep::new();
        sweep.begin(Manner::Ask {
            grace: Duration::from_secs(1),
        });
        sweep.on_swept(at(0), &[7], NONE);
        assert_eq!(sweep.harden(at(1)), Action::Sweep(Some(Signal::KILL)));
        assert_eq!(sweep.harden(at(1)), Action::Nothing);
        assert_eq!(
            sweep.on_swept(at(2), &[], NONE),
            Action::Report {
                ended: 1,
                stuck: Vec::new(),
                not_permitted: Vec::new(),
            }
        );
    }
}
