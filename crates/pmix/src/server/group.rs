//! PMIx groups: named sets of processes, optionally with a context id that all members share.
//!
//! How groups are constructed is in [`super::construct`].
//!
//! Several groups may have the same name if they have no member in common: MPI programs construct the parts of a group
//! simultaneously under one name.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::CStr,
    mem,
};

use base::Time;

use super::{Event, ReplyTo, Server, event::From, find, info, share::Kind};
use crate::{
    keys,
    planted::{self, Bug},
    value::{Info, Nspace, PmixRank, Proc, Range, Status, Text, Value},
};

/// Groups that a server keeps.
pub const MAX_GROUPS: usize = 16_384;

/// The groups of a server.
#[derive(Debug)]
pub(super) struct Groups {
    by_name: BTreeMap<Nspace, Vec<Group>>,
    count: usize,
    next_context: u64,
    step: u64,
}

#[derive(Debug)]
struct Group {
    /// Members sorted by job name and rank, as libraries number them. A wildcard stands for all ranks of a job.
    members: Vec<Proc>,
    /// The original members; `None` if no member has left.
    founders: Option<Vec<Proc>>,
    /// True if members get an event when one of them ends without having left (GROUP_NOTIFY_TERMINATION).
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

    /// Returns a group by name: the newest with member `from` if there is one, else the newest of all.
    fn get(&self, name: &CStr, from: Option<&Proc>) -> Option<&Group> {
        let groups = self.by_name.get(name)?;
        groups
            .iter()
            .rfind(|group| from.is_none_or(|from| group.has(from)))
            .or_else(|| groups.last())
    }

    /// Returns true if no further group can be added.
    pub(super) const fn is_full(&self) -> bool {
        self.count >= MAX_GROUPS
    }

    /// Returns the original members of a process's group.
    pub(super) fn founders(&self, name: &Nspace, from: &Proc) -> Option<&[Proc]> {
        let group = self.get(name.as_c_str(), Some(from))?;
        Some(group.founders.as_ref().unwrap_or(&group.members))
    }

    /// Returns true unless a process is known to have left a group with this name.
    pub(super) fn may_have(&self, name: &Nspace, proc: &Proc) -> bool {
        let mut groups = self.by_name.get(name.as_c_str()).into_iter().flatten();
        groups.all(|group| {
            group.has(proc)
                || group
                    .founders
                    .as_ref()
                    .is_none_or(|founders| !founders.iter().any(|founder| founder.covers(proc)))
        })
    }

    /// Removes a member from its group: `others` are its members from now on.
    fn leave(&mut self, name: &CStr, member: &Proc, others: Vec<Proc>) {
        if others.is_empty() {
            return self.remove(name, Some(member));
        }
        if let Some(groups) = self.by_name.get_mut(name)
            && let Some(group) = groups.iter_mut().rfind(|group| group.has(member))
        {
            let before = mem::replace(&mut group.members, others);
            group.founders.get_or_insert(before);
        }
    }

    /// Adds a group. Returns false if there is no room for it.
    pub(super) fn insert(&mut self, name: &Nspace, members: Vec<Proc>, watched: bool) -> bool {
        if self.is_full() {
            return false;
        }
        let groups = self.by_name.entry(name.clone()).or_default();
        // Members may construct a group again without having destructed it, for example after they have lost others.
        let before = groups.len();
        groups.retain(|group| !members.iter().any(|member| group.has(member)));
        self.count -= before - groups.len();
        groups.push(Group {
            members,
            founders: None,
            watched,
        });
        self.count += 1;
        true
    }

    /// Removes the newest group with a name; if `member` is given, the newest one with that member.
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

    /// Removes the groups that have members of this job only.
    pub(super) fn forget_job(&mut self, nspace: &Nspace) {
        let mut left = 0;
        self.by_name.retain(|_, groups| {
            groups.retain(|group| group.members.iter().any(|member| member.nspace != *nspace));
            left += groups.len();
            !groups.is_empty()
        });
        self.count = left;
    }

