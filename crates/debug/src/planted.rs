//! Bugs of session, merge and agents that a test switches on to prove that the simulator finds them.
//!
//! The feature `planted` is not part of any release. Without it, `is` is the constant `false`, and none of these bugs is
//! compiled in.

/// Plausible bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bug {
    // The session.
    /// The ranks of a lost agent are not missing.
    LostLeftOut,
    /// A cancelled command goes on.
    CancelIgnored,
    /// A silent agent is given up only in the command that it was silent in.
    SilenceOfOneCommand,
    /// Signs of life do not extend the deadlines.
    SignsIgnored,
    /// A silent agent is asked again.
    SilentAsked,
    /// A command whose agents send signs of life has no end.
    LongestIgnored,
    /// The session takes an answer that comes outside of a gather after its agent was given up.
    LateTaken,
    /// The ranks of a merged answer that comes late stay missing.
    LateStaysMissing,
    /// The session takes merged answers without a look at them.
    FaultyTaken,
    /// Agents whose merged answers violate the protocol are awaited.
    FaultyAwaited,
    // Merging.
    /// The refusals of all answers but the first are lost.
    RefusalsForgotten,
    /// An answer that comes after a refusal is lost.
    RefusedHidesAnswer,
    /// The threads of a class replace those of the other answer.
    ClassOverwritten,
    /// A tree keeps the frame ids of its own table.
    FramesNotTranslated,
    /// The missing ranks of an answer replace those of the other with the same reason.
    MissingOverwritten,
    /// A sample keeps the frame ids of its own table.
    SampleNotTranslated,
    // The agent.
    /// The agent sends no signs of life.
    SignNotSent,
    /// A command that comes while the agent works is forgotten.
    OrderForgotten,
    /// Threads of a process that has got the pid of a rank during its sample are shown.
    ReusedPidShown,
}

impl Bug {
    /// All planted bugs.
    pub const ALL: [Self; 19] = [
        Self::LostLeftOut,
        Self::CancelIgnored,
        Self::SilenceOfOneCommand,
        Self::SignsIgnored,
        Self::SilentAsked,
        Self::LongestIgnored,
        Self::LateTaken,
        Self::LateStaysMissing,
        Self::FaultyTaken,
        Self::FaultyAwaited,
        Self::RefusalsForgotten,
        Self::RefusedHidesAnswer,
        Self::ClassOverwritten,
        Self::FramesNotTranslated,
        Self::MissingOverwritten,
        Self::SampleNotTranslated,
        Self::SignNotSent,
        Self::OrderForgotten,
        Self::ReusedPidShown,
    ];
}

base::planted_switch!(Bug);

#[cfg(feature = "planted")]
pub use switched::with;
