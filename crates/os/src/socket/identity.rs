//! The user at the other end of a loopback connection (`docs/decisions/0011-peer-identity.md`).
//!
//! Both ends of such a connection are sockets of this node. The peer's socket is the one with our two addresses in reverse
//! order. The kernel knows which user made it: it answers by netlink in microseconds (`diag`), or, if netlink is refused,
//! in its table of all connections in milliseconds (`table`).

use std::{os::fd::BorrowedFd, path::Path};

use nix::errno::Errno;

use super::{
    ESTABLISHED, Ends, Entry,
    diag::{Answer, Netlink},
    is_loopback, state, table,
};
use crate::{
    error::{Error, describe_errno},
    files::read_small,
};

/// The usual overflow uid, which stands for users without a uid in our namespace.
const USUAL_OVERFLOW: u32 = 65_534;

/// The user at the other end of a connection. [`Self::Unknown`] must never be treated as root, or as our own user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerIdentity {
    /// The user who made the socket, by their uid in our user namespace.
    User(u32),
    /// The user is not known for certain.
    Unknown(UnknownPeer),
}

/// Why the user is unknown. The text completes "the peer is unknown: ".
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownPeer {
    /// The connection is closed, or was reset: another user's connection may have its addresses now.
    #[error("the connection has ended")]
    Ended,
    /// One of the ends has an address that is no loopback address.
    #[error("the connection is not a loopback one")]
    NotLoopback,
    /// There is no such socket in our network namespace.
    #[error("no socket of this node has the other end")]
    Missing,
    /// The other end has closed at least one direction.
    #[error("the other end is closing")]
    Closing,
    /// No process holds the socket: it was closed, or is not accepted yet. Some kernels report root for these.
    #[error("no process has the other end")]
    NoProcess,
    /// The user has no uid in our user namespace; all such users look the same.
    #[error("its user has no uid in this user namespace")]
    NoUid,
    /// The kernel lets us read neither its answer nor its table.
    #[error("the kernel refuses to say: {}", describe_errno(*errno))]
    NotTold {
        /// The error number, see errno(3).
        errno: i32,
    },
}

/// Queries the kernel for the owners of sockets. Keep one: opening it would be most of a query's cost. A forked child makes
/// its own.
#[derive(Debug)]
pub struct SocketOwners {
    /// `None` if netlink is refused.
    netlink: Option<Netlink>,
    /// The uid that stands for every user without one in our user namespace; `None` if all users have one.
    shared_uid: Option<u32>,
}

impl SocketOwners {
    /// Opens the netlink socket.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`, `ENOBUFS`, `ENOMEM`. If netlink is refused, queries read the table instead.
    pub fn new() -> Result<Self, Error> {
        let netlink = match Netlink::open() {
            Ok(netlink) => Some(netlink),
            Err(errno @ (Errno::EMFILE | Errno::ENFILE | Errno::ENOBUFS | Errno::ENOMEM)) => {
                return Err(Error::nix("open a netlink socket")(errno));
            }
            Err(_) => None,
        };
        let text = |path| read_small(Path::new(path)).ok();
        Ok(Self {
            netlink,
            shared_uid: shared_uid(
                text("/proc/self/uid_map").as_deref(),
                text("/proc/sys/kernel/overflowuid").as_deref(),
            ),
        })
    }

    /// Returns the user at the other end of a connection. Call it right after accepting: if the peer has closed the
    /// connection meanwhile, the user stays unknown. The connecting side can ask once the other side has accepted.
    ///
    /// The user is the one who made the socket. The result does not show whether the process has passed the socket on
    /// or has changed its user since.
    pub fn peer_of(&mut self, connection: BorrowedFd<'_>) -> PeerIdentity {
        let Some(ends) = Ends::of(connection) else {
            return PeerIdentity::Unknown(UnknownPeer::Ended);
        };
        if !is_loopback(ends.ours) || !is_loopback(ends.theirs) {
            return PeerIdentity::Unknown(UnknownPeer::NotLoopback);
        }
        match self.find(&ends) {
            Ok(found) => identify(found, state(connection), self.shared_uid),
            Err(error) => PeerIdentity::Unknown(UnknownPeer::NotTold {
                errno: error.errno(),
            }),
        }
    }

