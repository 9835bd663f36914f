//! Questions to a machine from a thread of its own: a machine that does not answer holds up neither the screen nor Ctrl-C.

use std::{collections::VecDeque, os::fd::OwnedFd};

use dvm::machine::{Ask, NotDone, Reply};
use os::Worker;

use super::{Connection, Failure, messages::no_screen};

/// What a machine says to a question: the answer, or why it gives none.
pub(crate) type Said = Result<Reply, NotDone>;

/// A connection that is used by a thread. Answers come in the order of the questions.
#[derive(Debug)]
pub(crate) struct Asker {
    worker: Worker<Ask, Result<Said, Failure>>,
}

impl Asker {
    /// Starts the thread. The descriptor becomes readable when there are answers.
    pub(crate) fn start(mut machine: Connection) -> Result<(Self, OwnedFd), Failure> {
        let started = Worker::start("asker", move |ask| machine.consult(ask));
        let (worker, watched) = started.map_err(|error| no_screen(&error))?;
        Ok((Self { worker }, watched))
    }

    pub(crate) fn ask(&self, question: Ask) {
        self.worker.order(question);
    }

    /// Returns the answers since the last call. After a failure, which is the end of the connection, there are only failures.
    pub(crate) fn answers(&self) -> VecDeque<Result<Said, Failure>> {
        self.worker.answers()
    }
}
