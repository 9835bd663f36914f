//! Jobs that procs spawn: notification of their spawners about start and end, and which jobs end together. Their
//! specification is built in `spec`.

pub(super) mod agent;
pub(super) mod colocation;
pub(super) mod cospawn;
mod files;
mod logged;
pub(super) mod spec;
#[cfg(test)]
pub(super) mod tests;

use std::{ffi::CStr, sync::Arc};

use base::{ExitStatus, JobId, ProcId, Rank, RankSet, Time};
use bytes::Bytes;
use pmix::{
    codec::{Format, Writer},
    keys,
    message::{Answer, Push},
    value::{App as SpawnedApp, Info, Key, Nspace, PmixRank, Proc, Range, Status, Value},
};

use self::{
    cospawn::Partner,
    files::MAX_COPIED,
    spec::{forwarded, kept, logged_news, preput, spec, start_news, to_tool, told},
};
use super::{
    Controller, Job, MAX_JOBS, Origin,
    asks::Asker,
    job::{Spawner, WhenItLeaves},
};
use crate::{
    alloc::LocalNames,
    machine::Grant,
    planted::{self, Bug},
    proto::{
        Cause, EndReason, FrontId, NotPreloaded, Note, Outcome, Parent, PreloadFailure, Refusal,
        Relation, StartFailure, StartStep, ToFront,
    },
    spec::{HoldPlan, JobSpec},
};

/// Error numbers of Linux, with the same values on every architecture that we build for.
const ENOENT: i32 = 2;
const EACCES: i32 = 13;
const ENOTDIR: i32 = 20;

/// A job that a proc wants to spawn.
#[derive(Debug)]
pub(super) struct Spawn {
    pub(super) by: ProcId,
    pub(super) asker: Asker,
    pub(super) spec: Box<JobSpec>,
    pub(super) origin: Origin,
    pub(super) front: FrontId,
    pub(super) root: JobId,
}

impl Spawn {
    /// Returns the other job of its request.
    pub(super) fn partner(&self) -> Partner {
        match &self.origin {
            Origin::Spawned { partner, .. } => partner.clone(),
            Origin::Front | Origin::Controlled { .. } | Origin::Beside => Partner::Nothing,
        }
    }
}

impl Controller {
    /// Handles a proc's request to spawn a job, or two of them. It is answered when all have started, or one has failed to start.
    pub(super) fn spawn(
        &mut self,
        now: Time,
        asker: Asker,
        by: ProcId,
        infos: &[Info],
        apps: Vec<SpawnedApp>,
    ) {
        let (apps, partner) = cospawn::split(infos, apps);
        if let Err(status) = self.spawn_job(now, asker, by, infos, apps, partner) {
            self.answer(asker, &Answer::Status(status));
        }
    }

    /// Adds a job that a proc spawns.
    ///
    /// # Errors
    /// The status that the proc gets if the job cannot be.
    fn spawn_job(
        &mut self,
        now: Time,
        asker: Asker,
        by: ProcId,
        infos: &[Info],
        apps: Vec<SpawnedApp>,
        partner: Partner,
    ) -> Result<(), Status> {
        if self.living().len() >= MAX_JOBS {
            return Err(Status::OUT_OF_RESOURCE);
        }
        let said = infos.iter().chain(apps.iter().flat_map(|app| &app.info));
        let said: Vec<Info> = said.cloned().collect();
        let model = self.model(by, &said)?;
        let (front, root) = (model.front, model.root);
        let here = self.node_of(by).map_or("", |node| self.name_of(node));
        let here = LocalNames::new(here);
        let colocation = self.colocation(infos, &apps)?;
        let (mut spec, wanted) = spec(&here, model.spec, colocation, infos, apps)?;
        if spec.preload.is_some() && self.preloads.len() >= MAX_COPIED {
            return Err(Status::OUT_OF_RESOURCE);
        }
        let then = match find(&said, keys::NOHUP).is_some_and(Value::is_set) {
            true => WhenItLeaves::GoOn,
            false => WhenItLeaves::End,
        };
        let spawner = match self.tools.contains(by.job) {
            true => Spawner::Tool(then),
            false => Spawner::Rank,
        };
        if let Spawner::Tool(_) = spawner {
            spec.stdio = to_tool(&spec.stdio);
        }
        let origin = Origin::Spawned {
            by,
            asker: Some(asker),
            forward: forwarded(infos, spawner),
            keep: kept(&said, spawner)?,
            preput: preput(infos),
            wanted,
            debugged: self.debugged_by(by, &said),
            told: told(&said),
            spawner,
            start: start_news(&said, spawner),
            log: logged_news(&said),
            partner,
        };
        let spawn = Spawn {
            by,
            asker,
            spec: Box::new(spec),
            origin,
            front,
            root,
        };
        self.spawn_where(now, spawn, &said)
    }

