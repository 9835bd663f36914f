//! `rally output`: shows what a job has printed, and follows it.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
    time::Duration,
};

use base::Rank;
use dvm::{
    machine::{Ask, Record, Reply, Way},
    queue::{Hold, TaskId},
};

use super::{Connection, Failure, connect, messages};
use crate::{
    args::{
        World,
        request::machine::{OutputRequest, Which},
    },
    exit,
};

/// Pause between two looks at a file that grows.
const PAUSE: Duration = Duration::from_millis(100);
/// Bytes that are read at once.
const READ_MAX: usize = 64 * 1024;

/// Shows the output of a job or a task.
pub(super) fn show(which: &Which, request: &OutputRequest, world: &World) -> Result<u8, Failure> {
    let mut machine = connect(which, world)?;
    let job = request.tasks.job;
    let mut record = ask(&mut machine, job)?;
    let Some(files) = record.output.clone() else {
        let why = match record.way {
            Way::Allocation => "it is an allocation: the jobs that run in it print",
            Way::Attached | Way::Detached => "it has printed to the terminal of its `rally run`",
        };
        return Err(messages::no_output(job, why));
    };
    let pattern = match (&files.stderr, request.errors) {
        (Some(stderr), true) => stderr,
        (None, true) => {
            return Err(messages::no_output(
                job,
                "its standard error is with its standard output",
            ));
        }
        (_, false) => &files.stdout,
    };
    let mut code = exit::SUCCESS;
    for index in indexes(&record, request) {
        let task = TaskId { job, index };
        let path = PathBuf::from(filled(pattern, task));
        let mut file = Follower::new(path);
        loop {
            // Ask before reading: what was written before the end is then shown.
            let is_over = !request.follow || has_ended(&record, index);
            if let Err(code) = file.copy() {
                return Ok(code);
            }
            if is_over {
                break;
            }
            os::sleep(PAUSE);
            record = ask(&mut machine, job)?;
        }
        if !file.was_there() && !request.follow {
            let (message, bad) = messages::no_output(job, why_none(&record, index));
            crate::say(&message, which.format);
            code = bad.code();
        }
    }
    Ok(code)
}

fn ask(machine: &mut Connection, job: base::JobId) -> Result<Record, Failure> {
    match machine.ask(Ask::Job(job))? {
        Reply::Job(record) => Ok(*record),
        _ => Err(messages::odd(&machine.name)),
    }
}

/// Returns the tasks to show: of an array those that were named, or all that have started.
fn indexes(record: &Record, request: &OutputRequest) -> Vec<Option<u32>> {
    if !record.is_array() {
        return vec![None];
    }
    let tasks = &record.tasks;
    let chosen = request.tasks.indexes.clone().unwrap_or_else(|| {
        let ended = tasks.succeeded.union(&tasks.failed);
        ended.union(&tasks.running)
    });
    chosen.iter().map(|index| Some(index.0)).collect()
}

/// Says why a task has no file.
fn why_none(record: &Record, index: Option<u32>) -> &'static str {
    let index = Rank(index.unwrap_or(0));
    let tasks = &record.tasks;
    let ran = [&tasks.running, &tasks.succeeded, &tasks.failed];
    if tasks.waiting.contains(index) {
        if record.wishes.hold == Hold::No {
            "it has not started"
        } else {
            "it waits, because it is held: `rally release` lets it start"
        }
    } else if ran.iter().any(|tasks| tasks.contains(index)) {
        "it has printed nothing"
    } else if tasks.canceled.contains(index) {
        "it was canceled, perhaps before it started"
    } else {
        "it has no such task"
    }
}

fn has_ended(record: &Record, index: Option<u32>) -> bool {
    let index = Rank(index.unwrap_or(0));
    let tasks = &record.tasks;
    record.ended.is_some() || !(tasks.waiting.contains(index) || tasks.running.contains(index))
}

fn filled(pattern: &OsStr, task: TaskId) -> OsString {
    dvm::machine::fill(pattern, task)
}

/// A file that may not exist yet, and grows.
#[derive(Debug)]
pub(crate) struct Follower {
    path: PathBuf,
    file: Option<File>,
}

impl Follower {
    pub(crate) const fn new(path: PathBuf) -> Self {
        Self { path, file: None }
    }

    pub(crate) const fn was_there(&self) -> bool {
        self.file.is_some()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Copies what is new to stdout. If it takes nothing more, that is said unless its reader is gone, and the exit code returned.
    pub(crate) fn copy(&mut self) -> Result<(), u8> {
        if self.file.is_none() {
            self.file = File::open(&self.path).ok();
        }
        let Some(file) = &mut self.file else {
            return Ok(());
        };
        let mut buffer = vec![0; READ_MAX];
        let mut out = io::stdout().lock();
        while let Ok(length @ 1..) = file.read(&mut buffer) {
            out.write_all(&buffer[..length])
                .map_err(|error| crate::unprinted(&error))?;
        }
        out.flush().map_err(|error| crate::unprinted(&error))
    }
}
