//! The messages between a debug session and the agents of its nodes.
//!
//! | the session sends | the agent sends |
//! |---|---|
//! | `Follow` | nothing |
//! | `Do` | `Done` or `Refused`, once; before that `Working`, every second while the agent works |
//! | `Cancel` | `Working` once, as a sign of life: a cancelled command gets no answer |
//! | `Stop` | `Stopped`, as its last message |
//!
//! An answer is about the ranks of one agent, and merges with the answers of other agents ([`crate::reply`]). On other nodes a `Do`
//! is the same message for all of them, with the ranks of all, and their answers are merged on their way ([`Answers`]). The encoding on the
//! wire is postcard; docs/formats/debug-session.md lists the fields.

use std::collections::{BTreeMap, BTreeSet};

use base::{NodeId, Rank, RankSet};
use serde::{Deserialize, Serialize};

use crate::{
    reply::Partial,
    report::Detail,
    target::{Claims, OnNode, Wish},
};

/// The number of a command in its session, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CommandId(pub u64);

/// The process of a rank, on the node of the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Proc {
    /// Pid of the process.
    pub pid: i32,
    /// When the process started, in ticks since boot. With the pid this identifies the process, because pids are reused.
    pub started: u64,
}

impl Proc {
    /// The start time of a process that had exited before anybody could read it. No living process has it. What its recorder has left is
    /// still there.
    pub const EXITED: u64 = u64::MAX;
}

/// What an agent does for a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    /// Take a sample, and answer with every thread.
    Sample(Extent),
    /// Take a sample, and answer with merged stacks.
    Stacks(Detail),
    /// Answer with the facts beside the stacks: those of the last sample, and the command lines of the ranks.
    Describe,
}

/// Whether a sample includes the processes beside the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Extent {
    /// Only the descendants of ranks, with their stacks. One sample cannot show which other processes work.
    Children,
    /// All peers.
    Everybody,
    /// As [`Extent::Children`], and this many of the last recorded calls of MPI of each thread.
    Calls(u8),
}

/// Messages from `dbgr` to its process on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToNode {
    /// The first message: become the agent of this node.
    Begin {
        /// The node, as the session numbers it.
        node: NodeId,
        /// Which frames the answers contain.
        detail: Detail,
    },
    /// Search for processes.
    Find(Search),
    /// A message of the session to the agent.
    Agent(ToAgent),
}

/// What a node is to search for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Search {
    /// Ranks that a launcher's table places on the node.
    Ranks(Claims),
    /// What the user asked for.
    Wish(Wish),
}

/// Messages from a node to `dbgr`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum FromNode {
    /// The result of a search.
    Found {
        /// A text that only processes of this node have in common; `None` if it is unknown. The user may have named the node
        /// twice.
        identity: Option<String>,
        /// What was found.
        found: OnNode,
    },
    /// A message of the agent to the session.
    Agent(FromAgent),
}

/// Messages from the session to an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToAgent {
    /// Follow these ranks of the node from now on, and forget other processes.
    Follow(BTreeMap<Rank, Proc>),
    /// Carry out a command for these ranks.
    Do {
        /// Id of the command, which the answer repeats.
        id: CommandId,
        /// The ranks to act on; a subset of the ranks that the agent follows.
        ranks: RankSet,
        /// What to do for these ranks.
        action: Action,
    },
    /// Cancel a command. It gets no answer, and the agent sends a sign of life.
    Cancel(CommandId),
    /// Release every thread, and exit.
    Stop,
}

/// Messages from an agent to the session.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum FromAgent {
    /// A sign of life, sent every second while the agent works on this command, and once when it is cancelled.
    Working(CommandId),
    /// The answer to a command.
    Done {
        /// Id of the command.
        id: CommandId,
        /// The results for the ranks of this agent.
        part: Partial,
    },
    /// The agent does not carry out the command.
    Refused {
        /// Id of the command.
        id: CommandId,
        /// The reason.
        why: Refusal,
    },
    /// Every thread is released. This is the agent's last message.
    Stopped,
}

/// The answers of the agents of some nodes to one command, merged on their way to the session ([`crate::gathered`]).
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Answers {
    /// The merged answers; `None` if all have refused.
    pub part: Option<Partial>,
    /// The nodes whose agents have refused the command.
    pub refused: BTreeSet<NodeId>,
}

/// The reason why an agent refuses a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// `MAX_ORDERS` commands are in the agent's queue already.
    Busy,
    /// The agent is about to exit.
    Stopping,
    /// The answer is longer than a message may be.
    TooLong,
}
