//! Prompts of start commands: which fronts ask, and for which command.
//!
//! A start command (ssh) has no terminal, and runs our program to ask for it ([`ASKPASS`]). That process connects to the control
//! socket. Other processes of the user may connect there too, such as ranks, and must not ask the user for passwords: only a
//! descendant of a start command may.
//!
//! Prompts and answers do not pass through the controller's state machine, whose inputs are logged and recorded.

use std::collections::BTreeMap;

use dvm::{
    alloc::Allocation,
    bootstrap::{CommandId, DaemonPlan, Prompting},
    prompts::{Asked, Input, MAX_PROMPTS, Output, PromptId, Prompts, Secret},
    proto::FrontId,
};
use os::{HiddenInput, Pid};

use crate::reactor::Reactor;

/// The variable that makes our program ask for a start command. Its value is the path of the control socket.
pub const ASKPASS: &str = "RALLY_ASKPASS";

/// What a start command waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    Asks,
    GoesOn,
}

/// What the controller's host has to do.
#[derive(Debug)]
pub(crate) enum Action {
    Show(dvm::prompts::Prompt),
    Withdraw(PromptId),
    Answer(FrontId, Option<Secret>),
    Command(CommandId, Wait),
}

/// The prompts of a controller.
#[derive(Debug)]
pub(crate) struct PromptHost {
    prompts: Prompts,
    /// Names of the nodes of those commands that may ask.
    hosts: BTreeMap<CommandId, String>,
    /// Fronts that ask, or will ask, for a command.
    askers: BTreeMap<FrontId, CommandId>,
    /// The terminal of the front; `None` if nothing is asked.
    terminal: Option<HiddenInput>,
}

impl PromptHost {
    pub(crate) fn new(
        plan: Option<&DaemonPlan>,
        allocation: &Allocation,
        terminal: Option<HiddenInput>,
    ) -> Self {
        let commands = plan.map(|plan| plan.commands.iter());
        let commands = (0..).zip(commands.into_iter().flatten());
        let hosts = commands
            .filter(|(_, command)| command.prompting == Prompting::OnTerminal)
            .filter_map(|(id, command)| {
                let node = allocation.nodes.get(command.nodes.first()?.0 as usize)?;
                Some((id, node.name.clone()))
            });
        let hosts: BTreeMap<CommandId, String> = hosts.collect();
        Self {
            prompts: Prompts::default(),
            terminal: terminal.filter(|_| !hosts.is_empty()),
            hosts,
            askers: BTreeMap::new(),
        }
    }

    /// Returns the number of fronts that may ask.
    pub(crate) fn room(&self) -> usize {
        if self.hosts.is_empty() {
            0
        } else {
            MAX_PROMPTS
        }
    }

    /// Returns the command for which a process asks; `None` if it is a process of no command that may ask.
    pub(crate) fn command_of(&self, pid: Pid, reactor: &Reactor) -> Option<CommandId> {
        if self.hosts.is_empty() {
            return None;
        }
        let command = reactor.command_above(pid)?;
        self.hosts.contains_key(&command).then_some(command)
    }

    /// Adds a front that asks for a command.
    pub(crate) fn admit(&mut self, front: FrontId, command: CommandId) {
        self.askers.insert(front, command);
    }

    pub(crate) fn is_asker(&self, front: FrontId) -> bool {
        self.askers.contains_key(&front)
    }

    pub(crate) fn ask(&mut self, by: FrontId, asked: Asked) {
        if let Some(command) = self.askers.get(&by).copied()
            && let Some(host) = self.hosts.get(&command).cloned()
        {
            self.prompts.handle(Input::Asked {
                by,
                command,
                host,
                asked,
            });
        }
    }

    pub(crate) fn on_answer(&mut self, prompt: PromptId, answer: Option<Secret>) {
        if let Some(terminal) = &mut self.terminal {
            terminal.end();
        }
        self.prompts.handle(Input::Answered(prompt, answer));
    }

    /// Forgets a front whose connection is closed. Returns false if it did not ask.
    pub(crate) fn lose(&mut self, front: FrontId) -> bool {
        let is_asker = self.askers.remove(&front).is_some();
        if is_asker {
            self.prompts.handle(Input::Lost(front));
        }
        is_asker
    }

    /// Notes that no prompt is answered any more: the job ends, or does not start.
    pub(crate) fn nobody_answers(&mut self) {
        self.prompts.handle(Input::NobodyAnswers);
    }

    /// Notes that the front with the terminal is gone. If it was killed, it has left the terminal as it is for a password.
    pub(crate) fn front_lost(&mut self) {
        self.nobody_answers();
        if let Some(mut terminal) = self.terminal.take() {
            terminal.restore();
        }
    }

    pub(crate) fn poll(&mut self) -> Option<Action> {
        Some(match self.prompts.poll()? {
            Output::Show(prompt) => {
                if let Some(terminal) = &mut self.terminal {
                    terminal.begin();
                }
                Action::Show(prompt)
            }
            Output::Withdraw(prompt) => {
                if let Some(terminal) = &mut self.terminal {
                    terminal.end();
                }
                Action::Withdraw(prompt)
            }
            Output::Answer(front, answer) => Action::Answer(front, answer),
            Output::Asks(command) => Action::Command(command, Wait::Asks),
            Output::GoesOn(command) => Action::Command(command, Wait::GoesOn),
        })
    }
}
