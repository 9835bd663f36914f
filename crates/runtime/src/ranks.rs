//! Descriptors and pids of the ranks of this node.

mod channels;
mod elsewhere;
mod find;
mod program;
mod relocated;
mod script;

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::{CStr, CString, OsStr, OsString},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::{OsStrExt, OsStringExt},
    },
    path::Path,
};

use base::{JobId, NodeId, ProcId, Signal};
use bytes::Bytes;
use dvm::{
    SpawnOrder,
    backlog::{Backlog, Bounds},
    proto::{Missing, ProcUsage, StartFailure, StartStep, Stream},
    spec::{App, HoldAt, WindowSize},
    traced::{Debugger, Former, Seen},
    trap::{Act, Trap},
};
use os::{
    Interest, Orphan, Pid, Resource, Session, SpawnSpec, SpawnStep, Spawner, Token, Trace,
    WriteOutcome,
};

use self::{
    channels::{Channels, window_size},
    program::{Prepared, c_string, variable},
    script::{SHELL, is_script, is_unknown_format, shell_argv},
};
use super::{
    clients::interest,
    missing::MissingReports,
    reactor::{Channel, Child, Reactor, Source},
    record::OWNER_VARIABLE,
};

/// EPERM of Linux: the process belongs to another user.
const EPERM: i32 = 1;
/// EINVAL of Linux, with the same value on every architecture that we build for.
const EINVAL: i32 = 22;
/// The descriptor number at which a rank finds its PMI connection.
const PMI_TARGET: i32 = dvm::PMI_DESCRIPTOR;
/// Capacity of a new pipe, in bytes.
const PIPE_ROOM_DEFAULT: usize = 64 * 1024;
/// Capacity of the pipe of a rank that has filled the default one, in bytes.
pub(super) const PIPE_SIZE: usize = 1024 * 1024;
/// EOF character of a terminal in canonical mode. It means end of file only at the beginning of a line; elsewhere it only
/// passes on the bytes before it.
const END_OF_INPUT: u8 = 4;
/// Bounds of the PMI answers, in bytes, that one rank has not read. While any is unread, no request is read from that rank.
const PMI_QUEUE: Bounds = Bounds {
    pause: 0,
    most: 1024 * 1024,
};

/// Our ends of a rank's channels, and its process.
#[derive(Debug)]
struct Rank {
    pid: Option<Pid>,
    stdout: Option<Token>,
    stderr: Option<Token>,
    /// With a terminal this is a duplicate of the descriptor of `stdout`.
    stdin: Option<Token>,
    writing: Bytes,
    /// The last byte written to its stdin; `None` before the first.
    written_last: Option<u8>,
    pmi: Option<Token>,
    pmi_queue: Vec<u8>,
    pmi_backlog: Backlog,
    /// For each stream: nobody has tried to enlarge its pipe.
    has_default_size: [bool; 2],
    terminal: bool,
    trap: Trap,
}

/// All ranks of this node.
#[derive(Debug)]
pub(super) struct Ranks {
    node: NodeId,
    spawner: Spawner,
    /// Variables that every rank gets, before those of its app.
    variables: Vec<CString>,
    descriptors: (u64, u64),
    /// The variables of this node, if it is on another host than the launcher.
    environment: Option<Vec<(OsString, OsString)>>,
    apps: BTreeMap<JobId, Vec<Prepared>>,
    ranks: BTreeMap<ProcId, Rank>,
}

/// Result of a write to a rank's stdin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fed {
    All,
    Part,
    Broken,
}

/// Whether a PMI answer was accepted for sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    Ok,
    /// The rank does not read its answers, and the queue is full: close its connection.
    TooMuch,
}

/// Where a rank has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stopped {
    /// At its first instruction, where it is to be held: its exec is done, and it has no tracer.
    AtFirstInstruction,
    Elsewhere,
}

