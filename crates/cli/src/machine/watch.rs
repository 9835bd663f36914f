//! `--watch`: a listing that goes on until its reader, Ctrl-C or the end of the machine ends it.
//!
//! | stdout | text | JSON |
//! |---|---|---|
//! | a terminal | the whole screen, drawn each second | a line for each change |
//! | anything else | the table again after each change | a line for each change |
//!
//! The passing of time is no change. The last line about a job has the state in which it has ended.

use std::{
    collections::BTreeMap,
    io::{self, Write as _},
    os::fd::AsFd,
    path::PathBuf,
    time::Duration,
};

use base::{JobId, Signal, Time};
use dvm::machine::{Ask, Reply, Wall};
use message::visible;
use os::{Clock, Event, Interest, Loop};
use ratatui::{text::Line, widgets::Paragraph};
use runtime::FoundMachine;

use super::{
    Connection, Failure,
    asker::Asker,
    ended, list, messages,
    messages::{no_screen, silent},
    now,
};
use crate::{
    args::MessageFormat,
    exit,
    screen::{Happening, Screen},
    shown,
};

/// Pause between two looks.
pub(crate) const PAUSE: Duration = Duration::from_secs(1);
/// How much longer than a look the pause after it is at least: a machine with many jobs has other things to do.
const PAUSE_FACTOR: u32 = 10;
/// The longest pause: after it at the latest, the end of the machine is noticed.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// After this time without an answer the screen says so.
pub(crate) const SILENCE: Duration = Duration::from_secs(3);

/// The keys of a watch that end it, stop it, and draw it again.
const CTRL_C: u8 = 0x03;
const CTRL_L: u8 = 0x0c;
const CTRL_Z: u8 = 0x1a;

/// What is watched.
#[derive(Clone, Debug)]
pub(super) enum Listing {
    /// The jobs in the queue, and the last ones that are over.
    Jobs {
        over: u32,
    },
    Nodes,
    /// With the directory of the machine.
    Status(PathBuf),
}

impl Listing {
    const fn question(&self) -> Ask {
        match self {
            Self::Jobs { over } => Ask::Jobs {
                over: *over,
                before: None,
            },
            Self::Nodes => Ask::Nodes,
            Self::Status(_) => Ask::Status,
        }
    }

    /// Returns the listing at this time of day; `None` if the answer does not match the question.
    fn text(&self, reply: &Reply, now: Wall, format: MessageFormat) -> Option<String> {
        Some(match (self, reply) {
            (Self::Jobs { .. }, Reply::Jobs { records, .. }) => list::jobs(records, now, format),
            (Self::Nodes, Reply::Nodes(nodes)) => list::nodes(nodes, format),
            (Self::Status(directory), Reply::Status(status)) => {
                list::status(status, directory, now, format)
            }
            _ => return None,
        })
    }
}

/// Returns the pause after a look that took so long.
pub(crate) fn pause_after(took: Duration) -> Duration {
    (took * PAUSE_FACTOR).clamp(PAUSE, PAUSE_MAX)
}

/// Shows a listing until something ends that, and returns the exit code.
pub(super) fn watch(
    found: &FoundMachine,
    listing: &Listing,
    format: MessageFormat,
) -> Result<u8, Failure> {
    let machine = Connection::to(found)?;
    let [input, output, _] = os::standard_streams().map_err(|error| no_screen(&error))?;
    let watched = match output {
        Some(output) if format == MessageFormat::Text && os::is_terminal(output.as_fd()) => {
            let (asker, answers) = Asker::start(machine)?;
            let screen = Screen::enter(input, output).map_err(|error| no_screen(&error))?;
            on_screen(screen, &asker, answers, listing, &found.name)
        }
        output => in_lines(machine, output, listing, format),
    };
    watched.or_else(|failure| ended(found, failure, format))
}

