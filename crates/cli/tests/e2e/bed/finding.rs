//! Jobs over real hosts that `dbgr` finds: without a launcher, and of launchers other than `rally`.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, process::Stdio};

use nix::{
    errno::Errno,
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::{
    debugging::{Trial, expect_nothing},
    host::is_on,
    set_link,
};
use crate::{
    harness::{
        DEADLINE, Finished, Running, Sandbox, Stream, compiled, dbgr, eventually, testdata, venv,
    },
    over_nodes::has_sampled,
};

/// Reaches every host for which there is no file `without-HOST` beside it.
const SSH: &str = r#"#!/bin/sh
[ ! -e "$(dirname "$0")/without-$1" ] || { echo "no route to $1" >&2; exit 255; }
exec ssh -o BatchMode=yes "$@"
"#;

/// Each host is a container, which has a name but shares the processes of this one.
const SHARED: &str = r#"#!/bin/sh
exec unshare --uts sh -c 'hostname "$0" && exec sh -c "$*"' "$@"
"#;

/// All ranks but 2 enter a collective. Rank 2 waits for a message of rank 3.
const HANGS: &str = r#"
#include <mpi.h>
#include <stdio.h>

int main(void) {
    int rank, word = 0, sum = 0;
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Barrier(MPI_COMM_WORLD);
    printf("ready\n");
    fflush(stdout);
    if (rank == 2)
        MPI_Recv(&word, 1, MPI_INT, 3, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else
        MPI_Allreduce(&word, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
"#;

/// The host of each rank, in an order in which `dbgr` would not number processes by itself.
const HOSTS: [u32; 3] = [2, 3, 1];

/// Three processes on three hosts, and whatever has started them.
struct Job {
    sandbox: Sandbox,
    ssh: String,
    started: Vec<Running>,
}

/// Makes a script that stands between `dbgr` and the hosts.
fn to_host(sandbox: &Sandbox, script: &str) -> String {
    let path = sandbox.file("to-host", script);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

impl Job {
    fn new() -> Self {
        let sandbox = Sandbox::new();
        Self {
            ssh: to_host(&sandbox, SSH),
            sandbox,
            started: Vec::new(),
        }
    }

    /// A training whose processes are started one by one, as scripts do where there is no launcher.
    fn training() -> Self {
        let mut job = Self::new();
        let script = testdata("stacks/train.py");
        for (rank, node) in HOSTS.into_iter().enumerate() {
            let line = format!(
                "{} RANK={rank} WORLD_SIZE=3 MASTER_ADDR=n2 MASTER_PORT=29500 python3 {}",
                job.sandbox.marker(),
                script.display()
            );
            let mut command = job.sandbox.command("ssh");
            command.args(["-o", "BatchMode=yes", &format!("n{node}"), &line]);
            let started = job.sandbox.start(command.stdin(Stdio::piped()));
            started.expect(Stream::Stdout, &format!("ready {rank} 3 n2"));
            job.started.push(started);
        }
        job
    }

    /// Ranks of MPICH's own launcher, which has no table, and their pids.
    fn of_hydra() -> (Self, [i32; 3]) {
        let mut job = Self::new();
        let program = compiled("cc".as_ref(), &testdata("stacks/wait.c"), &["-DPLAIN"]);
        let pids = job.start_hydra("n2,n3,n1", &program);
        (job, pids)
    }

    /// Ranks of an MPI program that hangs, on four hosts.
    fn that_hangs() -> (Self, [i32; 4]) {
        let mut job = Self::new();
        let source = job.sandbox.file("skips.c", HANGS);
        let program = compiled(
            &venv("mpich").join("bin/mpicc"),
            Path::new(&source),
            &["-g", "-O0"],
        );
        let pids = job.start_hydra("n2,n3,n1,n4", &program);
        (job, pids)
    }

    /// Starts a rank on each of these hosts.
    fn start_hydra<const HOSTS: usize>(&mut self, hosts: &str, program: &Path) -> [i32; HOSTS] {
        let mut command = self.sandbox.command(venv("mpich").join("bin/mpiexec"));
        let ranks = HOSTS.to_string();
        command.args(["-wdir", "/", "-hosts", hosts, "-ppn", "1", "-n", &ranks]);
        command.arg(program).arg(self.sandbox.path("go"));
        let started = self.sandbox.start(&mut command);
        started.expect_times(Stream::Stdout, "ready", HOSTS);
        self.started.push(started);
        let program = program.to_str().unwrap();
        let mut found = self.sandbox.find(program);
        found.retain(|process| process.args.starts_with(program));
        std::array::from_fn(|host| {
            let node = u32::try_from(host).unwrap() + 1;
            let process = found.iter().find(|process| is_on(process.pid, node));
            process.expect("it runs").pid
        })
    }

    fn start(&self, name: &str, options: &[&str]) -> Running {
        self.start_on("n[1-3]", name, options)
    }

    fn start_on(&self, hosts: &str, name: &str, options: &[&str]) -> Running {
        let mut command = self.sandbox.command(dbgr());
        command.args(["stacks", "--ssh", &self.ssh, "--hosts", hosts]);
        command.args(["--name", name, "--every", "2s"]);
        self.sandbox.start(command.args(options))
    }

    /// Waits for the end of the processes. Those of the training end with their input.
    fn end(self) -> Vec<Finished> {
        let ended = self.started.into_iter().map(Running::end).collect();
        self.sandbox.expect_clean();
        expect_nothing();
        ended
    }
}

/// Checks that each rank is found on its host, in a function.
fn expect_ranks(stacks: &Finished, function: &str) {
    let out = stacks.out();
    for (rank, node) in HOSTS.into_iter().enumerate() {
        let row = format!("{{\"rank\":{rank},\"host\":\"n{node}\",");
        assert!(out.contains(&row), "{row}: {stacks:?}");
    }
    for part in [
        function,
        "\"missing\":[]",
        "3 ranks of `",
        "\"ranks\":\"0-2\"",
    ] {
        assert!(out.contains(part), "{part}: {stacks:?}");
    }
}

#[test]
fn processes_that_nobody_has_launched_have_their_ranks() {
    let training = Job::training();
    let stacks = training.start("train.py", &["--samples", "1", "--json"]);
    expect_ranks(&stacks.end().expect_code(0), "all_reduce");
    for ended in training.end() {
        ended.expect_code(0);
    }
}

/// No process is sampled twice, as if it were two.
#[test]
fn hosts_that_share_their_processes_are_searched_once() {
    let sandbox = Sandbox::new();
    let ssh = to_host(&sandbox, SHARED);
    let program = sandbox.path("sleeps-once");
    fs::copy("/bin/sleep", &program).unwrap();
    let program = program.to_str().unwrap();
    let job = sandbox.start(&mut sandbox.rally(&["run", "-n", "2", program, "1000"]));
    let found = eventually(DEADLINE, || {
        let mut command = sandbox.command(dbgr());
        command.args(["stacks", "--ssh", &ssh, "--hosts", "n[1-4]"]);
        command.args(["--name", "sleeps-once"]);
        let stacks = sandbox.run(command.args(["--samples", "1"]));
        stacks
            .out()
            .contains(" ranks of `sleeps-once`")
            .then_some(stacks)
    });
    let found = found.expect("the ranks run");
    assert!(found.out().contains(": 2 ranks of"), "{found:?}");
    job.signal(Signal::SIGTERM);
    job.end().expect_code(143);
}

/// They have the ranks of their environment.
#[test]
fn ranks_of_hydra_are_found_on_their_hosts() {
    let (job, pids) = Job::of_hydra();
    let stacks = job.start("wait*", &["--samples", "1", "--json"]);
    expect_ranks(&stacks.end().expect_code(0), "wait_here");
    kill_all(&pids);
    drop(job.end());
}

/// Kills ranks. Their launcher may end the others when the first of them is dead.
fn kill_all(pids: &[i32]) {
    for pid in pids {
        let killed = kill(Pid::from_raw(*pid), Signal::SIGKILL);
        assert!([Ok(()), Err(Errno::ESRCH)].contains(&killed), "{killed:?}");
    }
}

/// Returns the output without the line breaks of long sentences.
fn in_one_line(ended: &Finished) -> String {
    let out = ended.out();
    out.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Rank 2 is on n1. Without the answer of a host, its rank may do anything, such as send the message.
#[test]
fn a_verdict_over_hosts_names_the_rank_and_not_a_part_of_the_job() {
    let (job, pids) = Job::that_hangs();
    let samples = ["--samples", "5"];
    let all = job.start_on("n[1-4]", "skips*", &samples).end();
    let all = all.expect_code(0);
    let verdict = "possible: ranks 0-1,3 wait in MPI_Allreduce";
    let (out, blamed) = (in_one_line(&all), "rank 2 waits in MPI_Recv (skips.c:");
    assert!(out.contains(verdict) && out.contains(blamed), "{all:?}");
    assert!(!out.contains("missing"), "{all:?}");
    let json = job.start_on("n[1-4]", "skips*", &["--samples", "1", "--json"]);
    let json = json.end().expect_code(0);
    let row = "{\"rank\":2,\"host\":\"n1\",";
    assert!(json.out().contains(row), "{json:?}");
    // Nobody gets onto n4, where rank 3 is.
    job.sandbox.file("without-n4", "");
    let part = job.start_on("n[1-4]", "skips*", &samples).end();
    let part = part.expect_code(0);
    let out = in_one_line(&part);
    let missing = "missing: 1 [3] not found, but n4 did not answer";
    for said in ["no verdict: ", missing, "n4 could not be searched: "] {
        assert!(out.contains(said), "{said}: {part:?}");
    }
    kill_all(&pids);
    drop(job.end());
}

/// The cable of one host is pulled between two samples.
#[test]
fn a_host_that_becomes_silent_is_missing_and_the_others_answer() {
    let training = Job::training();
    let stacks = training.start("train.py", &["--samples", "3"]);
    let sampled = || has_sampled(stacks.pid).then_some(());
    eventually(DEADLINE, sampled).expect("the first sample is taken");
    set_link(2, "down");
    let stacks = stacks.end();
    set_link(2, "up");
    let stacks = stacks.expect_code(0);
    let out = stacks.out();
    // Given up after ten seconds, and lost after lease and window.
    let missing = "missing: 1 [0] the agent on host n2 ";
    assert!(out.contains(missing), "{stacks:?}");
    assert!(out.contains("2 [1-2] reading"), "{stacks:?}");
    for ended in training.end() {
        ended.expect_code(0);
    }
}

fn expect_all(stacks: &Finished) {
    let out = stacks.out();
    assert!(out.contains("6 ranks of"), "{stacks:?}");
    assert!(out.contains("on 3 hosts"), "{stacks:?}");
    assert!(out.contains("6 [0-5] main > wait_here"), "{stacks:?}");
    assert!(!out.contains("missing"), "{stacks:?}");
}

/// The MPIR table of its launcher has the hosts and the pids there, once all ranks have called `MPI_Init`.
#[test]
fn ranks_of_open_mpi_4_are_found_by_its_table() {
    let trial = Trial::compiled_by("mpicc.openmpi", &[]);
    let mut launcher = vec!["mpirun.openmpi", "--allow-run-as-root", "--wdir", "/"];
    launcher.extend(["--host", "n1:2,n2:2,n3:2", "-n", "6"]);
    let then = "$dbgr stacks --explain $job; $dbgr stacks --samples 3 --every 100ms $job";
    let stacks = trial.run(&launcher, then).expect_code(0);
    expect_all(&stacks);
    let table = "the table for debuggers (`MPIR_proctable`) of `orterun`";
    assert!(stacks.out().contains(table), "{stacks:?}");
}

#[test]
fn a_page_has_all_hosts_and_stacks() {
    let trial = Trial::new();
    let then = "$dbgr report --samples 2 --every 100ms -o hang.html $job";
    trial.run_rally(&[], then).expect_code(0);
    let page = trial.sandbox.read("hang.html");
    let rows = ["n1", "n2", "n3"].map(|host| format!("<tr><td>{host}<td"));
    let others = ["6 ranks on 3 hosts", "seen from head", "<b>wait_here</b>"].map(str::to_owned);
    for part in rows.iter().chain(&others) {
        assert!(page.contains(part), "{part}");
    }
}
