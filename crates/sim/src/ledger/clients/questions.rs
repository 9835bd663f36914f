//! Checks of answers to questions about jobs: each process table has every rank once, as it was at one moment between the question
//! and the answer.

use std::{collections::BTreeSet, ffi::CStr};

use base::{JobId, NodeId, ProcId, Rank, Time};
use pmix::{
    client::{Done, Ticket},
    keys,
    server::LOST_DELAY,
    value::{Info, Nspace, Proc, ProcInfo, ProcState, Status, Value},
};

use super::{
    super::{Ledger, facts::job_id, host, known::Shown},
    SLACK,
};
use crate::{
    kernel::Ask,
    names::nspace,
    script::{OF_JOBS, Question, UNKNOWN, named},
};

/// A connection of a process, from its init to its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Session {
    begun: Time,
    ready: Option<Time>,
    /// Time at which the process requests its finalize, or leaves without.
    leaves: Option<Time>,
    /// Time from which the server certainly knows that it has left.
    gone: Option<Time>,
}

impl Session {
    pub(super) const fn new(begun: Time) -> Self {
        Self {
            begun,
            ready: None,
            leaves: None,
            gone: None,
        }
    }
}

/// The question, where it was asked, and when it was asked and answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inquiry<'a> {
    /// The node whose server was asked.
    pub(crate) here: NodeId,
    pub(crate) question: &'a Question,
    pub(crate) about: &'a Nspace,
    pub(crate) asked: Time,
    pub(crate) now: Time,
}

/// The time in which all that was shown was true at once.
#[derive(Clone, Copy, Debug)]
struct Moment {
    from: Time,
    to: Time,
}

impl Moment {
    /// Narrows the time to that in which a row was right. Returns what was right instead, if it never was.
    fn narrow(&mut self, row: &ProcInfo, shown: &[Shown]) -> Result<(), String> {
        let is_it = |one: &Shown| one.pid == row.pid && one.state == row.state;
        let ends = shown.iter().skip(1).map(|next| Some(next.since));
        let spans = shown.iter().zip(ends.chain([None]));
        let mut right = spans.filter(|(one, _)| is_it(one));
        let found =
            right.find(|(one, end)| one.since <= self.to && end.is_none_or(|end| end >= self.from));
        let Some((one, end)) = found else {
            return Err(format!("{shown:?} from {} to {}", self.from, self.to));
        };
        self.from = self.from.max(one.since);
        self.to = end.map_or(self.to, |end| self.to.min(end));
        Ok(())
    }
}

impl Ledger {
    /// Records a step in the connection of a process.
    pub(super) fn on_session(&mut self, proc: ProcId, act: impl FnOnce(&mut Session)) {
        if let Some(last) = self.pmix.sessions.entry(proc).or_default().last_mut() {
            act(last);
        }
    }

    pub(super) fn on_ready(&mut self, now: Time, proc: ProcId) {
        self.on_session(proc, |session| session.ready = Some(now));
    }

    pub(super) fn on_leaves(&mut self, now: Time, proc: ProcId) {
        self.on_session(proc, |session| {
            session.leaves.get_or_insert(now);
        });
    }

    pub(super) fn on_left(&mut self, now: Time, proc: ProcId) {
        self.on_leaves(now, proc);
        let known = now + LOST_DELAY + self.slack + SLACK;
        self.on_session(proc, |session| session.gone = Some(known));
    }

    pub(super) fn on_finalized(&mut self, now: Time, proc: ProcId) {
        self.on_session(proc, |session| session.gone = Some(now));
    }

    /// Returns the time from which a question can certainly be answered; `None` if it never must be.
    pub(super) fn question_due(
        &self,
        by: ProcId,
        question: &Question,
        about: &Nspace,
    ) -> Option<Time> {
        let is_cut_off = self.known.is_headless || self.is_on_lost_node(by);
        (!is_cut_off || !self.needs_controller(by, question, about)).then_some(Time::ZERO)
    }

    /// Returns true if only the controller knows what a process asks.
    pub(super) fn needs_controller(&self, by: ProcId, question: &Question, about: &Nspace) -> bool {
        let here = self.facts.node_of(by);
        let Some(job) = job_id(about) else {
            return false;
        };
        let mut ranks = self.facts.places(job);
        match question {
            Question::Table => ranks.any(|(_, node, _)| Some(node) != here),
            Question::Node(meant) => {
                Some(*meant) != here && ranks.any(|(_, node, _)| node == *meant)
            }
            Question::Pid(rank) => ranks.any(|(one, node, _)| one == *rank && Some(node) != here),
            Question::OwnNode | Question::Facts | Question::Jobs => false,
        }
    }

