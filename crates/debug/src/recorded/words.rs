//! Sentences about recorded calls and proofs.
//!
//! Communicators are named by their origin, because programs rarely name them: `WORLD#3` is what the collective operation 3 of WORLD
//! has made. If it has fewer members than its parent, they follow: `WORLD#3[0-3]`.

use std::{collections::BTreeMap, fmt::Write as _};

use base::{Rank, RankSet};
use calls::{Class, Flavor, Function, Role};

use super::{
    Call, Communicator, Members, Pending, RankCalls,
    proof::{Calls, Exchange, Gone, Need, Proof, Stuck, What},
};

/// Serial numbers of the communicators that every process has.
const WORLD: u32 = 1;
const OWN: u32 = 2;
/// Generations of ancestors in the name of a communicator.
const NAME_DEPTH: usize = 4;
/// Members from which on a communicator is named by their number.
const NAMED_MAX: u32 = 4096;
/// Ranks of a cycle that are described. Others are only named.
const DESCRIBED: usize = 4;
/// Other tags of messages that are named.
const TAGS: usize = 3;

/// Returns the name of a communicator of a rank.
#[must_use]
pub fn name(on: &Communicator, calls: &RankCalls) -> String {
    named(on, calls, NAME_DEPTH)
}

fn named(on: &Communicator, calls: &RankCalls, depth: usize) -> String {
    let Some(name) = &on.name else {
        return unnamed(on, calls, depth);
    };
    let same = |it: &&Communicator| it.name.as_ref() == Some(name);
    if calls.communicators.iter().filter(same).count() > 1 {
        format!("\"{name}\" {}", unnamed(on, calls, depth))
    } else {
        format!("\"{name}\"")
    }
}

/// Names a communicator by where it comes from.
fn unnamed(on: &Communicator, calls: &RankCalls, depth: usize) -> String {
    match on.serial {
        WORLD => return "WORLD".to_owned(),
        OWN => return "SELF".to_owned(),
        _ => {}
    }
    let kind = match (on.is_window(), on.is_between()) {
        (true, _) => "window ",
        (_, true) => "intercommunicator ",
        _ => "",
    };
    let parent = on.parent.and_then(|parent| calls.with_id(parent));
    // Its two sides call an intercommunicator by each other's members, and what they make of it by its own.
    let parent = parent.filter(|parent| !parent.is_between());
    let members = |of: &Members| match of.len() {
        0 => "[?]".to_owned(),
        NAMED_MAX.. => format!("[{} ranks]", of.len()),
        _ => format!("[{}]", of.iter().map(Rank).collect::<RankSet>()),
    };
    match parent {
        Some(parent) if depth > 0 => {
            let of = named(parent, calls, depth - 1);
            let own = if parent.members.len() == on.members.len() {
                String::new()
            } else {
                members(&on.members)
            };
            format!("{kind}{of}#{}{own}", on.origin)
        }
        _ => format!("{kind}{}", members(&on.members)),
    }
}

/// Returns whether a function with a peer takes something from it, or does something to it.
pub(crate) fn way(function: &Function) -> &'static str {
    match function.class {
        Class::Receive
        | Class::StartReceive
        | Class::PrepareReceive
        | Class::Probe
        | Class::Poll
        | Class::MatchedProbe => "from",
        Class::PreparePartitioned if function.name == "MPI_Precv_init" => "from",
        _ => "to",
    }
}

