//! Jobs on a terminal: job control, background, hang-up, a terminal for one rank.

use std::path::Path;

use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};

use crate::harness::{DEADLINE, Sandbox, Stream, Terminal, compiled, eventually, rally, testdata};

#[test]
fn in_the_background_it_is_never_stopped() {
    let sandbox = Sandbox::new();
    let script = r#"set -m; "$RALLY" run -n 2 sh -c 'sleep 0.3; echo rank $PMI_RANK' & wait $!; echo "code $?""#;
    let (_terminal, run) = Terminal::run(&sandbox, script);
    let run = run.end().expect_code(0);
    assert!(run.out().contains("code 0"), "{run:?}");
    for rank in ["rank 0", "rank 1"] {
        assert!(run.out().contains(rank), "{run:?}");
    }
}

#[test]
fn in_the_background_reading_ranks_wait_and_the_shell_keeps_its_input() {
    let sandbox = Sandbox::new();
    let script = r#"set -m; "$RALLY" run -n 1 "$MISCHIEF" prompt & read line; echo "shell got $line"
        kill %1; wait; echo over"#;
    let (mut terminal, run) = Terminal::run(&sandbox, script);
    run.expect(Stream::Stdout, "name? ");
    terminal.type_in("mine\n");
    run.expect(Stream::Stdout, "shell got mine");
    run.expect(Stream::Stdout, "over");
    run.end().expect_code(0);
}

#[test]
fn ctrl_z_stops_the_front_and_the_job_runs_on() {
    let sandbox = Sandbox::new();
    let script = r#"set -m
        "$RALLY" run -n 2 sh -c 'echo ready; while ! [ -e go ]; do sleep 0.01; done; : >done-$PMI_RANK'
        echo "stopped $?"; : >go
        while ! [ -e done-0 ] || ! [ -e done-1 ]; do sleep 0.01; done; echo "job went on"
        fg >/dev/null; echo "finally $?""#;
    let (mut terminal, run) = Terminal::run(&sandbox, script);
    run.expect_times(Stream::Stdout, "ready", 2);
    terminal.type_in("\x1a");
    // 128 plus SIGTSTP or SIGSTOP.
    run.expect(Stream::Stdout, "stopped 14");
    run.expect(Stream::Stdout, "job went on");
    run.expect(Stream::Stdout, "finally 0");
    run.end().expect_code(0);
}

#[test]
fn ctrl_c_reaches_each_rank_once() {
    let sandbox = Sandbox::new();
    let script =
        r#""$RALLY" run --grace 100 -n 2 "$MISCHIEF" trap 2 0 SIGINT SIGTERM; echo "code $?""#;
    let (mut terminal, mut run) = Terminal::run(&sandbox, &format!("trap : INT; {script}"));
    run.expect_times(Stream::Stdout, "ready", 2);
    terminal.type_in("\x03");
    run.expect_times(Stream::Stdout, "SIGINT", 2);
    // Two SIGINTs per rank would have ended the traps, which wait for two.
    assert!(!run.has_ended_within(std::time::Duration::from_millis(300)));
    assert_eq!(run.so_far(Stream::Stdout).matches("SIGINT").count(), 2);
    terminal.type_in("\x03");
    run.expect(Stream::Stdout, "code 130");
    run.end();
}

#[test]
fn a_closed_terminal_ends_the_job() {
    let sandbox = Sandbox::new();
    let (_terminal, run) = Terminal::run(
        &sandbox,
        r#"echo "leader $$"; "$RALLY" run -n 2 sh -c 'echo ready; sleep 1000'"#,
    );
    run.expect_times(Stream::Stdout, "ready", 2);
    // The death of the session leader hangs up the terminal.
    signal::kill(Pid::from_raw(run.pid), Signal::SIGKILL).unwrap();
    run.end();
    sandbox.expect_clean();
}

/// No signal announces its hang-up, and reading it stops no process.
#[test]
fn a_terminal_of_another_session_is_read_and_ends_the_job() {
    let sandbox = Sandbox::new();
    let script = r#"setsid --wait "$RALLY" run -n 1 cat; echo "code $?""#;
    let (mut terminal, run) = Terminal::run(&sandbox, script);
    terminal.type_in("some text\n");
    run.expect_times(Stream::Stdout, "some text", 2);
    terminal.type_in("\x04");
    run.expect(Stream::Stdout, "code 0");
    run.end().expect_code(0);
    let ranks = ["-n", "2", "sh", "-c", "echo ready; sleep 1000"];
    for reader in ["--stdin=0", "--stdin=none"] {
        let sandbox = Sandbox::new();
        let mut command = sandbox.command("python3");
        command.arg(testdata("terminal/hangs_up.py")).arg(rally());
        sandbox
            .run(command.args(["run", reader]).args(ranks))
            .expect_code(129)
            .expect_err(&["error: the job was ended because the launcher's terminal is gone"]);
        sandbox.expect_clean();
    }
    let sandbox = Sandbox::new();
    let mut command = sandbox.command("python3");
    command.arg(testdata("terminal/hangs_up.py")).arg(rally());
    command.args(["run", "--on-hangup=continue", "-n", "1", "sh", "-c"]);
    let script = "echo ready; cat; sleep 0.1; echo on >&2; exit 3";
    sandbox
        .run(command.arg(script))
        .expect_code(3)
        .expect_err(&["on\n"]);
}

