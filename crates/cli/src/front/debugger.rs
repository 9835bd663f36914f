//! The debugger that has the front, if there is one: what it is shown, when it is called, and what its loss means.
//!
//! | when all ranks are held | after the breakpoint | the ranks |
//! |---|---|---|
//! | it has asked for that, and traces us | traces us still: it has continued us | run on |
//! | | has left, and said so: `MPIR_being_debugged` is 0 | run on |
//! | | has left without a word | run on with a warning, or the job ends: `--on-debugger-loss` |
//! | it has asked for that, and never traced us | | run on |
//! | nobody has asked | | stay held, which is said, until they are released |
//!
//! A debugger that is killed takes us with it where it has told the kernel so, as gdb does with what it has started. Then
//! none of this happens: the controller sees the loss of the front.

use base::RankSet;
use dvm::{
    proto::{EndReason, FromFront, Note},
    spec::OnDebuggerLoss,
};
use os::Pid;

use super::Front;
use crate::messages;

/// What was known of it when we started.
#[derive(Clone, Copy, Debug)]
pub(super) struct Debugger {
    tracer: Option<Pid>,
    pub(super) has_asked: bool,
}

impl Debugger {
    pub(super) fn at_start() -> Self {
        Self {
            tracer: tracer(),
            has_asked: mpir::being_debugged(),
        }
    }
}

/// Who traces us.
fn tracer() -> Option<Pid> {
    os::tracer(os::current_pid()).ok().flatten()
}

impl Front {
    pub(super) fn on_all_held(&mut self, held: &RankSet) {
        self.held = true;
        self.check_symbols(mpir::set_state(mpir::State::Spawned));
        let before = self.debugger.tracer.or_else(tracer);
        // Stands still here for as long as the debugger wants.
        mpir::breakpoint();
        let stays = mpir::being_debugged();
        if !stays && !self.debugger.has_asked {
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

    /// Tells it that the job does not come to its end by itself, and why. The end does not wait for it.
    pub(super) fn show_abort(&mut self, reason: &str) {
        self.check_symbols(mpir::set_state(mpir::State::Aborting { reason }));
        mpir::breakpoint();
    }

    /// Paths, host names and messages hold no NUL byte; one that did could not be shown.
    pub(super) fn check_symbols(&mut self, shown: Result<(), mpir::ContainsNul>) {
        if let Err(error) = shown {
            self.say(&messages::internal(&error.to_string()));
        }
    }
}
