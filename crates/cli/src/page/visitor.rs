//! One connection of a browser, without its socket: one request, one answer, and the end.
//!
//! | state | event | next state |
//! |---|---|---|
//! | `Reading` | a part of a request | `Reading`; its head is complete: `Waiting` |
//! | `Reading` | malformed, or longer than [`HEAD_MAX`] | `Writing` the refusal |
//! | `Reading` | [`READ_PATIENCE`] | `Writing` the refusal; nothing has arrived: `Gone` |
//! | `Waiting` | the answer | `Writing` |
//! | `Waiting` | [`ANSWER_PATIENCE`] | `Writing` that there is none |
//! | `Writing` | all is written | `Draining` |
//! | `Writing` | [`WRITE_PATIENCE`] | `Gone` |
//! | `Draining` | the browser closes, [`DRAIN_PATIENCE`], or [`DRAIN_MAX`] bytes | `Gone` |
//! | any | the connection is lost | `Gone` |
//!
//! `Draining` is there for refusals: if a socket is closed while bytes of a request are unread, the kernel resets the connection, and the
//! answer may be lost.

use std::time::Duration;

use base::Time;
use os::Interest;

use super::{
    request::{Head, Parsed, Peer, Refusal, parse},
    response::Response,
};

#[cfg(doc)]
use super::request::HEAD_MAX;

/// Time in which a request has to arrive.
pub(super) const READ_PATIENCE: Duration = Duration::from_secs(5);
/// Time for an answer. A machine has 30 s for each question, and most answers need three.
pub(super) const ANSWER_PATIENCE: Duration = Duration::from_secs(100);
/// Time in which a browser has to read the answer.
pub(super) const WRITE_PATIENCE: Duration = Duration::from_secs(10);
/// Time in which a browser has to close its connection after the answer.
pub(super) const DRAIN_PATIENCE: Duration = Duration::from_secs(1);
/// Bytes that are ignored after the answer.
const DRAIN_MAX: usize = 1 << 20;

#[derive(Debug)]
enum Stage {
    Reading(Vec<u8>),
    Waiting,
    Writing { bytes: Vec<u8>, sent: usize },
    Draining { ignored: usize },
    Gone,
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Visitor {
    pub(super) peer: Peer,
    stage: Stage,
    deadline: Time,
}

impl Visitor {
    pub(super) fn new(now: Time, peer: Peer) -> Self {
        Self {
            peer,
            stage: Stage::Reading(Vec::new()),
            deadline: now + READ_PATIENCE,
        }
    }

    /// Handles bytes. Returns the request, if it is complete now: the caller calls [`Self::answer`].
    pub(super) fn read(&mut self, now: Time, bytes: &[u8]) -> Option<Head> {
        match &mut self.stage {
            Stage::Reading(so_far) => {
                so_far.extend_from_slice(bytes);
                match parse(so_far) {
                    Parsed::Incomplete => {}
                    Parsed::Head(head) => {
                        self.go(now, Stage::Waiting, ANSWER_PATIENCE);
                        return Some(head);
                    }
                    Parsed::Bad(refusal) => self.write(now, &Response::refused(&refusal)),
                }
            }
            Stage::Draining { ignored } => {
                *ignored += bytes.len();
                if *ignored > DRAIN_MAX {
                    self.stage = Stage::Gone;
                }
            }
            Stage::Waiting | Stage::Writing { .. } | Stage::Gone => {}
        }
        None
    }

    /// Handles the answer to its request. An answer that comes too late is dropped.
    pub(super) fn answer(&mut self, now: Time, response: &Response) {
        if matches!(self.stage, Stage::Waiting) {
            self.write(now, response);
        }
    }

    /// Returns the bytes that are to be sent.
    pub(super) fn outgoing(&self) -> &[u8] {
        match &self.stage {
            Stage::Writing { bytes, sent } => bytes.get(*sent..).unwrap_or_default(),
            Stage::Reading(_) | Stage::Waiting | Stage::Draining { .. } | Stage::Gone => &[],
        }
    }

    /// Notes that bytes were sent. Returns true if these were the last ones.
    pub(super) fn sent(&mut self, now: Time, count: usize) -> bool {
        let Stage::Writing { bytes, sent } = &mut self.stage else {
            return false;
        };
        *sent += count;
        let is_all = *sent >= bytes.len();
        if is_all {
            self.go(now, Stage::Draining { ignored: 0 }, DRAIN_PATIENCE);
        }
        is_all
    }

    /// Handles that the connection is closed or lost.
    pub(super) fn lost(&mut self) {
        self.stage = Stage::Gone;
    }

