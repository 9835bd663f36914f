//! The event loop: one wait for descriptors, signals and a deadline.
//!
//! It consists of level-triggered epoll and a signalfd: no helper thread, no timer descriptor, one system call per wait,
//! and no wake-up without a cause (`docs/decisions/0002-event-loop.md`).
//!
//! Two pitfalls are avoided. A descriptor is removed from epoll *before* it can be closed: a child that is about to exec
//! may still hold the same open file, which would keep a dead registration firing for ever. And each event carries a slot
//! with a generation, so an event of a removed descriptor cannot be mistaken for one of its successor.
#![expect(unsafe_code, reason = "epoll_pwait2 and signalfd are called directly")]

use std::{
    collections::BTreeSet,
    fmt,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
    ptr,
    time::Duration,
};

use base::{Signal, Time};
use nix::{
    errno::Errno,
    sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout},
};

use crate::{
    clock::Clock,
    error::{Error, check},
    process::{Pid, current_pid},
    signal::{SignalSet, default_signal},
};

/// Maximum number of events taken from the kernel per wait. The rest stay there; epoll rotates among ready descriptors, so
/// none starves.
const EVENTS_PER_WAIT: usize = 256;
/// Maximum number of signals taken from the kernel per read.
const SIGNALS_PER_READ: usize = 16;
/// The epoll key of the signal descriptor, which no token can have.
const SIGNAL_KEY: u64 = u64::MAX;

/// A descriptor in a [`Loop`]: its slot and the slot's generation, so that it is never mistaken for a later descriptor.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token {
    slot: u32,
    generation: u32,
}

impl Token {
    const fn key(self) -> u64 {
        ((self.generation as u64) << 32) | self.slot as u64
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "takes the two halves apart"
    )]
    const fn from_key(key: u64) -> Self {
        Self {
            slot: key as u32,
            generation: (key >> 32) as u32,
        }
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({}#{})", self.slot, self.generation)
    }
}

/// What to wait for on a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Nothing, not even hang-up. This is how a reader is paused.
    None,
    /// A hang-up or an error. It is reported as readable in every wait until the descriptor is removed.
    HangUp,
    /// Data, end of file, hang-up or an error.
    Read,
    /// Room to write, or an error.
    Write,
    /// What `Read` and `Write` wait for.
    ReadWrite,
}

impl Interest {
    const fn reads(self) -> bool {
        matches!(self, Self::Read | Self::ReadWrite)
    }

    const fn writes(self) -> bool {
        matches!(self, Self::Write | Self::ReadWrite)
    }

    /// Returns false if only a hang-up is waited for, or nothing. What is always ready never hangs up.
    const fn moves_data(self) -> bool {
        self.reads() || self.writes()
    }

    fn flags(self) -> EpollFlags {
        let mut flags = EpollFlags::empty();
        flags.set(EpollFlags::EPOLLIN, self.reads());
        flags.set(EpollFlags::EPOLLOUT, self.writes());
        flags
    }
}

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Reading will not block: there is data, end of file or an error; the read returns which.
    Readable(Token),
    /// Writing will not block: there is room or an error; the write returns which.
    Writable(Token),
    /// A signal was received. Several signals of one kind may be merged into one.
    Signal(SignalInfo),
    /// The deadline given to [`Loop::wait`] has passed.
    Deadline,
}

/// A signal and its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignalInfo {
    /// The signal.
    pub signal: Signal,
    /// Its sender.
    pub origin: SignalOrigin,
}

/// The sender of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalOrigin {
    /// The kernel: a key at the terminal, a closed terminal, a child's exit, a timer.
    Kernel,
    /// A process, by `kill`, `sigqueue` or `tgkill`.
    User {
        /// Pid of the sender; 0 if it is in a pid namespace that we cannot see.
        pid: i32,
        /// The sender's real user.
        uid: u32,
    },
}

