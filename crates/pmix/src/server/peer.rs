//! A connection to a client: handshake, messages and close.

use std::collections::BTreeMap;

use base::Time;
use bytes::Bytes;

use super::{
    Conn, Door, LOST_DELAY, MAX_WAITING, MAX_WAITING_BYTES, Output, PeerOwner, Refusal, ReplyTo,
    Server, Visitor, timers::Timer,
};
use crate::{
    codec::{Format, Writer},
    error::Unsupported,
    frame::{self, Framer, Tag},
    handshake::{ConnectorKind, Hello, Welcome},
    message::{Answer, Command, GroupForm, NamesForm, Request},
    planted::{self, Bug},
    value::{Nspace, Proc, Status},
};

/// A connection and its state.
#[derive(Debug)]
pub(super) struct Peer {
    framer: Framer,
    state: State,
    /// Tags of its unanswered requests, with the size of each in bytes.
    waiting: BTreeMap<u32, usize>,
    waiting_bytes: usize,
}

#[derive(Debug)]
enum State {
    Greeting,
    /// A tool that the host has not decided about.
    Waiting(Box<Hello>),
    /// The same, of a tool to which we have connected.
    Called(Known),
    Connected(Known),
    Finalized(Known),
}

/// The process at the other end of a connection, and the format of its messages.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) proc: Proc,
    pub(super) format: Format,
    pub(super) group_form: GroupForm,
    pub(super) names_form: NamesForm,
    pub(super) role: Role,
}

/// What a connected process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// A process of a job.
    Member,
    /// It belongs to no job.
    Tool,
}

impl Peer {
    fn new(state: State) -> Self {
        Self {
            framer: Framer::default(),
            state,
            waiting: BTreeMap::new(),
            waiting_bytes: 0,
        }
    }

    /// Returns the process at the other end; `None` before the handshake.
    pub(super) const fn known(&self) -> Option<&Known> {
        match &self.state {
            State::Greeting | State::Waiting(_) | State::Called(_) => None,
            State::Connected(known) | State::Finalized(known) => Some(known),
        }
    }

    /// Returns the name of the tool at the other end, also while it waits to be admitted.
    pub(super) fn tool(&self) -> Option<&Proc> {
        match &self.state {
            State::Waiting(hello) => hello.proc.as_ref(),
            State::Greeting => None,
            State::Called(known) => Some(&known.proc),
            State::Connected(known) | State::Finalized(known) => {
                (known.role == Role::Tool).then_some(&known.proc)
            }
        }
    }

    /// Returns the process at the other end; `None` before the handshake and after finalize.
    pub(super) const fn connected(&self) -> Option<&Known> {
        match &self.state {
            State::Connected(known) => Some(known),
            State::Greeting | State::Waiting(_) | State::Called(_) | State::Finalized(_) => None,
        }
    }

    /// Records a request. Fails if the connection has too many unanswered requests, or one with the same tag.
    fn ask(&mut self, tag: u32, size: usize) -> Result<(), Refusal> {
        if self.waiting.contains_key(&tag) {
            let error = crate::Error::PeerMisbehaved {
                expected: "a request under a tag of its own",
                got: "a tag that waits for its answer",
            };
            return Err(error.into());
        }
        // A single request may be as large as a message.
        let bytes = self.waiting_bytes + size;
        if self.waiting.len() >= MAX_WAITING
            || bytes > MAX_WAITING_BYTES && !self.waiting.is_empty()
        {
            return Err(Refusal::TooManyRequests);
        }
        self.waiting.insert(tag, size);
        self.waiting_bytes = bytes;
        Ok(())
    }

    /// Returns the tag of its first unanswered request, if there is one. Only a planted bug needs to know.
    pub(super) fn waits_for(&self) -> Option<u32> {
        self.waiting.keys().next().copied()
    }

    /// Removes a request. Returns false if it was answered already.
    fn answered(&mut self, tag: u32) -> bool {
        let Some(size) = self.waiting.remove(&tag) else {
            return false;
        };
        self.waiting_bytes -= size;
        true
    }

    /// Returns the message for an answer; `None` if the request was answered already.
    pub(super) fn answer(&mut self, tag: u32, answer: &Answer) -> Option<Bytes> {
        self.packed_answer(tag, 0, |writer| answer.encode(writer))
    }

