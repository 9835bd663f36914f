//! The command line: turns its words into a [`Request`] that needs no further lookups.
//!
//! This takes two steps. [`parse`] turns the words into [`Args`], as typed, and consults nothing else. [`resolve()`]
//! consults the [`World`] (environment, files, terminal) and the settings, and returns the request. In between, [`compat`]
//! translates the spellings of Open MPI, MPICH and Slurm into our own, which clap then parses.

mod agents;
mod app_file;
mod batch;
pub(crate) mod compat;
mod daemons;
mod define;
mod environment;
pub(crate) mod error;
mod gpus;
mod granted;
mod inputs;
pub(crate) mod launch;
mod machine;
mod multi_prog;
mod nodes;
mod personality;
mod placement;
mod preload;
pub(crate) mod request;
mod resolve;
mod run_options;
mod slurm_batch;
mod slurm_files;
mod slurm_job;
mod slurm_line;
mod stdio;
mod tool;
mod tool_files;
mod tune;
mod world;

use std::{
    ffi::{OsStr, OsString},
    num::NonZeroU8,
    path::Path,
};

use clap::{
    Command, CommandFactory, FromArgMatches, Parser,
    error::{ContextKind, ContextValue, ErrorKind},
};

pub(crate) use self::{
    agents::{AgentArgs, Starter},
    daemons::described,
    define::{
        ReleaseArgs, StartToolArgs,
        about::{ConfigArgs, DemoArgs, Generated, LaunchArgs, MpirCheckArgs},
        proxy::ProxyArgs,
    },
    environment::{is_of_a_host, of_node},
    error::Error,
    personality::Personality,
    request::{
        CheckRequest, ConfigRequest, DAEMON_ARGUMENT, DEMO_ARGUMENT, Detail, ExitCodes, Format,
        FrontOptions, InputSource, Label, MPIR_DAEMON_ARGUMENT, MessageFormat, Notice, PidChannel,
        ReleaseRequest, Report, Request, RunRequest, SINGLETON_ARGUMENT, Show, THROUGH_ARGUMENT,
        Timestamps, Verbosity,
    },
    resolve::{of_agents, resolve},
    slurm_batch::{COMMENT, slurm_indexes},
    world::{SLURM_NODE, World},
};
use self::{
    compat::{Asks, Canonical, Segment, Translation, translate},
    define::{AppArgs, Cli, CliCommand, JobArgs},
    environment::EnvRules,
    error::LooksLike,
    machine::MachineLine,
    run_options::{Repeats, RunOptions},
};
use crate::help::topics::COMMANDS;
use crate::help::topics::HelpTopic;
use crate::values::ValueError;

/// The hidden command for packaging.
const GENERATE: &str = "__generate";

/// A command line as typed.
#[derive(Clone, Debug)]
pub(crate) enum Args {
    Run(Box<RunLine>),
    Demo(DemoArgs),
    MpirCheck(MpirCheckArgs),
    Proxy(ProxyArgs),
    Singleton(SingletonArgs),
    Release(ReleaseArgs),
    StartTool(Box<StartToolArgs>),
    Launch(LaunchArgs),
    Machine(MachineLine),
    Config(ConfigArgs),
    Help(HelpTopic),
    Generate(Generated),
    Version,
    MpiTypes,
}

/// The command line of a job.
#[derive(Clone, Debug)]
pub(crate) struct RunLine {
    pub(crate) personality: Personality,
    /// The apps in the order of the command line. The last may have no program if an app file is given.
    pub(crate) apps: Vec<AppLine>,
    pub(crate) job: JobLine,
    /// Options without any effect here, as typed.
    pub(crate) ignored: Vec<String>,
}

/// The options of the whole job.
#[derive(Clone, Debug)]
pub(crate) struct JobLine {
    pub(crate) args: JobArgs,
    pub(crate) purpose: Purpose,
    typed: Vec<Canonical>,
}

/// What the nodes of a command line are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Job,
    /// Each task of an array runs on some of them.
    Array,
    /// They are a machine, to which others may be added.
    Machine,
}

/// The options of one app.
#[derive(Clone, Debug)]
pub(crate) struct AppLine {
    pub(crate) args: AppArgs,
    pub(crate) environment: EnvRules,
    /// The program and its arguments; empty without a program.
    pub(crate) program: Vec<OsString>,
    typed: Vec<Canonical>,
}

