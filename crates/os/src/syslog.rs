//! The syslog of this node. Hidden here: its socket.

use std::{io::ErrorKind, os::unix::net::UnixDatagram, path::Path};

/// The socket at which the syslog receives lines.
const SYSLOG: &str = "/dev/log";

/// Why a line was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotLogged {
    /// There is no socket, or no process receives at it.
    Absent,
    /// The queue of the socket is full.
    Busy,
    NotPermitted,
    TooLong,
    Other,
}

/// Sends a line to the syslog, without waiting for it.
///
/// # Errors
///
/// The kernel does not take the line.
pub fn log_to_syslog(line: &[u8]) -> Result<(), NotLogged> {
    send(Path::new(SYSLOG), line)
}

/// Uses a socket for each line: a syslog that is started again has another one, and lines are rare.
fn send(path: &Path, line: &[u8]) -> Result<(), NotLogged> {
    let sent = UnixDatagram::unbound().and_then(|socket| {
        socket.set_nonblocking(true)?;
        socket.connect(path)?;
        socket.send(line)
    });
    match sent {
        // A datagram is sent as a whole.
        Ok(_) => Ok(()),
        Err(error) => Err(match error.raw_os_error() {
            // A socket for streams would be another protocol.
            Some(libc::EPROTOTYPE | libc::ENOTSOCK) => NotLogged::Absent,
            Some(libc::EAGAIN | libc::ENOBUFS) => NotLogged::Busy,
            Some(libc::EMSGSIZE) => NotLogged::TooLong,
            _ => match error.kind() {
                ErrorKind::NotFound | ErrorKind::ConnectionRefused => NotLogged::Absent,
                ErrorKind::PermissionDenied => NotLogged::NotPermitted,
                _ => NotLogged::Other,
            },
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_line_is_sent_or_it_is_said_why_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        assert_eq!(send(&path, b"line"), Err(NotLogged::Absent));
        let receiver = UnixDatagram::bind(&path).unwrap();
        assert_eq!(send(&path, b"one\nline"), Ok(()));
        let mut bytes = [0; 16];
        assert_eq!(receiver.recv(&mut bytes).unwrap(), 8);
        assert_eq!(&bytes[..8], b"one\nline");
        assert_eq!(send(&path, &vec![0; 16 << 20]), Err(NotLogged::TooLong));
        // It does not read: the queue of the kernel is full before long.
        let mut lines = 0..100_000;
        let full = lines.find_map(|_| send(&path, b"line").err());
        assert_eq!(full, Some(NotLogged::Busy));
        drop(receiver);
        assert_eq!(send(&path, b"line"), Err(NotLogged::Absent));
        fs::remove_file(&path).unwrap();
        fs::write(&path, "no socket").unwrap();
        assert_eq!(send(&path, b"line"), Err(NotLogged::Absent));
    }
}
