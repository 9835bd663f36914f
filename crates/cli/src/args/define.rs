//! The command line in clap's terms: the only definition of each flag.
//!
//! Help, man pages and completions are generated from it, and [`super::compat`] reads from it which options take a value.
//! Other launchers' spellings are translated into these flags before clap runs.

pub(crate) mod about;
pub(crate) mod machine;
mod preload;
pub(crate) mod proxy;
mod resources;
mod tool;
mod watching;

use std::{ffi::OsString, num::NonZeroU32, path::PathBuf, time::Duration};

use clap::{ArgAction, Args, Parser, Subcommand};
use dvm::{
    bootstrap::TreeStart,
    spec::{SetName, UniverseSize, Warning},
};

use self::resources::{LimitArgs, ResourceArgs};
pub(crate) use self::tool::StartToolArgs;
use self::{
    about::{ConfigArgs, DemoArgs, GenerateArgs, HelpArgs, LaunchArgs, MpirCheckArgs},
    machine::{
        CancelArgs, DownArgs, JobOf, JobsOf, MachineArgs, NodesArgs, OutputArgs, PageArgs,
        PriorityArgs, QueueArgs, SignalArgs, StatusArgs, SubmitPage, TasksOf, TopArgs, UpPage,
        UsageArgs,
    },
    preload::{AppPreloadArgs, JobPreloadArgs},
    proxy::ProxyArgs,
    tool::JobToolArgs,
    watching::WatchingArgs,
};
use crate::{
    choices::{
        Bootstrap, DebuggerLoss, DisplayChoice, FamilyChoice, LabelChoice, LineBuffered,
        MessageFormatChoice, NodeLoss, OnLoss, OpenModeChoice, Oversubscribe, Switch,
    },
    values::Released,
};
use crate::{
    remote::{self, Words},
    values::{self, HeldRanks, ValueError},
};

/// The width of help texts in columns, whatever the terminal's width, so that they are the same everywhere.
const HELP_WIDTH: usize = 80;

const RUN_USAGE: &str = "rally run [OPTIONS] PROGRAM [ARGS]... [: [OPTIONS] PROGRAM [ARGS]...]...
       rally run [OPTIONS] --app FILE";

const RUN_AFTER: &str = "\
The exit code is that of the ranks (128+n for signal n); 120-127 are our own.
More: `rally run --help`; `rally help TOPIC` (placement, output, mpmd, ...).";

const RUN_AFTER_LONG: &str = "\
Options end at the program's name. What follows belongs to the program, until a
`:` that starts the next app. Options under `App`, --host, --map-by and
--per-node apply to the program that follows them, all others to the whole job:
see `rally help mpmd`.

Spellings of Open MPI, MPICH and Slurm are understood too: see
`rally help personalities`.

The exit code is that of the ranks (128+n for signal n); 120-127 are our own:
see `rally help exit-codes`.";

/// Parses a template of the command line, where it cannot be empty.
fn template(text: &str) -> Result<Words, ValueError> {
    remote::template(text)?.ok_or(ValueError::Empty)
}

/// The whole command line of `rally`.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "rally",
    version,
    about = "Start programs in parallel, and never lose one",
    term_width = HELP_WIDTH,
    disable_help_subcommand = true,
    args_override_self = true,
    after_help = "Called mpiexec, mpirun or srun, it is `rally run` with the habits of that name.\n\n\
                  Topics of `rally help`: placement, output, input, signals, exit-codes,\n\
                  environment, personalities, mpmd, nodes, debugging, errors; or the id of an\n\
                  error."
)]
pub(super) struct Cli {
    #[command(subcommand)]
    pub(super) command: CliCommand,
}

