//! Jobs on their way into the queue.

use std::collections::BTreeMap;

use base::{JobId, RankSet, Time};

use super::{
    Entry, Machine, MachineOutput, NoResource, NotDone, OutputFiles, Record, Submission, Way,
    Wishes, Work, books::Packed,
};
use crate::{
    proto::FrontId,
    queue::{Dependency, DependencyKind, Over, Request},
    spec::JobSpec,
};

impl Machine {
    /// Adds the job of a front.
    pub fn attach(&mut self, now: Time, front: FrontId, spec: Box<JobSpec>) {
        let apps = spec.apps.iter();
        let words = apps.map(|app| {
            let args = app.args.iter().map(|arg| arg.to_string_lossy());
            let program = app.program.to_string_lossy();
            std::iter::once(program)
                .chain(args)
                .collect::<Vec<_>>()
                .join(" ")
        });
        let command = words.collect::<Vec<_>>().join(" : ");
        let name = spec
            .apps
            .first()
            .map(|app| app.program.to_string_lossy().into_owned());
        let name = name.unwrap_or_default();
        let submission = Submission {
            name: name.rsplit('/').next().unwrap_or_default().to_owned(),
            command,
            wishes: Wishes::default(),
            output: OutputFiles::default(),
            spec,
        };
        match self.add(now, Some(front), submission) {
            Ok(id) => {
                self.settle(now);
                let waits = self
                    .jobs
                    .get(&id)
                    .is_some_and(|entry| entry.runs.is_empty());
                if waits {
                    self.outputs.push_back(MachineOutput::Queued(front, id));
                }
            }
            Err(why) => self.outputs.push_back(MachineOutput::Withdrawn(front, why)),
        }
    }

    /// Adds a job to the queue.
    pub(super) fn add(
        &mut self,
        now: Time,
        front: Option<FrontId>,
        mut submission: Submission,
    ) -> Result<JobId, NotDone> {
        if self.down.is_some() {
            return Err(NotDone::GoingDown);
        }
        let id = JobId(self.next);
        submission.wishes.after = self.unmet(&submission.wishes.after)?;
        let spec = &mut submission.spec;
        // The queue would count with it in any case, and the controller has to end what does not.
        let most = self.queue.limits().task_time;
        spec.end.time_limit = spec.end.time_limit.or(most);
        self.counted.check(spec).map_err(NotDone::NoResource)?;
        let request = self.request(&submission.spec, &submission.wishes, None);
        let slots = request
            .demand
            .units
            .saturating_mul(request.demand.unit.slots);
        let sharing = request.demand.sharing;
        let unit = request.demand.unit.slots;
        let room = self
            .check_room(&request.demand)
            .map_err(NoResource::TooMuch);
        room.map_err(NotDone::NoResource)?;
        self.queue
            .submit(id, request)
            .map_err(NotDone::NotAccepted)?;
        self.next += 1;
        let way = if front.is_some() {
            Way::Attached
        } else {
            Way::Detached
        };
        let record = Record::of(id, way, &submission, slots, self.wall(now));
        if front.is_none() {
            self.books.put_spec(id, &submission.spec);
        }
        let spec = Packed::of(*submission.spec, &mut self.environment);
        let entry = Entry {
            record,
            work: Work::Programs(spec),
            front,
            sharing,
            unit,
            ending: RankSet::new(),
            runs: BTreeMap::new(),
        };
        self.jobs.insert(id, entry);
        self.books.touch(id);
        Ok(id)
    }

    /// Returns the dependencies that are not met. Jobs that are over are in memory, or [`Self::submit`] has
    /// looked for them in the store.
    pub(super) fn unmet(&self, after: &[Dependency]) -> Result<Vec<Dependency>, NotDone> {
        let mut unmet = Vec::new();
        for dependency in after {
            if self.jobs.contains_key(&dependency.on) {
                unmet.push(*dependency);
                continue;
            }
            let over = self.recent.iter().find(|record| record.id == dependency.on);
            let over = over.ok_or(NotDone::NoSuchJob(dependency.on))?;
            is_met(*dependency, over)?;
        }
        Ok(unmet)
    }

    pub(super) fn request(
        &mut self,
        spec: &JobSpec,
        wishes: &Wishes,
        accepted: Option<u32>,
    ) -> Request {
        Request {
            user: 0,
            demand: self.demand(spec, wishes.sharing, accepted),
            priority: wishes.priority,
            time_limit: spec.end.time_limit,
            after: wishes.after.clone(),
            array: wishes.array.clone(),
            hold: wishes.hold,
            on_node_loss: wishes.on_node_loss,
        }
    }
}

/// Checks that a dependency on a job that is over is met.
pub(super) fn is_met(dependency: Dependency, over: &Record) -> Result<(), NotDone> {
    let has_succeeded = matches!(over.ended, Some((_, Over::Succeeded)));
    if dependency.kind == DependencyKind::Succeeded && !has_succeeded {
        return Err(NotDone::DependencyFailed(dependency.on));
    }
    Ok(())
}
