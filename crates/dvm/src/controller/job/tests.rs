//! Tests of requests by a process on one node about ranks on others: signals, and pushed input.

use base::{RankSet, Signal};
use bytes::Bytes;
use pmix::{
    codec::Format,
    message::{Answer, Command, GroupForm, Shape},
};

use super::pushes::MAX_PUSHES;
use crate::{
    controller::{
        ControllerOutput,
        tests::{FRONT, JOB, World, hello, to_daemons},
    },
    proto::{AskId, FromFront, PushResult, ToController, ToDaemon},
};

fn words(outputs: Vec<ControllerOutput>) -> String {
    to_daemons(outputs, |message| match message {
        ToDaemon::Push {
            number,
            ranks,
            bytes,
            is_last,
            ..
        } => Some(format!(
            "push {number} to {ranks}: {bytes:?}, last {is_last}"
        )),
        ToDaemon::Launch(_) => Some("launch".to_owned()),
        ToDaemon::Signal { signal, .. } => Some(format!("signal {}", signal.0)),
        ToDaemon::SignalRanks { ranks, signal, .. } => {
            Some(format!("signal {} to {ranks}", signal.0))
        }
        ToDaemon::Answer {
            ticket: AskId::Pmix(ticket),
            answer,
        } => {
            let shape = Shape::of(Command::IofPush, GroupForm::Members);
            match Answer::decode(Format::V4, shape, &answer) {
                Ok(Answer::Status(status)) => Some(format!("{ticket} is {status}")),
                other => Some(format!("{ticket} is {other:?}")),
            }
        }
        _ => None,
    })
}

fn push(world: &mut World, node: u32, ticket: u64, ranks: RankSet) -> String {
    let push = ToController::Push {
        ticket: AskId::Pmix(ticket),
        job: JOB,
        ranks,
        bytes: Bytes::from_static(b"words"),
        is_last: false,
    };
    words(world.says(node, push))
}

fn pushed(world: &mut World, node: u32, number: u64, result: PushResult) -> String {
    let pushed = ToController::Pushed {
        job: JOB,
        number,
        result,
    };
    words(world.says(node, pushed))
}

#[test]
fn a_push_is_answered_when_all_nodes_have_answered() {
    let mut world = World::new();
    insta::assert_snapshot!(push(&mut world, 2, 7, RankSet::range(0..2)), @r#"
    0: push 0 to 0: b"words", last false
    1: push 0 to 1: b"words", last false
    "#);
    // A second answer from the same node is ignored.
    assert_eq!(pushed(&mut world, 0, 0, PushResult::Unread), "");
    assert_eq!(pushed(&mut world, 0, 0, PushResult::Taken), "");
    insta::assert_snapshot!(pushed(&mut world, 1, 0, PushResult::Taken), @"2: 7 is SUCCESS (0)");
    assert_eq!(pushed(&mut world, 1, 0, PushResult::Taken), "");
}

#[test]
fn a_push_does_not_wait_for_a_node_that_is_clean_or_lost() {
    let mut world = World::new();
    push(&mut world, 2, 7, RankSet::range(0..2));
    assert_eq!(pushed(&mut world, 0, 0, PushResult::Full), "");
    insta::assert_snapshot!(words(world.lose(1)), @"2: 7 is OUT_OF_RESOURCE (-29)");
    insta::assert_snapshot!(push(&mut world, 2, 8, RankSet::range(1..2)), @"2: 8 is IOF_COMPLETE (-173)");
    push(&mut world, 2, 9, RankSet::range(0..1));
    insta::assert_snapshot!(words(world.says(0, ToController::Clean { job: JOB, spent: base::Usage::default() })), @"2: 9 is IOF_COMPLETE (-173)");
}

#[test]
fn pushes_that_wait_are_bounded() {
    let mut world = World::new();
    for ticket in 0..MAX_PUSHES as u64 {
        push(&mut world, 2, ticket, RankSet::range(0..1));
    }
    insta::assert_snapshot!(push(&mut world, 2, 100, RankSet::range(0..1)), @"2: 100 is OUT_OF_RESOURCE (-29)");
}

#[test]
fn a_push_to_a_job_that_is_over_is_answered() {
    let mut world = World::new();
    let push = ToController::Push {
        ticket: AskId::Pmix(1),
        job: base::JobId(99),
        ranks: RankSet::range(0..1),
        bytes: Bytes::new(),
        is_last: true,
    };
    insta::assert_snapshot!(words(world.says(0, push)), @"0: 1 is IOF_COMPLETE (-173)");
}

#[test]
fn a_signal_reaches_each_rank_on_its_node() {
    let mut world = World::new();
    let signal = ToController::SignalRanks {
        job: JOB,
        ranks: RankSet::range(1..3),
        signal: Signal::STOP,
    };
    insta::assert_snapshot!(words(world.says(0, signal)), @"
    1: signal 19 to 1
    2: signal 19 to 2
    ");
}

#[test]
fn a_job_that_is_paused_before_its_launch_is_stopped_at_once() {
    for (signals, expected) in [
        (
            &[Signal::STOP][..],
            "0: signal 19\n1: signal 19\n2: signal 19",
        ),
        (&[Signal::STOP, Signal::CONT], ""),
        // Nobody could handle it.
        (&[Signal(10)], ""),
    ] {
        let mut world = World::waiting();
        for signal in signals {
            let told = world.hears(FRONT, FromFront::Signal(*signal));
            assert_eq!(words(told), "");
        }
        let last = crate::controller::tests::NODES - 1;
        let mut told = String::new();
        for node in 0..=last {
            told = words(world.says(node, hello(node)));
        }
        assert_eq!(
            told.trim_start_matches("0: launch\n1: launch\n2: launch")
                .trim(),
            expected,
            "{signals:?}"
        );
    }
}
