//! One node: a daemon on a fake kernel, and what carries out the daemon's outputs.
//!
//! It is what `cli::machine` is for the real kernel, with checks of everything that the daemon asks for.

mod carry;

use std::collections::{BTreeMap, BTreeSet};

use base::{JobId, NodeId, ProcId, Rank, Signal, Time};
use bytes::Bytes;
use dvm::{
    Daemon, DaemonConfig, Input,
    proto::{Launch, StartFailure, Stream, ToDaemon},
    spec::StdinTarget,
    stdio::{LINE_MAX, OUTPUT_WINDOW, STDIN_WINDOW},
};

use crate::{
    kernel::{Effect, Kernel, Pid, PipeId, Taken},
    ledger::TapeEnd,
    script::Op,
    world::{Event, World},
};

/// The one job of a run.
pub(crate) const JOB: JobId = JobId(1);
/// The front's pid, which is part of the name of the job's key-value space.
pub(crate) const FRONT_PID: u32 = 77;
/// What the names of jobs begin with in PMIx and in PMI.
pub(crate) const NAME: &str = "sim";
/// Bytes read from a stream in one go.
const READ_MAX: usize = 256 * 1024;
/// What a pipe holds.
const PIPE_ROOM: usize = 64 * 1024;
/// Wake-ups that a daemon may have beside those that its inputs explain.
const IDLE_TICKS: u64 = 16;
/// How much later than allowed a rank may die that is being ended.
const DEATH_SLACK: std::time::Duration = std::time::Duration::from_millis(60);

/// Our end of an output stream.
#[derive(Debug)]
struct Port {
    pipe: PipeId,
    reading: bool,
    scheduled: bool,
    open: bool,
}

/// Our end of a rank's stdin.
#[derive(Debug)]
struct Feed {
    pipe: PipeId,
    writing: Option<Bytes>,
    scheduled: bool,
    written: u64,
}

/// Which descriptor a pipe is.
#[derive(Clone, Copy, Debug)]
enum End {
    Output(Rank, Stream),
    Stdin(Rank),
}

/// What a node knows about how the job is being ended on it.
#[derive(Clone, Copy, Debug, Default)]
struct Ending {
    /// When the grace is over.
    due: Option<Time>,
    killed: bool,
    strays_asked: bool,
}

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) id: NodeId,
    pub(crate) daemon: Daemon,
    pub(crate) kernel: Kernel,
    /// Off after the loss of the node.
    on: bool,
    /// The controller is gone: nobody hears what is said.
    alone: bool,
    scripts: BTreeMap<Rank, Vec<Op>>,
    unstartable: BTreeMap<Rank, StartFailure>,
    ports: BTreeMap<(Rank, Stream), Port>,
    feeds: BTreeMap<Rank, Feed>,
    ends: BTreeMap<PipeId, End>,
    /// Ranks that were not reaped.
    pids: BTreeMap<Rank, Pid>,
    pmi_open: BTreeSet<Rank>,
    born: BTreeMap<Rank, Time>,
    died: BTreeMap<Rank, Time>,
    tick_for: Option<Time>,
    ticks: u64,
    inputs: u64,
    under_way: [u64; 2],
    shut: [bool; 2],
    ranks: BTreeSet<Rank>,
    fed: u64,
    readers: BTreeSet<Rank>,
    ending: Ending,
    said_ended: BTreeSet<Rank>,
    forgot: bool,
}

impl Node {
    pub(crate) fn new(
        config: DaemonConfig,
        scripts: BTreeMap<Rank, Vec<Op>>,
        unstartable: BTreeMap<Rank, StartFailure>,
    ) -> Self {
        let first_pid = 1_000 * (i32::try_from(config.node.0).unwrap_or(0) + 1);
        Self {
            id: config.node,
            daemon: Daemon::new(config),
            kernel: Kernel::new(first_pid, format!("{NAME}@{JOB}")),
            on: true,
            alone: false,
            scripts,
            unstartable,
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
            under_way: [0; 2],
            shut: [false; 2],
            ranks: BTreeSet::new(),
            fed: 0,
            readers: BTreeSet::new(),
            ending: Ending::default(),
            said_ended: BTreeSet::new(),
            forgot: false,
        }
    }

    /// The machine loses its power.
    pub(crate) fn power_off(&mut self, world: &mut World) {
        self.on = false;
        self.kernel.power_off();
        for rank in &self.ranks {
            world.ledger.lost.insert(*rank);
        }
        world.ledger.lost_nodes.insert(self.id);
        let now = world.now;
        world.ledger.busy(now);
    }

