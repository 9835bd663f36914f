//! `cargo xtask verdicts`: counts the correct and the false verdicts of `dbgr`.
//!
//! The verdict on a program of the zoo counts as correct if it and the process classes match the recorded ones. Any report about
//! a healthy program counts as a false verdict. Each program is one end-to-end test.

use std::time::Duration;

use anyhow::{Result, bail};

use crate::{
    env::cargo,
    steps::{self, Tally},
    test::VERDICTS_AT_ONCE,
};

/// Time limit of one run; each program takes a few seconds.
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

/// Runs the tests of one kind and counts their results, even if some fail.
fn count(kind: &str) -> Tally {
    let words = ["test", "--locked", "-p", "cli", "--test", "e2e", kind, "--"];
    let mut tally = Tally::default();
    let mut tests = cargo(&words);
    tests.args(["--test-threads", VERDICTS_AT_ONCE]);
    if let Err(error) = steps::execute_tests(&mut tests, LIMIT, &mut tally) {
        println!("{error:#}");
        // A failed run counts as at least one failed test.
        tally.failed = tally.failed.max(1);
    }
    tally
}
