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
//! The members may be on any nodes. With added members and by bootstrap, one node brings their calls together, see
//! [`super::coordinate`].

use std::{collections::BTreeSet, ffi::CStr};

use base::Time;

use super::{
    ReplyTo, Server,
    collective::{Arrival, Caller, Id, Roster, Tracker},
    find,
    group::name,
    info, is_set,
    member::{Expanded, Member},
    question::ConstructQuestion,
    share::{Joined, Kind, Need},
};
use crate::{
    codec::{Size, Writer},
    keys,
    message::{Answer, GroupAnswer, GroupForm},
    planted::{self, Bug},
    value::{Info, Nspace, Proc, Status, Text, Value},
};

/// One caller's view of the group under construction.
struct Construction {
    group: Nspace,
    member: Member,
    named: Box<[Member]>,
    /// Members that the caller adds (GROUP_ADD_MEMBERS). They call without naming any members.
    added: Box<[Member]>,
    /// The number of leaders, if the caller is one (GROUP_BOOTSTRAP).
    leaders: Option<u64>,
    need: Need,
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
        let added = find(&infos, keys::GROUP_ADD_MEMBERS)
            .and_then(Value::as_procs)
            .unwrap_or_default();
        let added: Vec<Proc> = added.into_iter().cloned().collect();
        let construction =
            name(group).and_then(|group| self.construction(from, &group, procs, &added, &infos));
        let construction = match construction {
            Ok(construction) => construction,
            Err(status) => return self.status(reply, status),
        };
        let is_named = !construction.named.is_empty() && construction.leaders.is_none();
        let found = if is_named {
            self.named(from, &construction)
        } else if self.is_coordinator(from) {
            self.coordinated(&construction)
        } else {
            let call = self.call_of(from, &construction, infos);
            return self.call_coordinator(vec![Some(reply)], call);
        };
        match found {
            Ok(number) => {
                let reply = Some(Caller::Here(reply));
                self.arrive(now, number, reply, construction.member, infos);
                self.call_followers(number);
            }
            Err(status) => self.status(reply, status),
        }
    }

    /// Handles calls as the coordinator of the group. `replies` has the receivers of the answers, in the order of the callers.
    pub(super) fn coordinate(
        &mut self,
        now: Time,
        replies: Vec<Option<Caller>>,
        call: ConstructQuestion,
    ) {
        let ConstructQuestion {
            group,
            named,
            added,
            refused,
            callers,
        } = call;
        let found = match callers.first() {
            Some(first) => self
                .construction(&first.proc, &group, &named, &added, &first.infos)
                .and_then(|construction| self.coordinated(&construction)),
            None => Err(Status::BAD_PARAM),
        };
        let members = callers.iter().map(|caller| self.member_of(&caller.proc));
        let members: Option<Vec<Member>> = members.collect();
        let (number, members) = match (found, members) {
            (Ok(number), Some(members)) => (number, members),
            (Ok(_), None) => return self.tell_callers(replies, Status::NOT_FOUND),
            (Err(status), _) => return self.tell_callers(replies, status),
        };
        if let Some(status) = refused
            && let Some(tracker) = self.collectives.get_mut(number)
        {
            tracker.refuse(status);
        }
        let callers = replies.into_iter().zip(members).zip(callers);
        for ((reply, member), caller) in callers {
            self.arrive(now, number, reply, member, caller.infos);
        }
        self.call_followers(number);
    }

    fn construction(
        &self,
        from: &Proc,
        group: &Nspace,
        procs: &[Proc],
        added: &[Proc],
        infos: &[Info],
    ) -> Result<Construction, Status> {
        let leaders = match find(infos, keys::GROUP_BOOTSTRAP) {
            Some(leaders) => {
                let leaders = leaders.as_count().filter(|leaders| *leaders > 0);
                Some(leaders.ok_or(Status::BAD_PARAM)?)
            }
            None => None,
        };
        Ok(Construction {
            group: group.clone(),
            member: self.member_of(from).ok_or(Status::NOT_FOUND)?,
            named: self.members(from, procs)?,
            added: self.members(from, added)?,
            leaders,
            need: if is_set(infos, keys::GROUP_OPTIONAL) {
                Need::Remaining
            } else {
                Need::All
            },
        })
    }

    /// Returns a call for the coordinator. It names processes in a way that means the same on every node.
    fn call_of(
        &self,
        from: &Proc,
        construction: &Construction,
        mut infos: Vec<Info>,
    ) -> ConstructQuestion {
        let Construction {
            group,
            named,
            added,
            ..
        } = construction;
        infos.retain(|info| info.key != *keys::GROUP_ADD_MEMBERS);
        ConstructQuestion {
            group: group.clone(),
            named: self.procs(named),
            added: self.procs(added),
            refused: None,
            callers: vec![Joined {
                proc: from.clone(),
                infos,
            }],
        }
    }

    /// Finds or creates the collective of a caller that names all members but added ones.
    fn named(&mut self, from: &Proc, construction: &Construction) -> Result<u64, Status> {
        let Construction {
            group,
            member,
            named,
            added,
            need,
            ..
        } = construction;
        let kind = Kind::Construct(group.clone());
        let (member, need) = (*member, *need);
        let more = living(self.anywhere(added)?, need)?;
        let id: Id = (kind, named.clone());
        let waiting = self.collectives.find(&id, |tracker| tracker.awaits(member));
        let number = match waiting {
            Some(number) => number,
            None => {
                let expanded = self.expand(named)?;
                let remote = self.remote_part(&id, from, expanded.away.clone(), need);
                let present = living(expanded, need)?;
                if !present.contains(&member) {
                    return Err(Status::BAD_PARAM);
                }
                let roster = if remote.is_none() && self.is_coordinator(from) {
                    Roster::Complete
                } else {
                    Roster::Named
                };
                self.collectives.insert(id, roster, present, remote)
            }
        };
        if let Some(tracker) = self.collectives.get_mut(number) {
            tracker.added.extend(added);
            if tracker.roster == Roster::Complete {
                tracker.await_too(&more);
                self.watch_members(number, &more);
            }
        }
        Ok(number)
    }

    /// Finds or creates the collective of a caller of a group that this node coordinates.
    fn coordinated(&mut self, construction: &Construction) -> Result<u64, Status> {
        let Construction {
            group,
            member,
            named,
            added,
            leaders,
            need,
        } = construction;
        let kind = Kind::Construct(group.clone());
        let (member, need) = (*member, *need);
        if let Some(leaders) = *leaders {
            let all = [&**named, &[member], &**added].concat();
            let missing = living(self.anywhere(&all)?, need)?;
            return self.with_leaders(&kind, member, leaders, missing, &all);
        }
        if named.is_empty() {
            let awaits = |tracker: &Tracker| tracker.awaits(member);
            let named = self.collectives.find_kind(&kind, awaits);
            return Ok(named.unwrap_or_else(|| {
                let id = (kind, Box::from([member]));
                self.collectives
                    .insert(id, Roster::Follower, BTreeSet::new(), None)
            }));
        }
        let mut all = [&**named, &**added].concat();
        all.sort_unstable();
        all.dedup();
        let missing = living(self.anywhere(&all)?, need)?;
        let id: Id = (kind, all.into());
        // A collective with a part on other nodes collects the calls of named members for the next group.
        let awaits = |tracker: &Tracker| tracker.remote.is_none() && tracker.awaits(member);
        if let Some(waiting) = self.collectives.find(&id, awaits) {
            return Ok(waiting);
        }
        let watched = missing.clone();
        let number = self.collectives.insert(id, Roster::Complete, missing, None);
        self.watch_members(number, &watched);
        Ok(number)
    }

    /// Finds or creates the collective of a leader, who has named `all` and waits for `missing`. `total` is the number of
    /// leaders.
    fn with_leaders(
        &mut self,
        kind: &Kind,
        member: Member,
        total: u64,
        missing: BTreeSet<Member>,
        all: &[Member],
    ) -> Result<u64, Status> {
        // Leaders name different members, so the members cannot be part of the id: all bootstraps of a group have the id
        // with an empty list.
        let id: Id = (kind.clone(), Box::default());
        let waiting = self.collectives.find(&id, |tracker| {
            matches!(tracker.roster, Roster::Leaders { .. }) && !tracker.has_called(member)
        });
        let number = match waiting {
            Some(number) => number,
            None => {
                let roster = Roster::Leaders {
                    total,
                    outstanding: total,
                };
                self.collectives.insert(id, roster, BTreeSet::new(), None)
            }
        };
        if let Some(tracker) = self.collectives.get_mut(number) {
            match tracker.roster {
                Roster::Leaders {
                    total: others,
                    outstanding,
                } if others == total => {
                    tracker.roster = match outstanding {
                        0 | 1 => Roster::Complete,
                        2 if planted::is(Bug::LastLeaderNotAwaited) => Roster::Complete,
                        _ => Roster::Leaders {
                            total,
                            outstanding: outstanding - 1,
                        },
                    };
                }
                _ => return Err(Status::BAD_PARAM),
            }
            tracker.added.extend(all);
            tracker.await_too(&missing);
        }
        self.watch_members(number, &missing);
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
                // For the coordinator.
                keys::GROUP_OPTIONAL,
                keys::TIMEOUT,
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
        named: &BTreeSet<Member>,
        arrived: Vec<Arrival>,
        joined: &[Joined],
        context: Option<u64>,
    ) {
        let recorded = self.final_members(named, joined).and_then(|members| {
            let mut sorted = members.clone();
            sorted.sort_unstable();
            let watched = Joined::say(joined, keys::GROUP_NOTIFY_TERMINATION);
            // A coordinator without members here need not know the group.
            let is_known = |joined: &Joined| {
                let job = self.jobs.get(&joined.proc.nspace);
                job.is_some_and(|job| job.is_local(joined.proc.rank))
            };
            if !joined.iter().any(is_known) || self.groups.insert(name, sorted, watched) {
                Ok(members)
            } else {
                Err(Status::OUT_OF_RESOURCE)
            }
        });
        let members = match recorded {
            Ok(members) => members,
            Err(status) => {
                let callers = arrived.into_iter().map(|arrival| arrival.reply);
                return self.tell_callers(callers, status);
            }
        };
        let callers = self.tell_other_callers(named, arrived, joined, context);
        let told = match context {
            Some(context) => self.tell_members(joined, context),
            None => Vec::new(),
        };
        let numbers: Vec<Member> = joined
            .iter()
            .filter_map(|joined| self.member_of(&joined.proc))
            .collect();
        let jobs = self.jobs_of(numbers.iter());
        for (reply, member) in callers {
            let form = self
                .peers
                .get(&reply.conn)
                .and_then(|peer| peer.known())
                .map_or(GroupForm::Members, |known| known.group_form);
            if form == GroupForm::Members {
                let others = jobs
                    .iter()
                    .filter(|(job, _)| **job != member.job)
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
    fn final_members(
        &self,
        named: &BTreeSet<Member>,
        joined: &[Joined],
    ) -> Result<Vec<Proc>, Status> {
        let order = joined
            .iter()
            .find_map(|joined| find(&joined.infos, keys::GROUP_FINAL_ORDER))
            .and_then(Value::as_procs);
        let present: BTreeSet<Member> = joined
            .iter()
            .filter_map(|joined| self.member_of(&joined.proc))
            .collect();
        let all = self.everybody(named);
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

/// Returns the members that can take part. LOST_CONNECTION if others are needed that cannot.
fn living(expanded: Expanded, need: Need) -> Result<BTreeSet<Member>, Status> {
    if expanded.gone.is_empty() || need == Need::Remaining {
        Ok(expanded.present)
    } else {
        Err(Status::LOST_CONNECTION)
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
