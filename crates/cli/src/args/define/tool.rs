//! Options about tools beside the ranks of a job.

use std::ffi::OsString;

use clap::Args;

use super::machine::MachineArgs;
use crate::{
    choices::{LabelChoice, MessageFormatChoice},
    values::{self, JobName},
};

const START_TOOL_USAGE: &str = "rally start-tool [OPTIONS] JOB -- PROGRAM [ARGS]...";

const START_TOOL_AFTER: &str = "\
The processes get the environment and the working directory of the ranks, and
RALLY_TOOL_RANKS: rank and pid of each rank beside them, such as 0:4711,1:4712.
RALLY_TOOL_RANKS_FILE: a file with the same list; not with --per-rank.
See `rally help debugging`.

They end with the job, and with this command. The exit code is 0 if all ended
well or with the job, else that of the first that failed.";

/// `rally start-tool`.
#[derive(Clone, Debug, Args)]
#[command(override_usage = START_TOOL_USAGE, after_help = START_TOOL_AFTER)]
pub(crate) struct StartToolArgs {
    /// The running job: process number of its `rally`, its PMIx namespace, or its number in the queue of a machine
    #[arg(value_name = "JOB", value_parser = values::job)]
    pub(crate) job: JobName,

    /// Start a process for each rank [default: one on each node of the job]
    #[arg(long)]
    pub(crate) per_rank: bool,

    /// Start each line of output with the number of the process
    ///
    /// `full` adds the job, the host name and the stream.
    #[arg(
        hide_possible_values = true,
        short = 'l', long, value_name = "rank|full", num_args = 0..=1, require_equals = true,
        default_missing_value = "rank"
    )]
    pub(crate) label: Option<LabelChoice>,

    /// The process that reads stdin (0 is the first), or all, none [default: 0]
    #[arg(long, value_name = "NUMBER")]
    pub(crate) stdin: Option<OsString>,

    /// Time from SIGTERM to SIGKILL at the end, in seconds [default: 5]
    #[arg(long, value_name = "SECONDS")]
    pub(crate) grace: Option<OsString>,

    /// Copy the tool, its shared libraries and these files to each node: a,b,@LIST
    ///
    /// The tool runs from the copies: their directory is the first in its PATH and LD_LIBRARY_PATH, and in RALLY_PRELOAD_DIR. It is
    /// on a local file system with enough room, and removed when the tool ends. Libraries in directories of the system are
    /// not copied. `@LIST` is a file with names of files.
    #[arg(
        long,
        value_name = "FILES",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = ""
    )]
    pub(crate) tool_files: Option<OsString>,

    /// Print no messages except errors
    #[arg(short = 'q', long)]
    pub(crate) quiet: bool,

    #[command(flatten)]
    pub(crate) which: MachineArgs,

    /// The tool and its arguments, after `--`
    #[arg(value_name = "PROGRAM", last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

impl StartToolArgs {
    /// Returns true if messages are to be JSON.
    pub(crate) fn wants_json(&self) -> bool {
        self.which.message_format == Some(MessageFormatChoice::Json)
    }
}

/// Options of a job about a tool that is started beside its ranks.
#[derive(Clone, Debug, Args)]
pub(crate) struct JobToolArgs {
    /// Start this tool on each node, beside the ranks
    ///
    /// When the ranks exist, and before held ones are released. It gets their environment and RALLY_TOOL_RANKS, and ends with
    /// the job. See `rally help debugging`.
    #[arg(
        long,
        value_name = "PROGRAM",
        hide_short_help = true,
        help_heading = "Life of the job"
    )]
    pub(crate) tool: Option<OsString>,

    /// Arguments of the tool, quoted as in a shell
    ///
    /// Words are separated by blanks. `'...'`, `"..."` and `\` quote as in a shell, and nothing is substituted.
    #[arg(
        long,
        value_name = "WORDS",
        requires = "tool",
        allow_hyphen_values = true,
        hide_short_help = true,
        help_heading = "Life of the job"
    )]
    pub(crate) tool_arguments: Option<OsString>,

    /// Start the tool once for each rank
    #[arg(
        long,
        requires = "tool",
        hide_short_help = true,
        help_heading = "Life of the job"
    )]
    pub(crate) tool_per_rank: bool,

    /// Copy the tool, its shared libraries and these files to each node: a,b,@LIST
    ///
    /// The tool runs from the copies: their directory is the first in its PATH and LD_LIBRARY_PATH, and in RALLY_PRELOAD_DIR. It is
    /// on a local file system with enough room, and removed when the tool ends. Libraries in directories of the system are
    /// not copied. `@LIST` is a file with names of files.
    #[arg(
        long,
        value_name = "FILES",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "",
        requires = "tool",
        hide_short_help = true,
        help_heading = "Life of the job"
    )]
    pub(crate) tool_files: Option<OsString>,
}
