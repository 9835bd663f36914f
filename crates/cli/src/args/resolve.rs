//! From [`Args`] to a [`Request`]: the world is consulted here and nowhere else.

use std::{
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    path::Path,
};

use base::Rank;
use dvm::spec::{
    App, Destination, EndPolicy, Family, FrontInput, HoldAt, HoldPlan, JobSpec, LineTerminal,
    OnDebuggerLoss, OnFailure, Pattern, PatternFacts, Pty, StdinTarget, StdioPlan, Tracers,
    WithoutTerminal,
};

use super::{
    AppLine, Args, ConfigFile, ConfigRequest, DEMO_ARGUMENT, Detail, Error, Format, FrontOptions,
    InputSource, JobLine, Label, MessageFormat, Notice, Personality, Report, Request, RunLine,
    RunRequest, SINGLETON_ARGUMENT, Show, Timestamps, ValueError, Verbosity, World, app_file,
    define::{DisplayChoice, FamilyChoice, MessageFormatChoice, StdinChoice},
    error::FileKind,
    parse, placement,
    values::HeldRanks,
    world::read_probe,
};
use crate::config::{
    DebuggerLoss, LabelChoice, Layers, LineBuffered, OnHang, Setting, Settings, Source, Switch,
    apply_file,
};
use crate::release::ReleaseRequest;

/// Where programs are looked for when nobody says: what shells use.
const SEARCH: &str = "/usr/local/bin:/usr/bin:/bin";

type Done<T> = Result<T, Error>;

/// Consults the world.
///
/// # Errors
///
/// The first file, variable or value that cannot be used.
pub(crate) fn resolve(args: &Args, world: &World) -> Done<Request> {
    Ok(match args {
        Args::Run(line) => Request::Run(Box::new(run(line, world)?)),
        Args::Demo(demo) => {
            let mut words = vec![OsString::from("mpiexec")];
            if let Some(procs) = demo.procs {
                words.extend(["-n".into(), procs.to_string().into()]);
            }
            Request::Demo(Box::new(ourselves(words, &[DEMO_ARGUMENT], world)?))
        }
        Args::Singleton(singleton) => {
            let words = ["mpiexec", "-n", "1"].map(OsString::from).to_vec();
            let argument = singleton.port.to_string();
            let mut request = ourselves(words, &[SINGLETON_ARGUMENT, &argument], world)?;
            // Whoever has started the program has not started us, and the program reads its own input.
            request.front.verbosity = Verbosity::Quiet;
            request.spec.stdin = StdinTarget::None;
            Request::Singleton(Box::new(request), singleton.process)
        }
        Args::Config(config) => {
            let (layers, files) = settings(world)?;
            let format = if config.json {
                MessageFormat::Json
            } else {
                MessageFormat::Text
            };
            Request::Config(ConfigRequest {
                layers,
                files,
                format,
            })
        }
        Args::Release(release) => Request::Release(ReleaseRequest {
            job: release.job.clone(),
            ranks: match &release.ranks {
                None | Some(HeldRanks::All) => None,
                Some(HeldRanks::Only(ranks)) => Some(ranks.clone()),
            },
        }),
        Args::Help(topic) => Request::Help(topic.clone()),
        Args::Generate(what) => Request::Generate(*what),
        Args::Version => Request::Version,
    })
}

/// A job of which we are the program.
fn ourselves(mut words: Vec<OsString>, arguments: &[&str], world: &World) -> Done<RunRequest> {
    words.push(world.executable.clone().into_os_string());
    words.extend(arguments.iter().map(OsString::from));
    match parse(&words)? {
        Args::Run(line) => run(&line, world),
        _ => Err(Error::NoCommand),
    }
}

/// What every source but the command line says, and the files that were looked for.
pub(crate) fn settings(world: &World) -> Done<(Layers, Vec<ConfigFile>)> {
    let mut layers = Layers::built_in();
    let mut files = Vec::new();
    for path in std::iter::once(world.site_config.clone()).chain(world.user_config()) {
        let found = apply_file(&mut layers, &path).map_err(Error::Config)?;
        files.push(ConfigFile { path, found });
    }
    layers.environment(|name| world.variable(name));
    layers
        .settle()
        .map_err(|bad| Error::Config(Box::new(bad.into())))?;
    Ok((layers, files))
}

