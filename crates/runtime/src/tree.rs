//! The host of an overlay node: its listening port and its connections to other processes.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    os::fd::AsFd,
};

use base::Time;
use bytes::Bytes;
use os::{ConnectOutcome, Interest, RemoteOutcome, Token, WriteOutcome};
use overlay::{
    Address, Loss,
    lanes::Lane,
    node::{Class, Conn, DialError, GatherId, Input, Node, Output, Patience, TooMany},
};

use crate::{
    listener::Listener,
    reactor::{Reactor, Read, Source, TreeChannel},
};

/// Connections accepted before other events are handled.
const ACCEPTS_PER_TURN: usize = 64;
/// Bytes read from one connection before other events are handled.
const READ_MAX: usize = 128 * 1024;

/// News from the tree.
#[derive(Debug)]
pub(crate) enum News {
    /// A message: at the root from a member, at a member from the root.
    Received {
        from: Address,
        body: Bytes,
    },
    /// At the root: one message, made of those of these members.
    Merged {
        of: BTreeSet<Address>,
        body: Bytes,
    },
    /// A question of the root.
    Asked {
        id: GatherId,
        body: Bytes,
    },
    /// At the root: merged answers of these members.
    Part {
        id: GatherId,
        of: BTreeSet<Address>,
        body: Bytes,
    },
    /// At the root: a gather is over.
    Gathered(GatherId),
    Joined(Address),
    Lost {
        members: BTreeSet<Address>,
        loss: Loss,
    },
    /// This process has its place in the tree.
    Ready,
    /// This process cannot connect, for the reason given.
    Unreachable(String),
    /// This process has lost the root.
    Abandoned(Loss),
    /// The root has ended the session.
    Ended,
    /// A connection to the port was refused. This is reported once for each host.
    Refused {
        from: SocketAddr,
        why: String,
    },
    /// A violation of the protocol: for the log.
    Report(String),
}

/// A connection and its descriptor.
#[derive(Debug)]
struct Socket {
    token: Token,
    interest: Interest,
    state: SocketState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SocketState {
    Connecting,
    Open,
}

/// An overlay node and its kernel objects.
#[derive(Debug)]
pub(crate) struct TreeHost {
    node: Node,
    listener: Listener,
    sockets: BTreeMap<Conn, Socket>,
}

impl TreeHost {
    /// Takes over a listening socket.
    pub(crate) fn new(
        node: Node,
        listener: std::os::fd::OwnedFd,
        reactor: &mut Reactor,
    ) -> Result<Self, os::Error> {
        let source = Source::Tree(TreeChannel::Port);
        Ok(Self {
            node,
            listener: Listener::new(reactor.add(listener, Interest::Read, source)?),
            sockets: BTreeMap::new(),
        })
    }

    pub(crate) fn deadline(&self) -> Option<Time> {
        let deadlines = [self.node.deadline(), self.listener.deadline()];
        deadlines.into_iter().flatten().min()
    }

    pub(crate) fn on_tick(&mut self, now: Time, reactor: &mut Reactor) {
        self.listener.on_tick(now, reactor);
        self.node.handle(now, Input::Tick);
    }

    /// Accepts connections again: a descriptor may be free.
    pub(crate) fn resume(&mut self, reactor: &mut Reactor) {
        self.listener.resume(reactor);
    }

    /// Expects one more process.
    pub(crate) fn expect(&mut self, member: Address) {
        self.node.expect(member);
    }

    pub(crate) fn give_up(&mut self, now: Time, member: Address) {
        self.node.give_up(now, member);
    }

    /// Lets a process wait for the one above it for this time at most.
    pub(crate) fn wait_at_most(&mut self, time: std::time::Duration) {
        self.node.wait_at_most(time);
    }

    /// Ends the session.
    pub(crate) fn end(&mut self) {
        self.node.end();
    }

    /// Returns true if no other process is connected.
    pub(crate) fn is_alone(&self) -> bool {
        self.node.is_alone()
    }

    /// Returns true if no connection has bytes to write.
    pub(crate) fn is_written(&self) -> bool {
        self.node.to_write().is_empty()
    }

