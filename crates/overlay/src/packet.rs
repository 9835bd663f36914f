//! What travels on a link between nodes: notes about the link itself, and packets that are routed.
//!
//! A note is a record of its own. A packet is a frame of a lane: the length of its head (four bytes), the head, and the
//! body, which the overlay does not look into.

use std::{collections::BTreeSet, fmt, net::SocketAddr, time::Duration};

use base::{Rank, RankSet};
use bytes::{Buf as _, Bytes};
use serde::{Deserialize, Serialize};

use crate::{lanes::Credit, wire::FRAME_MAX};

/// Maximum number of addresses at which one process accepts connections.
pub(crate) const ADDRESSES_MAX: usize = 16;
/// Maximum number of processes below one child.
pub(crate) const MEMBERS_MAX: usize = 1 << 20;
/// Maximum number of processes in one [`Head::Heard`].
pub(crate) const HEARD_MAX: usize = 1 << 14;
/// Maximum number of different [`Number`]s in one [`Head::Mergeable`].
pub(crate) const SENDERS_MAX: usize = 1 << 14;
/// Maximum length of the body of a message in bytes. The rest of the frame is for its members.
pub const BODY_MAX: usize = FRAME_MAX - 16 * 1024 * 1024;
/// Maximum number of characters of a peer's reason.
const REASON_MAX: usize = 200;

/// Address of a process in the tree. The owner of the tree assigns the addresses; the root is [`Address::ROOT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Address(pub u32);

impl Address {
    /// The process that owns the tree.
    pub const ROOT: Self = Self(0);
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// A set of addresses as it is sent: runs, so that a whole tree is one short value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Members(RankSet);

impl Members {
    pub(crate) fn of<'a>(members: impl IntoIterator<Item = &'a Address>) -> Self {
        Self(members.into_iter().map(|member| Rank(member.0)).collect())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn contains(&self, member: Address) -> bool {
        self.0.contains(Rank(member.0))
    }

    /// Returns the members in order. There may be far more than there are processes: compare [`Self::len`] first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Address> {
        self.0.iter().map(|rank| Address(rank.0))
    }

    /// Returns those of the known processes that are members. The set itself may be far larger.
    pub(crate) fn among<'a>(
        &self,
        known: impl IntoIterator<Item = &'a Address>,
    ) -> BTreeSet<Address> {
        let known = known.into_iter().copied();
        known.filter(|one| self.contains(*one)).collect()
    }
}

/// Why a process dials another one to join the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Reason {
    /// It has just started, and asks for its place.
    Start,
    /// Its place is below the dialed process.
    Place,
    /// It could not connect to the parent that it was given.
    Unreachable,
}

/// What a message says, so that equal ones can be merged. The owner chooses the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Class(pub u64);

/// The number of a packet among those that its sender sends to the root. They are ordered as their sender has sent them on a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Number {
    /// The number within its lane. The first is 1.
    pub own: u64,
    /// Number of packets that the sender sent on the control lane before this one.
    pub control: u64,
}

/// What a process does when it hears how many of its packets the root has received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Then {
    /// It forgets them.
    Forget,
    /// It forgets them and sends the others again: a process between it and the root was lost.
    Resend,
}

/// First note of the dialer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Hello {
    Join {
        me: Address,
        reason: Reason,
        /// The number of the link if it comes about. A process that has heard no answer says the same hello again.
        link: u64,
        /// Where the process accepts connections.
        at: Vec<SocketAddr>,
    },
    /// Continues a link whose connection was lost.
    Resume {
        me: Address,
        link: u64,
        received: [u64; 2],
    },
    /// To the root: the parent of the process was lost, and it asks for a place below the root.
    Return {
        me: Address,
        /// As in `Join`.
        link: u64,
        at: Vec<SocketAddr>,
        /// The number of the last cast that it has received on each lane.
        seen: [u64; 2],
        /// The processes below it.
        below: Members,
    },
}

/// First note of the acceptor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Welcome {
    /// The dialer is a child of the acceptor.
    Child,
    Resumed {
        received: [u64; 2],
    },
    /// The dialer's place is below this process.
    Elsewhere {
        parent: Address,
        at: Vec<SocketAddr>,
    },
    Refused(Refusal),
}

/// Why a process is not admitted to a tree, although it knows the secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    #[error("no such process was started for this session")]
    Unknown,
    #[error("a process with the same address is connected")]
    Taken,
    #[error("the link to resume was given up")]
    Expired,
}

/// A record about the link itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Note {
    Hello(Hello),
    Welcome(Welcome),
    Credit(Credit),
    /// Sent on an idle link, so that the peer's lease does not expire.
    Alive,
}

