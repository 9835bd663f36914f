//! The release build.

use std::{path::PathBuf, time::Duration};

use anyhow::{Result, bail};

use crate::{
    env::{cargo, target},
    steps,
};

/// The programs that we ship.
pub(crate) const BINARIES: [&str; 2] = ["rally", "dbgr"];

/// Time limit of a build, below CI's own limit, so that a hang is reported as a failure of the build.
const LIMIT: Duration = Duration::from_secs(20 * 60);

/// Builds the shipped programs and the helper program as static executables. They run on any node, whatever its C library,
/// and start sooner, because no dynamic linker has to find libraries and symbols.
pub(crate) fn release() -> Result<()> {
    let helper = ["build", "--locked", "--release", "-p", "mischief"];
    steps::execute(&mut cargo(&helper), LIMIT)?;
    for binary in BINARIES {
        let product = [
            "rustc",
            "--locked",
            "--release",
            "-p",
            "cli",
            "--bin",
            binary,
            "--",
            "-Ctarget-feature=+crt-static",
        ];
        steps::execute(&mut cargo(&product), LIMIT)?;
    }
    Ok(())
}

/// Runs `cargo xtask build`.
pub(crate) fn build() -> Result<()> {
    release()?;
    for binary in BINARIES {
        println!("{}", released(binary)?.display());
    }
    Ok(())
}

/// Returns the path of a binary of the release build.
pub(crate) fn released(name: &str) -> Result<PathBuf> {
    let path = target().join("release").join(name);
    if !path.exists() {
        bail!(
            "{} is missing: `cargo xtask build` makes it",
            path.display()
        );
    }
    Ok(path)
}
