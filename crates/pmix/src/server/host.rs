//! What a server and its host say to each other.

use std::collections::BTreeSet;

use base::{ExitStatus, RankSet};
use bytes::Bytes;

use super::{GatherId, Job, MAX_WAITING};
use crate::{
    Error,
    message::{Answer, Request},
    value::{Info, IofChannels, Nspace, Proc, Range, Status},
};

/// A connection, by a number that the host never gives twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Conn(pub u64);

/// Who owns the other end of a connection, as the kernel says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerOwner {
    Uid(u32),
    /// The kernel does not say: nobody is let in.
    Unknown,
}

/// What a server is told about itself.
#[derive(Clone, Debug)]
pub struct Config {
    /// Its own name. Neither `.` nor `;` may be in it, see [`crate::handshake`].
    pub identity: Proc,
    /// The user whose jobs these are.
    pub uid: u32,
    pub gid: u32,
    /// The first number for groups, and the step to the next one: different servers of a dvm give different ones.
    pub context: (u64, u64),
}

/// What happened.
#[derive(Debug)]
pub enum Input<'a> {
    /// A job that has processes here. Before any of them starts.
    Register(Box<Job>),
    /// A job is over: nobody asks for it any more.
    Deregister(Nspace),
    /// The pid of a process of a job, for the tables that tools ask for.
    Started {
        proc: Proc,
        pid: u32,
    },
    /// A process has ended, and how.
    Ended {
        proc: Proc,
        status: ExitStatus,
    },
    /// The host ends a job: how its processes end is no news any more, and nobody is told.
    Ending(Nspace),
    /// Output of a process, for those who want it ([`Output::Wanted`]). No bytes are the end of the stream.
    Output {
        proc: Proc,
        channels: IofChannels,
        bytes: Bytes,
    },
    Accepted {
        conn: Conn,
        owner: PeerOwner,
    },
    Bytes {
        conn: Conn,
        bytes: &'a [u8],
    },
    /// A connection has ended, or was closed by the host.
    Closed {
        conn: Conn,
    },
    /// Answers an [`Ask`].
    Answer {
        ticket: Ticket,
        answer: Answer,
    },
    /// An event of the host or of another node.
    Event(Box<Event>),
    /// Answers [`Output::Gather`], once: the shares of all nodes, in their order.
    Gathered {
        ticket: GatherTicket,
        result: Result<&'a [(u32, Bytes)], Status>,
    },
    /// Members of some jobs have gone on other nodes.
    Watch,
    /// Other nodes wait for members here, whom nobody may have told.
    Awaited {
        id: GatherId,
        number: GatherNumber,
    },
    /// Another node asks about a process here. Answered by [`Output::Told`], once.
    AskedFor {
        node: u32,
        ticket: GetTicket,
        question: &'a [u8],
    },
    /// Another node waits no longer for the answer to [`Input::AskedFor`], which may have been given already.
    NoLongerAsked {
        node: u32,
        ticket: GetTicket,
    },
    /// Answers [`Output::DirectGet`], once.
    DirectGot {
        ticket: GetTicket,
        result: Result<&'a [u8], Status>,
    },
    /// These processes of a job wait no longer, nor will those of them that have not come to where they were to stop.
    Release {
        nspace: Nspace,
        ranks: RankSet,
    },
    /// The time that [`super::Server::deadline`] gave has come.
    Tick,
}

/// An event on its way.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    pub status: Status,
    pub source: Proc,
    pub range: Range,
    pub infos: Vec<Info>,
}

/// The nodes beside this one whose processes may want to hear of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Elsewhere {
    Nowhere,
    Everywhere,
    /// By the numbers in [`super::NodeFacts::id`].
    On(BTreeSet<u32>),
}

