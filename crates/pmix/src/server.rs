//! The server of one node: what the processes of jobs there, and tools, are told and what they are asked for.
//!
//! It does nothing itself: it takes [`Input`]s and the time, and gives [`Output`]s that its host carries out. What goes
//! beyond PMIx is an [`Ask`] that the host answers.
//!
//! Where a job has ranks on several nodes, each node has a server, and hosts carry between them what leaves a node. They
//! keep the order in which one server tells another one, or all of them the controller:
//!
//! | leaves | comes back | carried by |
//! |---|---|---|
//! | [`Output::Gather`], [`Output::Waits`], [`Output::Forgotten`], [`Output::Absent`], [`Output::Withdrawn`], [`Output::MembersGone`], [`Output::Declined`] | [`Input::Gathered`], [`Input::Awaited`], [`Input::Watch`] | the controller's [`Gathers`] |
//! | [`Output::DirectGet`], [`Output::NoLongerAsked`] | [`Input::DirectGot`] | the node that it names: [`Input::AskedFor`], answered by [`Output::Told`]; [`Input::NoLongerAsked`] |
//! | [`Output::Event`] | – | the nodes that it names: [`Input::Event`] |
//!
//! All servers of a machine must know of every job ([`Input::Register`]), whether it has ranks on their nodes or not:
//! others may connect with it.
//!
//! States of a connection:
//!
//! | state | handshake | request | finalize | nonsense | closed |
//! |---|---|---|---|---|---|
//! | `Greeting` | `Connected`, or refused and closed | – | – | closed | forgotten |
//! | `Connected` | – | answered | `Finalized` | closed, *lost* | *lost* |
//! | `Finalized` | – | refused with INIT | answered | closed | forgotten |
//!
//! *Lost* means that the process has broken contact without saying so, and has not come back within [`LOST_DELAY`]. It
//! is not dead: it may connect again, and when it is dead its parent says so, [`Input::Ended`]. As long as it is lost or
//! dead, no collective can have it, and those who wait for it in one are told.
//!
//! What waits, and who ends the wait:
//!
//! | waits | ended by |
//! |---|---|
//! | a collective | its last member; the loss or death of a member; the end of a job in it; `pmix.timeout`. What that means over several nodes: `gather` |
//! | a get | a commit of its target; the death of its target; the end of its job; `pmix.timeout`; [`MISSING_KEY_DELAY`] |
//! | a get about a process on another node | the answer of that node, which lets it wait in the same way; the loss of the node; the end of the job; `pmix.timeout` |
//! | an ask | the host |
//! | a heartbeat | the next one; the end of the process |
//!
//! All of them end with the connection of whoever waits; only a collective that other nodes were told of waits on for
//! them, whose answer the host owes in any case.
//!
//! What a peer can make grow, and what happens when it is full:
//!
//! | what | bound | then |
//! |---|---|---|
//! | a message | [`crate::frame::MAX_MESSAGE`] | the connection is closed |
//! | requests of a connection that wait, with all that waits for them | [`MAX_WAITING`], [`MAX_WAITING_BYTES`] | the connection is closed |
//! | data of a process | [`MAX_COMMITTED`] | OUT_OF_RESOURCE |
//! | what a process hands in for groups | [`MAX_HANDED_IN`] | the oldest is forgotten |
//! | groups | [`MAX_GROUPS`] | OUT_OF_RESOURCE |
//! | connected_sets of connected processes | [`MAX_CONNECTED_SETS`] | OUT_OF_RESOURCE |
//! | codes that a connection has registered for | [`MAX_CODES`] | OUT_OF_RESOURCE |
//! | processes to whose events a registration is limited | [`MAX_AFFECTED`] | it is not limited |
//! | events kept for those who register later | [`MAX_CACHED_EVENTS`], [`MAX_CACHED_BYTES`] | the oldest is forgotten |
//! | requests of a connection for output, and processes in one | [`MAX_SUBSCRIPTIONS`], [`MAX_SUBSCRIPTION_PROCS`] | OUT_OF_RESOURCE, BAD_PARAM |
//! | collectives that wait for other nodes, and what those are told for them | [`MAX_SENT`], [`MAX_SENT_BYTES`] | OUT_OF_RESOURCE |
//! | data that a node brings to a fence | [`MAX_BROUGHT`], and what is left of [`MAX_SENT_BYTES`] | what is more is asked for when it is needed |
//! | questions to other nodes, those about one process, and one of them | [`MAX_QUESTIONS`], [`MAX_QUESTIONS_ABOUT`], [`MAX_QUESTION`] | OUT_OF_RESOURCE |
//! | published data, look-ups that wait | [`MAX_PUBLISHED`], [`MAX_PUBLISHED_BYTES`], [`MAX_LOOKUPS`] | OUT_OF_RESOURCE |
//!
//! What is on its way to a connection is the host's to bound: it closes those that do not read.

