//! Allocations, which the procs of runs and tools request: who has them, what happens to them, and what the machine may answer.
//!
//! | an allocation | the machine grants it | it refuses | its owner ends | it has to end | its owner changes it |
//! |---|---|---|---|---|---|
//! | waits | held | over; the only answer | canceled, and refused | – | – |
//! | held | – | – | over, when what runs in it has ended | the same | larger, smaller, longer, or over |
//!
//! Each request has one answer: that it is granted, or that it is not. With the machine, all allocations are lost, as their owners are.

mod changes;

use std::collections::{BTreeMap, BTreeSet};

use base::{HostList, JobId, NodeId, Time};
use dvm::{
    machine::{AllocationEnd, AllocationWish, Down, Grant, NotChanged, NotDone, NotGranted, Room},
    queue::{Over, Refusal, Sharing, Spread},
};

use super::{
    Call, Event, World,
    model::{How, Needs, Standing, Task},
};
use crate::rng::Rng;

/// The number by which tools request. No run has it.
const TOOL: JobId = JobId(u32::MAX);

#[derive(Debug)]
pub(super) struct Allocations {
    /// Decides about allocations only: what else happens in a run does not depend on it until the first request.
    dice: Rng,
    is_used: bool,
    all: BTreeMap<JobId, Allocation>,
}

#[derive(Debug)]
struct Allocation {
    /// The run that has requested it; `None` for a tool.
    owner: Option<JobId>,
    state: State,
}

#[derive(Debug)]
enum State {
    Waits {
        /// When its owner waits no longer.
        answer_by: Option<Time>,
    },
    Held {
        ends_at: Option<Time>,
        /// Why it was to end first.
        end: Option<AllocationEnd>,
    },
}

impl Allocations {
    pub(super) fn new(rng: &Rng) -> Self {
        let mut dice = Rng::new(rng.clone().next());
        Self {
            is_used: dice.chance(33),
            dice,
            all: BTreeMap::new(),
        }
    }

    pub(super) fn clear(&mut self) {
        self.all.clear();
    }

    /// Returns the allocations of a run.
    fn of(&self, run: JobId) -> Vec<JobId> {
        let all = self.all.iter();
        all.filter(|(_, one)| one.owner == Some(run))
            .map(|(id, _)| *id)
            .collect()
    }

    /// Returns why a held allocation cannot be changed.
    fn is_held(&self, id: JobId) -> Result<(), NotChanged> {
        match self.all.get(&id).map(|one| &one.state) {
            Some(State::Held { end: None, .. }) => Ok(()),
            _ => Err(NotChanged::NotHeld),
        }
    }

    /// Returns what somebody may want.
    fn room(&mut self) -> Room {
        let dice = &mut self.dice;
        let (nodes, slots, named) = match dice.below(8) {
            0..4 => (None, Some(dice.number(1, 4)), 0),
            4 => (Some(dice.number(1, 2)), None, 0),
            5 => (Some(2), Some(dice.number(2, 4)), 0),
            6 => (None, None, dice.number(1, 2)),
            _ => (None, Some(dice.number(1, 3)), dice.number(1, 2)),
        };
        let names = (0..named).map(|_| format!("n{}", dice.number(0, 3)));
        let names: BTreeSet<String> = names.collect();
        let hosts: HostList = names.iter().map(String::as_str).collect();
        Room {
            nodes,
            slots,
            hosts: (named > 0).then_some(hosts),
        }
    }
}

/// Returns the number of a named node.
fn number(name: &str) -> Option<NodeId> {
    name.trim_start_matches('n').parse().map(NodeId).ok()
}

impl World {
    /// Plans requests of tools.
    pub(super) fn plan_tools(&mut self, span: u64) {
        let dice = &mut self.allocations.dice;
        if !self.allocations.is_used {
            return;
        }
        for _ in 0..dice.length(0, 4) {
            let when = Time::ZERO + dice.micros(0, span * 1_000_000);
            self.agenda.at(when, (None, Event::Request(None)));
        }
    }

    /// Plans what the procs of a run request.
    pub(super) fn plan_requests(&mut self, run: JobId) {
        if !self.allocations.is_used {
            return;
        }
        for _ in 0..self.allocations.dice.length(0, 3) {
            let wait = self.allocations.dice.millis(0, 3_000);
            self.later(wait, Event::Request(Some(run)));
        }
    }