/// What the host is to do.
#[derive(Debug, PartialEq)]
pub enum Output {
    Send {
        conn: Conn,
        bytes: Bytes,
    },
    /// After what was sent.
    Close {
        conn: Conn,
    },
    /// A process has completed PMIx_Init, or finalized.
    Connected {
        proc: Proc,
    },
    Finalized {
        proc: Proc,
    },
    /// A process says that it waits for its debugger, whether it was told to stop or not. It runs on when
    /// [`Input::Release`] names it.
    Ready {
        proc: Proc,
    },
    /// A process has broken contact.
    Lost {
        proc: Proc,
    },
    /// To be answered by [`Input::Answer`], once.
    Ask(Box<Ask>),
    /// An event, which may concern the host itself, and which these nodes have not heard of.
    Event {
        event: Box<Event>,
        elsewhere: Elsewhere,
    },
    /// All members of a collective on this node have called; it has members on all of these nodes, which are in order.
    /// To be answered by [`Input::Gathered`], once.
    Gather {
        ticket: GatherTicket,
        id: GatherId,
        nodes: Vec<u32>,
        share: Bytes,
    },
    /// Members here do not come to the oldest gather of this name that waits for this node.
    Absent {
        id: GatherId,
        status: Status,
    },
    /// A collective over these nodes waits for members on this one. Said since [`Input::Watch`]. It is answered by
    /// [`Input::Gathered`] when members elsewhere do not come; else the share follows, under the same ticket.
    Waits {
        ticket: GatherTicket,
        id: GatherId,
        nodes: Vec<u32>,
    },
    /// Nobody here waits any more for what [`Output::Waits`] has said.
    Forgotten {
        ticket: GatherTicket,
        id: GatherId,
    },
    /// This node takes its share back, or what it has said to wait for: the gather is over for all. No answer is needed.
    Withdrawn {
        ticket: GatherTicket,
        id: GatherId,
        status: Status,
    },
    /// Members here have gone, for whom other nodes may wait. The host has this server asked, now and from now on, about
    /// gathers that wait for it ([`super::Gathers::members_gone`]).
    MembersGone,
    /// Answers [`Input::Awaited`]: nobody here will call. The others go on with this share, or cannot.
    Declined {
        id: GatherId,
        number: GatherNumber,
        result: Result<Bytes, Status>,
    },
    /// Asks the server of another node about a process there. To be answered by [`Input::DirectGot`], once.
    DirectGet {
        ticket: GetTicket,
        node: u32,
        question: Bytes,
    },
    /// Nobody here waits any more for the answer to [`Output::DirectGet`]. No answer is needed.
    NoLongerAsked {
        ticket: GetTicket,
        node: u32,
    },
    /// Answers [`Input::AskedFor`].
    Told {
        node: u32,
        ticket: GetTicket,
        result: Result<Bytes, Status>,
    },
    /// From now on somebody wants output of these channels of a job, and of no others: by [`Input::Output`].
    Wanted {
        nspace: Nspace,
        channels: IofChannels,
    },
    /// Input for processes, to be answered by [`Input::Answer`], once, when it is taken and there is room for more. A rank
    /// may stand for all of a job.
    Stdin {
        ticket: Ticket,
        from: Proc,
        to: Vec<Proc>,
        bytes: Bytes,
        /// No more follows.
        is_last: bool,
    },
    /// Text that a process wants to be seen.
    Log {
        proc: Proc,
        stream: LogStream,
        text: Bytes,
    },
    /// A connection was refused or closed, and why: for the log.
    Refused {
        proc: Option<Proc>,
        error: Refusal,
    },
}

/// Where text goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogStream {
    Stdout,
    Stderr,
}

/// Why a connection was refused or closed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error(transparent)]
    Protocol(#[from] Error),
    #[error("the kernel does not say whose connection it is")]
    UnknownOwner,
    #[error("it belongs to user {actual}, the job to user {expected}")]
    WrongOwner { expected: u32, actual: u32 },
    #[error("it says that it is {0}, which is no process of a job here")]
    UnknownProc(Proc),
    #[error("it wants the data store `{0}`; there is `hash` only")]
    UnknownStore(String),
    #[error("it wants to prove who it is by `{0}`")]
    UnknownSecurity(String),
    #[error("more than {MAX_WAITING} of its requests wait")]
    TooManyRequests,
    #[error("tools cannot connect yet")]
    Tool,
}

/// A request that the host answers.
#[derive(Debug, PartialEq)]
pub struct Ask {
    pub ticket: Ticket,
    pub from: Proc,
    pub request: Request,
}

/// Names an [`Ask`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Names an [`Output::Gather`] of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GatherTicket(pub u64);

/// Names a gather of a dvm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GatherNumber(pub u64);

/// Names an [`Output::DirectGet`] of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GetTicket(pub u64);
