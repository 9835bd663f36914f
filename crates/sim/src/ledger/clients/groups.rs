//! Checks of groups: all members get the same membership and number, and no two groups have the same number.

use base::{NodeId, ProcId, Time};
use pmix::{
    client::Done,
    value::{Proc, Status},
};

use super::{
    super::{Ledger, called},
    SLACK, meeting,
};
use crate::{
    kernel::Together,
    script::{CONSTRUCT_MAX, Circle, Number, Way},
};

/// The node that brings the calls together if not every member names all.
pub(in crate::ledger) const COORDINATOR: NodeId = NodeId(0);

impl Ledger {
    /// Checks the answer to a construct. Returns a description of an error.
    pub(super) fn on_constructed(
        &mut self,
        now: Time,
        proc: ProcId,
        circle: &Circle,
        members: &[Proc],
        result: &Result<Done, Status>,
    ) -> Option<String> {
        let name = &circle.name;
        let kind = Together::Construct;
        match result {
            Ok(Done::Group(group)) => {
                let missing = self.missing(proc, kind, members);
                if let Some(missing) = missing {
                    let missing = called(missing);
                    return Some(format!("has group `{name}` before {missing} has come"));
                }
                if group.members != members {
                    let told = &group.members;
                    return Some(format!("has group `{name}` of {told:?}, not {members:?}"));
                }
                let is_numbered = circle.number != Number::Unwanted;
                if group.context.is_some() != is_numbered {
                    let number = group.context;
                    return Some(format!("has group `{name}` with number {number:?}"));
                }
                let first = self
                    .pmix
                    .numbers
                    .entry(name.clone())
                    .or_insert(group.context);
                if *first != group.context {
                    let told = group.context;
                    return Some(format!(
                        "has group `{name}` with number {told:?}, not {first:?}"
                    ));
                }
                let mut others = self.pmix.numbers.iter();
                let same = others.find(|(other, number)| {
                    *other != name && is_numbered && **number == group.context
                });
                same.map(|(other, number)| {
                    format!("has group `{name}` with number {number:?}, as group `{other}`")
                })
            }
            Err(Status::LOST_CONNECTION) => {
                self.pmix.failed.insert(meeting(kind, members));
                let since = self.broken_since(kind, members, proc);
                let is_led = circle.way != Way::Together;
                let is_excused = since.is_some_and(|since| since <= now)
                    || self.was_deserted(now, kind, members, proc)
                    || is_led && self.lost_nodes.contains_key(&COORDINATOR);
                (!is_excused).then(|| format!("does not get group `{name}` of {members:?}"))
            }
            Err(Status::TIMEOUT) if circle.way != Way::Together => {
                let id = meeting(kind, members);
                let entered = self.pmix.entered.get(&id).into_iter().flatten();
                let mut calls = entered.flat_map(|(_, calls)| calls);
                let is_early = !calls.any(|at| *at + CONSTRUCT_MAX <= now);
                self.pmix.failed.insert(id);
                is_early.then(|| format!("waits for group `{name}` less than it wants to"))
            }
            Err(Status::NOT_FOUND) if members.iter().any(|member| self.is_forgotten(member)) => {
                None
            }
            result => Some(format!("constructs `{name}` and is answered {result:?}")),
        }
    }

    /// Checks that a destruct has not ended before all members that are there have called it. Returns a description of an error.
    pub(super) fn on_destructed(
        &mut self,
        now: Time,
        proc: ProcId,
        members: &[Proc],
    ) -> Option<String> {
        let kind = Together::Destruct;
        let is_gone = self
            .broken_since(kind, members, proc)
            .is_some_and(|since| since <= now);
        let due = self.destruct_due(proc, members);
        if let Some(due) = due.filter(|due| *due + self.slack + SLACK < now) {
            return Some(format!(
                "has destructed a group only now, everybody had come at {due}"
            ));
        }
        let mut missing = self.all_missing(proc, kind, members).into_iter();
        let missing = missing.find(|missing| {
            !self.pmix.has_finalized(*missing) && !self.has_left(*missing, members)
        })?;
        let missing = called(missing);
        (!is_gone).then(|| format!("has destructed a group before {missing} has come"))
    }

    /// Returns the time since which the destruct of a group waits for nobody: each member has called or is gone. `None` if one
    /// has not and is not.
    pub(super) fn destruct_due(&self, proc: ProcId, members: &[Proc]) -> Option<Time> {
        let kind = Together::Destruct;
        let entered = self.pmix.entered.get(&meeting(kind, members))?;
        let number = entered.get(&proc)?.len().checked_sub(1)?;
        let settled = |member: ProcId| {
            let came = entered.get(&member).and_then(|calls| calls.get(number));
            came.copied()
                .or_else(|| self.gone_since(member))
                .or_else(|| self.left_since(member, members))
        };
        let all = self.facts.members(members).into_iter();
        let settled: Option<Vec<Time>> = all.map(settled).collect();
        settled?.into_iter().max()
    }

    /// Returns a member that has not called a collective as often as this process.
    fn missing(&self, proc: ProcId, kind: Together, members: &[Proc]) -> Option<ProcId> {
        self.all_missing(proc, kind, members).into_iter().next()
    }

    /// Returns the members that have not called a collective as often as this process.
    fn all_missing(&self, proc: ProcId, kind: Together, members: &[Proc]) -> Vec<ProcId> {
        let Some(entered) = self.pmix.entered.get(&meeting(kind, members)) else {
            return Vec::new();
        };
        let calls = |member: &ProcId| entered.get(member).map_or(0, Vec::len);
        let own = calls(&proc);
        let mut all = self.facts.members(members);
        all.retain(|member| calls(member) < own);
        all
    }
}
