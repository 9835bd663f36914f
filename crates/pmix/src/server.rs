//! The server of one node: what the processes of jobs there, and tools, are told and what they are asked for.
//!
//! It does nothing itself: it takes [`Input`]s and the time, and gives [`Output`]s that its host carries out. What goes
//! beyond the node, or beyond PMIx, is an [`Ask`] that the host answers.
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
//! | a collective | its last member; the loss or death of a member; `pmix.timeout` |
//! | a get | a commit of its target; the death of its target; `pmix.timeout`; [`MISSING_KEY_DELAY`] |
//! | an ask | the host |
//! | a heartbeat | the next one; the end of the process |

mod collective;
mod environment;
mod event;
mod get;
mod group;
mod job;
mod monitor;
mod peer;
mod query;
mod store;

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use base::Time;
use bytes::Bytes;

use self::{
    collective::Collectives, event::Events, get::Gets, group::Groups, job::Namespace,
    monitor::Monitors, peer::Peer,
};
pub use self::{
    environment::environment,
    job::{AppFacts, Job, NodeFacts, RankFacts},
    store::{Exchange, FoundFor, MAX_PUBLISHED},
};
use crate::{
    Error,
    message::{Answer, Push, Request},
    value::{Info, Nspace, Proc, Range, Status, Value},
};

