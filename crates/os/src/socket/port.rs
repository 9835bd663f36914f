//! A port for a server that another process will open.

use std::{
    net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6},
    ops::Range,
    os::fd::AsRawFd,
    path::Path,
};

use nix::{
    errno::Errno,
    sys::socket::{AddressFamily, SockType, SockaddrIn, SockaddrIn6, bind, socket},
};

use super::FLAGS;
use crate::{error::Error, files::read_small};

/// The file with the range from which the kernel chooses ports itself.
const AUTOMATIC: &str = "/proc/sys/net/ipv4/ip_local_port_range";

/// Lowest port that is considered. Lower ports often belong to a service that is not running at the moment.
const FIRST: u16 = 20_000;

/// Finds a TCP port of this node that no address has bound, for a server that another process opens later.
///
/// The port is outside the kernel's automatic range, so that another process can take it meanwhile only by asking for this
/// number. `seed` decides where the search begins: two simultaneous callers with different seeds find different ports.
///
/// # Errors
/// No port is free, or no socket can be made.
pub fn unused_port(seed: u32) -> Result<u16, Error> {
    let range = quiet(&read_small(Path::new(AUTOMATIC)).unwrap_or_default());
    let count = u32::from(range.end - range.start);
    let mut last = Errno::EADDRINUSE;
    for step in 0..count {
        let offset = u16::try_from(seed.wrapping_add(step) % count).unwrap_or(0);
        let port = range.start + offset;
        match take(port) {
            Ok(()) => return Ok(port),
            Err(errno @ (Errno::EADDRINUSE | Errno::EACCES)) => last = errno,
            Err(errno) => return Err(Error::nix("find an unused port")(errno)),
        }
    }
    Err(Error::nix("find an unused port")(last))
}

/// Returns ports outside of the kernel's automatic range: those below it, without the services' ports, else those above it.
fn quiet(automatic: &str) -> Range<u16> {
    let mut numbers = automatic.split_whitespace().map(str::parse::<u16>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(low)), Some(Ok(_))) if low > FIRST => FIRST..low,
        (Some(Ok(_)), Some(Ok(high))) if high < u16::MAX => high + 1..u16::MAX,
        // The ranges overlap: a port that is free now may be taken sooner.
        _ => FIRST..u16::MAX,
    }
}

/// Returns an error unless a port is free on every address now.
fn take(port: u16) -> Result<(), Errno> {
    let six = SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0);
    match socket(AddressFamily::Inet6, SockType::Stream, FLAGS, None) {
        // This binds the port of both families.
        Ok(socket) => match bind(socket.as_raw_fd(), &SockaddrIn6::from(six)) {
            Err(Errno::EADDRNOTAVAIL) => {}
            taken => return taken,
        },
        Err(Errno::EAFNOSUPPORT) => {}
        Err(errno) => return Err(errno),
    }
    let four = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port);
    let socket = socket(AddressFamily::Inet, SockType::Stream, FLAGS, None)?;
    bind(socket.as_raw_fd(), &SockaddrIn::from(four))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn the_kernels_own_ports_are_left_out() {
        let cases = [
            ("32768\t60999\n", FIRST..32_768),
            ("1024 40000", 40_001..u16::MAX),
            ("1024 65535", FIRST..u16::MAX),
            ("", FIRST..u16::MAX),
        ];
        for (text, range) in cases {
            assert_eq!(quiet(text), range, "{text}");
        }
    }

    #[test]
    fn a_port_that_somebody_has_is_passed_over() {
        let seed = std::process::id();
        let port = unused_port(seed).unwrap();
        let _taken = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
        let next = unused_port(seed).unwrap();
        assert_ne!(next, port);
        let range = quiet(&read_small(Path::new(AUTOMATIC)).unwrap());
        assert!(range.contains(&port) && range.contains(&next));
    }
}
