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
use os::Links;

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
    /// Creates the file that the user has named. If that fails, nothing is recorded, and the error is reported.
    pub(crate) fn create(path: &Path) -> Self {
        Self::with(os::Appender::create(path, Links::Followed))
    }

    /// Creates the file of the daemon on another node. The user has not named it, so it must not be a link of somebody else.
    pub(crate) fn create_on_node(path: &Path, node: NodeId) -> Self {
        let path = Self::path_on_node(path, node);
        Self::with(os::Appender::create(&path, Links::Refused))
    }

    fn with(created: Result<os::Appender, os::Error>) -> Self {
        let tape = Self {
            state: RefCell::new(match created {
                Ok(file) => State::Open(file),
                Err(error) => State::Failed(error.to_string()),
            }),
        };
        tape.write(&recording::preamble());
        tape
    }

    fn path_on_node(path: &Path, node: NodeId) -> PathBuf {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{node}"));
        PathBuf::from(name)
    }

    /// Appends an event, without what a recording must not contain.
    pub(crate) fn record(&self, event: Event<'_>) {
        match event.hide().encode() {
            Ok(bytes) => self.write(&bytes),
            Err(error) => self.fail(&error),
        }
    }

    /// Ends the recording with this error, unless it has ended before.
    fn fail(&self, error: &impl ToString) {
        let mut state = self.state.borrow_mut();
        if let State::Open(_) = *state {
            *state = State::Failed(error.to_string());
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

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests look at the files")]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn an_error_is_reported_once() {
        let root = tempfile::tempdir().unwrap();
        let tape = Tape::create(&root.path().join("tape"));
        assert_eq!(tape.take_error(), None);
        for _ in 0..2 {
            tape.fail(&"no room");
        }
        assert_eq!(tape.take_error().as_deref(), Some("no room"));
        tape.fail(&"no room");
        assert_eq!(tape.take_error(), None);
    }

    #[test]
    fn the_file_of_another_node_is_no_link() {
        let root = tempfile::tempdir().unwrap();
        let (path, target) = (root.path().join("tape"), root.path().join("target"));
        fs::write(&target, "precious").unwrap();
        symlink(&target, root.path().join("tape.3")).unwrap();
        let tape = Tape::create_on_node(&path, NodeId(3));
        assert!(
            tape.take_error()
                .is_some_and(|error| error.contains("tape.3"))
        );
        assert_eq!(fs::read(&target).unwrap(), b"precious");
        // The user may name a link.
        symlink(&target, &path).unwrap();
        assert_eq!(Tape::create(&path).take_error(), None);
        assert_ne!(fs::read(&target).unwrap(), b"precious");
    }
}
