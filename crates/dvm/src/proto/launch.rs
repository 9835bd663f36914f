//! What daemons need to start a job: one value for all nodes.
//!
//! It holds the map, not a row for each rank. Every daemon derives its own procs from the map, and what procs are told
//! about those of other nodes. So the message grows with the irregularity of the map and of the nodes, and a million
//! ranks on equal nodes take hardly more bytes than two.

use std::collections::BTreeSet;

use base::{HostList, JobId, NodeId, ProcId};
use serde::{Deserialize, Serialize};

use super::Stream;
use crate::{
    place::JobMap,
    spec::{App, EndPolicy, Family, GpuPlan, HoldPlan, StdinTarget, StdioPlan},
};

/// A job, as every one of its daemons is told to start it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Launch {
    pub job: JobId,
    /// The name of the job in PMIx.
    pub nspace: String,
    pub universe: Universe,
    /// The number of the first rank among those of all jobs of the controller.
    pub offset: u32,
    /// Absent for the job of a front.
    pub parent: Option<Parent>,
    pub apps: Vec<App>,
    /// Which rank runs where.
    pub map: JobMap,
    /// The nodes of the map, in its order.
    pub nodes: LaunchNodes,
    pub stdin: StdinTarget,
    pub stdio: StdioPlan,
    pub end: EndPolicy,
    pub hold: HoldPlan,
    pub front_pid: u32,
    pub variables: BTreeSet<Family>,
    pub gpus: Option<GpuPlan>,
}

impl Launch {
    /// The ranks of the job, on all nodes.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.map.ranks()
    }

    /// The position of a node among those of the job.
    #[must_use]
    pub fn node_index(&self, node: NodeId) -> Option<u32> {
        let index = self.map.nodes().position(|one| one == node)?;
        u32::try_from(index).ok()
    }
}

/// How many procs could run, as far as programs ask. The launchers differ where nobody has said it: Open MPI's answers the
/// slots, Hydra that it does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Universe {
    /// What the allocation has room for.
    pub slots: u32,
    /// What the user has said.
    pub said: Option<u32>,
}

impl Universe {
    /// A number in any case.
    #[must_use]
    pub fn size(self) -> u32 {
        self.said.unwrap_or(self.slots)
    }
}

/// The proc that has spawned a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parent {
    pub proc: ProcId,
    /// The name of its job in PMIx.
    pub nspace: String,
    /// Output of the job that it wants to have as well.
    pub forward: Vec<Stream>,
    /// What it has put into the key-value space of the job, if it has spawned it by PMI and not by PMIx.
    pub preput: Option<Vec<(String, String)>>,
}

/// One node of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchNode {
    /// What its daemon calls it.
    pub host: String,
    pub load: NodeLoad,
}

/// What a node has, beside the procs of the job that is launched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeLoad {
    pub slots: u32,
    /// The number of the job's first proc among the procs of all jobs there.
    pub first: u32,
    /// Procs of other jobs that run there.
    pub others: u32,
}

/// The nodes of a job. On the wire, names are a host list, and neighbors with equal loads are one entry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Wire", into = "Wire")]
pub struct LaunchNodes(Vec<LaunchNode>);

impl LaunchNodes {
    /// The nodes in the order of the map.
    pub fn iter(&self) -> std::slice::Iter<'_, LaunchNode> {
        self.0.iter()
    }

    #[must_use]
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    #[must_use]
    pub const fn is_empty(&self) -> bool {
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
    /// How many neighbors have a load.
    loads: Vec<(u32, NodeLoad)>,
}

#[derive(Serialize, Deserialize)]
enum Hosts {
    List(HostList),
    /// The kernel takes names that cannot be in a list.
    Odd(Vec<String>),
}

impl From<LaunchNodes> for Wire {
    fn from(nodes: LaunchNodes) -> Self {
        let mut loads: Vec<(u32, NodeLoad)> = Vec::new();
        let mut names = Vec::with_capacity(nodes.0.len());
        for LaunchNode { host, load } in nodes.0 {
            match loads.last_mut() {
                Some((count, last)) if *last == load => *count += 1,
                _ => loads.push((1, load)),
            }
            names.push(host);
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
        // There are as many nodes as names; what the sender has left out is nothing.
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
        spec::Tracers,
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
            // Nobody would call a host so, but the kernel lets everybody.
            vec![node("n[1", 0), node("with,comma", 0), node("", 1)],
        ];
        for nodes in lists {
            let nodes: LaunchNodes = nodes.into_iter().collect();
            let bytes = postcard::to_stdvec(&nodes).unwrap();
            assert_eq!(postcard::from_bytes::<LaunchNodes>(&bytes), Ok(nodes));
        }
    }

    /// A job of so many ranks on nodes of ten cores.
    fn launch(ranks: u32) -> Launch {
        let host = |number: u32| format!("n{number:06}");
        let nodes = (0..ranks.div_ceil(10)).map(|number| AllocatedNode {
            name: host(number),
            slots: Slots::Explicit(10),
            max_slots: None,
            granted: None,
        });
        let allocation = Allocation {
            nodes: nodes.collect(),
        };
        let request = Request {
            apps: vec![AppRequest {
                count: Some(ranks),
                ..AppRequest::default()
            }],
            ..Request::default()
        };
        let topologies = Topologies::uniform(Topology::flat(10));
        let map = place(&request, &allocation, &topologies).unwrap();
        let nodes = map.nodes().map(|id| node(&host(id.0), 0)).collect();
        Launch {
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
                env: Vec::new(),
                directory: "/home".into(),
                search: "/bin".into(),
                umask: None,
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
}
