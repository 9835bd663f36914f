//! The connections of PMIx: the port, who has connected to it, and what is on its way to them.

use std::{
    collections::{BTreeMap, VecDeque},
    os::fd::AsFd,
};

use base::Time;
use bytes::{Buf, Bytes};
use dvm::{Daemon, Input, proto::Missing};
use os::{
    AcceptOutcome, Interest, Loop, PeerIdentity, ReadOutcome, SocketOwners, Token, WriteOutcome,
};
use pmix::server::{Conn, PeerOwner};

use super::{Source, complaints::Complaints};

/// Bytes read from one connection before others have their turn.
const READ_MAX: usize = 64 * 1024;
/// What is on its way to a connection that is asked for no more until it has read that.
const QUEUE_PAUSE: usize = 1024 * 1024;
/// What may be on its way to a connection at all. Whoever lets more events pile up is cut off.
const QUEUE_MAX: usize = 64 * 1024 * 1024;
/// Connections accepted in one go.
const ACCEPTS_PER_TURN: usize = 64;

/// One connection.
#[derive(Debug)]
struct Client {
    token: Token,
    queue: VecDeque<Bytes>,
    queued: usize,
    interest: Interest,
    /// It is closed when all of it was sent.
    closing: bool,
}

/// The port and its connections.
#[derive(Debug)]
pub(super) struct Clients {
    listener: Token,
    port: u16,
    owners: SocketOwners,
    by_number: BTreeMap<Conn, Client>,
    next: u64,
    /// No descriptor was left for one more: the port is not watched until a connection ends.
    paused: bool,
}

impl Clients {
    /// Opens the port.
    pub(super) fn open(
        events: &mut Loop,
        sources: &mut BTreeMap<Token, Source>,
    ) -> Result<Self, os::Error> {
        let (listener, port) = os::listen_loopback()?;
        let owners = SocketOwners::new()?;
        let listener = events.add(listener, Interest::Read)?;
        sources.insert(listener, Source::Port);
        Ok(Self {
            listener,
            port,
            owners,
            by_number: BTreeMap::new(),
            next: 0,
            paused: false,
        })
    }

    pub(super) const fn port(&self) -> u16 {
        self.port
    }

    /// Takes who waits at the port.
    pub(super) fn accept(
        &mut self,
        now: Time,
        events: &mut Loop,
        sources: &mut BTreeMap<Token, Source>,
        complaints: &mut Complaints,
        daemon: &mut Daemon,
    ) {
        for _ in 0..ACCEPTS_PER_TURN {
            let Some(listener) = events.fd(self.listener) else {
                return;
            };
            let accepted = match os::accept(listener.as_fd(), &mut self.owners) {
                Ok(AcceptOutcome::Connection(accepted)) => accepted,
                Ok(AcceptOutcome::WouldBlock) => return,
                Ok(AcceptOutcome::Exhausted(error)) => {
                    complaints.add(Missing::Room, &error);
                    self.paused = true;
                    let _ = events.set_interest(self.listener, Interest::None);
                    return;
                }
                Err(error) => return complaints.add(Missing::Client, &error),
            };
            let owner = match accepted.peer {
                PeerIdentity::User(uid) => PeerOwner::Uid(uid),
                PeerIdentity::Unknown(_) => PeerOwner::Unknown,
            };
            let conn = Conn(self.next);
            self.next += 1;
            match events.add(accepted.fd, Interest::Read) {
                Ok(token) => {
                    sources.insert(token, Source::Client(conn));
                    self.by_number.insert(
                        conn,
                        Client {
                            token,
                            queue: VecDeque::new(),
                            queued: 0,
                            interest: Interest::Read,
                            closing: false,
                        },
                    );
                    daemon.handle(now, Input::ClientAccepted { conn, owner });
                }
                Err(error) => complaints.add(Missing::Client, &error),
            }
        }
    }

    /// A descriptor may be free again: whoever had to wait for one is let in.
    pub(super) fn resume(&mut self, events: &mut Loop) {
        if std::mem::take(&mut self.paused) {
            let _ = events.set_interest(self.listener, Interest::Read);
        }
    }

