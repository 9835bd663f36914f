//! The host of `dvm::watchdog`: starts and ends `dbgr watch`, for `--on-hang=report`.
//!
//! `dbgr watch` is a child of the front, and finds the ranks through our MPIR table, as with any launcher. Its output comes
//! to us through a pipe, so that it is printed in order with the output of the ranks. It exits when the front exits,
//! whatever the cause.

use std::{os::fd::AsFd as _, time::Duration};

use base::{Signal, Time};
use dvm::watchdog::{self, Input, Output};
use os::{Clock, Interest, Loop, Pid, ReadOutcome, Token};

use crate::args::{FrontOptions, MessageFormat};
use crate::beside::start_dbgr;
use crate::choices::OnHang;
use crate::messages::NoDbgr;

/// The size of one read from its pipe, in bytes.
const READ_SIZE: usize = 16 << 10;
/// The longest line that is printed in one piece, in bytes. Longer lines are printed in parts.
const LINE_MAX: usize = 64 << 10;

#[derive(Debug)]
pub(super) struct Watchdog {
    machine: watchdog::Watchdog,
    format: MessageFormat,
    /// Options with which it reaches the nodes of the job.
    nodes: Vec<String>,
    /// The read end of the pipe that carries stdout and stderr of `dbgr watch`. `None` before its start and after EOF.
    pipe: Option<Token>,
    /// The start of a line that is still incomplete.
    line: Vec<u8>,
}

impl Watchdog {
    /// Creates the watchdog without starting it. `time_limit` is the job's, counted from now.
    pub(super) fn new(options: &FrontOptions, time_limit: Option<Duration>) -> Self {
        let idle = match options.on_hang {
            OnHang::Report(idle) => Some(idle),
            OnHang::Nothing => None,
        };
        Self {
            machine: watchdog::Watchdog::new(Clock::now(), idle, time_limit),
            format: options.message_format,
            nodes: options.watch.clone(),
            pipe: None,
            line: Vec::new(),
        }
    }

    /// Reports that all ranks run, which starts `dbgr watch` if it was requested.
    pub(super) fn start(&mut self, events: &mut Loop) -> Result<(), NoDbgr> {
        self.advance(Clock::now(), Input::RanksRun, events)
    }

    /// Reports that the job is over, which ends `dbgr watch`.
    pub(super) fn stop(&mut self, events: &mut Loop) {
        // The only error is a failed start, and this input never starts anything.
        let _ = self.advance(Clock::now(), Input::JobOver, events);
    }

    /// Reports that a child of the front has exited.
    pub(super) fn on_exit(&mut self, ended: Pid) {
        self.machine
            .handle(Clock::now(), Input::Exited(ended.as_raw()));
    }

    /// Returns when to call [`Self::on_tick`].
    pub(super) const fn deadline(&self) -> Option<Time> {
        self.machine.deadline()
    }

    pub(super) fn on_tick(&mut self, now: Time, events: &mut Loop) {
        // The only error is a failed start, and a tick never starts anything.
        let _ = self.advance(now, Input::Tick, events);
    }

    fn advance(&mut self, now: Time, input: Input, events: &mut Loop) -> Result<(), NoDbgr> {
        self.machine.handle(now, input);
        while let Some(output) = self.machine.poll() {
            // The process is our child and was not reaped yet, so its pid cannot have been reused.
            match output {
                Output::Start { idle, left } => match self.spawn(idle, left, events) {
                    Ok(pid) => self.machine.handle(now, Input::Started(pid.as_raw())),
                    Err(why) => {
                        self.machine.handle(now, Input::NotStarted);
                        return Err(why);
                    }
                },
                Output::Ask(pid) => drop(os::kill(Pid::from_raw(pid), Signal::TERM)),
                Output::Kill(pid) => drop(os::kill(Pid::from_raw(pid), Signal::KILL)),
            }
        }
        Ok(())
    }

    fn spawn(
        &mut self,
        idle: Duration,
        left: Option<Duration>,
        events: &mut Loop,
    ) -> Result<Pid, NoDbgr> {
        let mut words = words(idle, left, self.format);
        words.extend(self.nodes.iter().cloned());
        let (ours, theirs) = os::pipe()?;
        os::set_nonblocking(ours.as_fd())?;
        let pid = start_dbgr(words, theirs.as_fd(), theirs.as_fd())?;
        self.pipe = events.add(ours, Interest::Read).ok();
        Ok(pid)
    }

    pub(super) fn is(&self, token: Token) -> bool {
        self.pipe == Some(token)
    }

    /// Returns true if its pipe is closed, and all its output was returned by [`Self::read`].
    pub(super) const fn is_silent(&self) -> bool {
        self.pipe.is_none()
    }

    /// Reads from the pipe, and returns complete lines, except at EOF or when a line is longer than [`LINE_MAX`].
    pub(super) fn read(&mut self, events: &mut Loop) -> Vec<u8> {
        let Some(token) = self.pipe else {
            return Vec::new();
        };
        let mut buffer = vec![0; READ_SIZE];
        let read = events.fd(token).map(|fd| os::read(fd, &mut buffer));
        match read {
            Some(Ok(ReadOutcome::Bytes(count))) => {
                self.line.extend_from_slice(&buffer[..count]);
                let end = self.line.iter().rposition(|&byte| byte == b'\n');
                let end = end.map_or(0, |end| end + 1);
                if end == 0 && self.line.len() > LINE_MAX {
                    return std::mem::take(&mut self.line);
                }
                let rest = self.line.split_off(end);
                std::mem::replace(&mut self.line, rest)
            }
            Some(Ok(ReadOutcome::WouldBlock)) => Vec::new(),
            Some(Ok(ReadOutcome::Closed) | Err(_)) | None => {
                drop(events.remove(token));
                self.pipe = None;
                std::mem::take(&mut self.line)
            }
        }
    }
}

/// Returns the arguments for `dbgr`.
fn words(idle: Duration, left: Option<Duration>, format: MessageFormat) -> Vec<String> {
    let front = os::current_pid();
    let mut words = vec![
        "watch".to_owned(),
        front.to_string(),
        "--idle".to_owned(),
        format!("{}ms", idle.as_millis()),
        "--output".to_owned(),
        format!("rally-{front}-hang.html"),
    ];
    if let Some(left) = left {
        words.extend(["--limit".to_owned(), format!("{}ms", left.as_millis())]);
    }
    if format == MessageFormat::Json {
        words.extend(["--message-format".to_owned(), "json".to_owned()]);
    }
    words
}
