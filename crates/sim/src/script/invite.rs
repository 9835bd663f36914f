//! Groups by invitation. libpmix makes them of events between clients, and the server learns of the group from the last one:
//! the leader invites (GROUP_INVITED), each guest answers (GROUP_INVITE_ACCEPTED or GROUP_INVITE_DECLINED), and the leader
//! tells those who have accepted that the group exists (GROUP_CONSTRUCT_COMPLETE).

use std::time::Duration;

use base::Rank;
use pmix::value::Status;

/// A group of ranks of one job that is made by invitation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Invitation {
    /// Unique in the run.
    pub(crate) name: String,
    pub(crate) leader: Rank,
    pub(crate) guests: Vec<Guest>,
    /// The numbers of the events that invite and that say that the group exists, see [`super::Notify::number`].
    pub(crate) invites: u64,
    pub(crate) completes: u64,
    /// Time that the leader waits for the answers. A guest waits twice as long for the invitation, and for the group.
    pub(crate) patience: Duration,
    /// True if the leader says itself who the members are, as libpmix 6 does.
    pub(crate) names_members: bool,
    /// A rank that leaves the group, if it is a member.
    pub(crate) leaver: Rank,
}

/// An invited process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Guest {
    pub(crate) rank: Rank,
    pub(crate) reply: Reply,
    /// The number of the event with its reply.
    pub(crate) number: u64,
}

/// What a guest answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Accepts,
    Declines,
    /// It does not answer.
    IsSilent,
}

/// A step of the leader, of a guest, or of any member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The leader invites all guests.
    Invite,
    /// The leader waits until each guest has answered or has died, or until its patience ends.
    AwaitReplies,
    /// The leader tells those who have accepted that the group exists, if anybody has.
    Complete,
    /// A guest waits until it is invited, until it hears that the leader has died, or until its patience ends.
    AwaitInvitation,
    /// A guest that is invited replies.
    Reply,
    /// A guest that has accepted waits for the group, with the same ends as for the invitation.
    AwaitGroup,
    /// A member leaves.
    Leave,
    /// A member that has not left destructs the group.
    Dissolve,
}

impl Step {
    /// Returns true if the step only waits.
    pub(crate) const fn waits(self) -> bool {
        matches!(
            self,
            Self::AwaitReplies | Self::AwaitInvitation | Self::AwaitGroup
        )
    }
}

/// Codes for which every process registers that takes part in an invitation. libpmix registers for the first five; the
/// death of a process is an event only for those who have registered before.
pub(crate) const GROUP_CODES: [Status; 6] = [
    Status::GROUP_INVITED,
    Status::GROUP_INVITE_ACCEPTED,
    Status::GROUP_INVITE_DECLINED,
    Status::GROUP_CONSTRUCT_COMPLETE,
    Status::PROC_TERMINATED,
    Status::GROUP_LEFT,
];

impl Invitation {
    /// Returns what a rank does until the group exists; nothing if it is neither the leader nor a guest.
    pub(crate) fn steps_of(&self, rank: Rank) -> Vec<Step> {
        let guest = self.guests.iter().find(|guest| guest.rank == rank);
        match guest {
            _ if rank == self.leader => vec![Step::Invite, Step::AwaitReplies, Step::Complete],
            None => Vec::new(),
            Some(guest) if guest.reply == Reply::IsSilent => vec![Step::AwaitInvitation],
            Some(_) => vec![Step::AwaitInvitation, Step::Reply, Step::AwaitGroup],
        }
    }
}
