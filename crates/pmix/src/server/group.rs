//! Groups: sets of processes with a name, and perhaps with a number that all members have for it.
//!
//! A group is constructed in one of these ways:
//!
//! | how | who calls | known by | complete when |
//! |---|---|---|---|
//! | together | every member names all members | name and members | all have called |
//! | with more | the same, and one of them names others besides, who call without naming anybody | name and members | all have called |
//! | bootstrap | so many leaders, each naming itself and others; the others call without naming anybody | name | all leaders have called, and all whom they name |
//! | by invitation | nobody: members and leader tell each other by events | – | the leader says so by an event |
//!
//! Different groups may have the same name as long as nobody is in two of them: MPI programs construct the parts of a
//! group under one name, all at once.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::CStr,
};

use base::Time;

use super::{
    Event, ReplyTo, Server,
    collective::{Id, Kind, Roll, Tracker},
    event::From,
    find, info, is_set,
    member::{Expanded, Member},
};
use crate::{
    codec::{Size, Writer},
    keys,
    message::{Answer, GroupAnswer, GroupForm},
    value::{Info, Nspace, PmixRank, Proc, Range, Status, Text, Value},
};

/// Groups at once.
pub const MAX_GROUPS: usize = 16_384;

/// The groups that there are.
#[derive(Debug)]
pub(super) struct Groups {
    by_name: BTreeMap<Nspace, Vec<Group>>,
    count: usize,
    next_context: u64,
    step: u64,
}

#[derive(Debug)]
struct Group {
    /// Sorted by name and rank, as libraries number them. One may stand for all of a job.
    members: Vec<Proc>,
    /// The others want to be told when a member ends without having left.
    watched: bool,
}

impl Groups {
    pub(super) const fn new((first, step): (u64, u64)) -> Self {
        Self {
            by_name: BTreeMap::new(),
            count: 0,
            next_context: first,
            step,
        }
    }

    /// The group of a name: of those with it, the one that a process is in.
    fn get(&self, name: &CStr, from: Option<&Proc>) -> Option<&Group> {
        let groups = self.by_name.get(name)?;
        groups
            .iter()
            .rfind(|group| from.is_none_or(|from| group.has(from)))
            .or_else(|| groups.last())
    }

    /// Whether there was room for one more.
    fn insert(&mut self, name: &Nspace, members: Vec<Proc>, watched: bool) -> bool {
        if self.count >= MAX_GROUPS {
            return false;
        }
        let groups = self.by_name.entry(name.clone()).or_default();
        // Made again without having been ended: by members who have lost others, for example.
        let before = groups.len();
        groups.retain(|group| !members.iter().any(|member| group.has(member)));
        self.count -= before - groups.len();
        groups.push(Group { members, watched });
        self.count += 1;
        true
    }

    /// Ends the group of a name that a process is in.
    pub(super) fn remove(&mut self, name: &CStr, member: Option<&Proc>) {
        if let Some(groups) = self.by_name.get_mut(name) {
            let at = groups
                .iter()
                .rposition(|group| member.is_none_or(|member| group.has(member)));
            if let Some(at) = at {
                groups.remove(at);
                self.count -= 1;
            }
            if groups.is_empty() {
                self.by_name.remove(name);
            }
        }
    }

    /// A job is over: groups of its processes alone go with it.
    pub(super) fn forget_job(&mut self, nspace: &Nspace) {
        let mut left = 0;
        self.by_name.retain(|_, groups| {
            groups.retain(|group| group.members.iter().any(|member| member.nspace != *nspace));
            left += groups.len();
            !groups.is_empty()
        });
        self.count = left;
    }

    fn context(&mut self) -> u64 {
        let context = self.next_context;
        self.next_context = context.saturating_add(self.step);
        context
    }
}

impl Group {
    fn has(&self, proc: &Proc) -> bool {
        self.members.iter().any(|member| member.covers(proc))
    }
}

