//! Starting procs one after another, and holding and releasing them.

use std::{collections::BTreeMap, ffi::OsString, path::PathBuf};

use base::{Rank, RankSet, Signal, Time};

use super::{LocalJob, Out, Phase, Proc, left::PROC_KILL_MAX, slot};
use crate::{
    daemon::{Output, SpawnOrder, StreamPlan, proc_id},
    life::Unexpected,
    planted::{self, Bug},
    proto::{Launch, StartFailure, StartStep, Started, Stream, ToController},
    spec::{
        Destination, FrontInput, HoldAt, LineTerminal, OnDebuggerLoss, OpenMode, PatternFacts,
        StdinTarget, WithoutTerminal,
    },
    stdio::Flow,
};

/// The system's number for "too many open files".
const EMFILE: i32 = 24;
/// Procs of one job here that get a terminal for their stdout where a pipe will do. A node has 4,096 terminals for all its
/// users (`kernel.pty.max`).
const LINE_TERMINALS_MAX: usize = 512;
/// Descriptors that a daemon needs beside those of its procs: its own, and those of one start.
const DESCRIPTORS_OWN: u64 = 32;

impl LocalJob {
    /// Descriptors that the daemon has open while every proc runs.
    pub(super) fn descriptors(&self) -> u64 {
        let pmi = usize::from(self.pmi.is_some());
        let of = |(rank, proc): (&Rank, &Proc)| {
            let outputs = Stream::BOTH
                .into_iter()
                .filter(|stream| matches!(self.launch.stream_plan(*rank, *stream), Plan::Read));
            (outputs.count() + usize::from(proc.feeder.is_some()) + pmi) as u64
        };
        self.procs.iter().map(of).sum::<u64>() + DESCRIPTORS_OWN
    }

    /// Starts nothing, because some apps cannot be started: by their index, why.
    pub(in crate::daemon) fn refuse(
        &mut self,
        now: Time,
        failures: &BTreeMap<u32, StartFailure>,
        out: &mut Out,
    ) {
        for (rank, proc) in &self.procs {
            if let Some(failure) = failures.get(&proc.placed.app) {
                let ranks = self.failures.entry(failure.clone()).or_default();
                ranks.insert(*rank);
            }
        }
        self.cancel_starts(now, out);
    }

    /// Starts nothing, because all cannot run at once: said before the first starts, not in the midst of them.
    pub(super) fn refuse_all(&mut self, now: Time, out: &mut Out) {
        let failure = StartFailure {
            step: StartStep::Room,
            errno: EMFILE,
            subject: None,
        };
        let ranks: RankSet = self.procs.keys().copied().collect();
        self.failures.insert(failure, ranks);
        self.cancel_starts(now, out);
    }

