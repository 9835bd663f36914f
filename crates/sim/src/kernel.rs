//! The fake kernel of one node: processes, pipes, signals, process groups, tracing and the reparenting of orphans.
//!
//! The kernel never acts by itself. Every call may queue [`Effect`]s; the node takes them and schedules events for them.
//!
//! | state of the process | fatal signal other than KILL | STOP | CONT | KILL |
//! |---|---|---|---|---|
//! | running or waiting | the process ends, unless it ignores the signal | it stops | no effect | it ends |
//! | stopped | pending until CONT | no effect | pending signals are delivered; if it survives them, it runs | it ends |
//! | traced, at its exec trap | pending until it is detached and gets CONT | discarded | discarded | it ends |
//! | asleep in the kernel | pending until it wakes | pending until it wakes | pending until it wakes | pending until it wakes |

mod client;
mod pipe;
mod process;

use std::{collections::BTreeMap, ffi::OsString};

use base::{ExitStatus, JobId, ProcId, Signal, Time};
use bytes::Bytes;
use dvm::{proto::Stream, spec::HoldAt};
use pmix::pmi;

use self::process::Process;
pub(crate) use self::{
    client::{Ask, ClientId, GARBAGE, News, OWNER, Together},
    pipe::{Pipe, PipeId, Taken},
};
use crate::script::Op;

pub(crate) type Pid = i32;

/// The event that a process waits for. `Ready` is a process that waits for none: it runs, is stopped or is dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Run {
    Ready,
    Sleeping(Time),
    Writing(PipeId),
    Reading(PipeId),
    Pmi,
    Pmix,
}

/// What a process does after an operation of its script.
enum Next {
    Go,
    /// Wait, and perform this operation when woken.
    Wait(Run, Op),
    /// Continue immediately with this operation.
    Again(Op),
    Over(ExitStatus),
}

/// Pid of the daemon, which is the parent of all ranks and, as subreaper, of all orphans.
const DAEMON: Pid = 1;

/// A consequence of a kernel call, for the node to handle.
#[derive(Debug)]
pub(crate) enum Effect {
    /// The node must call [`Kernel::step`] with this token at time `at`.
    Step {
        pid: Pid,
        token: u64,
        at: Time,
    },
    /// A rank (`by_rank`) or one of its descendants wrote these bytes to a pipe.
    Wrote {
        pipe: PipeId,
        bytes: Bytes,
        by_rank: bool,
    },
    /// A read from the pipe will not block: the pipe has bytes or is at end of file.
    Readable(PipeId),
    /// A write to the pipe will not block: the pipe has room or no reader.
    Room(PipeId),
    /// A child of the daemon has ended and is a zombie until it is reaped.
    Dead {
        pid: Pid,
        status: ExitStatus,
    },
    /// A traced rank has stopped at its first instruction.
    Trapped {
        pid: Pid,
    },
    PmiSent {
        proc: ProcId,
        bytes: Vec<u8>,
    },
    PmiClosed {
        proc: ProcId,
    },
    /// A process of user `uid` connects to the PMIx server at this port.
    ClientOpened {
        id: ClientId,
        port: u16,
        uid: u32,
    },
    ClientSent {
        id: ClientId,
        bytes: Vec<u8>,
    },
    /// The PMIx connection is closed: its client closed it, or the last process that held it has ended.
    ClientClosed {
        id: ClientId,
    },
    /// A process has made a PMIx request, received an answer or event, or left its server.
    Told {
        pid: Pid,
        news: News,
    },
    /// A process read these bytes from its stdin.
    Read {
        pipe: PipeId,
        bytes: Bytes,
    },
    /// A process read end of file from its stdin.
    ReadEnd {
        pipe: PipeId,
    },
    /// A failure that a correct daemon never causes. It ends the run.
    Fault(String),
}

/// Open descriptors of a process. `None` is a descriptor that is closed, or open on something other than a simulated pipe or
/// connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Descriptors {
    pub(crate) stdin: Option<PipeId>,
    pub(crate) stdout: Option<PipeId>,
    pub(crate) stderr: Option<PipeId>,
    pub(crate) pmi: Option<ProcId>,
    pub(crate) client: Option<ClientId>,
}

