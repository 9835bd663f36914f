//! The interface between a server and its host.

use std::{collections::BTreeSet, ffi::CString};

use base::{ExitStatus, RankSet};
use bytes::Bytes;

use super::{GatherId, Job, MAX_WAITING, find};
use crate::{
    Error,
    handshake::Hello,
    keys,
    message::{Answer, Request},
    value::{Info, IofChannels, Nspace, Proc, Range, Status, Value},
};

/// Identifies a connection. The host never reuses an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Conn(pub u64);

/// The user at the other end of a connection, as the kernel reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerOwner {
    Uid(u32),
    /// The kernel does not report the owner: the connection is refused.
    Unknown,
}

/// Configuration of a server.
#[derive(Clone, Debug)]
pub struct Config {
    /// The server's own name. It must not contain `.` or `;`, see [`crate::handshake`].
    pub identity: Proc,
    /// The port on the node's loopback interface at which it listens.
    pub port: u16,
    /// The user who owns the jobs: connections of other users are refused.
    pub uid: u32,
    pub gid: u32,
    /// The first context id that this server gives to a group, and the step to the next. The ids of the servers of a
    /// dvm must not overlap.
    pub context: (u64, u64),
    pub tools: Tools,
}

/// Whether tools may connect: processes that belong to no job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tools {
    Refused,
    /// The host decides about each ([`Output::ToolConnects`]).
    Admitted,
}

/// A tool that wants to connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Visitor {
    /// The name that it has; `None` if it wants one.
    pub name: Option<Proc>,
    /// The process that it says it is.
    pub pid: Option<u32>,
    /// Its command line, with which the host may show it.
    pub command: Option<CString>,
    pub door: Door,
}

/// Who has opened the connection to a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// The tool.
    Ours,
    /// The launcher, because the tool has started it ([`Input::Called`]).
    Theirs,
}

impl Visitor {
    /// Returns what a tool says of itself.
    pub(super) fn of(hello: &Hello) -> Self {
        let infos = hello.infos();
        let command = find(&infos, keys::COMMAND_LINE).and_then(Value::as_text);
        Self {
            name: hello.proc.clone(),
            pid: match find(&infos, keys::PROC_PID) {
                Some(Value::Pid(pid)) => Some(*pid),
                _ => None,
            },
            command: command.map(Into::into),
            door: Door::Ours,
        }
    }
}

/// An event that the host reports to the server.
#[derive(Debug)]
pub enum Input<'a> {
    /// A job of the dvm, whether or not it has ranks on this node. Sent before any of its processes starts.
    Register(Box<Job>),
    /// A job has ended, and no process needs information about it any more.
    Deregister(Nspace),
    /// A process has started with this pid, which tools can query in the process table.
    Started {
        proc: Proc,
        pid: u32,
    },
    /// A process has ended with this status.
    Ended {
        proc: Proc,
        status: ExitStatus,
    },
    /// The host is ending a job: the server sends no events about ends of its processes any more.
    Ending(Nspace),
    /// Output of a process, for the processes that subscribed to it ([`Output::Wanted`]). Empty `bytes` mean EOF.
    Output {
        proc: Proc,
        channels: IofChannels,
        bytes: Bytes,
    },
    Accepted {
        conn: Conn,
        owner: PeerOwner,
    },
    /// A connection to a tool that has started this launcher, after [`crate::launcher::Callback`]. The caller has checked its user.
    /// [`crate::launcher::Called::rest`] follows as [`Input::Bytes`].
    Called {
        conn: Conn,
        tool: Proc,
        version: Option<[u32; 3]>,
    },
    Bytes {
        conn: Conn,
        bytes: &'a [u8],
    },
    /// A process set of some processes of a job, besides those of its apps. Its name is new in this job.
    DefineSet {
        nspace: Nspace,
        name: CString,
        ranks: RankSet,
    },
    /// A connection was closed, by its peer or by the host.
    Closed {
        conn: Conn,
    },
    /// The only answer to [`Output::ToolConnects`]: the name of the tool, which no job and no other tool has, or why it is refused.
    ToolAdmitted {
        conn: Conn,
        name: Result<Proc, Status>,
    },
    /// The answer to an [`Ask`], an [`Output::Stdin`] or an [`Output::Syslog`].
    Answer {
        ticket: Ticket,
        answer: Answer,
    },
    /// A PMIx event raised by the host or on another node.
    Event(Box<Event>),
    /// The only answer to [`Output::Gather`]: the shares of all nodes, sorted by node; or an error. After
    /// [`Output::Waits`] alone it can only be an error.
    Gathered {
        ticket: GatherTicket,
        result: Result<&'a [(u32, Bytes)], Status>,
    },
    /// Some members on other nodes may never call. From now on, the server must report its incomplete collectives by
    /// [`Output::Waits`].
    Watch,
    /// Other nodes wait for members on this node, which may never call. The server sends [`Output::Declined`] if they
    /// will not.
    Awaited {
        id: GatherId,
        number: GatherNumber,
    },
    /// A question of the server of another node. Answered once, by [`Output::QuestionAnswered`].
    Question {
        node: u32,
        ticket: QuestionTicket,
        question: &'a [u8],
    },
    /// The other node does not need the answer to [`Input::Question`] any more. The answer may have been sent already.
    NoLongerAsked {
        node: u32,
        ticket: QuestionTicket,
    },
    /// The only answer to [`Output::Question`].
    QuestionAnswered {
        ticket: QuestionTicket,
        result: Result<&'a [u8], Status>,
    },
    /// Releases processes of a job that wait for a debugger. Those that have not yet reached their stop will run
    /// through it.
    Release {
        nspace: Nspace,
        ranks: RankSet,
    },
    /// The time that [`super::Server::deadline`] returned has come.
    Tick,
}

