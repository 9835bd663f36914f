//! A blocking exchange with a server on this node, with one deadline for all of it.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    os::fd::{AsFd as _, OwnedFd},
    time::Duration,
};

use base::Time;

use crate::{PeerIdentity, SocketOwners, clock::Clock};

/// A TCP connection used by one thread, which blocks.
#[derive(Debug)]
pub struct Conversation {
    stream: TcpStream,
    deadline: Time,
}

/// Minimum timeout of a socket operation: zero would mean no timeout.
const SHORTEST_WAIT: Duration = Duration::from_millis(1);

impl Conversation {
    /// Connects. The deadline of this call and all later ones is `patience` from now.
    ///
    /// # Errors
    /// Those of connect(2); `TimedOut` after the deadline.
    pub fn open(address: SocketAddr, patience: Duration) -> io::Result<Self> {
        let deadline = Clock::now() + patience;
        let stream = TcpStream::connect_timeout(&address, patience)?;
        Ok(Self { stream, deadline })
    }

    /// Sends all of `bytes`.
    ///
    /// # Errors
    /// Those of send(2); `TimedOut` after the deadline.
    pub fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            self.stream.set_write_timeout(Some(self.left()?))?;
            match self.stream.write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(sent) => bytes = bytes.get(sent..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(in_time(error)),
            }
        }
        Ok(())
    }

    /// Receives the next bytes; an empty slice means end of file.
    ///
    /// # Errors
    /// Those of recv(2); `TimedOut` after the deadline.
    pub fn receive<'a>(&mut self, buffer: &'a mut [u8]) -> io::Result<&'a [u8]> {
        loop {
            self.stream.set_read_timeout(Some(self.left()?))?;
            match self.stream.read(buffer) {
                Ok(length) => return Ok(buffer.get(..length).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(in_time(error)),
            }
        }
    }

    /// Returns the connection for an event loop: non-blocking, and small writes are sent immediately.
    ///
    /// # Errors
    /// Those of fcntl(2).
    pub fn into_connection(self) -> io::Result<OwnedFd> {
        self.stream.set_nonblocking(true)?;
        // A socket that was reset may refuse this; nothing can be sent on it anyway.
        let _ = self.stream.set_nodelay(true);
        Ok(self.stream.into())
    }

    /// Returns the user at the other end, once it has accepted the connection.
    pub fn peer(&self, owners: &mut SocketOwners) -> PeerIdentity {
        owners.peer_of(self.stream.as_fd())
    }

    /// Shuts down both directions.
    pub fn close(&self) {
        // An error means that the peer has closed the connection already.
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    fn left(&self) -> io::Result<Duration> {
        let left = Clock::until(self.deadline);
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(left.max(SHORTEST_WAIT))
    }
}

/// Converts the error of a socket timeout to `TimedOut`.
fn in_time(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn words_come_and_silence_ends() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut ours = Conversation::open(address, Duration::from_millis(100)).unwrap();
        let (mut theirs, _) = listener.accept().unwrap();
        theirs.write_all(b"hello").unwrap();
        let mut buffer = [0; 16];
        assert_eq!(ours.receive(&mut buffer).unwrap(), b"hello");
        ours.send(b"good day").unwrap();
        let mut heard = [0; 8];
        theirs.read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"good day");
        let silence = ours.receive(&mut buffer).unwrap_err();
        assert_eq!(silence.kind(), io::ErrorKind::TimedOut);
        let over = ours.send(b"x").unwrap_err();
        assert_eq!(over.kind(), io::ErrorKind::TimedOut);
        let mut ours = Conversation::open(address, Duration::from_secs(60)).unwrap();
        drop(listener.accept().unwrap());
        assert_eq!(ours.receive(&mut buffer).unwrap(), b"");
        ours.close();
    }
}