/// Whether a debugger traces a rank that was released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Held {
    ByNobody,
    /// `None` if the kernel does not reveal whether there is a tracer, and which.
    By(Option<Debugger>),
}

/// Whether a rank could be signalled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signalled {
    Ok,
    /// The rank now runs as another user.
    NotPermitted(Pid),
}

impl Ranks {
    pub(super) fn new(
        node: NodeId,
        owner: &str,
        own_memory: Option<&Path>,
        descriptors: (u64, u64),
        environment: Option<Vec<(OsString, OsString)>>,
    ) -> Result<Self, os::Error> {
        let mut variables = vec![c_string(format!("{OWNER_VARIABLE}={owner}").into_bytes())];
        variables.extend(own_memory.into_iter().flat_map(backing_directories));
        Ok(Self {
            node,
            spawner: Spawner::new()?,
            variables,
            descriptors,
            environment,
            apps: BTreeMap::new(),
            ranks: BTreeMap::new(),
        })
    }

    /// Finds the programs and directories of a job's apps. Returns the failures of the apps that cannot be started, by
    /// index.
    /// `calls` is the directory for recorded calls, if there is one.
    pub(super) fn prepare(
        &mut self,
        job: JobId,
        apps: &[App],
        calls: Option<&Path>,
    ) -> BTreeMap<u32, StartFailure> {
        let apps: Vec<Prepared> = apps
            .iter()
            .map(|app| Prepared::new(app, self.environment.as_deref(), calls))
            .collect();
        let apps = self.apps.entry(job).insert_entry(apps).into_mut();
        let failures = apps.iter().map(|app| app.program.as_ref().err());
        (0..)
            .zip(failures)
            .filter_map(|(index, failure)| Some((index, failure?.clone())))
            .collect()
    }

    /// Starts one rank, in this cgroup if there is one. Returns its pid and the absolute path of its program.
    pub(super) fn spawn(
        &mut self,
        reactor: &mut Reactor,
        order: &SpawnOrder,
        cgroup: Option<BorrowedFd<'_>>,
    ) -> Result<(Pid, OsString), StartFailure> {
        let app = app_of(&mut self.apps, order)?;
        let program = app.program.clone()?;
        app.leave_out(&order.env);
        let directory = app.directory.clone();
        let channels = Channels::open(order, &directory)?;
        let pid = self.execute(order, &program, &channels, cgroup)?;
        let rank = watched(reactor, self.node, order, pid, channels);
        let child = Child::Proc {
            node: self.node,
            proc: order.proc,
        };
        reactor.children.insert(pid, child);
        self.ranks.insert(order.proc, rank);
        // Tools get an absolute path, because their working directory differs.
        let directory = Path::new(OsStr::from_bytes(directory.to_bytes()));
        let program = directory.join(OsStr::from_bytes(program.to_bytes()));
        let program = std::path::absolute(&program).unwrap_or(program);
        Ok((pid, program.into_os_string()))
    }

