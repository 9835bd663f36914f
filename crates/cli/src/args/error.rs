//! Errors in a command line, and their messages.

use std::{fmt, path::PathBuf};

use base::HostList;
use dvm::{
    alloc::AllocError,
    place::{PolicyError, RankfileError},
};
use message::{Kind, Message};
use thiserror::Error;

use super::{
    Personality,
    launch::error::{LaunchError, Position, place},
    slurm_batch::NotForSlurm,
};
use crate::files::ReadProblem;
use crate::help::topics::{COMMANDS, topic_names};
use crate::{
    config::{ConfigError, Source},
    exit::ExitCode,
};
use crate::{kinds as k, quoting::Open, values::ValueError};

/// Why a command line, with everything that it refers to, cannot become a request.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum Error {
    #[error("there is no option `{option}`")]
    UnknownOption {
        option: String,
        /// The start of the command line, such as `rally run`.
        command: String,
        nearest: Option<String>,
        elsewhere: Option<Elsewhere>,
    },
    #[error("`{option}` needs a value")]
    MissingValue { option: String },
    #[error("`{option}` takes no value, but was given `{value}`")]
    UnexpectedValue { option: String, value: String },
    #[error("`{option}` cannot be `{value}`: {reason}")]
    BadValue {
        option: String,
        value: String,
        reason: ValueError,
    },
    #[error("`{option}` means different things to different launchers")]
    TwoMeanings {
        option: String,
        meanings: &'static [Meaning],
    },
    #[error("`{option}` is not supported: {why}")]
    NotOffered { option: String, why: NotOffered },
    #[error("there is no personality `{name}`")]
    UnknownPersonality {
        name: String,
        nearest: Option<String>,
    },
    #[error("there is no command `{name}`")]
    UnknownCommand {
        name: String,
        nearest: Option<String>,
        looks: LooksLike,
    },
    #[error("no command was given")]
    NoCommand,
    #[error("no program was given")]
    NoProgram {
        app: usize,
        apps: usize,
        command: &'static str,
    },
    #[error("`{first}` and `{second}` cannot be used together")]
    Together {
        first: String,
        second: String,
        why: &'static str,
    },
    #[error("`{}` cannot be translated for Slurm", .0.option)]
    NotForSlurm(Box<NotForSlurm>),
    #[error(
        "`{option}` applies to the whole job, but app {app} has `{value}` and an earlier app has `{before}`"
    )]
    SaidTwice {
        option: String,
        app: usize,
        value: String,
        before: String,
    },
    #[error("more than {max} apps in one job")]
    TooManyApps { max: usize },
    #[error("there is no help on `{subject}`")]
    NoSuchTopic {
        subject: String,
        nearest: Option<String>,
    },
    #[error("cannot read {what} `{path}`: {problem}", path = .path.display())]
    Unreadable {
        what: FileKind,
        path: PathBuf,
        problem: ReadProblem,
    },
    #[error("cannot write the process number to `{path}`: {problem}", path = .path.display())]
    Unwritable {
        path: PathBuf,
        /// The text of an [`os::NotWritten`].
        problem: String,
    },
    #[error("cannot record: {problem}")]
    NotRecorded {
        /// The text of an [`os::Error`], which names the file.
        problem: String,
    },
    #[error("cannot read {what} `{path}`, line {line}: {problem}", path = .path.display())]
    BadAppFile {
        what: FileKind,
        path: PathBuf,
        line: usize,
        problem: AppFileProblem,
    },
    #[error(transparent)]
    Config(Box<ConfigError>),
    #[error(transparent)]
    Launch(Box<LaunchError>),
    /// A mistake of the command line for which a launch configuration stands.
    #[error("{error}")]
    InLaunch {
        path: PathBuf,
        at: Option<Position>,
        error: Box<Self>,
    },
    /// An invalid policy, with the option or setting that contains it.
    #[error("{error}")]
    Policy {
        error: Box<PolicyError>,
        from: Source,
    },
    #[error("the policy `{policy}` needs a file")]
    MissingFile { policy: &'static str },
    #[error(transparent)]
    Rankfile(RankfileError),
    #[error(transparent)]
    Nodes(AllocError),
    #[error("`{option}` needs {}, but the job has only `{nodes}`", counted(*least))]
    TooFewNodes {
        option: String,
        least: u32,
        nodes: HostList,
    },
    #[error("`{option}` leaves no node of `{nodes}`")]
    NoNodeLeft { option: String, nodes: HostList },
    #[error("the current directory cannot be found: {problem}")]
    NoDirectory { problem: ReadProblem },
    #[error("`{name}` is a resource of the machine and of nodes")]
    TwoResources { name: String },
    #[error("more than {max} kinds of resources")]
    TooManyResources { max: usize },
    #[error("two files to copy would both be `{name}`", name = .name.display())]
    SameName {
        name: PathBuf,
        first: PathBuf,
        second: PathBuf,
    },
    #[error("this node has no network `{}`", wanted.join(","))]
    NoNetwork {
        option: String,
        wanted: Vec<String>,
        there: String,
    },
    #[error("cannot list the network interfaces of this node: {problem}")]
    NoAddresses { problem: ReadProblem },
    #[error("no port is free for `--torch`: {problem}")]
    NoPort { problem: ReadProblem },
}

