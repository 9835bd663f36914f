//! One job's procs on one node: phases and timers. Of its submodules, `start` starts procs, `end` ends them, and
//! `environment` sets their variables. `streams` forwards their output and input, and `fence` serves PMI.

mod abandoned;
pub(super) mod beside;
mod end;
mod environment;
mod exits_before_finalize;
mod fence;
mod participation;
mod pushed;
mod start;
mod streams;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    ffi::OsString,
    path::PathBuf,
    sync::Arc,
};

use base::{ExitStatus, Rank, RankSet, Signal, Time, Usage};
use pmix::pmi;

use self::{
    abandoned::{PROC_KILL_MAX, Why},
    beside::Target,
    exits_before_finalize::ExitsBeforeFinalize,
    fence::Gathers,
    participation::PmiParticipation,
    start::Plan,
};
use super::{
    DaemonConfig, Output, OwnNode, Subscription, proc_id,
    service::{Environment, Pushed},
    sweep::Sweep,
};
use crate::{
    life::{Life, State, Unexpected},
    place::Placed,
    planted::{self, Bug},
    proto::{
        Counted, EndClass, LastCall, Launch, Note, Parent, PmiState, StartFailure, Stream,
        ToController, Unenforced,
    },
    spec::{App, HoldAt, NodeGpus},
    stdio::{Assembler, Conduit, Feeder, Flow, InputCredit, Window},
};

type Out = VecDeque<Output>;

/// Progress of the job's end on this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Running,
    Ending {
        kill_at: Time,
    },
    /// SIGKILL was sent. Procs that are still alive at `abandon_at` are abandoned; it is `None` after that.
    Killing {
        abandon_at: Option<Time>,
    },
}

/// The presence of a controller that receives our messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Audience {
    Present,
    /// The controller is gone: output is read and dropped, so that no proc blocks on a write.
    Gone,
}

#[derive(Debug)]
struct Proc {
    placed: Placed,
    life: Life,
    stdout: Assembler,
    stderr: Assembler,
    /// Input for the proc; `None` if the proc reads none, or no more. In a box, because most procs read none.
    feeder: Option<Box<Feeder>>,
    /// True if the proc's end was reported, if it was never started, or if it was abandoned.
    settled: bool,
    /// Pid of the proc's process; `None` until it has been started.
    pid: Option<i32>,
}