/// All settings of a job.
fn decide(job: &JobLine, world: &World) -> Done<Settings> {
    let (layers, _) = settings(world)?;
    let mut settings = layers
        .settle()
        .map_err(|bad| Error::Config(Box::new(bad.into())))?;
    let args = &job.args;
    let say = |flag: &str| Source::CommandLine(job.typed(flag));
    over(&mut settings.grace, args.grace, || say("grace"));
    over(&mut settings.timeout, args.timeout.map(Some), || {
        say("timeout")
    });
    over(
        &mut settings.kill_on_bad_exit,
        args.kill_on_bad_exit,
        || say("kill-on-bad-exit"),
    );
    over(&mut settings.oversubscribe, args.oversubscribe, || {
        say("oversubscribe")
    });
    over(&mut settings.label, args.label, || say("label"));
    over(&mut settings.line_buffered, args.line_buffered, || {
        say("line-buffered")
    });
    over(&mut settings.timestamps, args.timestamps, || {
        say("timestamps")
    });
    over(
        &mut settings.on_debugger_loss,
        args.on_debugger_loss,
        || say("on-debugger-loss"),
    );
    over(&mut settings.on_hang, args.on_hang, || say("on-hang"));
    over(&mut settings.on_hangup, args.on_hangup, || say("on-hangup"));
    over(
        &mut settings.on_output_closed,
        args.on_output_closed,
        || say("on-output-closed"),
    );
    over(
        &mut settings.hostfile,
        args.hostfile.clone().map(Some),
        || say("hostfile"),
    );
    over(
        &mut settings.rank_by,
        args.rank_by.clone().map(Some),
        || say("rank-by"),
    );
    over(
        &mut settings.bind_to,
        args.bind_to.clone().map(Some),
        || say("bind-to"),
    );
    over(
        &mut settings.quiet,
        args.quiet.then_some(Switch::Yes),
        || say("quiet"),
    );
    Ok(settings)
}

fn over<T>(setting: &mut Setting<T>, value: Option<T>, source: impl FnOnce() -> Source) {
    if let Some(value) = value {
        *setting = Setting {
            value,
            source: source(),
        };
    }
}

fn run(line: &RunLine, world: &World) -> Done<RunRequest> {
    let expanded;
    let line = match &line.job.args.app_file {
        Some(path) => {
            expanded = with_app_file(line, path, world)?;
            &expanded
        }
        None => line,
    };
    let RunLine {
        personality,
        apps,
        job,
        ignored,
    } = line;
    let settings = decide(job, world)?;
    let (placement, allocation) = placement::resolve(apps, job, *personality, &settings, world)?;
    let (stdin, input) = stdin(job, *personality, world)?;
    let families = families(job, *personality)?;
    let mut programs = apps
        .iter()
        .map(|line| app(line, *personality, world))
        .collect::<Done<Vec<_>>>()?;
    if families.contains(&Family::Torch) {
        meeting_point(apps, &mut programs, world)?;
    }
    if settings.on_hang.value != OnHang::Nothing {
        // The watchdog is no ancestor of theirs.
        for program in &mut programs {
            program.tracers = Tracers::SameUser;
        }
    }
    let spec = JobSpec {
        apps: programs,
        placement,
        universe: None,
        variables: families,
        stdin,
        stdio: stdio(job, &settings, world)?,
        end: EndPolicy {
            on_failure: match settings.kill_on_bad_exit.value {
                Switch::Yes => OnFailure::EndJob,
                Switch::No => OnFailure::Continue,
            },
            grace: settings.grace.value,
            // Zero means "none" to the launchers that scripts are written for.
            time_limit: settings.timeout.value.filter(|limit| !limit.is_zero()),
            on_debugger_loss: match settings.on_debugger_loss.value {
                DebuggerLoss::Kill => OnDebuggerLoss::Kill,
                DebuggerLoss::Release => OnDebuggerLoss::Release,
            },
        },
        hold: hold(job),
    };
    Ok(RunRequest {
        spec,
        allocation,
        front: front(job, &settings, input),
        show: show(job),
        notices: notices(apps, ignored, world),
    })
}

