//! The commands that start the daemons of other nodes: their processes, what they are told, and what they print.

use std::{
    collections::{BTreeMap, VecDeque},
    ffi::{CString, OsStr, OsString},
    os::{
        fd::AsFd,
        unix::ffi::{OsStrExt, OsStringExt},
    },
    path::{Path, PathBuf},
};

use base::{NodeId, Signal, Time};
use dvm::bootstrap::{
    Bootstrap, CommandId, DaemonPlan, Delivery, Input, NotJoined, Output, Part, Prompting,
    StartCommand,
    stage::{self, Program},
};
use os::{Interest, Pid, Session, SpawnSpec, Spawner, Token, Trace, Tracers, WriteOutcome};

use tracing::{debug, warn};

use crate::{
    boot::{Boot, BootNode},
    log::{self, Sifter},
    preload::{FRAME_DIRECTORY, link_frame},
    program::OwnFile,
    prompts::{ASKPASS, Wait},
    reactor::{Child, Reactor, Read, Source},
};

/// Bytes of a command's output that are read at a time.
const READ_MAX: usize = 4096;
/// Bytes written to a command before other events are handled.
const WRITE_MAX: usize = 1024 * 1024;
/// The word in a command that stands for the path of the file with the boot frame.
const FILE_WORD: &str = "{file}";
/// The shell that runs our scripts, whatever the login shell is.
const SHELL: &str = "/bin/sh";
/// The variables by which ssh finds the program that asks, and asks by it although it might have a terminal.
const SSH_PROGRAM: &str = "SSH_ASKPASS";
const SSH_REQUIRE: &str = "SSH_ASKPASS_REQUIRE";
/// The file with the boot frame, in a directory of its own.
const FILE_NAME: &str = "frame";

/// A running command.
#[derive(Debug)]
struct Running {
    pid: Pid,
    /// The end of its output that we read; `None` after end of file.
    output: Option<Token>,
    /// The end of its standard input that we write; `None` after the last part.
    input: Option<Token>,
    /// Parts that were not written whole. The next one is sent when the node has answered, so that these are few.
    unsent: VecDeque<Unsent>,
    /// Separates the log of its daemons from its output.
    sifter: Sifter,
    /// The file of the boot frame is removed when the command has exited.
    _directory: Option<FrameDirectory>,
}

/// A part of a command's standard input.
#[derive(Debug)]
struct Unsent {
    part: Part,
    /// The bytes, unless they are those of our program.
    bytes: Vec<u8>,
    /// Number of bytes that were written.
    written: usize,
}

/// News of the start of daemons.
#[derive(Debug)]
pub(crate) enum News {
    GiveUp(NodeId),
    /// These nodes do not have our program, and get it.
    Copying(Vec<NodeId>),
    Failed(NotJoined),
}

