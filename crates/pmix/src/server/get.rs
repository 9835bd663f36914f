//! Gets: what a process asks about another one, and may have to wait for.

use std::ffi::CStr;

use base::Time;
use bytes::Bytes;

use super::{
    Conn, MISSING_KEY_DELAY, Output, ReplyTo, Server,
    job::fact,
    store::{View, is_immediate},
    timeout,
};
use crate::{
    codec::{Format, Writer},
    message::Answer,
    value::{Info, Key, Kval, Nspace, Packed, PmixRank, Proc, Scope, Status},
};

/// Keys that begin so belong to the standard: nobody puts them, so nobody waits for them.
const RESERVED: &[u8] = b"pmix";

/// Gets that wait, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Gets {
    waiting: Vec<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    reply: ReplyTo,
    from: Proc,
    target: Proc,
    key: Option<Key>,
    deadline: Option<(Time, Status)>,
}

impl Gets {
    pub(super) fn deadline(&self) -> Option<Time> {
        self.waiting
            .iter()
            .filter_map(|waiting| waiting.deadline)
            .map(|(at, _)| at)
            .min()
    }

    pub(super) fn forget(&mut self, conn: Conn) {
        self.waiting.retain(|waiting| waiting.reply.conn != conn);
    }
}

/// What there is for a get.
enum Found {
    /// Buffers in the asker's format.
    Buffers(Vec<Bytes>),
    /// Nothing, and nothing is to be waited for.
    Never(Status),
    /// Nothing yet; the process has not committed at all, or not this key.
    NotYet { committed: bool },
}

impl Server {
    pub(super) fn on_commit(
        &mut self,
        now: Time,
        reply: ReplyTo,
        from: &Proc,
        buckets: Vec<(Scope, Packed)>,
    ) {
        let format = self.format(reply.conn);
        let Some(job) = self.jobs.get_mut(&from.nspace) else {
            return self.status(reply, Status::NOT_FOUND);
        };
        let status = match job.stored.commit(from.rank, format, buckets) {
            Ok(()) => Status::SUCCESS,
            Err(_) => Status::UNPACK_FAILURE,
        };
        self.status(reply, status);
        self.retry(now, |target| {
            target.nspace == from.nspace
                && (target.rank == from.rank || target.rank == PmixRank::UNDEF)
        });
    }

    pub(super) fn on_get(
        &mut self,
        now: Time,
        reply: ReplyTo,
        from: &Proc,
        target: Proc,
        infos: &[Info],
        key: Option<Key>,
    ) {
        let format = self.format(reply.conn);
        match self.look(from, &target, key.as_ref(), format) {
            Found::Buffers(buffers) => self.got(reply, &buffers),
            Found::Never(status) => self.got_nothing(reply, status),
            Found::NotYet { .. } if is_immediate(infos) => {
                self.got_nothing(reply, Status::NOT_FOUND);
            }
            Found::NotYet { committed } => {
                let own = timeout(now, infos).map(|at| (at, Status::TIMEOUT));
                let missing = committed.then_some((now + MISSING_KEY_DELAY, Status::NOT_FOUND));
                self.gets.waiting.push(Waiting {
                    reply,
                    from: from.clone(),
                    target,
                    key,
                    deadline: own.or(missing),
                });
            }
        }
    }

    /// The data of a process, for one that wants to have it anew.
    pub(super) fn on_refresh(&mut self, reply: ReplyTo, target: &Proc) {
        let facts = self.jobs.get(&target.nspace).and_then(|job| {
            let data = job.stored.of(target.rank)?.view(View::Local);
            let kval = |(key, value): (&Key, &crate::value::Value)| Kval {
                key: key.clone(),
                value: value.clone(),
            };
            Some(data.iter().map(kval).collect::<Vec<_>>())
        });
        let answer = match facts {
            Some(facts) => Answer::Refreshed {
                status: Status::SUCCESS,
                facts,
            },
            None => Answer::Status(Status::NOT_FOUND),
        };
        self.answer(reply, &answer);
    }

