//! How processes are started on other nodes: the plan for the controller, and the commands, which the agents of `dbgr` share.

mod lsf;
mod pbs;
mod slurm;
mod ssh;

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    num::NonZeroU32,
    path::Path,
};

use base::NodeId;
use dvm::bootstrap::{
    DAEMON_PARALLEL, DaemonPlan, Delivery, HOST_WORD, Hosting, LateStart, PARALLEL, Prompting,
    StartCommand,
};

use self::slurm::Allocation;
use super::{
    DAEMON_ARGUMENT, Error, JobLine, Purpose, World,
    batch::{self, Manager},
    environment::is_of_a_host,
    error::NotOffered,
    nodes::Nodes,
};
use crate::choices::Bootstrap;
use crate::config::{Settings, Source};

/// Returns how the daemons of an allocation are started. `None` if it is this node alone, and no other one can follow.
///
/// # Errors
///
/// A way to start them that the nodes do not have.
pub(super) fn plan(
    job: &JobLine,
    nodes: &Nodes,
    settings: &Settings,
    world: &World,
) -> Result<Option<Planned>, Error> {
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
    // Slurm may give the job further nodes.
    let is_in_slurm = world.slurm_job().is_some();
    if remote.is_empty() && job.purpose != Purpose::Machine && !is_in_slurm {
        return Ok(None);
    }
    let manager = match settings.bootstrap_command.value {
        // The user has named a command of their own.
        Some(_) if job.args.bootstrap.is_none() => None,
        _ => nodes.manager,
    };
    // A parameter of Open MPI (`--mca plm slurm`) has our own option's name here.
    let typed = Some(job.typed("bootstrap")).filter(|typed| !typed.ends_with("mca"));
    let way = match job.purpose {
        Purpose::Job | Purpose::Array if remote.is_empty() => Way::Slurm,
        _ => way(job.args.bootstrap, typed.as_deref(), manager, world)?,
    };
    let remote: Vec<(NodeId, &str)> = remote
        .iter()
        .map(|(id, node)| (*id, node.name.as_str()))
        .collect();
    if !is_forked && !remote.is_empty() {
        check_networks(&job.args.if_include, || job.typed("if-include"), world)?;
    }
    let program = Program {
        argument: DAEMON_ARGUMENT,
        world,
    };
    let plan = DaemonPlan {
        local,
        commands: commands(way, &remote, &program, settings),
        program: world.executable.clone().into_os_string(),
        argument: DAEMON_ARGUMENT.to_owned(),
        environment: environment(way, world),
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
        tree_start: settings.tree_start(),
        late: match job.purpose {
            Purpose::Machine => Some(Box::new(late(way, &program, settings))),
            Purpose::Job | Purpose::Array if is_in_slurm => Some(Box::new(LateStart::OfSlurm {
                command: slurm::late(),
                environment: environment(Way::Slurm, world),
            })),
            Purpose::Job | Purpose::Array => None,
        },
    };
    let why = (manager == Some(Manager::Pbs)).then(|| match way {
        Way::Pbs => "by `pbsdsh`: the nodes belong to a job of PBS".to_owned(),
        _ => match (job.args.bootstrap, pbs::why_not(world)) {
            (Some(Bootstrap::Auto) | None, Some(why)) => format!("by ssh: {why}"),
            _ => "by ssh, as asked".to_owned(),
        },
    });
    Ok(Some(Planned { plan, why }))
}

/// How the daemons of a job are started.
#[derive(Debug)]
pub(super) struct Planned {
    pub(super) plan: DaemonPlan,
    /// The way and its reason, for the user. `None` if there was no choice to explain.
    pub(super) why: Option<String>,
}

/// Checks that other nodes can reach this one on the networks that the user has named.
///
/// # Errors
///
/// This node has none of the networks.
pub(super) fn check_networks(
    wanted: &[String],
    typed: impl FnOnce() -> String,
    world: &World,
) -> Result<(), Error> {
    if wanted.is_empty() {
        return Ok(());
    }
    let addresses = (world.addresses)().map_err(|problem| Error::NoAddresses { problem })?;
    runtime::networks::check(&addresses, wanted).map_err(|none| Error::NoNetwork {
        option: typed(),
        wanted: none.wanted,
        there: none.there.to_string(),
    })
}