    /// Returns the socket at the other end.
    fn find(&mut self, ends: &Ends) -> Result<Option<Entry>, Error> {
        match self.netlink.as_mut().map(|netlink| netlink.find(ends)) {
            Some(Answer::Found(entry)) => Ok(Some(entry)),
            Some(Answer::Missing) => Ok(None),
            Some(Answer::Refused) | None => table::find(ends),
        }
    }
}

/// Returns the user of `found`, the socket at the other end. `own_state` is the state of our end, read *after* the other
/// was found: while our end is established, no other socket can have the peer's addresses.
fn identify(
    found: Option<Entry>,
    own_state: Result<u8, Error>,
    shared_uid: Option<u32>,
) -> PeerIdentity {
    let unknown = |why| PeerIdentity::Unknown(why);
    match (found, own_state) {
        (None, _) => unknown(UnknownPeer::Missing),
        (Some(entry), _) if entry.inode == 0 => unknown(UnknownPeer::NoProcess),
        (Some(entry), _) if entry.state != ESTABLISHED => unknown(UnknownPeer::Closing),
        (Some(entry), _) if Some(entry.uid) == shared_uid => unknown(UnknownPeer::NoUid),
        (Some(entry), Ok(ESTABLISHED)) => PeerIdentity::User(entry.uid),
        (Some(_), _) => unknown(UnknownPeer::Ended),
    }
}

