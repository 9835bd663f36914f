//! Options of the commands about a machine.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use base::{HostList, JobId, RankSet, Signal};
use clap::{ArgAction, Args};
use dvm::{machine::NodeShare, queue::Dependency};

use crate::{
    choices::{Engine, MessageFormatChoice},
    values::{self, MachineLimit, Named, Tasks},
};

/// Which machine a command is about.
#[derive(Clone, Debug, Args)]
pub(crate) struct MachineArgs {
    /// Name of the machine [default: the only one that runs here]
    #[arg(long = "on-machine", value_name = "NAME", value_parser = values::machine)]
    pub(crate) machine: Option<String>,

    /// Format of the answer and of messages
    #[arg(long, value_name = "text|json", hide_possible_values = true)]
    pub(crate) message_format: Option<MessageFormatChoice>,
}

/// `rally up`, without the options about nodes, which are those of `rally run`.
#[derive(Clone, Debug, Args)]
pub(crate) struct UpArgs {
    /// Name of the machine
    ///
    /// Its directory has this name, and its queue is found again under it.
    #[arg(long, value_name = "NAME", default_value = "main", value_parser = values::machine, help_heading = "Machine")]
    pub(crate) name: String,

    /// Let `rally run` use this machine without being told
    #[arg(long, help_heading = "Machine")]
    pub(crate) default: bool,

    /// Let PMIx tools find this machine as the system server of this host
    ///
    /// There is one for each directory of temporary files: PMIX_SYSTEM_TMPDIR, or TMPDIR.
    #[arg(long, help_heading = "Machine")]
    pub(crate) system_server: bool,

    /// Count a resource that no node has, such as licenses; can be repeated
    ///
    /// `matlab=10`. Jobs ask for a part of it: `rally submit --resource matlab=2`. What they have together is never more.
    #[arg(long, value_name = "NAME=N", value_parser = values::resource, action = ArgAction::Append, help_heading = "Machine")]
    pub(crate) shared_resource: Vec<(String, u64)>,

    /// Count a resource of nodes; can be repeated
    ///
    /// `fpga=2` on all nodes, `fpga=2@n[1-3]` on some. Jobs ask for it by rank: `--resource-per-proc fpga=1`. GPUs and memory are
    /// counted in any case.
    #[arg(long, value_name = "NAME=N[@NODES]", value_parser = values::node_resource, action = ArgAction::Append, help_heading = "Machine")]
    pub(crate) node_resource: Vec<NodeShare>,

    /// Limit what its user may have, or a job: `running=8`; can be repeated
    ///
    /// `jobs=N`: jobs in the queue, running or not. `running=N`: tasks that run at the same time. `slots=N`: slots that they have
    /// together. `job-slots=N`: slots of a task. `job-time=TIME`: time limit of a task; a job without one gets this one.
    #[arg(long, value_name = "NAME=N", value_parser = values::machine_limit, action = ArgAction::Append, help_heading = "Machine")]
    pub(crate) limit: Vec<MachineLimit>,
}

/// `rally submit`, without the options that are those of `rally run`.
#[derive(Clone, Debug, Args)]
pub(crate) struct SubmitArgs {
    /// What runs the job: a machine of `rally up`, or Slurm
    ///
    /// With `slurm`, the job is submitted by `sbatch`, and other commands know it as `slurm:JOB`. --dry-run shows the
    /// command and its script.
    #[arg(
        long,
        value_name = "machine|slurm",
        hide_possible_values = true,
        help_heading = "Queue"
    )]
    pub(crate) to: Option<Engine>,

    /// An option of `sbatch`, such as `partition=debug`; can be repeated
    #[arg(long, value_name = "OPTION", value_parser = values::slurm_option, action = ArgAction::Append, help_heading = "Queue")]
    pub(crate) slurm_option: Vec<String>,

    /// Time after which the job is ended: `90`, `10m`, `2h`
    ///
    /// Jobs with a time limit can start earlier, in gaps of the schedule.
    #[arg(long, value_name = "TIME", value_parser = values::time, help_heading = "Queue")]
    pub(crate) time: Option<Duration>,

    /// Submit a job for each line of a file, which has a program and its arguments; `-`: standard input
    ///
    /// Words are quoted as in a shell. All jobs have the options of the command line.
    #[arg(long, value_name = "FILE", help_heading = "Queue")]
    pub(crate) from: Option<PathBuf>,

    /// Jobs of higher priority start first [default: 0]
    #[arg(
        long,
        value_name = "N",
        allow_negative_numbers = true,
        help_heading = "Queue"
    )]
    pub(crate) priority: Option<i32>,

    /// Start the job once for each index, such as `1-1000` or `0,4-7`
    ///
    /// Each task finds its index in RALLY_ARRAY_INDEX, and has one proc if nothing says how many.
    #[arg(long, value_name = "INDEXES", value_parser = values::array, help_heading = "Queue")]
    pub(crate) array: Option<RankSet>,

    /// Most tasks of the array that run at the same time
    #[arg(long, value_name = "N", help_heading = "Queue")]
    pub(crate) max_running: Option<u32>,

    /// Start after other jobs: `12`, `ok:12`, `any:12`, `start:12`
    ///
    /// `12` and `ok:12` wait for the success of job 12, and the job is canceled if that fails. `any:12` waits for its end,
    /// `start:12` for its start. The option can be repeated.
    #[arg(long, value_name = "[KIND:]JOB", value_parser = values::dependency, action = ArgAction::Append, help_heading = "Queue")]
    pub(crate) after: Vec<Dependency>,

    /// Keep the job waiting until `rally release JOB`
    #[arg(long, help_heading = "Queue")]
    pub(crate) hold: bool,

    /// Run the job again if it loses a node, or the machine ends
    #[arg(long, help_heading = "Queue")]
    pub(crate) requeue: bool,

    /// Share the job's nodes with no other job
    #[arg(long, help_heading = "Queue")]
    pub(crate) exclusive: bool,

    /// File for what the job prints [default: rally-%j.out; of an array rally-%j-%i.out]
    ///
    /// `%j` is the number of the job, `%i` the index of the task. The file is written on the machine's node.
    #[arg(long, value_name = "FILE", help_heading = "Queue")]
    pub(crate) output_to: Option<OsString>,

    /// File for standard error, if it is another one
    #[arg(long, value_name = "FILE", help_heading = "Queue")]
    pub(crate) errors_to: Option<OsString>,

    /// Print only the number of the job
    #[arg(long, help_heading = "Queue")]
    pub(crate) parsable: bool,
}

