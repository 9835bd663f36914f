//! The host of one agent: carries out its steps, and releases threads that were late to stop.

use std::time::{Duration, Instant};

use base::{NodeId, Time};
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

/// Waits until `until` with `wait`, and meanwhile releases threads of the last sample that were late to stop. `wait` gets the
/// time at which it must return; `None` without such a time.
///
/// A wait without this would keep a thread stopped that stops during the wait.
pub(super) fn wait_and_release_late<T, E>(
    until: Option<Time>,
    mut wait: impl FnMut(Option<Time>) -> Result<Option<T>, E>,
) -> Result<Option<T>, E> {
    loop {
        if os::sleep_and_detach_late(Duration::ZERO) == 0 {
            return wait(until);
        }
        let slice = Clock::now() + os::LATE_STEP;
        if until.is_some_and(|until| until <= slice) {
            return wait(until);
        }
        if let Some(result) = wait(Some(slice))? {
            return Ok(Some(result));
        }
    }
}

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
            Some(agent::Output::ReleaseLate) => {
                os::sleep_and_detach_late(Duration::ZERO);
            }
            None => return Step::Idle,
        }
        Step::Done
    }

    fn ask(&mut self, question: Question) {
        let is_reading = matches!(question, Question::Mappings { .. });
        // A thread that was late in this sample must not stay stopped until the end of the sample.
        os::sleep_and_detach_late(Duration::ZERO);
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

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::{super::live::tests::Running, *};

    #[test]
    fn a_wait_without_an_end_releases_a_late_thread() {
        let running = Running::start("sh", &["-c", "while :; do :; done"]);
        let pid = running.pid();
        let deadline = Instant::now() + Duration::from_secs(60);
        // Without any patience, the call nearly always comes before the stop.
        while os::StoppedThread::stop(pid, Duration::ZERO).map(drop) != Err(os::NotStopped::Late) {
            assert!(Instant::now() < deadline);
        }
        assert_ne!(os::tracer(pid), Ok(None));
        // A message comes when the thread runs on. Until then, a wait without an end would be one for ever.
        let waited = wait_and_release_late(None, |until| {
            assert!(Instant::now() < deadline);
            if os::tracer(pid) == Ok(None) {
                return Ok::<_, Infallible>(Some("message"));
            }
            while Clock::now() < until.expect("the thread is still stopped") {
                std::thread::yield_now();
            }
            Ok(None)
        });
        assert_eq!(waited, Ok(Some("message")));
    }
}
