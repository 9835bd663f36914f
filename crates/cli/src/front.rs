//! The front: the process that the user started. It handles the terminal, stdio, signals, the MPIR table and the exit code.
//!
//! The front may be stopped for hours, by Ctrl-Z or by a debugger, while the job continues: the controller is a separate
//! process. Front and controller watch each other through their link; whichever survives ends the job.
//!
//! | state | job ended | link closed | all children reaped, all output printed |
//! |---|---|---|---|
//! | `Running` | → `Ended` | kill all descendants → `Orphaned` | – |
//! | `Ended` | – | wait for the controller's exit | exit with the code of the job's outcome |
//! | `Orphaned` | – | – | exit with `INTERNAL`, or `Resources` after a failed system call |
//!
//! `Orphaned` waits for its children for at most `ORPHANS_MAX`.

mod birth;
mod children;
mod debugger;
mod heard;
mod input;
mod output;
mod prompter;
mod signals;
mod site;
mod tool;
pub(crate) mod watchdog;

use std::{
    num::NonZeroU8,
    os::fd::{AsFd, OwnedFd},
    path::Path,
    time::Duration,
};

use base::{JobId, Rank, Signal, Time};
use dvm::{
    escalation::{self, Escalation},
    machine::{Ask, NotDone, Status},
    messages::Scene,
    place::{JobMap, Topologies},
    proto::{
        CannotRun, EndReason, FromFront, JobRef, Outcome, Refusal, TableRow, ToFront, ToolRequest,
    },
    spec::{App, EndPolicy, HoldAt, HoldPlan, JobSpec, LineTerminal},
};
use message::{Message, Severity};
use os::{ChildEvent, Clock, Event, Interest, Loop, Pid, Standing, Token};
use runtime::link::{FrontLink, LinkError, Received};

pub(crate) use self::{
    birth::{Complaints, ForTools, Helpers},
    site::{Errand, Site},
};
use self::{
    children::{children_except, inherited, stopped_controller},
    debugger::Debugger,
    heard::log_message,
    input::{Got, Input},
    output::Printers,
    prompter::Prompter,
    tool::ToolState,
    watchdog::Watchdog,
};
use tracing::{error, info};

use crate::choices::OnLoss;
use crate::machine;
use crate::plan::{Notes, Presenter};
use crate::{
    args::{ExitCodes, FrontOptions, MessageFormat, Verbosity},
    exit, log, messages, surroundings,
};

/// The longest wait for orphaned processes to die of SIGKILL after the loss of the controller.
const ORPHANS_MAX: Duration = Duration::from_secs(2);

#[derive(Debug)]
enum State {
    Running,
    /// The controller has reported how the job ended.
    Ended(Ending),
    /// The controller is gone without a report, and our remaining descendants are being killed.
    Orphaned {
        until: Time,
    },
}

#[derive(Debug)]
enum Ending {
    Refused(Refusal),
    /// The job was only to be placed. This is its map.
    Placed(String),
    Outcome(Outcome),
    /// The machine is up.
    Up(Box<Status>),
    /// The machine cannot be used, and the reason was told.
    NotUp(NotDone),
}

struct Front {
    events: Loop,
    link: FrontLink,
    /// Children that the shell started before it exec'ed this program. The front neither waits for them nor kills them.
    inherited: Vec<Pid>,
    /// Whether the next SIGCONT ends a stop of the front itself (Ctrl-Z), and is not forwarded to the ranks.
    suspended: bool,
    socket: Option<Token>,
    socket_writes: Interest,
    input: Input,
    printers: Printers,
    escalation: Escalation,
    options: FrontOptions,
    state: State,
    errand: Errand,
    /// The id of the job. `None` until the controller has accepted it.
    job: Option<JobId>,
    hold: HoldAt,
    holds_ranks: bool,
    debugger: Debugger,
    tools: ToolState,
    watchdog: Watchdog,
    prompter: Prompter,
    /// Shows the map of the job, if the controller sends it.
    presenter: Option<Presenter>,
    /// The rank whose stdio is a terminal of its own (`--pty`).
    pty: Option<Rank>,
    /// A terminal that is not our controlling terminal: the kernel sends us no SIGHUP when it hangs up.
    terminal: Option<Token>,
    /// The terminal that each rank gets as its stdout, so that it writes each line immediately. `None` if ranks get pipes.
    lines: Option<LineTerminal>,
    table: Vec<TableRow>,
    nodes: Vec<String>,
    apps: Vec<App>,
    end: EndPolicy,
    raw_mode: Option<os::RawMode>,
    /// The errno of a failed write of the ranks' output. Stays `None` if the reader closed the pipe, or the terminal hung
    /// up.
    failed_output: Option<i32>,
    /// The system call failure that made the controller exit, in words.
    failed_controller: Option<CannotRun>,
    give_up: Option<u8>,
}

