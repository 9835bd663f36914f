//! One connection: its handshake, its messages, its end.

use base::Time;
use bytes::Bytes;

use super::{Conn, LOST_DELAY, Output, PeerOwner, Refusal, ReplyTo, Server};
use crate::{
    codec::{Format, Writer},
    error::Unsupported,
    frame::{self, Framer, Tag},
    handshake::{ConnectorKind, Hello, Welcome},
    message::{Answer, GroupForm, Push, Request},
    value::{Proc, Status},
};

/// A connection and how far it has come.
#[derive(Debug)]
pub(super) struct Peer {
    framer: Framer,
    state: State,
    /// Requests that it has not been answered yet.
    waiting: usize,
}

#[derive(Debug)]
enum State {
    Greeting,
    Connected(Known),
    Finalized(Known),
}

/// Who is at the other end, and how it writes.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) proc: Proc,
    pub(super) format: Format,
    pub(super) group_form: GroupForm,
}

impl Peer {
    /// Who it is, once it has said so.
    pub(super) const fn known(&self) -> Option<&Known> {
        match &self.state {
            State::Greeting => None,
            State::Connected(known) | State::Finalized(known) => Some(known),
        }
    }

    /// Who it is, as long as it takes part.
    pub(super) const fn connected(&self) -> Option<&Known> {
        match &self.state {
            State::Connected(known) => Some(known),
            State::Greeting | State::Finalized(_) => None,
        }
    }

    /// The message of an answer.
    pub(super) fn answer(&mut self, tag: u32, answer: &Answer) -> Option<Bytes> {
        let format = self.known()?.format;
        self.waiting = self.waiting.saturating_sub(1);
        let mut writer = Writer::behind(format, frame::start(0));
        answer.encode(&mut writer);
        Some(frame::finish(writer.into_bytes(), Tag::Request(tag)).into())
    }

    /// The message of an answer that was packed before, in this peer's format.
    pub(super) fn packed_answer(
        &mut self,
        tag: u32,
        write: impl FnOnce(&mut Writer),
    ) -> Option<Bytes> {
        let format = self.known()?.format;
        self.waiting = self.waiting.saturating_sub(1);
        let mut writer = Writer::behind(format, frame::start(0));
        write(&mut writer);
        Some(frame::finish(writer.into_bytes(), Tag::Request(tag)).into())
    }

    /// The message of a push.
    pub(super) fn push(&self, push: &Push) -> Option<Bytes> {
        let format = self.connected()?.format;
        let mut writer = Writer::behind(format, frame::start(0));
        push.encode(&mut writer);
        Some(frame::finish(writer.into_bytes(), push.tag()).into())
    }
}

/// What the next bytes of a connection are.
enum Next {
    Nothing,
    Hello(Bytes),
    Message(frame::Frame),
}

impl Server {
    pub(super) fn on_accepted(&mut self, conn: Conn, owner: PeerOwner) {
        // Before a byte is read: what a stranger sends is not even parsed.
        let refusal = match owner {
            PeerOwner::Uid(uid) if uid == self.config.uid => None,
            PeerOwner::Uid(actual) => Some(Refusal::WrongOwner {
                expected: self.config.uid,
                actual,
            }),
            PeerOwner::Unknown => Some(Refusal::UnknownOwner),
        };
        if let Some(error) = refusal {
            self.out.push_back(Output::Refused { proc: None, error });
            self.out.push_back(Output::Close { conn });
            return;
        }
        let peer = Peer {
            framer: Framer::default(),
            state: State::Greeting,
            waiting: 0,
        };
        self.peers.insert(conn, peer);
    }

    pub(super) fn on_bytes(&mut self, now: Time, conn: Conn, bytes: &[u8]) {
        let Some(peer) = self.peers.get_mut(&conn) else {
            return;
        };
        peer.framer.push(bytes);
        loop {
            // A message may have closed the connection.
            let Some(peer) = self.peers.get_mut(&conn) else {
                return;
            };
            let next = match peer.state {
                State::Greeting => peer
                    .framer
                    .next_handshake()
                    .map(|hello| hello.map_or(Next::Nothing, Next::Hello)),
                State::Connected(_) | State::Finalized(_) => peer
                    .framer
                    .next_frame()
                    .map(|frame| frame.map_or(Next::Nothing, Next::Message)),
            };
            match next {
                Ok(Next::Nothing) => return,
                Ok(Next::Hello(payload)) => self.on_hello(now, conn, &payload),
                Ok(Next::Message(message)) => self.on_message(now, conn, &message),
                Err(error) => self.refuse(now, conn, error.into()),
            }
        }
    }

    fn on_hello(&mut self, now: Time, conn: Conn, payload: &Bytes) {
        let hello = match Hello::decode(payload) {
            Ok(hello) => hello,
            Err(error) => return self.refuse(now, conn, error.into()),
        };
        match self.admit(&hello) {
            Err(refusal) => self.refuse(now, conn, refusal),
            Ok(known) => {
                let Some(peer) = self.peers.get_mut(&conn) else {
                    return;
                };
                let proc = known.proc.clone();
                peer.state = State::Connected(known);
                // The number is for headers, where nobody looks at it.
                let index = u32::try_from(conn.0 & 0x7fff_ffff).unwrap_or(0);
                let welcome = Welcome::Client {
                    status: Status::SUCCESS,
                    index,
                };
                self.out.push_back(Output::Send {
                    conn,
                    bytes: welcome.encode().into(),
                });
                self.silent.remove(&proc);
                if let Some(job) = self.jobs.get_mut(&proc.nspace) {
                    job.connected(proc.rank);
                }
                self.out.push_back(Output::Connected { proc });
            }
        }
    }

