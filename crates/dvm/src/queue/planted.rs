//! Bugs of the queue that a test switches on to prove that the simulator finds them; see [`crate::planted`].

/// Plausible bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bug {
    /// A job that is not the head may start wherever it fits.
    BackfillDelays,
    /// What a backfilled job keeps beyond the start of the head is not counted.
    SpareNotTaken,
    /// The reservation assumes that a task without a time limit ends at once.
    UnlimitedEndsNow,
    /// Nothing is reserved for anybody.
    NobodyIsHead,
    /// Jobs are ordered by their numbers alone.
    PriorityIgnored,
    /// Jobs start on closed nodes.
    ClosedNodesUsed,
    /// A job that wants whole nodes gets only what it needs of them.
    ExclusiveShares,
    /// Resources that no node has are not counted.
    SharedNotCounted,
    /// What a job needs once on each node is not counted.
    NodePartNotCounted,
    /// The limit of an array's running tasks is ignored.
    ArrayWithoutLimit,
    /// The limit of a user's slots is ignored.
    UserSlotsIgnored,
    /// Jobs of a user leave no room within the user's limits for the first one that waits.
    QuotaNotReserved,
    /// Held jobs start.
    HoldIgnored,
    /// A task that loses a node has failed, whatever the user wants.
    NeverRequeued,
    /// Whether an array has succeeded is decided by its last task.
    LastTaskCounts,
    /// A running task gets more time, even if the head of the queue then starts later.
    ExtensionDelays,
    /// A job starts although a job that should have succeeded has failed.
    FailureSatisfies,
}

impl Bug {
    /// All planted bugs.
    pub const ALL: [Self; 17] = [
        Self::BackfillDelays,
        Self::SpareNotTaken,
        Self::UnlimitedEndsNow,
        Self::NobodyIsHead,
        Self::PriorityIgnored,
        Self::ClosedNodesUsed,
        Self::ExclusiveShares,
        Self::SharedNotCounted,
        Self::NodePartNotCounted,
        Self::ArrayWithoutLimit,
        Self::UserSlotsIgnored,
        Self::QuotaNotReserved,
        Self::HoldIgnored,
        Self::NeverRequeued,
        Self::LastTaskCounts,
        Self::ExtensionDelays,
        Self::FailureSatisfies,
    ];
}

base::planted_switch!(Bug);

#[cfg(feature = "planted")]
pub use switched::with;
