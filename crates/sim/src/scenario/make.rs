//! Generates scenarios from random numbers.

use std::{collections::BTreeMap, time::Duration};

use base::{Rank, RankSet};
use dvm::{
    alloc::{AllocatedNode, Allocation, Slots},
    place::{AppRequest, MapTo, Request},
    proto::{StartFailure, StartStep},
    spec::{
        App, Destination, EndPolicy, HoldAt, HoldPlan, JobSpec, OnFailure, Pty, Recorder,
        ResourceLimits, ResourceNeeds, StdinTarget, StdioPlan, Tracers, UniverseSize, WindowSize,
    },
};

use super::{Act, Child, Eof, Family, Fault, FrontPlan, InputPlan, Latency, Scenario};
use crate::{
    carrier::TreePlan,
    files::Owner,
    rng::Rng,
    script::{Op, words},
};

/// Maximum number of ranks of a front's job: small, because every rank gets the keys of all ranks.
pub(super) const RANKS_MAX: u32 = 10;

/// The ways in which a PMI script may break off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spoiling {
    Any,
    /// Only in ways that end the job.
    Fatal,
}

/// All steps that can fail for one rank or app; `StartStep::Room` concerns all procs of a node, and `StartStep::Cgroup` jobs with
/// limits.
const STEPS: [StartStep; 15] = [
    StartStep::Find,
    StartStep::Channels,
    StartStep::OutputFile,
    StartStep::Fork,
    StartStep::ProcessGroup,
    StartStep::ParentDeath,
    StartStep::Affinity,
    StartStep::Limits,
    StartStep::Umask,
    StartStep::Directory,
    StartStep::Descriptors,
    StartStep::Terminal,
    StartStep::Signals,
    StartStep::Trace,
    StartStep::Exec,
];

/// The scenario under construction.
pub(super) struct Maker<'a> {
    pub(super) rng: &'a mut Rng,
    /// Random numbers for what was added later. They leave the scenarios of kept seeds as they are, where nothing was added.
    pub(super) extra: Rng,
    /// The same for programs that act as tools, which came later still.
    pub(super) tools: Rng,
    /// True if some program may not end by itself.
    pub(super) needs_end: bool,
    /// True if some program reads its input, and may wait for the end of it.
    pub(super) waits_for_input_end: bool,
    /// Number of PMIx events in the scripts so far; the next event gets the next number.
    pub(super) events: u64,
    /// Number of the child job under construction; `None` for the job of a front.
    pub(super) child: Option<usize>,
    pub(super) children: Vec<Child>,
    pub(super) family: Family,
    pub(super) nodes: u32,
    pub(super) size: u32,
    /// The first rank of the second app; `None` with one app.
    second_app: Option<u32>,
    pub(super) acts: Vec<(Duration, Act)>,
    pub(super) faults: Vec<(Duration, Fault)>,
    /// True if the programs do nothing but fences.
    pub(super) is_of_fences: bool,
    /// Which jobs have files, if any has.
    pub(super) files_of: Owner,
    pub(super) tree: Option<TreePlan>,
}

/// Generates a scenario of a family.
pub(crate) fn make(family: Family, rng: &mut Rng) -> Scenario {
    if family == Family::Fronts {
        return fronts(rng);
    }
    let nodes = nodes(family, rng);
    make_on(nodes, family, rng)
}

/// Generates several fronts on the same nodes, each with a job of a random other family.
fn fronts(rng: &mut Rng) -> Scenario {
    const FAMILIES: [Family; 7] = [
        Family::Life,
        Family::Output,
        Family::Flood,
        Family::Input,
        Family::Hold,
        Family::Start,
        Family::Front,
    ];
    let nodes = rng.number(1, 4);
    let family = rng.pick(FAMILIES);
    let mut scenario = make_on(nodes, family, rng);
    let many = if rng.chance(25) { 2 } else { 1 };
    for number in 0..many {
        let family = rng.pick(FAMILIES);
        let other = make_on(nodes, family, rng);
        for mut front in other.fronts {
            front.submits_at = if rng.chance(50) {
                rng.millis(0, 20)
            } else {
                rng.millis(0, 1_500)
            };
            for app in &mut front.spec.apps {
                app.program = number.to_string().into();
            }
            scenario.fronts.push(front);
        }
    }
    for node in &mut scenario.allocation.nodes {
        node.slots = Slots::Explicit(RANKS_MAX * 3);
    }
    scenario
}

