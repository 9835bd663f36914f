//! The machine: a launcher that stays, with a queue, a record of each job, and a store that outlives it.
//!
//! The controller passes on what fronts ask ([`Ask`]), reports its nodes and the ends of jobs, and launches what the machine starts.
//! The queue decides what starts ([`crate::queue`]). This module knows what the tasks are, and keeps the books.
//!
//! **Names.** A *job* has the number that users see. A job has one *task*, or is an array of them. A *run* is one start of a task: a job
//! of the controller, with a number of the controller. A task that is requeued has several runs.
//!
//! **The store.** What must not be forgotten is written before anybody learns of it: a submitted job before its number is
//! told, and a start of a detached job before the launch. So a controller that is killed neither forgets a job nor runs one twice. Only
//! one batch of writes is under way. What happens meanwhile goes into the next one.
//!
//! | state of the store | something changes | batch written | batch failed | [`RETRY`] later |
//! |---|---|---|---|---|
//! | idle | write → writing | – | – | – |
//! | writing | collected | effects happen; write the collected → writing, or → idle | submitted jobs are refused; the rest is kept → failing | – |
//! | failing | collected | – | – | write all → writing |
//!
//! A machine that ends, and on which nothing runs, waits at most [`STORE_MAX`] for a batch. Then the store hangs, and the next machine
//! takes what it has.
//!
//! | state of a run | launched | its task is to end | ends |
//! |---|---|---|---|
//! | stored first | – | forgotten | – |
//! | ordered ([`MachineOutput::Launch`]) | runs | ended when it is launched | – |
//! | runs | – | [`MachineOutput::End`] | the queue and the record hear of it |
//!
//! If the machine is to end at once, a task whose start is stored first waits again, for the next machine. So does a task that runs, and
//! that a user wants to run again ([`queue::Requeue`]); it does not count as a requeue, because the task is not to blame.
//!
//! **Bounds:** those of the queue; [`RUNNING_MAX`] tasks that run; [`RECENT_MAX`] records of jobs that are over, in memory, and those that
//! are not stored yet; [`HISTORY_MAX`] in the store;
//! [`WAITED_MAX`] jobs that a front waits for.

mod allocations;
mod answers;
mod books;
mod control;
mod demand;
mod explain;
mod nodes;
pub mod planted;
mod record;
mod resources;
mod restore;
mod runs;
mod submit;
mod talk;
#[cfg(test)]
mod tests;

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, VecDeque},
};

use base::{JobId, NodeId, Rank, RankSet, Signal, Time};
use serde::{Deserialize, Serialize};

use self::{
    allocations::Held,
    books::{Books, Packed},
    nodes::{Comings, Node},
    planted::Bug,
    resources::{Counted, Extras},
    runs::TakenBack,
};
pub use self::{
    allocations::{AllocationEnd, AllocationWish, NotChanged, NotGranted, Rest, Room},
    books::{Batch, Key, RETRY, STORE_MAX, Write},
    nodes::STARTS_MAX,
    record::{
        COMMAND_MAX, Failure, Needs, OutputFiles, Record, State, Submission, Tasks, Way, Wishes,
    },
    resources::{DECLARED_MAX, Declared, GPU, MEMORY, NoResource, NodeShare, ResourceOf, TooMuch},
    runs::fill,
    talk::{
        Added, Additions, Ask, Damage, Down, Explained, NodeLine, NodeStanding, NotDone, RankUsage,
        Reason, Reply, Restored, RunLine, Sooner, Start, Status, USAGE_RANKS_MAX, UsageReport,
    },
};
use crate::{
    alloc::AllocatedNode,
    proto::FrontId,
    queue::{self, Hold, Limits, Over, Queue, Sharing, TaskId, Units},
    spec::{Environment, JobSpec, NodeGpus},
};

