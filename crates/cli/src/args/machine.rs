//! The commands about a machine: `rally up`, `rally submit`, and those that only ask.

use std::{collections::BTreeSet, ffi::OsString, path::Path};

use base::{RankSet, Signal};
use dvm::{
    alloc::{self, Base, MAX_HOSTFILE},
    machine::{Additions, DECLARED_MAX, Declared, Down, OutputFiles, Submission, Wishes},
    queue::{Array, Hold, Limits, Requeue, Sharing},
};

use super::error::{AppFileProblem, FileKind, NotOffered};
use super::{
    AppLine, Canonical, Error, JobLine, MessageFormat, Personality, Purpose, ReleaseArgs,
    ReleaseRequest, RunLine, RunOptions, RunRequest, Segment, World, command_of,
    compat::{Asks, Native, Translation, translate},
    define::machine::{
        CancelArgs, DownArgs, JobOf, JobsOf, MachineArgs, NodesArgs, OutputArgs, PageArgs,
        PriorityArgs, QueueArgs, SignalArgs, StatusArgs, SubmitArgs, TasksOf, TopArgs, UpArgs,
        UsageArgs,
    },
    read_options, read_segments,
    request::machine::{
        JobFile, MachineRequest, Naming, NodesRequest, OutputRequest, QueueRequest, ServerOf,
        SubmitRequest, UpRequest, Watching, Which,
    },
};
use crate::{
    choices::{Engine, MessageFormatChoice, OnHang},
    help::topics::HelpTopic,
    quoting,
    values::{self, HeldRanks, MachineLimit, Named, Released},
};

/// The program of a command line that has none, where the rest is parsed like that of a job. It is never run.
const PLACEHOLDER: &str = "true";

/// Bytes of a file of jobs.
const JOB_FILE_MAX: u64 = 64 << 20;

/// Options of `rally run` that say which nodes there are, and how they are reached.
const OF_NODES: &[&str] = &[
    "host",
    "hostfile",
    "bootstrap",
    "bootstrap-command",
    "fork-nodes",
    "ssh",
    "tree-start",
    "radix",
    "lease",
    "port-range",
    "if-include",
    "message-format",
    "quiet",
    "verbose",
    "record",
    "exclude",
    "nodes",
    "relative",
    "nolocal",
];

/// Options of `rally run` that mean nothing without a front.
const OF_A_FRONT: &[&str] = &[
    "stdin",
    "pty",
    "label",
    "timestamps",
    "stop-on-exec",
    "stop-in-init",
    "stop-in-app",
    "tool",
    "tool-arguments",
    "tool-per-rank",
    "tool-files",
    "record",
    "report-pid",
    "on-hangup",
    "on-output-closed",
    "print-exit-codes",
    "json",
];

/// Options of `rally run` about the daemons, which are those of the machine.
const OF_DAEMONS: &[&str] = &[
    "bootstrap",
    "bootstrap-command",
    "ssh",
    "tree-start",
    "radix",
    "lease",
    "port-range",
    "if-include",
];

/// A command line about a machine, as typed.
#[derive(Clone, Debug)]
pub(crate) enum MachineLine {
    Up(UpArgs, Box<RunLine>),
    Submit(SubmitArgs, Box<RunLine>),
    Down(DownArgs),
    Status(StatusArgs),
    Top(TopArgs),
    Queue(QueueArgs),
    Explain(JobOf),
    Hold(JobsOf),
    Cancel(CancelArgs),
    Signal(SignalArgs),
    Pause(TasksOf),
    Resume(TasksOf),
    Usage(UsageArgs),
    Priority(PriorityArgs),
    Wait(JobsOf),
    Output(OutputArgs),
    Nodes(NodesArgs),
    Page(PageArgs),
}

/// Parses `rally up` or `rally submit`, whose options are those of `rally run` and some of their own.
pub(super) fn parse(word: &str, words: &[OsString]) -> Result<super::Args, Error> {
    match word {
        "up" => up(words),
        _ => submit(words),
    }
}

