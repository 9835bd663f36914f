//! Ranks of two hosts that are held for a debugger or a user, and the table of their pids.

use super::{
    expect_no_daemon,
    host::{is_on, over, pid_there},
};
use crate::{
    debugger::{at_the_breakpoint, expect_held},
    harness::{Finished, Running, Sandbox, Stream},
};

const HOSTS: &str = "n1,n2";
const SCRIPT: &str = "echo ran $RALLY_RANK on $(hostname)";
const ALL_RAN: &str = "ran 0 on n1\nran 1 on n2\nran 2 on n1\nran 3 on n2";

/// Starts four ranks on two hosts, and waits until they are held.
fn start(sandbox: &Sandbox, hold: &str, program: &[&str]) -> Running {
    let run = sandbox.start(over(sandbox, HOSTS, &["-n", "4", hold]).args(program));
    run.expect(Stream::Stderr, "4 ranks held ");
    run
}

fn release(sandbox: &Sandbox, arguments: &[&str]) -> Finished {
    let mut command = sandbox.rally(&["release"]);
    sandbox.run(command.args(arguments)).expect_code(0)
}

/// Returns the ranks by number, and checks that each is on its host.
fn ranks(sandbox: &Sandbox, text: &str) -> Vec<mischief::Proc> {
    let mut found = sandbox.find(text);
    let number = |process: &mischief::Proc| process.variable("RALLY_RANK");
    found.retain(|process| number(process).is_some());
    found.sort_by_key(number);
    assert_eq!(found.len(), 4, "{found:?}");
    for (rank, node) in found.iter().zip([1, 2, 1, 2]) {
        assert!(is_on(rank.pid, node), "{rank:?} is not on n{node}");
    }
    found
}

#[test]
fn gdb_reads_the_table_of_two_hosts() {
    let sandbox = Sandbox::new();
    let words = [
        "run", "--host", HOSTS, "--wdir", "/", "--map-by", "node", "-n", "4", "sh", "-c", SCRIPT,
    ];
    let (run, table) = at_the_breakpoint(&sandbox, &words);
    let ranks = ranks(&sandbox, SCRIPT);
    let pids: Vec<i32> = ranks.iter().map(|rank| pid_there(rank.pid)).collect();
    assert_eq!(table, pids);
    let text = run.so_far(Stream::Stdout);
    for (rank, node) in [1, 2, 1, 2].into_iter().enumerate() {
        let row = format!("rank {rank} host n{node} pid {} program ", pids[rank]);
        assert!(text.contains(&row), "{row}: {text}");
        expect_held(ranks[rank].pid);
    }
    assert!(!text.contains("ran 0"), "no rank has run: {text}");
    sandbox.file("go", "");
    let run = run.end();
    for line in ALL_RAN.lines() {
        assert!(run.out().contains(line), "{line}: {run:?}");
    }
    expect_no_daemon();
}

#[test]
fn on_exec_ranks_of_another_host_are_released() {
    let sandbox = Sandbox::new();
    let run = start(&sandbox, "--stop-on-exec", &["sh", "-c", SCRIPT]);
    let held = ranks(&sandbox, SCRIPT);
    for rank in &held {
        expect_held(rank.pid);
    }
    release(&sandbox, &["--ranks", "3"]);
    run.expect(Stream::Stdout, "ran 3 on n2\n");
    for rank in &held[..3] {
        expect_held(rank.pid);
    }
    release(&sandbox, &[]);
    let run = run.end().expect_code(0);
    assert_eq!(run.sorted(), ALL_RAN);
    expect_no_daemon();
}

#[test]
fn in_init_ranks_of_another_host_are_released() {
    let sandbox = Sandbox::new();
    let program = crate::pmix::program("init_once");
    let run = start(&sandbox, "--stop-in-init", &[program.to_str().unwrap()]);
    let held = ranks(&sandbox, "init_once");
    assert!(held.iter().all(|rank| rank.state != 'T'), "{held:?}");
    release(&sandbox, &["--ranks", "1"]);
    release(&sandbox, &[]);
    run.end().expect_code(0);
    expect_no_daemon();
}
