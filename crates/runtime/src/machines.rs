//! The state machines of controller and daemon, with a log and a recording of what enters and leaves them.
//!
//! Everything that happens to a job passes through these two places. The log shows names, numbers of ranks and pids, and
//! never the contents of a message. What happens for every piece of input and output is logged at the level `trace`, the
//! rest at `debug`.

use std::{
    fmt::{self, Display as _},
    rc::Rc,
};

use base::{NodeId, Time};
use dvm::{
    Controller, ControllerInput, ControllerOutput, Daemon, DaemonConfig, Input, Output,
    alloc::Allocation,
    proto::{FromFront, ToController, ToDaemon, ToFront},
    recording::Event,
};
use tracing::{Level, debug, enabled, trace};

use crate::{
    log::{self, Name},
    tape::Tape,
};

/// How often an event occurs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rate {
    /// A few times for each job or rank.
    Rare,
    /// For every piece of input or output, or from time to time.
    Frequent,
}

/// Logs an input (`<-`) or an output (`->`) of a state machine.
macro_rules! log {
    ($part:expr, $arrow:literal, $event:expr) => {
        if enabled!(target: $part, Level::DEBUG) {
            match $event.rate() {
                Rate::Rare => debug!(target: $part, "{} {}", $arrow, Shown($event)),
                Rate::Frequent => trace!(target: $part, "{} {}", $arrow, Shown($event)),
            }
        }
    };
}

/// An event that can be logged.
trait Logged {
    fn rate(&self) -> Rate;
    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;
}

struct Shown<'a, T>(&'a T);

impl<T: Logged> fmt::Display for Shown<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.show(f)
    }
}

/// Whether the last event of a state machine in the recording says that it has no output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Idle {
    Recorded,
    NotRecorded,
}

/// A controller that logs and records.
#[derive(Debug)]
pub(crate) struct ControllerMachine {
    controller: Controller,
    tape: Option<Rc<Tape>>,
    idle: Idle,
}

impl ControllerMachine {
    pub(crate) fn new(allocation: Allocation, name: String, tape: Option<Rc<Tape>>) -> Self {
        if let Some(tape) = &tape {
            tape.record(Event::Controller {
                allocation: allocation.clone(),
                name: name.clone(),
            });
        }
        Self {
            controller: Controller::new(allocation, name),
            tape,
            idle: Idle::NotRecorded,
        }
    }

    pub(crate) fn handle(&mut self, now: Time, input: ControllerInput) {
        log!(log::CONTROLLER, "<-", &input);
        if let Some(tape) = &self.tape {
            tape.record(Event::ControllerGets(now, Box::new(input.clone())));
            self.idle = Idle::NotRecorded;
        }
        self.controller.handle(now, input);
    }

    pub(crate) fn poll(&mut self) -> Option<ControllerOutput> {
        let output = self.controller.poll();
        if let Some(tape) = &self.tape {
            match &output {
                Some(output) => {
                    tape.record(Event::ControllerSends(Box::new(output.clone())));
                    self.idle = Idle::NotRecorded;
                }
                None if self.idle == Idle::NotRecorded => {
                    tape.record(Event::ControllerIdle(self.controller.deadline()));
                    self.idle = Idle::Recorded;
                }
                None => {}
            }
        }
        let output = output?;
        log!(log::CONTROLLER, "->", &output);
        Some(output)
    }

    pub(crate) fn deadline(&self) -> Option<Time> {
        self.controller.deadline()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.controller.is_idle()
    }

    pub(crate) fn has_jobs(&self) -> bool {
        self.controller.has_jobs()
    }
}

/// A daemon that logs and records.
#[derive(Debug)]
pub(crate) struct DaemonMachine {
    node: NodeId,
    daemon: Daemon,
    tape: Option<Rc<Tape>>,
    idle: Idle,
}

impl DaemonMachine {
    pub(crate) fn new(config: DaemonConfig, tape: Option<Rc<Tape>>) -> Self {
        if let Some(tape) = &tape {
            tape.record(Event::Daemon(Box::new(config.clone())));
        }
        Self {
            node: config.node,
            daemon: Daemon::new(config),
            tape,
            idle: Idle::NotRecorded,
        }
    }