/// What the caller of a construction says of it.
struct Construction {
    kind: Kind,
    member: Member,
    named: Box<[Member]>,
    /// Members who do not know of the others.
    added: Box<[Member]>,
}

impl Server {
    pub(super) fn on_construct(
        &mut self,
        now: Time,
        reply: ReplyTo,
        from: &Proc,
        group: Text,
        procs: &[Proc],
        infos: Vec<Info>,
    ) {
        let found = match self.construction(from, group, procs, &infos) {
            Ok(construction) => self.tracker_for(&construction, &infos),
            Err(status) => Err(status),
        };
        match found {
            Ok((number, member)) => {
                self.arrive(now, number, reply, member, infos);
                self.call_followers(number);
            }
            Err(status) => self.status(reply, status),
        }
    }

    fn construction(
        &self,
        from: &Proc,
        group: Text,
        procs: &[Proc],
        infos: &[Info],
    ) -> Result<Construction, Status> {
        let added = find(infos, keys::GROUP_ADD_MEMBERS)
            .and_then(Value::as_procs)
            .unwrap_or_default();
        let added: Vec<Proc> = added.into_iter().cloned().collect();
        Ok(Construction {
            kind: Kind::Construct(name(group)?),
            member: self.member_of(from).ok_or(Status::NOT_FOUND)?,
            named: self.members(from, procs)?,
            added: self.members(from, &added)?,
        })
    }

    /// The collective that a caller belongs to, or a new one.
    fn tracker_for(
        &mut self,
        construction: &Construction,
        infos: &[Info],
    ) -> Result<(u64, Member), Status> {
        let Construction {
            kind,
            member,
            named,
            added,
        } = construction;
        let member = *member;
        let optional = is_set(infos, keys::GROUP_OPTIONAL);
        let living = |expanded: Expanded| {
            if expanded.gone.is_empty() || optional {
                Ok(expanded.present)
            } else {
                Err(Status::LOST_CONNECTION)
            }
        };
        let number = if let Some(leaders) = find(infos, keys::GROUP_BOOTSTRAP) {
            let of = leaders.as_count().filter(|of| *of > 0);
            let of = of.ok_or(Status::BAD_PARAM)?;
            let all = [&**named, &[member], &**added].concat();
            let missing = living(self.expand(&all)?)?;
            self.with_leaders(kind, member, of, missing, &all)?
        } else if named.is_empty() {
            let named = self
                .collectives
                .find_kind(kind, |tracker| tracker.misses(member));
            named.unwrap_or_else(|| {
                let id = (kind.clone(), Box::from([member]));
                self.collectives.insert(id, Roll::Follower, BTreeSet::new())
            })
        } else {
            let more = living(self.expand(added)?)?;
            let id: Id = (kind.clone(), named.clone());
            let waiting = self.collectives.find(&id, |tracker| tracker.misses(member));
            let number = match waiting {
                Some(number) => number,
                None => {
                    let present = living(self.expand(named)?)?;
                    if !present.contains(&member) {
                        return Err(Status::BAD_PARAM);
                    }
                    self.collectives.insert(id, Roll::Complete, present)
                }
            };
            if let Some(tracker) = self.collectives.get_mut(number) {
                tracker.added.extend(more.iter().copied());
                tracker.await_too(more);
            }
            number
        };
        Ok((number, member))
    }

    /// The collective of a leader.
    fn with_leaders(
        &mut self,
        kind: &Kind,
        member: Member,
        of: u64,
        missing: BTreeSet<Member>,
        all: &[Member],
    ) -> Result<u64, Status> {
        // Leaders name different members: what they have in common is that they name them apart.
        let id: Id = (kind.clone(), Box::default());
        let waiting = self.collectives.find(&id, |tracker| {
            matches!(tracker.roll, Roll::Leaders { .. }) && !tracker.has(member)
        });
        let number = match waiting {
            Some(number) => number,
            None => {
                let roll = Roll::Leaders { of, left: of };
                self.collectives.insert(id, roll, BTreeSet::new())
            }
        };
        if let Some(tracker) = self.collectives.get_mut(number) {
            match tracker.roll {
                Roll::Leaders { of: others, left } if others == of => {
                    tracker.roll = match left {
                        0 | 1 => Roll::Complete,
                        _ => Roll::Leaders { of, left: left - 1 },
                    };
                }
                _ => return Err(Status::BAD_PARAM),
            }
            tracker.added.extend(all);
            tracker.await_too(missing);
        }
        Ok(number)
    }