    /// Returns the message for an answer that contains about `room` bytes already packed in this peer's format.
    pub(super) fn packed_answer(
        &mut self,
        tag: u32,
        room: usize,
        write: impl FnOnce(&mut Writer),
    ) -> Option<Bytes> {
        let format = self.known()?.format;
        if !self.answered(tag) {
            return None;
        }
        let mut start = frame::start(0);
        start.reserve(room + BESIDE);
        let mut writer = Writer::appending_to(format, start);
        write(&mut writer);
        Some(frame::finish(writer.into_bytes(), Tag::Request(tag)).into())
    }

    /// Returns the header for an answer, and the answer itself, which other peers may share.
    pub(super) fn shared_answer(&mut self, tag: u32, payload: Bytes) -> Option<[Bytes; 2]> {
        if !self.answered(tag) {
            return None;
        }
        Some([frame::head(0, Tag::Request(tag), &payload), payload])
    }
}

/// Bytes to reserve for the unpacked rest of an answer: a status and lengths.
const BESIDE: usize = 32;

/// The decision about a connection.
enum Admitted {
    Now(Known),
    /// The host decides.
    Later,
}

/// The next item in the input of a connection.
enum Next {
    Nothing,
    Hello(Bytes),
    Message(frame::Frame),
}

impl Server {
    pub(super) fn on_accepted(&mut self, conn: Conn, owner: PeerOwner) {
        // Check the owner before reading a byte, so that input of another user is not even parsed.
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
        self.peers.insert(conn, Peer::new(State::Greeting));
    }

    pub(super) fn on_called(&mut self, conn: Conn, tool: Proc, version: Option<[u32; 3]>) {
        let known = Known {
            proc: tool.clone(),
            format: Format::V4,
            group_form: version.map_or(GroupForm::Members, GroupForm::of_version),
            names_form: version.map_or(NamesForm::Nested, NamesForm::of_version),
            role: Role::Tool,
        };
        self.peers.insert(conn, Peer::new(State::Called(known)));
        let visitor = Visitor {
            name: Some(tool),
            pid: None,
            command: None,
            door: Door::Theirs,
        };
        self.out.push_back(Output::ToolConnects { conn, visitor });
    }

