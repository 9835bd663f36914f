//! Events: who wants to hear of what, and what has happened already.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{Conn, Event, MAX_CACHED_EVENTS, Output, ReplyTo, Server, find, is_set};
use crate::{
    keys,
    message::Push,
    value::{Info, Proc, Range, Status, Value},
};

/// What connections have registered for, and the events kept for those who register later.
#[derive(Debug, Default)]
pub(super) struct Events {
    by_conn: BTreeMap<Conn, Interests>,
    kept: VecDeque<Event>,
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
    Only(Vec<Proc>),
}

/// Where an event comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum From {
    /// A process here: other nodes have not heard of it.
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
    }

    fn keep(&mut self, event: &Event) {
        if is_set(&event.infos, keys::EVENT_DO_NOT_CACHE) {
            return;
        }
        if self.kept.len() == MAX_CACHED_EVENTS {
            self.kept.pop_front();
        }
        self.kept.push_back(event.clone());
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
        let about = [keys::EVENT_AFFECTED_PROC, keys::EVENT_AFFECTED_PROCS]
            .iter()
            .find_map(|key| find(&event.infos, key))
            .and_then(Value::as_procs);
        // An event about nobody in particular may concern anybody.
        about.is_none_or(|about| {
            about.iter().any(|about| {
                procs
                    .iter()
                    .any(|proc| proc.covers(about) || about.covers(proc))
            })
        })
    }
}

impl Server {
    pub(super) fn on_register(&mut self, reply: ReplyTo, codes: Vec<Status>, infos: &[Info]) {
        let conn = reply.conn;
        let affected = [keys::EVENT_AFFECTED_PROC, keys::EVENT_AFFECTED_PROCS]
            .iter()
            .find_map(|key| find(infos, key))
            .and_then(Value::as_procs)
            .map_or(Affected::Anybody, |procs| {
                Affected::Only(procs.into_iter().cloned().collect())
            });
        let interests = self.events.by_conn.entry(conn).or_default();
        let new: BTreeSet<Status> = codes.iter().copied().collect();
        if codes.is_empty() || new.contains(&Status::DEFAULT_HANDLER) {
            interests.default = Some(affected.clone());
        }
        for code in &new {
            interests.codes.insert(*code, affected.clone());
        }
        self.status(reply, Status::SUCCESS);
        self.replay(conn, &new);
    }

    /// Tells a connection what happened before it registered.
    fn replay(&mut self, conn: Conn, codes: &BTreeSet<Status>) {
        let Some(known) = self.peers.get(&conn).and_then(|peer| peer.connected()) else {
            return;
        };
        let proc = known.proc.clone();
        let Some(interests) = self.events.by_conn.get(&conn) else {
            return;
        };
        let due: Vec<Event> = self
            .events
            .kept
            .iter()
            .filter(|event| {
                // With the first registration for it, and with no later one.
                (codes.contains(&event.status) || codes.is_empty())
                    && interests.wants(event)
                    && self.reaches(event, &proc)
            })
            .cloned()
            .collect();
        for event in due {
            self.push(conn, &push_of(event, None));
        }
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
        self.deliver(&event, From::Peer);
    }

    /// Tells everybody here who wants to hear it, and the host.
    pub(super) fn deliver(&mut self, event: &Event, from: From) {
        let due: Vec<Conn> = self
            .events
            .by_conn
            .iter()
            .filter(|(conn, interests)| {
                let known = self.peers.get(conn).and_then(|peer| peer.connected());
                known.is_some_and(|known| {
                    known.proc != event.source
                        && interests.wants(event)
                        && self.reaches(event, &known.proc)
                })
            })
            .map(|(conn, _)| *conn)
            .collect();
        let push = push_of(event.clone(), Some(event.range));
        for conn in due {
            self.push(conn, &push);
        }
        self.events.keep(event);
        if from == From::Peer {
            self.out.push_back(Output::Event(Box::new(event.clone())));
        }
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

fn push_of(event: Event, range: Option<Range>) -> Push {
    Push::Event {
        status: event.status,
        source: event.source,
        infos: event.infos,
        range,
    }
}
