//! The watchdog process that `--on-hang` starts beside the front, from its start to its exit.
//!
//! | state | all ranks run | watchdog started | watchdog failed to start | the job is over | watchdog exited | deadline |
//! |---|---|---|---|---|---|---|
//! | `Off` | – | – | – | – | – | – |
//! | `Planned` | start the watchdog → `Starting` | – | – | → `Off` | – | – |
//! | `Starting` | – | → `Runs` | → `Off` | → `Cancelled` | – | – |
//! | `Cancelled` | – | SIGTERM → `Leaves` | → `Off` | – | – | – |
//! | `Runs` | – | – | – | SIGTERM → `Leaves` | → `Off` | – |
//! | `Leaves` | – | – | – | – | → `Off` | SIGKILL, repeated at each deadline |
//!
//! A held rank does not run. In a job with held ranks, all ranks run once the last of them was released.

use std::{collections::VecDeque, time::Duration};

use base::Time;

use crate::planted::{self, Bug};

/// How long the watchdog may take to exit after SIGTERM: it may be in the middle of writing an HTML page.
pub const LEAVE_MAX: Duration = Duration::from_secs(3);

/// An event that the caller reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// All ranks run.
    RanksRun,
    /// Answers [`Output::Start`] with the pid of the watchdog.
    Started(i32),
    /// Answers [`Output::Start`]: the watchdog could not be started.
    NotStarted,
    /// A child of the front, possibly the watchdog, has exited.
    Exited(i32),
    /// The job has ended.
    JobOver,
    /// The time that [`Watchdog::deadline`] returned has passed.
    Tick,
}

/// An action for the caller to carry out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    Start {
        /// How long the job may make no progress before the watchdog prints a report.
        idle: Duration,
        /// Remaining time of the job's time limit; `None` if it has no limit.
        left: Option<Duration>,
    },
    /// Ask the process to exit, with SIGTERM.
    Ask(i32),
    Kill(i32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Off,
    Planned {
        idle: Duration,
        limit: Option<Time>,
    },
    Starting,
    /// The job ended before the watchdog had started.
    Cancelled,
    Runs(i32),
    Leaves {
        pid: i32,
        until: Time,
    },
}

/// The state machine of one job's watchdog.
#[derive(Debug)]
pub struct Watchdog {
    state: State,
    outputs: VecDeque<Output>,
}

impl Watchdog {
    /// Creates the state machine for a job that is submitted now. `idle` is `None` if the job is not to be watched;
    /// `time_limit` is the job's own.
    #[must_use]
    pub fn new(now: Time, idle: Option<Duration>, time_limit: Option<Duration>) -> Self {
        Self {
            state: idle.map_or(State::Off, |idle| State::Planned {
                idle,
                limit: time_limit.map(|limit| now + limit),
            }),
            outputs: VecDeque::new(),
        }
    }

    /// Handles one event.
    pub fn handle(&mut self, now: Time, input: Input) {
        self.state = match (self.state, input) {
            (State::Planned { idle, limit }, Input::RanksRun) => {
                let left = limit.map(|limit| limit.since(now));
                self.outputs.push_back(Output::Start { idle, left });
                State::Starting
            }
            (State::Starting, Input::Started(pid)) => State::Runs(pid),
            (State::Starting | State::Cancelled, Input::NotStarted)
            | (State::Planned { .. }, Input::JobOver) => State::Off,
            (State::Starting, Input::JobOver) => State::Cancelled,
            (State::Cancelled, Input::Started(pid)) | (State::Runs(pid), Input::JobOver) => {
                self.outputs.push_back(Output::Ask(pid));
                let until = now + LEAVE_MAX;
                State::Leaves { pid, until }
            }
            (State::Runs(pid) | State::Leaves { pid, .. }, Input::Exited(ended))
                if pid == ended =>
            {
                State::Off
            }
            (State::Leaves { pid, until }, Input::Tick) if until <= now => {
                if !planted::is(Bug::WatchdogNotKilled) {
                    self.outputs.push_back(Output::Kill(pid));
                }
                let until = now + LEAVE_MAX;
                State::Leaves { pid, until }
            }
            (state, _) => state,
        };
    }

