//! A network of overlay processes in virtual time: connections that deliver in order, and the faults of networks and nodes.
//!
//! The processes are the code that ships, with its handshakes and its encryption. A connection is a pair of [`End`]s, each
//! with the bytes that will arrive there. They arrive in order, cut anywhere, and wait while a fault keeps the two nodes
//! apart, as TCP sends again. A socket takes [`SOCKET_ROOM`] bytes; a process that is stopped leaves them there.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use base::Time;
use overlay::{
    Address,
    node::{Config, Conn, DialError, Input, Merge, Node, Output, Timing},
    secure::{Build, Entropy, Secret},
};

use crate::{agenda::Agenda, rng::Rng};

/// Bytes that are on their way to one end of a connection before its peer has to wait.
const SOCKET_ROOM: usize = 160 * 1024;
/// Room in a socket below which nothing is written: many small pieces would become ever smaller ones.
const WRITE_MIN: usize = 4 * 1024;
/// Time after which the kernel tries again to reach a node that does not answer, and the most for data that waits.
const RETRY: Duration = Duration::from_millis(200);
/// Number of pieces of a connection that a meddler knows.
const HEARD_MAX: usize = 4;
/// Number of processes of which a meddler knows any.
const OVERHEARD_MAX: usize = 128;
/// The secret of the simulated session.
pub(crate) const SECRET: Secret = Secret::new([5; 32]);
/// The build of its processes.
pub(crate) const BUILD: &str = "rally sim";
/// Port at which all processes accept connections.
const PORT: u16 = 7_000;

/// One end of a connection.
type EndId = (Address, Conn);

#[derive(Debug)]
struct End {
    /// The other end; `None` once it is closed, or its node is off.
    peer: Option<EndId>,
    /// The node of the other end.
    remote: Address,
    arriving: VecDeque<Vec<u8>>,
    /// Number of bytes in `arriving`.
    queued: usize,
    /// True once the other end is closed: the process hears it behind the bytes.
    closed: bool,
    /// Time at which the last piece arrives.
    last_at: Time,
}

#[derive(Debug)]
struct Machine {
    node: Node,
    /// The deadline for which a tick is scheduled.
    tick_for: Option<Time>,
    /// The process is stopped until then.
    stopped: Option<Time>,
    /// True if the process exits when it has written everything.
    is_leaving: bool,
}

#[derive(Debug)]
enum Event {
    /// The next piece, or the end, arrives.
    Arrive(EndId),
    /// A connection that is dialed reaches its address.
    Dialed(EndId, Address),
    Tick(Address, Time),
    /// A process that was stopped continues.
    Wake(Address),
}

/// What processes have sent, for measurements.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Traffic {
    /// Number of writes to connections.
    pub(crate) writes: u64,
    pub(crate) bytes: u64,
}

#[derive(Debug)]
pub(crate) struct Net {
    pub(crate) now: Time,
    rng: Rng,
    delay_max: Duration,
    timing: Timing,
    /// In boxes, because the map has room for more.
    machines: BTreeMap<Address, Box<Machine>>,
    ends: BTreeMap<EndId, End>,
    dialing: BTreeSet<EndId>,
    agenda: Agenda<Event>,
    /// Nodes that others cannot reach, by the part of the network that they are in. All others are in part 0.
    parts: BTreeMap<Address, u32>,
    /// Nodes whose packets do not arrive anywhere, although they get those of others.
    mute: BTreeSet<Address>,
    /// Nodes without power.
    off: BTreeSet<Address>,
    /// Processes that may have something to do.
    dirty: BTreeSet<Address>,
    news: VecDeque<(Address, Output)>,
    /// First bytes that a process has sent on its first connection, for a replay.
    heard: BTreeMap<Address, Vec<Vec<u8>>>,
    traffic: BTreeMap<Address, Traffic>,
    /// Merges messages on their way.
    merge: Merge,
    fault: Option<String>,
}

/// Returns the address at which the process of a node accepts connections.
pub(crate) fn at(who: Address) -> SocketAddr {
    let [_, a, b, c] = who.0.to_be_bytes();
    SocketAddr::from((Ipv4Addr::new(10, a, b, c), PORT))
}

fn who_is_at(at: SocketAddr) -> Option<Address> {
    match at {
        SocketAddr::V4(at) => {
            let [_, a, b, c] = at.ip().octets();
            Some(Address(u32::from_be_bytes([0, a, b, c])))
        }
        SocketAddr::V6(_) => None,
    }
}

