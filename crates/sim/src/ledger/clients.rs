//! What processes ask and are told by PMIx, and whether it is the truth.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use base::{JobId, ProcId, Rank, Time};
use pmix::{
    client::{Done, Notice, Program, Ticket},
    keys,
    server::{LOST_DELAY, MISSING_KEY_DELAY},
    value::{PmixRank, Proc, Status, Value},
};

use super::{Ledger, called, nspace};
use crate::{
    kernel::{Ask, News, Together},
    script::{EVENT_NUMBER, Lookup, Notify, Reach, value_of},
};

/// How much later than its time an answer may come.
const SLACK: Duration = Duration::from_millis(60);
/// What the end of a process is called that is not as it should be.
pub(crate) const FATES: [Status; 4] = [
    Status::PROC_ABORTED_BY_SIG,
    Status::PROC_TERM_WO_SYNC,
    Status::EXIT_NONZERO_TERM,
    Status::PROC_REQUESTED_ABORT,
];

/// How a process stands with its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Inside,
    Finalized,
    /// It has broken contact.
    Left(Time),
}

/// A process from an init to its end.
#[derive(Debug)]
struct Client {
    standing: Standing,
    asked: BTreeMap<Ticket, (Ask, Time)>,
    /// When it has asked to be let go.
    finalizing: Option<Time>,
    /// What it has registered for, and when it knew that it had.
    registered: BTreeMap<Status, Time>,
    /// The events of programs that it has heard of.
    heard: BTreeSet<u64>,
    /// The ends of processes and of jobs that it has heard of, by what they were called.
    fates: BTreeSet<(Status, Proc)>,
}

/// Something published.
#[derive(Debug)]
struct Published {
    by: ProcId,
    /// When it was known to be.
    since: Option<Time>,
    /// Somebody has begun to take it back.
    is_withdrawn: bool,
}

/// An event that a program has raised.
#[derive(Debug)]
struct Raised {
    by: Proc,
    notify: Notify,
    /// When it was known to be on its way.
    since: Option<Time>,
}

/// What there was of PMIx.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    clients: BTreeMap<ProcId, Client>,
    /// How often processes have begun something together, by what its members are called.
    entered: BTreeMap<(Together, Vec<Proc>), BTreeMap<ProcId, u32>>,
    /// Keys that were on their way to the server, and since when they were there.
    committed: BTreeMap<(ProcId, String), Option<Time>>,
    published: BTreeMap<String, Published>,
    raised: BTreeMap<u64, Raised>,
    /// Which job a child has become, as its spawner was told.
    children: BTreeMap<usize, JobId>,
    /// Processes whose end others have asked for.
    pub(crate) condemned: BTreeSet<ProcId>,
    /// Connections that daemons have closed, and how many the front was told of.
    pub(crate) refused: u64,
    pub(crate) told_refused: u64,
}

impl Clients {
    /// Connections that were closed, and how many the front was told of.
    pub(crate) const fn refused(&self) -> (u64, u64) {
        (self.refused, self.told_refused)
    }
}

/// The end of a process, as its daemon was told of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reaped {
    pub(crate) at: Time,
    /// Its job was being ended, so that it is no news.
    pub(crate) is_ending: bool,
}

impl Ledger {
    /// A process has said something by PMIx or was told something: says what is wrong with it, if anything.
    pub(crate) fn on_news(
        &mut self,
        now: Time,
        proc: ProcId,
        news: &News,
        program: &Program,
    ) -> Option<String> {
        let name = called(proc);
        match news {
            News::Ready => {
                let client = Client {
                    standing: Standing::Inside,
                    asked: BTreeMap::new(),
                    finalizing: None,
                    registered: BTreeMap::new(),
                    heard: BTreeSet::new(),
                    fates: BTreeSet::new(),
                };
                self.pmix.clients.insert(proc, client);
                let wrong = self.facts.of_own_job(program, proc);
                wrong.map(|wrong| format!("{name} is told that {wrong}"))
            }
            News::Asked(ticket, ask) => {
                self.on_asked(proc, ask);
                let client = self.pmix.clients.get_mut(&proc)?;
                client.asked.insert(*ticket, (ask.clone(), now));
                if *ask == Ask::Finalize {
                    client.finalizing = Some(now);
                }
                None
            }
            News::Answered(ticket, result) => {
                let client = self.pmix.clients.get_mut(&proc)?;
                let Some((ask, asked)) = client.asked.remove(ticket) else {
                    return Some(format!("{name} is answered twice: {result:?}"));
                };
                let has_left = matches!(client.standing, Standing::Left(_));
                if has_left && *result == Err(Status::UNREACH) {
                    return None;
                }
                let wrong = self.on_answered(now, proc, program, asked, &ask, result);
                wrong.map(|wrong| format!("{name} {wrong}"))
            }
            News::Noticed(notice) => {
                let wrong = self.on_noticed(proc, notice);
                wrong.map(|wrong| format!("{name} {wrong}"))
            }
            News::Finalized => {
                let client = self.pmix.clients.get_mut(&proc)?;
                client.standing = Standing::Finalized;
                let asked = client.finalizing.unwrap_or(now);
                let wrong = self.unheard(proc, asked);
                wrong.map(|wrong| format!("{name} never hears of {wrong}"))
            }
            News::Left => {
                let client = self.pmix.clients.get_mut(&proc)?;
                client.standing = Standing::Left(now);
                None
            }
        }
    }

