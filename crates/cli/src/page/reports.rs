//! Hang reports that the page has asked for: each is made by `dbgr report`, a child process, and kept in memory.
//!
//! | state | event | next state |
//! |---|---|---|
//! | `Making` | `dbgr` has exited with 0, and both pipes are closed | `Ready` |
//! | `Making` | it has exited otherwise | `Failed`, with its last line |
//! | `Making` | [`PATIENCE`], or more than [`REPORT_MAX`] bytes | `Making`; it is killed |
//!
//! There is at most one in `Making`: samples of two reports would disturb each other.

use std::{
    collections::{BTreeSet, VecDeque},
    os::fd::{AsFd as _, OwnedFd},
    time::Duration,
};

use base::{ExitStatus, Signal, Time};
use dvm::{alloc::LocalNames, machine::RunLine, queue::TaskId};
use os::{Clock, Interest, Loop, Pid, ReadOutcome, Token};
use serde::Serialize;

use crate::{beside::start_dbgr, messages::NoDbgr};

/// Reports that are kept.
const KEPT_MAX: usize = 8;
/// Bytes of a report.
const REPORT_MAX: usize = 16 << 20;
/// Bytes of what `dbgr` says beside the report.
const SAID_MAX: usize = 16 << 10;
/// Time for a report: 15 s of samples, and the time that nodes have to get the program.
const PATIENCE: Duration = Duration::from_secs(120);
/// Size of a read from a pipe, in bytes.
const READ_SIZE: usize = 64 << 10;

/// What the page shows of a report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct ReportRow {
    id: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<u32>,
    state: &'static str,
    /// Why it has failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

#[derive(Debug)]
struct Report {
    id: u32,
    task: TaskId,
    state: State,
}

#[derive(Debug)]
enum State {
    Making(Box<Making>),
    Ready(Vec<u8>),
    Failed(String),
}

/// A `dbgr report` that has not ended.
#[derive(Debug)]
struct Making {
    pid: Pid,
    /// `None` while it runs.
    status: Option<ExitStatus>,
    page: Stream,
    said: Stream,
    /// When it is killed. `None`: that was done.
    until: Option<Time>,
    /// Why it was killed.
    why: Option<&'static str>,
}

/// A pipe from it, and what it has written there.
#[derive(Debug)]
struct Stream {
    /// `None` after the end.
    pipe: Option<Token>,
    bytes: Vec<u8>,
    max: usize,
}

/// Why no report is made.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotMade {
    #[error("another report is being made: try again in a moment")]
    Busy,
    #[error("cannot start `dbgr`: {0}")]
    NotStarted(#[from] NoDbgr),
}

impl From<os::Error> for NotMade {
    fn from(error: os::Error) -> Self {
        Self::NotStarted(error.into())
    }
}

/// The reports of this page.
#[derive(Debug, Default)]
pub(super) struct Reports {
    last: u32,
    kept: VecDeque<Report>,
}

impl Reports {
    /// Begins a report on a task that runs there.
    pub(super) fn begin(
        &mut self,
        task: TaskId,
        run: &RunLine,
        events: &mut Loop,
    ) -> Result<(), NotMade> {
        if self.making().is_some() {
            return Err(NotMade::Busy);
        }
        let mut stream = |max| -> Result<(Stream, OwnedFd), os::Error> {
            let (ours, theirs) = os::pipe()?;
            os::set_nonblocking(ours.as_fd())?;
            let pipe = Some(events.add(ours, Interest::Read)?);
            let bytes = Vec::new();
            Ok((Stream { pipe, bytes, max }, theirs))
        };
        let (page, stdout) = stream(REPORT_MAX)?;
        let (said, stderr) = stream(SAID_MAX)?;
        let words = words(run, &os::host_name());
        let pid = match start_dbgr(words, stdout.as_fd(), stderr.as_fd()) {
            Ok(pid) => pid,
            Err(why) => {
                let pipes = [page.pipe, said.pipe].into_iter().flatten();
                pipes.for_each(|pipe| drop(events.remove(pipe)));
                return Err(why.into());
            }
        };
        let making = Making {
            pid,
            status: None,
            page,
            said,
            until: Some(Clock::now() + PATIENCE),
            why: None,
        };
        self.last += 1;
        self.kept.push_back(Report {
            id: self.last,
            task,
            state: State::Making(Box::new(making)),
        });
        if self.kept.len() > KEPT_MAX {
            self.kept.pop_front();
        }
        Ok(())
    }

    /// Handles that a pipe can be read. Returns false if it is none of ours.
    pub(super) fn readable(&mut self, token: Token, events: &mut Loop) -> bool {
        let Some(making) = self.making() else {
            return false;
        };
        let Some(stream) = [&mut making.page, &mut making.said]
            .into_iter()
            .find(|stream| stream.pipe == Some(token))
        else {
            return false;
        };
        stream.read(events);
        if making.page.bytes.len() > making.page.max {
            making.kill("the report is too long");
        }
        self.settle();
        true
    }

    pub(super) fn exited(&mut self, pid: Pid, status: ExitStatus) {
        if let Some(making) = self.making().filter(|making| making.pid == pid) {
            making.status = Some(status);
        }
        self.settle();
    }

    /// Returns when to call [`Self::tick`].
    pub(super) fn deadline(&self) -> Option<Time> {
        let mut all = self.kept.iter();
        all.find_map(|report| match &report.state {
            State::Making(making) => making.until,
            State::Ready(_) | State::Failed(_) => None,
        })
    }

