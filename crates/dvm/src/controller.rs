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
mod fences;
mod held;
mod launch;
mod servers;
mod spawned;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use base::{ExitStatus, JobId, NodeId, ProcId, RankSet, Signal, Time, Topology};

use self::{
    asks::{Asker, Published},
    fences::Fences,
    servers::Servers,
};
use crate::{
    alloc::Allocation,
    control,
    daemon::LOSS_GRACE,
    hold::{Hold, State},
    planted::{self, Bug},
    proto::{
        Cause, Chunk, Drained, EndClass, EndReason, FromFront, Note, Outcome, Refusal, Rest,
        StartFailure, Started, Stream, TableRow, ToController, ToDaemon, ToFront,
    },
    spec::{JobSpec, OnFailure, Warning},
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
    /// Another process of the user asks for something; answered at once.
    Asked {
        ticket: u64,
        request: control::Request,
    },
    /// The time that [`Controller::deadline`] gave has come.
    Tick,
}

/// What the caller is to do.
#[derive(Debug, PartialEq)]
pub enum ControllerOutput {
    Front(ToFront),
    Daemon(NodeId, ToDaemon),
    /// Answers [`ControllerInput::Asked`].
    Answer {
        ticket: u64,
        reply: control::Reply,
    },
    /// The job is over and its end was told: the daemons and the controller may go.
    Finished,
    /// A daemon or the front did something that the protocol rules out: a mistake of ours.
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

/// What a daemon has said of its node.
#[derive(Debug)]
struct Node {
    host: String,
    topology: Topology,
}

/// What one node still owes the job.
#[derive(Debug)]
struct Share {
    launched: bool,
    clean: bool,
    ranks: RankSet,
    /// The number of its first rank among the procs of all jobs there.
    first: u32,
    /// Input bytes that this node has given credit for; `None` when nothing there reads.
    stdin_credit: Option<u64>,
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
    /// Those that run on because nobody may end them.
    left: RankSet,
    hold: Hold,
    stdin_given: u64,
    limit_at: Option<Time>,
    /// When its procs get the signal that comes before the limit.
    warn_at: Option<Time>,
    /// When it ends because its first proc has ended.
    wait_at: Option<Time>,
    /// When it is said which ranks have not come to their holding point.
    hold_note_at: Option<Time>,
    /// Who has spawned it, and waits to hear of its start.
    origin: Origin,
    /// The number of its first rank among those of all jobs.
    offset: u32,
}

/// Where a job comes from.
#[derive(Clone, Debug, PartialEq)]
enum Origin {
    Front,
    Spawned {
        by: ProcId,
        /// Absent when it was told.
        asker: Option<Asker>,
        /// Output that it wants to have as well.
        forward: Vec<Stream>,
        /// What the spawner has put into its key-value space, if it was spawned by PMI. The two are one MPI program then:
        /// who fails takes the other along.
        preput: Option<Vec<(String, String)>>,
    },
}

/// The number of the job that a front submits; those that its procs spawn have other ones.
pub const FIRST: JobId = JobId(1);
/// How long ranks are waited for at their holding point before it is said which of them have not come.
pub const HOLD_PATIENCE: Duration = Duration::from_secs(10);
/// Jobs that may live at once.
const MAX_JOBS: usize = 4096;

impl Job {
    fn is_ending(&self) -> bool {
        self.phase >= Phase::Ending
    }

    /// Nothing of it runs, nothing of it is left, and nothing will come.
    fn is_settled(&self) -> bool {
        match self.phase {
            Phase::Waiting | Phase::Over => false,
            // Ended before it was launched: there is nothing to wait for.
            Phase::Ending if self.shares.is_empty() => true,
            Phase::Launching | Phase::Running | Phase::Ending => {
                self.settled.len() == self.size as usize
                    && self.shares.values().all(|share| share.clean)
            }
        }
    }

