//! What the server does at a time of its own accord, unless something happens before.

use std::collections::BTreeSet;

use base::Time;

use crate::value::Proc;

/// Whose time it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// A get that waits, by its number, is answered without a value.
    Get(u64),
    /// A collective, by its number, ends without all of its members.
    Collective(u64),
    /// A process whose connection broke is taken for lost.
    Silence(Proc),
    /// A process should have sent a heartbeat.
    Heartbeat(Proc),
}

/// All that is due, by time. There is one for each thing that waits, at most; those have bounds of their own.
#[derive(Debug, Default)]
pub(super) struct Timers {
    due: BTreeSet<(Time, Timer)>,
}

impl Timers {
    pub(super) fn set(&mut self, at: Time, timer: Timer) {
        self.due.insert((at, timer));
    }

    pub(super) fn clear(&mut self, at: Time, timer: Timer) {
        self.due.remove(&(at, timer));
    }

    pub(super) fn next(&self) -> Option<Time> {
        self.due.first().map(|(at, _)| *at)
    }

    /// The first one whose time has come.
    pub(super) fn pop(&mut self, now: Time) -> Option<Timer> {
        if self.next()? > now {
            return None;
        }
        self.due.pop_first().map(|(_, timer)| timer)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.due.is_empty()
    }
}
