//! The host of a controller: the links to its fronts, and the socket to which other fronts connect.
//!
//! The caller sends the controller's messages to the daemons ([`Step::Send`]); this module does not know how.

use std::{collections::BTreeSet, net::SocketAddr, os::fd::OwnedFd, path::PathBuf};

use base::{ExitStatus, JobId, NodeId, Time};
use dvm::{
    ControllerInput, ControllerOutput,
    bootstrap::{Addition, CommandId, NotJoined},
    proto::{AskId, CannotRun, FromFront, FrontId, Missing, Note, ToController, ToDaemon, ToFront},
    slurm::{CommandNumber, News},
    spec::HoldAt,
    syslog::SyslogLine,
};
use os::Pid;

use tracing::debug;

use crate::{
    control::{self, Control, IfRefused},
    daemons::Unsendable,
    fronts::{FRONTS_MAX, Fronts, MACHINE_FRONTS_MAX, Outcome, STARTER},
    link::{ControllerLink, LinkError},
    log,
    machine::{MachineHost, epoch},
    machines::ControllerMachine,
    missing::MissingReports,
    preload::{self, FileReader},
    prompts::{Action, PromptHost, Wait},
    reactor::Reactor,
    rendezvous::RendezvousFiles,
    slurm::SlurmCommands,
    syslog,
};

/// Result of one step of a controller.
#[derive(Debug)]
pub(crate) enum Step {
    /// The controller has no output.
    Idle,
    Done,
    Send(NodeId, ToDaemon),
    /// Bytes of a file were read. The caller limits these per turn.
    Read,
    /// A start command waits for the user, or goes on.
    Command(CommandId, Wait),
    /// Start the daemons of further nodes.
    Add(Addition),
}

/// Result of writing to the fronts and serving them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flushed {
    Well,
    /// The controller has got input, and may have output.
    More,
}

/// Parameters of a new controller's host.
#[derive(Debug)]
pub(crate) struct ControllerSetup {
    /// Pid of the front that forked us.
    pub(crate) front_pid: Pid,
    /// Directory for the socket of other fronts; without it there is no socket.
    pub(crate) session: Option<PathBuf>,
    /// Prints a report that cannot be sent to the front.
    pub(crate) report_bug: fn(&str),
    /// What the system has refused so far.
    pub(crate) missing_reports: MissingReports,
    pub(crate) prompts: PromptHost,
    /// `None` if the controller ends with its fronts.
    pub(crate) machine: Option<MachineHost>,
    /// `None` if requests for allocations are not passed to Slurm.
    pub(crate) slurm: Option<SlurmCommands>,
    /// The files by which tools find the PMIx server; `None` if they could not be made.
    pub(crate) tools: Option<RendezvousFiles>,
    /// `None` if no tool controls the launcher.
    pub(crate) control: Option<dvm::Control>,
    pub(crate) beside: BesideController,
}

/// What the daemon in the process of the controller is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BesideController {
    /// Its node belongs to the allocation.
    Node,
    /// It only serves tools.
    Door,
}

impl BesideController {
    /// `local` is the node of the allocation that is here.
    pub(crate) const fn of(local: Option<NodeId>) -> Self {
        match local {
            Some(_) => Self::Node,
            None => Self::Door,
        }
    }
}

/// A controller's state machine and its kernel objects.
pub(crate) struct ControllerHost {
    controller: ControllerMachine,
    fronts: Fronts,
    control: Control,
    files: FileReader,
    setup: ControllerSetup,
}

