//! The execution layer: carries out what the state machines of `dvm` ask for, by the primitives of `os`.
//!
//! The process that holds the controller and the local daemon is forked from the front before anything else happens,
//! and lives as long as the job. It knows descriptors, pids and files; what they mean is the daemon's business, and
//! what happens next is the controller's.
//!
//! **Architecture invariant:** nothing here decides: no policy, no terminal, no sentence for users, no environment of
//! its own. What the caller knows of these comes with [`Birth`]. The kernel is reached through `os`.

mod clients;
mod complaints;
mod control;
mod debuggers;
mod keeper;
pub mod link;
mod place;
mod ranks;
mod record;

use std::{
    collections::BTreeMap,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
};

use base::{NodeId, ProcId, Signal, Time};
use bytes::Bytes;
use dvm::{
    Controller, ControllerInput, ControllerOutput, Daemon, DaemonConfig, Input, Output,
    ServiceConfig,
    proto::{FromFront, Missing, Note, Stream, ToController, ToDaemon, ToFront},
    spec::HoldAt,
};
use os::{ChildEvent, Clock, Event, Interest, Loop, Pid, ReadOutcome, Token};
use overlay::{Full, InProcess};

use pmix::server::Conn;

use self::{
    clients::Clients,
    complaints::Complaints,
    control::Control,
    debuggers::Untraced,
    link::{ControllerLink, LinkError, Received},
    ranks::Ranks,
    record::Record,
};
pub use self::{
    keeper::{Failed, keep},
    place::Surroundings,
    record::{SharedMemory, controls, sweep_stale, topology},
};

/// Bytes read from one stream of one rank before others have their turn.
const READ_MAX: usize = 256 * 1024;
/// Bytes of requests taken from one rank in one go; their answers are a few times as long.
const PMI_READ_MAX: usize = 16 * 1024;
/// What is shorter is copied out of the shared region, so that its slot can be used again at once.
const KEEP_SLOT_MIN: usize = 16 * 1024;
/// Ranks started in one turn of the loop: those that end meanwhile, the front and its signals have their turn between.
const SPAWNS_PER_TURN: u32 = 256;
/// A rank that fills its pipe gets a larger one.
const PIPE_SIZE: usize = 1024 * 1024;
/// Characters of the host's name in the name of a PMIx server.
const SERVICE_HOST_MAX: usize = 64;
/// The node that we are on.
const LOCAL: NodeId = NodeId(0);

/// Only the front may end us: a signal that somebody sends to everything of that name is the front's to handle.
const IGNORED: [Signal; 11] = [
    Signal::INT,
    Signal::TERM,
    Signal::HUP,
    Signal::QUIT,
    Signal::USR1,
    Signal::USR2,
    Signal::TSTP,
    Signal::TTIN,
    Signal::TTOU,
    Signal::PIPE,
    Signal::ALRM,
];

/// What a descriptor of the loop is.
#[derive(Clone, Copy, Debug)]
enum Source {
    Front,
    Output(ProcId, Stream),
    Stdin(ProcId),
    Pmi(ProcId),
    /// Where PMIx clients connect.
    Port,
    Client(Conn),
    /// Where other processes of the user ask for something.
    Control,
    Peer(u64),
}

/// What the process is told at its birth.
#[derive(Debug)]
pub struct Birth {
    pub front_pid: Pid,
    pub host: String,
    /// Gone when the loop of the controller has it.
    pub link: Option<OwnedFd>,
    /// Says what our own code rules out and the front cannot be told. It must not wait for whoever reads it.
    pub admit: fn(&str),
    /// Where the record of this process may be.
    pub surroundings: Surroundings,
    /// Shared memory that ranks' output is read into, and that the front has read input into.
    pub output: os::SlotWriter,
    pub input: os::SlotReader,
    /// The soft limit of descriptors that ranks get back.
    pub descriptors: (u64, u64),
}

/// Whether the two machines have said everything that they had to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Done,
    More,
}

