//! One node: a daemon on a fake kernel, and the host that carries out the daemon's outputs.
//!
//! The host corresponds to `runtime` on a real kernel. It also checks every action and every report of the daemon.

mod carry;
mod guest;
mod streams;
mod visitor;
mod wire;

use std::collections::{BTreeMap, BTreeSet};

use base::{JobId, NodeId, ProcId, Rank, Signal, Time};
use bytes::Bytes;
use dvm::{
    Daemon, DaemonConfig, Input,
    proto::{Launch, StartFailure, Stream, ToDaemon, ToPreload},
    spec::StdinTarget,
    stdio::{OUTPUT_WINDOW, STDIN_WINDOW},
};

use self::{
    guest::Guest,
    visitor::{Untold, Visitor},
    wire::Wire,
};
use crate::{
    files::Disk,
    kernel::{ClientId, Effect, Kernel, News, Pid, PipeId},
    ledger::Reaped,
    names::called,
    script::Op,
    world::{Event, World},
};

/// Pid of the first front; further fronts have the pids after it.
pub(crate) const FRONT_PID: u32 = 77;
/// Capacity of a pipe, in bytes.
const PIPE_ROOM: usize = 64 * 1024;
/// Number of ticks that a daemon may have in addition to four for each input.
const IDLE_TICKS: u64 = 16;
/// How long after the grace a rank may still die, in addition to the maximum latencies of a spawn and a tick.
const DEATH_SLACK: std::time::Duration = std::time::Duration::from_millis(60);
/// Time in which a tool is refused, in addition to the delays of the run.
const VISIT_MAX: std::time::Duration = std::time::Duration::from_millis(60);

/// The daemon's end of one output stream of a rank.
#[derive(Debug)]
struct Port {
    pipe: PipeId,
    reading: bool,
    scheduled: bool,
    open: bool,
}

/// The daemon's end of a rank's stdin.
#[derive(Debug)]
struct Feed {
    pipe: PipeId,
    writing: Option<Bytes>,
    scheduled: bool,
    written: u64,
}

/// The stream that a pipe carries.
#[derive(Clone, Copy, Debug)]
enum End {
    Output(ProcId, Stream),
    Stdin(ProcId),
}

/// The progress of a job's end on this node.
#[derive(Clone, Copy, Debug, Default)]
struct Ending {
    /// Time at which the grace is over; `None` until the node is to end the job.
    due: Option<Time>,
    /// True once the controller has requested to kill the job.
    killed: bool,
    /// True once the processes left behind got a SIGTERM.
    strays_asked: bool,
}

/// The state of one job on this node.
#[derive(Debug, Default)]
struct Share {
    ranks: BTreeSet<Rank>,
    /// Output that was sent and not yet credited, for each stream, counted by [`dvm::stdio::cost`].
    under_way: [u64; 2],
    /// Whether the output window is shut, for each stream.
    shut: [bool; 2],
    /// Bytes of input that the node received.
    fed: u64,
    ending: Ending,
    forgot: bool,
}

/// A rank, with the number of its job among the [`Programs`]; `None` stands for the job of the first front.
pub(crate) type Part = (Option<usize>, Rank);

/// The programs of a run, and the failures of ranks that cannot be started.
#[derive(Clone, Debug, Default)]
pub(crate) struct Programs {
    pub(crate) scripts: BTreeMap<Part, Vec<Op>>,
    pub(crate) unstartable: BTreeMap<Part, StartFailure>,
}

