//! Recorded calls of MPI: what the recorder has written in the process of a rank (`rally run --mpi-recorder`), and what follows from
//! it.
//!
//! A rank can write anything into its region, and its programs have bugs. So every number in a region is taken for a wrong one: bounded
//! where it is read ([`region`]), and compared with what other ranks say where it is used ([`proof`]).

mod members;
pub mod overview;
pub mod proof;
pub mod region;
#[cfg(test)]
pub(crate) mod tests;
pub mod words;

use std::{collections::BTreeSet, sync::Arc};

use calls::{COUNT, Class, FUNCTIONS, Flavor, Function, layout};
use serde::{Deserialize, Serialize};

pub use members::Members;

/// Calls of one rank, as its recorder has written them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankCalls {
    /// The kind of its MPI library.
    #[serde(with = "form")]
    pub flavor: Flavor,
    /// Its rank in `MPI_COMM_WORLD`; `None` before `MPI_Init`.
    pub rank: Option<u32>,
    /// Whether `MPI_Finalize` has returned.
    pub finalized: bool,
    /// Whether its process has ended, and this is what it has left.
    pub ended: bool,
    /// Whether more than one thread may call MPI at a time or in turn.
    pub threading: Threading,
    /// Why its counts are not exact. Empty if they are.
    pub doubts: BTreeSet<Doubt>,
    /// Polls that have found something, since the beginning.
    pub progress: u64,
    /// Threads that have called MPI.
    pub threads: Vec<ThreadCalls>,
    /// Communicators and windows, by their serial number.
    pub communicators: Vec<Communicator>,
    /// Messages that were sent and received.
    pub messages: Vec<Messages>,
}

/// Which threads of a rank call MPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Threading {
    /// Only the one that has initialized MPI.
    Main,
    /// Any, or it is not known.
    Any,
}

/// Why counts of a rank are not exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Doubt {
    /// Some threads were not recorded.
    Threads,
    /// Some communicators were not.
    Communicators,
    /// Some messages were not counted.
    Messages,
    /// Some requests are not known.
    Requests,
    /// A call failed, or started requests that are not known.
    Calls,
    /// The answer does not have all of them.
    Shortened,
}

impl Doubt {
    /// Returns what is not exact, in a few words.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Threads => "some threads had no room and are not recorded",
            Self::Communicators => "some communicators had no room and are not recorded",
            Self::Messages => "some messages had no room and are not counted",
            Self::Requests => "some requests had no room and are not known",
            Self::Calls => "a call has failed, or could not be followed",
            Self::Shortened => {
                "the answer of the node has no room for all, or members of a communicator cannot be"
            }
        }
    }
}

/// The last calls of one thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadCalls {
    /// Whether this is the first thread of its process.
    pub is_first: bool,
    /// The thread id, as its process sees it.
    pub tid: u32,
    /// The calls, oldest first. The last one, and those that have not returned, are always there.
    pub calls: Vec<Call>,
}

/// A call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// Number of the call among those of its thread, from 1.
    pub number: u64,
    /// Number of its function.
    function: u32,
    /// Whether it has not returned.
    pub in_progress: bool,
    /// Whether it is inside another recorded call.
    pub nested: bool,
    /// Serial number of its communicator or window; 0 if it has none.
    pub communicator: u32,
    /// Rank of the other process, as the program has passed it.
    pub peer: i32,
    /// The tag.
    pub tag: i32,
    /// Rank of the process of which a call receives that also sends.
    pub source: i32,
    /// The tag that it receives.
    pub source_tag: i32,
    /// The root.
    pub root: i32,
    /// The count of elements or requests.
    pub count: i64,
    /// Number of this collective operation, or of this message, from 1; 0 if it is not counted.
    pub ordinal: u64,
    /// Number of the message that a call sends that also receives.
    pub sent: u64,
    /// How often it was repeated at once.
    pub repeated: u32,
    /// What it returned.
    pub result: i32,
    /// File and line from which it was called, if known.
    pub place: Option<Arc<str>>,
    /// For what it waits, if it waits for requests: only those that are known.
    pub pending: Vec<Pending>,
    /// Number of requests for which it waits and which are not known.
    pub unknown: u32,
}

/// A request for which a call waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pending {
    /// Its index in the array.
    pub index: u32,
    /// Number of the function that made it.
    function: u32,
    /// As for [`Call`].
    pub communicator: u32,
    /// As for [`Call`].
    pub peer: i32,
    /// As for [`Call`].
    pub tag: i32,
    /// As for [`Call`].
    pub root: i32,
    /// As for [`Call`].
    pub ordinal: u64,
    /// File and line from which it was made or started, if known.
    pub place: Option<Arc<str>>,
}

