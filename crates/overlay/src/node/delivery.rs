//! Numbers from end to end, so that a message outlives each process between its sender and its receiver.
//!
//! A lane delivers exactly once between two processes. A process between the root and another one may die with messages that
//! it has received and not passed on. So the sender keeps each message until its receiver has reported it:
//!
//! - *To the root.* A process numbers its messages, and the root accepts them only in their order. The root reports what it has
//!   received ([`Head::Heard`]). If a process gets another place, the root lets it and everybody below it send the rest
//!   again ([`Then::Resend`]).
//! - *From the root.* The root numbers its casts. A process reports up to which number it and everybody below it have received
//!   them ([`Head::Done`]), on the bulk lane and behind the losses that it has reported. So the root forgets no cast that an
//!   orphan may need. A process that gets another place says what it has received, and the root sends the rest again.
//!
//! Reports follow after [`REPORT_BYTES`] or a third of a lease, so an idle tree sends none.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use base::Time;
use bytes::Bytes;

use super::{Link, Node, Side, gather::Asked, merging::Senders};
use crate::{
    lanes::Lane,
    packet::{Address, HEARD_MAX, Head, Loss, Members, Number, Purpose, Then},
    planted::{self, Bug},
};

/// Number of received bytes after which a receiver reports them.
const REPORT_BYTES: u64 = 256 * 1024;
/// What a message counts in addition to its body.
const MESSAGE_BYTES: u64 = 64;
/// Number of bytes that a process keeps for the root. With more it has no room for another message.
pub const OUTBOX_MAX: u64 = 4 * 1024 * 1024;
/// Number of bytes of casts that the root keeps. With more it forgets the oldest, and a process that would need them
/// cannot return.
pub const CASTS_MAX: u64 = 64 * 1024 * 1024;
/// Number of casts that a child may leave unreported on one lane before its link is given up.
pub const UNREPORTED_MAX: usize = 1 << 20;

const fn size(body: &Bytes) -> u64 {
    body.len() as u64 + MESSAGE_BYTES
}

/// The messages of this process that the root may not have received.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    kept: [VecDeque<(Number, Bytes)>; 2],
    sent: [u64; 2],
    bytes: u64,
}

impl Outbox {
    fn add(&mut self, lane: Lane, body: &Bytes) -> Number {
        let control = self.sent[Lane::Control.index()];
        let own = &mut self.sent[lane.index()];
        *own += 1;
        let number = Number { own: *own, control };
        self.kept[lane.index()].push_back((number, body.clone()));
        self.bytes += size(body);
        number
    }

    fn forget(&mut self, received: [u64; 2]) {
        for (kept, received) in self.kept.iter_mut().zip(received) {
            while let Some((number, body)) = kept.front()
                && number.own <= received
            {
                self.bytes -= size(body);
                kept.pop_front();
            }
        }
    }

    /// Returns the number of bytes that are kept.
    pub(super) const fn kept(&self) -> u64 {
        self.bytes
    }

    const fn is_full(&self) -> bool {
        self.bytes >= OUTBOX_MAX
    }
}

/// What the root has received of one process.
#[derive(Debug, Default)]
struct Heard {
    received: [u64; 2],
    /// Number of bytes since the last report.
    bytes: u64,
}

/// Returns true if this is the number of the next packet of a sender.
const fn is_next(received: [u64; 2], lane: Lane, number: Number) -> bool {
    number.own == received[lane.index()] + 1
        && (matches!(lane, Lane::Control) || number.control <= received[Lane::Control.index()])
}

impl Heard {
    /// Returns true if this is the next packet of its sender. Another one was received before, or follows one that was lost
    /// and will be sent again.
    fn accept(&mut self, lane: Lane, number: Number) -> bool {
        let is_next = is_next(self.received, lane, number);
        if planted::is(Bug::NumbersIgnored) {
            self.received[lane.index()] = number.own;
            return true;
        }
        if is_next {
            self.received[lane.index()] = number.own;
        }
        is_next
    }
}

