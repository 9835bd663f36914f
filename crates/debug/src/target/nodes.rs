//! Searches on several nodes: what the agent of a node finds, and the target that follows from all nodes.
//!
//! A launcher's table names host and pid of each rank. The agent on that host shows which process the pid belongs to, as
//! `search/proof.rs` does on this node. There the launcher is no witness, because it is on another node:
//!
//! | environment of the process | result |
//! |---|---|
//! | has this rank, and the launcher's job | proved |
//! | has this rank, and the launcher names no job | proved |
//! | anything else | a process of the job with this rank is searched in all environments; else not proved |

use std::collections::{BTreeMap, btree_map::Entry};

use base::{HostList, Rank};
use serde::{Deserialize, Serialize};

use super::{
    How, MAX_RANKS, NotFound, Proc, System, Target, Whereabouts, Wish,
    environment::{self, Evidence},
    search::{
        Search,
        found::{add_not_found, how_job, numbering, title},
    },
};

/// The ranks that a launcher's table places on one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claims {
    /// The name of the launcher's job, as the ranks have it in their environment; `None` if the launcher names none.
    pub job: Option<String>,
    /// The pid of each rank, as the launcher recorded it.
    pub ranks: BTreeMap<Rank, i32>,
}

/// What was found on one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OnNode {
    /// The processes by rank.
    pub procs: BTreeMap<Rank, FoundProc>,
    /// The source of the rank numbers, as text; `None` if the processes are numbered in the order of their start.
    pub variables: Option<String>,
    /// The name of the job.
    pub job: Option<String>,
    /// The number of ranks of the job, if some of them are not on this node; `None` if unknown.
    pub size: Option<usize>,
}

/// A process of a rank on another node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FoundProc {
    /// The process was shown to belong to the job.
    There {
        /// The pid on that node.
        pid: i32,
        /// The start time on that node, in ticks since boot.
        started: u64,
        /// The path of the program; empty if unknown.
        program: String,
    },
    /// No process has this pid.
    Gone,
    /// Nothing shows which process it is.
    Unproved,
}

/// Identifies the processes of a launcher's rows on this node.
#[must_use]
pub fn identify(system: &dyn System, claims: &Claims) -> OnNode {
    let search = Search::new(system);
    let of_job = |evidence: &Evidence| match &claims.job {
        Some(job) => {
            let step = || evidence.job.strip_prefix(job.as_str());
            evidence.job == *job
                || (evidence.family == environment::Family::Slurm
                    && step().is_some_and(|step| step.starts_with('.')))
        }
        None => true,
    };
    let is_rank = |pid: i32, rank: Rank| {
        let evidence = search.evidence(pid).unwrap_or_default();
        evidence.iter().any(|one| one.rank == rank.0 && of_job(one))
    };
    // The pids may be those of a container, so the environments of all processes are the second way.
    let by_environment = || {
        let named = search.claims(|_, evidence| claims.job.is_some() && of_job(evidence));
        let job = environment::jobs(named).into_iter().next();
        job.map(|job| job.ranks).unwrap_or_default()
    };
    let mut others = None;
    let mut find = |rank: Rank, pid: i32| {
        let found = if is_rank(pid, rank) {
            Some(pid)
        } else {
            let others = others.get_or_insert_with(by_environment);
            others.get(&rank.0).copied()
        };
        let found = found.map(|pid| search.unwrap(pid));
        match found.and_then(|pid| Some((pid, search.started(pid)?))) {
            Some((pid, started)) => FoundProc::There {
                pid,
                started,
                program: search.program(pid),
            },
            None if search.started(pid).is_none() => FoundProc::Gone,
            None => FoundProc::Unproved,
        }
    };
    let ranks = claims.ranks.iter();
    OnNode {
        procs: ranks.map(|(&rank, &pid)| (rank, find(rank, pid))).collect(),
        variables: None,
        job: claims.job.clone(),
        size: None,
    }
}

/// Finds what the user asked for on this node. The result is empty if there is nothing.
#[must_use]
pub fn on_node(system: &dyn System, wish: &Wish) -> OnNode {
    match super::find(system, wish) {
        Ok(target) => OnNode::of(&target),
        Err(_) => OnNode::default(),
    }
}

impl OnNode {
    /// Returns what a search on its own node has found. Ranks that are elsewhere are left out.
    #[must_use]
    pub fn of(target: &Target) -> Self {
        let found = |proc: &Proc| {
            Some(FoundProc::There {
                pid: proc.pid,
                started: proc.started()?,
                program: proc.program.clone(),
            })
        };
        let procs = target.procs.iter();
        let has_all = { target.procs.values() }.all(|proc| proc.place != Whereabouts::NotFound);
        let last = target.procs.last_key_value().filter(|_| !has_all);
        let variables = numbering(&target.how).map(|(source, _)| source);
        Self {
            procs: procs
                .filter_map(|(&rank, proc)| Some((rank, found(proc)?)))
                .collect(),
            variables: variables.map(str::to_owned),
            job: how_job(&target.how).map(str::to_owned),
            size: last.map(|(rank, _)| rank.0 as usize + 1),
        }
    }
}

