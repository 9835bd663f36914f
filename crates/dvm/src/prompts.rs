//! Prompts: what start commands (ssh) ask the user, one after another.
//!
//! A start command has no terminal. It runs a process that asks for it, which connects to the controller's process as a front
//! does and waits for the answer. The front that has the terminal gets the oldest prompt, and the next one when that is over.
//! The time that a command has to start its daemon does not run while it has a prompt ([`crate::bootstrap`]).
//!
//! | state of a prompt | no older prompt | answered | its process is gone | the front is gone |
//! |---|---|---|---|---|
//! | `Waiting` | shown → `Shown` | – | over | no answer: over |
//! | `Shown` | – | the process gets the answer: over | withdrawn: over | no answer: over |
//!
//! Answers are secrets. This state machine is none of those that are logged and recorded, and an answer passes through it in one
//! step.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;

pub use crate::proto::prompt::{ANSWER_MAX, Asked, Prompt, PromptId, PromptKind, Secret, TEXT_MAX};
use crate::{bootstrap::CommandId, proto::FrontId};

/// Maximum number of prompts that are not over: one for each start command that may run. A further one gets no answer.
pub const MAX_PROMPTS: usize = crate::bootstrap::PARALLEL.get() as usize;

/// An event that the caller reports.
#[derive(Debug)]
pub enum Input {
    /// The process of a start command asks. It is connected as this front.
    Asked {
        by: FrontId,
        command: CommandId,
        host: String,
        asked: Asked,
    },
    /// The front with the terminal answers; `None`: the user does not answer.
    Answered(PromptId, Option<Secret>),
    /// The connection to a process that asks was lost.
    Lost(FrontId),
    /// The front with the terminal is gone, or its job needs no nodes any more.
    NobodyAnswers,
}

/// An action for the caller to carry out.
#[derive(Debug, PartialEq, Eq)]
pub enum Output {
    /// Send the front with the terminal a prompt. Earlier ones are over.
    Show(Prompt),
    /// Tell the front with the terminal that the prompt that it shows is over.
    Withdraw(PromptId),
    /// Send a process that asks the answer, and close its connection.
    Answer(FrontId, Option<Secret>),
    /// This start command waits for an answer, for the first of its prompts.
    Asks(CommandId),
    /// This start command has no prompt any more.
    GoesOn(CommandId),
}

#[derive(Debug)]
struct Open {
    by: FrontId,
    command: CommandId,
    prompt: Prompt,
}

/// Whether a front can answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Audience {
    There,
    Gone,
}

/// The state machine of all prompts of a controller.
#[derive(Debug)]
pub struct Prompts {
    /// The first one is shown.
    open: VecDeque<Open>,
    next: u32,
    audience: Audience,
    outputs: VecDeque<Output>,
}

impl Default for Prompts {
    fn default() -> Self {
        Self {
            open: VecDeque::new(),
            next: 1,
            audience: Audience::There,
            outputs: VecDeque::new(),
        }
    }
}

impl Prompts {
    /// Handles one event.
    pub fn handle(&mut self, input: Input) {
        match input {
            Input::Asked {
                by,
                command,
                host,
                asked,
            } => {
                if self.audience == Audience::Gone || self.open.len() >= MAX_PROMPTS {
                    self.outputs.push_back(Output::Answer(by, None));
                    return;
                }
                if !self.has_prompt(command) {
                    self.outputs.push_back(Output::Asks(command));
                }
                let id = PromptId(self.next);
                self.next += 1;
                let asked = asked.cut();
                let prompt = Prompt { id, host, asked };
                self.open.push_back(Open {
                    by,
                    command,
                    prompt,
                });
                if self.open.len() == 1 {
                    self.show();
                }
            }
            Input::Answered(id, answer) => {
                // The front may answer a prompt that was withdrawn meanwhile.
                if self.open.front().is_some_and(|open| open.prompt.id == id) {
                    self.end(0, answer);
                }
            }
            Input::Lost(by) => {
                while let Some(at) = self.open.iter().position(|open| open.by == by) {
                    if at == 0 {
                        let id = self.open.front().map(|open| open.prompt.id);
                        self.outputs.extend(id.map(Output::Withdraw));
                    }
                    self.end(at, None);
                }
            }
            Input::NobodyAnswers => {
                self.audience = Audience::Gone;
                while !self.open.is_empty() {
                    self.end(0, None);
                }
            }
        }
    }

    /// Returns the next action. Call it after every [`Self::handle`] until it returns `None`.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    fn has_prompt(&self, command: CommandId) -> bool {
        self.open.iter().any(|open| open.command == command)
    }

    /// Ends a prompt, and shows the next one if it was shown.
    fn end(&mut self, at: usize, answer: Option<Secret>) {
        let Some(over) = self.open.remove(at) else {
            return;
        };
        self.outputs.push_back(Output::Answer(over.by, answer));
        if !self.has_prompt(over.command) {
            self.outputs.push_back(Output::GoesOn(over.command));
        }
        if at == 0 && self.audience == Audience::There {
            self.show();
        }
    }

    fn show(&mut self) {
        let first = self.open.front().map(|open| open.prompt.clone());
        self.outputs.extend(first.map(Output::Show));
    }
}
