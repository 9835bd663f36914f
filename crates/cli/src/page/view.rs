//! What the page shows: asks the machine and reads output files, on a thread of its own, because both may block.

mod output;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use base::{JobId, RankSet};
use dvm::{
    machine::{Ask, Explained, NodeLine, Record, Reply, RunLine, State, Status, Way, fill},
    queue::TaskId,
};
use runtime::FoundMachine;
use serde::Serialize;

use super::{
    reports::ReportRow,
    request::{JobView, Stream},
    response::Response,
};
use crate::machine::{Connection, ExplainedRow, Failure, NodeRow, Row, StatusRow, now, why};

/// Jobs that are over on the page.
const OVER_MAX: u32 = 100;
/// Jobs on the page.
const JOBS_MAX: usize = 300;
/// Waiting jobs whose reason is on the page: an explanation of each is a question to the machine.
const EXPLAINED_MAX: usize = 8;
/// Tasks of an array between which the page lets the user choose.
const TASKS_MAX: usize = 200;

/// A question about the machine, with whatever the answer is for.
#[derive(Debug)]
pub(super) enum Question {
    State,
    /// With the reports about this job.
    Job(JobView, Vec<ReportRow>),
    Run(TaskId),
}

/// An answer for a visitor.
#[derive(Debug)]
pub(super) enum Answer {
    Response(Response),
    /// Where a task runs, of which a report is to be made.
    Run(TaskId, RunLine),
    /// The machine has ended.
    MachineEnded,
}

/// A view of one machine.
#[derive(Debug)]
pub(super) struct View {
    machine: FoundMachine,
    connection: Option<Connection>,
}

impl View {
    pub(super) const fn new(machine: FoundMachine) -> Self {
        Self {
            machine,
            connection: None,
        }
    }

    pub(super) fn answer(&mut self, question: &Question) -> Answer {
        let answered = match question {
            Question::State => self.state().map(Answer::Response),
            Question::Job(view, reports) => self.job(view, reports).map(Answer::Response),
            Question::Run(task) => self.run(*task),
        };
        answered.unwrap_or_else(|(message, _)| {
            // What was on its way may still come.
            self.connection = None;
            if self.machine.runs() {
                Answer::Response(Response::unavailable(&message.headline))
            } else {
                Answer::MachineEnded
            }
        })
    }

    /// Asks the machine. `Err` in the result is an answer that says no.
    fn ask(&mut self, ask: Ask) -> Result<Result<Reply, String>, Failure> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => Connection::to(&self.machine)?,
        };
        let said = connection.ask_plainly(ask)?;
        self.connection = Some(connection);
        Ok(said.map_err(|why| dvm::messages::not_done(&why).headline))
    }

    fn state(&mut self) -> Result<Response, Failure> {
        let status = match self.ask(Ask::Status)? {
            Ok(Reply::Status(status)) => status,
            other => return Ok(unexpected(other)),
        };
        let nodes = match self.ask(Ask::Nodes)? {
            Ok(Reply::Nodes(nodes)) => nodes,
            other => return Ok(unexpected(other)),
        };
        let records = match self.ask(Ask::Jobs {
            over: OVER_MAX,
            before: None,
        })? {
            Ok(Reply::Jobs { records, .. }) => records,
            other => return Ok(unexpected(other)),
        };
        let (records, more) = arranged(records);
        let mut waits = Vec::new();
        let waiting = records.iter().filter(|record| explains(record));
        for record in waiting.take(EXPLAINED_MAX) {
            // It may have started since.
            if let Ok(Reply::Explained(explained)) = self.ask(Ask::Explain(record.id))? {
                waits.push((record.id, *explained));
            }
        }
        Ok(Response::json(json(&StateRow::of(
            &status,
            &self.machine.directory,
            &nodes,
            (&records, more),
            &waits,
        ))))
    }

    fn job(&mut self, view: &JobView, reports: &[ReportRow]) -> Result<Response, Failure> {
        let record = match self.ask(Ask::Job(view.job))? {
            Ok(Reply::Job(record)) => record,
            other => return Ok(unexpected(other)),
        };
        let explained = if explains(&record) {
            match self.ask(Ask::Explain(view.job))? {
                Ok(Reply::Explained(explained)) => Some(explained),
                Ok(_) | Err(_) => None,
            }
        } else {
            None
        };
        Ok(Response::json(details(
            &record,
            explained.as_deref(),
            view,
            reports,
        )))
    }

    fn run(&mut self, task: TaskId) -> Result<Answer, Failure> {
        Ok(match self.ask(Ask::Run(task))? {
            Ok(Reply::Run(Some(run))) => Answer::Run(task, run),
            Ok(Reply::Run(None)) => {
                let why = format!("{task} does not run: a report shows running processes");
                Answer::Response(Response::conflict(&why))
            }
            other => Answer::Response(unexpected(other)),
        })
    }
}

