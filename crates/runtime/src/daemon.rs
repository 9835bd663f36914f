//! The host of a daemon: the ranks of its node, their descriptors, and the port of its PMIx server.
//!
//! The caller sends the daemon's messages to the controller ([`Step::Send`]); this module does not know how.

use std::{
    ffi::OsString,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    rc::Rc,
};

use base::{JobId, NodeId, ProcId, Signal, Time, Topology};
use bytes::Bytes;
use dvm::{
    DaemonConfig, Input, Output, ProcEnd, ServiceConfig, SpawnOrder, Tools,
    bootstrap::Hosting,
    proto::{Missing, Note, Stream, ToController, ToDaemon},
    spec::{App, FoundGpus, NodeGpus, NodeResources, Recorder},
    traced::{self, Traced},
};
use os::{Interest, Pid, ReadOutcome, Token};
use pmix::launcher::Called;

use crate::{
    clients::{self, Clients},
    limits::JobCgroups,
    machines::DaemonMachine,
    missing::MissingReports,
    place::Surroundings,
    preload::Directories,
    ranks::{self, Ranks},
    reactor::{Channel, READ_MAX, Reactor, Read},
    recorder::Recorders,
    syslog,
    tape::Tape,
};

/// Bytes of PMI requests read from one rank at a time. The answers are a few times as long.
const PMI_READ_MAX: usize = 16 * 1024;
/// Minimum length of a read that stays in its slot of the shared region, in bytes. Shorter reads are copied out, so that
/// the slot is free immediately.
const KEEP_SLOT_MIN: usize = 16 * 1024;

/// Result of one step of a daemon.
#[derive(Debug)]
pub(crate) enum Step {
    /// The daemon has no output.
    Idle,
    Done,
    /// A rank was started, or could not be. The caller limits these per turn.
    Started,
    Send(ToController),
    /// Report of a bug of ours.
    Bug(String),
}

/// Parameters of a new daemon's host.
#[derive(Debug)]
pub(crate) struct DaemonSetup {
    pub(crate) node: NodeId,
    pub(crate) host: String,
    pub(crate) topology: Topology,
    /// Value of the variable that marks its ranks and their descendants.
    pub(crate) owner: String,
    /// The soft and hard limits of descriptors that ranks get.
    pub(crate) descriptors: (u64, u64),
    /// The name of its PMIx server.
    pub(crate) service: String,
    /// Directory for files of its ranks; `None` without a record.
    pub(crate) session: Option<PathBuf>,
    /// Memory into which output is read. The daemon in the controller's process shares it with the front.
    pub(crate) region: Option<os::SlotWriter>,
    pub(crate) hosting: Hosting,
    pub(crate) surroundings: Surroundings,
    /// The variables of this node, if it is on another host than the launcher.
    pub(crate) environment: Option<Vec<(OsString, OsString)>>,
    /// The file of its recording.
    pub(crate) tape: Option<Rc<Tape>>,
    pub(crate) tools: Tools,
}

/// A daemon's state machine and its kernel objects.
pub(crate) struct DaemonHost {
    node: NodeId,
    daemon: DaemonMachine,
    traced: Traced,
    ranks: Ranks,
    clients: Clients,
    files: Directories,
    cgroups: JobCgroups,
    recorders: Recorders,
    region: Option<os::SlotWriter>,
    missing_reports: MissingReports,
    /// Jobs that are over since the last [`Self::take_forgotten`].
    forgotten: u32,
}

