//! A tree of processes for another program than the launcher: the debugger and its agents.
//!
//! Such a program works for seconds without a look at its links, for example while it reads debug information, and a silent
//! link counts as lost. Therefore a forked process, the *relay*, keeps the program's place in the tree and runs the commands
//! that start other nodes. Program and relay exchange frames over a socket pair: bodies, which the relay does not look into,
//! and [`News`].
//!
//! | who ends | what follows |
//! |---|---|
//! | the program at the root | its relay ends the session: the relays of the other nodes exit, and then the commands |
//! | the program of another node | its relay exits; the root gets [`News::Lost`] |
//! | a relay | its program gets [`LinkError::Closed`] |
//! | the relay of the root | the other relays are abandoned and exit |

mod process;

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    os::fd::{AsFd, OwnedFd},
    path::PathBuf,
    time::Duration,
};

use base::{NodeId, Time};
use bytes::{Buf as _, Bytes};
use dvm::bootstrap::{DaemonPlan, NotJoined, Reason};
use os::{Clock, Forked, ReadOutcome, WriteOutcome};
use overlay::wire::{Incoming, Outgoing, WireError};
use serde::{Deserialize, Serialize};

pub use overlay::BODY_MAX;

use crate::boot::{Boot, BootError, listen};

/// Kinds of the frames between a program and its relay.
mod kind {
    /// To the relay of the root: the number of nodes, the nodes, and a body for them.
    pub(super) const CAST: u8 = 1;
    /// To the relay of another node: a body for the root.
    pub(super) const SEND: u8 = 2;
    /// To the relay: end the session.
    pub(super) const END: u8 = 3;
    /// To the relay of the root: the number of a question, the number of nodes, the nodes, and the question.
    pub(super) const ASK: u8 = 6;
    /// To the relay of the root: the number of a question that is over.
    pub(super) const ENOUGH: u8 = 7;
    /// To the relay of another node: the number of a gather, and the answer.
    pub(super) const ANSWER: u8 = 8;
    /// From the relay of another node: the number of a gather, and the question.
    pub(super) const ASKED: u8 = 9;
    /// From the relay of the root: the number of a question, the number of nodes, the nodes, and their merged answers.
    pub(super) const PART: u8 = 10;
    /// From the relay: a node, and a body that it has sent. At another node than the root, the body is the root's.
    pub(super) const BODY: u8 = 4;
    /// From the relay: news.
    pub(super) const NEWS: u8 = 5;
}

/// Time for which a program waits for its relay to end the session.
const ENDING_MAX: Duration = Duration::from_secs(4);
/// How long answers to a question wait for others to be merged with, at most. Other answers are not late because of a node that
/// does not answer, and a slow node is waited for in the program only.
const MERGING_MAX: Duration = Duration::from_secs(20);
/// How long a question stays open if the program does not end it.
const ASKING_MAX: Duration = Duration::from_secs(3600);
/// Bytes read from the relay at a time.
const READ_MAX: usize = 256 * 1024;

/// What the relay reports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum News {
    /// At the root: the program of a node has joined.
    Joined(NodeId),
    /// At the root: the link to a node was lost, for the reason given.
    Lost(NodeId, String),
    /// At the root: a node does not have the program, and gets it.
    Copying(NodeId),
    /// At the root: the programs of some nodes could not be started.
    NotJoined(NotJoined),
    /// At another node: the session is over.
    Ended,
    /// At another node: there is no way to the root, for the reason given.
    Failed(String),
    /// A violation of the protocol, or a stranger at the port: for the log.
    Report(String),
}

/// What a program gets from its relay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// A message of a node; at another node than the root, a message of the root.
    Body(NodeId, Bytes),
    /// At another node than the root: a question of the root, for [`Relay::answer`].
    Asked(Question, Bytes),
    /// At the root: the merged answers of some nodes to the question with this number.
    Part(u64, BTreeSet<NodeId>, Bytes),
    News(News),
}

/// A question of the root that this node has to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question(u64);

/// Why a relay is of no use any more.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    #[error(transparent)]
    Os(#[from] os::Error),
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error("the process that keeps the connections to other nodes has ended")]
    Closed,
}

/// Why this process is no program of a tree.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    #[error(transparent)]
    Os(#[from] os::Error),
    #[error("{0}")]
    Boot(String),
}

impl From<BootError> for JoinError {
    fn from(error: BootError) -> Self {
        match error {
            BootError::Os(error) => Self::Os(error),
            other => Self::Boot(other.to_string()),
        }
    }
}

/// The two processes after a fork.
#[derive(Debug)]
pub enum Side<T> {
    Program(T),
    /// The relay has ended: the process is to exit with this code.
    Relay(u8),
}

