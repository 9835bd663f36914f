//! Checks of the PMIx answers and events that processes get.

mod data;
mod events;
mod groups;
mod held;
mod invite;
mod questions;
mod spawns;
mod together;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use base::{JobId, NodeId, ProcId, Time};
use pmix::{
    client::{Done, FINALIZE_WAIT, Program, Ticket},
    value::{Nspace, Proc, Status},
};

pub(super) use self::groups::COORDINATOR;
pub(crate) use self::questions::Inquiry;
use self::{invite::Left, questions::Session};
use super::{Ledger, proc_id};
use crate::{
    kernel::{Ask, News, Together},
    names::{called, nspace},
    script::{Data, Notify, Patience, Site},
};

/// Allowance for an answer after the time at which it is due, in addition to `Ledger::slack`.
const SLACK: Duration = Duration::from_millis(60);
/// Codes of the events about processes that end abnormally.
pub(crate) const TERMINATIONS: [Status; 4] = [
    Status::PROC_ABORTED_BY_SIG,
    Status::PROC_TERM_WO_SYNC,
    Status::EXIT_NONZERO_TERM,
    Status::PROC_REQUESTED_ABORT,
];

/// The identity of a collective: its kind and its sorted members.
type Meeting = (Together, Vec<Proc>);

/// The state of the connection between a process and its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Inside,
    Finalized,
    /// The process closed the connection without finalize, or sent garbage, at this time.
    Left(Time),
}

/// The PMIx state of a process since its last init.
#[derive(Debug)]
struct Client {
    standing: Standing,
    asked: BTreeMap<Ticket, (Ask, Time)>,
    /// Time of the finalize request; `None` before.
    finalizing: Option<Time>,
    /// Event codes whose registration has been answered with success, with the time of the first answer.
    registered: BTreeMap<Status, Time>,
    /// Numbers of the events from programs that the process has received.
    heard: BTreeSet<u64>,
    /// Events about the ends of procs and jobs that the process has received: the event code, and the name of the proc or job.
    terminations: BTreeSet<(Status, Proc)>,
    /// True if it hears of the ends of the jobs that it spawns, as tools do.
    watches: bool,
    /// Those jobs, and whether it has heard of their ends.
    watched: BTreeMap<JobId, Heard>,
}

/// Whether a process has heard of something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    NotYet,
    Once,
}

/// A value that was published under a service name.
#[derive(Debug)]
struct Published {
    by: ProcId,
    /// Time at which the publish was answered; `None` before. From then on until it is withdrawn, each lookup must find the
    /// value.
    since: Option<Time>,
    /// True once a process has requested to unpublish the value.
    is_withdrawn: bool,
}

/// An event that a program has sent with `PMIx_Notify_event`.
#[derive(Debug)]
struct Raised {
    by: Proc,
    notify: Notify,
    /// Time at which the notify was answered; the server has the event by then. `None` before.
    since: Option<Time>,
}

/// The PMIx facts of a run.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    clients: BTreeMap<ProcId, Client>,
    /// Times at which each process called each collective. The *n*-th time belongs to its *n*-th call with these members.
    entered: BTreeMap<Meeting, BTreeMap<ProcId, Vec<Time>>>,
    /// Collectives that failed at least once. The *n*-th calls of their members need not belong together.
    failed: BTreeSet<Meeting>,
    /// Keys whose commit was requested, with the time at which it was answered; `None` before.
    committed: BTreeMap<(ProcId, String), Option<Time>>,
    /// Keys that the server of a node certainly has, by node, owner and key, with the time since when that is known.
    brought: BTreeMap<(NodeId, ProcId, String), Time>,
    published: BTreeMap<String, Published>,
    /// The numbers of groups, as the first answer to each construct said.
    numbers: BTreeMap<String, Option<u64>>,
    raised: BTreeMap<u64, Raised>,
    /// Groups by invitation that members have left.
    left: Vec<Left>,
    /// The first answer to each connect that no member has called twice: who got it, and whether it succeeded.
    connected: BTreeMap<Meeting, (ProcId, bool)>,
    /// The connections of each process, one after the other.
    sessions: BTreeMap<ProcId, Vec<Session>>,
    /// Processes that have requested an abort, with the time at which that was answered; `None` before.
    aborts: BTreeMap<ProcId, Option<Time>>,
    /// Procs that a process has named in an abort.
    pub(crate) condemned: BTreeSet<ProcId>,
    /// Number of connections that daemons closed while they had a job. `told_refused` is the number reported to fronts.
    pub(crate) refused: u64,
    pub(crate) told_refused: u64,
}