fn up(words: &[OsString]) -> Result<super::Args, Error> {
    let (mut segments, ignored, asks) = translated(words, &Native::of_run_and::<UpArgs>())?;
    if let Some(args) = asked(asks, "up") {
        return Ok(args);
    }
    let own = take_own::<UpArgs>(&mut segments)?;
    for segment in &mut segments {
        if let Some(word) = segment.program.first() {
            return Err(Error::UnexpectedValue {
                option: "rally up".to_owned(),
                value: word.to_string_lossy().into_owned(),
            });
        }
        let other = segment
            .options
            .iter()
            .find(|option| !OF_NODES.contains(&option.flag.as_str()));
        if let Some(other) = other {
            return Err(Error::UnknownOption {
                option: other.typed.clone(),
                command: "rally up".to_owned(),
                nearest: None,
                elsewhere: None,
            });
        }
        segment.program = vec![OsString::from(PLACEHOLDER)];
    }
    let mut defined = RunOptions::define();
    let mut line = read_segments(&mut defined, segments, ignored, Personality::Rally)?;
    line.job.purpose = Purpose::Machine;
    Ok(super::Args::Machine(MachineLine::Up(own, Box::new(line))))
}

fn submit(words: &[OsString]) -> Result<super::Args, Error> {
    let native = Native::of_run_and::<SubmitArgs>();
    let native = if names_slurm(words) {
        // There `-N` can only mean what it means to `sbatch`.
        native.with_letter('N', "nodes")
    } else {
        native
    };
    let (mut segments, ignored, asks) = translated(words, &native)?;
    if let Some(args) = asked(asks, "submit") {
        return Ok(args);
    }
    let own = take_own::<SubmitArgs>(&mut segments)?;
    if let Some(file) = &own.from {
        if let [segment] = segments.as_mut_slice()
            && segment.program.is_empty()
        {
            // The lines of the file replace it.
            segment.program = vec![OsString::from(PLACEHOLDER)];
        } else {
            return Err(Error::Together {
                first: format!("--from {}", file.display()),
                second: "a program".to_owned(),
                why: "put the program into the file, or leave the file out",
            });
        }
    }
    let is_guess = own.to != Some(Engine::Slurm) && names_slurm(words);
    if is_guess {
        // The program has such an argument: the letter has several meanings.
        translated(words, &Native::of_run_and::<SubmitArgs>())?;
    }
    let mut line = read_segments(
        &mut RunOptions::define(),
        segments,
        ignored,
        Personality::Rally,
    )
    .map_err(|error| match error {
        Error::NoProgram { app, apps, .. } => Error::NoProgram {
            app,
            apps,
            command: "rally submit",
        },
        error => error,
    })?;
    if own.array.is_some() {
        line.job.purpose = Purpose::Array;
    }
    Ok(super::Args::Machine(MachineLine::Submit(
        own,
        Box::new(line),
    )))
}

type Translated = (Vec<Segment>, Vec<String>, Option<Asks>);

fn translated(words: &[OsString], native: &Native) -> Result<Translated, Error> {
    let Translation {
        segments,
        ignored,
        asks,
        ..
    } = translate(words, Personality::Rally, native)?;
    Ok((segments, ignored, asks))
}

fn asked(asks: Option<Asks>, command: &'static str) -> Option<super::Args> {
    Some(match asks? {
        Asks::ShortHelp | Asks::FullHelp => super::Args::Help(HelpTopic::from_subject(command)),
        Asks::Topic(name) => super::Args::Help(HelpTopic::from_subject(&name)),
        Asks::Version => super::Args::Version,
        Asks::MpiTypes => super::Args::MpiTypes,
    })
}

/// Takes the options of the command itself out of all segments.
fn take_own<A: clap::Args + clap::FromArgMatches>(segments: &mut [Segment]) -> Result<A, Error> {
    let mut command = command_of::<A>();
    let flags: Vec<String> = command
        .get_arguments()
        .filter_map(|arg| arg.get_long().map(str::to_owned))
        .collect();
    let mut own: Vec<Canonical> = Vec::new();
    for segment in segments {
        let all = std::mem::take(&mut segment.options);
        let (ours, others) = all
            .into_iter()
            .partition(|option| flags.contains(&option.flag));
        segment.options = others;
        own.extend::<Vec<Canonical>>(ours);
    }
    let (args, _) = read_options::<A>(&mut command, &own, Personality::Rally)?;
    Ok(args)
}

/// Returns true if a submission seems to be for Slurm, before it is parsed.
fn names_slurm(words: &[OsString]) -> bool {
    let mut pairs = words.windows(2);
    pairs.any(|pair| pair[0] == "--to" && pair[1] == "slurm")
        || words.iter().any(|word| word == "--to=slurm")
}

