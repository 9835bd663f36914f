//! The connection to a tool that has started this launcher: made before anything slow, because the tool waits for 2 s only.

use std::{io, net::SocketAddr, os::fd::OwnedFd, time::Duration};

use os::{Conversation, PeerIdentity, Pid, SocketOwners};
use pmix::{
    handshake::Owner,
    keys,
    launcher::{Callback, CallbackError, Called, Step, Summons},
    value::{Nspace, PmixRank, Proc},
};

/// The longest time until the tool has answered. libpmix answers within milliseconds, unless its process is stopped.
const PATIENCE: Duration = Duration::from_secs(10);
/// The size of one read, in bytes.
const READ_MAX: usize = 16 * 1024;

/// A tool that controls this launcher.
#[derive(Debug)]
pub enum ControllingTool {
    Started(Box<StartedBy>),
    /// The environment asks the launcher to wait for a tool.
    Pause,
}

impl ControllingTool {
    /// Returns true if the job goes on when the tool is dead.
    #[must_use]
    pub fn is_outlived(&self) -> bool {
        match self {
            Self::Started(by) => {
                let directives = &by.called.directives;
                let said = directives.iter().find(|info| info.key == *keys::NOHUP);
                by.keepalive.is_none() || said.is_some_and(|info| info.value.is_set())
            }
            Self::Pause => true,
        }
    }
}

/// The tool that has started this launcher.
#[derive(Debug)]
pub struct StartedBy {
    pub(crate) connection: OwnedFd,
    pub(crate) called: Called,
    /// Its other end closes when the tool is dead. `None` if the tool wants the job to go on then.
    pub(crate) keepalive: Option<OwnedFd>,
}

/// Why a tool that has started this launcher cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum NotCalled {
    #[error("{0} is not a loopback address, and only a tool on this host can start a launcher")]
    Elsewhere(SocketAddr),
    #[error("cannot connect to {0}: {1}")]
    Connect(SocketAddr, io::Error),
    #[error("it belongs to another user")]
    OtherUser,
    #[error("the kernel does not say to whom it belongs")]
    UnknownUser,
    #[error("it has closed the connection")]
    Closed,
    #[error("the connection to it is broken: {0}")]
    Broken(io::Error),
    #[error("it has not answered for {} s", PATIENCE.as_secs())]
    Silent,
    #[error(transparent)]
    Protocol(#[from] CallbackError),
}

impl From<io::Error> for NotCalled {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::TimedOut => Self::Silent,
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Self::Closed,
            _ => Self::Broken(error),
        }
    }
}

/// Connects to the tool, and asks for its directives.
///
/// # Errors
/// See [`NotCalled`]: then there is nobody to control a job.
pub fn call_back(
    summons: Summons,
    host: &str,
    command_line: &str,
    keepalive: Option<OwnedFd>,
) -> Result<StartedBy, NotCalled> {
    let address = summons.tool.address();
    if !address.ip().to_canonical().is_loopback() {
        return Err(NotCalled::Elsewhere(address));
    }
    let pid = os::current_pid();
    let me = summons.me.unwrap_or_else(|| own_name(host, pid));
    let mut tool =
        Conversation::open(address, PATIENCE).map_err(|why| NotCalled::Connect(address, why))?;
    let owner = Owner {
        uid: os::effective_uid(),
        gid: os::effective_gid(),
    };
    let pid = pid.as_raw().unsigned_abs();
    let (mut callback, hello) = Callback::new(summons.tool, me, owner, pid, command_line);
    tool.send(&hello)?;
    let mut buffer = vec![0; READ_MAX];
    let mut checked = false;
    loop {
        let bytes = tool.receive(&mut buffer)?;
        if bytes.is_empty() {
            return Err(NotCalled::Closed);
        }
        if !checked {
            // It has accepted the connection, so that the kernel knows its user. Nothing of another user is even parsed.
            check_user(&tool)?;
            checked = true;
        }
        let mut step = callback.handle(bytes)?;
        if let Step::Send(request) = &step {
            tool.send(request)?;
            step = callback.handle(&[])?;
        }
        if let Step::Called(called) = step {
            return Ok(StartedBy {
                connection: tool.into_connection()?,
                called: *called,
                keepalive,
            });
        }
    }
}

fn check_user(tool: &Conversation) -> Result<(), NotCalled> {
    let mut owners = SocketOwners::new().map_err(|error| {
        let errno = error.errno();
        NotCalled::Broken(io::Error::from_raw_os_error(errno))
    })?;
    match tool.peer(&mut owners) {
        PeerIdentity::User(uid) if uid == os::effective_uid() => Ok(()),
        PeerIdentity::User(_) => Err(NotCalled::OtherUser),
        PeerIdentity::Unknown(_) => Err(NotCalled::UnknownUser),
    }
}

/// The name of a launcher to which the tool has given none.
fn own_name(host: &str, pid: Pid) -> Proc {
    let host = host.split('.').next().unwrap_or_default();
    Proc {
        nspace: Nspace::from_text(&format!("rally-{host}-{pid}")).unwrap_or_default(),
        rank: PmixRank(0),
    }
}