    /// Executes the program of a rank, with the rank's ends of the channels as its descriptors.
    fn execute(
        &mut self,
        order: &SpawnOrder,
        program: &CStr,
        channels: &Channels,
        cgroup: Option<BorrowedFd<'_>>,
    ) -> Result<Pid, StartFailure> {
        let app = app_of(&mut self.apps, order)?;
        let mut extra: Vec<CString> = order
            .env
            .iter()
            .map(|(name, value)| variable(name.as_ref(), value.as_os_str()))
            .collect();
        extra.extend_from_slice(&self.variables);
        extra.extend_from_slice(&app.more);
        let shared: Vec<&CStr> = app.env.entries().collect();
        let [stdin, stdout, stderr] = &channels.theirs;
        let mut fds = vec![(stdin.as_fd(), 0), (stdout.as_fd(), 1), (stderr.as_fd(), 2)];
        let pmi = channels.pmi_theirs.as_ref();
        fds.extend(pmi.map(|pmi| (pmi.as_fd(), PMI_TARGET)));
        let spec = SpawnSpec {
            program: app.shell.as_ref().map_or(program, |_| SHELL),
            argv: app.shell.as_ref().unwrap_or(&app.argv),
            envp: &extra,
            envp_shared: &shared,
            cwd: Some(&app.directory),
            fds: &fds,
            affinity: order.cpus.as_ref(),
            umask: Some(app.umask),
            tracers: app.tracers,
            limits: &[(
                Resource::Descriptors,
                self.descriptors.0,
                self.descriptors.1,
            )],
            session: if order.pty_size.is_some() {
                Session::WithTerminal
            } else {
                Session::Own
            },
            orphan: Orphan::Killed,
            trace: match order.hold {
                HoldAt::Nowhere | HoldAt::Init | HoldAt::App => Trace::No,
                HoldAt::Exec => Trace::StopOnExec,
            },
            cgroup,
        };
        let mut result = self.spawner.spawn(&spec);
        if app.shell.is_none() && result.is_err_and(is_unknown_format) {
            let directory = Path::new(OsStr::from_bytes(app.directory.to_bytes()));
            if is_script(&directory.join(OsStr::from_bytes(program.to_bytes()))) {
                let argv = shell_argv(program, &app.argv);
                result = self.spawner.spawn(&SpawnSpec {
                    program: SHELL,
                    argv: &argv,
                    ..spec
                });
                app.shell = Some(argv);
            }
        }
        result.map_err(|error| {
            let step = start_step(error.step);
            let subject = match step {
                StartStep::Exec => Some(OsString::from_vec(program.to_bytes().to_vec())),
                StartStep::Directory => Some(OsString::from_vec(app.directory.to_bytes().to_vec())),
                _ => None,
            };
            StartFailure {
                step,
                errno: error.errno,
                subject,
            }
        })
    }

    /// Forgets the pid of a rank that was reaped, and returns it.
    pub(super) fn on_exited(&mut self, proc: ProcId) -> Option<Pid> {
        self.ranks.get_mut(&proc)?.pid.take()
    }

    /// Handles a stop of a rank. Returns whether it is now held at its first instruction.
    pub(super) fn on_stopped(&mut self, proc: ProcId, pid: Pid, signal: Signal) -> Stopped {
        let Some(rank) = self.ranks.get_mut(&proc) else {
            return Stopped::Elsewhere;
        };
        match rank.trap.on_stopped(signal) {
            // Errors are ignored here and below: the rank may have been killed meanwhile.
            Act::Leave => drop(os::leave_stopped(pid)),
            Act::PassOn(signal) => drop(os::inject(pid, signal)),
            Act::Held => return Stopped::AtFirstInstruction,
            Act::Nothing => {}
        }
        Stopped::Elsewhere
    }

    #[must_use]
    pub(super) fn signal(&self, proc: ProcId, signal: Signal) -> Signalled {
        let Some(pid) = self.pid(proc) else {
            return Signalled::Ok;
        };
        let others = match signal {
            Signal::TSTP => not_stopped_by_default(pid),
            // A pause is for all that the rank has started, whatever group that has joined.
            Signal::STOP | Signal::CONT => outside_of_group(pid),
            _ => Vec::new(),
        };
        // Signal the process group, and the rank itself if that fails: it may have left the group. SIGKILL is always sent
        // to the rank too: the rank may have changed its user, and kill(2) on a group succeeds if any member may be
        // signalled.
        let group = os::kill_group(pid, signal);
        if (group.is_err() || signal == Signal::KILL)
            && os::kill(pid, signal).is_err_and(|error| error.errno() == EPERM)
        {
            return Signalled::NotPermitted(pid);
        }
        let signal = match signal {
            Signal::TSTP => Signal::STOP,
            other => other,
        };
        for pid in others {
            let _ = os::kill(pid, signal);
        }
        Signalled::Ok
    }