/// Shows the listing on the whole terminal.
fn on_screen(
    mut screen: Screen,
    asker: &Asker,
    answers: std::os::fd::OwnedFd,
    listing: &Listing,
    name: &str,
) -> Result<u8, Failure> {
    let answers = screen.add(answers).map_err(|error| no_screen(&error))?;
    let mut reply = None;
    // The last question that has no answer was asked then; otherwise the next one is due then.
    let mut asked = Some(Clock::now());
    let mut due = Clock::now();
    asker.ask(listing.question());
    loop {
        let text = reply.as_ref();
        let text = text.and_then(|reply| listing.text(reply, now(), MessageFormat::Text));
        let silence = asked.map(|at: Time| Clock::now().since(at));
        draw(&mut screen, text.as_deref(), silence, name);
        let until = Clock::now() + PAUSE;
        for happening in screen
            .wait(Some(until))
            .map_err(|error| no_screen(&error))?
        {
            match happening {
                Happening::End(code) => return Ok(code),
                Happening::Typed(keys) => {
                    for key in keys {
                        match key {
                            CTRL_C => return Ok(exit::signal(Signal::INT)),
                            b'q' => return Ok(exit::SUCCESS),
                            CTRL_L => screen.redraw(),
                            CTRL_Z => screen.suspend(),
                            _ => {}
                        }
                    }
                }
                Happening::Readable(token) if token == answers => {
                    for said in asker.answers() {
                        let took = asked.take().map(|at| Clock::now().since(at));
                        due = Clock::now() + pause_after(took.unwrap_or_default());
                        match said? {
                            Ok(new) if listing.text(&new, now(), MessageFormat::Text).is_some() => {
                                reply = Some(new);
                            }
                            Ok(_) => return Err(messages::odd(name)),
                            Err(why) => return Err(super::not_done(&why)),
                        }
                    }
                }
                Happening::Readable(_) | Happening::Redraw | Happening::Deadline => {}
            }
        }
        if asked.is_none() && Clock::now() >= due {
            asked = Some(Clock::now());
            asker.ask(listing.question());
        }
    }
}

fn draw(screen: &mut Screen, text: Option<&str>, silence: Option<Duration>, name: &str) {
    let silence = silence.filter(|silence| *silence >= SILENCE);
    let silence = silence.map(|silence| silent(name, silence));
    screen.draw(|frame| {
        let area = frame.area();
        let rows = usize::from(area.height).saturating_sub(usize::from(silence.is_some()));
        let all: Vec<&str> = text.unwrap_or_default().lines().collect();
        let mut lines: Vec<Line<'_>> = if all.len() > rows {
            let fit = rows.saturating_sub(1);
            let first = all[..fit]
                .iter()
                .map(|line| Line::from(visible::line(line)));
            let more = Line::from(format!("… and {} more", all.len() - fit));
            first.chain([more]).collect()
        } else {
            let all = all.iter().map(|line| Line::from(visible::line(line)));
            all.collect()
        };
        lines.extend(silence.map(Line::from));
        frame.render_widget(Paragraph::new(lines), area);
    });
}

/// Prints the listing after each change. Nothing of a terminal is changed, so that signals may end the process.
fn in_lines(
    mut machine: Connection,
    output: Option<std::os::fd::OwnedFd>,
    listing: &Listing,
    format: MessageFormat,
) -> Result<u8, Failure> {
    let mut events = Loop::new(&[]).map_err(|error| no_screen(&error))?;
    if let Some(output) = output {
        let added = events.add(output, Interest::HangUp);
        added.map_err(|error| no_screen(&error))?;
    }
    let mut seen = Seen::default();
    let mut happened = Vec::new();
    loop {
        let asked = Clock::now();
        let reply = machine.ask(listing.question())?;
        let due = Clock::now() + pause_after(Clock::now().since(asked));
        let text = |now| listing.text(&reply, now, format);
        // Without the time, equal listings are equal texts.
        let (Some(text), Some(timeless)) = (text(now()), text(Wall(0))) else {
            return Err(messages::odd(&machine.name));
        };
        let mut news = match format {
            MessageFormat::Text => seen.table(text, timeless),
            MessageFormat::Json => seen.changes(&text, &timeless),
        };
        if let (MessageFormat::Json, Reply::Jobs { records, .. }) = (format, &reply) {
            let lives = records.iter().filter(|record| record.ended.is_none());
            let listed: Vec<JobId> = records.iter().map(|record| record.id).collect();
            for gone in seen.gone(lives.map(|record| record.id), &listed) {
                if let Ok(Reply::Job(record)) = machine.ask(Ask::Job(gone)) {
                    news += &list::jobs(&[*record], now(), format);
                }
            }
        }
        let mut out = io::stdout().lock();
        let text = shown(&news, format);
        if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            return Ok(crate::unprinted(&error));
        }
        drop(out);
        // The only events are the deadline, and that nobody reads our output any more.
        let waited = events.wait(Some(due), &mut happened);
        waited.map_err(|error| no_screen(&error))?;
        if happened.iter().any(|event| *event != Event::Deadline) {
            return Ok(exit::SUCCESS);
        }
    }
}

