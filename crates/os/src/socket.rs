//! TCP on the loopback interface: listening, accepting, connecting, and who is at the other end.
//!
//! Every user of the node can connect to a loopback port, and a connection does not say who made it. The kernel does
//! ([`SocketOwners`]), and it is asked when a connection is accepted, before a byte of it is read.
//!
//! Reading and writing are those of pipes: [`crate::read`], [`crate::write`]. A reset reads as closed, as the end does:
//! which of the two a dying process leaves behind depends on what it had not read, so it tells nothing.
#![expect(
    unsafe_code,
    reason = "accept4 gives a bare number, and one byte of TCP_INFO is enough"
)]

mod diag;
mod identity;
mod local;
mod port;
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

/// States of a TCP connection, in the numbers of the kernel's net/tcp_states.h.
const ESTABLISHED: u8 = 1;
const SYN_SENT: u8 = 2;
const SYN_RECEIVED: u8 = 3;
const CLOSED: u8 = 7;

/// Flags of every socket here: it never blocks, and programs do not inherit it.
const FLAGS: SockFlag = SockFlag::SOCK_NONBLOCK.union(SockFlag::SOCK_CLOEXEC);

/// What accepting gave.
#[derive(Debug)]
pub enum AcceptOutcome {
    /// A connection.
    Connection(Accepted),
    /// None now.
    WouldBlock,
    /// There is no descriptor or no memory for one more: `EMFILE`, `ENFILE`, `ENOBUFS`, `ENOMEM`. Whoever connected
    /// waits in the kernel's queue, and the listener stays readable: give it [`crate::Interest::None`] until a
    /// descriptor was closed or some time has passed, or the loop spins.
    Exhausted(Error),
}

/// A connection that was accepted. It does not block, closes on exec, and sends small pieces at once.
#[derive(Debug)]
pub struct Accepted {
    /// The connection.
    pub fd: OwnedFd,
    /// Where it comes from.
    pub address: SocketAddr,
    /// Whose it is.
    pub peer: PeerIdentity,
}

/// How a connection that [`connect_loopback`] has begun stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectOutcome {
    /// It is there, though perhaps nobody has accepted it yet.
    Connected,
    /// Not yet: wait until it is writable.
    Pending,
}

/// Listens on 127.0.0.1, on a port that the kernel chooses and that is returned. The queue of connections that wait to
/// be accepted is as long as the kernel allows (`net.core.somaxconn`).
///
/// # Errors
/// `EMFILE`, `ENFILE`; `EADDRINUSE` when no port is free.
pub fn listen_loopback() -> Result<(OwnedFd, u16), Error> {
    let listener = socket(AddressFamily::Inet, SockType::Stream, FLAGS, None)
        .map_err(Error::nix("create a socket"))?;
    let any_port = SockaddrIn::from(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0));
    bind(listener.as_raw_fd(), &any_port).map_err(Error::nix("take a loopback port"))?;
    listen(&listener, Backlog::MAXCONN).map_err(Error::nix("listen on a loopback port"))?;
    let address: SockaddrIn =
        getsockname(listener.as_raw_fd()).map_err(Error::nix("ask for a socket's port"))?;
    Ok((listener, address.port()))
}

/// The next connection of a listener that does not block, and whose it is. Connections that were reset while they
/// waited are left out.
///
/// # Errors
/// What accept(2) says, except what [`AcceptOutcome`] has and "interrupted".
pub fn accept(listener: BorrowedFd<'_>, owners: &mut SocketOwners) -> Result<AcceptOutcome, Error> {
    const OPERATION: &str = "accept a connection";
    loop {
        let raw = match accept4(listener.as_raw_fd(), FLAGS) {
            Ok(raw) => raw,
            Err(Errno::EAGAIN) => return Ok(AcceptOutcome::WouldBlock),
            // Each of them but the first has used up a connection, so this ends.
            Err(Errno::EINTR | Errno::ECONNABORTED | Errno::EPROTO) => continue,
            Err(errno @ (Errno::EMFILE | Errno::ENFILE | Errno::ENOBUFS | Errno::ENOMEM)) => {
                return Ok(AcceptOutcome::Exhausted(Error::nix(OPERATION)(errno)));
            }
            Err(errno) => return Err(Error::nix(OPERATION)(errno)),
        };
        // SAFETY: the kernel has just made this descriptor, and nobody else knows its number.
        let fd = unsafe { OwnedFd::from_raw_fd(raw) };
        // Not what accept4 could have told: a connection that was reset meanwhile has no other end any more, and the
        // one that has these addresses now may be somebody else's.
        let Some(address) = peer_address(fd.as_fd()) else {
            continue;
        };
        let peer = owners.peer_of(fd.as_fd());
        send_small_pieces_at_once(fd.as_fd());
        return Ok(AcceptOutcome::Connection(Accepted { fd, address, peer }));
    }
}

/// Begins to connect to a port of this node. The socket does not block and closes on exec; when it is writable,
/// [`connect_outcome`] says what came of it.
///
/// # Errors
/// `EINVAL` for an address that is not a loopback one; `ECONNREFUSED` where nobody listens, here or later; `EMFILE`,
/// `ENFILE`.
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

/// What came of [`connect_loopback`]. A failure is told once.
///
/// # Errors
/// `ECONNREFUSED` where nobody listens; otherwise what connect(2) says.
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
        // Where nobody listens, the kernel may give us that very port as our own, and TCP lets us meet ourselves.
        _ if own_address(fd) == peer_address(fd) => failed(Errno::ECONNREFUSED),
        _ => Ok(ConnectOutcome::Connected),
    }
}

/// The two ends of a connection, in their canonical form: IPv4 is never written as IPv6.
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
    /// 0 when no process holds it.
    inode: u64,
}

impl Ends {
    /// `None` for what is no connection, or none any more.
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

/// `None` when the connection was reset, and for what never was one.
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

/// Without the parts that do not tell one loopback address from another: the IPv6 form of IPv4, flow and scope.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn is_loopback(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

fn send_small_pieces_at_once(fd: BorrowedFd<'_>) {
    // A socket that was reset may refuse; there is nothing to send on it.
    let _ = setsockopt(&fd, sockopt::TcpNoDelay, &true);
    // Where the system's choice paces what it sends (BBR), every answer would set a timer. On the loopback nothing is
    // lost and nothing is to be paced, and this choice every kernel has.
    let _ = setsockopt(&fd, sockopt::TcpCongestion, &OsString::from("reno"));
}

/// The state of our end.
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
