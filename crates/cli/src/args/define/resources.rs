//! Options of a job about GPUs, memory, CPU time and other resources.

use clap::{ArgAction, Args};

use crate::values;

/// What a job needs beside slots.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ResourceArgs {
    /// Number of GPUs that all ranks of a node share
    ///
    /// Ranks find their numbers in CUDA_VISIBLE_DEVICES or ROCR_VISIBLE_DEVICES.
    #[arg(long, value_name = "N", value_parser = values::gpus, hide_short_help = true, help_heading = "Placement")]
    pub(crate) gpus: Option<u32>,

    /// Number of GPUs for each proc, which no other proc gets
    #[arg(long, value_name = "N", value_parser = values::gpus, hide_short_help = true, help_heading = "Placement")]
    pub(crate) gpus_per_proc: Option<u32>,

    /// Amount of a resource that the machine counts, for the whole job; can be repeated
    ///
    /// `matlab=2`. The machine has what was declared with --shared-resource when it was started.
    #[arg(long, value_name = "NAME=N", value_parser = values::resource, action = ArgAction::Append, hide_short_help = true, help_heading = "Placement")]
    pub(crate) resource: Vec<(String, u64)>,

    /// Amount of a resource of its node for each proc; can be repeated
    ///
    /// `fpga=1`. Nodes have what was declared with --node-resource when the machine was started.
    #[arg(long, value_name = "NAME=N", value_parser = values::resource, action = ArgAction::Append, hide_short_help = true, help_heading = "Placement")]
    pub(crate) resource_per_proc: Vec<(String, u64)>,
}

/// Limits of what the ranks of a job use on a node.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct LimitArgs {
    /// Most memory of all ranks on a node together
    ///
    /// A number with K, M, G or T: `512M`, `1.5G`. The kernel kills the ranks of a node that need more. Where the kernel
    /// does not let us enforce it, a warning says so, and the job runs.
    #[arg(long, value_name = "SIZE", value_parser = values::memory, hide_short_help = true, help_heading = "Life of the job")]
    pub(crate) memory_limit: Option<u64>,

    /// Most CPU time of all ranks on a node together, in CPUs
    ///
    /// `2` or `0.5`. The kernel lets the ranks of a node wait that need more. Where the kernel does not let us enforce it, a
    /// warning says so, and the job runs.
    #[arg(long, value_name = "N", value_parser = values::cpus, hide_short_help = true, help_heading = "Life of the job")]
    pub(crate) cpu_limit: Option<u32>,
}
