//! What the user started: terminal, stdio, signals, the MPIR table and the exit code.
//!
//! The front may be stopped for hours, by Ctrl-Z or by a debugger, and the job goes on: the controller lives in a process
//! of its own. Front and controller watch each other through their link; whichever survives ends the job.
//!
//! | state | job ended | link closed | all children gone, all printed |
//! |---|---|---|---|
//! | `Running` | → `Ended` | everything below us is killed → `Orphaned` | – |
//! | `Ended` | – | wait for the controller's exit | over, with the outcome's code |
//! | `Orphaned` | – | – | over, with the code for a lost part |

mod debugger;
mod input;
mod output;
mod signals;
pub(crate) mod watchdog;

use std::{
    os::fd::{AsFd, OwnedFd},
    time::Duration,
};

use base::{JobId, Rank, Signal, Time};
use dvm::{
    alloc::Allocation,
    escalation::{self, Escalation},
    messages::Scene,
    proto::{EndReason, FromFront, JobRef, Outcome, Refusal, TableRow, ToFront},
    spec::{App, EndPolicy, HoldAt, HoldPlan, JobSpec, LineTerminal},
};
use message::Message;
use os::{ChildEvent, Clock, Event, Forked, Interest, Loop, Pid, Standing, Token};
use runtime::{
    Birth,
    link::{FrontLink, LinkError, Received},
};

use self::{
    debugger::Debugger,
    input::{Got, Input},
    output::Printers,
    watchdog::Watchdog,
};
use crate::choices::OnLoss;
use crate::{
    args::{ExitCodes, FrontOptions, MessageFormat, Verbosity},
    exit, messages, surroundings,
};

/// A slot of shared memory takes what is read in one go.
const SLOT_SIZE: usize = 256 * 1024;
/// As many as fill the windows of both streams; memory is used only for those that were filled.
const OUTPUT_SLOTS: u32 = 64;
const INPUT_SLOTS: u32 = 16;
/// After the loss of the controller: how long what it left may take to die of SIGKILL.
const ORPHANS_MAX: Duration = Duration::from_secs(2);

#[derive(Debug)]
enum State {
    Running,
    /// The controller has said how the job ended.
    Ended(Ending),
    /// The controller is gone without a word; what is left below us is being killed.
    Orphaned {
        until: Time,
    },
}

#[derive(Debug)]
enum Ending {
    Refused(Refusal),
    Outcome(Outcome),
}

struct Front {
    events: Loop,
    link: FrontLink,
    /// Children that we had before we started anything: of a shell that exec'ed us. They are no business of ours.
    inherited: Vec<Pid>,
    /// The next SIGCONT ends a stop of our own.
    suspended: bool,
    socket: Option<Token>,
    socket_writes: Interest,
    input: Input,
    printers: Printers,
    escalation: Escalation,
    options: FrontOptions,
    state: State,
    /// Its number, once the controller has accepted it.
    job: Option<JobId>,
    hold: HoldAt,
    held: bool,
    debugger: Debugger,
    watchdog: Watchdog,
    /// The rank with a terminal of its own.
    pty: Option<Rank>,
    /// A terminal that is not our controlling terminal: no signal tells of its hang-up.
    terminal: Option<Token>,
    /// The ranks' stdout is a terminal, as ours is.
    lines: Option<LineTerminal>,
    table: Vec<TableRow>,
    nodes: Vec<String>,
    apps: Vec<App>,
    end: EndPolicy,
    raw_mode: Option<os::RawMode>,
    /// Why what the ranks wrote could not be written, where somebody would have read it.
    failed_output: Option<i32>,
    /// What the system has refused to the controller, which is gone therefore.
    failed_controller: Option<String>,
    give_up: Option<u8>,
}

/// The guardian and the controller before they have a job. They are started first of all, and get ready while the command
/// line is read.
#[derive(Debug)]
pub(crate) struct Helpers {
    /// Our end of the link; gone when the job has taken it over.
    socket: Option<OwnedFd>,
    regions: Option<(os::SharedRegion, os::SharedRegion)>,
    inherited: Vec<Pid>,
}

