//! Cgroups of the jobs of this node that have limits.
//!
//! | name | what is in it |
//! |---|---|
//! | `rally-PID.STARTTIME` | the leaf of a controller or daemon: its processes, if they cannot stay where they were |
//! | `rally-PID.STARTTIME-JOB.NODE` | the next two, and no process |
//! | `…/ranks` | the ranks of a job, and what they start. It has the limits, and its counts are those of the job |
//! | `…/tool-TOOL` | the processes of a tool or of a debugger's daemons beside these ranks, without limits |
//!
//! The processes of a job that is over on this node are killed, and its cgroup is removed with the state of the job. That of the whole is
//! removed with its last cgroup: a tool may need its grace longer than the ranks. If the process dies, the next start that finds its record kills and removes the
//! cgroups of its jobs ([`remove_of`]), if it is in the same cgroup; what is empty is removed by the next process that makes cgroups
//! beside it. systemd removes the rest with the scope or the service in which they are.

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make a tree of files")]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    os::fd::BorrowedFd,
    path::{Path, PathBuf},
};

use base::{ExitStatus, JobId, NodeId, Signal};
use dvm::{
    proto::{Counted, NotEnforced, Unenforced},
    spec::{LimitedResource, ResourceLimits},
};
use os::{Cgroup, CgroupLimits, CgroupTree, Controller, NoCgroup, Pid};
use tracing::warn;

/// Processes between one and its ancestor that started it.
const ANCESTORS_MAX: usize = 64;
/// Beginning of the names of all our cgroups.
const PREFIX: &str = "rally-";
/// Name of the cgroup of a job's ranks.
const RANKS: &str = "ranks";
/// Beginning of the names of the cgroups beside it.
const TOOL: &str = "tool-";

/// The cgroups of a daemon's jobs.
#[derive(Debug)]
pub(crate) struct JobCgroups {
    /// Directory that contains `/proc` and `/sys`.
    root: PathBuf,
    owner: String,
    node: NodeId,
    jobs: BTreeMap<JobId, Limited>,
    /// Cgroups of the jobs that are beside the ranks of others.
    tools: BTreeMap<JobId, Cgroup>,
    /// Cgroups that were still in use when their jobs were forgotten.
    left: Vec<Cgroup>,
    /// Those that had these below them.
    left_above: Vec<CgroupTree>,
    /// The tree in which cgroups were made.
    used: Option<CgroupTree>,
    /// Controllers that were not enabled there before.
    enabled: Vec<Controller>,
}

#[derive(Debug)]
struct Limited {
    /// Where the cgroups of the ranks and of the tools beside them are.
    whole: CgroupTree,
    ranks: Cgroup,
    /// Limit of its memory in bytes, if there is one.
    memory: Option<u64>,
}

impl JobCgroups {
    pub(crate) fn new(root: &Path, owner: &str, node: NodeId) -> Self {
        Self {
            root: root.to_owned(),
            owner: owner.to_owned(),
            node,
            jobs: BTreeMap::new(),
            tools: BTreeMap::new(),
            left: Vec::new(),
            left_above: Vec::new(),
            used: None,
            enabled: Vec::new(),
        }
    }

    /// Makes the cgroup of a job, if the job has limits. Returns the limits that cannot be enforced.
    pub(crate) fn prepare(&mut self, job: JobId, limits: &ResourceLimits) -> Vec<Unenforced> {
        let wanted = limits.wanted();
        if wanted.is_empty() {
            return Vec::new();
        }
        let unenforced = |why, limits| Unenforced { why, limits };
        let tree = match CgroupTree::find(&self.root, is_leaf) {
            Ok(tree) => tree,
            Err(why) => return vec![unenforced(reason(why), wanted)],
        };
        let has_controller = |limit: &LimitedResource| tree.offers(controller(*limit));
        let (offered, lacking): (BTreeSet<_>, BTreeSet<_>) =
            wanted.into_iter().partition(has_controller);
        let mut all = Vec::new();
        if !lacking.is_empty() {
            all.push(unenforced(NotEnforced::NoController, lacking.clone()));
        }
        if offered.is_empty() {
            return all;
        }
        match self.create(&tree, job, &offered, limits.without(&lacking)) {
            Ok(limited) => {
                self.jobs.insert(job, limited);
            }
            Err(why) => all.push(unenforced(reason(why), offered)),
        }
        all
    }