fn unexpected(reply: Result<Reply, String>) -> Response {
    match reply {
        Ok(_) => Response::unavailable("the answer of the machine does not match the question"),
        Err(why) => Response::conflict(&why),
    }
}

/// Returns true if some of a job waits, and is not held by its user: then the machine can say for what.
fn explains(record: &Record) -> bool {
    record.ended.is_none() && !record.tasks.waiting.is_empty() && !record.is_held()
}

/// Returns the jobs in the order of the page, at most [`JOBS_MAX`], and how many are left out: those that run, those that wait, then the
/// last ones that are over.
fn arranged(mut records: Vec<Record>) -> (Vec<Record>, usize) {
    let place = |record: &Record| match record.state() {
        State::Running | State::Paused => (0, 0),
        State::Waiting => (1, -i64::from(record.wishes.priority)),
        State::Held => (2, 0),
        State::Succeeded | State::Failed | State::Canceled => {
            let ended = record.ended.map_or(0, |(at, _)| at.0);
            (3, -i64::try_from(ended).unwrap_or(i64::MAX))
        }
    };
    // Stable: jobs of the same priority start in the order of their numbers.
    records.sort_by_key(place);
    let more = records.len().saturating_sub(JOBS_MAX);
    records.truncate(JOBS_MAX);
    (records, more)
}

#[derive(Serialize)]
struct StateRow<'a> {
    machine: StatusRow<'a>,
    nodes: Vec<NodeRow<'a>>,
    jobs: Vec<JobRow<'a>>,
    /// Jobs that are not listed.
    more: usize,
}

#[derive(Serialize)]
struct JobRow<'a> {
    #[serde(flatten)]
    job: Row<'a>,
    /// Why it waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    waits: Option<String>,
}

impl<'a> StateRow<'a> {
    fn of(
        status: &'a Status,
        directory: &Path,
        nodes: &'a [NodeLine],
        (records, more): (&'a [Record], usize),
        waits: &[(JobId, Explained)],
    ) -> Self {
        let now = now();
        let waits = |id| {
            let found = waits.iter().find(|(job, _)| *job == id);
            found.map(|(_, explained)| why(&explained.why, now))
        };
        let jobs = records.iter().map(|record| JobRow {
            job: Row::of(record, now),
            waits: waits(record.id),
        });
        Self {
            machine: StatusRow::of(status, directory, now),
            nodes: nodes.iter().map(NodeRow::of).collect(),
            jobs: jobs.collect(),
            more,
        }
    }
}

#[derive(Serialize)]
struct Details<'a> {
    #[serde(flatten)]
    job: Row<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    explained: Option<ExplainedRow<'a>>,
    /// Indexes of the tasks with output; empty if the job is no array.
    task_indexes: Vec<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<u32>,
    /// It has a file of its own for standard error.
    has_errors: bool,
    printed: output::Printed,
    reports: &'a [ReportRow],
}

fn details(
    record: &Record,
    explained: Option<&Explained>,
    view: &JobView,
    reports: &[ReportRow],
) -> String {
    let now = now();
    let tasks = started(record);
    let index = match view.index {
        Some(index) => Some(index),
        None => tasks.first().copied(),
    };
    let task = TaskId {
        job: record.id,
        index: index.filter(|_| record.is_array()),
    };
    let files = record.output.as_ref();
    let printed = match (files, view.stream) {
        (None, _) if record.way == Way::Allocation => {
            output::Printed::nowhere("it is an allocation: the jobs that run in it print")
        }
        (None, _) => output::Printed::nowhere("it prints to the terminal of its `rally run`"),
        (Some(files), Stream::Output) => {
            output::tail(&PathBuf::from(fill(&files.stdout, task)), &view.mark)
        }
        (Some(files), Stream::Errors) => match &files.stderr {
            Some(pattern) => output::tail(&PathBuf::from(fill(pattern, task)), &view.mark),
            None => output::Printed::nowhere("its standard error is with its output"),
        },
    };
    json(&Details {
        job: Row::of(record, now),
        explained: explained.map(|explained| ExplainedRow::of(explained, now)),
        task_indexes: tasks,
        task: task.index,
        has_errors: files.is_some_and(|files| files.stderr.is_some()),
        printed,
        reports,
    })
}

/// Returns the tasks of an array that have started: those that run first, at most [`TASKS_MAX`].
fn started(record: &Record) -> Vec<u32> {
    if !record.is_array() {
        return Vec::new();
    }
    let tasks = &record.tasks;
    let first = |set: &RankSet| set.iter().map(|index| index.0).collect::<Vec<_>>();
    let sets = [&tasks.running, &tasks.failed, &tasks.succeeded];
    let all = sets.into_iter().flat_map(first);
    all.take(TASKS_MAX).collect()
}

fn json<T: Serialize>(value: &T) -> String {
    // All keys are strings, so that serialization cannot fail.
    serde_json::to_string(value).unwrap_or_default()
}
