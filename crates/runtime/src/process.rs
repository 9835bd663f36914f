//! One process with several hosts around one event loop: a controller and its local daemons.
//!
//! A controller and a daemon in the same process exchange the values that a wire would carry, over a link with the same
//! bounds. Today there is one daemon, that of the controller's own node.

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, os::fd::AsFd};

use base::{NodeId, Signal, Time};
use dvm::{
    Controller,
    proto::{ToController, ToDaemon},
};
use os::{ChildEvent, Clock, Event, Loop};
use overlay::{Full, InProcess};

use crate::{
    Birth, IGNORED,
    controller::{self, ControllerHost, ControllerSetup, Flushed, broken_link},
    daemon::{self, DaemonHost, DaemonSetup},
    fronts::STARTER,
    link::{self, ControllerLink},
    missing::MissingReports,
    reactor::{Channel, Child, Reactor, Source},
    record::{Record, topology},
};

/// Ranks started in one turn of the loop. Between two turns, events are handled: exits of ranks, messages of fronts,
/// signals.
const SPAWNS_PER_TURN: u32 = 256;
/// Maximum length of the host name within the name of a PMIx server, in characters.
const SERVICE_HOST_MAX: usize = 64;
/// The controller's own node.
const LOCAL: NodeId = NodeId(0);

/// How the process that holds the controller ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The front has got all messages, or there was no job.
    Clean,
    /// The front was lost, or the controller had to give up; the reason was reported.
    Failed,
}

/// Whether the state machines have more output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Progress {
    Done,
    More,
}

/// Whether the loop continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    Next,
    /// The job is over, and all messages were sent.
    Over,
}

/// A daemon in the controller's process.
struct Local {
    host: DaemonHost,
    link: InProcess<ToDaemon, ToController>,
    /// A message for which the link had no room. The daemon is not polled again before it was sent.
    unsent: Option<ToController>,
}

/// The hosts of one process.
pub(crate) struct Process {
    reactor: Reactor,
    controller: ControllerHost,
    daemons: BTreeMap<NodeId, Local>,
    /// A message to a daemon for which its link had no room. The controller is not polled again before it was sent.
    unsent: Option<(NodeId, ToDaemon)>,
    taken: Vec<Event>,
}

/// Runs the job of the front at the other end of `birth.link`, and returns when the job and its processes are gone.
pub(crate) fn run(birth: &mut Birth) -> Result<Exit, os::Error> {
    os::become_subreaper()?;
    let mut reactor = Reactor::new(Loop::new(&IGNORED)?);
    // `record` is dropped last: its file is removed when all hosts are gone.
    let (record, missing) = Record::create(&birth.surroundings);
    let name = service_name(&birth.host, os::random_number()?);
    let setup = DaemonSetup {
        node: LOCAL,
        host: birth.host.clone(),
        topology: topology(&birth.surroundings)?,
        owner: record.owner().to_owned(),
        descriptors: birth.descriptors,
        service: name.clone(),
        session: record.session(),
        region: Some(birth.output.clone()),
    };
    let daemon = DaemonHost::open(setup, &mut reactor)?;
    // Everything above runs while the front still parses its command line.
    let opening = match &birth.link {
        Some(link) => link::receive_opening(link.as_fd()),
        None => Ok(None),
    };
    let (allocation, link) = match opening {
        Ok(Some(opening)) => opening,
        // The front closed the link: there is no job.
        Ok(None) => return Ok(Exit::Clean),
        Err(error) => {
            (birth.report_bug)(&broken_link(&error));
            return Ok(Exit::Failed);
        }
    };
    let Some(socket) = birth.link.take() else {
        return Ok(Exit::Clean);
    };
    os::set_nonblocking(socket.as_fd())?;
    let now = Clock::now();
    let mut controller = ControllerHost::open(
        now,
        Controller::new(allocation, name),
        ControllerLink::new(link, birth.output.clone(), birth.input.clone()),
        socket,
        ControllerSetup {
            front_pid: birth.front_pid,
            session: record.session(),
            report_bug: birth.report_bug,
            missing_reports: MissingReports::of(missing),
        },
        &mut reactor,
    )?;
    controller.take_messages(now, STARTER, &mut reactor);
    let mut process = Process::new(reactor, controller, [(LOCAL, daemon)]);
    let ended = process.run();
    drop(process);
    drop(record);
    Ok(ended)
}

