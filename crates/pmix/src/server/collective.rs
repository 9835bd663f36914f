//! Collectives: every participant calls, and all are answered when the last one has called.
//!
//! A collective is identified by its kind and by the members that its callers name. When all of them have called, it is
//! removed from the index, so the next call over the same members starts a new one. A second call by a process,
//! before the others have made their first, joins the next collective. The callers of a group construction may not know all
//! members, see [`super::construct`].
//!
//! Effects of the loss or death of a member, before and after it has called:
//!
//! | collective | lost before it has called | lost while it waits |
//! |---|---|---|
//! | fence, disconnect | all get LOST_CONNECTION | no effect |
//! | connect, construct | all get LOST_CONNECTION | all get LOST_CONNECTION: no answer may name a lost member |
//! | construct, optional | the group is made without it | the group is made without it |
//! | destruct | the others do not wait for it | no effect |
//!
//! A collective with members on several nodes has two stages. Each server waits for the members on its own node. Then it sends
//! its share, the data of its members, and waits for the shares of the other servers, see [`super::gather`]. The column *lost
//! before it has called* applies to members on any node. Once a node has reported that all of its members have called, the loss of one of them still
//! ends a connect or a construction. An optional construction goes on, and the lost process stays a member.
//!
//! The number of collectives is bounded. A collective either waits for other nodes, or holds a pending request of some
//! connection. There are at most [`super::MAX_SENT`] of the first kind (with [`super::MAX_SENT_BYTES`] in total), and the
//! requests of each connection are bounded.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    mem,
};

use base::Time;
use bytes::Bytes;

use super::{
    Conn, GatherId, Output, QuestionTicket, ReplyTo, Server, is_set,
    member::{Expanded, Member},
    share::{Joined, Kind, Need},
    timeout,
    timers::{Timer, Timers},
};
use crate::{
    codec::Writer,
    keys,
    message::Answer,
    planted::{self, Bug},
    value::{Info, Nspace, Proc, Status},
};

/// Maximum number of collectives per server that wait for other nodes. Callers of a further one get OUT_OF_RESOURCE.
pub const MAX_SENT: usize = 4096;
/// Bytes of the ids and shares of the collectives that wait for other nodes. A share that does not fit is replaced by
/// OUT_OF_RESOURCE, so that all nodes agree.
pub const MAX_SENT_BYTES: usize = 64 << 20;

/// Identifies a collective on this server: its kind and the members that its callers name, sorted.
pub(super) type Id = (Kind, Box<[Member]>);

/// Active collectives by number.
#[derive(Debug, Default)]
pub(super) struct Collectives {
    trackers: BTreeMap<u64, Tracker>,
    /// Numbers of the collectives that wait for local members, by [`Id`], the oldest first.
    collecting: BTreeMap<Id, VecDeque<u64>>,
    next: u64,
    /// Number of collectives that wait for other nodes, and the bytes of their ids and shares.
    sent: usize,
    sent_bytes: usize,
}

/// One collective.
#[derive(Debug)]
pub(super) struct Tracker {
    id: Id,
    /// Members that were added after its creation.
    pub(super) added: BTreeSet<Member>,
    /// Members on this node that have not called.
    missing: BTreeSet<Member>,
    pub(super) arrived: Vec<Arrival>,
    pub(super) roll: Roll,
    deadline: Option<Time>,
    /// The status with which it fails when all have called, because the node of a caller cannot take part.
    refused: Option<Status>,
    /// The part that concerns other nodes; `None` if it has no members there.
    pub(super) remote: Option<RemotePart>,
}

/// The part of a collective that concerns other nodes.
#[derive(Debug)]
pub(super) struct RemotePart {
    pub(super) id: GatherId,
    /// Which members must take part for success. The id contains this too.
    pub(super) need: Need,
    /// All nodes with members, including this one, sorted.
    pub(super) nodes: Vec<u32>,
    pub(super) stage: Stage,
    /// The bytes of the id plus those of the share that was sent; 0 before.
    pub(super) bytes: usize,
}

