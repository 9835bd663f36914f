//! The controller: it manages nodes, fronts and jobs, and routes messages between them.
//!
//! Each job is a state machine of its own ([`job`]), and [`fronts`] decides what a front may do. The controller
//! registers each job and routes messages to it. It also decides everything that involves several jobs:
//!
//! - which other jobs are ended when one job fails or is ended,
//! - which front gets the output of a job,
//! - which proc gets the data that another proc has published.
//!
//! Losses, and the controller's response:
//!
//! | lost | detected by | response |
//! |---|---|---|
//! | a front | [`ControllerInput::FrontLost`] | end its job and the job's descendants, with [`LOSS_GRACE`] |
//! | a daemon | [`ControllerInput::DaemonLost`] | count the ranks there as killed, and end their jobs unless the user wants them to continue; refuse jobs not launched yet, but place spawned jobs of continuing jobs on the other nodes |
//!
//! The descendants of a job are the jobs that its procs have spawned, and the descendants of those jobs.
//!
//! [`LOSS_GRACE`]: crate::LOSS_GRACE

mod allocations;
mod asks;
mod beside;
mod classes;
mod clock;
mod controlling;
mod fences;
mod fronts;
mod held;
mod job;
mod launch;
mod machine;
mod merged;
mod nodes;
mod preloads;
mod queries;
mod servers;
mod sets;
mod spawned;
mod subscribers;
#[cfg(test)]
mod tests;
mod tools;
mod usage;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    ffi::OsString,
    net::{IpAddr, SocketAddr},
};

use base::{JobId, NodeId, RankSet, Time};
use bytes::Bytes;
use pmix::{message::Answer, value::Status};
use serde::{Deserialize, Serialize};

use self::{
    allocations::{Allocations, slurm::OfSlurm},
    asks::{Asker, Published},
    classes::Classes,
    clock::Clock,
    controlling::Controlling,
    fences::Fences,
    fronts::Front,
    job::{Job, JobOutput, Kind, LaunchReport, Origin, Phase, Push},
    machine::Host,
    servers::Servers,
    spawned::cospawn::Cospawned,
    subscribers::Subscribers,
    tools::Tools,
    usage::Measurements,
};
pub use self::{
    controlling::Control,
    job::HOLD_PATIENCE,
    machine::{CaptureStart, Captured, JobWatch, NotWatched},
};
use crate::{
    alloc::Allocation,
    bootstrap::{Addition, NotJoined},
    machine::{Batch, Setup, Wall},
    place::TopologyDigest,
    planted::{self, Bug},
    preload::{FoundFile, NotFound, Source, WantedFile},
    proto::{
        AskId, Cause, EndReason, FromFront, FrontId, Note, PmiState, Refusal, Rest, ToController,
        ToDaemon, ToFront,
    },
    slurm::{self, CommandNumber},
    spec::{NodeResources, OnFailure},
    syslog::{SyslogFailure, SyslogLine},
};

/// An event that the caller reports to the controller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
    /// A message of several daemons that was merged on its way ([`ToController::merge`]).
    Daemons(BTreeSet<NodeId>, ToController),
    /// A daemon was lost, for the reason given.
    DaemonLost(NodeId, String),
    /// Some nodes cannot be used: their daemons did not start or did not join.
    NotJoined(NotJoined),
    /// A connection to the port for other nodes was refused.
    Stranger {
        from: SocketAddr,
        why: String,
    },
    /// Answers [`ControllerOutput::ReadFile`]: the bytes, fewer only at the end of the file, or why they cannot be read.
    FileRead {
        job: JobId,
        result: Result<Bytes, String>,
    },
    /// The time that [`Controller::deadline`] returned has passed.
    Tick,
    /// Answers [`ControllerOutput::FindFiles`]: all files in that order, or the first that cannot be copied.
    FilesFound {
        job: JobId,
        result: Result<Vec<FoundFile>, NotFound>,
    },
    /// This is the controller of a machine. Comes first, if at all.
    Machine(Box<Setup>),
    /// Answers [`ControllerOutput::Store`].
    Stored(Result<(), String>),
    /// Answers [`ControllerOutput::Fetch`], in order: the values, the last one first.
    Fetched(Result<Vec<Bytes>, String>),
    /// Answers [`ControllerOutput::CaptureStart`] and [`ControllerOutput::Capture`], in order.
    Captured(Captured, Result<(), String>),
    /// The machine is to end, with all that runs: somebody has asked the process for that.
    Terminate,
    /// Answers [`ControllerOutput::Watch`].
    NotWatched(JobId, NotWatched),
    /// This process runs inside a job of Slurm, and may ask it for more. Comes first, if at all, and not on a machine.
    Slurm(slurm::Setup),
    /// A tool controls this launcher. Comes first, if at all, and not on a machine.
    Controlled(Control),
    /// The tool that has started this launcher is dead: the pipe that it holds is closed.
    ControllingToolDied,
    /// News of a command of [`ControllerOutput::RunCommand`].
    Command(CommandNumber, slurm::News),
    /// The daemon in this process is no node of the allocation: it serves tools, and no job runs there. It has the number behind the
    /// last one. Comes after [`Self::Machine`] and [`Self::Slurm`], and before everything else.
    Door,
    /// Answers [`ControllerOutput::Syslog`].
    Syslogged {
        node: NodeId,
        ticket: AskId,
        result: Result<(), SyslogFailure>,
    },
    /// The time of day at [`Time::ZERO`]. Comes first, if at all. Without it, events do not say when they were.
    Epoch(Wall),
}

