//! Regions that the program overwrites, cuts or replaces. `dbgr` does not believe them.

use std::{fs, path::Path};

use nix::unistd::geteuid;

use super::{OPTIONS, calls, ends_with, program, settles};
use crate::{
    hangs::{ranks, started_with, stop, verdict},
    harness::{Running, Sandbox, Stream, dbgr},
};

/// A rank that overwrites its region goes on, and `dbgr` neither fails nor believes it.
#[test]
fn garbage_is_not_believed() {
    let program = program("garbage.c", "mpicc");
    for byte in ["255", "0", "1", "170"] {
        let sandbox = Sandbox::new();
        let run = started_with(&sandbox, &OPTIONS, "2", &[&program, byte]);
        let said = verdict(&sandbox, "2", "300", &ranks(&sandbox, &program));
        assert!(!said.contains("proved"), "{byte}: {said}");
        let job = run.pid.to_string();
        for words in [["stacks", &job], ["calls", &job]] {
            let mut command = sandbox.command(dbgr());
            let finished = sandbox.run(command.args(words));
            assert!(
                [0, 120].contains(&finished.code()),
                "{byte}: {}",
                finished.err()
            );
        }
        stop(run);
        sandbox.expect_clean();
    }
}

/// Returns the file of rank 0's region.
fn file_of_rank_0(sandbox: &Sandbox, program: &str) -> String {
    let maps = fs::read_to_string(format!("/proc/{}/maps", ranks(sandbox, program)[&0])).unwrap();
    let line = maps.lines().find(|line| line.contains("/rally-calls."));
    let line = line.unwrap();
    line[line.find('/').unwrap()..].to_owned()
}

/// Both ranks are in the call that hangs.
fn both_receive(sandbox: &Sandbox, run: &Running) {
    settles(|| {
        let said = calls(sandbox, run, &[]);
        match said.matches("> ").count() {
            2 => Ok(()),
            _ => Err(said),
        }
    });
}

#[test]
fn damaged_regions_are_not_readable() {
    let program = program("damaged.c", "mpicc");
    for damage in ["none", "overwritten", "swapped", "cut"] {
        let sandbox = Sandbox::new();
        let run = started_with(&sandbox, &OPTIONS, "2", &[&program, damage]);
        run.expect_times(Stream::Stdout, "ready", 2);
        if damage == "none" {
            ends_with(
                &sandbox,
                &program,
                "proved: rank 0 waits in MPI_Recv (damaged.c:43) from rank 1, tag 9, WORLD; rank 1 has sent it 0 with tag 9, and 1 with tag 1; \
                 rank 1 waits in MPI_Recv (damaged.c:43) from rank 0, tag 9, WORLD; rank 0 has sent it 0 with tag 9, and 1 with tag 1",
            );
            stop(run);
            continue;
        }
        if damage == "cut" {
            both_receive(&sandbox, &run);
            let path = file_of_rank_0(&sandbox, &program);
            let file = fs::File::options().write(true).open(Path::new(&path));
            // The header is still there.
            file.unwrap().set_len(4096).unwrap();
        }
        let said = verdict(&sandbox, "2", "300", &ranks(&sandbox, &program));
        assert!(!said.contains("proved"), "{damage}: {said}");
        let job = run.pid.to_string();
        let mut command = sandbox.command(dbgr());
        let stacks = sandbox.run(command.args(["stacks", &job]));
        let stacks = stacks.expect_code(0).out();
        let line = "not readable: 1 [0] what the recorder has written there\n";
        assert!(stacks.contains(line), "{damage}: {stacks}");
        let mut command = sandbox.command(dbgr());
        let listed = sandbox.run(command.args(["calls", &job])).expect_code(0);
        assert!(
            !listed.out().lines().any(|it| it.starts_with("rank 0")),
            "{damage}: {listed:?}"
        );
        assert!(
            listed
                .err()
                .contains("calls of MPI of rank 0 are recorded, but not readable"),
            "{damage}: {listed:?}"
        );
        stop(run);
        sandbox.expect_clean();
    }
}

#[test]
fn a_full_table_is_told() {
    let program = program("full.c", "mpicc");
    let sandbox = Sandbox::new();
    let run = started_with(&sandbox, &OPTIONS, "2", &[&program]);
    run.expect_times(Stream::Stdout, "ready", 2);
    let job = run.pid.to_string();
    let expected = "not exact: 2 [0-1] some messages had no room and are not counted: no proof\n";
    settles(|| {
        let mut command = sandbox.command(dbgr());
        let said = sandbox.run(command.args(["stacks", &job])).out();
        said.contains(expected).then_some(()).ok_or(said)
    });
    let said = verdict(&sandbox, "2", "300", &ranks(&sandbox, &program));
    assert!(!said.contains("proved"), "{said}");
    stop(run);
    sandbox.expect_clean();
}

/// Memory of a file ends a program that writes into it while the file system is full.
#[test]
fn a_full_file_system_ends_the_recording_and_not_the_program() {
    const SCRIPT: &str = r#"
        mount -t tmpfs -o size=8m none /dev/shm
        for pages in 0 1 2 3 4 5 6 7 8 9 10 12 14 20; do
            "$RALLY" run --mpi-recorder -n 1 "$0" $pages
        done"#;
    let program = program("full_disk.c", "mpicc");
    let sandbox = Sandbox::new();
    let mut command = sandbox.command("unshare");
    // Other users need a user namespace, in which they are root.
    let namespaces = if geteuid().is_root() { "-m" } else { "-rm" };
    command.args([namespaces, "sh", "-e", "-c", SCRIPT, &program]);
    let run = sandbox.run(&mut command).expect_code(0);
    assert_eq!(run.out(), "done\n".repeat(14), "{run:?}");
    sandbox.expect_clean();
}