/// The progress on this node of a collective that spans several nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Waits for members on this node.
    Here,
    /// Waits for members on this node. [`Output::Waits`] has told the other nodes so.
    Announced,
    /// Waits for the other nodes: all members on this node have called.
    Sent,
}

/// Whether the list of members is complete. The terms are those of [`super::construct`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Roll {
    Complete,
    /// `of` leaders construct the group; `left` of them have not called yet and may name more members.
    Leaders {
        of: u64,
        left: u64,
    },
    /// The caller waits until a leader names it.
    Follower,
    /// The named members are known. Members that they add call the coordinator, see [`super::coordinate`].
    Named,
}

/// The receiver of the answer to a call.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Caller {
    /// A local process.
    Here(ReplyTo),
    /// A process of another node, whose group this node coordinates.
    Node { node: u32, ticket: QuestionTicket },
}

/// One process in a collective.
#[derive(Debug)]
pub(super) struct Arrival {
    /// `None` if its connection has closed.
    pub(super) reply: Option<Caller>,
    pub(super) member: Member,
    /// Its directives, as far as they matter when the collective completes.
    pub(super) infos: Vec<Info>,
}

impl Collectives {
    /// Returns the number of the oldest collective with an id that passes a test.
    pub(super) fn find(&self, id: &Id, test: impl Fn(&Tracker) -> bool) -> Option<u64> {
        let mut numbers = self.collecting.get(id)?.iter().copied();
        numbers.find(|number| self.trackers.get(number).is_some_and(&test))
    }

    /// Returns the number of the first collective of a kind that passes a test, whatever its members.
    pub(super) fn find_kind(&self, kind: &Kind, test: impl Fn(&Tracker) -> bool) -> Option<u64> {
        let first: Id = (kind.clone(), Box::default());
        self.collecting
            .range(first..)
            .take_while(|((other, _), _)| other == kind)
            .flat_map(|(_, numbers)| numbers)
            .copied()
            .find(|number| self.trackers.get(number).is_some_and(&test))
    }

    /// Returns the collectives of followers for whom this one still waits, whether it names them or all ranks of their
    /// job.
    pub(super) fn followers_of(&self, number: u64) -> Vec<u64> {
        let Some(tracker) = self.trackers.get(&number) else {
            return Vec::new();
        };
        if tracker.missing.is_empty() {
            return Vec::new();
        }
        let first: Id = (tracker.id.0.clone(), Box::default());
        // A follower that has called twice is in the next group of this name as well.
        let mut taken = BTreeSet::new();
        let awaited = |number: &u64| {
            self.trackers.get(number).is_some_and(|other| {
                let mut arrived = other.arrived.iter().map(|arrival| arrival.member);
                other.roll == Roll::Follower
                    && arrived.any(|member| tracker.misses(member) && taken.insert(member))
            })
        };
        self.collecting
            .range(first..)
            .take_while(|((kind, _), _)| *kind == tracker.id.0)
            .flat_map(|(_, numbers)| numbers)
            .copied()
            .filter(awaited)
            .collect()
    }

    pub(super) fn insert(
        &mut self,
        id: Id,
        roll: Roll,
        missing: BTreeSet<Member>,
        remote: Option<RemotePart>,
    ) -> u64 {
        let number = self.next;
        self.next += 1;
        let tracker = Tracker {
            id: id.clone(),
            added: BTreeSet::new(),
            missing,
            arrived: Vec::new(),
            roll,
            deadline: None,
            refused: None,
            remote,
        };
        self.trackers.insert(number, tracker);
        self.collecting.entry(id).or_default().push_back(number);
        number
    }

    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut Tracker> {
        self.trackers.get_mut(&number)
    }

    pub(super) fn remove(&mut self, number: u64, timers: &mut Timers) -> Option<Tracker> {
        let tracker = self.trackers.remove(&number)?;
        self.stop_collecting(&tracker.id, number);
        if let Some(at) = tracker.deadline {
            timers.clear(at, Timer::Collective(number));
        }
        if let Some(remote) = tracker.remote.as_ref().filter(|_| tracker.is_sent()) {
            self.sent -= 1;
            self.sent_bytes -= remote.bytes;
        }
        Some(tracker)
    }

