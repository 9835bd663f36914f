//! Turns [`Args`] into a [`Request`]. Only this step consults the world.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    sync::Arc,
};

use dvm::machine::JOB_VARIABLE;
use dvm::spec::{
    App, EndPolicy, Family, HoldAt, HoldPlan, JobSpec, MapFor, OnDebuggerLoss, OnFailure,
    ResourceLimits, ResourceNeeds, SetName, StdinTarget, Tracers,
};

use super::{
    AppLine, Args, CheckRequest, ConfigRequest, DEMO_ARGUMENT, Detail, Error, ExitCodes, Format,
    FrontOptions, InputSource, JobLine, Label, MessageFormat, MpirCheckArgs, Notice, Personality,
    PidChannel, Report, Request, RunLine, RunRequest, SINGLETON_ARGUMENT, Show, Timestamps,
    Verbosity, World, app_file, daemons,
    error::{FileKind, NotOffered},
    gpus, inputs, launch, machine, multi_prog, nodes, parse,
    placement::{self, Placement},
    preload,
    request::{machine::NONE, proxy::ProxyRequest},
    slurm_batch::{Missing, Steps},
    slurm_job, slurm_line,
    stdio::{stdin, stdio},
    tool, tune,
};
use crate::choices::{
    DebuggerLoss, DisplayChoice, FamilyChoice, LabelChoice, MessageFormatChoice, OnHang, Switch,
};
use crate::config::{Found, Layers, Owner, Setting, Settings, Source, apply_file};
use crate::{config::ConfigFile, tool::Tools, values::HeldRanks};

/// The search path for programs if PATH is not set: the default of shells.
const SEARCH: &str = "/usr/local/bin:/usr/bin:/bin";

type Done<T> = Result<T, Error>;

/// Consults the world and returns a complete request.
///
/// # Errors
///
/// The first file, variable or value that cannot be used.
pub(crate) fn resolve(args: &Args, world: &World) -> Done<Request> {
    let steps = Steps {
        expand: with_app_file,
        check,
    };
    if let Some(request) = slurm_line::resolve(args, steps, world)? {
        return Ok(Request::Slurm(request));
    }
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
            // The user started the program and not the launcher, and the program reads its own input.
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
        Args::MpirCheck(check) => Request::MpirCheck(mpir_check(check)),
        Args::Proxy(args) => Request::Proxy(Box::new(ProxyRequest::of(args))),
        Args::Release(release) => Request::Release(machine::release(release)?),
        Args::StartTool(args) => Request::StartTool(Box::new(tool::start(args, world, run)?)),
        Args::Launch(args) => {
            let checks = launch::Checks {
                resolve,
                without_files: |line, world| check(line, Missing::MayCome, world),
            };
            launch::request(args, world, checks)?
        }
        Args::Machine(line) => Request::Machine(machine::resolve(line, world, run)?),
        Args::Help(topic) => Request::Help(topic.clone()),
        Args::Generate(what) => Request::Generate(*what),
        Args::Version => Request::Version,
        Args::MpiTypes => Request::MpiTypes,
    })
}

fn mpir_check(args: &MpirCheckArgs) -> CheckRequest {
    CheckRequest {
        options: debug::mpir::check::Options {
            limit: args.limit,
            hold: args.hold,
            run: args.run,
            ranks: args.ranks,
        },
        words: args.words.clone(),
        format: match args.message_format {
            Some(MessageFormatChoice::Json) => MessageFormat::Json,
            Some(MessageFormatChoice::Text) | None => MessageFormat::Text,
        },
    }
}

/// Returns a job of agents for another job: one on each of its nodes, beside the ranks.
///
/// # Errors
///
/// A setting that cannot be read.
pub(crate) fn of_agents(argument: &str, world: &World) -> Done<JobSpec> {
    const OPTIONS: [&str; 12] = [
        "rally",
        "run",
        "--map-by",
        "ppr:1:node",
        "--oversubscribe",
        "--bind-to=none",
        "--stdin=all",
        "--kill-on-bad-exit=no",
        "--on-node-loss=continue",
        "--preload-binary",
        // Every node has it.
        "--wdir=/",
        "--",
    ];
    // Settings of the user are about jobs of the user.
    let mut world = world.clone();
    let is_ours = |name: &OsStr| name.as_encoded_bytes().starts_with(b"RALLY_");
    world.variables.retain(|name, _| !is_ours(name));
    let words = OPTIONS.map(OsString::from).to_vec();
    Ok(ourselves(words, &[argument], &world)?.spec)
}

/// Returns a job whose program is our own executable.
fn ourselves(mut words: Vec<OsString>, arguments: &[&str], world: &World) -> Done<RunRequest> {
    words.push(world.executable.clone().into_os_string());
    words.extend(arguments.iter().map(OsString::from));
    match parse(&words)? {
        Args::Run(line) => run(&line, world),
        _ => Err(Error::NoCommand),
    }
}

