//! Links and their connections: how a link begins, is resumed, and is given up.

use std::{collections::BTreeSet, net::SocketAddr};

use base::Time;
use bytes::Bytes;

use super::{
    Comer, Conn, DialError, HANDSHAKE_MAX, Link, LinkState, Node, Phase, RECONNECT_MAX, Side,
    Timing, WAITING_MAX,
};
use crate::{
    lanes::{Lane, Lanes},
    packet::{Address, Head, Loss, Members, Note, Refusal, Welcome},
    planted::{self, Bug},
    secure::SecureError,
};

impl Node {
    pub(super) fn link(&mut self, now: Time, conn: Conn, peer: Address, number: u64, side: Side) {
        self.enter(now, conn, Phase::Linked(peer));
        let link = Link {
            number,
            side,
            joining: None,
            lanes: Lanes::default(),
            below: BTreeSet::new(),
            unreported: Default::default(),
            state: LinkState::up(now, conn),
        };
        self.links.insert(peer, Box::new(link));
    }

    /// Continues a link on another connection.
    pub(super) fn continue_link(
        &mut self,
        now: Time,
        conn: Conn,
        peer: Address,
        received: [u64; 2],
    ) {
        self.enter(now, conn, Phase::Linked(peer));
        let Some(link) = self.links.get_mut(&peer) else {
            return;
        };
        link.state = LinkState::up(now, conn);
        if let Err(error) = link.lanes.resume(received) {
            self.lose_link(now, peer, Loss::Broken(error.to_string()));
        }
    }

    /// Continues a link on a connection of the dialer, which has received this many bytes; `None` if it has not heard that
    /// the link exists.
    pub(super) fn on_resume(
        &mut self,
        now: Time,
        conn: Conn,
        who: Address,
        number: u64,
        received: Option<[u64; 2]>,
    ) {
        let old = match self.links.get_mut(&who) {
            Some(link) if link.number == number && link.side == Side::Child => link,
            _ => return self.refuse(now, conn, Refusal::Expired),
        };
        if let Err(error) = old.lanes.resume(received.unwrap_or_default()) {
            self.lose_link(now, who, Loss::Broken(error.to_string()));
            return self.refuse(now, conn, Refusal::Expired);
        }
        let welcome = match received {
            Some(_) => Welcome::Resumed {
                received: old.lanes.received(),
            },
            None => Welcome::Child,
        };
        let (state, before) = match old.state {
            LinkState::Ending { conn: before, .. } => {
                (LinkState::Ending { conn, heard: now }, Some(before))
            }
            LinkState::Up { conn: before, .. } => (LinkState::up(now, conn), Some(before)),
            LinkState::Down { .. } => (LinkState::up(now, conn), None),
        };
        old.state = state;
        self.enter(now, conn, Phase::Linked(who));
        if let Some(connection) = self.connections.get_mut(&conn) {
            connection.notes.push_back(Note::Welcome(welcome));
        }
        // The dialer may notice the loss of a connection before we do.
        if let Some(before) = before
            && !planted::is(Bug::OldConnectionKept)
        {
            self.close(before);
        }
    }

    pub(super) fn break_rules(&mut self, now: Time, conn: Conn, what: &str) {
        self.on_lost(now, conn, Loss::Broken(what.to_owned()));
    }

    pub(super) fn on_broken(&mut self, now: Time, conn: Conn, error: SecureError) {
        match self.connections.get(&conn).map(|one| &one.phase) {
            Some(
                Phase::Accepted(from)
                | Phase::Waiting {
                    comer: Comer { from, .. },
                    ..
                },
            ) => {
                self.report_refused(*from, error.into());
                // Our preamble tells a peer of another build who we are.
                self.enter(now, conn, Phase::Closing);
                if self
                    .connections
                    .get(&conn)
                    .is_some_and(|one| one.is_written())
                {
                    self.close(conn);
                }
            }
            Some(Phase::Dialing | Phase::Greeting) => {
                self.close(conn);
                self.on_dial_failed(now, conn, error.into());
            }
            Some(Phase::Linked(_)) => self.on_lost(now, conn, Loss::Broken(error.to_string())),
            Some(Phase::Silent | Phase::Closing) => self.close(conn),
            None => {}
        }
    }

    /// Handles the loss of a connection.
    pub(super) fn on_lost(&mut self, now: Time, conn: Conn, loss: Loss) {
        let Some(connection) = self.connections.get(&conn) else {
            return;
        };
        match connection.phase {
            Phase::Dialing if connection.secure.is_answered() => {
                self.close(conn);
                self.on_dial_failed(now, conn, DialError::Closed);
            }
            Phase::Dialing | Phase::Greeting => {
                self.close(conn);
                self.on_dial_failed(now, conn, DialError::Unanswered);
            }
            Phase::Accepted(from) => {
                if self.is_stranger(from.ip()) {
                    self.report_refused(from, DialError::Closed);
                }
                self.close(conn);
            }
            Phase::Waiting { .. } | Phase::Silent | Phase::Closing => self.close(conn),
            Phase::Linked(peer) => {
                let is_silent = matches!(loss, Loss::Silent { .. });
                if is_silent && self.uplink.parent() == Some(peer) {
                    self.enter(now, conn, Phase::Silent);
                } else {
                    self.close(conn);
                }
                self.on_link_down(now, peer, loss);
            }
        }
    }