    /// Drops the requests of a closed connection. Whether its process is lost is reported separately. Returns
    /// collectives that were removed because no caller is left, if other nodes may wait for them.
    pub(super) fn forget(&mut self, conn: Conn, timers: &mut Timers) -> Vec<(u64, RemotePart)> {
        let mut deserted = Vec::new();
        for (number, tracker) in &mut self.trackers {
            for arrival in &mut tracker.arrived {
                let is_of = |caller: &mut Caller| matches!(caller, Caller::Here(reply) if reply.conn == conn);
                arrival.reply.take_if(is_of);
            }
            // Remove a collective without waiting callers, unless this node has reported that all members have called.
            if !tracker.is_sent()
                && tracker
                    .arrived
                    .iter()
                    .all(|arrival| arrival.reply.is_none())
            {
                deserted.push(*number);
            }
        }
        let mut forgotten = Vec::new();
        for number in deserted {
            let remote = self
                .remove(number, timers)
                .and_then(|tracker| tracker.remote);
            forgotten.extend(remote.map(|remote| (number, remote)));
        }
        forgotten
    }

    /// Drops the call of a process of another node. Removes its collective if no caller is left.
    pub(super) fn forget_call(&mut self, of: u32, number: QuestionTicket, timers: &mut Timers) {
        let caller = Caller::Node {
            node: of,
            ticket: number,
        };
        let found = self.trackers.iter_mut().find_map(|(number, tracker)| {
            let mut is_concerned = false;
            for arrival in &mut tracker.arrived {
                is_concerned |= arrival.reply.take_if(|one| *one == caller).is_some();
            }
            let deserted = tracker.arrived.iter().all(|one| one.reply.is_none());
            is_concerned.then(|| deserted.then_some(*number))
        });
        if let Some(Some(number)) = found {
            self.remove(number, timers);
        }
    }

    /// Returns true if a collective is active.
    pub(super) fn has(&self, number: u64) -> bool {
        self.trackers.contains_key(&number)
    }

    /// Marks the collectives that wait for members on this node as announced, and returns those that were not before.
    pub(super) fn announce(&mut self) -> Vec<(u64, &RemotePart)> {
        let mut announced = Vec::new();
        for (number, tracker) in &mut self.trackers {
            if let Some(remote) = &mut tracker.remote
                && remote.stage == Stage::Here
            {
                remote.stage = Stage::Announced;
                announced.push((*number, &*remote));
            }
        }
        announced
    }

    /// Returns the bytes that one more collective may send to other nodes; `None` if [`MAX_SENT`] is reached.
    pub(super) fn room(&self) -> Option<usize> {
        (self.sent < MAX_SENT).then(|| MAX_SENT_BYTES.saturating_sub(self.sent_bytes))
    }

    /// Returns the length in bytes of the id by which other nodes know a collective; 0 if they do not.
    pub(super) fn name_length(&self, number: u64) -> usize {
        let remote = self
            .trackers
            .get(&number)
            .and_then(|one| one.remote.as_ref());
        remote.map_or(0, |remote| remote.id.0.len())
    }

    /// Returns true if a collective waits for other nodes.
    pub(super) fn is_sent(&self, number: u64) -> bool {
        self.trackers.get(&number).is_some_and(Tracker::is_sent)
    }

    /// Marks a collective as sent: its share and id, together `bytes` long, go to the other nodes.
    pub(super) fn send(&mut self, number: u64, bytes: usize) -> Option<&RemotePart> {
        let tracker = self.trackers.get_mut(&number)?;
        let remote = tracker.remote.as_mut()?;
        remote.stage = Stage::Sent;
        remote.bytes = bytes;
        self.sent += 1;
        self.sent_bytes += bytes;
        // A call from now on belongs to the next collective.
        let id = tracker.id.clone();
        self.stop_collecting(&id, number);
        self.trackers.get(&number)?.remote.as_ref()
    }

