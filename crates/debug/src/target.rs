//! Finds the ranks of a job by reading the processes of this node, whichever launcher started it. No process is stopped.
//!
//! The user names a process, a job or a program. The ways to identify the ranks are tried in this order:
//!
//! | way | source | launchers |
//! |---|---|---|
//! | [`How::OwnTable`], [`How::Table`] | MPIR proc table in the launcher's memory | `rally`, srun, sattach, Open MPI 4 |
//! | [`How::Pmix`] | the launcher's answer to a PMIx query | Open MPI 5, PRRTE |
//! | [`How::Environment`] | environment variables of descendants, or of all processes | Hydra, torchrun, GNU parallel, srun |
//! | [`How::Children`] | parent and child processes | shell loops, make, forks |
//! | [`How::Alone`] | none | a process that is not part of a job |
//!
//! [`How::Environment`] also finds the ranks of the launchers in the rows above it, after the launcher has exited.
//!
//! The launcher may be the named process itself, a descendant (a script was named that starts it) or an ancestor (a rank was
//! named); they are tried in this order. A launcher's pid for a rank is accepted only if the process with that pid can be shown
//! to belong to the job (`search/proof.rs`): the pid may be one of a container's pid namespace, or of a process that has exited.
//! Attempts that failed are kept as [`Tried`], possible errors as [`Doubt`], and further information as [`Note`]: `--explain`
//! prints them.

mod environment;
mod later;
mod names;
mod nodes;
mod outcome;
mod permission;
mod search;
mod wrappers;

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, fmt};

use base::Rank;
use serde::{Deserialize, Serialize};

pub use self::{
    environment::rank_in,
    later::later,
    names::{is_here, matches},
    nodes::{Claims, FoundProc, OnNode, identify, on_node, over_nodes},
    outcome::{Doubt, How, NoAnswer, NotFound, Note, Tried},
    permission::{Advice, Situation},
};
use crate::{image::Files, maps::Mapping, memory::Memory};

/// Maximum number of processes in a job; a [`Doubt`] counts those left out.
pub const MAX_RANKS: usize = 1 << 20;

/// A process as the kernel lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// The pid in our pid namespace.
    pub pid: i32,
    /// The pid of the parent: the process that started it, or one that adopted it.
    pub parent: i32,
    /// The command name (`comm`), at most 15 bytes.
    pub name: String,
    /// The start time, in ticks since boot.
    pub started: u64,
    /// The state letter of `/proc`: R, S, D, T or t; Z or X for a dead process.
    pub state: char,
    /// True for a kernel thread.
    pub is_kernel: bool,
}

/// How the pid namespace of some process numbers the processes of this node.
pub enum Numbering<'a> {
    /// It is our pid namespace.
    Ours,
    /// It is another pid namespace. The function maps one of our pids to the pid there; `None` if the process has no pid there.
    Other(Box<dyn Fn(i32) -> Option<i32> + 'a>),
}

/// A row of a launcher's proc table, as a PMIx server returns it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The rank in its job.
    pub rank: u32,
    /// The name of the rank's node.
    pub host: String,
    /// The pid on that node.
    pub pid: i32,
    /// The path of the program, as the launcher recorded it.
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

/// A job of a launcher that answers PMIx queries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobTable {
    /// The PMIx namespace.
    pub job: String,
    /// The proc table, one row for each rank.
    pub rows: Vec<Row>,
}

/// The processes of one node: the live system, or a recording.
pub trait System {
    /// Returns all processes.
    fn processes(&self) -> Vec<Process>;
    /// Returns the initial environment of a process: `NAME=value` strings, each ended by a zero byte. `None` if the process is
    /// gone or we have no permission.
    fn environment(&self, pid: i32) -> Option<Vec<u8>>;
    /// Returns the arguments of a process, each ended by a zero byte; `None` if it is gone.
    fn arguments(&self, pid: i32) -> Option<Vec<u8>>;
    /// Returns the path of the program that a process executes; `None` if it is gone or we have no permission.
    fn program(&self, pid: i32) -> Option<String>;
    /// Returns how the pid namespace of a process, possibly a container's, numbers processes; `None` if that cannot be
    /// determined.
    fn numbering(&self, pid: i32) -> Option<Numbering<'_>>;
    /// Returns the user id of a process; `None` if it is gone.
    fn owner(&self, pid: i32) -> Option<u32>;
    /// Returns the memory mappings of a process; `None` if it is gone or we have no permission.
    fn mappings(&self, pid: i32) -> Option<Vec<Mapping>>;
    /// Returns a reader for the memory of a process.
    fn memory(&self, pid: i32) -> Box<dyn Memory + '_>;
    /// Returns access to the files that a process has mapped.
    fn files(&self, pid: i32) -> Box<dyn Files + '_>;
    /// Asks a process that may be a PMIx server for its jobs, with a deadline.
    ///
    /// # Errors
    /// The reason why there is no answer.
    fn ask_launcher(&self, pid: i32) -> Result<Vec<JobTable>, NoAnswer>;
    /// Returns the name of this node.
    fn host(&self) -> String;
    /// Returns the user id that `dbgr` runs as.
    fn user(&self) -> u32;
    /// Returns the pid of `dbgr` itself, which is never part of a job.
    fn own_pid(&self) -> i32;
}

