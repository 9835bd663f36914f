//! The expected job info and environment of each proc, derived from the launches of all nodes. The job info that a process
//! gets must be the same on every node.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::{CStr, OsString},
    fmt,
};

use base::{JobId, NodeId, ProcId, Rank};
use dvm::{
    proto::{Launch, Parent, Relation, StartFailure, StartStep},
    spec::HoldAt,
};
use pmix::{
    client::Program,
    keys,
    value::{Key, Nspace, PmixRank, Proc, Status, Value},
};

use super::proc_id;
use crate::{names::nspace, script::named};

/// Returns the host name of a node.
pub(crate) fn host(node: NodeId) -> String {
    format!("n{node}")
}

/// The expected value of one item of job info.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Fact {
    Count(u64),
    Text(String),
    Proc(Proc),
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => fmt::Display::fmt(count, f),
            Self::Text(text) => fmt::Debug::fmt(text, f),
            Self::Proc(proc) => fmt::Display::fmt(proc, f),
        }
    }
}

/// The node and app of a rank, and the rank's numbers in both.
#[derive(Clone, Copy, Debug)]
struct Place {
    node: NodeId,
    app: u32,
    app_rank: u32,
    local_rank: u32,
}

#[derive(Debug, Default)]
struct Job {
    size: u32,
    universe: u32,
    offset: u32,
    parent: Option<Proc>,
    /// The tool for which the launcher has waited.
    controller: Option<JobId>,
    /// True if other jobs were launched before.
    is_later: bool,
    is_held: bool,
    /// True if its ranks are held in their init, and not at their first instruction.
    is_held_in_init: bool,
    /// The name of the program of each app.
    programs: Vec<String>,
    ranks: BTreeMap<Rank, Place>,
    of_nodes: BTreeMap<NodeId, BTreeSet<Rank>>,
    of_apps: BTreeMap<u32, BTreeSet<Rank>>,
}

/// The launched jobs of a run.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    jobs: BTreeMap<JobId, Job>,
    /// The job of each child. A child is a spawn of the scenario, and its number is the name of the program that it spawns.
    children: BTreeMap<usize, JobId>,
}

const JOB_KEYS: [&CStr; 7] = [
    keys::JOB_SIZE,
    keys::MAX_PROCS,
    keys::UNIVERSE_SIZE,
    keys::JOB_NUM_APPS,
    keys::NUM_NODES,
    keys::NODE_LIST,
    keys::RANK_OFFSET,
];

const RANK_KEYS: [&CStr; 13] = [
    keys::GLOBAL_RANK,
    keys::APP_NUMBER,
    keys::APP_RANK,
    keys::LOCAL_RANK,
    keys::NODE_RANK,
    keys::NODE_ID,
    keys::HOSTNAME,
    keys::PARENT_ID,
    keys::LOCAL_SIZE,
    keys::LOCAL_PEERS,
    keys::LOCAL_LEADER,
    keys::APP_SIZE,
    keys::APP_LEADER,
];

impl Job {
    /// Returns the expected value of a key of the job as a whole; `None` for any other key.
    fn fact(&self, key: &CStr) -> Option<Fact> {
        let count = |count: usize| Some(Fact::Count(count as u64));
        match key {
            _ if key == keys::JOB_SIZE => Some(Fact::Count(self.size.into())),
            _ if key == keys::MAX_PROCS || key == keys::UNIVERSE_SIZE => {
                Some(Fact::Count(self.universe.into()))
            }
            _ if key == keys::JOB_NUM_APPS => count(self.of_apps.len()),
            _ if key == keys::NUM_NODES => count(self.of_nodes.len()),
            _ if key == keys::NODE_LIST => {
                Some(Fact::Text(list(self.of_nodes.keys().copied(), host)))
            }
            _ if key == keys::RANK_OFFSET => Some(Fact::Count(self.offset.into())),
            _ => None,
        }
    }

