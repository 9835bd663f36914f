//! A network of processes in virtual time.

use std::net::{Ipv4Addr, SocketAddrV4};

use super::super::*;
use crate::shape::Shape;

pub(super) const SECRET: Secret = Secret::new([5; 32]);
/// Delay of every packet.
pub(super) const DELAY: Duration = Duration::from_micros(100);

/// A network of processes in virtual time.
pub(super) struct Net {
    pub(super) now: Time,
    pub(super) nodes: BTreeMap<Address, Node>,
    /// What each process has reported.
    pub(super) news: BTreeMap<Address, Vec<Output>>,
    pub(super) wires: BTreeMap<(Address, Conn), Wire>,
    /// Processes whose packets do not arrive. The network sends them again later, as TCP does.
    pub(super) cut: BTreeSet<Address>,
    /// Processes whose packets do not arrive, although they get those of others.
    pub(super) mute: BTreeSet<Address>,
    /// Processes that are stopped: they neither read nor write.
    pub(super) stopped: BTreeSet<Address>,
    pub(super) bytes: u64,
}

/// One end of a connection.
pub(super) struct Wire {
    pub(super) peer: Option<(Address, Conn)>,
    /// Bytes that will arrive here, with the time.
    pub(super) arriving: VecDeque<(Time, Vec<u8>)>,
    /// The time at which this end hears that the other one has closed.
    pub(super) closed: Option<Time>,
}

pub(super) fn at(address: Address) -> SocketAddr {
    let port = 1000 + u16::try_from(address.0).unwrap();
    SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), port))
}

pub(super) fn config(me: Address) -> Config {
    Config {
        me,
        build: Build::new("rally test"),
        secret: SECRET,
        timing: Timing::default(),
        at: vec![at(me)],
    }
}

pub(super) fn entropy(me: Address) -> Entropy {
    let mut seed = [9; 32];
    seed[..4].copy_from_slice(&me.0.to_le_bytes());
    Entropy::new(seed)
}

impl Net {
    /// A root that expects `members` processes in a tree of the given radix. None of them runs yet.
    pub(super) fn new(members: u32, radix: u32) -> Self {
        let shape = Shape::new(members + 1, radix.try_into().unwrap());
        let parents = (1..=members).map(|member| {
            let position = shape.position(base::NodeId(member)).unwrap();
            (Address(member), Address(position.parent().unwrap().0))
        });
        let root = Node::root(config(Address::ROOT), entropy(Address::ROOT), parents);
        Self {
            now: Time::ZERO,
            nodes: BTreeMap::from([(Address::ROOT, root)]),
            news: BTreeMap::new(),
            wires: BTreeMap::new(),
            cut: BTreeSet::new(),
            mute: BTreeSet::new(),
            stopped: BTreeSet::new(),
            bytes: 0,
        }
    }

    /// A tree in which all processes have joined.
    pub(super) fn joined(members: u32, radix: u32) -> Self {
        let mut net = Self::new(members, radix);
        for member in 1..=members {
            net.start(member);
        }
        net.run(Duration::from_secs(1));
        assert_eq!(net.joined_members(), (1..=members).collect::<Vec<_>>());
        net.news.clear();
        net
    }

    pub(super) fn start(&mut self, member: u32) {
        self.start_with(config(Address(member)), vec![at(Address::ROOT)]);
    }

    pub(super) fn start_with(&mut self, config: Config, root: Vec<SocketAddr>) {
        let me = config.me;
        let mut node = Node::member(self.now, config, entropy(me), root);
        node.merge_with(super::merging::merge);
        self.nodes.insert(me, node);
    }

    pub(super) fn root(&mut self) -> &mut Node {
        self.nodes.get_mut(&Address::ROOT).unwrap()
    }

    /// Ends a process, as the kernel does: all its connections are closed.
    pub(super) fn kill(&mut self, member: u32) {
        let me = Address(member);
        self.nodes.remove(&me);
        let ends: Vec<(Address, Conn)> = self
            .wires
            .keys()
            .filter(|end| end.0 == me)
            .copied()
            .collect();
        for end in ends {
            self.close(end);
        }
    }

    pub(super) fn close(&mut self, end: (Address, Conn)) {
        if let Some(wire) = self.wires.remove(&end)
            && let Some(peer) = wire.peer
            && let Some(peer) = self.wires.get_mut(&peer)
        {
            peer.closed = Some(self.now + DELAY);
        }
    }

