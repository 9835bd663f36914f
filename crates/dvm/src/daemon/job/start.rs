//! Starting procs one after another, and holding and releasing them.

use std::{collections::BTreeMap, ffi::OsString, path::PathBuf, sync::Arc};

use base::{Rank, RankSet, Signal, Time};

use super::{LocalJob, Out, Phase, Proc, abandoned::PROC_KILL_MAX, slot};
use crate::{
    daemon::{Output, PmiConnection, SpawnOrder, StreamPlan, proc_id},
    life::Unexpected,
    planted::{self, Bug},
    proto::{Launch, StartFailure, StartStep, Started, Stream, ToController},
    spec::{
        Destination, FrontInput, HoldAt, LineTerminal, OnDebuggerLoss, OpenMode, PatternFacts,
        StdinTarget, WithoutTerminal,
    },
    stdio::Flow,
};

/// The errno for "too many open files".
const EMFILE: i32 = 24;
/// Maximum number of procs of one job on this node that get a terminal for stdout where a pipe would do as well. A node
/// has 4,096 terminals for all its users (`kernel.pty.max`).
const LINE_TERMINALS_MAX: usize = 512;
/// Descriptors that a daemon needs in addition to those of its procs: its own, and those used while starting one proc.
const DESCRIPTORS_OWN: u64 = 32;

impl LocalJob {
    /// Returns the number of descriptors that the daemon has open while all procs run.
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

    /// Starts no procs, because some apps cannot be started. `failures` has the reasons by the app's index.
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

    /// Starts no procs, because they cannot all run simultaneously. This is detected before the first start rather than
    /// halfway through.
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

    /// Requests the start of the next proc, unless one is being started.
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

    /// Returns the plan for an output file. Unless files are appended to, the first proc that opens the file truncates
    /// it.
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

    /// Returns the plan for one output stream of a proc.
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
        // The controller has already expanded every pattern once, so an invalid one was refused before the start.
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
                // The proc itself stops when it reaches that point.
                HoldAt::Nowhere | HoldAt::Init | HoldAt::App => HoldAt::Nowhere,
            },
            pmi: match &self.launch.beside {
                Some(_) => PmiConnection::None,
                None => PmiConnection::Open,
            },
        })
    }

    /// Returns the terminal for a stream that we read and whose proc has no pty of its own, if it is to be a terminal.
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
        // Use the hold that was ordered: a release may have arrived since then.
        let hold = self
            .starting
            .take()
            .map_or(HoldAt::Nowhere, |(_, hold)| hold);
        if let Some(proc) = self.procs.get_mut(&rank) {
            proc.life.on_spawned(hold)?;
            proc.pid = Some(pid);
            if self.is_stopped {
                out.push_back(Output::Signal {
                    proc: proc_id(self.launch.job, rank),
                    signal: Signal::STOP,
                });
            }
            self.started
                .entry(executable)
                .or_default()
                .push((rank, pid));
            // If the job began to end while this proc was being started, that applies to this proc as well.
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
                        abandon_at: Some(now + PROC_KILL_MAX),
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
        // An error with a program or its directory affects every rank of the app. They fail together in one message; no
        // further ranks are started at all.
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

    /// Marks a proc as needing no further work. Returns true on the first call for this proc.
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
            unenforced: std::mem::take(&mut self.unenforced),
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
            // The proc was released before it reached its holding point, or it must run to handle a pending SIGTERM.
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

    /// Handles a proc that waits in init or in the application for a debugger. Returns false if it is not to be held
    /// there and must continue.
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

    /// Releases procs: those that are held continue, and the others will not be held.
    pub(in crate::daemon) fn release(&mut self, ranks: &RankSet, out: &mut Out) {
        let launch = Arc::make_mut(&mut self.launch);
        let plan = &mut launch.hold;
        plan.ranks = Some(plan.among(launch.map.ranks()).difference(ranks));
        for (rank, proc) in &mut self.procs {
            if ranks.contains(*rank) && proc.life.on_released() {
                out.push_back(Output::Continue {
                    proc: proc_id(self.launch.job, *rank),
                });
            }
        }
    }

    /// Handles procs that no debugger traces any more. Those whose debugger detached (`left`) continue. For those whose
    /// debugger died (`lost`) the user's policy decides.
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
            // Fail the fences once, and not once per rank: that would take too long for a million ranks.
            self.fail_fences(now, out);
        }
        for rank in cancelled {
            if let Some(proc) = self.procs.get_mut(&rank) {
                // A proc that waits to be started is `Starting`, and that state accepts the event.
                let _ = proc.life.on_spawn_failed();
            }
            if !planted::is(Bug::CancelledNotSettled) {
                self.settle_without_start(rank, out);
            }
        }
        self.after_start(now, out);
    }
}

/// Returns the terminal for a stream of a job that has `procs` procs on this node; `None` if it gets none.
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

/// The destination of one output stream of one proc, before file names are expanded.
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

    /// Returns true if the proc's stdin is fed by us.
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