/// Returns the options with which `dbgr watch` starts its agents as this job starts its daemons. It reads settings itself.
pub(super) fn of_watch(job: &JobLine, settings: &Settings) -> Vec<String> {
    let typed = |setting: &Source| matches!(setting, Source::CommandLine(_));
    let mut options: Vec<(&str, String)> = Vec::new();
    let way = match job.args.bootstrap {
        Some(Bootstrap::Ssh) => Some("ssh"),
        Some(Bootstrap::Slurm) => Some("slurm"),
        Some(Bootstrap::Lsf) => Some("lsf"),
        Some(Bootstrap::Pbs) => Some("pbs"),
        // The nodes of `fork` are this one.
        Some(Bootstrap::Auto | Bootstrap::Fork) | None => None,
    };
    options.extend(way.map(|way| ("--bootstrap", way.to_owned())));
    if typed(&settings.ssh.source) {
        options.push(("--ssh", settings.ssh.value.quoted()));
    }
    if let (Some(template), true) = (
        &settings.bootstrap_command.value,
        typed(&settings.bootstrap_command.source),
    ) {
        options.push(("--bootstrap-command", template.quoted()));
    }
    let networks = job.args.if_include.iter();
    options.extend(networks.map(|network| ("--if-include", network.clone())));
    let ports = job.args.port_range;
    options.extend(ports.map(|(low, high)| ("--port-range", format!("{low}-{high}"))));
    options
        .into_iter()
        .flat_map(|(name, value)| [name.to_owned(), value])
        .collect()
}

/// Says how the daemons would be started.
pub(crate) fn described(plan: &DaemonPlan) -> String {
    let nodes: usize = plan
        .commands
        .iter()
        .map(|command| command.nodes.len())
        .sum();
    let daemons = if nodes == 1 { "daemon" } else { "daemons" };
    let program = plan
        .commands
        .first()
        .and_then(|command| command.argv.first());
    let program = program.map(Path::new).and_then(Path::file_name);
    let program = program.unwrap_or_default().display();
    let start = format!("start {nodes} {daemons} by `{program}`");
    let at_a_time = |most: NonZeroU32| format!("{most} at a time");
    if plan.starts_in_tree() {
        let here = at_a_time(PARALLEL.min(plan.radix));
        let there = at_a_time(DAEMON_PARALLEL.min(plan.radix));
        format!("{start}: {here} from this node, and {there} from each daemon that runs")
    } else if plan.commands.len() == 1 {
        start
    } else {
        format!("{start}, {} from this node", at_a_time(PARALLEL))
    }
}

/// What is started on the other nodes: our own program, with an argument.
#[derive(Clone, Copy, Debug)]
pub(super) struct Program<'a> {
    pub(super) argument: &'static str,
    pub(super) world: &'a World,
}

impl Program<'_> {
    fn words(&self) -> [OsString; 2] {
        let executable = self.world.executable.clone().into_os_string();
        [executable, self.argument.into()]
    }
}

/// Returns the commands that start a program on these nodes.
pub(super) fn commands(
    way: Way,
    nodes: &[(NodeId, &str)],
    program: &Program<'_>,
    settings: &Settings,
) -> Vec<StartCommand> {
    let own = program.words();
    let of_each = |command: &dyn Fn(&str) -> ssh::Command| {
        let command = |(id, name): &(NodeId, &str)| {
            let ssh::Command {
                argv,
                delivery,
                check,
                prompting,
                elsewhere,
            } = command(name);
            StartCommand {
                argv,
                nodes: vec![*id],
                delivery,
                check,
                prompting,
                elsewhere,
            }
        };
        nodes.iter().map(command).collect()
    };
    match way {
        Way::Fork => of_each(&|_| ssh::Command {
            argv: own.to_vec(),
            delivery: Delivery::Direct,
            check: Vec::new(),
            prompting: Prompting::Never,
            elsewhere: None,
        }),
        Way::Ssh => {
            of_each(&|host| ssh::of_settings(host, settings, &own, program.world.prompting))
        }
        Way::Lsf => of_each(&|host| ssh::Command {
            argv: lsf::command(host),
            delivery: Delivery::Staged,
            check: Vec::new(),
            prompting: Prompting::Never,
            elsewhere: None,
        }),
        Way::Pbs => {
            let lines = batch::pbs_lines(program.world);
            of_each(&|host| match lines.iter().position(|line| line == host) {
                Some(line) => ssh::Command {
                    argv: pbs::command(line, &own),
                    delivery: Delivery::File,
                    check: pbs::check(line),
                    prompting: Prompting::Never,
                    elsewhere: None,
                },
                // The file was changed since the allocation was read from it.
                None => ssh::of_settings(host, settings, &own, program.world.prompting),
            })
        }
        Way::Slurm => {
            let components = batch::het_nodes(program.world);
            let mut by_group: BTreeMap<Option<usize>, Vec<(NodeId, &str)>> = BTreeMap::new();
            for (id, name) in nodes {
                let group = components.iter().position(|hosts| hosts.contains(name));
                by_group.entry(group).or_default().push((*id, name));
            }
            let command = |(group, nodes): (Option<usize>, Vec<(NodeId, &str)>)| {
                slurm::command(Allocation::Own { group }, &nodes)
            };
            by_group.into_iter().map(command).collect()
        }
    }
}