    /// Closes the connection of a process to its parent on both sides, with everything that is on its way.
    pub(super) fn reset(&mut self, member: u32) {
        let me = Address(member);
        let parent = self.nodes[&me].uplink.parent().unwrap();
        let LinkState::Up { conn, .. } = self.nodes[&me].links[&parent].state else {
            return;
        };
        let peer = self.wires[&(me, conn)].peer.unwrap();
        for end in [(me, conn), peer] {
            let wire = self.wires.get_mut(&end).unwrap();
            wire.arriving.clear();
            wire.closed = Some(self.now);
            wire.peer = None;
        }
    }

    /// Breaks the connection of a process to the process above it, if its handshake is complete.
    pub(super) fn reset_any(&mut self, member: u32) {
        let me = Address(member);
        let Some(node) = self.nodes.get(&me) else {
            return;
        };
        let upward = node.connections.iter().find(|(_, one)| match &one.phase {
            Phase::Greeting => true,
            Phase::Linked(peer) => node.links[peer].side == Side::Parent,
            _ => false,
        });
        let Some((conn, _)) = upward else {
            return;
        };
        let end = (me, *conn);
        let peer = self.wires.get(&end).and_then(|wire| wire.peer);
        for end in [Some(end), peer].into_iter().flatten() {
            if let Some(wire) = self.wires.get_mut(&end) {
                wire.arriving.clear();
                wire.closed = Some(self.now);
                wire.peer = None;
            }
        }
    }

    pub(super) fn joined_members(&self) -> Vec<u32> {
        let mut joined: Vec<u32> = self
            .news_of(0)
            .iter()
            .filter_map(|news| match news {
                Output::Joined(who) => Some(who.0),
                _ => None,
            })
            .collect();
        joined.sort_unstable();
        joined
    }

    pub(super) fn news_of(&self, address: u32) -> &[Output] {
        self.news.get(&Address(address)).map_or(&[], Vec::as_slice)
    }

    /// Returns the messages that a process has received, by sender and content.
    pub(super) fn received(&self, address: u32) -> Vec<(u32, Vec<u8>)> {
        let received = self.news_of(address).iter().filter_map(|news| match news {
            Output::Received { from, body, .. } => Some((from.0, body.to_vec())),
            _ => None,
        });
        received.collect()
    }

    /// Carries out what the processes ask for, once. Returns false if nothing was to be done.
    pub(super) fn step(&mut self) -> bool {
        let mut did = false;
        let awake = self.nodes.keys().filter(|me| !self.stopped.contains(me));
        let awake: Vec<Address> = awake.copied().collect();
        for me in awake {
            while let Some(output) = self.nodes.get_mut(&me).and_then(Node::poll) {
                did = true;
                self.carry_out(me, output);
            }
            did |= self.write(me);
            did |= self.read(me);
        }
        did
    }

    pub(super) fn write(&mut self, me: Address) -> bool {
        let mut did = false;
        let now = self.now;
        for conn in self.nodes[&me].to_write() {
            // A socket that takes this much.
            let Some(peer) = self.wires.get(&(me, conn)).and_then(|wire| wire.peer) else {
                continue;
            };
            let queued = self.wires.get(&peer).map_or(0, |wire| {
                wire.arriving.iter().map(|(_, bytes)| bytes.len()).sum()
            });
            if queued > 200_000 {
                continue;
            }
            let node = self.nodes.get_mut(&me).unwrap();
            let bytes = node.outgoing(now, conn).to_vec();
            if bytes.is_empty() {
                continue;
            }
            node.written(now, conn, bytes.len());
            did = true;
            self.bytes += bytes.len() as u64;
            if let Some(wire) = self.wires.get_mut(&peer) {
                wire.arriving.push_back((now + DELAY, bytes));
            }
        }
        did
    }

