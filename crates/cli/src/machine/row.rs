//! What is shown of a job.

use std::{collections::BTreeMap, time::Duration};

use base::Usage;
use dvm::{
    machine::{Failure, Needs, Record, State, Tasks, Wall},
    queue::{Over, TaskId},
    spec::GpuShare,
};
use serde::Serialize;

/// A job in JSON.
#[derive(Debug, Serialize)]
pub(crate) struct Row<'a> {
    job: u32,
    name: &'a str,
    command: &'a str,
    state: &'static str,
    slots: u32,
    priority: i32,
    /// Milliseconds since 1970.
    submitted: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    started: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    elapsed_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit_seconds: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    needs: Option<NeedsRow<'a>>,
    hosts: Vec<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tasks: Option<TaskCounts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// Of runs that are over.
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<UsageRow>,
}

/// What a job needs beside slots, and its limits, in JSON.
#[derive(Debug, Serialize)]
struct NeedsRow<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    gpus: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gpus_per_proc: Option<u32>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    resources: &'a BTreeMap<String, u64>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    resources_per_proc: &'a BTreeMap<String, u64>,
    /// On each node.
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_limit_bytes: Option<u64>,
    /// On each node.
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_limit: Option<f64>,
}

impl<'a> NeedsRow<'a> {
    fn of(needs: &'a Needs) -> Self {
        let (gpus, gpus_per_proc) = match needs.gpus {
            Some(GpuShare::Together(count)) => (Some(count), None),
            Some(GpuShare::Each(count)) => (None, Some(count)),
            None => (None, None),
        };
        let cpu_limit = needs.limits.milli_cpus;
        Self {
            gpus,
            gpus_per_proc,
            resources: &needs.resources.job,
            resources_per_proc: &needs.resources.proc,
            memory_limit_bytes: needs.limits.memory,
            cpu_limit: cpu_limit.map(|milli_cpus| f64::from(milli_cpus) / 1_000.0),
        }
    }
}

/// Resources in JSON.
#[derive(Debug, Serialize)]
pub(super) struct UsageRow {
    user_seconds: f64,
    system_seconds: f64,
    peak_bytes: u64,
    read_bytes: u64,
    written_bytes: u64,
}

impl UsageRow {
    pub(super) const fn of(used: &Usage) -> Self {
        Self {
            user_seconds: used.user.as_secs_f64(),
            system_seconds: used.system.as_secs_f64(),
            peak_bytes: used.peak,
            read_bytes: used.read,
            written_bytes: used.written,
        }
    }
}

/// The tasks of an array in JSON.
#[derive(Debug, Serialize)]
struct TaskCounts {
    waiting: usize,
    running: usize,
    succeeded: usize,
    failed: usize,
    canceled: usize,
    /// The indexes of those that have failed.
    failed_indexes: String,
}

impl TaskCounts {
    fn of(tasks: &Tasks) -> Self {
        Self {
            waiting: tasks.waiting.len(),
            running: tasks.running.len(),
            succeeded: tasks.succeeded.len(),
            failed: tasks.failed.len(),
            canceled: tasks.canceled.len(),
            failed_indexes: tasks.failed.to_string(),
        }
    }
}

impl<'a> Row<'a> {
    pub(crate) fn of(record: &'a Record, now: Wall) -> Self {
        Self {
            job: record.id.0,
            name: &record.name,
            command: &record.command,
            state: state_word(record),
            slots: record.slots,
            priority: record.wishes.priority,
            submitted: record.submitted.0,
            started: record.started.map(|at| at.0),
            ended: record.ended.map(|(at, _)| at.0),
            elapsed_seconds: elapsed(record, now).map(|time| time.as_secs_f64()),
            limit_seconds: record.time_limit.map(|limit| limit.as_secs()),
            needs: record.needs.as_deref().map(NeedsRow::of),
            hosts: record.hosts.iter().collect(),
            tasks: record.is_array().then(|| TaskCounts::of(&record.tasks)),
            output: output(record),
            reason: end_of(record),
            usage: (record.spent != Usage::default()).then(|| UsageRow::of(&record.spent)),
        }
    }
}

/// Returns the state of a job in a word.
pub(crate) fn state_word(record: &Record) -> &'static str {
    match record.state() {
        State::Waiting => "waiting",
        State::Held => "held",
        State::Running => "running",
        State::Paused => "paused",
        State::Succeeded => "succeeded",
        State::Failed => "failed",
        State::Canceled => "canceled",
    }
}

pub(super) fn output(record: &Record) -> Option<String> {
    let pattern = &record.output.as_ref()?.stdout;
    // Each task of an array has a file of its own.
    let task = TaskId {
        job: record.id,
        index: None,
    };
    let path = if record.is_array() {
        pattern.clone()
    } else {
        dvm::machine::fill(pattern, task)
    };
    Some(path.to_string_lossy().into_owned())
}

/// Returns how long a job has run, or has taken.
pub(crate) fn elapsed(record: &Record, now: Wall) -> Option<Duration> {
    let started = record.started?;
    let until = record.ended.map_or(now, |(at, _)| at);
    Some(Duration::from_millis(until.0.saturating_sub(started.0)))
}

/// Returns a duration as `M:SS`, `H:MM:SS` or `D-HH:MM:SS`.
pub(crate) fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    let (days, hours) = (seconds / 86_400, seconds / 3600 % 24);
    let (minutes, rest) = (seconds / 60 % 60, seconds % 60);
    match (days, hours) {
        (0, 0) => format!("{minutes}:{rest:02}"),
        (0, _) => format!("{hours}:{minutes:02}:{rest:02}"),
        _ => format!("{days}-{hours:02}:{minutes:02}:{rest:02}"),
    }
}

/// Returns why a job has not succeeded, in one line.
fn reason(record: &Record) -> Option<String> {
    let (index, failure) = record.failure.as_ref()?;
    let why = match &**failure {
        Failure::Ended(outcome) => {
            let scene = dvm::messages::Scene {
                job: None,
                nodes: &[],
                table: &[],
                apps: &[],
                end: dvm::spec::EndPolicy::default(),
            };
            let messages = dvm::messages::outcome(outcome, &scene);
            let first = messages.into_iter().next();
            first.map_or_else(|| state_word(record).to_owned(), |message| message.headline)
        }
        Failure::Refused(why) => why.clone(),
        Failure::MachineLost => "the machine ended while it ran".to_owned(),
        Failure::OutputLost(why) => format!("its output cannot be written to {why}"),
    };
    Some(if record.is_array() {
        format!("task {index}: {why}")
    } else {
        why
    })
}

/// Returns why a job has ended as it did.
pub(crate) fn end_of(record: &Record) -> Option<String> {
    match record.ended {
        Some((_, Over::DependencyFailed(on))) => {
            Some(format!("job {on}, on which it depends, has not succeeded"))
        }
        _ => reason(record),
    }
}

/// Returns one JSON object in each line.
pub(crate) fn lines<T: Serialize>(values: impl IntoIterator<Item = T>) -> String {
    // All keys are strings, so that serialization cannot fail.
    let lines = values
        .into_iter()
        .map(|value| serde_json::to_string(&value).unwrap_or_default() + "\n");
    lines.collect()
}