    /// A process dies: says whether it has waited in vain.
    pub(crate) fn on_client_dead(&self, now: Time, proc: ProcId) -> Option<String> {
        let client = self.pmix.clients.get(&proc)?;
        if client.standing != Standing::Inside {
            return None;
        }
        client.asked.values().find_map(|(ask, asked)| {
            let Ask::Together(kind, members) = ask else {
                return None;
            };
            let since = self.broken_since(*kind, members, proc)?.max(*asked);
            let due = since + LOST_DELAY + SLACK + self.slack;
            (now > due).then(|| {
                let name = called(proc);
                format!("{name} was never told that its {kind:?} with {members:?} is broken")
            })
        })
    }

    fn on_asked(&mut self, proc: ProcId, ask: &Ask) {
        let me = self.name_of(proc);
        match ask {
            Ask::Commit(keys) => {
                for key in keys {
                    let key = (proc, key.clone());
                    self.pmix.committed.entry(key).or_insert(None);
                }
            }
            Ask::Together(kind, members) => {
                let id = (*kind, sorted(members));
                let entered = self.pmix.entered.entry(id).or_default();
                *entered.entry(proc).or_default() += 1;
            }
            Ask::Publish(service) => {
                let published = Published {
                    by: proc,
                    since: None,
                    is_withdrawn: false,
                };
                self.pmix.published.insert(service.clone(), published);
            }
            Ask::Unpublish(service) => {
                if let Some(published) = self.pmix.published.get_mut(service) {
                    published.is_withdrawn = true;
                }
            }
            Ask::Notify(notify) => {
                if let Some(by) = me {
                    let raised = Raised {
                        by,
                        notify: notify.clone(),
                        since: None,
                    };
                    self.pmix.raised.insert(notify.number, raised);
                }
            }
            Ask::Abort(procs) => {
                let procs = procs.iter().filter_map(proc_id);
                self.pmix.condemned.extend(procs);
            }
            Ask::Get(..) | Ask::Lookup(..) | Ask::Register(_) | Ask::Spawn(_) | Ask::Finalize => {}
        }
    }