/// One thread's wait for descriptors that it owns, signals, and a deadline.
#[derive(Debug)]
pub struct Loop {
    epoll: Epoll,
    signals: OwnedFd,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Tokens that epoll refuses (regular files, /dev/null) and that have an interest: they are always ready.
    always_ready: BTreeSet<Token>,
    buffer: Vec<EpollEvent>,
    precision: Precision,
    /// The process that made the loop. A forked child shares the epoll instance and would receive its parent's events.
    owner: Pid,
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    entry: Option<Entry>,
}

#[derive(Debug)]
struct Entry {
    fd: OwnedFd,
    interest: Interest,
    kind: Kind,
}

/// How the readiness of a descriptor is found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// By epoll; it is registered there.
    Registered,
    /// By epoll; it is not registered, because its interest is `None`.
    Unregistered,
    /// epoll refuses it with EPERM: it never blocks.
    AlwaysReady,
}

/// How exactly this kernel can wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Precision {
    /// epoll_pwait2, Linux 5.11.
    Nanoseconds,
    /// epoll_wait. Deadlines are rounded up, since rounding down would make the loop spin.
    Milliseconds,
}

impl Loop {
    /// Makes a loop that receives `signals`, and always SIGCHLD, whose disposition is set to the default. If SIGCHLD is
    /// ignored, perhaps by inheritance, the kernel reaps children itself and their exit is never reported.
    ///
    /// The signals stay blocked in this thread and in those that it starts later; [`crate::Spawner`] gives programs an
    /// empty mask.
    ///
    /// # Errors
    /// If the limit of descriptors is reached.
    pub fn new(signals: &[Signal]) -> Result<Self, Error> {
        let mut wanted = signals.to_vec();
        wanted.push(Signal::CHLD);
        let set = SignalSet::of(&wanted);
        set.block()?;
        default_signal(Signal::CHLD)?;
        // SAFETY: the set is valid; the result is a new descriptor that nothing else owns, checked before it is used.
        let signals = unsafe {
            let raw = libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            OwnedFd::from_raw_fd(check("create a signal descriptor", raw)?)
        };
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)
            .map_err(Error::nix("create an epoll instance"))?;
        epoll
            .add(&signals, EpollEvent::new(EpollFlags::EPOLLIN, SIGNAL_KEY))
            .map_err(Error::nix("watch the signal descriptor"))?;
        Ok(Self {
            epoll,
            signals,
            slots: Vec::new(),
            free: Vec::new(),
            always_ready: BTreeSet::new(),
            buffer: vec![EpollEvent::empty(); EVENTS_PER_WAIT],
            precision: Precision::Nanoseconds,
            owner: current_pid(),
        })
    }

    /// Takes ownership of `fd` and watches it. Whether it is non-blocking is up to the caller and is not changed. Regular
    /// files and /dev/null, which epoll refuses, are accepted and always ready.
    ///
    /// # Errors
    /// If the kernel's limit of watches is reached; `fd` is closed then.
    pub fn add(&mut self, fd: OwnedFd, interest: Interest) -> Result<Token, Error> {
        let token = self.free_token();
        let kind = if interest == Interest::None {
            Kind::Unregistered
        } else {
            match self.register(fd.as_fd(), token, interest) {
                Ok(kind) => kind,
                Err(error) => {
                    self.free.push(token.slot);
                    return Err(error);
                }
            }
        };
        if kind == Kind::AlwaysReady && interest.moves_data() {
            self.always_ready.insert(token);
        }
        self.slots[token.slot as usize].entry = Some(Entry { fd, interest, kind });
        Ok(token)
    }

    /// Changes what is waited for. An unknown token is ignored: its descriptor was removed.
    ///
    /// # Errors
    /// If the kernel's limit of watches is reached.
    pub fn set_interest(&mut self, token: Token, interest: Interest) -> Result<(), Error> {
        let Some(entry) = self.entry(token) else {
            return Ok(());
        };
        if entry.interest == interest {
            return Ok(());
        }
        let kind = match (entry.kind, interest) {
            (Kind::AlwaysReady, interest) if !interest.moves_data() => {
                self.always_ready.remove(&token);
                Kind::AlwaysReady
            }
            (Kind::AlwaysReady, _) => {
                self.always_ready.insert(token);
                Kind::AlwaysReady
            }
            (Kind::Unregistered, Interest::None) => Kind::Unregistered,
            // epoll reports a hang-up even without any interest: only removing the descriptor prevents that.
            (Kind::Registered, Interest::None) => {
                self.epoll
                    .delete(&entry.fd)
                    .map_err(Error::nix("stop watching a descriptor"))?;
                Kind::Unregistered
            }
            (Kind::Registered, _) => {
                let mut event = EpollEvent::new(interest.flags(), token.key());
                self.epoll
                    .modify(&entry.fd, &mut event)
                    .map_err(Error::nix("change how a descriptor is watched"))?;
                Kind::Registered
            }
            (Kind::Unregistered, _) => {
                let kind = self.register(entry.fd.as_fd(), token, interest)?;
                if kind == Kind::AlwaysReady && interest.moves_data() {
                    self.always_ready.insert(token);
                }
                kind
            }
        };
        if let Some(entry) = self
            .slots
            .get_mut(token.slot as usize)
            .and_then(|slot| slot.entry.as_mut())
        {
            entry.interest = interest;
            entry.kind = kind;
        }
        Ok(())
    }

    /// Returns the descriptor of `token`; `None` if it was removed.
    #[must_use]
    pub fn fd(&self, token: Token) -> Option<BorrowedFd<'_>> {
        self.entry(token).map(|entry| entry.fd.as_fd())
    }

    /// Returns what is waited for on `token`; `None` if it was removed.
    #[must_use]
    pub fn interest(&self, token: Token) -> Option<Interest> {
        self.entry(token).map(|entry| entry.interest)
    }

    /// Stops watching a descriptor and returns it. From now on the token is unknown, even in events that were already
    /// taken.
    pub fn remove(&mut self, token: Token) -> Option<OwnedFd> {
        self.entry(token)?;
        let slot = self.slots.get_mut(token.slot as usize)?;
        let entry = slot.entry.take()?;
        // A wrap-around of the generation would need 2^32 removals from one slot.
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(token.slot);
        match entry.kind {
            // This cannot fail: the descriptor is open and was added. If it did, its events would be dropped because of the
            // generation.
            Kind::Registered => drop(self.epoll.delete(&entry.fd)),
            Kind::AlwaysReady => drop(self.always_ready.remove(&token)),
            Kind::Unregistered => {}
        }
        Some(entry.fd)
    }

    /// Returns the number of descriptors in the loop.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Returns true if the loop holds no descriptor.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sleeps until an event arrives or `deadline` passes; `None` means no deadline. Then fills `events`, which is cleared
    /// first. [`Event::Deadline`] comes last, and also with other events, so that a flood of them cannot delay it.
    ///
    /// # Errors
    /// Only if the kernel is out of memory.
    pub fn wait(&mut self, deadline: Option<Time>, events: &mut Vec<Event>) -> Result<(), Error> {
        debug_assert_eq!(
            self.owner,
            current_pid(),
            "a loop belongs to the process that made it"
        );
        events.clear();
        loop {
            let timeout = if self.always_ready.is_empty() {
                deadline.map(Clock::until)
            } else {
                Some(Duration::ZERO)
            };
            let count = match self.wait_once(timeout) {
                // Stopping and continuing this process interrupts the wait although there is no handler.
                Err(Errno::EINTR) => continue,
                other => other.map_err(Error::nix("wait for events"))?,
            };
            self.translate(count, events)?;
            let passed = deadline.is_some_and(|deadline| Clock::now() >= deadline);
            if passed {
                events.push(Event::Deadline);
            }
            // Without events, the kernel woke us slightly early, or the only event was a stale one.
            if !events.is_empty() {
                return Ok(());
            }
        }
    }

    fn translate(&mut self, count: usize, events: &mut Vec<Event>) -> Result<(), Error> {
        let failed = EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR | EpollFlags::EPOLLRDHUP;
        let mut signalled = false;
        for raw in &self.buffer[..count] {
            if raw.data() == SIGNAL_KEY {
                signalled = true;
                continue;
            }
            let token = Token::from_key(raw.data());
            let Some(entry) = self.entry(token) else {
                continue;
            };
            let flags = raw.events();
            if entry.interest == Interest::HangUp && flags.intersects(failed) {
                events.push(Event::Readable(token));
            }
            if entry.interest.reads() && flags.intersects(EpollFlags::EPOLLIN | failed) {
                events.push(Event::Readable(token));
            }
            if entry.interest.writes() && flags.intersects(EpollFlags::EPOLLOUT | failed) {
                events.push(Event::Writable(token));
            }
        }
        for &token in &self.always_ready {
            let Some(entry) = self.entry(token) else {
                continue;
            };
            if entry.interest.reads() {
                events.push(Event::Readable(token));
            }
            if entry.interest.writes() {
                events.push(Event::Writable(token));
            }
        }
        if signalled {
            read_signals(self.signals.as_fd(), events)
        } else {
            Ok(())
        }
    }

    fn wait_once(&mut self, timeout: Option<Duration>) -> Result<usize, Errno> {
        if self.precision == Precision::Nanoseconds {
            match wait_nanoseconds(&self.epoll, &mut self.buffer, timeout) {
                // Kernels before 5.11, and containers whose seccomp filter does not know the call.
                Err(Errno::ENOSYS | Errno::EPERM) => self.precision = Precision::Milliseconds,
                other => return other,
            }
        }
        self.epoll.wait(&mut self.buffer, milliseconds(timeout))
    }

    fn register(
        &self,
        fd: BorrowedFd<'_>,
        token: Token,
        interest: Interest,
    ) -> Result<Kind, Error> {
        match self
            .epoll
            .add(fd, EpollEvent::new(interest.flags(), token.key()))
        {
            Ok(()) => Ok(Kind::Registered),
            Err(Errno::EPERM) => Ok(Kind::AlwaysReady),
            Err(errno) => Err(Error::nix("watch a descriptor")(errno)),
        }
    }

    fn entry(&self, token: Token) -> Option<&Entry> {
        let slot = self.slots.get(token.slot as usize)?;
        if slot.generation == token.generation {
            slot.entry.as_ref()
        } else {
            None
        }
    }

    #[expect(
        clippy::expect_used,
        reason = "descriptors are ints, so there are fewer than 2^31 of them"
    )]
    fn free_token(&mut self) -> Token {
        if let Some(slot) = self.free.pop() {
            return Token {
                slot,
                generation: self.slots[slot as usize].generation,
            };
        }
        let slot = u32::try_from(self.slots.len()).expect("more slots than descriptors");
        self.slots.push(Slot {
            generation: 0,
            entry: None,
        });
        Token {
            slot,
            generation: 0,
        }
    }
}

