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
//! was named). What a launcher says is believed of a process only where the process itself shows that it belongs to the job
//! (`search/proof.rs`): the numbers may be those of a container, or of processes that have ended. What was tried and did not do is kept as [`Tried`], what may be wrong as [`Doubt`], and what the user should
//! know as [`Note`]: `--explain` prints them.

mod environment;
mod mpir;
mod names;
mod outcome;
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
    /// It is a thread of the kernel.
    pub is_kernel: bool,
}

/// How processes are numbered somewhere.
pub enum Numbering<'a> {
    /// As we number them.
    Ours,
    /// In a pid namespace of its own: gives for a process of this node its number there; nothing where it has none.
    Other(Box<dyn Fn(i32) -> Option<i32> + 'a>),
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

impl fmt::Debug for Numbering<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ours => "Ours",
            Self::Other(_) => "Other",
        })
    }
}

/// A job of a launcher that answers PMIx tools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobTable {
    /// Its namespace.
    pub job: String,
    /// Its processes.
    pub rows: Vec<Row>,
}

/// A node, as it is now or as it was recorded.
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
    /// How processes are numbered where a process is, which may be a container; nothing where that is not to be known.
    fn numbering(&self, pid: i32) -> Option<Numbering<'_>>;
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
    /// Its number: on this node as we number processes, elsewhere as the launcher says.
    pub pid: i32,
    /// Where it is.
    pub place: Whereabouts,
    /// The path or name of its program; empty where it is not known.
    pub program: String,
}

/// Where a rank's process is. Only one that is [`Whereabouts::Here`] may be touched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whereabouts {
    /// On this node.
    Here {
        /// When it started, as [`Process::started`]: another process may get its number.
        started: u64,
    },
    /// It was not there when the processes were listed.
    Gone,
    /// A process of its number is there, and nothing shows that it belongs to the job.
    Unproved,
    /// On this other node.
    On(String),
}

impl Proc {
    /// When it started, where it is on this node.
    #[must_use]
    pub const fn started(&self) -> Option<u64> {
        match self.place {
            Whereabouts::Here { started } => Some(started),
            Whereabouts::Gone | Whereabouts::Unproved | Whereabouts::On(_) => None,
        }
    }

    /// The name of its node, where it is another one.
    #[must_use]
    pub const fn host(&self) -> Option<&String> {
        match &self.place {
            Whereabouts::On(host) => Some(host),
            Whereabouts::Here { .. } | Whereabouts::Gone | Whereabouts::Unproved => None,
        }
    }
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
            let place = match &proc.place {
                Whereabouts::On(host) => format!(" on `{host}`"),
                Whereabouts::Unproved => " of the launcher's numbers".to_owned(),
                Whereabouts::Here { .. } | Whereabouts::Gone => String::new(),
            };
            format!("{rank}: process {}{place}, `{}`", proc.pid, proc.program)
        })
        .collect();
    if procs.len() > LISTED {
        rows.push(format!("and {} more", procs.len() - LISTED));
    }
    rows
}

/// Whether a command of this name starts the ranks of jobs, or stands above what does.
pub(crate) fn is_launcher(name: &str) -> bool {
    wrappers::is_launcher(name)
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
