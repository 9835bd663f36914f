//! Bugs of the machine that a test switches on to prove that the simulator finds them; see [`crate::planted`].

/// Plausible bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bug {
    /// A detached job is launched before its start is stored.
    LaunchedBeforeStored,
    /// The number of a job is told before the job is stored.
    ToldBeforeStored,
    /// The changes of a batch that was not stored are forgotten.
    FailedBatchForgotten,
    /// What waits for a batch happens although the batch was not stored.
    EffectsDespiteFailure,
    /// A batch that was not stored is not tried again.
    RetryForgotten,
    /// A batch is written while another one is.
    TwoBatches,
    /// The number of the next job is not stored, and the history does not count.
    NextNotStored,
    /// A machine that starts again forgets the tasks of an array that wait, if others have run.
    WaitingForgotten,
    /// A task that is lost with its machine runs again, whatever the user wants.
    LostRunsAgain,
    /// A job runs although a job that should have succeeded was lost with its machine.
    LostSatisfies,
    /// A machine that starts again takes the needs of its jobs from the nodes that have joined: none.
    NeedsForgotten,
    /// Running tasks that were canceled run again after a death of the machine.
    CancelNotStored,
    /// A run is not ended that was canceled when its launch was ordered.
    RevokedRunsOn,
    /// Tasks whose start is being stored are launched although the machine is to end at once.
    EndLaunches,
    /// Who waits for a job that is over only in the store is never answered.
    WaitInStoreForgotten,
    /// That a job has started is forgotten when the machine starts again.
    StartForgotten,
    /// A task that is requeued stays among those that have failed.
    RequeuedCountedTwice,
    /// A task stays paused when its run is over.
    PauseOutlivesRun,
    /// A task that may run again is canceled when the machine is ended.
    EndedForGood,
    /// Jobs go on to wait for all nodes after one of them is lost.
    LostNodesCount,
    /// A request may wait for slots that the job has itself whose proc requests them.
    OwnSlotsCounted,
    /// Nobody is told that a request was not granted in time.
    TimeoutNotTold,
    /// An allocation that gets more time ends when it would have ended.
    ExtensionForgotten,
    /// An allocation gives back nodes on which jobs run.
    BusyGivenBack,
    /// An allocation whose time is over keeps its slots.
    OverdueKept,
    /// Requests go on to wait when the machine is to end.
    RequestOutlivesMachine,
    /// A machine that starts again forgets how often a task was requeued.
    RequeuesForgotten,
    /// A GPU is given to a task while another one has it.
    GpusGivenTwice,
    /// The machine ends with the first front that owns it.
    FirstOwnerEnds,
    /// The machine goes on when the last front that owns it is gone.
    OwnersForgotten,
}

impl Bug {
    /// All planted bugs.
    pub const ALL: [Self; 30] = [
        Self::LaunchedBeforeStored,
        Self::ToldBeforeStored,
        Self::FailedBatchForgotten,
        Self::EffectsDespiteFailure,
        Self::RetryForgotten,
        Self::TwoBatches,
        Self::NextNotStored,
        Self::WaitingForgotten,
        Self::LostRunsAgain,
        Self::LostSatisfies,
        Self::NeedsForgotten,
        Self::CancelNotStored,
        Self::RevokedRunsOn,
        Self::EndLaunches,
        Self::WaitInStoreForgotten,
        Self::StartForgotten,
        Self::RequeuedCountedTwice,
        Self::PauseOutlivesRun,
        Self::EndedForGood,
        Self::LostNodesCount,
        Self::RequeuesForgotten,
        Self::GpusGivenTwice,
        Self::OwnSlotsCounted,
        Self::TimeoutNotTold,
        Self::ExtensionForgotten,
        Self::BusyGivenBack,
        Self::OverdueKept,
        Self::RequestOutlivesMachine,
        Self::FirstOwnerEnds,
        Self::OwnersForgotten,
    ];
}

base::planted_switch!(Bug);

#[cfg(feature = "planted")]
pub use switched::with;
