//! Whoever is killed, nothing is left.

use std::time::Duration;

use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};

use mischief::Proc;

use crate::harness::{DEADLINE, Running, Sandbox, Stream, eventually};

/// Ranks that have left descendants behind and wait.
const JOB: &str = r#""$MISCHIEF" double-fork; echo ready; exec sleep 1000"#;

fn start(sandbox: &Sandbox) -> (Running, Proc) {
    let run = sandbox.start(&mut sandbox.rally(&["run", "-n", "4", "sh", "-c", JOB]));
    run.expect_times(Stream::Stdout, "ready\n", 4);
    // The front is what we started; the controller is the child that it forked first.
    let front = run.pid;
    let controller = sandbox
        .alive()
        .into_iter()
        .filter(|process| process.ppid == front)
        .min_by_key(|process| process.pid);
    (run, controller.expect("the front has a child"))
}

fn kill(pid: i32) {
    signal::kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
}

#[test]
fn the_front() {
    let sandbox = Sandbox::new();
    let (run, _) = start(&sandbox);
    kill(run.pid);
    sandbox.expect_clean();
    run.end().expect_code(137);
}

#[test]
fn the_controller() {
    let sandbox = Sandbox::new();
    let (run, controller) = start(&sandbox);
    kill(controller.pid);
    let run = run.end().expect_err(&["error:"]);
    assert_ne!(run.code(), 0);
    sandbox.expect_clean();
}

#[test]
fn both_at_once() {
    let sandbox = Sandbox::new();
    let (run, controller) = start(&sandbox);
    // Stopped first, so that neither sees the other go.
    for pid in [run.pid, controller.pid] {
        signal::kill(Pid::from_raw(pid), Signal::SIGSTOP).unwrap();
    }
    for pid in [run.pid, controller.pid] {
        kill(pid);
    }
    sandbox.expect_no_process();
    run.end().expect_code(137);
    // Files may stay; the next start sweeps them.
    sandbox
        .run_rally(&["run", "-n", "1", "/bin/true"])
        .expect_code(0);
    sandbox.expect_clean();
}

#[test]
fn a_rank() {
    let sandbox = Sandbox::new();
    let (run, _) = start(&sandbox);
    let rank = sandbox
        .find("sleep 1000")
        .first()
        .cloned()
        .expect("ranks sleep");
    kill(rank.pid);
    run.end().expect_code(137).expect_err(&["SIGKILL"]);
    sandbox.expect_clean();
}

#[test]
fn the_controller_of_a_stopped_front() {
    let sandbox = Sandbox::new();
    let (run, controller) = start(&sandbox);
    run.signal(Signal::SIGSTOP);
    kill(controller.pid);
    // The parent-death signal ends the ranks although the front sees nothing.
    let gone = || (sandbox.find("sleep 1000").is_empty()).then_some(());
    eventually(Duration::from_secs(2), gone).expect("ranks die with their controller");
    run.signal(Signal::SIGCONT);
    let run = run.end();
    assert_ne!(run.code(), 0);
    assert!(run.elapsed < DEADLINE);
}
