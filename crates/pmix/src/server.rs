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
//! All servers of a dvm must know of every job ([`Input::Register`]), whether it has ranks on their nodes or not:
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
//! | sets of connected processes | [`MAX_CONNECTED_SETS`] | OUT_OF_RESOURCE |
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
mod host;
mod infos;
mod job;
mod member;
mod monitor;
mod peer;
mod published;
mod query;
mod registration;
mod request;
mod share;
mod stored;
mod subscription;
mod termination;
mod timers;

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use base::Time;

use self::{
    collective::Collectives,
    connected::ConnectedSets,
    direct::Questions,
    event::Events,
    get::{Asker, Gets},
    group::Groups,
    infos::{find, info, is_set, size, timeout},
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
    event::{MAX_AFFECTED, MAX_CACHED_BYTES, MAX_CACHED_EVENTS, MAX_CODES},
    gather::MAX_BROUGHT,
    gathers::{Gathers, Notice},
    group::MAX_GROUPS,
    host::{
        Ask, Config, Conn, Elsewhere, Event, GatherNumber, GatherTicket, GetTicket, Input,
        LogStream, Output, PeerOwner, Refusal, Ticket,
    },
    published::{FoundFor, MAX_LOOKUPS, MAX_PUBLISHED, MAX_PUBLISHED_BYTES, PublishedData},
    registration::{AppFacts, Job, NodeFacts, RankFacts, Stop, StopIn},
    share::{Contribution, GatherId, Joined, Patience, Question, Share},
    stored::{MAX_COMMITTED, MAX_HANDED_IN},
    subscription::{MAX_SUBSCRIPTION_PROCS, MAX_SUBSCRIPTIONS},
};
use crate::value::{Nspace, Proc};

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
}
