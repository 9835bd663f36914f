//! What the daemon of another node is told before it can connect: one frame on its standard input.
//!
//! The frame carries the secret of the session, so it is never an argument or a variable.

use std::{
    fmt,
    net::SocketAddr,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    time::Duration,
};

use base::NodeId;
use bytes::Bytes;
use dvm::bootstrap::{Hosting, NO_PORT, stage::Program};
use os::{Interest, Loop, ReadOutcome};
use overlay::{
    node::{Config, Timing},
    secure::{Build, Secret},
    wire::{self, Incoming, Outgoing, WireError},
};
use serde::{Deserialize, Serialize};

use crate::{
    daemons::address_of,
    networks::{self, NoNetwork},
    program::OwnFile,
};

/// Time in which the whole frame has to come.
const BOOT_MAX: Duration = Duration::from_secs(60);
/// Kind of the frame.
const KIND_BOOT: u8 = 1;
const READ_SIZE: usize = 4096;
/// EADDRINUSE of Linux, with the same value on every architecture that we build for.
const EADDRINUSE: i32 = 98;

/// What a daemon is told when it starts.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Boot {
    /// The nodes whose daemons get this frame. A daemon finds its own by the name of its host; if there is one, it is that.
    pub(crate) nodes: Vec<BootNode>,
    /// Where the root accepts connections.
    pub(crate) root: Vec<SocketAddr>,
    pub(crate) secret: [u8; 32],
    /// Name of the launcher's build.
    pub(crate) build: String,
    pub(crate) lease: Duration,
    pub(crate) window: Duration,
    pub(crate) ports: Option<(u16, u16)>,
    pub(crate) interfaces: Vec<String>,
    /// Name of the controller, from which the names of jobs are made.
    pub(crate) controller: String,
    pub(crate) hosting: Hosting,
    /// What is logged; `None`: nothing.
    pub(crate) log: Option<String>,
    /// The file of the launcher's recording; `None`: nothing is recorded.
    pub(crate) recording: Option<PathBuf>,
    /// The program that nodes look for, if this daemon starts others.
    pub(crate) program: Program,
}

/// A node and the name under which its procs know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BootNode {
    pub(crate) node: NodeId,
    pub(crate) name: String,
}

impl fmt::Debug for Boot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Boot")
            .field("nodes", &self.nodes)
            .field("root", &self.root)
            .finish_non_exhaustive()
    }
}

/// Why a daemon does not know what to do.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BootError {
    #[error(transparent)]
    Os(#[from] os::Error),
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error("nobody said on standard input what to do: this program is started by `rally run`")]
    Nothing,
    #[error("the node `{host}` is not among those to start: {wanted}")]
    OtherNode { host: String, wanted: String },
    #[error(
        "its program `{path}` is of another build: `{ours}`, and the launcher is `{theirs}`",
        path = .path.display()
    )]
    OtherBuild {
        path: PathBuf,
        ours: String,
        theirs: String,
    },
    #[error("its copy of the program was changed after it was stored: `{}`", .0.display())]
    Damaged(PathBuf),
    #[error(transparent)]
    NoNetwork(#[from] NoNetwork),
    #[error("{NO_PORT} {low}-{high}")]
    NoPort { low: u16, high: u16 },
}

impl Boot {
    /// Returns the bytes for the daemon's standard input.
    pub(crate) fn to_bytes(&self) -> Result<Vec<u8>, WireError> {
        let mut outgoing = Outgoing::default();
        outgoing.push(KIND_BOOT, &[], wire::encode(self)?)?;
        Ok(outgoing.pieces().flatten().copied().collect())
    }

    /// Returns the bytes for daemons of these nodes, who are told the rest as this one was.
    pub(crate) fn frame_for(&self, nodes: Vec<BootNode>) -> Result<Vec<u8>, String> {
        let boot = Self {
            nodes,
            ..self.clone()
        };
        boot.to_bytes().map_err(|error| error.to_string())
    }

    /// Reads the frame from a file, and removes the file if no other daemon needs it. The file is in a directory of its own.
    pub(crate) fn read_file(path: &Path) -> Result<Self, BootError> {
        let (bytes, owner) = os::read_owned(path)?;
        if owner != os::effective_uid() {
            return Err(BootError::Nothing);
        }
        let mut incoming = Incoming::default();
        incoming.take(&bytes);
        let (kind, body) = incoming.frame()?.ok_or(BootError::Nothing)?;
        let boot = Self::of_frame(kind, &body)?;
        if let ([_], Some(directory)) = (boot.nodes.as_slice(), path.parent()) {
            // An error leaves the file to the launcher, which removes it too.
            let _ = os::remove_private_dir(directory);
        }
        Ok(boot)
    }

