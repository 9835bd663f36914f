//! One job at the controller, from its submission to its end.
//!
//! | phase | placed | refused | every node has launched | the end is asked for | SIGKILL is asked for | settled |
//! |---|---|---|---|---|---|---|
//! | `Waiting` | sends `Launch` → `Launching` | → `Over` | – | → `Ending` | → `Ending` | – |
//! | `Launching` | – | – | tells front or spawner → `Running` | sends `End` → `Ending` | sends `Kill` → `Ending` | – |
//! | `Running` | – | – | – | sends `End` → `Ending` | sends `Kill` → `Ending` | → `Over` |
//! | `Ending` | – | – | tells front or spawner | – | sends `Kill` | → `Over` |
//! | `Over` | – | – | – | – | – | – |
//!
//! A job is settled when no process of it is left on any node and no message about it will come; one that was ended before
//! it was placed is settled immediately. A failed rank asks for the end of the job ([`JobOutput::Failed`]) unless the job
//! is to go on. The job knows nothing of other jobs: the controller decides which others end with it.

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

/// How long ranks are waited for at their holding point before it is said which of them have not come.
pub const HOLD_PATIENCE: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    Waiting,
    Launching,
    Running,
    Ending,
    Over,
}

/// What one node still has of the job.
#[derive(Debug)]
pub(super) struct Share {
    launched: bool,
    pub(super) clean: bool,
    pub(super) ranks: RankSet,
    /// The number of its first rank among the procs of all jobs there.
    pub(super) first: u32,
    /// Input bytes that this node has given credit for; `None` when nothing there reads.
    input_credit: Option<u64>,
}

/// Where a job comes from.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Origin {
    /// Its front has submitted it.
    Front,
    Spawned {
        by: ProcId,
        /// Who waits to hear of its start. `None` once the request was answered.
        asker: Option<Asker>,
        /// Output that the spawner wants to have as well.
        forward: Vec<Stream>,
        /// Key-value pairs that the spawner passed along, if this job was spawned by PMI. Spawner and job are one MPI
        /// program then: a failure of one ends the other.
        preput: Option<Vec<(String, String)>>,
    },
}

/// What a job asks its controller for.
#[derive(Debug)]
pub(super) enum JobOutput {
    /// For the front of the job.
    Front(ToFront),
    Daemon(NodeId, ToDaemon),
    /// Every proc was started or never will be: the proc that has spawned the job gets its answer.
    Started,
    /// Every rank is held: the proc that has spawned the job is told.
    Ready,
    /// These procs take no further part: they have ended, or cannot be ended.
    Gone(RankSet),
    /// A process's request has this result.
    Answer(Asker, Status),
    /// The job is to end, for this cause.
    Failed(Cause),
    /// A time limit of the job has passed: all jobs of its front are to end.
    Expired(EndReason),
    /// A daemon did something that the protocol rules out.
    Log(String),
}

/// What a job is made of.
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
    /// The job that its front has submitted.
    pub(super) root: JobId,
    /// Its name in PMIx.
    pub(super) nspace: String,
    /// The number of its first rank among those of all jobs.
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
    /// Those that run on because nobody may end them.
    left: RankSet,
    pub(super) hold: Hold,
    pushes: Pushes,
    input_given: u64,
    /// Of that, what the front has sent.
    input_taken: u64,
    limit_at: Option<Time>,
    /// When its procs get the signal that comes before the limit.
    warn_at: Option<Time>,
    /// When it ends because its first proc has ended.
    wait_at: Option<Time>,
    /// When the front is told which ranks have not come to their holding point.
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

    /// The next thing that it asks for. The controller takes all of them after every call.
    pub(super) fn poll(&mut self) -> Option<JobOutput> {
        self.outputs.pop_front()
    }

    pub(super) fn is_ending(&self) -> bool {
        self.phase >= Phase::Ending
    }

    fn is_of_front(&self) -> bool {
        self.origin == Origin::Front
    }

    /// When [`Self::on_tick`] is due.
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

    /// It has its place: every node gets the launch.
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

    /// A node has started its ranks, or failed to.
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

    /// Tells of the launch when the last node has said, or will never say, what became of it.
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

    /// Tells whoever has asked for it that all ranks are held: the front, or the spawner of the job.
    fn announce(&mut self, news: Option<Announcement>) {
        let Some(Announcement::AllHeld { held, dead }) = news else {
            return;
        };
        // Where none could be started there is nothing to attach to, and the end says why.
        if held.is_empty() {
            return;
        }
        if self.is_of_front() {
            self.tell(ToFront::AllHeld { held, dead });
        } else {
            self.outputs.push_back(JobOutput::Ready);
        }
    }

    /// Says once which ranks have not come to where they are to be held: they may never come there.
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

    /// Procs have ended. All of them count as ended before anything follows from the end of one.
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

    /// These run on, and nobody can end them.
    pub(super) fn on_left(&mut self, ranks: RankSet) {
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

    /// No process of the job is left on a node.
    pub(super) fn on_clean(&mut self, node: NodeId) {
        if let Some(share) = self.shares.get_mut(&node) {
            share.clean = true;
        }
        self.end_pushes_to(node);
    }

    /// A node is lost: its ranks count as killed.
    pub(super) fn on_node_lost(&mut self, now: Time, node: NodeId) {
        let Some(share) = self.shares.get_mut(&node) else {
            return;
        };
        let launched = std::mem::replace(&mut share.launched, true);
        share.clean = true;
        let ranks = share.ranks.clone();
        if !launched {
            // Which of them were started nobody will ever know; they count as started and killed.
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
            // Nothing holds the output of a lost node open.
            drained: Drained::Whole,
            ranks: ranks.difference(&self.settled),
        };
        self.on_ended(now, vec![lost]);
    }

    /// Begins to end it: SIGTERM, grace, SIGKILL. The first cause is the one that is told.
    pub(super) fn end(&mut self, cause: Cause) {
        match self.phase {
            Phase::Waiting => self.begin_to_end(cause),
            Phase::Launching | Phase::Running => {
                let grace = match cause {
                    Cause::Ended(EndReason::FrontLost) => LOSS_GRACE,
                    _ => self.spec.end.grace,
                };
                // With `OnFailure::Continue` an earlier failure is recorded as the cause already. If somebody ends the job
                // now, report that instead.
                self.begin_to_end(cause);
                self.each_node(|job| ToDaemon::End { job, grace });
            }
            Phase::Ending if planted::is(Bug::LastCauseWins) => self.cause = Some(cause),
            Phase::Ending | Phase::Over => {}
        }
    }

    /// Ends it by SIGKILL.
    pub(super) fn kill(&mut self, cause: Cause) {
        if !self.is_ending() {
            self.begin_to_end(cause);
        }
        self.each_node(|job| ToDaemon::Kill { job });
    }

    /// The front hears of it before any rank does.
    fn begin_to_end(&mut self, cause: Cause) {
        let said = match &cause {
            // Further failures may follow, but the debugger is told only once, so it gets those that are known now.
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

    /// Signals some ranks, each on its node.
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
