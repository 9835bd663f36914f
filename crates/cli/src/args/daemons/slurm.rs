//! Daemons started by Slurm: one `srun` for all nodes, inside the allocation in which we run.

use std::ffi::{OsStr, OsString};

use base::HostList;

/// Variables that srun needs to find its job and its cluster. All other variables of Slurm are options of our own job, or of
/// a step in which we run, and would change what the command does.
const KEPT: [&str; 6] = [
    "SLURM_CLUSTERS",
    "SLURM_CONF",
    "SLURM_JOBID",
    "SLURM_JOB_ID",
    "SLURM_JWT",
    "SLURM_WORKING_CLUSTER",
];

/// Variables of the command. Since Slurm 23.11, a step of an external launcher takes no resources from other steps, and its
/// daemons are not confined to a share of the job's.
pub(super) const VARIABLES: [&str; 1] = ["SLURM_EXTERNAL_LAUNCHER=1"];

/// Returns true for a variable that srun would take for an option.
pub(super) fn is_an_option(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    let is_of_slurm = ["SLURM_", "SRUN_", "SLURMD_"];
    let is_of_slurm = is_of_slurm.iter().any(|prefix| name.starts_with(prefix));
    is_of_slurm && !KEPT.contains(&name.as_ref())
}

/// Returns the command that starts our program on nodes of another allocation than ours.
pub(super) fn command_in(job: &str, hosts: &HostList, own: &[OsString]) -> Vec<OsString> {
    let mut argv = command(hosts, None, own);
    argv.insert(1, format!("--jobid={job}").into());
    argv
}

/// Returns the command that starts our program on these nodes. Each gets our standard input.
///
/// Without `--overlap`, the step would wait for the resources of a step that is running. The directory exists on every node;
/// ranks get their own. A node whose daemon ends, or which fails, does not end the other daemons: that is our decision.
///
/// `group` is the component of a heterogeneous job to which the nodes belong.
pub(super) fn command(hosts: &HostList, group: Option<usize>, own: &[OsString]) -> Vec<OsString> {
    let count = hosts.len();
    let mut argv: Vec<OsString> = [
        "srun".to_owned(),
        "--overlap".to_owned(),
        format!("--nodes={count}"),
        format!("--ntasks={count}"),
        "--ntasks-per-node=1".to_owned(),
        format!("--nodelist={hosts}"),
        "--chdir=/".to_owned(),
        "--mpi=none".to_owned(),
        "--cpu-bind=none".to_owned(),
        "--kill-on-bad-exit=0".to_owned(),
        "--no-kill".to_owned(),
        "--wait=0".to_owned(),
        "--input=all".to_owned(),
    ]
    .map(OsString::from)
    .into();
    argv.extend(group.map(|group| format!("--het-group={group}").into()));
    argv.extend_from_slice(own);
    argv
}
