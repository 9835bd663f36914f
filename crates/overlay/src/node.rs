//! The state machine of one process of the tree: it accepts and dials connections, and routes packets.
//!
//! The root knows the shape of the tree. A process that starts dials the root, and the root tells it its place: below the
//! root, or below another process, which it then dials. If that process cannot be reached, its place is below the root.
//! Messages go from the root to any set of processes ([`Node::cast`]), and from any process to the root ([`Node::send`]).
//! The answers to a question of the root come merged ([`Node::gather`]), and messages that many send at the same time
//! ([`Node::send_mergeable`]).
//!
//! | state of a connection | event | response | next state |
//! |---|---|---|---|
//! | `Dialing` | the handshake is complete | `Hello` | `Greeting` |
//! | `Greeting` | `Welcome::Child` | [`Output::Ready`], sign of life | `Linked` |
//! | `Greeting` | `Welcome::Resumed` | the link continues | `Linked` |
//! | `Greeting` | `Welcome::Elsewhere` | dial the parent | closed |
//! | `Greeting` | `Welcome::Child` after the loss of the parent | send again what the root has not received | `Linked` |
//! | `Greeting` at the root | neither a welcome nor a sign of life for a lease and the reconnect window | [`Output::Unreachable`] | closed |
//! | `Dialing`, `Greeting` | closed without an answer | dial again, for [`AGAIN_MAX`] | closed |
//! | `Dialing`, `Greeting` | another failure | try the next address, then the root, or [`Output::Unreachable`] | closed |
//! | `Accepted` | `Hello` with a place here | `Welcome::Child` | `Linked` |
//! | `Linked` | the first record of a child that was welcomed | announce the child to the root | `Linked` |
//! | `Accepted` | `Hello` with a place below a process that has not joined | – | `Waiting` |
//! | `Accepted`, `Waiting` | the parent has joined | `Welcome::Elsewhere` | `Closing` |
//! | `Waiting` | the parent was given up or lost | as for a place here | `Linked` |
//! | `Waiting` | a third of a lease is over | sign of life | `Waiting` |
//! | `Waiting` | the same process says hello on another connection, or [`PLACE_MAX`] is over | – | closed |
//! | `Accepted`, `Waiting` | [`HANDSHAKE_MAX`] is over (`Accepted`), wrong secret, another build | [`Output::Refused`] | closed |
//! | `Accepted` | `Hello::Return` at the root | `Welcome::Child`, send again what the process has not received | `Linked` |
//! | `Linked` | closed, or silent for a lease | the dialer dials again; the acceptor waits | closed |
//! | `Linked` | the parent is silent for a lease | dial it again | `Silent` |
//! | `Silent` | the link is resumed or given up | – | closed |
//! | `Linked` | the peer breaks the rules | the link is lost | closed |
//! | `Closing` | everything is written, or [`HANDSHAKE_MAX`] is over | – | closed |
//!
//! A link outlives its connection. If the connection was closed, the dialer connects again immediately, and the acceptor
//! waits [`RECONNECT_MAX`] for that: if the process has died, the kernel refuses the connection. If the peer was silent for a
//! lease, both have the reconnect window of [`Timing`]; the dialer also has it if nobody answers. A link that was not resumed is lost, and with it the
//! process below it. The processes further below return to the root (`heal`), and no message is lost (`delivery`).
//!
//! The root may expect further processes later ([`Node::expect`]). Their places are below the root, and not where the shape of
//! the tree would put them: that process may be lost by then, and few come late.
//!
//! The root reports that a process has joined before anything that the process sends, and its loss after everything. A
//! process speaks only for itself and for those that have joined below it.
//!
//! A process has joined when its parent has heard that it got the welcome. Otherwise, if the parent were lost before the
//! welcome arrived, the root would refuse the process elsewhere as one that is connected already.

mod delivery;
mod gather;
mod heal;
mod links;
mod merging;
mod places;
mod records;
mod routes;
#[cfg(test)]
mod tests;
mod uplink;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::SocketAddr,
    time::Duration,
};

use base::Time;
use bytes::Bytes;

pub use crate::packet::{Class, GatherId, Patience};

