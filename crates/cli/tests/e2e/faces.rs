//! The launcher under other names, and what it prints without launching.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
};

use crate::harness::{Sandbox, rally};

#[test]
fn called_mpiexec_it_is_mpiexec() {
    let sandbox = Sandbox::new();
    for name in ["mpiexec", "mpirun"] {
        let face = sandbox.path(name);
        symlink(rally(), &face).unwrap();
        let run = sandbox
            .run(&mut sandbox.face(
                &face,
                &["-np", "2", "echo", "a", ":", "-n", "1", "echo", "b"],
            ))
            .expect_code(0);
        assert_eq!(run.sorted(), "a\na\nb");
    }
}

#[test]
fn what_x_means_depends_on_the_name() {
    let sandbox = Sandbox::new();
    let face = sandbox.path("mpirun");
    symlink(rally(), &face).unwrap();
    sandbox
        .run(&mut sandbox.face(&face, &["-n", "1", "-x", "A=b", "sh", "-c", "echo $A"]))
        .expect_code(0)
        .expect_out("b\n");
    sandbox
        .run_rally(&["run", "-n", "1", "-x", "A=b", "true"])
        .expect_code(120)
        .expect_err(&["--set-env"]);
}

/// Open MPI's launcher also searches the working directory of the ranks, after PATH; Hydra does not.
#[test]
fn a_bare_name_is_found_in_the_working_directory_under_the_name_mpirun() {
    let sandbox = Sandbox::new();
    let script = |path: &str, says: &str| {
        let path = sandbox.file(path, format!("#!/bin/sh\necho {says} $0\n"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    };
    for directory in ["below", "first"] {
        fs::create_dir(sandbox.path(directory)).unwrap();
    }
    let here = script("tool", "here");
    let below = script("below/tool", "below");
    let first = script("first/tool", "first");
    for name in ["mpirun", "mpiexec"] {
        symlink(rally(), sandbox.path(name)).unwrap();
    }
    let run = |name: &str, arguments: &[&str]| {
        let mut command = sandbox.face(&sandbox.path(name), arguments);
        sandbox.run(&mut command)
    };
    let mpirun = |arguments: &[&str], says: String| {
        run("mpirun", arguments).expect_code(0).expect_out(&says);
    };
    mpirun(&["-n", "1", "tool"], format!("here {here}\n"));
    mpirun(
        &["-n", "1", "--wdir", "below", "tool"],
        format!("below {below}\n"),
    );
    let path = sandbox.path("first");
    let path = path.to_str().unwrap();
    mpirun(
        &["-n", "1", "--path", path, "tool"],
        format!("first {first}\n"),
    );
    run("mpiexec", &["-n", "1", "tool"]).expect_code(127);
}

#[test]
fn called_srun_it_is_srun() {
    let sandbox = Sandbox::new();
    let face = sandbox.path("srun");
    symlink(rally(), &face).unwrap();
    let run = sandbox
        .run(&mut sandbox.face(&face, &["-n", "2", "-c", "1", "-l", "echo", "a"]))
        .expect_code(0);
    assert_eq!(run.out().lines().count(), 2, "{run:?}");
}

#[test]
fn a_configfile_is_a_command_line() {
    let sandbox = Sandbox::new();
    let file = sandbox.file(
        "config",
        "# two programs\n-n 2 echo a\n-n 1 \\\n  echo 'b c'\n",
    );
    let run = sandbox
        .run_rally(&["run", "-configfile", &file])
        .expect_code(0);
    assert_eq!(run.sorted(), "a\na\nb c");
}

#[test]
fn the_spellings_of_others_are_understood() {
    let cases: &[&[&str]] = &[
        &["run", "-np", "2", "echo", "a"],
        &["run", "--np", "2", "echo", "a"],
        &["run", "-n", "2", "--allow-run-as-root", "echo", "a"],
        &["run", "-n", "2", "--mca", "btl", "tcp,self", "echo", "a"],
        &["run", "-n", "2", "-genv", "A", "b", "echo", "a"],
        &["run", "-n", "2", "-genvall", "echo", "a"],
        &["run", "-n", "2", "--bind-to", "none", "echo", "a"],
        &[
            "run",
            "-n",
            "2",
            "--map-by",
            "slot:OVERSUBSCRIBE",
            "echo",
            "a",
        ],
        &["run", "-n", "2", "-hosts", "localhost", "echo", "a"],
        &["run", "-n", "2", "-soft", "1:2", "echo", "a"],
        &["run", "-n", "2", "-wd", "/", "echo", "a"],
    ];
    for args in cases {
        let sandbox = Sandbox::new();
        sandbox.run_rally(args).expect_code(0).expect_out("a\na\n");
    }
}

#[test]
fn a_dry_run_starts_nothing() {
    let sandbox = Sandbox::new();
    let marker = sandbox.path("ran");
    let run = sandbox
        .run_rally(&[
            "run",
            "-n",
            "4",
            "--dry-run",
            "--explain",
            "mischief",
            "touch",
            marker.to_str().unwrap(),
        ])
        .expect_code(0);
    assert!(!marker.exists(), "{run:?}");
    assert!(run.out().contains("ranks 0-3"), "{run:?}");
}

#[test]
fn the_demo_needs_nothing() {
    let sandbox = Sandbox::new();
    let run = sandbox.run_rally(&["demo"]).expect_code(0);
    assert!(!run.out().is_empty());
}

#[test]
fn it_explains_itself() {
    for args in [
        &["--version"][..],
        &["--help"],
        &["-h"],
        &["help"],
        &["run", "--help"],
        &["help", "exit-codes"],
    ] {
        let sandbox = Sandbox::new();
        let run = sandbox.run_rally(args).expect_code(0).expect_quiet();
        assert!(!run.out().is_empty(), "{run:?}");
    }
    for what in ["man", "bash", "zsh", "fish"] {
        let sandbox = Sandbox::new();
        let run = sandbox
            .run_rally(&["__generate", what])
            .expect_code(0)
            .expect_quiet();
        assert!(run.out().contains("rally"), "{run:?}");
    }
}

#[test]
fn an_error_has_a_long_form() {
    let sandbox = Sandbox::new();
    let run = sandbox.run_rally(&["help", "no-such-topic"]);
    assert_ne!(run.code(), 0);
    assert!(!run.err().is_empty());
}
