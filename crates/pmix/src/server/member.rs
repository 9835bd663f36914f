//! Members: the processes that a request means when it names processes, wildcards or groups.

use std::collections::BTreeSet;

use super::Server;
use crate::value::{Nspace, PmixRank, Proc, Status};

/// A process by numbers, which compare faster than names: the number of its job on this server, and its rank. In the
/// members that a request names, the rank may be a wildcard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Member {
    pub(super) job: u32,
    pub(super) rank: u32,
}

impl Member {
    /// Returns the member that stands for all ranks of a job.
    pub(super) const fn all_of(job: u32) -> Self {
        Self {
            job,
            rank: PmixRank::WILDCARD.0,
        }
    }
}

/// The processes that some members stand for: local ones one by one, and the nodes of the rest.
#[derive(Debug, Default)]
pub(super) struct Expanded {
    /// Local processes that can take part.
    pub(super) present: BTreeSet<Member>,
    /// Local processes that are lost or have ended.
    pub(super) gone: BTreeSet<Member>,
    /// Other nodes that have some of the processes. Only the servers there know their state.
    pub(super) away: BTreeSet<u32>,
}

impl Server {
    /// Returns the members that a request names, sorted and without duplicates. A group's name is resolved from the
    /// view of its member `from`. Returns NOT_FOUND for an unknown name.
    pub(super) fn members(&self, from: &Proc, procs: &[Proc]) -> Result<Box<[Member]>, Status> {
        let mut members: Vec<Member> = Vec::with_capacity(procs.len());
        // Most lists name the processes of one job consecutively.
        let mut last: Option<(&Nspace, u32)> = None;
        for proc in procs {
            let known = match last {
                Some((nspace, job)) if *nspace == proc.nspace => Some(job),
                _ => self.jobs.get(&proc.nspace).map(|job| job.number),
            };
            if let Some(job) = known {
                last = Some((&proc.nspace, job));
                if proc.rank == PmixRank::LOCAL_PEERS || proc.rank == PmixRank::LOCAL_NODE {
                    // These ranks are relative to this node, and other nodes must see the same members.
                    let ranks = self.jobs.get(&proc.nspace).ok_or(Status::NOT_FOUND)?;
                    let before = members.len();
                    members.extend(ranks.local_ranks().map(|rank| Member { job, rank }));
                    if members.len() == before {
                        return Err(Status::NOT_FOUND);
                    }
                } else {
                    let rank = proc.rank.0;
                    members.push(Member { job, rank });
                }
            } else {
                let group = self.group_of(from, proc).ok_or(Status::NOT_FOUND)?;
                for member in group {
                    let job = self.jobs.get(&member.nspace).ok_or(Status::NOT_FOUND)?;
                    members.push(Member {
                        job: job.number,
                        rank: member.rank.0,
                    });
                }
            }
        }
        members.sort_unstable();
        members.dedup();
        Ok(members.into())
    }

    /// Returns the processes that members stand for.
    pub(super) fn expand(&self, members: &[Member]) -> Result<Expanded, Status> {
        let mut expanded = Expanded::default();
        for member in members {
            let job = self
                .names
                .get(&member.job)
                .and_then(|nspace| self.jobs.get(nspace))
                .ok_or(Status::NOT_FOUND)?;
            let mut add = |rank: u32| {
                if !job.is_local(PmixRank(rank)) {
                    let node = job.node_of(PmixRank(rank)).ok_or(Status::BAD_PARAM)?;
                    expanded.away.insert(node);
                    return Ok(());
                }
                let one = Member { rank, ..*member };
                if job.is_gone(rank) {
                    expanded.gone.insert(one);
                } else {
                    expanded.present.insert(one);
                }
                Ok(())
            };
            match PmixRank(member.rank) {
                PmixRank::WILDCARD => (0..job.size()).try_for_each(add)?,
                PmixRank(rank) => add(rank)?,
            }
        }
        Ok(expanded)
    }

    /// Returns the processes that members stand for, with those of other nodes as present: only their servers know more.
    pub(super) fn anywhere(&self, members: &[Member]) -> Result<Expanded, Status> {
        let mut expanded = self.expand(members)?;
        let all = self.everybody(&members.iter().copied().collect());
        expanded.present = all.difference(&expanded.gone).copied().collect();
        Ok(expanded)
    }

    /// Returns all processes that members stand for, on any node, one by one.
    pub(super) fn everybody(&self, members: &BTreeSet<Member>) -> BTreeSet<Member> {
        let mut all = BTreeSet::new();
        for member in members {
            let job = self.names.get(&member.job);
            let Some(job) = job.and_then(|job| self.jobs.get(job)) else {
                continue;
            };
            let one = |rank: u32| Member { rank, ..*member };
            match PmixRank(member.rank) {
                PmixRank::WILDCARD => all.extend((0..job.size()).map(one)),
                PmixRank(rank) => {
                    all.insert(one(rank));
                }
            }
        }
        all
    }

    /// Returns members by name, in the order in which libraries list them: by job name, then by rank.
    pub(super) fn procs<'a>(&self, members: impl IntoIterator<Item = &'a Member>) -> Vec<Proc> {
        let mut procs: Vec<Proc> = members
            .into_iter()
            .filter_map(|member| self.proc_of(*member))
            .collect();
        procs.sort_unstable();
        procs
    }

    pub(super) fn proc_of(&self, member: Member) -> Option<Proc> {
        Some(Proc {
            nspace: self.names.get(&member.job)?.clone(),
            rank: PmixRank(member.rank),
        })
    }

    /// Returns a process by numbers; `None` if its job is unknown.
    pub(super) fn member_of(&self, proc: &Proc) -> Option<Member> {
        Some(Member {
            job: self.jobs.get(&proc.nspace)?.number,
            rank: proc.rank.0,
        })
    }
}
