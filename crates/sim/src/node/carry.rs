//! Carrying out what a daemon asks for.

use base::{Rank, Signal};
use dvm::{
    Input, Output, SpawnOrder, StreamPlan,
    life::LEAK_DELAY,
    proto::{Drained, Note, StartFailure, Stream, ToController},
    stdio,
};

use super::{End, Feed, Node, PIPE_ROOM, Port};
use crate::{
    kernel::Descriptors,
    ledger::{Tape, TapeEnd},
    world::{Carried, Event, World},
};

impl Node {
    pub(super) fn carry_out(&mut self, world: &mut World, output: Output) {
        let (id, now) = (self.id, world.now);
        world.note(|| format!("d{id}"), || format!("-> {output:?}"));
        match output {
            Output::Send(message) => self.send(world, message),
            Output::Prepare { .. } => {}
            Output::Spawn(order) => {
                let delay = world.delay(world.latency.spawn_max);
                world.after(delay, Event::Spawn { node: id, order });
            }
            Output::Signal { proc, signal } => {
                self.check_signal(world, proc.rank, signal);
                if let Some(pid) = self.pids.get(&proc.rank) {
                    self.kernel.signal_group(now, *pid, signal);
                }
            }
            Output::Continue { proc } => {
                if let Some(pid) = self.pids.get(&proc.rank) {
                    self.kernel.signal(now, *pid, Signal::CONT);
                }
            }
            Output::Pause { proc, stream } => {
                if let Some(port) = self.ports.get_mut(&(proc.rank, stream)) {
                    port.reading = false;
                    if let Some(tape) = world.ledger.tapes.get_mut(&(proc.rank, stream)) {
                        tape.on_paused();
                    }
                }
            }
            Output::Resume { proc, stream } => self.resume(world, proc.rank, stream),
            Output::CloseOutput { proc, stream } => {
                let died = self.died.get(&proc.rank).copied();
                world.require(died.is_some_and(|at| now.since(at) >= LEAK_DELAY), || {
                    format!("the output of rank {} is closed too early", proc.rank)
                });
                self.close_port(world, proc.rank, stream, TapeEnd::Closed);
            }
            Output::WriteStdin { proc, bytes } => {
                let busy = self
                    .feeds
                    .get_mut(&proc.rank)
                    .and_then(|feed| feed.writing.replace(bytes));
                world.require(busy.is_none(), || {
                    format!("rank {} gets two writes at once", proc.rank)
                });
                self.watch_stdin(world, proc.rank);
            }
            Output::CloseStdin { proc } => {
                self.readers.remove(&proc.rank);
                self.close_feed(world, proc.rank);
            }
            Output::PmiSend { proc, bytes } => {
                let event = Event::PmiToRank {
                    node: id,
                    rank: proc.rank,
                    bytes,
                };
                world.after(world.latency.pmi, event);
            }
            Output::PmiClose { proc } => {
                self.pmi_open.remove(&proc.rank);
                if let Some(pid) = self.pids.get(&proc.rank) {
                    self.kernel.hang_up_pmi(now, *pid);
                }
            }
            Output::Resize { .. } => {}
            Output::ClientSend { .. }
            | Output::ClientClose { .. }
            | Output::MakeDirectory { .. }
            | Output::RemoveFiles { .. } => {
                world.require(false, || "PMIx is not served here".to_owned());
            }
            Output::Sweep { job, signal } => {
                let left = self.kernel.strays();
                if signal == Some(Signal::KILL) {
                    let over = self.ending.due.is_some_and(|due| due <= now);
                    let allowed =
                        self.ending.killed || over || self.ending.strays_asked || left.is_empty();
                    world.require(allowed, || {
                        "what is left behind is killed before it was asked".to_owned()
                    });
                }
                self.ending.strays_asked |= signal == Some(Signal::TERM);
                for pid in signal.iter().flat_map(|_| &left) {
                    if let Some(signal) = signal {
                        self.kernel.signal(now, *pid, signal);
                    }
                    if signal == Some(Signal::TERM) {
                        self.kernel.signal(now, *pid, Signal::CONT);
                    }
                }
                let delay = world.delay(world.latency.io_max);
                world.after(
                    delay,
                    Event::Swept {
                        node: id,
                        job,
                        left,
                    },
                );
            }
            Output::Forget { .. } => self.forgot = true,
            Output::Log(what) => world.fault(format!("daemon {id} logs: {what}")),
        }
    }

