//! Children that have exited or stopped.
#![expect(
    unsafe_code,
    reason = "nix's waitpid cannot express real-time signals and would lose such a child, and it tells nothing of resources"
)]

use std::time::Duration;

use base::{ExitStatus, Signal, Usage};
use nix::errno::Errno;

use crate::{
    error::{Error, check},
    process::Pid,
};

/// A state change of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildEvent {
    /// It has exited and is reaped: its pid may be reused from now on.
    Exited {
        /// The child.
        pid: Pid,
        /// How it ended.
        status: ExitStatus,
        /// What it has used, and the children that it has waited for.
        used: Usage,
    },
    /// It has stopped. A traced child: by SIGTRAP after exec, or by a signal that [`leave_stopped`] or [`inject`] must deal
    /// with. Any other child: until a SIGCONT.
    Stopped {
        /// The child.
        pid: Pid,
        /// The signal that stopped it.
        signal: Signal,
    },
}

/// Takes one child event without waiting; `None` if there is none now, or no child at all. After each SIGCHLD, call it
/// until it returns `None`, because several of these signals may be merged.
#[must_use]
pub fn reap() -> Option<ChildEvent> {
    loop {
        let (pid, status, used) = wait_any(libc::WNOHANG).ok().flatten()?;
        if let Some(event) = decode(pid, status, used) {
            return Some(event);
        }
    }
}

/// Returns true if this process has a child: running, stopped, or a zombie. Nothing is reaped.
#[must_use]
pub fn has_children() -> bool {
    // SAFETY: siginfo_t is plain data; WNOWAIT leaves the child as it is.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
        libc::waitid(libc::P_ALL, 0, &raw mut info, options) == 0
    }
}

/// Ends the tracing of a child in its exec stop and keeps it held at its first instruction: SIGCONT continues it, and a
/// debugger can attach. For that, the child wakes up in the kernel for a moment. When it is in state T, a
/// [`ChildEvent::Stopped`] with SIGSTOP is reported. A SIGCONT before that cancels the stop.
///
/// # Errors
/// `ESRCH` if it is not stopped or not traced by us, or was killed.
pub fn leave_stopped(pid: Pid) -> Result<(), Error> {
    trace(
        "leave a program stopped",
        libc::PTRACE_DETACH,
        pid,
        Signal::STOP,
    )
}

/// Continues a traced child that stopped for `signal`, and delivers the signal to it.
///
/// # Errors
/// `ESRCH` if it is not stopped or not traced by us, or was killed.
pub fn inject(pid: Pid, signal: Signal) -> Result<(), Error> {
    trace(
        "pass a signal to a traced program",
        libc::PTRACE_CONT,
        pid,
        signal,
    )
}

fn trace(
    operation: &'static str,
    request: libc::c_uint,
    pid: Pid,
    signal: Signal,
) -> Result<(), Error> {
    // SAFETY: these requests take a pid and a number and touch no memory of ours.
    let result =
        unsafe { libc::ptrace(request, pid.as_raw(), 0_usize, libc::c_long::from(signal.0)) };
    if result == -1 {
        Err(Error::last(operation))
    } else {
        Ok(())
    }
}

fn wait_any(options: libc::c_int) -> Result<Option<(Pid, libc::c_int, Usage)>, Error> {
    let mut status = 0;
    loop {
        // SAFETY: the status and the resources are ours, and plain data.
        let (result, used) = unsafe {
            let mut used: libc::rusage = std::mem::zeroed();
            let options = options | libc::WUNTRACED | libc::__WALL;
            let result = libc::wait4(-1, &raw mut status, options, &raw mut used);
            (result, used)
        };
        match check("wait for a child", result) {
            Err(error) if error.errno() == Errno::EINTR as i32 => {}
            Err(error) => return Err(error),
            Ok(0) => return Ok(None),
            Ok(pid) => return Ok(Some((Pid::from_raw(pid), status, usage(&used)))),
        }
    }
}

/// Bytes of a block in `rusage`, whatever the file system.
const BLOCK: u64 = 512;

fn usage(used: &libc::rusage) -> Usage {
    let time = |time: libc::timeval| {
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        let micros = u64::try_from(time.tv_usec).unwrap_or(0);
        Duration::from_secs(seconds).saturating_add(Duration::from_micros(micros))
    };
    let times = |count: libc::c_long, unit: u64| {
        let count = u64::try_from(count).unwrap_or(0);
        count.saturating_mul(unit)
    };
    Usage {
        user: time(used.ru_utime),
        system: time(used.ru_stime),
        peak: times(used.ru_maxrss, 1024),
        read: times(used.ru_inblock, BLOCK),
        written: times(used.ru_oublock, BLOCK),
    }
}

/// Decodes a wait status; `None` for "continued", which we never request.
pub(crate) fn decode(pid: Pid, status: libc::c_int, used: Usage) -> Option<ChildEvent> {
    if libc::WIFEXITED(status) {
        let code = u8::try_from(libc::WEXITSTATUS(status)).unwrap_or(u8::MAX);
        Some(ChildEvent::Exited {
            pid,
            status: ExitStatus::Exited(code),
            used,
        })
    } else if libc::WIFSIGNALED(status) {
        let status = ExitStatus::Signaled {
            signal: Signal(libc::WTERMSIG(status)),
            core_dumped: libc::WCOREDUMP(status),
        };
        Some(ChildEvent::Exited { pid, status, used })
    } else if libc::WIFSTOPPED(status) {
        Some(ChildEvent::Stopped {
            pid,
            signal: Signal(libc::WSTOPSIG(status)),
        })
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_statuses_mean_what_wait_2_says() {
        let pid = Pid::from_raw(7);
        let used = Usage::default();
        let cases = [
            (
                0x0000,
                Some(ChildEvent::Exited {
                    pid,
                    status: ExitStatus::Exited(0),
                    used,
                }),
            ),
            (
                0xff00,
                Some(ChildEvent::Exited {
                    pid,
                    status: ExitStatus::Exited(255),
                    used,
                }),
            ),
            (
                0x0009,
                Some(ChildEvent::Exited {
                    pid,
                    status: ExitStatus::Signaled {
                        signal: Signal::KILL,
                        core_dumped: false,
                    },
                    used,
                }),
            ),
            (
                0x008b,
                Some(ChildEvent::Exited {
                    pid,
                    status: ExitStatus::Signaled {
                        signal: Signal::SEGV,
                        core_dumped: true,
                    },
                    used,
                }),
            ),
            (
                0x0022,
                Some(ChildEvent::Exited {
                    pid,
                    status: ExitStatus::Signaled {
                        signal: Signal(34),
                        core_dumped: false,
                    },
                    used,
                }),
            ),
            (
                0x057f,
                Some(ChildEvent::Stopped {
                    pid,
                    signal: Signal::TRAP,
                }),
            ),
            (0xffff, None),
        ];
        for (status, expected) in cases {
            assert_eq!(decode(pid, status, used), expected, "{status:#x}");
        }
    }
}
