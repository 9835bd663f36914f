//! Changes of allocations: more, less, or longer. What the machine has to answer follows from what the allocation has.

use std::{collections::BTreeSet, time::Duration};

use base::{HostList, JobId, NodeId};
use dvm::{
    machine::{Ask, Grant, Machine, NotChanged, Rest, Room},
    queue::{NotExtended, Sharing, Spread},
};

use super::{
    super::{
        Call, Event, World,
        check::closed_among,
        model::{Needs, Standing, Task},
        shape,
    },
    Allocations, State,
};

/// What an allocation keeps that gives some back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    Units(u32),
    /// So many nodes. Which ones is the choice of the machine.
    Nodes(usize),
}

impl Allocations {
    /// Returns a part of what the holder of an allocation with these needs may want or give back. Mostly it makes sense.
    fn part(&mut self, needs: &Needs) -> Room {
        if self.dice.chance(25) {
            return self.room();
        }
        let mut part = Room::default();
        match (needs.spread, needs.sharing) {
            (Spread::Pack, _) => part.slots = Some(self.dice.number(1, 2)),
            (Spread::Scatter, Sharing::Exclusive) => part.nodes = Some(1),
            (Spread::Scatter, Sharing::Shared) => {
                part.nodes = Some(1);
                part.slots = self.dice.chance(50).then_some(needs.unit);
            }
        }
        part
    }
}

impl World {
    /// Does something with an allocation that is held.
    pub(in crate::machine) fn change(&mut self, id: JobId) {
        if self.allocations.is_held(id).is_err() {
            return;
        }
        match self.allocations.dice.below(12) {
            0..4 => self.extend(id),
            4..7 => self.shrink(id),
            7 => self.allocation_over(id),
            8 => {
                let front = self.new_front();
                self.ask(front, Ask::Cancel(id, None), None);
            }
            9 => {
                let other = shape::some_job(&mut self.allocations.dice, &self.model);
                self.extend(other);
            }
            _ => {}
        }
        if self.allocations.is_held(id).is_ok() && self.allocations.dice.chance(70) {
            let wait = self.allocations.dice.millis(0, 4_000);
            self.later(wait, Event::Change(id));
        }
    }

    /// Calls the machine about an allocation, without carrying out what it wants.
    fn about<T>(&mut self, act: impl FnOnce(&mut Machine) -> T) -> Option<T> {
        self.model.call += 1;
        self.machine.as_mut().map(act)
    }

    fn extend(&mut self, id: JobId) {
        let now = self.agenda.now;
        let needs = self.model.jobs.get(&id).map(|job| &job.needs);
        let room = match needs {
            Some(needs) if self.allocations.dice.chance(70) => self.allocations.part(needs),
            _ => Room::default(),
        };
        let dice = &mut self.allocations.dice;
        let time = dice.chance(40).then(|| dice.millis(1, 5_000));
        let answer = self.about(|machine| machine.extend_allocation(now, id, &room, time));
        let Some(answer) = answer else {
            return;
        };
        self.note(|| format!("allocation {id} is extended by {room:?}, {time:?}: {answer:?}"));
        let wrong = match (answer, self.more(id, &room, time)) {
            (Ok(grant), Ok(needs)) => self.extended(id, grant, &needs, time),
            (Err(NotChanged::NotExtended(why)), Ok(needs)) => self.excuse(why, &needs),
            (Err(why), Err(expected)) if why == expected => None,
            (answer, expected) => Some(format!("{answer:?}, and not {expected:?}")),
        };
        self.fault(wrong.map(|wrong| format!("the extension of {id} by {room:?}: {wrong}")));
        self.pump(Call::Other);
    }

    /// Returns what is to be added to an allocation, or why that makes no sense.
    fn more(&self, id: JobId, room: &Room, time: Option<Duration>) -> Result<Needs, NotChanged> {
        self.allocations.is_held(id)?;
        let job = self.model.jobs.get(&id).ok_or(NotChanged::NotHeld)?;
        let only = self.only(room).map_err(NotChanged::NoSuchNode)?;
        let needs = &job.needs;
        let named = only
            .as_ref()
            .map(|only| u32::try_from(only.len()).unwrap_or(0));
        let nodes = room.nodes.or(named);
        let units = match (needs.spread, nodes, room.slots) {
            (_, None, None) if time.is_some() => 0,
            (Spread::Pack, _, Some(slots)) if room.nodes.is_none() => slots,
            (Spread::Scatter, Some(nodes), None) => nodes,
            (Spread::Scatter, Some(nodes), Some(slots))
                if slots == nodes * needs.unit && needs.sharing == Sharing::Shared =>
            {
                nodes
            }
            _ => return Err(NotChanged::Mismatch),
        };
        // Of a node it has one unit, if it has them on different nodes.
        let has = self.runs.held.get(&id);
        let is_new = |id: &NodeId| has.is_none_or(|has| !has.slots.contains_key(id));
        let only = match needs.spread {
            Spread::Pack => only,
            Spread::Scatter => {
                let all = only.unwrap_or_else(|| self.nodes.keys().copied().collect());
                Some(all.into_iter().filter(is_new).collect())
            }
        };
        Ok(Needs {
            units,
            only,
            ..needs.clone()
        })
    }

