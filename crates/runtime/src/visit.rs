//! The host of a PMIx tool: it carries out what [`pmix::tool::Tool`] asks for, for a program with one thread.
//!
//! A visit begins with a server that is known ([`Visit::open`]), searched for ([`find()`]), or started for it
//! ([`Visit::launch`]): a launcher that connects back. Then it is the same: requests go to [`Visit::tool`], [`Visit::wait`] waits
//! for an answer, and [`Visit::next`] returns what happens. Nothing happens while the caller does neither.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use os::Clock;
//! use pmix::{
//!     client::{Config, Connector, Done, infos},
//!     handshake::Owner,
//!     tool::{Event, Follow},
//!     value::App,
//! };
//! use runtime::visit::Visit;
//!
//! let patience = Duration::from_secs(10);
//! let server = "prte-n1-7@0.0;tcp4://127.0.0.1:4711".parse()?;
//! let owner = Owner { uid: os::effective_uid(), gid: os::effective_gid() };
//! let mut visit = Visit::open(Config::new(server, Connector::Tool, owner), patience)?;
//! let app = App { command: Some(c"hostname".into()), maxprocs: 2, ..App::default() };
//! let spawn = visit.tool().spawn(Vec::new(), vec![app]);
//! let until = Some(Clock::now() + patience);
//! if let Done::Spawned(job) = visit.wait(spawn, until, &mut |event| drop(event))? {
//!     while !matches!(visit.next(until)?, Event::JobEnded { nspace, .. } if nspace == job) {}
//! }
//! visit.finalize(until, &mut |event| drop(event))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod feed;
mod find;
mod launch;

use std::{
    collections::VecDeque,
    io,
    net::SocketAddr,
    os::fd::{AsFd as _, OwnedFd},
    path::PathBuf,
    time::Duration,
};

use base::{ExitStatus, Time};
use os::{
    Clock, ConnectOutcome, Event as Happened, Interest, Loop, ReadOutcome, SpawnError, Token,
    WriteOutcome,
};
use pmix::{
    client::{Config, ConfigError, Done, Input, Lost, Output, ProgramEvent, Ticket, UriError},
    tool::{Event, NotChosen, RendezvousError, Tool},
    value::{Proc, ProcInfo, Status},
};

use self::{feed::Feed, launch::Launcher};
pub use self::{
    find::{Search, Seen, find},
    launch::Launch,
};

/// Bytes that are read at once.
const READ_MAX: usize = 64 << 10;
/// Bytes that may wait for a server that does not read. The visit ends beyond that.
const UNSENT_MAX: usize = 64 << 20;

