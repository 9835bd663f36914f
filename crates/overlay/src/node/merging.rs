//! Messages to the root that wait a short time on each hop, so that those of a class become one.
//!
//! Often all processes send equal messages simultaneously: something is done. The owner sends such a message with a *class*
//! ([`Node::send_mergeable`]). Each process on the way keeps it for [`MERGE_MAX`] at most, merges the messages of the class with
//! the function of [`Node::merge_with`], and passes on one. The root reports it as [`Output::Merged`], with the senders.
//!
//! Merging changes neither what arrives nor the order of what one process sends:
//!
//! - *Numbers.* A merged packet has the numbers of all packets in it, and each sender keeps its own packet until the root has
//!   reported it (`delivery`). The root accepts a merged packet if each number in it is the next one of its sender, whatever the place
//!   of the sender is by now. Otherwise one of its packets has arrived on another way, after the loss of a process, or an earlier
//!   packet is missing. A merged message cannot be taken apart, so the root drops it, and the senders whose packets it still needs send them again. These are not merged, so the process ends.
//! - *Order.* The groups of a lane leave in the order in which they began, and no bulk group before a control group that began
//!   earlier. A packet first lets the groups leave that have an earlier packet of its sender, unless it may overtake them: a
//!   control packet overtakes bulk packets. A report of a loss lets all groups leave.
//!
//! | a group | event | response |
//! |---|---|---|
//! | – | a message of a class that has no group, or whose group has no room or would break the order | the group begins |
//! | waits | another message of its class | it joins the group |
//! | waits | this process and all below it are among its senders | it leaves |
//! | waits | [`MERGE_MAX`] is over, or more than [`GROUPS_MAX`] groups wait | it leaves |
//! | waits | a later packet of one of its senders, a loss below, the end of the session | it leaves, and those before it that it must not overtake |
//! | waits | the parent is lost | it is forgotten: all senders send again |
//!
//! So a process without children keeps nothing, and no timer expires if all processes send their messages.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use base::Time;
use bytes::Bytes;

use super::{Node, Output, Side, Standing};
use crate::{
    lanes::Lane,
    packet::{Address, BODY_MAX, Class, Head, Loss, Members, Number, SENDERS_MAX, Then},
    planted::{self, Bug},
};

/// Time for which a process keeps a message that it may merge with others.
pub const MERGE_MAX: Duration = Duration::from_millis(10);
/// Number of bytes of a group. What does not fit begins another one.
pub const HELD_MAX: usize = SENDERS_MAX * MESSAGE_BYTES;
/// Maximum number of groups that wait. With more the first leaves.
pub const GROUPS_MAX: usize = 64;
/// What a message counts in addition to its body.
const MESSAGE_BYTES: usize = 64;

/// The senders of a merged message, by the numbers of their packets.
pub(super) type Senders = BTreeMap<Number, BTreeSet<Address>>;

/// Messages of one class that wait.
#[derive(Debug)]
struct Group {
    lane: Lane,
    class: Class,
    /// All senders.
    members: BTreeSet<Address>,
    parts: Vec<(Senders, Bytes)>,
    bytes: usize,
    leaves_at: Time,
}

/// The groups of a process, in the order in which they leave.
#[derive(Debug, Default)]
pub(super) struct Held {
    groups: VecDeque<Group>,
}

impl Held {
    pub(super) fn deadline(&self) -> Option<Time> {
        if planted::is(Bug::HeldForgotten) {
            return None;
        }
        // All wait for the same time.
        self.groups.front().map(|group| group.leaves_at)
    }

    /// Returns the number of bytes that wait.
    pub(super) fn bytes(&self) -> u64 {
        self.groups.iter().map(|group| group.bytes as u64).sum()
    }

    /// Forgets everything: the senders will send it again.
    pub(super) fn forget(&mut self) {
        self.groups.clear();
    }

    /// Returns the position of the last group that a packet of these senders must not overtake.
    fn last_before(&self, lane: Lane, senders: &Senders) -> Option<usize> {
        self.groups.iter().rposition(|group| {
            let mut sets = senders.values();
            is_in_order(group.lane, lane) && sets.any(|one| !group.members.is_disjoint(one))
        })
    }
}