    pub(super) fn request(&mut self, owner: Option<JobId>) {
        if owner.is_some_and(|run| !self.runs.has(run)) {
            return;
        }
        let now = self.agenda.now;
        let room = self.allocations.room();
        let dice = &mut self.allocations.dice;
        let time_limit = dice.chance(50).then(|| dice.millis(1, 10_000));
        let patience = dice.chance(50).then(|| dice.millis(0, 5_000));
        let wish = AllocationWish {
            by: owner.unwrap_or(TOOL),
            name: "a".to_owned(),
            room: room.clone(),
            time_limit,
            patience,
        };
        let Some(machine) = &mut self.machine else {
            return;
        };
        self.model.call += 1;
        let answer = machine.allocate(now, wish);
        self.note(|| format!("{owner:?} requests {room:?}: {answer:?}"));
        let expected = self.expected(&room, owner);
        match (answer, expected) {
            (Ok(id), Ok(needs)) => {
                let number = self.model.accept_allocation(needs, time_limit);
                self.fault((number != id).then(|| format!("allocation {number} is {id}")));
                let answer_by = patience.map(|patience| now + patience);
                let state = State::Waits { answer_by };
                let allocation = Allocation { owner, state };
                self.allocations.all.insert(id, allocation);
                if owner.is_none() {
                    let wait = self.allocations.dice.millis(0, 20_000);
                    self.later(wait, Event::AllocationOver(id));
                }
            }
            (Err(why), Err(expected)) if why == expected => {}
            (answer, expected) => {
                let wrong = format!("{owner:?} requests {room:?}: {answer:?}, not {expected:?}");
                self.fault(Some(wrong));
            }
        }
        self.pump(Call::Other);
    }

    /// Returns what a request needs, or why it is refused.
    fn expected(&self, room: &Room, owner: Option<JobId>) -> Result<Needs, NotDone> {
        if self.model.down.is_some() {
            return Err(NotDone::GoingDown);
        }
        let only = self.only(room).map_err(NotDone::NoSuchNode)?;
        let named = only
            .as_ref()
            .map(|only| u32::try_from(only.len()).unwrap_or(0));
        let (units, unit, spread, sharing) = match (room.nodes.or(named), room.slots) {
            (None, slots) => (slots.unwrap_or(0), 1, Spread::Pack, Sharing::Shared),
            (Some(nodes), None) => (nodes, 1, Spread::Scatter, Sharing::Exclusive),
            (Some(nodes), Some(slots)) => {
                let each = slots.div_ceil(nodes);
                (nodes, each, Spread::Scatter, Sharing::Shared)
            }
        };
        let needs = Needs {
            gpus: 0,
            units,
            unit,
            spread,
            sharing,
            only,
        };
        // What it has itself is not free before its end.
        let own = owner.and_then(|run| self.runs.grant(run));
        let taken = |id: NodeId| own.and_then(|own| own.slots.get(&id)).copied().unwrap_or(0);
        let room = self.units_beside(&needs, &mut |id| (taken(id), 0));
        if room < units {
            let room = u64::from(room);
            return Err(NotDone::NotAccepted(Refusal::NeverFits { units, room }));
        }
        Ok(needs)
    }

    /// Returns the nodes that a room names.
    fn only(&self, room: &Room) -> Result<Option<BTreeSet<NodeId>>, String> {
        let is_listed = |id: &NodeId| {
            let node = self.nodes.get(id);
            node.is_some_and(|node| node.standing != Standing::Gone)
        };
        let Some(hosts) = &room.hosts else {
            return Ok(None);
        };
        let named = hosts.iter().map(|name| {
            let id = number(name).filter(is_listed);
            id.ok_or_else(|| name.to_owned())
        });
        named.collect::<Result<_, _>>().map(Some)
    }

    /// Returns how many units the nodes have room for. `used` returns the slots of a node that others have, and how many of those have the whole
    /// node.
    fn units_beside(&self, needs: &Needs, used: &mut dyn FnMut(NodeId) -> (u32, u32)) -> u32 {
        let nodes = self.nodes.iter().filter(|(id, _)| needs.admits(**id));
        let units = nodes.map(|(id, node)| {
            let (slots, whole) = used(*id);
            let left = node.slots.saturating_sub(slots);
            if whole > 0 || needs.sharing == Sharing::Exclusive && slots > 0 {
                return 0;
            }
            let units = (left / needs.unit).min(needs.units);
            match needs.spread {
                Spread::Pack => units,
                Spread::Scatter => units.min(1),
            }
        });
        units.sum()
    }

    pub(super) fn on_granted(&mut self, id: JobId, grant: Grant) {
        let grant = self.by_name(grant);
        let granted = self.runs.granted();
        let wrong = self.model.check_granted(id, &grant, &self.nodes, &granted);
        self.fault(wrong);
        let limit = self.model.jobs.get(&id).and_then(|job| job.time_limit);
        let now = self.agenda.now;
        match self.allocations.all.get_mut(&id).map(|one| &mut one.state) {
            Some(state @ State::Waits { .. }) => {
                *state = State::Held {
                    ends_at: limit.map(|limit| now + limit),
                    end: None,
                };
            }
            _ => {
                return self.fault(Some(format!("{id} is granted, and nobody waits for it")));
            }
        }
        self.model.launch(id, 0);
        self.runs.held.insert(id, grant);
        let wait = self.allocations.dice.millis(0, 2_000);
        self.later(wait, Event::Change(id));
    }

