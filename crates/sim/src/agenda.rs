//! Future events in virtual time.

use std::collections::BTreeMap;

use base::Time;

/// Future events, ordered by time and, at the same time, in the order of scheduling.
#[derive(Debug)]
pub(crate) struct Agenda<Event> {
    pub(crate) now: Time,
    events: BTreeMap<(Time, u64), Event>,
    count: u64,
    /// Deadline for which a tick is scheduled, so that one deadline causes one tick.
    tick_for: Option<Time>,
}

impl<Event> Agenda<Event> {
    pub(crate) const fn new() -> Self {
        Self {
            now: Time::ZERO,
            events: BTreeMap::new(),
            count: 0,
            tick_for: None,
        }
    }

    pub(crate) fn at(&mut self, when: Time, event: Event) {
        self.events.insert((when.max(self.now), self.count), event);
        self.count += 1;
    }

    pub(crate) fn tick_at(&mut self, deadline: Option<Time>, event: Event) {
        if deadline != self.tick_for {
            self.tick_for = deadline;
            if let Some(due) = deadline {
                self.at(due, event);
            }
        }
    }

    /// Returns the time of the next event.
    pub(crate) fn next_at(&self) -> Option<Time> {
        self.events.first_key_value().map(|((when, _), _)| *when)
    }

    /// Removes and returns the next event, and sets the time to that of the event. `None` if no event is scheduled.
    pub(crate) fn next(&mut self) -> Option<Event> {
        let ((when, _), event) = self.events.pop_first()?;
        self.now = self.now.max(when);
        Some(event)
    }
}
