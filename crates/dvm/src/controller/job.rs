//! One job at the controller, from its submission or spawn to its end.
//!
//! | phase | placed | refused | all nodes have launched | end requested | kill requested | ranks settled, nodes clean |
//! |---|---|---|---|---|---|---|
//! | `Waiting` | send `Launch` → `Launching` | the job is removed | – | → `Ending` | → `Ending` | – |
//! | `Launching` | – | – | report to front or spawner → `Running` | send `End` → `Ending` | send `Kill` → `Ending` | – |
//! | `Running` | – | – | – | send `End` → `Ending` | send `Kill` → `Ending` | → `Over` |
//! | `Ending` | – | – | report to front or spawner | – | send `Kill` | → `Over` |
//! | `Over` | – | – | – | – | – | – |
//!
//! A *rank* is settled when it has ended, was never started, or cannot be ended. A *node* is clean when its daemon has
//! reported that it will send no further message about the job, or when the node is lost. When both hold for all ranks
//! and nodes, the job is complete ([`Job::is_settled`]), and the controller finishes it. A job that was ended before it
//! was placed has neither ranks nor nodes, so it is complete immediately.
//!
//! When a rank fails, the job asks the controller to end the job ([`JobOutput::Failed`]), unless its policy is to continue. A
//! job has no knowledge of other jobs: the controller decides which of them end with it.

mod input;
mod origin;
mod outcome;
mod pushes;
mod table;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use base::{ExitStatus, HostList, JobId, NodeId, RankSet, Signal, Time, Usage};

use pmix::value::Status;

use self::{input::Credits, pushes::Pushes, table::Table};
pub(super) use self::{
    origin::{Kind, LoggedNews, Origin, Spawner, StartNews, WhenItLeaves},
    pushes::Push,
};
use super::{asks::Asker, sets::DefinedSets};
use crate::{
    daemon::LOSS_GRACE,
    hold::{Announcement, Hold, State},
    machine::Grant,
    planted::{self, Bug},
    proto::{
        Beside, Cause, Drained, EndClass, EndReason, FrontId, Launch, Note, PmiState, StartFailure,
        Started, ToDaemon, ToFront, Unenforced,
    },
    spec::{JobSpec, OnFailure, Warning, WindowSize},
};

/// How long to wait for ranks to reach their holding point before a note names the missing ones.
pub const HOLD_PATIENCE: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    Waiting,
    Launching,
    Running,
    Ending,
    Over,
}

/// Signals that ask a job to end. Before its launch, no rank could handle them.
pub(super) const ASKS_FOR_END: [Signal; 4] = [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT];

/// Maximum number of refused spawns of a job's procs that the front is told of.
const REFUSED_SPAWNS_MAX: usize = 16;
/// Refused requests for allocations of which a front is told.
const REFUSED_ALLOCATIONS_MAX: usize = 16;

/// The part of the job that runs on one node.
#[derive(Debug)]
pub(super) struct Share {
    /// The node has reported which ranks it has started, or it is lost.
    launched: bool,
    /// The node will send no further message about the job.
    pub(super) clean: bool,
    pub(super) ranks: RankSet,
    /// Node rank of this job's first proc on the node. Node ranks number the procs of all jobs on a node
    /// (`PMIX_NODE_RANK`). It is higher than every node rank of the jobs that had not ended on the node
    /// at the launch.
    pub(super) first: u32,
    /// Total number of bytes of input for which this node has given credit since the launch. `None` once no rank on the
    /// node reads input.
    input_credit: Option<u64>,
}

/// A node's report about the launch.
#[derive(Debug)]
pub(super) struct LaunchReport {
    pub(super) started: Vec<Started>,
    pub(super) failures: Vec<(StartFailure, RankSet)>,
    pub(super) unenforced: Vec<Unenforced>,
}