    fn on_answered(
        &mut self,
        now: Time,
        proc: ProcId,
        program: &Program,
        asked: Time,
        ask: &Ask,
        result: &Result<Done, Status>,
    ) -> Option<String> {
        match (ask, result) {
            (Ask::Commit(keys), Ok(Done::Nothing)) => {
                for key in keys {
                    let key = (proc, key.clone());
                    self.pmix.committed.insert(key, Some(now));
                }
                None
            }
            (Ask::Together(kind, members), Ok(Done::Nothing)) => {
                let wrong = self.on_together(proc, *kind, members);
                if wrong.is_some() || *kind != Together::Connect {
                    return wrong;
                }
                let jobs: BTreeSet<_> = members.iter().map(|member| &member.nspace).collect();
                let mut wrong = jobs
                    .into_iter()
                    .filter_map(|job| self.facts.of_job(program, job));
                wrong.next().map(|wrong| format!("is told that {wrong}"))
            }
            (Ask::Together(kind, members), Err(Status::LOST_CONNECTION)) => {
                match self.broken_since(*kind, members, proc) {
                    Some(since) if since <= now => None,
                    _ => Some(format!(
                        "is told that its {kind:?} with {members:?} is broken, and it is not"
                    )),
                }
            }
            // Nobody knows a job any more that is over.
            (Ask::Together(_, members), Err(Status::NOT_FOUND))
                if members.iter().any(|member| self.is_forgotten(member)) =>
            {
                None
            }
            (Ask::Get(of, _), Err(Status::NOT_FOUND)) if self.is_forgotten(of) => None,
            (Ask::Get(of, key), result) => self.on_got(now, asked, of, key, result),
            (Ask::Publish(service), Ok(Done::Nothing)) => {
                if let Some(published) = self.pmix.published.get_mut(service) {
                    published.since = Some(now);
                }
                None
            }
            (Ask::Lookup(of, lookup), result) => self.on_found(now, asked, of, lookup, result),
            (Ask::Register(codes), Ok(Done::Nothing)) => {
                let client = self.pmix.clients.get_mut(&proc)?;
                let codes = codes.iter().map(|code| (*code, now));
                client.registered.extend(codes);
                None
            }
            (Ask::Notify(notify), Ok(Done::Nothing)) => {
                if let Some(raised) = self.pmix.raised.get_mut(&notify.number) {
                    raised.since = Some(now);
                }
                None
            }
            (Ask::Spawn(child), result) => self.on_spawn_answered(proc, *child, result),
            (Ask::Unpublish(_) | Ask::Abort(_) | Ask::Finalize, Ok(Done::Nothing)) => None,
            (ask, result) => Some(format!("is answered {result:?} to {ask:?}")),
        }
    }

    /// Something done together is done: all must have begun it.
    fn on_together(&self, proc: ProcId, kind: Together, members: &[Proc]) -> Option<String> {
        let id = (kind, sorted(members));
        let entered = self.pmix.entered.get(&id)?;
        let own = entered.get(&proc).copied().unwrap_or(0);
        let missing = self
            .facts
            .members(members)
            .into_iter()
            .find(|member| entered.get(member).copied().unwrap_or(0) < own);
        missing.map(|missing| {
            format!(
                "is let go from its {kind:?} number {own} with {members:?} before {} has come",
                called(missing)
            )
        })
    }

    /// Since when something can never be complete, as far as processes are lost for it.
    fn broken_since(&self, kind: Together, members: &[Proc], me: ProcId) -> Option<Time> {
        let id = (kind, sorted(members));
        let entered = self.pmix.entered.get(&id)?;
        let own = entered.get(&me).copied().unwrap_or(0);
        let gone = |member: &ProcId| {
            let entered = entered.get(member).copied().unwrap_or(0);
            if kind != Together::Connect && entered >= own && *member != me {
                return None;
            }
            let died = self.died.get(member).copied();
            let left = match self.pmix.clients.get(member).map(|client| client.standing) {
                Some(Standing::Left(at)) => Some(at + LOST_DELAY),
                _ => None,
            };
            died.into_iter().chain(left).min()
        };
        let members = self.facts.members(members);
        members.iter().filter_map(gone).min()
    }

    fn on_got(
        &self,
        now: Time,
        asked: Time,
        of: &Proc,
        key: &str,
        result: &Result<Done, Status>,
    ) -> Option<String> {
        let whose = format!("`{key}` of {of}");
        if key.starts_with("pmix") {
            let Ok(Done::Value(value)) = result else {
                return Some(format!("does not get {whose}: {result:?}"));
            };
            let wrong = self.facts.one(of, key, value);
            return wrong.map(|wrong| format!("is told that {wrong}"));
        }
        let id = proc_id(of)?;
        let committed = self.pmix.committed.get(&(id, key.to_owned()));
        match (result, committed) {
            (Ok(Done::Value(value)), Some(_)) => {
                let is_it = *value == Value::text(&value_of(of, key));
                (!is_it).then(|| format!("gets for {whose}: {value}"))
            }
            (Ok(Done::Value(value)), None) => {
                Some(format!("gets {whose}, which was not committed: {value}"))
            }
            (Err(Status::NOT_FOUND), Some(Some(since))) if *since <= asked => {
                Some(format!("does not get {whose}, which was committed"))
            }
            (Err(Status::NOT_FOUND), _) => {
                let gone = self.died.contains_key(&id);
                let early = now.since(asked) < MISSING_KEY_DELAY;
                (!gone && early).then(|| format!("does not get {whose}, who may commit it yet"))
            }
            (result, _) => Some(format!("asks for {whose} and is answered {result:?}")),
        }
    }

