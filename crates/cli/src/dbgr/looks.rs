//! Looking several times, and `dbgr verdict`, which says what that amounts to.
//!
//! It is what tests and whoever works on the rules want: classes and verdicts of processes that are named one by one,
//! or the looks themselves as JSON. Finding a job and a picture of it belong to the other commands.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    num::ParseIntError,
    sync::Arc,
    time::{Duration, Instant},
};

use base::{Rank, Signal};
use debug::{
    company::{Company, Process},
    known::{self, Position},
    report::Detail,
    samples::{Boundary, Class, Motion, Recording, Sample, observe},
    stack::{Child, FrameId, Frames, Missing, Seen, Snapshot},
    verdict,
};
use os::{Clock, Event, Loop, Pid};

use super::live::Looker;
use crate::{args::values::time, exit};

/// `dbgr verdict`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Args {
    /// How often to look
    #[arg(long, default_value = "5", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SAMPLES)))]
    samples: u32,
    /// From one look to the next: seconds, or a number with ms, s, m or h
    #[arg(long, default_value = "1s", value_name = "TIME", value_parser = time)]
    every: Duration,
    /// Say what was seen instead, as JSON
    #[arg(long)]
    json: bool,
    /// Processes, with their ranks or in the order of these
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

/// Looks, and says what that amounts to.
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
    let there = procs.iter();
    let there = there.filter_map(|(&rank, &(pid, started))| Some((rank, (pid, started?))));
    let there = there.collect();
    let mut looker = Looker::new(Detail::Folded);
    let (samples, ended) = take(plan, &there, &mut looker, |looker, around| {
        let mut look = |pid, started: Option<u64>| match started {
            Some(started) => looker.look(pid, started),
            None => Seen::Missing(Missing::Gone),
        };
        let procs = procs.iter();
        let procs = procs.map(|(&rank, &(pid, started))| (rank, look(pid, started)));
        let procs = procs.collect();
        Snapshot {
            procs,
            children: around.look(looker),
            ..Snapshot::default()
        }
    });
    let recording = Recording {
        frames: looker.frames,
        samples,
    };
    if args.json {
        // Nothing in it can fail to be text.
        let json = serde_json::to_string(&recording).unwrap_or_default();
        return ended.code(super::print(&format!("{json}\n")));
    }
    ended.code(super::print_clean(&text(&recording)))
}

/// How often to look, and how far apart.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// How often.
    pub(super) samples: Samples,
    /// From the beginning of one look to that of the next; nothing where that is left to us.
    pub(super) every: Option<Duration>,
}

/// How often to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Samples {
    /// So often.
    Exactly(u32),
    /// As often as a verdict needs, for so long at most, and no more often than [`MAX_SAMPLES`].
    AsNeeded(Duration),
}

impl Samples {
    /// How many, where that is known beforehand.
    pub(super) const fn number(self) -> Option<u32> {
        match self {
            Self::Exactly(number) => Some(number),
            Self::AsNeeded(_) => None,
        }
    }
}

/// Looks that are taken at most: all of them are kept.
pub(super) const MAX_SAMPLES: u32 = 1000;
/// The time from one look to the next, where nothing else is said or wanted.
pub(super) const EVERY: Duration = Duration::from_secs(1);
/// Looks that are taken where a verdict is wanted, even if one is enough for it: they also tell what moves.
const LEAST: usize = 3;
/// The shortest time between looks that we choose: two that are closer find a program that polls at the same place too
/// often.
const CLOSEST: Duration = Duration::from_millis(250);
/// What is added to it, so that many looks do not end just before the time that they need.
const MARGIN: Duration = Duration::from_millis(5);

impl Plan {
    /// The time to the next look, after those that there are; nothing where they are enough.
    fn next(self, frames: &Frames, looks: &[Sample]) -> Option<Duration> {
        let taken = u32::try_from(looks.len()).unwrap_or(u32::MAX);
        let limit = match self.samples {
            Samples::Exactly(number) => {
                return (taken < number).then(|| self.every.unwrap_or(EVERY));
            }
            Samples::AsNeeded(_) if taken >= MAX_SAMPLES => return None,
            Samples::AsNeeded(limit) => limit,
        };
        let all = observe(frames, looks, Boundary::Known);
        if all.span >= limit || (looks.len() >= LEAST && !verdict::judge(frames, &all).is_empty()) {
            return None;
        }
        let wanted = verdict::outlook(frames, &all).wanted;
        let wanted = wanted.filter(|wanted| wanted.span <= limit)?;
        let more = wanted.looks.saturating_sub(looks.len()).max(1);
        let time = wanted.span.saturating_sub(all.span);
        let every = time / u32::try_from(more).unwrap_or(u32::MAX) + MARGIN;
        Some(self.every.unwrap_or_else(|| every.max(CLOSEST)))
    }

    /// Whether one look is all.
    const fn is_single(self) -> bool {
        matches!(self.samples, Samples::Exactly(1))
    }
}

