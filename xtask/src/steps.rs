//! The steps of a task. Each has a time limit, a result, and a row in the final table.

mod failures;

use std::{
    fmt::Write as _,
    io::{BufRead, BufReader, Read},
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};

use self::failures::Failures;

/// Numbers of passed, failed and skipped tests, and what the failed ones printed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u32,
    pub(crate) failed: u32,
    pub(crate) skipped: u32,
    failures: Failures,
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.failures.add(other.failures);
    }

    /// Adds the numbers in a line if it is the summary of nextest, of a libtest binary, or of pytest. Keeps it if it says what failed.
    fn read(&mut self, line: &str) {
        self.failures.read(line);
        let line = line.trim();
        let of_rust = line.starts_with("test result:") || line.starts_with("Summary [");
        if !of_rust && !is_of_pytest(line) {
            return;
        }
        let words = line
            .split([' ', ',', ';', '(', ')', '.'])
            .filter(|word| !word.is_empty())
            .collect::<Vec<_>>();
        for pair in words.windows(2) {
            let [count, what] = pair else { continue };
            let Ok(count) = count.parse::<u32>() else {
                continue;
            };
            match *what {
                "passed" => self.passed += count,
                "failed" | "error" | "errors" => self.failed += count,
                // Nextest counts tests that exceeded their time limit separately.
                "timed" => self.failed += count,
                "ignored" | "skipped" => self.skipped += count,
                _ => {}
            }
        }
    }
}

/// Returns true for a line such as `1 failed, 39 passed in 10.53s`.
fn is_of_pytest(line: &str) -> bool {
    let Some((counts, time)) = line.split_once(" in ") else {
        return false;
    };
    let is_count = |part: &str| {
        part.split_once(' ').is_some_and(|(count, what)| {
            let known = [
                "passed", "failed", "skipped", "error", "errors", "warning", "warnings",
            ];
            count.parse::<u32>().is_ok() && known.contains(&what)
        })
    };
    time.starts_with(|letter: char| letter.is_ascii_digit()) && counts.split(", ").all(is_count)
}

#[derive(Debug)]
enum Verdict {
    Done(Tally),
    Failed { tally: Tally, why: String },
    Skipped(String),
}

/// Results of the steps so far.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    rows: Vec<(String, Duration, Verdict)>,
    /// Prefixes of the names of the steps to run; empty means all.
    only: Vec<String>,
}

impl Steps {
    pub(crate) const fn new(only: Vec<String>) -> Self {
        Self {
            rows: Vec::new(),
            only,
        }
    }

    /// Runs one step; a failure does not end the task. Returns true if the step succeeded or was not requested.
    pub(crate) fn run(&mut self, name: &str, step: impl FnOnce(&mut Tally) -> Result<()>) -> bool {
        if !self.wants(name) {
            return true;
        }
        println!("=== {name}");
        let started = Instant::now();
        let mut tally = Tally::default();
        let verdict = match step(&mut tally) {
            Ok(()) => Verdict::Done(tally),
            Err(error) => {
                println!("=== {name} failed: {error:#}");
                Verdict::Failed {
                    tally,
                    why: format!("{error:#}"),
                }
            }
        };
        let good = matches!(verdict, Verdict::Done(_));
        self.rows
            .push((name.to_owned(), started.elapsed(), verdict));
        good
    }

    /// Records a step that cannot run here; it counts as skipped.
    pub(crate) fn skip(&mut self, name: &str, why: &str) {
        if self.wants(name) {
            println!("=== {name} skipped: {why}");
            self.rows.push((
                name.to_owned(),
                Duration::ZERO,
                Verdict::Skipped(why.to_owned()),
            ));
        }
    }

    /// Returns true if the user has requested this step, or has requested none by name.
    pub(crate) fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| name.starts_with(only.as_str()))
    }

    /// Prints the final table and summary. Returns an error if a step has failed.
    pub(crate) fn close(self) -> Result<()> {
        let (mut passed, mut failed, mut skipped) = (0, 0, 0);
        let mut failures = 0;
        let mut table = String::from("\nwhere the time went:\n");
        // Last, because a reader of a long log starts at its end.
        let mut what_failed = String::new();
        for (name, time, verdict) in &self.rows {
            let result = match verdict {
                Verdict::Done(tally) if *tally == Tally::default() => {
                    passed += 1;
                    "ok".to_owned()
                }
                Verdict::Done(tally) => {
                    passed += tally.passed;
                    skipped += tally.skipped;
                    format!("ok, {} passed", tally.passed)
                }
                Verdict::Failed { tally, why } => {
                    failures += 1;
                    passed += tally.passed;
                    failed += tally.failed.max(1);
                    skipped += tally.skipped;
                    writeln!(what_failed, "=== what failed in {name}:")?;
                    for line in tally.failures.lines() {
                        writeln!(what_failed, "{line}")?;
                    }
                    format!("FAILED: {}", why.lines().next().unwrap_or_default())
                }
                Verdict::Skipped(why) => {
                    skipped += 1;
                    format!("skipped: {why}")
                }
            };
            let seconds = time.as_secs();
            writeln!(
                table,
                "{:>4}:{:02}  {name:<28} {result}",
                seconds / 60,
                seconds % 60
            )?;
        }
        let all = self
            .rows
            .iter()
            .map(|(_, time, _)| *time)
            .sum::<Duration>()
            .as_secs();
        writeln!(table, "{:>4}:{:02}  in all", all / 60, all % 60)?;
        println!("{table}");
        print!("{what_failed}");
        println!("{passed} passed, {failed} failed, {skipped} skipped");
        if failures > 0 {
            bail!("{failures} of {} steps failed", self.rows.len());
        }
        Ok(())
    }
}

