//! The values of options and settings that are a choice from a list.

use std::time::Duration;

use clap::ValueEnum;

/// What runs a submitted job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Engine {
    /// A machine, which `rally up` has started.
    #[default]
    Machine,
    Slurm,
}

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
    /// Allowed if nobody gave a number of slots.
    Auto,
}

/// The label at the start of each line of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LabelChoice {
    #[value(alias = "no")]
    None,
    #[value(alias = "yes", alias = "1")]
    Rank,
    Full,
}

/// Whether the ranks write each line of stdout immediately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LineBuffered {
    /// If our own stdout is a terminal.
    Auto,
    #[value(alias = "true", alias = "1", alias = "on")]
    Yes,
    #[value(alias = "false", alias = "0", alias = "off")]
    No,
}

/// The effect that the loss of something has on the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnLoss {
    End,
    Continue,
}

/// The reaction to a job in which nothing moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnHang {
    Nothing,
    /// `dbgr watch` observes the job, and reports when nothing has moved for this time.
    Report(Duration),
}

/// The effect that the loss of a node has on the ranks of other nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum NodeLoss {
    Abort,
    Continue,
}

/// The effect that the loss of a debugger has on the ranks that are held for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DebuggerLoss {
    Kill,
    Release,
}

/// Something to show before the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum DisplayChoice {
    Map,
    Bindings,
    Allocation,
}

/// A launcher whose variables tell ranks their identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum FamilyChoice {
    Openmpi,
    Slurm,
    Torch,
    None,
}

impl FamilyChoice {
    /// Returns the name of this choice on the command line.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Openmpi => "openmpi",
            Self::Slurm => "slurm",
            Self::Torch => "torch",
            Self::None => "none",
        }
    }
}

/// How daemons are started on nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Bootstrap {
    Auto,
    Ssh,
    Slurm,
    Pbs,
    Lsf,
    Fork,
}

/// What happens to earlier contents of an output file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OpenModeChoice {
    #[value(alias = "a")]
    Append,
    #[value(alias = "t")]
    Truncate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum MessageFormatChoice {
    Text,
    Json,
}
