//! Bugs of the server that a test switches on, to show that the simulator finds them.
//!
//! `dvm` has the list and the tests. Without the feature `planted`, which no release has, `is` is the constant `false`
//! and nothing of this is compiled into anything.

/// A mistake that somebody could make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A fence is over when all but one are in it.
    FenceOneEarly,
    /// A get is answered with what rank 0 has put.
    GetOfAnother,
    EventTwice,
    /// Nobody is told of a process that has broken contact.
    SilenceNotTold,
}

#[cfg(feature = "planted")]
mod switched {
    use std::cell::Cell;

    use super::Bug;

    thread_local! {
        static ON: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    /// Runs `act` on this thread with one bug switched on.
    pub fn with<T>(bug: Bug, act: impl FnOnce() -> T) -> T {
        let before = ON.replace(Some(bug));
        let result = act();
        ON.set(before);
        result
    }

    /// Whether a bug is switched on.
    pub(crate) fn is(bug: Bug) -> bool {
        ON.get() == Some(bug)
    }
}

#[cfg(feature = "planted")]
pub(crate) use switched::is;
#[cfg(feature = "planted")]
pub use switched::with;

/// Whether a bug is switched on: never.
#[cfg(not(feature = "planted"))]
#[inline(always)]
pub(crate) const fn is(_: Bug) -> bool {
    false
}
