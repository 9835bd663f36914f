//! Forwards the front's standard input to the ranks: reads only with credit, and never in the background.

use std::{
    os::fd::{AsFd, OwnedFd},
    time::Duration,
};

use base::Time;
use bytes::Bytes;
use dvm::proto::{EndReason, FromFront};
use os::{Clock, Interest, Loop, ReadOutcome, Standing, Token};

use crate::args::InputSource;

/// The size of one read, in bytes.
const READ_MAX: usize = 256 * 1024;
/// How often to check whether we are back in the foreground of a terminal that has input.
const BACKGROUND_DELAY: Duration = Duration::from_millis(250);
/// The size of one read while every slot is in flight, in bytes.
const READ_SMALL: usize = 16 * 1024;

#[derive(Debug)]
enum Source {
    /// Not yet in the event loop: no credit has arrived.
    Waiting(OwnedFd),
    Open {
        token: Token,
        interest: Interest,
    },
    /// No input at all; EOF is sent as soon as there is credit.
    Empty,
    /// EOF was sent, or no rank wants more input.
    Done,
}

/// The result of one read.
#[derive(Debug)]
pub(super) enum Got {
    Nothing,
    /// A message for the controller.
    Message(FromFront),
    /// The terminal has hung up.
    HangUp,
}

/// The standard input of the job.
#[derive(Debug)]
pub(super) struct Input {
    source: Source,
    credit: u64,
    terminal: bool,
    /// When to check again whether we are in the foreground. Set if there is input while we are in the background of our
    /// terminal, where reading would stop us. A shell that moves a running job to the foreground sends it no signal.
    background_until: Option<Time>,
}

impl Input {
    pub(super) fn new(wanted: &InputSource, stdin: Option<OwnedFd>) -> Result<Self, os::Error> {
        let fd = match wanted {
            // Other processes may share this input: if they consume it between our poll and our read, the read must not
            // block.
            InputSource::Inherit => stdin
                .map(|fd| os::reopen_nonblocking(fd.as_fd(), os::Direction::Read).unwrap_or(fd)),
            InputSource::Null => None,
            InputSource::File(path) => {
                Some(os::open_for_reading(path).map_err(|error| os::Error::File {
                    operation: "open",
                    path: path.clone(),
                    errno: error.raw_os_error().unwrap_or_default(),
                })?)
            }
        };
        let terminal = fd.as_ref().is_some_and(|fd| os::is_terminal(fd.as_fd()));
        Ok(Self {
            source: fd.map_or(Source::Empty, Source::Waiting),
            credit: 0,
            terminal,
            background_until: None,
        })
    }

    pub(super) fn is(&self, token: Token) -> bool {
        matches!(self.source, Source::Open { token: ours, .. } if ours == token)
    }

    pub(super) const fn credit(&mut self, bytes: u64) {
        self.credit += bytes;
    }

    /// Lets the next event read again: we may have come to the foreground.
    pub(super) const fn try_again(&mut self) {
        self.background_until = None;
    }

    /// Returns when to call [`Self::on_tick`].
    pub(super) const fn deadline(&self) -> Option<Time> {
        self.background_until
    }

    pub(super) fn on_tick(&mut self, now: Time) {
        if self.background_until.is_some_and(|until| until <= now) {
            self.background_until = None;
        }
    }

    /// Stops reading, because no rank reads any more. Unread input stays for the next process that reads it.
    pub(super) fn close(&mut self, events: &mut Loop) {
        if let Source::Open { token, .. } = std::mem::replace(&mut self.source, Source::Done) {
            drop(events.remove(token));
        }
    }

    /// Registers the input with the event loop if it may be read now. `congested`: earlier input is still waiting to be
    /// sent.
    pub(super) fn watch(&mut self, events: &mut Loop, congested: bool) {
        if self.credit > 0
            && let Source::Waiting(_) | Source::Empty = self.source
        {
            self.source = match std::mem::replace(&mut self.source, Source::Done) {
                Source::Waiting(fd) => match events.add(fd, Interest::None) {
                    Ok(token) => Source::Open {
                        token,
                        interest: Interest::None,
                    },
                    // A file that cannot be polled counts as empty.
                    Err(_) => Source::Empty,
                },
                other => other,
            };
        }
        if let Source::Open { token, interest } = &mut self.source {
            let ready = self.credit > 0 && self.background_until.is_none() && !congested;
            let wanted = if ready {
                Interest::Read
            } else {
                Interest::None
            };
            if wanted != *interest && events.set_interest(*token, wanted).is_ok() {
                *interest = wanted;
            }
        }
    }

    /// Returns the EOF message of an input that is empty from the start: no event announces it.
    pub(super) fn take_end(&mut self) -> Option<FromFront> {
        if matches!(self.source, Source::Empty) && self.credit > 0 {
            self.source = Source::Done;
            return Some(FromFront::StdinEof);
        }
        None
    }

    /// Reads once.
    pub(super) fn read(&mut self, events: &mut Loop, slot: Option<os::Slot>) -> Got {
        let Source::Open { token, .. } = self.source else {
            return Got::Nothing;
        };
        let Some(fd) = events.fd(token) else {
            return Got::Nothing;
        };
        let may_read = || !self.terminal || os::standing(fd) != Standing::Background;
        if !may_read() {
            self.background_until = Some(Clock::now() + BACKGROUND_DELAY);
            return Got::Nothing;
        }
        let room = usize::try_from(self.credit)
            .unwrap_or(READ_MAX)
            .min(READ_MAX);
        let mut small = Vec::new();
        let mut slot = slot;
        let buffer = match &mut slot {
            Some(slot) => slot.as_mut(),
            None => {
                small.resize(READ_SMALL, 0);
                small.as_mut_slice()
            }
        };
        let room = room.min(buffer.len());
        match os::read(fd, &mut buffer[..room]) {
            Ok(ReadOutcome::Bytes(read)) => {
                self.credit -= read as u64;
                Got::Message(FromFront::Stdin(match slot {
                    Some(slot) => Bytes::from_owner(slot.truncated(read)),
                    None => Bytes::copy_from_slice(&small[..read]),
                }))
            }
            Ok(ReadOutcome::WouldBlock) => Got::Nothing,
            // The read failed because we have just left the foreground: that is not EOF.
            Ok(ReadOutcome::Closed) | Err(_) if !may_read() => {
                self.background_until = Some(Clock::now() + BACKGROUND_DELAY);
                Got::Nothing
            }
            Ok(ReadOutcome::Closed) => {
                let is_gone = self.terminal && os::has_hung_up(fd);
                self.close(events);
                if is_gone {
                    Got::HangUp
                } else {
                    Got::Message(FromFront::StdinEof)
                }
            }
            // A read error is no EOF: EOF would make the ranks believe that they have the whole input.
            Err(error) => {
                self.close(events);
                Got::Message(FromFront::End(EndReason::InputLost(error.errno())))
            }
        }
    }
}
