//! What several processes do together: each calls, and all are answered when the last has called.
//!
//! A collective is looked up by its kind and by the members that its callers name. As soon as all of them have called, it
//! is removed from the look-up, so the next one over the same members is a new one. A process that calls again before
//! the others have called once is in the next one already. Those who construct a group may not know all of its members,
//! see [`super::construct`].
//!
//! What a loss means, of a process that has not called, or that has called and waits:
//!
//! | collective | has not called | waits |
//! |---|---|---|
//! | fence, disconnect | all get LOST_CONNECTION | no effect |
//! | connect, construct | all get LOST_CONNECTION | all get LOST_CONNECTION, since no answer may name a member that does not exist |
//! | construct, optional | it is no member | it is no member |
//! | destruct | it is not waited for | nothing |
//!
//! A collective whose members are on several nodes goes through two stages: its server waits for those on its own node,
//! and then for the servers of the others, see [`super::gather`]. What the table says of a process that has not called is
//! true for those on all nodes. Once a node has reported that all of its members have called, the loss of one of them ends
//! a connect or a construction. An optional construction goes on, and the lost process stays a member.
//!
//! There are at most as many collectives as requests that wait for one, which are bounded for each connection, plus
//! [`super::MAX_SENT`] (with [`super::MAX_SENT_BYTES`] in total) that wait for other nodes.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    mem,
};

use base::Time;
use bytes::Bytes;

use super::{
    Conn, GatherId, Output, ReplyTo, Server, is_set,
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

/// Collectives of a server that wait for other nodes at once. The callers of one more get OUT_OF_RESOURCE.
pub const MAX_SENT: usize = 4096;
/// Bytes of the names and shares of the collectives that wait for other nodes. A share that does not fit is replaced by
/// OUT_OF_RESOURCE, so that all nodes agree.
pub const MAX_SENT_BYTES: usize = 64 << 20;

/// What a collective is known by.
pub(super) type Id = (Kind, Box<[Member]>);

/// Active collectives by number.
#[derive(Debug, Default)]
pub(super) struct Collectives {
    trackers: BTreeMap<u64, Tracker>,
    /// Their numbers by what they are known by, the oldest first.
    known: BTreeMap<Id, VecDeque<u64>>,
    next: u64,
    /// How many wait for other nodes, and how many bytes these have been told for them.
    sent: usize,
    sent_bytes: usize,
}

/// One collective.
#[derive(Debug)]
pub(super) struct Tracker {
    id: Id,
    /// Members that were added after its creation.
    pub(super) added: BTreeSet<Member>,
    /// Whom on this node it still waits for.
    missing: BTreeSet<Member>,
    pub(super) arrived: Vec<Arrival>,
    pub(super) roll: Roll,
    deadline: Option<Time>,
    /// What the other nodes know it by, where there are members on others.
    pub(super) away: Option<Away>,
}

/// A collective as it leaves this node.
#[derive(Debug)]
pub(super) struct Away {
    pub(super) id: GatherId,
    /// What the name says about lost members.
    pub(super) need: Need,
    /// All nodes that have members, with this one.
    pub(super) nodes: Vec<u32>,
    pub(super) stage: Stage,
    /// The size of the name plus that of the share that was sent.
    pub(super) bytes: usize,
}

/// How far a collective over several nodes has come here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It waits for members on this node.
    Here,
    /// The same, and the other nodes have been told that it waits.
    Announced,
    /// All of them have called; it waits for the other nodes.
    Sent,
}

/// Whether it is known who takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Roll {
    Complete,
    /// `of` leaders construct the group; `left` of them have not called yet and may bring more members.
    Leaders {
        of: u64,
        left: u64,
    },
    /// The caller waits until a leader names it.
    Follower,
}

/// One process in a collective.
#[derive(Debug)]
pub(super) struct Arrival {
    /// Absent when its connection is gone.
    pub(super) reply: Option<ReplyTo>,
    pub(super) member: Member,
    /// What it says about how to do it, where that is looked at in the end.
    pub(super) infos: Vec<Info>,
}

