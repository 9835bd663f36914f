//! The controller: takes a job from the front, places it, has the daemons run it, and decides its end.
//!
//! | phase | all daemons there | all launched | a failure | end asked | all settled and clean |
//! |---|---|---|---|---|---|
//! | `Waiting` | place → `Launching` (or refuse) | – | – | refuse | – |
//! | `Launching` | – | → `Running`; table to the front | → `Ending` | → `Ending` | – |
//! | `Running` | – | – | → `Ending`, unless told to go on | → `Ending` | → `Over` |
//! | `Ending` | – | table to the front | noted | harder only | → `Over` |
//! | `Over` | – | – | – | – | – |
//!
//! What can die, and the answer:
//!
//! | dies | noticed by | answer |
//! |---|---|---|
//! | the front | [`ControllerInput::FrontLost`] | the job is ended with [`LOSS_GRACE`]; nobody is told |
//! | a daemon | [`ControllerInput::DaemonLost`] | its ranks count as killed; the job is ended |

mod asks;

use std::collections::{BTreeMap, VecDeque};

use base::{ExitStatus, JobId, NodeId, Rank, RankSet, Signal, Time, Topology};

use self::asks::Published;
use crate::{
    alloc::{Allocation, Slots},
    daemon::LOSS_GRACE,
    hold::{Announcement, Hold},
    place::{self, Topologies},
    planted::{self, Bug},
    proto::{
        Cause, Drained, EndReason, FromFront, Launch, Note, Outcome, RankChoice, Refusal,
        StartFailure, Stream, TableRow, ToController, ToDaemon, ToFront,
    },
    spec::{Destination, HoldAt, JobSpec, OnFailure, Pattern, PatternFacts, StdinTarget},
    stdio::{self, STDIN_WINDOW},
};

/// What happened.
#[derive(Debug)]
pub enum ControllerInput {
    Front(FromFront),
    /// The front is gone without a word.
    FrontLost,
    Daemon(NodeId, ToController),
    DaemonLost(NodeId),
    /// The time that [`Controller::deadline`] gave has come.
    Tick,
}

/// What the caller is to do.
#[derive(Debug, PartialEq)]
pub enum ControllerOutput {
    Front(ToFront),
    Daemon(NodeId, ToDaemon),
    /// The job is over and its end was told: the daemons and the controller may go.
    Finished,
    /// A peer did something that the protocol rules out.
    Log(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Waiting,
    Launching,
    Running,
    Ending,
    Over,
}

/// What one node still owes the job.
#[derive(Debug)]
struct Share {
    launched: bool,
    clean: bool,
    ranks: RankSet,
    /// Input bytes that this node has given credit for; `None` when nothing there reads.
    stdin_credit: Option<u64>,
    /// The values of its ranks, when all of them wait in the fence.
    fence: Option<Vec<(String, String)>>,
}

#[derive(Debug)]
struct Job {
    id: JobId,
    spec: Box<JobSpec>,
    phase: Phase,
    size: u32,
    shares: BTreeMap<NodeId, Share>,
    table: Vec<TableRow>,
    failures: BTreeMap<StartFailure, RankSet>,
    cause: Option<Cause>,
    ended: BTreeMap<ExitStatus, RankSet>,
    settled: RankSet,
    started: RankSet,
    ended_by_us: RankSet,
    leaky: RankSet,
    hold: Hold,
    stdin_given: u64,
    /// By stream: which node's output the front has not paid for, in the order in which it prints. Neighbours of one node
    /// are one entry; the windows of the nodes bound the sum, and with it the number.
    unpaid: [VecDeque<(NodeId, u64)>; 2],
    limit_at: Option<Time>,
}

/// The state machine. One job in its life, today; the messages carry job numbers for the machine that runs many.
#[derive(Debug)]
pub struct Controller {
    allocation: Allocation,
    front_pid: u32,
    /// Those that said hello.
    nodes: BTreeMap<NodeId, Topology>,
    job: Option<Job>,
    front_lost: bool,
    /// What the names of jobs begin with in PMIx.
    name: String,
    published: Published,
    outputs: VecDeque<ControllerOutput>,
}

impl Controller {
    /// A controller over an allocation; it waits for one daemon per node of it. Its jobs are called `NAME@NUMBER` in
    /// PMIx.
    #[must_use]
    pub fn new(allocation: Allocation, front_pid: u32, name: String) -> Self {
        Self {
            name,
            published: Published::default(),
            allocation,
            front_pid,
            nodes: BTreeMap::new(),
            job: None,
            front_lost: false,
            outputs: VecDeque::new(),
        }
    }

