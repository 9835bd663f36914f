//! A command in another pid namespace, which ends as this process should: signals are passed on to it, and its exit status is
//! passed back.

use std::{
    os::{
        fd::{AsFd as _, BorrowedFd},
        unix::process::ExitStatusExt as _,
    },
    process::{Child, Command, ExitCode, ExitStatus},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        resource::{Resource, setrlimit},
        signal::{self, SigSet, SigmaskHow, Signal, sigprocmask},
        signalfd::{SfdFlags, SignalFd},
    },
    unistd::Pid,
};

/// Signals that a user or a program sends to us and means for the command.
const PASSED_ON: [Signal; 6] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

/// Signals that request an end.
const ENDING: [Signal; 3] = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGTERM];

/// What to do about a command that continues in spite of a signal that requests its end.
#[derive(Clone, Copy, Debug)]
pub(super) enum Patience {
    Unlimited,
    For(Duration),
}

/// Runs a command. Returns `None` if our patience is exhausted. The signals remain blocked, so that a second one does not
/// interrupt what the caller does after the command. This process must have one thread, because another thread would get the
/// signals.
pub(super) fn run(command: &mut Command, patience: Patience) -> Result<Option<ExitStatus>> {
    let program = command.get_program().to_owned();
    // Before the signals are blocked, because the child inherits the mask. A signal that arrives in between ends this process, and
    // thereby the command.
    let child = command.spawn();
    let mut child = child.with_context(|| format!("cannot run `{}`", program.display()))?;
    let mut set = SigSet::from_iter(PASSED_ON);
    set.add(Signal::SIGCHLD);
    sigprocmask(SigmaskHow::SIG_BLOCK, Some(&set), None)?;
    let signals = SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
    follow(&mut child, &signals, patience)
}

fn follow(child: &mut Child, signals: &SignalFd, patience: Patience) -> Result<Option<ExitStatus>> {
    let pid = Pid::from_raw(i32::try_from(child.id())?);
    let mut deadline: Option<Instant> = None;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            // A process that is not reaped would prevent the end of its pid namespace.
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        wait_for_input(signals.as_fd(), deadline)?;
        while let Some(record) = signals.read_signal()? {
            let signal = i32::try_from(record.ssi_signo).map(Signal::try_from);
            let Ok(Ok(signal)) = signal else { continue };
            // The terminal sends its signals to the command as well: a positive code means that the kernel sent it.
            if record.ssi_code > 0 || !PASSED_ON.contains(&signal) {
                continue;
            }
            // The command may have exited since.
            let _ = signal::kill(pid, signal);
            if let (Patience::For(limit), true) = (patience, ENDING.contains(&signal)) {
                deadline.get_or_insert_with(|| Instant::now() + limit);
            }
        }
    }
}

/// Waits until there is something to read, and then returns true. It returns false after the deadline, and sometimes before it.
pub(super) fn wait_for_input(fd: BorrowedFd<'_>, deadline: Option<Instant>) -> Result<bool> {
    let timeout = deadline.map_or(PollTimeout::NONE, |deadline| {
        let left = deadline.saturating_duration_since(Instant::now());
        // Rounded up, so that the last wait is not repeated with zero milliseconds.
        PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX)
    });
    match poll(&mut [PollFd::new(fd, PollFlags::POLLIN)], timeout) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::EINTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Ends this process as the command ended: returns its exit code, or raises the signal that killed it.
pub(super) fn imitate(status: ExitStatus) -> Result<ExitCode> {
    /// A shell reports a command that was killed by a signal as this plus the signal.
    const KILLED: i32 = 128;
    if let Some(number) = status.signal() {
        setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
        if let Ok(signal) = Signal::try_from(number) {
            sigprocmask(SigmaskHow::SIG_UNBLOCK, Some(&SigSet::from(signal)), None)?;
            signal::raise(signal)?;
        }
        return Ok(ExitCode::from(u8::try_from(KILLED + number)?));
    }
    Ok(ExitCode::from(u8::try_from(
        status.code().unwrap_or(KILLED),
    )?))
}