impl Clients {
    /// Returns true if a process has finalized and has not initialized again.
    pub(crate) fn has_finalized(&self, proc: ProcId) -> bool {
        let client = self.clients.get(&proc);
        client.is_some_and(|client| client.standing == Standing::Finalized)
    }

    /// Returns true if a process has initialized and not finalized since.
    pub(super) fn is_inside(&self, proc: ProcId) -> bool {
        let client = self.clients.get(&proc);
        client.is_some_and(|client| client.standing != Standing::Finalized)
    }

    /// Returns the number of connections that daemons closed, and the number reported to fronts.
    pub(crate) const fn refused(&self) -> (u64, u64) {
        (self.refused, self.told_refused)
    }
}

/// The reaping of a rank by its daemon.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reaped {
    pub(crate) at: Time,
    /// True if the daemon was already ending the job, so that it sends no event.
    pub(crate) is_ending: bool,
}

impl Ledger {
    /// Records and checks a step in the PMIx communication of a process. Returns a description of an error.
    pub(crate) fn on_news(
        &mut self,
        now: Time,
        proc: ProcId,
        news: &News,
        program: &Program,
    ) -> Option<String> {
        let name = called(proc);
        match news {
            News::Begun => {
                let sessions = self.pmix.sessions.entry(proc).or_default();
                sessions.push(Session::new(now));
                None
            }
            News::Held => {
                let is_asked = self.facts.is_held_in_init(proc.job);
                (!is_asked).then(|| format!("{name} is held, and nobody asked for it"))
            }
            News::Ready => {
                self.on_ready(now, proc);
                let client = Client {
                    standing: Standing::Inside,
                    asked: BTreeMap::new(),
                    finalizing: None,
                    registered: BTreeMap::new(),
                    heard: BTreeSet::new(),
                    terminations: BTreeSet::new(),
                    watches: false,
                    watched: BTreeMap::new(),
                };
                self.pmix.clients.insert(proc, client);
                let wrong = self.facts.of_own_job(program, proc);
                let wrong = wrong.map(|wrong| format!("is told that {wrong}"));
                let wrong = wrong.or_else(|| self.on_passed_init(now, proc));
                wrong.map(|wrong| format!("{name} {wrong}"))
            }
            News::Asked(ticket, ask) => {
                self.on_asked(now, proc, ask);
                let client = self.pmix.clients.get_mut(&proc)?;
                client.asked.insert(*ticket, (ask.clone(), now));
                match ask {
                    Ask::Finalize => {
                        client.finalizing = Some(now);
                        self.on_leaves(now, proc);
                    }
                    Ask::Notify(notify) if notify.code == Status::GROUP_CONSTRUCT_COMPLETE => {
                        let wrong = self.on_completed(now, proc, notify);
                        return wrong.map(|wrong| format!("{name} {wrong}"));
                    }
                    _ => {}
                }
                None
            }
            News::Answered(ticket, result) => {
                let wrong = self.on_answer(now, proc, program, *ticket, result);
                wrong.map(|wrong| format!("{name} {wrong}"))
            }
            News::Table(ticket, result) => {
                let wrong = self.on_table(now, proc, *ticket, result);
                wrong.map(|wrong| format!("{name} {wrong}"))
            }
            News::Watches => {
                self.pmix.clients.get_mut(&proc)?.watches = true;
                None
            }
            News::JobEnded(job, end) => {
                let wrong = self.on_watched_end(proc, job, *end);
                wrong.map(|wrong| format!("{name} {wrong}"))
            }
            News::Noticed(notice) => {
                let wrong = self.on_noticed(proc, notice);
                wrong.map(|wrong| format!("{name} {wrong}"))
            }
            News::Waited => {
                let until = now.since(Time::ZERO).checked_sub(self.slack + SLACK);
                let until = until.map(|until| Time::ZERO + until);
                let wrong = self.unheard(proc, |_| until);
                wrong.map(|wrong| format!("{name} has waited, and has not heard of {wrong}"))
            }
            News::Finalized => {
                let wrong = self.on_finalize_answered(now, proc);
                wrong.map(|wrong| format!("{name} never hears of {wrong}"))
            }
            News::GivenUp => {
                let is_right = self.has_given_up(now, proc);
                self.on_left(now, proc);
                self.pmix.clients.get_mut(&proc)?.standing = Standing::Left(now);
                (!is_right).then(|| format!("{name} loses its server: it is silent"))
            }
            News::Left => {
                self.on_left(now, proc);
                let client = self.pmix.clients.get_mut(&proc)?;
                // Who has sent garbage has left, even if it closes the connection later.
                if !matches!(client.standing, Standing::Left(_)) {
                    client.standing = Standing::Left(now);
                }
                None
            }
        }
    }

