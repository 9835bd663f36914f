//! The state machine of the daemon of one node. It starts, feeds, reads, signals and ends the procs of its node, and
//! reports to the controller.
//!
//! It performs no I/O: it takes [`Input`]s and the time, and returns [`Output`]s that the caller carries out.
//!
//! Failures and the daemon's response:
//!
//! | failure | detected by | response |
//! |---|---|---|
//! | a proc exits | [`Input::Exited`] | report it once, after its output; the job's sweep ends what it left behind |
//! | a proc runs as another user by now | [`Input::NotPermitted`] | unless it exits by itself, report its pid and abandon it |
//! | a proc survives SIGKILL | a deadline | report its pid and abandon it |
//! | a proc's PMI connection closes | [`Input::PmiClosed`] | drop its pending fence; the proc keeps running |
//! | the controller is lost | the caller, which owns the link | [`Daemon::controller_lost`]: kill everything |
//!
//! Phases of a job on its node:
//!
//! | phase | all procs done | end requested | kill requested | deadline | sweep finished |
//! |---|---|---|---|---|---|
//! | `Running` | → `Sweeping` | SIGTERM → `Ending` | SIGKILL → `Killing` | – | ignored |
//! | `Ending` | → `Sweeping` | ignored | SIGKILL → `Killing` | SIGKILL → `Killing` | ignored |
//! | `Killing` | → `Sweeping` | ignored | ignored | report the remaining procs as *stuck* and abandon them | ignored |
//! | `Sweeping` | – | ignored | SIGKILL to the processes left | stronger signal, finally *stuck* | none are left → `Clean` |

mod events;
mod forms;
mod job;
mod merger;
mod preloads;
mod service;
mod sweep;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use base::{JobId, NodeId, ProcId, Rank, RankSet, Time, Topology};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

pub use self::{
    events::{
        Caller, Input, Output, PMI_DESCRIPTOR, PmiConnection, ProcEnd, SpawnOrder, StreamPlan,
    },
    service::{ServiceConfig, Tools},
};
use self::{
    job::{Kind, LocalJob, beside::Target},
    merger::{MessageMerger, Passed},
    service::{Demand, PushId, Pushed, Service, What},
};
use crate::{
    life::Unexpected,
    place::{Placed, TopologyDigest},
    planted::{self, Bug},
    preload::Store,
    proto::{AskId, FenceNews, Launch, NodeLoad, PushResult, ToController, ToDaemon, VERSION},
    spec::NodeResources,
};

/// Delay between SIGTERM and SIGKILL after the controller is lost. It is short because all our processes must be gone
/// within 2 s.
pub const LOSS_GRACE: Duration = Duration::from_millis(700);

/// The daemon's description of its own node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DaemonConfig {
    pub node: NodeId,
    pub host: String,
    pub topology: Topology,
    pub resources: NodeResources,
    /// Number of descriptors that the daemon may have open simultaneously.
    pub descriptors: u64,
    /// Configuration of the PMIx server; `None` if the daemon serves no PMIx.
    pub service: Option<ServiceConfig>,
}

/// The state machine of a daemon.
#[derive(Debug)]
pub struct Daemon {
    config: DaemonConfig,
    /// In boxes: the map makes room for eleven jobs at a time.
    jobs: BTreeMap<JobId, Box<LocalJob>>,
    /// Preloaded files of jobs, from before the launch until the job is over.
    stores: BTreeMap<JobId, Store>,
    /// In a box, because it is larger than the rest, and a daemon may have none.
    service: Option<Box<Service>>,
    outputs: VecDeque<Output>,
    merger: MessageMerger,
}

impl Daemon {
    /// Creates a daemon whose first output is its `Hello` to the controller.
    #[must_use]
    pub fn new(config: DaemonConfig) -> Self {
        let hello = ToController::Hello {
            version: VERSION,
            node: config.node,
            host: config.host.clone(),
            topology: TopologyDigest::of(&config.topology),
            resources: config.resources.clone(),
        };
        Self {
            service: config
                .service
                .clone()
                .map(|service| Box::new(Service::new(config.node, service))),
            config,
            jobs: BTreeMap::new(),
            stores: BTreeMap::new(),
            outputs: VecDeque::from([Output::Send(hello)]),
            merger: MessageMerger::default(),
        }
    }

