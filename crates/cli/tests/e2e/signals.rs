//! Signals reach the ranks, and the job ends as requested.

use std::process::Command;

use mischief::Proc;
use nix::sys::signal::Signal;

use crate::harness::{CLEAN_WITHIN, DEADLINE, Sandbox, Stream, eventually};

#[test]
fn signals_are_passed_on() {
    for signal in [
        Signal::SIGUSR1,
        Signal::SIGUSR2,
        Signal::SIGWINCH,
        Signal::SIGALRM,
        Signal::SIGIO,
        Signal::SIGINT,
        Signal::SIGTERM,
    ] {
        let sandbox = Sandbox::new();
        let name = signal.as_str();
        let run = sandbox
            .start(&mut sandbox.rally(&["run", "-n", "3", "mischief", "trap", "1", "0", name]));
        run.expect_times(Stream::Stdout, "ready\n", 3);
        run.signal(signal);
        let run = run.end();
        assert_eq!(
            run.out().matches(&format!("{name}\n")).count(),
            3,
            "{run:?}"
        );
        // A rank that handles a signal and exits with 0 is a success. But SIGTERM to the launcher ends the job.
        let code = if signal == Signal::SIGTERM { 143 } else { 0 };
        assert_eq!(run.code(), code, "{run:?}");
    }
}

#[test]
fn a_signal_that_ranks_die_of_is_the_code() {
    for (signal, code) in [
        (Signal::SIGINT, 130),
        (Signal::SIGTERM, 143),
        (Signal::SIGHUP, 129),
        (Signal::SIGQUIT, 131),
    ] {
        let sandbox = Sandbox::new();
        // Without `exec`, dash loses an interrupt that comes while it starts a program.
        let run = sandbox.start(&mut sandbox.rally(&[
            "run",
            "-n",
            "3",
            "sh",
            "-c",
            "echo ready; exec sleep 1000",
        ]));
        run.expect_times(Stream::Stdout, "ready\n", 3);
        run.signal(signal);
        run.end().expect_code(code);
    }
}

#[test]
fn the_second_interrupt_kills() {
    let sandbox = Sandbox::new();
    let mut run = sandbox.start(&mut sandbox.rally(&[
        "run", "--grace", "100", "-n", "2", "mischief", "ignore", "SIGINT", "SIGTERM",
    ]));
    run.expect_times(Stream::Stdout, "ready\n", 2);
    run.signal(Signal::SIGINT);
    assert!(
        !run.has_ended_within(std::time::Duration::from_millis(300)),
        "the first is only passed on"
    );
    run.signal(Signal::SIGINT);
    let run = run.end().expect_code(130);
    assert!(run.elapsed < DEADLINE, "{run:?}");
}

#[test]
fn a_stopped_front_does_not_stop_the_job() {
    let sandbox = Sandbox::new();
    let script = "while ! [ -e go ]; do sleep 0.01; done; : >done-$PMI_RANK";
    let run = sandbox.start(&mut sandbox.rally(&["run", "-n", "2", "sh", "-c", script]));
    eventually(DEADLINE, || {
        (sandbox.find("sleep 0.01; done").len() >= 2).then_some(())
    })
    .expect("ranks run");
    run.signal(Signal::SIGSTOP);
    sandbox.file("go", "");
    let done =
        || (sandbox.path("done-0").exists() && sandbox.path("done-1").exists()).then_some(());
    eventually(DEADLINE, done).expect("the job goes on while its front is stopped");
    run.signal(Signal::SIGCONT);
    run.end().expect_code(0).expect_quiet();
}

#[test]
fn a_signal_at_the_very_start_is_not_lost() {
    // The test does not wait for any output: the signal may come at any point of the front's start.
    for _ in 0..20 {
        let sandbox = Sandbox::new();
        let run = sandbox.start(&mut sandbox.rally(&["run", "-n", "4", "sleep", "1000"]));
        run.signal(Signal::SIGTERM);
        run.end().expect_code(143);
        assert!(eventually(CLEAN_WITHIN, || sandbox.alive().is_empty().then_some(())).is_some());
    }
}