impl Collectives {
    /// Of those of a kind and set, the oldest that a test is true of, by number.
    pub(super) fn find(&self, id: &Id, test: impl Fn(&Tracker) -> bool) -> Option<u64> {
        let mut numbers = self.known.get(id)?.iter().copied();
        numbers.find(|number| self.trackers.get(number).is_some_and(&test))
    }

    /// Of those of a kind, whatever the set, the first that a test is true of, by number.
    pub(super) fn find_kind(&self, kind: &Kind, test: impl Fn(&Tracker) -> bool) -> Option<u64> {
        let first: Id = (kind.clone(), Box::default());
        self.known
            .range(first..)
            .take_while(|((other, _), _)| other == kind)
            .flat_map(|(_, numbers)| numbers)
            .copied()
            .find(|number| self.trackers.get(number).is_some_and(&test))
    }

    /// The collectives of followers that this one still waits for, whether it names them or all ranks of their job.
    pub(super) fn followers_of(&self, number: u64) -> Vec<u64> {
        let Some(tracker) = self.trackers.get(&number) else {
            return Vec::new();
        };
        if tracker.missing.is_empty() {
            return Vec::new();
        }
        let first: Id = (tracker.id.0.clone(), Box::default());
        // Who has called twice is in the next group of this name as well.
        let mut taken = BTreeSet::new();
        let awaited = |number: &u64| {
            self.trackers.get(number).is_some_and(|other| {
                let mut arrived = other.arrived.iter().map(|arrival| arrival.member);
                other.roll == Roll::Follower
                    && arrived.any(|member| tracker.misses(member) && taken.insert(member))
            })
        };
        self.known
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
        away: Option<Away>,
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
            away,
        };
        self.trackers.insert(number, tracker);
        self.known.entry(id).or_default().push_back(number);
        number
    }

    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut Tracker> {
        self.trackers.get_mut(&number)
    }

    pub(super) fn remove(&mut self, number: u64, timers: &mut Timers) -> Option<Tracker> {
        let tracker = self.trackers.remove(&number)?;
        self.forget_name(&tracker.id, number);
        if let Some(at) = tracker.deadline {
            timers.clear(at, Timer::Collective(number));
        }
        if let Some(away) = tracker.away.as_ref().filter(|_| tracker.is_sent()) {
            self.sent -= 1;
            self.sent_bytes -= away.bytes;
        }
        Some(tracker)
    }

    /// A connection is gone: its requests need no answer. Whether its process is gone as well is told separately. Gives
    /// those that were forgotten and that other nodes may wait for.
    pub(super) fn forget(&mut self, conn: Conn, timers: &mut Timers) -> Vec<(u64, Away)> {
        let mut deserted = Vec::new();
        for (number, tracker) in &mut self.trackers {
            for arrival in &mut tracker.arrived {
                arrival.reply.take_if(|reply| reply.conn == conn);
            }
            // Nobody waits for it, so that it need not be remembered; unless others have been told that all have called.
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
            let away = self.remove(number, timers).and_then(|tracker| tracker.away);
            forgotten.extend(away.map(|away| (number, away)));
        }
        forgotten
    }

    /// Marks the collectives that wait for members on this node as announced, and returns those that were not before.
    pub(super) fn announce(&mut self) -> Vec<(u64, &Away)> {
        let mut announced = Vec::new();
        for (number, tracker) in &mut self.trackers {
            if let Some(away) = &mut tracker.away
                && away.stage == Stage::Here
            {
                away.stage = Stage::Announced;
                announced.push((*number, &*away));
            }
        }
        announced
    }

    /// The bytes that one more collective may send to other nodes; `None` if [`MAX_SENT`] is reached.
    pub(super) fn room(&self) -> Option<usize> {
        (self.sent < MAX_SENT).then(|| MAX_SENT_BYTES.saturating_sub(self.sent_bytes))
    }

    /// How long the name is by which other nodes know a collective.
    pub(super) fn name_length(&self, number: u64) -> usize {
        let away = self.trackers.get(&number).and_then(|one| one.away.as_ref());
        away.map_or(0, |away| away.id.0.len())
    }

    /// Whether a collective, by its number, waits for other nodes.
    pub(super) fn is_sent(&self, number: u64) -> bool {
        self.trackers.get(&number).is_some_and(Tracker::is_sent)
    }

    /// All members on this node have called, and the other nodes get their share, of `bytes` with the name.
    pub(super) fn send(&mut self, number: u64, bytes: usize) -> Option<&Away> {
        let tracker = self.trackers.get_mut(&number)?;
        let away = tracker.away.as_mut()?;
        away.stage = Stage::Sent;
        away.bytes = bytes;
        self.sent += 1;
        self.sent_bytes += bytes;
        // Who calls now is in the next one.
        let id = tracker.id.clone();
        self.forget_name(&id, number);
        self.trackers.get(&number)?.away.as_ref()
    }

    fn forget_name(&mut self, id: &Id, number: u64) {
        if let Some(numbers) = self.known.get_mut(id) {
            numbers.retain(|known| *known != number);
            if numbers.is_empty() {
                self.known.remove(id);
            }
        }
    }

    /// Whether this node still waits for members of its own in a collective that other nodes know by this name.
    pub(super) fn is_collecting(&self, id: &GatherId) -> bool {
        self.trackers.values().any(|tracker| {
            let away = tracker.away.as_ref();
            away.is_some_and(|away| away.stage != Stage::Sent && away.id == *id)
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.trackers.is_empty() && self.known.is_empty()
    }

    /// What the loss of a process means: those that it changes, and those that it ends.
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
            if tracker.is_sent() && tracker.spares() {
                // The others have been told that it is a member.
                continue;
            }
            if tracker.spares() {
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
    /// The members by which it is known, and those who were added.
    pub(super) fn named(&self) -> impl Iterator<Item = &Member> {
        self.id.1.iter().chain(&self.added)
    }

    /// What is done.
    pub(super) const fn kind(&self) -> &Kind {
        &self.id.0
    }

    /// Those on this node who have called.
    pub(super) fn members_here(&self) -> impl Iterator<Item = Member> {
        self.arrived.iter().map(|arrival| arrival.member)
    }

    /// Whether other nodes have been told that all on this one have called.
    pub(super) fn is_sent(&self) -> bool {
        self.away
            .as_ref()
            .is_some_and(|away| away.stage == Stage::Sent)
    }

    /// Whether it still waits for a process.
    pub(super) fn misses(&self, member: Member) -> bool {
        self.missing.contains(&member)
    }

    /// Whether a process has called.
    pub(super) fn has(&self, member: Member) -> bool {
        self.arrived.iter().any(|arrival| arrival.member == member)
    }

    /// Adds members to wait for, as far as they have not called.
    pub(super) fn await_too(&mut self, members: BTreeSet<Member>) {
        for member in members {
            if !self.has(member) {
                self.missing.insert(member);
            }
        }
    }

    /// It ends no later than this.
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

    /// Whether those in a fence want its data; INVALID_ARG when some do and others do not.
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

    /// Whether it survives the loss of a member.
    fn spares(&self) -> bool {
        match self.id.0 {
            Kind::Destruct(_) => true,
            // The directives of the callers were moved into the share.
            Kind::Construct(_) if self.is_sent() => {
                let away = self.away.as_ref();
                away.is_some_and(|away| away.need == Need::Left)
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
            // Between two calls somebody may have left the group, so that they are known by different members.
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
                // A process that is named by nobody has no part in it.
                if !present.contains(&member) {
                    return self.status(reply, Status::BAD_PARAM);
                }
                let spared = matches!(id.0, Kind::Destruct(_))
                    || matches!(id.0, Kind::Construct(_)) && is_set(&infos, keys::GROUP_OPTIONAL);
                if !gone.is_empty() && !spared {
                    return self.status(reply, Status::LOST_CONNECTION);
                }
                let away = self.away(&id, from, away, Need::All);
                self.collectives.insert(id, Roll::Complete, present, away)
            }
        };
        self.arrive(now, number, reply, member, infos);
    }

    /// A process joins a collective that may be complete by that.
    pub(super) fn arrive(
        &mut self,
        now: Time,
        number: u64,
        reply: ReplyTo,
        member: Member,
        infos: Vec<Info>,
    ) {
        let Some(tracker) = self.collectives.get_mut(number) else {
            return self.status(reply, Status::ERROR);
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
            reply: Some(reply),
            member,
            infos,
        });
        self.complete(number);
        self.say_what_waits();
    }

    /// Moves the arrivals of another collective here.
    pub(super) fn merge(&mut self, number: u64, other: Tracker) {
        if let Some(tracker) = self.collectives.get_mut(number) {
            for arrival in &other.arrived {
                tracker.missing.remove(&arrival.member);
            }
            tracker.arrived.extend(other.arrived);
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

    /// Answers everybody when nobody is missing.
    pub(super) fn complete(&mut self, number: u64) {
        let Some(tracker) = self.collectives.get_mut(number) else {
            return;
        };
        let awaited = match tracker.id.0 {
            Kind::Fence if planted::is(Bug::FenceOneEarly) => 1,
            _ => 0,
        };
        if tracker.roll != Roll::Complete || tracker.missing.len() > awaited {
            return;
        }
        if let Some(away) = &tracker.away
            && !planted::is(Bug::FenceStaysHere)
        {
            if away.stage != Stage::Sent {
                self.send_share(number);
            }
            return;
        }
        let Some(tracker) = self.collectives.remove(number, &mut self.timers) else {
            return;
        };
        match &tracker.id.0 {
            Kind::Fence => {
                let status = match tracker.collects() {
                    Ok(_) => Status::SUCCESS,
                    Err(status) => status,
                };
                self.all(tracker, status);
            }
            Kind::Construct(group) => {
                let group = group.clone();
                let mut tracker = tracker;
                let arrived = tracker.arrived.iter_mut();
                let arrived: Vec<_> = arrived
                    .map(|arrival| (arrival.member, mem::take(&mut arrival.infos)))
                    .collect();
                let members = self.joined(arrived);
                let context = Joined::want_context(&members).then(|| self.groups.context());
                self.constructed(&group, tracker, &members, context);
            }
            Kind::Connect | Kind::Disconnect | Kind::Destruct(_) => self.done(tracker),
        }
    }

    /// All members on all nodes have called, and there are no directives left to check.
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
        self.all(tracker, Status::SUCCESS);
    }

    /// Everybody is told about the jobs of the others.
    fn connected(&mut self, tracker: Tracker) {
        if !self.connect(&tracker.id.1) {
            return self.all(tracker, Status::OUT_OF_RESOURCE);
        }
        let jobs = self.jobs_of(tracker.named());
        for Arrival { reply, member, .. } in tracker.arrived {
            let others = jobs.iter().filter(|(job, _)| **job != member.job);
            if let Some(reply) = reply {
                self.tell_jobs(
                    reply,
                    others.map(|(_, nspace)| nspace),
                    |_| {},
                    Writer::nested,
                );
            }
        }
    }

    /// The jobs of members, by number.
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

    /// Answers with SUCCESS, whatever `before` writes, and the packed facts of each job.
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

    pub(super) fn all(&mut self, tracker: Tracker, status: Status) {
        for reply in tracker
            .arrived
            .into_iter()
            .filter_map(|arrival| arrival.reply)
        {
            self.answer(reply, &Answer::Status(status));
        }
    }

    /// A process will not come: those who wait for it are told, once.
    pub(super) fn on_gone(&mut self, proc: &Proc) {
        let Some(lost) = self.member_of(proc) else {
            return;
        };
        let (changed, broken) = self.collectives.lose(lost);
        self.end_all(broken, Status::LOST_CONNECTION);
        for number in changed {
            self.complete(number);
        }
        self.say_members_gone();
    }

    /// A job is over: no collective can have its processes.
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
        self.end_all(broken, Status::LOST_CONNECTION);
    }

    /// A collective has timed out.
    pub(super) fn expire_collective(&mut self, number: u64) {
        self.end_all(vec![number], Status::TIMEOUT);
    }

    pub(super) fn end_all(&mut self, numbers: Vec<u64>, status: Status) {
        for number in numbers {
            if let Some(tracker) = self.collectives.remove(number, &mut self.timers) {
                self.tell_other_nodes(number, &tracker, status);
                self.all(tracker, status);
            }
        }
    }
}