/// What was printed of a listing.
#[derive(Debug, Default)]
struct Seen {
    /// The table without the time.
    table: String,
    /// The last lines, without the time, and how often.
    lines: BTreeMap<String, usize>,
    /// The jobs that were not over.
    jobs: Vec<JobId>,
}

impl Seen {
    /// Returns a table if it has changed, after an empty line if it is not the first one.
    fn table(&mut self, text: String, timeless: String) -> String {
        if self.table == timeless {
            return String::new();
        }
        let is_first = self.table.is_empty();
        self.table = timeless;
        if is_first { text } else { format!("\n{text}") }
    }

    /// Returns the lines that were not there before.
    fn changes(&mut self, text: &str, timeless: &str) -> String {
        let mut old = std::mem::take(&mut self.lines);
        let mut news = String::new();
        for (line, timeless) in text.lines().zip(timeless.lines()) {
            *self.lines.entry(timeless.to_owned()).or_default() += 1;
            match old.get_mut(timeless) {
                Some(left @ 1..) => *left -= 1,
                _ => {
                    news += line;
                    news.push('\n');
                }
            }
        }
        news
    }

    /// Returns the jobs that were not over before and are not listed now, so that no line has told their end. `listed` is sorted.
    fn gone(&mut self, lives: impl Iterator<Item = JobId>, listed: &[JobId]) -> Vec<JobId> {
        let old = std::mem::replace(&mut self.jobs, lives.collect());
        let is_gone = |job: &JobId| listed.binary_search(job).is_err();
        old.into_iter().filter(is_gone).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_is_a_line() {
        let mut seen = Seen::default();
        for (text, timeless, news) in [
            ("a 1\nb 1\n", "a\nb\n", "a 1\nb 1\n"),
            ("a 2\nb 2\n", "a\nb\n", ""),
            ("a 3\nc 3\n", "a\nc\n", "c 3\n"),
            ("a 4\na 4\n", "a\na\n", "a 4\n"),
            ("", "", ""),
            ("a 5\n", "a\n", "a 5\n"),
        ] {
            assert_eq!(seen.changes(text, timeless), news, "{text}");
        }
        let ids = |all: &'static [u32]| all.iter().copied().map(JobId);
        let all = [1, 2, 3].map(JobId);
        assert_eq!(seen.gone(ids(&[1, 2, 3]), &all), []);
        // Job 2 has been told to be over, and is still listed.
        assert_eq!(seen.gone(ids(&[1]), &all[..2]), [JobId(3)]);
        // Now it is not listed any more, which is no news.
        assert_eq!(seen.gone(ids(&[]), &[]), [JobId(1)]);
    }

    #[test]
    fn a_table_is_printed_again_if_more_than_the_time_has_changed() {
        let mut seen = Seen::default();
        let mut table = |text: &str, timeless: &str| seen.table(text.into(), timeless.into());
        assert_eq!(table("a 1\n", "a\n"), "a 1\n");
        assert_eq!(table("a 2\n", "a\n"), "");
        assert_eq!(table("b 3\n", "b\n"), "\nb 3\n");
    }

    #[test]
    fn a_slow_machine_is_asked_less_often() {
        let millis = Duration::from_millis;
        assert_eq!(pause_after(millis(3)), millis(1000));
        assert_eq!(pause_after(millis(250)), millis(2500));
        assert_eq!(pause_after(millis(25_000)), PAUSE_MAX);
    }
}
