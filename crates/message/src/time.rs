//! Times of day as text, in UTC.

/// Seconds since 1970 in UTC, and nanoseconds.
pub type WallClock = (i64, u32);

const SECONDS_PER_DAY: i64 = 86_400;

/// The last second of the year 9999, because RFC 3339 years have four digits.
const SECONDS_MAX: i64 = 253_402_300_799;

/// The days in 400 years, the period of the calendar.
const DAYS_PER_ERA: i64 = 146_097;

/// Returns a time in RFC 3339, in UTC with milliseconds: `2026-11-21T11:35:48.123Z`. Times before 1970 become 1970; times
/// after the year 9999 become its last second.
#[must_use]
pub fn rfc3339((seconds, nanos): WallClock) -> [u8; 24] {
    let seconds = seconds.clamp(0, SECONDS_MAX);
    let (year, month, day) = civil(seconds.div_euclid(SECONDS_PER_DAY));
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

/// Returns a time as the syslog has it (RFC 3164): `Nov  2 01:20:07`. The seconds are those since 1970 of a clock that shows the local
/// time, because the syslog expects that and says no time zone.
#[must_use]
pub fn rfc3164(local_seconds: i64) -> String {
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let seconds = local_seconds.clamp(0, SECONDS_MAX);
    let (_, month, day) = civil(seconds.div_euclid(SECONDS_PER_DAY));
    let month = usize::try_from(month - 1).ok();
    let month = month.and_then(|month| MONTHS.get(month)).unwrap_or(&"Jan");
    let second = seconds.rem_euclid(SECONDS_PER_DAY);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{month} {day:2} {hour:02}:{minute:02}:{second:02}")
}

/// Returns the time in the form `2026-11-22 01:20:07 UTC`.
#[must_use]
pub fn date(time: WallClock) -> String {
    let date = rfc3339(time);
    let date = String::from_utf8_lossy(&date);
    let second = date.split_once('.').map_or(&*date, |(second, _)| second);
    format!("{} UTC", second.replace('T', " "))
}

/// Returns year, month and day in the Gregorian calendar. `days` counts from 1970-01-01. Years are counted from March, so
/// that the leap day comes last (Howard Hinnant's `civil_from_days`).
const fn civil(days: i64) -> (i64, i64, i64) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        let cases = [
            ((0, 0), "1970-01-01T00:00:00.000Z"),
            ((-5, 7), "1970-01-01T00:00:00.000Z"),
            ((951_782_399, 999_999_999), "2000-02-28T23:59:59.999Z"),
            ((951_782_400, 0), "2000-02-29T00:00:00.000Z"),
            ((951_868_800, 0), "2000-03-01T00:00:00.000Z"),
            ((4_107_542_400, 0), "2100-03-01T00:00:00.000Z"),
            ((1_798_761_599, 1_000_000), "2026-12-31T23:59:59.001Z"),
            ((1_795_260_948, 123_999_999), "2026-11-21T11:35:48.123Z"),
            ((i64::MAX, u32::MAX), "9999-12-31T23:59:59.999Z"),
        ];
        for (time, text) in cases {
            assert_eq!(std::str::from_utf8(&rfc3339(time)).unwrap(), text);
        }
    }

    #[test]
    fn times_for_the_syslog() {
        for (seconds, text) in [
            (0, "Jan  1 00:00:00"),
            (951_782_400, "Feb 29 00:00:00"),
            (1_798_761_599, "Dec 31 23:59:59"),
            (-5, "Jan  1 00:00:00"),
        ] {
            assert_eq!(rfc3164(seconds), text);
        }
    }

    #[test]
    fn dates() {
        assert_eq!(
            date((1_795_310_407, 999_999_999)),
            "2026-11-22 01:20:07 UTC"
        );
    }
}
