//! Allocations: jobs of the queue without procs, which a proc has requested (`PMIx_Allocation_request`).
//!
//! The controller knows who has requested an allocation, and which jobs run in it. It says when nobody needs it any more.
//!
//! | state | room | its time or the caller's patience is over | canceled, or the machine ends | extended | given back in part | no longer needed |
//! |---|---|---|---|---|---|---|
//! | waits | [`MachineOutput::Granted`] → held | [`MachineOutput::NotGranted`], over | [`MachineOutput::NotGranted`], over | – | – | over |
//! | held | – | [`MachineOutput::EndAllocation`] → ending | [`MachineOutput::EndAllocation`] → ending | held | held | over |
//! | ending | – | – | – | refused | refused | over |
//!
//! A machine that is killed has lost its allocations as it has lost the jobs with fronts: those who have requested them are gone.

mod room;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use base::{HostList, JobId, NodeId, Rank, RankSet, Time};

use super::{
    Entry, Grant, Machine, MachineOutput, Stage, Work,
    planted::{self, Bug},
    record::{Failure, OutputFiles, Record, Tasks, Way, Wishes},
    talk::NotDone,
};
use crate::{
    proto::{Cause, EndReason, Outcome},
    queue::{self, Hold, NotExtended, Refusal, Request, Requeue, Sharing, Spread, TaskId, Units},
};

/// A request for an allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllocationWish {
    /// The run that requests it, or that has spawned the job that does.
    pub by: JobId,
    /// Name for listings.
    pub name: String,
    pub room: Room,
    /// `None`: until nobody needs it.
    pub time_limit: Option<Duration>,
    /// Time for which the caller waits; `None` for any.
    pub patience: Option<Duration>,
}

/// An amount of nodes and slots. Nodes without a number of slots are whole nodes; slots without a number of nodes are on any nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Room {
    pub nodes: Option<u32>,
    /// Slots on all nodes together.
    pub slots: Option<u32>,
    pub hosts: Option<HostList>,
}

/// Why a request gets no allocation after it has waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotGranted {
    TimedOut,
    /// A user has canceled it, or the machine ends.
    Canceled,
}

/// Why a held allocation has to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocationEnd {
    TimeLimit,
    /// A user has canceled it, or the machine or a node of it is ended.
    Canceled,
}

/// Why an allocation is not changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotChanged {
    /// It is not held.
    NotHeld,
    /// The room cannot be meant: nodes for an allocation of slots, or slots for one of nodes.
    Mismatch,
    NoSuchNode(String),
    NotExtended(NotExtended),
    /// Jobs run there.
    Busy,
}

/// What remains of an allocation that was given back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rest {
    Nothing,
    Some(Grant),
}

/// What the machine knows of an allocation besides its record.
#[derive(Clone, Debug)]
pub(super) struct Held {
    spread: Spread,
    /// When it has to end; `None` if it has no limit or is not granted yet.
    ends_at: Option<Time>,
    /// When its caller gives up.
    answer_by: Option<Time>,
    is_timed_out: bool,
    /// Why the controller was told to end it.
    end: Option<AllocationEnd>,
}

const fn task_of(job: JobId) -> TaskId {
    TaskId { job, index: None }
}

impl Machine {
    /// Returns when an allocation has to end; `None` if it has no limit or is not granted.
    pub(crate) fn allocation_ends_at(&self, id: JobId) -> Option<Time> {
        match &self.jobs.get(&id)?.work {
            Work::Allocation(held) => held.ends_at,
            _ => None,
        }
    }