/// A communicator or window of a rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Communicator {
    /// Its serial number in this rank.
    pub serial: u32,
    /// The number by which all members know it; `None` if they cannot compare it.
    pub id: Option<u64>,
    /// The communicator from which it was made, as `id`.
    pub parent: Option<u64>,
    /// The number of the collective operation of its parent that has made it.
    pub origin: u64,
    /// The rank of the process in it.
    pub rank: u32,
    /// Its members, as ranks of `MPI_COMM_WORLD`.
    pub members: Members,
    /// Number of collective operations that were begun.
    pub collectives: u64,
    /// The last of these, oldest first: function and root, if they are known.
    last: Vec<Option<(u32, i32)>>,
    /// What makes its counts of messages wrong.
    pub flags: u32,
    /// Its name, if the program has given it one.
    pub name: Option<Arc<str>>,
}

/// Messages with one peer and one tag, or epochs of a window with one peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Messages {
    /// Serial number of the communicator.
    pub communicator: u32,
    /// Whether they are sent or received.
    pub direction: Direction,
    /// The other rank, as the program has passed it; of epochs, in `MPI_COMM_WORLD`.
    pub peer: i32,
    /// The tag; of epochs, 0.
    pub tag: i32,
    /// Their number.
    pub count: u64,
}

/// Whether messages are sent or received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Direction {
    /// The rank sends them.
    Sent,
    /// The rank receives them.
    Received,
    /// The rank begins to access the window of the other.
    Started,
    /// The rank exposes its window to the other.
    Posted,
    /// The rank has accessed the window of the other.
    Completed,
    /// The rank locks the window of the other, a rank of the window; with the tag 1, those of all.
    Locked,
    /// The rank begins to unlock it.
    Unlocked,
}

impl RankCalls {
    /// Returns true if it has no more of anything than a region.
    pub(crate) fn is_bounded(&self) -> bool {
        let is_function = |number: u32| (number as usize) < COUNT;
        let functions = |it: &ThreadCalls| {
            it.calls.iter().all(|call| {
                is_function(call.function) && call.pending.iter().all(|it| is_function(it.function))
            })
        };
        let is_communicator = |it: &Communicator| {
            it.members.len() as usize <= layout::MEMBERS_MAX
                && it.last.len() <= layout::RING_SIZE
                && it
                    .last
                    .iter()
                    .flatten()
                    .all(|(function, _)| is_function(*function))
        };
        let listed = |it: &Communicator| match &it.members {
            Members::List(list) => list.len(),
            Members::Unknown | Members::Series { .. } => 0,
        };
        let calls = |it: &ThreadCalls| it.calls.len() <= layout::CALLS_MAX;
        let pending = self.threads.iter().flat_map(|it| &it.calls);
        let pending = pending.map(|call| call.pending.len());
        self.threads.len() <= layout::THREADS_MAX
            && self.threads.iter().all(calls)
            && pending.sum::<usize>() <= region::PENDING_MAX
            && self.communicators.len() <= layout::COMMUNICATORS_MAX
            && self.communicators.iter().map(listed).sum::<usize>() <= region::LISTED_MAX
            && self.threads.iter().all(functions)
            && self.communicators.iter().all(is_communicator)
            && self.messages.len() <= region::MESSAGES_MAX
    }

    /// Returns the communicator with a serial number.
    #[must_use]
    pub fn communicator(&self, serial: u32) -> Option<&Communicator> {
        self.communicators
            .iter()
            .find(|known| known.serial == serial)
    }

    /// Returns the communicator that all its members know by a number.
    #[must_use]
    pub fn with_id(&self, id: u64) -> Option<&Communicator> {
        self.communicators.iter().find(|known| known.id == Some(id))
    }

    /// Returns how many messages were sent to, or received from, a peer with a tag.
    #[must_use]
    pub fn count(&self, communicator: u32, direction: Direction, peer: i32, tag: i32) -> u64 {
        let found = self.messages.iter().find(|known| {
            (known.communicator, known.direction, known.peer, known.tag)
                == (communicator, direction, peer, tag)
        });
        found.map_or(0, |known| known.count)
    }

    /// Returns how many messages were received on a communicator, by peer and tag.
    pub fn received(&self, communicator: u32) -> impl Iterator<Item = &Messages> {
        self.messages.iter().filter(move |it| {
            it.communicator == communicator && it.direction == Direction::Received
        })
    }

    /// Returns whether the rank has communicated since an earlier sample: begun to send or receive a message or a collective operation,
    /// or found with a poll that something had happened.
    #[must_use]
    pub fn has_advanced(&self, before: &Self) -> bool {
        let counts = |calls: &Self| {
            let messages = calls.messages.iter().map(|it| it.count);
            let collectives = calls.communicators.iter().map(|it| it.collectives);
            let begun = messages.chain(collectives).fold(0, u64::wrapping_add);
            (begun, calls.progress, calls.finalized)
        };
        counts(self) != counts(before)
    }