impl ControllerHost {
    /// Takes over the link and its socket, from which the opening message was read.
    pub(crate) fn open(
        now: Time,
        mut controller: ControllerMachine,
        link: ControllerLink,
        socket: OwnedFd,
        setup: ControllerSetup,
        reactor: &mut Reactor,
    ) -> Result<Self, os::Error> {
        let mut fronts = Fronts::new(match setup.machine {
            Some(_) => MACHINE_FRONTS_MAX,
            None => FRONTS_MAX,
        });
        fronts.add_starter(link, socket, reactor)?;
        controller.handle(now, ControllerInput::Epoch(epoch(now)));
        if let Some(slurm) = &setup.slurm {
            controller.handle(now, ControllerInput::Slurm(slurm.setup()));
        }
        if setup.beside == BesideController::Door {
            controller.handle(now, ControllerInput::Door);
        }
        if let Some(control) = &setup.control {
            controller.handle(now, ControllerInput::Controlled(control.clone()));
        }
        let connected = ControllerInput::FrontConnected {
            front: STARTER,
            pid: number_of(setup.front_pid),
        };
        controller.handle(now, connected);
        let mut host = Self {
            controller,
            fronts,
            control: Control::default(),
            files: FileReader::default(),
            setup,
        };
        if host.setup.machine.is_some() {
            host.admit_fronts(reactor);
        }
        Ok(host)
    }

    /// Returns true if the front that forked us is gone or was sent everything, and no job of another front remains.
    pub(crate) fn is_over(&self) -> bool {
        self.is_done() && self.fronts.are_written()
    }

    /// Returns true if a job runs, or waits in the queue of this machine.
    pub(crate) fn has_jobs(&self) -> bool {
        self.controller.has_jobs()
    }

    /// Returns true if only fronts remain that were not sent everything.
    fn is_done(&self) -> bool {
        // Whoever has started a machine may be stopped for hours, and another front may end it.
        let is_left = !self.fronts.is_there(STARTER) || self.setup.machine.is_some();
        is_left && self.controller.is_idle()
    }

    /// Returns the time at which [`Self::on_tick`] is due.
    pub(crate) fn deadline(&self) -> Option<Time> {
        let deadlines = [
            self.controller.deadline(),
            self.fronts.deadline(),
            self.control.deadline(),
            self.setup.machine.as_ref().and_then(MachineHost::deadline),
        ];
        deadlines.into_iter().flatten().min()
    }

    pub(crate) fn on_tick(&mut self, now: Time, reactor: &mut Reactor) {
        self.controller.handle(now, ControllerInput::Tick);
        self.control.on_tick(now, reactor);
        if let Some(machine) = &mut self.setup.machine {
            machine.on_tick(now);
        }
        for front in self.fronts.overdue(now) {
            self.lose_front(now, front, reactor);
        }
    }

    pub(crate) fn on_watch_exited(&mut self, now: Time, job: JobId, pid: Pid) {
        if let Some(machine) = &mut self.setup.machine {
            machine.on_watch_exited(now, job, pid);
        }
    }

    fn run_command(
        &mut self,
        now: Time,
        number: CommandNumber,
        words: &[String],
        reactor: &mut Reactor,
    ) {
        let started = match &mut self.setup.slurm {
            Some(slurm) => slurm.start(number, words, reactor),
            None => Err("this process does not run in Slurm".to_owned()),
        };
        if let Err(why) = started {
            let input = ControllerInput::Command(number, News::NotRun(why));
            self.controller.handle(now, input);
        }
    }

    pub(crate) fn on_slurm_readable(
        &mut self,
        now: Time,
        number: CommandNumber,
        reactor: &mut Reactor,
    ) {
        let slurm = self.setup.slurm.as_mut();
        if let Some(news) = slurm.and_then(|slurm| slurm.on_readable(number, reactor)) {
            self.controller
                .handle(now, ControllerInput::Command(number, news));
        }
    }

    pub(crate) fn on_slurm_exited(
        &mut self,
        now: Time,
        number: CommandNumber,
        status: ExitStatus,
        reactor: &mut Reactor,
    ) {
        let slurm = self.setup.slurm.iter_mut();
        for news in slurm.flat_map(|slurm| slurm.on_exited(number, status, reactor)) {
            self.controller
                .handle(now, ControllerInput::Command(number, news));
        }
    }

