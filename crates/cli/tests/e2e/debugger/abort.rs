//! A job that is aborted: what a debugger is told.

use super::gdb;
use crate::harness::{DEADLINE, Finished, Sandbox, Starter, Stream, eventually, rally, testdata};

/// Runs a job under gdb. The output of gdb contains its lines at the breakpoint, the number of stops there, and the front's
/// exit code.
fn told(sandbox: &Sandbox, args: &[&str]) -> Finished {
    let mut command = gdb(sandbox);
    command
        .arg("-x")
        .arg(testdata("mpir/abort.gdb"))
        .arg("--args")
        .arg(rally())
        .args(args);
    sandbox.run(&mut command).expect_code(0)
}

fn host(sandbox: &Sandbox) -> String {
    let name = sandbox.run(sandbox.command("uname").arg("-n")).out();
    name.trim().to_owned()
}

#[track_caller]
fn expect(run: &Finished, states: &[&str], code: &str) {
    let out = run.out();
    let said: Vec<&str> = out
        .lines()
        .filter(|line| line.starts_with("state "))
        .collect();
    assert_eq!(said, states, "{run:?}");
    assert!(out.contains(code), "{run:?}");
    let hits = format!("breakpoint already hit {} time", states.len());
    assert!(out.contains(&hits), "{run:?}");
}

#[test]
fn a_rank_that_fails_is_told_once_with_the_reason() {
    let sandbox = Sandbox::new();
    let args = [
        "run",
        "-n",
        "2",
        "sh",
        "-c",
        "[ $RALLY_RANK = 0 ] && exec sleep 1000; exit 7",
    ];
    let run = told(&sandbox, &args);
    let reason = format!("state 2: rank 1 on `{}` exited with code 7", host(&sandbox));
    expect(&run, &["state 1", &reason], "exited with code 07");
}

#[test]
fn a_job_that_cannot_start_is_told_and_nothing_is_held() {
    let sandbox = Sandbox::new();
    let run = told(&sandbox, &["run", "-n", "2", "./nothing"]);
    let reason = format!(
        "state 2: cannot start `./nothing` on `{}`: there is no such file",
        host(&sandbox)
    );
    expect(&run, &[&reason], "exited with code 0177");
}

#[test]
fn a_job_that_ends_by_itself_is_no_abort() {
    let sandbox = Sandbox::new();
    let run = told(&sandbox, &["run", "-n", "2", "true"]);
    expect(&run, &["state 1"], "exited normally");
    let args = ["run", "-n", "2", "--kill-on-bad-exit=no", "false"];
    let run = told(&sandbox, &args);
    expect(&run, &["state 1"], "exited with code 01");
}

#[test]
fn the_reason_is_in_memory_while_ranks_are_being_ended() {
    let sandbox = Sandbox::new();
    let script = "trap '' TERM; echo ready; until [ -e go ]; do sleep 0.05; done; exit 0";
    let args = ["run", "-n", "2", "--grace", "50", "sh", "-c", script];
    let run = sandbox.start(&mut sandbox.rally(&args));
    run.expect_times(Stream::Stdout, "ready\n", 2);
    let starter = Starter::of(run.pid).expect("the front runs");
    assert_eq!(starter.int("MPIR_debug_state"), 1);
    run.signal(nix::sys::signal::Signal::SIGTERM);
    let aborting = || (starter.int("MPIR_debug_state") == 2).then_some(());
    eventually(DEADLINE, aborting).expect("the job is being ended");
    assert_eq!(
        starter.text("MPIR_debug_abort_string").as_deref(),
        Some("the job was ended because the launcher got SIGTERM")
    );
    assert_eq!(starter.table().len(), 2, "the table stays");
    sandbox.file("go", "");
    run.end().expect_code(143);
}
