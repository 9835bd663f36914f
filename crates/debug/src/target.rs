//! Finding the processes of a job, whoever has started it, without stopping anybody.
//!
//! A user names a process, a job, or a program. In this order it is asked who the ranks are:
//!
//! | way | what is read | whose jobs |
//! |---|---|---|
//! | [`How::OwnTable`], [`How::Table`] | the table for debuggers (MPIR) in the memory of the launcher | ours, srun, sattach, Open MPI 4 |
//! | [`How::Pmix`] | the launcher's own answer to a PMIx tool | Open MPI 5, PRRTE |
//! | [`How::Environment`] | variables of the processes below the launcher, or of the same job | Hydra, torchrun, GNU parallel, srun; those above, too, once their launcher is gone |
//! | [`How::Children`] | who started whom | shell loops, make, forks |
//! | [`How::Alone`] | nothing | a program that is no job |
//!
//! The launcher is looked for at the process that was named, then below it (a script that starts it), then above it (a rank
//! was named). What was tried and did not do is kept as [`Tried`], what may be wrong as [`Doubt`], and what the user should
//! know as [`Note`]: `--explain` prints them.

mod environment;
mod mpir;
mod names;
mod outcome;
mod parentage;
mod permission;
mod search;
mod wrappers;

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, fmt};

use base::Rank;

pub use self::{
    names::matches,
    outcome::{Doubt, How, NoAnswer, NotFound, Note, Tried},
    permission::{Advice, Situation},
};
use crate::{image::Files, maps::Mapping, memory::Memory};

/// Processes of a job that are kept; further ones are counted in a doubt.
pub const MAX_RANKS: usize = 1 << 20;

/// A process as the kernel lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: i32,
    /// Who started it, or has inherited it.
    pub parent: i32,
    /// The name of its command, at most 15 bytes.
    pub name: String,
    /// When it started, in ticks since boot.
    pub started: u64,
    /// R, S, D, T, t, or Z and X for those that are dead.
    pub state: char,
}

/// A row of a table of processes that a launcher keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Which rank.
    pub rank: u32,
    /// The node's name.
    pub host: String,
    /// The process there.
    pub pid: i32,
    /// The program's path, as the launcher has it.
    pub program: String,
}

/// A job of a launcher that answers PMIx tools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobTable {
    /// Its namespace.
    pub job: String,
    /// Its processes.
    pub rows: Vec<Row>,
}

/// A machine, as it is now or as it was recorded.
pub trait System {
    /// Every process.
    fn processes(&self) -> Vec<Process>;
    /// The environment that a process was started with, `NAME=value` each ended by a zero byte; nothing when it is gone or
    /// may not be looked at.
    fn environment(&self, pid: i32) -> Option<Vec<u8>>;
    /// The arguments of a process, each ended by a zero byte; nothing when it is gone.
    fn arguments(&self, pid: i32) -> Option<Vec<u8>>;
    /// The path of the program that a process executes; nothing when it is gone or may not be looked at.
    fn program(&self, pid: i32) -> Option<String>;
    /// The user of a process; nothing when it is gone.
    fn owner(&self, pid: i32) -> Option<u32>;
    /// What a process has mapped; nothing when it is gone or may not be looked at.
    fn mappings(&self, pid: i32) -> Option<Vec<Mapping>>;
    /// The memory of a process.
    fn memory(&self, pid: i32) -> Box<dyn Memory + '_>;
    /// The files of a process.
    fn files(&self, pid: i32) -> Box<dyn Files + '_>;
    /// Asks a process that may be a PMIx server for its jobs, with a deadline.
    ///
    /// # Errors
    /// Why there is no answer.
    fn ask_launcher(&self, pid: i32) -> Result<Vec<JobTable>, NoAnswer>;
    /// The name of this node.
    fn host(&self) -> String;
    /// The user who asks.
    fn user(&self) -> u32;
    /// The process that asks, which is never part of a job.
    fn own_pid(&self) -> i32;
}

/// What the user has named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// A launcher, something above it, a rank, or a lone process.
    Process(i32),
    /// A job by a name that its ranks have in their environment, or `PID@N` for the end of one.
    Job(String),
    /// All processes of the user with a program or command that this pattern matches.
    Name(String),
}

/// A rank's process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proc {
    /// Its number, on its host.
    pub pid: i32,
    /// When it started, as [`Process::started`]: another process may get its number. Nothing where it is on another node, or
    /// was not there when the processes were listed.
    pub started: Option<u64>,
    /// The node that it is on; nothing for this one.
    pub host: Option<String>,
    /// The path or name of its program; empty where it is not known.
    pub program: String,
}

/// A job that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// What to call it.
    pub title: String,
    /// How its ranks are known.
    pub how: How,
    /// Its ranks, at least one.
    pub procs: BTreeMap<Rank, Proc>,
    /// What was tried before and did not do, in order.
    pub tried: Vec<Tried>,
    /// What may be wrong.
    pub doubts: Vec<Doubt>,
    /// What else there is to know.
    pub notes: Vec<Note>,
}

impl fmt::Display for Target {
    /// All that is known of how it was found, for `--explain`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.title)?;
        writeln!(f, "found by:")?;
        for tried in &self.tried {
            writeln!(f, "  - {tried}")?;
        }
        writeln!(f, "  + {}", self.how)?;
        writeln!(f, "ranks:")?;
        for line in rows(&self.procs) {
            writeln!(f, "  {line}")?;
        }
        for doubt in &self.doubts {
            writeln!(f, "unsure: {doubt}")?;
        }
        for note in &self.notes {
            writeln!(f, "note: {note}")?;
        }
        Ok(())
    }
}

/// Ranks that are listed one by one.
const LISTED: usize = 128;

fn rows(procs: &BTreeMap<Rank, Proc>) -> Vec<String> {
    let mut rows: Vec<String> = procs
        .iter()
        .take(LISTED)
        .map(|(rank, proc)| {
            let host = proc.host.as_ref();
            let place = host.map_or_else(String::new, |host| format!(" on `{host}`"));
            format!("{rank}: process {}{place}, `{}`", proc.pid, proc.program)
        })
        .collect();
    if procs.len() > LISTED {
        rows.push(format!("and {} more", procs.len() - LISTED));
    }
    rows
}

/// Finds what the user has named.
///
/// # Errors
/// Why there is nothing to be found. There is always a target for a process that lives and may be looked at.
pub fn find(system: &dyn System, wish: &Wish) -> Result<Target, NotFound> {
    let search = search::Search::new(system);
    match wish {
        Wish::Process(pid) => search.process(*pid),
        Wish::Job(name) => search.job(name),
        Wish::Name(pattern) => search.name(pattern),
    }
}
