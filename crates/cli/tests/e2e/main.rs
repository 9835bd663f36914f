//! End-to-end tests: the real binary, real processes, real terminals.
//!
//! Every test uses a [`harness::Sandbox`]: private directories, a marker in the environment of all its processes, and a
//! deadline for every wait. At its end the sandbox searches for leftovers.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "the harness is test code: a panic is how a test fails, also outside of `#[test]` functions"
)]

mod bed;
mod beside;
mod binding;
mod cgroups;
mod containers;
mod debugger;
mod doors;
mod errors;
mod examples;
mod faces;
mod habits;
mod hangs;
mod harness;
mod holding;
mod indirect;
mod input;
mod kills;
mod launch;
mod life;
mod logging;
mod machine;
mod mpi;
mod mpir_check;
mod nodes;
mod output;
mod over_nodes;
mod page;
mod places;
mod pmi;
mod pmix;
mod prompts;
mod ptp;
mod python;
mod recording;
mod robust;
mod signals;
mod slurm;
mod spawned;
mod stacks;
mod staging;
mod terminal;
mod tool_examples;
mod tools;
mod top;
mod topology;
mod tree_start;
mod trouble;
mod unwinding;
mod variables;
mod watching;
