//! TCP on the loopback interface: listening, accepting, connecting, and the user at the other end. [`remote`] is for other
//! nodes.
//!
//! Every user of the node can connect to a loopback port, and a connection does not carry its user. The kernel knows it
//! ([`SocketOwners`]), and is asked when a connection is accepted, before a byte of it is read.
//!
//! Reading and writing are those of pipes: [`crate::read`], [`crate::write`]. A reset is reported as closed, as is end of
//! file. Which of the two a dying process causes depends on what it had not read, so the difference has no meaning.
#![expect(
    unsafe_code,
    reason = "accept4 gives a bare number, and one byte of TCP_INFO is enough"
)]

mod diag;
mod identity;
mod local;
mod port;
mod remote;
mod table;

use std::{
    ffi::OsString,
    net::{Ipv4Addr, SocketAddr, SocketAddrV4},
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
    ptr,
};

use nix::{
    errno::Errno,
    sys::socket::{
        AddressFamily, Backlog, SockFlag, SockType, SockaddrIn, SockaddrLike, SockaddrStorage,
        accept4, bind, connect, getpeername, getsockname, getsockopt, listen, setsockopt, socket,
        sockopt,
    },
};

use crate::error::{Error, check};

pub use identity::{PeerIdentity, SocketOwners, UnknownPeer};
pub use local::{Peer, accept_at, connect_at, listen_at};
pub use port::unused_port;
pub use remote::{
    InterfaceAddress, RemoteOutcome, accept_remote, connect_remote, interface_addresses,
    listen_anywhere,
};

/// States of a TCP connection, with the numbers of the kernel's net/tcp_states.h.
const ESTABLISHED: u8 = 1;
const SYN_SENT: u8 = 2;
const SYN_RECEIVED: u8 = 3;
const CLOSED: u8 = 7;

/// Flags of every socket here: non-blocking and close-on-exec.
const FLAGS: SockFlag = SockFlag::SOCK_NONBLOCK.union(SockFlag::SOCK_CLOEXEC);

/// Result of accepting.
#[derive(Debug)]
pub enum AcceptOutcome {
    /// A connection was accepted.
    Connection(Accepted),
    /// No connection is pending.
    WouldBlock,
    /// There is no descriptor or no memory for one more connection: `EMFILE`, `ENFILE`, `ENOBUFS`, `ENOMEM`. It stays in
    /// the kernel's queue, and the listener stays readable. Set it to [`crate::Interest::None`] until a descriptor was
    /// closed or some time has passed, or the loop spins.
    Exhausted(Error),
}

/// An accepted connection. It is non-blocking, closes on exec, and sends small writes immediately (`TCP_NODELAY`).
#[derive(Debug)]
pub struct Accepted {
    /// The connection.
    pub fd: OwnedFd,
    /// Address of the peer.
    pub address: SocketAddr,
    /// User of the peer.
    pub peer: PeerIdentity,
}

/// State of a connection that [`connect_loopback`] has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectOutcome {
    /// It is established, though perhaps not accepted yet.
    Connected,
    /// It is not established yet: wait until it is writable.
    Pending,
}

/// Listens on 127.0.0.1, on a port that the kernel chooses and that is returned. The backlog is as long as the kernel
/// allows (`net.core.somaxconn`).
///
/// # Errors
/// `EMFILE`, `ENFILE`; `EADDRINUSE` if no port is free.
pub fn listen_loopback() -> Result<(OwnedFd, u16), Error> {
    listen_with(loopback_socket()?, 0)
}

/// Like [`listen_loopback`], but on a given port, if it is not 0. Connections of an earlier listener of this function that are still
/// closing do not occupy the port.
///
/// # Errors
/// `EADDRINUSE` if the port is not free; `EACCES` for a port below 1024; `EMFILE`, `ENFILE`.
pub fn listen_loopback_on(port: u16) -> Result<(OwnedFd, u16), Error> {
    let listener = loopback_socket()?;
    setsockopt(&listener, sockopt::ReuseAddr, &true).map_err(Error::nix("take a loopback port"))?;
    listen_with(listener, port)
}