    fn stop_collecting(&mut self, id: &Id, number: u64) {
        if let Some(numbers) = self.collecting.get_mut(id) {
            numbers.retain(|other| *other != number);
            if numbers.is_empty() {
                self.collecting.remove(id);
            }
        }
    }

    /// Returns true if this node still waits for members of its own in a collective with this id.
    pub(super) fn is_collecting(&self, id: &GatherId) -> bool {
        self.trackers.values().any(|tracker| {
            let remote = tracker.remote.as_ref();
            remote.is_some_and(|remote| remote.stage != Stage::Sent && remote.id == *id)
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.trackers.is_empty() && self.collecting.is_empty()
    }

    /// Applies the loss of a process. Returns the collectives that go on without it, and those that fail.
    fn lose(&mut self, lost: Member) -> (Vec<u64>, Vec<u64>) {
        let (mut changed, mut broken) = (Vec::new(), Vec::new());
        for (number, tracker) in &mut self.trackers {
            let awaited = tracker.missing.contains(&lost);
            let waits = || tracker.arrived.iter().any(|arrival| arrival.member == lost);
            let matters = match tracker.id.0 {
                Kind::Construct(_) | Kind::Connect => awaited || waits(),
                Kind::Fence | Kind::Disconnect | Kind::Destruct(_) => awaited,
            };
            if !matters {
                continue;
            }
            if tracker.is_sent() && tracker.survives_loss() {
                // The other nodes already know that it is a member.
                continue;
            }
            if tracker.survives_loss() {
                tracker.missing.remove(&lost);
                tracker.arrived.retain(|arrival| arrival.member != lost);
                changed.push(*number);
            } else {
                broken.push(*number);
            }
        }
        (changed, broken)
    }
}

impl Tracker {
    /// Returns the members in its id, and those added later.
    pub(super) fn named(&self) -> impl Iterator<Item = &Member> {
        self.id.1.iter().chain(&self.added)
    }

    /// Returns the kind of the collective.
    pub(super) const fn kind(&self) -> &Kind {
        &self.id.0
    }

    /// Returns the members on this node that have called.
    pub(super) fn members_here(&self) -> impl Iterator<Item = Member> {
        self.arrived.iter().map(|arrival| arrival.member)
    }

    /// Returns true if the other nodes know that all members on this node have called.
    pub(super) fn is_sent(&self) -> bool {
        self.remote
            .as_ref()
            .is_some_and(|remote| remote.stage == Stage::Sent)
    }

    /// Returns true if it still waits for a process.
    pub(super) fn misses(&self, member: Member) -> bool {
        self.missing.contains(&member)
    }

    /// Returns true if a process has called.
    pub(super) fn has(&self, member: Member) -> bool {
        self.arrived.iter().any(|arrival| arrival.member == member)
    }

    /// Makes it fail when all members have called.
    pub(super) const fn refuse(&mut self, status: Status) {
        self.refused = Some(status);
    }

    /// Returns the members by which it was created.
    pub(super) fn members(&self) -> impl Iterator<Item = &Member> {
        self.id.1.iter()
    }

    /// Adds members to wait for, as far as they have not called.
    pub(super) fn await_too(&mut self, members: &BTreeSet<Member>) {
        let arrived: BTreeSet<Member> = self.members_here().collect();
        self.missing.extend(members.difference(&arrived));
    }

    /// Sets its time-out to `deadline`, unless it has an earlier one.
    fn hasten(&mut self, number: u64, deadline: Option<Time>, timers: &mut Timers) {
        let Some(deadline) = deadline else {
            return;
        };
        if let Some(at) = self.deadline {
            if at <= deadline {
                return;
            }
            timers.clear(at, Timer::Collective(number));
        }
        timers.set(deadline, Timer::Collective(number));
        self.deadline = Some(deadline);
    }

    /// Returns true if the callers of a fence want its data; INVALID_ARG if they disagree.
    pub(super) fn collects(&self) -> Result<bool, Status> {
        let collects = |arrival: &Arrival| is_set(&arrival.infos, keys::COLLECT_DATA);
        let first = self.arrived.first().is_some_and(collects);
        let agree = self
            .arrived
            .iter()
            .all(|arrival| collects(arrival) == first);
        if agree {
            Ok(first)
        } else {
            Err(Status::INVALID_ARG)
        }
    }

    /// Returns true if it goes on without a lost member.
    fn survives_loss(&self) -> bool {
        match self.id.0 {
            Kind::Destruct(_) => true,
            // The directives of the callers are in the share now.
            Kind::Construct(_) if self.is_sent() => {
                let remote = self.remote.as_ref();
                remote.is_some_and(|remote| remote.need == Need::Remaining)
            }
            Kind::Construct(_) => self
                .arrived
                .iter()
                .any(|arrival| is_set(&arrival.infos, keys::GROUP_OPTIONAL)),
            Kind::Fence | Kind::Connect | Kind::Disconnect => false,
        }
    }
}

impl Server {
    pub(super) fn on_collective(
        &mut self,
        now: Time,
        reply: ReplyTo,
        from: &Proc,
        kind: Kind,
        procs: &[Proc],
        infos: Vec<Info>,
    ) {
        let members = match self.members(from, procs) {
            Ok(members) => members,
            Err(status) => return self.status(reply, status),
        };
        let Some(member) = self.member_of(from) else {
            return self.status(reply, Status::NOT_FOUND);
        };
        let id = (kind, members);
        let misses = |tracker: &Tracker| tracker.misses(member);
        let waiting = match id.0 {
            // A member may have left the group between two calls, so callers can name different members.
            Kind::Destruct(_) => self.collectives.find_kind(&id.0, misses),
            _ => self.collectives.find(&id, misses),
        };
        let number = match waiting {
            Some(number) => number,
            None => {
                let Expanded {
                    present,
                    gone,
                    away,
                } = match self.expand(&id.1) {
                    Ok(expanded) => expanded,
                    Err(status) => return self.status(reply, status),
                };
                // A caller that does not name itself is not a participant.
                if !present.contains(&member) {
                    return self.status(reply, Status::BAD_PARAM);
                }
                let survives_loss = matches!(id.0, Kind::Destruct(_))
                    || matches!(id.0, Kind::Construct(_)) && is_set(&infos, keys::GROUP_OPTIONAL);
                if !gone.is_empty() && !survives_loss {
                    return self.status(reply, Status::LOST_CONNECTION);
                }
                let remote = self.remote_part(&id, from, away, Need::All);
                self.collectives.insert(id, Roll::Complete, present, remote)
            }
        };
        self.arrive(now, number, Some(Caller::Here(reply)), member, infos);
    }

    /// Adds a caller to a collective, and completes it if it was the last.
    pub(super) fn arrive(
        &mut self,
        now: Time,
        number: u64,
        reply: Option<Caller>,
        member: Member,
        infos: Vec<Info>,
    ) {
        let Some(tracker) = self.collectives.get_mut(number) else {
            return self.tell_callers([reply], Status::ERROR);
        };
        tracker.missing.remove(&member);
        tracker.hasten(number, timeout(now, &infos), &mut self.timers);
        let infos = match tracker.id.0 {
            Kind::Construct(_) => infos,
            Kind::Fence => {
                let collect = |info: &Info| info.key == *keys::COLLECT_DATA;
                infos.into_iter().filter(collect).collect()
            }
            Kind::Connect | Kind::Disconnect | Kind::Destruct(_) => Vec::new(),
        };
        tracker.arrived.push(Arrival {
            reply,
            member,
            infos,
        });
        self.complete(number);
        self.say_what_waits();
    }

    /// Moves the callers of the collective `other` into this one.
    pub(super) fn merge(&mut self, number: u64, other: Tracker) {
        if let Some(tracker) = self.collectives.get_mut(number) {
            for arrival in &other.arrived {
                tracker.missing.remove(&arrival.member);
            }
            tracker.arrived.extend(other.arrived);
            tracker.refused = tracker.refused.or(other.refused);
            tracker.hasten(number, other.deadline, &mut self.timers);
        }
    }

    /// Stops waiting for a process in all collectives of a kind.
    pub(super) fn not_awaited(&mut self, kind: &Kind, member: Member) {
        while let Some(number) = self.collectives.find_kind(kind, |one| one.misses(member)) {
            if let Some(tracker) = self.collectives.get_mut(number) {
                tracker.missing.remove(&member);
            }
            self.complete(number);
        }
    }

    /// Answers all callers, or sends the share of this node, if no member is missing.
    pub(super) fn complete(&mut self, number: u64) {
        let Some(tracker) = self.collectives.get_mut(number) else {
            return;
        };
        let awaited = match tracker.id.0 {
            Kind::Fence if planted::is(Bug::FenceOneEarly) => 1,
            _ => 0,
        };
        let is_known = matches!(tracker.roll, Roll::Complete | Roll::Named);
        if !is_known || tracker.missing.len() > awaited {
            return;
        }
        let adds = tracker.roll == Roll::Named && !tracker.added.is_empty();
        if let Some(remote) = &tracker.remote
            && !planted::is(Bug::FenceStaysHere)
        {
            if remote.stage != Stage::Sent {
                self.send_share(number);
            }
            return;
        }
        let Some(tracker) = self.collectives.remove(number, &mut self.timers) else {
            return;
        };
        if let Some(status) = tracker.refused {
            return self.answer_all(tracker, status);
        }
        match &tracker.id.0 {
            Kind::Fence => {
                let status = match tracker.collects() {
                    Ok(_) => Status::SUCCESS,
                    Err(status) => status,
                };
                self.answer_all(tracker, status);
            }
            Kind::Construct(group) if adds => {
                let group = group.clone();
                let added = self.procs(&tracker.added);
                self.hand_over(None, &group, tracker, added);
            }
            Kind::Construct(group) => {
                let group = group.clone();
                let named: BTreeSet<Member> = tracker.named().copied().collect();
                let mut arrived = tracker.arrived;
                let callers: Vec<_> = arrived
                    .iter_mut()
                    .map(|arrival| (arrival.member, mem::take(&mut arrival.infos)))
                    .collect();
                let members = self.joined(callers);
                let context = Joined::want_context(&members).then(|| self.groups.next_context_id());
                self.constructed(&group, &named, arrived, &members, context);
            }
            Kind::Connect | Kind::Disconnect | Kind::Destruct(_) => self.done(tracker),
        }
    }

    /// Completes a collective without data, after all members on all nodes have called.
    pub(super) fn done(&mut self, tracker: Tracker) {
        match &tracker.id.0 {
            Kind::Fence | Kind::Construct(_) => {}
            Kind::Connect => return self.connected(tracker),
            Kind::Disconnect => self.disconnect(&tracker.id.1),
            Kind::Destruct(group) => {
                let one = tracker.arrived.first().map(|arrival| arrival.member);
                let one = one.and_then(|member| self.proc_of(member));
                self.groups.remove(group.as_c_str(), one.as_ref());
            }
        }
        self.answer_all(tracker, Status::SUCCESS);
    }

    /// Completes a connect: answers each caller with the job info of the other jobs.
    fn connected(&mut self, tracker: Tracker) {
        if !self.connect(&tracker.id.1) {
            return self.answer_all(tracker, Status::OUT_OF_RESOURCE);
        }
        let jobs = self.jobs_of(tracker.named());
        for Arrival { reply, member, .. } in tracker.arrived {
            let others = jobs.iter().filter(|(job, _)| **job != member.job);
            if let Some(Caller::Here(reply)) = reply {
                self.tell_jobs(
                    reply,
                    others.map(|(_, nspace)| nspace),
                    |_| {},
                    Writer::nested,
                );
            }
        }
    }

    /// Returns the jobs of members, by number.
    pub(super) fn jobs_of<'a>(
        &self,
        members: impl Iterator<Item = &'a Member>,
    ) -> BTreeMap<u32, Nspace> {
        let numbers: BTreeSet<u32> = members.map(|member| member.job).collect();
        numbers
            .into_iter()
            .filter_map(|job| Some((job, self.names.get(&job)?.clone())))
            .collect()
    }

    /// Answers with SUCCESS, then what `before` writes, then the packed job info of each job.
    pub(super) fn tell_jobs<'a>(
        &mut self,
        reply: ReplyTo,
        jobs: impl Iterator<Item = &'a Nspace>,
        before: impl FnOnce(&mut Writer),
        each: impl Fn(&mut Writer, &[u8]),
    ) {
        let ReplyTo { conn, tag } = reply;
        let Some(peer) = self.peers.get_mut(&conn) else {
            return;
        };
        let Some(format) = peer.known().map(|known| known.format) else {
            return;
        };
        let packed: Vec<Bytes> = jobs
            .filter_map(|job| Some(self.jobs.get_mut(job)?.packed(format, None)))
            .collect();
        let room = packed.iter().map(Bytes::len).sum();
        let bytes = peer.packed_answer(tag, room, |writer| {
            writer.item(&Status::SUCCESS);
            before(writer);
            for packed in &packed {
                each(writer, packed);
            }
        });
        if let Some(bytes) = bytes {
            self.out.push_back(Output::Send { conn, bytes });
        }
    }

