//! The PMIx server of one node: it answers the requests of local processes and of tools.
//!
//! The server is a state machine without I/O. It takes [`Input`]s and the time, and returns [`Output`]s that its host
//! carries out. A request that PMIx alone cannot answer becomes an [`Ask`] to the host.
//!
//! If a job has ranks on several nodes, each of these nodes has a server, and the hosts carry the messages between
//! them. Hosts must keep the order of the messages from one server to another, and from each server to the controller:
//!
//! | output | answer | carried by |
//! |---|---|---|
//! | [`Output::Gather`], [`Output::Waits`] | [`Input::Gathered`] | the controller's [`Gathers`] |
//! | [`Output::NoShare`], [`Output::Withdrawn`], [`Output::Forgotten`] | none | the controller's [`Gathers`] |
//! | [`Output::MembersGone`] | [`Input::Awaited`]; the servers of other nodes get [`Input::Watch`] | the controller's [`Gathers`] |
//! | [`Output::Declined`], the answer to [`Input::Awaited`] | none | the controller's [`Gathers`] |
//! | [`Output::Question`] | [`Input::QuestionAnswered`] | the node in it, by [`Input::Question`] and [`Output::QuestionAnswered`] |
//! | [`Output::NoLongerAsked`] | none | the node in it, by [`Input::NoLongerAsked`] |
//! | [`Output::Event`] | none | the nodes in it, by [`Input::Event`] |
//!
//! Every server of a dvm must know every job ([`Input::Register`]), even one without ranks on its node: local processes
//! may connect with it (PMIx_Connect).
//!
//! States of a connection:
//!
//! | state | handshake | the host decides | request | finalize | malformed input | connection closes |
//! |---|---|---|---|---|---|---|
//! | `Greeting` | of a process: `Connected`, or refused and closed; of a tool: `Waiting`, or refused and closed | – | – | – | closed | peer dropped |
//! | `Waiting` | – | `Connected`, or refused and closed | closed | closed | closed | peer dropped |
//! | `Called`: a tool that has started this launcher | – | `Connected`, or closed | kept | kept | kept | peer dropped |
//! | `Connected` | – | – | answered | `Finalized` | closed, process *lost* | process *lost*; tool dropped |
//! | `Finalized` | – | – | refused with INIT | refused with INIT | frame: closed; request: refused with INIT | peer dropped |
//!
//! A process is *lost* if its connection closed without PMIx_Finalize and it has not reconnected within [`LOST_DELAY`].
//! A lost process is not dead: it may still connect. Its parent reports its death, as [`Input::Ended`]. While a process
//! is lost or dead, no collective can include it; what the other participants get is in `collective`.
//!
//! What can wait, and what ends the wait:
//!
//! | what waits | what ends the wait |
//! |---|---|
//! | collective | the call of its last member; the loss or death of a member; the end of a member's job; `pmix.timeout` |
//! | collective over several nodes | the same events, as the tables in `gather` say |
//! | get | a commit by its target; the death of its target; the end of its job; `pmix.timeout`; [`MISSING_KEY_DELAY`] |
//! | get about a process on another node | that node's answer, for which the get waits there in the same way |
//! | get about a process on another node | the loss of that node; the end of the job; `pmix.timeout` |
//! | ask | the answer of the host |
//! | heartbeat | the next heartbeat; the end of the process |
//!
//! Every wait also ends when the connection of the waiting process closes. The exception is a collective whose share
//! was sent to other nodes: it stays until the host answers, which the host always does.
//!
//! What a peer can make grow, and what happens at the bound:
//!
//! | what | bound | at the bound |
//! |---|---|---|
//! | a message | [`crate::frame::MAX_MESSAGE`] | the connection is closed |
//! | unanswered requests of a connection, and their bytes | [`MAX_WAITING`], [`MAX_WAITING_BYTES`] | the connection is closed |
//! | committed data of a process | [`MAX_COMMITTED`] | OUT_OF_RESOURCE |
//! | infos that a process hands in for groups | [`MAX_HANDED_IN`] | the oldest is dropped |
//! | groups | [`MAX_GROUPS`] | OUT_OF_RESOURCE |
//! | sets of connected processes | [`MAX_CONNECTED_SETS`] | OUT_OF_RESOURCE |
//! | event codes that a connection has registered for | [`MAX_CODES`] | OUT_OF_RESOURCE |
//! | affected processes that an event registration names | [`MAX_AFFECTED`] | it applies to all processes |
//! | events cached for later registrations, and their bytes | [`MAX_CACHED_EVENTS`], [`MAX_CACHED_BYTES`] | the oldest is dropped |
//! | subscriptions of a connection to output | [`MAX_SUBSCRIPTIONS`] | OUT_OF_RESOURCE |
//! | processes in one subscription | [`MAX_SUBSCRIPTION_PROCS`] | BAD_PARAM |
//! | output kept for tools: of a channel of a job, of all jobs | [`MAX_KEPT`], [`MAX_KEPT_BYTES`] | the newest or the oldest is dropped |
//! | jobs that have ended and of which output is kept | [`MAX_KEPT_JOBS`] | the first one is forgotten |
//! | collectives that wait for other nodes | [`MAX_SENT`] | OUT_OF_RESOURCE |
//! | bytes of their ids and shares | [`MAX_SENT_BYTES`] | OUT_OF_RESOURCE |
//! | data in the share of a fence | [`MAX_FENCE_SHARE`], the rest of [`MAX_SENT_BYTES`], a node's part of [`MAX_CARRIED`] | further data is fetched by gets |
//! | a message to another server, or all shares of a collective | [`MAX_CARRIED`] | OUT_OF_RESOURCE |
//! | questions to other nodes | [`MAX_QUESTIONS`] | OUT_OF_RESOURCE |
//! | bytes of one call for the coordinator of a group | [`MAX_CALL`], the rest of [`MAX_SENT_BYTES`] | the group gets OUT_OF_RESOURCE |
//! | questions about one process, and bytes of a question | [`MAX_QUESTIONS_ABOUT`], [`MAX_QUESTION`] | OUT_OF_RESOURCE |
//! | published data, and its bytes | [`MAX_PUBLISHED`], [`MAX_PUBLISHED_BYTES`] | OUT_OF_RESOURCE |
//! | look-ups that wait | [`MAX_LOOKUPS`] | OUT_OF_RESOURCE |
//!
//! The host bounds the output that is queued for a connection: it closes a connection whose peer does not read.

