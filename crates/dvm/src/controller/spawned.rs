//! Jobs that procs spawn: notification of their spawners about start and end, and which jobs end together. Their
//! specification is built in `spec`.

mod colocation;
mod files;
mod spec;
#[cfg(test)]
pub(super) mod tests;

use std::ffi::CString;

use base::{ExitStatus, JobId, ProcId, RankSet, Time};
use bytes::Bytes;
use pmix::{
    codec::{Format, Writer},
    keys,
    message::{Answer, Push},
    value::{App as SpawnedApp, Info, Key, Nspace, PmixRank, Proc, Range, Status, Value},
};

use self::{
    files::MAX_COPIED,
    spec::{find, forwarded, preput, spec},
};
use super::{Controller, Job, MAX_JOBS, Origin, asks::Asker};
use crate::{
    alloc::LocalNames,
    planted::{self, Bug},
    proto::{
        Cause, EndReason, NotPreloaded, Note, Outcome, Parent, PreloadFailure, Refusal,
        StartFailure, StartStep, ToFront,
    },
    spec::HoldPlan,
};

/// Error numbers of Linux, with the same values on every architecture that we build for.
const ENOENT: i32 = 2;
const EACCES: i32 = 13;
const ENOTDIR: i32 = 20;

impl Controller {
    /// Handles a proc's request to spawn a job. The request is answered when the job has started or failed to start.
    pub(super) fn spawn(
        &mut self,
        now: Time,
        asker: Asker,
        by: ProcId,
        infos: &[Info],
        apps: Vec<SpawnedApp>,
    ) {
        if self.living().len() >= MAX_JOBS {
            return self.answer(asker, &Answer::Status(Status::OUT_OF_RESOURCE));
        }
        let Some(spawner) = self.jobs.get(&by.job).filter(|job| !job.is_ending()) else {
            return self.answer(asker, &Answer::Status(Status::NOT_AVAILABLE));
        };
        let mut shares = spawner.shares.iter();
        let here = shares
            .find(|(_, share)| share.ranks.contains(by.rank))
            .and_then(|(node, _)| self.allocation.nodes.get(node.0 as usize));
        let (front, root) = (spawner.front, spawner.root);
        let here = LocalNames::new(here.map_or("", |node| node.name.as_str()));
        let spec = self
            .colocation(infos, &apps)
            .and_then(|colocation| spec(&here, &spawner.spec, colocation, infos, apps));
        match spec {
            Ok((spec, _)) if spec.preload.is_some() && self.preloads.len() >= MAX_COPIED => {
                self.answer(asker, &Answer::Status(Status::OUT_OF_RESOURCE));
            }
            Ok((spec, wanted)) => {
                let asker = Some(asker);
                let origin = Origin::Spawned {
                    by,
                    asker,
                    forward: forwarded(infos),
                    preput: preput(infos),
                    wanted,
                };
                self.add(now, Box::new(spec), origin, front, root);
            }
            Err(status) => self.answer(asker, &Answer::Status(status)),
        }
    }

    /// Returns the spawner of a job; `None` if a front has submitted it.
    pub(super) fn parent(&self, id: JobId) -> Option<Parent> {
        match &self.jobs.get(&id)?.origin {
            Origin::Front => None,
            Origin::Spawned {
                by,
                forward,
                preput,
                ..
            } => Some(Parent {
                proc: *by,
                nspace: self.nspace(by.job),
                forward: forward.clone(),
                preput: preput.clone(),
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

    /// Lets the ranks of a spawned job run at once if its spawner has ended: nobody else knows that they are held. The request may
    /// arrive after the end of the spawner, and files are copied before the launch.
    pub(super) fn forgo_hold(&mut self, id: JobId) {
        let spawner = match self.jobs.get(&id).map(|job| &job.origin) {
            Some(Origin::Spawned { by, .. }) => *by,
            Some(Origin::Front) | None => return,
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
            Origin::Front => false,
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

    /// Answers the spawner once every proc of the job has been started or has failed to start.
    pub(super) fn tell_spawned(&mut self, id: JobId) {
        let nspace = CString::new(self.nspace(id)).ok();
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let Origin::Spawned { asker, .. } = &mut job.origin else {
            return;
        };
        let Some(asker) = asker.take() else { return };
        let all_started = u32::try_from(job.started.len()) == Ok(job.size);
        let answer = match job.failures.keys().next() {
            Some(failure) => Answer::Status(status_of(failure)),
            // The job was ended while it was being started, or while its files were being copied.
            None if !all_started || job.size == 0 => Answer::Status(Status::JOB_CANCELED),
            None => Answer::Spawned {
                status: Status::SUCCESS,
                nspace,
                facts: Vec::new(),
            },
        };
        self.answer(asker, &answer);
    }

    /// Answers the spawner of a job that could not be placed, or whose files could not be copied.
    pub(super) fn spawn_refused(&mut self, asker: Option<Asker>, status: Status) {
        if let Some(asker) = asker {
            self.answer(asker, &Answer::Status(status));
        }
    }

    /// Reports the failure of a spawned job to the user.
    pub(super) fn spawned_ended(&mut self, job: &Job, outcome: Outcome) {
        let id = job.id;
        // If its failure ends other jobs, their ends name it as the cause.
        let told = |cause: &Cause| matches!(cause, Cause::Spawned { job, .. } if *job == id);
        let mut causes = self.jobs.values().filter_map(|job| job.cause.as_ref());
        let silent = match outcome.cause {
            Cause::Success => true,
            // Expected: the user ended the job, or it ended with its spawner.
            Cause::Ended(reason) => reason != EndReason::DebuggerLost,
            _ => causes.any(told),
        };
        if !silent {
            let cause = Box::new(outcome.cause);
            let note = Note::SpawnedFailed { job: id, cause };
            self.tell(job.front, ToFront::Note(note));
        }
    }

    /// Removes what the job has published, unless it persists, and sends an event to processes that registered for the
    /// job's end.
    pub(super) fn announce_end(&mut self, id: JobId, outcome: &Outcome) {
        if let Ok(nspace) = Nspace::from_text(&self.nspace(id)) {
            self.published.job_ended(&nspace);
            // After the last job, there are no processes to receive the event.
            if !self.jobs.is_empty() {
                self.tell_end(&nspace, outcome);
            }
        }
    }

    fn tell_end(&mut self, nspace: &Nspace, outcome: &Outcome) {
        let mut writer = Writer::new(Format::V4);
        let info = |key, value| Key::new(key).ok().map(|key| Info::new(key, value));
        let infos = [
            info(keys::EVENT_NON_DEFAULT, Value::Bool(true)),
            info(
                keys::JOB_TERM_STATUS,
                Value::Status(Status(exit_code(&outcome.cause))),
            ),
            info(
                keys::EVENT_AFFECTED_PROC,
                Value::Proc(Box::new(Proc::all(nspace.clone()))),
            ),
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
        self.tell_nodes(Bytes::from(writer.into_bytes()));
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

/// Maps a cause to an exit code: the code of the decisive proc, or 128 plus the signal that killed it.
fn exit_code(cause: &Cause) -> i32 {
    match cause {
        Cause::Success => 0,
        Cause::Failed { status, .. } => match status {
            ExitStatus::Exited(code) => i32::from(*code),
            ExitStatus::Signaled { signal, .. } => 128 + signal.0,
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
