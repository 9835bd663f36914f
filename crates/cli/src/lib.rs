//! The programs `rally`, which launches parallel programs and lets tools attach to them, and `dbgr`, the parallel debugger.
//!
//! **Architecture invariant:** this is the only crate that prints, exits and reads the environment. It makes no decision
//! that a state machine could make, and leaves everything about a job except the terminal to `runtime`.

mod args;
mod askpass;
mod beside;
mod choices;
mod config;
mod daemon;
mod dbgr;
mod demo;
mod exit;
mod files;
mod front;
mod generate;
mod help;
mod kinds;
mod launch;
mod log;
mod machine;
mod messages;
mod mpir_check;
mod page;
mod plan;
mod proxy;
mod quoting;
mod release;
mod remote;
mod render;
mod screen;
mod singleton;
mod slurm;
mod start_tool;
mod summons;
mod tool;
mod top;
mod values;

use std::{
    borrow::Cow,
    ffi::OsStr,
    io::{self, Write},
    num::NonZeroU8,
    os::fd::AsFd,
    path::PathBuf,
    process::ExitCode,
};

pub use dbgr::dbgr;

use args::{
    Detail, FrontOptions, MessageFormat, PidChannel, Request, RunRequest, Show, Verbosity, World,
    request::machine::{MachineRequest, UpRequest},
};
use debug::recorded::{self, region};
use dvm::{
    bootstrap::Prompting,
    proto::LastCall,
    spec::{FrontInput, GpuKind, JobSpec, MapFor, WindowSize},
};
use front::{Complaints, Errand, ForTools, Site};
use machine::Connection;
use message::{Kind, Message, visible};
use os::Standing;
use plan::{Notes, Presenter};
use runtime::{ControllingTool, RecorderParts, Surroundings, link::Opening};

/// All messages that `rally help ID` explains.
const TABLES: &[&[&Kind]] = &[
    dvm::messages::KINDS,
    messages::KINDS,
    kinds::KINDS,
    log::KINDS,
    machine::KINDS,
    mpir_check::KINDS,
    proxy::KINDS,
    page::KINDS,
    dbgr::messages::KINDS,
    demo::KINDS,
    release::KINDS,
    start_tool::KINDS,
    launch::KINDS,
    args::launch::error::KINDS,
    slurm::KINDS,
    singleton::KINDS,
    summons::KINDS,
    top::KINDS,
];

/// Runs the program `rally`.
pub fn rally() -> ExitCode {
    os::close_on_exec_from(3);
    ExitCode::from(run())
}

fn run() -> u8 {
    let mut argv = std::env::args_os().skip(1);
    let word = argv.next();
    let variable = |name: &str| std::env::var(name).ok();
    if word.as_deref() == Some(OsStr::new(args::DAEMON_ARGUMENT)) {
        return daemon::serve(argv.next().map(PathBuf::from));
    }
    if word.as_deref() == Some(OsStr::new(args::DEMO_ARGUMENT)) {
        return demo::run_rank(&variable);
    }
    if word.as_deref() == Some(OsStr::new(args::MPIR_DAEMON_ARGUMENT)) {
        return mpir_check::be_daemon();
    }
    if word.as_deref() == Some(OsStr::new(args::SINGLETON_ARGUMENT)) {
        let port = argv.next().and_then(|port| port.to_str()?.parse().ok());
        return singleton::serve_singleton(port, &variable);
    }
    if let Some(question) = askpass::question(word.as_ref(), argv.next().as_ref()) {
        return askpass::serve(question);
    }
    let mut world = World::capture();
    world.prompting = prompting();
    world.window = terminal_size(io::stdin()).unwrap_or(world.window);
    world.screen = terminal_size(io::stdout());
    // A closed stdin is treated like an empty file.
    if let Ok([Some(stdin), ..]) = os::standard_streams()
        && !os::is_readable(stdin.as_fd())
    {
        world.input = FrontInput::Unreadable;
    }
    let looks_like_job = args::looks_like_job(&world.argv);
    // A job that goes to a machine needs no controller of its own.
    if looks_like_job && let Err(error) = log::start(&world) {
        say(&error.message(), args::message_format(&world.argv));
        return error.exit().code();
    }
    // A tool that has started us waits for a short time only.
    let tool = match looks_like_job.then(|| summons::controlling_tool(&world)) {
        None => None,
        Some(Ok(tool)) => tool,
        Some(Err((message, code))) => {
            say(&message, args::message_format(&world.argv));
            return code.code();
        }
    };
    // A job that goes to a machine needs no controller of its own.
    let has_controller = looks_like_job && (tool.is_some() || !machine::is_told(&world));
    // Forks before the process has threads or much memory to copy.
    let helpers = has_controller.then(|| start_helpers(&world, tool));
    let request = args::parse(&world.argv).and_then(|args| args::resolve(&args, &world));
    match request {
        Ok(request) => carry_out(request, &world, helpers),
        Err(error) => {
            say(&error.message(), args::message_format(&world.argv));
            args::code_of(&error, &world)
        }
    }
}

