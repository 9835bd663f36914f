//! The file of a recording (`--record`), to which the state machines of one process write what enters and leaves them.
//!
//! Each event is written when it happens, with one call: if the process is killed, the events up to then are in the file.
//! The first error ends the recording, and the job goes on.

use std::{
    cell::RefCell,
    path::{Path, PathBuf},
};

use base::NodeId;
use dvm::recording::{self, Event};

/// The file of this process. Its state machines share it, so that it has their events in order.
#[derive(Debug)]
pub(crate) struct Tape {
    state: RefCell<State>,
}

#[derive(Debug)]
enum State {
    Open(os::Appender),
    /// The recording has ended with this error, which is not reported yet.
    Failed(String),
    Ended,
}

impl Tape {
    /// Creates the file. If that fails, nothing is recorded, and the error is reported.
    pub(crate) fn create(path: &Path) -> Self {
        let created = os::Appender::create(path);
        let tape = Self {
            state: RefCell::new(match created {
                Ok(file) => State::Open(file),
                Err(error) => State::Failed(error.to_string()),
            }),
        };
        tape.write(&recording::preamble());
        tape
    }

    /// Returns the path of the file of the daemon on another node.
    pub(crate) fn path_on_node(path: &Path, node: NodeId) -> PathBuf {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{node}"));
        PathBuf::from(name)
    }

    /// Appends an event, without what a recording must not contain.
    pub(crate) fn record(&self, event: Event<'_>) {
        match event.hide().encode() {
            Ok(bytes) => self.write(&bytes),
            Err(error) => *self.state.borrow_mut() = State::Failed(error.to_string()),
        }
    }

    fn write(&self, bytes: &[u8]) {
        let mut state = self.state.borrow_mut();
        let written = match &mut *state {
            State::Open(file) => file.append(bytes),
            State::Failed(_) | State::Ended => Ok(()),
        };
        if let Err(error) = written {
            *state = State::Failed(error.to_string());
        }
    }

    /// Returns the error that has ended the recording, once.
    pub(crate) fn take_error(&self) -> Option<String> {
        let mut state = self.state.borrow_mut();
        match std::mem::replace(&mut *state, State::Ended) {
            State::Failed(error) => Some(error),
            other => {
                *state = other;
                None
            }
        }
    }
}