    /// Returns whether the last thing that the rank has done since an earlier sample was to poll, and nothing has happened.
    #[must_use]
    pub fn has_polled_in_vain(&self, before: &Self) -> bool {
        let poll = |calls: &Self| {
            let last = calls.last()?;
            (last.function().class == Class::Poll).then_some((last.number, last.repeated))
        };
        match (poll(before), poll(self)) {
            (Some(was), Some(is)) => was != is && !self.has_advanced(before),
            _ => false,
        }
    }

    /// Returns the call that the thread which has initialized MPI has not returned from. If it is inside another one, the outer one.
    #[must_use]
    pub fn current(&self) -> Option<&Call> {
        self.first_thread()?.current()
    }

    /// Returns the thread that has initialized MPI.
    fn first_thread(&self) -> Option<&ThreadCalls> {
        let first = self.threads.iter().find(|thread| thread.is_first);
        let only = self.threads.first().filter(|_| self.threads.len() == 1);
        first.or(only)
    }

    /// Returns the call in which the first thread is, or its last one.
    #[must_use]
    pub fn last(&self) -> Option<&Call> {
        let first = self.threads.iter().find(|thread| thread.is_first);
        let thread = first.or_else(|| self.threads.first())?;
        thread.current().or_else(|| thread.calls.last())
    }
}

impl ThreadCalls {
    /// Returns the call that has not returned. If it is inside another one, the outer one.
    #[must_use]
    pub fn current(&self) -> Option<&Call> {
        self.calls.iter().find(|call| call.in_progress)
    }
}

impl Call {
    /// Returns the function.
    #[must_use]
    pub fn function(&self) -> &'static Function {
        known(self.function)
    }
}

impl Pending {
    /// Returns the function that made the request.
    #[must_use]
    pub fn function(&self) -> &'static Function {
        known(self.function)
    }
}

impl Communicator {
    /// Returns function and root of a collective operation, if it is one of the last.
    #[must_use]
    pub fn collective(&self, ordinal: u64) -> Option<(&'static Function, i32)> {
        let back = self.collectives.checked_sub(ordinal)?;
        let at = self
            .last
            .len()
            .checked_sub(1 + usize::try_from(back).ok()?)?;
        let (function, root) = (*self.last.get(at)?)?;
        Some((known(function), root))
    }

    /// Returns true if a call on it may have counted something and not done it.
    #[must_use]
    pub const fn has_failed(&self) -> bool {
        self.flags & layout::flags::FAILED != 0
    }

    /// Returns true if all receives that were counted have ended, except that in which the rank is.
    #[must_use]
    pub const fn receives_at_once(&self) -> bool {
        self.flags & layout::flags::STARTED == 0
    }

    /// Returns true if the numbers of messages are exact.
    #[must_use]
    pub const fn counts_messages(&self) -> bool {
        use layout::flags::{BETWEEN, CANCELLED, FAILED, MATCHED};
        self.flags & (BETWEEN | CANCELLED | FAILED | MATCHED) == 0
    }

    /// Returns true if the numbers of messages that the rank has sent are exact.
    #[must_use]
    pub const fn counts_sent(&self) -> bool {
        use layout::flags::{BETWEEN, CANCELLED, FAILED};
        self.flags & (BETWEEN | CANCELLED | FAILED) == 0
    }

    /// Returns true if it has two groups.
    #[must_use]
    pub const fn is_between(&self) -> bool {
        self.flags & layout::flags::BETWEEN != 0
    }

    /// Returns true if it is a window.
    #[must_use]
    pub const fn is_window(&self) -> bool {
        self.flags & layout::flags::WINDOW != 0
    }
}

/// Returns a function. The number was checked when it was decoded.
fn known(number: u32) -> &'static Function {
    FUNCTIONS.get(number as usize).unwrap_or(&FUNCTIONS[0])
}

/// Returns whether functions are variants of one operation: with and without a large count.
fn is_same_operation(one: &Function, other: &Function) -> bool {
    let plain = |function: &Function| {
        let name = function.name;
        name.strip_suffix("_c").unwrap_or(name)
    };
    plain(one) == plain(other)
}

/// A flavor as its number.
mod form {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    use super::Flavor;

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
    pub(super) fn serialize<S: Serializer>(
        flavor: &Flavor,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(*flavor as u32)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Flavor, D::Error> {
        Flavor::from_number(u32::deserialize(deserializer)?)
            .ok_or_else(|| D::Error::custom("no such kind of MPI library"))
    }
}
