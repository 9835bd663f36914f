//! Reads what Slurm's commands print.

use std::{collections::BTreeMap, ffi::OsString, os::unix::ffi::OsStringExt as _, path::PathBuf};

use base::{JobId, RankSet};
use dvm::slurm::Origin;

use super::state::{Phase, exit_code, phase};
use crate::args::COMMENT;

/// The columns of `squeue`. The name comes last, because it may contain anything.
pub(super) const COLUMNS: &str = "%F|%K|%T|%r|%M|%l|%N|%k|%j";
const COLUMN_COUNT: usize = 9;

/// Tasks of an array in one state, or a job without an array.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Part {
    /// The number of the job, or of the array.
    pub(super) job: u32,
    /// `None` for a job without an array.
    pub(super) indexes: Option<RankSet>,
    pub(super) name: String,
    /// Of an allocation that a rank has requested.
    pub(super) origin: Option<Origin>,
    /// Slurm's words.
    pub(super) state: String,
    pub(super) reason: String,
    pub(super) exit: u8,
    pub(super) signal: u8,
    pub(super) elapsed: String,
    pub(super) limit: String,
    pub(super) nodes: String,
    /// When it was submitted, started and ended, as Slurm writes times. Empty if not yet.
    pub(super) times: [String; 3],
    pub(super) stdout: Option<PathBuf>,
    pub(super) stderr: Option<PathBuf>,
}

impl Part {
    pub(super) fn phase(&self) -> Phase {
        phase(&self.state, &self.reason)
    }

    pub(super) fn first_index(&self) -> Option<u32> {
        Some(self.indexes.as_ref()?.first()?.0)
    }
}

/// A job with all its tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Job {
    pub(super) id: JobId,
    /// The only task that is here, because Slurm was asked by the number of the task itself. Each task has one once it has
    /// started, besides that of its array.
    pub(super) task: Option<u32>,
    /// In the order of their indexes; at least one.
    pub(super) parts: Vec<Part>,
}

/// The numbers of an array's tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) waiting: usize,
    pub(super) running: usize,
    pub(super) succeeded: usize,
    pub(super) failed: usize,
    pub(super) canceled: usize,
}

impl Counts {
    pub(super) const fn over(self) -> usize {
        self.succeeded + self.failed + self.canceled
    }

    pub(super) const fn all(self) -> usize {
        self.waiting + self.running + self.over()
    }
}

impl Job {
    /// Notes the number by which Slurm was asked.
    pub(super) fn asked_by(self, number: JobId) -> Self {
        let task = (number != self.id).then(|| self.parts.first()?.first_index());
        Self {
            task: task.flatten(),
            ..self
        }
    }

    /// Returns the name of the job, or of its task, as commands understand it after `slurm:`.
    pub(super) fn name(&self) -> String {
        match self.task {
            Some(index) => format!("{}[{index}]", self.id),
            None => self.id.to_string(),
        }
    }

    /// Returns who has requested the allocation; `None` if the job was submitted.
    pub(super) fn origin(&self) -> Option<&Origin> {
        self.parts.first()?.origin.as_ref()
    }

    pub(super) fn is_array(&self) -> bool {
        self.parts.iter().any(|part| part.indexes.is_some())
    }

    pub(super) fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for part in &self.parts {
            let tasks = part.indexes.as_ref().map_or(1, RankSet::len);
            *match part.phase() {
                Phase::Waiting | Phase::Held => &mut counts.waiting,
                Phase::Running => &mut counts.running,
                Phase::Succeeded => &mut counts.succeeded,
                Phase::Failed => &mut counts.failed,
                Phase::Canceled => &mut counts.canceled,
            } += tasks;
        }
        counts
    }

    /// Returns the state of the job. Tasks that run come before those that wait, and failures before cancellations.
    pub(super) fn phase(&self) -> Phase {
        const ORDER: [Phase; 6] = [
            Phase::Running,
            Phase::Waiting,
            Phase::Held,
            Phase::Failed,
            Phase::Canceled,
            Phase::Succeeded,
        ];
        let has = |phase: &Phase| self.parts.iter().any(|part| part.phase() == *phase);
        ORDER.into_iter().find(has).unwrap_or(Phase::Succeeded)
    }

    /// Returns the part that decides the state of the job: the first in this state.
    pub(super) fn deciding(&self) -> Option<&Part> {
        let phase = self.phase();
        self.parts.iter().find(|part| part.phase() == phase)
    }

    /// Returns the exit code of a job that is over: that of the first task that has not succeeded.
    pub(super) fn exit_code(&self) -> u8 {
        let failed = |part: &&Part| part.phase() != Phase::Succeeded;
        let first = self.parts.iter().find(failed);
        first.map_or(0, |part| {
            exit_code(&part.state, &part.reason, part.exit, part.signal)
        })
    }

    pub(super) fn failed_indexes(&self) -> RankSet {
        let failed = self
            .parts
            .iter()
            .filter(|part| part.phase() == Phase::Failed);
        let mut all = RankSet::new();
        for indexes in failed.filter_map(|part| part.indexes.as_ref()) {
            all.append(indexes);
        }
        all
    }
}

