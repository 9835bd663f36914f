//! Bugs of the tree that a test switches on to prove that the simulator finds them.
//!
//! The feature `planted` is not part of any release. Without it, `is` is the constant `false`, and none of these bugs is
//! compiled in.

/// Plausible bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bug {
    // Connections.
    /// The acceptor uses no secret, and so does the dialer.
    SecretIgnored,
    /// Processes of another build are admitted.
    BuildNotCompared,
    /// A connection that sends nothing stays open.
    HandshakeWithoutLimit,
    /// Every refused connection of a host is reported.
    StrangerReportedAgain,
    /// Refused connections are not reported.
    StrangerNotReported,
    // Links.
    /// The silence of a peer is not noticed.
    LeaseIgnored,
    /// An idle link says nothing.
    AliveNotSent,
    /// The root sends no sign of life to a process that waits for its place.
    WaitingNotReassured,
    /// A process that cannot send a sign of life tries again at once.
    AliveTriedAtOnce,
    /// A link whose connection was closed is given up at once.
    ClosedGivenUp,
    /// A process whose connection was closed, and that gets no answer when it dials, gives up soon.
    NoAnswerTakenForDeath,
    /// A link is never given up after silence.
    WindowWithoutEnd,
    /// The old connection of a link that was resumed stays open.
    OldConnectionKept,
    // Lanes.
    /// After a break, a lane goes on behind what it has sent, and not behind what was received.
    ResumeBehindSent,
    /// After a break, a lane sends again what was received.
    ResumeFromStart,
    /// The receiver's limit is ignored.
    LimitIgnored,
    /// The sender does not hear how much it may send.
    CreditNotSent,
    /// Bulk data goes before control messages.
    BulkFirst,
    // Places.
    /// Processes that wait for their parent are not told that it has joined.
    WaitingForgotten,
    /// Processes that wait for their parent are not told that it will not come.
    AbsentParentAwaited,
    /// A process is admitted although another one has its address.
    TakenAdmitted,
    /// The root does not hear of a process that joins below another one.
    JoinedNotTold,
    /// The root does not hear of a process that is lost below another one.
    LostNotTold,
    // Routes.
    /// A cast goes to everybody below a child that gets it.
    CastToAllBelow,
    /// The last child gets no cast.
    LastChildForgotten,
    /// A process takes messages that it cannot pass on.
    TakenWithoutRoom,
    /// The end of the session reaches the children of the root only.
    EndNotPassedOn,
    /// A process that says goodbye counts as lost.
    ByeTakenForLoss,
    // Delivery and healing.
    /// The root accepts messages whatever their numbers.
    NumbersIgnored,
    /// A process with another place does not send again what the root has not received.
    NotSentAgain,
    /// A process with another place does not get the casts that it has missed.
    NotCastAgain,
    /// The root forgets casts that a process which returns has seen, although those below it may not have.
    SeenTakenForDone,
    /// A process reports casts that those below it have not received.
    DoneTooEarly,
    /// The root never reports what it has received.
    HeardNotTold,
    /// Those below a lost process are not expected to return.
    OrphansForgotten,
    /// Those below a lost process are lost with it.
    OrphansLost,
    /// A process may return after the root has reported its loss.
    LostMayReturn,
    /// A process that has lost its parent ends, and does not return.
    ReturnNotTried,
    // Merging.
    /// What waits to be merged is kept for ever if nothing else comes.
    HeldForgotten,
    /// A message overtakes those of its sender that wait to be merged.
    HeldOvertaken,
    /// The root takes a merged message although it has one of the messages in it.
    MergedTakenInPart,
    /// Nobody sends again what was in a merged message that the root has dropped.
    MergedNotSentAgain,
    // Gathers.
    /// The root takes a part although it has an answer in it.
    AnswerCountedTwice,
    /// The root does not ask a process again that has returned.
    ReturnedNotAsked,
    /// A process waits for the answers of those below it as long as the whole gather lasts.
    SilentAwaited,
    /// The root waits for the answers of lost processes.
    LostAwaited,
}

impl Bug {
    /// All planted bugs.
    pub const ALL: [Self; 46] = [
        Self::SecretIgnored,
        Self::BuildNotCompared,
        Self::HandshakeWithoutLimit,
        Self::StrangerReportedAgain,
        Self::StrangerNotReported,
        Self::LeaseIgnored,
        Self::AliveNotSent,
        Self::WaitingNotReassured,
        Self::AliveTriedAtOnce,
        Self::ClosedGivenUp,
        Self::NoAnswerTakenForDeath,
        Self::WindowWithoutEnd,
        Self::OldConnectionKept,
        Self::ResumeBehindSent,
        Self::ResumeFromStart,
        Self::LimitIgnored,
        Self::CreditNotSent,
        Self::BulkFirst,
        Self::WaitingForgotten,
        Self::AbsentParentAwaited,
        Self::TakenAdmitted,
        Self::JoinedNotTold,
        Self::LostNotTold,
        Self::CastToAllBelow,
        Self::LastChildForgotten,
        Self::TakenWithoutRoom,
        Self::EndNotPassedOn,
        Self::ByeTakenForLoss,
        Self::NumbersIgnored,
        Self::NotSentAgain,
        Self::NotCastAgain,
        Self::SeenTakenForDone,
        Self::DoneTooEarly,
        Self::HeardNotTold,
        Self::OrphansForgotten,
        Self::OrphansLost,
        Self::LostMayReturn,
        Self::ReturnNotTried,
        Self::HeldForgotten,
        Self::HeldOvertaken,
        Self::MergedTakenInPart,
        Self::MergedNotSentAgain,
        Self::AnswerCountedTwice,
        Self::ReturnedNotAsked,
        Self::SilentAwaited,
        Self::LostAwaited,
    ];
}

base::planted_switch!(Bug);

#[cfg(feature = "planted")]
pub use switched::with;
