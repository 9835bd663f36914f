//! One query over netlink: which socket has these two addresses?
//!
//! The kernel answers while the request is being sent, so nothing here waits. The query is for one socket by both its
//! addresses, so its cost does not depend on the number of sockets.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::{AsRawFd, OwnedFd},
};

use nix::{
    errno::Errno,
    sys::socket::{
        AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, connect, recv,
        send, socket,
    },
};

use super::{Ends, Entry, canonical};

/// Length of struct nlmsghdr, with which a request begins.
const HEADER: usize = 16;
/// Length of a request: the header and struct inet_diag_req_v2.
const REQUEST_LENGTH: u32 = 72;
const REQUEST: usize = REQUEST_LENGTH as usize;
/// Values of the first bytes behind the header, in both directions.
const IPV4: u8 = 2;
const IPV6: u8 = 10;
const TCP: u8 = 6;
/// Types of messages.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const ERROR: u16 = 2;
/// The flag of a request for one answer.
const REQUEST_FLAG: u16 = 1;
/// Size of the buffer for an answer: a header, struct inet_diag_msg, and attributes that are ignored.
const ANSWER: usize = 1024;
/// Maximum number of messages read per query. Answers to earlier queries that were given up come first.
const MESSAGES_MAX: usize = 8;

/// The kernel's answer about a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Found(Entry),
    /// No socket has these addresses.
    Missing,
    /// The kernel refuses to answer, or we do not understand the answer.
    Refused,
}

/// Whether this kernel is known to answer such queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trust {
    Untried,
    Tried,
}

#[derive(Debug)]
pub(super) struct Netlink {
    socket: OwnedFd,
    /// Sequence number of the last query.
    sequence: u32,
    trust: Trust,
}

