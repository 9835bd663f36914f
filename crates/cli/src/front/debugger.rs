//! The debugger that is attached to the front, if any: the state it is shown, when the breakpoint is called, and what the
//! loss of the debugger means.
//!
//! | the debugger, when all ranks are held | after the breakpoint | the ranks |
//! |---|---|---|
//! | has set `MPIR_being_debugged`, traces us | has continued us, still traces us | run on |
//! | has set `MPIR_being_debugged`, traces us | has detached and cleared `MPIR_being_debugged` | run on |
//! | has set `MPIR_being_debugged`, traces us | is gone, `MPIR_being_debugged` still set | depends on `--on-debugger-loss` |
//! | has set `MPIR_being_debugged`, never traced us | – | run on |
//! | is absent: `MPIR_being_debugged` is 0 | – | stay held until released; we print a note |
//!
//! `--on-debugger-loss` decides whether the ranks run on with a warning, or the job ends.
//!
//! A debugger that is killed may take the front with it, if it has set `PTRACE_O_EXITKILL`, as gdb does for programs it has
//! started. The table does not apply then: the controller sees the loss of the front.

use base::RankSet;
use dvm::{
    proto::{EndReason, FromFront, Note},
    spec::OnDebuggerLoss,
};
use os::Pid;

use super::Front;
use crate::messages;

/// The debugger as it was when the front started.
#[derive(Clone, Copy, Debug)]
pub(super) struct Debugger {
    tracer: Option<Pid>,
    pub(super) was_being_debugged: bool,
}

impl Debugger {
    pub(super) fn at_start() -> Self {
        Self {
            tracer: tracer(),
            was_being_debugged: mpir::being_debugged(),
        }
    }
}

/// Returns the pid of the process that traces the front.
fn tracer() -> Option<Pid> {
    os::tracer(os::current_pid()).ok().flatten()
}

impl Front {
    /// Shows the debugger the ranks of the job.
    pub(super) fn show_table(&mut self, name: &str) {
        let entries = self.table.iter().map(|row| mpir::Entry {
            host: row.host.clone(),
            executable: row.executable.to_string_lossy().into_owned(),
            pid: row.pid,
        });
        let shown = mpir::name_job(name).and_then(|()| mpir::publish(entries.collect()));
        self.check_symbols(shown);
    }

    /// Calls the breakpoint: all ranks are held.
    pub(super) fn stop_for_debugger(&mut self, held: RankSet) {
        self.check_symbols(mpir::set_state(mpir::State::Spawned));
        let before = self.debugger.tracer.or_else(tracer);
        // A debugger stops the front here for as long as it wants.
        mpir::breakpoint();
        self.on_continued(held, before);
    }

    /// Decides what becomes of the held ranks after the breakpoint. `before` has traced us then.
    pub(super) fn resume(&mut self, held: &RankSet, before: Option<Pid>) {
        let stays = mpir::being_debugged();
        if !stays && !self.debugger.was_being_debugged {
            let front = os::current_pid().as_raw();
            return self.note(&messages::held(held, self.hold, front));
        }
        if !stays || before.is_none() || tracer().is_some() {
            return self.release();
        }
        match self.end.on_debugger_loss {
            OnDebuggerLoss::Kill => {
                let end = FromFront::End(EndReason::DebuggerLost);
                self.link.send(end);
            }
            OnDebuggerLoss::Release => {
                self.release();
                let ranks = held.clone();
                if let Some(job) = self.job {
                    let note = Note::DebuggerLost { job, ranks };
                    let message = dvm::messages::note(&note, &self.scene());
                    self.note(&message);
                }
            }
        }
    }

    /// Shows the debugger that the job is being aborted, and why. The end of the job does not wait for the debugger.
    pub(super) fn show_abort(&mut self, reason: &str) {
        self.check_symbols(mpir::set_state(mpir::State::Aborting { reason }));
        mpir::breakpoint();
    }

    /// Reports a string that MPIR cannot show because it contains a NUL byte. Paths, host names and messages contain none.
    pub(super) fn check_symbols(&mut self, shown: Result<(), mpir::ContainsNul>) {
        if let Err(error) = shown {
            self.say(&messages::internal(&error.to_string()));
        }
    }
}
