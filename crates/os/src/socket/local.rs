//! Stream sockets with a name in the file system: whoever may enter the directory may connect.
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

/// A process that has connected.
#[derive(Debug)]
pub struct Peer {
    /// The connection, which does not block.
    pub socket: OwnedFd,
    /// The process as it was when it connected.
    pub pid: Pid,
    pub uid: u32,
}

/// The next connection of a listener from [`listen_at`]; `None` when there is none now.
///
/// # Errors
/// What accept(2) says, except "again" and "interrupted".
pub fn accept_at(listener: BorrowedFd<'_>) -> Result<Option<Peer>, Error> {
    const OPERATION: &str = "accept a connection";
    loop {
        match accept4(
            listener.as_raw_fd(),
            SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC,
        ) {
            Ok(raw) => {
                // SAFETY: the kernel has just made this descriptor, and nobody else knows its number.
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

/// Connects to whoever listens at a path. The socket blocks, but for no longer than `patience` in each step: then reads and
/// writes would block.
///
/// # Errors
/// `ECONNREFUSED` and `ENOENT` when nobody listens; `EAGAIN` when the queue of the listener stays full; what connect(2) says
/// otherwise.
pub fn connect_at(path: &Path, patience: Duration) -> Result<OwnedFd, Error> {
    const OPERATION: &str = "connect to a path";
    let socket = socket(
        AddressFamily::Unix,
        SockType::Stream,
        SockFlag::SOCK_CLOEXEC,
        None,
    )
    .map_err(Error::nix(OPERATION))?;
    // The time for sending counts for connecting as well.
    let limit = TimeVal::microseconds(i64::try_from(patience.as_micros()).unwrap_or(i64::MAX));
    setsockopt(&socket, sockopt::SendTimeout, &limit).map_err(Error::nix(OPERATION))?;
    setsockopt(&socket, sockopt::ReceiveTimeout, &limit).map_err(Error::nix(OPERATION))?;
    let short = Short::of(path).map_err(Error::nix(OPERATION))?;
    let address = UnixAddr::new(&short.path).map_err(Error::nix(OPERATION))?;
    connect(socket.as_raw_fd(), &address).map_err(Error::nix(OPERATION))?;
    Ok(socket)
}