    /// Checks that a question may be unanswered when the connection of the process ends. Returns a description of the error.
    pub(super) fn on_unanswered(
        &self,
        now: Time,
        by: ProcId,
        asked: Time,
        question: &Question,
        about: &Nspace,
    ) -> Option<String> {
        // The server handles the requests of a connection one after the other, and the finalize last.
        let is_late = if self.needs_controller(by, question, about) {
            self.question_due(by, question, about).is_some() && now > asked + self.slack + SLACK
        } else {
            true
        };
        is_late.then(|| format!("was never answered to {question:?}"))
    }

    /// Checks the answer to a question that is not asked by [`pmix::tool::Tool::proc_table`].
    pub(super) fn on_told_facts(
        &self,
        inquiry: Inquiry<'_>,
        result: &Result<Done, Status>,
    ) -> Option<String> {
        let infos = match result {
            Ok(Done::Infos { status, infos }) if *status == Status::SUCCESS => infos,
            Err(Status::NOT_FOUND) => return self.explains_nothing(inquiry),
            other => return Some(format!("asks {inquiry:?} and is answered {other:?}")),
        };
        match inquiry.question {
            Question::Table | Question::OwnNode => None,
            Question::Node(_) => match rows(infos) {
                Some(rows) => self.on_told_rows(inquiry, &rows),
                None => Some(format!("asks for a table and is told {infos:?}")),
            },
            Question::Pid(rank) => self.on_told_pid(inquiry, *rank, infos),
            Question::Facts => self.on_told_values(inquiry, infos),
            Question::Jobs => self.on_told_jobs(inquiry, infos),
        }
    }

    /// Records and checks the answer to a question for a process table. Returns a description of an error.
    pub(super) fn on_table(
        &mut self,
        now: Time,
        by: ProcId,
        ticket: Ticket,
        result: &Result<Vec<ProcInfo>, Status>,
    ) -> Option<String> {
        let client = self.pmix.clients.get_mut(&by)?;
        let Some((Ask::Question(question, about, _), asked)) = client.asked.remove(&ticket) else {
            return Some(format!("gets a table without a question: {result:?}"));
        };
        if *result == Err(Status::UNREACH) {
            let is_over = self.is_over(now, by);
            return (!is_over).then(|| self.on_unanswered(now, by, asked, &question, &about))?;
        }
        let inquiry = Inquiry {
            here: self.facts.node_of(by)?,
            question: &question,
            about: &about,
            asked,
            now,
        };
        self.on_told_table(inquiry, result)
    }

    /// Checks a process table. Returns a description of an error.
    pub(crate) fn on_told_table(
        &self,
        inquiry: Inquiry<'_>,
        result: &Result<Vec<ProcInfo>, Status>,
    ) -> Option<String> {
        match result {
            Ok(rows) => self.on_told_rows(inquiry, rows),
            Err(Status::NOT_FOUND) => self.explains_nothing(inquiry),
            Err(status) => Some(format!("asks for {inquiry:?} and is told {status}")),
        }
    }

    /// Checks that there may be no answer: the server of the node did not know the job, or not yet the pid.
    fn explains_nothing(&self, inquiry: Inquiry<'_>) -> Option<String> {
        let Inquiry { asked, now, .. } = inquiry;
        let node = inquiry.here;
        let job = job_id(inquiry.about);
        let span = job.and_then(|job| self.known.of_job(node, job));
        let is_known = span.is_some_and(|span| span.covers(asked, now));
        let has_no_pid = match inquiry.question {
            Question::Pid(rank) => job.is_some_and(|job| {
                let of = ProcId { job, rank: *rank };
                let shown = self.shown(node, of);
                let end = shown.iter().find(|one| one.pid != 0);
                self.facts.node_of(of).is_none() || end.is_none_or(|one| one.since >= asked)
            }),
            _ => false,
        };
        (inquiry.question == &Question::Jobs || is_known && !has_no_pid)
            .then(|| format!("is told nothing to {inquiry:?}, known {span:?}"))
    }

    /// Returns what the server of a node shows of a rank, one after the other, if it has never initialized.
    fn shown(&self, node: NodeId, of: ProcId) -> Vec<Shown> {
        if self.facts.node_of(of) != Some(node) {
            return self.known.of_rank(of);
        }
        let mut shown = vec![Shown {
            since: Time::ZERO,
            pid: 0,
            state: ProcState::PREPPED,
        }];
        if let (Some(pid), Some(since)) = (self.spawned.get(&of), self.spawned_at.get(&of)) {
            shown.push(Shown {
                since: *since,
                pid: u32::try_from(*pid).unwrap_or(0),
                state: ProcState::RUNNING,
            });
        }
        shown
    }

