//! Reading what a store holds, when the machine starts again.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use base::{JobId, Rank, RankSet, Usage};
use bytes::Bytes;
use serde::de::DeserializeOwned;

use super::{
    Entry, Machine, Wall, Work,
    books::{FIRST, FORMAT, Key, Packed},
    planted::{self, Bug},
    record::{Failure, Needs, Record, Way},
    talk::{Damage, Restored},
};
use crate::{
    queue::{DependencyKind, Hold, Over, Past, REQUEUES_MAX, Requeue},
    spec::{JobSpec, Recorder, ResourceLimits, ResourceNeeds, SetName},
};

/// A value of the store. Values of older versions lack fields at their end.
trait Stored: DeserializeOwned {
    /// Returns the encoded defaults of the fields that a value of this version lacks.
    fn lacking_in(version: u8) -> postcard::Result<Vec<u8>>;
}

impl Stored for u32 {
    fn lacking_in(_: u8) -> postcard::Result<Vec<u8>> {
        Ok(Vec::new())
    }
}

impl Stored for Record {
    fn lacking_in(version: u8) -> postcard::Result<Vec<u8>> {
        let none: (RankSet, Usage, BTreeMap<u32, u32>) = Default::default();
        let needs: Option<Box<Needs>> = None;
        match version {
            1 => postcard::to_allocvec(&(none, needs)),
            2 => postcard::to_allocvec(&needs),
            _ => Ok(Vec::new()),
        }
    }
}

impl Stored for JobSpec {
    fn lacking_in(version: u8) -> postcard::Result<Vec<u8>> {
        let recorder = Recorder::Off;
        let sets: BTreeMap<u32, SetName> = BTreeMap::new();
        match version {
            1 | 2 => {
                let none: (ResourceLimits, Option<Duration>, ResourceNeeds) = Default::default();
                postcard::to_allocvec(&(none, sets, recorder))
            }
            3 => postcard::to_allocvec(&(sets, recorder)),
            4 => postcard::to_allocvec(&recorder),
            _ => Ok(Vec::new()),
        }
    }
}

/// Decodes a stored value.
fn decode<T: Stored>(bytes: &Bytes, damage: Damage) -> Result<T, Damage> {
    match bytes.split_first() {
        Some((version @ FIRST..=FORMAT, rest)) => {
            let lacking = T::lacking_in(*version).map_err(|_| damage)?;
            postcard::from_bytes(&[rest, &lacking].concat()).map_err(|_| damage)
        }
        Some((version, _)) if *version > FORMAT => Err(Damage::Newer(*version)),
        Some(_) | None => Err(damage),
    }
}

/// Decodes the record of a job.
pub(super) fn record(bytes: &Bytes) -> Result<Record, Damage> {
    decode(bytes, Damage::Record(JobId(0)))
}

/// Decodes what a job runs.
#[cfg(test)]
pub(super) fn spec(bytes: &Bytes) -> Result<JobSpec, Damage> {
    decode(bytes, Damage::Spec(JobId(0)))
}

impl Record {
    /// Decodes a stored record.
    ///
    /// # Errors
    ///
    /// Returns that it is damaged, or of a newer version.
    pub fn from_stored(bytes: &Bytes) -> Result<Self, Damage> {
        record(bytes)
    }
}

/// A job of the queue that was found in the store.
struct Found<'a> {
    id: JobId,
    record: Record,
    spec: JobSpec,
    /// Jobs that cannot be read.
    unreadable: &'a BTreeSet<JobId>,
}

impl Record {
    /// Counts that these tasks, which wait, were lost with their machine.
    fn count_requeues(&mut self, lost: &RankSet) {
        if planted::is(Bug::RequeuesForgotten) {
            return;
        }
        for rank in lost.iter() {
            let requeues = self.requeues.entry(rank.0).or_default();
            *requeues += 1;
            if *requeues >= REQUEUES_MAX && self.wishes.hold == Hold::No {
                self.wishes.hold = Hold::ByRequeues;
            }
        }
    }
}

impl Machine {
    /// Puts the jobs of the store into the queue. Tasks that ran are lost, or wait again.
    pub(super) fn restore(&mut self, stored: &[(Key, Bytes)]) -> Restored {
        let mut restored = Restored::default();
        let mut records: BTreeMap<JobId, Record> = BTreeMap::new();
        let mut specs: BTreeMap<JobId, JobSpec> = BTreeMap::new();
        let mut failed: BTreeSet<JobId> = BTreeSet::new();
        // They stay in the store as they are: a newer version may read them.
        let mut unreadable: BTreeSet<JobId> = BTreeSet::new();
        for (key, value) in stored {
            let read = match key {
                Key::Next => decode(value, Damage::Next).map(|next: u32| {
                    self.next = self.next.max(next);
                }),
                Key::Job(id) => decode(value, Damage::Record(*id)).map(|record| {
                    records.insert(*id, record);
                }),
                Key::Spec(id) => decode(value, Damage::Spec(*id)).map(|spec| {
                    specs.insert(*id, spec);
                }),
                // Only those are here that matter for their numbers.
                Key::Past(_) => Ok(()),
            };
            if let Key::Job(id) | Key::Spec(id) | Key::Past(id) = key {
                if !matches!(key, Key::Past(_)) || !planted::is(Bug::NextNotStored) {
                    self.next = self.next.max(id.0.saturating_add(1));
                }
                unreadable.extend(read.is_err().then_some(*id));
            }
            restored.damaged.extend(read.err());
        }
        records.retain(|id, _| !unreadable.contains(id));
        self.books.set_next(self.next);
        for (key, _) in stored {
            if let Key::Past(id) = key {
                self.books.keep_if_old(*id);
            }
        }
        let wall = self.epoch;
        for (id, record) in records {
            let spec = match (record.way, specs.remove(&id)) {
                (Way::Attached | Way::Allocation, _) => {
                    restored.lost.push(id);
                    self.bury(wall, record, None, &mut failed);
                    continue;
                }
                (Way::Detached, Some(spec)) => spec,
                (Way::Detached, None) => {
                    restored.damaged.push(Damage::Spec(id));
                    self.bury(wall, record, None, &mut failed);
                    continue;
                }
            };
            let found = Found {
                id,
                record,
                spec,
                unreadable: &unreadable,
            };
            self.continue_job(wall, found, &mut restored, &mut failed);
        }
        restored.waiting = self.jobs.len();
        restored
    }