    /// Handles one event. Never blocks and never fails: a failure is reported as an [`Output`].
    #[expect(clippy::too_many_lines, reason = "one arm for each input")]
    pub fn handle(&mut self, now: Time, input: Input<'_>) {
        match input {
            Input::Message(message) => self.on_message(now, message),
            Input::Spawned {
                proc,
                pid,
                executable,
            } => {
                self.serve(now, |service, now| service.on_spawned(now, proc, pid));
                self.in_job(proc, |job, out| {
                    job.on_spawned(now, proc.rank, pid, executable, out)
                });
            }
            Input::Unstartable { job, failures } => {
                self.job(job, |job, out| job.refuse(now, &failures, out))
            }
            Input::Unenforced { job, unenforced } => {
                self.job(job, |job, _| job.set_unenforced(unenforced));
            }
            Input::SpawnFailed { proc, failure } => {
                self.in_job(proc, |job, out| {
                    job.on_spawn_failed(now, proc.rank, failure, out)
                });
            }
            Input::Trapped { proc } => self.in_job(proc, |job, out| job.on_trapped(proc.rank, out)),
            Input::Untraced { job, left, lost } => {
                if let Some(job) = self.jobs.get_mut(&job) {
                    job.on_untraced(&left, lost, &mut self.outputs);
                }
            }
            Input::Exited {
                proc,
                end: ProcEnd { status, used },
            } => {
                self.in_job(proc, |job, out| {
                    job.spend(&used);
                    job.on_exited(now, proc.rank, status, out)
                });
                if !planted::is(Bug::EndNotToldToPmix) {
                    self.serve(now, |service, now| service.on_exited(now, proc, status));
                }
            }
            Input::LastCall { proc, last } => {
                self.job(proc.job, |job, out| job.on_last_call(proc.rank, last, out));
            }
            Input::ClientAccepted { conn, owner } => {
                self.serve(now, |service, now| service.on_accepted(now, conn, owner));
            }
            Input::ClientBytes { conn, bytes } => {
                self.serve(now, |service, now| service.on_bytes(now, conn, bytes));
            }
            Input::Called { conn, caller } => {
                self.serve(now, |service, now| service.on_called(now, conn, &caller));
            }
            Input::ClientClosed { conn } => {
                self.serve(now, |service, now| service.on_closed(now, conn));
            }
            Input::Output {
                proc,
                stream,
                bytes,
            } => {
                let copy = bytes.clone();
                self.serve(now, |service, now| {
                    service.on_output(now, proc, stream, copy);
                });
                self.in_job(proc, |job, out| {
                    job.on_output(now, proc.rank, stream, bytes, out);
                    Ok(())
                });
            }
            Input::OutputEnded { proc, stream } => {
                self.serve(now, |service, now| {
                    service.on_output(now, proc, stream, Bytes::new());
                });
                self.in_job(proc, |job, out| {
                    job.on_output_ended(now, proc.rank, stream, out);
                    Ok(())
                });
            }
            Input::StdinWritten { proc } => {
                self.in_job(proc, |job, out| {
                    job.on_stdin_written(proc.rank, out);
                    Ok(())
                });
            }
            Input::StdinBroken { proc } => {
                self.in_job(proc, |job, out| {
                    job.on_stdin_broken(proc.rank, out);
                    Ok(())
                });
            }
            Input::Pmi { proc, bytes } => {
                self.in_job(proc, |job, out| {
                    job.on_pmi(now, proc.rank, bytes, out);
                    Ok(())
                });
            }
            Input::PmiClosed { proc } => {
                self.in_job(proc, |job, out| {
                    job.on_pmi_closed(now, proc.rank, out);
                    Ok(())
                });
            }
            Input::NotPermitted { proc, pid } => {
                if let Some(job) = self.jobs.get_mut(&proc.job) {
                    job.on_not_permitted(now, proc.rank, pid);
                }
            }
            Input::Swept {
                job,
                left,
                not_permitted,
                counted,
            } => {
                if let Some(local) = self.jobs.get_mut(&job) {
                    local.count(counted);
                    local.on_swept(now, &left, not_permitted, &mut self.outputs);
                }
            }
            Input::StrayExited => {
                for job in self.jobs.values_mut() {
                    job.on_stray_exited(&mut self.outputs);
                }
            }
            Input::Measured {
                job,
                number,
                procs,
                counted,
            } => {
                let measured = ToController::Measured {
                    job,
                    number,
                    procs,
                    counted,
                };
                self.outputs.push_back(Output::Send(measured));
            }
            Input::DaemonMeasured { number, memory } => {
                let measured = ToController::DaemonMeasured { number, memory };
                self.outputs.push_back(Output::Send(measured));
            }
            Input::Syslogged { ticket, result } => {
                self.serve(now, |service, now| service.on_logged(now, ticket, result));
            }
            Input::FilesActed { job, result } => self.on_files_acted(job, result),
            Input::Tick => {
                for job in self.jobs.values_mut() {
                    job.on_tick(now, &mut self.outputs);
                }
                self.serve(now, Service::on_tick);
            }
        }
        self.answer_pushes(now);
        self.forget_clean(now);
    }

