//! Bugs of the server that a test switches on, to show that the simulator finds them.
//!
//! `dvm` has the list of those that the simulator finds; `tests/nodes/planted.rs` finds those that need several nodes. Without
//! the feature `planted`, which no release has, `is` is the constant `false` and nothing of this is compiled into anything.

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
    /// A fence is over when all on the node have come.
    FenceStaysHere,
    /// The share of the last node is not handed on.
    ShareForgotten,
    /// Other nodes get what is for processes of the node alone.
    LocalDataLeavesTheNode,
    /// A group over several nodes has another number on each.
    ContextOfEachNode,
    /// Nobody on another node is told that members have gone.
    GoneNotTold,
    /// An event that another node has told of is told on.
    EventEchoes,
    /// A node that asks about a process is not told of its death.
    DeathNotTold,
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
        /// Switches it off, also when a test fails.
        struct Before(Option<Bug>);

        impl Drop for Before {
            fn drop(&mut self) {
                ON.set(self.0);
            }
        }

        let _before = Before(ON.replace(Some(bug)));
        act()
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