mod collective;
mod connected;
mod construct;
mod credential;
mod direct;
mod directive;
mod environment;
mod event;
mod facts;
mod gather;
mod gathers;
mod get;
mod group;
mod help;
mod job;
mod member;
mod monitor;
mod peer;
mod published;
mod query;
mod share;
mod stored;
mod subscription;
mod termination;
mod timers;

use std::{
    collections::{BTreeMap, VecDeque},
    iter,
    time::Duration,
};

use base::{ExitStatus, RankSet, Time};
use bytes::Bytes;

use self::{
    collective::Collectives,
    connected::ConnectedSets,
    direct::Questions,
    event::Events,
    get::{Asker, Gets},
    group::Groups,
    job::Namespace,
    monitor::Monitors,
    peer::Peer,
    subscription::Subscriptions,
    timers::{Timer, Timers},
};
pub use self::{
    collective::{MAX_SENT, MAX_SENT_BYTES},
    connected::MAX_CONNECTED_SETS,
    direct::{MAX_QUESTION, MAX_QUESTIONS, MAX_QUESTIONS_ABOUT},
    environment::environment,
    event::{Elsewhere, MAX_AFFECTED, MAX_CACHED_BYTES, MAX_CACHED_EVENTS, MAX_CODES},
    gather::MAX_BROUGHT,
    gathers::{Gathers, Notice},
    group::MAX_GROUPS,
    job::{AppFacts, Job, NodeFacts, RankFacts, Stop, StopIn},
    published::{FoundFor, MAX_LOOKUPS, MAX_PUBLISHED, MAX_PUBLISHED_BYTES, PublishedData},
    share::{Contribution, GatherId, Joined, Patience, Question, Share},
    stored::{MAX_COMMITTED, MAX_HANDED_IN},
    subscription::{MAX_SUBSCRIPTION_PROCS, MAX_SUBSCRIPTIONS},
};
use crate::{
    Error,
    codec::{Format, Writer},
    message::{Answer, Request},
    value::{Info, IofChannels, Key, Nspace, Proc, Range, Status, Value},
};

/// How long a get for one key waits for another commit of a process that has committed without that key. OpenPMIx's
/// number: programs ask for keys that may never come and count on an end.
pub const MISSING_KEY_DELAY: Duration = Duration::from_secs(2);
/// How long a process whose connection broke is waited for: it may have ended, and its end says more than its silence,
/// or connect again.
pub const LOST_DELAY: Duration = Duration::from_secs(1);
/// Requests of one connection that wait at once. One that has more is closed.
pub const MAX_WAITING: usize = 4096;
/// Bytes of the requests of one connection that wait at once, beside a single one. One that has more is closed.
pub const MAX_WAITING_BYTES: usize = 64 << 20;

/// A connection, by a number that the host never gives twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Conn(pub u64);

/// Who owns the other end of a connection, as the kernel says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerOwner {
    Uid(u32),
    /// The kernel does not say: nobody is let in.
    Unknown,
}

/// What a server is told about itself.
#[derive(Clone, Debug)]
pub struct Config {
    /// Its own name. Neither `.` nor `;` may be in it, see [`crate::handshake`].
    pub identity: Proc,
    /// The user whose jobs these are.
    pub uid: u32,
    pub gid: u32,
    /// The first number for groups, and the step to the next one: different servers of a machine give different ones.
    pub context: (u64, u64),
}

