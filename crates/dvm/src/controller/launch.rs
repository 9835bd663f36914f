//! Turning a submitted or spawned job into the launch for its daemons, or into a refusal.

#[cfg(test)]
mod tests;

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use base::{HostList, JobId, NodeId, ProcId, RankSet, Time};

use pmix::value::Status;

use super::{
    Controller, ControllerOutput, Job, Node, Origin, Phase,
    controlling::Permission,
    job::{Kind, NewJob},
    preloads::Copied,
    spawned::refused_status,
};
use crate::{
    alloc::Slots,
    machine::Grant,
    place::{self, JobMap, Topologies},
    planted::{self, Bug},
    preload::Source,
    proto::{
        FrontId, Launch, LaunchNode, LaunchNodes, NodeLoad, Note, RankChoice, Refusal, ToDaemon,
        ToFront, Universe, VERSION,
    },
    spec::{
        Destination, JobSpec, MapFor, NodeGpus, OnFailure, Pattern, PatternFacts, Recorder,
        ResourceLimits, StdinTarget, UniverseSize,
    },
};

impl Controller {
    /// Adds a job, whose number is the next one, and launches it as soon as that is possible.
    pub(super) fn insert(&mut self, now: Time, job: NewJob) {
        let (id, root) = (job.id, job.root);
        self.next_job = self.next_job.max(id.0) + 1;
        let mut job = Job::new(now, job);
        let root = self.jobs.get(&root).filter(|_| job.beside.is_none());
        job.is_stopped = root.is_some_and(|root| root.is_stopped);
        self.jobs.insert(id, job);
        self.classify_all();
        self.read_files(id);
        self.launch_if_ready(id);
    }

    /// Adds a job, and launches it as soon as all daemons are connected. `root` is the job that `front` has submitted.
    pub(super) fn add(
        &mut self,
        now: Time,
        spec: Box<JobSpec>,
        origin: Origin,
        front: FrontId,
        root: JobId,
    ) {
        // What a job of the queue spawns runs on the nodes of that job.
        let grant = self.jobs.get(&root).and_then(|job| job.grant.clone());
        self.add_granted(now, spec, origin, front, root, grant);
    }

    /// Adds a job that may use only what it is granted.
    pub(super) fn add_granted(
        &mut self,
        now: Time,
        spec: Box<JobSpec>,
        origin: Origin,
        front: FrontId,
        root: JobId,
        grant: Option<Arc<Grant>>,
    ) {
        let id = JobId(self.next_job);
        let job = NewJob {
            id,
            spec,
            origin,
            front,
            root,
            nspace: self.nspace(id),
            grant,
            beside: None,
        };
        self.insert(now, job);
    }

    /// Handles a daemon's `Hello`. A daemon of another version is not used, and then no job can be launched.
    pub(super) fn on_hello(&mut self, node: NodeId, version: u32, said: NodeId, hello: Node) {
        if self.nodes.contains_key(&node) {
            return self.log(format!(
                "the daemon on node {node} says hello again: ignored"
            ));
        }
        if version != VERSION {
            self.other_version = Some(Refusal::OtherVersion {
                host: hello.host,
                ours: VERSION,
                theirs: version,
            });
        } else if self.retired.contains_key(&node) {
            // Its allocation was given back meanwhile.
            let leave = ControllerOutput::Daemon(node, ToDaemon::Leave);
            return self.outputs.push_back(leave);
        } else if said != node {
            return self.log(format!(
                "the daemon on node {node} calls itself node {said}: ignored"
            ));
        } else {
            let topology = hello.topology;
            self.nodes.insert(node, hello);
            self.classify(node, topology);
            self.tell_running_jobs(node);
        }
        for job in self.living() {
            self.launch_if_ready(job);
        }
    }

