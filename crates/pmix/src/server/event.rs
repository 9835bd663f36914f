//! Events: registrations, delivery, and a cache for later registrations.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use base::RankSet;
use bytes::Bytes;

use super::{
    Conn, Elsewhere, Event, MAX_CARRIED, Output, ReplyTo, Server, find, info, is_set,
    job::Namespace,
    peer::{Known, Role},
};
use crate::{
    codec::{Family, Format, Writer},
    frame, keys,
    message::Push,
    planted::{self, Bug},
    value::{Info, Nspace, Proc, Range, Status, Value},
};

/// Events cached for later registrations. Beyond it, the oldest is dropped.
pub const MAX_CACHED_EVENTS: usize = 512;
/// Bytes of the events cached for later registrations. Beyond it, the oldest is dropped; a larger event is not cached.
pub const MAX_CACHED_BYTES: usize = 4 << 20;
/// Codes that one connection may have registered for. A registration beyond it gets OUT_OF_RESOURCE.
pub const MAX_CODES: usize = 4096;
/// Affected processes that one connection may name for one code. Beyond it, the registration applies to all processes.
pub const MAX_AFFECTED: usize = 4096;

/// Registrations of connections, and the events cached for later registrations.
#[derive(Debug, Default)]
pub(super) struct Events {
    by_conn: BTreeMap<Conn, Interests>,
    kept: VecDeque<Kept>,
    kept_bytes: usize,
    /// Number of events and of ends of jobs so far.
    count: u64,
    /// For each tool, the number of events before it came.
    tools: BTreeMap<Conn, u64>,
    /// True if the other servers know that a process on this node wants [`Status::EVENT_PROC_TERMINATED`].
    are_ends_announced: bool,
    /// True if processes on other nodes want it.
    are_ends_wanted: bool,
}

/// The codes of events about the end of a process.
const END_CODES: [Status; 6] = [
    Status::EVENT_PROC_TERMINATED,
    Status::PROC_TERMINATED,
    Status::PROC_TERM_WO_SYNC,
    Status::PROC_ABORTED_BY_SIG,
    Status::PROC_REQUESTED_ABORT,
    Status::EXIT_NONZERO_TERM,
];

/// The status of the event by which a server tells the others, once, that a process on its node has registered for
/// [`Status::EVENT_PROC_TERMINATED`], or a tool for the ends of processes. Every process causes that event when it ends, and hardly any program wants it: without
/// a registration elsewhere, it stays on its node.
const ENDS_WANTED: Status = Status(i32::MIN);

/// A cached event, and its size in a message.
#[derive(Debug)]
struct Kept {
    /// Number of events before it.
    number: u64,
    event: Event,
    /// The job that it is about.
    job: Nspace,
    /// Number of events before the end of that job; `None` while it exists.
    over: Option<u64>,
    size: usize,
}

/// The registrations of one connection.
#[derive(Clone, Debug, Default)]
struct Interests {
    codes: BTreeMap<Status, Affected>,
    /// The default handler, for events without a registered code; `None` if it has none.
    default: Option<Affected>,
}

/// The affected processes to which a registration is limited.
#[derive(Clone, Debug, PartialEq)]
enum Affected {
    Anybody,
    Only(BTreeSet<Proc>),
}

/// The source of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum From {
    /// A process on this node, or this server on its behalf: other nodes have not received the event.
    Peer,
    /// The host, which has sent the event to other nodes.
    Host,
}

impl Events {
    pub(super) fn forget(&mut self, conn: Conn) {
        self.by_conn.remove(&conn);
        self.tools.remove(&conn);
    }

    /// Notes that a job is over. A tool that came before may still ask for the events about it.
    pub(super) fn forget_job(&mut self, nspace: &Nspace) {
        let about = |kept: &&mut Kept| kept.over.is_none() && kept.job == *nspace;
        for kept in self.kept.iter_mut().filter(about) {
            kept.over = Some(self.count);
        }
        self.count += 1;
    }

