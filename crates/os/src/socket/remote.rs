//! TCP between nodes: one listening port, connections to any address, and the addresses of this node.
//!
//! Who is at the other end is not the kernel's knowledge here: the caller authenticates the peer.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6},
    ops::RangeInclusive,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
};

use nix::{
    errno::Errno,
    ifaddrs::getifaddrs,
    net::if_::InterfaceFlags,
    sys::socket::{
        AddressFamily, Backlog, SockType, SockaddrIn, SockaddrIn6, SockaddrStorage, accept4, bind,
        connect, getsockname, listen, setsockopt, socket, sockopt,
    },
};

use super::{FLAGS, from_kernel, peer_address};
use crate::error::Error;

/// Result of accepting a connection of another node.
#[derive(Debug)]
pub enum RemoteOutcome {
    /// A connection was accepted, from this address. It is non-blocking, closes on exec, and sends small writes immediately.
    Connection(OwnedFd, SocketAddr),
    /// No connection is pending.
    WouldBlock,
    /// There is no descriptor or no memory for one more connection; see [`super::AcceptOutcome::Exhausted`].
    Exhausted(Error),
}

/// An address of a network interface of this node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InterfaceAddress {
    /// Name of the interface, such as `eth0`.
    pub interface: String,
    pub address: IpAddr,
}

/// Listens for connections of other nodes, on every address of this one: on the first free port of the range, or on one
/// that the kernel chooses. Returns the port. One socket takes IPv4 and IPv6, unless the kernel has no IPv6.
///
/// # Errors
/// `EADDRINUSE` if no port of the range is free; `EACCES` for ports that only root may use; `EMFILE`, `ENFILE`.
pub fn listen_anywhere(ports: Option<RangeInclusive<u16>>) -> Result<(OwnedFd, u16), Error> {
    let failed = Error::nix("listen for other nodes");
    let ports = ports.unwrap_or(0..=0);
    match listen_on(AddressFamily::Inet6, ports.clone()) {
        // The kernel has no IPv6, or the administrator has switched it off.
        Err(Errno::EAFNOSUPPORT | Errno::EADDRNOTAVAIL) => {
            listen_on(AddressFamily::Inet, ports).map_err(failed)
        }
        listening => listening.map_err(failed),
    }
}

fn listen_on(family: AddressFamily, ports: RangeInclusive<u16>) -> Result<(OwnedFd, u16), Errno> {
    let mut taken = Err(Errno::EADDRINUSE);
    for port in ports {
        taken = listen_at(family, port);
        if !matches!(taken, Err(Errno::EADDRINUSE)) {
            break;
        }
    }
    let listener = taken?;
    let address: SockaddrStorage = getsockname(listener.as_raw_fd())?;
    let port = from_kernel(address).map_or(0, |address| address.port());
    Ok((listener, port))
}

fn listen_at(family: AddressFamily, port: u16) -> Result<OwnedFd, Errno> {
    let listener = socket(family, SockType::Stream, FLAGS, None)?;
    // Connections of an earlier session keep its port in the state TIME_WAIT for a minute. Without this option, a narrow range of
    // ports would have no free port for so long.
    setsockopt(&listener, sockopt::ReuseAddr, &true)?;
    if family == AddressFamily::Inet6 {
        setsockopt(&listener, sockopt::Ipv6V6Only, &false)?;
        let address = SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0);
        bind(listener.as_raw_fd(), &SockaddrIn6::from(address))?;
    } else {
        let address = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port);
        bind(listener.as_raw_fd(), &SockaddrIn::from(address))?;
    }
    // Two sockets with this option can be bound to a port, but only one can listen: the error comes here.
    listen(&listener, Backlog::MAXCONN)?;
    Ok(listener)
}

/// Accepts the next connection of a non-blocking listener. Connections that were reset while they were pending are skipped.
///
/// # Errors
/// Those of accept(2), except those in [`RemoteOutcome`] and "interrupted".
pub fn accept_remote(listener: BorrowedFd<'_>) -> Result<RemoteOutcome, Error> {
    const OPERATION: &str = "accept a connection of another node";
    loop {
        let raw = match accept4(listener.as_raw_fd(), FLAGS) {
            Ok(raw) => raw,
            Err(Errno::EAGAIN) => return Ok(RemoteOutcome::WouldBlock),
            // Each of these but the first has used up a connection, so the loop ends.
            Err(Errno::EINTR | Errno::ECONNABORTED | Errno::EPROTO) => continue,
            Err(errno @ (Errno::EMFILE | Errno::ENFILE | Errno::ENOBUFS | Errno::ENOMEM)) => {
                return Ok(RemoteOutcome::Exhausted(Error::nix(OPERATION)(errno)));
            }
            Err(errno) => return Err(Error::nix(OPERATION)(errno)),
        };
        // SAFETY: the kernel has just made this descriptor, and nothing else knows its number.
        let fd = unsafe { OwnedFd::from_raw_fd(raw) };
        let Some(address) = peer_address(fd.as_fd()) else {
            continue;
        };
        prepare(fd.as_fd());
        return Ok(RemoteOutcome::Connection(fd, address));
    }
}