    pub(super) fn tick(&mut self, now: Time) {
        if now < self.deadline {
            return;
        }
        match &self.stage {
            Stage::Reading(so_far) if !so_far.is_empty() => {
                self.write(now, &Response::refused(&Refusal::Late));
            }
            Stage::Waiting => {
                self.write(now, &Response::unavailable("the machine does not answer"));
            }
            Stage::Reading(_) | Stage::Writing { .. } | Stage::Draining { .. } | Stage::Gone => {
                self.stage = Stage::Gone;
            }
        }
    }

    /// Returns when to call [`Self::tick`].
    pub(super) const fn deadline(&self) -> Time {
        self.deadline
    }

    pub(super) const fn interest(&self) -> Interest {
        match &self.stage {
            Stage::Reading(_) | Stage::Draining { .. } => Interest::Read,
            Stage::Waiting | Stage::Gone => Interest::None,
            Stage::Writing { .. } => Interest::Write,
        }
    }

    pub(super) const fn is_gone(&self) -> bool {
        matches!(self.stage, Stage::Gone)
    }

    fn write(&mut self, now: Time, response: &Response) {
        let bytes = response.bytes();
        self.go(now, Stage::Writing { bytes, sent: 0 }, WRITE_PATIENCE);
    }

    fn go(&mut self, now: Time, stage: Stage, patience: Duration) {
        self.stage = stage;
        self.deadline = now + patience;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";

    fn visitor() -> Visitor {
        Visitor::new(Time::ZERO, Peer::Own)
    }

    fn answer(visitor: &Visitor) -> String {
        let text = String::from_utf8_lossy(visitor.outgoing()).into_owned();
        text.lines().next().unwrap_or_default().to_owned()
    }

    #[test]
    fn a_request_is_read_in_parts_and_answered_once() {
        let now = Time::ZERO;
        let mut visitor = visitor();
        for byte in &REQUEST[..REQUEST.len() - 1] {
            assert_eq!(visitor.read(now, &[*byte]), None);
        }
        let head = visitor.read(now, b"\n").unwrap();
        assert_eq!(head.target, "/");
        assert_eq!(visitor.interest(), Interest::None);
        visitor.answer(now, &Response::gone());
        visitor.answer(now, &Response::accepted());
        assert_eq!(answer(&visitor), "HTTP/1.1 410 Gone");
        let length = visitor.outgoing().len();
        assert!(!visitor.sent(now, 1));
        assert!(visitor.sent(now, length - 1));
        assert_eq!(visitor.interest(), Interest::Read);
        assert_eq!(visitor.read(now, REQUEST), None);
        visitor.lost();
        assert!(visitor.is_gone());
    }

    #[test]
    fn no_state_lasts_longer_than_its_deadline() {
        let mut silent = visitor();
        silent.tick(Time::ZERO + READ_PATIENCE);
        assert!(silent.is_gone());
        let mut slow = visitor();
        slow.read(Time::ZERO, b"GET / HT");
        // More bytes do not move the deadline.
        slow.read(Time::ZERO + READ_PATIENCE / 2, b"TP/1.1\r\n");
        slow.tick(Time::ZERO + READ_PATIENCE);
        assert_eq!(answer(&slow), "HTTP/1.1 408 Request Timeout");
        slow.tick(slow.deadline());
        assert!(slow.is_gone());
        let mut waiting = visitor();
        waiting.read(Time::ZERO, REQUEST);
        waiting.tick(Time::ZERO + READ_PATIENCE);
        assert_eq!(answer(&waiting), "");
        waiting.tick(waiting.deadline());
        assert_eq!(answer(&waiting), "HTTP/1.1 503 Service Unavailable");
        let length = waiting.outgoing().len();
        waiting.sent(Time::ZERO, length);
        waiting.tick(Time::ZERO + DRAIN_PATIENCE);
        assert!(waiting.is_gone());
    }

    #[test]
    fn a_request_without_end_is_refused() {
        let mut visitor = visitor();
        let mut sent = 0;
        visitor.read(Time::ZERO, b"GET / HTTP/1.1\r\nX: ");
        while visitor.outgoing().is_empty() {
            visitor.read(Time::ZERO, &[b'x'; 1000]);
            sent += 1000;
            assert!(sent < 100_000);
        }
        assert_eq!(
            answer(&visitor),
            "HTTP/1.1 431 Request Header Fields Too Large"
        );
        let length = visitor.outgoing().len();
        visitor.sent(Time::ZERO, length);
        for _ in 0..=DRAIN_MAX / 1000 {
            visitor.read(Time::ZERO, &[b'x'; 1000]);
        }
        assert!(visitor.is_gone());
    }
}
