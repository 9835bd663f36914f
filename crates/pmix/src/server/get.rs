//! Gets (PMIx_Get): requests for data of a process, which may wait until it is committed.

use std::collections::{BTreeMap, BTreeSet};

use base::Time;
use bytes::Bytes;

use super::{
    Conn, MISSING_KEY_DELAY, Output, QuestionTicket, ReplyTo, Server, is_set,
    job::Namespace,
    question::{GetQuestion, Patience},
    share::{FORMAT, MAX_CARRIED},
    stored::{Committed, Refused, View, Wanted},
    timeout,
    timers::{Timer, Timers},
};
use crate::{
    codec::{Format, Writer},
    keys,
    message::Answer,
    planted::{self, Bug},
    value::{Info, InfoFlags, Key, Kval, Nspace, Packed, PmixRank, Proc, Scope, Status, Value},
};

/// Prefix of the Standard's keys. No process puts such keys, so no get waits for them.
const RESERVED: &[u8] = b"pmix";

/// Waiting gets. A connection has no more of them than it may have unanswered requests, another node no more than
/// [`super::MAX_QUESTIONS`].
#[derive(Debug, Default)]
pub(super) struct Gets {
    waiting: BTreeMap<u64, Waiting>,
    /// Ids of waiting gets by target.
    by_target: BTreeMap<Proc, BTreeSet<u64>>,
    /// Ids of waiting gets by the question to another node whose answer they wait for.
    by_question: BTreeMap<QuestionTicket, BTreeSet<u64>>,
    /// Id of each waiting get of another node, by that node and its ticket.
    by_node: BTreeMap<(u32, QuestionTicket), u64>,
    next: u64,
}

#[derive(Debug)]
struct Waiting {
    asker: Asker,
    target: Proc,
    key: Option<Key>,
    qualifiers: Vec<Info>,
    /// Time of the request.
    since: Time,
    /// The question to another node whose answer it waits for; `None` if the target is local.
    question: Option<QuestionTicket>,
    /// Time at which it is answered without a value, and the status of that answer; `None` without time-out.
    deadline: Option<(Time, Status)>,
}

/// The sender of a get.
#[derive(Debug)]
pub(super) enum Asker {
    /// A local process.
    Client { reply: ReplyTo, from: Proc },
    /// Another node, for one or more of its processes.
    Node { node: u32, ticket: QuestionTicket },
}

impl Gets {
    fn insert(&mut self, waiting: Waiting, timers: &mut Timers) {
        let number = self.next;
        self.next += 1;
        if let Some((at, _)) = waiting.deadline {
            timers.set(at, Timer::Get(number));
        }
        self.by_target
            .entry(waiting.target.clone())
            .or_default()
            .insert(number);
        if let Some(ticket) = waiting.question {
            self.by_question.entry(ticket).or_default().insert(number);
        }
        if let Asker::Node { node, ticket } = waiting.asker {
            self.by_node.insert((node, ticket), number);
        }
        self.waiting.insert(number, waiting);
    }

    fn remove(&mut self, number: u64, timers: &mut Timers) -> Option<Waiting> {
        let waiting = self.waiting.remove(&number)?;
        take_out(&mut self.by_target, &waiting.target, number);
        if let Some(ticket) = waiting.question {
            take_out(&mut self.by_question, &ticket, number);
        }
        if let Asker::Node { node, ticket } = waiting.asker {
            self.by_node.remove(&(node, ticket));
        }
        if let Some((at, _)) = waiting.deadline {
            timers.clear(at, Timer::Get(number));
        }
        Some(waiting)
    }

    fn about(&self, target: &Proc) -> Vec<u64> {
        let numbers = self.by_target.get(target);
        numbers.into_iter().flatten().copied().collect()
    }

    fn about_job(&self, nspace: &Nspace) -> Vec<u64> {
        let first = Proc {
            nspace: nspace.clone(),
            rank: PmixRank(0),
        };
        self.by_target
            .range(first..)
            .take_while(|(target, _)| target.nspace == *nspace)
            .flat_map(|(_, numbers)| numbers)
            .copied()
            .collect()
    }

