//! Fronts that are connected, or are lost while their jobs end; their jobs, and the output that each front has yet to credit.
//!
//! A front submits at most one job, and gets its outcome. A second submission violates the protocol. A job that the
//! front's job spawns, or that a spawned job spawns in turn, also belongs to the front. The controller forgets a front
//! when its job is finished or refused, or when the front is lost and has no job.
//!
//! | state of a front | submits a job | sends a request | its submitted job is finished | connection lost |
//! |---|---|---|---|---|
//! | `Connected`, no job | job is added, or refused and the front forgotten | `StartTool`: like a job; `Release`, `Holds`, `LostNodes`: answered; others: ignored | – | forgotten |
//! | `Connected`, with a job | disconnected → `Lost` | handled; input above the credit: disconnected → `Lost` | gets the outcome; forgotten | end its jobs → `Lost` |
//! | `Lost` | – | – | forgotten | – |

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use base::{JobId, NodeId, RankSet, Signal, Time};

use super::{Controller, ControllerOutput, Job, MAX_JOBS, Origin, Phase, job::ASKS_FOR_END};
use crate::{
    planted::{self, Bug},
    proto::{
        Cause, Chunk, EndReason, FromFront, FrontId, HoldingJob, JobRef, NotReleased, OutputCredit,
        Refusal, Stream, ToDaemon, ToFront,
    },
    spec::JobSpec,
    stdio,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Connected,
    /// The connection was lost, or the controller has closed it. The front's jobs are being ended, and their output is
    /// dropped.
    Lost,
}

#[derive(Debug)]
pub(super) struct Front {
    pub(super) pid: u32,
    state: State,
    /// The job that this front has submitted; `None` before that.
    pub(super) job: Option<JobId>,
    /// Output that was sent to this front and that the front has not credited yet, for stdout and stderr, in units of
    /// [`stdio::cost`]. Bounded: for each job and stream, a node sends at most its window before it gets credit.
    uncredited: BTreeMap<(JobId, NodeId), [u64; 2]>,
}

impl Controller {
    pub(super) fn on_connected(&mut self, id: FrontId, pid: u32) {
        let front = Front {
            pid,
            state: State::Connected,
            job: None,
            uncredited: BTreeMap::new(),
        };
        if self.fronts.insert(id, front).is_some() {
            self.log(format!("front {id} has connected twice"));
        }
    }

    pub(super) fn on_front(&mut self, now: Time, id: FrontId, message: FromFront) {
        // The front may have sent the message before it learned that its job is finished or that it was disconnected.
        // Ignore such a message.
        let front = self.fronts.get(&id);
        let Some(front) = front.filter(|front| front.state == State::Connected) else {
            return;
        };
        let own = front.job;
        match message {
            FromFront::Submit(_) | FromFront::SubmitBeside(_)
                if own.is_some() || self.waits_in_queue(id) =>
            {
                self.dismiss(id);
            }
            FromFront::StartTool(_) if self.waits_in_queue(id) => self.dismiss(id),
            FromFront::StartTool(request) => self.on_start_tool(now, id, own, *request),
            FromFront::Submit(spec) => {
                if let Some(spec) = self.enqueue(now, id, spec) {
                    self.controlling.on_submit(id);
                    self.submit(now, id, spec);
                }
            }
            FromFront::SubmitBeside(spec) => self.submit(now, id, spec),
            FromFront::Ask(ask) => self.on_machine_ask(now, id, *ask),
            FromFront::Stdin(bytes) if planted::is(Bug::InputToEveryFront) => {
                for job in self.living() {
                    self.with(job, |job| {
                        job.on_input(&bytes);
                    });
                }
            }
            FromFront::Stdin(bytes) => {
                let mut allowed = true;
                self.with_own(own, |job| allowed = job.on_input(&bytes));
                if !allowed {
                    self.dismiss(id);
                }
            }
            FromFront::StdinEof => self.with_own(own, Job::on_input_end),
            FromFront::OutputCredit(credit) => self.on_output_credit(id, credit),
            FromFront::Signal(signal)
                if ASKS_FOR_END.contains(&signal)
                    && self.withdraw(now, id, EndReason::Signal(signal)) => {}
            FromFront::Signal(signal) => self.on_signal(id, own, signal),
            FromFront::End(reason) | FromFront::Kill(reason) if self.withdraw(now, id, reason) => {}
            FromFront::End(reason) => self.end_all_of(id, reason),
            FromFront::Kill(reason) => {
                for job in self.jobs_of(id) {
                    self.with(job, |job| job.kill(Cause::Ended(reason)));
                }
            }
            FromFront::Release { job, ranks } => self.on_release(id, own, job, ranks.as_ref()),
            FromFront::Resize(size) => self.with_own(own, |job| job.resize(size)),
            FromFront::Holds => self.on_holds(id),
            FromFront::LostNodes => {
                let lost = self.lost.values().cloned();
                let lost = lost.chain(self.retired_of_jobs()).collect();
                self.tell(id, ToFront::Lost(lost));
            }
            // The controller's host handles prompts, so that no answer is recorded.
            FromFront::Prompt(_) | FromFront::Answer(..) => {}
        }
    }