/// What happened.
#[derive(Debug)]
pub enum Input<'a> {
    /// A job that has processes here. Before any of them starts.
    Register(Box<Job>),
    /// A job is over: nobody asks for it any more.
    Deregister(Nspace),
    /// The pid of a process of a job, for the tables that tools ask for.
    Started {
        proc: Proc,
        pid: u32,
    },
    /// A process has ended, and how.
    Ended {
        proc: Proc,
        status: ExitStatus,
    },
    /// The host ends a job: how its processes end is no news any more, and nobody is told.
    Ending(Nspace),
    /// Output of a process, for those who want it ([`Output::Wanted`]). No bytes are the end of the stream.
    Output {
        proc: Proc,
        channels: IofChannels,
        bytes: Bytes,
    },
    Accepted {
        conn: Conn,
        owner: PeerOwner,
    },
    Bytes {
        conn: Conn,
        bytes: &'a [u8],
    },
    /// A connection has ended, or was closed by the host.
    Closed {
        conn: Conn,
    },
    /// Answers an [`Ask`].
    Answer {
        ticket: Ticket,
        answer: Answer,
    },
    /// An event of the host or of another node.
    Event(Box<Event>),
    /// Answers [`Output::Gather`], once: the shares of all nodes, in their order.
    Gathered {
        ticket: GatherTicket,
        result: Result<&'a [(u32, Bytes)], Status>,
    },
    /// Members of some jobs have gone on other nodes.
    Watch,
    /// Other nodes wait for members here, whom nobody may have told.
    Awaited {
        id: GatherId,
        number: GatherNumber,
    },
    /// Another node asks about a process here. Answered by [`Output::Told`], once.
    AskedFor {
        node: u32,
        ticket: GetTicket,
        question: &'a [u8],
    },
    /// Another node waits no longer for the answer to [`Input::AskedFor`], which may have been given already.
    NoLongerAsked {
        node: u32,
        ticket: GetTicket,
    },
    /// Answers [`Output::DirectGet`], once.
    DirectGot {
        ticket: GetTicket,
        result: Result<&'a [u8], Status>,
    },
    /// These processes of a job wait no longer, nor will those of them that have not come to where they were to stop.
    Release {
        nspace: Nspace,
        ranks: RankSet,
    },
    /// The time that [`Server::deadline`] gave has come.
    Tick,
}

/// An event on its way.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    pub status: Status,
    pub source: Proc,
    pub range: Range,
    pub infos: Vec<Info>,
}

/// What the host is to do.
#[derive(Debug, PartialEq)]
pub enum Output {
    Send {
        conn: Conn,
        bytes: Bytes,
    },
    /// After what was sent.
    Close {
        conn: Conn,
    },
    /// A process has completed PMIx_Init, or finalized.
    Connected {
        proc: Proc,
    },
    Finalized {
        proc: Proc,
    },
    /// A process says that it waits for its debugger, whether it was told to stop or not. It runs on when
    /// [`Input::Release`] names it.
    Ready {
        proc: Proc,
    },
    /// A process has broken contact.
    Lost {
        proc: Proc,
    },
    /// To be answered by [`Input::Answer`], once.
    Ask(Box<Ask>),
    /// An event, which may concern the host itself, and which these nodes have not heard of.
    Event {
        event: Box<Event>,
        elsewhere: Elsewhere,
    },
    /// All members of a collective on this node have called; it has members on all of these nodes, which are in order.
    /// To be answered by [`Input::Gathered`], once.
    Gather {
        ticket: GatherTicket,
        id: GatherId,
        nodes: Vec<u32>,
        share: Bytes,
    },
    /// Members here do not come to the oldest gather of this name that waits for this node.
    Absent {
        id: GatherId,
        status: Status,
    },
    /// A collective over these nodes waits for members on this one. Said since [`Input::Watch`]. It is answered by
    /// [`Input::Gathered`] when members elsewhere do not come; else the share follows, under the same ticket.
    Waits {
        ticket: GatherTicket,
        id: GatherId,
        nodes: Vec<u32>,
    },
    /// Nobody here waits any more for what [`Output::Waits`] has said.
    Forgotten {
        ticket: GatherTicket,
        id: GatherId,
    },
    /// This node takes its share back, or what it has said to wait for: the gather is over for all. No answer is needed.
    Withdrawn {
        ticket: GatherTicket,
        id: GatherId,
        status: Status,
    },
    /// Members here have gone, for whom other nodes may wait. The host has this server asked, now and from now on, about
    /// gathers that wait for it ([`Gathers::members_gone`]).
    MembersGone,
    /// Answers [`Input::Awaited`]: nobody here will call. The others go on with this share, or cannot.
    Declined {
        id: GatherId,
        number: GatherNumber,
        result: Result<Bytes, Status>,
    },
    /// Asks the server of another node about a process there. To be answered by [`Input::DirectGot`], once.
    DirectGet {
        ticket: GetTicket,
        node: u32,
        question: Bytes,
    },
    /// Nobody here waits any more for the answer to [`Output::DirectGet`]. No answer is needed.
    NoLongerAsked {
        ticket: GetTicket,
        node: u32,
    },
    /// Answers [`Input::AskedFor`].
    Told {
        node: u32,
        ticket: GetTicket,
        result: Result<Bytes, Status>,
    },
    /// From now on somebody wants output of these channels of a job, and of no others: by [`Input::Output`].
    Wanted {
        nspace: Nspace,
        channels: IofChannels,
    },
    /// Input for processes, to be answered by [`Input::Answer`], once, when it is taken and there is room for more. A rank
    /// may stand for all of a job.
    Stdin {
        ticket: Ticket,
        from: Proc,
        to: Vec<Proc>,
        bytes: Bytes,
        /// No more follows.
        is_last: bool,
    },
    /// Text that a process wants to be seen.
    Log {
        proc: Proc,
        stream: LogStream,
        text: Bytes,
    },
    /// A connection was refused or closed, and why: for the log.
    Refused {
        proc: Option<Proc>,
        error: Refusal,
    },
}

