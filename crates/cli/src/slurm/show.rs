//! What is shown of jobs of Slurm.

use std::fmt::Write as _;

use base::{JobId, RankSet};
use serde::Serialize;

use super::{
    messages::slurms_words,
    parse::{Counts, Job},
    state::meaning,
};
use crate::{
    args::{MessageFormat, request::slurm::Batch, slurm_indexes},
    machine::{lines, table},
};

/// Characters of a name in a table.
const NAME_MAX: usize = 20;

/// A job in JSON.
#[derive(Debug, Serialize)]
struct Row<'a> {
    /// `slurm:17`, which commands understand, and no number of a machine's job.
    job: String,
    engine: &'static str,
    name: &'a str,
    /// The job whose rank has requested this allocation, and the name that it has given the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    allocation_of: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request: Option<&'a str>,
    state: &'static str,
    slurm_state: &'a str,
    slurm_reason: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    elapsed: &'a str,
    limit: &'a str,
    nodes: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tasks: Option<TaskCounts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<String>,
}

/// The tasks of an array in JSON.
#[derive(Debug, Serialize)]
struct TaskCounts {
    waiting: usize,
    running: usize,
    succeeded: usize,
    failed: usize,
    canceled: usize,
    failed_indexes: String,
}

/// What is known of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// What a listing says.
    Listed,
    /// Everything.
    All,
}

fn row(job: &Job, known: Known) -> Row<'_> {
    let part = job.deciding();
    let (state, reason) = part.map_or(("", ""), |part| (&part.state, &part.reason));
    let counts = job.counts();
    let origin = job.origin();
    let has_code = known == Known::All && job.phase().is_over();
    Row {
        job: format!("slurm:{}", job.name()),
        engine: "slurm",
        name: part.map_or("", |part| &part.name),
        allocation_of: origin.map(|origin| format!("slurm:{}", origin.job)),
        request: origin.and_then(|origin| origin.request.as_deref()),
        state: job.phase().word(),
        slurm_state: state,
        slurm_reason: if reason == "None" { "" } else { reason },
        reason: meaning(state, reason),
        elapsed: part.map_or("", |part| &part.elapsed),
        limit: part.map_or("", |part| &part.limit),
        nodes: part.map_or("", |part| &part.nodes),
        exit_code: has_code.then(|| job.exit_code()),
        tasks: job.is_array().then(|| TaskCounts {
            waiting: counts.waiting,
            running: counts.running,
            succeeded: counts.succeeded,
            failed: counts.failed,
            canceled: counts.canceled,
            failed_indexes: job.failed_indexes().to_string(),
        }),
        output: part
            .and_then(|part| part.stdout.as_ref())
            .filter(|_| !job.is_array())
            .map(|path| path.display().to_string()),
    }
}

/// Returns the table of these jobs.
pub(super) fn list(jobs: &[Job], format: MessageFormat) -> String {
    if format == MessageFormat::Json {
        return lines(jobs.iter().map(|job| row(job, Known::Listed)));
    }
    if jobs.is_empty() {
        return "no jobs in Slurm\n".to_owned();
    }
    let head = [
        "JOB", "NAME", "STATE", "SLURM", "TASKS", "TIME", "LIMIT", "NODES",
    ];
    let rows = jobs.iter().map(|job| {
        let row = row(job, Known::Listed);
        // The name of an allocation is that of its controller, and says nothing to people.
        let name = match job.origin() {
            Some(origin) => format!("allocation of {}", origin.job),
            None => row.name.chars().take(NAME_MAX).collect(),
        };
        [
            row.job,
            name,
            row.state.to_owned(),
            slurms_words(row.slurm_state, row.slurm_reason),
            tasks(job.counts(), job.is_array()),
            or_dash(row.elapsed),
            or_dash(row.limit),
            or_dash(row.nodes),
        ]
    });
    table(head, rows)
}

fn or_dash(text: &str) -> String {
    if text.is_empty() { "-" } else { text }.to_owned()
}

/// Returns how many tasks are over; of a job that is no array, nothing.
fn tasks(counts: Counts, is_array: bool) -> String {
    if !is_array {
        return "-".to_owned();
    }
    let mut text = format!("{}/{}", counts.over(), counts.all());
    if counts.failed > 0 {
        let _ = write!(text, " ({} failed)", counts.failed);
    }
    text
}