    /// Takes one event. Never blocks and never fails: failure is an output.
    pub fn handle(&mut self, now: Time, input: ControllerInput) {
        match input {
            ControllerInput::Front(message) => self.on_front(now, message),
            ControllerInput::FrontLost => self.on_front_lost(now),
            ControllerInput::Daemon(node, message) => self.on_daemon(now, node, message),
            ControllerInput::DaemonLost(node) => self.on_daemon_lost(now, node),
            ControllerInput::Tick => {
                if self
                    .job
                    .as_ref()
                    .is_some_and(|job| job.limit_at.is_some_and(|at| at <= now))
                {
                    self.end(now, Cause::Ended(EndReason::TimeLimit));
                }
                self.expire_lookups(now);
            }
        }
        self.finish_if_settled();
    }

    /// The next thing to do. Call until `None` after every [`Self::handle`].
    pub fn poll(&mut self) -> Option<ControllerOutput> {
        self.outputs.pop_front()
    }

    /// When [`ControllerInput::Tick`] is due.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        let limit = self
            .job
            .as_ref()
            .filter(|job| job.phase < Phase::Ending)
            .and_then(|job| job.limit_at);
        limit.into_iter().chain(self.published.deadline()).min()
    }

    fn on_front(&mut self, now: Time, message: FromFront) {
        match message {
            FromFront::Submit(spec) => self.submit(now, spec),
            FromFront::Stdin(bytes) => self.each_reader(|job| ToDaemon::Stdin {
                job,
                bytes: bytes.clone(),
            }),
            FromFront::StdinEof => self.each_reader(|job| ToDaemon::StdinEof { job }),
            FromFront::OutputCredit { stream, bytes } => self.credit_output(stream, bytes),
            FromFront::Signal(signal) => self.each_node(|job| ToDaemon::Signal { job, signal }),
            FromFront::End(reason) => self.end(now, Cause::Ended(reason)),
            FromFront::Kill(reason) => self.kill(Cause::Ended(reason)),
            FromFront::Release => self.release(),
            FromFront::Resize(size) => self.each_node(|job| ToDaemon::Resize { job, size }),
        }
    }

    fn submit(&mut self, now: Time, spec: Box<JobSpec>) {
        if self.job.is_some() {
            self.log("a second job was submitted: ignored".to_owned());
            return;
        }
        let limit_at = spec.end.time_limit.map(|limit| now + limit);
        self.job = Some(Job {
            id: JobId(1),
            phase: Phase::Waiting,
            size: 0,
            shares: BTreeMap::new(),
            table: Vec::new(),
            failures: BTreeMap::new(),
            cause: None,
            ended: BTreeMap::new(),
            settled: RankSet::new(),
            started: RankSet::new(),
            ended_by_us: RankSet::new(),
            leaky: RankSet::new(),
            hold: Hold::off(),
            stdin_given: 0,
            unpaid: [VecDeque::new(), VecDeque::new()],
            limit_at,
            spec,
        });
        self.launch_if_ready();
    }

    /// Places and launches the job when it and every daemon are there.
    fn launch_if_ready(&mut self) {
        let Some(job) = self.job.as_mut().filter(|job| job.phase == Phase::Waiting) else {
            return;
        };
        if self.nodes.len() < self.allocation.nodes.len() {
            return;
        }
        let mut topologies = Topologies::default();
        for (id, topology) in &self.nodes {
            topologies.push(*id, topology);
        }
        let map = match place::place(&job.spec.placement, &self.allocation, &topologies) {
            Ok(map) => map,
            Err(error) => return self.refuse(Refusal::Placement(error)),
        };
        if let Err(error) = check_patterns(&job.spec, map.ranks()) {
            return self.refuse(Refusal::Pattern(error));
        }
        if let Some(refusal) = check_ranks(&job.spec, map.ranks()) {
            return self.refuse(refusal);
        }
        job.phase = Phase::Launching;
        job.size = map.ranks();
        if job.spec.hold == HoldAt::Exec {
            job.hold = Hold::gathering(job.size as usize);
        }
        let nodes = (0..map.ranks()).filter_map(|rank| map.node_of(Rank(rank)));
        let mapping = pmix::pmi::process_mapping(nodes);
        let room = universe(&self.allocation, &self.nodes).max(job.size);
        let nspace = format!("{}@{}", self.name, job.id);
        let notes = map
            .notes()
            .iter()
            .cloned()
            .map(|note| ControllerOutput::Front(ToFront::Note(Note::Placement(note))));
        self.outputs.extend(notes);
        let used: Vec<NodeId> = map.nodes().collect();
        for node in used {
            let procs = map.on_node(node);
            job.shares.insert(
                node,
                Share {
                    launched: false,
                    clean: false,
                    ranks: map.ranks_on(node),
                    stdin_credit: Some(0),
                    fence: None,
                },
            );
            let launch = Launch {
                job: job.id,
                nspace: nspace.clone(),
                universe: room,
                size: job.size,
                apps: job.spec.apps.clone(),
                procs,
                stdin: job.spec.stdin,
                stdio: job.spec.stdio.clone(),
                end: job.spec.end,
                hold: job.spec.hold,
                process_mapping: mapping.clone(),
                front_pid: self.front_pid,
                variables: job.spec.variables,
            };
            self.outputs.push_back(ControllerOutput::Daemon(
                node,
                ToDaemon::Launch(Box::new(launch)),
            ));
        }
    }