impl Descriptors {
    pub(crate) const fn output(&self, stream: Stream) -> Option<PipeId> {
        match stream {
            Stream::Stdout => self.stdout,
            Stream::Stderr => self.stderr,
        }
    }
}

/// The state of the kernel of one node.
#[derive(Debug)]
pub(crate) struct Kernel {
    procs: BTreeMap<Pid, Process>,
    pipes: BTreeMap<PipeId, Pipe>,
    /// Number of processes that hold the PMI connection of each rank open.
    pmi: BTreeMap<ProcId, u32>,
    /// Number of processes that hold each PMIx connection open.
    clients: BTreeMap<ClientId, u32>,
    next_client: u64,
    next_pid: Pid,
    next_pipe: u32,
    effects: Vec<Effect>,
}

impl Kernel {
    pub(crate) const fn new(first_pid: Pid) -> Self {
        Self {
            procs: BTreeMap::new(),
            pipes: BTreeMap::new(),
            pmi: BTreeMap::new(),
            clients: BTreeMap::new(),
            next_client: 0,
            next_pid: first_pid,
            next_pipe: 0,
            effects: Vec::new(),
        }
    }

    /// Removes and returns the effects since the last call of this function.
    pub(crate) fn effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// Starts a rank as a child of the daemon, in its own process group, and returns its pid. With [`HoldAt::Exec`] the rank is
    /// traced and stops at its first instruction.
    pub(crate) fn spawn(
        &mut self,
        now: Time,
        job: JobId,
        fds: Descriptors,
        ops: Vec<Op>,
        env: BTreeMap<String, OsString>,
        hold: HoldAt,
    ) -> Pid {
        let pid = self.fork(DAEMON, job, None, fds, ops);
        let Some(proc) = self.procs.get_mut(&pid) else {
            return pid;
        };
        proc.is_rank = true;
        proc.env = env;
        match hold {
            // No scenario holds a job at `Init` or `App`.
            HoldAt::Nowhere | HoldAt::Init | HoldAt::App => self.schedule(pid, now),
            HoldAt::Exec => {
                proc.traced = true;
                self.effects.push(Effect::Trapped { pid });
            }
        }
        pid
    }

    fn fork(
        &mut self,
        parent: Pid,
        job: JobId,
        group: Option<Pid>,
        fds: Descriptors,
        ops: Vec<Op>,
    ) -> Pid {
        let pid = self.next_pid;
        self.next_pid += 1;
        for pipe in [fds.stdout, fds.stderr].into_iter().flatten() {
            self.pipe(pipe, |pipe| pipe.writers += 1);
        }
        if let Some(pipe) = fds.stdin {
            self.pipe(pipe, |pipe| pipe.readers += 1);
        }
        if let Some(proc) = fds.pmi {
            *self.pmi.entry(proc).or_default() += 1;
        }
        if let Some(id) = fds.client {
            *self.clients.entry(id).or_default() += 1;
        }
        self.procs.insert(
            pid,
            Process::new(parent, job, group.unwrap_or(pid), fds, ops),
        );
        pid
    }

    /// Creates a pipe that holds at most `room` bytes. Neither end is open yet.
    pub(crate) fn make_pipe(&mut self, room: usize) -> PipeId {
        let id = PipeId(self.next_pipe);
        self.next_pipe += 1;
        self.pipes.insert(id, Pipe::new(room));
        id
    }

    pub(crate) fn pipe<T>(&mut self, id: PipeId, act: impl FnOnce(&mut Pipe) -> T) -> Option<T> {
        self.pipes.get_mut(&id).map(act)
    }

    /// Reads at most `max` bytes from a pipe for the daemon, and wakes the processes that wait to write to it.
    pub(crate) fn take(&mut self, now: Time, id: PipeId, max: usize) -> Taken {
        let taken = self.pipe(id, |pipe| pipe.take(max)).unwrap_or(Taken::End);
        if matches!(taken, Taken::Bytes(_)) {
            self.wake(now, Run::Writing(id));
        }
        taken
    }

    /// Writes to a pipe for the daemon, removes the written bytes from `bytes` and returns their number. `None` if the pipe has
    /// no reader.
    pub(crate) fn put(&mut self, now: Time, id: PipeId, bytes: &mut Bytes) -> Option<usize> {
        let put = self.pipe(id, |pipe| pipe.put(bytes))??;
        self.wake(now, Run::Reading(id));
        Some(put)
    }

