//! The proc table of a running job, for tools that attach later.

use super::gdb;
use crate::{
    harness::{DEADLINE, Row, Running, Sandbox, Starter, Stream, eventually, testdata},
    spawned,
};

/// Ranks run until the test creates the file `go`.
const WAITING: &str = "echo ready; until [ -e go ]; do sleep 0.05; done; echo done";

fn start(sandbox: &Sandbox) -> Running {
    let run = sandbox.start(&mut sandbox.rally(&["run", "-n", "3", "sh", "-c", WAITING]));
    run.expect_times(Stream::Stdout, "ready\n", 3);
    run
}

fn let_go(sandbox: &Sandbox, run: Running) {
    sandbox.file("go", "");
    let run = run.end().expect_code(0);
    assert_eq!(run.out().matches("done\n").count(), 3, "{run:?}");
}

/// Returns the expected rows of the table: the ranks in order.
fn expected(sandbox: &Sandbox) -> Vec<Row> {
    let mut command = sandbox.command("uname");
    let host = sandbox.run(command.arg("-n")).out();
    let mut ranks = sandbox.find(WAITING);
    // A child that a shell has just forked has its words until it executes its program.
    let shells: Vec<i32> = ranks.iter().map(|rank| rank.pid).collect();
    ranks.retain(|rank| !shells.contains(&rank.ppid));
    ranks.sort_by_key(|rank| rank.variable("RALLY_RANK"));
    let row = |rank: &mischief::Proc| Row {
        host: host.trim().to_owned(),
        executable: "/usr/bin/sh".to_owned(),
        pid: rank.pid,
    };
    ranks.iter().map(row).collect()
}

#[test]
fn it_is_read_from_memory_and_nobody_is_stopped() {
    let sandbox = Sandbox::new();
    let run = start(&sandbox);
    let starter = Starter::of(run.pid).expect("the front runs");
    assert_eq!(starter.table(), expected(&sandbox));
    assert_eq!(starter.int("MPIR_debug_state"), 1);
    assert_eq!(starter.int("MPIR_being_debugged"), 0);
    assert_eq!(starter.int("MPIR_i_am_starter"), 1);
    assert_eq!(starter.text("MPIR_debug_abort_string"), None);
    let name = starter.text("totalview_jobid").expect("the job has a name");
    assert!(name.starts_with("rally-") && name.ends_with("@1"), "{name}");

    // A tool that attaches after the start may set this or not: no rank is held any more.
    starter.set("MPIR_being_debugged", 1);
    assert_eq!(starter.table().len(), 3);
    let_go(&sandbox, run);
}

/// Tools may have another working directory.
#[test]
fn programs_have_absolute_paths() {
    let sandbox = Sandbox::new();
    let there = sandbox.path("there");
    std::fs::create_dir(&there).unwrap();
    std::fs::copy("/usr/bin/sleep", there.join("prog")).unwrap();
    for words in [
        ["--wdir", "there", "./prog"],
        ["--wdir", "there", "../there/prog"],
        ["--wdir", ".", "there/prog"],
    ] {
        let mut command = sandbox.rally(&["run", "-v", "-n", "1"]);
        let run = sandbox.start(command.args(words).arg("1000"));
        run.expect(Stream::Stderr, "1 rank started");
        let starter = Starter::of(run.pid).expect("the front runs");
        let first = eventually(DEADLINE, || starter.table().into_iter().next());
        let program = first.expect("the table has a row").executable;
        assert!(program.starts_with('/'), "{program}");
        assert_eq!(
            std::fs::canonicalize(&program).unwrap(),
            std::fs::canonicalize(there.join("prog")).unwrap()
        );
        assert!(!program.contains("/./"), "{program}");
        run.signal(nix::sys::signal::Signal::SIGTERM);
        run.end();
    }
}

#[test]
fn gdb_attaches_to_the_front_reads_it_and_leaves() {
    let sandbox = Sandbox::new();
    let run = start(&sandbox);
    let mut command = gdb(&sandbox);
    command
        .args(["-p", &run.pid.to_string(), "-x"])
        .arg(testdata("mpir/attach.gdb"));
    let debugger = sandbox.start(&mut command);
    debugger.expect(Stream::Stdout, "table read");
    let rows = expected(&sandbox);
    let shown = debugger.so_far(Stream::Stdout);
    for (rank, row) in rows.iter().enumerate() {
        let line = format!(
            "rank {rank} host {} pid {} program {}\n",
            row.host, row.pid, row.executable
        );
        assert!(shown.contains(&line), "{line}{shown}");
    }
    // The front is stopped; the job runs.
    let front = || (mischief::Proc::read(run.pid)?.state == 't').then_some(());
    eventually(DEADLINE, front).expect("the debugger has stopped the front");
    sandbox.file("go", "");
    let ranks = || sandbox.find(WAITING).is_empty().then_some(());
    eventually(DEADLINE, ranks).expect("the ranks end while the front stands");
    assert!(!run.so_far(Stream::Stdout).contains("done"));
    sandbox.file("leave", "");
    debugger.end().expect_code(0);
    let run = run.end().expect_code(0);
    assert_eq!(run.out().matches("done\n").count(), 3, "{run:?}");
}

/// The interface has no notion of spawned jobs: the table contains only the submitted job.
#[test]
fn it_has_no_rows_for_spawned_jobs() {
    let sandbox = Sandbox::new();
    let run = spawned::start(&sandbox);
    let starter = Starter::of(run.pid).expect("the front runs");
    let pids: Vec<i32> = starter.table().iter().map(|row| row.pid).collect();
    let spawned = sandbox.find("sleep 1000");
    let spawner = sandbox.find("linger");
    let spawner = spawner.iter().find(|process| process.state != 'Z');
    assert_eq!(pids, [spawner.expect("it lives").pid]);
    assert!(spawned.iter().all(|process| !pids.contains(&process.pid)));
    run.signal(nix::sys::signal::Signal::SIGTERM);
    run.end().expect_code(143);
}

#[test]
fn the_name_in_it_is_one_that_rally_release_takes() {
    let sandbox = Sandbox::new();
    let run =
        sandbox.start(&mut sandbox.rally(&["run", "-n", "2", "--stop-on-exec", "echo", "ran"]));
    run.expect(Stream::Stderr, "2 ranks held");
    let starter = Starter::of(run.pid).expect("the front runs");
    let name = starter.text("totalview_jobid").expect("the job has a name");
    sandbox.run_rally(&["release", &name]).expect_code(0);
    run.end().expect_code(0).expect_out("ran\nran\n");
}
