//! `dbgr watch`: follows a job until it ends, and reports when it hangs.
//!
//! [`debug::watch::Watch`] decides when to search for the job, when to take a sample, when to report, and when to stop. This file
//! carries out its steps: it waits, reads `/proc`, and prints.

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    time::Duration,
};

use base::{Rank, RankSet, Signal};
use debug::{
    proto::Extent,
    report::Report,
    stack::Missing,
    target::{self, NotFound, Target, Wish},
    watch::{End, Input, Job, Occasion, Output, Progress, Search, Watch, WatchOptions},
};
use message::Message;
use os::{Clock, Event, Interest, Loop, Pid, Token};

use super::{
    args::{self, Destination, MessageForm, numbered},
    local::Local,
    machine::{self, Ask, Machine},
    messages,
    nodes::{ENDING, NotReached},
    output,
};
use crate::{args::MessageFormat, exit};

/// The most levels of parents searched from a descendant up to its rank.
const MAX_DEPTH: usize = 64;
/// The variable that contains the end of Slurm's allocation, in seconds since 1970.
const SLURM_END: &str = "SLURM_JOB_END_TIME";
/// The base of an exit code after a signal: the signal's number is added.
const SIGNALLED: u8 = 128;

/// Runs `dbgr watch`, and returns the exit code.
pub(super) fn watch(args: &args::Watch) -> u8 {
    if let Some(error) = args.output.as_deref().and_then(super::no_directory) {
        super::say_as(&error, format(args));
        return exit::ExitCode::BadFile.code();
    }
    let ended = Watcher::new(args)
        .map_err(NotReached::Os)
        .and_then(|mut watcher| watcher.run());
    ended.unwrap_or_else(|error| {
        super::say_as(&error.message(), format(args));
        error.code()
    })
}

const fn format(args: &args::Watch) -> MessageFormat {
    match args.message_format {
        MessageForm::Text => MessageFormat::Text,
        MessageForm::Json => MessageFormat::Json,
    }
}

/// The host of a [`Watch`].
struct Watcher<'a> {
    args: &'a args::Watch,
    events: Loop,
    watch: Watch,
    /// A descriptor that becomes readable when the process that the watch waits for has exited.
    exit: Option<Token>,
    local: Local,
    /// The job that the last successful search found.
    target: Option<Target>,
    /// Why the last search found no job.
    not_found: Option<NotFound>,
    /// Headlines of the doubts and notes that were printed.
    printed: BTreeSet<String>,
    /// The time that samples have taken.
    spent: Duration,
}

impl<'a> Watcher<'a> {
    fn new(args: &'a args::Watch) -> Result<Self, os::Error> {
        let options = WatchOptions {
            idle: args.idle,
            limit: [args.limit, slurm_limit()].into_iter().flatten().min(),
            pid: match args.target.wish() {
                Wish::Process(pid) => Some(pid),
                _ => None,
            },
        };
        Ok(Self {
            args,
            events: Loop::new(&ENDING)?,
            watch: Watch::new(options, Clock::now()),
            exit: None,
            local: Local::new(output::detail(&args.shown)),
            target: None,
            not_found: None,
            printed: BTreeSet::new(),
            spent: Duration::ZERO,
        })
    }

    /// Follows the job, and returns the exit code.
    fn run(&mut self) -> Result<u8, NotReached> {
        loop {
            while let Some(output) = self.watch.poll() {
                match output {
                    Output::Find(search) => {
                        let found = self.find(search)?;
                        let input = ended_by().unwrap_or(found);
                        self.watch.handle(Clock::now(), input);
                    }
                    Output::WatchExit(pid) => self.watch_exit(pid)?,
                    Output::Sample => {
                        let input = self.sample();
                        self.watch.handle(Clock::now(), input);
                    }
                    Output::Report { occasion, number } => self.report(occasion, number),
                    Output::Unseen(unseen) => self.say(&messages::unseen(&unseen)),
                    Output::End(end) => return Ok(self.end(end)),
                }
            }
            let input = self.wait()?;
            self.watch.handle(Clock::now(), input);
        }
    }

