//! The client side of a connection: what a launched process runs to talk to its server.
//!
//! There are two layers, both without I/O. [`Client`] is the connection: it does the handshake, numbers requests, and matches
//! every answer with its request. [`Program`] builds on it and offers the operations of a program: init, put, commit, fence, get,
//! publish, spawn, events and finalize. It also caches what it knows about jobs. [`crate::tool::Tool`] is the counterpart for
//! tools.
//!
//! The caller opens the connection, passes in the time and the received bytes, and carries out the outputs:
//!
//! ```
//! use base::Time;
//! use pmix::{
//!     client::{Client, Config, Connector, Event, Input, Output},
//!     handshake::Owner,
//!     message::{Answer, Request},
//!     value::{Nspace, PmixRank, Proc, Status},
//! };
//! let server = "daemon-n1.0;tcp4://127.0.0.1:4711".parse()?;
//! let me = Proc { nspace: Nspace::from_text("job-1")?, rank: PmixRank(0) };
//! let owner = Owner { uid: 1000, gid: 1000 };
//! let now = Time::ZERO;
//! let mut client = Client::new(now, Config::new(server, Connector::Client(me), owner));
//!
//! assert!(matches!(client.poll(), Some(Output::Connect(address)) if address.port() == 4711));
//! client.handle(now, Input::Opened);
//! assert!(matches!(client.poll(), Some(Output::Send(_))));
//! // The server welcomes number 7.
//! client.handle(now, Input::Bytes(&[0, 0, 0, 0, 0, 0, 0, 7]));
//! assert!(matches!(client.poll(), Some(Output::Event(Event::Ready { .. }))));
//!
//! let ticket = client.request(&Request::Commit { buckets: Vec::new() });
//! assert!(matches!(client.poll(), Some(Output::Send(_))));
//! // The server answers: tag 101, two bytes, and in them a status that says 0.
//! client.handle(now, Input::Bytes(&[0, 0, 0, 0, 0, 0, 0, 101, 0, 0, 0, 2, 0, 0, 0, 0, 2, 0]));
//! let answer = Answer::Status(Status::SUCCESS);
//! assert_eq!(client.poll(), Some(Output::Event(Event::Answer { ticket, answer })));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The connection
//!
//! | state | `Opened` | `Bytes` | `Closed` | a request | deadline |
//! |---|---|---|---|---|---|
//! | Connecting | sends its hello, Greeting | ignored | Ended: `Closed` | answered `INIT` | Ended: `Silent` |
//! | Greeting | ignored | a whole welcome: Ready; a refusal: Ended | Ended: `Closed` | answered `INIT` | Ended: `Silent` |
//! | Ready | ignored | answers and pushes | Ended: `Closed` | sent; finalize: Leaving | the overdue request: `TIMEOUT` |
//! | Leaving | ignored | answers and pushes; the answer to finalize: Ended | Ended: `Closed` | answered `INIT` | Ended: `Silent` |
//! | Ended | ignored | ignored | ignored | answered `UNREACH` | none |
//!
//! The connection enters *Ended* once and reports it by [`Event::Finalized`] or [`Event::Lost`]. After it, only answers to later
//! requests follow. All outstanding requests are answered `UNREACH` first, so that every [`Ticket`] is answered exactly once.
//!
//! Bytes that break the framing or the welcome end the connection, because nothing after them can be parsed. A malformed message
//! inside an intact frame does not, nor does an answer to no request: real servers send such messages, and the next frame is
//! unaffected. If the malformed message answers a request, that request is answered `UNPACK_FAILURE`. [`Event::Ignored`] reports
//! what was wrong.
//!
//! A process that initializes and finalizes several times creates a new `Client` or `Program` each time.
//!
//! # A connection that the other side has opened
//!
//! A launcher that a tool has started connects to the tool, and then serves it. [`Client::accept`] takes such a connection: it
//! answers the handshake and the request for job info, and goes on in *Ready*. `acceptor` has its states.