/// Returns what the process of `place` knows of itself if it has the address `me` in the tree.
pub(crate) fn config(me: Address, place: Address, timing: Timing) -> Config {
    Config {
        me,
        build: Build::new(BUILD),
        secret: SECRET,
        timing,
        at: vec![at(place)],
    }
}

impl Net {
    pub(crate) fn new(rng: Rng, delay_max: Duration, timing: Timing, merge: Merge) -> Self {
        Self {
            now: Time::ZERO,
            rng,
            delay_max,
            timing,
            machines: BTreeMap::new(),
            ends: BTreeMap::new(),
            dialing: BTreeSet::new(),
            agenda: Agenda::new(),
            parts: BTreeMap::new(),
            mute: BTreeSet::new(),
            off: BTreeSet::new(),
            dirty: BTreeSet::new(),
            news: VecDeque::new(),
            heard: BTreeMap::new(),
            traffic: BTreeMap::new(),
            merge,
            fault: None,
        }
    }

    /// Starts the root of a tree of these processes, each with its parent.
    pub(crate) fn start_root(&mut self, members: impl IntoIterator<Item = (Address, Address)>) {
        let config = config(Address::ROOT, Address::ROOT, self.timing);
        let node = Node::root(config, self.entropy(), members);
        self.insert(Address::ROOT, node);
    }

    /// Starts a process.
    pub(crate) fn start(&mut self, who: Address) {
        let config = config(who, who, self.timing);
        self.start_with(who, config);
    }

    /// Starts a process of a node with a configuration that may be wrong.
    pub(crate) fn start_with(&mut self, place: Address, config: Config) {
        let entropy = self.entropy();
        let node = Node::member(self.now, config, entropy, vec![at(Address::ROOT)]);
        self.insert(place, node);
        self.settle();
    }

    fn entropy(&mut self) -> Entropy {
        let mut seed = [0; 32];
        for part in seed.as_chunks_mut::<8>().0 {
            *part = self.rng.next().to_le_bytes();
        }
        Entropy::new(seed)
    }

    fn insert(&mut self, place: Address, mut node: Node) {
        node.merge_with(self.merge);
        let machine = Machine {
            node,
            tick_for: None,
            stopped: None,
            is_leaving: false,
        };
        self.machines.insert(place, Box::new(machine));
        self.dirty.insert(place);
    }

    pub(crate) fn node(&self, who: Address) -> Option<&Node> {
        self.machines.get(&who).map(|machine| &machine.node)
    }

    /// Lets the caller act on a process, unless it is dead or stopped. Returns false then.
    pub(crate) fn with(&mut self, who: Address, act: impl FnOnce(&mut Node, Time)) -> bool {
        let now = self.now;
        let Some(machine) = self.machines.get_mut(&who) else {
            return false;
        };
        if machine.stopped.is_some() {
            return false;
        }
        act(&mut machine.node, now);
        self.dirty.insert(who);
        self.settle();
        true
    }

    pub(crate) fn news(&mut self) -> Option<(Address, Output)> {
        self.news.pop_front()
    }

    pub(crate) const fn take_fault(&mut self) -> Option<String> {
        self.fault.take()
    }

    pub(crate) fn traffic(&self, who: Address) -> Traffic {
        self.traffic.get(&who).copied().unwrap_or_default()
    }

    pub(crate) fn forget_traffic(&mut self) {
        self.traffic.clear();
    }

    /// Returns the time of the next event.
    pub(crate) fn next_at(&self) -> Option<Time> {
        self.agenda.next_at()
    }

    fn schedule(&mut self, at: Time, event: Event) {
        self.agenda.at(at.max(self.now), event);
    }

    fn delay(&mut self) -> Duration {
        let most = u64::try_from(self.delay_max.as_micros()).unwrap_or(u64::MAX);
        self.rng.micros(1, most.max(1))
    }

    /// Handles the next event; returns false if there is none.
    pub(crate) fn step(&mut self) -> bool {
        let Some(event) = self.agenda.next() else {
            return false;
        };
        self.now = self.now.max(self.agenda.now);
        match event {
            Event::Arrive(end) => self.arrive(end),
            Event::Dialed(end, to) => self.dialed(end, to),
            Event::Tick(who, due) => self.tick(who, due),
            Event::Wake(who) => {
                if let Some(machine) = self.machines.get_mut(&who)
                    && machine.stopped.is_some_and(|until| until <= self.now)
                {
                    machine.stopped = None;
                    machine.tick_for = None;
                    self.dirty.insert(who);
                }
            }
        }
        self.settle();
        true
    }

