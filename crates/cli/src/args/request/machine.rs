//! The complete request of a command about a machine.

use std::ffi::OsString;

use base::{HostList, JobId, Signal};
use dvm::{
    machine::{Additions, Declared, Down, Submission},
    queue::Limits,
};

use super::{MessageFormat, RunRequest};
use crate::values::Tasks;

/// Which machine, and how to answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Which {
    /// `None`: the only one.
    pub(crate) machine: Option<String>,
    pub(crate) format: MessageFormat,
}

/// How often a listing is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watching {
    Once,
    /// Again whenever it changes, until the machine ends.
    GoesOn,
}

/// What to do with a machine.
#[derive(Clone, Debug)]
pub(crate) enum MachineRequest {
    Up(Box<UpRequest>),
    Submit(Box<SubmitRequest>),
    Down(Which, Down),
    Status(Which, Watching),
    Top(Which),
    Queue(Which, QueueRequest),
    Explain(Which, JobId),
    Hold(Which, Vec<JobId>),
    Cancel(Which, Vec<Tasks>),
    Signal(Which, Vec<Tasks>, Signal),
    Usage(Which, Tasks),
    Priority(Which, Vec<JobId>, i32),
    Wait(Which, Vec<JobId>),
    Output(Which, OutputRequest),
    Nodes(Which, NodesRequest),
    /// On this port; `None`: on one that the kernel chooses.
    Page(Which, Option<u16>),
}

/// How PMIx tools find the server of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerOf {
    /// By its pid, its namespace, or as the only one.
    User,
    /// As the server of the system, too.
    System,
}

#[derive(Clone, Debug)]
pub(crate) struct UpRequest {
    pub(crate) name: String,
    pub(crate) is_default: bool,
    pub(crate) declared: Declared,
    pub(crate) limits: Limits,
    pub(crate) server: ServerOf,
    /// The nodes, and how they are reached. Its job is not run.
    pub(crate) run: RunRequest,
}

#[derive(Clone, Debug)]
pub(crate) struct SubmitRequest {
    pub(crate) which: Which,
    pub(crate) submission: Submission,
    /// The jobs of a file; `None` for the one job of the submission.
    pub(crate) from: Option<JobFile>,
    /// Print only the number.
    pub(crate) is_parsable: bool,
    pub(crate) run: RunRequest,
}

/// A file of programs, each of which becomes a job.
#[derive(Clone, Debug)]
pub(crate) struct JobFile {
    /// Programs with their arguments; at least one.
    pub(crate) programs: Vec<Vec<OsString>>,
    pub(crate) naming: Naming,
}

/// What names the jobs of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Naming {
    /// Each has the name of the submission, which the user gave.
    OfSubmission,
    /// Each has the name of its program.
    OfProgram,
}

#[derive(Clone, Debug)]
pub(crate) struct QueueRequest {
    pub(crate) jobs: Vec<JobId>,
    pub(crate) over: u32,
    pub(crate) watching: Watching,
    /// Jobs that `rally` has submitted to Slurm are not listed.
    pub(crate) is_machine_only: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct OutputRequest {
    pub(crate) tasks: Tasks,
    pub(crate) errors: bool,
    pub(crate) follow: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct NodesRequest {
    pub(crate) drain: Option<HostList>,
    pub(crate) resume: Option<HostList>,
    pub(crate) add: Option<Additions>,
    pub(crate) drop: Option<(HostList, Down)>,
    pub(crate) watching: Watching,
}

/// The name that stands for no machine.
pub(crate) const NONE: &str = "none";
