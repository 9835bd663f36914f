//! Description of a job for the daemons that start it: one value for all nodes.
//!
//! The value holds the map, and not a row for each rank. Every daemon derives its own procs from the map, and also the
//! facts about remote procs that it reports to its own. The size of the message therefore depends on the irregularity
//! of the map and of the nodes. A million ranks on equal nodes take hardly more bytes than two.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use base::{HostList, JobId, NodeId, ProcId};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{Beside, Stream};
use crate::{
    place::JobMap,
    spec::{
        App, EndPolicy, Family, GpuPlan, HoldPlan, NodeGpus, Preloaded, Recorder, ResourceLimits,
        SetName, StdinTarget, StdioPlan,
    },
};

/// Description of a job, as every one of its daemons gets it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Launch {
    pub job: JobId,
    /// Name of the job in PMIx.
    pub nspace: String,
    pub universe: Universe,
    /// Number of the job's first rank among the ranks of all jobs of the controller.
    pub offset: u32,
    /// The proc that spawned the job. `None` for a job that a front submitted.
    pub parent: Option<Parent>,
    pub apps: Vec<App>,
    /// Map of ranks to nodes.
    pub map: JobMap,
    /// Nodes of the map, in its order.
    pub nodes: LaunchNodes,
    pub stdin: StdinTarget,
    pub stdio: StdioPlan,
    pub end: EndPolicy,
    pub hold: HoldPlan,
    pub front_pid: u32,
    pub variables: BTreeSet<Family>,
    pub gpus: Option<GpuPlan>,
    /// The GPUs that the job has on each node, if a machine has given it a part of them.
    pub granted_gpus: BTreeMap<NodeId, NodeGpus>,
    /// What the apps use of the files that were copied to the nodes; `None` if none were.
    pub preloaded: Option<Preloaded>,
    pub limits: ResourceLimits,
    /// Process sets to which the procs of apps belong, by the index of the app.
    pub sets: BTreeMap<u32, SetName>,
    pub recorder: Recorder,
    /// The ranks beside which the procs are, if this is the job of a tool: they are no ranks for PMI and PMIx.
    pub beside: Option<Beside>,
    /// The job whose ranks a debugger's daemons look at, if this is their job. The limits of that job are not theirs.
    pub debugged: Option<JobId>,
}

impl Launch {
    /// Returns the job beside whose ranks the procs are, if they are those of a tool or of a debugger.
    #[must_use]
    pub fn job_beside(&self) -> Option<JobId> {
        let of_tool = self.beside.as_ref().map(|beside| beside.target);
        of_tool.or(self.debugged)
    }

    /// Returns the number of ranks of the job, on all nodes.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.map.ranks()
    }

    /// Returns the name and value of the variable with the GPUs of a proc on a node that has these; `None` if the job asks for none, and if
    /// there are none.
    #[must_use]
    pub fn gpus_of(
        &self,
        node: NodeId,
        own: Option<&NodeGpus>,
        local_rank: u32,
    ) -> Option<(&'static str, String)> {
        let plan = self.gpus.as_ref()?;
        let (kind, names) = match self.granted_gpus.get(&node) {
            Some(granted) => (granted.kind, &granted.names),
            None if plan.available.is_empty() => own.map(|own| (own.kind, &own.names))?,
            None => (plan.kind, &plan.available),
        };
        Some((kind.variable(), plan.share.of(names, local_rank)))
    }

    /// Returns the position of a node among the nodes of the job; `None` if the job does not use the node.
    #[must_use]
    pub fn node_index(&self, node: NodeId) -> Option<u32> {
        self.map.node_index(node)
    }
}

/// Universe size: the maximum number of procs, as reported to programs that ask. Where the user has not set it,
/// launchers differ: Open MPI reports the number of slots, and Hydra reports that it is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Universe {
    /// Number of slots of the allocation.
    pub slots: u32,
    /// Number that the user has set; `None` if it is unset or unknown. This is what PMI reports.
    pub said: Option<u32>,
}

impl Universe {
    /// Returns the user's number, or else the number of slots. This is what PMIx and Open MPI's variables report.
    #[must_use]
    pub fn size(self) -> u32 {
        self.said.unwrap_or(self.slots)
    }
}

/// Proc that has spawned a job, or tool that controls it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parent {
    pub relation: Relation,
    pub proc: ProcId,
    /// Name of the parent's job in PMIx.
    pub nspace: String,
    /// Streams of the spawned job whose output the parent gets as well.
    pub forward: Vec<Stream>,
    /// How much of the job's output is kept for tools that ask for it later; `None` if nothing is.
    pub keep: Option<Keeping>,
    /// Pairs that the parent put into the key-value space of the job. `None` if it spawned the job by PMIx and not by
    /// PMI.
    pub preput: Option<Vec<(String, String)>>,
    /// Facts that the procs of the job get from the spawn request: infos, packed as `docs/formats/pmix.md` defines.
    pub told: Bytes,
}