    /// Removes the gets of a closed connection. Returns the questions that they waited for.
    fn forget(&mut self, conn: Conn, timers: &mut Timers) -> Vec<QuestionTicket> {
        let numbers: Vec<u64> = self
            .waiting
            .iter()
            .filter(|(_, waiting)| match &waiting.asker {
                Asker::Client { reply, .. } => reply.conn == conn,
                Asker::Node { .. } => false,
            })
            .map(|(number, _)| *number)
            .collect();
        let gone = numbers.into_iter();
        gone.filter_map(|number| self.remove(number, timers)?.question)
            .collect()
    }

    /// Returns the gets that wait for the answer to a question.
    fn of_question(&self, ticket: QuestionTicket) -> Vec<u64> {
        let numbers = self.by_question.get(&ticket);
        numbers.into_iter().flatten().copied().collect()
    }

    /// Returns true if a get waits for the answer to a question.
    pub(super) fn awaits(&self, ticket: QuestionTicket) -> bool {
        self.by_question.contains_key(&ticket)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
            && self.by_target.is_empty()
            && self.by_question.is_empty()
            && self.by_node.is_empty()
    }
}

fn take_out<K: Ord>(index: &mut BTreeMap<K, BTreeSet<u64>>, key: &K, number: u64) {
    if let Some(numbers) = index.get_mut(key) {
        numbers.remove(&number);
        if numbers.is_empty() {
            index.remove(key);
        }
    }
}

/// The result of looking up the data for a get.
enum Found {
    /// Buffers in the format of the client. For another node: one buffer with the values only.
    Buffers(Vec<Bytes>),
    /// The data does not exist, and waiting cannot help: the get is answered with this status.
    Never(Status),
    /// The data may still be committed. `committed` is true if the process has committed, but not this key.
    NotYet { committed: bool },
    /// The process is on this other node, whose server has the data.
    Elsewhere { node: u32 },
}

impl Server {
    pub(super) fn on_commit(
        &mut self,
        now: Time,
        reply: ReplyTo,
        from: &Proc,
        buckets: &[(Scope, Packed)],
    ) {
        let format = self.format(reply.conn);
        let Some(job) = self.jobs.get_mut(&from.nspace) else {
            return self.status(reply, Status::NOT_FOUND);
        };
        let status = match job.stored.commit(from.rank, format, buckets) {
            Ok(()) => Status::SUCCESS,
            Err(Refused::Malformed) => Status::UNPACK_FAILURE,
            Err(Refused::TooMuch) => Status::OUT_OF_RESOURCE,
        };
        self.status(reply, status);
        self.retry_gets_about(now, std::slice::from_ref(from));
    }

    pub(super) fn on_get(
        &mut self,
        now: Time,
        reply: ReplyTo,
        from: &Proc,
        target: Proc,
        infos: Vec<Info>,
        key: Option<Key>,
    ) {
        let target = match self.meant(from, target) {
            Ok(target) => target,
            Err(status) => return self.status(reply, status),
        };
        let immediate = is_set(&infos, keys::IMMEDIATE);
        let own = timeout(now, &infos).map(|at| (at, Status::TIMEOUT));
        let mut qualifiers = infos;
        qualifiers.retain(|info| info.flags.has(InfoFlags::QUALIFIER));
        let waiting = Waiting {
            asker: Asker::Client {
                reply,
                from: from.clone(),
            },
            target,
            key,
            qualifiers,
            since: now,
            question: None,
            deadline: own,
        };
        let patience = if immediate {
            Patience::AtOnce
        } else {
            Patience::Waits
        };
        self.get(now, waiting, patience);
    }

    /// Answers a question of another node, or lets it wait.
    pub(super) fn get_for_node(&mut self, now: Time, asker: Asker, question: GetQuestion) {
        let GetQuestion {
            target,
            patience,
            key,
            qualifiers,
        } = question;
        let waiting = Waiting {
            asker,
            target,
            key,
            qualifiers,
            since: now,
            question: None,
            deadline: None,
        };
        self.get(now, waiting, patience);
    }