    pub(crate) fn handle(&mut self, now: Time, input: Input<'_>) {
        log!(log::DAEMON, "<-", &input);
        if let Some(tape) = &self.tape {
            tape.record(Event::DaemonGets(self.node, now, Box::new(input.clone())));
            self.idle = Idle::NotRecorded;
        }
        self.daemon.handle(now, input);
    }

    pub(crate) fn controller_lost(&mut self, now: Time) {
        debug!(target: log::DAEMON, "<- the controller is lost");
        if let Some(tape) = &self.tape {
            tape.record(Event::DaemonLoses(self.node, now));
            self.idle = Idle::NotRecorded;
        }
        self.daemon.controller_lost(now);
    }

    pub(crate) fn poll(&mut self) -> Option<Output> {
        let output = self.daemon.poll();
        if let Some(tape) = &self.tape {
            match &output {
                Some(output) => {
                    tape.record(Event::DaemonSends(self.node, Box::new(output.clone())));
                    self.idle = Idle::NotRecorded;
                }
                None if self.idle == Idle::NotRecorded => {
                    tape.record(Event::DaemonIdle(self.node, self.daemon.deadline()));
                    self.idle = Idle::Recorded;
                }
                None => {}
            }
        }
        let output = output?;
        log!(log::DAEMON, "->", &output);
        Some(output)
    }

    pub(crate) fn deadline(&self) -> Option<Time> {
        self.daemon.deadline()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.daemon.is_idle()
    }
}

impl Logged for ControllerInput {
    fn rate(&self) -> Rate {
        match self {
            Self::Front(_, FromFront::Stdin(_) | FromFront::OutputCredit(_))
            | Self::FileRead { .. }
            | Self::Captured(..)
            | Self::Tick => Rate::Frequent,
            Self::Daemon(_, message) | Self::Daemons(_, message) => rate_of_report(message),
            _ => Rate::Rare,
        }
    }

    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FrontConnected { front, pid } => {
                write!(f, "FrontConnected front={front} pid={pid}")
            }
            Self::Front(front, message) => write!(f, "{} front={front}", Name(message)),
            Self::FrontLost(front) => write!(f, "FrontLost front={front}"),
            Self::Daemon(node, message) => write!(f, "{} node={node}", Name(message)),
            Self::Daemons(nodes, message) => {
                write!(f, "{} nodes={}", Name(message), nodes.len())
            }
            Self::DaemonLost(node, why) => write!(f, "DaemonLost node={node} why={why}"),
            Self::Stranger { from, why } => write!(f, "Stranger from={from} why={why}"),
            Self::FileRead { job, result } => match result {
                Ok(bytes) => write!(f, "FileRead job={job} bytes={}", bytes.len()),
                Err(why) => write!(f, "FileRead job={job} why={why}"),
            },
            Self::FilesFound { job, result } => match result {
                Ok(found) => write!(f, "FilesFound job={job} files={}", found.len()),
                Err(missing) => write!(f, "FilesFound job={job} why={}", missing.why),
            },
            Self::Machine(setup) => {
                write!(
                    f,
                    "Machine name={} stored={}",
                    setup.name,
                    setup.stored.len()
                )
            }
            Self::Stored(result) => match result {
                Ok(()) => write!(f, "Stored"),
                Err(why) => write!(f, "Stored why={why}"),
            },
            Self::Fetched(result) => match result {
                Ok(values) => write!(f, "Fetched values={}", values.len()),
                Err(why) => write!(f, "Fetched why={why}"),
            },
            Self::Captured(output, result) => match result {
                Ok(()) => write!(f, "Captured job={} node={}", output.job, output.node),
                Err(why) => write!(f, "Captured job={} why={why}", output.job),
            },
            Self::Slurm(setup) => write!(f, "Slurm job={}", setup.job),
            Self::Command(number, news) => write!(f, "Command number={number} {}", Name(news)),
            Self::Epoch(epoch) => write!(f, "Epoch ms={}", epoch.0),
            Self::NotWatched(job, why) => write!(f, "NotWatched job={job} why={why:?}"),
            Self::NotJoined(_)
            | Self::Door
            | Self::Tick
            | Self::Terminate
            | Self::Controlled(_)
            | Self::ControllingToolDied => Name(self).fmt(f),
            Self::Syslogged { node, result, .. } => {
                write!(f, "Syslogged node={node} {result:?}")
            }
        }
    }
}

