//! Whose the other end of a loopback connection is (`docs/decisions/0011-peer-identity.md`).
//!
//! Both ends of such a connection are sockets of this node. Ours is known; the other one is the one with the same two
//! addresses in the other order, and the kernel tells who made it: by netlink in microseconds (`diag`), or in its
//! table of all connections in milliseconds (`table`) where netlink is refused.

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

/// The uid that stands for users who have none here, unless the system has chosen another.
const USUAL_OVERFLOW: u32 = 65_534;

/// Who is at the other end of a connection. [`Self::Unknown`] is nobody: never root, and never ourselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerIdentity {
    /// The user who made the socket, by the uid that they have in our user namespace.
    User(u32),
    /// It cannot be said for certain.
    Unknown(UnknownPeer),
}

/// Why it cannot be said who is at the other end. The text completes "the peer is unknown: ".
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownPeer {
    /// The connection is closed, or was reset: who has its addresses now may be somebody else.
    #[error("the connection has ended")]
    Ended,
    /// One of the ends has another address than a loopback one.
    #[error("the connection is not a loopback one")]
    NotLoopback,
    /// There is no such socket in our network namespace.
    #[error("no socket of this node has the other end")]
    Missing,
    /// The other end does not both send and receive any more.
    #[error("the other end is closing")]
    Closing,
    /// No process holds the socket: it was closed, or nobody has accepted it yet. Some kernels say root of these.
    #[error("no process has the other end")]
    NoProcess,
    /// The user has no uid in our user namespace; all such users look the same.
    #[error("its user has no uid in this user namespace")]
    NoUid,
    /// The kernel lets us see neither its answer nor its table.
    #[error("the kernel does not tell: {}", describe_errno(*errno))]
    NotTold {
        /// The error number, see errno(3).
        errno: i32,
    },
}

/// Asks the kernel who owns sockets. Keep one: most of a question's price would be opening it. A forked child makes
/// its own.
#[derive(Debug)]
pub struct SocketOwners {
    /// `None` where netlink is refused.
    netlink: Option<Netlink>,
    /// The uid that stands for every user who has none in our user namespace; `None` where everybody has one.
    shared_uid: Option<u32>,
}

impl SocketOwners {
    /// Opens the way to ask.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`, `ENOBUFS`, `ENOMEM`. Where asking is refused the table is read instead.
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

    /// Who is at the other end of a connection. Ask right after accepting it: whoever has closed it meanwhile stays
    /// unknown. The side that has connected is answered once the other one has accepted.
    ///
    /// It is the user who made the socket. A process that was given it, or that has changed its user since, is not
    /// told apart.
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

    /// The socket at the other end.
    fn find(&mut self, ends: &Ends) -> Result<Option<Entry>, Error> {
        match self.netlink.as_mut().map(|netlink| netlink.find(ends)) {
            Some(Answer::Found(entry)) => Ok(Some(entry)),
            Some(Answer::Missing) => Ok(None),
            Some(Answer::Refused) | None => table::find(ends),
        }
    }
}

/// Whom `found`, the socket at the other end, belongs to. `own_state` is that of our end, asked for *after* the other
/// was found: as long as ours stands nobody else can have taken the place of the other.
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

/// The uid that users without one share, by the text of the kernel's files. Where our user namespace has a uid for
/// everybody there are no such users, and that uid is somebody's: Debian's `nobody`.
fn shared_uid(map: Option<&str>, overflow: Option<&str>) -> Option<u32> {
    // A namespace can map all uids only where its parent does, so this is the first one or as good as it.
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

    /// Netlink and the table say the same of the same connections.
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
        the kernel does not tell: Permission denied
        ");
    }
}