/// Describes what a call does, without its line: `MPI_Recv from rank 1, tag 7, WORLD`.
#[must_use]
pub fn call(call: &Call, calls: &RankCalls) -> String {
    let function = call.function();
    let mut said = function.name.to_owned();
    let on = calls.communicator(call.communicator);
    let has = |role| function.argument(role).is_some();
    if matches!(function.class, Class::SendReceive | Class::StartSendReceive) {
        let _ = write!(
            said,
            " to {}, tag {}",
            rank(call.peer, on, calls.flavor),
            tag(call.tag, calls.flavor)
        );
        let _ = write!(
            said,
            ", from {}, tag {}",
            rank(call.source, on, calls.flavor),
            tag(call.source_tag, calls.flavor)
        );
    } else if has(Role::Peer) {
        let way = way(function);
        let _ = write!(said, " {way} {}", rank(call.peer, on, calls.flavor));
        if has(Role::Tag) {
            let _ = write!(said, ", tag {}", tag(call.tag, calls.flavor));
        }
    }
    if has(Role::Root) {
        let _ = match call.root {
            root if root == calls.flavor.root() => write!(said, " root MPI_ROOT"),
            root if root == calls.flavor.proc_null() => write!(said, " root MPI_PROC_NULL"),
            root => write!(said, " root {root}"),
        };
    }
    if has(Role::Count) && function.class == Class::Wait {
        let _ = write!(said, " of {} requests", call.count);
    }
    if let ([only], 0) = (&call.pending[..], call.unknown) {
        let _ = write!(said, " for {}", started(only, calls));
    }
    if let Some(on) = on {
        let joined = if has(Role::Peer) || has(Role::Root) {
            ","
        } else {
            " on"
        };
        let _ = write!(said, "{joined} {}", name(on, calls));
        let counted = function.class.is_collective() || function.class == Class::Epoch;
        if counted && call.ordinal > 0 {
            let _ = write!(said, ", collective operation {}", call.ordinal);
        }
    }
    said
}

/// Describes what has made or started a request: `MPI_Irecv (a.c:3) from rank 1, tag 7, WORLD`.
fn started(pending: &Pending, calls: &RankCalls) -> String {
    let function = pending.function();
    let on = calls.communicator(pending.communicator);
    let has = |role| function.argument(role).is_some();
    let place = placed(pending.place.as_deref());
    let mut said = format!("{}{place}", function.name);
    if has(Role::Peer) {
        let (way, peer) = (way(function), rank(pending.peer, on, calls.flavor));
        let _ = write!(said, " {way} {peer}");
    }
    if has(Role::Tag) {
        let _ = write!(said, ", tag {}", tag(pending.tag, calls.flavor));
    }
    if let Some(on) = on {
        let joined = if has(Role::Peer) { "," } else { " on" };
        let _ = write!(said, "{joined} {}", name(on, calls));
    }
    said
}

/// Names a rank as that of `MPI_COMM_WORLD`, and adds what the program calls it.
fn rank(rank: i32, on: Option<&Communicator>, flavor: Flavor) -> String {
    let in_world = u32::try_from(rank)
        .ok()
        .and_then(|rank| on?.members.get(rank));
    match rank {
        _ if in_world.is_some_and(|known| Ok(known) != u32::try_from(rank)) => {
            format!("rank {} (rank {rank} there)", in_world.unwrap_or_default())
        }
        _ if rank == flavor.any_source() => "any rank".to_owned(),
        _ if rank == flavor.proc_null() => "nobody".to_owned(),
        _ => format!("rank {rank}"),
    }
}

fn tag(tag: i32, flavor: Flavor) -> String {
    if tag == flavor.any_tag() {
        "any".to_owned()
    } else {
        tag.to_string()
    }
}

pub(super) fn placed(place: Option<&str>) -> String {
    place.map(|place| format!(" ({place})")).unwrap_or_default()
}

/// Lists the last calls of a rank, one in a line, with those that have not returned marked by `>`.
#[must_use]
pub fn history(rank: Rank, calls: &RankCalls) -> String {
    let mut text = String::new();
    let several = calls.threads.len() > 1;
    for thread in &calls.threads {
        let of = if several {
            format!(", thread {}", thread.tid)
        } else {
            String::new()
        };
        let ended = if calls.ended { ", which has ended" } else { "" };
        let _ = writeln!(text, "rank {rank}{of}{ended}:");
        let digits = thread
            .calls
            .last()
            .map_or(1, |last| last.number.to_string().len());
        for it in &thread.calls {
            let mark = if it.in_progress { '>' } else { ' ' };
            let place = placed(it.place.as_deref());
            let again = match it.repeated {
                0 => String::new(),
                repeated => format!(", {} times", u64::from(repeated) + 1),
            };
            let failed = match it.result {
                0 => String::new(),
                result => format!(", returned {result}"),
            };
            let inside = if it.nested {
                ", inside another call"
            } else {
                ""
            };
            let _ = writeln!(
                text,
                "{mark} {:digits$}  {}{place}{again}{failed}{inside}",
                it.number,
                call(it, calls)
            );
        }
    }
    text
}

