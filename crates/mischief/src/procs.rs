//! The processes of the node, and a way to find those of a test.

use std::{fmt, fs, os::unix::fs::MetadataExt, path::Path};

/// A process as shown by `/proc`.
#[derive(Clone, PartialEq, Eq)]
pub struct Proc {
    pub pid: i32,
    pub ppid: i32,
    pub pgid: i32,
    /// State: `R`, `S`, `T`, `t`, `Z`...
    pub state: char,
    /// The arguments, joined by spaces; empty for a zombie.
    pub args: String,
    environment: Vec<u8>,
}

impl Proc {
    /// Reads one process; `None` if it no longer exists or cannot be read.
    #[must_use]
    pub fn read(pid: i32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name in parentheses may contain anything, including spaces and parentheses.
        let mut fields = stat.rsplit_once(") ")?.1.split(' ');
        let state = fields.next()?.chars().next()?;
        let ppid = fields.next()?.parse().ok()?;
        let pgid = fields.next()?.parse().ok()?;
        let args = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let args = String::from_utf8_lossy(&args).replace('\0', " ");
        Some(Self {
            pid,
            ppid,
            pgid,
            state,
            args: args.trim_end().to_owned(),
            environment: fs::read(format!("/proc/{pid}/environ")).unwrap_or_default(),
        })
    }

    /// Returns true if the initial environment of the process contains the entry `NAME=value`.
    #[must_use]
    pub fn carries(&self, variable: &str) -> bool {
        self.environment
            .split(|byte| *byte == 0)
            .any(|entry| entry == variable.as_bytes())
    }

    /// Returns the value of a variable in the initial environment of the process.
    #[must_use]
    pub fn variable(&self, name: &str) -> Option<String> {
        let entry = self.environment.split(|byte| *byte == 0);
        let value =
            entry.filter_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="));
        value
            .map(|value| String::from_utf8_lossy(value).into_owned())
            .next()
    }

    /// Returns true if the process runs this executable, after resolving links.
    #[must_use]
    pub fn runs(&self, executable: &Path) -> bool {
        let file = |path: &Path| fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
        let own = file(Path::new(&format!("/proc/{}/exe", self.pid)));
        own.is_some() && own == file(executable)
    }

    /// Returns false for a zombie: a process that has exited but that its parent has not reaped yet.
    #[must_use]
    pub const fn is_alive(&self) -> bool {
        !matches!(self.state, 'Z' | 'X')
    }

    /// Returns the value of a field of `/proc/PID/status`.
    #[must_use]
    pub fn status(&self, name: &str) -> Option<String> {
        let text = fs::read_to_string(format!("/proc/{}/status", self.pid)).ok()?;
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        Some(line.trim().to_owned())
    }
}

impl fmt::Display for Proc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wait = fs::read_to_string(format!("/proc/{}/wchan", self.pid)).unwrap_or_default();
        write!(
            f,
            "pid {} parent {} group {} state {} in {wait}: {}",
            self.pid, self.ppid, self.pgid, self.state, self.args
        )
    }
}

/// Writes the same text as [`fmt::Display`], because the environment as bytes would be unreadable.
impl fmt::Debug for Proc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Returns every process that the caller may inspect.
#[must_use]
pub fn all_procs() -> Vec<Proc> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| Proc::read(entry.file_name().to_str()?.parse().ok()?))
        .collect()
}

/// Returns every living process that was started with `NAME=value` in its environment.
#[must_use]
pub fn marked_procs(variable: &str) -> Vec<Proc> {
    let mut found = all_procs();
    found.retain(|process| process.is_alive() && process.carries(variable));
    found
}
