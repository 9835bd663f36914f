//! `dbgr watch`: follows a job until it ends, and reports when it hangs.
//!
//! | when | what |
//! |---|---|
//! | a twelfth of the idle time is over | it is looked for the job, and at it; a report where [`debug::watch`] has news |
//! | what the user has named ends, or a rank | it is looked for the job at once: where nothing of it is left, that is the end |
//! | shortly before the time limit | some looks, and a report |
//! | a signal | the end, between two looks: nobody is left standing |

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    time::{Duration, Instant},
};

use base::{Rank, Signal};
use debug::{
    proto::Extent,
    report::Report,
    samples::Sample,
    stack::{Frames, Missing, Seen},
    target::{self, Target, Wish},
    watch::{Cause, Observed, Progress, Watch},
};
use message::Message;
use os::{Clock, Event, Interest, Loop, Pid, Token};

use super::{
    args::{self, Destination, MessageForm, numbered},
    local::Local,
    machine::{self, Ask, Machine},
    messages::{self, Occasion},
    output,
};
use crate::{args::MessageFormat, exit};

/// How long before the time limit the report is begun, unless half of the time is shorter.
const LEAD: Duration = Duration::from_secs(5);
/// Looks before the time limit: with fewer nothing is said about what is stuck.
const LAST_SAMPLES: u32 = 3;
/// Reports of one job: one that stands, moves a little and stands again need not fill the disk.
const MAX_REPORTS: u32 = 10;
/// Frames that are kept, beyond which what is known is forgotten and learnt anew.
const MAX_FRAMES: usize = 200_000;
/// Processes between a rank and one below it.
const MAX_DEPTH: usize = 64;
/// The end of Slurm's allocation, in seconds since 1970.
const SLURM_END: &str = "SLURM_JOB_END_TIME";
/// What the number of a signal is added to.
const SIGNALLED: u8 = 128;

/// Follows what the user means; gives the exit code.
pub(super) fn watch(args: &args::Watch) -> u8 {
    if let Some(error) = args.output.as_deref().and_then(super::no_directory) {
        super::say_as(&error, format(args));
        return exit::ExitCode::BadFile.code();
    }
    match Watcher::new(args) {
        Ok(mut watcher) => match watcher.run() {
            Ok(End::Gone) => exit::SUCCESS,
            Ok(End::Signal(signal)) => SIGNALLED.saturating_add(signal),
            Ok(End::Refused(code)) => code,
            Err(error) => watcher.fail(&error),
        },
        Err(error) => {
            super::say_as(&crate::messages::system(&error), format(args));
            exit::ExitCode::Resources.code()
        }
    }
}

const fn format(args: &args::Watch) -> MessageFormat {
    match args.message_format {
        MessageForm::Text => MessageFormat::Text,
        MessageForm::Json => MessageFormat::Json,
    }
}

/// Why the watch is over.
enum End {
    /// Nothing of the job is left.
    Gone,
    /// Somebody wants it.
    Signal(u8),
    /// The job cannot be looked at, which was said; the exit code.
    Refused(u8),
}

/// What the user has named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Named {
    /// It is looked for before each look: ranks come and go.
    There,
    Ended,
}

/// What a wait was ended by.
enum Woken {
    Time,
    /// A process of the job has ended.
    Ended,
    Over(End),
}

struct Watcher<'a> {
    args: &'a args::Watch,
    events: Loop,
    begin: Instant,
    /// When the job is ended by somebody else, after the beginning.
    limit: Option<Duration>,
    /// Readable when a process of the job has ended: what the user has named, or a rank.
    end: Option<Token>,
    /// Whether what the user has named is there. When it has ended, those that are left are the job: who gets its number
    /// is somebody else.
    named: Named,
    local: Local,
    /// Every frame of the looks that are kept.
    frames: Frames,
    watch: Watch,
    target: Option<Target>,
    /// Doubts and notes that were said.
    said: BTreeSet<String>,
    /// Looks one after the other in which nobody could be looked at.
    refusals: u32,
    reports: u32,
    /// The time that was spent with looking.
    spent: Duration,
}

impl<'a> Watcher<'a> {
    fn new(args: &'a args::Watch) -> Result<Self, os::Error> {
        Ok(Self {
            args,
            events: Loop::new(&[Signal::INT, Signal::TERM, Signal::HUP])?,
            begin: Instant::now(),
            limit: [args.limit, slurm_limit()].into_iter().flatten().min(),
            end: None,
            named: Named::There,
            local: Local::new(output::detail(&args.shown)),
            frames: Frames::new(),
            watch: Watch::new(args.idle),
            target: None,
            said: BTreeSet::new(),
            refusals: 0,
            reports: 0,
            spent: Duration::ZERO,
        })
    }

