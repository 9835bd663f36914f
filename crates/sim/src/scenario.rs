//! Scenarios: the jobs of a run, their programs and fronts, and the faults. [`make()`] generates one from random numbers.

mod company;
mod course;
mod doors;
mod dvm;
mod files;
mod make;
mod orders;
mod programs;
mod size;
mod spawn;
mod talk;
mod thousand;
mod tools;
mod visits;

use std::{collections::BTreeMap, time::Duration};

use ::dvm::{
    alloc::Allocation,
    proto::{EndReason, FrontId, StartFailure},
    spec::JobSpec,
};
use base::{NodeId, Rank, Signal};
use bytes::Bytes;

pub(crate) use self::{
    doors::{
        ControlPlan, DoorPlan, Errand, GuestPlan, Held, Keepalive, Order, StarterPlan, Stop,
        Streams, Then, Where,
    },
    visits::{Guise, Manner, Visit},
};
use crate::{
    carrier::TreePlan, files::FilesPlan, members::Trouble, node::Programs, rng::Rng, script::Op,
    world::Latency,
};

/// The subject of a scenario. Each family has its own seeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// Exits, crashes, processes left behind, stops, programs that ignore signals.
    Life,
    /// Lines, prompts, very long lines, pipes held open.
    Output,
    /// More output than the windows hold, and a front that stalls.
    Flood,
    /// Input to one rank, to all, to none.
    Input,
    /// PMI: fences, aborts, deaths during a fence.
    Fence,
    /// Ranks held at their first instruction.
    Hold,
    /// Programs that cannot be started.
    Start,
    /// A front that sends signals, ends or kills its job, or dies.
    Front,
    /// Loss of a node, of the controller or of a rank.
    Loss,
    /// A mixture of most families above.
    Mix,
    /// PMIx requests of one job on one node.
    Pmix,
    /// Jobs that ranks spawn by PMIx.
    Spawn,
    /// PMIx requests of one job on several nodes.
    Nodes,
    /// Several fronts of one controller, each with a job as in one of the families above.
    Fronts,
    /// State machines outside of the cluster: escalation, watchdog, traced ranks, exec trap, backlogs.
    Beside,
    /// The processes of the overlay, without jobs.
    Tree,
    /// The same with 1,024 processes.
    Crowd,
    /// A job whose files are copied to its nodes before it starts.
    Files,
    /// Jobs of all kinds over the tree, whose network, nodes and processes fail.
    Dvm,
    /// The same with 1,024 nodes.
    Thousand,
    /// A debug session with the agents of its nodes over the tree, without jobs.
    Debug,
    /// The queue of a machine, with simulated jobs and nodes.
    Queue,
    /// A machine with its queue, whose fronts, store and runs are simulated, and which is killed.
    Machine,
    /// A controller whose host is no node of the jobs, and tools that come to it.
    Doors,
}

/// Generates a scenario of a family.
pub(crate) fn make(family: Family, rng: &mut Rng) -> Scenario {
    // What tools spawn has a sequence of its own, and so have all tools over the tree: the rest of a seed stays as it is.
    let mut own = Rng::new(!rng.clone().next());
    let mut scenario = match family {
        Family::Doors => doors::with_door(rng),
        _ => make::make(family, rng),
    };
    if let Family::Dvm | Family::Thousand = family {
        doors::at_the_tree(&mut own, &mut scenario);
    }
    orders::add(&mut own, &mut scenario);
    scenario
}

impl Family {
    /// The families that are played by default.
    pub const ALL: [Self; 24] = [
        Self::Life,
        Self::Output,
        Self::Flood,
        Self::Input,
        Self::Fence,
        Self::Hold,
        Self::Start,
        Self::Front,
        Self::Loss,
        Self::Mix,
        Self::Pmix,
        Self::Spawn,
        Self::Beside,
        Self::Nodes,
        Self::Fronts,
        Self::Files,
        Self::Tree,
        Self::Crowd,
        Self::Dvm,
        Self::Thousand,
        Self::Debug,
        Self::Queue,
        Self::Machine,
        Self::Doors,
    ];

    /// Families that fail today, and why. They are played only if the user names them.
    pub const KNOWN_TO_FAIL: [(Self, &'static str); 0] = [];

    /// Returns the name that seed files and command lines use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Life => "life",
            Self::Output => "output",
            Self::Flood => "flood",
            Self::Input => "input",
            Self::Fence => "fence",
            Self::Hold => "hold",
            Self::Start => "start",
            Self::Front => "front",
            Self::Loss => "loss",
            Self::Mix => "mix",
            Self::Pmix => "pmix",
            Self::Spawn => "spawn",
            Self::Nodes => "nodes",
            Self::Fronts => "fronts",
            Self::Beside => "beside",
            Self::Tree => "tree",
            Self::Crowd => "crowd",
            Self::Files => "files",
            Self::Dvm => "dvm",
            Self::Thousand => "thousand",
            Self::Debug => "debug",
            Self::Queue => "queue",
            Self::Machine => "machine",
            Self::Doors => "doors",
        }
    }

    /// Returns the family with this name, if there is one.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let known_to_fail = Self::KNOWN_TO_FAIL.into_iter().map(|(family, _)| family);
        let mut all = Self::ALL.into_iter().chain(known_to_fail);
        all.find(|family| family.name() == name)
    }
}

/// How the front reads its own stdin.
#[derive(Clone, Debug)]
pub(crate) struct InputPlan {
    pub(crate) content: Bytes,
    /// Maximum time between two reads of the front.
    pub(crate) pause_max: Duration,
    /// Maximum number of bytes of one read of the front.
    pub(crate) piece_max: usize,
    pub(crate) eof: Eof,
}