/// Runs a job and returns the exit code of this process.
pub(crate) fn run(
    mut spec: Box<JobSpec>,
    errand: Errand,
    site: Site,
    mut options: FrontOptions,
    presenter: Option<Presenter>,
) -> Result<u8, os::Error> {
    // Under nohup, SIGHUP is ignored: the user has already decided that a hang-up must not end the job.
    if os::is_ignored(Signal::HUP) {
        options.on_hangup = OnLoss::Continue;
    }
    let debugger = Debugger::at_start();
    let is_tool = matches!(errand, Errand::Tool(..));
    if debugger.was_being_debugged && !is_tool {
        // An explicit `--stop-on-exec`, `--stop-in-init` or `--stop-in-app` takes precedence. By default every rank is held
        // before it runs.
        if spec.hold.at == HoldAt::Nowhere {
            spec.hold = HoldPlan::all(HoldAt::Exec);
        }
    }
    let (nodes, socket, link, inherited) = match site {
        Site::Own(mut helpers, opening) => {
            if let Some(continues) = helpers.on_tool_loss {
                options.on_hangup = continues;
                options.on_output_closed = continues;
            }
            let nodes = opening.allocation.nodes.iter();
            let nodes = nodes.map(|node| node.name.clone()).collect();
            let (Some(socket), Some((output, input))) =
                (helpers.socket.take(), helpers.regions.take())
            else {
                return Ok(exit::INTERNAL);
            };
            let mut link = FrontLink::new(output.into_reader(), input.into_writer());
            link.open(&opening);
            (nodes, socket, link, std::mem::take(&mut helpers.inherited))
        }
        Site::Machine(mut connection) => {
            let nodes;
            (spec, nodes) = match connection.submit(spec) {
                Ok(submitted) => submitted,
                Err((message, code)) => {
                    crate::say(&message, options.message_format);
                    let said = options.exit_error;
                    return Ok(said.map_or_else(|| code.code(), NonZeroU8::get));
                }
            };
            let (link, socket) = connection.into_inquirer().into_link();
            (nodes, socket, link, inherited())
        }
        // The proc table names the nodes.
        Site::Beside(controller) => {
            let (link, socket) = controller.into_link();
            (Vec::new(), socket, link, inherited())
        }
    };
    let mut front = Front::new(&spec, nodes, options, debugger, socket, link, inherited)?;
    front.errand = errand;
    front.presenter = presenter;
    let (apps, nodes) = (front.apps.len(), front.nodes.len());
    match &front.errand {
        Errand::Run => {
            info!(target: log::FRONT, apps, nodes, "submits a job");
            front.link.send(FromFront::Submit(spec));
        }
        // Some of what the machine has said may have been read.
        Errand::RunOnMachine => {
            info!(target: log::FRONT, apps, nodes, "has submitted a job");
            front.take_messages();
        }
        Errand::Up(_) => front.link.send(FromFront::Ask(Box::new(Ask::Ready))),
        Errand::Tool(target, one_per) => {
            info!(target: log::FRONT, "submits a tool");
            front.link.send(FromFront::StartTool(Box::new(ToolRequest {
                target: *target,
                one_per: *one_per,
                spec,
            })));
        }
    }
    front.run()
}

