//! Collectives with members on several nodes, as one of their servers sees them.
//!
//! When all members on a node have called, its server sends a [`Share`]. The host answers with the shares of all nodes
//! ([`Input::Gathered`]), and every server derives the same result from them. How shares are combined, and how a gather
//! can end without some of them, is in [`super::gathers`].
//!
//! If a collective *fails*, its callers on this node get the status. The host gets [`Output::NoShare`], or
//! [`Output::Withdrawn`] if a share or [`Output::Waits`] was sent before.
//!
//! | event on this node | before the share was sent | after the share was sent |
//! |---|---|---|
//! | a member is lost | by the table in [`super::collective`] | by the table in [`super::collective`] |
//! | the job of a member ends | the collective fails | the collective fails |
//! | `pmix.timeout` expires | the collective fails | the collective fails |
//! | all callers disconnect | dropped: [`Output::MembersGone`], or [`Output::Forgotten`] after [`Output::Waits`] | no effect |
//! | [`Input::Watch`] | [`Output::Waits`]; if members elsewhere will not call, [`Input::Gathered`] with an error | no effect |
//! | [`Input::Awaited`] | [`Output::Declined`] if no member on this node has called and none will | no effect |
//! | a member has gone | [`Output::MembersGone`], so that the controller asks by [`Input::Awaited`] | [`Output::MembersGone`] |
//!
//! [`Input::Gathered`]: super::Input::Gathered
//! [`Input::Awaited`]: super::Input::Awaited
//! [`Input::Watch`]: super::Input::Watch

use std::{collections::BTreeSet, mem};

use base::Time;
use bytes::Bytes;

use super::{
    GatherId, GatherNumber, GatherTicket, Output, Server,
    collective::{Id, RemotePart, Stage, Tracker},
    member::Member,
    share::{Contribution, FORMAT, Joined, Kind, MAX_CARRIED, Need, Share},
    stored::{Received, View},
};
use crate::{
    codec::Writer,
    planted::{self, Bug},
    value::{Nspace, PmixRank, Proc, Status},
};

/// Bytes of committed data that a server puts into its share of one fence. The shares of all nodes must fit into
/// [`MAX_CARRIED`] as well. Other nodes fetch further data by gets.
pub const MAX_FENCE_SHARE: usize = 32 << 20;
/// Upper bound on the bytes of an encoded [`Contribution`] without its data and the name of its job.
const CONTRIBUTION_HEAD: usize = 32;

impl Server {
    /// Returns the part of a collective that concerns other nodes; `None` if it has no members there.
    pub(super) fn remote_part(
        &self,
        id: &Id,
        from: &Proc,
        mut others: BTreeSet<u32>,
        need: Need,
    ) -> Option<RemotePart> {
        let (kind, members) = id;
        // Members may have left the group since, and some nodes may not know that yet. Use the original members, so
        // that all nodes form the same id.
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
        Some(RemotePart {
            id: GatherId::new(kind, need, &named),
            need,
            nodes: others.into_iter().collect(),
            stage: Stage::Here,
            bytes: 0,
        })
    }

    /// Sends this node's share, because all members on this node have called.
    pub(super) fn send_share(&mut self, number: u64) {
        let name = self.collectives.id_length(number);
        let room = self.collectives.room();
        let Some(room) = room.and_then(|room| room.checked_sub(name)) else {
            return self.fail_all(vec![number], Status::OUT_OF_RESOURCE);
        };
        let Some(share) = self.share(number, room) else {
            return;
        };
        let mut share = share.encode();
        if share.len() > room.min(MAX_CARRIED) {
            share = Share::Failed(Status::OUT_OF_RESOURCE).encode();
        }
        let Some(remote) = self.collectives.mark_sent(number, name + share.len()) else {
            return;
        };
        self.out.push_back(Output::Gather {
            ticket: GatherTicket(number),
            id: remote.id.clone(),
            nodes: remote.nodes.clone(),
            share,
        });
    }

