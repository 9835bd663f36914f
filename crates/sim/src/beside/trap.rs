//! Ranks that are held at their first instruction, while other processes send them signals.
//!
//! The kernel of this world stops a traced process for every signal and at its exec, and continues it as its tracer says. A
//! process that is detached with a SIGSTOP stops before its first instruction. Everything else waits until it runs again.

use std::collections::VecDeque;

use base::{Signal, Time};
use dvm::{
    spec::HoldAt,
    trap::{Act, Trap},
};

use super::{Agenda, Record, Wrong};
use crate::rng::Rng;

#[derive(Clone, Copy, Debug)]
enum Event {
    /// Another process sends the rank a signal.
    Sent(Signal),
    /// The rank is ready to execute its program.
    Execs,
    /// We see that the rank was stopped by this signal.
    Seen(Signal),
    /// We release the rank.
    Released,
}

/// The state of the rank in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Process {
    /// It runs before its exec. Traced.
    BeforeExec,
    /// It waits for its tracer after this signal. Traced.
    TraceStop(Signal),
    /// It is stopped at its first instruction, without a tracer.
    Held,
    /// It runs its program.
    Runs,
    /// Another process has stopped it in its program.
    Stopped,
}

struct World {
    agenda: Agenda<Event>,
    trap: Trap,
    process: Process,
    is_ready: bool,
    /// Signals that were sent and not delivered.
    pending: VecDeque<Signal>,
    sent: usize,
    delivered: usize,
    held: usize,
}

impl World {
    /// Continues the rank as far as it runs by itself.
    fn proceed(&mut self, rng: &mut Rng) {
        let stop = match self.process {
            Process::BeforeExec => match self.pending.pop_front() {
                Some(signal) => signal,
                None if self.is_ready => {
                    self.is_ready = false;
                    Signal::TRAP
                }
                None => return,
            },
            Process::Runs => {
                while let Some(signal) = self.pending.pop_front() {
                    self.deliver(signal, rng);
                }
                return;
            }
            Process::TraceStop(_) | Process::Held | Process::Stopped => return,
        };
        self.process = Process::TraceStop(stop);
        self.report(stop, rng);
    }

    /// Delivers a signal to a rank that runs its program.
    fn deliver(&mut self, signal: Signal, rng: &mut Rng) {
        self.delivered += 1;
        if signal == Signal::STOP && self.process == Process::Runs {
            self.process = Process::Stopped;
            self.report(signal, rng);
        }
    }

    fn report(&mut self, signal: Signal, rng: &mut Rng) {
        let when = self.agenda.now + rng.millis(0, 20);
        self.agenda.at(when, Event::Seen(signal));
    }

    fn on_seen(&mut self, rng: &mut Rng, signal: Signal, record: &mut Record) -> Result<(), Wrong> {
        let act = self.trap.on_stopped(signal);
        record.note(self.agenda.now, || format!("trap -> {act:?}"));
        match act {
            Act::Nothing => {}
            Act::PassOn(signal) => {
                let is_traced = matches!(self.process, Process::TraceStop(_));
                record.require(is_traced, || {
                    format!(
                        "signal {} is passed on to a rank without a tracer",
                        signal.0
                    )
                })?;
                self.process = Process::BeforeExec;
                // A stop signal has stopped nothing: the rank is continued with it as a traced process.
                self.delivered += 1;
            }
            Act::Leave => {
                let at_exec = self.process == Process::TraceStop(Signal::TRAP);
                record.require(at_exec, || "it is left before its exec".to_owned())?;
                self.process = Process::Held;
                self.report(Signal::STOP, rng);
            }
            Act::Held => {
                self.held += 1;
                let is_held = self.process == Process::Held && self.held == 1;
                record.require(is_held, || {
                    format!("it is said to be held, and is {:?}", self.process)
                })?;
                let when = self.agenda.now + rng.millis(0, 200);
                self.agenda.at(when, Event::Released);
            }
        }
        Ok(())
    }
}

pub(super) fn play(rng: &mut Rng, record: &mut Record) -> Result<Time, Wrong> {
    let hold = rng.pick([HoldAt::Exec, HoldAt::Exec, HoldAt::Exec, HoldAt::Init]);
    let mut agenda = Agenda::new();
    agenda.at(Time::ZERO + rng.millis(0, 100), Event::Execs);
    let sent = rng.length(0, 4);
    for _ in 0..sent {
        let signal = rng.pick([Signal::USR1, Signal::STOP, Signal::WINCH]);
        agenda.at(Time::ZERO + rng.millis(0, 300), Event::Sent(signal));
    }
    let traced = hold == HoldAt::Exec;
    let mut world = World {
        agenda,
        trap: Trap::new(hold),
        process: if traced {
            Process::BeforeExec
        } else {
            Process::Runs
        },
        is_ready: false,
        pending: VecDeque::new(),
        sent,
        delivered: 0,
        held: 0,
    };
    while let Some(event) = world.agenda.next() {
        record.note(world.agenda.now, || format!("{event:?}"));
        match event {
            Event::Sent(signal) => world.pending.push_back(signal),
            Event::Execs => world.is_ready = true,
            Event::Seen(signal) => world.on_seen(rng, signal, record)?,
            Event::Released => world.process = Process::Runs,
        }
        world.proceed(rng);
    }
    let World {
        process,
        pending,
        sent,
        delivered,
        held,
        ..
    } = world;
    record.require(held == usize::from(traced), || {
        format!("it is held {held} times, and in the end {process:?}")
    })?;
    let all = delivered + pending.len();
    record.require(all == sent, || {
        format!("{all} of {sent} signals have reached it")
    })?;
    // Only another process may have left it stopped.
    let ends = matches!(process, Process::Runs | Process::Stopped);
    record.require(ends, || format!("it is left {process:?}"))?;
    Ok(world.agenda.now)
}
