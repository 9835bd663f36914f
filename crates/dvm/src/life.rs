//! The life of one proc at its daemon: from the order to start it to its one terminal state.
//!
//! | state | spawned | spawn failed | trapped | released | exited | a stream ended | leak deadline |
//! |---|---|---|---|---|---|---|---|
//! | `Starting` | `Running` or `Tracing` | `Failed` | bug | – | bug | bug | – |
//! | `Tracing` | bug | bug | `Held` | – | `Exited` | noted | – |
//! | `Held` | bug | bug | bug | `Running` | `Exited` | noted | – |
//! | `Running` | bug | bug | bug | – | `Exited` | noted | – |
//! | `Exited` | bug | bug | bug | – | bug | noted; last → `Done` whole | `Done` leaky |
//! | `Done`, `Failed` | bug | bug | bug | – | bug | ignored | – |
//! | `Left` | bug | bug | bug | – | ignored | ignored | – |
//!
//! A proc that we cannot end is `Left`: it has become another user and does not end by itself, or sleeps in the kernel. That is
//! said, and nobody waits for it.
//!
//! A proc is done when it has exited *and* its output was read to the end; what still holds the output open
//! [`LEAK_DELAY`] after the exit makes it leaky. Every fork ends in exactly one `Done`.

use std::time::Duration;

use base::{ExitStatus, Time};

use crate::{
    planted::{self, Bug},
    proto::{Drained, Stream},
    spec::HoldAt,
};

/// How long the output of a proc that has exited may stay open without a byte of its own before we stop waiting.
pub const LEAK_DELAY: Duration = Duration::from_secs(1);

/// In how many reads of a stream we have what a proc left in its pipe when it exited: a pipe holds at most 1 MiB, of
/// which one read takes a quarter. What later reads bring was written by somebody else, and does not prolong the wait:
/// a descendant that writes now and then must not keep the job alive.
pub const OWN_READS_MAX: u8 = 4;

/// State of a proc.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Starting,
    /// Started under trace; its exec trap is awaited.
    Tracing,
    /// Stands still at its first instruction.
    Held,
    Running,
    Exited {
        status: ExitStatus,
        leak_at: Time,
        /// By stream: how many more reads can still bring bytes of its own.
        own_reads: [u8; 2],
    },
    Done {
        status: ExitStatus,
        drained: Drained,
    },
    Failed,
    /// It is still there, and we cannot end it.
    Left,
}

/// One proc.
#[derive(Clone, Copy, Debug)]
pub struct Life {
    state: State,
    stdout_open: bool,
    stderr_open: bool,
}

/// An event that this state cannot have: a mistake of the caller, reported and otherwise ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unexpected {
    pub state: State,
    pub event: &'static str,
}

impl Life {
    /// A proc that is about to be started; `forwarded` says whether we read a stream.
    #[must_use]
    pub fn new(forwarded: impl Fn(Stream) -> bool) -> Self {
        Self {
            state: State::Starting,
            stdout_open: forwarded(Stream::Stdout),
            stderr_open: forwarded(Stream::Stderr),
        }
    }

    #[must_use]
    pub const fn state(&self) -> State {
        self.state
    }

    /// Has a process that can be signalled.
    #[must_use]
    pub const fn is_alive(&self) -> bool {
        matches!(self.state, State::Tracing | State::Held | State::Running)
    }

    #[must_use]
    pub const fn is_final(&self) -> bool {
        matches!(self.state, State::Done { .. } | State::Failed | State::Left)
    }

    #[must_use]
    pub const fn is_open(&self, stream: Stream) -> bool {
        match stream {
            Stream::Stdout => self.stdout_open,
            Stream::Stderr => self.stderr_open,
        }
    }

    pub const fn on_spawned(&mut self, hold: HoldAt) -> Result<(), Unexpected> {
        match (self.state, hold) {
            (State::Starting, HoldAt::Nowhere) => self.state = State::Running,
            (State::Starting, HoldAt::Exec) => self.state = State::Tracing,
            (state, _) => {
                return Err(Unexpected {
                    state,
                    event: "spawned",
                });
            }
        }
        Ok(())
    }

    pub const fn on_spawn_failed(&mut self) -> Result<(), Unexpected> {
        match self.state {
            State::Starting => {
                self.state = State::Failed;
                self.stdout_open = false;
                self.stderr_open = false;
                Ok(())
            }
            state => Err(Unexpected {
                state,
                event: "spawn failed",
            }),
        }
    }

    pub const fn on_trapped(&mut self) -> Result<(), Unexpected> {
        match self.state {
            State::Tracing => {
                self.state = State::Held;
                Ok(())
            }
            state => Err(Unexpected {
                state,
                event: "trapped",
            }),
        }
    }

    /// True when it was held.
    pub const fn on_released(&mut self) -> bool {
        match self.state {
            State::Held => {
                self.state = State::Running;
                true
            }
            _ => false,
        }
    }

    pub fn on_exited(&mut self, now: Time, status: ExitStatus) -> Result<(), Unexpected> {
        match self.state {
            State::Tracing | State::Held | State::Running => {
                self.state = State::Exited {
                    status,
                    leak_at: now + LEAK_DELAY,
                    own_reads: [OWN_READS_MAX; 2],
                };
                self.settle();
                Ok(())
            }
            State::Left => Ok(()),
            state => Err(Unexpected {
                state,
                event: "exited",
            }),
        }
    }

    /// Nobody can end it; true when it was alive.
    pub const fn on_given_up(&mut self) -> bool {
        let alive = self.is_alive();
        if alive {
            self.state = State::Left;
        }
        alive
    }

