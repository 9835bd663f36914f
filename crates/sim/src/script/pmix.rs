//! The PMIx operations of simulated programs.

use std::{ffi::CStr, time::Duration};

use base::Rank;
use pmix::value::{Nspace, Proc, Status};

/// A PMIx operation of a program. The values that it puts and publishes follow from its name and the key, so that
/// the expected result of every get is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PmixOp {
    /// As the environment says, and until it knows the facts of its job. After a finalize: once more.
    Init,
    Put(String),
    Commit,
    /// In some cases a program goes on when a fence has failed, in others it exits with
    /// [`super::FENCE_REFUSED`]; so for what follows.
    Fence(Vec<Party>, Data),
    Connect(Vec<Party>),
    Disconnect(Vec<Party>),
    /// Several gets at the same time. Each waits until its key exists.
    Get(Vec<(Party, String)>),
    Publish(String),
    Lookup(Lookup),
    Unpublish(String),
    Register(Vec<Status>),
    Notify(Notify),
    /// Starts the child with this number, with so many processes of each of its programs.
    Spawn(usize, Vec<u32>, Site),
    /// An abort of the whole job, or of some ranks.
    Abort(u8, Vec<Rank>),
    Finalize,
    /// Opens a second connection, which the server must refuse.
    Knock(Stranger),
    /// Sends bytes that are not a message.
    Garbage,
    /// Closes the connection.
    HangUp,
}

/// The nodes for a spawned job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Site {
    Anywhere,
    /// A node that does not exist.
    Nowhere,
}

/// A client that the server must refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stranger {
    /// A client that does not use the protocol.
    Babbler,
    /// Another user.
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
    /// The rank that publishes it, in the job of the caller.
    pub(crate) of: Rank,
    /// Time-out of the lookup, in whole seconds.
    pub(crate) wait: Option<Duration>,
}

/// An event that a program sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Notify {
    /// A number that no other event of the run has.
    pub(crate) number: u64,
    pub(crate) code: Status,
    pub(crate) reach: Reach,
}

/// The receivers of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    Node,
    Job,
    Session,
    Some(Vec<Rank>),
}

/// Processes as a program names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Party {
    /// A rank of its own job.
    Rank(Rank),
    /// All ranks of its own job.
    Job,
    /// All ranks of a job that it has spawned.
    Child(usize),
    /// A rank of a job that it has spawned.
    ChildRank(usize, Rank),
    /// The process that has spawned its own job.
    Parent,
}

/// The attribute that distinguishes the events of programs.
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
