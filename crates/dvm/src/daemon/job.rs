//! One job's share on one node.

use std::{
    collections::{BTreeMap, VecDeque},
    ffi::OsString,
    time::Duration,
};

use base::{ExitStatus, JobId, Rank, RankSet, Signal, Time};
use bytes::Bytes;
use pmix::pmi;

use super::{
    DaemonConfig, Output, PMI_DESCRIPTOR, SpawnOrder, StreamPlan, proc_id,
    sweep::{Action, Manner, Sweep},
};
use crate::{
    life::{LEAK_DELAY, Life, State, Unexpected},
    place::Placed,
    planted::{self, Bug},
    proto::{Chunk, Launch, Note, StartFailure, StartStep, Stream, TableRow, ToController},
    spec::{Destination, HoldAt, OnFailure, PatternFacts, StdinTarget, WindowSize},
    stdio::{Assembler, Feed, Feeder, Flow, Piece, STDIN_WINDOW, Window},
};

type Out = VecDeque<Output>;

/// How far the end of the job has come on this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Running,
    Ending { kill_at: Time },
    Killing,
}

/// Whether somebody hears what is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Audience {
    Present,
    /// The controller is gone: output is read and thrown away, so that nobody blocks on it.
    Gone,
}

#[derive(Debug)]
struct Proc {
    placed: Placed,
    life: Life,
    stdout: Assembler,
    stderr: Assembler,
    /// Present while the proc may read input.
    feeder: Option<Feeder>,
    /// Its end was reported, or it was never started.
    settled: bool,
}

/// The procs of one job on this node.
#[derive(Debug)]
pub(super) struct LocalJob {
    launch: Launch,
    host: String,
    node: base::NodeId,
    procs: BTreeMap<Rank, Proc>,
    to_start: VecDeque<Rank>,
    /// The proc that is being started, and whether it was ordered to be held.
    starting: Option<(Rank, HoldAt)>,
    launched: bool,
    table: Vec<TableRow>,
    failures: BTreeMap<StartFailure, RankSet>,
    windows: [Window; 2],
    stdin_closed: bool,
    /// Input bytes that the front was given credit for, beside the first window.
    credited: u64,
    /// Absent when the job's facts do not fit the protocol: its procs then find a closed connection.
    pmi: Option<pmi::Server>,
    fence: Option<pmi::FenceId>,
    /// Procs that will never come to the fence in which others wait, and when those are told at the latest.
    fence_broken: Option<(Vec<Rank>, Time)>,
    phase: Phase,
    audience: Audience,
    sweep: Sweep,
    /// No timer of a proc is due before.
    check_at: Option<Time>,
}

const fn slot(stream: Stream) -> usize {
    match stream {
        Stream::Stdout => 0,
        Stream::Stderr => 1,
    }
}

impl Proc {
    const fn assembler(&mut self, stream: Stream) -> &mut Assembler {
        match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        }
    }
}

impl LocalJob {
    /// Takes a launch over; the procs are started one after another by [`Self::start_next`].
    pub(super) fn launch(config: &DaemonConfig, mut launch: Launch, out: &mut Out) -> Self {
        let job = launch.job;
        let apps = std::mem::take(&mut launch.apps);
        out.push_back(Output::Prepare { job, apps });
        let placed = std::mem::take(&mut launch.procs);
        let pmi = pmi::Server::new(pmi::Config {
            ranks: placed
                .iter()
                .map(|p| pmi::LocalRank {
                    rank: p.rank,
                    appnum: p.app,
                })
                .collect(),
            universe: launch.size,
            kvs_name: format!("rally-{}-{job}", launch.front_pid),
            process_mapping: launch.process_mapping.clone(),
        });
        let pmi = pmi
            .map_err(|error| out.push_back(Output::Log(format!("job {job} has no PMI: {error}"))))
            .ok();
        let to_start = placed.iter().map(|placed| placed.rank).collect();
        let procs: BTreeMap<_, _> = placed
            .into_iter()
            .map(|placed| {
                let rank = placed.rank;
                let plans = Stream::BOTH.map(|stream| launch.stream_plan(rank, stream));
                let life = Life::new(|stream| matches!(plans[slot(stream)], Plan::Read));
                let feeder = launch.reads_stdin(rank).then(Feeder::default);
                let proc = Proc {
                    placed,
                    life,
                    stdout: Assembler::default(),
                    stderr: Assembler::default(),
                    feeder,
                    settled: false,
                };
                (rank, proc)
            })
            .collect();
        let readers = procs.values().any(|proc| proc.feeder.is_some());
        out.push_back(Output::Send(if readers {
            ToController::StdinCredit {
                job,
                bytes: STDIN_WINDOW,
            }
        } else {
            ToController::StdinClosed { job }
        }));
        Self {
            host: config.host.clone(),
            node: config.node,
            procs,
            to_start,
            starting: None,
            launched: false,
            table: Vec::new(),
            failures: BTreeMap::new(),
            windows: [Window::default(), Window::default()],
            stdin_closed: !readers,
            credited: 0,
            pmi,
            fence: None,
            fence_broken: None,
            phase: Phase::Running,
            audience: Audience::Present,
            sweep: Sweep::new(),
            check_at: None,
            launch,
        }
    }

