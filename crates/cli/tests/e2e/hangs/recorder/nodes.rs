//! The recorder in jobs over several nodes.

use std::fs;

use mischief::Proc;
use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};

use super::{OPTIONS, built, calls, directories, last_call, settles};
use crate::{
    hangs::{recorded::Library, stop},
    harness::{DEADLINE, Running, Sandbox, Stream, compiled, dbgr, eventually, testdata},
    nodes::{OVER_NODES, processes},
};

/// Three of four ranks are in a collective operation that rank 3 does not begin.
const NAME: &str = "missing_collective";

fn program() -> String {
    let source = testdata(&format!("hangs/{NAME}.c"));
    let path = compiled(&Library::Mpich5.compiler(), &source, &["-g"]);
    path.to_str().unwrap().to_owned()
}

/// A program whose ranks sleep. On a busy computer, ranks that poll and the shared memory of MPI libraries take long to disappear, and
/// the launcher then leaves them to the next start.
fn sleeping() -> String {
    built(Library::Mpich5, "early.c", &[])
}

/// Starts four ranks on three nodes. The job ends if one of these is lost.
fn started(sandbox: &Sandbox, program: &str) -> Running {
    let words = [&["run", "-n", "4"], &OPTIONS[..], &OVER_NODES, &[program]].concat();
    let run = sandbox.start(&mut sandbox.rally(&words));
    run.expect_times(Stream::Stdout, "ready", 4);
    let made = directories(sandbox, program);
    assert_eq!(made.len(), 3);
    // A library for each node, and a region for each rank.
    let files = made.iter().flat_map(|it| fs::read_dir(it).unwrap());
    assert_eq!(files.count(), 3 + 4);
    run
}

#[test]
fn a_deadlock_over_nodes_is_proved() {
    let sandbox = Sandbox::new();
    let program = program();
    let run = started(&sandbox, &program);
    let made = directories(&sandbox, &program);
    let job = run.pid.to_string();
    let proof = fs::read_to_string(testdata(&format!("hangs/{NAME}.proved"))).unwrap();
    settles(|| {
        let mut command = sandbox.command(dbgr());
        command.args(["report", &job, "--samples", "2", "--every", "500ms", "-o"]);
        let out = sandbox
            .run(command.arg(sandbox.path("page.html")))
            .expect_code(0)
            .out();
        let is_proved = out.starts_with(&format!("proved: {}\n", proof.trim_end()));
        is_proved.then_some(()).ok_or(out)
    });
    let mut command = sandbox.command(dbgr());
    let stacks = sandbox.run(command.args(["stacks", &job])).expect_code(0);
    let out = stacks.out();
    for line in [
        "in: 3 [0-2] MPI_Allreduce on WORLD, collective operation 2 (missing_collective.c:8)\n",
        "in: 1 [3] MPI_Recv from rank 0, tag 0, WORLD (missing_collective.c:12)\n",
    ] {
        assert!(out.contains(line), "{out}");
    }
    let shown = calls(&sandbox, &run, &["--ranks", "2-3"]);
    assert!(!shown.contains("rank 0:"), "{shown}");
    assert_eq!(
        last_call(&shown, "rank 2"),
        "MPI_Allreduce on WORLD, collective operation 2 (missing_collective.c:8)"
    );
    assert_eq!(
        last_call(&shown, "rank 3"),
        "MPI_Recv from rank 0, tag 0, WORLD (missing_collective.c:12)"
    );
    stop(run);
    assert!(made.iter().all(|it| !it.exists()), "{made:?}");
    sandbox.expect_clean();
}

fn kill(pid: i32) {
    signal::kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
}

/// Whoever of the launcher is killed, no node keeps a region.
#[test]
fn regions_of_all_nodes_go_when_the_launcher_is_killed() {
    let program = sleeping();
    for victims in ["daemon", "controller", "front", "front and controller"] {
        let sandbox = Sandbox::new();
        let run = started(&sandbox, &program);
        let made = directories(&sandbox, &program);
        let all = processes(&sandbox);
        let has_parent = |process: &Proc| all.iter().any(|other| other.pid == process.ppid);
        if victims.contains("front") {
            run.signal(Signal::SIGKILL);
        }
        for process in &all {
            // Below each guardian is its daemon, and above all guardians the controller.
            if victims == "daemon" && has_parent(process) {
                kill(process.pid);
                break;
            }
            if victims.contains("controller") && !has_parent(process) {
                kill(process.ppid);
                break;
            }
        }
        drop(run.end());
        let gone = eventually(DEADLINE, || {
            (sandbox.alive().is_empty() && made.iter().all(|it| !it.exists())).then_some(())
        });
        assert!(gone.is_some(), "{victims}: {made:?} {:?}", sandbox.alive());
        sandbox.expect_clean();
    }
}

/// If the guardian of a node is killed too, the next start there removes the regions.
#[test]
fn regions_of_a_node_without_its_guardian_go_with_the_next_start() {
    let sandbox = Sandbox::new();
    let program = sleeping();
    let run = started(&sandbox, &program);
    let made = directories(&sandbox, &program);
    let all = processes(&sandbox);
    let is_below = |process: &&Proc| all.iter().any(|other| other.pid == process.ppid);
    let daemon = all.iter().find(is_below).unwrap();
    kill(daemon.ppid);
    kill(daemon.pid);
    drop(run.end());
    let gone = || made.iter().filter(|it| !it.exists()).count();
    let others = eventually(DEADLINE, || {
        (gone() == 2 && sandbox.alive().is_empty()).then_some(())
    });
    assert!(others.is_some(), "{made:?}");
    let next = sandbox.run_rally(&["run", "-n", "1", "true"]);
    next.expect_code(0);
    assert_eq!(gone(), 3, "{made:?}");
    sandbox.expect_clean();
}