/// Watches for the hang-up of the first of our standard streams that is a terminal but not our controlling terminal.
fn terminal_elsewhere(events: &mut Loop) -> Result<Option<Token>, os::Error> {
    let is_elsewhere = |fd: &OwnedFd| {
        os::is_terminal(fd.as_fd()) && os::standing(fd.as_fd()) == Standing::Elsewhere
    };
    let streams = os::standard_streams()?;
    let found = streams.into_iter().flatten().find(is_elsewhere);
    found.map(|fd| events.add(fd, Interest::HangUp)).transpose()
}

impl Front {
    fn new(
        spec: &JobSpec,
        nodes: Vec<String>,
        options: FrontOptions,
        debugger: Debugger,
        socket: OwnedFd,
        link: FrontLink,
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
        let tools = ToolState::new(options.tools.clone());
        let (apps, end) = (spec.apps.clone(), spec.end);
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
            errand: Errand::Run,
            job: None,
            hold,
            holds_ranks: false,
            debugger,
            tools,
            watchdog,
            prompter: Prompter::new(),
            presenter: None,
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

    /// Puts the terminal into raw mode for `--pty`, so that every key reaches the rank. Does nothing in the background:
    /// raw mode would disturb the foreground process.
    fn take_terminal(&mut self) {
        if self.pty.is_none() || self.raw_mode.is_some() {
            return;
        }
        let Ok([Some(stdin), ..]) = os::standard_streams() else {
            return;
        };
        let stands = |fd| os::standing(fd) != Standing::Background;
        if os::is_terminal(stdin.as_fd()) && stands(stdin.as_fd()) {
            // A terminal that refuses raw mode still works, line by line.
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
                self.prompter.deadline(),
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
            // Guardian and controller stay.
            State::Ended(Ending::Up(_)) => self.printers.idle(),
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
        children_except(&self.inherited)
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Signal(info) if info.signal == Signal::CHLD => self.reap(),
            Event::Signal(info) => self.on_signal(info),
            Event::Deadline => self.on_tick(Clock::now()),
            Event::Readable(token) if Some(token) == self.socket => self.receive(token),
            Event::Readable(token) if self.input.is(token) => self.read_input(),
            Event::Readable(token) | Event::Writable(token) if self.prompter.is(token) => {
                let answer = self.prompter.on_ready(&mut self.events);
                self.send_answer(answer);
            }
            Event::Readable(token) if Some(token) == self.terminal => {
                self.terminal = None;
                drop(self.events.remove(token));
                self.on_terminal_lost();
            }
            Event::Readable(token) if self.watchdog.is(token) => {
                let said = self.watchdog.read(&mut self.events);
                self.printers.queue_lines(&mut self.events, &said);
            }
            Event::Readable(token) => self.on_printed(token),
            // `flush` writes to the socket at the end of each turn of the loop.
            Event::Writable(token) if Some(token) == self.socket => {}
            Event::Writable(token) => self.on_printed(token),
        }
    }

    fn on_tick(&mut self, now: Time) {
        self.input.on_tick(now);
        self.watchdog.on_tick(now, &mut self.events);
        let answer = self.prompter.on_tick(&mut self.events, now);
        self.send_answer(answer);
        self.escalate(now, escalation::Input::Tick);
    }

    /// Returns the controller if it is stopped while the job still needs it.
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
        // A closed link and a failed system call both show at the next read.
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
        // The terminal may also be the input of the ranks.
        let is_busy = self.link.link.has_outgoing() || self.prompter.is_asking();
        self.input.watch(&mut self.events, is_busy);
    }

    fn receive(&mut self, token: Token) {
        let Some(fd) = self.events.fd(token) else {
            return;
        };
        let received = self.link.link.receive(fd);
        self.take_messages();
        if !matches!(received, Ok(Received::Open | Received::Nothing)) {
            self.lose_controller();
        }
    }