pub use self::{
    delivery::{CASTS_MAX, OUTBOX_MAX, UNREPORTED_MAX},
    gather::{GATHERS_MAX, Merge, PARTS_MAX, TooMany},
    merging::{GROUPS_MAX, HELD_MAX, MERGE_MAX},
    uplink::{AGAIN_MAX, DIAL_MAX, DIAL_STAGGER, PLACE_MAX},
};
use self::{
    delivery::{Casts, Inbox, Outbox},
    gather::Gathers,
    heal::{Orphan, Returning},
    merging::Held,
    uplink::{Purpose, Uplink},
};
use crate::{
    lanes::{Lane, Lanes},
    packet::{ADDRESSES_MAX, Address, Loss, Note, Reason, Refusal},
    secure::{Build, Entropy, Secret, Secure, SecureError},
};

/// Time within which an accepted connection has to complete its handshake and send its `Hello`.
pub const HANDSHAKE_MAX: Duration = Duration::from_secs(5);
/// Time for which the root keeps a process that waits for its place, a little longer than the process waits.
const WAITING_MAX: Duration = Duration::from_secs(605);
/// Time for which the acceptor of a closed connection waits for another one.
pub const RECONNECT_MAX: Duration = Duration::from_millis(300);
/// Maximum number of accepted connections that have not sent their `Hello`. A further one takes the place of the oldest, or
/// is closed.
pub const PENDING_MAX: usize = 1024;
/// Age at which an accepted connection may have to make room for another one.
const PENDING_MIN: Duration = Duration::from_secs(1);
/// Maximum number of bytes that wait for one child. A child that does not read them is lost.
pub const QUEUE_MAX: u64 = 256 * 1024 * 1024;

/// Identifies a connection. Numbers are not used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Conn(pub u64);

/// How long silence lasts before it means a lost link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Time without a byte after which a connection counts as lost. An idle link sends a record three times as often.
    pub lease: Duration,
    /// The reconnect window: the time in which a link can be resumed after silence.
    pub window: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(10),
            window: Duration::from_secs(2),
        }
    }
}

/// What a process knows of itself.
#[derive(Clone, Debug)]
pub struct Config {
    pub me: Address,
    pub build: Build,
    pub secret: Secret,
    pub timing: Timing,
    /// Where this process accepts connections.
    pub at: Vec<SocketAddr>,
}

/// An event that the caller reports.
#[derive(Debug)]
pub enum Input<'a> {
    /// A dialed connection is established.
    Connected(Conn),
    /// A connection could not be established.
    DialFailed(Conn, DialError),
    Bytes(Conn, &'a [u8]),
    /// The peer or the kernel has closed a connection.
    Closed(Conn),
    /// The time that [`Node::deadline`] returned has passed.
    Tick,
}

/// Why a connection could not be established.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DialError {
    /// The node is there, and no process accepts connections at the port.
    #[error("connection refused")]
    Refused,
    #[error("no answer within {} s", .0.as_secs())]
    Silent(Duration),
    #[error("{0}")]
    System(String),
    #[error(transparent)]
    Secure(#[from] SecureError),
    #[error(transparent)]
    Declined(#[from] Refusal),
    #[error("the connection was closed during the handshake")]
    Closed,
    /// The other process has too many connections, or the network has broken this one.
    #[error("the connection was closed before an answer")]
    Unanswered,
}

/// An action for the caller, or news.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Connect to an address, and report [`Input::Connected`] or [`Input::DialFailed`].
    Dial(Conn, SocketAddr),
    /// Close a connection, after an attempt to write its remaining bytes.
    Close(Conn),
    /// A message for this process: from the root, or at the root from a member.
    Received {
        from: Address,
        lane: Lane,
        body: Bytes,
    },
    /// At the root: one message, made of those of these members.
    Merged {
        of: BTreeSet<Address>,
        lane: Lane,
        body: Bytes,
    },
    /// A question of the root to this process, for [`Node::answer_gather`].
    Asked { id: GatherId, body: Bytes },
    /// At the root: the merged answers of these members. No member is in two parts of a gather.
    Part {
        id: GatherId,
        of: BTreeSet<Address>,
        body: Bytes,
    },
    /// At the root: a gather is over. These members have not answered.
    Gathered {
        id: GatherId,
        missing: BTreeSet<Address>,
    },
    /// At the root: a process has joined the tree.
    Joined(Address),
    /// At the root: these processes were lost. Either it is `who` alone, to which a link was lost, or they were below `who` and
    /// have not returned.
    Lost {
        who: Address,
        members: BTreeSet<Address>,
        loss: Loss,
    },
    /// This process has its place in the tree.
    Ready,
    /// This process could not join. Each address that was dialed, with the result.
    Unreachable(Vec<(SocketAddr, DialError)>),
    /// This process has lost its parent, and nobody will hear it any more.
    Abandoned(Loss),
    /// The root has ended the session.
    Ended,
    /// A connection was refused. This is reported once for each host.
    Refused { from: SocketAddr, why: DialError },
}