    /// Returns what the running ranks of a job use.
    pub(super) fn measure(&self, job: JobId) -> Vec<ProcUsage> {
        let ranks = self.ranks.iter().filter(|(proc, _)| proc.job == job);
        let running = ranks.filter_map(|(proc, rank)| Some((proc.rank, rank.pid?)));
        let measured = running.filter_map(|(rank, pid)| {
            let load = os::usage_below(pid)?;
            Some(ProcUsage {
                rank,
                pid: pid.as_raw(),
                processes: load.processes,
                resident: load.resident,
                used: load.used,
            })
        });
        measured.collect()
    }

    /// Continues a held rank, unless a debugger traces it: then the debugger continues it.
    pub(super) fn let_run(&self, proc: ProcId) -> Held {
        let Some(pid) = self.pid(proc) else {
            return Held::ByNobody;
        };
        match os::tracer(pid) {
            Ok(Some(debugger)) => Held::By(Some(identity(debugger))),
            Err(_) => Held::By(None),
            Ok(None) => {
                // An error means that the rank was killed meanwhile.
                let _ = os::kill(pid, Signal::CONT);
                Held::ByNobody
            }
        }
    }

    /// Returns who traces a rank now and, if nobody does, whether the debugger that was last known is still alive.
    pub(super) fn find_tracer(&self, proc: ProcId, known: Option<Debugger>) -> Seen {
        let Some(pid) = self.pid(proc) else {
            return Seen::Unknown;
        };
        match os::tracer(pid) {
            Err(_) => Seen::Unknown,
            Ok(Some(debugger)) => Seen::TracedBy(match known {
                Some(known) if known.pid == debugger.as_raw() => known,
                Some(_) | None => identity(debugger),
            }),
            Ok(None) => Seen::Free(match known {
                None => Former::Unknown,
                Some(known) if lives(known) => Former::Lives,
                Some(_) => Former::Gone,
            }),
        }
    }

    fn pid(&self, proc: ProcId) -> Option<Pid> {
        self.ranks.get(&proc).and_then(|rank| rank.pid)
    }

    fn output(&self, proc: ProcId, stream: Stream) -> Option<Token> {
        let rank = self.ranks.get(&proc)?;
        match stream {
            Stream::Stdout => rank.stdout,
            Stream::Stderr => rank.stderr,
        }
    }

    pub(super) fn set_reading(
        &self,
        reactor: &mut Reactor,
        missing_reports: &mut MissingReports,
        proc: ProcId,
        stream: Stream,
        interest: Interest,
    ) {
        if let Some(token) = self.output(proc, stream)
            && let Err(error) = reactor.set_interest(token, interest)
        {
            missing_reports.add(Missing::Output(proc.rank), &error);
        }
    }

    pub(super) fn close_output(&mut self, reactor: &mut Reactor, proc: ProcId, stream: Stream) {
        let Some(rank) = self.ranks.get_mut(&proc) else {
            return;
        };
        let token = match stream {
            Stream::Stdout => rank.stdout.take(),
            Stream::Stderr => rank.stderr.take(),
        };
        remove(reactor, token);
    }

    /// Returns true if `read` bytes fill a stream's pipe and we have not tried to enlarge it. Returns true only once for a stream,
    /// so that a pipe that cannot grow is not tried again.
    pub(super) fn shall_grow(&mut self, proc: ProcId, stream: Stream, read: usize) -> bool {
        let Some(rank) = self.ranks.get_mut(&proc) else {
            return false;
        };
        let has_default_size = &mut rank.has_default_size[stream as usize];
        let grows = *has_default_size && read >= PIPE_ROOM_DEFAULT;
        *has_default_size &= !grows;
        grows
    }

    /// Takes bytes to write to a rank's stdin. Returns the descriptor to write to.
    pub(super) fn queue_stdin(&mut self, proc: ProcId, bytes: Bytes) -> Option<Token> {
        let rank = self.ranks.get_mut(&proc)?;
        rank.writing = bytes;
        rank.stdin
    }

