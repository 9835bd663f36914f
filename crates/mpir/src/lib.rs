//! The MPIR process acquisition interface: the symbols that a debugger reads in the process that started a job.
//!
//! A debugger finds these symbols by name in our executable; it need not know anything else about us. It writes 1 to
//! `MPIR_being_debugged` and sets a breakpoint on `MPIR_Breakpoint`. When the breakpoint is hit with `MPIR_debug_state` 1,
//! it reads the table of processes from `MPIR_proctable`. Names, types and values are those of "The MPIR Process
//! Acquisition Interface", version 1.1.
//!
//! **Architecture invariant:** only the symbols: no processes, no job, no I/O. The front decides when they change, and to
//! what.
//!
//! The linker drops symbols without references and hides the others. A binary that exports them must therefore be linked
//! with one `--export-dynamic-symbol` for each line of `symbols.txt`.
//!
//! # In gdb
//!
//! `symbols.s` contains debug information that describes the symbols as C variables. So after `set language c`, gdb knows
//! their names and types: `set var MPIR_being_debugged = 1`, `ptype MPIR_PROCDESC`. In `MPIR_Breakpoint`, gdb selects C by
//! itself. A stripped executable has only the names, and gdb needs casts: `*(int*)&MPIR_proctable_size`.
//!
//! # Symbols that are absent on purpose
//!
//! For some symbols, mere presence is a promise to the debugger, for every job that this executable starts:
//!
//! - `MPIR_acquired_pre_main` promises that all processes are stopped before `main`. Jobs are held at their first
//!   instruction if the debugger has started us, but not if it attaches to a running job; the interface does not let us say
//!   which. A debugger that relied on the promise would wait for a start that is over. Without the symbol a debugger checks
//!   where each process is, which is always right.
//! - `MPIR_force_to_main` and `MPIR_ignore_queues` are statements about the program, which may use MPI or not.
//! - `MPIR_attach_fifo` promises to fill the table late. It is always filled early.
//! - `MPIR_debug_gate` belongs in MPI processes.

#[expect(
    unsafe_code,
    reason = "a symbol that another process writes is a mutable static, read and written as volatile"
)]
mod exported;

mod server;

pub use exported::{being_debugged, breakpoint, name_job, publish, server, set_state};
pub use server::Server;

/// Size of `MPIR_executable_path`: that of the interface.
pub const PATH_SIZE: usize = 256;
/// Size of `MPIR_server_arguments`. The interface says 1,024 bytes, and debuggers need twice as much.
pub const ARGUMENTS_SIZE: usize = 4096;

/// One row of the table. The row's index is the rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Host name of the node, by which a debugger can reach it.
    pub host: String,
    /// Path of the executable on that node.
    pub executable: String,
    /// Process id on that node.
    pub pid: i32,
}

/// The value of `MPIR_debug_state` at the next [`breakpoint`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State<'a> {
    /// There is nothing to report.
    Null,
    /// All processes exist, and the table lists them.
    Spawned,
    /// The job is being ended before its processes have exited by themselves.
    Aborting {
        /// The text of `MPIR_debug_abort_string`: a line for the user.
        reason: &'a str,
    },
}

/// Error: a text cannot be a C string because it contains a NUL character.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContainsNul;

impl std::fmt::Display for ContainsNul {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the text contains a NUL character")
    }
}

impl std::error::Error for ContainsNul {}

/// Returns the names of all symbols: what a binary must export, and what a test checks.
pub fn symbols() -> impl Iterator<Item = &'static str> {
    include_str!("../symbols.txt").lines()
}
