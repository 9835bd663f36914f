//! One job: its details, and why it waits.

use std::{collections::BTreeMap, fmt::Write as _};

use base::JobId;
use dvm::{
    machine::{Explained, Needs, Reason, Record, Sooner, Start, Wall},
    messages::{size, too_much},
    queue::{Dependency, DependencyKind, Hold, LimitHit, TaskId},
    spec::{GpuShare, ResourceNeeds},
};
use message::visible;
use serde::Serialize;

use super::{
    row::{Row, clock, elapsed, end_of, lines, output, state_word},
    usage,
};
use crate::args::MessageFormat;

/// Returns everything about a job, as text.
pub(crate) fn details_text(record: &Record, now: Wall) -> String {
    details(record, now, MessageFormat::Text)
}

/// Says why a job waits, as text.
pub(crate) fn explained_text(waits: &Explained, now: Wall) -> String {
    explained(waits, now, MessageFormat::Text)
}

/// Returns everything about a job.
pub(super) fn details(record: &Record, now: Wall, format: MessageFormat) -> String {
    if format == MessageFormat::Json {
        return lines([Row::of(record, now)]);
    }
    let mut text = format!("job {}, {}\n", record.id, state_word(record));
    let mut fact = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            // A line feed in a name would begin a line that looks like ours.
            let _ = writeln!(text, "  {name}: {}", visible::line(&value));
        }
    };
    fact("name", Some(record.name.clone()));
    fact("command", Some(record.command.clone()));
    fact("reason", end_of(record));
    fact("slots", Some(record.slots.to_string()));
    fact(
        "priority",
        (record.wishes.priority != 0).then(|| record.wishes.priority.to_string()),
    );
    fact("limit", record.time_limit.map(clock));
    for (name, need) in record.needs.iter().flat_map(|needs| needs_of(needs)) {
        fact(name, Some(need));
    }
    fact("time", elapsed(record, now).map(clock));
    fact("submitted", Some(ago(record.submitted, now)));
    fact("started", record.started.map(|at| ago(at, now)));
    fact("ended", record.ended.map(|(at, _)| ago(at, now)));
    fact(
        "nodes",
        (!record.hosts.is_empty()).then(|| record.hosts.to_string()),
    );
    fact("used", usage::in_words(&record.spent));
    fact("output", output(record));
    if record.is_array() {
        let sets = [
            ("waiting", &record.tasks.waiting),
            ("running", &record.tasks.running),
            ("paused", &record.paused),
            ("succeeded", &record.tasks.succeeded),
            ("failed", &record.tasks.failed),
            ("canceled", &record.tasks.canceled),
        ];
        for (name, set) in sets {
            fact(
                name,
                (!set.is_empty()).then(|| format!("{} tasks: {set}", set.len())),
            );
        }
    }
    text
}

/// Returns what a job needs beside slots, and its limits.
fn needs_of(needs: &Needs) -> Vec<(&'static str, String)> {
    let listed = |resources: &BTreeMap<String, u64>| {
        let amounts = resources
            .iter()
            .map(|(name, count)| format!("{name}={count}"));
        amounts.collect::<Vec<_>>().join(" ")
    };
    let mut shown = Vec::new();
    match needs.gpus {
        Some(GpuShare::Together(count)) => shown.push(("GPUs of a node", count.to_string())),
        Some(GpuShare::Each(count)) => shown.push(("GPUs of a rank", count.to_string())),
        None => {}
    }
    let ResourceNeeds { job, proc } = &needs.resources;
    if !job.is_empty() {
        shown.push(("resources", listed(job)));
    }
    if !proc.is_empty() {
        shown.push(("resources of a rank", listed(proc)));
    }
    if let Some(bytes) = needs.limits.memory {
        shown.push(("memory limit", format!("{} on a node", size(bytes))));
    }
    if let Some(milli_cpus) = needs.limits.milli_cpus {
        let cpus = f64::from(milli_cpus) / 1_000.0;
        shown.push(("CPU limit", format!("{cpus} CPUs on a node")));
    }
    shown
}

/// Returns a time as a distance from now.
fn ago(at: Wall, now: Wall) -> String {
    let seconds = now.0.saturating_sub(at.0) / 1000;
    match seconds {
        0 => "just now".to_owned(),
        1..120 => format!("{seconds} s ago"),
        120..7200 => format!("{} min ago", seconds / 60),
        7200..172_800 => format!("{} h ago", seconds / 3600),
        _ => format!("{} days ago", seconds / 86_400),
    }
}

/// Why a job waits, in JSON.
#[derive(Debug, Serialize)]
pub(crate) struct ExplainedRow<'a> {
    #[serde(flatten)]
    job: Row<'a>,
    why: String,
    ahead: Vec<u32>,
    ahead_count: usize,
    /// Milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    starts: Option<u64>,
    start: String,
    sooner: Vec<String>,
}

impl<'a> ExplainedRow<'a> {
    pub(crate) fn of(explained: &'a Explained, now: Wall) -> Self {
        Self {
            job: Row::of(&explained.record, now),
            why: why(&explained.why, now),
            ahead: explained.ahead.iter().map(|job| job.0).collect(),
            ahead_count: explained.ahead_count,
            starts: match explained.start {
                Start::At(at) => Some(at.0),
                Start::AfterUnlimited(_) | Start::Unknown => None,
            },
            start: start(explained.start, now),
            sooner: hints(explained),
        }
    }
}

