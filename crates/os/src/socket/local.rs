//! Unix stream sockets with a path: a process that may enter the directory may connect.
#![expect(unsafe_code, reason = "accept4 gives a bare number")]

use std::{
    os::{
        fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
        unix::net::UnixListener,
    },
    path::{Path, PathBuf},
    time::Duration,
};

use nix::{
    errno::Errno,
    fcntl::{OFlag, open},
    sys::{
        socket::{
            AddressFamily, SockFlag, SockType, UnixAddr, accept4, connect, getsockopt, setsockopt,
            socket, sockopt,
        },
        stat::Mode,
        time::{TimeVal, TimeValLike as _},
    },
};

use crate::{error::Error, process::Pid};

/// Size of the path in a socket address, including the final NUL, in bytes.
const ADDRESS_MAX: usize = 108;

/// A path that fits into a socket address. The name of a long directory is replaced by a descriptor's path in /proc.
struct Short {
    path: PathBuf,
    /// Held open so that the path stays valid.
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

/// Listens at a path of any length where nothing exists yet; the socket is non-blocking.
///
/// # Errors
/// `EADDRINUSE` if something is at the path; those of open(2) for its directory; those of bind(2).
pub fn listen_at(path: &Path) -> Result<OwnedFd, Error> {
    const OPERATION: &str = "listen at a path";
    let failed = Error::std(OPERATION);
    let short = Short::of(path).map_err(Error::nix(OPERATION))?;
    let listener = UnixListener::bind(&short.path).map_err(&failed)?;
    listener.set_nonblocking(true).map_err(&failed)?;
    Ok(listener.into())
}

/// A process that has connected.
#[derive(Debug)]
pub struct Peer {
    /// The connection, which is non-blocking.
    pub socket: OwnedFd,
    /// Pid and uid at the time of the connection.
    pub pid: Pid,
    pub uid: u32,
}

/// Accepts the next connection of a listener from [`listen_at`]; `None` if none is pending.
///
/// # Errors
/// Those of accept(2), except "would block" and "interrupted".
pub fn accept_at(listener: BorrowedFd<'_>) -> Result<Option<Peer>, Error> {
    const OPERATION: &str = "accept a connection";
    loop {
        match accept4(
            listener.as_raw_fd(),
            SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC,
        ) {
            Ok(raw) => {
                // SAFETY: the kernel has just made this descriptor, and nothing else knows its number.
                let socket = unsafe { OwnedFd::from_raw_fd(raw) };
                let peer =
                    getsockopt(&socket, sockopt::PeerCredentials).map_err(Error::nix(OPERATION))?;
                return Ok(Some(Peer {
                    socket,
                    pid: Pid::from_raw(peer.pid()),
                    uid: peer.uid(),
                }));
            }
            Err(Errno::EAGAIN) => return Ok(None),
            Err(Errno::EINTR | Errno::ECONNABORTED) => {}
            Err(errno) => return Err(Error::nix(OPERATION)(errno)),
        }
    }
}

/// Connects to the listener at a path. The socket is blocking, but each call waits at most `patience`: after that, reads
/// and writes report that they would block.
///
/// # Errors
/// `ECONNREFUSED` and `ENOENT` if nothing listens; `EAGAIN` if the listener's backlog stays full; otherwise those of
/// connect(2).
pub fn connect_at(path: &Path, patience: Duration) -> Result<OwnedFd, Error> {
    const OPERATION: &str = "connect to a path";
    let socket = socket(
        AddressFamily::Unix,
        SockType::Stream,
        SockFlag::SOCK_CLOEXEC,
        None,
    )
    .map_err(Error::nix(OPERATION))?;
    // The send timeout also applies to connect(2).
    let limit = TimeVal::microseconds(i64::try_from(patience.as_micros()).unwrap_or(i64::MAX));
    setsockopt(&socket, sockopt::SendTimeout, &limit).map_err(Error::nix(OPERATION))?;
    setsockopt(&socket, sockopt::ReceiveTimeout, &limit).map_err(Error::nix(OPERATION))?;
    let short = Short::of(path).map_err(Error::nix(OPERATION))?;
    let address = UnixAddr::new(&short.path).map_err(Error::nix(OPERATION))?;
    connect(socket.as_raw_fd(), &address).map_err(Error::nix(OPERATION))?;
    Ok(socket)
}
