//! Phrases that several messages share.

use std::time::Duration;

/// Returns a duration as text with its units: `10 s`, `1.5 s`, `2 min`, `1 h 30 min`.
///
/// A duration with a fraction of at least a millisecond is in seconds only, with at most three decimals. A smaller
/// fraction is dropped.
#[must_use]
pub fn duration(time: Duration) -> String {
    let seconds = time.as_secs();
    if time.subsec_millis() > 0 {
        return format!("{} s", time.as_millis() as f64 / 1000.0);
    }
    let (hours, minutes, rest) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let parts = [(hours, "h"), (minutes, "min"), (rest, "s")];
    let shown = parts
        .iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, unit)| format!("{number} {unit}"))
        .collect::<Vec<_>>();
    if shown.is_empty() {
        "0 s".to_owned()
    } else {
        shown.join(" ")
    }
}