/// The library that records calls of MPI, which the build script has built. Empty for other processors.
const RECORDER: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/librally-calls.so"));

/// Returns the directories that our environment names for runtime and temporary files.
fn surroundings() -> Surroundings {
    let gpus = |kind: GpuKind| {
        let list = std::env::var_os(kind.variable())?;
        Some(list.to_string_lossy().into_owned())
    };
    let variable = |name| std::env::var_os(name).map(PathBuf::from);
    Surroundings {
        runtime: variable("XDG_RUNTIME_DIR"),
        temporary: variable("TMPDIR"),
        for_slurm: Some(slurm::environment_of_requests),
        recorder: (!RECORDER.is_empty()).then_some(RecorderParts {
            library: RECORDER,
            last_call,
        }),
        nvidia_gpus: gpus(GpuKind::Nvidia),
        amd_gpus: gpus(GpuKind::Amd),
    }
}

/// Reads what a rank called last from the region that it has left. `None` if it had finalized MPI: its end has to do with other things.
fn last_call(region: &[u8]) -> Option<LastCall> {
    let regions = [region.to_vec()];
    let extent = region::Extent::Current;
    let region::Content::Calls(calls) = region::read_left(&regions, None, extent) else {
        return None;
    };
    let last = calls.last().filter(|_| !calls.finalized)?;
    let mut call = recorded::words::call(last, &calls);
    call.truncate(call.floor_char_boundary(LastCall::BYTES_MAX));
    Some(LastCall {
        call,
        number: last.number,
        in_progress: last.in_progress,
    })
}

/// Returns whether start commands may ask the user: in the foreground of a terminal, whatever our streams are.
fn prompting() -> Prompting {
    match os::controlling_terminal() {
        Ok(terminal) if os::standing(terminal.as_fd()) == Standing::Foreground => {
            Prompting::OnTerminal
        }
        Ok(_) | Err(_) => Prompting::Never,
    }
}

/// Returns the size of the terminal on one of our streams. `None` if it is no terminal.
fn terminal_size(stream: impl AsFd) -> Option<WindowSize> {
    let stream = stream.as_fd();
    let size = os::window_size(stream).filter(|_| os::is_terminal(stream))?;
    Some(WindowSize {
        rows: size.rows,
        columns: size.columns,
    })
}

/// The output of `srun --mpi=list`, which scripts search for a word. Ranks get all these interfaces, whichever is selected.
const MPI_TYPES: &str = "MPI plugin types are...\n  none\n  pmi2\n  pmix\n";

/// Starts the helper processes of a job. A tool may control it.
fn start_helpers(
    world: &World,
    tool: Option<ControllingTool>,
) -> Result<front::Helpers, os::Error> {
    let format = args::message_format(&world.argv);
    let tools = ForTools {
        controlling: tool,
        doors: summons::doors(world),
    };
    front::Helpers::start(&world.host, format, Complaints::Inherit, tools)
}

/// The helper processes of a job. `None` if they were not started early.
type EarlyHelpers = Option<Result<front::Helpers, os::Error>>;

