//! Collectives that have members on several nodes: what this node brings, and what the others have brought.
//!
//! When all members on this node have called, their server sends a [`Share`]. The host answers it with the shares of all
//! nodes ([`Input::Gathered`]), and each server draws the same conclusion from them. How shares meet, and how a gather
//! ends before all are there, is in [`super::gathers`].
//!
//! | happens here | before the share was sent | afterwards |
//! |---|---|---|
//! | a member that is needed is lost, or a job ends | those who wait are told, [`Output::Absent`] | by the table in [`super::collective`]: nothing, or those who wait are told and [`Output::Withdrawn`] |
//! | `pmix.timeout` | those who wait are told, [`Output::Absent`] | those who wait are told, [`Output::Withdrawn`] |
//! | all connections that wait break | it is forgotten, [`Output::MembersGone`] or [`Output::Forgotten`] | nothing |
//! | members have gone on another node ([`Input::Watch`]) | [`Output::Waits`]; when they are needed, [`Input::Gathered`] says so | – |
//! | a member has gone, and nobody has called | [`Output::MembersGone`]; then, to [`Input::Awaited`], [`Output::Declined`] | – |
//!
//! [`Input::Gathered`]: super::Input::Gathered
//! [`Input::Awaited`]: super::Input::Awaited
//! [`Input::Watch`]: super::Input::Watch

use std::{collections::BTreeSet, mem};

use base::Time;
use bytes::Bytes;

use super::{
    GatherId, GatherNumber, GatherTicket, Output, Server,
    collective::{Away, Id, Stage, Tracker},
    member::Member,
    share::{Contribution, FORMAT, Joined, Kind, Need, Share},
    stored::View,
};
use crate::{
    codec::Writer,
    planted::{self, Bug},
    value::{PmixRank, Proc, Status},
};

/// Bytes of data that a server brings to one fence. What is more is left for those who want it to ask for.
pub const MAX_BROUGHT: usize = 32 << 20;
/// What a contribution has beside its data and the name of its job, at most.
const CONTRIBUTION_HEAD: usize = 32;

impl Server {
    /// What other nodes know a collective by, when it has members there.
    pub(super) fn away(
        &self,
        id: &Id,
        from: &Proc,
        mut others: BTreeSet<u32>,
        need: Need,
    ) -> Option<Away> {
        let (kind, members) = id;
        // Members may have left a group meanwhile, which not all nodes need have heard.
        let founders = match kind {
            Kind::Destruct(group) => self.groups.founders(group, from),
            _ => None,
        };
        if let Some(founders) = founders {
            let members = self.members(from, founders).ok()?;
            others.extend(self.expand(&members).ok()?.away);
        }
        if others.is_empty() {
            return None;
        }
        others.insert(self.jobs.get(&from.nspace)?.node_here()?);
        let named = founders.map_or_else(|| self.procs(members.iter()), <[Proc]>::to_vec);
        Some(Away {
            id: GatherId::new(kind, need, &named),
            need,
            nodes: others.into_iter().collect(),
            stage: Stage::Here,
            bytes: 0,
        })
    }

    /// All members on this node have called: the other nodes are told.
    pub(super) fn send_share(&mut self, number: u64) {
        let name = self.collectives.name_length(number);
        let room = self.collectives.room();
        let Some(room) = room.and_then(|room| room.checked_sub(name)) else {
            return self.end_all(vec![number], Status::OUT_OF_RESOURCE);
        };
        let Some(share) = self.share(number, room) else {
            return;
        };
        let mut share = share.encode();
        if share.len() > room {
            share = Share::Failed(Status::OUT_OF_RESOURCE).encode();
        }
        let Some(away) = self.collectives.send(number, name + share.len()) else {
            return;
        };
        self.out.push_back(Output::Gather {
            ticket: GatherTicket(number),
            id: away.id.clone(),
            nodes: away.nodes.clone(),
            share,
        });
    }

    /// What this node brings, of data no more than there is room for.
    fn share(&mut self, number: u64, room: usize) -> Option<Share> {
        let tracker = self.collectives.get_mut(number)?;
        let share = match tracker.kind() {
            Kind::Fence => match tracker.collects() {
                Err(status) => Share::Failed(status),
                Ok(false) => Share::Fence,
                Ok(true) => {
                    let members: Vec<Member> = tracker.members_here().collect();
                    Share::FenceWithData(self.contributions(&members, room))
                }
            },
            Kind::Connect if self.connected_sets.is_full() => {
                Share::Failed(Status::OUT_OF_RESOURCE)
            }
            Kind::Construct(_) if self.groups.is_full() => Share::Failed(Status::OUT_OF_RESOURCE),
            Kind::Construct(_) => {
                let arrived: Vec<_> = tracker
                    .arrived
                    .iter_mut()
                    .map(|arrival| (arrival.member, mem::take(&mut arrival.infos)))
                    .collect();
                Share::Construct {
                    context: self.groups.context(),
                    members: self.joined(arrived),
                }
            }
            Kind::Connect | Kind::Disconnect | Kind::Destruct(_) => Share::Called,
        };
        Some(share)
    }