/// At the root, what it has received, and which senders do not know it yet.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    of: BTreeMap<Address, Heard>,
    unreported: BTreeSet<Address>,
    due: Option<Time>,
}

#[derive(Debug)]
struct Kept {
    number: u64,
    to: Members,
    purpose: Purpose,
    body: Bytes,
}

/// The casts. At the root, those that somebody may not have received; at another process, how many were received.
#[derive(Debug, Default)]
pub(super) struct Casts {
    /// The number of the last cast on each lane: of this process at the root, received elsewhere.
    last: [u64; 2],
    kept: [VecDeque<Kept>; 2],
    bytes: u64,
    /// The last cast that was forgotten for lack of room.
    forgotten: [u64; 2],
    /// What was reported to the parent.
    reported: [u64; 2],
    /// Bytes received since the last report.
    unreported: u64,
    due: Option<Time>,
}

impl Casts {
    /// Returns the number of bytes that are kept.
    pub(super) const fn kept(&self) -> u64 {
        self.bytes
    }

    pub(super) const fn seen(&self) -> [u64; 2] {
        self.last
    }

    /// Returns true if the root has forgotten a cast that a process has not seen.
    pub(super) fn are_gone(&self, seen: [u64; 2]) -> bool {
        (0..2).any(|lane| self.forgotten[lane] > seen[lane])
    }

    fn keep(&mut self, lane: Lane, kept: Kept) {
        self.bytes += size(&kept.body);
        self.kept[lane.index()].push_back(kept);
        while self.bytes > CASTS_MAX {
            // The longer queue has the bytes.
            let longer = usize::from(self.kept[1].len() >= self.kept[0].len());
            let Some(oldest) = self.kept[longer].pop_front() else {
                return;
            };
            self.forgotten[longer] = oldest.number;
            self.bytes -= size(&oldest.body);
        }
    }

    fn forget(&mut self, done: [u64; 2]) {
        for (kept, done) in self.kept.iter_mut().zip(done) {
            while let Some(first) = kept.front()
                && first.number <= done
            {
                self.bytes -= size(&first.body);
                kept.pop_front();
            }
        }
    }
}

impl Node {
    /// Sends a message of at most [`BODY_MAX`](crate::BODY_MAX) bytes to the root. Nothing is sent at the root itself, nor
    /// before [`Output::Ready`](super::Output::Ready) and after [`Output::Abandoned`](super::Output::Abandoned).
    pub fn send(&mut self, lane: Lane, body: Bytes) {
        debug_assert!(body.len() <= crate::BODY_MAX, "a message is too long");
        if let Some(number) = self.number(lane, &body) {
            let from = self.config.me;
            self.pass_before(lane, from);
            self.push_up(lane, &Head::Up { from, number }, body);
        }
    }

    /// Keeps a message for the root and returns its number; `None` if this process cannot send.
    pub(super) fn number(&mut self, lane: Lane, body: &Bytes) -> Option<Number> {
        let can_send = self.config.me != Address::ROOT && self.has_place;
        can_send.then(|| self.outbox.add(lane, body))
    }

    /// Returns true if the way to the root takes another message without a growing queue.
    #[must_use]
    pub fn has_room(&self) -> bool {
        Lane::ALL.into_iter().all(|lane| self.takes(lane)) && !self.outbox.is_full()
    }

    /// Sends a message of at most [`BODY_MAX`](crate::BODY_MAX) bytes from the root to these members. Those that were lost do
    /// not get it.
    pub fn cast(&mut self, now: Time, to: &BTreeSet<Address>, lane: Lane, body: &Bytes) {
        self.cast_for(now, to, lane, Purpose::Message, body);
    }

    pub(super) fn cast_for(
        &mut self,
        now: Time,
        to: &BTreeSet<Address>,
        lane: Lane,
        purpose: Purpose,
        body: &Bytes,
    ) {
        self.casts.last[lane.index()] += 1;
        let number = self.casts.last[lane.index()];
        let is_awaited = to.iter().any(|one| self.orphans.contains_key(one));
        if self.pass_down(now, to, lane, number, purpose, body) || is_awaited {
            let kept = Kept {
                number,
                to: Members::of(to),
                purpose,
                body: body.clone(),
            };
            self.casts.keep(lane, kept);
        }
    }