    /// Those who have called without naming anybody, and are named now, are in.
    fn call_followers(&mut self, number: u64) {
        let Some(tracker) = self.collectives.get_mut(number) else {
            return;
        };
        let kind = tracker.kind().clone();
        let added: Vec<Member> = tracker.added.iter().copied().collect();
        for member in added {
            let id: Id = (kind.clone(), Box::from([member]));
            let alone = |tracker: &Tracker| tracker.roll == Roll::Follower;
            let Some(follower) = self.collectives.find(&id, alone) else {
                continue;
            };
            let misses = self
                .collectives
                .get_mut(number)
                .is_some_and(|tracker| tracker.misses(member));
            if !misses {
                continue;
            }
            if let Some(follower) = self.collectives.remove(follower, &mut self.timers) {
                self.merge(number, follower);
            }
        }
        self.complete(number);
    }

    pub(super) fn on_destruct(
        &mut self,
        now: Time,
        reply: ReplyTo,
        from: &Proc,
        group: Text,
        procs: Option<Vec<Proc>>,
        infos: Vec<Info>,
    ) {
        let name = match name(group) {
            Ok(name) => name,
            Err(status) => return self.status(reply, status),
        };
        // The members are known from the construction; an old library does not even say them.
        let known = self.groups.get(name.as_c_str(), Some(from));
        let procs = match (known, procs) {
            (Some(group), _) => group.members.clone(),
            (None, Some(procs)) if !procs.is_empty() => procs,
            (None, _) => return self.status(reply, Status::NOT_FOUND),
        };
        self.on_collective(now, reply, from, Kind::Destruct(name), &procs, infos);
    }