/// Consults the world, and returns a complete request. `run` does that for a job.
pub(super) fn resolve(
    line: &MachineLine,
    world: &World,
    run: impl Fn(&RunLine, &World) -> Result<RunRequest, Error>,
) -> Result<MachineRequest, Error> {
    Ok(match line {
        MachineLine::Up(args, line) => MachineRequest::Up(Box::new(UpRequest {
            name: args.name.clone(),
            is_default: args.default,
            server: match args.system_server {
                true => ServerOf::System,
                false => ServerOf::User,
            },
            declared: declared(args)?,
            limits: limits(args),
            run: run(line, world)?,
        })),
        MachineLine::Submit(args, line) => {
            MachineRequest::Submit(Box::new(submission(args, line, run(line, world)?, world)?))
        }
        MachineLine::Down(args) => {
            let down = match (args.now, args.wait) {
                (true, _) => Down::Now,
                (false, true) => Down::WhenIdle,
                (false, false) => Down::IfIdle,
            };
            MachineRequest::Down(which(&args.which), down)
        }
        MachineLine::Status(args) => {
            MachineRequest::Status(which(&args.which), watching(args.watch))
        }
        MachineLine::Top(args) => MachineRequest::Top(which(&args.which)),
        MachineLine::Queue(args) => {
            let request = QueueRequest {
                jobs: Named::of_machine(&args.jobs),
                over: args.over.unwrap_or(0),
                watching: watching(args.watch),
                is_machine_only: args.to == Some(Engine::Machine),
            };
            MachineRequest::Queue(which(&args.which), request)
        }
        MachineLine::Explain(args) => MachineRequest::Explain(which(&args.which), args.job),
        MachineLine::Hold(args) => {
            MachineRequest::Hold(which(&args.which), Named::of_machine(&args.jobs))
        }
        MachineLine::Cancel(args) => {
            MachineRequest::Cancel(which(&args.which), Named::of_machine(&args.jobs))
        }
        MachineLine::Signal(args) => {
            MachineRequest::Signal(which(&args.which), args.jobs.clone(), args.signal)
        }
        MachineLine::Pause(args) => {
            MachineRequest::Signal(which(&args.which), args.jobs.clone(), Signal::STOP)
        }
        MachineLine::Resume(args) => {
            MachineRequest::Signal(which(&args.which), args.jobs.clone(), Signal::CONT)
        }
        MachineLine::Usage(args) => MachineRequest::Usage(which(&args.which), args.job.clone()),
        MachineLine::Priority(args) => {
            MachineRequest::Priority(which(&args.which), args.jobs.clone(), args.priority)
        }
        MachineLine::Wait(args) => {
            MachineRequest::Wait(which(&args.which), Named::of_machine(&args.jobs))
        }
        MachineLine::Output(args) => {
            let (Named::Machine(tasks) | Named::Slurm(tasks)) = &args.job;
            let request = OutputRequest {
                tasks: tasks.clone(),
                errors: args.errors,
                follow: args.follow,
            };
            MachineRequest::Output(which(&args.which), request)
        }
        MachineLine::Nodes(args) => MachineRequest::Nodes(which(&args.which), nodes(args, world)?),
        MachineLine::Page(args) => MachineRequest::Page(which(&args.which), args.port),
    })
}

/// Returns the limits of a machine. If one is named twice, the last one counts.
fn limits(args: &UpArgs) -> Limits {
    let mut limits = Limits::default();
    for limit in &args.limit {
        match *limit {
            MachineLimit::Jobs(most) => limits.user_jobs = Some(most),
            MachineLimit::Running(most) => limits.user_running = Some(most),
            MachineLimit::Slots(most) => limits.user_slots = Some(most),
            MachineLimit::JobSlots(most) => limits.task_slots = Some(most),
            MachineLimit::JobTime(most) => limits.task_time = Some(most),
        }
    }
    limits
}

/// Returns the resources that a machine has.
fn declared(args: &UpArgs) -> Result<Declared, Error> {
    let declared = Declared {
        shared: args.shared_resource.iter().cloned().collect(),
        of_nodes: args.node_resource.clone(),
    };
    let of_nodes = declared.of_nodes.iter().map(|share| &share.name);
    let of_nodes: BTreeSet<&String> = of_nodes.collect();
    if let Some(name) = of_nodes
        .iter()
        .find(|name| declared.shared.contains_key(**name))
    {
        return Err(Error::TwoResources {
            name: (**name).clone(),
        });
    }
    if declared.shared.len() + of_nodes.len() > DECLARED_MAX {
        return Err(Error::TooManyResources { max: DECLARED_MAX });
    }
    Ok(declared)
}