impl Target {
    /// Returns the ranks that are on other nodes and were not identified, by the names of the nodes.
    #[must_use]
    pub fn elsewhere(&self) -> BTreeMap<String, Claims> {
        let mut nodes: BTreeMap<String, Claims> = BTreeMap::new();
        for (&rank, proc) in &self.procs {
            if let Whereabouts::On(host) = &proc.place {
                let claims = nodes.entry(host.clone()).or_insert_with(|| Claims {
                    job: how_job(&self.how).map(str::to_owned),
                    ranks: BTreeMap::new(),
                });
                claims.ranks.insert(rank, proc.pid);
            }
        }
        nodes
    }

    /// Enters what the agent of a node has found. It answers only for the ranks that it was asked for.
    pub fn place(&mut self, host: &str, found: &OnNode) {
        for (rank, there) in &found.procs {
            let Some(proc) = self.procs.get_mut(rank) else {
                continue;
            };
            if proc.place != Whereabouts::On(host.to_owned()) {
                continue;
            }
            match there {
                FoundProc::There {
                    pid,
                    started,
                    program,
                } => {
                    proc.pid = *pid;
                    proc.place = Whereabouts::There {
                        host: host.to_owned(),
                        started: *started,
                    };
                    if !program.is_empty() {
                        proc.program.clone_from(program);
                    }
                }
                FoundProc::Gone => {
                    let host = Some(host.to_owned());
                    proc.place = Whereabouts::Gone { host };
                }
                FoundProc::Unproved => proc.place = Whereabouts::Unproved,
            }
        }
    }
}

/// Returns the target that the searches on several nodes have found. `own` is the name of this node, if it is one of them.
///
/// The processes keep their ranks if all nodes have numbered them alike, and no rank is there twice. Then the ranks of the job that
/// no node has are not found.
///
/// # Errors
/// No node has found a process, or the nodes have found different jobs.
pub fn over_nodes(
    wish: &Wish,
    parts: &[(String, OnNode)],
    own: Option<&str>,
) -> Result<Target, NotFound> {
    let full = || parts.iter().filter(|(_, part)| !part.procs.is_empty());
    let wish = match wish {
        Wish::Process(pid) => pid.to_string(),
        Wish::Job(text) | Wish::Name(text) => text.clone(),
    };
    let Some((_, first)) = full().next() else {
        return Err(NotFound::Nodes {
            wish,
            nodes: parts.iter().map(|(host, _)| host.clone()).collect(),
            doubts: Vec::new(),
        });
    };
    let mut jobs: BTreeMap<String, HostList> = BTreeMap::new();
    for (host, part) in full() {
        if let Some(job) = &part.job {
            jobs.entry(job.clone()).or_default().push(host);
        }
    }
    // A verdict on ranks of two jobs would be about neither.
    if jobs.len() > 1 {
        return Err(NotFound::SeveralJobs { wish, jobs });
    }
    let is_alike = full().all(|(_, part)| {
        part.variables.is_some() && part.variables == first.variables && part.job == first.job
    });
    let proc = |host: &str, found: &FoundProc| {
        let FoundProc::There {
            pid,
            started,
            program,
        } = found
        else {
            return None;
        };
        let started = *started;
        let place = if own == Some(host) {
            Whereabouts::Here { started }
        } else {
            let host = host.to_owned();
            Whereabouts::There { host, started }
        };
        Some(Proc {
            pid: *pid,
            place,
            program: program.clone(),
        })
    };
    let all = || {
        full().flat_map(|(host, part)| {
            let procs = part.procs.iter();
            procs.filter_map(|(&rank, found)| Some((rank, proc(host, found)?)))
        })
    };
    let mut by_rank = Some(BTreeMap::new()).filter(|_| is_alike);
    for (rank, proc) in all() {
        if let Some(procs) = &mut by_rank {
            match procs.entry(rank) {
                Entry::Vacant(vacant) => drop(vacant.insert(proc)),
                Entry::Occupied(_) => by_rank = None,
            }
        }
    }
    let is_numbered = by_rank.is_some();
    let procs = match by_rank {
        Some(mut procs) => {
            add_not_found(&mut procs, full().filter_map(|(_, part)| part.size).max());
            procs
        }
        None => {
            let procs = all().map(|(_, proc)| proc);
            (0..).map(Rank).zip(procs).take(MAX_RANKS).collect()
        }
    };
    let how = How::Nodes {
        wish,
        nodes: parts.len(),
        variables: first.variables.clone().filter(|_| is_numbered),
        job: first.job.clone().filter(|_| is_numbered),
    };
    Ok(Target {
        title: title(&how, &procs),
        how,
        procs,
        tried: Vec::new(),
        doubts: Vec::new(),
        notes: Vec::new(),
    })
}