/// Ranks are in a session of their own, so that they cannot take the terminal.
#[test]
fn a_rank_cannot_grab_the_foreground() {
    let sandbox = Sandbox::new();
    let script = r#"set -m; "$RALLY" run -n 2 "$MISCHIEF" grab-foreground; echo "code $?"; read line; echo "shell got $line""#;
    let (mut terminal, run) = Terminal::run(&sandbox, script);
    run.expect(Stream::Stdout, "code 99");
    terminal.type_in("for the shell\n");
    run.expect(Stream::Stdout, "shell got for the shell");
    run.end().expect_code(0);
}

#[test]
fn a_terminal_for_one_rank_works_like_ones_own() {
    let sandbox = Sandbox::new();
    let script = r#""$RALLY" run -n 2 --pty=0 sh -c 'if [ $PMI_RANK = 0 ]; then stty size; tty; printf "name? "; read name; echo "hello $name"; fi'; echo "code $?"; stty -a | grep -o ' icanon'"#;
    let (mut terminal, run) = Terminal::run(&sandbox, script);
    run.expect(
        Stream::Stdout,
        &format!("{} {}", Terminal::ROWS, Terminal::COLUMNS),
    );
    run.expect(Stream::Stdout, "name? ");
    terminal.type_in("bob\n");
    run.expect(Stream::Stdout, "hello bob");
    run.expect(Stream::Stdout, "code 0");
    run.expect(Stream::Stdout, " icanon");
    run.end().expect_code(0);
}

/// The rank's own terminal adds carriage returns. Ours must not add a second one there, but must add one for the other
/// ranks.
#[test]
fn with_a_terminal_for_one_rank_every_line_ends_once() {
    let sandbox = Sandbox::new();
    let (_terminal, run) = Terminal::run(
        &sandbox,
        r#""$RALLY" run -q -n 2 --pty=0 sh -c 'echo "line of $PMI_RANK"; sleep 0.2'"#,
    );
    let run = run.end().expect_code(0);
    let mut lines: Vec<_> = run.out().split_inclusive('\n').map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines, ["line of 0\r\n", "line of 1\r\n"], "{run:?}");
}

/// A C program shows its output as promptly as without us, and knows the window size.
#[test]
fn lines_appear_when_they_are_printed() {
    let sandbox = Sandbox::new();
    let source = testdata("terminal/says_what_it_has.c");
    let program = compiled(Path::new("gcc"), &source, &[]);
    let script = format!(
        r#"trap : INT; "$RALLY" run -q -n 2 {}; echo "code $?""#,
        program.display()
    );
    let (mut terminal, run) = Terminal::run(&sandbox, &script);
    let text = |rows: u16, columns: u16| {
        format!("stdin none, stdout terminal of {rows} by {columns}, stderr none.\r\n")
    };
    let size = text(Terminal::ROWS, Terminal::COLUMNS);
    run.expect_times(Stream::Stdout, &size, 2);
    terminal.resize(20, 60);
    run.expect_times(Stream::Stdout, &text(20, 60), 2);
    terminal.type_in("\x03");
    run.expect(Stream::Stdout, "code 0");
    run.end().expect_code(0);
}

/// In a container without pseudoterminals, ranks get pipes, unless a terminal was requested.
#[test]
fn without_terminals_there_are_pipes() {
    // Other users need a user namespace, in which they are root.
    let unshare = if nix::unistd::geteuid().is_root() {
        "unshare -m"
    } else {
        "unshare -rm"
    };
    let sandbox = Sandbox::new();
    let inside = sandbox.file(
        "inside.sh",
        r#"mount -t tmpfs none /dev/pts || exit 9
        "$RALLY" run -n 1 sh -c 'test -t 1; echo "auto $?"'
        "$RALLY" run -n 2 --line-buffered true; echo "asked for $?"
        "$RALLY" run -n 1 --pty true; echo "own $?"
        "#,
    );
    let (_terminal, run) = Terminal::run(&sandbox, &format!("{unshare} sh {inside}"));
    let run = run.end().expect_code(0);
    for part in [
        "auto 1",
        "cannot open a terminal: ",
        "asked for 123",
        "own 123",
    ] {
        assert!(run.out().contains(part), "{part}: {run:?}");
    }
}

#[test]
fn stdin_of_a_terminal_goes_to_rank_0_and_ends() {
    let sandbox = Sandbox::new();
    let (mut terminal, run) = Terminal::run(
        &sandbox,
        r#""$RALLY" run -n 2 "$MISCHIEF" echo-stdin-digest; echo "code $?""#,
    );
    terminal.type_in("some text\n\x04");
    run.expect(
        Stream::Stdout,
        &format!("rank 0: {}", mischief::Digest::of(b"some text\n")),
    );
    run.expect(
        Stream::Stdout,
        &format!("rank 1: {}", mischief::Digest::of(b"")),
    );
    run.expect(Stream::Stdout, "code 0");
    run.end().expect_code(0);
}

#[test]
fn the_foreground_comes_back_to_the_shell() {
    let sandbox = Sandbox::new();
    // Interactive use: a job, then the shell reads again.
    let script =
        r#"set -m; "$RALLY" run -n 2 cat; echo "code $?"; read line; echo "shell got $line""#;
    let (mut terminal, run) = Terminal::run(&sandbox, script);
    terminal.type_in("for the job\n");
    run.expect_times(Stream::Stdout, "for the job", 2);
    terminal.type_in("\x04");
    run.expect(Stream::Stdout, "code 0");
    terminal.type_in("for the shell\n");
    run.expect(Stream::Stdout, "shell got for the shell");
    run.end().expect_code(0);
    assert!(eventually(DEADLINE, || sandbox.alive().is_empty().then_some(())).is_some());
}