/// Why ranks can never go on, in the words of the verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// The kind of mistake.
    pub mistake: Mistake,
    /// The sentence, without a full stop.
    pub sentence: String,
    /// The ranks that the sentence is about.
    pub ranks: RankSet,
}

/// Kinds of mistakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// Ranks are in different collective operations, or in one with different roots.
    DifferentCollectives,
    /// Ranks are in a collective operation that others have not begun.
    NotEntered,
    /// Ranks are in collective operations of several communicators, in another order.
    CrossedCommunicators,
    /// A message is received that nobody sends.
    NeverSent,
    /// A message is sent that nobody receives.
    NeverReceived,
    /// A rank waits for an epoch of a window that another one does not begin or end.
    OpenEpoch,
    /// Ranks wait for messages of each other.
    CycleOfWaits,
}

/// Says why ranks can never go on.
#[must_use]
pub fn cause(proof: &Proof<'_>, all: &Calls) -> Option<Cause> {
    let is_other = |stuck: &&Stuck<'_>| matches!(*stuck.need.what, What::Other { .. });
    if let Some(stuck) = proof.stuck.values().find(is_other) {
        return different(proof, stuck, all);
    }
    let (cycle, end) = cycle(proof)?;
    let mut ranks: RankSet = cycle.iter().copied().map(Rank).collect();
    let (mut sentences, mut told) = (Vec::new(), RankSet::new());
    for &rank in &cycle {
        if told.contains(Rank(rank)) {
            continue;
        }
        if sentences.len() == DESCRIBED {
            break;
        }
        let stuck = proof.stuck.get(&rank)?;
        let group = alike(proof, stuck);
        ranks = ranks.union(&group);
        told = told.union(&group);
        sentences.push(one(&group, stuck, rank, all)?);
    }
    let more = ranks.difference(&told);
    if !more.is_empty() {
        sentences.push(format!(
            "{} too, in a cycle",
            waiting(&more, "wait for each other")
        ));
    }
    if let Some((rank, gone)) = end {
        ranks.insert(Rank(rank));
        sentences.push(match gone {
            Gone::Finalized => format!("rank {rank} has finalized MPI"),
            Gone::Ended => format!("rank {rank} has ended"),
        });
    }
    let entries = |cycle: &[u32]| {
        let is_entry = |rank: &&u32| {
            proof
                .stuck
                .get(*rank)
                .is_some_and(|it| matches!(*it.need.what, What::Entry { .. }))
        };
        cycle.iter().filter(is_entry).count()
    };
    let of_messages = |wanted: fn(&What) -> bool| {
        cycle.iter().all(|rank| {
            proof
                .stuck
                .get(rank)
                .is_some_and(|it| wanted(&it.need.what))
        })
    };
    let is_epoch = |rank: &u32| {
        let what = proof.stuck.get(rank).map(|it| &*it.need.what);
        matches!(what, Some(What::Exposure(_) | What::Completion(_)))
    };
    let mistake = match entries(&cycle) {
        _ if cycle.iter().any(is_epoch) => Mistake::OpenEpoch,
        0 if of_messages(|what| matches!(what, What::Message(_))) && cycle.len() <= 2 => {
            Mistake::NeverSent
        }
        0 if of_messages(|what| matches!(what, What::Receive(_))) && cycle.len() <= 2 => {
            Mistake::NeverReceived
        }
        0 => Mistake::CycleOfWaits,
        all if all == cycle.len() && end.is_none() => Mistake::CrossedCommunicators,
        _ => Mistake::NotEntered,
    };
    Some(Cause {
        mistake,
        sentence: sentences.join("; "),
        ranks,
    })
}