    pub(super) const fn is_clean(&self) -> bool {
        self.sweep.is_clean()
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        let kill_at = match self.phase {
            Phase::Ending { .. } if planted::is(Bug::KillAfterGraceForgotten) => None,
            Phase::Ending { kill_at } => Some(kill_at),
            Phase::Running | Phase::Killing => None,
        };
        [kill_at, self.sweep.deadline(), self.check_at]
            .into_iter()
            .flatten()
            .min()
    }

    /// Orders the next proc, when none is being started.
    pub(super) fn start_next(&mut self, out: &mut Out) {
        if self.starting.is_some() {
            return;
        }
        while let Some(rank) = self.to_start.pop_front() {
            if let Some(order) = self.order(rank) {
                self.starting = Some((rank, order.hold));
                out.push_back(Output::Spawn(Box::new(order)));
                return;
            }
        }
    }

    fn order(&self, rank: Rank) -> Option<SpawnOrder> {
        let proc = self.procs.get(&rank)?;
        let placed = &proc.placed;
        let local_size = self.procs.len();
        let plan = |stream| match self.launch.stream_plan(rank, stream) {
            Plan::Null => StreamPlan::Null,
            Plan::WithStdout => StreamPlan::WithStdout,
            Plan::Read if self.launch.has_pty(rank) => StreamPlan::Pty,
            Plan::Read => StreamPlan::Pipe,
            Plan::File(pattern) => {
                let facts = PatternFacts {
                    rank: rank.0,
                    size: self.launch.size,
                    local_rank: placed.local_rank,
                    app: placed.app,
                    job: self.launch.job.0,
                    front_pid: self.launch.front_pid,
                    host: &self.host,
                };
                // The controller has expanded every pattern once already, so that a bad one is refused before a start.
                pattern
                    .expand(&facts)
                    .map_or(StreamPlan::Null, StreamPlan::File)
            }
        };
        let mut env = vec![
            ("RALLY_JOB".to_owned(), self.launch.job.to_string().into()),
            ("RALLY_RANK".to_owned(), rank.to_string().into()),
            ("RALLY_SIZE".to_owned(), self.launch.size.to_string().into()),
            (
                "RALLY_LOCAL_RANK".to_owned(),
                placed.local_rank.to_string().into(),
            ),
            ("RALLY_LOCAL_SIZE".to_owned(), local_size.to_string().into()),
            ("RALLY_NODE".to_owned(), self.node.to_string().into()),
        ];
        let local_size = u32::try_from(local_size).unwrap_or(u32::MAX);
        let variables = pmi::environment(
            rank,
            self.launch.size,
            placed.local_rank,
            local_size,
            &self.host,
            PMI_DESCRIPTOR,
        );
        env.extend(
            variables
                .into_iter()
                .map(|(name, value)| (name.to_owned(), OsString::from(value))),
        );
        Some(SpawnOrder {
            proc: proc_id(self.launch.job, rank),
            app: placed.app,
            stdin: match (&proc.feeder, self.launch.has_pty(rank)) {
                (_, true) => StreamPlan::Pty,
                (Some(_), false) => StreamPlan::Pipe,
                (None, false) => StreamPlan::Null,
            },
            stdout: plan(Stream::Stdout),
            stderr: plan(Stream::Stderr),
            pty_size: self
                .launch
                .stdio
                .pty
                .filter(|pty| pty.rank == rank)
                .map(|pty| pty.size),
            env,
            cpus: placed.cpus.clone(),
            hold: self.launch.hold,
        })
    }