impl Share {
    fn is_clean(&self) -> bool {
        self.forgot || self.ranks.is_empty()
    }
}

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) id: NodeId,
    pub(crate) daemon: Daemon,
    pub(crate) kernel: Kernel,
    /// False after the loss of the node.
    on: bool,
    /// True once the controller is gone: messages to it are dropped.
    alone: bool,
    programs: Programs,
    pub(crate) disk: Disk,
    /// Jobs whose ranks need the files on the disk.
    needs_files: BTreeSet<JobId>,
    /// Numbers of the jobs among the [`Programs`]. The job of the first front has none.
    children: BTreeMap<JobId, usize>,
    /// The port on which the daemon's PMIx server listens; 0 without a server.
    port: u16,
    wires: BTreeMap<ClientId, Wire>,
    visitors: BTreeMap<ClientId, Visitor>,
    guests: BTreeMap<ClientId, Guest>,
    untold: Untold,
    shares: BTreeMap<JobId, Share>,
    ports: BTreeMap<(ProcId, Stream), Port>,
    feeds: BTreeMap<ProcId, Feed>,
    ends: BTreeMap<PipeId, End>,
    /// Pids of the ranks that have not been reaped.
    pids: BTreeMap<ProcId, Pid>,
    pmi_open: BTreeSet<ProcId>,
    born: BTreeMap<ProcId, Time>,
    died: BTreeMap<ProcId, Time>,
    /// The deadline for which a tick is scheduled, so that one deadline causes one tick.
    tick_for: Option<Time>,
    ticks: u64,
    inputs: u64,
    /// Ranks that get the job's input, until the daemon closes their stdin.
    readers: BTreeSet<ProcId>,
    /// Ranks whose end the daemon has reported.
    said_ended: BTreeSet<ProcId>,
}

impl Node {
    pub(crate) fn new(config: DaemonConfig, programs: Programs, disk: Disk) -> Self {
        let first_pid = 1_000 * (i32::try_from(config.node.0).unwrap_or(0) + 1);
        let port = config.service.as_ref().map_or(0, |service| service.port);
        Self {
            id: config.node,
            daemon: Daemon::new(config),
            kernel: Kernel::new(first_pid),
            on: true,
            alone: false,
            programs,
            disk,
            needs_files: BTreeSet::new(),
            children: BTreeMap::new(),
            port,
            wires: BTreeMap::new(),
            visitors: BTreeMap::new(),
            guests: BTreeMap::new(),
            untold: Untold::default(),
            shares: BTreeMap::new(),
            ports: BTreeMap::new(),
            feeds: BTreeMap::new(),
            ends: BTreeMap::new(),
            pids: BTreeMap::new(),
            pmi_open: BTreeSet::new(),
            born: BTreeMap::new(),
            died: BTreeMap::new(),
            tick_for: None,
            ticks: 0,
            inputs: 0,
            readers: BTreeSet::new(),
            said_ended: BTreeSet::new(),
        }
    }

    /// Simulates a power failure: the node and all its processes are lost.
    pub(crate) fn power_off(&mut self, world: &mut World) {
        self.on = false;
        self.kernel.power_off();
        for (job, share) in &self.shares {
            for rank in &share.ranks {
                let proc = proc(*job, *rank);
                world.ledger.lost.insert(proc);
                world.ledger.died.entry(proc).or_insert(world.now);
            }
        }
        let now = world.now;
        world.ledger.lost_nodes.insert(self.id, now);
        world.ledger.busy(now);
    }

    /// Counts this node as lost: from now on the controller hears nothing of it.
    pub(crate) fn count_as_lost(&self, world: &mut World) {
        for (job, share) in &self.shares {
            let procs = share.ranks.iter().map(|rank| proc(*job, *rank));
            world.ledger.lost.extend(procs);
        }
        let now = world.now;
        world.ledger.lost_nodes.entry(self.id).or_insert(now);
        world.ledger.busy(now);
    }

    /// Notes that the daemon does not run until this time.
    pub(crate) fn pause(&self, world: &mut World, until: Time) {
        for key in self.ports.keys() {
            if let Some(tape) = world.ledger.tapes.get_mut(key) {
                tape.on_stopped(until);
            }
        }
    }

    /// Returns true once the daemon has lost the controller.
    pub(crate) const fn is_alone(&self) -> bool {
        self.alone
    }

    /// Handles the end of the link to the controller, which is lost.
    pub(crate) fn lose_controller(&mut self, world: &mut World) {
        if !self.on || self.alone {
            return;
        }
        self.alone = true;
        let due = world.now + dvm::LOSS_GRACE;
        for Share { ending, .. } in self.shares.values_mut() {
            ending.due = Some(ending.due.map_or(due, |before| before.min(due)));
        }
        self.daemon.controller_lost(world.now);
        self.pump(world);
    }