impl JobLine {
    /// Returns an option as the user wrote it.
    pub(crate) fn typed(&self, flag: &str) -> String {
        typed(&self.typed, flag)
    }
}

impl AppLine {
    /// Returns an option as the user wrote it.
    pub(crate) fn typed(&self, flag: &str) -> String {
        typed(&self.typed, flag)
    }
}

fn typed(options: &[Canonical], flag: &str) -> String {
    let last = options.iter().rev().find(|option| option.flag == flag);
    last.map_or_else(|| format!("--{flag}"), |option| option.typed.clone())
}

/// Parses a command line, including `argv[0]`.
///
/// # Errors
///
/// The first mistake in it.
pub(crate) fn parse(argv: &[OsString]) -> Result<Args, Error> {
    let (program, rest) = match argv.split_first() {
        Some((program, rest)) => (program.as_os_str(), rest),
        None => (OsStr::new("rally"), argv),
    };
    let personality = Personality::from_program(program);
    if is_start_tool(program) {
        let words = ["rally", "start-tool"].map(OsString::from);
        return command(&[&words, rest].concat());
    }
    if personality != Personality::Rally {
        if let Some(singleton) = SingletonArgs::of(rest) {
            return Ok(Args::Singleton(singleton));
        }
        return run_line(rest, personality);
    }
    let Some((word, after)) = rest.split_first() else {
        return Err(Error::NoCommand);
    };
    match word.to_str().unwrap_or_default() {
        "run" => run_line(after, personality),
        word @ ("up" | "submit") => machine::parse(word, after),
        "-h" => Ok(Args::Help(HelpTopic::Short)),
        "--help" | "-help" => Ok(Args::Help(HelpTopic::Full)),
        "-V" | "--version" | "-version" => Ok(Args::Version),
        name if name == GENERATE || COMMANDS.contains(&name) => command(argv),
        _ => Err(unknown_command(word)),
    }
}

/// Returns true for the name under which other launchers have the command: `start_tool`.
fn is_start_tool(program: &OsStr) -> bool {
    Path::new(program).file_name() == Some(OsStr::new("start_tool"))
}

/// The arguments of a launcher that an MPICH program calls because it was started without one (a singleton).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SingletonArgs {
    /// The TCP port that the program listens on.
    pub(crate) port: u16,
    /// The pid of the child that the program forked, and that then exec'ed its launcher. It is our own pid, unless a wrapper
    /// is in between.
    pub(crate) process: u32,
}

impl SingletonArgs {
    /// Parses `[-v] -pmi_args PORT INTERFACE KEY PID`: MPICH calls its launcher with these. Interface and key have never
    /// been used.
    fn of(words: &[OsString]) -> Option<Self> {
        let words = match words {
            [verbose, rest @ ..] if verbose == "-v" => rest,
            words => words,
        };
        let [option, port, _interface, _key, process] = words else {
            return None;
        };
        (option == "-pmi_args").then_some(Self {
            port: port.to_str()?.parse().ok()?,
            process: process.to_str()?.parse().ok()?,
        })
    }
}

/// Returns true if a command line looks as if it started a job. This guess precedes parsing, so that the helpers of a job
/// can initialize meanwhile. A wrong guess only costs a little time.
pub(crate) fn looks_like_job(argv: &[OsString]) -> bool {
    let (program, rest) = match argv.split_first() {
        Some((program, rest)) => (program.as_os_str(), rest),
        None => return false,
    };
    let words = match (Personality::from_program(program), rest.split_first()) {
        (_, None) => return false,
        (Personality::Rally, Some((word, after))) if word == "run" => after,
        (Personality::Rally, Some(_)) => return false,
        (_, Some(_)) => rest,
    };
    let asks = |word: &OsString| {
        word.to_str().is_some_and(|word| {
            matches!(
                word.trim_start_matches('-'),
                "dry-run" | "help" | "h" | "version" | "V"
            ) && word.starts_with('-')
        })
    };
    !words.is_empty() && !words.iter().any(asks)
}

