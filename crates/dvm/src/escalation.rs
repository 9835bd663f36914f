//! The escalation by which a front ends its job: each further request is stronger than the one before.
//!
//! | state | SIGINT | another terminating signal | terminal lost |
//! |---|---|---|---|
//! | `Running` | pass it to the ranks → `Asked` | end the job with grace → `Asked` | end the job with grace |
//! | `Asked` | kill the job → `Killed` | kill the job → `Killed` | end the job with grace |
//! | `Killed` | give up → `GaveUp` | give up → `GaveUp` | end the job with grace |
//! | `GaveUp` | give up | give up | end the job with grace |
//!
//! A job that has to end gets a deadline. After it has passed, unread output is dropped and the controller is checked,
//! periodically until the job has ended. A controller that is stopped cannot end the job: it counts as lost if two
//! consecutive checks find it stopped. The first SIGINT sets no deadline, because a program may handle it and continue.

use std::{collections::VecDeque, time::Duration};

use base::{Signal, Time};

use crate::{
    planted::{self, Bug},
    proto::EndReason,
    spec::EndPolicy,
};

/// How long output may stay unread after a job should have ended, and the interval between two checks of the
/// controller.
pub const UNREAD_MAX: Duration = Duration::from_secs(1);

/// An event that the caller reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// The front has received a signal that by default terminates a process.
    Asked(Signal),
    /// The terminal of the front is gone, and the job is to end because of that.
    TerminalLost,
    /// Answers [`Output::CheckController`]: the controller's pid if it is stopped, otherwise `None`.
    Controller { stopped: Option<i32> },
    /// The time that [`Escalation::deadline`] returned has passed.
    Tick,
}

/// An action for the caller to carry out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send the signal to every rank: most programs exit on it.
    Pass(Signal),
    /// End the job: SIGTERM, grace, SIGKILL.
    End(EndReason),
    /// Kill the job immediately.
    Kill(EndReason),
    /// Stop waiting for the job.
    GiveUp(Signal),
    /// Drop the output that has been unread for [`UNREAD_MAX`].
    DropUnread,
    /// Check whether the controller is stopped, and answer with [`Input::Controller`].
    CheckController,
    /// Treat the controller as lost: two consecutive checks found it stopped, so this is no coincidence. No other
    /// process will end the job.
    ControllerStopped,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Running,
    Asked,
    Killed,
    GaveUp,
}

/// The state machine of a front's escalation.
#[derive(Debug)]
pub struct Escalation {
    state: State,
    grace: Duration,
    /// Time at which output is dropped and the controller is checked next; `None` while the job has no
    /// deadline.
    due: Option<Time>,
    /// Pid of the controller if the last check found it stopped.
    stopped: Option<i32>,
    outputs: VecDeque<Output>,
}

impl Escalation {
    /// Creates the state machine for a job that is submitted now.
    #[must_use]
    pub fn new(now: Time, end: &EndPolicy) -> Self {
        let limit = end.time_limit;
        Self {
            state: State::default(),
            grace: end.grace,
            due: limit.map(|limit| now + limit + end.grace + UNREAD_MAX),
            stopped: None,
            outputs: VecDeque::new(),
        }
    }

    /// Handles one event.
    pub fn handle(&mut self, now: Time, input: Input) {
        match input {
            Input::Asked(signal) => self.on_asked(now, signal),
            Input::TerminalLost => self.end(now, EndReason::TerminalLost),
            Input::Controller { stopped } => {
                let before = std::mem::replace(&mut self.stopped, stopped);
                let again = before.is_some() && before == stopped;
                if again && !planted::is(Bug::StoppedControllerKept) {
                    self.outputs.push_back(Output::ControllerStopped);
                }
            }
            Input::Tick => {
                if self.due.is_some_and(|due| due <= now) {
                    self.due = Some(now + UNREAD_MAX);
                    let outputs = [Output::DropUnread, Output::CheckController];
                    self.outputs.extend(outputs);
                }
            }
        }
    }

    /// Returns the next action. Call it after every [`Self::handle`] until it returns `None`.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Returns the time at which [`Input::Tick`] is due.
    #[must_use]
    pub const fn deadline(&self) -> Option<Time> {
        self.due
    }

    /// Returns the pid of the controller if the last check found it stopped.
    #[must_use]
    pub const fn stopped_controller(&self) -> Option<i32> {
        self.stopped
    }

