//! What jobs use and have used.

use std::{fmt::Write as _, time::Duration};

use base::{JobId, Usage};
use dvm::{
    machine::{RankUsage, UsageReport},
    messages::size,
};
use serde::Serialize;

use super::{
    list::table,
    row::{UsageRow, clock, lines},
};
use crate::args::MessageFormat;

/// Returns what has been used in one line; `None` if nothing is known of it.
pub(super) fn in_words(used: &Usage) -> Option<String> {
    (*used != Usage::default()).then(|| {
        format!(
            "CPU {} ({} user, {} system), at most {} of memory in a process, read {}, written {}",
            time(used.cpu()),
            time(used.user),
            time(used.system),
            size(used.peak),
            size(used.read),
            size(used.written),
        )
    })
}

/// Returns a time with tenths of a second if it is short.
fn time(time: Duration) -> String {
    if time < Duration::from_secs(60) {
        let tenths = time.as_millis() / 100;
        format!("{}.{} s", tenths / 10, tenths % 10)
    } else {
        clock(time)
    }
}

/// A proc, or the sum of all, in JSON.
#[derive(Debug, Serialize)]
struct Line<'a> {
    job: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rank: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<i32>,
    /// Of the sum only.
    #[serde(skip_serializing_if = "Option::is_none")]
    procs: Option<u64>,
    processes: u64,
    resident_bytes: u64,
    #[serde(flatten)]
    used: UsageRow,
}

/// Returns a table of what the procs of a job use, with the sum at its end.
pub(super) fn report(id: JobId, report: &UsageReport, format: MessageFormat) -> String {
    // All tasks of a job that is no array have the index 0, and no array has this index alone.
    let is_array = report.ranks.iter().any(|one| one.task > 0);
    if format == MessageFormat::Json {
        let rows = report.ranks.iter().map(|one| Line {
            job: id.0,
            task: is_array.then_some(one.task),
            rank: Some(one.rank.0),
            node: Some(&one.host),
            pid: Some(one.pid),
            procs: None,
            processes: u64::from(one.processes),
            resident_bytes: one.resident,
            used: UsageRow::of(&one.used),
        });
        let sum = Line {
            job: id.0,
            task: None,
            rank: None,
            node: None,
            pid: None,
            procs: Some(report.procs),
            processes: report.processes,
            resident_bytes: report.resident,
            used: UsageRow::of(&report.total),
        };
        return lines(rows.chain([sum]));
    }
    let head = [
        "RANK",
        "NODE",
        "PID",
        "PROCESSES",
        "CPU",
        "MEMORY",
        "PEAK",
        "READ",
        "WRITTEN",
    ];
    let name = |one: &RankUsage| {
        if is_array {
            format!("{}:{}", one.task, one.rank)
        } else {
            one.rank.to_string()
        }
    };
    let cells = |used: &Usage, resident| {
        [
            time(used.cpu()),
            size(resident),
            size(used.peak),
            size(used.read),
            size(used.written),
        ]
    };
    let rows = report.ranks.iter().map(|one| {
        let [cpu, memory, peak, read, written] = cells(&one.used, one.resident);
        [
            name(one),
            one.host.clone(),
            one.pid.to_string(),
            one.processes.to_string(),
            cpu,
            memory,
            peak,
            read,
            written,
        ]
    });
    let [cpu, memory, peak, read, written] = cells(&report.total, report.resident);
    let sum = [
        "all".to_owned(),
        "-".to_owned(),
        "-".to_owned(),
        report.processes.to_string(),
        cpu,
        memory,
        peak,
        read,
        written,
    ];
    let mut text = table(head, rows.chain([sum]));
    let shown = u64::try_from(report.ranks.len()).unwrap_or(u64::MAX);
    if report.procs > shown {
        let _ = writeln!(text, "{} procs, of which {shown} are shown", report.procs);
    }
    text
}

#[cfg(test)]
mod tests {
    use base::Rank;

    use super::*;

    fn rank(task: u32, rank: u32) -> RankUsage {
        RankUsage {
            task,
            run: JobId(4),
            rank: Rank(rank),
            host: "n1".to_owned(),
            pid: 4000,
            processes: 2,
            resident: 3 << 20,
            used: Usage {
                user: Duration::from_millis(1250),
                system: Duration::from_secs(75),
                peak: 50 << 20,
                read: 0,
                written: 4096,
            },
        }
    }

    fn of(ranks: Vec<RankUsage>) -> UsageReport {
        let mut report = UsageReport {
            procs: 2,
            ..UsageReport::default()
        };
        for one in &ranks {
            report.total.add(&one.used);
            report.resident += one.resident;
            report.processes += u64::from(one.processes);
        }
        report.ranks = ranks;
        report
    }

    #[test]
    fn ranks_and_their_sum_are_shown() {
        let job = report(
            JobId(17),
            &of(vec![rank(0, 0), rank(0, 1)]),
            MessageFormat::Text,
        );
        let array = report(JobId(17), &of(vec![rank(3, 0)]), MessageFormat::Text);
        insta::assert_snapshot!(format!("{job}\n{array}"));
        let json = report(JobId(17), &of(vec![rank(3, 0)]), MessageFormat::Json);
        insta::assert_snapshot!(json);
    }

    #[test]
    fn what_was_used_is_one_line() {
        insta::assert_snapshot!(in_words(&rank(0, 0).used).unwrap());
        assert_eq!(in_words(&Usage::default()), None);
    }
}
