//! What was found, as the user wants it.

use std::{
    env,
    io::{self, IsTerminal as _},
    os::fd::AsFd as _,
    time::{Duration, Instant},
};

use base::Rank;
use debug::{
    languages,
    report::{self, Colour, Command, Detail, Guides, Look, Part, Place, Report},
    samples::Recording,
    stack::Seen,
    target::{Target, Whereabouts},
};

use super::args::{Output, When};
use crate::render::{WallClock, rfc3339};

/// Columns where there is no terminal.
const WIDTH: usize = 100;

/// All that is known of a target from some looks that took so long in all.
pub(super) fn report(
    target: &Target,
    recording: Recording,
    detail: Detail,
    took: Duration,
) -> Report {
    let host = os::host_name();
    let processor = |rank: Rank| {
        let sample = recording.samples.last()?;
        match sample.snapshot.procs.get(&rank)? {
            Seen::Threads(threads) => {
                let tid = os::Pid::from_raw(threads.first()?.tid);
                os::inspect_thread(tid, tid).map(|info| info.processor)
            }
            Seen::Missing(_) => None,
        }
    };
    let places = target.procs.iter().filter_map(|(&rank, proc)| {
        let (host, cpu) = match &proc.place {
            Whereabouts::Here { .. } => (&host, processor(rank)),
            Whereabouts::On(host) => (host, None),
            // The number is that of somebody else, or of nobody.
            Whereabouts::Unproved | Whereabouts::Gone => return None,
        };
        let host = host.clone();
        let pid = proc.pid;
        Some((rank, Place { host, pid, cpu }))
    });
    let placement = places.collect();
    let mut report = Report::of(recording, detail);
    report.placement = placement;
    report.commands = commands(target);
    report.title.clone_from(&target.title);
    report.found = target.tried.iter().map(ToString::to_string).collect();
    report.found.push(target.how.to_string());
    report.doubts = target.doubts.iter().map(ToString::to_string).collect();
    let unseen = languages::unseen(&report.frames).into_iter();
    report.doubts.extend(unseen.map(str::to_owned));
    report.host = host;
    report.date = date(os::wall_clock());
    report.timing.total = took;
    let version = |of: &str, version: String| Part {
        of: of.to_owned(),
        version,
    };
    report.versions = vec![version("dbgr", env!("CARGO_PKG_VERSION").to_owned())];
    report
        .versions
        .extend(os::kernel_release().map(|release| version("Linux", release)));
    report
}

/// Ranks of which the command line is read.
const COMMANDS: usize = 64;
/// Letters of a command line that are kept.
const MAX_COMMAND: usize = 1_000;

/// What the first ranks of this host were started with.
fn commands(target: &Target) -> Vec<Command> {
    let mut commands: Vec<Command> = Vec::new();
    for (rank, (pid, started)) in super::here(target).into_iter().take(COMMANDS) {
        let Some(arguments) = os::arguments_of(pid) else {
            continue;
        };
        // Who has the number of a rank that has ended may have been given a password.
        if os::start_time(pid) != Some(started) {
            continue;
        }
        let words = String::from_utf8_lossy(&arguments);
        let words: Vec<&str> = words.trim_end_matches('\0').split('\0').collect();
        let line: String = words.join(" ").chars().take(MAX_COMMAND).collect();
        if line.is_empty() {
            continue;
        }
        match commands.iter_mut().find(|known| known.line == line) {
            Some(known) => known.ranks.insert(rank),
            None => commands.push(Command {
                ranks: base::RankSet::single(rank),
                line,
            }),
        }
    }
    commands
}

/// How much is asked for.
pub(super) const fn detail(output: &Output) -> Detail {
    if output.full {
        Detail::Full
    } else {
        Detail::Folded
    }
}

/// What is printed of a report.
pub(super) fn shown(report: &Report, output: &Output) -> String {
    if output.json {
        return report::json(report);
    }
    if output.folded {
        return report::folded(report);
    }
    let stdout = io::stdout();
    let terminal = stdout.is_terminal();
    let colour = match output.color {
        When::Always => Colour::Ansi,
        When::Auto if terminal && env::var_os("NO_COLOR").is_none_or(|it| it.is_empty()) => {
            Colour::Ansi
        }
        When::Auto | When::Never => Colour::Never,
    };
    let columns = terminal
        .then(|| os::window_size(stdout.as_fd()))
        .flatten()
        .map(|size| usize::from(size.columns))
        .filter(|&columns| columns > 0);
    let look = Look {
        width: output.width.or(columns).unwrap_or(WIDTH),
        detail: detail(output),
        colour,
        guides: guides(),
    };
    let begin = Instant::now();
    let mut text = report::text(report, &look);
    if output.timing {
        text.push_str(&report.timing.sentence());
        text.push('\n');
        if let Some(mut phases) = report.timing.phases {
            phases.merging += begin.elapsed();
            text.push_str(&format!("{phases}\n"));
        }
    }
    text
}

/// Lines of Unicode where the locale knows them, or says nothing.
fn guides() -> Guides {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
        .into_iter()
        .filter_map(env::var_os)
        .find(|value| !value.is_empty());
    let plain = locale.is_some_and(|locale| {
        let locale = locale.to_string_lossy().to_lowercase();
        !(locale.contains("utf-8") || locale.contains("utf8"))
    });
    if plain {
        Guides::Ascii
    } else {
        Guides::Unicode
    }
}

/// `2026-11-22 01:20:07 UTC`.
fn date(time: WallClock) -> String {
    let date = rfc3339(time);
    let date = String::from_utf8_lossy(&date);
    let second = date.split_once('.').map_or(&*date, |(second, _)| second);
    format!("{} UTC", second.replace('T', " "))
}

#[cfg(test)]
mod tests {
    use super::{super::tests::target_of_one, *};

    #[test]
    fn of_processes_that_are_no_ranks_nothing_is_reported() {
        let pid = os::current_pid();
        let started = os::start_time(pid).unwrap();
        let here = |started| Whereabouts::Here { started };
        for (place, has_command, has_place) in [
            (here(started), true, true),
            // It has ended since the job was found: this was its number.
            (here(started - 1), false, true),
            (Whereabouts::Unproved, false, false),
            (Whereabouts::Gone, false, false),
            (Whereabouts::On("n2".to_owned()), false, true),
        ] {
            let target = target_of_one(pid.as_raw(), place.clone());
            let recording = Recording::default();
            let report = report(&target, recording, Detail::Folded, Duration::ZERO);
            assert_eq!(!report.commands.is_empty(), has_command, "{place:?}");
            let placed = report.placement.get(&Rank(0));
            assert_eq!(placed.is_some(), has_place, "{place:?}");
        }
    }

    #[test]
    fn dates() {
        assert_eq!(
            date((1_795_310_407, 999_999_999)),
            "2026-11-22 01:20:07 UTC"
        );
    }
}