    /// Closes one write end of a pipe.
    pub(crate) fn close_writer(&mut self, now: Time, id: PipeId) {
        let last = self.pipe(id, |pipe| {
            pipe.writers = pipe.writers.saturating_sub(1);
            pipe.writers == 0
        });
        if last == Some(true) {
            self.effects.push(Effect::Readable(id));
            self.wake(now, Run::Reading(id));
        }
    }

    pub(crate) fn close_reader(&mut self, now: Time, id: PipeId) {
        let last = self.pipe(id, |pipe| {
            pipe.readers = pipe.readers.saturating_sub(1);
            pipe.readers == 0
        });
        if last == Some(true) {
            self.effects.push(Effect::Room(id));
            self.wake(now, Run::Writing(id));
        }
    }

    /// Schedules an immediate step of all processes that wait for `run`.
    fn wake(&mut self, now: Time, run: Run) {
        let waiting: Vec<Pid> = self
            .procs
            .iter()
            .filter(|(_, proc)| proc.run == run)
            .map(|(pid, _)| *pid)
            .collect();
        for pid in waiting {
            self.schedule(pid, now);
        }
    }

    fn schedule(&mut self, pid: Pid, at: Time) {
        if let Some(proc) = self.procs.get_mut(&pid) {
            proc.token += 1;
            self.effects.push(Effect::Step {
                pid,
                token: proc.token,
                at,
            });
        }
    }

    /// Returns the live processes of a job that are not ranks.
    pub(crate) fn strays(&self, job: JobId) -> Vec<Pid> {
        let strays = self
            .procs
            .iter()
            .filter(|(_, proc)| proc.job == job && !proc.is_rank && proc.zombie.is_none());
        strays.map(|(pid, _)| *pid).collect()
    }

    /// Returns the pids of all live processes, with their jobs.
    pub(crate) fn living(&self) -> impl Iterator<Item = (Pid, JobId)> {
        let living = self.procs.iter();
        let living = living.filter(|(_, proc)| proc.zombie.is_none());
        living.map(|(pid, proc)| (*pid, proc.job))
    }

    pub(crate) fn is_alive(&self, pid: Pid) -> bool {
        self.procs
            .get(&pid)
            .is_some_and(|proc| proc.zombie.is_none())
    }

    /// Returns true if a process is stopped by a signal or by [`Self::leave_stopped`], and is not traced.
    pub(crate) fn is_stopped(&self, pid: Pid) -> bool {
        self.procs
            .get(&pid)
            .is_some_and(|proc| proc.stopped && !proc.traced)
    }

    /// Returns true if SIGTERM cannot end a process now: the process ignores it, is traced, or is in an uninterruptible sleep.
    pub(crate) fn is_stubborn(&self, pid: Pid) -> bool {
        self.procs
            .get(&pid)
            .is_some_and(|proc| proc.ignores_term || proc.traced || proc.in_kernel_until.is_some())
    }

    /// Returns the zombies: dead children that the daemon has not reaped.
    pub(crate) fn zombies(&self) -> Vec<Pid> {
        let dead = self.procs.iter().filter(|(_, proc)| proc.zombie.is_some());
        dead.map(|(pid, _)| *pid).collect()
    }

    /// Reaps a child of the daemon.
    pub(crate) fn reap(&mut self, pid: Pid) {
        self.procs.remove(&pid);
    }

    /// Removes all processes and all queued effects, as a power failure does.
    pub(crate) fn power_off(&mut self) {
        self.procs.clear();
        self.effects.clear();
    }

    /// Detaches from a traced process and leaves it stopped, as a detach with SIGSTOP does.
    pub(crate) fn leave_stopped(&mut self, pid: Pid) {
        if let Some(proc) = self.procs.get_mut(&pid)
            && proc.traced
        {
            proc.traced = false;
            proc.stopped = true;
        }
    }

    pub(crate) fn signal_group(&mut self, now: Time, group: Pid, signal: Signal) {
        let members = self
            .procs
            .iter()
            .filter(|(_, proc)| proc.group == group && proc.zombie.is_none());
        for pid in members.map(|(pid, _)| *pid).collect::<Vec<_>>() {
            self.signal(now, pid, signal);
        }
    }

