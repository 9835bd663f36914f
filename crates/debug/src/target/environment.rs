//! What the environment of a process says about its rank.

use std::collections::BTreeMap;

/// The launcher or library that sets the variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Family {
    /// `rally`, Open MPI, PRRTE, and srun with its PMIx plugin.
    Pmix,
    OpenMpi,
    /// Hydra, and srun with its PMI plugins.
    Pmi,
    Slurm,
    /// torchrun and similar launchers.
    Torch,
    GnuParallel,
}

impl Family {
    /// All families, the most reliable first: PMIx ranks are meant for tools, `PARALLEL_SEQ` is only a sequence number.
    pub(super) const ALL: [Self; 6] = [
        Self::Pmix,
        Self::OpenMpi,
        Self::Pmi,
        Self::Slurm,
        Self::Torch,
        Self::GnuParallel,
    ];

    const fn rank(self) -> &'static str {
        match self {
            Self::Pmix => "PMIX_RANK",
            Self::OpenMpi => "OMPI_COMM_WORLD_RANK",
            Self::Pmi => "PMI_RANK",
            Self::Slurm => "SLURM_PROCID",
            Self::Torch => "RANK",
            Self::GnuParallel => "PARALLEL_SEQ",
        }
    }

    /// Returns the names of the variables, as text for messages.
    pub(super) const fn variables(self) -> &'static str {
        match self {
            Self::Pmix => "`PMIX_NAMESPACE` and `PMIX_RANK`",
            Self::OpenMpi => "`OMPI_COMM_WORLD_RANK`",
            Self::Pmi => "`PMI_RANK`",
            Self::Slurm => "`SLURM_PROCID`",
            Self::Torch => "`RANK` and `WORLD_SIZE`",
            Self::GnuParallel => "`PARALLEL_SEQ`",
        }
    }

    pub(super) fn all_variables() -> String {
        let names: Vec<String> = Self::ALL
            .iter()
            .map(|family| format!("`{}`", family.rank()))
            .collect();
        names.join(", ")
    }
}

/// The rank that a process has according to its environment.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Evidence {
    pub(super) family: Family,
    /// The name of its job, to distinguish it from other jobs; empty if the launcher has not set one.
    pub(super) job: String,
    pub(super) rank: u32,
    /// The number of ranks of the job; `None` if unknown.
    pub(super) size: Option<usize>,
}

/// The highest plausible rank. Larger numbers are special values, such as the wildcard for all ranks.
const HIGHEST_RANK: u32 = 1 << 30;

/// Returns the evidence in an environment: at most one for each family, in the order of [`Family::ALL`].
pub(super) fn evidence(environment: &[u8]) -> Vec<Evidence> {
    let variables: BTreeMap<&[u8], &[u8]> = environment
        .split(|&byte| byte == 0)
        .filter_map(|variable| {
            let equals = variable.iter().position(|&byte| byte == b'=')?;
            Some((&variable[..equals], &variable[equals + 1..]))
        })
        .collect();
    let text = |name: &str| std::str::from_utf8(variables.get(name.as_bytes())?).ok();
    let number = |name: &str| text(name)?.trim().parse::<u32>().ok();
    let size = |names: &[&str]| {
        let size = names.iter().find_map(|name| number(name))?;
        usize::try_from(size).ok()
    };
    Family::ALL
        .into_iter()
        .filter_map(|family| {
            let rank = number(family.rank()).filter(|rank| *rank <= HIGHEST_RANK)?;
            let named = |names: &[&str]| {
                let found: Vec<&str> = names.iter().filter_map(|name| text(name)).collect();
                found.join(if family == Family::Torch { ":" } else { "." })
            };
            let (job, size) = match family {
                Family::Pmix => {
                    let job = text("PMIX_NAMESPACE")?;
                    let own = size(&["RALLY_SIZE", "OMPI_COMM_WORLD_SIZE"]);
                    // Another launcher in a step of Slurm has inherited the size of the step.
                    let step = || size(&["SLURM_STEP_NUM_TASKS"]);
                    let step = || step().filter(|_| job.starts_with("slurm.pmix."));
                    (job.to_owned(), own.or_else(step))
                }
                Family::OpenMpi => (
                    named(&["OMPI_MCA_ess_base_jobid"]),
                    size(&["OMPI_COMM_WORLD_SIZE"]),
                ),
                Family::Pmi => (named(&["PMI_JOBID"]), size(&["PMI_SIZE"])),
                Family::Slurm => (
                    named(&["SLURM_JOB_ID", "SLURM_STEP_ID"]),
                    // `SLURM_NTASKS` is also that of the allocation, in a batch script.
                    size(&["SLURM_STEP_NUM_TASKS"]),
                ),
                Family::Torch => {
                    let size = size(&["WORLD_SIZE"])?;
                    (named(&["MASTER_ADDR", "MASTER_PORT"]), Some(size))
                }
                Family::GnuParallel => (named(&["PARALLEL_PID"]), None),
            };
            Some(Evidence {
                family,
                job,
                rank,
                size,
            })
        })
        .collect()
}