    /// Returns this node's share of a collective, with at most `room` bytes of data; `None` if the collective is gone.
    fn share(&mut self, number: u64, room: usize) -> Option<Share> {
        let tracker = self.collectives.get_mut(number)?;
        let share = match tracker.kind() {
            Kind::Fence => match tracker.collects() {
                Err(status) => Share::Failed(status),
                Ok(false) => Share::Fence,
                Ok(true) => {
                    let members: Vec<Member> = tracker.members_here().collect();
                    let nodes = tracker
                        .remote
                        .as_ref()
                        .map_or(1, |remote| remote.nodes.len());
                    let room = room.min(MAX_FENCE_SHARE).min(MAX_CARRIED / nodes.max(1));
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
                let added: Vec<Member> = tracker.added.iter().copied().collect();
                let added = self.procs(&added);
                Share::Construct {
                    context: self.groups.next_context_id(),
                    added,
                    members: self.joined(arrived),
                }
            }
            Kind::Connect | Kind::Disconnect | Kind::Destruct(_) => Share::Called,
        };
        Some(share)
    }

    /// Returns what members have committed for other nodes, leaving out data that does not fit into `room` bytes.
    fn contributions(&self, members: &[Member], room: usize) -> Vec<Contribution> {
        let mut contributions = Vec::new();
        // One byte is the tag of the share.
        let mut room = room.saturating_sub(1);
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

    /// Reports that a collective has failed on this node, if it has members on other nodes.
    pub(super) fn tell_other_nodes(&mut self, number: u64, tracker: &Tracker, status: Status) {
        let Some(RemotePart { id, stage, .. }) = &tracker.remote else {
            return;
        };
        let id = id.clone();
        self.out.push_back(match stage {
            Stage::Here => Output::NoShare { id, status },
            Stage::Announced | Stage::Sent => Output::Withdrawn {
                ticket: GatherTicket(number),
                id,
                status,
            },
        });
    }

    /// Reports, from now on, every collective that waits for members on this node.
    pub(super) fn on_watch(&mut self) {
        self.is_watching = true;
        self.say_what_waits();
    }

    /// Reports the collectives that wait for members on this node and were not reported before.
    pub(super) fn say_what_waits(&mut self) {
        if !self.is_watching {
            return;
        }
        for (number, remote) in self.collectives.announce() {
            self.out.push_back(Output::Waits {
                ticket: GatherTicket(number),
                id: remote.id.clone(),
                nodes: remote.nodes.clone(),
            });
        }
    }

    /// Reports collectives that were dropped because all of their callers have disconnected.
    pub(super) fn say_forgotten(&mut self, forgotten: Vec<(u64, RemotePart)>) {
        for (number, remote) in forgotten {
            match remote.stage {
                Stage::Here | Stage::Sent => self.say_members_gone(),
                Stage::Announced => self.out.push_back(Output::Forgotten {
                    ticket: GatherTicket(number),
                    id: remote.id,
                }),
            }
        }
    }

    /// Reports that members on this node have gone, if other nodes may wait for them.
    pub(super) fn say_members_gone(&mut self) {
        // Not twice in a row.
        let is_said = self.out.back() == Some(&Output::MembersGone);
        if self.has_neighbors() && !is_said && !planted::is(Bug::GoneNotTold) {
            self.out.push_back(Output::MembersGone);
        }
    }

    /// Returns true if some registered job has ranks on other nodes.
    pub(super) fn has_neighbors(&self) -> bool {
        self.jobs.values().any(|job| !job.away().is_empty())
    }

    /// Completes a collective with the shares of all nodes, or fails it.
    pub(super) fn on_gathered(
        &mut self,
        now: Time,
        GatherTicket(number): GatherTicket,
        result: Result<&[(u32, Bytes)], Status>,
    ) {
        // The collective may have timed out or ended with its job. Before this node has sent its share, only an error
        // is valid.
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
            Err(status) => return self.answer_all(tracker, status),
        };
        match tracker.kind() {
            Kind::Fence => self.fence_gathered(now, tracker, shares),
            Kind::Construct(group) => {
                let group = group.clone();
                self.construct_gathered(now, tracker, &group, shares);
            }
            Kind::Connect | Kind::Disconnect | Kind::Destruct(_) => {
                let called = shares.iter().all(|(_, share)| *share == Share::Called);
                if called {
                    self.done(tracker);
                } else {
                    self.answer_all(tracker, Status::UNPACK_FAILURE);
                }
            }
        }
    }

    /// Completes a construction whose named members have all called. If one of them has added members, the coordinator
    /// completes it.
    fn construct_gathered(
        &mut self,
        now: Time,
        mut tracker: Tracker,
        group: &Nspace,
        shares: Vec<(u32, Share)>,
    ) {
        let mut members = Vec::new();
        let mut added: BTreeSet<Proc> = BTreeSet::new();
        let mut proposed = None;
        for (_, share) in shares {
            let Share::Construct {
                context,
                added: more_added,
                members: more,
            } = share
            else {
                return self.answer_all(tracker, Status::UNPACK_FAILURE);
            };
            // Every node uses the context id of the lowest node.
            proposed.get_or_insert(context);
            added.extend(more_added);
            members.extend(more);
        }
        if added.is_empty() {
            if planted::is(Bug::ContextOfEachNode) {
                proposed = Some(self.groups.next_context_id());
            }
            let context = proposed.filter(|_| Joined::want_context(&members));
            let named = tracker.named().copied().collect();
            return self.constructed(group, &named, tracker.arrived, &members, context);
        }
        // The share has taken the directives of the callers.
        for arrival in &mut tracker.arrived {
            let proc = self.proc_of(arrival.member);
            let own = members
                .iter_mut()
                .find(|one| Some(&one.proc) == proc.as_ref());
            arrival.infos = own.map_or_else(Vec::new, |own| mem::take(&mut own.infos));
        }
        let added: Vec<Proc> = added.into_iter().collect();
        self.hand_over(Some(now), group, tracker, added);
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
                    return self.answer_all(tracker, Status::UNPACK_FAILURE);
                }
            }
        }
        let mut told_of = Vec::new();
        for (node, Contribution { proc, data }) in from_other_nodes {
            let received = Received::unread(FORMAT, data);
            if self.store_from(node, &proc, received).is_ok() {
                told_of.push(proc);
            }
        }
        let agree = with_data == 0 || with_data == count;
        let status = if agree {
            Status::SUCCESS
        } else {
            Status::INVALID_ARG
        };
        self.answer_all(tracker, status);
        self.retry_gets_about(now, &told_of);
    }

    /// Stores the committed data of a process on another node. Returns UNPACK_FAILURE if the process is not on that node.
    pub(super) fn store_from(
        &mut self,
        node: u32,
        proc: &Proc,
        received: Received,
    ) -> Result<(), Status> {
        let job = self.jobs.get_mut(&proc.nspace);
        let job = job.ok_or(Status::NOT_FOUND)?;
        if job.is_local(proc.rank) || job.node_of(proc.rank) != Some(node) {
            return Err(Status::UNPACK_FAILURE);
        }
        job.stored.replace(proc.rank, received);
        Ok(())
    }

    /// Answers the question whether members on this node will still call. Sends nothing if they may.
    pub(super) fn on_awaited(&mut self, id: GatherId, number: GatherNumber) {
        // A member here has called, so this server reports the outcome later, by its share or as a failure.
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

    /// Returns whether the members on this node may still call; if not, also the share or status for the other nodes.
    fn coming(&mut self, kind: &Kind, need: Need, procs: &[Proc]) -> Coming {
        let mut gone = false;
        let mut left = false;
        for proc in procs {
            let Some(job) = self.jobs.get(&proc.nspace) else {
                // The job has ended on this node.
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
            (Need::Remaining, true, false) => Coming::Never(Ok(match kind {
                Kind::Construct(_) => Share::Construct {
                    context: self.groups.next_context_id(),
                    added: Vec::new(),
                    members: Vec::new(),
                },
                _ => Share::Called,
            })),
            (Need::All, false, _) | (Need::Remaining, _, true) | (Need::Remaining, false, _) => {
                Coming::Maybe
            }
        }
    }
}

/// The answer to the question whether the members on this node may still call.
enum Coming {
    Maybe,
    /// No member will call. Other nodes continue with this share, or fail with this status.
    Never(Result<Share, Status>),
}
