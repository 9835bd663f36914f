//! The release build.

use std::{env, fs, path::PathBuf, process::Command, time::Duration};

use anyhow::{Context as _, Result, bail};

use crate::{
    env::{cargo, target, text_of},
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
    // With a target, cargo does not apply the flags to build scripts and macros, which cannot be static. One call for all programs lets
    // the optimizer work on them at the same time.
    let host = host()?;
    let mut products = cargo(&["build", "--locked", "--release", "-p", "cli", "--bins"]);
    let flags = env::var("RUSTFLAGS").unwrap_or_default();
    products
        .args(["--target", &host])
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env("RUSTFLAGS", format!("{flags} -Ctarget-feature=+crt-static"));
    steps::execute(&mut products, LIMIT)?;
    for binary in BINARIES {
        let built = target().join(&host).join("release").join(binary);
        let place = target().join("release").join(binary);
        let new = place.with_extension("new");
        // The one that is there may run.
        fs::copy(&built, &new)
            .and_then(|_| fs::rename(&new, &place))
            .with_context(|| format!("cannot copy {}", built.display()))?;
    }
    Ok(())
}

/// Returns the name of the target for which rustc builds unless it is told otherwise.
fn host() -> Result<String> {
    let about = text_of(Command::new("rustc").arg("-vV"))?;
    let host = about.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned)
        .context("rustc does not name its host")
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
