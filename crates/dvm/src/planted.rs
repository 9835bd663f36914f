//! Bugs that a test switches on to prove that the simulator finds them.
//!
//! The feature `planted` is not part of any release. Without it, `is` is the constant `false`, and none of these bugs
//! is compiled in.

#[cfg(feature = "planted")]
use pmix::planted as server;

/// Plausible bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bug {
    /// A proc is done when its stdout has ended, even if its stderr has not.
    DoneBeforeLastStream,
    /// The end of an exited proc's output is awaited without a time limit.
    LeakTimerNeverArmed,
    /// The wait for the end of an exited proc's output does not restart when reading resumes.
    LeakTimerNotRestartedByResume,
    /// Output of a descendant extends the wait indefinitely.
    LeakTimerAlwaysRestarted,
    /// The end of input is dropped if no input is queued.
    InputEndForgotten,
    /// Each credit for input is computed from the start.
    InputCreditTwice,
    /// The fastest reader sets the pace of the input.
    InputAtFastestPace,
    /// The full input window is granted before any reader has read.
    InputReadAhead,
    /// Procs are not paused when an output window shuts.
    PauseNotSent,
    /// Procs are not resumed when an output window opens.
    ResumeForgotten,
    /// Procs that start while a window is shut are not paused.
    LateStartNotPaused,
    /// Credit for output is divided equally between all nodes.
    CreditSpreadEvenly,
    /// Output that a lost front had not credited stays in the window.
    FrontLostForgetsCredit,
    /// The loss of a front ends the jobs of all fronts.
    FrontLostEndsOthers,
    /// The input of a front goes to the jobs of all fronts.
    InputToEveryFront,
    /// A last line without a line feed is dropped when the stream ends.
    PartialLineLostAtEnd,
    /// The start of a line is dropped if the line exceeds the maximum.
    LongLineDropped,
    /// A line is cut at the end of every read.
    LinesCutByReads,
    /// A partial line is never sent before its end arrives.
    PromptKeptBack,
    /// No SIGKILL follows after the grace.
    KillAfterGraceForgotten,
    /// SIGKILL follows SIGTERM without the grace.
    GraceIgnored,
    /// No SIGCONT follows SIGTERM, so stopped procs cannot handle it.
    ContAfterTermForgotten,
    /// A proc that starts while the job ends gets no signal.
    LateStartNotEnded,
    /// Processes that ranks have left behind are not ended.
    StraysNotSwept,
    /// The sweep ends at the first count, even if processes remain.
    SweepGivesUpAtFirstCount,
    /// The sweep waits for an unkillable process without a time limit.
    StuckNeverGivenUp,
    /// The end of a proc is reported twice.
    EndedTwice,
    /// Among procs that end in the same way and in the same batch, only the first is reported.
    ClassForgetsRanks,
    /// Procs that were not started when the job ends are not settled.
    CancelledNotSettled,
    /// The launch is reported as complete before every proc was forked or has failed.
    LaunchedTooEarly,
    /// Only one node gets the result of a fence.
    FenceDoneToOneNode,
    /// Ranks that wait in a fence get no error when the fence can no longer complete.
    BrokenFenceNotTold,
    /// Dead ranks count as held.
    HoldCountsDeadAsHeld,
    /// A rank that reaches its holding point after its release is not continued.
    ReleaseForgetsLateTrap,
    /// The first failure ends the job although the policy is to continue.
    ContinueIgnored,
    /// The loss of a node ends the job although the policy is to continue.
    NodeLossIgnored,
    /// A later event replaces the cause of the job's end.
    LastCauseWins,
    /// PMIx gets no message about the end of a proc.
    EndNotToldToPmix,
    /// Any answer goes to the proc that asked first.
    AnswerToAnother,
    /// Spawned jobs continue when the job that spawned them is ended.
    ChildrenNotEnded,
    /// The spawning proc gets its answer when the launch is requested, and not when the job runs.
    SpawnToldTooEarly,
    /// Nodes keep the files of a job that is not launched.
    FilesNotDropped,
    /// Nodes keep the files of a job that is over.
    FilesKeptAfterJob,
    /// The node that writes fastest determines how far files are read ahead.
    FilesAtFastestPace,
    /// A job is launched when the first node has its files.
    LaunchedBeforeLastCopy,
    // Bugs of the front, and of ranks under a debugger.
    /// The second request to end a job repeats the first instead of sending SIGKILL.
    SecondRequestAsksAgain,
    /// A stopped controller is not reported.
    StoppedControllerKept,
    /// A watchdog that does not exit is not killed.
    WatchdogNotKilled,
    /// A debugger that died is treated as one that detached.
    LostDebuggerTakenForLeft,
    /// A rank that a signal stops before its exec is not continued.
    SignalBeforeExecKept,
    /// A rank that another process stops before its exec counts as held.
    StopTakenForHold,
    /// A peer may send requests regardless of how much it has not read.
    PauseForgotten,
    /// The connection to a peer is closed before the peer has received everything.
    ClosedBeforeWritten,
    // Bugs of the PMIx server, see `pmix::planted`.
    /// A fence completes while one participant is still missing.
    FenceOneEarly,
    /// A get is answered with the data that rank 0 put.
    GetOfAnother,
    /// An event is delivered twice.
    EventTwice,
    /// Collectives keep waiting for a process whose connection broke and that did not reconnect.
    SilenceNotTold,
    /// A fence completes as soon as all participants on one node have called.
    FenceStaysHere,
    /// The destruction of a group completes while one member is still missing.
    DestructOneEarly,
    /// The members that others add to a group are forgotten.
    AddedForgotten,
    /// A group with several leaders is made before the last of them has called.
    LastLeaderNotAwaited,
    /// A group over several nodes gets a different context id on each node.
    ContextOfEachNode,
    /// Other nodes get no message that members of a collective are gone.
    GoneNotTold,
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
    /// A message of several nodes counts for the first of them.
    MergedTakenForFirst,
    /// Other nodes do not hear that a node is lost.
    LossNotTold,
    /// Only the first loss of a node counts.
    FirstLossOnly,
    /// The ranks of a lost node count as live.
    LostRanksLive,
    /// A daemon that has lost the controller goes on.
    ControllerLossIgnored,
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
    /// Process tables lack the ranks of other nodes that have ended.
    EndedNotInTable,
    /// Connections of tools that are refused are not reported.
    RefusedNotCounted,
    /// Held ranks of a job whose spawner has ended are not released.
    OrphansStayHeld,
    /// The controller does not hear that a process releases held ranks.
    ReleaseNotPassedOn,
    /// Jobs wait for a node more if the controller's host is none.
    DoorAwaited,
    /// The daemon beside the controller does not hear of jobs.
    DoorNotTold,
    /// The session goes on while a tool is connected.
    SessionAwaitsTools,
    /// A job gets the number of a tool.
    NumberOfToolReused,
    /// A job starts when its controlling tool has connected, and not when that releases it.
    StartedByConnecting,
    /// A job goes on to wait for a tool that is dead.
    DeadToolAwaited,
    /// A job goes on when the tool that has started the launcher is dead.
    RunsOnWithoutTool,
    /// Held ranks go on to wait for a tool that is gone, if their job is to outlive it.
    HeldForDeadTool,
    /// Ranks that directives hold go on to wait for the tool that has given these, and is gone.
    HeldByDirectives,
    /// A job goes on when the tool that has spawned it is dead.
    OutlivesItsTool,
    /// The daemon beside the controller does not hear of the ends of jobs.
    EndNotToldAtDoor,
    /// Nodes that want output of other nodes do not hear of its end.
    EndNotCopied,
    /// What is kept of output is not sent to who pulls late.
    KeptNotSent,
    /// The newest output is dropped where the oldest is to be.
    KeptWithHole,
    /// The end of a stream is not kept.
    KeptWithoutEnd,
}

