//! Jobs that procs spawn by PMIx: who gets the messages of their start and end, and whose end ends them. What they are made of is in
//! `spec`.

mod beside;
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

use self::spec::{find, forwarded, preput, spec};
use super::{Controller, Job, MAX_JOBS, Origin, asks::Asker};
use crate::{
    alloc::LocalNames,
    proto::{Cause, EndReason, Note, Outcome, Parent, StartFailure, StartStep, ToFront},
};

impl Controller {
    /// Takes a job that a proc wants to have started. It is answered when the job runs, or cannot.
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
            .beside(infos, &apps)
            .and_then(|beside| spec(&here, &spawner.spec, beside, infos, apps));
        match spec {
            Ok(spec) => {
                let asker = Some(asker);
                let origin = Origin::Spawned {
                    by,
                    asker,
                    forward: forwarded(infos),
                    preput: preput(infos),
                };
                self.add(now, Box::new(spec), origin, front, root);
            }
            Err(status) => self.answer(asker, &Answer::Status(status)),
        }
    }

    /// The proc that has spawned a job.
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

    /// The jobs that a job has spawned, and those that they have. All come from the job of the front at last, even where the
    /// one between is gone.
    pub(super) fn descendants(&self, id: JobId) -> Vec<JobId> {
        let mut found: Vec<JobId> = Vec::new();
        for (child, job) in &self.jobs {
            let Origin::Spawned { by, .. } = &job.origin else {
                continue;
            };
            // A job has a higher number than the one that has spawned it.
            if job.root == id || by.job == id || found.contains(&by.job) {
                found.push(*child);
            }
        }
        found
    }

    /// Procs have ended. What they have spawned is held for nobody then: only they were told. And when they were the last
    /// of their job, nobody can push input to those any more.
    pub(super) fn let_go_of_orphans(&mut self, id: JobId, ranks: &RankSet) {
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
            self.with(orphan, |job| {
                job.release(None);
            });
        }
        for unfed in unfed {
            self.with(unfed, Job::end_pushed_input);
        }
    }

    /// The job that an MPI program began with: its procs may spawn others by PMI, which are parts of it.
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

    /// Which job is to end, and why, when this one does: one that fails takes the MPI program along that it is a part of.
    pub(super) fn taken_along(&mut self, id: JobId, cause: Cause) -> (JobId, Cause) {
        let program = self.program_of(id);
        let failed = matches!(
            cause,
            Cause::Failed { .. } | Cause::Aborted { .. } | Cause::Protocol { .. }
        );
        if !failed || program == id {
            return (id, cause);
        }
        self.with(id, |job| job.end(cause.clone()));
        let cause = Box::new(cause);
        (program, Cause::Spawned { job: id, cause })
    }

    /// Every proc of a spawned job was started, or will never be: the spawner is told.
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
            // It was ended while it started.
            None if !all_started => Answer::Status(Status::JOB_CANCELED),
            None => Answer::Spawned {
                status: Status::SUCCESS,
                nspace,
                facts: Vec::new(),
            },
        };
        self.answer(asker, &answer);
    }

    /// A spawned job could not even be placed.
    pub(super) fn spawn_refused(&mut self, asker: Option<Asker>) {
        if let Some(asker) = asker {
            self.answer(asker, &Answer::Status(Status::JOB_FAILED_TO_MAP));
        }
    }

    /// A spawned job is over: the user hears of it when it failed.
    pub(super) fn spawned_ended(&mut self, job: &Job, outcome: Outcome) {
        let id = job.id;
        // Where it takes the others along, their end says why.
        let told = |cause: &Cause| matches!(cause, Cause::Spawned { job, .. } if *job == id);
        let mut causes = self.jobs.values().filter_map(|job| job.cause.as_ref());
        let silent = match outcome.cause {
            Cause::Success => true,
            // What the user or the end of its spawner did to it is no news.
            Cause::Ended(reason) => reason != EndReason::DebuggerLost,
            _ => causes.any(told),
        };
        if !silent {
            let cause = Box::new(outcome.cause);
            let note = Note::SpawnedFailed { job: id, cause };
            self.tell(job.front, ToFront::Note(note));
        }
    }

    /// What a job has published for as long as it lives goes, and who has registered for its end is told.
    pub(super) fn announce_end(&mut self, id: JobId, outcome: &Outcome) {
        if let Ok(nspace) = Nspace::from_text(&self.nspace(id)) {
            self.published.job_ended(&nspace);
            // With the last job nobody is left to hear it.
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

/// Why a job could not be started, in PMIx's words.
fn status_of(failure: &StartFailure) -> Status {
    const EACCES: i32 = 13;
    match failure.step {
        StartStep::Find => Status::JOB_EXE_NOT_FOUND,
        StartStep::Exec if failure.errno == EACCES => Status::JOB_APP_NOT_EXECUTABLE,
        StartStep::Directory => Status::JOB_WDIR_NOT_FOUND,
        _ => Status::JOB_FAILED_TO_LAUNCH,
    }
}

/// What a job came to, as a number: the code of the proc that decided, 128 and the signal where it was killed.
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
        | Cause::Ended(_) => 1,
    }
}
