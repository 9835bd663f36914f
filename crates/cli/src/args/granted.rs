//! The share of this node that a resource manager has granted, from the environment of its job.
//!
//! Only a number for *this* node counts. Inside `salloc`, for example, the shell may run on a login node, and its
//! environment describes other nodes.

/// Returns the number of PUs of this node that a resource manager has granted to its job. `None` if the environment does not
/// contain it.
pub(super) fn on_this_node<'a>(variable: impl Fn(&str) -> Option<&'a str>) -> Option<u32> {
    if variable("SLURM_JOB_ID").is_some() {
        variable("SLURM_CPUS_ON_NODE")?.parse().ok()
    } else if variable("PBS_JOBID").is_some() {
        variable("NCPUS")?.parse().ok()
    } else if variable("LSB_JOBID").is_some() {
        // Pairs of host and number. With several hosts we cannot decide which pair is for this node.
        let mut words = variable("LSB_MCPU_HOSTS")?.split_whitespace().skip(1);
        let count = words.next()?.parse().ok()?;
        words.next().is_none().then_some(count)
    } else if variable("SGE_TASK_ID").is_some() && variable("NHOSTS") == Some("1") {
        variable("NSLOTS")?.parse().ok()
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Case<'a> = (&'a [(&'a str, &'a str)], Option<u32>);

    #[test]
    fn what_resource_managers_say_of_this_node() {
        let cases: &[Case<'_>] = &[
            (&[], None),
            (
                &[("SLURM_JOB_ID", "7"), ("SLURM_CPUS_ON_NODE", "64")],
                Some(64),
            ),
            // A shell under `salloc`, perhaps on another node.
            (
                &[("SLURM_JOB_ID", "7"), ("SLURM_JOB_CPUS_PER_NODE", "64")],
                None,
            ),
            (&[("SLURM_CPUS_ON_NODE", "64")], None),
            (
                &[("SLURM_JOB_ID", "7"), ("SLURM_CPUS_ON_NODE", "64(x2)")],
                None,
            ),
            (&[("PBS_JOBID", "7.server"), ("NCPUS", "8")], Some(8)),
            (&[("NCPUS", "8")], None),
            (&[("LSB_JOBID", "7"), ("LSB_MCPU_HOSTS", "n1 8")], Some(8)),
            (&[("LSB_JOBID", "7"), ("LSB_MCPU_HOSTS", "n1 8 n2 8")], None),
            (
                &[
                    ("SGE_TASK_ID", "undefined"),
                    ("NHOSTS", "1"),
                    ("NSLOTS", "4"),
                ],
                Some(4),
            ),
            (
                &[
                    ("SGE_TASK_ID", "undefined"),
                    ("NHOSTS", "2"),
                    ("NSLOTS", "4"),
                ],
                None,
            ),
        ];
        for (variables, expected) in cases {
            let found = on_this_node(|wanted| {
                let mut named = variables.iter().filter(|(name, _)| *name == wanted);
                named.next().map(|(_, value)| *value)
            });
            assert_eq!(found, *expected, "{variables:?}");
        }
    }
}
