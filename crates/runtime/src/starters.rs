//! The commands that start the daemons of other nodes: their processes, what they are told, and what they print.
//!
//! [`Starters`] belongs to the head, and has the state machine that decides. [`delegate`] runs commands at a daemon, which the
//! state machine has ordered by messages. Both run them with [`commands`].

mod commands;
mod delegate;

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt as _,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

use base::{NodeId, Time};
use dvm::{
    bootstrap::{
        Addition, Bootstrap, CommandId, DaemonPlan, Delivery, Input, NotJoined, Output, Part,
        Place, Prompting, StartCommand, stage,
    },
    proto::{FromStarter, ToStarter},
};
use tracing::{debug, warn};

use self::commands::{Commands, FrameDirectory, Order, READS_PER_TURN, Stdin, Taken};
pub(crate) use self::commands::{c_strings, variable};
pub(crate) use self::delegate::{Delegate, DelegateSetup};
use crate::{
    boot::{Boot, BootNode},
    log,
    preload::{FRAME_DIRECTORY, link_frame, remove_old_frames},
    program::OwnFile,
    prompts::{ASKPASS, Wait},
    reactor::Reactor,
};

/// The word in a command that stands for the path of the file with the boot frame.
const FILE_WORD: &str = "{file}";
/// The shell that runs our scripts, whatever the login shell is.
const SHELL: &str = "/bin/sh";
/// The variables by which ssh finds the program that asks, and asks by it although it might have a terminal.
const SSH_PROGRAM: &str = "SSH_ASKPASS";
const SSH_REQUIRE: &str = "SSH_ASKPASS_REQUIRE";
/// The file with the boot frame, in a directory of its own.
const FILE_NAME: &str = "frame";

/// News of the start of daemons.
#[derive(Debug)]
pub(crate) enum News {
    GiveUp(NodeId),
    /// These nodes do not have our program, and get it.
    Copying(Vec<NodeId>),
    Failed(NotJoined),
    /// A message for a daemon that runs commands.
    Order(NodeId, ToStarter),
}

/// The start of daemons and its processes.
#[derive(Debug)]
pub(crate) struct Starters {
    bootstrap: Bootstrap,
    commands: Commands,
    /// What every daemon is told; the nodes differ by command.
    boot: Boot,
    hosts: Vec<String>,
    /// Directory beside the record of this process, for links to boot frames.
    session: Option<PathBuf>,
    /// The control socket, to which the prompts of commands go. `None` if nothing is asked.
    prompts: Option<PathBuf>,
}

impl Starters {
    /// Begins to start the daemons. `hosts` are the names of all nodes.
    pub(crate) fn new(
        now: Time,
        plan: DaemonPlan,
        hosts: Vec<String>,
        boot: Boot,
        program: Option<OwnFile>,
        log: Option<&log::Elsewhere>,
    ) -> Result<Self, os::Error> {
        Ok(Self {
            bootstrap: Bootstrap::new(now, plan, hosts.clone()),
            commands: Commands::new(program, log.map(|log| log.pass_on))?,
            boot,
            hosts,
            session: None,
            prompts: None,
        })
    }

    /// Lets the daemons record too, into files that are named after this one.
    pub(crate) fn with_recording(mut self, file: Option<PathBuf>) -> Self {
        self.boot.recording = file;
        self
    }

    /// Gives the commands these limits of descriptors: soft and hard.
    pub(crate) fn with_descriptors(mut self, limits: (u64, u64)) -> Self {
        self.commands = self.commands.with_descriptors(limits);
        self
    }

    /// Lets whoever removes the record of this process remove its boot frames too.
    pub(crate) fn with_session(mut self, session: Option<PathBuf>) -> Self {
        self.session = session;
        self
    }

    /// Lets commands that may ask do so through the control socket at this path.
    pub(crate) fn with_prompts(mut self, socket: Option<PathBuf>) -> Self {
        self.prompts = socket;
        self
    }

