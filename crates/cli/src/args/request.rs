//! The complete request of a command line, which needs no further lookups.

pub(crate) mod launch;
pub(crate) mod machine;
pub(crate) mod proxy;
pub(crate) mod slurm;

use std::{collections::BTreeSet, ffi::OsString, fmt, num::NonZeroU8, path::PathBuf};

use base::{HostList, RankSet};
use dvm::{alloc::Allocation, bootstrap::DaemonPlan, proto::OnePer, spec::JobSpec};
use message::Message;

use self::{
    launch::{LaunchRequest, NewLaunch},
    machine::MachineRequest,
    proxy::ProxyRequest,
    slurm::SlurmRequest,
};
use super::Generated;
use crate::kinds as k;

use crate::choices::{OnHang, OnLoss};
use crate::config::ConfigFile;
use crate::{
    config::{Found, Layers},
    help::topics::HelpTopic,
    tool::Tools,
    values::JobName,
};

/// What `rally` has to do.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    Run(Box<RunRequest>),
    /// Run the built-in program.
    Demo(Box<RunRequest>),
    /// Serve the program that has started this process, unless the pid shows that a wrapper did. The pid is that of the
    /// child which the program forked.
    Singleton(Box<RunRequest>, u32),
    Config(ConfigRequest),
    MpirCheck(CheckRequest),
    Proxy(Box<ProxyRequest>),
    Release(ReleaseRequest),
    StartTool(Box<StartToolRequest>),
    Launch(Box<LaunchRequest>),
    NewLaunch(NewLaunch),
    Machine(MachineRequest),
    Slurm(SlurmRequest),
    Help(HelpTopic),
    Generate(Generated),
    Version,
    /// Print the interfaces between ranks and launcher, in the form of `srun --mpi=list`.
    MpiTypes,
}

/// The argument that makes our own program the daemon of another node.
pub(crate) const DAEMON_ARGUMENT: &str = "__daemon";
/// The argument that makes `dbgr` start agents through a job. The socket of the job's controller follows.
pub(crate) const THROUGH_ARGUMENT: &str = "__through";
/// The argument that makes our own program a daemon that `rally mpir-check` asks a launcher for.
pub(crate) const MPIR_DAEMON_ARGUMENT: &str = "__mpir-daemon";
/// The argument that makes our own program a rank of the demo.
pub(crate) const DEMO_ARGUMENT: &str = "__demo";
/// The argument that makes our own program stand in for a program that was started without a launcher. Its port follows.
pub(crate) const SINGLETON_ARGUMENT: &str = "__singleton";

/// A job and how its front behaves.
#[derive(Clone, Debug)]
pub(crate) struct RunRequest {
    pub(crate) spec: JobSpec,
    pub(crate) allocation: Allocation,
    /// How the daemons of other nodes are started. `None` if this node is the only one, and no other can follow.
    pub(crate) daemons: Option<DaemonPlan>,
    /// By what the daemons are started, and why. `None` if that needs no explanation.
    pub(crate) started_by: Option<String>,
    pub(crate) front: FrontOptions,
    pub(crate) show: Show,
    /// The machine that the command line or a setting names; `none` is none.
    pub(crate) machine: Option<String>,
    /// The hosts that the command line names; `None` if it names none.
    pub(crate) hosts: Option<HostList>,
    /// Messages to print once, before the job starts.
    pub(crate) notices: Vec<Notice>,
}

impl RunRequest {
    /// Returns how daemons are started before the job; `None` if this node is the only one.
    pub(crate) fn daemons_before(&self) -> Option<&DaemonPlan> {
        let daemons = self.daemons.as_ref();
        daemons.filter(|plan| !plan.commands.is_empty())
    }
}

/// What to show before the start, and whether to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Show {
    Run,
    RunAndReport(BTreeSet<Report>),
    /// Start nothing.
    DryRun {
        detail: Detail,
        reports: BTreeSet<Report>,
    },
    /// Show the map with the reasons, from the processors that the nodes have; start no rank.
    Explain(BTreeSet<Report>),
}

/// Something to show about a job's placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Report {
    Allocation,
    Map,
    Bindings,
}

/// How much a dry run prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detail {
    /// Which ranks would run where.
    Map,
    /// Which ranks would run where, with the reasons.
    Reasons,
}

