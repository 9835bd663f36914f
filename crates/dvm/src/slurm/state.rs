//! One allocation, from the request until it is over. It says which command is to run, and what its caller learns.
//!
//! | state | a command prints the number | it ends well | it fails, or cannot be run | extend | describe | cancel | its time is over |
//! |---|---|---|---|---|---|---|---|
//! | asked: `salloc` runs | noted | → described | [`Output::Refused`], over | – | – | `salloc` is ended → withdrawn | [`Refused::TimedOut`]; `salloc` is ended → withdrawn |
//! | described: `scontrol show` runs | – | [`Output::Granted`] → held; if the job of Slurm is over: [`Refused::Gone`], over | [`Output::Refused`] → held, the first time → canceled | – | – | → canceled | it is killed; as if it fails |
//! | held: nothing runs | – | – | – | → extended | → described | → canceled | – |
//! | extended: `scontrol update` runs | – | → described | [`Output::Refused`] → held | – | – | → canceled | it is killed; as if it fails |
//! | withdrawn: `salloc` has to end | noted | → canceled, or over without a number | the same | – | – | – | it is killed; the same |
//! | canceled: `scancel` runs | – | over | [`Output::Left`], over; if the job of Slurm is over: over | – | – | – | it is killed; [`Output::Left`], over |
//!
//! A command runs at most as long as the patience of the [`super::Setup`], except `salloc`, which waits for Slurm as long as the proc does.

use std::{collections::VecDeque, time::Duration};

use base::{ExitStatus, Time};
use bytes::Bytes;
use pmix::value::Status;

use super::{
    CANCEL_MAX, Described, NotDone, PRINTED_MAX, Tool, Urgency, Wanted,
    text::{self, Said},
};

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// The command that runs has printed this.
    Printed(Bytes),
    /// The command that runs has ended.
    Ended(ExitStatus),
    /// The command could not be executed.
    NotRun(String),
    Extend(Duration),
    Describe,
    /// Nobody needs it any more.
    Cancel,
    Tick,
}

/// An action, or news for the proc that waits for an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// Run this command. Those that ran before are not heard any more.
    Run(Vec<String>),
    /// End the command that runs.
    End(Urgency),
    /// It is held, and this is what it has.
    Granted(Described),
    Refused(Refused),
    /// The job of Slurm could not be ended.
    Left(NotDone),
    /// Nothing follows.
    Over,
}

/// Why a proc does not get what it waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Slurm has said so. The user is told.
    BySlurm(NotDone),
    /// The proc did not want to wait longer.
    TimedOut,
    /// The allocation is over.
    Gone,
}

impl Refused {
    pub(crate) fn status(&self) -> Status {
        match self {
            Self::BySlurm(why) => why.status(),
            Self::TimedOut => Status::TIMEOUT,
            Self::Gone => Status::NOT_FOUND,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Asked,
    Described(Turn),
    Held,
    Extended,
    Withdrawn,
    Canceled,
    Over,
}

/// Whether its owner has been told of the allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    First,
    Later,
}

impl State {
    const fn tool(self) -> Tool {
        match self {
            Self::Asked | Self::Withdrawn => Tool::Salloc,
            Self::Described(_) | Self::Held | Self::Extended => Tool::Scontrol,
            Self::Canceled | Self::Over => Tool::Scancel,
        }
    }
}

/// An allocation that was requested of Slurm.
#[derive(Debug)]
pub(crate) struct Held {
    state: State,
    /// `None` until `salloc` has printed it.
    job: Option<u32>,
    printed: Vec<u8>,
    deadline: Option<Time>,
    patience: Duration,
    outputs: VecDeque<Output>,
}

impl Held {
    /// Requests an allocation. `timeout` is how long the proc waits; `None` for any time.
    pub(crate) fn new(
        now: Time,
        wanted: &Wanted,
        timeout: Option<Duration>,
        patience: Duration,
    ) -> Self {
        Self {
            state: State::Asked,
            job: None,
            printed: Vec::new(),
            deadline: timeout.map(|timeout| now + timeout),
            patience,
            outputs: VecDeque::from([Output::Run(text::salloc(wanted))]),
        }
    }

    /// Returns the job of Slurm.
    pub(crate) const fn job(&self) -> Option<u32> {
        self.job
    }

    /// Returns true if it is held, and no command about it runs.
    pub(crate) fn is_held(&self) -> bool {
        self.state == State::Held
    }

    /// Returns true if it is being given back.
    pub(crate) const fn is_ending(&self) -> bool {
        matches!(self.state, State::Withdrawn | State::Canceled | State::Over)
    }

    pub(crate) fn deadline(&self) -> Option<Time> {
        self.deadline
    }

