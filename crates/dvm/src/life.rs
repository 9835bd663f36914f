//! The life of one proc at its daemon, from the request to start it to its one final state.
//!
//! | state | spawned | spawn failed | trapped | released | exited | a stream ended | leak deadline |
//! |---|---|---|---|---|---|---|---|
//! | `Starting` | → `Running` or `Tracing` | → `Failed` | bug | – | bug | bug | – |
//! | `Tracing` | bug | bug | → `Held` | – | → `Exited` | recorded | – |
//! | `Held` | bug | bug | bug | → `Running` | → `Exited` | recorded | – |
//! | `Running` | bug | bug | bug | – | → `Exited` | recorded | – |
//! | `Exited` | bug | bug | bug | – | bug | recorded; the last one → `Done`, whole | → `Done`, leaky |
//! | `Done`, `Failed` | bug | bug | bug | – | bug | ignored | – |
//! | `Abandoned` | bug | bug | bug | – | ignored | ignored | – |
//!
//! A proc that we cannot end becomes `Abandoned`: it changed its user and does not exit by itself, or it is blocked in the
//! kernel. We report it and do not wait for it.
//!
//! A proc is `Done` when it has exited *and* its output was read to EOF. If another process still holds the output open
//! [`LEAK_DELAY`] after the exit, the proc is leaky. A forked proc becomes `Done` exactly once, unless we abandon it.

use std::time::Duration;

use base::{ExitStatus, Time};

use crate::{
    planted::{self, Bug},
    proto::{Drained, Stream},
    spec::HoldAt,
};

/// How long we wait for EOF on the output of an exited proc. The wait restarts with bytes that it may have written itself.
pub const LEAK_DELAY: Duration = Duration::from_secs(1);

/// Maximum number of reads per stream that can return bytes which the proc had written before it exited. A pipe holds
/// at most 1 MiB, and one read takes a quarter of that. Later reads return bytes of another process and do not prolong
/// the wait. Otherwise a descendant that writes now and then would keep the job alive.
pub const OWN_READS_MAX: u8 = 4;

/// State of a proc.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Starting,
    /// Started under ptrace; its exec trap is still to come.
    Tracing,
    /// Stopped at its first instruction.
    Held,
    Running,
    Exited {
        status: ExitStatus,
        leak_at: Time,
        /// Number of further reads, by stream, that can return bytes which the proc itself wrote.
        own_reads: [u8; 2],
    },
    Done {
        status: ExitStatus,
        drained: Drained,
    },
    Failed,
    /// Possibly still alive, but we cannot end it.
    Abandoned,
}

/// The state of one proc and of its output streams.
#[derive(Clone, Copy, Debug)]
pub struct Life {
    state: State,
    stdout_open: bool,
    stderr_open: bool,
}

/// An event that is impossible in this state: a mistake of the caller, which is logged and has no other effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unexpected {
    pub state: State,
    pub event: &'static str,
}

impl Life {
    /// Creates a proc that is about to be started; `forwarded` returns true if we read the stream.
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

    /// Returns true if the proc has a process that we can signal.
    #[must_use]
    pub const fn is_alive(&self) -> bool {
        matches!(self.state, State::Tracing | State::Held | State::Running)
    }

    #[must_use]
    pub const fn is_final(&self) -> bool {
        matches!(
            self.state,
            State::Done { .. } | State::Failed | State::Abandoned
        )
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

    /// Returns true if the proc was held; it runs now.
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
            State::Abandoned => Ok(()),
            state => Err(Unexpected {
                state,
                event: "exited",
            }),
        }
    }

    /// Gives up on a proc that cannot be ended. Returns true if it was alive.
    pub const fn on_given_up(&mut self) -> bool {
        let alive = self.is_alive();
        if alive {
            self.state = State::Abandoned;
        }
        alive
    }

    /// Records that bytes were read. Bytes that the proc wrote before it exited restart [`LEAK_DELAY`].
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

    /// Records that reading resumes after a lack of credit. [`LEAK_DELAY`] restarts if bytes of the proc itself may
    /// still come.
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

    /// Returns the time at which [`Self::on_leak_deadline`] is due.
    #[must_use]
    pub fn leak_deadline(&self) -> Option<Time> {
        match self.state {
            State::Exited { .. } if planted::is(Bug::LeakTimerNeverArmed) => None,
            State::Exited { leak_at, .. } => Some(leak_at),
            _ => None,
        }
    }

    /// If the deadline has passed, gives up on the streams that are still open. Returns true if this made the proc
    /// `Done`.
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
