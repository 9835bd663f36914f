//! MPI programs beside other load: two simultaneous jobs, and a job beside a process that computes.

use std::{
    fmt::Write as _,
    path::PathBuf,
    process::{Child, Command},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};

use super::{
    Bench,
    report::{contestant_cell, ratio_cell},
    sample::{Contestant, HANG, Samples, rounds, silent, timed},
};
use crate::{
    env::{Wheel, root},
    steps,
};

/// Steps of one run, which take about half a second if all CPUs are idle.
const STEPS: &str = "250";

const CASES: [(Case, &str, usize); 3] = [
    (Case::TwoJobs, "two jobs of one rank at once", 15),
    (
        Case::Beside,
        "as many ranks as CPUs, beside a busy process",
        15,
    ),
    (
        Case::Crowded,
        "twice as many ranks as CPUs, beside a busy process",
        15,
    ),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Case {
    TwoJobs,
    Beside,
    Crowded,
}

/// A process that computes in its own session, like other work of the user. It is killed on drop.
struct Busy(Child);

impl Busy {
    fn start() -> Result<Self> {
        let mut command = silent("setsid", &["sh", "-c", "while :; do :; done"]);
        Ok(Self(command.spawn().context("setsid")?))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn job(launcher: &PathBuf, own: &[&str], ranks: usize, program: &PathBuf) -> Command {
    let mut command = silent(launcher, own);
    command
        .args(["-n", &ranks.to_string()])
        .arg(program)
        .args(["steps", STEPS]);
    command
}

/// Returns the time from before the start of the first command until both have exited.
fn both(mut first: Command, mut second: Command) -> Result<Duration> {
    let begun = Instant::now();
    thread::scope(|scope| {
        let other = scope.spawn(move || timed(&mut second));
        let one = timed(&mut first);
        match other.join() {
            Ok(other) => other.and(one),
            Err(_) => bail!("the thread of the second job panicked"),
        }
    })?;
    Ok(begun.elapsed())
}

pub(super) fn measure(bench: &Bench) -> Result<String> {
    let program = bench.path("busy-mpich");
    let mut compiler = Command::new(Wheel::Mpich.home().join("bin/mpicc"));
    compiler.args(["-O2", "-o"]).arg(&program);
    steps::execute(compiler.arg(root().join("xtask/src/bench/mpi.c")), HANG)?;
    let cpus = thread::available_parallelism()?.get();
    let mut text =
        String::from("| work | `rally run` | Hydra | ratio | target |\n|---|---|---|---|---|\n");
    for (case, what, enough) in CASES {
        let turn = |launcher: &'static str| -> Box<dyn FnMut() -> Result<Duration> + '_> {
            let program = &program;
            Box::new(move || {
                let job = |ranks| match launcher {
                    "rally" => job(&bench.rally, &["run", "-q"], ranks, program),
                    _ => job(&bench.hydra, &[], ranks, program),
                };
                match case {
                    Case::TwoJobs => both(job(1), job(1)),
                    Case::Beside => timed(&mut job(cpus)),
                    Case::Crowded => timed(&mut job(2 * cpus)),
                }
            })
        };
        let _busy = match case {
            Case::TwoJobs => None,
            Case::Beside | Case::Crowded => Some(Busy::start()?),
        };
        let contestants: Vec<Contestant<'_>> =
            vec![("rally", turn("rally")), ("Hydra", turn("Hydra"))];
        let all = rounds(bench.rounds(enough), contestants);
        let [own, other] = all.as_slice() else {
            bail!("two contestants");
        };
        let (own, other): (&Samples, &Samples) = (own, other);
        writeln!(
            text,
            "| {what} | {} | {} | {} | not above 1 at 95 % |",
            contestant_cell(Some(own)),
            contestant_cell(Some(other)),
            ratio_cell(own.over(other)),
        )?;
    }
    writeln!(
        text,
        "\nMedians in milliseconds of whole runs of MPICH 5 on {cpus} CPUs, {STEPS} steps each: some work, then a barrier; {} \
         rounds. The busy process is one shell that counts, in a session of its own.",
        CASES
            .map(|(_, _, enough)| bench.rounds(enough).to_string())
            .join(", ")
    )?;
    Ok(text)
}