    /// Answers all callers with a status.
    pub(super) fn answer_all(&mut self, tracker: Tracker, status: Status) {
        let arrived = tracker.arrived.into_iter();
        self.tell_callers(arrived.map(|arrival| arrival.reply), status);
    }

    /// Answers callers with a status, except those whose connection has closed. Callers on other nodes get failures only; one
    /// answer serves all that have one question.
    pub(super) fn tell_callers(
        &mut self,
        callers: impl IntoIterator<Item = Option<Caller>>,
        status: Status,
    ) {
        let mut told = BTreeSet::new();
        for caller in callers {
            match caller {
                Some(Caller::Here(reply)) => self.answer(reply, &Answer::Status(status)),
                Some(Caller::Node { node, ticket }) if told.insert((node, ticket)) => {
                    self.out.push_back(Output::QuestionAnswered {
                        node,
                        ticket,
                        result: Err(status),
                    });
                }
                Some(Caller::Node { .. }) | None => {}
            }
        }
    }

    /// Fails the collectives that a lost or dead process cannot take part in any more, or lets them go on without it.
    pub(super) fn on_gone(&mut self, proc: &Proc) {
        let Some(lost) = self.member_of(proc) else {
            return;
        };
        self.lose_member(lost);
        self.say_members_gone();
        self.tell_watching_nodes(proc);
    }