/// Where text goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogStream {
    Stdout,
    Stderr,
}

/// Why a connection was refused or closed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error(transparent)]
    Protocol(#[from] Error),
    #[error("the kernel does not say whose connection it is")]
    UnknownOwner,
    #[error("it belongs to user {actual}, the job to user {expected}")]
    WrongOwner { expected: u32, actual: u32 },
    #[error("it says that it is {0}, which is no process of a job here")]
    UnknownProc(Proc),
    #[error("it wants the data store `{0}`; there is `hash` only")]
    UnknownStore(String),
    #[error("it wants to prove who it is by `{0}`")]
    UnknownSecurity(String),
    #[error("more than {MAX_WAITING} of its requests wait")]
    TooManyRequests,
    #[error("tools cannot connect yet")]
    Tool,
}

/// A request that the host answers.
#[derive(Debug, PartialEq)]
pub struct Ask {
    pub ticket: Ticket,
    pub from: Proc,
    pub request: Request,
}

/// Names an [`Ask`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Names an [`Output::Gather`] of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GatherTicket(pub u64);

/// Names a gather of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GatherNumber(pub u64);

/// Names an [`Output::DirectGet`] of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GetTicket(pub u64);

/// Where an answer goes: to be used once.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "every request is answered"]
struct ReplyTo {
    conn: Conn,
    tag: u32,
}

/// The state machine.
#[derive(Debug)]
pub struct Server {
    config: Config,
    jobs: BTreeMap<Nspace, Namespace>,
    /// The names of jobs by their numbers.
    names: BTreeMap<u32, Nspace>,
    next_job: u32,
    peers: BTreeMap<Conn, Peer>,
    gets: Gets,
    questions: Questions,
    collectives: Collectives,
    groups: Groups,
    connected_sets: ConnectedSets,
    /// Members may have gone on other nodes.
    is_watching: bool,
    events: Events,
    monitors: Monitors,
    subscriptions: Subscriptions,
    timers: Timers,
    /// Processes whose connection broke, and until when they may come back.
    silent: BTreeMap<Proc, Time>,
    asks: BTreeMap<Ticket, ReplyTo>,
    next_ticket: u64,
    out: VecDeque<Output>,
}

