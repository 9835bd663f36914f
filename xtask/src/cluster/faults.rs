//! `cargo xtask cluster faults`: random faults of processes, networks and nodes, while a job runs or starts on all nodes of a cluster.
//!
//! After each fault the front must end, or the job must go on where that is right. The messages must contain the name of the node.
//! Afterwards no process and no file may remain on any node. A seed and a number determine the fault of a run, but not the moment at
//! which the kernel runs which process.
//!
//! | module | content |
//! |---|---|
//! | `fault` | what is drawn for a run |
//! | `run` | one run: a job, its fault, and the checks |
//! | `nodes` | processes and files of the nodes, and their cables |

mod fault;
mod nodes;
mod run;

use std::{
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};

use self::{fault::Plan, nodes::Nodes, run::Programs};
use crate::env::own_file;

/// Number of nodes.
const NODES: u32 = 8;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Number of faults, one for each job.
    #[arg(long, default_value_t = 1000)]
    count: u32,
    /// Seed of the faults; every run prints its number, with which it can be repeated.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of the first run.
    #[arg(long, default_value_t = 0)]
    from: u32,
    /// Path of `rally`, instead of the build for tests; `dbgr` is next to it.
    #[arg(long)]
    binary: Option<PathBuf>,
}

impl Args {
    /// Returns the command that does the same on the head of a cluster.
    pub(super) fn words(&self) -> Result<Vec<String>> {
        let mut words = vec![own_file()?.display().to_string()];
        words.extend(["cluster", "faults"].map(str::to_owned));
        for (name, value) in [
            ("--count", self.count.to_string()),
            ("--seed", self.seed.to_string()),
            ("--from", self.from.to_string()),
        ] {
            words.extend([name.to_owned(), value]);
        }
        if let Some(binary) = &self.binary {
            let binary = std::fs::canonicalize(binary)?;
            words.extend(["--binary".to_owned(), binary.display().to_string()]);
        }
        Ok(words)
    }
}

/// Maximum number of failed runs before the task ends.
const FAILURES_MAX: u32 = 20;

/// Returns the number of nodes that [`run_inside`] needs.
pub(super) const fn nodes() -> u32 {
    NODES
}

/// Runs all faults. This process is on the head of a cluster.
pub(super) fn run_inside(args: &Args) -> Result<ExitCode> {
    let rally = match &args.binary {
        Some(binary) => binary.clone(),
        None => own_file()?.with_file_name("rally"),
    };
    let programs = Programs {
        dbgr: rally.with_file_name("dbgr"),
        rally,
    };
    for program in [&programs.rally, &programs.dbgr] {
        if !program.exists() {
            bail!(
                "{} is missing: `cargo build -p cli` makes it",
                program.display()
            );
        }
    }
    println!(
        "faults: {} runs, --seed {} --from {}",
        args.count, args.seed, args.from
    );
    let nodes = Nodes::new(NODES).context("cannot see the nodes")?;
    let mut failures = 0;
    let started = Instant::now();
    let mut slowest = Duration::ZERO;
    for number in args.from..args.from.saturating_add(args.count) {
        let plan = Plan::draw(args.seed, number, NODES);
        let began = Instant::now();
        match run::once(&programs, &nodes, &plan) {
            Ok(what) => println!("{number}: {plan}: {what}"),
            Err(error) => {
                failures += 1;
                println!("{number}: {plan}: FAILED: {error:#}");
                nodes.reset()?;
            }
        }
        slowest = slowest.max(began.elapsed());
        if failures >= FAILURES_MAX {
            bail!("stopped after {failures} failures");
        }
    }
    println!(
        "faults: {} runs in {:.0} s, the slowest {:.1} s",
        args.count,
        started.elapsed().as_secs_f64(),
        slowest.as_secs_f64()
    );
    if failures > 0 {
        bail!(
            "{failures} of {} runs went wrong (--seed {})",
            args.count,
            args.seed
        );
    }
    Ok(ExitCode::SUCCESS)
}
