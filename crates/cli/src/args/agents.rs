//! How the agents of `dbgr` are started on other nodes: with the options and settings that `rally run` has for its daemons.

use std::num::NonZeroU32;

use base::NodeId;
use clap::{ArgAction, Args};
use dvm::bootstrap::{self, DaemonPlan, Hosting};

use super::{
    Error, Personality, World,
    batch::{self, Manager},
    daemons::{self, Program},
    define::Bootstrap,
    resolve::settings,
};
use crate::{
    remote::{self, Words},
    values,
};

/// The number of the node on which `dbgr` runs. Those of the others follow.
const HERE: NodeId = NodeId(0);

/// Options about other nodes. Those of `rally run` with these names mean the same.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct AgentArgs {
    /// How agents get onto other nodes: ssh, slurm, lsf. By default by the starter of the resource manager if all nodes belong
    /// to the allocation in which `dbgr` runs, otherwise by ssh
    #[arg(long, value_name = "HOW", value_parser = starter)]
    bootstrap: Option<Bootstrap>,
    /// ssh, or a command like it, with its options. It is called with the node's name and a command
    #[arg(long, value_name = "COMMAND", value_parser = remote::ssh)]
    ssh: Option<Words>,
    /// A command instead of ssh: kubectl exec -i {host} -- {daemon}
    #[arg(long, value_name = "TEMPLATE", value_parser = template)]
    bootstrap_command: Option<Words>,
    /// Networks for connections between nodes, by interface or address
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', action = ArgAction::Append)]
    if_include: Vec<String>,
    /// Ports for connections between nodes
    #[arg(long, value_name = "LOW-HIGH", value_parser = values::port_range)]
    port_range: Option<(u16, u16)>,
    /// The most agents that connect to one process; the answers of the others are merged on their way
    #[arg(long, value_name = "N", value_parser = values::radix, hide_short_help = true)]
    radix: Option<NonZeroU32>,
}

impl AgentArgs {
    /// Returns how our program is started on these nodes, whose numbers begin with 1. `argument` makes it an agent.
    ///
    /// # Errors
    ///
    /// A setting that cannot be read, or a way to start that the nodes do not have.
    pub(crate) fn plan(
        &self,
        hosts: &[String],
        argument: &'static str,
        world: &World,
    ) -> Result<DaemonPlan, Error> {
        let (layers, _) = settings(world)?;
        let settings = layers.parse();
        let mut settings = settings.map_err(|bad| Error::Config(Box::new(bad.into())))?;
        if let Some(ssh) = &self.ssh {
            settings.ssh.value = ssh.clone();
            // The option is about the same subject as the setting.
            settings.bootstrap_command.value = None;
        }
        if let Some(template) = &self.bootstrap_command {
            settings.bootstrap_command.value = Some(template.clone());
        }
        let manager = match (self.bootstrap, &settings.bootstrap_command.value) {
            // The user has named a command of their own.
            (Some(Bootstrap::Ssh), _) | (None, Some(_)) => None,
            _ => manager_of(hosts, world)?,
        };
        let way = daemons::way(self.bootstrap, None, manager)?;
        let names = hosts.iter().map(String::as_str);
        let nodes: Vec<(NodeId, &str)> = (HERE.0 + 1..).map(NodeId).zip(names).collect();
        let program = Program { argument, world };
        Ok(DaemonPlan {
            local: Some(HERE),
            commands: daemons::commands(way, &nodes, &program, &settings),
            program: world.executable.clone().into_os_string(),
            argument: argument.to_owned(),
            environment: daemons::environment(way, world),
            radix: self.radix.unwrap_or(bootstrap::RADIX),
            ports: self.port_range,
            interfaces: self.if_include.clone(),
            hosting: Hosting::Alone,
            lease: bootstrap::LEASE,
            window: bootstrap::WINDOW,
        })
    }
}

/// Returns the resource manager of the allocation in which we run, if all these nodes belong to it.
fn manager_of(hosts: &[String], world: &World) -> Result<Option<Manager>, Error> {
    let Some(batch) = batch::of(Personality::Rally, world)? else {
        return Ok(None);
    };
    let nodes = &batch.allocation.nodes;
    let is_granted = |host: &String| nodes.iter().any(|node| node.name == *host);
    Ok(hosts.iter().all(is_granted).then_some(batch.manager))
}

/// Parses a way to start agents. This machine standing for several nodes is no way: one agent reads them all.
fn starter(text: &str) -> Result<Bootstrap, values::ValueError> {
    let ways = [
        ("auto", Bootstrap::Auto),
        ("ssh", Bootstrap::Ssh),
        ("slurm", Bootstrap::Slurm),
        ("lsf", Bootstrap::Lsf),
    ];
    let found = ways.into_iter().find(|(name, _)| *name == text);
    found
        .map(|(_, way)| way)
        .ok_or_else(|| values::ValueError::NotOneOf(ways.map(|(name, _)| name.to_owned()).into()))
}

fn template(text: &str) -> Result<Words, values::ValueError> {
    remote::template(text)?.ok_or(values::ValueError::Empty)
}

#[cfg(test)]
mod tests {
    use std::ffi::{OsStr, OsString};

