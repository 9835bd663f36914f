//! Checks that need the whole cluster: spawned jobs end with their spawners, reports to fronts are true, jobs end in time,
//! and no process of a job remains.

use std::{collections::BTreeMap, time::Duration};

use base::{JobId, ProcId, Rank, RankSet};
use dvm::{
    life::{LEAK_DELAY, OWN_READS_MAX},
    proto::{Cause, FrontId, Outcome},
};

use super::{Cluster, FrontSide};
use crate::{ledger::Reader, names::called};

/// Maximum time from the death of a rank to the report that it is leaky, if a descendant writes continuously. On each of
/// the two streams, up to `OWN_READS_MAX` reads restart the wait of `LEAK_DELAY`.
const LEAK_MAX: Duration = LEAK_DELAY.saturating_mul(1 + 2 * OWN_READS_MAX as u32);
/// Grace of processes left behind: the time between their SIGTERM and their SIGKILL.
const ASK_MAX: Duration = Duration::from_secs(1);
/// Time that a process has to exit after SIGKILL. The daemon then reports it as stuck and abandons it.
const KILL_MAX: Duration = Duration::from_secs(2);
/// Allowance for the messages and wake-ups until the end, in addition to the delays of the run.
const END_SLACK: Duration = Duration::from_millis(300);

impl Cluster {
    /// Checks that the controller has sent `End` or `Kill` for every spawned job that must end. Called after each input of the
    /// controller.
    pub(super) fn check_children(&mut self) {
        let spared = self.verdicts.spawned().find(|(job, verdict)| {
            verdict.ending && !verdict.is_over() && !self.told_to_end.contains(job)
        });
        if let Some((job, _)) = spared {
            self.world
                .fault(format!("job {job} is not ended, though it is to be"));
        }
    }