    pub(super) fn on_bytes(&mut self, now: Time, conn: Conn, bytes: &[u8]) {
        let Some(peer) = self.peers.get_mut(&conn) else {
            return;
        };
        peer.framer.push(bytes);
        loop {
            // The previous message may have closed the connection.
            let Some(peer) = self.peers.get_mut(&conn) else {
                return;
            };
            let next = match peer.state {
                State::Greeting => peer
                    .framer
                    .next_handshake()
                    .map(|hello| hello.map_or(Next::Nothing, Next::Hello))
                    .map_err(Refusal::from),
                State::Waiting(_) if peer.framer.pending() == 0 => return,
                State::Called(_) if peer.framer.pending() > MAX_WAITING_BYTES => {
                    Err(Refusal::TooEarly)
                }
                State::Called(_) => return,
                State::Waiting(_) => Err(Refusal::TooEarly),
                State::Connected(_) | State::Finalized(_) => peer
                    .framer
                    .next_frame()
                    .map(|frame| frame.map_or(Next::Nothing, Next::Message))
                    .map_err(Refusal::from),
            };
            match next {
                Ok(Next::Nothing) => return,
                Ok(Next::Hello(payload)) => self.on_hello(now, conn, &payload),
                Ok(Next::Message(message)) => self.on_message(now, conn, &message),
                Err(refusal) => self.refuse(now, conn, refusal),
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
            Ok(Admitted::Later) => {
                let visitor = Visitor::of(&hello);
                if let Some(peer) = self.peers.get_mut(&conn) {
                    peer.state = State::Waiting(Box::new(hello));
                    self.out.push_back(Output::ToolConnects { conn, visitor });
                }
            }
            Ok(Admitted::Now(known)) => {
                let Some(peer) = self.peers.get_mut(&conn) else {
                    return;
                };
                let proc = known.proc.clone();
                peer.state = State::Connected(known);
                // The client puts this index into headers, and no server reads it.
                let index = u32::try_from(conn.0 & 0x7fff_ffff).unwrap_or(0);
                let welcome = match hello.kind {
                    ConnectorKind::Client | ConnectorKind::Singleton => Welcome::Client {
                        status: Status::SUCCESS,
                        index,
                    },
                    _ => Welcome::Tool {
                        assigned: None,
                        server: self.config.identity.clone(),
                        security: Status::SUCCESS,
                    },
                };
                self.out.push_back(Output::Send {
                    conn,
                    bytes: welcome.encode().into(),
                });
                self.forget_silence(&proc);
                if let Some(job) = self.jobs.get_mut(&proc.nspace) {
                    job.connected(proc.rank);
                }
                self.out.push_back(Output::Connected { proc });
            }
        }
    }

    /// Welcomes a tool, or refuses it, as the host has decided.
    pub(super) fn on_tool_admitted(&mut self, now: Time, conn: Conn, name: Result<Proc, Status>) {
        let peer = self.peers.get_mut(&conn);
        if let Some(Peer { state, .. }) = peer
            && let State::Called(known) = &*state
        {
            match name {
                Ok(proc) => {
                    let proc = Known {
                        proc,
                        ..known.clone()
                    };
                    *state = State::Connected(proc);
                    self.events.tool_came(conn);
                    // What it has sent meanwhile.
                    self.on_bytes(now, conn, &[]);
                }
                Err(_) => {
                    self.out.push_back(Output::Close { conn });
                    self.on_closed(now, conn);
                }
            }
            return;
        }
        let peer = self.peers.get_mut(&conn);
        let waiting = peer.and_then(|peer| match &peer.state {
            State::Waiting(hello) => Some((hello.clone(), peer)),
            _ => None,
        });
        let Some((hello, peer)) = waiting else {
            // It has gone, and the host does not know that.
            if let Ok(tool) = name {
                self.out.push_back(Output::ToolLeft { tool });
            }
            return;
        };
        let known = name.and_then(|proc| {
            let format = hello.format().map_err(|_| Status::NOT_SUPPORTED)?;
            Ok(Known {
                proc,
                format,
                group_form: GroupForm::of_version(hello.version_numbers()),
                names_form: NamesForm::of_version(hello.version_numbers()),
                role: Role::Tool,
            })
        });
        let wants_name = hello.kind.wants_name();
        let welcome = match &known {
            Ok(known) => Welcome::Tool {
                assigned: wants_name.then(|| known.proc.clone()),
                server: self.config.identity.clone(),
                security: Status::SUCCESS,
            },
            Err(status) => Welcome::Refused(*status),
        };
        self.out.push_back(Output::Send {
            conn,
            bytes: welcome.encode().into(),
        });
        match known {
            Ok(known) => {
                peer.state = State::Connected(known);
                self.events.tool_came(conn);
            }
            Err(_) => {
                // Libraries before version 5 do not read the refusal.
                self.out.push_back(Output::Close { conn });
                self.on_closed(now, conn);
            }
        }
    }

    fn admit(&self, hello: &Hello) -> Result<Admitted, Refusal> {
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
            (
                ConnectorKind::Client
                | ConnectorKind::Singleton
                | ConnectorKind::ClientTool
                | ConnectorKind::ClientLauncher,
                Some(proc),
            ) => proc.clone(),
            _ => return self.admit_tool(hello).map(|()| Admitted::Later),
        };
        let known = self
            .jobs
            .get(&proc.nspace)
            .is_some_and(|job| job.is_local(proc.rank));
        if !known {
            return Err(Refusal::UnknownProc(proc));
        }
        Ok(Admitted::Now(Known {
            proc,
            format,
            group_form: GroupForm::of_version(hello.version_numbers()),
            names_form: NamesForm::of_version(hello.version_numbers()),
            role: Role::Member,
        }))
    }

