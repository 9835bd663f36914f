//! What the hosts of one process share: the event loop, the meaning of each descriptor in it, the host of each child
//! process, and the buffer for reads.

use std::{collections::BTreeMap, os::fd::OwnedFd};

use base::{JobId, NodeId, ProcId, Time};
use dvm::{
    bootstrap::CommandId,
    proto::{FrontId, Stream},
    slurm::CommandNumber,
};
use os::{Event, Interest, Loop, Pid, ReadOutcome, Token, WriteOutcome};
use pmix::server::Conn;

/// Bytes read from one stream of one rank before other events are handled.
pub(crate) const READ_MAX: usize = 256 * 1024;

/// Maximum number of processes between a start command and a process that asks for it.
const ANCESTORS_MAX: usize = 32;

/// The meaning of a descriptor in the event loop.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source {
    /// The link to a front.
    Front(FrontId),
    /// The socket to which other processes of the user connect as fronts.
    Control,
    /// A descriptor of the daemon of this node.
    Node(NodeId, Channel),
    /// A connection between nodes, or the port for them.
    Tree(TreeChannel),
    /// What a start command prints.
    Command(CommandId),
    /// What the thread of a machine has done.
    Machine,
    /// The link of a relay to its program.
    Program,
    /// The standard input of a start command.
    CommandInput(CommandId),
    /// What a command of Slurm prints.
    Slurm(CommandNumber),
    /// The pipe that shows whether the tool that has started the launcher lives.
    Keepalive,
}

/// The meaning of a descriptor of the tree.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TreeChannel {
    Port,
    Peer(overlay::node::Conn),
}

/// The meaning of a descriptor of a daemon.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Channel {
    Output(ProcId, Stream),
    Stdin(ProcId),
    Pmi(ProcId),
    /// The port to which PMIx clients connect.
    Port,
    Client(Conn),
}

/// Result of a read.
#[derive(Debug)]
pub(crate) enum Read<'a> {
    Bytes(&'a [u8]),
    WouldBlock,
    Closed,
}

/// A child of this process.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Child {
    Proc {
        node: NodeId,
        proc: ProcId,
    },
    /// A command that starts daemons.
    Command(CommandId),
    /// The process that watches this job for hangs.
    Watch(JobId),
    /// A command of Slurm.
    Slurm(CommandNumber),
}

/// The event loop of a process and what is known of its descriptors and children.
#[derive(Debug)]
pub(crate) struct Reactor {
    events: Loop,
    sources: BTreeMap<Token, Source>,
    pub(crate) children: BTreeMap<Pid, Child>,
    /// Number of daemons in this process.
    pub(crate) daemons: u32,
    buffer: Vec<u8>,
    /// Whether a descriptor was closed since the last [`Reactor::take_closed`].
    has_closed: bool,
}

impl Reactor {
    pub(crate) fn new(events: Loop) -> Self {
        Self {
            events,
            sources: BTreeMap::new(),
            children: BTreeMap::new(),
            daemons: 0,
            buffer: vec![0; READ_MAX],
            has_closed: false,
        }
    }

    /// Returns the command that has started a process, directly or not.
    pub(crate) fn command_above(&self, pid: Pid) -> Option<CommandId> {
        let mut pid = pid;
        for _ in 0..ANCESTORS_MAX {
            match self.children.get(&pid) {
                Some(Child::Command(command)) => return Some(*command),
                Some(Child::Proc { .. } | Child::Watch(_) | Child::Slurm(_)) => return None,
                None => pid = os::inspect(pid)?.ppid,
            }
        }
        None
    }

    /// Takes over a descriptor and watches it.
    pub(crate) fn add(
        &mut self,
        fd: OwnedFd,
        interest: Interest,
        source: Source,
    ) -> Result<Token, os::Error> {
        let token = self.events.add(fd, interest)?;
        self.sources.insert(token, source);
        Ok(token)
    }

    /// Closes a descriptor.
    pub(crate) fn close(&mut self, token: Token) {
        self.sources.remove(&token);
        drop(self.events.remove(token));
        self.has_closed = true;
    }

    /// Returns true if a descriptor was closed since the last call, so that another may be opened.
    pub(crate) fn take_closed(&mut self) -> bool {
        std::mem::take(&mut self.has_closed)
    }

    pub(crate) fn source(&self, token: Token) -> Option<Source> {
        self.sources.get(&token).copied()
    }

    /// Returns the descriptor of a token. `None` if it was closed, which happens while earlier events of the same batch are
    /// handled.
    pub(crate) fn fd(&self, token: Token) -> Option<std::os::fd::BorrowedFd<'_>> {
        self.events.fd(token)
    }

    pub(crate) fn interest(&self, token: Token) -> Option<Interest> {
        self.events.interest(token)
    }

    pub(crate) fn set_interest(
        &mut self,
        token: Token,
        interest: Interest,
    ) -> Result<(), os::Error> {
        self.events.set_interest(token, interest)
    }

    /// Reads once, at most `most` bytes. Returns `None` if the descriptor was closed.
    pub(crate) fn read(
        &mut self,
        token: Token,
        most: usize,
    ) -> Option<Result<Read<'_>, os::Error>> {
        let fd = self.events.fd(token)?;
        let buffer = &mut self.buffer[..most.min(READ_MAX)];
        Some(os::read(fd, buffer).map(|outcome| match outcome {
            ReadOutcome::Bytes(count) => Read::Bytes(&self.buffer[..count]),
            ReadOutcome::WouldBlock => Read::WouldBlock,
            ReadOutcome::Closed => Read::Closed,
        }))
    }

    /// Reads once, into the caller's buffer. Returns `None` if the descriptor was closed.
    pub(crate) fn read_into(
        &self,
        token: Token,
        buffer: &mut [u8],
    ) -> Option<Result<ReadOutcome, os::Error>> {
        Some(os::read(self.events.fd(token)?, buffer))
    }

    /// Writes what the descriptor takes. Returns `None` if the descriptor was closed.
    pub(crate) fn write(
        &self,
        token: Token,
        bytes: &[u8],
    ) -> Option<Result<WriteOutcome, os::Error>> {
        Some(os::write(self.events.fd(token)?, bytes))
    }

    pub(crate) fn wait(
        &mut self,
        deadline: Option<Time>,
        taken: &mut Vec<Event>,
    ) -> Result<(), os::Error> {
        self.events.wait(deadline, taken)
    }
}
