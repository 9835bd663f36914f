//! Tests of merged messages over three nodes.

use std::collections::BTreeSet;

use base::{ExitStatus, NodeId, Rank, RankSet};
use bytes::Bytes;
use proptest::prelude::*;

use crate::{
    ControllerInput, ControllerOutput,
    controller::tests::{JOB, NODES, World},
    proto::{Drained, EndClass, FenceId, FenceNews, PmiState, Started, ToController, ToFront},
};

/// Returns what the daemon of a node says in the course of a job in which all is well. Rank *n* is on node *n*.
fn course(node: u32) -> Vec<ToController> {
    let job = JOB;
    let ranks = RankSet::single(Rank(node));
    let executable = if node == 1 { "/bin/b" } else { "/bin/a" };
    let started = Started {
        executable: executable.into(),
        pids: vec![(Rank(node), 100 + i32::try_from(node).unwrap())],
    };
    let class = EndClass {
        status: ExitStatus::SUCCESS,
        drained: if node == 2 {
            Drained::Leaky
        } else {
            Drained::Whole
        },
        ranks: ranks.clone(),
    };
    vec![
        ToController::StdinClosed { job },
        ToController::Launched {
            job,
            started: vec![started],
            failures: Vec::new(),
            unenforced: Vec::new(),
        },
        ToController::FencesAbandoned { job },
        ToController::ExitedEarly {
            job,
            state: PmiState::NotInitialized,
            ranks,
        },
        ToController::Ended {
            job,
            classes: vec![class],
        },
        ToController::Clean {
            job,
            spent: base::Usage::default(),
        },
    ]
}

/// Says one message of each of these daemons, merged.
fn say(world: &mut World, step: usize, nodes: &[u32]) -> Vec<ControllerOutput> {
    let messages = nodes.iter().map(|node| course(*node).remove(step));
    match nodes {
        [] => Vec::new(),
        [node] => world.says(*node, course(*node).remove(step)),
        _ => {
            let nodes: BTreeSet<NodeId> = nodes.iter().copied().map(NodeId).collect();
            let merged = ToController::merge(messages).unwrap();
            world.handle(ControllerInput::Daemons(nodes, merged))
        }
    }
}

/// Plays the course of a job. In each step those nodes speak with one voice whose bit is set; the others follow.
fn play(masks: &[u32]) -> Vec<ControllerOutput> {
    let mut world = World::new();
    // Node 2 waits in a fence, so that it matters who will not come.
    let id = FenceId {
        job: JOB,
        group: None,
    };
    let news = FenceNews::Share {
        number: 0,
        nodes: None,
        share: Bytes::from_static(b"here"),
    };
    let mut outputs = world.says(2, ToController::Fence { id, news });
    for (step, mask) in masks.iter().enumerate() {
        let (together, alone): (Vec<u32>, Vec<u32>) =
            (0..NODES).partition(|node| mask & 1 << node != 0);
        outputs.extend(say(&mut world, step, &together));
        for node in alone {
            outputs.extend(say(&mut world, step, &[node]));
        }
    }
    outputs
}

/// Returns what the front hears, and how many messages each node gets.
fn seen(outputs: &[ControllerOutput]) -> (Vec<&ToFront>, Vec<usize>) {
    let front = outputs.iter().filter_map(|output| match output {
        ControllerOutput::Front(_, message) => Some(message),
        _ => None,
    });
    let told = |node: u32| {
        let told = outputs
            .iter()
            .filter(|output| matches!(output, ControllerOutput::Daemon(to, _) if to.0 == node));
        told.count()
    };
    (front.collect(), (0..NODES).map(told).collect())
}

proptest! {
    #[test]
    fn a_merged_message_counts_for_each_of_its_nodes(masks in prop::collection::vec(0..8_u32, 6)) {
        let (apart, merged) = (play(&[0; 6]), play(&masks));
        prop_assert_eq!(seen(&merged).0, seen(&apart).0);
        let ended = matches!(seen(&merged).0.last(), Some(ToFront::Ended(_)));
        prop_assert!(ended, "the job is over");
    }
}

#[test]
fn the_nodes_hear_the_same_as_from_single_messages() {
    let (apart, merged) = (play(&[0; 6]), play(&[7; 6]));
    assert_eq!(seen(&merged), seen(&apart));
}

#[test]
fn what_cannot_be_merged_is_logged() {
    let mut world = World::new();
    let bug = ToController::Bug("a".to_owned());
    let input = ControllerInput::Daemons([NodeId(0), NodeId(1)].into(), bug);
    let logged = world.handle(input);
    assert!(
        matches!(&logged[..], [ControllerOutput::Log(_)]),
        "{logged:?}"
    );
}