struct Machine {
    events: Loop,
    sources: BTreeMap<Token, Source>,
    controller: Controller,
    daemon: Daemon,
    /// Between the two: what a wire carries to the daemons of other nodes.
    node: InProcess<ToDaemon, ToController>,
    link: ControllerLink,
    front: Option<Token>,
    front_writes: Interest,
    ranks: Ranks,
    clients: Clients,
    control: Control,
    front_pid: Pid,
    record: Record,
    region: os::SlotWriter,
    buffer: Vec<u8>,
    complaints: Complaints,
    admit: fn(&str),
    finished: bool,
}

/// How the process that holds the controller ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// All was told, or there was no job.
    Well,
    /// Its front is lost to it, or it could not go on; it has said so.
    Badly,
}

impl Birth {
    /// Tells the front why there will be no controller. It sees the end of the link in any case.
    fn fail(&self, error: &os::Error) {
        if let Some(link) = &self.link {
            link::send_failure(link.as_fd(), &error.to_string());
        }
    }
}

/// Runs the job of the front at the other end of `birth.link`, until nothing of it is left.
fn run(birth: &mut Birth) -> Result<Ended, os::Error> {
    os::become_subreaper()?;
    let mut events = Loop::new(&IGNORED)?;
    let (record, trouble) = Record::create(&birth.surroundings);
    let topology = topology(&birth.surroundings)?;
    let ranks = Ranks::new(record.owner().to_owned(), birth.descriptors)?;
    let mut sources = BTreeMap::new();
    let clients = Clients::open(&mut events, &mut sources)?;
    let name = service_name(&birth.host, os::random_number()?);
    // Everything above is done while the front still reads its command line.
    let opening = match &birth.link {
        Some(link) => link::receive_opening(link.as_fd()),
        None => Ok(None),
    };
    let allocation = match opening {
        Ok(Some(allocation)) => allocation,
        // There is no job after all.
        Ok(None) => return Ok(Ended::Well),
        Err(error) => {
            (birth.admit)(&broken_link(&error));
            return Ok(Ended::Badly);
        }
    };
    let front = match birth.link.take() {
        Some(link) => {
            os::set_nonblocking(link.as_fd())?;
            Some(events.add(link, Interest::Read)?)
        }
        None => None,
    };
    sources.extend(front.map(|front| (front, Source::Front)));
    let daemon = Daemon::new(DaemonConfig {
        node: LOCAL,
        host: std::mem::take(&mut birth.host),
        topology,
        descriptors: os::limit(os::Resource::Descriptors).0,
        service: Some(ServiceConfig {
            port: clients.port(),
            uid: os::effective_uid(),
            gid: os::effective_gid(),
            name: name.clone(),
            session_dir: record.session().map(PathBuf::into_os_string),
        }),
    });
    let controller = Controller::new(
        allocation,
        u32::try_from(birth.front_pid.as_raw()).unwrap_or_default(),
        name,
    );
    let mut machine = Machine {
        sources,
        events,
        controller,
        daemon,
        node: InProcess::new(),
        link: ControllerLink::new(birth.output.clone(), birth.input.clone()),
        front,
        front_writes: Interest::Read,
        ranks,
        clients,
        control: Control::default(),
        front_pid: birth.front_pid,
        record,
        region: birth.output.clone(),
        buffer: vec![0; READ_MAX],
        complaints: Complaints::of(trouble),
        admit: birth.admit,
        finished: false,
    };
    Ok(match machine.run() {
        Ok(()) => Ended::Well,
        Err(error) => {
            machine.fail(&error);
            Ended::Badly
        }
    })
}

impl Machine {
    fn run(&mut self) -> Result<(), os::Error> {
        let mut events = Vec::new();
        loop {
            let progress = self.pump();
            self.complain();
            self.flush();
            if self.finished && (self.front.is_none() || !self.link.link.has_outgoing()) {
                return Ok(());
            }
            let at_once = (progress == Progress::More).then_some(Time::ZERO);
            let deadline = [
                at_once,
                self.daemon.deadline(),
                self.controller.deadline(),
                self.ranks.debuggers().deadline(),
                self.control.deadline(),
            ]
            .into_iter()
            .flatten()
            .min();
            self.events.wait(deadline, &mut events)?;
            let now = Clock::now();
            for event in events.drain(..) {
                self.on_event(now, event);
            }
        }
    }

