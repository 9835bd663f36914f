//! Tenancy of an allocation's CPUs. It decides whether procs are bound if the user did not ask for a binding.
//!
//! The kernel cannot move a bound proc away from a CPU that another process keeps busy. Binding is faster where the job
//! has the CPUs to itself, and costs half of the speed where it shares them (`docs/decisions/0012-default-binding.md`).

use std::fmt;

use base::{NodeId, Topology};

use super::{Request, Topologies};
use crate::alloc::Allocation;

/// Set of jobs that may use the CPUs of the allocation's nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tenancy {
    /// This job alone, as far as we can know.
    Ours,
    /// Other jobs of the same user.
    Neighbours,
    /// Jobs of any user: the CPUs are not reserved.
    Anybody,
}

/// Returns the tenancy for the whole job. Binding only some ranks of one job would surprise users.
pub(super) fn tenancy(
    request: &Request,
    allocation: &Allocation,
    topologies: &Topologies,
) -> Tenancy {
    // A user who names the CPUs has reserved them.
    if request.cpus.is_some() {
        return Tenancy::Ours;
    }
    let kinds: Vec<_> = topologies
        .kinds()
        .iter()
        .map(|topology| (topology.is_part_of_node(), topology.allowed().len()))
        .collect();
    let is_ours = |(node, granted): (NodeId, Option<u32>)| {
        let kind = kinds.get(topologies.kind(node) as usize);
        kind.is_some_and(|&(is_part, pus)| is_part || granted.is_some_and(|granted| granted >= pus))
    };
    let granted = allocation.nodes.iter().map(|node| node.granted);
    if !(0..).map(NodeId).zip(granted).all(is_ours) {
        Tenancy::Anybody
    } else if topologies.kinds().iter().any(Topology::has_neighbours) {
        Tenancy::Neighbours
    } else {
        Tenancy::Ours
    }
}

impl fmt::Display for Tenancy {
    /// Writes the reason why procs are bound or unbound.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ours => "the cores are for this job alone",
            Self::Neighbours => "another job of yours runs on these cores",
            Self::Anybody => "others may use these cores",
        })
    }
}