/// An action that a job requests from the controller.
#[derive(Debug)]
pub(super) enum JobOutput {
    /// Send a message to the front of the job.
    Front(ToFront),
    Daemon(NodeId, ToDaemon),
    /// Every proc has been started or has failed to start: answer the proc that spawned the job, or tell the tool that observes it.
    Started,
    /// The job runs, and is to be watched from now on, with what is left of its time limit.
    Watch(Option<Duration>),
    /// All ranks are held: notify the proc that spawned the job, the tool that controls it, or all tools.
    Ready,
    /// These ranks have ended, or cannot be ended. The controller removes their look-ups and published data, and releases
    /// the held ranks of jobs that they have spawned.
    Gone(RankSet),
    /// Answer a process's request to push input, with this status.
    Answer(Asker, Status),
    /// End the job, for this cause.
    Failed(Cause),
    /// End all jobs of the front, because a time limit of the job has passed.
    Expired(EndReason),
    /// Log a violation of the protocol by a daemon.
    Log(String),
}

/// The arguments of [`Job::new`].
#[derive(Debug)]
pub(super) struct NewJob {
    pub(super) id: JobId,
    pub(super) spec: Box<JobSpec>,
    pub(super) origin: Origin,
    pub(super) front: FrontId,
    pub(super) root: JobId,
    pub(super) nspace: String,
    pub(super) grant: Option<Arc<Grant>>,
    pub(super) beside: Option<Beside>,
}

#[derive(Debug)]
pub(super) struct Job {
    pub(super) id: JobId,
    pub(super) spec: Box<JobSpec>,
    pub(super) origin: Origin,
    /// The front that submitted this job, or that submitted [`Self::root`].
    pub(super) front: FrontId,
    /// The job that the front has submitted and that this job descends from. The job's own id if it was not spawned.
    pub(super) root: JobId,
    /// PMIx nspace of the job.
    pub(super) nspace: String,
    /// What of the machine it may use; `None`: everything.
    pub(super) grant: Option<Arc<Grant>>,
    /// The ranks beside which it is, if it is a tool.
    pub(super) beside: Option<Beside>,
    pub(super) phase: Phase,
    /// What its daemons were told; `None` before it is placed.
    pub(super) launch: Option<Arc<Launch>>,
    /// Number of ranks; 0 before the job is placed.
    pub(super) size: u32,
    /// Ranks that exited with code 0 without initializing, or without finalizing, PMI or PMIx; only in jobs of several nodes.
    exited_early: BTreeMap<PmiState, RankSet>,
    /// Number of refused spawns of this job's procs that the front was told of.
    refused_spawns: usize,
    /// Refused requests for allocations of which the front was told.
    refused_allocations: usize,
    /// The front was told that no queue grants allocations.
    has_told_of_scheduler: bool,
    /// The event of its end was sent.
    has_told_of_end: bool,
    pub(super) shares: BTreeMap<NodeId, Share>,
    /// Number of shares that are not [`Share::launched`], and of those that are not [`Share::clean`]. Counted, because going over
    /// all nodes for each report of a node would take time in the square of their number.
    unlaunched: usize,
    unclean: usize,
    /// The values of [`Share::input_credit`].
    input_credits: Credits,
    pub(super) table: Table,
    /// Ranks that could not be started, by reason.
    pub(super) failures: BTreeMap<StartFailure, RankSet>,
    /// Ranks that could not be started, by node.
    failed_on: BTreeMap<NodeId, RankSet>,
    /// Limits that are not enforced, and where; empty once the front was told.
    unenforced: BTreeMap<Unenforced, HostList>,
    /// The reason why the job is being ended, or why it will be reported as failed. `None` if there is no reason so far.
    pub(super) cause: Option<Cause>,
    ended: BTreeMap<ExitStatus, RankSet>,
    /// Ranks that have ended, were never started, or cannot be ended.
    pub(super) settled: RankSet,
    pub(super) started: RankSet,
    /// Ranks that have ended after the job began to end.
    ended_by_us: RankSet,
    /// Ranks that have exited while another process holds their output open.
    leaky: RankSet,
    /// Ranks that keep running because their daemon cannot end them.
    left: RankSet,
    pub(super) hold: Hold,
    pushes: Pushes,
    /// Total credit for input that the front has got, in bytes: the lowest [`Share::input_credit`] of all nodes that read
    /// input. Always 0 for a spawned job, which gets its input from processes that push it.
    input_given: u64,
    /// Total input that the front has sent, in bytes; at most `input_given`.
    input_taken: u64,
    /// Time at which the job's time limit ends all jobs of the front; `None` without a limit.
    limit_at: Option<Time>,
    /// Time at which the procs get the warning signal before the time limit. `None` once it was sent, or if there is no
    /// warning.
    warn_at: Option<Time>,
    /// Time at which all jobs of the front are ended: [`EndPolicy::wait`] after the first proc of this job has ended.
    /// `None` until a proc has ended, or if the policy sets no such limit.
    ///
    /// [`EndPolicy::wait`]: crate::spec::EndPolicy::wait
    wait_at: Option<Time>,
    /// Time at which the front gets a note about ranks that have not reached their holding point; `None` if no note is due.
    hold_note_at: Option<Time>,
    /// The last of SIGSTOP and SIGCONT for all its procs was SIGSTOP. What it spawns then, and what is not launched yet, is stopped as soon as
    /// it is started.
    pub(super) is_stopped: bool,
    /// What its procs have used, on nodes that are clean, and those of the jobs that it has spawned and that are over.
    pub(super) spent: Usage,
    pub(super) defined_sets: DefinedSets,
    outputs: VecDeque<JobOutput>,
}