    /// Puts a request for an allocation into the queue.
    ///
    /// # Errors
    ///
    /// Returns why it can never be granted.
    pub fn allocate(&mut self, now: Time, wish: AllocationWish) -> Result<JobId, NotDone> {
        if self.down.is_some() {
            return Err(NotDone::GoingDown);
        }
        let demand = self.demand_of(&wish.room)?;
        let owner = self.runs.get(&wish.by).copied();
        if let Some(owner) = owner
            && !planted::is(Bug::OwnSlotsCounted)
        {
            // Its own slots are free only after its end. What its allocations have, another of its procs may release meanwhile.
            let (units, room) = (demand.units, self.queue.room_beside(&demand, owner));
            if room < u64::from(units) {
                let never = Refusal::NeverFits { units, room };
                return Err(NotDone::NotAccepted(never));
            }
        }
        let time_limit = wish.time_limit.or_else(|| self.queue.limits().task_time);
        let id = JobId(self.next);
        let slots = demand.units.saturating_mul(demand.unit.slots);
        let (sharing, unit, spread) = (demand.sharing, demand.unit.slots, demand.spread);
        let request = Request {
            user: 0,
            demand,
            priority: 0,
            time_limit,
            after: Vec::new(),
            array: None,
            hold: Hold::No,
            on_node_loss: Requeue::Never,
        };
        self.queue
            .submit(id, request)
            .map_err(NotDone::NotAccepted)?;
        self.next += 1;
        let command = owner.map_or_else(
            || "allocation".to_owned(),
            |owner| format!("allocation of job {owner}"),
        );
        let record = Record {
            id,
            way: Way::Allocation,
            name: wish.name,
            command,
            wishes: Wishes {
                sharing,
                ..Wishes::default()
            },
            slots,
            time_limit,
            submitted: self.wall(now),
            started: None,
            ended: None,
            tasks: Tasks {
                waiting: RankSet::single(Rank(0)),
                ..Tasks::default()
            },
            hosts: HostList::default(),
            output: None::<OutputFiles>,
            failure: None,
            requeued: RankSet::new(),
            paused: RankSet::new(),
            spent: base::Usage::default(),
            needs: None,
            requeues: BTreeMap::new(),
        };
        let answer_by = wish.patience.map(|patience| now + patience);
        self.alarms.extend(answer_by.map(|at| (at, id)));
        let held = Held {
            spread,
            ends_at: None,
            answer_by,
            is_timed_out: false,
            end: None,
        };
        let entry = Entry {
            record,
            work: Work::Allocation(held),
            front: None,
            sharing,
            unit,
            ending: RankSet::new(),
            runs: BTreeMap::new(),
        };
        self.jobs.insert(id, entry);
        self.books.touch(id);
        self.settle(now);
        Ok(id)
    }

    /// Notes that an allocation is not needed any more, and that nothing runs in it.
    pub fn allocation_over(&mut self, now: Time, id: JobId) {
        let Some(entry) = self.jobs.get(&id) else {
            return;
        };
        let Work::Allocation(held) = &entry.work else {
            return;
        };
        if entry.runs.is_empty() {
            self.queue.cancel(id);
        } else {
            let task = task_of(id);
            match held.end {
                None => self.ended(task, queue::Outcome::Succeeded, |tasks| {
                    &mut tasks.succeeded
                }),
                Some(AllocationEnd::Canceled) => {
                    self.ended(task, queue::Outcome::Failed, |tasks| &mut tasks.canceled);
                }
                Some(AllocationEnd::TimeLimit) if planted::is(Bug::OverdueKept) => {}
                Some(AllocationEnd::TimeLimit) => {
                    self.note_failure(task, Failure::Ended(out_of_time()));
                    self.ended(task, queue::Outcome::Failed, |tasks| &mut tasks.failed);
                }
            }
        }
        self.settle(now);
    }