    /// Handles the loss of the connection of a link.
    pub(super) fn on_link_down(&mut self, now: Time, peer: Address, loss: Loss) {
        let Timing { window, .. } = self.config.timing;
        let Some(link) = self.links.get_mut(&peer) else {
            return;
        };
        if let LinkState::Ending { .. } = link.state {
            return self.lose_link(now, peer, loss);
        }
        let wait = match &loss {
            Loss::Closed if planted::is(Bug::ClosedGivenUp) => {
                return self.lose_link(now, peer, loss);
            }
            Loss::Silent { .. } if planted::is(Bug::WindowWithoutEnd) => WAITING_MAX,
            // If the parent has died, the kernel refuses the connection. No answer at all is silence.
            Loss::Closed
                if link.side == Side::Parent && !planted::is(Bug::NoAnswerTakenForDeath) =>
            {
                window
            }
            Loss::Closed => RECONNECT_MAX,
            Loss::Silent { .. } => window,
            // The peer broke the rules: do not continue with it.
            Loss::Slow | Loss::Broken(_) | Loss::Orphan => return self.lose_link(now, peer, loss),
        };
        let until = now + wait;
        link.state = LinkState::Down { until, loss };
        if link.side == Side::Parent {
            self.redial(now, peer, until);
        }
    }

    /// Gives up a link. Nothing is lost with one whose peer has said goodbye.
    pub(super) fn lose_link(&mut self, now: Time, peer: Address, loss: Loss) {
        if !matches!(loss, Loss::Broken(_)) {
            self.drain(now, peer);
        }
        if self
            .links
            .get(&peer)
            .is_some_and(|link| link.side == Side::Child)
        {
            self.stop_awaiting(peer);
        }
        let Some(link) = self.links.remove(&peer) else {
            return;
        };
        if let LinkState::Up { conn, .. } | LinkState::Ending { conn, .. } = link.state {
            self.close(conn);
        }
        if link.joining.is_some() {
            // Nobody knows of it, and it joins elsewhere.
            return;
        }
        match (link.side, link.state) {
            (Side::Parent, _) => self.on_parent_lost(now, peer, loss),
            (Side::Child, LinkState::Ending { .. }) if !planted::is(Bug::ByeTakenForLoss) => {}
            (Side::Child, _) if self.config.me == Address::ROOT => {
                self.await_orphans(now, peer, link.below);
                self.on_members_lost(now, peer, [peer].into(), loss);
                self.forget_casts();
            }
            (Side::Child, _) if planted::is(Bug::LostNotTold) => {}
            // On the bulk lane, so that nothing of the lost process comes later.
            (Side::Child, _) => {
                self.pass_all_held();
                let head = Head::Lost {
                    who: peer,
                    below: Members::of(&link.below),
                    loss,
                };
                self.push_up(Lane::Bulk, &head, Bytes::new());
            }
        }
    }

    pub(super) fn on_tick(&mut self, now: Time) {
        let Timing { lease, .. } = self.config.timing;
        let late: Vec<(Conn, Option<SocketAddr>)> = self
            .connections
            .iter()
            .filter_map(|(conn, one)| match &one.phase {
                Phase::Accepted(from) if one.since + HANDSHAKE_MAX <= now => {
                    Some((*conn, Some(*from)))
                }
                Phase::Closing if one.since + HANDSHAKE_MAX <= now => Some((*conn, None)),
                Phase::Waiting { .. } if one.since + WAITING_MAX <= now => Some((*conn, None)),
                _ => None,
            })
            .collect();
        for (conn, from) in late {
            if from.is_some() && planted::is(Bug::HandshakeWithoutLimit) {
                continue;
            }
            if let Some(from) = from {
                self.report_refused(from, DialError::Silent(HANDSHAKE_MAX));
            }
            self.close(conn);
        }
        self.place_late(now);
        self.reassure(now);
        let peers: Vec<Address> = self.links.keys().copied().collect();
        for peer in peers {
            match self.links.get_mut(&peer).map(|link| &mut link.state) {
                Some(LinkState::Up { conn, heard, said }) => {
                    let conn = *conn;
                    if planted::is(Bug::LeaseIgnored) {
                        *heard = now;
                    }
                    if *heard + lease <= now {
                        let millis = u64::try_from(lease.as_millis()).unwrap_or(u64::MAX);
                        self.on_lost(now, conn, Loss::Silent { millis });
                    } else if *said + lease / 3 <= now {
                        // Counted as said even if the socket is full: then the peer has bytes to read.
                        let before = std::mem::replace(said, now);
                        if let Some(connection) = self.connections.get_mut(&conn)
                            && connection.notes.is_empty()
                        {
                            if !planted::is(Bug::AliveNotSent) {
                                connection.notes.push_back(Note::Alive);
                            }
                        } else if planted::is(Bug::AliveTriedAtOnce) {
                            *said = before;
                        }
                    }
                }
                Some(LinkState::Ending { heard, .. }) if *heard + lease <= now => {
                    self.lose_link(now, peer, Loss::Closed);
                }
                Some(LinkState::Down { until, loss }) if *until <= now => {
                    let loss = loss.clone();
                    self.lose_link(now, peer, loss);
                }
                _ => {}
            }
        }
        self.give_up_orphans(now);
        self.on_gather_tick(now);
        self.on_merge_tick(now);
        self.dial(now);
    }

    /// Sends a sign of life to the processes that wait for a place.
    fn reassure(&mut self, now: Time) {
        let pause = self.config.timing.lease / 3;
        for conn in self.waiting.values() {
            if let Some(connection) = self.connections.get_mut(conn)
                && let Phase::Waiting { said, .. } = &mut connection.phase
                && *said + pause <= now
            {
                *said = now;
                if connection.notes.is_empty() && !planted::is(Bug::WaitingNotReassured) {
                    connection.notes.push_back(Note::Alive);
                }
            }
        }
    }
}

impl LinkState {
    const fn up(now: Time, conn: Conn) -> Self {
        Self::Up {
            conn,
            heard: now,
            said: now,
        }
    }
}
