//! What signals to the front mean for the job. How the end is asked for again and again is `dvm::escalation`'s.
//!
//! | signal | first | again | third |
//! |---|---|---|---|
//! | INT | passed to the ranks | ranks killed | front gives up, says what may be left |
//! | TERM | job ended with grace | ranks killed | front gives up |
//! | HUP | job ended with grace, or passed over (`--on-hangup=continue`) | as TERM | |
//! | TSTP from the keyboard | the front stops, the job runs on | | |
//! | TSTP from a process, CONT, QUIT, USR1, USR2, ALRM, URG, WINCH | passed to the ranks | | |

use std::os::fd::AsFd;

use base::{Signal, Time};
use dvm::{
    escalation::{Input, Output, UNREAD_MAX},
    proto::FromFront,
    spec::WindowSize,
};
use os::{Clock, SignalInfo, SignalOrigin, Suspended};

use super::Front;
use crate::choices::OnLoss;
use crate::{exit, messages};

/// The signals that the front takes, unless our caller ignores them: what it has said holds for us as well.
pub(super) fn taken() -> Vec<Signal> {
    HANDLED
        .into_iter()
        .filter(|signal| OURS.contains(signal) || !os::is_ignored(*signal))
        .collect()
}

/// Whatever our caller does with them.
const OURS: [Signal; 4] = [Signal::CONT, Signal::TTIN, Signal::TTOU, Signal::PIPE];

const HANDLED: [Signal; 15] = [
    Signal::INT,
    Signal::TERM,
    Signal::HUP,
    Signal::QUIT,
    Signal::USR1,
    Signal::USR2,
    Signal::ALRM,
    Signal::CONT,
    Signal::TSTP,
    Signal::WINCH,
    Signal(23),
    // Blocked, so that reading a terminal from the background fails instead of stopping us.
    Signal::TTIN,
    Signal::TTOU,
    Signal::PIPE,
    Signal(29),
];

impl Front {
    pub(super) fn on_signal(&mut self, info: SignalInfo) {
        let signal = info.signal;
        match signal {
            Signal::INT | Signal::TERM => self.on_end_signal(signal),
            Signal::HUP if self.options.on_hangup == OnLoss::End => self.on_end_signal(signal),
            Signal::HUP | Signal::TTIN | Signal::TTOU | Signal::PIPE => {}
            Signal::TSTP if info.origin == SignalOrigin::Kernel => self.suspend(),
            Signal::WINCH => {
                self.resize();
                // A terminal says it to its own rank; those for output have nobody to say it to.
                if self.pty.is_none() {
                    self.link.send(FromFront::Signal(signal));
                }
            }
            Signal::CONT => {
                self.input.try_again();
                self.take_terminal();
                if std::mem::take(&mut self.suspended) {
                    // `fg` and `bg` are about us: the ranks ran on, or are held for a debugger.
                } else if self.held {
                    self.release();
                } else {
                    self.link.send(FromFront::Signal(signal));
                }
            }
            other => self.link.send(FromFront::Signal(other)),
        }
    }

    fn on_end_signal(&mut self, signal: Signal) {
        self.escalate(Clock::now(), Input::Asked(signal));
    }

    /// Tells the escalation what has happened, and does what it asks for.
    pub(super) fn escalate(&mut self, now: Time, input: Input) {
        self.escalation.handle(now, input);
        while let Some(output) = self.escalation.poll() {
            match output {
                Output::Pass(signal) => {
                    self.link.send(FromFront::Signal(signal));
                    self.note(&messages::interrupted(self.table.len()));
                }
                Output::End(reason) => self.link.send(FromFront::End(reason)),
                Output::Kill(reason) => self.link.send(FromFront::Kill(reason)),
                Output::GiveUp(signal) => self.give_up(signal),
                Output::DropUnread => {
                    let dropped = self.printers.drop_stuck(&mut self.events, now, UNREAD_MAX);
                    if dropped > 0 {
                        self.say(&messages::output_dropped(dropped));
                    }
                }
                Output::LookAtController => {
                    let stopped = self.stopped_controller().map(os::Pid::as_raw);
                    self.escalation.handle(now, Input::Controller { stopped });
                }
                Output::ControllerStopped => self.lose_controller(),
            }
        }
    }

    /// The user has asked so often that nothing is waited for.
    fn give_up(&mut self, signal: Signal) {
        let alive: Vec<i32> = self
            .table
            .iter()
            .map(|row| row.pid)
            .filter(|pid| os::start_time(os::Pid::from_raw(*pid)).is_some())
            .collect();
        self.printers
            .say_at_once(&messages::gave_up(&alive), self.options.message_format);
        self.give_up = Some(exit::signal(signal));
    }

    /// A terminal is gone, and perhaps no SIGHUP tells of it.
    pub(super) fn on_terminal_lost(&mut self) {
        if self.options.on_hangup == OnLoss::End {
            self.escalate(Clock::now(), Input::TerminalLost);
        }
    }

    /// Does what the key means to any program: the shell sees us stopped, and continues us by `fg` or `bg`.
    fn suspend(&mut self) {
        self.suspended = os::suspend() == Suspended::AndContinued;
    }

    fn resize(&mut self) {
        let Ok([stdin, stdout, _]) = os::standard_streams() else {
            return;
        };
        let terminal = match (self.pty, self.lines) {
            (Some(_), _) => stdin,
            (None, Some(_)) => stdout,
            (None, None) => None,
        };
        if let Some(size) = terminal.and_then(|fd| os::window_size(fd.as_fd())) {
            let size = WindowSize {
                rows: size.rows,
                columns: size.columns,
            };
            self.link.send(FromFront::Resize(size));
        }
    }
}