/// Returns the settings of all sources except the command line, and the files that were looked for.
pub(crate) fn settings(world: &World) -> Done<(Layers, Vec<ConfigFile>)> {
    let mut layers = Layers::built_in();
    let mut files = Vec::new();
    let site = (world.site_config.clone(), Owner::Site);
    let user = world.user_config().map(|path| (path, Owner::User));
    for (path, owner) in std::iter::once(site).chain(user) {
        let found = apply_file(&mut layers, &path, owner).map_err(Error::Config)?;
        files.push(ConfigFile { path, found });
    }
    layers.environment(|name| world.variable(name));
    layers
        .parse()
        .map_err(|bad| Error::Config(Box::new(bad.into())))?;
    Ok((layers, files))
}

/// Returns all settings of a job, and the files that were looked for.
fn decide(job: &JobLine, world: &World) -> Done<(Settings, Vec<ConfigFile>)> {
    let (layers, files) = settings(world)?;
    let mut settings = layers
        .parse()
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
    over(&mut settings.on_hang, args.watching.on_hang, || {
        say("on-hang")
    });
    over(&mut settings.on_hangup, args.on_hangup, || say("on-hangup"));
    over(
        &mut settings.on_node_loss,
        args.on_node_loss.map(Some),
        || say("on-node-loss"),
    );
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
        &mut settings.on_machine,
        args.machine.clone().map(Some),
        || say("on-machine"),
    );
    over(&mut settings.ssh, args.ssh.clone(), || say("ssh"));
    over(&mut settings.tree_start, args.tree_start, || {
        say("tree-start")
    });
    over(
        &mut settings.bootstrap_command,
        args.bootstrap_command.clone().map(Some),
        || say("bootstrap-command"),
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
    Ok((settings, files))
}

/// Clears settings that an option of the command line about the same subject overrides.
fn withdraw(settings: &mut Settings, apps: &[AppLine], job: &JobLine) {
    let has_hosts = apps.iter().any(|app| !app.args.host.is_empty());
    let is_typed = |source: &Source| matches!(source, Source::CommandLine(_));
    if has_hosts && !is_typed(&settings.hostfile.source) {
        settings.hostfile.value = None;
    }
    if is_typed(&settings.ssh.source) && !is_typed(&settings.bootstrap_command.source) {
        settings.bootstrap_command.value = None;
    }
    if job.args.bind_list.is_some() && !is_typed(&settings.bind_to.source) {
        settings.bind_to.value = None;
    }
}

fn over<T>(setting: &mut Setting<T>, value: Option<T>, source: impl FnOnce() -> Source) {
    if let Some(value) = value {
        *setting = Setting {
            value,
            source: source(),
        };
    }
}

/// Returns the name of the machine for a job. A script that runs on a machine has its slots, and would wait for itself: there,
/// only the command line counts.
fn machine_for(setting: &Setting<Option<String>>, world: &World) -> Option<String> {
    let is_typed = matches!(setting.source, Source::CommandLine(_));
    if !is_typed && world.variable(JOB_VARIABLE).is_some() {
        return Some(NONE.to_owned());
    }
    setting.value.clone()
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
    let with_files = tune::with_files(line, world)?;
    let line = with_files.as_ref().unwrap_or(line);
    let with_variables = inputs::with_variables(line, world)?;
    let line = with_variables.as_ref().unwrap_or(line);
    let (mut settings, files) = decide(&line.job, world)?;
    withdraw(&mut settings, &line.apps, &line.job);
    let mut nodes = nodes::resolve(&line.apps, &line.job, line.personality, &settings, world)?;
    let with_counts = placement::with_counts(line, &mut nodes, &settings)?;
    let line = with_counts.as_ref().unwrap_or(line);
    let with_programs;
    let line = if line.job.args.multi_prog {
        with_programs = with_programs_of_ranks(line, world)?;
        &with_programs
    } else {
        line
    };
    let RunLine {
        personality,
        apps,
        job,
        ignored,
    } = line;
    let Placement {
        request: placement,
        nodes,
    } = placement::resolve(apps, job, *personality, &settings, nodes, world)?;
    let size = placement::size(apps, *personality);
    let (stdin, input) = stdin(job, *personality, size, world)?;
    let families = families(job, *personality)?;
    let mut programs = apps
        .iter()
        .map(|line| app(line, *personality, world))
        .collect::<Done<Vec<_>>>()?;
    if job.args.job_name.is_some()
        || (*personality == Personality::Srun && families.contains(&Family::Slurm))
    {
        named(&slurm_job::name(job, apps, world), apps, &mut programs);
    }
    if families.contains(&Family::Torch) {
        meeting_point(apps, &mut programs, world)?;
    }
    if settings.on_hang.value != OnHang::Nothing {
        // The ranks do not descend from the watchdog, so that by default it could not trace them.
        for program in &mut programs {
            program.tracers = Tracers::SameUser;
        }
    }
    let preload = preload::resolve(apps, job, &programs, world)?;
    let spec = JobSpec {
        apps: programs,
        placement,
        variables: families,
        stdin,
        stdio: stdio(job, apps, *personality, size, &settings, world)?,
        end: end_policy(job, &settings),
        hold: hold(job),
        universe: job.args.universe,
        gpus: gpus::resolve(job, world),
        preload,
        map: MapFor::Launch,
        limits: limits(job),
        watch: None,
        needs: needs(job),
        sets: sets(apps),
        recorder: job.args.watching.recorder(),
    };
    check_jobid(job, world)?;
    let void = inputs::void_exit_error(*personality, world);
    let ignored: Vec<String> = ignored.iter().cloned().chain(void).collect();
    let (daemons, started_by) = match daemons::plan(job, &nodes, &settings, world)? {
        Some(planned) => (Some(planned.plan), planned.why),
        None => (None, None),
    };
    let has_hosts = apps.iter().any(|app| !app.args.host.is_empty());
    let is_typed = |source: &Source| matches!(source, Source::CommandLine(_));
    let has_hosts = has_hosts || is_typed(&settings.hostfile.source);
    Ok(RunRequest {
        machine: machine_for(&settings.on_machine, world),
        hosts: has_hosts.then(|| nodes.allocation.names()),
        spec,
        daemons,
        started_by,
        allocation: nodes.allocation,
        front: FrontOptions {
            exit_error: inputs::exit_error(*personality, world),
            tools: tool::of_job(job, world)?,
            ..front(job, &settings, input)
        },
        show: show(job),
        notices: notices(apps, &ignored, &files, world),
    })
}

