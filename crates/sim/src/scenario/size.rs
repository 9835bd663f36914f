//! How many nodes and ranks the families `dvm` and `thousand` have.

use super::Family;
use crate::rng::Rng;

/// Maximum number of ranks of a front's job in the family `dvm`.
const RANKS_MAX: u32 = 40;
/// Number of nodes of the family `thousand`.
const THOUSAND: u32 = 1_024;

/// Returns the number of nodes of a run.
pub(super) fn nodes(family: Family, rng: &mut Rng) -> u32 {
    match rng.below(10) {
        _ if family == Family::Thousand => THOUSAND,
        0..6 => rng.number(3, 8),
        6..9 => rng.number(8, 20),
        _ => rng.number(20, 40),
    }
}

/// Returns the number of ranks of the front's job.
pub(super) fn ranks(family: Family, nodes: u32, rng: &mut Rng) -> u32 {
    match family {
        Family::Thousand => THOUSAND,
        _ => rng.number(nodes.div_ceil(2), (nodes + 6).min(RANKS_MAX)),
    }
}
