//! PMIx connections: the listening port, its clients, and the bytes queued for them.

use std::{
    collections::{BTreeMap, VecDeque},
    os::fd::{AsFd, OwnedFd},
};

use base::{NodeId, Time};
use bytes::{Buf, Bytes};
use dvm::{
    Caller, Input,
    backlog::{Backlog, Bounds, Wanted},
    proto::Missing,
};
use os::{AcceptOutcome, Interest, PeerIdentity, SocketOwners, Token, WriteOutcome};
use pmix::{
    launcher::Called,
    server::{Conn, PeerOwner},
    value::Proc,
};

use super::{
    listener::Listener,
    machines::DaemonMachine,
    missing::MissingReports,
    reactor::{Channel, Reactor, Read, Source},
};

/// Bytes read from one connection before other events are handled.
const READ_MAX: usize = 64 * 1024;
/// Bounds of the bytes queued for one connection. A client that does not read, so that `most` is exceeded, is disconnected.
const QUEUE: Bounds = Bounds {
    pause: 1024 * 1024,
    most: 64 * 1024 * 1024,
};
/// Connections accepted before other events are handled.
const ACCEPTS_PER_TURN: usize = 64;

/// One connection.
#[derive(Debug)]
struct Client {
    token: Token,
    queue: VecDeque<Bytes>,
    backlog: Backlog,
    interest: Interest,
}

/// The listening port and its connections.
#[derive(Debug)]
pub(super) struct Clients {
    node: NodeId,
    listener: Listener,
    port: u16,
    owners: SocketOwners,
    by_number: BTreeMap<Conn, Client>,
    next: u64,
}

impl Clients {
    /// Opens the port on the loopback interface.
    pub(super) fn open(node: NodeId, reactor: &mut Reactor) -> Result<Self, os::Error> {
        let (listener, port) = os::listen_loopback()?;
        let owners = SocketOwners::new()?;
        let port_of = Source::Node(node, Channel::Port);
        let listener = reactor.add(listener, Interest::Read, port_of)?;
        Ok(Self {
            node,
            listener: Listener::new(listener),
            port,
            owners,
            by_number: BTreeMap::new(),
            next: 0,
        })
    }

    pub(super) const fn port(&self) -> u16 {
        self.port
    }

    /// Accepts the connections that are pending.
    pub(super) fn accept(
        &mut self,
        now: Time,
        reactor: &mut Reactor,
        missing_reports: &mut MissingReports,
        daemon: &mut DaemonMachine,
    ) {
        for _ in 0..ACCEPTS_PER_TURN {
            let Some(listener) = self.listener.fd(reactor) else {
                return;
            };
            let accepted = match os::accept(listener.as_fd(), &mut self.owners) {
                Ok(AcceptOutcome::Connection(accepted)) => accepted,
                Ok(AcceptOutcome::WouldBlock) => return,
                Ok(AcceptOutcome::Exhausted(error)) => {
                    missing_reports.add(Missing::Room, &error);
                    return self.listener.pause(now, reactor);
                }
                Err(error) => return missing_reports.add(Missing::Client, &error),
            };
            let owner = match accepted.peer {
                PeerIdentity::User(uid) => PeerOwner::Uid(uid),
                PeerIdentity::Unknown(_) => PeerOwner::Unknown,
            };
            match self.add(accepted.fd, reactor) {
                Ok(conn) => daemon.handle(now, Input::ClientAccepted { conn, owner }),
                Err(error) => missing_reports.add(Missing::Client, &error),
            }
        }
    }

    /// Takes over the connection to the tool that has started the launcher.
    pub(super) fn call(
        &mut self,
        now: Time,
        connection: OwnedFd,
        called: Called,
        reactor: &mut Reactor,
        daemon: &mut DaemonMachine,
    ) -> Result<(), os::Error> {
        let conn = self.add(connection, reactor)?;
        let text = |proc: &Proc| (proc.nspace.to_string(), proc.rank.0);
        let caller = Caller {
            tool: text(&called.tool),
            me: text(&called.me),
            version: called.version,
        };
        daemon.handle(now, Input::Called { conn, caller });
        let bytes = &called.rest[..];
        if !bytes.is_empty() {
            daemon.handle(now, Input::ClientBytes { conn, bytes });
        }
        Ok(())
    }

    fn add(&mut self, fd: OwnedFd, reactor: &mut Reactor) -> Result<Conn, os::Error> {
        let conn = Conn(self.next);
        self.next += 1;
        let source = Source::Node(self.node, Channel::Client(conn));
        let token = reactor.add(fd, Interest::Read, source)?;
        let client = Client {
            token,
            queue: VecDeque::new(),
            backlog: Backlog::new(&QUEUE),
            interest: Interest::Read,
        };
        self.by_number.insert(conn, client);
        Ok(conn)
    }

    /// Accepts connections again: a descriptor may be free.
    pub(super) fn resume(&mut self, reactor: &mut Reactor) {
        self.listener.resume(reactor);
    }

    pub(super) const fn deadline(&self) -> Option<Time> {
        self.listener.deadline()
    }

    pub(super) fn on_tick(&mut self, now: Time, reactor: &mut Reactor) {
        self.listener.on_tick(now, reactor);
    }

    /// Reads from a connection once and passes the bytes to the daemon.
    pub(super) fn read(
        &mut self,
        now: Time,
        conn: Conn,
        reactor: &mut Reactor,
        daemon: &mut DaemonMachine,
    ) {
        let Some(client) = self.by_number.get(&conn) else {
            return;
        };
        if client.backlog.is_closing() {
            // The connection is closing: it only has queued bytes to write.
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

    /// Queues bytes and writes what the socket takes. After [`Sent::TooMuch`] the caller must close the connection.
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

    /// Writes queued bytes, when the socket is writable again.
    pub(super) fn flush(&mut self, conn: Conn, reactor: &mut Reactor) {
        let Some(client) = self.by_number.get_mut(&conn) else {
            return;
        };
        client.flush(reactor);
        if client.backlog.wanted() == Wanted::Close {
            self.remove(conn, reactor);
        }
    }

    /// Closes a connection once its queued bytes are written.
    pub(super) fn close(&mut self, conn: Conn, reactor: &mut Reactor) {
        let Some(client) = self.by_number.get_mut(&conn) else {
            return;
        };
        client.backlog.close();
        if client.backlog.wanted() == Wanted::Close {
            self.remove(conn, reactor);
        }
    }

    /// Closes a connection immediately and drops its queued bytes.
    pub(super) fn remove(&mut self, conn: Conn, reactor: &mut Reactor) {
        if let Some(client) = self.by_number.remove(&conn) {
            reactor.close(client.token);
        }
    }
}

/// Whether a message was accepted for sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    Ok,
    /// The client does not read, and the queue is full: close its connection.
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
                // The next read sees end of file and closes the connection.
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

/// Returns the readiness to wait for on a connection.
pub(super) const fn interest(wanted: Wanted) -> Interest {
    match wanted {
        // `Close`: the caller is about to close it.
        Wanted::Read | Wanted::Close => Interest::Read,
        Wanted::ReadAndWrite => Interest::ReadWrite,
        Wanted::Write => Interest::Write,
    }
}