    fn resume(&mut self, world: &mut World, rank: Rank, stream: Stream) {
        let Some(port) = self.ports.get_mut(&(rank, stream)) else {
            return;
        };
        port.reading = true;
        if let Some(tape) = world.ledger.tapes.get_mut(&(rank, stream)) {
            tape.on_resumed(world.now);
        }
        let pipe = port.pipe;
        let ready = self
            .kernel
            .pipe(pipe, |pipe| !pipe.is_empty() || pipe.writers == 0);
        if ready == Some(true) {
            self.watch(world, rank, stream);
        }
    }

    /// A message to the controller: checks that it is true.
    fn send(&mut self, world: &mut World, message: ToController) {
        let id = self.id;
        match &message {
            ToController::Output { chunk, .. } => {
                let slot = chunk.stream as usize;
                self.under_way[slot] += stdio::cost(chunk.bytes.len());
                let (under_way, bound) = (self.under_way[slot], self.window_bound());
                self.shut[slot] |= under_way >= stdio::OUTPUT_WINDOW;
                let rank = chunk.rank;
                world.require(self.alone || under_way <= bound, || {
                    format!(
                        "{under_way} bytes of output are under way from daemon {id}, {bound} may be"
                    )
                });
                world.require(!self.said_ended.contains(&rank), || {
                    format!("rank {rank} writes after its end was told")
                });
                let wrong = world
                    .ledger
                    .tapes
                    .get_mut(&(rank, chunk.stream))
                    .and_then(|tape| tape.on_sent(world.now, chunk));
                if let Some(wrong) = wrong {
                    world.fault(format!("{:?} of rank {rank}: {wrong}", chunk.stream));
                }
            }
            ToController::Ended {
                rank,
                status,
                drained,
                ..
            } => {
                let first = self.said_ended.insert(*rank);
                world.require(first, || format!("rank {rank} ends twice"));
                let real = world.ledger.statuses.get(rank).copied();
                world.require(
                    !self.pids.contains_key(rank) && real == Some(*status),
                    || format!("rank {rank} is said to have {status}, really: {real:?}"),
                );
                let mut closed = false;
                for stream in Stream::BOTH {
                    let Some(tape) = world.ledger.tapes.get(&(*rank, stream)) else {
                        continue;
                    };
                    closed |= tape.end == TapeEnd::Closed;
                    let (open, all_sent) = (tape.end == TapeEnd::Open, tape.all_sent());
                    world.require(!open, || {
                        format!("rank {rank} ends while its {stream:?} is open")
                    });
                    world.require(self.alone || all_sent, || {
                        format!("rank {rank} ends before all of its {stream:?} was sent")
                    });
                }
                world.require(closed == (*drained == Drained::Leaky), || {
                    format!("rank {rank} is {drained:?}")
                });
            }
            ToController::Held { ranks, .. } => {
                for rank in ranks.iter() {
                    let still = self.pids.get(&rank).is_some_and(|pid| {
                        self.kernel.is_stopped(*pid) || !self.kernel.is_alive(*pid)
                    });
                    world.require(still, || {
                        format!("rank {rank} is said to be held and is not")
                    });
                }
            }
            ToController::Note {
                note: Note::Stuck { pids, .. },
                ..
            } => {
                for pid in pids {
                    let stuck = !self.kernel.is_alive(*pid) || self.kernel.is_stubborn(*pid);
                    world.require(stuck, || {
                        format!("process {pid} is said to be stuck and is not")
                    });
                    world.ledger.stuck.insert((id, *pid));
                }
            }
            ToController::Clean { .. } => {
                let survivors = self.survivors(world);
                world.require(survivors.is_empty(), || {
                    format!("daemon {id} is clean, alive are {survivors:?}")
                });
            }
            _ => {}
        }
        if !self.alone {
            world.send_up(id, Carried::Message(message));
        }
    }

