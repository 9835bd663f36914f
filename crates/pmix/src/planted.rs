//! Bugs of the PMIx server that a test switches on to prove that the tests find them.
//!
//! `dvm` lists some of them among its own planted bugs, and the simulator finds those. `tests/nodes/planted.rs` finds the
//! bugs in the exchange between nodes. Some bugs are found by both.
//!
//! The feature `planted` is not part of any release. Without it, `is` is the constant `false`, and none of these bugs is
//! compiled in.

/// A plausible bug of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A fence completes while one participant is still missing.
    FenceOneEarly,
    /// A get is answered with the data that rank 0 put.
    GetOfAnother,
    /// An event is delivered twice.
    EventTwice,
    /// Collectives keep waiting for a process whose connection broke and that did not reconnect.
    SilenceNotTold,
    /// A fence completes as soon as all participants on this node have called.
    FenceStaysHere,
    /// The share of the last node is missing from the result of a gather.
    ShareForgotten,
    /// Other nodes get data that was put for processes on the same node only.
    LocalDataLeavesTheNode,
    /// A group over several nodes gets a different context id on each node.
    ContextOfEachNode,
    /// The destruction of a group completes while one member is still missing.
    DestructOneEarly,
    /// The members that others add to a group are forgotten.
    AddedForgotten,
    /// A group with several leaders is made before the last of them has called.
    LastLeaderNotAwaited,
    /// Other nodes get no message that members of a collective are gone.
    GoneNotTold,
    /// An event that came from another node is sent to the other nodes again.
    EventEchoes,
    /// A node with an outstanding get for a process gets no message about the death of that process.
    DeathNotTold,
    /// All nodes are told to watch for each node whose members have gone, and not once.
    WatchForEach,
    /// The regular end of each process is told to all nodes.
    EndsToAllNodes,
    /// Other nodes do not learn of a group by invitation.
    InvitedOnOneNode,
    /// The leader of a group by invitation is no member of it.
    LeaderNotMember,
    /// Who invites does not hear of the death of a guest.
    DeathOfGuestNotTold,
    /// A connect completes while one participant is still missing.
    ConnectOneEarly,
    /// A connect completes although a participant that has called is lost.
    ConnectWithDead,
    /// A process table has only the processes of the node that is asked.
    TableOfOneNode,
    /// A process table has its first row twice.
    RowTwice,
    /// A question about a job that does not exist is never answered.
    UnknownJobNotAnswered,
    /// The answer to a question goes to whoever waits if the connection of the process that asked has been closed.
    AnswerToSuccessor,
    /// With a tool that is refused, another connection is closed.
    RefusedWithAnother,
    /// A tool is neither admitted nor refused.
    ToolNotRefused,
    /// What is kept is not sent to who pulls late.
    KeptNotSent,
    /// The newest output is dropped where the oldest is to be.
    KeptWithHole,
    /// The end of a stream is not kept.
    KeptWithoutEnd,
}

base::planted_switch!(Bug);

#[cfg(feature = "planted")]
pub use switched::with;