impl Bug {
    /// All planted bugs.
    pub const ALL: [Self; 101] = [
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
        Self::NodeLossIgnored,
        Self::LastCauseWins,
        Self::EndNotToldToPmix,
        Self::AnswerToAnother,
        Self::ChildrenNotEnded,
        Self::SpawnToldTooEarly,
        Self::FilesNotDropped,
        Self::FilesKeptAfterJob,
        Self::FilesAtFastestPace,
        Self::LaunchedBeforeLastCopy,
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
        Self::DestructOneEarly,
        Self::AddedForgotten,
        Self::LastLeaderNotAwaited,
        Self::ContextOfEachNode,
        Self::GoneNotTold,
        Self::DeathNotTold,
        Self::WatchForEach,
        Self::EndsToAllNodes,
        Self::InvitedOnOneNode,
        Self::LeaderNotMember,
        Self::DeathOfGuestNotTold,
        Self::ConnectOneEarly,
        Self::ConnectWithDead,
        Self::MergedTakenForFirst,
        Self::LossNotTold,
        Self::FirstLossOnly,
        Self::LostRanksLive,
        Self::ControllerLossIgnored,
        Self::TableOfOneNode,
        Self::RowTwice,
        Self::UnknownJobNotAnswered,
        Self::AnswerToSuccessor,
        Self::RefusedWithAnother,
        Self::ToolNotRefused,
        Self::EndedNotInTable,
        Self::RefusedNotCounted,
        Self::OrphansStayHeld,
        Self::ReleaseNotPassedOn,
        Self::DoorAwaited,
        Self::DoorNotTold,
        Self::SessionAwaitsTools,
        Self::NumberOfToolReused,
        Self::StartedByConnecting,
        Self::DeadToolAwaited,
        Self::RunsOnWithoutTool,
        Self::HeldForDeadTool,
        Self::HeldByDirectives,
        Self::OutlivesItsTool,
        Self::EndNotToldAtDoor,
        Self::EndNotCopied,
        Self::KeptNotSent,
        Self::KeptWithHole,
        Self::KeptWithoutEnd,
    ];
}

