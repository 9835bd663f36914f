//! The GPUs that ranks see: those in our own environment's list, otherwise all GPUs of the node.

use std::{borrow::Cow, ffi::OsStr};

use dvm::spec::{GpuKind, GpuPlan, GpuShare};

use super::{Error, JobLine, World};

/// Returns the assignment of GPUs to ranks. `None` if no option requests one.
pub(super) fn resolve(job: &JobLine, world: &World) -> Result<Option<GpuPlan>, Error> {
    let share = match (job.args.gpus, job.args.gpus_per_proc) {
        (None, None) => return Ok(None),
        // `--gpus 4 --gpus-per-proc 1` determines the total twice.
        (_, Some(each)) => GpuShare::Each(each),
        (Some(count), None) => GpuShare::Together(count),
    };
    let count = match share {
        GpuShare::Together(count) | GpuShare::Each(count) => count,
    };
    let found = (world.gpus)();
    if let Some((kind, listed)) = listed(&found, world) {
        // As in the drivers, the list ends at the first item that is no device.
        let available = listed
            .split(',')
            .map(str::trim)
            .take_while(|name| !name.is_empty() && *name != "-1" && *name != "NoDevFiles");
        return Ok(Some(GpuPlan {
            kind,
            available: available.map(str::to_owned).collect(),
            share,
        }));
    }
    let (kind, number) = match (found.nvidia, found.amd) {
        (0, 0) if count == 0 => return Ok(None),
        (0, 0) => {
            let flag = match share {
                GpuShare::Together(_) => "gpus",
                GpuShare::Each(_) => "gpus-per-proc",
            };
            return Err(Error::NoGpus {
                option: job.typed(flag),
                count,
            });
        }
        (0, number) => (GpuKind::Amd, number),
        (number, _) => (GpuKind::Nvidia, number),
    };
    Ok(Some(GpuPlan {
        kind,
        available: (0..number).map(|gpu| gpu.to_string()).collect(),
        share,
    }))
}

/// Returns the list in our own environment. An empty list hides all GPUs. If there are two lists, the one for the node's
/// kind of GPU counts.
fn listed<'a>(found: &os::Gpus, world: &'a World) -> Option<(GpuKind, Cow<'a, str>)> {
    let list = |kind: GpuKind| {
        let value = world.variables.get(OsStr::new(kind.variable()))?;
        Some((kind, value.to_string_lossy()))
    };
    match (list(GpuKind::Nvidia), list(GpuKind::Amd)) {
        (Some(_), Some(amd)) if found.nvidia == 0 && found.amd > 0 => Some(amd),
        (Some(nvidia), _) => Some(nvidia),
        (None, amd) => amd,
    }
}
