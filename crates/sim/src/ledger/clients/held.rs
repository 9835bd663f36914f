//! Checks of what tools hear of the jobs that they have spawned: that all ranks are held, and that the job has ended.

use base::{JobId, NodeId, ProcId, Rank, Time};
use pmix::{
    client::Notice,
    codec::Format,
    frame::Tag,
    keys,
    message::Push,
    tool::{JobEnd, Stage},
    value::{Info, Nspace, Proc, Status, Value},
};

use super::{
    super::{Ledger, facts::job_id},
    Heard, SLACK,
};
use crate::names::nspace;

/// Returns the job that an event names.
fn job_named(infos: &[Info]) -> Option<JobId> {
    let name = infos.iter().find(|info| info.key == *keys::NSPACE)?;
    job_id(&Nspace::new(name.value.as_text()?).ok()?)
}

impl Ledger {
    /// Records an event of the controller that a daemon receives. Returns a description of an error.
    pub(crate) fn on_event_told(
        &mut self,
        now: Time,
        node: NodeId,
        event: &[u8],
    ) -> Option<String> {
        let event = Push::decode(Format::V4, Tag::Event, event);
        let Ok(Some(Push::Event { status, infos, .. })) = event else {
            return Some(format!("node {node} is told an event that cannot be read"));
        };
        match status {
            Status::EVENT_JOB_END => {
                let about = infos
                    .iter()
                    .find(|info| info.key == *keys::EVENT_AFFECTED_PROC);
                let job = match about.map(|info| &info.value) {
                    Some(Value::Proc(about)) => job_id(&about.nspace),
                    _ => None,
                };
                let Some(job) = job else {
                    return Some(format!("node {node} is told that some job has ended"));
                };
                return self.on_over_told(now, node, job);
            }
            Status::READY_FOR_DEBUG => {
                let Some(job) = job_named(&infos) else {
                    return Some(format!("node {node} is told that some job is held"));
                };
                self.held_told.insert((node, job), now);
            }
            Status::EVENT_JOB_START | Status::LAUNCH_COMPLETE => {
                let stage = match status {
                    Status::EVENT_JOB_START => Stage::Started,
                    _ => Stage::Launched,
                };
                let job = job_named(&infos);
                let Some(job) = job.filter(|job| self.tool_of(*job).is_some()) else {
                    return Some(format!("node {node} is told {status} of {job:?}"));
                };
                let ranks = (0..self.facts.size(job)).map(Rank);
                let mut ranks = ranks.map(|rank| ProcId { job, rank });
                if let Some(absent) = ranks.find(|rank| !self.known.has_heard_of(*rank)) {
                    return Some(format!("node {node} is told {status}, without {absent:?}"));
                }
                self.stages_told.entry((job, stage)).or_insert(now);
            }
            Status::LAUNCHER_READY => self.readies_told += 1,
            other => return Some(format!("node {node} is told {other} by the controller")),
        }
        None
    }

    /// Checks that a held rank of a spawned job goes on when its release was requested, or when nobody can do that any more. The
    /// job is not being ended. Returns a description of the error.
    pub(crate) fn on_continued(&mut self, now: Time, proc: ProcId) -> Option<String> {
        self.continued.entry(proc).or_insert(now);
        let by = self.facts.holder_of(proc.job)?;
        let has_left = self.tools_left.contains_key(&by.job);
        let is_gone = has_left || self.died.contains_key(&by) || self.is_on_lost_node(by);
        match self.released.get(&proc) {
            None if is_gone => None,
            None => Some("nobody has released it".to_owned()),
            Some(released) => {
                let since = self.trapped.get(&proc).map_or(now, |at| *at.max(released));
                (now > since + self.slack + SLACK)
                    .then(|| format!("it has been released since {since}"))
            }
        }
    }

    /// Returns true if a rank waits in its init for its release.
    pub(crate) fn waits_in_init(&self, proc: ProcId) -> bool {
        self.facts.is_held_in_init(proc.job) && !self.pmix.clients.contains_key(&proc)
    }