    pub(crate) fn on_daemon(&mut self, now: Time, node: NodeId, message: ToController) {
        let input = ControllerInput::Daemon(node, message);
        self.controller.handle(now, input);
    }

    /// Handles a message of several daemons that was merged.
    pub(crate) fn on_daemons(&mut self, now: Time, nodes: BTreeSet<NodeId>, message: ToController) {
        let input = ControllerInput::Daemons(nodes, message);
        self.controller.handle(now, input);
    }

    /// Handles the loss of a daemon.
    pub(crate) fn on_daemon_lost(&mut self, now: Time, node: NodeId, why: String) {
        let lost = ControllerInput::DaemonLost(node, why);
        self.controller.handle(now, lost);
    }

    /// Handles a message that cannot be sent to some daemons: without it they are of no use.
    pub(crate) fn on_unsendable(&mut self, now: Time, nodes: BTreeSet<NodeId>, error: &Unsendable) {
        for node in nodes {
            let lost = ControllerInput::DaemonLost(node, error.to_string());
            self.controller.handle(now, lost);
        }
    }

    /// Handles a connection to the port for other nodes that was refused.
    pub(crate) fn on_stranger(&mut self, now: Time, from: SocketAddr, why: String) {
        let refused = ControllerInput::Stranger { from, why };
        self.controller.handle(now, refused);
    }

    /// Reports trouble at the port for other nodes.
    pub(crate) fn report(&mut self, what: &str) {
        self.tell(ToFront::Note(Note::Port(what.to_owned())));
    }

    /// Handles that some daemons did not start.
    pub(crate) fn on_not_joined(&mut self, now: Time, failed: NotJoined) {
        self.controller
            .handle(now, ControllerInput::NotJoined(failed));
    }

    pub(crate) fn on_front_readable(&mut self, now: Time, front: FrontId, reactor: &mut Reactor) {
        let received = self.fronts.receive(front, reactor);
        self.take_messages(now, front, reactor);
        self.on_outcome(now, front, received, reactor);
    }

    /// Handles messages of a front that are in the read buffer, such as those behind the opening message.
    pub(crate) fn take_messages(&mut self, now: Time, front: FrontId, reactor: &mut Reactor) {
        while let Served::Message = self.take_message(now, front, reactor) {
            if self.fronts.is_asking(front) {
                return;
            }
        }
    }

    fn take_message(&mut self, now: Time, front: FrontId, reactor: &mut Reactor) -> Served {
        match self.fronts.next_message(now, front) {
            Ok(Some(message)) => {
                self.on_message(now, front, message, reactor);
                Served::Message
            }
            Ok(None) => Served::Nothing,
            Err(error) => {
                self.on_outcome(now, front, Outcome::Broken(error), reactor);
                Served::Nothing
            }
        }
    }

    /// Passes a message on: prompts and answers to their state machine, and only from those who may send them; all others to the
    /// controller.
    fn on_message(&mut self, now: Time, front: FrontId, message: FromFront, reactor: &mut Reactor) {
        let is_asker = self.setup.prompts.is_asker(front);
        match message {
            FromFront::Prompt(asked) if is_asker => self.setup.prompts.ask(front, asked),
            FromFront::Answer(prompt, answer) if front == STARTER => {
                self.setup.prompts.on_answer(prompt, answer);
            }
            _ if is_asker => self.lose_front(now, front, reactor),
            FromFront::Prompt(_) | FromFront::Answer(..) => {
                if front != STARTER {
                    self.lose_front(now, front, reactor);
                }
            }
            message => {
                let input = ControllerInput::Front(front, message);
                self.controller.handle(now, input);
            }
        }
    }

