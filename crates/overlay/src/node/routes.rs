//! Routing of packets: from the root to its members, and from a process to the root.

use std::{collections::BTreeSet, ops::Bound};

use base::Time;
use bytes::Bytes;

use super::{Link, LinkState, Node, Output, QUEUE_MAX, Side};
use crate::{
    lanes::{Lane, window},
    packet::{self, Address, Head, Loss, Members, Purpose},
    planted::{self, Bug},
};

impl Node {
    /// Ends the session: each process gets [`Output::Ended`] behind everything that was sent before.
    pub fn end(&mut self) {
        self.is_ended = true;
        if planted::is(Bug::EndNotPassedOn) && self.config.me != Address::ROOT {
            return;
        }
        for link in self.links.values_mut() {
            if link.side == Side::Child {
                link.push(Lane::Control, &Head::Bye, Bytes::new());
            }
        }
    }

    /// Returns true if the way to the root takes another message of a lane.
    pub(super) fn takes(&self, lane: Lane) -> bool {
        match self.uplink.parent() {
            Some(parent) => self
                .links
                .get(&parent)
                .is_some_and(|link| link.lanes.unsent(lane) < window(lane)),
            None => self.config.me == Address::ROOT,
        }
    }

    pub(super) fn push_up(&mut self, lane: Lane, head: &Head, body: Bytes) {
        let parent = self.uplink.parent();
        if let Some(link) = parent.and_then(|parent| self.links.get_mut(&parent)) {
            link.push(lane, head, body);
        }
    }

    /// Handles the packets that have arrived, as far as there is room for them. The links take turns.
    pub(super) fn relay(&mut self, now: Time) {
        let mut is_moving = true;
        while is_moving && !self.arrived.is_empty() {
            is_moving = false;
            let behind = (Bound::Excluded(self.served), Bound::Unbounded);
            let turns = self.arrived.range(behind);
            let turns = turns.chain(self.arrived.range(..=self.served));
            for peer in turns.copied().collect::<Vec<_>>() {
                match self.relay_one(now, peer) {
                    Relayed::Packet => {
                        self.served = peer;
                        is_moving = true;
                    }
                    Relayed::Nothing => drop(self.arrived.remove(&peer)),
                    Relayed::NoRoom => {}
                }
            }
        }
    }

    fn relay_one(&mut self, now: Time, peer: Address) -> Relayed {
        for lane in Lane::ALL {
            let is_child = match self.links.get(&peer) {
                Some(link) => link.side == Side::Child,
                None => return Relayed::Nothing,
            };
            // Without room on the control lane, the bulk lane waits too: bulk frames do not overtake control frames.
            if is_child && !self.takes(lane) && !planted::is(Bug::TakenWithoutRoom) {
                return Relayed::NoRoom;
            }
            if self.take_frame(now, peer, lane) {
                return Relayed::Packet;
            }
        }
        Relayed::Nothing
    }

    /// Handles the next frame of a link; returns false if there is none.
    fn take_frame(&mut self, now: Time, peer: Address, lane: Lane) -> bool {
        let Some(link) = self.links.get_mut(&peer) else {
            return false;
        };
        let side = link.side;
        match link.lanes.frame(lane) {
            Ok(Some(frame)) => self.on_frame(now, peer, side, lane, frame),
            Ok(None) => return false,
            Err(error) => self.lose_link(now, peer, Loss::Broken(error.to_string())),
        }
        true
    }

    /// Handles what has arrived on a link that is given up, even if the way to the root is full: at most a window and a
    /// frame of each lane.
    pub(super) fn drain(&mut self, now: Time, peer: Address) {
        for lane in Lane::ALL {
            while self.take_frame(now, peer, lane) {}
        }
    }

    /// Returns true if a process is this child, or below it.
    pub(super) fn has(&self, peer: Address, member: Address) -> bool {
        let link = self.links.get(&peer);
        link.is_some_and(|link| member == peer || link.below.contains(&member))
    }