    /// Returns the expected value of a key of a rank, its node or its app; `None` if the job's launches do not determine it.
    fn rank_fact(&self, rank: Rank, key: &CStr) -> Option<Fact> {
        let place = self.ranks.get(&rank)?;
        let number = |number: u32| Some(Fact::Count(number.into()));
        let peers = self.of_nodes.get(&place.node)?;
        let alike = self.of_apps.get(&place.app)?;
        match key {
            _ if key == keys::GLOBAL_RANK => number(self.offset + rank.0),
            _ if key == keys::APP_NUMBER => number(place.app),
            _ if key == keys::APP_RANK => number(place.app_rank),
            _ if key == keys::LOCAL_RANK => number(place.local_rank),
            // The node rank counts the procs of all jobs, and others may use the node.
            _ if key == keys::NODE_RANK && !self.is_later => number(place.local_rank),
            _ if key == keys::NODE_ID => number(place.node.0),
            _ if key == keys::HOSTNAME => Some(Fact::Text(host(place.node))),
            _ if key == keys::PARENT_ID => self.parent.clone().map(Fact::Proc),
            _ if key == keys::LOCAL_SIZE => Some(Fact::Count(peers.len() as u64)),
            _ if key == keys::LOCAL_PEERS => Some(Fact::Text(list(peers, |rank| rank.to_string()))),
            _ if key == keys::LOCAL_LEADER => number(peers.first()?.0),
            _ if key == keys::APP_SIZE => Some(Fact::Count(alike.len() as u64)),
            _ if key == keys::APP_LEADER => number(alike.first()?.0),
            _ => None,
        }
    }

    fn place(&mut self, rank: Rank, place: Place) {
        self.ranks.insert(rank, place);
        self.of_nodes.entry(place.node).or_default().insert(rank);
        self.of_apps.entry(place.app).or_default().insert(rank);
    }
}

impl Facts {
    /// Records a launch that the controller sends to a node.
    pub(crate) fn on_launch(&mut self, node: NodeId, launch: &Launch) {
        let is_later = self.jobs.keys().any(|job| *job != launch.job);
        let job = self.jobs.entry(launch.job).or_insert_with(|| Job {
            is_later,
            ..Job::default()
        });
        job.size = launch.size();
        job.universe = launch.universe.size();
        job.offset = launch.offset;
        job.is_held = launch.hold.at != HoldAt::Nowhere;
        job.is_held_in_init = launch.hold.at == HoldAt::Init;
        let parent = launch.parent.as_ref();
        let controls = |parent: &&Parent| parent.relation == Relation::Controller;
        job.controller = parent.filter(controls).map(|parent| parent.proc.job);
        // The procs do not know of a tool.
        let parent = parent.filter(|parent| !controls(parent));
        job.parent = parent.and_then(|parent| {
            let nspace = Nspace::from_text(&parent.nspace).ok()?;
            Some(named(&nspace, parent.proc.rank))
        });
        let programs = launch.apps.iter();
        let programs = programs.map(|app| app.program.to_string_lossy().into_owned());
        job.programs = programs.collect();
        for placed in launch.map.on_node(node) {
            let place = Place {
                node,
                app: placed.app,
                app_rank: placed.app_rank,
                local_rank: placed.local_rank,
            };
            job.place(placed.rank, place);
        }
        if let Some(child) = child_of(launch) {
            self.children.insert(child, launch.job);
        }
    }

    pub(crate) fn job_of_child(&self, child: usize) -> Option<JobId> {
        self.children.get(&child).copied()
    }

    pub(crate) fn size(&self, job: JobId) -> u32 {
        self.jobs.get(&job).map_or(0, |job| job.size)
    }

    /// Returns the job whose process spawned this job; `None` if a front submitted it.
    pub(crate) fn parent_of(&self, job: JobId) -> Option<JobId> {
        job_id(&self.jobs.get(&job)?.parent.as_ref()?.nspace)
    }

    /// Returns the number of the tool that controls a job.
    pub(crate) fn controller_of(&self, job: JobId) -> Option<JobId> {
        self.jobs.get(&job)?.controller
    }

    /// Returns the job that a tool controls.
    pub(crate) fn controlled_by(&self, tool: JobId) -> Option<JobId> {
        let mut jobs = self.jobs.iter();
        let controlled = jobs.find(|(_, job)| job.controller == Some(tool));
        controlled.map(|(job, _)| *job)
    }

    /// Returns the process that has spawned a job whose ranks are held.
    pub(crate) fn holder_of(&self, job: JobId) -> Option<ProcId> {
        let job = self.jobs.get(&job).filter(|job| job.is_held)?;
        proc_id(job.parent.as_ref()?)
    }

    /// Returns true if the ranks of a job are held.
    pub(super) fn is_held(&self, job: JobId) -> bool {
        self.jobs.get(&job).is_some_and(|job| job.is_held)
    }