    /// Returns true if packets of one node reach the other.
    fn reaches(&self, from: Address, to: Address) -> bool {
        let part = |who| self.parts.get(&who).copied().unwrap_or(0);
        let is_off = self.off.contains(&from) || self.off.contains(&to);
        part(from) == part(to) && !self.mute.contains(&from) && !is_off
    }

    /// Returns the time until which a process is stopped, if it is.
    pub(crate) fn stopped(&self, who: Address) -> Option<Time> {
        self.machines.get(&who)?.stopped
    }

    fn arrive(&mut self, id: EndId) {
        let Some(end) = self.ends.get(&id) else {
            return;
        };
        if let Some(until) = self.stopped(id.0) {
            return self.schedule(until, Event::Arrive(id));
        }
        // The fault's end schedules it again.
        if !self.reaches(end.remote, id.0) {
            return;
        }
        let Some(end) = self.ends.get_mut(&id) else {
            return;
        };
        let Some(machine) = self.machines.get_mut(&id.0) else {
            return;
        };
        if let Some(bytes) = end.arriving.pop_front() {
            end.queued -= bytes.len();
            self.dirty.extend(end.peer.map(|peer| peer.0));
            machine.node.handle(self.now, Input::Bytes(id.1, &bytes));
        } else if end.closed {
            self.ends.remove(&id);
            machine.node.handle(self.now, Input::Closed(id.1));
        }
        self.dirty.insert(id.0);
    }

    fn dialed(&mut self, id: EndId, to: Address) {
        if !self.dialing.contains(&id) {
            return;
        }
        let later = match self.stopped(to).or_else(|| self.stopped(id.0)) {
            Some(until) => Some(until),
            None if !self.reaches(id.0, to) || !self.reaches(to, id.0) => Some(self.now + RETRY),
            None => None,
        };
        if let Some(later) = later {
            return self.schedule(later, Event::Dialed(id, to));
        }
        self.dialing.remove(&id);
        let now = self.now;
        let from = SocketAddr::new(at(id.0).ip(), 40_000);
        let accepted = match self.machines.get_mut(&to) {
            Some(machine) => Ok(machine.node.accept(now, from)),
            None => Err(DialError::Refused),
        };
        self.dirty.extend([id.0, to]);
        let Some(dialer) = self.machines.get_mut(&id.0) else {
            return;
        };
        match accepted {
            Err(error) => dialer.node.handle(now, Input::DialFailed(id.1, error)),
            Ok(theirs) => {
                dialer.node.handle(now, Input::Connected(id.1));
                let theirs = theirs.map(|theirs| (to, theirs));
                self.ends.insert(id, End::new(theirs, to, now));
                match theirs {
                    Some(theirs) => {
                        let end = End::new(Some(id), id.0, now);
                        self.ends.insert(theirs, end);
                    }
                    None => self.hear_close(id),
                }
            }
        }
    }

    fn tick(&mut self, who: Address, due: Time) {
        let Some(machine) = self.machines.get_mut(&who) else {
            return;
        };
        if machine.tick_for != Some(due) || machine.stopped.is_some() {
            return;
        }
        machine.tick_for = None;
        machine.node.handle(self.now, Input::Tick);
        // A process that is woken for nothing never sleeps.
        let again = machine.node.deadline().is_some_and(|due| due <= self.now);
        if again && self.fault.is_none() {
            self.fault = Some(format!(
                "process {who} wants to be woken at once after it was woken"
            ));
        }
        self.dirty.insert(who);
    }