    /// Handles the messages that were received.
    fn take_messages(&mut self) {
        loop {
            match self.link.next_message() {
                Ok(Some(message)) => self.on_message(message),
                Ok(None) => return,
                Err(error) => {
                    self.say(&messages::internal(&error.to_string()));
                    return self.lose_controller();
                }
            }
        }
    }

    fn on_message(&mut self, message: ToFront) {
        log_message(&message);
        if !matches!(message, ToFront::Preloading(_)) {
            self.printers.end_progress(&mut self.events);
        }
        match message {
            ToFront::Preloading(progress) => {
                let is_shown = self.options.verbosity != Verbosity::Quiet
                    && self.options.message_format == MessageFormat::Text;
                if is_shown {
                    let line = messages::copying(&progress);
                    self.printers.show_progress(&mut self.events, &line);
                }
            }
            ToFront::Accepted(job) => {
                self.job = Some(job);
                self.printers.set_job(job);
            }
            ToFront::Refused(refusal) => {
                self.end_prompts();
                self.state = State::Ended(Ending::Refused(refusal));
            }
            ToFront::Prompt(prompt) => {
                let answer = self.prompter.show(&mut self.events, prompt);
                self.send_answer(answer);
            }
            ToFront::PromptWithdrawn(id) => self.prompter.withdraw(&mut self.events, id),
            ToFront::Answer(_) => self.say(&messages::internal("an answer to no prompt")),
            ToFront::Placed { map, topologies } => self.on_placed(&map, &topologies),
            ToFront::Launched { job, name, table } => self.on_launched(job, &name, table),
            ToFront::AllHeld { held, .. } => self.on_all_held(held),
            ToFront::Tool(news) => self.on_tool(&news),
            ToFront::Released { held, .. } => {
                self.holds_ranks = !held.is_empty();
                if !self.holds_ranks {
                    self.start_watchdog();
                }
            }
            ToFront::Ending(cause) => {
                let reason = dvm::messages::cause(&cause, &self.scene());
                self.show_abort(&reason);
            }
            // The ranks have exited meanwhile, or another client has released them.
            ToFront::NotReleased(_) => {}
            // Users know a job that does not wait by its process.
            ToFront::Numbered(_) => {}
            ToFront::Holding(_) | ToFront::Lost(_) => {
                self.say(&messages::internal("an answer to no question"));
            }
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
            ToFront::Queued(job) => self.note(&machine::waits(job)),
            ToFront::Reply(reply) => self.on_reply(*reply),
            ToFront::Failed(why) => self.failed_controller = Some(why),
            ToFront::Internal(what) => self.say(&messages::internal(&what)),
            ToFront::Ended(outcome) => {
                self.end_prompts();
                self.input.close(&mut self.events);
                self.watchdog.stop(&mut self.events);
                self.state = State::Ended(Ending::Outcome(outcome));
            }
        }
    }

    /// Shows the map. On stderr, if a job follows, so that stdout contains only the ranks' output.
    fn on_placed(&mut self, map: &JobMap, topologies: &Topologies) {
        let Some(presenter) = &self.presenter else {
            return self.say(&messages::internal("a map that nobody wanted"));
        };
        let text = presenter.text(map, topologies);
        match presenter.notes() {
            Notes::Shown => self.state = State::Ended(Ending::Placed(text)),
            Notes::Apart => {
                let text = crate::shown(&text, self.options.message_format);
                self.printers.queue_lines(&mut self.events, text.as_bytes());
            }
        }
    }

    fn on_launched(&mut self, job: JobId, name: &str, table: Vec<TableRow>) {
        let size = table.last().map_or(1, |row| row.rank.0 + 1);
        self.printers.learn(job, size, &table);
        self.table = table;
        if self.options.verbosity == Verbosity::Verbose {
            self.say(&messages::started(&self.table));
        }
        // The processes of a tool are no ranks that a debugger could want.
        if matches!(self.errand, Errand::Tool(..)) {
            return;
        }
        self.show_table(name);
        self.start_given_tool();
        if self.hold == HoldAt::Nowhere {
            self.check_symbols(mpir::set_state(mpir::State::Spawned));
            self.start_watchdog();
        }
    }

