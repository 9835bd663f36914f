//! Collectives: operations in which several processes take part. Every member requests the operation (it *calls*), and all
//! callers get their answers when the last member has called.
//!
//! The kinds of collectives are fence, connect, disconnect, and the construction and destruction of a group. A collective
//! is identified by its kind and, except for destructions and groups with leaders, by the members that its callers name.
//! Once all members have called, it accepts no more calls: a further call over the same members starts the next collective. If a process
//! calls twice before another member has called once, its second call also belongs to the next collective.
//!
//! In a group construction, a caller might know only some of the members. A *leader* names itself and some other members, and says
//! how many leaders there are. A *follower* names no members, and waits until another caller names it. The server of
//! node 0, the *coordinator*, collects such calls from all nodes, see [`super::construct`] and [`super::coordinate`].
//!
//! A member is *lost* when its process has ended, or when its connection has broken and it has not reconnected in time:
//!
//! | collective | the member had not called | the member had called, and others had not |
//! |---|---|---|
//! | fence, disconnect | all callers get LOST_CONNECTION | no effect |
//! | connect, construct | all callers get LOST_CONNECTION | all callers get LOST_CONNECTION: no answer may name a lost member |
//! | construct with GROUP_OPTIONAL | the group is made without it | the group is made without it |
//! | destruct | the other members do not wait for it | no effect |
//!
//! If the members are on several nodes, a collective has two phases, see [`super::gather`]. First, each server waits for
//! the members on its own node. Then it sends its *share* to the other servers, and waits for their shares. The share says
//! that the members on that node have called, and contains their data ([`super::share::Share`]).
//!
//! The table applies to members on any node, with one exception. If a member is lost after its node has sent the share, a
//! construction with GROUP_OPTIONAL continues, but the lost process stays a member.
//!
//! The number of collectives is bounded: each of them either has sent its share or holds an unanswered request. The shares
//! are bounded by [`MAX_SENT`] and [`MAX_SENT_BYTES`], and unanswered requests by a limit for each connection.

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

/// Maximum number of collectives that have sent their share and wait for other nodes. Further ones get OUT_OF_RESOURCE.
pub const MAX_SENT: usize = 4096;
/// Maximum total size in bytes of the ids and shares of all collectives that have sent their share. If a share would
/// exceed it, the server sends OUT_OF_RESOURCE as its share, so that the collective fails on all nodes.
pub const MAX_SENT_BYTES: usize = 64 << 20;

/// Key of a collective on this server: its kind and the members that its callers name, sorted. The list of members is
/// empty if leaders construct a group, because each of them may name different members.
pub(super) type Id = (Kind, Box<[Member]>);

/// Active collectives by number. A number is valid on this server only, and is never reused.
#[derive(Debug, Default)]
pub(super) struct Collectives {
    trackers: BTreeMap<u64, Tracker>,
    /// Numbers of the collectives that still accept calls, by [`Id`], the oldest first.
    collecting: BTreeMap<Id, VecDeque<u64>>,
    next: u64,
    /// Number of collectives in [`Stage::Sent`], at most [`MAX_SENT`].
    sent: usize,
    /// Total of [`RemotePart::bytes`] over these collectives, at most [`MAX_SENT_BYTES`].
    sent_bytes: usize,
}

/// One collective.
#[derive(Debug)]
pub(super) struct Tracker {
    id: Id,
    /// Members that callers of a construction have added, or that leaders have named. Empty for other kinds.
    pub(super) added: BTreeSet<Member>,
    /// Members on this node that have not called; on the coordinator of a construction, those on any node.
    missing: BTreeSet<Member>,
    pub(super) arrived: Vec<Arrival>,
    pub(super) roster: Roster,
    deadline: Option<Time>,
    /// Error that all callers get once all members have called; normally `None`. The coordinator sets it if the
    /// server of a caller has no room for the group or for the call.
    refused: Option<Status>,
    /// The part that concerns other nodes. `None` if this server itself waits for all members, as the coordinator does.
    pub(super) remote: Option<RemotePart>,
}

/// The part of a collective that concerns other nodes. Their servers know the collective by its [`GatherId`].
#[derive(Debug)]
pub(super) struct RemotePart {
    pub(super) id: GatherId,
    /// Whether a lost member makes the collective fail. This is also part of the id.
    pub(super) need: Need,
    /// Nodes with members, including this one, in ascending order.
    pub(super) nodes: Vec<u32>,
    pub(super) stage: Stage,
    /// Size of the id and of this node's share together; 0 until the share is sent.
    pub(super) bytes: usize,
}