    /// Answers a get, or lets it wait.
    fn get(&mut self, now: Time, mut waiting: Waiting, patience: Patience) {
        match self.look(&waiting) {
            Found::Buffers(buffers) => self.answer_get(waiting.asker, Ok(buffers)),
            Found::Never(status) => self.answer_get(waiting.asker, Err(status)),
            Found::NotYet { .. } | Found::Elsewhere { .. } if patience == Patience::AtOnce => {
                self.answer_get(waiting.asker, Err(Status::NOT_FOUND));
            }
            Found::NotYet { committed } => {
                if committed && waiting.deadline.is_none() {
                    waiting.deadline = Some((now + MISSING_KEY_DELAY, Status::NOT_FOUND));
                }
                self.gets.insert(waiting, &mut self.timers);
            }
            Found::Elsewhere { node } => {
                if waiting.question.is_none() {
                    let Waiting {
                        target,
                        key,
                        qualifiers,
                        ..
                    } = &waiting;
                    match self.ask_node(now, node, target, key.as_ref(), qualifiers) {
                        Ok(ticket) => waiting.question = Some(ticket),
                        Err(status) => return self.answer_get(waiting.asker, Err(status)),
                    }
                }
                self.gets.insert(waiting, &mut self.timers);
            }
        }
    }

    /// Returns the target of a get, after resolving a member of a group. BAD_PARAM if it means several processes.
    fn meant(&self, from: &Proc, target: Proc) -> Result<Proc, Status> {
        if self.jobs.contains_key(&target.nspace) {
            return Ok(target);
        }
        match self.group_of(from, &target).as_deref() {
            None => Ok(target),
            Some([one]) => Ok(one.clone()),
            Some(_) => Err(Status::BAD_PARAM),
        }
    }

