//! The MPIR process acquisition interface: the symbols that a debugger reads in the process that started a job.
//!
//! A debugger that knows nothing about us finds these symbols by name in our executable. It writes 1 to
//! `MPIR_being_debugged`, puts a breakpoint on `MPIR_Breakpoint`, and when that is hit with `MPIR_debug_state` 1 it
//! reads the table of processes from `MPIR_proctable`. Names, types and values are those of "The MPIR Process
//! Acquisition Interface", version 1.1.
//!
//! **Architecture invariant:** the symbols and nothing else. Who fills them and when is the front's business; there
//! are no processes, no job and no I/O here.
//!
//! The linker drops symbols that nothing refers to and hides the others, so a binary that wants them exported must be
//! linked with one `--export-dynamic-symbol` for each line of `symbols.txt`.
//!
//! # In gdb
//!
//! `symbols.s` describes the symbols in C's words, so that after `set language c` gdb takes them by name and type:
//! `set var MPIR_being_debugged = 1`, `ptype MPIR_PROCDESC`. At `MPIR_Breakpoint` the language is C by itself. Of a stripped
//! executable only the names are left, and gdb wants casts: `*(int*)&MPIR_proctable_size`.
//!
//! # Symbols that are absent on purpose
//!
//! Some symbols are read by their presence only, and presence is a promise for every job that this executable
//! starts:
//!
//! - `MPIR_acquired_pre_main` promises that all processes are stopped before `main`. Jobs are held at their first
//!   instruction when the debugger has started us, but not when it attaches to a job that runs; and the interface
//!   tells the debugger nothing about the moment. A debugger that believed the promise would wait for a start that
//!   is over. Without the symbol a debugger looks where each process is, which is always right.
//! - `MPIR_force_to_main` and `MPIR_ignore_queues` are statements about the program, which may be MPI or not.
//! - `MPIR_executable_path`, `MPIR_server_arguments` and `MPIR_attach_fifo` promise to start the debugger's daemons
//!   or to fill the table late. The table is always filled early, and the daemons come with their own issue.
//! - `MPIR_debug_gate` belongs into MPI processes.

#[expect(
    unsafe_code,
    reason = "a symbol that another process writes is a mutable static, read and written as volatile"
)]
mod exported;

pub use exported::{being_debugged, breakpoint, name_job, publish, set_state};

/// One row of the table; the row's index is the rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The host name of the node, as a debugger would use it to reach the node.
    pub host: String,
    /// The path of the executable on that node.
    pub executable: String,
    /// The process id on that node.
    pub pid: i32,
}

/// What `MPIR_debug_state` says at the next [`breakpoint`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State<'a> {
    /// There is nothing to see.
    Null,
    /// All processes exist, and the table lists them.
    Spawned,
    /// The job is being ended before its processes have ended by themselves.
    Aborting {
        /// What `MPIR_debug_abort_string` says: a line for the user.
        reason: &'a str,
    },
}

/// A text that C cannot hold: it contains a NUL character.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContainsNul;

impl std::fmt::Display for ContainsNul {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the text contains a NUL character")
    }
}

impl std::error::Error for ContainsNul {}

/// The names of all symbols: what a binary must export, and what a test looks for.
pub fn symbols() -> impl Iterator<Item = &'static str> {
    include_str!("../symbols.txt").lines()
}
