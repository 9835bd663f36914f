//! Timers of the server.

use std::collections::BTreeSet;

use base::Time;

use crate::value::Proc;

/// The action that is due when a timer fires.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// Answers a waiting get, by its id, without a value.
    Get(u64),
    /// Ends a collective, by its id, without all of its members.
    Collective(u64),
    /// Declares a process lost that has not reconnected.
    Silence(Proc),
    /// Counts a missed heartbeat of a process.
    Heartbeat(Proc),
}

/// All timers, by time. Each waiting request, collective, silent or monitored process has at most one, so their bounds
/// apply here too.
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

    /// Removes and returns the earliest timer that is due; `None` if none is.
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