    fn refuse(&mut self, refusal: Refusal) {
        if let Some(job) = &mut self.job {
            job.phase = Phase::Over;
        }
        self.tell(ToFront::Refused(refusal));
        self.outputs.push_back(ControllerOutput::Finished);
    }

    fn on_daemon(&mut self, now: Time, node: NodeId, message: ToController) {
        match message {
            ToController::Hello {
                node: said,
                topology,
            } if said == node => {
                self.nodes.insert(node, *topology);
                self.launch_if_ready();
            }
            ToController::Hello { node: said, .. } => {
                self.log(format!(
                    "the daemon on node {node} calls itself node {said}: ignored"
                ));
            }
            ToController::Launched {
                table, failures, ..
            } => self.on_launched(now, node, table, failures),
            ToController::Held { ranks, .. } => {
                let news = self.job.as_mut().and_then(|job| job.hold.on_held(&ranks));
                self.announce(news);
            }
            ToController::Output { chunk, .. } => self.on_output(node, chunk),
            ToController::StdinCredit { bytes, .. } => self.on_stdin_credit(node, Some(bytes)),
            ToController::StdinClosed { .. } => self.on_stdin_credit(node, None),
            ToController::Ended {
                rank,
                status,
                drained,
                ..
            } => self.on_ended(now, rank, status, drained),
            ToController::Ask {
                proc,
                ticket,
                request,
            } => self.on_ask(now, node, proc, ticket, &request),
            ToController::Fence { puts, .. } => self.on_fence(node, puts),
            ToController::Abort {
                rank,
                code,
                message,
                ..
            } => {
                self.end(
                    now,
                    Cause::Aborted {
                        rank,
                        code,
                        message,
                    },
                );
            }
            ToController::Protocol { rank, what, .. } => {
                self.end(now, Cause::Protocol { rank, what })
            }
            ToController::Note { note, .. } => self.tell(ToFront::Note(note)),
            ToController::Clean { .. } => {
                if let Some(share) = self.share(node) {
                    share.clean = true;
                }
            }
        }
    }

    fn share(&mut self, node: NodeId) -> Option<&mut Share> {
        self.job.as_mut().and_then(|job| job.shares.get_mut(&node))
    }

    fn on_launched(
        &mut self,
        now: Time,
        node: NodeId,
        table: Vec<TableRow>,
        failures: Vec<(StartFailure, RankSet)>,
    ) {
        let Some(job) = &mut self.job else { return };
        let Some(share) = job.shares.get_mut(&node) else {
            return;
        };
        share.launched = true;
        let started: RankSet = table.iter().map(|row| row.rank).collect();
        let missing = share.ranks.difference(&started);
        job.started = job.started.union(&started);
        job.settled = job.settled.union(&missing);
        job.table.extend(table);
        for (failure, ranks) in failures {
            let merged = job.failures.entry(failure).or_default();
            *merged = merged.union(&ranks);
        }
        let mut news = None;
        for rank in missing.iter() {
            let said = job.hold.on_gone(rank);
            news = news.or(said);
        }
        let failed = !job.failures.is_empty();
        self.tell_launched();
        self.announce(news);
        if failed {
            self.end(now, Cause::NotStarted(Vec::new()));
        }
    }