    pub(super) fn spawn(&mut self, world: &mut World, order: &SpawnOrder) {
        let (rank, now) = (order.proc.rank, world.now);
        world.ledger.busy(now);
        let again =
            world.ledger.spawned.contains_key(&rank) || world.ledger.failed.contains_key(&rank);
        world.require(!again, || format!("rank {rank} is started twice"));
        if let Some(failure) = self.unstartable.get(&rank).cloned() {
            return self.refuse(world, rank, failure);
        }
        let stdin = self.open_stdin(rank, &order.stdin);
        let stdout = self.open_output(world, rank, Stream::Stdout, &order.stdout);
        let stderr = match order.stderr {
            StreamPlan::WithStdout => stdout,
            _ => self.open_output(world, rank, Stream::Stderr, &order.stderr),
        };
        let fds = Descriptors {
            stdin,
            stdout,
            stderr,
            pmi: Some(rank),
        };
        let ops = self.scripts.remove(&rank).unwrap_or_default();
        let pid = self.kernel.spawn(now, fds, ops, order.hold);
        self.pids.insert(rank, pid);
        self.born.insert(rank, now);
        self.pmi_open.insert(rank);
        world.ledger.spawned.insert(rank, pid);
        let id = self.id;
        world.note(
            || format!("d{id}"),
            || format!("rank {rank} is process {pid}"),
        );
        self.tell(
            world,
            Input::Spawned {
                proc: order.proc,
                pid,
                executable: "/bin/simulated".into(),
            },
        );
    }

    fn refuse(&mut self, world: &mut World, rank: Rank, failure: StartFailure) {
        world.ledger.failed.insert(rank, failure.clone());
        self.readers.remove(&rank);
        self.tell(
            world,
            Input::SpawnFailed {
                proc: Self::proc(rank),
                failure,
            },
        );
    }

    fn open_stdin(&mut self, rank: Rank, plan: &StreamPlan) -> Option<crate::kernel::PipeId> {
        if !matches!(plan, StreamPlan::Pipe | StreamPlan::Pty) {
            return None;
        }
        let pipe = self.kernel.make_pipe(PIPE_ROOM);
        self.kernel.pipe(pipe, |pipe| pipe.writers = 1);
        self.ends.insert(pipe, End::Stdin(rank));
        // A terminal is there for its window size, too: without input of ours nobody ever types on it.
        if self.readers.contains(&rank) {
            self.feeds.insert(
                rank,
                Feed {
                    pipe,
                    writing: None,
                    scheduled: false,
                    written: 0,
                },
            );
        }
        Some(pipe)
    }

    fn open_output(
        &mut self,
        world: &mut World,
        rank: Rank,
        stream: Stream,
        plan: &StreamPlan,
    ) -> Option<crate::kernel::PipeId> {
        if !matches!(plan, StreamPlan::Pipe | StreamPlan::Pty) {
            return None;
        }
        let pipe = self.kernel.make_pipe(PIPE_ROOM);
        self.kernel.pipe(pipe, |pipe| pipe.readers = 1);
        self.ends.insert(pipe, End::Output(rank, stream));
        self.ports.insert(
            (rank, stream),
            Port {
                pipe,
                reading: true,
                scheduled: false,
                open: true,
            },
        );
        world.ledger.tapes.insert((rank, stream), Tape::new());
        Some(pipe)
    }
}
