//! Variables for ranks: which processes get them, and their values.

use std::{os::unix::fs::symlink, path::Path};

use crate::harness::{Sandbox, compiled, rally, testdata};

/// A preloaded library is loaded into ranks and their children, but into none of our processes.
#[test]
fn what_is_preloaded_is_in_ranks_alone() {
    let library = compiled(
        Path::new("gcc"),
        &testdata("preload/loaded.c"),
        &["-shared", "-fPIC"],
    );
    let preload = format!("LD_PRELOAD={}", library.display());
    // One option at the start applies to all apps, in our spelling and in those of two other launchers.
    let lines: [(&str, &[&str]); 3] = [
        ("rally", &["run", "--global-env", &preload]),
        (
            "rally",
            &["run", "-genv", "LD_PRELOAD", library.to_str().unwrap()],
        ),
        ("mpirun", &["-x", &preload]),
    ];
    for (name, options) in lines {
        let sandbox = Sandbox::new();
        let program = sandbox.path(name);
        symlink(rally(), &program).unwrap();
        let mut command = sandbox.face(&program, options);
        command
            .args([
                "-n",
                "2",
                "true",
                ":",
                "-n",
                "1",
                "sh",
                "-c",
                "ls >/dev/null; exit 0",
            ])
            .env("LOADED_LOG", sandbox.path("log"));
        sandbox.run(&mut command).expect_code(0).expect_quiet();
        let log = sandbox.read("log");
        let mut loaded: Vec<&str> = log.lines().collect();
        loaded.sort_unstable();
        assert_eq!(loaded, ["ls", "sh", "true", "true"], "{name} {options:?}");
    }
}

/// Each app has rules of its own, in their order.
#[test]
fn a_variable_is_added_unless_it_is_set() {
    let sandbox = Sandbox::new();
    let show = ["sh", "-c", "echo $RALLY_RANK: $COLOR $SHAPE"];
    let mut command = sandbox.rally(&["run", "-n", "1"]);
    command.args(["--add-env", "COLOR=blue", "--add-env=SHAPE=a circle"]);
    command
        .args(show)
        .args([":", "-n", "1", "--set-env", "SHAPE=line"]);
    command.args(["--unset-env", "COLOR", "--add-env", "COLOR=green"]);
    command.args(["--add-env", "SHAPE=dot"]).args(show);
    command.env("COLOR", "red");
    let run = sandbox.run(&mut command).expect_code(0);
    assert_eq!(run.sorted(), "0: red a circle\n1: green line");
}

#[test]
fn ranks_for_torch_meet_where_they_are_told() {
    let sandbox = Sandbox::new();
    let script = testdata("mpi/torch.py");
    let script = script.to_str().unwrap();
    sandbox
        .run_rally(&[
            "run", "--torch", "-n", "1", "python3", script, ":", "-n", "3", "python3", script,
        ])
        .expect_code(0)
        .expect_quiet()
        .expect_out("rank 0 met 1 2 3\n");
}