mod attributes;
mod collective;
mod connected;
mod construct;
mod coordinate;
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
mod kept;
mod log;
mod member;
mod monitor;
mod peer;
mod published;
mod query;
mod question;
mod registration;
mod request;
mod set;
mod share;
mod stored;
mod subscription;
mod support;
mod termination;
mod timers;
mod tool;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use base::Time;

use self::{
    collective::Collectives,
    connected::ConnectedSets,
    coordinate::Coordination,
    direct::Questions,
    event::Events,
    get::{Asker, Gets},
    group::Groups,
    infos::{find, info, is_set, size, timeout},
    job::Namespace,
    monitor::Monitors,
    peer::Peer,
    query::AskedQuery,
    subscription::Subscriptions,
    timers::{Timer, Timers},
};
pub use self::{
    collective::{MAX_SENT, MAX_SENT_BYTES},
    connected::MAX_CONNECTED_SETS,
    coordinate::MAX_CALL,
    direct::{MAX_QUESTION, MAX_QUESTIONS, MAX_QUESTIONS_ABOUT},
    directive::unknown_launch_directive,
    environment::{LIBRARY_VERSION, environment},
    event::{MAX_AFFECTED, MAX_CACHED_BYTES, MAX_CACHED_EVENTS, MAX_CODES},
    gather::MAX_FENCE_SHARE,
    gathers::{Gathers, Notice, Watchers},
    group::MAX_GROUPS,
    host::{
        Ask, Config, Conn, Door, Elsewhere, Event, GatherNumber, GatherTicket, Input, LogStream,
        Output, PeerOwner, QuestionTicket, Redirected, Refusal, Syslog, SyslogPlace, Ticket, Tools,
        Visitor,
    },
    kept::{KEPT_DEFAULT, Keeping, MAX_KEPT, MAX_KEPT_BYTES, MAX_KEPT_JOBS, Overflow},
    published::{FoundFor, MAX_LOOKUPS, MAX_PUBLISHED, MAX_PUBLISHED_BYTES, PublishedData},
    question::{ConstructQuestion, Constructed, GetQuestion, Patience, Question},
    registration::{AppFacts, Job, NodeFacts, RankFacts, Stop, StopIn},
    share::{Contribution, GatherId, Joined, MAX_CARRIED, Share},
    stored::{MAX_COMMITTED, MAX_HANDED_IN},
    subscription::{MAX_SUBSCRIPTION_PROCS, MAX_SUBSCRIPTIONS},
};
use crate::value::{Nspace, Proc};

/// Time that a get for one key waits for another commit if its target has committed without that key. Only for gets
/// without `pmix.timeout`. OpenPMIx uses the same value: programs ask for keys that may never be put, and expect an
/// answer.
pub const MISSING_KEY_DELAY: Duration = Duration::from_secs(2);
/// Time that a process has to reconnect after its connection broke, before it is *lost*. Meanwhile its end may be
/// reported, which says more than a broken connection.
pub const LOST_DELAY: Duration = Duration::from_secs(1);
/// Unanswered requests of one connection. A connection that exceeds it is closed.
pub const MAX_WAITING: usize = 4096;
/// Bytes of the unanswered requests of one connection, unless it has only one. A connection that exceeds it is closed.
pub const MAX_WAITING_BYTES: usize = 64 << 20;

/// The connection and tag of a request that is to be answered, exactly once.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "every request is answered"]
struct ReplyTo {
    conn: Conn,
    tag: u32,
}