    /// How it ended: to be asked once.
    fn outcome(&mut self) -> Outcome {
        let cause = match self.cause.take() {
            Some(Cause::NotStarted(_)) => {
                Cause::NotStarted(std::mem::take(&mut self.failures).into_iter().collect())
            }
            Some(cause) => cause,
            None => Cause::Success,
        };
        Outcome {
            cause,
            size: self.size,
            not_started: RankSet::range(0..self.size).difference(&self.started),
            ended: std::mem::take(&mut self.ended).into_iter().collect(),
            ended_by_us: std::mem::take(&mut self.ended_by_us),
            left: std::mem::take(&mut self.left),
        }
    }
}

/// The state machine: one job of a front, and those that its procs spawn.
#[derive(Debug)]
pub struct Controller {
    allocation: Allocation,
    front_pid: u32,
    /// Those that said hello.
    nodes: BTreeMap<NodeId, Node>,
    /// A daemon of another version said hello: no job can run.
    other_version: Option<Refusal>,
    /// The front's job is the first; the others were spawned by procs, and are forgotten when they are over.
    jobs: BTreeMap<JobId, Job>,
    /// Whose output the front has not paid for, by stream, in the order in which it prints. Neighbours of one job on one
    /// node are one entry; the windows of the nodes bound the sum, and with it the number.
    unpaid: [VecDeque<(JobId, NodeId, u64)>; 2],
    front_lost: bool,
    next_job: u32,
    /// The number of the next job's first rank, as far as the jobs that are gone count.
    offset: u32,
    /// What the names of jobs begin with in PMIx.
    name: String,
    published: Published,
    servers: Servers,
    fences: Fences,
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
            servers: Servers::default(),
            fences: Fences::default(),
            allocation,
            front_pid,
            nodes: BTreeMap::new(),
            other_version: None,
            jobs: BTreeMap::new(),
            next_job: FIRST.0,
            offset: 0,
            unpaid: [VecDeque::new(), VecDeque::new()],
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
            ControllerInput::Asked { ticket, request } => {
                let reply = self.on_request(request);
                self.outputs
                    .push_back(ControllerOutput::Answer { ticket, reply });
            }
            ControllerInput::Tick => {
                self.warn(now);
                let over = |job: &Job| job.limit_at.is_some_and(|at| at <= now);
                if self.jobs.values().any(over) {
                    self.end_all(now, EndReason::TimeLimit);
                }
                let waited = |job: &Job| job.wait_at.is_some_and(|at| at <= now);
                if self.jobs.values().any(waited) {
                    self.end_all(now, EndReason::Waited);
                }
                self.note_missing(now);
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
        let running = self.jobs.values().filter(|job| job.phase < Phase::Ending);
        running
            .flat_map(|job| [job.limit_at, job.warn_at, job.wait_at, job.hold_note_at])
            .flatten()
            .chain(self.published.deadline())
            .min()
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
            FromFront::Signal(signal) => {
                for id in self.living() {
                    self.each_node(id, |job| ToDaemon::Signal { job, signal });
                }
            }
            FromFront::End(reason) => self.end_all(now, reason),
            FromFront::Kill(reason) => {
                for id in self.living() {
                    self.kill(id, Cause::Ended(reason));
                }
            }
            FromFront::Release(ranks) => {
                self.release(FIRST, ranks.as_ref());
            }
            FromFront::Resize(size) => {
                self.each_node(FIRST, |job| ToDaemon::Resize { job, size });
            }
        }
    }

    fn submit(&mut self, now: Time, spec: Box<JobSpec>) {
        if !self.jobs.is_empty() {
            self.log("a second job was submitted: ignored".to_owned());
            return;
        }
        self.add(now, spec, Origin::Front);
    }