    fn with_own(&mut self, own: Option<JobId>, act: impl FnOnce(&mut Job)) {
        if let Some(id) = own {
            self.with(id, act);
        }
    }

    fn submit(&mut self, now: Time, id: FrontId, spec: Box<JobSpec>) {
        if self.jobs.len() >= MAX_JOBS {
            self.tell(
                id,
                ToFront::Refused(Refusal::TooManyJobs { most: MAX_JOBS }),
            );
            return self.finish_front(id);
        }
        if !spec.needs.is_empty() {
            self.tell(id, ToFront::Refused(Refusal::NothingCounted));
            return self.finish_front(id);
        }
        let job = JobId(self.next_job);
        if let Some(front) = self.fronts.get_mut(&id) {
            front.job = Some(job);
        }
        self.tell(id, ToFront::Accepted(job));
        self.add(now, spec, Origin::Front, id, job);
        self.wait_for_tool(job);
    }

    /// Returns the jobs of a front in the order of their ids: the job that it submitted, and that job's descendants.
    pub(super) fn jobs_of(&self, front: FrontId) -> Vec<JobId> {
        let jobs = self.jobs.values().filter(|job| job.front == front);
        jobs.map(|job| job.id).collect()
    }

    /// Returns the jobs of a front without the tools beside them: signals for the ranks do not concern these.
    fn applications_of(&self, front: FrontId) -> Vec<JobId> {
        let mut jobs = self.jobs_of(front);
        let is_tool = |id: &JobId| {
            let job = self.jobs.get(id);
            job.is_some_and(|job| job.origin == Origin::Beside)
        };
        jobs.retain(|id| !is_tool(id));
        jobs
    }

    /// Returns the job that the front with this pid has submitted.
    pub(super) fn job_of_front(&self, pid: u32) -> Option<JobId> {
        // The pid of a lost front may have been reused. Pid 0 stands for a process in another pid namespace.
        let is_meant = |front: &&Front| {
            front.pid == pid && front.state == State::Connected && front.job.is_some()
        };
        let mut fronts = self.fronts.values().filter(|_| pid != 0);
        fronts.find(is_meant).and_then(|front| front.job)
    }

    pub(super) fn end_all_of(&mut self, front: FrontId, reason: EndReason) {
        for id in self.jobs_of(front) {
            self.end(id, Cause::Ended(reason));
        }
    }