impl DaemonHost {
    pub(crate) fn open(setup: DaemonSetup, reactor: &mut Reactor) -> Result<Self, os::Error> {
        let mut missing_reports = MissingReports::default();
        let own_memory = match setup.hosting {
            Hosting::Alone => None,
            Hosting::Shared => setup.session.as_ref().map(|session| session.join("memory")),
        };
        if let Some(Err(error)) = own_memory.as_deref().map(os::make_private_dirs) {
            missing_reports.add(Missing::Directory, &error);
        }
        let ranks = Ranks::new(
            setup.node,
            &setup.owner,
            own_memory.as_deref(),
            setup.descriptors,
            setup.environment,
        )?;
        let clients = Clients::open(setup.node, reactor)?;
        let cgroups = JobCgroups::new(Path::new("/"), &setup.owner, setup.node);
        let files = Directories::new(setup.session.clone(), &setup.surroundings);
        let recorders = Recorders::new(setup.session.clone(), &setup.surroundings);
        let config = DaemonConfig {
            node: setup.node,
            host: setup.host,
            topology: setup.topology,
            resources: resources(&setup.surroundings),
            descriptors: os::limit(os::Resource::Descriptors).0,
            service: Some(ServiceConfig {
                port: clients.port(),
                uid: os::effective_uid(),
                gid: os::effective_gid(),
                name: setup.service,
                session_dir: setup.session.map(PathBuf::into_os_string),
                tools: setup.tools,
            }),
        };
        let daemon = DaemonMachine::new(config, setup.tape);
        reactor.daemons += 1;
        Ok(Self {
            node: setup.node,
            daemon,
            traced: Traced::default(),
            ranks,
            clients,
            files,
            cgroups,
            recorders,
            region: setup.region,
            missing_reports,
            forgotten: 0,
        })
    }

    /// Returns the port of the PMIx server.
    /// Serves the tool that has started the launcher, over the connection to it.
    pub(crate) fn call(
        &mut self,
        now: Time,
        connection: OwnedFd,
        called: Called,
        reactor: &mut Reactor,
    ) -> Result<(), os::Error> {
        self.clients
            .call(now, connection, called, reactor, &mut self.daemon)
    }

    pub(crate) const fn port(&self) -> u16 {
        self.clients.port()
    }

    /// Returns the time at which [`Self::on_tick`] is due.
    pub(crate) fn deadline(&self) -> Option<Time> {
        let deadlines = [
            self.daemon.deadline(),
            self.traced.deadline(),
            self.clients.deadline(),
        ];
        deadlines.into_iter().flatten().min()
    }

    pub(crate) fn on_tick(&mut self, now: Time, reactor: &mut Reactor) {
        self.clients.on_tick(now, reactor);
        self.daemon.handle(now, Input::Tick);
        self.traced.handle(now, traced::Input::Tick);
        while let Some(output) = self.traced.poll() {
            match output {
                traced::Output::FindTracer(proc, known) => {
                    let seen = self.ranks.find_tracer(proc, known);
                    let found = traced::Input::FoundTracer(proc, seen);
                    self.traced.handle(now, found);
                }
                traced::Output::Untraced { job, left, lost } => {
                    self.daemon.handle(now, Input::Untraced { job, left, lost });
                }
            }
        }
    }

    pub(crate) fn on_message(&mut self, now: Time, message: ToDaemon) {
        self.daemon.handle(now, Input::Message(message));
    }

    /// Ends all jobs, because the controller is gone.
    pub(crate) fn controller_lost(&mut self, now: Time) {
        self.daemon.controller_lost(now);
    }

    /// Returns true if no job remains on this node.
    pub(crate) fn is_idle(&self) -> bool {
        self.daemon.is_idle()
    }

    /// Returns how many jobs are over since the last call.
    pub(crate) fn take_forgotten(&mut self) -> u32 {
        std::mem::take(&mut self.forgotten)
    }

    /// Returns what the system has refused since the last call, with the reasons.
    pub(crate) fn take_missing(&mut self) -> Vec<(Missing, String)> {
        self.missing_reports.take()
    }

    /// Accepts clients again: a descriptor may be free.
    pub(crate) fn resume(&mut self, reactor: &mut Reactor) {
        self.clients.resume(reactor);
    }

    pub(crate) fn on_readable(
        &mut self,
        now: Time,
        token: Token,
        channel: Channel,
        reactor: &mut Reactor,
    ) {
        match channel {
            Channel::Output(proc, stream) => self.read_output(now, token, proc, stream, reactor),
            Channel::Pmi(proc) => self.read_pmi(now, token, proc, reactor),
            // Readable means an error or a hang-up here; the write finds out which.
            Channel::Stdin(proc) => self.write_stdin(now, token, proc, reactor),
            Channel::Port => {
                let missing_reports = &mut self.missing_reports;
                self.clients
                    .accept(now, reactor, missing_reports, &mut self.daemon);
            }
            Channel::Client(conn) => self.clients.read(now, conn, reactor, &mut self.daemon),
        }
    }

