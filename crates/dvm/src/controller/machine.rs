//! The controller of a machine: jobs of fronts go through the queue, and what the queue starts is launched.
//!
//! | a front sends | without a machine | on a machine |
//! |---|---|---|
//! | `Submit` | the job is added | it waits in the queue, and is added when its turn comes |
//! | `SubmitBeside` | the job is added | the same: it uses no slots |
//! | `End`, `Kill`, or the connection is lost | its jobs end | if its job waits, it leaves the queue |
//! | `Ask` | refused | answered by the [`Machine`] |

#[cfg(test)]
pub(super) mod tests;
mod watch;

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use base::{HostList, JobId, NodeId, RankSet, Time, Usage};
use bytes::Bytes;
use message::{Message, Severity};
use serde::{Deserialize, Serialize};

pub use self::watch::{JobWatch, NotWatched};
use super::{Controller, ControllerOutput, Job, Origin};
use crate::{
    alloc::{Allocation, Slots},
    machine::{
        Ask, Grant, Machine, MachineOutput, NotDone, OutputFiles, Reply, Run, RunLine, Setup,
    },
    messages::{self, Scene},
    place::{self, BindTarget, BindTo, Oversubscribe},
    proto::{Cause, Chunk, EndReason, FrontId, Note, Outcome, Refusal, Stream, ToDaemon, ToFront},
    queue::{Sharing, TaskId},
    spec::JobSpec,
    stdio,
};

/// The first number that stands for a run without a front.
pub(super) const DETACHED: u32 = 1 << 31;

/// What the machine has to hear.
#[derive(Debug)]
enum News {
    Ended(JobId, Box<Outcome>, Usage),
    Refused(JobId, Box<Refusal>),
    OutputLost(JobId, String),
    FrontLost(FrontId),
}

/// Time without any answer after which the output of a run that ends is given up: a file hangs.
const CAPTURE_MAX: Duration = Duration::from_secs(5);

/// The files for the output of a job without a front.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureStart {
    pub files: OutputFiles,
    pub umask: u32,
    /// What they had before is removed.
    pub truncates: bool,
}

/// Output that goes to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Captured {
    /// The job whose files they are.
    pub root: JobId,
    /// The job that has written the output: `root`, or one that it has spawned.
    pub job: JobId,
    pub node: NodeId,
    pub stream: Stream,
    /// Amount, counted by [`crate::stdio::cost`].
    pub cost: u64,
}

/// The output of a run without a front.
#[derive(Debug)]
struct Capture {
    run: JobId,
    task: TaskId,
    files: OutputFiles,
    /// Orders that were not answered.
    unanswered: u32,
    /// What these cost the procs of each job and node, for stdout and stderr.
    uncredited: BTreeMap<(JobId, NodeId), [u64; 2]>,
    /// Why some output is lost.
    lost: Option<String>,
    /// Messages about the run that are not ordered to be written yet.
    notes: Vec<String>,
    /// Its file hangs. The rest of the output is dropped.
    is_given_up: bool,
    /// How the run has ended. The machine is told when all its output is in the files.
    ended: Option<News>,
}

/// The machine, and what the controller does for it.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) machine: Machine,
    /// Nodes of which the machine knows, of those whose daemon has said hello.
    pub(super) known: BTreeSet<NodeId>,
    news: Vec<News>,
    /// Fronts whose job waits in the queue.
    queued: BTreeSet<FrontId>,
    /// The output of runs without a front.
    captures: BTreeMap<FrontId, Capture>,
    /// What tools spawn is modeled after it.
    pub(super) model: Option<Box<JobSpec>>,
    /// Runs that are watched for hangs.
    watched: BTreeSet<JobId>,
    /// Those that have notes.
    noted: Vec<FrontId>,
    /// Orders about files that were not answered, and when the last one was answered, or the first one given.
    unanswered: u64,
    answered: Time,
}

impl Host {
    /// Counts an order about a file.
    const fn order(&mut self, now: Time) {
        if self.unanswered == 0 {
            self.answered = now;
        }
        self.unanswered += 1;
    }
}

