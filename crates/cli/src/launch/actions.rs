//! Programs that run in the place of this process for a while: the shell of an action, a debugger.
//!
//! They are in our process group, so that they may read the terminal, and that its keys reach them. A signal that a process has sent to
//! us alone is passed on.

use std::{
    ffi::{CString, NulError, OsStr, OsString},
    os::{
        fd::{AsFd as _, BorrowedFd},
        unix::ffi::{OsStrExt as _, OsStringExt as _},
    },
    path::PathBuf,
    time::Duration,
};

use base::{ExitStatus, Signal};
use os::{
    ChildEvent, Event, Found, Loop, Pid, Session, SignalInfo, SignalOrigin, SpawnSpec, Spawner,
};
use thiserror::Error;

use crate::{args::World, exit::ExitCode};

/// The shell of actions.
const SHELL: &str = "/bin/sh";

/// The variable that tells actions after the job its exit code.
const CODE: &str = "RALLY_LAUNCH_CODE";

/// Signals by which users end programs.
const ENDING: [Signal; 4] = [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT];

/// Signals that would end this process, and that mean something only to the programs that wait for them.
const OTHERS: [Signal; 3] = [Signal::USR1, Signal::USR2, Signal::ALRM];

/// When an action runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    Before,
    After,
}

/// How a program has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) status: ExitStatus,
    /// The first of the signals that end programs, if we got one meanwhile.
    pub(super) signal: Option<Signal>,
}