impl Node {
    /// Sends a message as [`Self::send`] does, and lets processes on the way merge it with others of the same class and lane. It
    /// may take [`MERGE_MAX`] longer on each hop.
    pub fn send_mergeable(&mut self, now: Time, lane: Lane, class: Class, body: Bytes) {
        debug_assert!(body.len() <= BODY_MAX, "a message is too long");
        if let Some(number) = self.number(lane, &body) {
            let senders = Senders::from([(number, BTreeSet::from([self.config.me]))]);
            self.hold(now, lane, class, senders, body);
        }
    }

    /// Handles a packet of a child that may be merged.
    pub(super) fn on_mergeable(
        &mut self,
        now: Time,
        peer: Address,
        lane: Lane,
        class: Class,
        packet: (&[(Number, Members)], Bytes),
    ) {
        let (of, body) = packet;
        let is_root = self.config.me == Address::ROOT;
        let mut senders = Senders::new();
        let mut is_known = !of.is_empty();
        for (number, members) in of {
            let known = self.known_senders(peer, members);
            is_known &= !known.is_empty() && known.len() == members.len();
            senders.entry(*number).or_default().extend(known);
        }
        if !is_root {
            if is_known {
                return self.hold(now, lane, class, senders, body);
            }
            let loss = "it sent a packet of processes that are not below it";
            return self.lose_link(now, peer, Loss::Broken(loss.to_owned()));
        }
        let is_next = is_known && self.on_all_numbered(now, lane, &senders, &body);
        if is_next || is_known && planted::is(Bug::MergedTakenInPart) {
            let all: BTreeSet<Address> = senders.into_values().flatten().collect();
            let mut each = all.iter();
            self.outputs.push_back(match (each.next(), each.next()) {
                (Some(&from), None) => Output::Received { from, lane, body },
                _ => Output::Merged {
                    of: all,
                    lane,
                    body,
                },
            });
        } else if !planted::is(Bug::MergedNotSentAgain) {
            // At least one of the senders has another place now, and sends its packets on another way, or an earlier packet of it
            // is missing.
            let again = self.awaited(lane, &senders);
            self.report_heard(&again, Then::Resend);
        }
    }

    /// Returns the members from which a child may pass on a packet. For the root these are all that have joined: a sender may have
    /// another place by now, and then the numbers decide. Otherwise the message of a lost process would be lost with it although its
    /// parent had it.
    fn known_senders(&self, peer: Address, members: &Members) -> BTreeSet<Address> {
        let has_joined = |who: &Address| match self.expected.get(who) {
            Some(expected) => matches!(expected.state, Standing::Joined { .. }),
            None => false,
        };
        let is_root = self.config.me == Address::ROOT;
        let below = self.links.get(&peer).map_or(0, |link| link.below.len());
        let most = if is_root {
            self.expected.len()
        } else {
            1 + below
        };
        if members.len() > most {
            return BTreeSet::new();
        }
        let known = members.iter();
        known
            .filter(|who| {
                if is_root {
                    has_joined(who)
                } else {
                    self.has(peer, *who)
                }
            })
            .collect()
    }