    /// Records and checks the answer to a request. Returns a description of an error.
    fn on_answer(
        &mut self,
        now: Time,
        proc: ProcId,
        program: &Program,
        ticket: Ticket,
        result: &Result<Done, Status>,
    ) -> Option<String> {
        let client = self.pmix.clients.get_mut(&proc)?;
        let Some((ask, asked)) = client.asked.remove(&ticket) else {
            return Some(format!("is answered twice: {result:?}"));
        };
        if *result == Err(Status::UNREACH) {
            if self.is_over(now, proc) {
                return None;
            }
            if let Ask::Question(question, about, _) = &ask {
                return self.on_unanswered(now, proc, asked, question, about);
            }
        }
        self.on_answered(now, proc, program, asked, &ask, result)
    }

    /// Records the end of a connection by a finalize. Returns a description of an event that the process has missed.
    fn on_finalize_answered(&mut self, now: Time, proc: ProcId) -> Option<String> {
        self.on_finalized(now, proc);
        let client = self.pmix.clients.get_mut(&proc)?;
        client.standing = Standing::Finalized;
        let asked = client.finalizing.unwrap_or(now);
        let node = self.facts.node_of(proc);
        // An event from another node takes up to `slack`. It must arrive only if it was sent at least that long before the
        // finalize request.
        self.unheard(proc, |of| {
            let way = if of == node {
                Duration::ZERO
            } else {
                self.slack
            };
            let until = asked.since(Time::ZERO).checked_sub(way)?;
            Some(Time::ZERO + until)
        })
    }

    /// Returns true if a process has left its server, or rightly waits no longer for it.
    fn is_over(&self, now: Time, proc: ProcId) -> bool {
        let client = self.pmix.clients.get(&proc);
        let has_left = client.is_some_and(|client| matches!(client.standing, Standing::Left(_)));
        has_left || self.has_given_up(now, proc)
    }

    fn has_asked_to_finalize(&self, proc: ProcId) -> bool {
        let client = self.pmix.clients.get(&proc);
        client.is_some_and(|client| client.finalizing.is_some())
    }

    /// Returns true if a process rightly waits no longer for the answer to its finalize: daemons were stopped that long.
    fn has_given_up(&self, now: Time, proc: ProcId) -> bool {
        let client = self.pmix.clients.get(&proc);
        let finalizing = client.and_then(|client| client.finalizing);
        finalizing.is_some_and(|at| now >= at + FINALIZE_WAIT) && self.stops >= FINALIZE_WAIT
    }

    /// Checks a process that has died without finalize or disconnect. Returns a description of a request that the server should
    /// have answered before.
    pub(crate) fn on_client_dead(&self, now: Time, proc: ProcId) -> Option<String> {
        let client = self.pmix.clients.get(&proc)?;
        if client.standing != Standing::Inside {
            return None;
        }
        client.asked.values().find_map(|(ask, asked)| {
            let due = self.due(proc, ask)?.max(*asked);
            let is_late = now > due + SLACK + self.slack;
            is_late.then(|| format!("{} was never answered to {ask:?}", called(proc)))
        })
    }