/// Variables by which ssh finds what it needs to log in. They are those of the login that adds nodes: the login that has started the
/// machine may be over.
const OF_A_LOGIN: [&str; 3] = ["SSH_AUTH_SOCK", "SSH_AGENT_PID", "KRB5CCNAME"];

fn nodes(args: &NodesArgs, world: &World) -> Result<NodesRequest, Error> {
    let names = world.names();
    let added = if let Some(text) = &args.add {
        Some(alloc::hosts(text, "`--add`", &names, Base::default()).map_err(Error::Nodes)?)
    } else if let Some(path) = &args.add_hostfile {
        let max = u64::try_from(MAX_HOSTFILE).unwrap_or(u64::MAX);
        let text = world.read_text(path, FileKind::HostFile, max)?;
        let origin = format!("`{}`", path.display());
        let file = alloc::hostfile(&text, &origin, &names, Base::default());
        Some(file.map_err(Error::Nodes)?)
    } else {
        None
    };
    if let (None, Some(flag)) = (
        &args.drop,
        [(args.wait, "--wait"), (args.now, "--now")]
            .into_iter()
            .find_map(|(is_given, flag)| is_given.then_some(flag)),
    ) {
        return Err(Error::Together {
            first: flag.to_owned(),
            second: "no --drop".to_owned(),
            why: "it says what happens to jobs on nodes that are dropped",
        });
    }
    let login = world.variables.iter().filter(|(name, _)| {
        let name = name.to_str();
        name.is_some_and(|name| OF_A_LOGIN.contains(&name))
    });
    Ok(NodesRequest {
        drain: args.drain.clone(),
        resume: args.resume.clone(),
        watching: watching(args.watch),
        add: added.map(|allocation| Additions {
            nodes: allocation.nodes,
            environment: login
                .map(|(name, value)| {
                    let mut entry = name.clone();
                    entry.push("=");
                    entry.push(value);
                    entry
                })
                .collect(),
        }),
        drop: args.drop.clone().map(|nodes| {
            let down = match (args.now, args.wait) {
                (true, _) => Down::Now,
                (false, true) => Down::WhenIdle,
                (false, false) => Down::IfIdle,
            };
            (nodes, down)
        }),
    })
}

/// Returns the request of `rally release`, which is about a machine or about ranks.
pub(super) fn release(args: &ReleaseArgs) -> Result<ReleaseRequest, Error> {
    let Which { machine, format } = which(&args.which);
    let job = match &args.job {
        Some(Released::Here(name)) => Some(name.clone()),
        // The caller has handled it.
        Some(Released::Slurm(_)) | None => None,
    };
    let ranks = match &args.ranks {
        None | Some(HeldRanks::All) => None,
        Some(HeldRanks::Only(ranks)) => Some(ranks.clone()),
    };
    if machine.is_some() {
        let together = |second: &str, why| Error::Together {
            first: "--on-machine".to_owned(),
            second: second.to_owned(),
            why,
        };
        if args.ranks.is_some() {
            return Err(together(
                "--ranks",
                "a held job of the queue has no ranks yet",
            ));
        }
        let Some(name) = &job else {
            return Err(together("no JOB", "give the number of the held job"));
        };
        values::job_number(&name.typed).map_err(|reason| Error::BadValue {
            option: "JOB".to_owned(),
            value: name.typed.clone(),
            reason,
        })?;
    }
    Ok(ReleaseRequest {
        job,
        machine,
        ranks,
        format,
    })
}

pub(super) const fn watching(watch: bool) -> Watching {
    if watch {
        Watching::GoesOn
    } else {
        Watching::Once
    }
}

pub(super) fn which(args: &MachineArgs) -> Which {
    Which {
        machine: args.machine.clone(),
        format: match args.message_format {
            Some(MessageFormatChoice::Json) => MessageFormat::Json,
            Some(MessageFormatChoice::Text) | None => MessageFormat::Text,
        },
    }
}

