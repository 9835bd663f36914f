//! Both ends of a rank's streams: pipes, terminals, files.

use std::{
    ffi::{CString, OsStr},
    fs,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
};

use dvm::{
    PmiConnection, SpawnOrder, StreamPlan,
    proto::{StartFailure, StartStep},
    spec::{WindowSize, WithoutTerminal},
};

pub(super) const fn window_size(size: WindowSize) -> os::WindowSize {
    os::WindowSize {
        rows: size.rows,
        columns: size.columns,
    }
}

/// Both ends of a rank's channels, before the rank is started. `theirs` and `pmi_theirs` become the rank's; the others are
/// ours.
pub(super) struct Channels {
    pub(super) theirs: [OwnedFd; 3],
    /// `None` if the process gets no PMI connection.
    pub(super) pmi_theirs: Option<OwnedFd>,
    pub(super) stdin: Option<OwnedFd>,
    pub(super) stdout: Option<OwnedFd>,
    pub(super) stderr: Option<OwnedFd>,
    pub(super) pmi: Option<OwnedFd>,
}

impl Channels {
    pub(super) fn open(order: &SpawnOrder, directory: &CString) -> Result<Self, StartFailure> {
        let failed_at = |step, error: os::Error| StartFailure {
            step,
            errno: error.errno(),
            subject: None,
        };
        let failed = |error| failed_at(StartStep::Channels, error);
        let no_terminal = |error| failed_at(StartStep::Terminal, error);
        let (pmi, pmi_theirs) = match order.pmi {
            PmiConnection::Open => {
                let (ours, theirs) = os::socket_pair().map_err(failed)?;
                os::set_nonblocking(ours.as_fd()).map_err(failed)?;
                (Some(ours), Some(theirs))
            }
            PmiConnection::None => (None, None),
        };
        let mut terminal = match order.pty_size {
            Some(size) => {
                let (master, slave) = os::open_pty().map_err(no_terminal)?;
                os::set_window_size(slave.as_fd(), window_size(size)).map_err(failed)?;
                os::set_nonblocking(master.as_fd()).map_err(failed)?;
                Some((master, slave))
            }
            None => None,
        };
        let slave = |terminal: &Option<(OwnedFd, OwnedFd)>| match terminal {
            Some((_, slave)) => os::duplicate(slave.as_fd()).map_err(failed),
            None => os::dev_null().map_err(failed),
        };
        let (stdin_theirs, stdin) = match &order.stdin {
            StreamPlan::Pipe => {
                let (theirs, ours) = os::pipe().map_err(failed)?;
                os::set_nonblocking(ours.as_fd()).map_err(failed)?;
                (theirs, Some(ours))
            }
            StreamPlan::Pty => {
                let ours = match &terminal {
                    Some((master, _)) => Some(os::duplicate(master.as_fd()).map_err(failed)?),
                    None => None,
                };
                (slave(&terminal)?, ours)
            }
            StreamPlan::Unreadable => (os::unreadable_input().map_err(failed)?, None),
            StreamPlan::Null
            | StreamPlan::File(_)
            | StreamPlan::NewFile(_)
            | StreamPlan::WithStdout
            | StreamPlan::Lines(_) => (os::dev_null().map_err(failed)?, None),
        };
        let read = |(ours, theirs): (OwnedFd, OwnedFd)| {
            os::set_nonblocking(ours.as_fd()).map_err(failed)?;
            Ok((theirs, Some(ours)))
        };
        let output = |plan: &StreamPlan, stdout: Option<BorrowedFd<'_>>| match (plan, stdout) {
            (StreamPlan::Pipe, _) => read(os::pipe().map_err(failed)?),
            (StreamPlan::Lines(lines), _) => {
                match (os::open_output_pty(window_size(lines.size)), lines.without) {
                    (Ok(both), _) => read(both),
                    (Err(_), WithoutTerminal::Pipe) => read(os::pipe().map_err(failed)?),
                    (Err(error), WithoutTerminal::Fail) => Err(no_terminal(error)),
                }
            }
            (StreamPlan::Pty, _) => Ok((slave(&terminal)?, None)),
            (StreamPlan::File(name), _) => Ok((open_output(name, directory, Content::Kept)?, None)),
            (StreamPlan::NewFile(name), _) => {
                Ok((open_output(name, directory, Content::Removed)?, None))
            }
            (StreamPlan::WithStdout, Some(stdout)) => {
                Ok((os::duplicate(stdout).map_err(failed)?, None))
            }
            (StreamPlan::WithStdout | StreamPlan::Null | StreamPlan::Unreadable, _) => {
                Ok((os::dev_null().map_err(failed)?, None))
            }
        };
        let (stdout_theirs, mut stdout) = output(&order.stdout, None)?;
        let (stderr_theirs, stderr) = output(&order.stderr, Some(stdout_theirs.as_fd()))?;
        if let Some((master, _)) = terminal.take() {
            stdout = Some(master);
        }
        Ok(Self {
            theirs: [stdin_theirs, stdout_theirs, stderr_theirs],
            pmi_theirs,
            stdin,
            stdout,
            stderr,
            pmi,
        })
    }
}

/// What to do with the present content of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    Kept,
    Removed,
}

/// Opens a rank's output file for appending, so that ranks that share it do not overwrite each other. A FIFO without a
/// reader is refused (ENXIO): waiting for the reader would block the controller, and with it every timeout.
fn open_output(
    name: &OsStr,
    directory: &CString,
    content: Content,
) -> Result<OwnedFd, StartFailure> {
    let path = Path::new(OsStr::from_bytes(directory.to_bytes())).join(name);
    let open = || -> std::io::Result<fs::File> {
        let file = os::append_to(&path)?;
        match content {
            // A terminal or a pipe has no content to remove.
            Content::Removed if file.metadata()?.is_file() => file.set_len(0)?,
            Content::Removed | Content::Kept => {}
        }
        Ok(file)
    };
    open()
        .or_else(|error| match (error.kind(), path.parent()) {
            // Make a missing parent directory: the user chose it as part of the file name pattern.
            (std::io::ErrorKind::NotFound, Some(parent)) => {
                fs::create_dir_all(parent).and_then(|()| open())
            }
            _ => Err(error),
        })
        .map(OwnedFd::from)
        .map_err(|error| StartFailure {
            step: StartStep::OutputFile,
            errno: error.raw_os_error().unwrap_or_default(),
            subject: Some(path.into_os_string()),
        })
}
