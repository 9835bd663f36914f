//! The keeper: waits for the checker, and ends what it has left.

use std::time::Duration;

use base::Signal;
use os::{ChildEvent, Clock, Pid};

use super::ENDING;

/// The time that processes have to end by themselves, when their launcher is gone: a launcher's daemons notice that, and clean up.
pub(super) const PARTING_MAX: Duration = Duration::from_secs(3);
/// The time that processes have to end after SIGKILL; one in uninterruptible sleep is left.
const KILL_MAX: Duration = Duration::from_secs(2);
/// Pause between two looks at processes of which some are no children of ours.
const PAUSE: Duration = Duration::from_millis(20);
/// The longest wait for a signal; then it is waited for again.
const SLICE: Duration = Duration::from_mins(1);

/// Waits for the checker, passes signals on to it, and returns its exit code.
pub(super) fn keep(checker: Pid) -> u8 {
    let awaited = [ENDING.as_slice(), &[Signal::CHLD]].concat();
    // Without this, the wait below would only end with its slice.
    let _ = os::block_signals(&[Signal::CHLD]);
    loop {
        while let Some(event) = os::reap() {
            if let ChildEvent::Exited { pid, status, .. } = event
                && pid == checker
            {
                end_descendants();
                return status.code();
            }
        }
        match os::wait_for_signal(&awaited, SLICE) {
            Some(Signal::CHLD) | None => {}
            // A signal of the terminal has reached it already; a second one does no harm.
            Some(signal) => drop(os::kill(checker, signal)),
        }
    }
}

/// Waits until all descendants of this process have ended, and kills those that do not.
pub(super) fn end_descendants() {
    let begin = Clock::now();
    loop {
        while os::reap().is_some() {}
        let left = os::descendants(os::current_pid());
        if left.is_empty() && !os::has_children() {
            return;
        }
        let waited = Clock::now().since(begin);
        if waited > PARTING_MAX + KILL_MAX {
            return;
        }
        if waited > PARTING_MAX {
            for pid in left {
                let _ = os::kill(pid, Signal::KILL);
            }
        }
        let _ = os::wait_for_signal(&[Signal::CHLD], PAUSE);
    }
}
