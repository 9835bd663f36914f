//! The parts of tags: times, numbers and host names.

use base::Rank;
use dvm::proto::TableRow;

/// Seconds since 1970 in UTC, and nanoseconds.
pub(crate) type WallClock = (i64, u32);

const SECONDS_PER_DAY: i64 = 86_400;

/// The last second of the year 9999, because RFC 3339 years have four digits.
const SECONDS_MAX: i64 = 253_402_300_799;

/// The days in 400 years, the period of the calendar.
const DAYS_PER_ERA: i64 = 146_097;

/// Returns a time in RFC 3339, in UTC with milliseconds: `2026-11-21T11:35:48.123Z`. Times before 1970 become 1970; times
/// after the year 9999 become its last second.
pub(crate) fn rfc3339((seconds, nanos): WallClock) -> [u8; 24] {
    let seconds = seconds.clamp(0, SECONDS_MAX);
    let (year, month, day) = date(seconds.div_euclid(SECONDS_PER_DAY));
    let second = seconds.rem_euclid(SECONDS_PER_DAY);
    let mut text = *b"0000-00-00T00:00:00.000Z";
    let parts = [
        (0..4, year),
        (5..7, month),
        (8..10, day),
        (11..13, second / 3600),
        (14..16, second / 60 % 60),
        (17..19, second % 60),
        (20..23, i64::from(nanos.min(999_999_999) / 1_000_000)),
    ];
    for (range, mut number) in parts {
        for place in text.get_mut(range).into_iter().flatten().rev() {
            *place = b'0' + u8::try_from(number % 10).unwrap_or(0);
            number /= 10;
        }
    }
    text
}

/// Returns year, month and day in the Gregorian calendar. `days` counts from 1970-01-01. Years are counted from March, so
/// that the leap day comes last (Howard Hinnant's `civil_from_days`).
const fn date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(DAYS_PER_ERA);
    let day_of_era = days.rem_euclid(DAYS_PER_ERA);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = year_of_era + era * 400 + (month <= 2) as i64;
    (year, month, day)
}

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