    pub(super) fn tick(&mut self, now: Time) {
        if let Some(making) = self.making()
            && making.until.is_some_and(|until| until <= now)
        {
            making.kill("it took too long");
        }
    }

    /// Ends what is being made.
    pub(super) fn stop(&mut self) {
        if let Some(making) = self.making() {
            making.kill("the page has ended");
        }
    }

    /// Returns what the page shows of the reports on a job, the last one first.
    pub(super) fn of(&self, job: base::JobId) -> Vec<ReportRow> {
        let of_job = self.kept.iter().rev();
        let of_job = of_job.filter(|report| report.task.job == job);
        of_job.map(Report::row).collect()
    }

    /// Returns a report that is ready.
    pub(super) fn html(&self, id: u32) -> Option<&[u8]> {
        let report = self.kept.iter().find(|report| report.id == id)?;
        match &report.state {
            State::Ready(html) => Some(html),
            State::Making(_) | State::Failed(_) => None,
        }
    }

    fn making(&mut self) -> Option<&mut Making> {
        self.kept
            .iter_mut()
            .find_map(|report| match &mut report.state {
                State::Making(making) => Some(&mut **making),
                State::Ready(_) | State::Failed(_) => None,
            })
    }

    fn settle(&mut self) {
        for report in &mut self.kept {
            if let State::Making(making) = &mut report.state
                && let Some(state) = making.result()
            {
                report.state = state;
            }
        }
    }
}

impl Report {
    fn row(&self) -> ReportRow {
        let (state, why) = match &self.state {
            State::Making(_) => ("making", None),
            State::Ready(_) => ("ready", None),
            State::Failed(why) => ("failed", Some(why.clone())),
        };
        ReportRow {
            id: self.id,
            task: self.task.index,
            state,
            why,
        }
    }
}

impl Making {
    /// Kills it, once. What it traces goes on: the kernel detaches from it.
    fn kill(&mut self, why: &'static str) {
        if self.until.take().is_some() {
            self.why = Some(why);
            // Until it is reaped, its pid belongs to no other process.
            if self.status.is_none() {
                let _ = os::kill(self.pid, Signal::KILL);
            }
        }
    }

    /// Returns the state that follows, if it has ended.
    fn result(&mut self) -> Option<State> {
        let status = self.status?;
        if self.page.pipe.is_some() || self.said.pipe.is_some() {
            return None;
        }
        let page = std::mem::take(&mut self.page.bytes);
        if status.is_success() && self.why.is_none() && !page.is_empty() {
            return Some(State::Ready(page));
        }
        let why = self.why.map_or_else(
            || reason(&String::from_utf8_lossy(&self.said.bytes), status),
            str::to_owned,
        );
        Some(State::Failed(why))
    }
}

impl Stream {
    fn read(&mut self, events: &mut Loop) {
        let Some(token) = self.pipe else {
            return;
        };
        let mut buffer = vec![0; READ_SIZE];
        match events.fd(token).map(|fd| os::read(fd, &mut buffer)) {
            Some(Ok(ReadOutcome::Bytes(count))) => {
                // One byte more shows that it is too long.
                let room = (self.max + 1).saturating_sub(self.bytes.len());
                self.bytes.extend(buffer.iter().take(count.min(room)));
            }
            Some(Ok(ReadOutcome::WouldBlock)) => {}
            Some(Ok(ReadOutcome::Closed) | Err(_)) | None => {
                drop(events.remove(token));
                self.pipe = None;
            }
        }
    }
}

/// Returns the arguments for `dbgr`. Other nodes are reached by ssh.
fn words(run: &RunLine, own: &str) -> Vec<String> {
    let mut words = vec!["report".to_owned(), run.nspace.clone()];
    let local = LocalNames::new(own);
    let nodes: BTreeSet<&str> = run.hosts.iter().collect();
    if nodes.iter().any(|node| !local.contains(node)) {
        words.extend(["--hosts".to_owned(), run.hosts.to_string()]);
    }
    words.extend(["-o".to_owned(), "-".to_owned()]);
    words
}

/// Returns the error that `dbgr` has printed, or how it has ended.
fn reason(said: &str, status: ExitStatus) -> String {
    let mut errors = said.lines().filter_map(|line| line.strip_prefix("error: "));
    errors
        .next()
        .map_or_else(|| format!("`dbgr` has ended: {status}"), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(hosts: &[&str]) -> RunLine {
        RunLine {
            nspace: "rally-n1-0badcafe-40@3".to_owned(),
            hosts: hosts.iter().copied().collect(),
        }
    }

    #[test]
    fn nodes_are_named_unless_all_ranks_are_here() {
        let text = |hosts: &[&str]| words(&run(hosts), "n1").join(" ");
        assert_eq!(text(&["n1"]), "report rally-n1-0badcafe-40@3 -o -");
        assert_eq!(text(&["localhost"]), "report rally-n1-0badcafe-40@3 -o -");
        assert_eq!(
            text(&["n1", "n2"]),
            "report rally-n1-0badcafe-40@3 --hosts n[1-2] -o -"
        );
    }

    #[test]
    fn a_failure_has_the_error_or_the_end() {
        let said = "note: odd\nerror: no job `x`\n  help: y\n";
        let failed = ExitStatus::Exited(120);
        assert_eq!(reason(said, failed), "no job `x`");
        assert_eq!(reason("", failed), format!("`dbgr` has ended: {failed}"));
    }
}