/// Tasks that run at the same time. The controller can have more jobs: those that tasks spawn, and those of debuggers.
pub const RUNNING_MAX: u32 = 3072;
/// Records of jobs that are over, in memory.
pub const RECENT_MAX: usize = 256;
/// Records of jobs that are over, in the store.
pub const HISTORY_MAX: u32 = 100_000;
/// Bytes of the records in an answer to [`Ask::Jobs`], unless the first one has more.
pub const PAGE_BYTES: usize = 4 << 20;
/// Records that are read from the store for such an answer.
pub const PAGE_RECORDS: u32 = 10_000;
/// Jobs that a front waits for at the same time.
pub const WAITED_MAX: usize = 1 << 16;

/// The variable in which procs find the number of their job in the queue. (`RALLY_JOB` is the number of the run.)
pub const JOB_VARIABLE: &str = "RALLY_QUEUE_JOB";
/// The variable in which procs of an array find the index of their task.
pub const INDEX_VARIABLE: &str = "RALLY_ARRAY_INDEX";

/// Milliseconds since 1970 UTC.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Wall(pub u64);

/// What a machine is made of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Setup {
    pub name: String,
    /// The time of day at [`Time::ZERO`].
    pub epoch: Wall,
    /// The names of its nodes, by their numbers.
    pub nodes: Vec<String>,
    /// The node whose daemon is in the process of the controller.
    pub local: Option<NodeId>,
    /// The contents of its store; of the history only the last record, and those that are too old for it.
    pub stored: Vec<(Key, bytes::Bytes)>,
    /// What tools spawn is modeled after it: its environment, its directory. `None`: they spawn nothing of their own.
    pub model: Option<Box<JobSpec>>,
    pub declared: Declared,
    /// Of its user, and of each job. [`Limits::running`] is the machine's own.
    pub limits: Limits,
}

/// An action for the controller.
#[derive(Clone, Debug, PartialEq)]
pub enum MachineOutput {
    Reply(FrontId, Reply),
    /// Answer this front with what the controller knows about a run ([`Reply::Run`]).
    ShowRun(FrontId, JobId),
    /// Launch a task, and call [`Machine::launched`].
    Launch(Box<Run>),
    /// End a run: it was canceled, or its node was removed.
    End(JobId),
    /// Send a signal to all procs of a run, and of the jobs that it has spawned.
    Signal(JobId, Signal),
    /// Find out what these runs use, each with the index of its task, and tell the front.
    Measure {
        front: FrontId,
        runs: Vec<(u32, JobId)>,
    },
    /// This front's job is over before it has started.
    Withdrawn(FrontId, NotDone),
    /// This front's job waits, and is number so.
    Queued(FrontId, JobId),
    Store(Batch),
    /// Read the records of jobs that are over, and call [`Machine::fetched`]: at most `most`, the last ones before `before`.
    Fetch {
        before: JobId,
        most: u32,
    },
    /// Start the daemons of these nodes, which have these numbers. Variables of the commands, `NAME=value`, replace those with which
    /// the machine was started.
    AddNodes {
        nodes: Vec<(NodeId, AllocatedNode)>,
        environment: Vec<std::ffi::OsString>,
    },
    /// Call [`Machine::node_up`] for this node, whose daemon is in the process of the controller.
    Reopen(NodeId, AllocatedNode),
    /// Let the daemon of this node end, and call [`Machine::node_lost`].
    Leave(NodeId),
    /// This allocation is granted.
    Granted(JobId, Grant),
    /// This request for an allocation is over.
    NotGranted(JobId, NotGranted),
    /// End what runs in this allocation, and call [`Machine::allocation_over`].
    EndAllocation(JobId, AllocationEnd),
    /// This number of a lost daemon has no meaning any more: its node is gone, or has another daemon.
    Forget(NodeId),
}

/// A start of a task.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    pub task: TaskId,
    pub spec: Box<JobSpec>,
    /// The front that waits for it; `None` if it is detached.
    pub front: Option<FrontId>,
    pub grant: Grant,
    /// Where its output goes, with the numbers filled in; `None` if the front gets it.
    pub output: Option<OutputFiles>,
    /// What these files had before is removed: it is of no other task, and of no earlier run of this one.
    pub truncates: bool,
}