/// The state machine of one job's procs on this node.
#[derive(Debug)]
pub(super) struct LocalJob {
    /// Without the apps, unless the launch is shared.
    launch: Arc<Launch>,
    host: String,
    node: base::NodeId,
    /// Those of the node.
    gpus: Option<NodeGpus>,
    /// Index of the node among the nodes of the job.
    node_index: u32,
    /// Node rank of this job's first proc. It is above the node ranks of all jobs that were on the node at the launch.
    first: u32,
    subscription: Subscription,
    procs: BTreeMap<Rank, Proc>,
    /// Number of procs in `procs` that are not settled.
    unsettled: usize,
    to_start: VecDeque<Rank>,
    /// Working directory of each app, by the app's index.
    directories: Vec<OsString>,
    /// Output files that a proc of this job has opened. Used if the first proc that opens a file truncates it.
    opened: BTreeSet<PathBuf>,
    /// The proc that is being started, and where its order said to hold it.
    starting: Option<(Rank, HoldAt)>,
    launched: bool,
    /// Started procs with their pids, by the path of the executable that was found.
    started: BTreeMap<OsString, Vec<(Rank, i32)>>,
    failures: BTreeMap<StartFailure, RankSet>,
    unenforced: Vec<Unenforced>,
    windows: [Window; 2],
    stdin_closed: bool,
    /// Credit for input, over all feeders in `procs`.
    input: InputCredit,
    /// Pushes that wait until their readers have room, and results of pushes that are still to be sent.
    pushed: VecDeque<Pushed>,
    taken: Vec<pushed::Taken>,
    /// PMI server; `None` if the job's facts do not fit the protocol. Procs then find a closed connection. A tool has none.
    pmi: Option<pmi::Server>,
    /// Fences in which ranks on this node wait for ranks on other nodes.
    gathers: Gathers,
    /// Outstanding requests to the controller on behalf of procs that speak PMI.
    asked: BTreeMap<pmi::Ticket, pmi::Kind>,
    /// Ranks that will never join the fence in which others wait, and the latest time to fail it.
    fence_broken: Option<(Vec<Rank>, Time)>,
    participation: PmiParticipation,
    exits_before_finalize: ExitsBeforeFinalize,
    /// Environment variables for PMIx; `None` if the daemon serves no PMIx.
    environment: Option<Environment>,
    /// The processes here of the job beside which this one is.
    target: Target,
    phase: Phase,
    /// Procs that we may not kill, with their pids, and the time at which they are abandoned.
    not_permitted: Option<(Time, BTreeMap<Rank, i32>)>,
    audience: Audience,
    /// What the procs that have exited have used.
    /// The last of SIGSTOP and SIGCONT for all procs was SIGSTOP.
    is_stopped: bool,
    spent: Usage,
    /// What the cgroup of the job has counted, at the last look.
    counted: Option<Counted>,
    sweep: Sweep,
    /// Time of the next check of the procs' timers: no such timer is due earlier.
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

/// What a job is on its node.
#[derive(Debug)]
pub(super) enum Kind {
    /// Its procs are ranks. They find the PMIx server by the environment, if the daemon serves PMIx.
    Application(Option<Environment>),
    /// Its procs are beside these ranks of another job.
    Tool(Target),
}

/// Takes the apps out of a launch, or copies them if daemons of one process share it.
fn take_apps(launch: &mut Arc<Launch>) -> Vec<App> {
    match Arc::get_mut(launch) {
        Some(launch) => std::mem::take(&mut launch.apps),
        None => launch.apps.clone(),
    }
}

/// Returns the PMI server of a job; `None` if it is a tool, or if its facts do not fit the protocol.
fn pmi_server(placed: &[Placed], launch: &Launch, out: &mut Out) -> Option<pmi::Server> {
    if launch.beside.is_some() {
        return None;
    }
    let job = launch.job;
    pmi::Server::new(pmi_config(placed, launch))
        .map_err(|error| out.push_back(Output::Log(format!("job {job} has no PMI: {error}"))))
        .ok()
}

/// Returns what the PMI server of a job has to know.
fn pmi_config(placed: &[Placed], launch: &Launch) -> pmi::Config {
    let ranks = placed.iter().map(|placed| pmi::LocalRank {
        rank: placed.rank,
        appnum: placed.app,
    });
    pmi::Config {
        ranks: ranks.collect(),
        size: launch.size(),
        universe: launch.universe.said,
        kvs_name: launch.nspace.clone(),
        process_mapping: pmi::process_mapping(launch.map.runs()),
        spawned: launch.parent.as_ref().and_then(spawned),
    }
}

impl LocalJob {
    /// Creates the job from a launch. [`Self::start_next`] then starts the procs one after another.
    pub(super) fn launch(
        now: Time,
        config: &DaemonConfig,
        own: OwnNode,
        mut launch: Arc<Launch>,
        kind: Kind,
        out: &mut Out,
    ) -> Self {
        let job = launch.job;
        let (environment, target) = match kind {
            Kind::Application(environment) => (environment, Target::default()),
            Kind::Tool(target) => (None, target),
        };
        let mut apps = take_apps(&mut launch);
        if environment.is_some() {
            choose_pmi(&mut apps);
        }
        let directories = apps.iter().map(|app| app.directory.clone()).collect();
        out.push_back(Output::Prepare {
            job,
            apps,
            limits: launch.limits,
            recorder: launch.recorder,
            beside: launch.job_beside(),
        });
        let OwnNode {
            index: node_index,
            load,
            procs: placed,
        } = own;
        let pmi = pmi_server(&placed, &launch, out);
        let count = placed.len();
        let to_start = placed.iter().map(|placed| placed.rank).collect();
        let procs: BTreeMap<_, _> = placed
            .into_iter()
            .map(|placed| {
                let rank = placed.rank;
                let plans = Stream::BOTH.map(|stream| launch.stream_plan(rank, stream));
                let life = Life::new(|stream| matches!(plans[slot(stream)], Plan::Read));
                let conduit = match start::line_terminal(&launch, count, rank, Stream::Stdout) {
                    Some(_) => Conduit::Terminal,
                    None => Conduit::Pipe,
                };
                let feeder = launch.reads_stdin(rank).then(Box::default);
                let proc = Proc {
                    placed,
                    life,
                    stdout: Assembler::new(conduit),
                    stderr: Assembler::default(),
                    feeder,
                    settled: false,
                    pid: None,
                };
                (rank, proc)
            })
            .collect();
        let readers = procs.values().filter(|proc| proc.feeder.is_some()).count();
        let mut input = InputCredit::new(readers);
        out.push_back(Output::Send(match input.due() {
            Some(bytes) => ToController::StdinCredit { job, bytes },
            None => ToController::StdinClosed { job },
        }));
        let mut job = Self {
            host: config.host.clone(),
            node: config.node,
            gpus: config.resources.gpus.clone(),
            node_index,
            first: load.first,
            subscription: Subscription::of(load, u32::try_from(count).unwrap_or(u32::MAX)),
            unsettled: procs.len(),
            procs,
            to_start,
            directories,
            opened: BTreeSet::new(),
            starting: None,
            launched: false,
            started: BTreeMap::new(),
            failures: BTreeMap::new(),
            unenforced: Vec::new(),
            windows: [Window::default(), Window::default()],
            stdin_closed: input.is_unread(),
            input,
            pushed: VecDeque::new(),
            taken: Vec::new(),
            pmi,
            gathers: Gathers::default(),
            asked: BTreeMap::new(),
            fence_broken: None,
            participation: PmiParticipation::default(),
            exits_before_finalize: ExitsBeforeFinalize::default(),
            environment,
            target,
            phase: Phase::Running,
            not_permitted: None,
            audience: Audience::Present,
            is_stopped: false,
            spent: Usage::default(),
            counted: None,
            sweep: Sweep::new(),
            check_at: None,
            launch,
        };
        if job.descriptors() > config.descriptors {
            job.refuse_all(now, out);
        } else {
            job.list_ranks(config, out);
        }
        job
    }

