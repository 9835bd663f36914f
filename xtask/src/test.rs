//! `cargo xtask test`: README's second command, and the whole of CI.
//!
//! It works on a fresh computer: it installs missing tools, checks the code, and builds once for the tests and once for
//! release. It runs the tests as the current user and as an unprivileged user, then the stress test and the fuzz targets. At
//! the end it prints the duration of each step.

mod bed;
mod install;
mod pages;
mod python;
mod unprivileged;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Mutex,
    thread,
    time::{Duration, SystemTime},
};

use anyhow::{Result, bail};

use crate::{
    cluster,
    env::{cargo, cargo_deny, own_file, root, works},
    release::release,
    steps::{self, Steps},
    stress, tidy,
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Runs only steps whose names begin with this text; may be repeated.
    #[arg(long)]
    only: Vec<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct FuzzArgs {
    /// Time for each target, in seconds.
    #[arg(long, default_value_t = 60)]
    seconds: u32,
}

/// Time limit of a build or test step, below CI's own limit, so that a hang is reported as a failure of its step.
const LIMIT: Duration = Duration::from_secs(20 * 60);

/// Time for all fuzz targets together in CI, in seconds.
const FUZZ_BUDGET: u32 = 240;

/// Builds what the tests run.
fn build() -> Result<()> {
    for what in [
        &["--workspace", "--bins", "--tests"][..],
        &["-p", "runtime", "--examples"],
    ] {
        let words = [&["build", "--locked"], what].concat();
        steps::execute(&mut cargo(&words), LIMIT)?;
    }
    Ok(())
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut steps = Steps::new(args.only.clone());
    install::all(&mut steps);
    steps.run("format", |_| {
        steps::execute(&mut cargo(&["fmt", "--all", "--check"]), LIMIT)
    });
    steps.run("tidy", |_| tidy::run());
    match crate::calls::missing() {
        Some(library) => steps.skip("calls", &format!("there is no {}", library.display())),
        None => {
            steps.run("calls", |_| crate::calls::check());
        }
    }
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
        // The fuzz targets are a separate workspace. Without this check, only the last step would show that they do not
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
    let built = steps.run("build for tests", |_| build());
    if !built {
        return steps.close();
    }
    steps.run("tests", |tally| {
        let result = steps::execute_tests(&mut all_tests(), LIMIT, tally);
        // The next step runs the skipped tests: nextest counts a test that its filter excludes as skipped.
        tally.skipped = 0;
        result
    });
    steps.run("tests of verdicts", |tally| {
        let result = steps::execute_tests(&mut tests_of_verdicts(), LIMIT, tally);
        tally.skipped = 0;
        result
    });
    bed::step(&mut steps);
    on_a_cluster(&mut steps);
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
            let planted = ["test", "--locked", "--profile", "planted"];
            let of_sim = ["-p", "sim", "--test", "planted", "--features", "planted"];
            let args = [&planted[..], &of_sim].concat();
            steps::execute_tests(&mut cargo(&args), LIMIT, tally)?;
            let of_pmix = ["-p", "pmix", "--test", "nodes", "--features", "planted"];
            let nodes = [&planted[..], &of_pmix, &["planted"]].concat();
            steps::execute_tests(&mut cargo(&nodes), LIMIT, tally)
        });
    }
    let built = steps.run("build for release", |_| release());
    if !built {
        return steps.close();
    }
    unprivileged::step(&mut steps);
    python::step(&mut steps);
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

/// A supported architecture other than that of this computer. The code must compile for it.
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
                let mut check = cargo(&check);
                check.arg(OTHER_ARCHITECTURE);
                // This checks Rust. The C of `ring` would need a compiler for the other architecture, and nothing is linked here.
                for tool in ["CC", "AR"] {
                    let variable = format!("{tool}_{}", OTHER_ARCHITECTURE.replace('-', "_"));
                    check.env(variable, "true");
                }
                steps::execute(&mut check, LIMIT)
            });
        }
        Err(why) => steps.skip(STEP, &format!("its standard library is not here: {why:#}")),
    }
}

/// Checks the rules of deny.toml except the advisories, whose list is on a server that may be unreachable from here.
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