    /// Reads from a connection.
    pub(super) fn read(
        &mut self,
        now: Time,
        conn: Conn,
        events: &mut Loop,
        sources: &mut BTreeMap<Token, Source>,
        buffer: &mut [u8],
        daemon: &mut Daemon,
    ) {
        let Some(client) = self.by_number.get(&conn) else {
            return;
        };
        let Some(fd) = events.fd(client.token) else {
            return;
        };
        if client.closing {
            // It is only waited for until it has taken what was sent.
            return;
        }
        let room = buffer.len().min(READ_MAX);
        match os::read(fd, &mut buffer[..room]) {
            Ok(ReadOutcome::Bytes(read)) => {
                let bytes = &buffer[..read];
                daemon.handle(now, Input::ClientBytes { conn, bytes });
            }
            Ok(ReadOutcome::WouldBlock) => {}
            Ok(ReadOutcome::Closed) | Err(_) => {
                self.remove(conn, events, sources);
                daemon.handle(now, Input::ClientClosed { conn });
            }
        }
    }

    /// Sends what it can and keeps the rest. False: the connection is to be closed, nobody reads there.
    #[must_use]
    pub(super) fn send(&mut self, conn: Conn, bytes: Bytes, events: &mut Loop) -> Sent {
        let Some(client) = self.by_number.get_mut(&conn) else {
            return Sent::Ok;
        };
        if client.queued + bytes.len() > QUEUE_MAX {
            return Sent::TooMuch;
        }
        client.queued += bytes.len();
        client.queue.push_back(bytes);
        client.flush(events);
        Sent::Ok
    }

    /// There is room again.
    pub(super) fn flush(
        &mut self,
        conn: Conn,
        events: &mut Loop,
        sources: &mut BTreeMap<Token, Source>,
    ) {
        let Some(client) = self.by_number.get_mut(&conn) else {
            return;
        };
        client.flush(events);
        if client.closing && client.queue.is_empty() {
            self.remove(conn, events, sources);
        }
    }

    /// Closes a connection when what was sent is out.
    pub(super) fn close(
        &mut self,
        conn: Conn,
        events: &mut Loop,
        sources: &mut BTreeMap<Token, Source>,
    ) {
        let Some(client) = self.by_number.get_mut(&conn) else {
            return;
        };
        client.closing = true;
        if client.queue.is_empty() {
            self.remove(conn, events, sources);
        }
    }

    /// Forgets a connection at once.
    pub(super) fn remove(
        &mut self,
        conn: Conn,
        events: &mut Loop,
        sources: &mut BTreeMap<Token, Source>,
    ) {
        if let Some(client) = self.by_number.remove(&conn) {
            sources.remove(&client.token);
            drop(events.remove(client.token));
            self.resume(events);
        }
    }
}

/// Whether a message is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    Ok,
    /// The client reads nothing: its connection is to be closed.
    TooMuch,
}

impl Client {
    fn flush(&mut self, events: &mut Loop) {
        while let Some(bytes) = self.queue.front_mut() {
            let Some(fd) = events.fd(self.token) else {
                return;
            };
            match os::write(fd, bytes) {
                Ok(WriteOutcome::Bytes(written)) => {
                    self.queued -= written;
                    bytes.advance(written);
                    if bytes.is_empty() {
                        self.queue.pop_front();
                    }
                }
                Ok(WriteOutcome::WouldBlock) => break,
                // The read that follows finds the end of file.
                Ok(WriteOutcome::Closed) | Err(_) => {
                    self.queue.clear();
                    self.queued = 0;
                }
            }
        }
        // Whoever does not read its answers is not asked for more.
        let interest = match self.queued {
            0 => Interest::Read,
            queued if queued < QUEUE_PAUSE && !self.closing => Interest::ReadWrite,
            _ => Interest::Write,
        };
        if interest != self.interest && events.set_interest(self.token, interest).is_ok() {
            self.interest = interest;
        }
    }
}
