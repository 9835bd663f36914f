//! What a check asks of its host, and what the host answers.

use std::time::Duration;

use base::ExitStatus;

use super::{
    facts::{RankFacts, Said, SymbolFacts},
    statement::Finding,
};

/// An order to the host. Those with a limit have an answer, and those that say so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Start the launcher under control: it is stopped whenever a program begins ([`Answer::Program`]). Answered.
    StartControlled {
        /// The longest wait.
        limit: Duration,
    },
    /// Start the launcher without control.
    Start,
    /// Set `MPIR_being_debugged` to 1, and put the breakpoint on `MPIR_Breakpoint`.
    Arm,
    /// Put the program and the arguments of a daemon into `MPIR_executable_path` and `MPIR_server_arguments`.
    Request,
    /// Let the starter run until a daemon is on this node, it is at the breakpoint, or it ends. Answered by [`Answer::Daemons`] in
    /// the first case and when the time is over.
    Daemons {
        /// The longest time.
        limit: Duration,
    },
    /// Let the starter run until it is at the breakpoint, executes a program, or ends. Answered.
    Run {
        /// The longest time.
        limit: Duration,
    },
    /// Look at the processes of the rows, and once more after a time. Nothing is continued. Answered.
    Look {
        /// The time between the looks.
        between: Duration,
    },
    /// Attach to the process of a row. Answered by [`Answer::Done`].
    Keep {
        /// The row.
        row: usize,
    },
    /// Let the starter run until no rank but those that are kept is stopped, or it is at the breakpoint, or ends. Answered by the
    /// ranks in the first case and when the time is over.
    Release {
        /// The longest time.
        limit: Duration,
    },
    /// Detach from the process that is kept, and let it run.
    LetGo,
    /// Kill the process of a row.
    Kill {
        /// The row.
        row: usize,
    },
    /// Set `MPIR_being_debugged` to 0, remove the breakpoint and detach from the starter. Answered by [`Answer::Done`].
    Leave,
    /// Wait for the end of a starter that is not traced. Answered.
    Await {
        /// The longest wait.
        limit: Duration,
    },
    /// Wait until the table of a starter that is not traced has rows. Answered by [`Answer::Read`], also when the time is over.
    Read {
        /// The longest wait.
        limit: Duration,
        /// The longest wait for the table of a starter with an attach FIFO, which may fill it on request only.
        with_fifo: Duration,
    },
    /// Attach to the running starter. Answered by [`Answer::Done`].
    Seize,
    /// Write a byte into the attach FIFO while the starter runs, and run on until it is at the breakpoint. Answered.
    Signal {
        /// The longest wait.
        limit: Duration,
    },
    /// Let go and end everything that is left of this start of the launcher. Answered by [`Answer::Finished`].
    Finish,
}

/// An answer of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The launcher executes a program, and is stopped before `main`, with its libraries loaded. `None`: it has no symbols.
    Program(Option<SymbolFacts>),
    /// The starter has called `MPIR_Breakpoint`, and is stopped.
    Breakpoint(Said),
    /// The processes of the rows, at two moments. They may be the same.
    Ranks {
        /// At first.
        first: Vec<RankFacts>,
        /// At last.
        last: Vec<RankFacts>,
    },
    /// The daemons on this node.
    Daemons {
        /// The arguments of each.
        found: Vec<Vec<String>>,
        /// The arguments that were requested.
        wanted: Vec<String>,
        /// The processes of the rows.
        ranks: Vec<RankFacts>,
    },
    /// What a running starter has; `None` if it has no symbols.
    Read(Option<(SymbolFacts, Said)>),
    /// The order is carried out.
    Done,
    /// The order could not be carried out, and why.
    Failed(String),
    /// The launcher has ended.
    Ended(ExitStatus),
    /// The time is over.
    Late,
    /// Nothing is left of this start.
    Finished,
}

/// What the host has to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Carry this out.
    Order(Order),
    /// Show this judgement.
    Finding(Finding),
}