/// What of the nodes a run may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Slots on each node.
    pub slots: BTreeMap<NodeId, u32>,
    pub sharing: Sharing,
    /// GPUs on each node, if the run asks for some.
    pub gpus: BTreeMap<NodeId, NodeGpus>,
}

/// A job in the queue.
#[derive(Debug)]
struct Entry {
    record: Record,
    work: Work,
    front: Option<FrontId>,
    /// Whether it gets whole nodes: because the user wants that, or because of how it is placed.
    sharing: Sharing,
    /// Slots of a unit.
    unit: u32,
    /// Tasks that run, and were canceled.
    ending: RankSet,
    runs: BTreeMap<Option<u32>, Stage>,
}

impl Entry {
    /// Returns the record with which the next machine has to go on: tasks that were canceled do not run again.
    fn to_store(&self, requeues: BTreeMap<u32, u32>) -> Cow<'_, Record> {
        let is_plain = self.ending.is_empty() || planted::is(Bug::CancelNotStored);
        if is_plain && requeues.is_empty() {
            return Cow::Borrowed(&self.record);
        }
        let mut record = self.record.clone();
        record.requeues = requeues;
        if is_plain {
            return Cow::Owned(record);
        }
        let tasks = &mut record.tasks;
        tasks.running = tasks.running.difference(&self.ending);
        tasks.canceled = tasks.canceled.union(&self.ending);
        record.paused = record.paused.difference(&self.ending);
        Cow::Owned(record)
    }
}

/// What is done with the slots of a job.
#[derive(Debug)]
enum Work {
    /// Each task is a run of these programs.
    Programs(Packed),
    /// Jobs that procs spawn run there.
    Allocation(Held),
}

/// How far the run of a task is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    /// It is launched when its start is stored.
    Storing(Units),
    Ordered,
    /// It is to end, and was not launched yet.
    Revoked,
    Runs(JobId),
    /// It is an allocation, and has no run.
    Held,
}

/// Something that happens when a batch is stored.
#[derive(Debug)]
enum Effect {
    Submitted(FrontId, JobId),
    /// A submission that was refused while earlier ones of the same front were being stored: answers keep their order.
    Refused(FrontId, NotDone),
    Launch(TaskId),
}

/// A front that waits for jobs.
#[derive(Debug)]
struct Waiter {
    /// Number of the question: what is read for an earlier one does not concern it.
    number: u64,
    jobs: BTreeSet<JobId>,
    over: Vec<Record>,
}

/// A question that needs the store.
#[derive(Debug)]
enum Question {
    /// The last ones before a job, so many.
    Jobs {
        front: FrontId,
        over: u32,
        before: JobId,
    },
    Job(FrontId, JobId),
    /// The number is that of the [`Waiter`].
    Waited(FrontId, JobId, u64),
    Dependency(FrontId, Box<Submission>, JobId),
}

/// See the module documentation.
#[derive(Debug)]
pub struct Machine {
    name: String,
    epoch: Wall,
    queue: Queue,
    nodes: BTreeMap<NodeId, Node>,
    counted: Counted,
    comings: Comings,
    jobs: BTreeMap<JobId, Entry>,
    /// The last jobs that are over, in the order of their ends.
    recent: VecDeque<Record>,
    next: u32,
    runs: BTreeMap<JobId, TaskId>,
    /// Runs that have lost output.
    silenced: BTreeSet<JobId>,
    waiters: BTreeMap<FrontId, Waiter>,
    /// Number of submissions of each front that are being stored.
    submitting: BTreeMap<FrontId, u32>,
    /// The number of the last wait. What is read for an earlier wait of the same front is not for a later one.
    last_wait: u64,
    /// When an allocation has to end, or its caller gives up.
    alarms: BTreeSet<(Time, JobId)>,
    /// Fronts that wait until no node is being started.
    wait_for_nodes: BTreeSet<FrontId>,
    /// Fronts with the last of which it ends.
    owners: BTreeSet<FrontId>,
    /// Questions whose answers are being read, in this order.
    questions: VecDeque<Question>,
    books: Books<Effect>,
    /// Of the job that was submitted last: the next one mostly has the same.
    environment: Environment,
    down: Option<Down>,
    restored: Restored,
    outputs: VecDeque<MachineOutput>,
}