    /// Returns, once, the ranks that exited with code 0 before `MPI_Finalize`, unless they were already reported as the
    /// cause of the job's end.
    pub(super) fn unfinished(&mut self) -> Option<RankSet> {
        self.exits_before_finalize.take()
    }

    /// Notes what a proc has used.
    pub(super) fn spend(&mut self, used: &Usage) {
        self.spent.add(used);
    }

    /// Notes what the cgroup of the job has counted.
    pub(super) fn count(&mut self, counted: Option<Counted>) {
        self.counted = counted.or(self.counted);
    }

    pub(super) fn spent(&self) -> Usage {
        let counted = self.counted.map(|counted| counted.or(&self.spent));
        counted.unwrap_or(self.spent)
    }

    /// Notes the limits that the node does not enforce.
    pub(super) fn set_unenforced(&mut self, unenforced: Vec<Unenforced>) {
        self.unenforced = unenforced;
    }

    pub(super) const fn is_clean(&self) -> bool {
        self.sweep.is_clean()
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        let due = match self.phase {
            Phase::Ending { .. } if planted::is(Bug::KillAfterGraceForgotten) => None,
            Phase::Ending { kill_at } => Some(kill_at),
            Phase::Killing { abandon_at } => abandon_at,
            Phase::Running => None,
        };
        let abandon_at = self.not_permitted.as_ref().map(|(until, _)| *until);
        [due, abandon_at, self.sweep.deadline(), self.check_at]
            .into_iter()
            .flatten()
            .min()
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
        if status.is_success() && self.participation.on_ended_well(now, rank) {
            self.tell_exited_early(rank, PmiState::NotInitialized, out);
        }
        self.wake_at(self.participation.deadline());
        if self.exits_before_finalize.on_ended(now, rank, status) {
            self.tell_exited_early(rank, PmiState::NotFinalized, out);
        }
        self.wake_at(self.exits_before_finalize.deadline());
        self.fail_broken_fence(now, out);
        self.report_if_done(now, rank, out);
        Ok(())
    }

    /// Passes on what a rank has called last that has failed. One that we have ended says nothing about the failure.
    pub(super) fn on_last_call(&self, rank: Rank, last: LastCall, out: &mut Out) {
        if self.phase == Phase::Running {
            let note = Note::LastCall { rank, last };
            let job = self.launch.job;
            out.push_back(Output::Send(ToController::Note { job, note }));
        }
    }

    /// Reports a rank for which ranks on other nodes may wait.
    fn tell_exited_early(&self, rank: Rank, state: PmiState, out: &mut Out) {
        if self.launch.map.nodes().nth(1).is_some() {
            out.push_back(Output::Send(ToController::ExitedEarly {
                job: self.launch.job,
                state,
                ranks: RankSet::single(rank),
            }));
        }
    }