impl Logged for ControllerOutput {
    fn rate(&self) -> Rate {
        match self {
            Self::Front(_, ToFront::Output { .. } | ToFront::StdinCredit(_))
            | Self::ReadFile { .. }
            | Self::Capture { .. } => Rate::Frequent,
            Self::Daemon(_, message) => rate_of_order(message),
            Self::Front(..)
            | Self::Finished(_)
            | Self::Log(_)
            | Self::FindFiles { .. }
            | Self::Syslog { .. }
            | Self::Store(_)
            | Self::CaptureStart(..)
            | Self::CaptureEnd(_)
            | Self::Watch(_)
            | Self::WatchEnd(_)
            | Self::AddNodes(_)
            | Self::RunCommand { .. }
            | Self::EndCommand(..)
            | Self::Fetch { .. } => Rate::Rare,
        }
    }

    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Front(front, message) => write!(f, "{} front={front}", Name(message)),
            Self::Daemon(node, message) => write!(f, "{} node={node}", Name(message)),
            Self::Finished(front) => write!(f, "Finished front={front}"),
            Self::FindFiles { job, wanted } => {
                write!(f, "FindFiles job={job} files={}", wanted.len())
            }
            Self::ReadFile { job, offset, .. } => write!(f, "ReadFile job={job} offset={offset}"),
            Self::Syslog { node, .. } => write!(f, "Syslog node={node}"),
            Self::Store(batch) => write!(f, "Store writes={}", batch.0.len()),
            Self::Fetch { before, most } => write!(f, "Fetch before={before} most={most}"),
            Self::Capture { output, bytes, .. } => {
                write!(f, "Capture job={} bytes={}", output.job, bytes.len())
            }
            Self::CaptureStart(output, _) => write!(f, "CaptureStart job={}", output.job),
            Self::CaptureEnd(job) => write!(f, "CaptureEnd job={job}"),
            Self::Watch(watch) => write!(f, "Watch job={}", watch.job),
            Self::WatchEnd(job) => write!(f, "WatchEnd job={job}"),
            Self::AddNodes(addition) => {
                write!(f, "AddNodes nodes={}", addition.nodes.len())
            }
            Self::RunCommand { number, words } => {
                write!(f, "RunCommand number={number} {}", words.join(" "))
            }
            Self::EndCommand(number, urgency) => {
                write!(f, "EndCommand number={number} {urgency:?}")
            }
            Self::Log(_) => Name(self).fmt(f),
        }
    }
}

const fn rate_of_report(message: &ToController) -> Rate {
    match message {
        ToController::Output { .. }
        | ToController::StdinCredit { .. }
        | ToController::Preload { .. } => Rate::Frequent,
        _ => Rate::Rare,
    }
}

const fn rate_of_order(message: &ToDaemon) -> Rate {
    match message {
        ToDaemon::Stdin { .. } | ToDaemon::OutputCredit { .. } | ToDaemon::Preload { .. } => {
            Rate::Frequent
        }
        _ => Rate::Rare,
    }
}

