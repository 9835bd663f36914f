//! Interprets what the kernel reports about a thread.

use base::{Arch, InKernel};

use super::kernel::{Group, ThreadFacts};
use crate::{
    arch,
    stack::{Activity, Missing, Seen, Thread, Wait},
};

/// Returns the activity of a thread; `None` if it has exited.
pub(super) fn activity(
    facts: &ThreadFacts,
    in_kernel: Option<InKernel>,
    group: Group,
) -> Option<Activity> {
    let wait = match in_kernel {
        Some(InKernel::Blocked {
            call: Some(call),
            arguments,
            ..
        }) => arch::wait_in(Arch::NATIVE, call, &arguments),
        _ => Wait::Other,
    };
    Some(match facts.state {
        'Z' | 'X' | 'x' => return None,
        // This hides what the thread did before.
        _ if group == Group::Frozen => Activity::Frozen,
        'R' => Activity::Running,
        // A caller of vfork waits for its child in uninterruptible sleep.
        'D' if wait == Wait::Child => Activity::Waiting(Wait::Child),
        'D' => Activity::Disk,
        'T' => Activity::Stopped,
        't' => Activity::Traced,
        _ => Activity::Waiting(wait),
    })
}

/// Returns what a thread sleeps for, by the function that it is in, if its system call does not say.
pub(super) fn wait_in(function: Option<&str>, in_kernel: Option<InKernel>) -> Wait {
    let wait = function.map_or(Wait::Other, Wait::of_function);
    match in_kernel {
        Some(InKernel::Blocked {
            call: Some(call), ..
        }) if arch::is_restart(Arch::NATIVE, call) => wait.resumed(),
        _ => wait,
    }
}

/// Returns true if neither a signal nor a debugger can reach a thread, so that asking it to stop is useless.
pub(super) fn is_out_of_reach(
    facts: &ThreadFacts,
    in_kernel: Option<InKernel>,
    group: Group,
) -> bool {
    let is_blocked = matches!(in_kernel, Some(InKernel::Blocked { .. }));
    facts.state == 'D' && (is_blocked || group == Group::Frozen)
}

/// Returns the sample of a process with these threads.
pub(super) fn seen(threads: Vec<Thread>) -> Seen {
    let unreachable =
        |thread: &Thread| thread.stack.frames.is_empty() && thread.activity == Activity::Disk;
    if threads.iter().all(unreachable) {
        return Seen::Missing(Missing::Unreachable);
    }
    Seen::Threads(threads)
}

/// Returns why a process could not be read, from its state letter and number of threads; `None` if it has exited.
pub(super) const fn missing(remains: Option<(char, usize)>) -> Missing {
    match remains {
        None => Missing::Gone,
        Some(('Z' | 'X', threads)) if threads < 2 => Missing::Zombie,
        Some(_) => Missing::NotPermitted,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::stack::{End, Stack};

    #[test]
    fn who_cannot_be_stopped_is_said_to_be_unreachable() {
        let thread = |activity| Thread {
            tid: 7,
            name: "a".into(),
            stack: Stack {
                frames: [].into(),
                end: End::Lost,
            },
            activity,
            cpu: Duration::ZERO,
            stopped: Duration::ZERO,
        };
        let all = |threads: &[Activity]| seen(threads.iter().copied().map(thread).collect());
        assert!(matches!(
            all(&[Activity::Disk, Activity::Disk]),
            Seen::Missing(Missing::Unreachable)
        ));
        assert!(matches!(
            all(&[Activity::Running, Activity::Disk]),
            Seen::Threads(_)
        ));
    }

    #[test]
    fn what_is_left_of_a_process_says_why_it_is_missing() {
        for (remains, expected) in [
            (None, Missing::Gone),
            (Some(('Z', 1)), Missing::Zombie),
            (Some(('X', 0)), Missing::Zombie),
            // Only the first thread has exited.
            (Some(('Z', 2)), Missing::NotPermitted),
            (Some(('S', 1)), Missing::NotPermitted),
        ] {
            assert_eq!(missing(remains), expected, "{remains:?}");
        }
    }
}
