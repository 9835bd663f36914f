//! The rules, as a table. docs/verdicts.md says them in words, with the healthy programs that each was made careful by.
//!
//! Every rank has one [`Role`]. A rule holds when each rank of the job waits, is odd, or is beside the point, in the
//! roles that the rule allows for that; when somebody waits and somebody is odd; and when it was seen often and long
//! enough. The first rule of the table that holds is the one that speaks.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::roles::Role;

/// How sure a verdict is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Confidence {
    /// A healthy program can look like this for as long as we have looked, though few do.
    Possible,
    /// We know of no healthy program that does.
    Likely,
    /// The kernel says so.
    Certain,
}

/// What a verdict is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RuleId {
    /// A signal or a debugger has stopped a rank, and others wait.
    Stopped,
    /// All ranks are frozen by their control group.
    Frozen,
    /// A rank has ended, and others wait.
    Dead,
    /// A rank waits for a disk, and others for it.
    DiskWait,
    /// A rank waits for its data loader, and others for it.
    DataLoader,
    /// Ranks are in different collectives.
    MismatchedCollectives,
    /// Some have come to the end of MPI, and others wait for them.
    Finalize,
    /// Some are in a collective, others in a point-to-point call.
    NotInCollective,
    /// A rank waits for a lock, its threads, or a process that does, and others for it.
    BehindLock,
    /// All wait to receive.
    NobodySends,
    /// All wait to send.
    NobodyReceives,
    /// Sends and receives wait for each other.
    MismatchedMessages,
    /// A rank runs in one function, and others wait.
    EndlessLoop,
    /// Two threads of a rank, or more, wait for locks.
    LockOrder,
    /// A thread waits for a lock that no thread can release.
    LockForEver,
    /// A rank that ends waits for something that does not come.
    AtExit,
}

/// How many samples over what time a rule needs, and how sure it is then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Need {
    pub(super) samples: usize,
    pub(super) span: Duration,
    pub(super) confidence: Confidence,
}

/// One line of the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule {
    pub(super) id: RuleId,
    /// Of those that wait for others.
    pub(super) waiting: &'static [Role],
    /// Of those that they wait for.
    pub(super) odd: Odd,
    /// Of those that make no difference.
    pub(super) beside: &'static [Role],
    /// When all that wait sleep.
    pub(super) asleep: Option<Need>,
    /// When some of them poll.
    pub(super) polling: Option<Need>,
    /// What it amounts to, behind what was seen.
    pub(super) means: &'static str,
}

impl Rule {
    /// Whether what another job does makes no difference: one rank is in the way of all, whoever sends messages.
    pub(super) const fn holds_beside_others(&self) -> bool {
        matches!(self.id, RuleId::Stopped | RuleId::DiskWait)
    }