/// The progress on this node of a collective that spans several nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// This server waits for members on its own node.
    Here,
    /// This server waits for members on its own node, and has reported that by [`Output::Waits`].
    Announced,
    /// All members on this node have called. This server has sent its share, and waits for the shares of other nodes.
    Sent,
}

/// What this server knows about the members. Only group constructions can begin without knowing all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Roster {
    /// All members are known.
    Complete,
    /// `total` leaders construct the group. `outstanding` of them have not called yet, and may name more members.
    Leaders { total: u64, outstanding: u64 },
    /// The only caller is a follower. It has a collective of its own until another caller names it.
    Follower,
    /// The members in the id are known, and this server waits for those on its node. If callers have added members, the
    /// coordinator then waits for the added ones, see [`super::coordinate`].
    Named,
}

/// The receiver of the answer to a call.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Caller {
    /// A process on this node.
    Here(ReplyTo),
    /// A process on another node, which has called this coordinator. Calls sent in one message have the same ticket.
    Node { node: u32, ticket: QuestionTicket },
}

/// A process that has called in a collective.
#[derive(Debug)]
pub(super) struct Arrival {
    /// The receiver of the answer; `None` if the process has closed its connection or withdrawn its call.
    pub(super) reply: Option<Caller>,
    pub(super) member: Member,
    /// The directives that matter when the collective completes. A construction moves them into the share that it sends.
    pub(super) infos: Vec<Info>,
}

impl Collectives {
    /// Returns the number of the oldest collective that has this id, still accepts calls and passes the test.
    pub(super) fn find(&self, id: &Id, test: impl Fn(&Tracker) -> bool) -> Option<u64> {
        let mut numbers = self.collecting.get(id)?.iter().copied();
        numbers.find(|number| self.trackers.get(number).is_some_and(&test))
    }

    /// Returns the number of a collective of this kind, with any members, that still accepts calls and passes the test.
    pub(super) fn find_kind(&self, kind: &Kind, test: impl Fn(&Tracker) -> bool) -> Option<u64> {
        let first: Id = (kind.clone(), Box::default());
        self.collecting
            .range(first..)
            .take_while(|((other, _), _)| other == kind)
            .flat_map(|(_, numbers)| numbers)
            .copied()
            .find(|number| self.trackers.get(number).is_some_and(&test))
    }