/// Listens on exactly this address, and on a port that the kernel chooses if it is 0. Returns the port. Connections of an earlier listener that
/// are still closing do not occupy it.
///
/// # Errors
/// `EADDRINUSE` if the port is not free; `EADDRNOTAVAIL` if this node does not have the address; `EACCES` for ports that only root may use; `EMFILE`,
/// `ENFILE`.
pub fn listen_at_address(address: SocketAddr) -> Result<(OwnedFd, u16), Error> {
    const OPERATION: &str = "listen on the address";
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::Inet,
        SocketAddr::V6(_) => AddressFamily::Inet6,
    };
    let listener =
        socket(family, SockType::Stream, FLAGS, None).map_err(Error::nix("create a socket"))?;
    setsockopt(&listener, sockopt::ReuseAddr, &true).map_err(Error::nix(OPERATION))?;
    bind(listener.as_raw_fd(), &SockaddrStorage::from(address)).map_err(Error::nix(OPERATION))?;
    listen(&listener, Backlog::MAXCONN).map_err(Error::nix(OPERATION))?;
    let port = own_address(listener.as_fd()).map_or_else(|| address.port(), |found| found.port());
    Ok((listener, port))
}

fn loopback_socket() -> Result<OwnedFd, Error> {
    socket(AddressFamily::Inet, SockType::Stream, FLAGS, None)
        .map_err(Error::nix("create a socket"))
}

fn listen_with(listener: OwnedFd, port: u16) -> Result<(OwnedFd, u16), Error> {
    let wanted = SockaddrIn::from(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port));
    bind(listener.as_raw_fd(), &wanted).map_err(Error::nix("take a loopback port"))?;
    listen(&listener, Backlog::MAXCONN).map_err(Error::nix("listen on a loopback port"))?;
    let address: SockaddrIn =
        getsockname(listener.as_raw_fd()).map_err(Error::nix("ask for a socket's port"))?;
    Ok((listener, address.port()))
}

/// Accepts the next connection of a non-blocking listener and finds its user. Connections that were reset while they were
/// pending are skipped.
///
/// # Errors
/// Those of accept(2), except those in [`AcceptOutcome`] and "interrupted".
pub fn accept(listener: BorrowedFd<'_>, owners: &mut SocketOwners) -> Result<AcceptOutcome, Error> {
    const OPERATION: &str = "accept a connection";
    loop {
        let raw = match accept4(listener.as_raw_fd(), FLAGS) {
            Ok(raw) => raw,
            Err(Errno::EAGAIN) => return Ok(AcceptOutcome::WouldBlock),
            // Each of these but the first has used up a connection, so the loop ends.
            Err(Errno::EINTR | Errno::ECONNABORTED | Errno::EPROTO) => continue,
            Err(errno @ (Errno::EMFILE | Errno::ENFILE | Errno::ENOBUFS | Errno::ENOMEM)) => {
                return Ok(AcceptOutcome::Exhausted(Error::nix(OPERATION)(errno)));
            }
            Err(errno) => return Err(Error::nix(OPERATION)(errno)),
        };
        // SAFETY: the kernel has just made this descriptor, and nothing else knows its number.
        let fd = unsafe { OwnedFd::from_raw_fd(raw) };
        // The address from accept4 is not used: if the connection was reset meanwhile, it has no peer any more, and another
        // user's connection may have these addresses now.
        let Some(address) = peer_address(fd.as_fd()) else {
            continue;
        };
        let peer = owners.peer_of(fd.as_fd());
        send_small_pieces_at_once(fd.as_fd());
        return Ok(AcceptOutcome::Connection(Accepted { fd, address, peer }));
    }
}

