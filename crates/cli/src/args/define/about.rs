//! Options of the commands about `rally` itself.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};

use crate::{choices::MessageFormatChoice, values};

#[derive(Clone, Debug, Args)]
pub(crate) struct DemoArgs {
    /// Number of procs [default: one per slot]
    #[arg(short = 'n', long = "np", value_name = "N", value_parser = values::procs)]
    pub(crate) procs: Option<u32>,
}

/// `rally launch`.
#[derive(Clone, Debug, Args)]
#[command(
    override_usage = "rally launch [OPTIONS] FILE\n       rally launch --new [FILE]",
    after_help = "A launch configuration is TOML: apps, options of `rally run`, a debugger, and\n\
                  actions before and after the job. `rally launch --new` writes an example.\n\
                  The exit code is that of `rally run`."
)]
pub(crate) struct LaunchArgs {
    /// The launch configuration
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,

    /// Write an example with comments to FILE [default: launch.toml]
    #[arg(long)]
    pub(crate) new: bool,

    /// Start the job under the debugger of the file
    #[arg(long)]
    pub(crate) debug: bool,

    /// Attach the debugger of the file to this running job, without actions
    #[arg(long, value_name = "JOB")]
    pub(crate) attach: Option<OsString>,

    /// Check the file, print what would be run, and start nothing
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Format of messages, and of what --dry-run prints
    #[arg(long, value_name = "text|json", hide_possible_values = true)]
    pub(crate) message_format: Option<MessageFormatChoice>,
}

/// `rally mpir-check`.
#[derive(Clone, Debug, Args)]
#[command(
    override_usage = "rally mpir-check [OPTIONS] [--] LAUNCHER [ARGS]...",
    after_help = "The launcher is started up to five times. Give it a program that runs for a while, with\n\
                  at least two ranks on this node. The exit code is 1 if a statement is wrong.\n\
                  More: `rally help debugging`."
)]
pub(crate) struct MpirCheckArgs {
    /// Longest wait for the launcher to do what a debugger waits for
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = values::time)]
    pub(crate) limit: Duration,

    /// How long ranks are watched while they should be held
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = values::time)]
    pub(crate) hold: Duration,

    /// How long the job may run when nothing is waited for any more
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = values::time)]
    pub(crate) run: Duration,

    /// Number of ranks that the table should have
    #[arg(long, value_name = "N", value_parser = values::procs)]
    pub(crate) ranks: Option<u32>,

    /// Format of the report and of messages
    #[arg(long, value_name = "text|json", hide_possible_values = true)]
    pub(crate) message_format: Option<MessageFormatChoice>,

    /// The launcher and its arguments, as in `srun -n4 ./a`
    #[arg(
        value_name = "LAUNCHER",
        trailing_var_arg = true,
        allow_hyphen_values = true,
        required = true
    )]
    pub(crate) words: Vec<OsString>,
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