    /// Returns the [`Roster::Follower`] collectives of this group that have a caller for which this collective waits.
    pub(super) fn followers_of(&self, number: u64) -> Vec<u64> {
        let Some(tracker) = self.trackers.get(&number) else {
            return Vec::new();
        };
        if tracker.missing.is_empty() {
            return Vec::new();
        }
        let first: Id = (tracker.id.0.clone(), Box::default());
        // A follower that has called twice has two collectives: the second is for the next group of this name.
        let mut taken = BTreeSet::new();
        let awaited = |number: &u64| {
            self.trackers.get(number).is_some_and(|other| {
                let mut arrived = other.arrived.iter().map(|arrival| arrival.member);
                other.roster == Roster::Follower
                    && arrived.any(|member| tracker.awaits(member) && taken.insert(member))
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
        roster: Roster,
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
            roster,
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

    /// Drops the requests of a closed connection. Removes each collective without a caller to answer, unless its share was
    /// sent. Returns the removed collectives with members on other nodes. The process may still reconnect: if it does not,
    /// [`Server::on_gone`] handles its loss.
    pub(super) fn forget(&mut self, conn: Conn, timers: &mut Timers) -> Vec<(u64, RemotePart)> {
        let mut deserted = Vec::new();
        for (number, tracker) in &mut self.trackers {
            for arrival in &mut tracker.arrived {
                let is_of = |caller: &mut Caller| matches!(caller, Caller::Here(reply) if reply.conn == conn);
                arrival.reply.take_if(is_of);
            }
            // Other nodes count on a share that was sent.
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

    /// Drops the calls in a message that node `of` has withdrawn. Removes their collective if it has no caller to answer.
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

    pub(super) fn has(&self, number: u64) -> bool {
        self.trackers.contains_key(&number)
    }

    /// Moves all collectives in [`Stage::Here`] to [`Stage::Announced`]. Returns them for the caller to report.
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

    /// Returns how many bytes the id and the share of a further collective may have; `None` if [`MAX_SENT`] is reached.
    pub(super) fn room(&self) -> Option<usize> {
        (self.sent < MAX_SENT).then(|| MAX_SENT_BYTES.saturating_sub(self.sent_bytes))
    }

    /// Returns the length in bytes of a collective's [`GatherId`]; 0 if it has none or is not active.
    pub(super) fn id_length(&self, number: u64) -> usize {
        let remote = self
            .trackers
            .get(&number)
            .and_then(|one| one.remote.as_ref());
        remote.map_or(0, |remote| remote.id.0.len())
    }

    /// Returns true if a collective has sent its share and waits for other nodes.
    pub(super) fn is_sent(&self, number: u64) -> bool {
        self.trackers.get(&number).is_some_and(Tracker::is_sent)
    }

    /// Moves a collective to [`Stage::Sent`]: from now on, it accepts no calls. `bytes` is the size of its id and share.
    pub(super) fn mark_sent(&mut self, number: u64, bytes: usize) -> Option<&RemotePart> {
        let tracker = self.trackers.get_mut(&number)?;
        let remote = tracker.remote.as_mut()?;
        remote.stage = Stage::Sent;
        remote.bytes = bytes;
        self.sent += 1;
        self.sent_bytes += bytes;
        // A further call with this id starts the next collective.
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

    /// Returns true if a collective with this id waits for members on this node, and at least one of them has called.
    pub(super) fn is_collecting(&self, id: &GatherId) -> bool {
        self.trackers.values().any(|tracker| {
            let remote = tracker.remote.as_ref();
            remote.is_some_and(|remote| remote.stage != Stage::Sent && remote.id == *id)
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.trackers.is_empty() && self.collecting.is_empty()
    }

    /// Removes a lost process from the collectives that continue without it. Returns those, and the ones that must fail.
    fn lose(&mut self, lost: Member) -> (Vec<u64>, Vec<u64>) {
        let (mut changed, mut broken) = (Vec::new(), Vec::new());
        for (number, tracker) in &mut self.trackers {
            let awaited = tracker.missing.contains(&lost);
            let waits = || tracker.arrived.iter().any(|arrival| arrival.member == lost);
            let matters = match tracker.id.0 {
                Kind::Connect if planted::is(Bug::ConnectWithDead) => awaited,
                Kind::Construct(_) | Kind::Connect => awaited || waits(),
                Kind::Fence | Kind::Disconnect | Kind::Destruct(_) => awaited,
            };
            if !matters {
                continue;
            }
            if tracker.is_sent() && tracker.survives_loss() {
                // The share has named it as a member, so it stays one.
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
    /// Returns the members in the id and in [`Self::added`].
    pub(super) fn named(&self) -> impl Iterator<Item = &Member> {
        self.id.1.iter().chain(&self.added)
    }

    pub(super) const fn kind(&self) -> &Kind {
        &self.id.0
    }

    /// Returns the members whose calls have reached this server. On the coordinator, these include members on other nodes.
    pub(super) fn members_here(&self) -> impl Iterator<Item = Member> {
        self.arrived.iter().map(|arrival| arrival.member)
    }

    /// Returns true if the collective has sent its share and waits for other nodes.
    pub(super) fn is_sent(&self) -> bool {
        self.remote
            .as_ref()
            .is_some_and(|remote| remote.stage == Stage::Sent)
    }

    pub(super) fn awaits(&self, member: Member) -> bool {
        self.missing.contains(&member)
    }

    pub(super) fn has_called(&self, member: Member) -> bool {
        self.arrived.iter().any(|arrival| arrival.member == member)
    }

    /// Makes the collective fail with this status once all members have called.
    pub(super) const fn refuse(&mut self, status: Status) {
        self.refused = Some(status);
    }

    /// Returns the members in the id, without those in [`Self::added`].
    pub(super) fn members(&self) -> impl Iterator<Item = &Member> {
        self.id.1.iter()
    }

    /// Makes the collective also wait for each of these members that has not called.
    pub(super) fn await_too(&mut self, members: &BTreeSet<Member>) {
        let arrived: BTreeSet<Member> = self.members_here().collect();
        self.missing.extend(members.difference(&arrived));
    }

    /// Sets the collective's deadline if it has none or a later one. Does nothing if `deadline` is `None`.
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

    /// Returns true if the callers of a fence want to exchange data (COLLECT_DATA); INVALID_ARG if only some of them do.
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

    /// Returns true if the loss of a member does not make the collective fail.
    fn survives_loss(&self) -> bool {
        match self.id.0 {
            Kind::Destruct(_) => true,
            // The share has taken the directives of the callers, so GROUP_OPTIONAL is no longer in `arrived`.
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
        let awaits = |tracker: &Tracker| tracker.awaits(member);
        let waiting = match id.0 {
            // Ignore the named members: if a member leaves the group between two calls, the two calls name different members.
            Kind::Destruct(_) => self.collectives.find_kind(&id.0, awaits),
            _ => self.collectives.find(&id, awaits),
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
                // A caller must be one of the members that it names.
                if !present.contains(&member) {
                    return self.status(reply, Status::BAD_PARAM);
                }
                let survives_loss = matches!(id.0, Kind::Destruct(_))
                    || matches!(id.0, Kind::Construct(_)) && is_set(&infos, keys::GROUP_OPTIONAL);
                if !gone.is_empty() && !survives_loss {
                    return self.status(reply, Status::LOST_CONNECTION);
                }
                let remote = self.remote_part(&id, from, away, Need::All);
                self.collectives
                    .insert(id, Roster::Complete, present, remote)
            }
        };
        self.arrive(now, number, Some(Caller::Here(reply)), member, infos);
    }

    /// Adds a caller to a collective. Completes the collective if no other call is missing.
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

    /// Moves the callers of `other`, a follower's own collective, into the collective `number`, which waits for them.
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

    /// Makes all collectives of a kind stop waiting for this member, which has left the group.
    pub(super) fn not_awaited(&mut self, kind: &Kind, member: Member) {
        while let Some(number) = self.collectives.find_kind(kind, |one| one.awaits(member)) {
            if let Some(tracker) = self.collectives.get_mut(number) {
                tracker.missing.remove(&member);
            }
            self.complete(number);
        }
    }

    /// Does nothing if a member is missing or unknown. Otherwise sends this node's share if other nodes have members. If this
    /// server waits for all members itself, answers the callers, or passes a construction with added members to the coordinator.
    pub(super) fn complete(&mut self, number: u64) {
        let Some(tracker) = self.collectives.get_mut(number) else {
            return;
        };
        let is_early = tracker.id.0.is_early();
        let is_known = matches!(tracker.roster, Roster::Complete | Roster::Named);
        if !is_known || tracker.missing.len() > usize::from(is_early) {
            return;
        }
        let adds = tracker.roster == Roster::Named && !tracker.added.is_empty();
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

    /// Completes a connect, disconnect or destruct after all members on all nodes have called.
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

    /// Completes a connect: answers each caller with the job info of all other jobs among the members.
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

    /// Returns the names of the members' jobs, by job number.
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

    /// Sends an answer: SUCCESS, the output of `before`, then the output of `each` for the packed job info of each job.
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

    /// Answers all callers of a collective with a status, see [`Self::tell_callers`].
    pub(super) fn answer_all(&mut self, tracker: Tracker, status: Status) {
        let arrived = tracker.arrived.into_iter();
        self.tell_callers(arrived.map(|arrival| arrival.reply), status);
    }

    /// Answers callers with a status. A caller that is `None` has disconnected or withdrawn its call. Callers on other nodes
    /// get only errors from this function, one for each message (successes: [`Self::tell_other_callers`]).
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

    /// Handles the loss of a local process: fails the collectives that need it, and continues the others without it.
    /// Reports the loss to the host, and to the nodes that have asked about this process.
    pub(super) fn on_gone(&mut self, proc: &Proc) {
        let Some(lost) = self.member_of(proc) else {
            return;
        };
        self.lose_member(lost);
        self.say_members_gone();
        self.tell_watching_nodes(proc);
    }

    /// Fails the collectives that need this member, which is lost. Completes those that waited only for it.
    pub(super) fn lose_member(&mut self, lost: Member) {
        let (changed, broken) = self.collectives.lose(lost);
        self.fail_all(broken, Status::LOST_CONNECTION);
        for number in changed {
            self.complete(number);
        }
    }

    /// Fails all collectives with members or callers of this job, which has ended on this node.
    pub(super) fn fail_collectives_of(&mut self, job: u32) {
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

    pub(super) fn expire_collective(&mut self, number: u64) {
        self.fail_all(vec![number], Status::TIMEOUT);
    }

    /// Removes collectives that have failed. Sends the status to their callers and to the other nodes.
    pub(super) fn fail_all(&mut self, numbers: Vec<u64>, status: Status) {
        for number in numbers {
            if let Some(tracker) = self.collectives.remove(number, &mut self.timers) {
                self.tell_other_nodes(number, &tracker, status);
                self.answer_all(tracker, status);
            }
        }
    }
}
