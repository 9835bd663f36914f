//! Asking the controller of a running job, as a front without a job.

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
    #[error("it takes too long")]
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
    /// Connects to the controller that listens at a path. No step takes longer than `patience`.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn connect(path: &Path, patience: Duration) -> Result<Self, AskError> {
        Ok(Self {
            link: FrontLink::inline(),
            socket: os::connect_at(path, patience)?,
        })
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    ///
    /// Those of the system and of the link, another version among them; the controller is gone, or has no time.
    pub fn ask(&mut self, question: FromFront) -> Result<ToFront, AskError> {
        self.link.send(question);
        match self.link.flush(self.socket.as_fd())? {
            Received::Closed => return Err(AskError::Closed),
            // The socket blocks, for as long as we have patience.
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
