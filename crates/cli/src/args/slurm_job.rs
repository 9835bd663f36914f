//! The name of a job, following `srun`.

use std::{
    ffi::{OsStr, OsString},
    path::Path,
};

use super::{AppLine, JobLine, World};

/// The variable that contains the name.
pub(super) const NAME: &str = "SLURM_JOB_NAME";

/// Returns the name from the command line, otherwise that of the enclosing allocation, otherwise that of the first program.
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

/// Returns the name for file name patterns: within an allocation the allocation's name, whatever the name of this job.
pub(super) fn in_file_names(job: &JobLine, apps: &[AppLine], world: &World) -> OsString {
    of_allocation(world).unwrap_or_else(|| name(job, apps, world))
}

fn of_allocation(world: &World) -> Option<OsString> {
    world.variable("SLURM_JOB_ID")?;
    world.variables.get(OsStr::new(NAME)).cloned()
}
