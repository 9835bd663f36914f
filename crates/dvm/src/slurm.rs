//! Allocations of Slurm that the procs of a job request: the commands, what these print, and the states of an allocation.
//!
//! Each allocation is a job of Slurm of its own, beside the one in which we run. The controller knows which proc has requested it; here is
//! which command is to run next (`state`), what its words are, and what its output means (`text`).

mod state;
#[cfg(test)]
mod tests;
mod text;

use std::time::Duration;

use base::{ExitStatus, HostList};
use bytes::Bytes;
use pmix::value::Status;
use serde::{Deserialize, Serialize};

pub(crate) use self::state::{Held, Input, Output, Refused};
pub use self::text::job_name;

/// The most bytes of a command's output that are kept. `scontrol show` prints a line for each group of equal nodes.
pub const PRINTED_MAX: usize = 1 << 20;
/// The longest wait for `scancel`: the end of the job waits for it.
const CANCEL_MAX: Duration = Duration::from_secs(10);
/// The most characters of the name of an allocation, and of the name that its proc gives it.
const NAME_MAX: usize = 128;
/// The most bytes of Slurm's words in a message.
const WORDS_MAX: usize = 1000;

/// What the controller has to know to pass requests on to Slurm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    /// The job of Slurm in which we run.
    pub job: u32,
    /// Time after which a command that waits for nothing is given up.
    pub patience: Duration,
}

/// Number of a command that the controller has ordered. None is used again.
pub type CommandNumber = u32;

/// News of a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum News {
    /// Bytes that it has printed, to whichever stream.
    Printed(Bytes),
    /// It has ended, and all that it has printed was reported.
    Ended(ExitStatus),
    /// It could not be executed.
    NotRun(String),
}

/// How a command is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Urgency {
    /// SIGTERM: `salloc` withdraws its request.
    Ask,
    /// SIGKILL.
    Kill,
}

/// What a proc wants of a new allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// The job of Slurm in which the proc runs.
    pub(crate) owner: u32,
    /// The name of the job of Slurm, from [`job_name`].
    pub(crate) name: String,
    /// The name that the proc has given the request.
    pub(crate) request: Option<String>,
    pub(crate) nodes: Option<u32>,
    pub(crate) cpus: Option<u32>,
    pub(crate) hosts: Option<HostList>,
    pub(crate) time: Option<Duration>,
    pub(crate) partition: Option<String>,
}

/// Who has requested an allocation. Its comment in Slurm says so, for whoever lists jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The job of Slurm in which the proc ran.
    pub job: u32,
    /// The name that the proc has given the request.
    pub request: Option<String>,
}

/// A running job of Slurm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Described {
    pub(crate) hosts: HostList,
    pub(crate) cpus: u32,
    /// The nodes in that order, with the CPUs of each.
    pub(crate) slots: Vec<(String, u32)>,
    /// `None`: no limit.
    pub(crate) time: Option<Duration>,
}

/// The program that a request was passed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Tool {
    Salloc,
    Scontrol,
    Scancel,
}

impl Tool {
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Salloc => "salloc",
            Self::Scontrol => "scontrol",
            Self::Scancel => "scancel",
        }
    }
}

/// Why Slurm does not do what a proc wants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NotDone {
    /// The program has failed with these words.
    Failed { tool: Tool, words: String },
    /// The program has given no answer in this time.
    Silent { tool: Tool, patience: Duration },
    /// The program could not be run.
    NotRun { tool: Tool, why: String },
    /// The program has succeeded, and printed nothing that we understand.
    Unclear { tool: Tool },
}

impl NotDone {
    pub(crate) const fn tool(&self) -> Tool {
        match self {
            Self::Failed { tool, .. }
            | Self::Silent { tool, .. }
            | Self::NotRun { tool, .. }
            | Self::Unclear { tool } => *tool,
        }
    }

    /// Returns the status that the proc gets.
    pub(crate) fn status(&self) -> Status {
        match self {
            Self::Failed { tool, words } => text::status(*tool, words),
            Self::Silent { .. } => Status::NOT_AVAILABLE,
            Self::NotRun { .. } => Status::NOT_SUPPORTED,
            Self::Unclear { .. } => Status::ERROR,
        }
    }
}
