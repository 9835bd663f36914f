//! Proves from recorded calls that ranks wait for each other for ever.
//!
//! # What a proof is
//!
//! A rank is *blocked* if it is in the same call of MPI in two samples: then it did nothing else between them, and what its region says
//! is true for all of that time. All ranks of the first sample are read before all ranks of the second, so there is a moment at
//! which all blocked ranks were blocked.
//!
//! A blocked rank *needs* something that only another rank can do: send the message that it receives, receive the message that it sends,
//! begin the collective operation that it is in. Whether that has been done is a comparison of two counts, which are exact, because the
//! ranks agree about the id of each communicator. A need that is met, or of which that is not known, is no need.
//!
//! The *stuck* ranks are the largest set of blocked ranks of which each needs something of another one in the set. So each rank that
//! could help one of them is itself stuck, and none of them can ever go on, whatever other ranks do. That is a proof and not a guess, with
//! two assumptions about the program: it is correct only if collective operations may wait for all members, and neither a signal handler
//! nor a callback of `MPI_Finalize` communicates.
//!
//! Waits that MPI can end by itself or that the recorder does not follow (files, locks of windows, other jobs) are no needs. A send may be
//! done although nobody has received it, because the library has a copy: it is a need only if the rank waits for nothing else.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use base::{Rank, RankSet};
use calls::{Class, Function, Role};

use super::{
    Call, Communicator, Direction, Members, Messages, Pending, RankCalls, Threading,
    is_same_operation,
};

/// Recorded calls of all ranks in one sample.
pub type Calls = BTreeMap<Rank, RankCalls>;

/// Ranks that can never go on, and why.
#[derive(Clone, Debug)]
pub struct Proof<'a> {
    /// What each of them needs of others.
    pub stuck: BTreeMap<u32, Stuck<'a>>,
    /// Ranks that never call MPI again.
    pub gone: BTreeMap<u32, Gone>,
}

/// Why a rank never calls MPI again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    /// Its `MPI_Finalize` has returned.
    Finalized,
    /// Its process has ended.
    Ended,
}

/// A rank that can never go on.
#[derive(Clone, Debug)]
pub struct Stuck<'a> {
    /// The call that it is in.
    pub call: &'a Call,
    /// The first of its needs that is never met.
    pub need: Need<'a>,
}

/// What a blocked rank needs.
#[derive(Clone, Debug)]
pub struct Need<'a> {
    /// The communicator.
    pub on: &'a Communicator,
    /// The request, if it waits for requests.
    pub pending: Option<&'a Pending>,
    /// What has to happen. Ranks that are in one collective operation share it.
    pub what: Rc<What>,
}

/// What has to happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A rank has to send another message.
    Message(Exchange),
    /// A rank has to receive another message.
    Receive(Exchange),
    /// A rank has to expose its window to this one once more.
    Exposure(u32),
    /// A rank has to end its accesses to the window of this one.
    Completion(u32),
    /// Members of the communicator have to begin a collective operation.
    Entry {
        /// The number of the operation.
        ordinal: u64,
        /// Those who have not, with the number of operations that they have begun.
        missing: BTreeMap<u32, u64>,
    },
    /// Members have begun another operation instead, so none of them can end.
    Other {
        /// The number of the operation.
        ordinal: u64,
        /// The members, by the name of the function and its root.
        variants: BTreeMap<(&'static str, Option<i32>), RankSet>,
    },
}

/// Messages between the blocked rank and another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// The other rank, in `MPI_COMM_WORLD`.
    pub with: u32,
    /// The tag.
    pub tag: i32,
    /// The number of the message that is missing, among those with this tag.
    pub ordinal: u64,
    /// Messages with any tag that the other rank has sent to this one, or begun to receive from it, and their numbers. Only in proofs.
    pub others: BTreeMap<i32, u64>,
}

/// What is known of a need.
enum Answer<'a> {
    Met,
    Unknown,
    Unmet(Need<'a>),
}

