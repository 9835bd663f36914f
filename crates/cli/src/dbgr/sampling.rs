//! Takes several samples; and `dbgr verdict`, which prints what they mean.
//!
//! `dbgr verdict` is for tests and for work on the rules. It prints the classes and verdicts of processes that the command line
//! names one by one, or the samples as JSON. The other commands find jobs and draw stacks.

use std::{collections::BTreeMap, fmt::Write as _, num::ParseIntError, sync::Arc, time::Duration};

use base::{Rank, Signal, Time};
use debug::{
    known::{self, Position},
    proto::{Extent, Proc},
    report::Detail,
    samples::{Boundary, Class, Motion, Recording},
    session::{MAX_SAMPLES, Place, Plan, Samples, Schedule},
    stack::{FrameId, Frames, Missing},
    verdict,
};
use os::{Clock, Event, Loop, Pid};

use super::local::{HERE, Local};
use crate::exit;
use crate::values::time;

/// `dbgr verdict`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Args {
    /// How many samples to take
    #[arg(long, default_value = "5", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SAMPLES)))]
    samples: u32,
    /// Time from one sample to the next: seconds, or a number with ms, s, m or h
    #[arg(long, default_value = "1s", value_name = "TIME", value_parser = time)]
    every: Duration,
    /// Print the samples as JSON instead
    #[arg(long)]
    json: bool,
    /// Processes, each with its rank, or in the order of ranks
    #[arg(required = true, value_name = "[RANK=]PID", value_parser = parse_proc)]
    procs: Vec<(Option<Rank>, Pid)>,
}

fn parse_proc(word: &str) -> Result<(Option<Rank>, Pid), ParseIntError> {
    let (rank, pid) = match word.split_once('=') {
        Some((rank, pid)) => (Some(Rank(rank.parse()?)), pid),
        None => (None, word),
    };
    Ok((rank, Pid::from_raw(pid.parse()?)))
}

/// Runs `dbgr verdict`, and returns the exit code.
pub(super) fn verdict(args: &Args) -> u8 {
    let mut procs = BTreeMap::new();
    for &(rank, pid) in &args.procs {
        let next = || {
            procs
                .last_key_value()
                .map_or(0, |(rank, _): (&Rank, _)| rank.0.saturating_add(1))
        };
        let rank = rank.unwrap_or_else(|| Rank(next()));
        procs.insert(rank, (pid, os::start_time(pid)));
    }
    let plan = Plan {
        samples: Samples::Exactly(args.samples),
        every: Some(args.every),
    };
    let place = |(rank, (pid, started)): (Rank, (Pid, Option<u64>))| {
        let pid = Pid::as_raw(pid);
        let place = match started {
            Some(started) => Place::At(HERE, Proc { pid, started }),
            None => Place::Nowhere(Missing::Gone),
        };
        (rank, place)
    };
    let mut local = Local::new(Detail::Folded);
    local.follow_places(procs.into_iter().map(place).collect());
    let (recording, ended, _) = take(plan, &mut local);
    if args.json {
        // A recording has nothing that JSON cannot express.
        let json = serde_json::to_string(&recording).unwrap_or_default();
        return ended.code(super::print(&format!("{json}\n")));
    }
    ended.code(super::print_clean(&text(&recording)))
}

/// Takes samples of the followed ranks as planned. Also returns the time that the samples took, without the time between them.
pub(super) fn take(plan: Plan, local: &mut Local) -> (Recording, Ended, Duration) {
    let mut recording = Recording::default();
    let mut sampling_time = Duration::ZERO;
    // Before the first sample is complete there is nothing to print, so an interrupt ends the program.
    let mut waits = SampleWaits::None;
    let extent = if plan.is_single() {
        Extent::Children
    } else {
        Extent::Everybody
    };
    let begin = Clock::now();
    let mut schedule = Schedule::new(plan, begin);
    loop {
        let began = Clock::now();
        schedule.begin(began);
        let sample = local.sample(extent);
        let ended = Clock::now();
        sampling_time += ended.since(began);
        if local.is_interrupted() {
            // This sample lacks nodes. There is an earlier one, because only the waits between samples block the signal.
            let _ = waits.end();
            return (recording, Ended::Interrupted, sampling_time);
        }
        recording.push(schedule.end(ended), sample.frames, sample.snapshot);
        let Recording { frames, samples } = &recording;
        let Some(next) = schedule.next(frames, samples, ended) else {
            break;
        };
        if waits.wait(next) == Ended::Interrupted {
            let _ = waits.end();
            local.interrupt();
            return (recording, Ended::Interrupted, sampling_time);
        }
    }
    let ended = waits.end();
    (recording, ended, sampling_time)
}

