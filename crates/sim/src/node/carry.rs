//! Carries out the outputs of a daemon, and checks them.

use base::{ExitStatus, JobId, ProcId, Signal};
use dvm::{
    Input, Output, SpawnOrder, StreamPlan,
    life::LEAK_DELAY,
    preload::FileAct,
    proto::{Drained, EndClass, NotEnforced, Note, StartFailure, Stream, ToController, Unenforced},
    stdio,
};

use super::{End, Feed, Node, PIPE_ROOM, Port, proc};
use crate::{
    kernel::Descriptors,
    ledger::{Tape, TapeEnd},
    names::called,
    world::{Carried, Event, World},
};

impl Node {
    #[expect(clippy::too_many_lines, reason = "one arm for each output")]
    pub(super) fn carry_out(&mut self, world: &mut World, output: Output) {
        let (id, now) = (self.id, world.now);
        world.note(|| format!("d{id}"), || format!("-> {output:?}"));
        match output {
            Output::Send(message) => self.send(world, message),
            Output::Prepare {
                job, apps, limits, ..
            } => {
                let limits = limits.wanted();
                if !limits.is_empty() {
                    // The simulated kernel has no cgroups.
                    let why = NotEnforced::NoCgroups;
                    let unenforced = vec![Unenforced { why, limits }];
                    self.tell(world, Input::Unenforced { job, unenforced });
                }
                let first = apps.first();
                let child = first.and_then(|app| app.program.to_str()?.parse().ok());
                self.children.extend(child.map(|child| (job, child)));
            }
            Output::Spawn(order) => {
                let job = order.proc.job;
                let missing = self
                    .needs_files
                    .contains(&job)
                    .then(|| self.disk.missing(job));
                if let Some(missing) = missing.flatten() {
                    world.fault(format!("{} starts, and {missing}", called(order.proc)));
                }
                let delay = world.delay(world.latency.spawn_max);
                world.after(delay, Event::Spawn { node: id, order });
            }
            Output::Signal { proc, signal } => {
                self.check_signal(world, proc, signal);
                if let Some(pid) = self.pids.get(&proc) {
                    self.kernel.signal_group(now, *pid, signal);
                }
            }
            Output::Continue { proc } => {
                let ending = self.ending(proc.job);
                let is_ending = ending.due.is_some() || ending.killed;
                let wrong = world.ledger.on_continued(now, proc);
                if let Some(wrong) = wrong.filter(|_| !is_ending) {
                    world.fault(format!("{} goes on, and {wrong}", called(proc)));
                }
                if let Some(pid) = self.pids.get(&proc) {
                    self.kernel.signal(now, *pid, Signal::CONT);
                }
            }
            Output::Pause { proc, stream } => {
                if let Some(port) = self.ports.get_mut(&(proc, stream)) {
                    port.reading = false;
                    if let Some(tape) = world.ledger.tapes.get_mut(&(proc, stream)) {
                        tape.on_paused();
                    }
                }
            }
            Output::Resume { proc, stream } => self.resume(world, proc, stream),
            Output::CloseOutput { proc, stream } => {
                let died = self.died.get(&proc).copied();
                world.require(died.is_some_and(|at| now.since(at) >= LEAK_DELAY), || {
                    format!("the output of {} is closed too early", called(proc))
                });
                self.close_port(world, proc, stream, TapeEnd::Closed);
            }
            Output::WriteStdin { proc, bytes } => {
                let busy = self
                    .feeds
                    .get_mut(&proc)
                    .and_then(|feed| feed.writing.replace(bytes));
                world.require(busy.is_none(), || {
                    format!("{} gets two writes at once", called(proc))
                });
                self.watch_stdin(world, proc);
            }
            Output::CloseStdin { proc } => {
                self.readers.remove(&proc);
                self.close_feed(world, proc);
            }
            Output::PmiSend { proc, bytes } => {
                let event = Event::PmiToRank {
                    node: id,
                    proc,
                    bytes,
                };
                world.after(world.latency.pmi, event);
            }
            Output::PmiClose { proc } => {
                self.pmi_open.remove(&proc);
                if let Some(pid) = self.pids.get(&proc) {
                    self.kernel.hang_up_pmi(now, *pid);
                }
            }
            Output::Resize { .. } => {}
            Output::Measure { job, number } => {
                let procs = Vec::new();
                let measured = Input::Measured {
                    job,
                    number,
                    procs,
                    counted: None,
                };
                self.tell(world, measured);
            }
            Output::MeasureDaemon { number } => {
                let memory = None;
                self.tell(world, Input::DaemonMeasured { number, memory });
            }
            Output::ClientSend { conn, bytes } => self.send_client(world, conn, bytes),
            Output::ClientClose { conn } => self.close_client(world, conn),
            // The simulator has no files.
            Output::MakeFile { .. } | Output::MakeDirectory { .. } | Output::RemoveFiles { .. } => {
            }
            Output::Files { job, act } => self.act_on_files(world, job, act),
            Output::Sweep { job, signal } => {
                let left = self.kernel.strays(job);
                let ending = self.ending(job);
                if signal == Some(Signal::KILL) {
                    let over = ending.due.is_some_and(|due| due <= now);
                    let allowed = ending.killed || over || ending.strays_asked || left.is_empty();
                    world.require(allowed, || {
                        "what is left behind is killed before it was asked".to_owned()
                    });
                }
                if let Some(share) = self.shares.get_mut(&job) {
                    share.ending.strays_asked |= signal == Some(Signal::TERM);
                }
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
            Output::Forget { job } => {
                self.shares.entry(job).or_default().forgot = true;
                world.ledger.forgotten.insert(job);
                world.ledger.known.on_forgot(now, id, job);
            }
            Output::Log(what) => world.fault(format!("daemon {id} logs: {what}")),
            Output::Syslog { .. } => world.fault("no scripted program logs".to_owned()),
        }
    }

    fn act_on_files(&mut self, world: &mut World, job: JobId, act: FileAct) {
        let (node, now) = (self.id, world.now);
        if act == FileAct::Remove {
            let survivors = self.survivors_of(world, job);
            world.require(survivors.is_empty(), || {
                format!("files are removed on node {node}, alive are {survivors:?}")
            });
        }
        world.ledger.busy(now);
        match self.disk.act(job, act) {
            Ok(None) => {}
            Ok(Some(result)) => {
                let delay = self.disk.pause + world.delay(world.latency.io_max);
                world.after(delay, Event::FilesActed { node, job, result });
            }
            Err(wrong) => world.fault(format!("on node {node}: {wrong}")),
        }
    }

    fn resume(&mut self, world: &mut World, proc: ProcId, stream: Stream) {
        let Some(port) = self.ports.get_mut(&(proc, stream)) else {
            return;
        };
        port.reading = true;
        if let Some(tape) = world.ledger.tapes.get_mut(&(proc, stream)) {
            tape.on_resumed(world.now);
        }
        let pipe = port.pipe;
        let ready = self
            .kernel
            .pipe(pipe, |pipe| !pipe.is_empty() || pipe.writers == 0);
        if ready == Some(true) {
            self.watch(world, proc, stream);
        }
    }

    /// Checks a message to the controller against what really happened, and sends it.
    fn send(&mut self, world: &mut World, message: ToController) {
        let id = self.id;
        self.check_refused(world, &message);
        match &message {
            ToController::Output { job, chunk } => {
                let slot = chunk.stream as usize;
                let share = self.shares.entry(*job).or_default();
                share.under_way[slot] += stdio::cost(chunk.bytes.len());
                let under_way = share.under_way[slot];
                share.shut[slot] |= under_way >= stdio::OUTPUT_WINDOW;
                let bound = self.window_bound(*job);
                let proc = proc(chunk.job, chunk.rank);
                world.require(self.alone || under_way <= bound, || {
                    format!(
                        "{under_way} bytes of output are under way from daemon {id}, {bound} may be"
                    )
                });
                world.require(!self.said_ended.contains(&proc), || {
                    format!("{} writes after its end was told", called(proc))
                });
                if world.ledger.has_door {
                    let now = world.now;
                    world
                        .ledger
                        .copies
                        .on_said(now, proc, chunk.stream, &chunk.bytes);
                }
                let wrong = world
                    .ledger
                    .tapes
                    .get_mut(&(proc, chunk.stream))
                    .and_then(|tape| tape.on_sent(world.now, chunk));
                if let Some(wrong) = wrong {
                    world.fault(format!("{:?} of {}: {wrong}", chunk.stream, called(proc)));
                }
            }
            ToController::Ended { job, classes } => {
                for EndClass {
                    status,
                    drained,
                    ranks,
                } in classes
                {
                    for rank in ranks.iter() {
                        self.check_ended(world, proc(*job, rank), *status, *drained);
                    }
                }
            }
            ToController::Held { job, ranks } => {
                for rank in ranks.iter() {
                    if world.ledger.waits_in_init(proc(*job, rank)) {
                        continue;
                    }
                    let still = self.pids.get(&proc(*job, rank)).is_some_and(|pid| {
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
            ToController::Unfinished { job, ranks } => {
                for proc in ranks.iter().map(|rank| proc(*job, rank)) {
                    let status = world.ledger.statuses.get(&proc);
                    let left = status.is_some_and(|status| status.is_success())
                        && !world.ledger.pmix.has_finalized(proc);
                    world.require(left, || {
                        format!("{} is said to have left before its end", called(proc))
                    });
                }
            }
            ToController::Clean { job, .. } => {
                let survivors = self.survivors_of(world, *job);
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

    /// Checks the reported end of a proc against what really happened.
    fn check_ended(
        &mut self,
        world: &mut World,
        proc: ProcId,
        status: ExitStatus,
        drained: Drained,
    ) {
        let name = called(proc);
        let first = self.said_ended.insert(proc);
        world.require(first, || format!("{name} ends twice"));
        let real = world.ledger.statuses.get(&proc).copied();
        world.require(
            !self.pids.contains_key(&proc) && real == Some(status),
            || format!("{name} is said to have {status}, really: {real:?}"),
        );
        let mut closed = false;
        for stream in Stream::BOTH {
            let Some(tape) = world.ledger.tapes.get(&(proc, stream)) else {
                continue;
            };
            closed |= tape.end == TapeEnd::Closed;
            let (open, all_sent) = (tape.end == TapeEnd::Open, tape.all_sent());
            world.require(!open, || {
                format!("{name} ends while its {stream:?} is open")
            });
            world.require(self.alone || all_sent, || {
                format!("{name} ends before all of its {stream:?} was sent")
            });
        }
        world.require(closed == (drained == Drained::Leaky), || {
            format!("{name} is {drained:?}")
        });
    }

    pub(super) fn spawn(&mut self, world: &mut World, order: &SpawnOrder) {
        let (proc, now) = (order.proc, world.now);
        world.ledger.busy(now);
        let again =
            world.ledger.spawned.contains_key(&proc) || world.ledger.failed.contains_key(&proc);
        world.require(!again, || format!("{} is started twice", called(proc)));
        let part = (self.children.get(&proc.job).copied(), proc.rank);
        if let Some(failure) = self.programs.unstartable.get(&part).cloned() {
            return self.refuse(world, proc, failure);
        }
        let stdin = self.open_stdin(proc, &order.stdin);
        let stdout = self.open_output(world, proc, Stream::Stdout, &order.stdout);
        let stderr = match order.stderr {
            StreamPlan::WithStdout => stdout,
            _ => self.open_output(world, proc, Stream::Stderr, &order.stderr),
        };
        let fds = Descriptors {
            stdin,
            stdout,
            stderr,
            pmi: Some(proc),
            client: None,
        };
        let ops = self.programs.scripts.remove(&part).unwrap_or_default();
        let env = order.env.iter().cloned().collect();
        let pid = self.kernel.spawn(now, proc.job, fds, ops, env, order.hold);
        self.pids.insert(proc, pid);
        self.born.insert(proc, now);
        self.pmi_open.insert(proc);
        world.ledger.spawned.insert(proc, pid);
        world.ledger.spawned_at.insert(proc, now);
        let id = self.id;
        world.note(
            || format!("d{id}"),
            || format!("{} is process {pid}", called(proc)),
        );
        self.tell(
            world,
            Input::Spawned {
                proc,
                pid,
                executable: "/bin/simulated".into(),
            },
        );
    }

    fn refuse(&mut self, world: &mut World, proc: ProcId, failure: StartFailure) {
        world.ledger.failed.insert(proc, failure.clone());
        self.readers.remove(&proc);
        self.tell(world, Input::SpawnFailed { proc, failure });
    }

    fn open_stdin(&mut self, proc: ProcId, plan: &StreamPlan) -> Option<crate::kernel::PipeId> {
        if !matches!(plan, StreamPlan::Pipe | StreamPlan::Pty) {
            return None;
        }
        let pipe = self.kernel.make_pipe(PIPE_ROOM);
        self.kernel.pipe(pipe, |pipe| pipe.writers = 1);
        self.ends.insert(pipe, End::Stdin(proc));
        // A rank may have a terminal only for its window size. If the daemon forwards no input, its reads block.
        if self.readers.contains(&proc) {
            self.feeds.insert(
                proc,
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
        proc: ProcId,
        stream: Stream,
        plan: &StreamPlan,
    ) -> Option<crate::kernel::PipeId> {
        if !matches!(plan, StreamPlan::Pipe | StreamPlan::Pty) {
            return None;
        }
        let pipe = self.kernel.make_pipe(PIPE_ROOM);
        self.kernel.pipe(pipe, |pipe| pipe.readers = 1);
        self.ends.insert(pipe, End::Output(proc, stream));
        self.ports.insert(
            (proc, stream),
            Port {
                pipe,
                reading: true,
                scheduled: false,
                open: true,
            },
        );
        world.ledger.tapes.insert((proc, stream), Tape::new());
        Some(pipe)
    }
}
