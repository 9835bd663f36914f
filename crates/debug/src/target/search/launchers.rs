//! Finds launchers, reads their tables, and asks them as PMIx servers.

use std::collections::BTreeSet;

use base::Rank;

use super::{Found, RankRow, Search, is_dead, proof::ClaimedRow};
use crate::{
    mpir::{Finder, Miss, Reader, Row},
    target::{
        How, NoAnswer, Note, Tried,
        environment::Evidence,
        names::file_name,
        wrappers::{is_pmix, is_remote_launcher, may_answer},
    },
};

/// Maximum number of processes searched for a table: the named one and its descendants.
const MAX_CANDIDATES: usize = 64;

/// The relation of a launcher to the process that the user named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// It is that process or a descendant of it.
    Below,
    /// It is an ancestor.
    Above,
    /// It is neither: it starts ranks through other processes, such as daemons.
    Elsewhere,
}

/// The table of a launcher.
struct Starter {
    rows: Vec<Row>,
    /// The file that contains the symbols.
    file: String,
    /// The launcher's name for the job.
    job: Option<String>,
}

impl Search<'_> {
    /// Reads the table for debuggers of the launcher of a process.
    pub(in crate::target) fn table(&mut self, pid: i32) -> Option<(How, Vec<RankRow>)> {
        let finder = Finder::default();
        let mut found = None;
        let mut searched = 0;
        for (launcher, standing) in self.launchers(pid) {
            if standing != Standing::Below && found.is_some() {
                break;
            }
            let program = file_name(&self.program(launcher)).to_owned();
            match self.starter(&finder, launcher) {
                Ok(table) => {
                    let rows = self.ranks_of(launcher, &table);
                    if standing != Standing::Below && !self.has(&rows, pid) {
                        self.tried.push(Tried::OthersTable { launcher, program });
                    } else if found.is_some() {
                        self.notes.push(Note::OtherLauncher {
                            pid: launcher,
                            program,
                            ranks: rows.len(),
                        });
                    } else {
                        found = Some((how(launcher, program, table), rows));
                    }
                }
                Err(Miss::NoSymbols) => searched += 1,
                Err(Miss::Empty { state }) if standing == Standing::Below => {
                    self.tried.push(Tried::EmptyTable {
                        launcher,
                        program,
                        state,
                    });
                }
                Err(Miss::Broken) => self.tried.push(Tried::BrokenTable { launcher, program }),
                Err(Miss::Unreadable) if standing == Standing::Below => {
                    let pid = launcher;
                    self.tried.push(Tried::Unreadable { pid, program });
                }
                Err(Miss::Unreadable | Miss::Empty { .. }) => {}
            }
        }
        match &found {
            // Launchers fork helpers, each with a copy of the table that stays empty: do not report these.
            Some((How::OwnTable { launcher, .. } | How::Table { launcher, .. }, _)) => {
                let launcher = *launcher;
                let program = self.program(launcher);
                let mut tried = std::mem::take(&mut self.tried);
                tried.retain(|tried| {
                    let Tried::EmptyTable {
                        launcher: helper, ..
                    } = tried
                    else {
                        return true;
                    };
                    let is_helper_of = |launcher: i32| {
                        self.is_above(launcher, *helper) && self.program(*helper) == program
                    };
                    let others = self.notes.iter().filter_map(|note| match note {
                        Note::OtherLauncher { pid, .. } => Some(*pid),
                        _ => None,
                    });
                    !others.chain([launcher]).any(is_helper_of)
                });
                self.tried = tried;
            }
            None if searched > 0 => self.tried.push(Tried::NoTable { searched }),
            _ => {}
        }
        found
    }

    /// Reads the table of a process.
    fn starter(&self, finder: &Finder, pid: i32) -> Result<Starter, Miss> {
        let mappings = self.system.mappings(pid).ok_or(Miss::Unreadable)?;
        let located = finder.locate(&mappings, &*self.system.files(pid));
        let located = located.ok_or(Miss::NoSymbols)?;
        let memory = self.system.memory(pid);
        let reader = Reader::new(&*memory, &located);
        Ok(Starter {
            rows: reader.table()?.rows,
            file: located.file().to_owned(),
            job: reader.job(),
        })
    }

    fn ranks_of(&self, launcher: i32, table: &Starter) -> Vec<RankRow> {
        let claimed = (0..).zip(&table.rows).map(|(rank, row)| ClaimedRow {
            rank: Rank(rank),
            host: row.host.clone(),
            pid: row.pid,
            program: row.program.clone(),
        });
        let witness = self.witness(launcher, table.job.as_deref());
        self.identified(&witness, claimed)
    }

    /// Returns the answer of a launcher that is a PMIx server.
    pub(in crate::target) fn answer(&mut self, pid: i32) -> Option<(How, Vec<RankRow>)> {
        for (launcher, standing) in self.launchers(pid) {
            let program = file_name(&self.program(launcher)).to_owned();
            let has_library = || {
                let mappings = self.system.mappings(launcher).unwrap_or_default();
                mappings.iter().any(|it| is_pmix(file_name(&it.path)))
            };
            if standing == Standing::Elsewhere
                || !may_answer(&program, self.command(launcher), has_library)
            {
                continue;
            }
            let tables = match self.system.ask_launcher(launcher) {
                Ok(tables) => tables,
                Err(why) => {
                    self.tried.push(Tried::NoAnswer {
                        launcher,
                        program,
                        why,
                    });
                    continue;
                }
            };
            let mut jobs = tables
                .into_iter()
                .map(|table| {
                    let claimed = table.rows.into_iter().map(|row| ClaimedRow {
                        rank: Rank(row.rank),
                        host: row.host,
                        pid: row.pid,
                        program: row.program,
                    });
                    let witness = self.witness(launcher, Some(&table.job));
                    let rows = self.identified(&witness, claimed);
                    (table.job, rows)
                })
                // Skip jobs without a process: each tool is a job of the server too, also this one and those that have exited.
                .filter(|(_, rows)| rows.iter().any(is_there))
                .collect::<Vec<_>>();
            // Prefer the job of the process, if it belongs to one.
            let chosen = jobs
                .iter()
                .position(|(_, rows)| self.has(rows, pid))
                .or_else(|| (standing == Standing::Below && !jobs.is_empty()).then_some(0));
            let Some(chosen) = chosen else {
                self.tried.push(Tried::NoAnswer {
                    launcher,
                    program,
                    why: NoAnswer::OtherJobs,
                });
                continue;
            };
            let (job, rows) = jobs.remove(chosen);
            self.notes
                .extend(jobs.into_iter().map(|(job, rows)| Note::OtherJob {
                    job,
                    ranks: rows.len(),
                }));
            let how = How::Pmix {
                launcher,
                program,
                job,
            };
            return Some((how, rows));
        }
        None
    }

    /// Returns true if a process is one of the ranks, or an ancestor or descendant of one.
    fn has(&self, rows: &[RankRow], pid: i32) -> bool {
        let mut here = rows.iter().filter_map(RankRow::here);
        here.any(|rank| self.belongs(rank, pid))
    }

    /// Returns true if a process is a rank's process, or an ancestor of it, or a descendant. Descendants of a wrapper do not
    /// count: if the rank is a shell, they may have been started by hand.
    pub(in crate::target) fn belongs(&self, rank: i32, pid: i32) -> bool {
        let process = self.unwrap(rank);
        process == pid
            || self.is_above(pid, process)
            || (self.is_above(process, pid) && !self.is_wrapper(process))
    }

    /// Returns the processes that may be launchers: the named one and its descendants, its ancestors, and then processes that
    /// start ranks without being their ancestors.
    fn launchers(&self, pid: i32) -> Vec<(i32, Standing)> {
        let mut found = vec![(pid, Standing::Below)];
        let own = self.evidence(pid);
        let mut next = 0;
        while next < found.len() && found.len() < MAX_CANDIDATES {
            let at = found[next].0;
            next += 1;
            // Ranks are not launchers, and there may be many.
            found.extend(
                self.children(at)
                    .into_iter()
                    .filter(|&child| !self.has_more_evidence(child, own.as_deref()))
                    .map(|child| (child, Standing::Below)),
            );
            found.truncate(MAX_CANDIDATES);
        }
        let known: BTreeSet<i32> = found.iter().map(|(pid, _)| *pid).collect();
        let mut at = pid;
        while let Some(parent) = self.parent(at) {
            found.push((parent, Standing::Above));
            at = parent;
        }
        if own.is_some_and(|own| !own.is_empty()) {
            found.extend(
                self.processes
                    .values()
                    .filter(|process| is_remote_launcher(&process.name) && !is_dead(process))
                    .filter(|process| {
                        !known.contains(&process.pid) && !self.is_above(process.pid, pid)
                    })
                    .map(|process| (process.pid, Standing::Elsewhere)),
            );
        }
        found
    }

    /// Returns true if a process has evidence of a rank that `other` lacks.
    fn has_more_evidence(&self, pid: i32, other: Option<&[Evidence]>) -> bool {
        let evidence = self.evidence(pid).unwrap_or_default();
        evidence
            .iter()
            .any(|it| !other.is_some_and(|other| other.contains(it)))
    }
}

fn how(launcher: i32, program: String, table: Starter) -> How {
    let job = table.job;
    // Only `rally` names its jobs like this, whatever name it was called by.
    if job.as_deref().is_some_and(|job| job.starts_with("rally-")) {
        return How::OwnTable { launcher, job };
    }
    How::Table {
        launcher,
        program,
        file: table.file,
        job,
    }
}

const fn is_there(row: &RankRow) -> bool {
    matches!(row.found, Found::Here { .. } | Found::On { .. })
}