    fn on_event(&mut self, now: Time, event: Event) {
        match event {
            Event::Signal(info) if info.signal == Signal::CHLD => self.reap(now),
            Event::Signal(_) => {}
            Event::Deadline => {
                self.daemon.handle(now, Input::Tick);
                self.controller.handle(now, ControllerInput::Tick);
                self.control
                    .on_tick(now, &mut self.events, &mut self.sources);
                self.look_at_debuggers(now);
            }
            Event::Readable(token) => match self.sources.get(&token) {
                Some(Source::Front) => self.read_front(now, token),
                Some(Source::Output(proc, stream)) => self.read_output(now, token, *proc, *stream),
                Some(Source::Pmi(proc)) => self.read_pmi(now, token, *proc),
                // An error or a hang-up of the reader: the write says which.
                Some(Source::Stdin(proc)) => self.write_stdin(now, token, *proc),
                Some(Source::Port) => {
                    let (sources, complaints) = (&mut self.sources, &mut self.complaints);
                    let (events, daemon) = (&mut self.events, &mut self.daemon);
                    self.clients
                        .accept(now, events, sources, complaints, daemon);
                }
                Some(Source::Client(conn)) => self.clients.read(
                    now,
                    *conn,
                    &mut self.events,
                    &mut self.sources,
                    &mut self.buffer,
                    &mut self.daemon,
                ),
                Some(Source::Control) => {
                    let (sources, complaints) = (&mut self.sources, &mut self.complaints);
                    self.control
                        .accept(now, &mut self.events, sources, complaints);
                }
                Some(Source::Peer(ticket)) => self.control.read(
                    now,
                    *ticket,
                    &mut self.events,
                    &mut self.sources,
                    &mut self.controller,
                ),
                None => {}
            },
            Event::Writable(token) => match self.sources.get(&token) {
                Some(Source::Stdin(proc)) => self.write_stdin(now, token, *proc),
                // Written at the end of the turn.
                Some(
                    Source::Front
                    | Source::Output(..)
                    | Source::Port
                    | Source::Control
                    | Source::Peer(_),
                )
                | None => {}
                Some(Source::Client(conn)) => {
                    self.clients
                        .flush(*conn, &mut self.events, &mut self.sources);
                }
                Some(Source::Pmi(proc)) => {
                    let proc = *proc;
                    self.ranks.flush_pmi(&mut self.events, proc);
                }
            },
        }
    }

    /// Carries out what the two machines ask for, until both are silent or enough ranks were started.
    fn pump(&mut self) -> Progress {
        let mut spawned = 0;
        loop {
            if spawned == SPAWNS_PER_TURN {
                return Progress::More;
            }
            let now = Clock::now();
            // What is on its way arrives before anybody says more, so that a lane never holds more than a message.
            if let Some(message) = self.node.up.receive() {
                let input = ControllerInput::Daemon(LOCAL, message);
                self.controller.handle(now, input);
            } else if let Some(message) = self.node.down.receive() {
                self.daemon.handle(now, Input::Message(message));
            } else if let Some(output) = self.daemon.poll() {
                spawned += u32::from(matches!(output, Output::Spawn(_)));
                self.carry_out(now, output);
            } else if let Some(output) = self.controller.poll() {
                match output {
                    ControllerOutput::Front(message) => self.link.send(message),
                    ControllerOutput::Daemon(_, message) => {
                        self.open_control(&message);
                        let sent = self.node.down.send(message);
                        self.check_sent(sent);
                    }
                    ControllerOutput::Answer { ticket, reply } => {
                        self.control
                            .answer(ticket, &reply, &mut self.events, &mut self.sources);
                    }
                    ControllerOutput::Finished => self.finished = true,
                    ControllerOutput::Log(what) => self.admit(&what),
                }
            } else {
                return Progress::Done;
            }
        }
    }

