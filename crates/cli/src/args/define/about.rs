//! Options of the commands about `rally` itself.

use clap::{Args, ValueEnum};

use crate::values;

#[derive(Clone, Debug, Args)]
pub(crate) struct DemoArgs {
    /// Number of procs [default: one per slot]
    #[arg(short = 'n', long = "np", value_name = "N", value_parser = values::procs)]
    pub(crate) procs: Option<u32>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ConfigArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct HelpArgs {
    /// A topic, a subcommand, or the id of an error such as `cli/unknown-option`
    #[arg(value_name = "TOPIC|ERROR-ID")]
    pub(crate) subject: Option<String>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct GenerateArgs {
    #[arg(value_enum)]
    pub(crate) what: Generated,
}

/// A file that packaging generates with the binary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Generated {
    Man,
    Bash,
    Zsh,
    Fish,
    Elvish,
}
