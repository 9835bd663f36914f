//! Checks of PMIx events: a process gets no wrong event and misses none.

use base::{ExitStatus, NodeId, ProcId, Time};
use pmix::{
    client::Notice,
    keys,
    value::{Nspace, Proc, Status, Value},
};

use super::{super::Ledger, Raised, TERMINATIONS, proc_id};
use crate::{
    kernel::Ask,
    names::{called, nspace},
    script::{EVENT_NUMBER, Reach},
};

impl Ledger {
    pub(super) fn on_noticed(&mut self, proc: ProcId, notice: &Notice) -> Option<String> {
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
            if !right || !meant {
                return Some(format!("hears of {raised:?} as {notice:?}"));
            }
            return self.on_told_of_group(notice, raised);
        }
        if code == Status::READY_FOR_DEBUG {
            return self.on_told_held(proc, notice);
        }
        let about = notice.affected();
        let [about] = &about[..] else {
            return Some(format!("hears of {code}, and not about whom"));
        };
        let about = (*about).clone();
        let is_first = client.terminations.insert((code, about.clone()));
        // Who watches jobs has two registrations, and a server repeats for the second what it has kept.
        let may_be_repeated = client.watches && code == Status::EVENT_JOB_END;
        if !is_first && !may_be_repeated {
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
        if code == Status::GROUP_LEFT {
            return self.on_told_of_leave(&me, &about);
        }
        let Some(status) = proc_id(&about).and_then(|about| self.statuses.get(&about)) else {
            return Some(format!("hears of {code} of {about}, who lives"));
        };
        let is_signaled = matches!(status, ExitStatus::Signaled { .. });
        let is_right = match code {
            Status::PROC_ABORTED_BY_SIG => is_signaled,
            Status::EXIT_NONZERO_TERM => !is_signaled && !status.is_success(),
            Status::EVENT_PROC_TERMINATED => status.is_success(),
            _ => true,
        };
        (!is_right).then(|| format!("hears of {code} of {about}, who {status}"))
    }

    /// Returns a description of an event that a process has missed. `sure` returns the time up to which the events of a node
    /// must have arrived, or `None` if none of them must. Its argument is `None` for a proc on an unknown node.
    pub(super) fn unheard(
        &self,
        proc: ProcId,
        sure: impl Fn(Option<NodeId>) -> Option<Time>,
    ) -> Option<String> {
        let me = self.name_of(proc)?;
        let client = self.pmix.clients.get(&proc)?;
        let node = self.facts.node_of(proc);
        let event = self.pmix.raised.iter().find(|(number, raised)| {
            let from = proc_id(&raised.by).and_then(|by| self.facts.node_of(by));
            let until = sure(from);
            let told = raised
                .since
                .is_some_and(|since| until.is_some_and(|until| since <= until));
            told && client.registered.contains_key(&raised.notify.code)
                && self.reaches(raised, &me)
                && raised.by != me
                && !client.heard.contains(number)
        });
        if let Some((_, raised)) = event {
            return Some(format!("{raised:?}"));
        }
        let over = self.over_told.iter().find(|((of, job), at)| {
            let job = Nspace::from_text(&nspace(*job)).ok();
            let heard = job.is_some_and(|job| {
                let end = (Status::EVENT_JOB_END, Proc::all(job));
                client.terminations.contains(&end)
            });
            Some(*of) == node && sure(node).is_some_and(|until| **at < until) && !heard
        });
        if let Some(((_, job), _)) = over
            && client.registered.contains_key(&Status::EVENT_JOB_END)
        {
            return Some(format!("the end of job {job}"));
        }
        if let Some(wrong) = self.unheard_of_job(proc, &sure) {
            return Some(wrong);
        }
        let of_node = |of| sure(self.facts.node_of(of));
        if let Some(wrong) = self.unheard_of_member(proc, of_node) {
            return Some(wrong);
        }
        if !TERMINATIONS
            .iter()
            .all(|code| client.registered.contains_key(code))
        {
            return None;
        }
        let lost = self.reaped.iter().find(|(other, reaped)| {
            let status = self.statuses.get(other);
            if reaped.is_ending || status.is_none_or(|status| status.is_success()) {
                return false;
            }
            let termination = TERMINATIONS.iter().any(|code| {
                let name = self.name_of(**other);
                name.is_some_and(|name| client.terminations.contains(&(*code, name)))
            });
            let parent = self.facts.parent_of(other.job);
            (other.job == proc.job || parent == Some(proc.job))
                && **other != proc
                && sure(self.facts.node_of(**other)).is_some_and(|until| reaped.at < until)
                && !termination
        });
        lost.map(|(other, _)| format!("the end of {}", called(*other)))
    }

    /// Returns true if a process is in the range of an event from a program.
    pub(super) fn reaches(&self, raised: &Raised, proc: &Proc) -> bool {
        let node = |proc| proc_id(proc).and_then(|proc| self.facts.node_of(proc));
        let is_of_job = raised.by.nspace == proc.nspace;
        match &raised.notify.reach {
            Reach::Session => true,
            Reach::Node => node(&raised.by) == node(proc),
            Reach::Job => is_of_job,
            Reach::Some(ranks) => is_of_job && ranks.iter().any(|rank| rank.0 == proc.rank.0),
        }
    }
}