impl Job {
    pub(super) fn new(now: Time, new: NewJob) -> Self {
        let NewJob {
            id,
            spec,
            origin,
            front,
            root,
            nspace,
            grant,
            beside,
        } = new;
        let mut job = Self {
            id,
            origin,
            front,
            root,
            nspace,
            grant,
            beside,
            phase: Phase::Waiting,
            launch: None,
            size: 0,
            exited_early: BTreeMap::new(),
            refused_spawns: 0,
            refused_allocations: 0,
            has_told_of_scheduler: false,
            has_told_of_end: false,
            shares: BTreeMap::new(),
            unlaunched: 0,
            unenforced: BTreeMap::new(),
            unclean: 0,
            input_credits: Credits::default(),
            table: Table::default(),
            failures: BTreeMap::new(),
            failed_on: BTreeMap::new(),
            cause: None,
            ended: BTreeMap::new(),
            settled: RankSet::new(),
            started: RankSet::new(),
            ended_by_us: RankSet::new(),
            leaky: RankSet::new(),
            left: RankSet::new(),
            hold: Hold::off(),
            pushes: Pushes::default(),
            input_given: 0,
            input_taken: 0,
            limit_at: None,
            warn_at: None,
            wait_at: None,
            hold_note_at: None,
            is_stopped: false,
            spent: Usage::default(),
            defined_sets: DefinedSets::default(),
            outputs: VecDeque::new(),
            spec,
        };
        job.start_clock(now);
        job
    }

    /// Returns the next action. After every other call to a job, the controller calls this function until it returns
    /// `None`.
    pub(super) fn poll(&mut self) -> Option<JobOutput> {
        self.outputs.pop_front()
    }

    pub(super) fn is_ending(&self) -> bool {
        self.phase >= Phase::Ending
    }

    /// Counts a refused spawn of a proc of this job; returns false if the front was told of so many before that it learns of no
    /// further one. A proc may try again and again.
    pub(super) const fn tells_of_refused_spawn(&mut self) -> bool {
        if self.refused_spawns >= REFUSED_SPAWNS_MAX {
            return false;
        }
        self.refused_spawns += 1;
        true
    }

    /// Counts a refused request of a proc of this job; returns false if the front was told of so many before that it learns of no
    /// further one.
    pub(super) const fn tells_of_refused_allocation(&mut self) -> bool {
        if self.refused_allocations >= REFUSED_ALLOCATIONS_MAX {
            return false;
        }
        self.refused_allocations += 1;
        true
    }

    /// Returns true if the front is to be told that no queue grants allocations: once.
    pub(super) const fn tells_of_no_scheduler(&mut self) -> bool {
        !std::mem::replace(&mut self.has_told_of_scheduler, true)
    }

    /// Returns the cause of the end, the first time.
    pub(super) fn tells_of_end(&mut self) -> Option<Cause> {
        let has_told = std::mem::replace(&mut self.has_told_of_end, true);
        (!has_told).then(|| self.cause.clone().unwrap_or(Cause::Success))
    }

