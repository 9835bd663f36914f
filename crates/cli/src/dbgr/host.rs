//! The host of one agent: carries out its steps.

use std::time::{Duration, Instant};

use base::NodeId;
use debug::{
    agent::{
        self, Agent,
        kernel::{Lent, Question},
    },
    proto::{FromAgent, ToAgent},
    report::Detail,
};
use os::Clock;

use super::live::{Kernel, LiveFiles, LiveMemory};

/// The result of one step.
#[derive(Debug)]
pub(super) enum Step {
    Done,
    /// The agent has sent this to the session.
    Sent(FromAgent),
    /// The agent waits for a message.
    Idle,
}

/// An agent and its host.
#[derive(Debug)]
pub(super) struct AgentHost {
    agent: Agent,
    pub(super) kernel: Kernel,
}

impl AgentHost {
    pub(super) fn new(node: NodeId, detail: Detail) -> Self {
        Self::of(Agent::new(node, os::current_pid().as_raw(), detail))
    }

    /// Takes over an agent.
    pub(super) fn of(agent: Agent) -> Self {
        Self {
            agent,
            kernel: Kernel::new(),
        }
    }

    /// Passes on a message of the session.
    pub(super) fn handle(&mut self, message: ToAgent) {
        self.agent
            .handle(Clock::now(), agent::Input::Message(message));
    }

    /// Carries out the next output of the agent.
    pub(super) fn step(&mut self) -> Step {
        match self.agent.poll() {
            Some(agent::Output::Ask(question)) => self.ask(question),
            Some(agent::Output::Send(message)) => return Step::Sent(message),
            Some(agent::Output::ReleaseLate) => os::sleep_and_detach_late(Duration::ZERO),
            None => return Step::Idle,
        }
        Step::Done
    }

    fn ask(&mut self, question: Question) {
        let is_reading = matches!(question, Question::Mappings { .. });
        let (answer, through) = self.kernel.answer(question);
        let (memory, files) = (LiveMemory(through), LiveFiles(through));
        let lent = Lent {
            memory: &memory,
            files: &files,
        };
        let begin = Instant::now();
        self.agent
            .handle(Clock::now(), agent::Input::Answer(answer, lent));
        // With the answer about mappings, the agent also reads files that are new to it.
        if is_reading {
            self.kernel.reading += begin.elapsed();
        }
    }
}