impl Logged for Input<'_> {
    fn rate(&self) -> Rate {
        match self {
            Self::Message(message) => rate_of_order(message),
            Self::Output { .. }
            | Self::StdinWritten { .. }
            | Self::Pmi { .. }
            | Self::ClientBytes { .. }
            | Self::Tick => Rate::Frequent,
            _ => Rate::Rare,
        }
    }

    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Name(self);
        match self {
            Self::Message(message) => Name(message).fmt(f),
            Self::Spawned { proc, pid, .. } | Self::NotPermitted { proc, pid } => {
                write!(f, "{name} proc={proc} pid={pid}")
            }
            Self::SpawnFailed { proc, failure } => {
                let (step, errno) = (failure.step, failure.errno);
                write!(f, "{name} proc={proc} step={step:?} errno={errno}")
            }
            Self::Exited { proc, end } => write!(f, "{name} proc={proc}: {}", end.status),
            Self::Output {
                proc,
                stream,
                bytes,
            } => {
                let length = bytes.len();
                write!(f, "{name} proc={proc} stream={stream:?} bytes={length}")
            }
            Self::OutputEnded { proc, stream } => write!(f, "{name} proc={proc} stream={stream:?}"),
            Self::Pmi { proc, bytes } => write!(f, "{name} proc={proc} bytes={}", bytes.len()),
            Self::LastCall { proc, .. }
            | Self::Trapped { proc }
            | Self::StdinWritten { proc }
            | Self::StdinBroken { proc }
            | Self::PmiClosed { proc } => write!(f, "{name} proc={proc}"),
            Self::ClientAccepted { conn, .. }
            | Self::ClientClosed { conn }
            | Self::Called { conn, .. } => {
                write!(f, "{name} client={}", conn.0)
            }
            Self::ClientBytes { conn, bytes } => {
                write!(f, "{name} client={} bytes={}", conn.0, bytes.len())
            }
            Self::Unenforced { job, unenforced } => {
                write!(f, "{name} job={job}: {unenforced:?}")
            }
            Self::Unstartable { job, .. } | Self::Untraced { job, .. } => {
                write!(f, "{name} job={job}")
            }
            Self::Swept { job, left, .. } => write!(f, "{name} job={job} left={left:?}"),
            Self::Measured { job, .. } | Self::FilesActed { job, .. } => {
                write!(f, "{name} job={job}")
            }
            Self::Syslogged { result, .. } => write!(f, "{name} {result:?}"),
            Self::DaemonMeasured { .. } | Self::StrayExited | Self::Tick => name.fmt(f),
        }
    }
}

impl Logged for Output {
    fn rate(&self) -> Rate {
        match self {
            Self::Send(message) => rate_of_report(message),
            Self::Pause { .. }
            | Self::Resume { .. }
            | Self::WriteStdin { .. }
            | Self::PmiSend { .. }
            | Self::ClientSend { .. } => Rate::Frequent,
            _ => Rate::Rare,
        }
    }

    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Name(self);
        match self {
            Self::Send(message) => write!(f, "{name} {}", Name(message)),
            Self::Spawn(order) => write!(f, "{name} proc={}", order.proc),
            Self::Signal { proc, signal } => write!(f, "{name} proc={proc} signal={signal}"),
            Self::Pause { proc, stream }
            | Self::Resume { proc, stream }
            | Self::CloseOutput { proc, stream } => {
                write!(f, "{name} proc={proc} stream={stream:?}")
            }
            Self::WriteStdin { proc, bytes } => {
                write!(f, "{name} proc={proc} bytes={}", bytes.len())
            }
            Self::PmiSend { proc, bytes } => write!(f, "{name} proc={proc} bytes={}", bytes.len()),
            Self::Continue { proc }
            | Self::CloseStdin { proc }
            | Self::PmiClose { proc }
            | Self::Resize { proc, .. } => write!(f, "{name} proc={proc}"),
            Self::ClientSend { conn, bytes } => {
                write!(f, "{name} client={} bytes={}", conn.0, bytes.len())
            }
            Self::ClientClose { conn } => write!(f, "{name} client={}", conn.0),
            Self::Prepare { job, .. }
            | Self::Forget { job }
            | Self::Files { job, .. }
            | Self::Measure { job, .. } => {
                write!(f, "{name} job={job}")
            }
            Self::Sweep { job, signal } => write!(f, "{name} job={job} signal={signal:?}"),
            Self::MakeFile { .. }
            | Self::MakeDirectory { .. }
            | Self::RemoveFiles { .. }
            | Self::MeasureDaemon { .. }
            | Self::Syslog { .. }
            | Self::Log(_) => name.fmt(f),
        }
    }
}
