//! Events: who wants to hear of what, and what has happened already.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use base::RankSet;
use bytes::Bytes;

use super::{Conn, Elsewhere, Event, Output, ReplyTo, Server, find, info, is_set, job::Namespace};
use crate::{
    codec::{Family, Format, Writer},
    frame, keys,
    message::Push,
    planted::{self, Bug},
    value::{Info, Nspace, Proc, Range, Status, Value},
};

/// Events that are kept for those who register later; beyond that the oldest is forgotten.
pub const MAX_CACHED_EVENTS: usize = 512;
/// Bytes of events that are kept for those who register later; beyond that the oldest is forgotten, and a larger one is
/// not kept at all.
pub const MAX_CACHED_BYTES: usize = 4 << 20;
/// Codes that one connection may have registered for at once. One that wants more is told OUT_OF_RESOURCE.
pub const MAX_CODES: usize = 4096;
/// Processes to whose events one connection may have limited its registration for one code. When it names more, it hears
/// of everybody's.
pub const MAX_AFFECTED: usize = 4096;

/// What connections have registered for, and the events kept for those who register later.
#[derive(Debug, Default)]
pub(super) struct Events {
    by_conn: BTreeMap<Conn, Interests>,
    kept: VecDeque<Kept>,
    kept_bytes: usize,
}

/// An event, and how many bytes it has in a message.
#[derive(Debug)]
struct Kept {
    event: Event,
    size: usize,
}

/// What one connection wants to hear of.
#[derive(Debug, Default)]
struct Interests {
    codes: BTreeMap<Status, Affected>,
    /// Events that no code of it is for.
    default: Option<Affected>,
}

/// Of whose events it wants to hear.
#[derive(Clone, Debug, PartialEq)]
enum Affected {
    Anybody,
    Only(BTreeSet<Proc>),
}

/// Where an event comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum From {
    /// A process here, or what became of it: other nodes have not heard of it.
    Peer,
    /// The host, who has told other nodes.
    Host,
}

impl Events {
    pub(super) fn forget(&mut self, conn: Conn) {
        self.by_conn.remove(&conn);
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

    /// Whether anybody has registered for anything.
    pub(super) fn is_empty(&self) -> bool {
        self.by_conn.is_empty()
    }

    fn keep(&mut self, event: &Event, size: usize) {
        if is_set(&event.infos, keys::EVENT_DO_NOT_CACHE) || size > MAX_CACHED_BYTES {
            return;
        }
        self.kept_bytes += size;
        self.kept.push_back(Kept {
            event: event.clone(),
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
        // An event about nobody in particular may concern anybody.
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
    /// Both: what is registered for twice is wanted by either.
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
        let more = new
            .iter()
            .filter(|code| !interests.codes.contains_key(code));
        if interests.codes.len() + more.count() > MAX_CODES {
            if interests.codes.is_empty() && interests.default.is_none() {
                self.events.forget(conn);
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
        self.replay(conn, &new);
        self.tell_silent_stop(conn, &new);
    }

    /// libpmix 3 stops in init like its successors, and registers for its release, but does not say that it waits.
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

    /// Tells a connection what happened before it registered.
    fn replay(&mut self, conn: Conn, codes: &BTreeSet<Status>) {
        let Some(known) = self.peers.get(&conn).and_then(|peer| peer.connected()) else {
            return;
        };
        let Some(interests) = self.events.by_conn.get(&conn) else {
            return;
        };
        let due: Vec<Bytes> = self
            .events
            .kept
            .iter()
            .map(|kept| &kept.event)
            .filter(|event| {
                // With the first registration for it, and with no later one.
                (codes.contains(&event.status) || codes.is_empty())
                    && interests.wants(event)
                    && !self.is_for_host(event, &known.proc)
                    && self.reaches(event, &known.proc)
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
            // It comes from a server's own notification, which has been everywhere.
            return self.status(reply, Status::SUCCESS);
        }
        if event.range != Range::CUSTOM && find(&event.infos, keys::EVENT_CUSTOM_RANGE).is_some() {
            // Whoever names the receivers means them, whatever range stands beside.
            event.range = Range::CUSTOM;
        }
        self.status(reply, Status::SUCCESS);
        if event.status == Status::READY_FOR_DEBUG {
            // It is for the server, whatever range stands in it: libpmix 5 and 6 put nonsense there.
            let proc = event.source;
            return self.out.push_back(Output::Ready { proc });
        }
        if event.status == Status::GROUP_CONSTRUCT_COMPLETE {
            self.on_invited_group(&mut event);
        }
        self.deliver(&event, From::Peer);
    }

    /// Tells processes that wait for their debugger to run on; who comes to that point later finds that it was told.
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

    /// Tells everybody here who wants to hear it, and the host.
    pub(super) fn deliver(&mut self, event: &Event, from: From) {
        let push = push_of(event, Some(event.range));
        // Packed once for all who write alike.
        let mut by_format: BTreeMap<Format, Bytes> = BTreeMap::new();
        let mut due = Vec::new();
        for (conn, interests) in &self.events.by_conn {
            let Some(known) = self.peers.get(conn).and_then(|peer| peer.connected()) else {
                continue;
            };
            if known.proc != event.source
                && interests.wants(event)
                && !self.is_for_host(event, &known.proc)
                && self.reaches(event, &known.proc)
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

    /// Which other nodes an event of a process here concerns.
    fn elsewhere(&self, event: &Event) -> Elsewhere {
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
            // A job that is not known here, or has ended, may be known elsewhere.
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

    /// Whether the host tells a process of it: who is held is let go by [`super::Input::Release`], so that the host knows.
    fn is_for_host(&self, event: &Event, proc: &Proc) -> bool {
        event.status == Status::DEBUGGER_RELEASE
            && event.source != self.config.identity
            && self.jobs.get(&proc.nspace).is_some_and(Namespace::stops)
    }

    /// Whether a process is within an event's range.
    fn reaches(&self, event: &Event, proc: &Proc) -> bool {
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

/// Whom an event is about, or to whose events a registration is limited.
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

/// The message of a push.
pub(super) fn packed(push: &Push, format: Format) -> Bytes {
    let mut writer = Writer::behind(format, frame::start(0));
    push.encode(&mut writer);
    frame::finish(writer.into_bytes(), push.tag()).into()
}
