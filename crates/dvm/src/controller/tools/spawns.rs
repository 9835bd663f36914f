//! Jobs that tools spawn: daemons of a debugger beside its target, and others.
//!
//! A spawned job takes its environment, and what its request does not say, from the job of its spawner. A tool has none. What it spawns
//! belongs to the job of a front, as if a rank of that one had spawned it, and ends with it at the latest. On a machine, a job without a
//! target belongs to its tool: it gets its environment from the machine, and an allocation from the queue. The output goes to the tool only.

use base::{JobId, NodeId, ProcId};
use pmix::{
    keys,
    value::{Info, Status, Value},
};

use crate::{
    controller::{
        Controller, Job, Origin,
        held::Hearers,
        job::{Spawner, StartNews, WhenItLeaves},
        machine::DETACHED,
        spawned::{colocation::debugged, find},
    },
    planted::{self, Bug},
    proto::{Cause, EndReason, FrontId},
    spec::JobSpec,
};

/// Returns the target of a debugger's daemons, as their spawn request names it.
pub(in crate::controller) fn target_of(infos: &[Info]) -> Option<&Value> {
    find(infos, keys::DEBUG_TARGET).or_else(|| find(infos, keys::DEBUG_JOB))
}

/// What a spawned job is modeled after, and to whom it belongs.
pub(in crate::controller) struct Model<'a> {
    pub(in crate::controller) spec: &'a JobSpec,
    pub(in crate::controller) front: FrontId,
    pub(in crate::controller) root: JobId,
}

impl<'a> Model<'a> {
    fn of(job: &'a Job) -> Self {
        Self {
            spec: &job.spec,
            front: job.front,
            root: job.root,
        }
    }
}

impl Controller {
    /// Returns the model of a job that this proc spawns: its own job. For a tool, it is the job of a front to which the target belongs, or
    /// the first one that has not ended. On a machine, what a tool spawns without a target belongs to the tool.
    pub(in crate::controller) fn model(
        &self,
        by: ProcId,
        infos: &[Info],
    ) -> Result<Model<'_>, Status> {
        let living = |job: &&Job| !job.is_ending();
        if !self.tools.contains(by.job) {
            let job = self.jobs.get(&by.job).filter(living);
            return job.map(Model::of).ok_or(Status::NOT_AVAILABLE);
        }
        if let Some(target) = target_of(infos) {
            let procs = debugged(target).ok_or(Status::BAD_PARAM)?;
            let first = procs.first().ok_or(Status::BAD_PARAM)?;
            let job = self.job_called(&first.nspace).ok_or(Status::NOT_FOUND)?;
            // It may have been spawned by a tool.
            let root = self.jobs.get(&job.root).unwrap_or(job);
            let model = Some(root).filter(living).map(|spec| Model {
                root: job.root,
                ..Model::of(spec)
            });
            return model.ok_or(Status::NOT_AVAILABLE);
        }
        if let Some(host) = &self.machine {
            return Ok(Model {
                spec: host.model.as_deref().ok_or(Status::NOT_SUPPORTED)?,
                front: FrontId(DETACHED | by.job.0),
                root: by.job,
            });
        }
        let mut jobs = self.jobs.values().filter(living);
        let first = jobs.find(|job| job.is_of_front() && job.beside.is_none());
        first.map(Model::of).ok_or(Status::NOT_AVAILABLE)
    }

    pub(in crate::controller) fn is_of_tool(&self, job: JobId) -> bool {
        self.jobs.get(&job).is_some_and(Job::is_of_tool)
    }

    /// Returns the job whose allocation a spawned job shares: that of its spawner, or that of the target of a tool's daemons.
    pub(in crate::controller) fn beside(&self, by: ProcId, infos: &[Info]) -> JobId {
        if !self.tools.contains(by.job) {
            return by.job;
        }
        let procs = target_of(infos).and_then(debugged).unwrap_or_default();
        let target = procs.first().and_then(|proc| self.job_called(&proc.nspace));
        target.map_or(by.job, |job| job.id)
    }

    /// Returns the job whose ranks the daemons of a debugger look at: that of the target, or that of the rank that spawns them. `None` if
    /// the request is for no such daemons.
    pub(in crate::controller) fn debugged_by(&self, by: ProcId, infos: &[Info]) -> Option<JobId> {
        let target = target_of(infos);
        let are_daemons = find(infos, keys::DEBUGGER_DAEMONS).is_some_and(Value::is_set);
        if target.is_none() && !are_daemons {
            return None;
        }
        let procs = target.and_then(debugged).unwrap_or_default();
        let named = procs.first().and_then(|proc| self.job_called(&proc.nspace));
        let job = named.or_else(|| self.jobs.get(&by.job));
        job.map(|job| job.id)
    }

    /// Returns the node of a proc, or of the server to which a tool is connected.
    pub(in crate::controller) fn node_of(&self, proc: ProcId) -> Option<NodeId> {
        let shares = self.jobs.get(&proc.job).map(|job| &job.shares);
        let mut shares = shares.into_iter().flatten();
        let of_rank = shares.find(|(_, share)| share.ranks.contains(proc.rank));
        let of_rank = of_rank.map(|(node, _)| *node);
        of_rank.or_else(|| self.tools.node(proc.job))
    }

    /// Ends the jobs that a tool has spawned, unless it wants them to go on. Nobody releases those that are held.
    pub(super) fn end_jobs_of_tool(&mut self, tool: JobId) {
        let by_it = |job: &Job| match &job.origin {
            Origin::Spawned {
                by,
                spawner: Spawner::Tool(then),
                ..
            } if by.job == tool => Some((job.id, *then)),
            Origin::Spawned { .. } | Origin::Controlled { .. } | Origin::Front | Origin::Beside => {
                None
            }
        };
        for (job, then) in self.jobs.values().filter_map(by_it).collect::<Vec<_>>() {
            match then {
                WhenItLeaves::GoOn => self.with(job, |job| {
                    if !planted::is(Bug::HeldForDeadTool) {
                        job.release(None);
                    }
                    job.end_pushed_input();
                }),
                WhenItLeaves::End if planted::is(Bug::OutlivesItsTool) => {}
                WhenItLeaves::End => self.end(job, Cause::Ended(EndReason::SpawnerEnded)),
            }
        }
    }

    /// Tells a spawner that wants to know, or the tool that controls the launcher, that its job has started.
    pub(in crate::controller) fn tell_started(&mut self, id: JobId) {
        self.log_start(id);
        let by = match self.jobs.get(&id).map(|job| &job.origin) {
            Some(
                Origin::Controlled { by, .. }
                | Origin::Spawned {
                    by,
                    start: StartNews::Told,
                    ..
                },
            ) => *by,
            Some(Origin::Front | Origin::Beside | Origin::Spawned { .. }) | None => return,
        };
        for status in [Status::EVENT_JOB_START, Status::LAUNCH_COMPLETE] {
            self.tell_of_job(Hearers::Spawner(by), id, status, None);
        }
    }
}
