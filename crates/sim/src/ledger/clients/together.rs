//! What processes do together: nobody is let go before all have come, and who waits in vain is told.

use base::{ProcId, Time};
use pmix::{server::LOST_DELAY, value::Proc};

use super::{
    super::{Ledger, called},
    Standing, sorted,
};
use crate::kernel::Together;

impl Ledger {
    /// Something done together is done: all must have begun it.
    pub(super) fn on_together(
        &self,
        proc: ProcId,
        kind: Together,
        members: &[Proc],
    ) -> Option<String> {
        let id = (kind, sorted(members));
        let entered = self.pmix.entered.get(&id)?;
        let own = entered.get(&proc).map_or(0, Vec::len);
        let missing = self
            .facts
            .members(members)
            .into_iter()
            .find(|member| entered.get(member).map_or(0, Vec::len) < own);
        missing.map(|missing| {
            format!(
                "is let go from its {kind:?} number {own} with {members:?} before {} has come",
                called(missing)
            )
        })
    }

    /// Since when something can never be complete, as far as processes are lost for it.
    pub(super) fn broken_since(
        &self,
        kind: Together,
        members: &[Proc],
        me: ProcId,
    ) -> Option<Time> {
        let id = (kind, sorted(members));
        let entered = self.pmix.entered.get(&id)?;
        let own = entered.get(&me).map_or(0, Vec::len);
        let gone = |member: &ProcId| {
            let entered = entered.get(member).map_or(0, Vec::len);
            if kind != Together::Connect && entered >= own && *member != me {
                return None;
            }
            let died = self.died.get(member).copied();
            let left = self.left(*member).map(|at| at + LOST_DELAY);
            died.into_iter().chain(left).min()
        };
        let members = self.facts.members(members);
        members.iter().filter_map(gone).min()
    }

    /// Whether somebody who has come may count as one who has not: it was gone again at once, or before anybody else came,
    /// and what nobody waits for is forgotten.
    pub(super) fn was_deserted(
        &self,
        now: Time,
        kind: Together,
        members: &[Proc],
        me: ProcId,
    ) -> bool {
        let id = (kind, sorted(members));
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
            // Its end may be known before its last words are read.
            let unheard = start + self.slack >= end;
            is_known && (unheard || !members.iter().any(waited))
        };
        members.iter().any(is_deserted)
    }

    /// When a process has broken contact.
    fn left(&self, proc: ProcId) -> Option<Time> {
        match self.pmix.clients.get(&proc)?.standing {
            Standing::Left(at) => Some(at),
            Standing::Inside | Standing::Finalized => None,
        }
    }
}
