//! Start commands at a daemon: those that the head has ordered (`dvm::bootstrap`).
//!
//! The daemon knows what every daemon is told, because it was told the same, and it has the program. So an order has neither
//! the secret nor the program. What a command prints goes to the head as it comes, up to [`PRINTED_MAX`]; of the rest, the end.

use std::{
    collections::{BTreeMap, VecDeque},
    ffi::OsString,
    time::Duration,
};

use base::{ExitStatus, Time};
use dvm::{
    bootstrap::{CommandId, DAEMON_COMMANDS_MAX, EVIDENCE_MAX, EXIT_MAX, Part, stage},
    proto::{FromStarter, ToStarter},
};
use tracing::{debug, warn};

use super::{
    BootNode,
    commands::{Commands, Order, READS_PER_TURN, Stdin, Taken},
};
use crate::{boot::Boot, log, program::OwnFile, reactor::Reactor};

/// Number of bytes that a command prints and that are sent as they come. Answers of the script are among the first.
const PRINTED_MAX: usize = 64 * 1024;
/// Least time between two reports that a command takes bytes. It is far below the deadline that they extend.
const TAKEN_EVERY: Duration = Duration::from_secs(5);

/// What the process of a daemon needs to start others.
#[derive(Debug)]
pub(crate) struct DelegateSetup {
    /// What this daemon was told.
    pub(crate) boot: Boot,
    /// Environment of the commands: `NAME=value`.
    pub(crate) environment: Vec<OsString>,
    /// Writes a line of a daemon's log.
    pub(crate) pass_on_log: fn(&[u8]),
    /// The soft and hard limit of descriptors that commands get.
    pub(crate) descriptors: (u64, u64),
}

/// What is known of a command.
#[derive(Debug)]
struct Helped {
    node: BootNode,
    /// Number of bytes that were printed and sent.
    sent: usize,
    /// The last bytes that were printed and not sent.
    rest: Vec<u8>,
    /// When the head was told last that the command takes bytes.
    taken: Option<Time>,
}

/// The start commands of a daemon.
#[derive(Debug)]
pub(crate) struct Delegate {
    setup: DelegateSetup,
    /// `None` before the first order: most daemons start no other.
    commands: Option<Commands>,
    helped: BTreeMap<CommandId, Helped>,
    /// Messages for the head. Each command has printed a bounded number of bytes.
    news: VecDeque<FromStarter>,
    /// When commands that have not exited by themselves are killed.
    kill_at: Option<Time>,
    has_killed: bool,
}

impl Delegate {
    pub(crate) const fn new(setup: DelegateSetup) -> Self {
        Self {
            setup,
            commands: None,
            helped: BTreeMap::new(),
            news: VecDeque::new(),
            kill_at: None,
            has_killed: false,
        }
    }

    /// Handles a message of the head.
    pub(crate) fn on_order(&mut self, now: Time, order: ToStarter, reactor: &mut Reactor) {
        match order {
            ToStarter::Start {
                command,
                argv,
                node,
                host,
            } => {
                debug!(target: log::BOOTSTRAP, command, %node, "starts a command for the head");
                let node = BootNode { node, name: host };
                if let Err(why) = self.start(command, &argv, node, reactor) {
                    self.refuse(command, why);
                }
            }
            ToStarter::Send { command, part } => self.send(now, command, part, reactor),
            ToStarter::Kill { command } => {
                if let Some(commands) = &self.commands {
                    commands.kill(command);
                }
            }
        }
    }

    fn start(
        &mut self,
        command: CommandId,
        argv: &[OsString],
        node: BootNode,
        reactor: &mut Reactor,
    ) -> Result<(), String> {
        if self.kill_at.is_some() {
            return Err("the session is over".to_owned());
        }
        let commands = match &mut self.commands {
            Some(commands) => commands,
            none => none.insert(open(&self.setup)?),
        };
        if commands.len() >= DAEMON_COMMANDS_MAX as usize {
            return Err("the daemon has started too many others".to_owned());
        }
        if commands.runs(command) {
            return Err("the command runs already".to_owned());
        }
        let order = Order {
            argv,
            environment: &self.setup.environment,
            stdin: Stdin::Parts,
        };
        commands.start(command, order, reactor)?;
        let helped = Helped {
            node,
            sent: 0,
            rest: Vec::new(),
            taken: None,
        };
        self.helped.insert(command, helped);
        Ok(())
    }

    /// Reports that a command could not be started, or cannot be told what to do.
    fn refuse(&mut self, command: CommandId, why: String) {
        warn!(target: log::BOOTSTRAP, command, "cannot start the command: {why}");
        self.news
            .push_back(FromStarter::NotStarted { command, why });
    }

