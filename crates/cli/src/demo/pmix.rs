//! The demo's PMIx client: drives the I/O-free client of the `pmix` crate over a socket with blocking reads and writes.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    time::Duration,
};

use os::Clock;
use pmix::{
    client::{
        Collect, Config, ConfigError, Done, Input, Lost, Output, Program, ProgramEvent, PutError,
        Search, Ticket,
    },
    value::{Key, PmixRank, Proc, Scope, Status, Value},
};

/// The longest time for a connection to the server, which is on this node.
const CONNECT_WAIT: Duration = Duration::from_secs(30);
/// The longest wait of a rank for an answer. A fence completes when the slowest rank has joined, and a node may have many
/// more ranks than cores.
pub(super) const ANSWER_WAIT: Duration = Duration::from_secs(300);
/// The shortest time-out of a socket, because zero would mean none.
const SHORTEST_WAIT: Duration = Duration::from_millis(1);
/// The size of one read, in bytes. The job info of a job with many ranks comes in several pieces.
const READ_MAX: usize = 16 * 1024;

/// Why a rank of the demo failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum DemoError {
    #[error("its environment is not that of a rank: {0}")]
    NotARank(#[from] ConfigError),
    #[error("cannot connect to the server at {address}: {error}")]
    Connect {
        address: SocketAddr,
        error: io::Error,
    },
    #[error("cannot {step}: {error}")]
    Io {
        step: &'static str,
        error: io::Error,
    },
    #[error("{0}")]
    Lost(Lost),
    #[error("the server did not answer `{request}` in time")]
    Silent { request: &'static str },
    #[error("the server refused `{request}`: {status}")]
    Refused {
        request: &'static str,
        status: Status,
    },
    #[error("the server answered something else to `{request}`")]
    Answer { request: &'static str },
    #[error("the server says that this is rank {rank} of {size}")]
    Place { rank: PmixRank, size: u64 },
    #[error("{0}")]
    Key(#[from] pmix::Error),
    #[error("{0}")]
    Put(#[from] PutError),
    #[error("rank {right} should have read `{expected}` and has read `{got}`")]
    Ring {
        right: u32,
        expected: String,
        got: String,
    },
    #[error("{got} is not a value for `{key}` of rank {rank}")]
    Value {
        rank: u32,
        key: &'static str,
        got: Value,
    },
    #[error("cannot print: {0}")]
    Print(io::Error),
}

/// A connection after `PMIx_Init`. If it is dropped without [`Self::finalize`], the server sees a lost client.
#[derive(Debug)]
pub(super) struct Pmix {
    program: Program,
    stream: TcpStream,
    me: Proc,
    size: u32,
    /// The longest wait for an answer, or for the server to accept written bytes.
    answer_wait: Duration,
}

impl Pmix {
    /// Connects, identifies itself, and receives the job info. Every later answer must arrive within `answer_wait`.
    pub(super) fn init(config: Config, answer_wait: Duration) -> Result<Self, DemoError> {
        let address = config.server.address();
        let connect = |error| DemoError::Connect { address, error };
        let stream = TcpStream::connect_timeout(&address, CONNECT_WAIT).map_err(connect)?;
        // Messages are written whole, and each waits for its answer: delaying one would gain nothing.
        stream.set_nodelay(true).map_err(connect)?;
        stream
            .set_write_timeout(Some(answer_wait.max(SHORTEST_WAIT)))
            .map_err(connect)?;
        let proc = config.connector.proc().cloned();
        let now = Clock::now();
        let mut program = Program::new(now, config);
        program.handle(now, Input::Opened);
        let mut pmix = Self {
            program,
            stream,
            me: proc.ok_or(DemoError::Answer { request: "init" })?,
            size: 0,
            answer_wait,
        };
        loop {
            match pmix.next_event()? {
                ProgramEvent::Ready { me, .. } => {
                    pmix.me = me;
                    break;
                }
                ProgramEvent::Lost { why } => return Err(DemoError::Lost(why)),
                // A debugger may hold the rank for as long as it likes.
                _ => {}
            }
        }
        let rank = pmix.me.rank;
        let size = pmix.program.job().and_then(|job| job.size()).unwrap_or(0);
        pmix.size = u32::try_from(size)
            .ok()
            .filter(|size| rank.0 < *size)
            .ok_or(DemoError::Place { rank, size })?;
        Ok(pmix)
    }

    /// Returns our rank in the job.
    pub(super) const fn rank(&self) -> u32 {
        self.me.rank.0
    }

    /// Returns the number of ranks of the job, which is greater than our rank.
    pub(super) const fn size(&self) -> u32 {
        self.size
    }

    /// Returns the name of our node from the environment.
    pub(super) fn host(&self) -> String {
        let host = self.program.config().hostname.as_ref();
        host.map_or_else(
            || "localhost".to_owned(),
            |host| host.to_string_lossy().into_owned(),
        )
    }

    /// Stores a value for every rank. The server gets it at the next [`Self::commit`].
    pub(super) fn put(&mut self, key: &str, value: Value) -> Result<(), DemoError> {
        Ok(self
            .program
            .put(Scope::GLOBAL, Key::from_text(key)?, value)?)
    }

    /// Sends the server what was put.
    pub(super) fn commit(&mut self) -> Result<(), DemoError> {
        let ticket = self.program.commit();
        self.done("commit", ticket).map(drop)
    }

    /// Waits until every rank has joined. Afterwards each rank can get what any rank committed before.
    pub(super) fn fence(&mut self) -> Result<(), DemoError> {
        let ticket = self.program.fence(Vec::new(), Collect::Data);
        self.done("fence", ticket).map(drop)
    }

    /// Returns the value that a rank has put under a key.
    pub(super) fn get(&mut self, rank: u32, key: &str) -> Result<Value, DemoError> {
        let proc = Proc {
            nspace: self.me.nspace.clone(),
            rank: PmixRank(rank),
        };
        let ticket = self
            .program
            .get(proc, Key::from_text(key)?, Search::Anywhere);
        match self.done("get", ticket)? {
            Done::Value(value) => Ok(value),
            _ => Err(DemoError::Answer { request: "get" }),
        }
    }

    /// Finalizes the connection.
    pub(super) fn finalize(mut self) -> Result<(), DemoError> {
        self.program.finalize(Clock::now());
        loop {
            match self.next_event()? {
                ProgramEvent::Finalized => return Ok(()),
                ProgramEvent::Lost { why } => return Err(DemoError::Lost(why)),
                _ => {}
            }
        }
    }

    /// Waits for the result of a request.
    fn done(&mut self, request: &'static str, ticket: Ticket) -> Result<Done, DemoError> {
        self.program.limit(ticket, Clock::now() + self.answer_wait);
        loop {
            match self.next_event()? {
                ProgramEvent::Done { ticket: of, result } if of == ticket => {
                    return result.map_err(|status| self.why(request, status));
                }
                ProgramEvent::Lost { why } => return Err(DemoError::Lost(why)),
                _ => {}
            }
        }
    }

    /// Returns why a request failed. When the connection is lost, requests fail before the reason for the loss is reported.
    fn why(&mut self, request: &'static str, status: Status) -> DemoError {
        while let Some(output) = self.program.poll() {
            if let Output::Event(ProgramEvent::Lost { why }) = output {
                return DemoError::Lost(why);
            }
        }
        match status {
            Status::TIMEOUT => DemoError::Silent { request },
            status => DemoError::Refused { request, status },
        }
    }

    /// Carries out the client's outputs until there is an event.
    fn next_event(&mut self) -> Result<ProgramEvent, DemoError> {
        loop {
            match self.program.poll() {
                Some(Output::Event(event)) => return Ok(event),
                Some(Output::Send(bytes)) => self.send(&bytes)?,
                // An error means that the server has closed the connection first.
                Some(Output::Close) => drop(self.stream.shutdown(Shutdown::Both)),
                // The connection already existed before the client.
                Some(Output::Connect(_)) => {}
                None => self.receive()?,
            }
        }
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), DemoError> {
        match self.stream.write_all(bytes) {
            Ok(()) => Ok(()),
            Err(error) => self.failed("write to the server", error),
        }
    }

    /// Waits for bytes until the program's next deadline.
    fn receive(&mut self) -> Result<(), DemoError> {
        const STEP: &str = "read from the server";
        let deadline = self.program.deadline();
        let wait = deadline.map_or(self.answer_wait, Clock::until);
        self.stream
            .set_read_timeout(Some(wait.max(SHORTEST_WAIT)))
            .map_err(|error| DemoError::Io { step: STEP, error })?;
        let mut buffer = [0; READ_MAX];
        let input = match self.stream.read(&mut buffer) {
            Ok(0) => Input::Closed,
            Ok(length) => Input::Bytes(buffer.get(..length).unwrap_or_default()),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Input::Tick,
                io::ErrorKind::Interrupted => return Ok(()),
                _ => return self.failed(STEP, error),
            },
        };
        self.program.handle(Clock::now(), input);
        Ok(())
    }

    /// Handles a failed read or write. A closed connection is reported to the client, which decides what it means.
    fn failed(&mut self, step: &'static str, error: io::Error) -> Result<(), DemoError> {
        match error.kind() {
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
                self.program.handle(Clock::now(), Input::Closed);
                Ok(())
            }
            _ => Err(DemoError::Io { step, error }),
        }
    }
}