    pub(super) fn on_spawned(
        &mut self,
        now: Time,
        rank: Rank,
        pid: i32,
        executable: OsString,
        out: &mut Out,
    ) -> Result<(), Unexpected> {
        // A release may have come since the order.
        let hold = self
            .starting
            .take()
            .map_or(self.launch.hold, |(_, hold)| hold);
        if let Some(proc) = self.procs.get_mut(&rank) {
            proc.life.on_spawned(hold)?;
            self.table.push(TableRow {
                rank,
                host: self.host.clone(),
                executable,
                pid,
            });
            // An end that came while this proc was being started applies to it as well.
            let id = proc_id(self.launch.job, rank);
            match self.phase {
                Phase::Running => {}
                Phase::Ending { .. } if planted::is(Bug::LateStartNotEnded) => {}
                Phase::Ending { .. } => out.push_back(Output::Signal {
                    proc: id,
                    signal: Signal::TERM,
                }),
                Phase::Killing => out.push_back(Output::Signal {
                    proc: id,
                    signal: Signal::KILL,
                }),
            }
            for stream in Stream::BOTH {
                let shut = self.windows[slot(stream)].flow() == Flow::Shut;
                if proc.life.is_open(stream) && shut && !planted::is(Bug::LateStartNotPaused) {
                    out.push_back(Output::Pause { proc: id, stream });
                }
            }
            self.feed(rank, out);
        }
        self.after_start(now, out);
        Ok(())
    }

    pub(super) fn on_spawn_failed(
        &mut self,
        now: Time,
        rank: Rank,
        failure: StartFailure,
        out: &mut Out,
    ) -> Result<(), Unexpected> {
        self.starting = None;
        let Some(proc) = self.procs.get_mut(&rank) else {
            return Ok(());
        };
        proc.life.on_spawn_failed()?;
        let app = proc.placed.app;
        self.settle_without_start(now, rank, out);
        let mut failed = RankSet::single(rank);
        // What is wrong with a program or its directory is wrong for every rank of the app: they fail together, in one
        // message, and the others are not started at all.
        let by_app = matches!(
            failure.step,
            StartStep::Find | StartStep::Directory | StartStep::Exec
        );
        for other in std::mem::take(&mut self.to_start) {
            if by_app
                && self
                    .procs
                    .get(&other)
                    .is_some_and(|proc| proc.placed.app == app)
            {
                failed.insert(other);
            }
            if let Some(proc) = self.procs.get_mut(&other) {
                proc.life.on_spawn_failed()?;
            }
            self.settle_without_start(now, other, out);
        }
        let merged = self.failures.entry(failure).or_default();
        *merged = merged.union(&failed);
        self.after_start(now, out);
        Ok(())
    }

    fn settle_without_start(&mut self, now: Time, rank: Rank, out: &mut Out) {
        if let Some(proc) = self.procs.get_mut(&rank) {
            proc.settled = true;
        }
        self.stop_feeding(rank, out);
        self.tell_pmi(now, pmi::Input::Closed { client: rank }, out);
    }

    fn after_start(&mut self, now: Time, out: &mut Out) {
        let waiting = self.starting.is_some() || !self.to_start.is_empty();
        if self.launched || (waiting && !planted::is(Bug::LaunchedTooEarly)) {
            return;
        }
        self.launched = true;
        out.push_back(Output::Send(ToController::Launched {
            job: self.launch.job,
            table: std::mem::take(&mut self.table),
            failures: std::mem::take(&mut self.failures).into_iter().collect(),
        }));
        self.finish_if_done(now, out);
    }