    fn send(&mut self, now: Time, command: CommandId, part: Part, reactor: &mut Reactor) {
        let (Some(commands), Some(helped)) = (&mut self.commands, self.helped.get(&command)) else {
            return;
        };
        let boot = &self.setup.boot;
        let bytes = match part {
            Part::Program => Ok(Vec::new()),
            Part::Script => Ok(stage::script(&boot.program)),
            Part::Hash => Ok(commands.hash_line()),
            Part::Frame => boot.frame_for(vec![helped.node.clone()]),
        };
        match bytes {
            Ok(bytes) => {
                let taken = commands.send(command, part, bytes, reactor);
                self.on_taken(now, command, taken);
            }
            Err(why) => {
                commands.kill(command);
                self.refuse(command, why);
            }
        }
    }

    /// Continues to write the standard input of a command.
    pub(crate) fn on_writable(&mut self, now: Time, command: CommandId, reactor: &mut Reactor) {
        if let Some(commands) = &mut self.commands {
            let taken = commands.on_writable(command, reactor);
            self.on_taken(now, command, taken);
        }
    }

    fn on_taken(&mut self, now: Time, command: CommandId, taken: Taken) {
        if taken == Taken::Some
            && let Some(helped) = self.helped.get_mut(&command)
            && helped.taken.is_none_or(|last| last + TAKEN_EVERY <= now)
        {
            helped.taken = Some(now);
            self.news.push_back(FromStarter::Taken { command });
        }
    }

    /// Reads what a command has printed, at most a full pipe: an event for the rest follows.
    pub(crate) fn on_readable(&mut self, command: CommandId, reactor: &mut Reactor) {
        let Some(commands) = &mut self.commands else {
            return;
        };
        for _ in 0..READS_PER_TURN {
            let Some(bytes) = commands.read(command, reactor) else {
                return;
            };
            let Some(helped) = self.helped.get_mut(&command) else {
                continue;
            };
            let (first, rest) = bytes.split_at(bytes.len().min(PRINTED_MAX - helped.sent));
            if !first.is_empty() {
                helped.sent += first.len();
                let bytes = first.to_vec().into();
                self.news.push_back(FromStarter::Printed { command, bytes });
            }
            helped.rest.extend(rest);
            let excess = helped.rest.len().saturating_sub(EVIDENCE_MAX);
            helped.rest.drain(..excess);
        }
    }

    pub(crate) fn on_exited(
        &mut self,
        command: CommandId,
        status: ExitStatus,
        reactor: &mut Reactor,
    ) {
        debug!(target: log::BOOTSTRAP, command, "the command has ended: {status}");
        self.on_readable(command, reactor);
        if let Some(commands) = &mut self.commands {
            commands.remove(command, reactor);
        }
        let helped = self.helped.remove(&command);
        if let Some(rest) = helped.map(|helped| helped.rest)
            && !rest.is_empty()
        {
            let bytes = rest.into();
            self.news.push_back(FromStarter::Printed { command, bytes });
        }
        self.news.push_back(FromStarter::Exited { command, status });
    }

    /// Returns the next message for the head.
    pub(crate) fn news(&mut self) -> Option<FromStarter> {
        self.news.pop_front()
    }

    pub(crate) fn deadline(&self) -> Option<Time> {
        let is_due = !self.has_killed && !self.is_over();
        self.kill_at.filter(|_| is_due)
    }

    pub(crate) fn on_tick(&mut self, now: Time) {
        if self.kill_at.is_some_and(|time| time <= now)
            && let Some(commands) = &self.commands
        {
            commands.kill_all();
            self.has_killed = true;
        }
    }

    /// Notes that the session is over: the commands exit by themselves, or are killed.
    pub(crate) fn end(&mut self, now: Time) {
        self.kill_at.get_or_insert(now + EXIT_MAX);
    }

    /// Notes that the controller is lost: nobody waits for the commands.
    pub(crate) fn abandon(&mut self, now: Time) {
        self.kill_at = Some(now);
        self.on_tick(now);
    }

    /// Returns true if no command runs.
    pub(crate) fn is_over(&self) -> bool {
        self.commands
            .as_ref()
            .is_none_or(|commands| commands.len() == 0)
    }
}

/// Maps our program, and checks that it is the one that nodes look for.
fn open(setup: &DelegateSetup) -> Result<Commands, String> {
    let text = |error: os::Error| error.to_string();
    let program = OwnFile::open().map_err(text)?;
    if program.size() != setup.boot.program.size {
        return Err(
            "the program of the daemon has another size than that of the launcher".to_owned(),
        );
    }
    let pass_on_log = setup.boot.log.is_some().then_some(setup.pass_on_log);
    let commands = Commands::new(Some(program), pass_on_log).map_err(text)?;
    Ok(commands.with_descriptors(setup.descriptors))
}
