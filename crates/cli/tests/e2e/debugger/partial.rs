//! Debuggers that trace some ranks while the others are released, and what happens to their ranks when they detach.

use nix::sys::signal::Signal;

use super::{at_the_breakpoint, expect_held, gdb};
use crate::harness::{DEADLINE, Running, Sandbox, Stream, eventually};

/// Each rank prints that it has run, and exits.
const PROGRAM: [&str; 3] = ["sh", "-c", "echo ran $RALLY_RANK"];

/// Attaches a gdb to a process. It executes `then` when a file `on` exists.
fn attach(sandbox: &Sandbox, pid: i32, then: &[&str]) -> Running {
    let mut command = gdb(sandbox);
    command.args(["-p", &pid.to_string()]);
    for step in [
        // The rank is already stopped by a SIGSTOP, which gdb need not report.
        "handle SIGSTOP nostop noprint nopass",
        "echo attached\\n",
        "shell until [ -e on ]; do sleep 0.05; done",
    ] {
        command.args(["-ex", step]);
    }
    for step in then {
        command.args(["-ex", step]);
    }
    let debugger = sandbox.start(&mut command);
    debugger.expect(Stream::Stdout, "attached\n");
    debugger
}

#[track_caller]
fn expect_traced(pid: i32, debugger: &Running) {
    let rank = mischief::Proc::read(pid).expect("it lives");
    let tracer = rank.status("TracerPid");
    assert_eq!(tracer, Some(debugger.pid.to_string()), "{rank:?}");
    assert_eq!(rank.state, 't', "{rank:?}");
}

/// Starts three held ranks without a debugger of the front, under this policy for lost debuggers. Returns their pids by
/// rank.
fn held(sandbox: &Sandbox, policy: &str) -> (Running, Vec<i32>) {
    let mut args = vec!["run", "-n", "3", "--stop-on-exec", "--grace", "1"];
    args.extend(["--on-debugger-loss", policy]);
    args.extend(PROGRAM);
    let run = sandbox.start(&mut sandbox.rally(&args));
    run.expect(Stream::Stderr, "3 ranks held");
    let mut ranks = sandbox.find(PROGRAM[2]);
    ranks.sort_by_key(|rank| rank.variable("RALLY_RANK"));
    let pids: Vec<i32> = ranks.iter().map(|rank| rank.pid).collect();
    assert_eq!(pids.len(), 3);
    (run, pids)
}

/// Releases all ranks, and waits until the untraced ones have run.
fn release(run: &Running) {
    run.signal(Signal::SIGCONT);
    run.expect(Stream::Stdout, "ran 0\n");
    run.expect(Stream::Stdout, "ran 2\n");
}

#[test]
fn the_ranks_of_a_second_debugger_stay_its_own_and_the_others_run() {
    let sandbox = Sandbox::new();
    let mut args = vec!["run", "-n", "3"];
    args.extend(PROGRAM);
    let (run, table) = at_the_breakpoint(&sandbox, &args);
    let second = attach(&sandbox, table[1], &["continue"]);
    expect_traced(table[1], &second);
    expect_held(table[0]);

    // The first debugger continues the front.
    sandbox.file("go", "");
    run.expect(Stream::Stdout, "ran 0\n");
    run.expect(Stream::Stdout, "ran 2\n");
    expect_traced(table[1], &second);
    assert!(!run.so_far(Stream::Stdout).contains("ran 1\n"));

    sandbox.file("on", "");
    let second = second.end().expect_code(0);
    assert!(second.out().contains("exited normally"), "{second:?}");
    let run = run.end().expect_code(0);
    assert!(run.out().contains("ran 1\n"), "{run:?}");
    assert!(run.out().contains("exited normally"), "{run:?}");
}

#[test]
fn a_rank_that_its_debugger_leaves_runs_on() {
    let sandbox = Sandbox::new();
    let (run, ranks) = held(&sandbox, "kill");
    let steps = ["detach", "shell until [ -e end ]; do sleep 0.05; done"];
    let debugger = attach(&sandbox, ranks[1], &steps);
    release(&run);
    expect_traced(ranks[1], &debugger);
    sandbox.file("on", "");
    // The debugger is still alive, so nothing is lost, whatever the policy.
    let run = run.end().expect_code(0);
    assert_eq!(run.sorted(), "ran 0\nran 1\nran 2");
    assert!(!run.err().contains("is gone"), "{run:?}");
    sandbox.file("end", "");
    debugger.end().expect_code(0);
}

#[test]
fn a_rank_whose_debugger_is_killed_runs_on() {
    let sandbox = Sandbox::new();
    let (run, ranks) = held(&sandbox, "release");
    let debugger = attach(&sandbox, ranks[1], &[]);
    release(&run);
    debugger.signal(Signal::SIGKILL);
    let run = run.end().expect_code(0);
    assert_eq!(run.sorted(), "ran 0\nran 1\nran 2");
    assert!(
        run.err().contains("runs on: its debugger is gone"),
        "{run:?}"
    );
    sandbox.file("on", "");
    debugger.end().expect_code(137);
}

#[test]
fn or_the_job_ends_if_that_was_said() {
    let sandbox = Sandbox::new();
    let (run, ranks) = held(&sandbox, "kill");
    let debugger = attach(&sandbox, ranks[1], &[]);
    release(&run);
    debugger.signal(Signal::SIGKILL);
    let run = run.end().expect_code(125);
    assert_eq!(run.sorted(), "ran 0\nran 2");
    let said = "the job was ended because the debugger for which it was held is gone";
    assert!(run.err().contains(said), "{run:?}");
    sandbox.file("on", "");
    debugger.end().expect_code(137);
}

#[test]
fn a_debugger_that_is_killed_before_the_release_changes_nothing() {
    let sandbox = Sandbox::new();
    let (run, ranks) = held(&sandbox, "kill");
    let debugger = attach(&sandbox, ranks[1], &[]);
    debugger.signal(Signal::SIGKILL);
    let held = || (mischief::Proc::read(ranks[1])?.state == 'T').then_some(());
    eventually(DEADLINE, held).expect("the rank is held as before");
    run.signal(Signal::SIGCONT);
    let run = run.end().expect_code(0);
    assert_eq!(run.sorted(), "ran 0\nran 1\nran 2");
    sandbox.file("on", "");
    debugger.end().expect_code(137);
}