/// Why a visit has failed.
#[derive(Debug, thiserror::Error)]
pub enum Failed {
    #[error("the address of the server is wrong: {0}")]
    Address(#[from] UriError),
    #[error("the environment does not say where the server is: {0}")]
    Environment(#[from] ConfigError),
    #[error("cannot read `{}`: {why}", path.display())]
    Unreadable { path: PathBuf, why: io::Error },
    #[error("`{}` belongs neither to you nor to root", path.display())]
    Distrusted { path: PathBuf },
    #[error("`{}` does not say where a server is: {why}", path.display())]
    Malformed { path: PathBuf, why: RendezvousError },
    #[error(transparent)]
    NotChosen(#[from] NotChosen),
    #[error("cannot {step} {address}: {why}")]
    Socket {
        step: &'static str,
        address: SocketAddr,
        why: io::Error,
    },
    #[error(transparent)]
    System(#[from] os::Error),
    /// The connection has ended.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// The time is over.
    #[error("the server did not answer in time")]
    Silent,
    /// The server has answered with this status.
    #[error("the server refuses the request: {0}")]
    Refused(Status),
    /// The answer is of another kind than that of the request.
    #[error("the server gave an answer to another question")]
    OtherAnswer,
    #[error("it does not read what it is sent")]
    Deaf,
    #[error("there is no program `{}`", program.display())]
    NoProgram { program: PathBuf },
    #[error("`{}`: {why}", program.display())]
    NotStarted { program: PathBuf, why: SpawnError },
    #[error("the launcher ended before it connected: {status}")]
    LauncherEnded { status: ExitStatus },
}

/// A tool with its connection, and what belongs to it.
#[derive(Debug)]
pub struct Visit {
    events: Loop,
    /// Kernel events that were taken and not handled.
    batch: VecDeque<Happened>,
    tool: Tool,
    server: Option<Server>,
    feed: Option<Feed>,
    launcher: Option<Launcher>,
    buffer: Vec<u8>,
}

/// The connection to the server.
#[derive(Debug)]
struct Server {
    token: Token,
    address: SocketAddr,
    unsent: VecDeque<Vec<u8>>,
    /// Bytes of the first of `unsent` that were written.
    written: usize,
    /// Bytes of `unsent`.
    waiting: usize,
    interest: Interest,
    closing: bool,
}

impl Server {
    const fn new(token: Token, address: SocketAddr, interest: Interest) -> Self {
        Self {
            token,
            address,
            unsent: VecDeque::new(),
            written: 0,
            waiting: 0,
            interest,
            closing: false,
        }
    }
}

impl Visit {
    /// Connects to a server, and returns when it has accepted the tool.
    ///
    /// # Errors
    /// The server is not there, refuses the tool, or has not accepted it in time.
    pub fn open(config: Config, patience: Duration) -> Result<Self, Failed> {
        let until = Clock::now() + patience;
        let address = config.server.address();
        let mut events = Loop::new(&[])?;
        let socket = connect(&mut events, address, until)?;
        let token = events.add(socket, Interest::Read)?;
        let mut tool = Tool::new(Clock::now(), config);
        tool.handle(Clock::now(), Input::Opened);
        let server = Server::new(token, address, Interest::Read);
        let mut visit = Self::over(events, tool, Some(server));
        visit.ready(until)?;
        Ok(visit)
    }

    fn over(events: Loop, tool: Tool, server: Option<Server>) -> Self {
        Self {
            events,
            batch: VecDeque::new(),
            tool,
            server,
            feed: None,
            launcher: None,
            buffer: vec![0; READ_MAX],
        }
    }

    /// Waits until the server has accepted the tool. Nothing else happens before.
    fn ready(&mut self, until: Time) -> Result<(), Failed> {
        loop {
            if let Event::Program(ProgramEvent::Ready { .. }) = self.next(Some(until))? {
                return Ok(());
            }
        }
    }

    /// Returns the tool, for requests. They are sent by the next wait.
    pub const fn tool(&mut self) -> &mut Tool {
        &mut self.tool
    }

    /// Returns the name of the tool.
    #[must_use]
    pub fn me(&self) -> Option<&Proc> {
        self.tool.as_program().me()
    }

    /// Returns the next event of the tool. Its last one is [`ProgramEvent::Finalized`].
    ///
    /// # Errors
    /// [`Failed::Silent`] at `until`; [`Failed::Lost`] when the connection has ended.
    pub fn next(&mut self, until: Option<Time>) -> Result<Event, Failed> {
        loop {
            match self.tool.poll() {
                Some(Output::Connect(_)) => {}
                Some(Output::Send(bytes)) => self.send(bytes)?,
                Some(Output::Close) => {
                    if let Some(server) = &mut self.server {
                        server.closing = true;
                    }
                    self.flush()?;
                }
                Some(Output::Event(Event::Program(ProgramEvent::Lost { why }))) => {
                    return Err(why.into());
                }
                Some(Output::Event(event)) => {
                    if !self.fed(&event) {
                        return Ok(event);
                    }
                }
                None if self.server.is_none() => return Err(Lost::Left.into()),
                None => self.turn(until)?,
            }
        }
    }

    /// Waits for the result of a request. `on` gets what happens before.
    ///
    /// # Errors
    /// [`Failed::Refused`]: the server's answer is an error. Otherwise those of [`Self::next`].
    pub fn wait(
        &mut self,
        asked: Ticket,
        until: Option<Time>,
        on: &mut dyn FnMut(Event),
    ) -> Result<Done, Failed> {
        loop {
            match self.next(until)? {
                Event::Program(ProgramEvent::Done { ticket, result }) if ticket == asked => {
                    return result.map_err(Failed::Refused);
                }
                event => on(event),
            }
        }
    }

    /// Waits for the answer to [`Tool::proc_table`]. `on` gets what happens before.
    ///
    /// # Errors
    /// Those of [`Self::wait`].
    pub fn table(
        &mut self,
        asked: Ticket,
        until: Option<Time>,
        on: &mut dyn FnMut(Event),
    ) -> Result<Vec<ProcInfo>, Failed> {
        loop {
            match self.next(until)? {
                Event::Table { ticket, result } if ticket == asked => {
                    return result.map_err(Failed::Refused);
                }
                event => on(event),
            }
        }
    }

    /// Takes leave of the server, and returns when it has answered. `on` gets what happens before.
    ///
    /// # Errors
    /// Those of [`Self::next`].
    pub fn finalize(
        mut self,
        until: Option<Time>,
        on: &mut dyn FnMut(Event),
    ) -> Result<(), Failed> {
        self.tool.program().finalize(Clock::now());
        loop {
            match self.next(until)? {
                Event::Program(ProgramEvent::Finalized) => return Ok(()),
                event => on(event),
            }
        }
    }

    /// Waits for the kernel once, and tells the tool what has happened.
    fn turn(&mut self, until: Option<Time>) -> Result<(), Failed> {
        let Some(happened) = self.batch.pop_front() else {
            let now = Clock::now();
            if until.is_some_and(|until| until <= now) {
                return Err(Failed::Silent);
            }
            let due = self.tool.deadline();
            if due.is_some_and(|due| due <= now) {
                self.tool.handle(now, Input::Tick);
                return Ok(());
            }
            let deadline = until.into_iter().chain(due).min();
            let mut batch = Vec::new();
            self.events.wait(deadline, &mut batch)?;
            self.batch.extend(batch);
            return Ok(());
        };
        match happened {
            Happened::Readable(token) if self.is_server(token) => self.receive(),
            Happened::Writable(token) if self.is_server(token) => self.flush(),
            Happened::Readable(token) => self.read_input(token),
            Happened::Signal(_) => {
                self.reap();
                Ok(())
            }
            Happened::Writable(_) | Happened::Deadline => Ok(()),
        }
    }

    fn is_server(&self, token: Token) -> bool {
        let server = self.server.as_ref();
        server.is_some_and(|server| server.token == token)
    }

    fn receive(&mut self) -> Result<(), Failed> {
        let Some(server) = &self.server else {
            return Ok(());
        };
        let Some(fd) = self.events.fd(server.token) else {
            return Ok(());
        };
        let input = match os::read(fd, &mut self.buffer) {
            Ok(ReadOutcome::Bytes(count)) => {
                Input::Bytes(self.buffer.get(..count).unwrap_or_default())
            }
            Ok(ReadOutcome::WouldBlock) => return Ok(()),
            Ok(ReadOutcome::Closed) => Input::Closed,
            Err(error) => return Err(socket_failed("read from", server.address, &error)),
        };
        let is_over = input == Input::Closed;
        self.tool.handle(Clock::now(), input);
        if is_over {
            self.close();
        }
        Ok(())
    }

    fn send(&mut self, bytes: Vec<u8>) -> Result<(), Failed> {
        let Some(server) = &mut self.server else {
            return Ok(());
        };
        if server.waiting + bytes.len() > UNSENT_MAX {
            self.close();
            return Err(Failed::Deaf);
        }
        server.waiting += bytes.len();
        server.unsent.push_back(bytes);
        self.flush()
    }

    /// Writes what there is room for.
    fn flush(&mut self) -> Result<(), Failed> {
        let Some(server) = &mut self.server else {
            return Ok(());
        };
        while let Some(first) = server.unsent.front() {
            let Some(fd) = self.events.fd(server.token) else {
                return Ok(());
            };
            let rest = first.get(server.written..).unwrap_or_default();
            match os::write(fd, rest) {
                Ok(WriteOutcome::Bytes(count)) => {
                    server.written += count;
                    server.waiting -= count;
                }
                Ok(WriteOutcome::WouldBlock) => break,
                // What it has sent before is still to be read; then the read reports the end.
                Ok(WriteOutcome::Closed) => {
                    server.unsent.clear();
                    break;
                }
                Err(error) => return Err(socket_failed("write to", server.address, &error)),
            }
            if server.written >= first.len() {
                server.unsent.pop_front();
                server.written = 0;
            }
        }
        if server.closing && server.unsent.is_empty() {
            self.close();
            return Ok(());
        }
        let wanted = if server.unsent.is_empty() {
            Interest::Read
        } else {
            Interest::ReadWrite
        };
        if wanted != server.interest {
            server.interest = wanted;
            let token = server.token;
            self.events.set_interest(token, wanted)?;
        }
        Ok(())
    }

    fn close(&mut self) {
        if let Some(server) = self.server.take() {
            drop(self.events.remove(server.token));
        }
    }
}

/// Connects, and returns when the connection is established.
fn connect(events: &mut Loop, address: SocketAddr, until: Time) -> Result<OwnedFd, Failed> {
    let failed = |error: os::Error| socket_failed("connect to", address, &error);
    // Servers listen on the loopback interface, and some on others too.
    let socket = if address.ip().is_loopback() {
        os::connect_loopback(address)
    } else {
        os::connect_remote(address)
    };
    let mut socket = socket.map_err(failed)?;
    let mut batch = Vec::new();
    loop {
        match os::connect_outcome(socket.as_fd()).map_err(failed)? {
            ConnectOutcome::Connected => return Ok(socket),
            ConnectOutcome::Pending if Clock::now() >= until => return Err(Failed::Silent),
            ConnectOutcome::Pending => {}
        }
        let token = events.add(socket, Interest::Write)?;
        events.wait(Some(until), &mut batch)?;
        let Some(back) = events.remove(token) else {
            return Err(Failed::Silent);
        };
        socket = back;
    }
}

fn socket_failed(step: &'static str, address: SocketAddr, error: &os::Error) -> Failed {
    Failed::Socket {
        step,
        address,
        why: io::Error::from_raw_os_error(error.errno()),
    }
}