    /// Passes a cast to the children; returns false if no child gets it.
    fn pass_down(
        &mut self,
        now: Time,
        to: &BTreeSet<Address>,
        lane: Lane,
        number: u64,
        purpose: Purpose,
        body: &Bytes,
    ) -> bool {
        let mut slow = Vec::new();
        let mut is_passed = false;
        let last = self.links.last_key_value().map(|(peer, _)| *peer);
        for (peer, link) in &mut self.links {
            if link.side == Side::Parent
                || planted::is(Bug::LastChildForgotten) && last == Some(*peer)
            {
                continue;
            }
            let mine: Vec<Address> = if to.len() == 1 {
                let one = to
                    .iter()
                    .filter(|one| *one == peer || link.below.contains(one));
                one.copied().collect()
            } else {
                let below = link.below.intersection(to).copied();
                to.get(peer).copied().into_iter().chain(below).collect()
            };
            if mine.is_empty() {
                continue;
            }
            let mine = if planted::is(Bug::CastToAllBelow) {
                std::iter::once(peer).chain(&link.below).copied().collect()
            } else {
                mine
            };
            is_passed = true;
            let to = Members::of(&mine);
            if !link.push_cast(lane, to, number, purpose, body.clone()) {
                slow.push(*peer);
            }
        }
        for peer in slow {
            self.lose_link(now, peer, Loss::Slow);
        }
        is_passed
    }

    /// Handles a cast that has arrived; returns true if it is for this process.
    pub(super) fn on_cast(
        &mut self,
        now: Time,
        to: &Members,
        lane: Lane,
        number: u64,
        purpose: Purpose,
        body: &Bytes,
    ) -> bool {
        let last = &mut self.casts.last[lane.index()];
        if number <= *last {
            return false;
        }
        *last = number;
        self.casts.unreported += size(body);
        let third = self.config.timing.lease / 3;
        self.casts.due.get_or_insert(now + third);
        let children = self
            .links
            .iter()
            .filter(|(_, link)| link.side == Side::Child);
        let known = children.flat_map(|(peer, link)| std::iter::once(peer).chain(&link.below));
        let below = to.among(known);
        if !below.is_empty() {
            self.pass_down(now, &below, lane, number, purpose.below(), body);
        }
        let is_for_us = to.contains(self.config.me);
        let asked = if is_for_us { Asked::Yes } else { Asked::No };
        self.on_purpose(now, lane, purpose, &below, asked);
        is_for_us
    }

    /// Handles a child's report of the casts that it and everybody below it have received.
    pub(super) fn on_done(&mut self, peer: Address, casts: [u64; 2]) {
        if let Some(link) = self.links.get_mut(&peer) {
            for (unreported, done) in link.unreported.iter_mut().zip(casts) {
                while unreported.front().is_some_and(|first| *first <= done) {
                    unreported.pop_front();
                }
            }
        }
        self.forget_casts();
    }

    /// Forgets at the root the casts that everybody has received.
    pub(super) fn forget_casts(&mut self) {
        if self.config.me == Address::ROOT && self.orphans.is_empty() {
            let done = self.done();
            self.casts.forget(done);
        }
    }

    /// Returns the numbers of the last casts that this process and everybody below it have received.
    fn done(&self) -> [u64; 2] {
        let mut done = self.casts.last;
        if planted::is(Bug::DoneTooEarly) {
            return done;
        }
        let children = self.links.values().filter(|link| link.side == Side::Child);
        for link in children {
            for (done, unreported) in done.iter_mut().zip(&link.unreported) {
                if let Some(first) = unreported.front() {
                    *done = (*done).min(first - 1);
                }
            }
        }
        done
    }