impl Helpers {
    /// Starts them. Returns only in this process.
    ///
    /// `format` is that of what only stderr can be told.
    pub(crate) fn start(host: &str, format: MessageFormat) -> Result<Self, os::Error> {
        let inherited = os::children();
        let descriptors = os::raise_descriptor_limit();
        os::become_subreaper()?;
        let (ours, theirs) = os::socket_pair()?;
        let output = os::SharedRegion::new(SLOT_SIZE, OUTPUT_SLOTS)?;
        let input = os::SharedRegion::new(SLOT_SIZE, INPUT_SLOTS)?;
        let front_pid = os::current_pid();
        match os::fork()? {
            Forked::Parent(_) => {}
            Forked::Child => {
                drop(ours);
                let_go_of_standard_streams();
                let birth = Birth {
                    front_pid,
                    host: host.to_owned(),
                    link: Some(theirs),
                    admit: match format {
                        MessageFormat::Text => messages::admit_as_text,
                        MessageFormat::Json => messages::admit_as_json,
                    },
                    surroundings: surroundings(),
                    output: output.into_writer(),
                    input: input.into_reader(),
                    descriptors,
                };
                os::exit_at_once(runtime::guard(birth).unwrap_or(exit::INTERNAL));
            }
        }
        drop(theirs);
        runtime::sweep_stale(&surroundings());
        Ok(Self {
            socket: Some(ours),
            regions: Some((output, input)),
            inherited,
        })
    }
}

impl Drop for Helpers {
    /// There is no job: they end by themselves when the link is closed, and are waited for, as anything of ours.
    fn drop(&mut self) {
        let Some(socket) = self.socket.take() else {
            return;
        };
        drop(socket);
        let Ok(mut events) = Loop::new(&[Signal::CHLD]) else {
            return;
        };
        let until = Clock::now() + ORPHANS_MAX;
        let mut taken = Vec::new();
        loop {
            while os::reap().is_some() {}
            let left = !children_beside(&self.inherited).is_empty();
            if !left || Clock::now() >= until || events.wait(Some(until), &mut taken).is_err() {
                return;
            }
        }
    }
}

/// Our children, without those that we had before.
fn children_beside(inherited: &[Pid]) -> Vec<Pid> {
    if !os::has_children() {
        return Vec::new();
    }
    let mut children = os::children();
    // What ranks left behind as another user we cannot end, and whoever may do so does not tell us.
    children.retain(|pid| !inherited.contains(pid) && os::may_signal(*pid));
    children
}

/// The controller, if it is stopped: our child's child, or our child where the guardian is gone. It is a copy of us in the
/// guardian's group; each rank has a group of its own.
fn stopped_controller(children: &[Pid]) -> Option<Pid> {
    let name = os::inspect(os::current_pid())?.name;
    let below = children.iter().flat_map(|child| os::descendants(*child));
    let processes = children.iter().copied().chain(below);
    let controller = processes.filter_map(os::inspect).find(|info| {
        let is_near = children.contains(&info.pid) || children.contains(&info.ppid);
        is_near && info.name == name && info.pgrp != info.pid
    })?;
    (controller.state == 'T').then_some(controller.pid)
}

/// Runs a job and gives the exit code of this process.
pub(crate) fn run(
    mut spec: JobSpec,
    allocation: &Allocation,
    mut options: FrontOptions,
    mut helpers: Helpers,
) -> Result<u8, os::Error> {
    // Whoever runs us under nohup has said already what a hang-up shall mean.
    if os::is_ignored(Signal::HUP) {
        options.on_hangup = OnLoss::Continue;
    }
    let debugger = Debugger::at_start();
    if debugger.has_asked {
        // What the user has said stands; without a word every rank is held before it runs.
        if spec.hold.at == HoldAt::Nowhere {
            spec.hold = HoldPlan::all(HoldAt::Exec);
        }
    }
    let nodes = allocation
        .nodes
        .iter()
        .map(|node| node.name.clone())
        .collect();
    let (Some(socket), Some((output, input))) = (helpers.socket.take(), helpers.regions.take())
    else {
        return Ok(exit::INTERNAL);
    };
    let mut link = FrontLink::new(output.into_reader(), input.into_writer());
    link.open(allocation);
    let inherited = std::mem::take(&mut helpers.inherited);
    Front::new(spec, nodes, options, debugger, socket, link, inherited)?.run()
}

