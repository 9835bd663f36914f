//! One run of the launcher, with a deadline.

use std::{
    process::{Command, ExitStatus, Output, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use mischief::marked_procs;
use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};

use super::{HANG, Place};

/// A running launcher.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) pid: i32,
    pub(super) marker: String,
    line: String,
    ended: mpsc::Receiver<std::io::Result<Output>>,
}

impl Job {
    /// Starts `rally run` with these arguments; the word `mischief` is replaced by the path of the helper.
    pub(super) fn start(place: &Place, marker: &str, args: &[&str]) -> Result<Self> {
        let mischief = place.mischief.to_string_lossy();
        let args = args
            .iter()
            .map(|arg| if *arg == "mischief" { &*mischief } else { *arg })
            .collect::<Vec<_>>();
        let child = Command::new(&place.rally)
            .arg("run")
            .args(&args)
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("LC_ALL", "C")
            .env("HOME", place.path("work"))
            .env("TMPDIR", place.path("tmp"))
            .env("XDG_RUNTIME_DIR", place.path("run"))
            .env(Place::MARKER, marker)
            .current_dir(place.path("work"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot run {}", place.rally.display()))?;
        let pid = i32::try_from(child.id())?;
        let (sender, ended) = mpsc::channel();
        thread::spawn(move || {
            // After a hang there is no receiver any more.
            let _ = sender.send(child.wait_with_output());
        });
        let line = format!("rally run {}", args.join(" "));
        Ok(Self {
            pid,
            marker: format!("{}={marker}", Place::MARKER),
            line,
            ended,
        })
    }

    pub(super) fn has_ended(&self, within: Duration) -> Option<Output> {
        self.ended.recv_timeout(within).ok()?.ok()
    }

    /// Waits for the exit. On a hang, kills all processes of the run and returns an error that lists them.
    pub(super) fn end(&self) -> Result<Output> {
        if let Some(output) = self.has_ended(HANG) {
            return Ok(output);
        }
        let picture = marked_procs(&self.marker)
            .iter()
            .map(|process| format!("\n  {process}"))
            .collect::<String>();
        self.kill_all();
        bail!("{} hangs:{picture}", self.line);
    }

    pub(super) fn kill_all(&self) {
        let end = Instant::now() + HANG;
        while Instant::now() < end {
            let found = marked_procs(&self.marker);
            if found.is_empty() {
                return;
            }
            for process in found {
                // An error means that the process has exited meanwhile.
                let _ = signal::kill(Pid::from_raw(process.pid), Signal::SIGKILL);
            }
        }
    }

    /// Returns an error about this run that contains its stderr.
    pub(super) fn wrong(&self, what: &str, output: &Output) -> anyhow::Error {
        let said = String::from_utf8_lossy(&output.stderr);
        anyhow::anyhow!(
            "{}: {what} ({}); stderr: {}",
            self.line,
            output.status,
            said.trim()
        )
    }
}

/// Returns the exit code that a shell would show.
pub(super) fn code(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}