#[derive(Clone, Debug, Subcommand)]
pub(super) enum CliCommand {
    /// Start a program in parallel
    Run(Box<RunArgs>),
    /// Start what a launch configuration describes
    Launch(LaunchArgs),
    /// Start a machine: nodes and a queue that stay
    Up(Box<UpPage>),
    /// End a machine
    Down(DownArgs),
    /// Put a job into the queue of a machine, or of Slurm
    Submit(Box<SubmitPage>),
    /// List the jobs of a machine, and those given to Slurm
    Queue(QueueArgs),
    /// Say why a job waits, and when it starts
    Explain(JobOf),
    /// Keep jobs that wait from starting, also in Slurm (slurm:JOB)
    Hold(JobsOf),
    /// Let held jobs start, also in Slurm, or release the held ranks of a running job
    Release(ReleaseArgs),
    /// Start processes of a tool beside the ranks of a running job
    StartTool(Box<StartToolArgs>),
    /// Cancel jobs of the queue, or of Slurm
    Cancel(CancelArgs),
    /// Send a signal to running jobs of the queue
    Signal(SignalArgs),
    /// Stop running jobs of the queue for a while
    Pause(TasksOf),
    /// Let paused jobs go on
    Resume(TasksOf),
    /// Show what running jobs of the queue use: CPU time, memory, I/O
    Usage(UsageArgs),
    /// Move jobs of the queue before or behind others
    Priority(PriorityArgs),
    /// Wait until jobs of the queue, or of Slurm, are over
    Wait(JobsOf),
    /// Show what a job of the queue, or of Slurm, has printed
    Output(OutputArgs),
    /// List, add, drop, open and close the nodes of a machine
    Nodes(NodesArgs),
    /// Show a machine in a browser on this computer
    Page(PageArgs),
    /// Show what a machine is and does
    Status(StatusArgs),
    /// Watch and steer a machine on the whole terminal
    Top(TopArgs),
    /// Run a built-in parallel program to check the installation
    Demo(DemoArgs),
    /// Check what another launcher does for debuggers that use MPIR
    MpirCheck(MpirCheckArgs),
    /// Let an Eclipse with PTP 2 to 6 use a machine
    PtpProxy(ProxyArgs),
    /// Show the settings in force and where each comes from
    Config(ConfigArgs),
    /// Explain a topic or an error
    Help(HelpArgs),
    /// Write a man page or shell completions to standard output
    #[command(name = "__generate", hide = true)]
    Generate(GenerateArgs),
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ReleaseArgs {
    /// Number of a held job in the queue of a machine, or `slurm:12`; or process number of the `rally` that holds ranks, or its PMIx
    /// namespace [default: the only job that holds ranks]
    #[arg(value_name = "JOB", value_parser = values::released)]
    pub(crate) job: Option<Released>,

    /// Release only these ranks, such as `0,4-7`
    #[arg(long, value_name = "RANKS", value_parser = values::held_ranks)]
    pub(crate) ranks: Option<HeldRanks>,

    #[command(flatten)]
    pub(crate) which: MachineArgs,
}

/// `rally run`: one app with the options of its job.
#[derive(Clone, Debug, Args)]
#[command(
    override_usage = RUN_USAGE,
    after_help = RUN_AFTER,
    after_long_help = RUN_AFTER_LONG,
    args_override_self = true,
    disable_help_flag = true,
    disable_version_flag = true,
)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) app: AppArgs,
    #[command(flatten)]
    pub(crate) job: JobArgs,
    #[command(flatten)]
    pub(crate) info: InfoArgs,
    /// The program and its arguments
    #[arg(
        value_name = "PROGRAM",
        trailing_var_arg = true,
        allow_hyphen_values = true,
        hide = true
    )]
    pub(crate) program: Vec<OsString>,
}

/// Options that may differ between the apps of a job.
#[derive(Clone, Debug, Args)]
pub(crate) struct AppArgs {
    /// Number of procs [default: one per slot]
    #[arg(short = 'n', long = "np", value_name = "N", value_parser = values::procs, help_heading = "App")]
    pub(crate) procs: Option<u32>,