impl Controller {
    /// Makes this a machine, which continues what is in its store.
    pub(super) fn become_machine(&mut self, setup: &Setup) {
        self.machine = Some(Box::new(Host {
            machine: Machine::new(setup),
            known: BTreeSet::new(),
            news: Vec::new(),
            queued: BTreeSet::new(),
            captures: BTreeMap::new(),
            model: setup.model.clone(),
            watched: BTreeSet::new(),
            noted: Vec::new(),
            unanswered: 0,
            answered: Time::ZERO,
        }));
        self.classify_all();
    }

    /// Returns true if the machine, if this is one, has ended.
    pub(super) fn has_no_machine(&self) -> bool {
        let host = self.machine.as_ref();
        host.is_none_or(|host| host.machine.is_over())
    }

    pub(super) fn machine_deadline(&self) -> Option<Time> {
        let host = self.machine.as_ref()?;
        let give_up = host.answered + CAPTURE_MAX;
        let mut captures = host.captures.values();
        let is_awaited = host.unanswered > 0 && captures.any(|capture| self.is_to_end(capture));
        let give_up = is_awaited.then_some(give_up);
        give_up.into_iter().chain(host.machine.deadline()).min()
    }

    /// Returns true if only the output of a run is awaited, or the run is being ended: then its file must not hang.
    fn is_to_end(&self, capture: &Capture) -> bool {
        let job = self.jobs.get(&capture.run);
        capture.unanswered > 0 && job.is_none_or(Job::is_ending)
    }

    /// Gives up the output of runs whose files hang. Its procs go on as if it was written.
    fn give_up_captures(&mut self, now: Time) {
        let host = self.machine.iter();
        let host = host.filter(|host| host.answered + CAPTURE_MAX <= now);
        let captures = host.flat_map(|host| &host.captures);
        let hung = captures.filter(|(_, capture)| self.is_to_end(capture));
        let hung: Vec<FrontId> = hung.map(|(front, _)| *front).collect();
        for front in hung {
            let host = self.machine.as_mut();
            let Some(capture) = host.and_then(|host| host.captures.get_mut(&front)) else {
                continue;
            };
            capture.unanswered = 0;
            capture.notes.clear();
            capture.is_given_up = true;
            let seconds = CAPTURE_MAX.as_secs();
            let why = format!("no output was written for {seconds} s");
            capture.lost.get_or_insert(why);
            for ((job, node), bytes) in std::mem::take(&mut capture.uncredited) {
                for (stream, bytes) in [Stream::Stdout, Stream::Stderr].into_iter().zip(bytes) {
                    self.credit_node(job, node, stream, bytes);
                }
            }
            self.close_capture(front);
        }
    }

    /// Calls the machine, if there is one.
    pub(super) fn with_machine(&mut self, act: impl FnOnce(&mut Machine)) {
        if let Some(host) = &mut self.machine {
            act(&mut host.machine);
        }
    }

    pub(super) fn tick_machine(&mut self, now: Time) {
        self.give_up_captures(now);
        self.with_machine(|machine| machine.tick(now));
    }

    pub(super) fn on_stored(&mut self, now: Time, result: Result<(), String>) {
        self.with_machine(|machine| machine.stored(now, result));
    }

    pub(super) fn on_fetched(&mut self, now: Time, result: Result<Vec<Bytes>, String>) {
        self.with_machine(|machine| machine.fetched(now, result));
    }

    pub(super) fn on_machine_ask(&mut self, now: Time, front: FrontId, ask: Ask) {
        match &mut self.machine {
            Some(host) => host.machine.ask(now, front, ask),
            None => {
                let reply = Reply::Refused(NotDone::NoMachine);
                self.tell(front, ToFront::Reply(Box::new(reply)));
            }
        }
    }

