//! What options and settings choose among.

use std::time::Duration;

use clap::ValueEnum;

/// Yes or no.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    #[value(alias = "true", alias = "1", alias = "on")]
    Yes,
    #[value(alias = "false", alias = "0", alias = "off")]
    No,
}

/// Whether a node may get more procs than it has slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Oversubscribe {
    #[value(alias = "true", alias = "1")]
    Yes,
    #[value(alias = "false", alias = "0")]
    No,
    /// Where nobody gave a number of slots.
    Auto,
}

/// What starts each line of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LabelChoice {
    #[value(alias = "no")]
    None,
    #[value(alias = "yes", alias = "1")]
    Rank,
    Full,
}

/// Whether the ranks write out every line of their stdout at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LineBuffered {
    /// Where our own stdout is a terminal.
    Auto,
    #[value(alias = "true", alias = "1", alias = "on")]
    Yes,
    #[value(alias = "false", alias = "0", alias = "off")]
    No,
}

/// What the loss of something does to the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnLoss {
    End,
    Continue,
}

/// What is done when nothing of a job moves any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnHang {
    Nothing,
    /// `dbgr watch` looks at the job, and reports when it has stood for this time.
    Report(Duration),
}

/// What the loss of the debugger for which ranks were held does to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DebuggerLoss {
    Kill,
    Release,
}
