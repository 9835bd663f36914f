//! The parts of tags: numbers and host names.

use base::Rank;
use dvm::proto::TableRow;

/// Returns the number of decimal digits.
pub(super) const fn digits(number: u32) -> usize {
    match number.checked_ilog10() {
        Some(log) => log as usize + 1,
        None => 1,
    }
}

/// Appends a number in decimal.
pub(super) fn push_number(text: &mut Vec<u8>, number: u32) {
    use std::io::Write;
    // Writing to memory cannot fail.
    let _ = write!(text, "{number}");
}

/// The host of each rank, in runs of consecutive ranks: small even for a million ranks.
#[derive(Debug, Default)]
pub(super) struct Hosts {
    /// The first rank of each run, with its host.
    runs: Vec<(Rank, String)>,
}

impl Hosts {
    /// Makes the runs of a proc table sorted by rank. A rank missing from the table gets the host of the previous rank.
    pub(super) fn from_table(table: &[TableRow]) -> Self {
        let mut runs = Vec::<(Rank, String)>::new();
        for row in table {
            if runs.last().is_none_or(|(_, host)| *host != row.host) {
                runs.push((row.rank, row.host.clone()));
            }
        }
        Self { runs }
    }

    pub(super) fn name(&self, rank: Rank) -> Option<&str> {
        let after = self.runs.partition_point(|(first, _)| *first <= rank);
        self.runs
            .get(after.saturating_sub(1))
            .map(|(_, host)| host.as_str())
    }
}