fn submission(
    args: &SubmitArgs,
    line: &RunLine,
    mut run: RunRequest,
    world: &World,
) -> Result<SubmitRequest, Error> {
    for (flags, why) in [
        (OF_A_FRONT, NotOffered::Detached),
        (OF_DAEMONS, NotOffered::NodesOfMachine),
    ] {
        let typed = line
            .job
            .typed
            .iter()
            .find(|option| flags.contains(&option.flag.as_str()));
        if let Some(option) = typed {
            return Err(Error::NotOffered {
                option: option.typed.clone(),
                why,
            });
        }
    }
    if let (Some(_), None) = (args.max_running, &args.array) {
        return Err(Error::Together {
            first: "--max-running".to_owned(),
            second: "no --array".to_owned(),
            why: "only the tasks of an array are counted",
        });
    }
    run.spec.stdin = dvm::spec::StdinTarget::None;
    // Nobody looks at a terminal.
    run.spec.stdio.pty = None;
    run.spec.stdio.lines = None;
    run.spec.watch = match run.front.on_hang {
        OnHang::Report(idle) => Some(idle),
        OnHang::Nothing => None,
    };
    if let Some(limit) = args.time {
        run.spec.end.time_limit = Some(limit);
    }
    let name = name_of(&line.job, &line.apps);
    let default = match &args.array {
        Some(_) => "rally-%j-%i.out",
        None => "rally-%j.out",
    };
    let stdout = args.output_to.clone().unwrap_or_else(|| default.into());
    let place = |file: OsString| -> Result<OsString, Error> {
        Ok(world.absolute(Path::new(&file))?.into_os_string())
    };
    let submission = Submission {
        name,
        command: command_line(&line.apps),
        wishes: Wishes {
            priority: args.priority.unwrap_or(0),
            after: args.after.clone(),
            array: args.array.clone().map(|indexes: RankSet| Array {
                indexes,
                running_max: args.max_running,
            }),
            hold: if args.hold { Hold::ByUser } else { Hold::No },
            on_node_loss: if args.requeue {
                Requeue::OnNodeLoss
            } else {
                Requeue::Never
            },
            sharing: if args.exclusive {
                Sharing::Exclusive
            } else {
                Sharing::Shared
            },
        },
        output: OutputFiles {
            stdout: place(stdout)?,
            stderr: args.errors_to.clone().map(place).transpose()?,
        },
        spec: Box::new(run.spec.clone()),
    };
    Ok(SubmitRequest {
        which: Which {
            machine: line.job.args.machine.clone(),
            format: run.front.message_format,
        },
        submission,
        from: args
            .from
            .as_ref()
            .map(|path| job_file(path, line, world))
            .transpose()?,
        is_parsable: args.parsable,
        run,
    })
}

/// Reads the file of `--from`.
fn job_file(path: &Path, line: &RunLine, world: &World) -> Result<JobFile, Error> {
    let preloads = |app: &&AppLine| app.args.preload.preload_binary;
    if let Some(app) = line.apps.iter().find(preloads) {
        return Err(Error::Together {
            first: "--from".to_owned(),
            second: app.typed("preload-binary"),
            why: "each line has a program of its own: name the programs with `--preload-files`",
        });
    }
    let path = if path == Path::new("-") {
        Path::new("/dev/stdin")
    } else {
        path
    };
    let text = world.read(path, FileKind::JobFile, JOB_FILE_MAX)?;
    let bad = |line, problem| Error::BadAppFile {
        what: FileKind::JobFile,
        path: path.to_owned(),
        line,
        problem,
    };
    let lines = quoting::lines(&text).map_err(|(number, open)| bad(number, open.into()))?;
    if lines.is_empty() {
        return Err(bad(1, AppFileProblem::NoProgram));
    }
    Ok(JobFile {
        programs: lines.into_iter().map(|line| line.words).collect(),
        naming: match &line.job.args.job_name {
            Some(_) => Naming::OfSubmission,
            None => Naming::OfProgram,
        },
    })
}

/// Returns the name of a job: the one that the user gives, or that of its program.
pub(super) fn name_of(job: &JobLine, apps: &[AppLine]) -> String {
    if let Some(name) = &job.args.job_name {
        return name.to_string_lossy().into_owned();
    }
    let program = apps.first().and_then(|app| app.program.first());
    let program = program.map(|program| program.to_string_lossy().into_owned());
    let program = program.unwrap_or_default();
    program.rsplit('/').next().unwrap_or_default().to_owned()
}

fn command_line(apps: &[AppLine]) -> String {
    let words = |app: &AppLine| {
        let words = app.program.iter().map(|word| word.to_string_lossy());
        words.collect::<Vec<_>>().join(" ")
    };
    apps.iter().map(words).collect::<Vec<_>>().join(" : ")
}