    /// Tells the front of the launch when the last node has said, or will never say, what became of it.
    fn tell_launched(&mut self) {
        let Some(job) = self
            .job
            .as_mut()
            .filter(|job| job.shares.values().all(|share| share.launched))
        else {
            return;
        };
        if job.phase == Phase::Launching {
            job.phase = Phase::Running;
        }
        job.table.sort_by_key(|row| row.rank);
        let launched = ToFront::Launched {
            job: job.id,
            table: std::mem::take(&mut job.table),
        };
        self.tell(launched);
    }

    fn on_output(&mut self, node: NodeId, chunk: crate::proto::Chunk) {
        let Some(job) = &mut self.job else { return };
        let (stream, bytes) = (chunk.stream, stdio::cost(chunk.bytes.len()));
        if self.front_lost {
            // Nobody reads: the procs must not stall on full pipes while they are being ended.
            self.credit_node(node, stream, bytes);
            return;
        }
        let unpaid = &mut job.unpaid[stream as usize];
        match unpaid.back_mut() {
            Some((last, sum)) if *last == node => *sum += bytes,
            _ => unpaid.push_back((node, bytes)),
        }
        self.tell(ToFront::Output(chunk));
    }

    /// Every node of the job has a window of its own: the front's credit goes to those whose output it has printed.
    fn credit_output(&mut self, stream: Stream, bytes: u64) {
        let Some(job) = &mut self.job else { return };
        if planted::is(Bug::CreditSpreadEvenly) {
            let nodes: Vec<NodeId> = job.shares.keys().copied().collect();
            for node in &nodes {
                self.credit_node(*node, stream, bytes / nodes.len() as u64);
            }
            return;
        }
        let unpaid = &mut job.unpaid[stream as usize];
        let mut left = bytes;
        let mut paid: BTreeMap<NodeId, u64> = BTreeMap::new();
        while left > 0
            && let Some((node, sum)) = unpaid.front_mut()
        {
            let part = left.min(*sum);
            *paid.entry(*node).or_default() += part;
            left -= part;
            *sum -= part;
            if *sum == 0 {
                unpaid.pop_front();
            }
        }
        for (node, bytes) in paid {
            self.credit_node(node, stream, bytes);
        }
    }

    fn credit_node(&mut self, node: NodeId, stream: Stream, bytes: u64) {
        if let Some(job) = &self.job
            && job.shares.get(&node).is_some_and(|share| !share.clean)
        {
            let credit = ToDaemon::OutputCredit {
                job: job.id,
                stream,
                bytes,
            };
            self.outputs
                .push_back(ControllerOutput::Daemon(node, credit));
        }
    }

    /// The front may send what the slowest node can take.
    fn on_stdin_credit(&mut self, node: NodeId, bytes: Option<u64>) {
        let Some(job) = &mut self.job else { return };
        let Some(share) = job
            .shares
            .get_mut(&node)
            .filter(|share| share.stdin_credit.is_some())
        else {
            return;
        };
        share.stdin_credit = match (share.stdin_credit, bytes) {
            (Some(sum), Some(bytes)) => Some(sum + bytes),
            _ => None,
        };
        let slowest = job
            .shares
            .values()
            .filter_map(|share| share.stdin_credit)
            .min();
        let message = match slowest {
            None => ToFront::StdinClosed,
            Some(sum) if sum > job.stdin_given => {
                let credit = sum - job.stdin_given;
                job.stdin_given = sum;
                ToFront::StdinCredit(credit.min(STDIN_WINDOW))
            }
            Some(_) => return,
        };
        self.tell(message);
    }

    fn on_ended(&mut self, now: Time, rank: Rank, status: ExitStatus, drained: Drained) {
        let Some(job) = &mut self.job else { return };
        if job.settled.contains(rank) {
            self.log(format!(
                "rank {rank} ended twice: the second end is ignored"
            ));
            return;
        }
        job.settled.insert(rank);
        job.ended.entry(status).or_default().insert(rank);
        if job.phase >= Phase::Ending {
            job.ended_by_us.insert(rank);
        }
        if drained == Drained::Leaky {
            job.leaky.insert(rank);
        }
        let news = job.hold.on_gone(rank);
        let decides = !status.is_success() && job.cause.is_none();
        let policy = job.spec.end.on_failure;
        self.announce(news);
        if decides {
            let cause = Cause::Failed { rank, status };
            match policy {
                OnFailure::EndJob => self.end(now, cause),
                OnFailure::Continue if planted::is(Bug::ContinueIgnored) => self.end(now, cause),
                OnFailure::Continue => {
                    if let Some(job) = &mut self.job {
                        job.cause = Some(cause);
                    }
                }
            }
        }
    }