/// One of several meanings of a spelling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Meaning {
    /// The launcher that gives the spelling this meaning.
    pub(crate) whose: &'static str,
    pub(crate) what: &'static str,
    /// Our own spelling for this meaning.
    pub(crate) ours: &'static str,
}

/// Another name of the launcher under which an unknown option would be accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Elsewhere {
    pub(crate) personality: Personality,
    /// Our own spelling for the option, if there is one.
    pub(crate) meaning: Option<String>,
}

/// Why an option of another launcher is refused. A job that ignores it would differ from what the user requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotOffered {
    HetGroups,
    NoAllocation,
    Machine,
    LauncherAddress,
    RankMap,
    Distance,
    MemoryBinding,
    IndexedNames,
    PrependPattern,
    ProcTable,
    Xml,
    Xterm,
    Debugger,
    LibraryTools,
    Bootstrap,
    Queue,
    Detached,
    NodesOfMachine,
    OtherJob,
    OtherUser,
    Wrapped,
    Container,
    Restarts,
    MpiType,
    GpuChoice,
    ProgramCopies,
}

impl NotOffered {
    const fn help(self) -> Option<&'static str> {
        Some(match self {
            Self::HetGroups => "leave it out: the job uses the nodes of all components",
            Self::NoAllocation => "leave it out, or use `ssh`",
            Self::Machine => "`rally up` starts one, and `--on-machine` uses it (docs/machine.md)",
            Self::LauncherAddress => "leave it out: ranks of one job find each other without it",
            Self::Distance => "use `--map-by numa` or `--map-by package`",
            Self::MemoryBinding => {
                "leave it out: memory is allocated where it is first used; or start the program with `numactl`"
            }
            Self::IndexedNames => "programs find their number in RALLY_RANK",
            Self::ProcTable => "`dbgr` finds the procs of a running job by itself",
            Self::LibraryTools => "leave it out, or use the launcher of Intel MPI",
            Self::Queue => "use `rally submit` on a machine (docs/machine.md)",
            Self::Detached => "leave it out, or use `rally run`",
            Self::NodesOfMachine => {
                "leave it out: `rally up` says which nodes there are, and how they are reached"
            }
            Self::OtherJob => "start it inside of that job",
            Self::OtherUser => "put `sudo -u USER` before the whole command",
            Self::Wrapped => "start a script that does it: `./before-and-after.sh PROGRAM`",
            Self::Container => "start the program of the container: `apptainer exec IMAGE PROGRAM`",
            Self::Restarts => "leave it out, or give 0",
            Self::MpiType => "leave it out; `srun --mpi=list` lists the known ones",
            Self::GpuChoice => "use `--gpus-per-proc N`, or set CUDA_VISIBLE_DEVICES in a script",
            Self::ProgramCopies => {
                "name a directory, with a slash at its end: `--bcast=/tmp/`; or leave the path out"
            }
            Self::RankMap => {
                "write a rankfile and use `--map-by rankfile:FILE=NAME` (`rally help placement`)"
            }
            Self::PrependPattern => {
                "use `--label` (rank) or `--label=full` (job, rank, host and stream)"
            }
            Self::Xml => "use `--json`",
            Self::Xterm => "use `--pty=RANK` for one rank, or `--output-file out.%r` for files",
            Self::Debugger => "start with `--stop-on-exec`, then attach (`rally help debugging`)",
            Self::Bootstrap => "leave it out, or use `ssh`, `slurm`, `pbs`, `lsf` or `fork`",
        })
    }
}

