//! Daemons started by Slurm: one `srun` for all nodes, and one for each node that does not have our program.

use std::ffi::{OsStr, OsString};

use base::{HostList, NodeId};
use dvm::bootstrap::{
    COUNT_WORD, Delivery, HOST_WORD, HOSTS_WORD, JOB_WORD, Prompting, StartCommand,
};

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

/// The allocation to which the nodes of a command belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Allocation<'a> {
    /// Ours, or this component of it if it is heterogeneous.
    Own { group: Option<usize> },
    /// That of another job.
    Of { job: &'a str },
}

/// Returns the command that starts our program on these nodes.
pub(super) fn command(allocation: Allocation<'_>, nodes: &[(NodeId, &str)]) -> StartCommand {
    let hosts: HostList = nodes.iter().map(|(_, name)| *name).collect();
    let ids = nodes.iter().map(|(id, _)| *id).collect();
    let count = hosts.len().to_string();
    checked(allocation, ids, &count, &hosts.to_string())
}

/// Returns the command that starts our program on nodes that another job has by then.
pub(super) fn late() -> StartCommand {
    let allocation = Allocation::Of { job: JOB_WORD };
    checked(allocation, Vec::new(), COUNT_WORD, HOSTS_WORD)
}

fn checked(
    allocation: Allocation<'_>,
    nodes: Vec<NodeId>,
    count: &str,
    hosts: &str,
) -> StartCommand {
    let mut shell = srun(allocation, "1", HOST_WORD);
    shell.push("/bin/sh".to_owned());
    let argv = srun(allocation, count, hosts);
    StartCommand {
        argv: argv.into_iter().map(OsString::from).collect(),
        nodes,
        delivery: Delivery::Checked { shell },
        check: Vec::new(),
        prompting: Prompting::Never,
        elsewhere: None,
    }
}

/// Returns the words that run a program on these hosts. Each gets our standard input.
///
/// Without `--overlap`, the step would wait for the resources of a step that is running. The directory exists on every node;
/// ranks get their own. A node whose daemon ends, or which fails, does not end the other daemons: that is our decision.
fn srun(allocation: Allocation<'_>, count: &str, hosts: &str) -> Vec<String> {
    let (job, group) = match allocation {
        Allocation::Own { group } => (None, group),
        Allocation::Of { job } => (Some(job), None),
    };
    let mut words = vec!["srun".to_owned()];
    words.extend(job.map(|job| format!("--jobid={job}")));
    words.extend([
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
    ]);
    words.extend(group.map(|group| format!("--het-group={group}")));
    words
}