impl Machine {
    /// Continues the machine that has left this store.
    #[must_use]
    pub fn new(setup: &Setup) -> Self {
        let mut machine = Self {
            name: setup.name.clone(),
            epoch: setup.epoch,
            queue: Queue::new(Limits {
                running: Some(RUNNING_MAX),
                ..setup.limits
            }),
            nodes: BTreeMap::new(),
            counted: Counted::new(setup.declared.clone()),
            comings: Comings::default(),
            jobs: BTreeMap::new(),
            recent: VecDeque::new(),
            next: 1,
            runs: BTreeMap::new(),
            silenced: BTreeSet::new(),
            waiters: BTreeMap::new(),
            submitting: BTreeMap::new(),
            last_wait: 0,
            alarms: BTreeSet::new(),
            wait_for_nodes: BTreeSet::new(),
            owners: BTreeSet::new(),
            questions: VecDeque::new(),
            books: Books::default(),
            environment: Environment::default(),
            down: None,
            restored: Restored::default(),
            outputs: VecDeque::new(),
        };
        let shared = machine.counted.shared();
        machine.queue.set_shared(shared);
        machine.begin_with(&setup.nodes, setup.local);
        machine.restored = machine.restore(&setup.stored);
        machine
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the time of day.
    fn wall(&self, now: Time) -> Wall {
        let millis = now.as_nanos() / 1_000_000;
        Wall(self.epoch.0.saturating_add(millis))
    }

    /// Returns the next action. Call it after every other call.
    pub fn poll(&mut self) -> Option<MachineOutput> {
        self.outputs.pop_front()
    }

    /// Returns the time at which [`Self::tick`] is due.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        let of_store = self.books.retry_at().or_else(|| self.give_up_at());
        of_store.into_iter().chain(self.next_alarm()).min()
    }

    /// Returns when the machine ends without an answer of the store, if it waits for nothing else.
    fn give_up_at(&self) -> Option<Time> {
        let is_down = self.down.is_some() && self.queue.running() == 0;
        self.books.give_up_at().filter(|_| is_down)
    }

    pub fn tick(&mut self, now: Time) {
        if self.give_up_at().is_some_and(|at| at <= now) {
            self.books.give_up();
        }
        self.ring_alarms(now);
        self.settle(now);
    }

    /// Returns true if a job runs or waits.
    #[must_use]
    pub fn has_jobs(&self) -> bool {
        !self.jobs.is_empty()
    }