    /// What members have committed for other nodes, as far as there is room.
    fn contributions(&self, members: &[Member], room: usize) -> Vec<Contribution> {
        let mut contributions = Vec::new();
        // The first byte says what it is.
        let mut room = room.saturating_sub(1).min(MAX_BROUGHT);
        for member in members {
            let Some(proc) = self.proc_of(*member) else {
                continue;
            };
            let job = self.jobs.get(&proc.nspace);
            let Some(committed) = job.and_then(|job| job.stored.of(proc.rank)) else {
                continue;
            };
            if !committed.has_committed() {
                continue;
            }
            let view = if planted::is(Bug::LocalDataLeavesTheNode) {
                View::Local
            } else {
                View::Remote
            };
            let mut writer = Writer::new(FORMAT);
            committed.write_put(view, &mut writer);
            let data = Bytes::from(writer.into_bytes());
            let size = data.len() + proc.nspace.as_bytes().len() + CONTRIBUTION_HEAD;
            if let Some(left) = room.checked_sub(size) {
                room = left;
                contributions.push(Contribution { proc, data });
            }
        }
        contributions
    }

    /// A collective ends that other nodes may wait in.
    pub(super) fn tell_other_nodes(&mut self, number: u64, tracker: &Tracker, status: Status) {
        let Some(Away { id, stage, .. }) = &tracker.away else {
            return;
        };
        let id = id.clone();
        self.out.push_back(match stage {
            Stage::Here => Output::Absent { id, status },
            Stage::Announced | Stage::Sent => Output::Withdrawn {
                ticket: GatherTicket(number),
                id,
                status,
            },
        });
    }

    /// Members of some jobs have gone on other nodes: from now on those are told what waits here.
    pub(super) fn on_watch(&mut self) {
        self.is_watching = true;
        self.say_what_waits();
    }

    /// Tells the other nodes what waits here for members of this one.
    pub(super) fn say_what_waits(&mut self) {
        if !self.is_watching {
            return;
        }
        for (number, away) in self.collectives.announce() {
            self.out.push_back(Output::Waits {
                ticket: GatherTicket(number),
                id: away.id.clone(),
                nodes: away.nodes.clone(),
            });
        }
    }

    /// Collectives were forgotten for which nobody here waits any more.
    pub(super) fn say_forgotten(&mut self, forgotten: Vec<(u64, Away)>) {
        for (number, away) in forgotten {
            match away.stage {
                Stage::Here | Stage::Sent => self.say_members_gone(),
                Stage::Announced => self.out.push_back(Output::Forgotten {
                    ticket: GatherTicket(number),
                    id: away.id,
                }),
            }
        }
    }

    /// Members here have gone, for whom other nodes may wait.
    pub(super) fn say_members_gone(&mut self) {
        // Once is enough where nothing has been said since.
        let is_said = self.out.back() == Some(&Output::MembersGone);
        if self.has_neighbors() && !is_said && !planted::is(Bug::GoneNotTold) {
            self.out.push_back(Output::MembersGone);
        }
    }

    /// Whether a job that is known here has ranks on other nodes.
    pub(super) fn has_neighbors(&self) -> bool {
        self.jobs.values().any(|job| !job.away().is_empty())
    }

    /// All nodes have sent their shares, or never will.
    pub(super) fn on_gathered(
        &mut self,
        now: Time,
        GatherTicket(number): GatherTicket,
        result: Result<&[(u32, Bytes)], Status>,
    ) {
        // One whose time was over, or whose job has ended, meanwhile is not known any more. Before the share is sent, it
        // can only fail.
        if result.is_ok() && !self.collectives.is_sent(number) {
            return;
        }
        let Some(tracker) = self.collectives.remove(number, &mut self.timers) else {
            return;
        };
        let decoded = result.and_then(|shares| {
            let decode = |(node, share): &(u32, Bytes)| match Share::decode(share) {
                Ok(Share::Failed(status)) => Err(status),
                Ok(share) => Ok((*node, share)),
                Err(_) => Err(Status::UNPACK_FAILURE),
            };
            shares.iter().map(decode).collect::<Result<Vec<_>, _>>()
        });
        let shares = match decoded {
            Ok(shares) => shares,
            Err(status) => return self.all(tracker, status),
        };
        match tracker.kind() {
            Kind::Fence => self.fence_gathered(now, tracker, shares),
            Kind::Construct(group) => {
                let group = group.clone();
                let mut members = Vec::new();
                let mut proposed = None;
                for (_, share) in shares {
                    let Share::Construct {
                        context,
                        members: more,
                    } = share
                    else {
                        return self.all(tracker, Status::UNPACK_FAILURE);
                    };
                    // That of the lowest node, everywhere.
                    proposed.get_or_insert(context);
                    members.extend(more);
                }
                if planted::is(Bug::ContextOfEachNode) {
                    proposed = Some(self.groups.context());
                }
                let context = proposed.filter(|_| Joined::want_context(&members));
                self.constructed(&group, tracker, &members, context);
            }
            Kind::Connect | Kind::Disconnect | Kind::Destruct(_) => {
                let called = shares.iter().all(|(_, share)| *share == Share::Called);
                if called {
                    self.done(tracker);
                } else {
                    self.all(tracker, Status::UNPACK_FAILURE);
                }
            }
        }
    }

