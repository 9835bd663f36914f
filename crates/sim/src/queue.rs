//! The queue of a machine, with simulated jobs and nodes.
//!
//! A run is one of two kinds. In one, the queue has to start each job exactly when an independent, simple EASY scheduler
//! (`reference`) starts it, on a workload with the statistics of public traces (`workload`). In the other, jobs of all kinds
//! meet a machine whose nodes are closed, opened, lost and added, and a user who holds, releases and cancels (`machine`); a
//! model (`model`) checks every start and every end, and that the head of the queue is never delayed.

pub mod load;
mod machine;
mod model;
mod reference;
mod workload;

use crate::{
    record::{Played, Recorded},
    rng::Rng,
};

/// Runs in which the queue is compared with the reference, out of ten.
const COMPARED: u64 = 4;

pub(crate) fn run(rng: &mut Rng, recorded: Recorded) -> Played {
    if rng.below(10) < COMPARED {
        reference::run(rng, recorded)
    } else {
        machine::run(rng, recorded)
    }
}