/// Returns how a machine starts the daemons of nodes that it gets later. Nobody is asked then: the front has left.
fn late(way: Way, program: &Program<'_>, settings: &Settings) -> LateStart {
    let nobody = NodeId(0);
    let own = program.words();
    let here = StartCommand {
        argv: own.to_vec(),
        nodes: Vec::new(),
        delivery: Delivery::Direct,
        check: Vec::new(),
        prompting: Prompting::Never,
        elsewhere: None,
    };
    let template = commands(way, &[(nobody, HOST_WORD)], program, settings);
    let mut command = template.into_iter().next().unwrap_or_else(|| here.clone());
    if let Delivery::Checked { shell } = &command.delivery {
        command.argv = shell.iter().map(OsString::from).collect();
        command.delivery = Delivery::Staged;
    }
    if command.prompting == Prompting::OnTerminal
        && let Some(unasked) = command.elsewhere.take()
    {
        command.argv = unasked;
    }
    LateStart::OfMachine {
        command: StartCommand {
            prompting: Prompting::Never,
            elsewhere: None,
            ..command
        },
        here: program.world.names().host().to_owned(),
        command_here: here,
    }
}

/// Returns the commands that start a program in an allocation of Slurm in which we do not run.
pub(super) fn commands_in_slurm(job: &str, nodes: &[(NodeId, &str)]) -> Vec<StartCommand> {
    vec![slurm::command(Allocation::Of { job }, nodes)]
}

/// Returns the environment of the commands.
pub(super) fn environment(way: Way, world: &World) -> Vec<OsString> {
    let is_kept = |name: &OsStr| match way {
        Way::Slurm => !slurm::is_an_option(name) && !is_of_a_host(name),
        // Like srun, it passes our environment on, and what describes our host is not the node's.
        Way::Lsf => !is_of_a_host(name),
        Way::Ssh | Way::Pbs | Way::Fork => true,
    };
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
    environment
}

/// A way to start processes on other nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Fork,
    Ssh,
    Slurm,
    Lsf,
    Pbs,
}

/// Returns the way that the user has asked for, else that of the resource manager to whose allocation the nodes belong.
/// `typed` is the user's spelling of the option.
///
/// # Errors
///
/// A way that the nodes do not have.
pub(super) fn way(
    asked: Option<Bootstrap>,
    typed: Option<&str>,
    manager: Option<Manager>,
    world: &World,
) -> Result<Way, Error> {
    let refused = |name: &str, why| {
        let option = format!("{} {name}", typed.unwrap_or("--bootstrap"));
        Err(Error::NotOffered { option, why })
    };
    match (asked, manager) {
        (Some(Bootstrap::Fork), _) => Ok(Way::Fork),
        (Some(Bootstrap::Ssh), _) => Ok(Way::Ssh),
        (Some(Bootstrap::Slurm) | Some(Bootstrap::Auto) | None, Some(Manager::Slurm)) => {
            Ok(Way::Slurm)
        }
        (Some(Bootstrap::Lsf) | Some(Bootstrap::Auto) | None, Some(Manager::Lsf)) => Ok(Way::Lsf),
        (Some(Bootstrap::Pbs), Some(Manager::Pbs)) => Ok(Way::Pbs),
        // Its starter passes on no standard input, and so needs files that all nodes see.
        (Some(Bootstrap::Auto) | None, Some(Manager::Pbs)) => Ok(match pbs::why_not(world) {
            None => Way::Pbs,
            Some(_) => Way::Ssh,
        }),
        (Some(Bootstrap::Auto) | None, None) => Ok(Way::Ssh),
        (Some(Bootstrap::Pbs), _) => refused("pbs", NotOffered::NoAllocation),
        (Some(Bootstrap::Slurm), _) => refused("slurm", NotOffered::NoAllocation),
        (Some(Bootstrap::Lsf), _) => refused("lsf", NotOffered::NoAllocation),
    }
}