    /// Waits until a sample is due, a process of the job has exited, or a signal comes.
    fn wait(&mut self) -> Result<Input, os::Error> {
        let mut events = Vec::new();
        loop {
            self.events.wait(self.watch.deadline(), &mut events)?;
            // Every event is taken: the kernel reports none of them a second time.
            let mut input = None;
            for event in events.drain(..) {
                match event {
                    Event::Signal(info) if info.signal == Signal::CHLD => {
                        // A late thread has stopped, so it can be released.
                        os::sleep_and_detach_late(Duration::ZERO);
                    }
                    Event::Signal(info) => {
                        let number = u8::try_from(info.signal.0).unwrap_or_default();
                        input = Some(Input::Signal(number));
                    }
                    Event::Readable(token) | Event::Writable(token) => {
                        drop(self.events.remove(token));
                        self.exit = None;
                        input = Some(input.unwrap_or(Input::Exited));
                    }
                    Event::Deadline => input = Some(input.unwrap_or(Input::Tick)),
                }
            }
            if let Some(input) = input {
                return Ok(input);
            }
        }
    }

    /// Searches for the job, or for living processes of the one that was found last.
    ///
    /// Ranks on other nodes do not count as living: a launcher on this node outlives them, and with `--hosts` every search
    /// asks the nodes. The job is gone when all of them have answered that they have none of it.
    fn find(&mut self, search: Search) -> Result<Input, NotReached> {
        // A launcher is asked only once: some launchers crash or hang when asked twice.
        let ask = match &self.target {
            None => self.args.target.ask(),
            Some(_) => Ask::Nobody,
        };
        let wanted = &self.args.target;
        let here = || target::find(&Machine { ask }, &wanted.wish());
        let found = match (search, &wanted.hosts) {
            (Search::Job, Some(hosts)) => {
                let nodes = (hosts, &wanted.agents);
                Some(self.local.find(&wanted.wish(), nodes, here)?)
            }
            (Search::Job, None) => Some(here()),
            (Search::Ranks, _) => None,
        };
        let found = match (found, &self.target) {
            (Some(found), Some(earlier)) => Some(target::later(found, earlier)),
            (found, _) => found,
        };
        let job = match found {
            Some(Ok(mut target)) => {
                if !wanted.local {
                    self.local.reach(&mut target, &wanted.agents)?;
                }
                self.target = Some(target);
                Job::Found
            }
            Some(Err(why)) => {
                self.not_found = Some(why);
                Job::NotFound
            }
            None => Job::NotFound,
        };
        let mut procs = self.target.iter().flat_map(|target| target.procs.values());
        let living = procs.find(|proc| is_alive(proc)).map(|proc| proc.pid);
        Ok(Input::Found { job, living })
    }

    /// Starts to wait for the exit of a process, unless the watch already waits for one.
    fn watch_exit(&mut self, pid: i32) -> Result<(), os::Error> {
        if self.exit.is_none() {
            let exit = os::end_of(Pid::from_raw(pid));
            let exit = exit.map(|fd| self.events.add(fd, Interest::Read));
            self.exit = exit.transpose()?;
        }
        Ok(())
    }

    /// Takes a sample of the job that was found last.
    fn sample(&mut self) -> Input {
        let began = Clock::now();
        let (sample, progress) = match &self.target {
            Some(target) => {
                self.local.follow(target);
                (self.local.sample(Extent::Everybody), progress(target))
            }
            None => Default::default(),
        };
        self.spent += Clock::now().since(began);
        Input::Sampled {
            began,
            frames: sample.frames,
            snapshot: Box::new(sample.snapshot),
            progress,
        }
    }

    /// Prints why the watch is over, and returns the exit code.
    fn end(&mut self, end: End) -> u8 {
        match end {
            End::Gone => exit::SUCCESS,
            End::Signal(signal) => SIGNALLED.saturating_add(signal),
            End::NotFound => {
                if let Some(why) = self.not_found.take() {
                    self.say(&messages::not_found(&why, machine::situation));
                }
                exit::ExitCode::Usage.code()
            }
            End::NoAccess { unseen } => {
                for message in self.no_access(unseen) {
                    self.say_once(&message);
                }
                exit::ExitCode::Resources.code()
            }
        }
    }

