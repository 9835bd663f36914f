//! `dbgr`, the parallel debugger: where is each rank?

mod args;
mod ask;
mod calls;
mod host;
pub(crate) mod live;
mod local;
mod machine;
pub(crate) mod messages;
mod nodes;
mod output;
mod remote;
mod sampling;
mod through;
mod watch;

use std::{
    collections::BTreeMap,
    env,
    ffi::OsStr,
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use base::{Rank, RankSet};
use clap::Parser as _;
use debug::{
    report::{Detail, Phases, Report},
    session::{Plan, Samples},
    stack::{Missing, Seen},
    target::{self, Target},
};
use message::Message;
use os::Pid;

use self::{
    args::{Command, CommandLine, Destination, TargetArgs},
    local::Local,
    machine::Machine,
    messages::FileThere,
    sampling::Ended,
};
use crate::{
    args::{MessageFormat, THROUGH_ARGUMENT},
    exit,
};

/// Runs the program `dbgr`.
pub fn dbgr() -> ExitCode {
    os::close_on_exec_from(3);
    // With the `/proc` of another pid namespace, a pid read there would name another process when we stop it.
    if !os::sees_own_processes() {
        say(&messages::foreign_numbers());
        return ExitCode::from(exit::ExitCode::Resources.code());
    }
    if env::args_os().nth(1).as_deref() == Some(OsStr::new(remote::AGENT_ARGUMENT)) {
        return ExitCode::from(remote::serve(env::args_os().nth(2).map(PathBuf::from)));
    }
    if env::args_os().nth(1).as_deref() == Some(OsStr::new(THROUGH_ARGUMENT))
        && let Some(socket) = env::args_os().nth(2)
    {
        return ExitCode::from(through::serve(Path::new(&socket)));
    }
    let code = match CommandLine::try_parse_from(args::words(env::args_os())) {
        Ok(line) => match line.command {
            Command::Stacks(args) => stacks(&args),
            Command::Verdict(args) => sampling::verdict(&args),
            Command::Report(args) => write_report(&args),
            Command::Calls(args) => calls::list(&args),
            Command::Watch(args) => watch::watch(&args),
        },
        Err(error) if let Some((word, similar)) = args::no_target(&error) => {
            let file = match fs::metadata(&word) {
                Ok(found) if found.is_file() => FileThere::Yes,
                _ => FileThere::No,
            };
            say(&messages::no_target(&word, similar.as_deref(), file));
            exit::ExitCode::Usage.code()
        }
        Err(error) => {
            // A message that cannot be printed is lost; the exit code still reports the error.
            let _ = error.print();
            if error.use_stderr() {
                exit::ExitCode::Usage.code()
            } else {
                exit::SUCCESS
            }
        }
    };
    ExitCode::from(code)
}

fn stacks(args: &args::Stacks) -> u8 {
    if args.explain {
        return match find(&args.target, &mut Local::new(Detail::Folded)) {
            Ok(target) => print_clean(&target.to_string()),
            Err(code) => code,
        };
    }
    match report_on(
        &args.target,
        args.samples.plan(Samples::Exactly(1)),
        output::detail(&args.output),
    ) {
        Ok((report, ended)) => ended.code(print(&output::shown(&report, &args.output))),
        Err(code) => code,
    }
}

/// The samples of a report: as many as the verdict needs, for at most 15 s. Only the verdict that a program is slow would
/// need more.
const REPORTED: Samples = Samples::AsNeeded(Duration::from_secs(15));

/// Runs `dbgr report`: writes the page, and prints verdicts and path. With `-o -`, the page itself goes to stdout.
fn write_report(args: &args::Report) -> u8 {
    let page = args.destination(|path| fs::symlink_metadata(path).is_err());
    if let Destination::File(page) = &page
        && let Some(error) = no_directory(page)
    {
        say(&error);
        return exit::ExitCode::BadFile.code();
    }
    let (report, ended) = match report_on(&args.target, args.samples.plan(REPORTED), Detail::Folded)
    {
        Ok(seen) => seen,
        Err(code) => return code,
    };
    let html = debug::report::html(&report);
    let page = match page {
        Destination::Stdout => return ended.code(print(&html)),
        Destination::File(page) => page,
    };
    match os::publish(&page, html.as_bytes()) {
        Ok(()) => {
            let verdicts = report.verdicts.iter();
            let mut said: Vec<_> = verdicts.map(|verdict| format!("{verdict}\n")).collect();
            if said.is_empty() {
                said.push(format!("{}\n", report.no_verdict()));
            }
            said.push(format!("written: {}\n", page.display()));
            ended.code(print_clean(&said.concat()))
        }
        Err(error) => {
            say(&messages::not_written(&page, &error));
            exit::ExitCode::BadFile.code()
        }
    }
}

/// Returns the error for a page whose directory does not exist. Checked before the first sample, because afterwards the
/// samples would be lost.
fn no_directory(page: &Path) -> Option<Message> {
    let directory = page.parent().filter(|it| !it.as_os_str().is_empty())?;
    match fs::metadata(directory) {
        Ok(found) if found.is_dir() => None,
        Ok(_) => Some(io::Error::from(io::ErrorKind::NotADirectory)),
        Err(error) => Some(error),
    }
    .map(|error| messages::not_written(page, &error.into()))
}

/// Finds the job that the user named. On failure, prints why and returns the exit code.
fn find(args: &TargetArgs, local: &mut Local) -> Result<Target, u8> {
    let machine = Machine { ask: args.ask() };
    let here = || target::find(&machine, &args.wish());
    let found = match &args.hosts {
        Some(hosts) => local
            .find(&args.wish(), (hosts, &args.agents), here)
            .map_err(|error| {
                say(&error.message());
                error.code()
            })?,
        None => here(),
    };
    found.map_err(|why| {
        say(&messages::not_found(&why, machine::situation));
        exit::ExitCode::Usage.code()
    })
}

/// Finds the job that the user named, and follows its ranks on all nodes. Prints doubts and notes. `Err` is the exit code.
fn follow(args: &TargetArgs, local: &mut Local) -> Result<Target, u8> {
    let mut target = find(args, local)?;
    target
        .doubts
        .iter()
        .map(messages::doubt)
        .for_each(|message| say(&message));
    target
        .notes
        .iter()
        .map(messages::note)
        .for_each(|message| say(&message));
    if !args.local {
        local.reach(&mut target, &args.agents).map_err(|error| {
            say(&error.message());
            error.code()
        })?;
    }
    local.follow(&target);
    Ok(target)
}

/// Takes samples of the job that the user named, and makes a report. Prints doubts, notes, and which ranks it may not
/// access. `Err` is the exit code.
fn report_on(args: &TargetArgs, plan: Plan, detail: Detail) -> Result<(Report, Ended), u8> {
    let start = Instant::now();
    let mut local = Local::new(detail);
    let target = follow(args, &mut local)?;
    let finding = start.elapsed();
    let (recording, ended, sampling_time) = sampling::take(plan, &mut local);
    let samples = &recording.samples;
    if ended == Ended::Interrupted {
        say(&messages::interrupted(samples.len(), plan.samples.number()));
    }
    let merging = Instant::now();
    let last = samples.iter().next_back();
    let forbidden: RankSet = last
        .into_iter()
        .flat_map(|sample| &sample.snapshot.procs)
        .filter(|(_, seen)| matches!(seen, Seen::Missing(Missing::NotPermitted)))
        .map(|(&rank, _)| rank)
        .collect();
    // The reason can only be read on this node.
    let here = |rank: &Rank| target.procs.get(rank).filter(|it| it.started().is_some());
    let forbidden: RankSet = forbidden
        .iter()
        .filter(|rank| here(rank).is_some())
        .collect();
    if let Some(proc) = forbidden.first().and_then(|rank| here(&rank)) {
        let situation = machine::situation(proc.pid);
        say(&messages::not_permitted(&forbidden, &situation));
    }
    let reading = local.reading();
    let description = local.describe();
    let origin = output::origin(start.elapsed());
    let mut report = Report::made(&target, recording, description, origin, detail);
    report.timing.phases = Some(Phases {
        finding,
        reading,
        sampling: sampling_time.saturating_sub(reading),
        merging: merging.elapsed(),
    });
    Ok((report, ended))
}

/// Returns pid and start time of each rank that has a process on this node.
fn here(target: &Target) -> BTreeMap<Rank, (Pid, u64)> {
    let procs = target.procs.iter();
    procs
        .filter_map(|(&rank, proc)| Some((rank, (Pid::from_raw(proc.pid), proc.started()?))))
        .collect()
}

/// Prints text that contains names chosen by other users, without control characters.
fn print_clean(text: &str) -> u8 {
    print(&cleaned(text))
}

/// Returns the text with each line cleaned of control characters.
fn cleaned(text: &str) -> String {
    let lines = text.split('\n').map(debug::report::clean);
    lines.collect::<Vec<_>>().join("\n")
}

/// Prints to stdout, and returns the exit code. A closed pipe is a success, as for any filter.
fn print(text: &str) -> u8 {
    match io::stdout().write_all(text.as_bytes()) {
        Ok(()) => exit::SUCCESS,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => exit::SUCCESS,
        Err(error) => {
            say(&messages::output_lost(&error));
            exit::INTERNAL
        }
    }
}

fn say(message: &Message) {
    say_as(message, MessageFormat::Text);
}

fn say_as(message: &Message, format: MessageFormat) {
    // Without stderr the message is lost; the exit code still reports the error.
    let _ = message::print(message, format, &mut io::stderr().lock());
}

#[cfg(test)]
mod tests {
    use debug::target::{How, Proc, Whereabouts};

    use super::*;

    /// Returns a job with one rank, which is this process, at a given place.
    pub(super) fn target_of_one(pid: i32, place: Whereabouts) -> Target {
        let proc = Proc {
            pid,
            place,
            program: String::new(),
        };
        Target {
            title: String::new(),
            how: How::Alone,
            procs: [(Rank(0), proc)].into(),
            tried: Vec::new(),
            doubts: Vec::new(),
            notes: Vec::new(),
        }
    }
}
