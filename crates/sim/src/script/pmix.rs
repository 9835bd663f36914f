//! The PMIx operations of simulated programs.

use std::{ffi::CStr, time::Duration};

use base::Rank;
use pmix::value::{Nspace, Proc, Status};

use super::{About, Invitation, Patience, Question, Step};

/// A PMIx operation of a program. The values that it puts and publishes follow from its PMIx name and the key, so the
/// expected result of every get is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PmixOp {
    /// Connects to the server that the environment names, and waits for the job info; possible again after a finalize.
    Init,
    Put(String),
    Commit,
    /// Enters a fence. If the fence fails, the program at random continues or exits with [`super::FENCE_REFUSED`]. The same
    /// applies to every other request.
    Fence(Vec<Party>, Data),
    Connect(Vec<Party>),
    Disconnect(Vec<Party>),
    /// Constructs a group with the other members of the circle.
    Construct(Circle),
    /// Destructs the group, if the process has constructed it.
    Destruct(Circle),
    /// Takes a step in a group that is made by invitation.
    Group(Box<Invitation>, Step),
    /// Sends several gets simultaneously. Each waits until its key exists.
    Get(Vec<(Party, String)>),
    Publish(String),
    Lookup(Lookup),
    Unpublish(String),
    Register(Vec<Status>),
    Notify(Notify),
    /// Spawns the child with this number. The list has the number of procs of each app.
    Spawn(usize, Vec<u32>, Site, Patience),
    /// From now on, spawns as a tool does, which hears of the ends of the jobs that it has spawned.
    Watch,
    /// Releases these ranks of the child with this number, or all, as a debugger does.
    Release(usize, Option<Vec<Rank>>),
    /// Aborts these ranks with this status, or the whole job if no rank is given.
    Abort(u8, Vec<Rank>),
    /// Asks several questions simultaneously.
    Ask(Vec<(About, Question)>, Patience),
    Finalize,
    /// Opens a second connection, which the server must refuse.
    Knock(Stranger),
    /// Sends bytes that are not a message.
    Garbage,
    /// Closes the connection.
    HangUp,
}

/// A group of ranks of one job, as its members know it before it exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Circle {
    /// Unique in the run.
    pub(crate) name: String,
    pub(crate) members: Vec<Rank>,
    pub(crate) way: Way,
    pub(crate) number: Number,
}

/// Time after which a construct fails whose members do not all know each other: nobody notices that a leader is gone whom
/// nobody has named. In whole seconds.
pub(crate) const CONSTRUCT_MAX: Duration = Duration::from_secs(3);

/// How the members of a group find each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Each names all.
    Together,
    /// The first ones, this many, name each other and add the others, who name nobody.
    Added(usize),
    /// The first ones, this many, lead: each names itself and some of the others, who name nobody.
    Led(usize),
}

/// Which members of a group want it to have a number, its context id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Number {
    Unwanted,
    /// The first member wants it.
    ByFirst,
    ByAll,
}

/// The nodes for a spawned job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Site {
    Anywhere,
    /// A node that does not exist.
    Nowhere,
    /// Any node, with the files of the run.
    WithFiles,
    /// Any node; the ranks are held at their first instruction.
    Held,
    HeldWithFiles,
}

/// A client that the server must refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stranger {
    /// A client that does not use the protocol.
    Babbler,
    /// A client of another user.
    Foreigner,
}

/// Whether a fence collects the committed data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Data {
    With,
    Without,
}

/// A lookup of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lookup {
    pub(crate) service: String,
    /// The rank that publishes the service, in the job of the caller.
    pub(crate) of: Rank,
    /// Time that the lookup waits for the service, in whole seconds; `None` if it does not wait.
    pub(crate) wait: Option<Duration>,
}

/// An event that a program sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Notify {
    /// A number that is unique in the run.
    pub(crate) number: u64,
    pub(crate) code: Status,
    pub(crate) reach: Reach,
    /// The group that the event is about, if it is.
    pub(crate) group: Option<String>,
    /// The members of the group, if the event names them.
    pub(crate) members: Option<Vec<Proc>>,
}

/// The receivers of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    Node,
    Job,
    Session,
    Some(Vec<Rank>),
}

/// One or more processes, as a program refers to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Party {
    /// A rank of its own job.
    Rank(Rank),
    /// All ranks of its own job.
    Job,
    /// All ranks of the child with this number, which it has spawned.
    Child(usize),
    /// A rank of the child with this number, which it has spawned.
    ChildRank(usize, Rank),
    /// The process that has spawned its own job.
    Parent,
}

/// The attribute that carries [`Notify::number`].
pub(crate) const EVENT_NUMBER: &CStr = c"sim.event";

/// Returns the value that a process puts and publishes under a key.
pub(crate) fn value_of(proc: &Proc, key: &str) -> String {
    format!("{key} of {proc}")
}

/// Returns the PMIx name of a process.
pub(crate) fn named(nspace: &Nspace, rank: Rank) -> Proc {
    Proc {
        nspace: nspace.clone(),
        rank: rank.into(),
    }
}
