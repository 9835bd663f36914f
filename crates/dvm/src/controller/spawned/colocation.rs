//! Colocation of spawned procs with other procs: `PMIX_COLOCATE_PROCS`, and the number of new procs per proc or node. The daemons of a
//! debugger are colocated with their target (`PMIX_DEBUG_TARGET`), one on each of its nodes unless the request says otherwise.

use std::{collections::BTreeMap, ffi::CStr};

use base::{HostList, JobId, MAX_HOSTS, NodeId, Rank, RankSet};
use pmix::{
    keys,
    value::{App as SpawnedApp, Info, Nspace, PmixRank, Proc, Status, Value},
};

use super::{
    super::{Controller, Job},
    find,
};

/// Nodes for the procs of a spawned job: those of the procs with which it is colocated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Colocation {
    /// Each node once.
    pub(super) hosts: HostList,
    /// The procs of each app, if a number per proc or node was requested.
    pub(super) places: Option<Places>,
}

/// The procs of each app: one on each name, in order. A node with several has its name repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Places {
    /// An app that says fewer has the first ones.
    AtMost(HostList),
    /// Whatever the app says.
    Exactly(HostList),
}

impl Places {
    /// Returns the places of an app that says this number of procs, or 0 for as many as there are.
    pub(super) fn of_app(&self, said: u32) -> impl Iterator<Item = &str> {
        let (names, most) = match self {
            Self::AtMost(names) if said > 0 => (names, said as usize),
            Self::AtMost(names) | Self::Exactly(names) => (names, names.len()),
        };
        names.iter().take(most)
    }
}

/// Who is colocated with the targets, and how many of them.
struct Wanted {
    targets: Vec<Proc>,
    per_proc: Option<u32>,
    per_node: Option<u32>,
    places: fn(HostList) -> Places,
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
        let wanted = match said(keys::DEBUG_TARGET).or_else(|| said(keys::DEBUG_JOB)) {
            Some(target) => {
                let (mut per_proc, mut per_node) = (
                    number(keys::DEBUG_DAEMONS_PER_PROC)?,
                    number(keys::DEBUG_DAEMONS_PER_NODE)?,
                );
                let by_map = said(keys::MAP_BY).and_then(Value::as_text).and_then(per);
                if let (None, None) = (per_proc, per_node) {
                    (per_proc, per_node) = by_map.unwrap_or((None, Some(1)));
                }
                Wanted {
                    targets: debugged(target).ok_or(Status::BAD_PARAM)?,
                    per_proc,
                    per_node,
                    places: Places::Exactly,
                }
            }
            None => {
                let per_proc = number(keys::COLOCATE_PER_PROC)?;
                let per_node = number(keys::COLOCATE_PER_NODE)?;
                let Some(procs) = said(keys::COLOCATE_PROCS) else {
                    return match per_proc.or(per_node) {
                        None => Ok(None),
                        Some(_) => Err(Status::BAD_PARAM),
                    };
                };
                let named = procs.as_procs().ok_or(Status::BAD_PARAM)?;
                Wanted {
                    targets: named.into_iter().cloned().collect(),
                    per_proc,
                    per_node,
                    places: Places::AtMost,
                }
            }
        };
        self.colocated(&wanted).map(Some)
    }

    fn colocated(&self, wanted: &Wanted) -> Result<Colocation, Status> {
        let mut targets: BTreeMap<JobId, RankSet> = BTreeMap::new();
        for proc in &wanted.targets {
            let job = self.job_called(&proc.nspace).ok_or(Status::NOT_FOUND)?;
            let ranks = match proc.rank {
                PmixRank::WILDCARD => RankSet::range(0..job.size),
                PmixRank(rank) if rank < job.size => RankSet::single(Rank(rank)),
                _ => return Err(Status::NOT_FOUND),
            };
            let all = targets.entry(job.id).or_default();
            *all = all.union(&ranks);
        }
        let mut nodes: BTreeMap<NodeId, usize> = BTreeMap::new();
        for (job, ranks) in &targets {
            let shares = self.jobs.get(job).into_iter().flat_map(|job| &job.shares);
            for (node, share) in shares {
                let here = share.ranks.intersection(ranks).len();
                if here > 0 {
                    *nodes.entry(*node).or_default() += here;
                }
            }
        }
        if nodes.is_empty() {
            return Err(Status::NOT_FOUND);
        }
        let name = |node: &NodeId| self.allocation.nodes.get(node.0 as usize);
        let named = nodes
            .iter()
            .filter_map(|(node, procs)| Some((name(node)?.name.as_str(), *procs)));
        let places = |count: u32, per: fn(usize) -> usize| {
            let each = |(_, procs): &(&str, usize)| per(*procs).saturating_mul(count as usize);
            let total = named.clone().map(|node| each(&node));
            if total.fold(0, usize::saturating_add) > MAX_HOSTS {
                return Err(Status::OUT_OF_RESOURCE);
            }
            let names = named
                .clone()
                .flat_map(|node| std::iter::repeat_n(node.0, each(&node)));
            Ok(Some((wanted.places)(names.collect())))
        };
        let places = match (wanted.per_proc, wanted.per_node) {
            (Some(_), Some(_)) => return Err(Status::BAD_PARAM),
            (Some(count), None) => places(count, |procs| procs)?,
            (None, Some(count)) => places(count, |_| 1)?,
            (None, None) => None,
        };
        let hosts = named.clone().map(|(name, _)| name).collect();
        Ok(Colocation { hosts, places })
    }

    /// Returns the job with the given PMIx nspace.
    pub(in crate::controller) fn job_called(&self, nspace: &Nspace) -> Option<&Job> {
        let number = nspace.as_c_str().to_str().ok()?.rsplit_once('@')?.1;
        let job = self.jobs.get(&JobId(number.parse().ok()?))?;
        (nspace.as_bytes() == self.nspace(job.id).as_bytes()).then_some(job)
    }
}

/// Returns the procs that a debugger's daemons are for. The old attribute may have the name of a job.
pub(in crate::controller) fn debugged(target: &Value) -> Option<Vec<Proc>> {
    match target {
        Value::String(Some(name)) | Value::Nspace(Some(name)) => {
            Some(vec![Proc::all(Nspace::new(name).ok()?)])
        }
        target => Some(target.as_procs()?.into_iter().cloned().collect()),
    }
}

/// Returns the daemons per proc and per node of a mapping by `ppr:N:proc` or `ppr:N:node`.
fn per(map_by: &CStr) -> Option<(Option<u32>, Option<u32>)> {
    let (count, unit) = map_by
        .to_str()
        .ok()?
        .strip_prefix("ppr:")?
        .split_once(':')?;
    let count = Some(count.parse().ok().filter(|count| *count > 0)?);
    match unit.split(':').next()? {
        "proc" => Some((count, None)),
        "node" => Some((None, count)),
        _ => None,
    }
}