/// The start of daemons and its processes.
#[derive(Debug)]
pub(crate) struct Starters {
    bootstrap: Bootstrap,
    spawner: Spawner,
    /// What every daemon is told; the nodes differ by command.
    boot: Boot,
    hosts: Vec<String>,
    /// Our program; `None` if all daemons are on our host.
    program: Option<OwnFile>,
    /// Directory beside the record of this process, for links to boot frames.
    session: Option<PathBuf>,
    running: BTreeMap<CommandId, Running>,
    /// Writes a line of a daemon's log. `None` if daemons log nothing.
    pass_on_log: Option<fn(&[u8])>,
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
            spawner: Spawner::new()?,
            boot,
            hosts,
            program,
            session: None,
            running: BTreeMap::new(),
            pass_on_log: log.map(|log| log.pass_on),
            prompts: None,
        })
    }

    /// Lets the daemons record too, into files that are named after this one.
    pub(crate) fn with_recording(mut self, file: Option<PathBuf>) -> Self {
        self.boot.recording = file;
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

    pub(crate) fn deadline(&self) -> Option<Time> {
        self.bootstrap.deadline()
    }

    pub(crate) fn on_tick(&mut self, now: Time) {
        self.bootstrap.handle(now, Input::Tick);
    }

    pub(crate) fn on_joined(&mut self, now: Time, node: NodeId) {
        self.bootstrap.handle(now, Input::Joined(node));
    }

    /// Notes that the session is over: the commands exit by themselves, or are killed.
    pub(crate) fn end(&mut self, now: Time) {
        self.bootstrap.handle(now, Input::Over);
    }

    /// Returns true if no command runs.
    pub(crate) fn is_over(&self) -> bool {
        self.bootstrap.is_over()
    }

    pub(crate) fn on_readable(&mut self, now: Time, command: CommandId, reactor: &mut Reactor) {
        self.read(now, command, reactor);
    }

    /// Reads what a command has printed, until nothing is left for now.
    fn read(&mut self, now: Time, command: CommandId, reactor: &mut Reactor) {
        while let Some(running) = self.running.get_mut(&command)
            && let Some(token) = running.output
        {
            match reactor.read(token, READ_MAX) {
                Some(Ok(Read::Bytes(bytes))) => {
                    let bytes = match self.pass_on_log {
                        Some(pass_on) => running.sifter.take(bytes, pass_on),
                        None => bytes.to_vec(),
                    };
                    if !bytes.is_empty() {
                        self.bootstrap
                            .handle(now, Input::Printed { command, bytes });
                    }
                }
                Some(Ok(Read::WouldBlock)) => return,
                Some(Ok(Read::Closed) | Err(_)) | None => {
                    running.output = None;
                    reactor.close(token);
                }
            }
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
        self.read(now, command, reactor);
        if let Some(running) = self.running.remove(&command) {
            for token in [running.output, running.input].into_iter().flatten() {
                reactor.close(token);
            }
        }
        self.bootstrap
            .handle(now, Input::Exited { command, status });
    }

    /// Carries out what the state machine asks for, and returns the next news.
    pub(crate) fn step(&mut self, now: Time, reactor: &mut Reactor) -> Option<News> {
        while let Some(output) = self.bootstrap.poll() {
            match output {
                Output::Start(command) => {
                    let plan = self.bootstrap.plan().commands.get(command as usize);
                    let nodes = plan.map_or(0, |plan| plan.nodes.len());
                    debug!(target: log::BOOTSTRAP, command, nodes, "starts a command");
                    if let Err(why) = self.start(command, reactor) {
                        warn!(target: log::BOOTSTRAP, command, "cannot start the command: {why}");
                        self.bootstrap
                            .handle(now, Input::NotStarted { command, why });
                    }
                }
                Output::Send(command, part) => {
                    self.send(now, command, part, reactor);
                    let plan = self.bootstrap.plan().commands.get(command as usize);
                    if let (Part::Program, Some(plan)) = (part, plan) {
                        return Some(News::Copying(plan.nodes.clone()));
                    }
                }
                Output::Kill(command) => {
                    if let Some(running) = self.running.get(&command) {
                        // An error means that it has ended meanwhile.
                        let _ = os::kill_group(running.pid, Signal::KILL);
                    }
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

    /// Continues to write the standard input of a command.
    pub(crate) fn on_writable(&mut self, now: Time, command: CommandId, reactor: &mut Reactor) {
        let Some(running) = self.running.get_mut(&command) else {
            return;
        };
        let Some(token) = running.input else {
            return;
        };
        let program = self.program.as_ref().map_or(&[][..], OwnFile::bytes);
        let mut room = WRITE_MAX;
        let mut is_closed = false;
        while let Some(unsent) = running.unsent.front_mut() {
            let bytes = match unsent.part {
                Part::Program => program,
                Part::Script | Part::Hash | Part::Frame => unsent.bytes.as_slice(),
            };
            let rest = bytes.get(unsent.written..).unwrap_or_default();
            if rest.is_empty() {
                is_closed = unsent.part == Part::Frame;
                running.unsent.pop_front();
                continue;
            }
            if room == 0 {
                break;
            }
            match reactor.write(token, &rest[..rest.len().min(room)]) {
                Some(Ok(WriteOutcome::Bytes(count))) => {
                    unsent.written += count;
                    room = room.saturating_sub(count);
                }
                Some(Ok(WriteOutcome::WouldBlock)) => break,
                // The command has exited: its status and its output say more.
                Some(Ok(WriteOutcome::Closed) | Err(_)) | None => {
                    running.unsent.clear();
                    is_closed = true;
                }
            }
        }
        if is_closed {
            running.input = None;
            reactor.close(token);
        } else {
            let interest = match running.unsent.is_empty() {
                true => Interest::None,
                false => Interest::Write,
            };
            let _ = reactor.set_interest(token, interest);
        }
        if room < WRITE_MAX {
            self.bootstrap.handle(now, Input::Taken(command));
        }
    }

    fn send(&mut self, now: Time, command: CommandId, part: Part, reactor: &mut Reactor) {
        let bytes = match part {
            Part::Program => Ok(Vec::new()),
            Part::Script => Ok(stage::script(&self.wanted())),
            Part::Hash => Ok(self.hash_line()),
            Part::Frame => self.frame(command),
        };
        let Some(running) = self.running.get_mut(&command) else {
            return;
        };
        match bytes {
            Ok(bytes) => running.unsent.push_back(Unsent {
                part,
                bytes,
                written: 0,
            }),
            Err(why) => {
                return self
                    .bootstrap
                    .handle(now, Input::NotStarted { command, why });
            }
        }
        self.on_writable(now, command, reactor);
    }

    /// Returns the program that nodes look for.
    fn wanted(&self) -> Program {
        let program = self.program.as_ref();
        Program {
            size: program.map_or(0, OwnFile::size),
            modified: program.and_then(OwnFile::modified),
            path: self.bootstrap.plan().program.as_bytes().to_vec(),
            argument: self.bootstrap.plan().argument.clone(),
        }
    }

    fn hash_line(&self) -> Vec<u8> {
        let hash = self.program.as_ref().map_or("", OwnFile::hash);
        format!("{hash}\n").into_bytes()
    }

    /// Returns the boot frame for the daemons of a command.
    fn frame(&self, command: CommandId) -> Result<Vec<u8>, String> {
        let plan = self.bootstrap.plan().commands.get(command as usize);
        let nodes = plan.map(|plan| plan.nodes.iter()).into_iter().flatten();
        let nodes = nodes.filter_map(|node| {
            let name = self.hosts.get(node.0 as usize)?.clone();
            Some(BootNode { node: *node, name })
        });
        let boot = Boot {
            nodes: nodes.collect(),
            ..self.boot.clone()
        };
        boot.to_bytes().map_err(|error| error.to_string())
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
        let directory = match start.delivery {
            Delivery::File => Some(self.write_file(command)?),
            Delivery::Direct | Delivery::Checked { .. } | Delivery::Staged => None,
        };
        let running = self.spawn(command, &start, directory, reactor)?;
        self.running.insert(command, running);
        Ok(())
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

    fn spawn(
        &mut self,
        command: CommandId,
        start: &StartCommand,
        directory: Option<FrameDirectory>,
        reactor: &mut Reactor,
    ) -> Result<Running, String> {
        let text = |error: os::Error| error.to_string();
        let file = directory
            .as_ref()
            .map(|directory| directory.0.join(FILE_NAME));
        let mut argv: Vec<OsString> = start
            .argv
            .iter()
            .map(|word| with_file(word, file.as_deref()))
            .collect();
        if let Delivery::Checked { .. } = start.delivery {
            let script = OsString::from_vec(stage::check(&self.wanted()));
            argv.extend([SHELL.into(), "-c".into(), script]);
        }
        let plan = self.bootstrap.plan();
        let argv_c: Vec<CString> = c_strings(&argv);
        let envp = c_strings(&self.environment(start));
        let (Some(program), Some(first)) = (argv.first(), argv_c.first()) else {
            return Err("the command is empty".to_owned());
        };
        let found;
        let program = if program.as_bytes().contains(&b'/') {
            first.as_c_str()
        } else {
            let path = variable(&plan.environment, "PATH").unwrap_or_default();
            let os::Found::Program(file) = os::find_program(program, path) else {
                return Err(format!("`{}` is not in PATH", program.display()));
            };
            found = CString::new(file.into_os_string().into_encoded_bytes())
                .map_err(|_| format!("`{}` is not in PATH", program.display()))?;
            found.as_c_str()
        };
        let (stdin_theirs, stdin) = os::pipe().map_err(text)?;
        let (output, output_theirs) = os::pipe().map_err(text)?;
        os::set_nonblocking(stdin.as_fd()).map_err(text)?;
        os::set_nonblocking(output.as_fd()).map_err(text)?;
        let spec = SpawnSpec {
            program,
            argv: &argv_c,
            envp: &envp,
            envp_extra: &[],
            cwd: None,
            fds: &[
                (stdin_theirs.as_fd(), 0),
                (output_theirs.as_fd(), 1),
                (output_theirs.as_fd(), 2),
            ],
            affinity: None,
            umask: None,
            tracers: Tracers::Ancestors,
            limits: &[],
            session: Session::Own,
            trace: Trace::No,
        };
        let pid = self
            .spawner
            .spawn(&spec)
            .map_err(|error| error.to_string())?;
        reactor.children.insert(pid, Child::Command(command));
        let output = reactor
            .add(output, Interest::Read, Source::Command(command))
            .map_err(text)?;
        let input = match start.delivery {
            Delivery::Direct | Delivery::Checked { .. } | Delivery::Staged => {
                let source = Source::CommandInput(command);
                Some(reactor.add(stdin, Interest::None, source).map_err(text)?)
            }
            Delivery::File => None,
        };
        Ok(Running {
            pid,
            output: Some(output),
            input,
            unsent: VecDeque::new(),
            sifter: Sifter::default(),
            _directory: directory,
        })
    }
}

/// A directory with the file of a boot frame. It is removed with this value.
#[derive(Debug)]
struct FrameDirectory(PathBuf);

impl Drop for FrameDirectory {
    fn drop(&mut self) {
        // An error means that the daemon has removed it.
        let _ = os::remove_private_dir(&self.0);
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

fn c_strings(words: &[OsString]) -> Vec<CString> {
    // A word with a NUL byte cannot come from an argument or a variable.
    let words = words.iter();
    words
        .filter_map(|word| CString::new(word.as_bytes()).ok())
        .collect()
}

/// Returns the value of a variable in an environment.
fn variable<'a>(environment: &'a [OsString], name: &str) -> Option<&'a OsStr> {
    environment.iter().find_map(|entry| {
        let rest = entry.as_bytes().strip_prefix(name.as_bytes())?;
        rest.strip_prefix(b"=").map(OsStr::from_bytes)
    })
}
