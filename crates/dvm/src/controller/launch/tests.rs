//! Tests of the `Hello` of daemons.

use base::{JobId, NodeId, Signal};

use crate::{
    controller::{
        ControllerOutput,
        spawned::tests::job,
        tests::{JOB, NODES, World, hello},
    },
    proto::{FromFront, FrontId, ToController, ToDaemon, ToFront, VERSION},
    spec::OnFailure,
};

/// Formats the outputs that matter for these tests.
fn words(outputs: Vec<ControllerOutput>) -> Vec<String> {
    let one = |output| match output {
        ControllerOutput::Daemon(node, ToDaemon::Launch(launch)) => {
            let names: Vec<&str> = launch.nodes.iter().map(|node| node.host.as_str()).collect();
            Some(format!("{node}: launch on {}", names.join(", ")))
        }
        ControllerOutput::Front(_, ToFront::Refused(refusal)) => Some(format!("{refusal:?}")),
        ControllerOutput::Log(text) => Some(text),
        _ => None,
    };
    outputs.into_iter().filter_map(one).collect()
}

fn of_version(node: u32, theirs: u32) -> ToController {
    match hello(node) {
        ToController::Hello {
            node,
            host,
            topology,
            ..
        } => ToController::Hello {
            version: theirs,
            node,
            host,
            topology,
        },
        other => other,
    }
}

#[test]
fn a_job_waits_for_all_daemons() {
    let mut world = World::waiting();
    for node in 1..NODES {
        assert_eq!(words(world.says(node, hello(node))), [""; 0]);
    }
    insta::assert_snapshot!(words(world.says(0, hello(0))).join("\n"), @"
    0: launch on n0, n1, n2
    1: launch on n0, n1, n2
    2: launch on n0, n1, n2
    ");
}

#[test]
fn a_daemon_of_another_version_is_refused_with_the_job() {
    let mut world = World::waiting();
    let refused = words(world.says(0, of_version(0, VERSION + 1))).join("\n");
    let expected = format!(
        "OtherVersion {{ host: \"n0\", ours: {VERSION}, theirs: {} }}",
        VERSION + 1
    );
    assert_eq!(refused, expected);
}

/// A node is lost while the job waits for daemons, or before it is submitted.
#[test]
fn a_job_that_would_wait_for_a_lost_node_is_refused() {
    let mut world = World::waiting();
    world.says(0, hello(0));
    insta::assert_snapshot!(words(world.lose(1)).join("\n"), @r#"NodeLost { host: "n1" }"#);
    let mut world = World::new();
    world.lose(1);
    let front = FrontId(7);
    world.connects(front, 1);
    let submit = FromFront::Submit(Box::new(job(OnFailure::Continue)));
    insta::assert_snapshot!(words(world.hears(front, submit)).join("\n"), @r#"NodeLost { host: "n1" }"#);
}

/// Daemons on other nodes may take long to start.
#[test]
fn an_interrupt_ends_a_job_that_waits_for_daemons() {
    let mut world = World::waiting();
    let front = *world.controller.fronts.keys().next().unwrap();
    world.hears(front, FromFront::Signal(Signal::USR1));
    assert!(!world.controller.is_idle());
    world.hears(front, FromFront::Signal(Signal::INT));
    assert!(world.controller.is_idle());
}

/// The daemon is connected already, so the job goes on whatever a second `Hello` contains.
#[test]
fn a_second_hello_is_ignored() {
    let mut world = World::new();
    let renamed = match hello(1) {
        ToController::Hello {
            version,
            node,
            topology,
            ..
        } => ToController::Hello {
            version,
            node,
            host: "other".to_owned(),
            topology,
        },
        other => other,
    };
    let mut heard = Vec::new();
    for message in [hello(1), of_version(1, VERSION + 1), renamed] {
        heard.extend(words(world.says(1, message)));
    }
    insta::assert_snapshot!(heard.join("\n"), @"
    the daemon on node 1 says hello again: ignored
    the daemon on node 1 says hello again: ignored
    the daemon on node 1 says hello again: ignored
    ");
    assert_eq!(world.controller.nodes[&NodeId(1)].host, "n1");
}

/// A daemon of another version, which cannot take part in later jobs, does not cause a running job to be refused.
#[test]
fn another_version_does_not_end_what_runs() {
    let mut world = World::new();
    world.lose(2);
    let heard = words(world.says(2, of_version(2, VERSION + 1)));
    assert_eq!(heard, [""; 0]);
}

/// Two jobs may wait for the daemons together. Neither has a size before it is placed.
#[test]
fn no_two_jobs_have_the_same_global_ranks() {
    let mut world = World::waiting();
    let other = FrontId(7);
    world.connects(other, 78);
    world.hears(other, FromFront::Submit(Box::new(job(OnFailure::Continue))));
    let mut launched = Vec::new();
    for node in 0..NODES {
        for output in world.says(node, hello(node)) {
            if let ControllerOutput::Daemon(NodeId(0), ToDaemon::Launch(launch)) = output {
                launched.push((launch.job, launch.offset));
            }
        }
    }
    assert_eq!(launched, [(JOB, 0), (JobId(2), NODES)]);
}
