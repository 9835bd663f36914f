//! Job control: signals, and files to remove when a proc exits.

use std::os::unix::ffi::OsStrExt;

use base::{ProcId, Signal};
use pmix::{
    keys,
    message::Answer,
    value::{Info, Proc, Status},
};

use super::{Service, What};

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
}