    use clap::Parser;
    use dvm::bootstrap::Delivery;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        agents: AgentArgs,
    }

    /// Returns the commands for some nodes, one a line, with their delivery.
    fn commands(line: &str, variables: &[(&str, &str)], hosts: &str) -> String {
        let words = shlex(line);
        let agents = match Line::try_parse_from(words) {
            Ok(line) => line.agents,
            Err(error) => return error.to_string().lines().next().unwrap().to_owned(),
        };
        let mut world = World::capture();
        world.site_config = "/nonexistent".into();
        world.executable = "/opt/dbgr".into();
        world.variables = variables
            .iter()
            .map(|(name, value)| (OsString::from(name), OsString::from(value)))
            .collect();
        let hosts: Vec<String> = hosts.split(',').map(str::to_owned).collect();
        let plan = match agents.plan(&hosts, "__agent", &world) {
            Ok(plan) => plan,
            Err(error) => return error.message().headline,
        };
        let shown = plan.commands.iter().map(|command| {
            let argv = command.argv.join(OsStr::new(" "));
            let how = match command.delivery {
                Delivery::Direct => "direct",
                Delivery::Staged => "staged",
                Delivery::File => "file",
            };
            let nodes: Vec<_> = command
                .nodes
                .iter()
                .map(|node| node.0.to_string())
                .collect();
            format!("{} {how}: {}", nodes.join(","), argv.display())
        });
        shown.collect::<Vec<_>>().join("\n")
    }

    fn shlex(line: &str) -> Vec<String> {
        let line = crate::quoting::lines(line.as_bytes()).unwrap();
        let words = line.iter().flat_map(|line| &line.words);
        let words = words.map(|word| word.to_string_lossy().into_owned());
        ["dbgr".to_owned()].into_iter().chain(words).collect()
    }

    /// A command line, variables, and hosts.
    type Case<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a str);

    #[test]
    fn agents_are_started_like_daemons() {
        let slurm = [("SLURM_JOB_ID", "7"), ("SLURM_JOB_NODELIST", "n[1-3]")];
        let lsf = [("LSB_JOBID", "7"), ("LSB_HOSTS", "n1 n2")];
        let cases: &[Case<'_>] = &[
            ("", &[], "n1,n2"),
            ("", &[("RALLY_SSH", "rsh -v")], "n1"),
            ("--ssh 'ssh -p 22'", &[("RALLY_SSH", "rsh")], "n1"),
            (
                "",
                &[("RALLY_BOOTSTRAP_COMMAND", "k {host} {daemon}")],
                "n1",
            ),
            (
                "--ssh s",
                &[("RALLY_BOOTSTRAP_COMMAND", "k {host} {daemon}")],
                "n1",
            ),
            ("--bootstrap-command 'k {host} {daemon} {file}'", &[], "n1"),
            ("", &slurm, "n1,n3"),
            ("", &slurm, "n1,other"),
            ("--bootstrap ssh", &slurm, "n1"),
            ("--ssh ssh", &slurm, "n1"),
            ("--bootstrap slurm", &[], "n1"),
            ("", &lsf, "n2"),
            ("--bootstrap fork", &[], "n1"),
            ("", &[("RALLY_SSH", "ssh '")], "n1"),
        ];
        let all: Vec<_> = cases
            .iter()
            .map(|(line, variables, hosts)| {
                format!("[{line}] {hosts}\n{}", commands(line, variables, hosts))
            })
            .collect();
        insta::assert_snapshot!(all.join("\n"), @"
        [] n1,n2
        1 staged: ssh -x -a -T -oBatchMode=yes -oControlMaster=no -oConnectTimeout=15 n1 exec /bin/sh
        2 staged: ssh -x -a -T -oBatchMode=yes -oControlMaster=no -oConnectTimeout=15 n2 exec /bin/sh
        [] n1
        1 staged: rsh -v n1 exec /bin/sh
        [--ssh 'ssh -p 22'] n1
        1 staged: ssh -p 22 -x -a -T -oBatchMode=yes -oControlMaster=no -oConnectTimeout=15 n1 exec /bin/sh
        [] n1
        1 staged: k n1 /bin/sh
        [--ssh s] n1
        1 staged: s n1 exec /bin/sh
        [--bootstrap-command 'k {host} {daemon} {file}'] n1
        1 file: k n1 /opt/dbgr __agent {file}
        [] n1,n3
        1,2 direct: srun --overlap --nodes=2 --ntasks=2 --ntasks-per-node=1 --nodelist=n[1,3] --chdir=/ --mpi=none --cpu-bind=none --kill-on-bad-exit=0 --no-kill --wait=0 --input=all /opt/dbgr __agent
        [] n1,other
        1 staged: ssh -x -a -T -oBatchMode=yes -oControlMaster=no -oConnectTimeout=15 n1 exec /bin/sh
        2 staged: ssh -x -a -T -oBatchMode=yes -oControlMaster=no -oConnectTimeout=15 other exec /bin/sh
        [--bootstrap ssh] n1
        1 staged: ssh -x -a -T -oBatchMode=yes -oControlMaster=no -oConnectTimeout=15 n1 exec /bin/sh
        [--ssh ssh] n1
        1 direct: srun --overlap --nodes=1 --ntasks=1 --ntasks-per-node=1 --nodelist=n1 --chdir=/ --mpi=none --cpu-bind=none --kill-on-bad-exit=0 --no-kill --wait=0 --input=all /opt/dbgr __agent
        [--bootstrap slurm] n1
        `--bootstrap slurm` is not supported: the nodes do not belong to an allocation of it
        [] n2
        1 direct: blaunch -no-shell n2 /opt/dbgr __agent
        [--bootstrap fork] n1
        error: invalid value 'fork' for '--bootstrap <HOW>': known values are `auto`, `ssh`, `slurm`, `lsf`
        [] n1
        the setting `ssh` cannot be `ssh '`: the quote ' is never closed
        ");
    }
}
