//! Checks of collectives: none completes before all members have called, none fails without a reason, and one that cannot
//! complete fails in time.

use base::{NodeId, ProcId, Time};
use pmix::{server::LOST_DELAY, value::Proc};

use super::{
    super::{Ledger, called},
    SLACK, Standing, meeting,
};
use crate::{kernel::Together, script::Data};

impl Ledger {
    /// Checks a collective that has completed for `proc`. All members must have called, and the events before their calls must
    /// have arrived. Returns a description of the first error.
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
        // A node sends an event before it reports a later call of its members, so the event arrives first.
        let unheard = self.unheard(proc, |node| self.came_last(proc, kind, members, node?));
        unheard.map(|unheard| {
            format!("is let go from its {kind:?} number {own} with {members:?}, and has not heard of {unheard}")
        })
    }

    /// Returns the time of the last call by a member on `node` in the collective that `proc` called last. `None` if no member is
    /// on the node, or if the calls cannot be matched because the collective has failed before.
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

    /// Checks that no member of a connect that has completed for `proc` was gone before the last one called. Returns a
    /// description of the error.
    pub(super) fn on_connected(&self, proc: ProcId, members: &[Proc]) -> Option<String> {
        let id = meeting(Together::Connect, members);
        let entered = self.pmix.entered.get(&id)?;
        let number = entered.get(&proc)?.len().checked_sub(1)?;
        let came = |member: &ProcId| entered.get(member)?.get(number).copied();
        let members = self.facts.members(members);
        let last = members.iter().filter_map(came).max()?;
        let gone = members.into_iter().find(|member| {
            let since = self.gone_since(*member);
            since.is_some_and(|since| since + self.slack + SLACK < last)
        })?;
        let gone = called(gone);
        Some(format!(
            "is connected with {gone}, who was gone before all had called"
        ))
    }

    /// Checks that a connect succeeds for all members or for none. Returns a description of the error.
    pub(super) fn differs(
        &mut self,
        proc: ProcId,
        kind: Together,
        members: &[Proc],
        is_ok: bool,
    ) -> Option<String> {
        let id = meeting(kind, members);
        // Calls after a failed one need not belong together.
        let entered = self.pmix.entered.get(&id)?;
        if kind != Together::Connect || entered.values().any(|calls| calls.len() > 1) {
            return None;
        }
        let first = self.pmix.connected.entry(id).or_insert((proc, is_ok));
        let (other, was_ok) = *first;
        let said = |is_ok| if is_ok { "succeeds" } else { "fails" };
        (was_ok != is_ok).then(|| {
            let (now, before) = (said(is_ok), said(was_ok));
            let other = called(other);
            format!(
                "is told that its {kind:?} with {members:?} {now}, and {other} that it {before}"
            )
        })
    }

    /// Records the keys that a completed fence has brought to the node of `proc`: those that members committed before they
    /// called. Other collectives, and fences without data, bring none.
    pub(super) fn brings(&mut self, now: Time, proc: ProcId, kind: Together, members: &[Proc]) {
        let Some(own) = self
            .facts
            .node_of(proc)
            .filter(|_| kind == Together::Fence(Data::With))
        else {
            return;
        };
        let mut brought = Vec::new();
        let id = meeting(kind, members);
        let Some(entered) = self.pmix.entered.get(&id) else {
            return;
        };
        let number = entered.get(&proc).and_then(|own| own.len().checked_sub(1));
        let Some(number) = number.filter(|_| !self.pmix.failed.contains(&id)) else {
            return;
        };
        for member in self.facts.members(members) {
            let came = entered.get(&member).and_then(|all| all.get(number));
            let Some(came) = came.copied() else {
                continue;
            };
            let first = (member, String::new());
            let committed = self.pmix.committed.range(first..);
            let committed = committed.take_while(|((of, _), _)| *of == member);
            let there = committed.filter(|(_, since)| since.is_some_and(|since| since <= came));
            brought.extend(there.map(|((of, key), _)| (own, *of, key.clone())));
        }
        for key in brought {
            self.pmix.brought.entry(key).or_insert(now);
        }
    }

    /// Returns the time since which a collective cannot complete: a member that has not called is dead, on a lost node, or
    /// disconnected for `LOST_DELAY`. For a connect and a construct, the loss of a member that has called counts too.
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
            let needs_living = matches!(kind, Together::Connect | Together::Construct);
            if !needs_living && entered >= own && *member != me {
                return None;
            }
            self.gone_since(*member)
        };
        let members = self.facts.members(members);
        members.iter().filter_map(gone).min()
    }

    /// Returns the time since which a process can certainly call no collective: it is dead, on a lost node, or disconnected for
    /// `LOST_DELAY`.
    pub(super) fn gone_since(&self, proc: ProcId) -> Option<Time> {
        let died = self.died.get(&proc).copied();
        // A node may be lost before it receives the launch, or live when it is lost. Its ranks are then not in `died`.
        let lost = self.lost(proc);
        let left = self.left(proc).map(|at| at + LOST_DELAY);
        died.into_iter().chain(lost).chain(left).min()
    }

    /// Returns true if a member that called and then died or disconnected may count as one that never called. It may if it was
    /// gone within `slack` of its call, or if no other member on its node was waiting then: servers forget collectives without
    /// waiting callers.
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
            let lost = self.lost(*member);
            died.into_iter().chain(lost).chain(self.left(*member)).min()
        };
        let members = self.facts.members(members);
        let is_deserted = |member: &ProcId| {
            let (Some(end), Some(start)) = (went(member), came(member)) else {
                return false;
            };
            let waited = |other: &ProcId| {
                let before = came(other).is_some_and(|came| came + self.slack < end);
                // A server forgets a collective in which none of its own processes waits any more.
                let is_near = self.facts.node_of(*other) == self.facts.node_of(*member);
                is_near && other != member && before && went(other).is_none_or(|went| went > end)
            };
            let is_known = self.died.contains_key(member)
                || self.lost(*member).is_some()
                || end + LOST_DELAY <= now;
            // The server may learn of the member's end before it reads the call.
            let unheard = start + self.slack >= end;
            is_known && (unheard || !members.iter().any(waited))
        };
        members.iter().any(is_deserted)
    }

    /// Returns the time at which the node of a process was lost.
    fn lost(&self, proc: ProcId) -> Option<Time> {
        let node = self.facts.node_of(proc)?;
        self.lost_nodes.get(&node).copied()
    }

    /// Returns the time at which a process disconnected without finalize or sent garbage; `None` if it did neither.
    fn left(&self, proc: ProcId) -> Option<Time> {
        match self.pmix.clients.get(&proc)?.standing {
            Standing::Left(at) => Some(at),
            Standing::Inside | Standing::Finalized => None,
        }
    }
}