    pub(super) fn write_stdin(&mut self, reactor: &mut Reactor, token: Token, proc: ProcId) -> Fed {
        let Some(rank) = self.ranks.get_mut(&proc) else {
            return Fed::Broken;
        };
        loop {
            if rank.writing.is_empty() {
                let _ = reactor.set_interest(token, Interest::None);
                return Fed::All;
            }
            let Some(written) = reactor.write(token, &rank.writing) else {
                return Fed::Broken;
            };
            match written {
                Ok(WriteOutcome::Bytes(written)) => {
                    rank.written_last = rank.writing.split_to(written).last().copied();
                }
                Ok(WriteOutcome::WouldBlock) => {
                    return if reactor.set_interest(token, Interest::Write).is_ok() {
                        Fed::Part
                    } else {
                        Fed::Broken
                    };
                }
                Ok(WriteOutcome::Closed) | Err(_) => return Fed::Broken,
            }
        }
    }

    pub(super) fn close_stdin(&mut self, reactor: &mut Reactor, proc: ProcId) {
        let Some(rank) = self.ranks.get_mut(&proc) else {
            return;
        };
        rank.writing = Bytes::new();
        if let Some(token) = rank.stdin
            && rank.terminal
        {
            // The terminal stays open for output, so its reader gets the EOF character: twice if the last line is
            // unfinished.
            let unfinished = rank.written_last.is_some_and(|byte| byte != b'\n');
            let _ = reactor.write(token, &[END_OF_INPUT; 2][..1 + usize::from(unfinished)]);
        }
        remove(reactor, rank.stdin.take());
    }

    /// Returns the PMI connection of a rank, or `None` once it is closed.
    pub(super) fn pmi(&self, proc: ProcId) -> Option<Token> {
        self.ranks.get(&proc)?.pmi
    }

    /// Queues an answer to a rank's PMI request and writes what the socket takes.
    #[must_use]
    pub(super) fn send_pmi(&mut self, reactor: &mut Reactor, proc: ProcId, bytes: &[u8]) -> Sent {
        let Some(rank) = self.ranks.get_mut(&proc) else {
            return Sent::Ok;
        };
        if rank.pmi_backlog.push(bytes.len()).is_err() {
            return Sent::TooMuch;
        }
        rank.pmi_queue.extend_from_slice(bytes);
        self.flush_pmi(reactor, proc);
        Sent::Ok
    }

    pub(super) fn flush_pmi(&mut self, reactor: &mut Reactor, proc: ProcId) {
        let Some(rank) = self.ranks.get_mut(&proc) else {
            return;
        };
        let Some(token) = rank.pmi else { return };
        while !rank.pmi_queue.is_empty() {
            let Some(written) = reactor.write(token, &rank.pmi_queue) else {
                return;
            };
            match written {
                Ok(WriteOutcome::Bytes(written)) => {
                    drop(rank.pmi_queue.drain(..written));
                    rank.pmi_backlog.written(written);
                }
                Ok(WriteOutcome::WouldBlock) => break,
                // The next read sees end of file and closes the connection.
                Ok(WriteOutcome::Closed) | Err(_) => {
                    rank.pmi_queue.clear();
                    rank.pmi_backlog.clear();
                }
            }
        }
        let wanted = interest(rank.pmi_backlog.wanted());
        let _ = reactor.set_interest(token, wanted);
    }

    pub(super) fn close_pmi(&mut self, reactor: &mut Reactor, proc: ProcId) {
        if let Some(rank) = self.ranks.get_mut(&proc) {
            remove(reactor, rank.pmi.take());
        }
    }

    pub(super) fn resize(&self, reactor: &Reactor, proc: ProcId, size: WindowSize) {
        if let Some(fd) = self
            .output(proc, Stream::Stdout)
            .and_then(|token| reactor.fd(token))
        {
            let _ = os::set_window_size(fd, window_size(size));
        }
    }