    /// Working directory of the procs
    #[arg(long, value_name = "DIR", help_heading = "App")]
    pub(crate) wdir: Option<OsString>,

    /// Directories in which to look for the program
    ///
    /// Separated by colons, and searched before those of PATH.
    #[arg(
        long,
        value_name = "DIRS",
        hide_short_help = true,
        help_heading = "App"
    )]
    pub(crate) path: Option<OsString>,

    /// Set or pass on a variable for the procs
    ///
    /// Without a value, the launcher's variable is passed on. `ABC*` passes on all variables whose names begin with ABC.
    #[arg(long, value_name = "NAME[=VALUE]", action = ArgAction::Append, help_heading = "App")]
    pub(crate) set_env: Vec<OsString>,

    /// Set a variable for the procs unless it is set already
    ///
    /// It is set already if the launcher's environment, as far as the procs inherit it, or an option before this one sets it.
    #[arg(long, value_name = "NAME=VALUE", action = ArgAction::Append, hide_short_help = true, help_heading = "App")]
    pub(crate) add_env: Vec<OsString>,

    /// Remove a variable; `ABC*` removes all whose names begin with ABC
    #[arg(long, value_name = "NAME", action = ArgAction::Append, hide_short_help = true, help_heading = "App")]
    pub(crate) unset_env: Vec<OsString>,

    /// Put a value before that of a variable
    ///
    /// The separator is given in brackets: `--prepend-env 'PATH[:]=/opt/bin'`. Without brackets it is a colon.
    #[arg(long, value_name = "NAME[C]=VALUE", action = ArgAction::Append, hide_short_help = true, help_heading = "App")]
    pub(crate) prepend_env: Vec<OsString>,

    /// Put a value after that of a variable
    #[arg(long, value_name = "NAME[C]=VALUE", action = ArgAction::Append, hide_short_help = true, help_heading = "App")]
    pub(crate) append_env: Vec<OsString>,

    /// Variables that the procs inherit: all, none, or names
    ///
    /// Names are separated by commas, with an optional trailing `*`. The other environment options are applied after this
    /// one, in the order given.
    #[arg(
        long,
        value_name = "all|none|NAMES",
        hide_short_help = true,
        help_heading = "App"
    )]
    pub(crate) inherit_env: Option<OsString>,

    #[command(flatten)]
    pub(crate) preload: AppPreloadArgs,

    /// Name of the process set to which the procs belong
    ///
    /// PMIx programs and tools can ask for the sets and their members. Apps with one name are one set.
    #[arg(long, value_name = "NAME", value_parser = values::set, hide_short_help = true, help_heading = "App")]
    pub(crate) pset: Option<SetName>,

    /// File mode creation mask of the procs, in octal
    #[arg(long, value_name = "MASK", value_parser = values::mask, hide_short_help = true, help_heading = "App")]
    pub(crate) umask: Option<u32>,

    /// Hosts to use, with slots: a:4,b
    ///
    /// A host without a number has as many slots as cores, and accepts more procs than that.
    #[arg(long, value_name = "HOSTS", action = ArgAction::Append, help_heading = "Placement")]
    pub(crate) host: Vec<String>,

    /// Map by slot, node, core, package, ppr:2:numa
    ///
    /// slot, node, hwthread, core, l1cache, l2cache, l3cache, numa, package, ppr:N:RESOURCE, seq, rankfile, pe-list=LIST;
    /// qualifiers follow after colons: `core:PE=2`. See `rally help placement`.
    #[arg(long, value_name = "POLICY", action = ArgAction::Append, help_heading = "Placement")]
    pub(crate) map_by: Vec<String>,

    /// Procs on each node
    #[arg(long, value_name = "N", value_parser = values::procs, help_heading = "Placement")]
    pub(crate) per_node: Option<u32>,

    /// So many procs on each node in turn, over and over: Hydra's `-ppn`
    #[arg(long, value_name = "N", value_parser = values::procs, hide = true)]
    pub(crate) deal: Option<u32>,
}