    /// Bytes were read: what the proc itself wrote before it exited gives it more time.
    pub fn on_output(&mut self, now: Time, stream: Stream) {
        if let State::Exited {
            leak_at, own_reads, ..
        } = &mut self.state
        {
            let reads = &mut own_reads[stream as usize];
            if *reads > 0 || planted::is(Bug::LeakTimerAlwaysRestarted) {
                *reads = reads.saturating_sub(1);
                *leak_at = now + LEAK_DELAY;
            }
        }
    }

    /// Reading was not possible until now, for want of credit: the wait for what is its own begins anew.
    pub fn on_reading_resumed(&mut self, now: Time, stream: Stream) {
        if let State::Exited {
            leak_at, own_reads, ..
        } = &mut self.state
            && own_reads[stream as usize] > 0
            && !planted::is(Bug::LeakTimerNotRestartedByResume)
        {
            *leak_at = now + LEAK_DELAY;
        }
    }

    pub fn on_stream_ended(&mut self, stream: Stream) {
        match stream {
            Stream::Stdout => self.stdout_open = false,
            Stream::Stderr => self.stderr_open = false,
        }
        self.settle();
    }

    /// When to call [`Self::on_leak_deadline`].
    #[must_use]
    pub fn leak_deadline(&self) -> Option<Time> {
        match self.state {
            State::Exited { .. } if planted::is(Bug::LeakTimerNeverArmed) => None,
            State::Exited { leak_at, .. } => Some(leak_at),
            _ => None,
        }
    }

    /// Gives up on the streams that are still open, when it is time; true when the proc is done by it.
    pub fn on_leak_deadline(&mut self, now: Time) -> bool {
        match self.state {
            State::Exited {
                status, leak_at, ..
            } if leak_at <= now => {
                self.state = State::Done {
                    status,
                    drained: Drained::Leaky,
                };
                true
            }
            _ => false,
        }
    }

    fn settle(&mut self) {
        if let State::Exited { status, .. } = self.state
            && !self.stdout_open
            && (!self.stderr_open || planted::is(Bug::DoneBeforeLastStream))
        {
            self.state = State::Done {
                status,
                drained: Drained::Whole,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn done_needs_the_exit_and_both_ends_in_any_order() {
        for exit_position in 0..3 {
            let mut life = Life::new(|_| true);
            life.on_spawned(HoldAt::Nowhere).unwrap();
            let mut streams = Stream::BOTH.into_iter();
            for step in 0..3 {
                assert!(!life.is_final());
                if step == exit_position {
                    life.on_exited(at(0), ExitStatus::SUCCESS).unwrap();
                } else {
                    life.on_stream_ended(streams.next().unwrap());
                }
            }
            assert_eq!(
                life.state(),
                State::Done {
                    status: ExitStatus::SUCCESS,
                    drained: Drained::Whole
                }
            );
        }
    }

    #[test]
    fn a_pipe_that_stays_open_makes_it_leaky() {
        let mut life = Life::new(|_| true);
        life.on_spawned(HoldAt::Nowhere).unwrap();
        life.on_stream_ended(Stream::Stderr);
        life.on_exited(at(0), ExitStatus::Exited(3)).unwrap();
        assert!(!life.on_leak_deadline(at(999)));
        life.on_output(at(500), Stream::Stdout);
        assert!(!life.on_leak_deadline(at(1_200)));
        assert!(life.on_leak_deadline(at(1_500)));
        assert_eq!(
            life.state(),
            State::Done {
                status: ExitStatus::Exited(3),
                drained: Drained::Leaky
            }
        );
    }

    #[test]
    fn a_descendant_that_writes_for_ever_does_not_prolong_the_wait() {
        let mut life = Life::new(|stream| stream == Stream::Stdout);
        life.on_spawned(HoldAt::Nowhere).unwrap();
        life.on_exited(at(0), ExitStatus::SUCCESS).unwrap();
        for read in 1..=u64::from(OWN_READS_MAX) + 3 {
            life.on_output(at(900 * read), Stream::Stdout);
        }
        life.on_reading_resumed(at(4_500), Stream::Stdout);
        assert_eq!(
            life.leak_deadline(),
            Some(at(900 * u64::from(OWN_READS_MAX) + 1_000))
        );
    }

    #[test]
    fn the_wait_begins_anew_when_reading_was_not_possible() {
        let mut life = Life::new(|_| true);
        life.on_spawned(HoldAt::Nowhere).unwrap();
        life.on_exited(at(0), ExitStatus::SUCCESS).unwrap();
        life.on_reading_resumed(at(5_000), Stream::Stderr);
        assert!(!life.on_leak_deadline(at(5_999)));
        assert!(life.on_leak_deadline(at(6_000)));
    }

    #[test]
    fn what_cannot_happen_is_said() {
        let mut life = Life::new(|_| false);
        assert_eq!(
            life.on_exited(at(0), ExitStatus::SUCCESS),
            Err(Unexpected {
                state: State::Starting,
                event: "exited"
            })
        );
        life.on_spawned(HoldAt::Exec).unwrap();
        assert_eq!(
            life.on_spawned(HoldAt::Exec),
            Err(Unexpected {
                state: State::Tracing,
                event: "spawned"
            })
        );
        assert!(!life.on_released());
        life.on_trapped().unwrap();
        assert!(life.on_released());
        life.on_exited(at(1), ExitStatus::SUCCESS).unwrap();
        assert_eq!(
            life.state(),
            State::Done {
                status: ExitStatus::SUCCESS,
                drained: Drained::Whole
            }
        );
    }
}