fn carry_out(request: Request, world: &World, helpers: EarlyHelpers) -> u8 {
    match request {
        Request::Run(request) | Request::Demo(request) => start(*request, world, helpers),
        Request::Machine(MachineRequest::Up(request)) => up(*request, world),
        Request::Machine(MachineRequest::Top(which)) => top::run(&which, world),
        Request::Machine(MachineRequest::Page(which, port)) => page::serve(&which, port, world),
        Request::Machine(request) => {
            if let Some(instead) = slurm::instead(&request, world) {
                return slurm::carry_out(instead, world);
            }
            let beside = slurm::beside(&request);
            let code = machine::carry_out(request, world);
            match beside {
                Some((list, format)) if code == exit::SUCCESS => {
                    slurm::show_beside(list, format, world)
                }
                _ => code,
            }
        }
        Request::Slurm(request) => slurm::carry_out(request, world),
        Request::Singleton(mut request, process) => {
            request.machine = Some(args::request::machine::NONE.to_owned());
            let caller = singleton::Caller::of(process);
            let code = start(*request, world, helpers);
            caller.end_if_failed(code);
            code
        }
        Request::Config(request) => {
            let text = match request.format {
                MessageFormat::Text => config::text(&request.layers, &request.files),
                MessageFormat::Json => config::json(&request.layers, &request.files),
            };
            print(&text, request.format)
        }
        Request::Help(topic) => match help::text(&topic, TABLES) {
            Ok(text) => print(&text, MessageFormat::Text),
            Err(error) => {
                say(&error.message(), MessageFormat::Text);
                error.exit().code()
            }
        },
        Request::MpirCheck(request) => mpir_check::run(&request, world),
        Request::Proxy(request) => proxy::run(&request, world),
        Request::Release(request) => release(&request, world),
        Request::StartTool(request) => start_tool::run(*request, world),
        Request::Launch(request) => launch::run(&request, world),
        Request::NewLaunch(request) => launch::write_new(&request),
        Request::Generate(what) => {
            let mut text = Vec::new();
            match generate::write(what, &mut text).and_then(|()| io::stdout().write_all(&text)) {
                Ok(()) => exit::SUCCESS,
                Err(error) => unprinted(&error),
            }
        }
        Request::Version => print(
            concat!("rally ", env!("CARGO_PKG_VERSION"), "\n"),
            MessageFormat::Text,
        ),
        Request::MpiTypes => print(MPI_TYPES, MessageFormat::Text),
    }
}

fn start(request: RunRequest, world: &World, helpers: EarlyHelpers) -> u8 {
    let format = request.front.message_format;
    let exit_error = request.front.exit_error;
    let as_said = |code: u8| exit_error.map_or(code, NonZeroU8::get);
    if request.front.verbosity != Verbosity::Quiet {
        for notice in &request.notices {
            say(&notice.message(), format);
        }
    }
    let machine = match connect(&request, world) {
        Ok(machine) => machine,
        Err((message, code)) => {
            say(&message, format);
            return as_said(code.code());
        }
    };
    let has_others = request.daemons_before().is_some() || machine.is_some();
    let (map, presenter) = match &request.show {
        Show::Run => (MapFor::Launch, None),
        Show::RunAndReport(_) => {
            let presenter = Presenter::of(&request, Detail::Map, Notes::Apart);
            if has_others {
                (MapFor::FrontAndLaunch, Some(presenter))
            } else {
                // Printed to stderr, so that stdout contains only the ranks' output. If the job cannot be placed, the
                // controller refuses it with the same message.
                if let Ok(text) = presenter.assume() {
                    let _ = io::stderr().write_all(shown(&text, format).as_bytes());
                }
                (MapFor::Launch, None)
            }
        }
        Show::Explain(_) if has_others => {
            let presenter = Presenter::of(&request, Detail::Reasons, Notes::Shown);
            (MapFor::Front, Some(presenter))
        }
        Show::Explain(_) | Show::DryRun { .. } => return dry_run(&request),
    };
    let RunRequest {
        mut spec,
        allocation,
        daemons,
        front,
        hosts,
        ..
    } = request;
    if let Some(connection) = machine {
        for app in &mut spec.placement.apps {
            if app.hosts.is_none() {
                app.hosts.clone_from(&hosts);
            }
        }
        spec.map = map;
        // They were started for nothing: the command line names the machine.
        drop(helpers);
        return run_on(connection, spec, front, presenter, world);
    }
    spec.map = map;
    if map == MapFor::Front {
        spec.stdio.pty = None;
    } else if let Some(channel) = &front.report_pid
        && let Err(error) = report_pid(channel)
    {
        say(&error.message(), format);
        return as_said(error.exit().code());
    }
    let recorded = recording(&front, world).map_err(|error| (error.message(), error.exit()));
    let prepared = recorded.and_then(|file| Ok((file, slurm::for_requests(world)?)));
    let (recording, slurm) = match prepared {
        Ok(prepared) => prepared,
        Err((message, code)) => {
            say(&message, format);
            return as_said(code.code());
        }
    };
    let opening = Opening {
        allocation,
        daemons,
        recording,
        machine: None,
        slurm,
    };
    if helpers.is_none()
        && let Err(error) = log::start(world)
    {
        say(&error.message(), format);
        return as_said(error.exit().code());
    }
    let helpers = helpers.unwrap_or_else(|| start_helpers(world, None));
    let ran = helpers.and_then(|helpers| {
        let site = Site::Own(helpers, Box::new(opening));
        front::run(Box::new(spec), Errand::Run, site, front, presenter)
    });
    match ran {
        Ok(code) => code,
        Err(error) => {
            say(&messages::system(&error), format);
            as_said(exit::ExitCode::Resources.code())
        }
    }
}

