//! Stream sockets with a name in the file system: whoever may enter the directory may connect.
#![expect(unsafe_code, reason = "accept4 gives a bare number")]

use std::{
    io::{self, BufRead as _, Read as _, Write as _},
    os::{
        fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
        unix::net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    time::Duration,
};

use nix::{
    errno::Errno,
    fcntl::{OFlag, open},
    sys::{
        socket::{
            AddressFamily, SockFlag, SockType, UnixAddr, accept4, connect, setsockopt, socket,
            sockopt,
        },
        stat::Mode,
        time::{TimeVal, TimeValLike as _},
    },
};

use crate::error::Error;

/// Bytes that the address of such a socket has room for, the final NUL among them.
const ADDRESS_MAX: usize = 108;

/// A path as it fits into an address: its directory may have a name of any length, for which a descriptor stands.
struct Short {
    path: PathBuf,
    /// Held open, and not used otherwise.
    _directory: Option<OwnedFd>,
}

impl Short {
    fn of(path: &Path) -> Result<Self, Errno> {
        if path.as_os_str().len() < ADDRESS_MAX {
            return Ok(Self {
                path: path.to_owned(),
                _directory: None,
            });
        }
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(Errno::ENAMETOOLONG);
        };
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let directory = open(parent, flags, Mode::empty())?;
        Ok(Self {
            path: Path::new(&format!("/proc/self/fd/{}", directory.as_raw_fd())).join(name),
            _directory: Some(directory),
        })
    }
}

/// Listens at a path that is not taken, of whatever length; the socket does not block.
///
/// # Errors
/// `EADDRINUSE` when something is at the path; what open(2) says of its directory; what bind(2) says otherwise.
pub fn listen_at(path: &Path) -> Result<OwnedFd, Error> {
    const OPERATION: &str = "listen at a path";
    let failed = Error::std(OPERATION);
    let short = Short::of(path).map_err(Error::nix(OPERATION))?;
    let listener = UnixListener::bind(&short.path).map_err(&failed)?;
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
/// `ECONNREFUSED` and `ENOENT` when nobody listens; `EAGAIN` when the other side takes too long; `EPROTO` when no whole line
/// comes back; what connect(2),
/// read(2) and write(2) say otherwise.
pub fn ask_at(path: &Path, line: &str, patience: Duration, limit: u64) -> Result<String, Error> {
    const OPERATION: &str = "ask at a path";
    let failed = Error::std(OPERATION);
    let socket = socket(
        AddressFamily::Unix,
        SockType::Stream,
        SockFlag::SOCK_CLOEXEC,
        None,
    )
    .map_err(Error::nix(OPERATION))?;
    // The time for sending counts for connecting as well: the other side may have its queue full.
    let limit_of = TimeVal::microseconds(i64::try_from(patience.as_micros()).unwrap_or(i64::MAX));
    setsockopt(&socket, sockopt::SendTimeout, &limit_of).map_err(Error::nix(OPERATION))?;
    setsockopt(&socket, sockopt::ReceiveTimeout, &limit_of).map_err(Error::nix(OPERATION))?;
    let short = Short::of(path).map_err(Error::nix(OPERATION))?;
    let address = UnixAddr::new(&short.path).map_err(Error::nix(OPERATION))?;
    connect(socket.as_raw_fd(), &address).map_err(Error::nix(OPERATION))?;
    let mut stream = UnixStream::from(socket);
    stream
        .write_all(format!("{line}\n").as_bytes())
        .map_err(&failed)?;
    let mut answer = String::new();
    let mut reader = io::BufReader::new(stream).take(limit);
    reader.read_line(&mut answer).map_err(&failed)?;
    match answer.strip_suffix('\n') {
        Some(answer) => Ok(answer.to_owned()),
        // The other side went, or said more than it may.
        None => Err(Error::nix(OPERATION)(Errno::EPROTO)),
    }
}