    /// Answers a request for fresh data of a process (RefreshCache).
    pub(super) fn on_refresh(&mut self, now: Time, reply: ReplyTo, target: &Proc) {
        let job = self.jobs.get(&target.nspace);
        let away = job.filter(|job| !job.is_local(target.rank));
        if let Some(node) = away.and_then(|job| job.node_of(target.rank)) {
            return self.refresh_from(now, node, reply, target.clone());
        }
        let facts = self.jobs.get(&target.nspace).and_then(|job| {
            let data = job.stored.of(target.rank)?;
            data.has_committed().then(|| data.facts(View::Local))
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

    fn look(&mut self, waiting: &Waiting) -> Found {
        let target = &waiting.target;
        let wanted = Wanted {
            key: waiting.key.as_ref(),
            qualifiers: &waiting.qualifiers,
        };
        let (from, format) = match &waiting.asker {
            Asker::Node { .. } => return self.look_for_node(target, wanted),
            Asker::Client { reply, from } => (from, self.format(reply.conn)),
        };
        let Some(job) = self.jobs.get_mut(&target.nspace) else {
            return Found::Never(Status::NOT_FOUND);
        };
        let mut buffers = Vec::new();
        if from.nspace != target.nspace {
            // A client does not have the job info of another job yet.
            buffers.push(job.packed_facts(format));
        }
        let key = wanted.key;
        let reserved = key.is_some_and(|key| key.as_bytes().starts_with(RESERVED));
        let rank = match target.rank {
            PmixRank::WILDCARD => {
                let facts = job_facts(job, target.rank, key);
                let is_of_ranks = |key: &Key| job.rank_fact(PmixRank(0), key.as_c_str()).is_some();
                // libpmix 4 asks for a fact of a rank of another job in this way, and expects the facts of all ranks.
                if facts.is_empty() && !buffers.is_empty() && key.is_some_and(is_of_ranks) {
                    return Found::Buffers(buffers);
                }
                return found(buffers, target, facts, format);
            }
            // The lowest rank that has put the key.
            PmixRank::UNDEF if key.is_some() => match job.who_has(wanted) {
                Some(rank) => rank,
                None if reserved => {
                    let fact = |key: &Key| one(key, || job.class_fact(target.rank, key.as_c_str()));
                    let facts = key.map(fact).unwrap_or_default();
                    let all = Proc::all(target.nspace.clone());
                    return found(buffers, &all, facts, format);
                }
                None => return Found::NotYet { committed: false },
            },
            rank if rank.is_number() && rank.0 < job.size() => rank,
            _ => return Found::Never(Status::NOT_FOUND),
        };
        let proc = Proc {
            nspace: target.nspace.clone(),
            rank,
        };
        let view = job.view(rank);
        let data = job.stored.of(rank);
        if data.is_some_and(|data| data.has(wanted, view)) {
            buffers.extend(job.stored.packed(&proc, format, view));
            return Found::Buffers(buffers);
        }
        if reserved {
            let facts = match key {
                Some(key) => one(key, || {
                    let fact = job.rank_fact(rank, key.as_c_str());
                    fact.or_else(|| job.class_fact(rank, key.as_c_str()))
                }),
                None => job.rank_facts(rank),
            };
            return found(buffers, &proc, facts, format);
        }
        if !job.is_local(rank) {
            return match job.node_of(rank) {
                Some(node) => Found::Elsewhere { node },
                None => Found::Never(Status::NOT_FOUND),
            };
        }
        if job.has_ended(rank) {
            return Found::Never(Status::NOT_FOUND);
        }
        Found::NotYet {
            committed: data.is_some_and(Committed::has_committed),
        }
    }

    /// Looks up data for another node: all that the process has committed for other nodes.
    fn look_for_node(&self, target: &Proc, wanted: Wanted<'_>) -> Found {
        let job = self.jobs.get(&target.nspace);
        let Some(job) = job.filter(|job| job.is_local(target.rank)) else {
            return Found::Never(Status::NOT_FOUND);
        };
        let data = job.stored.of(target.rank);
        if let Some(data) = data.filter(|data| data.has(wanted, View::Remote)) {
            let mut writer = Writer::new(FORMAT);
            data.write_put(View::Remote, &mut writer);
            if writer.as_bytes().len() > MAX_CARRIED {
                return Found::Never(Status::OUT_OF_RESOURCE);
            }
            return Found::Buffers(vec![writer.into_bytes().into()]);
        }
        if job.has_ended(target.rank) {
            return Found::Never(Status::NOT_FOUND);
        }
        Found::NotYet {
            committed: data.is_some_and(Committed::has_committed),
        }
    }

    /// Tries the waiting gets about all processes of a job again, because the job has changed.
    pub(super) fn retry_gets(&mut self, now: Time, nspace: &Nspace) {
        self.retry(now, self.gets.about_job(nspace));
    }

    /// Tries the waiting gets about these processes again, because new data of theirs was stored.
    pub(super) fn retry_gets_about(&mut self, now: Time, targets: &[Proc]) {
        for target in targets {
            self.retry(now, self.gets.about(target));
            let anybody = Proc {
                nspace: target.nspace.clone(),
                rank: PmixRank::UNDEF,
            };
            self.retry(now, self.gets.about(&anybody));
        }
    }

    fn retry(&mut self, now: Time, numbers: Vec<u64>) {
        for number in numbers {
            if let Some(waiting) = self.gets.remove(number, &mut self.timers) {
                let question = waiting.question;
                self.get(now, waiting, Patience::Waits);
                if let Some(ticket) = question {
                    self.forget_unless_awaited(ticket);
                }
            }
        }
    }

    /// Removes the waiting gets of a closed connection.
    pub(super) fn forget_gets(&mut self, conn: Conn) {
        let questions = self.gets.forget(conn, &mut self.timers);
        self.forget_questions_of(conn, questions);
    }

    /// Drops a question of another node that does not need the answer any more.
    pub(super) fn on_no_longer_asked(&mut self, node: u32, ticket: QuestionTicket) {
        if let Some(number) = self.gets.by_node.get(&(node, ticket)) {
            self.gets.remove(*number, &mut self.timers);
            return;
        }
        self.coordination.forget_watched(node, ticket);
        self.collectives.forget_call(node, ticket, &mut self.timers);
    }

    /// Fails the waiting gets about a process that has ended, because it will commit nothing more.
    pub(super) fn fail_gets_of_dead(&mut self, proc: &Proc) {
        for number in self.gets.about(proc) {
            let told = |waiting: &Waiting| match waiting.asker {
                Asker::Client { .. } => true,
                Asker::Node { .. } => !planted::is(Bug::DeathNotTold),
            };
            if let Some(waiting) = self.gets.remove(number, &mut self.timers)
                && told(&waiting)
            {
                self.answer_get(waiting.asker, Err(Status::NOT_FOUND));
            }
        }
    }

    /// Fails gets whose data was not in the answer of another node.
    pub(super) fn fail_gets_of_question(
        &mut self,
        now: Time,
        ticket: QuestionTicket,
        sent: Time,
        status: Status,
    ) {
        for number in self.gets.of_question(ticket) {
            let Some(mut waiting) = self.gets.remove(number, &mut self.timers) else {
                continue;
            };
            if status == Status::NOT_FOUND && waiting.since > sent {
                // The get was made after the question was sent, so the other node has not waited long enough for it.
                // Ask again.
                waiting.question = None;
                self.get(now, waiting, Patience::Waits);
            } else {
                self.answer_get(waiting.asker, Err(status));
            }
        }
    }

    /// Answers a get whose time-out has passed.
    pub(super) fn expire_get(&mut self, number: u64) {
        if let Some(waiting) = self.gets.remove(number, &mut self.timers) {
            let status = waiting
                .deadline
                .map_or(Status::TIMEOUT, |(_, status)| status);
            self.answer_get(waiting.asker, Err(status));
            if let Some(ticket) = waiting.question {
                self.forget_unless_awaited(ticket);
            }
        }
    }

    /// Answers a get with buffers or a status.
    pub(super) fn answer_get(&mut self, asker: Asker, result: Result<Vec<Bytes>, Status>) {
        match (asker, result) {
            (Asker::Client { reply, .. }, Ok(buffers)) => self.got(reply, &buffers),
            (Asker::Client { reply, .. }, Err(status)) => self.status(reply, status),
            (Asker::Node { node, ticket }, result) => {
                self.out.push_back(Output::QuestionAnswered {
                    node,
                    ticket,
                    result: result.map(|buffers| buffers.into_iter().next().unwrap_or_default()),
                })
            }
        }
    }

    fn got(&mut self, reply: ReplyTo, buffers: &[Bytes]) {
        let ReplyTo { conn, tag } = reply;
        let room = buffers.iter().map(Bytes::len).sum();
        let bytes = self.peers.get_mut(&conn).and_then(|peer| {
            peer.packed_answer(tag, room, |writer| {
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

    fn format(&self, conn: Conn) -> Format {
        self.peers
            .get(&conn)
            .and_then(|peer| peer.known())
            .map_or(Format::V4, |known| known.format)
    }
}

/// Appends a buffer of facts to those found before; NOT_FOUND if there are no facts.
fn found(mut buffers: Vec<Bytes>, proc: &Proc, facts: Vec<Kval>, format: Format) -> Found {
    if facts.is_empty() {
        return Found::Never(Status::NOT_FOUND);
    }
    let mut writer = Writer::new(format);
    writer.item(proc);
    writer.each(&facts);
    buffers.push(writer.into_bytes().into());
    Found::Buffers(buffers)
}

/// Returns facts of a job as a whole: one of them, or all.
fn job_facts(job: &Namespace, rank: PmixRank, key: Option<&Key>) -> Vec<Kval> {
    match key {
        Some(key) => one(key, || {
            let fact = job.job_fact(key.as_c_str());
            fact.or_else(|| job.class_fact(rank, key.as_c_str()))
        }),
        None => job.job_facts(),
    }
}

/// Returns a list of one fact, or an empty list if the fact does not exist.
fn one(key: &Key, value: impl FnOnce() -> Option<Value>) -> Vec<Kval> {
    let key = key.clone();
    let fact = value().map(|value| Kval { key, value });
    fact.into_iter().collect()
}
