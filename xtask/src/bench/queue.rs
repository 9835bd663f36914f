//! The time of a pass of the queue: a large, busy machine with a long queue, in the simulator.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};

use crate::{
    env::{cargo, target},
    steps,
};

const JOBS: u32 = 100_000;
const NODES: u32 = 10_000;
/// Passes that are timed, after the first.
const PASSES: usize = 1_000;
/// Time limit of the build.
const LIMIT: Duration = Duration::from_secs(20 * 60);

/// Prints the time of the first pass, which fills the machine, and the median and the longest of the following ones.
pub(super) fn measure() -> Result<()> {
    let args = ["build", "--locked", "--release", "-p", "sim"];
    steps::execute(&mut cargo(&args), LIMIT)?;
    let mut child = Command::new(target().join("release/sim"))
        .args(["--queue", &JOBS.to_string(), &NODES.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start the simulator")?;
    let mut input = child.stdin.take().context("no stdin")?;
    let output = child.stdout.take().context("no stdout")?;
    let mut lines = BufReader::new(output).lines();
    let mut line = || {
        lines
            .next()
            .context("the simulator has ended")?
            .context("cannot read")
    };
    let mut times = Vec::new();
    for pass in 0..=PASSES {
        ensure!(line()? == "ready", "the simulator is not ready");
        let started = Instant::now();
        writeln!(input, "go")?;
        ensure!(line()? == "passed", "the simulator has not passed");
        times.push(started.elapsed());
        let passed = line()?;
        if pass == 0 || pass == PASSES {
            println!("{passed}");
        }
    }
    drop(input);
    child.wait()?;
    let first = times.remove(0);
    times.sort_unstable();
    let millis = |time: Duration| time.as_secs_f64() * 1e3;
    println!(
        "{JOBS} jobs, {NODES} nodes: the first pass {:.1} ms, {PASSES} further ones {:.2} ms (median), {:.2} ms (longest)",
        millis(first),
        millis(times[PASSES / 2]),
        millis(times[PASSES - 1]),
    );
    Ok(())
}