/// Returns everything about a job.
pub(super) fn details(job: &Job, format: MessageFormat) -> String {
    if format == MessageFormat::Json {
        return lines([row(job, Known::All)]);
    }
    let row = row(job, Known::All);
    let mut text = format!("job {} of Slurm: {}\n", job.name(), row.name);
    let mut line = |name: &str, value: &str| {
        if !value.is_empty() {
            let _ = writeln!(text, "  {name}: {value}");
        }
    };
    line(
        "allocation of",
        row.allocation_of.as_deref().unwrap_or_default(),
    );
    line("request", row.request.unwrap_or_default());
    line("state", row.state);
    line(
        "Slurm says",
        &slurms_words(row.slurm_state, row.slurm_reason),
    );
    line("reason", row.reason.unwrap_or_default());
    if job.is_array() {
        line("tasks over", &tasks(job.counts(), true));
        line("failed tasks", &job.failed_indexes().to_string());
    }
    if let Some(code) = row.exit_code {
        line("exit code", &code.to_string());
    }
    if let Some(part) = job.deciding() {
        let [submitted, started, ended] = &part.times;
        line("submitted", submitted);
        line("started", started);
        line("ended", if job.phase().is_over() { ended } else { "" });
    }
    line("time", row.elapsed);
    line("limit", row.limit);
    line("nodes", row.nodes);
    line("output", row.output.as_deref().unwrap_or_default());
    text
}

#[derive(Debug, Serialize)]
struct Submitted {
    job: String,
    engine: &'static str,
    output: String,
}

/// Says that a job was submitted.
pub(super) fn submitted(job: JobId, batch: &Batch, format: MessageFormat) -> String {
    match format {
        MessageFormat::Json => lines([Submitted {
            job: format!("slurm:{job}"),
            engine: "slurm",
            output: batch.output.display().to_string(),
        }]),
        MessageFormat::Text => format!("job slurm:{job}\n"),
    }
}

#[derive(Debug, Serialize)]
struct Dry {
    engine: &'static str,
    command: Vec<String>,
    script: String,
}

/// Shows what would be submitted, for programs.
pub(super) fn dry(batch: &Batch, script: &[u8]) -> String {
    let options = batch.options.iter();
    let command = std::iter::once("sbatch".to_owned())
        .chain(options.map(|option| option.to_string_lossy().into_owned()));
    lines([Dry {
        engine: "slurm",
        command: command.collect(),
        script: String::from_utf8_lossy(script).into_owned(),
    }])
}

