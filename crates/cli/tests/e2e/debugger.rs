//! A debugger that knows MPIR holds every rank at its first instruction and reads the table.

mod symbols;
mod table;

use std::process::Command;

use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};

use crate::harness::{DEADLINE, Sandbox, Stream, eventually, rally, testdata};

/// gdb without anybody's settings, which ends with its script.
fn gdb(sandbox: &Sandbox) -> Command {
    let mut command = sandbox.command("gdb");
    command.args(["-nx", "-batch", "-iex", "set debuginfod enabled off"]);
    command
}

/// The rows that gdb printed: `rank 0 host NAME pid 123 program /path`.
fn pids(text: &str) -> Vec<i32> {
    text.lines()
        .filter_map(|line| {
            line.strip_prefix("rank ")?
                .split_once(" pid ")?
                .1
                .split(' ')
                .next()?
                .parse()
                .ok()
        })
        .collect()
}

#[test]
fn gdb_stops_at_the_breakpoint_reads_the_table_and_lets_go() {
    let sandbox = Sandbox::new();
    // `shell` steps of the script wait for files that this test makes, so that it can look at the ranks meanwhile.
    let mut command = gdb(&sandbox);
    command
        .arg("-x")
        .arg(testdata("mpir/read-table.gdb"))
        .arg("--args")
        .arg(rally());
    command.args(["run", "-n", "4", "--stop-on-exec", "sh", "-c", "echo ran"]);
    let run = sandbox.start(&mut command);
    run.expect_times(Stream::Stdout, "rank ", 4);
    run.expect(Stream::Stdout, "table read");
    let text = run.so_far(Stream::Stdout);
    let table = pids(&text);
    assert_eq!(table.len(), 4, "{text}");
    assert!(text.contains("MPIR_debug_state 1"), "{text}");
    for pid in &table {
        let rank = mischief::Proc::read(*pid).expect("the table names living processes");
        assert_eq!(rank.state, 'T', "held: {rank:?}");
        assert_eq!(
            rank.status("TracerPid").as_deref(),
            Some("0"),
            "nobody else may hold it: {rank:?}"
        );
    }
    assert!(!text.contains("ran\n"), "no rank has run: {text}");

    // A second debugger attaches to one of them, which has executed nothing but its exec.
    let mut attach = gdb(&sandbox);
    attach.args(["-ex", &format!("attach {}", table[2])]);
    attach.args(["-ex", "info symbol $pc", "-ex", "detach"]);
    let second = sandbox.run(&mut attach).expect_code(0);
    assert!(
        second.out().contains("_start"),
        "the program interpreter's first instruction: {second:?}"
    );

    sandbox.file("go", "");
    let run = run.end();
    assert_eq!(run.out().matches("ran\n").count(), 4, "{run:?}");
    assert!(run.out().contains("exited normally"), "{run:?}");
}

#[test]
fn without_a_debugger_held_ranks_wait_for_a_signal() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.rally(&["run", "-n", "3", "--stop-on-exec", "sh", "-c", "echo ran"]);
    let run = sandbox.start(&mut command);
    let held = || {
        let ranks = sandbox.find("sh -c echo ran");
        let held = ranks
            .iter()
            .filter(|rank| rank.state == 'T' && !rank.args.contains("--stop-on-exec"));
        (held.count() == 3).then_some(())
    };
    eventually(DEADLINE, held).expect("three ranks are held");
    assert_eq!(run.so_far(Stream::Stdout), "");
    // SIGCONT to the front is passed on, which releases them.
    run.signal(Signal::SIGCONT);
    run.end().expect_code(0).expect_out("ran\nran\nran\n");
}

#[test]
fn held_ranks_die_with_the_front() {
    let sandbox = Sandbox::new();
    let run =
        sandbox.start(&mut sandbox.rally(&["run", "-n", "3", "--stop-on-exec", "sleep", "1000"]));
    let held = || {
        (sandbox
            .find("sleep 1000")
            .iter()
            .filter(|rank| rank.state == 'T')
            .count()
            == 3)
            .then_some(())
    };
    eventually(DEADLINE, held).expect("three ranks are held");
    signal::kill(Pid::from_raw(run.pid), Signal::SIGKILL).unwrap();
    sandbox.expect_clean();
    run.end().expect_code(137);
}

#[test]
fn without_the_option_and_without_a_debugger_nothing_is_held() {
    let sandbox = Sandbox::new();
    sandbox
        .run_rally(&["run", "-n", "4", "echo", "a"])
        .expect_code(0)
        .expect_out("a\na\na\na\n");
}