/// Connects to the machine on which a job runs; `None` if it runs on none.
fn connect(request: &RunRequest, world: &World) -> Result<Option<Connection>, machine::Failure> {
    let starts = matches!(request.show, Show::Run | Show::RunAndReport(_));
    if !starts {
        return Ok(None);
    }
    let told = match &request.machine {
        // The tool controls a launcher of its own.
        None if summons::is_controlled(world) => Some(args::request::machine::NONE),
        Some(name) if name != args::request::machine::NONE && summons::is_controlled(world) => {
            return Err(summons::not_on_machine(name));
        }
        told => told.as_deref(),
    };
    let found = machine::for_run(world, told)?;
    let connection = found.as_ref().map(Connection::to).transpose()?;
    if let Some(found) = &found
        && request.front.verbosity != Verbosity::Quiet
    {
        say(&machine::runs_on(&found.name), request.front.message_format);
    }
    Ok(connection)
}

/// Runs a job on a machine.
fn run_on(
    connection: Connection,
    spec: JobSpec,
    front: FrontOptions,
    presenter: Option<Presenter>,
    world: &World,
) -> u8 {
    let format = front.message_format;
    let said = front.exit_error;
    let code_of = |code: exit::ExitCode| said.map_or_else(|| code.code(), NonZeroU8::get);
    if let Err(error) = log::start(world) {
        say(&error.message(), format);
        return code_of(error.exit());
    }
    let site = Site::Machine(connection);
    match front::run(Box::new(spec), Errand::RunOnMachine, site, front, presenter) {
        Ok(code) => code,
        Err(error) => {
            say(&messages::system(&error), format);
            code_of(exit::ExitCode::Resources)
        }
    }
}

/// Starts a machine.
fn up(request: UpRequest, world: &World) -> u8 {
    // A machine must not keep what the shell has open: whoever waits for its end would wait for ours. The files that the command
    // line names, some of them among these descriptors, have been read.
    os::close_from(3);
    let RunRequest {
        mut spec,
        allocation,
        daemons,
        mut front,
        notices,
        ..
    } = request.run;
    let format = front.message_format;
    let fail = |(message, code): machine::Failure| {
        say(&message, format);
        code.code()
    };
    for notice in &notices {
        say(&notice.message(), format);
    }
    let plan = match machine::plan(&request.name, &front.watch, world) {
        Ok(plan) => runtime::MachinePlan {
            model: Some(Box::new(spec.clone())),
            declared: request.declared.clone(),
            limits: request.limits,
            ..plan
        },
        Err(failure) => return fail(failure),
    };
    let recording = match recording(&front, world) {
        Ok(recording) => recording,
        Err(error) => return fail((error.message(), error.exit())),
    };
    if let Err(error) = log::start(world) {
        return fail((error.message(), error.exit()));
    }
    // Nobody reads input, and the terminal stays as it is.
    front.input = args::InputSource::Null;
    spec.stdio.pty = None;
    let directory = plan.directory.clone();
    let opening = Opening {
        allocation,
        daemons,
        recording,
        machine: Some(plan.clone()),
        slurm: None,
    };
    let log = match machine::open_log(&plan) {
        Ok(log) => log,
        Err(failure) => return fail(failure),
    };
    let tools = ForTools {
        controlling: None,
        doors: summons::doors_of_machine(request.server, world),
    };
    let helpers = front::Helpers::start(&world.host, format, Complaints::File(&log), tools);
    let ran = helpers.and_then(|helpers| {
        let site = Site::Own(helpers, Box::new(opening));
        front::run(Box::new(spec), Errand::Up(directory), site, front, None)
    });
    let code = match ran {
        Ok(code) => code,
        Err(error) => return fail((messages::system(&error), exit::ExitCode::Resources)),
    };
    if code == exit::SUCCESS
        && request.is_default
        && let Err(failure) = machine::make_default(&plan)
    {
        return fail(failure);
    }
    code
}