    pub(super) fn on_trapped(&mut self, rank: Rank, out: &mut Out) -> Result<(), Unexpected> {
        let Some(proc) = self.procs.get_mut(&rank) else {
            return Ok(());
        };
        proc.life.on_trapped()?;
        let id = proc_id(self.launch.job, rank);
        out.push_back(Output::LeaveStopped { proc: id });
        if self.launch.hold == HoldAt::Nowhere || self.phase != Phase::Running {
            // It was released before it came to its holding point, or it has a SIGTERM waiting that it must run to take.
            if planted::is(Bug::ReleaseForgetsLateTrap) {
                return Ok(());
            }
            proc.life.on_released();
            out.push_back(Output::Continue { proc: id });
        } else {
            out.push_back(Output::Send(ToController::Held {
                job: self.launch.job,
                ranks: RankSet::single(rank),
            }));
        }
        Ok(())
    }

    pub(super) fn release(&mut self, out: &mut Out) {
        self.launch.hold = HoldAt::Nowhere;
        for (rank, proc) in &mut self.procs {
            if proc.life.on_released() {
                out.push_back(Output::Continue {
                    proc: proc_id(self.launch.job, *rank),
                });
            }
        }
    }

    pub(super) fn on_exited(
        &mut self,
        now: Time,
        rank: Rank,
        status: ExitStatus,
        out: &mut Out,
    ) -> Result<(), Unexpected> {
        let Some(proc) = self.procs.get_mut(&rank) else {
            return Ok(());
        };
        proc.life.on_exited(now, status)?;
        let check = proc.life.leak_deadline();
        self.wake_at(check);
        self.stop_feeding(rank, out);
        self.tell_pmi(now, pmi::Input::Closed { client: rank }, out);
        self.fail_broken_fence(now, out);
        self.report_if_done(now, rank, out);
        Ok(())
    }

    pub(super) fn on_output(
        &mut self,
        now: Time,
        rank: Rank,
        stream: Stream,
        bytes: Bytes,
        out: &mut Out,
    ) {
        let Some(proc) = self.procs.get_mut(&rank) else {
            return;
        };
        proc.life.on_output(now, stream);
        let leak_at = proc.life.leak_deadline();
        let assembler = proc.assembler(stream);
        let mut pieces = Vec::new();
        assembler.push(now, bytes, &mut pieces);
        let flush_at = assembler.deadline();
        self.wake_at(leak_at);
        self.wake_at(flush_at);
        self.pass_on(rank, stream, pieces, out);
    }

    pub(super) fn on_output_ended(&mut self, now: Time, rank: Rank, stream: Stream, out: &mut Out) {
        let Some(proc) = self.procs.get_mut(&rank) else {
            return;
        };
        if !proc.life.is_open(stream) {
            return;
        }
        let mut pieces = Vec::new();
        proc.assembler(stream).finish(&mut pieces);
        proc.life.on_stream_ended(stream);
        self.pass_on(rank, stream, pieces, out);
        self.report_if_done(now, rank, out);
    }

    fn pass_on(&mut self, rank: Rank, stream: Stream, pieces: Vec<Piece>, out: &mut Out) {
        let job = self.launch.job;
        if self.audience == Audience::Gone {
            return;
        }
        for (bytes, end) in pieces {
            let shut = self.windows[slot(stream)].sent(bytes.len());
            let chunk = Chunk {
                rank,
                stream,
                bytes,
                end,
            };
            out.push_back(Output::Send(ToController::Output { job, chunk }));
            if shut.is_some() && !planted::is(Bug::PauseNotSent) {
                for (rank, _) in self
                    .procs
                    .iter()
                    .filter(|(_, proc)| proc.life.is_open(stream))
                {
                    out.push_back(Output::Pause {
                        proc: proc_id(job, *rank),
                        stream,
                    });
                }
            }
        }
    }