    /// Sends a rank a SIGKILL that no part of the cluster requested. Returns true if the rank was there.
    pub(crate) fn kill_rank(&mut self, world: &mut World, proc: ProcId) -> bool {
        let Some(pid) = self.pids.get(&proc).filter(|_| self.on) else {
            return false;
        };
        self.kernel.signal(world.now, *pid, Signal::KILL);
        self.absorb(world);
        true
    }

    /// Returns true if the node is off, or if its daemon is idle, has no files, and has forgotten every job that has ranks here.
    pub(crate) fn is_clean(&self) -> bool {
        !self.on || (self.has_no_job() && self.disk.is_empty())
    }

    /// Returns true if the daemon is idle and has forgotten every job that has ranks here.
    pub(crate) fn has_no_job(&self) -> bool {
        self.daemon.is_idle() && self.shares.values().all(Share::is_clean)
    }

    pub(crate) const fn is_on(&self) -> bool {
        self.on
    }

    /// Returns the live processes that the daemon has not reported as stuck.
    pub(crate) fn survivors(&self, world: &World) -> Vec<Pid> {
        let living = self.kernel.living();
        self.not_given_up(world, living)
    }

    /// Returns the live processes of one job that the daemon has not reported as stuck.
    fn survivors_of(&self, world: &World, job: JobId) -> Vec<Pid> {
        let living = self.kernel.living();
        self.not_given_up(world, living.filter(|(_, of)| *of == job))
    }

    fn not_given_up(&self, world: &World, living: impl Iterator<Item = (Pid, JobId)>) -> Vec<Pid> {
        let given_up = |pid| world.ledger.stuck.contains(&(self.id, pid));
        let living = living.map(|(pid, _)| pid);
        living.filter(|pid| !given_up(*pid)).collect()
    }

    pub(crate) fn say_hello(&mut self, world: &mut World) {
        self.pump(world);
    }

    /// Handles a message from the controller.
    pub(crate) fn on_message(&mut self, world: &mut World, message: ToDaemon) {
        if !self.on {
            return;
        }
        world.ledger.known.on_told(world.now, self.id, &message);
        match &message {
            ToDaemon::Preload { job, what } => {
                if let ToPreload::Chunk { number, .. } = what
                    && let Some(wrong) = self.disk.on_chunk(*job, *number)
                {
                    world.fault(wrong);
                }
            }
            ToDaemon::Launch(launch) => {
                self.on_launch(launch);
                self.tools_are_due(world);
            }
            ToDaemon::Stdin { job, bytes } => {
                let share = self.shares.entry(*job).or_default();
                share.fed += bytes.len() as u64;
                let fed = share.fed;
                let readers = || self.readers.iter().filter(|proc| proc.job == *job);
                let written = |proc: &ProcId| self.feeds.get(proc).map_or(0, |feed| feed.written);
                let slowest = readers().map(written).min();
                let waiting = slowest.map_or(0, |written| fed - written);
                world.require(waiting <= STDIN_WINDOW, || {
                    format!("{waiting} bytes of input wait at a daemon")
                });
                let read = |proc: &ProcId| world.ledger.input_read.get(proc).copied().unwrap_or(0);
                let bound = 2 * PIPE_ROOM as u64;
                let unread = readers().any(|proc| read(proc) == 0);
                world.require(!unread || fed <= bound, || {
                    format!("{fed} bytes of input are taken, and a rank reads nothing")
                });
            }
            ToDaemon::OutputCredit { job, stream, bytes } => {
                let share = self.shares.entry(*job).or_default();
                let slot = *stream as usize;
                if share.shut[slot] {
                    let now = world.now;
                    world.ledger.busy(now);
                }
                share.under_way[slot] = share.under_way[slot].saturating_sub(*bytes);
                if share.under_way[slot] <= OUTPUT_WINDOW / 2 {
                    share.shut[slot] = false;
                }
            }
            ToDaemon::End { job, grace } => {
                let share = self.shares.entry(*job).or_default();
                share.ending.due.get_or_insert(world.now + *grace);
            }
            ToDaemon::Kill { job } => {
                self.shares.entry(*job).or_default().ending.killed = true;
            }
            ToDaemon::Event { event } => {
                let wrong = world.ledger.on_event_told(world.now, self.id, event);
                if let Some(wrong) = wrong {
                    world.fault(wrong);
                }
            }
            ToDaemon::StdinEof { .. }
            | ToDaemon::Signal { .. }
            | ToDaemon::Measure { .. }
            | ToDaemon::MeasureDaemon { .. }
            | ToDaemon::SignalRanks { .. }
            | ToDaemon::Push { .. }
            | ToDaemon::Release { .. }
            | ToDaemon::Resize { .. }
            | ToDaemon::Answer { .. }
            | ToDaemon::Server(_)
            | ToDaemon::LaunchedElsewhere(_)
            | ToDaemon::Fenced { .. }
            | ToDaemon::ExitedElsewhere { .. }
            | ToDaemon::FenceAwaited { .. }
            | ToDaemon::SendTopology
            | ToDaemon::Starter(_)
            | ToDaemon::Leave => {}
        }
        let id = self.id;
        world.note(|| format!("d{id}"), || format!("<- {message:?}"));
        self.tell(world, Input::Message(message));
    }