/// Returns the format for errors in a command line. JSON if it was requested before the program's name, as far as that
/// position can be found in a line with errors.
pub(crate) fn message_format(argv: &[OsString]) -> MessageFormat {
    let words = argv
        .get(1..)
        .unwrap_or_default()
        .iter()
        .map(|word| word.to_string_lossy());
    let words: Vec<_> = words.skip_while(|word| word == "run").collect();
    let mut before = "-";
    for word in &words {
        let is_json = matches!(word.trim_start_matches('-'), "json" | "message-format=json");
        match (before.trim_start_matches('-'), word.as_ref()) {
            ("message-format", "json") => return MessageFormat::Json,
            _ if word.starts_with('-') && is_json => return MessageFormat::Json,
            // A word after an option may be its value. A second one is the program.
            _ if !word.starts_with('-') && !before.starts_with('-') => break,
            _ => before = word,
        }
    }
    MessageFormat::Text
}

/// Returns the exit code for an error in a command line.
pub(crate) fn code_of(error: &Error, world: &World) -> u8 {
    let program = world.argv.first().map(OsString::as_os_str);
    let personality = Personality::from_program(program.unwrap_or_default());
    let said = inputs::exit_error(personality, world);
    said.map_or_else(|| error.exit().code(), NonZeroU8::get)
}

fn unknown_command(word: &OsStr) -> Error {
    let name = word.to_string_lossy().into_owned();
    let looks = if name.starts_with('-') {
        LooksLike::Option
    } else if name.contains('/') || name.contains('.') {
        LooksLike::Program
    } else {
        LooksLike::Nothing
    };
    let nearest = message::nearest(&name, COMMANDS.into_iter()).map(str::to_owned);
    Error::UnknownCommand {
        name,
        nearest,
        looks,
    }
}

/// Parses the commands that start no job, with clap alone.
fn command(argv: &[OsString]) -> Result<Args, Error> {
    let words = std::iter::once(OsString::from("rally")).chain(argv.iter().skip(1).cloned());
    match Cli::try_parse_from(words) {
        Ok(cli) => Ok(match cli.command {
            // `parse` handles `run` before it calls this function.
            CliCommand::Run(_) => Args::Help(HelpTopic::RunFull),
            // `parse` handles these too.
            CliCommand::Up(_) => Args::Help(HelpTopic::from_subject("up")),
            CliCommand::Submit(_) => Args::Help(HelpTopic::from_subject("submit")),
            CliCommand::Down(args) => Args::Machine(MachineLine::Down(args)),
            CliCommand::Status(args) => Args::Machine(MachineLine::Status(args)),
            CliCommand::Top(args) => Args::Machine(MachineLine::Top(args)),
            CliCommand::Queue(args) => Args::Machine(MachineLine::Queue(args)),
            CliCommand::Explain(args) => Args::Machine(MachineLine::Explain(args)),
            CliCommand::Hold(args) => Args::Machine(MachineLine::Hold(args)),
            CliCommand::Cancel(args) => Args::Machine(MachineLine::Cancel(args)),
            CliCommand::Signal(args) => Args::Machine(MachineLine::Signal(args)),
            CliCommand::Pause(args) => Args::Machine(MachineLine::Pause(args)),
            CliCommand::Resume(args) => Args::Machine(MachineLine::Resume(args)),
            CliCommand::Usage(args) => Args::Machine(MachineLine::Usage(args)),
            CliCommand::Priority(args) => Args::Machine(MachineLine::Priority(args)),
            CliCommand::Wait(args) => Args::Machine(MachineLine::Wait(args)),
            CliCommand::Output(args) => Args::Machine(MachineLine::Output(args)),
            CliCommand::Nodes(args) => Args::Machine(MachineLine::Nodes(args)),
            CliCommand::Page(args) => Args::Machine(MachineLine::Page(args)),
            CliCommand::Demo(demo) => Args::Demo(demo),
            CliCommand::MpirCheck(check) => Args::MpirCheck(check),
            CliCommand::PtpProxy(proxy) => Args::Proxy(proxy),
            CliCommand::Release(release) => Args::Release(release),
            CliCommand::StartTool(tool) => Args::StartTool(tool),
            CliCommand::Launch(launch) => Args::Launch(launch),
            CliCommand::Config(config) => Args::Config(config),
            CliCommand::Help(asked) => Args::Help(match asked.subject {
                Some(subject) => HelpTopic::from_subject(&subject),
                None => HelpTopic::Full,
            }),
            CliCommand::Generate(generate) => Args::Generate(generate.what),
        }),
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp) => {
            let name = argv
                .get(1)
                .map(|word| word.to_string_lossy().into_owned())
                .unwrap_or_default();
            Ok(Args::Help(HelpTopic::from_subject(&name)))
        }
        Err(error) => {
            let name = argv
                .get(1)
                .map(|word| word.to_string_lossy().into_owned())
                .unwrap_or_default();
            Err(from_clap(&error, &[], &format!("rally {name}")))
        }
    }
}

