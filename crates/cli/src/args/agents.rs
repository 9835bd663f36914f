//! How the agents of `dbgr` are started on other nodes: with the options and settings that `rally run` has for its daemons.

use std::{ffi::OsString, num::NonZeroU32, path::PathBuf};

use base::NodeId;
use clap::{ArgAction, Args};
use dvm::bootstrap::{self, DaemonPlan, Delivery, Hosting, Prompting, StartCommand};

use super::{
    Error, Personality, World,
    batch::{self, Manager},
    daemons::{self, Program, Way},
    request::THROUGH_ARGUMENT,
    resolve::settings,
};
use crate::{
    choices::Bootstrap,
    remote::{self, Words},
    values,
};

/// The number of the node on which `dbgr` runs. Those of the others follow.
const HERE: NodeId = NodeId(0);

/// Who can start agents on the nodes of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Starter {
    /// The daemons of `rally`, through the socket of the job's controller.
    Daemons(PathBuf),
    /// `srun`, in the allocation with this number.
    Slurm(String),
}

/// Options about other nodes. Those of `rally run` with these names mean the same.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct AgentArgs {
    /// How agents get onto other nodes: ssh, slurm, lsf, pbs. By default by the starter of the resource manager if all nodes
    /// belong to the allocation in which `dbgr` runs, otherwise by ssh
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
    /// The number of a Slurm job: `srun --overlap --jobid` starts the agents on its nodes. Found without this option for
    /// the process number of an `srun`, and for JOB.STEP
    #[arg(long, value_name = "JOB", value_parser = jobid, conflicts_with_all = ["bootstrap", "ssh", "bootstrap_command"])]
    jobid: Option<String>,
}

impl AgentArgs {
    /// Returns who starts the agents of a job: who the user has named, else the one who could, unless the user has chosen
    /// another way.
    pub(crate) fn starter(&self, of_job: Option<Starter>) -> Option<Starter> {
        let is_open =
            self.bootstrap.is_none() && self.ssh.is_none() && self.bootstrap_command.is_none();
        match &self.jobid {
            Some(job) => Some(Starter::Slurm(job.clone())),
            None => of_job.filter(|_| is_open),
        }
    }