    fn start_watchdog(&mut self) {
        if let Err(why) = self.watchdog.start(&mut self.events) {
            self.say(&messages::not_watched(&why));
        }
    }

    fn release(&mut self) {
        self.holds_ranks = false;
        self.link.send(FromFront::Release {
            job: JobRef::Own,
            ranks: None,
        });
    }

    fn on_printed(&mut self, token: Token) {
        self.printers.on_ready(&mut self.events, token);
        self.check_printers();
    }

    /// Sends credit for output that was printed or dropped.
    fn credit(&mut self) {
        while let Some(credit) = self.printers.credit() {
            self.link.send(FromFront::OutputCredit(credit));
        }
    }

    fn check_printers(&mut self) {
        while let Some((stream, errno)) = self.printers.take_loss() {
            // Every write to a terminal that has hung up fails.
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
            // The ranks get no EOF: it could make them exit before the controller ends them.
            Got::HangUp => self.on_terminal_lost(),
        }
    }

    /// Sends the user's answer to a prompt, if there is one.
    fn send_answer(&mut self, answer: Option<FromFront>) {
        if let Some(answer) = answer {
            self.link.send(answer);
        }
    }

    /// Answers no prompt any more, and restores the terminal.
    fn end_prompts(&mut self) {
        let answer = self.prompter.refuse(&mut self.events);
        self.send_answer(answer);
    }

    fn lose_controller(&mut self) {
        self.end_prompts();
        if let Some(token) = self.socket.take() {
            drop(self.events.remove(token));
        }
        if matches!(self.state, State::Running) {
            error!(target: log::FRONT, "lost the controller");
            self.input.close(&mut self.events);
            self.state = State::Orphaned {
                until: Clock::now() + ORPHANS_MAX,
            };
            self.kill_orphans();
            let message = self.lost_controller();
            self.show_abort(&message.headline);
            self.say(&message);
        }
    }

    /// Kills all our descendants. The guardian does the same, but may itself be gone.
    fn kill_orphans(&self) {
        for child in self.children() {
            let below = os::descendants(child);
            for pid in std::iter::once(child).chain(below) {
                let _ = os::kill(pid, Signal::KILL);
            }
        }
    }

    /// Prints how the job ended, and returns the exit code.
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
            State::Ended(Ending::Placed(text)) => {
                (Vec::new(), crate::print(text, self.options.message_format))
            }
            State::Ended(Ending::Up(status)) => {
                let code = match status.usable {
                    0 => exit::ExitCode::Resources.code(),
                    _ => exit::SUCCESS,
                };
                let directory = match &self.errand {
                    Errand::Up(directory) => directory.as_path(),
                    Errand::Run | Errand::RunOnMachine | Errand::Tool(..) => Path::new(""),
                };
                (machine::up(status, directory), code)
            }
            State::Ended(Ending::NotUp(why)) => (
                vec![dvm::messages::not_done(why)],
                exit::not_done(why).code(),
            ),
            State::Ended(Ending::Outcome(outcome)) => (
                dvm::messages::outcome(outcome, &self.scene()),
                exit::code_of(outcome),
            ),
            State::Running | State::Orphaned { .. } => {
                // The guardian sweeps too, but may have died together with the controller.
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
            State::Ended(Ending::Placed(_) | Ending::Up(_)) => false,
            State::Ended(Ending::Refused(_) | Ending::NotUp(_))
            | State::Running
            | State::Orphaned { .. } => true,
        };
        // A full disk was reported when it happened. Its exit code takes precedence over that of a closed pipe.
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
        let is_tool = matches!(self.errand, Errand::Tool(..));
        for message in messages.iter().filter(|_| !is_told) {
            match message.severity {
                // It has ended with its job.
                Severity::Note if is_tool => self.note(message),
                _ => self.say(message),
            }
        }
        self.drain();
        code
    }

    /// Waits until all output is printed or dropped, or the user's signals make the front give up.
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
            .queue_message(&mut self.events, message, self.options.message_format);
    }
}