    fn continue_job(
        &mut self,
        wall: Wall,
        found: Found<'_>,
        restored: &mut Restored,
        failed: &mut BTreeSet<JobId>,
    ) {
        let Found {
            id,
            mut record,
            spec,
            unreadable,
        } = found;
        let ran = std::mem::take(&mut record.tasks.running);
        record.paused = RankSet::new();
        if planted::is(Bug::WaitingForgotten) && record.started.is_some() && record.is_array() {
            record.tasks.waiting = RankSet::new();
        }
        if let Some(first) = ran.first() {
            let is_again = record.wishes.on_node_loss == Requeue::OnNodeLoss;
            if is_again || planted::is(Bug::LostRunsAgain) {
                record.tasks.waiting = record.tasks.waiting.union(&ran);
                record.requeued = record.requeued.union(&ran);
                record.count_requeues(&ran);
                restored.requeued.push(id);
            } else {
                record.tasks.failed = record.tasks.failed.union(&ran);
                let failure = || (first.0, Box::new(Failure::MachineLost));
                record.failure.get_or_insert_with(failure);
                restored.lost.push(id);
            }
        }
        // Jobs depend on earlier ones, so it is known which of those are lost.
        let mut after = record.wishes.after.iter();
        let broken = after.find(|dependency| {
            dependency.kind == DependencyKind::Succeeded && failed.contains(&dependency.on)
        });
        let broken = broken.map(|dependency| Over::DependencyFailed(dependency.on));
        if record.tasks.waiting.is_empty() || broken.is_some() {
            return self.bury(wall, record, broken, failed);
        }
        // Those that are over are met: otherwise the job would have been canceled. What cannot be read may not be over.
        let jobs = &self.jobs;
        let lives = |on: &JobId| jobs.contains_key(on) || unreadable.contains(on);
        record
            .wishes
            .after
            .retain(|dependency| lives(&dependency.on));
        for app in &spec.placement.apps {
            if let Some(hosts) = &app.hosts {
                self.foresee(hosts);
            }
        }
        // No node has joined yet, so what the job needs of all nodes is not known. It is what it was when the job was accepted.
        let accepted = (!planted::is(Bug::NeedsForgotten)).then_some(record.slots);
        let request = self.request(&spec, &record.wishes, accepted);
        let waiting = &record.tasks.waiting;
        record
            .requeues
            .retain(|index, _| waiting.contains(Rank(*index)));
        let past = Past {
            waiting: record.is_array().then(|| record.tasks.waiting.clone()),
            has_started: record.started.is_some() && !planted::is(Bug::StartForgotten),
            has_failed: !record.tasks.failed.is_empty(),
            has_withdrawn: !record.tasks.canceled.is_empty(),
            requeues: std::mem::take(&mut record.requeues),
        };
        let sharing = request.demand.sharing;
        let unit = request.demand.unit.slots;
        self.queue.restore(id, request, past);
        let entry = Entry {
            record,
            work: Work::Programs(Packed::of(spec, &mut self.environment)),
            front: None,
            sharing,
            unit,
            ending: RankSet::new(),
            runs: BTreeMap::new(),
        };
        self.jobs.insert(id, entry);
        self.books.touch(id);
    }

    /// Moves a job that cannot go on to the history. `why` is the reason if its tasks do not show it.
    fn bury(
        &mut self,
        wall: Wall,
        mut record: Record,
        why: Option<Over>,
        failed: &mut BTreeSet<JobId>,
    ) {
        let ran = std::mem::take(&mut record.tasks.running);
        record.paused = RankSet::new();
        if let Some(first) = ran.first() {
            let failure = || (first.0, Box::new(Failure::MachineLost));
            record.failure.get_or_insert_with(failure);
        }
        record.tasks.failed = record.tasks.failed.union(&ran);
        let waiting = std::mem::take(&mut record.tasks.waiting);
        record.tasks.canceled = record.tasks.canceled.union(&waiting);
        let why = if let Some(why) = why {
            why
        } else if !record.tasks.failed.is_empty() {
            Over::Failed
        } else if !record.tasks.canceled.is_empty() {
            Over::Canceled
        } else {
            Over::Succeeded
        };
        if why != Over::Succeeded && !planted::is(Bug::LostSatisfies) {
            failed.insert(record.id);
        }
        record.ended = Some((wall, why));
        record.requeues.clear();
        self.books.over(record.id, &record, true);
        self.remember(record);
    }
}