/// Where a packet goes, or what it says about the tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Head {
    /// To the root.
    Up { from: Address, number: Number },
    /// From the root, to these members. Casts of a lane are numbered; the first is 1.
    Down {
        to: Members,
        number: u64,
        purpose: Purpose,
    },
    /// To the root: a process has joined below the sender, and accepts connections at these addresses.
    Joined { who: Address, at: Vec<SocketAddr> },
    /// To the root: the sender has lost its link to a child. Those below it return to the root.
    Lost {
        who: Address,
        below: Members,
        loss: Loss,
    },
    /// Downward: the session is over. Upward: the sender is about to close the link.
    Bye,
    /// From the root: the number of the last packet that it has received of each process, on each lane.
    Heard {
        received: Vec<(Address, [u64; 2])>,
        then: Then,
    },
    /// To the parent: the sender and all processes below it have received the casts up to these numbers.
    Done { casts: [u64; 2] },
    /// To the root: the merged answers of these processes.
    Part { id: GatherId, of: Members },
    /// To the root: packets of these processes, whose messages were merged, or may be.
    Mergeable {
        class: Class,
        of: Vec<(Number, Members)>,
    },
}

/// Identifies a gather. Numbers are not used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GatherId(pub u64);

/// How long a gather may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Patience {
    /// How long answers wait for others to be merged with, at most.
    pub merging: Duration,
    /// How long the root waits for answers.
    pub whole: Duration,
}

impl Patience {
    /// Returns the time for which a process waits that is this many hops below the root.
    pub(crate) fn share(self, hops: u8) -> Duration {
        let merging = self.merging.min(self.whole);
        (0..hops.min(32)).fold(merging, |time, _| time / 8 * 7)
    }
}

/// What a cast is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Purpose {
    /// For the owners of the members.
    Message,
    /// The same, and they answer. The receiver is so many hops below the root.
    Ask {
        id: GatherId,
        patience: Patience,
        hops: u8,
    },
    /// The root does not have the answers of the members.
    Again(GatherId),
    /// The gather is over.
    End(GatherId),
}

impl Purpose {
    /// Returns the purpose for processes one hop further down.
    pub(crate) const fn below(self) -> Self {
        match self {
            Self::Ask { id, patience, hops } => Self::Ask {
                id,
                patience,
                hops: hops.saturating_add(1),
            },
            other => other,
        }
    }
}

/// Why a link was lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Loss {
    #[error("its connection was closed")]
    Closed,
    #[error("nothing was heard from it for {millis} ms")]
    Silent { millis: u64 },
    #[error("it does not read what it is sent")]
    Slow,
    #[error("{0}")]
    Broken(String),
    /// A process between it and the root was lost.
    #[error("the node that connected it was lost")]
    Orphan,
}

impl Loss {
    /// Makes a reason that came from a peer fit for a message.
    pub(crate) fn printable(self) -> Self {
        match self {
            Self::Broken(text) => {
                let shown = |one: char| if one.is_control() { '?' } else { one };
                Self::Broken(text.chars().take(REASON_MAX).map(shown).collect())
            }
            other => other,
        }
    }
}

/// Length of the length of a head in bytes.
const LENGTH: usize = 4;

/// Encodes a head with its length.
pub(crate) fn encode_head(head: &Head) -> Vec<u8> {
    match postcard::to_extend(head, vec![0; LENGTH]) {
        Ok(mut bytes) => {
            let length = u32::try_from(bytes.len() - LENGTH).unwrap_or(u32::MAX);
            bytes[..LENGTH].copy_from_slice(&length.to_le_bytes());
            bytes
        }
        Err(error) => unreachable!("a head is made of types that have an encoding: {error}"),
    }
}

/// Splits a frame into its head and its body; `None` if it is malformed.
pub(crate) fn decode(mut frame: Bytes) -> Option<(Head, Bytes)> {
    let length = u32::from_le_bytes(*frame.first_chunk::<LENGTH>()?) as usize;
    frame.advance(LENGTH);
    if frame.len() < length {
        return None;
    }
    let head: Head = postcard::from_bytes(&frame.split_to(length)).ok()?;
    match &head {
        Head::Joined { at, .. } if at.len() > ADDRESSES_MAX => None,
        Head::Heard { received, .. } if received.len() > HEARD_MAX => None,
        Head::Mergeable { of, .. } if of.len() > SENDERS_MAX => None,
        _ => Some((head, frame)),
    }
}

/// Decodes a note; `None` if it is malformed.
pub(crate) fn decode_note(bytes: &[u8]) -> Option<Note> {
    let note: Note = postcard::from_bytes(bytes).ok()?;
    match &note {
        Note::Hello(Hello::Join { at, .. } | Hello::Return { at, .. })
        | Note::Welcome(Welcome::Elsewhere { at, .. })
            if at.len() > ADDRESSES_MAX =>
        {
            None
        }
        _ => Some(note),
    }
}