    /// Returns the time at which its time limit ends it; `None` without one.
    pub(super) const fn ends_at(&self) -> Option<Time> {
        self.limit_at
    }

    /// Returns the time at which [`Self::on_tick`] is due.
    pub(super) fn deadline(&self) -> Option<Time> {
        if self.is_ending() {
            return None;
        }
        let deadlines = [self.limit_at, self.warn_at, self.wait_at, self.hold_note_at];
        deadlines.into_iter().flatten().min()
    }

    /// Lets the time limit begin now: the job has waited for a tool.
    pub(super) fn start_clock(&mut self, now: Time) {
        let limit = self.spec.end.time_limit;
        let warning = limit.zip(self.spec.end.warning);
        self.limit_at = limit.map(|limit| now + limit);
        self.warn_at = warning.map(|(limit, warning)| now + limit.saturating_sub(warning.before));
    }

    /// Lets no time limit pass before [`Self::start_clock`].
    pub(super) const fn stop_clock(&mut self) {
        self.limit_at = None;
        self.warn_at = None;
    }

    pub(super) fn on_tick(&mut self, now: Time) {
        if self.is_ending() {
            return;
        }
        let is_due = |at: Option<Time>| at.is_some_and(|at| at <= now);
        if is_due(self.warn_at) {
            self.warn_at = None;
            if let Some(Warning { signal, .. }) = self.spec.end.warning {
                self.signal(signal);
            }
        }
        if is_due(self.hold_note_at) {
            self.hold_note_at = None;
            self.note_missing();
        }
        if is_due(self.limit_at) {
            self.outputs
                .push_back(JobOutput::Expired(EndReason::TimeLimit));
        } else if is_due(self.wait_at) {
            self.outputs
                .push_back(JobOutput::Expired(EndReason::Waited));
        }
    }

    /// Launches the job, which the controller has placed: sends `Launch` to each of its nodes.
    pub(super) fn launch(&mut self, launch: &Arc<Launch>) {
        self.phase = Phase::Launching;
        self.launch = Some(Arc::clone(launch));
        self.size = launch.map.ranks();
        self.hold = Hold::gathering(self.spec.hold.among(self.size));
        if self.is_of_front() {
            for note in launch.map.notes() {
                self.tell(ToFront::Note(Note::Placement(note.clone())));
            }
        }
        for (id, node) in launch.map.nodes().zip(&launch.nodes) {
            let share = Share {
                launched: false,
                clean: false,
                ranks: launch.map.ranks_on(id),
                first: node.load.first,
                input_credit: Some(0),
            };
            self.shares.insert(id, share);
            self.input_credits.add(0);
            self.say(id, ToDaemon::Launch(Arc::clone(launch)));
        }
        (self.unlaunched, self.unclean) = (self.shares.len(), self.shares.len());
        if self.is_stopped {
            // It follows the launch, and holds for procs that are not started yet.
            self.signal(Signal::STOP);
        }
    }

    /// Handles a node's report about the launch: the ranks that it has started, and the ranks that it could not start.
    pub(super) fn on_launched(
        &mut self,
        now: Time,
        node: NodeId,
        host: &str,
        report: LaunchReport,
    ) {
        let LaunchReport {
            started: groups,
            failures,
            unenforced,
        } = report;
        let Some(share) = self.shares.get_mut(&node) else {
            return;
        };
        let is_first = !std::mem::replace(&mut share.launched, true);
        self.unlaunched -= usize::from(is_first);
        let mut started = RankSet::new();
        for group in groups {
            started.append(&group.pids.iter().map(|(rank, _)| *rank).collect());
            self.table.add(host, group);
        }
        for one in unenforced {
            self.unenforced.entry(one).or_default().push(host);
        }
        let missing = share.ranks.difference(&started);
        self.started.append(&started);
        self.settled.append(&missing);
        for (failure, ranks) in failures {
            let merged = self.failures.entry(failure).or_default();
            merged.append(&ranks);
            let failed = self.failed_on.entry(node).or_default();
            failed.append(&ranks);
        }
        let news = self.hold.on_gone(&missing);
        self.announce_launch(now);
        self.announce(news);
        if !self.failures.is_empty() {
            self.outputs
                .push_back(JobOutput::Failed(Cause::NotStarted(Vec::new())));
        }
    }

