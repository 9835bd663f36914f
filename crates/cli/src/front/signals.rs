//! What signals to the front mean for the job. `dvm::escalation` decides how repeated requests to end become more forceful.
//!
//! | signal that ends the job | first | second | third |
//! |---|---|---|---|
//! | INT | pass to the ranks | kill the ranks | give up and print surviving pids |
//! | TERM | end the job with grace | kill the ranks | give up and print surviving pids |
//! | HUP | end the job with grace | kill the ranks | give up and print surviving pids |
//!
//! Each of these also ends the prompts of start commands: a job that is not launched ends by the first signal.
//!
//! | other signal | effect, however often it comes |
//! |---|---|
//! | HUP with `--on-hangup=continue` | none |
//! | TSTP from the keyboard | stop the front; the ranks run on; a prompt waits |
//! | TSTP from a process, QUIT, USR1, USR2, ALRM, URG, IO | pass to the ranks |
//! | WINCH | resize the ranks' terminals; without `--pty` also pass to the ranks |
//! | CONT | resume reading input; after a TSTP from the keyboard nothing else |
//! | CONT while ranks are held | release the ranks |
//! | CONT otherwise | pass to the ranks |

use std::{collections::BTreeSet, os::fd::AsFd};

use base::{Signal, Time};
use dvm::{
    escalation::{Input, Output, UNREAD_MAX},
    proto::{FromFront, TableRow},
    spec::WindowSize,
};
use os::{Clock, SignalInfo, SignalOrigin, Suspended};

use super::{Errand, Front};
use crate::choices::OnLoss;
use crate::{exit, messages};

/// Returns the signals that the front handles. A signal that our caller ignores stays ignored, except those in [`OURS`].
pub(super) fn taken() -> Vec<Signal> {
    HANDLED
        .into_iter()
        .filter(|signal| OURS.contains(signal) || !os::is_ignored(*signal))
        .collect()
}

/// The signals that the front handles even if our caller ignores them.
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

/// Returns the pids of the ranks that are descendants of these processes. A pid of another node may belong to any process of
/// this one.
fn alive_below(children: &[os::Pid], table: &[TableRow]) -> Vec<i32> {
    let below = children.iter().flat_map(|child| os::descendants(*child));
    let below: BTreeSet<i32> = below.map(os::Pid::as_raw).collect();
    let pids = table.iter().map(|row| row.pid);
    pids.filter(|pid| below.contains(pid)).collect()
}

impl Front {
    pub(super) fn on_signal(&mut self, info: SignalInfo) {
        let signal = info.signal;
        tracing::info!(target: crate::log::FRONT, "gets {signal}");
        match signal {
            Signal::INT | Signal::TERM => self.on_end_signal(signal),
            Signal::HUP if self.options.on_hangup == OnLoss::End => self.on_end_signal(signal),
            Signal::HUP | Signal::TTIN | Signal::TTOU | Signal::PIPE => {}
            Signal::TSTP if info.origin == SignalOrigin::Kernel => {
                self.prompter.suspend(&mut self.events);
                self.suspend();
                let answer = self.prompter.try_again(&mut self.events);
                self.send_answer(answer);
            }
            Signal::WINCH => {
                self.resize();
                // The kernel sends SIGWINCH to the rank of a `--pty` terminal. The terminals for output have no foreground
                // process group.
                if self.pty.is_none() {
                    self.link.send(FromFront::Signal(signal));
                }
            }
            Signal::CONT => {
                self.input.try_again();
                self.take_terminal();
                let answer = self.prompter.try_again(&mut self.events);
                self.send_answer(answer);
                if std::mem::take(&mut self.suspended) {
                    // `fg` and `bg` concern only the front: the ranks were never stopped, or are held for a debugger.
                } else if self.holds_ranks {
                    self.release();
                } else {
                    self.link.send(FromFront::Signal(signal));
                }
            }
            other => self.link.send(FromFront::Signal(other)),
        }
    }

    fn on_end_signal(&mut self, signal: Signal) {
        self.end_prompts();
        if let Errand::Up(_) = self.errand {
            // The machine ends when it finds that we are gone.
            self.give_up = Some(exit::signal(signal));
            return;
        }
        self.escalate(Clock::now(), Input::Asked(signal));
    }

    /// Gives an input to the escalation, and carries out what it requests.
    pub(super) fn escalate(&mut self, now: Time, input: Input) {
        self.escalation.handle(now, input);
        while let Some(output) = self.escalation.poll() {
            match output {
                Output::Pass(signal) => {
                    self.link.send(FromFront::Signal(signal));
                    // A job that waits ends at once, and says so.
                    if !self.table.is_empty() {
                        self.note(&messages::interrupted(self.table.len()));
                    }
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
                Output::CheckController => {
                    let stopped = self.stopped_controller().map(os::Pid::as_raw);
                    self.escalation.handle(now, Input::Controller { stopped });
                }
                Output::ControllerStopped => self.lose_controller(),
            }
        }
    }

    /// Stops waiting for the job, and reports which ranks may still be alive.
    fn give_up(&mut self, signal: Signal) {
        let alive = alive_below(&self.children(), &self.table);
        self.printers
            .print_if_idle(&messages::gave_up(&alive), self.options.message_format);
        self.give_up = Some(exit::signal(signal));
    }

    /// Ends the job if it must not outlive its terminal. A hang-up of a terminal that is not our controlling terminal comes
    /// without SIGHUP.
    pub(super) fn on_terminal_lost(&mut self) {
        if self.options.on_hangup == OnLoss::End {
            self.escalate(Clock::now(), Input::TerminalLost);
        }
    }

    /// Stops the front, as Ctrl-Z does to any program: the shell sees it stopped, and continues it with `fg` or `bg`.
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

#[cfg(test)]
mod tests {
    use std::process::Command;

    use base::Rank;

    use super::*;

    /// The pids of ranks on other nodes are those of living processes here: of the test and of the first process.
    #[test]
    fn pids_of_other_nodes_are_not_looked_up_here() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let here = i32::try_from(child.id()).unwrap();
        let ours = os::current_pid();
        let row = |(rank, pid)| TableRow {
            rank: Rank(rank),
            host: "n1".to_owned(),
            executable: "/bin/sleep".into(),
            pid,
        };
        let table: Vec<TableRow> = (0..).zip([here, ours.as_raw(), 1]).map(row).collect();
        let alive = alive_below(&[ours], &table);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(alive, [here]);
    }
}