/// Checks that `--jobid` means the job of Slurm in which we run.
fn check_jobid(job: &JobLine, world: &World) -> Done<()> {
    match &job.args.jobid {
        Some(jobid) if world.variable("SLURM_JOB_ID") != Some(jobid.as_str()) => {
            Err(Error::NotOffered {
                option: format!("{} {jobid}", job.typed("jobid")),
                why: NotOffered::OtherJob,
            })
        }
        Some(_) | None => Ok(()),
    }
}

const fn limits(job: &JobLine) -> ResourceLimits {
    ResourceLimits {
        memory: job.args.limits.memory_limit,
        milli_cpus: job.args.limits.cpu_limit,
    }
}

/// Returns the counted resources that a job asks for. If one is named twice, the last one counts.
fn needs(job: &JobLine) -> ResourceNeeds {
    ResourceNeeds {
        job: job.args.resources.resource.iter().cloned().collect(),
        proc: job
            .args
            .resources
            .resource_per_proc
            .iter()
            .cloned()
            .collect(),
    }
}

/// Checks what the `rally run` of a job that starts later would refuse, as far as that does not depend on the nodes.
fn check(line: &RunLine, missing: Missing, world: &World) -> Done<()> {
    let line = RunLine {
        personality: Personality::Rally,
        ..line.clone()
    };
    let tuned = unless_missing(tune::with_files(&line, world), missing)?.flatten();
    let line = tuned.as_ref().unwrap_or(&line);
    let RunLine {
        personality,
        apps,
        job,
        ..
    } = line;
    let (mut settings, _) = decide(job, world)?;
    withdraw(&mut settings, apps, job);
    if job.args.multi_prog {
        unless_missing(with_programs_of_ranks(line, world), missing)?;
    }
    unless_missing(placement::check(apps, job, &settings, world), missing)?;
    let size = placement::size(apps, *personality);
    unless_missing(stdin(job, *personality, size, world), missing)?;
    stdio(job, apps, *personality, size, &settings, world)?;
    families(job, *personality)?;
    let programs = apps.iter().map(|line| app(line, *personality, world));
    let programs = programs.collect::<Done<Vec<_>>>()?;
    unless_missing(preload::resolve(apps, job, &programs, world), missing)?;
    Ok(())
}

/// Returns `None` for a file that may still come.
fn unless_missing<T>(done: Done<T>, missing: Missing) -> Done<Option<T>> {
    match done {
        Err(Error::Unreadable { problem, .. })
            if missing == Missing::MayCome && problem.is_absence() =>
        {
            Ok(None)
        }
        done => done.map(Some),
    }
}