    fn on_outcome(&mut self, now: Time, front: FrontId, outcome: Outcome, reactor: &mut Reactor) {
        match outcome {
            Outcome::Open => {}
            Outcome::Closed => self.lose_front(now, front, reactor),
            Outcome::Broken(error) => {
                // Errors of fronts that have connected are not reported: those processes are not ours.
                if front == STARTER {
                    (self.setup.report_bug)(&broken_link(&error));
                }
                self.lose_front(now, front, reactor);
            }
        }
    }

    fn lose_front(&mut self, now: Time, front: FrontId, reactor: &mut Reactor) {
        if front == STARTER {
            self.setup.prompts.front_lost();
        }
        self.hide_front(front);
        if self.fronts.close(front, reactor) && !self.setup.prompts.lose(front) {
            let lost = ControllerInput::FrontLost(front);
            self.controller.handle(now, lost);
        }
    }

    pub(crate) fn on_control_readable(&mut self, now: Time, reactor: &mut Reactor) {
        while self.has_room() {
            let missing_reports = &mut self.setup.missing_reports;
            let Some(peer) = self.control.accept(now, reactor, missing_reports) else {
                return;
            };
            // The directory of the socket already excludes other users; this is a second check.
            if ![0, os::effective_uid()].contains(&peer.uid) {
                continue;
            }
            if let Some(command) = self.setup.prompts.command_of(peer.pid, reactor) {
                match self.fronts.add_prompting(now, peer, reactor) {
                    Ok(front) => self.setup.prompts.admit(front, command),
                    Err(error) => self.setup.missing_reports.add(Missing::Control, &error),
                }
                continue;
            }
            let pid = number_of(peer.pid);
            match self.fronts.add(now, peer, reactor) {
                Ok(front) => {
                    let connected = ControllerInput::FrontConnected { front, pid };
                    self.controller.handle(now, connected);
                }
                Err(error) => self.setup.missing_reports.add(Missing::Control, &error),
            }
        }
        self.control.pause(now, reactor);
    }

    fn has_room(&self) -> bool {
        self.fronts.has_room(self.setup.prompts.room())
    }

    /// Accepts fronts again: a descriptor or a place among the connections may be free.
    pub(crate) fn resume(&mut self, reactor: &mut Reactor) {
        if self.has_room() {
            self.control.resume(reactor);
        }
    }

    /// Sends a line of a process to the syslog of this host.
    fn log(&mut self, now: Time, node: NodeId, ticket: AskId, line: &SyslogLine) {
        let logged = ControllerInput::Syslogged {
            node,
            ticket,
            result: syslog::send(line),
        };
        self.controller.handle(now, logged);
    }

