//! `cargo xtask verdicts`: how often `dbgr`'s verdicts are right and wrong.
//!
//! A program of the zoo counts as right when its classes and its verdict are those that were written down for it; a
//! healthy program counts as wrong when anything is said of it. Each is one end-to-end test.

use std::time::Duration;

use anyhow::{Result, bail};

use crate::{
    env::cargo,
    steps::{self, Tally},
    test::VERDICTS_AT_ONCE,
};

/// A few seconds for each program.
const LIMIT: Duration = Duration::from_secs(20 * 60);

pub(crate) fn run() -> Result<()> {
    let helper = ["build", "--locked", "-p", "mischief", "-p", "cli", "--bins"];
    steps::execute(&mut cargo(&helper), LIMIT)?;
    let zoo = count("hangs::zoo::");
    let corpus = count("hangs::corpus::");
    println!(
        "zoo: {} true verdicts, {} false or missing",
        zoo.passed, zoo.failed
    );
    println!(
        "corpus: {} programs without verdict, {} false verdicts",
        corpus.passed, corpus.failed
    );
    if zoo.failed + corpus.failed > 0 || zoo.passed == 0 || corpus.passed == 0 {
        bail!("not all verdicts are as they should be");
    }
    Ok(())
}

/// Runs the tests of one kind, and counts them also when some fail.
fn count(kind: &str) -> Tally {
    let words = ["test", "--locked", "-p", "cli", "--test", "e2e", kind, "--"];
    let mut tally = Tally::default();
    let mut tests = cargo(&words);
    tests.args(["--test-threads", VERDICTS_AT_ONCE]);
    if let Err(error) = steps::execute_tests(&mut tests, LIMIT, &mut tally) {
        println!("{error:#}");
        // What was not counted has failed too.
        tally.failed = tally.failed.max(1);
    }
    tally
}
