//! Allocations of resource managers, as the environment of a job describes them.

use std::path::Path;

use base::HostList;
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

/// The variable with the number of components of a heterogeneous job.
const HET_SIZE: &str = "SLURM_HET_SIZE";
/// What Slurm appends to the variables of a component, before its number.
const HET_GROUP: &str = "_HET_GROUP_";

fn text<'a>(world: &'a World, name: &str, origin: &'a str) -> Option<Text<'a>> {
    let text = world.variable(name)?;
    Some(Text { text, origin })
}

fn of_slurm(personality: Personality, world: &World) -> Result<Option<Allocation>, Error> {
    let job = world
        .variable("SLURM_JOB_ID")
        .or_else(|| world.variable("SLURM_JOBID"));
    if job.is_none() {
        return Ok(None);
    }
    let groups = het_groups(world)?;
    if groups == 0 {
        let list = ["SLURM_JOB_NODELIST", "SLURM_NODELIST"];
        let nodes = list.iter().find_map(|name| world.variable(name));
        return nodes
            .map(|nodes| component(nodes, "", personality, world))
            .transpose();
    }
    let allocations = (0..groups).map(|group| {
        let ending = format!("{HET_GROUP}{group}");
        // Without the list of a component, we would leave out its nodes: the error about an empty list names the variable.
        let nodes = world.variable(&format!("SLURM_JOB_NODELIST{ending}"));
        component(nodes.unwrap_or_default(), &ending, personality, world)
    });
    let allocations: Vec<Allocation> = allocations.collect::<Result<_, _>>()?;
    Ok(Some(alloc::slurm_components(allocations)))
}

/// Returns the number of components of the heterogeneous Slurm job in which we run, or 0 if it is not heterogeneous.
fn het_groups(world: &World) -> Result<u32, Error> {
    let size = text(world, HET_SIZE, "`SLURM_HET_SIZE`");
    let size = size.map(|size| alloc::slurm_het_size(&size));
    Ok(size.transpose().map_err(Error::Nodes)?.unwrap_or_default())
}

/// Returns the nodes of each component of a heterogeneous Slurm job; empty if the job is not heterogeneous.
pub(super) fn het_nodes(world: &World) -> Vec<HostList> {
    let groups = het_groups(world).unwrap_or_default();
    let list = |group| {
        let nodes = world.variable(&format!("SLURM_JOB_NODELIST{HET_GROUP}{group}"))?;
        nodes.parse().ok()
    };
    (0..groups)
        .map(|group| list(group).unwrap_or_default())
        .collect()
}

/// Reads the allocation of a job or of a component, whose variables have this ending.
fn component(
    nodes: &str,
    ending: &str,
    personality: Personality,
    world: &World,
) -> Result<Allocation, Error> {
    let name = |name: &str| format!("{name}{ending}");
    let origin = |name: &str| format!("`{name}{ending}`");
    let cpus_origin = origin("SLURM_JOB_CPUS_PER_NODE");
    let tasks_origin = origin("SLURM_TASKS_PER_NODE");
    let cpus = text(world, &name("SLURM_JOB_CPUS_PER_NODE"), &cpus_origin);
    let texts = SlurmTexts {
        nodes: Text {
            text: nodes,
            origin: &origin("SLURM_JOB_NODELIST"),
        },
        // srun allocates CPUs; for MPI launchers a slot is a task.
        counts: match personality {
            Personality::Srun => cpus,
            Personality::Rally | Personality::Mpiexec | Personality::Mpirun => {
                text(world, &name("SLURM_TASKS_PER_NODE"), &tasks_origin)
            }
        },
        cpus,
    };
    alloc::slurm(&texts, &world.names()).map_err(Error::Nodes)
}

fn of_pbs(world: &World) -> Result<Option<Allocation>, Error> {
    let (Some(_), Some(file)) = (world.variable("PBS_JOBID"), world.variable("PBS_NODEFILE"))
    else {
        return Ok(None);
    };
    of_file(file, "PBS_NODEFILE", world).map(Some)
}

/// Returns the names in the file of the PBS job in which we run, line by line; empty if there is none.
pub(super) fn pbs_lines(world: &World) -> Vec<String> {
    let max = u64::try_from(MAX_HOSTFILE).unwrap_or(u64::MAX);
    let file = world.variable("PBS_NODEFILE").map(Path::new);
    let text = file.map(|file| world.read_text(file, FileKind::NodeFile, max));
    let Some(Ok(text)) = text else {
        return Vec::new();
    };
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.map(str::to_owned).collect()
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
