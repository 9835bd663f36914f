//! The record of a run: its last events, and the first fault, which ends it.

use std::collections::VecDeque;

use base::Time;

/// Maximum number of lines in a record. Older lines are dropped.
const LINES_MAX: usize = 4_000;

#[derive(Debug)]
pub(crate) struct Record {
    /// `None` if the run is not recorded.
    lines: Option<VecDeque<String>>,
    fault: Option<String>,
}

impl Record {
    pub(crate) fn new(recorded: Recorded) -> Self {
        Self {
            lines: (recorded == Recorded::Yes).then(VecDeque::new),
            fault: None,
        }
    }

    /// Writes one line. `what` is called only if the run is recorded.
    pub(crate) fn note(&mut self, now: Time, what: impl FnOnce() -> String) {
        let Some(lines) = &mut self.lines else {
            return;
        };
        if lines.len() == LINES_MAX {
            lines.pop_front();
        }
        lines.push_back(format!("{:>14} {}", now.to_string(), what()));
    }

    /// Records a fault, which ends the run. Later faults are ignored.
    pub(crate) fn fault(&mut self, now: Time, what: String) {
        if self.fault.is_none() {
            self.note(now, || format!("{:<6} {what}", "FAULT"));
            self.fault = Some(what);
        }
    }

    /// Records a fault unless `holds` is true. `what` returns its description.
    pub(crate) fn require(&mut self, now: Time, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.fault(now, what());
        }
    }

    pub(crate) const fn is_faulty(&self) -> bool {
        self.fault.is_some()
    }

    /// Ends a run: it has failed if a fault was recorded.
    pub(crate) fn into_played(self, report: Report) -> Played {
        Played {
            result: self.fault.map_or(Ok(report), Err),
            record: self.lines.unwrap_or_default().into(),
        }
    }
}

/// A run that is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Played {
    /// The first fault is the error.
    pub(crate) result: Result<Report, String>,
    /// The last events; empty if the run was not recorded.
    pub(crate) record: Vec<String>,
}

/// Whether a run keeps a record of its last events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recorded {
    Yes,
    No,
}

/// Statistics of a run without a fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Number of events in the run.
    pub events: u64,
    /// Number of faults: what breaks, is cut off, is stopped or dies, and strangers. What ranks do to themselves, and what a
    /// front does, does not count.
    pub faults: u32,
    /// Virtual time at which the last job was over. If the controller was lost: at which the last daemon was clean. In
    /// [`Family::Beside`](crate::Family::Beside): at which the last state machine ended. In families of the
    /// tree: when the run ended.
    pub finished: Time,
}
