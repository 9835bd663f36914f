//! Messages of several daemons that say the same of their nodes, and become one on their way to the controller.
//!
//! Only a message that says that all is well may wait for others: a failure, an abort or a note goes at once, and the overlay lets
//! leave what it must not overtake. The merged message has the form of one daemon's message, with the ranks of all; the controller
//! gets it with the nodes ([`crate::ControllerInput::Daemons`]).
//!
//! | message | merged |
//! |---|---|
//! | [`ToController::Launched`] without failures and with all limits enforced | the lists of pids by program |
//! | [`ToController::Held`], [`ToController::ExitedEarly`] | the sets of ranks |
//! | [`ToController::Ended`], if all have exited with code 0 | the sets of ranks by class |
//! | [`ToController::Clean`] | the sum of what was used |
//! | [`ToController::StdinClosed`], [`ToController::FencesAbandoned`] | the same |

use std::{collections::BTreeMap, ffi::OsString};

use base::{JobId, Rank};

use super::{EndClass, PmiState, Started, ToController};

/// The kinds of messages that can be merged: eight, so each fits in three bits.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Launched,
    Held,
    NotInitialized,
    NotFinalized,
    Ended,
    StdinClosed,
    FencesAbandoned,
    Clean,
}

impl ToController {
    /// Returns true if a message goes ahead of output, and of everything that must not overtake output.
    ///
    /// What ranks wait for goes ahead: the messages of PMIx and PMI among nodes. They do not depend on the order of the others: a
    /// rank may ask before all ranks of its node were started, and asks nothing any more when it has ended.
    #[must_use]
    pub const fn is_urgent(&self) -> bool {
        matches!(
            self,
            Self::Server(_)
                | Self::Fence { .. }
                | Self::FencesAbandoned { .. }
                | Self::Push { .. }
                | Self::Pushed { .. }
                | Self::SignalRanks { .. }
                // The start of other nodes does not wait behind output.
                | Self::Starter(_)
                // The credit for chunks.
                | Self::Preload { .. }
                | Self::Ask { .. }
        )
    }

    /// Returns a number that is the same for messages that can be merged with each other; `None` for a message that is not merged and
    /// does not wait.
    #[must_use]
    pub fn class(&self) -> Option<u64> {
        let (kind, JobId(job)) = match self {
            Self::Launched {
                job,
                failures,
                unenforced,
                ..
            } if failures.is_empty() && unenforced.is_empty() => (Kind::Launched, *job),
            Self::Held { job, .. } => (Kind::Held, *job),
            Self::ExitedEarly { job, state, .. } => match state {
                PmiState::NotInitialized => (Kind::NotInitialized, *job),
                PmiState::NotFinalized => (Kind::NotFinalized, *job),
            },
            Self::Ended { job, classes } if classes.iter().all(|one| one.status.is_success()) => {
                (Kind::Ended, *job)
            }
            Self::StdinClosed { job } => (Kind::StdinClosed, *job),
            Self::FencesAbandoned { job } => (Kind::FencesAbandoned, *job),
            Self::Clean { job, .. } => (Kind::Clean, *job),
            _ => return None,
        };
        // Small numbers are short on the wire.
        Some(u64::from(job) << 3 | kind as u64)
    }

    /// Merges messages of one class, in any order; `None` if they are not of one class.
    #[must_use]
    pub fn merge(messages: impl IntoIterator<Item = Self>) -> Option<Self> {
        let mut messages = messages.into_iter();
        let mut all = messages.next()?;
        let class = all.class()?;
        let mut programs = Programs::new();
        for one in messages {
            if one.class() != Some(class) {
                return None;
            }
            all.add(one, &mut programs);
        }
        match &mut all {
            Self::Launched { started, .. } => {
                add_started(&mut programs, std::mem::take(started));
                let sorted = programs.into_iter().map(|(executable, mut pids)| {
                    pids.sort_unstable();
                    Started { executable, pids }
                });
                started.extend(sorted);
            }
            Self::Ended { classes, .. } => {
                classes.sort_by_key(|class| (class.status, class.drained));
            }
            _ => {}
        }
        Some(all)
    }

    /// Adds a message of the same class. The pids of other messages are collected in `programs`: with copied programs there may
    /// be one for each node.
    fn add(&mut self, other: Self, programs: &mut Programs) {
        match (self, other) {
            (Self::Launched { .. }, Self::Launched { started: more, .. }) => {
                add_started(programs, more);
            }
            (Self::Held { ranks, .. }, Self::Held { ranks: more, .. })
            | (Self::ExitedEarly { ranks, .. }, Self::ExitedEarly { ranks: more, .. }) => {
                ranks.append(&more);
            }
            (Self::Ended { classes, .. }, Self::Ended { classes: more, .. }) => {
                more.into_iter().for_each(|class| add_class(classes, class));
            }
            (Self::Clean { spent, .. }, Self::Clean { spent: more, .. }) => spent.add(&more),
            // The others have nothing but their job.
            _ => {}
        }
    }
}

