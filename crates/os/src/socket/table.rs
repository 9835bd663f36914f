//! The kernel's table of all TCP connections, for kernels that refuse netlink.
//!
//! Reading it takes milliseconds, because the kernel walks its whole hash table. The time grows with the number of
//! connections.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use super::{Ends, Entry, canonical};
use crate::error::Error;

const IPV4: &str = "/proc/net/tcp";
const IPV6: &str = "/proc/net/tcp6";
/// Maximum number of bytes read of a table: some 400,000 connections.
const TABLE_MAX: u64 = 64 << 20;

/// Returns the socket at the other end.
///
/// # Errors
/// Those of reading the table, for example without /proc.
pub(super) fn find(ends: &Ends) -> Result<Option<Entry>, Error> {
    if ends.theirs.is_ipv6() {
        return find_at(IPV6, ends);
    }
    match find_at(IPV4, ends)? {
        Some(entry) => Ok(Some(entry)),
        // An IPv6 socket may have connected to the IPv6 form of the address. A kernel without IPv6 has neither this table
        // nor such sockets.
        None => match find_at(IPV6, ends) {
            Err(error) if error.errno() == libc::ENOENT => Ok(None),
            other => other,
        },
    }
}

fn find_at(path: &str, ends: &Ends) -> Result<Option<Entry>, Error> {
    File::open(path)
        .and_then(|file| find_in(BufReader::new(file.take(TABLE_MAX)), ends))
        .map_err(Error::file("read", path))
}

fn find_in(mut table: impl BufRead, ends: &Ends) -> io::Result<Option<Entry>> {
    let mut line = Vec::with_capacity(256);
    while table.read_until(b'\n', &mut line)? > 0 {
        if let Some(entry) = parse(&line, ends) {
            return Ok(Some(entry));
        }
        line.clear();
    }
    Ok(None)
}

/// Parses a line about the other end; `None` if the line is malformed, or about another socket.
fn parse(line: &[u8], ends: &Ends) -> Option<Entry> {
    let mut fields = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
    let (own, other) = (fields.nth(1)?, fields.next()?);
    if address(own)? != ends.theirs || address(other)? != ends.ours {
        return None;
    }
    Some(Entry {
        state: u8::from_str_radix(fields.next()?, 16).ok()?,
        // Queues, timer and retransmissions are between.
        uid: fields.nth(3)?.parse().ok()?,
        inode: fields.nth(1)?.parse().ok()?,
    })
}

/// Parses an address as the kernel prints it: 32-bit words in network byte order, printed in hexadecimal as host-order
/// numbers.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let ip = match ip.len() {
        8 => IpAddr::V4(Ipv4Addr::from_octets(word(ip)?)),
        32 => {
            let mut octets = [0; 16];
            for (index, octets) in octets.chunks_exact_mut(4).enumerate() {
                octets.copy_from_slice(&word(ip.get(index * 8..index * 8 + 8)?)?);
            }
            IpAddr::V6(Ipv6Addr::from_octets(octets))
        }
        _ => return None,
    };
    Some(canonical(SocketAddr::new(ip, port)))
}

fn word(text: &str) -> Option<[u8; 4]> {
    u32::from_str_radix(text, 16).ok().map(u32::to_ne_bytes)
}

#[cfg(test)]
#[cfg(target_endian = "little")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Recorded: a listener on port 32803, a client of user 1000, a client that has closed, and the accepted ends of three
    /// clients.
    const RECORDED_IPV4: &str = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode                                                     
   2: 0100007F:8023 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 15600520 1 000000007cd2b858 100 0 0 10 0                  
  14: 0100007F:98DC 0100007F:8023 01 00000000:00000000 00:00000000 00000000  1000        0 15601059 2 00000000f6081041 20 0 0 10 -1                 
  15: 0100007F:98F2 0100007F:8023 04 00000001:00000000 01:00000014 00000000     0        0 0 2 00000000f5c5a970 20 0 0 11 -1                         
  75: 0100007F:8023 0100007F:98DC 01 00000000:00000000 00:00000000 00000000     0        0 15600522 1 00000000a02c1369 20 0 0 10 -1                  
  76: 0100007F:8023 0100007F:98E4 01 00000000:00000000 00:00000000 00000000     0        0 15600524 1 00000000156b1243 20 0 0 10 -1                  
 138: 0100007F:8023 0100007F:98F2 08 00000000:00000002 00:00000000 00000000     0        0 15600526 2 000000009576f446 20 4 31 10 -1                 