    pub(super) fn on_not_granted(&mut self, id: JobId, why: NotGranted) {
        let waits = |_: &JobId, one: &mut Allocation| matches!(one.state, State::Waits { .. });
        let removed = self.allocations.all.extract_if(id..=id, waits).next();
        let Some((_, allocation)) = removed else {
            let wrong = format!("{id} is refused ({why:?}), and nobody waits for it");
            return self.fault(Some(wrong));
        };
        let is_right = match why {
            NotGranted::TimedOut => {
                let is_live = self.model.jobs.contains_key(&id);
                self.model.cancel(id);
                let State::Waits { answer_by } = allocation.state else {
                    return;
                };
                is_live && answer_by.is_some_and(|at| at <= self.agenda.now)
            }
            NotGranted::Canceled => {
                let over = self.model.past.get(&id);
                over.is_some_and(|job| job.over.contains(&Over::Canceled))
            }
        };
        self.fault((!is_right).then(|| format!("{id} is refused without need: {why:?}")));
    }

    pub(super) fn on_end_allocation(&mut self, id: JobId, why: AllocationEnd) {
        let now = self.agenda.now;
        let has_to_end = self.has_to_end(id);
        let held = self.allocations.all.get_mut(&id).map(|one| &mut one.state);
        let Some(State::Held { ends_at, end }) = held else {
            return self.fault(Some(format!("{id} is to end, and nobody has it")));
        };
        end.get_or_insert(why);
        let is_right = match why {
            AllocationEnd::TimeLimit => ends_at.is_some_and(|at| at <= now),
            AllocationEnd::Canceled => has_to_end,
        };
        self.fault((!is_right).then(|| format!("{id} is to end without need: {why:?}")));
        let wait = self.allocations.dice.millis(0, 1_500);
        self.later(wait, Event::AllocationOver(id));
    }

    /// Returns true if a held allocation was canceled, or the machine is to end at once.
    fn has_to_end(&self, id: JobId) -> bool {
        let job = self.model.jobs.get(&id);
        self.model.down == Some(Down::Now) || job.is_some_and(|job| job.has_to_end(0))
    }

    /// Handles that the ranks of a run may have ended before it: they leave their allocations then.
    pub(super) fn ranks_ended(&mut self, run: JobId) {
        let has_some = self.runs.has(run) && !self.allocations.of(run).is_empty();
        if has_some && self.allocations.dice.chance(50) {
            self.owner_ended(run);
        }
    }

    /// Lets the allocations of a run end with it. Jobs that run in one end later.
    pub(super) fn owner_ended(&mut self, run: JobId) {
        for id in self.allocations.of(run) {
            let is_used = self.runs.held.contains_key(&id) && self.allocations.dice.chance(30);
            if is_used {
                let wait = self.allocations.dice.millis(0, 2_000);
                self.later(wait, Event::AllocationOver(id));
            } else {
                self.allocation_over(id);
            }
        }
    }

    pub(super) fn allocation_over(&mut self, id: JobId) {
        let Some(allocation) = self.allocations.all.get(&id) else {
            return;
        };
        self.model.call += 1;
        match allocation.state {
            // It is told that it is refused.
            State::Waits { .. } => self.model.cancel(id),
            State::Held { end, .. } => {
                let how = match end {
                    None => How::Succeeded,
                    Some(AllocationEnd::Canceled) => How::Canceled,
                    Some(AllocationEnd::TimeLimit) => How::Failed,
                };
                self.model.end(id, 0, how);
                self.runs.held.remove(&id);
                self.allocations.all.remove(&id);
            }
        }
        self.note(|| format!("nobody needs allocation {id}"));
        let now = self.agenda.now;
        self.call(Call::Other, |machine| machine.allocation_over(now, id));
    }

    /// Checks that nothing is forgotten. Returns a description of an error.
    pub(super) fn check_allocations(&self) -> Option<String> {
        let now = self.agenda.now;
        let jobs = self
            .model
            .jobs
            .iter()
            .filter(|(_, job)| job.is_allocation());
        let lost = jobs
            .map(|(id, _)| id)
            .find(|id| !self.allocations.all.contains_key(id));
        if let Some(lost) = lost {
            return Some(format!("allocation {lost} is in the queue, and nobody's"));
        }
        self.allocations.all.iter().find_map(|(id, one)| {
            let job = self.model.jobs.get(id);
            let is_in = |task| job.is_some_and(|job| job.count(task) > 0);
            match one.state {
                State::Waits { .. } if !is_in(Task::Waiting) => {
                    Some(format!("the request for {id} has no answer"))
                }
                State::Waits { answer_by } => {
                    let is_late = answer_by.is_some_and(|at| at < now);
                    is_late.then(|| format!("the request for {id} is not refused in time"))
                }
                State::Held { end: Some(_), .. } => None,
                State::Held { ends_at, end: None } => {
                    let is_late = ends_at.is_some_and(|at| at < now);
                    let has_to_end = is_late || self.has_to_end(*id);
                    has_to_end.then(|| format!("allocation {id} is not ended"))
                }
            }
        })
    }
}
