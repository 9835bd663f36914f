//! The table of rules. docs/verdicts.md explains each rule, and the healthy programs that made it more cautious.
//!
//! Every rank has one [`Role`]. A rule holds if each rank waits, is odd, or is irrelevant, in a role that the rule lists for
//! that. At least one rank must wait, and the ranks must meet the condition `Odd`. The first rule of the table that holds and
//! has enough samples becomes the verdict.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::roles::Role;

/// Confidence of a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Confidence {
    /// A few healthy programs can look like this for as long as the samples took.
    Possible,
    /// We know of no healthy program that looks like this.
    Likely,
    /// The kernel reports the cause.
    Certain,
    /// The recorded calls of MPI exclude that the ranks go on ([`crate::recorded::proof`]).
    Proved,
}

/// The kind of verdict. Several rules can have the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RuleId {
    /// A signal, a debugger or the control group has stopped a rank, and others wait.
    Stopped,
    /// All ranks are frozen by their control group.
    Frozen,
    /// A rank has exited, and others wait.
    Dead,
    /// A rank waits for a disk, and others wait for the rank.
    DiskWait,
    /// A rank waits for its data loader, and others wait for the rank.
    DataLoader,
    /// Ranks wait in different collectives.
    MismatchedCollectives,
    /// Some ranks are in `MPI_Finalize`, while others still communicate.
    Finalize,
    /// Some ranks are in a collective, others in a point-to-point call.
    NotInCollective,
    /// A rank waits for a lock, for its threads, or for a process that waits for one of these. The others wait for the rank.
    BehindLock,
    /// All ranks wait to receive.
    NobodySends,
    /// All ranks wait to send.
    NobodyReceives,
    /// Some ranks wait to send and others to receive, and no message matches.
    MismatchedMessages,
    /// A rank stays in one function, and others wait.
    EndlessLoop,
    /// Two or more threads of a rank wait for locks.
    LockOrder,
    /// A thread waits for a lock that no other thread can release.
    LockForEver,
    /// An exiting rank waits for something that does not happen.
    AtExit,
    /// Recorded: ranks are in different collective operations, or in one with different roots.
    DifferentCollectives,
    /// Recorded: ranks are in a collective operation that others have not begun.
    NotEntered,
    /// Recorded: ranks are in collective operations of several communicators, in another order.
    CrossedCommunicators,
    /// Recorded: a message is received that nobody sends.
    NeverSent,
    /// Recorded: a message is sent that nobody receives.
    NeverReceived,
    /// Recorded: a rank waits for an epoch of a window that another one does not begin or end.
    OpenEpoch,
    /// Recorded: ranks wait for messages of each other.
    CycleOfWaits,
}

/// The number of samples and the time that a rule needs, and the confidence that it then has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Need {
    pub(super) samples: usize,
    pub(super) span: Duration,
    pub(super) confidence: Confidence,
}

/// One rule of the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule {
    pub(super) id: RuleId,
    /// Roles of the ranks that wait for others.
    pub(super) waiting: &'static [Role],
    /// Condition on the ranks that the others wait for.
    pub(super) odd: Odd,
    /// Roles of ranks that the rule ignores.
    pub(super) ignored: &'static [Role],
    /// Needed if all of these ranks sleep; `None` if the rule does not apply then.
    pub(super) asleep: Option<Need>,
    /// Needed if some of these ranks poll; `None` if the rule does not apply then.
    pub(super) polling: Option<Need>,
    /// The conclusion, which follows the observation in the sentence. May be empty.
    pub(super) means: &'static str,
}

impl Rule {
    /// Returns true if the rule holds whatever other jobs do: one rank blocks all others, whichever job they get messages
    /// from.
    pub(super) const fn holds_beside_others(&self) -> bool {
        matches!(self.id, RuleId::Stopped | RuleId::DiskWait)
    }

    /// Returns true if a message from a connected job could end the waits of this rule.
    pub(super) const fn is_of_messages(&self) -> bool {
        matches!(
            self.id,
            RuleId::Finalize
                | RuleId::NotInCollective
                | RuleId::MismatchedCollectives
                | RuleId::NobodySends
                | RuleId::NobodyReceives
                | RuleId::MismatchedMessages
        )
    }
}