    /// Handles a packet that has arrived at the root; returns true if it is the next one of its sender.
    pub(super) fn on_numbered(
        &mut self,
        now: Time,
        from: Address,
        lane: Lane,
        number: Number,
        body: &Bytes,
    ) -> bool {
        let heard = self.inbox.of.entry(from).or_default();
        if !heard.accept(lane, number) {
            return false;
        }
        self.report_later(now, from, size(body));
        true
    }

    /// Handles a packet that has arrived at the root and was merged; returns true if each packet in it is the next one of its
    /// sender. Otherwise none is accepted.
    pub(super) fn on_all_numbered(
        &mut self,
        now: Time,
        lane: Lane,
        senders: &Senders,
        body: &Bytes,
    ) -> bool {
        let mut after: BTreeMap<Address, [u64; 2]> = BTreeMap::new();
        for (number, members) in senders {
            for member in members {
                let before = || self.received_of(*member);
                let received = after.entry(*member).or_insert_with(before);
                if !is_next(*received, lane, *number) {
                    return false;
                }
                received[lane.index()] = number.own;
            }
        }
        let bytes = MESSAGE_BYTES + body.len() as u64 / after.len().max(1) as u64;
        for (member, received) in after {
            self.inbox.of.entry(member).or_default().received = received;
            self.report_later(now, member, bytes);
        }
        true
    }

    /// Returns the senders that have to send again after a merged packet was dropped: those whose next packet is in it. If an
    /// earlier packet of a sender is missing, that sender has already been asked.
    pub(super) fn awaited(&self, lane: Lane, senders: &Senders) -> BTreeSet<Address> {
        let all = senders.iter().flat_map(|(number, members)| {
            let is_next = |one: &&Address| is_next(self.received_of(**one), lane, *number);
            members.iter().filter(is_next)
        });
        all.copied().collect()
    }

    fn received_of(&self, member: Address) -> [u64; 2] {
        self.inbox
            .of
            .get(&member)
            .map_or([0; 2], |heard| heard.received)
    }

    /// Reports at the root later that a packet of a process has arrived.
    fn report_later(&mut self, now: Time, from: Address, bytes: u64) {
        let heard = self.inbox.of.entry(from).or_default();
        heard.bytes += bytes;
        if heard.bytes >= REPORT_BYTES {
            self.inbox.unreported.remove(&from);
            self.report_heard(&[from].into(), Then::Forget);
        } else {
            self.inbox.unreported.insert(from);
            let third = self.config.timing.lease / 3;
            self.inbox.due.get_or_insert(now + third);
        }
    }

    /// Tells these members at the root how many packets of each have arrived.
    pub(super) fn report_heard(&mut self, members: &BTreeSet<Address>, then: Then) {
        let mut received = Vec::with_capacity(members.len());
        for member in members {
            let heard = self.inbox.of.entry(*member).or_default();
            heard.bytes = 0;
            received.push((*member, heard.received));
        }
        self.pass_heard(&received, then);
    }

    /// Forgets at the root how many packets of a lost process have arrived.
    pub(super) fn forget_heard(&mut self, member: Address) {
        self.inbox.of.remove(&member);
        self.inbox.unreported.remove(&member);
    }

    fn pass_heard(&mut self, received: &[(Address, [u64; 2])], then: Then) {
        if planted::is(Bug::HeardNotTold) && then == Then::Forget {
            return;
        }
        for (peer, link) in &mut self.links {
            if link.side == Side::Parent {
                continue;
            }
            let mine = received
                .iter()
                .filter(|(who, _)| who == peer || link.below.contains(who));
            let mine: Vec<(Address, [u64; 2])> = mine.copied().collect();
            for part in mine.chunks(HEARD_MAX) {
                let received = part.to_vec();
                link.push(Lane::Control, &Head::Heard { received, then }, Bytes::new());
            }
        }
    }

