//! The complete request of a command about jobs of Slurm.

use std::ffi::OsString;

use base::{JobId, RankSet};

use super::{MessageFormat, Notice, machine::OutputRequest};
use crate::values::Tasks;

/// What to do with Slurm, and how to answer.
#[derive(Clone, Debug)]
pub(crate) struct SlurmRequest {
    pub(crate) format: MessageFormat,
    pub(crate) ask: SlurmAsk,
}

#[derive(Clone, Debug)]
pub(crate) enum SlurmAsk {
    Submit(Box<SlurmSubmit>),
    List(SlurmList),
    Show(Vec<JobId>),
    Wait(Vec<JobId>),
    Output(OutputRequest),
    Cancel(Vec<Tasks>),
    Hold(Vec<JobId>),
    Release(Vec<JobId>),
}

#[derive(Clone, Debug)]
pub(crate) struct SlurmSubmit {
    pub(crate) batch: Batch,
    /// Print the command and its script, and submit nothing.
    pub(crate) is_dry: bool,
    /// Print only the number.
    pub(crate) is_parsable: bool,
    pub(crate) notices: Vec<Notice>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlurmList {
    /// Jobs that are over, at most.
    pub(crate) over: u32,
    pub(crate) is_watched: bool,
}

/// A job in Slurm's terms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Batch {
    /// Options of `sbatch`, each in one word.
    pub(crate) options: Vec<OsString>,
    /// The command of the job: our own program with its arguments.
    pub(crate) command: Vec<OsString>,
    /// Indexes of the array; `None` without one.
    pub(crate) array: Option<RankSet>,
    /// The file for the output, with Slurm's patterns.
    pub(crate) output: OsString,
}