    pub(crate) fn on_writable(
        &mut self,
        now: Time,
        token: Token,
        channel: Channel,
        reactor: &mut Reactor,
    ) {
        match channel {
            Channel::Stdin(proc) => self.write_stdin(now, token, proc, reactor),
            Channel::Client(conn) => self.clients.flush(conn, reactor),
            Channel::Pmi(proc) => self.ranks.flush_pmi(reactor, proc),
            Channel::Output(..) | Channel::Port => {}
        }
    }

    /// Handles the exit of a rank of this node.
    pub(crate) fn on_exited(
        &mut self,
        now: Time,
        proc: ProcId,
        end: ProcEnd,
        reactor: &mut Reactor,
    ) {
        let end = ProcEnd {
            status: self.cgroups.explain(proc.job, end.status),
            ..end
        };
        let pid = self.ranks.on_exited(proc);
        self.traced.handle(now, traced::Input::Ended(proc));
        // Read its last PMI requests before the daemon learns of the exit, which ends the connection.
        if let Some(token) = self.ranks.pmi(proc) {
            self.read_pmi(now, token, proc, reactor);
        }
        if !end.status.is_success()
            && let Some(last) = pid.and_then(|pid| self.recorders.last_call(proc, pid))
        {
            self.daemon.handle(now, Input::LastCall { proc, last });
        }
        self.daemon.handle(now, Input::Exited { proc, end });
    }

    /// Handles the exit of a process that a rank had left behind.
    pub(crate) fn on_stray_exited(&mut self, now: Time) {
        self.daemon.handle(now, Input::StrayExited);
    }

    /// Handles the stop of a rank of this node.
    pub(crate) fn on_stopped(&mut self, now: Time, proc: ProcId, pid: Pid, signal: Signal) {
        let stopped = self.ranks.on_stopped(proc, pid, signal);
        if stopped == ranks::Stopped::AtFirstInstruction {
            self.daemon.handle(now, Input::Trapped { proc });
        }
    }