    fn on_found(
        &self,
        now: Time,
        asked: Time,
        of: &Proc,
        lookup: &Lookup,
        result: &Result<Done, Status>,
    ) -> Option<String> {
        let service = &lookup.service;
        let published = self.pmix.published.get(service);
        let lasting = published.filter(|published| !published.is_withdrawn);
        let since = lasting.and_then(|published| published.since);
        match result {
            Ok(Done::Found(found)) => {
                let [one] = &found[..] else {
                    return Some(format!("looks up `{service}` and finds {found:?}"));
                };
                let right = one.proc == *of
                    && one.value == Value::text(&value_of(of, service))
                    && published.is_some_and(|published| proc_id(of) == Some(published.by));
                (!right).then(|| format!("looks up `{service}` of {of} and finds {one:?}"))
            }
            Err(Status::NOT_FOUND) if lookup.wait.is_none() => {
                let was_there = since.is_some_and(|since| since <= asked);
                was_there.then(|| format!("does not find `{service}`, which {of} has published"))
            }
            Err(Status::TIMEOUT) if let Some(wait) = lookup.wait => {
                let late = asked + wait + SLACK + self.slack;
                if now < asked + wait {
                    return Some(format!("waits for `{service}` less than it wants to"));
                }
                if now > late {
                    return Some(format!("waits for `{service}` longer than it wants to"));
                }
                let was_there = since.is_some_and(|since| since + self.slack < asked + wait);
                was_there.then(|| format!("does not find `{service}`, which {of} has published"))
            }
            result => Some(format!("looks up `{service}` and is answered {result:?}")),
        }
    }

    /// The spawner of a child is told what became of it.
    fn on_spawn_answered(
        &mut self,
        proc: ProcId,
        child: usize,
        result: &Result<Done, Status>,
    ) -> Option<String> {
        let job = self.facts.job_of_child(child);
        match result {
            Ok(Done::Spawned(name)) => {
                let Some(job) = job.filter(|job| name.to_string() == nspace(*job)) else {
                    return Some(format!("is told that child {child} is {name}: {job:?}"));
                };
                self.pmix.children.insert(child, job);
                let size = self.facts.size(job);
                let proc = |rank| ProcId {
                    job,
                    rank: Rank(rank),
                };
                // One that is ended while it starts is said to run today, though some of it was never started.
                let is_ending = self.ending.contains(&job);
                let missing = (0..size)
                    .filter(|_| !is_ending)
                    .find(|rank| !self.spawned.contains_key(&proc(*rank)));
                missing.map(|rank| {
                    format!("is told that child {child} runs, and its rank {rank} does not")
                })
            }
            Err(status) => {
                let failed = job.and_then(|job| {
                    let of_job = |(proc, _): &(&ProcId, _)| proc.job == job;
                    self.failed.iter().find(of_job)
                });
                let expected = failed.map(|(_, failure)| super::facts::status_of(failure));
                let parent_ends =
                    *status == Status::NOT_AVAILABLE && self.ending.contains(&proc.job);
                (expected != Some(*status) && !parent_ends)
                    .then(|| format!("is told that child {child} cannot run: {status}, {failed:?}"))
            }
            result => Some(format!("spawns and is answered {result:?}")),
        }
    }

    fn on_noticed(&mut self, proc: ProcId, notice: &Notice) -> Option<String> {
        let me = self.name_of(proc)?;
        let client = self.pmix.clients.get_mut(&proc)?;
        let code = notice.status;
        let registers =
            |(ask, _): &(Ask, Time)| matches!(ask, Ask::Register(codes) if codes.contains(&code));
        if !client.registered.contains_key(&code) && !client.asked.values().any(registers) {
            return Some(format!("hears of {code}, for which it has not registered"));
        }
        if let Some(number) = notice.attribute(EVENT_NUMBER).and_then(Value::as_count) {
            let Some(raised) = self.pmix.raised.get(&number) else {
                return Some(format!("hears of event {number}, which nobody has raised"));
            };
            if !client.heard.insert(number) {
                return Some(format!("hears twice of event {number}"));
            }
            let right = raised.by == notice.source && raised.notify.code == code;
            let meant = self.reaches(raised, &me) && raised.by != me;
            return (!right || !meant).then(|| format!("hears of {raised:?} as {notice:?}"));
        }
        let about = notice.affected();
        let [about] = &about[..] else {
            return Some(format!("hears of {code}, and not about whom"));
        };
        let about = (*about).clone();
        if !client.fates.insert((code, about.clone())) {
            return Some(format!("hears twice of {code} of {about}"));
        }
        if code == Status::EVENT_JOB_END {
            let said = notice.attribute(keys::JOB_TERM_STATUS);
            let over = self
                .over
                .iter()
                .find(|(job, _)| about.nspace.to_string() == nspace(*job));
            let expected = over.map(|(_, code)| Status(i32::try_from(*code).unwrap_or(-1)));
            let is_right = expected.is_some_and(|code| said == Some(&Value::Status(code)));
            return (!is_right)
                .then(|| format!("hears that {about} has come to {said:?}, really: {expected:?}"));
        }
        let died = proc_id(&about).is_some_and(|about| self.died.contains_key(&about));
        (about.rank != PmixRank::WILDCARD && !died)
            .then(|| format!("hears of {code} of {about}, who lives"))
    }