    pub(super) fn on_output_credit(
        &mut self,
        now: Time,
        stream: Stream,
        bytes: u64,
        out: &mut Out,
    ) {
        if self.windows[slot(stream)].credited(bytes) != Some(Flow::Open) {
            return;
        }
        let mut check = None;
        for (rank, proc) in self
            .procs
            .iter_mut()
            .filter(|(_, proc)| proc.life.is_open(stream))
        {
            proc.life.on_reading_resumed(now, stream);
            check = check.into_iter().chain(proc.life.leak_deadline()).min();
            if planted::is(Bug::ResumeForgotten) {
                continue;
            }
            out.push_back(Output::Resume {
                proc: proc_id(self.launch.job, *rank),
                stream,
            });
        }
        self.wake_at(check);
    }

    pub(super) fn on_stdin(&mut self, bytes: &Bytes, out: &mut Out) {
        let mut fed = Vec::new();
        for (rank, proc) in &mut self.procs {
            if let Some(feeder) = &mut proc.feeder {
                feeder.push(bytes.clone());
                fed.push(*rank);
            }
        }
        for rank in fed {
            self.feed(rank, out);
        }
    }

    pub(super) fn on_stdin_eof(&mut self, out: &mut Out) {
        let ranks: Vec<_> = self.procs.keys().copied().collect();
        for rank in ranks {
            if let Some(feeder) = self
                .procs
                .get_mut(&rank)
                .and_then(|proc| proc.feeder.as_mut())
            {
                feeder.end();
                self.feed(rank, out);
            }
        }
    }

    pub(super) fn on_stdin_written(&mut self, rank: Rank, out: &mut Out) {
        let Some(proc) = self.procs.get_mut(&rank) else {
            return;
        };
        let Some(feeder) = &mut proc.feeder else {
            return;
        };
        feeder.written();
        self.credit_stdin(out);
        self.feed(rank, out);
    }

    pub(super) fn on_stdin_broken(&mut self, rank: Rank, out: &mut Out) {
        self.stop_feeding(rank, out);
    }

    fn feed(&mut self, rank: Rank, out: &mut Out) {
        let Some(proc) = self.procs.get_mut(&rank) else {
            return;
        };
        if !proc.life.is_alive() {
            return;
        }
        let id = proc_id(self.launch.job, rank);
        match proc.feeder.as_mut().and_then(Feeder::poll) {
            Some(Feed::Write(bytes)) => out.push_back(Output::WriteStdin { proc: id, bytes }),
            Some(Feed::Close) => {
                proc.feeder = None;
                out.push_back(Output::CloseStdin { proc: id });
                self.close_stdin_if_unread(out);
            }
            None => {}
        }
    }

    fn stop_feeding(&mut self, rank: Rank, out: &mut Out) {
        if self
            .procs
            .get_mut(&rank)
            .and_then(|proc| proc.feeder.take())
            .is_none()
        {
            return;
        }
        self.credit_stdin(out);
        out.push_back(Output::CloseStdin {
            proc: proc_id(self.launch.job, rank),
        });
        self.close_stdin_if_unread(out);
    }

    /// Gives credit for what every reader has read, in quarters of the window: the slowest of them sets the pace.
    fn credit_stdin(&mut self, out: &mut Out) {
        let readers = self
            .procs
            .values()
            .filter_map(|proc| proc.feeder.as_ref())
            .map(Feeder::consumed);
        let slowest = if planted::is(Bug::InputAtFastestPace) {
            readers.max()
        } else {
            readers.min()
        };
        let bytes = slowest.map_or(0, |consumed| consumed.saturating_sub(self.credited));
        if bytes >= STDIN_WINDOW / 4 {
            if !planted::is(Bug::InputCreditTwice) {
                self.credited += bytes;
            }
            out.push_back(Output::Send(ToController::StdinCredit {
                job: self.launch.job,
                bytes,
            }));
        }
    }

    fn close_stdin_if_unread(&mut self, out: &mut Out) {
        if !self.stdin_closed && self.procs.values().all(|proc| proc.feeder.is_none()) {
            self.stdin_closed = true;
            out.push_back(Output::Send(ToController::StdinClosed {
                job: self.launch.job,
            }));
        }
    }

    pub(super) fn on_pmi(&mut self, now: Time, rank: Rank, bytes: &[u8], out: &mut Out) {
        self.tell_pmi(
            now,
            pmi::Input::Bytes {
                client: rank,
                bytes,
            },
            out,
        );
        self.fail_broken_fence(now, out);
    }