    /// Returns the next action. Call it after every [`Self::handle`] until it returns `None`.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Returns the time at which [`Input::Tick`] is due.
    #[must_use]
    pub const fn deadline(&self) -> Option<Time> {
        match self.state {
            State::Leaves { until, .. } => Some(until),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    fn story(idle: Option<u64>, inputs: &[(u64, Input)]) -> String {
        let mut watchdog = Watchdog::new(
            at(0),
            idle.map(Duration::from_secs),
            Some(Duration::from_secs(100)),
        );
        let mut lines = Vec::new();
        for (seconds, input) in inputs {
            watchdog.handle(at(*seconds), *input);
            let outputs: Vec<Output> = std::iter::from_fn(|| watchdog.poll()).collect();
            lines.push(format!("{input:?}: {:?} {outputs:?}", watchdog.state));
        }
        lines.join("\n")
    }

    #[test]
    fn it_is_started_once_and_does_not_outlive_the_job() {
        use Input::{Exited, JobOver, NotStarted, RanksRun, Started, Tick};
        let whole = [
            (2, RanksRun),
            (2, Started(7)),
            (3, RanksRun),
            (4, Exited(8)),
            (5, JobOver),
            (6, JobOver),
            (7, Tick),
            (8, Tick),
            (11, Tick),
            (11, Exited(7)),
            (99, RanksRun),
        ];
        insta::assert_snapshot!(story(Some(60), &whole), @"
        RanksRun: Starting [Start { idle: 60s, left: Some(98s) }]
        Started(7): Runs(7) []
        RanksRun: Runs(7) []
        Exited(8): Runs(7) []
        JobOver: Leaves { pid: 7, until: Time(8000000000) } [Ask(7)]
        JobOver: Leaves { pid: 7, until: Time(8000000000) } []
        Tick: Leaves { pid: 7, until: Time(8000000000) } []
        Tick: Leaves { pid: 7, until: Time(11000000000) } [Kill(7)]
        Tick: Leaves { pid: 7, until: Time(14000000000) } [Kill(7)]
        Exited(7): Off []
        RanksRun: Off []
        ");
        // The job ends before the watchdog starts; the watchdog exits by itself; no watchdog was requested.
        let early = [(1, JobOver), (2, RanksRun)];
        insta::assert_snapshot!(story(Some(60), &early), @"
        JobOver: Off []
        RanksRun: Off []
        ");
        let crossed = [(1, RanksRun), (1, JobOver), (1, Started(7)), (2, Exited(7))];
        insta::assert_snapshot!(story(Some(60), &crossed), @"
        RanksRun: Starting [Start { idle: 60s, left: Some(99s) }]
        JobOver: Cancelled []
        Started(7): Leaves { pid: 7, until: Time(4000000000) } [Ask(7)]
        Exited(7): Off []
        ");
        let alone = [(1, RanksRun), (1, Started(7)), (2, Exited(7)), (3, JobOver)];
        insta::assert_snapshot!(story(Some(60), &alone), @"
        RanksRun: Starting [Start { idle: 60s, left: Some(99s) }]
        Started(7): Runs(7) []
        Exited(7): Off []
        JobOver: Off []
        ");
        let missing = [(1, RanksRun), (1, NotStarted), (3, JobOver)];
        insta::assert_snapshot!(story(Some(60), &missing), @"
        RanksRun: Starting [Start { idle: 60s, left: Some(99s) }]
        NotStarted: Off []
        JobOver: Off []
        ");
        insta::assert_snapshot!(story(None, &whole[..3]), @"
        RanksRun: Off []
        Started(7): Off []
        RanksRun: Off []
        ");
    }
}