    /// A job whose ranks are held can be asked for.
    fn open_control(&mut self, message: &ToDaemon) {
        if let ToDaemon::Launch(launch) = message
            && launch.hold.at != HoldAt::Nowhere
        {
            self.control.open(
                self.record.session().as_deref(),
                self.front_pid.as_raw(),
                &mut self.events,
                &mut self.sources,
                &mut self.complaints,
            );
        }
    }

    fn carry_out(&mut self, now: Time, output: Output) {
        match output {
            Output::Send(message) => {
                let sent = self.node.up.send(message);
                self.check_sent(sent);
            }
            Output::Prepare { job, apps } => {
                let failures = self.ranks.prepare(job, &apps);
                if !failures.is_empty() {
                    let input = Input::Unstartable { job, failures };
                    self.daemon.handle(now, input);
                }
            }
            Output::Spawn(order) => {
                let proc = order.proc;
                match self
                    .ranks
                    .spawn(&mut self.events, &mut self.sources, &order)
                {
                    Ok((pid, executable)) => {
                        let pid = pid.as_raw();
                        self.daemon.handle(
                            now,
                            Input::Spawned {
                                proc,
                                pid,
                                executable,
                            },
                        );
                    }
                    Err(failure) => self
                        .daemon
                        .handle(now, Input::SpawnFailed { proc, failure }),
                }
            }
            Output::Signal { proc, signal } => {
                if let ranks::Signalled::NotPermitted(pid) = self.ranks.signal(proc, signal) {
                    let pid = pid.as_raw();
                    self.daemon.handle(now, Input::NotPermitted { proc, pid });
                }
            }
            Output::Continue { proc } => self.ranks.let_run(now, proc),
            Output::Pause { proc, stream } => self.ranks.set_reading(
                &mut self.events,
                &mut self.complaints,
                proc,
                stream,
                Interest::None,
            ),
            Output::Resume { proc, stream } => self.ranks.set_reading(
                &mut self.events,
                &mut self.complaints,
                proc,
                stream,
                Interest::Read,
            ),
            Output::CloseOutput { proc, stream } => {
                self.ranks
                    .close_output(&mut self.events, &mut self.sources, proc, stream);
            }
            Output::WriteStdin { proc, bytes } => {
                if let Some(token) = self.ranks.queue_stdin(proc, bytes) {
                    self.write_stdin(now, token, proc);
                }
            }
            Output::CloseStdin { proc } => {
                self.ranks
                    .close_stdin(&mut self.events, &mut self.sources, proc)
            }
            Output::PmiSend { proc, bytes } => {
                if self.ranks.send_pmi(&mut self.events, proc, &bytes) == ranks::Sent::TooMuch {
                    self.ranks
                        .close_pmi(&mut self.events, &mut self.sources, proc);
                    self.daemon.handle(now, Input::PmiClosed { proc });
                }
            }
            Output::PmiClose { proc } => {
                self.ranks
                    .close_pmi(&mut self.events, &mut self.sources, proc)
            }
            Output::ClientSend { conn, bytes } => {
                if self.clients.send(conn, bytes, &mut self.events) == clients::Sent::TooMuch {
                    self.clients
                        .remove(conn, &mut self.events, &mut self.sources);
                    self.daemon.handle(now, Input::ClientClosed { conn });
                }
            }
            Output::ClientClose { conn } => {
                self.clients
                    .close(conn, &mut self.events, &mut self.sources)
            }
            Output::MakeDirectory { path } => {
                if let Err(error) = os::make_private_dirs(Path::new(&path)) {
                    self.complaints.add(Missing::Directory, &error);
                }
            }
            Output::RemoveFiles { paths } => os::remove_files(&paths),
            Output::Resize { proc, size } => self.ranks.resize(&self.events, proc, size),
            Output::Sweep { job, signal } => {
                let (left, not_permitted) = self.ranks.sweep(job, signal);
                let swept = Input::Swept {
                    job,
                    left,
                    not_permitted,
                };
                self.daemon.handle(now, swept);
            }
            Output::Forget { job } => {
                self.ranks.forget(job, &mut self.events, &mut self.sources);
            }
            Output::Log(what) => self.admit(&what),
        }
    }