    /// Returns true if the way to the root takes another message.
    pub(crate) fn has_room(&self) -> bool {
        self.node.has_room()
    }

    /// Sends a message of this process to the root.
    pub(crate) fn send(&mut self, lane: Lane, body: Bytes) {
        self.node.send(lane, body);
    }

    /// Sends a message to the root that may be merged with others of its class on the way.
    pub(crate) fn send_mergeable(&mut self, now: Time, lane: Lane, class: Class, body: Bytes) {
        self.node.send_mergeable(now, lane, class, body);
    }

    /// Sends a message of the root to members.
    pub(crate) fn cast(&mut self, now: Time, to: &BTreeSet<Address>, lane: Lane, body: &Bytes) {
        self.node.cast(now, to, lane, body);
    }

    /// Asks members at the root; see [`Node::gather`].
    pub(crate) fn gather(
        &mut self,
        now: Time,
        to: &BTreeSet<Address>,
        body: &Bytes,
        patience: Patience,
    ) -> Result<GatherId, TooMany> {
        self.node.gather(now, to, Lane::Control, body, patience)
    }

    /// Ends a gather of the root before its time.
    pub(crate) fn end_gather(&mut self, now: Time, id: GatherId) {
        self.node.end_gather(now, id);
    }

    /// Answers a question of the root.
    pub(crate) fn answer_gather(&mut self, id: GatherId, body: Bytes) {
        self.node.answer_gather(id, body);
    }

    /// Handles events of the port.
    pub(crate) fn on_port_readable(&mut self, now: Time, reactor: &mut Reactor) -> Option<News> {
        for _ in 0..ACCEPTS_PER_TURN {
            let listener = self.listener.fd(reactor)?;
            match os::accept_remote(listener.as_fd()) {
                Ok(RemoteOutcome::Connection(fd, from)) => {
                    let Some(conn) = self.node.accept(now, from) else {
                        continue;
                    };
                    let source = Source::Tree(TreeChannel::Peer(conn));
                    match reactor.add(fd, Interest::Read, source) {
                        Ok(token) => self.insert(conn, token, Interest::Read, SocketState::Open),
                        Err(error) => {
                            self.node.handle(now, Input::Closed(conn));
                            return Some(News::Report(error.to_string()));
                        }
                    }
                }
                Ok(RemoteOutcome::WouldBlock) => return None,
                Ok(RemoteOutcome::Exhausted(error)) => {
                    self.listener.pause(now, reactor);
                    return Some(News::Report(error.to_string()));
                }
                Err(error) => return Some(News::Report(error.to_string())),
            }
        }
        None
    }

    fn insert(&mut self, conn: Conn, token: Token, interest: Interest, state: SocketState) {
        let socket = Socket {
            token,
            interest,
            state,
        };
        self.sockets.insert(conn, socket);
    }

    pub(crate) fn on_readable(&mut self, now: Time, conn: Conn, reactor: &mut Reactor) {
        let Some(socket) = self.sockets.get(&conn) else {
            return;
        };
        if socket.state == SocketState::Connecting {
            // The kernel reports a failed connection as readable too.
            return self.on_writable(now, conn, reactor);
        }
        match reactor.read(socket.token, READ_MAX) {
            Some(Ok(Read::Bytes(bytes))) => self.node.handle(now, Input::Bytes(conn, bytes)),
            Some(Ok(Read::WouldBlock)) | None => {}
            Some(Ok(Read::Closed) | Err(_)) => {
                self.close(conn, reactor);
                self.node.handle(now, Input::Closed(conn));
            }
        }
    }

    pub(crate) fn on_writable(&mut self, now: Time, conn: Conn, reactor: &mut Reactor) {
        let Some(socket) = self.sockets.get_mut(&conn) else {
            return;
        };
        if socket.state == SocketState::Connecting {
            let Some(fd) = reactor.fd(socket.token) else {
                return;
            };
            match os::connect_outcome(fd) {
                Ok(ConnectOutcome::Pending) => {}
                Ok(ConnectOutcome::Connected) => {
                    socket.state = SocketState::Open;
                    self.set_interest(conn, Interest::Read, reactor);
                    self.node.handle(now, Input::Connected(conn));
                }
                Err(error) => {
                    self.close(conn, reactor);
                    self.node
                        .handle(now, Input::DialFailed(conn, dial_error(&error)));
                }
            }
        }
        // The rest is written at the end of the turn.
    }

