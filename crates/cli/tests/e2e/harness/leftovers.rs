//! Who is alive, and which of them are ours.

use std::fs;

/// One process, as `/proc` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Proc {
    pub(crate) pid: i32,
    pub(crate) ppid: i32,
    pub(crate) pgid: i32,
    /// `R`, `S`, `T`, `t`, `Z`...
    pub(crate) state: char,
    /// The arguments, joined by spaces; empty for a zombie.
    pub(crate) args: String,
    environment: Vec<u8>,
}

impl Proc {
    /// Reads one process; `None` when there is no such process any more.
    pub(crate) fn read(pid: i32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name in parentheses may hold anything, also spaces and parentheses.
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

    /// Whether `NAME=value` stands in the environment that the process was started with.
    pub(crate) fn carries(&self, variable: &str) -> bool {
        self.environment
            .split(|byte| *byte == 0)
            .any(|entry| entry == variable.as_bytes())
    }

    /// A zombie has ended; that its parent has not asked yet is the parent's business.
    pub(crate) fn is_alive(&self) -> bool {
        !matches!(self.state, 'Z' | 'X')
    }

    /// A line of `/proc/PID/status`, without its name.
    pub(crate) fn status(&self, name: &str) -> Option<String> {
        let text = fs::read_to_string(format!("/proc/{}/status", self.pid)).ok()?;
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        Some(line.trim().to_owned())
    }
}

/// Every process that we may look at.
pub(crate) fn all_procs() -> Vec<Proc> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| Proc::read(entry.file_name().to_str()?.parse().ok()?))
        .collect()
}