    /// Puts the job of a front into the queue. Returns the job if there is no queue.
    pub(super) fn enqueue(
        &mut self,
        now: Time,
        front: FrontId,
        spec: Box<JobSpec>,
    ) -> Option<Box<JobSpec>> {
        let Some(host) = &mut self.machine else {
            return Some(spec);
        };
        host.queued.insert(front);
        host.machine.attach(now, front, spec);
        None
    }

    pub(super) fn waits_in_queue(&self, front: FrontId) -> bool {
        let host = self.machine.as_ref();
        host.is_some_and(|host| host.queued.contains(&front))
    }

    /// Takes the job of a front out of the queue. Returns false if it does not wait there.
    pub(super) fn withdraw(&mut self, now: Time, front: FrontId, reason: EndReason) -> bool {
        let Some(host) = &mut self.machine else {
            return false;
        };
        if !host.queued.contains(&front) || !host.machine.withdraw(now, front) {
            return false;
        }
        self.end_unstarted(front, reason);
        true
    }

    /// Tells a front that its job has ended before it was started.
    fn end_unstarted(&mut self, front: FrontId, reason: EndReason) {
        if let Some(host) = &mut self.machine {
            host.queued.remove(&front);
        }
        let outcome = Outcome {
            cause: Cause::Ended(reason),
            size: 0,
            ended: Vec::new(),
            not_started: RankSet::new(),
            failed_on: Vec::new(),
            ended_by_us: RankSet::new(),
            left: RankSet::new(),
        };
        self.tell(front, ToFront::Ended(outcome));
        self.finish_front(front);
    }

    /// Notes that a front is gone.
    pub(super) fn machine_front_lost(&mut self, front: FrontId) {
        if let Some(host) = &mut self.machine {
            host.queued.remove(&front);
            host.news.push(News::FrontLost(front));
        }
        self.measured_for_nobody(front);
    }

    /// Notes the end of a job that was submitted, and not spawned.
    pub(super) fn machine_job_ended(&mut self, job: &Job, outcome: &Outcome) {
        let ended = News::Ended(job.id, Box::new(outcome.clone()), job.spent);
        self.machine_run_over(job.front, ended);
    }

    pub(super) fn machine_job_refused(&mut self, job: &Job, refusal: &Refusal) {
        let refused = News::Refused(job.id, Box::new(refusal.clone()));
        self.machine_run_over(job.front, refused);
    }

    fn machine_run_over(&mut self, front: FrontId, news: News) {
        let Some(host) = &mut self.machine else {
            return;
        };
        match host.captures.get_mut(&front) {
            Some(capture) => {
                capture.ended = Some(news);
                self.close_capture(front);
            }
            None => host.news.push(news),
        }
    }

    /// Tells the machine that a run is over, if it is, and all its output is written.
    fn close_capture(&mut self, front: FrontId) {
        let Some(host) = &mut self.machine else {
            return;
        };
        let is_over = |capture: &Capture| {
            capture.unanswered == 0 && capture.notes.is_empty() && capture.ended.is_some()
        };
        if !host.captures.get(&front).is_some_and(is_over) {
            return;
        }
        let Some(capture) = host.captures.remove(&front) else {
            return;
        };
        let lost = capture.lost.map(|why| News::OutputLost(capture.run, why));
        host.news.extend(lost.into_iter().chain(capture.ended));
        self.outputs
            .push_back(ControllerOutput::CaptureEnd(capture.run));
    }

    /// Tells the machine what has happened, and carries out what it wants. Ends every input.
    pub(super) fn pump_machine(&mut self, now: Time) {
        if self.machine.is_none() {
            return;
        }
        self.announce_nodes(now);
        self.write_notes(now);
        loop {
            let Some(host) = &mut self.machine else {
                return;
            };
            for news in std::mem::take(&mut host.news) {
                match news {
                    News::Ended(run, outcome, spent) => {
                        host.machine.run_ended(now, run, &outcome, &spent);
                    }
                    News::Refused(run, refusal) => host.machine.run_refused(now, run, &refusal),
                    News::OutputLost(run, why) => host.machine.output_lost(run, why),
                    News::FrontLost(front) => host.machine.front_lost(now, front),
                }
            }
            let Some(output) = host.machine.poll() else {
                return;
            };
            self.on_machine(now, output);
        }
    }

