//! `rally` under the name `mpiexec`, called by an MPICH program that was started without a launcher (*singleton init*, in
//! `docs/formats/pmi-1.md`).
//!
//! Such a program runs alone until it spawns, publishes a name or asks for the size of the universe. Then it starts
//! `mpiexec`, and waits for it to connect. We launch a job whose only rank is our own executable: a proxy that forwards PMI
//! messages between the program and our server. So the controller has a job like any other, and jobs that the program spawns
//! are its descendants.
//!
//! The proxy uses blocking reads and writes: it is a program that we launch, not a part of the launcher.

use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream},
    os::unix::net::UnixStream,
    time::{Duration, Instant},
};

use base::Signal;
use message::{Kind, Message, Severity};
use pmix::pmi::{
    self,
    wire::{Form, Framer, Message as Command},
};
use runtime::SharedMemory;

use crate::args::MessageFormat;

/// All kinds of messages in this file, for `rally help ID`.
pub(crate) const KINDS: &[&Kind] = &[&FAILED];

const FAILED: Kind = Kind {
    id: "singleton/failed",
    severity: Severity::Error,
    explanation: "A program of MPICH that was started without a launcher has started `mpiexec`, which is `rally`, to spawn or to \
        publish. `rally` could not connect to the program, or the program ended without `MPI_Finalize`. Jobs that it had \
        spawned are ended.",
};

/// The longest time for a connection to the program. It is on this node, and listens already when it starts us.
const CONNECT_WAIT: Duration = Duration::from_secs(30);
/// The longest wait for the program's greeting.
const GREETING_WAIT: Duration = Duration::from_secs(30);
/// The size of one read, in bytes.
const CARRIED_MAX: usize = 16 * 1024;
/// The exit code if the program ended without `MPI_Finalize`.
const FAILURE: u8 = 1;
/// The exit code if the program could not be served.
const NOT_SERVED: u8 = crate::exit::INTERNAL;
/// The time from SIGTERM to SIGKILL for a program whose children have failed, and the longest wait after the SIGKILL.
const GRACE: Duration = Duration::from_secs(1);
/// The interval between checks whether the program is still alive.
const LOOK: Duration = Duration::from_millis(10);

