//! What is on its way to a peer that reads slowly, or not at all.
//!
//! | state | on its way | the peer is |
//! |---|---|---|
//! | `Open` | nothing | read |
//! | `Open` | less than [`Bounds::pause`] | read, and written to |
//! | `Open` | as much, or more | written to: who does not read its answers is not asked for more |
//! | `Open` | more than [`Bounds::most`] | cut off |
//! | `Closing` | something | written to |
//! | `Closing` | nothing | done with |

/// How much may be on its way to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// From here on nothing is read from it. With 0 a peer has one answer before its next question is heard.
    pub pause: usize,
    /// Beyond this it is cut off.
    pub most: usize,
}

/// What is to be done with a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    Read,
    ReadAndWrite,
    Write,
    /// It has all that it was to get.
    Close,
}

/// The peer reads nothing: it is to be cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{queued} bytes are on their way already, and none is read")]
pub struct Overrun {
    pub queued: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    Closing,
}

/// The state machine of one peer; it counts the bytes, and its owner has them.
#[derive(Clone, Copy, Debug)]
pub struct Backlog {
    bounds: &'static Bounds,
    queued: usize,
    state: State,
}

impl Backlog {
    /// Nothing is on its way.
    #[must_use]
    pub const fn new(bounds: &'static Bounds) -> Self {
        Self {
            bounds,
            queued: 0,
            state: State::Open,
        }
    }

    /// So many bytes more are to go.
    ///
    /// # Errors
    ///
    /// [`Overrun`] where that would be too much; nothing is counted then.
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

    /// So many bytes are out.
    pub const fn written(&mut self, bytes: usize) {
        self.queued = self.queued.saturating_sub(bytes);
    }

    /// Nobody is there any more who could read the rest.
    pub const fn clear(&mut self) {
        self.queued = 0;
    }

    /// Nothing more comes: the peer goes when it has the rest.
    pub const fn close(&mut self) {
        self.state = State::Closing;
    }

    /// Whether the peer only waits for the rest.
    #[must_use]
    pub const fn is_closing(&self) -> bool {
        matches!(self.state, State::Closing)
    }

    /// What is to be done with the peer now.
    #[must_use]
    pub const fn wanted(&self) -> Wanted {
        match (self.state, self.queued) {
            (State::Open, 0) => Wanted::Read,
            (State::Closing, 0) => Wanted::Close,
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
        /// A peer that is neither read nor written to would be forgotten, and one over its bound would fill our memory.
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
