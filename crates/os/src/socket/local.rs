//! Stream sockets with a name in the file system: whoever may enter the directory may connect.
#![expect(unsafe_code, reason = "accept4 gives a bare number")]

use std::{
    io::{self, BufRead as _, Read as _, Write as _},
    os::{
        fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
        unix::net::{UnixListener, UnixStream},
    },
    path::Path,
    time::Duration,
};

use nix::{
    errno::Errno,
    sys::socket::{SockFlag, accept4},
};

use crate::error::Error;

/// Listens at a path that is not taken; the socket does not block. The path is at most 107 bytes long.
///
/// # Errors
/// `EADDRINUSE` when something is at the path; `EINVAL` when it is too long; what bind(2) says otherwise.
pub fn listen_at(path: &Path) -> Result<OwnedFd, Error> {
    let failed = Error::std("listen at a path");
    let listener = UnixListener::bind(path).map_err(&failed)?;
    listener.set_nonblocking(true).map_err(&failed)?;
    Ok(listener.into())
}

/// The next connection of a listener from [`listen_at`], which does not block either; `None` when there is none now.
///
/// # Errors
/// What accept(2) says, except "again" and "interrupted".
pub fn accept_at(listener: BorrowedFd<'_>) -> Result<Option<OwnedFd>, Error> {
    loop {
        match accept4(
            listener.as_raw_fd(),
            SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC,
        ) {
            // SAFETY: the kernel has just made this descriptor, and nobody else knows its number.
            Ok(raw) => return Ok(Some(unsafe { OwnedFd::from_raw_fd(raw) })),
            Err(Errno::EAGAIN) => return Ok(None),
            Err(Errno::EINTR | Errno::ECONNABORTED) => {}
            Err(errno) => return Err(Error::nix("accept a connection")(errno)),
        }
    }
}

/// Sends a line to whoever listens at a path, and gives the one that comes back, without its line feed. Waits no longer
/// than `patience` for each step, and takes no more than `limit` bytes.
///
/// # Errors
/// `ECONNREFUSED` and `ENOENT` when nobody listens; `EAGAIN` when the other side takes too long; what connect(2),
/// read(2) and write(2) say otherwise.
pub fn ask_at(path: &Path, line: &str, patience: Duration, limit: u64) -> Result<String, Error> {
    let failed = Error::std("ask at a path");
    let mut stream = UnixStream::connect(path).map_err(&failed)?;
    stream.set_read_timeout(Some(patience)).map_err(&failed)?;
    stream.set_write_timeout(Some(patience)).map_err(&failed)?;
    stream
        .write_all(format!("{line}\n").as_bytes())
        .map_err(&failed)?;
    let mut answer = String::new();
    let mut reader = io::BufReader::new(stream).take(limit);
    reader.read_line(&mut answer).map_err(&failed)?;
    Ok(answer.trim_end_matches('\n').to_owned())
}