    /// Signals the processes that a job has left behind: the descendants of this process that are no ranks. While there
    /// are other jobs or daemons, only those count whose environment names the job and this node, or that are `inside` its cgroup.
    ///
    /// Returns the pids of those that live, then the pids among them that we may not signal because they run as another
    /// user.
    pub(super) fn sweep(
        &self,
        reactor: &Reactor,
        job: JobId,
        signal: Option<Signal>,
        inside: &[Pid],
    ) -> (Vec<i32>, BTreeSet<i32>) {
        if !os::has_children() {
            return (Vec::new(), BTreeSet::new());
        }
        let is_alone = reactor.daemons == 1 && self.apps.keys().all(|other| *other == job);
        let marks = [
            format!("RALLY_JOB={job}"),
            format!("RALLY_NODE={}", self.node),
        ];
        let belongs = |pid: Pid| {
            is_alone
                || inside.contains(&pid)
                || os::environment_of(pid).is_some_and(|environment| {
                    let has = |mark: &String| {
                        let mut variables = environment.split(|byte| *byte == 0);
                        variables.any(|variable| variable == mark.as_bytes())
                    };
                    marks.iter().all(has)
                })
        };
        // What is below a rank of another job, or below a helper, with the daemons that run on this host, is no stray of this one.
        let is_other = |pid: Pid| match reactor.children.get(&pid) {
            Some(Child::Proc { proc, .. }) => proc.job != job,
            Some(Child::Command(_) | Child::Watch(_) | Child::Slurm(_)) => true,
            None => false,
        };
        let descendants = os::descendants_without_those_below(os::current_pid(), is_other);
        let strays: Vec<Pid> = descendants
            .into_iter()
            .filter(|pid| !reactor.children.contains_key(pid))
            .filter(|pid| belongs(*pid))
            .filter(|pid| os::inspect(*pid).is_some_and(|info| info.state != 'Z'))
            .collect();
        if let Some(signal) = signal {
            for pid in &strays {
                let _ = os::kill(*pid, signal);
                if signal == Signal::TERM {
                    // A stopped process handles SIGTERM only once it is continued.
                    let _ = os::kill(*pid, Signal::CONT);
                }
            }
        }
        let not_permitted = strays.iter().filter(|pid| !os::may_signal(**pid));
        let not_permitted = not_permitted.copied().map(Pid::as_raw).collect();
        let left = strays.into_iter().map(Pid::as_raw).collect();
        (left, not_permitted)
    }

    pub(super) fn forget(&mut self, job: JobId, reactor: &mut Reactor) {
        for (_, rank) in self.ranks.extract_if(.., |proc, _| proc.job == job) {
            for token in [rank.stdout, rank.stderr, rank.stdin, rank.pmi] {
                remove(reactor, token);
            }
        }
        self.apps.remove(&job);
    }
}

/// Returns the variables by which Open MPI keeps the shared memory of a node's ranks in this directory. By default it names
/// such files after the host and the local rank, so that the files of two nodes on one host would be the same.
fn backing_directories(directory: &Path) -> impl Iterator<Item = CString> {
    let names = ["btl_vader", "btl_sm", "osc_sm"];
    names.into_iter().map(|name| {
        let mut variable = format!("OMPI_MCA_{name}_backing_directory=").into_bytes();
        variable.extend_from_slice(directory.as_os_str().as_bytes());
        c_string(variable)
    })
}

/// Returns the app that a rank belongs to.
fn app_of<'a>(
    apps: &'a mut BTreeMap<JobId, Vec<Prepared>>,
    order: &SpawnOrder,
) -> Result<&'a mut Prepared, StartFailure> {
    let apps = apps.get_mut(&order.proc.job);
    let app = apps.and_then(|apps| apps.get_mut(order.app as usize));
    app.ok_or(StartFailure {
        step: StartStep::Find,
        errno: EINVAL,
        subject: None,
    })
}

