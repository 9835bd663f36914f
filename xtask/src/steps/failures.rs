//! The lines of a long output that say which tests failed, and why. They are repeated at the end, where a reader looks first.

/// Lines kept of one command.
const LINES_MAX: usize = 200;
/// Characters kept of each line.
const LINE_CHARS: usize = 2_000;
/// Lines kept from each panic message on: it, the compared values, and what the test had printed of its programs.
const PANIC_LINES: usize = 15;

/// The kept lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Failures {
    lines: Vec<String>,
    /// Number of following lines that belong to the last panic message.
    follows: usize,
}

impl Failures {
    /// Keeps `line` if it names a failed test of nextest, libtest or pytest, or belongs to a panic message.
    pub(super) fn read(&mut self, line: &str) {
        if line.contains("panicked at ") {
            self.follows = PANIC_LINES;
        }
        let is_name = named(line).is_some_and(|name| !self.lines.iter().any(|seen| seen == name));
        if self.lines.len() < LINES_MAX && (is_name || self.follows > 0) {
            let line = named(line).unwrap_or(line);
            self.lines.push(line.chars().take(LINE_CHARS).collect());
        }
        self.follows = self.follows.saturating_sub(1);
    }

    pub(super) fn add(&mut self, other: Self) {
        self.lines.extend(other.lines);
    }

    pub(super) fn lines(&self) -> &[String] {
        &self.lines
    }
}

/// Returns the name of the failed test in a line. Nextest prints each such line twice: in its place, and after the summary.
fn named(line: &str) -> Option<&str> {
    let line = line.trim();
    let libtest = line.strip_prefix("test ");
    if let Some(name) = libtest.and_then(|line| line.strip_suffix(" ... FAILED")) {
        return Some(name);
    }
    // pytest: the name, and the first line of the reason.
    if let Some(name) = line.strip_prefix("FAILED tests/") {
        return Some(name);
    }
    let is_failure = ["FAIL [", "TIMEOUT [", "ABORT [", "SIG"]
        .iter()
        .any(|word| line.starts_with(word));
    // `FAIL [   0.005s] ( 1/96) crate test`, and `SIGSEGV [` likewise.
    let (_, rest) = line.split_once("] ").filter(|_| is_failure)?;
    let rest = rest.trim_start();
    Some(rest.split_once(") ").map_or(rest, |(_, name)| name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_tests_and_panic_messages_are_kept() {
        let mut failures = Failures::default();
        for line in [
            "        PASS [   0.005s] ( 1/96) cli::e2e good",
            "        FAIL [   0.005s] ( 2/96) cli::e2e bad",
            "     TIMEOUT [ 120.005s] cli::e2e slow",
            "     SIGSEGV [   0.005s] (13/96) cli::e2e worse",
            "test one ... ok",
            "test two ... FAILED",
            "        FAIL [   0.005s] ( 2/96) cli::e2e bad",
        ] {
            failures.read(line);
        }
        let names = ["cli::e2e bad", "cli::e2e slow", "cli::e2e worse", "two"];
        assert_eq!(failures.lines(), names);
    }

    #[test]
    fn a_panic_message_is_kept_with_the_lines_after_it() {
        let mut failures = Failures::default();
        failures.read("thread 'two' panicked at a.rs:1:1:");
        for number in 1..1000 {
            failures.read(&number.to_string());
        }
        let lines = failures.lines();
        assert_eq!(lines.len(), PANIC_LINES);
        assert_eq!(lines[PANIC_LINES - 1], (PANIC_LINES - 1).to_string());
    }

    #[test]
    fn lines_are_bounded() {
        let mut failures = Failures::default();
        for number in 0..2 * LINES_MAX {
            failures.read(&format!("test t{number} ... FAILED"));
        }
        assert_eq!(failures.lines().len(), LINES_MAX);
    }
}
