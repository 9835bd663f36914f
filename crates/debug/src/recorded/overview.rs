//! What the recorded calls of one sample show: the calls in which ranks are, and the communicators with the ranks that are behind.

use std::{cmp::Reverse, collections::BTreeMap};

use base::{Rank, RankSet};
use calls::Role;
use serde::{Deserialize, Serialize};

use super::{Call, Direction, Doubt, Messages, RankCalls, proof::Calls, words};

/// Communicators in an overview.
const COMMUNICATORS_MAX: usize = 1024;
/// Open locks of windows in an overview.
const LOCKS_MAX: usize = 1024;
/// Differences between the ranks of one communicator.
const STANDS_MAX: usize = 64;

/// What the recorded calls of one sample show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overview {
    /// Calls with the ranks that are in them, the largest set first.
    pub calls: Vec<Standing>,
    /// Communicators of more than one rank: those of which ranks are behind first, then the largest.
    pub communicators: Vec<Progress>,
    /// Locks of windows that were not unlocked.
    pub locks: Vec<Locked>,
    /// Ranks whose recorded calls cannot be read.
    pub unreadable: RankSet,
    /// Ranks whose counts are not exact, so that nothing is proved with them.
    pub inexact: Vec<Inexact>,
}

/// Ranks whose counts are not exact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inexact {
    /// The ranks.
    pub ranks: RankSet,
    /// Why.
    pub why: Doubt,
}

/// A lock of a window that ranks have, or wait for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Locked {
    /// The ranks that have locked it and not begun to unlock it.
    pub ranks: RankSet,
    /// The name of the window.
    pub window: String,
    /// The rank of `MPI_COMM_WORLD` whose part of the window it is; absent for all parts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<u32>,
}

/// A call, and the ranks that are in it, or have ended in or after it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Standing {
    /// The ranks.
    pub ranks: RankSet,
    /// The call in words, with its line.
    pub call: String,
    /// Whether the ranks live, and have returned.
    pub state: State,
    /// The function.
    pub function: String,
    /// The name of the communicator or window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub communicator: Option<String>,
    /// The other rank in `MPI_COMM_WORLD`, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<u32>,
    /// The tag, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<i32>,
    /// The root, as the program has passed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<i32>,
    /// The number of the collective operation on its communicator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<u64>,
    /// File and line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
}

/// How a rank stands to its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It is in the call.
    In,
    /// It has ended in the call.
    EndedIn,
    /// It has ended after the call.
    EndedAfter,
}

/// How far the members of a communicator are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// The name of the communicator or window.
    pub name: String,
    /// Number of its members.
    pub members: u32,
    /// Numbers of collective operations that were begun, the largest first, with the ranks that have begun so many.
    pub begun: Vec<Begun>,
}

/// Ranks that have begun the same number of collective operations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begun {
    /// The number.
    pub operations: u64,
    /// The ranks.
    pub ranks: RankSet,
}

impl Overview {
    /// Returns the overview of the ranks of a sample.
    #[must_use]
    pub fn of(all: &Calls) -> Self {
        Self {
            calls: standing(all),
            communicators: progress(all),
            locks: locks(all),
            unreadable: RankSet::default(),
            inexact: inexact(all),
        }
    }

    /// Returns true if it shows nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty() && self.unreadable.is_empty() && self.inexact.is_empty()
    }
}

impl Progress {
    /// Returns the ranks that have begun fewer operations than others, with the numbers.
    #[must_use]
    pub fn behind(&self) -> &[Begun] {
        self.begun.get(1..).unwrap_or_default()
    }
}

fn inexact(all: &Calls) -> Vec<Inexact> {
    let mut found: BTreeMap<Doubt, RankSet> = BTreeMap::new();
    for (rank, calls) in all {
        for why in &calls.doubts {
            found.entry(*why).or_default().insert(*rank);
        }
    }
    let found = found.into_iter();
    found.map(|(why, ranks)| Inexact { ranks, why }).collect()
}

fn standing(all: &Calls) -> Vec<Standing> {
    let mut found: BTreeMap<Standing, RankSet> = BTreeMap::new();
    for (rank, calls) in all {
        let shown = if calls.ended {
            calls.last()
        } else {
            calls.current()
        };
        if let Some(call) = shown {
            let standing = described(call, calls);
            found.entry(standing).or_default().insert(*rank);
        }
    }
    let mut found: Vec<Standing> = found
        .into_iter()
        .map(|(standing, ranks)| Standing { ranks, ..standing })
        .collect();
    found.sort_by_key(|it| (Reverse(it.ranks.len()), it.ranks.first()));
    found
}