    fn create(
        &mut self,
        tree: &CgroupTree,
        job: JobId,
        offered: &BTreeSet<LimitedResource>,
        limits: ResourceLimits,
    ) -> Result<Limited, NoCgroup> {
        tree.remove_empty(|name| owner_of(name).is_some_and(is_gone));
        let controllers: Vec<Controller> = offered.iter().copied().map(controller).collect();
        let enabled = tree.enable(&controllers, &leaf_of(&self.owner), are_ours())?;
        self.enabled.extend(enabled);
        self.used = Some(tree.clone());
        let name = format!("{}-{job}.{}", leaf_of(&self.owner), self.node);
        let limits = CgroupLimits {
            memory: limits.memory,
            milli_cpus: limits.milli_cpus,
        };
        let whole = tree.branch(&name)?;
        let ranks = whole
            .enable(&controllers, RANKS, |_| false)
            .and_then(|_| whole.create(RANKS, &limits));
        match ranks {
            Ok(ranks) => Ok(Limited {
                whole,
                ranks,
                memory: limits.memory,
            }),
            Err(why) => {
                let _ = whole.remove();
                Err(why)
            }
        }
    }

    /// Makes the cgroup of a job whose processes are beside the ranks of another one. Without a cgroup of that, or if the kernel refuses,
    /// they are where this process is.
    pub(crate) fn prepare_beside(&mut self, job: JobId, target: JobId) {
        let Some(target) = self.jobs.get(&target) else {
            return;
        };
        let name = format!("{TOOL}{job}");
        match target.whole.create(&name, &CgroupLimits::default()) {
            Ok(cgroup) => {
                self.tools.insert(job, cgroup);
            }
            Err(why) => warn!("job {job} is in no cgroup of its target: {why:?}"),
        }
    }

    fn cgroup(&self, job: JobId) -> Option<&Cgroup> {
        let of_ranks = self.jobs.get(&job).map(|limited| &limited.ranks);
        of_ranks.or_else(|| self.tools.get(&job))
    }

    /// Returns the file through which the procs of a job join its cgroup, if it has one.
    pub(crate) fn procs(&self, job: JobId) -> Option<BorrowedFd<'_>> {
        self.cgroup(job).map(Cgroup::procs)
    }

    /// Returns the processes in the cgroup of a job.
    pub(crate) fn processes(&self, job: JobId) -> Vec<Pid> {
        let cgroup = self.cgroup(job);
        cgroup.map(Cgroup::processes).unwrap_or_default()
    }

    /// Kills all processes in the cgroup of a job.
    pub(crate) fn kill(&self, job: JobId) {
        if let Some(cgroup) = self.cgroup(job) {
            cgroup.kill();
        }
    }

    /// Returns what the cgroup of a job has counted, if it has one.
    pub(crate) fn counted(&self, job: JobId) -> Option<Counted> {
        let usage = self.cgroup(job)?.usage();
        Some(Counted {
            user: usage.user,
            system: usage.system,
            peak: usage.peak,
            storage: usage.storage,
        })
    }

    /// Returns how a rank of a job has ended: the kernel kills the whole job on this node when its memory is used up.
    pub(crate) fn explain(&self, job: JobId, status: ExitStatus) -> ExitStatus {
        let is_killed = matches!(
            status,
            ExitStatus::Signaled {
                signal: Signal::KILL,
                ..
            }
        );
        let limited = self.jobs.get(&job).filter(|_| is_killed);
        let limited = limited.filter(|limited| limited.ranks.is_out_of_memory());
        match limited.and_then(|limited| limited.memory) {
            Some(limit) => ExitStatus::OutOfMemory { limit },
            None => status,
        }
    }

    /// Removes the cgroup of a job that is over on this node.
    pub(crate) fn forget(&mut self, job: JobId) {
        self.kill(job);
        self.left.extend(self.tools.remove(&job));
        if let Some(Limited { whole, ranks, .. }) = self.jobs.remove(&job) {
            self.left.push(ranks);
            self.left_above.push(whole);
        }
        self.remove_left();
    }

    /// Removes what can be removed. A cgroup may be in use a moment longer than the processes live that we see.
    fn remove_left(&mut self) {
        self.left.retain(|cgroup| cgroup.remove().is_err());
        self.left_above.retain(|whole| whole.remove().is_err());
    }
}

