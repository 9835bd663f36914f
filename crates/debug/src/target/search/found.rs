//! Builds the target from what was found: its processes, title, notes and doubts.

use std::collections::{BTreeMap, BTreeSet};

use base::Rank;

use super::{Found, RankRow, Search};
use crate::target::{
    Doubt, How, MAX_RANKS, Note, Proc, Target, Whereabouts, environment::Job, names::file_name,
    outcome::count,
};

impl Search<'_> {
    /// Builds the target from a launcher's proc table.
    pub(super) fn of_rows(mut self, pid: i32, how: How, rows: Vec<RankRow>) -> Target {
        let (How::OwnTable { launcher, .. }
        | How::Table { launcher, .. }
        | How::Pmix { launcher, .. }) = how
        else {
            return self.finish(how, BTreeMap::new());
        };
        if launcher != pid {
            let program = file_name(&self.program(launcher)).to_owned();
            self.notes.push(Note::Launcher {
                pid: launcher,
                program,
            });
        }
        self.say_numbers(launcher, &rows);
        let mut procs = BTreeMap::new();
        let mut wrapped = BTreeMap::new();
        let mut known = BTreeSet::new();
        for row in rows.into_iter().take(MAX_RANKS) {
            let (pid, place) = match row.found {
                Found::Here { pid } => {
                    known.insert(pid);
                    procs.insert(row.rank, self.proc(pid, row.program, &mut wrapped));
                    continue;
                }
                Found::Gone { pid } => (pid, Whereabouts::Gone { host: None }),
                Found::Unproved { pid } => (pid, Whereabouts::Unproved),
                Found::On { host, pid } => (pid, Whereabouts::On(host)),
            };
            let proc = Proc {
                pid,
                place,
                program: row.program,
            };
            procs.insert(row.rank, proc);
        }
        self.say_wrapped(wrapped);
        if !matches!(how, How::Pmix { .. })
            && let Some((_, jobs)) = self.below(launcher)
        {
            // Jobs that ranks have spawned are not in the launcher's table.
            let spawned: Vec<Job> = jobs
                .into_iter()
                .filter(|job| !job.ranks.values().any(|pid| known.contains(pid)))
                .collect();
            self.others(&spawned);
        }
        self.finish(how, procs)
    }

    /// Returns the ranks of a job that was found by the environment.
    pub(super) fn of_job(&mut self, job: Job) -> BTreeMap<Rank, Proc> {
        let mut wrapped = BTreeMap::new();
        for (rank, kept, other) in job.doubles {
            let rank = Rank(rank);
            self.doubts.push(Doubt::SameRank { rank, kept, other });
        }
        if let Some(size) = job.size.filter(|size| *size > job.ranks.len()) {
            let found = job.ranks.len();
            self.notes.push(Note::Fewer { found, size });
        }
        let mut procs = job
            .ranks
            .into_iter()
            .map(|(rank, pid)| (Rank(rank), self.proc(pid, String::new(), &mut wrapped)))
            .collect();
        self.say_wrapped(wrapped);
        add_not_found(&mut procs, job.size);
        procs
    }

    /// Numbers processes that have no rank of their own, from 0 in the order given.
    pub(super) fn in_order(&mut self, pids: Vec<i32>) -> BTreeMap<Rank, Proc> {
        if pids.len() > MAX_RANKS {
            let left_out = pids.len() - MAX_RANKS;
            self.doubts.push(Doubt::TooMany { left_out });
        }
        let numbered = (0..).map(Rank).zip(pids).take(MAX_RANKS);
        numbered
            .map(|(rank, pid)| {
                let proc = Proc {
                    pid,
                    place: self.place(pid),
                    program: self.program(pid),
                };
                (rank, proc)
            })
            .collect()
    }

    /// Returns a rank's process on this node. `program` is the path in the launcher's table, used if we cannot read our own.
    fn proc(&self, pid: i32, program: String, wrapped: &mut BTreeMap<String, usize>) -> Proc {
        let inner = self.unwrap(pid);
        if inner != pid {
            let wrapper = file_name(&self.program(pid)).to_owned();
            *wrapped.entry(wrapper).or_default() += 1;
        }
        let own = self.program(inner);
        Proc {
            pid: inner,
            place: self.place(inner),
            program: if own.is_empty() { program } else { own },
        }
    }

    fn place(&self, pid: i32) -> Whereabouts {
        match self.started(pid) {
            Some(started) => Whereabouts::Here { started },
            None => Whereabouts::Gone { host: None },
        }
    }

    fn say_wrapped(&mut self, wrapped: BTreeMap<String, usize>) {
        let notes = wrapped
            .into_iter()
            .map(|(wrapper, ranks)| Note::Wrapped { ranks, wrapper });
        self.notes.extend(notes);
    }

    pub(super) fn finish(mut self, how: How, procs: BTreeMap<Rank, Proc>) -> Target {
        let elsewhere = procs.values().filter(|proc| proc.host().is_some()).count();
        if elsewhere > 0 {
            self.notes.push(Note::Elsewhere { ranks: elsewhere });
        }
        Target {
            title: title(&how, &procs),
            how,
            procs,
            tried: self.tried,
            doubts: self.doubts,
            notes: self.notes,
        }
    }
}

/// Adds the ranks of a job of this size that have no process. They may be on nodes that were not searched, so nobody may conclude
/// that they do not exist.
pub(in crate::target) fn add_not_found(procs: &mut BTreeMap<Rank, Proc>, size: Option<usize>) {
    let ranks = size.map_or(0, |size| size.min(MAX_RANKS));
    let ranks = (0..).map(Rank).take(ranks);
    // The size of another job, which the processes have inherited.
    if procs.last_key_value().map(|(last, _)| *last) > ranks.clone().last() {
        return;
    }
    for rank in ranks {
        procs.entry(rank).or_insert(Proc::NOT_FOUND);
    }
}

/// Returns the title of a target: job, number of ranks, program.
pub(in crate::target) fn title(how: &How, procs: &BTreeMap<Rank, Proc>) -> String {
    let mut programs: Vec<&str> = procs
        .values()
        .filter(|proc| proc.place != Whereabouts::NotFound)
        .map(|proc| file_name(&proc.program))
        .collect();
    programs.sort_unstable();
    programs.dedup();
    let program = match programs[..] {
        [] | [""] => String::new(),
        [only] => format!(" of `{only}`"),
        _ => format!(" of {} programs", programs.len()),
    };
    let ranks = count(procs.len(), "rank", "ranks");
    let name = match how_job(how) {
        Some(job) => format!("job `{job}`: "),
        None => String::new(),
    };
    format!("{name}{ranks}{program}")
}

/// Returns the source of the rank numbers and the name of the job; `None` if we have numbered the processes.
pub(in crate::target) fn numbering(how: &How) -> Option<(&str, Option<&str>)> {
    let source = match how {
        How::OwnTable { .. } | How::Table { .. } | How::Pmix { .. } => "the launcher",
        How::Environment { variables, .. } => variables,
        How::Name { variables, .. } => (*variables)?,
        How::Nodes { variables, .. } => variables.as_deref()?,
        How::Children { .. } | How::Alone => return None,
    };
    Some((source, how_job(how)))
}

pub(in crate::target) fn how_job(how: &How) -> Option<&str> {
    match how {
        How::OwnTable { job, .. } | How::Table { job, .. } | How::Environment { job, .. } => {
            job.as_deref()
        }
        How::Pmix { job, .. } => Some(job),
        How::Nodes { job, .. } | How::Name { job, .. } => job.as_deref(),
        How::Children { .. } | How::Alone => None,
    }
}