impl Server {
    /// A server without jobs.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            groups: Groups::new(config.context),
            config,
            jobs: BTreeMap::new(),
            names: BTreeMap::new(),
            next_job: 0,
            peers: BTreeMap::new(),
            gets: Gets::default(),
            questions: Questions::default(),
            collectives: Collectives::default(),
            connected_sets: ConnectedSets::default(),
            is_watching: false,
            events: Events::default(),
            monitors: Monitors::default(),
            subscriptions: Subscriptions::default(),
            timers: Timers::default(),
            silent: BTreeMap::new(),
            asks: BTreeMap::new(),
            next_ticket: 0,
            out: VecDeque::new(),
        }
    }

    /// Takes one event. Never blocks and never fails: failure is an output.
    pub fn handle(&mut self, now: Time, input: Input<'_>) {
        match input {
            Input::Register(job) => self.on_job(now, *job),
            Input::Deregister(nspace) => self.forget_job(now, &nspace),
            Input::Started { proc, pid } => {
                if let Some(job) = self.jobs.get_mut(&proc.nspace) {
                    job.started(proc.rank, pid);
                }
            }
            Input::Ended { proc, status } => self.on_ended(&proc, status),
            Input::Ending(nspace) => self.on_ending(&nspace),
            Input::Output {
                proc,
                channels,
                bytes,
            } => self.on_output(&proc, channels, &bytes),
            Input::Accepted { conn, owner } => self.on_accepted(conn, owner),
            Input::Bytes { conn, bytes } => self.on_bytes(now, conn, bytes),
            Input::Closed { conn } => self.on_closed(now, conn),
            Input::Answer { ticket, answer } => {
                if let Some(reply) = self.asks.remove(&ticket) {
                    self.on_answer(reply, &answer);
                }
            }
            Input::Event(mut event) => {
                self.on_group_event(&mut event);
                self.deliver(&event, event::From::Host);
            }
            Input::Gathered { ticket, result } => self.on_gathered(now, ticket, result),
            Input::Watch => self.on_watch(),
            Input::Awaited { id, number } => self.on_awaited(id, number),
            Input::AskedFor {
                node,
                ticket,
                question,
            } => self.on_asked(now, node, ticket, question),
            Input::NoLongerAsked { node, ticket } => self.on_no_longer_asked(node, ticket),
            Input::DirectGot { ticket, result } => self.on_direct_got(now, ticket, result),
            Input::Release { nspace, ranks } => self.release(&nspace, &ranks),
            Input::Tick => {
                while let Some(timer) = self.timers.pop(now) {
                    match timer {
                        Timer::Get(number) => self.expire_get(number),
                        Timer::Collective(number) => self.expire_collective(number),
                        Timer::Silence(proc) => self.on_silent(proc),
                        Timer::Heartbeat(proc) => self.on_missed(now, proc),
                    }
                }
            }
        }
    }

    /// The next thing to do. Call until `None` after every [`Self::handle`].
    pub fn poll(&mut self) -> Option<Output> {
        self.out.pop_front()
    }

    /// When [`Input::Tick`] is due.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        self.timers.next()
    }

    /// Whether nothing is left of connections and of what they had asked for. For tests.
    #[doc(hidden)]
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.peers.is_empty()
            && self.gets.is_empty()
            && self.questions.is_empty()
            && self.collectives.is_empty()
            && self.events.is_empty()
            && self.monitors.is_empty()
            && self.subscriptions.is_empty()
            && self.silent.is_empty()
            && self.asks.is_empty()
            && self.timers.is_empty()
    }

    /// Whether a job is known here.
    #[must_use]
    pub fn knows(&self, nspace: &Nspace) -> bool {
        self.jobs.contains_key(nspace)
    }

    /// Carries out one request of a connection.
    fn on_request(&mut self, now: Time, reply: ReplyTo, from: &Proc, request: Request) {
        if directive::is_too_much(&request) {
            return self.status(reply, Status::NOT_SUPPORTED);
        }
        match request {
            Request::JobInfo => self.tell_job(reply, &from.nspace),
            Request::Commit { buckets } => self.on_commit(now, reply, from, &buckets),
            Request::Get {
                nspace,
                rank,
                infos,
                key,
            } => {
                let target = Proc { nspace, rank };
                self.on_get(now, reply, from, target, infos, key);
            }
            Request::RefreshCache { nspace, rank } => {
                self.on_refresh(now, reply, &Proc { nspace, rank });
            }
            Request::Fence { procs, infos } => {
                self.on_collective(now, reply, from, share::Kind::Fence, &procs, infos);
            }
            Request::Connect { procs, infos, .. } => {
                self.on_collective(now, reply, from, share::Kind::Connect, &procs, infos);
            }
            Request::Disconnect { procs, infos } => {
                self.on_collective(now, reply, from, share::Kind::Disconnect, &procs, infos);
            }
            Request::GroupConstruct {
                group,
                procs,
                infos,
            } => self.on_construct(now, reply, from, group, &procs, infos),
            Request::GroupDestruct {
                group,
                procs,
                infos,
            } => self.on_destruct(now, reply, from, group, procs, infos),
            Request::GroupLeave { group, .. } => self.on_leave(reply, from, group),
            Request::Notify {
                status,
                range,
                infos,
            } => {
                let event = Event {
                    status,
                    source: from.clone(),
                    range,
                    infos,
                };
                self.on_notify(reply, event);
            }
            Request::Register { codes, infos } => self.on_register(reply, &codes, &infos),
            Request::Deregister { codes } => {
                self.events.deregister(reply.conn, &codes);
                // It has no answer.
                drop(reply);
            }
            Request::Query { queries } => self.on_query(reply, from, &queries),
            Request::Log {
                data, directives, ..
            } => self.on_log(reply, from, &data, &directives),
            Request::Monitor {
                monitor,
                error,
                infos,
            } => self.on_monitor(now, reply, from, &monitor, error, &infos),
            Request::GetCredential { .. } => self.on_get_credential(reply),
            Request::ValidateCredential { credential, .. } => {
                self.on_validate_credential(reply, &credential);
            }
            Request::ResolvePeers { node, nspace } => {
                self.on_resolve_peers(reply, node.as_deref(), nspace.as_deref());
            }
            Request::ResolveNode { nspace } => self.on_resolve_node(reply, nspace.as_deref()),
            // Finalize is the connection's own business, see `peer`.
            Request::Finalize => self.status(reply, Status::SUCCESS),
            Request::IofPull {
                procs,
                channels,
                id,
                ..
            } => self.on_pull(reply, from, procs, channels, id),
            Request::IofPush {
                procs,
                infos,
                bytes,
            } => self.on_stdin(reply, from, procs, &infos, bytes.unwrap_or_default()),
            Request::IofDeregister { id, .. } => self.on_stop_pulling(reply, id),
            request @ Request::Abort { .. } => {
                if let Some(job) = self.jobs.get_mut(&from.nspace) {
                    job.aborts(from.rank);
                }
                self.ask(reply, from.clone(), request);
            }
            request @ (Request::Publish { .. }
            | Request::Lookup { .. }
            | Request::Unpublish { .. }
            | Request::Spawn { .. }
            | Request::JobControl { .. }) => self.ask(reply, from.clone(), request),
            Request::Allocate { .. }
            | Request::FabricRegister { .. }
            | Request::FabricUpdate { .. }
            | Request::SessionControl { .. }
            | Request::Opaque { .. } => self.status(reply, Status::NOT_SUPPORTED),
        }
    }

    fn on_job(&mut self, now: Time, job: Job) {
        let nspace = job.nspace.clone();
        let forward = job.forward.clone();
        // A job that comes again is another one.
        self.forget_job(now, &nspace);
        let number = self.next_job;
        self.next_job += 1;
        self.names.insert(number, nspace.clone());
        self.jobs
            .insert(nspace.clone(), Namespace::new(number, job));
        if let Some((to, channels)) = forward {
            self.forward(&nspace, &to, channels);
        }
        self.retry_gets(now, &nspace);
    }

    fn on_stdin(
        &mut self,
        reply: ReplyTo,
        from: &Proc,
        to: Vec<Proc>,
        infos: &[Info],
        bytes: Bytes,
    ) {
        let ticket = self.ticket(reply);
        self.out.push_back(Output::Stdin {
            ticket,
            from: from.clone(),
            to,
            is_last: bytes.is_empty() || is_set(infos, crate::keys::IOF_COMPLETE),
            bytes,
        });
    }

    fn ticket(&mut self, reply: ReplyTo) -> Ticket {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.asks.insert(ticket, reply);
        ticket
    }

    fn ask(&mut self, reply: ReplyTo, from: Proc, request: Request) {
        let ticket = self.ticket(reply);
        self.out.push_back(Output::Ask(Box::new(Ask {
            ticket,
            from,
            request,
        })));
    }

    /// Hands on the host's answer. Whoever has spawned a job is told its facts with it, as by other servers: libpmix 4 looks
    /// at nothing else when it is asked about a rank of it.
    fn on_answer(&mut self, reply: ReplyTo, answer: &Answer) {
        if let Answer::Spawned {
            status: Status::SUCCESS,
            nspace: Some(name),
            facts,
        } = answer
            && facts.is_empty()
            && let Ok(nspace) = Nspace::new(name)
            && self.jobs.contains_key(&nspace)
        {
            return self.tell_jobs(reply, iter::once(&nspace), |_| {}, Writer::raw);
        }
        self.answer(reply, answer);
    }

    fn status(&mut self, reply: ReplyTo, status: Status) {
        self.answer(reply, &Answer::Status(status));
    }

    /// Sends an answer, when somebody is still there to get it.
    fn answer(&mut self, reply: ReplyTo, answer: &Answer) {
        let ReplyTo { conn, tag } = reply;
        if let Some(peer) = self.peers.get_mut(&conn)
            && let Some(bytes) = peer.answer(tag, answer)
        {
            self.out.push_back(Output::Send { conn, bytes });
        }
    }

    fn on_log(&mut self, reply: ReplyTo, from: &Proc, data: &[Info], _directives: &[Info]) {
        let mut status = Status::NOT_SUPPORTED;
        for info in data {
            let key = info.key.as_c_str();
            let (stream, text) = match &info.value {
                Value::String(Some(text)) if key == crate::keys::LOG_STDERR => {
                    (LogStream::Stderr, Bytes::copy_from_slice(text.to_bytes()))
                }
                Value::String(Some(text)) if key == crate::keys::LOG_STDOUT => {
                    (LogStream::Stdout, Bytes::copy_from_slice(text.to_bytes()))
                }
                Value::ByteObject(bytes) if key == crate::keys::LOG_STDERR => {
                    (LogStream::Stderr, bytes.clone())
                }
                Value::ByteObject(bytes) if key == crate::keys::LOG_STDOUT => {
                    (LogStream::Stdout, bytes.clone())
                }
                Value::ByteObject(bytes) if key == crate::keys::LOG_MESSAGE => {
                    match help::text(bytes) {
                        Some(text) => (LogStream::Stderr, text),
                        None => continue,
                    }
                }
                _ => continue,
            };
            status = Status::SUCCESS;
            self.out.push_back(Output::Log {
                proc: from.clone(),
                stream,
                text,
            });
        }
        self.status(reply, status);
    }
}