/// Returns the timeout for epoll_wait, rounded up so that the wait never ends before the deadline.
fn milliseconds(timeout: Option<Duration>) -> EpollTimeout {
    match timeout {
        None => EpollTimeout::NONE,
        Some(timeout) => {
            let rounded = timeout.as_nanos().div_ceil(1_000_000);
            // A timeout that is too long to express ends early, and the wait is repeated.
            EpollTimeout::try_from(i32::try_from(rounded).unwrap_or(i32::MAX))
                .unwrap_or(EpollTimeout::MAX)
        }
    }
}

fn wait_nanoseconds(
    epoll: &Epoll,
    buffer: &mut [EpollEvent],
    timeout: Option<Duration>,
) -> Result<usize, Errno> {
    let timespec = timeout.map(|timeout| libc::timespec {
        tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    });
    let timeout = timespec.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: EpollEvent is a transparent wrapper of epoll_event, and the buffer has the stated length. The timespec lives
    // until after the call; a null mask leaves the signal mask unchanged.
    let result = unsafe {
        libc::syscall(
            libc::SYS_epoll_pwait2,
            epoll.0.as_raw_fd(),
            buffer.as_mut_ptr().cast::<libc::epoll_event>(),
            buffer.len(),
            timeout,
            ptr::null::<libc::sigset_t>(),
            0_usize,
        )
    };
    usize::try_from(result).map_err(|_| Errno::last())
}

