//! The primitives with the real kernel.
//!
//! Children, signals, limits and forks belong to a whole process, so the usual harness with its threads cannot test them.
//! Here each test runs in a forked process with one thread, one after another.
#![expect(
    clippy::unwrap_used,
    reason = "clippy knows tests by an attribute that these do not have"
)]
#![expect(clippy::print_stdout, reason = "a harness reports")]

mod cgroup;
mod debuggee;
mod foreign;
mod fork;
mod hold;
mod loops;
mod private;
mod socket;
mod spawn;
mod world;

use std::{panic, process::ExitCode, time::Duration};

use base::{ExitStatus, Signal};
use nix::sys::{prctl, signal};
use os::{ChildEvent, Clock, Event, Forked, Loop, Pid};

type Test = (&'static str, fn());

/// Time after which a test counts as hanging.
const PATIENCE: Duration = Duration::from_secs(120);

fn main() -> ExitCode {
    os::close_on_exec_from(3);
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let exact = arguments.iter().any(|argument| argument == "--exact");
    // nextest lists with `--format terse`, which is our format anyway; `terse` must not be taken for a test's name.
    let filters: Vec<&String> = arguments
        .iter()
        .filter(|argument| !argument.starts_with('-') && *argument != "terse")
        .collect();
    let wanted = |name: &str| {
        filters.is_empty()
            || filters.iter().any(|filter| {
                if exact {
                    name == *filter
                } else {
                    name.contains(*filter)
                }
            })
    };
    let tests = [
        spawn::TESTS,
        hold::TESTS,
        loops::TESTS,
        fork::TESTS,
        socket::TESTS,
        private::TESTS,
        foreign::TESTS,
        cgroup::TESTS,
        debuggee::TESTS,
    ]
    .concat();
    let tests = tests.into_iter().filter(|(name, _)| wanted(name));
    if arguments.iter().any(|argument| argument == "--list") {
        // No test here is ignored, so the list of ignored tests is empty.
        if !arguments.iter().any(|argument| argument == "--ignored") {
            tests.for_each(|(name, _)| println!("{name}: test"));
        }
        return ExitCode::SUCCESS;
    }
    os::become_subreaper().unwrap();
    let mut events = Loop::new(&[]).unwrap();
    let failed = tests.filter(|test| !passes(*test, &mut events)).count();
    if failed == 0 {
        return ExitCode::SUCCESS;
    }
    println!("{failed} failed");
    ExitCode::FAILURE
}

fn passes((name, test): Test, events: &mut Loop) -> bool {
    let child = match os::fork().unwrap() {
        Forked::Parent(child) => child,
        Forked::Child => run(test),
    };
    let status = wait_for(child, events);
    let left = end_orphans();
    let passed = status == ExitStatus::SUCCESS && left == 0;
    match (passed, left) {
        (true, _) => println!("test {name} ... ok"),
        (false, 0) => println!("test {name} ... {status}"),
        (false, left) => println!("test {name} ... {status}, left {left} processes behind"),
    }
    passed
}

/// Kills the processes that a test has left and we have adopted; returns their number.
fn end_orphans() -> usize {
    let mut ended = 0;
    while os::has_children() {
        for orphan in os::children() {
            os::kill(orphan, Signal::KILL).unwrap();
        }
        while os::reap().is_some() {
            ended += 1;
        }
    }
    ended
}

#[expect(
    clippy::exit,
    reason = "the test's process must not go on with its parent's work"
)]
fn run(test: fn()) -> ! {
    prctl::set_pdeathsig(signal::Signal::SIGKILL).unwrap();
    let outcome = panic::catch_unwind(test);
    std::process::exit(outcome.map_or(101, |()| 0))
}

fn wait_for(child: Pid, events: &mut Loop) -> ExitStatus {
    let mut buffer = Vec::new();
    let deadline = Clock::now() + PATIENCE;
    loop {
        match os::reap() {
            Some(ChildEvent::Exited { pid, status, .. }) if pid == child => return status,
            // An orphan of the test.
            Some(_) => continue,
            None => {}
        }
        events.wait(Some(deadline), &mut buffer).unwrap();
        if buffer.contains(&Event::Deadline) {
            os::kill(child, Signal::KILL).unwrap();
        }
    }
}