/// An action for the caller to carry out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ControllerOutput {
    Front(FrontId, ToFront),
    Daemon(NodeId, ToDaemon),
    /// Close the connection to this front once all messages to it are written. No [`ControllerOutput::Front`] for this
    /// front follows.
    Finished(FrontId),
    /// Read bytes of a file on the controller's node, and answer with [`ControllerInput::FileRead`].
    ReadFile {
        job: JobId,
        path: OsString,
        offset: u64,
        length: usize,
    },
    /// Log that a daemon or a front has violated the protocol. The cause is a bug in our own code.
    Log(String),
    /// Look up files on the controller's node, and answer with [`ControllerInput::FilesFound`].
    FindFiles {
        job: JobId,
        wanted: Vec<WantedFile>,
    },
    /// Send a line, for a process of this node, to the syslog of the controller's host, and answer with [`ControllerInput::Syslogged`].
    Syslog {
        node: NodeId,
        ticket: AskId,
        line: SyslogLine,
    },
    /// Write this to the store of the machine, and answer with [`ControllerInput::Stored`]. No other one follows before that.
    Store(Batch),
    /// Read the records of at most `most` jobs that are over, the last ones with a number below `before`, and answer with
    /// [`ControllerInput::Fetched`].
    Fetch {
        before: JobId,
        most: u32,
    },
    /// Open the files for the output of a job without a front, on the controller's node, and answer with
    /// [`ControllerInput::Captured`].
    CaptureStart(Captured, CaptureStart),
    /// Append output of a job without a front to its file, and answer with [`ControllerInput::Captured`].
    Capture {
        output: Captured,
        bytes: Bytes,
    },
    /// Close the files of this job.
    CaptureEnd(JobId),
    /// Start a process that watches this job, and ends with it. If it cannot be started, answer with [`ControllerInput::NotWatched`].
    Watch(Box<JobWatch>),
    /// The job is over: end the process that watches it.
    WatchEnd(JobId),
    /// Start the daemons of further nodes, with these numbers and names. Variables of the commands, `NAME=value`, replace those of the
    /// plan. If it fails, answer with [`ControllerInput::NotJoined`].
    AddNodes(Addition),
    /// Run a command of Slurm, and answer with [`ControllerInput::Command`].
    RunCommand {
        number: CommandNumber,
        words: Vec<String>,
    },
    /// End a command, if it runs.
    EndCommand(CommandNumber, slurm::Urgency),
}

/// A node as described by its daemon's `Hello`.
#[derive(Debug)]
struct Node {
    host: String,
    topology: TopologyDigest,
    resources: NodeResources,
}

/// Maximum number of jobs that may exist simultaneously.
const MAX_JOBS: usize = 4096;
/// Maximum number of hosts whose refused connections are reported.
const STRANGERS_MAX: usize = 64;

