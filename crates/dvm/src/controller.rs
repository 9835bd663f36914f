//! The controller: it manages nodes, fronts and jobs, and routes messages between them.
//!
//! Each job is a state machine of its own ([`job`]), and [`fronts`] decides what a front may do. The controller
//! registers each job and routes messages to it. It decides whatever concerns several jobs: which other jobs end with
//! one, which front gets whose output, and what procs publish for each other.
//!
//! Failures and the controller's response:
//!
//! | lost | detected by | response |
//! |---|---|---|
//! | a front | [`ControllerInput::FrontLost`] | end its job and the job's descendants, with [`LOSS_GRACE`] |
//! | a daemon | [`ControllerInput::DaemonLost`] | count its ranks as killed; end their jobs |
//!
//! [`LOSS_GRACE`]: crate::LOSS_GRACE

mod asks;
mod fences;
mod fronts;
mod held;
mod job;
mod launch;
mod servers;
mod spawned;
mod subscribers;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};

use base::{JobId, NodeId, RankSet, Time, Topology};
use pmix::{message::Answer, value::Status};

pub use self::job::HOLD_PATIENCE;
use self::{
    asks::{Asker, Published},
    fences::Fences,
    fronts::Front,
    job::{Job, JobOutput, NewJob, Origin, Phase, Push},
    servers::Servers,
    subscribers::Subscribers,
};
use crate::{
    alloc::Allocation,
    planted::{self, Bug},
    proto::{
        Cause, EndReason, FromFront, FrontId, Note, Refusal, Rest, ToController, ToDaemon, ToFront,
    },
    spec::JobSpec,
};

/// An event that the caller reports to the controller.
#[derive(Debug)]
pub enum ControllerInput {
    /// A front has connected. The caller assigns an id that no earlier front has had.
    FrontConnected {
        front: FrontId,
        pid: u32,
    },
    Front(FrontId, FromFront),
    /// The connection to a front was lost.
    FrontLost(FrontId),
    Daemon(NodeId, ToController),
    DaemonLost(NodeId),
    /// The time that [`Controller::deadline`] returned has passed.
    Tick,
}

/// An action for the caller to carry out.
#[derive(Debug, PartialEq)]
pub enum ControllerOutput {
    Front(FrontId, ToFront),
    Daemon(NodeId, ToDaemon),
    /// Close the connection to this front once all messages to it are written; the last one was output before this.
    Finished(FrontId),
    /// Log a violation of the protocol by a daemon or a front. This is a bug of ours.
    Log(String),
}

/// A node as described by its daemon's `Hello`.
#[derive(Debug)]
struct Node {
    host: String,
    topology: Topology,
}

/// Maximum number of jobs that may exist simultaneously.
const MAX_JOBS: usize = 4096;

/// The router between fronts, jobs and nodes.
#[derive(Debug)]
pub struct Controller {
    allocation: Allocation,
    /// Nodes whose daemon has sent its `Hello`.
    nodes: BTreeMap<NodeId, Node>,
    /// Set when a daemon of another version has sent its `Hello`: then no job can run.
    other_version: Option<Refusal>,
    /// Set when a node was lost. A job that is not launched is refused from then on: it would wait for that node.
    lost: Option<Refusal>,
    fronts: BTreeMap<FrontId, Front>,
    /// Jobs that are not over.
    jobs: BTreeMap<JobId, Job>,
    next_job: u32,
    /// Lower bound for the next job's offset, from the jobs that are over.
    offset: u32,
    /// Prefix of the jobs' PMIx nspaces.
    name: String,
    published: Published,
    servers: Servers,
    subscribers: Subscribers,
    fences: Fences,
    outputs: VecDeque<ControllerOutput>,
}

impl Controller {
    /// Creates a controller for an allocation; it waits for one daemon per node. The PMIx nspace of a job is
    /// `NAME@NUMBER`.
    #[must_use]
    pub fn new(allocation: Allocation, name: String) -> Self {
        Self {
            allocation,
            nodes: BTreeMap::new(),
            other_version: None,
            lost: None,
            fronts: BTreeMap::new(),
            jobs: BTreeMap::new(),
            next_job: 1,
            offset: 0,
            name,
            published: Published::default(),
            servers: Servers::default(),
            subscribers: Subscribers::default(),
            fences: Fences::default(),
            outputs: VecDeque::new(),
        }
    }

