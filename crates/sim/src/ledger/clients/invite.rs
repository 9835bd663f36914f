//! Checks of groups by invitation: everybody who has accepted is a member, nobody else is, all members are told the same
//! membership, and who leaves or dies is told to those who wait for it.

use std::collections::BTreeSet;

use base::{ExitStatus, ProcId, Time};
use pmix::{
    client::Notice,
    keys,
    value::{Proc, Status, Value},
};

use super::{super::Ledger, Raised, SLACK, Standing, proc_id};
use crate::script::{Notify, Reach, named};

/// The leave of a group.
#[derive(Debug)]
pub(super) struct Left {
    pub(super) by: ProcId,
    /// The members of the group, with this one.
    pub(super) members: Vec<Proc>,
    /// Time at which the leave was answered; `None` before.
    pub(super) since: Option<Time>,
}

/// Returns those who receive an event about a group.
fn receivers(by: &Proc, notify: &Notify) -> BTreeSet<Proc> {
    match &notify.reach {
        Reach::Some(ranks) => {
            let ranks = ranks.iter();
            ranks.map(|rank| named(&by.nspace, *rank)).collect()
        }
        Reach::Node | Reach::Job | Reach::Session => BTreeSet::new(),
    }
}

impl Ledger {
    /// Checks, when a leader says that its group exists, that those who have accepted are its members, and nobody else. A reply
    /// may still be on its way. Returns a description of an error.
    pub(super) fn on_completed(&self, now: Time, proc: ProcId, notify: &Notify) -> Option<String> {
        let me = self.name_of(proc)?;
        let group = notify.group.as_ref()?;
        let members = receivers(&me, notify);
        let of_group = |raised: &&Raised| {
            raised.notify.group.as_ref() == Some(group) && raised.by.nspace == me.nspace
        };
        let replies = || self.pmix.raised.values().filter(of_group);
        let accepts = |raised: &&Raised| raised.notify.code == Status::GROUP_INVITE_ACCEPTED;
        let mut guests = members.iter();
        let uninvited =
            guests.find(|guest| !replies().filter(accepts).any(|raised| raised.by == **guest));
        if let Some(guest) = uninvited {
            return Some(format!(
                "makes group `{group}` with {guest}, who has not accepted"
            ));
        }
        let sure = |raised: &&Raised| {
            let since = raised.since;
            since.is_some_and(|since| since + self.slack + SLACK < now)
        };
        let is_gone = |proc: &Proc| {
            let id = proc_id(proc);
            id.is_some_and(|id| self.died.contains_key(&id) || self.is_on_lost_node(id))
        };
        let mut accepted = replies().filter(accepts).filter(sure);
        let forgotten =
            accepted.find(|raised| !members.contains(&raised.by) && !is_gone(&raised.by));
        forgotten.map(|raised| {
            format!(
                "makes group `{group}` without {}, who has accepted",
                raised.by
            )
        })
    }

    /// Checks what a member is told about the members of a new group. Returns a description of an error.
    pub(super) fn on_told_of_group(&self, notice: &Notice, raised: &Raised) -> Option<String> {
        let group = raised.notify.group.as_ref()?;
        if raised.notify.code != Status::GROUP_CONSTRUCT_COMPLETE {
            return None;
        }
        let mut members = receivers(&raised.by, &raised.notify);
        members.insert(raised.by.clone());
        let told = notice.attribute(keys::GROUP_MEMBERSHIP);
        let told = told.and_then(Value::as_procs).unwrap_or_default();
        let is_right = told.iter().copied().eq(&members);
        (!is_right).then(|| format!("hears of group `{group}` of {told:?}, not {members:?}"))
    }

    /// Checks what a process hears of a member that leaves. Returns a description of an error.
    pub(super) fn on_told_of_leave(&self, me: &Proc, about: &Proc) -> Option<String> {
        let by = proc_id(about);
        let mut left = self.pmix.left.iter();
        let is_right = left.any(|left| Some(left.by) == by && left.members.contains(me));
        (!is_right).then(|| format!("hears that {about} leaves a group that they do not share"))
    }

    /// Returns true if a process has left the group with these members.
    pub(super) fn has_left(&self, proc: ProcId, members: &[Proc]) -> bool {
        let mut left = self.pmix.left.iter();
        left.any(|left| left.by == proc && left.members == members)
    }

    /// Returns the time since which a process is known to have left the group with these members.
    pub(super) fn left_since(&self, proc: ProcId, members: &[Proc]) -> Option<Time> {
        let mut left = self.pmix.left.iter();
        let left = left.find(|left| left.by == proc && left.members == members)?;
        left.since
    }

    /// Returns a description of an end or a leave that a process has missed, among the events that are only for those who have
    /// registered before. `sure` is as for [`Ledger::unheard`].
    pub(super) fn unheard_of_member(
        &self,
        proc: ProcId,
        sure: impl Fn(ProcId) -> Option<Time>,
    ) -> Option<String> {
        let me = self.name_of(proc)?;
        let client = self.pmix.clients.get(&proc)?;
        let heard = |code: Status, of: ProcId| {
            let name = self.name_of(of);
            name.is_some_and(|name| client.terminations.contains(&(code, name)))
        };
        let left = self.pmix.left.iter().find(|left| {
            let is_due = left
                .since
                .zip(sure(left.by))
                .is_some_and(|(at, until)| at < until);
            is_due
                && client.registered.contains_key(&Status::GROUP_LEFT)
                && left.by != proc
                && left.members.contains(&me)
                && !self.has_left(proc, &left.members)
                && !heard(Status::GROUP_LEFT, left.by)
        });
        if let Some(left) = left {
            return Some(format!("the leave of {}", crate::names::called(left.by)));
        }
        let missed = self.reaped.iter().find_map(|(other, reaped)| {
            let status = self.statuses.get(other)?;
            let code = self.end_code(*other, *status)?;
            let registered = *client.registered.get(&code)?;
            // Other nodes tell regular ends only after they have heard that somebody wants them.
            let registered = match code {
                Status::PROC_TERMINATED => registered,
                _ => registered + self.slack,
            };
            let parent = self.facts.parent_of(other.job);
            let is_due = !reaped.is_ending
                && *other != proc
                && (other.job == proc.job || parent == Some(proc.job))
                && !self.is_on_lost_node(*other)
                && registered < reaped.at
                && sure(*other).is_some_and(|until| reaped.at < until);
            (is_due && !heard(code, *other)).then_some((code, *other))
        });
        missed.map(|(code, other)| format!("{code} of {}", crate::names::called(other)))
    }

    /// Returns the code of the event for those who have registered before a process ends; `None` if it is not sure.
    fn end_code(&self, proc: ProcId, status: ExitStatus) -> Option<Status> {
        let client = self.pmix.clients.get(&proc);
        match client.map(|client| client.standing) {
            _ if !status.is_success() => Some(Status::PROC_TERMINATED),
            None | Some(Standing::Finalized) => Some(Status::EVENT_PROC_TERMINATED),
            Some(Standing::Inside | Standing::Left(_)) => None,
        }
    }
}