    /// The controller is gone, and says so by the end of its link.
    pub(crate) fn lose_controller(&mut self, world: &mut World) {
        if !self.on || self.alone {
            return;
        }
        self.alone = true;
        let due = world.now + dvm::LOSS_GRACE;
        self.ending.due = Some(self.ending.due.map_or(due, |before| before.min(due)));
        self.daemon.controller_lost(world.now);
        self.pump(world);
    }

    /// A rank dies of what nobody here has done.
    pub(crate) fn kill_rank(&mut self, world: &mut World, rank: Rank) {
        if let Some(pid) = self.pids.get(&rank) {
            self.kernel.signal(world.now, *pid, Signal::KILL);
            self.absorb(world);
        }
    }

    /// Nothing is left of the job.
    pub(crate) fn is_clean(&self) -> bool {
        !self.on || (self.daemon.is_idle() && (self.forgot || self.ranks.is_empty()))
    }

    pub(crate) const fn is_on(&self) -> bool {
        self.on
    }

    /// Processes that are alive although nobody has given them up.
    pub(crate) fn survivors(&self, world: &World) -> Vec<Pid> {
        let mut living = self.kernel.living();
        living.retain(|pid| !world.ledger.stuck.contains(&(self.id, *pid)));
        living
    }

    const fn proc(rank: Rank) -> ProcId {
        ProcId { job: JOB, rank }
    }

    pub(crate) fn say_hello(&mut self, world: &mut World) {
        self.pump(world);
    }

    /// A message of the controller.
    pub(crate) fn on_message(&mut self, world: &mut World, message: ToDaemon) {
        if !self.on {
            return;
        }
        match &message {
            ToDaemon::Launch(launch) => self.on_launch(launch),
            ToDaemon::Stdin { bytes, .. } => {
                self.fed += bytes.len() as u64;
                let written = |rank: &Rank| self.feeds.get(rank).map_or(0, |feed| feed.written);
                let slowest = self.readers.iter().map(written).min();
                let waiting = slowest.map_or(0, |written| self.fed - written);
                world.require(waiting <= STDIN_WINDOW, || {
                    format!("{waiting} bytes of input wait at a daemon")
                });
                let read = |rank: &Rank| world.ledger.input_read.get(rank).copied().unwrap_or(0);
                let (fed, bound) = (self.fed, 2 * PIPE_ROOM as u64);
                let unread = self.readers.iter().any(|rank| read(rank) == 0);
                world.require(!unread || fed <= bound, || {
                    format!("{fed} bytes of input are taken, and a rank reads nothing")
                });
            }
            ToDaemon::OutputCredit { stream, bytes, .. } => {
                let slot = *stream as usize;
                if self.shut[slot] {
                    let now = world.now;
                    world.ledger.busy(now);
                }
                self.under_way[slot] = self.under_way[slot].saturating_sub(*bytes);
                if self.under_way[slot] <= OUTPUT_WINDOW / 2 {
                    self.shut[slot] = false;
                }
            }
            ToDaemon::End { grace, .. } => {
                self.ending.due.get_or_insert(world.now + *grace);
            }
            ToDaemon::Kill { .. } => self.ending.killed = true,
            ToDaemon::StdinEof { .. }
            | ToDaemon::Signal { .. }
            | ToDaemon::Release { .. }
            | ToDaemon::Resize { .. }
            | ToDaemon::Answer { .. }
            | ToDaemon::Event { .. }
            | ToDaemon::FenceDone { .. } => {}
        }
        let id = self.id;
        world.note(|| format!("d{id}"), || format!("<- {message:?}"));
        self.tell(world, Input::Message(message));
    }

    fn on_launch(&mut self, launch: &Launch) {
        self.ranks = launch.procs.iter().map(|placed| placed.rank).collect();
        self.readers = match launch.stdin {
            StdinTarget::None => BTreeSet::new(),
            StdinTarget::Rank(rank) => self
                .ranks
                .iter()
                .copied()
                .filter(|one| *one == rank)
                .collect(),
            StdinTarget::All => self.ranks.clone(),
        };
    }

