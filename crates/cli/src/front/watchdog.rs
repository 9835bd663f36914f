//! `dbgr watch` beside the job, for `--on-hang=report`: when it starts and ends is `dvm::watchdog`'s.
//!
//! It is a process of its own, which reads our table for debuggers as it would that of any launcher; what it says comes to us
//! through a pipe, so that it is printed in order with what the ranks say. It ends with us, whatever we die of.

use std::{
    env,
    ffi::{CString, OsString},
    os::{
        fd::AsFd as _,
        unix::ffi::{OsStrExt as _, OsStringExt as _},
    },
    path::{Path, PathBuf},
    time::Duration,
};

use base::{Signal, Time};
use dvm::watchdog::{self, Input, Output};
use os::{
    Clock, Interest, Loop, Pid, ReadOutcome, Session, SpawnSpec, Spawner, Token, Trace, Tracers,
};

use crate::args::{FrontOptions, MessageFormat};
use crate::choices::OnHang;
use crate::messages::NotWatched;

/// The program that watches.
const PROGRAM: &str = "dbgr";
/// Bytes that are read from it at once.
const READ_SIZE: usize = 16 << 10;
/// A line of it that is longer is passed on in parts.
const LINE_MAX: usize = 64 << 10;

#[derive(Debug)]
pub(super) struct Watchdog {
    machine: watchdog::Watchdog,
    format: MessageFormat,
    /// Where what it says comes from.
    pipe: Option<Token>,
    /// The beginning of a line that it has not ended.
    line: Vec<u8>,
}

impl Watchdog {
    /// `time_limit` is that of the job, which begins now.
    pub(super) fn new(options: &FrontOptions, time_limit: Option<Duration>) -> Self {
        let idle = match options.on_hang {
            OnHang::Report(idle) => Some(idle),
            OnHang::Nothing => None,
        };
        Self {
            machine: watchdog::Watchdog::new(Clock::now(), idle, time_limit),
            format: options.message_format,
            pipe: None,
            line: Vec::new(),
        }
    }

    /// The ranks run.
    pub(super) fn start(&mut self, events: &mut Loop) -> Result<(), NotWatched> {
        self.advance(Clock::now(), Input::RanksRun, events)
    }

    /// The job is over.
    pub(super) fn stop(&mut self, events: &mut Loop) {
        // Nothing is started now, and nothing else can fail.
        let _ = self.advance(Clock::now(), Input::JobOver, events);
    }

    /// A child has ended.
    pub(super) fn on_exit(&mut self, ended: Pid) {
        self.machine
            .handle(Clock::now(), Input::Exited(ended.as_raw()));
    }

    /// When to call [`Self::on_tick`].
    pub(super) const fn deadline(&self) -> Option<Time> {
        self.machine.deadline()
    }

    pub(super) fn on_tick(&mut self, now: Time, events: &mut Loop) {
        // As above.
        let _ = self.advance(now, Input::Tick, events);
    }

    fn advance(&mut self, now: Time, input: Input, events: &mut Loop) -> Result<(), NotWatched> {
        self.machine.handle(now, input);
        while let Some(output) = self.machine.poll() {
            // It is our child, and not waited for: nobody else has its number.
            match output {
                Output::Start { idle, left } => match self.spawn(idle, left, events) {
                    Ok(pid) => self.machine.handle(now, Input::Started(pid.as_raw())),
                    Err(why) => {
                        self.machine.handle(now, Input::NotStarted);
                        return Err(why);
                    }
                },
                Output::Ask(pid) => drop(os::kill(Pid::from_raw(pid), Signal::TERM)),
                Output::Kill(pid) => drop(os::kill(Pid::from_raw(pid), Signal::KILL)),
            }
        }
        Ok(())
    }

    fn spawn(
        &mut self,
        idle: Duration,
        left: Option<Duration>,
        events: &mut Loop,
    ) -> Result<Pid, NotWatched> {
        let words = words(idle, left, self.format);
        let program = program().ok_or(NotWatched::NoProgram)?;
        let (ours, theirs) = os::pipe()?;
        os::set_nonblocking(ours.as_fd())?;
        let null = os::dev_null()?;
        let argv: Vec<CString> = std::iter::once(program.clone().into_os_string())
            .chain(words.into_iter().map(OsString::from))
            .map(|word| CString::new(word.into_vec()))
            .collect::<Result<_, _>>()?;
        let envp: Vec<CString> = env::vars_os()
            .map(|(name, value)| CString::new([name.as_bytes(), b"=", value.as_bytes()].concat()))
            .collect::<Result<_, _>>()?;
        let program = CString::new(program.into_os_string().into_vec())?;
        let spec = SpawnSpec {
            program: &program,
            argv: &argv,
            envp: &envp,
            envp_extra: &[],
            cwd: None,
            fds: &[(null.as_fd(), 0), (theirs.as_fd(), 1), (theirs.as_fd(), 2)],
            affinity: None,
            umask: None,
            tracers: Tracers::Ancestors,
            limits: &[],
            session: Session::Ours,
            trace: Trace::No,
        };
        let pid = Spawner::new()?.spawn(&spec)?;
        self.pipe = events.add(ours, Interest::Read).ok();
        Ok(pid)
    }

    pub(super) fn is(&self, token: Token) -> bool {
        self.pipe == Some(token)
    }

    /// All that it has said was passed on.
    pub(super) const fn is_silent(&self) -> bool {
        self.pipe.is_none()
    }

    /// What it says, in whole lines.
    pub(super) fn read(&mut self, events: &mut Loop) -> Vec<u8> {
        let Some(token) = self.pipe else {
            return Vec::new();
        };
        let mut buffer = vec![0; READ_SIZE];
        let read = events.fd(token).map(|fd| os::read(fd, &mut buffer));
        match read {
            Some(Ok(ReadOutcome::Bytes(count))) => {
                self.line.extend_from_slice(&buffer[..count]);
                let end = self.line.iter().rposition(|&byte| byte == b'\n');
                let end = end.map_or(0, |end| end + 1);
                if end == 0 && self.line.len() > LINE_MAX {
                    return std::mem::take(&mut self.line);
                }
                let rest = self.line.split_off(end);
                std::mem::replace(&mut self.line, rest)
            }
            Some(Ok(ReadOutcome::WouldBlock)) => Vec::new(),
            Some(Ok(ReadOutcome::Closed) | Err(_)) | None => {
                drop(events.remove(token));
                self.pipe = None;
                std::mem::take(&mut self.line)
            }
        }
    }
}

/// What it is asked.
fn words(idle: Duration, left: Option<Duration>, format: MessageFormat) -> Vec<String> {
    let front = os::current_pid();
    let mut words = vec![
        "watch".to_owned(),
        front.to_string(),
        "--idle".to_owned(),
        format!("{}ms", idle.as_millis()),
        "--output".to_owned(),
        format!("rally-{front}-hang.html"),
    ];
    if let Some(left) = left {
        words.extend(["--limit".to_owned(), format!("{}ms", left.as_millis())]);
    }
    if format == MessageFormat::Json {
        words.extend(["--message-format".to_owned(), "json".to_owned()]);
    }
    words
}

/// The program that watches: the one beside us, else one in PATH.
fn program() -> Option<PathBuf> {
    let ours = os::program_of(os::current_pid());
    let beside = ours.as_deref().and_then(Path::parent).map(Path::to_owned);
    let path = env::var_os("PATH").unwrap_or_default();
    beside
        .into_iter()
        .chain(env::split_paths(&path))
        .filter(|directory| directory.is_absolute())
        .map(|directory| directory.join(PROGRAM))
        .find(|file| os::is_executable(file))
}