/// Why a program was not started.
#[derive(Debug, Error)]
pub(super) enum NotRun {
    #[error("there is no such program")]
    Missing,
    #[error("it cannot be executed")]
    NotExecutable,
    #[error("{0}")]
    System(#[from] os::Error),
    #[error("{0}")]
    Start(#[from] os::SpawnError),
    #[error("a word contains a zero byte")]
    ZeroByte(#[from] NulError),
}

impl NotRun {
    pub(super) const fn exit(&self) -> ExitCode {
        match self {
            Self::Missing => ExitCode::NotFound,
            Self::NotExecutable => ExitCode::NotExecutable,
            Self::System(_) | Self::Start(_) | Self::ZeroByte(_) => ExitCode::Resources,
        }
    }
}

/// Returns the signals that we take: those that our caller ignores stay ignored.
fn taken() -> Vec<Signal> {
    let taken = ENDING.into_iter().chain(OTHERS);
    taken.filter(|signal| !os::is_ignored(*signal)).collect()
}

/// Lets no signal end this process any more.
pub(super) fn take_signals() -> Result<(), os::Error> {
    os::block_signals(&taken())
}

/// Returns a signal that ends programs and that has come while nothing waited for it. It stays pending.
pub(super) fn pending() -> Option<Signal> {
    os::pending_signal(&ENDING)
}

/// Takes the signals that have come while nothing waited for them.
pub(super) fn forget_pending() {
    let taken = taken();
    while os::wait_for_signal(&taken, Duration::ZERO).is_some() {}
}

/// What a second signal does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Again {
    Kills,
    /// Nothing more than the first: a debugger knows what Ctrl-C means.
    SameAsFirst,
}

/// Runs a line in the user's shell, and waits for its end. The code is that of the job, if it is over. The line gets no input, which
/// is for the ranks, and what it prints goes to stderr.
pub(super) fn shell(line: &str, code: Option<u8>, world: &World) -> Result<Ended, NotRun> {
    let null = os::dev_null()?;
    let [_, _, stderr] = os::standard_streams()?;
    let out = stderr.as_ref().unwrap_or(&null).as_fd();
    let words = [SHELL, "-c", line].map(OsString::from);
    let fds = [(null.as_fd(), 0), (out, 1), (out, 2)];
    run(SHELL.into(), &words, &fds, code, Again::Kills, world)
}

/// Runs a debugger with our streams, and waits for its end.
pub(super) fn debugger(words: &[OsString], world: &World) -> Result<Ended, NotRun> {
    let name = words.first().map(OsString::as_os_str).unwrap_or_default();
    let path = world.variables.get(OsStr::new("PATH"));
    let path = path.map(OsString::as_os_str).unwrap_or_default();
    let program = match os::find_program(name, path) {
        Found::Program(file) => file,
        Found::NotExecutable(_) => return Err(NotRun::NotExecutable),
        _ => return Err(NotRun::Missing),
    };
    let streams = os::standard_streams()?;
    let fds = streams.iter().flatten().zip(0..);
    let fds: Vec<_> = fds.map(|(fd, number)| (fd.as_fd(), number)).collect();
    run(program, words, &fds, None, Again::SameAsFirst, world)
}

fn run(
    program: PathBuf,
    words: &[OsString],
    fds: &[(BorrowedFd<'_>, i32)],
    code: Option<u8>,
    again: Again,
    world: &World,
) -> Result<Ended, NotRun> {
    let program = CString::new(program.into_os_string().into_vec())?;
    let argv = words.iter().map(|word| CString::new(word.as_bytes()));
    let argv: Vec<CString> = argv.collect::<Result<_, _>>()?;
    let entry = |name: &[u8], value: &[u8]| CString::new([name, b"=", value].concat());
    let variables = world.variables.iter();
    let variables = variables.filter(|(name, _)| name.as_bytes() != CODE.as_bytes());
    let variables = variables.map(|(name, value)| entry(name.as_bytes(), value.as_bytes()));
    let code = code.map(|code| entry(CODE.as_bytes(), code.to_string().as_bytes()));
    let envp: Vec<CString> = variables.chain(code).collect::<Result<_, _>>()?;
    let mut events = Loop::new(&taken())?;
    let spec = SpawnSpec {
        fds,
        session: Session::OursWithGroup,
        ..SpawnSpec::new(&program, &argv, &envp)
    };
    let pid = Spawner::new()?.spawn(&spec)?;
    Ok(wait(&mut events, pid, again)?)
}

/// Waits for the end of a child. It may take any time: the user can end it by a signal.
fn wait(events: &mut Loop, pid: Pid, again: Again) -> Result<Ended, os::Error> {
    let mut first = None;
    let mut come = Vec::new();
    loop {
        while let Some(event) = os::reap() {
            if let ChildEvent::Exited {
                pid: ended, status, ..
            } = event
                && ended == pid
            {
                return Ok(Ended {
                    status,
                    signal: first,
                });
            }
        }
        events.wait(None, &mut come)?;
        for event in come.drain(..) {
            let Event::Signal(info) = event else {
                continue;
            };
            if info.signal == Signal::CHLD {
                continue;
            }
            if !ENDING.contains(&info.signal) {
                pass_on(info, pid, Force::AsItCame);
                continue;
            }
            let force = match (first, again) {
                (Some(_), Again::Kills) => Force::Kill,
                (None, _) | (_, Again::SameAsFirst) => Force::AsItCame,
            };
            pass_on(info, pid, force);
            first.get_or_insert(info.signal);
        }
    }
}

/// How a signal is passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Force {
    AsItCame,
    Kill,
}

/// Passes a signal on. Those of the terminal have already reached the whole process group.
fn pass_on(info: SignalInfo, pid: Pid, force: Force) {
    let signal = match (force, info.origin) {
        (Force::Kill, _) => Signal::KILL,
        (Force::AsItCame, SignalOrigin::Kernel) => return,
        (Force::AsItCame, SignalOrigin::User { .. }) => info.signal,
    };
    // A stopped process forks no more, so that no child of it is missed. All of them may have ended in between.
    let mut stopped = Vec::new();
    loop {
        let below = os::descendants(pid);
        let all = std::iter::once(pid).chain(below);
        let new: Vec<Pid> = all.filter(|process| !stopped.contains(process)).collect();
        if new.is_empty() {
            break;
        }
        for process in new {
            let _ = os::kill(process, Signal::STOP);
            stopped.push(process);
        }
    }
    for next in [signal, Signal::CONT] {
        for process in &stopped {
            let _ = os::kill(*process, next);
        }
    }
}