    /// Carries out what the node asks for, and returns the next news.
    pub(crate) fn step(&mut self, now: Time, reactor: &mut Reactor) -> Option<News> {
        while let Some(output) = self.node.poll() {
            match output {
                Output::Dial(conn, to) => {
                    let source = Source::Tree(TreeChannel::Peer(conn));
                    let dialed = os::connect_remote(to)
                        .and_then(|fd| reactor.add(fd, Interest::Write, source));
                    match dialed {
                        Ok(token) => {
                            self.insert(conn, token, Interest::Write, SocketState::Connecting);
                        }
                        Err(error) => {
                            let failed = Input::DialFailed(conn, dial_error(&error));
                            self.node.handle(now, failed);
                        }
                    }
                }
                Output::Close(conn) => self.close(conn, reactor),
                Output::Received { from, body, .. } => {
                    return Some(News::Received { from, body });
                }
                Output::Merged { of, body, .. } => return Some(News::Merged { of, body }),
                Output::Joined(who) => return Some(News::Joined(who)),
                Output::Lost { members, loss, .. } => return Some(News::Lost { members, loss }),
                Output::Ready => return Some(News::Ready),
                Output::Unreachable(tried) => {
                    let tried = tried.iter().map(|(at, why)| format!("{at}: {why}"));
                    let tried: Vec<String> = tried.collect();
                    return Some(News::Unreachable(tried.join("; ")));
                }
                Output::Abandoned(loss) => return Some(News::Abandoned(loss)),
                Output::Ended => return Some(News::Ended),
                Output::Asked { id, body } => return Some(News::Asked { id, body }),
                Output::Part { id, of, body } => return Some(News::Part { id, of, body }),
                Output::Gathered { id, .. } => return Some(News::Gathered(id)),
                Output::Refused { from, why } => {
                    let why = why.to_string();
                    return Some(News::Refused { from, why });
                }
            }
        }
        None
    }

    /// Writes what the sockets take. Returns true if bytes remain that no socket takes now.
    pub(crate) fn flush(&mut self, now: Time, reactor: &mut Reactor) {
        for conn in self.node.to_write() {
            let Some(socket) = self.sockets.get(&conn) else {
                continue;
            };
            if socket.state == SocketState::Connecting {
                continue;
            }
            let token = socket.token;
            let mut is_full = false;
            loop {
                let bytes = self.node.outgoing(now, conn);
                if bytes.is_empty() {
                    break;
                }
                match reactor.write(token, bytes) {
                    Some(Ok(WriteOutcome::Bytes(count))) => self.node.written(now, conn, count),
                    Some(Ok(WriteOutcome::WouldBlock)) => {
                        is_full = true;
                        break;
                    }
                    // The read reports the end, behind what the peer has sent.
                    Some(Ok(WriteOutcome::Closed) | Err(_)) | None => break,
                }
            }
            let interest = if is_full {
                Interest::ReadWrite
            } else {
                Interest::Read
            };
            self.set_interest(conn, interest, reactor);
        }
    }

    fn set_interest(&mut self, conn: Conn, interest: Interest, reactor: &mut Reactor) {
        if let Some(socket) = self.sockets.get_mut(&conn)
            && socket.interest != interest
        {
            socket.interest = interest;
            let _ = reactor.set_interest(socket.token, interest);
        }
    }

    fn close(&mut self, conn: Conn, reactor: &mut Reactor) {
        if let Some(socket) = self.sockets.remove(&conn) {
            reactor.close(socket.token);
        }
    }
}

fn dial_error(error: &os::Error) -> DialError {
    /// ECONNREFUSED of Linux, with the same value on every architecture that we build for.
    const ECONNREFUSED: i32 = 111;
    match error.errno() {
        ECONNREFUSED => DialError::Refused,
        _ => DialError::System(error.to_string()),
    }
}