    /// Returns true if the machine is to end, and nothing runs or waits for the store.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.down.is_some() && self.queue.running() == 0 && self.books.is_settled()
    }

    /// Starts what can start, and writes what has changed. Ends every public call that changes something.
    fn settle(&mut self, now: Time) {
        // What the queue wants may let it want more.
        loop {
            while let Some(output) = self.queue.poll() {
                self.on_queue(now, output);
            }
            self.resize_nodes();
            if self.down.is_none() {
                self.queue.schedule(now);
            }
            let Some(first) = self.queue.poll() else {
                break;
            };
            self.on_queue(now, first);
        }
        self.settle_nodes();
        self.tell_ready();
        let (jobs, queue) = (&self.jobs, &self.queue);
        let entry = |id: JobId| Some(jobs.get(&id)?.to_store(queue.requeues(id)));
        if let Some(batch) = self.books.write(now, entry) {
            self.outputs.push_back(MachineOutput::Store(batch));
        }
    }

    /// Answers those who wait for the nodes, if none is being started.
    fn tell_ready(&mut self) {
        let starts = |node: &Node| node.standing == NodeStanding::Starting;
        if self.wait_for_nodes.is_empty() || self.nodes.values().any(starts) {
            return;
        }
        for front in std::mem::take(&mut self.wait_for_nodes) {
            self.reply(front, Reply::Status(self.status()));
        }
    }

    fn on_queue(&mut self, now: Time, output: queue::Output) {
        match output {
            queue::Output::Start { task, units } => self.start(now, task, units),
            queue::Output::End { task } => self.revoke(task),
            queue::Output::Requeued { task } => {
                if let Some(entry) = self.jobs.get_mut(&task.job) {
                    let index = task.index.unwrap_or(0);
                    let record = &mut entry.record;
                    record.requeued.insert(Rank(index));
                    record.put(index, |tasks| &mut tasks.waiting);
                    // It has not failed after all.
                    record.failure.take_if(|(failed, _)| *failed == index);
                }
                self.books.touch(task.job);
                self.fit_to_nodes();
            }
            queue::Output::Held { job } => {
                if let Some(entry) = self.jobs.get_mut(&job) {
                    entry.record.wishes.hold = Hold::ByRequeues;
                }
                self.books.touch(job);
            }
            queue::Output::Over { job, why } => self.over(now, job, why),
        }
    }

    /// Moves a job that is over from the queue to the history.
    fn over(&mut self, now: Time, id: JobId, why: Over) {
        let wall = self.wall(now);
        let Some(mut entry) = self.jobs.remove(&id) else {
            return;
        };
        let record = &mut entry.record;
        record.ended = Some((wall, why));
        let waiting = std::mem::take(&mut record.tasks.waiting);
        record.tasks.canceled = record.tasks.canceled.union(&waiting);
        self.books.over(id, record, record.way == Way::Detached);
        if let Some(front) = entry.front
            && record.started.is_none()
        {
            let why = NotDone::IsOver(id);
            self.outputs.push_back(MachineOutput::Withdrawn(front, why));
        }
        self.forget_request(&entry);
        self.tell_waiters(&entry.record);
        self.remember(entry.record);
    }

    /// Keeps the record of a job that is over in memory.
    fn remember(&mut self, record: Record) {
        self.recent.push_back(record);
        self.forget_stored();
    }

    /// Forgets the oldest records of jobs that are over, beyond [`RECENT_MAX`], if they can be read from the store.
    fn forget_stored(&mut self) {
        while self.recent.len() > RECENT_MAX
            && let Some(first) = self.recent.front()
            && !self.books.is_unstored(first.id)
        {
            self.recent.pop_front();
        }
    }

    fn tell_waiters(&mut self, record: &Record) {
        let mut done = Vec::new();
        for (front, waiter) in &mut self.waiters {
            if waiter.jobs.remove(&record.id) {
                waiter.over.push(record.clone());
                if waiter.jobs.is_empty() {
                    done.push(*front);
                }
            }
        }
        for front in done {
            if let Some(waiter) = self.waiters.remove(&front) {
                self.reply(front, Reply::Over(waiter.over));
            }
        }
    }

    fn reply(&mut self, front: FrontId, reply: Reply) {
        self.outputs.push_back(MachineOutput::Reply(front, reply));
    }

    /// Handles that a front is gone, or wants its job to end. Returns true if its job had not started: then it is canceled.
    pub fn withdraw(&mut self, now: Time, front: FrontId) -> bool {
        let mut jobs = self.jobs.iter_mut();
        let waits = jobs.find(|(_, entry)| entry.front == Some(front) && entry.runs.is_empty());
        let Some((id, entry)) = waits else {
            return false;
        };
        // The caller tells it.
        entry.front = None;
        let id = *id;
        self.queue.cancel(id);
        self.settle(now);
        true
    }

    /// Forgets a front that is gone.
    pub fn front_lost(&mut self, now: Time, front: FrontId) {
        self.waiters.remove(&front);
        self.nodes_front_lost(front);
        self.withdraw(now, front);
        let is_last = self.owners.len() == 1 || planted::is(Bug::FirstOwnerEnds);
        let was_last = self.owners.remove(&front) && is_last;
        let was_last = was_last && !planted::is(Bug::OwnersForgotten);
        // Who has started the machine has given up, or does not need it any more.
        if self.wait_for_nodes.remove(&front) || was_last {
            self.end_all();
            self.settle(now);
        }
    }

    /// Ends the machine, with all that runs.
    pub fn terminate(&mut self, now: Time) {
        self.end_all();
        self.settle(now);
    }

    /// Lets the machine end, with all that runs. What is not launched yet waits for the next machine, and so does what may run again.
    fn end_all(&mut self) {
        self.down = Some(Down::Now);
        self.refuse_allocations();
        let mut unlaunched = Vec::new();
        let mut allocations = Vec::new();
        for (id, entry) in &mut self.jobs {
            for (index, stage) in &mut entry.runs {
                match stage {
                    Stage::Storing(_) if planted::is(Bug::EndLaunches) => {}
                    Stage::Storing(_) => unlaunched.push(TaskId {
                        job: *id,
                        index: *index,
                    }),
                    Stage::Ordered => *stage = Stage::Revoked,
                    Stage::Revoked => {}
                    Stage::Runs(run) => self.outputs.push_back(MachineOutput::End(*run)),
                    Stage::Held => allocations.push(*id),
                }
            }
        }
        for id in allocations {
            self.end_allocation(id, AllocationEnd::Canceled);
        }
        for task in unlaunched {
            self.take_back(task, TakenBack::Unlaunched);
        }
    }

    /// Returns the record of a job, if it is in memory.
    fn known(&self, id: JobId) -> Option<&Record> {
        let entry = self.jobs.get(&id).map(|entry| &entry.record);
        entry.or_else(|| self.recent.iter().rev().find(|record| record.id == id))
    }

    /// Returns why a job that is not in the queue cannot be changed.
    const fn missing(&self, id: JobId) -> NotDone {
        if id.0 == 0 || id.0 >= self.next {
            NotDone::NoSuchJob(id)
        } else {
            NotDone::IsOver(id)
        }
    }

    /// Handles the result of a batch of writes.
    pub fn stored(&mut self, now: Time, result: Result<(), String>) {
        match result {
            Ok(()) => {
                for effect in self.books.stored() {
                    self.take_effect(effect);
                }
                self.forget_stored();
            }
            Err(why) => {
                for effect in self.books.failed(now, &why) {
                    match effect {
                        effect if planted::is(Bug::EffectsDespiteFailure) => {
                            self.take_effect(effect);
                        }
                        Effect::Submitted(front, id) => {
                            let refused = Reply::Refused(NotDone::NotStored(why.clone()));
                            self.submission_settled(front, refused);
                            self.cancel_all(id);
                        }
                        Effect::Refused(front, why) => {
                            self.submission_settled(front, Reply::Refused(why));
                        }
                        // It starts when there is room.
                        launch @ Effect::Launch(_) => self.books.after(launch),
                    }
                }
            }
        }
        self.settle(now);
    }

    /// Answers a submission that was being stored.
    fn submission_settled(&mut self, front: FrontId, reply: Reply) {
        if let Some(count) = self.submitting.get_mut(&front) {
            *count -= 1;
            if *count == 0 {
                self.submitting.remove(&front);
            }
        }
        self.reply(front, reply);
    }

    fn take_effect(&mut self, effect: Effect) {
        match effect {
            Effect::Submitted(front, id) => self.submission_settled(front, Reply::Submitted(id)),
            Effect::Refused(front, why) => self.submission_settled(front, Reply::Refused(why)),
            Effect::Launch(task) => {
                let entry = self.jobs.get_mut(&task.job);
                let stage = entry.and_then(|entry| entry.runs.get(&task.index));
                if let Some(Stage::Storing(units)) = stage {
                    let units = units.clone();
                    self.launch(task, &units);
                }
            }
        }
    }
}
