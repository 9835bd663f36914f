//! `cargo xtask test`: README's second command, and all that CI does.
//!
//! It works on a fresh computer. It installs what is missing, checks the code, and builds once for the tests and once for
//! release. It runs the tests as the current user and as an unprivileged one, then the stress test and the fuzz targets. At
//! the end it prints how long each step took.

mod install;
mod pages;
mod unprivileged;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Result, bail};

use crate::{
    env::{cargo, cargo_deny, root, works},
    release::release,
    steps::{self, Steps},
    stress, tidy,
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only steps whose names begin so; may be repeated.
    #[arg(long)]
    only: Vec<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct FuzzArgs {
    /// Seconds for each target.
    #[arg(long, default_value_t = 60)]
    seconds: u32,
}

/// Time limit of a build or test step. A hang must fail here, well before CI's own limit.
const LIMIT: Duration = Duration::from_secs(20 * 60);

/// Time for all fuzz targets together in CI, in seconds.
const FUZZ_BUDGET: u32 = 240;

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut steps = Steps::new(args.only.clone());
    install::all(&mut steps);
    steps.run("format", |_| {
        steps::execute(&mut cargo(&["fmt", "--all", "--check"]), LIMIT)
    });
    steps.run("tidy", |_| tidy::run());
    deny(&mut steps);
    steps.run("clippy", |_| {
        let args = [
            "clippy",
            "--locked",
            "--workspace",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ];
        steps::execute(&mut cargo(&args), LIMIT)?;
        // The fuzz targets are a workspace of their own. Without this line, only the last step would show that they do not
        // compile.
        let fuzz = ["check", "--locked", "--manifest-path", "fuzz/Cargo.toml"];
        steps::execute(&mut cargo(&fuzz), LIMIT)
    });
    other_architecture(&mut steps);
    steps.run("documentation", |_| {
        let mut command = cargo(&[
            "doc",
            "--locked",
            "--workspace",
            "--no-deps",
            "--document-private-items",
        ]);
        steps::execute(command.env("RUSTDOCFLAGS", "-D warnings"), LIMIT)
    });
    let built = steps.run("build for tests", |_| {
        steps::execute(
            &mut cargo(&["build", "--locked", "--workspace", "--bins", "--tests"]),
            LIMIT,
        )
    });
    if !built {
        return steps.close();
    }
    steps.run("tests", |tally| {
        let result = steps::execute_tests(&mut all_tests(), LIMIT, tally);
        // The skipped tests run in the next step; nextest counts those that its filter excludes.
        tally.skipped = 0;
        result
    });
    steps.run("tests of verdicts", |tally| {
        let result = steps::execute_tests(&mut tests_of_verdicts(), LIMIT, tally);
        tally.skipped = 0;
        result
    });
    pages::step(&mut steps);
    steps.run("examples in documentation", |tally| {
        steps::execute_tests(
            &mut cargo(&["test", "--locked", "--workspace", "--doc"]),
            LIMIT,
            tally,
        )
    });
    if fs::read_to_string(root().join("crates/sim/Cargo.toml"))?.contains("planted") {
        steps.run("planted bugs", |tally| {
            let args = ["test", "--locked", "-p", "sim", "--features", "planted"];
            steps::execute_tests(&mut cargo(&args), LIMIT, tally)?;
            let nodes = [
                "test",
                "--locked",
                "-p",
                "pmix",
                "--test",
                "nodes",
                "--features",
                "planted",
                "planted",
            ];
            steps::execute_tests(&mut cargo(&nodes), LIMIT, tally)
        });
    }
    let built = steps.run("build for release", |_| release());
    if !built {
        return steps.close();
    }
    unprivileged::step(&mut steps);
    steps.run("stress", |_| stress::smoke());
    if let Err(why) = install::fuzzer() {
        steps.skip("fuzz", &format!("{why:#}"));
    } else {
        steps.run("fuzz", |_| {
            let targets = fuzz_targets()?;
            let each = FUZZ_BUDGET / u32::try_from(targets.len())?.max(1);
            fuzz_each(&targets, each.max(5))
        });
    }
    steps.close()
}

/// An architecture that we support, other than that of this computer: the code must compile for it.
const OTHER_ARCHITECTURE: &str = "aarch64-unknown-linux-gnu";

fn other_architecture(steps: &mut Steps) {
    const STEP: &str = "another architecture";
    if !steps.wants(STEP) {
        return;
    }
    let mut rustup = Command::new("rustup");
    rustup.current_dir(root());
    rustup.args(["target", "add", OTHER_ARCHITECTURE]);
    match steps::execute(&mut rustup, LIMIT) {
        Ok(()) => {
            steps.run(STEP, |_| {
                let check = ["check", "--locked", "--workspace", "--target"];
                steps::execute(cargo(&check).arg(OTHER_ARCHITECTURE), LIMIT)
            });
        }
        Err(why) => steps.skip(STEP, &format!("its standard library is not here: {why:#}")),
    }
}