fn hints(explained: &Explained) -> Vec<String> {
    let hints = explained.sooner.iter();
    hints.map(|hint| hint_text(*hint)).collect()
}

/// Says why a job waits.
pub(super) fn explained(explained: &Explained, now: Wall, format: MessageFormat) -> String {
    if format == MessageFormat::Json {
        return lines([ExplainedRow::of(explained, now)]);
    }
    let why = why(&explained.why, now);
    let start = start(explained.start, now);
    let record = &explained.record;
    let mut text = format!("job {}, {}: {why}\n", record.id, state_word(record));
    if explained.why == Reason::NothingWaits {
        return text;
    }
    let _ = writeln!(
        text,
        "  ahead: {}",
        ahead(&explained.ahead, explained.ahead_count)
    );
    let _ = writeln!(text, "  start: {start}");
    for hint in hints(explained) {
        let _ = writeln!(text, "  sooner: {hint}");
    }
    text
}

fn ahead(jobs: &[JobId], count: usize) -> String {
    if count == 0 {
        return "no job".to_owned();
    }
    let names: Vec<String> = jobs.iter().map(ToString::to_string).collect();
    let more = count - jobs.len();
    let rest = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    let word = if count == 1 { "job" } else { "jobs" };
    format!("{word} {}{rest}", names.join(", "))
}

fn tasks(all: &[TaskId]) -> String {
    let names: Vec<String> = all.iter().take(8).map(ToString::to_string).collect();
    let more = all.len().saturating_sub(8);
    let rest = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    names.join(", ") + &rest
}

/// Returns why a job does not start now.
pub(crate) fn why(why: &Reason, now: Wall) -> String {
    match why {
        Reason::NothingWaits => "all of it runs".to_owned(),
        Reason::Held(Hold::ByRequeues) => {
            "it is held, because it has lost nodes, or its machine, again and again".to_owned()
        }
        Reason::Held(_) => "it is held".to_owned(),
        Reason::Blocked(after) => {
            let parts: Vec<String> = after.iter().map(dependency).collect();
            format!("it waits for {}", parts.join(" and "))
        }
        Reason::Limit(LimitHit::UserRunning(tasks)) => {
            format!("its user runs {tasks} tasks, which is the limit")
        }
        Reason::Limit(LimitHit::UserSlots(slots)) => {
            format!("its user uses {slots} slots, and may not use so many more")
        }
        Reason::Limit(LimitHit::ArrayRunning(tasks)) => {
            format!("{tasks} of its tasks run, which is its own limit")
        }
        Reason::Limit(LimitHit::Running(tasks)) => {
            format!("{tasks} tasks run, and the machine runs no more at the same time")
        }
        Reason::BehindLimit(job) => {
            format!(
                "job {job} of the same user comes first, and needs what is left of the user's limits"
            )
        }
        Reason::TooLarge { room } => {
            format!("the nodes that there are have room for {room} of its units")
        }
        Reason::NodesClosed { room, closed, lost } => {
            let nodes = if closed.is_empty() {
                "some nodes".to_owned()
            } else {
                format!("`{closed}`")
            };
            let lost = if lost.is_empty() {
                String::new()
            } else {
                format!(
                    ". It cannot start without `{lost}`, unless it asks for less: `rally nodes --add {lost}` starts what is lost again"
                )
            };
            format!(
                "it needs {nodes}, where no job starts; the other nodes have room for {room} of its units{lost}"
            )
        }
        Reason::Head { waits_for } => {
            format!(
                "it is the next one, and waits for the end of {}",
                tasks(waits_for)
            )
        }
        Reason::NoRoom => "there is no room for it".to_owned(),
        Reason::TooMuch(what) => too_much(what),
        Reason::WouldDelay { head, at } => {
            let when = at.map_or_else(String::new, |at| {
                format!(", which is to start {}", ahead_of(at, now))
            });
            format!("it would fit, but would delay job {head}{when}")
        }
    }
}

fn dependency(after: &Dependency) -> String {
    let what = match after.kind {
        DependencyKind::Started => "start",
        DependencyKind::Ended => "end",
        DependencyKind::Succeeded => "success",
    };
    format!("the {what} of job {}", after.on)
}

/// Returns a time in the future as a distance from now.
fn ahead_of(at: Wall, now: Wall) -> String {
    let millis = at.0.saturating_sub(now.0);
    if millis < 1000 {
        return "now".to_owned();
    }
    format!("within {}", clock(std::time::Duration::from_millis(millis)))
}

fn start(start: Start, now: Wall) -> String {
    match start {
        Start::At(at) => format!(
            "{}, if no job takes longer than its time limit and none comes before it",
            ahead_of(at, now)
        ),
        Start::AfterUnlimited(task) => {
            format!("after job {task}, which has no time limit")
        }
        Start::Unknown => "nobody can say".to_owned(),
    }
}

fn hint_text(hint: Sooner) -> String {
    match hint {
        Sooner::Release => "release it: `rally release JOB`".to_owned(),
        Sooner::TimeLimit(limit) => {
            format!(
                "with a time limit of {} or less it would start now",
                clock(limit)
            )
        }
        Sooner::Units(units) => format!("with {units} of its units it would start now"),
        Sooner::Shared => "on nodes shared with other jobs it would start now".to_owned(),
    }
}