/// A watch for the hang-up of the first of our standard streams that is a terminal but not our controlling terminal.
fn terminal_elsewhere(events: &mut Loop) -> Result<Option<Token>, os::Error> {
    let is_elsewhere = |fd: &OwnedFd| {
        os::is_terminal(fd.as_fd()) && os::standing(fd.as_fd()) == Standing::Elsewhere
    };
    let streams = os::standard_streams()?;
    let found = streams.into_iter().flatten().find(is_elsewhere);
    found.map(|fd| events.add(fd, Interest::HangUp)).transpose()
}

/// The controller must not keep open what the user reads or writes when the front is gone; its stderr it keeps, to say
/// what should not have happened.
fn let_go_of_standard_streams() {
    for number in [0, 1] {
        // Without /dev/null nothing can be started anyway, and that is said by whoever needs it next.
        let _ = os::let_go_of_standard_stream(number);
    }
}

impl Front {
    fn new(
        spec: JobSpec,
        nodes: Vec<String>,
        options: FrontOptions,
        debugger: Debugger,
        socket: OwnedFd,
        mut link: FrontLink,
        inherited: Vec<Pid>,
    ) -> Result<Self, os::Error> {
        let mut events = Loop::new(&signals::taken())?;
        os::set_nonblocking(socket.as_fd())?;
        let socket = events.add(socket, Interest::Read)?;
        let terminal = terminal_elsewhere(&mut events)?;
        let [stdin, stdout, stderr] = os::standard_streams()?;
        let pty = spec.stdio.pty.map(|pty| pty.rank);
        let lines = spec.stdio.lines;
        let input = Input::new(&options.input, stdin)?;
        let printers = Printers::new(&mut events, &options, stdout, stderr)?;
        let hold = spec.hold.at;
        let watchdog = Watchdog::new(&options, spec.end.time_limit);
        let (apps, end) = (spec.apps.clone(), spec.end);
        link.send(FromFront::Submit(Box::new(spec)));
        let escalation = Escalation::new(Clock::now(), &end);
        let mut front = Self {
            events,
            link,
            inherited,
            suspended: false,
            socket: Some(socket),
            socket_writes: Interest::Read,
            input,
            printers,
            escalation,
            options,
            state: State::Running,
            job: None,
            hold,
            held: false,
            debugger,
            watchdog,
            pty,
            terminal,
            lines,
            table: Vec::new(),
            nodes,
            apps,
            end,
            raw_mode: None,
            failed_output: None,
            failed_controller: None,
            give_up: None,
        };
        front.take_terminal();
        Ok(front)
    }

    /// The terminal of `--pty` passes every key on, as long as it is ours: from the background we would take it away
    /// from whoever is in the foreground.
    fn take_terminal(&mut self) {
        if self.pty.is_none() || self.raw_mode.is_some() {
            return;
        }
        let Ok([Some(stdin), ..]) = os::standard_streams() else {
            return;
        };
        let stands = |fd| os::standing(fd) != Standing::Background;
        if os::is_terminal(stdin.as_fd()) && stands(stdin.as_fd()) {
            // A terminal that does not change its mode still carries what is typed, by lines.
            self.raw_mode = os::RawMode::enter(stdin).ok();
            self.printers.set_raw(self.raw_mode.as_ref().and(self.pty));
        }
    }

