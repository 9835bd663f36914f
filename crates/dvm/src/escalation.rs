//! What a front does when its job has to end, and harder each time it is asked.
//!
//! | state | INT | another signal that ends | terminal lost |
//! |---|---|---|---|
//! | `Running` | pass it to the ranks → `Asked` | end with grace → `Asked` | end with grace |
//! | `Asked` | kill → `Killed` | kill → `Killed` | end with grace |
//! | `Killed` | give up → `GaveUp` | give up → `GaveUp` | end with grace |
//! | `GaveUp` | give up | give up | end with grace |
//!
//! A job that has to end is given a time. When that is over, output that nobody reads is thrown away, and the controller
//! is looked at, again and again until the job has ended: one that is stopped cannot end it, and is lost when it is found
//! so twice in a row. A first INT gives no time, for a program may handle it and go on.

use std::{collections::VecDeque, time::Duration};

use base::{Signal, Time};

use crate::{
    planted::{self, Bug},
    proto::EndReason,
    spec::EndPolicy,
};

/// After the end of a job that had to end: how long output waits for somebody to read it, and the time between two looks
/// at the controller.
pub const UNREAD_MAX: Duration = Duration::from_secs(1);

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// A signal that ends programs has come to the front.
    Asked(Signal),
    /// The terminal of the front is gone, and the job is to go with it.
    TerminalLost,
    /// Answers [`Output::LookAtController`]: its process number, if it stands still.
    Controller { stopped: Option<i32> },
    /// The time that [`Escalation::deadline`] gave has come.
    Tick,
}

/// What the caller is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Pass the signal to every rank: most programs end then.
    Pass(Signal),
    /// SIGTERM, grace, SIGKILL.
    End(EndReason),
    /// SIGKILL at once.
    Kill(EndReason),
    /// Wait no longer.
    GiveUp(Signal),
    /// Throw away what nobody has read for [`UNREAD_MAX`].
    DropUnread,
    /// Say whether the controller is stopped.
    LookAtController,
    /// It was stopped at two looks, so that it was no accident. Nobody else will end the job.
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

/// The state machine.
#[derive(Debug)]
pub struct Escalation {
    state: State,
    grace: Duration,
    /// When patience is over; later the time of the next look.
    due: Option<Time>,
    /// The controller, where it was stopped at the last look.
    stopped: Option<i32>,
    outputs: VecDeque<Output>,
}

impl Escalation {
    /// For a job that is submitted now.
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

    /// Takes one event.
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
                    let looks = [Output::DropUnread, Output::LookAtController];
                    self.outputs.extend(looks);
                }
            }
        }
    }

    /// The next thing to do. Call until `None` after every [`Self::handle`].
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When [`Input::Tick`] is due.
    #[must_use]
    pub const fn deadline(&self) -> Option<Time> {
        self.due
    }

    /// The controller, where it was stopped at the last look.
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

    /// The job has to end by then: whoever does not read its output has a moment more.
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

    /// One line for each input: what is asked for, and the deadline after it.
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
        // A lost terminal is no request: the next signal is the first.
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
        16 s Tick: DropUnread, LookAtController; 17 s
        16 s Controller { stopped: Some(7) }: ; 17 s
        17 s Tick: DropUnread, LookAtController; 18 s
        17 s Controller { stopped: None }: ; 18 s
        18 s Controller { stopped: Some(7) }: ; 18 s
        19 s Controller { stopped: Some(8) }: ; 18 s
        20 s Controller { stopped: Some(8) }: ControllerStopped; 18 s
        ");
    }
}