/// How much output of each stream of a job is kept for tools, in bytes, and what is dropped when there is more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keeping {
    pub bytes: u32,
    pub dropped: Dropped,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Dropped {
    Oldest,
    Newest,
}

/// What a [`Parent`] is to a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Relation {
    Spawner,
    /// The tool that has started the launcher. The procs of the job do not know of it: to MPI, the job was not spawned.
    Controller,
}

/// Node of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchNode {
    /// Name that the node's daemon reports.
    pub host: String,
    pub load: NodeLoad,
}

/// Slots of a node, and procs of other jobs on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeLoad {
    pub slots: u32,
    /// Number of the job's first proc among the procs of all jobs on the node.
    pub first: u32,
    /// Number of procs of other jobs that run on the node.
    pub others: u32,
}

/// Nodes of a job. Copies share them. On the wire, the names form one host list, and adjacent nodes with equal loads share one
/// entry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Wire", into = "Wire")]
pub struct LaunchNodes(Arc<[LaunchNode]>);

impl LaunchNodes {
    /// Returns the nodes in the order of the map.
    pub fn iter(&self) -> std::slice::Iter<'_, LaunchNode> {
        self.0.iter()
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[must_use]
    pub fn get(&self, index: u32) -> Option<&LaunchNode> {
        self.0.get(index as usize)
    }
}

impl FromIterator<LaunchNode> for LaunchNodes {
    fn from_iter<I: IntoIterator<Item = LaunchNode>>(nodes: I) -> Self {
        Self(nodes.into_iter().collect())
    }
}