/// Puts parts together that belong to the same job.
pub(super) fn jobs(parts: Vec<Part>) -> Vec<Job> {
    let mut all: BTreeMap<u32, Vec<Part>> = BTreeMap::new();
    for part in parts {
        all.entry(part.job).or_default().push(part);
    }
    let job = |(id, mut parts): (u32, Vec<Part>)| {
        parts.sort_by_key(Part::first_index);
        Job {
            id: JobId(id),
            task: None,
            parts,
        }
    };
    all.into_iter().map(job).collect()
}

/// Reads the lines of `scontrol --oneliner show job`.
pub(super) fn records(output: &[u8]) -> Vec<Part> {
    let lines = output.split(|byte| *byte == b'\n');
    lines.filter_map(record).collect()
}

fn record(line: &[u8]) -> Option<Part> {
    // Names and paths may contain what looks like another field: each is looked for where it has to be.
    let name_at = find(line, b" JobName=")?;
    let (head, rest) = line.split_at(name_at);
    let rest = &rest[b" JobName=".len()..];
    let user_at = find(rest, b" UserId=")?;
    let (name, rest) = rest.split_at(user_at);
    let (fields, paths) = rest.split_at(find(rest, b" Command=").unwrap_or(rest.len()));
    let head = [b" ", head].concat();
    let number = |key| word(&head, key).parse::<u32>().ok();
    let indexes = word(&head, "ArrayTaskId");
    let status = word(fields, "ExitCode");
    let (exit, signal) = status.split_once(':').unwrap_or((&status, "0"));
    Some(Part {
        job: number("ArrayJobId").or_else(|| number("JobId"))?,
        indexes: index_set(&indexes),
        name: String::from_utf8_lossy(name).into_owned(),
        origin: Origin::of(&word(paths, "Comment")),
        state: word(fields, "JobState"),
        reason: word(fields, "Reason"),
        exit: exit.parse().unwrap_or(u8::MAX),
        signal: signal.parse().unwrap_or(0),
        elapsed: word(fields, "RunTime"),
        limit: word(fields, "TimeLimit"),
        nodes: word(fields, "NodeList"),
        times: ["SubmitTime", "StartTime", "EndTime"].map(|key| {
            let time = word(fields, key);
            if time == "Unknown" {
                String::new()
            } else {
                time
            }
        }),
        stdout: path(paths, b" StdOut="),
        stderr: path(paths, b" StdErr="),
    })
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|window| window == what)
}

/// Returns the value of a field that has no blanks. `(null)` is an empty value.
fn word(text: &[u8], key: &str) -> String {
    let key = format!(" {key}=");
    let Some(at) = find(text, key.as_bytes()) else {
        return String::new();
    };
    let value = &text[at + key.len()..];
    let value = value.split(|byte| *byte == b' ').next().unwrap_or_default();
    let value = String::from_utf8_lossy(value).into_owned();
    if value == "(null)" {
        String::new()
    } else {
        value
    }
}

/// Returns a path, which ends where the next field begins. The last of these fields counts, because others may come before it in a
/// path.
fn path(text: &[u8], key: &[u8]) -> Option<PathBuf> {
    let at = text.windows(key.len()).rposition(|window| window == key)?;
    let value = &text[at + key.len()..];
    let begins_field = |position: &usize| {
        let rest = &value[*position..];
        let name = rest.get(1..).unwrap_or_default();
        let length = name
            .iter()
            .take_while(|byte| byte.is_ascii_alphabetic())
            .count();
        rest.starts_with(b" ")
            && name.first().is_some_and(u8::is_ascii_uppercase)
            && name.get(length) == Some(&b'=')
    };
    let end = (0..value.len()).find(begins_field).unwrap_or(value.len());
    let value = value[..end].trim_ascii_end();
    (value.first() == Some(&b'/')).then(|| PathBuf::from(OsString::from_vec(value.to_vec())))
}

/// Parses `7`, `1-5%2` and `0-10:5,20`: our own form of a set, except that Slurm has a colon before a stride, and `%` before the
/// number of tasks that may run at the same time.
fn index_set(text: &str) -> Option<RankSet> {
    let text = text.split('%').next().unwrap_or_default();
    let indexes: RankSet = text.replace(':', "/").parse().ok()?;
    (!indexes.is_empty()).then_some(indexes)
}

