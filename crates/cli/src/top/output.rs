//! The pane with what one job has printed: which file that is, when to look at it, and which lines are on the screen.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use base::{JobId, Rank, RankSet, Time};
use dvm::{
    machine::{Record, State, Way, fill},
    queue::TaskId,
};

use super::{
    keys::Move,
    lines::{LINE_MAX, Lines},
    tail::{News, Piece, Since},
};

/// Pause between two looks at the file of a job that runs, and of one that does not.
const PAUSE: Duration = Duration::from_millis(100);
const IDLE_PAUSE: Duration = Duration::from_secs(1);
/// Columns by which an arrow key shifts the text.
const SHIFT: usize = 8;

/// What of a job is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stream {
    /// Standard output, and standard error if that has no file of its own.
    #[default]
    Output,
    Errors,
}

/// What the pane shows instead of text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Blank {
    #[default]
    NoJob,
    /// The job of a `rally run`.
    Attached(JobId),
    Allocation(JobId),
    NotStarted(TaskId),
    /// Standard error is with standard output.
    OneFile(JobId),
}

/// What the file is known to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Reading {
    /// Nothing was read yet.
    #[default]
    Begins,
    Missing,
    Unreadable(String),
    Text,
}

/// What the pane is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Aim {
    Blank(Blank),
    File(TaskId, PathBuf),
}

impl Default for Aim {
    fn default() -> Self {
        Self::Blank(Blank::NoJob)
    }
}

/// Which lines are on the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Scroll {
    /// The last ones.
    #[default]
    Follow,
    /// Those from this number on.
    At(usize),
}

/// The pane. See the module documentation.
#[derive(Debug, Default)]
pub(super) struct Output {
    pub(super) aim: Aim,
    pub(super) stream: Stream,
    pub(super) reading: Reading,
    pub(super) scroll: Scroll,
    /// Columns to the left of the screen.
    pub(super) shifted: usize,
    pub(super) lines: Lines,
    /// The task of the array that is shown.
    chosen: Option<(JobId, u32)>,
    pause: Duration,
    /// When to look at the file; `None` while a look has no answer.
    due: Option<Time>,
    /// What was read is not of this file.
    is_fresh: bool,
}

impl Output {
    /// Turns to a job. Returns true if something else is shown now.
    pub(super) fn aim(&mut self, now: Time, target: Option<&Record>) -> bool {
        let runs = target.is_some_and(|record| record.state() == State::Running);
        self.pause = if runs { PAUSE } else { IDLE_PAUSE };
        let aim = match target {
            None => Aim::default(),
            Some(record) => self.of(record),
        };
        if aim == self.aim {
            return false;
        }
        let had_file = matches!(self.aim, Aim::File(..));
        self.aim = aim;
        self.reading = Reading::Begins;
        self.scroll = Scroll::Follow;
        self.shifted = 0;
        self.lines = Lines::default();
        self.is_fresh = true;
        // Without a file, no look is on its way.
        if !had_file || self.due.is_some() {
            self.due = Some(now);
        }
        true
    }

    fn of(&mut self, record: &Record) -> Aim {
        let Some(files) = &record.output else {
            return Aim::Blank(match record.way {
                Way::Allocation => Blank::Allocation(record.id),
                Way::Attached | Way::Detached => Blank::Attached(record.id),
            });
        };
        let index = record.is_array().then(|| self.index(record)).flatten();
        let task = TaskId {
            job: record.id,
            index,
        };
        let is_begun = record.started.is_some() && index.is_some() == record.is_array();
        if !is_begun {
            return Aim::Blank(Blank::NotStarted(task));
        }
        let pattern: &OsString = match (self.stream, &files.stderr) {
            (Stream::Output, _) => &files.stdout,
            (Stream::Errors, Some(stderr)) => stderr,
            (Stream::Errors, None) => return Aim::Blank(Blank::OneFile(record.id)),
        };
        Aim::File(task, PathBuf::from(fill(pattern, task)))
    }

    /// Returns the index of the task to show: the one that was shown, or one that runs, or the last one that has run.
    fn index(&mut self, record: &Record) -> Option<u32> {
        if let Some((job, index)) = self.chosen
            && job == record.id
        {
            return Some(index);
        }
        let running = record.tasks.running.first();
        let index = running.or_else(|| begun(record).last())?.0;
        self.chosen = Some((record.id, index));
        Some(index)
    }

    /// Turns to the task before or after the one that is shown.
    pub(super) fn step(&mut self, record: &Record, way: Move) {
        let Some(at) = record.is_array().then(|| self.index(record)).flatten() else {
            return;
        };
        let all = begun(record);
        let next = match way {
            Move::Up => all.iter().take_while(|rank| rank.0 < at).last(),
            _ => all.iter().find(|rank| rank.0 > at),
        };
        if let Some(Rank(index)) = next {
            self.chosen = Some((record.id, index));
        }
    }

    /// Turns to the other stream.
    pub(super) fn turn(&mut self) {
        self.stream = match self.stream {
            Stream::Output => Stream::Errors,
            Stream::Errors => Stream::Output,
        };
    }

