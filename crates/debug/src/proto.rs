//! What a debug session and the agents of its nodes say to each other.
//!
//! | the session says | the agent answers |
//! |---|---|
//! | `Follow` | nothing |
//! | `Do` | `Done` or `Refused`, once; before it perhaps `Working`, while it has not finished |
//! | `Cancel` | nothing: what was to be cancelled is not answered any more |
//! | `Stop` | `Stopped`, and nothing after it |
//!
//! Everything that an agent answers is about its own ranks and merges with what others answer ([`crate::reply`]). On the wire
//! it is postcard, as docs/formats/debug-session.md has it.

use std::collections::BTreeMap;

use base::{Rank, RankSet};
use serde::{Deserialize, Serialize};

use crate::{reply::Partial, report::Detail};

/// Number of a command in its session, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CommandId(pub u64);

/// The process of a rank, on the node of the agent that is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Proc {
    /// Its number.
    pub pid: i32,
    /// When it was started, in ticks since boot: another process may have its number now.
    pub started: u64,
}

/// What agents are to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    /// Look at every thread once, and give each as it was.
    Sample(Extent),
    /// Look at every thread once, and merge the stacks.
    Stacks(Detail),
    /// Tell what is known beside stacks: of the last sample, and of what ranks were started with.
    Describe,
}

/// Whether a sample has the processes beside the ranks too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Extent {
    /// Only those below ranks, with their stacks: it takes two samples to tell who works.
    Children,
    /// All of them.
    Everybody,
}

/// From the session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToAgent {
    /// These are the ranks of the agent's node from now on. What is known of other processes is forgotten.
    Follow(BTreeMap<Rank, Proc>),
    /// Do something with these ranks.
    Do {
        /// To be named in the answer.
        id: CommandId,
        /// Which of the ranks that the agent follows.
        ranks: RankSet,
        /// What.
        action: Action,
    },
    /// Nobody waits for this any more.
    Cancel(CommandId),
    /// Let every process go, and end.
    Stop,
}

/// To the session.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum FromAgent {
    /// Still at it: a sign of life.
    Working(CommandId),
    /// The answer.
    Done {
        /// To which command.
        id: CommandId,
        /// What was found.
        part: Partial,
    },
    /// It is not done.
    Refused {
        /// Which command.
        id: CommandId,
        /// Why.
        why: Refusal,
    },
    /// Every process was let go.
    Stopped,
}

/// Why an agent does not do what it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// It has [`crate::agent::MAX_ORDERS`] commands to carry out.
    Busy,
    /// It is about to end.
    Stopping,
}
