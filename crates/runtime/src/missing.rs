//! What the system has refused and the job has to do without. Each such thing is reported only once, because other
//! processes may be able to provoke it any number of times.

use std::collections::BTreeSet;

use dvm::proto::Missing;

#[derive(Debug, Default)]
pub(super) struct MissingReports {
    told: BTreeSet<Missing>,
    new: Vec<(Missing, String)>,
}

impl MissingReports {
    /// Starts with what was found missing before there was a front to report to.
    pub(super) fn of(missing: Option<(Missing, String)>) -> Self {
        Self {
            told: BTreeSet::new(),
            new: missing.into_iter().collect(),
        }
    }

    pub(super) fn add(&mut self, what: Missing, error: &os::Error) {
        self.add_reason(what, || error.to_string());
    }

    pub(super) fn add_reason(&mut self, what: Missing, why: impl FnOnce() -> String) {
        if self.told.insert(what) {
            self.new.push((what, why()));
        }
    }

    /// Returns the new reports.
    pub(super) fn take(&mut self) -> Vec<(Missing, String)> {
        std::mem::take(&mut self.new)
    }
}

#[cfg(test)]
mod tests {
    use base::Rank;

    use super::*;

    #[test]
    fn each_is_told_once() {
        let mut missing_reports = MissingReports::default();
        let error = os::Error::Call {
            operation: "accept a connection",
            errno: 24,
        };
        for _ in 0..1000 {
            missing_reports.add(Missing::Room, &error);
            missing_reports.add(Missing::Output(Rank(1)), &error);
        }
        let told: Vec<Missing> = missing_reports
            .take()
            .into_iter()
            .map(|(what, _)| what)
            .collect();
        assert_eq!(told, [Missing::Room, Missing::Output(Rank(1))]);
        missing_reports.add(Missing::Room, &error);
        assert_eq!(missing_reports.take(), []);
    }
}
