//! The time until all ranks are held for a debugger, and a check that they are stopped.

use std::{
    fmt::Write as _,
    fs,
    io::BufReader,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use mischief::Proc;
use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};

use super::{
    Bench,
    sample::{Samples, finish},
};
use crate::env::root;

/// Number of ranks, number of runs, and the limit of the median in milliseconds.
const CASES: [(usize, usize, u32); 2] = [(64, 100, 30), (1_000, 100, 300)];

/// Number of runs under gdb.
const DEBUGGED: usize = 20;
/// Number of ranks of a job under gdb.
const DEBUGGED_RANKS: usize = 64;
/// Time of `srun` on this computer from gdb's `run` to `MPIR_Breakpoint`, with 4 ranks on 2 nodes. `SRUN_RATIO_MAX` is the
/// factor by which we may be slower.
const SRUN: Duration = Duration::from_millis(310);
const SRUN_RATIO_MAX: f64 = 1.3;

pub(super) fn measure(bench: &Bench) -> Result<String> {
    let mut text = String::from(
        "| | median, ms | worst, ms | runs | with a rank short | target, ms |\n|---|---|---|---|---|---|\n",
    );
    for (ranks, enough, target) in CASES {
        let runs = bench.rounds(enough);
        let mut held = Tally::default();
        // The first run is a warm-up and does not count.
        for run in 0..=runs {
            let (took, stand) = stop_on_exec(bench, ranks)?;
            if run > 0 {
                held.add(took, stand == ranks);
            }
        }
        let name = format!("`--stop-on-exec`, {ranks} ranks, to *all held*");
        writeln!(text, "{}", held.row(&name, &format!("≤ {target}")))?;
    }
    let (mut inside, mut whole) = (Tally::default(), Tally::default());
    for run in 0..=bench.rounds(DEBUGGED) {
        let debugged = under_gdb(bench, DEBUGGED_RANKS)?;
        if run > 0 {
            let all = debugged.stand == DEBUGGED_RANKS;
            inside.add(debugged.from_run, all);
            whole.add(debugged.whole, all);
        }
    }
    let most = SRUN.as_secs_f64() * SRUN_RATIO_MAX * 1e3;
    writeln!(
        text,
        "{}\n{}",
        inside.row(
            &format!("gdb, from `run` to `MPIR_Breakpoint`, {DEBUGGED_RANKS} ranks held"),
            &format!("≤ {most:.0}"),
        ),
        whole.row("the same, with the start of gdb before it", "-"),
    )?;
    writeln!(
        text,
        "\nFrom before the start of `rally` to the message that all ranks are held, on a pipe; then every rank is looked at in \
         `/proc`: one that is not stopped (state T), or is traced, makes its run short. gdb measures itself, and looks at the ranks at \
         the breakpoint. The target for it is {SRUN_RATIO_MAX} times what `srun` of Slurm 22.05 took for 4 ranks, {} ms.",
        SRUN.as_millis()
    )?;
    Ok(text)
}

/// Times, and the number of runs in which not every rank was stopped.
#[derive(Debug, Default)]
struct Tally {
    seconds: Vec<Option<f64>>,
    short: usize,
}

impl Tally {
    fn add(&mut self, took: Duration, all: bool) {
        self.seconds.push(Some(took.as_secs_f64()));
        self.short += usize::from(!all);
    }

    fn row(&self, name: &str, target: &str) -> String {
        let samples = Samples {
            name: "held",
            seconds: self.seconds.clone(),
        };
        let worst = samples.good().into_iter().fold(0.0, f64::max);
        format!(
            "| {name} | {:.1} | {:.1} | {} | {} | {target} |",
            samples.median().unwrap_or(f64::NAN) * 1e3,
            worst * 1e3,
            self.seconds.len(),
            self.short,
        )
    }
}

/// Reads up to and including the first line that contains `text`, and returns that line.
fn line_with(reader: &mut impl std::io::BufRead, text: &str) -> Result<String> {
    let mut line = String::new();
    loop {
        line.clear();
        if reader.read_line(&mut line)? == 0 {
            bail!("it ended without a word of {text:?}");
        }
        if line.contains(text) {
            return Ok(line);
        }
    }
}

/// Returns the time until all ranks are held and the number of stopped ranks, then releases the ranks.
fn stop_on_exec(bench: &Bench, ranks: usize) -> Result<(Duration, usize)> {
    let mut command = Command::new(&bench.rally);
    command
        .args(["run", "--stop-on-exec", "-n", &ranks.to_string()])
        .arg("/bin/true")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let started = Instant::now();
    let mut child = command.spawn().with_context(|| format!("{command:?}"))?;
    let stderr = child.stderr.take().context("stderr is a pipe")?;
    let mut stderr = BufReader::new(stderr);
    line_with(&mut stderr, " held at the first instruction")?;
    let took = started.elapsed();
    let stand = standing(&child)?;
    signal::kill(Pid::from_raw(i32::try_from(child.id())?), Signal::SIGCONT)?;
    // Read the rest of the output, so that no writer blocks on a full pipe.
    std::io::copy(&mut stderr, &mut std::io::sink())?;
    finish(child, &command)?;
    Ok((took, stand))
}

/// Returns the number of ranks of a front that are stopped and have no tracer.
fn standing(front: &Child) -> Result<usize> {
    let only_child = |pid: i32| match children(pid)?[..] {
        [child] => Ok(child),
        ref other => bail!("process {pid} has the children {other:?}"),
    };
    let guardian = only_child(i32::try_from(front.id())?)?;
    let controller = only_child(guardian)?;
    let stands = |pid: &i32| {
        Proc::read(*pid).is_some_and(|rank| {
            rank.state == 'T' && rank.status("TracerPid").as_deref() == Some("0")
        })
    };
    Ok(children(controller)?
        .iter()
        .filter(|pid| stands(pid))
        .count())
}

fn children(pid: i32) -> Result<Vec<i32>> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
    Ok(text
        .split_whitespace()
        .map(str::parse)
        .collect::<Result<_, _>>()?)
}

struct Debugged {
    /// Time from gdb's `run` to the breakpoint.
    from_run: Duration,
    /// Time from before the start of gdb to the breakpoint.
    whole: Duration,
    stand: usize,
}

fn under_gdb(bench: &Bench, ranks: usize) -> Result<Debugged> {
    let mut command = Command::new("gdb");
    command
        .args(["-nx", "-batch", "-iex", "set debuginfod enabled off", "-x"])
        .arg(root().join("xtask/src/bench/hold.gdb"))
        .arg("--args")
        .arg(&bench.rally)
        .args(["run", "-n", &ranks.to_string(), "/bin/true"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let started = Instant::now();
    let mut child = command.spawn().with_context(|| format!("{command:?}"))?;
    let stdout = child.stdout.take().context("stdout is a pipe")?;
    let mut stdout = BufReader::new(stdout);
    // gdb prints this line at the breakpoint, before it continues with its script.
    line_with(&mut stdout, "Breakpoint 1, ")?;
    let whole = started.elapsed();
    let line = line_with(&mut stdout, "run-to-breakpoint ")?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let [_, seconds, _, stand] = words[..] else {
        bail!("gdb's script said {line:?}");
    };
    std::io::copy(&mut stdout, &mut std::io::sink())?;
    finish(child, &command)?;
    Ok(Debugged {
        from_run: Duration::from_secs_f64(seconds.parse()?),
        whole,
        stand: stand.parse()?,
    })
}