    /// Keeps a packet until it leaves with others.
    fn hold(&mut self, now: Time, lane: Lane, class: Class, senders: Senders, body: Bytes) {
        if self.uplink.parent().is_none() {
            // There is no way to the root. A process that returns sends again what the root has not received.
            return;
        }
        let below = self.links.values().filter(|link| link.side == Side::Child);
        let all = 1 + below.map(|link| 1 + link.below.len()).sum::<usize>();
        if all == 1 && self.held.groups.is_empty() {
            // Most processes have no children: this spares each of them the memory of a group.
            return self.pass_part(lane, class, &senders, body);
        }
        let bytes = body.len() + senders.len() * MESSAGE_BYTES;
        let last = self.held.last_before(lane, &senders);
        let groups = &mut self.held.groups;
        let takes = |(at, group): (usize, &Group)| {
            let is_same = group.lane == lane && group.class == class;
            is_same && last.is_none_or(|last| last <= at) && group.bytes + bytes <= HELD_MAX
        };
        // The first one, so that processes with several messages of a class share their groups.
        let at = groups.iter().enumerate().find(|one| takes(*one));
        let at = at.map(|(at, _)| at);
        let at = at.unwrap_or_else(|| {
            groups.push_back(Group {
                lane,
                class,
                members: BTreeSet::new(),
                parts: Vec::new(),
                bytes: 0,
                leaves_at: now + MERGE_MAX,
            });
            groups.len() - 1
        });
        let Some(group) = groups.get_mut(at) else {
            return;
        };
        group.members.extend(senders.values().flatten());
        group.bytes += bytes;
        group.parts.push((senders, body));
        if group.members.len() >= all || group.bytes >= HELD_MAX {
            self.pass_to(at, lane);
        } else if self.held.groups.len() > GROUPS_MAX {
            self.pass_to(0, Lane::Bulk);
        }
    }

    /// Lets everything leave that a packet of this process or of one below it must not overtake.
    pub(super) fn pass_before(&mut self, lane: Lane, from: Address) {
        if self.held.groups.is_empty() || planted::is(Bug::HeldOvertaken) {
            return;
        }
        let number = Number { own: 0, control: 0 };
        let senders = Senders::from([(number, BTreeSet::from([from]))]);
        if let Some(last) = self.held.last_before(lane, &senders) {
            self.pass_to(last, lane);
        }
    }

    pub(super) fn pass_all_held(&mut self) {
        for group in std::mem::take(&mut self.held.groups) {
            self.pass_group(group);
        }
    }

    /// Lets the groups leave that have waited for long enough.
    pub(super) fn on_merge_tick(&mut self, now: Time) {
        if planted::is(Bug::HeldForgotten) {
            return;
        }
        let is_due = |group: &mut Group| group.leaves_at <= now;
        while let Some(group) = self.held.groups.pop_front_if(is_due) {
            self.pass_group(group);
        }
    }

    /// Lets the groups up to this one leave that a packet of this lane must not overtake.
    fn pass_to(&mut self, at: usize, lane: Lane) {
        let groups = &mut self.held.groups;
        let until = groups.len().min(at + 1);
        let (leaving, staying): (Vec<Group>, Vec<Group>) = groups
            .drain(..until)
            .partition(|group| is_in_order(group.lane, lane));
        for group in staying.into_iter().rev() {
            groups.push_front(group);
        }
        for group in leaving {
            self.pass_group(group);
        }
    }

    /// Passes on a group, as one packet if its messages can be merged.
    fn pass_group(&mut self, group: Group) {
        let Group {
            lane, class, parts, ..
        } = group;
        let bodies: Vec<Bytes> = parts.iter().map(|(_, body)| body.clone()).collect();
        let merge = self.gathers.merge().filter(|_| bodies.len() > 1);
        let merged = merge.and_then(|merge| merge(&bodies));
        let parts = match merged.filter(|merged| merged.len() <= BODY_MAX) {
            Some(merged) => {
                let mut all = Senders::new();
                for (number, members) in parts.into_iter().flat_map(|(senders, _)| senders) {
                    all.entry(number).or_default().extend(members);
                }
                vec![(all, merged)]
            }
            None => parts,
        };
        for (senders, body) in parts {
            self.pass_part(lane, class, &senders, body);
        }
    }

    fn pass_part(&mut self, lane: Lane, class: Class, senders: &Senders, body: Bytes) {
        let of = senders.iter();
        let of = of.map(|(number, members)| (*number, Members::of(members)));
        let of = of.collect();
        self.push_up(lane, &Head::Mergeable { class, of }, body);
    }
}

/// Returns true if a packet of the first lane must not be overtaken by a later one of the second lane.
const fn is_in_order(first: Lane, second: Lane) -> bool {
    matches!((first, second), (Lane::Control, _) | (_, Lane::Bulk))
}
