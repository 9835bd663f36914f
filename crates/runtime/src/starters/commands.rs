//! The processes of start commands: how they are executed, what is written to them, and what they print.

use std::{
    collections::{BTreeMap, VecDeque},
    ffi::{CString, OsStr, OsString},
    os::{fd::AsFd, unix::ffi::OsStrExt},
    path::PathBuf,
};

use base::Signal;
use dvm::bootstrap::{CommandId, Part};
use os::{Interest, Pid, Session, SpawnSpec, Spawner, Token, WriteOutcome};

use crate::{
    log::Sifter,
    program::OwnFile,
    reactor::{Child, Reactor, Read, Source},
};

/// Bytes of a command's output that are read at a time.
const READ_MAX: usize = 4096;
/// Number of such reads before other events are handled: a full pipe. A command may print without end.
pub(super) const READS_PER_TURN: usize = 16;
/// Bytes written to a command before other events are handled.
const WRITE_MAX: usize = 1024 * 1024;

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

/// Whether a command has taken bytes from its standard input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    Some,
    Nothing,
}

/// What is executed.
#[derive(Debug)]
pub(super) struct Order<'a> {
    pub(super) argv: &'a [OsString],
    /// `NAME=value`.
    pub(super) environment: &'a [OsString],
    pub(super) stdin: Stdin,
}

/// What a command gets as its standard input.
#[derive(Debug)]
pub(super) enum Stdin {
    /// The parts that are sent.
    Parts,
    /// Nothing. The boot frame is in the file of this directory.
    Nothing(FrameDirectory),
}

/// The start commands that this process runs.
#[derive(Debug)]
pub(super) struct Commands {
    spawner: Spawner,
    /// Our program; `None` if all daemons are on our host.
    program: Option<OwnFile>,
    running: BTreeMap<CommandId, Running>,
    /// Writes a line of a daemon's log. `None` if daemons log nothing.
    pass_on_log: Option<fn(&[u8])>,
    /// The soft and hard limit of descriptors that commands get; `None`: ours. We have raised ours, and some commands pass theirs on.
    descriptors: Option<(u64, u64)>,
}

impl Commands {
    pub(super) fn new(
        program: Option<OwnFile>,
        pass_on_log: Option<fn(&[u8])>,
    ) -> Result<Self, os::Error> {
        Ok(Self {
            spawner: Spawner::new()?,
            program,
            running: BTreeMap::new(),
            pass_on_log,
            descriptors: None,
        })
    }

    /// Gives commands these limits of descriptors: soft and hard.
    pub(super) const fn with_descriptors(mut self, limits: (u64, u64)) -> Self {
        self.descriptors = Some(limits);
        self
    }

    /// Returns the number of commands that run.
    pub(super) fn len(&self) -> usize {
        self.running.len()
    }

    pub(super) fn runs(&self, command: CommandId) -> bool {
        self.running.contains_key(&command)
    }

    /// Returns the line with the hash of the program's content.
    pub(super) fn hash_line(&self) -> Vec<u8> {
        let hash = self.program.as_ref().map_or("", OwnFile::hash);
        format!("{hash}\n").into_bytes()
    }

    /// Returns what a command has printed, without the log of its daemons, so it may be empty; `None` if nothing is left for now.
    pub(super) fn read(&mut self, command: CommandId, reactor: &mut Reactor) -> Option<Vec<u8>> {
        while let Some(running) = self.running.get_mut(&command)
            && let Some(token) = running.output
        {
            match reactor.read(token, READ_MAX) {
                Some(Ok(Read::Bytes(bytes))) => {
                    return Some(match self.pass_on_log {
                        Some(pass_on) => running.sifter.take(bytes, pass_on),
                        None => bytes.to_vec(),
                    });
                }
                Some(Ok(Read::WouldBlock)) => return None,
                Some(Ok(Read::Closed) | Err(_)) | None => {
                    running.output = None;
                    reactor.close(token);
                }
            }
        }
        None
    }

    /// Forgets a command that has exited.
    pub(super) fn remove(&mut self, command: CommandId, reactor: &mut Reactor) {
        if let Some(running) = self.running.remove(&command) {
            for token in [running.output, running.input].into_iter().flatten() {
                reactor.close(token);
            }
        }
    }

    pub(super) fn kill(&self, command: CommandId) {
        if let Some(running) = self.running.get(&command) {
            // An error means that it has ended meanwhile.
            let _ = os::kill_group(running.pid, Signal::KILL);
        }
    }