/// Parses the command line of a job, after `run` or after the name of another launcher.
fn run_line(words: &[OsString], personality: Personality) -> Result<Args, Error> {
    let mut options = RunOptions::define();
    let Translation {
        personality,
        segments,
        ignored,
        asks,
    } = translate(words, personality, options.native())?;
    Ok(match asks {
        Some(Asks::ShortHelp) => Args::Help(HelpTopic::RunShort),
        Some(Asks::FullHelp) => Args::Help(HelpTopic::RunFull),
        Some(Asks::Topic(name)) => Args::Help(HelpTopic::from_subject(&name)),
        Some(Asks::Version) => Args::Version,
        Some(Asks::MpiTypes) => Args::MpiTypes,
        None => {
            let line = read_segments(&mut options, segments, ignored, personality)?;
            Args::Run(Box::new(line))
        }
    })
}

/// Parses segments. Options of the job may be in any segment; options of an app apply to their own segment only.
fn read_segments(
    defined: &mut RunOptions,
    segments: Vec<Segment>,
    ignored: Vec<String>,
    personality: Personality,
) -> Result<RunLine, Error> {
    let (job_options, apps) = split_job_options(defined, segments)?;
    let command = &mut defined.command;
    let (job, _) = read_options::<JobArgs>(command, &job_options, personality)?;
    let several = apps.len();
    let mut lines = Vec::with_capacity(several);
    for (position, segment) in apps.into_iter().enumerate() {
        let (args, environment) = read_options::<AppArgs>(command, &segment.options, personality)?;
        if segment.program.is_empty() && job.app_file.is_none() {
            let command = personality.command();
            return Err(Error::NoProgram {
                app: position + 1,
                apps: several,
                command,
            });
        }
        lines.push(AppLine {
            args,
            environment,
            program: segment.program,
            typed: segment.options,
        });
    }
    Ok(RunLine {
        personality,
        apps: lines,
        job: JobLine {
            args: job,
            purpose: Purpose::Job,
            typed: job_options,
        },
        ignored,
    })
}

/// Moves the options of the job out of all segments. Repeating an option within a segment overrides its earlier value, as
/// wrapper scripts expect; different values in two segments are refused.
fn split_job_options(
    defined: &RunOptions,
    mut segments: Vec<Segment>,
) -> Result<(Vec<Canonical>, Vec<Segment>), Error> {
    let mut job: Vec<(usize, Canonical)> = Vec::new();
    for (position, segment) in segments.iter_mut().enumerate() {
        for option in std::mem::take(&mut segment.options) {
            let Some(repeats) = defined.in_job(&option.flag) else {
                segment.options.push(option);
                continue;
            };
            let before = job
                .iter()
                .find(|(app, other)| *app != position && other.flag == option.flag);
            let differs = |before: &Canonical| before.value != option.value;
            if let Some((_, before)) =
                before.filter(|(_, before)| repeats == Repeats::No && differs(before))
            {
                let show = |value: &Option<OsString>| {
                    value
                        .as_ref()
                        .map(|value| value.to_string_lossy().into_owned())
                        .unwrap_or_default()
                };
                return Err(Error::SaidTwice {
                    app: position + 1,
                    value: show(&option.value),
                    before: show(&before.value),
                    option: option.typed,
                });
            }
            job.push((position, option));
        }
    }
    Ok((
        job.into_iter().map(|(_, option)| option).collect(),
        segments,
    ))
}

/// Returns a parser for only these options. One parser serves all apps, because building one takes longer than using it.
fn command_of<A: clap::Args>() -> Command {
    without_extras(A::augment_args(parser()))
}

