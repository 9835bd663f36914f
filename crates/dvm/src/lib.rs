//! The state machines that run jobs: a controller, a daemon on each node, and the messages between them.
//!
//! **Architecture invariant:** nothing here does I/O, reads a clock or knows how bytes move between nodes. Nor does it
//! know what a debugger is: it knows only that ranks are to be held, and that the process that traced them is gone.
//! Every state machine takes inputs and the time, and returns outputs ([`Daemon`], [`Controller`]); the caller carries
//! the outputs out.

pub mod alloc;
pub mod backlog;
pub mod bootstrap;
mod controller;
mod daemon;
pub mod escalation;
pub mod hold;
pub mod life;
pub mod machine;
pub mod messages;
pub mod place;
pub mod planted;
pub mod preload;
pub mod prompts;
pub mod proto;
pub mod queue;
pub mod recording;
pub mod slurm;
pub mod spec;
pub mod stdio;
pub mod syslog;
pub mod traced;
pub mod trap;
pub mod watchdog;

pub use controller::{
    CaptureStart, Captured, Control, Controller, ControllerInput, ControllerOutput, HOLD_PATIENCE,
    JobWatch, NotWatched,
};
pub use daemon::{
    Caller, Daemon, DaemonConfig, Input, LOSS_GRACE, Output, PMI_DESCRIPTOR, PmiConnection,
    ProcEnd, ServiceConfig, SpawnOrder, StreamPlan, Tools,
};