    pub(super) fn on_pmi_closed(&mut self, now: Time, rank: Rank, out: &mut Out) {
        self.tell_pmi(now, pmi::Input::Closed { client: rank }, out);
        self.fail_broken_fence(now, out);
    }

    pub(super) fn on_fence_done(&mut self, now: Time, puts: Vec<(String, String)>, out: &mut Out) {
        if let Some(id) = self.fence.take() {
            self.tell_pmi(now, pmi::Input::FenceDone { id, puts }, out);
        }
    }

    /// A fence that can never complete is failed when it is known how the proc ended that does not come: its own
    /// failure, which ends the job, must not be hidden behind the errors of those that waited for it.
    fn fail_broken_fence(&mut self, now: Time, out: &mut Out) {
        let Some((lost, until)) = &self.fence_broken else {
            return;
        };
        let status = |rank: &Rank| match self.procs.get(rank).map(|proc| proc.life.state()) {
            Some(State::Exited { status, .. } | State::Done { status, .. }) => Some(status),
            _ => None,
        };
        let overdue = *until <= now;
        let ended = lost.iter().all(|rank| status(rank).is_some());
        let ends_job = self.launch.end.on_failure == OnFailure::EndJob
            && lost
                .iter()
                .filter_map(status)
                .any(|status| !status.is_success());
        if ends_job || planted::is(Bug::BrokenFenceNotTold) {
            self.fence_broken = None;
        } else if ended || overdue {
            self.fence_broken = None;
            self.tell_pmi(now, pmi::Input::FenceFailed, out);
        }
    }

    pub(super) fn signal(&mut self, signal: Signal, out: &mut Out) {
        for (rank, proc) in &self.procs {
            // A held proc is let go by a release, not by a SIGCONT that was meant for those that run.
            let held = signal == Signal::CONT
                && proc.life.state() == State::Held
                && self.phase == Phase::Running;
            if proc.life.is_alive() && !held {
                out.push_back(Output::Signal {
                    proc: proc_id(self.launch.job, *rank),
                    signal,
                });
            }
        }
    }

    /// TERM now, KILL after the grace.
    pub(super) fn end(&mut self, now: Time, grace: Duration, out: &mut Out) {
        self.cancel_starts(now, out);
        if self.phase != Phase::Running {
            return;
        }
        let ignored = planted::is(Bug::GraceIgnored);
        let grace = if ignored { Duration::ZERO } else { grace };
        self.phase = Phase::Ending {
            kill_at: now + grace,
        };
        self.signal(Signal::TERM, out);
        // A stopped process takes no SIGTERM until it is continued.
        if !planted::is(Bug::ContAfterTermForgotten) {
            self.signal(Signal::CONT, out);
        }
    }

    /// The controller is gone, and with it everybody who reads: the job ends within `grace`, whatever was granted before.
    pub(super) fn controller_lost(&mut self, now: Time, grace: Duration, out: &mut Out) {
        self.audience = Audience::Gone;
        for stream in Stream::BOTH {
            self.on_output_credit(now, stream, u64::MAX, out);
        }
        self.end(now, grace, out);
        if let Phase::Ending { kill_at } = &mut self.phase {
            *kill_at = (*kill_at).min(now + grace);
        }
    }

    pub(super) fn kill(&mut self, now: Time, out: &mut Out) {
        self.cancel_starts(now, out);
        if self.phase != Phase::Killing {
            self.phase = Phase::Killing;
            self.signal(Signal::KILL, out);
        }
        let action = self.sweep.harden(now);
        self.carry_out(action, out);
    }

    fn cancel_starts(&mut self, now: Time, out: &mut Out) {
        for rank in std::mem::take(&mut self.to_start) {
            if let Some(proc) = self.procs.get_mut(&rank) {
                // A proc that waits for its turn is `Starting`, which may fail.
                let _ = proc.life.on_spawn_failed();
            }
            if !planted::is(Bug::CancelledNotSettled) {
                self.settle_without_start(now, rank, out);
            }
        }
        self.after_start(now, out);
    }

