//! Colocation of spawned procs with other procs: `PMIX_COLOCATE_PROCS`, and the number of new procs per proc or node.

use std::collections::{BTreeMap, BTreeSet};

use base::{HostList, JobId, Rank, RankSet};
use pmix::{
    keys,
    value::{App as SpawnedApp, Info, Nspace, PmixRank, Status},
};

use super::{
    super::{Controller, Job},
    find,
};

/// Hosts for the procs of a spawned job, from those it is colocated with. `count` is the number of procs per app, if
/// requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Colocation {
    pub(super) hosts: HostList,
    pub(super) count: Option<u32>,
}

impl Controller {
    /// Evaluates the colocation directives of a spawn request; `None` if it has none.
    pub(super) fn colocation(
        &self,
        infos: &[Info],
        apps: &[SpawnedApp],
    ) -> Result<Option<Colocation>, Status> {
        let said = |key| {
            let of_apps = apps.iter().find_map(|app| find(&app.info, key));
            find(infos, key).or(of_apps)
        };
        let number = |key| match said(key).map(|value| value.as_count()) {
            None => Ok(None),
            Some(Some(count @ 1..)) => u32::try_from(count)
                .map(Some)
                .map_err(|_| Status::BAD_PARAM),
            Some(_) => Err(Status::BAD_PARAM),
        };
        let per_proc = number(keys::COLOCATE_PER_PROC)?;
        let per_node = number(keys::COLOCATE_PER_NODE)?;
        let Some(procs) = said(keys::COLOCATE_PROCS) else {
            return match per_proc.or(per_node) {
                None => Ok(None),
                Some(_) => Err(Status::BAD_PARAM),
            };
        };
        let named = procs.as_procs().ok_or(Status::BAD_PARAM)?;
        let mut targets: BTreeMap<JobId, RankSet> = BTreeMap::new();
        for proc in named {
            let job = self.job_called(&proc.nspace).ok_or(Status::NOT_FOUND)?;
            let ranks = match proc.rank {
                PmixRank::WILDCARD => RankSet::range(0..job.size),
                PmixRank(rank) if rank < job.size => RankSet::single(Rank(rank)),
                _ => return Err(Status::NOT_FOUND),
            };
            let all = targets.entry(job.id).or_default();
            *all = all.union(&ranks);
        }
        let mut nodes = BTreeSet::new();
        let mut procs: u32 = 0;
        for (job, ranks) in &targets {
            procs = procs.saturating_add(ranks.len().try_into().unwrap_or(u32::MAX));
            let shares = self.jobs.get(job).into_iter().flat_map(|job| &job.shares);
            let meant = shares.filter(|(_, share)| !share.ranks.is_disjoint(ranks));
            nodes.extend(meant.map(|(node, _)| *node));
        }
        if nodes.is_empty() {
            return Err(Status::NOT_FOUND);
        }
        let count = match (per_proc, per_node) {
            (Some(_), Some(_)) => return Err(Status::BAD_PARAM),
            (Some(count), None) => Some(count.saturating_mul(procs)),
            (None, Some(count)) => {
                let nodes = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
                Some(count.saturating_mul(nodes))
            }
            (None, None) => None,
        };
        let names = nodes.iter().filter_map(|node| {
            let node = self.allocation.nodes.get(node.0 as usize)?;
            Some(node.name.as_str())
        });
        Ok(Some(Colocation {
            hosts: names.collect(),
            count,
        }))
    }

    /// Returns the job with the given PMIx nspace.
    fn job_called(&self, nspace: &Nspace) -> Option<&Job> {
        let number = nspace.as_c_str().to_str().ok()?.rsplit_once('@')?.1;
        let job = self.jobs.get(&JobId(number.parse().ok()?))?;
        (nspace.as_bytes() == self.nspace(job.id).as_bytes()).then_some(job)
    }
}
