//! The input of processes: what a tool reads from a descriptor goes to them, a piece at a time.
//!
//! The next piece is read when the server has taken the last one, so that a process that does not read holds up whoever writes into
//! the descriptor.

use std::os::fd::OwnedFd;

use bytes::Bytes;
use os::{Interest, ReadOutcome, Token};
use pmix::{
    client::{ProgramEvent, Ticket},
    tool::Event,
    value::Proc,
};

use super::{Failed, Visit};

/// Bytes of a piece. PRRTE has a limit of its own for what waits.
const PIECE_MAX: usize = 4096;

/// A descriptor whose bytes are the input of processes.
#[derive(Debug)]
pub(super) struct Feed {
    token: Token,
    to: Vec<Proc>,
    /// The piece that the server has not taken.
    sent: Option<Ticket>,
}

impl Visit {
    /// Sends what is read from `input` to these processes, and its end. It replaces an earlier input. A server may refuse input, or
    /// know that nobody reads it; then no more is read.
    ///
    /// # Errors
    /// The descriptor cannot be watched.
    pub fn feed(&mut self, input: OwnedFd, to: Vec<Proc>) -> Result<(), Failed> {
        self.end_feed();
        let token = self.events.add(input, Interest::Read)?;
        let sent = None;
        self.feed = Some(Feed { token, to, sent });
        Ok(())
    }

    /// Returns true if an event is about the input only.
    pub(super) fn fed(&mut self, event: &Event) -> bool {
        let Some(feed) = &mut self.feed else {
            return false;
        };
        let Event::Program(ProgramEvent::Done { ticket, result }) = event else {
            return false;
        };
        if feed.sent != Some(*ticket) {
            return false;
        }
        feed.sent = None;
        let token = feed.token;
        // Nobody is left to feed after the end of the input.
        let goes_on = result.is_ok()
            && !feed.to.is_empty()
            && self.events.set_interest(token, Interest::Read).is_ok();
        if !goes_on {
            self.end_feed();
        }
        true
    }

    /// Reads a piece of input.
    pub(super) fn read_input(&mut self, token: Token) -> Result<(), Failed> {
        let Some(feed) = &mut self.feed else {
            return Ok(());
        };
        let Some(fd) = self.events.fd(token) else {
            return Ok(());
        };
        if token != feed.token || feed.sent.is_some() {
            return Ok(());
        }
        let mut piece = [0; PIECE_MAX];
        match os::read(fd, &mut piece)? {
            ReadOutcome::WouldBlock => return Ok(()),
            ReadOutcome::Bytes(count) => {
                let bytes = Bytes::copy_from_slice(piece.get(..count).unwrap_or_default());
                feed.sent = Some(self.tool.push_stdin(feed.to.clone(), bytes));
            }
            ReadOutcome::Closed => {
                feed.sent = Some(self.tool.close_stdin(feed.to.clone()));
                // The descriptor is at its end, and would be ready for ever.
                feed.to.clear();
            }
        }
        self.events.set_interest(token, Interest::None)?;
        Ok(())
    }

    fn end_feed(&mut self) {
        if let Some(feed) = self.feed.take() {
            drop(self.events.remove(feed.token));
        }
    }
}