#[derive(Debug)]
enum Phase {
    Dialing,
    Greeting,
    Accepted(SocketAddr),
    /// The process waits for its parent to join.
    Waiting {
        parent: Address,
        comer: Comer,
        /// When it last got a sign of life.
        said: Time,
    },
    Linked(Address),
    /// The parent was silent, and its link continues on another connection. Until then this one stays open and is not read: the
    /// parent may not have noticed, and would take its end for our death.
    Silent,
    Closing,
}

/// A process that wants to join.
#[derive(Clone, Debug)]
struct Comer {
    from: SocketAddr,
    who: Address,
    /// The number of its link.
    link: u64,
    /// Where it accepts connections.
    at: Vec<SocketAddr>,
}

#[derive(Debug)]
struct Connection {
    secure: Secure,
    phase: Phase,
    /// Notes to send, before the records of lanes: an answer and a sign of life at most.
    notes: VecDeque<Note>,
    /// When its phase began.
    since: Time,
}

/// Which end of a link the peer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Parent,
    Child,
}

#[derive(Debug)]
struct Link {
    number: u64,
    side: Side,
    /// Where a child accepts connections, until it has answered its welcome. Until then the root does not know of the child.
    joining: Option<Vec<SocketAddr>>,
    lanes: Lanes,
    /// The processes below a child.
    below: BTreeSet<Address>,
    /// The numbers of the casts that a child has not reported yet, by lane.
    unreported: [VecDeque<u64>; 2],
    state: LinkState,
}

#[derive(Debug)]
enum LinkState {
    Up {
        conn: Conn,
        /// When the last byte was received.
        heard: Time,
        /// When the last record was sent.
        said: Time,
    },
    /// The connection was lost for this reason, and the link can be resumed until then.
    Down { until: Time, loss: Loss },
    /// The peer has said that it is about to close the connection.
    Ending { conn: Conn, heard: Time },
}

/// A process that the root expects.
#[derive(Debug)]
struct Expected {
    parent: Address,
    state: Standing,
}

#[derive(Debug)]
enum Standing {
    Absent,
    Joined { at: Vec<SocketAddr> },
    Lost,
}

/// What waits in a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// True if the process has a parent to which it is not dialing.
    pub has_way: bool,
    /// Number of bytes that were not sent: to the parent, and to that child which has most to read.
    pub to_parent: u64,
    pub to_children: u64,
    /// The most bytes of one peer that were not handled.
    pub arrived: u64,
    /// Number of bytes that are kept until the other end has reported them: messages to the root, and casts.
    pub outbox: u64,
    pub casts: u64,
    pub connections: usize,
    pub links: usize,
}