    fn on_message(&mut self, now: Time, conn: Conn, message: &frame::Frame) {
        let Some(peer) = self.peers.get_mut(&conn) else {
            return;
        };
        let tag = match message.tag {
            Tag::Request(tag) => tag,
            Tag::Heartbeat => {
                if let Some(known) = peer.connected() {
                    self.monitors.heartbeat(now, &known.proc, &mut self.timers);
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
        if let Err(refusal) = peer.ask(tag, message.payload.len()) {
            return self.refuse(now, conn, refusal);
        }
        let reply = ReplyTo { conn, tag };
        let State::Connected(known) = &peer.state else {
            // A finalized client should send no requests. Answer anyway, so that it does not wait forever.
            let format = peer.known().map(|known| known.format);
            return match format.map(|format| Request::decode(format, &message.payload)) {
                Some(Ok(Request::JobInfo)) => self.answer(reply, &Answer::no_job()),
                // A deregistration gets no answer in any state.
                Some(Ok(Request::Deregister { .. })) => {
                    peer.answered(tag);
                }
                _ => self.status(reply, Status::INIT),
            };
        };
        let from = known.proc.clone();
        match Request::decode(known.format, &message.payload) {
            Ok(Request::Finalize) => self.on_finalize(reply, &from),
            Ok(request) => {
                if request.command() == Command::Deregister {
                    // A deregistration gets no answer.
                    peer.answered(tag);
                }
                self.on_request(now, reply, &from, request);
            }
            // A command of an unknown number, or with a value of an unknown type. Reject it and keep the connection:
            // the frame says where the next message begins.
            Err(crate::Error::Unsupported {
                what: Unsupported::Command(_) | Unsupported::Kind(_),
            }) => self.status(reply, Status::NOT_SUPPORTED),
            Err(error) => self.refuse(now, conn, error.into()),
        }
    }

    fn on_finalize(&mut self, reply: ReplyTo, from: &Proc) {
        let conn = reply.conn;
        self.status(reply, Status::SUCCESS);
        self.events.forget(conn);
        self.drop_subscriptions_of(conn);
        if let Some(peer) = self.peers.get_mut(&conn)
            && let Some(known) = peer.known().cloned()
        {
            let is_tool = known.role == Role::Tool;
            peer.state = State::Finalized(known);
            if is_tool {
                self.monitors.forget(from, &mut self.timers);
                return;
            }
        }
        if let Some(job) = self.jobs.get_mut(&from.nspace) {
            job.finalized(from.rank);
        }
        self.monitors.forget(from, &mut self.timers);
        self.out.push_back(Output::Finalized { proc: from.clone() });
    }

    /// Closes a connection because of an error of its peer.
    pub(super) fn refuse(&mut self, now: Time, conn: Conn, error: Refusal) {
        let proc = self
            .peers
            .get(&conn)
            .and_then(Peer::known)
            .map(|known| known.proc.clone());
        if planted::is(Bug::ToolNotRefused) && error == Refusal::Tool {
            return;
        }
        if planted::is(Bug::RefusedWithAnother) && error == Refusal::Tool {
            let mut others = self.peers.keys().copied();
            if let Some(other) = others.find(|other| *other != conn) {
                self.out.push_back(Output::Close { conn: other });
                self.on_closed(now, other);
            }
        }
        self.out.push_back(Output::Refused { proc, error });
        self.out.push_back(Output::Close { conn });
        self.on_closed(now, conn);
    }

    pub(super) fn on_closed(&mut self, now: Time, conn: Conn) {
        let Some(peer) = self.peers.remove(&conn) else {
            return;
        };
        self.events.forget(conn);
        self.drop_subscriptions_of(conn);
        // Only a connection with unanswered requests can have waits.
        if !peer.waiting.is_empty() {
            self.forget_gets(conn);
            self.forget_calls(conn);
            let forgotten = self.collectives.forget(conn, &mut self.timers);
            self.say_forgotten(forgotten);
            self.asks.retain(|_, reply| reply.conn != conn);
            let asks = &self.asks;
            self.partly_logged
                .retain(|ticket| asks.contains_key(ticket));
            self.forget_queries(conn);
        }
        let known = match peer.state {
            State::Connected(known) => known,
            State::Finalized(known) if known.role == Role::Tool => known,
            State::Greeting | State::Waiting(_) | State::Called(_) | State::Finalized(_) => return,
        };
        let proc = known.proc;
        if known.role == Role::Tool {
            return self.on_tool_left(proc);
        }
        let lost = self
            .jobs
            .get_mut(&proc.nspace)
            .is_some_and(|job| job.disconnected(proc.rank));
        // Another process with the same name may still be connected: the child or parent of a fork.
        if lost {
            self.monitors.forget(&proc, &mut self.timers);
            let until = now + LOST_DELAY;
            self.timers.set(until, Timer::Silence(proc.clone()));
            self.silent.insert(proc, until);
        }
    }

    /// Cancels the timer of a process that has reconnected, or whose end was reported.
    pub(super) fn forget_silence(&mut self, proc: &Proc) {
        if let Some(until) = self.silent.remove(proc) {
            self.timers.clear(until, Timer::Silence(proc.clone()));
        }
    }

    /// Returns the processes of a job whose connection broke and whose timer is still running.
    pub(super) fn silent_of(&self, nspace: &Nspace) -> Vec<Proc> {
        let of_job = |proc: &&Proc| proc.nspace == *nspace;
        self.silent.keys().filter(of_job).cloned().collect()
    }

    /// Declares a process lost that has not reconnected in time.
    pub(super) fn on_silent(&mut self, proc: Proc) {
        self.silent.remove(&proc);
        if let Some(job) = self.jobs.get_mut(&proc.nspace) {
            job.lost(proc.rank);
        }
        if !planted::is(Bug::SilenceNotTold) {
            self.on_gone(&proc);
        }
        self.out.push_back(Output::Lost { proc });
    }
}
