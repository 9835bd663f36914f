//! The records of connections: which notes and packets are encrypted and sent next, and what arrives.

use std::collections::VecDeque;

use base::Time;

use super::{Conn, Connection, Link, LinkState, Node, Phase};
use crate::{
    lanes::Lane,
    packet::{self, Address, Note},
};

/// Number of encrypted bytes that wait for a socket. More are encrypted when these were written.
const SEALED_MAX: usize = 64 * 1024;

/// The first byte of a record: its kind.
const KIND_CONTROL: u8 = 0;
const KIND_BULK: u8 = 1;
const KIND_NOTE: u8 = 2;

impl Node {
    /// Returns the connections that have bytes to write.
    #[must_use]
    pub fn to_write(&self) -> Vec<Conn> {
        let with_bytes = self.connections.iter().filter(|(_, connection)| {
            !connection.secure.outgoing().is_empty() || self.can_seal(connection)
        });
        with_bytes.map(|(conn, _)| *conn).collect()
    }

    pub(super) fn can_seal(&self, connection: &Connection) -> bool {
        connection.secure.is_open()
            && (!connection.notes.is_empty()
                || match &connection.phase {
                    Phase::Linked(peer) => self
                        .links
                        .get(peer)
                        .is_some_and(|link| link.lanes.can_send() || link.lanes.has_credit()),
                    _ => false,
                })
    }

    /// Encrypts what fits, and returns the bytes to write to a connection. Report what was written with
    /// [`Self::written`].
    pub fn outgoing(&mut self, now: Time, conn: Conn) -> &[u8] {
        let Some(connection) = self.connections.get_mut(&conn) else {
            return &[];
        };
        if connection.secure.is_open() {
            let mut link = match &connection.phase {
                Phase::Linked(peer) => self.links.get_mut(peer),
                _ => None,
            };
            let mut record = Vec::new();
            while connection.secure.outgoing().len() < SEALED_MAX {
                record.clear();
                let has_one = match connection.notes.pop_front() {
                    Some(note) => {
                        if connection.notes.is_empty() {
                            // The next one comes much later, if at all.
                            connection.notes = VecDeque::new();
                        }
                        record = encode_note(&note);
                        true
                    }
                    None => link.as_mut().is_some_and(|link| link.record(&mut record)),
                };
                if !has_one {
                    break;
                }
                connection.secure.seal(&record);
                if let Some(link) = &mut link
                    && let LinkState::Up { said, .. } = &mut link.state
                {
                    *said = now;
                }
            }
        }
        connection.secure.outgoing()
    }

    /// Reports that bytes were written.
    pub fn written(&mut self, now: Time, conn: Conn, count: usize) {
        let Some(connection) = self.connections.get_mut(&conn) else {
            return;
        };
        connection.secure.written(count);
        if matches!(connection.phase, Phase::Closing) && connection.is_written() {
            self.close(conn);
        }
        // There may be room again for packets of children.
        if self.config.me != Address::ROOT {
            self.relay(now);
        }
    }

    pub(super) fn on_bytes(&mut self, now: Time, conn: Conn, bytes: &[u8]) {
        let Some(connection) = self.connections.get_mut(&conn) else {
            return;
        };
        if matches!(connection.phase, Phase::Silent) {
            return;
        }
        connection.secure.take(bytes);
        if let Phase::Linked(peer) = &connection.phase
            && let Some(link) = self.links.get_mut(peer)
            && let LinkState::Up { heard, .. } | LinkState::Ending { heard, .. } = &mut link.state
        {
            *heard = now;
        }
        if matches!(connection.phase, Phase::Dialing) && connection.secure.is_open() {
            self.enter(now, conn, Phase::Greeting);
            let hello = self.greet(now, conn);
            if let Some(hello) = hello
                && let Some(connection) = self.connections.get_mut(&conn)
            {
                connection.notes.push_back(Note::Hello(hello));
            }
        }
        while let Some(connection) = self.connections.get_mut(&conn) {
            match connection.secure.record() {
                Ok(Some(record)) => self.on_record(now, conn, &record),
                Ok(None) => return,
                Err(error) => return self.on_broken(now, conn, error),
            }
        }
    }

    pub(super) fn on_record(&mut self, now: Time, conn: Conn, record: &[u8]) {
        let (kind, body) = match record.split_first() {
            Some((kind, body)) => (*kind, body),
            None => (u8::MAX, record),
        };
        let Some(connection) = self.connections.get(&conn) else {
            return;
        };
        let linked = match &connection.phase {
            Phase::Linked(peer) => Some(*peer),
            _ => None,
        };
        if let Some(peer) = linked {
            self.on_answered(now, peer);
        }
        let lane = match kind {
            KIND_CONTROL => Lane::Control,
            KIND_BULK => Lane::Bulk,
            KIND_NOTE => {
                return match packet::decode_note(body) {
                    Some(note) => self.on_note(now, conn, linked, note),
                    None => self.break_rules(now, conn, "it sent a note that does not decode"),
                };
            }
            _ => return self.break_rules(now, conn, "it sent a record of an unknown kind"),
        };
        let Some(link) = linked.and_then(|peer| self.links.get_mut(&peer)) else {
            return self.break_rules(now, conn, "it sent a message before it had a place");
        };
        self.arrived.extend(linked);
        if let Err(error) = link.lanes.on_record(lane, body) {
            self.break_rules(now, conn, &error.to_string());
        }
    }

    pub(super) fn on_note(&mut self, now: Time, conn: Conn, linked: Option<Address>, note: Note) {
        match (note, linked) {
            (Note::Hello(hello), None) => self.on_hello(now, conn, hello),
            (Note::Welcome(welcome), None) => self.on_welcome(now, conn, welcome),
            (Note::Credit(credit), Some(peer)) => {
                let result = self
                    .links
                    .get_mut(&peer)
                    .map(|link| link.lanes.on_credit(credit));
                if let Some(Err(error)) = result {
                    self.break_rules(now, conn, &error.to_string());
                }
            }
            (Note::Alive, Some(_)) => {}
            (Note::Alive, None) if self.is_awaited(now, conn) => {}
            (Note::Hello(_) | Note::Welcome(_) | Note::Credit(_) | Note::Alive, _) => {
                self.break_rules(now, conn, "it sent a note at the wrong time");
            }
        }
    }
}

impl Connection {
    pub(super) fn is_written(&self) -> bool {
        self.secure.outgoing().is_empty() && (self.notes.is_empty() || !self.secure.is_open())
    }
}

impl Link {
    /// Makes the next record of a link: a report, or bytes of a lane. Returns false if there is none.
    fn record(&mut self, record: &mut Vec<u8>) -> bool {
        if let Some(credit) = self.lanes.credit() {
            *record = encode_note(&Note::Credit(credit));
            return true;
        }
        // The kind comes first, and is known last.
        record.push(KIND_NOTE);
        let Some(lane) = self.lanes.record(record) else {
            return false;
        };
        record[0] = match lane {
            Lane::Control => KIND_CONTROL,
            Lane::Bulk => KIND_BULK,
        };
        true
    }
}

fn encode_note(note: &Note) -> Vec<u8> {
    match postcard::to_extend(note, vec![KIND_NOTE]) {
        Ok(record) => record,
        Err(error) => unreachable!("a note is made of types that have an encoding: {error}"),
    }
}