/// Ranks, and the one at their end that never calls MPI again.
type Path = (Vec<u32>, Option<(u32, Gone)>);

/// Returns ranks of which each waits for the next, and the last one for the first, or for one that never calls MPI again.
fn cycle(proof: &Proof<'_>) -> Option<Path> {
    let never = |rank: &u32| proof.stuck.contains_key(rank) || proof.gone.contains_key(rank);
    let mut path: Vec<u32> = vec![*proof.stuck.keys().next()?];
    loop {
        let stuck = proof.stuck.get(path.last()?)?;
        let next = match &*stuck.need.what {
            What::Message(it) | What::Receive(it) => it.with,
            What::Exposure(with) | What::Completion(with) => *with,
            What::Entry { missing, .. } => *missing.keys().find(|rank| never(rank))?,
            What::Other { .. } => return None,
        };
        if let Some(gone) = proof.gone.get(&next) {
            return Some((path, Some((next, *gone))));
        }
        if !proof.stuck.contains_key(&next) {
            return Some((path, None));
        }
        if let Some(first) = path.iter().position(|rank| *rank == next) {
            path.drain(..first);
            return Some((path, None));
        }
        path.push(next);
    }
}

/// Returns the stuck ranks that are at the same place and wait for the same operation.
fn alike(proof: &Proof<'_>, stuck: &Stuck<'_>) -> RankSet {
    let place = |it: &Stuck<'_>| {
        let name = it.call.function().name;
        (
            name,
            it.call.place.clone(),
            it.need.on.id,
            it.call.peer,
            it.call.tag,
        )
    };
    let same = |other: &Stuck<'_>| {
        let what = match (&*stuck.need.what, &*other.need.what) {
            // With a rank of no process: any of them.
            (What::Message(_), What::Message(_)) if stuck.call.peer < 0 => true,
            (one, other) => one == other,
        };
        what && place(other) == place(stuck)
    };
    let found = proof.stuck.iter().filter(|(_, other)| same(other));
    found.map(|(rank, _)| Rank(*rank)).collect()
}

fn who(ranks: &RankSet) -> String {
    if ranks.len() == 1 {
        format!("rank {ranks}")
    } else {
        format!("ranks {ranks}")
    }
}

fn waiting(ranks: &RankSet, verb: &str) -> String {
    let verb = if ranks.len() == 1 {
        format!("{verb}s")
    } else {
        verb.to_owned()
    };
    format!("{} {verb}", who(ranks))
}

/// Describes what some ranks wait for, of which `rank` is one.
fn one(group: &RankSet, stuck: &Stuck<'_>, rank: u32, all: &Calls) -> Option<String> {
    let calls = all.get(&Rank(rank))?;
    let Stuck { call, need } = stuck;
    let on = name(need.on, calls);
    let mut said = format!(
        "{} in {}{}",
        waiting(group, "wait"),
        call.function().name,
        placed(call.place.as_deref())
    );
    if let Some(pending) = need.pending {
        said.push_str(&request(pending, call));
    }
    match &*need.what {
        What::Message(_)
            if need.pending.is_none()
                && (call.peer == calls.flavor.any_source()
                    || call.tag == calls.flavor.any_tag()) =>
        {
            let from = peer(need, call, calls.flavor);
            let tag = tag(call.tag, calls.flavor);
            let _ = write!(said, " from {from}, tag {tag}, {on}; no message is left");
        }
        What::Message(it) => {
            let tag = tag(it.tag, calls.flavor);
            let from = peer(need, call, calls.flavor);
            let _ = write!(said, " from {from}, tag {tag}, {on}; ");
            said.push_str(&exchanged(it, "has sent it", calls.flavor));
        }
        What::Receive(it) => {
            let to = peer(need, call, calls.flavor);
            let _ = write!(said, " to {to}, tag {}, {on}; ", it.tag);
            said.push_str(&exchanged(it, "has begun to receive from it", calls.flavor));
        }
        What::Exposure(with) => {
            let _ = write!(
                said,
                " on {on}; rank {with} has not exposed it to rank {rank}"
            );
        }
        What::Completion(with) => {
            let _ = write!(
                said,
                " on {on}; rank {with} has not ended its accesses to the window of rank {rank}"
            );
        }
        What::Entry { ordinal, missing } => {
            let _ = write!(
                said,
                " on {on}, collective operation {ordinal}; {}",
                entered(missing)
            );
        }
        What::Other { .. } => return None,
    }
    Some(said)
}

