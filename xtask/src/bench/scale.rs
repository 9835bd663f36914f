//! Simulated jobs on 100 to 100,000 nodes of ten ranks: the table of docs/scaling.md.
//!
//! The simulator measures what happens inside it. We measure its time and its memory: it waits after it has printed its
//! result.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};

use super::sample::watched;
use crate::{
    env::{cargo, target},
    steps,
};

const NODES: [u32; 4] = [100, 1_000, 10_000, 100_000];
/// Time limit of the build.
const LIMIT: Duration = Duration::from_secs(20 * 60);

/// Time limit of one size.
const RUN_MAX: Duration = Duration::from_secs(30 * 60);

/// The names of the numbers of one size, and the numbers.
type Column = Vec<(String, String)>;

/// Prints the numbers of each size, and the table, one column for each size that was measured.
pub(super) fn measure() -> Result<()> {
    let args = ["build", "--locked", "--release", "-p", "sim"];
    steps::execute(&mut cargo(&args), LIMIT)?;
    let mut columns = Vec::new();
    for nodes in NODES {
        match column(nodes) {
            Ok(column) => {
                println!("{column:?}");
                columns.push(column);
            }
            // The others are worth printing.
            Err(error) => println!("{nodes} nodes: {error:#}"),
        }
    }
    let mut text = String::new();
    for index in 0..columns.first().map_or(0, Vec::len) {
        let cells = columns.iter().map(|column| column[index].1.as_str());
        let name = columns[0][index].0.as_str();
        let cells = std::iter::once(name).chain(cells).collect::<Vec<_>>();
        text.push_str(&format!("| {} |\n", cells.join(" | ")));
        if index == 0 {
            text.push_str(&"|---".repeat(cells.len()));
            text.push_str("|\n");
        }
    }
    print!("{text}");
    ensure!(columns.len() == NODES.len(), "not all sizes were measured");
    Ok(())
}

/// Runs one size.
fn column(nodes: u32) -> Result<Column> {
    let mut child = Command::new(target().join("release/sim"))
        .args(["--scale", &nodes.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start the simulator")?;
    let measured = watched(RUN_MAX, &mut child, observe);
    // It has ended, unless observing it failed.
    let _ = child.kill();
    child.wait()?;
    measured
}

fn observe(child: &mut Child) -> Result<Column> {
    let since = Instant::now();
    let stdout = child.stdout.take().context("no output")?;
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line)?;
    let seconds = since.elapsed().as_secs_f64();
    // The simulator waits for the end of its input.
    let status = fs::read_to_string(format!("/proc/{}/status", child.id()))?;
    let mut numbers = parse(&line)?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak = peak.and_then(|rest| rest.trim().strip_suffix(" kB"));
    let peak: u64 = peak.context("no VmHWM")?.trim().parse()?;
    let ranks = numbers.iter().find(|(name, _)| name == "ranks");
    let ranks: u64 = ranks.context("no number of ranks")?.1.parse()?;
    numbers.push((
        "memory_bytes_per_rank".to_owned(),
        (peak * 1024 / ranks).to_string(),
    ));
    numbers.push(("memory_mib".to_owned(), (peak / 1024).to_string()));
    numbers.push(("seconds".to_owned(), format!("{seconds:.1}")));
    Ok(numbers)
}

/// Returns the fields of the simulator's line, which is `Measured { name: value, ... }`.
fn parse(line: &str) -> Result<Vec<(String, String)>> {
    let fields = line.trim().strip_prefix("Measured { ");
    let fields = fields.and_then(|fields| fields.strip_suffix(" }"));
    let fields = fields.with_context(|| format!("the simulator printed `{line}`"))?;
    let fields = fields.split(", ").map(|field| {
        let (name, value) = field.split_once(": ")?;
        Some((name.to_owned(), value.to_owned()))
    });
    fields
        .collect::<Option<Vec<_>>>()
        .with_context(|| format!("the simulator printed `{line}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_the_simulator_is_split() {
        let two =
            [("a", "1"), ("b", "2.5s")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(parse("Measured { a: 1, b: 2.5s }\n").unwrap(), two);
        assert!(parse("error: no").is_err());
    }
}