/// What the user asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Wish {
    /// A pid: of a launcher, an ancestor of one, a rank, or a single process.
    Process(i32),
    /// A job, by the name that its ranks have in their environment; or `PID@N`, the end of such a name.
    Job(String),
    /// A pattern: all processes of the user whose program or command name matches it.
    Name(String),
}

/// The process of a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proc {
    /// The pid: in our pid namespace for a process on this node, otherwise as the launcher recorded it. 0 for a process that was
    /// not found.
    pub pid: i32,
    /// Whether the process is on this node and was identified.
    pub place: Whereabouts,
    /// The path or name of the program; empty if unknown.
    pub program: String,
}

/// The location of a rank's process. Only processes in [`Whereabouts::Here`] and [`Whereabouts::There`] may be sampled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whereabouts {
    /// On this node, and shown to belong to the job.
    Here {
        /// The start time, as [`Process::started`]; it detects reuse of the pid.
        started: u64,
    },
    /// No process had this pid when the processes were listed.
    Gone {
        /// The name of its node, if it is another one.
        host: Option<String>,
    },
    /// Nothing shows that the process with this pid belongs to the job, or the pid cannot be translated to our pid namespace.
    Unproved,
    /// No node that was searched has a process of this rank, but the job is known to have the rank.
    NotFound,
    /// On another node, with this name. Nothing there has identified the process.
    On(String),
    /// On another node, whose agent has shown that the process belongs to the job.
    There {
        /// The name of the node.
        host: String,
        /// The start time on that node.
        started: u64,
    },
}

impl Proc {
    /// A rank without a process.
    pub(crate) const NOT_FOUND: Self = Self {
        pid: 0,
        place: Whereabouts::NotFound,
        program: String::new(),
    };

    /// Returns the start time of a process on this node; `None` for all others.
    #[must_use]
    pub const fn started(&self) -> Option<u64> {
        match self.place {
            Whereabouts::Here { started } => Some(started),
            Whereabouts::Gone { .. }
            | Whereabouts::Unproved
            | Whereabouts::NotFound
            | Whereabouts::On(_)
            | Whereabouts::There { .. } => None,
        }
    }

    /// Returns the node's name if the process is on another node.
    #[must_use]
    pub const fn host(&self) -> Option<&String> {
        match &self.place {
            Whereabouts::On(host) | Whereabouts::There { host, .. } => Some(host),
            Whereabouts::Here { .. }
            | Whereabouts::Gone { .. }
            | Whereabouts::Unproved
            | Whereabouts::NotFound => None,
        }
    }
}

/// A job that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// A title for the user: job, number of ranks, program.
    pub title: String,
    /// How the ranks were identified.
    pub how: How,
    /// The ranks, at least one.
    pub procs: BTreeMap<Rank, Proc>,
    /// The attempts that failed before, in order.
    pub tried: Vec<Tried>,
    /// Possible errors in the result.
    pub doubts: Vec<Doubt>,
    /// Further information for the user.
    pub notes: Vec<Note>,
}

impl fmt::Display for Target {
    /// Writes everything known about how the job was found, for `--explain`.
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

/// Maximum number of ranks that are listed individually.
const LISTED: usize = 128;

fn rows(procs: &BTreeMap<Rank, Proc>) -> Vec<String> {
    let mut rows: Vec<String> = procs
        .iter()
        .take(LISTED)
        .map(|(rank, proc)| {
            let place = match &proc.place {
                Whereabouts::NotFound => return format!("{rank}: no process was found"),
                Whereabouts::On(host)
                | Whereabouts::There { host, .. }
                | Whereabouts::Gone { host: Some(host) } => format!(" on `{host}`"),
                Whereabouts::Unproved => " of the launcher's numbers".to_owned(),
                Whereabouts::Here { .. } | Whereabouts::Gone { .. } => String::new(),
            };
            format!("{rank}: process {}{place}, `{}`", proc.pid, proc.program)
        })
        .collect();
    if procs.len() > LISTED {
        rows.push(format!("and {} more", procs.len() - LISTED));
    }
    rows
}

/// Returns true if a command with this name starts ranks, or is an ancestor of a process that does.
pub(crate) fn is_launcher(name: &str) -> bool {
    wrappers::is_launcher(name)
}

/// Finds the job that the user asked for.
///
/// # Errors
/// The reason why nothing was found. [`Wish::Process`] always finds a target for a live process that we may read and
/// that is not a kernel thread.
pub fn find(system: &dyn System, wish: &Wish) -> Result<Target, NotFound> {
    let search = search::Search::new(system);
    match wish {
        Wish::Process(pid) => search.process(*pid),
        Wish::Job(name) => search.job(name),
        Wish::Name(pattern) => search.name(pattern),
    }
}