    pub(super) fn next_context_id(&mut self) -> u64 {
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

impl Server {
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
        // The members are known from the construction; an old library does not even send them.
        let known = self.groups.get(name.as_c_str(), Some(from));
        let procs = match (known, procs) {
            (Some(group), _) => group.members.clone(),
            (None, Some(procs)) if !procs.is_empty() => procs,
            (None, _) => return self.status(reply, Status::NOT_FOUND),
        };
        self.on_collective(now, reply, from, Kind::Destruct(name), &procs, infos);
    }

    /// Removes a member from its group and sends an event to the others.
    pub(super) fn on_leave(&mut self, reply: ReplyTo, from: &Proc, group: Text) {
        let name = match name(group) {
            Ok(name) => name,
            Err(status) => return self.status(reply, status),
        };
        let Some(others) = self.others(&name, from) else {
            return self.status(reply, Status::NOT_FOUND);
        };
        self.groups.leave(name.as_c_str(), from, others.clone());
        self.status(reply, Status::SUCCESS);
        if let Some(member) = self.member_of(from) {
            self.not_awaited(&Kind::Destruct(name.clone()), member);
        }
        self.tell_group(Status::GROUP_LEFT, &name, from, others);
        self.say_members_gone();
    }

    /// Updates groups from an event of another node. A node reports only its own processes, and each process leaves a
    /// group only for itself.
    pub(super) fn on_group_event(&mut self, event: &mut Event) {
        if event.status == Status::GROUP_CONSTRUCT_COMPLETE {
            if !planted::is(Bug::InvitedOnOneNode) {
                self.on_invited_group(event);
            }
            return;
        }
        if event.status != Status::GROUP_LEFT {
            return;
        }
        let group = find(&event.infos, keys::GROUP_ID).and_then(Value::as_text);
        let left = find(&event.infos, keys::EVENT_AFFECTED_PROC).and_then(Value::as_procs);
        if let Some(name) = group.and_then(|name| Nspace::new(name).ok())
            && let Some([left]) = left.as_deref()
            && **left == event.source
            && !self.is_here(left)
            && let Some(others) = self.others(&name, left)
        {
            self.groups.leave(name.as_c_str(), left, others);
        }
    }

    fn is_here(&self, proc: &Proc) -> bool {
        let job = self.jobs.get(&proc.nspace);
        job.is_some_and(|job| job.is_local(proc.rank))
    }

    /// Sends events to the groups of a process that has ended without leaving them.
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

    /// Returns the other members of a process's group, one by one; `None` if it is in no group of this name.
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

    /// Adds a group constructed by invitation. The completion event is the only source for its members.
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
        let has_leader = members.iter().any(|member| member.covers(&event.source));
        if !has_leader && !planted::is(Bug::LeaderNotMember) {
            members.insert(event.source.clone());
        }
        let members: Vec<Proc> = members.into_iter().collect();
        // libpmix 6 takes the members from this attribute, which libpmix 5 does not send.
        if find(&event.infos, keys::GROUP_MEMBERSHIP).is_none() {
            event
                .infos
                .extend(info(keys::GROUP_MEMBERSHIP, Value::procs(members.clone())));
        }
        self.groups.insert(&name, members, false);
    }

    /// Returns the processes that `named` means if `from` uses a group's name as namespace: the member with that number
    /// in the group, or all members.
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

    /// Returns the members of the newest group with a name.
    pub(super) fn members_of(&self, group: &CStr) -> Option<&[Proc]> {
        Some(&self.groups.get(group, None)?.members)
    }

    /// Returns the names of all groups.
    pub(super) fn group_names(&self) -> impl Iterator<Item = &Nspace> {
        self.groups.by_name.keys()
    }
}

/// Returns the name of a group. It can be used in place of a namespace, so it is at most as long.
pub(super) fn name(group: Text) -> Result<Nspace, Status> {
    let name = group.and_then(|name| Nspace::new(&name).ok());
    name.filter(|name| !name.as_bytes().is_empty())
        .ok_or(Status::BAD_PARAM)
}

fn group_text(group: &Nspace) -> Value {
    Value::String(Some(group.as_c_str().to_owned()))
}