    /// Handles one event. Never blocks and never fails: a failure is reported as an output.
    pub fn handle(&mut self, now: Time, input: ControllerInput) {
        match input {
            ControllerInput::FrontConnected { front, pid } => self.on_connected(front, pid),
            ControllerInput::Front(front, message) => self.on_front(now, front, message),
            ControllerInput::FrontLost(front) => self.on_front_lost(front),
            ControllerInput::Daemon(node, message) => self.on_daemon(now, node, message),
            ControllerInput::DaemonLost(node) => self.on_daemon_lost(now, node),
            ControllerInput::Tick => {
                for id in self.living() {
                    self.with(id, |job| job.on_tick(now));
                }
                self.expire_lookups(now);
            }
        }
        self.finish_settled();
    }

    /// Returns the next action. Call it after every [`Self::handle`] until it returns `None`.
    pub fn poll(&mut self) -> Option<ControllerOutput> {
        self.outputs.pop_front()
    }

    /// Returns the time at which [`ControllerInput::Tick`] is due.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        let jobs = self.jobs.values().filter_map(Job::deadline);
        jobs.chain(self.published.deadline()).min()
    }

    /// Returns true if there are no jobs.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Adds a job, and launches it as soon as all daemons are connected. `root` is the job that `front` has submitted.
    fn add(&mut self, now: Time, spec: Box<JobSpec>, origin: Origin, front: FrontId, root: JobId) {
        let id = JobId(self.next_job);
        self.next_job += 1;
        let behind = |job: &Job| job.offset.saturating_add(job.size);
        let offset = self.jobs.values().map(behind).fold(self.offset, u32::max);
        let job = NewJob {
            id,
            spec,
            origin,
            front,
            root,
            nspace: self.nspace(id),
            offset,
        };
        self.jobs.insert(id, Job::new(now, job));
        self.launch_if_ready(id);
    }

    /// Runs `act` on a job and routes its outputs. Does nothing if the job is over.
    fn with(&mut self, id: JobId, act: impl FnOnce(&mut Job)) {
        if let Some(job) = self.jobs.get_mut(&id) {
            act(job);
            self.route(id);
        }
    }

    /// Carries out the outputs of a job.
    fn route(&mut self, id: JobId) {
        while let Some((front, output)) = self
            .jobs
            .get_mut(&id)
            .and_then(|job| Some((job.front, job.poll()?)))
        {
            match output {
                JobOutput::Front(message) => self.tell(front, message),
                JobOutput::Daemon(node, message) => {
                    let output = ControllerOutput::Daemon(node, message);
                    self.outputs.push_back(output);
                }
                JobOutput::Answer(asker, status) => self.answer(asker, &Answer::Status(status)),
                JobOutput::Started => self.tell_spawned(id),
                JobOutput::Ready => self.tell_ready(id),
                JobOutput::Gone(ranks) => {
                    self.published_owners_ended(id, &ranks);
                    self.release_spawned_by(id, &ranks);
                }
                JobOutput::Failed(cause) => self.end(id, cause),
                JobOutput::Expired(reason) => self.end_all_of(front, reason),
                JobOutput::Log(what) => self.log(what),
            }
        }
    }

    fn on_daemon(&mut self, now: Time, node: NodeId, message: ToController) {
        match message {
            ToController::Hello {
                version,
                node: said,
                host,
                topology,
            } => self.on_hello(node, version, said, host, *topology),
            ToController::Launched {
                job,
                started,
                failures,
            } => {
                let host = self.nodes.get(&node);
                let host = host.map_or_else(String::new, |node| node.host.clone());
                self.with(job, |job| {
                    job.on_launched(now, node, &host, started, failures);
                });
            }
            ToController::Held { job, ranks } => self.with(job, |job| job.on_held(&ranks)),
            ToController::Released { job, ranks } => self.with(job, |job| {
                job.release(Some(&ranks));
            }),
            ToController::Output { job, chunk } => {
                self.copy_output(node, &chunk);
                self.on_output(job, node, chunk);
            }
            ToController::StdinCredit { job, bytes } => {
                self.with(job, |job| job.on_input_credit(node, Some(bytes)));
            }
            ToController::StdinClosed { job } => {
                self.with(job, |job| job.on_input_credit(node, None));
            }
            ToController::Left { job, ranks } => self.with(job, |job| job.on_abandoned(ranks)),
            ToController::Ended { job, classes } => {
                self.copy_output_ends(job, node, &classes);
                self.with(job, |job| job.on_ended(now, classes));
            }
            ToController::Push {
                ticket,
                job,
                ranks,
                bytes,
                is_last,
            } => {
                let push = Push {
                    ranks,
                    bytes,
                    is_last,
                };
                self.on_push(Asker { node, ticket }, job, push);
            }
            ToController::Pushed {
                job,
                number,
                result,
            } => self.with(job, |job| job.on_pushed(node, number, result)),
            ToController::SignalRanks { job, ranks, signal } => {
                self.with(job, |job| job.signal_ranks(&ranks, signal));
            }
            ToController::Ask {
                proc,
                ticket,
                request,
            } => self.on_ask(now, node, proc, ticket, &request),
            ToController::Server(message) => self.on_server(node, *message),
            ToController::Fence { id, news } => self.on_fence(node, &id, news),
            ToController::FencesLeft { .. } => self.on_fences_left(node),
            ToController::Abort {
                job,
                rank,
                code,
                message,
            } => {
                self.end(
                    job,
                    Cause::Aborted {
                        rank,
                        code,
                        message,
                    },
                );
            }
            ToController::Protocol { job, rank, what } => {
                self.end(job, Cause::Protocol { rank, what });
            }
            ToController::Absent { job, ranks } => self.end(job, Cause::Absent(ranks)),
            ToController::Unfinished { job, ranks } => {
                self.end(job, Cause::Unfinished(ranks));
            }
            ToController::LeftEarly { job, ranks } => self.on_left_early(job, ranks),
            ToController::Note { job, note } => {
                self.with(job, |job| job.tell(ToFront::Note(note)));
            }
            ToController::DebuggerLost { job, ranks } => self.on_debugger_lost(job, ranks),
            ToController::Clean { job } => self.with(job, |job| job.on_clean(node)),
        }
    }

    fn on_push(&mut self, asker: Asker, job: JobId, push: Push) {
        if self.jobs.contains_key(&job) {
            self.with(job, |job| job.push(asker, push));
        } else {
            self.answer(asker, &Answer::Status(Status::IOF_COMPLETE));
        }
    }

    /// Notes that ranks exited with code 0 without finalizing PMI or PMIx. The job has ended on their node.
    fn on_left_early(&mut self, id: JobId, ranks: RankSet) {
        self.with(id, |job| {
            let well = job.cause.is_none();
            let rest = if well { Rest::Well } else { Rest::Badly };
            job.tell(ToFront::Note(Note::Unfinished { ranks, rest }));
        });
    }

    /// Begins to end a job and its descendants.
    fn end(&mut self, id: JobId, cause: Cause) {
        let (id, cause) = self.job_to_end(id, cause);
        for spawned in self.descendants(id) {
            // A spawned job ends together with the job that it serves.
            if !planted::is(Bug::ChildrenNotEnded) {
                self.with(spawned, |job| {
                    job.end(Cause::Ended(EndReason::SpawnerEnded))
                });
            }
        }
        self.with(id, |job| job.end(cause));
    }

    fn on_daemon_lost(&mut self, now: Time, node: NodeId) {
        self.nodes.remove(&node);
        let host = self.allocation.nodes.get(node.0 as usize);
        let host = host.map_or_else(String::new, |node| node.name.clone());
        self.lost.get_or_insert(Refusal::NodeLost { host });
        self.server_lost(node);
        self.fences_without(node);
        self.subscribers.forget_node(node);
        for id in self.living() {
            self.copy_output_ends_of_node(id, node);
            self.with(id, |job| job.on_node_lost(now, node));
            self.launch_if_ready(id);
        }
    }

    fn living(&self) -> Vec<JobId> {
        self.jobs.keys().copied().collect()
    }

    /// Finishes settled jobs. The job of a front waits until all its descendants are finished.
    fn finish_settled(&mut self) {
        let mut settled: Vec<(JobId, JobId)> = Vec::new();
        for job in self.jobs.values().filter(|job| job.is_settled()) {
            settled.push((job.root, job.id));
        }
        for (root, id) in &settled {
            if root != id {
                self.finish(*id);
            }
        }
        for (root, id) in settled {
            let is_last = self
                .jobs
                .values()
                .all(|job| job.id == id || job.root != root);
            if root == id && is_last {
                self.finish(id);
            }
        }
    }

    fn finish(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let outcome = job.finish();
        self.route(id);
        self.tell_servers_over(id);
        // A proc that waits for the start of the job gets an answer even if the job was ended before that.
        self.tell_spawned(id);
        let Some(job) = self.jobs.remove(&id) else {
            return;
        };
        self.offset = self.offset.max(job.offset.saturating_add(job.size));
        self.forget_uncredited(id);
        self.subscribers.forget_job(id);
        self.announce_end(id, &outcome);
        match job.origin {
            Origin::Front => {
                self.tell(job.front, ToFront::Ended(outcome));
                self.finish_front(job.front);
            }
            Origin::Spawned { .. } => self.spawned_ended(&job, outcome),
        }
    }

    fn log(&mut self, what: String) {
        self.outputs.push_back(ControllerOutput::Log(what));
    }
}