    fn on_launch(&mut self, launch: &Launch) {
        let ranks: BTreeSet<Rank> = launch.map.ranks_on(self.id).iter().collect();
        let reads = |rank: &Rank| match launch.stdin {
            StdinTarget::None => false,
            StdinTarget::Rank(one) => one == *rank,
            StdinTarget::All => true,
        };
        let readers = ranks.iter().copied().filter(reads);
        self.readers
            .extend(readers.map(|rank| proc(launch.job, rank)));
        self.shares.entry(launch.job).or_default().ranks = ranks;
        if launch.preloaded.is_some() {
            self.needs_files.insert(launch.job);
        }
    }

    /// Handles one event of this node.
    pub(crate) fn on_event(&mut self, world: &mut World, event: Event) {
        if !self.on {
            return;
        }
        let now = world.now;
        match event {
            Event::Step { pid, token, .. } => {
                self.kernel.step(now, pid, token, &mut world.rng);
                self.absorb(world);
            }
            Event::Readable { proc, stream, .. } => self.read(world, proc, stream),
            Event::FeedStdin { proc, .. } => self.feed(world, proc),
            Event::Reap { .. } => {
                // One SIGCHLD may stand for several processes, so all dead children are reaped in one batch.
                for pid in self.kernel.zombies() {
                    self.reap(world, pid);
                }
                self.pump(world);
            }
            Event::Trap { pid, .. } => {
                if let Some(proc) = self.proc_of(pid).filter(|_| self.kernel.is_alive(pid)) {
                    self.kernel.leave_stopped(pid);
                    world.ledger.trapped.insert(proc, now);
                    self.tell(world, Input::Trapped { proc });
                }
            }
            Event::Spawn { order, .. } => self.spawn(world, &order),
            Event::Swept { job, left, .. } => self.tell(
                world,
                Input::Swept {
                    counted: None,
                    job,
                    left,
                    not_permitted: BTreeSet::new(),
                },
            ),
            Event::FilesActed { job, result, .. } => {
                self.tell(world, Input::FilesActed { job, result });
            }
            Event::PmiToDaemon { proc, bytes, .. } if self.pmi_open.contains(&proc) => {
                let bytes = &bytes;
                self.tell(world, Input::Pmi { proc, bytes });
            }
            Event::PmiClosed { proc, .. } if self.pmi_open.remove(&proc) => {
                self.tell(world, Input::PmiClosed { proc });
            }
            Event::PmiToRank { proc, bytes, .. } => {
                if let Some(pid) = self.pids.get(&proc) {
                    self.kernel.answer_pmi(now, *pid, &bytes);
                    self.absorb(world);
                }
            }
            Event::ClientUp { id, .. } => self.client_up(world, id),
            Event::ClientDown { id, .. } => self.client_down(world, id),
            Event::VisitorTick { id, .. } => self.tick_visitor(world, id),
            Event::GuestActs { id, .. } => self.guest_acts(world, id),
            Event::GuestTick { id, due, .. } => self.tick_guest(world, id, due),
            Event::DaemonTick { due, .. } if self.tick_for == Some(due) => {
                self.tick(world);
            }
            _ => {}
        }
    }