    /// Gives a held allocation more time and room, if the first job that waits is not delayed.
    ///
    /// # Errors
    ///
    /// Returns why it gets nothing.
    pub fn extend_allocation(
        &mut self,
        now: Time,
        id: JobId,
        room: &Room,
        time: Option<Duration>,
    ) -> Result<Grant, NotChanged> {
        let more = self.more(id, room, time)?;
        self.queue
            .extend(now, task_of(id), &more)
            .map_err(NotChanged::NotExtended)?;
        if let Some(entry) = self.jobs.get_mut(&id)
            && let Work::Allocation(held) = &mut entry.work
            && let (Some(time), Some(ends_at)) = (time, &mut held.ends_at)
            && !planted::is(Bug::ExtensionForgotten)
        {
            self.alarms.remove(&(*ends_at, id));
            *ends_at = *ends_at + time;
            self.alarms.insert((*ends_at, id));
            let limit = &mut entry.record.time_limit;
            *limit = limit.map(|limit| limit.saturating_add(time));
        }
        let grant = self.resized(id);
        self.settle(now);
        grant.ok_or(NotChanged::NotHeld)
    }

    /// Takes nodes or slots back from a held allocation, where nothing runs.
    ///
    /// # Errors
    ///
    /// Returns why it keeps all that it has.
    pub fn shrink_allocation(
        &mut self,
        now: Time,
        id: JobId,
        room: &Room,
        busy: &BTreeSet<NodeId>,
    ) -> Result<Rest, NotChanged> {
        let units = self.part(id, room, busy)?;
        let all = self.queue.units(task_of(id));
        if all == Some(&units) {
            return Ok(Rest::Nothing);
        }
        if !self.queue.give_back(task_of(id), &units) {
            return Err(NotChanged::NotHeld);
        }
        let grant = self.resized(id);
        self.settle(now);
        grant.map(Rest::Some).ok_or(NotChanged::NotHeld)
    }

    /// Returns what of the nodes a part of the queue is.
    pub(super) fn granted(&self, units: &Units, sharing: Sharing, unit: u32) -> Grant {
        let slots = units.iter().map(|(id, units)| {
            let granted = match sharing {
                Sharing::Shared => units.saturating_mul(unit),
                Sharing::Exclusive => self.nodes.get(id).map_or(*units, |node| node.slots),
            };
            // A daemon that is lost meanwhile is found to be so when a job is placed.
            let daemon = self.nodes.get(id).and_then(|node| node.daemon);
            (daemon.unwrap_or(*id), granted)
        });
        Grant {
            slots: slots.collect(),
            sharing,
            gpus: BTreeMap::new(),
        }
    }

    /// Grants an allocation that the queue has started.
    pub(super) fn grant(&mut self, now: Time, id: JobId, units: &Units) {
        let Some(entry) = self.jobs.get_mut(&id) else {
            return;
        };
        let (sharing, unit, limit) = (entry.sharing, entry.unit, entry.record.time_limit);
        entry.runs.insert(None, Stage::Held);
        if let Work::Allocation(held) = &mut entry.work {
            if let Some(at) = held.answer_by.take() {
                self.alarms.remove(&(at, id));
            }
            held.ends_at = limit.map(|limit| now + limit);
            self.alarms.extend(held.ends_at.map(|at| (at, id)));
        }
        let grant = self.granted(units, sharing, unit);
        self.outputs.push_back(MachineOutput::Granted(id, grant));
    }

    /// Tells the controller to end a held allocation.
    pub(super) fn end_allocation(&mut self, id: JobId, why: AllocationEnd) {
        let entry = self.jobs.get_mut(&id);
        if let Some(Work::Allocation(held)) = entry.map(|entry| &mut entry.work) {
            held.end.get_or_insert(why);
            self.outputs
                .push_back(MachineOutput::EndAllocation(id, why));
        }
    }

    /// Handles that a job is over: tells the controller of a request that was not granted.
    pub(super) fn forget_request(&mut self, entry: &Entry) {
        let Work::Allocation(held) = &entry.work else {
            return;
        };
        for at in held.ends_at.into_iter().chain(held.answer_by) {
            self.alarms.remove(&(at, entry.record.id));
        }
        let is_silent = held.is_timed_out && planted::is(Bug::TimeoutNotTold);
        if entry.record.started.is_none() && !is_silent {
            let why = if held.is_timed_out {
                NotGranted::TimedOut
            } else {
                NotGranted::Canceled
            };
            let refused = MachineOutput::NotGranted(entry.record.id, why);
            self.outputs.push_back(refused);
        }
    }