    fn run(&mut self) -> Result<End, os::Error> {
        let lead = |limit: Duration| limit.saturating_sub(LEAD.min(limit / 2));
        let mut last = self.limit.map(lead);
        let mut next = Duration::ZERO;
        loop {
            let until = last.map_or(next, |last| last.min(next));
            if let Woken::Over(end) = self.wait_while_it_lasts(until)? {
                return Ok(end);
            }
            let now = self.begin.elapsed();
            if last.is_some_and(|last| last <= now) {
                last = None;
                if let Woken::Over(end) = self.report_before_limit()? {
                    return Ok(end);
                }
            } else if let Some(cause) = self.look() {
                let time = self.args.idle;
                self.report(match cause {
                    Cause::Idle => Occasion::Idle(time),
                    Cause::Verdict => Occasion::Verdict(time),
                });
            }
            if let Some(why) = self.refused() {
                for message in why {
                    self.say_once(&message);
                }
                return Ok(End::Refused(exit::ExitCode::Resources.code()));
            }
            next = self.begin.elapsed() + self.watch.every();
        }
    }

    /// Waits until this time after the beginning, as long as the job lasts, and finds it then.
    fn wait_while_it_lasts(&mut self, until: Duration) -> Result<Woken, os::Error> {
        loop {
            let woken = self.wait(until)?;
            if let Woken::Over(_) = woken {
                return Ok(woken);
            }
            if let Some(end) = self.find()? {
                return Ok(Woken::Over(end));
            }
            if let Woken::Time = woken {
                return Ok(woken);
            }
        }
    }

    /// Waits until this time after the beginning, or until a process of the job has ended.
    fn wait(&mut self, until: Duration) -> Result<Woken, os::Error> {
        let deadline = Clock::now() + until.saturating_sub(self.begin.elapsed());
        let mut events = Vec::new();
        loop {
            self.events.wait(Some(deadline), &mut events)?;
            // All of them are taken: what was read from the kernel comes no second time.
            let mut woken = None;
            for event in events.drain(..) {
                match event {
                    Event::Signal(info) if info.signal == Signal::CHLD => {
                        // A thread that was late stands now: it is let go.
                        os::sleep_and_detach_late(Duration::ZERO);
                    }
                    Event::Signal(info) => {
                        let number = u8::try_from(info.signal.0).unwrap_or_default();
                        woken = Some(Woken::Over(End::Signal(number)));
                    }
                    Event::Readable(token) | Event::Writable(token) => {
                        drop(self.events.remove(token));
                        self.end = None;
                        woken = Some(woken.unwrap_or(Woken::Ended));
                    }
                    Event::Deadline => woken = Some(woken.unwrap_or(Woken::Time)),
                }
            }
            if let Some(woken) = woken {
                return Ok(woken);
            }
        }
    }

    /// Finds the job again, and what tells of its end.
    fn find(&mut self) -> Result<Option<End>, os::Error> {
        let found = match self.named {
            Named::There => target::find(&self.machine(), &self.args.target.wish()).map(Some),
            Named::Ended => Ok(None),
        };
        match (found, &self.target) {
            (Ok(Some(found)), _) => self.target = Some(found),
            (Ok(None) | Err(_), Some(_)) => self.named = Named::Ended,
            (Ok(None), None) => return Ok(Some(End::Gone)),
            (Err(why), None) => {
                self.say(&messages::not_found(&why, machine::situation));
                return Ok(Some(End::Refused(exit::ExitCode::Usage.code())));
            }
        }
        let mut procs = self.target.iter().flat_map(|target| target.procs.values());
        let left = procs.find(|proc| is_alive(proc)).map(|proc| proc.pid);
        let watched = match (self.named, self.args.target.wish(), left) {
            (Named::Ended, _, None) => return Ok(Some(End::Gone)),
            // A launcher may stay when its ranks have ended, and start others.
            (Named::There, Wish::Process(pid), _) => Some(pid),
            (_, _, left) => left,
        };
        if self.end.is_none() {
            let end = watched.and_then(|pid| os::end_of(Pid::from_raw(pid)));
            self.end = end
                .map(|fd| self.events.add(fd, Interest::Read))
                .transpose()?;
        }
        Ok(None)
    }

    /// A launcher is asked once: some do not survive it twice.
    fn machine(&self) -> Machine {
        let ask = match &self.target {
            None => self.args.target.ask(),
            Some(_) => Ask::Nobody,
        };
        Machine { ask }
    }