    /// Checks something that a rank has sent or received by PMIx.
    fn on_news(&self, world: &mut World, pid: Pid, news: &News) {
        let (Some(proc), Some(program)) = (self.proc_of(pid), self.kernel.program(pid)) else {
            return;
        };
        world.note(|| format!("r{}", proc), || format!("{news:?}"));
        let wrong = world.ledger.on_news(world.now, proc, news, program);
        let environment = self.kernel.environment(pid);
        let odd = environment
            .filter(|_| matches!(news, News::Ready))
            .and_then(|environment| world.ledger.facts.of_environment(proc, environment));
        let odd = odd.map(|odd| format!("in the environment of {} {odd}", called(proc)));
        if let Some(wrong) = wrong.or(odd) {
            world.fault(wrong);
        }
    }

    fn proc_of(&self, pid: Pid) -> Option<ProcId> {
        self.pids
            .iter()
            .find(|(_, own)| **own == pid)
            .map(|(proc, _)| *proc)
    }

    pub(crate) fn tick(&mut self, world: &mut World) {
        let id = self.id;
        world.note(|| format!("d{id}"), || "tick".to_owned());
        self.tick_for = None;
        self.ticks += 1;
        self.daemon.handle(world.now, Input::Tick);
        let again = self.daemon.deadline().filter(|due| *due <= world.now);
        self.pump(world);
        world.require(again.is_none(), || {
            format!("daemon {id} wants to be woken at once after it was woken")
        });
        let explained = IDLE_TICKS + 4 * self.inputs;
        let ticks = self.ticks;
        world.require(ticks <= explained, || {
            format!("daemon {id} was woken {ticks} times, {explained} are explained")
        });
    }

    /// Gives the daemon an input and carries out its outputs.
    fn tell(&mut self, world: &mut World, input: Input<'_>) {
        self.hear(world, input);
        self.pump(world);
    }

    /// Gives the daemon an input. The caller carries out the outputs afterwards, with [`Self::pump`].
    fn hear(&mut self, world: &World, input: Input<'_>) {
        self.inputs += 1;
        self.daemon.handle(world.now, input);
    }

    /// Carries out all pending outputs of the daemon, and schedules its next tick.
    fn pump(&mut self, world: &mut World) {
        while let Some(output) = self.daemon.poll() {
            self.carry_out(world, output);
            if world.is_faulty() {
                return;
            }
        }
        self.absorb(world);
        let due = self.daemon.deadline();
        if due != self.tick_for {
            self.tick_for = due;
            if let Some(due) = due {
                let late = world.delay(world.latency.tick_late_max);
                world.at(due + late, Event::DaemonTick { node: self.id, due });
            }
        }
    }