    fn on_asked(&mut self, now: Time, signal: Signal) {
        let reason = EndReason::Signal(signal);
        match self.state {
            State::Running if signal == Signal::INT => {
                self.outputs.push_back(Output::Pass(signal));
                self.state = State::Asked;
            }
            State::Running => {
                self.end(now, reason);
                self.state = State::Asked;
            }
            State::Asked => {
                self.bound(now);
                let harder = if planted::is(Bug::SecondRequestAsksAgain) {
                    Output::End(reason)
                } else {
                    Output::Kill(reason)
                };
                self.outputs.push_back(harder);
                self.state = State::Killed;
            }
            State::Killed | State::GaveUp => {
                self.outputs.push_back(Output::GiveUp(signal));
                self.state = State::GaveUp;
            }
        }
    }

    fn end(&mut self, now: Time, reason: EndReason) {
        self.bound(now + self.grace);
        self.outputs.push_back(Output::End(reason));
    }

    /// Sets the deadline for a job that has to end by `end`; a slow reader of its output gets [`UNREAD_MAX`] more. An
    /// earlier deadline stays.
    fn bound(&mut self, end: Time) {
        let due = end + UNREAD_MAX;
        self.due = Some(self.due.map_or(due, |before| before.min(due)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Time = Time::ZERO;

    fn at(seconds: u64) -> Time {
        START + Duration::from_secs(seconds)
    }

    fn escalation(time_limit: Option<Duration>) -> Escalation {
        let end = EndPolicy {
            time_limit,
            grace: Duration::from_secs(5),
            ..EndPolicy::default()
        };
        Escalation::new(START, &end)
    }

    /// Formats one line per input: the outputs, and the deadline after it.
    fn story(mut escalation: Escalation, inputs: &[(u64, Input)]) -> String {
        let mut lines = Vec::new();
        for (seconds, input) in inputs {
            escalation.handle(at(*seconds), *input);
            let outputs: Vec<String> = std::iter::from_fn(|| escalation.poll())
                .map(|output| format!("{output:?}"))
                .collect();
            let due = escalation.deadline().map(|due| due.since(START).as_secs());
            let due = due.map_or_else(|| "never".to_owned(), |due| format!("{due} s"));
            lines.push(format!(
                "{seconds} s {input:?}: {}; {due}",
                outputs.join(", ")
            ));
        }
        lines.join("\n")
    }

    #[test]
    fn each_request_is_harder_than_the_last() {
        use Input::Asked;
        let (int, term, hup) = (Signal::INT, Signal::TERM, Signal::HUP);
        let inputs = [
            (1, Asked(int)),
            (2, Asked(int)),
            (3, Asked(int)),
            (4, Asked(term)),
        ];
        insta::assert_snapshot!(story(escalation(None), &inputs), @"
        1 s Asked(Signal(2)): Pass(Signal(2)); never
        2 s Asked(Signal(2)): Kill(Signal(Signal(2))); 3 s
        3 s Asked(Signal(2)): GiveUp(Signal(2)); 3 s
        4 s Asked(Signal(15)): GiveUp(Signal(15)); 3 s
        ");
        let inputs = [(1, Asked(term)), (2, Asked(hup)), (3, Asked(int))];
        insta::assert_snapshot!(story(escalation(None), &inputs), @"
        1 s Asked(Signal(15)): End(Signal(Signal(15))); 7 s
        2 s Asked(Signal(1)): Kill(Signal(Signal(1))); 3 s
        3 s Asked(Signal(2)): GiveUp(Signal(2)); 3 s
        ");
        // A lost terminal does not count as a request: the next signal is the first one.
        let inputs = [(1, Input::TerminalLost), (2, Asked(term)), (3, Asked(term))];
        insta::assert_snapshot!(story(escalation(None), &inputs), @"
        1 s TerminalLost: End(TerminalLost); 7 s
        2 s Asked(Signal(15)): End(Signal(Signal(15))); 7 s
        3 s Asked(Signal(15)): Kill(Signal(Signal(15))); 4 s
        ");
    }

    #[test]
    fn a_controller_that_stands_at_two_looks_is_lost() {
        let seen = |stopped| Input::Controller { stopped };
        let limit = Some(Duration::from_secs(10));
        let inputs = [
            (15, Input::Tick),
            (16, Input::Tick),
            (16, seen(Some(7))),
            (17, Input::Tick),
            (17, seen(None)),
            (18, seen(Some(7))),
            (19, seen(Some(8))),
            (20, seen(Some(8))),
        ];
        insta::assert_snapshot!(story(escalation(limit), &inputs), @"
        15 s Tick: ; 16 s
        16 s Tick: DropUnread, CheckController; 17 s
        16 s Controller { stopped: Some(7) }: ; 17 s
        17 s Tick: DropUnread, CheckController; 18 s
        17 s Controller { stopped: None }: ; 18 s
        18 s Controller { stopped: Some(7) }: ; 18 s
        19 s Controller { stopped: Some(8) }: ; 18 s
        20 s Controller { stopped: Some(8) }: ControllerStopped; 18 s
        ");
    }
}
