//! Signal sets and dispositions.
#![expect(
    unsafe_code,
    reason = "signal masks and dispositions are set by raw calls: nix's enum has no real-time signals"
)]

use std::{mem, ptr, time::Duration};

use base::Signal;

use crate::error::{Error, check};

/// The highest signal number of Linux on the architectures that we build for.
pub(crate) const HIGHEST: i32 = 64;

/// Signals that this process ignores by its own choice, bit n-1 for signal n: Rust's start-up code ignores SIGPIPE. Ranks
/// get the default back. A signal that was ignored when we were started (`nohup`) stays ignored.
pub(crate) const IGNORED_BY_US: u64 = bit(Signal::PIPE);

const fn bit(signal: Signal) -> u64 {
    1 << (signal.0 - 1)
}

/// A set of signals in the C library's form.
#[derive(Clone, Copy)]
pub(crate) struct SignalSet(libc::sigset_t);

impl SignalSet {
    pub(crate) fn of(signals: &[Signal]) -> Self {
        let mut set = Self::empty();
        for signal in signals {
            // SAFETY: the set is initialised; an invalid number is refused with EINVAL and changes nothing.
            unsafe { libc::sigaddset(&raw mut set.0, signal.0) };
        }
        set
    }

    pub(crate) fn empty() -> Self {
        // SAFETY: sigset_t is plain data for which all zeros is a valid value, and sigemptyset writes only there.
        unsafe {
            let mut set: libc::sigset_t = mem::zeroed();
            libc::sigemptyset(&raw mut set);
            Self(set)
        }
    }

    pub(crate) fn full() -> Self {
        let mut set = Self::empty();
        // SAFETY: the pointer is to an owned set.
        unsafe { libc::sigfillset(&raw mut set.0) };
        set
    }

    pub(crate) const fn as_ptr(&self) -> *const libc::sigset_t {
        &raw const self.0
    }

    /// Adds these signals to this thread's blocked signals.
    pub(crate) fn block(&self) -> Result<(), Error> {
        // SAFETY: reads an initialised set; the old mask is not requested.
        match unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, self.as_ptr(), ptr::null_mut()) } {
            0 => Ok(()),
            errno => Err(Error::Call {
                operation: "block signals",
                errno,
            }),
        }
    }

    /// Runs `body` with every signal blocked in this thread, then restores the mask.
    pub(crate) fn with_all_blocked<R>(body: impl FnOnce() -> R) -> R {
        let all = Self::full();
        let mut old = Self::empty();
        // SAFETY: both sets are owned and initialised; SIG_SETMASK with valid pointers cannot fail.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), &raw mut old.0) };
        let result = body();
        // SAFETY: as above.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, old.as_ptr(), ptr::null_mut()) };
        result
    }
}

/// Sets `signal` to its default action in this process, for example to end by the signal that ended a rank.
///
/// # Errors
/// `EINVAL` for a signal whose disposition cannot change.
pub fn default_signal(signal: Signal) -> Result<(), Error> {
    set_disposition(signal, libc::SIG_DFL)
}

/// Unblocks `signal` in this thread, after a [`crate::Loop`] has blocked it.
///
/// # Errors
/// Only for a number that is no signal.
pub fn unblock_signal(signal: Signal) -> Result<(), Error> {
    let set = SignalSet::of(&[signal]);
    // SAFETY: reads an initialised set; the old mask is not requested.
    match unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, set.as_ptr(), ptr::null_mut()) } {
        0 => Ok(()),
        errno => Err(Error::Call {
            operation: "unblock a signal",
            errno,
        }),
    }
}

/// Result of [`suspend`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suspended {
    /// We were stopped and continued; the SIGCONT is pending for our loop.
    AndContinued,
    /// The kernel did not stop us: our process group is orphaned, so no shell could have continued us.
    Not,
}