/// Checks the rules of deny.toml, without the advisories: their list is on a server that a build need not reach.
fn deny(steps: &mut Steps) {
    if !steps.wants("deny") {
        return;
    }
    match cargo_deny() {
        Ok(deny) => {
            let mut command = Command::new(deny);
            command.current_dir(root()).args(["--locked", "check"]);
            command.args(["bans", "licenses", "sources"]);
            steps.run("deny", |_| steps::execute(&mut command, LIMIT));
        }
        Err(why) => steps.skip("deny", &format!("no cargo deny: {why:#}")),
    }
}

/// Filter for the tests of verdicts, which observe programs for seconds to check what `dbgr` says about them.
pub(crate) const OF_VERDICTS: &str = "hangs::";

/// Number of these tests that run in parallel. They wait most of the time, but their programs poll, so it is limited.
pub(crate) const VERDICTS_AT_ONCE: &str = "4";

fn has_nextest() -> bool {
    works(&mut cargo(&["nextest", "--version"]))
}

/// Returns a command for all other tests. Nextest is used if installed, for its time limit per test; else cargo's own
/// runner.
fn all_tests() -> Command {
    if has_nextest() {
        let mut command = cargo(&[
            "nextest",
            "run",
            "--locked",
            "--workspace",
            "--no-fail-fast",
        ]);
        command.args(["-E", &format!("not test(/^{OF_VERDICTS}/)")]);
        command
    } else {
        let mut command = cargo(&[
            "test",
            "--locked",
            "--workspace",
            "--bins",
            "--lib",
            "--tests",
            "--no-fail-fast",
            "--",
            "--skip",
        ]);
        command.arg(OF_VERDICTS);
        command
    }
}

/// Returns a command for the tests of verdicts alone, several of them in parallel even on few processors.
fn tests_of_verdicts() -> Command {
    let mut command;
    if has_nextest() {
        command = cargo(&["nextest", "run", "--locked", "-p", "cli", "--test", "e2e"]);
        command.args(["--no-fail-fast", "-j", VERDICTS_AT_ONCE]);
        command.args(["-E", &format!("test(/^{OF_VERDICTS}/)")]);
    } else {
        command = cargo(&["test", "--locked", "-p", "cli", "--test", "e2e"]);
        command.args([OF_VERDICTS, "--", "--test-threads", VERDICTS_AT_ONCE]);
    }
    command
}

pub(crate) fn fuzz(args: &FuzzArgs) -> Result<()> {
    install::fuzzer()?;
    fuzz_each(&fuzz_targets()?, args.seconds)
}

fn fuzz_targets() -> Result<Vec<String>> {
    let mut targets = fs::read_dir(root().join("fuzz/fuzz_targets"))?
        .flatten()
        .filter_map(|entry| {
            let path = entry.path();
            let rust = path.extension().is_some_and(|extension| extension == "rs");
            rust.then(|| {
                path.file_stem()
                    .map(|stem| stem.to_string_lossy().into_owned())
            })?
        })
        .collect::<Vec<_>>();
    targets.sort();
    if targets.is_empty() {
        bail!("fuzz/fuzz_targets is empty");
    }
    Ok(targets)
}

/// Fuzzes each target on the stable toolchain. Only the sanitizer hooks need the bootstrap switch; safe code needs no
/// address sanitizer.
fn fuzz_each(targets: &[String], seconds: u32) -> Result<()> {
    for target in targets {
        let limit = Duration::from_secs(u64::from(seconds)) + LIMIT;
        // New inputs are kept in the first directory; our seeds, in the second one, are only read.
        let corpus = Path::new("fuzz/corpus").join(target);
        fs::create_dir_all(root().join(&corpus))?;
        let mut command = cargo(&["fuzz", "run", "--sanitizer", "none", target]);
        command
            .arg(corpus)
            .arg(Path::new("fuzz/seeds").join(target))
            .arg("--")
            .arg(format!("-max_total_time={seconds}"))
            .args([
                "-timeout=10",
                "-rss_limit_mb=2048",
                "-print_final_stats=0",
                "-verbosity=0",
            ])
            .env("RUSTC_BOOTSTRAP", "1");
        steps::execute(&mut command, limit)?;
    }
    Ok(())
}

/// Returns the path of the test binary of the end-to-end tests, as cargo names it.
fn e2e_binary() -> Result<PathBuf> {
    let args = [
        "test",
        "--locked",
        "-p",
        "cli",
        "--test",
        "e2e",
        "--no-run",
        "--message-format",
        "json",
    ];
    let messages = crate::env::text_of(&mut cargo(&args))?;
    for line in messages.lines() {
        let message = serde_json::from_str::<serde_json::Value>(line)?;
        let is_test = message["target"]["name"] == "e2e";
        if let (true, Some(path)) = (is_test, message["executable"].as_str()) {
            return Ok(Path::new(path).to_path_buf());
        }
    }
    bail!("cargo named no test binary `e2e`")
}
