//! Why a job waits, in the few words that a list has room for. `rally explain` has the sentences.

use dvm::{
    machine::{Reason, Record, State},
    queue::{DependencyKind, Hold, LimitHit},
};

/// Returns where a job runs, why it waits, or how it has ended.
pub(super) fn place(record: &Record, reason: Option<&Reason>) -> String {
    match record.state() {
        State::Running | State::Paused => match record.tasks.failed.len() {
            0 => record.hosts.to_string(),
            failed => format!("{}, {failed} failed", record.hosts),
        },
        State::Held if record.wishes.hold == Hold::ByRequeues => "has lost nodes too often".into(),
        State::Held => "held by its user".into(),
        State::Waiting => reason.map(short).unwrap_or_default(),
        State::Succeeded => record.hosts.to_string(),
        State::Failed | State::Canceled => {
            crate::machine::end_of(record).unwrap_or_else(|| record.hosts.to_string())
        }
    }
}

fn short(reason: &Reason) -> String {
    match reason {
        Reason::NothingWaits => String::new(),
        Reason::Held(_) => "held".to_owned(),
        Reason::Blocked(after) => {
            let all: Vec<String> = after
                .iter()
                .map(|one| match one.kind {
                    DependencyKind::Started => format!("start of {}", one.on),
                    DependencyKind::Ended => format!("end of {}", one.on),
                    DependencyKind::Succeeded => format!("success of {}", one.on),
                })
                .collect();
            format!("after {}", all.join(", "))
        }
        Reason::Limit(LimitHit::UserRunning(_) | LimitHit::UserSlots(_)) => {
            "limit of its user".to_owned()
        }
        Reason::Limit(LimitHit::ArrayRunning(tasks) | LimitHit::Running(tasks)) => {
            format!("limit: {tasks} tasks run")
        }
        Reason::BehindLimit(job) => format!("limit, behind {job}"),
        Reason::TooLarge { .. } => "too large".to_owned(),
        Reason::NodesClosed { .. } => "nodes are closed".to_owned(),
        Reason::Head { waits_for } => match waits_for.as_slice() {
            [] => "next".to_owned(),
            [one] => format!("next, after {one}"),
            [one, rest @ ..] => format!("next, after {one} and {} more", rest.len()),
        },
        Reason::NoRoom => "no room".to_owned(),
        Reason::TooMuch(what) => format!("too little {}", what.name),
        Reason::WouldDelay { head, .. } => format!("would delay {head}"),
    }
}