    /// Places a job once all daemons have connected, or refuses it. Launches it when its files are on its nodes.
    pub(super) fn launch_if_ready(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(&id).filter(|job| job.phase == Phase::Waiting) else {
            return;
        };
        match self.controlling.permission(job) {
            Permission::Given => {}
            Permission::Awaited => return,
            Permission::Never => return self.refuse(id, Refusal::ToolEnded),
        }
        self.take_directives(id);
        let Some(job) = self.jobs.get(&id) else {
            return;
        };
        match self.place(job) {
            Ok(None) => {}
            Ok(Some((map, topologies))) if job.spec.map == MapFor::Front => {
                self.show(id, map, topologies);
            }
            Ok(Some((map, topologies))) => {
                if self.copy_files(id, map.nodes()) == Copied::Yes {
                    self.launch(id, map, topologies);
                }
            }
            Err(refusal) => self.refuse(id, refusal),
        }
    }

    /// Returns the map of a job, and the topologies that it was made for, once all daemons have connected and the topologies
    /// of their nodes are known.
    fn place(&self, job: &Job) -> Result<Option<(JobMap, Topologies)>, Refusal> {
        if let Some(refusal) = self.other_version.as_ref().or(self.not_joined.as_ref()) {
            return Err(refusal.clone());
        }
        if self.waits_for_target(job) {
            return Ok(None);
        }
        if let Some(grant) = &job.grant {
            return self.place_granted(job, grant);
        }
        let (request, allocation) = if self.machine.is_some() {
            match self.among_joined(job)? {
                Some((request, allocation)) => (request, Cow::Owned(allocation)),
                None => return Ok(None),
            }
        } else {
            let request = self.without_lost(job)?;
            let is_own = |node: &&NodeId| !self.is_apart(**node);
            let joined = self.nodes.keys().filter(is_own).count();
            if joined + self.lost.len() < self.own_nodes() {
                return Ok(None);
            }
            (request, self.own_allocation())
        };
        let Some(topologies) = self.topologies.of(&self.nodes) else {
            return Ok(None);
        };
        let map = place::place(&request, &allocation, &topologies).map_err(Refusal::Placement)?;
        check_patterns(&job.spec, map.ranks()).map_err(Refusal::Pattern)?;
        let refusal = check_ranks(&job.spec, map.ranks()).or_else(|| self.check_gpus(job, &map));
        refusal.map_or(Ok(Some((map, topologies))), Err)
    }

    /// Returns the map of a job that may use only some nodes.
    fn place_granted(
        &self,
        job: &Job,
        grant: &Grant,
    ) -> Result<Option<(JobMap, Topologies)>, Refusal> {
        let (request, allocation) = self.within(&job.spec.placement, grant)?;
        let Some(topologies) = self.topologies.of(&self.nodes) else {
            return Ok(None);
        };
        let map = place::place(&request, &allocation, &topologies).map_err(Refusal::Placement)?;
        check_patterns(&job.spec, map.ranks()).map_err(Refusal::Pattern)?;
        let refusal = check_ranks(&job.spec, map.ranks()).or_else(|| self.check_gpus(job, &map));
        refusal.map_or(Ok(Some((map, topologies))), Err)
    }