    /// Notes that a tool has come. Earlier events may concern jobs that it knows nothing of.
    pub(super) fn tool_came(&mut self, conn: Conn) {
        self.tools.insert(conn, self.count);
    }

    pub(super) fn deregister(&mut self, conn: Conn, codes: &[Status]) {
        let Some(interests) = self.by_conn.get_mut(&conn) else {
            return;
        };
        for code in codes {
            if *code == Status::DEFAULT_HANDLER {
                interests.default = None;
            } else {
                interests.codes.remove(code);
            }
        }
        if interests.codes.is_empty() && interests.default.is_none() {
            self.by_conn.remove(&conn);
        }
    }

    /// Returns true if a process on another node may want to know about regular ends.
    pub(super) const fn are_ends_wanted(&self) -> bool {
        self.are_ends_wanted
    }

    /// Returns true if there are no registrations.
    pub(super) fn is_empty(&self) -> bool {
        self.by_conn.is_empty() && self.tools.is_empty()
    }

    fn keep(&mut self, event: &Event, size: usize) {
        let number = self.count;
        self.count += 1;
        if is_set(&event.infos, keys::EVENT_DO_NOT_CACHE) || size > MAX_CACHED_BYTES {
            return;
        }
        self.kept_bytes += size;
        self.kept.push_back(Kept {
            number,
            event: event.clone(),
            job: job_of(event),
            over: None,
            size,
        });
        while self.kept.len() > MAX_CACHED_EVENTS || self.kept_bytes > MAX_CACHED_BYTES {
            let Some(oldest) = self.kept.pop_front() else {
                return;
            };
            self.kept_bytes -= oldest.size;
        }
    }
}

impl Interests {
    fn wants(&self, event: &Event) -> bool {
        let affected = match self.codes.get(&event.status) {
            Some(affected) => affected,
            None if is_set(&event.infos, keys::EVENT_NON_DEFAULT) => return false,
            None => match &self.default {
                Some(affected) => affected,
                None => return false,
            },
        };
        let Affected::Only(procs) = affected else {
            return true;
        };
        // An event that names no affected process may concern any process.
        affected_by(&event.infos).is_none_or(|about| {
            about.iter().any(|about| {
                procs
                    .iter()
                    .any(|proc| proc.covers(about) || about.covers(proc))
            })
        })
    }
}

impl Affected {
    /// Returns the union: an event is wanted if either registration wants it.
    fn or(self, other: &Self) -> Self {
        match (self, other) {
            (Self::Only(mut some), Self::Only(more)) if some.len() + more.len() <= MAX_AFFECTED => {
                some.extend(more.iter().cloned());
                Self::Only(some)
            }
            _ => Self::Anybody,
        }
    }
}

impl Server {
    pub(super) fn on_register(&mut self, reply: ReplyTo, codes: &[Status], infos: &[Info]) {
        let conn = reply.conn;
        let affected = match affected_by(infos) {
            Some(procs) if procs.len() <= MAX_AFFECTED => {
                Affected::Only(procs.into_iter().cloned().collect())
            }
            _ => Affected::Anybody,
        };
        let new: BTreeSet<Status> = codes.iter().copied().collect();
        let interests = self.events.by_conn.entry(conn).or_default();
        let before = interests.clone();
        let more = new
            .iter()
            .filter(|code| !interests.codes.contains_key(code));
        if interests.codes.len() + more.count() > MAX_CODES {
            if interests.codes.is_empty() && interests.default.is_none() {
                self.events.by_conn.remove(&conn);
            }
            return self.status(reply, Status::OUT_OF_RESOURCE);
        }
        if codes.is_empty() || new.contains(&Status::DEFAULT_HANDLER) {
            let wanted = match interests.default.take() {
                Some(before) => before.or(&affected),
                None => affected.clone(),
            };
            interests.default = Some(wanted);
        }
        for code in &new {
            let wanted = match interests.codes.remove(code) {
                Some(before) => before.or(&affected),
                None => affected.clone(),
            };
            interests.codes.insert(*code, wanted);
        }
        self.status(reply, Status::SUCCESS);
        self.replay(conn, &new, &before, &affected);
        self.tell_silent_stop(conn, &new);
        self.announce_ends();
    }