    /// Handles what the root has received of this process and of those below it.
    pub(super) fn on_heard(&mut self, received: &[(Address, [u64; 2])], then: Then) {
        let me = self.config.me;
        if let Some((_, mine)) = received.iter().find(|(who, _)| *who == me) {
            self.outbox.forget(*mine);
            if then == Then::Resend && !planted::is(Bug::NotSentAgain) {
                self.send_again();
            }
        }
        self.pass_heard(received, then);
    }

    fn send_again(&mut self) {
        self.pass_all_held();
        let from = self.config.me;
        let parent = self.uplink.parent();
        let Some(link) = parent.and_then(|parent| self.links.get_mut(&parent)) else {
            return;
        };
        for lane in Lane::ALL {
            for (number, body) in &self.outbox.kept[lane.index()] {
                let number = *number;
                link.push(lane, &Head::Up { from, number }, body.clone());
            }
        }
    }

    /// Sends a child the casts that it has not seen. Those that it has seen may not have reached everybody below it. Returns
    /// false if they are too many.
    pub(super) fn cast_again(&mut self, peer: Address, seen: [u64; 2]) -> bool {
        let link = self.links.get_mut(&peer);
        let Some(link) = link.filter(|_| !planted::is(Bug::NotCastAgain)) else {
            return true;
        };
        for lane in Lane::ALL {
            let seen = seen[lane.index()];
            let kept = self.casts.kept[lane.index()].iter();
            for cast in kept {
                let mine = cast.to.among(std::iter::once(&peer).chain(&link.below));
                if mine.is_empty() {
                    continue;
                }
                if cast.number <= seen {
                    if planted::is(Bug::SeenTakenForDone) {
                        continue;
                    }
                    link.unreported[lane.index()].push_back(cast.number);
                    continue;
                }
                let to = Members::of(&mine);
                let (number, body) = (cast.number, cast.body.clone());
                if !link.push_cast(lane, to, number, cast.purpose, body) {
                    return false;
                }
            }
        }
        true
    }

    /// Begins again with reports to another parent, which knows of none.
    pub(super) fn restart_reports(&mut self, now: Time) {
        self.casts.reported = [0; 2];
        self.casts.due = Some(now);
    }

    /// Sends the reports that are due.
    pub(super) fn report(&mut self, now: Time) {
        let third = self.config.timing.lease / 3;
        if self.inbox.due.is_some_and(|due| due <= now) {
            self.inbox.due = None;
            let members = std::mem::take(&mut self.inbox.unreported);
            self.report_heard(&members, Then::Forget);
        }
        let is_due = self.casts.due.is_some_and(|due| due <= now);
        if (is_due || self.casts.unreported >= REPORT_BYTES) && self.uplink.parent().is_some() {
            let casts = self.done();
            let is_news = casts != self.casts.reported;
            if is_news {
                self.casts.reported = casts;
                self.casts.unreported = 0;
                self.push_up(Lane::Bulk, &Head::Done { casts }, Bytes::new());
            }
            if is_news || is_due {
                self.casts.due = (casts != self.casts.last).then_some(now + third);
            }
        }
    }

    /// Returns the number of bytes that this process keeps for others.
    #[cfg(test)]
    pub(super) const fn kept(&self) -> u64 {
        self.outbox.bytes + self.casts.bytes
    }

    pub(super) fn report_deadline(&self) -> Option<Time> {
        // A process without a way to the root reports when it has one.
        let casts = self.casts.due.filter(|_| self.uplink.parent().is_some());
        self.inbox.due.into_iter().chain(casts).min()
    }
}

impl Link {
    /// Queues a cast; returns false if the peer has too much to read, or does not report what it has read.
    fn push_cast(
        &mut self,
        lane: Lane,
        to: Members,
        number: u64,
        purpose: Purpose,
        body: Bytes,
    ) -> bool {
        let unreported = &mut self.unreported[lane.index()];
        unreported.push_back(number);
        let is_reporting = unreported.len() <= UNREPORTED_MAX;
        let head = Head::Down {
            to,
            number,
            purpose,
        };
        self.push(lane, &head, body) && is_reporting
    }
}