impl Drop for JobCgroups {
    fn drop(&mut self) {
        let jobs: Vec<JobId> = self.jobs.keys().chain(self.tools.keys()).copied().collect();
        jobs.into_iter().for_each(|job| self.forget(job));
        self.remove_left();
        if let Some(tree) = &self.used {
            // If the kernel refuses, an empty leaf remains when our processes have ended.
            let _ = tree.restore(&leaf_of(&self.owner), &self.enabled);
        }
    }
}

/// Kills and removes the cgroups of the jobs of a controller or daemon that is dead. Returns true if none is left.
pub(crate) fn remove_of(root: &Path, owner: &str) -> bool {
    let Ok(tree) = CgroupTree::find(root, is_leaf) else {
        return true;
    };
    let of_jobs = format!("{}-", leaf_of(owner));
    tree.remove_all(|name| name.starts_with(&of_jobs))
}

fn leaf_of(owner: &str) -> String {
    format!("{PREFIX}{owner}")
}

const fn controller(limit: LimitedResource) -> Controller {
    match limit {
        LimitedResource::Memory => Controller::MEMORY,
        LimitedResource::Cpu => Controller::CPU,
    }
}

const fn reason(why: NoCgroup) -> NotEnforced {
    match why {
        NoCgroup::NotMounted => NotEnforced::NoCgroups,
        NoCgroup::NotPermitted => NotEnforced::NotPermitted,
        NoCgroup::Shared => NotEnforced::Shared,
        NoCgroup::Refused(errno) => NotEnforced::Refused(errno),
    }
}

/// Returns the owner of a cgroup of ours, its pid and start time, by the name of the cgroup.
fn owner_of(name: &str) -> Option<(Pid, u64)> {
    let owner = name.strip_prefix(PREFIX)?.split('-').next()?;
    let mut parts = owner.split('.');
    let pid = parts.next()?.parse().ok()?;
    let start = parts.next()?.parse().ok()?;
    Some((Pid::from_raw(pid), start))
}

fn is_leaf(name: &str) -> bool {
    let own = name.strip_prefix(PREFIX);
    owner_of(name).is_some() && own.is_some_and(|own| !own.contains('-'))
}

/// Returns true if a process has ended, also if its parent has not reaped it yet.
fn is_gone((pid, start): (Pid, u64)) -> bool {
    let process = os::inspect(pid).filter(|process| process.start_time == start);
    process.is_none_or(|process| matches!(process.state, 'Z' | 'X'))
}

/// Returns the test whether a process may be moved: front, guardian, controller and daemons run the same program, and ranks and start
/// commands are our descendants. It looks at the process when it is asked: ranks of other jobs start processes at any time.
fn are_ours() -> impl Fn(Pid) -> bool {
    let us = os::current_pid();
    let program = os::program_of(us);
    move |pid| is_below(us, pid) || program.is_some() && os::program_of(pid) == program
}

/// Returns true if a process is this one or a descendant of it, or has ended meanwhile.
fn is_below(us: Pid, pid: Pid) -> bool {
    let mut pid = pid;
    for _ in 0..ANCESTORS_MAX {
        if pid == us {
            return true;
        }
        match os::inspect(pid) {
            Some(process) if process.ppid.as_raw() > 1 => pid = process.ppid,
            Some(_) => return false,
            None => return true,
        }
    }
    false
}