    /// Orders the next proc, when none is being started.
    pub(in crate::daemon) fn start_next(&mut self, out: &mut Out) {
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

    /// A file of output: the first proc that opens it empties it, where that is wanted.
    fn file(&mut self, app: u32, name: OsString) -> StreamPlan {
        if self.launch.stdio.open == OpenMode::Append {
            return StreamPlan::File(name);
        }
        let directory = self.directories.get(app as usize);
        let path = directory
            .map_or_else(PathBuf::new, PathBuf::from)
            .join(&name);
        if self.opened.insert(path) {
            StreamPlan::NewFile(name)
        } else {
            StreamPlan::File(name)
        }
    }

    /// What a stream of a proc is connected to.
    fn stream(&mut self, rank: Rank, stream: Stream) -> StreamPlan {
        let Some(proc) = self.procs.get(&rank) else {
            return StreamPlan::Null;
        };
        let app = proc.placed.app;
        let name = match self.launch.stream_plan(rank, stream) {
            Plan::Null => return StreamPlan::Null,
            Plan::WithStdout => return StreamPlan::WithStdout,
            Plan::Read if self.launch.has_pty(rank) => return StreamPlan::Pty,
            Plan::Read => {
                return self
                    .line_terminal(rank, stream)
                    .map_or(StreamPlan::Pipe, StreamPlan::Lines);
            }
            Plan::File(pattern) => {
                let facts = PatternFacts {
                    rank: rank.0,
                    size: self.launch.size(),
                    local_rank: proc.placed.local_rank,
                    app,
                    job: self.launch.job.0,
                    front_pid: self.launch.front_pid,
                    host: &self.host,
                };
                pattern.expand(&facts)
            }
        };
        // The controller has expanded every pattern once already, so that a bad one is refused before a start.
        name.map_or(StreamPlan::Null, |name| self.file(app, name))
    }

    pub(super) fn order(&mut self, rank: Rank) -> Option<SpawnOrder> {
        let [stdout, stderr] = Stream::BOTH.map(|stream| self.stream(rank, stream));
        let proc = self.procs.get(&rank)?;
        let placed = &proc.placed;
        let env = self.variables(rank, placed);
        Some(SpawnOrder {
            proc: proc_id(self.launch.job, rank),
            app: placed.app,
            stdin: match (&proc.feeder, self.launch.has_pty(rank)) {
                (_, true) => StreamPlan::Pty,
                (Some(_), false) => StreamPlan::Pipe,
                (None, false) if self.launch.is_reader(rank) => StreamPlan::Unreadable,
                (None, false) => StreamPlan::Null,
            },
            stdout,
            stderr,
            pty_size: self
                .launch
                .stdio
                .pty
                .filter(|pty| pty.rank == rank)
                .map(|pty| pty.size),
            env,
            cpus: placed.cpus.clone(),
            hold: match self.launch.hold.of(rank) {
                HoldAt::Exec => HoldAt::Exec,
                // The proc stops by itself when it comes to that point.
                HoldAt::Nowhere | HoldAt::Init | HoldAt::App => HoldAt::Nowhere,
            },
        })
    }

    /// The terminal of a stream that we read and whose proc has no terminal of its own.
    pub(super) fn line_terminal(&self, rank: Rank, stream: Stream) -> Option<LineTerminal> {
        line_terminal(&self.launch, self.procs.len(), rank, stream)
    }

    pub(in crate::daemon) fn on_spawned(
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
            .map_or(HoldAt::Nowhere, |(_, hold)| hold);
        if let Some(proc) = self.procs.get_mut(&rank) {
            proc.life.on_spawned(hold)?;
            proc.pid = Some(pid);
            self.started
                .entry(executable)
                .or_default()
                .push((rank, pid));
            // An end that came while this proc was being started applies to it as well.
            let id = proc_id(self.launch.job, rank);
            match self.phase {
                Phase::Running => {}
                Phase::Ending { .. } if planted::is(Bug::LateStartNotEnded) => {}
                Phase::Ending { .. } => out.push_back(Output::Signal {
                    proc: id,
                    signal: Signal::TERM,
                }),
                Phase::Killing { .. } => {
                    self.phase = Phase::Killing {
                        leave_at: Some(now + PROC_KILL_MAX),
                    };
                    out.push_back(Output::Signal {
                        proc: id,
                        signal: Signal::KILL,
                    });
                }
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

    pub(in crate::daemon) fn on_spawn_failed(
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
        self.settle_without_start(rank, out);
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
            self.settle_without_start(other, out);
        }
        let merged = self.failures.entry(failure).or_default();
        *merged = merged.union(&failed);
        self.fail_fences(now, out);
        self.after_start(now, out);
        Ok(())
    }

    pub(super) fn settle_without_start(&mut self, rank: Rank, out: &mut Out) {
        self.settle(rank);
        self.stop_feeding(rank, out);
    }

    /// A proc will need nothing more. True the first time.
    pub(super) fn settle(&mut self, rank: Rank) -> bool {
        let Some(proc) = self.procs.get_mut(&rank) else {
            return false;
        };
        let first = !std::mem::replace(&mut proc.settled, true);
        self.unsettled -= usize::from(first);
        first
    }

    pub(super) fn after_start(&mut self, now: Time, out: &mut Out) {
        let waiting = self.starting.is_some() || !self.to_start.is_empty();
        if self.launched || (waiting && !planted::is(Bug::LaunchedTooEarly)) {
            return;
        }
        self.launched = true;
        let started = std::mem::take(&mut self.started).into_iter();
        let started = started.map(|(executable, pids)| Started { executable, pids });
        out.push_back(Output::Send(ToController::Launched {
            job: self.launch.job,
            started: started.collect(),
            failures: std::mem::take(&mut self.failures).into_iter().collect(),
        }));
        self.finish_if_done(now, out);
    }

    pub(in crate::daemon) fn on_trapped(
        &mut self,
        rank: Rank,
        out: &mut Out,
    ) -> Result<(), Unexpected> {
        let Some(proc) = self.procs.get_mut(&rank) else {
            return Ok(());
        };
        proc.life.on_trapped()?;
        let id = proc_id(self.launch.job, rank);
        if self.launch.hold.of(rank) == HoldAt::Nowhere || self.phase != Phase::Running {
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

    /// A proc waits on its way for its debugger. False when it is not to be held there: it is to run on.
    pub(in crate::daemon) fn on_ready(&mut self, rank: Rank, out: &mut Out) -> bool {
        let held = matches!(self.launch.hold.of(rank), HoldAt::Init | HoldAt::App)
            && self.phase == Phase::Running;
        if held {
            out.push_back(Output::Send(ToController::Held {
                job: self.launch.job,
                ranks: RankSet::single(rank),
            }));
        }
        held
    }

    /// These procs are held no longer, nor when they come to their holding point.
    pub(in crate::daemon) fn release(&mut self, ranks: &RankSet, out: &mut Out) {
        let plan = &mut self.launch.hold;
        plan.ranks = Some(plan.among(self.launch.map.ranks()).difference(ranks));
        for (rank, proc) in &mut self.procs {
            if ranks.contains(*rank) && proc.life.on_released() {
                out.push_back(Output::Continue {
                    proc: proc_id(self.launch.job, *rank),
                });
            }
        }
    }

    /// Debuggers have none of these any more. Those that they have let go of run on; what the loss of one means, the user
    /// has said.
    pub(in crate::daemon) fn on_untraced(&mut self, left: &RankSet, lost: RankSet, out: &mut Out) {
        let free = match self.launch.end.on_debugger_loss {
            OnDebuggerLoss::Kill => left.clone(),
            OnDebuggerLoss::Release => left.union(&lost),
        };
        for (rank, proc) in &self.procs {
            if free.contains(*rank) && proc.life.is_alive() {
                out.push_back(Output::Continue {
                    proc: proc_id(self.launch.job, *rank),
                });
            }
        }
        if !lost.is_empty() && self.phase == Phase::Running {
            out.push_back(Output::Send(ToController::DebuggerLost {
                job: self.launch.job,
                ranks: lost,
            }));
        }
    }

    pub(super) fn cancel_starts(&mut self, now: Time, out: &mut Out) {
        let cancelled = std::mem::take(&mut self.to_start);
        if !cancelled.is_empty() {
            // Said once: a rank at a time it would take for ever where there are a million.
            self.fail_fences(now, out);
        }
        for rank in cancelled {
            if let Some(proc) = self.procs.get_mut(&rank) {
                // A proc that waits for its turn is `Starting`, which may fail.
                let _ = proc.life.on_spawn_failed();
            }
            if !planted::is(Bug::CancelledNotSettled) {
                self.settle_without_start(rank, out);
            }
        }
        self.after_start(now, out);
    }
}

/// The terminal of a stream in a job that has so many procs here.
pub(super) fn line_terminal(
    launch: &Launch,
    procs: usize,
    rank: Rank,
    stream: Stream,
) -> Option<LineTerminal> {
    let plan = launch.stream_plan(rank, stream);
    let is_lines = stream == Stream::Stdout && matches!(plan, Plan::Read) && !launch.has_pty(rank);
    launch.stdio.lines.filter(|lines| {
        let is_wanted = match lines.without {
            WithoutTerminal::Fail => true,
            WithoutTerminal::Pipe => procs <= LINE_TERMINALS_MAX,
        };
        is_lines && is_wanted
    })
}

/// What becomes of one stream of one proc, before file names are made.
pub(super) enum Plan<'a> {
    Null,
    WithStdout,
    Read,
    File(&'a crate::spec::Pattern),
}

impl Launch {
    pub(super) fn has_pty(&self, rank: Rank) -> bool {
        self.stdio.pty.is_some_and(|pty| pty.rank == rank)
    }

    /// What a proc reads comes from us.
    pub(super) fn reads_stdin(&self, rank: Rank) -> bool {
        self.is_reader(rank) && self.stdio.input == FrontInput::Readable
    }

    fn is_reader(&self, rank: Rank) -> bool {
        match self.stdin {
            StdinTarget::None => false,
            StdinTarget::Rank(target) => target == rank,
            StdinTarget::All => true,
        }
    }

    pub(super) fn stream_plan(&self, rank: Rank, stream: Stream) -> Plan<'_> {
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
            Destination::ForwardOnly(only) if *only == rank => Plan::Read,
            Destination::ForwardOnly(_) => Plan::Null,
            Destination::Discard => Plan::Null,
            Destination::WithStdout => Plan::WithStdout,
            Destination::File(pattern) => Plan::File(pattern),
        }
    }
}
