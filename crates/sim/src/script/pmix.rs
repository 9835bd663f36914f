//! What simulated programs do by PMIx.

use std::{ffi::CStr, time::Duration};

use base::Rank;
use pmix::value::{Nspace, Proc, Status};

/// One thing that a program does by PMIx. What it puts and publishes follows from who it is and from the key, so that
/// everybody knows what a get must give.
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
    /// All at once; each waits until its key is there.
    Get(Vec<(Party, String)>),
    Publish(String),
    Lookup(Lookup),
    Unpublish(String),
    Register(Vec<Status>),
    Notify(Notify),
    /// Starts the child with this number, with so many processes of each of its programs.
    Spawn(usize, Vec<u32>, Site),
    /// The end of the whole job, or of some ranks of it.
    Abort(u8, Vec<Rank>),
    Finalize,
    /// Makes a connection beside its own, at which nobody should be let in.
    Knock(Stranger),
    /// What is no message.
    Garbage,
    /// Closes the connection.
    HangUp,
}

/// Where a job is to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Site {
    Anywhere,
    /// On a node that there is not.
    Nowhere,
}

/// Who connects and has no right to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stranger {
    /// Somebody who does not know the protocol.
    Babbler,
    /// Another user.
    Foreigner,
}

/// Whether a fence also gives what was committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Data {
    With,
    Without,
}

/// Something that a program looks up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lookup {
    pub(crate) service: String,
    /// Who publishes it, in the job of the one who looks it up.
    pub(crate) of: Rank,
    /// How long it waits for it, in whole seconds.
    pub(crate) wait: Option<Duration>,
}

/// An event that a program raises.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Notify {
    /// No other event of the run has it.
    pub(crate) number: u64,
    pub(crate) code: Status,
    pub(crate) reach: Reach,
}

/// Whom an event is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    Node,
    Job,
    Session,
    Some(Vec<Rank>),
}

/// Whom a program means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Party {
    /// One of its own job.
    Rank(Rank),
    /// All of its own job.
    Job,
    /// All of a job that it has spawned.
    Child(usize),
    /// One of a job that it has spawned.
    ChildRank(usize, Rank),
    /// The one that has spawned its own job.
    Parent,
}

/// The fact that tells the events of programs apart.
pub(crate) const EVENT_NUMBER: &CStr = c"sim.event";

/// What a process puts and publishes under a key.
pub(crate) fn value_of(proc: &Proc, key: &str) -> String {
    format!("{key} of {proc}")
}

/// The name of a process in PMIx.
pub(crate) fn named(nspace: &Nspace, rank: Rank) -> Proc {
    Proc {
        nspace: nspace.clone(),
        rank: rank.into(),
    }
}