impl Process {
    pub(crate) fn new(
        reactor: Reactor,
        controller: ControllerHost,
        daemons: impl IntoIterator<Item = (NodeId, DaemonHost)>,
    ) -> Self {
        let local = |host| Local {
            host,
            link: InProcess::new(),
            unsent: None,
        };
        let daemons = daemons.into_iter();
        Self {
            reactor,
            controller,
            daemons: daemons.map(|(node, host)| (node, local(host))).collect(),
            unsent: None,
            taken: Vec::new(),
        }
    }

    fn run(&mut self) -> Exit {
        loop {
            match self.turn(None) {
                Ok(Turn::Next) => {}
                Ok(Turn::Over) => return Exit::Clean,
                Err(error) => {
                    self.controller
                        .fail(Clock::now(), &error, &mut self.reactor);
                    return Exit::Failed;
                }
            }
        }
    }

    /// Carries out all that the state machines ask for, waits for events, at most until `limit`, and handles them.
    pub(crate) fn turn(&mut self, limit: Option<Time>) -> Result<Turn, os::Error> {
        let progress = self.pump();
        self.report_missing();
        let flushed = match self.controller.flush(Clock::now(), &mut self.reactor) {
            Flushed::Well => Progress::Done,
            Flushed::More => Progress::More,
        };
        // After `More`, the controller still has to answer the message that was just taken.
        if flushed == Progress::Done && self.controller.is_over() {
            return Ok(Turn::Over);
        }
        // Resume before the wait: a listener that was paused for lack of descriptors may be the only source of the next
        // event.
        if self.reactor.take_closed() {
            self.controller.resume(&mut self.reactor);
            for local in self.daemons.values_mut() {
                local.host.resume(&mut self.reactor);
            }
        }
        let at_once = (progress.max(flushed) == Progress::More).then_some(Time::ZERO);
        let daemons = self.daemons.values().map(|local| local.host.deadline());
        let deadline = [limit, at_once, self.controller.deadline()]
            .into_iter()
            .chain(daemons)
            .flatten()
            .min();
        let mut taken = std::mem::take(&mut self.taken);
        self.reactor.wait(deadline, &mut taken)?;
        let now = Clock::now();
        for event in taken.drain(..) {
            self.on_event(now, event);
        }
        self.taken = taken;
        Ok(Turn::Next)
    }

    fn on_event(&mut self, now: Time, event: Event) {
        match event {
            Event::Signal(info) if info.signal == Signal::CHLD => self.reap(now),
            Event::Signal(_) => {}
            Event::Deadline => {
                for local in self.daemons.values_mut() {
                    local.host.on_tick(now);
                }
                self.controller.on_tick(now, &mut self.reactor);
            }
            Event::Readable(token) => {
                let reactor = &mut self.reactor;
                match reactor.source(token) {
                    Some(Source::Front(front)) => {
                        self.controller.on_front_readable(now, front, reactor);
                    }
                    Some(Source::Control) => self.controller.on_control_readable(now, reactor),
                    Some(Source::Node(node, channel)) => {
                        if let Some(local) = self.daemons.get_mut(&node) {
                            local.host.on_readable(now, token, channel, reactor);
                        }
                        if let Channel::Output(..) = channel {
                            // A chunk may cause a pause or credit, which must take effect before the next read.
                            self.pump();
                        }
                    }
                    None => {}
                }
            }
            Event::Writable(token) => {
                // Writes to fronts are made at the end of the turn.
                if let Some(Source::Node(node, channel)) = self.reactor.source(token)
                    && let Some(local) = self.daemons.get_mut(&node)
                {
                    local
                        .host
                        .on_writable(now, token, channel, &mut self.reactor);
                }
            }
        }
    }