/// The state machine of one node's PMIx server.
#[derive(Debug)]
pub struct Server {
    config: Config,
    jobs: BTreeMap<Nspace, Namespace>,
    /// Names of the jobs, by the numbers that this server gave them.
    names: BTreeMap<u32, Nspace>,
    next_job: u32,
    peers: BTreeMap<Conn, Peer>,
    gets: Gets,
    questions: Questions,
    coordination: Coordination,
    collectives: Collectives,
    groups: Groups,
    connected_sets: ConnectedSets,
    /// True after [`Input::Watch`]: collectives that wait for members on this node are reported by [`Output::Waits`].
    is_watching: bool,
    events: Events,
    monitors: Monitors,
    subscriptions: Subscriptions,
    timers: Timers,
    /// Processes whose connection broke, and the time at which each is *lost*.
    silent: BTreeMap<Proc, Time>,
    asks: BTreeMap<Ticket, ReplyTo>,
    /// The log requests among them of which a part is on a stream.
    partly_logged: BTreeSet<Ticket>,
    /// Queries that wait for an answer of the host.
    queries: BTreeMap<Ticket, AskedQuery>,
    next_ticket: u64,
    out: VecDeque<Output>,
}

impl Server {
    /// Returns a server without jobs.
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
            coordination: Coordination::default(),
            collectives: Collectives::default(),
            connected_sets: ConnectedSets::default(),
            is_watching: false,
            events: Events::default(),
            monitors: Monitors::default(),
            subscriptions: Subscriptions::default(),
            timers: Timers::default(),
            silent: BTreeMap::new(),
            asks: BTreeMap::new(),
            partly_logged: BTreeSet::new(),
            queries: BTreeMap::new(),
            next_ticket: 0,
            out: VecDeque::new(),
        }
    }

    /// Handles one input. Never blocks and never fails: failures are reported as outputs.
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
            Input::Called {
                conn,
                tool,
                version,
            } => self.on_called(conn, tool, version),
            Input::Bytes { conn, bytes } => self.on_bytes(now, conn, bytes),
            Input::Closed { conn } => self.on_closed(now, conn),
            Input::ToolAdmitted { conn, name } => self.on_tool_admitted(now, conn, name),
            Input::Answer { ticket, answer } => {
                if let Some(reply) = self.asks.remove(&ticket) {
                    let answer = match self.partly_logged.remove(&ticket) {
                        true => log::partly(answer),
                        false => answer,
                    };
                    self.on_answer(reply, &answer);
                } else if let Some(asked) = self.queries.remove(&ticket) {
                    self.on_query_asked(asked, &answer);
                }
            }
            Input::Event(event) => self.on_event(*event),
            Input::DefineSet {
                nspace,
                name,
                ranks,
            } => self.define_set(&nspace, name, ranks),
            Input::Gathered { ticket, result } => self.on_gathered(now, ticket, result),
            Input::Watch => self.on_watch(),
            Input::Awaited { id, number } => self.on_awaited(id, number),
            Input::Question {
                node,
                ticket,
                question,
            } => self.on_question(now, node, ticket, question),
            Input::NoLongerAsked { node, ticket } => self.on_no_longer_asked(node, ticket),
            Input::QuestionAnswered { ticket, result } => {
                self.on_question_answered(now, ticket, result)
            }
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
        self.end_watches();
    }

    /// Returns the next output. To be called after every [`Self::handle`] until it returns `None`.
    pub fn poll(&mut self) -> Option<Output> {
        self.out.pop_front()
    }

    /// Returns the time at which [`Input::Tick`] is due; `None` if no timer is set.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        self.timers.next()
    }

    /// Returns true if no connection, outstanding request or timer remains. For tests.
    #[doc(hidden)]
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.peers.is_empty()
            && self.gets.is_empty()
            && self.questions.is_empty()
            && self.coordination.is_empty()
            && self.collectives.is_empty()
            && self.events.is_empty()
            && self.monitors.is_empty()
            && self.subscriptions.is_empty()
            && self.silent.is_empty()
            && self.asks.is_empty()
            && self.partly_logged.is_empty()
            && self.queries.is_empty()
            && self.timers.is_empty()
    }

    /// Returns true if the job is registered and not deregistered.
    #[must_use]
    pub fn knows(&self, nspace: &Nspace) -> bool {
        self.jobs.contains_key(nspace)
    }

    fn on_job(&mut self, now: Time, job: Job) {
        let nspace = job.nspace.clone();
        let forward = job.forward.clone();
        let keep = job.keep.map(|keeping| (job.parent.clone(), keeping));
        // A name that is registered again belongs to a new job.
        self.forget_job(now, &nspace);
        self.subscriptions.forget_kept(&nspace);
        let number = self.next_job;
        self.next_job += 1;
        self.names.insert(number, nspace.clone());
        self.jobs
            .insert(nspace.clone(), Namespace::new(number, job));
        if let Some((to, channels)) = forward {
            self.forward(&nspace, &to, channels);
        }
        if let Some((spawner, keeping)) = keep {
            self.keep(&nspace, spawner.as_ref(), keeping);
        }
        self.say_wanted_of(&nspace);
        self.retry_gets(now, &nspace);
        self.announce_ends();
        self.announce_sets(&nspace);
    }
}
