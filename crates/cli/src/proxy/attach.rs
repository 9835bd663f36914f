//! A `dbgr` that attaches to a job of the client. What it prints, the client gets as messages.

use std::{collections::BTreeSet, os::fd::AsFd as _};

use base::Signal;
use dvm::{alloc::LocalNames, proto::TableRow};
use os::{Interest, Loop, Pid, ReadOutcome, Token};
use ptp::JobKey;

use super::check::Attachment;
use crate::{beside::start_dbgr, messages::NoDbgr};

/// Bytes that are read at once, and so the longest message.
const READ_SIZE: usize = 16 << 10;

/// Returns the arguments of a `dbgr` for a job that runs. Other nodes are reached by ssh.
pub(super) fn words(attachment: Attachment, name: &str, table: &[TableRow]) -> Vec<String> {
    let Attachment(mut words) = attachment;
    let local = LocalNames::new(os::host_name());
    let nodes: BTreeSet<&str> = table.iter().map(|row| row.host.as_str()).collect();
    if nodes.iter().any(|node| !local.contains(node)) {
        let nodes: Vec<&str> = nodes.into_iter().collect();
        words.extend(["--hosts".to_owned(), nodes.join(",")]);
    }
    words.push(name.to_owned());
    words
}

/// A `dbgr`.
#[derive(Debug)]
pub(super) struct Attached {
    pub(super) job: JobKey,
    /// `None` once it has exited.
    pid: Option<Pid>,
}

impl Attached {
    /// Starts it. Returns the pipe that its output comes through.
    pub(super) fn start(
        job: JobKey,
        words: Vec<String>,
        events: &mut Loop,
    ) -> Result<(Token, Self), NoDbgr> {
        let (ours, theirs) = os::pipe()?;
        os::set_nonblocking(ours.as_fd())?;
        let pid = start_dbgr(words, theirs.as_fd(), theirs.as_fd())?;
        let attached = Self {
            job,
            pid: Some(pid),
        };
        match events.add(ours, Interest::Read) {
            Ok(token) => Ok((token, attached)),
            Err(error) => {
                let _ = os::kill(pid, Signal::KILL);
                Err(error.into())
            }
        }
    }

    /// Reads once. `None`: its output has ended, and the pipe is closed.
    pub(super) fn read(events: &mut Loop, pipe: Token) -> Option<String> {
        let mut buffer = vec![0; READ_SIZE];
        match events.fd(pipe).map(|fd| os::read(fd, &mut buffer)) {
            Some(Ok(ReadOutcome::Bytes(count))) => {
                Some(String::from_utf8_lossy(&buffer[..count]).into_owned())
            }
            Some(Ok(ReadOutcome::WouldBlock)) => Some(String::new()),
            Some(Ok(ReadOutcome::Closed) | Err(_)) | None => {
                drop(events.remove(pipe));
                None
            }
        }
    }

    pub(super) fn exited(&mut self, pid: Pid) {
        self.pid.take_if(|own| *own == pid);
    }

    /// Ends it, unless it has ended: its job is over.
    pub(super) fn end(&mut self) {
        // Until it is reaped, its pid belongs to no other process.
        if let Some(pid) = self.pid {
            let _ = os::kill(pid, Signal::TERM);
        }
    }
}