    /// Lets nobody wait for an allocation any more: the machine starts nothing, and those who wait have to end first.
    pub(super) fn refuse_allocations(&mut self) {
        if planted::is(Bug::RequestOutlivesMachine) {
            return;
        }
        let waits =
            |entry: &Entry| matches!(entry.work, Work::Allocation(_)) && entry.runs.is_empty();
        let waiting = self.jobs.iter().filter(|(_, entry)| waits(entry));
        for id in waiting.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.queue.cancel(id);
        }
    }

    /// Returns the allocations that are granted.
    pub(super) fn held_allocations(&self) -> impl Iterator<Item = TaskId> {
        let held = self.jobs.iter().filter(|(_, entry)| {
            matches!(entry.work, Work::Allocation(_)) && !entry.runs.is_empty()
        });
        held.map(|(id, _)| task_of(*id))
    }

    pub(super) fn next_alarm(&self) -> Option<Time> {
        self.alarms.first().map(|(at, _)| *at)
    }

    /// Ends allocations whose time is over, and requests whose callers do not wait any longer.
    pub(super) fn ring_alarms(&mut self, now: Time) {
        while let Some((at, id)) = self.alarms.first().copied()
            && at <= now
        {
            self.alarms.remove(&(at, id));
            let entry = self.jobs.get_mut(&id);
            let Some(Work::Allocation(held)) = entry.map(|entry| &mut entry.work) else {
                continue;
            };
            // An allocation that was extended has a later alarm.
            let is_due = |time: Option<Time>| time.is_some_and(|time| time <= now);
            if is_due(held.answer_by) {
                held.is_timed_out = true;
                self.queue.cancel(id);
            } else if is_due(held.ends_at) && held.end.is_none() {
                self.end_allocation(id, AllocationEnd::TimeLimit);
            }
        }
    }

    /// Returns what a held allocation is made of, unless it is ending.
    fn held(&self, id: JobId) -> Result<(&Units, Spread, u32), NotChanged> {
        let entry = self.jobs.get(&id).ok_or(NotChanged::NotHeld)?;
        let Work::Allocation(held) = &entry.work else {
            return Err(NotChanged::NotHeld);
        };
        let units = self.queue.units(task_of(id)).filter(|_| held.end.is_none());
        let units = units.ok_or(NotChanged::NotHeld)?;
        Ok((units, held.spread, entry.unit))
    }

    /// Notes in the record what an allocation is made of now, and returns that.
    fn resized(&mut self, id: JobId) -> Option<Grant> {
        let units = self.queue.units(task_of(id))?.clone();
        let (sharing, unit) = {
            let entry = self.jobs.get(&id)?;
            (entry.sharing, entry.unit)
        };
        let names = units.iter().filter_map(|(id, _)| self.nodes.get(id));
        let hosts: HostList = names.map(|node| node.name.as_str()).collect();
        let entry = self.jobs.get_mut(&id)?;
        let count = units.iter().map(|(_, count)| *count);
        entry.record.slots = count.fold(0, u32::saturating_add).saturating_mul(unit);
        entry.record.hosts = hosts;
        self.books.touch(id);
        Some(self.granted(&units, sharing, unit))
    }
}

/// Returns how an allocation has ended whose time is over.
fn out_of_time() -> Outcome {
    Outcome {
        cause: Cause::Ended(EndReason::TimeLimit),
        size: 0,
        ended: Vec::new(),
        not_started: RankSet::new(),
        failed_on: Vec::new(),
        ended_by_us: RankSet::new(),
        left: RankSet::new(),
    }
}
