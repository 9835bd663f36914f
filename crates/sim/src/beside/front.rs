//! The escalation of a front: a user requests the end of a job whose ranks may ignore signals, and whose controller may be
//! stopped.

use std::time::Duration;

use base::{Signal, Time};
use dvm::{
    escalation::{Escalation, Input, Output, UNREAD_MAX},
    spec::EndPolicy,
};

use super::{Agenda, LATENCY_MS, Record, Wrong};
use crate::rng::Rng;

/// The pid of the controller.
const CONTROLLER: i32 = 7;
/// Virtual time after which a run counts as hanging.
const HORIZON: Duration = Duration::from_secs(120);
/// Time that a job may take to end in addition to the allowed time.
const SLACK: Duration = Duration::from_millis(4 * LATENCY_MS);

#[derive(Clone, Copy, Debug)]
enum Event {
    Asked(Signal),
    TerminalLost,
    Stop,
    Continue,
    Tick,
    /// The job ends, unless the controller is stopped.
    JobEnds,
}

struct World {
    agenda: Agenda<Event>,
    escalation: Escalation,
    grace: Duration,
    /// True if the ranks ignore SIGINT and SIGTERM.
    is_deaf: bool,
    stopped_since: Option<Time>,
    /// Time at which the controller was last continued.
    continued: Time,
    /// Time at which the job ends, if the controller is not stopped then; `None` while no end is scheduled.
    ends_at: Option<Time>,
    /// Number of terminating signals that the front has received.
    requests: u32,
    /// Time since which the job has to end, with grace; `None` while it may go on.
    must_end: Option<Time>,
    /// Time of the second request, since which the job has to end without grace.
    killed: Option<Time>,
    is_over: bool,
}

impl World {
    fn new(rng: &mut Rng) -> Self {
        let grace = rng.millis(0, 8_000);
        let time_limit = rng.chance(40).then(|| rng.millis(0, 20_000));
        let end = EndPolicy {
            grace,
            time_limit,
            ..EndPolicy::default()
        };
        let mut world = Self {
            agenda: Agenda::new(),
            escalation: Escalation::new(Time::ZERO, &end),
            grace,
            is_deaf: rng.chance(50),
            stopped_since: None,
            continued: Time::ZERO,
            ends_at: None,
            requests: 0,
            must_end: None,
            killed: None,
            is_over: false,
        };
        for _ in 0..rng.between(0, 4) {
            let signal = rng.pick([Signal::INT, Signal::TERM, Signal::HUP]);
            let when = Time::ZERO + rng.millis(0, 30_000);
            world.agenda.at(when, Event::Asked(signal));
        }
        if rng.chance(20) {
            let when = Time::ZERO + rng.millis(0, 30_000);
            world.agenda.at(when, Event::TerminalLost);
        }
        if rng.chance(50) {
            let when = Time::ZERO + rng.millis(0, 30_000);
            world.agenda.at(when, Event::Stop);
            if rng.chance(50) {
                let long = rng.chance(50);
                let pause = rng.millis(1, if long { 20_000 } else { 900 });
                world.agenda.at(when + pause, Event::Continue);
            }
        }
        if let Some(limit) = time_limit {
            world.must_end = Some(Time::ZERO + limit);
            world.end_by(Time::ZERO + limit, grace);
        }
        world
    }

    /// Schedules the end of a job that the controller ends from a given time on. Ranks that ignore signals exit after the
    /// grace, other ranks immediately.
    fn end_by(&mut self, from: Time, grace: Duration) {
        let grace = if self.is_deaf { grace } else { Duration::ZERO };
        let end = from + grace + Duration::from_millis(LATENCY_MS);
        let end = self.ends_at.map_or(end, |before| before.min(end));
        self.ends_at = Some(end);
        self.agenda.at(end, Event::JobEnds);
    }

    fn must_end(&mut self) {
        let now = self.agenda.now;
        self.must_end = Some(self.must_end.map_or(now, |before| before.min(now)));
    }