    /// Returns true if the ranks of a job are held in their init.
    pub(super) fn is_held_in_init(&self, job: JobId) -> bool {
        self.jobs.get(&job).is_some_and(|job| job.is_held_in_init)
    }

    /// Returns the number of jobs that were launched.
    pub(super) fn jobs(&self) -> u64 {
        self.jobs.len() as u64
    }

    /// Returns the number of ranks of all jobs on a node.
    pub(super) fn ranks_on(&self, node: NodeId) -> u64 {
        let jobs = self.jobs.values();
        let ranks = jobs.filter_map(|job| Some(job.of_nodes.get(&node)?.len() as u64));
        ranks.sum()
    }

    /// Returns the ranks of all jobs on a node.
    pub(super) fn all_on(&self, node: NodeId) -> Vec<ProcId> {
        let on_node = |(job, facts): (&JobId, &Job)| {
            let (job, ranks) = (*job, facts.of_nodes.get(&node).cloned());
            let ranks = ranks.into_iter().flatten();
            ranks.map(|rank| ProcId { job, rank }).collect::<Vec<_>>()
        };
        self.jobs.iter().flat_map(on_node).collect()
    }

    /// Returns the ranks of a job, each with its node and the name of its program.
    pub(super) fn places(&self, job: JobId) -> impl Iterator<Item = (Rank, NodeId, &str)> {
        let job = self.jobs.get(&job);
        job.into_iter().flat_map(|job| {
            let program = |app: u32| job.programs.get(app as usize).map_or("", String::as_str);
            let ranks = job.ranks.iter();
            ranks.map(move |(rank, place)| (*rank, place.node, program(place.app)))
        })
    }

    pub(crate) fn node_of(&self, proc: ProcId) -> Option<NodeId> {
        let place = self.jobs.get(&proc.job)?.ranks.get(&proc.rank)?;
        Some(place.node)
    }

    /// Returns the procs that PMIx names stand for. A name with a wildcard rank stands for all procs of its job.
    pub(crate) fn members(&self, names: &[Proc]) -> Vec<ProcId> {
        let mut members = Vec::new();
        for name in names {
            if let Some(one) = proc_id(name) {
                members.push(one);
            } else if let Some(job) = job_id(&name.nspace) {
                let ranks = (0..self.size(job)).map(Rank);
                members.extend(ranks.map(|rank| ProcId { job, rank }));
            }
        }
        members
    }

    /// Compares the name, the host name and the job info that a process got with its launch. Returns the first difference.
    pub(crate) fn of_own_job(&self, program: &Program, proc: ProcId) -> Option<String> {
        let me = program.me()?;
        if me.nspace.to_string() != nspace(proc.job) || me.rank.0 != proc.rank.0 {
            return Some(format!("it is {me}"));
        }
        let node = self.node_of(proc)?;
        let said = program.config().hostname.as_ref();
        if said.is_none_or(|said| said.to_string_lossy() != host(node)) {
            return Some(format!("its node is {said:?}, and not {}", host(node)));
        }
        self.of_job(program, &me.nspace)
    }

    /// Compares the job info about `name` that a process got with the launches of that job. Returns the first difference.
    pub(crate) fn of_job(&self, program: &Program, name: &Nspace) -> Option<String> {
        let job = self.jobs.get(&job_id(name)?)?;
        let all = Proc::all(name.clone());
        let of_job = JOB_KEYS.iter().map(|key| (&all, *key, job.fact(key)));
        let ranks: Vec<(Rank, Proc)> = job
            .ranks
            .keys()
            .map(|rank| (*rank, named(name, *rank)))
            .collect();
        let of_ranks = ranks.iter().flat_map(|(rank, proc)| {
            let facts = RANK_KEYS.iter();
            facts.map(move |key| (proc, *key, job.rank_fact(*rank, key)))
        });
        of_job.chain(of_ranks).find_map(|(proc, key, fact)| {
            let told = program.find(proc, &Key::new(key).ok()?);
            differs(proc, key, &fact?, told)
        })
    }

    /// Compares one item of job info that a process got with the launches. Returns the difference, if any.
    pub(crate) fn one(&self, of: &Proc, key: &str, value: &Value) -> Option<String> {
        let job = self.jobs.get(&job_id(&of.nspace)?)?;
        let key = Key::from_text(key).ok()?;
        let fact = match of.rank {
            PmixRank::WILDCARD => job.fact(key.as_c_str()),
            rank => job.rank_fact(Rank(rank.0), key.as_c_str()),
        };
        differs(of, key.as_c_str(), &fact?, Some(value))
    }

