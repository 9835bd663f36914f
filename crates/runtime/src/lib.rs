//! The execution layer: carries out what the state machines of `dvm` ask for, with the primitives of `os`.
//!
//! A controller has a host, and so has each daemon. A host owns one state machine and its kernel objects: descriptors, pids
//! and files. The daemon's state machine knows what they mean; the controller's decides what happens next. The hosts of one
//! process share a `reactor`. `process` drives them and passes messages between them. Today there is one such process: the
//! front forks it before anything else happens, and it lives as long as the job, or as the machine.
//!
//! **Architecture invariant:** nothing here decides: no policy, no terminal (it only restores that of a front that was
//! killed), no sentence for users except in the log, no environment of its own. What the caller knows of these comes with [`Birth`]. The kernel is reached through `os`. Only names of files and
//! directories (checking, making, listing, removing) are handled by the standard library, and `redb` opens the store of a machine.

pub mod ask;
mod boot;
mod callback;
mod clients;
mod control;
mod controller;
mod daemon;
mod daemons;
mod fronts;
mod guardian;
mod limits;
pub mod link;
mod listener;
pub mod log;
mod machine;
mod machines;
mod missing;
pub mod networks;
mod place;
mod preload;
mod process;
mod program;
mod prompts;
mod ranks;
mod reactor;
mod record;
mod recorder;
pub mod relay;
mod rendezvous;
mod slurm;
mod starters;
mod syslog;
mod tape;
mod tree;
pub mod visit;

use std::{
    os::fd::{AsFd, OwnedFd},
    path::PathBuf,
};

use base::Signal;
use dvm::proto::CannotRun;
use os::Pid;

pub use self::{
    callback::{ControllingTool, NotCalled, StartedBy, call_back},
    guardian::{Failed, guard},
    machine::{Debugger, FoundMachine, MachineLife, MachinePlan, machine_named, machines},
    place::{RecorderParts, Surroundings},
    process::{MemberBirth, guard_member},
    prompts::ASKPASS,
    record::{SharedMemory, controls, sweep_stale, topology},
    recorder::recorder_directories,
    slurm::SlurmPlan,
};

/// Signals that this process ignores. A signal sent to all processes of our name is for the front to handle; only the front
/// may end us.
const IGNORED: [Signal; 11] = [
    Signal::INT,
    Signal::TERM,
    Signal::HUP,
    Signal::QUIT,
    Signal::USR1,
    Signal::USR2,
    Signal::TSTP,
    Signal::TTIN,
    Signal::TTOU,
    Signal::PIPE,
    Signal::ALRM,
];

/// What the front passes to this process when forking it.
#[derive(Debug)]
pub struct Birth {
    pub front_pid: Pid,
    pub host: String,
    /// Name of the executable's build. All processes of a session must have the same one.
    pub build: String,
    /// The socket of the link to the front. `None` once the controller's event loop owns it.
    pub link: Option<OwnedFd>,
    /// Prints a report of a bug of ours that cannot be sent to the front. It must not block on the reader of that output.
    pub report_bug: fn(&str),
    /// `None` if nothing is logged.
    pub log: Option<log::Elsewhere>,
    /// The terminal of the front, which the front uses to ask for passwords. `None` if it has none.
    pub terminal: Option<os::HiddenInput>,
    /// The environment's directories in which the record of this process may be.
    pub surroundings: Surroundings,
    /// Shared memory: ranks' output is read into `output`; `input` holds the input that the front has read.
    pub output: os::SlotWriter,
    pub input: os::SlotReader,
    /// The soft and hard limits of descriptors that ranks get back.
    pub descriptors: (u64, u64),
    /// A tool that controls the launcher. `None` once the controller has it.
    pub tool: Option<ControllingTool>,
    /// How tools find the PMIx server, besides its own name and the front's process number.
    pub doors: Doors,
}

/// Further ways for tools to find the PMIx server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Doors {
    /// Names: that of the launcher, if another launcher has started it as a process of a job.
    pub names: Vec<String>,
    /// Files to write the address to.
    pub files: Vec<PathBuf>,
}

impl Birth {
    /// Sends the front the reason why there will be no controller. The front sees the end of the link in any case.
    fn fail(&self, error: &os::Error) {
        if let Some(link) = &self.link {
            let why = CannotRun::System(error.to_string());
            link::send_failure(link.as_fd(), why);
        }
    }
}