    /// Adds a spawned job, which may use only an allocation if there is one.
    ///
    /// # Errors
    ///
    /// [`Status::OUT_OF_RESOURCE`] if the allocation has too few slots left.
    pub(super) fn spawn_inside(
        &mut self,
        now: Time,
        spawn: Spawn,
        allocation: Option<JobId>,
    ) -> Result<(), Status> {
        let grant = match allocation {
            Some(id) => self.enter_allocation(id, &spawn.spec)?,
            None => None,
        };
        self.add_spawned(now, spawn, grant);
        Ok(())
    }

    /// Adds a spawned job, which may use only what it is granted. Without a grant, it may use what the job of its front may.
    pub(super) fn add_spawned(&mut self, now: Time, spawn: Spawn, grant: Option<Arc<Grant>>) {
        let Spawn {
            spec,
            origin,
            front,
            root,
            ..
        } = spawn;
        match grant {
            Some(grant) => self.add_granted(now, spec, origin, front, root, Some(grant)),
            None => self.add(now, spec, origin, front, root),
        }
    }

    /// Returns the spawner of a job, or the tool that controls it; `None` if a front alone has submitted it.
    pub(super) fn parent(&self, id: JobId) -> Option<Parent> {
        match &self.jobs.get(&id)?.origin {
            Origin::Front | Origin::Beside => None,
            Origin::Controlled {
                by, forward, keep, ..
            } => Some(Parent {
                relation: Relation::Controller,
                proc: *by,
                nspace: self.nspace(by.job),
                forward: forward.clone(),
                keep: *keep,
                preput: None,
                told: Bytes::new(),
            }),
            Origin::Spawned {
                by,
                forward,
                keep,
                preput,
                told,
                ..
            } => Some(Parent {
                relation: Relation::Spawner,
                proc: *by,
                nspace: self.nspace(by.job),
                forward: forward.clone(),
                keep: *keep,
                preput: preput.clone(),
                told: told.clone(),
            }),
        }
    }

    /// Returns the descendants of a job: the jobs that it has spawned, and theirs in turn. For the job of a front, that
    /// includes jobs whose own spawner is already gone.
    pub(super) fn descendants(&self, id: JobId) -> Vec<JobId> {
        let mut found: Vec<JobId> = Vec::new();
        for (child, job) in &self.jobs {
            let Origin::Spawned { by, .. } = &job.origin else {
                continue;
            };
            // A spawned job has a higher id than its spawner, so one pass suffices.
            if job.root == id || by.job == id || found.contains(&by.job) {
                found.push(*child);
            }
        }
        found
    }

    /// Lets the ranks of a job run at once if its spawner, or the tool whose directives hold them, has ended: nobody else knows that they
    /// are held. The request may arrive after the end of the spawner, and files are copied before the launch.
    pub(super) fn forgo_hold(&mut self, id: JobId) {
        let spawner = match self.jobs.get(&id).map(|job| &job.origin) {
            Some(Origin::Controlled { holds: true, .. }) if planted::is(Bug::HeldByDirectives) => {
                return;
            }
            Some(
                Origin::Spawned { by, .. }
                | Origin::Controlled {
                    by, holds: true, ..
                },
            ) => *by,
            Some(Origin::Front | Origin::Controlled { .. } | Origin::Beside) | None => return,
        };
        if self.has_ended(spawner)
            && let Some(job) = self.jobs.get_mut(&id)
        {
            job.spec.hold = HoldPlan::NOWHERE;
        }
    }

    /// Handles the end of procs that may have spawned jobs. Held ranks of the jobs that they spawned are released,
    /// because only the spawner was notified of the hold. If they were the last of their job, the jobs spawned by it get
    /// EOF, because no process can push input any more.
    pub(super) fn release_spawned_by(&mut self, id: JobId, ranks: &RankSet) {
        let by_it = |job: &&Job, whole: bool| match &job.origin {
            Origin::Spawned { by, .. } => by.job == id && (whole || ranks.contains(by.rank)),
            Origin::Front | Origin::Controlled { .. } | Origin::Beside => false,
        };
        let children = |whole: bool| -> Vec<JobId> {
            let jobs = self.jobs.values().filter(|job| by_it(job, whole));
            jobs.map(|job| job.id).collect()
        };
        let orphans = children(false);
        let is_last = self.jobs.get(&id).is_some_and(Job::has_no_rank_left);
        let unfed = if is_last { children(true) } else { Vec::new() };
        for orphan in orphans {
            if planted::is(Bug::OrphansStayHeld) {
                break;
            }
            self.with(orphan, |job| {
                job.release(None);
            });
        }
        for unfed in unfed {
            self.with(unfed, Job::end_pushed_input);
        }
    }