    pub(super) fn resize(&mut self, size: WindowSize, out: &mut Out) {
        if let Some(pty) = self.launch.stdio.pty
            && self
                .procs
                .get(&pty.rank)
                .is_some_and(|proc| proc.life.is_alive())
        {
            out.push_back(Output::Resize {
                proc: proc_id(self.launch.job, pty.rank),
                size,
            });
        }
    }

    pub(super) fn on_tick(&mut self, now: Time, out: &mut Out) {
        if let Phase::Ending { kill_at } = self.phase
            && kill_at <= now
            && !planted::is(Bug::KillAfterGraceForgotten)
        {
            self.kill(now, out);
        }
        if self.check_at.is_some_and(|at| at <= now) {
            self.check_procs(now, out);
        }
        let action = self.sweep.on_tick(now);
        self.carry_out(action, out);
    }

    /// Looks at every proc's timers, and sets the time of the next look.
    fn check_procs(&mut self, now: Time, out: &mut Out) {
        self.check_at = None;
        let ranks: Vec<_> = self.procs.keys().copied().collect();
        for rank in ranks {
            for stream in Stream::BOTH {
                let Some(proc) = self.procs.get_mut(&rank) else {
                    continue;
                };
                let mut pieces = Vec::new();
                proc.assembler(stream).flush_due(now, &mut pieces);
                let next = proc.assembler(stream).deadline();
                self.wake_at(next);
                self.pass_on(rank, stream, pieces, out);
            }
            self.check_leak(now, rank, out);
        }
        self.fail_broken_fence(now, out);
        let until = self.fence_broken.as_ref().map(|(_, until)| *until);
        self.wake_at(until);
    }

    fn check_leak(&mut self, now: Time, rank: Rank, out: &mut Out) {
        let Some(proc) = self.procs.get_mut(&rank) else {
            return;
        };
        // While we may not read, what is in the pipe cannot be told from what is held open.
        let shut = Stream::BOTH.into_iter().any(|stream| {
            proc.life.is_open(stream) && self.windows[slot(stream)].flow() == Flow::Shut
        });
        if shut {
            return;
        }
        if !proc.life.on_leak_deadline(now) {
            let next = proc.life.leak_deadline();
            self.wake_at(next);
            return;
        }
        for stream in Stream::BOTH {
            let Some(proc) = self.procs.get_mut(&rank) else {
                return;
            };
            if !proc.life.is_open(stream) {
                continue;
            }
            let mut pieces = Vec::new();
            proc.assembler(stream).finish(&mut pieces);
            proc.life.on_stream_ended(stream);
            out.push_back(Output::CloseOutput {
                proc: proc_id(self.launch.job, rank),
                stream,
            });
            self.pass_on(rank, stream, pieces, out);
            if planted::is(Bug::EndedTwice) {
                self.report_if_done(now, rank, out);
            }
        }
        self.report_if_done(now, rank, out);
    }

    fn report_if_done(&mut self, now: Time, rank: Rank, out: &mut Out) {
        let Some(proc) = self.procs.get_mut(&rank) else {
            return;
        };
        let State::Done { status, drained } = proc.life.state() else {
            return;
        };
        if proc.settled && !planted::is(Bug::EndedTwice) {
            return;
        }
        proc.settled = true;
        let job = self.launch.job;
        out.push_back(Output::Send(ToController::Ended {
            job,
            rank,
            status,
            drained,
        }));
        self.finish_if_done(now, out);
    }

    fn finish_if_done(&mut self, now: Time, out: &mut Out) {
        if self.launched && self.sweep.is_idle() && self.procs.values().all(|proc| proc.settled) {
            let manner = match self.phase {
                Phase::Running => Manner::Ask {
                    grace: self.launch.end.grace,
                },
                Phase::Ending { kill_at } => Manner::Ask {
                    grace: kill_at.since(now),
                },
                Phase::Killing => Manner::Kill,
            };
            let action = self.sweep.begin(manner);
            self.carry_out(action, out);
        }
    }

    pub(super) fn on_swept(&mut self, now: Time, left: &[i32], out: &mut Out) {
        let action = self.sweep.on_swept(now, left);
        self.carry_out(action, out);
    }

