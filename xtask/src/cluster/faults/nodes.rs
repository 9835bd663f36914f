//! The nodes of the cluster as its head sees them: processes, files and cables.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Result, bail, ensure};
use mischief::{Proc, all_procs};
use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};

use crate::cluster::plan::FILES;

/// Interval between two checks of a condition.
const PAUSE: Duration = Duration::from_millis(5);

/// Checks a condition until it returns a value or the time is over.
pub(super) fn eventually<T>(within: Duration, mut check: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + within;
    loop {
        let found = check();
        if found.is_some() || Instant::now() > end {
            return found;
        }
        std::thread::sleep(PAUSE);
    }
}

/// The nodes, and what was on them before the first run.
#[derive(Debug)]
pub(super) struct Nodes {
    /// The network namespace of each node.
    networks: Vec<PathBuf>,
    processes: BTreeSet<i32>,
    files: BTreeSet<PathBuf>,
}

impl Nodes {
    pub(super) fn new(count: u32) -> Result<Self> {
        let mut networks = Vec::new();
        for node in 1..=count {
            let holder = fs::read_to_string(format!("{FILES}/n{node}/holder"))?;
            networks.push(fs::read_link(format!("/proc/{holder}/ns/net"))?);
        }
        let mut nodes = Self {
            networks,
            processes: BTreeSet::new(),
            files: BTreeSet::new(),
        };
        nodes.processes = all_procs().iter().map(|process| process.pid).collect();
        nodes.files = nodes.all_files();
        Ok(nodes)
    }

    /// Returns the processes that have been started since the beginning, except those of sshd: a session of sshd may wait for a
    /// connection that was cut.
    pub(super) fn processes(&self) -> Vec<Proc> {
        let mut found = all_procs();
        found.retain(|process| {
            process.is_alive()
                && !self.processes.contains(&process.pid)
                && !process.args.starts_with("sshd: ")
                && !process.args.starts_with("/usr/sbin/sshd ")
        });
        found
    }

    /// Returns those of [`Self::processes`] that are on a node.
    pub(super) fn processes_on(&self, node: u32) -> Vec<Proc> {
        let network = self.networks.get(node as usize - 1);
        let mut found = self.processes();
        found.retain(|process| {
            let own = fs::read_link(format!("/proc/{}/ns/net", process.pid)).ok();
            own.as_ref() == network
        });
        found
    }

    /// Returns the files in directories for temporary files of all nodes and the head.
    fn all_files(&self) -> BTreeSet<PathBuf> {
        let mut found = BTreeSet::new();
        for node in 1..=self.networks.len() {
            let own = PathBuf::from(format!("{FILES}/n{node}"));
            for name in ["tmp", "shm", "var-tmp", "run", "home"] {
                gather(&own.join(name), &mut found);
            }
        }
        for directory in ["/tmp", "/var/tmp", "/dev/shm", "/run/user"] {
            gather(Path::new(directory), &mut found);
        }
        found
    }

    /// Returns the files that were made since the beginning.
    fn new_files(&self) -> Vec<PathBuf> {
        let files = self.all_files();
        files.difference(&self.files).cloned().collect()
    }

    /// Waits until nothing is left on any node, and returns how long that has taken.
    pub(super) fn until_clean(&self, within: Duration) -> Result<Duration> {
        let began = Instant::now();
        let is_clean =
            || (self.processes().is_empty() && self.new_files().is_empty()).then_some(());
        if eventually(within, is_clean).is_none() {
            let processes = self.processes();
            let processes: String = processes.iter().map(|one| format!("\n  {one}")).collect();
            bail!(
                "left after {within:?}: files {:?}, processes:{processes}",
                self.new_files()
            );
        }
        Ok(began.elapsed())
    }

    /// Sets the cable of a node up or down.
    pub(super) fn set_link(&self, node: u32, state: &str) -> Result<()> {
        let status = Command::new("ip")
            .args(["link", "set", &format!("v{node}"), state])
            .status()?;
        ensure!(status.success(), "`ip link set v{node} {state}` failed");
        Ok(())
    }

    /// Ends all processes of earlier runs, removes their files, and plugs in all cables.
    pub(super) fn reset(&self) -> Result<()> {
        for node in 1..=u32::try_from(self.networks.len())? {
            self.set_link(node, "up")?;
        }
        for _ in 0..100 {
            for process in self.processes() {
                kill(process.pid, Signal::SIGKILL);
            }
            std::thread::sleep(PAUSE);
        }
        // The files in a directory precede it here.
        for path in self.new_files().iter().rev() {
            let _ = match path.is_dir() {
                true => fs::remove_dir(path),
                false => fs::remove_file(path),
            };
        }
        self.end_sessions();
        Ok(())
    }

    /// Ends sessions of sshd that wait for a connection that was cut.
    pub(super) fn end_sessions(&self) {
        for process in all_procs() {
            if !self.processes.contains(&process.pid) && process.args.starts_with("sshd: ") {
                kill(process.pid, Signal::SIGKILL);
            }
        }
    }
}

/// Sends a signal. An error means that the process has exited meanwhile.
pub(super) fn kill(pid: i32, signal: Signal) {
    let _ = signal::kill(Pid::from_raw(pid), signal);
}

fn gather(directory: &Path, found: &mut BTreeSet<PathBuf>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        found.insert(entry.path());
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            gather(&entry.path(), found);
        }
    }
}
