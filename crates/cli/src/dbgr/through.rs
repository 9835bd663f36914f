//! `dbgr __through SOCKET`: has the daemons of a running job of `rally` start the agents.
//!
//! The relay of `dbgr` runs it as it runs `srun`: its standard input is what each agent reads, and it lives as long as the
//! agents. It connects to the job's controller as a further front, and submits a job of its own: one agent on each node, by
//! a copy of this program. So the controller ends the agents when this process ends, in whatever way, and removes the copies.

use std::{
    io::{self, Read as _, Write as _},
    path::Path,
    time::Duration,
};

use base::Time;
use dvm::{
    proto::{FromFront, OutputCredit, Refusal, ToFront},
    stdio,
};
use os::Clock;
use runtime::link::{FrontLink, LinkError, Received};

use super::remote::AGENT_ARGUMENT;
use crate::{
    args::{self, World},
    exit,
};

/// The longest wait for the controller to accept the connection, and to take what is written.
const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum length of what agents read.
const INPUT_MAX: u64 = 16 << 20;

/// Why no agents run.
#[derive(Debug, thiserror::Error)]
enum NotStarted {
    #[error(transparent)]
    Args(#[from] args::Error),
    #[error("cannot reach the controller of the job: {0}")]
    Os(#[from] os::Error),
    #[error("the controller of the job: {0}")]
    Link(#[from] LinkError),
    #[error("cannot read what agents are told: {0}")]
    Input(io::Error),
    #[error("agents can be told {INPUT_MAX} bytes, and this is more")]
    TooLong,
    #[error("the controller of the job does not answer")]
    Lost,
    #[error("the job takes no agents: {0}")]
    Refused(String),
}

/// Runs until the agents have ended, and returns the exit code.
pub(super) fn serve(socket: &Path) -> u8 {
    match run(socket) {
        Ok(()) => exit::SUCCESS,
        Err(why) => {
            // The relay shows the last line if agents do not connect.
            let _ = writeln!(io::stderr(), "dbgr: {why}");
            exit::INTERNAL
        }
    }
}

fn run(path: &Path) -> Result<(), NotStarted> {
    let mut input = Vec::new();
    let taken = io::stdin()
        .lock()
        .take(INPUT_MAX + 1)
        .read_to_end(&mut input);
    if taken.map_err(NotStarted::Input)? as u64 > INPUT_MAX {
        return Err(NotStarted::TooLong);
    }
    let spec = args::of_agents(AGENT_ARGUMENT, &World::capture())?;
    let mut front = Front {
        link: FrontLink::inline(),
        socket: os::connect_at(path, PATIENCE)?,
        input: input.into(),
    };
    front.send(FromFront::Submit(Box::new(spec)))?;
    // An answer takes no longer. Afterwards the agents may take their time.
    let mut until = Some(Clock::now() + PATIENCE);
    while let Some(message) = front.next(until)? {
        match message {
            ToFront::Accepted(_) => until = None,
            ToFront::StdinCredit(credit) => front.tell_agents(credit)?,
            ToFront::Output { node, chunk } => {
                let _ = io::stderr().write_all(&chunk.bytes);
                let credit = OutputCredit {
                    job: chunk.job,
                    node,
                    stream: chunk.stream,
                    bytes: stdio::cost(chunk.bytes.len()),
                };
                front.send(FromFront::OutputCredit(credit))?;
            }
            ToFront::Refused(refusal) => return Err(NotStarted::Refused(words(&refusal))),
            ToFront::Failed(why) => return Err(NotStarted::Refused(why)),
            ToFront::Ended(_) => return Ok(()),
            _ => {}
        }
    }
    Err(NotStarted::Lost)
}

fn words(refusal: &Refusal) -> String {
    match refusal {
        Refusal::TooManyJobs { most } => format!("it has {most} jobs already"),
        Refusal::NodeLost { host } => format!("its node `{host}` was lost"),
        Refusal::NotPreloaded(_) => "its nodes cannot store the program".to_owned(),
        Refusal::OtherVersion { .. } => "it is of another version".to_owned(),
        _ => "they cannot be placed on its nodes".to_owned(),
    }
}

/// The connection to the controller.
struct Front {
    link: FrontLink,
    socket: std::os::fd::OwnedFd,
    /// What the agents have not been told yet.
    input: bytes::Bytes,
}

impl Front {
    fn send(&mut self, message: FromFront) -> Result<(), NotStarted> {
        use std::os::fd::AsFd as _;
        self.link.send(message);
        match self.link.flush(self.socket.as_fd())? {
            // The socket blocks, for at most the patience.
            Received::Closed => Err(NotStarted::Lost),
            Received::Open | Received::Nothing if self.link.link.has_outgoing() => {
                Err(NotStarted::Lost)
            }
            Received::Open | Received::Nothing => Ok(()),
        }
    }

    fn tell_agents(&mut self, credit: u64) -> Result<(), NotStarted> {
        if self.input.is_empty() {
            return Ok(());
        }
        let most = usize::try_from(credit).unwrap_or(usize::MAX);
        let part = self.input.split_to(most.min(self.input.len()));
        self.send(FromFront::Stdin(part))?;
        if self.input.is_empty() {
            self.send(FromFront::StdinEof)?;
        }
        Ok(())
    }

    /// Returns the next message; `None` if the controller has closed the connection, or nothing came in time.
    fn next(&mut self, until: Option<Time>) -> Result<Option<ToFront>, NotStarted> {
        use std::os::fd::AsFd as _;
        loop {
            if let Some(message) = self.link.next_message()? {
                return Ok(Some(message));
            }
            if !os::wait_readable(self.socket.as_fd(), until)? {
                return Ok(None);
            }
            if let Received::Closed = self.link.link.receive(self.socket.as_fd())? {
                return Ok(None);
            }
        }
    }
}
