//! Listings: jobs, nodes, and the machine itself.

use std::{collections::BTreeMap, fmt::Write as _, path::Path, time::Duration};

use base::JobId;
use dvm::{
    machine::{MEMORY, NodeLine, NodeStanding, Record, Status, Wall},
    messages::size,
};
use message::visible;
use serde::Serialize;

use super::row::{Row, clock, elapsed, lines, state_word};
use crate::args::MessageFormat;

/// Characters of a name in a table.
const NAME_MAX: usize = 20;

/// Returns the table of these jobs.
pub(super) fn jobs(records: &[Record], now: Wall, format: MessageFormat) -> String {
    if format == MessageFormat::Json {
        return lines(records.iter().map(|record| Row::of(record, now)));
    }
    if records.is_empty() {
        return "no jobs\n".to_owned();
    }
    let head = [
        "JOB", "NAME", "STATE", "SLOTS", "TASKS", "TIME", "LIMIT", "NODES",
    ];
    let rows = records.iter().map(|record| {
        let name: String = record.name.chars().take(NAME_MAX).collect();
        [
            record.id.to_string(),
            name,
            state_word(record).to_owned(),
            record.slots.to_string(),
            tasks(record),
            elapsed(record, now).map_or_else(|| "-".to_owned(), clock),
            record.time_limit.map_or_else(|| "-".to_owned(), clock),
            if record.hosts.is_empty() {
                "-".to_owned()
            } else {
                record.hosts.to_string()
            },
        ]
    });
    table(head, rows)
}

/// Returns how many tasks have ended, run and wait; of a job that is no array, nothing.
fn tasks(record: &Record) -> String {
    if !record.is_array() {
        return "-".to_owned();
    }
    let tasks = &record.tasks;
    let over = tasks.succeeded.len() + tasks.failed.len() + tasks.canceled.len();
    let all = tasks.count();
    let mut text = format!("{over}/{all}");
    if !tasks.failed.is_empty() {
        let _ = write!(text, " ({} failed)", tasks.failed.len());
    }
    text
}

/// A node in JSON.
#[derive(Debug, Serialize)]
pub(crate) struct NodeRow<'a> {
    node: &'a str,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    slots: u32,
    free: u32,
    resources: BTreeMap<&'a str, Amount>,
    jobs: Vec<u32>,
}

/// An amount of a counted resource in JSON.
#[derive(Debug, Serialize)]
pub(crate) struct Amount {
    all: u64,
    free: u64,
}

fn amounts(resources: &BTreeMap<String, (u64, u64)>) -> BTreeMap<&str, Amount> {
    let amounts = resources.iter();
    let amounts = amounts.map(|(name, (all, free))| {
        let amount = Amount {
            all: *all,
            free: *free,
        };
        (name.as_str(), amount)
    });
    amounts.collect()
}

/// Returns counted resources as a cell of a table: what is free, and all.
pub(crate) fn resources(resources: &BTreeMap<String, (u64, u64)>) -> String {
    let shown = resources.iter().map(|(name, (all, free))| {
        if name == MEMORY {
            format!("{name}={}/{}", size(*free), size(*all)).replace(' ', "")
        } else {
            format!("{name}={free}/{all}")
        }
    });
    shown.collect::<Vec<_>>().join(" ")
}

/// Returns true if a node has more to tell of its counted resources than that it has memory.
fn is_counted(node: &NodeLine) -> bool {
    let mut resources = node.resources.iter();
    resources.any(|(name, (all, free))| name != MEMORY || all != free)
}

/// Returns the standing of a node in a word.
pub(crate) const fn standing_word(standing: &NodeStanding) -> &'static str {
    match standing {
        NodeStanding::Up => "up",
        NodeStanding::Drained => "drained",
        NodeStanding::Starting => "starting",
        NodeStanding::Bad(_) => "bad",
        NodeStanding::Leaving => "leaving",
    }
}

impl<'a> NodeRow<'a> {
    pub(crate) fn of(node: &'a NodeLine) -> Self {
        Self {
            node: &node.name,
            state: standing_word(&node.state),
            reason: match &node.state {
                NodeStanding::Bad(why) => Some(why),
                _ => None,
            },
            slots: node.slots,
            free: node.free,
            resources: amounts(&node.resources),
            jobs: node.jobs.iter().map(|job| job.0).collect(),
        }
    }
}

