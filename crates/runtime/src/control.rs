//! The socket at which other processes of the user ask for something (`docs/formats/control.md`). It is opened for jobs
//! whose ranks are held, so that others do not pay for it, and goes with the directory of the session.

use std::{collections::BTreeMap, os::fd::AsFd, path::Path, time::Duration};

use base::Time;
use dvm::{
    Controller, ControllerInput,
    control::{MAX_LINE, Reply},
    proto::Missing,
};
use os::{Interest, Token};

use super::{
    complaints::Complaints,
    reactor::{Reactor, Read, Source},
};

/// Connections that are served at once; others wait in the kernel's queue.
const MAX_PEERS: usize = 8;

/// Bytes read at once.
const READ_MAX: usize = 4096;
/// How long whoever has connected may take to ask.
const PATIENCE: Duration = Duration::from_secs(5);

/// The beginning of the socket's name in the directory of the session; behind it stands the front's pid.
pub(crate) const NAME: &str = "control-";

#[derive(Debug)]
struct Peer {
    token: Token,
    said: Vec<u8>,
    until: Time,
}

/// The socket and who has connected to it.
#[derive(Debug, Default)]
pub(super) struct Control {
    listener: Option<Token>,
    peers: BTreeMap<u64, Peer>,
    next: u64,
}

impl Control {
    /// Opens the socket, if it is not open. Without it nobody can ask, which is said.
    pub(super) fn open(
        &mut self,
        session: Option<&Path>,
        front: i32,
        reactor: &mut Reactor,
        complaints: &mut Complaints,
    ) {
        let (None, Some(session)) = (&self.listener, session) else {
            return;
        };
        let path = session.join(format!("{NAME}{front}"));
        let opened = os::make_private_dirs(session)
            .and_then(|()| os::listen_at(&path))
            .and_then(|listener| reactor.add(listener, Interest::Read, Source::Control));
        match opened {
            Ok(token) => self.listener = Some(token),
            Err(error) => complaints.add(Missing::Control, &error),
        }
    }

    /// Takes who waits, as many as are served at once.
    pub(super) fn accept(&mut self, now: Time, reactor: &mut Reactor, complaints: &mut Complaints) {
        let Some(listener) = self.listener else {
            return;
        };
        while self.peers.len() < MAX_PEERS {
            let Some(fd) = reactor.fd(listener) else {
                return;
            };
            let accepted = match os::accept_at(fd.as_fd()) {
                Ok(Some(accepted)) => accepted,
                Ok(None) => return,
                Err(error) => {
                    complaints.add(Missing::Control, &error);
                    break;
                }
            };
            let ticket = self.next;
            self.next += 1;
            if let Ok(token) = reactor.add(accepted, Interest::Read, Source::Peer(ticket)) {
                let peer = Peer {
                    token,
                    said: Vec::new(),
                    until: now + PATIENCE,
                };
                self.peers.insert(ticket, peer);
            }
        }
        // Until one of them goes, or a descriptor is free.
        let _ = reactor.set_interest(listener, Interest::None);
    }

    /// A descriptor may be free again, or there may be room for one more.
    pub(super) fn resume(&self, reactor: &mut Reactor) {
        if let Some(listener) = self.listener
            && self.peers.len() < MAX_PEERS
        {
            let _ = reactor.set_interest(listener, Interest::Read);
        }
    }

    /// When [`Self::on_tick`] is due.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.peers.values().map(|peer| peer.until).min()
    }

    /// Cuts off who takes too long.
    pub(super) fn on_tick(&mut self, now: Time, reactor: &mut Reactor) {
        let late = self.peers.iter().filter(|(_, peer)| peer.until <= now);
        let late: Vec<u64> = late.map(|(ticket, _)| *ticket).collect();
        for ticket in late {
            self.close(ticket, reactor);
        }
    }

    /// Reads what somebody asks.
    pub(super) fn read(
        &mut self,
        now: Time,
        ticket: u64,
        reactor: &mut Reactor,
        controller: &mut Controller,
    ) {
        let Some(peer) = self.peers.get_mut(&ticket) else {
            return;
        };
        match reactor.read(peer.token, READ_MAX) {
            Some(Ok(Read::WouldBlock)) | None => return,
            Some(Ok(Read::Bytes(bytes))) => peer.said.extend(bytes),
            Some(Ok(Read::Closed) | Err(_)) => return self.close(ticket, reactor),
        }
        let end = peer.said.iter().position(|byte| *byte == b'\n');
        let line = match end {
            None if peer.said.len() < MAX_LINE => return,
            None => None,
            Some(end) => std::str::from_utf8(&peer.said[..end]).ok(),
        };
        match line.and_then(|line| line.parse().ok()) {
            Some(request) => controller.handle(now, ControllerInput::Asked { ticket, request }),
            None => self.answer(ticket, &Reply::Unreadable, reactor),
        }
    }

    /// Tells somebody what came of it, and closes the connection.
    pub(super) fn answer(&mut self, ticket: u64, reply: &Reply, reactor: &mut Reactor) {
        if let Some(peer) = self.peers.get(&ticket) {
            // A line fits into a socket to which nothing was written before. Whoever has gone does not hear it.
            let _ = reactor.write(peer.token, reply.line().as_bytes());
        }
        self.close(ticket, reactor);
    }

    fn close(&mut self, ticket: u64, reactor: &mut Reactor) {
        if let Some(peer) = self.peers.remove(&ticket) {
            reactor.close(peer.token);
        }
    }
}