/// Reads the lines of `squeue` with [`COLUMNS`], and returns those of jobs that `rally` has submitted, and of allocations that ranks have
/// requested.
pub(super) fn rows(output: &[u8]) -> Vec<Part> {
    let text = String::from_utf8_lossy(output);
    let part = |line: &str| {
        let cells: Vec<&str> = line.splitn(COLUMN_COUNT, '|').collect();
        let &[
            job,
            indexes,
            state,
            reason,
            elapsed,
            limit,
            nodes,
            comment,
            name,
        ] = &cells[..]
        else {
            return None;
        };
        let origin = Origin::of(comment);
        (comment == COMMENT || origin.is_some()).then(|| {
            Some(Part {
                origin,
                job: job.parse().ok()?,
                indexes: index_set(indexes),
                name: name.to_owned(),
                state: state.to_owned(),
                reason: reason.to_owned(),
                elapsed: elapsed.to_owned(),
                limit: limit.to_owned(),
                nodes: nodes.to_owned(),
                ..Part::default()
            })
        })?
    };
    text.lines().filter_map(part).collect()
}

/// The columns of `squeue` that name the files of a job, each ended by a character that is in no path of ours.
pub(super) const FILES: &str = "STDOUT:\u{1},STDERR:\u{1}";

/// Reads the patterns of the files for output and errors from a line of `squeue` with [`FILES`].
pub(super) fn file_patterns(output: &[u8]) -> Option<[Vec<u8>; 2]> {
    let line = output.split(|byte| *byte == b'\n').next()?;
    let mut cells = line.split(|byte| *byte == 1);
    let mut next = || cells.next().map(|cell| cell.trim_ascii_end().to_vec());
    Some([next()?, next()?])
}

/// Fills Slurm's pattern of a file name as far as our jobs use them. `None` if it has others.
///
/// `scontrol` shows names that it has filled itself, but it does not know `%%` as the nodes do.
pub(super) fn filled(pattern: &[u8], job: JobId, index: Option<u32>) -> Option<PathBuf> {
    let mut path = Vec::with_capacity(pattern.len());
    let mut bytes = pattern.iter().copied();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            path.push(byte);
            continue;
        }
        match (bytes.next()?, index) {
            (b'%', _) => path.push(b'%'),
            (b'A', _) | (b'j', None) => path.extend(job.to_string().bytes()),
            (b'a', Some(index)) => path.extend(index.to_string().bytes()),
            _ => return None,
        }
    }
    (path.first() == Some(&b'/')).then(|| PathBuf::from(OsString::from_vec(path)))
}

/// Reads the answer of `sbatch --parsable`: `17`, or `17;cluster`. Lines of the site may come before it.
pub(super) fn submitted(output: &[u8]) -> Option<JobId> {
    let text = String::from_utf8_lossy(output);
    let last = text.lines().rev().find(|line| !line.trim().is_empty())?;
    let number = last.trim().split(';').next()?;
    number.parse().ok().filter(|number| *number > 0).map(JobId)
}

/// What is wrong when a command of Slurm fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The controller of Slurm does not answer, or there is none.
    Silent,
    NoSuchJob,
    /// An option or a name that Slurm does not know.
    Usage,
    /// Anything else that Slurm does not do.
    Refused,
}

/// What Slurm writes, in lower case.
const FAULTS: [(&str, Fault); 21] = [
    ("unable to contact slurm controller", Fault::Silent),
    ("unable to establish configuration source", Fault::Silent),
    ("unable to process configuration", Fault::Silent),
    ("could not establish a configuration source", Fault::Silent),
    ("socket timed out", Fault::Silent),
    ("connection refused", Fault::Silent),
    ("connection timed out", Fault::Silent),
    ("zero bytes were transmitted", Fault::Silent),
    ("slurm backup controller in standby mode", Fault::Silent),
    ("unable to open", Fault::Silent),
    ("protocol authentication error", Fault::Silent),
    ("munge", Fault::Silent),
    ("invalid job id", Fault::NoSuchJob),
    ("unrecognized option", Fault::Usage),
    ("invalid option", Fault::Usage),
    ("unknown option", Fault::Usage),
    ("invalid partition", Fault::Usage),
    ("invalid account", Fault::Usage),
    ("invalid qos", Fault::Usage),
    ("invalid node name", Fault::Usage),
    ("invalid feature specification", Fault::Usage),
];

/// Says what is wrong, from what a command has written to stderr.
pub(super) fn fault(words: &str) -> Fault {
    let lower = words.to_lowercase();
    let known = FAULTS.iter().find(|(theirs, _)| lower.contains(theirs));
    known.map_or(Fault::Refused, |(_, fault)| *fault)
}

#[cfg(test)]
mod tests;
