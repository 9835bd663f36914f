//! A Slurm cluster with one node, which runs as the user of the tests.

use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::Command,
};

use nix::{
    sys::signal::Signal,
    unistd::{Uid, User},
};

use super::{DEADLINE, Running, Sandbox, eventually};

/// The daemons of a cluster, until it is stopped.
pub(crate) struct Slurm<'a> {
    sandbox: &'a Sandbox,
    file: PathBuf,
    daemons: Vec<Running>,
}

impl<'a> Slurm<'a> {
    /// Starts a cluster, and waits until its node accepts jobs.
    pub(crate) fn start(sandbox: &'a Sandbox) -> Self {
        let home = sandbox.path("slurm");
        for directory in ["state", "spool", "tmp"] {
            fs::create_dir_all(home.join(directory)).unwrap();
        }
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        let host = host.trim().split('.').next().unwrap();
        let user = User::from_uid(Uid::effective()).unwrap().unwrap().name;
        // These ports stay free until the daemons bind them: the kernel assigns other ports first.
        let ports: Vec<TcpListener> = (0..2)
            .map(|_| TcpListener::bind("127.0.0.1:0").unwrap())
            .collect();
        let port = |index: usize| ports[index].local_addr().unwrap().port();
        let home_text = home.display();
        let text = format!(
            "ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
SlurmctldPort={}
SlurmctldPidFile={home_text}/slurmctld.pid
SlurmdPidFile={home_text}/slurmd.pid
SlurmdSpoolDir={home_text}/spool
StateSaveLocation={home_text}/state
TmpFS={home_text}/tmp
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
NodeName=n0 NodeHostname={host} NodeAddr=127.0.0.1 Port={} CPUs=4 State=UNKNOWN
PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP
",
            port(0),
            port(1)
        );
        let file = home.join("slurm.conf");
        fs::write(&file, text).unwrap();
        drop(ports);
        let mut slurm = Self {
            sandbox,
            file,
            daemons: Vec::new(),
        };
        for (daemon, args) in [("slurmctld", &["-D"][..]), ("slurmd", &["-D", "-N", "n0"])] {
            let mut command = slurm.command(daemon.as_ref());
            command.args(args);
            slurm.daemons.push(sandbox.start(&mut command));
        }
        let mut said = String::new();
        let idle = eventually(DEADLINE, || {
            let mut command = slurm.command("sinfo".as_ref());
            let finished = sandbox.run(command.args(["-h", "-o", "%T"]));
            said = [finished.out(), finished.err()].concat();
            (said == "idle\n").then_some(())
        });
        assert!(idle.is_some(), "Slurm takes no jobs: {said}");
        slurm
    }

    /// Returns a command that uses the cluster.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = self.sandbox.command(program);
        command.env("SLURM_CONF", &self.file);
        command
    }

    pub(crate) fn stop(self) {
        for daemon in self.daemons.into_iter().rev() {
            daemon.signal(Signal::SIGTERM);
            daemon.end();
        }
    }
}