mod acceptor;
mod config;
mod facts;
mod program;
mod uri;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    ffi::CString,
    net::SocketAddr,
    time::Duration,
};

use base::Time;

pub(crate) use self::config::version_numbers;
pub use self::{
    acceptor::Terms,
    config::{Codec, Config, ConfigError, Connector, Security, infos},
    facts::{JobFacts, Viewpoint},
    program::{
        Collect, Done, Event as ProgramEvent, FACTS_WAIT, HandlerId, MAX_HANDLERS, MAX_WAITING,
        Notice, Program, PutError, Search, Stdio,
    },
    uri::{ServerUri, UriError},
};
use crate::{
    Error,
    codec::Writer,
    frame::{self, Frame, Framer, Tag},
    handshake::Welcome,
    message::{Answer, GroupForm, Push, Request, Shape},
    value::{Proc, Status},
};

/// Longest time from the start to the server's welcome. A server answers without asking other processes.
pub const WELCOME_WAIT: Duration = Duration::from_secs(30);
/// Longest time from a finalize to its answer, as in libpmix 5 and 6.
pub const FINALIZE_WAIT: Duration = Duration::from_secs(10);
/// Maximum number of outstanding requests. A further one is answered `RESOURCE_BUSY` immediately.
pub const MAX_OUTSTANDING: usize = 4096;

/// Largest tag of a request of the side that has opened the connection. The upper half is for the side that has accepted it, as
/// in libpmix 6.
const LAST_TAG: u32 = frame::FIRST_REQUEST + (u32::MAX - frame::FIRST_REQUEST) / 2;
/// Largest tag of a request of the side that has accepted the connection. [`Tag`] reserves the number above it.
const LAST_ACCEPTOR_TAG: u32 = u32::MAX - 1;

/// Handle of a request, unique within its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

/// Input to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input<'a> {
    /// The connection is open.
    Opened,
    /// Received bytes.
    Bytes(&'a [u8]),
    /// The connection could not be opened, or has ended.
    Closed,
    /// The time of [`Client::deadline`] has come.
    Tick,
}

/// Action for the caller.
#[derive(Clone, Debug, PartialEq)]
pub enum Output<E> {
    /// Open the connection. This is the first output, and comes once.
    Connect(SocketAddr),
    /// Send these bytes.
    Send(Vec<u8>),
    /// Close the connection after all earlier outputs are sent.
    Close,
    /// Report this event to the user of the connection.
    Event(E),
}

/// Event of a connection.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The server has accepted this side under the name `me`.
    Ready { me: Proc, server: Proc },
    /// The answer to a request. Each ticket gets one.
    Answer { ticket: Ticket, answer: Answer },
    /// A message that the server sent without a request.
    Push(Push),
    /// A message was dropped because it was malformed or unexpected.
    Ignored { tag: u32, why: Error },
    /// The server has answered the finalize. The connection has ended.
    Finalized,
    /// The connection has ended without a finalize.
    Lost { why: Lost },
}

/// Reason why a connection ended without a finalize.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// The connection could not be opened, or the server ended it. Servers also refuse unknown clients by closing.
    #[error("the server closed the connection")]
    Closed,
    /// The server's welcome had an error status.
    #[error("the server refused the connection: {0}")]
    Refused(Status),
    /// The server sent no welcome, or no answer to the finalize, before the deadline.
    #[error("the server did not answer in time")]
    Silent,
    /// The server sent bytes that cannot be parsed.
    #[error("the server broke the protocol: {0}")]
    Broken(Error),
    /// The server did not provide the job info that a program needs to start.
    #[error("the server does not let the program start: {0}")]
    NotStarted(Status),
    /// This side closed the connection.
    #[error("the connection was ended by this side")]
    Left,
}