";
    /// Recorded: the third client, an IPv6 socket; a listener on port 38993 of ::1, a client, and our end.
    const RECORDED_IPV6: &str = "\
  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   1: 0000000000000000FFFF00000100007F:98E4 0000000000000000FFFF00000100007F:8023 01 00000000:00000000 00:00000000 00000000     0        0 15600523 2 0000000093e38f81 20 0 0 10 -1
   1: 00000000000000000000000001000000:9851 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 15600529 1 00000000dc165a84 100 0 0 10 0
   3: 00000000000000000000000001000000:BB22 00000000000000000000000001000000:9851 01 00000000:00000000 00:00000000 00000000     0        0 15600530 2 000000004eab43d3 20 0 0 10 -1
   4: 00000000000000000000000001000000:9851 00000000000000000000000001000000:BB22 01 00000000:00000000 00:00000000 00000000     0        0 15600531 1 000000001aa6d3a5 20 0 0 10 -1
";

    fn ends(theirs: &str, ours: &str) -> Ends {
        Ends {
            ours: ours.parse().unwrap(),
            theirs: theirs.parse().unwrap(),
        }
    }

    #[test]
    fn recorded_tables_are_understood() {
        let entry = |state, uid, inode| Some(Entry { state, uid, inode });
        for (table, theirs, ours, expected) in [
            (
                RECORDED_IPV4,
                "127.0.0.1:39132",
                "127.0.0.1:32803",
                entry(1, 1000, 15_601_059),
            ),
            (
                RECORDED_IPV4,
                "127.0.0.1:39154",
                "127.0.0.1:32803",
                entry(4, 0, 0),
            ),
            (
                RECORDED_IPV4,
                "127.0.0.1:32803",
                "127.0.0.1:39154",
                entry(8, 0, 15_600_526),
            ),
            (
                RECORDED_IPV4,
                "127.0.0.1:32803",
                "0.0.0.0:0",
                entry(10, 0, 15_600_520),
            ),
            // The client's own end is in the other table.
            (RECORDED_IPV4, "127.0.0.1:39140", "127.0.0.1:32803", None),
            (
                RECORDED_IPV6,
                "127.0.0.1:39140",
                "127.0.0.1:32803",
                entry(1, 0, 15_600_523),
            ),
            (
                RECORDED_IPV6,
                "[::1]:47906",
                "[::1]:38993",
                entry(1, 0, 15_600_530),
            ),
            (RECORDED_IPV6, "[::1]:47907", "[::1]:38993", None),
            (RECORDED_IPV4, "127.0.0.2:39132", "127.0.0.1:32803", None),
            (RECORDED_IPV4, "127.0.0.1:39132", "127.0.0.2:32803", None),
            (RECORDED_IPV4, "127.0.0.1:39132", "127.0.0.1:32804", None),
            ("", "127.0.0.1:39132", "127.0.0.1:32803", None),
        ] {
            let found = find_in(table.as_bytes(), &ends(theirs, ours)).unwrap();
            assert_eq!(found, expected, "{theirs} {ours}");
        }
    }

    #[test]
    fn a_line_that_is_cut_short_or_wrong_names_nobody() {
        let ends = ends("127.0.0.1:39132", "127.0.0.1:32803");
        let line = RECORDED_IPV4.lines().nth(2).unwrap();
        let inode = line.find("15601059").unwrap();
        for length in 0..=inode {
            assert_eq!(parse(&line.as_bytes()[..length], &ends), None, "{length}");
        }
        assert!(parse(line.as_bytes(), &ends).is_some());
        for (right, wrong) in [
            (" 01 ", " 1001 "),
            (" 1000 ", " -1 "),
            (" 1000 ", " 4294967296 "),
            ("15601059", "x"),
            ("0100007F:98DC", "0100007F98DC"),
            ("0100007F:98DC", "0100007:98DC"),
            ("0100007F:98DC", "\u{e9}100007:98DC"),
        ] {
            let line = line.replacen(right, wrong, 1);
            assert_eq!(parse(line.as_bytes(), &ends), None, "{line}");
        }
    }

    proptest! {
        #[test]
        fn garbage_names_nobody(
            line in proptest::collection::vec(any::<u8>(), 0..200),
            words in proptest::collection::vec("[0-9A-F:]{0,40}|\\PC{0,40}", 0..12),
        ) {
            let ends = ends("127.0.0.1:39132", "127.0.0.1:32803");
            prop_assert_eq!(parse(&line, &ends), None);
            prop_assert_eq!(parse(words.join(" ").as_bytes(), &ends), None);
        }
    }
}