/// All ranks at the moment of a proof.
struct World<'a> {
    calls: &'a Calls,
    blocked: BTreeMap<u32, (&'a RankCalls, &'a Call)>,
    gone: BTreeMap<u32, Gone>,
    /// What is known of collective operations: all ranks in one need the same.
    entries: RefCell<BTreeMap<Operation, Entries<'a>>>,
}

/// A collective operation: id of the communicator, number, function, root.
type Operation = (u64, u64, &'static str, i32);

/// The members that were asked, and what they have to do; `None` if that is not known, or nothing.
type Entries<'a> = (&'a Members, Option<Rc<What>>);

/// Looks for ranks that can never go on. `has_only_main` tells whether no thread of a rank but its first one can call MPI.
#[must_use]
pub fn prove<'a>(
    before: &'a Calls,
    after: &'a Calls,
    has_only_main: impl Fn(Rank) -> bool,
) -> Option<Proof<'a>> {
    let mut world = World {
        calls: after,
        blocked: BTreeMap::new(),
        gone: BTreeMap::new(),
        entries: RefCell::default(),
    };
    for (rank, calls) in after {
        if calls.rank != Some(rank.0) {
            continue;
        }
        if calls.ended {
            world.gone.insert(rank.0, Gone::Ended);
        } else if calls.finalized {
            world.gone.insert(rank.0, Gone::Finalized);
        } else if let Some(call) = before.get(rank).and_then(|before| blocked(before, calls))
            && (calls.threading == Threading::Main && calls.threads.len() == 1
                || has_only_main(*rank))
        {
            world.blocked.insert(rank.0, (calls, call));
        }
    }
    world.prove()
}

/// Returns the call that a rank is in, if it was in it in an earlier sample too, and nothing was called inside it since.
fn blocked<'a>(before: &RankCalls, after: &'a RankCalls) -> Option<&'a Call> {
    let of = |call: &Call| (call.number, call.repeated, call.in_progress);
    let stands = |calls: &RankCalls| {
        let newest = calls.first_thread()?.calls.last()?;
        Some((of(calls.current()?), of(newest)))
    };
    (stands(before)? == stands(after)?)
        .then(|| after.current())
        .flatten()
}

