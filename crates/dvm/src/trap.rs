//! How a rank that is to be held comes to be stopped at its first instruction, without a tracer.
//!
//! | state | stopped by SIGTRAP | stopped by SIGSTOP | stopped by another signal |
//! |---|---|---|---|
//! | `Free` | – | – | – |
//! | `Traced` | detach from it with a SIGSTOP pending → `Stopping` | deliver the signal | deliver the signal |
//! | `Stopping` | – | it is held → `Free` | – |
//!
//! A rank that is not to be held is `Free` from the start. If another process stops it later, this state machine
//! ignores that.

use base::Signal;

use crate::{
    planted::{self, Bug},
    spec::HoldAt,
};

/// The state machine of one rank's exec trap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trap {
    Free,
    /// Traced by us; it will trap at its exec.
    Traced,
    /// It has executed its program and was detached, and a SIGSTOP is pending. It will stop before its first
    /// instruction.
    Stopping,
}

/// The response to a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    Nothing,
    /// Detach from the rank with a SIGSTOP pending.
    Leave,
    /// Continue the rank and deliver the signal that stopped it.
    PassOn(Signal),
    /// The rank is stopped where it is to be held.
    Held,
}

impl Trap {
    /// Creates the state machine for a rank that is started now.
    #[must_use]
    pub const fn new(hold: HoldAt) -> Self {
        match hold {
            HoldAt::Exec => Self::Traced,
            HoldAt::Nowhere | HoldAt::Init | HoldAt::App => Self::Free,
        }
    }

    /// Handles a stop of the rank by a signal, and returns the response.
    pub fn on_stopped(&mut self, signal: Signal) -> Act {
        let (next, act) = match (*self, signal) {
            (Self::Traced, Signal::TRAP) => (Self::Stopping, Act::Leave),
            (Self::Traced, Signal::STOP) if planted::is(Bug::StopTakenForHold) => {
                (Self::Free, Act::Held)
            }
            (Self::Traced, _) if planted::is(Bug::SignalBeforeExecKept) => {
                (Self::Traced, Act::Nothing)
            }
            (Self::Traced, signal) => (Self::Traced, Act::PassOn(signal)),
            (Self::Stopping, Signal::STOP) => (Self::Free, Act::Held),
            (state @ (Self::Stopping | Self::Free), _) => (state, Act::Nothing),
        };
        *self = next;
        act
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_is_held_once_and_its_signals_are_not_lost() {
        let (trap, stop, usr1) = (Signal::TRAP, Signal::STOP, Signal::USR1);
        let mut held = Trap::new(HoldAt::Exec);
        for (signal, act, state) in [
            (usr1, Act::PassOn(usr1), Trap::Traced),
            (stop, Act::PassOn(stop), Trap::Traced),
            (trap, Act::Leave, Trap::Stopping),
            (usr1, Act::Nothing, Trap::Stopping),
            (stop, Act::Held, Trap::Free),
            (stop, Act::Nothing, Trap::Free),
            (trap, Act::Nothing, Trap::Free),
        ] {
            assert_eq!(held.on_stopped(signal), act);
            assert_eq!(held, state);
        }
        for hold in [HoldAt::Nowhere, HoldAt::Init, HoldAt::App] {
            assert_eq!(Trap::new(hold), Trap::Free);
        }
    }
}