    pub(super) fn check_outcome(&mut self, front: FrontId, outcome: &Outcome) {
        let Some(verdict) = self.verdicts.of_front(front) else {
            return;
        };
        let expected = verdict.expected_cause();
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
                let real = verdict.ended.get(&rank).copied();
                self.world.require(real == Some(*status), || {
                    format!("rank {rank}: {status}, told was {real:?}")
                });
            }
        }
        let all = RankSet::range(0..outcome.size);
        self.world.require(seen == all, || {
            format!("of ranks {all} only {seen} have an end")
        });
        let by_us = &verdict.by_us;
        self.world.require(outcome.ended_by_us == *by_us, || {
            format!(
                "ended by us are said to be {}, they are {by_us}",
                outcome.ended_by_us
            )
        });
    }

    /// Checks the final state of a run. No process is alive except those reported as stuck, no used daemon has state of a job,
    /// and the end came in time after the last valid reason to continue.
    pub(super) fn check_end(&mut self) {
        for (id, node) in &self.nodes {
            // A daemon that lives, but was lost, ends its jobs by itself; that is checked at the end of the session.
            let is_lost = self.world.ledger.lost_nodes.contains_key(id);
            if !node.is_on() || is_lost {
                continue;
            }
            let survivors = node.survivors(&self.world);
            self.world.require(survivors.is_empty(), || {
                format!("on node {id} are still alive {survivors:?}")
            });
            let mut verdicts = self.verdicts.all();
            let used = verdicts.any(|(_, verdict)| verdict.ranks.contains_key(id));
            // The files of jobs that were never launched may still be there. At the end of the run they are not.
            self.world.require(!used || node.has_no_job(), || {
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
        let slack = match self.world.carrier {
            Some(_) => slack + self.world.ledger.slack,
            None => slack + self.world.ledger.stops,
        };
        let bound = self.world.ledger.busy_until + LEAK_MAX + ASK_MAX + stuck + slack;
        let now = self.world.now;
        let since = self.world.ledger.busy_until;
        self.world.require(now <= bound, || {
            format!("the job ends only at {now}: the last reason to live was at {since}")
        });
    }

    /// Checks, once no event remains, that all output and all reports have arrived and that the reports are true.
    pub(super) fn check_told(&mut self) {
        let lost = &self.world.ledger.lost;
        let (refused, told) = self.world.ledger.pmix.refused();
        let is_gone = |front: FrontId| {
            let side = self.fronts.get(&front);
            side.is_none_or(|side| side.front.gone)
        };
        // A front that was refused hears nothing of the jobs that tools have spawned meanwhile.
        let hears = |side: &FrontSide| !side.front.gone && side.front.told.refusal.is_none();
        let all_there = self.fronts.values().all(hears);
        let mut wrong = (all_there && lost.is_empty() && refused != told).then(|| {
            format!("{refused} connections were closed for what came over them, told were {told}")
        });
        let tapes = self.world.ledger.tapes.iter();
        for ((proc, stream), tape) in tapes.filter(|((proc, _), _)| !lost.contains(proc)) {
            let verdict = self.verdicts.of(proc.job);
            let verdict = verdict.filter(|verdict| !verdict.is_of_tool());
            let front = verdict.map(|verdict| verdict.front);
            let job = proc.job;
            let is_forwarded = self.world.ledger.copies.forwarded.contains(&(job, *stream));
            let reader = match front {
                Some(_) if is_forwarded => Reader::Gone,
                Some(front) if !is_gone(front) => Reader::Present,
                Some(_) | None => Reader::Gone,
            };
            let found = tape.check(reader);
            wrong = wrong
                .or_else(|| found.map(|wrong| format!("{stream:?} of {}: {wrong}", called(*proc))));
        }
        for (id, side) in &self.fronts {
            wrong = wrong.or_else(|| self.wrong_of_front(*id, side));
        }
        let mut nodes = self.nodes.values().filter(|node| node.is_on());
        let full = nodes.find(|node| !node.disk.is_empty());
        wrong = wrong.or_else(|| full.map(|node| format!("on node {} are still files", node.id)));
        wrong = wrong.or_else(|| self.world.ledger.held_for_nobody());
        if let Some(wrong) = wrong {
            self.world.fault(wrong);
        }
    }

    /// Returns the first error in the messages that a front got. Fronts that vanished or were refused are not checked.
    fn wrong_of_front(&self, id: FrontId, side: &FrontSide) -> Option<String> {
        let told = &side.front.told;
        if side.front.gone || told.refusal.is_some() {
            return None;
        }
        let failed: BTreeMap<_, _> = self
            .verdicts
            .spawned()
            .filter(|(_, verdict)| verdict.front == id && !verdict.is_of_tool())
            .filter_map(|(job, verdict)| Some((job, verdict.failure()?)))
            .collect();
        if told.spawned_failed != failed {
            let told = &told.spawned_failed;
            return Some(format!(
                "of the jobs that were spawned {failed:?} have failed, told are {told:?}"
            ));
        }
        let (Some(outcome), Some(job)) = (&told.outcome, side.front.job) else {
            return Some(format!("front {id} was never told the end"));
        };
        let ledger = &self.world.ledger;
        let is_lost = |rank| ledger.lost.contains(&ProcId { job, rank });
        let started: RankSet = ranks(job, ledger.spawned.keys()).collect();
        let claimed = outcome.not_started.intersection(&started);
        let claimed: RankSet = claimed.iter().filter(|rank| !is_lost(*rank)).collect();
        if !claimed.is_empty() {
            return Some(format!("ranks {claimed} were started"));
        }
        if let Some(Cause::NotStarted(classes)) = side.front.cause() {
            for (proc, failure) in &ledger.failed {
                let rank = proc.rank;
                let told = classes
                    .iter()
                    .any(|(told, ranks)| told == failure && ranks.contains(rank));
                if !told && proc.job == job && !is_lost(rank) {
                    return Some(format!("nobody is told why rank {rank} did not start"));
                }
            }
        }
        if self
            .verdicts
            .of(job)
            .is_none_or(|verdict| verdict.ranks.is_empty())
        {
            return None;
        }
        let Some(table) = &told.table else {
            return Some(format!("front {id} was never told the launch"));
        };
        let told: BTreeMap<_, _> = table.iter().map(|row| (row.rank, row.pid)).collect();
        let spawned = ledger.spawned.iter();
        let spawned = spawned.filter(|(proc, _)| proc.job == job);
        let mut real: BTreeMap<_, _> = spawned.map(|(proc, pid)| (proc.rank, *pid)).collect();
        real.retain(|rank, _| !is_lost(*rank) || told.contains_key(rank));
        (told != real).then(|| format!("the table says {told:?}, started were {real:?}"))
    }
}

/// Returns the ranks of those procs that belong to `job`.
fn ranks<'a>(job: JobId, procs: impl Iterator<Item = &'a ProcId>) -> impl Iterator<Item = Rank> {
    procs
        .filter(move |proc| proc.job == job)
        .map(|proc| proc.rank)
}