impl fmt::Display for NotOffered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::HetGroups => "components of heterogeneous jobs cannot be chosen",
            Self::NoAllocation => "the nodes do not belong to an allocation of it",
            Self::Machine => "a persistent launcher is not found by its address",
            Self::LauncherAddress => "the launcher has no address for other programs",
            Self::Distance => "the distance to devices is not known",
            Self::MemoryBinding => "memory is not bound",
            Self::IndexedNames => "a program has the same name in all its procs",
            Self::ProcTable => "no table of procs is printed",
            Self::LibraryTools => "it needs the tools of Intel MPI",
            Self::Queue => "jobs of `rally run` start immediately",
            Self::Detached => "nobody waits for the job, with a terminal or a debugger",
            Self::NodesOfMachine => "the job runs on the nodes of a machine",
            Self::OtherJob => "procs are started on this node, and not in another job's allocation",
            Self::OtherUser => "procs run as the user who starts them",
            Self::Wrapped => "nothing is run before or after the procs",
            Self::Container => "procs are not put into containers",
            Self::Restarts => "procs that have failed are not started again",
            Self::MpiType => "ranks can use PMI-1, PMI-2 and PMIx only",
            Self::GpuChoice => "GPUs are assigned by number only",
            Self::ProgramCopies => {
                "a program is copied into a directory of the job, not to a name of yours"
            }
            Self::RankMap => "the rank maps of Hydra are not read",
            Self::PrependPattern => "labels have fixed forms",
            Self::Xml => "output is text or JSON lines",
            Self::Xterm => "no windows are opened",
            Self::Debugger => "debuggers are not started from here",
            Self::Bootstrap => "this version does not start daemons in this way",
        })
    }
}

/// What the user may have meant by a word in the place of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LooksLike {
    Nothing,
    /// It contains a slash, or only options precede it.
    Program,
    /// It begins with a hyphen.
    Option,
}

/// The kind of file that could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    HostFile,
    NodeFile,
    AppFile,
    RankFile,
    SequenceFile,
    ProgramFile,
    TuneFile,
    ExcludeFile,
    Input,
    Preload,
    PreloadProgram,
    ToolFiles,
    JobFile,
    Launch,
}

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::HostFile => "the host file",
            Self::NodeFile => "the file with the nodes of the allocation",
            Self::AppFile => "the app file",
            Self::RankFile => "the rankfile",
            Self::SequenceFile => "the sequence file",
            Self::ProgramFile => "the file of programs",
            Self::TuneFile => "the file of parameters",
            Self::ExcludeFile => "the file of hosts not to use",
            Self::Input => "the input file",
            Self::Preload => "the file to copy",
            Self::PreloadProgram => "the program to copy",
            Self::ToolFiles => "the list of files to copy",
            Self::JobFile => "the file of jobs",
            Self::Launch => "the launch configuration",
        })
    }
}

impl FileKind {
    /// Returns the option that names the file, without hyphens. `None` if several can.
    pub(super) const fn option(self) -> Option<&'static str> {
        match self {
            Self::HostFile => Some("hostfile"),
            Self::AppFile => Some("app"),
            Self::TuneFile => Some("tune"),
            Self::ExcludeFile => Some("exclude"),
            Self::Input => Some("input"),
            Self::Preload => Some("preload-files"),
            Self::PreloadProgram => Some("preload-binary"),
            Self::ToolFiles => Some("tool-files"),
            Self::RankFile | Self::SequenceFile => Some("map-by"),
            Self::NodeFile | Self::ProgramFile | Self::JobFile | Self::Launch => None,
        }
    }
}