    /// Returns how our program is started on these nodes, whose numbers begin with 1. `argument` makes it an agent. `starter`
    /// starts it in place of our own command.
    ///
    /// # Errors
    ///
    /// A setting that cannot be read, or a way to start that the nodes do not have.
    pub(crate) fn plan(
        &self,
        hosts: &[String],
        argument: &'static str,
        starter: Option<&Starter>,
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
        let way = daemons::way(self.bootstrap, None, manager, world)?;
        let names = hosts.iter().map(String::as_str);
        let nodes: Vec<(NodeId, &str)> = (HERE.0 + 1..).map(NodeId).zip(names).collect();
        let typed = || "--if-include".to_owned();
        daemons::check_networks(&self.if_include, typed, world)?;
        let program = Program { argument, world };
        let (commands, environment) = match starter {
            Some(Starter::Daemons(socket)) => {
                let words = [
                    world.executable.as_os_str(),
                    THROUGH_ARGUMENT.as_ref(),
                    socket.as_os_str(),
                ];
                let command = direct(words.map(OsString::from).to_vec(), &nodes);
                (vec![command], daemons::environment(Way::Ssh, world))
            }
            Some(Starter::Slurm(job)) => {
                let commands = daemons::commands_in_slurm(job, &nodes);
                (commands, daemons::environment(Way::Slurm, world))
            }
            None => {
                let commands = daemons::commands(way, &nodes, &program, &settings);
                (commands, daemons::environment(way, world))
            }
        };
        Ok(DaemonPlan {
            local: Some(HERE),
            commands,
            program: world.executable.clone().into_os_string(),
            argument: argument.to_owned(),
            environment,
            radix: self.radix.unwrap_or(bootstrap::RADIX),
            ports: self.port_range,
            interfaces: self.if_include.clone(),
            hosting: Hosting::Alone,
            lease: bootstrap::LEASE,
            window: bootstrap::WINDOW,
            // The process that starts the agents has no messages for other starters.
            tree_start: bootstrap::TreeStart::Never,
            late: None,
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
        ("pbs", Bootstrap::Pbs),
    ];
    let found = ways.into_iter().find(|(name, _)| *name == text);
    found
        .map(|(_, way)| way)
        .ok_or_else(|| values::ValueError::NotOneOf(ways.map(|(name, _)| name.to_owned()).into()))
}

fn jobid(text: &str) -> Result<String, values::ValueError> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number
        .then(|| text.to_owned())
        .ok_or(values::ValueError::NotANumber)
}

fn direct(argv: Vec<OsString>, nodes: &[(NodeId, &str)]) -> StartCommand {
    StartCommand {
        argv,
        nodes: nodes.iter().map(|(id, _)| *id).collect(),
        delivery: Delivery::Direct,
        check: Vec::new(),
        prompting: Prompting::Never,
        elsewhere: None,
    }
}

fn template(text: &str) -> Result<Words, values::ValueError> {
    remote::template(text)?.ok_or(values::ValueError::Empty)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use clap::Parser;

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
        let starter = agents.starter(None);
        let plan = match agents.plan(&hosts, "__agent", starter.as_ref(), &world) {
            Ok(plan) => plan,
            Err(error) => return error.message().headline,
        };
        let shown = plan.commands.iter().map(|command| {
            let argv = command.argv.join(OsStr::new(" "));
            let how = match &command.delivery {
                Delivery::Direct => "direct".to_owned(),
                Delivery::Checked { shell } => format!("checked, or else `{}`", shell.join(" ")),
                Delivery::Staged => "staged".to_owned(),
                Delivery::File => "file".to_owned(),
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
    fn a_job_starts_the_agents_unless_the_user_chooses_another_way() {
        let daemons = || Some(Starter::Daemons("/run/control-7".into()));
        for (line, starter) in [
            ("", daemons()),
            ("--radix 2", daemons()),
            ("--ssh rsh", None),
            ("--bootstrap ssh", None),
            ("--bootstrap-command 'k {host} {daemon}'", None),
            ("--jobid 12", Some(Starter::Slurm("12".to_owned()))),
        ] {
            let agents = Line::try_parse_from(shlex(line)).unwrap().agents;
            assert_eq!(agents.starter(daemons()), starter, "{line}");
        }
    }

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
            ("--jobid 12", &[("RALLY_SSH", "rsh")], "n1,n2"),
            ("--jobid 12 --ssh s", &[], "n1"),
            ("--jobid 12.0", &[], "n1"),
        ];
        let all: Vec<_> = cases
            .iter()
            .map(|(line, variables, hosts)| {
                format!("[{line}] {hosts}\n{}", commands(line, variables, hosts))
            })
            .collect();
        insta::assert_snapshot!(all.join("\n"), @"
        [] n1,n2
        1 staged: ssh -x -oForwardAgent=no -T -oBatchMode=yes -oControlMaster=no -oConnectTimeout=15 n1 exec /bin/sh
        2 staged: ssh -x -oForwardAgent=no -T -oBatchMode=yes -oControlMaster=no -oConnectTimeout=15 n2 exec /bin/sh
        [] n1
        1 staged: rsh -v n1 exec /bin/sh
        [--ssh 'ssh -p 22'] n1
        1 staged: ssh -p 22 -x -oForwardAgent=no -T -oBatchMode=yes -oControlMaster=no -oConnectTimeout=15 n1 exec /bin/sh
        [] n1
        1 staged: k n1 /bin/sh
        [--ssh s] n1
        1 staged: s n1 exec /bin/sh
        [--bootstrap-command 'k {host} {daemon} {file}'] n1
        1 file: k n1 /opt/dbgr __agent {file}
        [] n1,n3
        1,2 checked, or else `srun --overlap --nodes=1 --ntasks=1 --ntasks-per-node=1 --nodelist={host} --chdir=/ --mpi=none --cpu-bind=none --kill-on-bad-exit=0 --no-kill --wait=0 --input=all /bin/sh`: srun --overlap --nodes=2 --ntasks=2 --ntasks-per-node=1 --nodelist=n[1,3] --chdir=/ --mpi=none --cpu-bind=none --kill-on-bad-exit=0 --no-kill --wait=0 --input=all
        [] n1,other
        1 staged: ssh -x -oForwardAgent=no -T -oBatchMode=yes -oControlMaster=no -oConnectTimeout=15 n1 exec /bin/sh
        2 staged: ssh -x -oForwardAgent=no -T -oBatchMode=yes -oControlMaster=no -oConnectTimeout=15 other exec /bin/sh
        [--bootstrap ssh] n1
        1 staged: ssh -x -oForwardAgent=no -T -oBatchMode=yes -oControlMaster=no -oConnectTimeout=15 n1 exec /bin/sh
        [--ssh ssh] n1
        1 checked, or else `srun --overlap --nodes=1 --ntasks=1 --ntasks-per-node=1 --nodelist={host} --chdir=/ --mpi=none --cpu-bind=none --kill-on-bad-exit=0 --no-kill --wait=0 --input=all /bin/sh`: srun --overlap --nodes=1 --ntasks=1 --ntasks-per-node=1 --nodelist=n1 --chdir=/ --mpi=none --cpu-bind=none --kill-on-bad-exit=0 --no-kill --wait=0 --input=all
        [--bootstrap slurm] n1
        `--bootstrap slurm` is not supported: the nodes do not belong to an allocation of it
        [] n2
        1 staged: blaunch -no-shell n2 /bin/sh
        [--bootstrap fork] n1
        error: invalid value 'fork' for '--bootstrap <HOW>': known values are `auto`, `ssh`, `slurm`, `lsf`, `pbs`
        [] n1
        the setting `ssh` cannot be `ssh '`: the quote ' is never closed
        [--jobid 12] n1,n2
        1,2 checked, or else `srun --jobid=12 --overlap --nodes=1 --ntasks=1 --ntasks-per-node=1 --nodelist={host} --chdir=/ --mpi=none --cpu-bind=none --kill-on-bad-exit=0 --no-kill --wait=0 --input=all /bin/sh`: srun --jobid=12 --overlap --nodes=2 --ntasks=2 --ntasks-per-node=1 --nodelist=n[1-2] --chdir=/ --mpi=none --cpu-bind=none --kill-on-bad-exit=0 --no-kill --wait=0 --input=all
        [--jobid 12 --ssh s] n1
        error: the argument '--jobid <JOB>' cannot be used with '--ssh <COMMAND>'
        [--jobid 12.0] n1
        error: invalid value '12.0' for '--jobid <JOB>': it is not a whole number
        ");
    }
}
