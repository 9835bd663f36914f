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
    pub(super) fn broken_since(
        &self,
        kind: Together,
        members: &[Proc],
        me: ProcId,
    ) -> Option<Time> {
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
}