/// Begins to connect to another node. The socket is non-blocking and closes on exec. When it is writable,
/// [`super::connect_outcome`] returns the result.
///
/// # Errors
/// Those of connect(2) that are known immediately, such as `ENETUNREACH`.
pub fn connect_remote(address: SocketAddr) -> Result<OwnedFd, Error> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::Inet,
        SocketAddr::V6(_) => AddressFamily::Inet6,
    };
    let fd =
        socket(family, SockType::Stream, FLAGS, None).map_err(Error::nix("create a socket"))?;
    prepare(fd.as_fd());
    match connect(fd.as_raw_fd(), &SockaddrStorage::from(address)) {
        Ok(()) | Err(Errno::EINPROGRESS) => Ok(fd),
        Err(errno) => Err(Error::nix("connect to another node")(errno)),
    }
}

/// Returns the addresses of the interfaces that are up, in the kernel's order. Link-local IPv6 addresses, which another
/// node cannot use without the name of its own interface, are left out.
///
/// # Errors
/// `ENOMEM`, `EMFILE`.
pub fn interface_addresses() -> Result<Vec<InterfaceAddress>, Error> {
    let found = getifaddrs().map_err(Error::nix("list network interfaces"))?;
    let mut addresses = Vec::new();
    for one in found.filter(|one| one.flags.contains(InterfaceFlags::IFF_UP)) {
        let Some(address) = one.address.and_then(from_kernel) else {
            continue;
        };
        let is_link_local = match address.ip() {
            IpAddr::V4(_) => false,
            IpAddr::V6(six) => six.is_unicast_link_local(),
        };
        if !is_link_local {
            addresses.push(InterfaceAddress {
                interface: one.interface_name,
                address: address.ip(),
            });
        }
    }
    Ok(addresses)
}

/// Small records are sent immediately.
fn prepare(fd: BorrowedFd<'_>) {
    // A socket that was reset may refuse this; nothing can be sent on it anyway.
    let _ = setsockopt(&fd, sockopt::TcpNoDelay, &true);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ConnectOutcome, ReadOutcome, connect_outcome, read, write};

    #[test]
    fn both_families_reach_the_one_port() {
        let (listener, port) = listen_anywhere(None).unwrap();
        for address in ["127.0.0.1", "::1"] {
            let to = SocketAddr::new(address.parse().unwrap(), port);
            let ours = connect_remote(to).unwrap();
            let (theirs, from) = loop {
                match accept_remote(listener.as_fd()).unwrap() {
                    RemoteOutcome::Connection(theirs, from) => break (theirs, from),
                    RemoteOutcome::WouldBlock => {}
                    RemoteOutcome::Exhausted(error) => panic!("{error}"),
                }
            };
            assert_eq!(from.ip(), to.ip());
            assert_eq!(
                connect_outcome(ours.as_fd()).unwrap(),
                ConnectOutcome::Connected
            );
            write(ours.as_fd(), b"x").unwrap();
            let mut byte = [0; 1];
            while !matches!(read(theirs.as_fd(), &mut byte), Ok(ReadOutcome::Bytes(1))) {}
        }
        assert!(matches!(
            accept_remote(listener.as_fd()),
            Ok(RemoteOutcome::WouldBlock)
        ));
    }

    #[test]
    fn a_range_of_ports_is_used_from_its_start() {
        let (first, port) = listen_anywhere(None).unwrap();
        let taken = listen_anywhere(Some(port..=port)).unwrap_err();
        assert!(taken.to_string().contains("in use"), "{taken}");
        // The end that closes first keeps the port for a minute.
        let to = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let ours = connect_remote(to).unwrap();
        let theirs = loop {
            match accept_remote(first.as_fd()).unwrap() {
                RemoteOutcome::Connection(theirs, _) => break theirs,
                RemoteOutcome::WouldBlock => {}
                RemoteOutcome::Exhausted(error) => panic!("{error}"),
            }
        };
        drop((theirs, first, ours));
        let (_again, again) = listen_anywhere(Some(port..=port)).unwrap();
        assert_eq!(again, port);
    }

    #[test]
    fn this_node_has_a_loopback_address() {
        let addresses = interface_addresses().unwrap();
        assert!(
            addresses.iter().any(|one| one.address.is_loopback()),
            "{addresses:?}"
        );
    }
}
