//! The watchdog of a job: it may exit immediately, late or never when it is asked to, exit by itself, or fail to start.

use std::time::Duration;

use base::Time;
use dvm::watchdog::{Input, LEAVE_MAX, Output, Watchdog};

use super::{Agenda, LATENCY_MS, Record, Wrong};
use crate::rng::Rng;

const PID: i32 = 9;
const HORIZON: Duration = Duration::from_secs(120);

#[derive(Clone, Copy, Debug)]
enum Event {
    RanksRun,
    JobOver,
    /// The watchdog exits, if it is alive.
    Ends,
    Tick,
}

pub(super) fn play(rng: &mut Rng, record: &mut Record) -> Result<Time, Wrong> {
    let idle = rng.chance(90).then(|| rng.millis(1_000, 60_000));
    let limit = rng.chance(50).then(|| rng.millis(0, 60_000));
    let starts = rng.chance(90);
    // Time that the watchdog takes to exit when it is asked to; `None` if it ignores the request.
    let leaves = rng.chance(70).then(|| rng.millis(0, 6_000));
    let mut watchdog = Watchdog::new(Time::ZERO, idle, limit);
    let mut agenda = Agenda::new();
    for _ in 0..rng.between(1, 3) {
        agenda.at(Time::ZERO + rng.millis(0, 20_000), Event::RanksRun);
    }
    let over_at = Time::ZERO + rng.millis(0, 40_000);
    agenda.at(over_at, Event::JobOver);
    if rng.chance(30) {
        agenda.at(Time::ZERO + rng.millis(0, 40_000), Event::Ends);
    }
    let (mut started, mut alive, mut asked) = (0, false, None);
    loop {
        agenda.tick_at(watchdog.deadline(), Event::Tick);
        let Some(event) = agenda.next() else {
            record.require(!alive, || "the watchdog outlives its job".to_owned())?;
            return Ok(agenda.now);
        };
        let now = agenda.now;
        record.require(now < Time::ZERO + HORIZON, || {
            "the watchdog does not end, and nobody ends it".to_owned()
        })?;
        record.note(now, || format!("{event:?}"));
        match event {
            Event::RanksRun => watchdog.handle(now, Input::RanksRun),
            Event::JobOver => watchdog.handle(now, Input::JobOver),
            Event::Ends if alive => {
                alive = false;
                watchdog.handle(now, Input::Exited(PID));
            }
            Event::Ends => {}
            Event::Tick => watchdog.handle(now, Input::Tick),
        }
        while let Some(output) = watchdog.poll() {
            record.note(now, || format!("watchdog -> {output:?}"));
            match output {
                Output::Start { left, .. } => {
                    started += 1;
                    let wrong = started > 1 || now > over_at || idle.is_none();
                    record.require(!wrong, || "the watchdog is started wrongly".to_owned())?;
                    record.require(left.is_some() == limit.is_some(), || {
                        "the watchdog is told another time limit".to_owned()
                    })?;
                    alive = starts;
                    let answer = if starts {
                        Input::Started(PID)
                    } else {
                        Input::NotStarted
                    };
                    watchdog.handle(now, answer);
                }
                Output::Ask(_) => {
                    let wrong = !alive || now < over_at || asked.is_some();
                    record.require(!wrong, || "the watchdog is asked to end wrongly".to_owned())?;
                    asked = Some(now);
                    if let Some(delay) = leaves {
                        agenda.at(now + delay, Event::Ends);
                    }
                }
                Output::Kill(_) => {
                    let due = asked.is_some_and(|at| now.since(at) >= LEAVE_MAX);
                    record.require(alive && due, || "the watchdog is killed early".to_owned())?;
                    agenda.at(now + Duration::from_millis(LATENCY_MS), Event::Ends);
                }
            }
        }
        let late = LEAVE_MAX + Duration::from_millis(2 * LATENCY_MS);
        record.require(!alive || now <= over_at + late, || {
            "the watchdog outlives its job".to_owned()
        })?;
    }
}