    /// Returns the placement request of a job, limited to the nodes that are not lost. Only a job that continues without lost
    /// nodes can be placed without them, unless it asks for one of them, or is the first one, for which the nodes were started.
    fn without_lost<'a>(&self, job: &'a Job) -> Result<Cow<'a, place::Request>, Refusal> {
        let request = &job.spec.placement;
        let Some((first, _)) = self.lost.first_key_value() else {
            return Ok(Cow::Borrowed(request));
        };
        let lost = self.names_of_lost();
        let gone = |host: &str| Refusal::NodeLost {
            host: host.to_owned(),
        };
        let is_first = self.offset == 0;
        if is_first || job.spec.end.on_node_loss != OnFailure::Continue {
            return Err(gone(self.name_of(*first)));
        }
        let mut request = request.clone();
        for app in &mut request.apps {
            match &app.hosts {
                Some(hosts) => {
                    if let Some(host) = hosts.iter().find(|host| lost.contains(host)) {
                        return Err(gone(host));
                    }
                }
                None => {
                    let own = self.nodes.keys().filter(|id| !self.is_apart(**id));
                    app.hosts = Some(own.map(|id| self.name_of(*id)).collect());
                }
            }
        }
        Ok(Cow::Owned(request))
    }

    pub(super) fn name_of(&self, node: NodeId) -> &str {
        let node = self.allocation.nodes.get(node.0 as usize);
        node.map_or("", |node| node.name.as_str())
    }

    pub(super) fn names_of_lost(&self) -> BTreeSet<&str> {
        self.lost.keys().map(|id| self.name_of(*id)).collect()
    }

    /// Returns a refusal if a node has fewer GPUs for the job than its procs need.
    fn check_gpus(&self, job: &Job, map: &JobMap) -> Option<Refusal> {
        let plan = job.spec.gpus.as_ref()?;
        map.nodes().find_map(|node| {
            let granted = job.grant.as_ref().and_then(|grant| grant.gpus.get(&node));
            let own = || self.nodes.get(&node)?.resources.gpus.as_ref();
            let available = match granted {
                Some(granted) => granted.names.len(),
                None if job.grant.is_some() || plan.available.is_empty() => {
                    own().map_or(0, |own| own.names.len())
                }
                None => plan.available.len(),
            };
            let available = u32::try_from(available).unwrap_or(u32::MAX);
            let procs = u32::try_from(map.ranks_on(node).len()).unwrap_or(u32::MAX);
            let needed = plan.share.needed(procs);
            (needed > u64::from(available)).then(|| Refusal::TooFewGpus {
                host: self.name_of(node).to_owned(),
                needed,
                available,
                procs,
                share: plan.share,
            })
        })
    }

    /// Returns what a machine has given a job of the GPUs of each node. Nodes where it has all of them are left out: their daemons know
    /// them.
    fn granted_gpus(&self, job: &Job) -> BTreeMap<NodeId, NodeGpus> {
        let granted = job.grant.iter().flat_map(|grant| &grant.gpus);
        let is_part = |(id, gpus): &(&NodeId, &NodeGpus)| {
            let node = self.nodes.get(id);
            node.is_none_or(|node| node.resources.gpus.as_ref() != Some(gpus))
        };
        let parts = granted.filter(is_part);
        parts.map(|(id, gpus)| (*id, gpus.clone())).collect()
    }

    /// Ends a job that was to be placed only.
    fn show(&mut self, id: JobId, map: JobMap, topologies: Topologies) {
        if let Some(job) = self.jobs.remove(&id) {
            self.tell(job.front, placed(map, topologies));
            self.finish_front(job.front);
        }
    }

    fn launch(&mut self, id: JobId, map: JobMap, topologies: Topologies) {
        let parent = self.parent(id);
        self.forgo_hold(id);
        let Some(job) = self.jobs.get(&id) else {
            return;
        };
        if job.spec.map == MapFor::FrontAndLaunch {
            self.tell(job.front, placed(map.clone(), topologies));
        }
        let Some(job) = self.jobs.get(&id) else {
            return;
        };
        let nodes = self.launch_nodes(&map, job.kind());
        let offset = self.offset;
        let universe = Universe {
            slots: self.slots(),
            said: match job.spec.universe {
                Some(UniverseSize::Procs(size)) => Some(size),
                Some(UniverseSize::Slots) => Some(self.slots()),
                Some(UniverseSize::Unknown) | None => None,
            },
        };
        let launch = Arc::new(Launch {
            limits: match job.debugged() {
                Some(_) => ResourceLimits::default(),
                None => job.spec.limits,
            },
            debugged: job.debugged(),
            job: job.id,
            nspace: job.nspace.clone(),
            universe,
            offset,
            parent,
            apps: job.spec.apps.clone(),
            nodes,
            map,
            stdin: job.spec.stdin,
            stdio: job.spec.stdio.clone(),
            end: job.spec.end,
            hold: job.spec.hold.clone(),
            front_pid: self.fronts.get(&job.front).map_or(0, |front| front.pid),
            variables: job.spec.variables.clone(),
            gpus: job.spec.gpus.clone(),
            granted_gpus: self.granted_gpus(job),
            preloaded: job.spec.preload.as_ref().map(|one| one.use_of.clone()),
            sets: job.spec.sets.clone(),
            recorder: match job.debugged() {
                Some(_) => Recorder::Off,
                None => job.spec.recorder,
            },
            beside: job.beside.clone(),
        });
        if launch.beside.is_some() {
            // Nobody else knows a tool.
            return self.with(id, |job| job.launch(&launch));
        }
        self.offset = offset.saturating_add(launch.map.ranks());
        self.subscribe_spawner(id);
        self.with(id, |job| job.launch(&launch));
        let is_there = |node: &NodeId| launch.map.nodes().any(|one| one == *node);
        let is_told = |node: &&NodeId| !planted::is(Bug::DoorNotTold) || self.door != Some(**node);
        let others = self.nodes.keys().filter(|node| !is_there(node));
        let others = others.filter(is_told);
        let told = others.map(|node| {
            let launch = ToDaemon::LaunchedElsewhere(Arc::clone(&launch));
            ControllerOutput::Daemon(*node, launch)
        });
        self.outputs.extend(told);
        if planted::is(Bug::SpawnToldTooEarly) {
            self.tell_spawned(id);
        }
    }

    /// Returns host name and load of each node of a map.
    fn launch_nodes(&self, map: &JobMap, kind: Kind) -> LaunchNodes {
        let unit = map.apps().first().and_then(|app| app.policy.map_by.unit);
        let taken = self.taken(kind);
        let node = |id: NodeId| {
            let said = self.allocation.nodes.get(id.0 as usize);
            let said = said.map_or(Slots::Implicit, |node| node.slots);
            let node = self.nodes.get(&id);
            let topology = node.and_then(|node| self.topologies.get(node.topology));
            LaunchNode {
                host: node.map_or_else(String::new, |node| node.host.clone()),
                load: NodeLoad {
                    slots: place::slots(said, topology, unit.unwrap_or_default()),
                    ..taken.get(&id).copied().unwrap_or_default()
                },
            }
        };
        map.nodes().map(node).collect()
    }

    /// Returns the load that the existing jobs of a kind put on each node. Daemons of a debugger are numbered for themselves, so that a
    /// debugged program sees the same numbers and sizes as without them.
    fn taken(&self, kind: Kind) -> BTreeMap<NodeId, NodeLoad> {
        let count = |ranks: &RankSet| u32::try_from(ranks.len()).unwrap_or(u32::MAX);
        let mut taken: BTreeMap<NodeId, NodeLoad> = BTreeMap::new();
        let counted = |job: &&Job| job.kind() == kind && job.beside.is_none();
        for job in self.jobs.values().filter(counted) {
            for (node, share) in job.shares.iter().filter(|(_, share)| !share.clean) {
                let load = taken.entry(*node).or_default();
                let behind = share.first.saturating_add(count(&share.ranks));
                load.first = load.first.max(behind);
                let running = share.ranks.difference(&job.settled);
                load.others = load.others.saturating_add(count(&running));
            }
        }
        taken
    }

    /// Returns the number of procs that the nodes have room for: their explicit slots, or else their cores.
    fn slots(&self) -> u32 {
        let cores = |index| {
            let node = self.nodes.get(&NodeId(index))?;
            let topology = self.topologies.get(node.topology)?;
            u32::try_from(topology.cores().len()).ok()
        };
        let room = (0..)
            .zip(&self.allocation.nodes)
            .filter(|(index, _)| {
                let id = NodeId(*index);
                !self.lost.contains_key(&id)
                    && !self.retired.contains_key(&id)
                    && !self.is_apart(id)
            })
            .map(|(index, node)| match node.slots {
                Slots::Explicit(slots) => slots,
                Slots::Implicit => cores(index).unwrap_or(1),
            });
        room.fold(0, u32::saturating_add)
    }

    pub(super) fn refuse(&mut self, id: JobId, refusal: Refusal) {
        let status = refused_status(&refusal);
        self.refuse_as(id, refusal, status);
    }

    /// Refuses a job. If a proc has spawned it, the proc gets this status.
    pub(super) fn refuse_as(&mut self, id: JobId, refusal: Refusal, status: Status) {
        self.drop_files(id);
        let Some(job) = self.jobs.remove(&id) else {
            return;
        };
        match job.origin {
            Origin::Front | Origin::Controlled { .. } => {
                self.machine_job_refused(&job, &refusal);
                self.tell(job.front, ToFront::Refused(refusal));
                // A tool may have spawned jobs that belong to it while it waited.
                self.end_descendants(id);
                self.finish_front(job.front);
            }
            Origin::Beside => self.tool_refused(job.front, refusal),
            Origin::Spawned {
                by, asker, partner, ..
            } => {
                // The procs get every refusal, however many there are.
                let spawner = self.jobs.get_mut(&by.job);
                let is_told = spawner.is_some_and(Job::tells_of_refused_spawn);
                if let Some(note) = self.spawn_note(by, refusal)
                    && is_told
                {
                    self.tell(job.front, ToFront::Note(note));
                }
                self.spawn_refused(asker, partner, status);
            }
        }
    }

    /// Returns the note about a refused spawn; `None` if the status that the spawner gets says enough.
    fn spawn_note(&self, by: ProcId, refusal: Refusal) -> Option<Note> {
        match refusal {
            Refusal::NotPreloaded(why) => Some(Note::SpawnRefused { by, why }),
            Refusal::NodeLost { .. } | Refusal::Placement(_) if !self.lost.is_empty() => {
                let lost: HostList = self.names_of_lost().into_iter().collect();
                let why = Box::new(refusal);
                Some(Note::SpawnNotPlaced { by, why, lost })
            }
            _ => None,
        }
    }

    /// Refuses jobs whose files are being copied to a lost node.
    pub(super) fn refuse_copies_to(&mut self, node: NodeId) {
        let waits = |source: &Source| source.nodes().any(|one| one == node);
        let waiting = self.preloads.iter().filter(|(_, source)| waits(source));
        let host = self.name_of(node).to_owned();
        for id in waiting.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.refuse(id, Refusal::NodeLost { host: host.clone() });
        }
    }
}