    fn on_release(
        &mut self,
        asker: FrontId,
        own: Option<JobId>,
        job: JobRef,
        ranks: Option<&RankSet>,
    ) {
        let id = self.job_meant(own, job);
        let Some(job) = id.and_then(|id| self.jobs.get_mut(&id)) else {
            return self.tell(asker, ToFront::NotReleased(NotReleased::NoSuchJob));
        };
        // Once the job is being ended, only the front that submitted it may still release its ranks: a held rank must
        // run to handle SIGTERM. For other fronts, the job does not exist any more.
        if job.is_ending() && own != Some(job.id) {
            return self.tell(asker, ToFront::NotReleased(NotReleased::NoSuchJob));
        }
        let (id, is_owner) = (job.id, job.front == asker && job.is_of_front());
        let freed = job.release(ranks);
        let held = job.hold.left();
        self.route(id);
        match freed {
            None => self.tell(asker, ToFront::NotReleased(NotReleased::NothingHeld)),
            // `Job::release` has already sent this message to the front that submitted the job.
            Some(_) if is_owner => {}
            Some(ranks) => self.tell(
                asker,
                ToFront::Released {
                    job: id,
                    ranks,
                    held,
                },
            ),
        }
    }

    fn on_holds(&mut self, asker: FrontId) {
        let holds = |job: &&Job| !job.is_ending() && !job.hold.left().is_empty();
        let jobs = self.jobs.values().filter(holds).map(|job| HoldingJob {
            job: job.id,
            front: match job.origin {
                Origin::Front | Origin::Controlled { .. } => {
                    self.fronts.get(&job.front).map(|front| front.pid)
                }
                Origin::Spawned { .. } | Origin::Beside => None,
            },
        });
        let jobs = jobs.collect();
        self.tell(asker, ToFront::Holding(jobs));
    }

    pub(super) fn on_output(&mut self, now: Time, id: JobId, node: NodeId, chunk: Chunk) {
        let Some(job) = self.jobs.get(&id) else {
            return;
        };
        let (front, stream, bytes) = (job.front, chunk.stream, stdio::cost(chunk.bytes.len()));
        if !job.prints(stream) {
            // The server of the tool has its copy.
            return self.credit_node(id, node, stream, bytes);
        }
        // A machine keeps all output of a run.
        let Some(chunk) = self.capture(now, front, node, chunk) else {
            return;
        };
        if self.subscribers.is_redirected(id, chunk.rank, stream) {
            return self.credit_node(id, node, stream, bytes);
        }
        match self.fronts.get_mut(&front) {
            Some(front) if front.state == State::Connected => {
                front.uncredited.entry((id, node)).or_default()[stream as usize] += bytes;
            }
            // The front is lost and will send no credit, so credit the output in its place. Otherwise the procs would
            // block on full pipes while they are being ended.
            Some(_) | None => {
                return self.credit_node(id, node, stream, bytes);
            }
        }
        self.tell(front, ToFront::Output { node, chunk });
    }

    /// Passes a front's credit on to the node that produced the printed or discarded output. Credit beyond the uncredited
    /// output is ignored.
    fn on_output_credit(&mut self, id: FrontId, credit: OutputCredit) {
        let OutputCredit {
            job,
            node,
            stream,
            bytes,
        } = credit;
        let Some(front) = self.fronts.get_mut(&id) else {
            return;
        };
        let Some(uncredited) = front.uncredited.get_mut(&(job, node)) else {
            return;
        };
        let uncredited = &mut uncredited[stream as usize];
        let bytes = bytes.min(*uncredited);
        *uncredited -= bytes;
        if planted::is(Bug::CreditSpreadEvenly) {
            let nodes = self.jobs.get(&job).into_iter();
            let nodes: Vec<_> = nodes.flat_map(|job| job.shares.keys().copied()).collect();
            for node in &nodes {
                self.credit_node(job, *node, stream, bytes / nodes.len() as u64);
            }
            return;
        }
        self.credit_node(job, node, stream, bytes);
    }