    fn on_machine(&mut self, now: Time, output: MachineOutput) {
        match output {
            MachineOutput::Reply(front, reply) => {
                self.tell(front, ToFront::Reply(Box::new(reply)));
            }
            MachineOutput::ShowRun(front, run) => {
                let reply = Reply::Run(self.run_line(run));
                self.tell(front, ToFront::Reply(Box::new(reply)));
            }
            MachineOutput::Launch(run) => self.launch_run(now, *run),
            MachineOutput::End(run) => self.end(run, Cause::Ended(EndReason::Canceled)),
            MachineOutput::Signal(run, signal) => self.signal_run(run, signal),
            MachineOutput::Measure { front, runs } => self.measure(front, &runs),
            MachineOutput::Withdrawn(front, NotDone::IsOver(_)) => {
                self.end_unstarted(front, EndReason::Canceled);
            }
            MachineOutput::Withdrawn(front, why) => {
                if let Some(host) = &mut self.machine {
                    host.queued.remove(&front);
                }
                self.tell(front, ToFront::Refused(Refusal::Machine(why)));
                self.finish_front(front);
            }
            MachineOutput::Queued(front, job) => self.tell(front, ToFront::Queued(job)),
            MachineOutput::Store(batch) => {
                self.outputs.push_back(ControllerOutput::Store(batch));
            }
            MachineOutput::Fetch { before, most } => {
                self.outputs
                    .push_back(ControllerOutput::Fetch { before, most });
            }
            MachineOutput::AddNodes { nodes, environment } => {
                self.add_nodes(nodes, environment, None)
            }
            MachineOutput::Reopen(node, said) => self.reopen_node(now, node, said),
            MachineOutput::Leave(node) => {
                self.outputs
                    .push_back(ControllerOutput::Daemon(node, ToDaemon::Leave));
            }
            MachineOutput::Granted(id, grant) => self.granted(now, id, grant),
            MachineOutput::NotGranted(id, why) => self.not_granted(id, why),
            MachineOutput::EndAllocation(id, why) => self.end_allocation(now, id, why),
            MachineOutput::Forget(node) => self.forget_node(node),
        }
    }

    /// Returns what tools need to know about a run; `None` if it has ended.
    fn run_line(&self, run: JobId) -> Option<RunLine> {
        let job = self.jobs.get(&run)?;
        let hosts = job.shares.keys().map(|node| self.name_of(*node));
        Some(RunLine {
            nspace: job.nspace.clone(),
            hosts: hosts.collect(),
        })
    }

    fn launch_run(&mut self, now: Time, run: Run) {
        let id = JobId(self.next_job);
        let front = run.front.unwrap_or(FrontId(DETACHED | id.0));
        if let Some(front) = self.fronts.get_mut(&front) {
            front.job = Some(id);
        }
        if let Some(host) = &mut self.machine {
            host.queued.remove(&front);
        }
        if let Some(files) = run.output {
            let start = CaptureStart {
                files,
                umask: run.spec.apps.first().map_or(0o077, |app| app.umask),
                truncates: run.truncates,
            };
            self.begin_capture(now, front, (id, run.task), start);
        }
        self.tell(front, ToFront::Numbered(run.task.job));
        self.tell(front, ToFront::Accepted(id));
        // Before the job is added: it may be refused at once.
        self.with_machine(|machine| machine.launched(now, run.task, id));
        self.add_granted(
            now,
            run.spec,
            Origin::Front,
            front,
            id,
            Some(Arc::new(run.grant)),
        );
    }