/// How long a get for one key waits for another commit of a process that has committed without that key. OpenPMIx's
/// number: programs ask for keys that may never come and count on an end.
pub const MISSING_KEY_DELAY: Duration = Duration::from_secs(2);
/// How long a process whose connection broke is waited for: it may have ended, and its end says more than its silence,
/// or connect again.
pub const LOST_DELAY: Duration = Duration::from_secs(1);
/// Requests of one connection that wait at once.
pub const MAX_WAITING: usize = 4096;
/// Events that are kept for those who register later.
pub const MAX_CACHED_EVENTS: usize = 512;

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
    /// A process has ended.
    Ended {
        proc: Proc,
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
    /// A process has broken contact.
    Lost {
        proc: Proc,
    },
    /// To be answered by [`Input::Answer`], once.
    Ask(Box<Ask>),
    /// An event that concerns more than the processes here: other nodes, or the host itself.
    Event(Box<Event>),
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
    peers: BTreeMap<Conn, Peer>,
    gets: Gets,
    collectives: Collectives,
    groups: Groups,
    events: Events,
    monitors: Monitors,
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
            peers: BTreeMap::new(),
            gets: Gets::default(),
            collectives: Collectives::default(),
            events: Events::default(),
            monitors: Monitors::default(),
            silent: BTreeMap::new(),
            asks: BTreeMap::new(),
            next_ticket: 0,
            out: VecDeque::new(),
        }
    }

    /// Takes one event. Never blocks and never fails: failure is an output.
    pub fn handle(&mut self, now: Time, input: Input<'_>) {
        match input {
            Input::Register(job) => {
                let nspace = job.nspace.clone();
                self.jobs.insert(nspace.clone(), Namespace::new(*job));
                self.retry_gets(now, &nspace);
            }
            Input::Deregister(nspace) => self.forget_job(now, &nspace),
            Input::Started { proc, pid } => {
                if let Some(job) = self.jobs.get_mut(&proc.nspace) {
                    job.started(proc.rank, pid);
                }
            }
            Input::Ended { proc } => {
                if let Some(job) = self.jobs.get_mut(&proc.nspace) {
                    job.ended(proc.rank);
                }
                self.monitors.forget(&proc);
                self.silent.remove(&proc);
                self.on_gone(&proc);
                self.fail_gets_of_dead(&proc);
            }
            Input::Accepted { conn, owner } => self.on_accepted(conn, owner),
            Input::Bytes { conn, bytes } => self.on_bytes(now, conn, bytes),
            Input::Closed { conn } => self.on_closed(now, conn),
            Input::Answer { ticket, answer } => {
                if let Some(reply) = self.asks.remove(&ticket) {
                    self.answer(reply, &answer);
                }
            }
            Input::Event(event) => self.deliver(&event, event::From::Host),
            Input::Tick => {
                self.expire_gets(now);
                self.expire_collectives(now);
                self.check_heartbeats(now);
                self.expire_silent(now);
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
        [
            self.gets.deadline(),
            self.collectives.deadline(),
            self.monitors.deadline(),
            self.silent.values().min().copied(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Whether a job is known here.
    #[must_use]
    pub fn knows(&self, nspace: &Nspace) -> bool {
        self.jobs.contains_key(nspace)
    }

    /// Carries out one request of a connection.
    fn on_request(&mut self, now: Time, reply: ReplyTo, from: &Proc, request: Request) {
        match request {
            Request::JobInfo => self.tell_job(reply, &from.nspace),
            Request::Commit { buckets } => self.on_commit(now, reply, from, buckets),
            Request::Get {
                nspace,
                rank,
                infos,
                key,
            } => {
                let target = Proc { nspace, rank };
                self.on_get(now, reply, from, target, &infos, key);
            }
            Request::RefreshCache { nspace, rank } => {
                self.on_refresh(reply, &Proc { nspace, rank });
            }
            Request::Fence { procs, infos } => {
                self.on_collective(now, reply, from, collective::Kind::Fence, procs, infos);
            }
            Request::Connect { procs, infos, .. } => {
                self.on_collective(now, reply, from, collective::Kind::Connect, procs, infos);
            }
            Request::Disconnect { procs, infos } => {
                self.on_collective(now, reply, from, collective::Kind::Disconnect, procs, infos);
            }
            Request::GroupConstruct {
                group,
                procs,
                infos,
            } => self.on_construct(now, reply, from, group, procs, infos),
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
            Request::Register { codes, infos } => self.on_register(reply, codes, &infos),
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
            request @ (Request::Abort { .. }
            | Request::Publish { .. }
            | Request::Lookup { .. }
            | Request::Unpublish { .. }
            | Request::Spawn { .. }
            | Request::JobControl { .. }
            | Request::IofPull { .. }
            | Request::IofPush { .. }
            | Request::IofDeregister { .. }) => self.ask(reply, from.clone(), request),
            Request::Allocate { .. }
            | Request::FabricRegister { .. }
            | Request::FabricUpdate { .. }
            | Request::SessionControl { .. }
            | Request::Opaque { .. } => self.status(reply, Status::NOT_SUPPORTED),
        }
    }

    fn expire_silent(&mut self, now: Time) {
        let lost: Vec<Proc> = self
            .silent
            .extract_if(.., |_, until| *until <= now)
            .map(|(proc, _)| proc)
            .collect();
        for proc in lost {
            if let Some(job) = self.jobs.get_mut(&proc.nspace) {
                job.lost(proc.rank);
            }
            self.on_gone(&proc);
            self.out.push_back(Output::Lost { proc });
        }
    }

    fn ask(&mut self, reply: ReplyTo, from: Proc, request: Request) {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.asks.insert(ticket, reply);
        self.out.push_back(Output::Ask(Box::new(Ask {
            ticket,
            from,
            request,
        })));
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

    fn push(&mut self, conn: Conn, push: &Push) {
        if let Some(bytes) = self.peers.get(&conn).and_then(|peer| peer.push(push)) {
            self.out.push_back(Output::Send { conn, bytes });
        }
    }

    fn on_log(&mut self, reply: ReplyTo, from: &Proc, data: &[Info], _directives: &[Info]) {
        let mut status = Status::NOT_SUPPORTED;
        for info in data {
            let stream = if *info.key.as_c_str() == *crate::keys::LOG_STDERR {
                LogStream::Stderr
            } else if *info.key.as_c_str() == *crate::keys::LOG_STDOUT {
                LogStream::Stdout
            } else {
                continue;
            };
            let text = match &info.value {
                Value::String(Some(text)) => Bytes::copy_from_slice(text.to_bytes()),
                Value::ByteObject(bytes) => bytes.clone(),
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

    /// The credential of the `native` security module: the user and group, which prove nothing by themselves. Here
    /// they are true, because the kernel was asked whose connection it is.
    fn on_get_credential(&mut self, reply: ReplyTo) {
        let mut credential = Vec::with_capacity(8);
        credential.extend_from_slice(&self.config.uid.to_ne_bytes());
        credential.extend_from_slice(&self.config.gid.to_ne_bytes());
        let infos = info(crate::keys::CRED_TYPE, Value::text("native"));
        self.answer(
            reply,
            &Answer::Credential {
                credential: credential.into(),
                infos: infos.into_iter().collect(),
            },
        );
    }

    fn on_validate_credential(&mut self, reply: ReplyTo, credential: &[u8]) {
        let valid = credential
            .first_chunk::<4>()
            .is_some_and(|uid| u32::from_ne_bytes(*uid) == self.config.uid)
            && credential.len() == 8;
        if !valid {
            self.status(reply, Status::INVALID_CRED);
            return;
        }
        let infos = info(crate::keys::USER_ID, Value::Uint32(self.config.uid));
        self.answer(
            reply,
            &Answer::Infos {
                status: Status::SUCCESS,
                infos: infos.into_iter().collect(),
            },
        );
    }
}

/// A fact under a key that is one of ours, and so never too long.
fn info(key: &std::ffi::CStr, value: Value) -> Option<Info> {
    crate::value::Key::new(key)
        .ok()
        .map(|key| Info::new(key, value))
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

/// Seconds: a longer time-out is as good as none, and must not overflow.
const MAX_TIMEOUT: u64 = 100 * 365 * 24 * 3600;