    /// A fence is over when every node has all of its ranks in it.
    fn on_fence(&mut self, node: NodeId, puts: Vec<(String, String)>) {
        let Some(job) = &mut self.job else { return };
        let Some(share) = job.shares.get_mut(&node) else {
            return;
        };
        if share.fence.is_some() {
            self.log(format!("node {node} is in the fence twice: ignored"));
            return;
        }
        share.fence = Some(puts);
        if job.shares.values().any(|share| share.fence.is_none()) {
            return;
        }
        let all: Vec<(String, String)> = job
            .shares
            .values_mut()
            .filter_map(|share| share.fence.take())
            .flatten()
            .collect();
        if planted::is(Bug::FenceDoneToOneNode) {
            let (job, node) = (job.id, job.shares.keys().next().copied());
            let message = ToDaemon::FenceDone { job, puts: all };
            self.outputs
                .extend(node.map(|node| ControllerOutput::Daemon(node, message)));
            return;
        }
        self.each_node(|job| ToDaemon::FenceDone {
            job,
            puts: all.clone(),
        });
    }

    fn announce(&mut self, news: Option<Announcement>) {
        // Where none could be started there is nothing to attach to, and the end says why.
        if let Some(Announcement::AllHeld { held, dead }) = news
            && !held.is_empty()
        {
            self.tell(ToFront::AllHeld { held, dead });
        }
    }

    fn release(&mut self) {
        let released = self.job.as_mut().and_then(|job| job.hold.release());
        if released.is_some() {
            self.each_node(|job| ToDaemon::Release { job });
        }
    }

    /// Begins to end the job: SIGTERM, grace, SIGKILL. The first cause is the one that is told.
    fn end(&mut self, now: Time, cause: Cause) {
        let Some(job) = &mut self.job else { return };
        match job.phase {
            Phase::Waiting => {
                job.cause = Some(cause);
                job.phase = Phase::Ending;
            }
            Phase::Launching | Phase::Running => {
                let grace = match cause {
                    Cause::Ended(EndReason::FrontLost) => LOSS_GRACE,
                    _ => job.spec.end.grace,
                };
                // Under the policy to continue, an earlier failure is the cause of a job that then ends by itself; who
                // ends it now is what the user wants to know.
                job.cause = Some(cause);
                job.phase = Phase::Ending;
                self.each_node(|job| ToDaemon::End { job, grace });
            }
            Phase::Ending if planted::is(Bug::LastCauseWins) => job.cause = Some(cause),
            Phase::Ending | Phase::Over => {}
        }
        let _ = now;
    }

    fn kill(&mut self, cause: Cause) {
        let Some(job) = &mut self.job else { return };
        if job.phase < Phase::Ending {
            job.cause = Some(cause);
            job.phase = Phase::Ending;
        }
        self.each_node(|job| ToDaemon::Kill { job });
    }

    fn on_front_lost(&mut self, now: Time) {
        self.front_lost = true;
        // What was on its way to the front will never be paid for by it.
        for stream in Stream::BOTH {
            if planted::is(Bug::FrontLostForgetsCredit) {
                break;
            }
            self.credit_output(stream, u64::MAX);
        }
        match &self.job {
            None => self.outputs.push_back(ControllerOutput::Finished),
            // It was ending already, with a grace that was meant for a front that waits.
            Some(job) if job.phase == Phase::Ending => {
                self.each_node(|job| ToDaemon::Kill { job });
            }
            Some(_) => self.end(now, Cause::Ended(EndReason::FrontLost)),
        }
    }

    fn on_daemon_lost(&mut self, now: Time, node: NodeId) {
        self.nodes.remove(&node);
        let Some(job) = &mut self.job else { return };
        let Some(share) = job.shares.get_mut(&node) else {
            return;
        };
        let launched = std::mem::replace(&mut share.launched, true);
        share.clean = true;
        let ranks = share.ranks.clone();
        if !launched {
            // Which of them were started nobody will ever know; they count as started and killed.
            job.started = job.started.union(&ranks);
        }
        let lost = ranks.difference(&job.settled);
        self.on_stdin_credit(node, None);
        if !launched {
            self.tell_launched();
        }
        let status = ExitStatus::Signaled {
            signal: Signal::KILL,
            core_dumped: false,
        };
        for rank in lost.iter() {
            // Nothing holds the output of a lost node open.
            self.on_ended(now, rank, status, Drained::Whole);
        }
    }