    /// Tells the other servers that a process on this node wants [`Status::EVENT_PROC_TERMINATED`], if one does and there are
    /// other servers.
    pub(super) fn announce_ends(&mut self) {
        let wants = |(conn, interests): (&Conn, &Interests)| {
            let of_tool = END_CODES
                .iter()
                .any(|code| interests.codes.contains_key(code));
            let is_tool = self.events.tools.contains_key(conn);
            is_tool && of_tool || interests.codes.contains_key(&Status::EVENT_PROC_TERMINATED)
        };
        if self.events.are_ends_announced
            || !self.events.by_conn.iter().any(wants)
            || !self.has_neighbors()
        {
            return;
        }
        self.events.are_ends_announced = true;
        self.out.push_back(Output::Event {
            event: Box::new(Event {
                status: ENDS_WANTED,
                source: self.config.identity.clone(),
                range: Range::GLOBAL,
                infos: Vec::new(),
            }),
            elsewhere: Elsewhere::Everywhere,
        });
    }

    /// Handles an event of another node, or of the host.
    pub(super) fn on_event(&mut self, mut event: Event) {
        // A process could send this status, too.
        if event.status == ENDS_WANTED && !self.jobs.contains_key(&event.source.nspace) {
            self.events.are_ends_wanted = true;
            return;
        }
        self.on_group_event(&mut event);
        self.deliver(&event, From::Host);
    }

    /// libpmix 3 stops in init and registers for its release, but does not report that it waits. Reports it on its
    /// behalf.
    fn tell_silent_stop(&mut self, conn: Conn, codes: &BTreeSet<Status>) {
        if !codes.contains(&Status::DEBUGGER_RELEASE) {
            return;
        }
        let Some(known) = self.peers.get(&conn).and_then(|peer| peer.connected()) else {
            return;
        };
        let job = self.jobs.get(&known.proc.nspace);
        if known.format.family == Family::Fixed && job.is_some_and(|job| job.stops_at(&known.proc))
        {
            let proc = known.proc.clone();
            self.out.push_back(Output::Ready { proc });
        }
    }

    /// Sends cached events to a connection that has registered for them: each once. A tool also gets those of the time
    /// before it came, if they are about a job that existed then or that it names.
    fn replay(
        &mut self,
        conn: Conn,
        codes: &BTreeSet<Status>,
        before: &Interests,
        affected: &Affected,
    ) {
        let Some(known) = self.peers.get(&conn).and_then(|peer| peer.connected()) else {
            return;
        };
        let Some(interests) = self.events.by_conn.get(&conn) else {
            return;
        };
        let came = self.events.tools.get(&conn).copied().unwrap_or(0);
        let concerns = |kept: &Kept| {
            let is_named = matches!(affected, Affected::Only(_));
            kept.number >= came
                || is_named
                || kept.over.is_some_and(|over| over >= came)
                || self.knows(&kept.job)
        };
        let due: Vec<Bytes> = self
            .events
            .kept
            .iter()
            .filter(|kept| concerns(kept))
            .map(|kept| &kept.event)
            .filter(|event| {
                // Only for codes in this registration. What was wanted before was sent before.
                (codes.contains(&event.status) || codes.is_empty())
                    && interests.wants(event)
                    && !before.wants(event)
                    && !self.is_for_host(event, &known.proc)
                    && self.reaches(event, known)
            })
            .map(|event| packed(&push_of(event, None), known.format))
            .collect();
        self.out
            .extend(due.into_iter().map(|bytes| Output::Send { conn, bytes }));
    }

