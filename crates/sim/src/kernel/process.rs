//! A simulated process, and the operations of its script.

use std::{
    collections::{BTreeMap, VecDeque},
    ffi::OsString,
};

use base::{ExitStatus, JobId, ProcId, Signal, Time};
use bytes::Bytes;
use dvm::proto::Stream;
use pmix::pmi::{Answer, Dialect, Group, Kind, Members, Reach, Request};

use super::{
    DAEMON, Descriptors, Effect, Kernel, Next, Pid, PmiClient, Run, Taken, client::Client, ended_by,
};
use crate::{
    names::{called, nspace},
    rng::Rng,
    script::{FENCE_REFUSED, Fork, Op, PmiOp},
};

/// Maximum number of bytes that a program passes to one read or write.
const SLICE: usize = 256 * 1024;

#[derive(Debug)]
pub(super) struct Process {
    pub(super) parent: Pid,
    /// Job of the rank that this process is, or descends from.
    pub(super) job: JobId,
    pub(super) group: Pid,
    pub(super) is_rank: bool,
    pub(super) fds: Descriptors,
    pub(super) ops: VecDeque<Op>,
    pub(super) run: Run,
    /// Number of the last step that was scheduled. A step event with a lower number is stale.
    pub(super) token: u64,
    pub(super) ignores_term: bool,
    pub(super) stopped: bool,
    pub(super) traced: bool,
    pub(super) in_kernel_until: Option<Time>,
    pub(super) pending: Vec<Signal>,
    pub(super) zombie: Option<ExitStatus>,
    pub(super) env: BTreeMap<String, OsString>,
    pmi: PmiClient,
    pub(super) client: Option<Box<Client>>,
    /// True while the current PMI or PMIx operation has sent its request and is not complete.
    pub(super) asked: bool,
    pub(super) pmi_inbox: Vec<u8>,
}

impl Process {
    pub(super) fn new(parent: Pid, job: JobId, group: Pid, fds: Descriptors, ops: Vec<Op>) -> Self {
        Self {
            parent,
            job,
            group,
            is_rank: false,
            fds,
            ops: ops.into(),
            run: Run::Ready,
            token: 0,
            ignores_term: false,
            stopped: false,
            traced: false,
            in_kernel_until: None,
            pending: Vec::new(),
            zombie: None,
            env: BTreeMap::new(),
            pmi: PmiClient::new(Dialect::One),
            client: None,
            asked: false,
            pmi_inbox: Vec::new(),
        }
    }
}

impl Kernel {
    /// Performs the next operation of a process's script. Does nothing if `token` is stale, or if the process is dead, stopped
    /// or traced. At the end of the script, the process exits with code 0.
    pub(crate) fn step(&mut self, now: Time, pid: Pid, token: u64, rng: &mut Rng) {
        let Some(proc) = self.procs.get_mut(&pid) else {
            return;
        };
        if proc.token != token || proc.zombie.is_some() {
            return;
        }
        if let Some(until) = proc.in_kernel_until.filter(|until| *until <= now) {
            proc.in_kernel_until = None;
            proc.run = Run::Sleeping(until);
            for waiting in std::mem::take(&mut proc.pending) {
                self.signal(now, pid, waiting);
            }
        }
        let Some(proc) = self.procs.get_mut(&pid) else {
            return;
        };
        if proc.stopped || proc.traced || proc.zombie.is_some() {
            return;
        }
        proc.run = Run::Ready;
        let op = proc.ops.pop_front();
        let next = match op {
            Some(op) => self.perform(now, pid, op, rng),
            None => Next::Over(ExitStatus::SUCCESS),
        };
        let Some(proc) = self.procs.get_mut(&pid) else {
            return;
        };
        match next {
            Next::Go => self.schedule(pid, now + rng.micros(0, 20)),
            Next::Again(op) => {
                proc.ops.push_front(op);
                self.schedule(pid, now + rng.micros(0, 5));
            }
            Next::Wait(run, op) => {
                proc.run = run;
                proc.ops.push_front(op);
            }
            Next::Over(status) => self.die(now, pid, status),
        }
    }