    /// Notes that a command waits for the user, or goes on.
    pub(crate) fn on_wait(&mut self, now: Time, command: CommandId, wait: Wait) {
        let input = match wait {
            Wait::Asks => Input::Asks(command),
            Wait::GoesOn => Input::GoesOn(command),
        };
        self.bootstrap.handle(now, input);
    }

    /// Uses the nodes whose processes join, and reports each failure by itself.
    pub(crate) fn with_those_that_join(mut self) -> Self {
        self.bootstrap = self.bootstrap.with_those_that_join();
        self
    }

    /// Uses the nodes that join, and takes further ones.
    pub(crate) fn of_machine(mut self) -> Self {
        self.bootstrap = self.bootstrap.of_machine();
        self
    }

    /// Starts the daemons of further nodes.
    pub(crate) fn add(&mut self, now: Time, addition: Addition) {
        for (node, host) in &addition.nodes {
            self.hosts.resize(node.0 as usize, String::new());
            self.hosts.push(host.clone());
        }
        self.bootstrap.add(now, addition);
    }

    pub(crate) fn deadline(&self) -> Option<Time> {
        self.bootstrap.deadline()
    }

    pub(crate) fn on_tick(&mut self, now: Time) {
        self.bootstrap.handle(now, Input::Tick);
    }

    pub(crate) fn on_joined(&mut self, now: Time, node: NodeId) {
        self.bootstrap.handle(now, Input::Joined(node));
    }

    /// Returns what a lost daemon, or its start command, has printed since it joined.
    pub(crate) fn last_words(
        &mut self,
        now: Time,
        node: NodeId,
        reactor: &mut Reactor,
    ) -> Option<String> {
        let command = self.bootstrap.started(node)?;
        self.on_readable(now, command, reactor);
        self.bootstrap.last_words(node)
    }

    /// Notes that a daemon is lost.
    pub(crate) fn on_lost(&mut self, now: Time, node: NodeId) {
        self.bootstrap.handle(now, Input::Lost(node));
    }

    /// Handles news of a command that a daemon runs.
    pub(crate) fn on_news(&mut self, now: Time, node: NodeId, news: FromStarter) {
        if let FromStarter::Exited { command, status } = &news {
            debug!(target: log::BOOTSTRAP, command, %node, "the command of a daemon has ended: {status}");
        }
        self.bootstrap.handle_from(now, node, news.into());
    }

    /// Notes that the session is over: the commands exit by themselves, or are killed.
    pub(crate) fn end(&mut self, now: Time) {
        self.bootstrap.handle(now, Input::Over);
    }

    /// Returns true if no command runs.
    pub(crate) fn is_over(&self) -> bool {
        self.bootstrap.is_over()
    }

    /// Reads what a command has printed, at most a full pipe: an event for the rest follows.
    pub(crate) fn on_readable(&mut self, now: Time, command: CommandId, reactor: &mut Reactor) {
        for _ in 0..READS_PER_TURN {
            let Some(bytes) = self.commands.read(command, reactor) else {
                return;
            };
            self.bootstrap
                .handle(now, Input::Printed { command, bytes });
        }
    }

    pub(crate) fn on_exited(
        &mut self,
        now: Time,
        command: CommandId,
        status: base::ExitStatus,
        reactor: &mut Reactor,
    ) {
        debug!(target: log::BOOTSTRAP, command, "the command has ended: {status}");
        self.on_readable(now, command, reactor);
        self.commands.remove(command, reactor);
        self.bootstrap
            .handle(now, Input::Exited { command, status });
    }