    pub(crate) fn signal(&mut self, now: Time, pid: Pid, signal: Signal) {
        let Some(proc) = self
            .procs
            .get_mut(&pid)
            .filter(|proc| proc.zombie.is_none())
        else {
            return;
        };
        if proc.in_kernel_until.is_some() {
            proc.pending.push(signal);
            return;
        }
        match signal {
            Signal::KILL => self.die(now, pid, ended_by(signal)),
            Signal::STOP | Signal::TSTP | Signal::TTIN | Signal::TTOU => {
                if !proc.traced {
                    proc.stopped = true;
                }
            }
            Signal::CONT => {
                if !proc.traced && proc.stopped {
                    proc.stopped = false;
                    for waiting in std::mem::take(&mut proc.pending) {
                        self.signal(now, pid, waiting);
                    }
                    self.resume(now, pid);
                }
            }
            Signal::WINCH | Signal::CHLD => {}
            _ if proc.traced || proc.stopped => proc.pending.push(signal),
            Signal::TERM | Signal::INT | Signal::HUP if proc.ignores_term => {}
            _ => self.die(now, pid, ended_by(signal)),
        }
    }

    fn resume(&mut self, now: Time, pid: Pid) {
        let Some(proc) = self.procs.get(&pid).filter(|proc| proc.zombie.is_none()) else {
            return;
        };
        let at = match proc.run {
            Run::Sleeping(until) => until.max(now),
            Run::Ready | Run::Writing(_) | Run::Reading(_) | Run::Pmi | Run::Pmix => now,
        };
        self.schedule(pid, at);
    }

    fn die(&mut self, now: Time, pid: Pid, status: ExitStatus) {
        let Some(proc) = self.procs.get_mut(&pid) else {
            return;
        };
        let (fds, parent) = (std::mem::take(&mut proc.fds), proc.parent);
        proc.zombie = Some(status);
        proc.run = Run::Ready;
        for stream in Stream::BOTH {
            self.drop_output(now, fds.output(stream));
        }
        if let Some(pipe) = fds.stdin {
            self.close_reader(now, pipe);
        }
        self.drop_pmi(fds.pmi);
        self.drop_client(fds.client);
        for child in self.procs.values_mut().filter(|child| child.parent == pid) {
            child.parent = DAEMON;
        }
        if parent == DAEMON {
            self.effects.push(Effect::Dead { pid, status });
        } else {
            self.procs.remove(&pid);
        }
    }

    fn drop_output(&mut self, now: Time, pipe: Option<PipeId>) {
        if let Some(pipe) = pipe {
            self.close_writer(now, pipe);
        }
    }

    fn drop_pmi(&mut self, proc: Option<ProcId>) {
        let Some(proc) = proc else { return };
        let Some(holders) = self.pmi.get_mut(&proc) else {
            return;
        };
        *holders = holders.saturating_sub(1);
        if *holders == 0 {
            self.pmi.remove(&proc);
            self.effects.push(Effect::PmiClosed { proc });
        }
    }

    /// Delivers bytes to a rank over its PMI connection.
    pub(crate) fn answer_pmi(&mut self, now: Time, pid: Pid, bytes: &[u8]) {
        let Some(proc) = self
            .procs
            .get_mut(&pid)
            .filter(|proc| proc.zombie.is_none())
        else {
            return;
        };
        proc.pmi_inbox.extend_from_slice(bytes);
        if proc.run == Run::Pmi {
            self.schedule(pid, now);
        }
    }

    /// Closes the PMI connection of a rank from the daemon's side. If the program waits for an answer, it exits with
    /// `FENCE_REFUSED`.
    pub(crate) fn hang_up_pmi(&mut self, now: Time, pid: Pid) {
        let Some(proc) = self
            .procs
            .get_mut(&pid)
            .filter(|proc| proc.zombie.is_none())
        else {
            return;
        };
        if proc.fds.pmi.take().is_some() && proc.run == Run::Pmi {
            proc.ops.clear();
            proc.ops.push_back(Op::Exit(crate::script::FENCE_REFUSED));
            self.schedule(pid, now);
        }
    }
}

const fn ended_by(signal: Signal) -> ExitStatus {
    ExitStatus::Signaled {
        signal,
        core_dumped: false,
    }
}

/// The client of PMI-1 and PMI-2 that ships in `pmix`.
type PmiClient = pmi::Client;
