//! How the daemons of other nodes are started: the plan for the controller.

mod lsf;
mod slurm;
pub(crate) mod ssh;

use std::ffi::{OsStr, OsString};

use base::{HostList, NodeId};
use dvm::{
    alloc::AllocatedNode,
    bootstrap::{DaemonPlan, Delivery, Hosting, StartCommand},
};

use super::{
    DAEMON_ARGUMENT, Error, JobLine, World, batch::Manager, define::Bootstrap, error::NotOffered,
    nodes::Nodes,
};
use crate::config::Settings;

/// Returns how the daemons of an allocation are started. `None` if it is this node alone.
///
/// # Errors
///
/// A way to start them that the nodes do not have.
pub(super) fn plan(
    job: &JobLine,
    nodes: &Nodes,
    settings: &Settings,
    world: &World,
) -> Result<Option<DaemonPlan>, Error> {
    let names = world.names();
    let is_forked = job.args.bootstrap == Some(Bootstrap::Fork);
    let numbered = || (0..).map(NodeId).zip(&nodes.allocation.nodes);
    let local = if is_forked {
        Some(NodeId(0))
    } else {
        let own = numbered().find(|(_, node)| names.contains(&node.name));
        own.map(|(id, _)| id)
    };
    let remote: Vec<_> = numbered().filter(|(id, _)| Some(*id) != local).collect();
    if remote.is_empty() {
        return Ok(None);
    }
    let manager = match settings.bootstrap_command.value {
        // The user has named a command of their own.
        Some(_) if job.args.bootstrap.is_none() => None,
        _ => nodes.manager,
    };
    let way = way(job, manager)?;
    let of_each = |command: &dyn Fn(&str) -> ssh::Command| {
        let command = |(id, node): &(NodeId, &AllocatedNode)| {
            let ssh::Command {
                argv,
                delivery,
                check,
            } = command(&node.name);
            StartCommand {
                argv,
                nodes: vec![*id],
                delivery,
                check,
            }
        };
        remote.iter().map(command).collect::<Vec<_>>()
    };
    let direct = |argv| ssh::Command {
        argv,
        delivery: Delivery::Direct,
        check: Vec::new(),
    };
    let commands = match way {
        Way::Fork => of_each(&|_| {
            let executable = world.executable.clone().into_os_string();
            direct(vec![executable, DAEMON_ARGUMENT.into()])
        }),
        Way::Ssh => of_each(&|host| ssh::of_settings(host, settings, world)),
        Way::Lsf => of_each(&|host| direct(lsf::command(host, world))),
        Way::Slurm => {
            let hosts: HostList = remote.iter().map(|(_, node)| node.name.as_str()).collect();
            vec![StartCommand {
                argv: slurm::command(&hosts, world),
                nodes: remote.iter().map(|(id, _)| *id).collect(),
                delivery: Delivery::Direct,
                check: Vec::new(),
            }]
        }
    };
    let is_kept = |name: &OsStr| way != Way::Slurm || !slurm::is_an_option(name);
    let kept = world.variables.iter().filter(|(name, _)| is_kept(name));
    let mut environment: Vec<OsString> = kept
        .map(|(name, value)| {
            let mut entry = name.clone();
            entry.push("=");
            entry.push(value);
            entry
        })
        .collect();
    if way == Way::Slurm {
        environment.extend(slurm::VARIABLES.map(OsString::from));
    }
    Ok(Some(DaemonPlan {
        local,
        commands,
        program: world.executable.clone().into_os_string(),
        argument: DAEMON_ARGUMENT.to_owned(),
        environment,
        radix: job.args.radix.unwrap_or(dvm::bootstrap::RADIX),
        ports: job.args.port_range,
        interfaces: job.args.if_include.clone(),
        hosting: if is_forked {
            Hosting::Shared
        } else {
            Hosting::Alone
        },
        lease: job.args.lease.unwrap_or(dvm::bootstrap::LEASE),
        window: dvm::bootstrap::WINDOW,
    }))
}

/// A way to start daemons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Fork,
    Ssh,
    Slurm,
    Lsf,
}

/// Returns the way that the user has chosen, else that of the resource manager to whose allocation the nodes belong.
fn way(job: &JobLine, manager: Option<Manager>) -> Result<Way, Error> {
    let refused = |name: &str, why| {
        // A parameter of Open MPI (`--mca plm slurm`) has our own option's name here.
        let typed = Some(job.typed("bootstrap")).filter(|typed| !typed.ends_with("mca"));
        let option = format!("{} {name}", typed.as_deref().unwrap_or("--bootstrap"));
        Err(Error::NotOffered { option, why })
    };
    match (job.args.bootstrap, manager) {
        (Some(Bootstrap::Fork), _) => Ok(Way::Fork),
        (Some(Bootstrap::Ssh), _) => Ok(Way::Ssh),
        (Some(Bootstrap::Slurm) | Some(Bootstrap::Auto) | None, Some(Manager::Slurm)) => {
            Ok(Way::Slurm)
        }
        (Some(Bootstrap::Lsf) | Some(Bootstrap::Auto) | None, Some(Manager::Lsf)) => Ok(Way::Lsf),
        // `pbs_tmrsh` and `pbsdsh` have no standard input.
        (Some(Bootstrap::Auto) | None, Some(Manager::Pbs) | None) => Ok(Way::Ssh),
        (Some(Bootstrap::Pbs), Some(Manager::Pbs)) => refused("pbs", NotOffered::NoInput),
        (Some(Bootstrap::Pbs), _) => refused("pbs", NotOffered::NoAllocation),
        (Some(Bootstrap::Slurm), _) => refused("slurm", NotOffered::NoAllocation),
        (Some(Bootstrap::Lsf), _) => refused("lsf", NotOffered::NoAllocation),
    }
}