    /// Looks once.
    fn look(&mut self) -> Option<Cause> {
        if self.frames.len() > MAX_FRAMES {
            self.frames = Frames::new();
            self.watch.forget();
        }
        let target = self.target.as_ref()?;
        let at = self.begin.elapsed();
        self.local.follow(target);
        let sample = self.local.sample(Extent::Everybody);
        let snapshot = sample
            .snapshot
            .with_frames_in(sample.frames, &mut self.frames);
        let progress = progress(target);
        self.spent += self.begin.elapsed().saturating_sub(at);
        let look = Observed {
            sample: Sample { at, snapshot },
            progress,
        };
        self.watch.see(&self.frames, look)
    }

    fn report_before_limit(&mut self) -> Result<Woken, os::Error> {
        let Some(limit) = self.limit else {
            return Ok(Woken::Time);
        };
        let left = limit.saturating_sub(self.begin.elapsed());
        for _ in 1..LAST_SAMPLES {
            self.look();
            let woken = self.wait_while_it_lasts(self.begin.elapsed() + left / 4)?;
            if let Woken::Over(_) = woken {
                return Ok(woken);
            }
        }
        self.look();
        let left = limit.saturating_sub(self.begin.elapsed());
        self.report(Occasion::Limit(left));
        Ok(Woken::Time)
    }

    /// Where none of the ranks may be looked at, or none is known to be one, there is nothing to be watched: why.
    fn refused(&mut self) -> Option<Vec<Message>> {
        let target = self.target.as_ref()?;
        let snapshot = self.watch.last()?;
        let of = |wanted: &[Missing]| -> base::RankSet {
            let is_wanted =
                |seen: &Seen| matches!(seen, Seen::Missing(why) if wanted.contains(why));
            let ranks = snapshot.procs.iter();
            ranks
                .filter(|(_, seen)| is_wanted(seen))
                .map(|(&rank, _)| rank)
                .collect()
        };
        let ranks = of(&[Missing::NotPermitted, Missing::Unproved]);
        let forbidden = of(&[Missing::NotPermitted]);
        if ranks.len() < snapshot.procs.len() || ranks.is_empty() {
            self.refusals = 0;
            return None;
        }
        // A process that is just ending looks like one that may not be looked at.
        self.refusals += 1;
        if self.refusals == 1 {
            return None;
        }
        let mut why: Vec<Message> = target.doubts.iter().map(messages::doubt).collect();
        let pid = forbidden.first().and_then(|rank| target.procs.get(&rank));
        if let Some(pid) = pid.map(|proc| proc.pid) {
            let situation = machine::situation(pid);
            why.push(messages::not_permitted(&forbidden, &situation));
        }
        why.push(messages::nobody_to_watch());
        Some(why)
    }

    /// Says where everybody is, and why now.
    fn report(&mut self, occasion: Occasion) {
        let Some(target) = self.target.as_ref() else {
            return;
        };
        let is_last = matches!(occasion, Occasion::Limit(_));
        if self.reports >= MAX_REPORTS && !is_last {
            return;
        }
        self.reports += 1;
        let recording = self.watch.recording(&self.frames);
        let detail = output::detail(&self.args.shown);
        let description = self.local.describe();
        let origin = output::origin(self.spent);
        let mut report = Report::made(target, recording, description, origin, detail);
        report.found.push(occasion.to_string());
        let verdicts: Vec<String> = report.verdicts.iter().map(ToString::to_string).collect();
        let page = self.args.output.as_deref().map(Destination::of);
        let page = page.map(|page| match page {
            Destination::Stdout => Destination::Stdout,
            Destination::File(first) => Destination::File(numbered(&first, self.reports)),
        });
        // Of a job of which nothing is reported nothing needs to be known.
        let doubts = target.doubts.iter().map(messages::doubt);
        let notes = target.notes.iter().map(messages::note);
        for message in doubts.chain(notes).collect::<Vec<_>>() {
            self.say_once(&message);
        }
        let mut written = None;
        if let Some(Destination::File(page)) = &page {
            match os::publish(page, debug::report::html(&report).as_bytes()) {
                Ok(()) => written = Some(page.as_path()),
                Err(error) => self.say(&messages::not_written(page, &error)),
            }
        }
        let shown = self.args.shown.json || self.args.message_format == MessageForm::Text;
        let stacks = shown && page != Some(Destination::Stdout);
        // The stacks repeat the verdicts.
        let told = if stacks { &[][..] } else { &verdicts };
        self.say(&messages::reported(occasion, told, written));
        match page {
            Some(Destination::Stdout) => {
                super::print(&debug::report::html(&report));
            }
            _ if stacks => {
                super::print(&output::shown(&report, &self.args.shown));
            }
            _ => {}
        }
    }