/// An error in an app file.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum AppFileProblem {
    #[error(transparent)]
    Open(#[from] Open),
    #[error("{0}")]
    Line(Box<Error>),
    #[error("an app file cannot name another one")]
    Nested,
    #[error("it names no program")]
    NoProgram,
    #[error("a line of `--multi-prog` begins with ranks (`0,4-7`) or `*`")]
    NotRanks,
    #[error("there is no line for rank {0}")]
    RankMissing(u32),
    #[error("there is another line for rank {0}")]
    RankTwice(u32),
    #[error("the job has no rank {rank}: its size is {size}")]
    NoSuchRank { rank: u32, size: u32 },
    #[error("the line of `*` is for all remaining ranks, and must be the last")]
    AfterRest,
    #[error("a line is `-mca NAME VALUE`, `-x NAME=VALUE` or `NAME = VALUE`")]
    NotTuning,
}

impl Error {
    /// Returns the exit code of a run with this error.
    pub(crate) fn exit(&self) -> ExitCode {
        match self {
            Self::Unreadable {
                what: FileKind::PreloadProgram,
                problem,
                ..
            } if problem.is_absence() => ExitCode::NotFound,
            Self::Unreadable { .. }
            | Self::Unwritable { .. }
            | Self::NotRecorded { .. }
            | Self::BadAppFile { .. }
            | Self::Config(_)
            | Self::Launch(_)
            | Self::InLaunch { .. }
            | Self::Rankfile(_) => ExitCode::BadFile,
            Self::Policy {
                from: Source::File { .. },
                ..
            } => ExitCode::BadFile,
            Self::Nodes(error) if error.line.is_some() => ExitCode::BadFile,
            Self::NoDirectory { .. } | Self::NoPort { .. } | Self::NoAddresses { .. } => {
                ExitCode::Resources
            }
            Self::TooFewNodes { .. } | Self::NoNodeLeft { .. } => ExitCode::Placement,
            _ => ExitCode::Usage,
        }
    }