/// Registers our ends of a new rank's channels with the reactor.
fn watched(
    reactor: &mut Reactor,
    node: NodeId,
    order: &SpawnOrder,
    pid: Pid,
    channels: Channels,
) -> Rank {
    let mut rank = Rank {
        pid: Some(pid),
        stdout: None,
        stderr: None,
        stdin: None,
        writing: Bytes::new(),
        written_last: None,
        pmi: None,
        pmi_queue: Vec::new(),
        pmi_backlog: Backlog::new(&PMI_QUEUE),
        has_default_size: [true; 2],
        terminal: order.pty_size.is_some(),
        trap: Trap::new(order.hold),
    };
    let mut add = |fd: Option<OwnedFd>, interest, channel| {
        // If a descriptor cannot be watched it is closed, and the stream counts as ended.
        let source = Source::Node(node, channel);
        reactor.add(fd?, interest, source).ok()
    };
    rank.stdout = add(
        channels.stdout,
        Interest::Read,
        Channel::Output(order.proc, Stream::Stdout),
    );
    rank.stderr = add(
        channels.stderr,
        Interest::Read,
        Channel::Output(order.proc, Stream::Stderr),
    );
    rank.stdin = add(channels.stdin, Interest::None, Channel::Stdin(order.proc));
    rank.pmi = add(channels.pmi, Interest::Read, Channel::Pmi(order.proc));
    rank
}

fn identity(debugger: Pid) -> Debugger {
    Debugger {
        pid: debugger.as_raw(),
        started: os::start_time(debugger),
    }
}

/// Returns true if the pid still belongs to the same process, and that is no zombie.
fn lives(debugger: Debugger) -> bool {
    os::inspect(Pid::from_raw(debugger.pid)).is_some_and(|process| {
        Some(process.start_time) == debugger.started && !matches!(process.state, 'Z' | 'X')
    })
}

/// Returns the processes of a rank's group that SIGTSTP should stop and will not. The kernel ignores the default action of
/// SIGTSTP in an orphaned process group: one whose members all have their parents in other sessions, or in the same group.
fn not_stopped_by_default(leader: Pid) -> Vec<Pid> {
    let mut found = vec![leader];
    found.extend(os::descendants(leader));
    found.retain(|&pid| {
        let is_in_group = os::inspect(pid).is_some_and(|info| info.pgrp == leader);
        is_in_group && os::leaves_to_default(pid, Signal::TSTP)
    });
    found
}

fn remove(reactor: &mut Reactor, token: Option<Token>) {
    if let Some(token) = token {
        reactor.close(token);
    }
}

/// Returns the processes below a rank that are not in its group.
fn outside_of_group(leader: Pid) -> Vec<Pid> {
    let mut found = os::listed_descendants(leader);
    found.retain(|&pid| os::inspect(pid).is_some_and(|info| info.pgrp != leader));
    found
}

const fn start_step(step: SpawnStep) -> StartStep {
    match step {
        SpawnStep::Clone => StartStep::Fork,
        SpawnStep::ProcessGroup => StartStep::ProcessGroup,
        SpawnStep::ParentDeath => StartStep::ParentDeath,
        SpawnStep::Descriptors => StartStep::Descriptors,
        SpawnStep::Terminal => StartStep::Terminal,
        SpawnStep::Affinity => StartStep::Affinity,
        SpawnStep::Umask => StartStep::Umask,
        SpawnStep::Directory => StartStep::Directory,
        SpawnStep::Limits => StartStep::Limits,
        SpawnStep::Signals => StartStep::Signals,
        SpawnStep::Trace => StartStep::Trace,
        SpawnStep::Exec => StartStep::Exec,
        SpawnStep::Cgroup => StartStep::Cgroup,
    }
}