/// Condition on the odd ranks: those that the others wait for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Odd {
    /// At least one rank is in these roles.
    In(&'static [Role]),
    /// At least one rank is in these roles, and fewer ranks than wait.
    Few(&'static [Role]),
    /// There is no odd rank. At least two ranks wait, and each role of the list occurs among them.
    AllWait(&'static [Role]),
    /// There is no odd rank, but the ranks wait in different calls.
    DifferentCalls,
    /// There is no odd rank, because the waiting ranks do not wait for a rank.
    NotAwaited,
}

const fn need(samples: usize, seconds: u64, confidence: Confidence) -> Option<Need> {
    Some(Need {
        samples,
        span: Duration::from_secs(seconds),
        confidence,
    })
}

/// Ranks in an MPI call that ends when another rank does something.
pub(super) const MPI: &[Role] = &[
    Role::Collective,
    Role::Recovery,
    Role::Start,
    Role::Finish,
    Role::Receive,
    Role::Send,
    Role::Exchange,
    Role::Completion,
    Role::Epoch,
    Role::Window,
    Role::File,
];
/// Ranks in an MPI call that cannot end after a rank has exited without `MPI_Finalize`.
const WITH_ALL: &[Role] = &[
    Role::Collective,
    Role::Start,
    Role::Receive,
    Role::Send,
    Role::Exchange,
    Role::Completion,
    Role::Epoch,
    Role::Window,
    Role::File,
];
/// Ranks in an MPI call that ends only when another rank takes part in it.
const MESSAGES: &[Role] = &[
    Role::Receive,
    Role::Send,
    Role::Exchange,
    Role::Completion,
    Role::Epoch,
];
const TOGETHER: &[Role] = &[Role::Collective, Role::Recovery];

/// The rules for jobs. Order matters: rules with more confidence and more special rules come first.
pub(super) const OF_JOBS: [Rule; 16] = [
    Rule {
        id: RuleId::Stopped,
        waiting: MPI,
        odd: Odd::In(&[Role::Stopped, Role::Frozen, Role::Traced]),
        ignored: &[
            Role::Unseen,
            Role::Dead,
            Role::Disk,
            Role::Lock,
            Role::Threads,
            Role::Shared,
            Role::OtherJob,
            Role::UnknownMpi,
        ],
        asleep: need(2, 1, Confidence::Certain),
        polling: need(2, 1, Confidence::Certain),
        means: "",
    },
    Rule {
        id: RuleId::Frozen,
        waiting: &[Role::Frozen],
        odd: Odd::NotAwaited,
        ignored: &[Role::Unseen, Role::Dead],
        asleep: need(2, 1, Confidence::Certain),
        polling: need(2, 1, Confidence::Certain),
        means: "nothing runs before it is thawed, as `scontrol resume` and `docker unpause` do",
    },
    Rule {
        id: RuleId::Dead,
        waiting: WITH_ALL,
        odd: Odd::In(&[Role::Dead]),
        // If all other ranks are in `MPI_Finalize`, the rank may have exited normally.
        ignored: &[
            Role::Unseen,
            Role::Disk,
            Role::OtherJob,
            Role::UnknownMpi,
            Role::Finish,
        ],
        // Libraries that let a program continue without a rank need seconds to notice that it has exited.
        asleep: need(3, 10, Confidence::Likely),
        // A program that continues without the rank may be in the same call in every sample.
        polling: need(10, 10, Confidence::Possible),
        means: "it can no longer answer",
    },
    Rule {
        id: RuleId::DiskWait,
        waiting: MPI,
        odd: Odd::In(&[Role::Disk]),
        ignored: &[Role::OtherJob, Role::UnknownMpi],
        asleep: need(3, 2, Confidence::Likely),
        polling: need(3, 2, Confidence::Likely),
        means: "a disk or a file server does not answer",
    },
    Rule {
        id: RuleId::DiskWait,
        waiting: MPI,
        odd: Odd::In(&[Role::Sync]),
        ignored: &[],
        asleep: need(3, 30, Confidence::Possible),
        polling: need(3, 30, Confidence::Possible),
        means: "a disk or a file server is slow, or does not answer",
    },
    Rule {
        id: RuleId::DataLoader,
        waiting: TOGETHER,
        odd: Odd::In(&[Role::Data]),
        ignored: &[],
        asleep: need(3, 10, Confidence::Possible),
        polling: need(3, 10, Confidence::Possible),
        means: "the workers of its data loader are slow, or hang",
    },
    Rule {
        id: RuleId::Finalize,
        waiting: &[Role::Finish],
        odd: Odd::In(&[
            Role::Collective,
            Role::Recovery,
            Role::Receive,
            Role::Send,
            Role::Exchange,
            Role::Completion,
            Role::Epoch,
        ]),
        ignored: &[],
        asleep: need(3, 2, Confidence::Likely),
        polling: need(5, 4, Confidence::Possible),
        means: "a rank in MPI_Finalize takes no part in further communication",
    },
    Rule {
        id: RuleId::NotInCollective,
        waiting: TOGETHER,
        odd: Odd::In(MESSAGES),
        ignored: &[],
        asleep: need(3, 2, Confidence::Likely),
        polling: need(5, 4, Confidence::Possible),
        means: "not all ranks have entered the collective",
    },
    Rule {
        id: RuleId::MismatchedCollectives,
        waiting: TOGETHER,
        odd: Odd::DifferentCalls,
        ignored: &[],
        asleep: need(3, 2, Confidence::Likely),
        polling: need(5, 4, Confidence::Possible),
        means: "the collectives do not match",
    },
    Rule {
        id: RuleId::BehindLock,
        waiting: MPI,
        odd: Odd::In(&[Role::Lock, Role::Threads]),
        ignored: &[],
        asleep: need(3, 2, Confidence::Likely),
        polling: need(3, 2, Confidence::Likely),
        means: "none of its threads runs",
    },
    Rule {
        id: RuleId::BehindLock,
        waiting: MPI,
        odd: Odd::In(&[Role::Shared, Role::Lock, Role::Threads, Role::Helper]),
        ignored: &[],
        asleep: need(3, 10, Confidence::Possible),
        polling: need(3, 10, Confidence::Possible),
        means: "none of its threads runs, and no process that it or its launcher started",
    },
    Rule {
        id: RuleId::NobodySends,
        waiting: &[Role::Receive],
        odd: Odd::AllWait(&[Role::Receive]),
        ignored: &[],
        asleep: need(3, 2, Confidence::Likely),
        polling: need(10, 4, Confidence::Possible),
        means: "all wait to receive and none sends",
    },
    Rule {
        id: RuleId::NobodyReceives,
        waiting: &[Role::Send],
        odd: Odd::AllWait(&[Role::Send]),
        ignored: &[],
        asleep: need(3, 2, Confidence::Likely),
        polling: need(10, 4, Confidence::Possible),
        means: "all wait to send and none receives",
    },
    Rule {
        id: RuleId::MismatchedMessages,
        waiting: MESSAGES,
        odd: Odd::AllWait(&[Role::Receive, Role::Send]),
        ignored: &[],
        asleep: need(3, 2, Confidence::Likely),
        polling: need(10, 4, Confidence::Possible),
        means: "the messages that are sent are not those that are received: tag, rank or communicator differ",
    },
    Rule {
        id: RuleId::MismatchedMessages,
        waiting: MESSAGES,
        odd: Odd::AllWait(&[]),
        ignored: &[],
        asleep: need(3, 2, Confidence::Possible),
        polling: need(10, 10, Confidence::Possible),
        means: "messages do not match, or some are missing",
    },
    Rule {
        id: RuleId::EndlessLoop,
        waiting: MPI,
        odd: Odd::Few(&[Role::Looping]),
        ignored: &[],
        asleep: need(5, 30, Confidence::Possible),
        polling: need(5, 30, Confidence::Possible),
        means: "it computes for long, or without end",
    },
];

/// Need of the rules for the threads of one rank ([`super::within`]).
pub(super) const OF_THREADS: Need = Need {
    samples: 3,
    span: Duration::from_secs(2),
    confidence: Confidence::Possible,
};