/// Returns the rank that an environment says, by the most reliable of its variables; `None` if it says none.
#[must_use]
pub fn rank_in(environment: &[u8]) -> Option<u32> {
    let first = evidence(environment).into_iter().next();
    first.map(|evidence| evidence.rank)
}

/// A process and its evidence.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    pub(super) pid: i32,
    pub(super) started: u64,
    pub(super) evidence: Evidence,
    /// The launcher of the process, a descendant of the search root, or the root; `None` if there is none, or it was not searched
    /// for. Distinguishes jobs of families that have no job names.
    pub(super) launcher: Option<i32>,
}

/// The ranks of one job.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) family: Family,
    pub(super) name: String,
    pub(super) launcher: Option<i32>,
    pub(super) size: Option<usize>,
    pub(super) ranks: BTreeMap<u32, i32>,
    /// Ranks that several processes claim: the rank, the pid that was chosen, and the pid of another claimant.
    pub(super) doubles: Vec<(u32, i32, i32)>,
    first: (u64, i32),
}

/// Groups claims into jobs, the job with the oldest process first. If several processes claim the same rank, the oldest gets it.
pub(super) fn jobs(mut claims: Vec<Claim>) -> Vec<Job> {
    claims.sort_by_key(|claim| (claim.started, claim.pid));
    let mut jobs: BTreeMap<(Family, String, Option<i32>), Job> = BTreeMap::new();
    for claim in claims {
        let Evidence {
            family,
            job,
            rank,
            size,
        } = claim.evidence;
        let key = (family, job.clone(), claim.launcher);
        let job = jobs.entry(key).or_insert_with(|| Job {
            family,
            name: job,
            launcher: claim.launcher,
            size: None,
            ranks: BTreeMap::new(),
            doubles: Vec::new(),
            first: (claim.started, claim.pid),
        });
        job.size = job.size.or(size);
        match job.ranks.get(&rank) {
            Some(&kept) => job.doubles.push((rank, kept, claim.pid)),
            None => {
                job.ranks.insert(rank, claim.pid);
            }
        }
    }
    let mut jobs: Vec<Job> = jobs.into_values().collect();
    jobs.sort_by_key(|job| job.first);
    jobs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(environment: &str) -> Vec<(Family, String, u32, Option<usize>)> {
        evidence(environment.replace(' ', "\0").as_bytes())
            .into_iter()
            .map(|found| (found.family, found.job, found.rank, found.size))
            .collect()
    }

    #[test]
    fn what_launchers_set() {
        assert_eq!(
            of(
                "PMIX_NAMESPACE=prterun-vm-7@1 PMIX_RANK=3 OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=8"
            ),
            [
                (Family::Pmix, "prterun-vm-7@1".into(), 3, Some(8)),
                (Family::OpenMpi, String::new(), 3, Some(8)),
            ]
        );
        assert_eq!(
            of(
                "SLURM_PROCID=0 SLURM_JOB_ID=12 SLURM_STEP_ID=1 SLURM_STEP_NUM_TASKS=4 SLURM_NTASKS=9"
            ),
            [(Family::Slurm, "12.1".into(), 0, Some(4))]
        );
        assert_eq!(
            of("RANK=1 WORLD_SIZE=2 MASTER_ADDR=n1 MASTER_PORT=29500"),
            [(Family::Torch, "n1:29500".into(), 1, Some(2))]
        );
        assert_eq!(
            of(
                "PMIX_NAMESPACE=slurm.pmix.12.1 PMIX_RANK=0 SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=0 SLURM_NTASKS=9"
            ),
            [
                (Family::Pmix, "slurm.pmix.12.1".into(), 0, Some(4)),
                (Family::Slurm, String::new(), 0, Some(4)),
            ]
        );
        assert_eq!(
            of("PMIX_NAMESPACE=prterun-vm-7@1 PMIX_RANK=0 SLURM_STEP_NUM_TASKS=4"),
            [(Family::Pmix, "prterun-vm-7@1".into(), 0, None)]
        );
        assert_eq!(
            of("SLURM_PROCID=0 SLURM_JOB_ID=12 SLURM_NTASKS=9"),
            [(Family::Slurm, "12".into(), 0, None)]
        );
        assert_eq!(
            of("PARALLEL_SEQ=5 PARALLEL_PID=77"),
            [(Family::GnuParallel, "77".into(), 5, None)]
        );
    }

    #[test]
    fn what_says_nothing() {
        for environment in [
            "",
            "RANK=1",
            "PMIX_RANK=1",
            "PMI_RANK=",
            "PMI_RANK=-1",
            "PMI_RANK=4294967294",
            "XPMI_RANK=1",
        ] {
            assert_eq!(of(environment), [], "{environment}");
        }
    }
}