    fn admit(&self, hello: &Hello) -> Result<Known, Refusal> {
        let format = hello.format()?;
        if !matches!(hello.security.to_bytes(), b"native" | b"none") {
            let theirs = hello.security.to_string_lossy().chars().take(40).collect();
            return Err(Refusal::UnknownSecurity(theirs));
        }
        if hello.store.to_bytes() != b"hash" {
            let theirs = hello.store.to_string_lossy().chars().take(40).collect();
            return Err(Refusal::UnknownStore(theirs));
        }
        let proc = match (hello.kind, &hello.proc) {
            (ConnectorKind::Client | ConnectorKind::Singleton, Some(proc)) => proc.clone(),
            _ => return Err(Refusal::Tool),
        };
        let known = self
            .jobs
            .get(&proc.nspace)
            .is_some_and(|job| job.is_local(proc.rank));
        if !known {
            return Err(Refusal::UnknownProc(proc));
        }
        Ok(Known {
            proc,
            format,
            group_form: GroupForm::of_version(hello.version_numbers()),
        })
    }

    fn on_message(&mut self, now: Time, conn: Conn, message: &frame::Frame) {
        let Some(peer) = self.peers.get_mut(&conn) else {
            return;
        };
        let tag = match message.tag {
            Tag::Request(tag) => tag,
            Tag::Heartbeat => {
                if let Some(known) = peer.connected() {
                    let proc = known.proc.clone();
                    self.monitors.heartbeat(now, &proc);
                }
                return;
            }
            Tag::Event | Tag::Output | Tag::Reserved(_) => {
                let error = crate::Error::PeerMisbehaved {
                    expected: "a request",
                    got: "a message under a tag of the server",
                };
                return self.refuse(now, conn, error.into());
            }
        };
        let State::Connected(known) = &peer.state else {
            // It said that it would send nothing more. Asked all the same, it gets an answer, lest it wait.
            let reply = ReplyTo { conn, tag };
            return self.status(reply, Status::INIT);
        };
        if peer.waiting >= super::MAX_WAITING {
            return self.refuse(now, conn, Refusal::TooManyRequests);
        }
        let from = known.proc.clone();
        match Request::decode(known.format, &message.payload) {
            Ok(request) => {
                if request.command() != crate::message::Command::Deregister {
                    peer.waiting += 1;
                }
                let finalize = request == Request::Finalize;
                let reply = ReplyTo { conn, tag };
                if finalize {
                    self.on_finalize(reply, &from);
                } else {
                    self.on_request(now, reply, &from, request);
                }
            }
            // A command that we do not know, or that has a value of a kind that we do not know: it is told, and the
            // connection lives, for the frame says where the next message begins.
            Err(crate::Error::Unsupported {
                what: Unsupported::Command(_) | Unsupported::Kind(_),
            }) => {
                peer.waiting += 1;
                self.status(ReplyTo { conn, tag }, Status::NOT_SUPPORTED);
            }
            Err(error) => self.refuse(now, conn, error.into()),
        }
    }

    fn on_finalize(&mut self, reply: ReplyTo, from: &Proc) {
        let conn = reply.conn;
        self.status(reply, Status::SUCCESS);
        self.events.forget(conn);
        if let Some(peer) = self.peers.get_mut(&conn)
            && let Some(known) = peer.known().cloned()
        {
            peer.state = State::Finalized(known);
        }
        if let Some(job) = self.jobs.get_mut(&from.nspace) {
            job.finalized(from.rank);
        }
        self.monitors.forget(from);
        self.out.push_back(Output::Finalized { proc: from.clone() });
    }

    /// Closes a connection for what its peer did.
    pub(super) fn refuse(&mut self, now: Time, conn: Conn, error: Refusal) {
        let proc = self
            .peers
            .get(&conn)
            .and_then(Peer::known)
            .map(|known| known.proc.clone());
        self.out.push_back(Output::Refused { proc, error });
        self.out.push_back(Output::Close { conn });
        self.on_closed(now, conn);
    }

    pub(super) fn on_closed(&mut self, now: Time, conn: Conn) {
        let Some(peer) = self.peers.remove(&conn) else {
            return;
        };
        self.events.forget(conn);
        self.gets.forget(conn);
        self.collectives.forget(conn);
        let State::Connected(known) = peer.state else {
            return;
        };
        let proc = known.proc;
        let lost = self
            .jobs
            .get_mut(&proc.nspace)
            .is_some_and(|job| job.disconnected(proc.rank));
        // Another process of the same name may still be there, the child of a fork or its parent.
        if lost {
            self.monitors.forget(&proc);
            self.silent.insert(proc, now + LOST_DELAY);
        }
    }
}