    fn reap(&mut self, now: Time) {
        while let Some(event) = os::reap() {
            match event {
                ChildEvent::Exited { pid, status } => match self.reactor.children.remove(&pid) {
                    Some(Child { node, proc }) => {
                        if let Some(local) = self.daemons.get_mut(&node) {
                            local.host.on_exited(now, proc, status, &mut self.reactor);
                        }
                    }
                    None => {
                        for local in self.daemons.values_mut() {
                            local.host.on_stray_exited(now);
                        }
                    }
                },
                ChildEvent::Stopped { pid, signal } => {
                    if let Some(Child { node, proc }) = self.reactor.children.get(&pid)
                        && let Some(local) = self.daemons.get_mut(node)
                    {
                        local.host.on_stopped(now, *proc, pid, signal);
                    }
                }
            }
        }
    }

    /// Carries out what the state machines ask for, until none has output or `SPAWNS_PER_TURN` ranks were started.
    fn pump(&mut self) -> Progress {
        let mut started = 0;
        while started < SPAWNS_PER_TURN {
            let now = Clock::now();
            // Deliver messages in flight before polling for more, so that no queue fills.
            if self.deliver(now) {
                continue;
            }
            match self.step_daemons(now) {
                daemon::Step::Idle => {}
                daemon::Step::Started => {
                    started += 1;
                    continue;
                }
                daemon::Step::Bug(what) => {
                    self.controller.report_bug(&what);
                    continue;
                }
                daemon::Step::Done | daemon::Step::Send(_) => continue,
            }
            match self.step_controller(now) {
                controller::Step::Idle => return Progress::Done,
                controller::Step::Done | controller::Step::Send(..) => {}
            }
        }
        Progress::More
    }

    /// Delivers one message; returns false when none is in flight.
    fn deliver(&mut self, now: Time) -> bool {
        for (node, local) in &mut self.daemons {
            if let Some(message) = local.link.up.receive() {
                self.controller.on_daemon(now, *node, message);
                return true;
            }
            if let Some(message) = local.link.down.receive() {
                local.host.on_message(now, message);
                return true;
            }
        }
        false
    }

    /// Carries out one step of the first daemon that has output.
    fn step_daemons(&mut self, now: Time) -> daemon::Step {
        for local in self.daemons.values_mut() {
            let step = match local.unsent.take() {
                Some(message) => daemon::Step::Send(message),
                None => local.host.step(now, &mut self.reactor),
            };
            match step {
                daemon::Step::Idle => {}
                daemon::Step::Send(message) => match local.link.up.send(message) {
                    Ok(()) => return daemon::Step::Done,
                    Err(Full(message)) => local.unsent = Some(message),
                },
                other => return other,
            }
        }
        daemon::Step::Idle
    }

    fn step_controller(&mut self, now: Time) -> controller::Step {
        let step = match self.unsent.take() {
            Some((node, message)) => controller::Step::Send(node, message),
            None => self.controller.step(now, &mut self.reactor),
        };
        let controller::Step::Send(node, message) = step else {
            return step;
        };
        let Some(local) = self.daemons.get_mut(&node) else {
            self.controller
                .report_bug(&format!("a message for node {node}, which has no daemon"));
            return controller::Step::Done;
        };
        match local.link.down.send(message) {
            Ok(()) => controller::Step::Done,
            Err(Full(message)) => {
                self.unsent = Some((node, message));
                controller::Step::Idle
            }
        }
    }

    /// Reports to the front what the job has to do without.
    fn report_missing(&mut self) {
        self.controller.report_own_missing(LOCAL);
        for (node, local) in &mut self.daemons {
            let missing = local.host.take_missing();
            self.controller.report_missing(*node, missing);
        }
    }
}

/// Returns the name of the PMIx server of this process. PMIx puts a dot and a semicolon behind it, so it must contain
/// neither.
///
/// The server's jobs are named after it, and MPICH derives the names of its shared memory from the job's name alone. Killed
/// programs leave such memory behind. The name is therefore random in part: it must not repeat when a pid is reused.
fn service_name(host: &str, unique: u64) -> String {
    let host: String = host
        .chars()
        .take_while(|character| *character != '.')
        .filter(|character| !matches!(character, ';' | '@'))
        .take(SERVICE_HOST_MAX)
        .collect();
    let pid = os::current_pid().as_raw();
    format!("rally-{host}-{:08x}-{pid}", unique & 0xffff_ffff)
}