    /// Carries out what the processes ask for.
    fn settle(&mut self) {
        while let Some(who) = self.dirty.pop_first() {
            let Some(machine) = self.machines.get_mut(&who) else {
                continue;
            };
            if machine.stopped.is_some() {
                continue;
            }
            while let Some(output) = self.machines.get_mut(&who).and_then(|it| it.node.poll()) {
                match output {
                    Output::Dial(conn, to) => {
                        let delay = self.delay();
                        if let Some(to) = who_is_at(to) {
                            self.dialing.insert((who, conn));
                            self.schedule(self.now + delay, Event::Dialed((who, conn), to));
                        }
                    }
                    Output::Close(conn) => self.close((who, conn)),
                    news => self.news.push_back((who, news)),
                }
            }
            if self.write(who) {
                self.dirty.insert(who);
                continue;
            }
            let Some(machine) = self.machines.get_mut(&who) else {
                continue;
            };
            if machine.is_leaving && machine.node.to_write().is_empty() {
                self.remove(who);
                continue;
            }
            let due = machine.node.deadline();
            if due != machine.tick_for {
                machine.tick_for = due;
                if let Some(due) = due {
                    self.schedule(due, Event::Tick(who, due));
                }
            }
        }
    }

    /// Writes what the sockets take. Returns true if the process may have more to do.
    fn write(&mut self, who: Address) -> bool {
        let now = self.now;
        let Some(machine) = self.machines.get_mut(&who) else {
            return false;
        };
        let mut did = false;
        for conn in machine.node.to_write() {
            let Some(end) = self.ends.get(&(who, conn)) else {
                continue;
            };
            let peer = end.peer;
            let queued = peer.and_then(|peer| self.ends.get(&peer));
            let room = SOCKET_ROOM.saturating_sub(queued.map_or(0, |end| end.queued));
            let Some(machine) = self.machines.get_mut(&who) else {
                return did;
            };
            if room < WRITE_MIN {
                continue;
            }
            let bytes = machine.node.outgoing(now, conn);
            let bytes = bytes[..bytes.len().min(room)].to_vec();
            if bytes.is_empty() {
                continue;
            }
            machine.node.written(now, conn, bytes.len());
            did = true;
            let traffic = self.traffic.entry(who).or_default();
            traffic.writes += 1;
            traffic.bytes += bytes.len() as u64;
            if let Some(peer) = peer {
                self.carry(who, peer, bytes);
            }
        }
        did
    }

    /// Sends bytes to an end. They arrive in one or two pieces.
    fn carry(&mut self, from: Address, to: EndId, mut bytes: Vec<u8>) {
        let is_near = self.heard.len() < OVERHEARD_MAX || self.heard.contains_key(&from);
        if to.0 == Address::ROOT && is_near {
            let heard = self.heard.entry(from).or_default();
            if heard.len() < HEARD_MAX {
                heard.push(bytes.clone());
            }
        }
        let cut = if self.rng.chance(30) {
            self.rng.length(0, bytes.len())
        } else {
            0
        };
        let rest = bytes.split_off(cut);
        for piece in [bytes, rest] {
            if piece.is_empty() {
                continue;
            }
            let at = self.now + self.delay();
            let Some(end) = self.ends.get_mut(&to) else {
                return;
            };
            end.queued += piece.len();
            end.arriving.push_back(piece);
            end.last_at = end.last_at.max(at);
            let at = end.last_at;
            self.schedule(at, Event::Arrive(to));
        }
    }

    /// Lets a process hear that the other end of its connection is closed.
    fn hear_close(&mut self, id: EndId) {
        let delay = self.delay();
        if let Some(end) = self.ends.get_mut(&id) {
            end.peer = None;
            end.closed = true;
            end.last_at = end.last_at.max(self.now + delay);
            let at = end.last_at;
            self.schedule(at, Event::Arrive(id));
        }
    }

    fn close(&mut self, id: EndId) {
        self.dialing.remove(&id);
        if let Some(end) = self.ends.remove(&id)
            && let Some(peer) = end.peer
        {
            self.hear_close(peer);
        }
    }

    fn ends_of(&self, who: Address) -> Vec<EndId> {
        let all = (who, Conn(0))..=(who, Conn(u64::MAX));
        self.ends.range(all).map(|(id, _)| *id).collect()
    }

    /// Ends a process, as the kernel does: all its connections are closed.
    pub(crate) fn kill(&mut self, who: Address) {
        self.remove(who);
        self.settle();
    }

    fn remove(&mut self, who: Address) {
        self.machines.remove(&who);
        for id in self.ends_of(who) {
            self.close(id);
        }
    }

    /// Lets a process exit when it has written everything.
    pub(crate) fn leave(&mut self, who: Address) {
        if let Some(machine) = self.machines.get_mut(&who) {
            machine.is_leaving = true;
            self.dirty.insert(who);
        }
        self.settle();
    }

