//! One job at the controller, from its submission to its end.
//!
//! | phase | placed | refused | all nodes have launched | end requested | kill requested | settled |
//! |---|---|---|---|---|---|---|
//! | `Waiting` | send `Launch` → `Launching` | the job is removed | – | → `Ending` | → `Ending` | – |
//! | `Launching` | – | – | report to front or spawner → `Running` | send `End` → `Ending` | send `Kill` → `Ending` | – |
//! | `Running` | – | – | – | send `End` → `Ending` | send `Kill` → `Ending` | → `Over` |
//! | `Ending` | – | – | report to front or spawner | – | send `Kill` | → `Over` |
//! | `Over` | – | – | – | – | – | – |
//!
//! A job is settled when none of its processes remains on any node and no further message about it will come. A job
//! that was ended before it was placed is settled immediately. When a rank fails, the job requests its own end
//! ([`JobOutput::Failed`]) unless its policy is to continue. A job has no knowledge of other jobs: the controller
//! decides which of them end with it.

mod input;
mod outcome;
mod pushes;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use base::{ExitStatus, JobId, NodeId, ProcId, RankSet, Signal, Time};

use pmix::value::Status;

pub(super) use self::pushes::Push;
use self::pushes::Pushes;
use super::asks::Asker;
use crate::{
    daemon::LOSS_GRACE,
    hold::{Announcement, Hold, State},
    planted::{self, Bug},
    proto::{
        Cause, Drained, EndClass, EndReason, FrontId, Launch, Note, StartFailure, Started, Stream,
        TableRow, ToDaemon, ToFront,
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

/// The part of the job that runs on one node.
#[derive(Debug)]
pub(super) struct Share {
    launched: bool,
    pub(super) clean: bool,
    pub(super) ranks: RankSet,
    /// Node rank of this job's first proc there. It is above the node ranks of all jobs that are still on the node.
    pub(super) first: u32,
    /// Total input, in bytes, for which this node has given credit; `None` once no rank there reads input.
    input_credit: Option<u64>,
}

/// The origin of a job: a front or a spawning proc.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Origin {
    /// Submitted by the job's front.
    Front,
    Spawned {
        by: ProcId,
        /// The requester, which waits until the job has started. `None` once the request was answered.
        asker: Option<Asker>,
        /// Output streams that are also forwarded to the spawner.
        forward: Vec<Stream>,
        /// Key-value pairs that the spawner passed along, if this job was spawned by PMI. Spawner and job are one MPI
        /// program then: a failure of one ends the other.
        preput: Option<Vec<(String, String)>>,
    },
}

/// An action that a job requests from the controller.
#[derive(Debug)]
pub(super) enum JobOutput {
    /// Send a message to the front of the job.
    Front(ToFront),
    Daemon(NodeId, ToDaemon),
    /// Every proc has been started or has failed to start: answer the proc that spawned the job.
    Started,
    /// All ranks are held: notify the proc that spawned the job.
    Ready,
    /// These ranks have ended, or cannot be ended.
    Gone(RankSet),
    /// Answer the request of a process with this status.
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
    pub(super) offset: u32,
}

#[derive(Debug)]
pub(super) struct Job {
    pub(super) id: JobId,
    pub(super) spec: Box<JobSpec>,
    pub(super) origin: Origin,
    /// The front that submitted this job or the job that this one descends from.
    pub(super) front: FrontId,
    /// The root of the job's descent: the job that the front has submitted.
    pub(super) root: JobId,
    /// PMIx nspace of the job.
    pub(super) nspace: String,
    /// Global number of the job's rank 0, counted over all jobs of the controller.
    pub(super) offset: u32,
    pub(super) phase: Phase,
    pub(super) size: u32,
    pub(super) shares: BTreeMap<NodeId, Share>,
    table: Vec<TableRow>,
    pub(super) failures: BTreeMap<StartFailure, RankSet>,
    pub(super) cause: Option<Cause>,
    ended: BTreeMap<ExitStatus, RankSet>,
    /// Ranks that have ended, were never started, or cannot be ended.
    pub(super) settled: RankSet,
    pub(super) started: RankSet,
    ended_by_us: RankSet,
    leaky: RankSet,
    /// Ranks that keep running because we cannot end them.
    left: RankSet,
    pub(super) hold: Hold,
    pushes: Pushes,
    input_given: u64,
    /// Number of bytes in `input_given` that the front has used.
    input_taken: u64,
    limit_at: Option<Time>,
    /// Time at which its procs get the warning signal before the time limit.
    warn_at: Option<Time>,
    /// Time at which the job ends because its first proc has ended; `None` before that, or if it should not.
    wait_at: Option<Time>,
    /// Time of the note to the front about ranks that have not reached their holding point.
    hold_note_at: Option<Time>,
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
            offset,
        } = new;
        let limit = spec.end.time_limit;
        let warning = limit.zip(spec.end.warning);
        Self {
            id,
            origin,
            front,
            root,
            nspace,
            offset,
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
            pushes: Pushes::default(),
            input_given: 0,
            input_taken: 0,
            limit_at: limit.map(|limit| now + limit),
            warn_at: warning.map(|(limit, warning)| now + limit.saturating_sub(warning.before)),
            wait_at: None,
            hold_note_at: None,
            outputs: VecDeque::new(),
            spec,
        }
    }

    /// Returns the next action. The controller calls it after every other call until it returns `None`.
    pub(super) fn poll(&mut self) -> Option<JobOutput> {
        self.outputs.pop_front()
    }

    pub(super) fn is_ending(&self) -> bool {
        self.phase >= Phase::Ending
    }

    fn is_of_front(&self) -> bool {
        self.origin == Origin::Front
    }

    /// Returns the time at which [`Self::on_tick`] is due.
    pub(super) fn deadline(&self) -> Option<Time> {
        if self.is_ending() {
            return None;
        }
        let deadlines = [self.limit_at, self.warn_at, self.wait_at, self.hold_note_at];
        deadlines.into_iter().flatten().min()
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

    /// Starts the job, which has been placed: sends the launch to each of its nodes.
    pub(super) fn launch(&mut self, launch: &Arc<Launch>) {
        self.phase = Phase::Launching;
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
            self.say(id, ToDaemon::Launch(Arc::clone(launch)));
        }
    }

    /// Handles a node's report on which of its ranks it has started.
    pub(super) fn on_launched(
        &mut self,
        now: Time,
        node: NodeId,
        host: &str,
        groups: Vec<Started>,
        failures: Vec<(StartFailure, RankSet)>,
    ) {
        let Some(share) = self.shares.get_mut(&node) else {
            return;
        };
        share.launched = true;
        let mut started = RankSet::new();
        for Started { executable, pids } in groups {
            started.append(&pids.iter().map(|(rank, _)| *rank).collect());
            let rows = pids.into_iter().map(|(rank, pid)| TableRow {
                rank,
                host: host.to_owned(),
                executable: executable.clone(),
                pid,
            });
            self.table.extend(rows);
        }
        let missing = share.ranks.difference(&started);
        self.started = self.started.union(&started);
        self.settled = self.settled.union(&missing);
        for (failure, ranks) in failures {
            let merged = self.failures.entry(failure).or_default();
            *merged = merged.union(&ranks);
        }
        let news = self.hold.on_gone(&missing);
        self.announce_launch(now);
        self.announce(news);
        if !self.failures.is_empty() {
            self.outputs
                .push_back(JobOutput::Failed(Cause::NotStarted(Vec::new())));
        }
    }

    /// Announces the launch once every node has reported it or is lost.
    fn announce_launch(&mut self, now: Time) {
        if !self.shares.values().all(|share| share.launched) {
            return;
        }
        if self.phase == Phase::Launching {
            self.phase = Phase::Running;
        }
        let news = self.hold.on_launched();
        if self.is_of_front() {
            if self.hold.state() == State::Gathering {
                self.hold_note_at = Some(now + HOLD_PATIENCE);
            }
            self.table.sort_by_key(|row| row.rank);
            let table = std::mem::take(&mut self.table);
            self.tell(ToFront::Launched {
                job: self.id,
                name: self.nspace.clone(),
                table,
            });
        } else {
            self.outputs.push_back(JobOutput::Started);
        }
        self.announce(news);
    }

    pub(super) fn on_held(&mut self, ranks: &RankSet) {
        let news = self.hold.on_held(ranks);
        self.announce(news);
    }

    /// Announces that all ranks are held, to the front or to the spawner of the job.
    fn announce(&mut self, news: Option<Announcement>) {
        let Some(Announcement::AllHeld { held, dead }) = news else {
            return;
        };
        // If no rank is held, there is no process to attach to, and the end of the job explains why.
        if held.is_empty() {
            return;
        }
        if self.is_of_front() {
            self.tell(ToFront::AllHeld { held, dead });
        } else {
            self.outputs.push_back(JobOutput::Ready);
        }
    }

    /// Sends one note about the ranks that have not reached their holding point, because they may never reach it.
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

    /// Releases the given ranks, or all if `None`. Returns the ranks that were held or were going to be; `None` if there
    /// were none.
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

    /// Handles the ends of procs. All of them are recorded before a failure among them has consequences.
    pub(super) fn on_ended(&mut self, now: Time, classes: Vec<EndClass>) {
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
        let decides = failed.filter(|_| self.cause.is_none());
        self.on_gone(gone);
        match (decides, self.spec.end.on_failure) {
            (None, _) => {}
            (Some(cause), OnFailure::Continue) if !planted::is(Bug::ContinueIgnored) => {
                self.cause = Some(cause);
            }
            (Some(cause), OnFailure::EndJob | OnFailure::Continue) => {
                self.outputs.push_back(JobOutput::Failed(cause));
            }
        }
    }

    /// Records that these ranks keep running because we cannot end them.
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

    /// Records that no process of the job remains on a node.
    pub(super) fn on_clean(&mut self, node: NodeId) {
        if let Some(share) = self.shares.get_mut(&node) {
            share.clean = true;
        }
        self.end_pushes_to(node);
    }

    /// Handles the loss of a node: its ranks count as killed.
    pub(super) fn on_node_lost(&mut self, now: Time, node: NodeId) {
        let Some(share) = self.shares.get_mut(&node) else {
            return;
        };
        let launched = std::mem::replace(&mut share.launched, true);
        share.clean = true;
        let ranks = share.ranks.clone();
        if !launched {
            // We cannot know which of its ranks were started; all count as started and killed.
            self.started = self.started.union(&ranks);
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
        self.on_ended(now, vec![lost]);
    }

    /// Begins to end the job: SIGTERM, grace, SIGKILL. Later causes are ignored once the job is ending.
    pub(super) fn end(&mut self, cause: Cause) {
        match self.phase {
            Phase::Waiting => self.begin_to_end(cause),
            Phase::Launching | Phase::Running => {
                let grace = match cause {
                    Cause::Ended(EndReason::FrontLost) => LOSS_GRACE,
                    _ => self.spec.end.grace,
                };
                // With `OnFailure::Continue`, an earlier failure is already recorded as the cause. If the job is ended
                // for another reason now, report that reason instead.
                self.begin_to_end(cause);
                self.each_node(|job| ToDaemon::End { job, grace });
            }
            Phase::Ending if planted::is(Bug::LastCauseWins) => self.cause = Some(cause),
            Phase::Ending | Phase::Over => {}
        }
    }

    /// Ends the job by SIGKILL.
    pub(super) fn kill(&mut self, cause: Cause) {
        if !self.is_ending() {
            self.begin_to_end(cause);
        }
        self.each_node(|job| ToDaemon::Kill { job });
    }

    /// Records the cause, and notifies the front before any rank is signalled.
    fn begin_to_end(&mut self, cause: Cause) {
        let said = match &cause {
            // Further failures may follow. But the debugger is notified only once, so it gets those known now.
            Cause::NotStarted(_) => Cause::NotStarted(self.failures.clone().into_iter().collect()),
            other => other.clone(),
        };
        self.cause = Some(cause);
        self.phase = Phase::Ending;
        if self.is_of_front() {
            self.tell(ToFront::Ending(said));
        }
    }

    pub(super) fn signal(&mut self, signal: Signal) {
        self.each_node(|job| ToDaemon::Signal { job, signal });
    }

    /// Signals ranks through the daemons of their nodes.
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
