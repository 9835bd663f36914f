//! The project's tasks: `cargo xtask --help`.
//!
//! **Architecture invariant:** nothing that ships depends on this crate, and it depends on nothing that ships: it uses the
//! binaries as a user does.

#![expect(
    clippy::print_stdout,
    reason = "this is a program for the terminal of a developer"
)]

mod bench;
mod calls;
mod cluster;
mod env;
mod release;
mod sim;
mod steps;
mod stress;
mod test;
mod tidy;
mod verdicts;
mod wheel;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "The project's tasks", version)]
struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Installs the tools for the tests, checks the code, and runs all tests, as CI does.
    #[command(alias = "ci")]
    Test(test::Args),
    /// Builds `rally` for release: one file that needs no shared library.
    Build,
    /// Packs the Python package and the binaries into a wheel.
    Wheel(wheel::Args),
    /// Checks the house rules that the compiler does not check.
    Tidy,
    /// Measures the numbers in docs/benchmarks.md, with the other launchers in the same run.
    Bench(bench::Args),
    /// Launches thousands of short jobs, kills their processes at random moments, and looks for leftover processes and files.
    Stress(stress::Args),
    /// Runs the simulator with many seeds, or with one seed and its full record.
    Sim(sim::Args),
    /// Makes a cluster of network namespaces on this machine, with an sshd on each node.
    Cluster(cluster::Args),
    /// Counts correct and false verdicts of `dbgr` on the hanging programs (zoo) and the healthy ones (corpus).
    Verdicts,
    /// Generates the table of MPI functions for the recorder from the installed MPI libraries.
    Calls(calls::Args),
    /// Fuzzes every target for a given time.
    Fuzz(test::FuzzArgs),
}

fn main() -> ExitCode {
    if let Err(error) = env::own_file() {
        return code(Err(error));
    }
    let done = match Args::parse().task {
        // A command in the cluster decides about the exit status.
        Task::Cluster(args) => return code(cluster::run(&args)),
        Task::Test(args) => test::run(&args),
        Task::Build => release::build(),
        Task::Wheel(args) => wheel::run(&args),
        Task::Tidy => tidy::run(),
        Task::Bench(args) => bench::run(&args),
        Task::Stress(args) => stress::run(&args),
        Task::Sim(args) => sim::run(&args),
        Task::Verdicts => verdicts::run(),
        Task::Calls(args) => calls::run(&args),
        Task::Fuzz(args) => test::fuzz(&args),
    };
    code(done.map(|()| ExitCode::SUCCESS))
}

fn code(done: anyhow::Result<ExitCode>) -> ExitCode {
    match done {
        Ok(code) => code,
        Err(error) => {
            // On stdout, like all other output, so that a log shows the lines in the order of events. Without a backtrace,
            // because a step or a program has failed, and not this task.
            println!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
