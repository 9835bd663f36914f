//! Construction of groups.
//!
//! A group is constructed in one of these ways:
//!
//! | method | callers | identified by | complete when |
//! |---|---|---|---|
//! | together | every member, naming all members | name and members | all have called |
//! | added members | the named members; the added ones, naming no members | name and named members | all have called |
//! | bootstrap | N leaders, naming themselves and others; the others, naming no members | name | all of them have called |
//! | by invitation | no process: the leader and the members exchange events | – | the leader's completion event arrives |
//!
//! The members of a group that is constructed together or by invitation may be on several nodes. With added members or
//! by bootstrap all must be on one node. Otherwise the callers get NOT_SUPPORTED, because the servers of other nodes
//! could not know which members to wait for.

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

/// One caller's view of the group under construction.
struct Construction {
    kind: Kind,
    member: Member,
    named: Box<[Member]>,
    /// Members that the caller adds (GROUP_ADD_MEMBERS). They call without naming any members.
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

    /// Finds the collective that a caller belongs to, or creates one.
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
        // The servers of other nodes could not know which members to wait for.
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

    /// Finds or creates the collective of a leader, who has named `all` and waits for `missing`. `of` is the number of
    /// leaders.
    fn with_leaders(
        &mut self,
        kind: &Kind,
        member: Member,
        of: u64,
        missing: BTreeSet<Member>,
        all: &[Member],
    ) -> Result<u64, Status> {
        // Leaders name different members, so the members cannot be part of the id: all bootstraps of a group share an
        // empty list.
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

    /// Moves callers that named no members into this collective if it waits for them now, and completes it if possible.
    fn call_followers(&mut self, number: u64) {
        for follower in self.collectives.followers_of(number) {
            if let Some(follower) = self.collectives.remove(follower, &mut self.timers) {
                self.merge(number, follower);
            }
        }
        self.complete(number);
    }

    /// Returns the processes that construct a group, each with those of its infos that matter to other members.
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

    /// Creates the group after all members on all nodes have called, and answers the members on this node.
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

    /// Returns the members in the order of GROUP_FINAL_ORDER, or sorted without it. BAD_PARAM if that order omits a
    /// member.
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
            // A wildcard stands for all ranks of its job: omit ranks of that job that were also named individually.
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
            // A wildcard in the order stands for those ranks of the job that are members.
            ordered.extend(left.extract_if(.., |member| wanted.covers(member)));
        }
        if left.is_empty() {
            Ok(ordered)
        } else {
            Err(Status::BAD_PARAM)
        }
    }

    /// Stores the infos that members hand in for each other, so that gets which name the group's context id find them.
    /// Returns these infos, each together with the name of the process that handed it in.
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
    /// Returns true if at least one of the callers has set the attribute.
    fn say(joined: &[Self], key: &CStr) -> bool {
        joined.iter().any(|joined| is_set(&joined.infos, key))
    }

    /// Returns true if at least one of the callers asks for a context id.
    pub(super) fn want_context(joined: &[Self]) -> bool {
        Self::say(joined, keys::GROUP_ASSIGN_CONTEXT_ID)
    }
}