    /// Opens the files for the output of a run without a front.
    fn begin_capture(
        &mut self,
        now: Time,
        front: FrontId,
        (run, task): (JobId, TaskId),
        start: CaptureStart,
    ) {
        let Some(host) = &mut self.machine else {
            return;
        };
        let capture = Capture {
            run,
            task,
            files: start.files.clone(),
            unanswered: 1,
            uncredited: BTreeMap::new(),
            lost: None,
            notes: Vec::new(),
            is_given_up: false,
            ended: None,
        };
        host.captures.insert(front, capture);
        host.order(now);
        let opened = Captured {
            root: run,
            job: run,
            node: NodeId(0),
            stream: Stream::Stdout,
            cost: 0,
        };
        self.outputs
            .push_back(ControllerOutput::CaptureStart(opened, start));
    }

    /// Writes output of a run without a front to its file. Returns the chunk if the run has a front.
    pub(super) fn capture(
        &mut self,
        now: Time,
        front: FrontId,
        node: NodeId,
        chunk: Chunk,
    ) -> Option<Chunk> {
        let Some(host) = &mut self.machine else {
            return Some(chunk);
        };
        let capture = host.captures.get_mut(&front);
        // What was given up is credited as that of a lost front.
        let Some(capture) = capture.filter(|capture| !capture.is_given_up) else {
            return Some(chunk);
        };
        capture.unanswered += 1;
        let uncredited = capture.uncredited.entry((chunk.job, node)).or_default();
        uncredited[chunk.stream as usize] += stdio::cost(chunk.bytes.len());
        let output = Captured {
            root: capture.run,
            job: chunk.job,
            node,
            stream: chunk.stream,
            cost: stdio::cost(chunk.bytes.len()),
        };
        host.order(now);
        let bytes = chunk.bytes;
        self.outputs
            .push_back(ControllerOutput::Capture { output, bytes });
        None
    }

    /// Writes a warning about a run without a front to its output for errors: nobody else is there to read it.
    pub(super) fn note_in_output(&mut self, front: FrontId, note: &Note) {
        let captures = self.machine.as_ref().map(|host| &host.captures);
        let run = captures.and_then(|captures| captures.get(&front));
        let Some(job) = run.and_then(|run| self.jobs.get(&run.run)) else {
            return;
        };
        let names = self.allocation.nodes.iter().map(|node| node.name.clone());
        let message = messages::note(
            note,
            &Scene {
                job: Some(job.id),
                nodes: &names.collect::<Vec<_>>(),
                table: &job.table.rows(),
                apps: &job.spec.apps,
                end: job.spec.end,
            },
        );
        let is_wanted = matches!(note, Note::Logged { .. });
        if message.severity != Severity::Note || is_wanted {
            self.write_in_output(front, &message);
        }
    }

    /// Lets a message be written to the output for errors of a run without a front.
    fn write_in_output(&mut self, front: FrontId, message: &Message) {
        let Some(host) = &mut self.machine else {
            return;
        };
        let capture = host.captures.get_mut(&front);
        if let Some(capture) = capture.filter(|capture| !capture.is_given_up) {
            let text = message::text(message, message::Format::Text);
            capture.notes.push(text);
            host.noted.push(front);
        }
    }

    /// Orders that the notes are written.
    fn write_notes(&mut self, now: Time) {
        let Some(host) = &mut self.machine else {
            return;
        };
        for front in std::mem::take(&mut host.noted) {
            let Some(capture) = host.captures.get_mut(&front) else {
                continue;
            };
            let (run, notes) = (capture.run, std::mem::take(&mut capture.notes));
            capture.unanswered += u32::try_from(notes.len()).unwrap_or(u32::MAX);
            for text in notes {
                host.order(now);
                // No proc waits for credit for it.
                let output = Captured {
                    root: run,
                    job: run,
                    node: NodeId(0),
                    stream: Stream::Stderr,
                    cost: 0,
                };
                let bytes = Bytes::from(text);
                self.outputs
                    .push_back(ControllerOutput::Capture { output, bytes });
            }
        }
    }