/// Filter for the verdict tests, which observe programs for seconds and check what `dbgr` reports about them.
pub(crate) const OF_VERDICTS: &str = "hangs::";

/// Filter for the tests that need the nodes of a cluster.
const OF_A_CLUSTER: &str = "bed::";

/// Number of nodes for these tests.
const CLUSTER_NODES: u32 = 16;

/// Number of random faults on a cluster.
const FAULTS: &str = "20";

/// Number of verdict tests that run in parallel. The tests mostly wait, but the number is limited because their ranks poll.
pub(crate) const VERDICTS_AT_ONCE: &str = "4";

fn has_nextest() -> bool {
    works(&mut cargo(&["nextest", "--version"]))
}

/// Returns a command for all other tests. It uses nextest if installed, for its time limit per test, else cargo's own
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
        let others = format!("not test(/^({OF_VERDICTS}|{OF_A_CLUSTER})/)");
        command.args(["-E", &others]);
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
        command.args([OF_VERDICTS, "--skip", OF_A_CLUSTER]);
        command
    }
}

/// Runs the tests that need several nodes, one after another: some of them cut the network.
fn on_a_cluster(steps: &mut Steps) {
    const STEP: &str = "tests on a cluster";
    if let Err(why) = cluster::is_possible() {
        return steps.skip(STEP, &format!("{why:#}"));
    }
    steps.run(STEP, |tally| {
        let mut command = Command::new(own_file()?);
        let nodes = CLUSTER_NODES.to_string();
        command.args(["cluster", "with", &nodes, "--slurm", "--"]);
        command.current_dir(root());
        let mut tests = cargo(&["test", "--locked", "-p", "cli", "--test", "e2e"]);
        tests.args([OF_A_CLUSTER, "--", "--test-threads", "1"]);
        command.arg(tests.get_program()).args(tests.get_args());
        let result = steps::execute_tests(&mut command, LIMIT, tally);
        tally.skipped = 0;
        result?;
        let mut faults = Command::new(own_file()?);
        faults.args(["cluster", "faults", "--count", FAULTS]);
        // The seed changes daily: a fixed one would never find new failures.
        let days = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)?
            .as_secs()
            / 86_400;
        faults
            .args(["--seed", &days.to_string()])
            .current_dir(root());
        steps::execute(&mut faults, LIMIT)
    });
}

/// Returns a command for the verdict tests only. Several run in parallel even on a computer with few CPUs.
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

/// Targets that are fuzzed at the same time. A fuzzer uses one core.
const FUZZERS: usize = 2;

/// Fuzzes each target on the stable toolchain. The coverage instrumentation needs `RUSTC_BOOTSTRAP`. The address sanitizer is
/// off, because safe code does not need it.
fn fuzz_each(targets: &[String], seconds: u32) -> Result<()> {
    // One build of all of them keeps all cores busy; one build for each target does not.
    let mut build = cargo(&["fuzz", "build", "--sanitizer", "none"]);
    steps::execute(build.env("RUSTC_BOOTSTRAP", "1"), LIMIT)?;
    let waiting = Mutex::new(targets.iter());
    let next = || waiting.lock().ok().and_then(|mut targets| targets.next());
    let fuzz_some = || {
        let result = std::iter::from_fn(next).try_for_each(|target| fuzz_one(target, seconds));
        if result.is_err() {
            // The others need not run any more.
            std::iter::from_fn(next).for_each(drop);
        }
        result
    };
    thread::scope(|scope| {
        let fuzzers: Vec<_> = (0..FUZZERS).map(|_| scope.spawn(fuzz_some)).collect();
        fuzzers
            .into_iter()
            .try_for_each(|fuzzer| match fuzzer.join() {
                Ok(result) => result,
                Err(_) => bail!("a thread that runs a fuzzer has panicked"),
            })
    })
}

fn fuzz_one(target: &str, seconds: u32) -> Result<()> {
    let limit = Duration::from_secs(u64::from(seconds)) + LIMIT;
    // The fuzzer writes new inputs to the first directory, and only reads our seeds in the second one.
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
    steps::execute(&mut command, limit)
}

/// Asks cargo for the path of the binary of the end-to-end tests.
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
