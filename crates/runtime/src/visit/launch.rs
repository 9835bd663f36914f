//! A launcher that a tool starts, and that connects back to it (docs/formats/indirect-launch.md).

use std::{
    ffi::{CString, OsStr, OsString},
    io::{stderr, stdout},
    net::{Ipv4Addr, SocketAddr, SocketAddrV4},
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
    path::PathBuf,
    time::Duration,
};

use base::{ExitStatus, Signal, Time};
use os::{
    AcceptOutcome, ChildEvent, Clock, Found, Interest, Loop, Orphan, PeerIdentity, Pid,
    SocketOwners, SpawnSpec, Spawner, Token,
};
use pmix::{
    client::{ServerUri, Terms},
    handshake::Owner,
    tool::{Tool, launcher_name, launcher_variables, tool_name},
    value::{Info, Proc},
};

use super::{Failed, Server, Visit};

/// Number of the keepalive pipe in the launcher.
const KEEPALIVE: i32 = 3;
/// Connections of others that are accepted and closed before the launcher's. Any process of the user can connect.
const STRANGERS_MAX: usize = 64;

/// A launcher to start.
#[derive(Debug)]
pub struct Launch<'a> {
    /// The launcher and its arguments. A name without `/` is searched for in `PATH` of the environment.
    pub command: &'a [OsString],
    /// The environment of the launcher, to which its variables for us are added.
    pub environment: &'a [(OsString, OsString)],
    /// Its standard input; nothing if `None`. Its output goes where ours goes.
    pub input: Option<OwnedFd>,
    /// Number of this launcher among those that this process starts, from 1.
    pub number: u32,
    /// Directives for the job, as in a spawn.
    pub directives: Vec<Info>,
}

/// A launcher that this process has started.
#[derive(Debug)]
pub(super) struct Launcher {
    pid: Pid,
    end: Option<ExitStatus>,
    /// The launcher sees the end of this process by the end of this pipe.
    keepalive: Option<OwnedFd>,
    is_released: bool,
}

impl Drop for Launcher {
    /// A launcher that has a job ends it when the pipe closes. One that still waits may wait for ever.
    fn drop(&mut self) {
        if self.end.is_none() && !self.is_released {
            let _ = os::kill(self.pid, Signal::KILL);
        }
    }
}

impl Visit {
    /// Starts a launcher, and returns when it has connected and waits for its release. It must be released before it does anything,
    /// by [`Self::release_launcher`]. If the visit ends before that, the launcher is killed. If it ends later, so does the job.
    ///
    /// While a visit has a launcher, it reaps all children of this process.
    ///
    /// # Errors
    /// It cannot be started, has ended, or has not connected in time.
    pub fn launch(launch: Launch<'_>, patience: Duration) -> Result<Self, Failed> {
        let until = Clock::now() + patience;
        let mut events = Loop::new(&[])?;
        let (listener, port) = os::listen_loopback()?;
        let address: SocketAddr = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port).into();
        let me = tool_name(&os::host_name(), os::current_pid().as_raw().unsigned_abs());
        let uri = ServerUri::new(me, address)?;
        let name = launcher_name(uri.server(), launch.number);
        let mut launcher = start(&launch, &uri, &name)?;
        let listener = events.add(listener, Interest::Read)?;
        let terms = Terms {
            uri,
            launcher: Some(name),
            directives: launch.directives,
            owner: Owner {
                uid: os::effective_uid(),
                gid: os::effective_gid(),
            },
        };
        let mut owners = SocketOwners::new()?;
        let mut failed = Failed::Silent;
        for _ in 0..STRANGERS_MAX {
            events.set_interest(listener, Interest::Read)?;
            let socket = accept(&mut events, listener, &mut owners, &mut launcher, until)?;
            // One at a time: others wait in the kernel.
            events.set_interest(listener, Interest::None)?;
            let tool = Tool::accept(Clock::now(), terms.clone());
            let token = events.add(socket, Interest::Read)?;
            let server = Server::new(token, address, Interest::Read);
            let mut visit = Self::over(events, tool, Some(server));
            match visit.ready(until) {
                Ok(()) => {
                    drop(visit.events.remove(listener));
                    visit.launcher = Some(launcher);
                    return Ok(visit);
                }
                // Another process of this user.
                Err(Failed::Lost(why)) => {
                    failed = Failed::Lost(why);
                    visit.close();
                    Self { events, .. } = visit;
                }
                Err(why) => return Err(why),
            }
        }
        Err(failed)
    }

    /// Releases the launcher: it starts its job. What the tool wants to hear of, it should have asked for.
    pub fn release_launcher(&mut self) -> pmix::client::Ticket {
        if let Some(launcher) = &mut self.launcher {
            launcher.is_released = true;
        }
        let server = self.tool.as_program().server().clone();
        self.tool.release(vec![server])
    }

    /// Waits until the launcher has ended. Its connection is not served meanwhile, so that it is over before.
    ///
    /// # Errors
    /// [`Failed::Silent`] at `until`, or if this process has started none.
    pub fn launcher_end(&mut self, until: Option<Time>) -> Result<ExitStatus, Failed> {
        let mut batch = Vec::new();
        loop {
            self.reap();
            let Some(launcher) = &self.launcher else {
                return Err(Failed::Silent);
            };
            if let Some(status) = launcher.end {
                return Ok(status);
            }
            if until.is_some_and(|until| until <= Clock::now()) {
                return Err(Failed::Silent);
            }
            self.close();
            self.events.wait(until, &mut batch)?;
        }
    }

    /// Takes note of the end of the launcher.
    pub(super) fn reap(&mut self) {
        if let Some(launcher) = &mut self.launcher {
            launcher.reap();
        }
    }
}