    /// Passes on what the job does without.
    fn complain(&mut self) {
        for (what, why) in self.complaints.take() {
            let node = LOCAL;
            self.tell(ToFront::Note(Note::Missing { node, what, why }));
        }
    }

    /// Something that our own code rules out has happened.
    fn admit(&mut self, what: &str) {
        if self.front.is_some() {
            self.tell(ToFront::Internal(what.to_owned()));
        } else {
            (self.admit)(what);
        }
    }

    /// A link that is emptied before each message has room for it.
    fn check_sent<Message>(&mut self, sent: Result<(), Full<Message>>) {
        if let Err(full) = sent.map_err(|Full(_)| Full(())) {
            self.admit(&full.to_string());
        }
    }

    /// The last words before this process ends, which the front waits for.
    fn fail(&mut self, error: &os::Error) {
        self.tell(ToFront::Failed(error.to_string()));
        self.flush();
    }

    fn tell(&mut self, message: ToFront) {
        if self.front.is_some() {
            self.link.send(message);
        }
    }

    fn look_at_debuggers(&mut self, now: Time) {
        for (job, Untraced { left, lost }) in self.ranks.debuggers().look(now) {
            self.daemon.handle(now, Input::Untraced { job, left, lost });
        }
    }

    fn reap(&mut self, now: Time) {
        while let Some(event) = os::reap() {
            match event {
                ChildEvent::Exited { pid, status } => match self.ranks.on_exited(pid) {
                    Some(proc) => {
                        // Its last words may not have been read yet, and an exit is the end of them.
                        if let Some(token) = self.ranks.pmi(proc) {
                            self.read_pmi(now, token, proc);
                        }
                        self.daemon.handle(now, Input::Exited { proc, status });
                    }
                    None => self.daemon.handle(now, Input::StrayExited),
                },
                ChildEvent::Stopped { pid, signal } => {
                    if let Some(proc) = self.ranks.on_stopped(pid, signal) {
                        self.daemon.handle(now, Input::Trapped { proc });
                    }
                }
            }
        }
    }

    fn read_front(&mut self, now: Time, token: Token) {
        let Some(fd) = self.events.fd(token) else {
            return;
        };
        let received = self.link.link.receive(fd);
        loop {
            match self.link.next_message() {
                Ok(Some(message)) => self.on_front(now, message),
                Ok(None) => break,
                Err(error) => {
                    (self.admit)(&broken_link(&error));
                    return self.lose_front(now);
                }
            }
        }
        match received {
            Ok(Received::Open) => {}
            Ok(Received::Closed) => self.lose_front(now),
            Err(error) => {
                (self.admit)(&broken_link(&error));
                self.lose_front(now);
            }
        }
    }

    fn on_front(&mut self, now: Time, message: FromFront) {
        self.controller.handle(now, ControllerInput::Front(message));
    }

    fn lose_front(&mut self, now: Time) {
        if let Some(token) = self.front.take() {
            self.sources.remove(&token);
            drop(self.events.remove(token));
            self.controller.handle(now, ControllerInput::FrontLost);
        }
    }

    fn flush(&mut self) {
        let Some(token) = self.front else { return };
        let Some(fd) = self.events.fd(token) else {
            return;
        };
        match self.link.flush(fd) {
            Ok(Received::Open) => {
                let wanted = if self.link.link.has_outgoing() {
                    Interest::ReadWrite
                } else {
                    Interest::Read
                };
                if wanted != self.front_writes {
                    self.front_writes = wanted;
                    if let Err(error) = self.events.set_interest(token, wanted) {
                        (self.admit)(&error.to_string());
                    }
                }
            }
            // Its end of file is read, and handled, next.
            Ok(Received::Closed) => {}
            Err(error) => (self.admit)(&broken_link(&error)),
        }
    }

