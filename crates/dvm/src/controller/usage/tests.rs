//! A job on three nodes that is measured.

use std::time::Duration;

use base::{JobId, NodeId, Rank, Usage};

use crate::{
    controller::{
        ControllerInput, ControllerOutput,
        tests::{FRONT, JOB, NODES, World, to_daemons},
    },
    machine::{Reply, USAGE_RANKS_MAX, UsageReport},
    proto::{Counted, ProcUsage, ToController, ToDaemon, ToFront},
};

fn measured(world: &mut World, node: u32, number: u64) -> Option<UsageReport> {
    let used = Usage {
        user: Duration::from_secs(u64::from(node)),
        ..Usage::default()
    };
    let procs = vec![ProcUsage {
        rank: Rank(node),
        pid: 1,
        processes: 2,
        resident: 100,
        used,
    }];
    let job = JOB;
    reported(world.says(
        node,
        ToController::Measured {
            job,
            number,
            procs,
            counted: None,
        },
    ))
}

fn reported(outputs: Vec<ControllerOutput>) -> Option<UsageReport> {
    outputs.into_iter().find_map(|output| match output {
        ControllerOutput::Front(FRONT, ToFront::Reply(reply)) => match *reply {
            Reply::Usage(report) => Some(*report),
            _ => None,
        },
        _ => None,
    })
}

/// Begins to measure, and returns what the daemons are told.
fn begin(world: &mut World) -> Vec<ControllerOutput> {
    world.controller.measure(FRONT, &[(5, JOB)]);
    std::iter::from_fn(|| world.controller.poll()).collect()
}

fn asked(outputs: Vec<ControllerOutput>) -> String {
    to_daemons(outputs, |message| match message {
        ToDaemon::Measure { job, number } => Some(format!("job {job}, number {number}")),
        _ => None,
    })
}

#[test]
fn the_front_is_told_when_all_nodes_have_answered() {
    let mut world = World::new();
    let outputs = begin(&mut world);
    insta::assert_snapshot!(asked(outputs), @"
    0: job 1, number 1
    1: job 1, number 1
    2: job 1, number 1
    ");
    assert_eq!(measured(&mut world, 2, 1), None);
    assert_eq!(measured(&mut world, 0, 1), None);
    // A second answer of the same node says nothing.
    assert_eq!(measured(&mut world, 0, 1), None);
    let report = measured(&mut world, 1, 1).unwrap();
    assert_eq!(
        (report.procs, report.processes, report.resident),
        (3, 6, 300)
    );
    assert_eq!(report.total.user, Duration::from_secs(3));
    let ranks = report.ranks.iter();
    let ranks: Vec<_> = ranks
        .map(|one| (one.task, one.rank.0, &*one.host))
        .collect();
    assert_eq!(ranks, [(5, 0, "n0"), (5, 1, "n1"), (5, 2, "n2")]);
    assert_eq!(measured(&mut world, 1, 1), None);
}

#[test]
fn the_first_ranks_are_told_of_whatever_node_answers_first() {
    let mut world = World::new();
    begin(&mut world);
    let most = u32::try_from(USAGE_RANKS_MAX).unwrap();
    let mut reports = Vec::new();
    // Node 2 has the last ranks, and answers first.
    for (node, ranks) in [(2, most..most + 5), (0, 0..most - 2), (1, most - 2..most)] {
        let procs = ranks.map(|rank| ProcUsage {
            rank: Rank(rank),
            pid: 1,
            processes: 1,
            resident: 0,
            used: Usage::default(),
        });
        let measured = ToController::Measured {
            job: JOB,
            number: 1,
            procs: procs.collect(),
            counted: None,
        };
        reports.extend(reported(world.says(node, measured)));
    }
    let report = &reports[0];
    assert_eq!(report.procs, u64::from(most) + 5);
    assert!(report.ranks.iter().map(|one| one.rank.0).eq(0..most));
}

#[test]
fn nobody_waits_for_a_lost_node() {
    let mut world = World::new();
    begin(&mut world);
    measured(&mut world, 0, 1);
    assert_eq!(reported(world.lose(1)), None);
    let report = measured(&mut world, 2, 1).unwrap();
    assert_eq!(report.procs, 2);
    begin(&mut world);
    measured(&mut world, 0, 2);
    assert_eq!(reported(world.lose(2)).unwrap().procs, 1);
}

#[test]
fn a_front_that_is_gone_is_told_nothing() {
    let mut world = World::new();
    begin(&mut world);
    world.handle(ControllerInput::FrontLost(FRONT));
    assert!(world.controller.measurements.open.is_empty());
    for node in 0..NODES {
        assert_eq!(measured(&mut world, node, 1), None);
    }
}

#[test]
fn what_does_not_run_uses_nothing() {
    let mut world = World::new();
    world.controller.measure(FRONT, &[(0, JobId(9))]);
    let outputs: Vec<_> = std::iter::from_fn(|| world.controller.poll()).collect();
    assert_eq!(reported(outputs), Some(UsageReport::default()));
}

#[test]
fn what_nodes_have_used_is_known_at_the_end() {
    let mut world = World::new();
    let spent = Usage {
        read: 10,
        ..Usage::default()
    };
    for node in 0..2 {
        world.says(node, ToController::Clean { job: JOB, spent });
    }
    let job = world.controller.jobs.get(&JOB).unwrap();
    assert_eq!(job.spent.read, 20);
    let both = [0, 2].map(NodeId).into_iter().collect();
    world.handle(ControllerInput::Daemons(
        both,
        ToController::Clean { job: JOB, spent },
    ));
    assert_eq!(world.controller.jobs.get(&JOB).unwrap().spent.read, 30);
}

#[test]
fn a_cgroup_counts_what_its_ranks_do_not() {
    let counted = |user, peak| Counted {
        user: Duration::from_secs(user),
        peak,
        ..Counted::default()
    };
    let mut world = World::new();
    begin(&mut world);
    // Node 0 has no cgroup, and that of node 2 does not count memory.
    for (node, counted) in [
        (0, None),
        (1, Some(counted(100, Some(1 << 30)))),
        (2, Some(counted(10, None))),
    ] {
        let procs = vec![ProcUsage {
            rank: Rank(node),
            pid: 1,
            processes: 1,
            resident: 0,
            used: Usage {
                user: Duration::from_secs(1),
                peak: 2 << 30,
                read: 4,
                ..Usage::default()
            },
        }];
        let message = ToController::Measured {
            job: JOB,
            number: 1,
            procs,
            counted,
        };
        if let Some(report) = reported(world.says(node, message)) {
            assert_eq!(report.total.user, Duration::from_secs(111));
            assert_eq!((report.total.peak, report.total.read), (2 << 30, 12));
            // The ranks are shown as they are.
            assert_eq!(report.ranks[1].used.user, Duration::from_secs(1));
            return;
        }
    }
    panic!("there is no report");
}