    /// Returns the job with which an MPI program began. Jobs that were spawned by PMI belong to the program of their
    /// spawner.
    pub(super) fn program_of(&self, id: JobId) -> JobId {
        let mut program = id;
        while let Some(job) = self.jobs.get(&program)
            && let Origin::Spawned {
                by,
                preput: Some(_),
                ..
            } = &job.origin
            && self.jobs.contains_key(&by.job)
        {
            program = by.job;
        }
        program
    }

    /// Returns the job to end, and the cause, when this job ends. A job that fails also ends the MPI program to which
    /// it belongs.
    pub(super) fn job_to_end(&mut self, id: JobId, cause: Cause) -> (JobId, Cause) {
        let program = self.program_of(id);
        let failed = matches!(
            cause,
            Cause::Failed { .. }
                | Cause::Aborted { .. }
                | Cause::Protocol { .. }
                | Cause::NodeLost { .. }
        );
        if !failed || program == id {
            return (id, cause);
        }
        self.with(id, |job| job.end(cause.clone()));
        let cause = Box::new(cause);
        (program, Cause::Spawned { job: id, cause })
    }

    /// Answers the spawner once every proc of the job has been started or has failed to start, and of the other job of the same request.
    pub(super) fn tell_spawned(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let Origin::Spawned {
            by, asker, partner, ..
        } = &mut job.origin
        else {
            return;
        };
        let (by, partner) = (*by, partner.take());
        let Some(asker) = asker.take() else { return };
        let all_started = u32::try_from(job.started.len()) == Ok(job.size);
        match job.failures.keys().next().map(status_of) {
            Some(status) => self.spawn_failed(asker, partner, status),
            // The job was ended while it was being started, or while its files were being copied.
            None if !all_started || job.size == 0 => {
                self.spawn_failed(asker, partner, Status::JOB_CANCELED);
            }
            None => self.spawn_succeeded(asker, by, id, partner),
        }
    }

    /// Answers the spawner of a job that could not be placed, or whose files could not be copied.
    pub(super) fn spawn_refused(&mut self, asker: Option<Asker>, partner: Partner, status: Status) {
        if let Some(asker) = asker {
            self.spawn_failed(asker, partner, status);
        }
    }

    /// Reports the failure of a spawned job to the user.
    pub(super) fn spawned_ended(&mut self, job: &Job, outcome: Outcome) {
        let id = job.id;
        self.log_end(job, &outcome.cause);
        if job.is_of_tool() {
            // The tool is told, and the user has not started it.
            return;
        }
        // If its failure ends other jobs, their ends name it as the cause.
        let told = |cause: &Cause| matches!(cause, Cause::Spawned { job, .. } if *job == id);
        let mut causes = self.jobs.values().filter_map(|job| job.cause.as_ref());
        // If the whole program has reached its time limit, its front is told of that.
        let root = self.jobs.get(&job.root);
        let ends_alone = root.is_some_and(|root| !root.is_ending());
        let silent = match outcome.cause {
            Cause::Success => true,
            // Expected: the user ended the job, or it ended with its spawner.
            Cause::Ended(EndReason::TimeLimit) => !ends_alone,
            Cause::Ended(reason) => reason != EndReason::DebuggerLost,
            _ => causes.any(told),
        };
        if !silent {
            let cause = Box::new(outcome.cause);
            let note = Note::SpawnedFailed { job: id, cause };
            self.tell(job.front, ToFront::Note(note));
        }
    }

    /// Removes what a job that is over has published, unless it persists.
    pub(super) fn published_job_ended(&mut self, id: JobId) {
        if let Ok(nspace) = Nspace::from_text(&self.nspace(id)) {
            self.published.job_ended(&nspace);
        }
    }