    /// Carries out what the state machine asks for, and returns the next news.
    pub(crate) fn step(&mut self, now: Time, reactor: &mut Reactor) -> Option<News> {
        while let Some(output) = self.bootstrap.poll() {
            match output {
                Output::Start(Place::Head, command) => {
                    let plan = self.bootstrap.plan().commands.get(command as usize);
                    let nodes = plan.map_or(0, |plan| plan.nodes.len());
                    debug!(target: log::BOOTSTRAP, command, nodes, "starts a command");
                    if let Err(why) = self.start(command, reactor) {
                        warn!(target: log::BOOTSTRAP, command, "cannot start the command: {why}");
                        self.bootstrap
                            .handle(now, Input::NotStarted { command, why });
                    }
                }
                Output::Start(Place::Daemon(at), command) => {
                    debug!(target: log::BOOTSTRAP, command, %at, "lets a daemon start a command");
                    match self.order(command) {
                        Some(order) => return Some(News::Order(at, order)),
                        None => {
                            let why = "there is no such command".to_owned();
                            let input = Input::NotStarted { command, why };
                            self.bootstrap.handle_from(now, at, input);
                        }
                    }
                }
                Output::Send(Place::Head, command, part) => {
                    self.send(now, command, part, reactor);
                    if part == Part::Program {
                        return Some(News::Copying(self.nodes(command)));
                    }
                }
                Output::Send(Place::Daemon(at), command, part) => {
                    return Some(News::Order(at, ToStarter::Send { command, part }));
                }
                Output::Kill(Place::Head, command) => self.commands.kill(command),
                Output::Kill(Place::Daemon(at), command) => {
                    return Some(News::Order(at, ToStarter::Kill { command }));
                }
                Output::GiveUp(node) => {
                    debug!(target: log::BOOTSTRAP, %node, "gives up");
                    return Some(News::GiveUp(node));
                }
                Output::Failed(failed) => {
                    warn!(target: log::BOOTSTRAP, "some nodes cannot be used");
                    return Some(News::Failed(failed));
                }
            }
        }
        None
    }

    /// Returns the nodes of a command.
    fn nodes(&self, command: CommandId) -> Vec<NodeId> {
        let plan = self.bootstrap.plan().commands.get(command as usize);
        plan.map_or_else(Vec::new, |plan| plan.nodes.clone())
    }

    /// Returns the message that lets a daemon run a command.
    fn order(&self, command: CommandId) -> Option<ToStarter> {
        let plan = self.bootstrap.plan().commands.get(command as usize)?;
        let node = *plan.nodes.first()?;
        Some(ToStarter::Start {
            command,
            argv: plan.elsewhere.clone()?,
            node,
            host: self.hosts.get(node.0 as usize)?.clone(),
        })
    }

    /// Continues to write the standard input of a command.
    pub(crate) fn on_writable(&mut self, now: Time, command: CommandId, reactor: &mut Reactor) {
        let taken = self.commands.on_writable(command, reactor);
        self.on_taken(now, command, taken);
    }

    fn on_taken(&mut self, now: Time, command: CommandId, taken: Taken) {
        if taken == Taken::Some {
            self.bootstrap.handle(now, Input::Taken(command));
        }
    }

    fn send(&mut self, now: Time, command: CommandId, part: Part, reactor: &mut Reactor) {
        let bytes = match part {
            Part::Program => Ok(Vec::new()),
            Part::Script => Ok(stage::script(&self.boot.program)),
            Part::Hash => Ok(self.commands.hash_line()),
            Part::Frame => self.frame(command),
        };
        match bytes {
            Ok(bytes) => {
                let taken = self.commands.send(command, part, bytes, reactor);
                self.on_taken(now, command, taken);
            }
            Err(why) => self
                .bootstrap
                .handle(now, Input::NotStarted { command, why }),
        }
    }

