//! The speed at which the output of four ranks reaches a pipe.

use std::{
    fmt::Write as _,
    fs::File,
    io::Read,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};

use super::{
    Bench,
    report::{rate_cell, ratio_cell},
    sample::{Contestant, Samples, finish, rounds},
};

const RANKS: u64 = 4;
const BYTES_EACH: u64 = 256 << 20;
const ROUNDS: usize = 7;

pub(super) fn measure(bench: &Bench) -> Result<String> {
    // Every rank runs `cat` on the same file, which is in the page cache after the first round.
    let file = bench.path("output");
    lines(&file)?;
    let name = file.to_string_lossy().into_owned();
    let ranks = RANKS.to_string();
    let four = "cat \"$0\" & cat \"$0\" & cat \"$0\" & cat \"$0\" & wait";
    let launch = |program: &std::path::Path, before: &[&str]| {
        let mut command = Command::new(program);
        command.args(before).args(["-n", &ranks, "cat", &name]);
        command
    };
    let contestants: Vec<Contestant<'_>> = vec![
        (
            "rally",
            Box::new(|| drained(&mut launch(&bench.rally, &["run"]))),
        ),
        (
            "Hydra",
            Box::new(|| drained(&mut launch(&bench.hydra, &[]))),
        ),
        (
            "Open MPI",
            Box::new(|| {
                drained(&mut launch(
                    &bench.openmpi,
                    &["--allow-run-as-root", "--oversubscribe"],
                ))
            }),
        ),
        (
            "four cat",
            Box::new(|| drained(Command::new("/bin/sh").args(["-c", four, &name]))),
        ),
    ];
    let count = bench.rounds(ROUNDS);
    let all = rounds(count, contestants);
    std::fs::remove_file(&file)?;
    let of = |name: &str| {
        all.iter()
            .find(|samples| samples.name == name)
            .context("no such contestant")
    };
    let rally = of("rally")?;
    let best = [of("Hydra")?, of("Open MPI")?]
        .into_iter()
        .filter(|samples| samples.median().is_some())
        .min_by(|a, b| {
            a.median()
                .unwrap_or(f64::MAX)
                .total_cmp(&b.median().unwrap_or(f64::MAX))
        });
    let faster = |other: &Samples| rally.over(other).map(super::sample::Ratio::inverse);
    let mut text =
        String::from("| | GiB/s | rally's rate / its rate | target |\n|---|---|---|---|\n");
    for samples in &all {
        let target = match samples.name {
            "four cat" => "≥ 0.7",
            name if best.is_some_and(|best| best.name == name) => "≥ 2 (the best peer)",
            _ => "-",
        };
        writeln!(
            text,
            "| {} | {} | {} | {target} |",
            samples.name,
            rate_cell(Some(samples), RANKS * BYTES_EACH),
            if samples.name == "rally" {
                "1".to_owned()
            } else {
                ratio_cell(faster(samples))
            },
        )?;
    }
    writeln!(
        text,
        "\n{RANKS} ranks, each `cat` of a file of 256 MiB of lines in memory; all of it read from a pipe and counted; \
         {count} rounds. A run that lost a byte counts as failed."
    )?;
    Ok(text)
}

/// Writes a file of `BYTES_EACH` bytes with lines of 80 bytes, a length typical of programs.
fn lines(path: &std::path::Path) -> Result<()> {
    use std::io::Write as _;
    let line = format!("{}\n", "0123456789".repeat(8).get(1..).unwrap_or_default());
    let block = line.repeat((1 << 20) / line.len());
    let mut file = File::create(path)?;
    let mut left = usize::try_from(BYTES_EACH)?;
    while left > 0 {
        let part = left.min(block.len());
        file.write_all(block.as_bytes().get(..part).unwrap_or_default())?;
        left -= part;
    }
    Ok(())
}

fn drained(command: &mut Command) -> Result<Duration> {
    let started = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("{command:?}"))?;
    let mut stdout = child.stdout.take().context("no pipe")?;
    let mut block = vec![0; 1 << 20];
    let mut bytes = 0u64;
    loop {
        let got = stdout.read(&mut block)?;
        if got == 0 {
            break;
        }
        bytes += got as u64;
    }
    finish(child, command)?;
    if bytes != RANKS * BYTES_EACH {
        bail!("{bytes} bytes arrived instead of {}", RANKS * BYTES_EACH);
    }
    Ok(started.elapsed())
}