    pub(super) fn read(&mut self, me: Address) -> bool {
        let mut did = false;
        let ends: Vec<(Address, Conn)> = self
            .wires
            .keys()
            .filter(|end| end.0 == me)
            .copied()
            .collect();
        for end in ends {
            let Some(wire) = self.wires.get_mut(&end) else {
                continue;
            };
            let peer = wire.peer.map(|peer| peer.0);
            let is_lost = |from| self.cut.contains(&from) || self.mute.contains(&from);
            if self.cut.contains(&me) || peer.is_some_and(is_lost) {
                continue;
            }
            let node = self.nodes.get_mut(&me).unwrap();
            if wire
                .arriving
                .front()
                .is_some_and(|(time, _)| *time <= self.now)
            {
                let (_, bytes) = wire.arriving.pop_front().unwrap();
                node.handle(self.now, Input::Bytes(end.1, &bytes));
                did = true;
            } else if wire.arriving.is_empty() && wire.closed.is_some_and(|time| time <= self.now) {
                self.wires.remove(&end);
                node.handle(self.now, Input::Closed(end.1));
                did = true;
            }
        }
        did
    }

    pub(super) fn carry_out(&mut self, me: Address, output: Output) {
        match output {
            Output::Dial(conn, to) => self.dial(me, conn, to),
            Output::Close(conn) => self.close((me, conn)),
            news => self.news.entry(me).or_default().push(news),
        }
    }

    pub(super) fn dial(&mut self, me: Address, conn: Conn, to: SocketAddr) {
        let peer = Address(u32::from(to.port()) - 1000);
        if [me, peer]
            .iter()
            .any(|one| self.cut.contains(one) || self.mute.contains(one))
        {
            return;
        }
        let now = self.now;
        let answer = match self.nodes.get_mut(&peer) {
            // From a port of its own.
            Some(node) => node.accept(now, SocketAddr::new(at(me).ip(), 40_000)),
            None => {
                let node = self.nodes.get_mut(&me).unwrap();
                return node.handle(now, Input::DialFailed(conn, DialError::Refused));
            }
        };
        let node = self.nodes.get_mut(&me).unwrap();
        node.handle(now, Input::Connected(conn));
        let Some(theirs) = answer else {
            return node.handle(now, Input::Closed(conn));
        };
        let wire = |peer| Wire {
            peer: Some(peer),
            arriving: VecDeque::new(),
            closed: None,
        };
        self.wires.insert((me, conn), wire((peer, theirs)));
        self.wires.insert((peer, theirs), wire((me, conn)));
    }

    /// Runs until nothing happens any more, or for this long.
    pub(super) fn run(&mut self, most: Duration) {
        let until = self.now + most;
        loop {
            if self.step() {
                continue;
            }
            let awake = |me: &Address| !self.stopped.contains(me);
            let reached = |me: &Address| awake(me) && !self.cut.contains(me);
            let arrivals = self.wires.iter().filter(|(end, wire)| {
                let is_lost = |peer: (Address, Conn)| {
                    self.cut.contains(&peer.0) || self.mute.contains(&peer.0)
                };
                reached(&end.0) && !wire.peer.is_some_and(is_lost)
            });
            let arrivals = arrivals.filter_map(|(_, wire)| {
                let bytes = wire.arriving.front().map(|(time, _)| *time);
                bytes.or(wire.closed)
            });
            let nodes = self.nodes.iter().filter(|(me, _)| awake(me));
            let deadlines = nodes.filter_map(|(_, node)| node.deadline());
            match arrivals.chain(deadlines).min() {
                Some(next) if next <= until => self.now = self.now.max(next),
                _ => {
                    self.now = until;
                    return;
                }
            }
            let now = self.now;
            let due: Vec<Address> = self
                .nodes
                .iter()
                .filter(|(me, node)| awake(me) && node.deadline().is_some_and(|time| time <= now))
                .map(|(me, _)| *me)
                .collect();
            for me in due {
                self.nodes.get_mut(&me).unwrap().handle(now, Input::Tick);
            }
        }
    }

    pub(super) fn cast(&mut self, to: &[u32], body: &'static [u8]) {
        let now = self.now;
        let to: BTreeSet<Address> = to.iter().map(|one| Address(*one)).collect();
        let root = self.nodes.get_mut(&Address::ROOT).unwrap();
        root.cast(now, &to, Lane::Control, &Bytes::from_static(body));
    }

    pub(super) fn send(&mut self, from: u32, lane: Lane, body: Vec<u8>) {
        let node = self.nodes.get_mut(&Address(from)).unwrap();
        node.send(lane, Bytes::from(body));
    }
}