    fn read_output(&mut self, now: Time, token: Token, proc: ProcId, stream: Stream) {
        // A pause may have come since the kernel said that there is something to read.
        if self.events.interest(token) != Some(Interest::Read) {
            return;
        }
        let Some(fd) = self.events.fd(token) else {
            return;
        };
        let mut slot = self.region.take();
        let outcome = match &mut slot {
            Some(slot) => os::read(fd, slot.as_mut()),
            None => os::read(fd, &mut self.buffer),
        };
        match outcome {
            Ok(ReadOutcome::Bytes(read)) => {
                if read >= self.ranks.pipe_room(proc, stream) {
                    self.ranks
                        .set_pipe_room(proc, stream, os::set_pipe_size(fd, PIPE_SIZE));
                }
                let bytes = match slot {
                    Some(slot) if read >= KEEP_SLOT_MIN => Bytes::from_owner(slot).slice(..read),
                    Some(slot) => Bytes::copy_from_slice(&slot.as_ref()[..read]),
                    None => Bytes::copy_from_slice(&self.buffer[..read]),
                };
                self.daemon.handle(
                    now,
                    Input::Output {
                        proc,
                        stream,
                        bytes,
                    },
                );
                // What a chunk asks for (a pause, a credit) must come before the next read.
                self.pump();
            }
            Ok(ReadOutcome::WouldBlock) => {}
            Ok(ReadOutcome::Closed) => self.end_output(now, proc, stream),
            Err(error) => {
                self.complaints.add(Missing::Output(proc.rank), &error);
                self.end_output(now, proc, stream);
            }
        }
    }

    fn end_output(&mut self, now: Time, proc: ProcId, stream: Stream) {
        self.ranks
            .close_output(&mut self.events, &mut self.sources, proc, stream);
        self.clients.resume(&mut self.events);
        self.control.resume(&mut self.events);
        self.daemon.handle(now, Input::OutputEnded { proc, stream });
    }

    fn write_stdin(&mut self, now: Time, token: Token, proc: ProcId) {
        match self.ranks.write_stdin(&mut self.events, token, proc) {
            ranks::Fed::All => self.daemon.handle(now, Input::StdinWritten { proc }),
            ranks::Fed::Part => {}
            ranks::Fed::Broken => {
                self.ranks
                    .close_stdin(&mut self.events, &mut self.sources, proc);
                self.daemon.handle(now, Input::StdinBroken { proc });
            }
        }
    }

    fn read_pmi(&mut self, now: Time, token: Token, proc: ProcId) {
        let Some(fd) = self.events.fd(token) else {
            return;
        };
        match os::read(fd, &mut self.buffer[..PMI_READ_MAX]) {
            Ok(ReadOutcome::Bytes(read)) => {
                self.daemon.handle(
                    now,
                    Input::Pmi {
                        proc,
                        bytes: &self.buffer[..read],
                    },
                );
            }
            Ok(ReadOutcome::WouldBlock) => {}
            Ok(ReadOutcome::Closed) | Err(_) => {
                self.ranks
                    .close_pmi(&mut self.events, &mut self.sources, proc);
                self.daemon.handle(now, Input::PmiClosed { proc });
            }
        }
    }
}

/// The name of the PMIx server here: it stands before a dot and a semicolon, so that neither may be in it.
///
/// The names of its jobs begin with it, and MPICH makes those of its shared memory from them alone. Programs that are
/// killed leave such memory behind, so that a name must not come again when the pid does.
fn service_name(host: &str, unique: u64) -> String {
    let host: String = host
        .chars()
        .take_while(|character| *character != '.')
        .filter(|character| !matches!(character, ';' | '@'))
        .take(SERVICE_HOST_MAX)
        .collect();
    let pid = os::current_pid().as_raw();
    format!("rally-{host}-{:08x}-{pid}", unique & 0xffff_ffff)
}

fn broken_link(error: &LinkError) -> String {
    format!("the front broke the link: {error}")
}