impl Netlink {
    pub(super) fn open() -> Result<Self, Errno> {
        let socket = socket(
            AddressFamily::Netlink,
            SockType::Datagram,
            SockFlag::SOCK_CLOEXEC,
            SockProtocol::NetlinkSockDiag,
        )?;
        // Connected to the kernel, which is number 0: no other process can send to this socket.
        connect(socket.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
        Ok(Self {
            socket,
            sequence: 0,
            trust: Trust::Untried,
        })
    }

    /// Returns the socket at the other end.
    pub(super) fn find(&mut self, ends: &Ends) -> Answer {
        let answer = self.ask(ends.theirs, ends.ours);
        // A kernel without this service also answers "no such file", for every socket. Our own end certainly exists, so
        // query it.
        if answer == Answer::Missing
            && self.trust == Trust::Untried
            && !matches!(self.ask(ends.ours, ends.theirs), Answer::Found(_))
        {
            return Answer::Refused;
        }
        if answer != Answer::Refused {
            self.trust = Trust::Tried;
        }
        answer
    }

    /// Queries the socket whose own address is `source`, connected to `destination`.
    fn ask(&mut self, source: SocketAddr, destination: SocketAddr) -> Answer {
        self.sequence = self.sequence.wrapping_add(1);
        let request = request(self.sequence, source, destination);
        let socket = self.socket.as_raw_fd();
        if send(socket, &request, MsgFlags::MSG_DONTWAIT) != Ok(REQUEST) {
            return Answer::Refused;
        }
        let mut buffer = [0; ANSWER];
        for _ in 0..MESSAGES_MAX {
            let message = match recv(socket, &mut buffer, MsgFlags::MSG_DONTWAIT) {
                Ok(size) => buffer.get(..size).unwrap_or_default(),
                Err(Errno::EINTR) => continue,
                Err(_) => return Answer::Refused,
            };
            if let Some(answer) = decode(message, self.sequence, source, destination) {
                return answer;
            }
        }
        Answer::Refused
    }
}

/// Makes a request: struct nlmsghdr and struct inet_diag_req_v2. Numbers are in host byte order, addresses and ports in
/// network byte order.
fn request(sequence: u32, source: SocketAddr, destination: SocketAddr) -> [u8; REQUEST] {
    let mut bytes = [0; REQUEST];
    let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
    put(0, &REQUEST_LENGTH.to_ne_bytes());
    put(4, &SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    put(6, &REQUEST_FLAG.to_ne_bytes());
    put(8, &sequence.to_ne_bytes());
    let family = if source.is_ipv4() { IPV4 } else { IPV6 };
    put(16, &[family, TCP]);
    // Any state. The cookie (set below) is any too; only a listing of sockets would have returned it.
    put(20, &[0xff; 4]);
    put(24, &source.port().to_be_bytes());
    put(26, &destination.port().to_be_bytes());
    for (at, address) in [(28, source.ip()), (44, destination.ip())] {
        match address {
            IpAddr::V4(address) => put(at, &address.octets()),
            IpAddr::V6(address) => put(at, &address.octets()),
        }
    }
    put(64, &[0xff; 8]);
    bytes
}

/// Decodes the answer to the query with this sequence number; `None` if `message` answers another one.
fn decode(
    message: &[u8],
    sequence: u32,
    source: SocketAddr,
    destination: SocketAddr,
) -> Option<Answer> {
    let header = Fields(message);
    let length = usize::try_from(header.u32(0)?).ok()?;
    let kind = header.u16(4)?;
    if header.u32(8)? != sequence {
        return None;
    }
    // If the message was longer than our buffer, only attributes are missing.
    let body = Fields(message.get(HEADER..length.min(message.len()))?);
    let answer = match kind {
        ERROR => body.u32(0).map(|errno| {
            // Error numbers are negative here.
            match errno.cast_signed().checked_neg() {
                Some(libc::ENOENT) => Answer::Missing,
                _ => Answer::Refused,
            }
        }),
        SOCK_DIAG_BY_FAMILY => body.socket(source, destination),
        _ => None,
    };
    Some(answer.unwrap_or(Answer::Refused))
}

/// Integers at given offsets of a message; `None` beyond its end.
#[derive(Clone, Copy)]
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn bytes<const N: usize>(self, at: usize) -> Option<[u8; N]> {
        self.0.get(at..at.checked_add(N)?)?.try_into().ok()
    }

    fn u16(self, at: usize) -> Option<u16> {
        self.bytes(at).map(u16::from_ne_bytes)
    }

    fn u32(self, at: usize) -> Option<u32> {
        self.bytes(at).map(u32::from_ne_bytes)
    }

    /// Decodes struct inet_diag_msg.
    fn socket(self, source: SocketAddr, destination: SocketAddr) -> Option<Answer> {
        let [family, state] = self.bytes(0)?;
        let found = (self.address(family, 4, 8)?, self.address(family, 6, 24)?);
        let entry = Entry {
            state,
            uid: self.u32(64)?,
            inode: self.u32(68)?.into(),
        };
        // If there is no such connection, the kernel returns a listener, if there is one.
        Some(if found == (source, destination) {
            Answer::Found(entry)
        } else {
            Answer::Missing
        })
    }

    fn address(self, family: u8, port: usize, ip: usize) -> Option<SocketAddr> {
        let port = self.bytes(port).map(u16::from_be_bytes)?;
        let ip = match family {
            IPV4 => IpAddr::V4(Ipv4Addr::from_octets(self.bytes(ip)?)),
            IPV6 => IpAddr::V6(Ipv6Addr::from_octets(self.bytes(ip)?)),
            _ => return None,
        };
        Some(canonical(SocketAddr::new(ip, port)))
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::socket::socketpair;
    use proptest::prelude::*;

    use super::*;

    const SEQUENCE: u32 = 7;

    fn ends() -> (SocketAddr, SocketAddr) {
        (
            "127.0.0.1:40000".parse().unwrap(),
            "127.0.0.1:1234".parse().unwrap(),
        )
    }

    /// Makes an answer in the kernel's form, from the parts that the tests vary.
    fn answer(kind: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(u32::try_from(HEADER + body.len()).unwrap().to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(0_u16.to_ne_bytes());
        bytes.extend(sequence.to_ne_bytes());
        bytes.extend(4321_u32.to_ne_bytes());
        bytes.extend(body);
        bytes
    }

    fn socket_body(source: SocketAddr, destination: SocketAddr, entry: Entry) -> Vec<u8> {
        // The identity of a socket has the same form in request and answer.
        let request = request(0, source, destination);
        let mut body = vec![request[16], entry.state, 0, 0];
        body.extend(&request[24..72]);
        body.extend([0; 12]);
        body.extend(entry.uid.to_ne_bytes());
        body.extend(u32::try_from(entry.inode).unwrap().to_ne_bytes());
        // An attribute.
        body.extend([5, 0, 8, 0, 0, 0, 0, 0]);
        body
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn a_request_is_as_the_kernel_documents_it() {
        let text = |source: &str, destination: &str| {
            request(
                0x0102_0304_u32.to_be(),
                source.parse().unwrap(),
                destination.parse().unwrap(),
            )
            .chunks(8)
            .map(|chunk| format!("{chunk:02x?}"))
            .collect::<Vec<_>>()
            .join("\n")
        };
        insta::assert_snapshot!(text("127.0.0.2:4660", "127.0.0.1:80"), @"
        [48, 00, 00, 00, 14, 00, 01, 00]
        [01, 02, 03, 04, 00, 00, 00, 00]
        [02, 06, 00, 00, ff, ff, ff, ff]
        [12, 34, 00, 50, 7f, 00, 00, 02]
        [00, 00, 00, 00, 00, 00, 00, 00]
        [00, 00, 00, 00, 7f, 00, 00, 01]
        [00, 00, 00, 00, 00, 00, 00, 00]
        [00, 00, 00, 00, 00, 00, 00, 00]
        [ff, ff, ff, ff, ff, ff, ff, ff]
        ");
        insta::assert_snapshot!(text("[::1]:4660", "[::1]:80"), @"
        [48, 00, 00, 00, 14, 00, 01, 00]
        [01, 02, 03, 04, 00, 00, 00, 00]
        [0a, 06, 00, 00, ff, ff, ff, ff]
        [12, 34, 00, 50, 00, 00, 00, 00]
        [00, 00, 00, 00, 00, 00, 00, 00]
        [00, 00, 00, 01, 00, 00, 00, 00]
        [00, 00, 00, 00, 00, 00, 00, 00]
        [00, 00, 00, 01, 00, 00, 00, 00]
        [ff, ff, ff, ff, ff, ff, ff, ff]
        ");
    }

    #[test]
    fn answers_are_understood() {
        let (source, destination) = ends();
        let entry = Entry {
            state: 1,
            uid: 1000,
            inode: 99,
        };
        let mapped = |address: SocketAddr| match address {
            SocketAddr::V4(v4) => SocketAddr::new(v4.ip().to_ipv6_mapped().into(), v4.port()),
            SocketAddr::V6(_) => address,
        };
        let found =
            |source, destination| answer(20, SEQUENCE, &socket_body(source, destination, entry));
        let listener = "0.0.0.0:0".parse().unwrap();
        let error = |errno: i32| answer(2, SEQUENCE, &errno.to_ne_bytes());
        for (what, message, expected) in [
            (
                "found",
                found(source, destination),
                Some(Answer::Found(entry)),
            ),
            (
                "an IPv6 socket with IPv4 addresses",
                found(mapped(source), mapped(destination)),
                Some(Answer::Found(entry)),
            ),
            ("a listener", found(source, listener), Some(Answer::Missing)),
            ("our end", found(destination, source), Some(Answer::Missing)),
            ("none", error(-libc::ENOENT), Some(Answer::Missing)),
            ("not allowed", error(-libc::EPERM), Some(Answer::Refused)),
            ("an acknowledgement", error(0), Some(Answer::Refused)),
            (
                "the end of a list",
                answer(3, SEQUENCE, &[]),
                Some(Answer::Refused),
            ),
            (
                "an empty error",
                answer(2, SEQUENCE, &[]),
                Some(Answer::Refused),
            ),
            ("an older one", answer(2, SEQUENCE - 1, &[0; 4]), None),
            ("nothing", Vec::new(), None),
        ] {
            assert_eq!(
                decode(&message, SEQUENCE, source, destination),
                expected,
                "{what}"
            );
        }
    }

    #[test]
    fn an_answer_that_is_cut_short_names_nobody() {
        let (source, destination) = ends();
        let entry = Entry {
            state: 1,
            uid: 0,
            inode: 99,
        };
        let whole = answer(20, SEQUENCE, &socket_body(source, destination, entry));
        for length in 0..whole.len() {
            let cut = decode(&whole[..length], SEQUENCE, source, destination);
            // What is behind uid and inode does not matter.
            let enough = length >= HEADER + 72;
            assert_eq!(cut == Some(Answer::Found(entry)), enough, "{length}");
            // The same, with a correct length in the header.
            let mut honest = whole.clone();
            honest[..4].copy_from_slice(&u32::try_from(length).unwrap().to_ne_bytes());
            let cut = decode(&honest, SEQUENCE, source, destination);
            assert_eq!(cut == Some(Answer::Found(entry)), enough, "{length}");
        }
    }

    /// Makes a fake kernel that sends these messages whatever the queries are.
    fn netlink_with(messages: &[Vec<u8>]) -> (Netlink, OwnedFd) {
        let (socket, kernel) = socketpair(
            AddressFamily::Unix,
            SockType::Datagram,
            None,
            SockFlag::SOCK_CLOEXEC,
        )
        .unwrap();
        for message in messages {
            let sent = send(kernel.as_raw_fd(), message, MsgFlags::MSG_DONTWAIT);
            assert_eq!(sent, Ok(message.len()));
        }
        let netlink = Netlink {
            socket,
            sequence: SEQUENCE,
            trust: Trust::Untried,
        };
        (netlink, kernel)
    }

    #[test]
    fn a_kernel_that_does_not_know_the_question_is_not_believed() {
        let (theirs, ours) = ends();
        let entry = Entry {
            state: 1,
            uid: 1000,
            inode: 99,
        };
        let ends = Ends { ours, theirs };
        let none = |question| answer(2, SEQUENCE + question, &(-libc::ENOENT).to_ne_bytes());
        let their_end = |question| {
            let body = socket_body(theirs, ours, entry);
            answer(20, SEQUENCE + question, &body)
        };
        let our_end = |question| {
            let body = socket_body(ours, theirs, entry);
            answer(20, SEQUENCE + question, &body)
        };
        let (missing, refused, found) = (Answer::Missing, Answer::Refused, Answer::Found(entry));
        for (what, messages, expected) in [
            (
                "not even our end",
                vec![none(1), none(2), none(3), none(4)],
                vec![refused; 2],
            ),
            (
                "but our end",
                vec![none(1), our_end(2), none(3)],
                vec![missing; 2],
            ),
            (
                "as before",
                vec![their_end(1), none(2)],
                vec![found, missing],
            ),
            ("late", vec![none(0), none(0), their_end(1)], vec![found]),
            ("silence", vec![], vec![refused; 2]),
            (
                "only late ones",
                vec![none(0); MESSAGES_MAX + 2],
                vec![refused],
            ),
        ] {
            let (mut netlink, _kernel) = netlink_with(&messages);
            for (index, expected) in expected.into_iter().enumerate() {
                assert_eq!(netlink.find(&ends), expected, "{what}, {index}");
            }
        }
    }

    proptest! {
        #[test]
        fn garbage_names_nobody(
            mut message in proptest::collection::vec(any::<u8>(), 0..200),
            kind in prop_oneof![Just(2_u16), Just(20), any::<u16>()],
        ) {
            let (source, destination) = ends();
            if message.len() >= 12 {
                message[4..6].copy_from_slice(&kind.to_ne_bytes());
                message[8..12].copy_from_slice(&SEQUENCE.to_ne_bytes());
            }
            let answer = decode(&message, SEQUENCE, source, destination);
            prop_assert!(!matches!(answer, Some(Answer::Found(_))));
        }
    }
}