    pub(super) fn on_stray_exited(&mut self, out: &mut Out) {
        let action = self.sweep.on_stray_exited();
        self.carry_out(action, out);
    }

    fn carry_out(&mut self, action: Action, out: &mut Out) {
        let job = self.launch.job;
        let node = self.node;
        match action {
            Action::Nothing => {}
            Action::Sweep(signal) => out.push_back(Output::Sweep { job, signal }),
            Action::Report { count, signal } => {
                let note = Note::LeftBehind { node, count };
                out.push_back(Output::Send(ToController::Note { job, note }));
                out.push_back(Output::Sweep {
                    job,
                    signal: Some(signal),
                });
            }
            Action::GiveUp(pids) => {
                let note = Note::Stuck { node, pids };
                out.push_back(Output::Send(ToController::Note { job, note }));
            }
        }
    }

    fn wake_at(&mut self, at: Option<Time>) {
        self.check_at = self.check_at.into_iter().chain(at).min();
    }

    fn tell_pmi(&mut self, now: Time, input: pmi::Input<'_>, out: &mut Out) {
        let job: JobId = self.launch.job;
        let mut check = None;
        let Some(server) = &mut self.pmi else { return };
        server.handle(input);
        while let Some(output) = server.poll() {
            match output {
                pmi::Output::Send { client, bytes } => {
                    out.push_back(Output::PmiSend {
                        proc: proc_id(job, client),
                        bytes,
                    });
                }
                pmi::Output::Close { client, why } => {
                    out.push_back(Output::PmiClose {
                        proc: proc_id(job, client),
                    });
                    out.push_back(Output::Send(ToController::Protocol {
                        job,
                        rank: client,
                        what: why.to_string(),
                    }));
                }
                pmi::Output::Event(pmi::Event::Fence { id, puts }) => {
                    self.fence = Some(id);
                    out.push_back(Output::Send(ToController::Fence { job, puts }));
                }
                pmi::Output::Event(pmi::Event::FenceBroken { lost, .. }) => {
                    // Whose connection is gone may be about to exit: its status says more than its silence.
                    let until = self
                        .fence_broken
                        .take()
                        .map_or(now + LEAK_DELAY, |(_, until)| until);
                    self.fence_broken = Some((lost, until));
                    check = Some(until);
                }
                pmi::Output::Event(pmi::Event::Abort {
                    client,
                    code,
                    message,
                }) => {
                    let code = u8::try_from(code & 0xff).unwrap_or(1);
                    out.push_back(Output::Send(ToController::Abort {
                        job,
                        rank: client,
                        code,
                        message,
                    }));
                }
                // Whether a proc said hello or goodbye decides nothing here: its exit does.
                pmi::Output::Event(
                    pmi::Event::Initialized { .. }
                    | pmi::Event::Finalized { .. }
                    | pmi::Event::Lost { .. },
                ) => {}
            }
        }
        self.wake_at(check);
    }
}

/// What becomes of one stream of one proc, before file names are made.
enum Plan<'a> {
    Null,
    WithStdout,
    Read,
    File(&'a crate::spec::Pattern),
}

impl Launch {
    fn has_pty(&self, rank: Rank) -> bool {
        self.stdio.pty.is_some_and(|pty| pty.rank == rank)
    }

    fn reads_stdin(&self, rank: Rank) -> bool {
        match self.stdin {
            StdinTarget::None => false,
            StdinTarget::Rank(target) => target == rank,
            StdinTarget::All => true,
        }
    }

    fn stream_plan(&self, rank: Rank, stream: Stream) -> Plan<'_> {
        if self.has_pty(rank) {
            return match stream {
                Stream::Stdout => Plan::Read,
                Stream::Stderr => Plan::WithStdout,
            };
        }
        let destination = match stream {
            Stream::Stdout => &self.stdio.stdout,
            Stream::Stderr => &self.stdio.stderr,
        };
        match destination {
            Destination::Forward => Plan::Read,
            Destination::Discard => Plan::Null,
            Destination::WithStdout => Plan::WithStdout,
            Destination::File(pattern) => Plan::File(pattern),
        }
    }
}