    /// Reports the launch to the front or to the spawner, once every node has reported its launch or is lost.
    fn announce_launch(&mut self, now: Time) {
        if self.unlaunched > 0 {
            return;
        }
        if self.phase == Phase::Launching {
            self.phase = Phase::Running;
        }
        for (unenforced, hosts) in std::mem::take(&mut self.unenforced) {
            self.tell(ToFront::Note(Note::NotLimited { hosts, unenforced }));
        }
        let news = self.hold.on_launched();
        if self.is_of_front() {
            if self.hold.state() == State::Gathering {
                self.hold_note_at = Some(now + HOLD_PATIENCE);
            }
            self.tell(ToFront::Launched {
                job: self.id,
                name: self.nspace.clone(),
                table: self.table.rows(),
            });
            if self.spec.watch.is_some() {
                let left = self.limit_at.map(|limit| limit.since(now));
                self.outputs.push_back(JobOutput::Watch(left));
            }
        }
        if self.origin != Origin::Front {
            self.outputs.push_back(JobOutput::Started);
        }
        self.announce(news);
    }

    pub(super) fn on_held(&mut self, ranks: &RankSet) {
        let news = self.hold.on_held(ranks);
        self.announce(news);
    }

    /// Reports to the front, and to the spawner of the job or to tools, that all ranks are held, if `news` says so.
    fn announce(&mut self, news: Option<Announcement>) {
        let Some(Announcement::AllHeld { held, dead }) = news else {
            return;
        };
        // If no rank is held, because each one died or was released, a debugger has no process to attach to. The outcome of the job will
        // report why they died.
        if held.is_empty() {
            return;
        }
        if self.is_of_front() && self.observer().is_none() {
            self.tell(ToFront::AllHeld { held, dead });
        }
        self.outputs.push_back(JobOutput::Ready);
    }

    /// Sends the front a note with the ranks that have not reached their holding point, because they may never reach it.
    fn note_missing(&mut self) {
        if self.hold.state() != State::Gathering {
            return;
        }
        self.tell(ToFront::Note(Note::NotHeldYet {
            at: self.spec.hold.at,
            ranks: self.hold.left().difference(self.hold.held()),
            held: self.hold.held().clone(),
        }));
    }

    /// Releases these ranks, or all ranks if `None`: of these, the held ones continue, and those not held yet will not be held. Returns the
    /// released ranks that were held or were still to be held. Without such ranks, it does nothing and returns `None`.
    pub(super) fn release(&mut self, ranks: Option<&RankSet>) -> Option<RankSet> {
        let (freed, news) = self.hold.release(ranks);
        let freed = freed?;
        self.each_node(|job| ToDaemon::Release {
            job,
            ranks: freed.clone(),
        });
        self.announce(news);
        if self.is_of_front() {
            self.tell(ToFront::Released {
                job: self.id,
                ranks: freed.clone(),
                held: self.hold.left(),
            });
        }
        Some(freed)
    }

    /// Handles a report about procs that have ended. Records all of them first, and only then ends the job if one of them
    /// has failed.
    pub(super) fn on_ended(&mut self, now: Time, classes: Vec<EndClass>) {
        // An earlier cause stays, for example a lost node without which the job continues.
        let Some(failed) = self.record(now, classes).filter(|_| !self.is_ending()) else {
            return;
        };
        match self.spec.end.on_failure {
            OnFailure::Continue if !planted::is(Bug::ContinueIgnored) => {
                self.cause.get_or_insert(failed);
            }
            OnFailure::EndJob | OnFailure::Continue => {
                self.outputs.push_back(JobOutput::Failed(failed));
            }
        }
    }