/// The state machine.
#[derive(Debug)]
pub struct Node {
    config: Config,
    entropy: Entropy,
    /// At the root, the processes that it expects.
    expected: BTreeMap<Address, Expected>,
    /// At another process, its way to the root.
    uplink: Uplink,
    /// At another process, where the root accepts connections.
    root: Vec<SocketAddr>,
    /// In boxes, as the links: the maps make room for eleven at a time, and most processes have one.
    connections: BTreeMap<Conn, Box<Connection>>,
    /// Connections in the phase `Accepted`. The oldest is the first.
    pending: BTreeSet<Conn>,
    /// Connections in the phase `Waiting`, by the parent that they wait for and their process.
    waiting: BTreeMap<(Address, Address), Conn>,
    links: BTreeMap<Address, Box<Link>>,
    /// At the root, the processes whose parent was lost.
    orphans: BTreeMap<Address, Orphan>,
    /// Set while this process has lost its parent and looks for another place.
    returning: Option<Returning>,
    /// True from [`Output::Ready`] to [`Output::Abandoned`].
    has_place: bool,
    /// At the root, true after [`Node::end`].
    is_ended: bool,
    /// How long a process waits here for the one above it to join. At the root, it then gets a place below the root.
    waits_for: Option<Duration>,
    outbox: Outbox,
    inbox: Inbox,
    casts: Casts,
    gathers: Gathers,
    held: Held,
    /// Peers whose links may have frames that were not handled.
    arrived: BTreeSet<Address>,
    /// The peer whose packet was handled last.
    served: Address,
    /// Hosts whose connections were refused and reported.
    refused: BTreeSet<std::net::IpAddr>,
    next: u64,
    outputs: VecDeque<Output>,
}

impl Node {
    /// Makes the root of a tree of these processes, each with the address of its parent.
    #[must_use]
    pub fn root(
        config: Config,
        entropy: Entropy,
        members: impl IntoIterator<Item = (Address, Address)>,
    ) -> Self {
        let mut node = Self::new(config, entropy, Uplink::Over, Vec::new());
        let expected = |(member, parent)| {
            let state = Standing::Absent;
            (member, Expected { parent, state })
        };
        node.expected = members.into_iter().map(expected).collect();
        node
    }

    /// Lets a process wait for the one above it for this time at most. Then it gets a place below the root, where it may have more
    /// neighbours than was planned. Without this it waits until that process has joined or was given up.
    pub const fn wait_at_most(&mut self, time: Duration) {
        self.waits_for = Some(time);
    }

    /// Makes another process, which dials the root at one of these addresses.
    #[must_use]
    pub fn member(now: Time, config: Config, entropy: Entropy, root: Vec<SocketAddr>) -> Self {
        let purpose = Purpose::Join(Reason::Start);
        let uplink = Uplink::start(now, Address::ROOT, root.clone(), purpose);
        let mut node = Self::new(config, entropy, uplink, root);
        node.dial(now);
        node
    }

    fn new(mut config: Config, entropy: Entropy, uplink: Uplink, root: Vec<SocketAddr>) -> Self {
        config.at.truncate(ADDRESSES_MAX);
        Self {
            config,
            entropy,
            expected: BTreeMap::new(),
            uplink,
            root,
            connections: BTreeMap::new(),
            pending: BTreeSet::new(),
            waiting: BTreeMap::new(),
            links: BTreeMap::new(),
            orphans: BTreeMap::new(),
            returning: None,
            has_place: false,
            is_ended: false,
            waits_for: None,
            outbox: Outbox::default(),
            inbox: Inbox::default(),
            casts: Casts::default(),
            gathers: Gathers::default(),
            held: Held::default(),
            arrived: BTreeSet::new(),
            served: Address::ROOT,
            refused: BTreeSet::new(),
            next: 0,
            outputs: VecDeque::new(),
        }
    }

    /// Admits a connection that was accepted; `None` if it is to be closed because too many are pending.
    pub fn accept(&mut self, now: Time, from: SocketAddr) -> Option<Conn> {
        if self.pending.len() >= PENDING_MAX {
            let oldest = *self.pending.first()?;
            let since = self.connections.get(&oldest)?.since;
            if now < since + PENDING_MIN {
                return None;
            }
            self.close(oldest);
        }
        let config = &self.config;
        let secure = Secure::accept(&config.build, &config.secret, &mut self.entropy);
        Some(self.add(now, secure, Phase::Accepted(from)))
    }

    fn add(&mut self, now: Time, secure: Secure, phase: Phase) -> Conn {
        let conn = Conn(self.next);
        self.next += 1;
        let connection = Connection {
            secure,
            phase: Phase::Dialing,
            notes: VecDeque::new(),
            since: now,
        };
        self.connections.insert(conn, Box::new(connection));
        self.enter(now, conn, phase);
        conn
    }