    /// Turns the effects of the kernel into events, ledger entries and faults.
    fn absorb(&mut self, world: &mut World) {
        let (id, now) = (self.id, world.now);
        for effect in self.kernel.effects() {
            match effect {
                Effect::Step { pid, token, at } => world.at(
                    at,
                    Event::Step {
                        node: id,
                        pid,
                        token,
                    },
                ),
                Effect::Wrote {
                    pipe,
                    bytes,
                    by_rank,
                } => {
                    if let Some(End::Output(proc, stream)) = self.ends.get(&pipe)
                        && let Some(tape) = world.ledger.tapes.get_mut(&(*proc, *stream))
                    {
                        tape.on_written(bytes, by_rank);
                    }
                }
                Effect::Readable(pipe) => {
                    if let Some(End::Output(proc, stream)) = self.ends.get(&pipe).copied() {
                        self.watch(world, proc, stream);
                    }
                }
                Effect::Room(pipe) => {
                    if let Some(End::Stdin(proc)) = self.ends.get(&pipe).copied() {
                        self.watch_stdin(world, proc);
                    }
                }
                Effect::Dead { pid, status } => {
                    if let Some(proc) = self.proc_of(pid) {
                        world.ledger.statuses.insert(proc, status);
                        world.ledger.died.insert(proc, now);
                        if let Some(wrong) = world.ledger.on_client_dead(now, proc) {
                            world.fault(wrong);
                        }
                        self.died.insert(proc, now);
                        world.ledger.busy(now);
                        let slack =
                            DEATH_SLACK + world.latency.spawn_max + world.latency.tick_late_max;
                        let slack = slack + world.ledger.stops;
                        let due = self.ending(proc.job).due;
                        let late = due.is_some_and(|due| now > due + slack);
                        world.require(!late, || format!("{} outlived its grace", called(proc)));
                    }
                    let delay = world.delay(world.latency.io_max);
                    world.after(delay, Event::Reap { node: id });
                }
                Effect::Trapped { pid } => {
                    let delay = world.delay(world.latency.spawn_max);
                    world.after(delay, Event::Trap { node: id, pid });
                }
                Effect::PmiSent { proc, bytes } => {
                    let cut = world.rng.length(0, bytes.len());
                    for part in [&bytes[..cut], &bytes[cut..]] {
                        let event = Event::PmiToDaemon {
                            node: id,
                            proc,
                            bytes: part.to_vec(),
                        };
                        world.after(world.latency.pmi, event);
                    }
                }
                Effect::PmiClosed { proc } => {
                    world.after(world.latency.pmi, Event::PmiClosed { node: id, proc })
                }
                Effect::ClientOpened { id, port, uid } => self.client_opened(world, id, port, uid),
                Effect::ClientSent { id, bytes } => self.client_sent(world, id, bytes),
                Effect::ClientClosed { id } => self.client_closed(world, id),
                Effect::Told { pid, news } => self.on_news(world, pid, &news),
                Effect::Read { pipe, bytes } => {
                    if let Some(End::Stdin(proc)) = self.ends.get(&pipe)
                        && let Some(wrong) = world.ledger.on_input_read(*proc, &bytes)
                    {
                        world.fault(wrong);
                    }
                }
                Effect::ReadEnd { pipe } => {
                    // Descendants that outlive a rank read end of file, because the daemon closes the stdin of an exited rank.
                    if let Some(End::Stdin(proc)) = self.ends.get(&pipe)
                        && self
                            .pids
                            .get(proc)
                            .is_some_and(|pid| self.kernel.is_alive(*pid))
                        && let Some(wrong) = world.ledger.on_input_end(*proc)
                    {
                        world.fault(wrong);
                    }
                }
                Effect::Fault(what) => world.fault(what),
            }
        }
    }

    fn reap(&mut self, world: &mut World, pid: Pid) {
        let proc = self.proc_of(pid);
        self.kernel.reap(pid);
        match proc {
            Some(proc) => {
                self.pids.remove(&proc);
                let Some(status) = world.ledger.statuses.get(&proc).copied() else {
                    return;
                };
                let id = self.id;
                world.note(|| format!("d{id}"), || format!("{} {status}", called(proc)));
                let ending = self.ending(proc.job);
                let reaped = Reaped {
                    at: world.now,
                    is_ending: ending.due.is_some() || ending.killed,
                };
                world.ledger.reaped.insert(proc, reaped);
                world.ledger.on_end_known(proc, status);
                self.hear(
                    world,
                    Input::Exited {
                        proc,
                        end: status.into(),
                    },
                );
            }
            None => self.hear(world, Input::StrayExited),
        }
    }

    /// Returns the progress of a job's end on this node.
    fn ending(&self, job: JobId) -> Ending {
        let share = self.shares.get(&job);
        share.map(|share| share.ending).unwrap_or_default()
    }

    /// Checks that a SIGKILL for a rank is justified: its job is being killed, a process named it in an abort, or its
    /// grace is over and SIGTERM could not end it. Other signals are always allowed.
    fn check_signal(&self, world: &mut World, proc: ProcId, signal: Signal) {
        let ending = self.ending(proc.job);
        let condemned = world.ledger.pmix.condemned.contains(&proc);
        if signal != Signal::KILL || ending.killed || condemned {
            return;
        }
        world.require(ending.due.is_some_and(|due| due <= world.now), || {
            format!("{} is killed before its grace is over", called(proc))
        });
        let deaf = self
            .pids
            .get(&proc)
            .is_none_or(|pid| !self.kernel.is_alive(*pid) || self.kernel.is_stubborn(*pid));
        // A rank that starts when the grace is already over gets SIGKILL without a SIGTERM before it.
        let deaf = deaf || self.born.get(&proc) == Some(&world.now);
        world.require(deaf, || {
            format!("{} would have ended by SIGTERM", called(proc))
        });
    }
}

const fn proc(job: JobId, rank: Rank) -> ProcId {
    ProcId { job, rank }
}