/// The router between fronts, jobs and nodes.
#[derive(Debug)]
pub struct Controller {
    allocation: Allocation,
    /// The daemon that only serves tools, if there is one: see [`ControllerInput::Door`].
    door: Option<NodeId>,
    /// Nodes whose daemon has sent its `Hello`.
    nodes: BTreeMap<NodeId, Node>,
    /// Topologies of the nodes. Equal nodes share one.
    topologies: Classes,
    /// The reason to refuse every job that is not launched: a daemon of another version has sent its `Hello`. `None` if
    /// there was no such daemon.
    other_version: Option<Refusal>,
    /// The reason to refuse every job that is not launched: some nodes have not joined. `None` if there are no such nodes.
    not_joined: Option<Refusal>,
    /// Nodes whose daemon was lost, with the host names in proc tables.
    lost: BTreeMap<NodeId, String>,
    /// Numbers of nodes of a machine, or of allocations, that are gone or have another number.
    retired: BTreeMap<NodeId, String>,
    fronts: BTreeMap<FrontId, Front>,
    /// Jobs from their submission or spawn until they are finished or refused.
    jobs: BTreeMap<JobId, Job>,
    next_job: u32,
    /// The offset of the next job that is launched: the number of ranks of all jobs launched so far. The global rank of a
    /// proc is its job's offset plus its rank in the job, and no two procs have the same.
    offset: u32,
    /// Prefix of the PMIx nspaces of all jobs, see [`Controller::new`].
    name: String,
    /// Files of jobs that are not launched yet.
    preloads: BTreeMap<JobId, Source>,
    published: Published,
    servers: Servers,
    subscribers: Subscribers,
    fences: Fences,
    /// Hosts whose connections were refused and reported.
    strangers: BTreeSet<IpAddr>,
    measurements: Measurements,
    allocations: Allocations,
    of_slurm: OfSlurm,
    tools: Tools,
    clock: Clock,
    controlling: Controlling,
    /// Jobs that are to be spawned, because the first ones of their requests have started.
    cospawned: VecDeque<Cospawned>,
    /// `None` if this controller ends with its fronts.
    machine: Option<Box<Host>>,
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
            topologies: Classes::default(),
            other_version: None,
            not_joined: None,
            door: None,
            lost: BTreeMap::new(),
            retired: BTreeMap::new(),
            fronts: BTreeMap::new(),
            jobs: BTreeMap::new(),
            next_job: 1,
            offset: 0,
            name,
            preloads: BTreeMap::new(),
            published: Published::default(),
            servers: Servers::default(),
            subscribers: Subscribers::default(),
            fences: Fences::default(),
            strangers: BTreeSet::new(),
            measurements: Measurements::default(),
            allocations: Allocations::default(),
            of_slurm: OfSlurm::default(),
            tools: Tools::default(),
            clock: Clock::default(),
            controlling: Controlling::default(),
            cospawned: VecDeque::new(),
            machine: None,
            outputs: VecDeque::new(),
        }
    }

    /// Handles one event. Never blocks and never fails: a failure is reported as an output.
    pub fn handle(&mut self, now: Time, input: ControllerInput) {
        self.clock.now = now;
        match input {
            ControllerInput::FrontConnected { front, pid } => self.on_connected(front, pid),
            ControllerInput::Front(front, message) => self.on_front(now, front, message),
            ControllerInput::FrontLost(front) => self.on_front_lost(front),
            ControllerInput::Machine(setup) => self.become_machine(&setup),
            ControllerInput::Door => self.open_door(),
            ControllerInput::Stored(result) => self.on_stored(now, result),
            ControllerInput::Fetched(result) => self.on_fetched(now, result),
            ControllerInput::Captured(output, result) => self.on_captured(now, output, result),
            ControllerInput::NotWatched(job, why) => self.on_not_watched(job, &why),
            ControllerInput::Slurm(setup) => self.run_in_slurm(setup),
            ControllerInput::Controlled(control) => self.be_controlled(control),
            ControllerInput::ControllingToolDied => self.on_controlling_tool_died(),
            ControllerInput::Command(number, news) => self.on_command_news(now, number, news),
            ControllerInput::Terminate => self.on_terminate(now),
            ControllerInput::Epoch(epoch) => self.clock.set(epoch),
            ControllerInput::Syslogged {
                node,
                ticket,
                result,
            } => self.on_syslogged(Asker { node, ticket }, result),
            ControllerInput::Daemon(node, message) => self.on_daemon(now, node, message),
            ControllerInput::Daemons(nodes, message) => self.on_daemons(now, &nodes, message),
            ControllerInput::DaemonLost(node, why) => self.on_daemon_lost(now, node, &why),
            ControllerInput::NotJoined(failed) => self.on_not_joined(now, failed),
            ControllerInput::Stranger { from, why } => self.on_stranger(None, from, why),
            ControllerInput::FileRead { job, result } => self.on_file_read(job, result),
            ControllerInput::FilesFound { job, result } => self.on_files_found(job, result),
            ControllerInput::Tick => {
                for id in self.living() {
                    self.with(id, |job| job.on_tick(now));
                }
                self.expire_lookups(now);
                self.tick_machine(now);
                self.tick_of_slurm(now);
            }
        }
        self.spawn_waiting(now);
        self.spawn_beside(now);
        // A job waits for its allocations of Slurm.
        self.reap_of_slurm(now);
        self.finish_settled();
        self.reap_allocations(now);
        self.pump_machine(now);
    }

    /// Handles that some nodes did not join. A machine does without them, and a job without further ones.
    fn on_not_joined(&mut self, now: Time, failed: NotJoined) {
        if self.machine_without(now, &failed) || self.allocation_without(&failed) {
            return;
        }
        self.not_joined.get_or_insert(Refusal::NotJoined(failed));
        for id in self.living() {
            self.launch_if_ready(id);
        }
    }

    /// Returns the next action. Call it after every [`Self::handle`] until it returns `None`.
    pub fn poll(&mut self) -> Option<ControllerOutput> {
        self.outputs.pop_front()
    }

    /// Returns the time at which [`ControllerInput::Tick`] is due.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        let jobs = self.jobs.values().filter_map(Job::deadline);
        let others = [
            self.published.deadline(),
            self.machine_deadline(),
            self.of_slurm.deadline(),
        ];
        jobs.chain(others.into_iter().flatten()).min()
    }

    /// Returns true if there are no jobs, and this is no machine that goes on.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let is_awaited = planted::is(Bug::SessionAwaitsTools) && !self.tools.is_empty();
        self.jobs.is_empty() && self.has_no_machine() && !is_awaited
    }

    /// Returns true if a job runs, or waits in the queue of this machine.
    #[must_use]
    pub fn has_jobs(&self) -> bool {
        let machine = self.machine.as_ref();
        !self.jobs.is_empty() || machine.is_some_and(|host| host.machine.has_jobs())
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
                // The tool that has spawned a job hears of it, and the user does not know it.
                JobOutput::Front(ToFront::Note(note))
                    if !note.is_about_strangers() && self.is_of_tool(id) => {}
                JobOutput::Front(message) => self.tell(front, message),
                JobOutput::Daemon(node, message) => {
                    let output = ControllerOutput::Daemon(node, message);
                    self.outputs.push_back(output);
                }
                JobOutput::Answer(asker, status) => self.answer(asker, &Answer::Status(status)),
                JobOutput::Started => {
                    self.tell_tool_runs(id);
                    self.tell_started(id);
                    self.tell_spawned(id);
                }
                JobOutput::Watch(left) => self.watch(id, left),
                JobOutput::Ready => self.tell_ready(id),
                JobOutput::Gone(ranks) => {
                    self.published_owners_ended(id, &ranks);
                    self.release_spawned_by(id, &ranks);
                    self.end_tools_of_empty(id);
                }
                JobOutput::Failed(cause) => self.end(id, cause),
                JobOutput::Expired(reason) => self.end_all_of(front, reason),
                JobOutput::Log(what) => self.log(what),
            }
        }
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each message")]
    fn on_daemon(&mut self, now: Time, node: NodeId, message: ToController) {
        match message {
            ToController::Hello {
                version,
                node: said,
                host,
                topology,
                resources,
            } => {
                let hello = Node {
                    host,
                    topology,
                    resources,
                };
                self.on_hello(node, version, said, hello);
            }
            ToController::Topology(topology) => self.on_topology(node, *topology),
            ToController::Launched {
                job,
                started,
                failures,
                unenforced,
            } => {
                let host = self.nodes.get(&node);
                let host = host.map_or_else(String::new, |node| node.host.clone());
                self.with(job, |job| {
                    let report = LaunchReport {
                        started,
                        failures,
                        unenforced,
                    };
                    job.on_launched(now, node, &host, report);
                });
                self.launch_tools_of(job);
            }
            ToController::Preload { job, news } => self.on_preload_news(now, node, job, news),
            ToController::Held { job, ranks } => self.with(job, |job| job.on_held(&ranks)),
            ToController::Released { job, ranks } => self.with(job, |job| {
                job.release(Some(&ranks));
            }),
            ToController::Output { job, chunk } => {
                self.copy_output(node, &chunk);
                self.on_output(now, job, node, chunk);
            }
            ToController::StdinCredit { job, bytes } => {
                self.with(job, |job| job.on_input_credit(node, Some(bytes)));
            }
            ToController::StdinClosed { job } => {
                self.with(job, |job| job.on_input_credit(node, None));
            }
            ToController::Unkillable { job, ranks } => {
                self.with(job, |job| job.on_abandoned(ranks))
            }
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
            ToController::Measured {
                job,
                number,
                procs,
                counted,
            } => self.on_measured(node, job, number, procs, counted),
            ToController::DaemonMeasured { number, memory } => {
                self.on_daemon_measured(node, number, memory);
            }
            ToController::SignalRanks { job, ranks, signal } => {
                self.with(job, |job| job.signal_ranks(&ranks, signal));
            }
            ToController::Ask {
                proc,
                ticket,
                request,
            } => self.on_ask(now, node, proc, ticket, &request),
            ToController::DefineSet {
                ticket,
                job,
                name,
                ranks,
            } => self.define_set(Asker { node, ticket }, job, &name, &ranks),
            ToController::Syslog { ticket, line } => {
                let line = ControllerOutput::Syslog { node, ticket, line };
                self.outputs.push_back(line);
            }
            ToController::Server(message) => self.on_server(now, node, *message),
            ToController::Fence { id, news } => self.on_fence(node, &id, news),
            ToController::FencesAbandoned { .. } => self.on_fences_abandoned(node),
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
            ToController::ExitedEarly { job, state, ranks } => {
                self.with(job, |job| job.on_exited_early(node, state, &ranks));
            }
            ToController::Absent { job, ranks } => {
                let ranks = self.exited_early(job, PmiState::NotInitialized, ranks);
                self.end(job, Cause::Absent(ranks));
            }
            ToController::Unfinished { job, ranks } => {
                let ranks = self.exited_early(job, PmiState::NotFinalized, ranks);
                self.end(job, Cause::Unfinished(ranks));
            }
            ToController::ExitedUnfinalized { job, ranks } => {
                self.on_exited_unfinalized(job, ranks)
            }
            ToController::Note { job, note } => {
                self.with(job, |job| job.tell(ToFront::Note(note)));
            }
            ToController::DebuggerLost { job, ranks } => self.on_debugger_lost(job, ranks),
            ToController::Clean { job, spent } => {
                self.with(job, |job| job.on_clean(node, &spent));
            }
            ToController::Missing { what, why } => {
                if let Some(front) = self.anyone() {
                    let node = Some(node);
                    self.tell(front, ToFront::Note(Note::Missing { node, what, why }));
                }
            }
            ToController::Stranger { from, why } => self.on_stranger(Some(node), from, why),
            ToController::Bug(what) => self.log(format!("on node {node}: {what}")),
            ToController::Starter(_) => {
                self.log(format!("on node {node}: news of a start command"));
            }
        }
    }

    /// Returns these ranks and the job's other ranks, on any node, that exited with code 0 in the same state.
    fn exited_early(&self, job: JobId, state: PmiState, ranks: RankSet) -> RankSet {
        match self.jobs.get(&job) {
            Some(job) => ranks.union(job.exited_early(state)),
            None => ranks,
        }
    }

    fn on_push(&mut self, asker: Asker, job: JobId, push: Push) {
        if self.jobs.contains_key(&job) {
            self.with(job, |job| job.push(asker, push));
        } else {
            self.answer(asker, &Answer::Status(Status::IOF_COMPLETE));
        }
    }

    /// Sends the front a note about ranks that exited with code 0 before they finalized PMI or PMIx. The job has ended on
    /// the node of these ranks. The note also says whether another cause of failure is known so far ([`Rest`]).
    fn on_exited_unfinalized(&mut self, id: JobId, ranks: RankSet) {
        self.with(id, |job| {
            let well = job.cause.is_none();
            let rest = if well { Rest::Well } else { Rest::Badly };
            job.tell(ToFront::Note(Note::Unfinished { ranks, rest }));
        });
    }

    /// Begins to end a job and its descendants. If the job has failed, its whole MPI program is ended, which may include
    /// the job's spawner, see [`Self::job_to_end`].
    fn end(&mut self, id: JobId, cause: Cause) {
        let (id, cause) = self.job_to_end(id, cause);
        self.end_descendants(id);
        self.with(id, |job| job.end(cause));
        self.end_tools_of(id);
    }

    /// Ends the jobs that descend from a job, which is being ended or was refused.
    fn end_descendants(&mut self, id: JobId) {
        for spawned in self.descendants(id) {
            // A descendant's own cause is that its spawner is being ended.
            if !planted::is(Bug::ChildrenNotEnded) {
                self.with(spawned, |job| {
                    job.end(Cause::Ended(EndReason::SpawnerEnded))
                });
                self.end_tools_of(spawned);
            }
        }
    }

    fn on_daemon_lost(&mut self, now: Time, node: NodeId, why: &str) {
        if !self.lost.is_empty() && planted::is(Bug::FirstLossOnly) {
            return;
        }
        let host = self.nodes.remove(&node).map(|node| node.host);
        let host = host.unwrap_or_else(|| self.name_of(node).to_owned());
        self.lost.insert(node, host);
        self.measured_without(node);
        self.ask_other_for_topology(node);
        self.machine_node_lost(now, node, why);
        self.allocation_node_lost(node);
        if !planted::is(Bug::LossNotTold) {
            self.server_lost(node);
            self.fences_without(node);
        }
        self.subscribers.forget_node(node);
        self.tools_without(node);
        for id in self.living() {
            self.copy_output_ends_of_node(id, node);
            let job = self.jobs.get(&id).filter(|job| job.has_live_ranks_on(node));
            let why = why.to_owned();
            match job.map(|job| job.spec.end.on_node_loss) {
                Some(OnFailure::Continue) if !planted::is(Bug::NodeLossIgnored) => {
                    self.with(id, |job| job.continue_without(node, why));
                }
                Some(OnFailure::EndJob | OnFailure::Continue) => {
                    self.end(id, Cause::NodeLost { node, why });
                }
                None => {}
            }
            if !planted::is(Bug::LostRanksLive) {
                self.with(id, |job| job.on_node_lost(now, node));
            }
            self.launch_if_ready(id);
        }
        self.refuse_copies_to(node);
    }

    /// Tells the front once for each host that a connection was refused, by whatever node.
    fn on_stranger(&mut self, node: Option<NodeId>, from: SocketAddr, why: String) {
        if self.strangers.len() < STRANGERS_MAX
            && self.strangers.insert(from.ip())
            && let Some(front) = self.anyone()
        {
            let note = Note::Stranger { node, from, why };
            self.tell(front, ToFront::Note(note));
        }
    }

    fn living(&self) -> Vec<JobId> {
        self.jobs.keys().copied().collect()
    }

    /// Finishes every job that is complete ([`Job::is_settled`]). The job that a front has submitted waits until all its
    /// descendants are finished.
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
            if root != id {
                continue;
            }
            if is_last && !self.of_slurm.has_of(id) {
                self.finish(id);
            } else if let Some(cause) = self.jobs.get_mut(&id).and_then(Job::tells_of_end) {
                self.tell_end(id, &cause);
            }
        }
    }

    fn finish(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let cause = job.tells_of_end();
        let outcome = job.finish();
        self.route(id);
        self.tell_servers_over(id);
        // If the job was ended before all its procs were started, its spawner still waits for the answer.
        self.tell_spawned(id);
        let Some(job) = self.jobs.remove(&id) else {
            return;
        };
        self.drop_files(id);
        self.forget_uncredited(id);
        self.subscribers.forget_job(id);
        self.watch_no_longer(id);
        self.published_job_ended(id);
        // After the last job, there are no processes to receive the event, but tools.
        let is_heard = !self.jobs.is_empty() || !self.tools.is_empty();
        let is_heard = is_heard && job.beside.is_none();
        if let Some(cause) = cause.filter(|_| is_heard) {
            self.tell_end(id, &cause);
        }
        match job.origin {
            Origin::Front | Origin::Controlled { .. } => {
                self.machine_job_ended(&job, &outcome);
                self.log_end(&job, &outcome.cause);
                self.tell(job.front, ToFront::Ended(outcome));
                self.finish_front(job.front);
            }
            Origin::Spawned { .. } => {
                let root = self.jobs.get_mut(&job.root);
                // What a debugger uses is not added to what it looks at.
                if let Some(root) = root.filter(|_| job.kind() == Kind::Program) {
                    root.spent.add(&job.spent);
                }
                self.spawned_ended(&job, outcome);
            }
            Origin::Beside => self.tool_ended(job.front, id, outcome),
        }
    }

    fn log(&mut self, what: String) {
        self.outputs.push_back(ControllerOutput::Log(what));
    }
}
