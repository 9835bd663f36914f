//! Runs programs under a deadline, and finds what they leave behind.

mod compiled;
mod pty;
mod running;
mod sandbox;
mod slurm;
mod starter;

pub(crate) use compiled::compiled;
pub(crate) use pty::Terminal;
pub(crate) use running::{Finished, Running, Stream};
pub(crate) use sandbox::Sandbox;
pub(crate) use slurm::Slurm;
pub(crate) use starter::{Elf, Row, Starter, SymbolKind, SymbolTable};

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

/// The deadline of every run. Far above what any run needs, so that a loaded node does not fail a test.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// The time after the end within which all our processes and files must be gone.
pub(crate) const CLEAN_WITHIN: Duration = Duration::from_secs(2);

/// The interval between checks of a condition that is not announced.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Checks a condition until it returns a value or the time is over.
pub(crate) fn eventually<T>(within: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + within;
    loop {
        if let Some(value) = look() {
            return Some(value);
        }
        if Instant::now() >= end {
            return None;
        }
        std::thread::park_timeout(LOOK_EVERY);
    }
}

/// Returns the binary under test. `RALLY_BIN` overrides it if the tests run as another user than the one who built it.
pub(crate) fn rally() -> PathBuf {
    std::env::var_os("RALLY_BIN").map_or_else(|| env!("CARGO_BIN_EXE_rally").into(), PathBuf::from)
}

/// Returns the debugger, in the directory of `rally`.
pub(crate) fn dbgr() -> PathBuf {
    rally().with_file_name("dbgr")
}

/// Returns the misbehaving helper, in the directory of `rally`.
pub(crate) fn mischief() -> PathBuf {
    let path = rally().with_file_name("mischief");
    assert!(
        path.exists(),
        "{} is missing: `cargo build -p mischief` (or `cargo xtask test`) makes it",
        path.display()
    );
    path
}

/// Returns a virtual environment with a package from PyPI.
pub(crate) fn venv(name: &str) -> PathBuf {
    let path = std::env::var_os("RALLY_VENV")
        .map_or_else(
            || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/venv"),
            PathBuf::from,
        )
        .join(name);
    assert!(
        path.join("bin").exists(),
        "there is no {}: `cargo xtask test` installs it",
        path.display()
    );
    path
}

/// Returns the directory of the PMIx programs.
pub(crate) fn pmix_programs() -> PathBuf {
    std::env::var_os("RALLY_PMIX_PROGRAMS").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/pmix"),
        PathBuf::from,
    )
}

/// Returns a directory for programs that are compiled once for many tests.
fn scratch() -> PathBuf {
    std::env::var_os("RALLY_SCRATCH")
        .map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")), PathBuf::from)
}

/// Returns a file of `testdata/`.
pub(crate) fn testdata(name: &str) -> PathBuf {
    std::env::var_os("RALLY_TESTDATA")
        .map_or_else(
            || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata"),
            PathBuf::from,
        )
        .join(name)
}
