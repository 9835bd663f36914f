//! What a request asks of the nodes, as the queue counts it.

use std::{collections::BTreeSet, time::Duration};

use base::{HostList, JobId, NodeId};

use super::{NotChanged, Room};
use crate::{
    machine::{
        Machine, NotDone,
        planted::{self, Bug},
    },
    queue::{Amounts, Demand, More, Refusal, Sharing, Spread, Units},
};

impl Machine {
    pub(super) fn demand_of(&self, room: &Room) -> Result<Demand, NotDone> {
        let only = room.hosts.as_ref().map(|hosts| self.named(hosts));
        let only = only.transpose()?;
        let named = only
            .as_ref()
            .and_then(|only| u32::try_from(only.len()).ok());
        let (units, unit, spread, sharing) = match (room.nodes.or(named), room.slots) {
            (None, None) => return Err(NotDone::NotAccepted(Refusal::NoSlots)),
            (None, Some(slots)) => (slots, 1, Spread::Pack, Sharing::Shared),
            (Some(nodes), None) => (nodes, 1, Spread::Scatter, Sharing::Exclusive),
            (Some(nodes), Some(slots)) => {
                let each = slots.div_ceil(nodes.max(1));
                (nodes, each, Spread::Scatter, Sharing::Shared)
            }
        };
        Ok(Demand {
            units,
            unit: Amounts::slots(unit),
            per_node: Amounts::slots(0),
            spread,
            sharing,
            shared: Amounts::slots(0),
            only,
        })
    }

    fn queue_nodes(&self, hosts: &HostList) -> Result<BTreeSet<NodeId>, NotChanged> {
        self.named(hosts).map_err(|why| match why {
            NotDone::NoSuchNode(name) => NotChanged::NoSuchNode(name),
            _ => NotChanged::NotHeld,
        })
    }

    /// Returns what the queue has to add to an allocation.
    pub(super) fn more(
        &self,
        id: JobId,
        room: &Room,
        time: Option<Duration>,
    ) -> Result<More, NotChanged> {
        let (_, spread, unit) = self.held(id)?;
        let only = room.hosts.as_ref().map(|hosts| self.queue_nodes(hosts));
        let only = only.transpose()?;
        let named = only
            .as_ref()
            .and_then(|only| u32::try_from(only.len()).ok());
        let units = match (spread, room.nodes.or(named), room.slots) {
            (_, None, None) => 0,
            (Spread::Pack, _, Some(slots)) if room.nodes.is_none() => slots,
            (Spread::Scatter, Some(nodes), None) => nodes,
            (Spread::Scatter, Some(nodes), Some(slots))
                if slots == nodes.saturating_mul(unit) && self.is_shared(id) =>
            {
                nodes
            }
            _ => return Err(NotChanged::Mismatch),
        };
        if units == 0 && time.is_none() {
            return Err(NotChanged::Mismatch);
        }
        Ok(More { time, units, only })
    }

    fn is_shared(&self, id: JobId) -> bool {
        let entry = self.jobs.get(&id);
        entry.is_some_and(|entry| entry.sharing == Sharing::Shared)
    }

    /// Returns the units that an allocation is to give back.
    pub(super) fn part(
        &self,
        id: JobId,
        room: &Room,
        busy: &BTreeSet<NodeId>,
    ) -> Result<Units, NotChanged> {
        let (all, spread, _) = self.held(id)?;
        let runs = |node: &NodeId| {
            let daemon = self.nodes.get(node).and_then(|node| node.daemon);
            busy.contains(&daemon.unwrap_or(*node)) && !planted::is(Bug::BusyGivenBack)
        };
        let mut idle = all.iter().rev().filter(|(node, _)| !runs(node));
        match (room.nodes, room.slots, &room.hosts) {
            (None, None, Some(hosts)) => {
                let named = self.queue_nodes(hosts)?;
                let units: Units = all
                    .iter()
                    .filter(|(node, _)| named.contains(node))
                    .copied()
                    .collect();
                if units.len() < named.len() || named.is_empty() {
                    return Err(NotChanged::NotHeld);
                }
                let is_busy = units.iter().any(|(node, _)| runs(node));
                (!is_busy).then_some(units).ok_or(NotChanged::Busy)
            }
            (Some(nodes), None, None) if nodes as usize > all.len() => Err(NotChanged::Mismatch),
            (Some(nodes), None, None) => {
                let mut units: Units = idle.by_ref().take(nodes as usize).copied().collect();
                units.sort_unstable();
                let is_enough = units.len() == nodes as usize;
                is_enough.then_some(units).ok_or(NotChanged::Busy)
            }
            (None, Some(slots), None) if spread == Spread::Pack => {
                let has = all.iter().map(|(_, count)| *count);
                if slots > has.fold(0, u32::saturating_add) {
                    return Err(NotChanged::Mismatch);
                }
                let mut missing = slots;
                let mut units = Units::new();
                for (node, count) in idle {
                    let taken = missing.min(*count);
                    missing -= taken;
                    units.extend((taken > 0).then_some((*node, taken)));
                }
                units.sort_unstable();
                (missing == 0).then_some(units).ok_or(NotChanged::Busy)
            }
            _ => Err(NotChanged::Mismatch),
        }
    }
}
