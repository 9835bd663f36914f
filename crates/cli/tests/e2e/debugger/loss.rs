//! The debugger of the front is killed while ranks are held: no rank stays held without a message.

use nix::sys::signal::Signal;

use super::{at_the_breakpoint, gdb};
use crate::harness::{Running, Sandbox, Stream};

const PROGRAM: [&str; 3] = ["sh", "-c", "echo ran"];

/// Whatever the policy: gdb tells the kernel to kill the programs it has started when it dies. The front dies, and with it
/// the job.
#[test]
fn gdb_takes_the_front_that_it_has_started_with_it() {
    for policy in ["kill", "release"] {
        let sandbox = Sandbox::new();
        let mut args = vec!["run", "-n", "3", "--on-debugger-loss", policy];
        args.extend(PROGRAM);
        let (run, table) = at_the_breakpoint(&sandbox, &args);
        assert_eq!(table.len(), 3);
        run.signal(Signal::SIGKILL);
        // The helper that gdb has started for this test exits when the file exists.
        sandbox.file("go", "");
        sandbox.expect_clean();
        let run = run.end().expect_code(137);
        assert!(!run.out().contains("ran\n"), "{run:?}");
    }
}

/// Starts a front, and a debugger that attaches before `rally` is executed, so that its death does not kill the front. The
/// debugger brings the front to the breakpoint.
fn attached(sandbox: &Sandbox, policy: &str) -> (Running, Running) {
    attached_over(sandbox, &[], policy)
}

/// Like [`attached`], for a job with these options.
pub(crate) fn attached_over(
    sandbox: &Sandbox,
    options: &[&str],
    policy: &str,
) -> (Running, Running) {
    let script = r#"echo $$; until [ -e attached ]; do sleep 0.05; done; exec "$RALLY" "$@""#;
    let mut command = sandbox.command("sh");
    command.args(["-c", script, "sh", "run", "-n", "3"]);
    command
        .args(options)
        .args(["--on-debugger-loss", policy, "--grace", "1"])
        .args(PROGRAM);
    let front = sandbox.start(&mut command);
    front.expect(Stream::Stdout, "\n");
    let mut command = gdb(sandbox);
    command.args(["-p", &front.pid.to_string()]);
    for step in [
        "set language c",
        "catch exec",
        "shell touch attached",
        "continue",
        "set var MPIR_being_debugged = 1",
        "break MPIR_Breakpoint",
        "continue",
        "print MPIR_debug_state",
        "echo arrived\\n",
        "shell until [ -e on ]; do sleep 0.05; done",
        "set var MPIR_being_debugged = 0",
    ] {
        command.args(["-ex", step]);
    }
    let debugger = sandbox.start(&mut command);
    debugger.expect(Stream::Stdout, "$1 = 1\narrived\n");
    assert!(!front.so_far(Stream::Stdout).contains("ran"));
    (front, debugger)
}

#[test]
fn ranks_run_on_when_the_debugger_is_killed() {
    let sandbox = Sandbox::new();
    let (front, debugger) = attached(&sandbox, "release");
    debugger.signal(Signal::SIGKILL);
    let run = front.end().expect_code(0);
    assert_eq!(run.out().matches("ran\n").count(), 3, "{run:?}");
    assert!(
        run.err().contains("run on: their debugger is gone"),
        "{run:?}"
    );
    sandbox.file("on", "");
    debugger.end().expect_code(137);
}

#[test]
fn or_the_job_ends_if_that_was_said() {
    let sandbox = Sandbox::new();
    let (front, debugger) = attached(&sandbox, "kill");
    debugger.signal(Signal::SIGKILL);
    let run = front.end().expect_code(125);
    assert!(!run.out().contains("ran"), "{run:?}");
    let said = "the job was ended because the debugger for which it was held is gone";
    assert!(run.err().contains(said), "{run:?}");
    sandbox.file("on", "");
    debugger.end().expect_code(137);
}

/// The debugger clears `MPIR_being_debugged` and detaches, which is not a loss.
#[test]
fn a_debugger_that_takes_its_leave_is_not_lost() {
    let sandbox = Sandbox::new();
    let (front, debugger) = attached(&sandbox, "kill");
    sandbox.file("on", "");
    debugger.end().expect_code(0);
    let run = front.end().expect_code(0);
    assert_eq!(run.out().matches("ran\n").count(), 3, "{run:?}");
    assert!(!run.err().contains("debugger"), "{run:?}");
}
