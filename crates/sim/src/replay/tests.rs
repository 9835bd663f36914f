use base::JobId;
use dvm::{
    ControllerInput, ControllerOutput,
    alloc::Allocation,
    proto::{EndReason, FromFront, FrontId, ToController},
    recording::preamble,
};

use super::*;

/// Records a controller that gets these inputs.
fn record(inputs: Vec<ControllerInput>) -> Vec<Event<'static>> {
    let (allocation, name) = (Allocation::default(), "rally-n1".to_owned());
    let mut controller = Controller::new(allocation.clone(), name.clone());
    let mut events = vec![Event::Controller { allocation, name }];
    for (number, input) in (1..).zip(inputs) {
        let now = Time::from_nanos(number * 1_000_000);
        events.push(Event::ControllerGets(now, Box::new(input.clone())));
        controller.handle(now, input);
        while let Some(output) = controller.poll() {
            events.push(Event::ControllerSends(Box::new(output)));
        }
        events.push(Event::ControllerIdle(controller.deadline()));
    }
    events
}

/// A front asks for jobs with held ranks, and a daemon reports a bug.
fn example() -> Vec<Event<'static>> {
    let front = FrontId(3);
    record(vec![
        ControllerInput::FrontConnected { front, pid: 77 },
        ControllerInput::Front(front, FromFront::Holds),
        ControllerInput::Front(front, FromFront::End(EndReason::TimeLimit)),
        ControllerInput::Daemon(
            NodeId(2),
            ToController::Bug("a queue overflowed".to_owned()),
        ),
    ])
}

fn replay(events: &[Event<'_>]) -> Result<Replayed, String> {
    let mut file = preamble();
    for event in events {
        file.extend(event.encode().unwrap());
    }
    let mut replay = Replay::default();
    replay.take(&file).map_err(|error| error.to_string())?;
    replay.end().map_err(|error| error.to_string())
}

#[test]
fn a_recording_is_repeated() {
    let replayed = replay(&example()).unwrap();
    assert!(replayed.compared >= 6, "{replayed:?}");
    insta::assert_snapshot!(replayed, @"no difference: events 11, state machines 1, compared outputs 6");
}

#[test]
fn the_first_difference_is_shown_with_both_values() {
    let mut events = example();
    for event in &mut events {
        if let Event::ControllerSends(output) = event
            && let ControllerOutput::Log(what) = &mut **output
        {
            what.push('!');
        }
    }
    insta::assert_snapshot!(replay(&events).unwrap_err(), @r#"
         0.000000s ctl    starts as rally-n1
         0.001000s ctl    <- FrontConnected { front: FrontId(3), pid: 77 }
         0.001000s ctl    waits
         0.002000s ctl    <- Front(FrontId(3), Holds)
         0.002000s ctl    -> Front(FrontId(3), Holding([]))
         0.002000s ctl    waits
         0.003000s ctl    <- Front(FrontId(3), End(TimeLimit))
         0.003000s ctl    waits
         0.004000s ctl    <- Daemon(NodeId(2), Bug("a queue overflowed"))
    event 10, ctl: the replay differs
      recorded: -> Log("on node 2: a queue overflowed!")
      replayed: -> Log("on node 2: a queue overflowed")
    "#);
}

#[test]
fn missing_and_additional_outputs_are_differences() {
    let events = example();
    let outputs = (0..events.len()).filter(|at| matches!(events[*at], Event::ControllerSends(_)));
    for at in outputs {
        let mut fewer = events.clone();
        fewer.remove(at);
        let said = replay(&fewer).unwrap_err();
        assert!(said.contains("recorded: "), "{said}");
        let mut more = events.clone();
        more.insert(at, events[at].clone());
        let said = replay(&more).unwrap_err();
        assert!(said.contains("replayed: "), "{said}");
    }
    // Another deadline is a difference too.
    let mut events = events;
    let until = Some(Time::from_nanos(5));
    *events.last_mut().unwrap() = Event::ControllerIdle(until);
    assert!(replay(&events).unwrap_err().ends_with("replayed: waits"));
}

#[test]
fn a_recording_without_its_beginning_is_refused() {
    let job = JobId(1);
    let clean = ControllerInput::Daemon(
        NodeId(0),
        ToController::Clean {
            job,
            spent: base::Usage::default(),
        },
    );
    let events = [Event::ControllerGets(Time::ZERO, Box::new(clean))];
    let said = replay(&events).unwrap_err();
    assert_eq!(
        said,
        "event 1: the recording has not started ctl, so its beginning is missing"
    );
    assert_eq!(replay(&[]).unwrap_err(), "the recording has no event");
    let said = replay(&[Event::DaemonIdle(NodeId(4), None)]).unwrap_err();
    assert_eq!(
        said,
        "event 1: the recording has not started d4, so its beginning is missing"
    );
}

#[test]
fn what_is_no_recording_is_refused() {
    let said = |file: &[u8]| {
        let mut replay = Replay::default();
        let result = replay.take(file).and_then(|()| replay.end());
        let said = result.map_or_else(|error| error.to_string(), |replayed| replayed.to_string());
        // The version of the messages is no concern of this test.
        let ours = |end: &str| format!(".{}{end}", dvm::proto::VERSION);
        said.replace(&ours(","), ".N,").replace(&ours(":"), ".N:")
    };
    let start = preamble();
    let with = |at: usize, byte: u8| {
        let mut file = start.clone();
        file[at] = byte;
        said(&file)
    };
    let event = example()[0].encode().unwrap();
    let whole = [&start[..], &event].concat();
    insta::assert_debug_snapshot!([
        said(b""),
        said(&start[..10]),
        said(b"#!/bin/sh\nexec rally\n"),
        with(8, 99),
        with(12, 99),
        said(&start),
        said(&whole[..whole.len() - 1]),
        said(&[&whole[..], &event[..9]].concat()),
        said(&[&start[..], &[0; 4]].concat()),
        said(&[&start[..], &[0xff; 4]].concat()),
        said(&[&start[..], &[1, 0, 0, 0, 77]].concat()),
    ], @r#"
    [
        "the recording has no event",
        "the recording has no event",
        "this is no recording of `rally run --record`",
        "the recording has version 99.N, and this program reads 2.N: use the sources of the `rally` that wrote it",
        "the recording has version 2.99, and this program reads 2.N: use the sources of the `rally` that wrote it",
        "the recording has no event",
        "the recording has no event",
        "no difference: events 1, state machines 1, compared outputs 0; the recording ends inside an event",
        "event 1: an event of 0 bytes is longer than 68157440, or empty",
        "event 1: an event of 4294967295 bytes is longer than 68157440, or empty",
        "event 1: an event does not decode",
    ]
    "#);
}

#[test]
fn a_long_value_is_shown_around_the_difference() {
    let (one, other) = both("short", "shirt");
    assert_eq!((one.as_str(), other.as_str()), ("short", "shirt"));
    let long = |mark: &str| format!("{}{mark}{}", "a".repeat(10_000), "b".repeat(10_000));
    let (one, other) = both(&long("1"), &long("2"));
    assert!(one.starts_with("… aaa") && one.contains("a1b") && one.ends_with("b …"));
    assert!(other.contains("a2b"));
    assert!(one.len() <= SHOWN_MAX + 10);
}