/// Ranks and pids by program.
type Programs = BTreeMap<OsString, Vec<(Rank, i32)>>;

fn add_started(programs: &mut Programs, started: Vec<Started>) {
    for Started { executable, pids } in started {
        programs.entry(executable).or_default().extend(pids);
    }
}

fn add_class(classes: &mut Vec<EndClass>, class: EndClass) {
    let same = |one: &&mut EndClass| (one.status, one.drained) == (class.status, class.drained);
    match classes.iter_mut().find(same) {
        Some(same) => same.ranks.append(&class.ranks),
        None => classes.push(class),
    }
}

#[cfg(test)]
mod tests {
    use base::{ExitStatus, Rank, RankSet, Usage};

    use super::*;
    use crate::proto::{Drained, StartFailure, StartStep};

    const JOB: JobId = JobId(7);

    fn launched(executable: &str, pids: &[(u32, i32)]) -> ToController {
        let pids = pids.iter().map(|(rank, pid)| (Rank(*rank), *pid)).collect();
        let executable = executable.into();
        ToController::Launched {
            unenforced: Vec::new(),
            job: JOB,
            started: vec![Started { executable, pids }],
            failures: Vec::new(),
        }
    }

    fn ended(ranks: std::ops::Range<u32>, code: u8, drained: Drained) -> ToController {
        let class = EndClass {
            status: ExitStatus::Exited(code),
            drained,
            ranks: RankSet::range(ranks),
        };
        let classes = vec![class];
        ToController::Ended { job: JOB, classes }
    }

    #[test]
    fn the_order_and_the_ways_of_merging_do_not_matter() {
        let sets = [
            [
                launched("/bin/a", &[(0, 10), (1, 11)]),
                launched("/bin/b", &[(2, 10)]),
                launched("/bin/a", &[(3, 10), (4, 12)]),
            ],
            [
                ended(0..2, 0, Drained::Whole),
                ended(4..6, 0, Drained::Whole),
                ended(2..4, 0, Drained::Whole),
            ],
        ];
        for [a, b, c] in sets {
            let merge = |all: &[&ToController]| {
                let all = all.iter().copied().cloned();
                ToController::merge(all).unwrap()
            };
            let all = merge(&[&a, &b, &c]);
            assert_eq!(all.class(), a.class());
            assert_eq!(merge(&[&merge(&[&c, &a]), &b]), all);
            assert_eq!(merge(&[&a, &merge(&[&c, &b])]), all);
        }
    }

    #[test]
    fn what_is_not_well_does_not_wait() {
        let mut failed = launched("/bin/a", &[(0, 10)]);
        let mut unlimited = failed.clone();
        if let ToController::Launched { unenforced, .. } = &mut unlimited {
            unenforced.push(crate::proto::Unenforced {
                why: crate::proto::NotEnforced::Shared,
                limits: [crate::spec::LimitedResource::Cpu].into(),
            });
        }
        assert_eq!(unlimited.class(), None);
        if let ToController::Launched { failures, .. } = &mut failed {
            let failure = StartFailure {
                step: StartStep::Room,
                errno: 24,
                subject: None,
            };
            failures.push((failure, RankSet::single(Rank(1))));
        }
        let bug = ToController::Bug("a".to_owned());
        for message in [failed, ended(0..1, 1, Drained::Whole), bug] {
            assert_eq!(message.class(), None);
        }
    }

    #[test]
    fn other_jobs_and_other_kinds_stay_apart() {
        let clean = |job| ToController::Clean {
            job: JobId(job),
            spent: Usage::default(),
        };
        let closed = ToController::StdinClosed { job: JOB };
        assert_eq!(ToController::merge([clean(7), clean(8)]), None);
        assert_eq!(ToController::merge([clean(7), closed.clone()]), None);
        let gone = |state| ToController::ExitedEarly {
            job: JOB,
            state,
            ranks: RankSet::single(Rank(0)),
        };
        let both = [PmiState::NotInitialized, PmiState::NotFinalized].map(gone);
        assert_eq!(ToController::merge(both), None);
        assert_eq!(
            ToController::merge([closed.clone(), closed.clone()]),
            Some(closed)
        );
    }
}
