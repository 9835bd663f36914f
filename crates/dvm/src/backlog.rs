//! Bytes queued for a peer that reads slowly or not at all.
//!
//! | state | bytes queued | what to do with the peer |
//! |---|---|---|
//! | `Open` | none | read from it |
//! | `Open` | fewer than [`Bounds::pause`] | read from it and write to it |
//! | `Open` | at least [`Bounds::pause`] | only write to it: a peer that does not read its answers may not ask for more |
//! | `Open` | would exceed [`Bounds::most`] | drop the connection |
//! | `Closing` | some | only write to it |
//! | `Closing` | none | close the connection |

use crate::planted::{self, Bug};

/// Limits, in bytes, on what may be queued for a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// From this many queued bytes on, we do not read from the peer. With 0, a peer gets one answer before its next
    /// request is read.
    pub pause: usize,
    /// If more bytes than this were queued, the connection is dropped.
    pub most: usize,
}

/// The next step for a peer's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    Read,
    ReadAndWrite,
    Write,
    /// Close it: the peer has received everything.
    Close,
}

/// The peer does not read: its connection is to be dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{queued} bytes are in flight already, and none was read")]
pub struct Overrun {
    pub queued: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    Closing,
}

/// The state machine of one peer's queue. It only counts the bytes; its owner holds them.
#[derive(Clone, Copy, Debug)]
pub struct Backlog {
    bounds: &'static Bounds,
    queued: usize,
    state: State,
}

impl Backlog {
    /// Creates an open, empty backlog.
    #[must_use]
    pub const fn new(bounds: &'static Bounds) -> Self {
        Self {
            bounds,
            queued: 0,
            state: State::Open,
        }
    }

    /// Counts bytes that are added to the queue.
    ///
    /// # Errors
    ///
    /// [`Overrun`] if the queue would exceed [`Bounds::most`]; then the bytes are not counted.
    pub const fn push(&mut self, bytes: usize) -> Result<(), Overrun> {
        let queued = self.queued;
        match queued.checked_add(bytes) {
            Some(sum) if sum <= self.bounds.most => {
                self.queued = sum;
                Ok(())
            }
            _ => Err(Overrun { queued }),
        }
    }

    /// Counts bytes that were written to the peer.
    pub const fn written(&mut self, bytes: usize) {
        self.queued = self.queued.saturating_sub(bytes);
    }

    /// Drops all queued bytes, because the peer can no longer read them.
    pub const fn clear(&mut self) {
        self.queued = 0;
    }

    /// Closes the queue: nothing more is added, and the peer is to be closed when the queue is empty.
    pub const fn close(&mut self) {
        self.state = State::Closing;
    }

    /// Returns true if the peer is to be closed when the queue is empty.
    #[must_use]
    pub const fn is_closing(&self) -> bool {
        matches!(self.state, State::Closing)
    }

    /// Returns what to do with the peer now.
    #[must_use]
    pub fn wanted(&self) -> Wanted {
        match (self.state, self.queued) {
            (State::Open, 0) => Wanted::Read,
            (State::Closing, 0) => Wanted::Close,
            (State::Closing, _) if planted::is(Bug::ClosedBeforeWritten) => Wanted::Close,
            (State::Open, _) if planted::is(Bug::PauseForgotten) => Wanted::ReadAndWrite,
            (State::Open, queued) if queued < self.bounds.pause => Wanted::ReadAndWrite,
            (State::Open | State::Closing, _) => Wanted::Write,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BOUNDS: Bounds = Bounds {
        pause: 100,
        most: 1_000,
    };
    const ONE_BY_ONE: Bounds = Bounds { pause: 0, most: 10 };

    #[test]
    fn who_does_not_read_is_not_asked_and_then_cut_off() {
        let mut backlog = Backlog::new(&BOUNDS);
        assert_eq!(backlog.wanted(), Wanted::Read);
        backlog.push(99).unwrap();
        assert_eq!(backlog.wanted(), Wanted::ReadAndWrite);
        backlog.push(901).unwrap();
        assert_eq!(backlog.wanted(), Wanted::Write);
        assert_eq!(backlog.push(1), Err(Overrun { queued: 1_000 }));
        backlog.written(901);
        assert_eq!(backlog.wanted(), Wanted::ReadAndWrite);
        backlog.close();
        assert_eq!(backlog.wanted(), Wanted::Write);
        backlog.written(99);
        assert_eq!(backlog.wanted(), Wanted::Close);
    }

    #[test]
    fn one_answer_comes_before_the_next_question() {
        let mut backlog = Backlog::new(&ONE_BY_ONE);
        backlog.push(1).unwrap();
        assert_eq!(backlog.wanted(), Wanted::Write);
        backlog.clear();
        assert_eq!(backlog.wanted(), Wanted::Read);
        assert_eq!(backlog.push(usize::MAX), Err(Overrun { queued: 0 }));
    }

    proptest! {
        /// A peer that is neither read nor written would be forgotten. A peer beyond its bound would exhaust our
        /// memory.
        #[test]
        fn a_peer_is_bounded_and_never_forgotten(script in prop::collection::vec((0_usize..400, prop::bool::ANY), 0..60)) {
            let mut backlog = Backlog::new(&BOUNDS);
            let mut queued = 0;
            for (bytes, pushes) in script {
                if pushes {
                    match backlog.push(bytes) {
                        Ok(()) => queued += bytes,
                        Err(_) => prop_assert!(queued + bytes > BOUNDS.most),
                    }
                } else {
                    let written = bytes.min(queued);
                    queued -= written;
                    backlog.written(written);
                }
                prop_assert!(queued <= BOUNDS.most);
                prop_assert_eq!(backlog.wanted() == Wanted::Read, queued == 0);
                prop_assert_eq!(backlog.wanted() == Wanted::Write, queued >= BOUNDS.pause);
            }
        }
    }
}
