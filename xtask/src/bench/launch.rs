//! The time of a whole launch of `/bin/true`.

use std::{fmt::Write as _, process::Command};

use anyhow::Result;

use super::{
    Bench,
    report::{contestant_cell, ratio_cell},
    sample::{Contestant, Samples, rounds, silent, timed},
};
use crate::{env::root, steps};

/// Number of ranks, number of rounds, and the limits of the ratios to Hydra and to the C loop; `None` if there is no limit.
const CASES: [(u32, usize, f64, Option<f64>); 3] = [
    (1, 61, 0.8, None),
    (64, 31, 0.75, Some(1.2)),
    (256, 15, 0.75, Some(1.2)),
];

/// Maximum number of ranks with Open MPI's launcher. With more ranks it takes seconds and sometimes hangs.
const OPEN_MPI_RANKS_MAX: u32 = 64;

pub(super) fn measure(bench: &Bench) -> Result<String> {
    let floor = bench.path("spawn");
    let source = root().join("xtask/src/bench/spawn.c");
    let mut compiler = Command::new("cc");
    steps::execute(
        compiler.args(["-O2", "-o"]).arg(&floor).arg(source),
        super::sample::HANG,
    )?;
    let mut text = String::from(
        "| ranks | `rally run` | Hydra | Open MPI | C loop of posix_spawn | rally / Hydra | target | rally / C loop | target |\n\
         |---|---|---|---|---|---|---|---|---|\n",
    );
    for (ranks, enough, of_hydra, of_floor) in CASES {
        let count = ranks.to_string();
        let mut contestants: Vec<Contestant<'_>> = vec![
            (
                "rally",
                Box::new(|| {
                    timed(&mut silent(
                        &bench.rally,
                        &["run", "-n", &count, "/bin/true"],
                    ))
                }),
            ),
            (
                "Hydra",
                Box::new(|| timed(&mut silent(&bench.hydra, &["-n", &count, "/bin/true"]))),
            ),
            ("C loop", Box::new(|| timed(&mut silent(&floor, &[&count])))),
        ];
        if ranks <= OPEN_MPI_RANKS_MAX {
            let args = [
                "--allow-run-as-root",
                "--oversubscribe",
                "-n",
                &count,
                "/bin/true",
            ];
            contestants.push((
                "Open MPI",
                Box::new(move || timed(&mut silent(&bench.openmpi, &args))),
            ));
        }
        let all = rounds(bench.rounds(enough), contestants);
        let of = |name: &str| all.iter().find(|samples| samples.name == name);
        let cell = |name: &str| contestant_cell(of(name));
        let ratio = |name: &str| {
            of("rally")
                .zip(of(name))
                .and_then(|(own, other): (&Samples, &Samples)| own.over(other))
        };
        writeln!(
            text,
            "| {ranks} | {} | {} | {} | {} | {} | ≤ {of_hydra} | {} | {} |",
            cell("rally"),
            cell("Hydra"),
            cell("Open MPI"),
            cell("C loop"),
            ratio_cell(ratio("Hydra")),
            ratio_cell(ratio("C loop")),
            of_floor.map_or_else(|| "-".to_owned(), |target| format!("≤ {target}")),
        )?;
    }
    writeln!(
        text,
        "\nMedians of the whole process in milliseconds, output to /dev/null; {} rounds for 1, 64 and 256 ranks.",
        CASES
            .map(|(_, enough, ..)| bench.rounds(enough).to_string())
            .join(", ")
    )?;
    Ok(text)
}
