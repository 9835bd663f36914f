//! Checks of collectives: none completes before all members have called, and one that cannot complete fails.

use base::{NodeId, ProcId, Time};
use pmix::{server::LOST_DELAY, value::Proc};

use super::{
    super::{Ledger, called},
    Standing, meeting,
};
use crate::{kernel::Together, script::Data};

impl Ledger {
    /// Checks a completed collective: all members must have begun it.
    pub(super) fn on_together(
        &self,
        proc: ProcId,
        kind: Together,
        members: &[Proc],
    ) -> Option<String> {
        let id = meeting(kind, members);
        let entered = self.pmix.entered.get(&id)?;
        let own = entered.get(&proc).map_or(0, Vec::len);
        let missing = self
            .facts
            .members(members)
            .into_iter()
            .find(|member| entered.get(member).map_or(0, Vec::len) < own);
        if let Some(missing) = missing {
            return Some(format!(
                "is let go from its {kind:?} number {own} with {members:?} before {} has come",
                called(missing)
            ));
        }
        // Events on a node before its members called arrive before the report that they have called.
        let unheard = self.unheard(proc, |node| self.came_last(proc, kind, members, node?));
        unheard.map(|unheard| {
            format!("is let go from its {kind:?} number {own} with {members:?}, and has not heard of {unheard}")
        })
    }

    /// Returns the time at which the last member on a node called, if it is known for certain.
    fn came_last(
        &self,
        proc: ProcId,
        kind: Together,
        members: &[Proc],
        node: NodeId,
    ) -> Option<Time> {
        let id = meeting(kind, members);
        if self.pmix.failed.contains(&id) {
            return None;
        }
        let entered = self.pmix.entered.get(&id)?;
        let number = entered.get(&proc)?.len().checked_sub(1)?;
        let members = self.facts.members(members).into_iter();
        let there = members.filter(|member| self.facts.node_of(*member) == Some(node));
        there
            .filter_map(|member| entered.get(&member)?.get(number).copied())
            .max()
    }

    /// Records that a fence brings the data of its members to every node.
    pub(super) fn brings(&mut self, proc: ProcId, kind: Together, members: &[Proc]) {
        let Some(own) = self
            .facts
            .node_of(proc)
            .filter(|_| kind == Together::Fence(Data::With))
        else {
            return;
        };
        let mut brought = Vec::new();
        for member in self.facts.members(members) {
            let id = meeting(kind, members);
            let number = self.pmix.entered.get(&id).and_then(|entered| {
                let number = entered.get(&proc)?.len().checked_sub(1)?;
                entered.get(&member)?.get(number).copied()
            });
            let Some(came) = number.filter(|_| !self.pmix.failed.contains(&id)) else {
                continue;
            };
            let first = (member, String::new());
            let committed = self.pmix.committed.range(first..);
            let committed = committed.take_while(|((of, _), _)| *of == member);
            let there = committed.filter(|(_, since)| since.is_some_and(|since| since <= came));
            brought.extend(there.map(|((of, key), _)| (own, *of, key.clone())));
        }
        self.pmix.brought.extend(brought);
    }

    /// Returns the time since which a collective cannot complete because of lost processes.
    pub(super) fn broken_since(
        &self,
        kind: Together,
        members: &[Proc],
        me: ProcId,
    ) -> Option<Time> {
        let id = meeting(kind, members);
        let entered = self.pmix.entered.get(&id)?;
        let own = entered.get(&me).map_or(0, Vec::len);
        let gone = |member: &ProcId| {
            let entered = entered.get(member).map_or(0, Vec::len);
            if kind != Together::Connect && entered >= own && *member != me {
                return None;
            }
            let died = self.died.get(member).copied();
            // The node may be lost before it had its processes.
            let node = self.facts.node_of(*member);
            let lost = node.and_then(|node| self.lost_nodes.get(&node)).copied();
            let left = self.left(*member).map(|at| at + LOST_DELAY);
            died.into_iter().chain(lost).chain(left).min()
        };
        let members = self.facts.members(members);
        members.iter().filter_map(gone).min()
    }

    /// Returns true if a member that has called may count as one that has not. This holds if it was gone immediately after its
    /// call, or before any other member called: servers forget collectives without waiting callers.
    pub(super) fn was_deserted(
        &self,
        now: Time,
        kind: Together,
        members: &[Proc],
        me: ProcId,
    ) -> bool {
        let id = meeting(kind, members);
        let Some(entered) = self.pmix.entered.get(&id) else {
            return false;
        };
        let own = entered.get(&me).map_or(0, Vec::len);
        let came = |member: &ProcId| entered.get(member)?.get(own.checked_sub(1)?).copied();
        let went = |member: &ProcId| {
            let died = self.died.get(member).copied();
            died.into_iter().chain(self.left(*member)).min()
        };
        let members = self.facts.members(members);
        let is_deserted = |member: &ProcId| {
            let (Some(end), Some(start)) = (went(member), came(member)) else {
                return false;
            };
            let waited = |other: &ProcId| {
                let before = came(other).is_some_and(|came| came + self.slack < end);
                other != member && before && went(other).is_none_or(|went| went > end)
            };
            let is_known = self.died.contains_key(member) || end + LOST_DELAY <= now;
            // Its end may be known before its last message is read.
            let unheard = start + self.slack >= end;
            is_known && (unheard || !members.iter().any(waited))
        };
        members.iter().any(is_deserted)
    }

    /// Returns the time at which a process has closed its connection.
    fn left(&self, proc: ProcId) -> Option<Time> {
        match self.pmix.clients.get(&proc)?.standing {
            Standing::Left(at) => Some(at),
            Standing::Inside | Standing::Finalized => None,
        }
    }
}