    /// One event of this node.
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
            Event::Readable { rank, stream, .. } => self.read(world, rank, stream),
            Event::FeedStdin { rank, .. } => self.feed(world, rank),
            Event::Reap { pid, .. } => self.reap(world, pid),
            Event::Trap { pid, .. } => {
                if let Some(rank) = self.rank_of(pid).filter(|_| self.kernel.is_alive(pid)) {
                    self.kernel.leave_stopped(pid);
                    self.tell(
                        world,
                        Input::Trapped {
                            proc: Self::proc(rank),
                        },
                    );
                }
            }
            Event::Spawn { order, .. } => self.spawn(world, &order),
            Event::Swept { job, left, .. } => self.tell(
                world,
                Input::Swept {
                    job,
                    left,
                    not_permitted: BTreeSet::new(),
                },
            ),
            Event::PmiToDaemon { rank, bytes, .. } if self.pmi_open.contains(&rank) => {
                self.tell(
                    world,
                    Input::Pmi {
                        proc: Self::proc(rank),
                        bytes: &bytes,
                    },
                );
            }
            Event::PmiClosed { rank, .. } if self.pmi_open.remove(&rank) => {
                self.tell(
                    world,
                    Input::PmiClosed {
                        proc: Self::proc(rank),
                    },
                );
            }
            Event::PmiToRank { rank, bytes, .. } => {
                if let Some(pid) = self.pids.get(&rank) {
                    self.kernel.answer_pmi(now, *pid, &bytes);
                    self.absorb(world);
                }
            }
            Event::DaemonTick { due, .. } if self.tick_for == Some(due) => {
                self.tick(world);
            }
            _ => {}
        }
    }

    fn rank_of(&self, pid: Pid) -> Option<Rank> {
        self.pids
            .iter()
            .find(|(_, own)| **own == pid)
            .map(|(rank, _)| *rank)
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

    /// Gives the daemon an input and carries out what it asks for.
    fn tell(&mut self, world: &mut World, input: Input<'_>) {
        self.inputs += 1;
        self.daemon.handle(world.now, input);
        self.pump(world);
    }

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

    /// Turns what the kernel did into events.
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
                    if let Some(End::Output(rank, stream)) = self.ends.get(&pipe)
                        && let Some(tape) = world.ledger.tapes.get_mut(&(*rank, *stream))
                    {
                        tape.on_written(bytes, by_rank);
                    }
                }
                Effect::Readable(pipe) => {
                    if let Some(End::Output(rank, stream)) = self.ends.get(&pipe).copied() {
                        self.watch(world, rank, stream);
                    }
                }
                Effect::Room(pipe) => {
                    if let Some(End::Stdin(rank)) = self.ends.get(&pipe).copied() {
                        self.watch_stdin(world, rank);
                    }
                }
                Effect::Dead { pid, status } => {
                    if let Some(rank) = self.rank_of(pid) {
                        world.ledger.statuses.insert(rank, status);
                        self.died.insert(rank, now);
                        world.ledger.busy(now);
                        let slack =
                            DEATH_SLACK + world.latency.spawn_max + world.latency.tick_late_max;
                        let late = self.ending.due.is_some_and(|due| now > due + slack);
                        world.require(!late, || format!("rank {rank} outlived its grace"));
                    }
                    let delay = world.delay(world.latency.io_max);
                    world.after(delay, Event::Reap { node: id, pid });
                }
                Effect::Trapped { pid } => {
                    let delay = world.delay(world.latency.spawn_max);
                    world.after(delay, Event::Trap { node: id, pid });
                }
                Effect::PmiSent { rank, bytes } => {
                    let cut = world.rng.length(0, bytes.len());
                    for part in [&bytes[..cut], &bytes[cut..]] {
                        let event = Event::PmiToDaemon {
                            node: id,
                            rank,
                            bytes: part.to_vec(),
                        };
                        world.after(world.latency.pmi, event);
                    }
                }
                Effect::PmiClosed { rank } => {
                    world.after(world.latency.pmi, Event::PmiClosed { node: id, rank })
                }
                Effect::Read { pipe, bytes } => {
                    if let Some(End::Stdin(rank)) = self.ends.get(&pipe)
                        && let Some(wrong) = world.ledger.on_input_read(*rank, &bytes)
                    {
                        world.fault(wrong);
                    }
                }
                Effect::ReadEnd { pipe } => {
                    // What a rank has left behind reads the end when its rank has exited.
                    if let Some(End::Stdin(rank)) = self.ends.get(&pipe)
                        && self
                            .pids
                            .get(rank)
                            .is_some_and(|pid| self.kernel.is_alive(*pid))
                        && let Some(wrong) = world.ledger.on_input_end(*rank)
                    {
                        world.fault(wrong);
                    }
                }
                Effect::Fault(what) => world.fault(what),
            }
        }
    }

    fn watch(&mut self, world: &mut World, rank: Rank, stream: Stream) {
        let Some(port) = self.ports.get_mut(&(rank, stream)) else {
            return;
        };
        if port.open && port.reading && !port.scheduled {
            port.scheduled = true;
            let delay = world.delay(world.latency.io_max);
            world.after(
                delay,
                Event::Readable {
                    node: self.id,
                    rank,
                    stream,
                },
            );
        }
    }

    fn read(&mut self, world: &mut World, rank: Rank, stream: Stream) {
        let Some(port) = self.ports.get_mut(&(rank, stream)) else {
            return;
        };
        port.scheduled = false;
        if !port.open || !port.reading {
            return;
        }
        let pipe = port.pipe;
        let max = if world.rng.chance(60) {
            READ_MAX
        } else {
            world.rng.length(PIPE_ROOM, READ_MAX)
        };
        let proc = Self::proc(rank);
        match self.kernel.take(world.now, pipe, max) {
            Taken::Bytes(bytes) => {
                if let Some(tape) = world.ledger.tapes.get_mut(&(rank, stream)) {
                    tape.on_read(world.now, bytes.len());
                }
                self.tell(
                    world,
                    Input::Output {
                        proc,
                        stream,
                        bytes,
                    },
                );
                let more = self
                    .kernel
                    .pipe(pipe, |pipe| !pipe.is_empty() || pipe.writers == 0);
                if more == Some(true) {
                    self.watch(world, rank, stream);
                }
            }
            Taken::Nothing => {}
            Taken::End => {
                self.close_port(world, rank, stream, TapeEnd::Whole);
                self.tell(world, Input::OutputEnded { proc, stream });
            }
        }
    }

    fn close_port(&mut self, world: &mut World, rank: Rank, stream: Stream, end: TapeEnd) {
        let Some(port) = self.ports.get_mut(&(rank, stream)).filter(|port| port.open) else {
            return;
        };
        port.open = false;
        self.kernel.close_reader(world.now, port.pipe);
        if let Some(tape) = world.ledger.tapes.get_mut(&(rank, stream)) {
            tape.end = end;
        }
    }

    fn watch_stdin(&mut self, world: &mut World, rank: Rank) {
        let Some(feed) = self.feeds.get_mut(&rank) else {
            return;
        };
        if feed.writing.is_some() && !feed.scheduled {
            feed.scheduled = true;
            let delay = world.delay(world.latency.io_max);
            world.after(
                delay,
                Event::FeedStdin {
                    node: self.id,
                    rank,
                },
            );
        }
    }

    fn feed(&mut self, world: &mut World, rank: Rank) {
        let Some(feed) = self.feeds.get_mut(&rank) else {
            return;
        };
        feed.scheduled = false;
        let Some(mut bytes) = feed.writing.take() else {
            return;
        };
        let proc = Self::proc(rank);
        match self.kernel.put(world.now, feed.pipe, &mut bytes) {
            Some(put) => {
                feed.written += put as u64;
                if bytes.is_empty() {
                    self.tell(world, Input::StdinWritten { proc });
                } else {
                    feed.writing = Some(bytes);
                    self.absorb(world);
                }
            }
            None => {
                self.close_feed(world, rank);
                self.tell(world, Input::StdinBroken { proc });
            }
        }
    }

    fn close_feed(&mut self, world: &mut World, rank: Rank) {
        if let Some(feed) = self.feeds.remove(&rank) {
            self.kernel.close_writer(world.now, feed.pipe);
        }
    }

    fn reap(&mut self, world: &mut World, pid: Pid) {
        let rank = self.rank_of(pid);
        self.kernel.reap(pid);
        match rank {
            Some(rank) => {
                self.pids.remove(&rank);
                let Some(status) = world.ledger.statuses.get(&rank).copied() else {
                    return;
                };
                let id = self.id;
                world.note(|| format!("d{id}"), || format!("rank {rank} {status}"));
                self.tell(
                    world,
                    Input::Exited {
                        proc: Self::proc(rank),
                        status,
                    },
                );
            }
            None => self.tell(world, Input::StrayExited),
        }
    }

    /// What may be under way to the front before reading must have stopped: one read for each stream, and what waits for
    /// the ends of lines.
    fn window_bound(&self) -> u64 {
        let each = LINE_MAX as u64 + 1_024;
        OUTPUT_WINDOW + READ_MAX as u64 + each * self.ranks.len() as u64
    }

    /// A signal for a rank: checks that it is the time for it.
    fn check_signal(&self, world: &mut World, rank: Rank, signal: Signal) {
        if signal != Signal::KILL || self.ending.killed {
            return;
        }
        world.require(self.ending.due.is_some_and(|due| due <= world.now), || {
            format!("rank {rank} is killed before its grace is over")
        });
        let deaf = self
            .pids
            .get(&rank)
            .is_none_or(|pid| !self.kernel.is_alive(*pid) || self.kernel.is_stubborn(*pid));
        // Nobody asks a rank that is born after the grace.
        let deaf = deaf || self.born.get(&rank) == Some(&world.now);
        world.require(deaf, || format!("rank {rank} would have ended by SIGTERM"));
    }
}
