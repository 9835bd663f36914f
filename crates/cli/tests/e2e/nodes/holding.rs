//! Ranks of several nodes that are held for a debugger, at each of the three points, and the table of their pids.

use super::{OVER_NODES, node_name};
use crate::{
    debugger::{at_the_breakpoint, expect_held},
    harness::{DEADLINE, Finished, Running, Sandbox, Stream, eventually},
    mpi,
};

const HELD_RANKS: &str = "5";

/// Starts a job of five ranks over nodes, and waits until its ranks are held.
fn start(sandbox: &Sandbox, hold: &str, program: &[&str]) -> Running {
    let mut command = sandbox.rally(&["run"]);
    command.args(OVER_NODES).args(["-n", HELD_RANKS, hold]);
    command.args(program);
    let run = sandbox.start(&mut command);
    run.expect(Stream::Stderr, "5 ranks held ");
    run
}

fn release(sandbox: &Sandbox, arguments: &[&str]) -> Finished {
    let mut command = sandbox.rally(&["release"]);
    command.args(arguments);
    sandbox.run(&mut command).expect_code(0)
}

/// Returns the ranks: processes of a program on all nodes.
fn ranks(sandbox: &Sandbox, text: &str) -> Vec<mischief::Proc> {
    let mut found = sandbox.find(text);
    found.retain(|process| process.variable("RALLY_RANK").is_some());
    found
}

#[test]
fn gdb_reads_the_table_of_all_nodes() {
    let sandbox = Sandbox::new();
    let mut words = vec!["run"];
    words.extend(OVER_NODES);
    words.extend(["-n", HELD_RANKS, "sh", "-c", "echo ran"]);
    let (run, table) = at_the_breakpoint(&sandbox, &words);
    assert_eq!(table.len(), 5);
    for pid in &table {
        expect_held(*pid);
    }
    let text = run.so_far(Stream::Stdout);
    for (rank, node) in [0, 1, 2, 0, 1].into_iter().enumerate() {
        let host = node_name(&sandbox, node);
        let row = format!("rank {rank} host {host} pid {} ", table[rank]);
        assert!(text.contains(&row), "{row}: {text}");
        let proc = mischief::Proc::read(table[rank]).unwrap();
        let number = proc.variable("RALLY_RANK");
        assert_eq!(number.as_deref(), Some(rank.to_string().as_str()));
    }
    assert!(!text.contains("ran\n"), "no rank has run: {text}");
    sandbox.file("go", "");
    let run = run.end();
    assert_eq!(run.out().matches("ran\n").count(), 5, "{run:?}");
}

#[test]
fn on_exec_ranks_are_released_one_by_one() {
    let sandbox = Sandbox::new();
    let script = "echo ran $RALLY_RANK";
    let run = start(&sandbox, "--stop-on-exec", &["sh", "-c", script]);
    let held = ranks(&sandbox, script);
    assert_eq!(held.len(), 5, "{held:?}");
    for rank in &held {
        expect_held(rank.pid);
    }
    // One on the second node.
    release(&sandbox, &["--ranks", "4"]);
    run.expect(Stream::Stdout, "ran 4\n");
    // The rank exits some time after its line.
    let four = || (ranks(&sandbox, script).len() == 4).then_some(());
    eventually(DEADLINE, four).expect("the other ranks stay held");
    release(&sandbox, &[]);
    let run = run.end().expect_code(0);
    assert_eq!(run.sorted(), "ran 0\nran 1\nran 2\nran 3\nran 4");
}

#[test]
fn in_init_ranks_wait_in_a_call() {
    let sandbox = Sandbox::new();
    let program = crate::pmix::program("init_once");
    let run = start(&sandbox, "--stop-in-init", &[program.to_str().unwrap()]);
    let held = ranks(&sandbox, "init_once");
    assert_eq!(held.len(), 5, "{held:?}");
    assert!(held.iter().all(|rank| rank.state != 'T'), "{held:?}");
    release(&sandbox, &["--ranks", "0-1"]);
    release(&sandbox, &[]);
    run.end().expect_code(0);
}

/// Open MPI looks for the hold at the end of `MPI_Init`.
#[test]
fn in_the_application_ranks_wait_at_the_end_of_init() {
    let sandbox = Sandbox::new();
    let program = mpi::Library::OpenMpi5.program("hello");
    let run = start(&sandbox, "--stop-in-app", &["--", &program]);
    assert_eq!(run.so_far(Stream::Stdout), "");
    release(&sandbox, &[]);
    let run = run.end().expect_code(0);
    let expected: Vec<String> = (0..5)
        .map(|rank| format!("hello from {rank} of 5"))
        .collect();
    assert_eq!(run.sorted(), expected.join("\n"));
    let none = || sandbox.find("/hello-").is_empty().then_some(());
    eventually(DEADLINE, none).expect("all ranks have ended");
}