    pub(super) fn credit_node(&mut self, id: JobId, node: NodeId, stream: Stream, bytes: u64) {
        let job = self.jobs.get(&id);
        let share = job.and_then(|job| job.shares.get(&node));
        if bytes > 0 && share.is_some_and(|share| !share.clean) {
            let credit = ToDaemon::OutputCredit {
                job: id,
                stream,
                bytes,
            };
            self.outputs
                .push_back(ControllerOutput::Daemon(node, credit));
        }
    }

    pub(super) fn on_front_lost(&mut self, id: FrontId) {
        let Some(front) = self.fronts.get_mut(&id) else {
            return;
        };
        front.state = State::Lost;
        self.machine_front_lost(id);
        let Some(front) = self.fronts.get_mut(&id) else {
            return;
        };
        let uncredited = std::mem::take(&mut front.uncredited);
        // The lost front will not credit this output any more, so credit it in its place.
        if !planted::is(Bug::FrontLostForgetsCredit) {
            for ((job, node), bytes) in uncredited {
                for stream in Stream::BOTH {
                    self.credit_node(job, node, stream, bytes[stream as usize]);
                }
            }
        }
        let mut jobs = self.jobs_of(id);
        if planted::is(Bug::FrontLostEndsOthers) {
            jobs = self.living();
        }
        if jobs.is_empty() {
            self.fronts.remove(&id);
        }
        // End the jobs in reverse order, so that each spawned job is ended before its spawner. `Controller::end` would
        // otherwise end it as a descendant, with the grace of its own specification instead of `LOSS_GRACE`.
        for job in jobs.into_iter().rev() {
            let phase = self.jobs.get(&job).map(|job| job.phase);
            let cause = Cause::Ended(EndReason::FrontLost);
            if phase == Some(Phase::Ending) {
                // The job already has the grace of its own specification, which may be much longer than `LOSS_GRACE`.
                // No user waits for its end any more, so kill it without further grace.
                self.with(job, |job| job.kill(cause));
            } else {
                self.end(job, cause);
            }
        }
    }

    /// Disconnects a front that has violated the protocol, and handles it like a lost one: its jobs are ended.
    fn dismiss(&mut self, id: FrontId) {
        self.on_front_lost(id);
        self.outputs.push_back(ControllerOutput::Finished(id));
    }

    /// Forgets a front whose job is finished or was refused. The caller has sent the front its last message. If the front
    /// is still connected, its connection is closed.
    pub(super) fn finish_front(&mut self, id: FrontId) {
        if let Some(front) = self.fronts.remove(&id)
            && front.state == State::Connected
        {
            self.outputs.push_back(ControllerOutput::Finished(id));
        }
    }

    /// Drops the records of uncredited output of a finished job: all its nodes are clean, so they need no more credit.
    pub(super) fn forget_uncredited(&mut self, job: JobId) {
        for front in self.fronts.values_mut() {
            front.uncredited.retain(|(of, _), _| *of != job);
        }
    }

    /// Sends a signal to all ranks of a front's jobs. If its own job is not launched yet, it may end instead, and with it what tools have
    /// spawned meanwhile.
    fn on_signal(&mut self, id: FrontId, own: Option<JobId>, signal: Signal) {
        let job = own.and_then(|own| self.jobs.get(&own));
        let waiting = job.filter(|job| job.phase == Phase::Waiting);
        if let Some(job) = waiting.filter(|_| ASKS_FOR_END.contains(&signal)) {
            return self.end(job.id, Cause::Ended(EndReason::Signal(signal)));
        }
        for job in self.applications_of(id) {
            self.with(job, |job| job.signal(signal));
        }
    }

    pub(super) fn tell(&mut self, id: FrontId, message: ToFront) {
        if let ToFront::Note(note) = &message {
            self.note_in_output(id, note);
        }
        let front = self.fronts.get(&id);
        if front.is_some_and(|front| front.state == State::Connected) {
            self.outputs.push_back(ControllerOutput::Front(id, message));
        }
    }
}