    /// Carries out the daemon's next output.
    pub(crate) fn step(&mut self, now: Time, reactor: &mut Reactor) -> Step {
        match self.daemon.poll() {
            Some(output) => self.carry_out(now, output, reactor),
            None => Step::Idle,
        }
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each output")]
    fn carry_out(&mut self, now: Time, output: Output, reactor: &mut Reactor) -> Step {
        match output {
            Output::Send(message) => return Step::Send(message),
            Output::Log(what) => return Step::Bug(what),
            Output::Spawn(order) => {
                self.spawn(now, &order, reactor);
                return Step::Started;
            }
            Output::Prepare {
                job,
                apps,
                limits,
                recorder,
                beside,
            } => {
                if let Some(target) = beside {
                    self.cgroups.prepare_beside(job, target);
                }
                let unenforced = self.cgroups.prepare(job, &limits);
                if !unenforced.is_empty() {
                    self.daemon
                        .handle(now, Input::Unenforced { job, unenforced });
                }
                self.prepare(now, job, &apps, recorder);
            }
            Output::Signal { proc, signal } => {
                if let ranks::Signalled::NotPermitted(pid) = self.ranks.signal(proc, signal) {
                    let pid = pid.as_raw();
                    self.daemon.handle(now, Input::NotPermitted { proc, pid });
                }
            }
            Output::Measure { job, number } => {
                let measured = Input::Measured {
                    job,
                    number,
                    procs: self.ranks.measure(job),
                    counted: self.cgroups.counted(job),
                };
                self.daemon.handle(now, measured);
            }
            Output::MeasureDaemon { number } => {
                let memory = os::own_memory();
                let measured = Input::DaemonMeasured { number, memory };
                self.daemon.handle(now, measured);
            }
            Output::Syslog { ticket, line } => {
                let result = syslog::send(&line);
                let logged = Input::Syslogged { ticket, result };
                self.daemon.handle(now, logged);
            }
            Output::Continue { proc } => {
                if let ranks::Held::By(debugger) = self.ranks.let_run(proc) {
                    let let_go = traced::Input::LetGo(proc, debugger);
                    self.traced.handle(now, let_go);
                }
            }
            Output::Pause { proc, stream } => {
                self.set_reading(proc, stream, Interest::None, reactor);
            }
            Output::Resume { proc, stream } => {
                self.set_reading(proc, stream, Interest::Read, reactor);
            }
            Output::CloseOutput { proc, stream } => self.ranks.close_output(reactor, proc, stream),
            Output::WriteStdin { proc, bytes } => {
                if let Some(token) = self.ranks.queue_stdin(proc, bytes) {
                    self.write_stdin(now, token, proc, reactor);
                }
            }
            Output::CloseStdin { proc } => self.ranks.close_stdin(reactor, proc),
            Output::PmiSend { proc, bytes } => {
                if self.ranks.send_pmi(reactor, proc, &bytes) == ranks::Sent::TooMuch {
                    self.ranks.close_pmi(reactor, proc);
                    self.daemon.handle(now, Input::PmiClosed { proc });
                }
            }
            Output::PmiClose { proc } => self.ranks.close_pmi(reactor, proc),
            Output::ClientSend { conn, bytes } => {
                if self.clients.send(conn, bytes, reactor) == clients::Sent::TooMuch {
                    self.clients.remove(conn, reactor);
                    self.daemon.handle(now, Input::ClientClosed { conn });
                }
            }
            Output::ClientClose { conn } => self.clients.close(conn, reactor),
            Output::MakeFile { path, bytes } => {
                if let Err(error) = os::make_private_file(Path::new(&path), &bytes) {
                    self.missing_reports.add(Missing::Directory, &error);
                }
            }
            Output::MakeDirectory { path } => {
                if let Err(error) = os::make_private_dirs(Path::new(&path)) {
                    self.missing_reports.add(Missing::Directory, &error);
                }
            }
            Output::Files { job, act } => {
                if let Some(result) = self.files.act(job, act) {
                    let acted = Input::FilesActed { job, result };
                    self.daemon.handle(now, acted);
                }
                if let Some(error) = self.files.take_unremoved() {
                    // The controller gets it before it hears that the job is over here.
                    let note = Note::Missing {
                        node: Some(self.node),
                        what: Missing::Removal,
                        why: error.to_string(),
                    };
                    return Step::Send(ToController::Note { job, note });
                }
            }
            Output::RemoveFiles { paths } => os::remove_files(&paths),
            Output::Resize { proc, size } => self.ranks.resize(reactor, proc, size),
            Output::Sweep { job, signal } => {
                let inside = self.cgroups.processes(job);
                let (left, not_permitted) = self.ranks.sweep(reactor, job, signal, &inside);
                if signal == Some(Signal::KILL) {
                    self.cgroups.kill(job);
                }
                let swept = Input::Swept {
                    job,
                    left,
                    not_permitted,
                    counted: self.cgroups.counted(job),
                };
                self.daemon.handle(now, swept);
            }
            Output::Forget { job } => {
                self.ranks.forget(job, reactor);
                self.cgroups.forget(job);
                self.recorders.forget(job);
                self.forgotten = self.forgotten.saturating_add(1);
            }
        }
        Step::Done
    }

    fn prepare(&mut self, now: Time, job: JobId, apps: &[App], recorder: Recorder) {
        let directory = self.recorders.prepare(job, recorder).unwrap_or_else(|why| {
            self.missing_reports.add_reason(Missing::Recorder, || why.0);
            None
        });
        let failures = self.ranks.prepare(job, apps, directory);
        if !failures.is_empty() {
            self.daemon
                .handle(now, Input::Unstartable { job, failures });
        }
    }

    fn spawn(&mut self, now: Time, order: &SpawnOrder, reactor: &mut Reactor) {
        let proc = order.proc;
        let cgroup = self.cgroups.procs(proc.job);
        let input = match self.ranks.spawn(reactor, order, cgroup) {
            Ok((pid, executable)) => Input::Spawned {
                proc,
                pid: pid.as_raw(),
                executable,
            },
            Err(failure) => Input::SpawnFailed { proc, failure },
        };
        self.daemon.handle(now, input);
    }

    fn set_reading(
        &mut self,
        proc: ProcId,
        stream: Stream,
        interest: Interest,
        reactor: &mut Reactor,
    ) {
        self.ranks
            .set_reading(reactor, &mut self.missing_reports, proc, stream, interest);
    }

    fn read_output(
        &mut self,
        now: Time,
        token: Token,
        proc: ProcId,
        stream: Stream,
        reactor: &mut Reactor,
    ) {
        // The daemon may have asked for a pause after the kernel reported this descriptor readable.
        if reactor.interest(token) != Some(Interest::Read) {
            return;
        }
        let slot = self.region.as_ref().and_then(os::SlotWriter::take);
        let read = match slot {
            Some(mut slot) => match reactor.read_into(token, slot.as_mut()) {
                Some(Ok(ReadOutcome::Bytes(read))) if read >= KEEP_SLOT_MIN => {
                    Ok(Some(Bytes::from_owner(slot).slice(..read)))
                }
                Some(Ok(ReadOutcome::Bytes(read))) => {
                    Ok(Some(Bytes::copy_from_slice(&slot.as_ref()[..read])))
                }
                Some(Ok(ReadOutcome::WouldBlock)) | None => return,
                Some(Ok(ReadOutcome::Closed)) => Ok(None),
                Some(Err(error)) => Err(error),
            },
            None => match reactor.read(token, READ_MAX) {
                Some(Ok(Read::Bytes(bytes))) => Ok(Some(Bytes::copy_from_slice(bytes))),
                Some(Ok(Read::WouldBlock)) | None => return,
                Some(Ok(Read::Closed)) => Ok(None),
                Some(Err(error)) => Err(error),
            },
        };
        match read {
            Ok(Some(bytes)) => {
                if self.ranks.shall_grow(proc, stream, bytes.len())
                    && let Some(fd) = reactor.fd(token)
                {
                    os::request_pipe_size(fd, ranks::PIPE_SIZE);
                }
                let input = Input::Output {
                    proc,
                    stream,
                    bytes,
                };
                self.daemon.handle(now, input);
            }
            Ok(None) => self.end_output(now, proc, stream, reactor),
            Err(error) => {
                self.missing_reports.add(Missing::Output(proc.rank), &error);
                self.end_output(now, proc, stream, reactor);
            }
        }
    }

    fn end_output(&mut self, now: Time, proc: ProcId, stream: Stream, reactor: &mut Reactor) {
        self.ranks.close_output(reactor, proc, stream);
        self.daemon.handle(now, Input::OutputEnded { proc, stream });
    }

    fn write_stdin(&mut self, now: Time, token: Token, proc: ProcId, reactor: &mut Reactor) {
        match self.ranks.write_stdin(reactor, token, proc) {
            ranks::Fed::All => self.daemon.handle(now, Input::StdinWritten { proc }),
            ranks::Fed::Part => {}
            ranks::Fed::Broken => {
                self.ranks.close_stdin(reactor, proc);
                self.daemon.handle(now, Input::StdinBroken { proc });
            }
        }
    }

    fn read_pmi(&mut self, now: Time, token: Token, proc: ProcId, reactor: &mut Reactor) {
        match reactor.read(token, PMI_READ_MAX) {
            Some(Ok(Read::Bytes(bytes))) => {
                self.daemon.handle(now, Input::Pmi { proc, bytes });
            }
            Some(Ok(Read::WouldBlock)) | None => {}
            Some(Ok(Read::Closed) | Err(_)) => {
                self.ranks.close_pmi(reactor, proc);
                self.daemon.handle(now, Input::PmiClosed { proc });
            }
        }
    }
}

/// Returns what a daemon finds on its node.
fn resources(surroundings: &Surroundings) -> NodeResources {
    let found = os::gpus();
    NodeResources {
        gpus: NodeGpus::of(&FoundGpus {
            nvidia: found.nvidia,
            amd: found.amd,
            nvidia_list: surroundings.nvidia_gpus.as_deref(),
            amd_list: surroundings.amd_gpus.as_deref(),
        }),
        memory: os::memory(),
    }
}
