//! A debugger with MPIR support holds every rank at its first instruction, and reads the table.

mod abort;
pub(crate) mod loss;
mod partial;
mod symbols;
mod table;
mod wrappers;

use std::process::Command;

use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};

use crate::harness::{DEADLINE, Running, Sandbox, Stream, eventually, rally, testdata};

/// Returns a command for gdb without any user settings, which exits after its script.
pub(crate) fn gdb(sandbox: &Sandbox) -> Command {
    let mut command = sandbox.command("gdb");
    command.args(["-nx", "-batch", "-iex", "set debuginfod enabled off"]);
    command
}

/// Returns the pids in the rows that gdb printed: `rank 0 host NAME pid 123 program /path`.
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

/// Runs `rally` with these arguments under a gdb, until it reaches the breakpoint. Returns the pids of the table that gdb
/// read. gdb continues when a file `go` exists.
pub(crate) fn at_the_breakpoint(sandbox: &Sandbox, args: &[&str]) -> (Running, Vec<i32>) {
    let mut command = gdb(sandbox);
    command
        .arg("-x")
        .arg(testdata("mpir/read-table.gdb"))
        .arg("--args")
        .arg(rally())
        .args(args);
    let run = sandbox.start(&mut command);
    run.expect(Stream::Stdout, "table read");
    let text = run.so_far(Stream::Stdout);
    assert!(text.contains("MPIR_debug_state 1\n"), "{text}");
    (run, pids(&text))
}

/// Checks that a process is stopped, and not traced.
#[track_caller]
pub(crate) fn expect_held(pid: i32) {
    let rank = mischief::Proc::read(pid).expect("the table names living processes");
    assert_eq!(rank.state, 'T', "held: {rank:?}");
    assert_eq!(rank.status("TracerPid").as_deref(), Some("0"), "{rank:?}");
}

#[test]
fn gdb_stops_at_the_breakpoint_reads_the_table_and_lets_go() {
    let sandbox = Sandbox::new();
    let (run, table) = at_the_breakpoint(&sandbox, &["run", "-n", "4", "sh", "-c", "echo ran"]);
    assert_eq!(table.len(), 4);
    for pid in &table {
        expect_held(*pid);
    }
    let text = run.so_far(Stream::Stdout);
    assert!(!text.contains("ran\n"), "no rank has run: {text}");

    // A second debugger attaches to a rank that has executed nothing but its exec, and leaves it in the same state.
    let mut attach = gdb(&sandbox);
    attach.args(["-ex", &format!("attach {}", table[2])]);
    attach.args(["-ex", "info symbol $pc", "-ex", "detach"]);
    let second = sandbox.run(&mut attach).expect_code(0);
    assert!(
        second.out().contains("_start"),
        "the program interpreter's first instruction: {second:?}"
    );
    expect_held(table[2]);

    sandbox.file("go", "");
    let run = run.end();
    assert_eq!(run.out().matches("ran\n").count(), 4, "{run:?}");
    assert!(run.out().contains("exited normally"), "{run:?}");
}

#[test]
fn sixty_four_ranks_stand_when_gdb_is_at_the_breakpoint() {
    let sandbox = Sandbox::new();
    let (run, table) = at_the_breakpoint(&sandbox, &["run", "-n", "64", "echo", "ran"]);
    assert_eq!(table.len(), 64);
    for pid in &table {
        expect_held(*pid);
    }
    sandbox.file("go", "");
    let run = run.end();
    assert_eq!(run.out().matches("ran\n").count(), 64, "{run:?}");
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
    // SIGCONT to the front releases the ranks.
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

/// Debuggers take any program with these symbols for a launcher.
#[test]
fn the_debugger_is_no_starter() {
    let symbols = |program: &str| {
        let nm = Command::new("nm")
            .args(["-D", "--defined-only", program])
            .output();
        String::from_utf8(nm.unwrap().stdout).unwrap()
    };
    assert!(symbols(env!("CARGO_BIN_EXE_rally")).contains("MPIR_proctable"));
    assert!(!symbols(env!("CARGO_BIN_EXE_dbgr")).contains("MPIR_"));
}
