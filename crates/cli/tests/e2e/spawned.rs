//! Jobs spawned by a rank: whichever process is killed, nothing of them survives, and their ends are reported.

use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};

use crate::{
    harness::{DEADLINE, Running, Sandbox, Stream, eventually, rally, testdata},
    machine::Machine,
    pmix,
};

/// Starts a rank and the two that it has spawned, all of which sleep.
pub(crate) fn start(sandbox: &Sandbox) -> Running {
    let program = pmix::compiled_from(&testdata("pmix/linger.c"));
    let mut command = sandbox.rally(&["run", "-n", "1"]);
    command.arg(program);
    let run = sandbox.start(&mut command);
    run.expect_times(Stream::Stdout, " ready\n", 3);
    let asleep = || (sandbox.find("sleep 1000").len() == 2).then_some(());
    eventually(DEADLINE, asleep).expect("two spawned processes sleep");
    run
}

fn kill(pid: i32) {
    signal::kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
}

#[test]
fn they_end_with_the_front() {
    let sandbox = Sandbox::new();
    let run = start(&sandbox);
    kill(run.pid);
    sandbox.expect_clean();
    run.end().expect_code(137);
}

#[test]
fn they_end_with_the_controller() {
    let sandbox = Sandbox::new();
    let run = start(&sandbox);
    let controller = sandbox
        .alive()
        .into_iter()
        .filter(|process| process.runs(&rally()) && process.pid != run.pid)
        .find(|process| process.ppid != run.pid)
        .expect("the controller is a child of the front's child");
    kill(controller.pid);
    let run = run.end().expect_err(&["error:"]);
    assert_ne!(run.code(), 0);
    sandbox.expect_clean();
}

#[test]
fn they_end_with_their_spawner() {
    let sandbox = Sandbox::new();
    let run = start(&sandbox);
    let spawner = sandbox.find("linger");
    let spawner = spawner
        .iter()
        .find(|process| !process.runs(&rally()))
        .expect("the rank lives");
    kill(spawner.pid);
    run.end()
        .expect_code(137)
        .expect_err(&["rank 0", "SIGKILL"]);
    sandbox.expect_clean();
}

/// What a spawner wants to be logged is printed, one line for each event.
#[test]
fn starts_and_ends_are_logged() {
    let sandbox = Sandbox::new();
    let program = pmix::program("spawn_logged");
    let program = program.to_str().unwrap();
    let run = sandbox
        .run_rally(&["run", "-n", "1", program])
        .expect_code(0);
    let err = run.err();
    let logged = err.lines().filter(|line| line.starts_with("note: job "));
    let logged: Vec<&str> = logged.collect();
    let [started, ended, failed] = &logged[..] else {
        panic!("{err}");
    };
    assert!(started.starts_with("note: job 2 started at 20"), "{err}");
    assert!(started.ends_with(" UTC with 2 ranks"), "{err}");
    assert!(ended.starts_with("note: job 2 ended at 20"), "{err}");
    assert!(ended.ends_with(" UTC with exit code 0"), "{err}");
    assert!(failed.starts_with("note: job 3 ended at 20"), "{err}");
    let why = " UTC with exit code 3: its rank 1 exited with code 3";
    assert!(failed.ends_with(why), "{err}");
}

/// A submitted job has no front that prints: what a rank of it wants to be logged is in its file for errors.
#[test]
fn those_of_a_submitted_job_are_in_its_file() {
    let sandbox = Sandbox::new();
    let machine = Machine::up(&sandbox, &["--host", "localhost:4"]);
    let program = pmix::program("spawn_logged");
    let program = program.to_str().unwrap();
    let job = machine.submit(&["-n", "1", "--errors-to", "errors", program]);
    machine.run(&["wait", &job]).expect_code(0);
    let errors = sandbox.read("errors");
    let logged = errors.lines().filter(|line| line.contains("note: job "));
    let logged: Vec<&str> = logged.collect();
    let [started, ended, failed] = &logged[..] else {
        panic!("{errors}");
    };
    assert!(started.ends_with(" UTC with 2 ranks"), "{errors}");
    assert!(ended.ends_with(" UTC with exit code 0"), "{errors}");
    let why = " UTC with exit code 3: its rank 1 exited with code 3";
    assert!(failed.ends_with(why), "{errors}");
    machine.down();
}

/// The spawned job ends with its failed rank, and its spawner continues.
#[test]
fn one_that_fails_is_said_and_its_spawner_goes_on() {
    let sandbox = Sandbox::new();
    let run = start(&sandbox);
    kill(sandbox.find("sleep 1000")[0].pid);
    run.expect(Stream::Stderr, "job 2");
    let gone = || sandbox.find("sleep 1000").is_empty().then_some(());
    eventually(DEADLINE, gone).expect("the other one is ended as well");
    assert!(!sandbox.find("linger").is_empty());
    run.signal(Signal::SIGTERM);
    run.end().expect_code(143);
    sandbox.expect_clean();
}

#[test]
fn signals_reach_them() {
    let sandbox = Sandbox::new();
    let run = start(&sandbox);
    run.signal(Signal::SIGINT);
    run.end().expect_code(130);
    sandbox.expect_clean();
}