    /// Compares the environment of a process with its launch. Returns the first difference.
    pub(crate) fn of_environment(
        &self,
        proc: ProcId,
        environment: &BTreeMap<String, OsString>,
    ) -> Option<String> {
        let job = self.jobs.get(&proc.job)?;
        let place = job.ranks.get(&proc.rank)?;
        let peers = job.of_nodes.get(&place.node).map_or(0, BTreeSet::len);
        let apps = &job.of_apps;
        let spaced = |numbers: Vec<u64>| {
            let words: Vec<String> = numbers.iter().map(u64::to_string).collect();
            words.join(" ")
        };
        let firsts = apps.values().filter_map(|ranks| ranks.first());
        let expected = [
            ("RALLY_JOB", proc.job.to_string()),
            ("RALLY_RANK", proc.rank.to_string()),
            ("RALLY_SIZE", job.size.to_string()),
            ("RALLY_LOCAL_RANK", place.local_rank.to_string()),
            ("RALLY_LOCAL_SIZE", peers.to_string()),
            ("RALLY_NODE", place.node.to_string()),
            ("OMPI_COMM_WORLD_RANK", proc.rank.to_string()),
            ("OMPI_COMM_WORLD_SIZE", job.size.to_string()),
            ("OMPI_COMM_WORLD_LOCAL_RANK", place.local_rank.to_string()),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", peers.to_string()),
            ("OMPI_UNIVERSE_SIZE", job.universe.to_string()),
            ("OMPI_NUM_APP_CTX", apps.len().to_string()),
            (
                "OMPI_APP_CTX_NUM_PROCS",
                spaced(apps.values().map(|ranks| ranks.len() as u64).collect()),
            ),
            (
                "OMPI_FIRST_RANKS",
                spaced(firsts.map(|first| first.0.into()).collect()),
            ),
            ("PMI_RANK", proc.rank.to_string()),
            ("PMI_SIZE", job.size.to_string()),
            ("PMIX_RANK", proc.rank.to_string()),
            ("PMIX_NAMESPACE", nspace(proc.job)),
            ("PMIX_HOSTNAME", host(place.node)),
        ];
        expected.iter().find_map(|(name, expected)| {
            let found = environment.get(*name);
            let is_right = found.is_some_and(|found| found.to_str() == Some(expected.as_str()));
            (!is_right).then(|| format!("`{name}` is {found:?}, and not {expected:?}"))
        })
    }
}

/// Returns the number of the child that a launch starts; `None` for a job that a front submitted.
pub(crate) fn child_of(launch: &Launch) -> Option<usize> {
    launch.apps.first()?.program.to_str()?.parse().ok()
}

fn differs(of: &Proc, key: &CStr, fact: &Fact, told: Option<&Value>) -> Option<String> {
    let is_right = match (fact, told) {
        (Fact::Count(count), Some(told)) => told.as_count() == Some(*count),
        (Fact::Text(text), Some(told)) => {
            told.as_text().and_then(|told| told.to_str().ok()) == Some(text.as_str())
        }
        (Fact::Proc(proc), Some(Value::Proc(told))) => **told == *proc,
        _ => false,
    };
    let key = key.to_string_lossy();
    let told = told.map_or_else(|| "nothing".to_owned(), ToString::to_string);
    (!is_right).then(|| format!("`{key}` of {of} is {told}, and not {fact}"))
}

pub(crate) fn job_id(name: &Nspace) -> Option<JobId> {
    let name = name.to_string();
    let (_, number) = name.rsplit_once('@')?;
    Some(JobId(number.parse().ok()?))
}

fn list<T>(items: impl IntoIterator<Item = T>, text: impl Fn(T) -> String) -> String {
    let items: Vec<String> = items.into_iter().map(text).collect();
    items.join(",")
}

/// Returns the PMIx status with which a spawn must fail after this failure to start.
pub(crate) fn status_of(failure: &StartFailure) -> Status {
    match (failure.step, failure.errno) {
        (StartStep::Find, _) => Status::JOB_EXE_NOT_FOUND,
        // EACCES
        (StartStep::Exec, 13) => Status::JOB_APP_NOT_EXECUTABLE,
        (StartStep::Directory, _) => Status::JOB_WDIR_NOT_FOUND,
        _ => Status::JOB_FAILED_TO_LAUNCH,
    }
}