    /// Checks that the init of a rank that was held there ends when it may. Returns a description of the error.
    pub(super) fn on_passed_init(&mut self, now: Time, proc: ProcId) -> Option<String> {
        if !self.facts.is_held_in_init(proc.job) || self.ending.contains(&proc.job) {
            return None;
        }
        let wrong = self.on_continued(now, proc)?;
        Some(format!("goes on in its init, and {wrong}"))
    }

    /// Checks the event that all ranks of a spawned job are held. Returns a description of the error.
    pub(super) fn on_told_held(&mut self, proc: ProcId, notice: &Notice) -> Option<String> {
        let name = notice.attribute(keys::NSPACE).and_then(Value::as_text);
        let name = name.and_then(|name| Nspace::new(name).ok());
        let Some((name, job)) = name.and_then(|name| Some((name.clone(), job_id(&name)?))) else {
            return Some(format!("hears that some job is held: {notice:?}"));
        };
        let all = Proc::all(name);
        let ranks = self.facts.members(std::slice::from_ref(&all));
        let client = self.pmix.clients.get_mut(&proc)?;
        if !client.terminations.insert((Status::READY_FOR_DEBUG, all)) {
            return Some(format!("hears twice that job {job} is held"));
        }
        let holder = self.facts.holder_of(job);
        let mut ranks = ranks.into_iter();
        let absent = ranks.find(|rank| !self.known.has_heard_of(*rank));
        (holder != Some(proc) || absent.is_some())
            .then(|| format!("hears that job {job} of {holder:?} is held, without {absent:?}"))
    }

    /// Returns a job of which a process should have heard that it is held, or that it has ended.
    pub(super) fn unheard_of_job(
        &self,
        proc: ProcId,
        sure: impl Fn(Option<NodeId>) -> Option<Time>,
    ) -> Option<String> {
        let client = self.pmix.clients.get(&proc)?;
        let node = self.facts.node_of(proc);
        let until = sure(node)?;
        let is_due = |((of, _), at): &(&(NodeId, JobId), &Time)| Some(*of) == node && **at < until;
        let is_unheard = |job: JobId| {
            let name = Nspace::from_text(&nspace(job)).ok();
            let held = name.map(|name| (Status::READY_FOR_DEBUG, Proc::all(name)));
            held.is_some_and(|held| !client.terminations.contains(&held))
        };
        if client.registered.contains_key(&Status::READY_FOR_DEBUG) {
            let mut held = self.held_told.iter().filter(is_due);
            let missed = held
                .find(|((_, job), _)| self.facts.holder_of(*job) == Some(proc) && is_unheard(*job));
            if let Some(((_, job), _)) = missed {
                return Some(format!("job {job}, which is held"));
            }
        }
        let mut over = self.over_told.iter().filter(is_due);
        let missed = over.find(|((_, job), _)| client.watched.get(job) == Some(&Heard::NotYet))?;
        Some(format!("the end of job {}, which it watches", missed.0.1))
    }

    /// Records that a process has spawned a job, whose end it may want to hear of.
    pub(super) fn watch(&mut self, proc: ProcId, job: JobId) {
        let client = self.pmix.clients.get_mut(&proc);
        if let Some(client) = client.filter(|client| client.watches) {
            client.watched.insert(job, Heard::NotYet);
        }
    }

    /// Checks what a tool hears of the end of a job that it has spawned. Returns a description of the error.
    pub(super) fn on_watched_end(
        &mut self,
        proc: ProcId,
        name: &Nspace,
        end: JobEnd,
    ) -> Option<String> {
        let job = job_id(name)?;
        let client = self.pmix.clients.get_mut(&proc)?;
        let before = client.watched.insert(job, Heard::Once);
        if before != Some(Heard::NotYet) {
            return Some(format!(
                "hears of the end of job {job}: before it was {before:?}"
            ));
        }
        let right = self.status_of(job);
        (right.is_none() || end.status != right)
            .then(|| format!("hears that job {job} has come to {end:?}, really: {right:?}"))
    }
}
