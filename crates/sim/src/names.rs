//! The names of jobs and procs in PMIx, in PMI and in messages about faults.

use base::{JobId, ProcId};

/// Name of the simulated DVM: the prefix of its job names in PMIx and PMI.
pub(crate) const NAME: &str = "sim";
/// First job that the controller accepts. Most scenarios have no other, so fault messages omit its number.
const FIRST: JobId = JobId(1);

/// Returns the name of a job in PMIx and PMI: `sim@` and the job's number.
pub(crate) fn nspace(job: JobId) -> String {
    format!("{NAME}@{job}")
}

/// Returns the name of a proc in fault messages.
pub(crate) fn called(proc: ProcId) -> String {
    let ProcId { job, rank } = proc;
    if job == FIRST {
        format!("rank {rank}")
    } else {
        format!("rank {rank} of job {job}")
    }
}