/// Looks at these ranks, of which the times of their starts are known, as often as is planned.
pub(super) fn take(
    plan: Plan,
    ranks: &BTreeMap<Rank, (Pid, u64)>,
    looker: &mut Looker,
    mut look: impl FnMut(&mut Looker, &Around) -> Snapshot,
) -> (Vec<Sample>, Ended) {
    let mut looks = Vec::new();
    // Before the first look has come there is nothing to print, and who interrupts us ends us.
    let mut breaks = Breaks::None;
    let mut begin = Instant::now();
    loop {
        let mut at = begin.elapsed();
        let started = Instant::now();
        let around = Around::of(ranks);
        let mut snapshot = look(looker, &around);
        if !plan.is_single() {
            snapshot.company = around.company;
            snapshot.company.joining = looker.joining(ranks);
        }
        let took = started.elapsed();
        // The first look reads files, and its last rank is seen late: with its end the time begins.
        let is_first = looks.is_empty();
        if is_first {
            (at, begin) = (Duration::ZERO, Instant::now());
        }
        looks.push(Sample { at, snapshot });
        let Some(every) = plan.next(&looker.frames, &looks) else {
            break;
        };
        // A look that takes long would be followed by the next at once, in which nothing has had the time to move.
        let from = if is_first || took > every / 2 {
            Instant::now()
        } else {
            started
        };
        if breaks.wait(from + every) == Ended::Interrupted {
            let _ = breaks.end();
            return (looks, Ended::Interrupted);
        }
    }
    os::rest(Duration::ZERO);
    (looks, breaks.end())
}

/// How looking has come to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// All looks were taken.
    AsPlanned,
    /// By Ctrl-C, after one look at least.
    Interrupted,
}

impl Ended {
    /// The exit code, where that of printing what there is was this.
    pub(super) const fn code(self, printed: u8) -> u8 {
        match (self, printed) {
            (Self::Interrupted, exit::SUCCESS) => INTERRUPTED,
            (_, printed) => printed,
        }
    }
}

/// 128 + SIGINT.
const INTERRUPTED: u8 = 130;

/// The time between looks, which Ctrl-C ends.
enum Breaks {
    /// There was none yet.
    None,
    Some(Loop),
    /// The signal cannot be waited for: it ends us as it always does.
    Deaf,
}

impl Breaks {
    /// Waits, and lets go meanwhile those who were late to stop.
    fn wait(&mut self, until: Instant) -> Ended {
        if let Self::None = self {
            *self = Loop::new(&[Signal::INT]).map_or(Self::Deaf, Self::Some);
        }
        let left = || until.saturating_duration_since(Instant::now());
        let Self::Some(events) = self else {
            os::rest(left());
            return Ended::AsPlanned;
        };
        let mut happened = Vec::new();
        let deadline = Clock::now() + left();
        loop {
            os::rest(Duration::ZERO);
            if events.wait(Some(deadline), &mut happened).is_err() {
                os::rest(left());
                return Ended::AsPlanned;
            }
            for event in happened.drain(..) {
                match event {
                    Event::Signal(info) if info.signal == Signal::INT => return Ended::Interrupted,
                    Event::Deadline => return Ended::AsPlanned,
                    // Who was late stands now.
                    Event::Signal(_) | Event::Readable(_) | Event::Writable(_) => {}
                }
            }
        }
    }

    /// From now on the signal ends us again. One that came during the last look is taken first: it would end us before
    /// anything is printed.
    fn end(mut self) -> Ended {
        if let Self::None = self {
            return Ended::AsPlanned;
        }
        let ended = self.wait(Instant::now());
        if let Self::Some(events) = self {
            drop(events);
            let _ = os::unblock_signal(Signal::INT);
        }
        ended
    }
}

/// Who is there beside these ranks, at one moment.
#[derive(Debug)]
pub(super) struct Around {
    pub(super) company: Company,
    /// All processes of that moment: who has one of their numbers later may be another.
    processes: BTreeMap<i32, os::ProcessInfo>,
}

/// Processes below ranks that are looked at: of each rank, and of all.
const MAX_CHILDREN: usize = 64;
const MAX_ALL_CHILDREN: usize = 1024;

impl Around {
    /// Who is there now. Ranks that have ended have no company: their pids were reused.
    pub(super) fn of(ranks: &BTreeMap<Rank, (Pid, u64)>) -> Self {
        let all = os::all_processes().into_iter().filter_map(os::inspect);
        let living = all.filter(|info| !matches!(info.state, 'Z' | 'X'));
        let processes: BTreeMap<i32, os::ProcessInfo> =
            living.map(|info| (info.pid.as_raw(), info)).collect();
        let listed: Vec<Process> = processes
            .values()
            .map(|info| Process {
                pid: info.pid.as_raw(),
                parent: info.ppid.as_raw(),
                name: info.name.clone(),
                cpu: info.cpu,
            })
            .collect();
        let is_there = |pid: i32, started| {
            let listed = processes.get(&pid);
            listed.is_some_and(|info| info.start_time == started)
        };
        let ranks = ranks.iter();
        let ranks = ranks.map(|(&rank, &(pid, started))| (rank, pid.as_raw(), started));
        let ranks = ranks.filter(|&(_, pid, started)| is_there(pid, started));
        let ranks = ranks.map(|(rank, pid, _)| (rank, pid));
        let owner = |pid| os::owner_of(Pid::from_raw(pid));
        let own = os::current_pid().as_raw();
        Self {
            company: Company::of(&listed, &ranks.collect(), own, owner),
            processes,
        }
    }