    /// Everybody is in: the group exists.
    pub(super) fn constructed(&mut self, name: &Nspace, tracker: Tracker) {
        let members = match self.final_members(&tracker) {
            Ok(members) => members,
            Err(status) => return self.all(tracker, status),
        };
        let mut sorted = members.clone();
        sorted.sort_unstable();
        let says = |key: &'static CStr| {
            let mut infos = tracker.arrived.iter().map(|arrival| &arrival.infos);
            infos.any(|infos| is_set(infos, key))
        };
        let watched = says(keys::GROUP_NOTIFY_TERMINATION);
        let with_context = says(keys::GROUP_ASSIGN_CONTEXT_ID);
        if !self.groups.insert(name, sorted, watched) {
            return self.all(tracker, Status::OUT_OF_RESOURCE);
        }
        let context = with_context.then(|| self.groups.context());
        let told = match context {
            Some(context) => self.tell_members(&tracker, context),
            None => Vec::new(),
        };
        let jobs = self.jobs_of(tracker.arrived.iter().map(|arrival| &arrival.member));
        for arrival in tracker.arrived {
            let Some(reply) = arrival.reply else {
                continue;
            };
            let form = self
                .peers
                .get(&reply.conn)
                .and_then(|peer| peer.known())
                .map_or(GroupForm::Members, |known| known.group_form);
            if form == GroupForm::Members {
                let others = jobs
                    .iter()
                    .filter(|(job, _)| **job != arrival.member.job)
                    .map(|(_, nspace)| nspace);
                let head = |writer: &mut Writer| {
                    writer.list(&members);
                    writer.item(&Size(context.unwrap_or(u64::MAX)));
                };
                self.tell_jobs(reply, others, head, Writer::nested);
            } else {
                let answer = Answer::Group(GroupAnswer {
                    form,
                    status: Status::SUCCESS,
                    members: members.clone(),
                    context,
                    infos: told.clone(),
                    buffers: Vec::new(),
                });
                self.answer(reply, &answer);
            }
        }
    }

    /// The members in the order that they asked for, or sorted.
    fn final_members(&self, tracker: &Tracker) -> Result<Vec<Proc>, Status> {
        let expanded = self.expand(&tracker.named().copied().collect::<Vec<_>>())?;
        let members = if expanded.gone.is_empty() {
            // As they were named: one may stand for many.
            self.procs(tracker.named())
        } else {
            self.procs(&expanded.present)
        };
        let order = tracker
            .arrived
            .iter()
            .find_map(|arrival| find(&arrival.infos, keys::GROUP_FINAL_ORDER))
            .and_then(Value::as_procs);
        let Some(order) = order else {
            return Ok(members);
        };
        let mut left = members;
        let mut ordered = Vec::with_capacity(left.len());
        for wanted in order {
            // All of a job means those of it who are members.
            ordered.extend(left.extract_if(.., |member| wanted.covers(member)));
        }
        if left.is_empty() {
            Ok(ordered)
        } else {
            Err(Status::BAD_PARAM)
        }
    }

    /// What the members have handed in for each other can be had from now on, by whoever names the group's number. Gives
    /// it, each under the name of who told it.
    fn tell_members(&mut self, tracker: &Tracker, context: u64) -> Vec<Info> {
        let mut told = Vec::new();
        for arrival in &tracker.arrived {
            let Some(proc) = self.proc_of(arrival.member) else {
                continue;
            };
            for handed in &arrival.infos {
                if handed.key != *keys::GROUP_INFO {
                    continue;
                }
                let Some(infos) = handed.value.as_infos() else {
                    continue;
                };
                let infos: Vec<Info> = infos
                    .into_iter()
                    .filter(|info| info.key != *keys::PROC_ID)
                    .cloned()
                    .collect();
                if let Some(job) = self.jobs.get_mut(&proc.nspace) {
                    job.stored.hand_in(proc.rank, context, &infos);
                }
                let who = info(keys::PROC_ID, Value::Proc(Box::new(proc.clone())));
                let infos = who.into_iter().chain(infos).collect();
                told.extend(info(keys::GROUP_INFO, Value::infos(infos)));
            }
        }
        told
    }

    /// A member leaves, and the others are told.
    pub(super) fn on_leave(&mut self, reply: ReplyTo, from: &Proc, group: Text) {
        let name = match name(group) {
            Ok(name) => name,
            Err(status) => return self.status(reply, status),
        };
        let Some(others) = self.others(&name, from) else {
            return self.status(reply, Status::NOT_FOUND);
        };
        if others.is_empty() {
            self.groups.remove(name.as_c_str(), Some(from));
        } else if let Some(groups) = self.groups.by_name.get_mut(name.as_c_str())
            && let Some(group) = groups.iter_mut().rfind(|group| group.has(from))
        {
            group.members.clone_from(&others);
        }
        self.status(reply, Status::SUCCESS);
        if let Some(member) = self.member_of(from) {
            self.not_awaited(&Kind::Destruct(name.clone()), member);
        }
        self.tell_group(Status::GROUP_LEFT, &name, from, others);
    }

    /// A process has ended without leaving its groups.
    pub(super) fn tell_groups_of_failure(&mut self, proc: &Proc) {
        let concerned: Vec<Nspace> = self
            .groups
            .by_name
            .iter()
            .filter(|(_, groups)| groups.iter().any(|group| group.watched && group.has(proc)))
            .map(|(name, _)| name.clone())
            .collect();
        for name in concerned {
            if let Some(others) = self.others(&name, proc) {
                self.tell_group(Status::GROUP_MEMBER_FAILED, &name, proc, others);
            }
        }
    }

    fn tell_group(&mut self, status: Status, group: &Nspace, about: &Proc, to: Vec<Proc>) {
        let infos = [
            info(keys::EVENT_NON_DEFAULT, Value::Bool(true)),
            info(keys::EVENT_CUSTOM_RANGE, Value::procs(to)),
            info(keys::GROUP_ID, group_text(group)),
            info(
                keys::EVENT_AFFECTED_PROC,
                Value::Proc(Box::new(about.clone())),
            ),
        ];
        let event = Event {
            status,
            source: about.clone(),
            range: Range::CUSTOM,
            infos: infos.into_iter().flatten().collect(),
        };
        self.deliver(&event, From::Peer);
    }

    /// The members of a process's group beside itself, one by one.
    fn others(&self, name: &Nspace, proc: &Proc) -> Option<Vec<Proc>> {
        let group = self.groups.get(name.as_c_str(), Some(proc))?;
        if !group.has(proc) {
            return None;
        }
        let mut others = Vec::new();
        for member in &group.members {
            match self.jobs.get(&member.nspace) {
                Some(job) if member.rank == PmixRank::WILDCARD => {
                    others.extend((0..job.size()).map(|rank| Proc {
                        nspace: member.nspace.clone(),
                        rank: PmixRank(rank),
                    }));
                }
                _ => others.push(member.clone()),
            }
        }
        others.retain(|other| other != proc);
        Some(others)
    }

    /// An event that completes a group made by invitation: nobody else says who is in it.
    pub(super) fn on_invited_group(&mut self, event: &mut Event) {
        let group = find(&event.infos, keys::GROUP_ID).and_then(Value::as_text);
        let Some(name) = group.and_then(|name| Nspace::new(name).ok()) else {
            return;
        };
        let members = [keys::GROUP_MEMBERSHIP, keys::EVENT_CUSTOM_RANGE]
            .iter()
            .find_map(|key| find(&event.infos, key))
            .and_then(Value::as_procs);
        let Some(members) = members else {
            return;
        };
        let mut members: BTreeSet<Proc> = members.into_iter().cloned().collect();
        if !members.iter().any(|member| member.covers(&event.source)) {
            members.insert(event.source.clone());
        }
        let members: Vec<Proc> = members.into_iter().collect();
        // libpmix 6 learns from this who is in the group, and 5 does not say it.
        if find(&event.infos, keys::GROUP_MEMBERSHIP).is_none() {
            event
                .infos
                .extend(info(keys::GROUP_MEMBERSHIP, Value::procs(members.clone())));
        }
        self.groups.insert(&name, members, false);
    }

    /// The processes that a group's name stands for when `from` says it: a member by its number in the group, or all.
    pub(super) fn group_of(&self, from: &Proc, named: &Proc) -> Option<Vec<Proc>> {
        let group = self.groups.get(named.nspace.as_c_str(), Some(from))?;
        if named.rank == PmixRank::WILDCARD {
            return Some(group.members.clone());
        }
        let mut number = named.rank.0;
        for member in &group.members {
            let count = match self.jobs.get(&member.nspace) {
                Some(job) if member.rank == PmixRank::WILDCARD => job.size(),
                _ => 1,
            };
            if number >= count {
                number -= count;
                continue;
            }
            let mut one = member.clone();
            if one.rank == PmixRank::WILDCARD {
                one.rank = PmixRank(number);
            }
            return Some(vec![one]);
        }
        None
    }

    /// The members of a group by its name.
    pub(super) fn members_of(&self, group: &CStr) -> Option<&[Proc]> {
        Some(&self.groups.get(group, None)?.members)
    }

    /// The names of all groups.
    pub(super) fn group_names(&self) -> impl Iterator<Item = &Nspace> {
        self.groups.by_name.keys()
    }
}

/// The name of a group, which stands for it where a job's name would: it is no longer than one.
fn name(group: Text) -> Result<Nspace, Status> {
    let name = group.and_then(|name| Nspace::new(&name).ok());
    name.filter(|name| !name.as_bytes().is_empty())
        .ok_or(Status::BAD_PARAM)
}

fn group_text(group: &Nspace) -> Value {
    Value::String(Some(group.as_c_str().to_owned()))
}