    /// Whether a message from a job that this one has joined would end what it speaks of.
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

/// Who is odd.
#[derive(Clone, Copy, Debug)]
pub(super) enum Odd {
    /// Ranks in these roles.
    In(&'static [Role]),
    /// Ranks in these roles, fewer than those that wait.
    Few(&'static [Role]),
    /// Nobody: all wait, and each role of the list is there.
    Nobody(&'static [Role]),
    /// Nobody, and those that wait do so in different calls.
    DifferentCalls,
    /// Nobody: those that wait do not wait for a rank.
    Absent,
}

const fn need(samples: usize, seconds: u64, confidence: Confidence) -> Option<Need> {
    Some(Need {
        samples,
        span: Duration::from_secs(seconds),
        confidence,
    })
}

/// In a call of MPI that ends when another rank does something.
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
/// In one that does not end where a rank has ended before it came to `MPI_Finalize`.
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
/// In one that only ends when another rank takes part in it.
const MESSAGES: &[Role] = &[
    Role::Receive,
    Role::Send,
    Role::Exchange,
    Role::Completion,
    Role::Epoch,
];
const TOGETHER: &[Role] = &[Role::Collective, Role::Recovery];

/// What holds of a job, the surest and most special first.
pub(super) const OF_JOBS: [Rule; 16] = [
    Rule {
        id: RuleId::Stopped,
        waiting: MPI,
        odd: Odd::In(&[Role::Stopped, Role::Frozen, Role::Traced]),
        beside: &[
            Role::Unseen,
            Role::Dead,
            Role::Disk,
            Role::Lock,
            Role::Threads,
            Role::Shared,
            Role::Outside,
            Role::Call,
        ],
        asleep: need(2, 1, Confidence::Certain),
        polling: need(2, 1, Confidence::Certain),
        means: "",
    },
    Rule {
        id: RuleId::Frozen,
        waiting: &[Role::Frozen],
        odd: Odd::Absent,
        beside: &[Role::Unseen, Role::Dead],
        asleep: need(2, 1, Confidence::Certain),
        polling: need(2, 1, Confidence::Certain),
        means: "nothing runs before it is thawed, as `scontrol resume` and `docker unpause` do",
    },
    Rule {
        id: RuleId::Dead,
        waiting: WITH_ALL,
        odd: Odd::In(&[Role::Dead]),
        // Where nobody is in another call than `MPI_Finalize`, a rank may have ended as it should.
        beside: &[
            Role::Unseen,
            Role::Disk,
            Role::Outside,
            Role::Call,
            Role::Finish,
        ],
        // Libraries that let a program go on without a rank take seconds until they notice that it has ended.
        asleep: need(3, 10, Confidence::Likely),
        // A program that goes on without it may be in the same call whenever it is looked at.
        polling: need(10, 10, Confidence::Possible),
        means: "it can answer nobody any more",
    },
    Rule {
        id: RuleId::DiskWait,
        waiting: MPI,
        odd: Odd::In(&[Role::Disk]),
        beside: &[Role::Outside, Role::Call],
        asleep: need(3, 2, Confidence::Likely),
        polling: need(3, 2, Confidence::Likely),
        means: "a disk or a file server does not answer",
    },
    Rule {
        id: RuleId::DiskWait,
        waiting: MPI,
        odd: Odd::In(&[Role::Sync]),
        beside: &[],
        asleep: need(3, 30, Confidence::Possible),
        polling: need(3, 30, Confidence::Possible),
        means: "a disk or a file server is slow, or does not answer",
    },
    Rule {
        id: RuleId::DataLoader,
        waiting: TOGETHER,
        odd: Odd::In(&[Role::Data]),
        beside: &[],
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
        beside: &[],
        asleep: need(3, 2, Confidence::Likely),
        polling: need(5, 4, Confidence::Possible),
        means: "who is in MPI_Finalize takes part in nothing more",
    },
    Rule {
        id: RuleId::NotInCollective,
        waiting: TOGETHER,
        odd: Odd::In(MESSAGES),
        beside: &[],
        asleep: need(3, 2, Confidence::Likely),
        polling: need(5, 4, Confidence::Possible),
        means: "not all ranks have come to the collective",
    },
    Rule {
        id: RuleId::MismatchedCollectives,
        waiting: TOGETHER,
        odd: Odd::DifferentCalls,
        beside: &[],
        asleep: need(3, 2, Confidence::Likely),
        polling: need(5, 4, Confidence::Possible),
        means: "the collectives do not match",
    },
    Rule {
        id: RuleId::BehindLock,
        waiting: MPI,
        odd: Odd::In(&[Role::Lock, Role::Threads]),
        beside: &[],
        asleep: need(3, 2, Confidence::Likely),
        polling: need(3, 2, Confidence::Likely),
        means: "none of its threads runs",
    },
    Rule {
        id: RuleId::BehindLock,
        waiting: MPI,
        odd: Odd::In(&[Role::Shared, Role::Lock, Role::Threads, Role::Helper]),
        beside: &[],
        asleep: need(3, 10, Confidence::Possible),
        polling: need(3, 10, Confidence::Possible),
        means: "none of its threads runs, and no process that it or its launcher has started",
    },
    Rule {
        id: RuleId::NobodySends,
        waiting: &[Role::Receive],
        odd: Odd::Nobody(&[Role::Receive]),
        beside: &[],
        asleep: need(3, 2, Confidence::Likely),
        polling: need(10, 4, Confidence::Possible),
        means: "all wait to receive and none sends",
    },
    Rule {
        id: RuleId::NobodyReceives,
        waiting: &[Role::Send],
        odd: Odd::Nobody(&[Role::Send]),
        beside: &[],
        asleep: need(3, 2, Confidence::Likely),
        polling: need(10, 4, Confidence::Possible),
        means: "all wait to send and none receives",
    },
    Rule {
        id: RuleId::MismatchedMessages,
        waiting: MESSAGES,
        odd: Odd::Nobody(&[Role::Receive, Role::Send]),
        beside: &[],
        asleep: need(3, 2, Confidence::Likely),
        polling: need(10, 4, Confidence::Possible),
        means: "what is sent is not what is received: tag, rank or communicator differ",
    },
    Rule {
        id: RuleId::MismatchedMessages,
        waiting: MESSAGES,
        odd: Odd::Nobody(&[]),
        beside: &[],
        asleep: need(3, 2, Confidence::Possible),
        polling: need(10, 10, Confidence::Possible),
        means: "messages do not match, or some are missing",
    },
    Rule {
        id: RuleId::EndlessLoop,
        waiting: MPI,
        odd: Odd::Few(&[Role::Looping]),
        beside: &[],
        asleep: need(5, 30, Confidence::Possible),
        polling: need(5, 30, Confidence::Possible),
        means: "it computes for long, or without end",
    },
];

/// What threads of one rank need to be found in for the rules of [`super::within`]: the waits must be long.
pub(super) const OF_THREADS: Need = Need {
    samples: 3,
    span: Duration::from_secs(2),
    confidence: Confidence::Possible,
};