/// Options that apply to the whole job.
#[derive(Clone, Debug, Args)]
pub(crate) struct JobArgs {
    /// Number ranks by slot, node, fill or span
    #[arg(long, value_name = "POLICY", help_heading = "Placement")]
    pub(crate) rank_by: Option<String>,

    /// Bind to none, hwthread, core, numa, package
    ///
    /// Also l1cache, l2cache, l3cache; `:overload-allowed` lets procs share cores.
    /// [default: what procs are mapped by, if the cores belong to this job alone or
    /// --map-by names them; otherwise, and with more procs than cores, none]
    #[arg(long, value_name = "RESOURCE", help_heading = "Placement")]
    pub(crate) bind_to: Option<String>,

    /// Bind local ranks to these PUs in turn, by the kernel's numbers
    ///
    /// `0,2`, `0+1,2+3`; `numa:0,1` for NUMA nodes; `each` for every PU that may be used.
    #[arg(
        long,
        value_name = "LIST",
        overrides_with = "bind_to",
        hide_short_help = true,
        help_heading = "Placement"
    )]
    pub(crate) bind_list: Option<String>,

    /// Hosts and slots from a file
    #[arg(long, value_name = "FILE", help_heading = "Placement")]
    pub(crate) hostfile: Option<PathBuf>,

    /// Hosts that are not to be used: srun's `-x`
    #[arg(long, value_name = "HOSTS|FILE", action = ArgAction::Append, hide = true)]
    pub(crate) exclude: Vec<String>,

    /// Number of nodes, at least and at most: srun's `-N`
    #[arg(long, value_name = "MIN[-MAX]", hide = true)]
    pub(crate) nodes: Option<String>,

    /// Number of nodes to leave out at the start of the list: srun's `-r`
    #[arg(long, value_name = "N", hide = true)]
    pub(crate) relative: Option<u32>,

    /// Leave out this node: Open MPI's
    #[arg(long, hide = true)]
    pub(crate) nolocal: bool,

    /// The job's name in SLURM_JOB_NAME: srun's `-J`
    #[arg(long, value_name = "NAME", hide = true)]
    pub(crate) job_name: Option<OsString>,

    /// The allocation to run in: srun's
    #[arg(long, value_name = "ID", hide = true)]
    pub(crate) jobid: Option<String>,

    #[command(flatten)]
    pub(crate) resources: ResourceArgs,

    /// MPI universe size that the ranks see: N, slots, infinite
    #[arg(long, value_name = "N", value_parser = values::universe, hide_short_help = true, help_heading = "Placement")]
    pub(crate) universe: Option<UniverseSize>,

    /// Allow more procs than slots
    #[arg(
        hide_possible_values = true,
        long, value_name = "yes|no", num_args = 0..=1, require_equals = true, default_missing_value = "yes",
        help_heading = "Placement"
    )]
    pub(crate) oversubscribe: Option<Oversubscribe>,

    /// Show map, bindings or allocation first
    #[arg(hide_possible_values = true, long, value_name = "WHAT", value_delimiter = ',', action = ArgAction::Append, help_heading = "Placement")]
    pub(crate) display: Vec<DisplayChoice>,

    /// Print what would run where; start nothing
    ///
    /// Other nodes are assumed to have the processors of this one; --explain alone asks them.
    #[arg(long, help_heading = "Placement")]
    pub(crate) dry_run: bool,

    /// Print what would run where, and why
    ///
    /// No rank is started. Daemons are started on other nodes to learn their processors, and ended; with --dry-run, they are not.
    #[arg(long, help_heading = "Placement")]
    pub(crate) explain: bool,

    /// How daemons get onto nodes: ssh, slurm, lsf, pbs, fork
    ///
    /// `slurm`, `lsf` and `pbs` use the starters of these resource managers (`srun`, `blaunch`, `pbsdsh`), inside of their
    /// allocations. With `fork` and --nodes, this machine stands for the nodes.
    /// [default: auto, which is the resource manager's if all nodes belong to its allocation, else ssh; that of PBS also needs
    /// the program and the cache on a network file system]
    #[arg(
        hide_possible_values = true,
        long,
        value_name = "HOW",
        hide_short_help = true,
        help_heading = "Nodes"
    )]
    pub(crate) bootstrap: Option<Bootstrap>,

    /// ssh, or a command like it, with its options [default: ssh]
    ///
    /// It is called with the node's name and a command. Its stdin must reach that command.
    #[arg(long, value_name = "COMMAND", value_parser = remote::ssh, hide_short_help = true, help_heading = "Nodes")]
    pub(crate) ssh: Option<Words>,

    /// A command instead of ssh: kubectl exec -i {host} -- {daemon}
    ///
    /// With a word `{file}` behind `{daemon}`, it needs no stdin, and the nodes need the same files.
    #[arg(long, value_name = "TEMPLATE", value_parser = template, hide_short_help = true, help_heading = "Nodes")]
    pub(crate) bootstrap_command: Option<Words>,

    /// From how many nodes on daemons start others [default: 128]
    ///
    /// With ssh only. `on` is for any number, and with `off` this node starts all. A node that a daemon cannot start is
    /// started from this one.
    #[arg(long, value_name = "N|on|off", value_parser = values::tree_start, hide_short_help = true, help_heading = "Nodes")]
    pub(crate) tree_start: Option<TreeStart>,

    /// Networks for connections between nodes, by interface or address
    #[arg(
        long,
        value_name = "NAME,...",
        value_delimiter = ',',
        action = ArgAction::Append,
        hide_short_help = true,
        help_heading = "Nodes"
    )]
    pub(crate) if_include: Vec<String>,

    /// Ports for connections between nodes
    #[arg(long, value_name = "LOW-HIGH", value_parser = values::port_range, hide_short_help = true, help_heading = "Nodes")]
    pub(crate) port_range: Option<(u16, u16)>,

    /// Most daemons that connect to one daemon [default: 32]
    #[arg(long, value_name = "N", value_parser = values::radix, hide_short_help = true, help_heading = "Nodes")]
    pub(crate) radix: Option<NonZeroU32>,

    /// Silence after which a node counts as lost [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = values::lease, hide_short_help = true, help_heading = "Nodes")]
    pub(crate) lease: Option<Duration>,

    #[command(flatten)]
    pub(crate) preload: JobPreloadArgs,

    /// Start each line of output with its rank
    ///
    /// `full` adds the job, the host name and the stream.
    #[arg(
        hide_possible_values = true,
        short = 'l', long, value_name = "rank|full", num_args = 0..=1, require_equals = true,
        default_missing_value = "rank", help_heading = "Output and input"
    )]
    pub(crate) label: Option<LabelChoice>,

    /// Start each line of output with the time
    #[arg(
        hide_possible_values = true,
        long, value_name = "yes|no", num_args = 0..=1, require_equals = true, default_missing_value = "yes",
        help_heading = "Output and input"
    )]
    pub(crate) timestamps: Option<Switch>,

    /// Make ranks write each line immediately: auto, yes, no
    ///
    /// Ranks get a terminal as stdout, because most programs flush each line only there. [default: auto, which is yes
    /// if stdout of `rally` is a terminal]
    #[arg(
        hide_possible_values = true,
        long, value_name = "WHEN", num_args = 0..=1, require_equals = true, default_missing_value = "yes",
        hide_short_help = true, help_heading = "Output and input"
    )]
    pub(crate) line_buffered: Option<LineBuffered>,

    /// stdout to a file per rank, e.g. out.%r
    ///
    /// %r rank, %s job size, %l local rank, %a app, %j job, %h host, %p pid of rally, %% percent; `%4r` pads with zeros.
    /// `none` discards the output.
    #[arg(
        short = 'o',
        long = "output-file",
        overrides_with = "slurm_output",
        value_name = "PATTERN",
        help_heading = "Output and input"
    )]
    pub(crate) stdout: Option<OsString>,

    /// stderr to a file per rank
    #[arg(
        short = 'e',
        long = "error-file",
        overrides_with = "slurm_error",
        value_name = "PATTERN",
        help_heading = "Output and input"
    )]
    pub(crate) stderr: Option<OsString>,

    /// Append to existing output files, or truncate them
    ///
    /// [default: append; under srun: truncate]
    #[arg(
        hide_possible_values = true,
        long,
        value_name = "append|truncate",
        hide_short_help = true,
        help_heading = "Output and input"
    )]
    pub(crate) open_mode: Option<OpenModeChoice>,

    /// Show the output of one rank only
    #[arg(long, value_name = "RANK", value_parser = values::rank, hide_short_help = true, help_heading = "Output and input")]
    pub(crate) only_from: Option<u32>,

    /// stdout as srun's `-o` has it
    #[arg(long, value_name = "MODE", hide = true)]
    pub(crate) slurm_output: Option<OsString>,

    /// stderr as srun's `-e` has it
    #[arg(long, value_name = "MODE", hide = true)]
    pub(crate) slurm_error: Option<OsString>,

    /// stdin as srun's `-i` has it
    #[arg(long, value_name = "MODE", hide = true)]
    pub(crate) slurm_input: Option<OsString>,

    /// Send stderr where stdout goes
    #[arg(
        long,
        overrides_with = "slurm_error",
        hide_short_help = true,
        help_heading = "Output and input"
    )]
    pub(crate) merge_stderr: bool,

    /// The rank that reads stdin, or all, none
    ///
    /// [default: 0; under srun: all]
    #[arg(long, value_name = "RANK", help_heading = "Output and input")]
    pub(crate) stdin: Option<StdinChoice>,

    /// Read stdin from a file
    #[arg(long, value_name = "FILE", help_heading = "Output and input")]
    pub(crate) input: Option<PathBuf>,

    /// Give one rank a terminal (rank 0)
    #[arg(
        long, value_name = "RANK", num_args = 0..=1, require_equals = true, default_missing_value = "0",
        value_parser = values::rank, help_heading = "Output and input"
    )]
    pub(crate) pty: Option<u32>,

    /// Output and messages as JSON lines
    #[arg(long, help_heading = "Output and input")]
    pub(crate) json: bool,

    /// Format of messages of `rally`
    #[arg(
        hide_possible_values = true,
        long,
        value_name = "text|json",
        hide_short_help = true,
        help_heading = "Output and input"
    )]
    pub(crate) message_format: Option<MessageFormatChoice>,

    /// End the job after this time
    ///
    /// Seconds, or a number with ms, s, m or h: `90`, `1.5h`.
    #[arg(long, value_name = "SECONDS", value_parser = values::time, help_heading = "Life of the job")]
    pub(crate) timeout: Option<Duration>,

    #[command(flatten)]
    pub(crate) limits: LimitArgs,

    /// Send the ranks a signal before the time limit
    ///
    /// `USR1@90` sends SIGUSR1 90 seconds before the limit. Without a time it is 60 seconds.
    #[arg(long, value_name = "SIGNAL[@SECONDS]", value_parser = values::warning, hide_short_help = true, help_heading = "Life of the job")]
    pub(crate) warn: Option<Warning>,

    /// End the job this long after its first rank has ended
    #[arg(long, value_name = "SECONDS", value_parser = values::time, hide_short_help = true, help_heading = "Life of the job")]
    pub(crate) wait: Option<Duration>,

    /// Time from SIGTERM to SIGKILL [default: 5]
    #[arg(long, value_name = "SECONDS", value_parser = values::time, help_heading = "Life of the job")]
    pub(crate) grace: Option<Duration>,

    /// End the job if a rank fails
    ///
    /// [default: yes]
    #[arg(
        hide_possible_values = true,
        long, value_name = "yes|no", num_args = 0..=1, require_equals = true, default_missing_value = "yes",
        help_heading = "Life of the job"
    )]
    pub(crate) kill_on_bad_exit: Option<Switch>,

    /// If a node is lost: end the job (abort), or let the ranks of other nodes continue
    ///
    /// [default: abort, or continue with `--kill-on-bad-exit=no`]
    #[arg(
        hide_possible_values = true,
        long,
        value_name = "abort|continue",
        hide_short_help = true,
        help_heading = "Life of the job"
    )]
    pub(crate) on_node_loss: Option<NodeLoss>,

    /// If the debugger of held ranks is lost: end the job (kill) or release them
    ///
    /// [default: release]
    #[arg(
        hide_possible_values = true,
        long,
        value_name = "kill|release",
        hide_short_help = true,
        help_heading = "Life of the job"
    )]
    pub(crate) on_debugger_loss: Option<DebuggerLoss>,

    #[command(flatten)]
    pub(crate) watching: WatchingArgs,

    /// If the terminal is lost (SIGHUP): end the job or let it continue
    #[arg(
        hide_possible_values = true,
        long,
        value_name = "end|continue",
        hide_short_help = true,
        help_heading = "Life of the job"
    )]
    pub(crate) on_hangup: Option<OnLoss>,

    /// If the reader of the output exits: end the job or let it continue
    #[arg(
        hide_possible_values = true,
        long,
        value_name = "end|continue",
        hide_short_help = true,
        help_heading = "Life of the job"
    )]
    pub(crate) on_output_closed: Option<OnLoss>,

    /// Hold ranks before they run anything
    ///
    /// At the first instruction, for a debugger: all ranks, or those of a list (`0,4-7`). See `rally help debugging`.
    #[arg(
        long, value_name = "RANKS", num_args = 0..=1, require_equals = true, default_missing_value = "all",
        value_parser = values::held_ranks, overrides_with_all = ["stop_in_init", "stop_in_app"],
        help_heading = "Life of the job"
    )]
    pub(crate) stop_on_exec: Option<HeldRanks>,

    /// Hold ranks in PMIx_Init
    ///
    /// All ranks, or those of a list. Programs that do not use PMIx run on.
    #[arg(
        long, value_name = "RANKS", num_args = 0..=1, require_equals = true, default_missing_value = "all",
        value_parser = values::held_ranks, overrides_with_all = ["stop_on_exec", "stop_in_app"],
        hide_short_help = true, help_heading = "Life of the job"
    )]
    pub(crate) stop_in_init: Option<HeldRanks>,

    /// Hold ranks where their MPI library waits for a debugger
    ///
    /// Open MPI 5 waits at the end of MPI_Init. All ranks, or those of a list. Programs whose library does not wait run on.
    #[arg(
        long, value_name = "RANKS", num_args = 0..=1, require_equals = true, default_missing_value = "all",
        value_parser = values::held_ranks, overrides_with_all = ["stop_on_exec", "stop_in_init"],
        hide_short_help = true, help_heading = "Life of the job"
    )]
    pub(crate) stop_in_app: Option<HeldRanks>,

    #[command(flatten)]
    pub(crate) tool: JobToolArgs,

    /// Set a variable of the procs of all apps
    ///
    /// Like --set-env, but applied before it.
    #[arg(long, value_name = "NAME[=VALUE]", action = ArgAction::Append, hide_short_help = true, help_heading = "Environment")]
    pub(crate) global_env: Vec<OsString>,

    /// Launchers whose rank variables are set too: openmpi, slurm, torch
    ///
    /// A list separated by commas, or `none`. RALLY_RANK and the variables that MPI libraries need are always set. See
    /// `rally help environment`.
    /// [default: openmpi; under srun: slurm]
    #[arg(hide_possible_values = true, long, value_name = "LAUNCHERS", value_delimiter = ',', action = ArgAction::Append, hide_short_help = true, help_heading = "Environment")]
    pub(crate) env_family: Vec<FamilyChoice>,

    /// Set RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, ...
    ///
    /// The variables that torch reads, in addition to the others.
    #[arg(long, hide_short_help = true, help_heading = "Environment")]
    pub(crate) torch: bool,

    /// Run on this machine, which `rally up` has started; `none`: on none
    ///
    /// [default: the one that was started with `rally up --default`, if there is one]
    #[arg(long = "on-machine", value_name = "NAME", value_parser = values::machine, hide_short_help = true, help_heading = "Nodes")]
    pub(crate) machine: Option<String>,

    /// Read the apps from a file, one per line
    #[arg(
        long = "app",
        value_name = "FILE",
        hide_short_help = true,
        help_heading = "General"
    )]
    pub(crate) app_file: Option<PathBuf>,

    /// The file of programs is one of srun's `--multi-prog`
    #[arg(long, hide = true)]
    pub(crate) multi_prog: bool,

    /// Read MCA parameters and variables from Open MPI's tune files
    #[arg(long, value_name = "FILES", action = ArgAction::Append, hide_short_help = true, help_heading = "General")]
    pub(crate) tune: Vec<OsString>,

    /// Write the launcher's process number to a file, stdout (-) or stderr (+)
    #[arg(
        long,
        value_name = "FILE",
        hide_short_help = true,
        help_heading = "General"
    )]
    pub(crate) report_pid: Option<OsString>,

    /// Record what the controller and the daemons do, for a bug report
    ///
    /// The file can be replayed (docs/formats/recording.md). Daemons on other nodes write FILE.N there. It holds no values of
    /// variables and no text of ranks, but what they exchange by PMI and PMIx, and preloaded files.
    #[arg(
        long,
        value_name = "FILE",
        hide_short_help = true,
        help_heading = "General"
    )]
    pub(crate) record: Option<OsString>,

    /// Print the exit codes of all ranks at the end
    #[arg(long, hide_short_help = true, help_heading = "General")]
    pub(crate) print_exit_codes: bool,

    /// Follow the habits of rally, mpiexec, mpirun or srun
    ///
    /// Applies to the options after it.
    #[arg(
        long,
        value_name = "NAME",
        hide_short_help = true,
        help_heading = "General"
    )]
    pub(crate) personality: Option<String>,

    /// Print no messages except errors
    #[arg(short = 'q', long, help_heading = "General")]
    pub(crate) quiet: bool,

    /// Print more messages
    #[arg(short = 'v', long, action = ArgAction::Count, help_heading = "General")]
    pub(crate) verbose: u8,
}

/// Options that print information and start no job. The translator handles them; clap only lists them in help.
#[derive(Clone, Debug, Args)]
pub(crate) struct InfoArgs {
    /// Print help: -h on one screen, --help in full
    #[arg(short = 'h', long, num_args = 0, action = ArgAction::SetTrue, help_heading = "General")]
    pub(crate) help: bool,

    /// Print the version
    #[arg(short = 'V', long, action = ArgAction::SetTrue, help_heading = "General")]
    pub(crate) version: bool,
}

/// The ranks that read our standard input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StdinChoice {
    None,
    All,
    Rank(u32),
}

impl std::str::FromStr for StdinChoice {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "none" => Ok(Self::None),
            "all" => Ok(Self::All),
            _ if text
                .bytes()
                .next()
                .is_some_and(|byte| byte.is_ascii_digit()) =>
            {
                values::rank(text).map(Self::Rank)
            }
            _ => Err(ValueError::NotATarget),
        }
    }
}