/// A program's end of the link to its relay.
#[derive(Debug)]
pub struct Relay {
    socket: OwnedFd,
    incoming: Incoming,
    outgoing: Outgoing,
}

/// Forks the relay of the root, which starts the programs of other nodes. `hosts` are the names of all nodes.
///
/// # Errors
///
/// No port is free, or an error of the system. Errors of the relay come later, as the end of its link.
pub fn root(plan: DaemonPlan, hosts: Vec<String>, build: &str) -> Result<Side<Relay>, JoinError> {
    // The program reports this: the relay has no standard error. The port is free again before the relay takes it.
    drop(listen(plan.ports)?);
    Ok(fork(|socket| process::root(plan, hosts, build, socket))?)
}

/// Merges the answers of disjoint sets of nodes; `None` if they cannot be merged.
pub use overlay::node::Merge;

/// What the program of another node passes to its relay.
#[derive(Clone, Debug)]
pub struct Birth {
    pub host: String,
    /// Name that the resource manager gives to this node, if it has one of its own.
    pub alias: Option<String>,
    /// Name and version of the program.
    pub build: String,
    /// Merges answers of other nodes on their way to the root. The relay calls it, so it must not take long.
    pub merge: Merge,
    /// The file that says what to do; `None`: standard input does.
    pub file: Option<PathBuf>,
}

/// Reads what the root has to say, and forks the relay of this node. Also returns the name under which the root knows this
/// node.
///
/// # Errors
///
/// Nobody has said what to do, or an error of the system.
pub fn member(birth: &Birth) -> Result<Side<(Relay, String)>, JoinError> {
    let boot = match &birth.file {
        Some(file) => Boot::read_file(file)?,
        None => Boot::read()?,
    };
    let boot = boot.of_our_build(&birth.build)?;
    os::let_go_of_standard_stream(0)?;
    let own = boot.own(&birth.host, birth.alias.as_deref())?.clone();
    let name = own.name.clone();
    let merge = birth.merge;
    // Errors are printed by the program: the relay has no standard error.
    let port = process::Port::open(&boot)?;
    Ok(
        match fork(|socket| Ok(process::member(&boot, port, &own, merge, socket)?))? {
            Side::Program(relay) => Side::Program((relay, name)),
            Side::Relay(code) => Side::Relay(code),
        },
    )
}

/// Forks a process that executes `run` with its end of the link.
fn fork(run: impl FnOnce(OwnedFd) -> Result<(), BootError>) -> Result<Side<Relay>, os::Error> {
    let (ours, theirs) = os::socket_pair()?;
    match os::fork()? {
        Forked::Parent(_) => Ok(Side::Program(Relay {
            socket: ours,
            incoming: Incoming::default(),
            outgoing: Outgoing::default(),
        })),
        Forked::Child => {
            drop(ours);
            // Whoever reads the program's output must not wait for the relay.
            for stream in 0..3 {
                os::let_go_of_standard_stream(stream)?;
            }
            Ok(Side::Relay(u8::from(run(theirs).is_err())))
        }
    }
}

impl Relay {
    /// Sends a message of at most [`BODY_MAX`] bytes from the root to these nodes. Nodes that are not connected do not get
    /// it.
    ///
    /// # Errors
    ///
    /// See [`LinkError`].
    pub fn cast(&mut self, nodes: &[NodeId], body: Bytes) -> Result<(), LinkError> {
        self.push(kind::CAST, &list(nodes), body)
    }

    /// Asks these nodes from the root. [`Received::Part`] follows with the number, and merged answers. Nodes that are not
    /// connected do not answer.
    ///
    /// # Errors
    ///
    /// See [`LinkError`].
    pub fn ask(&mut self, number: u64, nodes: &[NodeId], body: Bytes) -> Result<(), LinkError> {
        let mut fixed = number.to_le_bytes().to_vec();
        fixed.extend(list(nodes));
        self.push(kind::ASK, &fixed, body)
    }

    /// Ends a question of the root. Nothing follows if it was over.
    ///
    /// # Errors
    ///
    /// See [`LinkError`].
    pub fn enough(&mut self, number: u64) -> Result<(), LinkError> {
        self.push(kind::ENOUGH, &number.to_le_bytes(), Bytes::new())
    }

    /// Answers a question of the root, with at most [`BODY_MAX`] bytes.
    ///
    /// # Errors
    ///
    /// See [`LinkError`].
    pub fn answer(&mut self, question: Question, body: Bytes) -> Result<(), LinkError> {
        self.push(kind::ANSWER, &question.0.to_le_bytes(), body)
    }

