//! How groups are made.
//!
//! A group is made in one of these ways:
//!
//! | how | who calls | known by | complete when |
//! |---|---|---|---|
//! | together | every member names all members | name and members | all have called |
//! | with more | the same, and one of them names others besides, who call without naming anybody | name and members | all have called |
//! | bootstrap | so many leaders, each naming itself and others; the others call without naming anybody | name | all leaders have called, and all whom they name |
//! | by invitation | nobody: members and leader tell each other by events | – | the leader says so by an event |

use std::{collections::BTreeSet, ffi::CStr};

use base::Time;

use super::{
    ReplyTo, Server,
    collective::{Id, Kind, Roll, Tracker},
    find,
    group::name,
    info, is_set,
    member::{Expanded, Member},
};
use crate::{
    codec::{Size, Writer},
    keys,
    message::{Answer, GroupAnswer, GroupForm},
    value::{Info, Nspace, Proc, Status, Text, Value},
};

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
                tracker.added.extend(added);
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
        for follower in self.collectives.followers_of(number) {
            if let Some(follower) = self.collectives.remove(follower, &mut self.timers) {
                self.merge(number, follower);
            }
        }
        self.complete(number);
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
        let order = tracker
            .arrived
            .iter()
            .find_map(|arrival| find(&arrival.infos, keys::GROUP_FINAL_ORDER))
            .and_then(Value::as_procs);
        let named: BTreeSet<Member> = tracker.named().copied().collect();
        let expanded = self.expand(&named.iter().copied().collect::<Vec<_>>())?;
        let members = if expanded.gone.is_empty() && order.is_none() {
            // As they were named: one may stand for many, and those need not be named again.
            let besides = |member: &&Member| {
                let all = Member::all_of(member.job);
                **member == all || !named.contains(&all)
            };
            self.procs(named.iter().filter(besides))
        } else {
            self.procs(&expanded.present)
        };
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
}
