//! The name of a job, as `srun` gives it.

use std::{
    ffi::{OsStr, OsString},
    path::Path,
};

use super::{AppLine, JobLine, World};

/// Where ranks find it.
pub(super) const NAME: &str = "SLURM_JOB_NAME";

/// The name that was said for this job; else that of the allocation that it runs in; else that of its first program.
pub(super) fn name(job: &JobLine, apps: &[AppLine], world: &World) -> OsString {
    let program = || {
        let program = apps.first().and_then(|app| app.program.first());
        let name = program.and_then(|program| Path::new(program).file_name());
        name.map(OsStr::to_owned)
    };
    job.args
        .job_name
        .clone()
        .or_else(|| of_allocation(world))
        .or_else(program)
        .unwrap_or_default()
}

/// The name that file names mean: within an allocation it is that of the allocation, whatever this part of it is called.
pub(super) fn in_file_names(job: &JobLine, apps: &[AppLine], world: &World) -> OsString {
    of_allocation(world).unwrap_or_else(|| name(job, apps, world))
}

fn of_allocation(world: &World) -> Option<OsString> {
    world.variable("SLURM_JOB_ID")?;
    world.variables.get(OsStr::new(NAME)).cloned()
}