    /// A process has finalized: says of what it should have heard before and has not.
    fn unheard(&self, proc: ProcId, asked: Time) -> Option<String> {
        let me = self.name_of(proc)?;
        let client = self.pmix.clients.get(&proc)?;
        let event = self.pmix.raised.iter().find(|(number, raised)| {
            let told = raised.since.is_some_and(|since| since <= asked);
            told && client.registered.contains_key(&raised.notify.code)
                && self.reaches(raised, &me)
                && raised.by != me
                && !client.heard.contains(number)
        });
        if let Some((_, raised)) = event {
            return Some(format!("{raised:?}"));
        }
        let node = self.facts.node_of(proc);
        let over = self.over_told.iter().find(|((of, job), at)| {
            let job = pmix::value::Nspace::from_text(&nspace(*job)).ok();
            let heard = job.is_some_and(|job| {
                let end = (Status::EVENT_JOB_END, Proc::all(job));
                client.fates.contains(&end)
            });
            Some(*of) == node && **at < asked && !heard
        });
        if let Some(((_, job), _)) = over
            && client.registered.contains_key(&Status::EVENT_JOB_END)
        {
            return Some(format!("the end of job {job}"));
        }
        if !FATES
            .iter()
            .all(|code| client.registered.contains_key(code))
        {
            return None;
        }
        let lost = self.reaped.iter().find(|(other, reaped)| {
            let status = self.statuses.get(other);
            let fate = FATES.iter().any(|code| {
                let name = self.name_of(**other);
                name.is_some_and(|name| client.fates.contains(&(*code, name)))
            });
            let parent = self.facts.parent_of(other.job);
            (other.job == proc.job || parent == Some(proc.job))
                && **other != proc
                && reaped.at < asked
                && !reaped.is_ending
                && status.is_some_and(|status| !status.is_success())
                && !fate
        });
        lost.map(|(other, _)| format!("the end of {}", called(*other)))
    }

    /// Whether an event is for a process.
    fn reaches(&self, raised: &Raised, proc: &Proc) -> bool {
        let node = |proc| proc_id(proc).and_then(|proc| self.facts.node_of(proc));
        let is_of_job = raised.by.nspace == proc.nspace;
        match &raised.notify.reach {
            Reach::Session => true,
            Reach::Node => node(&raised.by) == node(proc),
            Reach::Job => is_of_job,
            Reach::Some(ranks) => is_of_job && ranks.iter().any(|rank| rank.0 == proc.rank.0),
        }
    }

    /// Whether a node has nothing more of the job of a process.
    fn is_forgotten(&self, proc: &Proc) -> bool {
        let name = proc.nspace.to_string();
        self.forgotten.iter().any(|job| nspace(*job) == name)
    }

    /// The name of a process in PMIx.
    pub(crate) fn name_of(&self, proc: ProcId) -> Option<Proc> {
        let nspace = pmix::value::Nspace::from_text(&nspace(proc.job)).ok()?;
        Some(crate::script::named(&nspace, proc.rank))
    }
}

fn sorted(members: &[Proc]) -> Vec<Proc> {
    let mut members = members.to_vec();
    members.sort();
    members.dedup();
    members
}

/// The process that a name in PMIx means.
pub(crate) fn proc_id(proc: &Proc) -> Option<ProcId> {
    let name = proc.nspace.to_string();
    let (_, job) = name.rsplit_once('@')?;
    let job = JobId(job.parse().ok()?);
    let rank = Rank(proc.rank.0);
    proc.rank.is_number().then_some(ProcId { job, rank })
}