fn nodes(family: Family, rng: &mut Rng) -> u32 {
    let many = family == Family::Loss || rng.chance(45);
    match family {
        Family::Dvm | Family::Thousand => super::size::nodes(family, rng),
        Family::Pmix | Family::Spawn => 1,
        Family::Nodes => rng.number(2, 4),
        Family::Files if rng.chance(30) => 1,
        Family::Files => rng.number(1, 8),
        _ if many => rng.number(2, 8),
        _ => 1,
    }
}

fn make_on(nodes: u32, family: Family, rng: &mut Rng) -> Scenario {
    let size = match family {
        Family::Dvm | Family::Thousand => super::size::ranks(family, nodes, rng),
        Family::Flood => rng.number(1, 3),
        _ => rng.number(1, RANKS_MAX),
    };
    let second_app = (size > 1 && rng.chance(25)).then(|| rng.number(1, size - 1));
    let extra = Rng::new(rng.clone().next().rotate_left(17));
    let tools = Rng::new(rng.clone().next().rotate_left(41));
    let mut maker = Maker {
        rng,
        extra,
        tools,
        needs_end: false,
        waits_for_input_end: false,
        events: 0,
        child: None,
        children: Vec::new(),
        family,
        nodes,
        size,
        second_app,
        acts: Vec::new(),
        faults: Vec::new(),
        is_of_fences: false,
        files_of: Owner::FirstJob,
        tree: None,
    };
    maker.tree = maker.tree_plan();
    maker.make()
}

