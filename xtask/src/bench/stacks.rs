//! The time that `dbgr stacks` takes, and the time for which it stops threads.

use std::{
    fmt::Write as _,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};

use super::{Bench, sample::Samples};
use crate::{
    env::{Wheel, cargo, root, text_of},
    release::released,
    steps,
};

const RANKS: usize = 64;
const ROUNDS: usize = 21;
/// Number of samples after the first one; the result is their mean.
const MORE: u32 = 10;
/// GNU time, which prints the peak memory of a program in KiB.
const TIME: &str = "/usr/bin/time";

/// A job whose stacks are sampled.
struct Case {
    name: &'static str,
    command: Command,
    /// Limits of the times of the first sample and of each further one.
    targets: [&'static str; 2],
}

/// Results of the rounds.
#[derive(Debug, Default)]
struct Tally {
    first: Vec<Option<f64>>,
    more: Vec<Option<f64>>,
    peer: Vec<Option<f64>>,
    stopped: Vec<Option<f64>>,
    kib: u64,
}

pub(super) fn measure(bench: &Bench) -> Result<String> {
    let mut text = String::from(
        "| 64 ranks that sleep | whole run of `dbgr stacks` | target | each further sample | target | a thread is stopped, median | target | memory | 64 × `eu-stack` |\n\
         |---|---|---|---|---|---|---|---|---|\n",
    );
    let dbgr = released("dbgr")?;
    for case in cases(bench)? {
        let (name, targets) = (case.name, case.targets);
        let tally = look_at(bench, &dbgr, case)?;
        let cell = |seconds: Vec<Option<f64>>| {
            let samples = Samples { name: "", seconds };
            samples.median().map_or_else(
                || "-".to_owned(),
                |median| format!("{:.1} ms", median * 1e3),
            )
        };
        writeln!(
            text,
            "| {name} | {} | {} | {} | {} | {} | ≤ 0.2 ms | {:.0} MiB | {} |",
            cell(tally.first),
            targets[0],
            cell(tally.more),
            targets[1],
            {
                let samples = Samples {
                    name: "",
                    seconds: tally.stopped,
                };
                samples
                    .median()
                    .map_or_else(|| "-".to_owned(), |it| format!("{:.3} ms", it * 1e3))
            },
            tally.kib as f64 / 1024.0,
            cell(tally.peer),
        )?;
    }
    writeln!(
        text,
        "\nMedians of {} rounds; a round is a run with one sample, a run with {} and one of `eu-stack` (elfutils) for each process, \
         where it is installed. Further samples follow at once. The memory is the most that `dbgr` had with all samples, symbols included; \
         its target is 150 MiB for Open MPI. Finding the ranks is in all of it.\n",
        bench.rounds(ROUNDS),
        MORE + 1
    )?;
    let said = text_of(&mut cargo(&[
        "run",
        "--release",
        "--quiet",
        "-p",
        "debug",
        "--example",
        "merge_million",
    ]))?;
    write!(
        text,
        "```text\n{said}\n```\n\nTarget: at most 2 s at one place.\n"
    )?;
    Ok(text)
}

fn cases(bench: &Bench) -> Result<Vec<Case>> {
    Wheel::Mpi4py.install()?;
    let plain = bench.path("stacks-c");
    compile(&plain, Path::new("cc"), &[])?;
    let openmpi = bench.path("stacks-openmpi");
    compile(&openmpi, &bench.openmpi.with_file_name("mpicc"), &["-DMPI"])?;
    let rally = || {
        let mut command = Command::new(&bench.rally);
        command.args(["run", "-q", "-n", &RANKS.to_string()]);
        // Ends the measurement if a rank never reaches the call in which it should sleep.
        command.args(["--timeout", "10m"]);
        command.env("OMPI_MCA_btl", "^ofi");
        command
    };
    let (mut c, mut mpi, mut python) = (rally(), rally(), rally());
    c.arg(plain);
    mpi.arg(openmpi);
    let home = Wheel::Mpi4py.home();
    let library = bench.hydra.ancestors().nth(2).context("it has no home")?;
    python
        .env("PYTHONPATH", home.join("packages"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("MPI4PY_LIBMPI", library.join("lib/libmpi.so.12"))
        .arg(home.join("bin/python3"))
        .arg(root().join("xtask/src/bench/stacks.py"));
    Ok(vec![
        Case {
            name: "C, one thread",
            command: c,
            targets: ["≤ 50 ms", "-"],
        },
        Case {
            name: "Open MPI 5, three threads",
            command: mpi,
            targets: ["≤ 250 ms", "-"],
        },
        Case {
            name: "Python with mpi4py",
            command: python,
            targets: ["≤ 350 ms", "≤ 60 ms"],
        },
    ])
}

/// Compiles the program whose ranks sleep.
pub(super) fn compile(program: &Path, compiler: &Path, options: &[&str]) -> Result<()> {
    let mut command = Command::new(compiler);
    command.args(["-g", "-O2", "-fno-optimize-sibling-calls", "-o"]);
    command
        .arg(program)
        .arg(root().join("xtask/src/bench/stacks.c"))
        .args(options);
    steps::execute(&mut command, Duration::from_secs(60))
}

fn look_at(bench: &Bench, dbgr: &Path, mut case: Case) -> Result<Tally> {
    let mut job = case.command.stdout(Stdio::piped()).spawn()?;
    let tally = ready(&mut job, RANKS).and_then(|()| rounds(bench, dbgr, &job));
    signal::kill(Pid::from_raw(i32::try_from(job.id())?), Signal::SIGTERM)?;
    job.wait()?;
    tally
}

/// Waits until all ranks sleep.
pub(super) fn ready(job: &mut Child, ranks: usize) -> Result<()> {
    let stdout = job.stdout.take().context("it has no stdout")?;
    let lines = BufReader::new(stdout).lines();
    let seen = lines.map_while(Result::ok).filter(|it| it == "ready");
    if seen.take(ranks).count() < ranks {
        bail!("not all ranks came to where they sleep");
    }
    Ok(())
}

fn rounds(bench: &Bench, dbgr: &Path, job: &Child) -> Result<Tally> {
    let job = job.id().to_string();
    let pids = text_of(Command::new("pgrep").args(["-f", "stacks[-.]"]))?;
    let pids: Vec<&str> = pids.split_whitespace().collect();
    let mut tally = Tally::default();
    // The first round is a warm-up and does not count.
    for round in 0..=bench.rounds(ROUNDS) {
        let (first, _) = run(dbgr, &job, 1)?;
        let (all, said) = run(dbgr, &job, MORE + 1)?;
        let peer = Instant::now();
        let unwound = pids.iter().all(|pid| {
            let mut command = Command::new("eu-stack");
            command
                .args(["-p", pid])
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            command.status().is_ok()
        });
        if round == 0 {
            continue;
        }
        tally.first.push(Some(first.as_secs_f64()));
        let more = all.saturating_sub(first) / MORE;
        tally.more.push(Some(more.as_secs_f64()));
        tally
            .peer
            .push(unwound.then(|| peer.elapsed().as_secs_f64()));
        tally.stopped.push(stopped(&said));
        tally.kib = tally.kib.max(
            said.lines()
                .filter_map(|line| line.parse().ok())
                .max()
                .unwrap_or(0),
        );
    }
    Ok(tally)
}

/// Runs `dbgr` once; returns the time and its output.
fn run(dbgr: &Path, job: &str, looks: u32) -> Result<(Duration, String)> {
    let mut command = if Path::new(TIME).exists() {
        let mut command = Command::new(TIME);
        command.args(["-f", "%M"]).arg(dbgr);
        command
    } else {
        Command::new(dbgr)
    };
    command.args(["stacks", job, "--timing", "--every", "0s", "--samples"]);
    command.arg(looks.to_string());
    let start = Instant::now();
    let output = command.output()?;
    let took = start.elapsed();
    if !output.status.success() {
        bail!("{command:?} failed");
    }
    let text = [output.stdout, output.stderr].concat();
    Ok((took, String::from_utf8_lossy(&text).into_owned()))
}

/// Parses `64 threads were stopped for 0.05 ms at the median, ...`; returns seconds.
fn stopped(said: &str) -> Option<f64> {
    let (_, rest) = said.split_once(" stopped for ")?;
    let ms: f64 = rest.split_once(" ms")?.0.parse().ok()?;
    Some(ms / 1e3)
}
