//! State machines outside of the cluster: the escalation of a front, the watchdog, traced ranks, the exec trap, the backlog of a slow
//! peer, and the start of daemons. Each is tested in a small world of its own, in virtual time.

mod backlog;
mod debuggers;
mod front;
mod start;
mod trap;
mod watchdog;

use base::Time;

use crate::{
    agenda::Agenda,
    record::{self, Played, Recorded, Report},
    rng::Rng,
};

/// A fault was recorded, so the run ends.
#[derive(Debug)]
struct Wrong;

/// Time that a process takes to react, in milliseconds.
const LATENCY_MS: u64 = 50;

/// The record of a run, and the number of its events.
#[derive(Debug)]
struct Record {
    record: record::Record,
    events: u64,
    /// Time of the last event.
    now: Time,
}

impl Record {
    fn note(&mut self, now: Time, what: impl FnOnce() -> String) {
        self.events += 1;
        self.now = now;
        self.record.note(now, what);
    }

    fn require(&mut self, holds: bool, what: impl FnOnce() -> String) -> Result<(), Wrong> {
        self.record.require(self.now, holds, what);
        if holds { Ok(()) } else { Err(Wrong) }
    }
}

/// Plays each of these worlds once.
pub(crate) fn run(rng: &mut Rng, recorded: Recorded) -> Played {
    let mut record = Record {
        record: record::Record::new(recorded),
        events: 0,
        now: Time::ZERO,
    };
    let report = play(rng, &mut record).unwrap_or_default();
    record.record.into_played(report)
}

/// Returns the first fault as an error.
fn play(rng: &mut Rng, record: &mut Record) -> Result<Report, Wrong> {
    let ends = [
        front::play(rng, record)?,
        watchdog::play(rng, record)?,
        debuggers::play(rng, record)?,
        trap::play(rng, record)?,
        backlog::play(rng, record)?,
        start::play(rng, record)?,
    ];
    Ok(Report {
        events: record.events,
        faults: 0,
        finished: ends.into_iter().max().unwrap_or(Time::ZERO),
    })
}
