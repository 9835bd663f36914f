//! The release build: what users get.

use std::{path::PathBuf, time::Duration};

use anyhow::{Result, bail};

use crate::{
    env::{cargo, target},
    steps,
};

/// No build may take longer: a hang must fail, and CI's own limit is far above.
const LIMIT: Duration = Duration::from_secs(20 * 60);

/// Builds what a user gets, and the helper beside it: files that need no shared library. They run on a node
/// whatever its C library, and start sooner, because no dynamic linker has to look for libraries and symbols.
pub(crate) fn release() -> Result<()> {
    let helper = ["build", "--locked", "--release", "-p", "mischief"];
    steps::execute(&mut cargo(&helper), LIMIT)?;
    for binary in ["rally", "dbgr"] {
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

/// `cargo xtask build`.
pub(crate) fn build() -> Result<()> {
    release()?;
    for binary in ["rally", "dbgr"] {
        println!("{}", released(binary)?.display());
    }
    Ok(())
}

/// A binary of the release build.
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
