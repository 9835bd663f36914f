//! The project's tasks: `cargo xtask --help`.
//!
//! **Architecture invariant:** nothing that ships depends on this crate, and it depends on nothing that ships: it uses the
//! binaries as a user does.

#![expect(
    clippy::print_stdout,
    reason = "this is a program for the terminal of a developer"
)]

mod bench;
mod env;
mod release;
mod sim;
mod steps;
mod stress;
mod test;
mod tidy;
mod verdicts;

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
    /// Installs what the tests need, checks everything, runs all tests; what CI runs.
    #[command(alias = "ci")]
    Test(test::Args),
    /// Builds `rally` as it is shipped: one file that needs no shared library.
    Build,
    /// Checks the house rules that the compiler does not know.
    Tidy,
    /// Measures the numbers of docs/benchmarks.md, with the peers in the same run.
    Bench(bench::Args),
    /// Launches thousands of short jobs, kills every part at random moments, and looks for what is left.
    Stress(stress::Args),
    /// Plays seeds of the simulator, or one with its record.
    Sim(sim::Args),
    /// Counts true and false verdicts of `dbgr` on the zoo of hanging programs and the corpus of healthy ones.
    Verdicts,
    /// Fuzzes every target for some time.
    Fuzz(test::FuzzArgs),
}

fn main() -> ExitCode {
    let done = match Args::parse().task {
        Task::Test(args) => test::run(&args),
        Task::Build => release::build(),
        Task::Tidy => tidy::run(),
        Task::Bench(args) => bench::run(&args),
        Task::Stress(args) => stress::run(&args),
        Task::Sim(args) => sim::run(&args),
        Task::Verdicts => verdicts::run(),
        Task::Fuzz(args) => test::fuzz(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // On stdout, like all other output, so that the order of lines in a log is that of events. No backtrace: a step
            // or a program has failed, and not this one.
            println!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