/// Describes a call, without the rank.
fn described(call: &Call, calls: &RankCalls) -> Standing {
    let function = call.function();
    let has = |role| function.argument(role).is_some();
    let on = calls.communicator(call.communicator);
    let state = match (calls.ended, call.in_progress) {
        (false, _) => State::In,
        (true, true) => State::EndedIn,
        (true, false) => State::EndedAfter,
    };
    let peer = u32::try_from(call.peer).ok().filter(|_| has(Role::Peer));
    let counted = on.is_some() && function.class.is_collective() && call.ordinal > 0;
    Standing {
        ranks: RankSet::new(),
        call: in_words(call, calls, state),
        state,
        function: function.name.to_owned(),
        communicator: on.map(|on| words::name(on, calls)),
        peer: peer.and_then(|peer| on?.members.get(peer)),
        tag: (has(Role::Tag) && call.tag >= 0).then_some(call.tag),
        root: has(Role::Root).then_some(call.root),
        operation: counted.then_some(call.ordinal),
        place: call.place.as_deref().map(str::to_owned),
    }
}

fn in_words(call: &Call, calls: &RankCalls, state: State) -> String {
    let said = words::call(call, calls);
    match state {
        State::In => format!("{said}{}", words::placed(call.place.as_deref())),
        State::EndedIn => format!("{said}, where it has ended"),
        State::EndedAfter => format!("no call; it has ended after {said}"),
    }
}

fn locks(all: &Calls) -> Vec<Locked> {
    let mut found: BTreeMap<(String, Option<u32>), RankSet> = BTreeMap::new();
    for (rank, calls) in all {
        let locked = |it: &&Messages| it.direction == Direction::Locked;
        for it in calls.messages.iter().filter(locked) {
            // One that is still in the call waits for the lock.
            let waits = calls.current().is_some_and(|call| is_lock(call, it));
            let unlocked = calls.count(it.communicator, Direction::Unlocked, it.peer, it.tag);
            let unlocked = unlocked.saturating_add(u64::from(waits));
            let Some(on) = calls.communicator(it.communicator) else {
                continue;
            };
            let target = match it.tag {
                0 => u32::try_from(it.peer)
                    .ok()
                    .and_then(|it| on.members.get(it)),
                _ => None,
            };
            if unlocked < it.count && (it.tag != 0 || target.is_some()) {
                let key = (words::name(on, calls), target);
                found.entry(key).or_default().insert(*rank);
            }
        }
    }
    let locks = found.into_iter().map(|((window, target), ranks)| Locked {
        ranks,
        window,
        target,
    });
    locks.take(LOCKS_MAX).collect()
}

/// Returns whether a call is the last one of these locks.
fn is_lock(call: &Call, locks: &Messages) -> bool {
    let all = match call.function().name {
        "MPI_Win_lock" => 0,
        "MPI_Win_lock_all" => 1,
        _ => return false,
    };
    (call.communicator, all) == (locks.communicator, locks.tag)
        && (all == 1 || call.peer == locks.peer)
}

fn progress(all: &Calls) -> Vec<Progress> {
    let mut found: BTreeMap<u64, (String, u32, BTreeMap<u64, RankSet>)> = BTreeMap::new();
    for (rank, calls) in all {
        // The ids of another job are others, and a rank of another job may have the same number.
        if calls.rank != Some(rank.0) {
            continue;
        }
        for on in calls.communicators.iter().filter(|on| on.members.len() > 1) {
            let Some(id) = on.id else { continue };
            let entry = || (words::name(on, calls), on.members.len(), BTreeMap::new());
            let (_, _, begun) = found.entry(id).or_insert_with(entry);
            begun
                .entry(on.collectives)
                .or_default()
                .insert(Rank(rank.0));
        }
    }
    let mut found: Vec<Progress> = found
        .into_values()
        .map(|(name, members, begun)| Progress {
            name,
            members,
            begun: begun
                .into_iter()
                .rev()
                .take(STANDS_MAX)
                .map(|(operations, ranks)| Begun { operations, ranks })
                .collect(),
        })
        .collect();
    found.sort_by_key(|it| {
        let is_even = it.behind().is_empty();
        (is_even, Reverse(it.members), it.name.clone())
    });
    found.truncate(COMMUNICATORS_MAX);
    found
}