    /// Begins a phase of a connection.
    fn enter(&mut self, now: Time, conn: Conn, phase: Phase) {
        let Some(connection) = self.connections.get_mut(&conn) else {
            return;
        };
        let entered = match &phase {
            Phase::Waiting { parent, comer, .. } => Some((*parent, comer.who)),
            _ => None,
        };
        let is_pending = matches!(phase, Phase::Accepted(_));
        let before = std::mem::replace(&mut connection.phase, phase);
        connection.since = now;
        self.leave(conn, &before);
        if is_pending {
            self.pending.insert(conn);
        }
        if let Some(waits) = entered {
            self.waiting.insert(waits, conn);
        }
    }

    fn leave(&mut self, conn: Conn, phase: &Phase) {
        match phase {
            Phase::Accepted(_) => drop(self.pending.remove(&conn)),
            Phase::Waiting { parent, comer, .. } => {
                let waits = (*parent, comer.who);
                if self.waiting.get(&waits) == Some(&conn) {
                    self.waiting.remove(&waits);
                }
            }
            _ => {}
        }
    }

    fn close(&mut self, conn: Conn) {
        if let Some(connection) = self.connections.remove(&conn) {
            self.leave(conn, &connection.phase);
            self.outputs.push_back(Output::Close(conn));
        }
    }

    /// Handles one event. Never blocks and never fails: a failure is an output.
    pub fn handle(&mut self, now: Time, input: Input<'_>) {
        match input {
            Input::Connected(_) => {}
            Input::DialFailed(conn, error) => {
                // The caller has closed it.
                self.connections.remove(&conn);
                self.on_dial_failed(now, conn, error);
            }
            Input::Bytes(conn, bytes) => self.on_bytes(now, conn, bytes),
            Input::Closed(conn) => self.on_lost(now, conn, Loss::Closed),
            Input::Tick => self.on_tick(now),
        }
        self.relay(now);
        self.report(now);
    }

    /// Returns the next action. Call it after every other method that takes the time, until it returns `None`.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Returns the time at which [`Input::Tick`] is due.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        let Timing { lease, .. } = self.config.timing;
        let pending = self.connections.values().filter_map(|one| match one.phase {
            Phase::Accepted(_) | Phase::Closing => Some(one.since + HANDSHAKE_MAX),
            Phase::Waiting { said, .. } => {
                let end = one.since + self.waits_for.unwrap_or(WAITING_MAX).min(WAITING_MAX);
                Some(end.min(said + lease / 3))
            }
            _ => None,
        });
        let links = self.links.values().map(|link| match link.state {
            LinkState::Up { heard, said, .. } => (heard + lease).min(said + lease / 3),
            LinkState::Down { until, .. } => until,
            LinkState::Ending { heard, .. } => heard + lease,
        });
        let dial = self.uplink.deadline();
        let ours = [
            dial,
            self.orphan_deadline(),
            self.report_deadline(),
            self.gather_deadline(),
            self.held.deadline(),
        ];
        pending.chain(links).chain(ours.into_iter().flatten()).min()
    }

    /// Returns what waits in this process, for checks of the bounds.
    #[must_use]
    pub fn load(&self) -> Load {
        let waits = |link: &Link| -> u64 {
            let lanes = Lane::ALL.into_iter();
            lanes.map(|lane| link.lanes.unsent(lane)).sum()
        };
        let to = |side: Side| {
            let links = self.links.values().filter(move |link| link.side == side);
            links.map(|link| waits(link)).max().unwrap_or(0)
        };
        let arrived = self.links.values().map(|link| link.lanes.arrived());
        Load {
            has_way: matches!(self.uplink, Uplink::Joined { .. }),
            to_parent: to(Side::Parent) + self.held.bytes(),
            to_children: to(Side::Child),
            arrived: arrived.max().unwrap_or(0),
            outbox: self.outbox.kept(),
            casts: self.casts.kept(),
            connections: self.connections.len(),
            links: self.links.len(),
        }
    }

    /// Returns the parent; `None` at the root, and while there is none.
    #[must_use]
    pub const fn parent(&self) -> Option<Address> {
        self.uplink.parent()
    }

    /// Returns true if there is no link.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        self.links.is_empty()
    }
}
