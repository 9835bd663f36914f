//! Events about the end of a process.

use base::ExitStatus;

use super::{Event, Server, event::From, info, job::end_codes};
use crate::{
    keys,
    planted::{self, Bug},
    value::{Nspace, Proc, Range, Status, Value},
};

impl Server {
    pub(super) fn on_ended(&mut self, proc: &Proc, status: ExitStatus) {
        let Some(job) = self.jobs.get_mut(&proc.nspace) else {
            return;
        };
        let Some(phase) = job.ended(proc.rank, status) else {
            return;
        };
        let quiet = job.is_ending;
        self.monitors.forget(proc, &mut self.timers);
        self.forget_silence(proc);
        self.on_gone(proc);
        self.fail_gets_of_dead(proc);
        if !quiet {
            let (code, _) = end_codes(phase, status);
            self.tell_termination(proc, code, status);
            self.tell_groups_of_failure(proc);
        }
    }

    /// Sends the events about the end of a process to registered processes. These are in its own job, in the job that
    /// spawned it, and in the sets of processes that it is connected with.
    fn tell_termination(&mut self, proc: &Proc, code: Status, status: ExitStatus) {
        let mut job = vec![Proc::all(proc.nspace.clone())];
        let parent = self
            .jobs
            .get(&proc.nspace)
            .and_then(|job| job.job.parent.as_ref());
        job.extend(parent.map(|parent| Proc::all(parent.nspace.clone())));
        // Processes that construct a group by invitation register for PROC_TERMINATED. It is not sent for a regular
        // end: their library would send events from its own thread, and hang if its process is finalizing.
        if code != Status::EVENT_PROC_TERMINATED && !planted::is(Bug::DeathOfGuestNotTold) {
            self.tell(proc, Status::PROC_TERMINATED, status, job.clone());
        }
        let connected = self.connected_with(proc);
        if code == Status::PROC_TERM_WO_SYNC {
            job.extend(connected);
            self.tell(proc, code, status, job);
            return;
        }
        // Connected processes always get PROC_TERM_WO_SYNC: the process has ended without disconnecting.
        if !connected.is_empty() {
            self.tell(proc, Status::PROC_TERM_WO_SYNC, status, connected);
        }
        self.tell(proc, code, status, job);
    }

    fn tell(&mut self, proc: &Proc, code: Status, status: ExitStatus, to: Vec<Proc>) {
        let about = Value::Proc(Box::new(proc.clone()));
        // PROC_TERMINATED duplicates the more specific code that is sent as well.
        let is_of_the_moment = matches!(
            code,
            Status::EVENT_PROC_TERMINATED | Status::PROC_TERMINATED
        );
        let infos = [
            info(keys::EVENT_NON_DEFAULT, Value::Bool(true)),
            info(keys::EVENT_AFFECTED_PROC, about),
            info(keys::EVENT_CUSTOM_RANGE, Value::procs(to)),
            info(keys::EXIT_CODE, Value::Int(status.code().into())),
            // Do not replay it to processes that register later.
            is_of_the_moment
                .then(|| info(keys::EVENT_DO_NOT_CACHE, Value::Bool(true)))
                .flatten(),
        ];
        let event = Event {
            status: code,
            source: proc.clone(),
            range: Range::CUSTOM,
            infos: infos.into_iter().flatten().collect(),
        };
        // On a thousand nodes, regular ends of all ranks would be a million messages.
        let from = if code == Status::EVENT_PROC_TERMINATED
            && !self.events.are_ends_wanted()
            && !planted::is(Bug::EndsToAllNodes)
        {
            From::Host
        } else {
            From::Peer
        };
        self.deliver(&event, from);
    }

    /// Stops events about ends of a job's processes, because the host is ending the job.
    pub(super) fn on_ending(&mut self, nspace: &Nspace) {
        if let Some(job) = self.jobs.get_mut(nspace) {
            job.is_ending = true;
        }
    }
}