    pub(super) fn on_notify(&mut self, reply: ReplyTo, mut event: Event) {
        if event
            .infos
            .iter()
            .any(|info| info.key == *keys::SERVER_INTERNAL_NOTIFY)
        {
            // This event comes from a server's notification, which was sent to all nodes already.
            return self.status(reply, Status::SUCCESS);
        }
        if event.range != Range::CUSTOM && find(&event.infos, keys::EVENT_CUSTOM_RANGE).is_some() {
            // A list of receivers takes precedence over any other range.
            event.range = Range::CUSTOM;
        }
        if self.elsewhere(&event) != Elsewhere::Nowhere
            && packed(&push_of(&event, None), Format::V4).len() > MAX_CARRIED
        {
            return self.status(reply, Status::OUT_OF_RESOURCE);
        }
        self.status(reply, Status::SUCCESS);
        if event.status == Status::READY_FOR_DEBUG {
            // The event is for the server, whatever its range: libpmix 5 and 6 set a wrong one.
            let proc = event.source;
            return self.out.push_back(Output::Ready { proc });
        }
        if event.status == Status::GROUP_CONSTRUCT_COMPLETE {
            self.on_invited_group(&mut event);
        }
        self.deliver(&event, From::Peer);
    }

    /// Releases processes that wait for a debugger. The event is cached for processes that reach their stop later.
    pub(super) fn release(&mut self, nspace: &Nspace, ranks: &RankSet) {
        let Some(job) = self.jobs.get_mut(nspace) else {
            return;
        };
        let to = if job.released(ranks) {
            vec![Proc::all(nspace.clone())]
        } else {
            let named = ranks.iter().map(|rank| Proc {
                nspace: nspace.clone(),
                rank: rank.into(),
            });
            named.collect()
        };
        let infos = [
            info(keys::EVENT_NON_DEFAULT, Value::Bool(true)),
            info(keys::EVENT_CUSTOM_RANGE, Value::procs(to)),
        ];
        let event = Event {
            status: Status::DEBUGGER_RELEASE,
            source: self.config.identity.clone(),
            range: Range::CUSTOM,
            infos: infos.into_iter().flatten().collect(),
        };
        self.deliver(&event, From::Host);
    }

    /// Sends an event to all local processes that are registered for it, and to the host.
    pub(super) fn deliver(&mut self, event: &Event, from: From) {
        let push = push_of(event, Some(event.range));
        // Packed once per message format.
        let mut by_format: BTreeMap<Format, Bytes> = BTreeMap::new();
        let mut due = Vec::new();
        for (conn, interests) in &self.events.by_conn {
            let Some(known) = self.peers.get(conn).and_then(|peer| peer.connected()) else {
                continue;
            };
            if known.proc != event.source
                && interests.wants(event)
                && !self.is_for_host(event, &known.proc)
                && self.reaches(event, known)
            {
                let bytes = by_format
                    .entry(known.format)
                    .or_insert_with(|| packed(&push, known.format));
                let copies = if planted::is(Bug::EventTwice) { 2 } else { 1 };
                due.extend((0..copies).map(|_| Output::Send {
                    conn: *conn,
                    bytes: bytes.clone(),
                }));
            }
        }
        self.out.extend(due);
        let size = match by_format.into_values().next() {
            Some(bytes) => bytes.len(),
            None => packed(&push, Format::V4).len(),
        };
        self.events.keep(event, size);
        if from == From::Peer || planted::is(Bug::EventEchoes) {
            self.out.push_back(Output::Event {
                elsewhere: self.elsewhere(event),
                event: Box::new(event.clone()),
            });
        }
    }

