//! State machines outside of the cluster: the escalation of a front, the watchdog, traced ranks, the exec trap and the
//! backlog of a slow peer. Each is tested in a small world of its own, in virtual time.

mod backlog;
mod debuggers;
mod front;
mod trap;
mod watchdog;

use std::collections::BTreeMap;

use base::Time;

use crate::{
    rng::Rng,
    world::{Played, Recorded, Report},
};

/// Description of a fault, and the record of the run up to it; the record is empty if the run is not recorded.
pub(crate) type Wrong = (String, Vec<String>);

/// Time that a process takes to react, in milliseconds.
const LATENCY_MS: u64 = 50;

/// Future events, ordered by time and, at the same time, in the order of scheduling.
#[derive(Debug)]
struct Agenda<Event> {
    now: Time,
    events: BTreeMap<(Time, u64), Event>,
    count: u64,
    /// Deadline for which a tick is scheduled, so that one deadline causes one tick.
    tick_for: Option<Time>,
}

impl<Event> Agenda<Event> {
    const fn new() -> Self {
        Self {
            now: Time::ZERO,
            events: BTreeMap::new(),
            count: 0,
            tick_for: None,
        }
    }

    fn at(&mut self, when: Time, event: Event) {
        self.events.insert((when.max(self.now), self.count), event);
        self.count += 1;
    }

    fn tick_at(&mut self, deadline: Option<Time>, event: Event) {
        if deadline != self.tick_for {
            self.tick_for = deadline;
            if let Some(due) = deadline {
                self.at(due, event);
            }
        }
    }

    fn next(&mut self) -> Option<Event> {
        let ((when, _), event) = self.events.pop_first()?;
        self.now = when;
        Some(event)
    }
}

/// The record of a run. It counts all events, and has a line for each only if the run is recorded.
#[derive(Debug)]
struct Record {
    lines: Option<Vec<String>>,
    events: u64,
}

impl Record {
    fn note(&mut self, now: Time, what: impl FnOnce() -> String) {
        self.events += 1;
        if let Some(lines) = &mut self.lines {
            lines.push(format!(
                "{:>12} {}",
                now.since(Time::ZERO).as_micros(),
                what()
            ));
        }
    }

    fn require(&mut self, holds: bool, what: impl FnOnce() -> String) -> Result<(), Wrong> {
        if holds {
            return Ok(());
        }
        Err((what(), self.lines.take().unwrap_or_default()))
    }
}

/// Plays each of these worlds once.
pub(crate) fn run(rng: &mut Rng, recorded: Recorded) -> Played {
    let mut record = Record {
        lines: matches!(recorded, Recorded::Yes).then(Vec::new),
        events: 0,
    };
    match play(rng, &mut record) {
        Ok(report) => Played {
            result: Ok(report),
            record: record.lines.unwrap_or_default(),
        },
        Err((what, record)) => Played {
            result: Err(what),
            record,
        },
    }
}

/// Returns the first fault as an error.
fn play(rng: &mut Rng, record: &mut Record) -> Result<Report, Wrong> {
    let ends = [
        front::play(rng, record)?,
        watchdog::play(rng, record)?,
        debuggers::play(rng, record)?,
        trap::play(rng, record)?,
        backlog::play(rng, record)?,
    ];
    Ok(Report {
        events: record.events,
        faults: 0,
        finished: ends.into_iter().max().unwrap_or(Time::ZERO),
    })
}