/// Returns the table of the nodes.
pub(super) fn nodes(nodes: &[NodeLine], format: MessageFormat) -> String {
    if format == MessageFormat::Json {
        return lines(nodes.iter().map(NodeRow::of));
    }
    let row = |node: &NodeLine| {
        let jobs: Vec<String> = node.jobs.iter().map(ToString::to_string).collect();
        let last = match &node.state {
            NodeStanding::Bad(why) => why.clone(),
            _ if jobs.is_empty() => "-".to_owned(),
            _ => jobs.join(","),
        };
        [
            node.name.clone(),
            standing_word(&node.state).to_owned(),
            node.slots.to_string(),
            node.free.to_string(),
            last,
        ]
    };
    let head = ["NODE", "STATE", "SLOTS", "FREE", "JOBS"];
    let rows = nodes.iter().map(row);
    if !nodes.iter().any(is_counted) {
        return table(head, rows);
    }
    let with = |[node, state, slots, free, jobs]: [String; 5], resources| {
        [node, state, slots, free, resources, jobs]
    };
    let head = with(head.map(str::to_owned), "RESOURCES".to_owned());
    let rows = nodes.iter().map(|node| {
        let shown = resources(&node.resources);
        let shown = if shown.is_empty() {
            "-".to_owned()
        } else {
            shown
        };
        with(row(node), shown)
    });
    table(head.each_ref().map(String::as_str), rows)
}

/// A machine in JSON.
#[derive(Debug, Serialize)]
pub(crate) struct StatusRow<'a> {
    machine: &'a str,
    directory: String,
    up_seconds: u64,
    nodes: u32,
    usable: u32,
    slots: u64,
    free: u64,
    resources: BTreeMap<&'a str, Amount>,
    waiting: u32,
    running: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    trouble: Option<&'a str>,
    ending: bool,
}

impl<'a> StatusRow<'a> {
    pub(crate) fn of(status: &'a Status, directory: &Path, now: Wall) -> Self {
        let up = Duration::from_millis(now.0.saturating_sub(status.since.0));
        Self {
            machine: &status.name,
            directory: directory.display().to_string(),
            up_seconds: up.as_secs(),
            nodes: status.nodes,
            usable: status.usable,
            slots: status.slots,
            free: status.free,
            resources: amounts(&status.resources),
            waiting: status.waiting,
            running: status.running,
            trouble: status.trouble.as_deref(),
            ending: status.is_going_down,
        }
    }
}

/// Returns what a machine is and does.
pub(super) fn status(
    status: &Status,
    directory: &Path,
    now: Wall,
    format: MessageFormat,
) -> String {
    let up = Duration::from_millis(now.0.saturating_sub(status.since.0));
    if format == MessageFormat::Json {
        return lines([StatusRow::of(status, directory, now)]);
    }
    let mut text = format!(
        "machine {}, up {}{}\n  directory: {}\n  nodes: {} of {} usable{}\n  slots: {} of {} free\n  jobs: {} running, {} waiting\n",
        status.name,
        clock(up),
        if status.is_going_down {
            ", about to end"
        } else {
            ""
        },
        directory.display(),
        status.usable,
        status.nodes,
        if status.usable < status.nodes {
            "; `rally nodes` says why"
        } else {
            ""
        },
        status.free,
        status.slots,
        status.running,
        status.waiting,
    );
    if !status.resources.is_empty() {
        let _ = writeln!(text, "  resources: {} free", resources(&status.resources));
    }
    if let Some(why) = &status.trouble {
        let _ = writeln!(text, "  store: cannot be written: {why}");
    }
    text
}

#[derive(Debug, Serialize)]
struct Submitted<'a> {
    job: u32,
    machine: &'a str,
    output: String,
}

/// Says that a job was submitted.
pub(super) fn submitted(job: JobId, machine: &str, output: &Path, format: MessageFormat) -> String {
    match format {
        MessageFormat::Json => lines([Submitted {
            job: job.0,
            machine,
            output: output.display().to_string(),
        }]),
        MessageFormat::Text => format!("job {job} on machine {machine}\n"),
    }
}

/// Returns a table with two blanks between its columns. A line feed in a cell does not begin a row.
pub(crate) fn table<const COLUMNS: usize>(
    head: [&str; COLUMNS],
    rows: impl IntoIterator<Item = [String; COLUMNS]>,
) -> String {
    let all: Vec<[String; COLUMNS]> = std::iter::once(head.map(str::to_owned))
        .chain(rows)
        .map(|row| row.map(|cell| visible::line(&cell).into_owned()))
        .collect();
    let mut widths = [0; COLUMNS];
    for row in &all {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for row in &all {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            let _ = write!(line, "{cell:width$}  ");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests;