    /// Notes what an allocation has now, and returns what is wrong with it.
    fn extended(
        &mut self,
        id: JobId,
        grant: Grant,
        more: &Needs,
        time: Option<Duration>,
    ) -> Option<String> {
        let grant = self.by_name(grant);
        let granted = self.runs.granted();
        let before = self.runs.held.insert(id, grant.clone())?;
        if let Some(job) = self.model.jobs.get_mut(&id) {
            job.needs.units += more.units;
            if let (Some(limit), Some(time)) = (&mut job.time_limit, time) {
                *limit += time;
            }
        }
        if let Some(State::Held { ends_at, .. }) =
            self.allocations.all.get_mut(&id).map(|one| &mut one.state)
            && let (Some(ends_at), Some(time)) = (ends_at, time)
        {
            *ends_at = *ends_at + time;
        }
        let mut added = grant.clone();
        for (id, slots) in &before.slots {
            let now = added.slots.get_mut(id)?;
            let Some(left) = now.checked_sub(*slots) else {
                return Some(format!("{before:?} becomes {grant:?}"));
            };
            *now = left;
        }
        added.slots.retain(|_, slots| *slots > 0);
        if before.slots.keys().any(|id| !grant.slots.contains_key(id)) {
            return Some(format!("{before:?} becomes {grant:?}"));
        }
        if let Some(closed) = closed_among(&added, &self.nodes, self.model.call) {
            return Some(format!("node {closed} is closed"));
        }
        if added.slots.is_empty() && more.units == 0 {
            return None;
        }
        more.check(&added, &self.nodes, &granted)
    }

    /// Returns what is wrong with this reason not to add anything.
    fn excuse(&self, why: NotExtended, more: &Needs) -> Option<String> {
        let waits = |id: &JobId| {
            let job = self.model.jobs.get(id);
            job.is_some_and(|job| job.count(Task::Waiting) > 0)
        };
        let is_right = match why {
            NotExtended::Delays(head) => waits(&head),
            // Somebody may have a promise.
            NotExtended::NoRoom if self.model.jobs.keys().any(waits) => true,
            NotExtended::NoRoom => {
                let granted = self.runs.granted();
                let room = self.units_beside(more, &mut |id| {
                    let node = self.nodes.get(&id);
                    let is_open = node.is_some_and(|node| {
                        node.standing == Standing::Up && node.closed_since.is_none()
                    });
                    match granted.get(&id) {
                        _ if !is_open => (u32::MAX, 1),
                        Some(used) => *used,
                        None => (0, 0),
                    }
                });
                room < more.units
            }
            NotExtended::NotRunning | NotExtended::Limit => false,
        };
        (!is_right).then(|| format!("{why:?} is no reason"))
    }

    fn shrink(&mut self, id: JobId) {
        let now = self.agenda.now;
        let Some(before) = self.runs.held.get(&id).cloned() else {
            return;
        };
        let Some(needs) = self.model.jobs.get(&id).map(|job| &job.needs) else {
            return;
        };
        let mut room = self.allocations.part(needs);
        let first = before.slots.keys().next();
        if let Some(first) = first
            && self.allocations.dice.chance(20)
        {
            let hosts = HostList::from_iter([format!("n{first}")]);
            room = Room {
                hosts: Some(hosts),
                ..Room::default()
            };
        }
        let dice = &mut self.allocations.dice;
        let busy: BTreeSet<NodeId> = match dice.below(2) {
            0 => BTreeSet::new(),
            _ => {
                let nodes = before.slots.keys().copied();
                nodes.filter(|_| dice.chance(40)).collect()
            }
        };
        let daemons = busy.iter().filter_map(|id| self.nodes.get(id));
        let daemons: BTreeSet<NodeId> = daemons.map(|node| node.daemon).collect();
        let answer = self.about(|machine| machine.shrink_allocation(now, id, &room, &daemons));
        let Some(answer) = answer else {
            return;
        };
        self.note(|| format!("allocation {id} gives back {room:?}, not {busy:?}: {answer:?}"));
        let expected = self.less(id, &room, &before, &busy);
        let is_all = answer == Ok(Rest::Nothing);
        let wrong = match (answer, expected) {
            (Ok(rest), Ok(kept)) => self.shrunk(id, rest, kept, (&before, &busy)),
            (Err(why), Err(expected)) if why == expected => None,
            (answer, expected) => Some(format!("{answer:?}, and not {expected:?}")),
        };
        self.fault(wrong.map(|wrong| format!("{id} gives back {room:?} of {before:?}: {wrong}")));
        self.pump(Call::Other);
        if is_all {
            self.allocation_over(id);
        }
    }