    /// Returns the next action. Call it after every [`Self::handle`] until it returns `None`.
    pub fn poll(&mut self) -> Option<Output> {
        loop {
            while let Some(output) = self.outputs.pop_front() {
                match self.merger.pass(output) {
                    Passed::On(output) => return Some(output),
                    Passed::Kept => {}
                    Passed::After(first, output) => {
                        self.outputs.push_front(output);
                        return Some(first);
                    }
                }
            }
            if let Some(collected) = self.merger.take() {
                return Some(collected);
            }
            for job in self.jobs.values_mut() {
                job.start_next(&mut self.outputs);
            }
            if self.outputs.is_empty() {
                return None;
            }
        }
    }

    /// Returns the time at which [`Input::Tick`] is due.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        let jobs = self.jobs.values().filter_map(|job| job.deadline()).min();
        let service = self.service.as_deref().and_then(Service::deadline);
        [jobs, service].into_iter().flatten().min()
    }

    /// Ends every job with [`LOSS_GRACE`], because the controller is gone.
    pub fn controller_lost(&mut self, now: Time) {
        if planted::is(Bug::ControllerLossIgnored) {
            return;
        }
        self.drop_unlaunched();
        for job in self.jobs.values_mut() {
            job.controller_lost(now, LOSS_GRACE, &mut self.outputs);
        }
    }

    /// Returns true if no job remains on this node.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.jobs.is_empty()
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each message")]
    fn on_message(&mut self, now: Time, message: ToDaemon) {
        let out = &mut self.outputs;
        match message {
            ToDaemon::Launch(launch) => {
                let id = launch.job;
                if self.jobs.contains_key(&id) {
                    out.push_back(Output::Log(format!(
                        "job {id} is launched twice: the second launch is ignored"
                    )));
                    return;
                }
                let Some(own) = OwnNode::of(self.config.node, &launch) else {
                    out.push_back(Output::Log(format!(
                        "job {id} is launched where it has no procs: ignored"
                    )));
                    return;
                };
                let launch = self.with_preloaded(launch);
                let target = launch.beside.as_ref().map(|beside| beside.target);
                let target = target.map(|target| {
                    let target = self.jobs.get(&target);
                    target.map_or_else(Target::default, |target| target.as_target())
                });
                // Procs of a tool are no clients.
                let service = self.service.as_mut().filter(|_| target.is_none());
                let environment = service.map(|service| {
                    service.register(now, &self.config, &own, &launch);
                    service.environment(id)
                });
                let kind = target.map_or(Kind::Application(environment), Kind::Tool);
                let out = &mut self.outputs;
                let job = LocalJob::launch(now, &self.config, own, launch, kind, out);
                self.jobs.insert(id, Box::new(job));
            }
            ToDaemon::Preload { job, what } => self.on_preload(job, what),
            ToDaemon::Starter(_) | ToDaemon::Leave => {
                out.push_back(Output::Log("a message for its process came".to_owned()));
            }
            ToDaemon::SendTopology => {
                let answer = ToController::Topology(Box::new(self.config.topology.clone()));
                self.outputs.push_back(Output::Send(answer));
            }
            ToDaemon::Server(message) => {
                self.serve(now, |service, now| service.on_server(now, *message));
            }
            ToDaemon::LaunchedElsewhere(launch) => {
                if let Some(service) = &mut self.service {
                    service.register_elsewhere(now, &self.config, &launch);
                }
                self.serve(now, |_, _| {});
            }
            ToDaemon::Event { event } => {
                self.serve(now, |service, now| service.on_event(now, &event));
            }
            ToDaemon::Answer {
                ticket: AskId::Pmix(ticket),
                answer,
            } => {
                self.serve(now, |service, now| service.on_answer(now, ticket, &answer));
            }
            ToDaemon::Answer {
                ticket: AskId::Pmi { job, number },
                answer,
            } => self.job(job, |job, out| job.on_answer(now, number, &answer, out)),
            ToDaemon::Stdin { job, bytes } => self.job(job, |job, out| job.on_stdin(&bytes, out)),
            ToDaemon::StdinEof { job } => self.job(job, LocalJob::on_stdin_eof),
            ToDaemon::OutputCredit { job, stream, bytes } => {
                self.job(job, |job, out| {
                    job.on_output_credit(now, stream, bytes, out)
                });
            }
            ToDaemon::Signal { job, signal } => self.job(job, |job, out| job.signal(signal, out)),
            ToDaemon::Measure { job, number } => out.push_back(Output::Measure { job, number }),
            ToDaemon::MeasureDaemon { number } => out.push_back(Output::MeasureDaemon { number }),
            ToDaemon::Push {
                job,
                number,
                ranks,
                bytes,
                is_last,
            } => {
                let pushed = Pushed {
                    id: PushId::Controller(number),
                    ranks,
                    bytes,
                    is_last,
                };
                self.job(job, |job, out| job.on_pushed(pushed, out));
            }
            ToDaemon::SignalRanks { job, ranks, signal } => {
                self.job(job, |job, out| job.signal_ranks(&ranks, signal, out));
            }
            ToDaemon::End { job, grace } => {
                self.serve(now, |service, now| service.on_ending(now, job));
                self.job(job, |job, out| job.end(now, grace, out));
            }
            ToDaemon::Kill { job } => {
                self.serve(now, |service, now| service.on_ending(now, job));
                self.job(job, |job, out| job.kill(now, out));
            }
            ToDaemon::Release { job, ranks } => {
                self.job(job, |job, out| job.release(&ranks, out));
                self.serve(now, |service, now| service.release(now, job, ranks));
            }
            ToDaemon::Resize { job, size } => self.job(job, |job, out| job.resize(size, out)),
            ToDaemon::Fenced {
                job,
                number,
                shares,
            } => self.job(job, |job, out| job.on_gathered(now, number, shares, out)),
            ToDaemon::ExitedElsewhere { job, state } => {
                self.job(job, |job, _| job.on_exited_elsewhere(now, state));
            }
            ToDaemon::FenceAwaited { id, gather } => {
                // No rank of a job that is over on this node will join the fence.
                if self.jobs.get(&id.job).is_none_or(|job| job.has_no_fences()) {
                    let news = FenceNews::Declined { gather };
                    let declined = ToController::Fence { id, news };
                    self.outputs.push_back(Output::Send(declined));
                }
            }
        }
    }

    /// Applies `act` to a job. An unknown job is ignored: its last message and the controller's next one may cross.
    fn job(&mut self, id: JobId, act: impl FnOnce(&mut LocalJob, &mut VecDeque<Output>)) {
        if let Some(job) = self.jobs.get_mut(&id) {
            act(job, &mut self.outputs);
        }
    }

    fn in_job(
        &mut self,
        proc: ProcId,
        act: impl FnOnce(&mut LocalJob, &mut VecDeque<Output>) -> Result<(), Unexpected>,
    ) {
        if let Some(job) = self.jobs.get_mut(&proc.job)
            && let Err(Unexpected { state, event }) = act(job, &mut self.outputs)
        {
            self.outputs.push_back(Output::Log(format!(
                "proc {proc}: `{event}` in state {state:?}"
            )));
        }
    }

    /// Runs `act` on the service, then carries out the demands that the service has for the jobs.
    fn serve(&mut self, now: Time, act: impl FnOnce(&mut Service, Time)) {
        let Some(service) = &mut self.service else {
            return;
        };
        act(service, now);
        while let Some(demand) = service.poll(now, &mut self.outputs) {
            let id = demand.proc.job;
            match (self.jobs.get_mut(&id), demand.what) {
                (Some(job), What::Ready) => {
                    let ProcId { job: id, rank } = demand.proc;
                    if !job.on_ready(rank, &mut self.outputs) {
                        service.release(now, id, RankSet::single(rank));
                    }
                }
                (Some(job), what) => {
                    let proc = demand.proc;
                    job.on_demand(now, Demand { proc, what }, &mut self.outputs);
                    for (push, result) in job.taken() {
                        answer_push(now, service, id, push, result, &mut self.outputs);
                    }
                }
                // The job is over, so no proc will read the bytes.
                (None, What::Feed(Pushed { id: push, .. })) => {
                    let result = PushResult::Unread;
                    answer_push(now, service, id, push, result, &mut self.outputs);
                }
                (None, _) => {}
            }
        }
    }

    /// Sends the results of pushes that were written, or that never will be.
    fn answer_pushes(&mut self, now: Time) {
        let Some(service) = &mut self.service else {
            return;
        };
        for (id, job) in &mut self.jobs {
            for (push, result) in job.taken() {
                answer_push(now, service, *id, push, result, &mut self.outputs);
            }
        }
        self.serve(now, |_, _| {});
    }

    fn forget_clean(&mut self, now: Time) {
        let clean = self.jobs.extract_if(.., |_, job| job.is_clean());
        let clean: Vec<(JobId, Box<LocalJob>)> = clean.collect();
        let count = clean.len();
        for (number, (id, mut job)) in clean.into_iter().enumerate() {
            let left = self.jobs.len() + count - 1 - number;
            let service = self.service.as_mut();
            let refused = service.map(|service| service.last_words(id, left));
            job.leave_fences(&mut self.outputs);
            if let Some(ranks) = job.unfinished() {
                let left = ToController::ExitedUnfinalized { job: id, ranks };
                self.outputs.push_back(Output::Send(left));
            }
            for note in refused.into_iter().flatten() {
                let note = ToController::Note { job: id, note };
                self.outputs.push_back(Output::Send(note));
            }
            if !planted::is(Bug::FilesKeptAfterJob) {
                self.remove_files(id);
            }
            job.remove_list(&mut self.outputs);
            let spent = job.spent();
            let clean = ToController::Clean { job: id, spent };
            self.outputs.push_back(Output::Send(clean));
            self.outputs.push_back(Output::Forget { job: id });
            self.serve(now, |service, now| service.on_clean(now, id));
        }
    }
}