    pub(super) fn kill_all(&self) {
        for running in self.running.values() {
            let _ = os::kill_group(running.pid, Signal::KILL);
        }
    }

    /// Sends a part behind those that were sent before. The bytes of the program need not be passed.
    pub(super) fn send(
        &mut self,
        command: CommandId,
        part: Part,
        bytes: Vec<u8>,
        reactor: &mut Reactor,
    ) -> Taken {
        if let Some(running) = self.running.get_mut(&command) {
            running.unsent.push_back(Unsent {
                part,
                bytes,
                written: 0,
            });
        }
        self.on_writable(command, reactor)
    }

    /// Continues to write the standard input of a command.
    pub(super) fn on_writable(&mut self, command: CommandId, reactor: &mut Reactor) -> Taken {
        let Some(running) = self.running.get_mut(&command) else {
            return Taken::Nothing;
        };
        let Some(token) = running.input else {
            return Taken::Nothing;
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
            Taken::Some
        } else {
            Taken::Nothing
        }
    }

    /// Executes a command. The reason of a failure is for the user.
    pub(super) fn start(
        &mut self,
        command: CommandId,
        order: Order<'_>,
        reactor: &mut Reactor,
    ) -> Result<(), String> {
        let text = |error: os::Error| error.to_string();
        let argv_c: Vec<CString> = c_strings(order.argv);
        let envp = c_strings(order.environment);
        let (Some(program), Some(first)) = (order.argv.first(), argv_c.first()) else {
            return Err("the command is empty".to_owned());
        };
        let found;
        let program = if program.as_bytes().contains(&b'/') {
            first.as_c_str()
        } else {
            let path = variable(order.environment, "PATH").unwrap_or_default();
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
        let limits = self.descriptors;
        let limits = limits.map(|(soft, hard)| (os::Resource::Descriptors, soft, hard));
        let spec = SpawnSpec {
            fds: &[
                (stdin_theirs.as_fd(), 0),
                (output_theirs.as_fd(), 1),
                (output_theirs.as_fd(), 2),
            ],
            limits: limits.as_slice(),
            session: Session::Own,
            ..SpawnSpec::new(program, &argv_c, &envp)
        };
        let pid = self
            .spawner
            .spawn(&spec)
            .map_err(|error| error.to_string())?;
        // A process that nobody watches is ended, and reaped as any other child.
        let ended = |error: os::Error| {
            let _ = os::kill_group(pid, Signal::KILL);
            error.to_string()
        };
        let output = reactor
            .add(output, Interest::Read, Source::Command(command))
            .map_err(ended)?;
        let (input, directory) = match order.stdin {
            Stdin::Parts => {
                let source = Source::CommandInput(command);
                let token = match reactor.add(stdin, Interest::None, source) {
                    Ok(token) => token,
                    Err(error) => {
                        reactor.close(output);
                        return Err(ended(error));
                    }
                };
                (Some(token), None)
            }
            Stdin::Nothing(directory) => (None, Some(directory)),
        };
        reactor.children.insert(pid, Child::Command(command));
        let running = Running {
            pid,
            output: Some(output),
            input,
            unsent: VecDeque::new(),
            sifter: Sifter::default(),
            _directory: directory,
        };
        self.running.insert(command, running);
        Ok(())
    }
}

/// A directory with the file of a boot frame. It is removed with this value.
#[derive(Debug)]
pub(super) struct FrameDirectory(pub(super) PathBuf);

impl Drop for FrameDirectory {
    fn drop(&mut self) {
        // An error means that the daemon has removed it.
        let _ = os::remove_private_dir(&self.0);
    }
}

/// Returns words as the kernel takes them.
pub(crate) fn c_strings(words: &[OsString]) -> Vec<CString> {
    // A word with a NUL byte cannot come from an argument or a variable.
    let words = words.iter();
    words
        .filter_map(|word| CString::new(word.as_bytes()).ok())
        .collect()
}

/// Returns the value of a variable in an environment.
pub(crate) fn variable<'a>(environment: &'a [OsString], name: &str) -> Option<&'a OsStr> {
    environment.iter().find_map(|entry| {
        let rest = entry.as_bytes().strip_prefix(name.as_bytes())?;
        rest.strip_prefix(b"=").map(OsStr::from_bytes)
    })
}