fn with_app_file(line: &RunLine, path: &Path, world: &World) -> Done<RunLine> {
    if let Some(app) = line.apps.iter().find(|app| !app.program.is_empty()) {
        let program = app
            .program
            .first()
            .map(|name| name.display().to_string())
            .unwrap_or_default();
        return Err(Error::Together {
            first: line.job.typed("app"),
            second: program,
            why: "put the program into the file, or leave the file out",
        });
    }
    let text = world.read(path, FileKind::AppFile, app_file::MAX_FILE)?;
    app_file::expand(line, path, &text)
}

/// One program with its surroundings.
fn app(line: &AppLine, personality: Personality, world: &World) -> Done<App> {
    let mut words = line.program.iter().cloned();
    // The parser has made sure that there is a program.
    let program = words.next().unwrap_or_default();
    let variables = line.environment.apply(&world.variables);
    let directory = match &line.args.wdir {
        Some(directory) => world.absolute(Path::new(directory))?,
        None => world.current()?,
    };
    let path = variables
        .get(OsStr::new("PATH"))
        .or_else(|| world.variables.get(OsStr::new("PATH")));
    let path = path.cloned().unwrap_or_else(|| SEARCH.into());
    let mut search = match &line.args.path {
        Some(first) => {
            let mut search = first.clone();
            search.push(":");
            search.push(path);
            search
        }
        None => path,
    };
    if personality == Personality::Mpirun {
        // What Open MPI's launcher does not find in the path it looks for where the ranks begin.
        search.push(":.");
    }
    Ok(App {
        program,
        args: words.collect(),
        env: variables.into_iter().collect(),
        directory: directory.into_os_string(),
        search,
        umask: line.args.umask,
        tracers: Tracers::Ancestors,
    })
}

/// In whose words ranks are told who they are.
fn families(job: &JobLine, personality: Personality) -> Done<BTreeSet<Family>> {
    let chosen = &job.args.env_family;
    let mut families: BTreeSet<Family> = match personality {
        _ if !chosen.is_empty() => chosen
            .iter()
            .filter_map(|choice| match choice {
                FamilyChoice::Openmpi => Some(Family::OpenMpi),
                FamilyChoice::Slurm => Some(Family::Slurm),
                FamilyChoice::Torch => Some(Family::Torch),
                FamilyChoice::None => None,
            })
            .collect(),
        Personality::Srun => [Family::Slurm].into(),
        Personality::Rally | Personality::Mpiexec | Personality::Mpirun => [Family::OpenMpi].into(),
    };
    let other = chosen.iter().find(|choice| **choice != FamilyChoice::None);
    if let Some(other) = other.filter(|_| chosen.contains(&FamilyChoice::None)) {
        let option = job.typed("env-family");
        return Err(Error::Together {
            first: format!("{option} none"),
            second: format!("{option} {}", other.name()),
            why: "leave one of them out",
        });
    }
    if job.args.torch {
        families.insert(Family::Torch);
    }
    Ok(families)
}

/// Where the ranks of a torch program meet: its first rank listens there. What the user has set stays; what an enclosing
/// job of ours was told is not ours.
fn meeting_point(lines: &[AppLine], apps: &mut [App], world: &World) -> Done<()> {
    const ADDRESS: &str = "MASTER_ADDR";
    const PORT: &str = "MASTER_PORT";
    let is_inside = world.variable("RALLY_OWNER").is_some();
    let mut port = None;
    for (line, app) in lines.iter().zip(apps) {
        let has = |name: &str| {
            app.env.iter().any(|(known, _)| known == name)
                && (!is_inside || line.environment.names(name))
        };
        let (has_address, has_port) = (has(ADDRESS), has(PORT));
        if !has_address {
            set(&mut app.env, ADDRESS, "127.0.0.1".into());
        }
        if !has_port {
            let port = match port {
                Some(port) => port,
                None => *port
                    .insert((world.unused_port)().map_err(|problem| Error::NoPort { problem })?),
            };
            set(&mut app.env, PORT, port.to_string());
        }
    }
    Ok(())
}