impl Maker<'_> {
    fn make(&mut self) -> Scenario {
        let graces = [
            Duration::ZERO,
            Duration::from_millis(200),
            Duration::from_secs(1),
            EndPolicy::GRACE_DEFAULT,
        ];
        let mut end = EndPolicy {
            on_failure: if self.rng.chance(70) {
                OnFailure::EndJob
            } else {
                OnFailure::Continue
            },
            grace: self.rng.pick(graces),
            ..EndPolicy::default()
        };
        let hold = match self.family {
            Family::Hold => HoldAt::Exec,
            Family::Mix if self.rng.chance(15) => HoldAt::Exec,
            _ => HoldAt::Nowhere,
        };
        let mut scripts = self.scripts(&mut end);
        let stdin = self.stdin();
        let input = self.input(stdin);
        let unstartable = self.unstartable();
        let print = self.print();
        self.front_acts();
        self.faults();
        let plan = HoldPlan {
            at: hold,
            // Rank 0 exists in every job.
            ranks: self.rng.chance(20).then(|| RankSet::single(Rank(0))),
        };
        let release_after =
            (hold == HoldAt::Exec && self.rng.chance(80)).then(|| self.rng.millis(0, 800));
        if hold == HoldAt::Exec {
            self.hold_acts(release_after);
        }
        let stdio = self.stdio();
        self.make_it_end(&mut end);
        let latency = self.latency();
        let universe = self.universe();
        let files = self.files();
        let (allocation, apps, placement) = (self.allocation(), self.apps(), self.placement());
        self.inquire(&mut scripts);
        let visits = self.visits();
        // Fences over several nodes are broken only in ways that end the job.
        end.on_node_loss = match end.on_failure {
            _ if !self.is_of_fences && self.rng.chance(40) => {
                self.rng.pick([OnFailure::EndJob, OnFailure::Continue])
            }
            on_failure => on_failure,
        };
        Scenario {
            allocation,
            fronts: vec![FrontPlan {
                submits_at: Duration::ZERO,
                spec: JobSpec {
                    limits: ResourceLimits::default(),
                    map: dvm::spec::MapFor::Launch,
                    watch: None,
                    needs: ResourceNeeds::default(),
                    sets: Default::default(),
                    recorder: Recorder::Off,
                    preload: files.preload(),
                    apps,
                    placement,
                    universe,
                    stdin,
                    stdio,
                    end,
                    hold: plan,
                    variables: [dvm::spec::Family::OpenMpi].into(),
                    gpus: None,
                },
                scripts,
                unstartable,
                input,
                print,
                release_after,
                acts: std::mem::take(&mut self.acts),
            }],
            children: std::mem::take(&mut self.children),
            faults: std::mem::take(&mut self.faults),
            visits,
            files,
            tree: self.tree.clone(),
            door: None,
            latency,
        }
    }

    /// Returns true if programs of this family use PMIx.
    pub(super) fn is_pmix(&self) -> bool {
        matches!(self.family, Family::Pmix | Family::Spawn | Family::Nodes) || self.is_of_tree()
    }

    pub(super) fn any_rank(&mut self) -> Rank {
        Rank(self.rng.number(0, self.size - 1))
    }

    fn scripts(&mut self, end: &mut EndPolicy) -> BTreeMap<Rank, Vec<Op>> {
        match self.family {
            Family::Pmix | Family::Nodes => return self.talk(self.size),
            Family::Spawn => return self.spawners(self.size),
            Family::Dvm | Family::Thousand => return self.jobs_of_tree(end),
            Family::Files if self.nodes == 1 && self.rng.chance(80) => {
                self.files_of = Owner::SpawnedJobs;
                return self.spawners(self.size);
            }
            _ => {}
        }
        let fences = self.rng.between(1, 4);
        let all_fence =
            self.family == Family::Fence || (self.family == Family::Mix && self.rng.chance(25));
        self.is_of_fences = all_fence;
        let mut scripts = BTreeMap::new();
        for rank in (0..self.size).map(Rank) {
            let ops = match self.family {
                _ if all_fence => self.fencer(rank, self.size, fences),
                Family::Life | Family::Loss => self.life(),
                Family::Output => self.writer(),
                Family::Flood => {
                    let little = self.rng.chance(50);
                    let megabytes = if little {
                        self.rng.between(0, 2)
                    } else {
                        self.rng.between(8, 14)
                    };
                    self.flood(megabytes)
                }
                Family::Input => self.reader(),
                Family::Front if self.rng.chance(60) => self.endless(),
                Family::Front => self.life(),
                Family::Hold
                | Family::Start
                | Family::Mix
                | Family::Fence
                | Family::Pmix
                | Family::Spawn
                | Family::Nodes
                | Family::Fronts
                | Family::Files
                | Family::Beside
                | Family::Tree
                | Family::Crowd
                | Family::Dvm
                | Family::Thousand
                | Family::Debug
                | Family::Queue
                | Family::Machine
                | Family::Doors => match self.rng.below(5) {
                    0 => self.writer(),
                    1 => self.reader(),
                    2 => self.endless(),
                    _ => self.life(),
                },
            };
            scripts.insert(rank, ops);
        }
        if all_fence {
            self.break_fence(&mut scripts, end);
        }
        scripts
    }

    /// Returns programs that do nothing but fences by PMI.
    pub(super) fn fencers(&mut self, end: &mut EndPolicy) -> BTreeMap<Rank, Vec<Op>> {
        let fences = self.rng.between(1, 4);
        self.is_of_fences = true;
        let mut scripts = BTreeMap::new();
        for rank in (0..self.size).map(Rank) {
            let ops = self.fencer(rank, self.size, fences);
            scripts.insert(rank, ops);
        }
        self.break_fence(&mut scripts, end);
        scripts
    }

    /// Lets the program of a rank break off, most often.
    fn break_fence(&mut self, scripts: &mut BTreeMap<Rank, Vec<Op>>, end: &mut EndPolicy) {
        // Over several nodes, a fence is broken only in ways that end the job.
        let how = if self.nodes == 1 {
            Spoiling::Any
        } else {
            Spoiling::Fatal
        };
        if how == Spoiling::Fatal {
            end.on_failure = OnFailure::EndJob;
        }
        let victim = self.any_rank();
        if self.rng.chance(60)
            && let Some(mut ops) = scripts.remove(&victim)
        {
            self.spoil(&mut ops, how);
            scripts.insert(victim, ops);
        }
    }

    fn stdin(&mut self) -> StdinTarget {
        let rank = self.any_rank();
        match self
            .rng
            .below(if self.family == Family::Input { 3 } else { 6 })
        {
            0 => StdinTarget::All,
            1 => StdinTarget::Rank(rank),
            2 => StdinTarget::Rank(Rank(0)),
            _ => StdinTarget::None,
        }
    }

    fn input(&mut self, target: StdinTarget) -> InputPlan {
        let length = match self.rng.below(12) {
            0 | 1 => 0,
            2 => 1,
            3 => 65_536,
            4 => self.rng.length(500_000, 3_500_000),
            5 => 2 * 1024 * 1024,
            // More input than the window holds while the reader pauses.
            6 | 7 if self.family == Family::Input => self.rng.length(2_500_000, 5_000_000),
            _ => self.rng.length(1, 200_000),
        };
        let eof = if self.rng.chance(90) {
            Eof::Comes
        } else {
            Eof::Never
        };
        if eof == Eof::Never && target != StdinTarget::None && self.waits_for_input_end {
            self.needs_end = true;
        }
        InputPlan {
            content: words(self.rng, length),
            pause_max: self.rng.pick([
                Duration::ZERO,
                Duration::from_millis(1),
                Duration::from_millis(30),
            ]),
            piece_max: self.rng.pick([1_000, 65_536, 262_144]).max(length / 200),
            eof,
        }
    }

    fn unstartable(&mut self) -> BTreeMap<Rank, StartFailure> {
        let chance = match self.family {
            Family::Start => 90,
            Family::Hold | Family::Mix => 15,
            _ => 0,
        };
        if !self.rng.chance(chance) {
            return BTreeMap::new();
        }
        let (failure, by_app) = self.start_failure();
        let victim = self.any_rank();
        let app = |rank: Rank| self.second_app.is_some_and(|second| rank.0 >= second);
        let alike = |rank: &Rank| {
            if by_app {
                app(*rank) == app(victim)
            } else {
                *rank == victim
            }
        };
        (0..self.size)
            .map(Rank)
            .filter(alike)
            .map(|rank| (rank, failure.clone()))
            .collect()
    }

    /// Returns why a rank cannot be started, and true if the reason applies to all ranks of its app.
    pub(super) fn start_failure(&mut self) -> (StartFailure, bool) {
        let step = self.rng.pick(STEPS);
        let failure = StartFailure {
            step,
            errno: self.rng.pick([1, 2, 11, 12, 13, 24]),
            subject: None,
        };
        let by_app = matches!(
            step,
            StartStep::Find | StartStep::Directory | StartStep::Exec
        );
        (failure, by_app)
    }

    fn stdio(&mut self) -> StdioPlan {
        let stderr = match self.rng.below(10) {
            0 => Destination::WithStdout,
            1 => Destination::Discard,
            _ => Destination::Forward,
        };
        let rank = self.any_rank();
        let pty = self.rng.chance(5).then_some(Pty {
            rank,
            size: WindowSize {
                rows: 24,
                columns: 80,
            },
        });
        // A terminal that gets no input never reports end of file.
        self.needs_end |= pty.is_some() && self.waits_for_input_end;
        StdioPlan {
            stderr,
            pty,
            ..StdioPlan::default()
        }
    }

    fn latency(&mut self) -> Latency {
        let (link, spawn, io) =
            match self
                .rng
                .below(if self.family == Family::Flood { 5 } else { 8 })
            {
                0..3 => (1, 200, 20),
                // Starts are so slow that a program may write megabytes before the next one starts.
                3 | 4 => (3_000, 400_000, 20),
                _ => (3_000, 5_000, 1_000),
            };
        Latency {
            link_max: self.rng.micros(0, link),
            spawn_max: self.rng.micros(0, spawn),
            io_max: self.rng.micros(0, io),
            tick_late_max: self.rng.pick([
                Duration::ZERO,
                Duration::from_micros(50),
                Duration::from_millis(4),
            ]),
            pmi: self.rng.micros(0, io),
        }
    }

    fn universe(&mut self) -> Option<UniverseSize> {
        if !self.is_pmix() {
            return None;
        }
        match self.rng.below(3) {
            0 => Some(UniverseSize::Procs(self.rng.number(1, 100))),
            1 => Some(UniverseSize::Slots),
            _ => None,
        }
    }

    fn allocation(&mut self) -> Allocation {
        let each = self.size.div_ceil(self.nodes) + u32::from(self.rng.chance(30));
        let node = |id| AllocatedNode {
            name: format!("n{id}"),
            slots: Slots::Explicit(each),
            max_slots: None,
            granted: Some(u32::MAX),
        };
        Allocation {
            nodes: (0..self.nodes).map(node).collect(),
        }
    }

    fn placement(&mut self) -> Request {
        let first = self.second_app.unwrap_or(self.size);
        let counts = [first, self.size - first];
        let app = |count: &u32| AppRequest {
            count: Some(*count),
            ..AppRequest::default()
        };
        let by_node = self.nodes > 1 && self.rng.chance(60);
        Request {
            apps: counts.iter().filter(|count| **count > 0).map(app).collect(),
            map_by: by_node.then(|| MapTo::Node.into()),
            ..Request::default()
        }
    }

    fn apps(&self) -> Vec<App> {
        let app = |program: &str| App {
            program: program.into(),
            args: Vec::new(),
            env: dvm::spec::Environment::default(),
            directory: "/".into(),
            search: "/bin".into(),
            elsewhere: std::sync::Arc::default(),
            umask: 0o022,
            tracers: Tracers::default(),
        };
        if self.second_app.is_some() {
            vec![app("first"), app("second")]
        } else {
            vec![app("first")]
        }
    }
}