    /// Takes a job, and launches it as soon as the daemons are there.
    fn add(&mut self, now: Time, spec: Box<JobSpec>, origin: Origin) {
        let limit_at = spec.end.time_limit.map(|limit| now + limit);
        let warn_at = spec.end.time_limit.zip(spec.end.warning);
        let warn_at = warn_at.map(|(limit, warning)| now + limit.saturating_sub(warning.before));
        let id = JobId(self.next_job);
        self.next_job += 1;
        let job = Job {
            id,
            origin,
            offset: self
                .jobs
                .values()
                .map(|job| job.offset.saturating_add(job.size))
                .fold(self.offset, u32::max),
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
            left: RankSet::new(),
            hold: Hold::off(),
            stdin_given: 0,
            limit_at,
            warn_at,
            wait_at: None,
            hold_note_at: None,
            spec,
        };
        self.jobs.insert(id, job);
        self.launch_if_ready(id);
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
            } => self.on_launched(now, job, node, started, failures),
            ToController::Held { job: id, ranks } => {
                let job = self.jobs.get_mut(&id);
                let news = job.and_then(|job| job.hold.on_held(&ranks));
                self.announce(id, news);
            }
            ToController::Released { job, ranks } => {
                self.release(job, Some(&ranks));
            }
            ToController::Output { job, chunk } => self.on_output(job, node, chunk),
            ToController::StdinCredit { job, bytes } => {
                self.on_stdin_credit(job, node, Some(bytes));
            }
            ToController::StdinClosed { job } => self.on_stdin_credit(job, node, None),
            ToController::Left { job, ranks } => self.on_left(job, &ranks),
            ToController::Ended { job, classes } => self.on_ended(now, job, classes),
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
                    now,
                    job,
                    Cause::Aborted {
                        rank,
                        code,
                        message,
                    },
                );
            }
            ToController::Protocol { job, rank, what } => {
                self.end(now, job, Cause::Protocol { rank, what });
            }
            ToController::Absent { job, ranks } => self.end(now, job, Cause::Absent(ranks)),
            ToController::Unfinished { job, ranks } => {
                self.end(now, job, Cause::Unfinished(ranks));
            }
            ToController::LeftEarly { job, ranks } => self.on_left_early(job, ranks),
            ToController::Note { note, .. } => self.tell(ToFront::Note(note)),
            ToController::DebuggerLost { job, ranks } => self.on_debugger_lost(now, job, ranks),
            ToController::Clean { job } => {
                let job = self.jobs.get_mut(&job);
                if let Some(share) = job.and_then(|job| job.shares.get_mut(&node)) {
                    share.clean = true;
                }
            }
        }
    }

    fn on_launched(
        &mut self,
        now: Time,
        id: JobId,
        node: NodeId,
        groups: Vec<Started>,
        failures: Vec<(StartFailure, RankSet)>,
    ) {
        let host = self.nodes.get(&node);
        let host = host.map_or_else(String::new, |node| node.host.clone());
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let Some(share) = job.shares.get_mut(&node) else {
            return;
        };
        share.launched = true;
        let mut started = RankSet::new();
        for Started { executable, pids } in groups {
            started.append(&pids.iter().map(|(rank, _)| *rank).collect());
            let rows = pids.into_iter().map(|(rank, pid)| TableRow {
                rank,
                host: host.clone(),
                executable: executable.clone(),
                pid,
            });
            job.table.extend(rows);
        }
        let missing = share.ranks.difference(&started);
        job.started = job.started.union(&started);
        job.settled = job.settled.union(&missing);
        for (failure, ranks) in failures {
            let merged = job.failures.entry(failure).or_default();
            *merged = merged.union(&ranks);
        }
        let news = job.hold.on_gone(&missing);
        let failed = !job.failures.is_empty();
        self.tell_launched(now, id);
        self.announce(id, news);
        if failed {
            self.end(now, id, Cause::NotStarted(Vec::new()));
        }
    }

    /// Tells the front of the launch when the last node has said, or will never say, what became of it.
    fn tell_launched(&mut self, now: Time, id: JobId) {
        let name = self.nspace(id);
        let Some(job) = self
            .jobs
            .get_mut(&id)
            .filter(|job| job.shares.values().all(|share| share.launched))
        else {
            return;
        };
        if job.phase == Phase::Launching {
            job.phase = Phase::Running;
        }
        let news = job.hold.on_launched();
        if job.hold.state() == State::Gathering {
            job.hold_note_at = Some(now + HOLD_PATIENCE);
        }
        if id != FIRST {
            self.tell_spawned(id);
            return self.announce(id, news);
        }
        job.table.sort_by_key(|row| row.rank);
        let launched = ToFront::Launched {
            job: job.id,
            name,
            table: std::mem::take(&mut job.table),
        };
        self.tell(launched);
        self.announce(id, news);
    }

    fn on_output(&mut self, id: JobId, node: NodeId, chunk: Chunk) {
        let (stream, bytes) = (chunk.stream, stdio::cost(chunk.bytes.len()));
        if self.front_lost {
            // Nobody reads: the procs must not stall on full pipes while they are being ended.
            self.credit_node(id, node, stream, bytes);
            return;
        }
        let unpaid = &mut self.unpaid[stream as usize];
        match unpaid.back_mut() {
            Some((job, last, sum)) if (*job, *last) == (id, node) => *sum += bytes,
            _ => unpaid.push_back((id, node, bytes)),
        }
        self.tell(ToFront::Output(chunk));
    }

    /// Every node has a window of its own for every job: the front's credit goes to those whose output it has printed.
    fn credit_output(&mut self, stream: Stream, bytes: u64) {
        if planted::is(Bug::CreditSpreadEvenly) {
            let nodes: Vec<NodeId> = self
                .jobs
                .get(&FIRST)
                .into_iter()
                .flat_map(|job| job.shares.keys().copied())
                .collect();
            for node in &nodes {
                self.credit_node(FIRST, *node, stream, bytes / nodes.len() as u64);
            }
            return;
        }
        let unpaid = &mut self.unpaid[stream as usize];
        let mut left = bytes;
        let mut paid: BTreeMap<(JobId, NodeId), u64> = BTreeMap::new();
        while left > 0
            && let Some((job, node, sum)) = unpaid.front_mut()
        {
            let part = left.min(*sum);
            *paid.entry((*job, *node)).or_default() += part;
            left -= part;
            *sum -= part;
            if *sum == 0 {
                unpaid.pop_front();
            }
        }
        for ((job, node), bytes) in paid {
            self.credit_node(job, node, stream, bytes);
        }
    }

    fn credit_node(&mut self, id: JobId, node: NodeId, stream: Stream, bytes: u64) {
        if let Some(job) = self.jobs.get(&id)
            && job.shares.get(&node).is_some_and(|share| !share.clean)
        {
            let credit = ToDaemon::OutputCredit {
                job: id,
                stream,
                bytes,
            };
            self.outputs
                .push_back(ControllerOutput::Daemon(node, credit));
        }
    }

    /// The front may send what the slowest node can take.
    fn on_stdin_credit(&mut self, id: JobId, node: NodeId, bytes: Option<u64>) {
        // Only the front's job reads what the front reads.
        let Some(job) = self.jobs.get_mut(&id).filter(|_| id == FIRST) else {
            return;
        };
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

    /// Procs have ended. What they did at once counts as having happened before anything that follows from it.
    fn on_ended(&mut self, now: Time, id: JobId, classes: Vec<EndClass>) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let mut gone = RankSet::new();
        let mut again = RankSet::new();
        let mut failed = None;
        for EndClass {
            status,
            drained,
            ranks,
        } in classes
        {
            again.append(&ranks.intersection(&job.settled));
            let ranks = ranks.difference(&job.settled);
            let Some(first) = ranks.first() else {
                continue;
            };
            job.settled.append(&ranks);
            job.ended.entry(status).or_default().append(&ranks);
            if job.phase >= Phase::Ending {
                job.ended_by_us.append(&ranks);
            }
            if drained == Drained::Leaky {
                job.leaky.append(&ranks);
            }
            if !status.is_success() {
                failed.get_or_insert(Cause::Failed {
                    rank: first,
                    status,
                });
            }
            gone.append(&ranks);
        }
        if job.wait_at.is_none() && !gone.is_empty() {
            job.wait_at = job.spec.end.wait.map(|wait| now + wait);
        }
        let news = job.hold.on_gone(&gone);
        let decides = failed.filter(|_| job.cause.is_none());
        let policy = job.spec.end.on_failure;
        if !again.is_empty() {
            self.log(format!(
                "ranks {again} ended twice: the second end is ignored"
            ));
        }
        self.published_owners_ended(id, &gone);
        self.announce(id, news);
        self.let_go_of_orphans(id, &gone);
        match (decides, policy) {
            (None, _) => {}
            (Some(cause), OnFailure::EndJob) => self.end(now, id, cause),
            (Some(cause), OnFailure::Continue) if planted::is(Bug::ContinueIgnored) => {
                self.end(now, id, cause);
            }
            (Some(cause), OnFailure::Continue) => {
                if let Some(job) = self.jobs.get_mut(&id) {
                    job.cause = Some(cause);
                }
            }
        }
    }

    /// These have ended well without having finished, and the job has come to its end since.
    fn on_left_early(&mut self, id: JobId, ranks: RankSet) {
        let well = self.jobs.get(&id).is_none_or(|job| job.cause.is_none());
        let rest = if well { Rest::Well } else { Rest::Badly };
        self.tell(ToFront::Note(Note::Unfinished { ranks, rest }));
    }

    /// These run on, and nobody can end them.
    fn on_left(&mut self, id: JobId, ranks: &RankSet) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        job.settled.append(ranks);
        job.left.append(ranks);
        let news = job.hold.on_gone(ranks);
        self.published_owners_ended(id, ranks);
        self.announce(id, news);
        self.let_go_of_orphans(id, ranks);
    }

    /// Begins to end the job: SIGTERM, grace, SIGKILL. The first cause is the one that is told.
    fn end(&mut self, now: Time, id: JobId, cause: Cause) {
        let _ = now;
        let (id, cause) = self.taken_along(id, cause);
        let descendants = self.descendants(id);
        for spawned in self.living() {
            // Whoever was spawned by it, or by those, has nobody left to work for. All come from the front's job at last, even
            // where the one between is gone.
            let is_meant = spawned != id && (id == FIRST || descendants.contains(&spawned));
            if is_meant && !planted::is(Bug::ChildrenNotEnded) {
                self.end_one(spawned, Cause::Ended(EndReason::SpawnerEnded));
            }
        }
        self.end_one(id, cause);
    }

    /// Sends the signals that come before a time limit.
    fn warn(&mut self, now: Time) {
        for id in self.living() {
            let Some(job) = self.jobs.get_mut(&id) else {
                continue;
            };
            if job.warn_at.is_none_or(|at| at > now) {
                continue;
            }
            job.warn_at = None;
            if let Some(Warning { signal, .. }) = job.spec.end.warning {
                self.each_node(id, |job| ToDaemon::Signal { job, signal });
            }
        }
    }

    fn end_all(&mut self, now: Time, reason: EndReason) {
        for id in self.living() {
            self.end(now, id, Cause::Ended(reason));
        }
    }

    fn end_one(&mut self, id: JobId, cause: Cause) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        match job.phase {
            Phase::Waiting => self.begin_to_end(id, cause),
            Phase::Launching | Phase::Running => {
                let grace = match cause {
                    Cause::Ended(EndReason::FrontLost) => LOSS_GRACE,
                    _ => job.spec.end.grace,
                };
                // Under the policy to continue, an earlier failure is the cause of a job that then ends by itself; who
                // ends it now is what the user wants to know.
                self.begin_to_end(id, cause);
                self.each_node(id, |job| ToDaemon::End { job, grace });
            }
            Phase::Ending if planted::is(Bug::LastCauseWins) => job.cause = Some(cause),
            Phase::Ending | Phase::Over => {}
        }
    }

    /// The front hears of it before any rank does.
    fn begin_to_end(&mut self, id: JobId, cause: Cause) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let said = match &cause {
            // More of them may come, but not to a debugger: it is told once.
            Cause::NotStarted(_) => Cause::NotStarted(job.failures.clone().into_iter().collect()),
            other => other.clone(),
        };
        job.cause = Some(cause);
        job.phase = Phase::Ending;
        if id == FIRST {
            self.tell(ToFront::Ending(said));
        }
    }

    fn kill(&mut self, id: JobId, cause: Cause) {
        if self
            .jobs
            .get(&id)
            .is_none_or(|job| job.phase < Phase::Ending)
        {
            self.begin_to_end(id, cause);
        }
        self.each_node(id, |job| ToDaemon::Kill { job });
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
        if self.jobs.is_empty() {
            self.outputs.push_back(ControllerOutput::Finished);
        }
        // Spawned jobs first, so that they get the same short grace as the front's, and not the end of what a job has
        // spawned.
        for id in self.living().into_iter().rev() {
            if self
                .jobs
                .get(&id)
                .is_some_and(|job| job.phase == Phase::Ending)
            {
                // It was ending already, with a grace that was meant for a front that waits.
                self.each_node(id, |job| ToDaemon::Kill { job });
            } else {
                self.end(now, id, Cause::Ended(EndReason::FrontLost));
            }
        }
    }

    fn on_daemon_lost(&mut self, now: Time, node: NodeId) {
        self.nodes.remove(&node);
        self.server_lost(node);
        self.fences_without(node);
        for id in self.living() {
            self.on_share_lost(now, id, node);
        }
    }

    fn on_share_lost(&mut self, now: Time, id: JobId, node: NodeId) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
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
        let ranks = ranks.difference(&job.settled);
        self.on_stdin_credit(id, node, None);
        if !launched {
            self.tell_launched(now, id);
        }
        let status = ExitStatus::Signaled {
            signal: Signal::KILL,
            core_dumped: false,
        };
        let lost = EndClass {
            status,
            // Nothing holds the output of a lost node open.
            drained: Drained::Whole,
            ranks,
        };
        self.on_ended(now, id, vec![lost]);
    }

    /// The jobs that are not over.
    fn living(&self) -> Vec<JobId> {
        let living = self.jobs.values().filter(|job| job.phase < Phase::Over);
        living.map(|job| job.id).collect()
    }

    /// Ends what is settled, and tells the front when nothing is left.
    fn finish_if_settled(&mut self) {
        for id in self.living() {
            let settled = self.jobs.get(&id).is_some_and(Job::is_settled);
            // The front's job is told last.
            if id != FIRST && settled {
                self.finish(id);
            }
        }
        let alone = self.living() == [FIRST];
        if alone && self.jobs.get(&FIRST).is_some_and(Job::is_settled) {
            self.finish(FIRST);
        }
    }

    fn finish(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        job.phase = Phase::Over;
        let outcome = job.outcome();
        self.tell_servers_over(id);
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let leaky = std::mem::take(&mut job.leaky);
        if !leaky.is_empty() {
            self.tell(ToFront::Note(Note::Leaky(leaky)));
        }
        if id == FIRST {
            self.tell(ToFront::Ended(outcome));
            self.outputs.push_back(ControllerOutput::Finished);
        } else {
            self.spawned_ended(id, outcome);
        }
    }

    fn each_node(&mut self, id: JobId, message: impl Fn(JobId) -> ToDaemon) {
        let Some(job) = self.jobs.get(&id) else {
            return;
        };
        let messages = job
            .shares
            .iter()
            .filter(|(_, share)| !share.clean)
            .map(|(node, _)| ControllerOutput::Daemon(*node, message(job.id)));
        self.outputs.extend(messages);
    }

    fn each_reader(&mut self, message: impl Fn(JobId) -> ToDaemon) {
        let Some(job) = self.jobs.get(&FIRST) else {
            return;
        };
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