#[test]
fn an_ignored_hangup_stays_ignored() {
    let sandbox = Sandbox::new();
    let run = sandbox.start(&mut sandbox.shell(r#"trap '' HUP; exec "$RALLY" run -n 2 sh -c 'echo ready; while ! [ -e go ]; do sleep 0.01; done; echo survived'"#));
    run.expect_times(Stream::Stdout, "ready\n", 2);
    run.signal(Signal::SIGHUP);
    sandbox.file("go", "");
    let run = run.end().expect_code(0);
    assert_eq!(
        run.out().matches("survived").count(),
        2,
        "as under nohup: {run:?}"
    );
}

/// In a script, a background command ignores SIGINT: Ctrl-C is for the foreground only.
#[test]
fn what_our_caller_ignores_stays_ignored() {
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGUSR1] {
        let sandbox = Sandbox::new();
        let name = signal.as_str();
        let script = format!(
            r#"trap '' {}; exec "$RALLY" run -n 2 sh -c 'echo ready; while ! [ -e go ]; do sleep 0.01; done; echo survived'"#,
            name.trim_start_matches("SIG")
        );
        let run = sandbox.start(&mut sandbox.shell(&script));
        run.expect_times(Stream::Stdout, "ready\n", 2);
        for _ in 0..3 {
            run.signal(signal);
        }
        sandbox.file("go", "");
        let run = run.end().expect_code(0);
        assert_eq!(run.out().matches("survived").count(), 2, "{run:?}");
    }
}

/// The caller of the tests may ignore any signal, as `nohup` does. The tested programs still start with default actions, as
/// from a shell.
#[test]
fn tests_do_not_pass_on_what_they_were_told_to_ignore() {
    for test in [
        "life::a_rank_starts_in_a_clean_state",
        "terminal::a_closed_terminal_ends_the_job",
        "signals::a_signal_that_ranks_die_of_is_the_code",
    ] {
        let ignore = "$SIG{$_} = 'IGNORE' for qw(HUP INT QUIT USR1 TERM TSTP); exec @ARGV";
        let output = Command::new("perl")
            .args(["-e", ignore])
            .arg(std::env::current_exe().unwrap())
            .args([test, "--exact"])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{test}: {said}");
        assert!(said.contains("1 passed"), "{test}: {said}");
    }
}

/// The kernel's default action would stop no process whose parent is in another session.
#[test]
fn a_stop_from_a_process_stops_those_who_do_not_handle_it() {
    let sandbox = Sandbox::new();
    let run = sandbox.start(&mut sandbox.rally(&[
        "run",
        "-n",
        "1",
        "mischief",
        "trap",
        "1",
        "0",
        "SIGTSTP",
        ":",
        "-n",
        "1",
        "sh",
        "-c",
        "echo ready; sleep 1000; exit 1",
    ]));
    run.expect_times(Stream::Stdout, "ready\n", 2);
    // A shell waits in the kernel until its child has executed a program, and stops only after that.
    let sleeps = |process: &Proc| process.args.starts_with("sleep");
    let asleep = || sandbox.find("sleep 1000").iter().any(sleeps).then_some(());
    eventually(DEADLINE, asleep).expect("the second rank sleeps");
    run.signal(Signal::SIGTSTP);
    run.expect(Stream::Stdout, "SIGTSTP\n");
    let stopped = |text: &str| {
        let found = sandbox.find(text);
        found.len() == 2 && found.iter().all(|process| process.state == 'T')
    };
    eventually(DEADLINE, || stopped("sleep 1000").then_some(())).expect("both processes stop");
    run.signal(Signal::SIGCONT);
    eventually(DEADLINE, || (!stopped("sleep 1000")).then_some(())).expect("they run on");
    run.signal(Signal::SIGTERM);
    run.end().expect_code(143);
}
