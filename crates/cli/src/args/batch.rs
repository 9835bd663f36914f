//! Allocations of resource managers, as the environment of a job describes them.

use std::path::Path;

use dvm::alloc::{self, Allocation, Base, MAX_HOSTFILE, SlurmTexts, Text};

use super::{Error, Personality, World, error::FileKind};

/// A resource manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manager {
    Slurm,
    Pbs,
    Lsf,
}

/// The allocation in which we run.
#[derive(Clone, Debug)]
pub(super) struct Batch {
    pub(super) manager: Manager,
    pub(super) allocation: Allocation,
}

/// Returns the allocation in which we run.
///
/// # Errors
///
/// A variable or a file of the resource manager that cannot be read.
pub(super) fn of(personality: Personality, world: &World) -> Result<Option<Batch>, Error> {
    let managers = [
        (Manager::Slurm, of_slurm(personality, world)?),
        (Manager::Pbs, of_pbs(world)?),
        (Manager::Lsf, of_lsf(world)?),
    ];
    let mut found = managers.into_iter();
    Ok(found.find_map(|(manager, allocation)| {
        Some(Batch {
            manager,
            allocation: allocation?,
        })
    }))
}

fn text<'a>(world: &'a World, name: &str, origin: &'a str) -> Option<Text<'a>> {
    let text = world.variable(name)?;
    Some(Text { text, origin })
}

fn of_slurm(personality: Personality, world: &World) -> Result<Option<Allocation>, Error> {
    let list = world
        .variable("SLURM_JOB_NODELIST")
        .or_else(|| world.variable("SLURM_NODELIST"));
    let job = world
        .variable("SLURM_JOB_ID")
        .or_else(|| world.variable("SLURM_JOBID"));
    let (Some(_), Some(nodes)) = (job, list) else {
        return Ok(None);
    };
    let cpus = text(
        world,
        "SLURM_JOB_CPUS_PER_NODE",
        "`SLURM_JOB_CPUS_PER_NODE`",
    );
    let texts = SlurmTexts {
        nodes,
        // srun allocates CPUs; for MPI launchers a slot is a task.
        counts: match personality {
            Personality::Srun => cpus,
            Personality::Rally | Personality::Mpiexec | Personality::Mpirun => {
                text(world, "SLURM_TASKS_PER_NODE", "`SLURM_TASKS_PER_NODE`")
            }
        },
        cpus,
    };
    let allocation = alloc::slurm(&texts, &world.names()).map_err(Error::Nodes)?;
    Ok(Some(allocation))
}

fn of_pbs(world: &World) -> Result<Option<Allocation>, Error> {
    let (Some(_), Some(file)) = (world.variable("PBS_JOBID"), world.variable("PBS_NODEFILE"))
    else {
        return Ok(None);
    };
    of_file(file, "PBS_NODEFILE", world).map(Some)
}

fn of_lsf(world: &World) -> Result<Option<Allocation>, Error> {
    if world.variable("LSB_JOBID").is_none() {
        return Ok(None);
    }
    let names = world.names();
    let allocation = if let Some(pairs) = text(world, "LSB_MCPU_HOSTS", "`LSB_MCPU_HOSTS`") {
        alloc::lsf_pairs(&pairs, &names).map_err(Error::Nodes)?
    } else if let Some(file) = world.variable("LSB_DJOB_HOSTFILE") {
        of_file(file, "LSB_DJOB_HOSTFILE", world)?
    } else if let Some(hosts) = text(world, "LSB_HOSTS", "`LSB_HOSTS`") {
        alloc::lsf_hosts(&hosts, &names).map_err(Error::Nodes)?
    } else {
        return Ok(None);
    };
    Ok(Some(allocation))
}

/// Reads a file that has one line for each slot.
fn of_file(file: &str, variable: &str, world: &World) -> Result<Allocation, Error> {
    let max = u64::try_from(MAX_HOSTFILE).unwrap_or(u64::MAX);
    let lines = world.read_text(Path::new(file), FileKind::NodeFile, max)?;
    let origin = format!("`{variable}`");
    let mut allocation =
        alloc::hostfile(&lines, &origin, &world.names(), Base::default()).map_err(Error::Nodes)?;
    // A node that is listed once has one slot.
    for node in &mut allocation.nodes {
        if node.slots == alloc::Slots::Implicit {
            node.slots = alloc::Slots::Explicit(1);
        }
    }
    Ok(allocation)
}
