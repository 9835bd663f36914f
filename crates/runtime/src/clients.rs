//! The connections of PMIx: the port, who has connected to it, and what is on its way to them.

use std::{
    collections::{BTreeMap, VecDeque},
    os::fd::AsFd,
};

use base::{NodeId, Time};
use bytes::{Buf, Bytes};
use dvm::{
    Daemon, Input,
    backlog::{Backlog, Bounds, Wanted},
    proto::Missing,
};
use os::{AcceptOutcome, Interest, PeerIdentity, SocketOwners, Token, WriteOutcome};
use pmix::server::{Conn, PeerOwner};

use super::{
    complaints::Complaints,
    reactor::{Channel, Reactor, Read, Source},
};

/// Bytes read from one connection before others have their turn.
const READ_MAX: usize = 64 * 1024;
/// What may be on its way to a connection. Whoever lets more events pile up is cut off.
const QUEUE: Bounds = Bounds {
    pause: 1024 * 1024,
    most: 64 * 1024 * 1024,
};
/// Connections accepted in one go.
const ACCEPTS_PER_TURN: usize = 64;

/// One connection.
#[derive(Debug)]
struct Client {
    token: Token,
    queue: VecDeque<Bytes>,
    backlog: Backlog,
    interest: Interest,
}

/// The port and its connections.
#[derive(Debug)]
pub(super) struct Clients {
    node: NodeId,
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
    pub(super) fn open(node: NodeId, reactor: &mut Reactor) -> Result<Self, os::Error> {
        let (listener, port) = os::listen_loopback()?;
        let owners = SocketOwners::new()?;
        let port_of = Source::Node(node, Channel::Port);
        let listener = reactor.add(listener, Interest::Read, port_of)?;
        Ok(Self {
            node,
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
        reactor: &mut Reactor,
        complaints: &mut Complaints,
        daemon: &mut Daemon,
    ) {
        for _ in 0..ACCEPTS_PER_TURN {
            let Some(listener) = reactor.fd(self.listener) else {
                return;
            };
            let accepted = match os::accept(listener.as_fd(), &mut self.owners) {
                Ok(AcceptOutcome::Connection(accepted)) => accepted,
                Ok(AcceptOutcome::WouldBlock) => return,
                Ok(AcceptOutcome::Exhausted(error)) => {
                    complaints.add(Missing::Room, &error);
                    self.paused = true;
                    let _ = reactor.set_interest(self.listener, Interest::None);
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
            let source = Source::Node(self.node, Channel::Client(conn));
            match reactor.add(accepted.fd, Interest::Read, source) {
                Ok(token) => {
                    self.by_number.insert(
                        conn,
                        Client {
                            token,
                            queue: VecDeque::new(),
                            backlog: Backlog::new(&QUEUE),
                            interest: Interest::Read,
                        },
                    );
                    daemon.handle(now, Input::ClientAccepted { conn, owner });
                }
                Err(error) => complaints.add(Missing::Client, &error),
            }
        }
    }

    /// A descriptor may be free again: whoever had to wait for one is let in.
    pub(super) fn resume(&mut self, reactor: &mut Reactor) {
        if std::mem::take(&mut self.paused) {
            let _ = reactor.set_interest(self.listener, Interest::Read);
        }
    }

    /// Reads from a connection.
    pub(super) fn read(
        &mut self,
        now: Time,
        conn: Conn,
        reactor: &mut Reactor,
        daemon: &mut Daemon,
    ) {
        let Some(client) = self.by_number.get(&conn) else {
            return;
        };
        if client.backlog.is_closing() {
            // It is only waited for until it has taken what was sent.
            return;
        }
        match reactor.read(client.token, READ_MAX) {
            Some(Ok(Read::Bytes(bytes))) => {
                daemon.handle(now, Input::ClientBytes { conn, bytes });
            }
            Some(Ok(Read::WouldBlock)) | None => {}
            Some(Ok(Read::Closed) | Err(_)) => {
                self.remove(conn, reactor);
                daemon.handle(now, Input::ClientClosed { conn });
            }
        }
    }

    /// Sends what it can and keeps the rest. False: the connection is to be closed, nobody reads there.
    #[must_use]
    pub(super) fn send(&mut self, conn: Conn, bytes: Bytes, reactor: &mut Reactor) -> Sent {
        let Some(client) = self.by_number.get_mut(&conn) else {
            return Sent::Ok;
        };
        if client.backlog.push(bytes.len()).is_err() {
            return Sent::TooMuch;
        }
        client.queue.push_back(bytes);
        client.flush(reactor);
        Sent::Ok
    }

    /// There is room again.
    pub(super) fn flush(&mut self, conn: Conn, reactor: &mut Reactor) {
        let Some(client) = self.by_number.get_mut(&conn) else {
            return;
        };
        client.flush(reactor);
        if client.backlog.wanted() == Wanted::Close {
            self.remove(conn, reactor);
        }
    }

    /// Closes a connection when what was sent is out.
    pub(super) fn close(&mut self, conn: Conn, reactor: &mut Reactor) {
        let Some(client) = self.by_number.get_mut(&conn) else {
            return;
        };
        client.backlog.close();
        if client.backlog.wanted() == Wanted::Close {
            self.remove(conn, reactor);
        }
    }

    /// Forgets a connection at once.
    pub(super) fn remove(&mut self, conn: Conn, reactor: &mut Reactor) {
        if let Some(client) = self.by_number.remove(&conn) {
            reactor.close(client.token);
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
    fn flush(&mut self, reactor: &mut Reactor) {
        while let Some(bytes) = self.queue.front_mut() {
            let Some(written) = reactor.write(self.token, bytes) else {
                return;
            };
            match written {
                Ok(WriteOutcome::Bytes(written)) => {
                    self.backlog.written(written);
                    bytes.advance(written);
                    if bytes.is_empty() {
                        self.queue.pop_front();
                    }
                }
                Ok(WriteOutcome::WouldBlock) => break,
                // The read that follows finds the end of file.
                Ok(WriteOutcome::Closed) | Err(_) => {
                    self.queue.clear();
                    self.backlog.clear();
                }
            }
        }
        let interest = interest(self.backlog.wanted());
        if interest != self.interest && reactor.set_interest(self.token, interest).is_ok() {
            self.interest = interest;
        }
    }
}

/// What to wait for on a connection.
pub(super) const fn interest(wanted: Wanted) -> Interest {
    match wanted {
        // It is closed in a moment.
        Wanted::Read | Wanted::Close => Interest::Read,
        Wanted::ReadAndWrite => Interest::ReadWrite,
        Wanted::Write => Interest::Write,
    }
}
