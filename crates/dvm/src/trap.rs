//! How a rank that is to be held comes to stand at its first instruction, with nobody tracing it.
//!
//! | state | stopped by SIGTRAP | by SIGSTOP | by another signal |
//! |---|---|---|---|
//! | `Free` | – | – | – |
//! | `Traced` | leave it, with a stop pending → `Stopping` | pass it on | pass it on |
//! | `Stopping` | – | it stands → `Free` | – |
//!
//! A rank is `Free` when it was never to be held, too; that somebody stops one which runs is nobody's business here.

use base::Signal;

use crate::spec::HoldAt;

/// The state machine of one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trap {
    Free,
    /// It will be trapped at its exec.
    Traced,
    /// It has executed, and is on its way into state T without having run an instruction.
    Stopping,
}

/// What is to be done about a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    Nothing,
    /// Stop tracing it, with a SIGSTOP pending.
    Leave,
    /// Let it run on, with the signal that it was stopped for.
    PassOn(Signal),
    /// It stands where it is to be held.
    Held,
}

impl Trap {
    /// For a rank that is started now.
    #[must_use]
    pub const fn new(hold: HoldAt) -> Self {
        match hold {
            HoldAt::Exec => Self::Traced,
            HoldAt::Nowhere | HoldAt::Init | HoldAt::App => Self::Free,
        }
    }

    /// It has stopped.
    pub fn on_stopped(&mut self, signal: Signal) -> Act {
        let (next, act) = match (*self, signal) {
            (Self::Traced, Signal::TRAP) => (Self::Stopping, Act::Leave),
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
