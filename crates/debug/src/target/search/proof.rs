//! Shows which process on this node a launcher means by a pid.
//!
//! The pid may be one of a container's pid namespace, or that of a rank that has exited. Then an unrelated process may have it
//! here. Therefore the pid is first translated from the launcher's pid namespace to ours. Then the process has to show that it
//! belongs to the job:
//!
//! | environment of the process | if it is a descendant of the launcher | if it is not a descendant |
//! |---|---|---|
//! | has this rank, and the launcher's job | proved | proved |
//! | has this rank, but no job that the launcher names | proved | not proved |
//! | has no rank, or is unreadable | proved, except as below | not proved |
//! | has only other ranks | not proved | not proved |
//!
//! The exceptions for an environment without a rank: the launcher is process 1 or starts ranks through daemons, or its host name
//! for the rank is not ours. Then the process is not proved.
//!
//! For ranks whose process is not proved, the processes with a rank in their environment are searched. These have to name the
//! launcher's job; or they have to be its descendants, if the launcher or they name no job. Ranks not found there either are not
//! sampled.

use std::collections::BTreeMap;

use base::Rank;

use super::{Found, RankRow, Search};
use crate::target::{
    Doubt, Note, Numbering,
    environment::{self, Evidence, Family, Job},
    names::{is_here, is_name},
    wrappers::starts_through_daemons,
};

/// A launcher, as the source of pids.
pub(super) struct Witness {
    launcher: i32,
    /// Names that the launcher's job may have in the environment of its ranks; empty if it names none.
    jobs: Vec<String>,
}

/// A row of a launcher's table, before its process is identified.
pub(super) struct ClaimedRow {
    pub(super) rank: Rank,
    pub(super) host: String,
    pub(super) pid: i32,
    pub(super) program: String,
}

impl Witness {
    fn knows(&self, evidence: &Evidence) -> bool {
        let of_job = |job: &String| {
            let step = || evidence.job.strip_prefix(job.as_str());
            evidence.job == *job
                || (evidence.family == Family::Slurm
                    && step().is_some_and(|step| step.starts_with('.')))
        };
        !evidence.job.is_empty() && self.jobs.iter().any(of_job)
    }
}

impl Search<'_> {
    pub(super) fn witness(&self, launcher: i32, job: Option<&str>) -> Witness {
        let mut jobs: Vec<String> = job.iter().map(|&job| job.to_owned()).collect();
        // `sattach` has the step that it joins only in its arguments.
        if starts_through_daemons(self.command(launcher)) {
            let arguments = self.system.arguments(launcher).unwrap_or_default();
            let words = arguments.split(|&byte| byte == 0).skip(1);
            jobs.extend(words.map(|word| String::from_utf8_lossy(word).into_owned()));
        }
        Witness { launcher, jobs }
    }

    /// Identifies the processes of a launcher's rows in our pid namespace.
    pub(super) fn identified(
        &self,
        witness: &Witness,
        claimed: impl Iterator<Item = ClaimedRow>,
    ) -> Vec<RankRow> {
        let own = self.system.host();
        let numbering = self.system.numbering(witness.launcher);
        let translated: BTreeMap<i32, i32> = match &numbering {
            Some(Numbering::Other(number)) => {
                let all = self.processes.keys();
                all.filter_map(|&pid| Some((number(pid)?, pid))).collect()
            }
            Some(Numbering::Ours) | None => BTreeMap::new(),
        };
        let ours = |theirs: i32| match numbering {
            Some(Numbering::Ours) => self.processes.contains_key(&theirs).then_some(theirs),
            Some(Numbering::Other(_)) => translated.get(&theirs).copied(),
            None => None,
        };
        let mut rows: Vec<RankRow> = claimed
            .map(|claimed| {
                let ClaimedRow {
                    rank,
                    host,
                    pid,
                    program,
                } = claimed;
                let found = match ours(pid) {
                    Some(ours) if self.proves(witness, rank, &host, ours) => {
                        Found::Here { pid: ours }
                    }
                    _ if !is_here(&host, &own) && is_name(&host) => Found::On { host, pid },
                    None if matches!(numbering, Some(Numbering::Ours)) => Found::Gone { pid },
                    _ => Found::Unproved { pid },
                };
                RankRow {
                    rank,
                    found,
                    program,
                }
            })
            .collect();
        if rows
            .iter()
            .any(|row| matches!(row.found, Found::Unproved { .. }))
        {
            self.find_by_environment(witness, &mut rows);
        }
        rows
    }

    /// Returns true if a process can be shown to be this rank of the launcher.
    fn proves(&self, witness: &Witness, rank: Rank, host: &str, pid: i32) -> bool {
        let evidence = self.evidence(pid).unwrap_or_default();
        let is_rank = |evidence: &Evidence| evidence.rank == rank.0;
        let mut of_job = evidence
            .iter()
            .filter(|evidence| witness.knows(evidence))
            .peekable();
        if of_job.peek().is_some() {
            return of_job.any(is_rank);
        }
        // Process 1 adopts orphans of any job, so being its child proves nothing.
        let certain = witness.launcher > 1
            && !starts_through_daemons(self.command(witness.launcher))
            && is_here(host, &self.system.host());
        self.is_below(pid, witness.launcher)
            && (evidence.iter().any(is_rank) || (certain && evidence.is_empty()))
    }

    fn is_below(&self, pid: i32, launcher: i32) -> bool {
        match launcher {
            1 => self.processes.get(&pid).is_some_and(|it| it.parent == 1),
            _ => self.is_above(launcher, pid),
        }
    }

    /// Searches the environments of processes for the ranks that were not proved.
    fn find_by_environment(&self, witness: &Witness, rows: &mut [RankRow]) {
        let named = self.claims(|_, evidence| witness.knows(evidence));
        let job: Option<Job> = match environment::jobs(named).into_iter().next() {
            Some(job) => Some(job),
            // Do not take just any job of the launcher: jobs that ranks have spawned have other names and the same ranks.
            None => self.below(witness.launcher).and_then(|(_, jobs)| {
                let may_be = |job: &Job| witness.jobs.is_empty() || job.name.is_empty();
                jobs.into_iter().find(may_be)
            }),
        };
        let ranks = job.map(|job| job.ranks).unwrap_or_default();
        for row in rows {
            if let Found::Unproved { .. } = row.found
                && let Some(&pid) = ranks.get(&row.rank.0)
            {
                row.found = Found::Here { pid };
            }
        }
    }

    /// Adds notes and doubts about the launcher's pids.
    pub(super) fn say_numbers(&mut self, launcher: i32, rows: &[RankRow]) {
        let is_contained = matches!(self.system.numbering(launcher), Some(Numbering::Other(_)));
        if is_contained && rows.iter().any(|row| row.here().is_some()) {
            self.notes.push(Note::Contained { launcher });
        }
        let (mut gone, mut unproved) = (BTreeMap::new(), BTreeMap::new());
        for row in rows {
            match row.found {
                Found::Gone { pid } => drop(gone.insert(row.rank, pid)),
                Found::Unproved { pid } => drop(unproved.insert(row.rank, pid)),
                Found::Here { .. } | Found::On { .. } => {}
            }
        }
        if let Some((_, &pid)) = gone.first_key_value() {
            let ranks = gone.into_keys().collect();
            self.doubts.push(Doubt::Gone { ranks, pid });
        }
        if let Some((_, &pid)) = unproved.first_key_value() {
            let ranks = unproved.into_keys().collect();
            self.doubts.push(Doubt::Unproved { ranks, pid });
        }
    }
}
