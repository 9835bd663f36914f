//! `dbgr watch`: follows a job until it ends, and reports when it hangs.
//!
//! | when | what |
//! |---|---|
//! | a sixth of the idle time is over | it is looked for the job, and at it; a report where [`debug::watch`] has news |
//! | what the user has named ends | it is looked for the job at once: where nothing of it is left, that is the end |
//! | shortly before the time limit | some looks, and a report |
//! | a signal | the end, between two looks: nobody is left standing |

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use base::{Rank, Signal};
use debug::{
    samples::Sample,
    stack::{Missing, Seen},
    target::{self, NotFound, Target, Wish},
    watch::{Cause, Look, Watch},
};
use dvm::messages::Message;
use os::{Clock, Event, Interest, Loop, Pid, Token};

use super::{
    args::{self, MessageForm},
    live::Looker,
    machine::{self, Machine},
    messages::{self, Occasion},
    output,
};
use crate::{args::MessageFormat, exit};

/// How long before the time limit the report is begun, unless half of the time is shorter.
const LEAD: Duration = Duration::from_secs(5);
/// Looks before the time limit: with fewer nothing is said about what is stuck.
const LAST_LOOKS: u32 = 3;
/// Reports of one job: one that stands, moves a little and stands again need not fill the disk.
const MAX_REPORTS: u32 = 10;
/// Frames that are kept, beyond which what is known is forgotten and learnt anew.
const MAX_FRAMES: usize = 200_000;
/// The end of Slurm's allocation, in seconds since 1970.
const SLURM_END: &str = "SLURM_JOB_END_TIME";
/// What the number of a signal is added to.
const SIGNALLED: u8 = 128;

/// Follows what the user means; gives the exit code.
pub(super) fn watch(args: &args::Watch) -> u8 {
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

struct Watcher<'a> {
    args: &'a args::Watch,
    events: Loop,
    begin: Instant,
    /// When the job is ended by somebody else, after the beginning.
    limit: Option<Duration>,
    /// Readable when what the user has named has ended.
    named: Option<Token>,
    looker: Looker,
    watch: Watch,
    target: Option<Target>,
    /// Doubts and notes that were said, and who may not be looked at.
    said: BTreeSet<String>,
    reports: u32,
    /// The time that was spent with looking.
    spent: Duration,
}