    fn perform(&mut self, now: Time, pid: Pid, op: Op, rng: &mut Rng) -> Next {
        let Some(proc) = self.procs.get_mut(&pid) else {
            return Next::Go;
        };
        match op {
            Op::Sleep(time) => {
                proc.run = Run::Sleeping(now + time);
                Next::Wait(proc.run, Op::Sleep(std::time::Duration::ZERO)).slept(
                    self,
                    pid,
                    now + time,
                    time.is_zero(),
                )
            }
            Op::Uninterruptible(time) => {
                proc.in_kernel_until = Some(now + time);
                let until = now + time;
                Next::Wait(Run::Sleeping(until), Op::Sleep(std::time::Duration::ZERO))
                    .slept(self, pid, until, false)
            }
            Op::Write(stream, bytes) => self.write(pid, stream, bytes),
            Op::Close(stream) => {
                let pipe = match stream {
                    Stream::Stdout => proc.fds.stdout.take(),
                    Stream::Stderr => proc.fds.stderr.take(),
                };
                self.drop_output(now, pipe);
                Next::Go
            }
            Op::CloseStdin => {
                if let Some(pipe) = proc.fds.stdin.take() {
                    self.close_reader(now, pipe);
                }
                Next::Go
            }
            Op::Read(0) => Next::Go,
            Op::Read(left) => self.read(pid, Some(left), rng),
            Op::ReadToEnd => self.read(pid, None, rng),
            Op::Fork(fork, ops) => {
                let (fds, job, group) = (proc.fds, proc.job, proc.group);
                let (parent, group) = match fork {
                    Fork::Plain => (pid, Some(group)),
                    Fork::Session => (pid, None),
                    Fork::Twice => (DAEMON, None),
                };
                let child = self.fork(parent, job, group, fds, ops);
                self.schedule(child, now + rng.micros(0, 50));
                Next::Go
            }
            Op::Stop => {
                proc.stopped = true;
                Next::Wait(Run::Ready, Op::Sleep(std::time::Duration::ZERO))
            }
            Op::IgnoreTerm => {
                proc.ignores_term = true;
                Next::Go
            }
            Op::Pmi(op) => self.pmi_step(pid, op),
            Op::Pmix(op) => self.pmix_step(now, pid, op, rng),
            Op::Exit(code) => Next::Over(ExitStatus::Exited(code)),
            Op::Crash(signal) => Next::Over(ended_by(signal)),
        }
    }

    fn write(&mut self, pid: Pid, stream: Stream, mut bytes: Bytes) -> Next {
        let Some(proc) = self.procs.get(&pid) else {
            return Next::Go;
        };
        let by_rank = proc.is_rank;
        // Output to a closed descriptor, a file or /dev/null does not pass through the daemon.
        let Some(id) = proc.fds.output(stream) else {
            return Next::Go;
        };
        let mut piece = bytes.slice(..bytes.len().min(SLICE));
        let asked = piece.len();
        let Some(put) = self.pipe(id, |pipe| pipe.put(&mut piece)).flatten() else {
            return Next::Over(ended_by(Signal::PIPE));
        };
        let done = bytes.split_to(put);
        if put > 0 {
            self.effects.push(Effect::Wrote {
                pipe: id,
                bytes: done,
                by_rank,
            });
            self.effects.push(Effect::Readable(id));
        }
        if put < asked {
            return Next::Wait(Run::Writing(id), Op::Write(stream, bytes));
        }
        if bytes.is_empty() {
            Next::Go
        } else {
            Next::Again(Op::Write(stream, bytes))
        }
    }

    fn read(&mut self, pid: Pid, left: Option<u64>, rng: &mut Rng) -> Next {
        let Some(proc) = self.procs.get(&pid) else {
            return Next::Go;
        };
        // Without a pipe, stdin is closed or is /dev/null: the program reads nothing.
        let Some(id) = proc.fds.stdin else {
            return Next::Go;
        };
        let most = rng.length(1, SLICE);
        let most = left.map_or(most, |left| most.min(usize::try_from(left).unwrap_or(most)));
        let Some((taken, _)) = self.pipe(id, |pipe| (pipe.take(most), ())) else {
            return Next::Go;
        };
        match taken {
            Taken::Bytes(bytes) => {
                let read = bytes.len() as u64;
                self.effects.push(Effect::Read { pipe: id, bytes });
                self.effects.push(Effect::Room(id));
                Next::Again(left.map_or(Op::ReadToEnd, |left| Op::Read(left.saturating_sub(read))))
            }
            Taken::Nothing => Next::Wait(Run::Reading(id), left.map_or(Op::ReadToEnd, Op::Read)),
            Taken::End => {
                self.effects.push(Effect::ReadEnd { pipe: id });
                Next::Go
            }
        }
    }