    /// Returns the other nodes that an event of a local process concerns.
    fn elsewhere(&self, event: &Event) -> Elsewhere {
        if self.events.are_ends_wanted && is_end(event) {
            // A tool may be connected to a node without processes of the job.
            return Elsewhere::Everywhere;
        }
        let named = match event.range {
            Range::PROC_LOCAL | Range::LOCAL | Range::RM => return Elsewhere::Nowhere,
            Range::NAMESPACE => vec![&event.source],
            Range::CUSTOM => find(&event.infos, keys::EVENT_CUSTOM_RANGE)
                .and_then(Value::as_procs)
                .unwrap_or_default(),
            _ => return Elsewhere::Everywhere,
        };
        let mut nodes = BTreeSet::new();
        for proc in named {
            // A job unknown on this node, or ended here, may be known on other nodes.
            let Some(job) = self.jobs.get(&proc.nspace) else {
                return Elsewhere::Everywhere;
            };
            if proc.rank.is_number() && event.range == Range::CUSTOM {
                nodes.extend(job.node_of(proc.rank).filter(|_| !job.is_local(proc.rank)));
            } else {
                nodes.extend(job.away());
            }
        }
        if nodes.is_empty() {
            Elsewhere::Nowhere
        } else {
            Elsewhere::On(nodes)
        }
    }

    /// Returns true if the event must not reach a process because the host handles it. Only [`super::Input::Release`]
    /// releases held processes, so that the host knows about each release.
    fn is_for_host(&self, event: &Event, proc: &Proc) -> bool {
        event.status == Status::DEBUGGER_RELEASE
            && event.source != self.config.identity
            && self.jobs.get(&proc.nspace).is_some_and(Namespace::stops)
    }

    /// Returns true if a process is within an event's range. Tools hear of the ends of all processes.
    fn reaches(&self, event: &Event, known: &Known) -> bool {
        let proc = &known.proc;
        if known.role == Role::Tool && is_end(event) {
            return true;
        }
        match event.range {
            Range::PROC_LOCAL => event.source == *proc,
            Range::RM => false,
            Range::NAMESPACE => event.source.nspace == proc.nspace,
            Range::LOCAL => self
                .jobs
                .get(&event.source.nspace)
                .is_none_or(|job| job.is_local(event.source.rank)),
            Range::CUSTOM => find(&event.infos, keys::EVENT_CUSTOM_RANGE)
                .and_then(Value::as_procs)
                .is_some_and(|procs| procs.iter().any(|to| to.covers(proc))),
            _ => true,
        }
    }
}

/// Returns true for the events by which servers tell of the ends of processes ([`super::termination`]).
fn is_end(event: &Event) -> bool {
    END_CODES.contains(&event.status)
        && affected_by(&event.infos).is_some_and(|procs| procs == [&event.source])
}

/// Returns the name of the job that an event is about.
fn job_of(event: &Event) -> Nspace {
    let members = || find(&event.infos, keys::PSET_MEMBERS).and_then(Value::as_procs);
    let affected = affected_by(&event.infos).or_else(members);
    let affected = affected.and_then(|procs| Some(procs.first()?.nspace.clone()));
    let named = || find(&event.infos, keys::NSPACE).and_then(Value::as_nspace);
    affected
        .or_else(named)
        .unwrap_or_else(|| event.source.nspace.clone())
}

/// Returns the processes that an event affects, or to which a registration is limited; `None` if not given.
fn affected_by(infos: &[Info]) -> Option<Vec<&Proc>> {
    [keys::EVENT_AFFECTED_PROC, keys::EVENT_AFFECTED_PROCS]
        .iter()
        .find_map(|key| find(infos, key))
        .and_then(Value::as_procs)
}

fn push_of(event: &Event, range: Option<Range>) -> Push {
    Push::Event {
        status: event.status,
        source: event.source.clone(),
        infos: event.infos.clone(),
        range,
    }
}

/// Returns the message of a push.
pub(super) fn packed(push: &Push, format: Format) -> Bytes {
    let mut writer = Writer::appending_to(format, frame::start(0));
    push.encode(&mut writer);
    frame::finish(writer.into_bytes(), push.tag()).into()
}
