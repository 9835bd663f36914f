//! The end of a run: whether what was told of it is true, and nothing is left.

use std::{collections::BTreeMap, time::Duration};

use base::{ProcId, Rank, RankSet};
use dvm::{
    FIRST_JOB,
    life::{LEAK_DELAY, OWN_READS_MAX},
    proto::{Cause, Outcome},
};

use super::Cluster;
use crate::ledger::{Reader, called};

/// How long a descendant that writes all the time can keep its rank from being leaky.
const LEAK_MAX: Duration = LEAK_DELAY.saturating_mul(1 + 2 * OWN_READS_MAX as u32);
/// After the last reason to live: how long strays are asked before they are killed.
const ASK_MAX: Duration = Duration::from_secs(1);
/// How long a process may resist SIGKILL before it is given up.
const KILL_MAX: Duration = Duration::from_secs(2);
/// Messages and wake-ups on the way to the end.
const END_SLACK: Duration = Duration::from_millis(300);

impl Cluster {
    /// What is to end ends at once, and not before it is to.
    pub(super) fn check_children(&mut self) {
        let spared = self.verdicts.spawned().find(|(job, verdict)| {
            verdict.ending && !verdict.is_over() && !self.told_to_end.contains(job)
        });
        if let Some((job, _)) = spared {
            self.world
                .fault(format!("job {job} is not ended, though it is to be"));
        }
    }

    pub(super) fn check_outcome(&mut self, outcome: &Outcome) {
        let expected = self.first().expected_cause();
        self.world.require(outcome.cause == expected, || {
            format!(
                "the cause is said to be {:?}, it is {expected:?}",
                outcome.cause
            )
        });
        let mut seen = outcome.not_started.clone();
        for (status, ranks) in &outcome.ended {
            let twice = seen.intersection(ranks);
            self.world
                .require(twice.is_empty(), || format!("ranks {twice} end twice"));
            seen = seen.union(ranks);
            for rank in ranks.iter() {
                let real = self.first().ended.get(&rank).copied();
                self.world.require(real == Some(*status), || {
                    format!("rank {rank}: {status}, told was {real:?}")
                });
            }
        }
        let all = RankSet::range(0..outcome.size);
        self.world.require(seen == all, || {
            format!("of ranks {all} only {seen} have an end")
        });
        let by_us = self.first().by_us.clone();
        self.world.require(outcome.ended_by_us == by_us, || {
            format!(
                "ended by us are said to be {}, they are {by_us}",
                outcome.ended_by_us
            )
        });
    }

    /// The job is over: nothing may be left, and it must have taken no longer than it must.
    pub(super) fn check_end(&mut self) {
        for (id, node) in &self.nodes {
            if !node.is_on() {
                continue;
            }
            let survivors = node.survivors(&self.world);
            self.world.require(survivors.is_empty(), || {
                format!("on node {id} are still alive {survivors:?}")
            });
            let used = self.first().ranks.contains_key(id);
            self.world.require(!used || node.is_clean(), || {
                format!("daemon {id} has not forgotten the job")
            });
        }
        let stuck = if self.world.ledger.stuck.is_empty() {
            Duration::ZERO
        } else {
            KILL_MAX
        };
        let latency = self.world.latency;
        let slack = END_SLACK
            + 4 * (latency.link_max + latency.io_max + latency.tick_late_max + latency.spawn_max);
        let bound = self.world.ledger.busy_until + LEAK_MAX + ASK_MAX + stuck + slack;
        let now = self.world.now;
        let since = self.world.ledger.busy_until;
        self.world.require(now <= bound, || {
            format!("the job ends only at {now}: the last reason to live was at {since}")
        });
    }

    /// Everything that could arrive has arrived: was it the truth, and all of it?
    pub(super) fn check_told(&mut self) {
        let reader = if self.front.gone {
            Reader::Gone
        } else {
            Reader::Present
        };
        let lost = self.world.ledger.lost.clone();
        let (refused, told) = self.world.ledger.pmix.refused();
        self.world.require(
            reader == Reader::Gone || refused == told || !lost.is_empty(),
            || {
                format!(
                    "{refused} connections were closed for what came over them, told were {told}"
                )
            },
        );
        let wrong = self
            .world
            .ledger
            .tapes
            .iter()
            .filter(|((proc, _), _)| !lost.contains(proc))
            .find_map(|((proc, stream), tape)| {
                tape.check(reader)
                    .map(|wrong| format!("{stream:?} of {}: {wrong}", called(*proc)))
            });
        if let Some(wrong) = wrong {
            self.world.fault(wrong);
        }
        if reader == Reader::Gone || self.front.told.refusal.is_some() {
            return;
        }
        let failed: BTreeMap<_, _> = self
            .verdicts
            .spawned()
            .filter_map(|(job, verdict)| Some((job, verdict.failure()?)))
            .collect();
        let told = &self.front.told.spawned_failed;
        self.world.require(*told == failed, || {
            format!("of the jobs that were spawned {failed:?} have failed, told are {told:?}")
        });
        let Some(outcome) = &self.front.told.outcome else {
            return self
                .world
                .fault("the front was never told the end".to_owned());
        };
        let is_lost = |rank| {
            let job = FIRST_JOB;
            lost.contains(&ProcId { job, rank })
        };
        let started: RankSet = ranks(self.world.ledger.spawned.keys()).collect();
        let claimed = outcome.not_started.intersection(&started);
        let claimed: RankSet = claimed.iter().filter(|rank| !is_lost(*rank)).collect();
        self.world.require(claimed.is_empty(), || {
            format!("ranks {claimed} were started")
        });
        if let Some(Cause::NotStarted(classes)) = self.front.cause() {
            for (proc, failure) in &self.world.ledger.failed {
                let rank = proc.rank;
                let told = classes
                    .iter()
                    .any(|(told, ranks)| told == failure && ranks.contains(rank));
                if !told && proc.job == FIRST_JOB && !is_lost(rank) {
                    self.world
                        .fault(format!("nobody is told why rank {rank} did not start"));
                    return;
                }
            }
        }
        if self.first().ranks.is_empty() {
            return;
        }
        let Some(table) = &self.front.told.table else {
            return self
                .world
                .fault("the front was never told the launch".to_owned());
        };
        let told: BTreeMap<_, _> = table.iter().map(|row| (row.rank, row.pid)).collect();
        let spawned = self.world.ledger.spawned.iter();
        let spawned = spawned.filter(|(proc, _)| proc.job == FIRST_JOB);
        let mut real: BTreeMap<_, _> = spawned.map(|(proc, pid)| (proc.rank, *pid)).collect();
        real.retain(|rank, _| !is_lost(*rank) || told.contains_key(rank));
        self.world.require(told == real, || {
            format!("the table says {told:?}, started were {real:?}")
        });
    }
}

/// The ranks of the front's job among procs.
fn ranks<'a>(procs: impl Iterator<Item = &'a ProcId>) -> impl Iterator<Item = Rank> {
    procs
        .filter(|proc| proc.job == FIRST_JOB)
        .map(|proc| proc.rank)
}