    fn finish_if_settled(&mut self) {
        let Some(job) = &mut self.job else { return };
        let settled = match job.phase {
            Phase::Waiting | Phase::Over => false,
            // Ended before it was launched: there is nothing to wait for.
            Phase::Ending if job.shares.is_empty() => true,
            Phase::Launching | Phase::Running | Phase::Ending => {
                job.settled.len() == job.size as usize
                    && job.shares.values().all(|share| share.clean)
            }
        };
        if !settled {
            return;
        }
        job.phase = Phase::Over;
        let all = RankSet::range(0..job.size);
        let cause = match job.cause.take() {
            Some(Cause::NotStarted(_)) => {
                Cause::NotStarted(std::mem::take(&mut job.failures).into_iter().collect())
            }
            Some(cause) => cause,
            None => Cause::Success,
        };
        let outcome = Outcome {
            cause,
            size: job.size,
            not_started: all.difference(&job.started),
            ended: std::mem::take(&mut job.ended).into_iter().collect(),
            ended_by_us: std::mem::take(&mut job.ended_by_us),
        };
        let leaky = std::mem::take(&mut job.leaky);
        if !leaky.is_empty() {
            self.tell(ToFront::Note(Note::Leaky(leaky)));
        }
        self.tell(ToFront::Ended(outcome));
        self.outputs.push_back(ControllerOutput::Finished);
    }

    fn each_node(&mut self, message: impl Fn(JobId) -> ToDaemon) {
        let Some(job) = &self.job else { return };
        let messages = job
            .shares
            .iter()
            .filter(|(_, share)| !share.clean)
            .map(|(node, _)| ControllerOutput::Daemon(*node, message(job.id)));
        self.outputs.extend(messages);
    }

    fn each_reader(&mut self, message: impl Fn(JobId) -> ToDaemon) {
        let Some(job) = &self.job else { return };
        let messages = job
            .shares
            .iter()
            .filter(|(_, share)| share.stdin_credit.is_some())
            .map(|(node, _)| ControllerOutput::Daemon(*node, message(job.id)));
        self.outputs.extend(messages);
    }

    fn tell(&mut self, message: ToFront) {
        if !self.front_lost {
            self.outputs.push_back(ControllerOutput::Front(message));
        }
    }

    fn log(&mut self, what: String) {
        self.outputs.push_back(ControllerOutput::Log(what));
    }
}

/// Procs that the nodes have room for: as many as somebody said, or as there are cores.
fn universe(allocation: &Allocation, topologies: &BTreeMap<NodeId, Topology>) -> u32 {
    let room = (0..)
        .zip(&allocation.nodes)
        .map(|(index, node)| match node.slots {
            Slots::Explicit(slots) => slots,
            Slots::Implicit => topologies.get(&NodeId(index)).map_or(1, |topology| {
                topology.cores().len().try_into().unwrap_or(u32::MAX)
            }),
        });
    room.fold(0, u32::saturating_add)
}

/// Ranks that an option names and that the job does not have.
fn check_ranks(spec: &JobSpec, size: u32) -> Option<Refusal> {
    let input = match spec.stdin {
        StdinTarget::Rank(rank) => Some(rank),
        StdinTarget::None | StdinTarget::All => None,
    };
    let terminal = spec.stdio.pty.map(|pty| pty.rank);
    // A terminal takes the input with it, so that it is named where both are.
    let named = [(RankChoice::Terminal, terminal), (RankChoice::Input, input)];
    named.into_iter().find_map(|(what, rank)| {
        let rank = rank.filter(|rank| rank.0 >= size)?;
        Some(Refusal::NoSuchRank { what, rank, size })
    })
}

/// Expands each file name pattern once, so that a bad one is refused before anything is started.
fn check_patterns(spec: &JobSpec, size: u32) -> Result<(), String> {
    let facts = PatternFacts {
        rank: 0,
        size,
        local_rank: 0,
        app: 0,
        job: 0,
        front_pid: 0,
        host: "",
    };
    for destination in [&spec.stdio.stdout, &spec.stdio.stderr] {
        if let Destination::File(pattern) = destination {
            pattern
                .expand(&facts)
                .map_err(|error| describe_pattern(pattern, &error.to_string()))?;
        }
    }
    Ok(())
}

fn describe_pattern(pattern: &Pattern, error: &str) -> String {
    format!("`{}`: {error}", pattern.0.to_string_lossy())
}
