//! Bugs that a test switches on, to show that the simulator finds them.
//!
//! Without the feature `planted`, which no release has, `is` is the constant `false` and nothing of this is compiled
//! into anything.

/// A mistake that somebody could make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bug {
    /// A proc is done when its stdout has ended, whatever its stderr does.
    DoneBeforeLastStream,
    LeakTimerNeverArmed,
    LeakTimerNotRestartedByResume,
    /// What a descendant writes prolongs the wait for ever.
    LeakTimerAlwaysRestarted,
    /// The end of input is forgotten when nothing waits to be written.
    InputEndForgotten,
    /// Credit for input counts from the start each time.
    InputCreditTwice,
    /// The fastest reader sets the pace.
    InputAtFastestPace,
    /// The full window is given before anybody has read.
    InputReadAhead,
    PauseNotSent,
    ResumeForgotten,
    /// Procs that start while a window is shut are not paused.
    LateStartNotPaused,
    /// Credit for output goes to all nodes in equal parts.
    CreditSpreadEvenly,
    FrontLostForgetsCredit,
    /// The loss of a front ends the jobs of all fronts.
    FrontLostEndsOthers,
    /// The input of a front goes to the jobs of all fronts.
    InputToEveryFront,
    PartialLineLostAtEnd,
    /// The start of a line is dropped when the line becomes too long.
    LongLineDropped,
    /// A line is cut wherever a read ends.
    LinesCutByReads,
    /// A partial line waits for its end for ever.
    PromptKeptBack,
    KillAfterGraceForgotten,
    GraceIgnored,
    ContAfterTermForgotten,
    /// A proc that starts while the job ends is not told.
    LateStartNotEnded,
    StraysNotSwept,
    SweepGivesUpAtFirstCount,
    StuckNeverGivenUp,
    EndedTwice,
    /// Of procs that have ended alike at once, the end of the first is told.
    ClassForgetsRanks,
    /// Procs that were not started when the job ends are forgotten.
    CancelledNotSettled,
    LaunchedTooEarly,
    FenceDoneToOneNode,
    BrokenFenceNotTold,
    HoldCountsDeadAsHeld,
    ReleaseForgetsLateTrap,
    ContinueIgnored,
    LastCauseWins,
    /// PMIx is not told of the end of a proc.
    EndNotToldToPmix,
    /// The proc that asked first gets the answer to whatever was asked.
    AnswerToAnother,
    /// What a job has spawned goes on when that is ended.
    ChildrenNotEnded,
    /// Who spawns is told that the job runs when it was only asked for.
    SpawnToldTooEarly,
    // Those of the front and of the ranks that debuggers have.
    SecondRequestAsksAgain,
    StoppedControllerKept,
    WatchdogNotKilled,
    LostDebuggerTakenForLeft,
    /// A rank that a signal stops before its exec is not continued.
    SignalBeforeExecKept,
    /// A rank that another process stops before its exec counts as held.
    StopTakenForHold,
    /// A peer may go on to ask, however much it has not read.
    PauseForgotten,
    /// A peer is closed before it has received everything.
    ClosedBeforeWritten,
    // Those of the PMIx server, see `pmix::planted`.
    FenceOneEarly,
    GetOfAnother,
    EventTwice,
    SilenceNotTold,
    FenceStaysHere,
    GoneNotTold,
    DeathNotTold,
}

impl Bug {
    /// All of them.
    pub const ALL: [Self; 55] = [
        Self::DoneBeforeLastStream,
        Self::LeakTimerNeverArmed,
        Self::LeakTimerNotRestartedByResume,
        Self::LeakTimerAlwaysRestarted,
        Self::InputEndForgotten,
        Self::InputCreditTwice,
        Self::InputAtFastestPace,
        Self::InputReadAhead,
        Self::PauseNotSent,
        Self::ResumeForgotten,
        Self::LateStartNotPaused,
        Self::CreditSpreadEvenly,
        Self::FrontLostForgetsCredit,
        Self::FrontLostEndsOthers,
        Self::InputToEveryFront,
        Self::PartialLineLostAtEnd,
        Self::LongLineDropped,
        Self::LinesCutByReads,
        Self::PromptKeptBack,
        Self::KillAfterGraceForgotten,
        Self::GraceIgnored,
        Self::ContAfterTermForgotten,
        Self::LateStartNotEnded,
        Self::StraysNotSwept,
        Self::SweepGivesUpAtFirstCount,
        Self::StuckNeverGivenUp,
        Self::EndedTwice,
        Self::ClassForgetsRanks,
        Self::CancelledNotSettled,
        Self::LaunchedTooEarly,
        Self::FenceDoneToOneNode,
        Self::BrokenFenceNotTold,
        Self::HoldCountsDeadAsHeld,
        Self::ReleaseForgetsLateTrap,
        Self::ContinueIgnored,
        Self::LastCauseWins,
        Self::EndNotToldToPmix,
        Self::AnswerToAnother,
        Self::ChildrenNotEnded,
        Self::SpawnToldTooEarly,
        Self::SecondRequestAsksAgain,
        Self::StoppedControllerKept,
        Self::WatchdogNotKilled,
        Self::LostDebuggerTakenForLeft,
        Self::SignalBeforeExecKept,
        Self::StopTakenForHold,
        Self::PauseForgotten,
        Self::ClosedBeforeWritten,
        Self::FenceOneEarly,
        Self::GetOfAnother,
        Self::EventTwice,
        Self::SilenceNotTold,
        Self::FenceStaysHere,
        Self::GoneNotTold,
        Self::DeathNotTold,
    ];
}

#[cfg(feature = "planted")]
mod switched {
    use std::cell::Cell;

    use pmix::planted as server;

    use super::Bug;

    thread_local! {
        static ON: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    /// Runs `act` on this thread with one bug switched on.
    pub fn with<T>(bug: Bug, act: impl FnOnce() -> T) -> T {
        let before = ON.replace(Some(bug));
        let result = match of_server(bug) {
            Some(bug) => server::with(bug, act),
            None => act(),
        };
        ON.set(before);
        result
    }

    /// The bug of the server that a bug is, if it is one.
    const fn of_server(bug: Bug) -> Option<server::Bug> {
        match bug {
            Bug::FenceOneEarly => Some(server::Bug::FenceOneEarly),
            Bug::GetOfAnother => Some(server::Bug::GetOfAnother),
            Bug::EventTwice => Some(server::Bug::EventTwice),
            Bug::SilenceNotTold => Some(server::Bug::SilenceNotTold),
            Bug::FenceStaysHere => Some(server::Bug::FenceStaysHere),
            Bug::GoneNotTold => Some(server::Bug::GoneNotTold),
            Bug::DeathNotTold => Some(server::Bug::DeathNotTold),
            _ => None,
        }
    }

    /// Whether a bug is switched on.
    pub(crate) fn is(bug: Bug) -> bool {
        ON.get() == Some(bug)
    }
}

#[cfg(feature = "planted")]
pub(crate) use switched::is;
#[cfg(feature = "planted")]
pub use switched::with;

/// Whether a bug is switched on: never.
#[cfg(not(feature = "planted"))]
#[inline(always)]
pub(crate) const fn is(_: Bug) -> bool {
    false
}
