//! Job control: signals, files to remove when a proc exits, and process sets that the controller defines.

use std::{ffi::CStr, os::unix::ffi::OsStrExt};

use base::{ProcId, Signal};
use pmix::{
    keys,
    message::{Answer, Command},
    server::Ticket,
    value::{Info, PmixRank, Proc, Status},
};

use super::{Service, What};
use crate::{
    daemon::Output,
    proto::{AskId, ToController},
    spec::SetName,
};

/// Maximum number of paths that one proc may register to be removed when it exits.
const MAX_CLEANUPS: usize = 4096;

impl Service {
    pub(super) fn control(
        &mut self,
        from: &Proc,
        proc: ProcId,
        targets: &[Proc],
        infos: &[Info],
    ) -> Answer {
        let all = [Proc::all(from.nspace.clone())];
        let targets = match targets {
            [] if self.is_tool(from) => return Answer::Status(Status::BAD_PARAM),
            [] => &all,
            targets => targets,
        };
        let mut status = Status::NOT_SUPPORTED;
        for Info { key, value, .. } in infos {
            let key = key.as_c_str();
            let signal = if key == keys::JOB_CTRL_KILL {
                Some(Signal::KILL)
            } else if key == keys::JOB_CTRL_TERMINATE {
                Some(Signal::TERM)
            } else if key == keys::JOB_CTRL_PAUSE {
                Some(Signal::STOP)
            } else if key == keys::JOB_CTRL_RESUME {
                Some(Signal::CONT)
            } else if key == keys::JOB_CTRL_SIGNAL {
                let number = value
                    .as_count()
                    .and_then(|number| i32::try_from(number).ok());
                match number.filter(|number| (1..=64).contains(number)) {
                    Some(number) => Some(Signal(number)),
                    None => return Answer::Status(Status::BAD_PARAM),
                }
            } else {
                None
            };
            if let Some(signal) = signal.filter(|_| value.is_set()) {
                status = self.signal(from, targets, signal);
            } else if self.is_tool(from) {
                // Files are removed when a proc exits.
            } else if key == keys::REGISTER_CLEANUP || key == keys::REGISTER_CLEANUP_DIR {
                let paths = self.cleanups.entry(proc).or_default();
                let Some(text) = value.as_text() else {
                    return Answer::Status(Status::BAD_PARAM);
                };
                let named = text.to_bytes().split(|byte| *byte == b',');
                let absolute = named.filter(|path| path.starts_with(b"/"));
                paths.extend(absolute.map(|path| std::ffi::OsStr::from_bytes(path).to_os_string()));
                status = if paths.len() > MAX_CLEANUPS {
                    paths.truncate(MAX_CLEANUPS);
                    Status::OUT_OF_RESOURCE
                } else {
                    Status::SUCCESS
                };
            }
        }
        Answer::Infos {
            status,
            infos: Vec::new(),
        }
    }

    /// Sends a signal to procs: of the caller's job, or of any job for a tool.
    fn signal(&mut self, from: &Proc, targets: &[Proc], signal: Signal) -> Status {
        if self.is_tool(from) {
            return self.signal_by_tool(targets, signal);
        }
        if targets.iter().any(|target| target.nspace != from.nspace) {
            return Status::NO_PERMISSIONS;
        }
        for (_, ranks) in self.ranks_of(targets.iter()) {
            self.demand(from, What::Signal(ranks, signal));
        }
        Status::SUCCESS
    }

    /// Asks the controller to define a process set of these procs, which belong to one job.
    ///
    /// # Errors
    ///
    /// The status that the process gets.
    pub(super) fn ask_for_set(
        &mut self,
        from: &Proc,
        ticket: Ticket,
        targets: &[Proc],
        infos: &[Info],
    ) -> Result<(), Status> {
        // One answer cannot say which of several orders has failed.
        let is_among = |info: &Info| OTHERS.iter().any(|key| info.key == **key);
        if infos.iter().any(is_among) {
            return Err(Status::NOT_SUPPORTED);
        }
        let is_it = |info: &&Info| info.key == *keys::JOB_CTRL_DEFINE_PSET;
        let name = infos
            .iter()
            .find(is_it)
            .and_then(|info| info.value.as_text());
        let name = name.and_then(|name| name.to_str().ok());
        let name = name.and_then(|name| SetName::try_from(name.to_owned()).ok());
        let name = name.ok_or(Status::BAD_PARAM)?;
        let all = [Proc::all(from.nspace.clone())];
        let targets = match targets {
            [] if self.is_tool(from) => return Err(Status::BAD_PARAM),
            [] => &all,
            targets => targets,
        };
        if !self.is_tool(from) && targets.iter().any(|proc| proc.nspace != from.nspace) {
            return Err(Status::NO_PERMISSIONS);
        }
        if !targets.iter().all(|proc| self.exists(proc)) {
            return Err(Status::NOT_FOUND);
        }
        let mut ranks = self.ranks_of(targets.iter()).into_iter();
        let (Some((job, ranks)), None) = (ranks.next(), ranks.next()) else {
            return Err(Status::NOT_SUPPORTED);
        };
        self.asked.insert(ticket.0, Command::JobControl);
        let defined = ToController::DefineSet {
            ticket: AskId::Pmix(ticket.0),
            job,
            name,
            ranks,
        };
        self.effects.push_back(Output::Send(defined));
        Ok(())
    }

    /// Returns true if a job has this proc, or if the name is that of all procs of a job.
    fn exists(&self, proc: &Proc) -> bool {
        let job = self.jobs.get(&proc.nspace);
        let ranks = job.and_then(|job| self.ranks.get(job));
        ranks.is_some_and(|ranks| proc.rank == PmixRank::WILDCARD || proc.rank.0 < ranks.size)
    }
}

/// Orders that cannot be in one request with the definition of a set.
const OTHERS: [&CStr; 7] = [
    keys::JOB_CTRL_KILL,
    keys::JOB_CTRL_TERMINATE,
    keys::JOB_CTRL_PAUSE,
    keys::JOB_CTRL_RESUME,
    keys::JOB_CTRL_SIGNAL,
    keys::REGISTER_CLEANUP,
    keys::REGISTER_CLEANUP_DIR,
];

/// Returns true if a request is to define a process set.
pub(super) fn defines_set(infos: &[Info]) -> bool {
    infos
        .iter()
        .any(|info| info.key == *keys::JOB_CTRL_DEFINE_PSET)
}