    fn pmi_step(&mut self, pid: Pid, op: PmiOp) -> Next {
        let Some(proc) = self.procs.get_mut(&pid) else {
            return Next::Go;
        };
        let Some(id) = proc.fds.pmi else {
            return Next::Over(ExitStatus::Exited(FENCE_REFUSED));
        };
        let kvs = nspace(proc.job);
        if !proc.asked {
            if let PmiOp::Init(dialect) = op {
                proc.pmi = PmiClient::new(dialect);
            }
            return match op.request(&kvs) {
                Some(request) => match proc.pmi.request(&request) {
                    Ok(bytes) => {
                        self.effects.push(Effect::PmiSent { proc: id, bytes });
                        // An abort has no answer. The script continues with a sleep, in which the job is ended.
                        proc.asked = request.kind() != Kind::Abort;
                        if proc.asked {
                            Next::Wait(Run::Pmi, Op::Pmi(op))
                        } else {
                            Next::Go
                        }
                    }
                    Err(error) => self.faulty(id, &format!("cannot ask: {error}")),
                },
                None if op == PmiOp::Garbage => {
                    self.effects.push(Effect::PmiSent {
                        proc: id,
                        bytes: b"what is this\n".to_vec(),
                    });
                    Next::Go
                }
                None => {
                    proc.fds.pmi = None;
                    self.drop_pmi(Some(id));
                    Next::Go
                }
            };
        }
        let inbox = std::mem::take(&mut proc.pmi_inbox);
        match proc.pmi.receive(&inbox) {
            Ok(None) => Next::Wait(Run::Pmi, Op::Pmi(op)),
            Ok(Some(answer)) => {
                proc.asked = false;
                match (&op, answer) {
                    (PmiOp::Barrier | PmiOp::Group(_), Answer::Refused { .. }) => {
                        Next::Over(ExitStatus::Exited(FENCE_REFUSED))
                    }
                    (PmiOp::Get { key, value }, Answer::Get { value: got })
                        if got.as_ref() != Some(value) =>
                    {
                        self.faulty(id, &format!("`{key}` is {got:?} and should be `{value}`"))
                    }
                    (PmiOp::Lookup { service, port }, Answer::Lookup { port: got })
                        if *port != got =>
                    {
                        self.faulty(
                            id,
                            &format!("`{service}` is at `{got}` and not at `{port}`"),
                        )
                    }
                    (_, Answer::Refused { kind, reason, .. }) => {
                        self.faulty(id, &format!("{kind:?} was refused: {reason}"))
                    }
                    _ => Next::Go,
                }
            }
            Err(error) => self.faulty(id, &error.to_string()),
        }
    }

    fn faulty(&mut self, proc: ProcId, what: &str) -> Next {
        self.effects
            .push(Effect::Fault(format!("PMI of {}: {what}", called(proc))));
        Next::Over(ExitStatus::Exited(FENCE_REFUSED))
    }
}

impl Next {
    /// Returns [`Next::Go`] if the sleep is `over`. Otherwise schedules the wake-up for `until` and returns `self`.
    fn slept(self, kernel: &mut Kernel, pid: Pid, until: Time, over: bool) -> Self {
        if over {
            return Self::Go;
        }
        kernel.schedule(pid, until);
        self
    }
}

impl PmiOp {
    /// Returns the PMI request of an operation; `None` for sending garbage and closing the connection.
    fn request(&self, kvs: &str) -> Option<Request> {
        let kvs = Some(kvs.to_owned());
        Some(match self.clone() {
            Self::Init(dialect) => PmiClient::first(dialect),
            Self::FullInit => Request::FullInit,
            Self::Put { key, value } => Request::Put { kvs, key, value },
            Self::Barrier => Request::Barrier { group: None },
            Self::Group(ranks) => Request::Barrier {
                group: Some(Group {
                    members: Members::Ranks(ranks),
                    tag: 0,
                }),
            },
            Self::Publish { service, port } => Request::Publish { service, port },
            Self::Lookup { service, .. } => Request::Lookup { service },
            Self::Unpublish { service } => Request::Unpublish { service },
            Self::Get { key, .. } => Request::Get { kvs, key },
            Self::Finalize => Request::Finalize,
            Self::Abort(code) => Request::Abort {
                code,
                message: "gave up".to_owned(),
                reach: Reach::Job,
            },
            Self::Garbage | Self::HangUp => return None,
        })
    }
}
