//! Fronts that connect to the socket of the controller, some with a job of their own.

use dvm::{
    proto::JobRef,
    spec::{HoldAt, StdinTarget},
};

use super::*;

/// Starts a held job of the front that forked the controller: there is a socket only if ranks are held.
fn held() -> (tempfile::TempDir, Process, TestFront, TestFront) {
    let directory = tempfile::tempdir().unwrap();
    let session = directory.path().join("session");
    let (mut process, mut first) = open(4, Some(session.clone()));
    let mut spec = job("echo the first job");
    spec.hold = HoldPlan::all(HoldAt::Exec);
    first.link.send(FromFront::Submit(Box::new(spec)));
    until(&mut process, &mut [&mut first], |fronts| {
        fronts[0].heard.is_held
    });
    let name = format!("control-{}", os::current_pid());
    let socket = os::connect_at(&session.join(name), PATIENCE).unwrap();
    (directory, process, first, TestFront::new(socket))
}

#[test]
fn its_output_and_input_travel_in_frames() {
    let (_directory, mut process, mut first, mut second) = held();
    let mut spec = job("cat; echo rank $RALLY_RANK of the second job");
    spec.stdin = StdinTarget::All;
    second.link.send(FromFront::Submit(Box::new(spec)));
    second.link.send(FromFront::StdinEof);
    until(&mut process, &mut [&mut first, &mut second], |fronts| {
        fronts[1].is_closed
    });
    let second = second.end();
    assert_eq!(*second.cause(), Cause::Success);
    insta::assert_snapshot!(second.lines.join("\n"), @"
    rank 0 of the second job
    rank 1 of the second job
    rank 2 of the second job
    rank 3 of the second job
    ");
    // The job of the first front is still held.
    assert!(first.heard.outcome.is_none());
    first.link.send(FromFront::Release {
        job: JobRef::Own,
        ranks: None,
    });
    until(&mut process, &mut [&mut first], |fronts| {
        fronts[0].is_closed
    });
    let first = first.end();
    assert_eq!(*first.cause(), Cause::Success);
    assert_eq!(first.lines, ["the first job"; 4]);
}

#[test]
fn the_process_outlives_the_front_that_has_forked_it() {
    let (_directory, mut process, mut first, mut second) = held();
    let mut spec = job("cat; echo done");
    spec.stdin = StdinTarget::All;
    second.link.send(FromFront::Submit(Box::new(spec)));
    until(&mut process, &mut [&mut first, &mut second], |fronts| {
        !fronts[1].heard.hosts.is_empty()
    });
    drop(first);
    // The process has noticed the loss when it answers a later question; until then, the job waits for its input.
    second.link.send(FromFront::Holds);
    until(&mut process, &mut [&mut second], |fronts| {
        fronts[0].heard.answers > 0
    });
    second.link.send(FromFront::StdinEof);
    until(&mut process, &mut [&mut second], |fronts| {
        fronts[0].is_closed
    });
    let second = second.end();
    assert_eq!(*second.cause(), Cause::Success);
    assert_eq!(second.lines, ["done"; 4]);
    // The first job is being ended meanwhile.
    to_the_end(&mut process);
}

fn to_the_end(process: &mut Process) {
    let end = Clock::now() + PATIENCE;
    while process.turn(Some(Clock::now() + TURN)).unwrap() != Turn::Over(Exit::Clean) {
        assert!(Clock::now() < end, "the process does not end");
        process.reap(Clock::now());
    }
}

/// A question, a job and the end of its input sent together: the message behind the job must not be forgotten.
#[test]
fn what_comes_behind_a_job_is_heard() {
    let (_directory, mut process, mut first, mut second) = held();
    let mut spec = job("cat; echo done");
    spec.stdin = StdinTarget::All;
    second.link.send(FromFront::Holds);
    second.link.send(FromFront::Submit(Box::new(spec)));
    second.link.send(FromFront::StdinEof);
    until(&mut process, &mut [&mut first, &mut second], |fronts| {
        fronts[1].is_closed
    });
    assert_eq!(second.end().lines, ["done"; 4]);
}

/// Any number of questions is answered, each as soon as the one before it.
#[test]
fn who_asks_without_end_is_served_one_by_one() {
    const QUESTIONS: usize = 20_000;
    let (_directory, mut process, mut first, mut second) = held();
    for _ in 0..QUESTIONS {
        second.link.send(FromFront::Holds);
    }
    until(&mut process, &mut [&mut first, &mut second], |fronts| {
        fronts[1].heard.answers == QUESTIONS
    });
}

/// A front that sends more input than it has credit for is disconnected, without an effect on others.
#[test]
fn input_without_credit_ends_its_own_job() {
    let (_directory, mut process, mut first, mut second) = held();
    let mut spec = job("cat; echo not reached; sleep 1000");
    spec.stdin = StdinTarget::All;
    second.link.send(FromFront::Submit(Box::new(spec)));
    second
        .link
        .send(FromFront::Stdin(vec![b'x'; 1 << 20].into()));
    until(&mut process, &mut [&mut first, &mut second], |fronts| {
        fronts[1].is_closed
    });
    assert!(second.heard.outcome.is_none());
    assert!(!first.is_closed);
    // Its job must end, or the process would not.
    drop(first);
    to_the_end(&mut process);
}