impl<'a> Watcher<'a> {
    fn new(args: &'a args::Watch) -> Result<Self, os::Error> {
        let mut events = Loop::new(&[Signal::INT, Signal::TERM, Signal::HUP])?;
        let named = match args.target.wish() {
            Wish::Process(pid) => os::end_of(Pid::from_raw(pid)),
            Wish::Job(_) | Wish::Name(_) => None,
        };
        let named = named.map(|fd| events.add(fd, Interest::Read)).transpose()?;
        Ok(Self {
            args,
            events,
            begin: Instant::now(),
            limit: [args.limit, slurm_limit()].into_iter().flatten().min(),
            named,
            looker: Looker::new(output::detail(&args.shown)),
            watch: Watch::new(args.idle),
            target: None,
            said: BTreeSet::new(),
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
            if let Some(end) = self.wait(until)? {
                return Ok(end);
            }
            if let Some(end) = self.find() {
                return Ok(end);
            }
            let now = self.begin.elapsed();
            if last.is_some_and(|last| last <= now) {
                last = None;
                if let Some(end) = self.report_before_limit()? {
                    return Ok(end);
                }
            } else if let Some(cause) = self.look() {
                let time = self.args.idle;
                self.report(match cause {
                    Cause::Idle => Occasion::Idle(time),
                    Cause::Verdict => Occasion::Verdict(time),
                });
            }
            if let Some(end) = self.refused() {
                return Ok(end);
            }
            next = self.begin.elapsed() + self.watch.every();
        }
    }

    /// Waits until this time after the beginning, or until what was named has ended.
    fn wait(&mut self, until: Duration) -> Result<Option<End>, os::Error> {
        let deadline = Clock::now() + until.saturating_sub(self.begin.elapsed());
        let mut events = Vec::new();
        loop {
            self.events.wait(Some(deadline), &mut events)?;
            for event in events.drain(..) {
                match event {
                    Event::Signal(info) if info.signal == Signal::CHLD => {
                        // A thread that was late stands now: it is let go.
                        os::rest(Duration::ZERO);
                    }
                    Event::Signal(info) => {
                        let number = u8::try_from(info.signal.0).unwrap_or_default();
                        return Ok(Some(End::Signal(number)));
                    }
                    Event::Readable(token) | Event::Writable(token) => {
                        drop(self.events.remove(token));
                        self.named = None;
                        return Ok(None);
                    }
                    Event::Deadline => return Ok(None),
                }
            }
        }
    }

    /// Finds the job again: ranks come and go. Where what was named has ended, those that are left are the job.
    fn find(&mut self) -> Option<End> {
        let machine = Machine {
            ask: self.args.target.ask(),
        };
        match target::find(&machine, &self.args.target.wish()) {
            Ok(found) => {
                self.target = Some(found);
                None
            }
            Err(why) => match &self.target {
                Some(target) if target.procs.values().any(is_alive) => None,
                Some(_) => Some(End::Gone),
                None => {
                    self.say(&messages::not_found(&why, machine::situation));
                    // A job that is over already is no mistake of who asked for it to be watched.
                    let gone = matches!(why, NotFound::Ended { .. });
                    Some(if gone {
                        End::Gone
                    } else {
                        End::Refused(exit::ExitCode::Usage.code())
                    })
                }
            },
        }
    }

    /// Looks once.
    fn look(&mut self) -> Option<Cause> {
        let target = self.target.as_ref()?;
        let at = self.begin.elapsed();
        let snapshot = super::look(&mut self.looker, target);
        os::rest(Duration::ZERO);
        let written = written(target);
        self.spent += self.begin.elapsed().saturating_sub(at);
        let look = Look {
            sample: Sample { at, snapshot },
            written,
        };
        let cause = self.watch.see(&self.looker.frames, look);
        if self.looker.frames.len() > MAX_FRAMES {
            self.looker = Looker::new(output::detail(&self.args.shown));
            self.watch.forget();
        }
        cause
    }

    fn report_before_limit(&mut self) -> Result<Option<End>, os::Error> {
        let Some(limit) = self.limit else {
            return Ok(None);
        };
        let left = limit.saturating_sub(self.begin.elapsed());
        for _ in 1..LAST_LOOKS {
            self.look();
            if let Some(end) = self.wait(self.begin.elapsed() + left / 4)? {
                return Ok(Some(end));
            }
        }
        self.look();
        self.report(Occasion::Limit(limit.saturating_sub(self.begin.elapsed())));
        Ok(None)
    }

    /// Where none of the ranks may be looked at there is nothing to be watched; where some may not, it is said.
    fn refused(&mut self) -> Option<End> {
        let target = self.target.as_ref()?;
        let snapshot = self.watch.last()?;
        let forbidden = |(&rank, seen): (&Rank, &Seen)| {
            matches!(seen, Seen::Missing(Missing::NotPermitted)).then_some(rank)
        };
        let ranks: base::RankSet = snapshot.procs.iter().filter_map(forbidden).collect();
        let pid = target.procs.get(&ranks.first()?)?.pid;
        let all = ranks.len() == snapshot.procs.len();
        self.say_once(&messages::not_permitted(&ranks, &machine::situation(pid)));
        all.then(|| End::Refused(exit::ExitCode::Resources.code()))
    }

    /// Says where everybody is, and why now.
    fn report(&mut self, occasion: Occasion) {
        let Some(target) = self.target.as_ref() else {
            return;
        };
        if self.reports >= MAX_REPORTS {
            return;
        }
        self.reports += 1;
        let recording = self.watch.recording(&self.looker.frames);
        let detail = output::detail(&self.args.shown);
        let mut report = output::report(target, recording, detail, self.spent);
        report.doubts.extend(self.looker.doubts());
        report.versions.extend(self.looker.versions());
        report.found.push(occasion.to_string());
        let verdicts: Vec<String> = report.verdicts.iter().map(ToString::to_string).collect();
        let page = self
            .args
            .output
            .as_deref()
            .map(|first| numbered(first, self.reports));
        // Of a job of which nothing is reported nothing needs to be known.
        let doubts = target.doubts.iter().map(messages::doubt);
        let notes = target.notes.iter().map(messages::note);
        for message in doubts.chain(notes).collect::<Vec<_>>() {
            self.say_once(&message);
        }
        let mut written = None;
        if let Some(page) = &page {
            match fs::write(page, debug::report::html(&report)) {
                Ok(()) => written = Some(page.as_path()),
                Err(error) => self.say(&messages::not_written(page, &error)),
            }
        }
        let stacks = self.args.shown.json || self.args.message_format == MessageForm::Text;
        // The stacks repeat the verdicts.
        let told = if stacks { &[][..] } else { &verdicts };
        self.say(&messages::reported(occasion, told, written));
        if stacks {
            super::print(&output::shown(&report, &self.args.shown));
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

fn is_alive(proc: &target::Proc) -> bool {
    proc.host.is_none()
        && os::inspect(Pid::from_raw(proc.pid)).is_some_and(|it| !matches!(it.state, 'Z' | 'X'))
}

fn written(target: &Target) -> BTreeMap<Rank, u64> {
    let here = target.procs.iter().filter(|(_, proc)| proc.host.is_none());
    here.filter_map(|(&rank, proc)| Some((rank, os::bytes_written(Pid::from_raw(proc.pid))?)))
        .collect()
}

/// How long Slurm lets our job run from now on, where we are in one.
fn slurm_limit() -> Option<Duration> {
    let end: i64 = env::var(SLURM_END).ok()?.parse().ok()?;
    let (now, _) = os::wall_clock();
    let left = u64::try_from(end.saturating_sub(now)).ok()?;
    Some(Duration::from_secs(left))
}

/// `hang.html`, `hang-2.html`, and so on.
fn numbered(first: &Path, number: u32) -> PathBuf {
    if number == 1 {
        return first.to_owned();
    }
    let mut name = first.file_stem().unwrap_or_default().to_owned();
    name.push(format!("-{number}"));
    if let Some(ending) = first.extension() {
        name.push(".");
        name.push(ending);
    }
    first.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_numbered() {
        let name = |first: &str, number| numbered(Path::new(first), number);
        assert_eq!(name("hang.html", 1), Path::new("hang.html"));
        assert_eq!(name("a/hang.html", 2), Path::new("a/hang-2.html"));
        assert_eq!(name("hang", 10), Path::new("hang-10"));
    }
}