/// Why the program cannot be served.
#[derive(Debug, thiserror::Error)]
enum SingletonError {
    #[error("its environment is not that of a rank: `{0}` is not set or not valid")]
    NotARank(&'static str),
    #[error("no port of a program is named")]
    NoPort,
    #[error("cannot connect to {address}: {error}")]
    Connect {
        address: SocketAddr,
        error: io::Error,
    },
    #[error("the descriptor in `PMI_FD` cannot be used: {0}")]
    Descriptor(#[from] os::Error),
    #[error("cannot {step}: {error}")]
    Io {
        step: &'static str,
        error: io::Error,
    },
    #[error("the program does not speak PMI-1: {0}")]
    Protocol(#[from] pmi::Error),
    #[error("the program has not greeted")]
    NoGreeting,
    #[error("the program ended without `MPI_Finalize`")]
    Lost,
}

/// Serves the program that listens at this port, until it has ended. Returns the exit code.
pub(crate) fn serve_singleton(port: Option<u16>, variable: &dyn Fn(&str) -> Option<String>) -> u8 {
    let serve = || {
        let port = port.ok_or(SingletonError::NoPort)?;
        // The name of the job in PMI is its PMIx namespace.
        let job = variable("PMIX_NAMESPACE").ok_or(SingletonError::NotARank("PMIX_NAMESPACE"))?;
        let number = variable("PMI_FD").and_then(|number| number.parse().ok());
        let number = number.ok_or(SingletonError::NotARank("PMI_FD"))?;
        let server = UnixStream::from(os::duplicate_inherited(number)?);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let program = TcpStream::connect_timeout(&address, CONNECT_WAIT)
            .map_err(|error| SingletonError::Connect { address, error })?;
        greet(&program, &job)?;
        carry(&program, &server)
    };
    match serve() {
        Ok(()) => crate::exit::SUCCESS,
        Err(error) => {
            let message = Message::new(
                &FAILED,
                format!("a program that called `mpiexec` is not served: {error}"),
            );
            // Without stderr the message is lost; the exit code still reports the error.
            let _ = message::print(&message, MessageFormat::Text, &mut io::stderr().lock());
            match error {
                SingletonError::Lost => FAILURE,
                _ => NOT_SERVED,
            }
        }
    }
}

/// The program that started us as `mpiexec`. It is a part of the MPI program, but none of our ranks.
#[derive(Debug)]
pub(crate) struct Caller(Option<os::Pid>);

impl Caller {
    /// Returns the caller of this process: our parent if `process` is our own pid. Otherwise a wrapper is in between, which
    /// may be any process, and the caller is unknown. If the program could be served afterwards, it was alive at this time,
    /// so that our parent is indeed the program.
    pub(crate) fn of(process: u32) -> Self {
        let ours = u32::try_from(os::current_pid().as_raw()) == Ok(process);
        Self(if ours { parent() } else { None })
    }

    /// Ends the program if the processes that it spawned have failed: it would wait for them for ever. Hydra does the same.
    pub(crate) fn end_if_failed(&self, code: u8) {
        let Some(pid) = self.0.filter(|pid| pid.as_raw() > 1) else {
            return;
        };
        if code == crate::exit::SUCCESS || code == NOT_SERVED {
            return;
        }
        // A killed program cannot remove its shared memory, so we note it before.
        let shared = SharedMemory::of(pid);
        // While the program is our parent, its pid cannot have been reused.
        for signal in [Signal::TERM, Signal::KILL] {
            if parent() != Some(pid) {
                break;
            }
            // An error means that the program has just exited.
            let _ = os::kill(pid, signal);
            let end = Instant::now() + GRACE;
            while parent() == Some(pid) && Instant::now() < end {
                std::thread::sleep(LOOK);
            }
        }
        shared.remove_abandoned();
    }
}

fn parent() -> Option<os::Pid> {
    os::inspect(os::current_pid()).map(|process| process.ppid)
}

/// Exchanges greetings. After them, the program is a client like any other.
fn greet(mut program: &TcpStream, job: &str) -> Result<(), SingletonError> {
    let failed = |error| SingletonError::Io {
        step: "greet the program",
        error,
    };
    // Each line waits for an answer.
    program.set_nodelay(true).map_err(failed)?;
    program
        .set_read_timeout(Some(GREETING_WAIT))
        .map_err(failed)?;
    let hello = Command::new(Form::Line, "singinit").with("authtype", "none");
    program.write_all(&hello.encode()?).map_err(failed)?;
    let mut framer = Framer::default();
    let mut byte = [0];
    let hello = loop {
        // Reads one byte at a time, so that no byte after the greeting is consumed.
        match program.read(&mut byte) {
            Ok(0) => return Err(SingletonError::NoGreeting),
            Ok(_) => framer.push(&byte),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(failed(error)),
        }
        if let Some(hello) = framer.next()? {
            break hello;
        }
    };
    if hello.name() != "singinit" {
        return Err(SingletonError::NoGreeting);
    }
    let welcome = Command::new(Form::Line, "singinit_info")
        .with("versionok", "yes")
        .with("stdio", "no")
        .with("kvsname", job);
    program.write_all(&welcome.encode()?).map_err(failed)?;
    program.set_read_timeout(None).map_err(failed)
}

/// Forwards messages until the program closes its connection, or the server does because the job is being ended.
fn carry(program: &TcpStream, server: &UnixStream) -> Result<(), SingletonError> {
    let failed = |error| SingletonError::Io {
        step: "carry what the program says",
        error,
    };
    let (mut answers, mut to_program) = (
        server.try_clone().map_err(failed)?,
        program.try_clone().map_err(failed)?,
    );
    std::thread::spawn(move || {
        let _ = copy(&mut answers, &mut to_program, |_| {});
        // The server has closed the connection. Shutting down ends the program's wait for an answer.
        let _ = to_program.shutdown(Shutdown::Both);
    });
    let mut said = Said::default();
    let (mut from, mut to) = (program, server);
    let carried = copy(&mut from, &mut to, |bytes| said.hear(bytes));
    match (carried, said.finalized) {
        (_, true) => Ok(()),
        (Ok(()), false) => Err(SingletonError::Lost),
        (Err(error), false) => Err(failed(error)),
    }
}

/// Copies until EOF, and shows every piece to `hear`.
fn copy(from: &mut impl Read, to: &mut impl Write, mut hear: impl FnMut(&[u8])) -> io::Result<()> {
    let mut buffer = vec![0; CARRIED_MAX];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(length) => {
                hear(&buffer[..length]);
                to.write_all(&buffer[..length])?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// What the program's own messages reveal about it.
#[derive(Debug, Default)]
struct Said {
    framer: Framer,
    /// Whether a message was malformed. The server handles that error; no further messages are parsed here.
    lost: bool,
    finalized: bool,
}

impl Said {
    fn hear(&mut self, bytes: &[u8]) {
        if self.lost {
            return;
        }
        self.framer.push(bytes);
        loop {
            match self.framer.next() {
                Ok(Some(command)) => {
                    self.finalized = pmi::Kind::asked_by(&command) == Some(pmi::Kind::Finalize);
                }
                Ok(None) => return,
                Err(_) => {
                    self.lost = true;
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