    pub(crate) fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    pub(crate) fn handle(&mut self, now: Time, input: Input) {
        match (self.state, input) {
            (_, Input::Printed(bytes)) => self.on_printed(&bytes),
            (_, Input::Tick) if self.deadline.is_none_or(|deadline| now < deadline) => {}
            (State::Asked, Input::Ended(ExitStatus::Exited(0))) => match self.job {
                Some(job) => self.run(now, State::Described(Turn::First), text::show(job)),
                None => self.refuse_for_good(self.unclear()),
            },
            (State::Asked, Input::Ended(_)) => self.refuse_for_good(self.failed()),
            (State::Asked, Input::NotRun(why)) => self.refuse_for_good(self.not_run(why)),
            (State::Asked, Input::Tick) => {
                self.push(Output::Refused(Refused::TimedOut));
                self.withdraw(now);
            }
            (State::Asked, Input::Cancel) => self.withdraw(now),

            (State::Described(turn), Input::Ended(ExitStatus::Exited(0))) => {
                self.on_described(now, turn);
            }
            (State::Described(turn), Input::Ended(_)) => {
                self.not_described(now, turn, self.failed())
            }
            (State::Described(turn), Input::NotRun(why)) => {
                self.not_described(now, turn, self.not_run(why));
            }
            (State::Described(turn), Input::Tick) => {
                self.push(Output::End(Urgency::Kill));
                self.not_described(now, turn, self.silent());
            }

            (State::Held, Input::Extend(time)) => {
                if let Some(job) = self.job {
                    self.run(now, State::Extended, text::extend(job, time));
                }
            }
            (State::Held, Input::Describe) => self.show_again(now),
            (State::Extended, Input::Ended(ExitStatus::Exited(0))) => self.show_again(now),
            (State::Extended, Input::Ended(_)) => self.refuse(self.failed()),
            (State::Extended, Input::NotRun(why)) => self.refuse(self.not_run(why)),
            (State::Extended, Input::Tick) => {
                self.push(Output::End(Urgency::Kill));
                self.refuse(self.silent());
            }
            (State::Described(_) | State::Extended, Input::Cancel) => {
                self.push(Output::End(Urgency::Kill));
                self.cancel(now);
            }
            (State::Held, Input::Cancel) => self.cancel(now),

            (State::Withdrawn, Input::Ended(_) | Input::NotRun(_)) => self.cancel(now),
            (State::Withdrawn, Input::Tick) => {
                self.push(Output::End(Urgency::Kill));
                self.cancel(now);
            }
            (State::Canceled, Input::Ended(ExitStatus::Exited(0))) => self.finish(),
            (State::Canceled, Input::Ended(_)) => self.on_not_canceled(),
            (State::Canceled, Input::NotRun(why)) => self.leave(self.not_run(why)),
            (State::Canceled, Input::Tick) => {
                self.push(Output::End(Urgency::Kill));
                self.leave(self.silent());
            }

            // The caller asks only for what is held.
            (_, Input::Extend(_) | Input::Describe) => {}
            (State::Withdrawn | State::Canceled | State::Over, Input::Cancel) => {}
            (State::Held | State::Over, Input::Ended(_) | Input::NotRun(_) | Input::Tick) => {}
        }
    }

    fn push(&mut self, output: Output) {
        self.outputs.push_back(output);
    }

    fn run(&mut self, now: Time, state: State, command: Vec<String>) {
        self.state = state;
        self.printed.clear();
        self.deadline = Some(now + self.patience);
        self.push(Output::Run(command));
    }

    fn show_again(&mut self, now: Time) {
        if let Some(job) = self.job {
            self.run(now, State::Described(Turn::Later), text::show(job));
        }
    }

    fn on_printed(&mut self, bytes: &[u8]) {
        let room = PRINTED_MAX.saturating_sub(self.printed.len());
        self.printed.extend(&bytes[..bytes.len().min(room)]);
        if self.job.is_none() {
            self.job = text::number(&self.printed);
        }
    }

    fn on_described(&mut self, now: Time, turn: Turn) {
        match text::describe(&self.printed) {
            Said::Runs(described) => {
                self.hold();
                self.push(Output::Granted(described));
            }
            Said::Over => {
                self.push(Output::Refused(Refused::Gone));
                self.finish();
            }
            Said::Unclear => self.not_described(now, turn, self.unclear()),
        }
    }

    /// Handles that nobody knows what the allocation has. At first, nobody could use it.
    fn not_described(&mut self, now: Time, turn: Turn, why: NotDone) {
        match turn {
            Turn::First => {
                self.push(Output::Refused(Refused::BySlurm(why)));
                self.cancel(now);
            }
            // Slurm has forgotten it.
            Turn::Later if why.status() == Status::NOT_FOUND => {
                self.push(Output::Refused(Refused::Gone));
                self.finish();
            }
            Turn::Later => self.refuse(why),
        }
    }

    fn hold(&mut self) {
        self.state = State::Held;
        self.deadline = None;
    }

    fn refuse(&mut self, why: NotDone) {
        self.hold();
        self.push(Output::Refused(Refused::BySlurm(why)));
    }

    fn refuse_for_good(&mut self, why: NotDone) {
        self.push(Output::Refused(Refused::BySlurm(why)));
        self.finish();
    }

    /// Lets `salloc` withdraw the request. It may be granted meanwhile, so that `scancel` follows.
    fn withdraw(&mut self, now: Time) {
        self.state = State::Withdrawn;
        self.deadline = Some(now + self.patience);
        self.push(Output::End(Urgency::Ask));
    }

    fn cancel(&mut self, now: Time) {
        match self.job {
            Some(job) => {
                self.run(now, State::Canceled, text::scancel(job));
                self.deadline = Some(now + self.patience.min(CANCEL_MAX));
            }
            None => self.finish(),
        }
    }

    fn on_not_canceled(&mut self) {
        let words = text::words(Tool::Scancel, &self.printed);
        if text::is_over(&words) {
            self.finish();
        } else {
            self.leave(self.failed());
        }
    }

    fn leave(&mut self, why: NotDone) {
        self.push(Output::Left(why));
        self.finish();
    }

    fn finish(&mut self) {
        self.state = State::Over;
        self.deadline = None;
        self.push(Output::Over);
    }

    fn failed(&self) -> NotDone {
        let tool = self.state.tool();
        let words = text::words(tool, &self.printed);
        NotDone::Failed { tool, words }
    }

    fn not_run(&self, why: String) -> NotDone {
        let tool = self.state.tool();
        NotDone::NotRun { tool, why }
    }

    const fn silent(&self) -> NotDone {
        NotDone::Silent {
            tool: self.state.tool(),
            patience: self.patience,
        }
    }

    const fn unclear(&self) -> NotDone {
        NotDone::Unclear {
            tool: self.state.tool(),
        }
    }
}
