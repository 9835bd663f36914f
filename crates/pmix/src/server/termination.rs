//! The end of a process, and who is told of it.

use base::ExitStatus;

use super::{Event, Server, event::From, info, job::called};
use crate::{
    keys,
    value::{Nspace, Proc, Range, Status, Value},
};

impl Server {
    pub(super) fn on_ended(&mut self, proc: &Proc, status: ExitStatus) {
        let Some(job) = self.jobs.get_mut(&proc.nspace) else {
            return;
        };
        let Some(stood) = job.ended(proc.rank, status) else {
            return;
        };
        let quiet = job.is_ending;
        self.monitors.forget(proc, &mut self.timers);
        self.forget_silence(proc);
        self.on_gone(proc);
        self.fail_gets_of_dead(proc);
        if !quiet {
            let (code, _) = called(stood, status);
            self.tell_termination(proc, code, status);
            self.tell_groups_of_failure(proc);
        }
    }

    /// Tells those who have registered for it: in the job of the process, in the one that has spawned that, and among
    /// those who have connected with it.
    fn tell_termination(&mut self, proc: &Proc, code: Status, status: ExitStatus) {
        let mut job = vec![Proc::all(proc.nspace.clone())];
        let parent = self
            .jobs
            .get(&proc.nspace)
            .and_then(|job| job.job.parent.as_ref());
        job.extend(parent.map(|parent| Proc::all(parent.nspace.clone())));
        // Those who make a group by invitation register for this code. They are not told of an end that is as it should
        // be: their library would tell on from its own thread, and wait for ever where its process is finalizing.
        if code != Status::EVENT_PROC_TERMINATED {
            self.tell(proc, Status::PROC_TERMINATED, status, job.clone());
        }
        let connected = self.connected_with(proc);
        if code == Status::PROC_TERM_WO_SYNC {
            job.extend(connected);
            self.tell(proc, code, status, job);
            return;
        }
        // It is enough for those who have connected with it that it has not disconnected.
        if !connected.is_empty() {
            self.tell(proc, Status::PROC_TERM_WO_SYNC, status, connected);
        }
        self.tell(proc, code, status, job);
    }

    fn tell(&mut self, proc: &Proc, code: Status, status: ExitStatus, to: Vec<Proc>) {
        let about = Value::Proc(Box::new(proc.clone()));
        // The second code only repeats what another says.
        let is_of_the_moment = matches!(
            code,
            Status::EVENT_PROC_TERMINATED | Status::PROC_TERMINATED
        );
        let infos = [
            info(keys::EVENT_NON_DEFAULT, Value::Bool(true)),
            info(keys::EVENT_AFFECTED_PROC, about),
            info(keys::EVENT_CUSTOM_RANGE, Value::procs(to)),
            info(keys::EXIT_CODE, Value::Int(status.code().into())),
            // Nobody is told of it later.
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
        self.deliver(&event, From::Peer);
    }

    /// The ends of a job's processes are no news from now on: the host ends them.
    pub(super) fn on_ending(&mut self, nspace: &Nspace) {
        if let Some(job) = self.jobs.get_mut(nspace) {
            job.is_ending = true;
        }
    }
}