    /// Carries out the controller's next output.
    pub(crate) fn step(&mut self, now: Time, reactor: &mut Reactor) -> Step {
        if let Some(action) = self.setup.prompts.poll() {
            return self.carry_out(now, action);
        }
        let Some(output) = self.controller.poll() else {
            return Step::Idle;
        };
        match output {
            ControllerOutput::Front(front, message) => {
                match message {
                    ToFront::Accepted(_) => self.show_front(front),
                    ToFront::Launched { .. } => self.open_control_for(IfRefused::Ignore, reactor),
                    _ => {}
                }
                self.fronts.send(front, message);
            }
            ControllerOutput::Daemon(node, message) => {
                self.open_control(&message, reactor);
                return Step::Send(node, message);
            }
            ControllerOutput::ReadFile {
                job,
                path,
                offset,
                length,
            } => {
                let result = self.files.read(path, offset, length);
                let read = ControllerInput::FileRead { job, result };
                self.controller.handle(now, read);
                return Step::Read;
            }
            ControllerOutput::Syslog { node, ticket, line } => self.log(now, node, ticket, &line),
            ControllerOutput::FindFiles { job, wanted } => {
                let result = preload::find(&wanted);
                let found = ControllerInput::FilesFound { job, result };
                self.controller.handle(now, found);
                return Step::Read;
            }
            ControllerOutput::Finished(front) => {
                if front == STARTER {
                    self.setup.prompts.nobody_answers();
                }
                self.fronts.finish(now, front);
                self.hide_front(front);
            }
            ControllerOutput::Log(what) => self.report_bug(&what),
            ControllerOutput::Store(batch) => {
                if let Some(machine) = &self.setup.machine {
                    machine.store(batch);
                }
            }
            ControllerOutput::Fetch { before, most } => {
                if let Some(machine) = &self.setup.machine {
                    machine.fetch(before, most);
                }
            }
            ControllerOutput::CaptureStart(output, start) => {
                if let Some(machine) = &self.setup.machine {
                    machine.open_files(output, start);
                }
            }
            ControllerOutput::Capture { output, bytes } => {
                if let Some(machine) = &self.setup.machine {
                    machine.append(output, bytes);
                }
            }
            ControllerOutput::AddNodes(addition) => return Step::Add(addition),
            ControllerOutput::CaptureEnd(job) => {
                if let Some(machine) = &self.setup.machine {
                    machine.close_files(job);
                }
            }
            ControllerOutput::Watch(watch) => {
                if let Some(machine) = &mut self.setup.machine
                    && let Err(why) = machine.watch(now, &watch, reactor)
                {
                    let input = ControllerInput::NotWatched(watch.job, why);
                    self.controller.handle(now, input);
                }
            }
            ControllerOutput::RunCommand { number, words } => {
                self.run_command(now, number, &words, reactor);
            }
            ControllerOutput::EndCommand(number, urgency) => {
                if let Some(slurm) = &self.setup.slurm {
                    slurm.end(number, urgency);
                }
            }
            ControllerOutput::WatchEnd(job) => {
                if let Some(machine) = &mut self.setup.machine {
                    machine.watch_no_longer(now, job);
                }
            }
        }
        Step::Done
    }

    fn carry_out(&mut self, now: Time, action: Action) -> Step {
        match action {
            Action::Show(prompt) => {
                debug!(target: log::CONTROLLER, host = prompt.host, "a start command asks the user");
                self.tell(ToFront::Prompt(prompt));
            }
            Action::Withdraw(prompt) => self.tell(ToFront::PromptWithdrawn(prompt)),
            Action::Answer(front, answer) => {
                self.fronts.send(front, ToFront::Answer(answer));
                self.fronts.finish(now, front);
            }
            Action::Command(command, wait) => return Step::Command(command, wait),
        }
        Step::Done
    }

    /// Opens the control socket when a job with held ranks is launched.
    fn open_control(&mut self, message: &ToDaemon, reactor: &mut Reactor) {
        if let ToDaemon::Launch(launch) = message
            && launch.hold.at != HoldAt::Nowhere
        {
            self.admit_fronts(reactor);
        }
    }

    /// Opens the control socket, so that other fronts can connect.
    pub(crate) fn admit_fronts(&mut self, reactor: &mut Reactor) {
        self.open_control_for(IfRefused::Report, reactor);
    }

    fn open_control_for(&mut self, if_refused: IfRefused, reactor: &mut Reactor) {
        let session = self.setup.session.as_deref();
        let path = match &self.setup.machine {
            Some(machine) => Some(machine.control()),
            None => session.map(|session| control::path(session, self.setup.front_pid)),
        };
        let missing_reports = &mut self.setup.missing_reports;
        self.control
            .open(path.as_deref(), if_refused, reactor, missing_reports);
    }

    /// Ends the machine with all that runs, if this is one and its front is gone. Without a machine, only the front ends us.
    pub(crate) fn on_terminated(&mut self, now: Time) {
        if self.setup.machine.is_some() && !self.fronts.is_there(STARTER) {
            self.controller.handle(now, ControllerInput::Terminate);
        }
    }

    /// Handles that the tool that has started the launcher is dead.
    pub(crate) fn on_tool_died(&mut self, now: Time) {
        self.controller
            .handle(now, ControllerInput::ControllingToolDied);
    }

