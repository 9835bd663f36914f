//! Requests to the controller of a running job, sent as a front without a job.

use std::{
    os::fd::{AsFd, OwnedFd},
    path::Path,
    time::Duration,
};

use dvm::proto::{FromFront, ToFront};

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

/// A connection to a controller.
#[derive(Debug)]
pub struct Inquirer {
    link: FrontLink,
    socket: OwnedFd,
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
        })
    }

    /// Sends a question and waits for the answer.
    ///
    /// # Errors
    ///
    /// Returns an error of the system or of the link (such as a controller of another version), or [`AskError::Closed`], or
    /// [`AskError::Late`].
    pub fn ask(&mut self, question: FromFront) -> Result<ToFront, AskError> {
        self.link.send(question);
        match self.link.flush(self.socket.as_fd())? {
            Received::Closed => return Err(AskError::Closed),
            // The socket blocks, for at most `patience`.
            Received::Open | Received::Nothing if self.link.link.has_outgoing() => {
                return Err(AskError::Late);
            }
            Received::Open | Received::Nothing => {}
        }
        loop {
            if let Some(answer) = self.link.next_message()? {
                return Ok(answer);
            }
            match self.link.link.receive(self.socket.as_fd())? {
                Received::Open => {}
                Received::Nothing => return Err(AskError::Late),
                Received::Closed => return Err(AskError::Closed),
            }
        }
    }
}