    /// Sends an event to processes that have registered for the end of a job. The job may still wait for jobs that it has spawned, and
    /// some of those wait for this event.
    pub(super) fn tell_end(&mut self, id: JobId, cause: &Cause) {
        let Ok(nspace) = Nspace::from_text(&self.nspace(id)) else {
            return;
        };
        let mut writer = Writer::new(Format::V4);
        let info = |key, value| Key::new(key).ok().map(|key| Info::new(key, value));
        let about = |proc: Proc| Value::Proc(Box::new(proc));
        let code = exit_code(cause);
        let failed = decisive(cause).map(|rank| Proc {
            nspace: nspace.clone(),
            rank: rank.into(),
        });
        let infos = [
            info(keys::EVENT_NON_DEFAULT, Value::Bool(true)),
            info(keys::JOB_TERM_STATUS, Value::Status(Status(code))),
            info(keys::EXIT_CODE, Value::Int(code)),
            info(keys::EVENT_AFFECTED_PROC, about(Proc::all(nspace.clone()))),
            failed.and_then(|proc| info(keys::PROC_ID, about(proc))),
            self.clock.timestamp(),
        ];
        let event = Push::Event {
            status: Status::EVENT_JOB_END,
            source: Proc {
                nspace: nspace.clone(),
                rank: PmixRank(0),
            },
            infos: infos.into_iter().flatten().collect(),
            range: Some(Range::SESSION),
        };
        event.encode(&mut writer);
        let deaf = self.door.filter(|_| planted::is(Bug::EndNotToldAtDoor));
        self.tell_nodes_but(deaf, &Bytes::from(writer.into_bytes()));
    }
}

/// Maps the reason why a spawned job is refused to a PMIx status.
pub(super) fn refused_status(refusal: &Refusal) -> Status {
    let Refusal::NotPreloaded(NotPreloaded { failure, .. }) = refusal else {
        return Status::JOB_FAILED_TO_MAP;
    };
    match failure {
        PreloadFailure::NoRoom { .. } => Status::JOB_INSUFFICIENT_RESOURCES,
        PreloadFailure::Unreadable { .. }
        | PreloadFailure::Changed { .. }
        | PreloadFailure::NoPlace(_)
        | PreloadFailure::Unwritable { .. } => Status::JOB_SYS_OP_FAILED,
    }
}

/// Maps the error with which a file of a spawned job was not found to a PMIx status.
pub(super) const fn not_found(errno: i32, is_program: bool) -> Status {
    match (errno, is_program) {
        (ENOENT | ENOTDIR, true) => Status::JOB_EXE_NOT_FOUND,
        (ENOENT | ENOTDIR, false) => Status::NOT_FOUND,
        (EACCES, true) => Status::JOB_APP_NOT_EXECUTABLE,
        (EACCES, false) => Status::NO_PERMISSIONS,
        _ => Status::JOB_SYS_OP_FAILED,
    }
}

/// Maps a start failure to a PMIx status.
fn status_of(failure: &StartFailure) -> Status {
    match failure.step {
        StartStep::Find => Status::JOB_EXE_NOT_FOUND,
        StartStep::Exec if failure.errno == EACCES => Status::JOB_APP_NOT_EXECUTABLE,
        StartStep::Directory => Status::JOB_WDIR_NOT_FOUND,
        _ => Status::JOB_FAILED_TO_LAUNCH,
    }
}

/// Returns the proc with whose failure a job began to end; `None` if there is none.
fn decisive(cause: &Cause) -> Option<Rank> {
    match cause {
        Cause::Failed { rank, .. } | Cause::Aborted { rank, .. } | Cause::Protocol { rank, .. } => {
            Some(*rank)
        }
        Cause::NotStarted(classes) => {
            let ranks = classes.iter().filter_map(|(_, ranks)| ranks.first());
            ranks.min()
        }
        Cause::Absent(ranks) | Cause::Unfinished(ranks) => ranks.first(),
        Cause::Success | Cause::NodeLost { .. } | Cause::Ended(_) | Cause::Spawned { .. } => None,
    }
}

/// Maps a cause to an exit code: the code of the decisive proc, or 128 plus the signal that killed it.
fn exit_code(cause: &Cause) -> i32 {
    match cause {
        Cause::Success => 0,
        Cause::Failed { status, .. } => match status {
            ExitStatus::Exited(code) => i32::from(*code),
            ExitStatus::Signaled { signal, .. } => 128 + signal.0,
            ExitStatus::OutOfMemory { .. } => i32::from(status.code()),
        },
        Cause::Aborted { code, .. } => i32::from(*code),
        Cause::Spawned { cause, .. } => exit_code(cause),
        Cause::NotStarted(_)
        | Cause::Protocol { .. }
        | Cause::Absent(_)
        | Cause::Unfinished(_)
        | Cause::NodeLost { .. }
        | Cause::Ended(_) => 1,
    }
}

pub(super) fn find<'a>(infos: &'a [Info], key: &CStr) -> Option<&'a Value> {
    let info = infos.iter().find(|info| info.key == *key)?;
    Some(&info.value)
}