    /// Carries out an output of the escalation. Returns true if the front no longer waits for the job.
    fn carry_out(&mut self, output: Output, record: &mut Record) -> Result<bool, Wrong> {
        let now = self.agenda.now;
        record.note(now, || format!("front -> {output:?}"));
        match output {
            Output::Pass(_) => {
                if !self.is_deaf {
                    self.end_by(now, Duration::ZERO);
                }
            }
            Output::End(_) => self.end_by(now, self.grace),
            Output::Kill(_) => self.end_by(now, Duration::ZERO),
            Output::GiveUp(_) => {
                let enough = self.requests > 2;
                record.require(enough, || "the front gives up too early".to_owned())?;
                return Ok(true);
            }
            Output::DropUnread => {}
            Output::CheckController => {
                let stopped = self.stopped_since.map(|_| CONTROLLER);
                self.escalation.handle(now, Input::Controller { stopped });
            }
            Output::ControllerStopped => {
                let long = |since| now.since(since) >= UNREAD_MAX;
                record.require(self.stopped_since.is_some_and(long), || {
                    "a controller that was not stopped for long is given up".to_owned()
                })?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Checks that a job that has to end has ended in time, or that the front no longer waits for a stopped controller.
    fn check(&self, record: &mut Record) -> Result<(), Wrong> {
        let now = self.agenda.now;
        // The front detects a stopped controller with two consecutive checks.
        let patience = UNREAD_MAX * 3 + SLACK;
        let late =
            |since: Time, given: Duration| now > since.max(self.continued) + given + patience;
        let ended = self.must_end.is_some_and(|since| late(since, self.grace));
        record.require(!ended, || "a job that has to end does not".to_owned())?;
        let quick = |since: Time| now > since.max(self.continued) + SLACK;
        let killed = self.stopped_since.is_none() && self.killed.is_some_and(quick);
        record.require(!killed, || {
            "the end was asked for twice, and the job goes on".to_owned()
        })
    }
}

pub(super) fn play(rng: &mut Rng, record: &mut Record) -> Result<Time, Wrong> {
    let mut world = World::new(rng);
    loop {
        let deadline = world.escalation.deadline();
        world.agenda.tick_at(deadline, Event::Tick);
        let Some(event) = world.agenda.next() else {
            // Without further events, the job never ends. That is right only if it does not have to end.
            let free = world.must_end.is_none() && world.killed.is_none();
            record.require(free, || {
                "nothing more happens to a job that has to end".to_owned()
            })?;
            return Ok(world.agenda.now);
        };
        let now = world.agenda.now;
        record.require(now < Time::ZERO + HORIZON, || {
            "the front is woken for ever".to_owned()
        })?;
        record.note(now, || format!("{event:?}"));
        world.check(record)?;
        match event {
            Event::Asked(signal) => {
                world.requests += 1;
                match world.requests {
                    1 if signal != Signal::INT => world.must_end(),
                    2 => {
                        world.must_end();
                        world.killed = Some(now);
                    }
                    _ => {}
                }
                world.escalation.handle(now, Input::Asked(signal));
            }
            Event::TerminalLost => {
                world.must_end();
                world.escalation.handle(now, Input::TerminalLost);
            }
            Event::Stop => world.stopped_since = Some(now),
            Event::Continue => {
                world.stopped_since = None;
                world.continued = now;
                if let Some(end) = world.ends_at {
                    let end = end.max(now + Duration::from_millis(LATENCY_MS));
                    world.agenda.at(end, Event::JobEnds);
                }
            }
            Event::Tick => world.escalation.handle(now, Input::Tick),
            Event::JobEnds => {
                let due = world.ends_at.is_some_and(|end| end <= now);
                world.is_over = due && world.stopped_since.is_none();
            }
        }
        while let Some(output) = world.escalation.poll() {
            world.is_over |= world.carry_out(output, record)?;
        }
        if world.is_over {
            return Ok(now);
        }
    }
}
