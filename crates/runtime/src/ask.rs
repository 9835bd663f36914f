//! Connections to the controller of a running job, as a front of it: requests without a job, and further jobs.

use std::{
    os::fd::{AsFd, OwnedFd},
    path::Path,
    time::Duration,
};

use base::Time;
use bytes::Bytes;
use dvm::{
    prompts::{Asked, Secret},
    proto::{FromFront, OutputCredit, Refusal, ToFront},
    spec::JobSpec,
    stdio,
};
use os::Clock;

use crate::link::{FrontLink, LinkError, Received};

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error("it closed the connection")]
    Closed,
    #[error("it did not answer in time")]
    Late,
}

impl From<os::Error> for AskError {
    fn from(error: os::Error) -> Self {
        Self::Link(error.into())
    }
}

/// Why a further job did not run.
#[derive(Debug, thiserror::Error)]
pub enum SubmitError {
    #[error(transparent)]
    Ask(#[from] AskError),
    #[error("the job was refused")]
    Refused(Box<Refusal>),
    /// The controller has failed, for the reason given.
    #[error("{0}")]
    Failed(String),
}

/// A connection to a controller.
#[derive(Debug)]
pub struct Inquirer {
    link: FrontLink,
    socket: OwnedFd,
    patience: Duration,
}

impl Inquirer {
    /// Connects to the controller that listens at `path`. No later step takes longer than `patience` either.
    ///
    /// # Errors
    ///
    /// Returns an error of the system.
    pub fn connect(path: &Path, patience: Duration) -> Result<Self, AskError> {
        Ok(Self {
            link: FrontLink::inline(),
            socket: os::connect_at(path, patience)?,
            patience,
        })
    }

    /// Sends a question and waits for the answer; without a patience for as long as it takes.
    ///
    /// # Errors
    ///
    /// Those of [`Self::ask`].
    pub fn ask_within(
        &mut self,
        question: FromFront,
        patience: Option<Duration>,
    ) -> Result<ToFront, AskError> {
        self.send(question)?;
        self.next(patience.map(|patience| Clock::now() + patience))
    }

    /// Sends a question. The caller gets the answer by [`Self::hear`], after those to earlier questions.
    ///
    /// # Errors
    ///
    /// Those of [`Self::ask`].
    pub fn tell(&mut self, question: FromFront) -> Result<(), AskError> {
        self.send(question)
    }

    /// Sends a question, and submits a job. Gives the job back. [`Self::hear`] returns the answer, before what the controller says
    /// about the job.
    ///
    /// # Errors
    ///
    /// Those of [`Self::ask`].
    pub fn submit(
        &mut self,
        question: FromFront,
        spec: Box<JobSpec>,
    ) -> Result<Box<JobSpec>, AskError> {
        self.link.send(question);
        let spec = self.link.submit(spec);
        self.flush()?;
        Ok(spec)
    }

    /// Returns the answer to the first question of [`Self::tell`] that has none.
    ///
    /// # Errors
    ///
    /// Those of [`Self::ask`].
    pub fn hear(&mut self) -> Result<ToFront, AskError> {
        self.next(Some(Clock::now() + self.patience))
    }

    /// Waits until the controller closes the connection.
    pub fn wait_for_end(mut self) {
        while self.next(None).is_ok() {}
    }

    /// Returns the link and its socket, for a front that has submitted a job. Messages may have been received already.
    #[must_use]
    pub fn into_link(self) -> (FrontLink, OwnedFd) {
        (self.link, self.socket)
    }

    /// Sends a question and waits for the answer.
    ///
    /// # Errors
    ///
    /// Returns an error of the system or of the link (such as a controller of another version), or [`AskError::Closed`], or
    /// [`AskError::Late`].
    pub fn ask(&mut self, question: FromFront) -> Result<ToFront, AskError> {
        self.send(question)?;
        self.next(Some(Clock::now() + self.patience))
    }

    /// Asks the user for a start command, and returns the answer. The user may take any time. `None`: there is no answer.
    ///
    /// # Errors
    ///
    /// Those of [`Self::ask`], but [`AskError::Late`] only for the question.
    pub fn prompt(mut self, asked: Asked) -> Result<Option<Secret>, AskError> {
        self.send(FromFront::Prompt(asked))?;
        loop {
            if let ToFront::Answer(answer) = self.next(None)? {
                return Ok(answer);
            }
        }
    }

    /// Submits a job that reads `input`, and returns once it has ended. `print` gets what the job prints. Only the answer of the
    /// controller has to come within the patience: the job may take any time.
    ///
    /// # Errors
    ///
    /// Those of [`Self::ask`], or the job was refused, or the controller has failed.
    pub fn run(
        mut self,
        spec: JobSpec,
        input: Bytes,
        mut print: impl FnMut(&[u8]),
    ) -> Result<(), SubmitError> {
        self.send(FromFront::SubmitBeside(Box::new(spec)))?;
        let mut until = Some(Clock::now() + self.patience);
        // `None` once its end was sent.
        let mut input = Some(input);
        loop {
            match self.next(until)? {
                ToFront::Accepted(_) => until = None,
                ToFront::StdinCredit(credit) => self.feed(&mut input, credit)?,
                ToFront::Output { node, chunk } => {
                    print(&chunk.bytes);
                    self.send(FromFront::OutputCredit(OutputCredit {
                        job: chunk.job,
                        node,
                        stream: chunk.stream,
                        bytes: stdio::cost(chunk.bytes.len()),
                    }))?;
                }
                ToFront::Refused(refusal) => return Err(SubmitError::Refused(Box::new(refusal))),
                ToFront::Failed(why) => return Err(SubmitError::Failed(why.to_string())),
                ToFront::Ended(_) => return Ok(()),
                _ => {}
            }
        }
    }

    /// Sends as much of the job's input as the controller takes, and its end.
    fn feed(&mut self, input: &mut Option<Bytes>, credit: u64) -> Result<(), AskError> {
        let Some(rest) = input else {
            return Ok(());
        };
        let most = usize::try_from(credit).unwrap_or(usize::MAX);
        let part = rest.split_to(most.min(rest.len()));
        let is_all = rest.is_empty();
        if !part.is_empty() {
            self.send(FromFront::Stdin(part))?;
        }
        if is_all {
            *input = None;
            self.send(FromFront::StdinEof)?;
        }
        Ok(())
    }

    fn send(&mut self, message: FromFront) -> Result<(), AskError> {
        self.link.send(message);
        self.flush()
    }

    fn flush(&mut self) -> Result<(), AskError> {
        match self.link.flush(self.socket.as_fd())? {
            Received::Closed => Err(AskError::Closed),
            // The socket blocks, for at most the patience.
            Received::Open | Received::Nothing if self.link.link.has_outgoing() => {
                Err(AskError::Late)
            }
            Received::Open | Received::Nothing => Ok(()),
        }
    }

    /// Returns the next message, which has to come until `until`.
    fn next(&mut self, until: Option<Time>) -> Result<ToFront, AskError> {
        loop {
            if let Some(message) = self.link.next_message()? {
                return Ok(message);
            }
            if !os::wait_readable(self.socket.as_fd(), until)? {
                return Err(AskError::Late);
            }
            if let Received::Closed = self.link.link.receive(self.socket.as_fd())? {
                return Err(AskError::Closed);
            }
        }
    }
}