    /// Lets the procs go on that have written this output. If it is lost, the job ends, and has failed.
    pub(super) fn on_captured(&mut self, now: Time, output: Captured, result: Result<(), String>) {
        let Captured {
            root,
            job,
            node,
            stream,
            cost,
        } = output;
        let front = FrontId(DETACHED | root.0);
        let Some(host) = &mut self.machine else {
            return;
        };
        host.unanswered = host.unanswered.saturating_sub(1);
        host.answered = now;
        let capture = host.captures.get_mut(&front);
        // What was given up is credited.
        let Some(capture) = capture.filter(|capture| !capture.is_given_up) else {
            return;
        };
        capture.unanswered -= 1;
        if let Some(uncredited) = capture.uncredited.get_mut(&(job, node)) {
            let uncredited = &mut uncredited[stream as usize];
            *uncredited = uncredited.saturating_sub(cost);
        }
        self.credit_node(job, node, stream, cost);
        let host = self.machine.as_mut();
        let Some(capture) = host.and_then(|host| host.captures.get_mut(&front)) else {
            return;
        };
        if let Err(why) = result {
            capture.lost.get_or_insert(why);
            self.end(root, Cause::Ended(EndReason::OutputLost));
        }
        self.close_capture(front);
    }

    /// Ends the machine, with all that runs.
    pub(super) fn on_terminate(&mut self, now: Time) {
        self.with_machine(|machine| machine.terminate(now));
    }

    /// Returns the front that is told what concerns no job: the first one, or that which has started the machine.
    pub(super) fn anyone(&self) -> Option<FrontId> {
        let first = self.fronts.keys().next().copied();
        first.filter(|front| self.machine.is_none() || front.0 == 0)
    }

    /// Returns what the placement of a run has to respect: its request and the nodes, as far as they are granted.
    pub(super) fn within<'a>(
        &'a self,
        request: &'a place::Request,
        grant: &Grant,
    ) -> Result<(Cow<'a, place::Request>, Allocation), Refusal> {
        let mut allocation = self.living_allocation();
        let mut granted = HostList::default();
        let is_shared = grant.sharing == Sharing::Shared;
        // The queue counts a slot for each CPU of a proc, and the placement one for each proc.
        let each = if is_shared {
            request.cpus_per_proc()
        } else {
            1
        };
        let counts = request.apps.iter().map(|app| app.count.unwrap_or(0));
        let wanted = counts.fold(0, u32::saturating_add).saturating_mul(each);
        let total = grant.slots.values().copied();
        let is_too_many = wanted > total.fold(0, u32::saturating_add);
        // Other jobs may run on the same nodes, and would be bound to the same cores.
        let is_unbound = is_shared && request.bind_to.is_none() && request.cpus.is_none();
        // Procs that are not bound need no cores, but their slots.
        let is_counted = is_unbound && each > 1 && !is_too_many;
        // A node of another allocation may have the same name.
        for (id, node) in (0..).map(NodeId).zip(&mut allocation.nodes) {
            if !grant.slots.contains_key(&id) {
                node.name.clear();
            }
        }
        for (id, slots) in &grant.slots {
            if !self.nodes.contains_key(id) {
                let host = self.name_of(*id).to_owned();
                return Err(Refusal::NodeLost { host });
            }
            if let Some(node) = allocation.nodes.get_mut(id.0 as usize) {
                let procs = (*slots / each).max(1);
                node.slots = Slots::Explicit(procs);
                node.max_slots = is_counted.then_some(procs);
                granted.push(&node.name);
            }
        }
        let mut request = request.clone();
        for app in &mut request.apps {
            app.hosts = Some(match &app.hosts {
                Some(hosts) => hosts.iter().filter(|host| granted.contains(host)).collect(),
                None => granted.clone(),
            });
        }
        if is_too_many || is_counted {
            // The queue, or who has let it into an allocation, has checked that its procs may share slots, or has counted them.
            request.oversubscribe = Oversubscribe::Allow;
        }
        if is_unbound {
            request.bind_to = Some(BindTo::from(BindTarget::None));
        }
        Ok((Cow::Owned(request), allocation))
    }
}