/// Begins to connect to a port of this node. The socket is non-blocking and closes on exec. When it is writable,
/// [`connect_outcome`] returns the result.
///
/// # Errors
/// `EINVAL` for an address that is no loopback address; `ECONNREFUSED` if nothing listens there, now or later from
/// [`connect_outcome`]; `EMFILE`, `ENFILE`.
pub fn connect_loopback(address: SocketAddr) -> Result<OwnedFd, Error> {
    const OPERATION: &str = "connect to a loopback port";
    if !is_loopback(address) {
        return Err(Error::nix(OPERATION)(Errno::EINVAL));
    }
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::Inet,
        SocketAddr::V6(_) => AddressFamily::Inet6,
    };
    let fd =
        socket(family, SockType::Stream, FLAGS, None).map_err(Error::nix("create a socket"))?;
    send_small_pieces_at_once(fd.as_fd());
    match connect(fd.as_raw_fd(), &SockaddrStorage::from(address)) {
        Ok(()) | Err(Errno::EINPROGRESS) => Ok(fd),
        Err(errno) => Err(Error::nix(OPERATION)(errno)),
    }
}

/// Returns the result of [`connect_loopback`]. A failure is returned only once.
///
/// # Errors
/// `ECONNREFUSED` if nothing listens there; otherwise those of connect(2).
pub fn connect_outcome(fd: BorrowedFd<'_>) -> Result<ConnectOutcome, Error> {
    const OPERATION: &str = "connect to a loopback port";
    let failed = |errno| Err(Error::nix(OPERATION)(errno));
    let errno = getsockopt(&fd, sockopt::SocketError).map_err(Error::nix(OPERATION))?;
    if errno != 0 {
        return failed(Errno::from_raw(errno));
    }
    match state(fd)? {
        SYN_SENT | SYN_RECEIVED => Ok(ConnectOutcome::Pending),
        CLOSED => failed(Errno::ENOTCONN),
        // If nothing listens there, the kernel may choose that same port for our end, and TCP lets a socket connect to
        // itself.
        _ if own_address(fd) == peer_address(fd) => failed(Errno::ECONNREFUSED),
        _ => Ok(ConnectOutcome::Connected),
    }
}

/// The two addresses of a connection, in canonical form: IPv4 is never written as IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ends {
    ours: SocketAddr,
    theirs: SocketAddr,
}

/// A socket as the kernel describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    state: u8,
    uid: u32,
    /// 0 if no process holds the socket.
    inode: u64,
}

impl Ends {
    /// Returns `None` if the descriptor is no connection, or none any more.
    fn of(fd: BorrowedFd<'_>) -> Option<Self> {
        Some(Self {
            ours: own_address(fd)?,
            theirs: peer_address(fd)?,
        })
    }
}

fn own_address(fd: BorrowedFd<'_>) -> Option<SocketAddr> {
    getsockname(fd.as_raw_fd()).ok().and_then(from_kernel)
}

/// Returns `None` if the connection was reset, or there never was one.
fn peer_address(fd: BorrowedFd<'_>) -> Option<SocketAddr> {
    getpeername(fd.as_raw_fd()).ok().and_then(from_kernel)
}

fn from_kernel(address: SockaddrStorage) -> Option<SocketAddr> {
    let address = match address.family()? {
        AddressFamily::Inet => SocketAddr::V4((*address.as_sockaddr_in()?).into()),
        AddressFamily::Inet6 => SocketAddr::V6((*address.as_sockaddr_in6()?).into()),
        _ => return None,
    };
    Some(canonical(address))
}

/// Removes what does not distinguish loopback addresses: the IPv6 form of IPv4, flow and scope.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn is_loopback(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

fn send_small_pieces_at_once(fd: BorrowedFd<'_>) {
    // A socket that was reset may refuse this; nothing can be sent on it anyway.
    let _ = setsockopt(&fd, sockopt::TcpNoDelay, &true);
    // If the system's default algorithm paces what it sends (BBR), every answer would set a timer. The loopback interface
    // loses nothing and needs no pacing. Every kernel has `reno`.
    let _ = setsockopt(&fd, sockopt::TcpCongestion, &OsString::from("reno"));
}

/// Returns the state of our end.
fn state(fd: BorrowedFd<'_>) -> Result<u8, Error> {
    // The first field of struct tcp_info; the kernel fills as much as there is room for.
    let mut state = 0_u8;
    let mut length: libc::socklen_t = 1;
    // SAFETY: the kernel writes at most the stated length into the one byte, and the length into an owned number.
    let result = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            ptr::from_mut(&mut state).cast(),
            &raw mut length,
        )
    };
    check("ask for the state of a connection", result).map(|_| state)
}