    /// Switches a node off: nobody hears from it again.
    pub(crate) fn power_off(&mut self, who: Address) {
        self.machines.remove(&who);
        self.off.insert(who);
        for id in self.ends_of(who) {
            if let Some(end) = self.ends.remove(&id)
                && let Some(peer) = end.peer.and_then(|peer| self.ends.get_mut(&peer))
            {
                peer.peer = None;
            }
        }
        self.settle();
    }

    /// Breaks one connection of a process, with everything that is on its way. Returns the other process.
    pub(crate) fn reset(&mut self, who: Address) -> Option<Address> {
        let ids = self.ends_of(who);
        if ids.is_empty() {
            return None;
        }
        let id = ids[self.rng.length(0, ids.len() - 1)];
        let peer = self.ends.get(&id).and_then(|end| end.peer);
        for id in [Some(id), peer].into_iter().flatten() {
            if let Some(end) = self.ends.get_mut(&id) {
                end.arriving.clear();
                end.queued = 0;
            }
            self.hear_close(id);
        }
        self.settle();
        peer.map(|peer| peer.0)
    }

    /// Stops a process for a while: it neither reads nor writes.
    pub(crate) fn stop(&mut self, who: Address, time: Duration) {
        let until = self.now + time;
        if let Some(machine) = self.machines.get_mut(&who) {
            machine.stopped = Some(machine.stopped.map_or(until, |before| before.max(until)));
            let until = machine.stopped.unwrap_or(until);
            self.schedule(until, Event::Wake(who));
        }
    }

    /// Moves nodes to another part of the network. Packets between two parts do not arrive.
    pub(crate) fn part(&mut self, who: &BTreeSet<Address>, part: u32) {
        for who in who {
            self.parts.insert(*who, part);
        }
    }

    /// Moves nodes back. What was sent meanwhile is sent again.
    pub(crate) fn join(&mut self, who: &BTreeSet<Address>) {
        for who in who {
            self.parts.remove(who);
        }
        self.send_again(who);
    }

    /// Loses all packets of a node.
    pub(crate) fn mute(&mut self, who: Address) {
        self.mute.insert(who);
    }

    /// Ends [`Self::mute`]. What the node sent meanwhile is sent again.
    pub(crate) fn unmute(&mut self, who: Address) {
        self.mute.remove(&who);
        self.send_again(&[who].into());
    }

    /// Lets everything arrive that waits at these nodes or for them, if it can.
    fn send_again(&mut self, who: &BTreeSet<Address>) {
        let waiting = self.ends.iter();
        let waiting = waiting.filter(|(id, end)| {
            (who.contains(&id.0) || who.contains(&end.remote))
                && (end.closed || !end.arriving.is_empty())
        });
        let waiting: Vec<(EndId, usize)> = waiting
            .map(|(id, end)| (*id, end.arriving.len() + usize::from(end.closed)))
            .collect();
        for (id, pieces) in waiting {
            let most = u64::try_from(RETRY.as_micros()).unwrap_or(0);
            let at = self.now + self.rng.micros(0, most);
            for _ in 0..pieces {
                self.schedule(at, Event::Arrive(id));
            }
            if let Some(end) = self.ends.get_mut(&id) {
                end.last_at = end.last_at.max(at);
            }
        }
    }

    /// Sends bytes to a process from a node that is not part of the session.
    pub(crate) fn meddle(&mut self, from: Address, to: Address, pieces: Vec<Vec<u8>>, then: Then) {
        let now = self.now;
        let Some(machine) = self.machines.get_mut(&to) else {
            return;
        };
        let Some(conn) = machine.node.accept(now, at(from)) else {
            return;
        };
        let id = (to, conn);
        self.ends.insert(id, End::new(None, from, now));
        for piece in pieces {
            self.carry(from, id, piece);
        }
        if then == Then::Close {
            self.hear_close(id);
        }
        self.dirty.insert(to);
        self.settle();
    }

    /// Returns what a process sent first to the root.
    pub(crate) fn heard(&self, who: Address) -> Vec<Vec<u8>> {
        self.heard.get(&who).cloned().unwrap_or_default()
    }
}

/// What a meddler does after its last byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    Close,
    /// It keeps the connection open.
    Wait,
}

impl End {
    const fn new(peer: Option<EndId>, remote: Address, now: Time) -> Self {
        Self {
            peer,
            remote,
            arriving: VecDeque::new(),
            queued: 0,
            closed: false,
            last_at: now,
        }
    }
}