/// A PMIx event.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    pub status: Status,
    pub source: Proc,
    pub range: Range,
    pub infos: Vec<Info>,
}

/// Other nodes whose processes an event may concern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Elsewhere {
    Nowhere,
    Everywhere,
    /// Nodes by [`super::NodeFacts::id`].
    On(BTreeSet<u32>),
}

/// An action that the host must carry out.
#[derive(Debug, PartialEq)]
pub enum Output {
    Send {
        conn: Conn,
        bytes: Bytes,
    },
    /// Close the connection after everything that was sent before has been written.
    Close {
        conn: Conn,
    },
    /// A process has connected and completed the handshake, which is part of PMIx_Init.
    Connected {
        proc: Proc,
    },
    Finalized {
        proc: Proc,
    },
    /// A tool wants to connect. To be answered once by [`Input::ToolAdmitted`]; an answer after the end of the connection has no
    /// effect.
    ToolConnects {
        conn: Conn,
        visitor: Visitor,
    },
    /// The connection of a tool that was admitted has ended.
    ToolLeft {
        tool: Proc,
    },
    /// A process reports that it waits for its debugger, even if its job info does not make it stop. It continues when
    /// [`Input::Release`] names it.
    Ready {
        proc: Proc,
    },
    /// A process has lost its connection, and has not reconnected within [`super::LOST_DELAY`].
    Lost {
        proc: Proc,
    },
    /// A request for the host, to be answered once by [`Input::Answer`].
    Ask(Box<Ask>),
    /// A PMIx event raised on this node. It may concern the host itself. The host forwards it to the other nodes in
    /// `elsewhere`, which have not received it.
    Event {
        event: Box<Event>,
        elsewhere: Elsewhere,
    },
    /// All members of a collective on this node have called. `nodes` are all nodes with members, sorted. To be answered
    /// once by [`Input::Gathered`].
    Gather {
        ticket: GatherTicket,
        id: GatherId,
        nodes: Vec<u32>,
        share: Bytes,
    },
    /// Members on this node will not call: the oldest gather with this id that lacks this node fails.
    NoShare {
        id: GatherId,
        status: Status,
    },
    /// A collective over these nodes still waits for members on this one. Sent only after [`Input::Watch`]. The share
    /// follows later as [`Output::Gather`] with the same ticket, unless the gather ends first. It can end by
    /// [`Input::Gathered`] with an error, by [`Output::Forgotten`] or by [`Output::Withdrawn`].
    Waits {
        ticket: GatherTicket,
        id: GatherId,
        nodes: Vec<u32>,
    },
    /// No process on this node waits any more in the collective that [`Output::Waits`] reported.
    Forgotten {
        ticket: GatherTicket,
        id: GatherId,
    },
    /// This node withdraws its share, or its [`Output::Waits`]: the gather fails on all nodes. Needs no answer.
    Withdrawn {
        ticket: GatherTicket,
        id: GatherId,
        status: Status,
    },
    /// Members on this node have gone, and other nodes may wait for them. From now on, the host sends
    /// [`Input::Awaited`] for gathers that wait for this node ([`super::Gathers::members_gone`]).
    MembersGone,
    /// The answer to [`Input::Awaited`] if no member on this node will call. Other nodes continue with this share, or
    /// fail with this status.
    Declined {
        id: GatherId,
        number: GatherNumber,
        result: Result<Bytes, Status>,
    },
    /// A question to the server of another node: a packed [`super::Question`]. To be answered once by
    /// [`Input::QuestionAnswered`].
    Question {
        ticket: QuestionTicket,
        node: u32,
        question: Bytes,
    },
    /// No process on this node needs the answer to [`Output::Question`] any more. Needs no answer.
    NoLongerAsked {
        ticket: QuestionTicket,
        node: u32,
    },
    /// The answer to [`Input::Question`].
    QuestionAnswered {
        node: u32,
        ticket: QuestionTicket,
        result: Result<Bytes, Status>,
    },
    /// The channels of a job whose output the host must pass on from now on, as [`Input::Output`]. Replaces the
    /// previous set for that job.
    Wanted {
        nspace: Nspace,
        channels: IofChannels,
    },
    /// The output of a job that tools get in place of whoever runs the job. Replaces what was said of this job before. The end of a job
    /// ends its redirections.
    Redirected {
        nspace: Nspace,
        redirected: Redirected,
    },
    /// Stdin for processes. The host answers once by [`Input::Answer`], when it has taken the data and has room for
    /// more. A rank in `to` may be a wildcard.
    Stdin {
        ticket: Ticket,
        from: Proc,
        to: Vec<Proc>,
        bytes: Bytes,
        /// True if this is the end of the input.
        is_last: bool,
    },
    /// Text that a process wants to be shown (PMIx_Log).
    Log {
        proc: Proc,
        stream: LogStream,
        text: Bytes,
    },
    /// Texts that a process wants to have in a syslog (PMIx_Log), in this order. The host answers once by [`Input::Answer`]: with success
    /// if all of them are there, else with why the first one is not.
    Syslog {
        ticket: Ticket,
        from: Proc,
        log: Box<Syslog>,
    },
    /// A connection was refused or closed for this reason, which the host logs. `proc` is `None` before the handshake.
    Refused {
        proc: Option<Proc>,
        error: Refusal,
    },
}