    fn on_told_rows(&self, inquiry: Inquiry<'_>, rows: &[ProcInfo]) -> Option<String> {
        let Inquiry {
            here, asked, now, ..
        } = inquiry;
        let job = job_id(inquiry.about);
        let span = job.and_then(|job| self.known.of_job(here, job));
        let Some((job, _)) = job.zip(span.filter(|span| span.meets(asked, now))) else {
            return Some(format!(
                "is told of a job that its node does not know: {inquiry:?}"
            ));
        };
        let is_meant = |node: NodeId| match inquiry.question {
            Question::OwnNode => node == here,
            Question::Node(one) => node == *one,
            _ => true,
        };
        let places = self.facts.places(job);
        let places: Vec<_> = places.filter(|(_, node, _)| is_meant(*node)).collect();
        let ranks = |mut all: Vec<String>| {
            all.truncate(40);
            all.join(" ")
        };
        if !places
            .iter()
            .map(|(rank, ..)| named(inquiry.about, *rank))
            .eq(rows.iter().map(|row| row.proc.clone()))
        {
            let told = ranks(rows.iter().map(|row| row.proc.to_string()).collect());
            let real = ranks(places.iter().map(|(rank, ..)| rank.to_string()).collect());
            return Some(format!("is told of the processes {told}, there are {real}"));
        }
        let mut far = Moment {
            from: asked,
            to: now,
        };
        let mut near = far;
        for ((rank, node, program), row) in places.into_iter().zip(rows) {
            let text = |text: &str| std::ffi::CString::new(text).ok();
            if row.hostname != text(&host(node)) || row.executable != text(program) {
                return Some(format!(
                    "is told {row:?}, who runs {program} on node {node}"
                ));
            }
            let of = ProcId { job, rank };
            let wrong = if node == here {
                self.narrow_near(&mut near, of, row)
            } else {
                far.narrow(row, &self.known.of_rank(of)).err()
            };
            if let Some(right) = wrong {
                return Some(format!("is told {row:?}, right is {right}"));
            }
        }
        // The server asks the controller first, and then adds its own processes.
        (far.from > near.to || far.from > far.to || near.from > near.to)
            .then(|| format!("is told a table that was never right: {far:?}, {near:?}"))
    }

    /// Checks the row of a process on the node of the process that asks. Returns what would be right.
    fn narrow_near(&self, moment: &mut Moment, of: ProcId, row: &ProcInfo) -> Option<String> {
        let reaped = self.reaped.get(&of).map(|reaped| reaped.at);
        let has_ended =
            ![ProcState::PREPPED, ProcState::RUNNING, ProcState::CONNECTED].contains(&row.state);
        let mut alive = row.clone();
        if has_ended || row.state == ProcState::CONNECTED {
            alive.state = ProcState::RUNNING;
        }
        let node = self.facts.node_of(of)?;
        if let Err(right) = moment.narrow(&alive, &self.shown(node, of)) {
            return Some(right);
        }
        if has_ended {
            let Some(reaped) = reaped.filter(|reaped| *reaped <= moment.to) else {
                return Some("that it has not ended".to_owned());
            };
            moment.from = moment.from.max(reaped);
            let states = self.end_states(of);
            return (!states.contains(&row.state)).then(|| format!("one of {states:?}"));
        }
        if let Some(reaped) = reaped {
            if reaped < moment.from {
                return Some(format!("that it has ended at {reaped}"));
            }
            moment.to = moment.to.min(reaped);
        }
        let (from, to) = (moment.from, moment.to);
        let sessions = self.pmix.sessions.get(&of).into_iter().flatten();
        let died = self.died.get(&of);
        let is_right = match row.state {
            ProcState::CONNECTED => sessions
                .clone()
                .any(|one| one.begun <= to && one.gone.is_none_or(|gone| gone >= from)),
            ProcState::RUNNING => sessions.clone().all(|one| {
                let is_ready = one.ready.is_some_and(|ready| ready < from);
                let leaves = one.leaves.into_iter().chain(died.copied()).min();
                !is_ready || leaves.is_some_and(|leaves| leaves <= to)
            }),
            _ => true,
        };
        (!is_right).then(|| format!("another state after {:?}", sessions.collect::<Vec<_>>()))
    }