/// Returns the uid shared by users without one, from the text of the kernel's files. If all users have a uid in our
/// namespace, there are no such users, and that uid belongs to a user: Debian's `nobody`.
fn shared_uid(map: Option<&str>, overflow: Option<&str>) -> Option<u32> {
    // A namespace can map all uids only if its parent does, so this one is the initial one or equivalent.
    let everybody = ["0", "0", "4294967295"];
    if map.is_some_and(|map| map.split_ascii_whitespace().eq(everybody)) {
        return None;
    }
    let overflow = overflow.and_then(|text| text.trim().parse().ok());
    Some(overflow.unwrap_or(USUAL_OVERFLOW))
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        net::{IpAddr, Shutdown, TcpListener, TcpStream},
        os::fd::AsFd,
    };

    use super::*;
    use crate::process::effective_uid;

    const CLOSE_WAIT: u8 = 8;

    #[test]
    fn only_a_connected_socket_of_a_process_has_a_user() {
        let entry = |state, uid, inode| Some(Entry { state, uid, inode });
        let closed = Err(Error::nix("ask")(Errno::EBADF));
        let unknown = PeerIdentity::Unknown;
        for (found, own, shared, expected) in [
            (
                entry(1, 1000, 7),
                Ok(1),
                Some(65_534),
                PeerIdentity::User(1000),
            ),
            (entry(1, 0, 7), Ok(1), Some(65_534), PeerIdentity::User(0)),
            (entry(1, 65_534, 7), Ok(1), None, PeerIdentity::User(65_534)),
            (
                entry(1, 65_534, 7),
                Ok(1),
                Some(65_534),
                unknown(UnknownPeer::NoUid),
            ),
            (entry(1, 0, 0), Ok(1), None, unknown(UnknownPeer::NoProcess)),
            (
                entry(4, 0, 0),
                Ok(CLOSE_WAIT),
                None,
                unknown(UnknownPeer::NoProcess),
            ),
            (
                entry(5, 0, 7),
                Ok(CLOSE_WAIT),
                None,
                unknown(UnknownPeer::Closing),
            ),
            (entry(10, 0, 7), Ok(1), None, unknown(UnknownPeer::Closing)),
            (entry(0, 0, 7), Ok(1), None, unknown(UnknownPeer::Closing)),
            (
                entry(1, 0, 7),
                Ok(CLOSE_WAIT),
                None,
                unknown(UnknownPeer::Ended),
            ),
            (entry(1, 0, 7), Ok(7), None, unknown(UnknownPeer::Ended)),
            (entry(1, 0, 7), closed, None, unknown(UnknownPeer::Ended)),
            (None, Ok(1), None, unknown(UnknownPeer::Missing)),
        ] {
            let text = format!("{found:?} {own:?} {shared:?}");
            assert_eq!(identify(found, own, shared), expected, "{text}");
        }
    }

    #[test]
    fn users_without_a_uid_share_one_unless_everybody_has_one() {
        for (map, overflow, expected) in [
            (
                Some("         0          0 4294967295\n"),
                Some("65534\n"),
                None,
            ),
            (Some("0 1000 1\n"), Some("65534\n"), Some(65_534)),
            (Some("0 1000 1\n1 100000 65536\n"), Some("99\n"), Some(99)),
            (Some("0 0 4294967294\n"), Some("65534\n"), Some(65_534)),
            (Some("0 0 4294967295\n0 0 4294967295\n"), None, Some(65_534)),
            (Some(""), Some("65534\n"), Some(65_534)),
            (None, Some("x"), Some(65_534)),
            (None, None, Some(65_534)),
        ] {
            assert_eq!(shared_uid(map, overflow), expected, "{map:?} {overflow:?}");
        }
    }

    /// Netlink and the table give the same answers for the same connections.
    #[test]
    fn both_ways_to_ask_agree() {
        let by_netlink = SocketOwners::new().unwrap();
        if by_netlink.netlink.is_none() {
            println!("netlink is refused here: the table alone was asked");
        }
        let by_table = SocketOwners {
            netlink: None,
            shared_uid: by_netlink.shared_uid,
        };
        for mut owners in [by_netlink, by_table] {
            for (listen, connect) in [
                ("127.0.0.1:0", "127.0.0.1"),
                ("127.0.0.1:0", "::ffff:127.0.0.1"),
                ("[::1]:0", "::1"),
                ("[::]:0", "127.0.0.1"),
                ("[::]:0", "::ffff:127.0.0.1"),
                ("[::]:0", "::1"),
            ] {
                match connection(listen, connect) {
                    Ok((server, client)) => check_life(&mut owners, &server, client),
                    Err(error) => println!("without IPv6: {listen} {connect}: {error}"),
                }
            }
        }
    }

    fn connection(listen: &str, connect: &str) -> io::Result<(TcpStream, TcpStream)> {
        let needs_ipv6 = listen.contains('[') || connect.contains("::");
        let listener = TcpListener::bind(listen).inspect_err(|_| assert!(needs_ipv6))?;
        let port = listener.local_addr()?.port();
        let connect: IpAddr = connect.parse().unwrap();
        let client = TcpStream::connect((connect, port)).inspect_err(|_| assert!(needs_ipv6))?;
        let (server, _) = listener.accept()?;
        Ok((server, client))
    }

    fn check_life(owners: &mut SocketOwners, server: &TcpStream, client: TcpStream) {
        let us = PeerIdentity::User(effective_uid());
        let unknown = PeerIdentity::Unknown;
        assert_eq!(owners.peer_of(server.as_fd()), us, "{server:?}");
        assert_eq!(owners.peer_of(client.as_fd()), us, "{client:?}");
        client.shutdown(Shutdown::Write).unwrap();
        let closing = unknown(UnknownPeer::Closing);
        assert_eq!(owners.peer_of(server.as_fd()), closing, "{server:?}");
        drop(client);
        let closed = unknown(UnknownPeer::NoProcess);
        assert_eq!(owners.peer_of(server.as_fd()), closed, "{server:?}");
    }

    #[test]
    fn every_reason_has_a_text() {
        let reasons = [
            UnknownPeer::Ended,
            UnknownPeer::NotLoopback,
            UnknownPeer::Missing,
            UnknownPeer::Closing,
            UnknownPeer::NoProcess,
            UnknownPeer::NoUid,
            UnknownPeer::NotTold {
                errno: libc::EACCES,
            },
        ];
        let text: Vec<String> = reasons.iter().map(ToString::to_string).collect();
        insta::assert_snapshot!(text.join("\n"), @"
        the connection has ended
        the connection is not a loopback one
        no socket of this node has the other end
        the other end is closing
        no process has the other end
        its user has no uid in this user namespace
        the kernel refuses to say: Permission denied
        ");
    }
}