    fn fence_gathered(&mut self, now: Time, tracker: Tracker, shares: Vec<(u32, Share)>) {
        let mut with_data = 0;
        let count = shares.len();
        let mut from_other_nodes = Vec::new();
        for (node, share) in shares {
            match share {
                Share::Fence => {}
                Share::FenceWithData(contributions) => {
                    with_data += 1;
                    let known = contributions.into_iter().map(|one| (node, one));
                    from_other_nodes.extend(known);
                }
                Share::Called | Share::Failed(_) | Share::Construct { .. } => {
                    return self.all(tracker, Status::UNPACK_FAILURE);
                }
            }
        }
        let mut told_of = Vec::new();
        for (node, Contribution { proc, data }) in from_other_nodes {
            if self.store_from(node, &proc, &data).is_ok() {
                told_of.push(proc);
            }
        }
        let agree = with_data == 0 || with_data == count;
        let status = if agree {
            Status::SUCCESS
        } else {
            Status::INVALID_ARG
        };
        self.all(tracker, status);
        self.retry_gets_about(now, &told_of);
    }

    /// Keeps what a node has told of a process there. UNPACK_FAILURE when it is none of that node, or no data.
    pub(super) fn store_from(&mut self, node: u32, proc: &Proc, data: &[u8]) -> Result<(), Status> {
        let job = self.jobs.get_mut(&proc.nspace);
        let job = job.ok_or(Status::NOT_FOUND)?;
        if job.is_local(proc.rank) || job.node_of(proc.rank) != Some(node) {
            return Err(Status::UNPACK_FAILURE);
        }
        let stored = job.stored.replace(proc.rank, FORMAT, data);
        stored.map_err(|_| Status::UNPACK_FAILURE)
    }

    /// Other nodes wait for members here. They need not be told of those that may still call.
    pub(super) fn on_awaited(&mut self, id: GatherId, number: GatherNumber) {
        // Whoever has called there speaks for itself, and the others are waited for.
        if self.collectives.is_collecting(&id) {
            return;
        }
        let result = match id.decode() {
            Ok((kind, need, members)) => self.coming(&kind, need, &members),
            Err(_) => Coming::Never(Err(Status::UNPACK_FAILURE)),
        };
        if let Coming::Never(result) = result {
            let result = result.map(|share| share.encode());
            self.out.push_back(Output::Declined { id, number, result });
        }
    }

    /// Whether the members here may still come to a collective, and what that means for the others if not.
    fn coming(&mut self, kind: &Kind, need: Need, procs: &[Proc]) -> Coming {
        let mut gone = false;
        let mut left = false;
        for proc in procs {
            let Some(job) = self.jobs.get(&proc.nspace) else {
                // It has ended here.
                gone = true;
                continue;
            };
            let in_group = |rank: u32| match kind {
                Kind::Destruct(group) => {
                    let proc = Proc {
                        nspace: proc.nspace.clone(),
                        rank: PmixRank(rank),
                    };
                    self.groups.may_have(group, &proc)
                }
                _ => true,
            };
            let named = job
                .local_ranks()
                .filter(|rank| proc.rank == PmixRank::WILDCARD || proc.rank.0 == *rank);
            for rank in named {
                if job.is_gone(rank) || !in_group(rank) {
                    gone = true;
                } else {
                    left = true;
                }
            }
        }
        match (need, gone, left) {
            (Need::All, true, _) => Coming::Never(Err(Status::LOST_CONNECTION)),
            (Need::Left, true, false) => Coming::Never(Ok(match kind {
                Kind::Construct(_) => Share::Construct {
                    context: self.groups.context(),
                    members: Vec::new(),
                },
                _ => Share::Called,
            })),
            (Need::All, false, _) | (Need::Left, _, true) | (Need::Left, false, _) => Coming::Maybe,
        }
    }
}

/// Whether members may still call.
enum Coming {
    Maybe,
    /// The others go on without them, or cannot.
    Never(Result<Share, Status>),
}
