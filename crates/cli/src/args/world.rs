//! What the resolver may know about the world, captured once at the start.

use std::{
    env,
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
};

use dvm::{
    alloc::LocalNames,
    spec::{FrontInput, WindowSize},
};

use super::{Error, environment::Variables, error::FileKind};
use crate::files::ReadProblem;
use crate::files::read;

/// Where a site puts its settings.
const SITE_CONFIG: &str = "/etc/rally/config.toml";

/// The size of a terminal that does not tell its own.
const WINDOW: WindowSize = WindowSize {
    rows: 24,
    columns: 80,
};

/// Everything outside the command line that a request depends on, except for files, which are read when they are named.
#[derive(Clone, Debug)]
pub(crate) struct World {
    /// `argv[0]` included.
    pub(crate) argv: Vec<OsString>,
    pub(crate) variables: Variables,
    /// The current directory, or why there is none.
    pub(crate) directory: Result<PathBuf, ReadProblem>,
    /// The host name as the kernel knows it.
    pub(crate) host: String,
    /// The file of our own program.
    pub(crate) executable: PathBuf,
    /// The size of the terminal; see [`World::capture`].
    pub(crate) window: WindowSize,
    /// The size of the terminal that our stdout is, if it is one; see [`World::capture`].
    pub(crate) screen: Option<WindowSize>,
    /// Whether our stdin can be read; see [`World::capture`].
    pub(crate) input: FrontInput,
    pub(crate) site_config: PathBuf,
    /// The GPUs that the node shows.
    pub(crate) gpus: fn() -> os::Gpus,
    /// Finds a TCP port for a server of the ranks, or says why there is none.
    pub(crate) unused_port: fn() -> Result<u16, ReadProblem>,
}

impl World {
    /// Looks around. The caller, who has the standard streams, overwrites `window` if stdin is a terminal, `screen` if stdout
    /// is, and `input`.
    pub(crate) fn capture() -> Self {
        Self {
            argv: env::args_os().collect(),
            variables: env::vars_os().collect(),
            directory: env::current_dir().map_err(ReadProblem::from),
            host: os::host_name(),
            executable: env::current_exe().unwrap_or_else(|_| PathBuf::from("/proc/self/exe")),
            window: WINDOW,
            screen: None,
            input: FrontInput::Readable,
            site_config: PathBuf::from(SITE_CONFIG),
            gpus: os::gpus,
            unused_port: || {
                let seed = std::process::id();
                os::unused_port(seed).map_err(|error| ReadProblem::Kernel(error.errno()))
            },
        }
    }

    /// The names that mean this node.
    pub(crate) fn names(&self) -> LocalNames {
        LocalNames::new(self.host.clone())
    }

    /// A variable that is text and not empty.
    pub(crate) fn variable(&self, name: &str) -> Option<&str> {
        self.variables
            .get(OsStr::new(name))?
            .to_str()
            .filter(|value| !value.is_empty())
    }

    /// The user's own configuration file, if the environment says where home is.
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

    /// The current directory.
    pub(crate) fn current(&self) -> Result<PathBuf, Error> {
        self.directory
            .clone()
            .map_err(|problem| Error::NoDirectory { problem })
    }

    /// A path as typed, from the current directory.
    pub(crate) fn absolute(&self, path: &Path) -> Result<PathBuf, Error> {
        if path.is_absolute() {
            return Ok(path.to_owned());
        }
        Ok(self.current()?.join(path))
    }

    /// Reads a file that an option names, at most `max` bytes of it.
    pub(super) fn read(&self, path: &Path, what: FileKind, max: u64) -> Result<Vec<u8>, Error> {
        let fail = |problem| Error::Unreadable {
            what,
            path: path.to_owned(),
            problem,
        };
        read(&self.absolute(path)?, max).map_err(fail)
    }

    /// As [`World::read`], for files that are text.
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