/// Returns a parser of options without a program's name before them.
fn parser() -> Command {
    Command::new("run")
        .no_binary_name(true)
        .args_override_self(true)
}

/// Returns a parser without the options that clap adds.
fn without_extras(command: Command) -> Command {
    command.disable_help_flag(true).disable_version_flag(true)
}

/// Parses options in our own spelling with clap. Also returns the environment rules, whose order matters.
fn read_options<A: clap::Args + FromArgMatches>(
    command: &mut Command,
    options: &[Canonical],
    personality: Personality,
) -> Result<(A, EnvRules), Error> {
    let matches = command
        .try_get_matches_from_mut(options.iter().map(Canonical::argument))
        .map_err(|error| from_clap(&error, options, personality.command()))?;
    let args = A::from_arg_matches(&matches)
        .map_err(|error| from_clap(&error, options, personality.command()))?;
    Ok((args, EnvRules::read(options)?))
}

/// Translates an error of clap into ours. `options` are the options that clap was given.
fn from_clap(error: &clap::Error, options: &[Canonical], command: &str) -> Error {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        Some(ContextValue::Strings(texts)) => texts.first().cloned(),
        _ => None,
    };
    // clap names an option with its placeholder, `--np <N>`, and an optional word by its placeholder alone, `[JOB]`.
    let arg = context(ContextKind::InvalidArg).unwrap_or_default();
    let flag = arg
        .trim_start_matches(['[', '<'])
        .split([' ', '=', '[', ']', '>'])
        .next()
        .unwrap_or_default()
        .to_owned();
    let name = flag.trim_start_matches('-');
    let value = context(ContextKind::InvalidValue).unwrap_or_default();
    let matching = |option: &&Canonical| {
        option.flag == name
            && option
                .value
                .as_ref()
                .is_some_and(|found| found.to_string_lossy() == value)
    };
    let found = options
        .iter()
        .find(matching)
        .or_else(|| options.iter().rev().find(|option| option.flag == name));
    let option = found.map_or_else(|| flag.clone(), |option| option.typed.clone());
    match error.kind() {
        ErrorKind::InvalidValue => match error.get(ContextKind::ValidValue) {
            Some(ContextValue::Strings(known)) if !known.is_empty() => {
                if name == "bootstrap" {
                    let option = format!("{option} {value}");
                    return Error::NotOffered {
                        option,
                        why: error::NotOffered::Bootstrap,
                    };
                }
                Error::BadValue {
                    option,
                    value,
                    reason: ValueError::NotOneOf(known.clone()),
                }
            }
            _ if value.is_empty() => Error::MissingValue { option },
            _ => Error::BadValue {
                option,
                value,
                reason: ValueError::Empty,
            },
        },
        ErrorKind::ValueValidation => {
            let source = std::error::Error::source(error)
                .and_then(|source| source.downcast_ref::<ValueError>());
            let reason = source.cloned().unwrap_or_else(|| {
                let source = std::error::Error::source(error);
                match source.is_some_and(|source| source.is::<std::num::ParseIntError>()) {
                    true => ValueError::NotANumber,
                    false => ValueError::NotText,
                }
            });
            Error::BadValue {
                option,
                value,
                reason,
            }
        }
        ErrorKind::InvalidUtf8 => {
            let bad = options.iter().find(|option| {
                option
                    .value
                    .as_ref()
                    .is_some_and(|value| value.to_str().is_none())
            });
            let option = bad.map_or(option, |bad| bad.typed.clone());
            let value = bad.and_then(|bad| bad.value.as_ref());
            let value = value
                .map(|value| value.to_string_lossy().into_owned())
                .unwrap_or_default();
            Error::BadValue {
                option,
                value,
                reason: ValueError::NotText,
            }
        }
        ErrorKind::MissingRequiredArgument
        | ErrorKind::TooFewValues
        | ErrorKind::WrongNumberOfValues => Error::MissingValue { option },
        ErrorKind::TooManyValues => Error::UnexpectedValue { option, value },
        _ => Error::UnknownOption {
            option,
            command: command.to_owned(),
            nearest: context(ContextKind::SuggestedArg),
            elsewhere: None,
        },
    }
}

/// Returns the definition of the whole command line, for help, man pages and completions.
pub(crate) fn definition() -> Command {
    Cli::command()
}

#[cfg(test)]
mod tests;