    /// Returns the time from which the server can certainly answer a request, which may precede the request. `None` if the time
    /// is unknown.
    fn due(&self, proc: ProcId, ask: &Ask) -> Option<Time> {
        match ask {
            Ask::Together(Together::Destruct, members) => self.destruct_due(proc, members),
            Ask::Together(kind, members) => self.broken_since(*kind, members, proc),
            // The answer comes from the coordinator, who may be anywhere.
            Ask::Construct(..) => None,
            Ask::Get(of, key) => {
                let of = proc_id(of)?;
                let committed = self.pmix.committed.get(&(of, key.clone()));
                let died = || self.died.get(&of).copied();
                committed.copied().flatten().or_else(died)
            }
            Ask::Question(_, _, Patience::GoesOn) => None,
            Ask::Question(question, about, Patience::Waits) => {
                self.question_due(proc, question, about)
            }
            // The process's own server answers these immediately.
            Ask::Commit(_)
            | Ask::Register(_)
            | Ask::Notify(_)
            | Ask::Leave(_)
            | Ask::Release(_)
            | Ask::Finalize => Some(Time::ZERO),
            Ask::Publish(_)
            | Ask::Lookup(..)
            | Ask::Unpublish(_)
            | Ask::Spawn(..)
            | Ask::Abort(_) => None,
        }
    }