/// How the front reads, prints and reacts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FrontOptions {
    pub(crate) input: InputSource,
    pub(crate) label: Label,
    pub(crate) timestamps: Timestamps,
    pub(crate) format: Format,
    pub(crate) on_hang: OnHang,
    /// Options with which `dbgr watch` reaches the nodes of the job.
    pub(crate) watch: Vec<String>,
    pub(crate) on_hangup: OnLoss,
    pub(crate) on_output_closed: OnLoss,
    pub(crate) verbosity: Verbosity,
    pub(crate) message_format: MessageFormat,
    /// The destination of our pid.
    pub(crate) report_pid: Option<PidChannel>,
    /// The file for a recording, as typed.
    pub(crate) record: Option<PathBuf>,
    pub(crate) exit_codes: ExitCodes,
    /// The exit code for our own errors, if the user has set one.
    pub(crate) exit_error: Option<NonZeroU8>,
    pub(crate) tools: Tools,
}

/// A destination for our pid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PidChannel {
    Stdout,
    Stderr,
    File(PathBuf),
}

/// Whether the exit codes of all ranks are printed at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExitCodes {
    Kept,
    Printed,
}

/// The source of the ranks' stdin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum InputSource {
    /// Our own standard input.
    Inherit,
    /// This file, by its absolute path. It could be opened when the request was made.
    File(PathBuf),
    /// Nothing.
    Null,
}

/// The label at the start of each line of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Label {
    None,
    Rank,
    /// Job, rank, host name and stream.
    Full,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timestamps {
    Off,
    On,
}

/// The form of the ranks' output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Raw,
    JsonLines,
}

/// The format of our own messages.
pub(crate) use message::Format as MessageFormat;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verbosity {
    /// Errors only.
    Quiet,
    Normal,
    Verbose,
}

/// `rally config`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfigRequest {
    pub(crate) layers: Layers,
    /// The files that were looked for, in ascending order of precedence.
    pub(crate) files: Vec<ConfigFile>,
    pub(crate) format: MessageFormat,
}

/// A remark about a request, which does not stop the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// Options without effect, as typed.
    Ignored(Vec<String>),
    /// Variables that were to be passed on but are not set.
    NotSet(Vec<String>),
    /// A configuration file of the site that cannot be read, and is therefore ignored.
    Unreadable(ConfigFile),
}

/// The most names that a notice lists; further ones are only counted.
const LISTED: usize = 4;

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (before, names, after) = match self {
            Self::Ignored(names) => ("ignored, since it has no effect here: ", names, ""),
            Self::NotSet(names) => ("cannot pass on ", names, ": not set in our environment"),
            Self::Unreadable(_) => {
                return f.write_str("cannot read the site's configuration file");
            }
        };
        f.write_str(before)?;
        for (position, name) in names.iter().take(LISTED).enumerate() {
            let joint = if position == 0 { "" } else { ", " };
            write!(f, "{joint}`{name}`")?;
        }
        if names.len() > LISTED {
            write!(f, " and {} more", names.len() - LISTED)?;
        }
        f.write_str(after)
    }
}

impl Notice {
    /// Returns the message, which can be printed as text or as JSON.
    pub(crate) fn message(&self) -> Message {
        let kind = match self {
            Self::Ignored(_) => &k::IGNORED,
            Self::NotSet(_) => &k::NOT_SET,
            Self::Unreadable(_) => &k::SITE_CONFIG,
        };
        let message = Message::new(kind, self.to_string());
        match self {
            Self::Unreadable(file) => {
                let message = message.fact("from", file.path.display().to_string());
                let message = match file.found {
                    Found::Unreadable(problem) => message.fact("reason", problem.to_string()),
                    Found::Yes | Found::No => message,
                };
                message
                    .fact("effect", "its settings are ignored")
                    .with_help(
                        "ask the administrator of this machine to make it readable for all users",
                    )
            }
            Self::Ignored(_) | Self::NotSet(_) => message,
        }
    }
}

/// A tool beside the ranks of a running job.
#[derive(Clone, Debug)]
pub(crate) struct StartToolRequest {
    pub(crate) job: JobName,
    /// The machine of the job, if the command line names one.
    pub(crate) machine: Option<String>,
    pub(crate) one_per: OnePer,
    /// What the tool is. The controller of the job adds what the ranks have.
    pub(crate) spec: JobSpec,
    pub(crate) front: FrontOptions,
}

/// `rally mpir-check`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CheckRequest {
    pub(crate) options: debug::mpir::check::Options,
    /// The launcher and its arguments; not empty.
    pub(crate) words: Vec<OsString>,
    pub(crate) format: MessageFormat,
}

/// The held job of a machine, or the ranks, to release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReleaseRequest {
    /// The job. `None` means the only job with held ranks.
    pub(crate) job: Option<JobName>,
    /// The machine of the job, if the command line names one: then no ranks are meant.
    pub(crate) machine: Option<String>,
    /// The ranks. `None` means all held ranks.
    pub(crate) ranks: Option<RankSet>,
    /// The format of the answer.
    pub(crate) format: MessageFormat,
}