/// The page of `rally up`.
#[derive(Clone, Debug, Args)]
#[command(
    override_usage = "rally up [OPTIONS]",
    after_help = "The options about nodes are those of `rally run`: --host, --hostfile, --bootstrap,\n--ssh and the like (`rally help nodes`)."
)]
pub(crate) struct UpPage {
    #[command(flatten)]
    up: UpArgs,
}

/// The page of `rally submit`.
#[derive(Clone, Debug, Args)]
#[command(
    override_usage = "rally submit [OPTIONS] PROGRAM [ARGS]... [: [OPTIONS] PROGRAM...]",
    after_help = "All options of `rally run` about procs, their placement, environment and life are\nunderstood too: see `rally run --help`."
)]
pub(crate) struct SubmitPage {
    #[command(flatten)]
    submit: SubmitArgs,
}

/// `rally down`.
#[derive(Clone, Debug, Args)]
pub(crate) struct DownArgs {
    #[command(flatten)]
    pub(crate) which: MachineArgs,

    /// End the running jobs too
    #[arg(long, conflicts_with = "wait")]
    pub(crate) now: bool,

    /// Start no further jobs, and wait until the running ones have ended
    #[arg(long)]
    pub(crate) wait: bool,
}

/// `rally top`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Keys: Tab goes to another pane, arrows move, e explains why a job waits, h holds, r\nreleases and c cancels it, q quits; `?` lists them all. Without a terminal:\n`rally queue --watch`."
)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    pub(crate) which: MachineArgs,
}

/// `rally status`.
#[derive(Clone, Debug, Args)]
pub(crate) struct StatusArgs {
    /// Go on, and show it again whenever it changes
    #[arg(long)]
    pub(crate) watch: bool,

    #[command(flatten)]
    pub(crate) which: MachineArgs,
}

/// `rally queue`.
#[derive(Clone, Debug, Args)]
pub(crate) struct QueueArgs {
    /// Show everything about these jobs; `slurm:12` is one of Slurm
    #[arg(value_name = "JOB", value_parser = values::named_job)]
    pub(crate) jobs: Vec<Named<JobId>>,

    /// List only the jobs of a machine, or only those that `rally` has submitted to Slurm
    #[arg(
        long,
        value_name = "machine|slurm",
        hide_possible_values = true,
        conflicts_with = "jobs"
    )]
    pub(crate) to: Option<Engine>,

    /// List also the last N jobs that are over
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "100")]
    pub(crate) over: Option<u32>,

    /// Go on, and show the list again whenever it changes
    #[arg(long, conflicts_with = "jobs")]
    pub(crate) watch: bool,

    #[command(flatten)]
    pub(crate) which: MachineArgs,
}

/// A command about one job.
#[derive(Clone, Debug, Args)]
pub(crate) struct JobOf {
    /// Number of the job
    #[arg(value_name = "JOB", value_parser = values::job_number)]
    pub(crate) job: JobId,

    #[command(flatten)]
    pub(crate) which: MachineArgs,
}

/// A command about some jobs.
#[derive(Clone, Debug, Args)]
pub(crate) struct JobsOf {
    /// Numbers of the jobs; `slurm:12` is one of Slurm
    #[arg(value_name = "JOB", required = true, value_parser = values::named_job)]
    pub(crate) jobs: Vec<Named<JobId>>,

    #[command(flatten)]
    pub(crate) which: MachineArgs,
}