    /// Records the ends of procs. Returns the first failure among them.
    fn record(&mut self, now: Time, classes: Vec<EndClass>) -> Option<Cause> {
        let mut gone = RankSet::new();
        let mut again = RankSet::new();
        let mut failed = None;
        for EndClass {
            status,
            drained,
            ranks,
        } in classes
        {
            again.append(&ranks.intersection(&self.settled));
            let ranks = ranks.difference(&self.settled);
            let Some(first) = ranks.first() else {
                continue;
            };
            self.settled.append(&ranks);
            self.ended.entry(status).or_default().append(&ranks);
            if self.is_ending() {
                self.ended_by_us.append(&ranks);
            }
            if drained == Drained::Leaky {
                self.leaky.append(&ranks);
            }
            if !status.is_success() {
                failed.get_or_insert(Cause::Failed {
                    rank: first,
                    status,
                });
            }
            gone.append(&ranks);
        }
        if self.wait_at.is_none() && !gone.is_empty() {
            self.wait_at = self.spec.end.wait.map(|wait| now + wait);
        }
        if !again.is_empty() {
            self.outputs.push_back(JobOutput::Log(format!(
                "ranks {again} ended twice: the second end is ignored"
            )));
        }
        self.on_gone(gone);
        failed
    }

    /// Records that these ranks keep running because their daemon cannot end them.
    pub(super) fn on_abandoned(&mut self, ranks: RankSet) {
        self.settled.append(&ranks);
        self.left.append(&ranks);
        self.on_gone(ranks);
    }

    fn on_gone(&mut self, ranks: RankSet) {
        let news = self.hold.on_gone(&ranks);
        self.announce(news);
        if !ranks.is_empty() {
            self.outputs.push_back(JobOutput::Gone(ranks));
        }
    }

    /// Records ranks that exited with code 0 while other ranks may wait for them. The first such report in each state is
    /// passed on to the other nodes.
    pub(super) fn on_exited_early(&mut self, node: NodeId, state: PmiState, ranks: &RankSet) {
        let known = self.exited_early.entry(state).or_default();
        let is_first = known.is_empty();
        known.append(ranks);
        if is_first {
            let job = self.id;
            let others = self.shares.keys().filter(|other| **other != node);
            let told = others
                .map(|other| JobOutput::Daemon(*other, ToDaemon::ExitedElsewhere { job, state }));
            self.outputs.extend(told);
        }
    }

    /// Returns the ranks that [`Self::on_exited_early`] has noted.
    pub(super) fn exited_early(&self, state: PmiState) -> &RankSet {
        const NONE: &RankSet = &RankSet::new();
        self.exited_early.get(&state).unwrap_or(NONE)
    }

    /// Records that a node is clean: no process of the job remains there, except for ranks that cannot be ended.
    pub(super) fn on_clean(&mut self, node: NodeId, spent: &Usage) {
        self.spent.add(spent);
        if let Some(share) = self.shares.get_mut(&node) {
            let is_first = !std::mem::replace(&mut share.clean, true);
            self.unclean -= usize::from(is_first);
        }
        self.end_pushes_to(node);
    }

    /// Returns true if ranks on this node have not ended, as far as is known.
    pub(super) fn has_live_ranks_on(&self, node: NodeId) -> bool {
        let share = self.shares.get(&node);
        share.is_some_and(|share| !share.ranks.difference(&self.settled).is_empty())
    }

    /// Continues the job without a lost node. The loss becomes the recorded cause, unless the job already has one. The front
    /// gets a note.
    pub(super) fn continue_without(&mut self, node: NodeId, why: String) {
        if self.is_ending() {
            return;
        }
        let cause = Cause::NodeLost {
            node,
            why: why.clone(),
        };
        self.cause.get_or_insert(cause);
        self.tell(ToFront::Note(Note::NodeLost { node, why }));
    }

    /// Handles the loss of a node: its ranks count as killed.
    pub(super) fn on_node_lost(&mut self, now: Time, node: NodeId) {
        let Some(share) = self.shares.get_mut(&node) else {
            return;
        };
        let launched = std::mem::replace(&mut share.launched, true);
        let clean = std::mem::replace(&mut share.clean, true);
        self.unlaunched -= usize::from(!launched);
        self.unclean -= usize::from(!clean);
        let ranks = share.ranks.clone();
        if !launched {
            // The controller cannot know which ranks the node has started. Count all of them as started and killed.
            self.started.append(&ranks);
        }
        self.on_input_credit(node, None);
        self.end_pushes_to(node);
        if !launched {
            self.announce_launch(now);
        }
        let status = ExitStatus::Signaled {
            signal: Signal::KILL,
            core_dumped: false,
        };
        let lost = EndClass {
            status,
            // No process on a lost node can hold output open.
            drained: Drained::Whole,
            ranks: ranks.difference(&self.settled),
        };
        self.record(now, vec![lost]);
    }