    /// Returns the file to look at now, if it is time.
    pub(super) fn wish(&mut self, now: Time) -> Option<(PathBuf, Since)> {
        let (Aim::File(_, path), Some(due)) = (&self.aim, self.due) else {
            return None;
        };
        if now < due {
            return None;
        }
        self.due = None;
        let since = if std::mem::take(&mut self.is_fresh) {
            Since::Ever
        } else {
            Since::LastLook
        };
        Some((path.clone(), since))
    }

    /// Returns when to look at the file.
    pub(super) fn due(&self) -> Option<Time> {
        self.due.filter(|_| matches!(self.aim, Aim::File(..)))
    }

    /// Takes what was read. Returns true if it is news.
    pub(super) fn read(&mut self, now: Time, piece: Piece) -> bool {
        self.due = Some(now + self.pause);
        let is_ours = matches!(&self.aim, Aim::File(_, path) if *path == piece.path);
        if !is_ours || self.is_fresh {
            // It was asked for what was shown before.
            self.due = Some(now);
            return false;
        }
        let reading = match piece.news {
            News::Missing => Reading::Missing,
            News::Unreadable(why) => Reading::Unreadable(why),
            News::Goes(bytes) => {
                self.lines.add(&bytes);
                return !bytes.is_empty();
            }
            News::Begins(bytes) => {
                self.lines = Lines::default();
                self.lines.add(&bytes);
                self.scroll = Scroll::Follow;
                self.reading = Reading::Text;
                return true;
            }
        };
        let is_news = reading != self.reading;
        self.reading = reading;
        is_news
    }

    /// Returns the number of the first line on a screen with so many rows.
    pub(super) fn top(&self, rows: usize) -> usize {
        let last = self
            .lines
            .end()
            .saturating_sub(rows)
            .max(self.lines.start());
        match self.scroll {
            Scroll::Follow => last,
            Scroll::At(line) => line.clamp(self.lines.start(), last),
        }
    }

    pub(super) fn go(&mut self, way: Move, rows: usize) {
        let top = self.top(rows);
        let page = rows.saturating_sub(1).max(1);
        let last = self.lines.end().saturating_sub(rows);
        let to = match way {
            Move::Up => top.saturating_sub(1),
            Move::Down => top + 1,
            Move::PageUp => top.saturating_sub(page),
            Move::PageDown => top + page,
            Move::Home => 0,
            Move::End => last,
        };
        self.scroll = if to >= last {
            Scroll::Follow
        } else {
            Scroll::At(to)
        };
    }

    /// Shifts the text to the left or back.
    pub(super) fn shift(&mut self, way: Move) {
        self.shifted = match way {
            Move::Up => self.shifted.saturating_sub(SHIFT),
            _ => (self.shifted + SHIFT).min(LINE_MAX),
        };
    }
}

/// Returns the tasks that have begun.
fn begun(record: &Record) -> RankSet {
    let tasks = &record.tasks;
    tasks.succeeded.union(&tasks.failed).union(&tasks.running)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(path: &str, news: News) -> Piece {
        Piece {
            path: path.into(),
            news,
        }
    }

    fn reads(output: &mut Output, text: &str) {
        let news = News::Begins(text.as_bytes().to_vec());
        assert!(output.read(Time::ZERO, piece("/w/a", news)));
    }

    fn aimed() -> Output {
        let task = TaskId {
            job: JobId(1),
            index: None,
        };
        Output {
            aim: Aim::File(task, "/w/a".into()),
            ..Output::default()
        }
    }

    #[test]
    fn the_end_is_followed_until_the_user_scrolls() {
        let mut output = aimed();
        let text: String = (0..30).map(|line| format!("{line}\n")).collect();
        reads(&mut output, &text);
        assert_eq!(output.top(10), 20);
        output.go(Move::PageUp, 10);
        assert_eq!((output.scroll, output.top(10)), (Scroll::At(11), 11));
        let more = piece("/w/a", News::Goes(b"30\n".to_vec()));
        assert!(output.read(Time::ZERO, more));
        assert_eq!(output.top(10), 11);
        output.go(Move::Home, 10);
        assert_eq!(output.top(10), 0);
        output.go(Move::Up, 10);
        assert_eq!(output.top(10), 0);
        output.go(Move::End, 10);
        assert_eq!((output.scroll, output.top(10)), (Scroll::Follow, 21));
        output.go(Move::Down, 10);
        assert_eq!(output.top(10), 21);
    }

    #[test]
    fn what_was_read_of_another_file_is_not_shown() {
        let mut output = aimed();
        output.is_fresh = true;
        output.due = Some(Time::ZERO);
        let wish = output.wish(Time::ZERO);
        assert_eq!(wish, Some(("/w/a".into(), Since::Ever)));
        assert_eq!(output.wish(Time::ZERO), None);
        let other = piece("/w/b", News::Begins(b"secret\n".to_vec()));
        assert!(!output.read(Time::ZERO, other));
        assert_eq!(output.lines.end(), 0);
        assert_eq!(output.due(), Some(Time::ZERO));
    }
}