/// Reads the file of `srun --multi-prog FILE`. The file is given in the place of the program.
fn with_programs_of_ranks(line: &RunLine, world: &World) -> Done<RunLine> {
    let file = line.apps.first().and_then(|app| app.program.first());
    let path = PathBuf::from(file.cloned().unwrap_or_default());
    if let [_, other, ..] = line.apps.as_slice() {
        let program = other.program.first();
        return Err(Error::Together {
            first: line.job.typed("multi-prog"),
            second: program
                .map(|name| name.display().to_string())
                .unwrap_or_default(),
            why: "the file names all programs: give none on the command line",
        });
    }
    let text = world.read(&path, FileKind::ProgramFile, app_file::MAX_FILE)?;
    multi_prog::expand(line, &path, &text)
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

/// Returns one app with its environment, directory and search path.
fn app(line: &AppLine, personality: Personality, world: &World) -> Done<App> {
    let mut words = line.program.iter().cloned();
    // The parser guarantees that there is a program.
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
        // `mpirun` of Open MPI also searches the working directory of the ranks, after PATH.
        search.push(":.");
    }
    Ok(App {
        program,
        args: words.collect(),
        elsewhere: Arc::new(line.environment.elsewhere(&variables)),
        env: variables.into_iter().collect(),
        directory: directory.into_os_string(),
        search,
        umask: line.args.umask.unwrap_or(world.umask),
        tracers: Tracers::Ancestors,
    })
}

/// Returns the process sets to which apps belong, by the index of the app.
fn sets(apps: &[AppLine]) -> BTreeMap<u32, SetName> {
    let sets = (0..).zip(apps);
    let sets = sets.filter_map(|(index, app)| Some((index, app.args.pset.clone()?)));
    sets.collect()
}

/// Returns the families of variables that tell ranks their identity.
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

/// Sets the rendezvous address of a torch program, on which its first rank listens. A value set by the user stays. A value
/// that an enclosing job of ours has set is replaced.
fn meeting_point(lines: &[AppLine], apps: &mut [App], world: &World) -> Done<()> {
    const ADDRESS: &str = "MASTER_ADDR";
    const PORT: &str = "MASTER_PORT";
    let is_inside = world.variable("RALLY_OWNER").is_some();
    let mut port = None;
    for (line, app) in lines.iter().zip(apps) {
        let has = |name: &str| {
            app.env.get(name).is_some() && (!is_inside || line.environment.names(name))
        };
        let (has_address, has_port) = (has(ADDRESS), has(PORT));
        if !has_address {
            app.env.set(ADDRESS, "127.0.0.1");
        }
        if !has_port {
            let port = match port {
                Some(port) => port,
                None => *port
                    .insert((world.unused_port)().map_err(|problem| Error::NoPort { problem })?),
            };
            app.env.set(PORT, port.to_string());
        }
    }
    Ok(())
}

/// Sets the variable with the job's name, unless a rule of the user concerns that variable.
fn named(name: &OsStr, lines: &[AppLine], apps: &mut [App]) {
    for (line, app) in lines.iter().zip(apps) {
        if !line.environment.names(slurm_job::NAME) {
            app.env.set(slurm_job::NAME, name);
        }
    }
}

/// Returns the conditions under which the job is ended.
fn end_policy(job: &JobLine, settings: &Settings) -> EndPolicy {
    EndPolicy {
        on_failure: match settings.kill_on_bad_exit.value {
            Switch::Yes => OnFailure::EndJob,
            Switch::No => OnFailure::Continue,
        },
        on_node_loss: settings.node_loss(),
        grace: settings.grace.value,
        // Zero means no limit, as in the launchers that scripts are written for.
        time_limit: settings.timeout.value.filter(|limit| !limit.is_zero()),
        warning: job.args.warn,
        wait: job.args.wait.filter(|wait| !wait.is_zero()),
        on_debugger_loss: match settings.on_debugger_loss.value {
            DebuggerLoss::Kill => OnDebuggerLoss::Kill,
            DebuggerLoss::Release => OnDebuggerLoss::Release,
        },
    }
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
        watch: daemons::of_watch(job, settings),
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
        report_pid: job
            .args
            .report_pid
            .as_ref()
            .map(|channel| match channel.to_str() {
                Some("-") => PidChannel::Stdout,
                Some("+") => PidChannel::Stderr,
                _ => PidChannel::File(channel.into()),
            }),
        record: job.args.record.as_ref().map(PathBuf::from),
        exit_codes: if job.args.print_exit_codes {
            ExitCodes::Printed
        } else {
            ExitCodes::Kept
        },
        exit_error: None,
        tools: Tools::default(),
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
        (false, true) => Show::Explain(reports),
        (true, true) => Show::DryRun {
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

fn notices(
    apps: &[AppLine],
    ignored: &[String],
    files: &[ConfigFile],
    world: &World,
) -> Vec<Notice> {
    let unreadable = files
        .iter()
        .filter(|file| matches!(file.found, Found::Unreadable(_)));
    let mut notices: Vec<_> = unreadable.cloned().map(Notice::Unreadable).collect();
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

/// Returns which ranks are held, and where.
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