/// A connection to a server. The states are in the [module documentation](self).
#[derive(Debug)]
pub struct Client {
    config: Config,
    state: State,
    framer: Framer,
    next_ticket: Ticket,
    tags: Tags,
    /// What the other side is told; `None` if this side has opened the connection.
    terms: Option<Terms>,
    /// Name and version of a launcher that has connected to this side.
    peer: Option<(Proc, CString)>,
    /// The outstanding requests by tag.
    outstanding: BTreeMap<u32, Outstanding>,
    /// The tags of the outstanding requests.
    tag_of: BTreeMap<Ticket, u32>,
    /// The outstanding requests with a deadline, as (deadline, tag).
    limits: BTreeSet<(Time, u32)>,
    outputs: VecDeque<Output<Event>>,
}

/// The tags for the requests of one side.
#[derive(Clone, Copy, Debug)]
struct Tags {
    /// The tag before the first one.
    before: u32,
    last: u32,
    used: u32,
}

impl Tags {
    const fn new(before: u32, last: u32) -> Self {
        Self {
            before,
            last,
            used: before,
        }
    }

    const fn next(&mut self) -> u32 {
        self.used = if self.used == self.last {
            self.before + 1
        } else {
            self.used + 1
        };
        self.used
    }
}

#[derive(Debug)]
enum State {
    /// The other side has opened the connection, and its handshake is awaited.
    Accepting {
        until: Time,
    },
    /// The other side has not asked for its job info.
    Informing {
        until: Time,
    },
    Connecting {
        until: Time,
    },
    Greeting {
        until: Time,
        /// The received part of the welcome, which has at most a few hundred bytes.
        begun: Vec<u8>,
    },
    Ready {
        /// The peer index that the server expects in message headers.
        index: u32,
    },
    Leaving {
        finalize: Ticket,
        until: Time,
    },
    Ended,
}

#[derive(Debug)]
struct Outstanding {
    ticket: Ticket,
    shape: Shape,
    limit: Option<Time>,
}

impl Client {
    /// Creates a connection that is not open yet. Its first output is [`Output::Connect`].
    #[must_use]
    pub fn new(now: Time, config: Config) -> Self {
        let address = config.server.address();
        Self {
            config,
            state: State::Connecting {
                until: now + WELCOME_WAIT,
            },
            framer: Framer::default(),
            next_ticket: Ticket(0),
            tags: Tags::new(frame::FIRST_REQUEST, LAST_TAG),
            terms: None,
            peer: None,
            outstanding: BTreeMap::new(),
            tag_of: BTreeMap::new(),
            limits: BTreeSet::new(),
            outputs: VecDeque::from([Output::Connect(address)]),
        }
    }

    /// Returns the configuration of this connection.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Processes one input and queues the outputs it causes. Their memory is at most a small multiple of the input's bytes,
    /// provided that the caller takes all outputs before the next call.
    pub fn handle(&mut self, now: Time, input: Input<'_>) {
        match input {
            Input::Opened => self.opened(),
            Input::Bytes(bytes) => self.bytes(bytes),
            Input::Closed => self.lose(Lost::Closed),
            Input::Tick => self.tick(now),
        }
    }

    /// Returns the next output, `None` if there is none before the next input.
    pub fn poll(&mut self) -> Option<Output<Event>> {
        self.outputs.pop_front()
    }