    /// Returns what an allocation keeps that gives some back, or why it keeps all.
    fn less(
        &self,
        id: JobId,
        room: &Room,
        has: &Grant,
        busy: &BTreeSet<NodeId>,
    ) -> Result<Kept, NotChanged> {
        self.allocations.is_held(id)?;
        let job = self.model.jobs.get(&id).ok_or(NotChanged::NotHeld)?;
        let units = job.needs.units;
        let idle = || has.slots.iter().filter(|(id, _)| !busy.contains(id));
        let (less, most, free) = match (room.nodes, room.slots, job.needs.spread) {
            (None, None, _) => {
                let named = self.only(room).map_err(NotChanged::NoSuchNode)?;
                let named = named.unwrap_or_default();
                if !named.iter().all(|id| has.slots.contains_key(id)) {
                    return Err(NotChanged::NotHeld);
                }
                if named.iter().any(|id| busy.contains(id)) {
                    return Err(NotChanged::Busy);
                }
                let less = named.iter().map(|id| match job.needs.spread {
                    Spread::Pack => has.slots.get(id).copied().unwrap_or(0),
                    Spread::Scatter => 1,
                });
                let less = less.sum();
                (less, units, less)
            }
            (Some(nodes), None, _) if room.hosts.is_none() => {
                let nodes = nodes as usize;
                let kept = has.slots.len().checked_sub(nodes);
                let kept = kept.ok_or(NotChanged::Mismatch)?;
                return if nodes > idle().count() {
                    Err(NotChanged::Busy)
                } else {
                    Ok(Kept::Nodes(kept))
                };
            }
            (None, Some(slots), Spread::Pack) if room.hosts.is_none() => {
                (slots, units, idle().map(|(_, slots)| *slots).sum())
            }
            _ => return Err(NotChanged::Mismatch),
        };
        if less > most {
            Err(NotChanged::Mismatch)
        } else if less > free {
            Err(NotChanged::Busy)
        } else {
            Ok(Kept::Units(units - less))
        }
    }

    /// Notes what an allocation has kept, and returns what is wrong with it.
    fn shrunk(
        &mut self,
        id: JobId,
        rest: Rest,
        kept: Kept,
        (before, busy): (&Grant, &BTreeSet<NodeId>),
    ) -> Option<String> {
        let Rest::Some(grant) = rest else {
            let is_right = busy.is_empty() && matches!(kept, Kept::Units(0) | Kept::Nodes(0));
            return (!is_right).then(|| "it keeps nothing".to_owned());
        };
        let grant = self.by_name(grant);
        let wrong = format!("it keeps {grant:?}");
        let is_part = grant.slots.iter().all(|(id, slots)| {
            let had = before.slots.get(id);
            had.is_some_and(|had| slots <= had)
        });
        let is_kept = |id: &NodeId| grant.slots.get(id) == before.slots.get(id);
        let are_kept = busy.iter().all(is_kept);
        let nodes = grant.slots.len();
        let needs = self.model.jobs.get_mut(&id).map(|job| &mut job.needs)?;
        let units = match needs.spread {
            Spread::Pack => grant.slots.values().sum(),
            Spread::Scatter => u32::try_from(nodes).unwrap_or(0),
        };
        needs.units = units;
        self.runs.held.insert(id, grant);
        let is_enough = match kept {
            Kept::Units(kept) => kept == units,
            Kept::Nodes(kept) => kept == nodes,
        };
        let is_right = is_part && are_kept && is_enough;
        (!is_right).then_some(wrong)
    }
}