    /// Returns the message, which can be printed as text or as JSON.
    #[expect(clippy::too_many_lines, reason = "one arm for each mistake")]
    pub(crate) fn message(&self) -> Message {
        match self {
            Self::UnknownOption {
                command,
                nearest,
                elsewhere,
                ..
            } => {
                let mut message = self.of(&k::UNKNOWN_OPTION);
                if let Some(elsewhere) = elsewhere {
                    let name = elsewhere.personality.name();
                    message = match &elsewhere.meaning {
                        Some(meaning) => message.fact(name, format!("there it means {meaning}")),
                        None => message.fact(name, "has an option of this name"),
                    };
                    message = message.with_help(match (&elsewhere.meaning, nearest) {
                        (Some(meaning), _) => {
                            format!("use {meaning}, or `--personality {name}` before it")
                        }
                        (None, _) => format!("put `--personality {name}` before it"),
                    });
                    return message;
                }
                message.with_help(match nearest {
                    Some(nearest) => format!("did you mean `{nearest}`?"),
                    None => format!("`{command} -h` lists the options"),
                })
            }
            Self::MissingValue { option } => self
                .of(&k::MISSING_VALUE)
                .with_help(format!("give it one: `{option} VALUE`")),
            Self::UnexpectedValue { option, .. } => self
                .of(&k::UNEXPECTED_VALUE)
                .with_help(format!("write `{option}` alone")),
            Self::BadValue { option, reason, .. } => {
                let message = self.of(&k::BAD_VALUE);
                match reason {
                    ValueError::NoProcs | ValueError::NoNodes | ValueError::NoCpus => {
                        let without = if option.starts_with('-') {
                            format!("leave `{option}` out")
                        } else {
                            format!("unset {option}")
                        };
                        message.with_help(format!("give 1 or more, or {without}"))
                    }
                    ValueError::BadVariable
                    | ValueError::NoSeparator
                    | ValueError::NoAssignment => {
                        message.with_help("`rally help environment` shows the forms")
                    }
                    ValueError::Pattern(_) | ValueError::OwnPattern(_) => {
                        message.with_help("`rally help output` lists the letters of patterns")
                    }
                    _ => message,
                }
            }
            Self::TwoMeanings { meanings, option } => {
                let mut message = self.of(&k::TWO_MEANINGS);
                for meaning in *meanings {
                    message = message.fact(
                        meaning.whose,
                        format!("{}: here {}", meaning.what, meaning.ours),
                    );
                }
                let first = meanings.first().map_or("mpirun", |meaning| meaning.whose);
                if Personality::from_name(first).is_some() {
                    message.with_help(format!(
                        "use a spelling named above, or put `--personality {first}` before `{option}`"
                    ))
                } else {
                    message.with_help("use a spelling named above")
                }
            }
            Self::NotOffered { why, .. } => match why.help() {
                Some(help) => self.of(&k::NOT_OFFERED).with_help(help),
                None => self.of(&k::NOT_OFFERED),
            },
            Self::UnknownPersonality { nearest, .. } => {
                let names = Personality::ALL.map(Personality::name).join(", ");
                let message = self.of(&k::UNKNOWN_PERSONALITY).fact("known", names);
                did_you_mean(message, nearest.as_deref())
            }
            Self::UnknownCommand {
                name,
                nearest,
                looks,
            } => {
                let message = self
                    .of(&k::UNKNOWN_COMMAND)
                    .fact("known", COMMANDS.join(", "));
                match (looks, nearest) {
                    (LooksLike::Nothing, Some(nearest)) => did_you_mean(message, Some(nearest)),
                    (LooksLike::Option, _) => message.with_help(format!(
                        "options of a job follow `run`: `rally run {name} ...`"
                    )),
                    _ => message.with_help(format!("to start a program: `rally run {name}`")),
                }
            }
            Self::NoCommand => self
                .of(&k::NO_COMMAND)
                .with_help("`rally run -n 4 PROGRAM`; `rally -h` for more"),
            Self::NoProgram { app, apps, command } => {
                let mut message = self.of(&k::NO_PROGRAM);
                if *apps > 1 {
                    message = message.fact("app", format!("number {app} of {apps}"));
                }
                message.with_help(format!("`{command} -n 4 PROGRAM`; `{command} -h` for more"))
            }
            Self::Together { why, .. } => self.of(&k::TOGETHER).with_help(*why),
            Self::NotForSlurm(refused) => self
                .of(&k::NOT_FOR_SLURM)
                .fact("reason", refused.why.reason())
                .with_help(refused.why.help()),
            Self::SaidTwice { .. } => self
                .of(&k::SAID_TWICE)
                .with_help("give it once, before the first program"),
            Self::TooManyApps { .. } => self.of(&k::TOO_MANY_APPS),
            Self::NoSuchTopic { nearest, .. } => {
                let message = self
                    .of(&k::NO_SUCH_TOPIC)
                    .fact("topics", topic_names().join(", "));
                did_you_mean(message, nearest.as_deref())
            }
            Self::Unreadable { what, problem, .. } => {
                let message = self
                    .of(&k::UNREADABLE)
                    .fact("effect", "the job was not started");
                match (what, problem) {
                    (FileKind::Preload, ReadProblem::Directory) => message
                        .with_help("name the files in it, or copy an archive and unpack it there"),
                    _ => message,
                }
            }
            Self::TwoResources { .. } => self
                .of(&k::BAD_VALUE)
                .with_help("give one of them another name: jobs ask for both in other ways"),
            Self::TooManyResources { .. } => self.of(&k::BAD_VALUE).with_help("declare fewer"),
            Self::SameName { first, second, .. } => self
                .of(&k::SAME_NAME)
                .fact("first", format!("`{}`", first.display()))
                .fact("second", format!("`{}`", second.display()))
                .fact("effect", "the job was not started")
                .with_help("give one of them another name, or leave one out"),
            Self::Unwritable { .. } => self
                .of(&k::UNWRITABLE)
                .fact("effect", "the job was not started"),
            Self::NotRecorded { .. } => self
                .of(&k::NOT_RECORDED)
                .fact("effect", "the job was not started")
                .with_help("name a file that can be written: `--record FILE`"),
            Self::BadAppFile { problem, .. } => {
                let message = self.of(&k::BAD_APP_FILE);
                match problem {
                    AppFileProblem::Line(error) => {
                        let inner = error.message();
                        let mut message = message;
                        message.facts.extend(inner.facts);
                        message.help = inner.help;
                        message
                    }
                    _ => message.with_help("`rally help mpmd` shows the form"),
                }
            }
            Self::Config(error) => error.message(),
            Self::Launch(error) => error.message(),
            Self::InLaunch { path, at, error } => {
                let mut message = error.message();
                message.facts.retain(|(name, _)| *name != "from");
                message.facts.insert(0, ("from", place(path, *at)));
                // The help is about options and variables.
                let is_zero = matches!(
                    **error,
                    Self::BadValue {
                        reason: ValueError::NoProcs | ValueError::NoNodes | ValueError::NoCpus,
                        ..
                    }
                );
                match is_zero {
                    true => message.with_help("give 1 or more, or leave the key out"),
                    false => message,
                }
            }
            Self::Policy { error, from } => {
                let message = from_lines(&k::BAD_POLICY, &error.to_string());
                match from {
                    Source::CommandLine(option) if option.starts_with('-') => message,
                    Source::CommandLine(variable) => {
                        message.fact("from", format!("environment, {variable}"))
                    }
                    other => message.fact("from", other.to_string()),
                }
            }
            Self::MissingFile { policy } => self
                .of(&k::BAD_POLICY)
                .with_help(format!("name it: `--map-by {policy}:FILE=NAME`")),
            Self::Rankfile(error) => from_lines(&k::BAD_RANKFILE, &error.to_string()),
            Self::Nodes(error) => from_lines(&k::BAD_NODES, &error.to_string()),
            Self::TooFewNodes { .. } => self
                .of(&k::TOO_FEW_NODES)
                .with_help("name more with `--host`, or start it inside of a larger allocation"),
            Self::NoNodeLeft { .. } => self
                .of(&k::NO_NODE_LEFT)
                .with_help("name other nodes with `--host`, or leave the option out"),
            Self::NoDirectory { .. } => self
                .of(&k::NO_DIRECTORY)
                .with_help("change to a directory that exists"),
            Self::NoNetwork { option, there, .. } => self
                .of(&k::NO_NETWORK)
                .fact("option", format!("`{option}`"))
                .fact("there", there)
                .with_help(
                    "name an interface, an address or a network (`10.1.0.0/16`) of this node",
                ),
            Self::NoAddresses { .. } => self
                .of(&k::NO_NETWORK)
                .with_help("leave out `--if-include`: then all of them are used"),
            Self::NoPort { .. } => self
                .of(&k::NO_PORT)
                .with_help("choose one: `--set-env MASTER_PORT=NUMBER`"),
        }
    }

    fn of(&self, kind: &Kind) -> Message {
        Message::new(kind, self.to_string())
    }
}

fn counted(nodes: u32) -> String {
    match nodes {
        1 => "1 node".to_owned(),
        more => format!("{more} nodes"),
    }
}

/// Adds a suggestion to a message, if there is one.
pub(crate) fn did_you_mean(message: Message, nearest: Option<&str>) -> Message {
    match nearest {
        Some(nearest) => message.with_help(format!("did you mean `{nearest}`?")),
        None => message,
    }
}

/// Returns a message from a text: its first line is the headline, the other lines are `name: value`.
fn from_lines(kind: &Kind, text: &str) -> Message {
    let mut lines = text.lines();
    let mut message = Message::new(kind, lines.next().unwrap_or_default());
    for line in lines {
        let value = line.trim();
        message = match value.strip_prefix("help:") {
            Some(help) => message.with_help(help.trim()),
            None => message.fact("detail", value),
        };
    }
    message
}