    /// Returns the time at which to call [`Self::handle`] with [`Input::Tick`]; `None` if nothing is timed.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        let limit = self.limits.first().map(|(time, _)| *time);
        match self.state {
            State::Accepting { until }
            | State::Informing { until }
            | State::Connecting { until }
            | State::Greeting { until, .. } => Some(until),
            State::Leaving { until, .. } => Some(limit.map_or(until, |limit| limit.min(until))),
            State::Ready { .. } => limit,
            State::Ended => None,
        }
    }

    /// Sends a request. Its answer is an [`Event::Answer`]; a request without an answer in the protocol is answered `SUCCESS`
    /// here. [`Request::Finalize`] must go through [`Self::finalize`], which knows the time; here it is answered `BAD_PARAM`.
    pub fn request(&mut self, request: &Request) -> Ticket {
        if *request == Request::Finalize {
            return self.completed_ticket(Status::BAD_PARAM);
        }
        self.send(request)
    }

    /// Sends a finalize. After its answer the connection closes.
    pub fn finalize(&mut self, now: Time) -> Ticket {
        let ticket = self.send(&Request::Finalize);
        if self.tag_of.contains_key(&ticket) {
            self.state = State::Leaving {
                finalize: ticket,
                until: now + FINALIZE_WAIT,
            };
        }
        ticket
    }

    /// Sets the time at which an outstanding request is answered `TIMEOUT`. An answer that comes later is ignored.
    pub fn limit(&mut self, ticket: Ticket, until: Time) {
        let Some(tag) = self.tag_of.get(&ticket).copied() else {
            return;
        };
        let request = self.outstanding.get_mut(&tag);
        let before = request.and_then(|request| request.limit.replace(until));
        if let Some(before) = before {
            self.limits.remove(&(before, tag));
        }
        self.limits.insert((until, tag));
    }

    /// Sends a heartbeat to the server. It has no answer.
    pub fn heartbeat(&mut self) {
        if let State::Ready { index } = self.state {
            let message = frame::finish(frame::start(index), Tag::Heartbeat);
            self.outputs.push_back(Output::Send(message));
        }
    }

    /// Ends the connection without a finalize, as a tool may do at any time.
    pub fn close(&mut self) {
        self.end(Event::Lost { why: Lost::Left });
    }

    /// Ends the connection because of an error of the server.
    pub(crate) fn lose(&mut self, why: Lost) {
        self.end(Event::Lost { why });
    }

    /// Drops an outstanding request: it gets no answer event.
    pub(crate) fn forget(&mut self, ticket: Ticket) {
        if let Some(tag) = self.tag_of.get(&ticket) {
            self.take(*tag);
        }
    }

    /// Returns a new ticket, for a request that is answered without the server.
    pub(crate) fn ticket(&mut self) -> Ticket {
        let ticket = self.next_ticket;
        self.next_ticket.0 += 1;
        ticket
    }

    /// Returns a tag that no outstanding request has.
    fn tag(&mut self) -> u32 {
        loop {
            let tag = self.tags.next();
            // There are far more tags than outstanding requests.
            if !self.outstanding.contains_key(&tag) {
                return tag;
            }
        }
    }

    fn opened(&mut self) {
        if let State::Connecting { until } = self.state {
            let hello = frame::handshake(&self.config.hello().encode());
            self.outputs.push_back(Output::Send(hello));
            let begun = Vec::new();
            self.state = State::Greeting { until, begun };
        }
    }

    fn bytes(&mut self, bytes: &[u8]) {
        match &mut self.state {
            State::Connecting { .. } | State::Ended => {}
            State::Greeting { begun, .. } => {
                let mut begun = std::mem::take(begun);
                begun.extend_from_slice(bytes);
                self.greeted(begun);
            }
            State::Accepting { .. } => {
                self.framer.push(bytes);
                self.accepted();
            }
            State::Informing { .. } | State::Ready { .. } | State::Leaving { .. } => {
                self.framer.push(bytes);
                self.frames();
            }
        }
    }

    fn greeted(&mut self, bytes: Vec<u8>) {
        let connector = &self.config.connector;
        let (welcome, used) = match Welcome::decode(connector.kind(), &bytes) {
            Ok(Some(welcome)) => welcome,
            Ok(None) => {
                if let State::Greeting { begun, .. } = &mut self.state {
                    *begun = bytes;
                }
                return;
            }
            Err(error) => return self.lose(Lost::Broken(error)),
        };
        let (status, index, me, server) = match welcome {
            Welcome::Client { status, index } => {
                let server = self.config.server.server().clone();
                (status, index, connector.proc().cloned(), server)
            }
            Welcome::Tool {
                assigned,
                server,
                security,
            } => {
                let me = assigned.or_else(|| connector.proc().cloned());
                (security, 0, me, server)
            }
            Welcome::Refused(status) => return self.lose(Lost::Refused(status)),
        };
        match (status, me) {
            (Status::SUCCESS, Some(me)) => {
                self.state = State::Ready { index };
                self.event(Event::Ready { me, server });
                self.framer.push(bytes.get(used..).unwrap_or_default());
                self.frames();
            }
            (status, _) => self.lose(Lost::Refused(status)),
        }
    }

    fn frames(&mut self) {
        while matches!(
            self.state,
            State::Informing { .. } | State::Ready { .. } | State::Leaving { .. }
        ) {
            match self.framer.next_frame() {
                Ok(Some(frame)) => self.frame(&frame),
                Ok(None) => break,
                Err(error) => self.lose(Lost::Broken(error)),
            }
        }
    }

    fn frame(&mut self, frame: &Frame) {
        let format = self.config.format();
        let tag = frame.tag.number();
        if let Tag::Request(_) = frame.tag {
            if self.terms.is_some() && tag <= self.tags.before {
                return self.asked(tag, &frame.payload);
            }
            return match self.take(tag) {
                Some(request) => self.answer(&request, frame),
                None => self.event(Event::Ignored {
                    tag,
                    why: Error::PeerMisbehaved {
                        expected: "the answer to a request",
                        got: "an answer to nothing that is asked",
                    },
                }),
            };
        }
        match Push::decode(format, frame.tag, &frame.payload) {
            Ok(Some(push)) => self.event(Event::Push(push)),
            Ok(None) => {
                let why = Error::PeerMisbehaved {
                    expected: "an event, output, or an answer",
                    got: "a message under a tag for none of them",
                };
                self.event(Event::Ignored { tag, why });
            }
            Err(why) => self.event(Event::Ignored { tag, why }),
        }
    }

    fn answer(&mut self, request: &Outstanding, frame: &Frame) {
        let ticket = request.ticket;
        let answer = if frame.payload.is_empty() {
            // Servers send an empty answer when the process that could have answered is gone.
            Answer::Status(Status::UNREACH)
        } else {
            self.decode(request.shape, &frame.payload)
                .unwrap_or_else(|why| {
                    let tag = frame.tag.number();
                    self.event(Event::Ignored { tag, why });
                    Answer::Status(Status::UNPACK_FAILURE)
                })
        };
        self.event(Event::Answer { ticket, answer });
        if let State::Leaving { finalize, .. } = self.state
            && finalize == ticket
        {
            self.end(Event::Finalized);
        }
    }

    /// Decodes an answer. The layout of a group's answer depends on the server's version, which may be unknown. The first layout
    /// that encodes to the same bytes again is taken.
    fn decode(&self, shape: Shape, payload: &[u8]) -> Result<Answer, Error> {
        let format = self.config.format();
        let Shape::Group(likely) = shape else {
            return Answer::decode(format, shape, payload);
        };
        let forms = [
            likely,
            GroupForm::Members,
            GroupForm::Infos,
            GroupForm::ContextOnly,
        ];
        let found = forms.into_iter().find_map(|form| {
            let answer = Answer::decode(format, Shape::Group(form), payload).ok()?;
            let mut writer = Writer::new(format);
            answer.encode(&mut writer);
            (writer.as_bytes() == payload).then_some(answer)
        });
        found.map_or_else(|| Answer::decode(format, shape, payload), Ok)
    }

    fn send(&mut self, request: &Request) -> Ticket {
        let index = match self.state {
            State::Ready { index } => index,
            State::Ended => return self.completed_ticket(Status::UNREACH),
            _ => return self.completed_ticket(Status::INIT),
        };
        if self.outstanding.len() >= MAX_OUTSTANDING {
            return self.completed_ticket(Status::RESOURCE_BUSY);
        }
        let mut writer = Writer::appending_to(self.config.format(), frame::start(index));
        request.encode(&mut writer);
        let message = writer.into_bytes();
        if message.len() as u64 > frame::MAX_MESSAGE {
            return self.completed_ticket(Status::OUT_OF_RESOURCE);
        }
        let ticket = self.ticket();
        let tag = self.tag();
        let message = frame::finish(message, Tag::Request(tag));
        self.outputs.push_back(Output::Send(message));
        let shape = Shape::of(request.command(), self.config.group_form());
        if shape == Shape::Nothing {
            let answer = Answer::Status(Status::SUCCESS);
            self.event(Event::Answer { ticket, answer });
        } else {
            let limit = None;
            let request = Outstanding {
                ticket,
                shape,
                limit,
            };
            self.outstanding.insert(tag, request);
            self.tag_of.insert(ticket, tag);
        }
        ticket
    }

    /// Returns a ticket that is already answered, with this status.
    fn completed_ticket(&mut self, status: Status) -> Ticket {
        let ticket = self.ticket();
        let answer = Answer::Status(status);
        self.event(Event::Answer { ticket, answer });
        ticket
    }

    fn tick(&mut self, now: Time) {
        while let Some((time, tag)) = self.limits.first().copied()
            && time <= now
        {
            self.limits.pop_first();
            if let Some(request) = self.take(tag) {
                let answer = Answer::Status(Status::TIMEOUT);
                self.event(Event::Answer {
                    ticket: request.ticket,
                    answer,
                });
            }
        }
        match self.state {
            State::Accepting { until }
            | State::Informing { until }
            | State::Connecting { until }
            | State::Greeting { until, .. }
            | State::Leaving { until, .. }
                if until <= now =>
            {
                self.lose(Lost::Silent);
            }
            _ => {}
        }
    }

    fn take(&mut self, tag: u32) -> Option<Outstanding> {
        let request = self.outstanding.remove(&tag)?;
        self.tag_of.remove(&request.ticket);
        if let Some(limit) = request.limit {
            self.limits.remove(&(limit, tag));
        }
        Some(request)
    }

    fn end(&mut self, last: Event) {
        if matches!(self.state, State::Ended) {
            return;
        }
        self.state = State::Ended;
        self.framer = Framer::default();
        self.limits.clear();
        self.outstanding.clear();
        for ticket in std::mem::take(&mut self.tag_of).into_keys() {
            let answer = Answer::Status(Status::UNREACH);
            self.event(Event::Answer { ticket, answer });
        }
        if last != (Event::Lost { why: Lost::Closed }) {
            self.outputs.push_back(Output::Close);
        }
        self.event(last);
    }

    fn event(&mut self, event: Event) {
        self.outputs.push_back(Output::Event(event));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        handshake::Owner,
        value::{Nspace, PmixRank},
    };

    #[test]
    fn tags_go_round_and_leave_out_what_is_outstanding() {
        let me = Proc {
            nspace: Nspace::from_text("job").unwrap(),
            rank: PmixRank(0),
        };
        let server = "daemon.0;tcp4://127.0.0.1:1".parse().unwrap();
        let owner = Owner { uid: 0, gid: 0 };
        let config = Config::new(server, Connector::Client(me), owner);
        let mut client = Client::new(Time::ZERO, config);
        client.handle(Time::ZERO, Input::Opened);
        client.handle(Time::ZERO, Input::Bytes(&[0; 8]));
        let long = client.request(&Request::JobInfo);
        client.tags.used = LAST_TAG - 1;
        let tickets = [0, 1].map(|_| client.request(&Request::JobInfo));
        let mut tags: Vec<_> = client.tag_of.into_iter().collect();
        tags.sort_unstable();
        assert_eq!(
            tags,
            [(long, 101), (tickets[0], LAST_TAG), (tickets[1], 102)]
        );
    }
}