/// Takes all pending signals.
fn read_signals(fd: BorrowedFd<'_>, events: &mut Vec<Event>) -> Result<(), Error> {
    const SIZE: usize = size_of::<libc::signalfd_siginfo>();
    loop {
        // SAFETY: signalfd_siginfo is plain data, valid when zero; the kernel writes whole records into the buffer.
        let (records, size) = unsafe {
            let mut records: [libc::signalfd_siginfo; SIGNALS_PER_READ] = std::mem::zeroed();
            let size = libc::read(
                fd.as_raw_fd(),
                records.as_mut_ptr().cast(),
                size_of_val(&records),
            );
            (records, size)
        };
        let Ok(size) = usize::try_from(size) else {
            match Errno::last() {
                Errno::EAGAIN => return Ok(()),
                Errno::EINTR => continue,
                errno => return Err(Error::nix("read the signal descriptor")(errno)),
            }
        };
        let count = size / SIZE;
        events.extend(
            records[..count]
                .iter()
                .map(|record| Event::Signal(signal_info(record))),
        );
        if count < SIGNALS_PER_READ {
            return Ok(());
        }
    }
}

fn signal_info(record: &libc::signalfd_siginfo) -> SignalInfo {
    let signal = Signal(i32::try_from(record.ssi_signo).unwrap_or(0));
    let origin = match record.ssi_code {
        libc::SI_USER | libc::SI_QUEUE | libc::SI_TKILL => SignalOrigin::User {
            pid: i32::try_from(record.ssi_pid).unwrap_or(0),
            uid: record.ssi_uid,
        },
        _ => SignalOrigin::Kernel,
    };
    SignalInfo { signal, origin }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn milliseconds_are_rounded_up() {
        for (nanos, expected) in [
            (0, 0),
            (1, 1),
            (1_000_000, 1),
            (1_000_001, 2),
            (u64::MAX, i32::MAX),
        ] {
            let expected = EpollTimeout::try_from(expected).unwrap();
            assert_eq!(
                milliseconds(Some(Duration::from_nanos(nanos))),
                expected,
                "{nanos}"
            );
        }
        assert_eq!(milliseconds(None), EpollTimeout::NONE);
    }

    #[test]
    fn old_kernels_keep_deadlines_too() {
        let mut events = Loop::new(&[]).unwrap();
        events.precision = Precision::Milliseconds;
        let mut buffer = Vec::new();
        let deadline = Clock::now() + Duration::from_micros(300);
        events.wait(Some(deadline), &mut buffer).unwrap();
        assert!(Clock::now() >= deadline);
        assert_eq!(buffer.last(), Some(&Event::Deadline));
    }

    #[test]
    fn tokens_survive_the_way_through_the_kernel() {
        for token in [
            Token {
                slot: 0,
                generation: 0,
            },
            Token {
                slot: 7,
                generation: u32::MAX,
            },
            Token {
                slot: u32::MAX - 1,
                generation: u32::MAX,
            },
        ] {
            assert_eq!(Token::from_key(token.key()), token);
            assert_ne!(token.key(), SIGNAL_KEY);
        }
        assert_eq!(
            format!(
                "{:?}",
                Token {
                    slot: 3,
                    generation: 9
                }
            ),
            "Token(3#9)"
        );
    }
}
