//! Ranks that are held at their first instruction, while other processes send them signals.
//!
//! The kernel of this world stops a traced process at every signal and at its exec, until the tracer continues it. A process
//! that is detached with a SIGSTOP stops before its first instruction. While a process is stopped, new signals stay pending.

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
    /// The daemon learns that this signal has stopped the rank.
    Seen(Signal),
    /// The daemon continues the rank.
    Released,
}

/// The state of the rank in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Process {
    /// Running before its exec, traced.
    BeforeExec,
    /// Stopped by this signal and traced. It waits for its tracer.
    TraceStop(Signal),
    /// Stopped at its first instruction, without a tracer.
    Held,
    /// Running its program.
    Runs,
    /// Stopped in its program by another process.
    Stopped,
}

struct World {
    agenda: Agenda<Event>,
    trap: Trap,
    process: Process,
    /// True if the rank calls exec as soon as no signal is pending.
    is_ready: bool,
    /// Signals that were sent and not yet seen by the rank or its tracer.
    pending: VecDeque<Signal>,
    sent: usize,
    delivered: usize,
    /// Number of times that the trap has reported the rank as held.
    held: usize,
}

impl World {
    /// Lets the rank run until it stops or has nothing more to do.
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
                // In this world, even a SIGSTOP that the tracer delivers does not stop the rank: it runs on to its exec.
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
    // If the rank is stopped at the end, another process must have stopped it.
    let ends = matches!(process, Process::Runs | Process::Stopped);
    record.require(ends, || format!("it is left {process:?}"))?;
    Ok(world.agenda.now)
}