impl<'a> IntoIterator for &'a LaunchNodes {
    type Item = &'a LaunchNode;
    type IntoIter = std::slice::Iter<'a, LaunchNode>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[derive(Serialize, Deserialize)]
struct Wire {
    hosts: Hosts,
    /// Runs of adjacent nodes with equal loads: the number of nodes, and their load.
    loads: Vec<(u32, NodeLoad)>,
}

#[derive(Serialize, Deserialize)]
enum Hosts {
    List(HostList),
    /// Names that cannot all be in a host list. The kernel accepts such names.
    Odd(Vec<String>),
}

impl From<LaunchNodes> for Wire {
    fn from(nodes: LaunchNodes) -> Self {
        let mut loads: Vec<(u32, NodeLoad)> = Vec::new();
        let mut names = Vec::with_capacity(nodes.0.len());
        for LaunchNode { host, load } in &nodes {
            match loads.last_mut() {
                Some((count, last)) if last == load => *count += 1,
                _ => loads.push((1, *load)),
            }
            names.push(host.clone());
        }
        let list: HostList = names.iter().map(String::as_str).collect();
        let hosts = if list.to_string().parse() == Ok(list.clone()) {
            Hosts::List(list)
        } else {
            Hosts::Odd(names)
        };
        Self { hosts, loads }
    }
}

impl From<Wire> for LaunchNodes {
    fn from(wire: Wire) -> Self {
        let names = match wire.hosts {
            Hosts::List(list) => list.into_iter().collect(),
            Hosts::Odd(names) => names,
        };
        let loads = wire
            .loads
            .into_iter()
            .flat_map(|(count, load)| (0..count).map(move |_| load));
        // There is one node for each name. Where the sender sent no load, the load is zero.
        let loads = loads.chain(std::iter::repeat(NodeLoad::default()));
        let nodes = names.into_iter().zip(loads);
        nodes
            .map(|(host, load)| LaunchNode { host, load })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use base::Topology;

    use super::*;
    use crate::{
        alloc::{AllocatedNode, Allocation, Slots},
        place::{AppRequest, Request, Topologies, place},
        spec::{Recorder, Tracers},
    };

    fn node(host: &str, first: u32) -> LaunchNode {
        let load = NodeLoad {
            slots: 10,
            first,
            others: first,
        };
        let host = host.to_owned();
        LaunchNode { host, load }
    }

    #[test]
    fn nodes_survive_the_wire() {
        let lists = [
            vec![],
            vec![
                node("n08", 0),
                node("n09", 0),
                node("n10", 3),
                node("login", 0),
            ],
            // Nobody names a host like this, but the kernel accepts such names.
            vec![node("n[1", 0), node("with,comma", 0), node("", 1)],
        ];
        for nodes in lists {
            let nodes: LaunchNodes = nodes.into_iter().collect();
            let bytes = postcard::to_stdvec(&nodes).unwrap();
            assert_eq!(postcard::from_bytes::<LaunchNodes>(&bytes), Ok(nodes));
        }
    }

    fn numbered(number: u32) -> String {
        format!("n{number:06}")
    }

    /// Returns the launch of a job with this many ranks, on nodes of ten cores.
    fn launch(ranks: u32) -> Launch {
        let nodes: Vec<_> = (0..ranks.div_ceil(10))
            .map(|number| (numbered(number), 10))
            .collect();
        let topologies = Topologies::uniform(Topology::flat(10));
        launch_on(&nodes, ranks, &topologies)
    }

    /// Returns the launch of a job on nodes, which are given with their slots.
    fn launch_on(nodes: &[(String, u32)], ranks: u32, topologies: &Topologies) -> Launch {
        let allocated = nodes.iter().map(|(name, slots)| AllocatedNode {
            name: name.clone(),
            slots: Slots::Explicit(*slots),
            max_slots: None,
            granted: None,
        });
        let allocation = Allocation {
            nodes: allocated.collect(),
        };
        let request = Request {
            apps: vec![AppRequest {
                count: Some(ranks),
                ..AppRequest::default()
            }],
            ..Request::default()
        };
        let map = place(&request, &allocation, topologies).unwrap();
        let load = |slots| NodeLoad {
            slots,
            ..NodeLoad::default()
        };
        let used = map.nodes().map(|id| {
            let (host, slots) = nodes[id.0 as usize].clone();
            let load = load(slots);
            LaunchNode { host, load }
        });
        let nodes = used.collect();
        Launch {
            beside: None,
            sets: BTreeMap::new(),
            recorder: Recorder::Off,
            limits: Default::default(),
            preloaded: None,
            debugged: None,
            job: JobId(1),
            nspace: "test@1".to_owned(),
            universe: Universe {
                slots: ranks,
                said: None,
            },
            offset: 0,
            parent: None,
            apps: vec![App {
                program: "./a".into(),
                args: Vec::new(),
                env: crate::spec::Environment::default(),
                directory: "/home".into(),
                search: "/bin".into(),
                elsewhere: Arc::default(),
                umask: 0o022,
                tracers: Tracers::Ancestors,
            }],
            map,
            nodes,
            stdin: StdinTarget::None,
            stdio: StdioPlan::default(),
            end: EndPolicy::default(),
            hold: HoldPlan::NOWHERE,
            front_pid: 77,
            variables: BTreeSet::new(),
            gpus: None,
            granted_gpus: BTreeMap::new(),
        }
    }

    #[test]
    fn a_million_ranks_take_hardly_more_bytes_than_two() {
        let few = postcard::to_stdvec(&launch(2)).unwrap();
        let many = launch(1_000_000);
        let bytes = postcard::to_stdvec(&many).unwrap();
        assert!(bytes.len() < few.len() + 200, "{} bytes", bytes.len());
        assert_eq!(postcard::from_bytes::<Launch>(&bytes), Ok(many));
    }

    /// Bytes of the map, and of the whole launch with the names of the nodes, of one full job on 1,000 nodes.
    #[test]
    fn sizes_of_irregular_jobs() {
        const NODES: u32 = 1000;
        let every = |slots: [u32; 2]| (0..NODES).map(move |number| slots[number as usize % 2]);
        let names = |name: fn(u32) -> String| (0..NODES).map(name);
        // A multiplication modulo a prime leaves no pattern, but every number once.
        let odd =
            |number: u32| format!("{:08x}", u64::from(number) * 2_654_435_761 % 4_294_967_291);
        let flat = Topologies::uniform(Topology::flat(16));
        let mixed: Topologies = every([12, 16]).map(Topology::flat).collect();
        let cases = [
            ("equal", names(numbered), [10, 10], &flat),
            ("names without a pattern", names(odd), [10, 10], &flat),
            ("slots alternate", names(numbered), [10, 12], &flat),
            (
                "cores and slots alternate",
                names(numbered),
                [12, 16],
                &mixed,
            ),
            ("all of that", names(odd), [12, 16], &mixed),
        ];
        let mut said = Vec::new();
        for (case, names, slots, topologies) in cases {
            let nodes: Vec<_> = names.zip(every(slots)).collect();
            let ranks = every(slots).sum();
            let launch = launch_on(&nodes, ranks, topologies);
            let size = |bytes: Result<Vec<u8>, _>| bytes.map_or(0, |bytes| bytes.len());
            let map = size(postcard::to_stdvec(&launch.map));
            let all = size(postcard::to_stdvec(&launch));
            said.push(format!("{case}: {ranks} ranks, map {map}, launch {all}"));
        }
        insta::assert_snapshot!(said.join("\n"), @"
        equal: 10000 ranks, map 31, launch 121
        names without a pattern: 10000 ranks, map 31, launch 9105
        slots alternate: 11000 ranks, map 9883, launch 13969
        cores and slots alternate: 14000 ranks, map 9885, launch 13971
        all of that: 14000 ranks, map 9885, launch 22955
        ");
    }
}