/// Stops this process as the terminal's suspend key does, and returns when it is continued. The kernel does nothing in an
/// orphaned process group, which has no shell above it. SIGCONT must be blocked, as it is by a loop that receives it.
#[must_use]
pub fn suspend() -> Suspended {
    let stop = SignalSet::of(&[Signal::TSTP]);
    let mut pending = SignalSet::empty();
    // SAFETY: sends a signal to ourselves, unblocks and blocks it again, and asks for pending signals, all with owned and
    // initialised sets.
    let continued = unsafe {
        let mut old = SignalSet::empty();
        libc::kill(libc::getpid(), libc::SIGTSTP);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, stop.as_ptr(), &raw mut old.0);
        libc::pthread_sigmask(libc::SIG_SETMASK, old.as_ptr(), ptr::null_mut());
        libc::sigpending(&raw mut pending.0);
        libc::sigismember(pending.as_ptr(), libc::SIGCONT) == 1
    };
    if continued {
        Suspended::AndContinued
    } else {
        Suspended::Not
    }
}

/// Returns the first of these signals that is blocked and pending. It stays pending.
#[must_use]
pub fn pending_signal(of: &[Signal]) -> Option<Signal> {
    let mut pending = SignalSet::empty();
    // SAFETY: only a query; the answer is written to an owned, initialised set.
    unsafe { libc::sigpending(&raw mut pending.0) };
    // SAFETY: only a query of an owned set; a number that is no signal gives -1.
    let is_pending =
        |signal: &Signal| unsafe { libc::sigismember(pending.as_ptr(), signal.0) == 1 };
    of.iter().copied().find(is_pending)
}

/// Blocks these signals in this thread, so that they stay pending until [`wait_for_signal`] takes them.
///
/// # Errors
/// Only for a number that is no signal.
pub fn block_signals(signals: &[Signal]) -> Result<(), Error> {
    SignalSet::of(signals).block()
}

/// Waits at most `limit` for one of these blocked signals, and takes it.
#[must_use]
pub fn wait_for_signal(of: &[Signal], limit: Duration) -> Option<Signal> {
    let set = SignalSet::of(of);
    let time = libc::timespec {
        tv_sec: limit.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: limit.subsec_nanos().into(),
    };
    // SAFETY: reads an initialised set and an owned time; the information about the signal is not requested.
    let signal = unsafe { libc::sigtimedwait(set.as_ptr(), ptr::null_mut(), &raw const time) };
    // An error is the end of the time, or another signal that was handled.
    (signal > 0).then_some(Signal(signal))
}

/// Returns true if `signal` is ignored now, whether by us or by inheritance (`nohup`, a shell's background job).
#[must_use]
pub fn is_ignored(signal: Signal) -> bool {
    disposition(signal.0) == Some(libc::SIG_IGN)
}

fn set_disposition(signal: Signal, handler: libc::sighandler_t) -> Result<(), Error> {
    // SAFETY: sigaction is plain data; SIG_IGN and SIG_DFL are no functions, so nothing can be called.
    let result = unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        action.sa_sigaction = handler;
        libc::sigaction(signal.0, &raw const action, ptr::null_mut())
    };
    check("change what a signal does", result).map(drop)
}

fn disposition(signal: i32) -> Option<libc::sighandler_t> {
    // SAFETY: only a query; the answer is written to an owned struct.
    unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        (libc::sigaction(signal, ptr::null(), &raw mut action) == 0).then_some(action.sa_sigaction)
    }
}

/// Returns the signals for which this process has a handler now, bit n-1 for signal n. exec would reset them anyway, but a
/// handler must not run between clone and exec, while memory is shared.
pub(crate) fn caught() -> u64 {
    let is_caught = |handler| handler != libc::SIG_DFL && handler != libc::SIG_IGN;
    (1..=HIGHEST)
        .filter(|&signal| disposition(signal).is_some_and(is_caught))
        .fold(0, |bits, signal| bits | bit(Signal(signal)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_rust_ignores_and_catches_is_known() {
        assert!(is_ignored(Signal::PIPE));
        assert_eq!(IGNORED_BY_US, bit(Signal::PIPE));
        // Rust's start-up code handles stack overflows.
        assert_ne!(caught() & bit(Signal::SEGV), 0);
        // A real-time signal that no other test uses.
        assert!(!is_ignored(Signal(50)));
        assert_eq!(
            default_signal(Signal::KILL).unwrap_err().errno(),
            libc::EINVAL
        );
    }
}