    fn on_frame(&mut self, now: Time, peer: Address, side: Side, lane: Lane, frame: Bytes) {
        let Some((head, body)) = packet::decode(frame) else {
            let loss = Loss::Broken("it sent a packet that does not decode".to_owned());
            return self.lose_link(now, peer, loss);
        };
        let is_root = self.config.me == Address::ROOT;
        match (head, side) {
            (Head::Up { from, number }, Side::Child) if self.has(peer, from) => {
                if !is_root {
                    self.pass_before(lane, from);
                    self.push_up(lane, &Head::Up { from, number }, body);
                } else if self.on_numbered(now, from, lane, number, &body) {
                    let received = Output::Received { from, lane, body };
                    self.outputs.push_back(received);
                }
            }
            (Head::Mergeable { class, of }, Side::Child) => {
                self.on_mergeable(now, peer, lane, class, (&of, body));
            }
            (Head::Joined { who, at }, Side::Child) => self.on_joined_below(now, peer, who, at),
            (Head::Lost { who, loss, .. }, Side::Child) if is_root => {
                self.on_lost_below(now, peer, who, loss.printable());
            }
            (Head::Lost { who, below, loss }, Side::Child)
                if who != peer && self.has(peer, who) =>
            {
                self.stop_awaiting(peer);
                let mut gone = BTreeSet::new();
                if let Some(link) = self.links.get_mut(&peer) {
                    gone = below.among(&link.below);
                    link.below.retain(|one| *one != who && !gone.contains(one));
                }
                self.pass_all_held();
                let head = Head::Lost {
                    who,
                    below: Members::of(&gone),
                    loss: loss.printable(),
                };
                self.push_up(Lane::Bulk, &head, Bytes::new());
            }
            // The process was given up before it joined, so the root does not count it as a member.
            (Head::Up { .. }, Side::Child) if is_root => {}
            (Head::Up { .. } | Head::Lost { .. }, Side::Child) => {
                let loss = "it sent a packet about a process that is not below it";
                self.lose_link(now, peer, Loss::Broken(loss.to_owned()));
            }
            (
                Head::Down {
                    to,
                    number,
                    purpose,
                },
                Side::Parent,
            ) => {
                if self.on_cast(now, &to, lane, number, purpose, &body) {
                    let from = Address::ROOT;
                    let news = match purpose {
                        Purpose::Message => Some(Output::Received { from, lane, body }),
                        Purpose::Ask { id, .. } => Some(Output::Asked { id, body }),
                        Purpose::Again(_) | Purpose::End(_) => None,
                    };
                    self.outputs.extend(news);
                }
            }
            (Head::Part { id, of }, Side::Child) => self.on_part(now, peer, id, &of, body),
            (Head::Heard { received, then }, Side::Parent) => self.on_heard(&received, then),
            (Head::Done { casts }, Side::Child) => self.on_done(peer, casts),
            (Head::Bye, Side::Parent) => {
                self.end();
                self.pass_all_held();
                self.push_up(Lane::Control, &Head::Bye, Bytes::new());
                self.outputs.push_back(Output::Ended);
            }
            (Head::Bye, Side::Child) => {
                if let Some(link) = self.links.get_mut(&peer) {
                    match link.state {
                        LinkState::Up { conn, heard, .. } => {
                            link.state = LinkState::Ending { conn, heard };
                        }
                        LinkState::Ending { .. } => {}
                        LinkState::Down { .. } => drop(self.links.remove(&peer)),
                    }
                }
            }
            (
                Head::Up { .. }
                | Head::Joined { .. }
                | Head::Lost { .. }
                | Head::Done { .. }
                | Head::Part { .. }
                | Head::Mergeable { .. },
                Side::Parent,
            )
            | (Head::Down { .. } | Head::Heard { .. }, Side::Child) => {
                let loss = Loss::Broken("it sent a packet in the wrong direction".to_owned());
                self.lose_link(now, peer, loss);
            }
        }
    }
}

/// What became of the packets of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relayed {
    Packet,
    Nothing,
    NoRoom,
}

impl Link {
    /// Queues a packet; returns false if the peer has too much to read.
    pub(super) fn push(&mut self, lane: Lane, head: &Head, body: Bytes) -> bool {
        let pushed = self.lanes.push(lane, &packet::encode_head(head), body);
        pushed.is_ok() && self.lanes.unsent(lane) <= QUEUE_MAX
    }
}