    /// Begins to end the job: SIGTERM, grace, SIGKILL. Does nothing if the job is already ending, so the first cause is
    /// the one that is reported.
    pub(super) fn end(&mut self, cause: Cause) {
        match self.phase {
            Phase::Waiting => self.begin_to_end(cause),
            Phase::Launching | Phase::Running => {
                let grace = match cause {
                    Cause::Ended(EndReason::FrontLost) => LOSS_GRACE,
                    _ => self.spec.end.grace,
                };
                // With `OnFailure::Continue`, `self.cause` may already name an earlier failure or a lost node. The reason for
                // which the job is ended now replaces it.
                self.begin_to_end(cause);
                self.each_node(|job| ToDaemon::End { job, grace });
            }
            Phase::Ending if planted::is(Bug::LastCauseWins) => self.cause = Some(cause),
            Phase::Ending | Phase::Over => {}
        }
    }

    /// Ends the job by SIGKILL, without grace. If the job is already ending, the recorded cause stays.
    pub(super) fn kill(&mut self, cause: Cause) {
        if !self.is_ending() {
            self.begin_to_end(cause);
        }
        self.each_node(|job| ToDaemon::Kill { job });
    }

    /// Records the cause, and reports it to the front before any rank is signalled.
    fn begin_to_end(&mut self, cause: Cause) {
        let said = match &cause {
            // `ToFront::Ending` is sent only once, and the front shows its text to the debugger. It lists the start
            // failures that are known now; the outcome at the end of the job lists all of them.
            Cause::NotStarted(_) => Cause::NotStarted(self.failures.clone().into_iter().collect()),
            other => other.clone(),
        };
        self.cause = Some(cause);
        self.phase = Phase::Ending;
        if self.is_of_front() {
            self.tell(ToFront::Ending(said));
        }
    }

    /// Forwards a signal to all ranks. Before the launch, SIGINT, SIGTERM, SIGHUP and SIGQUIT end the job.
    pub(super) fn signal(&mut self, signal: Signal) {
        match signal {
            Signal::STOP => self.is_stopped = true,
            Signal::CONT => self.is_stopped = false,
            _ => {}
        }
        if self.phase != Phase::Waiting {
            self.each_node(|job| ToDaemon::Signal { job, signal });
        } else if ASKS_FOR_END.contains(&signal) {
            self.end(Cause::Ended(EndReason::Signal(signal)));
        }
    }

    /// Sends a signal to these ranks, through the daemons of their nodes.
    pub(super) fn signal_ranks(&mut self, ranks: &RankSet, signal: Signal) {
        let shares = self.shares.iter().filter(|(_, share)| !share.clean);
        let here = shares.map(|(node, share)| (*node, share.ranks.intersection(ranks)));
        let messages = here.filter(|(_, ranks)| !ranks.is_empty());
        let messages = messages.map(|(node, ranks)| {
            let job = self.id;
            JobOutput::Daemon(node, ToDaemon::SignalRanks { job, ranks, signal })
        });
        self.outputs.extend(messages);
    }

    pub(super) fn resize(&mut self, size: WindowSize) {
        self.each_node(|job| ToDaemon::Resize { job, size });
    }

    fn each_node(&mut self, message: impl Fn(JobId) -> ToDaemon) {
        let nodes = self.shares.iter().filter(|(_, share)| !share.clean);
        let messages = nodes.map(|(node, _)| JobOutput::Daemon(*node, message(self.id)));
        self.outputs.extend(messages);
    }

    fn say(&mut self, node: NodeId, message: ToDaemon) {
        self.outputs.push_back(JobOutput::Daemon(node, message));
    }

    pub(super) fn tell(&mut self, message: ToFront) {
        self.outputs.push_back(JobOutput::Front(message));
    }
}