/// Names the other rank of a need that is a message.
fn peer(need: &Need<'_>, call: &Call, flavor: Flavor) -> String {
    let of_call = match (call.function().class, &*need.what) {
        (Class::SendReceive, What::Message(_)) => call.source,
        _ => call.peer,
    };
    let number = need.pending.map_or(of_call, |pending| pending.peer);
    rank(number, Some(need.on), flavor)
}

fn request(pending: &Pending, call: &Call) -> String {
    let function = pending.function().name;
    let place = placed(pending.place.as_deref());
    if call.function().argument(Role::Requests).is_some() {
        format!(" for request {}: {function}{place}", pending.index)
    } else {
        format!(" for {function}{place}")
    }
}

/// Returns `rank 1 has sent it 0 with tag 7, and 1 with tag 8`.
fn exchanged(it: &Exchange, has: &str, flavor: Flavor) -> String {
    let count = it.others.get(&it.tag).copied().unwrap_or(0);
    let mut said = format!("rank {} {has} {count} with tag {}", it.with, it.tag);
    let mut others: Vec<(i32, u64)> = (it.others.iter())
        .map(|(tag, count)| (*tag, *count))
        .filter(|(tag, _)| *tag != it.tag)
        .collect();
    // The nearest are the most probable mistakes.
    others.sort_by_key(|(tag, _)| tag.abs_diff(it.tag));
    let more = others.len().saturating_sub(TAGS);
    others.truncate(TAGS);
    let mut parts: Vec<String> = (others.iter())
        .map(|(number, count)| format!("{count} with tag {}", tag(*number, flavor)))
        .collect();
    if more > 0 {
        let tags = if more == 1 { "tag" } else { "tags" };
        parts.push(format!("and more with {more} other {tags}"));
    }
    if !parts.is_empty() {
        let _ = write!(said, ", and {}", parts.join(", "));
    }
    said
}

/// Returns `rank 1 has begun 27`; ranks with the same number together.
fn entered(missing: &BTreeMap<u32, u64>) -> String {
    let mut by_count: BTreeMap<u64, RankSet> = BTreeMap::new();
    for (rank, count) in missing {
        by_count.entry(*count).or_default().insert(Rank(*rank));
    }
    let parts = by_count.iter().map(|(count, ranks)| {
        let have = if ranks.len() == 1 { "has" } else { "have" };
        format!("{} {have} begun {count}", who(ranks))
    });
    parts.collect::<Vec<_>>().join(", ")
}

/// Describes ranks that are in different collective operations.
fn different(proof: &Proof<'_>, stuck: &Stuck<'_>, all: &Calls) -> Option<Cause> {
    let What::Other { ordinal, variants } = &*stuck.need.what else {
        return None;
    };
    let calls = all.get(&Rank(stuck.need.on.members.get(stuck.need.on.rank)?))?;
    let on = name(stuck.need.on, calls);
    let mut ranks = RankSet::new();
    let parts = variants.iter().map(|((function, root), those)| {
        ranks = ranks.union(those);
        let mut stuck = those.iter().filter_map(|it| proof.stuck.get(&it.0));
        let place = stuck.find(|it| it.call.function().name == *function);
        let place = placed(place.and_then(|it| it.call.place.as_deref()));
        let root = root
            .map(|root| format!(" with root {root}"))
            .unwrap_or_default();
        let have = if those.len() == 1 { "has" } else { "have" };
        format!("{} {have} called {function}{place}{root}", who(those))
    });
    let parts: Vec<String> = parts.collect();
    Some(Cause {
        mistake: Mistake::DifferentCollectives,
        sentence: format!(
            "as collective operation {ordinal} of {on}, {}",
            parts.join(", and ")
        ),
        ranks,
    })
}
