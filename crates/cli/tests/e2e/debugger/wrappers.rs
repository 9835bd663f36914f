//! Wrapper programs: the rank itself is held, and a debugger can hold the program that it starts.

use std::{fs, path::PathBuf};

use nix::sys::signal::Signal;

use super::{expect_held, gdb};
use crate::harness::{Running, Sandbox, Stream};

/// Starts one rank, held at its first instruction. Returns its front and its pid.
fn held(sandbox: &Sandbox, program: &[&str]) -> (Running, i32) {
    let mut command = sandbox.rally(&["run", "-n", "1", "--stop-on-exec"]);
    let run = sandbox.start(command.args(program));
    run.expect(Stream::Stderr, "1 rank held at the first instruction");
    let ranks = sandbox.alive();
    let mut ranks = ranks
        .iter()
        .filter(|process| process.variable("RALLY_RANK").is_some());
    let rank = ranks.next().expect("the rank lives");
    assert!(ranks.next().is_none(), "it has started nothing");
    expect_held(rank.pid);
    (run, rank.pid)
}

fn executable(pid: i32) -> PathBuf {
    fs::read_link(format!("/proc/{pid}/exe")).unwrap()
}

#[test]
fn the_first_program_is_held() {
    let script = "#!/bin/sh\nexec echo ran\n";
    let cases: [(&[&str], &str); 5] = [
        (&["env", "A=1", "echo", "ran"], "/usr/bin/env"),
        (&["bash", "-c", "exec echo ran"], "/usr/bin/bash"),
        (&["bash", "-c", "echo ran; true"], "/usr/bin/bash"),
        (&["python3", "-c", "print('ran')"], "/usr/bin/python3"),
        // The kernel executes the interpreter instead of the script.
        (&["./script"], "/bin/sh"),
    ];
    for (program, expected) in cases {
        let sandbox = Sandbox::new();
        let path = sandbox.file("script", script);
        fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let (run, pid) = held(&sandbox, program);
        let expected = fs::canonicalize(expected).unwrap();
        assert_eq!(executable(pid), expected, "{program:?}");
        assert_eq!(run.so_far(Stream::Stdout), "");
        run.signal(Signal::SIGCONT);
        run.end().expect_code(0).expect_out("ran\n");
    }
}

/// A debugger that traces the rank continues it until the next exec, in the same process or in a child.
#[test]
fn gdb_holds_the_program_behind_the_wrapper() {
    let cases: [(&[&str], &str); 3] = [
        (&["env", "A=1", "echo", "ran"], "/usr/bin/echo"),
        (&["bash", "-c", "exec echo ran"], "/usr/bin/echo"),
        // The shell waits for its child.
        (&["bash", "-c", "/usr/bin/echo ran; true"], "/usr/bin/echo"),
    ];
    for (program, expected) in cases {
        let sandbox = Sandbox::new();
        let (run, pid) = held(&sandbox, program);
        let mut command = gdb(&sandbox);
        command.args(["-p", &pid.to_string()]);
        for step in [
            "handle SIGSTOP nostop noprint nopass",
            "set follow-fork-mode child",
            "catch exec",
            "continue",
            "info symbol $pc",
            "echo arrived\\n",
            "shell until [ -e on ]; do sleep 0.05; done",
            "delete",
            "continue",
        ] {
            command.args(["-ex", step]);
        }
        let debugger = sandbox.start(&mut command);
        debugger.expect(Stream::Stdout, &format!("(exec'd {expected})"));
        debugger.expect(Stream::Stdout, "arrived\n");
        assert_eq!(run.so_far(Stream::Stdout), "", "{program:?}");
        run.signal(Signal::SIGCONT);
        sandbox.file("on", "");
        let debugger = debugger.end().expect_code(0);
        let out = debugger.out();
        assert!(out.contains("_start in section .text"), "{debugger:?}");
        run.end().expect_code(0).expect_out("ran\n");
    }
}