    /// Handles that ranks on other nodes have exited with code 0, and ranks here may wait for them.
    pub(super) fn on_exited_elsewhere(&mut self, now: Time, state: PmiState) {
        match state {
            PmiState::NotInitialized => {
                self.participation.on_absent_elsewhere(now);
                self.wake_at(self.participation.deadline());
            }
            PmiState::NotFinalized => {
                self.exits_before_finalize.on_left_elsewhere(now);
                self.wake_at(self.exits_before_finalize.deadline());
            }
        }
    }

    pub(super) fn signal(&mut self, signal: Signal, out: &mut Out) {
        // Procs that have no process yet are stopped when they get one.
        match signal {
            Signal::STOP => self.is_stopped = true,
            Signal::CONT => self.is_stopped = false,
            _ => {}
        }
        for (rank, proc) in &self.procs {
            // A held proc is continued only by a release, and not by a SIGCONT that is meant for running procs.
            let held = signal == Signal::CONT
                && matches!(proc.life.state(), State::Tracing | State::Held)
                && self.phase == Phase::Running;
            if proc.life.is_alive() && !held {
                out.push_back(Output::Signal {
                    proc: proc_id(self.launch.job, *rank),
                    signal,
                });
            }
        }
    }

    /// Signals those of the given ranks that are on this node, held or not.
    pub(super) fn signal_ranks(&self, ranks: &RankSet, signal: Signal, out: &mut Out) {
        let named = self.procs.iter().filter(|(rank, _)| ranks.contains(**rank));
        let alive = named.filter(|(_, proc)| proc.life.is_alive());
        out.extend(alive.map(|(rank, _)| Output::Signal {
            proc: proc_id(self.launch.job, *rank),
            signal,
        }));
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
        if let Some((_, ranks)) = self.not_permitted.take_if(|(until, _)| *until <= now) {
            self.abandon(now, &ranks, Why::NotPermitted, out);
        }
        if let Phase::Killing { abandon_at } = &mut self.phase
            && abandon_at.take_if(|at| *at <= now).is_some()
        {
            self.abandon(now, &self.alive(), Why::Stuck, out);
        }
        let action = self.sweep.on_tick(now);
        self.carry_out(action, out);
    }

    /// Checks every proc's timers, and sets the time of the next check.
    fn check_procs(&mut self, now: Time, out: &mut Out) {
        self.check_at = None;
        let ranks: Vec<_> = self.procs.keys().copied().collect();
        for rank in ranks {
            for stream in Stream::BOTH {
                // While we may not read the stream, the rest of a line cannot arrive; its timer restarts with the next
                // credit.
                let shut = self.windows[slot(stream)].flow() == Flow::Shut;
                let Some(proc) = self.procs.get_mut(&rank).filter(|_| !shut) else {
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
        self.tell_absent(now, out);
        self.wake_at(self.participation.deadline());
        self.tell_unfinished(now, out);
        self.wake_at(self.exits_before_finalize.deadline());
    }

    fn check_leak(&mut self, now: Time, rank: Rank, out: &mut Out) {
        let Some(proc) = self.procs.get_mut(&rank) else {
            return;
        };
        // While we may not read, unread output in a pipe cannot be distinguished from a pipe that is merely held open.
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
        self.close_outputs(now, rank, out);
        self.report_if_done(now, rank, out);
    }

    fn report_if_done(&mut self, now: Time, rank: Rank, out: &mut Out) {
        let Some(proc) = self.procs.get(&rank) else {
            return;
        };
        let State::Done { status, drained } = proc.life.state() else {
            return;
        };
        if !self.settle(rank) && !planted::is(Bug::EndedTwice) {
            return;
        }
        let job = self.launch.job;
        out.push_back(Output::Send(ToController::Ended {
            job,
            classes: vec![EndClass {
                status,
                drained,
                ranks: RankSet::single(rank),
            }],
        }));
        self.finish_if_done(now, out);
    }

    fn wake_at(&mut self, at: Option<Time>) {
        self.check_at = self.check_at.into_iter().chain(at).min();
    }
}

/// Returns the PMI facts of a spawned job; `None` unless it was spawned by PMI.
fn spawned(parent: &Parent) -> Option<pmi::Spawned> {
    Some(pmi::Spawned {
        by: parent.nspace.clone(),
        preput: parent.preput.clone()?,
    })
}

/// Sets the variable that selects a PMI for MPICH 5, which otherwise refuses to start where it finds both PMI-1 and
/// PMIx.
fn choose_pmi(apps: &mut [App]) {
    let (name, value) = pmi::CHOICE;
    for app in apps {
        // A choice made by the user takes precedence.
        if app.env.get(name).is_none() {
            app.env.set(name, value);
        }
    }
}
