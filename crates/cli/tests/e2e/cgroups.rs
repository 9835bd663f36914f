//! Limits of memory and CPU time. They are enforced where systemd gives us a cgroup with the controllers. Elsewhere a warning says that
//! they are not, and the tests check that instead.

use std::process::Command;

use nix::sys::signal::Signal;

use crate::{
    harness::{DEADLINE, Finished, Sandbox, Stream, eventually, rally},
    machine::Machine,
};

/// Returns a command in a cgroup of its own that is delegated to us; `None` if systemd makes none.
fn delegated(sandbox: &Sandbox, words: &[&str]) -> Option<Command> {
    let of_user = (!nix::unistd::geteuid().is_root()).then_some("--user");
    let bus = std::env::var("XDG_RUNTIME_DIR").unwrap_or_default();
    let scope = |words: &[&str]| {
        let mut command = sandbox.command("systemd-run");
        command
            .env("DBUS_SESSION_BUS_ADDRESS", format!("unix:path={bus}/bus"))
            .args(of_user)
            .args(["--scope", "--quiet", "-p", "Delegate=yes"])
            .args(words);
        command
    };
    let status = scope(&["true"]).output().ok()?.status;
    status.success().then(|| scope(words))
}

/// Returns true if a delegated cgroup has this controller: then a limit has to be enforced.
fn is_enforceable(sandbox: &Sandbox, controller: &str) -> bool {
    let script = "cat /sys/fs/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup)/cgroup.controllers";
    let shown = delegated(sandbox, &["sh", "-c", script]).map(|mut shell| shell.output());
    let shown = shown.and_then(Result::ok).map(|output| output.stdout);
    let shown = String::from_utf8(shown.unwrap_or_default()).unwrap();
    shown.split_whitespace().any(|word| word == controller)
}

/// Runs a job in a delegated cgroup, if there can be one.
fn run(sandbox: &Sandbox, args: &[&str]) -> Finished {
    let rally = rally();
    let words = [&[rally.to_str().unwrap()], args].concat();
    match delegated(sandbox, &words) {
        Some(mut command) => sandbox.run(&mut command),
        None => sandbox.run_rally(args),
    }
}

#[test]
fn a_limit_is_enforced_or_a_warning_says_why_not() {
    let sandbox = Sandbox::new();
    let needs_much = "head -c 200M /dev/zero | tail -c 200M | wc -c";
    let limit = "--memory-limit=64M";
    let ran = run(
        &sandbox,
        &["run", limit, "-n", "1", "--", "sh", "-c", needs_much],
    );
    if !is_enforceable(&sandbox, "memory") {
        let err = ran.err();
        assert!(err.starts_with("warning: `--memory-limit` is not enforced on `"));
        for part in ["\n  reason: ", "\n  effect: the job runs", "\n  help: "] {
            assert!(err.contains(part), "{err}");
        }
        ran.expect_code(0).expect_out("209715200\n");
    } else {
        ran.expect_code(137)
            .expect_err(&["out of memory", "`--memory-limit`: 64 MiB"]);
    }
    sandbox.expect_clean();
}

/// H-73: a tool is in the cgroup of the job, but not held to the limits of its ranks. Without cgroups it is where they are.
#[test]
fn a_tool_is_in_the_cgroup_of_its_job_and_not_limited() {
    let sandbox = Sandbox::new();
    let rally = rally();
    let words = [
        rally.to_str().unwrap(),
        "run",
        "--memory-limit=64M",
        "-n1",
        "--",
        "sh",
        "-c",
        "grep ^0: /proc/self/cgroup; echo up; exec sleep 1000",
    ];
    let mut command = match delegated(&sandbox, &words) {
        Some(command) => command,
        None => sandbox.rally(&words[1..]),
    };
    let run = sandbox.start(command.env("XDG_RUNTIME_DIR", sandbox.work()));
    run.expect_times(Stream::Stdout, "up\n", 1);
    let needs_much = "grep ^0: /proc/self/cgroup; head -c 200M /dev/zero | tail -c 200M | wc -c";
    let pid = run.pid.to_string();
    let mut tool = sandbox.rally(&["start-tool", &pid, "--", "sh", "-c", needs_much]);
    let tool = sandbox.run(tool.env("XDG_RUNTIME_DIR", sandbox.work()));
    run.signal(Signal::SIGTERM);
    let of_rank = run.end().out();
    let of_rank = of_rank.lines().next().unwrap().to_owned();
    let expected = match is_enforceable(&sandbox, "memory") {
        true => {
            let whole = of_rank.strip_suffix("/ranks").unwrap();
            assert!(whole.rsplit('/').next().unwrap().starts_with("rally-"));
            format!("{whole}/tool-2")
        }
        false => of_rank,
    };
    tool.expect_code(0)
        .expect_out(&format!("{expected}\n209715200\n"));
    sandbox.expect_clean();
}

#[test]
fn a_job_with_a_limit_of_cpu_time_runs() {
    let sandbox = Sandbox::new();
    // Both warnings are one message.
    let both = ["run", "--cpu-limit=0.5", "--memory-limit=1G", "-n", "2"];
    let ran = run(&sandbox, &[&both[..], &["--", "echo", "hello"]].concat());
    let warnings = ran.err().matches("warning:").count();
    let is_enforceable = ["memory", "cpu"].map(|one| is_enforceable(&sandbox, one));
    let expected = usize::from(is_enforceable != [true, true]);
    assert_eq!(warnings, expected, "{}", ran.err());
    ran.expect_code(0).expect_out("hello\nhello\n");
    sandbox
        .run_rally(&["run", "-n", "1", "true"])
        .expect_quiet();
}

#[test]
fn the_output_of_a_submitted_job_begins_with_what_is_not_enforced() {
    let sandbox = Sandbox::new();
    let machine = Machine::up(&sandbox, &["--host", "localhost:2"]);
    let job = machine.submit(&[
        "--cpu-limit=1",
        "-n",
        "1",
        "--",
        "sh",
        "-c",
        "echo $RALLY_RANK",
    ]);
    machine.run(&["wait", &job]).expect_code(0);
    let shown = eventually(DEADLINE, || {
        let shown = machine.out(&["output", &job]);
        shown.contains('0').then_some(shown)
    });
    let shown = shown.expect("there is no output");
    let warning = "warning: `--cpu-limit` is not enforced on `";
    // It is enforced if the test itself has a cgroup of its own, without other processes.
    assert!(shown == "0" || shown.contains(warning), "{shown}");
    machine.down();
}
