//! PMIx connections in virtual time: bytes arrive in order, split at random positions, each piece after its own delay.

use std::collections::VecDeque;

use base::Time;
use bytes::Bytes;
use dvm::Input;
use pmix::server::{Conn, PeerOwner};

use super::Node;
use crate::{
    kernel::ClientId,
    world::{Event, World},
};

/// Maximum number of pieces into which one message is cut.
const PIECES_MAX: usize = 4;

/// An item in flight on a connection.
#[derive(Debug)]
enum Piece {
    /// A new connection, opened by a process of this user id.
    Opened(u32),
    Bytes(Bytes),
    Closed,
}

/// One direction of a connection.
#[derive(Debug, Default)]
struct Stream {
    pieces: VecDeque<(Time, Piece)>,
    last_at: Time,
}

/// A connection between a process and the PMIx server of its daemon.
#[derive(Debug, Default)]
pub(super) struct Wire {
    /// From the process to the daemon.
    up: Stream,
    /// From the daemon to the process.
    down: Stream,
    /// True once the daemon has closed the connection, or was informed that the process has.
    is_closed: bool,
}

impl Stream {
    /// Returns the arrival time of a piece that is sent now.
    fn next_at(&mut self, world: &mut World) -> Time {
        let delay = world.delay(world.latency.io_max);
        self.last_at = self.last_at.max(world.now + delay);
        self.last_at
    }

    fn push(&mut self, world: &mut World, event: Event, piece: Piece) {
        let at = self.next_at(world);
        self.pieces.push_back((at, piece));
        world.at(at, event);
    }

    fn push_bytes(&mut self, world: &mut World, event: impl Fn() -> Event, mut bytes: Bytes) {
        for _ in 1..world.rng.length(1, PIECES_MAX) {
            // Some splits are forced into the first bytes, so that headers are split too.
            let most = if world.rng.chance(30) {
                16
            } else {
                bytes.len()
            };
            let cut = world.rng.length(0, bytes.len().min(most));
            if cut > 0 {
                let piece = Piece::Bytes(bytes.split_to(cut));
                self.push(world, event(), piece);
            }
        }
        if !bytes.is_empty() {
            self.push(world, event(), Piece::Bytes(bytes));
        }
    }

    /// Returns the next item that has arrived, if any. Consecutive pieces of bytes that have arrived are joined into one.
    fn receive(&mut self, now: Time) -> Option<Piece> {
        let mut joined: Vec<u8> = Vec::new();
        while let Some((at, piece)) = self.pieces.front() {
            match piece {
                _ if *at > now => break,
                Piece::Bytes(bytes) => joined.extend_from_slice(bytes),
                Piece::Opened(_) | Piece::Closed if joined.is_empty() => {
                    return self.pieces.pop_front().map(|(_, piece)| piece);
                }
                Piece::Opened(_) | Piece::Closed => break,
            }
            self.pieces.pop_front();
        }
        (!joined.is_empty()).then(|| Piece::Bytes(joined.into()))
    }
}

impl Node {
    pub(super) fn client_opened(&mut self, world: &mut World, id: ClientId, port: u16, uid: u32) {
        let (node, own) = (self.id, self.port);
        world.require(port == own, || {
            format!("a rank of node {node} is told to connect to port {port}, and not to {own}")
        });
        let mut wire = Wire::default();
        wire.up
            .push(world, Event::ClientUp { node, id }, Piece::Opened(uid));
        self.wires.insert(id, wire);
    }

    /// Connects a process and the daemon, which have their connection already.
    pub(super) fn client_taken_over(&mut self, id: ClientId) {
        self.wires.insert(id, Wire::default());
    }

    pub(super) fn client_sent(&mut self, world: &mut World, id: ClientId, bytes: Vec<u8>) {
        let node = self.id;
        if let Some(wire) = self.wires.get_mut(&id) {
            let event = || Event::ClientUp { node, id };
            wire.up.push_bytes(world, event, bytes.into());
        }
    }

    pub(super) fn client_closed(&mut self, world: &mut World, id: ClientId) {
        let node = self.id;
        if let Some(wire) = self.wires.get_mut(&id) {
            wire.up
                .push(world, Event::ClientUp { node, id }, Piece::Closed);
        }
    }

    /// Delivers to the daemon what has arrived from a process.
    pub(super) fn client_up(&mut self, world: &mut World, id: ClientId) {
        while let Some(wire) = self.wires.get_mut(&id)
            && let Some(piece) = wire.up.receive(world.now)
        {
            if wire.is_closed {
                continue;
            }
            let conn = Conn(id.0);
            match piece {
                Piece::Opened(uid) => {
                    let owner = PeerOwner::Uid(uid);
                    self.tell(world, Input::ClientAccepted { conn, owner });
                }
                Piece::Bytes(bytes) => {
                    let bytes = &bytes;
                    self.tell(world, Input::ClientBytes { conn, bytes });
                }
                Piece::Closed => {
                    wire.is_closed = true;
                    self.tell(world, Input::ClientClosed { conn });
                }
            }
        }
    }

    /// Delivers to a process what has arrived from the daemon.
    pub(super) fn client_down(&mut self, world: &mut World, id: ClientId) {
        while let Some(wire) = self.wires.get_mut(&id)
            && let Some(piece) = wire.down.receive(world.now)
        {
            match piece {
                Piece::Opened(_) => {}
                Piece::Bytes(bytes) if self.is_visitor(id) => {
                    self.tell_visitor(world, id, pmix::client::Input::Bytes(&bytes));
                }
                Piece::Closed if self.is_visitor(id) => {
                    self.tell_visitor(world, id, pmix::client::Input::Closed);
                }
                Piece::Bytes(bytes) if self.is_guest(id) => {
                    self.tell_guest(world, id, pmix::client::Input::Bytes(&bytes));
                }
                Piece::Closed if self.is_guest(id) => {
                    self.tell_guest(world, id, pmix::client::Input::Closed);
                }
                Piece::Bytes(bytes) => self.kernel.client_bytes(world.now, id, &bytes),
                Piece::Closed => self.kernel.client_hung_up(world.now, id),
            }
        }
        self.absorb(world);
    }

    /// Sends bytes of the daemon to a process. Sending on a closed connection is a fault.
    pub(super) fn send_client(&mut self, world: &mut World, conn: Conn, bytes: Bytes) {
        let (node, id) = (self.id, ClientId(conn.0));
        let open = self.wires.get_mut(&id).filter(|wire| !wire.is_closed);
        let Some(wire) = open else {
            return world.fault(format!(
                "daemon {node} sends to a connection that has ended"
            ));
        };
        let event = || Event::ClientDown { node, id };
        wire.down.push_bytes(world, event, bytes);
    }

    /// Closes a connection for the daemon. The daemon may close one only if the process has broken the protocol, and has
    /// to report that.
    pub(super) fn close_client(&mut self, world: &mut World, conn: Conn) {
        let (node, id) = (self.id, ClientId(conn.0));
        // The daemon does not report a connection that it closes after all jobs are over.
        self.on_refused(world, id);
        if let Some(wire) = self.wires.get_mut(&id) {
            wire.is_closed = true;
            wire.down
                .push(world, Event::ClientDown { node, id }, Piece::Closed);
        }
    }
}
