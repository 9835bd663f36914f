//! The deaths of `docs/failures.md` over real hosts, one after another. `cargo xtask cluster faults` draws them at random.

use nix::{
    errno::Errno,
    sys::signal::{self, Signal},
    unistd::Pid,
};

use super::{
    debugging::{Trial, expect_nothing},
    expect_no_daemon,
    host::{daemon_on, is_on, over},
};
use crate::{
    debugger::loss::attached_over,
    harness::{DEADLINE, Running, Sandbox, Stream, dbgr, eventually},
    nodes::SPAWN_ON,
    over_nodes::has_sampled,
};

/// Each rank also leaves a process in a session of its own behind.
const SCRIPT: &str = "setsid sleep 77 & echo up; exec sleep 77";

fn kill(pid: i32) {
    signal::kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
}

/// Starts a rank on each of three hosts.
fn start(sandbox: &Sandbox) -> Running {
    let args = ["-n", "3", "--", "sh", "-c", SCRIPT];
    let job = sandbox.start(&mut over(sandbox, "n1,n2,n3", &args));
    job.expect_times(Stream::Stdout, "up", 3);
    // Each rank and what it has started.
    let all = || (sandbox.find("sleep 77").len() == 6).then_some(());
    eventually(DEADLINE, all).expect("six processes run");
    job
}

/// Returns the only child of a process.
pub(super) fn child_of(pid: i32) -> i32 {
    let all = mischief::all_procs();
    let mut children = all.iter().filter(|process| process.ppid == pid);
    let child = children.next().expect("it has a child").pid;
    assert!(children.next().is_none(), "{pid} has one child");
    child
}

fn expect_nothing_left(sandbox: &Sandbox) {
    sandbox.expect_clean();
    expect_no_daemon();
}

#[test]
fn a_killed_front_leaves_nothing_on_any_host() {
    let sandbox = Sandbox::new();
    let job = start(&sandbox);
    kill(job.pid);
    expect_nothing_left(&sandbox);
    job.end().expect_code(137);
}

#[test]
fn a_killed_controller_leaves_nothing_on_any_host() {
    let sandbox = Sandbox::new();
    let job = start(&sandbox);
    let guardian = child_of(job.pid);
    kill(child_of(guardian));
    job.end()
        .expect_code(125)
        .expect_err(&["the controller was killed"]);
    expect_nothing_left(&sandbox);
}

#[test]
fn a_rank_that_dies_elsewhere_is_named_once_with_its_host() {
    let sandbox = Sandbox::new();
    let args = ["-n", "3", "--", "sh", "-c", "echo up; exec sleep 77"];
    let job = sandbox.start(&mut over(&sandbox, "n1,n2,n3", &args));
    job.expect_times(Stream::Stdout, "up", 3);
    let second = sandbox.find("sleep 77");
    let second = second.iter().find(|rank| is_on(rank.pid, 2));
    kill(second.expect("it runs on n2").pid);
    let ended = job.end().expect_code(137).expect_err(&[
        "error: rank 1 on `n2` was killed by SIGKILL",
        "effect: the other 2 ranks were ended",
    ]);
    assert_eq!(ended.err().matches("n2").count(), 1, "{ended:?}");
    expect_nothing_left(&sandbox);
}

#[test]
fn what_ranks_of_all_hosts_leave_behind_is_ended() {
    let sandbox = Sandbox::new();
    let script = "setsid sleep 78 & echo done";
    let args = ["-n", "6", "--", "sh", "-c", script];
    let job = sandbox.run(&mut over(&sandbox, "n1,n2,n3", &args));
    job.expect_code(0).expect_out(&"done\n".repeat(6));
    expect_nothing_left(&sandbox);
}

#[test]
fn a_killed_agent_of_dbgr_is_missing_with_its_host() {
    let trial = Trial::new();
    let then = "RALLY_SSH=/bin/false $dbgr stacks --samples 3 --every 2s $job";
    let stacks = trial.start_rally(&[], then);
    let program = format!("{} stacks", dbgr().display());
    let has_begun = || {
        let mut found = trial.sandbox.alive();
        found.retain(|process| process.args.starts_with(&program));
        // The others are its children.
        let first = found.iter().map(|process| process.pid).min()?;
        has_sampled(first).then_some(())
    };
    eventually(DEADLINE, has_begun).expect("the first sample is taken");
    let mut agents = mischief::all_procs();
    agents.retain(|process| process.args.contains("dbgr __agent") && is_on(process.pid, 2));
    assert!(!agents.is_empty());
    for agent in agents {
        // The shell that has started the agent ends with it.
        let killed = signal::kill(Pid::from_raw(agent.pid), Signal::SIGKILL);
        assert!(matches!(killed, Ok(()) | Err(Errno::ESRCH)), "{killed:?}");
    }
    let stacks = stacks.end().expect_code(0);
    expect_nothing();
    let out = stacks.out();
    let missing = "missing: 2 [1,4] the agent on host n2 was lost";
    assert!(out.contains(missing), "{stacks:?}");
    assert!(out.contains("4 [0,2-3,5] main > wait_here"), "{stacks:?}");
}

const HELD: [&str; 6] = ["--host", "n1,n2,n3", "--wdir", "/", "--map-by", "node"];

#[test]
fn ranks_of_all_hosts_run_on_when_the_debugger_is_killed() {
    let sandbox = Sandbox::new();
    let (front, debugger) = attached_over(&sandbox, &HELD, "release");
    debugger.signal(Signal::SIGKILL);
    let run = front.end().expect_code(0);
    assert_eq!(run.out().matches("ran\n").count(), 3, "{run:?}");
    let run = run.expect_err(&["run on: their debugger is gone"]);
    drop(run);
    sandbox.file("on", "");
    debugger.end().expect_code(137);
    expect_no_daemon();
}

#[test]
fn or_the_job_on_all_hosts_ends_if_that_was_said() {
    let sandbox = Sandbox::new();
    let (front, debugger) = attached_over(&sandbox, &HELD, "kill");
    debugger.signal(Signal::SIGKILL);
    let run = front.end().expect_code(125);
    assert!(!run.out().contains("ran"), "{run:?}");
    run.expect_err(&["the job was ended because the debugger for which it was held is gone"]);
    sandbox.file("on", "");
    debugger.end().expect_code(137);
    expect_no_daemon();
}

#[test]
fn a_job_spawns_without_a_lost_host() {
    let sandbox = Sandbox::new();
    let script = format!(
        "echo up; [ $RALLY_RANK = 0 ] || exec sleep 77; while [ ! -e {} ]; do sleep 0.05; done
        {SPAWN_ON}
        spawn_on n2; spawn_on n1; ask cmd=finalize",
        sandbox.path("go").display()
    );
    let args = ["--on-node-loss=continue", "-n", "2", "--", "bash", "-c"];
    let mut command = over(&sandbox, "localhost,n1,n2", &args);
    let job = sandbox.start(command.arg(script));
    job.expect_times(Stream::Stdout, "up", 2);
    kill(daemon_on(1));
    job.expect(Stream::Stderr, "lost the node `n1`");
    sandbox.file("go", "");
    let run = job
        .end()
        .expect_code(125)
        .expect_err(&["rank 0 of job 1 cannot spawn a job: the daemon on `n1` is gone"]);
    let out = run.out();
    assert_eq!(out.matches("spawned\n").count(), 1, "{run:?}");
    assert_eq!(out.matches("rc=0").count(), 1, "{run:?}");
    expect_nothing_left(&sandbox);
}