    fn say_once(&mut self, message: &Message) {
        if self.said.insert(message.headline.clone()) {
            self.say(message);
        }
    }

    fn say(&self, message: &Message) {
        super::say_as(message, format(self.args));
    }

    fn fail(&self, error: &os::Error) -> u8 {
        self.say(&crate::messages::system(error));
        exit::ExitCode::Resources.code()
    }
}

/// Whether it is there, and still the same.
fn is_alive(proc: &target::Proc) -> bool {
    let pid = Pid::from_raw(proc.pid);
    let through = os::living_thread_of(pid);
    proc.started().is_some()
        && os::start_time(pid) == proc.started()
        && os::inspect_thread(pid, through).is_some_and(|it| !matches!(it.state, 'Z' | 'X'))
}

/// What each rank has done, with the processes below it: every process is looked up once, whatever number of ranks there is.
fn progress(target: &Target) -> BTreeMap<Rank, Progress> {
    let processes: BTreeMap<Pid, os::ProcessInfo> = os::all_processes()
        .into_iter()
        .filter_map(os::inspect)
        .map(|info| (info.pid, info))
        .collect();
    // What is done by whoever has the number of a rank that has ended is none of its progress.
    let is_same = |pid: Pid, started| {
        let info = processes.get(&pid);
        info.is_some_and(|info| info.start_time == started)
    };
    let ranks: BTreeMap<Pid, Rank> = super::here(target)
        .into_iter()
        .filter(|&(_, (pid, started))| is_same(pid, started))
        .map(|(rank, (pid, _))| (pid, rank))
        .collect();
    let written = |pid| os::bytes_written(pid).unwrap_or_default();
    let mut progress: BTreeMap<Rank, Progress> = ranks
        .iter()
        .map(|(&pid, &rank)| {
            let below = Duration::ZERO;
            let written = written(pid);
            (rank, Progress { written, below })
        })
        .collect();
    let parent = |pid: &Pid| processes.get(pid).map(|info| info.ppid);
    for &pid in processes.keys().filter(|pid| !ranks.contains_key(pid)) {
        // A number that is used again while we look could close a circle.
        let above = std::iter::successors(parent(&pid), parent);
        let rank = above.take(MAX_DEPTH).find_map(|pid| ranks.get(&pid));
        if let Some(progress) = rank.and_then(|rank| progress.get_mut(rank)) {
            progress.written += written(pid);
            progress.below += os::processor_time(pid).unwrap_or_default();
        }
    }
    progress
}

/// How long Slurm lets our job run from now on, where we are in one.
fn slurm_limit() -> Option<Duration> {
    let end: i64 = env::var(SLURM_END).ok()?.parse().ok()?;
    let (now, _) = os::wall_clock();
    let left = u64::try_from(end.saturating_sub(now)).ok()?;
    Some(Duration::from_secs(left))
}

#[cfg(test)]
mod tests {
    use debug::target::Whereabouts;

    use super::{super::tests::target_of_one, *};

    #[test]
    fn the_end_of_a_watch_says_why() {
        use clap::Parser as _;
        let line = args::CommandLine::try_parse_from(["dbgr", "watch", "7"]).unwrap();
        let args::Command::Watch(args) = line.command else {
            panic!("it is a watch");
        };
        let mut watcher = Watcher::new(&args).unwrap();
        watcher.target = Some(Target {
            doubts: vec![target::Doubt::Unproved {
                ranks: base::RankSet::single(Rank(0)),
                pid: 7,
            }],
            ..target_of_one(7, Whereabouts::Unproved)
        });
        watcher.look();
        assert!(watcher.refused().is_none(), "it may just be ending");
        watcher.look();
        let why = watcher.refused().unwrap();
        let said: String = why
            .iter()
            .map(|message| message::text(message, MessageFormat::Text))
            .collect();
        insta::assert_snapshot!(said, @"
        warning: rank 0 is process 7 for its launcher, and nothing shows which process here that is: it is left alone
        error: no rank can be looked at: the watch is over
        ");
    }

    #[test]
    fn who_has_the_number_of_a_rank_now_does_nothing_for_it() {
        let pid = os::current_pid();
        let started = os::start_time(pid).unwrap();
        let here = |started| Whereabouts::Here { started };
        for (place, expected) in [
            (here(started), true),
            (here(started - 1), false),
            (Whereabouts::Gone, false),
            (Whereabouts::Unproved, false),
            (Whereabouts::On("n2".to_owned()), false),
        ] {
            let target = target_of_one(pid.as_raw(), place.clone());
            assert_eq!(
                progress(&target).contains_key(&Rank(0)),
                expected,
                "{place:?}"
            );
        }
    }
}
