//! The execution layer: carries out what the state machines of `dvm` ask for, by the primitives of `os`.
//!
//! There is a host for a controller and one for a daemon: each has a state machine, and what that has of the kernel.
//! It knows descriptors, pids and files; what they mean is the daemon's business, and what happens next is the
//! controller's. The hosts of one process share a reactor and are driven by `process`, which also carries the messages
//! between them. Today that is the process which is forked from the front before anything else happens, and lives as
//! long as the job.
//!
//! **Architecture invariant:** nothing here decides: no policy, no terminal, no sentence for users, no environment of
//! its own. What the caller knows of these comes with [`Birth`]. The kernel is reached through `os`; only what is done with the
//! names of files and directories (whether they are there, to make, list and remove them) is done by the standard library.

pub mod ask;
mod clients;
mod complaints;
mod control;
mod controller;
mod daemon;
mod fronts;
mod guardian;
pub mod link;
mod place;
mod process;
mod ranks;
mod reactor;
mod record;

use std::os::fd::{AsFd, OwnedFd};

use base::Signal;
use os::Pid;

pub use self::{
    guardian::{Failed, guard},
    place::Surroundings,
    record::{SharedMemory, controls, sweep_stale, topology},
};

/// Only the front may end us: a signal that somebody sends to everything of that name is the front's to handle.
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

/// What the process is told at its birth.
#[derive(Debug)]
pub struct Birth {
    pub front_pid: Pid,
    pub host: String,
    /// Gone when the loop of the controller has it.
    pub link: Option<OwnedFd>,
    /// Says what our own code rules out and the front cannot be told. It must not wait for whoever reads it.
    pub admit: fn(&str),
    /// Where the record of this process may be.
    pub surroundings: Surroundings,
    /// Shared memory that ranks' output is read into, and that the front has read input into.
    pub output: os::SlotWriter,
    pub input: os::SlotReader,
    /// The soft limit of descriptors that ranks get back.
    pub descriptors: (u64, u64),
}

impl Birth {
    /// Tells the front why there will be no controller. It sees the end of the link in any case.
    fn fail(&self, error: &os::Error) {
        if let Some(link) = &self.link {
            link::send_failure(link.as_fd(), &error.to_string());
        }
    }
}