    /// Fails the collectives that need a member, and lets the others go on without it.
    pub(super) fn lose_member(&mut self, lost: Member) {
        let (changed, broken) = self.collectives.lose(lost);
        self.fail_all(broken, Status::LOST_CONNECTION);
        for number in changed {
            self.complete(number);
        }
    }

    /// Fails all collectives that have processes of a job that has ended.
    pub(super) fn collectives_without(&mut self, job: u32) {
        let broken = self
            .collectives
            .trackers
            .iter()
            .filter(|(_, tracker)| {
                let arrived = tracker.arrived.iter().map(|arrival| &arrival.member);
                tracker.named().chain(arrived).any(|one| one.job == job)
            })
            .map(|(number, _)| *number)
            .collect();
        self.fail_all(broken, Status::LOST_CONNECTION);
    }

    /// Fails a collective whose time-out has passed.
    pub(super) fn expire_collective(&mut self, number: u64) {
        self.fail_all(vec![number], Status::TIMEOUT);
    }

    /// Fails collectives: their callers get the status, and the other nodes are informed.
    pub(super) fn fail_all(&mut self, numbers: Vec<u64>, status: Status) {
        for number in numbers {
            if let Some(tracker) = self.collectives.remove(number, &mut self.timers) {
                self.tell_other_nodes(number, &tracker, status);
                self.answer_all(tracker, status);
            }
        }
    }
}