    /// Reads the frame from standard input.
    pub(crate) fn read() -> Result<Self, BootError> {
        let [stdin, ..] = os::standard_streams()?;
        let stdin = stdin.ok_or(BootError::Nothing)?;
        os::set_nonblocking(stdin.as_fd())?;
        let mut events = Loop::new(&[])?;
        let until = os::Clock::now() + BOOT_MAX;
        let mut incoming = Incoming::default();
        let mut buffer = [0; READ_SIZE];
        let mut taken = Vec::new();
        let mut watched = None;
        loop {
            if let Some((kind, body)) = incoming.frame()? {
                return Self::of_frame(kind, &body);
            }
            match os::read(stdin.as_fd(), &mut buffer)? {
                ReadOutcome::Bytes(count) => incoming.take(&buffer[..count]),
                ReadOutcome::Closed => return Err(BootError::Nothing),
                ReadOutcome::WouldBlock if os::Clock::now() >= until => {
                    return Err(BootError::Nothing);
                }
                ReadOutcome::WouldBlock => {
                    // A file is never watched: reading it does not block.
                    if watched.is_none() {
                        watched = Some(events.add(os::duplicate(stdin.as_fd())?, Interest::Read)?);
                    }
                    events.wait(Some(until), &mut taken)?;
                }
            }
        }
    }

    fn of_frame(kind: u8, body: &Bytes) -> Result<Self, BootError> {
        if kind != KIND_BOOT {
            return Err(WireError::Foreign.into());
        }
        Ok(wire::decode(body)?)
    }

    /// Checks that this program and the launcher are the same build, and that a copy is whole.
    pub(crate) fn of_our_build(self, version: &str) -> Result<Self, BootError> {
        if self.hosting == Hosting::Alone {
            let program = OwnFile::open()?;
            if program.is_damaged_copy() {
                return Err(BootError::Damaged(OwnFile::path()));
            }
            let ours = program.build(version);
            if ours != self.build {
                return Err(BootError::OtherBuild {
                    path: OwnFile::path(),
                    ours,
                    theirs: self.build,
                });
            }
        }
        Ok(self)
    }

    /// Returns the configuration of a process of the tree, which others reach at these addresses.
    pub(crate) fn config(&self, node: NodeId, at: Vec<SocketAddr>) -> Config {
        Config {
            me: address_of(node),
            build: Build::new(&self.build),
            secret: Secret::new(self.secret),
            timing: Timing {
                lease: self.lease,
                window: self.window,
            },
            at,
        }
    }

    /// Returns the node of the daemon on this host.
    pub(crate) fn own(&self, host: &str, alias: Option<&str>) -> Result<&BootNode, BootError> {
        if let [only] = self.nodes.as_slice() {
            return Ok(only);
        }
        let names = dvm::alloc::LocalNames::new(host).with_alias(alias);
        let own = self.nodes.iter().find(|node| names.contains(&node.name));
        own.ok_or_else(|| {
            let wanted = self.nodes.iter().map(|node| node.name.as_str());
            BootError::OtherNode {
                host: host.to_owned(),
                wanted: wanted.collect::<base::HostList>().to_string(),
            }
        })
    }
}

/// Returns the addresses at which other processes can reach a port of this node.
pub(crate) fn reachable_at(
    port: u16,
    interfaces: &[String],
    hosting: Hosting,
) -> Result<Vec<SocketAddr>, BootError> {
    let usable = networks::usable(&os::interface_addresses()?, interfaces, hosting)?;
    let of = |ip| SocketAddr::new(ip, port);
    Ok(usable.into_iter().map(of).collect())
}

/// Listens for other processes of the tree, at a port of the range.
pub(crate) fn listen(ports: Option<(u16, u16)>) -> Result<(OwnedFd, u16), BootError> {
    let range = ports.map(|(low, high)| low..=high);
    os::listen_anywhere(range).map_err(|error| match (error.errno(), ports) {
        (EADDRINUSE, Some((low, high))) => BootError::NoPort { low, high },
        _ => error.into(),
    })
}