    /// Lets tools find the job of a front of the machine, as they find those without a machine.
    fn show_front(&mut self, front: FrontId) {
        let pid = self.fronts.pid_of(front);
        if let (Some(machine), Some(session), Some(pid)) =
            (&mut self.setup.machine, &self.setup.session, pid)
        {
            machine.link(front, session, pid);
            if let Some(tools) = &mut self.setup.tools {
                tools.add_front(front, pid);
            }
        }
    }

    /// The counterpart of [`Self::show_front`].
    fn hide_front(&mut self, front: FrontId) {
        if let Some(machine) = &mut self.setup.machine {
            machine.unlink(front);
        }
        if let Some(tools) = &mut self.setup.tools {
            tools.remove_front(front);
        }
    }

    /// Handles what the thread of the machine has done.
    pub(crate) fn on_machine_readable(&mut self, now: Time) {
        let machine = self.setup.machine.as_ref();
        for answer in machine.map_or_else(Vec::new, MachineHost::answers) {
            self.controller.handle(now, answer);
        }
    }

    /// Reports to the front what the system has refused on a node, or on this host if that is none.
    pub(crate) fn report_missing(&mut self, node: Option<NodeId>, missing: Vec<(Missing, String)>) {
        for (what, why) in missing {
            self.tell(ToFront::Note(Note::Missing { node, what, why }));
        }
    }

    /// Reports to the front what the system has refused to this host. `node` is the controller's own node, if it has one.
    pub(crate) fn report_own_missing(&mut self, node: Option<NodeId>) {
        let missing = self.setup.missing_reports.take();
        self.report_missing(node, missing);
    }

    /// Reports a bug of ours.
    pub(crate) fn report_bug(&mut self, what: &str) {
        if self.fronts.is_there(STARTER) {
            self.tell(ToFront::Internal(what.to_owned()));
        } else {
            (self.setup.report_bug)(what);
        }
    }

    /// Sends the front the error that ends this process. The front waits for this message.
    pub(crate) fn fail(&mut self, now: Time, error: &os::Error, reactor: &mut Reactor) {
        let why = CannotRun::System(error.to_string());
        self.tell(ToFront::Failed(why));
        self.flush(now, reactor);
    }

    /// Sends a message about the controller's process to the front that forked it.
    fn tell(&mut self, message: ToFront) {
        self.fronts.send(STARTER, message);
    }

    /// Writes to the fronts what their sockets take, and handles the next message of fronts that have got their answer.
    pub(crate) fn flush(&mut self, now: Time, reactor: &mut Reactor) -> Flushed {
        let mut flushed = Flushed::Well;
        if self.is_done() {
            self.fronts.finish_all(now);
        }
        for front in self.fronts.all() {
            if self.fronts.is_asking(front)
                && let Served::Message = self.take_message(now, front, reactor)
            {
                flushed = Flushed::More;
                if !self.fronts.is_asking(front) {
                    // A job was submitted: the messages behind it are in the read buffer, and need not wait for answers any
                    // more.
                    self.take_messages(now, front, reactor);
                }
            }
            let outcome = self.fronts.flush(front, reactor);
            if !matches!(outcome, Outcome::Open) {
                flushed = Flushed::More;
                self.on_outcome(now, front, outcome, reactor);
            }
            if self.fronts.is_due(front) {
                flushed = Flushed::More;
            }
        }
        flushed
    }
}

/// Whether a message of a front was handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Served {
    Message,
    Nothing,
}

/// Converts a pid for a message; 0 stands for a process outside our pid namespace, as in the kernel.
fn number_of(pid: Pid) -> u32 {
    u32::try_from(pid.as_raw()).unwrap_or_default()
}

pub(crate) fn broken_link(error: &LinkError) -> String {
    format!("the link to the front is broken: {error}")
}
