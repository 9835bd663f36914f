//! What the resolver may know about the world, captured once at the start.

use std::{
    env,
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
};

use dvm::{
    alloc::LocalNames,
    bootstrap::Prompting,
    spec::{FrontInput, WindowSize},
};

use super::{Error, environment::Variables, error::FileKind};
use crate::files::ReadProblem;
use crate::files::read;

/// The variable in which Slurm names the node of a process.
pub(crate) const SLURM_NODE: &str = "SLURMD_NODENAME";

/// The configuration file of the site.
const SITE_CONFIG: &str = "/etc/rally/config.toml";

/// The size of a terminal that does not report its own.
const WINDOW: WindowSize = WindowSize {
    rows: 24,
    columns: 80,
};

/// Everything outside the command line that a request depends on. Files are the exception: they are read when an option
/// names them.
#[derive(Clone, Debug)]
pub(crate) struct World {
    /// The command line, including `argv[0]`.
    pub(crate) argv: Vec<OsString>,
    pub(crate) variables: Variables,
    /// The current directory, or the error in getting it.
    pub(crate) directory: Result<PathBuf, ReadProblem>,
    pub(crate) umask: u32,
    /// The host name as the kernel knows it.
    pub(crate) host: String,
    /// The path of our own executable.
    pub(crate) executable: PathBuf,
    /// The size of the terminal on stdin, or a usual one; see [`World::capture`].
    pub(crate) window: WindowSize,
    /// The size of the terminal on stdout. `None` if stdout is no terminal; see [`World::capture`].
    pub(crate) screen: Option<WindowSize>,
    /// Whether start commands may ask the user; see [`World::capture`].
    pub(crate) prompting: Prompting,
    /// Whether our stdin is readable; see [`World::capture`].
    pub(crate) input: FrontInput,
    pub(crate) site_config: PathBuf,
    /// The function that returns the GPUs of this node.
    pub(crate) gpus: fn() -> os::Gpus,
    /// The function that returns the addresses of this node's network interfaces.
    pub(crate) addresses: fn() -> Result<Vec<os::InterfaceAddress>, ReadProblem>,
    /// The function that returns whether a file is on a file system of several computers.
    pub(crate) is_shared: fn(&Path) -> bool,
    /// The function that returns an unused TCP port for a server of the ranks, or why there is none.
    pub(crate) unused_port: fn() -> Result<u16, ReadProblem>,
}

impl World {
    /// Captures the world. The caller, who has the standard streams, then sets `input`, sets `window` if stdin is a
    /// terminal, `screen` if stdout is one, and `prompting` if the user can be asked.
    pub(crate) fn capture() -> Self {
        Self {
            argv: env::args_os().collect(),
            variables: env::vars_os().collect(),
            directory: env::current_dir().map_err(ReadProblem::from),
            umask: os::umask(),
            host: os::host_name(),
            executable: env::current_exe().unwrap_or_else(|_| PathBuf::from("/proc/self/exe")),
            window: WINDOW,
            screen: None,
            prompting: Prompting::Never,
            input: FrontInput::Readable,
            site_config: PathBuf::from(SITE_CONFIG),
            gpus: os::gpus,
            is_shared: os::is_on_shared_files,
            addresses: || {
                os::interface_addresses().map_err(|error| ReadProblem::Kernel(error.errno()))
            },
            unused_port: || {
                let seed = std::process::id();
                os::unused_port(seed).map_err(|error| ReadProblem::Kernel(error.errno()))
            },
        }
    }

    /// Returns the names of this node.
    pub(crate) fn names(&self) -> LocalNames {
        LocalNames::new(self.host.clone()).with_alias(self.variable(SLURM_NODE))
    }

    /// Returns a variable, unless it is empty or not UTF-8.
    pub(crate) fn variable(&self, name: &str) -> Option<&str> {
        self.variables
            .get(OsStr::new(name))?
            .to_str()
            .filter(|value| !value.is_empty())
    }

    /// Returns the job of Slurm in which we run.
    pub(crate) fn slurm_job(&self) -> Option<u32> {
        self.variable("SLURM_JOB_ID")?.parse().ok()
    }

    /// Returns the path of the user's own configuration file. `None` if the environment names no home directory.
    pub(crate) fn user_config(&self) -> Option<PathBuf> {
        let absolute = |name| {
            self.variable(name)
                .map(Path::new)
                .filter(|path| path.is_absolute())
        };
        let base = absolute("XDG_CONFIG_HOME")
            .map(Path::to_owned)
            .or_else(|| Some(absolute("HOME")?.join(".config")))?;
        Some(base.join("rally").join("config.toml"))
    }

    /// Returns the current directory.
    pub(crate) fn current(&self) -> Result<PathBuf, Error> {
        self.directory
            .clone()
            .map_err(|problem| Error::NoDirectory { problem })
    }

    /// Returns the absolute path for a path as typed.
    pub(crate) fn absolute(&self, path: &Path) -> Result<PathBuf, Error> {
        if path.is_absolute() {
            return Ok(path.to_owned());
        }
        Ok(self.current()?.join(path))
    }

    /// Reads a file that an option names. Fails if it is larger than `max` bytes.
    pub(super) fn read(&self, path: &Path, what: FileKind, max: u64) -> Result<Vec<u8>, Error> {
        let fail = |problem| Error::Unreadable {
            what,
            path: path.to_owned(),
            problem,
        };
        read(&self.absolute(path)?, max).map_err(fail)
    }

    /// Reads like [`World::read`]; fails unless the file is UTF-8.
    pub(super) fn read_text(&self, path: &Path, what: FileKind, max: u64) -> Result<String, Error> {
        let bytes = self.read(path, what, max)?;
        let not_text = |_| Error::Unreadable {
            what,
            path: path.to_owned(),
            problem: ReadProblem::NotText,
        };
        String::from_utf8(bytes).map_err(not_text)
    }
}