base::planted_switch!(Bug);

/// Runs `act` on this thread with one bug switched on, here or in the PMIx server.
#[cfg(feature = "planted")]
pub fn with<T>(bug: Bug, act: impl FnOnce() -> T) -> T {
    switched::with(bug, || match of_server(bug) {
        Some(bug) => server::with(bug, act),
        None => act(),
    })
}

/// Returns the bug of the PMIx server that a bug stands for, if any.
#[cfg(feature = "planted")]
const fn of_server(bug: Bug) -> Option<server::Bug> {
    match bug {
        Bug::FenceOneEarly => Some(server::Bug::FenceOneEarly),
        Bug::GetOfAnother => Some(server::Bug::GetOfAnother),
        Bug::EventTwice => Some(server::Bug::EventTwice),
        Bug::SilenceNotTold => Some(server::Bug::SilenceNotTold),
        Bug::FenceStaysHere => Some(server::Bug::FenceStaysHere),
        Bug::DestructOneEarly => Some(server::Bug::DestructOneEarly),
        Bug::AddedForgotten => Some(server::Bug::AddedForgotten),
        Bug::LastLeaderNotAwaited => Some(server::Bug::LastLeaderNotAwaited),
        Bug::ContextOfEachNode => Some(server::Bug::ContextOfEachNode),
        Bug::GoneNotTold => Some(server::Bug::GoneNotTold),
        Bug::DeathNotTold => Some(server::Bug::DeathNotTold),
        Bug::WatchForEach => Some(server::Bug::WatchForEach),
        Bug::EndsToAllNodes => Some(server::Bug::EndsToAllNodes),
        Bug::InvitedOnOneNode => Some(server::Bug::InvitedOnOneNode),
        Bug::LeaderNotMember => Some(server::Bug::LeaderNotMember),
        Bug::DeathOfGuestNotTold => Some(server::Bug::DeathOfGuestNotTold),
        Bug::ConnectOneEarly => Some(server::Bug::ConnectOneEarly),
        Bug::ConnectWithDead => Some(server::Bug::ConnectWithDead),
        Bug::TableOfOneNode => Some(server::Bug::TableOfOneNode),
        Bug::RowTwice => Some(server::Bug::RowTwice),
        Bug::UnknownJobNotAnswered => Some(server::Bug::UnknownJobNotAnswered),
        Bug::AnswerToSuccessor => Some(server::Bug::AnswerToSuccessor),
        Bug::RefusedWithAnother => Some(server::Bug::RefusedWithAnother),
        Bug::ToolNotRefused => Some(server::Bug::ToolNotRefused),
        Bug::KeptNotSent => Some(server::Bug::KeptNotSent),
        Bug::KeptWithHole => Some(server::Bug::KeptWithHole),
        Bug::KeptWithoutEnd => Some(server::Bug::KeptWithoutEnd),
        _ => None,
    }
}
