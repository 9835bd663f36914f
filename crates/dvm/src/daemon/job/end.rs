//! Ending the procs of a job, and sweeping the processes that they leave behind.

use std::{collections::BTreeSet, time::Duration};

use base::{Signal, Time};

use super::{Audience, LocalJob, Out, PROC_KILL_MAX, Phase};
use crate::{
    daemon::{
        Output,
        sweep::{Action, Manner},
    },
    planted::{self, Bug},
    proto::{Note, Stream, ToController},
};

impl LocalJob {
    /// Sends SIGTERM now, and SIGKILL after the grace.
    pub(in crate::daemon) fn end(&mut self, now: Time, grace: Duration, out: &mut Out) {
        self.cancel_starts(now, out);
        if self.phase != Phase::Running {
            return;
        }
        self.exits_before_finalize.on_ending();
        let ignored = planted::is(Bug::GraceIgnored);
        let grace = if ignored { Duration::ZERO } else { grace };
        self.phase = Phase::Ending {
            kill_at: now + grace,
        };
        self.signal(Signal::TERM, out);
        // A stopped process does not handle SIGTERM until it is continued.
        if !planted::is(Bug::ContAfterTermForgotten) {
            self.signal(Signal::CONT, out);
        }
    }

    /// Ends the job within `grace`, even if it had been granted more. The controller is gone, and with it every reader
    /// of output.
    pub(in crate::daemon) fn controller_lost(&mut self, now: Time, grace: Duration, out: &mut Out) {
        self.audience = Audience::Gone;
        for stream in Stream::BOTH {
            self.on_output_credit(now, stream, u64::MAX, out);
        }
        self.end(now, grace, out);
        if let Phase::Ending { kill_at } = &mut self.phase {
            *kill_at = (*kill_at).min(now + grace);
        }
    }

    pub(in crate::daemon) fn kill(&mut self, now: Time, out: &mut Out) {
        self.cancel_starts(now, out);
        if !matches!(self.phase, Phase::Killing { .. }) {
            self.phase = Phase::Killing {
                abandon_at: Some(now + PROC_KILL_MAX),
            };
            self.signal(Signal::KILL, out);
        }
        let action = self.sweep.harden(now);
        self.carry_out(action, out);
    }

    pub(super) fn finish_if_done(&mut self, now: Time, out: &mut Out) {
        if self.launched && self.sweep.is_idle() && self.unsettled == 0 {
            let manner = match self.phase {
                Phase::Running => Manner::Ask {
                    grace: self.launch.end.grace,
                },
                Phase::Ending { kill_at } => Manner::Ask {
                    grace: kill_at.since(now),
                },
                Phase::Killing { .. } => Manner::Kill,
            };
            let action = self.sweep.begin(manner);
            self.carry_out(action, out);
        }
    }

    pub(in crate::daemon) fn on_swept(
        &mut self,
        now: Time,
        left: &[i32],
        not_permitted: BTreeSet<i32>,
        out: &mut Out,
    ) {
        let action = self.sweep.on_swept(now, left, not_permitted);
        self.carry_out(action, out);
    }

    pub(in crate::daemon) fn on_stray_exited(&mut self, out: &mut Out) {
        let action = self.sweep.on_stray_exited();
        self.carry_out(action, out);
    }

    pub(super) fn carry_out(&mut self, action: Action, out: &mut Out) {
        let job = self.launch.job;
        let node = self.node;
        match action {
            Action::Nothing => {}
            Action::Sweep(signal) => out.push_back(Output::Sweep { job, signal }),
            Action::Report {
                ended: count,
                stuck,
                not_permitted,
            } => {
                let ended = (count > 0).then_some(Note::LeftBehind { node, count });
                let stuck = (!stuck.is_empty()).then_some(Note::Stuck { node, pids: stuck });
                let others = (!not_permitted.is_empty()).then_some(Note::NotPermitted {
                    node,
                    pids: not_permitted,
                });
                for note in [ended, stuck, others].into_iter().flatten() {
                    out.push_back(Output::Send(ToController::Note { job, note }));
                }
            }
        }
    }
}