/// Runs a command with our stdout and stderr and an empty stdin, and waits until it exits with 0. Fails after `limit`.
pub(crate) fn execute(command: &mut Command, limit: Duration) -> Result<()> {
    execute_with(Stdio::null(), command, limit)
}

/// Runs a command like [`execute`], with this stdin.
pub(crate) fn execute_with(
    stdin: impl Into<Stdio>,
    command: &mut Command,
    limit: Duration,
) -> Result<()> {
    command.stdin(stdin);
    let line = shown(command);
    println!("+ {line}");
    let child = command
        .spawn()
        .with_context(|| format!("cannot run {line}"))?;
    succeed(&line, wait(child, limit)?)
}

/// Runs a command like [`execute`], and counts the tests that its output reports.
pub(crate) fn execute_tests(
    command: &mut Command,
    limit: Duration,
    tally: &mut Tally,
) -> Result<()> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let line = shown(command);
    println!("+ {line}");
    let mut child = command
        .spawn()
        .with_context(|| format!("cannot run {line}"))?;
    let stdout = child.stdout.take().map(tee);
    let stderr = child.stderr.take().map(tee);
    let status = wait(child, limit);
    for reader in [stdout, stderr].into_iter().flatten() {
        if let Ok(part) = reader.join() {
            tally.add(part);
        }
    }
    succeed(&line, status?)
}

/// Copies a stream to stdout line by line and counts the tests in its summaries.
fn tee(stream: impl Read + Send + 'static) -> thread::JoinHandle<Tally> {
    thread::spawn(move || {
        let mut tally = Tally::default();
        for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line);
            println!("{line}");
            tally.read(&line);
        }
        tally
    })
}

fn wait(mut child: Child, limit: Duration) -> Result<ExitStatus> {
    let pid = Pid::from_raw(i32::try_from(child.id())?);
    let (sender, ended) = mpsc::channel();
    thread::spawn(move || {
        // After the time limit there is no receiver any more.
        let _ = sender.send(child.wait());
    });
    match ended.recv_timeout(limit) {
        Ok(status) => Ok(status?),
        Err(_) => {
            // SIGTERM first, so that cargo and nextest can kill their children.
            const GRACE: Duration = Duration::from_secs(10);
            signal::kill(pid, Signal::SIGTERM)?;
            if ended.recv_timeout(GRACE).is_err() {
                signal::kill(pid, Signal::SIGKILL)?;
            }
            bail!("it took longer than {} s", limit.as_secs());
        }
    }
}

fn succeed(line: &str, status: ExitStatus) -> Result<()> {
    if !status.success() {
        bail!("{line}: {status}");
    }
    Ok(())
}

fn shown(command: &Command) -> String {
    let mut text = command.get_program().display().to_string();
    for arg in command.get_args() {
        let _ = write!(text, " {}", arg.display());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_are_counted() {
        let cases = [
            (
                "test result: ok. 4 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.01s",
                (4, 0, 1),
            ),
            (
                "     Summary [   0.020s] 7 tests run: 7 passed, 0 skipped",
                (7, 0, 0),
            ),
            (
                "     Summary [   1.000s] 9 tests run: 6 passed (1 slow), 2 failed, 1 timed out, 3 skipped",
                (6, 3, 3),
            ),
            ("test a_name ... ok", (0, 0, 0)),
            ("3 passed, 4 failed", (0, 0, 0)),
            (
                "1 failed, 39 passed, 2 skipped in 65.53s (0:01:05)",
                (39, 1, 2),
            ),
            ("40 passed in 1.2s", (40, 0, 0)),
            ("2 passed in a row", (0, 0, 0)),
        ];
        for (line, numbers) in cases {
            let mut tally = Tally::default();
            tally.read(line);
            let counted = (tally.passed, tally.failed, tally.skipped);
            assert_eq!(counted, numbers, "{line}");
        }
    }

    #[test]
    fn a_command_over_its_limit_is_ended() {
        let started = Instant::now();
        let result = execute(Command::new("sleep").arg("1000"), Duration::from_millis(50));
        assert!(result.unwrap_err().to_string().contains("longer than"));
        assert!(started.elapsed() < Duration::from_secs(60));
    }
}