    /// Returns the reasons why no rank may be accessed.
    fn no_access(&self, mut unseen: BTreeMap<Missing, RankSet>) -> Vec<Message> {
        // The doubts are about the ranks of unproved processes.
        unseen.remove(&Missing::Unproved);
        let forbidden = unseen.get(&Missing::NotPermitted).cloned();
        let forbidden = forbidden.unwrap_or_default();
        let target = self.target.as_ref();
        let doubts = target.into_iter().flat_map(|target| &target.doubts);
        let mut why: Vec<Message> = doubts.map(messages::doubt).collect();
        let first = forbidden.first();
        let proc = first.and_then(|rank| target?.procs.get(&rank));
        // The reason can only be read on this node.
        if let Some(proc) = proc.filter(|proc| proc.host().is_none()) {
            let situation = machine::situation(proc.pid);
            why.push(messages::not_permitted(&forbidden, &situation));
            unseen.remove(&Missing::NotPermitted);
        }
        if !unseen.is_empty() {
            why.push(messages::unseen(&unseen));
        }
        why.push(messages::nobody_to_watch());
        why
    }

    /// Prints a report on all ranks, with the reason for it.
    fn report(&mut self, occasion: Occasion, number: u32) {
        let Some(target) = self.target.as_ref() else {
            return;
        };
        let recording = self.watch.recording();
        let detail = output::detail(&self.args.shown);
        let description = self.local.describe();
        let origin = output::origin(self.spent);
        let mut report = Report::made(target, recording, description, origin, detail);
        report.found.push(messages::occasion(occasion));
        let verdicts: Vec<String> = report.verdicts.iter().map(ToString::to_string).collect();
        let page = self.args.output.as_deref().map(Destination::of);
        let page = page.map(|page| match page {
            Destination::Stdout => Destination::Stdout,
            Destination::File(first) => Destination::File(numbered(&first, number)),
        });
        // Doubts and notes are printed only together with a report.
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
        // The stacks on stdout already contain the verdicts.
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
        if self.printed.insert(message.headline.clone()) {
            self.say(message);
        }
    }

    fn say(&self, message: &Message) {
        super::say_as(message, format(self.args));
    }
}

/// Returns the signal that has come while other nodes were searched.
fn ended_by() -> Option<Input> {
    let signal = os::pending_signal(&ENDING)?;
    Some(Input::Signal(u8::try_from(signal.0).unwrap_or_default()))
}

/// Returns true if the process of a rank is alive, and its pid was not reused.
fn is_alive(proc: &target::Proc) -> bool {
    let pid = Pid::from_raw(proc.pid);
    let through = os::living_thread_of(pid);
    proc.started().is_some()
        && os::start_time(pid) == proc.started()
        && os::inspect_thread(pid, through).is_some_and(|it| !matches!(it.state, 'Z' | 'X'))
}

/// Returns what the samples do not show of each rank on this node, including its descendants. Each process is read once, however many
/// ranks there are.
fn progress(target: &Target) -> BTreeMap<Rank, Progress> {
    let processes: BTreeMap<Pid, os::ProcessInfo> = os::all_processes()
        .into_iter()
        .filter_map(os::inspect)
        .map(|info| (info.pid, info))
        .collect();
    // A process that reused the pid of an exited rank makes no progress for the rank.
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
            let written = written(pid);
            (rank, Progress { written })
        })
        .collect();
    let parent = |pid: &Pid| processes.get(pid).map(|info| info.ppid);
    for &pid in processes.keys().filter(|pid| !ranks.contains_key(pid)) {
        // A pid reused while we read could close a cycle of parents.
        let above = std::iter::successors(parent(&pid), parent);
        let rank = above.take(MAX_DEPTH).find_map(|pid| ranks.get(&pid));
        if let Some(progress) = rank.and_then(|rank| progress.get_mut(rank)) {
            progress.written += written(pid);
        }
    }
    progress
}

/// Returns how long Slurm lets this job continue to run. `None` outside of a Slurm job.
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
                ranks: RankSet::single(Rank(0)),
                pid: 7,
            }],
            ..target_of_one(7, Whereabouts::Unproved)
        });
        let lost = Missing::AgentLost("n2".to_owned());
        let unseen = [
            (Missing::Unproved, RankSet::single(Rank(0))),
            (lost, RankSet::single(Rank(1))),
        ];
        let why = watcher.no_access(unseen.into());
        let said: String = why
            .iter()
            .map(|message| message::text(message, MessageFormat::Text))
            .collect();
        insta::assert_snapshot!(said, @"
        warning: the launcher knows rank 0 as process 7, but nothing shows which process on this node that is: the rank is skipped
        warning: 1 rank cannot be watched
          ranks: 1: the agent on host n2 was lost
          help:  while a rank may be at work unseen, only a verdict about the others is reported
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
            (Whereabouts::Gone { host: None }, false),
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