impl<'a> World<'a> {
    fn prove(self) -> Option<Proof<'a>> {
        let needs: BTreeMap<u32, Vec<Vec<Need<'a>>>> = self
            .blocked
            .iter()
            .map(|(rank, (calls, call))| (*rank, self.needs(*rank, calls, call)))
            .collect();
        let mut stuck: BTreeSet<u32> = self.blocked.keys().copied().collect();
        // Each round removes a rank or is the last.
        loop {
            let can_go_on = |rank: &u32| self.first_need(&needs[rank], &stuck).is_none();
            let free: Vec<u32> = stuck
                .iter()
                .filter(|rank| can_go_on(rank))
                .copied()
                .collect();
            if free.is_empty() {
                break;
            }
            for rank in free {
                stuck.remove(&rank);
            }
        }
        let stuck: BTreeMap<u32, Stuck<'a>> = stuck
            .iter()
            .filter_map(|rank| {
                let need = self.with_others(self.first_need(&needs[rank], &stuck)?);
                let call = self.blocked[rank].1;
                Some((*rank, Stuck { call, need }))
            })
            .collect();
        (!stuck.is_empty()).then_some(Proof {
            stuck,
            gone: self.gone,
        })
    }

    /// Returns the first need that is never met if these ranks are stuck. Each entry of `needs` has alternatives, any of which would
    /// do.
    fn first_need<'b>(
        &self,
        needs: &'b [Vec<Need<'a>>],
        stuck: &BTreeSet<u32>,
    ) -> Option<&'b Need<'a>> {
        needs
            .iter()
            .find(|any| !any.is_empty() && any.iter().all(|need| self.is_hopeless(need, stuck)))
            .and_then(|any| any.first())
    }

    fn is_hopeless(&self, need: &Need<'_>, stuck: &BTreeSet<u32>) -> bool {
        let never = |rank: u32| stuck.contains(&rank) || self.gone.contains_key(&rank);
        match &*need.what {
            What::Message(it) | What::Receive(it) => never(it.with),
            What::Exposure(with) | What::Completion(with) => never(*with),
            What::Entry { missing, .. } => missing.keys().any(|rank| never(*rank)),
            What::Other { .. } => true,
        }
    }

    /// Adds to a need what the other rank has done with any tag.
    fn with_others(&self, need: &Need<'a>) -> Need<'a> {
        let mut need = need.clone();
        if !matches!(&*need.what, What::Message(_) | What::Receive(_)) {
            return need;
        }
        let (on, id) = (need.on, need.on.id);
        let (exchange, direction) = match Rc::make_mut(&mut need.what) {
            What::Message(exchange) => (exchange, Direction::Sent),
            What::Receive(exchange) => (exchange, Direction::Received),
            _ => return need,
        };
        let theirs = self.calls.get(&Rank(exchange.with));
        let theirs = theirs.and_then(|it| Some((it, it.with_id(id?)?)));
        if let Some((theirs, their_on)) = theirs
            && let Ok(own) = i32::try_from(on.rank)
        {
            let with_us = theirs.messages.iter().filter(|it| {
                (it.communicator, it.direction, it.peer) == (their_on.serial, direction, own)
            });
            exchange.others = with_us.map(|it| (it.tag, it.count)).collect();
        }
        need
    }

    /// Returns all that a blocked rank needs: each of the entries, and of each entry one. A rank of which nothing is known needs nothing.
    fn needs(&self, rank: u32, calls: &'a RankCalls, call: &'a Call) -> Vec<Vec<Need<'a>>> {
        if !calls.doubts.is_empty() {
            return Vec::new();
        }
        let function = call.function();
        let takes_any =
            call.peer == calls.flavor.any_source() || call.tag == calls.flavor.any_tag();
        let all = match function.class {
            Class::Receive | Class::Probe if takes_any => return self.any(rank, calls, call),
            Class::Receive => vec![self.message(
                rank,
                calls,
                call.communicator,
                (call.peer, call.tag),
                call.ordinal,
            )],
            Class::Send if is_buffered(function) => Vec::new(),
            Class::Send => vec![self.receive(
                rank,
                calls,
                call.communicator,
                (call.peer, call.tag),
                call.ordinal,
            )],
            // Only if it receives nothing, it must wait for what it sends.
            Class::SendReceive if call.source == calls.flavor.proc_null() => vec![self.receive(
                rank,
                calls,
                call.communicator,
                (call.peer, call.tag),
                call.sent,
            )],
            Class::SendReceive => vec![self.message(
                rank,
                calls,
                call.communicator,
                (call.source, call.source_tag),
                call.ordinal,
            )],
            Class::Probe => {
                let taken =
                    calls.count(call.communicator, Direction::Received, call.peer, call.tag);
                vec![self.message(
                    rank,
                    calls,
                    call.communicator,
                    (call.peer, call.tag),
                    taken.saturating_add(1),
                )]
            }
            Class::Wait => return self.requests(rank, calls, call),
            Class::Epoch if matches!(function.name, "MPI_Win_start" | "MPI_Win_complete") => {
                return self.epochs(rank, calls, call, (Direction::Started, Direction::Posted));
            }
            Class::Epoch if function.name == "MPI_Win_wait" => {
                return self.epochs(rank, calls, call, (Direction::Posted, Direction::Completed));
            }
            Class::Epoch if call.ordinal != 0 => {
                vec![self.entry(
                    calls,
                    call.communicator,
                    call.ordinal,
                    (function, call.root),
                )]
            }
            class if class.is_collective() => {
                vec![self.entry(
                    calls,
                    call.communicator,
                    call.ordinal,
                    (function, call.root),
                )]
            }
            _ => Vec::new(),
        };
        let unmet = all.into_iter().filter_map(|answer| match answer {
            Answer::Unmet(need) => Some(vec![need]),
            Answer::Met | Answer::Unknown => None,
        });
        unmet.collect()
    }

    /// A rank receives or probes a message of any rank, or with any tag: nothing that was sent to it is left, and each rank that it may
    /// come from would have to send another message.
    fn any(&self, rank: u32, calls: &'a RankCalls, call: &'a Call) -> Vec<Vec<Need<'a>>> {
        let flavor = calls.flavor;
        let Some(on) = calls
            .communicator(call.communicator)
            .filter(|on| on.counts_messages() && on.receives_at_once())
        else {
            return Vec::new();
        };
        // A receive with any tag may have taken a message of any tag: then only all messages together can be compared.
        let by_tag = call.tag != flavor.any_tag()
            && !calls
                .received(on.serial)
                .any(|it| it.tag == flavor.any_tag());
        let is_counted = |tag: i32| !by_tag || tag == call.tag;
        let received = calls.received(on.serial).filter(|it| is_counted(it.tag));
        let mut received = total(received);
        if call.function().class == Class::Receive {
            // This receive itself.
            received = received.saturating_sub(1);
        }
        let mut sent = 0_u64;
        let mut needs = Vec::new();
        let own = i32::try_from(on.rank).unwrap_or(-1);
        for (member, peer) in on.members.iter().zip(0_i32..) {
            let theirs = self
                .calls
                .get(&Rank(member))
                .filter(|it| it.doubts.is_empty());
            let theirs = theirs.and_then(|it| Some((it, it.with_id(on.id?)?)));
            let Some((theirs, their_on)) = theirs.filter(|(_, their_on)| their_on.counts_sent())
            else {
                return Vec::new();
            };
            let to_us = theirs.messages.iter().filter(|it| {
                (it.communicator, it.direction, it.peer) == (their_on.serial, Direction::Sent, own)
            });
            let counted = total(to_us.filter(|it| is_counted(it.tag)));
            sent = sent.saturating_add(counted);
            if call.peer == flavor.any_source() || call.peer == peer {
                needs.push(Need {
                    on,
                    pending: None,
                    what: Rc::new(What::Message(Exchange {
                        with: member,
                        tag: call.tag,
                        ordinal: counted.saturating_add(1),
                        others: BTreeMap::new(),
                    })),
                });
            }
        }
        // Its own messages are the last that anybody would look for.
        needs.sort_by_key(
            |need: &Need<'_>| matches!(&*need.what, What::Message(it) if it.with == rank),
        );
        let is_own = on.members.get(on.rank) == Some(rank);
        if is_own && sent <= received {
            vec![needs]
        } else {
            Vec::new()
        }
    }

    /// A rank is in an epoch of a window: each peer of its epochs (`own`) has to have begun or ended as many of the others (`wanted`).
    fn epochs(
        &self,
        rank: u32,
        calls: &'a RankCalls,
        call: &'a Call,
        (own, wanted): (Direction, Direction),
    ) -> Vec<Vec<Need<'a>>> {
        let Some(on) = calls
            .communicator(call.communicator)
            .filter(|on| !on.has_failed())
        else {
            return Vec::new();
        };
        let epochs = calls
            .messages
            .iter()
            .filter(|it| it.communicator == on.serial && it.direction == own);
        let (Ok(rank), Some(id)) = (i32::try_from(rank), on.id) else {
            return Vec::new();
        };
        let unmet = epochs.filter_map(|it| {
            let with = u32::try_from(it.peer).ok()?;
            let theirs = self
                .calls
                .get(&Rank(with))
                .filter(|it| it.doubts.is_empty())?;
            let window = theirs.with_id(id).filter(|it| !it.has_failed())?;
            (theirs.count(window.serial, wanted, rank, 0) < it.count).then(|| {
                vec![Need {
                    on,
                    pending: None,
                    what: Rc::new(match wanted {
                        Direction::Posted => What::Exposure(with),
                        _ => What::Completion(with),
                    }),
                }]
            })
        });
        unmet.collect()
    }

    fn requests(&self, rank: u32, calls: &'a RankCalls, call: &'a Call) -> Vec<Vec<Need<'a>>> {
        // Another thread might use a handle again that this call has not cleared yet.
        if calls.threads.len() > 1 {
            return Vec::new();
        }
        let answers = call.pending.iter().map(|pending| {
            let function = pending.function();
            let (with, on) = ((pending.peer, pending.tag), pending.communicator);
            let answer = match function.class {
                Class::StartReceive | Class::PrepareReceive => {
                    self.message(rank, calls, on, with, pending.ordinal)
                }
                Class::StartSend | Class::PrepareSend if !is_buffered(function) => {
                    self.receive(rank, calls, on, with, pending.ordinal)
                }
                Class::StartCollective | Class::StartCreate => {
                    self.entry(calls, on, pending.ordinal, (function, pending.root))
                }
                _ => Answer::Unknown,
            };
            match answer {
                Answer::Unmet(need) => Answer::Unmet(Need {
                    pending: Some(pending),
                    ..need
                }),
                other => other,
            }
        });
        let answers: Vec<Answer<'a>> = answers.collect();
        let all = matches!(call.function().name, "MPI_Wait" | "MPI_Waitall");
        let unmet = |answers: &[Answer<'a>]| -> Vec<Need<'a>> {
            let needs = answers.iter().filter_map(|answer| match answer {
                Answer::Unmet(need) => Some(need.clone()),
                Answer::Met | Answer::Unknown => None,
            });
            needs.collect()
        };
        if all {
            // Some of the others may be done.
            let is_sure =
                |need: &Need<'_>| need.pending.is_some_and(|it| is_never_early(it.function()));
            let sure: Vec<Vec<Need<'a>>> = unmet(&answers)
                .into_iter()
                .filter(is_sure)
                .map(|need| vec![need])
                .collect();
            if !sure.is_empty() {
                return sure;
            }
        }
        // Any request ends the call, or only one may be what it waits for.
        let unmet = unmet(&answers);
        if call.unknown > 0 || unmet.len() < answers.len() {
            return Vec::new();
        }
        vec![unmet]
    }

    /// A rank receives: its peer has to have sent as many messages.
    fn message(
        &self,
        rank: u32,
        calls: &'a RankCalls,
        serial: u32,
        with: (i32, i32),
        ordinal: u64,
    ) -> Answer<'a> {
        let on = calls.communicator(serial);
        let on = on.filter(|on| on.counts_messages());
        self.compared(rank, on, with, ordinal, (Direction::Sent, What::Message))
    }

    /// A rank sends: its peer has to have begun to receive as many messages.
    fn receive(
        &self,
        rank: u32,
        calls: &'a RankCalls,
        serial: u32,
        with: (i32, i32),
        ordinal: u64,
    ) -> Answer<'a> {
        let on = calls.communicator(serial);
        let on = on.filter(|on| on.counts_sent());
        self.compared(
            rank,
            on,
            with,
            ordinal,
            (Direction::Received, What::Receive),
        )
    }

    fn compared(
        &self,
        rank: u32,
        on: Option<&'a Communicator>,
        with: (i32, i32),
        ordinal: u64,
        (direction, what): (Direction, fn(Exchange) -> What),
    ) -> Answer<'a> {
        let Some(on) = on else {
            return Answer::Unknown;
        };
        match self.exchanged(rank, on, with, ordinal, direction) {
            Some(Some(exchange)) => Answer::Unmet(Need {
                on,
                pending: None,
                what: Rc::new(what(exchange)),
            }),
            Some(None) => Answer::Met,
            None => Answer::Unknown,
        }
    }

    /// Compares the number of a message with what its other rank has done. The outer `None`: that is not known.
    fn exchanged(
        &self,
        rank: u32,
        on: &Communicator,
        (peer, tag): (i32, i32),
        ordinal: u64,
        direction: Direction,
    ) -> Option<Option<Exchange>> {
        let with = on.members.get(u32::try_from(peer).ok()?)?;
        if ordinal == 0 || on.members.get(on.rank) != Some(rank) {
            return None;
        }
        let own = i32::try_from(on.rank).ok()?;
        let flavor = self.calls.get(&Rank(rank))?.flavor;
        // Which messages other receives have taken is not known.
        if tag == flavor.any_tag() {
            return None;
        }
        let theirs = self
            .calls
            .get(&Rank(with))
            .filter(|it| it.doubts.is_empty())?;
        let on = theirs
            .with_id(on.id?)
            .filter(|it| it.members == on.members)?;
        let is_exact = match direction {
            Direction::Sent => on.counts_sent(),
            _ => on.counts_messages(),
        };
        if !is_exact {
            return None;
        }
        let mut done = theirs.count(on.serial, direction, own, tag);
        if direction == Direction::Received {
            // Each of these may have taken a message of this rank with this tag.
            let (any_source, any_tag) = (flavor.any_source(), flavor.any_tag());
            for (peer, tag) in [(any_source, tag), (own, any_tag), (any_source, any_tag)] {
                done = done.saturating_add(theirs.count(on.serial, direction, peer, tag));
            }
        }
        if done >= ordinal {
            return Some(None);
        }
        Some(Some(Exchange {
            with,
            tag,
            ordinal,
            others: BTreeMap::new(),
        }))
    }

    /// A rank is in a collective operation: all members have to have begun it.
    fn entry(
        &self,
        calls: &'a RankCalls,
        serial: u32,
        ordinal: u64,
        (function, root): (&'static Function, i32),
    ) -> Answer<'a> {
        let found = calls.communicator(serial);
        let found = found.filter(|on| !on.is_between() && !on.has_failed());
        let Some((on, id)) = found.and_then(|on| Some((on, on.id?))) else {
            return Answer::Unknown;
        };
        let operation = (id, ordinal, function.name, root);
        let known = self.entries.borrow().get(&operation).cloned();
        let what = match known.filter(|(members, _)| *members == &on.members) {
            Some((_, what)) => what,
            None => {
                let what = self.entered(on, operation, function).map(Rc::new);
                let entries = (&on.members, what.clone());
                self.entries.borrow_mut().insert(operation, entries);
                what
            }
        };
        what.map_or(Answer::Unknown, |what| {
            Answer::Unmet(Need {
                on,
                pending: None,
                what,
            })
        })
    }

    /// Returns what members have to do in a collective operation; `None` if all have begun it, or it is not known who has.
    fn entered(
        &self,
        on: &Communicator,
        (id, ordinal, _, root): Operation,
        function: &'static Function,
    ) -> Option<What> {
        let mut missing = BTreeMap::new();
        let mut variants: BTreeMap<(&'static str, Option<i32>), RankSet> = BTreeMap::new();
        let rooted = |function: &Function, root| function.argument(Role::Root).map(|_| root);
        for member in on.members.iter() {
            let theirs = self
                .calls
                .get(&Rank(member))
                .filter(|it| it.doubts.is_empty())?;
            let theirs = theirs
                .with_id(id)
                .filter(|it| it.members == on.members && !it.has_failed())?;
            if theirs.collectives < ordinal {
                missing.insert(member, theirs.collectives);
            } else if let Some((other, their_root)) = theirs.collective(ordinal) {
                let name = if is_same_operation(function, other) {
                    function.name
                } else {
                    other.name
                };
                let variant = variants.entry((name, rooted(other, their_root)));
                variant.or_default().insert(Rank(member));
            }
        }
        let own = (function.name, rooted(function, root));
        if variants.keys().any(|variant| *variant != own) {
            return Some(What::Other { ordinal, variants });
        }
        (!missing.is_empty()).then_some(What::Entry { ordinal, missing })
    }
}

/// Returns whether a send never waits for its receive.
fn is_buffered(function: &Function) -> bool {
    ["MPI_Bsend", "MPI_Ibsend"]
        .iter()
        .any(|name| function.name.starts_with(name))
}

/// Returns whether a request of a function is done only when others have done their part.
fn is_never_early(function: &Function) -> bool {
    match function.class {
        Class::StartReceive | Class::PrepareReceive | Class::StartCreate => true,
        Class::StartSend | Class::PrepareSend => ["MPI_Issend", "MPI_Ssend"]
            .iter()
            .any(|name| function.name.starts_with(name)),
        _ => function.name == "MPI_Ibarrier",
    }
}

/// Returns how many messages there are together.
fn total<'m>(messages: impl Iterator<Item = &'m Messages>) -> u64 {
    messages.fold(0, |sum, it| sum.saturating_add(it.count))
}