/// Whether the front's standard input ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Eof {
    Comes,
    /// No end of file, as on a terminal at which the user types nothing more.
    Never,
}

/// Speed of the process that reads the front's output.
#[derive(Clone, Debug, Default)]
pub(crate) struct PrintPlan {
    /// Maximum time that it takes to read one chunk.
    pub(crate) pause_max: Duration,
    /// Periods without reads, as times since the start of the run.
    pub(crate) stalls: Vec<(Duration, Duration)>,
}

/// A scheduled action of a front.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Act {
    Signal(Signal),
    End(EndReason),
    Kill(EndReason),
    Release,
    /// Releases this number of ranks, from rank 0 on.
    ReleaseSome(u32),
    /// The front dies without a message.
    Vanish,
}

/// A fault that hits the cluster from outside.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    LoseNode(NodeId),
    /// Only with a tree.
    Trouble(Trouble),
    /// A rank of the first job gets a SIGKILL, as from the OOM killer.
    KillRank(Rank),
    /// The controller and all fronts die, and every daemon loses its link to the controller.
    LoseController,
    KillFront(FrontId),
    /// The process of the controller is stopped for a while. Only with a door.
    StopController(Duration),
}

/// The programs of a job that a process may spawn.
#[derive(Clone, Debug, Default)]
pub(crate) struct Child {
    pub(crate) scripts: BTreeMap<Rank, Vec<Op>>,
    pub(crate) unstartable: BTreeMap<Rank, StartFailure>,
}

/// A front and its job.
#[derive(Clone, Debug)]
pub(crate) struct FrontPlan {
    /// Time at which it connects and submits the job.
    pub(crate) submits_at: Duration,
    pub(crate) spec: JobSpec,
    pub(crate) scripts: BTreeMap<Rank, Vec<Op>>,
    pub(crate) unstartable: BTreeMap<Rank, StartFailure>,
    pub(crate) input: InputPlan,
    pub(crate) print: PrintPlan,
    /// Time from *all held* to the release; `None` if the front does not respond to *all held*.
    pub(crate) release_after: Option<Duration>,
    /// Actions, at times counted from the submission.
    pub(crate) acts: Vec<(Duration, Act)>,
}

/// The plan of one run.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) allocation: Allocation,
    /// One front, or several in the family `fronts`.
    pub(crate) fronts: Vec<FrontPlan>,
    /// The jobs that processes may spawn. A job's index is its number in [`Op`]s.
    pub(crate) children: Vec<Child>,
    pub(crate) faults: Vec<(Duration, Fault)>,
    /// Tools that connect to nodes.
    pub(crate) visits: Vec<(Duration, Visit)>,
    /// Files of the job of the first front.
    pub(crate) files: FilesPlan,
    /// The tree that joins the daemons; `None` if links do that on which nothing fails.
    pub(crate) tree: Option<TreePlan>,
    /// `None` if the controller's host is a node.
    pub(crate) door: Option<DoorPlan>,
    pub(crate) latency: Latency,
}

impl Scenario {
    /// Returns what the tree and its faults may add to a round trip between a process and the controller: each fault has to be
    /// noticed, and those who carried a message return, and send it again.
    pub(crate) fn tree_slack(&self) -> Duration {
        let Some(TreePlan {
            timing, delay_max, ..
        }) = &self.tree
        else {
            return Duration::ZERO;
        };
        let hops = u32::try_from(self.allocation.nodes.len()).unwrap_or(u32::MAX);
        let way = 8 * *delay_max * hops.min(40);
        let troubles = self.faults.iter().filter_map(|(_, fault)| match fault {
            Fault::Trouble(trouble) => Some(trouble),
            _ => None,
        });
        troubles.fold(way, |slack, trouble| {
            slack + trouble.lasts() + 2 * (timing.lease + timing.window)
        })
    }

    /// Returns the time for which the process of the controller is stopped.
    pub(crate) fn stops(&self) -> Duration {
        let stops = self.faults.iter().filter_map(|(_, fault)| match fault {
            Fault::StopController(time) => Some(*time),
            _ => None,
        });
        stops.sum()
    }

    /// Returns what becomes of the jobs that tools spawn when these are gone, by the index of the child.
    pub(crate) fn orders(&self) -> BTreeMap<usize, Then> {
        let guests = self.door.iter().flat_map(|door| &door.guests);
        let errands = guests.flat_map(|guest| &guest.errands);
        let orders = errands.filter_map(|(_, errand)| match errand {
            Errand::Spawn(order) => Some((order.child, order.then)),
            _ => None,
        });
        orders.collect()
    }

    /// Returns the programs of all jobs. A child has its own number, and the jobs of further fronts are numbered after the
    /// children. The job of the first front has no number.
    pub(crate) fn programs(&self) -> Programs {
        let mut programs = Programs::default();
        let mut add = |child, scripts: &BTreeMap<Rank, Vec<Op>>, unstartable: &BTreeMap<_, _>| {
            let scripts = scripts.iter();
            let scripts = scripts.map(|(rank, ops)| ((child, *rank), ops.clone()));
            programs.scripts.extend(scripts);
            let failures = unstartable.iter();
            let failures = failures
                .map(|(rank, failure): (&Rank, &StartFailure)| ((child, *rank), failure.clone()));
            programs.unstartable.extend(failures);
        };
        for (number, child) in self.children.iter().enumerate() {
            add(Some(number), &child.scripts, &child.unstartable);
        }
        for (index, front) in self.fronts.iter().enumerate() {
            let number = index
                .checked_sub(1)
                .map(|index| self.children.len() + index);
            add(number, &front.scripts, &front.unstartable);
        }
        programs
    }
}