    fn run(mut self) -> Result<u8, os::Error> {
        let mut events = Vec::new();
        loop {
            self.flush();
            if let Some(code) = self.give_up {
                return Ok(code);
            }
            if self.is_over() {
                return Ok(self.finish());
            }
            let orphans = match self.state {
                State::Orphaned { until } => Some(until),
                State::Running | State::Ended(_) => None,
            };
            let deadlines = [
                orphans,
                self.escalation.deadline(),
                self.input.deadline(),
                self.watchdog.deadline(),
            ];
            let deadline = deadlines.into_iter().flatten().min();
            self.events.wait(deadline, &mut events)?;
            for event in events.drain(..) {
                self.on_event(event);
            }
        }
    }

    fn is_over(&self) -> bool {
        match &self.state {
            State::Running => false,
            State::Ended(_) => {
                self.socket.is_none()
                    && self.watchdog.is_silent()
                    && self.printers.idle()
                    && self.children().is_empty()
            }
            State::Orphaned { until } => {
                self.printers.idle() && (self.children().is_empty() || *until <= Clock::now())
            }
        }
    }

    fn children(&self) -> Vec<Pid> {
        children_beside(&self.inherited)
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Signal(info) if info.signal == Signal::CHLD => self.reap(),
            Event::Signal(info) => self.on_signal(info),
            Event::Deadline => self.on_tick(Clock::now()),
            Event::Readable(token) if Some(token) == self.socket => self.receive(token),
            Event::Readable(token) if self.input.is(token) => self.read_input(),
            Event::Readable(token) if Some(token) == self.terminal => {
                self.terminal = None;
                drop(self.events.remove(token));
                self.on_terminal_lost();
            }
            Event::Readable(token) if self.watchdog.is(token) => {
                let said = self.watchdog.read(&mut self.events);
                self.printers.pass_on(&mut self.events, &said);
            }
            Event::Readable(token) => self.on_printed(token),
            // The socket is written at the end of the turn.
            Event::Writable(token) if Some(token) == self.socket => {}
            Event::Writable(token) => self.on_printed(token),
        }
    }

    fn on_tick(&mut self, now: Time) {
        self.input.on_tick(now);
        self.watchdog.on_tick(now, &mut self.events);
        self.escalate(now, escalation::Input::Tick);
    }

    /// The controller, if it is stopped and the job needs it.
    fn stopped_controller(&self) -> Option<Pid> {
        matches!(self.state, State::Running)
            .then(|| stopped_controller(&self.children()))
            .flatten()
    }

    fn reap(&mut self) {
        while let Some(event) = os::reap() {
            if let ChildEvent::Exited { pid, .. } = event {
                self.inherited.retain(|inherited| *inherited != pid);
                self.watchdog.on_exit(pid);
            }
        }
        if matches!(self.state, State::Orphaned { .. }) {
            self.kill_orphans();
        }
    }

    fn flush(&mut self) {
        self.credit();
        if let Some(message) = self.input.take_end() {
            self.link.send(message);
        }
        let Some(token) = self.socket else { return };
        let Some(fd) = self.events.fd(token) else {
            return;
        };
        // A closed link shows at its next read, an error of the system as well.
        if let Err(error @ LinkError::Wire(_)) = self.link.flush(fd) {
            self.say(&messages::internal(&error.to_string()));
            return self.lose_controller();
        }
        let wanted = if self.link.link.has_outgoing() {
            Interest::ReadWrite
        } else {
            Interest::Read
        };
        if wanted != self.socket_writes && self.events.set_interest(token, wanted).is_ok() {
            self.socket_writes = wanted;
        }
        self.input
            .watch(&mut self.events, self.link.link.has_outgoing());
    }

    fn receive(&mut self, token: Token) {
        let Some(fd) = self.events.fd(token) else {
            return;
        };
        let received = self.link.link.receive(fd);
        loop {
            match self.link.next_message() {
                Ok(Some(message)) => self.on_message(message),
                Ok(None) => break,
                Err(error) => {
                    self.say(&messages::internal(&error.to_string()));
                    return self.lose_controller();
                }
            }
        }
        if !matches!(received, Ok(Received::Open | Received::Nothing)) {
            self.lose_controller();
        }
    }

    fn on_message(&mut self, message: ToFront) {
        match message {
            ToFront::Accepted(job) => {
                self.job = Some(job);
                self.printers.set_job(job);
            }
            ToFront::Refused(refusal) => self.state = State::Ended(Ending::Refused(refusal)),
            ToFront::Launched { job, name, table } => {
                let size = table.last().map_or(1, |row| row.rank.0 + 1);
                self.printers.learn(job, size, &table);
                let entries = table.iter().map(|row| mpir::Entry {
                    host: row.host.clone(),
                    executable: row.executable.to_string_lossy().into_owned(),
                    pid: row.pid,
                });
                let shown = mpir::name_job(&name).and_then(|()| mpir::publish(entries.collect()));
                self.check_symbols(shown);
                self.table = table;
                if self.options.verbosity == Verbosity::Verbose {
                    self.say(&messages::started(&self.table));
                }
                if self.hold == HoldAt::Nowhere {
                    self.check_symbols(mpir::set_state(mpir::State::Spawned));
                    self.start_watchdog();
                }
            }
            ToFront::AllHeld { held, .. } => self.on_all_held(&held),
            ToFront::Released { held, .. } => {
                self.held = !held.is_empty();
                if !self.held {
                    self.start_watchdog();
                }
            }
            ToFront::Ending(cause) => {
                let reason = dvm::messages::cause(&cause, &self.scene());
                self.show_abort(&reason);
            }
            // The ranks have ended or were let go by somebody else meanwhile.
            ToFront::NotReleased(_) => {}
            ToFront::Holding(_) => self.say(&messages::internal("an answer to no question")),
            ToFront::Output { node, chunk } => {
                self.printers.print(&mut self.events, node, &chunk);
                self.check_printers();
            }
            ToFront::StdinCredit(bytes) => self.input.credit(bytes),
            ToFront::StdinClosed => self.input.close(&mut self.events),
            ToFront::Note(note) => {
                let message = dvm::messages::note(&note, &self.scene());
                self.note(&message);
            }
            ToFront::Failed(why) => self.failed_controller = Some(why),
            ToFront::Internal(what) => self.say(&messages::internal(&what)),
            ToFront::Ended(outcome) => {
                self.input.close(&mut self.events);
                self.watchdog.stop(&mut self.events);
                self.state = State::Ended(Ending::Outcome(outcome));
            }
        }
    }

    fn start_watchdog(&mut self) {
        if let Err(why) = self.watchdog.start(&mut self.events) {
            self.say(&messages::not_watched(&why));
        }
    }

    fn release(&mut self) {
        self.held = false;
        self.link.send(FromFront::Release {
            job: JobRef::Own,
            ranks: None,
        });
    }

    fn on_printed(&mut self, token: Token) {
        self.printers.on_ready(&mut self.events, token);
        self.check_printers();
    }

    /// Gives credit for what was printed or thrown away.
    fn credit(&mut self) {
        while let Some(credit) = self.printers.credit() {
            self.link.send(FromFront::OutputCredit(credit));
        }
    }

    fn check_printers(&mut self) {
        while let Some((stream, errno)) = self.printers.take_loss() {
            // A terminal that has hung up fails every write.
            if errno == output::EIO && self.printers.is_terminal(stream) {
                self.on_terminal_lost();
                continue;
            }
            if errno != output::EPIPE {
                self.say(&messages::output_lost(stream, errno));
                self.failed_output = Some(errno);
            }
            if self.options.on_output_closed == OnLoss::End {
                self.link.send(FromFront::End(EndReason::OutputLost));
            }
        }
    }

    fn read_input(&mut self) {
        let slot = self.link.input_slot();
        match self.input.read(&mut self.events, slot) {
            Got::Nothing => {}
            Got::Message(message) => self.link.send(message),
            Got::HangUp if self.options.on_hangup == OnLoss::Continue => {
                self.link.send(FromFront::StdinEof);
            }
            // Ranks that see the end of their input may end well before they are ended.
            Got::HangUp => self.on_terminal_lost(),
        }
    }

    fn lose_controller(&mut self) {
        if let Some(token) = self.socket.take() {
            drop(self.events.remove(token));
        }
        if matches!(self.state, State::Running) {
            self.input.close(&mut self.events);
            self.state = State::Orphaned {
                until: Clock::now() + ORPHANS_MAX,
            };
            self.kill_orphans();
            let message = match (
                &self.failed_controller,
                self.escalation.stopped_controller(),
            ) {
                (Some(why), _) => messages::controller_failed(why),
                (None, Some(pid)) => messages::controller_stopped(Pid::from_raw(pid)),
                (None, None) => messages::controller_lost(),
            };
            self.show_abort(&message.headline);
            self.say(&message);
        }
    }

    /// Ends everything below us: the guardian does the same, but may be lost as well.
    fn kill_orphans(&self) {
        for child in self.children() {
            let below = os::descendants(child);
            for pid in std::iter::once(child).chain(below) {
                let _ = os::kill(pid, Signal::KILL);
            }
        }
    }

    /// The job is over: says how, and gives the exit code.
    fn finish(&mut self) -> u8 {
        if let Some(raw_mode) = &mut self.raw_mode {
            let _ = raw_mode.restore();
            self.printers.set_raw(None);
        }
        let (mut messages, code) = match &self.state {
            State::Ended(Ending::Refused(refusal)) => (
                vec![dvm::messages::refused(refusal)],
                exit::refused(refusal),
            ),
            State::Ended(Ending::Outcome(outcome)) => (
                dvm::messages::outcome(outcome, &self.scene()),
                exit::code_of(outcome),
            ),
            State::Running | State::Orphaned { .. } => {
                // The guardian does it as well, but may have been lost with the controller.
                runtime::sweep_stale(&surroundings());
                let code = match self.failed_controller {
                    Some(_) => exit::ExitCode::Resources.code(),
                    None => exit::INTERNAL,
                };
                (Vec::new(), code)
            }
        };
        let is_error = match &self.state {
            State::Ended(Ending::Outcome(outcome)) => exit::is_error(&outcome.cause),
            State::Ended(Ending::Refused(_)) | State::Running | State::Orphaned { .. } => true,
        };
        // A full disk was said already, and is not that nobody reads.
        let (full, nobody) = (exit::ExitCode::Resources.code(), exit::ExitCode::OutputLost);
        let code = match (self.failed_output, code) {
            (None, code) => code,
            (Some(_), exit::SUCCESS) => full,
            (Some(_), code) if code == nobody.code() => full,
            (Some(_), code) => code,
        };
        let is_told = self.failed_output.is_some() && code == full;
        let code = match self.options.exit_error {
            Some(said) if is_error || is_told => said.get(),
            _ => code,
        };
        if let State::Ended(Ending::Outcome(outcome)) = &self.state
            && self.options.exit_codes == ExitCodes::Printed
        {
            messages.push(messages::exit_codes(outcome));
        }
        for message in &messages {
            if !is_told {
                self.say(message);
            }
        }
        self.drain();
        code
    }

    /// Waits until everything is printed, as long as somebody reads.
    fn drain(&mut self) {
        let mut events = Vec::new();
        while !self.printers.idle() && self.give_up.is_none() {
            if self
                .events
                .wait(self.escalation.deadline(), &mut events)
                .is_err()
            {
                return;
            }
            for event in events.drain(..) {
                match event {
                    Event::Deadline => self.on_tick(Clock::now()),
                    Event::Readable(token) | Event::Writable(token) => {
                        self.printers.on_ready(&mut self.events, token)
                    }
                    Event::Signal(info) if info.signal != Signal::CHLD => self.on_signal(info),
                    _ => {}
                }
            }
        }
    }

    fn scene(&self) -> Scene<'_> {
        Scene {
            job: self.job,
            nodes: &self.nodes,
            table: &self.table,
            apps: &self.apps,
            end: self.end,
        }
    }

    fn note(&mut self, message: &Message) {
        if self.options.verbosity != Verbosity::Quiet {
            self.say(message);
        }
    }

    fn say(&mut self, message: &Message) {
        self.printers
            .say(&mut self.events, message, self.options.message_format);
    }
}