fn set(env: &mut Vec<(OsString, OsString)>, name: &str, value: String) {
    env.retain(|(known, _)| known != name);
    env.push((name.into(), value.into()));
}

/// Who reads our stdin, and what that is.
fn stdin(
    job: &JobLine,
    personality: Personality,
    world: &World,
) -> Done<(StdinTarget, InputSource)> {
    let target = match (job.args.stdin, job.args.pty, personality) {
        (Some(StdinChoice::None), ..) => StdinTarget::None,
        (Some(StdinChoice::All), ..) => StdinTarget::All,
        (Some(StdinChoice::Rank(rank)), ..) => StdinTarget::Rank(Rank(rank)),
        // Who has a terminal is who we talk to.
        (None, Some(rank), _) => StdinTarget::Rank(Rank(rank)),
        (None, None, Personality::Srun) => StdinTarget::All,
        (None, None, _) => StdinTarget::Rank(Rank(0)),
    };
    let source = match (&job.args.input, target) {
        (_, StdinTarget::None) => InputSource::Null,
        (None, _) => InputSource::Inherit,
        (Some(path), _) => {
            let path = world.absolute(path)?;
            read_probe(&path).map_err(|problem| Error::Unreadable {
                what: FileKind::Input,
                path: path.clone(),
                problem,
            })?;
            InputSource::File(path)
        }
    };
    Ok((target, source))
}

fn stdio(job: &JobLine, settings: &Settings, world: &World) -> Done<StdioPlan> {
    let stderr = match (&job.args.stderr, job.args.merge_stderr) {
        (Some(_), true) => {
            return Err(Error::Together {
                first: job.typed("merge-stderr"),
                second: job.typed("error-file"),
                why: "merged, both go where stdout goes: leave one of them out",
            });
        }
        (None, true) => Destination::WithStdout,
        (pattern, false) => destination(job, "error-file", pattern.as_ref())?,
    };
    let stdout = destination(job, "output-file", job.args.stdout.as_ref())?;
    if job.args.pty.is_some() && stdout != Destination::Forward {
        return Err(Error::Together {
            first: job.typed("pty"),
            second: job.typed("output-file"),
            why: "the output of a terminal is shown here: leave one of them out",
        });
    }
    let talks_to_another = match (job.args.pty, job.args.stdin) {
        (Some(pty), Some(StdinChoice::Rank(rank))) => rank != pty,
        (Some(_), Some(StdinChoice::None | StdinChoice::All)) => true,
        (None, _) | (_, None) => false,
    };
    if talks_to_another {
        return Err(Error::Together {
            first: job.typed("pty"),
            second: job.typed("stdin"),
            why: "what is typed goes to the rank with the terminal: leave one of them out",
        });
    }
    let pty = job.args.pty.map(|rank| Pty {
        rank: Rank(rank),
        size: world.window,
    });
    Ok(StdioPlan {
        stdout,
        stderr,
        pty,
        lines: lines(settings, world),
        input: match (&job.args.input, job.args.pty) {
            (None, None) => world.input,
            // A terminal can be read whatever we were given.
            (Some(_), _) | (None, Some(_)) => FrontInput::Readable,
        },
    })
}

/// Whether ranks get a terminal for their stdout. The size is that of ours; the size of the keyboard's terminal, or a
/// usual one, where ours is none.
fn lines(settings: &Settings, world: &World) -> Option<LineTerminal> {
    let (size, without) = match (settings.line_buffered.value, world.screen) {
        (LineBuffered::No, _) | (LineBuffered::Auto, None) => return None,
        (LineBuffered::Auto, Some(size)) => (size, WithoutTerminal::Pipe),
        (LineBuffered::Yes, screen) => (screen.unwrap_or(world.window), WithoutTerminal::Fail),
    };
    Some(LineTerminal { size, without })
}