    fn on_asked(&mut self, now: Time, proc: ProcId, ask: &Ask) {
        self.on_cause(proc, ask);
        let me = self.name_of(proc);
        match ask {
            Ask::Commit(keys) => {
                for key in keys {
                    let key = (proc, key.clone());
                    self.pmix.committed.entry(key).or_insert(None);
                }
            }
            Ask::Together(kind, members) => {
                let id = meeting(*kind, members);
                let entered = self.pmix.entered.entry(id).or_default();
                entered.entry(proc).or_default().push(now);
            }
            Ask::Construct(_, members) => {
                let id = meeting(Together::Construct, members);
                let entered = self.pmix.entered.entry(id).or_default();
                entered.entry(proc).or_default().push(now);
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
            Ask::Leave(members) => self.pmix.left.push(Left {
                by: proc,
                members: members.clone(),
                since: None,
            }),
            Ask::Abort(procs) => {
                self.pmix.aborts.entry(proc).or_insert(None);
                let procs = procs.iter().filter_map(proc_id);
                self.pmix.condemned.extend(procs);
            }
            Ask::Release(procs) => {
                for proc in self.facts.members(procs) {
                    self.released.entry(proc).or_insert(now);
                }
            }
            Ask::Get(..)
            | Ask::Lookup(..)
            | Ask::Register(_)
            | Ask::Spawn(..)
            | Ask::Question(..)
            | Ask::Finalize => {}
        }
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each request")]
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
            (Ask::Construct(circle, members), result) => {
                self.on_constructed(now, proc, circle, members, result)
            }
            // A destruct waits for no member that is gone, and members that never had the group do not call.
            (Ask::Together(Together::Destruct, members), Ok(Done::Nothing)) => {
                self.on_destructed(now, proc, members)
            }
            (Ask::Together(kind, members), Ok(Done::Nothing)) => {
                self.brings(now, proc, *kind, members);
                let wrong = self.on_together(proc, *kind, members);
                let wrong = wrong.or_else(|| self.differs(proc, *kind, members, true));
                if wrong.is_some() || *kind != Together::Connect {
                    return wrong;
                }
                if let Some(wrong) = self.on_connected(proc, members) {
                    return Some(wrong);
                }
                let jobs: BTreeSet<_> = members.iter().map(|member| &member.nspace).collect();
                let mut wrong = jobs
                    .into_iter()
                    .filter_map(|job| self.facts.of_job(program, job));
                wrong.next().map(|wrong| format!("is told that {wrong}"))
            }
            (Ask::Together(kind, members), Err(Status::LOST_CONNECTION)) => {
                self.pmix.failed.insert(meeting(*kind, members));
                let since = self.broken_since(*kind, members, proc);
                // A server no longer knows a job that is over, even if its processes have called.
                let is_broken = since.is_some_and(|since| since <= now)
                    || members.iter().any(|member| self.is_forgotten(member))
                    || self.was_deserted(now, *kind, members, proc);
                let wrong = (!is_broken).then(|| {
                    format!("is told that its {kind:?} with {members:?} is broken, and it is not")
                });
                wrong.or_else(|| self.differs(proc, *kind, members, false))
            }
            // A server no longer knows a job that is over.
            (Ask::Together(_, members), Err(Status::NOT_FOUND))
                if members.iter().any(|member| self.is_forgotten(member)) =>
            {
                None
            }
            (Ask::Get(of, _), Err(Status::NOT_FOUND)) if self.is_forgotten(of) => None,
            (Ask::Get(of, key), result) => {
                let wrong = self.on_got(now, asked, proc, of, key, result);
                if result.is_ok() {
                    let node = self.facts.node_of(proc);
                    if let Some((node, of)) = node.zip(proc_id(of)) {
                        let key = (node, of, key.clone());
                        self.pmix.brought.entry(key).or_insert(now);
                    }
                }
                wrong
            }
            (Ask::Publish(service), Ok(Done::Nothing)) => {
                if let Some(published) = self.pmix.published.get_mut(service) {
                    published.since = Some(now);
                }
                None
            }
            (Ask::Lookup(of, lookup), result) => self.on_found(now, asked, of, lookup, result),
            (Ask::Register(codes), Ok(Done::Nothing)) => {
                let client = self.pmix.clients.get_mut(&proc)?;
                for code in codes {
                    client.registered.entry(*code).or_insert(now);
                }
                None
            }
            (Ask::Notify(notify), Ok(Done::Nothing)) => {
                if let Some(raised) = self.pmix.raised.get_mut(&notify.number) {
                    raised.since = Some(now);
                }
                None
            }
            (Ask::Leave(members), Ok(Done::Nothing)) => {
                let mut left = self.pmix.left.iter_mut();
                let left = left.find(|left| left.by == proc && left.members == *members)?;
                left.since = Some(now);
                None
            }
            (Ask::Spawn(_, Site::Nowhere), Err(Status::JOB_FAILED_TO_MAP)) => None,
            // After the loss of a node no job is placed any more.
            (Ask::Spawn(..), Err(Status::JOB_FAILED_TO_MAP)) if !self.lost_nodes.is_empty() => None,
            (Ask::Spawn(_, Site::WithFiles | Site::HeldWithFiles), Err(status))
                if self.explains_files(proc, *status) =>
            {
                None
            }
            // The process has finalized, and did not wait.
            (Ask::Spawn(..), Err(Status::UNREACH)) if self.has_asked_to_finalize(proc) => None,
            (Ask::Spawn(child, _), result) => {
                if let (Ok(_), Some(job)) = (result, self.facts.job_of_child(*child)) {
                    self.watch(proc, job);
                }
                self.on_spawn_answered(proc, *child, result)
            }
            (Ask::Question(question, about, _), result) => {
                let inquiry = Inquiry {
                    here: self.facts.node_of(proc)?,
                    question,
                    about,
                    asked,
                    now,
                };
                self.on_told_facts(inquiry, result)
            }
            (Ask::Abort(_), Ok(Done::Nothing)) => {
                self.pmix.aborts.insert(proc, Some(now));
                None
            }
            (Ask::Unpublish(_) | Ask::Release(_) | Ask::Finalize, Ok(Done::Nothing)) => None,
            (ask, result) => Some(format!("is answered {result:?} to {ask:?}")),
        }
    }

    /// Returns true if at least one daemon has forgotten the job of a proc, or all nodes of the job were lost.
    fn is_forgotten(&self, proc: &Proc) -> bool {
        let name = proc.nspace.to_string();
        let over = self.over.iter().map(|(job, _)| job);
        let mut gone = self.forgotten.iter().chain(over);
        gone.any(|job| nspace(*job) == name)
    }

    /// Returns the PMIx name of a proc.
    pub(crate) fn name_of(&self, proc: ProcId) -> Option<Proc> {
        let nspace = Nspace::from_text(&nspace(proc.job)).ok()?;
        Some(crate::script::named(&nspace, proc.rank))
    }
}

/// Returns the identity of a collective. Whether a fence collects data is not part of it, nor is the order of members.
fn meeting(kind: Together, members: &[Proc]) -> Meeting {
    let kind = match kind {
        Together::Fence(_) => Together::Fence(Data::Without),
        Together::Connect | Together::Disconnect | Together::Construct | Together::Destruct => kind,
    };
    let mut members = members.to_vec();
    members.sort();
    members.dedup();
    (kind, members)
}