    /// The processes below ranks, as far as they are looked at.
    pub(super) fn children(&self) -> impl Iterator<Item = (Rank, &os::ProcessInfo)> {
        let below = self.company.below.iter();
        let below = below.flat_map(|(&rank, crowd)| {
            let pids = crowd.pids.iter().take(MAX_CHILDREN);
            pids.map(move |pid| (rank, pid))
        });
        let infos = below.filter_map(|(rank, pid)| Some((rank, self.processes.get(pid)?)));
        infos.take(MAX_ALL_CHILDREN)
    }

    /// Looks at the processes below ranks.
    pub(super) fn look(&self, looker: &mut Looker) -> BTreeMap<Rank, Vec<Child>> {
        let all = self.company.below.values().map(|crowd| crowd.pids.len());
        let mut left_out: usize = all.sum();
        let mut children: BTreeMap<Rank, Vec<Child>> = BTreeMap::new();
        for (rank, info) in self.children() {
            left_out = left_out.saturating_sub(1);
            let seen = looker.look(info.pid, info.start_time);
            // It has come and gone: there is nothing to say of it.
            if matches!(seen, Seen::Missing(Missing::Gone | Missing::Zombie)) {
                continue;
            }
            children.entry(rank).or_default().push(Child {
                pid: info.pid.as_raw(),
                parent: info.ppid.as_raw(),
                name: info.name.clone(),
                seen,
            });
        }
        looker.leave_out(left_out);
        children
    }
}

/// Classes, one a line, and the verdicts.
fn text(recording: &Recording) -> String {
    let all = recording.observe(Boundary::Known);
    let mut text = String::new();
    for class in all.classes(&recording.frames) {
        let _ = writeln!(text, "{}", line(&recording.frames, &class));
    }
    let verdicts = verdict::judge(&recording.frames, &all);
    for verdict in &verdicts {
        let _ = writeln!(text, "{verdict}");
    }
    if verdicts.is_empty() {
        text.push_str("no verdict\n");
    }
    text
}

/// `0-2 [polling] main > solve > MPI_Allreduce`: the user's functions and the wait.
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
            // Of the innermost one the name that people know.
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
    use crate::dbgr::live::tests::Running;

    #[test]
    fn who_has_the_number_of_a_rank_now_has_no_company() {
        let child = Running::start("sleep", &["1000"]);
        let own = os::current_pid();
        let started = os::start_time(own).unwrap();
        for (rank, expected) in [((own, started), true), ((own, started - 1), false)] {
            let around = Around::of(&[(Rank(0), rank)].into());
            let mut children = around.children().map(|(_, info)| info.pid);
            assert_eq!(children.any(|pid| pid == child.pid()), expected, "{rank:?}");
            assert_eq!(
                around.company.below.contains_key(&Rank(0)),
                expected,
                "{rank:?}"
            );
        }
    }

    #[test]
    fn no_plan_is_without_an_end() {
        let moment = |at| Sample {
            at: Duration::from_millis(at),
            snapshot: Snapshot::default(),
        };
        let every = Some(Duration::from_millis(1));
        let most = u64::from(MAX_SAMPLES);
        for (samples, looks, more) in [
            (Samples::AsNeeded(Duration::from_secs(15)), 2, true),
            (Samples::AsNeeded(Duration::from_secs(15)), most - 1, true),
            (Samples::AsNeeded(Duration::from_secs(15)), most, false),
            (Samples::Exactly(MAX_SAMPLES), most - 1, true),
            (Samples::Exactly(MAX_SAMPLES), most, false),
        ] {
            let plan = Plan { samples, every };
            let looks: Vec<Sample> = (0..looks).map(moment).collect();
            let next = plan.next(&Frames::new(), &looks);
            assert_eq!(next.is_some(), more, "{samples:?}, {} looks", looks.len());
        }
    }

    #[test]
    fn an_interrupt_during_the_last_look_ends_nobody() {
        for (signals, expected) in [(0, Ended::AsPlanned), (1, Ended::Interrupted)] {
            let mut breaks = Breaks::None;
            assert_eq!(breaks.wait(Instant::now()), Ended::AsPlanned);
            for _ in 0..signals {
                // To this thread alone.
                nix::sys::signal::raise(nix::sys::signal::Signal::SIGINT).unwrap();
            }
            assert_eq!(breaks.end(), expected, "{signals} signals");
        }
    }
}