    /// Returns the environment of a command. ssh runs our program to ask (since OpenSSH 8.4), in place of a window of the user's.
    fn environment(&self, start: &StartCommand) -> Vec<OsString> {
        let plan = self.bootstrap.plan();
        let is_ours = |entry: &OsString| {
            let name = entry.as_bytes().split(|byte| *byte == b'=').next();
            [ASKPASS, SSH_PROGRAM, SSH_REQUIRE]
                .map(|name| Some(name.as_bytes()))
                .contains(&name)
        };
        let (Prompting::OnTerminal, Some(socket)) = (start.prompting, &self.prompts) else {
            return plan.environment.clone();
        };
        let others = plan.environment.iter().filter(|entry| !is_ours(entry));
        let own = [
            (ASKPASS, socket.as_os_str()),
            (SSH_PROGRAM, &plan.program),
            (SSH_REQUIRE, OsStr::new("force")),
        ];
        let own = own.map(|(name, value)| {
            let mut entry = OsString::from(name);
            entry.push("=");
            entry.push(value);
            entry
        });
        others.cloned().chain(own).collect()
    }

    /// Returns the boot frame for the daemons of a command.
    fn frame(&self, command: CommandId) -> Result<Vec<u8>, String> {
        let nodes = self.nodes(command).into_iter().filter_map(|node| {
            let name = self.hosts.get(node.0 as usize)?.clone();
            Some(BootNode { node, name })
        });
        self.boot.frame_for(nodes.collect())
    }

    /// Writes the boot frame into a file, for a command that gives its daemons no standard input. Returns the directory
    /// that holds nothing else.
    fn write_file(&self, command: CommandId) -> Result<FrameDirectory, String> {
        let text = |error: os::Error| error.to_string();
        let frame = self.frame(command)?;
        let environment = &self.bootstrap.plan().environment;
        let cache = match (
            variable(environment, "XDG_CACHE_HOME"),
            variable(environment, "HOME"),
        ) {
            (Some(cache), _) if !cache.is_empty() => PathBuf::from(cache),
            (_, Some(home)) if !home.is_empty() => Path::new(home).join(".cache"),
            _ => {
                return Err(
                    "HOME is not set, so there is no directory for a file that all nodes see"
                        .to_owned(),
                );
            }
        };
        let parent = cache.join("rally");
        os::make_private_dirs(&parent).map_err(text)?;
        remove_old_frames(&parent);
        let directory = os::make_private_dir(&parent, FRAME_DIRECTORY).map_err(text)?;
        let directory = FrameDirectory(directory);
        if let Some(session) = &self.session {
            link_frame(session, command, &directory.0)?;
        }
        os::write_private_file(&directory.0, OsStr::new(FILE_NAME), &frame).map_err(text)?;
        Ok(directory)
    }

    fn start(&mut self, command: CommandId, reactor: &mut Reactor) -> Result<(), String> {
        let plan = self.bootstrap.plan().commands.get(command as usize);
        let Some(start) = plan.cloned() else {
            return Err("there is no such command".to_owned());
        };
        let stdin = match start.delivery {
            Delivery::File => Stdin::Nothing(self.write_file(command)?),
            Delivery::Direct | Delivery::Checked { .. } | Delivery::Staged => Stdin::Parts,
        };
        let file = match &stdin {
            Stdin::Nothing(directory) => Some(directory.0.join(FILE_NAME)),
            Stdin::Parts => None,
        };
        let words = start.argv.iter();
        let mut argv: Vec<OsString> = words.map(|word| with_file(word, file.as_deref())).collect();
        if let Delivery::Checked { .. } = start.delivery {
            let script = OsString::from_vec(stage::check(&self.boot.program));
            argv.extend([SHELL.into(), "-c".into(), script]);
        }
        let environment = self.environment(&start);
        let order = Order {
            argv: &argv,
            environment: &environment,
            stdin,
        };
        self.commands.start(command, order, reactor)
    }
}

/// Replaces the word that stands for a file.
fn with_file(word: &OsStr, file: Option<&Path>) -> OsString {
    let (Some(file), Some(text)) = (file, word.to_str()) else {
        return word.to_owned();
    };
    match text.split_once(FILE_WORD) {
        Some((before, after)) => {
            let mut word = OsString::from(before);
            word.push(file);
            word.push(after);
            word
        }
        None => word.to_owned(),
    }
}