/// The stream that logged text goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogStream {
    Stdout,
    Stderr,
}

/// Texts for a syslog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Syslog {
    pub texts: Vec<(SyslogPlace, Bytes)>,
    /// Facility and severity of all texts, as in RFC 3164.
    pub priority: u8,
    /// The time of the texts that the process gives, in seconds since 1970 in UTC.
    pub time: Option<u64>,
}

/// The syslog that a text goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyslogPlace {
    /// That of the process's node.
    Local,
    /// That of the host of the job as a whole.
    Global,
    /// The global one; if there is none, the local one.
    Either,
}

/// The reason for refusing or closing a connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error(transparent)]
    Protocol(#[from] Error),
    #[error("the kernel does not say whose connection it is")]
    UnknownOwner,
    #[error("it belongs to user {actual}, the job to user {expected}")]
    WrongOwner { expected: u32, actual: u32 },
    #[error("it claims to be {0}, which is not a process of a job on this node")]
    UnknownProc(Proc),
    #[error("it requires the data store `{0}`, but only `hash` is available")]
    UnknownStore(String),
    #[error("it requires the security mode `{0}`")]
    UnknownSecurity(String),
    #[error("more than {MAX_WAITING} of its requests wait")]
    TooManyRequests,
    #[error("tools cannot connect here")]
    Tool,
    #[error("it is a tool with the name {0}, which is taken")]
    NameTaken(Proc),
    #[error("tools with the old handshake cannot connect")]
    LegacyTool,
    #[error("it goes on before it was admitted")]
    TooEarly,
}

/// A request of a process that the host answers.
#[derive(Debug, PartialEq)]
pub struct Ask {
    pub ticket: Ticket,
    pub from: Proc,
    pub request: Request,
}

/// Identifies an [`Ask`] or an [`Output::Stdin`] of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Identifies a collective of a server in [`Output::Gather`] and [`Output::Waits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GatherTicket(pub u64);

/// Identifies a gather of a dvm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GatherNumber(pub u64);

/// Identifies an [`Output::Question`] of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QuestionTicket(pub u64);

/// Output of a job that tools get in place of whoever runs the job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Redirected {
    pub stdout: RankSet,
    pub stderr: RankSet,
}