/// A fact under a key that is one of ours, and so never too long.
fn info(key: &std::ffi::CStr, value: Value) -> Option<Info> {
    Key::new(key).ok().map(|key| Info::new(key, value))
}

/// The value of an attribute in a list.
fn find<'a>(infos: &'a [Info], key: &std::ffi::CStr) -> Option<&'a Value> {
    infos
        .iter()
        .find(|info| info.key == *key)
        .map(|info| &info.value)
}

/// Whether an attribute is in a list and set.
fn is_set(infos: &[Info], key: &std::ffi::CStr) -> bool {
    find(infos, key).is_some_and(Value::is_set)
}

/// When a request gives up by its own wish: `pmix.timeout`, in seconds; 0 is never.
fn timeout(now: Time, infos: &[Info]) -> Option<Time> {
    let seconds = find(infos, crate::keys::TIMEOUT)?.as_count()?;
    (seconds > 0).then(|| now + Duration::from_secs(seconds.min(MAX_TIMEOUT)))
}

/// Bytes of a value under its key, as they are in a message.
fn size(key: &Key, value: &Value) -> usize {
    let mut writer = Writer::new(Format::V4);
    writer.kval(key, value);
    writer.as_bytes().len()
}

/// Seconds: a longer time-out is as good as none, and must not overflow.
const MAX_TIMEOUT: u64 = 100 * 365 * 24 * 3600;