/// Releases a held job of the queue, or held ranks.
fn release(request: &args::ReleaseRequest, world: &World) -> u8 {
    let number = request
        .job
        .as_ref()
        .and_then(|name| name.typed.parse().ok());
    let of_machine = match (number, &request.ranks) {
        (Some(number), None) => {
            machine::release(base::JobId(number), request.machine.as_deref(), world)
        }
        _ => Ok(false),
    };
    let why = match of_machine {
        Ok(true) => return exit::SUCCESS,
        Ok(false) => None,
        Err(failure) => Some(failure),
    };
    // The number may be that of a front, unless a machine was named.
    let of_ranks = match &why {
        Some(_) if request.machine.is_some() => None,
        _ => Some(release::release(request)),
    };
    match (of_ranks, why) {
        (Some(Ok(released)), _) => print(&released.shown(request.format), request.format),
        (_, Some((message, code))) => {
            say(&message, request.format);
            code.code()
        }
        (Some(Err(message)), None) => {
            say(&message, request.format);
            exit::ExitCode::Usage.code()
        }
        // A machine that was named has released the job, or has said why not.
        (None, None) => exit::INTERNAL,
    }
}

/// Shows the map of a job, and starts nothing.
fn dry_run(request: &RunRequest) -> u8 {
    let format = request.front.message_format;
    let (detail, is_assumed) = match request.show {
        Show::DryRun { detail, .. } => (detail, request.daemons_before().is_some()),
        _ => (Detail::Reasons, false),
    };
    match Presenter::of(request, detail, Notes::Shown).assume() {
        Ok(text) => {
            let code = print(&text, format);
            if is_assumed && request.front.verbosity != Verbosity::Quiet {
                say(&messages::assumed(), format);
            }
            code
        }
        Err(plan::Unplaced { message, code }) => {
            say(&message, format);
            request.front.exit_error.map_or(code, NonZeroU8::get)
        }
    }
}

/// Returns the path of the recording. The file is created here, because nothing has been started yet.
fn recording(front: &FrontOptions, world: &World) -> Result<Option<PathBuf>, args::Error> {
    let Some(path) = &front.record else {
        return Ok(None);
    };
    let path = world.absolute(path)?;
    match os::Appender::create(&path, os::Links::Followed) {
        Ok(_) => Ok(Some(path)),
        Err(error) => {
            let problem = error.to_string();
            Err(args::Error::NotRecorded { problem })
        }
    }
}

/// Publishes our pid for programs that will send us signals.
fn report_pid(channel: &PidChannel) -> Result<(), args::Error> {
    let text = format!("{}\n", std::process::id());
    match channel {
        PidChannel::Stdout => drop(io::stdout().write_all(text.as_bytes())),
        PidChannel::Stderr => drop(io::stderr().write_all(text.as_bytes())),
        PidChannel::File(path) => {
            os::publish(path, text.as_bytes()).map_err(|why| args::Error::Unwritable {
                path: path.clone(),
                problem: why.to_string(),
            })?;
        }
    }
    Ok(())
}

/// Prints to stdout, and returns the exit code. A closed pipe is a success, as for any filter.
fn print(text: &str, format: MessageFormat) -> u8 {
    match io::stdout().write_all(shown(text, format).as_bytes()) {
        Ok(()) => exit::SUCCESS,
        Err(error) => unprinted(&error),
    }
}

/// Returns the text without control characters that would affect a terminal.
fn shown(text: &str, format: MessageFormat) -> Cow<'_, str> {
    match format {
        MessageFormat::Text => visible::lines(text),
        MessageFormat::Json => visible::json(text),
    }
}

fn unprinted(error: &io::Error) -> u8 {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return exit::SUCCESS;
    }
    say(
        &messages::output_lost(
            dvm::proto::Stream::Stdout,
            error.raw_os_error().unwrap_or_default(),
        ),
        MessageFormat::Text,
    );
    exit::INTERNAL
}

/// Prints what a panic has said.
fn complain(text: &str) {
    let text = visible::lines(text);
    let _ = writeln!(io::stderr().lock(), "{text}");
}

fn say(message: &Message, format: MessageFormat) {
    // Without stderr the message is lost; the exit code still reports the error.
    let _ = message::print(message, format, &mut io::stderr().lock());
}