fn destination(job: &JobLine, flag: &str, pattern: Option<&OsString>) -> Done<Destination> {
    let Some(pattern) = pattern else {
        return Ok(Destination::Forward);
    };
    if pattern == "none" {
        return Ok(Destination::Discard);
    }
    let pattern = Pattern(pattern.clone());
    // Any rank will do to see whether the pattern can be expanded.
    let facts = PatternFacts {
        rank: 0,
        size: 1,
        local_rank: 0,
        app: 0,
        job: 0,
        front_pid: 0,
        host: "",
    };
    let bad = |reason| Error::BadValue {
        option: job.typed(flag),
        value: pattern.0.to_string_lossy().into_owned(),
        reason,
    };
    if pattern.0.is_empty() {
        return Err(bad(ValueError::Empty));
    }
    pattern
        .expand(&facts)
        .map_err(|problem| bad(ValueError::OwnPattern(problem)))?;
    Ok(Destination::File(pattern))
}

fn front(job: &JobLine, settings: &Settings, input: InputSource) -> FrontOptions {
    let json = job.args.json;
    FrontOptions {
        input,
        label: match settings.label.value {
            LabelChoice::None => Label::None,
            LabelChoice::Rank => Label::Rank,
            LabelChoice::Full => Label::Full,
        },
        timestamps: match settings.timestamps.value {
            Switch::Yes => Timestamps::On,
            Switch::No => Timestamps::Off,
        },
        format: if json { Format::JsonLines } else { Format::Raw },
        on_hang: settings.on_hang.value,
        on_hangup: settings.on_hangup.value,
        on_output_closed: settings.on_output_closed.value,
        verbosity: match (job.args.verbose, settings.quiet.value) {
            (1.., _) => Verbosity::Verbose,
            (0, Switch::Yes) => Verbosity::Quiet,
            (0, Switch::No) => Verbosity::Normal,
        },
        message_format: match (job.args.message_format, json) {
            (Some(MessageFormatChoice::Json), _) | (None, true) => MessageFormat::Json,
            (Some(MessageFormatChoice::Text), _) | (None, false) => MessageFormat::Text,
        },
    }
}

fn show(job: &JobLine) -> Show {
    let reports: BTreeSet<_> = job
        .args
        .display
        .iter()
        .map(|choice| match choice {
            DisplayChoice::Map => Report::Map,
            DisplayChoice::Bindings => Report::Bindings,
            DisplayChoice::Allocation => Report::Allocation,
        })
        .collect();
    match (job.args.dry_run, job.args.explain) {
        (_, true) => Show::DryRun {
            detail: Detail::Reasons,
            reports,
        },
        (true, false) => Show::DryRun {
            detail: Detail::Map,
            reports,
        },
        (false, false) if reports.is_empty() => Show::Run,
        (false, false) => Show::RunAndReport(reports),
    }
}

fn notices(apps: &[AppLine], ignored: &[String], world: &World) -> Vec<Notice> {
    let mut notices = Vec::new();
    if !ignored.is_empty() {
        let mut once = Vec::new();
        for option in ignored {
            if !once.contains(option) {
                once.push(option.clone());
            }
        }
        notices.push(Notice::Ignored(once));
    }
    let missing: BTreeSet<String> = apps
        .iter()
        .flat_map(|app| app.environment.missing(&world.variables))
        .map(|name| name.display().to_string())
        .collect();
    if !missing.is_empty() {
        notices.push(Notice::NotSet(missing.into_iter().collect()));
    }
    notices
}

/// Which ranks are held, and where.
fn hold(job: &JobLine) -> HoldPlan {
    let places = [
        (HoldAt::Exec, &job.args.stop_on_exec),
        (HoldAt::Init, &job.args.stop_in_init),
        (HoldAt::App, &job.args.stop_in_app),
    ];
    let given = places
        .into_iter()
        .find_map(|(at, ranks)| ranks.as_ref().map(|ranks| (at, ranks)));
    match given {
        None => HoldPlan::NOWHERE,
        Some((at, HeldRanks::All)) => HoldPlan::all(at),
        Some((at, HeldRanks::Only(ranks))) => HoldPlan {
            at,
            ranks: Some(ranks.clone()),
        },
    }
}