/// Why no further sample is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// All samples of the plan were taken.
    AsPlanned,
    /// Ctrl-C came after the first sample.
    Interrupted,
}

impl Ended {
    /// Returns the exit code of the program, if printing gave the exit code `printed`.
    pub(super) const fn code(self, printed: u8) -> u8 {
        match (self, printed) {
            (Self::Interrupted, exit::SUCCESS) => INTERRUPTED,
            (_, printed) => printed,
        }
    }
}

/// 128 + SIGINT.
const INTERRUPTED: u8 = 130;

/// The waits between samples, which Ctrl-C ends.
enum SampleWaits {
    /// There was no wait yet.
    None,
    Some(Loop),
    /// The program cannot wait for the signal, which ends it as usual.
    CannotListen,
}

impl SampleWaits {
    /// Waits until this time or Ctrl-C, and releases threads that were late to stop.
    fn wait(&mut self, until: Time) -> Ended {
        if let Self::None = self {
            *self = Loop::new(&[Signal::INT]).map_or(Self::CannotListen, Self::Some);
        }
        let left = || until.since(Clock::now());
        let Self::Some(events) = self else {
            os::sleep_and_detach_late(left());
            return Ended::AsPlanned;
        };
        let mut happened = Vec::new();
        loop {
            os::sleep_and_detach_late(Duration::ZERO);
            if events.wait(Some(until), &mut happened).is_err() {
                os::sleep_and_detach_late(left());
                return Ended::AsPlanned;
            }
            for event in happened.drain(..) {
                match event {
                    Event::Signal(info) if info.signal == Signal::INT => return Ended::Interrupted,
                    Event::Deadline => return Ended::AsPlanned,
                    // A late thread has stopped: `wait` below releases it.
                    Event::Signal(_) | Event::Readable(_) | Event::Writable(_) => {}
                }
            }
        }
    }

    /// Restores the default action of SIGINT. A signal that came during the last sample is handled first, because it would
    /// otherwise kill the program before anything is printed.
    fn end(mut self) -> Ended {
        if let Self::None = self {
            return Ended::AsPlanned;
        }
        let ended = self.wait(Clock::now());
        if let Self::Some(events) = self {
            drop(events);
            let _ = os::unblock_signal(Signal::INT);
        }
        ended
    }
}

/// Returns the classes, one per line, and the verdicts.
fn text(recording: &Recording) -> String {
    let all = recording.observe(Boundary::Known);
    let mut text = String::new();
    for class in all.classes(&recording.frames) {
        let _ = writeln!(text, "{}", line(&recording.frames, &class));
    }
    let verdicts = verdict::judge(&recording.frames, &recording.samples, &all);
    for verdict in &verdicts {
        let _ = writeln!(text, "{verdict}");
    }
    if verdicts.is_empty() {
        text.push_str("no verdict\n");
    }
    text
}

/// Returns a line like `0-2 [polling] main > solve > MPI_Allreduce`: the ranks, the user's functions, and the wait.
fn line(frames: &Frames, class: &Class) -> String {
    let last = class.frames.len().saturating_sub(1);
    let own = |&(at, &id): &(usize, &FrameId)| at == last || !known::is_system(frames.get(id));
    let names: Vec<Arc<str>> = class
        .frames
        .iter()
        .enumerate()
        .filter(own)
        .map(|(at, &id)| {
            let frame = frames.get(id);
            // The innermost frame gets the name that users know.
            match known::known(frame, Position::Inner).filter(|_| at == last) {
                Some(known) => known.name,
                None => frame.function.clone().unwrap_or_else(|| "??".into()),
            }
        })
        .filter(|name| **name != *"_start")
        .collect();
    let doing = match &class.activity {
        Ok(_) if class.motion == Motion::Spinning => "polling".to_owned(),
        Ok(activity) => format!("{:?}, {activity}", class.motion).to_lowercase(),
        Err(missing) => format!("{missing:?}").to_lowercase(),
    };
    format!("{} [{doing}] {}", class.ranks, names.join(" > "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupt_during_the_last_look_ends_nobody() {
        for (signals, expected) in [(0, Ended::AsPlanned), (1, Ended::Interrupted)] {
            let mut waits = SampleWaits::None;
            assert_eq!(waits.wait(Clock::now()), Ended::AsPlanned);
            for _ in 0..signals {
                // Sent to this thread only, not to the process.
                nix::sys::signal::raise(nix::sys::signal::Signal::SIGINT).unwrap();
            }
            assert_eq!(waits.end(), expected, "{signals} signals");
        }
    }
}