    /// Returns the states in which a process may be shown that has ended.
    fn end_states(&self, of: ProcId) -> Vec<ProcState> {
        let Some(status) = self.statuses.get(&of) else {
            return Vec::new();
        };
        let mut states = Vec::new();
        let asked = self.pmix.aborts.get(&of);
        if let Some(answered) = asked {
            states.push(ProcState::CALLED_ABORT);
            if answered.is_some() {
                return states;
            }
        }
        if let base::ExitStatus::Signaled { .. } = status {
            states.push(ProcState::ABORTED_BY_SIG);
            return states;
        }
        let last = self.pmix.sessions.get(&of).and_then(|all| all.last());
        // The server may not have read the first or the last message of the process when it hears of its end.
        let may_be_outside = last.is_none_or(|one| {
            let asked = one.leaves.is_some();
            one.ready.is_none() || asked
        });
        let may_be_inside =
            last.is_some_and(|one| one.gone.is_none() || !self.pmix.has_finalized(of));
        if may_be_outside {
            states.push(ProcState::TERMINATED);
        }
        if may_be_inside {
            states.push(ProcState::TERM_WO_SYNC);
        }
        states
    }

    fn on_told_pid(&self, inquiry: Inquiry<'_>, rank: Rank, infos: &[Info]) -> Option<String> {
        let job = job_id(inquiry.about)?;
        let node = inquiry.here;
        let of = ProcId { job, rank };
        let shown = self.shown(node, of);
        let pid = shown
            .iter()
            .find(|one| one.pid != 0 && one.since <= inquiry.now);
        let right = pid.map(|one| Value::Pid(one.pid));
        let is_right = matches!(infos, [one] if one.key == *keys::PROC_PID && Some(&one.value) == right.as_ref());
        (!is_right).then(|| {
            format!("asks for the pid of rank {rank} and is told {infos:?}, right is {right:?}")
        })
    }

    fn on_told_values(&self, inquiry: Inquiry<'_>, infos: &[Info]) -> Option<String> {
        let all = Proc::all(inquiry.about.clone());
        let known: Vec<&CStr> = OF_JOBS.into_iter().filter(|key| *key != UNKNOWN).collect();
        if !infos
            .iter()
            .map(|info| info.key.as_c_str())
            .eq(known.iter().copied())
        {
            return Some(format!("asks for {known:?} and is told {infos:?}"));
        }
        let one = |info: &Info| {
            let key = info.key.as_c_str().to_str().ok()?;
            self.facts.one(&all, key, &info.value)
        };
        let wrong = infos.iter().find_map(one);
        wrong.map(|wrong| format!("is told that {wrong}"))
    }

    fn on_told_jobs(&self, inquiry: Inquiry<'_>, infos: &[Info]) -> Option<String> {
        let Inquiry {
            here: node,
            asked,
            now,
            ..
        } = inquiry;
        let text = match infos {
            [one] if one.key == *keys::QUERY_NAMESPACES => one.value.as_text(),
            _ => None,
        };
        let Some(text) = text.and_then(|text| text.to_str().ok()) else {
            return Some(format!("asks for all jobs and is told {infos:?}"));
        };
        let told: Vec<&str> = text.split(',').filter(|name| !name.is_empty()).collect();
        let names: BTreeSet<&str> = told.iter().copied().collect();
        let all: Vec<(JobId, _)> = self.known.jobs_of(node).collect();
        let may_be: BTreeSet<String> = all
            .iter()
            .filter(|(_, span)| span.meets(asked, now))
            .map(|(job, _)| nspace(*job))
            .collect();
        let mut must_be = all.iter().filter(|(_, span)| span.covers(asked, now));
        let missing = must_be.find(|(job, _)| !names.contains(nspace(*job).as_str()));
        let odd = names.iter().find(|name| !may_be.contains(**name));
        (missing.is_some() || odd.is_some() || names.len() != told.len()).then(|| {
            format!("is told of the jobs {text}: missing is {missing:?}, unknown is {odd:?}")
        })
    }
}

/// Returns the rows of the process table that a query has returned; `None` if that is none.
fn rows(infos: &[Info]) -> Option<Vec<ProcInfo>> {
    let [info] = infos else {
        return None;
    };
    let is_it = info.key == *keys::QUERY_LOCAL_PROC_TABLE;
    let Value::Array(array) = &info.value else {
        return None;
    };
    let pmix::value::Elements::Values(values) = &array.elements else {
        return None;
    };
    let rows = values.iter().map(|value| match value {
        Value::ProcInfo(row) => Some((**row).clone()),
        _ => None,
    });
    is_it.then(|| rows.collect())?
}
