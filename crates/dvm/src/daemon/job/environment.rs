//! Environment variables that differ by rank or that say where our services are.

use std::ffi::OsString;

use base::Rank;
use pmix::pmi;

use super::LocalJob;
use crate::{
    daemon::{PMI_DESCRIPTOR, Subscription, spaced},
    place::Placed,
    spec::Family,
};

/// Open MPI 4 believes that it was started without a launcher, whatever PMIx says, unless this variable names a daemon
/// of its own launcher. It reads the name, which belongs to no process of a job. It never connects to the address,
/// where no process listens.
const OPEN_MPI_4: (&str, &str) = ("OMPI_MCA_orte_local_daemon_uri", "0.0;tcp://127.0.0.1:1");

/// For Open MPI 4: waiting ranks should yield the CPU, because there are more ranks than CPUs. Open MPI 5 learns this
/// by PMIx.
const OPEN_MPI_4_YIELDS: &str = "OMPI_MCA_mpi_oversubscribe";

impl LocalJob {
    /// Returns the variables of a proc that are added to those of its app, and override them.
    pub(super) fn variables(&self, rank: Rank, placed: &Placed) -> Vec<(String, OsString)> {
        let launch = &self.launch;
        if let Some(beside) = &launch.beside {
            return self.variables_of_tool(rank, beside);
        }
        let local_size = u32::try_from(self.procs.len()).unwrap_or(u32::MAX);
        let node_rank = self.first.saturating_add(placed.local_rank);
        let size = launch.size();
        let mut env: Vec<(String, OsString)> = Vec::new();
        let mut set = |name: &str, value: String| env.push((name.to_owned(), value.into()));
        set("RALLY_JOB", launch.job.to_string());
        set("RALLY_RANK", rank.to_string());
        set("RALLY_SIZE", size.to_string());
        set("RALLY_LOCAL_RANK", placed.local_rank.to_string());
        set("RALLY_LOCAL_SIZE", local_size.to_string());
        set("RALLY_NODE", self.node.to_string());
        for family in &launch.variables {
            match family {
                Family::OpenMpi => {
                    set("OMPI_COMM_WORLD_RANK", rank.to_string());
                    set("OMPI_COMM_WORLD_SIZE", size.to_string());
                    set("OMPI_COMM_WORLD_NODE_RANK", node_rank.to_string());
                    set("OMPI_COMM_WORLD_LOCAL_RANK", placed.local_rank.to_string());
                    set("OMPI_COMM_WORLD_LOCAL_SIZE", local_size.to_string());
                    set("OMPI_UNIVERSE_SIZE", launch.universe.size().to_string());
                    let apps = launch.map.apps();
                    set("OMPI_NUM_APP_CTX", apps.len().to_string());
                    set(
                        "OMPI_APP_CTX_NUM_PROCS",
                        spaced(apps.iter().map(|app| app.count)),
                    );
                    set(
                        "OMPI_FIRST_RANKS",
                        spaced(apps.iter().map(|app| app.first.0)),
                    );
                }
                Family::Slurm => {
                    set("SLURM_PROCID", rank.to_string());
                    set("SLURM_NPROCS", size.to_string());
                    set("SLURM_NTASKS", size.to_string());
                    set("SLURM_LOCALID", placed.local_rank.to_string());
                    set("SLURM_NODEID", self.node_index.to_string());
                    set("SLURMD_NODENAME", self.host.clone());
                }
                Family::Torch => {
                    set("RANK", rank.to_string());
                    set("WORLD_SIZE", size.to_string());
                    set("LOCAL_RANK", placed.local_rank.to_string());
                    set("LOCAL_WORLD_SIZE", local_size.to_string());
                    set("NODE_RANK", self.node_index.to_string());
                    set("GROUP_RANK", self.node_index.to_string());
                }
            }
        }
        if let Some((variable, names)) =
            launch.gpus_of(self.node, self.gpus.as_ref(), placed.local_rank)
        {
            set(variable, names.clone());
            if launch.variables.contains(&Family::Slurm) {
                set("SLURM_STEP_GPUS", names);
            }
        }
        let pmi = pmi::environment(
            rank,
            size,
            placed.local_rank,
            local_size,
            &self.host,
            PMI_DESCRIPTOR,
        );
        for (name, value) in pmi {
            set(name, value);
        }
        if launch.parent.as_ref().and_then(super::spawned).is_some() {
            set(pmi::SPAWNED.0, pmi::SPAWNED.1.to_owned());
        }
        if let Some(environment) = &self.environment {
            set(OPEN_MPI_4.0, OPEN_MPI_4.1.to_owned());
            if self.subscription == Subscription::Oversubscribed {
                set(OPEN_MPI_4_YIELDS, "1".to_owned());
            }
            env.extend(environment.of(rank));
        }
        env
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use base::Time;

    use crate::daemon::tests::{beside, daemon, daemon_of, launch, launch_of};
    use crate::{
        daemon::{Daemon, Input, Output},
        proto::{Launch, ToDaemon},
        spec::Family,
    };

    /// Returns the environment of the last rank of a job.
    fn found(daemon: &mut Daemon, launch: Launch) -> String {
        let now = Time::ZERO;
        daemon.handle(now, Input::Message(ToDaemon::Launch(Arc::new(launch))));
        let mut found = Vec::new();
        while let Some(output) = daemon.poll() {
            if let Output::Spawn(order) = output {
                let line = |(name, value): &(String, std::ffi::OsString)| {
                    format!("{name}={}", value.display())
                };
                found = order.env.iter().map(line).collect();
                found.sort();
                daemon.handle(
                    now,
                    Input::Spawned {
                        proc: order.proc,
                        pid: 100,
                        executable: "/home/a".into(),
                    },
                );
            }
        }
        found.join("\n")
    }

    #[test]
    fn in_the_words_of_others() {
        let mut launch = launch_of(1, &[3, 1], &["node"]);
        launch.variables = [Family::OpenMpi, Family::Slurm, Family::Torch].into();
        let found = found(&mut daemon(), launch);
        let known = ["MPI_", "PMI", "RALLY_", "OMPI_MCA_"];
        let others: Vec<&str> = found
            .lines()
            .filter(|line| !known.iter().any(|known| line.starts_with(known)))
            .collect();
        insta::assert_snapshot!(others.join("\n"), @r"
        GROUP_RANK=0
        LOCAL_RANK=3
        LOCAL_WORLD_SIZE=4
        NODE_RANK=0
        OMPI_APP_CTX_NUM_PROCS=3 1
        OMPI_COMM_WORLD_LOCAL_RANK=3
        OMPI_COMM_WORLD_LOCAL_SIZE=4
        OMPI_COMM_WORLD_NODE_RANK=3
        OMPI_COMM_WORLD_RANK=3
        OMPI_COMM_WORLD_SIZE=4
        OMPI_FIRST_RANKS=0 3
        OMPI_NUM_APP_CTX=2
        OMPI_UNIVERSE_SIZE=4
        RANK=3
        SLURMD_NODENAME=node
        SLURM_LOCALID=3
        SLURM_NODEID=0
        SLURM_NPROCS=4
        SLURM_NTASKS=4
        SLURM_PROCID=3
        WORLD_SIZE=4
        ");
    }

    #[test]
    fn of_a_rank_beside_others() {
        let mut daemon = daemon();
        insta::assert_snapshot!(found(&mut daemon, launch(1, 2)), @r"
        MPI_LOCALNRANKS=2
        MPI_LOCALRANKID=1
        OMPI_APP_CTX_NUM_PROCS=2
        OMPI_COMM_WORLD_LOCAL_RANK=1
        OMPI_COMM_WORLD_LOCAL_SIZE=2
        OMPI_COMM_WORLD_NODE_RANK=1
        OMPI_COMM_WORLD_RANK=1
        OMPI_COMM_WORLD_SIZE=2
        OMPI_FIRST_RANKS=0
        OMPI_MCA_orte_local_daemon_uri=0.0;tcp://127.0.0.1:1
        OMPI_NUM_APP_CTX=1
        OMPI_UNIVERSE_SIZE=4
        PMIX_BFROP_BUFFER_TYPE=PMIX_BFROP_BUFFER_NON_DESC
        PMIX_GDS_MODULE=hash
        PMIX_HOSTNAME=node
        PMIX_NAMESPACE=rally-node-77@1
        PMIX_RANK=1
        PMIX_SECURITY_MODE=native
        PMIX_SERVER_URI3=rally-node-77.0;tcp4://127.0.0.1:1234
        PMIX_SERVER_URI41=rally-node-77.0;tcp4://127.0.0.1:1234
        PMIX_SERVER_URI4=rally-node-77.0;tcp4://127.0.0.1:1234
        PMIX_VERSION=5.0.11
        PMI_FD=3
        PMI_HOSTNAME=node
        PMI_RANK=1
        PMI_SIZE=2
        RALLY_JOB=1
        RALLY_LOCAL_RANK=1
        RALLY_LOCAL_SIZE=2
        RALLY_NODE=0
        RALLY_RANK=1
        RALLY_SIZE=2
        ");
        // Now there are five ranks for four slots, and the last rank is the fifth on the node.
        let crowded = found(&mut daemon, beside(launch(2, 3), 2));
        for line in [
            "OMPI_COMM_WORLD_NODE_RANK=4",
            "OMPI_MCA_mpi_oversubscribe=1",
        ] {
            assert!(
                crowded.lines().any(|found| found == line),
                "{line} in {crowded}"
            );
        }
    }

    #[test]
    fn of_a_rank_on_another_node() {
        // A job with two apps on two of three nodes, beside another job that fills them. The last node is the job's
        // second node.
        let mut launch = launch_of(1, &[6, 2], &["", "n1", "n2"]);
        launch.variables = [Family::OpenMpi, Family::Slurm, Family::Torch].into();
        let found = found(&mut daemon_of(2, "n2"), beside(launch, 4));
        let ours = ["PMIX_", "OMPI_MCA_orte"];
        let told: Vec<&str> = found
            .lines()
            .filter(|line| !ours.iter().any(|ours| line.starts_with(ours)))
            .collect();
        insta::assert_snapshot!(told.join("\n"), @"
        GROUP_RANK=1
        LOCAL_RANK=3
        LOCAL_WORLD_SIZE=4
        MPI_LOCALNRANKS=4
        MPI_LOCALRANKID=3
        NODE_RANK=1
        OMPI_APP_CTX_NUM_PROCS=6 2
        OMPI_COMM_WORLD_LOCAL_RANK=3
        OMPI_COMM_WORLD_LOCAL_SIZE=4
        OMPI_COMM_WORLD_NODE_RANK=7
        OMPI_COMM_WORLD_RANK=7
        OMPI_COMM_WORLD_SIZE=8
        OMPI_FIRST_RANKS=0 6
        OMPI_MCA_mpi_oversubscribe=1
        OMPI_NUM_APP_CTX=2
        OMPI_UNIVERSE_SIZE=4
        PMI_FD=3
        PMI_HOSTNAME=n2
        PMI_RANK=7
        PMI_SIZE=8
        RALLY_JOB=1
        RALLY_LOCAL_RANK=3
        RALLY_LOCAL_SIZE=4
        RALLY_NODE=2
        RALLY_RANK=7
        RALLY_SIZE=8
        RANK=7
        SLURMD_NODENAME=n2
        SLURM_LOCALID=3
        SLURM_NODEID=1
        SLURM_NPROCS=8
        SLURM_NTASKS=8
        SLURM_PROCID=7
        WORLD_SIZE=8
        ");
    }
}
