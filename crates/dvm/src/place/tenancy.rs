//! Whose the CPUs of an allocation are: whether procs are bound where the user has not said it.
//!
//! Whoever binds a proc takes from the kernel the choice to move it away from a CPU that somebody else keeps busy. That
//! pays off where nobody else can be there, and costs half of the speed where somebody is
//! (`docs/decisions/0012-default-binding.md`).

use std::fmt;

use base::{NodeId, Topology};

use super::{Request, Topologies};
use crate::alloc::Allocation;

/// Who may use the CPUs of the allocation's nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tenancy {
    /// This job alone, as far as one can know.
    Ours,
    /// Other jobs of the same user.
    Neighbours,
    /// Anybody: nobody has set them apart.
    Anybody,
}

/// The answer for the whole job: ranks of one job of which some are bound and some are not would surprise everybody.
pub(super) fn tenancy(
    request: &Request,
    allocation: &Allocation,
    topologies: &Topologies,
) -> Tenancy {
    // Whoever names the CPUs has set them apart.
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
    /// Why procs are bound, or are not.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ours => "the cores are for this job alone",
            Self::Neighbours => "another job of yours runs on these cores",
            Self::Anybody => "others may use these cores",
        })
    }
}
