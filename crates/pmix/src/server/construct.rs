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
//!
//! Members on several nodes can make a group together or by invitation. Where not everybody names all, they must be on
//! one node: others get NOT_SUPPORTED, for their servers could not know whom to wait for.

use std::{collections::BTreeSet, ffi::CStr};

use base::Time;

use super::{
    ReplyTo, Server,
    collective::{Id, Roll, Tracker},
    find,
    group::name,
    info, is_set,
    member::{Expanded, Member},
    share::{Joined, Kind, Need},
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
            Ok(construction) => self.tracker_for(from, &construction, &infos),
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
        from: &Proc,
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
                Ok((expanded.present, expanded.away))
            } else {
                Err(Status::LOST_CONNECTION)
            }
        };
        // Other nodes could not know whom they wait for.
        let here = |(present, away): (BTreeSet<Member>, BTreeSet<u32>)| {
            if away.is_empty() {
                Ok(present)
            } else {
                Err(Status::NOT_SUPPORTED)
            }
        };
        let number = if let Some(leaders) = find(infos, keys::GROUP_BOOTSTRAP) {
            let of = leaders.as_count().filter(|of| *of > 0);
            let of = of.ok_or(Status::BAD_PARAM)?;
            let all = [&**named, &[member], &**added].concat();
            let missing = living(self.expand(&all)?).and_then(here)?;
            self.with_leaders(kind, member, of, missing, &all)?
        } else if named.is_empty() {
            let named = self
                .collectives
                .find_kind(kind, |tracker| tracker.misses(member));
            named.unwrap_or_else(|| {
                let id = (kind.clone(), Box::from([member]));
                self.collectives
                    .insert(id, Roll::Follower, BTreeSet::new(), None)
            })
        } else {
            let more = living(self.expand(added)?).and_then(here)?;
            let id: Id = (kind.clone(), named.clone());
            let waiting = self.collectives.find(&id, |tracker| tracker.misses(member));
            let number = match waiting {
                Some(number) => number,
                None => {
                    let (present, away) = living(self.expand(named)?)?;
                    if !present.contains(&member) {
                        return Err(Status::BAD_PARAM);
                    }
                    let need = if optional { Need::Left } else { Need::All };
                    let away = self.away(&id, from, away, need);
                    if away.is_some() && !added.is_empty() {
                        return Err(Status::NOT_SUPPORTED);
                    }
                    self.collectives.insert(id, Roll::Complete, present, away)
                }
            };
            if let Some(tracker) = self.collectives.get_mut(number) {
                if tracker.away.is_some() && !added.is_empty() {
                    return Err(Status::NOT_SUPPORTED);
                }
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
                self.collectives.insert(id, roll, BTreeSet::new(), None)
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

    /// Those who construct a group, with what they say of it that matters to the others.
    pub(super) fn joined(&self, arrived: Vec<(Member, Vec<Info>)>) -> Vec<Joined> {
        let matters = |info: &Info| {
            [
                keys::GROUP_NOTIFY_TERMINATION,
                keys::GROUP_ASSIGN_CONTEXT_ID,
                keys::GROUP_FINAL_ORDER,
                keys::GROUP_INFO,
            ]
            .iter()
            .any(|key| info.key == **key)
        };
        let joined = arrived.into_iter().filter_map(|(member, mut infos)| {
            infos.retain(matters);
            Some(Joined {
                proc: self.proc_of(member)?,
                infos,
            })
        });
        joined.collect()
    }

    /// Everybody is in, on whatever node: the group exists.
    pub(super) fn constructed(
        &mut self,
        name: &Nspace,
        tracker: Tracker,
        joined: &[Joined],
        context: Option<u64>,
    ) {
        let members = match self.final_members(&tracker, joined) {
            Ok(members) => members,
            Err(status) => return self.all(tracker, status),
        };
        let mut sorted = members.clone();
        sorted.sort_unstable();
        let watched = Joined::say(joined, keys::GROUP_NOTIFY_TERMINATION);
        if !self.groups.insert(name, sorted, watched) {
            return self.all(tracker, Status::OUT_OF_RESOURCE);
        }
        let told = match context {
            Some(context) => self.tell_members(joined, context),
            None => Vec::new(),
        };
        let numbers: Vec<Member> = joined
            .iter()
            .filter_map(|joined| self.member_of(&joined.proc))
            .collect();
        let jobs = self.jobs_of(numbers.iter());
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
    fn final_members(&self, tracker: &Tracker, joined: &[Joined]) -> Result<Vec<Proc>, Status> {
        let order = joined
            .iter()
            .find_map(|joined| find(&joined.infos, keys::GROUP_FINAL_ORDER))
            .and_then(Value::as_procs);
        let named: BTreeSet<Member> = tracker.named().copied().collect();
        let present: BTreeSet<Member> = joined
            .iter()
            .filter_map(|joined| self.member_of(&joined.proc))
            .collect();
        let all = self.everybody(&named);
        let members = if all.is_subset(&present) && order.is_none() {
            // As they were named: one may stand for many, and those need not be named again.
            let besides = |member: &&Member| {
                let all = Member::all_of(member.job);
                **member == all || !named.contains(&all)
            };
            self.procs(named.iter().filter(besides))
        } else {
            self.procs(&present)
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
    fn tell_members(&mut self, joined: &[Joined], context: u64) -> Vec<Info> {
        let mut told = Vec::new();
        for Joined { proc, infos } in joined {
            for handed in infos {
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

impl Joined {
    /// Whether one of them says something.
    fn say(joined: &[Self], key: &CStr) -> bool {
        joined.iter().any(|joined| is_set(&joined.infos, key))
    }

    /// Whether one of them wants the group to have a number.
    pub(super) fn want_context(joined: &[Self]) -> bool {
        Self::say(joined, keys::GROUP_ASSIGN_CONTEXT_ID)
    }
}