fn placed(map: JobMap, topologies: Topologies) -> ToFront {
    ToFront::Placed {
        map: Box::new(map),
        topologies: Box::new(topologies),
    }
}

/// Returns a refusal if an option names a rank that the job does not have.
fn check_ranks(spec: &JobSpec, size: u32) -> Option<Refusal> {
    let input = match spec.stdin {
        StdinTarget::Rank(rank) => Some(rank),
        StdinTarget::None | StdinTarget::All => None,
    };
    let terminal = spec.stdio.pty.map(|pty| pty.rank);
    let shown = |destination: &Destination| match destination {
        Destination::ForwardOnly(rank) => Some(*rank),
        _ => None,
    };
    let held = spec
        .hold
        .ranks
        .as_ref()
        .and_then(|ranks| ranks.iter().last());
    // An option for a terminal also sets the input rank. Check the terminal first, to name the option that was given.
    let named = [
        (RankChoice::Terminal, terminal),
        (RankChoice::Input, input),
        (RankChoice::Output, shown(&spec.stdio.stdout)),
        (RankChoice::Output, shown(&spec.stdio.stderr)),
        (RankChoice::Held, held),
    ];
    named.into_iter().find_map(|(what, rank)| {
        let rank = rank.filter(|rank| rank.0 >= size)?;
        Some(Refusal::NoSuchRank { what, rank, size })
    })
}

/// Expands each file name pattern once, so that an invalid one is refused before any proc is started.
fn check_patterns(spec: &JobSpec, size: u32) -> Result<(), String> {
    let facts = PatternFacts {
        rank: 0,
        size,
        local_rank: 0,
        app: 0,
        job: 0,
        front_pid: 0,
        host: "",
    };
    for destination in [&spec.stdio.stdout, &spec.stdio.stderr] {
        if let Destination::File(pattern) = destination {
            pattern
                .expand(&facts)
                .map_err(|error| describe_pattern(pattern, &error.to_string()))?;
        }
    }
    Ok(())
}

fn describe_pattern(pattern: &Pattern, error: &str) -> String {
    format!("`{}`: {error}", pattern.0.to_string_lossy())
}
