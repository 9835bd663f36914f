//! The only source of time.

use std::{
    mem::MaybeUninit,
    sync::OnceLock,
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use base::Time;

/// The start of the process: the time of the first call of [`Clock::now`]. A forked child keeps its parent's start, so that
/// times of front and controller are comparable.
static START: OnceLock<Instant> = OnceLock::new();

/// The monotonic clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock;

impl Clock {
    /// Returns the time since the process started (CLOCK_MONOTONIC, about 25 ns per call, no system call). Call it first in
    /// `main`: the first call defines the start.
    #[must_use]
    pub fn now() -> Time {
        let nanos = START.get_or_init(Instant::now).elapsed().as_nanos();
        Time::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Returns the time until `deadline`, or zero if it has passed.
    #[must_use]
    pub fn until(deadline: Time) -> Duration {
        deadline.since(Self::now())
    }
}

/// Blocks the thread for some milliseconds, to wait for something that no event announces.
pub fn sleep(time: Duration) {
    thread::sleep(time);
}

/// Returns seconds and nanoseconds since 1970 UTC, for timestamps that people read. Never measure durations with it.
#[must_use]
pub fn wall_clock() -> (i64, u32) {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => (
            i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
            since.subsec_nanos(),
        ),
        // A clock before 1970 means that the node has no working clock.
        Err(_) => (0, 0),
    }
}

/// Returns what a clock that shows the local time shows, in seconds since 1970. It shows UTC if the time zone is not known.
#[must_use]
#[expect(unsafe_code, reason = "only libc knows the time zone")]
pub fn local_seconds() -> i64 {
    let (seconds, _) = wall_clock();
    let mut parts = MaybeUninit::<libc::tm>::zeroed();
    // SAFETY: both pointers are to values of this function, and the second one has room for a `tm`, of which zeroes are a value.
    let parts = unsafe {
        libc::localtime_r(&raw const seconds, parts.as_mut_ptr());
        parts.assume_init()
    };
    seconds.saturating_add(parts.tm_gmtoff)
}

/// Returns the local time as C's `ctime` writes it, without the line feed: `Sat Nov 21 10:00:00 2026`. Seconds are since 1970 UTC.
/// Returns `None` if the year does not fit its type.
#[must_use]
#[expect(unsafe_code, reason = "only libc knows the time zone")]
pub fn local_date(seconds: i64) -> Option<String> {
    /// The text has 24 bytes until the year 9999.
    const BYTES: usize = 64;
    let mut parts = MaybeUninit::<libc::tm>::zeroed();
    let mut text = [0_u8; BYTES];
    let format = c"%a %b %e %H:%M:%S %Y";
    // SAFETY: the pointers are to values of this function or constants. `parts` is read only if it was written, and `strftime` writes at
    // most `BYTES` bytes, and returns how many.
    let length = unsafe {
        if libc::localtime_r(&raw const seconds, parts.as_mut_ptr()).is_null() {
            return None;
        }
        let text = text.as_mut_ptr().cast();
        libc::strftime(text, BYTES, format.as_ptr(), parts.as_ptr())
    };
    let text = text.get(..length).filter(|text| !text.is_empty())?;
    Some(String::from_utf8_lossy(text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_forward_and_deadlines_pass() {
        let first = Clock::now();
        let second = Clock::now();
        assert!(second >= first);
        assert_eq!(Clock::until(first), Duration::ZERO);
        assert!(Clock::until(first + Duration::from_secs(3600)) > Duration::from_secs(3500));
        assert!(wall_clock().0 > 1_700_000_000);
        assert!(local_seconds().abs_diff(wall_clock().0) <= 15 * 3600);
    }

    #[test]
    fn a_date_is_as_ctime_writes_it() {
        // The middle of a month and a year is in them in every time zone.
        let date = local_date(1_781_524_805).unwrap();
        assert_eq!(date.len(), 24, "{date}");
        let words: Vec<&str> = date.split(' ').collect();
        assert_eq!((words[1], words[4]), ("Jun", "2026"), "{date}");
        // The day has two places.
        let date = local_date(1_780_660_800).unwrap();
        assert!(
            date.contains(" Jun  5 ") || date.contains(" Jun  6 "),
            "{date}"
        );
        assert_eq!(local_date(i64::MAX), None);
    }
}