/// Returns the name of a task, or of some, as `scancel` takes it: `17_[3-5]`.
pub(super) fn target(job: JobId, indexes: Option<&RankSet>) -> String {
    match indexes {
        Some(indexes) => format!("{job}_[{}]", slurm_indexes(indexes)),
        None => job.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use dvm::slurm::Origin;

    use super::*;
    use crate::slurm::parse::{Part, jobs};

    fn some() -> Vec<Job> {
        let part = |job: u32, index: Option<u32>, state: &str, reason: &str| Part {
            job,
            indexes: index.map(|index| RankSet::range(index..index + 2)),
            name: "a name that is too long for a table".to_owned(),
            state: state.to_owned(),
            reason: reason.to_owned(),
            exit: u8::from(state == "FAILED"),
            elapsed: "0:07".to_owned(),
            limit: "10:00".to_owned(),
            nodes: if state == "PENDING" { "" } else { "n[1-2]" }.to_owned(),
            times: ["2026-11-26T05:29:34", "", "2026-11-26T05:29:41"].map(str::to_owned),
            stdout: Some("/w/rally.out".into()),
            ..Part::default()
        };
        jobs(vec![
            part(17, None, "PENDING", "Priority"),
            part(18, Some(0), "FAILED", "NonZeroExitCode"),
            part(18, Some(2), "RUNNING", "None"),
            part(19, None, "FAILED", "NonZeroExitCode"),
            Part {
                name: "rally-head-01ab23cd-4242".to_owned(),
                origin: Some(Origin {
                    job: 17,
                    request: Some("more".to_owned()),
                }),
                stdout: None,
                ..part(20, None, "RUNNING", "None")
            },
        ])
    }

    #[test]
    fn jobs_are_listed() {
        assert_eq!(list(&[], MessageFormat::Text), "no jobs in Slurm\n");
        insta::assert_snapshot!(list(&some(), MessageFormat::Text), @"
        JOB       NAME                  STATE    SLURM                     TASKS           TIME  LIMIT  NODES
        slurm:17  a name that is too l  waiting  PENDING (Priority)        -               0:07  10:00  -
        slurm:18  a name that is too l  running  RUNNING                   2/4 (2 failed)  0:07  10:00  n[1-2]
        slurm:19  a name that is too l  failed   FAILED (NonZeroExitCode)  -               0:07  10:00  n[1-2]
        slurm:20  allocation of 17      running  RUNNING                   -               0:07  10:00  n[1-2]
        ");
        insta::assert_snapshot!(list(&some(), MessageFormat::Json), @r#"
        {"job":"slurm:17","engine":"slurm","name":"a name that is too long for a table","state":"waiting","slurm_state":"PENDING","slurm_reason":"Priority","reason":"jobs of higher priority come first","elapsed":"0:07","limit":"10:00","nodes":"","output":"/w/rally.out"}
        {"job":"slurm:18","engine":"slurm","name":"a name that is too long for a table","state":"running","slurm_state":"RUNNING","slurm_reason":"","elapsed":"0:07","limit":"10:00","nodes":"n[1-2]","tasks":{"waiting":0,"running":2,"succeeded":0,"failed":2,"canceled":0,"failed_indexes":"0-1"}}
        {"job":"slurm:19","engine":"slurm","name":"a name that is too long for a table","state":"failed","slurm_state":"FAILED","slurm_reason":"NonZeroExitCode","elapsed":"0:07","limit":"10:00","nodes":"n[1-2]","output":"/w/rally.out"}
        {"job":"slurm:20","engine":"slurm","name":"rally-head-01ab23cd-4242","allocation_of":"slurm:17","request":"more","state":"running","slurm_state":"RUNNING","slurm_reason":"","elapsed":"0:07","limit":"10:00","nodes":"n[1-2]"}
        "#);
    }

    #[test]
    fn tasks_are_named_as_slurm_names_them() {
        let indexes: RankSet = "0-20/10,3-5".parse().unwrap();
        let id = JobId(7);
        assert_eq!(target(id, None), "7");
        assert_eq!(target(id, Some(&indexes)), "7_[0,3-5,10,20]");
        assert_eq!(target(id, Some(&"0-30/10".parse().unwrap())), "7_[0-30:10]");
    }

    #[test]
    fn jobs_are_described() {
        let all: String = some()
            .iter()
            .map(|job| details(job, MessageFormat::Text))
            .collect();
        insta::assert_snapshot!(all, @"
        job 17 of Slurm: a name that is too long for a table
          state: waiting
          Slurm says: PENDING (Priority)
          reason: jobs of higher priority come first
          submitted: 2026-11-26T05:29:34
          time: 0:07
          limit: 10:00
          output: /w/rally.out
        job 18 of Slurm: a name that is too long for a table
          state: running
          Slurm says: RUNNING
          tasks over: 2/4 (2 failed)
          failed tasks: 0-1
          submitted: 2026-11-26T05:29:34
          time: 0:07
          limit: 10:00
          nodes: n[1-2]
        job 19 of Slurm: a name that is too long for a table
          state: failed
          Slurm says: FAILED (NonZeroExitCode)
          exit code: 1
          submitted: 2026-11-26T05:29:34
          ended: 2026-11-26T05:29:41
          time: 0:07
          limit: 10:00
          nodes: n[1-2]
          output: /w/rally.out
        job 20 of Slurm: rally-head-01ab23cd-4242
          allocation of: slurm:17
          request: more
          state: running
          Slurm says: RUNNING
          submitted: 2026-11-26T05:29:34
          time: 0:07
          limit: 10:00
          nodes: n[1-2]
        ");
    }
}