/// `rally cancel`.
#[derive(Clone, Debug, Args)]
pub(crate) struct CancelArgs {
    /// Numbers of the jobs; `12[3-5]` are tasks of an array, `slurm:12` is a job of Slurm
    #[arg(value_name = "JOB", required = true, value_parser = values::named_tasks)]
    pub(crate) jobs: Vec<Named<Tasks>>,

    #[command(flatten)]
    pub(crate) which: MachineArgs,
}

/// `rally pause` and `rally resume`.
#[derive(Clone, Debug, Args)]
pub(crate) struct TasksOf {
    /// Numbers of the jobs; `12[3-5]` are tasks of an array
    #[arg(value_name = "JOB", required = true, value_parser = values::tasks)]
    pub(crate) jobs: Vec<Tasks>,

    #[command(flatten)]
    pub(crate) which: MachineArgs,
}

/// `rally signal`.
#[derive(Clone, Debug, Args)]
pub(crate) struct SignalArgs {
    /// Name or number of the signal, such as `USR1`
    #[arg(value_name = "SIGNAL", value_parser = values::signal)]
    pub(crate) signal: Signal,

    /// Numbers of the jobs; `12[3-5]` are tasks of an array
    #[arg(value_name = "JOB", required = true, value_parser = values::tasks)]
    pub(crate) jobs: Vec<Tasks>,

    #[command(flatten)]
    pub(crate) which: MachineArgs,
}

/// `rally usage`.
#[derive(Clone, Debug, Args)]
pub(crate) struct UsageArgs {
    /// Number of the job; `12[3-5]` are tasks of an array
    #[arg(value_name = "JOB", value_parser = values::tasks)]
    pub(crate) job: Tasks,

    #[command(flatten)]
    pub(crate) which: MachineArgs,
}

/// `rally priority`.
#[derive(Clone, Debug, Args)]
pub(crate) struct PriorityArgs {
    /// The new priority
    #[arg(value_name = "N", allow_negative_numbers = true)]
    pub(crate) priority: i32,

    /// Numbers of the jobs
    #[arg(value_name = "JOB", required = true, value_parser = values::job_number)]
    pub(crate) jobs: Vec<JobId>,

    #[command(flatten)]
    pub(crate) which: MachineArgs,
}

/// `rally output`.
#[derive(Clone, Debug, Args)]
pub(crate) struct OutputArgs {
    /// Number of the job; `12[3]` is a task of an array, `slurm:12` a job of Slurm
    #[arg(value_name = "JOB", value_parser = values::named_tasks)]
    pub(crate) job: Named<Tasks>,

    /// Show standard error, if it has a file of its own
    #[arg(long)]
    pub(crate) errors: bool,

    /// Go on until the job is over
    #[arg(short = 'f', long)]
    pub(crate) follow: bool,

    #[command(flatten)]
    pub(crate) which: MachineArgs,
}

/// `rally nodes`.
#[derive(Clone, Debug, Args)]
pub(crate) struct NodesArgs {
    /// Start no further jobs on these nodes, such as `n[1-3]`
    #[arg(long, value_name = "NODES", value_parser = values::host_list)]
    pub(crate) drain: Option<HostList>,

    /// Start jobs on these nodes again
    #[arg(long, value_name = "NODES", value_parser = values::host_list)]
    pub(crate) resume: Option<HostList>,

    /// Start the daemons of further nodes, or those of bad nodes again: `n5,n6:4`
    ///
    /// Nodes and slots are written as for --host. ssh and all that belongs to it is as it was for `rally up`, but the agent is that of
    /// this login. ssh asks nothing.
    #[arg(long, value_name = "HOSTS", conflicts_with_all = ["drain", "resume"])]
    pub(crate) add: Option<String>,

    /// The same with the nodes of a host file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["add", "drain", "resume"])]
    pub(crate) add_hostfile: Option<PathBuf>,

    /// End the daemons of these nodes, on which no job runs
    #[arg(long, value_name = "NODES", value_parser = values::host_list, conflicts_with_all = ["add", "add_hostfile", "drain", "resume"])]
    pub(crate) drop: Option<HostList>,

    /// With --drop: end the jobs on these nodes
    #[arg(long, conflicts_with = "wait")]
    pub(crate) now: bool,

    /// With --drop: start no further jobs there, and wait until the running ones have ended
    #[arg(long)]
    pub(crate) wait: bool,

    /// Go on, and show the list again whenever it changes
    #[arg(long, conflicts_with_all = ["add", "add_hostfile", "drop", "drain", "resume"])]
    pub(crate) watch: bool,

    #[command(flatten)]
    pub(crate) which: MachineArgs,
}

/// `rally page`.
#[derive(Clone, Debug, Args)]
pub(crate) struct PageArgs {
    /// Port of the page on the loopback interface [default: a free one]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1024..))]
    pub(crate) port: Option<u16>,

    #[command(flatten)]
    pub(crate) which: MachineArgs,
}