impl Launcher {
    fn reap(&mut self) {
        while self.end.is_none() {
            match os::reap() {
                Some(ChildEvent::Exited { pid, status, .. }) if pid == self.pid => {
                    self.end = Some(status);
                    self.keepalive = None;
                }
                Some(_) => {}
                None => return,
            }
        }
    }
}

/// Waits for a connection of our user.
fn accept(
    events: &mut Loop,
    listener: Token,
    owners: &mut SocketOwners,
    launcher: &mut Launcher,
    until: Time,
) -> Result<OwnedFd, Failed> {
    let mut batch = Vec::new();
    loop {
        if let Some(fd) = events.fd(listener) {
            match os::accept(fd.as_fd(), owners)? {
                AcceptOutcome::Connection(accepted)
                    if accepted.peer == PeerIdentity::User(os::effective_uid()) =>
                {
                    return Ok(accepted.fd);
                }
                // Another user's, which is closed.
                AcceptOutcome::Connection(_) => continue,
                AcceptOutcome::WouldBlock => {}
                AcceptOutcome::Exhausted(error) => return Err(error.into()),
            }
        }
        launcher.reap();
        if let Some(status) = launcher.end {
            return Err(Failed::LauncherEnded { status });
        }
        if Clock::now() >= until {
            return Err(Failed::Silent);
        }
        events.wait(Some(until), &mut batch)?;
    }
}

/// Starts the launcher.
fn start(launch: &Launch<'_>, tool: &ServerUri, name: &Proc) -> Result<Launcher, Failed> {
    let (program, _) = launch.command.split_first().ok_or(Failed::NoProgram {
        program: PathBuf::new(),
    })?;
    let path = launch.environment.iter().find(|(name, _)| name == "PATH");
    let path = path.map_or_else(OsString::new, |(_, path)| path.clone());
    let Found::Program(file) = os::find_program(program, &path) else {
        let program = program.into();
        return Err(Failed::NoProgram { program });
    };
    let variables = launcher_variables(tool, name, KEEPALIVE);
    let is_ours = |name: &OsStr| variables.iter().any(|(own, _)| *own == name);
    let inherited = launch.environment.iter().filter(|(name, _)| !is_ours(name));
    let inherited =
        inherited.map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()].concat());
    let own = variables
        .iter()
        .map(|(name, value)| format!("{name}={value}").into_bytes());
    let envp: Vec<CString> = inherited
        .chain(own)
        .filter_map(|entry| CString::new(entry).ok())
        .collect();
    let argv: Vec<CString> = launch
        .command
        .iter()
        .filter_map(|word| CString::new(word.as_bytes()).ok())
        .collect();
    let file_c = CString::new(file.as_os_str().as_bytes()).unwrap_or_default();
    let (ours, theirs) = os::pipe()?;
    let nothing = os::dev_null()?;
    let input = launch.input.as_ref().unwrap_or(&nothing);
    let (output, errors) = (stdout(), stderr());
    let spec = SpawnSpec {
        fds: &[
            (input.as_fd(), 0),
            (output.as_fd(), 1),
            (errors.as_fd(), 2),
            (theirs.as_fd(), KEEPALIVE),
        ],
        // It has to end its job, when it sees that we have ended.
        orphan: Orphan::Lives,
        ..SpawnSpec::new(&file_c, &argv, &envp)
    };
    let pid = Spawner::new()?.spawn(&spec);
    let pid = pid.map_err(|why| Failed::NotStarted { program: file, why })?;
    Ok(Launcher {
        pid,
        end: None,
        keepalive: Some(ours),
        is_released: false,
    })
}
