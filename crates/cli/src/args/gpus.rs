//! The GPUs that ranks see: those in our own environment's list, otherwise those of their nodes.

use std::ffi::OsStr;

use dvm::spec::{FoundGpus, GpuKind, GpuPlan, GpuShare, NodeGpus};

use super::{JobLine, World};

/// Returns the assignment of GPUs to ranks. `None` if no option requests one.
pub(super) fn resolve(job: &JobLine, world: &World) -> Option<GpuPlan> {
    let share = match (job.args.resources.gpus, job.args.resources.gpus_per_proc) {
        (None, None) => return None,
        // `--gpus 4 --gpus-per-proc 1` determines the number of a node twice.
        (_, Some(each)) => GpuShare::Each(each),
        (Some(count), None) => GpuShare::Together(count),
    };
    let list = |kind: GpuKind| {
        let value = world.variables.get(OsStr::new(kind.variable()))?;
        Some(value.to_string_lossy())
    };
    let (nvidia_list, amd_list) = (list(GpuKind::Nvidia), list(GpuKind::Amd));
    if nvidia_list.is_none() && amd_list.is_none() {
        return Some(GpuPlan {
            kind: GpuKind::Nvidia,
            available: Vec::new(),
            share,
        });
    }
    let found = (world.gpus)();
    let listed = NodeGpus::of(&FoundGpus {
        nvidia: found.nvidia,
        amd: found.amd,
        nvidia_list: nvidia_list.as_deref(),
        amd_list: amd_list.as_deref(),
    });
    listed.map(|listed| GpuPlan {
        kind: listed.kind,
        available: listed.names,
        share,
    })
}