    fn look(&mut self, from: &Proc, target: &Proc, key: Option<&Key>, format: Format) -> Found {
        let Some(job) = self.jobs.get_mut(&target.nspace) else {
            return Found::Never(Status::NOT_FOUND);
        };
        let mut buffers = Vec::new();
        if from.nspace != target.nspace {
            // Of another job even the facts of the job are news.
            let all = Proc::all(target.nspace.clone());
            buffers.push(packed(format, &all, &job.facts(format)));
        }
        let reserved = key.is_some_and(|key| key.as_bytes().starts_with(RESERVED));
        if target.rank == PmixRank::WILDCARD {
            let mut facts = job.job_facts();
            if let Some(key) = key {
                facts.retain(|fact| fact.key == *key);
                if facts.is_empty() {
                    facts.extend(class_fact(job, target.rank, key));
                }
            }
            if facts.is_empty() {
                return Found::Never(Status::NOT_FOUND);
            }
            buffers.push(packed(format, target, &facts));
            return Found::Buffers(buffers);
        }
        let rank = match (target.rank, key) {
            // Whoever has put it.
            (PmixRank::UNDEF, Some(key)) => match job.stored.who_has(key, View::Local) {
                Some(rank) => rank,
                None if reserved => {
                    let facts: Vec<_> = class_fact(job, target.rank, key).into_iter().collect();
                    if facts.is_empty() {
                        return Found::Never(Status::NOT_FOUND);
                    }
                    let all = Proc::all(target.nspace.clone());
                    buffers.push(packed(format, &all, &facts));
                    return Found::Buffers(buffers);
                }
                None => return Found::NotYet { committed: false },
            },
            (rank, _) if rank.is_number() && rank.0 < job.size() => rank,
            _ => return Found::Never(Status::NOT_FOUND),
        };
        let proc = Proc {
            nspace: target.nspace.clone(),
            rank,
        };
        let has_it = job
            .stored
            .of(rank)
            .is_some_and(|data| key.is_none_or(|key| data.view(View::Local).contains_key(key)));
        if reserved && !has_it {
            let mut facts = job.rank_facts(rank);
            if let Some(key) = key {
                facts.retain(|fact| fact.key == *key);
                if facts.is_empty() {
                    facts.extend(class_fact(job, rank, key));
                }
            }
            if facts.is_empty() {
                return Found::Never(Status::NOT_FOUND);
            }
            buffers.push(packed(format, &proc, &facts));
            return Found::Buffers(buffers);
        }
        if has_it {
            buffers.extend(job.stored.packed(&proc, format, View::Local));
            return Found::Buffers(buffers);
        }
        if !job.is_local(rank) || job.has_ended(rank) {
            return Found::Never(Status::NOT_FOUND);
        }
        Found::NotYet {
            committed: job.stored.of(rank).is_some(),
        }
    }

    /// Something has changed in a job: whoever has waited for it gets it.
    pub(super) fn retry_gets(&mut self, now: Time, nspace: &Nspace) {
        self.retry(now, |target| target.nspace == *nspace);
    }

    fn retry(&mut self, now: Time, concerns: impl Fn(&Proc) -> bool) {
        let retry: Vec<_> = self
            .gets
            .waiting
            .extract_if(.., |waiting| concerns(&waiting.target))
            .collect();
        for mut waiting in retry {
            let format = self.format(waiting.reply.conn);
            let key = waiting.key.as_ref();
            match self.look(&waiting.from, &waiting.target, key, format) {
                Found::Buffers(buffers) => self.got(waiting.reply, &buffers),
                Found::Never(status) => self.got_nothing(waiting.reply, status),
                Found::NotYet { committed } => {
                    if committed && waiting.deadline.is_none() {
                        waiting.deadline = Some((now + MISSING_KEY_DELAY, Status::NOT_FOUND));
                    }
                    self.gets.waiting.push(waiting);
                }
            }
        }
    }

    /// A process has ended: it will commit nothing more.
    pub(super) fn fail_gets_of_dead(&mut self, proc: &Proc) {
        let dead: Vec<_> = self
            .gets
            .waiting
            .extract_if(.., |waiting| waiting.target == *proc)
            .collect();
        for waiting in dead {
            self.got_nothing(waiting.reply, Status::NOT_FOUND);
        }
    }

    pub(super) fn expire_gets(&mut self, now: Time) {
        let expired: Vec<_> = self
            .gets
            .waiting
            .extract_if(.., |waiting| {
                waiting.deadline.is_some_and(|(at, _)| at <= now)
            })
            .collect();
        for waiting in expired {
            let status = waiting
                .deadline
                .map_or(Status::TIMEOUT, |(_, status)| status);
            self.got_nothing(waiting.reply, status);
        }
    }

    fn got(&mut self, reply: ReplyTo, buffers: &[Bytes]) {
        let ReplyTo { conn, tag } = reply;
        let bytes = self.peers.get_mut(&conn).and_then(|peer| {
            peer.packed_answer(tag, |writer| {
                writer.item(&Status::SUCCESS);
                for buffer in buffers {
                    writer.nested(buffer);
                }
            })
        });
        if let Some(bytes) = bytes {
            self.out.push_back(Output::Send { conn, bytes });
        }
    }

    fn got_nothing(&mut self, reply: ReplyTo, status: Status) {
        self.status(reply, status);
    }

    fn format(&self, conn: Conn) -> Format {
        self.peers
            .get(&conn)
            .and_then(|peer| peer.known())
            .map_or(Format::V4, |known| known.format)
    }
}

fn packed(format: Format, proc: &Proc, facts: &[Kval]) -> Bytes {
    let mut writer = Writer::new(format);
    writer.item(proc);
    for fact in facts {
        writer.item(fact);
    }
    writer.into_bytes().into()
}

fn class_fact(job: &super::job::Namespace, rank: PmixRank, key: &Key) -> Option<Kval> {
    let key: &CStr = key.as_c_str();
    fact(key, job.class_fact(rank, key)?)
}
