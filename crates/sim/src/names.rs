//! Names of jobs and processes.

use base::{JobId, ProcId};

/// Prefix of the names of jobs in PMIx and PMI.
pub(crate) const NAME: &str = "sim";
/// The job of the first front.
const FIRST: JobId = JobId(1);

/// Returns the name of a job in PMIx and PMI.
pub(crate) fn nspace(job: JobId) -> String {
    format!("{NAME}@{job}")
}

/// Returns what failures call a process.
pub(crate) fn called(proc: ProcId) -> String {
    let ProcId { job, rank } = proc;
    if job == FIRST {
        format!("rank {rank}")
    } else {
        format!("rank {rank} of job {job}")
    }
}