/// The part of a launch that concerns the daemon's own node.
#[derive(Debug)]
struct OwnNode {
    /// Index of the node among the nodes of the job.
    index: u32,
    load: NodeLoad,
    /// The job's procs on this node, by rank.
    procs: Vec<Placed>,
}

impl OwnNode {
    /// Extracts the part of a launch for one node; `None` if the job has no procs there.
    fn of(node: NodeId, launch: &Launch) -> Option<Self> {
        let index = launch.node_index(node)?;
        Some(Self {
            index,
            load: launch.nodes.get(index)?.load,
            procs: launch.map.on_node(node),
        })
    }
}

/// Occupancy of a node: whether each of its procs can have a slot of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subscription {
    Fits,
    /// There are more procs than slots.
    Oversubscribed,
}

impl Subscription {
    /// Classifies a node on which the job places `procs` procs.
    const fn of(load: NodeLoad, procs: u32) -> Self {
        if load.others.saturating_add(procs) > load.slots {
            Self::Oversubscribed
        } else {
            Self::Fits
        }
    }
}

/// Combines a job and a rank into a [`ProcId`].
pub(crate) const fn proc_id(job: JobId, rank: Rank) -> ProcId {
    ProcId { job, rank }
}

/// Sends the result of a push to its originator: a client of the service, or the controller.
fn answer_push(
    now: Time,
    service: &mut Service,
    job: JobId,
    push: PushId,
    result: PushResult,
    out: &mut VecDeque<Output>,
) {
    match push {
        PushId::Ticket(ticket) => service.on_pushed(now, ticket, result),
        PushId::Controller(number) => out.push_back(Output::Send(ToController::Pushed {
            job,
            number,
            result,
        })),
    }
}

/// Returns numbers as Open MPI wants them in lists: separated by spaces.
fn spaced(numbers: impl Iterator<Item = u32>) -> String {
    let words: Vec<String> = numbers.map(|number| number.to_string()).collect();
    words.join(" ")
}