    /// Sends a message of at most [`BODY_MAX`] bytes to the root.
    ///
    /// # Errors
    ///
    /// See [`LinkError`].
    pub fn send(&mut self, body: Bytes) -> Result<(), LinkError> {
        self.push(kind::SEND, &[], body)
    }

    fn push(&mut self, kind: u8, fixed: &[u8], body: Bytes) -> Result<(), LinkError> {
        self.outgoing.push(kind, fixed, body)?;
        // The relay always reads, so that the write does not block for long.
        while !self.outgoing.is_empty() {
            let piece = self.outgoing.pieces().next().unwrap_or_default();
            let written = os::write(self.socket.as_fd(), piece)?;
            match written {
                WriteOutcome::Bytes(count) => self.outgoing.written(count),
                WriteOutcome::WouldBlock => {}
                WriteOutcome::Closed => return Err(LinkError::Closed),
            }
        }
        Ok(())
    }

    /// Returns what the relay sends next. `None` if nothing came until `until`.
    ///
    /// # Errors
    ///
    /// See [`LinkError`].
    pub fn next(&mut self, until: Option<Time>) -> Result<Option<Received>, LinkError> {
        let mut buffer = Vec::new();
        loop {
            if let Some((kind, body)) = self.incoming.frame()? {
                return Ok(Some(received(kind, body)?));
            }
            if !os::wait_readable(self.socket.as_fd(), until)? {
                return Ok(None);
            }
            buffer.resize(READ_MAX, 0);
            match os::read(self.socket.as_fd(), &mut buffer)? {
                ReadOutcome::Bytes(count) => self.incoming.take(&buffer[..count]),
                ReadOutcome::WouldBlock => {}
                ReadOutcome::Closed => return Err(LinkError::Closed),
            }
        }
    }
}

impl Drop for Relay {
    /// Ends the session, and waits until the relay is gone.
    fn drop(&mut self) {
        let until = Some(Clock::now() + ENDING_MAX);
        if self.push(kind::END, &[], Bytes::new()).is_ok() {
            while let Ok(Some(_)) = self.next(until) {}
        }
    }
}

/// Returns the number of nodes, and the nodes.
fn list(nodes: &[NodeId]) -> Vec<u8> {
    let count = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
    let mut bytes = count.to_le_bytes().to_vec();
    bytes.extend(nodes.iter().flat_map(|node| node.0.to_le_bytes()));
    bytes
}

/// Takes a number of nodes, and the nodes.
fn take_list(body: &mut Bytes) -> Option<BTreeSet<NodeId>> {
    if body.len() < size_of::<u32>() {
        return None;
    }
    let count = body.get_u32_le() as usize;
    if body.len() / size_of::<u32>() < count {
        return None;
    }
    Some((0..count).map(|_| NodeId(body.get_u32_le())).collect())
}

/// Takes the number of a question.
fn take_number(body: &mut Bytes) -> Option<u64> {
    (body.len() >= size_of::<u64>()).then(|| body.get_u64_le())
}

fn received(kind: u8, mut body: Bytes) -> Result<Received, WireError> {
    match kind {
        kind::ASKED => {
            let number = take_number(&mut body).ok_or(WireError::Undecodable)?;
            Ok(Received::Asked(Question(number), body))
        }
        kind::PART => {
            let number = take_number(&mut body).ok_or(WireError::Undecodable)?;
            let nodes = take_list(&mut body).ok_or(WireError::Undecodable)?;
            Ok(Received::Part(number, nodes, body))
        }
        kind::BODY if body.len() >= size_of::<u32>() => {
            let node = NodeId(body.get_u32_le());
            Ok(Received::Body(node, body))
        }
        kind::NEWS => Ok(Received::News(overlay::wire::decode(&body)?)),
        _ => Err(WireError::Undecodable),
    }
}

/// Returns one line about each class of nodes that could not be started: the nodes, and why.
#[must_use]
pub fn reasons(failed: &NotJoined) -> Vec<(base::HostList, String)> {
    let reason = |class: &dvm::bootstrap::NotJoinedClass| {
        let mut text = class.why();
        if let Some(tried) = class.tried.first() {
            let _ = write!(text, ": {tried}");
        }
        // What a process has said itself is the reason already.
        let is_known = matches!(class.reason, Reason::Refused(_));
        if let Some(line) = class.printed.last().filter(|_| !is_known) {
            let _ = write!(text, ": {line}");
        }
        text
    };
    let classes = failed.classes.iter();
    classes
        .map(|class| (class.hosts.clone(), reason(class)))
        .collect()
}
